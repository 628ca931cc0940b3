"""Tasks over time: copies go on as the original, columns keep their names, numbers of a stream."""

from __future__ import annotations

import copy
import os
import pickle
import signal
import threading

import numpy as np
import pandas as pd
import pytest
from checks import assert_same
from registry import (
    FRESH,
    STREAMS,
    TASK_NAMES,
    X0,
    Y0,
    learned_numbers,
    lifelong_oasis,
    samples,
)
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from lml.baselines import (
    ELLA,
    MultiTaskLMNN,
    MultiTaskOASIS,
    MultiTaskSCML,
    PooledMetricLearner,
)
from lml.datasets import Task
from lml.evaluation import (
    LifelongKNeighborsClassifier,
    average_accuracy,
    backward_transfer,
    evaluate_stream,
    forgetting,
    forward_transfer,
)
from lml.oasis import OASIS
from lml.plda import LifelongPLDA

# --- going on after a copy ----------------------------------------------------------------

hinge_of_one = pytest.mark.filterwarnings("ignore:the base learner's metric")  # in few steps

PARTS = [samples(20, seed=k) for k in range(3)]


def after_two_tasks(model):
    for k in range(2):
        model.partial_fit(*PARTS[k], task=TASK_NAMES[k])
    return model


def go_on(model):
    """A new task, then other samples of a known one."""
    model.partial_fit(*PARTS[2], task=TASK_NAMES[2])
    return model.partial_fit(*PARTS[1], task=TASK_NAMES[0])


@hinge_of_one
@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize(
    "again", [lambda m: pickle.loads(pickle.dumps(m)), copy.deepcopy], ids=["pickle", "deepcopy"]
)
def test_a_copy_after_two_tasks_goes_on_as_the_original(name, again):
    whole = go_on(after_two_tasks(STREAMS[name]()))
    copied = go_on(again(after_two_tasks(STREAMS[name]())))
    assert_same(learned_numbers(copied), learned_numbers(whole))
    assert list(copied.tasks_) == list(whole.tasks_)


@hinge_of_one
@pytest.mark.parametrize("name", STREAMS)
def test_a_clone_begins_anew(name):
    model = after_two_tasks(STREAMS[name]())
    fresh = clone(model)
    with pytest.raises(NotFittedError):
        (fresh.predict if hasattr(fresh, "predict") else fresh.transform)(FRESH, task="paris")
    assert_same(learned_numbers(after_two_tasks(fresh)), learned_numbers(model))


@hinge_of_one
@pytest.mark.parametrize("name", STREAMS)
def test_a_saved_learner_goes_on_as_the_original(name, tmp_path):
    whole = after_two_tasks(STREAMS[name]())
    whole.save(tmp_path / "learner.npz")
    loaded = type(whole).load(tmp_path / "learner.npz")
    go_on(whole)
    go_on(loaded)
    assert_same(learned_numbers(loaded), learned_numbers(whole))
    assert repr(loaded.tasks_) == repr(whole.tasks_)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_made_while_another_thread_learns_can_learn():
    inside, go = threading.Event(), threading.Event()

    class Slow(OASIS):
        def fit(self, X, y):
            inside.set()
            assert go.wait(60)
            return super().fit(X, y)

    model = lifelong_oasis().partial_fit(X0, Y0, task="a")
    model.set_params(base_learner=Slow(n_steps=10))
    thread = threading.Thread(target=model.partial_fit, args=(X0, Y0), kwargs={"task": "b"})
    thread.start()
    assert inside.wait(60)
    if (child := os.fork()) == 0:
        signal.alarm(30)  # a child that waits for the lock is ended
        try:
            model.set_params(base_learner=OASIS(n_steps=10)).partial_fit(X0, Y0, task="c")
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    go.set()
    thread.join()
    assert status == 0
    assert list(model.tasks_) == ["a", "b"]


def test_bytes_are_counted_also_when_every_task_is_forgotten():
    model = lifelong_oasis().partial_fit(X0, Y0, task="a").forget("a")
    parts = model.state_parts_
    assert {"shared", "codes", "class means", "records"} == set(parts)
    assert not any(parts.values())
    assert model.state_nbytes_ == 0
    with pytest.raises(NotFittedError, match="no state"):
        _ = lifelong_oasis().state_nbytes_


# --- tasks side by side -------------------------------------------------------------------


def test_tasks_of_one_class_learn_together_where_the_samples_are_pooled():
    names, y = ["one"] * 12 + ["two"] * 12, np.r_[np.zeros(12, int), Y0[:12]]
    pooled = PooledMetricLearner(OASIS(n_steps=50, random_state=0)).fit(X0, y, tasks=names)
    assert pooled.tasks_ == ["one", "two"]  # the union has pairs


@pytest.mark.parametrize(
    "make", [MultiTaskSCML, MultiTaskLMNN, MultiTaskOASIS], ids=lambda m: m.__name__
)
def test_a_task_of_one_class_beside_another_is_refused(make):
    names, y = ["one"] * 12 + ["two"] * 12, np.r_[np.zeros(12, int), Y0[:12]]
    model = make()
    before = pickle.dumps(model)
    with pytest.raises(ValueError, match=r"task 'one'.*(one class|1 classes)"):
        model.fit(X0, y, tasks=names)
    assert pickle.dumps(model) == before


@pytest.mark.parametrize("name", [float("nan"), (1, float("nan")), [1]], ids=str)
def test_plda_refuses_names_as_the_others_do(name):
    with pytest.raises((TypeError, ValueError), match=r"equal|hashable"):
        LifelongPLDA().partial_fit(X0, Y0, task=name)


# --- columns ------------------------------------------------------------------------------

FRAME = pd.DataFrame(X0, columns=list("abcd"))
TURNED = FRAME[list("dcba")]


@pytest.mark.parametrize("fit", [False, True])
def test_ella_knows_the_columns_of_a_frame(fit):
    model = ELLA(n_components=2, random_state=0)
    if fit:
        model.fit(FRAME, Y0, tasks=["t"] * len(Y0))
    else:
        model.partial_fit(FRAME, Y0, task="t")
    assert list(model.feature_names_in_) == list("abcd")
    before = pickle.dumps(model)
    for call in (
        lambda: model.partial_fit(TURNED, Y0, task="u"),
        lambda: model.predict(TURNED, task="t"),
        lambda: model.predict_proba(TURNED, task="t"),
        lambda: model.score(TURNED, Y0, task="t"),
    ):
        with pytest.raises(ValueError, match="feature names"):
            call()
    assert pickle.dumps(model) == before
    plain = ELLA(n_components=2, random_state=0).partial_fit(X0, Y0, task="t")
    assert not hasattr(plain, "feature_names_in_")
    np.testing.assert_allclose(
        model.decision_function(FRAME, task="t"), plain.decision_function(X0, task="t")
    )


def test_references_have_the_columns_that_the_learner_has_learned():
    known = lifelong_oasis().partial_fit(FRAME, Y0, task="t")
    model = LifelongKNeighborsClassifier(known, n_neighbors=1).fit(FRAME, Y0, task="t")
    for call in (model.fit, lambda X, y, task: model.predict(X, task=task)):
        with pytest.raises(ValueError, match="feature names"):
            call(TURNED, Y0, task="t")
    assert model.predict(FRAME, task="t").shape == Y0.shape
    known = lifelong_oasis().partial_fit(X0, Y0, task="t")
    model = LifelongKNeighborsClassifier(known, n_neighbors=1)
    with pytest.raises(ValueError, match="X has 2 features, but the learner has learned 4"):
        model.fit(X0[:, :2], Y0, task="t")
    assert not hasattr(model, "references_")


def test_references_may_come_before_the_learner_has_learned():
    learner = lifelong_oasis()
    model = LifelongKNeighborsClassifier(learner, n_neighbors=1).fit(X0, Y0, task="t")
    with pytest.raises(NotFittedError):
        model.predict(X0, task="t")
    learner.partial_fit(X0, Y0, task="t")
    assert model.predict(X0, task="t").shape == Y0.shape


def test_a_stream_of_other_features_is_refused_before_anything_is_learned():
    X, y = samples(D=7)
    tasks = [Task("a", X0, Y0, X0[:0], Y0[:0], X0, Y0), Task("b", X, y, X[:0], y[:0], X, y)]
    learner = lifelong_oasis()
    before = pickle.dumps(learner)
    said = r"X has 4 features, the reference (rows|samples) of task 'b' have 7"
    with pytest.raises(ValueError, match=said):
        evaluate_stream(learner, tasks)
    assert pickle.dumps(learner) == before


# --- numbers of a stream ------------------------------------------------------------------

R = [[0.8, 0.5, 0.5], [0.9, 0.9, 0.5], [0.7, 0.85, 0.9]]


def test_accuracy_transfer_and_forgetting_of_three_tasks():
    assert average_accuracy(R) == pytest.approx((0.7 + 0.85 + 0.9) / 3)
    assert backward_transfer(R) == pytest.approx(((0.7 - 0.8) + (0.85 - 0.9)) / 2)
    assert forgetting(R) == pytest.approx(((0.9 - 0.7) + (0.9 - 0.85)) / 2)


@pytest.mark.parametrize("number", [average_accuracy, backward_transfer, forgetting])
def test_numbers_of_a_stream_are_floats_of_a_square_table_of_accuracies(number):
    assert type(number(R)) is float
    with pytest.raises(ValueError, match=r"1\.5.*accuracies from 0 to 1"):
        number(np.where(np.eye(3, dtype=bool), 1.5, R))
    with pytest.raises(ValueError, match=r"R has shape \(2, 3\)"):
        number(R[:2])


def test_forward_transfer_needs_a_baseline():
    with pytest.raises(ValueError, match="baseline is None: forward transfer needs"):
        forward_transfer(R)
    for wrong, said in (
        ([0.5, 0.5], r"shape \(2,\)"),
        ([0.5, np.nan, 0.5], "NaN"),
        ([0.5, 1.5, 0.5], "1.5"),
    ):
        with pytest.raises(ValueError, match=said):
            forward_transfer(R, baseline=wrong)
    assert forward_transfer(R, baseline=[0.5, 0.5, 0.4]) == pytest.approx((0.0 + 0.1) / 2)
