"""The lease of a mount that is given none: what answered stays for 60 s, and goes
afterwards."""

import random
import time

import pytest

import kvmount
from stores import MIB
from test_leases import BUDGET, is_there, leases, look_up, press, put

pytestmark = pytest.mark.skipif(kvmount.PLAIN, reason="ext4 grants no leases")

LEASE_S = 60
PRESSURE_S = 10


def test_what_was_looked_up_stays_for_a_minute(limited, seed):
    chance = random.Random(seed)
    mount = limited(size=BUDGET, disk=256 * MIB)
    paths = list(put(mount, [f"old{n}" for n in range(8)]).values())
    began = time.monotonic()
    kvmount.run_as(look_up, paths)
    looked_up = time.monotonic()
    assert leases(mount) == len(paths)
    assert mount.status()["lease_s"] == LEASE_S
    assert "looked up or opened in the last 1 min 0 s" in mount.cli("status", mount.mnt).stdout

    pressed = 0
    while time.monotonic() < began + PRESSURE_S or pressed < 2:
        press(mount, BUDGET // 2, chance)
        pressed += 1
    assert mount.status()["dropped"]["room"]["files"] > 0, "there was no pressure"
    there = [is_there(mount, path) for path in paths]
    if time.monotonic() >= began + LEASE_S:
        pytest.skip("the pressure took longer than the lease")
    assert all(there)
    kvmount.wait_until(lambda: leases(mount) == 0, LEASE_S + 5, "the ends of leases")
    over = time.monotonic()
    assert over >= began + LEASE_S, f"they lasted {over - began:.1f} s"
    assert all(is_there(mount, path) for path in paths), "nothing has pressed since"

    def one_is_gone():
        press(mount, BUDGET // 4, chance)
        return not all(is_there(mount, path) for path in paths)

    kvmount.wait_until(one_is_gone, 30, "an eviction after the lease")
