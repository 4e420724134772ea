#!/usr/bin/env python3
"""Breaks the product on purpose, one fault at a time, and shows that the gate finds each.

    tests/mutations/run.py [--whole] [--list] [NAME...]

For each mutation (mutations.py) it changes a copy of HEAD (a git worktree below /var/tmp), runs `tests/run.sh gate` there and looks
which tests fail. A mutation is found when the gate fails with one of the tests that the mutation names, or that are marked as proofs of
the promise that it breaks; the run is ended there, unless --whole is given. Builds are incremental, and the compiler cache helps: some minutes each. Logs are in build/mutations/.

Exit code: 0 every mutation was found; 1 one was not, or could not be applied; 2 wrong usage. As root.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

import promises  # noqa: E402
from mutations import MUTATIONS  # noqa: E402

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
    """Whether a line of the gate's output says that one of the mutation's tests has failed: one that it lists, or one that is marked
    as a proof of the promise that it breaks."""
    match = re.match(r"\s+failed: ((?:[\w-]+:[\w-]+:)?(\S+))", line)
    promise = re.fullmatch(r"promise (\d)", mutation.subject)
    # What the part `promises` says: of many failed tests not all are named.
    if promise and re.search(rf"^promise {promise[1]} .* no test of it has passed|proves promise \[.*{promise[1]}.*\], and did not",
                             line):
        return True
    if match is None:
        return False
    return any(test in match[2] for test in mutation.found_by) or (promise is not None and any(
        int(promise[1]) in test.promises and test.is_of(match[1]) for test in promises.marked()))


def gate(mutation, tree, log, whole):
    """Runs the gate; returns (the lines that name a test of the mutation, exit code or None when it was ended)."""
    found = []
    with open(log, "w", encoding="utf-8") as out, subprocess.Popen(
            ["tests/run.sh", "gate"], cwd=tree, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace") as process:
        until = time.monotonic() + LIMIT_S
        for line in process.stdout:
            out.write(line)
            if names(mutation, line):
                found.append(line.strip())
            # The first part whose failure names it is proof enough.
            if (found and not whole and line.startswith("----")) or time.monotonic() > until:
                process.send_signal(signal.SIGTERM)  # It ends what it has started.
                process.stdout.read()
                process.wait()
                return found, None
        return found, process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--whole", action="store_true", help="let each gate run to its end")
    parser.add_argument("--list", action="store_true", help="only print the mutations")
    parser.add_argument("name", nargs="*", help="only these")
    arguments = parser.parse_args()
    known = {mutation.name: mutation for mutation in MUTATIONS}
    for name in arguments.name:
        if name not in known:
            parser.error(f"no mutation {name} (--list prints them)")
    chosen = [known[name] for name in arguments.name] or list(MUTATIONS)
    if arguments.list:
        for mutation in chosen:
            print(f"{mutation.name:26} {mutation.subject:24} {mutation.what}")
        return 0
    logs = os.path.join(ROOT, "build", "mutations")
    os.makedirs(logs, exist_ok=True)
    missed = []
    with tempfile.TemporaryDirectory(prefix="kvcachefs-mutations-", dir="/var/tmp") as home:
        os.chmod(home, 0o755)  # Tests run the programs as nobody, too.
        tree = os.path.join(home, "tree")
        subprocess.run(["git", "-C", ROOT, "worktree", "add", "-q", "--detach", tree, "HEAD"], check=True)
        try:
            for mutation in chosen:
                begin = time.monotonic()
                if not apply(mutation, tree):
                    missed.append(mutation.name)
                    print(f"{mutation.name:26} not applied: {mutation.file} does not have the place once", flush=True)
                    continue
                try:
                    found, code = gate(mutation, tree, os.path.join(logs, f"{mutation.name}.log"), arguments.whole)
                finally:
                    restore(mutation, tree)
                verdict = "found" if found and code != 0 else "MISSED"
                if verdict != "found":
                    missed.append(mutation.name)
                print(f"{mutation.name:26} {mutation.subject:24} {verdict} after {time.monotonic() - begin:.0f} s"
                      + "".join(f"\n    {line}" for line in found[:4]), flush=True)
        finally:
            subprocess.run(["git", "-C", ROOT, "worktree", "remove", "--force", tree], check=False)
    print(f"{len(chosen) - len(missed)} of {len(chosen)} mutations found"
          + (f"; not: {', '.join(missed)}" if missed else ""))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
