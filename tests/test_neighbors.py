"""Ranking, votes and the k-NN classifier against loops, scipy and scikit-learn."""

import doctest
import tracemalloc
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator
from sklearn.datasets import make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import accuracy_score
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors, NeighborhoodComponentsAnalysis
from sklearn.utils.estimator_checks import parametrize_with_checks

from lml import neighbors
from lml.metrics import FactoredMetric
from lml.neighbors import MetricKNeighborsClassifier, k_nearest, majority_vote
from lml.oasis import OASIS
from lml.scml import SCML


@pytest.fixture
def rng():
    return np.random.default_rng(0)


WEIGHT_CHECKS = [
    "check_sample_weights_pandas_series",
    "check_sample_weights_not_an_array",
    "check_sample_weights_list",
    "check_all_zero_sample_weights_error",
    "check_sample_weights_shape",
    "check_sample_weights_not_overwritten",
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weight_equivalence_on_sparse_data",
    "check_classifiers_one_label_sample_weights",
]


def expected_failures(estimator):
    """Repeated rows would change what a learner of a metric learns: it takes no weights."""
    reason = "weights of rows are refused where the metric has yet to be learned"
    return {} if estimator.estimator is None else dict.fromkeys(WEIGHT_CHECKS, reason)


@parametrize_with_checks(
    [MetricKNeighborsClassifier(), MetricKNeighborsClassifier(OASIS(n_steps=50, random_state=0))],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def test_psd_distance_against_scipy(rng):
    X, Z, L = rng.normal(size=(9, 5)), rng.normal(size=(14, 5)), rng.normal(size=(5, 5))
    oracle = cdist(X, Z, "mahalanobis", VI=L.T @ L)
    indices, scores = k_nearest(FactoredMetric.from_components(L), X, Z, "distance", 4)
    np.testing.assert_array_equal(indices, np.argsort(oracle, axis=1)[:, :4])
    np.testing.assert_allclose(-scores, np.sort(oracle, axis=1)[:, :4] ** 2)


@pytest.mark.parametrize("kind", ["similarity", "distance"])
@pytest.mark.parametrize("as_sparse", [False, True])
def test_indefinite_and_nonsymmetric_metrics(rng, kind, as_sparse):
    X, Z, M = rng.normal(size=(6, 3)), rng.normal(size=(8, 3)), rng.normal(size=(3, 3))

    def score(x, z):
        return x @ M @ z if kind == "similarity" else -(x - z) @ M @ (x - z)

    oracle = np.array([np.argsort([-score(x, z) for z in Z])[:5] for x in X])
    make = sparse.csr_matrix if as_sparse else np.asarray
    found, _ = k_nearest(FactoredMetric.from_dense(M), make(X), make(Z), kind, 5)
    np.testing.assert_array_equal(found, oracle)


def test_blocks_do_not_change_the_answer(rng, monkeypatch):
    X, Z = rng.normal(size=(11, 3)), rng.normal(size=(7, 3))
    whole = k_nearest(FactoredMetric.identity(3), X, Z, "distance", 3)
    monkeypatch.setattr(neighbors, "_NUMBERS_AT_A_TIME", 20)
    pieces = k_nearest(FactoredMetric.identity(3), X, Z, "distance", 3)
    np.testing.assert_array_equal(whole[0], pieces[0])


def by_differences(metric, X, Z, kind, k, itself=False):
    """The oracle: every score by itself, a stable sort."""
    if kind == "similarity":
        scores = X @ metric.to_dense() @ Z.T
    else:
        gaps = X[:, None] - Z[None]
        scores = -np.einsum("ijk,kl,ijl->ij", gaps, metric.to_dense(), gaps)
    if itself:
        np.fill_diagonal(scores, -np.inf)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(scores, order, axis=1)


@pytest.mark.parametrize("n", [1, 15, 16, 17, 64, 1023, 3001])  # groups of 1 to 64 columns
@pytest.mark.parametrize("alpha", [0.0, 0.5])
@pytest.mark.parametrize("kind", ["similarity", "distance"])
def test_groups_of_references_pass_over_no_neighbour(n, alpha, kind, rng):
    Z = rng.normal(size=(n, 5))
    Z[n // 2] *= 1e5  # one long row
    metric = FactoredMetric(alpha, rng.normal(size=(3, 5)), np.array([1.0, 2.0, -0.3]))
    for k in {1, min(n, 3)}:
        found = k_nearest(metric, Z[:20] + 0.01, Z, kind, k)
        oracle = by_differences(metric, Z[:20] + 0.01, Z, kind, k)
        np.testing.assert_array_equal(found[0], oracle[0])
        np.testing.assert_allclose(found[1], oracle[1], rtol=1e-9)
        if k < n < 1000:
            others = k_nearest(metric, None, Z, kind, k)[0]
            assert np.array_equal(others, by_differences(metric, Z, Z, kind, k, True)[0])


class Tilted(FactoredMetric):
    """A metric whose score is more than its matrix."""

    def bilinear(self, X, Z):
        return super().bilinear(X, Z) - 5.0 * np.sum(np.square(Z), axis=1)


@pytest.mark.parametrize("n", [3, 40, 1000])
def test_a_metric_with_a_score_of_its_own_is_ranked_by_it(rng, n):
    parts = 0.5, rng.normal(size=(2, 4)), np.eye(2)
    metric, X, Z = Tilted(*parts), rng.normal(size=(7, 4)), rng.normal(size=(n, 4))
    scores = metric.bilinear(X, Z)
    nearest, found = k_nearest(metric, X, Z, "similarity", 3)
    np.testing.assert_array_equal(nearest, np.argsort(-scores, axis=1, kind="stable")[:, :3])
    np.testing.assert_allclose(found, np.sort(scores, axis=1)[:, ::-1][:, :3])
    plain = k_nearest(FactoredMetric(*parts), X, Z, "similarity", 3)[0]
    assert not np.array_equal(nearest, plain)


def test_many_copies_tie_in_their_order_and_take_no_memory(rng):
    Z = rng.integers(0, 2, size=(20_000, 4)).astype(float)  # 16 different rows
    metric = FactoredMetric(0.0, np.diag([1.0, 2.0, 4.0, 8.0]), np.ones(4))
    tracemalloc.start()
    found, scores = k_nearest(metric, None, Z, "distance", 3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60e6
    assert not scores.any()
    for row in range(0, 20_000, 997):
        same = np.flatnonzero((Z[row] == Z).all(axis=1))
        assert found[row].tolist() == same[same != row][:3].tolist()


def test_rows_whose_sums_of_bits_agree_are_still_told_apart(monkeypatch):
    Z = np.array([[1.0, 2.0], [2.0, 1.0], [1.0, 2.0]])
    monkeypatch.setattr(neighbors, "_all_differ", lambda rows: False)
    places, inverse = neighbors._distinct(Z)
    assert (places.tolist(), inverse.tolist()) == ([0, 1], [0, 1, 0])
    monkeypatch.undo()
    assert neighbors._all_differ(Z[:2])
    assert not neighbors._all_differ(Z)


def test_equal_scores_come_in_the_order_of_the_references():
    Z = np.array([[1.0], [0.0], [1.0], [1.0]])
    found, _ = k_nearest(FactoredMetric.identity(1), [[1.0]], Z, "distance", 4)
    assert found.tolist() == [[0, 2, 3, 1]]


def test_rows_far_from_the_origin_are_ranked_right(rng):
    Z = 1e4 + 1e-4 * rng.normal(size=(50, 3))
    found, _ = k_nearest(FactoredMetric.identity(3), Z, Z, "distance", 1)
    assert found.ravel().tolist() == list(range(50))


@pytest.mark.parametrize("kind", [str, int, object])
def test_votes_against_counting(rng, kind):
    labels = rng.integers(3, size=(200, 5)).astype(kind)
    for row, winner in zip(labels.tolist(), majority_vote(labels).tolist(), strict=True):
        counts = Counter(row)
        best = max(counts.values())
        assert winner == next(label for label in row if counts[label] == best)


@pytest.mark.parametrize("labels", [[], [[]], [1, 2]])
def test_votes_need_a_table(labels):
    with pytest.raises(ValueError, match="labels has shape"):
        majority_vote(labels)


@pytest.mark.parametrize("k", [0, -1, 1.5, "three"])
def test_bad_n_neighbors(k):
    with pytest.raises(ValueError, match="n_neighbors"):
        k_nearest(FactoredMetric.identity(2), np.eye(2), np.eye(2), "distance", k)


def test_more_neighbours_than_references_prints_both_numbers():
    with pytest.raises(ValueError, match=r"is 3, but .* n_samples = 2"):
        k_nearest(FactoredMetric.identity(2), np.eye(2), np.eye(2), "distance", 3)


def test_unknown_metric_type():
    with pytest.raises(ValueError, match="angle"):
        k_nearest(FactoredMetric.identity(2), np.eye(2), np.eye(2), "angle", 1)


def test_euclidean_classifier_is_scikit_learns(rng):
    X, y = rng.normal(size=(80, 4)), rng.integers(2, size=80)
    new = rng.normal(size=(50, 4))
    ours = MetricKNeighborsClassifier(n_neighbors=5).fit(X, y)
    theirs = KNeighborsClassifier(n_neighbors=5).fit(X, y)
    np.testing.assert_array_equal(ours.predict(new), theirs.predict(new))


def test_the_learner_is_cloned_and_labels_keep_their_type(rng):
    X, y = rng.normal(size=(30, 4)), np.array(["Cat", "cat", "dog"])[rng.integers(3, size=30)]
    learner = OASIS(n_steps=50, random_state=0)
    model = MetricKNeighborsClassifier(learner, n_neighbors=1).fit(X, y)
    assert not hasattr(learner, "metric_")
    assert set(model.predict(X)) <= {"Cat", "cat", "dog"}


def test_references_are_a_copy(rng):
    X, y = rng.normal(size=(20, 3)), np.arange(20) % 2
    model = MetricKNeighborsClassifier(n_neighbors=1).fit(X, y)
    before = model.predict(X).copy()
    X_old = X.copy()
    X[:] = 0
    np.testing.assert_array_equal(model.predict(X_old), before)


@pytest.mark.parametrize("as_sparse", [False, True])
@pytest.mark.parametrize("alpha", [-0.3, 0.0, 1.0])
def test_mixed_norms_against_exact_arithmetic(rng, as_sparse, alpha):
    scale = 10.0 ** rng.integers(-4, 5, size=(40, 1))
    Z = rng.normal(size=(40, 3)) * scale
    X = np.vstack([Z[:10], Z[10:20] * (1 + 1e-9)])  # rows almost on top of references
    metric = FactoredMetric(alpha, rng.normal(size=(2, 3)), rng.normal(size=(2, 2)))
    F, C = (np.vectorize(Fraction)(A) for A in (metric.factor, metric.core))
    gaps = np.vectorize(Fraction)(X)[:, None] - np.vectorize(Fraction)(Z)
    images = gaps @ F.T
    exact = Fraction(alpha) * (gaps**2).sum(-1) + ((images @ C) * images).sum(-1)
    oracle = [sorted(range(40), key=row.__getitem__)[:5] for row in exact.tolist()]
    make = sparse.csr_matrix if as_sparse else np.asarray
    found, scores = k_nearest(metric, make(X), make(Z), "distance", 5)
    assert found.tolist() == oracle
    truth = [[-float(row[j]) for j in near] for row, near in zip(exact, oracle, strict=True)]
    np.testing.assert_allclose(scores, truth, rtol=1e-9, atol=0)


@pytest.mark.parametrize("kind", ["similarity", "distance"])
@pytest.mark.parametrize("as_sparse", [False, True])
def test_copies_tie_exactly(rng, kind, as_sparse):
    rows = rng.normal(size=(9, 6))
    which = rng.integers(9, size=70)
    make = sparse.csr_matrix if as_sparse else np.asarray
    metric = FactoredMetric(0.7, rng.normal(size=(4, 6)), rng.normal(size=(4, 4)))
    found, scores = k_nearest(metric, rng.normal(size=(13, 6)), make(rows[which]), kind, 70)
    for near, values in zip(found, scores, strict=True):
        blocks = which[near]
        assert len(np.unique(blocks)) == np.sum(np.diff(blocks) != 0) + 1  # copies together
        same = np.diff(blocks) == 0
        assert np.all(np.diff(values)[same] == 0)
        assert np.all(np.diff(near)[same] > 0)


def test_integer_rows_tie_exactly():
    grid = np.stack(np.meshgrid(np.arange(-3.0, 4), np.arange(-3.0, 4)), -1).reshape(-1, 2)
    found, _ = k_nearest(FactoredMetric.identity(2), np.zeros((1, 2)), grid, "distance", 9)
    squares = (grid**2).sum(axis=1)
    assert found[0].tolist() == np.argsort(squares, kind="stable")[:9].tolist()


@pytest.mark.parametrize("kind", ["similarity", "distance"])
def test_leave_one_out(rng, kind):
    Z, M = rng.normal(size=(12, 3)), rng.normal(size=(3, 3))
    metric = FactoredMetric.from_dense(M)
    found, scores = k_nearest(metric, None, Z, kind, 11)
    full, full_scores = k_nearest(metric, Z, Z, kind, 12)
    for i in range(12):
        others = full[i] != i
        assert found[i].tolist() == full[i][others].tolist()
        np.testing.assert_allclose(scores[i], full_scores[i][others], atol=1e-12)
    with pytest.raises(ValueError, match=r"is 12, but .* n_samples = 12 \(the row itself"):
        k_nearest(metric, None, Z, kind, 12)


def test_search_tree_on_embedded_rows(rng):
    X, Z = rng.normal(size=(20, 5)), rng.normal(size=(60, 5))
    metric = FactoredMetric(0.2, rng.normal(size=(2, 5)), [1.0, 3.0])
    tree = NearestNeighbors(n_neighbors=4, algorithm="kd_tree").fit(metric.embed(Z))
    oracle = tree.kneighbors(metric.embed(X), return_distance=False)
    assert np.array_equal(k_nearest(metric, X, Z, "distance", 4)[0], oracle)


def test_tall_factors_are_condensed(rng):
    X, Z, F = rng.normal(size=(5, 3)), rng.normal(size=(9, 3)), rng.normal(size=(30, 3))
    C = rng.normal(size=(30, 30))
    tall, square = FactoredMetric(0.1, F, C), FactoredMetric(0.1, np.eye(3), F.T @ C @ F)
    for kind in ("similarity", "distance"):
        found = k_nearest(tall, X, Z, kind, 4)
        oracle = k_nearest(square, X, Z, kind, 4)
        assert np.array_equal(found[0], oracle[0])
        np.testing.assert_allclose(found[1], oracle[1], atol=1e-10)


def test_memory_is_bounded_and_sparse_rows_stay_sparse(rng, monkeypatch):
    monkeypatch.setattr(neighbors, "_NUMBERS_AT_A_TIME", 2**14)
    wide = 35_846
    Z = sparse.random_array((300, wide), density=0.002, rng=rng, format="csr")
    X = sparse.random_array((400, wide), density=0.002, rng=rng, format="csr")
    metric = FactoredMetric(1.0, Z[:40], rng.normal(size=(40, 40)))
    tracemalloc.start()
    for kind in ("similarity", "distance"):
        found, _ = k_nearest(metric, X, Z, kind, 3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * 300 * wide / 4  # a quarter of the dense references
    gaps = cdist(X[:5].toarray(), Z.toarray(), "sqeuclidean")
    images = metric.image(X[:5])[:, None] - metric.image(Z)
    oracle = gaps + np.einsum("ija,ab,ijb->ij", images, metric.core, images)
    assert np.array_equal(found[:5], np.argsort(oracle, axis=1)[:, :3])


def test_features_and_values_are_checked():
    metric = FactoredMetric.identity(2)
    with pytest.raises(ValueError, match="references has 3 features, but the metric is for 2"):
        k_nearest(metric, np.eye(2), np.eye(3), "distance", 1)
    with pytest.raises(ValueError, match="X has 3 features, but the metric is for 2"):
        k_nearest(metric, np.eye(3), np.eye(2), "distance", 1)
    with pytest.raises(ValueError, match="NaN"):
        k_nearest(metric, [[np.nan, 0.0]], np.eye(2), "distance", 1)


def test_inputs_are_not_modified(rng):
    X, Z = rng.normal(size=(4, 3)).astype(np.float32), np.asfortranarray(rng.normal(size=(6, 3)))
    old = X.copy(), Z.copy()
    X.flags.writeable = Z.flags.writeable = False
    k_nearest(FactoredMetric.identity(3), X, Z, "distance", 2)
    assert np.array_equal(X, old[0])
    assert np.array_equal(Z, old[1])


def test_more_neighbours_than_rows_leaves_the_classifier_unfitted(rng):
    model = MetricKNeighborsClassifier(n_neighbors=5)
    with pytest.raises(ValueError, match=r"n_neighbors is 5, but .* n_samples = 4"):
        model.fit(np.eye(4), [0, 1, 0, 1])
    with pytest.raises(NotFittedError):
        model.predict(np.eye(4))


def test_kneighbors_of_the_references(rng):
    X, y = rng.normal(size=(20, 3)), np.arange(20) % 2
    model = MetricKNeighborsClassifier(n_neighbors=2).fit(X, y)
    theirs = NearestNeighbors(n_neighbors=2).fit(X).kneighbors(return_distance=False)
    assert np.array_equal(model.kneighbors()[0], theirs)
    assert model.kneighbors(X, 4)[0].shape == (20, 4)


ODD_LABELS = {
    "objects": [3, 7],
    "bytes": [b"cat", b"dog"],
    "halves": [0.5, 1.5],
    "one and its name": [1, "1"],
    "tuples": [("a", 1), ("b", 2)],
    "tuples of two lengths": [("a",), ("b", 2)],
}


@pytest.mark.parametrize("kind", ODD_LABELS)
@pytest.mark.parametrize("as_list", [False, True])
def test_the_score_counts_equal_labels(rng, kind, as_list):
    codes = np.arange(30) % 2
    X = rng.normal(size=(30, 4)) + codes[:, None]
    y = np.fromiter([ODD_LABELS[kind][code] for code in codes], dtype=object)
    y = y.tolist() if as_list else y
    plain = MetricKNeighborsClassifier().fit(X, codes)
    model, weights = MetricKNeighborsClassifier().fit(X, y), rng.uniform(size=30)
    Z = rng.normal(size=(30, 4)) + codes[:, None]
    predicted = plain.predict(Z)
    assert 0 < np.mean(predicted == codes) < 1
    for w in (None, weights):
        oracle = accuracy_score(codes, predicted, sample_weight=w)
        assert model.score(Z, y, w) == pytest.approx(oracle)
        assert plain.score(Z, codes, w) == pytest.approx(oracle)
    with pytest.raises(ValueError, match=r"\[30, 29\]"):
        model.score(Z, y[1:])


@pytest.mark.parametrize("labels", [["b", "a"], [7, 3], [1.5, 0.5], [True, False], [2**63 + 1, -1]])
def test_classes_of_a_list_are_its_sorted_labels(rng, labels):
    y = [labels[code] for code in np.arange(24) % 2]
    classes = MetricKNeighborsClassifier().fit(rng.normal(size=(24, 4)), y).classes_
    assert classes.tolist() == sorted(labels)
    assert classes.dtype == (object if -1 in labels else np.array(labels).dtype)
    short = MetricKNeighborsClassifier().fit(np.eye(4), np.array([2, 2, 1, 1], dtype=np.int8))
    np.testing.assert_array_equal(short.classes_, np.array([1, 2], dtype=np.int8), strict=True)


@pytest.mark.parametrize("missing", [None, np.nan, np.inf, np.float32("nan")])
@pytest.mark.parametrize("form", [list, np.array, "object"])
@pytest.mark.parametrize("estimator", [None, OASIS(n_steps=50), SCML(n_steps=50)])
def test_a_missing_label_is_named_by_its_row(rng, estimator, form, missing):
    y = [0, 1, 0, 1, 0, missing, 1, 0]
    y = np.array(y, dtype=object) if form == "object" else form(y)
    with pytest.raises(ValueError, match=r"y\[5\] is"):
        MetricKNeighborsClassifier(estimator).fit(rng.normal(size=(8, 3)), y)


def test_a_continuous_target_is_refused_with_or_without_ties(rng):
    y = rng.normal(size=24)
    y[1] = y[0]
    for form in (y, y.tolist(), y.astype(object), y.astype(np.float32)):
        with pytest.raises(ValueError, match=r"continuous\. y holds 23 .* 24 rows"):
            MetricKNeighborsClassifier().fit(np.eye(24), form)
    for labels in (np.arange(12) % 10 / 4, np.arange(22) % 11 / 4, np.arange(24.0)):
        MetricKNeighborsClassifier().fit(np.eye(len(labels)), labels)


def test_a_label_that_is_not_hashable_is_named():
    with pytest.raises(TypeError, match=r"y\[2\] is \{'a': 1\}, which is not hashable"):
        MetricKNeighborsClassifier().fit(np.eye(4), [0, 1, {"a": 1}, 0])


class Fixed(BaseEstimator):
    """A learner with a given metric."""

    metric_type = "distance"

    def __init__(self, metric=None):
        self.metric = metric

    def fit(self, X, y):
        self.metric_ = self.metric
        return self


@pytest.mark.parametrize("wrong", ["oasis", OASIS, 3, Fixed(FactoredMetric.identity(3))])
def test_an_estimator_that_is_no_learner_of_these_rows_is_named(wrong):
    model = MetricKNeighborsClassifier().fit(np.eye(4), [0, 1, 0, 1])
    before = state(model)
    with pytest.raises((TypeError, ValueError), match=r"^estimator (is|gives)"):
        model.set_params(estimator=wrong).fit(np.eye(5), ["a", "b", "a", "b", "a"])
    assert state(model) == before


def test_feature_names_stay_when_a_fit_fails(monkeypatch):
    def names(X):
        return np.array([f"f{j}" for j in range(np.shape(X)[1])], dtype=object)

    monkeypatch.setattr("sklearn.utils.validation._get_feature_names", names)
    model = MetricKNeighborsClassifier(OASIS(n_steps=5)).fit(np.eye(4), [0, 1, 0, 1])
    before = state(model)
    assert model.feature_names_in_.tolist() == ["f0", "f1", "f2", "f3"]
    with pytest.raises(ValueError, match="one class only"):
        model.fit(np.eye(5), np.zeros(5))
    assert state(model).keys() == before.keys()
    assert all(state(model)[name] is before[name] for name in before)


@pytest.mark.parametrize("container", [sparse.csr_matrix, sparse.csr_array])
def test_rows_with_64_bit_indices(rng, container):
    X, y = np.maximum(rng.normal(size=(20, 4)), 0), np.arange(20) % 2
    short, long = container(X), container(X)
    long.indices, long.indptr = long.indices.astype(np.int64), long.indptr.astype(np.int64)
    learner = SCML(n_basis=4, n_steps=50, random_state=0)
    found, oracle = (MetricKNeighborsClassifier(learner).fit(Z, y) for Z in (long, short))
    np.testing.assert_array_equal(found.predict(long), oracle.predict(short))
    assert long.indices.dtype == long.indptr.dtype == np.int64


def test_examples_in_the_docstrings():
    assert doctest.testmod(neighbors).failed == 0


def state(model):
    return {k: v for k, v in vars(model).items() if k not in ("n_neighbors", "estimator")}


@pytest.mark.parametrize("estimator", [None, OASIS(n_steps=50, random_state=0)])
def test_a_fit_that_fails_leaves_the_classifier_as_it_was(estimator):
    X, y = make_blobs(30, n_features=4, random_state=0)
    model = MetricKNeighborsClassifier(estimator, n_neighbors=3).fit(X, y)
    before, answers = state(model), model.predict(X)
    wide = np.c_[X, X]
    for bad in (
        lambda: model.set_params(n_neighbors=99).fit(wide, y),
        lambda: model.set_params(n_neighbors="3").fit(wide, y),
        lambda: model.set_params(n_neighbors=3).fit(wide, y + 0.5 + np.arange(30) / 64),
        lambda: model.set_params(n_neighbors=3).fit(wide, [None, *y[1:]]),
        lambda: model.set_params(estimator=NeighborhoodComponentsAnalysis()).fit(wide, y),
    ):
        with pytest.raises((ValueError, TypeError)):
            bad()
        assert state(model).keys() == before.keys()
        assert all(state(model)[name] is before[name] for name in before)
    np.testing.assert_array_equal(model.set_params(n_neighbors=3).predict(X), answers)


def test_an_estimator_that_learns_no_metric_is_named():
    X, y = make_blobs(30, n_features=4, random_state=0)
    with pytest.raises(TypeError, match="estimator is a NeighborhoodComponentsAnalysis"):
        MetricKNeighborsClassifier(NeighborhoodComponentsAnalysis(max_iter=2)).fit(X, y)


NAMES = {
    "strings": ["b", "a", "c"],
    "bytes": [b"b", b"a", b"c"],
    "halves": [0.5, 1.5, -2.5],
    "bools and a number": [True, False, 7],
    "several types": [1, "a", b"c"],
    "numbers as objects": [3, 1, 2],
}


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("estimator", [None, OASIS(n_steps=50, random_state=0)])
def test_labels_are_names(kind, estimator):
    X, y = make_blobs(30, n_features=4, random_state=0)
    plain = MetricKNeighborsClassifier(estimator, n_neighbors=1).fit(X, y).predict(X + 0.3)
    names = np.empty(3, dtype=object)
    names[:] = NAMES[kind]
    forms = [names[y], names[y].tolist()]
    if kind in ("strings", "bytes", "halves"):
        forms.append(np.array(NAMES[kind])[y])
    for labels in forms:
        model = MetricKNeighborsClassifier(estimator, n_neighbors=1).fit(X, labels)
        assert model.predict(X + 0.3).tolist() == names[plain].tolist()
        assert set(model.classes_.tolist()) == set(NAMES[kind])


def test_sparse_rows_with_long_indices():
    X, y = make_blobs(30, n_features=4, random_state=0)
    long = sparse.csr_array(X)
    long.indices, long.indptr = long.indices.astype(np.int64), long.indptr.astype(np.int64)
    plain = MetricKNeighborsClassifier(OASIS(n_steps=50, random_state=0)).fit(X, y)
    model = MetricKNeighborsClassifier(OASIS(n_steps=50, random_state=0)).fit(long, y)
    np.testing.assert_array_equal(model.predict(long), plain.predict(X))


def repeated_vote(rows, y, weights, queries, k):
    again = np.repeat(np.arange(len(y)), weights)
    return MetricKNeighborsClassifier(n_neighbors=k).fit(rows[again], y[again]).predict(queries)


@pytest.mark.parametrize("k", [1, 2, 5, 11])
@pytest.mark.parametrize("form", [np.array, sparse.csr_array])
def test_whole_weights_are_repetitions(rng, k, form):
    rows, y, queries = rng.normal(size=(30, 4)), rng.integers(4, size=30), rng.normal(size=(200, 4))
    weights = rng.integers(0, 5, size=30)
    model = MetricKNeighborsClassifier(n_neighbors=k).fit(form(rows), y, sample_weight=weights)
    expected = repeated_vote(rows, y, weights, queries, k)
    np.testing.assert_array_equal(model.predict(form(queries)), expected)
    assert model.references_.shape[0] == np.count_nonzero(weights)
    assert np.any(
        expected != MetricKNeighborsClassifier(n_neighbors=k).fit(rows, y).predict(queries)
    )


def test_weights_that_are_not_whole_scale_with_the_votes(rng):
    rows, y, queries = rng.normal(size=(30, 4)), rng.integers(3, size=30), rng.normal(size=(99, 4))
    weights = rng.integers(1, 4, size=30)
    model = MetricKNeighborsClassifier(n_neighbors=2).fit(rows, y, sample_weight=weights / 4)
    np.testing.assert_array_equal(
        model.predict(queries), repeated_vote(rows, y, weights, queries, 8)
    )
    model.set_params(n_neighbors=5)  # read when it is asked, with weights as without
    expected = repeated_vote(rows, y, weights, queries, 20)
    np.testing.assert_array_equal(model.predict(queries), expected)
    for votes in range(1, 15):  # as many as may be needed, and not one more
        m = neighbors._n_voters(weights / 4, votes)
        assert np.sort(weights)[:m].sum() >= 4 * votes > np.sort(weights)[: m - 1].sum()


def test_weights_count_votes_of_a_metric_that_has_been_learned(rng):
    rows, y, queries = rng.normal(size=(40, 4)), rng.integers(2, size=40), rng.normal(size=(99, 4))
    weights = rng.integers(0, 4, size=40)
    learner = SCML(n_basis=8, n_steps=200, random_state=0).fit(rows, y)
    model = MetricKNeighborsClassifier(FrozenEstimator(learner), n_neighbors=5)
    found = model.fit(rows, y, sample_weight=weights).predict(queries)
    images = learner.transform(rows), learner.transform(queries)
    np.testing.assert_array_equal(found, repeated_vote(images[0], y, weights, images[1], 5))
    assert model.estimator_.estimator is learner


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        (np.ones((6, 1)), r"sample_weight has shape \(6, 1\): give \(6,\)"),
        (np.ones(5), r"sample_weight has shape \(5,\)"),
        ([1, 1, -0.5, 1, 1, 1], r"sample_weight\[2\] is -0.5"),
        (np.zeros(6), "all weights are zero"),
        ([1, 1, np.nan, 1, 1, 1], "sample_weight contains NaN"),
        (np.full(6, 0.4), "sample_weight sums to 2.4, but n_neighbors is 3"),
    ],
)
def test_weights_that_cannot_be_used(rng, weights, said):
    model = MetricKNeighborsClassifier().fit(rng.normal(size=(6, 2)), [0, 1] * 3)
    kept = vars(model).copy()
    with pytest.raises(ValueError, match=said):
        model.fit(rng.normal(size=(6, 2)), [0, 1] * 3, sample_weight=weights)
    assert vars(model) == kept


def test_weights_are_refused_where_the_metric_would_change(rng):
    model = MetricKNeighborsClassifier(SCML(n_basis=8, n_steps=200))
    with pytest.raises(ValueError, match=r"metric that SCML learns: repeat the rows, or fit"):
        model.fit(rng.normal(size=(6, 2)), [0, 1] * 3, sample_weight=np.ones(6))
