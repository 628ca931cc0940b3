"""The first dictionary: orthonormality, completion, and awkward inputs."""

import numpy as np
import pytest
from scipy import linalg, sparse

from lml import initialization
from lml.fisher import local_fisher_basis
from lml.initialization import (
    complete_dictionary,
    initial_dictionary,
    orthonormal_rows,
    residual_directions,
)


def rows_of(n, D, classes, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    scale = np.linspace(0.5, 2.0, D)
    return 1.7 * rng.standard_normal((classes, D))[y] + scale * rng.standard_normal((n, D)), y


def assert_orthonormal(L, shape):
    assert L.shape == shape
    np.testing.assert_allclose(L @ L.T, np.eye(shape[0]), atol=1e-12)


def projector(L):
    return np.linalg.pinv(L) @ L


def test_orthonormal_rows_span_the_same_space_in_order():
    rng = np.random.default_rng(0)
    L = rng.standard_normal((5, 9))
    L = np.vstack([L[:2], 3 * L[1] - L[0], np.zeros(9), L[2:], L[4] + L[0]])
    Q = orthonormal_rows(L)
    assert_orthonormal(Q, (5, 9))
    np.testing.assert_allclose(Q.T @ Q, projector(L), atol=1e-12)
    for r in (1, 2):
        np.testing.assert_allclose(orthonormal_rows(L[:r]), Q[:r], atol=1e-12)
    np.testing.assert_allclose(orthonormal_rows(Q), Q, atol=1e-14)
    independent = orthonormal_rows(L[[0, 1, 4, 5, 6]])
    np.testing.assert_allclose(Q, independent, atol=1e-12)
    assert np.all(np.sum(Q * L[[0, 1, 4, 5, 6]], axis=1) > 0)


def test_orthonormal_rows_of_hard_arrays():
    assert_orthonormal(orthonormal_rows(linalg.hilbert(9)), (9, 9))
    assert_orthonormal(orthonormal_rows(np.diag([1e-200, 1.0, 1e200])), (3, 3))
    assert_orthonormal(orthonormal_rows(np.ones((6, 4))), (1, 4))
    assert orthonormal_rows(np.zeros((3, 4))).shape == (0, 4)
    assert orthonormal_rows(np.zeros((0, 4))).shape == (0, 4)
    assert_orthonormal(orthonormal_rows(np.random.default_rng(0).random((7, 3))), (3, 3))


def test_rows_are_told_from_rounding_by_the_larger_dimension():
    rows = np.eye(3, 1000)
    for new, n_rows in ((1e-13, 2), (1e-11, 3)):  # 10 * 1000 * eps is 2.2e-12
        rows[2] = rows[0]
        rows[2, 2] = new
        assert_orthonormal(orthonormal_rows(rows), (n_rows, 1000))


def test_samples_are_thinned_where_both_dimensions_are_beyond_the_bound(monkeypatch):
    monkeypatch.setattr(initialization, "_ROWS", 5)
    L = np.eye(1, 6)
    for n, D, thinned in ((9, 6, True), (9, 5, False), (5, 6, False)):
        X, _ = rows_of(n, D, 3)
        chosen = np.sort(np.random.default_rng(0).permutation(n)[:5]) if thinned else np.arange(n)
        found = residual_directions(L[:, :D], X, 2, True, np.random.default_rng(0))
        rest = (X[chosen] - X[chosen].mean(axis=0)) * (np.arange(D) > 0)
        V = np.linalg.svd(rest)[2][:2]
        np.testing.assert_allclose(found.T @ found, V.T @ V, atol=1e-9)


def test_dependent_rows_are_found_among_rows_that_nearly_are():
    nearly = np.hstack([linalg.hilbert(8), np.zeros((8, 4))])
    rng = np.random.default_rng(0)
    for _ in range(20):
        dependent = rng.standard_normal((5, 8)) @ nearly
        Q = orthonormal_rows(np.vstack([nearly, dependent, np.eye(12)[10:]]))
        assert_orthonormal(Q, (10, 12))
        np.testing.assert_allclose(Q[8:], np.eye(12)[10:], atol=1e-12)


def test_a_row_counts_if_more_than_the_tolerance_is_left_of_it():
    assert_orthonormal(orthonormal_rows(np.eye(3), tol=1 - 1e-15), (3, 3))
    assert orthonormal_rows(np.eye(3), tol=1.0).shape == (0, 3)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ([1.0, 2.0], "two axes"),
        ([[[1.0]]], "dim 3"),
        ([[2.0, np.nan]], r"L\[0, 1\] is nan"),
    ],
)
def test_orthonormal_rows_reject(bad, said):
    with pytest.raises(ValueError, match=said):
        orthonormal_rows(bad)


@pytest.mark.parametrize(("n", "D"), [(40, 12), (9, 12), (12, 12)])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, sparse.csc_array])
@pytest.mark.parametrize("center", [False, True])
def test_completion_is_pca_of_the_residual(n, D, kind, center):
    X, _ = rows_of(n, D, 3)
    X += 5.0
    X[:, 4] = 0  # a mean of zero beside others
    X[np.abs(X) < 3] = 0
    start = orthonormal_rows(np.random.default_rng(1).standard_normal((2, D)))
    L = complete_dictionary(start, kind(X), 6, center=center)
    assert_orthonormal(L, (6, D))
    np.testing.assert_allclose(L[:2], start, atol=1e-12)
    residual = (X - center * X.mean(axis=0)) @ (np.eye(D) - projector(start))
    components = np.linalg.svd(residual)[2][:4]
    np.testing.assert_allclose(np.abs(np.sum(L[2:] * components, axis=1)), 1.0, atol=1e-8)


def test_completion_beyond_the_rank_of_the_data():
    X, _ = rows_of(5, 20, 2)
    nothing = np.zeros((0, 20))
    for center, rank in ((False, 5), (True, 4)):
        L = complete_dictionary(nothing, X, 15, random_state=0, center=center)
        assert_orthonormal(L, (15, 20))
        data = X - center * X.mean(axis=0)
        np.testing.assert_allclose(L[:rank].T @ L[:rank], projector(data), atol=1e-9)
        np.testing.assert_allclose(data @ L[rank:].T, 0, atol=1e-9)  # random: outside the data
        again = complete_dictionary(nothing, X, 15, random_state=0, center=center)
        np.testing.assert_array_equal(L, again)
        other = complete_dictionary(nothing, X, 15, random_state=1, center=center)
        np.testing.assert_allclose(other[:rank], L[:rank], atol=1e-12)
        assert np.abs(other[rank:] - L[rank:]).max() > 0.01


def test_completion_of_constant_or_single_rows():
    for X in (np.ones((4, 6)), np.ones((1, 6)), np.zeros((3, 6))):
        assert_orthonormal(complete_dictionary(np.zeros((0, 6)), X, 4, random_state=0), (4, 6))
    assert_orthonormal(complete_dictionary(np.eye(6), np.ones((2, 6)), 4), (4, 6))  # clipped to d


@pytest.mark.parametrize("shape", [(2100, 6), (6, 2100)])
def test_completion_of_many_rows_or_many_features_uses_them_all(shape):
    X = np.random.default_rng(0).standard_normal(shape) * np.linspace(1, 2, shape[1])
    L = complete_dictionary(np.zeros((0, shape[1])), X, 3, random_state=0)
    components = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][:3]
    np.testing.assert_allclose(np.abs(np.sum(L * components, axis=1)), 1.0, atol=1e-8)


def test_completion_of_many_rows_and_features_uses_a_subset():
    rng = np.random.default_rng(0)
    loadings = sparse.random_array((3, 2100), density=0.05, rng=rng, format="csr")
    noise = sparse.random_array((2100, 2100), density=1e-3, rng=rng, format="csr")
    X = sparse.csr_array(sparse.csr_array(rng.standard_normal((2100, 3))) @ (10 * loadings) + noise)
    L = complete_dictionary(np.zeros((0, 2100)), X, 3, random_state=0)
    plane = orthonormal_rows(loadings.toarray())
    assert np.linalg.svd(L @ plane.T)[1].min() > 0.99


@pytest.mark.parametrize("bad", [0, -1, 1.5, True, "3", None])
def test_bad_sizes(bad):
    X, y = rows_of(12, 3, 2)
    with pytest.raises(ValueError, match="n_components="):
        initial_dictionary(X, y, bad)
    if bad is not None:
        with pytest.raises(ValueError, match="n_basis="):
            initial_dictionary(X, y, 2, n_basis=bad)


def test_initial_dictionary_begins_with_fisher():
    X, y = rows_of(90, 30, 4)
    L = initial_dictionary(X, y, 16, random_state=0)
    assert_orthonormal(L, (16, 30))
    for n_components, quarter in ((16, 4), (17, 5), (20, 5), (2, 1)):
        L = initial_dictionary(X, y, n_components, random_state=0)
        F = local_fisher_basis(X, y, quarter, random_state=0)
        rank = np.linalg.matrix_rank(F)
        np.testing.assert_allclose(L[:rank].T @ L[:rank], projector(F), atol=1e-10)
        given = initial_dictionary(X, y, n_components, random_state=0, n_basis=quarter)
        np.testing.assert_array_equal(given, L)
    paper = initial_dictionary(X, y, 16, random_state=0, n_basis=16)
    np.testing.assert_allclose(
        paper.T @ paper, projector(local_fisher_basis(X, y, 16, random_state=0)), atol=1e-8
    )


def test_more_components_than_features_or_rank():
    X, y = rows_of(6, 50, 2)  # more features than rows
    for center, rank in ((True, 5), (False, 6)):
        L = initial_dictionary(X, y, 200, random_state=0, center=center)
        assert_orthonormal(L, (50, 50))
        outside = (X - center * X.mean(axis=0)) @ L[rank:].T  # drawn at random
        np.testing.assert_allclose(outside, 0, atol=1e-9)
    assert_orthonormal(initial_dictionary(X, y, 1, random_state=0), (1, 50))
    assert_orthonormal(initial_dictionary(X[:, :1], y, 4, random_state=0), (1, 1))


def test_isolet_shape_is_completed():
    rng = np.random.default_rng(1)
    y = np.repeat(np.arange(26), 6)
    X = rng.standard_normal((26, 617))[y] + rng.standard_normal((156, 617))
    L = initial_dictionary(X, y, 100, random_state=0, n_basis=500)
    assert_orthonormal(L, (100, 617))
    F = local_fisher_basis(X, y, 500, random_state=0)
    assert np.linalg.matrix_rank(F) == 25
    np.testing.assert_allclose(F - F @ L[:25].T @ L[:25], 0, atol=1e-10 * np.abs(F).max())


def test_csr_equals_dense_and_stays_sparse():
    X, y = rows_of(40, 90, 3)
    X[np.abs(X) < 1.0] = 0
    a = initial_dictionary(X, y, 20, random_state=0)
    b = initial_dictionary(sparse.csr_matrix(X), y, 20, random_state=0)
    np.testing.assert_allclose(a, b, atol=1e-8)
    rng = np.random.default_rng(0)
    X = sparse.random_array((60, 200_000), density=1e-4, rng=rng, format="csr")
    assert_orthonormal(initial_dictionary(X, y=np.arange(60) % 2, n_components=8), (8, 200_000))


def test_repeatable_and_independent_of_the_global_state():
    X, y = rows_of(30, 8, 3)
    kept = X.copy()
    L = initial_dictionary(X, y, 6, random_state=0)
    np.random.seed(3)  # noqa: NPY002 - the global state must not matter
    named = np.array(["c", "a", "b"])[y]
    np.testing.assert_array_equal(L, initial_dictionary(X, named, 6, random_state=0))
    np.testing.assert_array_equal(X, kept)


def test_duplicates_constant_columns_and_mixed_lengths():
    X, y = rows_of(24, 5, 3)
    X = np.c_[np.repeat(X, 3, axis=0), np.ones(72)]
    X[::2] *= 1e4
    X[1::2] *= 1e-4
    assert_orthonormal(initial_dictionary(X, np.repeat(y, 3), 6, random_state=0), (6, 6))
    assert_orthonormal(initial_dictionary(np.ones((9, 4)), np.arange(9) % 3, 3), (3, 4))


@pytest.mark.parametrize(
    ("X", "y", "said"),
    [
        (np.eye(3), ["a"] * 3, "3 samples of 1 classes"),
        (np.zeros((0, 3)), [], "0 samples of 0 classes"),
        (np.eye(3), [0, 1], r"inconsistent.*\[3, 2\]"),
        (np.array([[1.0, np.nan], [0, 1]]), [0, 1], r"X\[0, 1\] is nan"),
    ],
)
def test_bad_rows(X, y, said):
    with pytest.raises(ValueError, match=said):
        initial_dictionary(X, y, 2)


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("n", [5, 30])  # fewer samples than features, and more
def test_directions_left_are_those_of_the_residual_and_outside_the_dictionary(n, form, center):
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, 9)) * np.arange(1, 10) + 1.0
    L = np.linalg.qr(rng.normal(size=(9, 2)))[0].T
    R = (X - center * X.mean(axis=0)) @ (np.eye(9) - L.T @ L)
    expected = np.linalg.svd(R)[2][:3]
    found = residual_directions(L, form(X), 3, center, rng)
    found = found / np.linalg.norm(found, axis=1, keepdims=True)
    np.testing.assert_allclose(found @ L.T, 0.0, atol=1e-10)
    np.testing.assert_allclose(np.abs(np.sum(found * expected, axis=1)), 1.0, rtol=1e-8)
