"""Tests of lml.evaluation: transfer numbers, k-NN over a moving learner, streams."""

import warnings

import numpy as np
import pytest
from one_metric import OneMetric, Task, make_tasks
from sklearn.exceptions import NotFittedError
from sklearn.neighbors import KNeighborsClassifier

from lml.baselines import ELLA, MultiTaskOASIS, PooledMetricLearner
from lml.evaluation import (
    AccuracyMatrixDisplay,
    LifelongKNeighborsClassifier,
    SpectrumDisplay,
    _bounded_rows,
    average_accuracy,
    backward_transfer,
    evaluate_stream,
    forgetting,
    forward_transfer,
)
from lml.metrics import FactoredMetric
from lml.oasis import OASIS

CASE = [[0.8, 0.5, 0.5], [0.9, 0.9, 0.5], [0.7, 0.85, 0.9]]


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


def test_forgetting_needs_the_accuracies_on_arrival_of_all_but_the_last():
    R = np.full((4, 4), 0.5)
    R[3, 3] = np.nan
    assert forgetting(R) == 0.0
    for task in range(3):
        holed = np.full((4, 4), 0.5)
        holed[task, task] = np.nan
        with pytest.raises(ValueError, match="accuracy on arrival"):
            forgetting(holed)


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


def test_stream_needs_tasks():
    with pytest.raises(ValueError, match="empty"):
        evaluate_stream(OneMetric(5), [])


def test_a_task_that_comes_back_has_another_row_and_more_references():
    a, b, more = make_tasks(("a", "b", "a"))
    learner = OneMetric(5)
    result = evaluate_stream(learner, [a, b, more], n_neighbors=1)
    assert result.task_names == ("a", "b")
    assert result.visits == ("a", "b", "a")
    assert learner.known == ["a", "b", "a"]
    assert result.accuracy.shape == (3, 2)
    plain = evaluate_stream(OneMetric(5), [a, b], n_neighbors=1).accuracy
    np.testing.assert_array_equal(result.accuracy[:2], plain)
    both = np.vstack([a.X_train, more.X_train]), np.r_[a.y_train, more.y_train]
    expected = KNeighborsClassifier(1).fit(*both).score(a.X_test, a.y_test)
    assert result.final[0] == pytest.approx(expected)
    np.testing.assert_array_equal(result.arrival, [plain[0, 0], plain[1, 1]])
    R = result.accuracy
    np.testing.assert_allclose(result.average_so_far, [R[0, 0], R[1].mean(), R[2].mean()])
    assert not result.retrained


@pytest.mark.parametrize(
    "make",
    [
        lambda: MultiTaskOASIS(n_steps=50, random_state=0),
        lambda: PooledMetricLearner(OASIS(n_steps=50, random_state=0)),
    ],
)
def test_joint_learners_are_trained_anew_on_all_tasks_so_far(make):
    tasks = make_tasks()
    result = evaluate_stream(make(), tasks, n_neighbors=1)
    assert result.retrained
    for s in range(3):
        X, y = (np.concatenate([task[k] for task in tasks[: s + 1]]) for k in (1, 2))
        names = [task.name for task in tasks[: s + 1] for _ in task.y_train]
        reader = LifelongKNeighborsClassifier(make().fit(X, y, tasks=names), 1)
        for t, task in enumerate(tasks[: s + 1]):
            reader.fit(task.X_train, task.y_train, task=task.name)
            right = reader.score(task.X_test, task.y_test, task=task.name)
            assert result.accuracy[s, t] == right
    assert np.isnan(result.accuracy[np.triu_indices(3, 1)]).all()


def test_ella_is_asked_through_its_own_predictions():
    tasks, again = make_tasks(), ELLA(2, random_state=0)
    result = evaluate_stream(ELLA(2, random_state=0), tasks)
    for s, new in enumerate(tasks):
        again.partial_fit(new.X_train, new.y_train, task=new.name)
        for t, task in enumerate(tasks[: s + 1]):
            assert result.accuracy[s, t] == again.score(task.X_test, task.y_test, task=task.name)
    with pytest.raises(TypeError, match="ELLA, which has no task_metric"):
        evaluate_stream(ELLA(), tasks, unseen=lambda _: FactoredMetric.identity(5))
    with pytest.raises(TypeError, match="ELLA, which has no task_metric"):
        evaluate_stream(ELLA(), tasks, max_references=5)
    with pytest.raises(TypeError, match="OASIS, which has no task_metric"):
        evaluate_stream(OASIS(), tasks)


def test_displays_follow_scikit_learn():
    plt = pytest.importorskip("matplotlib.pyplot")
    tasks = make_tasks(("a", "b", "a"))
    display = AccuracyMatrixDisplay.from_stream(OneMetric(5), tasks, n_neighbors=1)
    np.testing.assert_array_equal(display.im_.get_array(), display.result.accuracy)
    assert [text.get_text() for text in display.ax_.get_yticklabels()] == ["a", "b", "a"]
    _, ax = plt.subplots()
    assert display.plot(ax, errors=True).ax_ is ax
    np.testing.assert_allclose(display.im_.get_array(), display.result.errors)
    rng = np.random.default_rng(0)
    A = rng.normal(size=(2, 5))
    metric = FactoredMetric(0.5, A, rng.normal(size=(2, 2)))
    M = metric.to_dense()
    expected = np.linalg.eigvalsh((M + M.T) / 2)[::-1]
    shown = SpectrumDisplay.from_metrics({"t": metric, "1": FactoredMetric.identity(3)})
    np.testing.assert_allclose(shown.lines_[0].get_ydata(), expected)
    np.testing.assert_allclose(shown.lines_[1].get_ydata(), np.ones(3))
    plt.close("all")


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
    with pytest.raises((TypeError, ValueError), match=r"task=.*not (hashable|equal to itself)"):
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
    with pytest.raises(TypeError, match="gave a ndarray"):
        evaluate_stream(learner, tasks, unseen=lambda _: np.eye(5))


def test_score_weighs_the_rows():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)), rng.integers(2, size=40)
    knn = LifelongKNeighborsClassifier(OneMetric(3), n_neighbors=1)
    knn.fit(X[:20], y[:20], task="a")
    right = knn.predict(X[20:], task="a") == y[20:]
    weights = np.where(right, rng.integers(2, 5, size=20), rng.integers(0, 2, size=20))
    again = np.repeat(np.arange(20, 40), weights)
    expected = knn.score(X[again], y[again], task="a")
    assert knn.score(X[20:], y[20:], weights, task="a") == pytest.approx(expected)
    assert expected > knn.score(X[20:], y[20:], task="a")


def test_a_joint_learner_that_was_trained_before_is_trained_anew():
    tasks = make_tasks()
    learner = MultiTaskOASIS(n_steps=50, random_state=0)
    first = evaluate_stream(learner, tasks)
    np.testing.assert_array_equal(evaluate_stream(learner, tasks).accuracy, first.accuracy)


@pytest.mark.parametrize("part", ["X_train", "X_test", "y_train", "y_test"])
def test_a_stream_of_a_learner_without_metrics_is_checked_first(part):
    tasks = make_tasks()
    given = getattr(tasks[2], part)
    missing = np.full(given.shape, np.nan)
    for wrong in (given[:-1], missing, given[:, :-1] if given.ndim == 2 else given[1:]):
        learner = ELLA(2, random_state=0)
        with pytest.raises(ValueError, match=r"nan|features|inconsistent"):
            evaluate_stream(learner, [*tasks[:2], tasks[2]._replace(**{part: wrong})])
        with pytest.raises(NotFittedError):
            learner.tasks_  # noqa: B018


def test_rows_that_are_kept_have_the_shares_of_their_classes():
    codes = np.repeat([0, 1, 2], [60, 30, 10])
    kept = _bounded_rows(codes, 20, None, np.random.RandomState(0))
    assert np.bincount(codes[kept]).tolist() == [12, 6, 2]
    assert (np.diff(kept) > 0).all()
