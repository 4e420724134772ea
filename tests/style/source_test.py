#!/usr/bin/env python3
"""The rules of the house that a program can check. Plain Python, no mount.

    tests/style/source_test.py [--bin DIR] [CHECK...]

Prints `file:line: what is wrong` for each finding; exit code 1 when there is one. With --bin (the
directory of the built kvcachefs) the man pages are compared with --help.
"""

import argparse
import concurrent.futures
import os
import pathlib
import py_compile
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLANG_FORMAT = "clang-format-14"
MAX_LINES = 800

# Which parts of the tree a part may include, from the most special folder to the most general.
LAYERS = [
    ("backend/base/", ["backend/base/"]),
    ("backend/", ["backend/"]),
    ("metadata/", ["metadata/", "backend/base/"]),
    ("fs/fuse/", ["fs/", "backend/", "metadata/"]),
    ("fs/mount.", ["fs/", "backend/", "metadata/"]),
    ("fs/", ["fs/", "backend/", "metadata/"]),
    ("tools/", ["tools/", "fs/", "backend/", "metadata/"]),
    ("bench/", ["bench/", "fs/order/"]),
    ("tests/", ["tests/", "tools/", "fs/", "backend/", "metadata/"]),
]
# Inside fs: what sees FUSE, and that nothing below sees the mount.
FUSE_USERS = ("fs/fuse/", "fs/mount.", "tools/", "tests/")
MOUNT_USERS = ("fs/mount.", "tools/", "tests/")

# One home for each library: a pattern of its headers, and where they may be included.
HOMES = [
    ("libfuse", r"<(fuse3/.*|fuse(_\w+)?\.h|cuse_lowlevel\.h)>", r"fs/fuse/"),
    ("RocksDB", r"<rocksdb/", r"metadata/rocksdb_(store|instance)\.(cc|h)$"),
    ("spdlog", r"<spdlog/", r"backend/base/log\.cc$"),
    ("CLI11", r"<CLI/", r"tools/"),
    ("ISA-L", r"<isa-l", r"backend/base/crc32c\.cc$"),
    ("toml++", r"<toml\+\+/|<toml\.hpp>", r"fs/config"),
    ("nlohmann-json", r"<nlohmann/", r"fs/(status|control)|tools/|tests/"),
    ("GoogleTest", r"<g(test|mock)/", r"tests/"),
    ("cpp-httplib", r"<httplib", r"fs/metrics_server\.cc$"),
    ("liburing", r"<liburing", r"backend/base/io_ring\.cc$"),
]

# Written in pieces, so that this file does not find itself.
FORBIDDEN = [
    "TO" + "DO", "FIX" + "ME", "X" + "XX:", "HA" + "CK:",
    "/wo" + "rk/", "/fa" + "rm/", "sha" + "red/reference", "sha" + "red/DESIGN", "../sha" + "red",
    "issues sh" + "ow", "issue " + "#", "/tmp/br" + "ief", "the br" + "ief", "deb.node" + "source",
    "artifact" + "ory", "pypi.or" + "g",
]

findings = []


def found(path, line, text):
    findings.append(f"{path}:{line}: {text}")


def project_files():
    """What git tracks or would track; without git, what is there."""
    git = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT,
                         capture_output=True, check=False)
    if git.returncode == 0:
        names = git.stdout.decode().split("\0")
    else:
        names = [str(p.relative_to(ROOT)) for p in ROOT.rglob("*")]
    # Inputs of fuzzers are any bytes.
    names = [n for n in names if n and not n.startswith(("build/", ".git/", "tests/fuzz/corpus/"))]
    return sorted(n for n in names if (ROOT / n).is_file() and not (ROOT / n).is_symlink())


FILES = project_files()
SOURCES = [n for n in FILES if n.endswith((".cc", ".h"))]
HEADERS = [n for n in SOURCES if n.endswith(".h")]


def text_of(name):
    return (ROOT / name).read_text(encoding="utf-8", errors="replace")


def check_format():
    batches = [SOURCES[i::os.cpu_count() or 1] for i in range(os.cpu_count() or 1)]

    def run(batch):
        return subprocess.run([CLANG_FORMAT, "--dry-run", "-Werror", "--ferror-limit=1", *batch],
                              cwd=ROOT, capture_output=True, text=True, check=False).stderr

    with concurrent.futures.ThreadPoolExecutor() as pool:
        for output in pool.map(run, [b for b in batches if b]):
            for match in re.finditer(r"^(\S+?):(\d+):\d+: error", output, re.M):
                found(match[1], match[2], f"not formatted: {CLANG_FORMAT} -i {match[1]}")


def includes(name):
    for number, line in enumerate(text_of(name).splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*("[^"]+"|<[^>]+>)', line)
        if match:
            yield number, match[1]


def check_layers():
    for name in SOURCES:
        allowed = next((to for prefix, to in LAYERS if name.startswith(prefix)), None)
        if allowed is None:
            found(name, 1, "a source file outside every layer")
            continue
        for number, header in includes(name):
            if not header.startswith('"'):
                continue
            header = header.strip('"')
            if not (ROOT / header).is_file():
                found(name, number, f'"{header}" is not a path from the root of the project')
            elif not header.startswith(tuple(allowed)):
                found(name, number, f'"{header}": {name.rpartition("/")[0]} may not know of it')
            elif header.startswith("fs/fuse/") and not name.startswith(FUSE_USERS):
                found(name, number, f'"{header}": only fs/fuse and the mount speak FUSE')
            elif header.startswith("fs/mount.") and not name.startswith(MOUNT_USERS):
                found(name, number, f'"{header}": nothing below the mount sees it')


def check_homes():
    for name in SOURCES:
        for number, header in includes(name):
            for library, pattern, home in HOMES:
                if re.match(pattern, header) and not re.match(home, name):
                    found(name, number, f"{library} has one home: {home}")


def check_headers():
    for name in HEADERS:
        text = re.sub(r"/\*.*?\*/", "", text_of(name), flags=re.S)
        code = [line for line in text.splitlines() if line.strip()
                and not line.lstrip().startswith("//")]
        if not code or code[0].strip() != "#pragma once":
            found(name, 1, "the first line of code of a header is #pragma once")
    for name in SOURCES:
        lines = text_of(name).splitlines()
        if name.endswith(".h") and not any(line.startswith("//") for line in lines[:4]):
            found(name, 1, "a header begins by saying what it is")
        if len(lines) > MAX_LINES:
            found(name, MAX_LINES, f"{len(lines)} lines: more than one idea")


def check_alone():
    """Every header compiles by itself."""
    prefix = subprocess.run([ROOT / "packaging/build-libfuse.sh", "--print-prefix"], check=True,
                            capture_output=True, text=True).stdout.strip()
    fuse = pathlib.Path(prefix) / "include/fuse3"
    flags = ["-std=c++20", "-fsyntax-only", "-D_FILE_OFFSET_BITS=64", f"-I{ROOT}", "-x", "c++"]
    flags += [f"-isystem{fuse}"] if fuse.is_dir() else []
    if not fuse.is_dir():
        flags += subprocess.run(["pkg-config", "--cflags", "fuse3"], capture_output=True,
                                text=True, check=False).stdout.split()

    def run(name):
        done = subprocess.run(["g++", *flags, "-include", str(ROOT / name), "/dev/null"], cwd=ROOT,
                              capture_output=True, text=True, check=False)
        return name, done

    production = [n for n in HEADERS if not n.startswith(("bench/",))]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, done in pool.map(run, production):
            if done.returncode != 0:
                first = next((l for l in done.stderr.splitlines() if "error" in l), "?")
                found(name, 1, f"does not compile by itself: {first}")


def check_words():
    for name in FILES:
        if name.endswith((".patch", ".png", ".sst", ".gz", ".bin")) or name == "LICENSE":
            continue
        data = (ROOT / name).read_bytes()
        if b"\0" in data:
            continue
        for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
            for word in FORBIDDEN:
                if word in line:
                    found(name, number, f"{word!r} does not belong here")
            if line != line.rstrip() and not name.endswith(".md"):
                found(name, number, "space at the end of the line")


def check_scripts():
    for name in FILES:
        path = ROOT / name
        if name.endswith(".py"):
            with tempfile.NamedTemporaryFile(suffix=".pyc") as scratch:
                try:
                    py_compile.compile(str(path), cfile=scratch.name, doraise=True)
                except py_compile.PyCompileError as error:
                    found(name, 1, str(error).strip().replace("\n", " "))
            continue
        with open(path, "rb") as file:
            first = file.readline(80)
        match = re.match(rb"#!\s*(?:/usr)?/bin/(?:env )?(bash|sh)\b", first)
        if not match and not name.endswith(".sh"):
            continue
        shell = match[1].decode() if match else "bash"
        done = subprocess.run([shell, "-n", str(path)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            found(name, 1, done.stderr.strip().replace("\n", " "))
        if not os.access(path, os.X_OK) and match:
            found(name, 1, "a script that is not executable")


def options_in(text):
    return set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", text))


def check_man(bin_dir):
    """kvcachefs.1 lists exactly the options that --help lists."""
    page = ROOT / "packaging/man/kvcachefs.1"
    program = bin_dir / "kvcachefs" if bin_dir else None
    if not page.is_file() or program is None or not program.is_file():
        print("man pages: not compared (no page, or no --bin DIR with kvcachefs)")
        return
    manual = re.sub(r"\\f.|\\&", "", page.read_text().replace("\\-", "-"))
    manual = "\n".join(l for l in manual.splitlines() if not l.startswith('.\\"'))

    def help_of(*command):
        done = subprocess.run([program, *command, "--help"], capture_output=True, text=True,
                              check=False, stdin=subprocess.DEVNULL, timeout=30)
        if done.returncode != 0:
            found("packaging/man/kvcachefs.1", 1, f"kvcachefs {' '.join(command)} --help failed")
        return done.stdout

    everything = options_in(help_of())
    for command in ("mount", "umount", "status", "find", "ls", "tree", "explain",
                    "set", "pin", "unpin", "evict", "flush", "fsck", "export", "pool init",
                    "pool status", "pool check", "pool gc"):
        mine = options_in(help_of(*command.split()))
        everything |= mine
        for option in sorted(mine - options_in(manual)):
            found("packaging/man/kvcachefs.1", 1, f"{option} of kvcachefs {command} is not described")
    for option in sorted(options_in(manual) - everything - {"--version"}):
        found("packaging/man/kvcachefs.1", 1, f"{option} is described, but no --help lists it")
    for manpage in sorted((ROOT / "packaging/man").iterdir()):
        done = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", str(manpage)],
                              capture_output=True, text=True, check=False,
                              env={**os.environ, "MANPAGER": "cat", "MANWIDTH": "96"})
        for line in done.stderr.splitlines():
            if "can't break line" not in line and "cannot" not in line.lower():
                found(manpage.relative_to(ROOT), 1, line)


def check_promises():
    """Every promise of the design has a test in the gate (the runner checks that it ran)."""
    sys.path.insert(0, str(ROOT / "tests"))
    import promises  # pylint: disable=import-outside-toplevel

    for name, line, text in promises.findings():
        found(name, line, text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=pathlib.Path, help="directory of the built kvcachefs")
    parser.add_argument("checks", nargs="*", help="only these checks")
    arguments = parser.parse_args()
    checks = {
        "format": check_format, "layers": check_layers, "homes": check_homes,
        "headers": check_headers, "alone": check_alone, "words": check_words,
        "scripts": check_scripts, "promises": check_promises, "man": lambda: check_man(arguments.bin),
    }
    # Minutes of compiling: by name, or with everything else that takes long.
    if not arguments.checks and os.environ.get("KVCACHEFS_FULL") != "1":
        del checks["alone"]
    for name in arguments.checks or checks:
        checks[name]()
    for line in findings:
        print(line)
    print(f"style: {len(FILES)} files, {len(SOURCES)} of C++, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
