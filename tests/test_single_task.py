"""What learners of several tasks are read with, against loops and formulas."""

import doctest
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils import get_tags
from three_tasks import (
    JOINT,
    LEARNERS,
    M,
    Told,
    X,
    Z,
    brute_score,
    learned,
    table,
    told,
)

import lml.single_task
from lml.lifelong import LifelongMetricLearner
from lml.metrics import FactoredMetric


def nearest_psd(A):
    values, vectors = np.linalg.eigh((A + A.T) / 2)
    return (vectors * np.maximum(values, 0)) @ vectors.T


@pytest.mark.parametrize("alpha", [0.0, 0.3])
def test_scores_are_those_of_the_formulas(alpha):
    task, A = ("a", 1), M + alpha * np.eye(4)
    N, pairs = nearest_psd(A), np.stack([X, Z], axis=1)
    assert np.linalg.eigvalsh((A + A.T) / 2)[0] < -0.1
    similar, distant = told("similarity", alpha), told("distance", alpha)
    expected = [sum(x[i] * A[i, j] * z[j] for i in range(4) for j in range(4)) for x, z in pairs]
    np.testing.assert_allclose(similar.pair_score(pairs, task=task), expected)
    squares = [(x - z) @ N @ (x - z) for x, z in pairs]
    np.testing.assert_allclose(distant.pair_score(pairs, task=task), np.negative(squares))
    np.testing.assert_allclose(distant.pair_distance(pairs, task=task), np.sqrt(squares))
    for learner in (similar, distant):
        np.testing.assert_allclose(learner.metric_matrix(task), A)
        np.testing.assert_allclose(learner.get_mahalanobis_matrix(task), N, atol=1e-12)
        images = [learner.transform(rows, task=task) for rows in (X, Z)]
        np.testing.assert_allclose(images[0] @ images[1].T, X @ N @ Z.T, atol=1e-12)
        oracle = cdist(X, Z, lambda x, z: np.sqrt(max((x - z) @ N @ (x - z), 0)))
        np.testing.assert_allclose(cdist(*images), oracle, atol=1e-7)
        distance = pickle.loads(pickle.dumps(learner.get_metric(task)))
        np.testing.assert_allclose(distance(X[0], Z[0]), oracle[0, 0], atol=1e-7)
        np.testing.assert_allclose(distance(X[0], Z[0], squared=True), oracle[0, 0] ** 2)


@pytest.mark.parametrize(("kind", "kept"), [("similarity", M), ("distance", nearest_psd(M))])
def test_a_view_keeps_what_is_indefinite_of_a_similarity_only(kind, kept):
    view = told(kind).as_transformer(("a", 1))
    np.testing.assert_allclose(view.metric_.to_dense(), kept, atol=1e-12)


def test_a_similarity_has_no_distance_of_pairs():
    assert not hasattr(told("similarity"), "pair_distance")
    assert hasattr(told("distance"), "pair_distance")


@pytest.mark.parametrize("method", ["transform", "pair_score", "pair_distance"])
def test_before_any_task_every_method_is_not_fitted(method):
    with pytest.raises(NotFittedError, match="no task has been learned"):
        getattr(Told(), method)(X, task="a")


@pytest.mark.parametrize("method", ["metric_matrix", "get_mahalanobis_matrix", "get_metric"])
def test_before_any_task_every_matrix_is_not_fitted(method):
    with pytest.raises(NotFittedError, match="no task has been learned"):
        getattr(Told(), method)("a")


@pytest.mark.parametrize("kind", ["similarity", "distance"])
@pytest.mark.parametrize(
    "form",
    [
        np.asfortranarray,
        lambda A: A[::-1][::-1],
        np.ndarray.tolist,
        sparse.csr_matrix,
        sparse.coo_array,
        lambda A: pd.DataFrame(A, columns=list("abcd")),
        lambda A: pl.DataFrame(A, schema=list("abcd")),
    ],
)
def test_rows_of_every_form_give_the_same_numbers_and_stay_as_they_are(kind, form):
    learner, task = told(kind), ("a", 1)
    expected = learner.transform(X, task=task)
    given = X.copy()
    given.setflags(write=False)
    np.testing.assert_allclose(learner.transform(form(given), task=task), expected)
    scores = learner.pair_score(np.stack([X, Z], axis=1), task=task)
    if hasattr(form(X), "columns") or sparse.issparse(form(X)):
        found = learner.pair_score((form(X), form(Z)), task=task)
        np.testing.assert_allclose(found, scores)
    np.testing.assert_allclose(learner.transform(X.astype(np.float32), task=task), expected, 1e-5)


@pytest.mark.parametrize("form", [np.asarray, np.ndarray.tolist, sparse.csr_array])
def test_one_sample_is_read_as_it_is_beside_others(form):
    learner = told("distance")
    every = learner.transform(X, task=("a", 1))
    alone = learner.transform(form(X[1:2]), task=("a", 1))
    np.testing.assert_allclose(alone, every[1:2], atol=1e-12)


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
def test_columns_must_be_those_that_were_learned(make):
    learner = told("distance").fit(make(dict(zip("abcd", X.T, strict=True))))
    assert learner.feature_names_in_.tolist() == list("abcd")
    same = make(dict(zip("abcd", Z.T, strict=True)))
    expected = told("distance").transform(Z, task=("a", 1))
    np.testing.assert_allclose(learner.transform(same, task=("a", 1)), expected)
    for names in ("abdc", "abce"):
        with pytest.raises(ValueError, match="feature names should match"):
            learner.transform(make(dict(zip(names, Z.T, strict=True))), task=("a", 1))
    assert not hasattr(learner.fit(Z), "feature_names_in_")


def test_columns_of_sparse_samples_are_counted():
    learner = Told(kind="distance").fit(sparse.csr_array(X))
    assert learner.n_features_in_ == 4


@pytest.mark.parametrize("learner", [*LEARNERS.values(), *JOINT.values()], ids=repr)
def test_labels_are_required_and_said_to_be(learner):
    rows, _, tasks = table()
    assert get_tags(learner).target_tags.required
    assert get_tags(learner)._skip_test  # scikit-learn's checks name no task
    with pytest.raises((TypeError, ValueError)):
        clone(learner).fit(rows, None, tasks=tasks)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("form", [np.array, sparse.csr_array, pd.DataFrame])
def test_a_value_that_is_not_finite_is_located(bad, form):
    learner, rows = told("distance"), X.copy()
    rows[5, 2] = bad
    with pytest.raises(ValueError, match=rf"X\[5, 2\] is {bad}"):
        learner.transform(form(rows), task=("a", 1))
    with pytest.raises(ValueError, match=rf"pairs\[5, 1, 2\] is {bad}"):
        learner.pair_score(np.stack([X, rows], axis=1), task=("a", 1))
    if form is not np.array:
        with pytest.raises(ValueError, match=rf"pairs\[1\]\[5, 2\] is {bad}"):
            learner.pair_score((form(X), form(rows)), task=("a", 1))


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        (X, r"pairs has shape \(9, 4\): pass an array of shape \(n_pairs, 2, 4\)"),
        (np.stack([X, Z, X], axis=1), r"pairs has shape \(9, 3, 4\)"),
        (
            np.stack([X, Z], axis=1)[:, :, :3],
            r"pairs has shape \(9, 2, 3\): pass an array of shape \(n_pairs, 2, 4\)",
        ),
        ((pd.DataFrame(X), pd.DataFrame(Z[1:])), r"shapes \(9, 4\) and \(8, 4\)"),
    ],
)
def test_pairs_of_another_shape_are_refused(pairs, said):
    with pytest.raises(ValueError, match=said):
        told("distance").pair_score(pairs, task=("a", 1))


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (X[:, :3], r"3 features.* 4"),
        (X[0], "X has shape .*two axes"),
        (X[:0], "0 sample"),
        (X + 0j, "Complex data"),
        ([["a", "b", "c", "d"]], "could not convert string"),
    ],
)
def test_rows_of_another_shape_or_kind_are_refused(rows, said):
    with pytest.raises(ValueError, match=said):
        told("distance").transform(rows, task=("a", 1))


@pytest.mark.parametrize("learner", [*LEARNERS.values(), *JOINT.values()], ids=repr)
def test_score_is_the_share_of_rows_whose_nearest_other_row_has_their_label(learner):
    rows, y, tasks = table()
    learner = clone(learner).fit(rows, y, tasks=tasks)
    rows, y, tasks = table(seed=1)
    hits = brute_score(learner, rows, y, tasks)
    assert 0.3 < hits.mean() < 1
    assert learner.score(rows, y, tasks=tasks) == pytest.approx(hits.mean())
    weights = np.arange(len(y))
    expected = hits @ weights / weights.sum()
    assert learner.score(rows, y, weights, tasks=tasks) == pytest.approx(expected)
    labels = np.array(["x", "y", "z"])[y]
    assert learner.score(sparse.csr_array(rows), labels, tasks=iter(tasks)) == pytest.approx(
        hits.mean()
    )


def test_score_reads_out_an_indefinite_distance():
    rows, y, _ = table()
    A = np.diag([3.0, 2.0, 1.0, -1.0, -2.0, -3.0])
    learner = Told([("t", FactoredMetric.from_dense(A))]).fit(rows)
    tasks = ["t"] * len(y)
    gaps = cdist(rows, rows, lambda x, z: (x - z) @ np.maximum(A, 0) @ (x - z))
    np.fill_diagonal(gaps, np.inf)
    expected = np.mean(y[gaps.argmin(axis=1)] == y)
    assert learner.score(rows, y, tasks=tasks) == pytest.approx(expected)
    plain = cdist(rows, rows, lambda x, z: (x - z) @ A @ (x - z))
    np.fill_diagonal(plain, np.inf)
    assert expected != np.mean(y[plain.argmin(axis=1)] == y)


def test_score_refuses_what_has_no_answer():
    rows, y, tasks = table()
    learner = learned()
    for arguments, said in (
        ((rows, y, [*tasks[1:], "rome"]), "'rome' is not known"),
        ((rows, y, tasks[1:]), "inconsistent numbers"),
        (
            (rows[[0, 1, 3]], y[[0, 1, 3]], [tasks[i] for i in (0, 1, 3)]),
            "task 42 has one row, which has no other",
        ),
        ((rows[:1].tolist(), y[:1], tasks[:1]), "has one row, which has no other"),
        ((rows[:, :5], y, tasks), "5 features"),
    ):
        with pytest.raises(ValueError, match=said):
            learner.score(*arguments[:2], tasks=arguments[2])
    with pytest.raises(NotFittedError):
        clone(learner).score(rows, y, tasks=tasks)


def test_examples_in_the_docstrings():
    assert doctest.testmod(lml.single_task).failed == 0


def test_score_names_a_task_of_one_row_and_a_value_that_is_not_finite():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(12, 3)), np.arange(12) % 2
    learner = LifelongMetricLearner("oasis", random_state=0).partial_fit(X, y, task="a")
    learner.partial_fit(X, y, task="b")
    names = ["a"] * 11 + ["b"]
    with pytest.raises(ValueError, match="task 'b' has one row, which has no other: give at least"):
        learner.score(X, y, tasks=names)
    with pytest.raises(TypeError, match=r"tasks\[11\]=\['a'\] is not hashable"):
        learner.score(X, y, tasks=["a"] * 11 + [["a"]])
    X[4, 1] = np.inf
    with pytest.raises(ValueError, match=r"X\[4, 1\] is inf"):
        learner.score(X, y, tasks=["a"] * 12)
