"""Tests of lml.state: parameters come back, and a part that does not fit is named."""

import numpy as np
import pytest
from scipy import sparse

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


@pytest.mark.parametrize(
    ("width", "kind"), [(9, np.int32), (2**31 - 1, np.int32), (2**33, np.int64)]
)
def test_sparse_parameters_of_any_width_come_back_with_the_least_numbers(width, kind):
    places = (np.array([1.0, 2.0]), (np.array([0, 1]), np.array([5, width - 1])))
    arrays = {}
    forms = encode_parameters(OASIS(init=sparse.csr_array(places, shape=(2, width))), arrays)
    found = decode_parameters(forms, arrays)["init"]
    assert found.shape == (2, width)
    assert found.indices.dtype == found.indptr.dtype == kind
    assert (found.indices.tolist(), found.data.tolist()) == ([5, width - 1], [1.0, 2.0])


def test_a_part_that_does_not_fit_is_named_with_its_value():
    expect(True, "version", 1, "1")
    with pytest.raises(ValueError, match="version is 7, not 1"):
        expect(False, "version", 7, "1")


def test_parameters_that_are_no_table_are_refused():
    with pytest.raises(ValueError, match="parameters is 3"):
        decode_parameters(3, {})
