"""Tasks unlike the others: what agreement measures, and that they are learned and read alone."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import linalg

from lml import LifelongMetricLearner
from lml.lifelong import agreement, contribution
from lml.metrics import FactoredMetric
from lml.oasis import OASIS
from lml.scml import SCML

D = 24


def symmetric(draw, rank, alpha):
    """A metric of trace D with some directions, whose factor is askew."""
    factor = draw.normal(size=(rank, D))
    half = draw.normal(size=(rank, rank))
    metric = FactoredMetric(alpha, factor, half + half.T)
    return metric * (D / np.trace(metric.to_dense()))


def by_definition(own, others):
    A, B = own.to_dense() - np.eye(D), others.to_dense() - np.eye(D)
    cosine = np.trace(A @ B) / np.sqrt(np.trace(A @ A) * np.trace(B @ B))
    return cosine * np.sqrt((D - 1) * (D + 2) / 2)


def sample(number, features, n=80, noise=0.3):
    """Four classes that differ in three of the features; the others are noise."""
    draw = np.random.default_rng([5, number])
    y = np.arange(n) % 4
    X = noise * draw.normal(size=(n, D))
    X[:, features] += 2 * draw.normal(size=(4, 3))[y]
    X -= X.mean(axis=0)
    return X / linalg.norm(X, axis=1, keepdims=True), y


ONE_KIND, ANOTHER = [0, 1, 2], [7, 9, 20]
BASES = {"oasis": OASIS(n_steps=2000), "scml": SCML(n_steps=500)}


def learn(kinds, base="oasis", **given):
    """Tasks 0, 1, ... with the features in which they differ."""
    learner = LifelongMetricLearner(**{"base_learner": BASES[base], "random_state": 3} | given)
    for number, features in enumerate(kinds):
        learner.partial_fit(*sample(number, features), task=number)
    return learner


@pytest.fixture(autouse=True)
def choice(monkeypatch):
    """m is .6 from the second task on: the choice by counted mistakes is tested elsewhere."""
    real = LifelongMetricLearner._try_candidates

    def counted(*given):
        return np.array([3.0, 2.0, 1.0, 2.0]), real(*given)[1]

    monkeypatch.setattr(LifelongMetricLearner, "_try_candidates", counted)


def in_shared(learner, task, m):
    """R W R, from the codes."""
    parts = [contribution(W).to_dense() for u, W in learner.codes_.items() if u != task]
    R = linalg.sqrtm((1 - m) * np.eye(D) + m * np.mean(parts, axis=0)).real
    return R @ learner.codes_[task].to_dense() @ R


# --- what it measures ---------------------------------------------------------------------


def test_agreement_is_a_cosine_in_units_of_chance():
    draw = np.random.default_rng(2)
    own, others = symmetric(draw, 4, 0.3), symmetric(draw, 7, -0.2)
    assert_allclose(agreement(own, others), by_definition(own, others), rtol=1e-10)
    assert_allclose(agreement(others, own), agreement(own, others), rtol=1e-10)
    assert_allclose(agreement(own, own), np.sqrt(23 * 26 / 2), rtol=1e-10)
    halfway = 0.5 * own + FactoredMetric.identity(D, 0.5)
    assert_allclose(agreement(halfway, others), agreement(own, others), rtol=1e-10)
    turned = [FactoredMetric(M.alpha, M.factor[:, ::-1], M.core) for M in (own, others)]
    assert_allclose(agreement(*turned), agreement(own, others), rtol=1e-10)


@pytest.mark.parametrize("width", [2, 9])
def test_after_a_random_turn_it_has_mean_0_and_deviation_1(width):
    draw = np.random.default_rng(width)
    values = draw.exponential(size=(2, width))
    values *= width / values.sum(axis=1, keepdims=True)
    found = []
    for _ in range(3000):
        Q, R = np.linalg.qr(draw.normal(size=(width, width)))
        Q *= np.sign(np.diag(R))
        turned = FactoredMetric(0.0, Q, np.diag(values[0]))
        found.append(agreement(turned, FactoredMetric.from_dense(np.diag(values[1]))))
    assert_allclose([np.mean(found), np.std(found)], [0, 1], atol=0.08)


def test_the_identity_contradicts_nothing():
    metric = symmetric(np.random.default_rng(0), 3, 0.5)
    near = FactoredMetric(1.0, metric.factor, 1e-12 * metric.core)
    for one in (FactoredMetric.identity(D), near):
        assert agreement(one, metric) == np.inf
        assert agreement(metric, one) == np.inf
    assert agreement(FactoredMetric.identity(1), FactoredMetric.identity(1)) == np.inf


# --- what the learner does with it --------------------------------------------------------


MIXED = [ONE_KIND, ONE_KIND, ONE_KIND, ONE_KIND, ANOTHER, ONE_KIND]


@pytest.mark.parametrize("base", BASES)
def test_a_task_unlike_the_others_is_learned_and_read_alone(base):
    learner = learn(MIXED, base)
    m = learner.sharing_
    shared = [task for task, record in learner.tasks_.items() if record.sharing]
    assert m > 0
    assert 3 in shared
    assert not {0, 4} & set(shared)
    alone = learn(MIXED[:5], base, sharing=0.0)
    assert_allclose(learner.metric_matrix(4), alone.metric_matrix(4), atol=1e-12)
    # the first one came when there was none of its kind, and is found again
    for task in (0, *shared):
        assert_allclose(learner.metric_matrix(task), in_shared(learner, task, m), atol=1e-8)


def test_a_task_that_was_learned_alone_is_read_with_those_of_its_kind_that_come_later():
    learner = learn(MIXED)
    before = learner.metric_matrix(4)
    for number in range(6, 12):
        learner.partial_fit(*sample(number, ANOTHER), task=number)
    assert learner.tasks_[4].sharing == 0
    assert learner.sharing_ > 0
    after = learner.metric_matrix(4)
    assert_allclose(after, in_shared(learner, 4, learner.sharing_), atol=1e-8)
    assert abs(after - before).max() > 0.1
    for number in range(6, 12):
        learner.forget(number)
    assert_allclose(learner.metric_matrix(4), before, atol=1e-8)


def test_two_is_what_a_task_must_reach(monkeypatch):
    for reached, m in ((2.0, learn(MIXED).sharing_), (np.nextafter(2.0, 0), 0.0)):
        monkeypatch.setattr("lml.lifelong.agreement", lambda *_, reached=reached: reached)
        learner = learn(MIXED)
        assert learner.sharing_ > 0
        assert learner.tasks_[4].sharing == m


@pytest.mark.parametrize("sharing", [0.6, "grow"])
def test_who_gives_m_has_it_for_every_task(sharing):
    learner = learn(MIXED, sharing=sharing)
    m = {0.6: 0.6, "grow": 0.9 * 5 / 10}[sharing]
    assert learner.sharing_ == pytest.approx(m)
    assert learner.tasks_[4].sharing == pytest.approx(0.6 if sharing == 0.6 else 0.9 * 4 / 9)
    for task in range(6):
        assert_allclose(learner.metric_matrix(task), in_shared(learner, task, m), atol=1e-8)


@pytest.mark.parametrize("features", [2, 3, 24])
def test_tasks_with_one_metric_agree_whatever_the_number_of_features(features):
    code = FactoredMetric(0.0, np.eye(features), np.arange(1.0, features + 1))
    mirrored = FactoredMetric(0.0, np.eye(features), np.arange(features, 0.0, -1))
    state = learn([ONE_KIND])._state
    state = replace(state, n_features=features, total=contribution(code), codes={"other": code})
    assert state.agrees("new", code)
    assert not state.agrees("new", mirrored)
    # a task is not one of its others
    assert replace(state, codes={"new": code}).agrees("new", mirrored)


def test_where_labels_are_shared_nobody_is_left_alone():
    learner = learn(MIXED, shared_labels=True)
    m = learner.sharing_
    assert m > 0
    for task in range(6):
        assert_allclose(learner.metric_matrix(task), in_shared(learner, task, m), atol=1e-8)
    chosen = [record.sharing for record in learner.tasks_.values()]
    assert chosen[4] == chosen[3] > 0


def test_a_task_whose_others_were_forgotten_is_learned_alone():
    learner = learn(MIXED)
    for task in range(6):
        learner.forget(task)
    learner.partial_fit(*sample(30, ANOTHER), task="lone")
    assert learner.tasks_["lone"].sharing == 0
    for task in range(5):
        learner.partial_fit(*sample(task, ONE_KIND), task=task)
    assert learner.sharing_ > 0
    assert_allclose(learner.metric_matrix("lone"), learner.codes_["lone"].to_dense(), atol=1e-12)


def test_a_visit_that_teaches_nothing_leaves_a_task_alone():
    learner = learn(MIXED)
    before = learner.metric_matrix(4)
    X, y = sample(4, ANOTHER)
    learner.partial_fit(X[y == 1], y[y == 1], task=4)
    record = learner.tasks_[4]
    assert (record.sharing, record.n_visits, record.n_learned) == (0, 2, 80)
    assert_array_equal(learner.metric_matrix(4), before)
    # a new task has no code that could agree or not
    learner.partial_fit(X[y == 2], y[y == 2], task="one class")
    assert_array_equal(learner.metric_matrix("one class"), learner.shared_metric_.to_dense())


def test_a_task_that_comes_back_is_asked_anew():
    learner = learn(MIXED)
    learner.partial_fit(*sample(17, ONE_KIND, n=400), task=4)
    m = learner.sharing_
    assert learner.tasks_[4].sharing == m > 0
    assert_allclose(learner.metric_matrix(4), in_shared(learner, 4, m), atol=1e-8)


def test_a_stored_learner_leaves_the_same_tasks_alone(tmp_path):
    learner = learn(MIXED)
    learner.save(tmp_path / "learner")
    again = LifelongMetricLearner.load(tmp_path / "learner")
    assert again.tasks_ == learner.tasks_
    for task in range(6):
        assert_array_equal(again.metric_matrix(task), learner.metric_matrix(task))


def test_errors_of_a_task_unlike_the_others_are_those_of_its_base_learner():
    wrong = {"auto": [], 0.0: [], 0.9: []}
    for sharing, errors in wrong.items():
        for number in range(8):
            learner = learn(MIXED[:4], sharing=sharing, random_state=number)
            X, y = sample(20 + number, ANOTHER, n=160, noise=0.7)
            learner.partial_fit(X[:40], y[:40], task="unlike")
            Z = learner.transform(X, task="unlike")
            scores = Z[40:] @ Z[:40].T
            errors.append(np.mean(y[:40][scores.argmax(axis=1)] != y[40:]))
    same = np.equal(wrong["auto"], wrong[0.0])
    assert same.sum() >= 6  # the code of half of so few samples may agree by chance
    assert np.equal(wrong[0.9], wrong[0.0]).sum() < 6  # sharing would change them
