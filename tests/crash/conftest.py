"""Lets the crash tests import each other and the mount fixture."""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [_HERE, os.path.dirname(_HERE)]

import pytest  # noqa: E402

import kvmount  # noqa: E402


def pytest_collection_modifyitems(items):
    """On a plain directory there is no daemon to kill: only the harness is proved there."""
    if kvmount.PLAIN:
        for item in items:
            if os.path.dirname(str(item.path)) == _HERE and item.path.stem != "test_harness":
                item.add_marker(pytest.mark.skip(reason="needs the daemon"))
