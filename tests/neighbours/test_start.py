"""What a mount takes over from its starter, what it stands on, and what signals do to it."""

import fcntl
import os
import resource
import signal
import subprocess
import time

import pytest

import kvmount

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="how kvcachefs starts")

KVCACHEFS = os.path.join(kvmount.BIN, "kvcachefs")


# The bits of fs/capabilities.h.
CAPABILITIES = {"CAP_DAC_OVERRIDE": 1, "CAP_DAC_READ_SEARCH": 2, "CAP_FOWNER": 3, "CAP_NET_BIND_SERVICE": 10,
                "CAP_SYS_PTRACE": 19, "CAP_SYS_ADMIN": 21, "CAP_SYS_RESOURCE": 24}


@pytest.fixture(name="place")
def made_place():
    """A mount that is not started: its directories alone."""
    mount = kvmount.Mount("start").create()
    yield mount
    if mount.is_mounted():
        mount.stop()
    mount.close()


def refused(mount, *words, code=1):
    """What `kvcachefs mount` says when it refuses; it leaves nothing behind."""
    before = sorted(os.listdir(mount.nvme))
    done = mount.cli("mount", "--nvme", mount.nvme, "--state", mount.state, *words, mount.mnt)
    assert done.returncode == code and not mount.is_mounted(), done
    assert done.stderr.count("\n") == 1, done.stderr
    assert sorted(os.listdir(mount.nvme)) == before
    return done.stderr


@pytest.mark.gate
def test_nothing_of_the_starter_is_held(place):
    """A lock of flock(1), a pipe that somebody reads to its end: both are free while the mount is there."""
    lock = os.open(f"{place.work}/lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    reader, writer = os.pipe()
    words = [KVCACHEFS, "mount", "--nvme", place.nvme, place.mnt]
    done = subprocess.run(words, pass_fds=(lock, writer), capture_output=True, text=True, timeout=60 * kvmount.SLOWNESS,
                          check=False)
    assert done.returncode == 0 and place.is_mounted(), done.stderr
    os.close(lock)
    os.close(writer)
    assert os.read(reader, 1) == b""
    os.close(reader)
    with open(f"{place.work}/lock") as again:
        fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
    held = {os.readlink(f"/proc/{place.pid()}/fd/{number}") for number in (0, 1, 2)}
    assert held == {"/dev/null"}


def test_limits_of_the_starter_do_not_count(place):
    """Who starts it may have been allowed files of a megabyte, a second of processor time, small stacks and little memory."""
    limits = {resource.RLIMIT_FSIZE: 1 << 20, resource.RLIMIT_CPU: 1, resource.RLIMIT_STACK: 256 << 10}
    if not kvmount.SANITIZER:  # Their programs map terabytes before they begin.
        limits[resource.RLIMIT_AS] = limits[resource.RLIMIT_DATA] = 256 << 20

    def limit():
        for which, most in limits.items():
            resource.setrlimit(which, (most, resource.getrlimit(which)[1]))

    done = subprocess.run([KVCACHEFS, "mount", "--nvme", place.nvme, place.mnt], capture_output=True, text=True,
                          preexec_fn=limit, timeout=60 * kvmount.SLOWNESS, check=False)
    assert done.returncode == 0, done.stderr
    data = os.urandom(3 << 20)
    with open(f"{place.mnt}/f", "wb") as file:
        file.write(data)
    with open(f"{place.mnt}/f", "rb") as file:
        assert file.read() == data


HARMLESS = [signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGIO, signal.SIGPWR,
            signal.SIGXCPU, signal.SIGXFSZ, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGPIPE, signal.SIGCHLD,
            signal.SIGCONT, signal.SIGWINCH, signal.SIGURG, signal.SIGRTMIN, signal.SIGRTMAX, signal.SIGHUP]


@pytest.mark.gate
@pytest.mark.short
def test_signals_that_mean_nothing_do_nothing(place):
    place.start()
    with open(f"{place.mnt}/f", "wb") as file:
        file.write(b"bytes")
    for number in HARMLESS:
        place.process.send_signal(number)
        # The daemon has to answer this one.
        with open(f"{place.mnt}/f-{int(number)}", "wb") as file:
            file.write(b"more")
    assert not kvmount.is_stopped(place.pid())
    assert place.process.poll() is None
    with open(f"{place.mnt}/f", "rb") as file:
        assert file.read() == b"bytes"


@pytest.mark.gate
@pytest.mark.short
def test_a_hang_up_opens_the_log_and_reads_the_settings(place):
    """As logrotate and administrators expect of a daemon: nobody's files are touched."""
    config = f"{place.work}/settings.toml"

    def settings(**values):
        with open(config, "w", encoding="utf-8") as file:
            for name, value in values.items():
                file.write(f'{name} = "{value}"\n')

    def log():
        with open(place.log, encoding="utf-8") as file:
            return file.read()

    settings(log_level="info", scrub="1MiB", lease="60s")
    place.start(options=["--config", config])
    with open(f"{place.mnt}/f", "wb") as kept:
        kept.write(b"bytes")
        os.rename(place.log, f"{place.log}.1")
        settings(log_level="debug", scrub="off", lease="30s")
        place.process.send_signal(signal.SIGHUP)
        said = ('setting_taken name=log-level value="debug"', 'setting_taken name=scrub value="off"',
                'setting_waits name=lease value="30s" for="the next mount"')
        kvmount.wait_until(lambda: os.path.exists(place.log) and all(line in log() for line in said),
                           10, "a new log that says what was taken")
        # What cannot be read changes nothing.
        settings(log_level="loud")
        place.process.send_signal(signal.SIGHUP)
        kvmount.wait_until(lambda: "settings_not_read" in log() and "'loud' is no level" in log(), 10,
                           "a word about them")
        kept.write(b" and more")
    with open(f"{place.mnt}/f", "rb") as file:
        assert file.read() == b"bytes and more"
    assert place.process.poll() is None


# ---- what it stands on


@pytest.mark.gate
def test_directories_that_hold_other_things_are_refused(place):
    os.makedirs(f"{place.nvme}/photos")
    said = refused(place)
    assert f"--nvme: {place.nvme}: holds other things (\"photos\")" in said and "--nonempty" in said, said
    os.rmdir(f"{place.nvme}/photos")
    with open(f"{place.mnt}/notes", "w", encoding="utf-8") as file:
        file.write("mine")
    said = refused(place)
    assert f"mount point: {place.mnt}: holds other things (\"notes\")" in said and "--nonempty" in said, said
    os.makedirs(f"{place.nvme}/photos")
    place.start(options=["--nonempty"])
    assert os.listdir(place.mnt) == []
    place.stop()
    assert os.listdir(place.mnt) == ["notes"]
    # It is a device of ours by now; the mount point still is not empty.
    assert "mount point" in refused(place)
    os.unlink(f"{place.mnt}/notes")
    place.start(options=[])


def test_what_is_on_the_way_to_our_own_paths_is_no_other_thing(place):
    """The mount point, the log and the state may lie in the device's directory, beside its objects."""
    os.makedirs(f"{place.nvme}/run/mnt")
    os.makedirs(f"{place.nvme}/lost+found")
    words = [KVCACHEFS, "mount", "--nvme", place.nvme, "--state", f"{place.nvme}/run/state", "--log", f"{place.nvme}/log",
             f"{place.nvme}/run/mnt"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60 * kvmount.SLOWNESS, check=False)
    assert done.returncode == 0, done.stderr
    place.state, place.mnt = f"{place.nvme}/run/state", f"{place.nvme}/run/mnt"


def test_the_root_of_a_system_is_no_device(place):
    names = sorted(os.listdir("/"))
    done = place.cli("mount", "--nvme", "/", "--state", f"{place.work}/state", place.mnt)
    assert done.returncode == 1 and not place.is_mounted(), done
    assert "holds other things" in done.stderr, done.stderr
    assert sorted(os.listdir("/")) == names


@pytest.mark.gate
@pytest.mark.parametrize("whose", ["others", "group", "nobody", "sticky"])
def test_what_others_could_replace_is_refused(place, whose):
    """Who may write above a directory renames it and puts his own there: the daemon would follow."""
    above = f"{place.work}/above"
    os.makedirs(f"{above}/nvme", 0o700)
    os.chmod(above, {"others": 0o777, "group": 0o775, "nobody": 0o755, "sticky": 0o1777}[whose])
    if whose == "nobody":
        os.chown(above, kvmount.NOBODY, kvmount.NOBODY)
    own = place.nvme
    words = ["--nvme", f"{above}/nvme", place.mnt]
    if whose == "sticky":  # What is root's there only root can move.
        done = place.cli("mount", *words)
        assert done.returncode == 0, done.stderr
        place.state = f"{above}/nvme/state"
        return
    done = place.cli("mount", *words)
    assert done.returncode == 1 and above in done.stderr and "--insecure-paths" in done.stderr, done
    assert os.listdir(f"{above}/nvme") == []
    done = place.cli("mount", "--nvme", own, "--state", f"{above}/state", place.mnt)
    assert done.returncode == 1 and "--state" in done.stderr and above in done.stderr, done
    # Who says that he knows is told at each start.
    done = place.cli("mount", "--insecure-paths", *words)
    assert done.returncode == 0 and above in done.stderr and "could put another in its place" in done.stderr, done
    place.state = f"{above}/nvme/state"


@pytest.mark.gate
@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770])
def test_a_pool_that_others_write_to_is_refused(place, mode):
    pool = f"{place.work}/pool"
    os.mkdir(pool, 0o700)
    os.chmod(pool, mode)
    said = refused(place, "--pool", f"dir://{pool}")
    assert f"--pool: {pool}: others could read and change everybody's files" in said and "--insecure-paths" in said, said
    assert os.listdir(pool) == []
    done = place.cli("mount", "--nvme", place.nvme, "--insecure-paths", "--pool", f"dir://{pool}", place.mnt)
    assert done.returncode == 0 and "others could read and change" in done.stderr, done


def test_a_pool_that_is_opened_to_others_later_is_down(place):
    """The check is made by descriptor, at each joining: a directory that was not there at the start counts as well."""
    pool = f"{place.work}/pool"
    place.start(options=["--pool", f"dir://{pool}"])
    os.mkdir(pool, 0o777)
    os.chmod(pool, 0o777)
    kvmount.wait_until(lambda: place.status()["pool"]["last_error"], 20, "an error of the pool")
    assert os.listdir(pool) == []


@pytest.mark.gate
def test_a_log_is_a_file_of_its_own(place):
    target = f"{place.work}/target"
    with open(target, "w", encoding="utf-8") as file:
        file.write("precious")
    os.symlink(target, f"{place.work}/link")
    os.mkfifo(f"{place.work}/fifo")
    for log, word, code in ((f"{place.work}/link", "a symlink", 2), ("/dev/null", "not a file", 1),
                            (f"{place.work}/fifo", "not a file", 1), (place.work, "not a file", 1)):
        said = refused(place, "--log", log, code=code)
        assert f"--log: {log}: {word}" in said, said
    with open(target, encoding="utf-8") as file:
        assert file.read() == "precious"


@pytest.mark.gate
def test_a_log_is_led_nowhere_by_who_owns_a_directory_above_it(place):
    """Its name is looked up again every second; whoever renames a directory above it does not choose what root appends to."""
    theirs, target = f"{place.work}/theirs", f"{place.work}/of-root"
    for directory in (theirs, f"{theirs}/logs", target):
        os.mkdir(directory)
    os.chown(theirs, kvmount.NOBODY, kvmount.NOBODY)
    place.log = f"{theirs}/logs/log"
    place.start(options=["--log-level", "debug"])

    def lead_elsewhere():
        os.rename(f"{theirs}/logs", f"{theirs}/moved")
        os.symlink(target, f"{theirs}/logs")

    os.chmod(place.work, 0o755)
    kvmount.run_as(lead_elsewhere, uid=kvmount.NOBODY)

    def lines():
        with pytest.raises(OSError):
            os.getxattr(place.mnt, "user.missing")
        with open(f"{theirs}/moved/log", encoding="utf-8") as log:
            return log.read().count("operation=getxattr")

    # For longer than from one look to the next.
    least = time.monotonic() + 2.5
    kvmount.wait_until(lambda: lines() > 20 and time.monotonic() > least, 20, "lines in the log that was moved")
    assert os.listdir(target) == []


@pytest.mark.gate
def test_a_log_of_another_user_is_refused(place):
    with open(f"{place.work}/log", "w", encoding="utf-8"):
        os.chown(f"{place.work}/log", kvmount.NOBODY, kvmount.NOBODY)
    said = refused(place, "--log", f"{place.work}/log", code=1)
    assert f"--log: {place.work}/log: belongs to uid {kvmount.NOBODY}" in said, said
    assert os.path.getsize(f"{place.work}/log") == 0


@pytest.mark.gate
def test_what_the_daemon_does_not_use_it_may_not():
    """Each thread has the capabilities of the unit file and no others, and nothing that it started could gain any."""
    with kvmount.Mount("capabilities") as mount:
        assert os.listdir(mount.mnt) == []
        with open(os.path.join(kvmount.ROOT, "packaging", "kvcachefs@.service.in"), encoding="utf-8") as file:
            (line,) = [line for line in file.read().splitlines() if line.startswith("CapabilityBoundingSet=")]
        assert set(line.split("=")[1].split()) == set(CAPABILITIES)
        most = sum(1 << bit for bit in CAPABILITIES.values())
        pid = mount.pid()
        threads = os.listdir(f"/proc/{pid}/task")
        assert len(threads) > 5
        for thread in threads:
            with open(f"/proc/{pid}/task/{thread}/status", encoding="ascii") as file:
                said = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
            sets = {name: int(said[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}
            assert sets["CapInh"] == sets["CapAmb"] == 0, said["Name"]
            assert sets["CapEff"] == sets["CapPrm"] == sets["CapBnd"] & most == sets["CapBnd"], (said["Name"], sets)
            assert said["NoNewPrivs"] == "1", said["Name"]
