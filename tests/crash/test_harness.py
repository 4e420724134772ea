"""The tests' own proof, without a mount: a right tree passes, a planted fault is found."""

import json
import os

import pytest

import databases
import kvmount
import load
import model
import power

WORKERS = 2


def settled_load(root, logs, seed, operations):
    states = [{} for _ in range(WORKERS)]
    running = load.Load(str(root), str(logs), seed, 0, states, "kill", operations=operations)
    running.start()
    assert running.join(60) == [0] * WORKERS, running.errors()
    return running, [model.Replay(running.log_path(i), {}) for i in range(WORKERS)]


def first_file(state):
    return next(p for p, e in sorted(state.items()) if e["kind"] == "file" and e["size"] > 1)


def damage_flip(path):
    with open(path, "r+b") as f:
        first = f.read(1)
        f.seek(0)
        f.write(bytes([first[0] ^ 1]))


def damage_truncate(path):
    os.truncate(path, os.path.getsize(path) - 1)


def damage_zero(path):
    size = os.path.getsize(path)
    os.truncate(path, 0)
    os.truncate(path, size)


def damage_leftover(path):
    with open(path + ".tmp-left", "wb") as f:
        f.write(b"half")


def damage_mode(path):
    os.chmod(path, 0o777)


@pytest.mark.short
def test_the_check_accepts_what_was_written_and_finds_each_fault(tmp_path, seed):
    (tmp_path / "logs").mkdir()
    running, replays = settled_load(tmp_path, tmp_path / "logs", seed, 250)
    for index, replay in enumerate(replays):
        assert replay.acknowledged > 100
        assert model.check_after_kill(running.worker_root(index), replay)[1] == []
    replay = replays[0]
    path = os.path.join(running.worker_root(0), first_file(replay.state))
    for damage in (damage_leftover, damage_mode, damage_flip, damage_truncate, damage_zero,
                   os.unlink):
        damage(path)
        found = model.check_after_kill(running.worker_root(0), replay)[1]
        assert found, f"{damage.__name__} was not noticed"


@pytest.mark.short
@pytest.mark.parametrize("intact, accepted", [(3, True), (2, True), (1, True), (0, False)])
def test_what_an_append_near_the_cut_left(intact, accepted, tmp_path):
    """Three appends: the first was acknowledged before the cut, the second after it, the third not.

    The time of the cut is taken before it: what was acknowledged after that may be on the disk.
    """
    log_id, cut_ns = "w/log-0", 100
    acks = load.AckLog(str(tmp_path / "acks"))
    lines = []
    for index, (begun, done) in enumerate([(10, 20), (30, 110), (120, None)]):
        op = {"op": "append", "path": "log-0", "log": log_id, "index": index}
        lines.append(f"{begun} I {json.dumps(op)}\n")
        lines += [f"{done} D null\n"] if done else []
    os.write(acks._fd, "".join(lines).encode())
    (tmp_path / "w").mkdir()
    size = len(model.log_bytes(log_id, max(intact, 2)))
    (tmp_path / "w/log-0").write_bytes(model.log_bytes(log_id, intact).ljust(size, b"\0"))
    replay = model.Replay(str(tmp_path / "acks"), {}, cut_ns)
    found = model.check_after_cut(str(tmp_path / "w"), replay)[1]
    assert any("was durable" in line for line in found) == (not accepted), found


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_the_check_after_a_cut_tells_durable_from_lost(kind, tmp_path, seed):
    """On the raw filesystem: fsynced names are exact, and damage to the others is seen."""
    unsynced_damage = 0
    with kvmount.LoopFs(kind, 1 << 30) as disk:
        states = [{} for _ in range(WORKERS)]
        store = databases.Databases(disk.path, str(tmp_path), seed)
        for number, flavour in enumerate(["nologflush", "logflush"] * 3):
            running = load.Load(disk.path, str(tmp_path), seed, number, states, "cut")
            store.start()
            running.start()
            running.wait_busy(40)
            store.wait_busy(3)
            cut_ns = power.cut(disk, flavour)
            running.join()
            store.join()
            power.power_up(disk)
            for index in range(WORKERS):
                replay = model.Replay(running.log_path(index), states[index], cut_ns)
                states[index], lines, _ = model.check_after_cut(
                    running.worker_root(index), replay)
                durable = [l for l in lines if "was durable" in l or "was fsynced" in l]
                assert not durable, durable
                unsynced_damage += len(lines)
                for path in [p for p in model.listing(running.worker_root(index))
                             if p not in states[index]]:
                    full = os.path.join(running.worker_root(index), path)
                    if os.path.isdir(full):
                        continue
                    os.unlink(full)
                states[index] = settle(running.worker_root(index), states[index])
            store.check(cut_ns)
            os.sync()
    assert unsynced_damage > 0, "six cuts damaged no unsynced file: the cut does not cut"


def settle(root, state):
    """What the raw filesystem kept, directories included, as the next round's beginning."""
    found = dict(state)
    for path in model.listing(root):
        if path not in found:
            found[path] = {"kind": "dir"}
    return found


def test_what_takes_too_long_is_late():
    kvmount.check_time(1, 2, "in time")
    kvmount.check_time(5, 1, "as the control", control=3)
    for seconds, control in ((2.1 * kvmount.SLOWNESS, 0), (7 * kvmount.SLOWNESS, 3)):
        with pytest.raises(kvmount.Late, match="a wait"):
            kvmount.check_time(seconds, 1, "a wait", control)
    with pytest.raises(kvmount.Late, match="never"):
        kvmount.wait_until(lambda: False, 0.01, "never")


@pytest.mark.parametrize("disk", [False, True])
def test_a_bound_grows_with_what_a_process_beside_gets(disk, tmp_path):
    def judge(seconds):
        with kvmount.Beside(str(tmp_path) if disk else "") as beside:
            kvmount.run_as(os.listdir, "/")
            beside.add(seconds, 1, "a call")

    judge(0.9)
    # The machine may be slow, and no machine is so slow that a hang is none.
    with pytest.raises(kvmount.Late, match="a call"):
        judge(2.1 * kvmount.Beside.MOST * kvmount.SLOWNESS)
    assert os.listdir(tmp_path) == []
    with pytest.raises(ValueError):
        with kvmount.Beside() as beside:
            beside.add(1000, 1, "what is not judged after another failure")
            raise ValueError


def test_memory_that_grows_by_more_than_its_names_is_found():
    before = kvmount.Memory(10 << 20, 100)
    most = 1000 * kvmount.INODE_BYTES + 5000 * kvmount.NAME_BYTES
    grown = kvmount.Memory(before.bytes + most, 1100)
    more = grown._replace(bytes=grown.bytes + 1)
    kvmount.check_memory(before, grown, 5000, "lookups", slack=0)
    if not kvmount.SANITIZER:
        with pytest.raises(AssertionError, match="lookups"):
            kvmount.check_memory(before, more, 5000, "lookups", slack=0)


def test_only_a_name_that_is_not_there_is_a_miss(tmp_path):
    assert kvmount.load_or_miss(os.listdir, tmp_path) == []
    assert kvmount.load_or_miss(os.listdir, tmp_path / "none") is None
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        kvmount.load_or_miss(os.listdir, tmp_path / "file")
