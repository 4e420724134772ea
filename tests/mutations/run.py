#!/usr/bin/env python3
"""Breaks the product on purpose, one fault at a time, and shows that the gate finds each.

    tests/mutations/run.py [--whole] [--list] [--control | NAME...]

For each mutation (mutations.py) this script changes a copy of HEAD (a git worktree below
/var/tmp), runs `tests/run.sh gate` there and looks which tests fail. The gate finds a mutation
when a test ran and failed that the mutation names, or that is marked as a proof of the promise
that the mutation breaks. The script ends the gate there, unless --whole is given. A build that
fails, a part that could not be run, or a part that failed in most of its tests finds nothing:
the script says ERROR. Builds are incremental, and the compiler cache helps: some minutes each.
Logs are in build/mutations/.

The control is the gate on the unchanged copy, where nothing may fail. --control runs the
control alone. A run of all mutations begins with the control and ends there when something
fails. All gates of a run have one seed (KVCACHEFS_SEED).

Exit code: 0 every mutation was found; 1 one was not, or could not be applied or run; 2 wrong
usage. As root.
"""

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.dirname(HERE), os.path.join(os.path.dirname(HERE), "runner")]

import promises  # noqa: E402
from mutations import MUTATIONS  # noqa: E402
from results import Results  # noqa: E402

LIMIT_S = 3600  # Of one gate: several times what it takes.


def apply(mutation, tree):
    """Changes the file; False when the place is not there once."""
    path = os.path.join(tree, mutation.file)
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if text.count(mutation.before) != 1:
        return False
    with open(path, "w", encoding="utf-8") as file:
        file.write(text.replace(mutation.before, mutation.after))
    return True


def restore(mutation, tree):
    subprocess.run(["git", "-C", tree, "checkout", "-q", "--", mutation.file], check=True)


def names(mutation, line):
    """Returns true when the line's test has to find the mutation: the mutation lists the test,
    or the test is marked as a proof of the promise that the mutation breaks."""
    promise = re.fullmatch(r"promise (\d)", mutation.subject)
    return (promise is not None and int(promise[1]) in line["promises"] or
            any(promises.Marked(test, "", 0, ()).is_of(line["test"]) for test in mutation.found_by))


def failures(reports):
    """Returns what failed in the parts that have ended: (the lines of tests that ran and
    failed, a text for each thing that could not be run, the names of other parts that
    failed)."""
    tests, broken, others = [], [], []
    for part, lines in reports.parts():
        if part["passed"]:
            continue
        failed = [line for line in lines if line["outcome"] == "failed" and not line.get("broke")]
        broken += [f"{part['part']}: {why}" for why in part["broken"]]
        # A product that does not start fails every test of a mount, and so says nothing of a
        # promise.
        if 2 * len(failed) > len(lines) > 1:
            broken.append(f"{part['part']}: {len(failed)} of {len(lines)} tests failed")
            continue
        tests += failed
        if not failed and not part["broken"]:
            others.append(part["part"])
    return tests, broken, others


def gate(tree, log, enough=lambda: False):
    """Runs the gate to its end, or until `enough` returns true after a part that failed.
    Returns the exit code of the gate, None when this function ended the gate."""
    with open(log, "w", encoding="utf-8") as out, subprocess.Popen(
            ["tests/run.sh", "gate"], cwd=tree, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace") as process:
        until = time.monotonic() + LIMIT_S
        for line in process.stdout:
            out.write(line)
            # The log of a part follows its failure.
            if (line.startswith("----") and enough()) or time.monotonic() > until:
                process.send_signal(signal.SIGTERM)  # It ends what it has started.
                out.write(process.stdout.read())
                process.wait()
                return None
        return process.wait()


def results_of(tree):
    """Returns the results of the gate that runs next in the tree; removes those of an earlier
    gate."""
    path = os.path.join(tree, "build", "test-logs", "reports.jsonl")
    if os.path.exists(path):
        os.unlink(path)
    return Results(path)


def control(tree, log):
    """Runs the gate on the unchanged tree. Returns true when nothing fails."""
    begin, results = time.monotonic(), results_of(tree)
    code = gate(tree, log)
    tests, broken, others = failures(results)
    good = code == 0 and not (tests or broken or others) and any(lines for _, lines in results.parts())
    print(f"{'control':26} {'the product as it is':24} {'nothing fails' if good else 'FAILS'} after "
          f"{time.monotonic() - begin:.0f} s" + shown([line["test"] for line in tests] + broken + others), flush=True)
    return good


def shown(texts):
    return "".join(f"\n    {text}" for text in texts[:8])


def find(mutation, tree, log, whole):
    """Runs the gate on the mutated tree and prints the verdict. Returns true when the gate
    found the mutation."""
    begin, results = time.monotonic(), results_of(tree)

    def found():
        return [line["test"] for line in failures(results)[0] if names(mutation, line)]

    code = gate(tree, log, lambda: not whole and found())
    tests, broken = found(), failures(results)[1]
    if not list(results.parts()):
        broken.append("the gate ran no part")
    if code is None and not tests:
        broken.append(f"the gate was ended after {LIMIT_S} s")
    # A part that could not be run may have the test that would have found the mutation.
    verdict = "found" if tests and code != 0 else "ERROR" if broken else "MISSED"
    print(f"{mutation.name:26} {mutation.subject:24} {verdict} after {time.monotonic() - begin:.0f} s"
          + shown(tests + [f"could not be run: {why}" for why in broken]), flush=True)
    return verdict == "found"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--whole", action="store_true", help="let each gate run to its end")
    parser.add_argument("--list", action="store_true", help="only print the mutations")
    parser.add_argument("--control", action="store_true", help="only run the gate on the unchanged tree")
    parser.add_argument("name", nargs="*", help="only these")
    arguments = parser.parse_args()
    known = {mutation.name: mutation for mutation in MUTATIONS}
    for name in arguments.name:
        if name not in known:
            parser.error(f"no mutation {name} (--list prints them)")
    if arguments.control and arguments.name:
        parser.error("--control goes without a mutation")
    chosen = [known[name] for name in arguments.name] or list(MUTATIONS)
    if arguments.list:
        for mutation in chosen:
            print(f"{mutation.name:26} {mutation.subject:24} {mutation.what}")
        return 0
    logs = os.path.join(ROOT, "build", "mutations")
    os.makedirs(logs, exist_ok=True)
    os.environ.setdefault("KVCACHEFS_SEED", str(random.SystemRandom().randrange(1 << 30)))
    print(f"KVCACHEFS_SEED={os.environ['KVCACHEFS_SEED']}", flush=True)
    missed = []
    with tempfile.TemporaryDirectory(prefix="kvcachefs-mutations-", dir="/var/tmp") as home:
        os.chmod(home, 0o755)  # Tests run the programs as nobody, too.
        # A test that a mutation makes late says nothing of the machine.
        os.environ["KVCACHEFS_LEDGER"] = home
        tree = os.path.join(home, "tree")
        subprocess.run(["git", "-C", ROOT, "worktree", "add", "-q", "--detach", tree, "HEAD"], check=True)
        try:
            if not arguments.name and not control(tree, os.path.join(logs, "control.log")):
                print("the gate fails without a mutation, so that no mutation would say anything")
                return 1
            for mutation in [] if arguments.control else chosen:
                if not apply(mutation, tree):
                    missed.append(mutation.name)
                    print(f"{mutation.name:26} not applied: {mutation.file} does not have the place once", flush=True)
                    continue
                try:
                    if not find(mutation, tree, os.path.join(logs, f"{mutation.name}.log"), arguments.whole):
                        missed.append(mutation.name)
                finally:
                    restore(mutation, tree)
        finally:
            subprocess.run(["git", "-C", ROOT, "worktree", "remove", "--force", tree], check=False)
    if arguments.control:
        return 0
    print(f"{len(chosen) - len(missed)} of {len(chosen)} mutations found"
          + (f"; not: {', '.join(missed)}" if missed else ""))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
