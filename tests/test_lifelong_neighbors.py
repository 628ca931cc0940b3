"""The k-NN classifier of several tasks: references, answers, files."""

import copy
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn
from one_metric import OneMetric, make_tasks
from scipy import sparse
from sklearn.base import is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import StratifiedKFold, check_cv, cross_validate
from sklearn.neighbors import KNeighborsClassifier
from sklearn.utils import get_tags

from lml.base import BaseLifelongLearner
from lml.baselines import ELLA
from lml.evaluation import LifelongKNeighborsClassifier
from lml.lifelong import LifelongMetricLearner
from lml.oasis import OASIS
from lml.plda import LifelongPLDA
from lml.state import read_state, write_state


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


def test_one_center_a_class_answers_as_references_pulled_to_the_class_mean():
    tasks = make_tasks()
    learner = LifelongMetricLearner(OASIS(n_steps=50), random_state=0)
    centers = LifelongKNeighborsClassifier(learner, 1, max_per_class=1, reduction="kmeans")
    pulled = LifelongKNeighborsClassifier(learner, 1)
    for t in tasks:
        learner.partial_fit(t.X_train, t.y_train, task=t.name)
        centers.fit(t.X_train, t.y_train, task=t.name)
        X = learner.shrink_references(t.X_train, t.y_train, task=t.name, amount=1.0)
        pulled.fit(X, t.y_train, task=t.name)
    for t in tasks:
        X, y = centers.references_[t.name]
        np.testing.assert_allclose(X, [t.X_train[t.y_train == c].mean(axis=0) for c in y])
        answers = [reader.predict(t.X_test, task=t.name) for reader in (centers, pulled)]
        np.testing.assert_array_equal(*answers)


@pytest.mark.parametrize("how", ["herding", "kmeans", "random"])
def test_references_do_not_depend_on_the_width_of_indices(how):
    task = make_tasks()[0]
    short = sparse.csr_array(task.X_train)
    long = short.copy()
    long.indices, long.indptr = short.indices.astype(np.int64), short.indptr.astype(np.int64)
    kept = []
    for X in (long, short):
        bounds = {"max_per_class": 3, "reduction": how, "random_state": 0}
        reader = LifelongKNeighborsClassifier(OneMetric(5), 1, **bounds)
        kept.append(reader.fit(X, task.y_train, task="t").references_["t"][0].toarray())
    assert long.indices.dtype == np.int64
    np.testing.assert_array_equal(*kept)


def test_means_of_herded_references_are_near_those_of_all():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 5)), np.repeat([0, 1], 200)
    off = {"herding": [], "random": []}
    for how, found in off.items():
        for draw in range(10):
            reader = LifelongKNeighborsClassifier(
                OneMetric(5), 1, max_references=20, reduction=how, random_state=draw
            )
            kept, labels = reader.fit(X, y, task="t").references_["t"]
            gaps = [kept[labels == c].mean(axis=0) - X[y == c].mean(axis=0) for c in (0, 1)]
            found.append(np.linalg.norm(gaps))
    assert np.mean(off["herding"]) < 0.2 * np.mean(off["random"])


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("n", [1, 2, 7])
def test_herding_takes_the_sample_that_brings_the_mean_nearest(n, form):
    rng = np.random.default_rng(n)
    X, y = rng.normal(size=(40, 3)) + 2.0, np.arange(40) % 2
    bounds = {"max_per_class": n, "reduction": "herding"}
    reader = LifelongKNeighborsClassifier(OneMetric(3), 1, **bounds).fit(form(X), y, task="t")
    kept, labels = reader.references_["t"]
    for c in (0, 1):
        own = X[y == c]
        taken = []
        for _ in range(n):
            left = [i for i in range(20) if i not in taken]
            gaps = [np.linalg.norm(own.mean(0) - own[[*taken, i]].mean(0)) for i in left]
            taken.append(left[np.argmin(gaps)])
        found = kept[np.flatnonzero(labels == c)]
        found = found.toarray() if sparse.issparse(found) else found
        np.testing.assert_array_equal(found, own[sorted(taken)])


def test_herding_takes_the_same_samples_far_from_the_origin():
    X = np.random.default_rng(0).normal(size=(60, 3))
    X = np.round(X * 2**10) / 2**10  # exact in X + 1e8, too
    kept = []
    for shift in (0.0, 1e8):
        bounds = {"max_per_class": 6, "reduction": "herding"}
        reader = LifelongKNeighborsClassifier(OneMetric(3), 1, **bounds)
        kept.append(reader.fit(X + shift, np.arange(60) % 2, task="t").references_["t"][0] - shift)
    np.testing.assert_array_equal(*kept)


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


def test_a_learner_without_files_does_not_keep_others_from_being_loaded(tmp_path):
    class Unnamed(BaseLifelongLearner):
        """A learner that says no name for files."""

    assert Unnamed in BaseLifelongLearner.__subclasses__()
    (a, _), learner = lifelong()
    reader = LifelongKNeighborsClassifier(learner, 1).fit(a.X_train, a.y_train, task="a")
    reader.save(tmp_path / "s")
    twin = LifelongKNeighborsClassifier.load(tmp_path / "s")
    assert twin.predict(a.X_test, task="a").tolist() == reader.predict(a.X_test, task="a").tolist()


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


@pytest.mark.parametrize("n_names", [0, 1, 14, 16])
def test_a_table_names_the_task_of_each_sample(n_names):
    task = make_tasks()[0]
    X, y = task.X_train, task.y_train
    assert len(y) == 15
    reader = LifelongKNeighborsClassifier(OneMetric(5), 1).fit(X, y, task="a")
    for keep in (reader.fit, reader.partial_fit):
        with pytest.raises(ValueError, match=rf"inconsistent numbers of samples.*{n_names}\b"):
            keep(X, y, tasks=["b"] * n_names)
    assert list(reader.references_) == ["a"]


def test_names_of_columns_are_asked_once_of_a_table():
    task = make_tasks()[0]
    frame = pd.DataFrame(task.X_train, columns=list("abcde"))
    learner = LifelongMetricLearner(OASIS(n_steps=50), random_state=0)
    learner.partial_fit(frame, task.y_train, task="t")
    reader = LifelongKNeighborsClassifier(learner, 1).fit(frame, task.y_train, task="t")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = reader.predict(frame, tasks=["t"] * len(frame))
    np.testing.assert_array_equal(found, reader.predict(frame, task="t"))


def test_a_loaded_classifier_drops_what_its_learner_forgets(tmp_path):
    a, b, _ = make_tasks()
    learner = LifelongMetricLearner(OASIS(n_steps=50), random_state=0)
    reader = LifelongKNeighborsClassifier(learner, 1)
    for name, task in (("a", a), ("b", b)):
        learner.partial_fit(task.X_train, task.y_train, task=name)
        reader.fit(task.X_train, task.y_train, task=name)
    reader.save(tmp_path / "reader")
    loaded = LifelongKNeighborsClassifier.load(tmp_path / "reader")
    loaded.learner.forget("a")
    assert list(loaded.references_) == ["b"]


def test_references_of_forgotten_tasks_are_no_bound_on_new_features():
    task, wide = make_tasks()[0], make_tasks(n_features=7)[0]
    learner = LifelongMetricLearner(OASIS(n_steps=50), random_state=0)
    learner.partial_fit(task.X_train, task.y_train, task="old")
    reader = LifelongKNeighborsClassifier(learner, 1).fit(task.X_train, task.y_train, task="old")
    learner.fit(wide.X_train, wide.y_train, tasks=["new"] * len(wide.y_train))
    reader.fit(wide.X_train, wide.y_train, task="new")
    assert list(reader.references_) == ["new"]
    assert reader.predict(wide.X_test, task="new").shape == wide.y_test.shape


def test_bounds_of_any_size_keep_all():
    task = make_tasks()[0]
    reader = LifelongKNeighborsClassifier(OneMetric(5), 1, 10**30, 10**30)
    reader.fit(task.X_train, task.y_train, task="t")
    np.testing.assert_array_equal(reader.references_["t"][0], task.X_train)


@pytest.mark.parametrize("make", [LifelongPLDA, lambda: LifelongMetricLearner(OASIS(n_steps=50))])
def test_references_of_a_forgotten_task_do_not_come_back_with_its_name(make, tmp_path):
    a, b, _ = make_tasks()
    learner = make()
    reader = LifelongKNeighborsClassifier(learner, 1)
    for name, task in (("a", a), ("b", b)):
        learner.partial_fit(task.X_train, task.y_train, task=name)
        reader.fit(task.X_train, task.y_train, task=name)
    # nobody asks the reader between the two
    learner.forget("b")
    assert b.X_train.tobytes() not in pickle.dumps(reader)
    learner.partial_fit(a.X_train, a.y_train, task="b")
    assert list(copy.copy(reader).references_) == ["a"] == list(reader.references_)
    reader.partial_fit(a.X_train, a.y_train, task="b")
    np.testing.assert_array_equal(reader.references_["b"][0], a.X_train)
    # visits of a known task, also of one that a file gave, take nothing away; nor does fit
    reader.save(tmp_path / "reader")
    for kept in (reader, LifelongKNeighborsClassifier.load(tmp_path / "reader")):
        kept.learner.partial_fit(a.X_train, a.y_train, task="b")
        assert list(kept.references_) == ["a", "b"]
        kept.learner.fit(a.X_train, a.y_train, tasks=["b"] * len(a.y_train))
        assert "b" in kept.references_
        kept.learner.forget("b").partial_fit(a.X_train, a.y_train, task="b")
        assert "b" not in kept.references_
