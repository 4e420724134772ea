"""Compares the rows of a run with those that stand in bench/results/, and says which have fallen by more than their spread.

A row's ratio is kvcachefs beside ext4 in the same run, so that it can be compared between days and machines better than any
time. Its spread is half of the distance between the lower and the upper quartile of its rounds' ratios. A row has fallen when its ratio,
with its own spread added, is below the one that stands, with its spread taken off.
"""

import json
import os
import statistics

RESULTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "results")
# Rounds of a moment say less than they seem to: no row is said to have fallen by less than this share.
LEAST_SPREAD = 0.05


def spread(ratios):
    """Of the rounds' ratios of one row; 0 when they are too few to tell."""
    if len(ratios) < 3:
        return 0.0
    lower, _, upper = statistics.quantiles(ratios, n=4)
    return (upper - lower) / 2


class Standing:
    """The rows that stand: of the last recorded quick run, or of a whole run where that has none."""

    def __init__(self, directory=RESULTS):
        self.rows = {}
        for name in ("bench.json", "quick.json"):
            path = os.path.join(directory, name)
            if not os.path.exists(path):
                continue
            with open(path, encoding="utf-8") as file:
                for row in json.load(file)["rows"]:
                    if row.get("ratio") is not None:
                        self.rows[row["case"]] = row

    def ratio(self, case):
        row = self.rows.get(case)
        return None if row is None else row["ratio"]

    def has_fallen(self, row):
        """Whether this row is below the one that stands by more than the spread of both."""
        before = self.rows.get(row["case"])
        if before is None or row.get("ratio") is None:
            return False
        own = max(spread(row.get("ratios", [])), LEAST_SPREAD * row["ratio"])
        old = max(spread(before.get("ratios", [])), LEAST_SPREAD * before["ratio"])
        return row["ratio"] + own < before["ratio"] - old
