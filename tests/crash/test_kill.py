"""kill -9 of the daemon during a mixed load: nothing acknowledged is lost, nothing torn is seen."""

import random
import time

import pytest

import crashes
import kvmount
import load
import model

WORKERS = 3
ROUNDS = crashes.count(full=200, normal=20, short=3)


def one_round(mount, number, rng, states, logs):
    """Load, kill, remount, check. Returns (states, acknowledged, seconds of the remount)."""
    running = load.Load(mount.mnt, logs, rng.random(), number, states, "kill")
    running.start()
    running.wait_busy(3)
    time.sleep(rng.uniform(0, 0.3))  # The random moment of the kill.
    kill_ns = time.monotonic_ns()
    mount.kill(unmount=False)
    killed_ns = time.monotonic_ns()
    codes = running.join(10)  # Callers are freed at once; what they had open ends a little later.
    # Every other time the dead mount is left where it is: the next start has to take it over.
    if number % 2 == 0:
        kvmount.lazy_unmount(mount.mnt)
    replays = [model.Replay(running.log_path(i), states[i]) for i in range(WORKERS)]
    early = [e for r in replays for e in r.errors_before(kill_ns)]
    assert not early, f"errors before the kill: {early}"
    assert not set(codes) - {0, -7}, f"workers ended with {codes}: {running.errors()}"
    acknowledged = sum(r.acknowledged for r in replays)
    assert acknowledged > 0, "nothing was acknowledged: the round proves nothing"
    in_flight = any(r.in_flight_at(killed_ns) for r in replays)

    begin = time.monotonic()
    mount.start()
    seconds = time.monotonic() - begin
    crashes.check_remount_time(seconds)
    assert mount.status()["recovery"]["kind"] == "daemon"
    return crashes.check_killed(mount.mnt, replays), acknowledged, seconds, in_flight


@pytest.mark.short
@pytest.mark.limit(150)
def test_kill_rounds(tmp_path, seed, data_path):
    rng = random.Random(seed)
    states = [{} for _ in range(WORKERS)]
    total, slowest, struck = 0, 0.0, 0
    with kvmount.Mount(f"kill-{data_path}", data_path=data_path, foreground=False) as mount:
        # A round that met no call proves nothing, and is made again: on a busy machine all workers may be between two.
        for number in range(2 * ROUNDS):
            if struck == ROUNDS:
                break
            try:
                states, acknowledged, seconds, in_flight = one_round(
                    mount, number, rng, states, str(tmp_path))
            except Exception as error:
                error.add_note(f"round {number} of seed {seed}")
                raise
            total += acknowledged
            struck += in_flight
            slowest = max(slowest, seconds)
            mount.stop()
            crashes.check_fsck(mount)
            mount.start()
        assert struck == ROUNDS, f"{struck} of {2 * ROUNDS} kills met a call in flight"
        for index in range(WORKERS):
            final = model.Replay("/nonexistent", states[index])
            crashes_left = model.check_after_kill(f"{mount.mnt}/w{index}", final)[1]
            assert not crashes_left, f"after the last clean remount: {crashes_left}"
    print(f"{ROUNDS} kills, {data_path}: {total} acknowledged, slowest remount {slowest:.3f} s")
