"""Every way to ask wrongly gets one line that names the option, the value and the fix, and leaves
nothing behind."""

import contextlib
import os
import subprocess

import pytest

import kvmount

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="the command line of kvcachefs")


@pytest.fixture
def place(request):
    """A Mount that nobody has started."""
    mount = kvmount.Mount(request.node.name).create()
    yield mount
    mount.close()


def refused(place, *words, code, said):
    """Runs `kvcachefs mount WORDS`, which must fail with one line that holds all of `said`."""
    done = place.cli("mount", *words)
    assert done.returncode == code, done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("kvcachefs: "), done.stderr
    for part in said:
        assert part in lines[0], f"{lines[0]!r} lacks {part!r}"
    assert not place.is_mounted()
    assert not os.path.exists(place.state)


BAD_VALUES = [
    ("nvme", "{nvme}:12q", ["12q", "2TiB"]),
    ("nvme", "{nvme}:1KiB", ["1KiB", "64MiB"]),
    ("nvme", "{nvme}:101%", ["101%", "100%"]),
    ("data-path", "fast", ["fast", "passthrough"]),
    ("transport", "tcp", ["tcp", "uring"]),
    ("policy", "pin", ["pin", "keep"]),
    ("metadata-memory", "1TiB", ["1TiB", "512 MiB"]),
    ("metadata-memory", "lots", ["lots", "256MiB"]),
    ("ring-memory", "1", ["'1'", "4 MiB"]),
    ("stop-timeout", "2h", ["2h", "10min"]),
    ("log-level", "loud", ["loud", "debug"]),
]


@pytest.mark.parametrize("name,value,said", BAD_VALUES)
def test_a_bad_value(place, name, value, said):
    value = value.format(nvme=place.nvme)
    refused(place, "--nvme", place.nvme, f"--{name}", value, place.mnt, code=2,
            said=[f"--{name}", *said])
    refused(place, "-o", f"nvme={place.nvme},{name.replace('-', '_')}={value}", place.mnt, code=2,
            said=[f"-o {name}", *said])


@pytest.mark.gate
@pytest.mark.short
def test_wrong_usage(place):
    inner = f"{place.nvme}/inner"
    os.mkdir(inner)
    for words, said in [
            ((place.mnt,), ["--nvme", "missing"]),
            (("--nvme", place.nvme), ["MOUNTPOINT"]),
            (("--frobnicate", "--nvme", place.nvme, place.mnt), ["--frobnicate"]),
            (("--nvme", place.nvme, "--policy=", place.mnt), ["--policy=", "value is missing"]),
            (("--nvme", place.nvme, "-o", "frobnicate", place.mnt), ["frobnicate", "--help"]),
            (("--nvme", place.nvme, "-o", "remount,ro", place.mnt), ["remount", "mount(8)"]),
            (("--nvme", place.nvme, "--nvme", place.nvme, place.mnt), ["twice"]),
            (("--nvme", place.nvme, "--nvme", inner, place.mnt), [inner, "is inside", place.nvme]),
            (("--nvme", inner, "--nvme", place.nvme, place.mnt), [inner, "is inside", place.nvme]),
            (("--nvme", place.mnt, place.mnt), ["inside the mount point"]),
            (("--nvme", place.nvme, place.nvme), ["inside the mount point"]),
            (("--nvme", place.nvme, "--allow-other=perhaps", place.mnt), ["--allow-other", "perhaps"]),
            (("--nvme", place.nvme, "-o", "allow_other=false", place.mnt), ["takes no value"]),
            (("--nvme", place.nvme, "--pool-size", "1TiB", place.mnt), ["--pool-size", "no --pool"]),
            (("--nvme", place.nvme, "--pool-writes", "off", place.mnt),
             ["--pool-writes", "no --pool"]),
            (("--nvme", place.nvme, "-o", "pool_owner=0", place.mnt), ["pool-owner", "no --pool"])]:
        refused(place, *words, code=2, said=said)
    assert place.cli().returncode == 2
    assert place.cli("frobnicate").returncode == 2
    assert place.cli("fsck").returncode == 16


def test_what_is_not_there(place):
    absent = f"{place.work}/absent"
    refused(place, "--nvme", absent, place.mnt, code=1, said=["--nvme", absent, "mkdir"])
    refused(place, "--nvme", f"{place.nvme}:lots", place.mnt, code=1,
            said=[f"{place.nvme}:lots: ", "DIR:200GiB"])
    refused(place, "--nvme", place.nvme, absent, code=1, said=["mount point", absent, "mkdir"])
    refused(place, "--nvme", place.nvme, "--config", absent, place.mnt, code=1,
            said=["--config", absent])
    refused(place, "--nvme", place.nvme, "--log", f"{absent}/log", place.mnt, code=1,
            said=["--log", absent])
    refused(place, "--nvme", place.nvme, "--state", f"{absent}/state", place.mnt, code=1,
            said=["--state", absent])


# Should it not be refused, the kernel refuses the mount: a daemon that waits for itself could not be killed.
NOT_MOUNTED = ("-o", "context=not_a_label")


def test_what_the_daemon_writes_is_not_in_its_own_mount(place):
    """By whatever way it is named. Nothing is mounted when it is looked at."""
    with contextlib.ExitStack() as stack:
        for name, target in (("above", place.work), ("mount", place.mnt), ("device", place.nvme)):
            os.mkdir(f"{place.work}/bound-{name}")
            subprocess.run(["mount", "--bind", target, f"{place.work}/bound-{name}"], check=True,
                           timeout=60)
            stack.callback(kvmount.lazy_unmount, f"{place.work}/bound-{name}")
        os.mkdir(f"{place.mnt}/inner")
        os.symlink(f"{place.work}/bound-mount/inner", f"{place.work}/link")
        os.mkdir(f"{place.nvme}/objects")
        for log in (f"{place.mnt}/log", f"{place.mnt}/absent/log", f"{place.work}/bound-mount/log",
                    f"{place.work}/bound-above/mnt/inner/log", f"{place.work}/link/log"):
            refused(place, "--nvme", place.nvme, "--log", log, *NOT_MOUNTED, place.mnt, code=2,
                    said=["--log", "inside the mount point"])
        refused(place, "--nvme", place.nvme, "--log", f"{place.work}/bound-device/objects/log",
                *NOT_MOUNTED, place.mnt, code=2, said=["--log", "keeps to itself"])
        refused(place, "--nvme", place.nvme, "--state", f"{place.work}/bound-mount/state",
                *NOT_MOUNTED, place.mnt, code=2, said=["--state", "inside the mount point"])
        refused(place, "--nvme", place.nvme, "--nvme", f"{place.work}/bound-device", *NOT_MOUNTED,
                place.mnt, code=2, said=["--nvme", "twice"])
        for pool, said in ((f"{place.work}/link", "inside the mount point"),
                           (f"{place.work}/bound-mount/later/pool", "inside the mount point"),
                           (f"{place.work}/bound-above", "has the mount point"),
                           (f"{place.work}/bound-device/pool", "inside the other")):
            refused(place, "--nvme", place.nvme, "--pool", f"dir://{pool}", *NOT_MOUNTED, place.mnt,
                    code=2, said=["--pool", said])
        os.rmdir(f"{place.nvme}/objects")
        assert os.listdir(place.mnt) == ["inner"] and os.listdir(place.nvme) == []


def test_more_is_to_stay_free_than_there_is(place):
    refused(place, "--nvme", place.nvme, "--min-free", "1EiB", place.mnt, code=1,
            said=["--min-free", place.nvme, "in all"])
    assert os.listdir(place.nvme) == []


def test_a_fifo_is_not_waited_for(place):
    fifo = f"{place.work}/fifo"
    os.mkfifo(fifo)
    refused(place, "--nvme", place.nvme, "--config", fifo, place.mnt, code=2,
            said=["--config", fifo, "not a regular file"])
    refused(place, "--nvme", place.nvme, "--log", fifo, place.mnt, code=1, said=["--log", fifo])


def test_a_mount_point_that_is_no_directory(place):
    with open(f"{place.work}/file", "wb"):
        pass
    refused(place, "--nvme", place.nvme, f"{place.work}/file", code=1, said=["not a directory"])
    assert os.listdir(place.nvme) == []


def test_a_failing_start_leaves_nothing(place):
    os.mkdir(f"{place.nvme}/objects")
    with open(f"{place.nvme}/objects/mine", "wb"):
        pass
    refused(place, "--nvme", place.nvme, place.mnt, code=1, said=["objects"])
    assert os.listdir(place.nvme) == ["objects"]
    # The kernel refuses the mount, after all else was made ready.
    good = f"{place.work}/good"
    os.mkdir(good, 0o700)
    refused(place, "--nvme", good, "-o", "context=not_a_label", place.mnt, code=1,
            said=["mount", place.mnt])
    assert os.listdir(good) == []
    # With a state directory elsewhere, and the first of two devices good.
    state = f"{place.work}/state"
    refused(place, "--nvme", good, "--nvme", place.nvme, "--state", state, place.mnt, code=1,
            said=["objects"])
    assert os.listdir(good) == [] and not os.path.exists(state)


def test_a_state_directory_with_other_things_in_it_stays_as_it_is(place):
    home = f"{place.work}/home"
    os.mkdir(home)
    os.chmod(home, 0o755)
    with open(f"{home}/letters", "wb"):
        pass
    refused(place, "--nvme", place.nvme, "--state", home, place.mnt, code=1,
            said=["state directory", home, "letters"])
    for words in ("fsck", "--state", home), ("ls", "--state", home), ("find", "--state", home, "ab"):
        done = place.cli(*words)
        assert done.returncode != 0
        assert "no metadata database" in done.stdout + done.stderr
    assert os.stat(home).st_mode & 0o7777 == 0o755
    assert os.listdir(home) == ["letters"]
    assert os.listdir(place.nvme) == []


def test_a_damaged_database_is_said_in_one_line(place):
    assert place.cli("mount", "--nvme", place.nvme, place.mnt).returncode == 0
    place.stop()
    os.unlink(f"{place.state}/db/CURRENT")
    for words in (("mount", "--nvme", place.nvme, place.mnt), ("ls", "--state", place.state),
                  ("find", "--state", place.state, "ab"), ("tree", "--state", place.state, "ab")):
        done = place.cli(*words)
        assert done.returncode == 1 and done.stdout == "", done
        assert done.stderr.count("\n") == 1 and "database damaged" in done.stderr, done.stderr
    assert place.cli("fsck", "--state", place.state).returncode == 8


def test_a_state_directory_others_may_write_to(place):
    os.mkdir(place.state)
    os.chmod(place.state, 0o777)
    done = place.cli("mount", "--nvme", place.nvme, place.mnt)
    assert done.returncode == 1 and "chmod 0700" in done.stderr, done.stderr
    assert os.listdir(place.state) == []
    os.chmod(place.state, 0o700)
    os.chown(place.state, kvmount.NOBODY, kvmount.NOBODY)
    done = place.cli("mount", "--nvme", place.nvme, place.mnt)
    assert done.returncode == 1 and f"uid {kvmount.NOBODY}" in done.stderr, done.stderr


def test_a_device_others_may_write_to(place):
    os.chmod(place.nvme, 0o777)
    refused(place, "--nvme", place.nvme, place.mnt, code=1, said=[place.nvme])
    os.chmod(place.nvme, 0o700)


def test_a_file_of_settings(place):
    path = f"{place.work}/mount.toml"

    def write(text):
        with open(path, "w") as file:
            file.write(text)

    for text, said in [("policy = \n", ["line 1"]), ("\nfrobnicate = 1\n", ["line 2"]),
                       ("policy = 'pin'\n", ["policy", "pin"]),
                       ("options = 'frobnicate'\n", ["frobnicate"])]:
        write(text)
        refused(place, "--nvme", place.nvme, "--config", path, place.mnt, code=2,
                said=[path, *said])
    write(f"nvme = ['{place.nvme}:80%']\nallow_other = true\noptions = 'noexec'\n")
    done = place.cli("mount", "--config", path, place.mnt)
    assert done.returncode == 0, done.stderr
    assert "noexec" in kvmount.mount_entry(place.mnt)[2]
    assert place.status()["tiers"][0]["size_limit_given"] == "80%"
    assert "allow_other" in kvmount.mount_entry(place.mnt)[2]
    place.stop()
    # The command line wins, also when it says no.
    done = place.cli("mount", "--config", path, "--allow-other=false", place.mnt)
    assert done.returncode == 0, done.stderr
    assert "allow_other" not in kvmount.mount_entry(place.mnt)[2]
    place.stop()


def as_nobody(words, directory):
    return subprocess.run([os.path.join(kvmount.BIN, "kvcachefs"), "mount", *words],
                          capture_output=True, text=True, cwd=directory, timeout=60, check=False)


@pytest.mark.gate
@pytest.mark.short
def test_a_user_without_privilege(place):
    for path in (place.nvme, place.mnt):
        os.chown(path, kvmount.NOBODY, kvmount.NOBODY)
    for words, said in [((), "CAP_SYS_ADMIN"), (("--allow-other",), "user_allow_other")]:
        done = kvmount.run_as(as_nobody, ["--nvme", place.nvme, *words, place.mnt], "/",
                              uid=kvmount.NOBODY)
        assert done.returncode == 1 and said in done.stderr, done.stderr
        assert os.listdir(place.nvme) == []


def test_devices_are_known_by_what_is_on_them(place):
    second = f"{place.work}/second"
    os.mkdir(second, 0o700)
    both = ["--nvme", place.nvme, "--nvme", second]
    assert place.cli("mount", *both, place.mnt).returncode == 0
    uuids = [tier["uuid"] for tier in place.status()["tiers"]]
    place.stop()

    # One is not given; its disk is not mounted; it belongs to another state directory.
    done = place.cli("mount", "--nvme", place.nvme, place.mnt)
    assert done.returncode == 1 and uuids[1] in done.stderr, done.stderr
    os.rename(second, f"{second}.away")
    os.mkdir(second, 0o700)
    done = place.cli("mount", *both, place.mnt)
    assert done.returncode == 1 and uuids[1] in done.stderr and second in done.stderr, done.stderr
    assert os.listdir(second) == []
    os.rmdir(second)
    os.rename(f"{second}.away", second)
    done = place.cli("mount", "--nvme", second, place.mnt)
    assert done.returncode == 1 and second in done.stderr, done.stderr
    assert not os.path.exists(f"{second}/state")

    # In the other order it is the same volume.
    assert place.cli("mount", "--nvme", second, "--nvme", place.nvme, "--state", place.state,
                     place.mnt).returncode == 0
    assert [tier["uuid"] for tier in place.status()["tiers"]] == uuids[::-1]
    place.stop()


def test_a_full_or_read_only_state_directory(place):
    disk = f"{place.work}/small"
    os.mkdir(disk)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=0700", "none", disk], check=True,
                   timeout=60)
    try:
        with open(f"{disk}/filler", "wb") as filler:
            filler.write(bytes(32 << 10))
        done = place.cli("mount", "--nvme", place.nvme, "--state", f"{disk}/state", place.mnt)
        assert done.returncode == 1, done.stderr
        assert f"{disk}/state" in done.stderr and "No space" in done.stderr, done.stderr
        assert os.listdir(disk) == ["filler"]
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True, timeout=60)
        done = place.cli("mount", "--nvme", place.nvme, "--state", f"{disk}/state", place.mnt)
        assert done.returncode == 1 and "read-only" in done.stderr.lower(), done.stderr
    finally:
        kvmount.lazy_unmount(disk)
    assert os.listdir(place.nvme) == []
