"""What the door of the package adds to scikit-learn and scipy."""

import numpy as np
import pandas as pd
import pytest
from scipy import linalg, sparse
from sklearn.base import BaseEstimator

from lml.utils.linalg import svd
from lml.utils.validation import check_matrix, check_new_samples, check_samples


@pytest.mark.parametrize("full", [False, True])
def test_singular_values_are_found_where_divide_and_conquer_does_not_converge(monkeypatch, full):
    A = np.random.default_rng(7).normal(size=(4, 7))
    oracle = np.sqrt(np.linalg.eigvalsh(A @ A.T)[::-1])
    plain = linalg.svd

    def no_divide_and_conquer(A, full_matrices, lapack_driver="gesdd"):
        if lapack_driver == "gesdd":
            raise linalg.LinAlgError("SVD did not converge")
        return plain(A, full_matrices, lapack_driver=lapack_driver)

    monkeypatch.setattr(linalg, "svd", no_divide_and_conquer)
    U, values, V = svd(A, full)
    np.testing.assert_allclose(values, oracle)
    np.testing.assert_allclose(U * values @ V[:4], A, atol=1e-12)
    assert V.shape == (7 if full else 4, 7)


@pytest.mark.parametrize("container", [sparse.csr_matrix, sparse.csc_array, sparse.coo_matrix])
def test_sparse_samples_become_a_csr_array(container):
    X = np.diag([1.0, 2.0, 3.0])
    learner = BaseEstimator()
    forms = [
        check_matrix(container(X)),
        check_samples(learner, container(X), [0, 1, 0])[0],
        check_new_samples(learner, container(X)),
    ]
    for form in forms:
        assert isinstance(form, sparse.csr_array)
        assert np.array_equal(form.toarray(), X)


def test_new_samples_have_the_columns_that_were_learned():
    learner = BaseEstimator()
    frame = pd.DataFrame(np.eye(3), columns=["a", "b", "c"])
    check_samples(learner, frame, [0, 1, 0])
    assert np.array_equal(check_new_samples(learner, frame), np.eye(3))
    for columns in (["b", "a", "c"], ["a", "b"]):
        with pytest.raises(ValueError, match="feature names should match"):
            check_new_samples(learner, frame[columns])
    frame.loc[1, "c"] = np.nan
    with pytest.raises(ValueError, match=r"X\[1, 2\] is nan"):
        check_new_samples(learner, frame)


def test_numbers_stored_in_several_parts_are_summed_and_the_input_is_left_as_it_was():
    parts = ([1.0, 2.0, 4.0], [1, 0, 1], [0, 3])
    X = sparse.csr_matrix(parts, shape=(1, 2))
    for form in (check_matrix(X), check_new_samples(BaseEstimator(), X)):
        assert form.has_canonical_format
        assert form.data.tolist() == [2.0, 5.0]
    assert X.data.tolist() == parts[0]
    assert X.indices.tolist() == parts[1]
