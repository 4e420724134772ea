"""NumPy and safetensors: plain, mapped and preallocated stores, read back in each way."""

import pytest

import kvmount


def test_arrays_survive_a_remount(place, shared_mount, worker):
    worker("arrays", "write", place)
    assert worker("arrays", "check", place)["comparisons"] >= 40
    shared_mount.remount()
    assert worker("arrays", "check", place)["comparisons"] >= 40


@pytest.mark.skipif(kvmount.PLAIN, reason="a plain directory has no daemon to kill")
def test_arrays_survive_kill_of_the_daemon(place, shared_mount, worker):
    worker("arrays", "write", place)
    shared_mount.crash()
    assert worker("arrays", "check", place)["comparisons"] >= 40
