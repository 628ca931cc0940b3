"""Every check of `checks` and `checks_of_inputs`, asked of every learner that it reaches."""

from __future__ import annotations

import checks_of_inputs
import pytest
from checks import CHECKS, all_checks
from registry import ENTRIES, FIRST_OF_FAMILY


@pytest.mark.filterwarnings("ignore:.*has the mean hinge")  # the paper's learner, on noise
@pytest.mark.parametrize(("entry", "check"), list(all_checks()))
def test_learner(entry, check):
    check()


def test_every_check_reaches_a_learner_and_every_family_has_a_first():
    assert {check.function.__module__ for check in CHECKS} == {"checks", checks_of_inputs.__name__}
    assert all(any(map(check.reaches, ENTRIES)) for check in CHECKS)
    assert {entry.family for entry in FIRST_OF_FAMILY} == {entry.family for entry in ENTRIES}
    assert len({entry.name for entry in ENTRIES}) == len(ENTRIES)
