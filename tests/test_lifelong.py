"""Tests of lml.lifelong: the formulas of a visit, and tasks over time."""

import copy
import pickle

import numpy as np
import pytest
from lifelong_streams import (
    BASES,
    NAMES,
    Given,
    Watched,
    learn,
    make_learner,
    make_task,
    same,
    seeds_of,
)
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from lml import lifelong
from lml.lifelong import LifelongMetricLearner
from lml.metrics import FactoredMetric
from lml.oasis import OASIS
from lml.scml import SCML
from lml.triplets import sample_triplets


@pytest.mark.parametrize("base", BASES, ids=["oasis", "scml"])
def test_full_dictionary_equals_the_base_learner(base):
    learner = make_learner(base_learner=base, n_components=7)
    learn(learner)
    for number, name in enumerate(NAMES):
        seeded = clone(base).set_params(random_state=seeds_of(learner, number)[0])
        alone = seeded.fit(*make_task(number)).metric_
        np.testing.assert_allclose(
            learner.metric_matrix(name), alone.to_dense(), atol=1e-10 * alone.norm()
        )
        assert learner.tasks_[name].captured == pytest.approx(1.0)


@pytest.mark.parametrize("kind", ["similarity", "distance"])
def test_code_is_the_thresholded_projection(kind):
    rng = np.random.default_rng(3)
    M = rng.normal(size=(7, 7)) + 4 * np.eye(7)
    M = M @ M.T if kind == "distance" else M
    base = Given(FactoredMetric.from_dense(M), kind)
    learner = make_learner(base_learner=base, code_penalty=0.3).partial_fit(*make_task(0), task=0)
    L, W = learner.dictionary_, learner.codes_[0]
    np.testing.assert_allclose(L @ L.T, np.eye(4), atol=1e-12)
    B = L @ M @ L.T
    expected = np.where(np.abs(B) > 0.3, B - 0.3 * np.sign(B), 0.0)
    np.fill_diagonal(expected, np.diag(B))
    np.testing.assert_allclose(W, expected, atol=1e-10)
    record = learner.tasks_[0]
    assert record.target_norm == pytest.approx(np.linalg.norm(M))
    assert record.captured == pytest.approx(np.sum(B**2) / np.sum(M**2))
    off = ~np.eye(4, dtype=bool)
    assert record.off_diagonal == pytest.approx(np.mean(expected[off] != 0))
    assert record.certificate < 1e-8
    if kind == "similarity":
        assert record.loss_after <= record.loss_before


@pytest.mark.parametrize("kind", ["similarity", "distance"])
def test_nothing_of_a_zero_target_is_captured(kind):
    base = Given(FactoredMetric.from_dense(np.zeros((7, 7))), kind)
    learner = make_learner(base_learner=base).partial_fit(*make_task(0), task=0)
    assert learner.tasks_[0].target_norm == learner.tasks_[0].captured == 0.0


@pytest.mark.parametrize("loss", ["hinge", "residual"])
@pytest.mark.parametrize("base", BASES, ids=["oasis", "scml"])
def test_metrics_kept_are_the_projections_of_the_old_ones(base, loss):
    learner = make_learner(base_learner=base, dictionary_loss=loss, dictionary_steps=3)
    learner.partial_fit(*make_task(0), task="old")
    before, old_rows = learner.metric_matrix("old"), learner.dictionary_
    learner.partial_fit(*make_task(1), task="new")
    assert not np.array_equal(learner.dictionary_, old_rows)
    P = learner.dictionary_.T @ learner.dictionary_
    np.testing.assert_allclose(learner.metric_matrix("old"), P @ before @ P, atol=1e-9)


def test_codes_kept_follow_the_change_of_basis(monkeypatch):
    taken, real = [], lifelong.descend
    monkeypatch.setattr(lifelong, "descend", lambda *a: taken.append(real(*a)) or taken[-1])
    learner = make_learner(old_tasks="codes", dictionary_steps=3)
    learner.partial_fit(*make_task(0), task="old")
    expected = learner.codes_["old"]
    taken.clear()
    learner.partial_fit(*make_task(1), task="new")
    assert sum(step.step_size > 0 for step in taken) > 1
    for step in taken:
        expected = step.change.T @ expected @ step.change
    np.testing.assert_allclose(learner.codes_["old"], expected, atol=1e-12)


def test_moving_helps_the_new_task_and_no_steps_keep_the_dictionary():
    still = learn(make_learner(dictionary_steps=0))
    first = make_learner(dictionary_steps=0).partial_fit(*make_task(0), task="paris")
    np.testing.assert_array_equal(still.dictionary_, first.dictionary_)
    moved = learn(make_learner(dictionary_steps=10))
    for record in moved.tasks_.values():
        assert record.loss_after < record.loss_before


def test_average_weighs_by_rows():
    rng = np.random.default_rng(5)
    A, B = (FactoredMetric.from_dense(rng.normal(size=(7, 7))) for _ in range(2))
    learner = make_learner(base_learner=Given(A), n_components=7)
    learner.partial_fit(*make_task(0, n=30), task="t")
    learner.set_params(base_learner=Given(B)).partial_fit(*make_task(1, n=15), task="t")
    expected = (30 * A.to_dense() + 15 * B.to_dense()) / 45
    np.testing.assert_allclose(learner.metric_matrix("t"), expected, atol=1e-10)
    record = learner.tasks_["t"]
    assert (record.n_rows, record.n_visits, record.number) == (45, 2, 0)


def test_step_zeroes_the_linearised_hinge():
    learner = make_learner(revisit="step", n_components=7).partial_fit(*make_task(0), task="t")
    X, y = make_task(1)
    M = learner.metric_matrix("t")
    i, j, k = sample_triplets(y, 3000, seeds_of(learner, 0, 1)[0]).T
    learner.partial_fit(X, y, task="t")
    slack = 1 - np.einsum("na,ab,nb->n", X[i], M, X[j] - X[k])
    active = slack > 0
    G = -(X[i][active].T @ (X[j] - X[k])[active]) / len(i)
    change = learner.metric_matrix("t") - M
    assert np.sum(change * G) == pytest.approx(-np.maximum(slack, 0).mean())
    np.testing.assert_allclose(change, np.sum(change * G) / np.sum(G * G) * G, atol=1e-12)


def test_warm_start_and_transfer_hand_over_the_known_metric():
    Watched.seen.clear()
    base = Watched(n_steps=100)
    more = {"warm_start_from_dictionary": True, "dictionary_steps": 0}
    learner = make_learner(base_learner=base, revisit="warm", **more)
    learn(learner, ("a", "b"))
    assert Watched.seen[0].init is None
    codes = dict(learner.codes_)
    learner.partial_fit(*make_task(5), task="c")
    learner.partial_fit(*make_task(6), task="a")
    L = learner.dictionary_
    for base, W in zip(Watched.seen[2:], ((codes["a"] + codes["b"]) / 2, codes["a"])):
        expected = np.eye(7) + L.T @ (W - np.eye(4)) @ L
        np.testing.assert_allclose(base.init.to_dense(), expected, atol=1e-10)


def test_warm_start_needs_init():
    learner = make_learner(base_learner=SCML(n_basis=20, n_steps=200), revisit="warm")
    learner.partial_fit(*make_task(0), task="t")
    with pytest.raises(ValueError, match="init"):
        learner.partial_fit(*make_task(1), task="t")


def from_others(learner, task):
    """The mean of the other tasks' metrics, with the identity outside the dictionary; dense."""
    metrics = [learner.metric_matrix(u) for u in learner.tasks_ if u != task]
    P = learner.dictionary_.T @ learner.dictionary_
    return np.eye(len(P)) - P + np.mean(metrics, axis=0)


@pytest.mark.parametrize("rows", [np.array, sparse.csr_array])
@pytest.mark.parametrize(("n", "D"), [(30, 12), (12, 40)])
@pytest.mark.parametrize("cap", [1e-3, 0.1, 10.0])
def test_warm_started_tasks_are_those_of_the_naive_loop(n, D, cap, rows):
    base = Watched(cap, n_steps=200)
    learner = make_learner(base_learner=base, warm_start_from_dictionary=True)
    X, y = make_task(0, n=n, n_features=D)
    learner.partial_fit(rows(X), y, task="a")
    for visit, task in enumerate(("b", "c", "b", "d"), start=1):
        X, y = make_task(visit, n=n, n_features=D)
        W = from_others(learner, task)
        seed = seeds_of(learner, "abcd".index(task), n_visits=int(visit == 3))[0]
        for i, j, k in sample_triplets(y, 200, seed):
            q = X[j] - X[k]
            loss, size = 1 - X[i] @ W @ q, X[i] @ X[i] * (q @ q)
            if loss > 0 < size:
                W = W + min(cap, loss / size) * np.outer(X[i], q)
        old = learner.metric_matrix(task) if task in learner.tasks_ else W
        learner.partial_fit(rows(X), y, task=task)
        np.testing.assert_allclose(Watched.seen[-1].metric_.to_dense(), W, atol=1e-10)
        W = (W + old) / 2  # half of the rows are old
        L = learner.dictionary_
        np.testing.assert_allclose(learner.codes_[task], L @ W @ L.T, atol=1e-10)


def test_a_start_for_many_features_stays_factored():
    rng = np.random.default_rng(0)
    X = sparse.random_array((30, 20_000), density=0.01, rng=rng, format="csr")
    y = rng.permutation(np.repeat([0, 1, 2], 10))
    learner = make_learner(n_components=5, warm_start_from_dictionary=True)
    learner.partial_fit(X, y, task="a")
    Z = rng.normal(size=(2, 20_000))
    codes, L = learner.codes_["a"], learner.dictionary_
    start = Z @ Z.T + (Z @ L.T) @ (codes - np.eye(5)) @ (L @ Z.T)
    init = FactoredMetric(1.0, L, codes - np.eye(5))
    alone = OASIS(n_steps=1, random_state=seeds_of(learner, 1)[0], init=init).fit(X, y).metric_
    for n_steps, expected in ((0, start), (1, alone.bilinear(Z, Z))):
        one = copy.copy(learner).set_params(base_learner=Watched(n_steps=n_steps))
        one.partial_fit(X, y, task="b")
        target = Watched.seen[-1].metric_
        assert target.nbytes < 8 * 20_000 * 60
        np.testing.assert_allclose(target.bilinear(Z, Z), expected)


def test_a_start_from_no_other_task_is_cold():
    cold, warm = make_learner(), make_learner(warm_start_from_dictionary=True)
    for learner in (cold, warm):
        learner.partial_fit(*make_task(0), task="a").partial_fit(*make_task(1), task="a")
    np.testing.assert_array_equal(cold.metric_matrix("a"), warm.metric_matrix("a"))
    for learner in (cold, warm):
        learner.forget("a").partial_fit(*make_task(2), task="b")
    np.testing.assert_array_equal(cold.metric_matrix("b"), warm.metric_matrix("b"))
    for learner in (cold, warm):
        learner.partial_fit(*make_task(3), task="c")
    assert np.abs(cold.metric_matrix("c") - warm.metric_matrix("c")).max() > 1e-3


@pytest.mark.parametrize("base", ["scml", SCML(n_basis=20, n_steps=200)])
def test_a_base_learner_that_cannot_be_started_is_refused_at_once(base):
    learner = make_learner(base_learner=base, warm_start_from_dictionary=True)
    message = "warm_start_from_dictionary=True needs a base learner with a parameter init.*SCML"
    with pytest.raises(ValueError, match=message):
        learner.partial_fit(*make_task(0), task="t")
    assert not learner.__sklearn_is_fitted__()
    learner.set_params(base_learner=OASIS(n_steps=100)).partial_fit(*make_task(0), task="t")
    assert list(learner.tasks_) == ["t"]


@pytest.mark.parametrize("value", ["yes", 1, None, 0.0])
def test_a_warm_start_is_asked_for_by_true_or_false(value):
    learner = make_learner(warm_start_from_dictionary=value)
    with pytest.raises(TypeError, match=f"warm_start_from_dictionary={value!r}: give True"):
        learner.partial_fit(*make_task(0), task="t")


def test_a_warm_start_survives_a_clone_and_a_file(tmp_path):
    learner = learn(make_learner(warm_start_from_dictionary=True), ("a", "b"))
    assert clone(learner).warm_start_from_dictionary is True
    learner.save(tmp_path / "file")
    again = LifelongMetricLearner.load(tmp_path / "file")
    assert again.warm_start_from_dictionary is True
    for one in (learner, again):
        one.partial_fit(*make_task(7), task="c")
    np.testing.assert_array_equal(learner.metric_matrix("c"), again.metric_matrix("c"))


# --- tasks over time ----------------------------------------------------------------------


def test_names_of_any_kind():
    learner = learn(make_learner())
    assert tuple(learner.tasks_) == NAMES
    assert [record.number for record in learner.tasks_.values()] == [0, 1, 2]
    for name in NAMES:
        assert learner.transform(make_task(0)[0], task=name).shape[0] == 30
    with pytest.raises(ValueError, match=r"never seen.*'paris', 42, \('a', 1\)"):
        learner.transform(make_task(0)[0], task="never seen")
    for method in ("task_metric", "get_metric", "metric_matrix", "forget"):
        with pytest.raises(ValueError, match="known tasks"):
            getattr(learner, method)(0)


def test_before_any_task():
    learner = make_learner()
    X, _ = make_task(0)
    for call in (
        lambda: learner.transform(X, task="t"),
        lambda: learner.pair_score([[X[0], X[1]]], task="t"),
        lambda: learner.get_metric("t"),
        lambda: learner.metric_matrix("t"),
        lambda: learner.state_nbytes_,
        lambda: learner.forget("t"),
    ):
        with pytest.raises(NotFittedError):
            call()


def test_partial_fit_chains():
    X, y = make_task(0)
    learner = make_learner()
    assert learner.partial_fit(X, y, task="t").transform(X, task="t").shape[0] == 30
    assert learner.fit(X, y, tasks=["t"] * 30) is learner


@pytest.mark.parametrize(
    "again", [copy.deepcopy, lambda learner: pickle.loads(pickle.dumps(learner))]
)
@pytest.mark.parametrize("random_state", [0, None, np.random.RandomState(3)])
def test_going_on_after_a_copy_is_identical(again, random_state):
    learner = learn(make_learner(random_state=random_state), NAMES[:2])
    twin = again(learner)
    same(learn(twin, NAMES[2:], start=2), learn(learner, NAMES[2:], start=2))


def test_clone_starts_afresh_and_repeats():
    learner = learn(make_learner())
    fresh = clone(learner)
    assert not hasattr(fresh, "tasks_")
    same(learn(fresh), learner)


def test_same_bits_whatever_the_global_seed():
    np.random.seed(1)  # noqa: NPY002
    one = learn(make_learner())
    np.random.seed(2)  # noqa: NPY002
    same(one, learn(make_learner()))


def test_fit_learns_a_table_in_order_of_appearance_and_resets():
    learner = learn(make_learner(), ["gone"])
    parts = [make_task(number) for number in range(3)]
    X, y = np.vstack([p[0] for p in parts]), np.concatenate([p[1] for p in parts])
    names = [NAMES[i // 30] for i in range(90)]
    order = np.argsort(np.arange(90) % 30, kind="stable")
    learner.fit(X[order], y[order], tasks=[names[i] for i in order])
    same(learner, learn(make_learner()))
    with pytest.raises(ValueError, match="inconsistent"):
        learner.fit(X, y, tasks=names[:-1])


def test_forget():
    learner = learn(make_learner(gradient_memory=2))
    kept = learner.metric_matrix(42)
    assert learner.forget("paris") is learner
    assert tuple(learner.tasks_) == NAMES[1:]
    assert "paris" not in learner.codes_
    assert "paris" not in learner.memory_.gradients
    np.testing.assert_array_equal(learner.metric_matrix(42), kept)
    learner.partial_fit(*make_task(4), task="paris")
    assert learner.tasks_["paris"].number == 3
