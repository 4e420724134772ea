"""The daemon's wall clock is set an hour forth or back while it serves, or is wrong by decades in one run of it and right in
the next: leases, times to live and the order of eviction go on as if nothing had been. The kernel's clock, and with it the
stamps of the backing files, stays; tests/wall_clock.c says how."""

import os
import random

import pytest

import kvmount
import pools
import wall_clock
from stores import MIB
from test_leases import BUDGET, is_there, leases, look_up, press, put

pytestmark = [pytest.mark.skipif(kvmount.PLAIN, reason="ext4 has no leases"),
              pytest.mark.skipif(kvmount.SANITIZER, reason="a sanitizer wants to be loaded first")]

HOUR = 3600
SETS = {"forth": HOUR, "back": -HOUR}
# Years in which machines are that have no battery, or a broken one.
YEARS = {"1970": -56 * 365 * 24 * HOUR, "2040": 14 * 365 * 24 * HOUR}


@pytest.fixture(name="clock")
def a_clock():
    with wall_clock.wall_clock() as clock:
        yield clock


@pytest.mark.parametrize("way", SETS)
def test_leases_do_not_jump(limited, clock, seed, way):
    chance = random.Random(seed)
    mount = limited(size=BUDGET, disk=256 * MIB, env=clock.environment, options=["--lease", "120s"])
    paths = list(put(mount, [f"old{n}" for n in range(8)]).values())
    kvmount.run_as(look_up, paths)
    assert leases(mount) == 8
    clock.set_off(SETS[way])
    wall_clock.check_that_it_is_off(mount, "set", SETS[way])
    assert leases(mount) == 8
    press(mount, 2 * BUDGET, chance)
    assert all(is_there(mount, path) for path in paths), "a lease ended when the clock was set"
    # One that is granted now ends as late as others do.
    mount.stop()
    clock.set_off(0)
    mount.options = ["--lease", "2s"]
    mount.start()
    clock.set_off(SETS[way])
    kvmount.run_as(look_up, paths)
    clock.set_off(0)
    mount.wait_for_the_ends_of_leases(10)


@pytest.mark.parametrize("way", SETS)
def test_times_to_live_do_not_jump(limited, clock, way):
    mount = limited(size=BUDGET, disk=256 * MIB, env=clock.environment, options=["--lease", "1s"])
    for name, ttl in (("long", b"1800s"), ("short", b"3s")):
        os.mkdir(os.path.join(mount.mnt, name))
        os.setxattr(os.path.join(mount.mnt, name), "user.kvcachefs.ttl", ttl)
    put(mount, ["long/before"])
    clock.set_off(SETS[way])
    wall_clock.check_that_it_is_off(mount, "set", SETS[way])
    put(mount, ["long/after", "short/after"])
    # The expirer has looked at all of them when this one has gone.
    kvmount.wait_until(lambda: os.listdir(os.path.join(mount.mnt, "short")) == [], 30,
                       "the end of the short-lived file")
    put(mount, ["short/again"])
    kvmount.wait_until(lambda: os.listdir(os.path.join(mount.mnt, "short")) == [], 30,
                       "the end of the next one")
    assert sorted(os.listdir(os.path.join(mount.mnt, "long"))) == ["after", "before"]
    assert mount.status()["dropped"]["expired"]["files"] == 2


@pytest.mark.parametrize("way", SETS)
def test_the_order_of_eviction_does_not_turn(limited, clock, seed, way):
    """What was stored before the clock was set goes before what was stored after it."""
    mount = limited(size=BUDGET, disk=256 * MIB, env=clock.environment, options=["--lease", "1s"])
    half = BUDGET // MIB // 4
    old = put(mount, [f"old/{n}" for n in range(half)])
    clock.set_off(SETS[way])
    wall_clock.check_that_it_is_off(mount, "set", SETS[way])
    new = put(mount, [f"new/{n}" for n in range(half)])
    press(mount, BUDGET * 7 // 10, random.Random(seed))
    old_left = [path for path in old.values() if is_there(mount, path)]
    new_left = [path for path in new.values() if is_there(mount, path)]
    assert len(old_left) < half, "there was no pressure"
    assert not old_left or len(new_left) == half, (len(old_left), len(new_left))


def end(mount, how):
    """The daemon ends, in order or not, as soon as it has sealed what was stored."""
    kvmount.wait_until(lambda: mount.status()["counts"]["unsealed"] == 0, 30, "seals")
    mount.stop() if how == "stop" else mount.kill()


def restart(mount, clock, how, seconds):
    end(mount, how)
    clock.set_off(seconds)
    mount.start()
    wall_clock.check_that_it_is_off(mount, f"run-{random.random()}", seconds)


def put_with_ttl(mount, ttl, number, block_alone=False):
    """A block, and another file (or not), that live for so long; their paths."""
    directory = os.path.join(mount.mnt, f"ttl-{ttl}")
    if not os.path.exists(directory):
        os.mkdir(directory)
        os.setxattr(directory, "user.kvcachefs.ttl", f"{ttl}s".encode())
    names = [pools.block(number)] + ([] if block_alone else [f"file-{number}"])
    return [pools.store(directory, name, os.urandom(MIB)) for name in names]


def wait_for_a_pass_of_the_expirer(mount, number):
    """It has looked at all that was there before when this one, which is the last in the order, has gone."""
    path, = put_with_ttl(mount, 2, number, block_alone=True)
    kvmount.wait_until(lambda: os.listdir(os.path.dirname(path)) == [], 60, "the end of the short-lived file")


@pytest.mark.parametrize("how", ["stop", "kill"])
@pytest.mark.parametrize("year", YEARS)
def test_a_clock_that_was_wrong_in_the_last_run_ends_no_file(limited, clock, year, how):
    clock.set_off(YEARS[year])
    mount = limited(size=BUDGET, disk=256 * MIB, env=clock.environment, options=["--lease", "1s"])
    wall_clock.check_that_it_is_off(mount, "set", YEARS[year])
    # The kernel's stamps are of now: in 2040 a file that is no block would be as old as that by them.
    paths = put_with_ttl(mount, 1800, 1, block_alone=year == "2040")
    restart(mount, clock, how, 0)
    paths += put_with_ttl(mount, 1800, 2)
    wait_for_a_pass_of_the_expirer(mount, 3)
    assert all(is_there(mount, path) for path in paths)
    assert mount.status()["dropped"]["expired"]["files"] == 1
    # And those end that have not been used for as long.
    restart(mount, clock, how, YEARS[year])
    wait_for_a_pass_of_the_expirer(mount, 4)
    assert all(is_there(mount, path) for path in paths)


@pytest.mark.parametrize("how", ["stop", "kill"])
@pytest.mark.parametrize("year", YEARS)
def test_a_clock_that_is_wrong_in_this_run_ends_no_file(limited, clock, year, how):
    mount = limited(size=BUDGET, disk=256 * MIB, env=clock.environment, options=["--lease", "1s"])
    paths = put_with_ttl(mount, 1800, 1)
    gone = put_with_ttl(mount, 1800, 9, block_alone=True)
    for path in gone:
        os.remove(path)
    restart(mount, clock, how, YEARS[year])
    paths += put_with_ttl(mount, 1800, 2)
    wait_for_a_pass_of_the_expirer(mount, 3)
    assert all(is_there(mount, path) for path in paths)
    # It is set right while the daemon runs.
    clock.set_off(0)
    paths += put_with_ttl(mount, 1800, 4)
    wait_for_a_pass_of_the_expirer(mount, 5)
    restart(mount, clock, how, 0)
    wait_for_a_pass_of_the_expirer(mount, 6)
    assert all(is_there(mount, path) for path in paths)
    assert not any(os.path.exists(path) for path in gone), "what was removed is back"
    assert mount.status()["dropped"]["expired"]["files"] == 1


@pytest.mark.parametrize("year", YEARS)
def test_the_order_of_eviction_outlives_a_wrong_clock(limited, clock, seed, year):
    """Blocks that were stored in a run with a wrong clock go before those of the next, and after those of the one before."""
    mount = limited(size=BUDGET, disk=256 * MIB, env=clock.environment, options=["--lease", "1s"])
    share = BUDGET // MIB // 5
    runs = []
    for run, off in enumerate((0, YEARS[year], 0)):
        if run > 0:
            restart(mount, clock, "stop", off)
        runs.append([pools.store(mount.mnt, pools.block(100 * run + n), os.urandom(MIB)) for n in range(share)])
    press(mount, BUDGET * 7 // 10, random.Random(seed))
    left = [sum(is_there(mount, path) for path in paths) for paths in runs]
    assert left[0] < share, "there was no pressure"
    assert left == sorted(left), left
    assert all(later == share or earlier == 0 for earlier, later in zip(left, left[1:])), left
