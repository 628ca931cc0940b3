"""Tests of lml.evaluation: transfer numbers, k-NN over a moving learner, streams."""

import copy
import warnings
from collections import namedtuple

import numpy as np
import pytest
import sklearn
from scipy import sparse
from sklearn.base import is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import StratifiedKFold, check_cv, cross_validate
from sklearn.neighbors import KNeighborsClassifier
from sklearn.utils import get_tags

from lml.baselines import ELLA, MultiTaskOASIS, PooledMetricLearner
from lml.evaluation import (
    AccuracyMatrixDisplay,
    LifelongKNeighborsClassifier,
    SpectrumDisplay,
    average_accuracy,
    backward_transfer,
    evaluate_stream,
    forgetting,
    forward_transfer,
)
from lml.lifelong import LifelongMetricLearner
from lml.metrics import FactoredMetric
from lml.oasis import OASIS
from lml.state import read_state, write_state

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
    learner = PooledMetricLearner(OASIS(n_steps=50, random_state=0))
    learner.fit(tasks[0].X_train, tasks[0].y_train, tasks=["t"] * 15)
    assert len(SpectrumDisplay.from_learner(learner).lines_) == 1
    plt.close("all")


def lifelong(n_tasks=2):
    tasks = make_tasks(("a", "b", "c")[:n_tasks])
    learner = LifelongMetricLearner(OASIS(n_steps=50), random_state=0)
    for task in tasks:
        learner.partial_fit(task.X_train, task.y_train, task=task.name)
    return tasks, learner


def test_references_are_added_and_those_of_forgotten_tasks_are_dropped():
    (a, b), learner = lifelong()
    reader = LifelongKNeighborsClassifier(learner, 1)
    for task in (a, b):
        reader.fit(task.X_train[:8], task.y_train[:8], task=task.name)
        reader.partial_fit(task.X_train[8:], task.y_train[8:], task=task.name)
    for task in (a, b):
        np.testing.assert_array_equal(reader.references_[task.name][0], task.X_train)
        assert reader.classes_[task.name].tolist() == ["x", "y", "z"]
    n_bytes = reader.reference_nbytes_
    learner.forget("a")
    assert reader.reference_nbytes_ == n_bytes / 2
    assert list(reader.references_) == ["b"]
    with pytest.raises(ValueError, match="'a' is not known"):
        reader.predict(a.X_test, task="a")
    assert reader.forget("b") is reader
    assert learner.tasks_ == reader.references_ == {}
    with pytest.raises(NotFittedError):
        reader.predict(b.X_test, task="b")
    before = LifelongKNeighborsClassifier(learner, 1)  # references first, learned later
    before.fit(a.X_train, a.y_train, task="a")
    learner.partial_fit(a.X_train, a.y_train, task="a")
    assert before.predict(a.X_test, task="a").shape == (15,)


def test_a_table_of_several_tasks_is_answered_row_by_row():
    (a, b), learner = lifelong()
    each = LifelongKNeighborsClassifier(learner, 3)
    for task in (a, b):
        each.fit(task.X_train, task.y_train, task=task.name)
    order = np.random.default_rng(0).permutation(30)

    def table(k):
        return np.concatenate([a[k], b[k]])[order], np.repeat(["a", "b"], len(a[k]))[order]

    X, tasks = table(1)
    mixed = LifelongKNeighborsClassifier(learner, 3).fit(X, table(2)[0], tasks=tasks)
    Z, asked = table(3)
    found = mixed.predict(Z, tasks=asked)
    for task in (a, b):
        own = each.predict(task.X_test, task=task.name)
        np.testing.assert_array_equal(np.sort(found[asked == task.name]), np.sort(own))
    expected = np.mean([each.score(t.X_test, t.y_test, task=t.name) for t in (a, b)])
    assert mixed.score(Z, table(4)[0], tasks=asked) == pytest.approx(expected)
    with pytest.raises(ValueError, match="give one of them"):
        mixed.predict(Z, task="a", tasks=asked)
    with pytest.raises(ValueError, match="inconsistent"):
        mixed.predict(Z, tasks=asked[:-1])
    with pytest.raises(ValueError, match="'c' is not known"):
        mixed.predict(Z, tasks=[*asked[:-1], "c"])


def test_shares_of_votes_by_hand():
    (a, _), learner = lifelong()
    reader = LifelongKNeighborsClassifier(learner, 4).fit(a.X_train, a.y_train, task="a")
    near, scores = reader.kneighbors(a.X_test, task="a")
    assert np.all(np.diff(scores, axis=1) <= 0)
    expected = [[np.mean(a.y_train[row] == c) for c in "xyz"] for row in near]
    shares = reader.predict_proba(a.X_test, task="a")
    np.testing.assert_allclose(shares, expected, atol=1e-15)
    winners = reader.classes_["a"][shares.argmax(axis=1)]
    np.testing.assert_array_equal(winners, reader.predict(a.X_test, task="a"))
    assert np.all(reader.kneighbors(task="a")[0] != np.arange(15)[:, None])


@pytest.mark.parametrize("form", [np.asarray, np.float32, sparse.csr_array])
@pytest.mark.parametrize("how", ["herding", "kmeans", "random"])
def test_references_are_bounded_a_class(how, form):
    task = make_tasks()[0]
    bounds = {"max_per_class": 3, "reduction": how, "random_state": 0}
    reader = LifelongKNeighborsClassifier(OneMetric(5), 1, **bounds)
    X, y = reader.fit(form(task.X_train), task.y_train, task="t").references_["t"]
    assert sparse.issparse(X) == (form is sparse.csr_array)
    X = X.toarray() if sparse.issparse(X) else X
    assert [np.sum(y == c) for c in "xyz"] == [3, 3, 3]
    for c in "xyz":
        own, kept = task.X_train[task.y_train == c], X[y == c]
        if how == "kmeans":  # each center is the mean of the rows that are nearest to it
            nearest = np.argmin(((own[:, None] - kept) ** 2).sum(axis=2), axis=1)
            means = [own[nearest == j].mean(axis=0) for j in range(3)]
            np.testing.assert_allclose(kept, means, atol=1e-5)
        else:
            assert all(np.isclose(own, row, atol=1e-6).all(axis=1).any() for row in kept)
    reader.partial_fit(form(task.X_test), task.y_test, task="t")
    assert [np.sum(reader.references_["t"][1] == c) for c in "xyz"] == [3, 3, 3]


def test_means_of_herded_references_are_near_those_of_all():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 5)), np.repeat([0, 1], 200)
    off = {}
    for how in ("herding", "random"):
        reader = LifelongKNeighborsClassifier(
            OneMetric(5), 1, max_references=20, reduction=how, random_state=0
        )
        kept, labels = reader.fit(X, y, task="t").references_["t"]
        gaps = [kept[labels == c].mean(axis=0) - X[y == c].mean(axis=0) for c in (0, 1)]
        off[how] = np.linalg.norm(gaps)
    assert off["herding"] < 0.2 * off["random"]


def test_a_reduction_without_a_bound_is_refused():
    task = make_tasks()[0]
    reader = LifelongKNeighborsClassifier(OneMetric(5), 1, reduction="herding")
    with pytest.raises(ValueError, match="reduction='herding' has no effect"):
        reader.fit(task.X_train, task.y_train, task="t")


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_a_classifier_in_a_file_answers_and_goes_on(tmp_path, form):
    (a, b, c), learner = lifelong(3)
    parameters = {"max_per_class": 5, "reduction": "kmeans"}
    reader = LifelongKNeighborsClassifier(
        learner, 2, random_state=np.random.RandomState(3), **parameters
    )
    for task, labels in ((a, None), (b, [("p", 1), 2, "q"])):
        y = task.y_train if labels is None else [labels["xyz".index(v)] for v in task.y_train]
        reader.fit(form(task.X_train), y, task=task.name)
    reader.save(tmp_path / "s")
    twin = LifelongKNeighborsClassifier.load(tmp_path / "s")
    assert twin.get_params(deep=False).keys() == reader.get_params(deep=False).keys()
    assert twin.reference_nbytes_ == reader.reference_nbytes_
    for one in (reader, twin):
        one.learner.partial_fit(c.X_train, c.y_train, task="c")
        one.partial_fit(c.X_train, c.y_train, task="c")
        one.partial_fit(a.X_test, a.y_test, task="a")
    for task in "abc":
        for found, expected in zip(
            twin.kneighbors(a.X_test, task=task), reader.kneighbors(a.X_test, task=task)
        ):
            np.testing.assert_array_equal(found, expected)
        found, expected = (one.predict(a.X_test, task=task).tolist() for one in (twin, reader))
        assert found == expected
    twin.save(tmp_path / "t")
    reader.save(tmp_path / "s")
    assert (tmp_path / "s").read_bytes() == (tmp_path / "t").read_bytes()


def test_files_of_classifiers_are_refused_where_they_do_not_fit(tmp_path):
    (a, _), learner = lifelong()
    reader = LifelongKNeighborsClassifier(learner, 1).fit(a.X_train, a.y_train, task="a")
    learner.save(tmp_path / "learner")
    with pytest.raises(ValueError, match="kind is 'LifelongMetricLearner'"):
        LifelongKNeighborsClassifier.load(tmp_path / "learner")
    reader.save(tmp_path / "s")
    meta, arrays = read_state(tmp_path / "s", "LifelongKNeighborsClassifier")

    def spoilt(said, change):
        other, parts = copy.deepcopy(meta), dict(arrays)
        change(other, parts)
        write_state(tmp_path / "t", "LifelongKNeighborsClassifier", other, parts)
        with pytest.raises(ValueError, match=said):
            LifelongKNeighborsClassifier.load(tmp_path / "t")

    spoilt("learner is 'Nobody'", lambda m, p: m["learner"].__setitem__(0, "Nobody"))
    spoilt("classes of references", lambda m, p: p.update({"own.codes": p["own.codes"] + 1}))
    spoilt("of two parts", lambda m, p: p.update(other=np.ones(2)))
    spoilt("n_neighbors=0", lambda m, p: m["parameters"].update(n_neighbors=0))
    with pytest.raises(TypeError, match="OneMetric, which has no files"):
        LifelongKNeighborsClassifier(OneMetric(5)).save(tmp_path / "u")


@pytest.mark.parametrize("make", [ELLA, lambda: LifelongKNeighborsClassifier(OneMetric(5))])
def test_classifiers_say_so_and_folds_are_stratified(make):
    model = make()
    assert is_classifier(model)
    assert get_tags(model).input_tags.sparse
    folds = check_cv(3, np.repeat([0, 1], [6, 3]), classifier=is_classifier(model))
    assert isinstance(folds, StratifiedKFold)


def test_cross_validation_keeps_the_shares_of_the_classes():
    (a, _), learner = lifelong()
    order = np.argsort(a.y_train)  # folds of plain halves would lack classes
    with sklearn.config_context(enable_metadata_routing=True):
        reader = LifelongKNeighborsClassifier(FrozenEstimator(learner), 1)
        reader.set_fit_request(tasks=True).set_score_request(tasks=True)
        found = cross_validate(
            reader,
            a.X_train[order],
            a.y_train[order],
            cv=2,
            params={"tasks": ["a"] * 15},
            return_estimator=True,
        )
    assert [len(one.classes_["a"]) for one in found["estimator"]] == [3, 3]


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
    assert reader.reference_nbytes_ == X.nbytes + 8 * len(y)


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
    assert csr.reference_nbytes_ == X.data.nbytes + X.indices.nbytes + X.indptr.nbytes + 8 * len(y)


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
