"""Builds presets, each target once a run. One compile line for a developer, the quickstart and continuous integration, so
that all share the compiler cache: warnings are not made errors by a flag but found in the compiler's output, which the
cache repeats."""

import os
import re
import time

from context import CPUS, LOGS, ROOT, output_of, say

PROGRAMS = ("kvcachefs", "mount_helper")
WARNING = re.compile(r"^(?P<file>[^\s:]+):\d+:(\d+:)? warning: ", re.M)


def build(context, preset, *targets):
    """Configures the preset and builds what this run has not built yet. True when all targets are there."""
    built = context.__dict__.setdefault("built", {})
    todo = [t for t in targets if (preset, t) not in built]
    if todo:
        start = time.monotonic()
        log = os.path.join(LOGS, f"build-{preset}.log")
        with open(log, "w+") as out:
            good = all(context.command(argv, stdout=out) == 0 for argv in (
                ["cmake", "--preset", preset],
                ["cmake", "--build", "--preset", preset, "-j", str(CPUS), "--target", *todo]))
            out.seek(0)
            text = out.read()
        warned = warnings(text)
        if good and warned and context.ci:
            good = False
            context.note(f"{len(warned)} warnings, which fail continuous integration:")
        for line in warned[:40]:
            context.note(line)
        if not good:
            errors = [l for l in text.splitlines() if re.search(r"error|FAILED|Error", l)]
            for line in errors[:20] + text.splitlines()[-20:]:
                context.note(line)
        for target in todo:
            built[preset, target] = good
        seconds = time.monotonic() - start
        context.builds.append((preset, todo, seconds, good))
        say(f"  build {preset:12} {'done' if good else 'failed':7} {seconds:4.0f} s   {' '.join(todo)}")
    missing = [t for t in targets if not built[preset, t]]
    if missing:
        context.broke(f"the {preset} build of {' '.join(missing)} failed: {LOGS}/build-{preset}.log")
    return not missing


def warnings(text):
    """The lines with warnings. Their files are touched: what is not compiled again does not warn again."""
    found = []
    for match in WARNING.finditer(text):
        found.append(text[match.start():text.find("\n", match.start())])
        path = os.path.join(ROOT, match["file"])
        if os.path.isfile(path) and os.path.realpath(path).startswith(ROOT + os.sep):
            os.utime(path)
    return found


def cache_line(context):
    """What the compiler cache did in this run, in one line."""
    text = output_of(["env", f"CCACHE_STATSLOG={context.environment['CCACHE_STATSLOG']}", "ccache", "--show-log-stats"])
    hits = re.search(r"Hits:\s+(\d+) */ *(\d+)", text)
    if not hits:
        return "compiler cache: not used"
    return f"compiler cache: {hits[1]} of {hits[2]} compilations found ({int(hits[1]) / max(int(hits[2]), 1):.0%})"
