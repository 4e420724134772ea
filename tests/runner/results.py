"""What the tests of a run came to, from the lines that they left (tests/report.py, gtests.py), and how long they take."""

import json
import os


class Results:
    def __init__(self, path):
        self.path = path

    def lines(self, since=0):
        """Every line from that byte on."""
        if not os.path.exists(self.path):
            return []
        with open(self.path) as file:
            file.seek(since)
            return [json.loads(line) for line in file if line.endswith("\n")]

    def position(self):
        return os.path.getsize(self.path) if os.path.exists(self.path) else 0

    def slowest(self, least_s):
        """(seconds, test) of those over `least_s`, the longest first; of a test that ran twice the longer."""
        took = {}
        for line in self.lines():
            took[line["test"]] = max(took.get(line["test"], 0), line["seconds"])
        return sorted(((s, t) for t, s in took.items() if s >= least_s), reverse=True)


class Durations:
    """What tests and slices took on this machine, kept from run to run for the order in which they begin."""

    def __init__(self, directory):
        self.path = os.path.join(directory, "durations.json")
        try:
            with open(self.path) as file:
                self.seconds = json.load(file)
        except (OSError, ValueError):
            self.seconds = {}

    def of(self, name, otherwise):
        return self.seconds.get(name, otherwise)

    def save(self, new):
        # Another run may have written since we read.
        self.seconds = {**Durations(os.path.dirname(self.path)).seconds, **new}
        scratch = f"{self.path}.{os.getpid()}"
        with open(scratch, "w") as file:
            json.dump(self.seconds, file)
        os.replace(scratch, self.path)
