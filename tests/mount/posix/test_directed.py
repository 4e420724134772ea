"""Every directed case on the mount and on ext4: same results, same errnos, root and nobody."""

import pytest

import cases_attributes  # noqa: F401  (the imports fill oracle.CASES)
import cases_data  # noqa: F401
import cases_locks  # noqa: F401
import cases_names  # noqa: F401
from oracle import CASES, differences, tapes

RUNS = [(case, user) for case in CASES for user in case.users]


@pytest.mark.short
@pytest.mark.parametrize("case,user", RUNS, ids=lambda v: v if isinstance(v, str) else v.name)
def test_same_as_ext4(shared_mount, case, user):
    ours, oracle = tapes(shared_mount.mnt, shared_mount.control, case, user)
    broken = [line for line in oracle if "broke off" in line]
    assert not broken, f"the case is wrong: {broken}"
    assert len(oracle) > 3, "the case proved nothing"
    found = differences(ours, oracle, case.name)
    assert not found, f"{len(found)} of {len(oracle)} calls differ\n" + "\n".join(found[:40])
