"""The gate, and the slices after it.

The gate is what every change has to pass: style, unit and contract tests, the tests of mounts that are marked `gate` on a data path
and a transport drawn by the seed, the check that every promise of the design was proved, and one of the sanitizers. The slices are parts
of all the rest, in an order drawn by the seed, as many as there is time for."""

import os
import random

import labels
import promises

# Where building took longer than this, the sanitizer runs after the gate: the verdict on the rest is there sooner.
SANITIZER_AT_ONCE_S = 8 * 60
# Of the short tests that mount, under a sanitizer.
SANITIZED_PARTS = 5
# The counts that are small enough for every change.
OF_THE_GATE = {**labels.BY_SEED, "KVCACHEFS_GATE": "1"}


class Part:
    """Something that passes or fails. `seconds`: how long it takes, without building `preset`, where this machine has not done it
    yet."""

    def __init__(self, name, run, seconds=60, why_not=None, preset="release"):
        self.name, self.run, self.seconds, self.preset = name, run, seconds, preset
        self.why_not = why_not  # Returns why it cannot run on this machine, or None.


def _slice(seed, number, parts):
    """Returns the environment of a part, on one of the two transports by its number and the
    seed. Another seed draws other tests into the part."""
    return {"KVCACHEFS_SLICE": f"{number}/{parts}", **labels.BY_SEED,
            "KVCACHEFS_TRANSPORT": ("auto", "dev")[(seed // 4 + number) % 2]}


# Parts of the gate and of a full run that run the product as it is. On a plain directory, with
# a sanitizer or on xfs a test that passes or is skipped says nothing of the promise.
PROVING = ("unit", "contract", "mounts", *labels.SUITES)


def prove(context):
    """Returns true when a test of each promise has passed in this run, and each marked test
    proved its own."""
    lines = [line for name in PROVING for line in context.lines.get(name, [])]
    open_ones = list(promises.unproved(lines))
    for text in open_ones:
        context.note(text)
    context.note(f"{len(promises.PROMISES)} promises, {len(promises.marked())} tests marked for them, {len(open_ones)} not proved")
    return not open_ones


def _sanitizers(seed):
    """(the one of the gate, the other)"""
    pair = [labels.ASAN, labels.TSAN]
    return pair if seed % 2 == 0 else pair[::-1]


def _transport(seed):
    """The transport of every mount of the gate whose test asks for none: what the machine has, or /dev/fuse."""
    return {"KVCACHEFS_TRANSPORT": ("auto", "dev")[seed // 2 % 2]}


def gate(seed):
    return [
        Part("style", labels.style),
        Part("unit", labels.unit_of_the_gate),
        Part("contract", labels.contract),
        Part("mounts", labels.suites(*labels.SUITES, marks="gate", environment={**OF_THE_GATE, **_transport(seed)})),
        Part("promises", prove),
    ]


def sanitizer_of_the_gate(seed):
    chosen = _sanitizers(seed)[0]
    return [
        Part(f"{chosen.preset} unit", chosen.unit, 120, preset=chosen.preset),
        Part(f"{chosen.preset} contract", chosen.contract, 90, preset=chosen.preset),
        Part(f"{chosen.preset} mounts", lambda c: chosen.mounts(c, environment=_slice(seed, 0, SANITIZED_PARTS)), 90,
             preset=chosen.preset),
    ]


def _folder_slices(seed, folder, parts, seconds):
    for number in range(parts):
        yield Part(f"{folder} {number + 1}/{parts}",
                   labels.suites(folder, marks="not gate", some=False,
                                 environment=_slice(seed, number, parts)), seconds)


def _no_programs():
    why = labels.why_not_conformance()
    if why:
        return why
    if not all(os.path.exists(os.path.join(labels.CONFORMANCE_PROGRAMS, name)) for name in ("pjdfstest", "fsx")):
        return "pjdfstest and fsx are not built on this machine (tests/run.sh conformance builds them)"
    return None


def slices(seed):
    """All of them, in the order of this run."""
    other = _sanitizers(seed)[1]
    found = [
        *_folder_slices(seed, "mount", 4, 120),
        *_folder_slices(seed, "crash", 4, 70),
        *_folder_slices(seed, "runtimes", 4, 80),
        *_folder_slices(seed, "neighbours", 1, 60),
        Part("simulations", labels.simulations, 60),
        Part(f"{other.preset} unit", other.unit, 120, preset=other.preset),
        Part(f"{other.preset} contract", other.contract, 100, preset=other.preset),
        Part("soak", labels.suites("soak", environment={"KVCACHEFS_SOAK_S": "30"}), 50),
    ]
    for which in (labels.ASAN, labels.TSAN):
        # The first fifth of one of them is in the gate.
        for number in range(1 if which is not other else 0, SANITIZED_PARTS):
            found.append(Part(f"{which.preset} mounts {number + 1}/{SANITIZED_PARTS}",
                              lambda c, w=which, n=number: w.mounts(c, environment=_slice(seed, n, SANITIZED_PARTS), some=False),
                              100, preset=which.preset))
    for number in range(2):
        found.append(Part(f"conformance {number + 1}/2",
                          labels.suites("conformance", environment=_slice(seed, number, 2), some=False), 90, _no_programs))
        found.append(Part(f"oracle {number + 1}/2",
                          labels.suites(*labels.ORACLE_FOLDERS, some=False,
                                        environment={**_slice(seed, number, 2), "KVCACHEFS_TARGET": "ext4"}), 40))
        found.append(Part(f"libfuse314 {number + 1}/2",
                          lambda c, n=number: labels.libfuse314(c, _slice(seed, n, 2)), 60, preset="libfuse314"))
    for number in range(4):
        found.append(Part(f"xfs {number + 1}/4",
                          labels.suites(*labels.XFS_FOLDERS, some=False,
                                        environment={**_slice(seed, number, 4), "KVCACHEFS_BELOW": "xfs"}), 120))
    targets = labels.fuzz_targets()
    for first in range(0, len(targets), 2):
        pair = targets[first:first + 2]
        found.append(Part("fuzz " + " ".join(pair), lambda c, p=pair: labels.fuzz(c, p, 15), 20, preset="fuzz"))
    random.Random(seed).shuffle(found)
    return found
