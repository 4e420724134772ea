"""The scripts in packaging/ when something is missing or wrong: what they say, and what they leave."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess

import pytest

import kvmount

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="the packaging of kvcachefs")
PACKAGING = os.path.join(kvmount.ROOT, "packaging")


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/bash\n" + text)
    path.chmod(0o755)


# ---- quickstart.sh -----------------------------------------------------------------------------


class Quickstart:
    """A copy of the script whose step after the mount is a program of ours: the one that makes a Python environment."""

    def __init__(self, home, folder):
        self.home = home
        self.folder = folder
        shutil.copytree(PACKAGING, folder / "packaging")

    def start(self, text):
        program(self.folder / "packaging" / "python-env.sh", text)
        environment = {**os.environ, "KVCACHEFS_BIN": kvmount.BIN, "KVCACHEFS_DATA": self.home.nvme}
        return subprocess.Popen([self.folder / "packaging" / "quickstart.sh", self.home.mnt],
                                env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, start_new_session=True)

    def end(self, process):
        out, said = process.communicate(timeout=120 * kvmount.SLOWNESS)
        assert "[3/9] Mounting" in out, (out, said)
        assert not self.home.is_mounted()
        return said


@pytest.fixture
def quickstart(request, tmp_path):
    home = kvmount.Mount(request.node.name).create()
    yield Quickstart(home, tmp_path)
    home.close()


def test_a_step_that_fails_leaves_no_mount(quickstart):
    process = quickstart.start("echo no network >&2\nexit 1\n")
    said = quickstart.end(process)
    assert process.returncode == 1, said
    assert "no network" in said and "whole log" in said, said


@pytest.mark.parametrize("number,code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interruption_leaves_no_mount(quickstart, tmp_path, number, code):
    process = quickstart.start(f"echo $$ > {tmp_path}/waits\nexec sleep 600\n")

    def sleeps():
        """A shell goes on if what it waits for ends by itself when the signal comes."""
        with contextlib.suppress(OSError):
            pid = (tmp_path / "waits").read_text().strip()
            return pid and pathlib.Path(f"/proc/{pid}/comm").read_text() == "sleep\n"
        return False

    try:
        kvmount.wait_until(sleeps, 60, "the step after the mount")
        assert quickstart.home.is_mounted()
        os.killpg(process.pid, number)  # As a terminal does.
        said = quickstart.end(process)
    finally:
        process.kill()
    assert process.returncode == code, said


def test_its_exit_codes_are_said():
    done = subprocess.run([os.path.join(PACKAGING, "quickstart.sh"), "--help"], capture_output=True,
                          text=True, timeout=60, check=True)
    assert "Exit codes: 0 " in done.stdout
    for words in (("--frobnicate",), ("/a", "/b")):
        done = subprocess.run([os.path.join(PACKAGING, "quickstart.sh"), *words], timeout=60,
                              capture_output=True, text=True, check=False)
        assert done.returncode == 2 and "see --help" in done.stderr


# ---- build-libfuse.sh --------------------------------------------------------------------------

# What apt is asked: one suite with a source, whose files are those in $SOURCE.
APT_GET = """
for word in "$@"; do case $word in
  update) exit "${UPDATE:-0}" ;;
  source) cp "$SOURCE"/* . ; [ -z "${SAYS:-}" ] || { echo "E: $SAYS"; exit 100; } ; exit 0 ;;
esac; done
exit 1
"""
APT_CACHE = "echo 'Version: 99.1'\n"


@pytest.fixture
def source(tmp_path):
    """A Debian source package by that name, which is no libfuse."""
    work = tmp_path / "make" / "fuse3-99.1"
    (work / "debian" / "source").mkdir(parents=True)
    (work / "debian" / "source" / "format").write_text("3.0 (native)\n")
    (work / "debian" / "control").write_text(
        "Source: fuse3\nMaintainer: A <a@example.org>\n\nPackage: fuse3\nArchitecture: any\n"
        "Description: x\n")
    (work / "debian" / "changelog").write_text(
        "fuse3 (99.1) unstable; urgency=low\n\n  * x\n\n"
        " -- A <a@example.org>  Thu, 01 Jan 2026 00:00:00 +0000\n")
    subprocess.run(["dpkg-source", "-b", work.name], cwd=work.parent, check=True, timeout=60,
                   capture_output=True)
    folder = tmp_path / "source"
    folder.mkdir()
    for file in work.parent.iterdir():
        if file.is_file():
            shutil.move(str(file), str(folder))
    program(tmp_path / "bin" / "apt-get", APT_GET)
    program(tmp_path / "bin" / "apt-cache", APT_CACHE)
    return folder


def build_libfuse(tmp_path, *words, code, **environment):
    done = subprocess.run(
        [os.path.join(PACKAGING, "build-libfuse.sh"), *words], cwd=tmp_path, capture_output=True,
        text=True, timeout=120, check=False,
        env={**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
             "SOURCE": str(tmp_path / "source"), **environment})
    assert done.returncode == code, done
    return done.stderr


def test_a_source_with_another_checksum_is_not_built(source, tmp_path):
    # As it should be, it is unpacked; it is no libfuse.
    said = build_libfuse(tmp_path, "--prefix", "a/lib", code=3)
    assert "meson setup failed" in said and f"{tmp_path}/a/lib.log" in said
    (archive,) = source.glob("*.tar.*")
    data = bytearray(archive.read_bytes())
    data[len(data) // 2] ^= 1
    archive.write_bytes(data)
    said = build_libfuse(tmp_path, "--prefix", "a/lib", code=1)
    assert "is not what its description says" in said
    assert "checksum" in pathlib.Path(tmp_path, "a", "lib.log").read_text()
    said = build_libfuse(tmp_path, "--prefix", "a/lib", code=1, SAYS="Hash Sum mismatch")
    assert "has another checksum" in said
    assert not (tmp_path / "a" / "lib").exists()


def test_without_a_network_it_says_so_and_keeps_what_is_there(source, tmp_path):
    prefix = tmp_path / "lib"
    (prefix / "lib").mkdir(parents=True)
    (prefix / "lib" / "libfuse3.a").write_bytes(b"old")
    (prefix / "stamp").write_text("libfuse 3\nrecipe of-another-day\n")
    # Of another recipe: it is built anew, and that needs the source.
    said = build_libfuse(tmp_path, "--prefix", str(prefix), code=3, UPDATE="100")
    assert "offers fuse3" in said
    assert (prefix / "lib" / "libfuse3.a").read_bytes() == b"old"


def test_a_prefix_with_other_things_in_it_stays(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    (home / "letters").write_bytes(b"mine")
    said = build_libfuse(tmp_path, "--prefix", "home", code=2)
    assert "holds other things" in said
    build_libfuse(tmp_path, "--prefix", "home/letters", code=2)
    assert (home / "letters").read_bytes() == b"mine"
    assert os.listdir(tmp_path) == ["home"]
