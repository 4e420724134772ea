"""What `cmake --install` puts beside the programs: completion, rotation of logs, updatedb."""

import os
import re
import shutil
import subprocess
import time

import pytest

import kvmount

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="the packaging of kvcachefs")
PACKAGING = os.path.join(kvmount.ROOT, "packaging")


def run(*argv, **options):
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False, **options)
    assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
    return done.stdout


def test_an_installation_has_everything_and_runs(tmp_path):
    run("cmake", "--install", os.path.dirname(kvmount.BIN), env={**os.environ, "DESTDIR": str(tmp_path)})
    for path in ("usr/bin/kvcachefs", "usr/sbin/mount.kvcachefs", "usr/sbin/mount.fuse.kvcachefs",
                 "usr/share/man/man1/kvcachefs.1", "usr/share/man/man8/mount.kvcachefs.8",
                 "usr/lib/systemd/system/kvcachefs@.service",
                 "usr/share/bash-completion/completions/kvcachefs", "etc/logrotate.d/kvcachefs"):
        assert os.path.exists(tmp_path / path), path
    assert re.fullmatch(r"kvcachefs \d+\.\d+\.\d+\n", run(tmp_path / "usr/bin/kvcachefs", "--version"))


def complete(*words):
    """What bash offers for the last word."""
    script = ('source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _kvcachefs; '
              'printf "%s\\n" "${COMPREPLY[@]}"')
    kvcachefs = os.path.join(kvmount.BIN, "kvcachefs")
    return run("bash", "-c", script, "bash", os.path.join(PACKAGING, "completion", "kvcachefs"),
               kvcachefs, *words).split()


def options_of(command):
    text = run(os.path.join(kvmount.BIN, "kvcachefs"), command, "--help")
    return set(re.findall(r"^  (?:-\w,)?(--[a-z-]+)", text, re.MULTILINE))


def test_completion_knows_every_command_and_option(mounts):
    commands = re.findall(r"^  ([a-z]+) ", run(os.path.join(kvmount.BIN, "kvcachefs"), "--help"),
                          re.MULTILINE)
    assert len(commands) >= 12
    assert set(commands) | {"--help", "--version"} == set(complete(""))
    assert complete("um") == ["umount"]
    for command in commands:
        assert set(complete(command, "--")) == options_of(command)
        assert options_of(command) >= {"--help"}
    assert complete("mount", "--data-path", "p") == ["passthrough"]
    assert set(complete("ls", "--by", "")) == {"model", "session", "runtime"}
    assert set(complete("set", "/path", "p")) == {"policy=", "pool-writes="}
    assert set(complete("set", "/path", "policy", "=", "")) == {"cache", "process", "keep", "pin"}
    assert complete("set", "/path", "pool-writes", "=", "r") == ["reused"]
    assert complete("pool", "") == ["init", "status", "check", "gc"]
    mount = mounts()
    assert complete("explain", mount.mnt) == [mount.mnt]
    assert mount.mnt in complete("status", os.path.dirname(mount.mnt))
    assert complete("status", "/nowhere") == []


def test_logs_are_rotated_under_a_live_mount(mounts, tmp_path):
    mount = mounts()
    with open(os.path.join(PACKAGING, "logrotate", "kvcachefs"), encoding="utf-8") as file:
        text = file.read()
    assert text.count("/var/log/kvcachefs/*.log") == 1
    conf = tmp_path / "rotate"
    conf.write_text(text.replace("/var/log/kvcachefs/*.log", mount.log))
    conf.chmod(0o644)
    state = str(tmp_path / "state")
    # The last line of a start comes after the mount's first answer.
    kvmount.wait_until(lambda: "event=ready" in mount.logs(), 10, "the start's last line")
    before = os.path.getsize(mount.log)
    run("logrotate", "--force", "--state", state, str(conf))
    assert os.path.getsize(mount.log + ".1") == before
    # It looks once a second, when it has a line to write; a stop writes some.
    began = time.monotonic()
    kvmount.wait_until(lambda: time.monotonic() - began > 1.5, 10, "a second and a half")
    mount.stop()
    with open(mount.log, encoding="utf-8") as file:
        assert " info " in file.read()
    assert os.stat(mount.log).st_mode & 0o7777 == os.stat(mount.log + ".1").st_mode & 0o7777 == 0o640


def prune_filesystems(conf):
    return re.search(r'^PRUNEFS *= *"([^"]*)"', conf.read_text(), re.MULTILINE).group(1)


def test_updatedb_leaves_a_mount_out(mounts, tmp_path):
    script = os.path.join(PACKAGING, "updatedb-prune.sh")
    conf = tmp_path / "updatedb.conf"
    shutil.copy("/etc/updatedb.conf", conf)
    before = prune_filesystems(conf).split()
    for _ in range(2):
        run(script, str(conf))
        assert prune_filesystems(conf).split() == before + ["fuse.kvcachefs"]
    for text in ("", "PRUNEPATHS=\"/tmp\"\n"):
        conf.write_text(text)
        run(script, str(conf))
        assert prune_filesystems(conf).split() == ["fuse.kvcachefs"]
    run(script, str(tmp_path / "none"))

    mount = mounts()
    with open(f"{mount.mnt}/sought-inside", "wb"), open(f"{mount.work}/sought-outside", "wb"):
        pass
    for pruned, expected in ("", {"inside", "outside"}), ("fuse.kvcachefs", {"outside"}):
        database = str(tmp_path / f"db-{pruned}")
        run("updatedb", "-U", mount.work, "-o", database, "--prunefs", pruned, "--prunepaths", "",
            "--prune-bind-mounts", "no", "--require-visibility", "no")
        found = run("locate", "-d", database, "sought-").split()
        assert {path.rsplit("-", 1)[1] for path in found} == expected


def test_each_right_has_its_test():
    """The tests that packaging/rights.md names are there."""
    with open(os.path.join(PACKAGING, "rights.md"), encoding="utf-8") as file:
        named = re.findall(r"`(tests/[^`:]+)::(\w+)`", file.read())
    assert len(named) > 30
    for path, name in named:
        with open(os.path.join(kvmount.ROOT, path), encoding="utf-8") as file:
            text = file.read()
        assert re.search(rf"def {name}\(|^TEST(_[PF])?\(\w+, {name}\)", text, re.MULTILINE), f"{path}: {name}"
