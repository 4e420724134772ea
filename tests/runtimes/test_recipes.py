"""packaging/recipes.md says what is true: names, versions and tests that exist.

That its settings work is shown by the tests that run with them.
"""

import os
import re

import pytest

import kvmount
import recipes
from programs import HERE, QUICKSTART


def layouts():
    """The names of all layouts, from the source that defines them."""
    with open(os.path.join(kvmount.ROOT, "fs", "layout", "runtime.cc")) as source:
        table = re.search(r"kNames = \{(.*?)\};", source.read(), re.DOTALL)[1]
    return set(re.findall(r'"(\w+)"', table)) - {"none", "native"}


def test_every_layout_has_a_recipe_and_every_recipe_a_block():
    assert len(recipes.rows()) >= 15
    assert {name for row in recipes.rows() for name in re.findall(r"`(\w+)`", row[3])} == layouts()
    titles = re.findall(r"^## (.+)$", recipes.text(), re.MULTILINE)
    anchors = {"#" + re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}
    assert {row[1] for row in recipes.rows()} <= anchors
    linked = re.findall(r"\]\((?!#|http)([^)#]+)", recipes.text())
    for path in linked:
        assert os.path.exists(os.path.join(os.path.dirname(recipes.PAGE), path)), path


def test_what_is_said_to_run_does():
    """Each block that calls itself run names a test, which takes its settings from the page."""
    blocks = re.split(r"^## ", recipes.text(), flags=re.MULTILINE)[1:]
    run = [block for block in blocks if re.search(r"^(Run:|.*\bRun:$)", block, re.MULTILINE)]
    assert sorted(name for block in run for name in
                  re.findall(r"^<!-- recipe: (\w+) -->$", block, re.MULTILINE)) == sorted(
                      recipes.names())
    for path in set(re.findall(r"`(tests/[\w/.]+)`", recipes.text())):
        assert os.path.exists(os.path.join(kvmount.ROOT, path)), path
    sources = ""
    for name in os.listdir(HERE):
        if name.startswith("test_") and name != os.path.basename(__file__):
            with open(os.path.join(HERE, name)) as source:
                sources += source.read()
    assert "recipes.Recipe(" in sources
    for name in recipes.names():
        assert f'"{name}"' in sources, f"no test uses the recipe {name}"


def test_versions_are_those_that_run():
    with open(os.path.join(HERE, "wheels.py")) as wheels, \
            open(os.path.join(QUICKSTART, "requirements.txt")) as requirements:
        pinned = re.findall(r"[\w-]+==([\w.]+)", wheels.read() + requirements.read())
    checked = " ".join(row[2] for row in recipes.rows() if "run" in row[2])
    assert len(pinned) >= 5
    for version in pinned:
        assert version in checked, f"{version} is run, the page says: {checked}"


@pytest.mark.skipif(kvmount.PLAIN, reason="asks the mount")
def test_a_directory_can_be_told_each_layout(place):
    for name in layouts():
        os.setxattr(place, "user.kvcachefs.layout", name.encode())
        assert os.getxattr(place, "user.kvcachefs.layout").decode() == name
