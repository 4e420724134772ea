"""Reads packaging/recipes.md: the tests run runtimes with the very settings that the page gives.

A block of settings follows a line <!-- recipe: NAME -->.
"""

import os
import re
import shlex

import kvmount

PAGE = os.path.join(kvmount.ROOT, "packaging", "recipes.md")
MOUNT_POINT = "/mnt/kvcachefs"  # of the page's examples


def text():
    with open(PAGE, encoding="utf-8") as page:
        return page.read()


def names():
    return re.findall(r"^<!-- recipe: (\w+) -->$", text(), re.MULTILINE)


def rows():
    """The table at the page's head: (runtime, anchor, checked, known to the mount as, its files are)."""
    return re.findall(r"^\| \[(.+?)\]\((#.+?)\) \| (.+?) \| (.+?) \| (.+?) \|$", text(),
                      re.MULTILINE)


def policy(layout):
    """What the page says that files of blocks with this layout are."""
    (found,) = {re.search(r"`(\w+)`", row[4])[1] for row in rows() if f"`{layout}`" in row[3]}
    return found


class Recipe:
    """The settings of one block of the page, for a mount at `root`.

    environment  {variable: value} of VARIABLE=VALUE, with `export` or before a command
    options      {"--option": value} of every command in the block; True for one without a value
    """

    def __init__(self, name, root):
        found = re.search(rf"^<!-- recipe: {name} -->\n```\w*\n(.*?)^```$", text(),
                          re.MULTILINE | re.DOTALL)
        assert found, f"{PAGE} has no recipe {name}"
        self.text = found[1].replace(MOUNT_POINT, root)
        self.environment, self.options = {}, {}
        words = shlex.split(self.text.replace("\\\n", " "), comments=True)
        for word, following in zip(words, words[1:] + ["--"]):
            if re.match(r"[A-Z][A-Z0-9_]*=", word):
                variable, _, value = word.partition("=")
                self.environment[variable] = value
            elif word.startswith("--"):
                option, equals, value = word.partition("=")
                if not equals:
                    value = True if following.startswith("--") else following
                self.options[option] = value
