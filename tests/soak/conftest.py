"""Lets the soak test import its own modules, the stores of the budget's tests and their damage."""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_TESTS = os.path.dirname(_HERE)
sys.path[:0] = [_HERE, _TESTS, os.path.join(_TESTS, "mount", "budget"),
                os.path.join(_TESTS, "mount", "verify")]
