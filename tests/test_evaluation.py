"""Tests of lml.evaluation: transfer numbers, k-NN over a moving learner, streams."""

from collections import namedtuple

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError
from sklearn.neighbors import KNeighborsClassifier

from lml.evaluation import (
    LifelongKNeighborsClassifier,
    average_accuracy,
    backward_transfer,
    evaluate_stream,
    forgetting,
    forward_transfer,
)
from lml.metrics import FactoredMetric

CASE = [[0.8, 0.5, 0.5], [0.9, 0.9, 0.5], [0.7, 0.85, 0.9]]
Task = namedtuple("Task", "name X_train y_train X_test y_test")


class OneMetric:
    """A learner whose metric of every task is a scale that the test sets."""

    metric_type_ = "distance"

    def __init__(self, n_features):
        self.root, self.known = np.eye(n_features), []

    def partial_fit(self, X, y, task):
        self.known.append(task)
        return self

    def task_metric(self, task):
        return FactoredMetric.from_components(self.root)


def make_tasks(names=("paris", 42, ("a", 1)), n_features=5, seed=0):
    rng = np.random.default_rng(seed)
    tasks = []
    for name in names:
        y = np.repeat(["x", "y", "z"], [12, 8, 10])
        X = rng.normal(size=(len(y), n_features)) + (y == "y")[:, None] * 2.0
        tasks.append(Task(name, X[::2], y[::2], X[1::2], y[1::2]))
    return tasks


def test_the_published_numbers():
    assert average_accuracy(CASE) == pytest.approx(0.81667, abs=1e-5)
    assert backward_transfer(CASE) == pytest.approx(-0.075)
    assert forgetting(CASE) == pytest.approx(0.125)
    assert forward_transfer(CASE, [0.5, 0.4, 0.3]) == pytest.approx((0.1 + 0.2) / 2)


def test_unseen_entries_may_be_missing():
    R = np.array(CASE)
    R[np.triu_indices(3, 1)] = np.nan
    before = R.copy()
    assert backward_transfer(R) == pytest.approx(-0.075)
    assert forgetting(R) == pytest.approx(0.125)
    np.testing.assert_array_equal(R, before)
    with pytest.raises(ValueError, match="before arrival of task 1"):
        forward_transfer(R, [0.5, 0.5, 0.5])


def test_forgetting_counts_the_best_earlier_row_even_before_arrival():
    assert forgetting([[0.5, 0.9], [0.4, 0.2]]) == pytest.approx(0.1)
    R = [[0.6, 0.95, 0.1], [0.6, 0.8, 0.1], [0.6, 0.7, 0.1]]
    assert forgetting(R) == pytest.approx((0.0 + 0.25) / 2)


def test_order_of_time_and_tasks_is_not_interchangeable():
    assert backward_transfer(np.transpose(CASE)) != pytest.approx(backward_transfer(CASE))


@pytest.mark.parametrize(
    ("R", "match"),
    [
        ([[0.9, 0.8]], "shape"),
        ([], "shape"),
        ([0.9, 0.8], "shape"),
        ([[90.0, 50.0], [80.0, 70.0]], r"90.0.*0 to 1"),
        ([[0.9, 0.5], [-0.1, 0.7]], "-0.1"),
        ([[0.9, 0.5], [np.inf, 0.7]], "inf"),
        ([[0.9, 0.5], [np.nan, 0.7]], "final accuracy of task 0"),
    ],
)
@pytest.mark.parametrize("number", [average_accuracy, backward_transfer, forgetting])
def test_not_a_matrix_of_accuracies(number, R, match):
    with pytest.raises(ValueError, match=match):
        number(R)


@pytest.mark.parametrize("number", [backward_transfer, forgetting, forward_transfer])
def test_one_task_has_no_transfer(number):
    with pytest.raises(ValueError, match="at least 2"):
        number([[0.9]])
    assert average_accuracy([[0.9]]) == pytest.approx(0.9)


def test_forward_transfer_refuses_without_a_baseline():
    with pytest.raises(ValueError, match="baseline is None"):
        forward_transfer(CASE)
    with pytest.raises(ValueError, match=r"shape \(2,\).*3 tasks"):
        forward_transfer(CASE, [0.5, 0.5])
    with pytest.raises(ValueError, match="baseline of task 2"):
        forward_transfer(CASE, [np.nan, 0.5, np.nan])


def test_stream_against_scikit_learn():
    tasks = make_tasks()
    learner = OneMetric(5)
    learner.root = np.random.default_rng(1).normal(size=(3, 5))
    result = evaluate_stream(learner, tasks, n_neighbors=1)
    assert result.task_names == ("paris", 42, ("a", 1))
    assert learner.known == list(result.task_names)
    for t, task in enumerate(tasks):
        oracle = KNeighborsClassifier(1).fit(task.X_train @ learner.root.T, task.y_train)
        expected = oracle.score(task.X_test @ learner.root.T, task.y_test)
        np.testing.assert_allclose(result.accuracy[t:, t], expected)
        assert np.isnan(result.accuracy[:t, t]).all()
    np.testing.assert_allclose(result.errors[-1], 1 - result.final)
    np.testing.assert_allclose(result.arrival, result.final)
    np.testing.assert_array_equal(result.n_test, [15, 15, 15])
    p = result.final[0]
    assert result.standard_errors[-1, 0] == pytest.approx(np.sqrt(p * (1 - p) / 15))


def test_unseen_tasks_are_measured_with_the_metric_given():
    tasks = make_tasks()
    root = np.diag([1.0, 0, 0, 0, 0])
    result = evaluate_stream(
        OneMetric(5), tasks, n_neighbors=1, unseen=lambda _: FactoredMetric.from_components(root)
    )
    oracle = KNeighborsClassifier(1).fit(tasks[2].X_train[:, :1], tasks[2].y_train)
    expected = oracle.score(tasks[2].X_test[:, :1], tasks[2].y_test)
    np.testing.assert_allclose(result.accuracy[:2, 2], expected)
    assert np.isfinite(forward_transfer(result.accuracy, [0.3, 0.3, 0.3]))


def test_stream_needs_tasks_with_different_names():
    with pytest.raises(ValueError, match="empty"):
        evaluate_stream(OneMetric(5), [])
    learner = OneMetric(5)
    with pytest.raises(ValueError, match="'a' twice"):
        evaluate_stream(learner, make_tasks(("a", "b", "a")))
    assert learner.known == []


def test_the_metric_is_read_at_prediction_time():
    task = make_tasks()[0]
    learner = OneMetric(5)
    reader = LifelongKNeighborsClassifier(learner, n_neighbors=1)
    assert reader.fit(task.X_train, task.y_train, task="t") is reader
    before = reader.predict(task.X_test, task="t")
    learner.root = np.diag([0.0, 0, 0, 0, 1.0])
    after = reader.predict(task.X_test, task="t")
    assert np.any(before != after)
    oracle = KNeighborsClassifier(1).fit(task.X_train[:, 4:], task.y_train)
    np.testing.assert_array_equal(after, oracle.predict(task.X_test[:, 4:]))


def test_fit_touches_one_task_only_and_never_the_learner():
    a, b, _ = make_tasks()
    learner = OneMetric(5)
    reader = LifelongKNeighborsClassifier(learner, n_neighbors=1)
    reader.fit(a.X_train, a.y_train, task="a").fit(b.X_train, b.y_train, task="b")
    np.testing.assert_array_equal(reader.references_["a"][0], a.X_train)
    reader.fit(b.X_train, b.y_train, task="a")
    np.testing.assert_array_equal(reader.references_["a"][0], b.X_train)
    assert learner.known == []
    assert reader.learner is learner


@pytest.mark.parametrize("bound", [3, 5, 7, 14])
def test_bounded_references_keep_every_class(bound):
    task = make_tasks()[0]
    reader = LifelongKNeighborsClassifier(OneMetric(5), 1, max_references=bound, random_state=0)
    X, y = reader.fit(task.X_train, task.y_train, task="t").references_["t"]
    assert len(y) == bound
    assert set(y) == set(task.y_train)
    rows = [int(np.flatnonzero((task.X_train == x).all(axis=1))[0]) for x in X]
    assert rows == sorted(set(rows))
    np.testing.assert_array_equal(y, task.y_train[rows])
    again = LifelongKNeighborsClassifier(OneMetric(5), 1, max_references=bound, random_state=0)
    np.random.seed(99)  # noqa: NPY002
    np.testing.assert_array_equal(
        again.fit(task.X_train, task.y_train, task="t").references_["t"][0], X
    )
    assert reader.reference_nbytes_ == X.nbytes + y.nbytes


def test_bounds_that_cannot_work():
    task = make_tasks()[0]
    few = LifelongKNeighborsClassifier(OneMetric(5), 1, max_references=2)
    with pytest.raises(ValueError, match=r"max_references=2.*3 classes"):
        few.fit(task.X_train, task.y_train, task="t")
    with pytest.raises(ValueError, match=r"n_neighbors=5 with 4"):
        LifelongKNeighborsClassifier(OneMetric(5), 5, max_references=4).fit(
            task.X_train, task.y_train, task="t"
        )
    with pytest.raises(ValueError, match="n_neighbors=0"):
        LifelongKNeighborsClassifier(OneMetric(5), 0).fit(task.X_train, task.y_train, task="t")
    with pytest.raises(NotFittedError):
        few.predict(task.X_test, task="t")


def test_errors_at_prediction():
    task = make_tasks()[0]
    reader = LifelongKNeighborsClassifier(OneMetric(5), 1)
    with pytest.raises(NotFittedError):
        reader.predict(task.X_test, task="t")
    reader.fit(task.X_train, task.y_train, task="t")
    with pytest.raises(ValueError, match=r"'never seen'.*\['t'\]"):
        reader.predict(task.X_test, task="never seen")
    with pytest.raises(ValueError, match=r"4 features.*have 5"):
        reader.predict(task.X_test[:, :4], task="t")
    with pytest.raises(ValueError, match="inconsistent"):
        reader.score(task.X_test, task.y_test[:-1], task="t")
    bad = task.X_train.copy()
    bad[3, 2] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        reader.fit(bad, task.y_train, task="t")
    np.testing.assert_array_equal(reader.references_["t"][0], task.X_train)


def test_sparse_references():
    task = make_tasks()[0]
    dense = LifelongKNeighborsClassifier(OneMetric(5), 3)
    dense.fit(task.X_train, task.y_train, task="t")
    csr = LifelongKNeighborsClassifier(OneMetric(5), 3)
    csr.fit(sparse.csr_array(task.X_train), task.y_train, task="t")
    assert sparse.issparse(csr.references_["t"][0])
    np.testing.assert_array_equal(
        csr.predict(sparse.csr_array(task.X_test), task="t"), dense.predict(task.X_test, task="t")
    )
    X, y = csr.references_["t"]
    assert csr.reference_nbytes_ == X.data.nbytes + X.indices.nbytes + X.indptr.nbytes + y.nbytes
