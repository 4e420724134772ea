#!/usr/bin/env python3
"""Tests of the runner itself. No mount; the interpreter is that of packaging/python-env.sh.

    tests/style/runner_test.py [-v] [NAME...]
"""

import contextlib
import importlib.util
import io
import json
import os
import pathlib
import re
import sys
import tempfile
import unittest
from unittest import mock

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / name) for name in ("runner", "", "conformance", "mutations")]
sys.dont_write_bytecode = True

import context as run_context  # noqa: E402
import gate  # noqa: E402
import gtests  # noqa: E402
import promises  # noqa: E402
import pytests  # noqa: E402
import results  # noqa: E402
from mutations import MUTATIONS, Mutation  # noqa: E402
from ledger import RUNS, Ledger  # noqa: E402
import run as runner  # noqa: E402
from results import Durations, Results  # noqa: E402

LATE = """
import os, signal
import kvmount
def test_late_once():
    if not os.path.exists("late"):
        open("late", "w").close()
        raise kvmount.Late("too late, once")
"""


class Scratch(unittest.TestCase):
    """A directory with tests of its own, and a run whose output goes there."""

    def setUp(self):
        self.home = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="kvcachefs-runner-")))
        (self.home / "tests" / "mount").mkdir(parents=True)
        (self.home / "tests" / "pytest.ini").write_text(
            (TESTS / "pytest.ini").read_text().replace("pythonpath = .", f"pythonpath = {TESTS}"))
        (self.home / "tests" / "conftest.py").write_text('pytest_plugins = ["selection", "report"]\n')
        logs = self.home / "build" / "test-logs"
        for module, name, value in ((run_context, "ROOT", str(self.home)), (run_context, "LOGS", str(logs)),
                                    (pytests, "ROOT", str(self.home)), (pytests, "WORKERS", 2), (pytests, "TIMES", 1),
                                    (gtests, "ROOT", str(self.home)), (gtests, "LOGS", str(logs))):
            self.enterContext(mock.patch.object(module, name, value))
        self.enterContext(mock.patch.dict(os.environ))
        for name in [name for name in os.environ if name.startswith(("KVCACHEFS_", "PYTEST_"))]:
            del os.environ[name]
        self.context = run_context.Context()
        self.context.python = sys.executable
        self.context.durations = mock.Mock(path="")
        self.context.ledger = Ledger(str(self.home), "this run")
        self.context.tried_again = []
        self.context.log = self.enterContext(open(self.home / "log", "w+"))

    def write(self, name, text):
        (self.home / "tests" / "mount" / name).write_text(text)

    def run_mount(self, **arguments):
        with mock.patch.object(pytests, "Load"), mock.patch.object(pytests, "say"):
            return pytests.run(self.context, ["mount"], **arguments)

    def outcomes(self):
        return [(line["test"], line["outcome"]) for line in Results(self.context.reports).lines()]

    def log(self):
        return (self.home / "log").read_text()


class Broken(Scratch):
    """A part fails when pytest's exit code is not explained by its tests, whatever else was
    late."""

    def test_a_worker_that_dies_in_a_test_fails_it(self):
        self.write("test_a.py", LATE + "def test_kills_its_worker():\n    os.kill(os.getpid(), signal.SIGKILL)\n")
        self.assertFalse(self.run_mount(), self.log())
        self.assertIn(("tests/mount/test_a.py::test_kills_its_worker", "failed"), self.outcomes())
        self.assertIn("tests/mount/test_a.py::test_kills_its_worker came to no end", self.context.broken)

    def test_a_file_that_cannot_be_collected_fails(self):
        self.write("test_a.py", LATE)
        self.write("test_b.py", "import no_such_module\n")
        self.assertFalse(self.run_mount(), self.log())
        self.assertIn(("tests/mount/test_b.py", "failed"), self.outcomes())

    def test_a_session_that_dies_fails(self):
        for code in (0, 1):
            self.write("test_a.py", "import os, pytest\n@pytest.mark.alone\n"
                                    f"def test_ends_the_session():\n    os._exit({code})\n")
            self.write("test_b.py", LATE)
            self.assertFalse(self.run_mount(), self.log())
            self.assertIn(f"pytest ended with {code}, which its tests do not explain", self.context.broken)
            (self.home / "late").unlink()

    def test_a_late_test_passes_when_it_is_tried_again_and_fails_the_second_time(self):
        self.write("test_a.py", LATE)
        self.assertTrue(self.run_mount(), self.log())
        self.assertEqual(1, len(self.context.tried_again))
        (self.home / "late").unlink()
        self.assertFalse(self.run_mount(), self.log())

    def test_what_never_comes_is_not_tried_again(self):
        self.write("test_a.py", LATE.replace("kvmount.Late", "kvmount.Never"))
        self.assertFalse(self.run_mount(), self.log())
        self.assertEqual([], self.context.tried_again)


class LedgerOfLateTests(unittest.TestCase):
    """Lateness is remembered for twenty runs of the test that was late."""

    def setUp(self):
        self.home = self.enterContext(tempfile.TemporaryDirectory(prefix="kvcachefs-runner-"))

    def test_runs_of_other_parts_do_not_count(self):
        Ledger(self.home, "first").add("late")
        for number in range(RUNS + 5):
            Ledger(self.home, f"of the style {number}").ran({"other"})
        self.assertTrue(Ledger(self.home, "last").was_late("late"))
        self.assertFalse(Ledger(self.home, "last").was_late("other"))

    def test_twenty_runs_of_the_test_are_enough(self):
        Ledger(self.home, "first").add("late")
        for number in range(RUNS):
            self.assertTrue(Ledger(self.home, "last").was_late("late"))
            Ledger(self.home, f"of the test {number}").ran({"late"})
        self.assertFalse(Ledger(self.home, "last").was_late("late"))

    def test_twice_in_one_run_is_twice(self):
        ledger = Ledger(self.home, "first")
        self.assertFalse(ledger.was_late("late"))
        ledger.add("late")
        self.assertTrue(ledger.was_late("late"))


class Estimates(Scratch):
    """A run expects of a part what it took in earlier runs that passed, and begins what
    fits."""

    def setUp(self):
        super().setUp()
        self.context.durations = Durations(str(self.home))
        self.enterContext(mock.patch.multiple(runner, say=mock.DEFAULT, LOGS=run_context.LOGS, ROOT=run_context.ROOT))
        self.enterContext(mock.patch.object(runner.leftovers, "clean_up", return_value=[]))
        self.whole = runner.Run(self.context)

    def test_a_part_that_broke_off_leaves_no_time(self):
        for name, good in (("broke off", False), ("passed", True)):
            self.whole.part(gate.Part(name, lambda c, g=good: g))
        self.whole.summary()
        self.assertIsNone(Durations(str(self.home)).of("part broke off", None))
        self.assertIsNotNone(Durations(str(self.home)).of("part passed", None))

    def test_a_build_is_expected_to_take_what_the_longest_of_five_took(self):
        for seconds, good in ((300, True), (2, True), (2, True), (2, False)):
            self.context.builds = [("asan", [], seconds, good)]
            self.whole.summary()
        self.assertEqual(300, Durations(str(self.home)).of("build asan", 400))
        for _ in range(5):
            self.context.builds = [("asan", [], 2, True)]
            self.whole.summary()
        self.assertEqual(2, Durations(str(self.home)).of("build asan", 400))

    def test_nothing_begins_that_ends_after_the_limit(self):
        begun = []
        parts = [gate.Part(name, lambda c, n=name: begun.append(n) or True, seconds) for name, seconds in
                 (("sanitizer", 300), ("fits", 60))]
        self.context.started -= runner.BUDGET_S - 250
        self.context.builds = [("release", [], 1, True)]
        with mock.patch.multiple(gate, sanitizer_of_the_gate=lambda _: parts[:1], slices=lambda _: parts[1:]):
            runner.run_slices(self.whole, True)
        self.assertEqual(["fits"], begun)
        self.assertIn("not begun: 1 of 2 slices", self.whole.text)

    def test_a_sanitizer_is_expected_to_be_built(self):
        for seed in (0, 1):
            for part in gate.sanitizer_of_the_gate(seed):
                self.assertIn(part.preset, ("asan", "tsan"))


class Slices(unittest.TestCase):
    """Parts of everything that the gate leaves out."""

    def test_the_seed_draws_the_transport_of_each(self):
        drawn = {}
        with mock.patch.object(gate.labels, "suites", lambda *folders, **more: (folders, more.get("environment"))):
            for seed in range(16):
                for part in gate.slices(seed):
                    if isinstance(part.run, tuple) and "KVCACHEFS_SLICE" in (part.run[1] or {}):
                        drawn.setdefault(part.name, set()).add(part.run[1]["KVCACHEFS_TRANSPORT"])
        self.assertIn("neighbours 1/1", drawn)
        for name, transports in drawn.items():
            self.assertEqual({"auto", "dev"}, transports, name)


class Full(Scratch):
    """A full run has both filesystems and transports, and says which rows of its benchmark have
    fallen."""

    def setUp(self):
        super().setUp()
        self.context.durations = Durations(str(self.home))
        self.enterContext(mock.patch.multiple(runner, say=mock.DEFAULT, LOGS=run_context.LOGS, ROOT=run_context.ROOT))
        self.enterContext(mock.patch.object(runner.leftovers, "clean_up", return_value=[]))

    def test_xfs_and_dev_are_among_its_labels(self):
        run = mock.Mock()
        runner.run_full(run)
        names = {call.args[0].name for call in run.part.call_args_list}
        self.assertLessEqual({"mount", "xfs", "dev"}, names)

    def test_dev_takes_the_tests_that_leave_the_transport_open(self):
        self.write("test_a.py", "import pytest\ndef test_open(): pass\ndef test_chosen(transport): pass\n")
        with mock.patch.object(gate.labels, "suites", lambda *folders, **more: lambda context: more["environment"]):
            environment = gate.labels.dev(self.context)
        self.assertEqual("dev", environment["KVCACHEFS_TRANSPORT"])
        self.assertTrue(self.run_mount(environment={**environment, "KVCACHEFS_SLICE": "0/1"}), self.log())
        self.assertEqual([("tests/mount/test_a.py::test_open", "passed")], self.outcomes())

    def test_its_summary_has_the_rows_that_have_fallen(self):
        path = self.home / "bench" / "bench.sh"
        path.parent.mkdir()
        path.write_text("#!/bin/bash\necho 'load 1 MiB  0.95 stands 0.96'\necho 'load 4 MiB  0.70 stands 0.96 FALLEN'\n"
                        "echo '1 have fallen by more than their spread: load 4 MiB'\n")
        path.chmod(0o755)
        run = runner.Run(self.context)
        with mock.patch.multiple(gate.labels, build=lambda *_: True, LOGS=run_context.LOGS), \
                mock.patch.object(pytests, "can_mount", lambda _: True):
            run.part(gate.Part("bench --quick", gate.labels.bench_quick))
        run.summary()
        self.assertIn("  load 4 MiB  0.70 stands 0.96 FALLEN", run.text)
        self.assertNotIn("load 1 MiB", "\n".join(run.text))


# Behaves as a program of GoogleTest 1.12, which gives the reason of a skip in its output alone.
PROGRAM = """#!/usr/bin/python3
import json, sys
print("a_test.cc:1: Skipped\\nneeds root")
path = next(word for word in sys.argv if word.startswith("--gtest_output=json:")).partition("json:")[2]
tests = [{"name": name, "status": "RUN", "result": result, "time": "0s"} for name, result in TESTS]
json.dump({"testsuites": [{"name": "Suite", "testsuite": tests}]}, open(path, "w"))
"""


class Skips(Scratch):
    """Skipped tests are counted and listed with their reasons; a part of nothing else fails."""

    def test_a_part_whose_tests_were_all_skipped_fails(self):
        self.write("test_a.py", "import pytest\npytestmark = pytest.mark.skipif(True, reason='no disk')\n"
                                "def test_one(): pass\n@pytest.mark.parametrize('n', [1, 2])\ndef test_two(n): pass\n")
        self.write("test_b.py", "import pytest\npytest.skip('no program', allow_module_level=True)\n")
        self.assertFalse(self.run_mount(), self.log())
        lines = Results(self.context.reports).lines()
        self.assertIn("every test was skipped", self.context.broken)
        self.assertEqual(["tests/mount/test_a.py (2 tests): no disk", "tests/mount/test_b.py: no program"],
                         results.skipped(lines))
        self.assertIn("0 passed, 0 failed, ", results.tally(lines))

    def _program(self, tests):
        path = self.home / "build" / "release" / "bin" / "unit_tests"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PROGRAM.replace("TESTS", repr(tests)))
        path.chmod(0o755)
        return gtests.run(self.context, "release", "unit_tests", shards=1)

    def test_a_program_whose_tests_were_all_skipped_fails(self):
        self.assertTrue(self._program([("One", "SKIPPED"), ("Two", "COMPLETED")]), self.log())
        self.assertFalse(self._program([("One", "SKIPPED")]), self.log())
        self.assertEqual(["release:unit_tests:Suite.One: needs root"],
                         results.skipped(Results(self.context.reports).lines()))


class Promises(unittest.TestCase):
    """A marked test proves its promises when its marked cases pass, and none of them was
    skipped."""

    PYTHON = promises.Marked("tests/mount/test_a.py::test_one", "", 1, {1})
    CPP = promises.Marked("Suite.Name", "", 1, {1})

    def unproved(self, test, *cases):
        lines = [{"test": name, "outcome": outcome, "promises": marks, "why": "no disk"} for name, outcome, marks in cases]
        with mock.patch.multiple(promises, marked=lambda: [test], PROMISES={1: "words"}):
            return list(promises.unproved(lines))

    def test_a_marked_parameter_that_passes_is_a_proof(self):
        self.assertEqual([], self.unproved(self.PYTHON, ("tests/mount/test_a.py::test_one[a]", "passed", [1]),
                                           ("tests/mount/test_a.py::test_one[b]", "skipped", [])))
        self.assertEqual([], self.unproved(self.CPP, ("release:unit_tests:Suite.Name", "passed", [1])))

    def test_a_passing_case_without_the_mark_is_none(self):
        self.assertEqual(2, len(self.unproved(self.PYTHON, ("tests/mount/test_a.py::test_one[a]", "passed", []))))

    def test_a_marked_case_that_was_skipped_spoils_the_proof(self):
        self.assertEqual(2, len(self.unproved(self.PYTHON, ("tests/mount/test_a.py::test_one[a]", "passed", [1]),
                                              ("tests/mount/test_a.py::test_one[b]", "skipped", [1]))))
        self.assertEqual(2, len(self.unproved(self.CPP, ("release:unit_tests:Of/Suite.Name/0", "passed", [1]),
                                              ("release:unit_tests:Of/Suite.Name/1", "skipped", []))))

    def test_a_plain_directory_proves_nothing(self):
        run = mock.Mock(lines={"oracle": [{"test": "tests/mount/test_a.py::test_one", "outcome": "passed",
                                           "promises": [1]}]})
        with mock.patch.object(promises, "marked", lambda: [self.PYTHON]):
            self.assertFalse(gate.prove(run))
            run.lines["mount"] = run.lines["oracle"]
            with mock.patch.object(promises, "PROMISES", {1: "never wrong bytes"}):
                self.assertTrue(gate.prove(run))


def program_of_mutations():
    """tests/mutations/run.py; another module has the name `run`, too."""
    spec = importlib.util.spec_from_file_location("mutation_run", TESTS / "mutations" / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Mutations(unittest.TestCase):
    """The gate finds a mutation when a test that names it ran and failed, and in no other
    way."""

    MUTATION = Mutation("broken", "promise 1", "", "", "", "", ("Learner.Learns", "tests/mount/test_a.py::test_one"))

    def setUp(self):
        self.home = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="kvcachefs-runner-")))
        (self.home / "tests").mkdir()
        (self.home / "build" / "test-logs").mkdir(parents=True)
        self.program = program_of_mutations()

    def gate(self, code, *parts):
        """Makes a gate of these parts: (name, why it could not be run, failed tests, how many
        passed)."""
        lines = []
        for name, broken, failed, passed in parts:
            lines += [{"test": test, "outcome": "failed", "promises": marks} for test, marks in failed]
            lines += [{"test": f"release:unit_tests:Other.Test{n}", "outcome": "passed", "promises": []}
                      for n in range(passed)]
            lines.append({"part": name, "passed": not (broken or failed), "broken": broken})
        path = self.home / "tests" / "run.sh"
        path.write_text("#!/bin/bash\ncat >build/test-logs/reports.jsonl <<'END'\n"
                        + "".join(json.dumps(line) + "\n" for line in lines) + "END\n"
                        "echo 'promise 1 (never wrong bytes): no test of it has passed'\n"
                        "echo 'tests/mount/test_a.py::test_one proves promise [1], and did not run to success'\n"
                        f"echo '---- the end'\nexit {code}\n")
        path.chmod(0o755)

    def said(self, call, *arguments):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            good = call(*arguments)
        return good, output.getvalue()

    def find(self):
        return self.said(self.program.find, self.MUTATION, str(self.home), str(self.home / "log"), True)

    def test_a_named_test_that_failed_finds_it(self):
        for test, marks in (("release:unit_tests:Learner.Learns", []), ("release:unit_tests:All/Learner.Learns/0", []),
                            ("tests/mount/test_a.py::test_one[daemon]", []), ("tests/mount/test_z.py::test_z", [1, 4])):
            self.gate(1, ("unit", [], [(test, marks)], 9))
            self.assertEqual((True, True), (self.find()[0], "found after" in self.find()[1]), test)

    def test_a_test_whose_name_is_longer_does_not(self):
        for test, marks in (("release:unit_tests:LearnerCost.Learns", []), ("release:unit_tests:Learner.LearnsMore", []),
                            ("tests/mount/test_a.py::test_one_more", []), ("tests/mount/test_z.py::test_z", [4])):
            self.gate(1, ("unit", [], [(test, marks)], 9))
            self.assertEqual((False, True), (self.find()[0], "MISSED" in self.find()[1]), test)

    def test_a_build_that_fails_is_an_error(self):
        self.gate(1, ("unit", ["the release build of unit_tests failed"], [], 0), ("promises", [], [], 0))
        good, text = self.find()
        self.assertFalse(good)
        self.assertIn("ERROR", text)
        self.assertIn("could not be run: unit: the release build of unit_tests failed", text)

    def test_mounts_that_all_fail_are_an_error(self):
        self.gate(1, ("mounts", [], [(f"tests/mount/test_a.py::test_one[{n}]", [1]) for n in range(9)], 2))
        good, text = self.find()
        self.assertFalse(good)
        self.assertIn("ERROR", text)
        self.assertIn("mounts: 9 of 11 tests failed", text)

    def test_the_control_fails_with_any_test(self):
        for code, failed, expected in ((0, [], True), (1, [("release:unit_tests:Other.Fails", [])], False), (1, [], False)):
            self.gate(code, ("unit", [], failed, 9))
            self.assertEqual(expected, self.said(self.program.control, str(self.home), str(self.home / "log"))[0])

    def test_every_test_that_a_mutation_names_exists(self):
        cpp = "\n".join(path.read_text() for path in TESTS.rglob("*_test.cc"))
        for test in (test for mutation in MUTATIONS for test in mutation.found_by):
            if test.startswith("tests/"):
                path, _, name = test.partition("::")
                self.assertTrue(f"def {name}(" in (TESTS.parent / path).read_text(), test)
            else:
                suite, _, name = test.partition(".")
                self.assertTrue(re.search(rf"TEST\w*\(\s*{suite},\s*{name}\s*\)", cpp), test)


if __name__ == "__main__":
    unittest.main()
