"""Tests of lml.evaluation: transfer numbers, k-NN over a moving learner, streams."""

import warnings
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


def test_forgetting_counts_from_the_arrival_of_a_task_on():
    assert forgetting([[0.5, 0.9], [0.4, 0.2]]) == pytest.approx(0.1)
    before = [[0.8, 0.9, 0.5], [0.8, 0.6, 0.5], [0.8, 0.6, 0.7]]  # .9 before task 1 has arrived
    assert forgetting(before) == backward_transfer(before) == 0.0
    R = [[0.6, 0.95, 0.1, 1.0], [0.7, 0.8, 0.1, 1.0], [0.6, 0.85, 0.1, 1.0], [0.5, 0.7, 0.1, 0.2]]
    # by hand: the best since arrival are .7, .85 and .1
    assert forgetting(R) == pytest.approx(((0.7 - 0.5) + (0.85 - 0.7) + 0.0) / 3)


def test_forgetting_by_a_loop_and_whatever_stands_before_arrival():
    rng = np.random.default_rng(0)
    for _ in range(50):
        R = rng.uniform(size=(5, 5))
        drops = [max(R[s, t] for s in range(t, 4)) - R[4, t] for t in range(4)]
        assert forgetting(R) == pytest.approx(np.mean(drops))
        R[np.triu_indices(5, 1)] = rng.choice([0.0, 1.0, np.nan], size=10)
        assert forgetting(R) == pytest.approx(np.mean(drops))


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
    with pytest.raises(ValueError, match=r"n_neighbors is 5.*n_samples = 4"):
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


@pytest.mark.parametrize("n_neighbors", [1.5, "3", None])
def test_n_neighbors_is_checked_before_anything_is_learnt(n_neighbors):
    tasks, learner = make_tasks(), OneMetric(5)
    learner.partial_fit = lambda *args, **kwargs: pytest.fail("the learner was trained")
    with pytest.raises(ValueError, match=f"n_neighbors={n_neighbors!r}:"):
        evaluate_stream(learner, tasks, n_neighbors=n_neighbors)


@pytest.mark.parametrize("most", [12.5, "12", 0, -3])
def test_max_references_is_a_whole_number(most):
    task = make_tasks()[0]
    reader = LifelongKNeighborsClassifier(OneMetric(5), 1, max_references=most)
    with pytest.raises(ValueError, match="max_references="):
        reader.fit(task.X_train, task.y_train, task="t")
    assert not hasattr(reader, "references_")


def test_labels_are_names_of_any_type():
    task = make_tasks()[0]
    names = dict(zip(np.unique(task.y_train).tolist(), (1, "a", (2, b"c")), strict=True))
    mixed = np.empty(len(task.y_train), dtype=object)
    mixed[:] = [names[label] for label in task.y_train.tolist()]
    n = len(task.y_train) // 2
    plain = LifelongKNeighborsClassifier(OneMetric(5), 1, max_references=n, random_state=0)
    named = LifelongKNeighborsClassifier(OneMetric(5), 1, max_references=n, random_state=0)
    plain.fit(task.X_train, task.y_train, task="t")
    named.fit(task.X_train, mixed, task="t")
    numbers = plain.predict(task.X_test, task="t").tolist()
    assert named.predict(task.X_test, task="t").tolist() == [names[label] for label in numbers]


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_a_missing_label_is_named_by_its_row(missing):
    reader = LifelongKNeighborsClassifier(OneMetric(5), 1)
    y = np.array(["a", "b", missing, "a"], dtype=object)
    with pytest.raises(ValueError, match=r"y\[2\] is (None|nan)"):
        reader.fit(np.zeros((4, 5)), y, task="t")
    with pytest.raises(ValueError, match=r"y\[1\] is nan"):
        reader.fit(np.zeros((2, 5)), [0.0, np.nan], task="t")
    assert not hasattr(reader, "references_")


@pytest.mark.parametrize("task", [float("nan"), ["a"], {"a": 1}, ("a", [])])
def test_a_task_name_must_be_found_again(task):
    reader = LifelongKNeighborsClassifier(OneMetric(5), 1)
    with pytest.raises((TypeError, ValueError), match=r"task=.* is not (hashable|equal to itself)"):
        reader.fit(np.zeros((2, 5)), [0, 1], task=task)


def test_labels_in_a_column_count_row_by_row():
    flat = make_tasks()
    column = [Task(t.name, t.X_train, t.y_train, t.X_test, t.y_test[:, None]) for t in flat]
    unseen, results = FactoredMetric.identity(5), []
    for tasks in (flat, column):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # scikit-learn names the column vector
            result = evaluate_stream(OneMetric(5), tasks, n_neighbors=1, unseen=lambda _: unseen)
        results.append(result)
    np.testing.assert_array_equal(results[0].accuracy, results[1].accuracy)
    short = [Task(t.name, t.X_train, t.y_train, t.X_test, t.y_test[:-1]) for t in flat]
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        evaluate_stream(OneMetric(5), short, n_neighbors=1)


@pytest.mark.parametrize("wrong", [-0.1, 50.0])
def test_a_baseline_is_an_accuracy(wrong):
    with pytest.raises(ValueError, match="baseline contains"):
        forward_transfer(CASE, baseline=[0.5, wrong, 0.5])


def test_forgetting_needs_every_accuracy_since_arrival():
    R = np.array(CASE)
    R[1, 0] = np.nan  # the best moment of the first task could have been here
    with pytest.raises(ValueError, match="between arrival and end of task 0"):
        forgetting(R)
    assert backward_transfer(R) == pytest.approx(-0.075)


@pytest.mark.parametrize(
    "names", [(1, "a", (2, "b")), (1, "1", b"1"), ("a", "bb", "ccc"), (1, 2, 3.5)]
)
def test_labels_in_a_list_stay_what_they_are(names):
    task, names = make_tasks()[0], dict(zip("xyz", names, strict=True))
    train, test = ([names[label] for label in part.tolist()] for part in (task[2], task[4]))
    plain, named = (LifelongKNeighborsClassifier(OneMetric(5), 3) for _ in range(2))
    plain.fit(task.X_train, task.y_train, task="t")
    named.fit(task.X_train, train, task="t")
    expected = [names[label] for label in plain.predict(task.X_test, task="t").tolist()]
    found = named.predict(task.X_test, task="t").tolist()
    assert found == expected
    score = plain.score(task.X_test, task.y_test, task="t")
    assert named.score(task.X_test, test, task="t") == pytest.approx(score)
    result = evaluate_stream(OneMetric(5), [task._replace(y_train=train, y_test=test)])
    assert result.accuracy[0, 0] == pytest.approx(score)


@pytest.mark.parametrize(
    ("y", "error", "said"),
    [
        (["a", float("nan"), "a", "b"], ValueError, r"y\[1\] is nan"),
        ([1, 1, None, 2], ValueError, r"y\[2\] is None"),
        (np.fromiter(["a", {"b": 1}, "a", "b"], dtype=object), TypeError, r"y\[1\] is \{'b': 1\}"),
    ],
)
def test_labels_that_cannot_be_used(y, error, said):
    reader = LifelongKNeighborsClassifier(OneMetric(5), 1)
    with pytest.raises(error, match=said):
        reader.fit(np.eye(4, 5), y, task="t")
    assert not hasattr(reader, "references_")


@pytest.mark.parametrize("task", [["a"], float("nan")])
def test_a_query_for_a_name_that_is_none(task):
    reader = LifelongKNeighborsClassifier(OneMetric(5), 1).fit(np.eye(4, 5), [1, 1, 2, 2], task="t")
    with pytest.raises((TypeError, ValueError), match=r"not hashable|not known"):
        reader.predict(np.eye(5), task=task)


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"name": ["a"]}, TypeError, "name=.* is not hashable"),
        ({"X_test": np.full((15, 5), np.nan)}, ValueError, "NaN"),
        ({"X_test": np.zeros((15, 6))}, ValueError, "X has 6 features"),
        ({"y_test": [None] * 15}, ValueError, r"y\[0\] is None"),
        ({"y_test": np.zeros((15, 2))}, ValueError, "1d array"),
        ({"X_train": np.zeros((14, 5))}, ValueError, "inconsistent"),
    ],
)
def test_a_stream_is_checked_before_anything_is_learnt(change, error, said):
    first, last = make_tasks(["first", "last"])
    learner = OneMetric(5)
    with pytest.raises(error, match=said):
        evaluate_stream(learner, [first, last._replace(**change)])
    assert learner.known == []


def test_unseen_must_make_a_metric():
    tasks, learner = make_tasks(["first", "last"]), OneMetric(5)
    with pytest.raises(TypeError, match="unseen is 'mean'"):
        evaluate_stream(learner, tasks, unseen="mean")
    assert learner.known == []
    with pytest.raises(TypeError, match="gave a ndarray"):
        evaluate_stream(learner, tasks, unseen=lambda _: np.eye(5))


def test_score_weighs_the_rows():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)), rng.integers(2, size=40)
    knn = LifelongKNeighborsClassifier(OneMetric(3), n_neighbors=1)
    knn.fit(X[:20], y[:20], task="a")
    weights = rng.integers(0, 4, size=20)
    again = np.repeat(np.arange(20, 40), weights)
    expected = knn.score(X[again], y[again], task="a")
    assert knn.score(X[20:], y[20:], weights, task="a") == pytest.approx(expected)
    assert expected != knn.score(X[20:], y[20:], task="a")
