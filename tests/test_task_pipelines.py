"""Tasks that go through the pipelines, searches and cross-validations of scikit-learn."""

import itertools

import numpy as np
import pytest
import sklearn
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score, cross_validate
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from three_tasks import JOINT, LEARNERS, NAMES, brute_score, learned, rows_of, table

from lml.baselines.ella import ELLA
from lml.evaluation import LifelongKNeighborsClassifier


def test_pipeline_and_search_against_loops():
    # each class has four means, so that not all settings make as many mistakes
    rows, y = map(np.concatenate, zip(*(rows_of("paris", seed) for seed in range(4)), strict=True))
    view, folds = learned().as_transformer("paris"), StratifiedKFold(3)
    model = make_pipeline(StandardScaler(), view, KNeighborsClassifier(1))
    name = "tasktransformer__learner__"
    grid = {name + "code_rank": [0, 20], name + "base_learner__n_basis": [4, 8]}
    search = GridSearchCV(model, grid, cv=folds).fit(rows, y)
    scores = []
    for rank, n_basis in itertools.product([0, 20], [4, 8]):
        hits = []
        for fit_rows, held_out in folds.split(rows, y):
            scaler = StandardScaler().fit(rows[fit_rows])
            a, b = scaler.transform(rows[fit_rows]), scaler.transform(rows[held_out])
            learner = clone(LEARNERS["scml"])
            learner.set_params(code_rank=rank, base_learner__n_basis=n_basis)
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
        {name + "code_rank": rank, name + "base_learner__n_basis": n_basis}
        for rank in (0, 20)
        for n_basis in (4, 8)
    ]
    np.testing.assert_allclose([found[str(dict(sorted(key.items())))] for key in keys], scores)
    assert len(set(scores)) > 1
    assert search.predict(rows).shape == y.shape
    np.testing.assert_allclose(cross_val_score(model, rows, y, cv=folds).mean(), scores[3])


def test_a_frozen_view_in_a_pipeline_keeps_what_it_knows():
    view, rows = learned().as_transformer("paris"), table()[0]
    model = make_pipeline(FrozenEstimator(view), KNeighborsClassifier(1))
    model.fit(*rows_of("paris", seed=1))
    np.testing.assert_array_equal(model[:-1].transform(rows), view.transform(rows))


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
    search = GridSearchCV(learner, {"code_rank": [0, 20]}, cv=folds).fit(rows, y, tasks=tasks)
    assert list(search.best_estimator_.tasks_) == NAMES
    scores = search.cv_results_["mean_test_score"]
    best, other = (
        clone(learner).set_params(code_rank=rank).fit(rows, y, tasks=tasks)
        for rank in ([0, 20] if scores[0] >= scores[1] else [20, 0])
    )
    for name in NAMES:
        found = search.best_estimator_.metric_matrix(name)
        np.testing.assert_array_equal(found, best.metric_matrix(name))
        assert not np.array_equal(found, other.metric_matrix(name))


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
