"""FactoredMetric and the metric learners' common methods, against dense arithmetic."""

import copy
import doctest
import pickle
import tracemalloc

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from scipy.optimize import minimize
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.neighbors import KNeighborsClassifier

import lml.metrics
from lml.metrics import (
    METRIC_LEARNER,
    FactoredMetric,
    MetricLearnerMixin,
    fitted_metric,
    pairwise_scores,
    subspace_residual,
)

D = 7


def dense(alpha, F, C):
    """M by loops over the rows of the factor."""
    F = F.toarray() if sparse.issparse(F) else np.asarray(F, dtype=float)
    C = C.toarray() if sparse.issparse(C) else np.asarray(C, dtype=float)
    C = np.diag(C) if C.ndim == 1 else C
    M = alpha * np.eye(F.shape[1])
    for a in range(len(F)):
        for b in range(len(F)):
            M = M + C[a, b] * np.outer(F[a], F[b])
    return M


def cases():
    rng = np.random.default_rng(3)
    for alpha in (-0.7, 0.0, 0.9):
        for r in (1, 3, 9):  # 9 > D
            F = rng.normal(size=(r, D)) * (rng.random((r, D)) < 0.7)
            full = rng.normal(size=(r, r))
            for core in (full, sparse.csr_matrix(full), sparse.csc_array(full), full[0]):
                for factor in (F, sparse.csr_matrix(F), sparse.coo_array(F)):
                    yield alpha, factor, core


CASES = list(cases())
RNG = np.random.default_rng(4)
X, Z = RNG.normal(size=(4, D)), RNG.normal(size=(5, D))


@pytest.mark.parametrize("case", CASES)
def test_products_are_those_of_the_dense_matrix(case):
    metric, M = FactoredMetric(*case), dense(*case)
    for A in (X, sparse.csr_matrix(X), sparse.csc_array(X)):
        for B in (Z, sparse.csr_matrix(Z)):
            np.testing.assert_allclose(metric.bilinear(A, B), X @ M @ Z.T, atol=1e-11)
            np.testing.assert_allclose(
                metric.paired(A, B[:4]), np.sum((X @ M) * Z[:4], axis=1), atol=1e-11
            )
        out = metric.apply(A)
        assert type(out) is np.ndarray
        np.testing.assert_allclose(out, X @ M, atol=1e-11)
        np.testing.assert_allclose(metric.quadratic(A), np.diag(X @ M @ X.T), atol=1e-11)
    np.testing.assert_allclose(metric.project(X, Z), X @ M @ Z.T, atol=1e-11)
    np.testing.assert_allclose(metric.T.apply(X), X @ M.T, atol=1e-11)
    np.testing.assert_allclose(metric.to_dense(), M, atol=1e-12)
    assert type(metric.to_dense()) is np.ndarray


@pytest.mark.parametrize("case", CASES)
def test_spectral_methods_are_those_of_the_dense_matrix(case):
    metric, M = FactoredMetric(*case), dense(*case)
    symmetric = (M + M.T) / 2
    sigma, V = np.linalg.eigh(symmetric)
    nearest = (V * np.maximum(sigma, 0)) @ V.T
    np.testing.assert_allclose(metric.symmetrized().to_dense(), symmetric, atol=1e-12)
    np.testing.assert_allclose(metric.condensed().to_dense(), M, atol=1e-11)
    assert metric.condensed().factor.shape[0] <= min(metric.factor.shape)
    assert np.isclose(metric.norm(), np.linalg.norm(M))
    plus = metric.psd()
    np.testing.assert_allclose(plus.to_dense(), nearest, atol=1e-10)
    L = plus.components()
    np.testing.assert_allclose(L.T @ L, nearest, atol=1e-10)
    np.testing.assert_allclose(plus.embed(X) @ plus.embed(Z).T, X @ nearest @ Z.T, atol=1e-10)
    root = plus.root().to_dense()
    np.testing.assert_allclose(root @ root, nearest, atol=1e-10)
    np.testing.assert_allclose(metric.compress().to_dense(), symmetric, atol=1e-11)
    part = symmetric - metric.alpha * np.eye(D)
    values = np.linalg.svd(part, compute_uv=False)
    for q in (0, 1, 2, 100):
        short = metric.compress(q)
        assert short.factor.shape[0] <= q
        error = np.linalg.norm(short.to_dense() - symmetric)
        np.testing.assert_allclose(error, np.linalg.norm(values[q:]), atol=1e-10)


@pytest.mark.parametrize("n_features", [2, 3, 4, 6, 11, 30])
def test_compression_tells_rounding_from_a_small_eigenvalue(n_features):
    for seed in range(200):
        rng = np.random.default_rng(seed)
        rank = int(rng.integers(1, n_features))
        Q = np.linalg.qr(rng.normal(size=(n_features, n_features)))[0]
        values = rng.choice([-1.0, 1.0], rank) * rng.uniform(1.0, 2.0, rank)
        M = (Q[:, :rank] * values) @ Q[:, :rank].T
        short = FactoredMetric.from_dense(M).compress()
        assert short.factor.shape[0] == rank
        np.testing.assert_allclose(short.to_dense(), M, atol=1e-13)
        small = FactoredMetric(0.0, Q.T[:2], [1.0, 1e-12]).compress()
        np.testing.assert_allclose(small.core, [1.0, 1e-12], rtol=1e-2)


@pytest.mark.parametrize("case", CASES[::5])
@pytest.mark.parametrize("other", CASES[::7])
def test_sums_and_inner_products(case, other):
    left, right = FactoredMetric(*case), FactoredMetric(*other)
    M, N = dense(*case), dense(*other)
    np.testing.assert_allclose((left + right).to_dense(), M + N, atol=1e-11)
    np.testing.assert_allclose((left - 2 * right / 4).to_dense(), M - N / 2, atol=1e-11)
    np.testing.assert_allclose((-left).to_dense(), -M, atol=1e-12)
    assert np.isclose(left.inner(right), np.sum(M * N), atol=1e-10)
    assert np.isclose((left - right).norm(), np.linalg.norm(M - N), atol=1e-10)


def test_sums_share_a_factor_and_drop_empty_ones():
    F = np.arange(14.0).reshape(2, D)
    for factor in (F, sparse.csr_array(F)):
        total = FactoredMetric(1.0, factor, [1.0, 2.0]) + FactoredMetric(
            0.0, factor.copy(), np.ones((2, 2))
        )
        assert total.factor.shape == (2, D)
        np.testing.assert_allclose(total.to_dense(), dense(1.0, F, [[2, 1], [1, 3]]))
    identity = FactoredMetric.identity(D)
    metric = FactoredMetric(0.0, sparse.csr_array(F), [1.0, 1.0])
    for total in (identity + metric, metric + identity):
        assert sparse.issparse(total.factor)
        assert total.factor.shape == (2, D)
        assert total.alpha == 1.0
    assert (identity + identity).to_dense().tolist() == (2 * np.eye(D)).tolist()
    mixed = FactoredMetric(0.0, F, np.ones((2, 2))) + metric  # dense factor, CSR factor
    assert sparse.issparse(mixed.factor)
    np.testing.assert_allclose(mixed.to_dense(), dense(0.0, F, [[2, 1], [1, 2]]))


def test_norm_of_a_small_difference_keeps_its_digits():
    F, C = RNG.normal(size=(3, D)), RNG.normal(size=(3, 3))
    small = 1e-10 * RNG.normal(size=(3, D))
    difference = FactoredMetric(0.5, F + small, C) - FactoredMetric(0.5, F, C)
    truth = np.linalg.norm(F.T @ C @ small + small.T @ C @ F)  # first order, exact to 1e-20
    assert np.isclose(difference.norm(), truth, rtol=1e-4, atol=0)


def test_psd_is_nearest_to_a_numerical_minimizer():
    M = RNG.normal(size=(4, 4))

    def gap(t):
        T = t.reshape(4, 4)
        E = T.T @ T - M
        return np.sum(E**2), (2 * T @ (E + E.T)).ravel()

    best = min(minimize(gap, RNG.normal(size=16), jac=True).fun for _ in range(5))
    found = np.sum((FactoredMetric.from_dense(M).psd().to_dense() - M) ** 2)
    assert np.isclose(found, best, rtol=1e-6)


def test_constructors():
    M = RNG.normal(size=(3, 3))
    np.testing.assert_allclose(FactoredMetric.from_dense(M).to_dense(), M)
    L = RNG.normal(size=(2, D))
    for rows in (L, L.tolist(), sparse.csr_matrix(L)):
        np.testing.assert_allclose(FactoredMetric.from_components(rows).to_dense(), L.T @ L)
    np.testing.assert_allclose(FactoredMetric.identity(3, 2.5).to_dense(), 2.5 * np.eye(3))
    assert FactoredMetric(0.0, L, np.ones(2)).shape == (D, D)
    assert FactoredMetric(0.0, L, np.ones(2)).nbytes == 8 + 8 * (2 * D + 2)


@pytest.mark.parametrize("scale", [2, 2.0, np.float64(2), np.float32(2), np.int64(2)])
def test_scalars_of_any_kind(scale):
    metric = FactoredMetric(0.1, np.ones((1, 3)), [1.0])
    for product in (scale * metric, metric * scale):
        assert isinstance(product, FactoredMetric)
        assert product.alpha == 0.2  # no digit is lost to a short scale
        np.testing.assert_allclose(product.to_dense(), 0.2 * np.eye(3) + 2)


def test_immutable_picklable_and_float64():
    F, C = np.ones((2, 3), dtype=np.float32), np.eye(2, dtype=int)
    metric = FactoredMetric(1, F, C)
    assert metric.factor.dtype == metric.core.dtype == np.float64
    for name in ("alpha", "factor", "core"):
        with pytest.raises(AttributeError):
            setattr(metric, name, 0)
    with pytest.raises(ValueError, match="read-only"):
        metric.factor[0, 0] = 5
    with pytest.raises(ValueError, match="read-only"):
        metric.core[0, 0] = 5
    own = np.ones((2, 3))
    FactoredMetric(1, own, C)
    own[0, 0] = 2  # the caller's array stays writable
    for twin in (pickle.loads(pickle.dumps(metric)), copy.deepcopy(metric)):
        assert np.array_equal(twin.to_dense(), metric.to_dense())
        assert not twin.factor.flags.writeable
    assert "factor (2, 3)" in repr(metric)


def test_the_results_of_operations_are_immutable_and_can_be_pickled():
    F = RNG.normal(size=(3, D))
    metric = FactoredMetric(0.5, F, RNG.normal(size=(3, 3)))
    huge = 1e200 * metric  # above what a user may hand in
    for result in (2 * metric, metric + metric, metric.T, metric.psd(), metric.condensed(), huge):
        assert not result.factor.flags.writeable
        assert not result.core.flags.writeable
        twin = pickle.loads(pickle.dumps(result))
        assert np.array_equal(twin.to_dense(), result.to_dense())
        assert not twin.core.flags.writeable
    transposed = FactoredMetric(0.5, F, sparse.csr_array(metric.core)).T
    assert transposed.core.format == "csr"
    np.testing.assert_allclose(transposed.to_dense(), metric.T.to_dense())


def test_a_metric_is_checked_where_it_is_made_and_not_again(monkeypatch):
    rows = RNG.normal(size=(3, D))
    metric = FactoredMetric(0.5, rows, RNG.normal(size=(3, 3)))

    def fail(*args, **kwargs):
        raise AssertionError("checked again")

    monkeypatch.setattr(lml.metrics, "check_matrix", fail)
    total = metric.psd() + 2 * metric.T - metric.compress(2)
    assert np.isfinite([total.norm(), total.inner(metric), total.condensed().alpha]).all()
    assert metric.psd().distance_function()(rows[0], rows[1]) > 0
    with pytest.raises(AssertionError, match="checked again"):
        metric.apply(rows)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1.0, np.ones((4, 3)), np.ones((3, 3))), r"core has shape \(3, 3\).*\(4, 3\)"),
        ((1.0, np.ones((4, 3)), np.ones(3)), r"core has shape \(3,\)"),
        ((1.0, np.ones(4), np.ones(4)), "factor has shape \\(4,\\), but two axes"),
        ((np.nan, np.ones((1, 3)), [1.0]), "alpha=nan"),
        ((0.0, [[np.inf, 0.0]], [1.0]), r"factor\[0, 0\] is inf"),
        ((0.0, [[1.0, 0.0]], [np.nan]), r"core\[0\] is nan"),
        ((0.0, [[1.0, 0.0]], [1.0], 3), "factor has 2 features, but 3 features are expected"),
    ],
)
def test_bad_parts_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        FactoredMetric(*arguments)


def test_bad_arguments_are_refused():
    metric = FactoredMetric(-1.0, np.ones((1, 3)), [1.0])
    with pytest.raises(ValueError, match="X has 4 features, but 3 features are expected"):
        metric.apply(np.ones((2, 4)))
    with pytest.raises(ValueError, match="Z has 2 features"):
        metric.bilinear(np.ones((2, 3)), sparse.csr_array((2, 2)))
    with pytest.raises(ValueError, match="two axes"):
        metric.apply(np.ones(3))
    with pytest.raises(ValueError, match="X has 2 samples, but Z has 1"):
        metric.paired(np.ones((2, 3)), np.ones((1, 3)))
    with pytest.raises(ValueError, match="NaN"):
        metric.apply([[np.nan, 0, 0]])
    with pytest.raises(ValueError, match="3 and 2 features"):
        metric + FactoredMetric.identity(2)
    with pytest.raises(TypeError):
        metric + 1
    with pytest.raises(TypeError):
        metric * "a"
    with pytest.raises(ValueError, match="scale=inf"):
        metric * np.inf
    with pytest.raises(ValueError, match="scale=nan"):
        FactoredMetric.identity(2, np.nan)
    for rank in (-1, 1.5, "2"):
        with pytest.raises(ValueError, match="rank="):
            metric.compress(rank)
    with pytest.raises(ValueError, match="smallest eigenvalue"):
        metric.root()
    with pytest.raises(ValueError, match="not symmetric"):
        FactoredMetric(5.0, np.eye(3)[:2], [[0, 1], [-1, 0]]).root()
    with pytest.raises(ValueError, match="square"):
        FactoredMetric.from_dense(np.ones((2, 3)))
    with pytest.raises(ValueError, match="5000 x 5000"):
        FactoredMetric.identity(5000).components()
    with pytest.raises(ValueError, match="metric_type='cosine'"):
        pairwise_scores(metric, X, X, "cosine")


def test_what_is_above_a_negative_identity_part_everywhere_has_a_root():
    metric = FactoredMetric(-1.0, np.eye(3), [2.0, 2.0, 5.0])
    np.testing.assert_allclose(metric.root().to_dense(), np.diag([1.0, 1.0, 2.0]))
    np.testing.assert_allclose(metric.embed(X[:, :3]), X[:, :3] * [1.0, 1.0, 2.0])
    with pytest.raises(ValueError, match="smallest eigenvalue -1"):  # of the directions beside it
        FactoredMetric(-1.0, np.eye(4)[:3], [2.0, 2.0, 5.0]).root()


def test_zero_metrics():
    zero = FactoredMetric(0.0, np.zeros((2, D)), np.zeros(2))
    assert zero.norm() == 0.0
    assert zero.psd().embed(X).shape == (4, 0)
    assert zero.compress(3).factor.shape == (0, D)
    assert FactoredMetric(-1.0, np.zeros((0, D)), np.zeros(0)).psd().norm() == 0.0
    empty = FactoredMetric(0.0, sparse.csr_array((2, D)), np.ones(2))
    assert empty.norm() == 0.0
    assert empty.condensed().factor.shape == (0, D)
    assert FactoredMetric.identity(D).apply(np.zeros((0, D))).shape == (0, D)


def test_no_square_array_at_many_features():
    wide = 20_000
    rng = np.random.default_rng(0)
    factor = sparse.random_array((100, wide), density=0.01, rng=rng, format="csr")
    rows = rng.normal(size=(10, wide))
    tracemalloc.start()
    metric = FactoredMetric(1.0, factor, rng.normal(size=(100, 100)))
    metric.project(rows)
    metric.psd().embed(rows)
    (metric + metric.compress(5)).norm()
    subspace_residual(metric, rows)
    pairwise_scores(metric, factor[:10], factor, "distance")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12 * 8 * 100 * wide < 8 * wide**2 / 10


@pytest.mark.parametrize("case", CASES[::4])
def test_pairwise_scores_against_loops(case):
    metric, M = FactoredMetric(*case), dense(*case)
    similarity = [[x @ M @ z for z in Z] for x in X]
    distance = [[-(x - z) @ M @ (x - z) for z in Z] for x in X]
    np.testing.assert_allclose(pairwise_scores(metric, X, Z, "similarity"), similarity, atol=1e-11)
    np.testing.assert_allclose(pairwise_scores(metric, X, Z, "distance"), distance, atol=1e-11)


class Learner(MetricLearnerMixin, BaseEstimator):
    def __init__(self, metric=None, metric_type="distance"):
        self.metric = metric
        self.metric_type = metric_type

    def fit(self, X, y=None):
        self.n_features_in_ = np.shape(X)[1]
        self.metric_ = self.metric
        return self


@pytest.mark.parametrize("alpha", [0.0, 0.4])
def test_mixin(alpha):
    metric = FactoredMetric(alpha, RNG.normal(size=(3, D)), RNG.normal(size=(3, 3)))
    M = metric.to_dense()
    sigma, V = np.linalg.eigh((M + M.T) / 2)
    nearest = (V * np.maximum(sigma, 0)) @ V.T
    learner = Learner(metric).fit(X)
    np.testing.assert_allclose(learner.get_mahalanobis_matrix(), nearest, atol=1e-12)
    oracle = cdist(X, Z, lambda x, z: np.sqrt(max((x - z) @ nearest @ (x - z), 0)))
    for rows in (X, sparse.csr_matrix(X), X.tolist()):
        np.testing.assert_allclose(
            cdist(learner.transform(rows), learner.transform(Z)), oracle, atol=1e-7
        )
    distance = pickle.loads(pickle.dumps(learner.get_metric()))
    np.testing.assert_allclose([[distance(x, z) for z in Z] for x in X], oracle, atol=1e-7)
    assert np.isclose(distance(X[0], Z[0], squared=True), oracle[0, 0] ** 2)
    pairs = np.stack([X, Z[:4]], axis=1)
    gaps = X - Z[:4]
    expected = np.einsum("ia,ab,ib->i", gaps, M, gaps)  # the metric as learned
    np.testing.assert_allclose(learner.pair_distance(pairs), np.diag(oracle[:, :4]), atol=1e-7)
    np.testing.assert_allclose(learner.pair_score(pairs.tolist()), -expected)
    both = (sparse.csr_matrix(X), sparse.csr_matrix(Z[:4]))
    np.testing.assert_allclose(learner.pair_score(both), -expected)
    assert learner.fit_transform(X).shape[0] == len(X)


def test_mixin_similarity_and_errors():
    metric = FactoredMetric(1.0, RNG.normal(size=(3, D)), RNG.normal(size=(3, 3)))
    learner = Learner(metric, "similarity")
    for method in ("transform", "pair_score"):
        with pytest.raises(NotFittedError):
            getattr(learner, method)(X)
    for method in ("get_metric", "get_mahalanobis_matrix"):
        with pytest.raises(NotFittedError):
            getattr(clone(learner), method)()
    learner.fit(X)
    pairs = np.stack([X, Z[:4]], axis=1)
    expected = [x @ metric.to_dense() @ z for x, z in pairs]
    np.testing.assert_allclose(learner.pair_score(pairs), expected)
    assert not hasattr(learner, "pair_distance")
    with pytest.raises(ValueError, match=r"X has 3 features.* 7 features"):
        learner.transform(X[:, :3])
    with pytest.raises(ValueError, match=r"pairs has shape \(4, 2, 3\).*\(n_pairs, 2, 7\)"):
        learner.pair_score(pairs[:, :, :3])
    with pytest.raises(ValueError, match=r"pairs has shape \(4, 7\)"):
        learner.pair_score(X)
    with pytest.raises(ValueError, match="NaN"):
        learner.transform(np.full((1, D), np.nan))


def test_get_metric_in_scikit_learn():
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(60, D)), rng.integers(3, size=60)
    learner = Learner(FactoredMetric(0.2, rng.normal(size=(2, D)), [1.0, 2.0])).fit(rows)
    by_callable = KNeighborsClassifier(3, metric=learner.get_metric()).fit(rows[:40], labels[:40])
    mapped = KNeighborsClassifier(3).fit(learner.transform(rows[:40]), labels[:40])
    assert np.array_equal(
        by_callable.predict(rows[40:]), mapped.predict(learner.transform(rows[40:]))
    )


def test_inputs_are_not_modified():
    rows = np.asfortranarray(X)[::-1]
    before = rows.copy()
    rows.flags.writeable = False
    metric = FactoredMetric(0.3, rows, np.ones(4))
    metric.psd().embed(rows)
    metric.compress(2)
    subspace_residual(metric, rows[:2])
    assert np.array_equal(rows, before)


def test_examples_in_the_docstrings():
    assert doctest.testmod(lml.metrics).failed == 0


@pytest.mark.parametrize("metric", [None, [[1.0]], "x"])
def test_a_learner_without_a_metric_is_named(metric):
    class Odd:
        metric_type = "distance"

        def fit(self, X, y):
            return self

    odd = Odd()
    odd.metric_ = metric
    with pytest.raises(TypeError, match=r"base_learner is a Odd.*use a metric learner"):
        fitted_metric(odd, "base_learner", np.eye(2), [0, 1])
    odd.metric_, odd.metric_type = np.diag([1.0, 2.0]), "angle"
    with pytest.raises(TypeError, match="metric_type is 'angle'"):
        fitted_metric(odd, "base_learner", np.eye(2), [0, 1])
    odd.metric_type = "similarity"
    found, kind = fitted_metric(odd, "base_learner", np.eye(2), [0, 1])
    assert kind == "similarity"
    np.testing.assert_array_equal(found.to_dense(), np.diag([1.0, 2.0]))


@pytest.mark.parametrize("part", ["array", "alpha", "factor", "core", "sparse factor"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_metric_that_a_learner_finds_is_finite_or_the_learner_is_named(part, value):
    parts = {"alpha": 1.0, "factor": np.eye(3), "core": np.ones(3)}
    if part == "alpha":
        parts["alpha"] = value
    elif part != "array":
        parts[part.split()[-1]].flat[0] = value
    if "sparse" in part:
        parts["factor"] = sparse.csr_array(parts["factor"])
    metric = np.diag([1.0, value]) if part == "array" else FactoredMetric._trusted(**parts)
    odd = Learner(metric, "distance")
    with pytest.raises(ValueError, match=rf"metric_ of base_learner.* is {value}"):
        fitted_metric(odd, "base_learner", np.eye(2), [0, 1])


@pytest.mark.parametrize("kind", ["similarity", "distance"])
def test_a_distance_that_a_learner_finds_is_symmetric_a_similarity_stays(kind):
    M = np.arange(9.0).reshape(3, 3)
    odd = Learner(M, kind)
    found = fitted_metric(odd, "base_learner", np.eye(3), [0, 1, 1])[0].to_dense()
    np.testing.assert_allclose(found, M if kind == "similarity" else (M + M.T) / 2)


def test_a_read_out_is_its_own_read_out_and_stays_so_in_a_copy():
    metric = FactoredMetric.from_dense(np.arange(9.0).reshape(3, 3) - 2.0).psd()
    assert metric.psd() is metric
    again = pickle.loads(pickle.dumps(metric))
    assert again.psd() is again
    np.testing.assert_array_equal(again.embed(np.eye(3)), metric.embed(np.eye(3)))
    assert (2.0 * metric).psd() is not metric


@pytest.mark.parametrize("sparse_samples", [False, True])
@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_products_are_the_same_bits_where_the_factor_is_the_identity(sparse_samples, alpha):
    rng = np.random.default_rng(0)
    M, Z = rng.normal(size=(4, 4)), rng.normal(size=(7, 4))
    plain = FactoredMetric(alpha, np.eye(4), M)
    general = FactoredMetric(alpha, np.eye(4), M)
    vars(general)["_has_identity_factor"] = False
    assert plain._has_identity_factor
    Z = sparse.csr_array(Z) if sparse_samples else Z
    for read in ("apply", "quadratic", "image", "embed"):
        found, expected = (
            getattr(metric.psd() if read == "embed" else metric, read)(Z)
            for metric in (plain, general)
        )
        np.testing.assert_array_equal(found, expected)
        assert not np.shares_memory(found, Z.data if sparse_samples else Z)
    np.testing.assert_array_equal(plain.bilinear(Z, Z[:3]), general.bilinear(Z, Z[:3]))


def test_the_metric_of_a_learner_fits_the_rows():
    learner = Learner(FactoredMetric.identity(D), "similarity")
    metric, kind = fitted_metric(learner, "estimator", X, np.zeros(len(X)))
    assert (metric.n_features, kind) == (D, "similarity")
    with pytest.raises(ValueError, match="estimator gives a metric of 7 features, but X has 2"):
        fitted_metric(learner, "estimator", X[:, :2], np.zeros(len(X)))
    for wrong in ("oasis", Learner, None):
        with pytest.raises(TypeError, match=r"estimator=.*give an instance"):
            METRIC_LEARNER.check("estimator", wrong)


def test_coordinates_do_not_depend_on_the_order_in_memory():
    rng = np.random.default_rng(3)
    for _ in range(20):
        M = rng.normal(size=(D, D))
        noisy = np.asfortranarray(M + 1e-13 * rng.normal(size=(D, D)))
        images = [FactoredMetric.from_dense(A).psd().embed(X) for A in (M, noisy)]
        np.testing.assert_allclose(*images, atol=1e-9)


def test_a_square_core_has_a_root_and_components_where_it_is_definite():
    A = RNG.normal(size=(D, 4))
    metric = FactoredMetric.from_dense(A @ A.T)
    root, L = metric.root().to_dense(), metric.components()
    np.testing.assert_allclose(root @ root, A @ A.T, atol=1e-7)
    np.testing.assert_allclose(L.T @ L, A @ A.T, atol=1e-10)
    largest = np.abs(L).max(axis=1)
    np.testing.assert_array_equal(L.max(axis=1), largest)  # of a row and its negative


@pytest.mark.parametrize("size", [1e-10, 1e10])
def test_a_sparse_factor_of_any_size(size):
    F, C = np.abs(RNG.normal(size=(3, D))), RNG.normal(size=(3, 3))
    metric = FactoredMetric(0.0, sparse.csr_array(size * F), C / size**2)
    M = F.T @ C @ F
    np.testing.assert_allclose(metric.condensed().to_dense(), M, atol=1e-11)
    assert metric.norm() == pytest.approx(np.linalg.norm(M))


def test_the_metric_of_nothing_has_no_components():
    nothing = FactoredMetric(0.0, np.eye(3)[:2], [0.0, 0.0])
    assert nothing.components().shape == (0, 3)
    assert nothing.embed(np.ones((4, 3))).shape == (4, 0)


@pytest.mark.parametrize("alpha", [0.0, 0.4])
def test_components_give_the_columns_of_transform(alpha):
    metric = FactoredMetric(alpha, RNG.normal(size=(3, D)), [1.0, -2.0, 0.5])
    learner = Learner(metric)
    assert not hasattr(learner, "components_")
    with pytest.raises(NotFittedError):
        learner.get_feature_names_out()
    learner.fit(X)
    L = learner.components_
    np.testing.assert_allclose(learner.transform(Z), Z @ L.T, atol=1e-12)
    np.testing.assert_allclose(L.T @ L, learner.get_mahalanobis_matrix(), atol=1e-12)
    assert len(L) == (D if alpha else 2)
    assert learner.get_feature_names_out().tolist() == [f"learner{i}" for i in range(len(L))]


def test_coordinates_of_a_metric_without_a_positive_identity_part_are_as_many_as_its_rank():
    metric = FactoredMetric(-0.5, np.eye(D), np.r_[1.5, 2.5, np.full(D - 2, 0.5)])
    assert np.linalg.matrix_rank(metric.to_dense()) == 2
    assert metric.embed(X).shape == (len(X), 2)
    assert metric.components().shape == (2, D)


def test_names_of_columns_need_no_square_array():
    metric = FactoredMetric(1.0, sparse.random_array((3, 6000), density=0.01, rng=0), np.ones(3))
    learner = Learner(metric)
    learner.metric_, learner.n_features_in_ = metric, 6000
    assert len(learner.get_feature_names_out()) == 6000
    with pytest.raises(ValueError, match="above max_features=4096"):
        _ = learner.components_


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
def test_pairs_of_data_frames(make):
    learner = Learner(FactoredMetric(0.5, RNG.normal(size=(3, D)), np.ones(3))).fit(X)
    frames = tuple(make({f"c{i}": column for i, column in enumerate(A.T)}) for A in (X, Z[:4]))
    expected = learner.pair_score(np.stack([X, Z[:4]], axis=1))
    np.testing.assert_allclose(learner.pair_score(frames), expected)


@pytest.mark.parametrize("bad", [np.nan, -np.inf])
def test_a_value_that_is_not_finite_is_located(bad):
    learner = Learner(FactoredMetric(0.5, RNG.normal(size=(3, D)), np.ones(3))).fit(X)
    rows = X.copy()
    rows[2, 5] = bad
    for form in (np.array, sparse.csr_array, pd.DataFrame):
        with pytest.raises(ValueError, match=rf"X\[2, 5\] is {bad}"):
            learner.transform(form(rows))
    with pytest.raises(ValueError, match=rf"pairs\[2, 1, 5\] is {bad}"):
        learner.pair_score(np.stack([X, rows], axis=1))
