"""What all parts of a run share: where things lie, the seed, the clock, the log that is being written."""

import os
import random
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LOGS = os.path.join(ROOT, "build", "test-logs")
CPUS = os.cpu_count() or 1
# Tests at a time. A test that mounts mostly waits; one with a sanitizer computes.
WORKERS = min(CPUS * 2, 8)


class Context:
    """One run. `log` is the open log file of the label that runs now; each command of it writes there."""

    def __init__(self, pytest_arguments=(), full=False):
        self.started = time.monotonic()
        self.seed = int(os.environ.get("KVCACHEFS_SEED") or random.SystemRandom().randrange(1 << 30))
        self.ci = bool(os.environ.get("CI"))
        self.full = full or os.environ.get("KVCACHEFS_FULL") == "1"
        self.pytest_arguments = list(pytest_arguments)
        # Marks every process of this run, so that a daemon that a test left behind can be told from others'.
        self.mark = f"{os.getpid()}.{int(time.time())}"
        self.reports = os.path.join(LOGS, "reports.jsonl")
        # Of a label in seconds; the limits of the tests themselves are much shorter.
        self.label_limit_s = 36000 if os.environ.get("KVCACHEFS_FULL") == "1" else 1500
        self.log = None
        self.log_path = None
        self.builds = []         # (preset, targets, seconds, verdict)
        self.lines = {}          # part -> the lines of its tests
        self.measured = []       # what a benchmark of the run says of its rows
        self.broken = []         # why the part that runs now could not be run as it should
        self.environment = {
            **os.environ,
            "KVCACHEFS_SEED": str(self.seed),
            "KVCACHEFS_TEST_RUN": self.mark,
            "KVCACHEFS_REPORT": self.reports,
            "PYTHONDONTWRITEBYTECODE": "1",
            "CCACHE_STATSLOG": os.path.join(LOGS, "ccache.log"),
        }
        os.makedirs(LOGS, exist_ok=True)
        for name in (self.reports, self.environment["CCACHE_STATSLOG"]):
            if os.path.exists(name):
                os.unlink(name)

    def elapsed(self):
        return time.monotonic() - self.started

    def note(self, text):
        """A line in the log of the label."""
        self.log.write(text + "\n")
        self.log.flush()

    def broke(self, why):
        """Says why the part could not be run as it should, which is more than a test that
        fails. Returns false."""
        self.note(why)
        self.broken.append(why)
        return False

    def start(self, argv, stdout=None, **more):
        """Starts a process of the run whose output goes to the label's log, or to `stdout`."""
        environment = {**self.environment, **more.pop("environment", {})}
        self.log.flush()
        return subprocess.Popen(argv, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL,
                                stdout=stdout or self.log, stderr=subprocess.STDOUT, **more)

    def wait(self, process, limit_s=None):
        """The exit code; 124 when the label's limit has passed, after ending the process."""
        try:
            return process.wait(limit_s or self.label_limit_s)
        except subprocess.TimeoutExpired:
            self.note(f"---- over the limit of {limit_s or self.label_limit_s} s: {process.args}")
            process.terminate()  # pytest unmounts on its way out
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            return 124

    def command(self, argv, limit_s=None, **more):
        """Runs one command to its end; returns the exit code."""
        return self.wait(self.start(argv, **more), limit_s)


def say(text=""):
    """A line of the run's own output."""
    print(text, flush=True)


def output_of(argv):
    """The standard output of a short command, "" when it fails."""
    try:
        done = subprocess.run(argv, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def cache_directory():
    """The project's cache on this machine (packaging/cache-dir.sh)."""
    path = output_of([os.path.join(ROOT, "packaging", "cache-dir.sh")])
    if not path:
        sys.exit("run.sh: packaging/cache-dir.sh names no directory: set KVCACHEFS_CACHE to one that can be written")
    return path
