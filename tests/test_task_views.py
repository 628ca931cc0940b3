"""Views of one task, as scikit-learn sees them."""

import copy
import os
import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
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
)
from three_tasks import (
    JOINT,
    LEARNERS,
    NAMES,
    PLDA,
    Told,
    learned,
    rows_of,
    table,
)

from lml.baselines.offdiagonal import OffDiagonalLearner
from lml.lifelong import LifelongMetricLearner
from lml.lmnn import LMNN
from lml.metrics import FactoredMetric
from lml.neighbors import MetricKNeighborsClassifier
from lml.oasis import OASIS
from lml.scml import SCML
from lml.single_task import TaskTransformer

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
        view = learner.as_transformer(name)
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
    view, pairs = learner.as_transformer(42), np.stack([new, new[::-1]], axis=1)
    np.testing.assert_array_equal(view.pair_score(pairs), learner.pair_score(pairs, task=42))
    images = view.transform(new), learner.transform(new, task=42)
    np.testing.assert_allclose(*(cdist(image, image) for image in images), atol=1e-9)


def test_a_view_stays_when_the_learner_goes_on():
    learner = clone(LEARNERS["scml"])
    learner.partial_fit(*rows_of(42), task=42)
    view, rows = learner.as_transformer(42), table()[0]
    assert get_tags(view).target_tags.required
    before, matrix = view.transform(rows), learner.metric_matrix(42)
    for name in ("paris", ("a", 1), 42):
        learner.partial_fit(*rows_of(name, seed=3), task=name)
        np.testing.assert_array_equal(view.transform(rows), before)
    assert np.abs(learner.metric_matrix(42) - matrix).max() > 1e-3  # so there was something to see
    assert np.abs(learner.as_transformer(42).get_mahalanobis_matrix() - matrix).max() > 1e-3
    learner.forget(42)
    np.testing.assert_array_equal(view.transform(rows), before)


@pytest.mark.parametrize("kind", LEARNERS)
def test_nothing_done_to_a_view_reaches_the_learner(kind):
    learner = learned(kind)
    kept = pickle.dumps(learner)
    view = learner.as_transformer("paris")
    view.partial_fit(*rows_of("paris", seed=1)).partial_fit(*rows_of("paris", seed=2))
    view.set_params(learner__n_components=2, learner__sharing=0.9, task="rome")
    view.fit(*rows_of("paris")).set_output(transform="pandas").transform(table()[0])
    assert pickle.dumps(learner) == kept


def test_partial_fit_of_a_view_is_a_revisit_on_a_copy():
    learner, rows = learned(), table()[0]
    view = learner.as_transformer("paris").partial_fit(*rows_of("paris", seed=1))
    learner.partial_fit(*rows_of("paris", seed=1), task="paris")
    np.testing.assert_array_equal(view.transform(rows), learner.transform(rows, task="paris"))
    fresh = TaskTransformer(learner, "new").partial_fit(*rows_of("paris"))
    anew = clone(learner).partial_fit(*rows_of("paris"), task="new")
    np.testing.assert_array_equal(fresh.transform(rows), anew.transform(rows, task="new"))


def test_partial_fit_of_a_view_goes_on_from_what_it_knows():
    learner, new, more = learned(names=["paris"]), table()[0], rows_of("paris", seed=1)
    view, then = learner.as_transformer("paris"), copy.deepcopy(learner)
    twin = copy.copy(view)
    learner.partial_fit(*rows_of(42), task=42)  # the view does not see it
    expected = then.partial_fit(*more, task="paris").transform(new, task="paris")
    for one in (view, twin):  # nor does a copy see what the other learns
        np.testing.assert_array_equal(one.partial_fit(*more).transform(new), expected)
        assert list(one.learner_.tasks_) == ["paris"]


def test_a_clone_of_a_view_knows_nothing_and_learns_anew():
    learner, rows = learned(), table()[0]
    view = clone(learner.as_transformer("paris"))
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


def test_as_transformer_of_an_unknown_task_lists_the_known_ones():
    with pytest.raises(NotFittedError, match="no task has been learned"):
        clone(LEARNERS["oasis"]).as_transformer("paris")
    for learner in (learned(), clone(JOINT["pooled"]).fit(*table()[:2], tasks=table()[2])):
        with pytest.raises(ValueError, match=r"'rome' is not known.*\('a', 1\), 42, 'paris'"):
            learner.as_transformer("rome")


@pytest.mark.parametrize("learner", [SCML(), LifelongMetricLearner, "scml", None])
def test_what_is_no_learner_of_several_tasks_is_refused(learner):
    with pytest.raises(TypeError, match=r"learner is .*learner of several tasks"):
        TaskTransformer(learner).fit(*rows_of(42))


def test_a_fit_that_fails_changes_nothing():
    view, (rows, y) = learned().as_transformer("paris"), rows_of("paris")
    kept, broken = vars(view).copy(), rows.copy()
    broken[3, 1] = np.inf
    for X_, y_ in ((rows, [[]] * len(y)), (broken, y), (rows, y[1:])):
        for method in (view.fit, view.partial_fit):
            with pytest.raises(ValueError, match=r"minimum of 1|inf|inconsistent"):
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
    view = learner.as_transformer(("a", 1))
    np.testing.assert_array_equal(view.transform(rows), learner.transform(rows, task=("a", 1)))
    assert not hasattr(view, "partial_fit")
    alone = clone(view).fit(*rows_of(42))
    expected = clone(JOINT[name]).fit(*rows_of(42), tasks=[("a", 1)] * len(rows_of(42)[1]))
    np.testing.assert_array_equal(alone.transform(rows), expected.transform(rows, task=("a", 1)))
    with pytest.raises(TypeError, match="no partial_fit"):
        TaskTransformer(FrozenEstimator(learner), "new").fit(*rows_of(42))


def test_a_frozen_learner_brings_what_other_tasks_have_taught():
    learner = learned("oasis", [42, ("a", 1)])
    learner.set_params(sharing=0.6)
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


@pytest.mark.parametrize("kind", LEARNERS)
def test_the_metric_classifier_takes_a_view(kind):
    rows, y = rows_of("paris")
    y = np.array(["x", "y", "z"])[y]
    model = MetricKNeighborsClassifier(TaskTransformer(LEARNERS[kind]), 1).fit(rows, y)
    view = TaskTransformer(LEARNERS[kind]).fit(rows, y)
    for asked in (table(seed=5)[0], rows):
        scores = [[view.pair_score([[a, b]])[0] for b in rows] for a in asked]
        nearest = y[np.argmax(scores, axis=1)]
        np.testing.assert_array_equal(model.predict(asked), nearest)
    assert model.score(rows, y) == np.mean(nearest == y)


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
    assert learner.as_transformer(42).feature_names_in_.tolist() == columns
    plain = clone(JOINT[name]).fit(rows, y, tasks=tasks)
    found = learner.as_transformer(42).set_output(transform="pandas").transform(frame)
    np.testing.assert_allclose(found, plain.transform(rows, task=42))
    for reader in (learner.as_transformer(42).transform, lambda X_: learner.transform(X_, task=42)):
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
    view, rows = learned().as_transformer(("a", 1)), table()[0]
    for other in (pickle.loads(pickle.dumps(view)), copy.deepcopy(view), copy.copy(view)):
        np.testing.assert_array_equal(other.transform(rows), view.transform(rows))
        np.testing.assert_array_equal(
            other.partial_fit(*rows_of(("a", 1), seed=1)).transform(rows),
            learned()
            .as_transformer(("a", 1))
            .partial_fit(*rows_of(("a", 1), seed=1))
            .transform(rows),
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
        assert "random_state" in page
    assert "TaskTransformer" in repr(view)


def test_the_one_check_that_scikit_learn_skips():
    """`check_array_api_input` needs an environment variable at import, so a process of its own."""
    program = """
from sklearn.utils.estimator_checks import estimator_checks_generator
from lml import LMNN, OASIS, SCML, LifelongMetricLearner, MetricKNeighborsClassifier
from lml.baselines.offdiagonal import OffDiagonalLearner
from lml.single_task import TaskTransformer

oasis = OASIS(n_steps=50)
lifelong = LifelongMetricLearner(oasis, random_state=0)
off_diagonal = OffDiagonalLearner(n_components=4, tol=1e-2)
learners = [oasis, SCML(8, n_steps=200), LMNN(max_iter=10), off_diagonal, TaskTransformer(lifelong)]
n_run = 0
for estimator in [*learners, MetricKNeighborsClassifier()]:
    for one, check in estimator_checks_generator(estimator):
        if "array_api" in check.func.__name__:
            check(one)
            n_run += 1
print(n_run, "passed")
"""
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}
    command = [sys.executable, "-W", "ignore", "-c", program]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert found.stdout.endswith(" passed\n"), found.stderr
    assert int(found.stdout.split()[0]) >= 2
