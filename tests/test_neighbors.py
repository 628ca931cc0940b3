"""Ranking, votes and the k-NN classifier against loops, scipy and scikit-learn."""

from collections import Counter

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.neighbors import KNeighborsClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from lml import neighbors
from lml.metrics import FactoredMetric
from lml.neighbors import MetricKNeighborsClassifier, k_nearest, majority_vote
from lml.oasis import OASIS


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@parametrize_with_checks(
    [MetricKNeighborsClassifier(), MetricKNeighborsClassifier(OASIS(n_steps=50, random_state=0))]
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
    monkeypatch.setattr(neighbors, "_SCORES_AT_A_TIME", 20)
    pieces = k_nearest(FactoredMetric.identity(3), X, Z, "distance", 3)
    np.testing.assert_array_equal(whole[0], pieces[0])


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
