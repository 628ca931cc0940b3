"""What learners of several tasks are read with, against loops and other libraries."""

import copy
import doctest
import itertools
import os
import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score, cross_validate
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import (
    check_get_feature_names_out_error,
    check_global_output_transform_pandas,
    check_global_set_output_transform_polars,
    check_set_output_transform,
    check_set_output_transform_pandas,
    check_set_output_transform_polars,
    check_transformer_get_feature_names_out,
    check_transformer_get_feature_names_out_pandas,
    parametrize_with_checks,
)

import lml.single_task
from lml.baselines.ella import ELLA
from lml.baselines.mtlmnn import MultiTaskLMNN
from lml.baselines.mtscml import MultiTaskSCML
from lml.baselines.offdiagonal import OffDiagonalLearner
from lml.baselines.omtrsl import MultiTaskOASIS
from lml.baselines.pooled import PooledMetricLearner
from lml.evaluation import LifelongKNeighborsClassifier
from lml.lifelong import LifelongMetricLearner
from lml.lmnn import LMNN
from lml.metrics import FactoredMetric
from lml.neighbors import MetricKNeighborsClassifier
from lml.oasis import OASIS
from lml.plda import LifelongPLDA
from lml.scml import SCML
from lml.single_task import TaskMetricsMixin, TaskTransformer

RNG = np.random.default_rng(0)
X, Z = RNG.normal(size=(9, 4)), RNG.normal(size=(9, 4))
M = RNG.normal(size=(4, 4))


class Told(TaskMetricsMixin, BaseEstimator):
    """A learner that is told its metrics."""

    def __init__(self, metrics=(), kind="distance"):
        self.metrics, self.kind = metrics, kind

    def fit(self, X):
        self.metric_type_ = self.kind
        self._note_columns(X)
        return self

    def task_metric(self, task):
        if not hasattr(self, "metric_type_"):
            raise NotFittedError("no task has been learned")
        return dict(self.metrics)[task]


def told(kind, alpha=0.0):
    metric = FactoredMetric.from_dense(M) + FactoredMetric.identity(4, alpha)
    return Told([(("a", 1), metric)], kind).fit(X)


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
    np.testing.assert_allclose(distant.pair_distance(pairs, task=task), squares)
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
        (np.stack([X, Z], axis=1)[:, :, :3], r"pairs has shape \(9, 2, 3\): .*\(n_pairs, 2, 4\)"),
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
        (X[0], "Expected 2D array"),
        (X[:0], "0 sample"),
        (X + 0j, "Complex data"),
        ([["a", "b", "c", "d"]], "could not convert string"),
    ],
)
def test_rows_of_another_shape_or_kind_are_refused(rows, said):
    with pytest.raises(ValueError, match=said):
        told("distance").transform(rows, task=("a", 1))


# The view of one task

SCML_SMALL = SCML(n_basis=8, n_steps=200)
LEARNERS = {
    "oasis": LifelongMetricLearner(OASIS(n_steps=50), 4, n_triplets=100, random_state=0),
    "scml": LifelongMetricLearner(SCML_SMALL, 4, dictionary_steps=2, random_state=0),
}
JOINT = {
    "pooled": PooledMetricLearner(clone(SCML_SMALL).set_params(random_state=0)),
    "mtscml": MultiTaskSCML(n_basis=8, n_steps=300, random_state=0),
    "mtlmnn": MultiTaskLMNN(max_iter=5),
    "omtrsl": MultiTaskOASIS(n_steps=100, random_state=0),
}
NAMES = [("a", 1), 42, "paris"]


def table(n=72, D=6, seed=0):
    """Rows of three tasks with three classes each, in turn."""
    rng = np.random.default_rng(seed)
    y, tasks = np.arange(n) % 3, np.arange(n) // 3 % 3
    rows = rng.normal(size=(3, 3, D))[tasks, y] + 0.7 * rng.normal(size=(n, D))
    return rows, y, [NAMES[t] for t in tasks]


def rows_of(name, seed=0):
    rows, y, tasks = table(seed=seed)
    own = [t == name for t in tasks]
    return rows[own], y[own]


def learned(kind="scml", names=NAMES):
    learner = clone(LEARNERS[kind])
    for name in names:
        learner.partial_fit(*rows_of(name), task=name)
    return learner


PLDA = LifelongPLDA(n_components=6, n_folds=2, random_state=0)


@parametrize_with_checks([TaskTransformer(learner) for learner in (*LEARNERS.values(), PLDA)])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


CONTAINER_CHECKS = [
    check_get_feature_names_out_error,
    check_transformer_get_feature_names_out,
    check_transformer_get_feature_names_out_pandas,
    check_set_output_transform,
    check_set_output_transform_pandas,
    check_global_output_transform_pandas,
    check_set_output_transform_polars,
    check_global_set_output_transform_polars,
]


@pytest.mark.filterwarnings("ignore:X (does not have valid|has) feature names")  # the checks' own
@pytest.mark.parametrize("check", CONTAINER_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize(
    "estimator",
    [
        TaskTransformer(LEARNERS["oasis"]),
        TaskTransformer(LEARNERS["scml"]),
        OASIS(n_steps=50, random_state=0),
        SCML(n_basis=8, n_steps=200, random_state=0),
        LMNN(max_iter=20),
        OffDiagonalLearner(n_components=4, tol=1e-2, random_state=0),
    ],
    ids=lambda estimator: repr(estimator)[:30],
)
def test_scikit_learn_containers(estimator, check):
    check(type(estimator).__name__, estimator)


@pytest.mark.parametrize("kind", LEARNERS)
def test_a_view_answers_as_its_learner(kind):
    learner, pairs = learned(kind), np.stack([table(seed=1)[0][:9], table(seed=2)[0][:9]], axis=1)
    for name in NAMES:
        view = learner.for_task(name)
        rows = pairs[:, 0]
        np.testing.assert_array_equal(view.transform(rows), learner.transform(rows, task=name))
        expected = learner.pair_score(pairs, task=name)
        np.testing.assert_allclose(view.pair_score(pairs), expected, rtol=1e-9, atol=1e-12)
        assert view.metric_type == learner.metric_type_
        assert hasattr(view, "pair_distance") == (kind == "scml")
        matrix = learner.get_mahalanobis_matrix(name)
        np.testing.assert_allclose(view.get_mahalanobis_matrix(), matrix, atol=1e-12)
        L = view.components_
        np.testing.assert_allclose(rows @ L.T, view.transform(rows), atol=1e-12)
        assert len(L) == len(view.get_feature_names_out())
        assert view.get_metric()(*pairs[0]) == pytest.approx(learner.get_metric(name)(*pairs[0]))
        assert view.n_features_in_ == 6


def test_a_view_of_a_log_ratio_ranks_and_measures_as_its_learner():
    learner, new = clone(PLDA), table(seed=1)[0]
    for name in NAMES:
        learner.partial_fit(*rows_of(name), task=name)
    view, pairs = learner.for_task(42), np.stack([new, new[::-1]], axis=1)
    np.testing.assert_array_equal(view.pair_score(pairs), learner.pair_score(pairs, task=42))
    images = view.transform(new), learner.transform(new, task=42)
    np.testing.assert_allclose(*(cdist(image, image) for image in images), atol=1e-9)


def test_a_view_stays_when_the_learner_goes_on():
    learner = clone(LEARNERS["scml"]).set_params(old_tasks="codes", dictionary_rate=0.5)
    learner.partial_fit(*rows_of(42), task=42)
    view, rows = learner.for_task(42), table()[0]
    before, matrix = view.transform(rows), learner.metric_matrix(42)
    for name in ("paris", ("a", 1), 42):
        learner.partial_fit(*rows_of(name, seed=3), task=name)
        np.testing.assert_array_equal(view.transform(rows), before)
    assert np.abs(learner.metric_matrix(42) - matrix).max() > 1e-3  # so there was something to see
    assert np.abs(learner.for_task(42).get_mahalanobis_matrix() - matrix).max() > 1e-3
    learner.forget(42)
    np.testing.assert_array_equal(view.transform(rows), before)


@pytest.mark.parametrize("kind", LEARNERS)
def test_nothing_done_to_a_view_reaches_the_learner(kind):
    learner = learned(kind)
    kept = pickle.dumps(learner)
    view = learner.for_task("paris")
    view.partial_fit(*rows_of("paris", seed=1)).partial_fit(*rows_of("paris", seed=2))
    view.set_params(learner__n_components=2, learner__code_penalty=9.0, task="rome")
    view.fit(*rows_of("paris")).set_output(transform="pandas").transform(table()[0])
    assert pickle.dumps(learner) == kept


def test_partial_fit_of_a_view_is_a_revisit_on_a_copy():
    learner, rows = learned(), table()[0]
    view = learner.for_task("paris").partial_fit(*rows_of("paris", seed=1))
    learner.partial_fit(*rows_of("paris", seed=1), task="paris")
    np.testing.assert_array_equal(view.transform(rows), learner.transform(rows, task="paris"))
    fresh = TaskTransformer(learner, "new").partial_fit(*rows_of("paris"))
    anew = clone(learner).partial_fit(*rows_of("paris"), task="new")
    np.testing.assert_array_equal(fresh.transform(rows), anew.transform(rows, task="new"))


def test_partial_fit_of_a_view_goes_on_from_what_it_knows():
    learner, new, more = learned(names=["paris"]), table()[0], rows_of("paris", seed=1)
    view, then = learner.for_task("paris"), copy.deepcopy(learner)
    twin = copy.copy(view)
    learner.partial_fit(*rows_of(42), task=42)  # the view does not see it
    expected = then.partial_fit(*more, task="paris").transform(new, task="paris")
    for one in (view, twin):  # nor does a copy see what the other learns
        np.testing.assert_array_equal(one.partial_fit(*more).transform(new), expected)
        assert list(one.learner_.tasks_) == ["paris"]


def test_a_clone_of_a_view_knows_nothing_and_learns_anew():
    learner, rows = learned(), table()[0]
    view = clone(learner.for_task("paris"))
    with pytest.raises(NotFittedError):
        view.transform(rows)
    view.fit(*rows_of("paris", seed=1))
    assert list(view.learner_.tasks_) == ["paris"]
    alone = clone(LEARNERS["scml"]).partial_fit(*rows_of("paris", seed=1), task="paris")
    np.testing.assert_array_equal(view.transform(rows), alone.transform(rows, task="paris"))


@pytest.mark.parametrize(
    "method", ["transform", "pair_score", "pair_distance", "get_feature_names_out"]
)
def test_a_view_that_has_not_been_fitted_says_so(method):
    with pytest.raises(NotFittedError):
        getattr(TaskTransformer(LEARNERS["oasis"]), method)(table()[0])
    for name in ("get_metric", "get_mahalanobis_matrix"):
        with pytest.raises(NotFittedError):
            getattr(TaskTransformer(LEARNERS["oasis"]), name)()
    assert not hasattr(TaskTransformer(LEARNERS["oasis"]), "components_")


def test_for_task_of_an_unknown_task_lists_the_known_ones():
    with pytest.raises(NotFittedError, match="no task has been learned"):
        clone(LEARNERS["oasis"]).for_task("paris")
    for learner in (learned(), clone(JOINT["pooled"]).fit(*table()[:2], tasks=table()[2])):
        with pytest.raises(ValueError, match=r"'rome' is not known.*\('a', 1\), 42, 'paris'"):
            learner.for_task("rome")


@pytest.mark.parametrize("learner", [SCML(), LifelongMetricLearner, "scml", None])
def test_what_is_no_learner_of_several_tasks_is_refused(learner):
    with pytest.raises(TypeError, match=r"learner is .*learner of several tasks"):
        TaskTransformer(learner).fit(*rows_of(42))


def test_a_fit_that_fails_changes_nothing():
    view, (rows, y) = learned().for_task("paris"), rows_of("paris")
    kept, broken = vars(view).copy(), rows.copy()
    broken[3, 1] = np.inf
    for X_, y_ in ((rows, ["one"] * len(y)), (rows[:2], y[:2]), (broken, y), (rows, y[1:])):
        for method in (view.fit, view.partial_fit):
            with pytest.raises(ValueError, match=r"class|minimum of 3|inf|inconsistent"):
                method(X_, y_)
            assert vars(view) == kept
    with pytest.raises(ValueError, match=r"5 features.*6"):
        view.partial_fit(rows[:, :5], y)
    assert vars(view) == kept


class Trusting(Told):
    """A learner that checks nothing."""

    def fit(self, X, y, *, tasks):
        return super().fit(X)

    def task_metric(self, task):
        return FactoredMetric.identity(6)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_view_checks_rows_for_a_learner_that_does_not(bad):
    rows, y = rows_of(42)
    rows[4, 3] = bad
    with pytest.raises(ValueError, match=rf"X\[4, 3\] is {bad}"):
        TaskTransformer(Trusting()).fit(rows, y)


@pytest.mark.parametrize("name", JOINT)
def test_views_of_joint_learners(name):
    rows, y, tasks = table()
    learner = clone(JOINT[name]).fit(rows, y, tasks=tasks)
    view = learner.for_task(("a", 1))
    np.testing.assert_array_equal(view.transform(rows), learner.transform(rows, task=("a", 1)))
    assert not hasattr(view, "partial_fit")
    alone = clone(view).fit(*rows_of(42))
    expected = clone(JOINT[name]).fit(*rows_of(42), tasks=[("a", 1)] * len(rows_of(42)[1]))
    np.testing.assert_array_equal(alone.transform(rows), expected.transform(rows, task=("a", 1)))
    with pytest.raises(TypeError, match="no partial_fit"):
        TaskTransformer(FrozenEstimator(learner), "new").fit(*rows_of(42))


def test_a_frozen_learner_brings_what_other_tasks_have_taught():
    learner = learned("oasis", [42, ("a", 1)])
    learner.set_params(warm_start_from_dictionary=True)
    kept, (rows, y) = pickle.dumps(learner), rows_of("paris")
    view = clone(TaskTransformer(FrozenEstimator(learner), "paris")).fit(rows, y)
    assert list(view.learner_.tasks_) == [42, ("a", 1), "paris"]
    assert pickle.dumps(learner) == kept
    np.testing.assert_array_equal(
        view.transform(rows),
        copy.deepcopy(learner).partial_fit(rows, y, task="paris").transform(rows, task="paris"),
    )
    with pytest.raises(ValueError, match="knows task 42"):
        TaskTransformer(FrozenEstimator(learner), 42).fit(rows, y)
    with pytest.raises(ValueError, match="frozen"):
        view.set_params(learner__n_components=2)


def test_pipeline_and_search_against_loops():
    rows, y = rows_of("paris")
    rows, y = np.vstack([rows, rows_of("paris", 1)[0]]), np.concatenate([y, y])
    view, folds = learned().for_task("paris"), StratifiedKFold(3)
    model = make_pipeline(StandardScaler(), view, KNeighborsClassifier(1))
    name = "tasktransformer__learner__"
    grid = {name + "n_components": [1, 4], name + "code_penalty": [0.0, 2.0]}
    search = GridSearchCV(model, grid, cv=folds).fit(rows, y)
    scores = []
    for d, penalty in itertools.product([1, 4], [0.0, 2.0]):
        hits = []
        for fit_rows, held_out in folds.split(rows, y):
            scaler = StandardScaler().fit(rows[fit_rows])
            a, b = scaler.transform(rows[fit_rows]), scaler.transform(rows[held_out])
            learner = clone(LEARNERS["scml"]).set_params(n_components=d, code_penalty=penalty)
            learner.partial_fit(a, y[fit_rows], task="paris")
            gaps = cdist(learner.transform(b, task="paris"), learner.transform(a, task="paris"))
            hits.append(np.mean(y[fit_rows][gaps.argmin(axis=1)] == y[held_out]))
        scores.append(np.mean(hits))
    found = dict(
        zip(
            map(str, search.cv_results_["params"]),
            search.cv_results_["mean_test_score"],
            strict=True,
        )
    )
    keys = [
        {name + "n_components": d, name + "code_penalty": p} for d in (1, 4) for p in (0.0, 2.0)
    ]
    np.testing.assert_allclose([found[str(dict(sorted(key.items())))] for key in keys], scores)
    assert len(set(scores)) > 1
    assert search.predict(rows).shape == y.shape
    np.testing.assert_allclose(cross_val_score(model, rows, y, cv=folds).mean(), scores[2])


def test_a_frozen_view_in_a_pipeline_keeps_what_it_knows():
    view, rows = learned().for_task("paris"), table()[0]
    model = make_pipeline(FrozenEstimator(view), KNeighborsClassifier(1))
    model.fit(*rows_of("paris", seed=1))
    np.testing.assert_array_equal(model[:-1].transform(rows), view.transform(rows))


@pytest.mark.parametrize("kind", LEARNERS)
def test_the_metric_classifier_takes_a_view(kind):
    rows, y = rows_of("paris")
    y = np.array(["x", "y", "z"])[y]
    model = MetricKNeighborsClassifier(TaskTransformer(LEARNERS[kind]), 1).fit(rows, y)
    assert model.score(rows, y) > 0.9
    view = TaskTransformer(LEARNERS[kind]).fit(rows, y)
    scores = [[view.pair_score([[a, b]])[0] for b in rows] for a in table(seed=5)[0]]
    np.testing.assert_array_equal(model.predict(table(seed=5)[0]), y[np.argmax(scores, axis=1)])


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize("output", ["pandas", "polars"])
def test_data_frames_in_and_out(make, output):
    rows, y = rows_of("paris")
    columns = [f"c{i}" for i in range(6)]
    frame = make(dict(zip(columns, rows.T, strict=True)))
    view = TaskTransformer(LEARNERS["scml"]).set_output(transform=output).fit(frame, y)
    assert view.feature_names_in_.tolist() == columns
    found = view.transform(frame)
    assert type(found).__module__.startswith(output)
    assert list(found.columns) == [f"tasktransformer{i}" for i in range(found.shape[1])]
    plain = TaskTransformer(LEARNERS["scml"]).fit(rows, y).transform(rows)
    np.testing.assert_allclose(found.to_numpy(), plain, rtol=1e-9)  # columns, not rows in memory
    with pytest.raises(ValueError, match="feature names should match"):
        view.transform(frame[columns[::-1]])
    with pytest.raises(ValueError, match="feature names should match"):
        view.partial_fit(frame[columns[::-1]], y)


@pytest.mark.parametrize("name", JOINT)
@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
def test_joint_learners_know_the_columns_of_a_frame(name, make):
    rows, y, tasks = table()
    columns = [f"c{i}" for i in range(6)]
    frame = make(dict(zip(columns, rows.T, strict=True)))
    learner = clone(JOINT[name]).fit(frame, y, tasks=tasks)
    assert learner.feature_names_in_.tolist() == columns
    assert learner.for_task(42).feature_names_in_.tolist() == columns
    plain = clone(JOINT[name]).fit(rows, y, tasks=tasks)
    found = learner.for_task(42).set_output(transform="pandas").transform(frame)
    np.testing.assert_allclose(found, plain.transform(rows, task=42))
    for reader in (learner.for_task(42).transform, lambda X_: learner.transform(X_, task=42)):
        with pytest.raises(ValueError, match="feature names should match"):
            reader(frame[columns[::-1]])
    assert not hasattr(learner.fit(rows, y, tasks=tasks), "feature_names_in_")
    assert plain.n_features_in_ == 6


def test_sparse_rows_where_the_learner_takes_them():
    rows, y = rows_of("paris")
    for kind, learner in LEARNERS.items():
        view, dense = (
            TaskTransformer(learner).fit(f(rows), y) for f in (sparse.csr_array, np.array)
        )
        np.testing.assert_allclose(
            view.get_mahalanobis_matrix(), dense.get_mahalanobis_matrix(), atol=1e-6, err_msg=kind
        )
        assert get_tags(view).input_tags.sparse
    assert not get_tags(TaskTransformer(JOINT["mtlmnn"])).input_tags.sparse
    with pytest.raises(TypeError, match="X is sparse"):
        TaskTransformer(JOINT["mtlmnn"]).fit(sparse.csr_array(rows), y)


def test_labels_of_other_types_give_the_same_view():
    rows, y = rows_of("paris")
    expected = TaskTransformer(LEARNERS["scml"]).fit(rows, y).transform(rows)
    for names in (["b", "a", "C"], [9, 7, 8], [(0,), (1,), "x"], [2.5, 0.5, 1.5]):
        labels = [names[label] for label in y]
        found = TaskTransformer(LEARNERS["scml"]).fit(rows, labels)
        np.testing.assert_array_equal(found.transform(rows), expected)
        assert set(found.learner_.tasks_["task"].classes) == set(names)


def test_pickle_copy_and_html():
    view, rows = learned().for_task(("a", 1)), table()[0]
    for other in (pickle.loads(pickle.dumps(view)), copy.deepcopy(view), copy.copy(view)):
        np.testing.assert_array_equal(other.transform(rows), view.transform(rows))
        np.testing.assert_array_equal(
            other.partial_fit(*rows_of(("a", 1), seed=1)).transform(rows),
            learned().for_task(("a", 1)).partial_fit(*rows_of(("a", 1), seed=1)).transform(rows),
        )
    for model in (
        view,
        clone(view),
        make_pipeline(StandardScaler(), view),
        learned(),
        learned("oasis"),
    ):
        page = model._repr_html_()
        assert "LifelongMetricLearner" in page
        assert "n_components" in page
    assert "TaskTransformer" in repr(view)


# A table of several tasks


def brute_score(learner, rows, y, tasks):
    hits = []
    for i in range(len(y)):
        others = [j for j in range(len(y)) if j != i and tasks[j] == tasks[i]]
        pairs = np.array([[rows[i], rows[j]] for j in others])
        hits.append(y[others[np.argmax(learner.pair_score(pairs, task=tasks[i]))]] == y[i])
    return np.array(hits, dtype=float)


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
        ((rows[:, :5], y, tasks), "5 features"),
    ):
        with pytest.raises(ValueError, match=said):
            learner.score(*arguments[:2], tasks=arguments[2])
    with pytest.raises(NotFittedError):
        clone(learner).score(rows, y, tasks=tasks)


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


BEFORE_1_8 = tuple(map(int, sklearn.__version__.split(".")[:2])) < (1, 8)
ALL_LEARNERS = pytest.mark.parametrize(
    "learner", [*LEARNERS.values(), *JOINT.values()], ids=lambda learner: repr(learner)[:30]
)


def folds_of(rows, y, tasks):
    """Two folds with every class of every task in both."""
    keys = [f"{t}{label}" for t, label in zip(tasks, y, strict=True)]
    return list(StratifiedKFold(2).split(rows, keys))


@ALL_LEARNERS
@pytest.mark.usefixtures("routing")
def test_tasks_go_through_a_pipeline(learner):
    rows, y, tasks = table()
    step = clone(learner).set_fit_request(tasks=True).set_transform_request(task=True)
    model = make_pipeline(StandardScaler(), step).fit(rows, y, tasks=tasks)
    scaled = StandardScaler().fit_transform(rows)
    alone = clone(learner).fit(scaled, y, tasks=tasks)
    expected = alone.transform(scaled, task="paris")
    np.testing.assert_array_equal(model.transform(rows, task="paris"), expected)
    with pytest.raises(sklearn.exceptions.UnsetMetadataPassedError, match="tasks"):
        make_pipeline(StandardScaler(), clone(learner)).fit(rows, y, tasks=tasks)


@ALL_LEARNERS
@pytest.mark.parametrize(
    "in_pipeline",
    [
        False,
        pytest.param(
            True,
            marks=pytest.mark.skipif(
                BEFORE_1_8, reason="before 1.8, cross_validate hands nothing to a pipeline's score"
            ),
        ),
    ],
)
@pytest.mark.usefixtures("routing")
def test_tasks_go_through_a_cross_validation(learner, in_pipeline):
    rows, y, tasks = table(144)
    folds = folds_of(rows, y, tasks)
    model = clone(learner).set_fit_request(tasks=True).set_score_request(tasks=True)
    scaler = FrozenEstimator(StandardScaler().fit(rows))
    if in_pipeline:
        model = make_pipeline(scaler, model)
    found = cross_validate(model, rows, y, cv=folds, params={"tasks": tasks}, error_score="raise")
    rows = scaler.transform(rows) if in_pipeline else rows
    for (fit_rows, held_out), score in zip(folds, found["test_score"], strict=True):
        parts = [[tasks[i] for i in own] for own in (fit_rows, held_out)]
        alone = clone(learner).fit(rows[fit_rows], y[fit_rows], tasks=parts[0])
        assert score == pytest.approx(
            brute_score(alone, rows[held_out], y[held_out], parts[1]).mean()
        )


@pytest.mark.usefixtures("routing")
def test_a_search_over_all_tasks_together():
    rows, y, tasks = table()
    learner = clone(LEARNERS["scml"]).set_fit_request(tasks=True).set_score_request(tasks=True)
    folds = folds_of(rows, y, tasks)
    search = GridSearchCV(learner, {"n_components": [1, 4]}, cv=folds).fit(rows, y, tasks=tasks)
    assert list(search.best_estimator_.tasks_) == NAMES
    assert search.cv_results_["mean_test_score"][1] > search.cv_results_["mean_test_score"][0]


@pytest.mark.usefixtures("routing")
def test_ella_is_fitted_and_asked_through_a_pipeline():
    rows, y, tasks = table()
    step = ELLA(n_components=2, random_state=0).set_fit_request(tasks=True)
    for request in (
        step.set_predict_request,
        step.set_score_request,
        step.set_decision_function_request,
    ):
        request(task=True)
    model = make_pipeline(StandardScaler(), step).fit(rows, y, tasks=tasks)
    scaled = StandardScaler().fit_transform(rows)
    alone = ELLA(n_components=2, random_state=0).fit(scaled, y, tasks=tasks)
    np.testing.assert_array_equal(model.predict(rows, task=42), alone.predict(scaled, task=42))
    np.testing.assert_array_equal(
        model.decision_function(rows, task=42), alone.decision_function(scaled, task=42)
    )


@pytest.mark.usefixtures("routing")
def test_references_of_a_task_go_through_a_pipeline():
    rows, y = rows_of("paris")
    knn = LifelongKNeighborsClassifier(learned(), n_neighbors=1)
    for request in (knn.set_fit_request, knn.set_predict_request, knn.set_score_request):
        request(task=True)
    model = make_pipeline(FrozenEstimator(StandardScaler().fit(rows)), knn)
    model.fit(rows, y, task="paris")
    scaled = model[0].transform(rows)
    alone = LifelongKNeighborsClassifier(learned(), 1).fit(scaled, y, task="paris")
    new = table(seed=1)[0]
    found = model.predict(new, task="paris")
    np.testing.assert_array_equal(found, alone.predict(model[0].transform(new), task="paris"))


def test_the_one_check_that_scikit_learn_skips():
    """`check_array_api_input` needs an environment variable at import, so a process of its own."""
    program = """
from sklearn.utils.estimator_checks import check_estimator
from lml import LMNN, OASIS, SCML, LifelongMetricLearner, MetricKNeighborsClassifier
from lml.baselines.offdiagonal import OffDiagonalLearner
from lml.single_task import TaskTransformer

oasis = OASIS(n_steps=50)
lifelong = LifelongMetricLearner(oasis, 4, n_triplets=100, random_state=0)
off_diagonal = OffDiagonalLearner(n_components=4, tol=1e-2)
learners = [oasis, SCML(8, n_steps=200), LMNN(max_iter=10), off_diagonal, TaskTransformer(lifelong)]
for estimator in [*learners, MetricKNeighborsClassifier()]:
    for outcome in check_estimator(estimator, on_fail="raise", on_skip=None):
        assert outcome["status"] == "passed", outcome
print("all passed")
"""
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}
    command = [sys.executable, "-W", "ignore", "-c", program]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert found.stdout == "all passed\n", found.stderr


def test_examples_in_the_docstrings():
    assert doctest.testmod(lml.single_task).failed == 0


def test_score_names_a_task_of_one_row_and_a_value_that_is_not_finite():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(12, 3)), np.arange(12) % 2
    learner = LifelongMetricLearner("oasis", 2, random_state=0).partial_fit(X, y, task="a")
    learner.partial_fit(X, y, task="b")
    names = ["a"] * 11 + ["b"]
    with pytest.raises(ValueError, match="task 'b' has one row, which has no other: give at least"):
        learner.score(X, y, tasks=names)
    with pytest.raises(TypeError, match=r"tasks\[11\]=\['a'\] is not hashable"):
        learner.score(X, y, tasks=["a"] * 11 + [["a"]])
    X[4, 1] = np.inf
    with pytest.raises(ValueError, match=r"X\[4, 1\] is inf"):
        learner.score(X, y, tasks=["a"] * 12)
