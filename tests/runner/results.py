"""What the tests of a run came to, from the lines that they left (tests/report.py, gtests.py), and how long they take."""

import json
import os
import re


def tally(lines):
    """Returns how many of these tests have passed, failed and were skipped, in words."""
    counts = [sum(line["outcome"] == outcome for line in lines) for outcome in ("passed", "failed", "skipped")]
    return f"{counts[0]} passed, {counts[1]} failed" + (f", {counts[2]} skipped" if counts[2] else "")


def all_skipped(lines):
    """Returns true when there are tests, and none of them ran."""
    return bool(lines) and all(line["outcome"] == "skipped" for line in lines)


def skipped(lines):
    """Returns a text for each file (in C++: suite) and reason of the tests that were
    skipped."""
    tests = {}
    for line in lines:
        if line["outcome"] == "skipped":
            name = re.split(r"[\[]", line["test"])[0]
            home = name.partition("::")[0] if name.startswith("tests/") else name.rpartition(".")[0]
            tests.setdefault((home, line.get("why", "")), set()).add(name)
    return [f"{' '.join(names) if len(names) == 1 else f'{home} ({len(names)} tests)'}: {' '.join(why.split())}"
            for (home, why), names in sorted(tests.items())]


class Results:
    def __init__(self, path):
        self.path = path

    def _all(self, since=0):
        if not os.path.exists(self.path):
            return []
        with open(self.path) as file:
            file.seek(since)
            return [json.loads(line) for line in file if line.endswith("\n")]

    def lines(self, since=0):
        """Returns the line of each test from that byte on."""
        return [line for line in self._all(since) if "test" in line]

    def sessions(self, since=0):
        """Returns the exit code of each session of pytest that came to its end."""
        return [line["session"] for line in self._all(since) if "session" in line]

    def parts(self):
        """Yields (its own line, the lines of its tests) of each part that has ended
        (run.py)."""
        tests = []
        for line in self._all():
            if "test" in line:
                tests.append(line)
            elif "part" in line:
                yield line, tests
                tests = []

    def add(self, line):
        with open(self.path, "a") as out:
            out.write(json.dumps(line) + "\n")

    def position(self):
        return os.path.getsize(self.path) if os.path.exists(self.path) else 0

    def slowest(self, least_s):
        """(seconds, test) of those over `least_s`, the longest first; of a test that ran twice the longer."""
        took = {}
        for line in self.lines():
            took[line["test"]] = max(took.get(line["test"], 0), line["seconds"])
        return sorted(((s, t) for t, s in took.items() if s >= least_s), reverse=True)


# An estimate looks at so many builds of a preset, because the last one may have found
# everything in the compiler cache.
BUILDS = 5


class Durations:
    """Seconds that tests, parts and builds took on this machine in earlier runs."""

    def __init__(self, directory):
        self.path = os.path.join(directory, "durations.json")
        try:
            with open(self.path) as file:
                self.seconds = json.load(file)
        except (OSError, ValueError):
            self.seconds = {}

    def of(self, name, otherwise):
        """Returns the seconds of that name; for a build those of the longest of the last
        BUILDS."""
        seconds = self.seconds.get(name, otherwise)
        return max(seconds) if isinstance(seconds, list) else seconds

    def save(self, new, builds):
        """Replaces the seconds of the names in `new`, adds those of `builds` to the earlier
        ones, and writes the file."""
        # Another run may have written since this one read.
        self.seconds = {**Durations(os.path.dirname(self.path)).seconds, **new}
        for name, seconds in builds.items():
            before = self.seconds.get(name, [])
            self.seconds[name] = [*(before if isinstance(before, list) else [before]), seconds][-BUILDS:]
        scratch = f"{self.path}.{os.getpid()}"
        with open(scratch, "w") as file:
            json.dump(self.seconds, file)
        os.replace(scratch, self.path)
