"""The tests' runner: tests/run.sh says how it is called."""

import os
import signal
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE), os.path.join(os.path.dirname(HERE), "conformance")]

import gate  # noqa: E402
import labels  # noqa: E402
import leftovers  # noqa: E402
from build import cache_line  # noqa: E402
from context import LOGS, ROOT, Context, cache_directory, output_of, say  # noqa: E402
from ledger import Ledger  # noqa: E402
from results import Durations, Results, skipped, tally  # noqa: E402

# Gate and slices end within 28 minutes of the start; a slice begins only if it will have ended by then.
BUDGET_S = int(os.environ.get("KVCACHEFS_BUDGET_S", 28 * 60))
SLOW_S = 5
# Of one part by name, and the end of what each says.
SHOWN_FAILURES = 40
WHY_CHARACTERS = 1500
# Of a preset that this machine has never built.
BUILD_S = 400
FULL_RUN = os.path.join(ROOT, "bench", "results", "full-run.txt")


class Run:
    """Parts, one after the other; counts, times, and what is said of each."""

    def __init__(self, context):
        self.context = context
        self.passed = self.failed = 0
        self.took = []        # (seconds, part)
        self.whole = []       # (seconds without building, part) of those that passed
        self.failures = []    # (part, [(test, why)], log) of those that failed
        self.text = []        # what was said, for the record of a full run

    def say(self, text=""):
        say(text)
        self.text.append(text)

    def built(self):
        """preset -> seconds that building it has taken in this run."""
        took = {}
        for preset, _, seconds, _ in self.context.builds:
            took[preset] = took.get(preset, 0) + seconds
        return took

    def expected(self, part):
        """Seconds that the part will take, by what it took on this machine before."""
        durations = self.context.durations
        building = 0 if part.preset in self.built() else durations.of(f"build {part.preset}", BUILD_S)
        return (durations.of(f"part {part.name}", part.seconds) + building) * 1.2 * self.slowness()

    def slowness(self):
        """How many times as long as before the parts of this run have taken: the machine may have other things to do."""
        known = {name: self.context.durations.of(f"part {name}", None) for _, name in self.whole}
        before = sum(seconds for seconds in known.values() if seconds is not None)
        now = sum(seconds for seconds, name in self.whole if known[name] is not None)
        return max(1.0, now / before) if before > 0 else 1.0

    def part(self, part):
        """Runs it; its log is build/test-logs/NAME.log. Returns whether it has passed."""
        context, start = self.context, time.monotonic()
        results = Results(context.reports)
        since = results.position()
        context.broken = []
        built = sum(self.built().values())
        context.log_path = os.path.join(LOGS, part.name.replace("/", "-of-").replace(" ", "-") + ".log")
        with open(context.log_path, "w+", errors="replace") as context.log:
            good = bool(part.run(context))
            left = leftovers.clean_up(context)
            for line in left:
                context.note(line)
        seconds = time.monotonic() - start
        lines = context.lines[part.name] = results.lines(since)
        failed = [(line["test"], line.get("why", "")) for line in lines if line["outcome"] == "failed"]
        self.say(f"{part.name:18} {'passed' if good else 'failed':7} {seconds:5.0f} s   "
                 f"{tally(lines) if lines else ''}".rstrip())
        for line in left:
            self.say("    " + line)
        for why in context.broken:
            self.say(f"    could not be run: {why}")
        results.add({"part": part.name, "passed": good, "broken": context.broken})
        self.took.append((seconds, part.name))
        if good:
            self.whole.append((round(seconds - (sum(self.built().values()) - built), 1), part.name))
        self.passed += good
        self.failed += not good
        if not good:
            self.failures.append((part.name, failed, context.log_path))
            for test, _ in failed[:SHOWN_FAILURES]:
                self.say(f"    failed: {test}")
            self._show_log(context.log_path, 120)
        return good

    def _show_log(self, path, lines):
        say(f"---- the end of {path}")
        with open(path, errors="replace") as file:
            say("\n".join(file.read().splitlines()[-lines:]))
        say("----")

    def summary(self):
        """What took how long, what the compiler cache did, what was tried again, and the closing line."""
        context = self.context
        self.say("\nparts, by time:")
        for seconds, name in sorted(self.took, reverse=True):
            self.say(f"  {seconds:6.0f} s  {name}")
        self.say("builds:")
        for preset, targets, seconds, good in context.builds:
            self.say(f"  {seconds:6.0f} s  {preset}: {' '.join(targets)}{'' if good else ' (failed)'}")
        self.say(f"  {cache_line(context)}")
        slow = Results(context.reports).slowest(SLOW_S)
        self.say(f"tests over {SLOW_S} s: {len(slow)}")
        for seconds, test in slow:
            self.say(f"  {seconds:6.1f} s  {test}")
        if context.measured:
            self.say("benchmarks:")
        for row in context.measured:
            self.say(f"  {row}")
        left_out = skipped(Results(context.reports).lines())
        self.say(f"skipped: {len(left_out)}")
        for text in left_out:
            self.say(f"  {text}")
        self.say(f"tried again: {len(context.tried_again)}")
        for test, verdict in context.tried_again:
            self.say(f"  {test}: {verdict}")
        self.save_durations()
        self._show_failures()
        self.say(f"KVCACHEFS_SEED={context.seed}, {context.elapsed() / 60:.1f} minutes")
        self.say(f"{self.passed} passed, {self.failed} failed")

    def save_durations(self):
        """Saves the times of tests, parts and builds that passed. The time of one that broke
        off would make the next estimate too small."""
        context = self.context
        failed = {preset for preset, _, _, good in context.builds if not good}
        new = {line["test"]: line["seconds"] for line in Results(context.reports).lines() if line["outcome"] == "passed"}
        if not context.pytest_arguments:  # Such arguments narrow a part.
            new.update({f"part {name}": seconds for seconds, name in self.whole})
        context.durations.save(new, {f"build {preset}": round(seconds, 1)
                                     for preset, seconds in self.built().items() if preset not in failed})

    def _show_failures(self):
        """What failed once more, as the last thing but the verdict: whoever has the end of the output alone sees why."""
        for name, failed, path in self.failures:
            self.say(f"failed: {name}")
            for test, why in failed[:SHOWN_FAILURES]:
                self.say(f"  {test}")
                say("".join(f"    {line}\n" for line in why[-WHY_CHARACTERS:].splitlines()).rstrip("\n"))
            if not any(why for _, why in failed):
                self._show_log(path, 40)


def run_sanitizer(run):
    for part in gate.sanitizer_of_the_gate(run.context.seed):
        run.part(part)


def run_gate(run):
    """The gate. True when the sanitizer belongs to what comes next, because building has taken long."""
    context = run.context
    for part in gate.gate(context.seed):
        run.part(part)
    late = context.elapsed() > gate.SANITIZER_AT_ONCE_S
    if not late:
        run_sanitizer(run)
    run.say(f"gate: {context.elapsed() / 60:.1f} minutes"
            + (", the sanitizer comes first among the slices" if late else ""))
    return late


def run_slices(run, sanitizer_first):
    context = run.context
    parts = gate.slices(context.seed)
    if sanitizer_first:
        parts = [*gate.sanitizer_of_the_gate(context.seed), *parts]
    left_out = []
    for part in parts:
        why = part.why_not() if part.why_not else None
        expected = run.expected(part)
        if why is None and context.elapsed() + expected > BUDGET_S:
            why = f"{expected:.0f} s do not fit into {BUDGET_S / 60:.0f} minutes"
        if why:
            left_out.append((part.name, why))
        else:
            run.part(part)
    run.say(f"not begun: {len(left_out)} of {len(parts)} slices")
    for name, why in left_out:
        run.say(f"  {name}: {why}")


def run_labels(run, names):
    for name in names:
        why = labels.why_not_conformance() if name == "conformance" else None
        if why:
            run.say(f"{name:18} left out: {why}")
            continue
        run.part(gate.Part(name, {**labels.DEFAULT, **labels.NAMED}[name]))


def run_full(run):
    """Everything, and its record beside the benchmarks' results."""
    names = [*labels.DEFAULT, "xfs", "dev", "oracle", "vm"]
    run_labels(run, names)
    run.part(gate.Part("promises", gate.prove))
    run.part(gate.Part("bench --quick", labels.bench_quick))


def record(run):
    commit = output_of(["git", "describe", "--always", "--dirty", "--abbrev=12"])
    with open(FULL_RUN, "w") as file:
        file.write(f"tests/run.sh full at {commit}, {time.strftime('%Y-%m-%d')}\n\n" + "\n".join(run.text) + "\n")
    say(f"kept in {os.path.relpath(FULL_RUN, ROOT)}")


def parse(words):
    """(what to run, arguments of pytest). Ends the process on a word that it does not know."""
    names, arguments = [], []
    known = [*labels.DEFAULT, *labels.NAMED, "gate", "full"]
    while words:
        word = words.pop(0)
        if word == "--":
            arguments, words = words, []
        elif word == "--list":
            print("\n".join(known))
            sys.exit(0)
        elif word in known:
            names.append(word)
        else:
            print(f"run.sh: unknown label {word} ({' '.join(known)})", file=sys.stderr)
            sys.exit(2)
    if len(names) > 1 and {"gate", "full"} & set(names):
        print("run.sh: gate and full are whole runs: name no other label beside them", file=sys.stderr)
        sys.exit(2)
    return names, arguments


def main():
    names, arguments = parse(sys.argv[1:])
    context = Context(arguments, full=names == ["full"])
    context.tried_again = []
    cache = cache_directory()
    context.durations = Durations(cache)
    context.ledger = Ledger(os.environ.get("KVCACHEFS_LEDGER") or cache, context.mark)
    run = Run(context)

    def interrupted(number, _):
        signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, interrupted)
    run.say(f"kvcachefs tests: {' '.join(names) or 'gate, then slices'} (KVCACHEFS_SEED={context.seed})")
    leftovers.clean_up(context)
    try:
        if not names or names == ["gate"]:
            late = run_gate(run)
            if not names:
                run_slices(run, late)
            elif late:
                run_sanitizer(run)
        elif names == ["full"]:
            run_full(run)
        else:
            run_labels(run, names)
    except KeyboardInterrupt:
        leftovers.end_tests(context.mark)
        leftovers.end_processes(context.mark, everything=True)
        leftovers.clean_up(context)
        say("interrupted")
        return 130
    run.summary()
    if names == ["full"]:
        record(run)
    return 0 if run.failed == 0 and run.passed > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
