"""Standard output that cannot be written, or that nobody reads any more."""

import os
import subprocess

import pytest

import kvmount

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="the command line of kvcachefs")
KVCACHEFS = os.path.join(kvmount.BIN, "kvcachefs")
FULL = "kvcachefs: standard output: No space left on device: not all was written\n"


def run(words, **options):
    return subprocess.run([KVCACHEFS, *words], stderr=subprocess.PIPE, text=True, timeout=120,
                          check=False, **options)


def hash_of(number):
    return f"{number:032x}"


@pytest.fixture(scope="module")
def filled():
    """A mount with more blocks than standard output's buffer holds lines of."""
    with kvmount.Mount("output") as mount:
        os.mkdir(f"{mount.mnt}/prefix")
        for number in range(1, 400):
            with open(f"{mount.mnt}/prefix/{hash_of(number)}", "wb") as file:
                file.write(b"x")
        with open(f"{mount.mnt}/kept", "wb") as file:
            file.write(b"x")
        os.setxattr(f"{mount.mnt}/kept", "user.kvcachefs.policy", b"keep")
        yield mount


def questions(mount):
    block = f"{mount.mnt}/prefix/{hash_of(1)}"
    return [("--help",), ("--version",), ("mount", "--help"), ("status", mount.mnt),
            ("status", "--json", mount.mnt), ("ls", mount.mnt), ("ls", "--json", mount.mnt),
            ("ls", "--by", "model", mount.mnt), ("find", hash_of(1), mount.mnt),
            ("tree", hash_of(1), mount.mnt), ("explain", block), ("explain", "--json", block),
            ("evict", "--json", f"{mount.mnt}/kept"), ("export", mount.mnt)]


def test_what_is_not_written_is_said_and_fails(filled):
    for words in questions(filled):
        with open("/dev/full", "wb") as full:
            done = run(words, stdout=full)
        assert done.returncode == 1 and done.stderr == FULL, (words, done)


def test_a_closed_standard_output_fails_and_closes_nothing_else(filled):
    for words in questions(filled):
        done = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", KVCACHEFS, *words], text=True,
                              stderr=subprocess.PIPE, timeout=120, check=False)
        assert done.returncode == 1 and "standard output: Bad file descriptor" in done.stderr, done
    assert filled.is_mounted()


def test_a_reader_that_has_gone_is_no_failure_worth_a_word(filled):
    for words in questions(filled):
        for reset in (True, False):  # Killed by SIGPIPE, or, where that is ignored, told by EPIPE.
            reader, writer = os.pipe()
            os.close(reader)
            done = run(words, stdout=writer, restore_signals=reset)
            os.close(writer)
            assert done.returncode != 0 and done.stderr == "", (words, done)


def test_a_check_whose_report_is_lost_has_failed(mounts):
    mount = mounts()
    mount.stop()
    with open("/dev/full", "wb") as full:
        done = run(("fsck", "--state", mount.state), stdout=full)
    assert done.returncode == 8 and done.stderr == FULL, done


def test_standard_error_that_cannot_be_written_ends_nothing(filled):
    for words, code in ((("status", filled.work), 1), (("frobnicate",), 2)):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([KVCACHEFS, *words], stderr=full, timeout=60, check=False)
        assert done.returncode == code


def test_a_mount_without_standard_streams_works(request):
    mount = kvmount.Mount(request.node.name, foreground=False).create()
    try:
        done = subprocess.run(["/bin/sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *mount.command()],
                              timeout=120, check=False)
        assert done.returncode == 0, mount.logs()
        assert mount.status()["pid"] == mount.pid()
        mount.stop()
    finally:
        mount.close()
