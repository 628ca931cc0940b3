"""LifelongPLDA with more tasks than a visit takes into account one by one."""

import copy
import itertools
import pickle
from functools import partial

import interrupts
import numpy as np
import pytest
from interrupts import stop

from lml import base
from lml.plda import LifelongPLDA, selection, statistics
from lml.plda import learner as plda
from lml.plda.statistics import CoordinateChange, TaskMemory
from lml.state import read_state, write_state
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


def assert_sums_are_those_of_the_codes(learner, rtol=1e-8):
    state = learner.state_
    anew = state.sums(learner.shared_labels)
    assert set(anew) == set(state.pools)
    for key, pool in state.pools.items():
        other = anew[key]
        assert pool.size == other.size
        for mine, theirs in [(pool.within, other.within), (pool.between, other.between)]:
            assert np.abs(mine - theirs).max() <= rtol * np.abs(theirs).max()
            np.testing.assert_array_equal(mine, mine.T)
            assert np.linalg.eigvalsh(mine).min() > -rtol * np.abs(mine).max()
        assert pool.trace == pytest.approx(other.trace, rel=rtol)
        assert pool.noise == pytest.approx(other.noise, rel=rtol)
        if other.joined is not None:
            places = [pool.joined.labels.index(label) for label in other.joined.labels]
            np.testing.assert_array_equal(pool.joined.counts[places], other.joined.counts)
            size = np.abs(other.joined.means).max()
            gap = np.abs(pool.joined.means[places] - other.joined.means).max()
            assert gap <= rtol * size
            gap = np.abs(pool.joined.within - other.joined.within).max()
            assert gap <= rtol * np.abs(other.joined.within).max()
            assert pool.joined.trace == pytest.approx(other.joined.trace, rel=rtol)
            assert np.linalg.eigvalsh(pool.joined.within).min() > 0


@pytest.mark.parametrize("more", [{}, {"freeze": True}, {"revisit": "replace"}])
@pytest.mark.parametrize("keyed", [False, True])
def test_with_all_features_the_answers_are_those_of_all_old_tasks_one_by_one(keyed, more):
    few = learned(60, shared_labels=keyed, max_old_tasks=4, **more)
    assert few.state_.moves > 5
    assert_same_scores(few, learned(60, shared_labels=keyed, max_old_tasks=None, **more))


def test_what_validation_chooses_is_what_it_chooses_from_all_old_tasks():
    few, every = (
        stream(LifelongPLDA(random_state=0, n_folds=2, max_old_tasks=n), 20) for n in (4, None)
    )
    for task, memory in few.tasks_.items():
        assert memory.family == every.tasks_[task].family
        np.testing.assert_allclose(memory.losses, every.tasks_[task].losses, atol=1e-12)
    assert_same_scores(few, every)


@pytest.mark.parametrize("more", [{}, {"shared_labels": True}, {"n_components": 4}])
def test_up_to_max_old_tasks_the_bits_are_those_of_all_tasks(more):
    for n, same in [(8, True), (7, True), (6, False)]:
        one, every = (
            stream(LifelongPLDA(random_state=0, max_old_tasks=q, **GIVEN, **more), 8)
            for q in (n, None)
        )
        found = [np.array_equal(a, b) for a, b in zip(scores(one).values(), scores(every).values())]
        assert all(found) == same


@pytest.mark.parametrize("more", [{}, {"n_components": 3}, {"shared_labels": True}])
def test_the_work_of_a_visit_does_not_grow_with_the_number_of_tasks(more, monkeypatch):
    work = []
    for place, name in (
        (statistics, "remembered_moments"),
        (TaskMemory, "followed"),
        (plda, "written_moments"),
    ):
        known = getattr(place, name)

        def spy(*args, known=known, **kwargs):
            work[-1] += 1
            return known(*args, **kwargs)

        monkeypatch.setattr(place, name, spy)
    learner = LifelongPLDA(random_state=0, max_old_tasks=4, **GIVEN, **more)
    for k in range(60):
        work.append(0)
        learner.partial_fit(*rows(k), task=k)
    # the last moments in the sums, the own code written, four others
    assert set(work[20:]) <= set(range(2, 8))
    work.append(0)
    learner.partial_fit(*rows(99), task=5)
    assert work[-1] <= 10  # the old terms of the task too
    work.append(0)
    learner.forget(7)
    assert work[-1] <= 3
    assert len({m.moves for m in learner.state_.tasks.values()}) <= 2


@pytest.mark.parametrize("keyed", [False, True])
def test_after_hundreds_of_tasks_the_sums_are_those_of_the_codes(keyed):
    learner = LifelongPLDA(random_state=0, max_old_tasks=32, shared_labels=keyed, **GIVEN)
    for k in range(300):
        learner.partial_fit(*rows(k, 6, 3), task=k)
        if k % 10 == 9:
            learner.partial_fit(*rows(k + 5000, 6, 3), task=k - 7).forget(k - 4)
    assert len(learner.tasks_) == 270
    assert_sums_are_those_of_the_codes(learner)


@pytest.mark.parametrize("keyed", [False, True])
def test_in_a_small_dictionary_sums_move_as_codes_do(keyed):
    learner = learned(40, n_components=3, shared_labels=keyed, own_weight="auto", n_folds=2)
    assert learner.state_.moves > 3
    assert_sums_are_those_of_the_codes(learner)


@pytest.mark.parametrize("scale", [1e-5, 1e5])
def test_what_was_loud_leaves_no_rounding_behind(scale):
    learner, without = (learned(12, shared_labels=True) for _ in range(2))
    learner.partial_fit(*rows(77, scale=scale), task="loud").forget("loud")
    assert_sums_are_those_of_the_codes(learner)
    assert_same_scores(learner, without)


@pytest.mark.parametrize(
    "change",
    [
        {"max_old_tasks": None},
        {"regularization": 3.0},
        {"shared_labels": True},
        {"n_components": 4},
    ],
)
def test_after_a_change_of_parameters_the_next_visit_starts_from_the_codes(change):
    learner = learned().set_params(**change)
    assert learner.state_.move is not None  # codes wait
    twin = learned(max_old_tasks=None).set_params(**{**change, "max_old_tasks": None})
    for one in (learner, twin):  # as many visits as the dictionary may rest
        for k in range(50, 56):
            one.partial_fit(*rows(k), task=k)
    if "n_components" not in change:
        assert_same_scores(learner, twin)
    assert len(learner.dictionary_) == len(twin.dictionary_)


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("most", [3, None])
def test_sums_stand_in_the_dictionary_whatever_its_size_becomes(keyed, most):
    learner = learned(8, n_components=3, shared_labels=keyed, max_old_tasks=most)
    for n_components in (6, 4, 5):
        learner.set_params(n_components=n_components)
        for k in range(4):  # a larger one waits until all codes are written
            learner.partial_fit(*rows(50 + k), task=k)
            assert_sums_are_those_of_the_codes(learner, rtol=1e-6)
        assert len(learner.dictionary_) == n_components


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
    assert learner.partial_fit(*rows(0), task="again").state_.moves == 0


def test_what_is_handed_out_is_in_the_present_dictionary():
    learner = learned(11, code_penalty=0.0)
    waiting = {u for u, m in learner.state_.tasks.items() if m.moves < learner.state_.moves}
    assert waiting
    L = learner.dictionary_
    every = learned(11, max_old_tasks=None)
    R = np.linalg.inv(every.dictionary_)
    for task, code in learner.codes_.items():
        scatter = R @ every.codes_[task] @ R.T
        np.testing.assert_allclose(code, L @ scatter @ L.T, atol=1e-10)
        np.testing.assert_array_equal(learner.tasks_[task].code, code)


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


def test_sums_are_locked_and_survive_pickling():
    learner = pickle.loads(pickle.dumps(learned(9, shared_labels=True)))
    for pool in learner.state_.pools.values():
        for part in pool.arrays:
            with pytest.raises(ValueError, match="read-only"):
                part[...] = 0
    assert_same_scores(learner, learned(9, shared_labels=True), rtol=0)


def test_outside_the_dictionary_a_scatter_has_what_its_trace_leaves():
    rng = np.random.default_rng(3)
    A = rng.normal(size=(6, 6))
    S, L, rows_ = A @ A.T, rng.normal(size=(2, 6)), rng.normal(size=(3, 6))
    inside = np.linalg.pinv(L) @ L  # projector to the span: no row of L has length 1
    assert abs(np.trace(L @ S @ L.T) - np.trace(inside @ S)) > 1
    level = (np.trace(S) - np.trace(inside @ S)) / 4
    known = inside @ S @ inside + level * (np.eye(6) - inside)
    found = CoordinateChange.between(L, rows_).scatter(L @ S @ L.T, np.trace(S))
    np.testing.assert_allclose(found, rows_ @ known @ rows_.T)


# --- files ----------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "s.npz"
    learned(11, shared_labels=True).save(path)
    meta, arrays = read_state(path, "LifelongPLDA")
    assert meta["state"]["move"]
    return path, meta, arrays


def entry(**change):
    return lambda state, arrays: state.update(change)


def pool_entry(**change):
    return lambda state, arrays: state["pools"][0][1].update(change)


def number(name, value):
    """Change the first number of an array."""
    return lambda state, arrays: arrays.update(
        {name: np.append(np.asarray(value, arrays[name].dtype), arrays[name][1:])}
    )


def without_joined(state, arrays):
    gone = [name for name in arrays if name.startswith("pools.joined")]
    for _, pool in state["pools"]:
        pool["joined"] = None
    for name in gone:
        del arrays[name]


FAULTS = {
    "pools is 3": entry(pools=3),
    "sizes of the pools": pool_entry(size=4),
    r"pools\[0\] is .*an object": lambda state, arrays: state["pools"][0][1].pop("trace"),
    r"pools\[0\].trace is -1": pool_entry(trace=-1.0),
    r"pools\[0\].size is 0": pool_entry(size=0),
    r"name of pools\[0\] is 'all'": lambda state, arrays: state["pools"][0].__setitem__(0, "all"),
    "moves is -1": entry(moves=-1),
    "moves of the tasks": lambda state, arrays: (
        state.update(move=None),
        [arrays.pop(name) for name in ("move.map", "move.outside", "move.gram")],
    ),
    "at most one behind": lambda state, arrays: state["tasks"][0][1].update(moves=0),
    r"pools\[0\].joined is 3": pool_entry(joined=3),
    r"labels is \(1, 1, 2\), not different": lambda state, arrays: state["pools"][0][1][
        "joined"
    ].update(labels=[1, 1, 2]),
    r"labels of pool \(0, False\)": lambda state, arrays: state["pools"][0][1]["joined"].update(
        labels=[1]
    ),
    "joined of the pools": without_joined,
    "'pools.rows', not": lambda state, arrays: arrays.pop("pools.rows"),
    "joined.counts is .*at least 1": number("pools.joined.counts", [0]),
    r"pools\[0\].within is .*symmetric": lambda state, arrays: arrays["pools.within"][:36].sort(),
    r"joined.within is .*symmetric": lambda state, arrays: arrays["pools.joined.within"][
        :36
    ].sort(),
    r"shape of pools\[0\].between is \[5, 6\]": pool_entry(between=["C", 5, 6]),
    "'move.gram', not": lambda state, arrays: arrays.pop("move.gram"),
    r"shape of move.map is \[2, 2\]": lambda state, arrays: state["move"].update(map=["C", 2, 2]),
    "n_features is 7": lambda state, arrays: state["pools"][0][1]["joined"].update(n_features=7),
}


@pytest.mark.parametrize("said", list(FAULTS))
def test_a_file_whose_sums_do_not_fit_is_refused(said, saved):
    path, meta, arrays = saved
    FAULTS[said](meta["state"], arrays)
    write_state(path, "LifelongPLDA", meta, arrays)
    with pytest.raises(ValueError, match=said):
        LifelongPLDA.load(path)
