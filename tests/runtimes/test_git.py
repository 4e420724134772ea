"""git on the mount: clone, commit, branches, gc and fsck; the repository survives a remount."""

import os
import shutil

import kvmount
from programs import need_program, run

WHO = {"GIT_AUTHOR_NAME": "Test", "GIT_AUTHOR_EMAIL": "test@example.invalid",
       "GIT_COMMITTER_NAME": "Test", "GIT_COMMITTER_EMAIL": "test@example.invalid",
       "GIT_CONFIG_NOSYSTEM": "1", "HOME": "/nonexistent", "PATH": os.environ["PATH"]}


def git(directory, *words):
    need_program("git", "git")
    return run(["git", "-C", directory, *words], env=WHO).strip()


def make_origin(directory):
    """A repository on the disk's own filesystem with this project's files and some history."""
    os.mkdir(directory)
    git(directory, "init", "-q", "-b", "main")
    for part in ("fs", "backend", "metadata", "tools", "tests", "packaging"):
        source = os.path.join(kvmount.ROOT, part)
        if not os.path.isdir(source):
            continue
        shutil.copytree(source, os.path.join(directory, part), symlinks=True,
                        ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
        git(directory, "add", "-A")
        git(directory, "commit", "-q", "--allow-empty", "-m", f"Add {part}")
    with open(os.path.join(directory, "blob"), "wb") as file:
        file.write(os.urandom(3 << 20))
    git(directory, "add", "-A")
    git(directory, "commit", "-q", "-m", "Add a binary file")


def test_clone_work_collect_check(place, oracle, shared_mount):
    origin = os.path.join(oracle, "origin")
    make_origin(origin)
    clone = os.path.join(place, "clone")
    run(["git", "clone", "-q", "--no-local", origin, clone], env=WHO)
    assert git(clone, "rev-parse", "HEAD") == git(origin, "rev-parse", "HEAD")
    assert git(clone, "status", "--porcelain") == ""

    git(clone, "checkout", "-q", "-b", "work")
    for number in range(20):
        with open(os.path.join(clone, f"note-{number}"), "w") as file:
            file.write(f"line {number}\n" * (number * 50 + 1))
        git(clone, "add", f"note-{number}")
        git(clone, "commit", "-q", "-m", f"Note {number}")
    git(clone, "mv", "note-0", "renamed")
    git(clone, "commit", "-q", "-m", "Rename a file")
    git(clone, "checkout", "-q", "main")
    git(clone, "merge", "-q", "--no-ff", "-m", "Merge", "work")
    git(clone, "fsck", "--full", "--strict")
    git(clone, "gc", "-q", "--aggressive", "--prune=now")
    git(clone, "fsck", "--full", "--strict")
    head = git(clone, "rev-parse", "HEAD")

    # A local clone makes hard links within the mount.
    second = os.path.join(place, "second")
    run(["git", "clone", "-q", clone, second], env=WHO)
    packs = os.path.join(second, ".git", "objects", "pack")
    assert any(os.stat(os.path.join(packs, name)).st_nlink == 2 for name in os.listdir(packs))

    shared_mount.remount()
    for repository in (clone, second):
        git(repository, "fsck", "--full", "--strict")
        assert git(repository, "rev-parse", "HEAD") == head
        assert git(repository, "status", "--porcelain") == ""
    run(["git", "clone", "-q", "--no-local", clone, os.path.join(oracle, "back")], env=WHO)
    assert git(os.path.join(oracle, "back"), "rev-parse", "HEAD^{tree}") == git(
        clone, "rev-parse", "HEAD^{tree}")
