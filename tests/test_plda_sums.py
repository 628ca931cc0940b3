"""LifelongPLDA with more tasks than a visit takes into account one by one."""

import copy
import itertools
import pickle
from functools import partial

import interrupts
import numpy as np
import pytest
from interrupts import stop
from scipy import linalg

from lml import base
from lml.plda import LifelongPLDA, selection, statistics
from lml.plda import learner as plda
from lml.plda.model import Scatters, TaskSums, pooled_scatters, task_moments
from lml.plda.statistics import (
    _extended,
    leading_span,
    moved_moments,
    moved_sums,
    visit_basis,
)
from lml.utils.validation import InvalidParameterError

GIVEN = {"own_weight": 0.25, "shrinkage": (0.5, 0.2, 0.1)}
X0 = np.random.default_rng(0).normal(size=(9, 6))


def rows(seed, n=24, n_features=6, scale=1.0):
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % 3)
    return scale * (rng.normal(size=(n, n_features)) + 2 * rng.normal(size=(3, n_features))[y]), y


def stream(learner, n_tasks):
    """Tasks of which some come back and some are forgotten."""
    for k in range(n_tasks):
        learner.partial_fit(*rows(k), task=k)
        if k % 7 == 3:
            learner.partial_fit(*rows(1000 + k), task=k // 2)
        if k % 11 == 10:
            learner.forget(k // 3)
    return learner


def learned(n_tasks=12, **settings):
    given = {"random_state": 0, "max_old_tasks": 3, **GIVEN, **settings}
    return stream(LifelongPLDA(**given), n_tasks)


def scores(learner):
    found = {task: learner.task_metric(task).bilinear(X0, X0) for task in learner.tasks_}
    return {**found, "shared": learner.shared_metric().bilinear(X0, X0)}


def assert_same_scores(one, other, **tolerance):
    mine, theirs = scores(one), scores(other)
    assert list(mine) == list(theirs)
    for task in mine:
        np.testing.assert_allclose(mine[task], theirs[task], **{"rtol": 1e-8, **tolerance})


def assert_sums_are_those_of_the_memories(learner):
    """Bit for bit: what has grown task by task is what is added up anew."""
    keyed = learner.shared_labels
    anew = pickle.loads(pickle.dumps(learner.state_)).sums(keyed)
    assert set(anew) == set(learner.state_.sums(keyed))
    for family, pool in learner.state_.sums(keyed).items():
        other = anew[family]
        assert pool.size == other.size
        for mine, theirs in zip(pool.total, other.total):
            np.testing.assert_array_equal(mine, theirs)
        assert (pool.joined is None) == (not keyed)
        if keyed:
            assert pool.joined.labels == other.joined.labels
            for name in ("counts", "means", "within", "centered"):
                mine, theirs = (getattr(one.joined, name) for one in (pool, other))
                np.testing.assert_array_equal(mine, theirs)
            assert pool.joined.trace == other.joined.trace


@pytest.mark.parametrize("keyed", [False, True])
def test_with_all_features_the_answers_are_those_of_all_old_tasks_one_by_one(keyed):
    few = learned(60, shared_labels=keyed, max_old_tasks=4)
    every = learned(60, shared_labels=keyed, max_old_tasks=None)
    for mine, theirs in zip(scores(few).values(), scores(every).values()):
        np.testing.assert_array_equal(mine, theirs)


def test_what_validation_chooses_is_what_it_chooses_from_all_old_tasks():
    few, every = (
        stream(LifelongPLDA(random_state=0, n_folds=2, max_old_tasks=n), 20) for n in (4, None)
    )
    for task, memory in few.tasks_.items():
        assert memory.family == every.tasks_[task].family
        np.testing.assert_allclose(memory.losses, every.tasks_[task].losses, atol=1e-12)
    assert_same_scores(few, every)


def test_up_to_max_old_tasks_a_small_dictionary_moves_at_every_visit():
    for n, same in [(8, True), (7, True), (3, False)]:
        one, every = (
            stream(LifelongPLDA(4, random_state=0, max_old_tasks=q, **GIVEN), 8) for q in (n, None)
        )
        found = [np.array_equal(a, b) for a, b in zip(scores(one).values(), scores(every).values())]
        assert all(found) == same


def test_beyond_a_small_dictionary_moves_at_one_visit_in_so_many(monkeypatch):
    moved = []
    known = statistics.moved_moments

    def spy(*args):
        moved[-1] += 1
        return known(*args)

    monkeypatch.setattr(statistics, "moved_moments", spy)
    learner = LifelongPLDA(3, random_state=0, max_old_tasks=4, **GIVEN)
    for k in range(80):
        moved.append(0)
        before = None if k == 0 else learner.dictionary_
        learner.partial_fit(*rows(k), task=k % 50)  # the last ones come back
        if not moved[-1] and k > 4:
            assert learner.dictionary_ is before
    moves = [k for k in range(80) if moved[k]]
    assert moves[:5] == [1, 2, 3, 4, 6]  # up to four old tasks at every visit
    assert sum(moved[40:]) / 40 < 1.25 * 4  # codes that are written, on average, once a move
    assert max(np.diff(moves)) <= 14


def test_a_window_over_a_stream_moves_the_dictionary_too():
    learner = LifelongPLDA(3, random_state=0, max_old_tasks=4, **GIVEN)
    dictionaries = []
    for k in range(40):
        learner.partial_fit(*rows(k), task=k)
        if k >= 10:
            learner.forget(k - 10)
        dictionaries.append(learner.dictionary_)
    moves = sum(a is not b for a, b in itertools.pairwise(dictionaries[20:]))
    assert 4 <= moves <= 10


def test_samples_of_low_rank_do_not_move_the_dictionary_at_every_visit():
    rng = np.random.default_rng(0)
    plane = rng.normal(size=(3, 9))
    learner = LifelongPLDA(6, random_state=0, **GIVEN)
    dictionaries = []
    for task in range(5):
        X, y = rows(task, n_features=3)
        learner.partial_fit(X @ plane, y, task=task)
        dictionaries.append(learner.dictionary_)
    assert dictionaries[0].shape == (3, 9)
    assert all(one is dictionaries[0] for one in dictionaries)


@pytest.mark.parametrize("keyed", [False, True])
def test_after_hundreds_of_tasks_the_sums_are_those_of_the_memories(keyed):
    learner = LifelongPLDA(random_state=0, max_old_tasks=32, shared_labels=keyed, **GIVEN)
    for k in range(300):
        learner.partial_fit(*rows(k, 6, 3), task=k)
        if k % 10 == 9:
            learner.partial_fit(*rows(k + 5000, 6, 3), task=k - 7).forget(k - 4)
    assert len(learner.tasks_) == 270
    assert_sums_are_those_of_the_memories(learner)
    moments = [memory.moments for memory in learner.tasks_.values()]
    expected = pooled_scatters(moments, keyed)
    for mine, theirs in zip(learner.state_.sums(keyed)[0].scatters, expected):
        np.testing.assert_allclose(mine, theirs, rtol=1e-10)


@pytest.mark.parametrize("keyed", [False, True])
def test_in_a_small_dictionary_sums_move_as_codes_do(keyed):
    learner = learned(40, n_components=3, shared_labels=keyed, own_weight="auto", n_folds=2)
    assert learner.dictionary_.shape == (3, 6)
    assert_sums_are_those_of_the_memories(learner)


@pytest.mark.parametrize("scale", [1e-5, 1e5])
def test_what_was_loud_leaves_no_rounding_behind(scale):
    learner, without = (learned(12, shared_labels=True) for _ in range(2))
    learner.partial_fit(*rows(77, scale=scale), task="loud").forget("loud")
    for mine, theirs in zip(scores(learner).values(), scores(without).values()):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize(
    "change", [{"max_old_tasks": None}, {"regularization": 3.0}, {"shared_labels": True}]
)
def test_a_change_of_parameters_is_one_from_the_beginning(change):
    learner = learned().set_params(**change)
    assert_same_scores(learner, learned(**change))
    assert_same_scores(learner.partial_fit(*rows(50), task=50),
                       learned(**change).partial_fit(*rows(50), task=50))  # fmt: skip


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("most", [3, None])
def test_the_dictionary_follows_its_size(keyed, most):
    learner = learned(8, n_components=3, shared_labels=keyed, max_old_tasks=most)
    for n_components in (6, 4, 5):
        learner.set_params(n_components=n_components)
        for k in range(4):
            learner.partial_fit(*rows(50 + k), task=k)
            assert_sums_are_those_of_the_memories(learner)
        assert len(learner.dictionary_) == n_components
        L = learner.dictionary_
        np.testing.assert_allclose(L @ L.T, np.eye(n_components), atol=1e-12)


def test_all_can_be_forgotten_one_by_one():
    learner = learned()
    for task in list(learner.tasks_)[:-1]:
        learner.forget(task)
    (last,) = learner.tasks_
    expected = LifelongPLDA(random_state=0, **GIVEN).partial_fit(*rows(last), task=last)
    np.testing.assert_allclose(
        learner.task_metric(last).bilinear(X0, X0), expected.task_metric(last).bilinear(X0, X0)
    )
    assert not learner.forget(last).__sklearn_is_fitted__()
    again = learner.partial_fit(*rows(0), task="again")
    fresh = LifelongPLDA(random_state=0, **GIVEN).partial_fit(*rows(0), task="again")
    np.testing.assert_array_equal(
        again.task_metric("again").bilinear(X0, X0), fresh.task_metric("again").bilinear(X0, X0)
    )


@pytest.mark.parametrize("value", [0, -1, 2.0, "all"])
def test_a_number_of_old_tasks_that_cannot_be_used_is_named(value):
    with pytest.raises(InvalidParameterError, match=f"max_old_tasks={value!r}: give .* or None"):
        LifelongPLDA(max_old_tasks=value).partial_fit(*rows(0), task="t")


def test_a_failed_visit_and_an_interrupt_leave_the_sums():
    learner = learned(9)
    before, state = scores(learner), learner.state_
    with pytest.raises(ValueError, match="features"):
        learner.partial_fit(X0[:, :3], np.arange(9) % 2, task="u")
    assert learner.state_ is state
    at_step = partial(interrupts.at_step, (base, plda, selection, statistics))
    calls = [lambda one: one.partial_fit(*rows(5), task="new"), lambda one: one.forget(4)]
    calls.append(lambda one: one.partial_fit(*rows(5), task=2))
    for call in calls:
        for number in itertools.count(0, 7):
            twin = copy.copy(learner)
            try:
                done, _ = at_step(number, stop, lambda twin=twin, call=call: call(twin))
            except KeyboardInterrupt:
                assert twin.state_ is state or number > 10
            else:
                assert done
                break
        assert number > 10
    assert learner.state_ is state
    for task, answer in scores(learner).items():
        np.testing.assert_array_equal(answer, before[task])


def test_a_learner_survives_pickling_and_its_statistics_are_locked():
    learner = pickle.loads(pickle.dumps(learned(9, shared_labels=True)))
    for memory in learner.tasks_.values():
        for part in (memory.mean, memory.losses, memory.moments.within, memory.moments.means):
            with pytest.raises(ValueError, match="read-only"):
                part[...] = 0
    assert_same_scores(learner, learned(9, shared_labels=True), rtol=0)


@pytest.mark.parametrize(
    ("rank", "n_components", "n_best"), [(6, 4, 2), (6, 1, 1), (1, 4, 1), (0, 4, 0)]
)
def test_the_span_holds_discriminants_and_the_widest_directions_that_are_left(
    rank, n_components, n_best
):
    A, B = (np.random.default_rng(rank).normal(size=(6, k)) for k in (9, rank))
    within, between = A @ A.T, B @ B.T
    found = leading_span(Scatters(within, between, 0.5), 0.7, n_components)
    np.testing.assert_allclose(found @ found.T, np.eye(n_components), atol=1e-10)
    ratios, V = linalg.eig(linalg.inv(within + 0.7 * np.eye(6)) @ between)
    best = V.real[:, np.argsort(-ratios.real)[:n_best]]
    outside = linalg.null_space(best.T)
    widths, W = linalg.eigh(outside.T @ (within + between) @ outside)
    rest = outside @ W[:, np.argsort(-widths)[: n_components - n_best]]
    for rows, columns in ((found[:n_best], linalg.orth(best)), (found[n_best:], rest)):
        np.testing.assert_allclose(rows.T @ rows, columns @ columns.T, atol=1e-8)


def test_outside_the_dictionary_a_scatter_has_what_its_trace_leaves():
    rng = np.random.default_rng(3)
    X, y = rows(3)
    moments, _ = task_moments(X, y, range(3))
    L, more = (np.linalg.qr(rng.normal(size=(6, k)))[0].T for k in (2, 3))
    S, inside = moments.within, L.T @ L
    level = (np.trace(S) - np.trace(inside @ S)) / 4
    known = inside @ S @ inside + level * (np.eye(6) - inside)
    found = moved_moments(moved_moments(moments, L), more @ L.T)
    np.testing.assert_allclose(found.within, more @ known @ more.T, atol=1e-12)
    np.testing.assert_allclose(found.means, moments.means @ inside @ more.T, atol=1e-12)


@pytest.mark.parametrize("rotation", [np.zeros((0, 6)), np.linalg.qr(X0[:6])[0]])
def test_where_all_features_fit_their_rows_stay_as_they_are(rotation):
    X, y = rows(4)
    found = visit_basis(X, y, rotation, 6, 0.5, np.random.default_rng(0))
    np.testing.assert_array_equal(found, rotation if len(rotation) else np.eye(6))


@pytest.mark.parametrize("shared_labels", [False, True])
def test_moved_sums_are_the_sums_of_what_has_moved(shared_labels):
    wide = np.linalg.qr(np.random.default_rng(3).normal(size=(6, 4)))[0].T
    narrow = np.linalg.qr(np.random.default_rng(4).normal(size=(4, 2)))[0].T @ wide  # inside it
    tasks = [task_moments(*rows(seed), ["a", "b", "c"], narrow)[0] for seed in range(3)]
    A = wide @ narrow.T
    found = moved_sums(TaskSums.of(tasks, shared_labels), 6, A)
    anew = TaskSums.of([moved_moments(moments, A) for moments in tasks], shared_labels)
    assert (found.size, found.trace) == (anew.size, anew.trace)
    pairs = [*zip(found.total, anew.total), *zip(found.scatters, anew.scatters)]
    for mine, theirs in pairs:
        np.testing.assert_allclose(mine, theirs, rtol=1e-10, atol=1e-12)
    assert np.abs(found.total.between).max() > 0.1


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e9])
def test_rows_are_extended_by_directions_whatever_their_length(size):
    rng = np.random.default_rng(0)
    Q = np.linalg.qr(rng.normal(size=(8, 3)))[0].T
    rows = rng.normal(size=(2, 8))
    given = size * np.vstack([rows, np.zeros(8), Q[0], 3 * rows[0], Q[1] - Q[2]])
    found = _extended(Q, given)
    np.testing.assert_array_equal(found[:3], Q)
    np.testing.assert_allclose(found @ found.T, np.eye(5), atol=1e-12)
    np.testing.assert_allclose(rows @ found.T @ found, rows, atol=1e-12)


@pytest.mark.parametrize("n_rows", [0, 3])
def test_a_visit_is_told_in_its_dictionary_and_the_widest_directions_about_its_mean(n_rows):
    X, y = rows(5, n=40, n_features=12)
    L = np.linalg.qr(np.random.default_rng(1).normal(size=(12, 12)))[0][:n_rows]
    for shift in (0.0, 100.0 * np.random.default_rng(2).normal(size=12)):
        found = visit_basis(X + shift, y, L, 4, 0.7, np.random.default_rng(0))
        assert len(found) == n_rows + 2 + 4  # three classes have two discriminants
        np.testing.assert_allclose(found @ found.T, np.eye(len(found)), atol=1e-10)
        np.testing.assert_array_equal(found[:n_rows], L)
        # the last four: principal directions of the samples outside of all before them
        outside = linalg.null_space(found[:-4])
        _, W = linalg.eigh(np.cov((X @ outside).T))
        widest = outside @ W[:, -4:]
        np.testing.assert_allclose(found[-4:].T @ found[-4:], widest @ widest.T, atol=1e-6)


@pytest.mark.parametrize("keyed", [False, True])
def test_the_bytes_of_each_part_are_counted(keyed):
    learner = learned(4, shared_labels=keyed, n_components=5)
    number, T, c, d, D = 8, 4, 3, 5, 6  # tasks of three classes, coordinates, features
    trials = learner.tasks_[0].losses.size
    assert learner.state_parts_ == {
        "dictionary": number * d * D,
        "codes": number * T * d * d,
        "class means": number * T * (c * d + D),
        "sums": number * (2 * d * d + keyed * (d * d + c * d + 2 * c)),
        "records": number * T * (5 + 3 * c + trials),
    }
    assert learner.state_nbytes_ == sum(learner.state_parts_.values())
