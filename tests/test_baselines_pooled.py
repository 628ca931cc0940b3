"""Pooling of tasks against loops, and what all joint learners read with."""

import copy
import pickle
import sys

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import DataConversionWarning, NotFittedError

from lml.baselines import MultiTaskLMNN, MultiTaskOASIS, MultiTaskSCML
from lml.baselines.pooled import (
    JointMetricsMixin,
    PooledMetricLearner,
    encode_tasks,
    split_tasks,
)
from lml.evaluation import LifelongKNeighborsClassifier
from lml.metrics import FactoredMetric
from lml.oasis import OASIS
from lml.scml import SCML

SMALL = SCML(n_basis=12, n_steps=300, random_state=0)


def table(n=48, D=5, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    y, tasks = np.arange(n) % classes, rng.integers(3, size=n)
    X = rng.standard_normal((classes, D))[y] + rng.standard_normal((n, D))
    return X, y, [["x", 7, ("a", 1)][t] for t in tasks]


class Given(JointMetricsMixin):
    def __init__(self, metrics, metric_type):
        self.metrics_, self.metric_type = metrics, metric_type


def test_split_by_a_loop():
    X, y, tasks = table()
    parts = split_tasks(X, y, tasks)
    assert [name for name, _, _ in parts] == list(dict.fromkeys(tasks))
    for name, X_t, y_t in parts:
        rows = [i for i in range(len(y)) if tasks[i] == name]
        np.testing.assert_array_equal(X_t, X[rows])
        np.testing.assert_array_equal(y_t, y[rows])


@pytest.mark.parametrize("form", [np.array, list, tuple, iter])
def test_split_takes_any_sequence_of_names(form):
    X, y, tasks = table()
    numbers = [str(task) for task in tasks]
    parts = split_tasks(X.tolist(), y.tolist(), form(numbers))
    assert [name for name, _, _ in parts] == list(dict.fromkeys(numbers))
    assert sum(len(y_t) for _, _, y_t in parts) == len(y)


def test_split_keeps_sparse_rows_and_labels_of_mixed_types():
    X, _, tasks = table(6)
    labels = [1, "1", 1, "1", (0,), (0,)]
    for _, X_t, y_t in split_tasks(sparse.csr_matrix(X), labels, ["a"] * 6):
        assert sparse.issparse(X_t)
        assert list(y_t) == labels
    with pytest.warns(DataConversionWarning):
        split_tasks(X, np.ones((6, 1), dtype=int), tasks)


@pytest.mark.parametrize(
    ("X", "y", "tasks", "said"),
    [
        (np.ones((3, 2)), [0, 1], ["a"] * 3, r"numbers of samples: \[3, 2, 3\]"),
        (np.ones((3, 2)), [0, 1, 0], ["a"] * 4, r"numbers of samples: \[3, 3, 4\]"),
        (np.zeros((0, 2)), [], [], "X has 0 samples"),
        ([[0.0], [np.nan]], [0, 1], ["a", "a"], r"X\[1, 0\] is nan"),
        ([[0.0], [1.0]], [0, None], ["a", "a"], r"y\[1\] is None"),
        ([[0.0], [1.0]], [0, 1], ["a", None], r"tasks\[1\]=None is missing"),
        ([[0.0], [1.0]], [0, 1], np.array([1.0, np.nan]), r"tasks\[1\]=nan is missing or"),
        ([[0.0], [1.0]], [0, 1], [["a"], ["b"]], r"tasks\[0\]=\['a'\] is not hashable"),
        ([0.0, 1.0], [0, 1], ["a", "a"], "X has shape .*two axes"),
    ],
)
def test_split_refuses(X, y, tasks, said):
    with pytest.raises((ValueError, TypeError), match=said):
        split_tasks(X, y, tasks)
    learner = PooledMetricLearner(SMALL)
    with pytest.raises((ValueError, TypeError), match=said):
        learner.fit(X, y, tasks=tasks)
    assert vars(learner).keys() == {"estimator", "shared_labels"}


def test_reading_of_a_similarity_and_of_a_distance():
    rng = np.random.default_rng(0)
    M, pairs = rng.standard_normal((4, 4)), rng.standard_normal((6, 2, 4))
    x, z = pairs[:, 0], pairs[:, 1]
    similarity = Given({3: FactoredMetric.from_dense(M)}, "similarity")
    expected = [a @ M @ b for a, b in zip(x, z, strict=True)]
    np.testing.assert_allclose(similarity.pair_score(pairs, task=3), expected)
    np.testing.assert_allclose(similarity.metric_matrix(3), M)
    values, vectors = np.linalg.eigh((M + M.T) / 2)
    assert values.min() < 0  # the read-out is a projection here
    N = vectors * np.maximum(values, 0) @ vectors.T
    squares = [g @ N @ g for g in x - z]
    distance = Given({3: FactoredMetric.from_dense(M)}, "distance")
    np.testing.assert_allclose(distance.pair_score(pairs, task=3), np.negative(squares))
    for reader in (similarity, distance):
        gaps = reader.transform(x, task=3) - reader.transform(z, task=3)
        np.testing.assert_allclose(np.sum(gaps**2, axis=1), squares)
        assert reader.get_metric(3)(x[0], z[0], squared=True) == pytest.approx(squares[0])


def test_reading_what_is_not_there():
    for call in ("task_metric", "metric_matrix", "get_metric"):
        with pytest.raises(NotFittedError, match="call fit"):
            getattr(PooledMetricLearner(SMALL), call)("x")
    X, y, tasks = table()
    learner = PooledMetricLearner(SMALL).fit(X, y, tasks=tasks)
    with pytest.raises(ValueError, match=r"'y' is not known; known tasks: \['x'|\('a', 1\)|7"):
        learner.transform(X, task="y")
    with pytest.raises(ValueError, match=r"4 features.*5|5.*4"):
        learner.transform(X[:, :4], task="x")


@pytest.mark.parametrize("estimator", [SMALL, OASIS(n_steps=200, random_state=0)])
def test_the_union_forgets_the_tasks(estimator):
    X, y, tasks = table()
    learner = PooledMetricLearner(estimator).fit(X, y, tasks=tasks)
    expected = clone(estimator).fit(X, y).metric_.to_dense()
    assert learner.tasks_ == list(learner.metrics_) == list(dict.fromkeys(tasks))
    assert learner.metric_type_ == estimator.metric_type
    assert learner.n_features_in_ == 5
    assert not hasattr(estimator, "metric_")
    for task in learner.tasks_:
        np.testing.assert_array_equal(learner.metric_matrix(task), expected)


def test_keyed_labels_are_pairs():
    X, y, tasks = table()
    names = list(dict.fromkeys(tasks))
    X = X + 4.0 * np.array([names.index(t) for t in tasks])[:, None]  # classes do not coincide
    learner = PooledMetricLearner(SMALL, shared_labels=False).fit(X, y, tasks=tasks)
    keys = [f"{names.index(t)}-{label}" for t, label in zip(tasks, y, strict=True)]
    expected = clone(SMALL).fit(X, np.array(keys)).metric_.to_dense()
    np.testing.assert_array_equal(learner.metric_matrix(7), expected)
    shared = PooledMetricLearner(SMALL).fit(X, y, tasks=tasks).metric_matrix(7)
    assert np.abs(shared - expected).max() > 1e-3
    plain = PooledMetricLearner(SMALL).fit(X, keys, tasks=tasks)  # labels that never coincide
    np.testing.assert_array_equal(plain.metric_matrix(7), expected)


def test_keyed_labels_of_a_list_of_mixed_types():
    X, *_ = table(24)
    y = [1, "1"] * 12
    learner = PooledMetricLearner(SMALL, shared_labels=False).fit(X, y, tasks=["t"] * 24)
    expected = clone(SMALL).fit(X, np.arange(24) % 2).weights_
    np.testing.assert_array_equal(learner.estimator_.weights_, expected)


def test_a_task_may_have_one_class():
    X, y, _ = table()
    learner = PooledMetricLearner(SMALL).fit(X, y, tasks=y)
    knn = LifelongKNeighborsClassifier(learner).fit(X[y == 2], y[y == 2], task=2)
    assert set(knn.predict(X, task=2)) == {2}


def test_wins_where_tasks_agree_loses_where_they_do_not():
    rng = np.random.default_rng(1)
    scores = {}
    for world, informative in (("agree", (0, 0)), ("disagree", (0, 4))):
        tasks, y = np.repeat([0, 1], 200), rng.integers(3, size=400)
        X = 1.5 * rng.standard_normal((400, 8))
        for t, first in enumerate(informative):
            X[tasks == t, first : first + 4] = 0.7 * rng.standard_normal((200, 4))
        for row, (t, label) in enumerate(zip(tasks, y, strict=True)):
            X[row, informative[t] + label] += 2.5
        learn = np.arange(400) % 10 == 0
        union = PooledMetricLearner(clone(SMALL).set_params(n_basis=40, n_steps=3000))
        union.fit(X[learn], y[learn], tasks=tasks[learn])
        knn = LifelongKNeighborsClassifier(union, n_neighbors=1)
        for t in (0, 1):
            a, b = learn & (tasks == t), ~learn & (tasks == t)
            knn.fit(X[a], y[a], task=t)
            scores.setdefault(world, []).append(knn.score(X[b], y[b], task=t))
    assert np.mean(scores["agree"]) > np.mean(scores["disagree"]) + 0.1


def test_a_failed_fit_leaves_no_trace():
    X, y, tasks = table()
    learner = PooledMetricLearner(clone(SMALL)).fit(X, y, tasks=tasks)
    kept = vars(learner).copy()
    for arguments in ((X, ["one"] * 48, tasks), (X, y, tasks[1:]), (X[:2], y[:2], tasks[:2])):
        with pytest.raises(ValueError):  # noqa: PT011 - messages are the estimators' own
            learner.fit(*arguments[:2], tasks=arguments[2])
        assert vars(learner) == kept
    with pytest.raises(ValueError, match="shared_labels='no'"):
        PooledMetricLearner(SMALL, "no").fit(X, y, tasks=tasks)


class Inverse(BaseEstimator):
    """Learns an array, or for want of samples nothing."""

    metric_type = "distance"

    def fit(self, X, y):
        self.metric_ = np.linalg.inv(np.cov(X.T)) if len(X) > 20 else None
        return self


def test_the_metric_of_the_union_may_be_an_array_but_not_missing():
    X, y, tasks = table()
    learner = PooledMetricLearner(Inverse()).fit(X, y, tasks=tasks)
    np.testing.assert_allclose(learner.metric_matrix(7), np.linalg.inv(np.cov(X.T)))
    kept = vars(learner).copy()
    with pytest.raises(TypeError, match=r"estimator is a Inverse.*metric_ of type NoneType"):
        learner.fit(X[:10, :3], y[:10], tasks=tasks[:10])
    assert vars(learner) == kept


LAST_STEPS = {
    "_in_features": MultiTaskLMNN(max_iter=2),
    "FactoredMetric": MultiTaskSCML(n_basis=12, n_steps=300, random_state=0),
    "np": MultiTaskOASIS(n_steps=20, random_state=0),
}


@pytest.mark.parametrize("last", LAST_STEPS)
def test_a_joint_learner_whose_last_step_fails_stays_as_it_was(last, monkeypatch):
    class Fails:
        """A module or class whose functions of results fail."""

        def __getattr__(self, name):
            if name in ("_trusted", "array_split"):
                raise MemoryError
            return getattr(np, name)

        def __call__(self, *arguments):
            raise MemoryError

    X, y, tasks = table()
    learner = LAST_STEPS[last].fit(X, y, tasks=tasks)
    kept = vars(learner).copy()
    monkeypatch.setattr(sys.modules[type(learner).__module__], last, Fails())
    with pytest.raises(MemoryError):
        learner.fit(X[:, :4], y, tasks=tasks)
    assert vars(learner) == kept


def test_input_forms_pickle_and_clone():
    X, y, tasks = table()
    X.setflags(write=False)
    learner = PooledMetricLearner(SMALL).fit(X, y, tasks=tasks)
    for form in (X.tolist(), np.asfortranarray(X), sparse.csr_array(X)):
        again = clone(learner).fit(form, y, tasks=tasks)
        np.testing.assert_allclose(again.metric_matrix("x"), learner.metric_matrix("x"), rtol=1e-6)
    for other in (pickle.loads(pickle.dumps(learner)), copy.deepcopy(learner)):
        np.testing.assert_array_equal(other.transform(X, task=7), learner.transform(X, task=7))
    assert learner.get_params()["estimator__n_steps"] == 300


@pytest.mark.parametrize(
    "learner",
    [
        MultiTaskOASIS(n_steps=20, random_state=0),
        MultiTaskSCML(n_basis=4, n_steps=60, random_state=0),
        MultiTaskLMNN(max_iter=2),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_a_column_that_hides_the_others_is_told_to_who_calls_fit(learner):
    X, y, tasks = table()
    X[:, 2] *= 1e4
    with pytest.warns(UserWarning, match="column 2") as warned:
        learner.fit(X, y, tasks=tasks)
    assert [one.filename for one in warned if "column 2" in str(one.message)] == [__file__]


def test_encoded_tasks_number_their_classes_and_all_have_triplets():
    X, y, tasks = table()
    names, rows, codes = encode_tasks(X, [f"class {label}" for label in y], tasks)
    parts = split_tasks(X, y, tasks)
    assert names == [name for name, _, _ in parts]
    for (_, X_t, y_t), own, numbers in zip(parts, rows, codes, strict=True):
        np.testing.assert_array_equal(own, X_t)
        np.testing.assert_array_equal(y_t[:, None] == y_t, numbers[:, None] == numbers)
        assert sorted(set(numbers.tolist()), key=numbers.tolist().index) == list(
            range(len(set(y_t)))
        )
    for labels in ([0] * 48, np.where([t == 7 for t in tasks], np.arange(48), y)):
        with pytest.raises(ValueError, match=r"y of task .* has \d+ samples of \d+ classes"):
            encode_tasks(X, labels, tasks)
