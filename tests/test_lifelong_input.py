"""LifelongMetricLearner takes what users give, or refuses it and stays as it was."""

import copy
import pickle
from typing import ClassVar

import numpy as np
import pandas as pd
import polars as pl
import pytest
from lifelong_streams import (
    BASES,
    NAMES,
    all_of,
    arrays_of,
    learn,
    make_learner,
    make_task,
    save_and_load,
)
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.datasets import make_blobs
from sklearn.neighbors import KNeighborsClassifier

from lml import lifelong
from lml.evaluation import LifelongKNeighborsClassifier
from lml.lifelong import LifelongMetricLearner
from lml.metrics import FactoredMetric
from lml.oasis import OASIS

# --- nothing happens when something goes wrong --------------------------------------------


def bad_calls():
    X, y = make_task(7)
    nan, inf = X.copy(), X.copy()
    nan[3, 2], inf[4, 5] = np.nan, np.inf
    return {
        r"X\[3, 2\] is nan": (nan, y, "t"),
        r"X\[4, 5\] is inf": (sparse.csr_array(inf), y, "t"),
        "5 features.* 7": (X[:, :5], y, "t"),
        "inconsistent": (X, y[:-1], "t"),
        "hashable": (X, y, ["t"]),
        "equal to itself": (X, y, float("nan")),
        "0 samples of 0 classes.*two classes, one with two samples": (X[:0], y[:0], "t"),
    }


@pytest.mark.parametrize("match", list(bad_calls()))
def test_a_bad_visit_changes_nothing(match):
    learner = learn(make_learner())
    before = pickle.dumps(learner)
    X, y, task = bad_calls()[match]
    with pytest.raises((ValueError, TypeError), match=match):
        learner.partial_fit(X, y, task=task)
    assert pickle.dumps(learner) == before


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError(), ValueError("no")])
@pytest.mark.parametrize("where", ["base", "sum"])
def test_interrupted_anywhere_changes_nothing(error, where, monkeypatch):
    learner = learn(make_learner())
    before = pickle.dumps(learner)

    def stop(*args, **kwargs):
        raise error

    place = {"base": (OASIS, "fit"), "sum": (lifelong, "contribution")}[where]
    monkeypatch.setattr(*place, stop)
    with pytest.raises(type(error)):
        learner.partial_fit(*make_task(4), task="new")
    assert pickle.dumps(learner) == before
    monkeypatch.undo()
    learn(learner, ["new"], start=3)
    assert all_of(learner) == all_of(learn(make_learner(), [*NAMES, "new"]))


@pytest.mark.parametrize(
    ("parameter", "value", "error"),
    [
        ("n_components", 0, ValueError),
        ("n_components", -1, ValueError),
        ("n_components", 1.5, TypeError),
        ("n_components", True, TypeError),
        ("code_rank", -1, ValueError),
        ("code_rank", 0.5, TypeError),
        ("sharing", -0.1, ValueError),
        ("sharing", 1.5, ValueError),
        ("sharing", np.nan, ValueError),
        ("sharing", "much", ValueError),
        ("sharing", None, ValueError),
        ("sharing", True, ValueError),
        ("n_jobs", 0, ValueError),
        ("n_jobs", 1.5, ValueError),
        ("base_learner", "svm", ValueError),
    ],
)
def test_parameters_are_checked_and_named(parameter, value, error):
    learner = LifelongMetricLearner(**{parameter: value})
    with pytest.raises(error, match=parameter):
        learner.partial_fit(*make_task(0), task="t")
    assert not hasattr(learner, "tasks_")


@pytest.mark.parametrize("rank", [7, 8, 100, None])
def test_more_directions_than_features_keep_all(rank):
    learner = learn(make_learner(n_components=rank or 100, code_rank=rank, sharing=0.5))
    assert all(code.factor.shape == (7, 7) for code in learner.codes_.values())
    assert all_of(learner) == all_of(learn(make_learner(n_components=7, code_rank=7, sharing=0.5)))


# --- inputs -------------------------------------------------------------------------------


def test_inputs_are_not_touched_and_layout_does_not_matter():
    X, y = make_task(0)
    expected = make_learner().partial_fit(X, y, task="t")
    wide = np.zeros((30, 14))
    wide[:, ::2] = X
    locked = X.copy()
    locked.flags.writeable = False
    for rows in (np.asfortranarray(X), wide[:, ::2], locked, X.tolist()):
        keep = np.array(rows)
        learner = make_learner().partial_fit(rows, y, task="t")
        np.testing.assert_array_equal(np.array(rows), keep)
        np.testing.assert_allclose(
            learner.metric_matrix("t"), expected.metric_matrix("t"), atol=1e-8
        )
    low = make_learner().partial_fit(X.astype(np.float32), y, task="t")
    np.testing.assert_allclose(low.metric_matrix("t"), expected.metric_matrix("t"), atol=1e-2)


def test_labels_of_any_type():
    X, y = make_task(0)
    expected = make_learner().partial_fit(X, y, task="t")
    for names in (["ant", "bee", "cat"], [7, 8, 9], [-1.0, 0.0, 2.0]):
        learner = make_learner().partial_fit(X, np.array(names)[y], task="t")
        np.testing.assert_array_equal(learner.metric_matrix("t"), expected.metric_matrix("t"))
        assert set(learner.tasks_["t"].classes) == set(names)
    two = make_learner().partial_fit(X, y == 0, task="t")
    assert set(two.tasks_["t"].classes) == {False, True}


class Counting(OASIS):
    """OASIS that notes how many coordinates its samples have."""

    widths: ClassVar = []

    def fit(self, X, y):
        self.widths.append(X.shape[1])
        return super().fit(X, y)


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_of_few_sparse_rows_the_base_learner_sees_their_span_and_no_rounding(rank):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(9, rank)) @ rng.normal(size=(rank, 30))
        Counting.widths.clear()
        learner = make_learner(Counting(n_steps=20), sharing=0.5)
        learner.partial_fit(sparse.csr_array(X), np.arange(9) % 3, task="t")
        assert set(Counting.widths) == {rank + 1}  # one for all that is outside


@pytest.mark.parametrize("sharing", ["auto", 0.6])
@pytest.mark.parametrize("base", BASES, ids=["oasis", "scml"])
def test_sparse_rows_equal_dense_rows(base, sharing):
    dense, csr = (make_learner(base, sharing=sharing) for _ in range(2))
    for number, name in enumerate(NAMES):
        X, y = make_task(number)
        X[np.abs(X) < 0.3] = 0.0
        dense.partial_fit(X, y, task=name)
        csr.partial_fit(sparse.csr_matrix(X), y, task=name)
    for name in NAMES:
        np.testing.assert_allclose(csr.metric_matrix(name), dense.metric_matrix(name), atol=1e-8)


@pytest.mark.parametrize("sharing", ["auto", 0.6])
def test_many_features_without_a_square_array(sharing):
    D = 20_000
    X = sparse.random(24, D, density=0.005, random_state=0, format="csr")
    y = np.arange(24) % 3
    learner = make_learner(OASIS(n_steps=100), code_rank=4, sharing=sharing)
    learner.partial_fit(X, y, task="a").partial_fit(X[::-1], y[::-1], task="b")
    learner.partial_fit(X[:12], y[:12], task="a")
    assert learner.state_nbytes_ < 20 * D * 8
    scores = learner.pair_score((X[:3], X[3:6]), task="b")
    assert np.isfinite(scores).all()
    Z = learner.transform(X, task="a")  # a distance between the images is one of the samples
    metric = learner.task_metric("a").psd()
    gap = X[[0]] - X[[1]]
    assert np.sum((Z[0] - Z[1]) ** 2) == pytest.approx(metric.quadratic(gap)[0])


# --- reading ------------------------------------------------------------------------------


@pytest.mark.parametrize("base", BASES, ids=["oasis", "scml"])
def test_readings_agree_with_the_dense_matrix(base):
    learner = learn(make_learner(base_learner=base, sharing=0.6))
    X, _ = make_task(9)
    M = learner.metric_matrix(42)
    values, vectors = np.linalg.eigh((M + M.T) / 2)
    psd = (vectors * np.maximum(values, 0)) @ vectors.T
    Z = learner.transform(X, task=42)
    np.testing.assert_allclose(Z @ Z.T, X @ psd @ X.T, atol=1e-8 * np.abs(values).max())
    distance = learner.get_metric(42)
    gap = X[0] - X[1]
    assert distance(X[0], X[1]) == pytest.approx(np.sqrt(gap @ psd @ gap))
    pairs = np.stack([X[:5], X[5:10]], axis=1)
    if learner.metric_type_ == "similarity":
        expected = np.einsum("na,ab,nb->n", X[:5], M, X[5:10])
    else:
        D = X[:5] - X[5:10]
        expected = -np.einsum("na,ab,nb->n", D, psd, D)
    np.testing.assert_allclose(learner.pair_score(pairs, task=42), expected, rtol=1e-7, atol=1e-9)
    with pytest.raises(ValueError, match=r"5 features.* 7"):
        learner.transform(X[:, :5], task=42)
    KNeighborsClassifier(2, metric=distance).fit(X, np.arange(30) % 2).predict(X[:3])


def test_no_rows_are_kept():
    learner = learn(make_learner(), NAMES)
    learner.partial_fit(*make_task(3), task=NAMES[0])
    rows = np.vstack([make_task(number)[0] for number in range(4)])
    arrays = arrays_of(learner._state)
    assert len(arrays) >= 8  # of three codes and the sum
    for array in arrays:
        assert array.ndim == 1 or len(array) <= 7  # of 30 samples
        for row in rows:
            assert not any(np.array_equal(row, kept) for kept in np.atleast_2d(array))


def test_every_byte_is_counted():
    learner = learn(make_learner(code_rank=3))
    parts = learner.state_parts_
    assert parts["shared"] == 8 * (1 + 4 * 7 + 4)
    assert parts["codes"] == 3 * 8 * (1 + 3 * 7 + 3)
    assert parts["records"] == 3 * 8 * (5 + 3)
    assert learner.state_nbytes_ == sum(parts.values())
    kept = sum(array.nbytes for array in arrays_of(learner._state))
    assert kept <= learner.state_nbytes_


def test_nearest_neighbors_read_the_moving_learner():
    learner = make_learner(sharing=0.6).partial_fit(*make_task(0, n=60), task="t")
    reader = LifelongKNeighborsClassifier(learner, n_neighbors=3)
    X, y = make_task(0, n=60)
    reader.fit(X[:30], y[:30], task="t")
    assert reader.score(X[30:], y[30:], task="t") > 0.6
    learner.partial_fit(*make_task(1), task="other")
    assert 0 <= reader.score(X[30:], y[30:], task="t") <= 1


@pytest.mark.parametrize("size", [1.0, 1e-160, 1e-170, 1e-300])
def test_the_base_learner_is_given_few_sparse_rows_of_any_size_as_dense_ones(size):
    given = []

    class Recorded(OASIS):
        def fit(self, X, y):
            given.append(X / size)
            return super().fit(X, y)

    grams, metrics = [], []
    for form in (np.asarray, sparse.csr_array):
        learner = make_learner(Recorded(n_steps=200), sharing=0.5)
        for number in range(2):
            X, y = make_task(number, n_features=90)
            learner.partial_fit(form(X * size), y, task=number)
        grams.append(given[-1] @ given[-1].T)
        metrics.append(learner.metric_matrix(1))
    np.testing.assert_allclose(grams[1], grams[0], atol=1e-9)
    np.testing.assert_allclose(metrics[1], metrics[0], atol=1e-9)


@pytest.mark.parametrize("base", ["oasis", "scml"])
def test_sparse_rows_with_long_indices(base):
    X, y = make_blobs(40, n_features=6, centers=3, random_state=0)
    long = sparse.csr_array(X)
    long.indices, long.indptr = long.indices.astype(np.int64), long.indptr.astype(np.int64)
    found = [
        LifelongMetricLearner(base, random_state=0).partial_fit(rows, y, task=0).metric_matrix(0)
        for rows in (long, sparse.csr_array(X))
    ]
    np.testing.assert_array_equal(*found)
    assert long.indices.dtype == long.indptr.dtype == np.int64


@pytest.mark.parametrize("base", ["oasis", "scml"])
@pytest.mark.parametrize(
    "names", [["b", "a", "c"], [b"b", b"a", b"c"], [0.5, 1.5, -2.5], [1, "a", (2, "c")], [3, 1, 2]]
)
def test_labels_are_names_of_any_type_for_every_base_and_visit(base, names):
    X, y = make_blobs(40, n_features=6, centers=3, random_state=0)
    labels = np.empty(3, dtype=object)
    labels[:] = names
    metrics = []
    for form in (y, labels[y], labels[y].tolist()):
        learner = LifelongMetricLearner(base, random_state=0)
        learner.partial_fit(X, form, task=0).partial_fit(X[::-1], form[::-1], task=0)
        metrics.append(learner.metric_matrix(0))
    np.testing.assert_array_equal(metrics[1], metrics[0])
    np.testing.assert_array_equal(metrics[2], metrics[0])
    assert learner.tasks_[0].classes == tuple(dict.fromkeys(labels[y].tolist()))


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_a_missing_label_is_named_by_its_row(missing):
    X = np.arange(12.0).reshape(4, 3)
    with pytest.raises(ValueError, match=r"y\[2\] is (None|nan)"):
        LifelongMetricLearner("scml").partial_fit(X, ["a", "b", missing, "a"], task=0)


@pytest.mark.parametrize("names", [[1, "1", 2], [("a",), ("b", 2), "c"], [0.5, 1.5, 2]])
def test_a_table_takes_labels_of_any_type(names):
    X, y = make_task(0)
    table = make_learner().fit(X, [names[code] for code in y], tasks=["t"] * len(y))
    oracle = make_learner().fit(X, y, tasks=["t"] * len(y))
    np.testing.assert_array_equal(table.metric_matrix("t"), oracle.metric_matrix("t"))
    assert table.tasks_["t"].classes == tuple(names)


@pytest.mark.parametrize("bad", [np.nan, np.inf, "continuous"])
def test_labels_that_are_no_names_are_refused_at_every_visit(bad):
    learner = learn(make_learner(), ["t"])
    before, (X, y) = dict(vars(learner)), make_task(1)
    y = y.astype(float)
    y[5:] = np.linspace(0, 1, 25) if bad == "continuous" else bad
    for task in ("t", "new"):
        with pytest.raises(ValueError, match=r"continuous|y\[5\] is"):
            learner.partial_fit(X, y, task=task)
    assert vars(learner) == before


# --- data frames --------------------------------------------------------------------------


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_names_of_columns_are_noted_and_checked(frame, tmp_path):
    def table(X, names="abcdefg"):
        return frame({name: X[:, place] for place, name in enumerate(names)})

    X, y = make_task(0)
    learner = make_learner().partial_fit(table(X), y, task="t")
    plain = make_learner().partial_fit(X, y, task="t")  # rounds otherwise: a frame has columns
    np.testing.assert_allclose(learner.metric_matrix("t"), plain.metric_matrix("t"), atol=1e-8)
    whole = make_learner().fit(table(X), y, tasks=["t"] * 30)
    for one in (learner, whole, save_and_load(learner, tmp_path / "s"), copy.deepcopy(learner)):
        assert one.feature_names_in_.tolist() == list("abcdefg")
        assert one.feature_names_in_.dtype == object
        before = all_of(one)
        for names, said in (("bacdefg", "same order"), ("abcdefz", "unseen at fit time")):
            with pytest.raises(ValueError, match=f"feature names[^$]*{said}"):
                one.partial_fit(table(X, names), y, task="u")
            with pytest.raises(ValueError, match=f"feature names[^$]*{said}"):
                one.transform(table(X, names), task="t")
        with pytest.raises(ValueError, match=r"5 features.* 7"):
            one.partial_fit(table(X[:, :5], "abcde"), y, task="u")
        assert all_of(one) == before
        one.partial_fit(table(X), y, task="u")
        assert one.feature_names_in_.tolist() == list("abcdefg")
    with pytest.warns(UserWarning, match="X does not have valid feature names, but Lifelong"):
        learner.transform(X, task="t")


def test_columns_without_names_leave_no_names():
    X, y = make_task(0)
    for rows in (X, sparse.csr_array(X), pd.DataFrame(X), X.tolist()):
        learner = make_learner().partial_fit(rows, y, task="t")
        assert not hasattr(learner, "feature_names_in_")
        assert learner.n_features_in_ == 7
    mixed = pd.DataFrame(X, columns=[*"abcdef", 3])
    fresh = make_learner()
    with pytest.raises(TypeError, match="Feature names"):
        fresh.partial_fit(mixed, y, task="t")
    assert not hasattr(fresh, "tasks_")


def test_fit_on_rows_without_names_forgets_the_names():
    X, y = make_task(0)
    learner = make_learner().partial_fit(pd.DataFrame(X, columns=list("abcdefg")), y, task="t")
    learner.fit(X, y, tasks=["t"] * 30)
    assert not hasattr(learner, "feature_names_in_")


def test_tags_and_representations():
    learner = learn(make_learner())
    tags = learner.__sklearn_tags__()
    assert tags.input_tags.sparse
    assert tags.target_tags.required
    assert "LifelongMetricLearner" in learner._repr_html_()
    assert "n_components=4" in repr(learner)


class OnFirstHalf(BaseEstimator):
    """Compares samples by half of their features only."""

    metric_type = "distance"

    def fit(self, X, y):
        assert np.isfinite(X).all()
        self.metric_ = FactoredMetric.from_components(np.eye(X.shape[1])[: X.shape[1] // 2])
        return self


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_a_task_of_which_the_shared_metric_sees_nothing_is_learned(form):
    learner = LifelongMetricLearner(OnFirstHalf(), sharing=1.0, random_state=0)
    X = np.zeros((6, 8))
    X[:, :4] = np.random.default_rng(0).normal(size=(6, 4))
    y = [0, 1, 0, 1, 0, 1]
    learner.partial_fit(X, y, task="first half")
    others = np.roll(X, 4, axis=1)
    assert not learner.shared_metric_.apply(others).any()
    learner.partial_fit(form(others), y, task="second half")
    assert np.isfinite(learner.metric_matrix("second half")).all()
