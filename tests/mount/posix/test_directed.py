"""Every directed case on the mount and on ext4: same results, same errnos, root and nobody."""

import pytest

import cases_attributes  # noqa: F401  (the imports fill oracle.CASES)
import cases_data  # noqa: F401
import cases_locks  # noqa: F401
import cases_names  # noqa: F401
from oracle import CASES, differences, tapes

RUNS = [(case, user) for case in CASES for user in case.users]
OF_DATA = [run for run in RUNS if run[0].function.__module__ == "cases_data"]
OF_OTHERS = [run for run in RUNS if run not in OF_DATA]


def compare(mount, case, user):
    ours, oracle = tapes(mount.mnt, mount.control, case, user)
    broken = [line for line in oracle if "broke off" in line]
    assert not broken, f"the case is wrong: {broken}"
    assert len(oracle) > 3, "the case proved nothing"
    found = differences(ours, oracle, case.name)
    assert not found, f"{len(found)} of {len(oracle)} calls differ\n" + "\n".join(found[:40])


@pytest.mark.promise(1)
@pytest.mark.both_paths
@pytest.mark.short
@pytest.mark.parametrize("case,user", OF_DATA, ids=lambda v: v if isinstance(v, str) else v.name)
def test_data_same_as_ext4(shared_mount, case, user):
    compare(shared_mount, case, user)


# Names, attributes and locks do not depend on how bytes are served.
@pytest.mark.promise(5)
@pytest.mark.by_seed
@pytest.mark.short
@pytest.mark.parametrize("case,user", OF_OTHERS, ids=lambda v: v if isinstance(v, str) else v.name)
def test_same_as_ext4(shared_mount, case, user):
    compare(shared_mount, case, user)
