"""How a mount begins and ends: background and foreground, signals, busy, dead and second mounts."""

import errno
import fcntl
import json
import mmap
import os
import re
import signal
import socket
import subprocess
import sys
import termios

import pytest

import kvmount

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="the daemon of kvcachefs")


def user_of(path, *argv):
    """A process that has its working directory there; end it with end()."""
    return subprocess.Popen(argv or ["sleep", "600"], cwd=path)


# What a mount without a daemon answers; the second while its requests are being ended.
# The last two: a request that was on its way through a ring when its daemon died.
DEAD = (errno.ENOTCONN, errno.ECONNABORTED, errno.ECANCELED, errno.EINTR)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def end(process):
    process.kill()
    process.wait()


@pytest.mark.gate
@pytest.mark.short
def test_the_background_mount_answers_when_it_returns(mounts):
    mount = mounts(foreground=False)
    with open(f"{mount.mnt}/f", "wb") as file:
        file.write(b"x")
    assert os.listdir(mount.mnt) == ["f"]
    daemon = mount.pid()
    assert mount.status()["pid"] == daemon
    assert os.getsid(daemon) != os.getsid(0)
    assert os.readlink(f"/proc/{daemon}/cwd") == "/"
    for number in (0, 1, 2):
        assert os.readlink(f"/proc/{daemon}/fd/{number}") == "/dev/null"
    with open(f"/proc/{daemon}/limits") as file:
        limits = {line[:26].strip(): line[26:].split() for line in file}
    assert limits["Max core file size"][:2] == ["0", "0"]
    assert limits["Max open files"][0] == limits["Max open files"][1]
    mount.stop()
    assert not os.path.exists(f"{mount.state}/control.sock")
    assert os.listdir(mount.mnt) == []


def test_a_mount_waits_for_a_daemon_that_is_ending(mounts, tmp_path):
    """umount(8) returns before the last stores are sealed; the next mount, and fsck, come right after it."""
    slow = ["strace", "-f", "-qq", "-o", str(tmp_path / "trace"), "-e", "trace=fdatasync,syncfs", "-e",
            "inject=fdatasync,syncfs:delay_exit=1500000"]
    mount = mounts(wrapper=slow)
    for check in (lambda: mount.fsck()[0], lambda: mount.start(foreground=False, wrapper=[]) and 0):
        with open(f"{mount.mnt}/f", "ab") as file:
            file.write(b"x")
        first = mount.process
        subprocess.run(["umount", mount.mnt], check=True)
        assert first.poll() is None, "it is to be ending"
        assert check() == 0
        assert first.wait(60) == 0
        if not mount.is_mounted():
            mount.start()
    assert read(f"{mount.mnt}/f") == "xx"
    assert re.search(r"kvcachefs with pid \d+ is ending: waiting for it", read(mount.stderr))
    log = read(mount.log)
    for step in ("end_the_session", "seal_what_was_stored", "close_the_files", "close_the_database"):
        assert re.search(rf"event=stopping step={step} after_s=\d", log), step
    assert re.search(r"event=stopped seconds=\d", log)


def test_the_kernel_is_told_nothing_before_it_knows_the_root(mounts, tmp_path):
    """A message on its way past the first GETATTR would have it forget the answer, and the mode of a
    new mount's root is 0 until then: EACCES for whoever calls first."""
    mib = 1 << 20
    mount = mounts(size=128 * mib)
    for number in range(100):
        with open(f"{mount.mnt}/{number}", "wb") as file:
            file.write(bytes(mib))
    trace = tmp_path / "trace"
    # Half of it goes at once.
    mount.remount(size=64 * mib, wrapper=["strace", "-f", "-Y", "-qq", "-e", "trace=writev,newfstatat",
                                          "-o", str(trace)])
    kvmount.wait_until(lambda: mount.status()["dropped"]["room"]["files"] > 4, 30, "evictions")
    tasks = f"/proc/{mount.pid()}/task"
    notifier, = [task for task in os.listdir(tasks)
                 if read(f"{tasks}/{task}/comm") == "kv-notifier\n"]
    mount.stop()
    calls = trace.read_text(errors="replace").splitlines()
    known = [n for n, line in enumerate(calls) if "<kvcachefs-probe>" in line and mount.mnt in line]
    told = [n for n, line in enumerate(calls) if line.startswith(notifier)]
    assert known and told, calls
    assert known[-1] < told[0], calls[known[-1] - 1:told[0] + 2]


def test_the_mount_point_may_hold_files(mounts):
    mount = mounts(foreground=False, options=["--nonempty"])
    mount.stop()
    with open(f"{mount.mnt}/below", "wb"):
        pass
    mount.start()
    assert os.listdir(mount.mnt) == []
    mount.stop()
    assert os.listdir(mount.mnt) == ["below"]


@pytest.mark.gate
@pytest.mark.short
def test_a_second_mount_is_refused_with_the_pid_of_the_first(mounts):
    mount = mounts()
    other = f"{mount.work}/other"
    os.mkdir(other)
    done = mount.cli("mount", "--nvme", mount.nvme, other)
    assert done.returncode == 1
    assert f"in use by kvcachefs with pid {mount.pid()}" in done.stderr
    assert kvmount.mount_entry(other) is None
    # Another volume on the same mount point.
    nvme = f"{mount.work}/nvme2"
    os.mkdir(nvme, 0o700)
    done = mount.cli("mount", "--nvme", nvme, mount.mnt)
    assert done.returncode == 1 and f"(pid {mount.pid()})" in done.stderr, done.stderr
    assert os.listdir(nvme) == []


@pytest.mark.gate
@pytest.mark.short
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT])
def test_a_signal_unmounts_cleanly(mounts, number):
    mount = mounts()
    with open(f"{mount.mnt}/f", "wb") as file:
        file.write(b"kept" * 1000)
    mount.process.send_signal(number)
    assert mount.process.wait(timeout=60 * kvmount.SLOWNESS) == 0, mount.logs()
    mount.process = None
    assert not mount.is_mounted()
    mount.start()
    assert mount.status()["recovery"]["kind"] == "clean"
    with open(f"{mount.mnt}/f", "rb") as file:
        assert file.read() == b"kept" * 1000


def test_a_plain_umount_ends_the_daemon(mounts):
    mount = mounts()
    subprocess.run(["umount", mount.mnt], check=True, timeout=60)
    assert mount.process.wait(timeout=60 * kvmount.SLOWNESS) == 0, mount.logs()
    mount.process = None
    mount.start()
    assert mount.status()["recovery"]["kind"] == "clean"


@pytest.mark.gate
@pytest.mark.short
def test_umount_of_a_busy_mount_names_the_processes(mounts):
    mount = mounts()
    os.mkdir(f"{mount.mnt}/dir")
    sleeper = user_of(f"{mount.mnt}/dir")
    file = open(f"{mount.mnt}/f", "w+b")
    file.write(bytes(4096))
    file.flush()
    mapping = mmap.mmap(file.fileno(), 4096)
    try:
        done = mount.cli("umount", mount.mnt)
        assert done.returncode == 1 and "busy" in done.stderr, done.stderr
        assert f"sleep ({sleeper.pid}: working directory)" in done.stderr, done.stderr
        mine = re.search(rf"\({os.getpid()}: ([^)]*)\)", done.stderr)
        assert mine and mine[1] == "open file, mapped file", done.stderr
        assert mount.is_mounted() and os.listdir(f"{mount.mnt}/dir") == []
    finally:
        mapping.close()
        file.close()
        end(sleeper)
    mount.stop()


def test_a_lazy_umount_serves_what_is_open_to_its_end(mounts):
    mount = mounts(options=["--stop-timeout", "60s"])
    with open(f"{mount.mnt}/f", "wb") as file:
        file.write(b"a" * 5000)
    file = open(f"{mount.mnt}/f", "r+b", buffering=0)
    umount = subprocess.Popen([os.path.join(kvmount.BIN, "kvcachefs"), "umount", "--lazy",
                               mount.mnt], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    kvmount.wait_until(lambda: not mount.is_mounted(), 20, "the mount is detached")
    assert file.read() == b"a" * 5000
    file.write(b"b")
    assert os.fstat(file.fileno()).st_size == 5001
    assert mount.process.poll() is None
    file.close()
    assert umount.wait(timeout=60 * kvmount.SLOWNESS) == 0, umount.stderr.read()
    umount.communicate()
    assert mount.process.wait(timeout=60 * kvmount.SLOWNESS) == 0, mount.logs()
    mount.process = None
    mount.start()
    with open(f"{mount.mnt}/f", "rb") as file:
        assert file.read() == b"a" * 5000 + b"b"


def test_a_stop_of_a_busy_mount_is_bounded(mounts):
    mount = mounts(options=["--stop-timeout", "1s"])
    with open(f"{mount.mnt}/f", "wb") as file:
        file.write(b"kept")
    sleeper = user_of(mount.mnt)
    try:
        mount.process.send_signal(signal.SIGTERM)
        assert mount.process.wait(timeout=40 * kvmount.SLOWNESS) == 0, mount.logs()
        mount.process = None
        assert not mount.is_mounted()
        mount.start()
        with open(f"{mount.mnt}/f", "rb") as file:
            assert file.read() == b"kept"
    finally:
        end(sleeper)


def test_a_second_signal_ends_the_waiting(mounts):
    mount = mounts(options=["--stop-timeout", "10min"])
    sleeper = user_of(mount.mnt)
    try:
        mount.process.send_signal(signal.SIGTERM)
        kvmount.wait_until(lambda: mount.status()["phase"] == "stopping", 20, "the stop began")
        mount.process.send_signal(signal.SIGTERM)
        assert mount.process.wait(timeout=40 * kvmount.SLOWNESS) == 0, mount.logs()
        mount.process = None
        assert not mount.is_mounted()
    finally:
        end(sleeper)


@pytest.mark.gate
@pytest.mark.short
def test_a_dead_mount_point_is_taken_over(mounts):
    mount = mounts(foreground=False)
    with open(f"{mount.mnt}/f", "wb") as file:
        file.write(b"kept")
    for _ in range(2):
        mount.kill(unmount=False)
        with pytest.raises(OSError) as dead:
            os.stat(f"{mount.mnt}/f")
        assert dead.value.errno in DEAD
        done = mount.cli("status", mount.mnt)
        assert done.returncode == 1 and "has died" in done.stderr, done.stderr
        done = subprocess.run(mount.command(), capture_output=True, text=True, timeout=120,
                              check=False)
        assert done.returncode == 0 and "had died was taken away" in done.stderr, done.stderr
        with open("/proc/self/mountinfo") as table:
            assert sum(f" {mount.mnt} " in line for line in table) == 1
        with open(f"{mount.mnt}/f", "rb") as file:
            assert file.read() == b"kept"


def test_umount_of_a_dead_mount_cleans_up(mounts):
    mount = mounts()
    mount.kill(unmount=False)
    for words in (("status", f"{mount.mnt}/d"), ("explain", f"{mount.mnt}/d/f")):
        done = mount.cli(*words)
        assert done.returncode == 1 and "its daemon has died" in done.stderr, done
    done = mount.cli("umount", mount.mnt)
    assert done.returncode == 0 and "had died" in done.stdout, done.stderr
    assert not mount.is_mounted()
    done = mount.cli("umount", mount.mnt)
    assert done.returncode == 1 and "no kvcachefs is mounted" in done.stderr


def test_a_stopped_daemon_holds_nobody_up(mounts):
    mount = mounts()
    file = f"{mount.mnt}/dir/file"
    os.mkdir(f"{mount.mnt}/dir")
    os.kill(mount.pid(), signal.SIGSTOP)
    try:
        kvmount.wait_until(lambda: kvmount.is_stopped(mount.pid()), 20, "the daemon to stop")
        asked = [subprocess.Popen([os.path.join(kvmount.BIN, "kvcachefs"), *words],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                 for words in (("umount", mount.mnt), ("status", mount.mnt),
                               ("status", f"{mount.mnt}/dir"), ("explain", file), ("evict", file),
                               ("pin", file), ("ls", f"{mount.mnt}/dir"), ("flush", file))]
        for process in asked:
            out, said = process.communicate(timeout=60 * kvmount.SLOWNESS)
            assert process.returncode == 1 and out == "", (process.args, out)
            assert "does not answer" in said and said.count("\n") == 1, (process.args, said)
    finally:
        os.kill(mount.pid(), signal.SIGCONT)
    assert mount.cli("status", mount.mnt).returncode == 0


def test_a_lazy_umount_does_not_wait_for_a_daemon_that_hangs(mounts):
    mount = mounts()
    os.kill(mount.pid(), signal.SIGSTOP)
    try:
        kvmount.wait_until(lambda: kvmount.is_stopped(mount.pid()), 20, "the daemon to stop")
        done = mount.cli("umount", "--lazy", mount.mnt, seconds=100)
        assert done.returncode == 0 and done.stderr == "", done
        assert f"(pid {mount.pid()}) does not answer" in done.stdout, done.stdout
        assert not mount.is_mounted()
    finally:
        os.kill(mount.pid(), signal.SIGCONT)
    # Nobody uses it: it ends by itself.
    assert mount.process.wait(timeout=60 * kvmount.SLOWNESS) == 0, mount.logs()
    mount.process = None
    mount.start()
    assert mount.status()["recovery"]["kind"] == "clean"


def test_a_lazy_umount_of_a_dead_mount_cleans_up(mounts):
    mount = mounts()
    mount.kill(unmount=False)
    done = mount.cli("umount", "--lazy", mount.mnt)
    assert done.returncode == 0 and "had died" in done.stdout, done
    assert not mount.is_mounted()


def test_a_pool_whose_filesystem_hangs_holds_up_no_start(mounts):
    other = mounts()
    os.mkdir(f"{other.mnt}/pool")
    os.kill(other.pid(), signal.SIGSTOP)
    try:
        kvmount.wait_until(lambda: kvmount.is_stopped(other.pid()), 20, "the daemon to stop")
        mount = mounts(options=["--pool", f"dir://{other.mnt}/pool"])
        write(mount, "f", "x")
    finally:
        os.kill(other.pid(), signal.SIGCONT)
    kvmount.wait_until(lambda: mount.status()["pool"]["up"], 30, "the pool")


def test_only_its_user_may_unmount_and_ask(mounts):
    mount = mounts()
    os.chmod(mount.nvme, 0o755)

    def ask(*words):
        return subprocess.run([os.path.join(kvmount.BIN, "kvcachefs"), *words],
                              capture_output=True, text=True, timeout=60, check=False)

    for words in (("umount", mount.mnt), ("status", mount.mnt)):
        done = kvmount.run_as(ask, *words, uid=kvmount.NOBODY)
        assert done.returncode == 1 and "root" in done.stderr, done.stderr
    assert mount.is_mounted()


@pytest.mark.gate
@pytest.mark.short
def test_systemd_is_told(mounts, tmp_path):
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(path)
        notify.settimeout(60)
        mount = mounts(env={"NOTIFY_SOCKET": path})
        assert "READY=1" in notify.recv(4096).decode().split("\n")
        assert os.statvfs(mount.mnt).f_bsize == 4096
        mount.stop()
        assert "STOPPING=1" in notify.recv(4096).decode().split("\n")


def test_the_log_goes_to_its_file(mounts):
    mount = mounts(foreground=False, options=["--log-level", "debug"])
    mount.stop()
    with open(mount.log) as log:
        text = log.read()
    for event in ("event=starting", "event=ready", "event=stopped"):
        assert event in text
    assert os.path.getsize(mount.stderr) == 0


# ---- containers --------------------------------------------------------------------------------

# Runs in a mount namespace of its own and answers each path with the file's text or an error.
CONTAINER = """
import sys
import termios
for path in sys.stdin:
    try:
        with open(path[:-1]) as file:
            print(file.read(), flush=True)
    except OSError as error:
        print("errno", error.errno, flush=True)
"""


class Container:
    """A process in a mount namespace whose mounts are bound with the propagation given; of those of tests it has `mount`'s."""

    def __init__(self, propagation, mount):
        self.process = subprocess.Popen(
            [*kvmount.unshared(propagation, mount.work), sys.executable, "-c", CONTAINER],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def read(self, path):
        self.process.stdin.write(path + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().rstrip("\n")

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=60)


@pytest.fixture
def shared(request):
    """A Mount, not started, whose directories lie on a mount with shared propagation."""
    mount = kvmount.Mount(request.node.name, foreground=False).create()
    subprocess.run(["mount", "--bind", mount.work, mount.work], check=True, timeout=60)
    subprocess.run(["mount", "--make-shared", mount.work], check=True, timeout=60)
    work = mount.work
    yield mount
    for command in (("umount", "-l", mount.mnt), ("umount", "-l", work)):
        try:
            os.kill(mount.pid(), signal.SIGKILL)
        except (OSError, ValueError):
            pass
        subprocess.run(command, capture_output=True, timeout=60, check=False)
    mount.close()


def is_dead(answer):
    return answer in [f"errno {code}" for code in DEAD]


def write(mount, name, text):
    with open(f"{mount.mnt}/{name}", "w") as file:
        file.write(text)


@pytest.mark.parametrize("lazy", [False, True], ids=["umount", "lazy"])
def test_unmounting_a_bind_mount_leaves_the_others(shared, tmp_path, lazy):
    shared.start()
    write(shared, "f", "bytes")
    bound = tmp_path / "bound"
    bound.mkdir()
    subprocess.run(["mount", "--bind", shared.mnt, bound], check=True, timeout=60)
    subprocess.run(["mount", "--make-private", bound], check=True, timeout=60)
    done = shared.cli("umount", *(["--lazy"] if lazy else []), str(bound))
    assert done.returncode == 0, done.stderr
    assert f"still mounted at {shared.mnt}" in done.stdout
    assert not (bound / "f").exists()
    with open(f"{shared.mnt}/f") as file:
        assert file.read() == "bytes"


@pytest.mark.parametrize("propagation", ["slave", "private"])
def test_a_container_sees_the_mount(shared, propagation):
    # Bound before the mount is there: only a container with propagation gets it later.
    early = Container(propagation, shared)
    assert early.read(f"{shared.mnt}/f") == f"errno {errno.ENOENT}"
    shared.start()
    write(shared, "f", "one")
    late = Container(propagation, shared)
    follows = propagation == "slave"
    try:
        assert late.read(f"{shared.mnt}/f") == "one"
        assert early.read(f"{shared.mnt}/f") == ("one" if follows else f"errno {errno.ENOENT}")

        # The daemon is killed, and the mount made anew over the dead one. With propagation the container
        # has the new one; without, it keeps the dead one until it is started again.
        shared.kill(unmount=False)
        assert is_dead(late.read(f"{shared.mnt}/f"))
        shared.start()
        text = late.read(f"{shared.mnt}/f")
        assert text == "one" if follows else is_dead(text)
        again = Container(propagation, shared)
        assert again.read(f"{shared.mnt}/f") == "one"
        again.close()
    finally:
        early.close()
        late.close()
    shared.stop()


def test_a_container_that_keeps_the_mount_is_named_and_outlived(shared):
    shared.options = ["--stop-timeout", "1s"]
    shared.start()
    write(shared, "f", "one")
    container = Container("private", shared)
    try:
        assert container.read(f"{shared.mnt}/f") == "one"
        daemon = shared.pid()
        # Unmounted here, in use there: the daemon serves on, for who knows how long. That is said soon.
        done = subprocess.run([os.path.join(kvmount.BIN, "kvcachefs"), "umount", shared.mnt],
                              capture_output=True, text=True, check=False, timeout=60 * kvmount.SLOWNESS)
        assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done
        for part in (f"({container.process.pid}: ", "container", f"kill {daemon}"):
            assert part in done.stderr, done.stderr
        assert container.read(f"{shared.mnt}/f") == "one"
        pidfd = os.pidfd_open(daemon)
        os.kill(daemon, signal.SIGTERM)
        assert kvmount.wait_pidfd(pidfd, 40)
        os.close(pidfd)
        assert is_dead(container.read(f"{shared.mnt}/f"))
    finally:
        container.close()


def test_status_as_json_and_as_text(mounts):
    mount = mounts()
    write(mount, "f", "x" * 10000)
    for name in ("f", "absent"):
        os.path.exists(f"{mount.mnt}/{name}")
    os.mkdir(f"{mount.mnt}/dir")
    status = mount.status()
    for key in ("version", "pid", "mountpoint", "state", "uptime_s", "data_path", "transport",
                "recovery", "tiers", "counts", "hit_ratio", "lookups", "operations"):
        assert key in status, key
    assert status["pid"] == mount.pid() and status["mountpoint"] == mount.mnt
    assert status["state"] == mount.state and status["recovery"]["kind"] == "new"
    assert status["data_path"]["mode"] in ("passthrough", "daemon") and status["data_path"]["why"]
    assert status["transport"]["mode"] in ("io_uring", "dev_fuse") and status["transport"]["why"]
    tier = status["tiers"][0]
    assert tier["kind"] == "nvme" and tier["path"] == mount.nvme
    assert tier["capacity"] > tier["free"] > 0
    create = status["operations"]["create"]
    assert create["count"] == 1 and create["errors"] == 0 and 0 < create["p50_us"] <= create["p99_us"]
    assert status["lookups"]["miss"] >= 1 and 0 <= status["hit_ratio"] <= 1

    done = mount.cli("status", f"{mount.mnt}/dir")
    assert done.returncode == 0 and done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0] == f"{mount.mnt}: healthy", done.stdout
    for part in (f"pid {mount.pid()}", f"data path   {status['data_path']['mode']}: ",
                 f"transport   {status['transport']['mode']}: ", mount.nvme, "create"):
        assert part in done.stdout, part
    done = mount.cli("status", mount.work)
    assert done.returncode == 1 and "no kvcachefs is mounted" in done.stderr


def test_what_a_request_deserves_is_no_error(mounts):
    """Python asks each file that it opens whether it is a terminal."""
    mount = mounts()
    write(mount, "f", "x" * 10000)
    os.mkdir(f"{mount.mnt}/dir")
    os.mkdir(f"{mount.mnt}/dir/below")
    with open(f"{mount.mnt}/f") as file:
        assert not file.isatty()
        with pytest.raises(OSError):
            fcntl.ioctl(file, termios.TIOCGWINSZ, b"12345678")
    refused = {errno.EEXIST: lambda: os.close(os.open(f"{mount.mnt}/f", os.O_CREAT | os.O_EXCL)),
               errno.ENOTEMPTY: lambda: os.rmdir(f"{mount.mnt}/dir"),
               errno.ENOENT: lambda: os.unlink(f"{mount.mnt}/absent"),
               errno.ENODATA: lambda: os.getxattr(f"{mount.mnt}/f", "user.absent"),
               errno.EISDIR: lambda: os.rename(f"{mount.mnt}/f", f"{mount.mnt}/dir"),
               errno.EINVAL: lambda: os.rename(f"{mount.mnt}/dir", f"{mount.mnt}/dir/below/it")}
    for code, call in refused.items():
        with pytest.raises(OSError) as failed:
            call()
        assert failed.value.errno == code
    operations = mount.status()["operations"]
    assert {name for name, one in operations.items() if one["errors"] > 0} == set()
    assert operations["ioctl"]["count"] > 0


def test_the_control_socket_is_private_and_bounded(mounts):
    mount = mounts()
    path = f"{mount.state}/control.sock"
    assert os.stat(path).st_mode & 0o7777 == 0o600
    assert os.stat(mount.state).st_mode & 0o7777 == 0o700

    def say(text):
        # The path is too long for a socket address: through a descriptor of its directory.
        directory = os.open(mount.state, os.O_PATH)
        try:
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(30)
                client.connect(f"/proc/self/fd/{directory}/control.sock")
                client.sendall(text)
                answer = b""
                while chunk := client.recv(65536):
                    answer += chunk
                return answer
        finally:
            os.close(directory)

    assert json.loads(say(b'{"command":"status"}\n'))["pid"] == mount.pid()
    for text in (b"\n", b"[]\n", b'{"command":1}\n', b'{"command":"explode"}\n', b"x" * 20_000):
        assert "error" in json.loads(say(text)), text
    assert say(b'{"command":') == b""  # Never finished: dropped after its two seconds.


def test_version_and_help(mounts):
    mount = mounts()
    done = mount.cli("--version")
    assert done.returncode == 0 and re.fullmatch(r"kvcachefs \d+\.\d+\.\d+\n", done.stdout)
    for words in ((), ("mount",), ("umount",), ("status",), ("fsck",)):
        done = mount.cli(*words, "--help")
        assert done.returncode == 0 and done.stdout
        assert max(len(line) for line in done.stdout.splitlines()) <= 100
