"""Which tests prove which promise of the design: found in the sources, without running them.

In Python a test carries `@pytest.mark.promise(n, ...)`, or its file `pytestmark = pytest.mark.promise(n)`; in C++ its body begins
with `PROMISE(n);` (tests/fakes/promise.h)."""

import ast
import pathlib
import re

TESTS = pathlib.Path(__file__).resolve().parent
# Of a runtime to us, in order of importance; what each says stands in the README ("What it promises").
PROMISES = {1: "never wrong bytes", 2: "a miss is legal, a hang never", 3: "what answered, stays",
            4: "writes do not fail for space", 5: "rename is the commit", 6: "local speed", 7: "it survives",
            8: "neighbours"}
# The C++ programs run whole in the gate; these suites in Python by their mark.
FOLDERS = ("mount", "crash", "runtimes", "neighbours")


class Marked:
    """A test and the promises that it proves. `test` is the beginning of the ids of its cases."""

    def __init__(self, test, file, line, promises):
        self.test, self.file, self.line, self.promises = test, file, line, promises

    def is_of(self, case):
        """Whether the runner's id of a case is one of this test."""
        if self.test.startswith("tests/"):
            return re.split(r"[\[@]", case)[0] == self.test
        # preset-independent; [Instantiation/]Suite.Name[/parameter]
        name = case.partition(":")[2].partition(":")[2]
        suite, _, test = name.partition(".")
        own_suite, _, own_test = self.test.partition(".")
        return own_suite in suite.split("/") and test.split("/")[0] == own_test

    def cases(self, lines):
        """Returns the lines of the cases that carry the mark. In Python one parameter may carry
        it alone."""
        return [line for line in lines if self.is_of(line["test"]) and
                (not self.test.startswith("tests/") or self.promises & set(line["promises"]))]


def _promises_of(node):
    """The numbers of a `pytest.mark.promise(...)`, of a list of marks, or nothing."""
    if isinstance(node, (ast.List, ast.Tuple)):
        return {n for element in node.elts for n in _promises_of(element)}
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "promise":
        return {argument.value for argument in node.args if isinstance(argument, ast.Constant)}
    return set()


def _in_python(path):
    name = path.relative_to(TESTS.parent).as_posix()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    of_file = set()
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(getattr(t, "id", "") == "pytestmark" for t in node.targets):
            of_file |= _promises_of(node.value)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            promises = of_file.union(*(_promises_of(d) for d in node.decorator_list))
            # A parameter that has the mark makes one case of the test a proof.
            for decorator in node.decorator_list:
                for inner in ast.walk(decorator):
                    promises |= _promises_of(inner)
            if promises:
                yield Marked(f"{name}::{node.name}", name, node.lineno, promises)


_TEST = re.compile(r"^(?:TYPED_)?TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\s*\)\s*\{\s*PROMISE\(([\d, ]+)\);", re.M)


def _in_cpp(path):
    name = path.relative_to(TESTS.parent).as_posix()
    text = path.read_text(encoding="utf-8")
    for match in _TEST.finditer(text):
        yield Marked(f"{match[1]}.{match[2]}", name, text.count("\n", 0, match.start()) + 1,
                     {int(n) for n in match[3].split(",")})


def marked():
    """Every marked test."""
    found = []
    for path in sorted(TESTS.rglob("test_*.py")):
        found += _in_python(path)
    for path in sorted(TESTS.rglob("*_test.cc")):
        found += _in_cpp(path)
    return found


def findings():
    """(file, line, what is wrong) of the marks as they stand in the sources."""
    tests = marked()
    for number, words in PROMISES.items():
        if not any(number in test.promises for test in tests):
            yield "tests/promises.py", 1, f"promise {number} ({words}) has no test that is marked for it"
    for test in tests:
        for number in test.promises - set(PROMISES):
            yield test.file, test.line, f"there is no promise {number}"
        folder = test.file.split("/")[1]
        if test.file.endswith(".py") and folder not in FOLDERS:
            yield test.file, test.line, f"proves a promise, but the gate does not run tests/{folder}"
    for path in sorted(TESTS.rglob("*_test.cc")):
        text = path.read_text(encoding="utf-8")
        if len(re.findall(r"\bPROMISE\(", text)) != len(_TEST.findall(text)):
            yield path.relative_to(TESTS.parent).as_posix(), 1, "PROMISE(n); is not the first statement of a test"


def unproved(lines):
    """Yields a text for each marked test that did not prove its promises in these lines, and
    for each promise that no test proved.

    A test proves a promise when a case that carries the mark has passed and no such case was
    skipped."""
    proved = set()
    for test in marked():
        cases = test.cases(lines)
        skipped = [case for case in cases if case["outcome"] == "skipped"]
        passed = [case for case in cases if case["outcome"] == "passed"]
        numbers = {n for case in passed for n in case["promises"]} & test.promises
        if skipped:
            yield (f"{test.test} proves promise {sorted(test.promises)}, and was skipped in {len(skipped)} "
                   f"of its cases: {skipped[0].get('why', '')}")
            continue
        proved |= numbers
        if numbers != test.promises:
            yield f"{test.test} proves promise {sorted(test.promises - numbers)}, and did not run to success"
    for number, words in PROMISES.items():
        if number not in proved:
            yield f"promise {number} ({words}): no test of it has passed"
