"""pjdfstest and fsx on the mount, with ext4 on a loop device as the control.

A pjdfstest case that fails on ext4 too is an exclusion that ext4 needs; nothing else is excluded.
"""

import os
import re
import subprocess

import pytest

import kvmount
import suites

_WHY_NOT = suites.missing()
if _WHY_NOT:
    pytest.skip(_WHY_NOT, allow_module_level=True)

# The clock of a file's times may stand still for as long as the host of a virtual machine gives it no
# processor: a nap of 10 ms is too short there.
# Both users exist on every Debian; the suite asks for two that are not root.
PJDFSTEST_CONFIG = """
[features]
posix_fallocate = {}
rename_ctime = {}
stat_st_birthtime = {}
utime_now = {}
utimensat = {}
nfsv4_acls = {}
[settings]
naptime = 0.05
allow_remount = true
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"""
# The C library knows the limit of links from a table of filesystem types, without FUSE in it: the
# suite does not run this case on any FUSE filesystem.
NEVER_ON_FUSE = {"link::link_count_max"}
# The kernel sends O_RDONLY | O_TRUNC to a FUSE filesystem that truncates at the open, and asks only then
# whether the file is being executed (fs/namei.c, do_open). Where the program dies of it before, the
# open succeeds. README.md, "Limits".
RACES_IN_FUSE = {"open::etxtbsy"}
RUNS_OF_A_RACE = 5
MIN_PJDFSTEST_CASES = 390  # What this version runs; fewer means that it did not run in full.

# An allocation close to the largest size is rounded down to nothing when sizes are aligned, and
# fsx takes the EINVAL for it, on ext4 too, as a failure: none in that mode.
FSX_WEIGHTS = """
[weights]
close_open = 1
invalidate = 0.5
mapread = {mmap}
mapwrite = {mmap}
read = 10
write = 10
truncate = 5
fsync = 0.5
fdatasync = 0.5
posix_fallocate = {fallocate}
punch_hole = 3
sendfile = 3
posix_fadvise = 1
copy_file_range = 3
"""
FSX_MODES = {
    "mixed": "flen = 1048576\n[opsize]\nmin = 0\nmax = 65536\n" + FSX_WEIGHTS.format(mmap=10, fallocate=2),
    "aligned": "flen = 4194304\n[opsize]\nmin = 4096\nmax = 262144\nalign = 4096\n" +
               FSX_WEIGHTS.format(mmap=10, fallocate=0),
    "read_write": "flen = 262144\n[opsize]\nmin = 0\nmax = 20000\n" + FSX_WEIGHTS.format(mmap=0, fallocate=2),
    "unsynced_mmap": "flen = 262144\nnomsyncafterwrite = true\n[opsize]\nmin = 0\nmax = 20000\n" +
                     FSX_WEIGHTS.format(mmap=20, fallocate=2),
}
FSX_OPERATIONS = 6_000
FSX_RUNS = 17 if kvmount.FULL else 1  # In full, some 100,000 operations.


@pytest.fixture(scope="session")
def binaries():
    return suites.install()


def run_pjdfstest(binaries, path, config, *only):
    """Runs all of it, or the cases named so, in `path`: ({failed case: message}, number passed,
    skipped cases)."""
    done = subprocess.run(
        [os.path.join(binaries, "pjdfstest"), "-c", config, "-p", path, "-s", "/dev/shm",
         *only],
        capture_output=True, text=True, timeout=300 * kvmount.SLOWNESS, check=False,
        cwd="/", env={**os.environ, "NO_COLOR": "1", "RUST_BACKTRACE": "0",
                      "PATH": f"{os.path.dirname(config)}:{os.environ['PATH']}"})
    failed, skipped, last = {}, set(), None
    for line in done.stdout.splitlines():
        case = re.match(r"(\S+)\s+(ok|FAILED|skipped)$", line)
        if case:
            last = case[1] if case[2] == "FAILED" else None
            if last:
                failed[last] = ""
            if case[2] == "skipped":
                skipped.add(case[1])
        elif last and line.strip():
            failed[last] += line.strip() + " "
    summary = re.search(r"Summary: (\d+) failed, (\d+) skipped, (\d+) passed", done.stdout)
    assert summary, f"pjdfstest did not finish:\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    assert int(summary[1]) == len(failed), "cannot read the output of pjdfstest"
    assert int(summary[2]) == len(skipped), "cannot read the output of pjdfstest"
    return failed, int(summary[3]), skipped


@pytest.fixture(scope="session")
def config(tmp_path_factory):
    path = tmp_path_factory.mktemp("pjdfstest") / "config.toml"
    path.write_text(PJDFSTEST_CONFIG, encoding="utf-8")
    # The suite remounts read-only by mount(8), which would look for a helper of this type that is
    # installed; what is tested is the kernel's and the filesystem's part.
    wrapper = path.parent / "mount"
    wrapper.write_text('#!/bin/sh\nexec /bin/mount -i "$@"\n', encoding="utf-8")
    wrapper.chmod(0o755)
    return str(path)


@pytest.fixture(scope="session")
def control(binaries, config):
    """What fails, and how much runs, on ext4."""
    with kvmount.LoopFs("ext4", 512 << 20) as disk:
        os.chmod(disk.path, 0o755)
        return run_pjdfstest(binaries, disk.path, config)


@pytest.mark.limit(300)
def test_pjdfstest(binaries, config, control, data_path):
    excluded, passed, skipped = control
    assert passed + len(excluded) >= MIN_PJDFSTEST_CASES
    # Devices and set-id bits as on ext4; a short name, for sockets' paths have 107 bytes.
    with kvmount.Mount("pj", data_path=data_path,
                       options=["-o", "dev,suid"]) as mount:
        os.chmod(mount.mnt, 0o755)
        if kvmount.PLAIN:
            pytest.skip("the control is the ext4 of this test")
        failed, good, left_out = run_pjdfstest(binaries, mount.mnt, config)
        for case in sorted(RACES_IN_FUSE & set(failed)):
            for _ in range(RUNS_OF_A_RACE):
                again, passes, _ = run_pjdfstest(binaries, mount.mnt, config, case)
                if not again and passes == 1:
                    print(f"{case}: {failed.pop(case)}: but passed when run again")
                    good += 1
                    break
    print(f"pjdfstest {data_path}: {good} passed, {len(failed)} failed, {left_out or 'none'} "
          f"skipped; ext4: {passed} passed, {len(excluded)} failed, {skipped or 'none'} skipped")
    worse = {case: text for case, text in failed.items() if case not in excluded}
    assert not worse, "fails here and not on ext4:\n" + "\n".join(
        f"  {case}: {text[:400]}" for case, text in sorted(worse.items()))
    assert left_out <= skipped | NEVER_ON_FUSE, "cases are skipped here that run on ext4"
    assert good + len(left_out) >= passed


# The last operation before fsx gave up: one of its own that fails on every filesystem.
EMPTY_ALLOCATION = re.compile(r"POSIX_FALLOCATE [^\n]*\(\s*0x0 bytes\)\s*\Z")


@pytest.mark.limit(240)
@pytest.mark.parametrize("mode", sorted(FSX_MODES))
def test_fsx(binaries, tmp_path, seed, data_path, mode):
    config = tmp_path / "fsx.toml"
    config.write_text(FSX_MODES[mode], encoding="utf-8")
    with kvmount.Mount(f"fsx-{data_path}", data_path=data_path) as mount:
        root = mount.control if kvmount.PLAIN else mount.mnt
        good = number = 0
        while good < FSX_RUNS:
            number += 1
            assert number <= FSX_RUNS + 10, "fsx errs by itself too often"
            path = os.path.join(root, f"fsx-{number}")
            done = subprocess.run(
                [os.path.join(binaries, "fsx"), "-f", str(config), "-N", str(FSX_OPERATIONS),
                 "-S", str((seed + number) % (1 << 32)), "-P", str(tmp_path), path],
                capture_output=True, text=True, timeout=100 * kvmount.SLOWNESS, check=False)
            text = done.stdout + done.stderr
            if done.returncode != 0 and EMPTY_ALLOCATION.search(text):
                print(f"seed {seed + number}: fsx allocated 0 bytes, which is EINVAL anywhere")
                continue
            assert done.returncode == 0 and "A-OK" in done.stdout, (
                f"fsx {mode} seed {seed + number}:\n{text[-6000:]}")
            good += 1
