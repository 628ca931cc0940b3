"""The k-NN classifier: labels and learners, against scikit-learn."""

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_blobs
from sklearn.ensemble import VotingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, roc_auc_score
from sklearn.model_selection import cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors, NeighborhoodComponentsAnalysis

from lml.metrics import FactoredMetric
from lml.neighbors import MetricKNeighborsClassifier
from lml.oasis import OASIS
from lml.scml import SCML


@pytest.fixture
def rng():
    return np.random.default_rng(0)


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


def test_a_mean_far_away_is_told_where_inner_products_are_learned(rng):
    X, y = rng.normal(size=(30, 4)) + 50, rng.integers(2, size=30)
    learners = OASIS(n_steps=20, random_state=0), SCML(n_basis=5, n_steps=50, random_state=0)
    for learner, n_times in zip(learners, (1, 0)):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            MetricKNeighborsClassifier(learner).fit(X, y)
        places = [one.filename for one in found if "mean of the samples" in str(one.message)]
        assert places == [__file__] * n_times


def test_shares_of_votes_are_probabilities_whose_largest_is_the_prediction(rng):
    X, y = rng.normal(size=(90, 3)), np.array(["a", "b", "c"])[rng.integers(3, size=90)]
    Z = rng.normal(size=(200, 3))
    model = MetricKNeighborsClassifier(n_neighbors=3).fit(X, y)
    shares = model.predict_proba(Z)
    labels = y[model.kneighbors(Z)[0]]
    by_hand = np.array([[np.mean(row == c) for c in "abc"] for row in labels])
    np.testing.assert_allclose(shares, by_hand, atol=1e-15)
    assert (np.sort(by_hand)[:, 1] == np.sort(by_hand)[:, 2]).any()  # ties
    assert np.array_equal(model.classes_[shares.argmax(axis=1)], model.predict(Z))
    assert shares.max() <= 1.0


def test_voting_calibration_one_against_the_rest_and_roc_take_the_shares():
    X, y = make_blobs(150, 3, centers=3, cluster_std=2.0, random_state=0)
    learner = MetricKNeighborsClassifier(SCML(n_basis=8, n_steps=200, random_state=0), 7)
    alone = learner.fit(X[::2], y[::2]).score(X[1::2], y[1::2])
    for model in (
        VotingClassifier([("a", learner), ("b", LogisticRegression())], voting="soft"),
        CalibratedClassifierCV(learner, cv=3),
        OneVsRestClassifier(learner),
    ):
        model.fit(X[::2], y[::2])
        assert model.score(X[1::2], y[1::2]) > alone - 0.1
        np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    shares = learner.predict_proba(X[1::2])
    area = roc_auc_score(y[1::2], shares, multi_class="ovr")
    assert cross_val_score(learner, X, y, scoring="roc_auc_ovr").mean() > 0.7
    assert area > 0.7


def test_references_are_a_copy(rng):
    X, y = rng.normal(size=(20, 3)), np.arange(20) % 2
    model = MetricKNeighborsClassifier(n_neighbors=1).fit(X, y)
    before = model.predict(X).copy()
    X_old = X.copy()
    X[:] = 0
    np.testing.assert_array_equal(model.predict(X_old), before)


def test_more_neighbors_than_rows_leaves_the_classifier_unfitted(rng):
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
        with pytest.raises(ValueError, match=r"continuous\. y holds 23 .* 24 samples"):
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
    with pytest.raises((TypeError, ValueError), match=r"^estimator(=| is| gives)"):
        model.set_params(estimator=wrong).fit(np.eye(5), ["a", "b", "a", "b", "a"])
    assert state(model) == before


def test_feature_names_stay_when_a_fit_fails(monkeypatch):
    def names(X):
        return np.array([f"f{j}" for j in range(np.shape(X)[1])], dtype=object)

    monkeypatch.setattr("sklearn.utils.validation._get_feature_names", names)
    model = MetricKNeighborsClassifier(OASIS(n_steps=5)).fit(np.eye(4), [0, 1, 0, 1])
    before = state(model)
    assert model.feature_names_in_.tolist() == ["f0", "f1", "f2", "f3"]
    with pytest.raises(ValueError, match="of 1 classes"):
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


def test_a_frozen_learner_is_not_taught_again(rng):
    rows, y, queries = rng.normal(size=(40, 4)), rng.integers(2, size=40), rng.normal(size=(99, 4))
    learner = SCML(n_basis=8, n_steps=200, random_state=0).fit(rows, y)
    model = MetricKNeighborsClassifier(FrozenEstimator(learner), n_neighbors=5).fit(rows, y)
    oracle = MetricKNeighborsClassifier(n_neighbors=5).fit(learner.transform(rows), y)
    np.testing.assert_array_equal(
        model.predict(queries), oracle.predict(learner.transform(queries))
    )
    assert model.estimator_.estimator is learner
