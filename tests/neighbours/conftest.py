"""What holds in all tests of this folder."""

import pytest

import kvmount

# README "Memory": of a daemon with the defaults, and as much more as somebody may make it take.
MOST_BYTES = (600 + 64) << 20


@pytest.fixture(autouse=True)
def memory_is_bounded(monkeypatch):
    """No daemon takes more than the README says and 64 MiB, whatever somebody does to its mount."""
    stop = kvmount.Mount.stop

    def stop_and_judge(mount):
        most = 0 if kvmount.PLAIN or kvmount.SANITIZER else kvmount.most_rss_bytes(mount.pid())
        stop(mount)
        assert most <= MOST_BYTES, f"{most >> 20} MiB"

    monkeypatch.setattr(kvmount.Mount, "stop", stop_and_judge)
