"""scikit-learn's checks of every public estimator, with an empty list of expected failures.

A learner of several tasks asks for `task` or `tasks`, which the checks do not give: its tags say
so, and what can be checked is a view of one of its tasks. A classifier of pairs asks for arrays
(n_pairs, 2, n_features), which its tags say, too.
"""

import importlib
import inspect

import numpy as np
import pytest
from registry import (
    ELLA,
    ENTRIES,
    OPEN_SET_CLASSIFIERS,
    PAIR_CLASSIFIERS,
    LifelongKNeighborsClassifier,
    samples,
)
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.exceptions import NotFittedError, SkipTestWarning
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

from lml.single_task import TaskTransformer

SINGLE = [entry.make() for entry in ENTRIES if entry.kind == "single"]
SEVERAL = [entry.make() for entry in ENTRIES if entry.kind != "single"]
VIEWS = [TaskTransformer(learner) for learner in SEVERAL if hasattr(learner, "task_metric")]


def test_every_public_estimator_is_checked():
    public = set()
    for name in (
        "lml",
        "lml.baselines",
        "lml.plda",
        "lml.paper",
        "lml.neighbors",
        "lml.single_task",
        "lml.weak_supervision",
    ):
        module = importlib.import_module(name)
        public |= {
            value for value in map(vars(module).get, module.__all__) if inspect.isclass(value)
        }
    estimators = {kind for kind in public if issubclass(kind, BaseEstimator)}
    thresholds = *PAIR_CLASSIFIERS, *OPEN_SET_CLASSIFIERS
    checked = {type(one) for one in (*SINGLE, *SEVERAL, *VIEWS, *thresholds)}
    assert estimators <= checked
    unseen = {type(one) for one in SEVERAL} - {type(view.learner) for view in VIEWS}
    assert unseen == {ELLA, LifelongKNeighborsClassifier}  # classifiers: no view of a metric


# labels drawn at random may allow no metric: scikit-learn's checks bring such rows
@pytest.mark.filterwarnings("ignore:no weights lowered")
@pytest.mark.filterwarnings("ignore:.*has the mean hinge")  # on noise
@pytest.mark.filterwarnings("ignore:the mean of the samples")  # theirs are not centered
@pytest.mark.slow
@parametrize_with_checks([*SINGLE, *VIEWS], expected_failed_checks=lambda _: {})
def test_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize("learner", SEVERAL, ids=str)
def test_tags_of_learners_of_several_tasks(learner):
    with pytest.warns(SkipTestWarning, match="Explicit SKIP via _skip_test"):
        found = check_estimator(learner, on_skip="warn", on_fail="raise")
    assert {check["status"] for check in found} == {"passed"}
    tags = get_tags(learner)
    assert tags.target_tags.required
    assert (tags.transformer_tags is not None) == hasattr(learner, "transform")
    assert is_classifier(learner) == hasattr(learner, "predict")
    assert clone(learner).get_params().keys() == learner.get_params().keys()
    dense_only = learner.get_params().get("max_iter") == 10  # MultiTaskLMNN
    assert tags.input_tags.sparse != dense_only


@pytest.mark.parametrize("model", PAIR_CLASSIFIERS, ids=str)
def test_tags_of_classifiers_of_pairs(model):
    with pytest.warns(SkipTestWarning, match="three_d_array=True"):
        found = check_estimator(model, on_skip="warn", on_fail="raise")
    assert {check["status"] for check in found} == {"passed"}
    assert is_classifier(model)
    X, y = samples()
    pairs = np.stack([X[:-1], X[1:]], axis=1)
    labels = np.where(np.arange(len(pairs)) % 3, 1, -1)
    with pytest.raises(NotFittedError):
        model.predict(pairs)
    learned = clone(model).set_params(learner=clone(model.learner).fit(X, y)).fit(pairs, labels)
    np.testing.assert_allclose(learned.predict_proba(pairs).sum(axis=1), 1.0)
    assert set(learned.predict(pairs)) <= {1, -1}
    assert 0 <= learned.score(pairs, labels) <= 1


@pytest.mark.parametrize("model", OPEN_SET_CLASSIFIERS, ids=str)
def test_tags_of_classifiers_of_open_sets(model):
    with pytest.warns(SkipTestWarning, match="Explicit SKIP via _skip_test"):
        found = check_estimator(model, on_skip="warn", on_fail="raise")
    assert {check["status"] for check in found} == {"passed"}
    assert is_classifier(model)
    X, y = samples()
    with pytest.raises(NotFittedError):
        model.predict(X)
    known = clone(model.classifier).fit(X[:12], y[:12])
    learned = clone(model).set_params(classifier=known).fit(X[12:], ["?", *y[13:]])
    assert set(learned.predict(X)) <= {0, 1, None}


def test_one_task_of_a_table_is_what_its_view_learns():
    X, y = samples()
    for view in VIEWS:
        fitted = clone(view).fit(X, y)
        assert np.isfinite(fitted.transform(X)).all()
