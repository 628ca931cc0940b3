"""Learning in shared coordinates: what the learner promises beyond what holds for all."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

from lml.datasets import load_few_shot_digits, make_embedding_stream
from lml.lmnn import LMNN
from lml.metrics import FactoredMetric
from lml.neighbors import k_nearest
from lml.oasis import OASIS
from lml.scml import SCML
from lml.lifelong import LifelongMetricLearner, contribution, trimmed

FAST = OASIS(n_steps=500)


def learned(tasks, **parameters):
    learner = LifelongMetricLearner(**{"base_learner": FAST, "random_state": 0} | parameters)
    for task in tasks:
        learner.partial_fit(task.X_train, task.y_train, task=task.name)
    return learner


@pytest.fixture(scope="module")
def digits():
    return load_few_shot_digits(n_tasks=6, n_train=6, random_state=1)


def shared_by_definition(codes, own, m):
    """P of a task from dense codes, by eigenvalues."""
    D = len(own)
    parts = []
    for W in codes:
        values, vectors = np.linalg.eigh(W)
        values = np.maximum(1 + (values - values.mean()) / values.std(), 0)
        parts.append((vectors * values) @ vectors.T * D / values.sum())
    return (1 - m) * np.eye(D) + m * np.mean(parts, axis=0)


@pytest.mark.parametrize("base", [FAST, SCML(n_steps=500), LMNN(shrinkage=0.01, max_iter=20)])
def test_the_metric_is_the_code_between_roots_of_what_the_others_found(digits, base):
    learner = learned(digits[:3], base_learner=base, sharing=0.7)
    codes = {name: code.to_dense() for name, code in learner.codes_.items()}
    for name, W in codes.items():
        P = shared_by_definition([V for u, V in codes.items() if u != name], W, 0.7)
        values, vectors = np.linalg.eigh(P)
        R = (vectors * np.sqrt(values)) @ vectors.T
        assert_allclose(learner.metric_matrix(name), R @ W @ R, atol=1e-7 * np.abs(W).max())


def test_a_task_that_arrives_does_not_see_itself(digits):
    first = learned(digits[:1], sharing=0.9)
    assert_allclose(first.metric_matrix(digits[0].name), first.codes_[digits[0].name].to_dense())
    assert_allclose(first.shared_metric_.inner(FactoredMetric.identity(64)), 64)


def test_the_size_of_a_code_and_a_multiple_of_the_identity_do_not_count():
    rng = np.random.default_rng(0)
    rows = np.linalg.qr(rng.normal(size=(7, 3)))[0].T
    code = FactoredMetric(0.3, rows, np.diag([2.0, -1.0, 0.5]))
    plain = contribution(trimmed(code, 7)).to_dense()
    for other in (50 * code, code + FactoredMetric.identity(7, 8.0), trimmed(code, 7) / 1e6):
        assert_allclose(contribution(trimmed(other, 7)).to_dense(), plain, atol=1e-9)
    same = contribution(FactoredMetric.identity(7, -2.0))
    assert_allclose(same.to_dense(), np.eye(7))


@pytest.mark.parametrize("sharing", ["auto", "grow", 0.5])
def test_sparse_samples_give_the_metrics_of_dense_ones(digits, sharing):
    few = [  # more features than samples
        (task.name, np.hstack([task.X_train, task.X_train[:, :20] ** 2]), task.y_train)
        for task in load_few_shot_digits(n_tasks=4, n_train=6, random_state=3)
    ]
    models = []
    for form in (np.asarray, sparse.csr_array):
        learner = LifelongMetricLearner(FAST, sharing=sharing, random_state=0)
        for name, X, y in few:
            learner.partial_fit(form(X), y, task=name)
        models.append(learner)
    for name, _, _ in few:
        assert_allclose(models[0].metric_matrix(name), models[1].metric_matrix(name), atol=1e-8)


def test_forgetting_is_as_if_the_task_had_only_taught_those_after_it(digits):
    learner = learned(digits[:3], sharing=0.5)
    kept = {name: code.to_dense() for name, code in learner.codes_.items()}
    learner.forget(digits[1].name)
    first, last = digits[0].name, digits[2].name
    P = shared_by_definition([kept[last]], kept[first], 0.5)
    values, vectors = np.linalg.eigh(P)
    R = (vectors * np.sqrt(values)) @ vectors.T
    assert_allclose(learner.metric_matrix(first), R @ kept[first] @ R, atol=1e-8)
    for name in (first, last):
        learner.forget(name)
    assert learner.tasks_ == {}
    assert learner.state_parts_["shared"] == 0


def test_a_task_that_comes_back_keeps_what_it_knew(digits):
    task = digits[0]
    once = learned([task], sharing=0.0)
    half = len(task.y_train) // 2
    order = np.random.default_rng(0).permutation(len(task.y_train))
    twice = LifelongMetricLearner(FAST, sharing=0.0, random_state=0)
    codes = []
    for part in (order[:half], order[half:]):
        twice.partial_fit(task.X_train[part], task.y_train[part], task=task.name)
        codes.append(twice.codes_[task.name].to_dense())
    record = twice.tasks_[task.name]
    assert (record.n_samples, record.n_visits) == (len(task.y_train), 2)
    assert not np.allclose(codes[0], codes[1])
    assert once.tasks_[task.name].n_visits == 1


def test_a_visit_counts_by_its_samples_and_what_was_given_before_is_taken_back(digits):
    first, other = digits[:2]
    learner = learned([first, other], sharing=0.0)
    old = learner.codes_[first.name].to_dense()
    X, y = np.tile(other.X_train, (3, 1)), np.tile(first.y_train, 3)[: 3 * len(other.y_train)]
    seed = int(np.random.SeedSequence([learner._state.root, 0, 1]).generate_state(2)[0])
    new = OASIS(n_steps=500, random_state=seed).fit(X, y).metric_.symmetrized()
    learner.set_params(code_rank=None).partial_fit(X, y, task=first.name)
    n, m = len(first.y_train), len(y)
    expected = (n * old + m * new.to_dense()) / (n + m)
    assert_allclose(learner.codes_[first.name].to_dense(), expected, atol=1e-8)
    P = shared_by_definition([expected], expected, 1.0)  # all that the other task is told
    assert_allclose(
        learner._state.total.to_dense() - P,
        shared_by_definition([learner.codes_[other.name].to_dense()], expected, 1.0),
        atol=1e-7,
    )


def test_the_state_does_not_grow_with_samples_and_little_with_tasks(digits):
    small, large = learned(digits[:3], sharing=0.5), learned(digits, sharing=0.5)
    per_task = small.state_parts_["codes"] / 3
    assert large.state_parts_["codes"] == pytest.approx(6 * per_task, rel=0.2)
    assert large.state_parts_["shared"] <= 8 * (64 * 64 + 64 + 1)


def test_what_is_cut_keeps_the_trace():
    rng = np.random.default_rng(5)
    for D, k, rank in [(6, 6, 2), (9, 4, 2), (9, 4, 0), (5, 5, 5), (40, 10, 3)]:
        rows = np.linalg.qr(rng.normal(size=(D, k)))[0].T
        metric = FactoredMetric(0.4, rows, np.diag(rng.normal(size=k)))
        near = trimmed(metric, rank)
        assert len(near.core) <= rank
        assert_allclose(np.trace(near.to_dense()), np.trace(metric.to_dense()))


def test_mixed_kinds_are_refused_and_change_nothing(digits):
    learner = learned(digits[:1])
    before = learner.metric_matrix(digits[0].name)
    learner.set_params(base_learner=SCML(n_steps=200))
    with pytest.raises(ValueError, match=r"distance.*similarity"):
        learner.partial_fit(digits[1].X_train, digits[1].y_train, task="other")
    assert list(learner.tasks_) == [digits[0].name]
    assert_allclose(learner.metric_matrix(digits[0].name), before)


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"sharing": 1.5}, "sharing=1.5"),
        ({"sharing": "much"}, "sharing='much'"),
        ({"base_learner": "svm"}, "base_learner='svm'"),
        ({"base_learner": OASIS(n_steps=-1)}, "n_steps=-1"),
        ({"code_rank": -1}, "code_rank=-1"),
        ({"n_components": 0}, "n_components=0"),
    ],
)
def test_bad_parameters_are_named(digits, parameters, said):
    with pytest.raises(ValueError, match=said):
        learned(digits[:1], **parameters)


def test_lmnn_without_a_pull_warns(digits):
    with pytest.warns(UserWarning, match="shrinkage"):
        learned(digits[:1], base_learner=LMNN(max_iter=5))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        learned(digits[:1], base_learner=LMNN(max_iter=5), sharing=0.0)


def error(learner, task):
    metric = learner.task_metric(task.name)
    nearest, _ = k_nearest(metric, task.X_test, task.X_train, learner.metric_type_, 1)
    return np.mean(task.y_train[nearest[:, 0]] != task.y_test)


@pytest.mark.parametrize("sharing", ["auto", "grow"])
def test_tasks_that_share_directions_help_each_other(sharing):
    tasks = list(
        make_embedding_stream(12, n_features=64, n_directions=8, n_classes=4, random_state=2)
    )
    alone, shared = learned(tasks, sharing=0.0), learned(tasks, sharing=sharing)
    errors = np.array([[error(alone, task), error(shared, task)] for task in tasks])
    assert errors[:, 1].mean() < errors[:, 0].mean() - 0.02
