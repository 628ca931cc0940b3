"""Tests of lml.state: parameters come back, and a part that does not fit is named."""

import numpy as np
import pytest

from lml.oasis import OASIS
from lml.state import decode_parameters, encode_parameters, expect


@pytest.mark.parametrize("init", [None, np.arange(4.0).reshape(2, 2)])
def test_parameters_of_an_estimator_come_back(init):
    arrays = {}
    forms = encode_parameters(OASIS(aggressiveness=0.25, init=init, random_state=3), arrays)
    found = decode_parameters(forms, arrays)
    assert (found["aggressiveness"], found["random_state"]) == (0.25, 3)
    np.testing.assert_equal(found["init"], init)
    assert arrays == {}  # every array has been taken


def test_a_part_that_does_not_fit_is_named_with_its_value():
    expect(True, "version", 1, "1")
    with pytest.raises(ValueError, match="version is 7, not 1"):
        expect(False, "version", 7, "1")


def test_parameters_that_are_no_table_are_refused():
    with pytest.raises(ValueError, match="parameters is 3"):
        decode_parameters(3, {})
