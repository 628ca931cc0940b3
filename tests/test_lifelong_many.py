"""LifelongMetricLearner with many tasks: codes that wait, and what grows."""

import copy
import itertools

import numpy as np
import pytest
from lifelong_streams import (
    NAMES,
    all_of,
    arrays_of,
    learn,
    make_learner,
    make_task,
    same,
    save_and_load,
)
from scipy import sparse

from lml import dictionary, lifelong
from lml.oasis import OASIS
from lml.scml import SCML

BASES = ("oasis", "scml")  # by name

# --- many tasks ---------------------------------------------------------------------------


def every_move(learner, names):
    """The oracle: every code follows every move; the codes and the dictionary at the end."""
    codes = {}
    for number, name in enumerate(names):
        known = getattr(learner, "dictionary_", None)
        learner.partial_fit(*make_task(number), task=name)
        L = learner.dictionary_
        codes = {u: L @ known.T @ W @ known @ L.T for u, W in codes.items()}
        codes[name] = learner.codes_[name]
    return codes


@pytest.mark.parametrize("most", [1, 2, 5, 32])
def test_codes_that_wait_are_those_that_follow_every_move(most):
    learner = make_learner(max_old_tasks=most, n_triplets=200)
    expected = every_move(learner, [n % 17 for n in range(40)])
    assert list(learner.codes_) == list(expected)
    for task, code in expected.items():
        np.testing.assert_allclose(learner.codes_[task], code, atol=1e-10)
    assert (learner.state_parts_["moves"] == 0) == (most >= 17)


@pytest.mark.parametrize("more", [{}, {"gradient_memory": 2}, {"old_tasks": "codes"}])
def test_up_to_max_old_tasks_nothing_differs_from_all(more):
    more = {"n_triplets": 200, "dictionary_loss": "residual", **more}
    more["warm_start_from_dictionary"] = True
    if "gradient_memory" in more:
        more["dictionary_loss"] = "hinge"
    one, all_ = (learn(make_learner(max_old_tasks=n, **more), range(7)) for n in (6, None))
    same(one, all_)
    fewer = learn(make_learner(max_old_tasks=5, **more), range(7))
    assert not np.array_equal(fewer.dictionary_, all_.dictionary_)


@pytest.mark.parametrize("base", BASES, ids=["oasis", "scml"])
def test_the_step_and_the_transfer_take_the_tasks_that_waited_longest(base, monkeypatch):
    taken, real = [], lifelong._residual_objective

    def watch(L, codes, *parts):
        taken.append([u for u in codes if isinstance(u, int)])
        return real(L, codes, *parts)

    monkeypatch.setattr(lifelong, "_residual_objective", watch)
    learner = make_learner(base_learner=base, max_old_tasks=2, dictionary_loss="residual")
    line = []  # of tasks that wait
    for number in range(9):
        taken.clear()
        learner.partial_fit(*make_task(number), task=number)
        assert all(codes == sorted(line[:2]) for codes in taken)
        assert len(taken) > 1
        line = [*line[2:], *sorted(line[:2]), number]
    learner.forget(0).forget(3)
    assert set(learner.codes_) == set(learner.tasks_) == {1, 2, 4, 5, 6, 7, 8}


@pytest.mark.parametrize("again", [save_and_load, lambda learner, path: copy.deepcopy(learner)])
def test_a_learner_whose_codes_wait_goes_on_bit_for_bit(again, tmp_path):
    learner = make_learner(max_old_tasks=2, n_triplets=100)
    for number in range(30):
        visit = (*make_task(number), (number * 7) % 19)
        twin = again(learner, tmp_path / "s") if number else learner
        if number % 5 == 0:
            assert len(learner.codes_) == len(learner.tasks_) if number else True  # a reader
        learner.partial_fit(*visit[:2], task=visit[2])
        if number:
            twin.partial_fit(*visit[:2], task=visit[2])
            assert all_of(twin) == all_of(learner)
            assert twin.state_parts_ == learner.state_parts_
        if number in (11, 23):
            for one in (learner, twin):
                one.forget((number * 7) % 19)
    assert not any(code.flags.writeable for code in learner.codes_.values())
    held = sum(array.nbytes for array in arrays_of(vars(learner)))
    assert held <= learner.state_nbytes_


@pytest.mark.parametrize("most", [1, 4])
def test_moves_that_wait_are_bounded_by_the_tasks_whatever_the_visits(most):
    learner = make_learner(max_old_tasks=most, n_triplets=50, base_learner=OASIS(n_steps=20))
    sizes = []
    for visit in range(60):
        learner.partial_fit(*make_task(visit), task=visit % 12)
        sizes.append(learner.state_parts_["moves"])
    assert max(sizes) <= 2 * 8 * 16 * (12 / most)
    assert max(sizes[40:]) == max(sizes[20:40])


@pytest.mark.parametrize("more", [{}, {"dictionary_loss": "residual"}, {"gradient_memory": 1}])
def test_a_late_task_does_the_work_of_an_early_one(more, monkeypatch):
    """Codes that follow a move, counted: all of a visit but the copies of tables."""
    counts, real = [], dictionary.keep_codes

    def count(code, change):
        counts[-1] += 1
        return real(code, change)

    monkeypatch.setattr(dictionary, "keep_codes", count)
    monkeypatch.setattr(lifelong, "keep_codes", count)
    base = OASIS(n_steps=10)
    learner = make_learner(max_old_tasks=4, n_triplets=20, base_learner=base, dictionary_steps=2)
    learner.set_params(warm_start_from_dictionary=True, **more)
    for number in range(60):
        counts.append(0)
        learner.partial_fit(*make_task(number, n=9), task=number)
    assert 4 < max(counts) <= 4 * (2 + 1 + 1)  # of four tasks: two steps, the turn, the mean


@pytest.mark.parametrize("rows", [np.array, sparse.csr_array])
@pytest.mark.parametrize(
    "base", [OASIS(n_steps=100), SCML(n_basis=20, n_steps=50)], ids=["oasis", "scml"]
)
def test_nothing_grows_with_the_rows_or_the_visits(rows, base, tmp_path):
    sizes = []
    for n, visits in ((12, 1), (240, 1), (12, 4)):
        learner = make_learner(base_learner=base, gradient_memory=2, dictionary_loss="hinge")
        for visit in range(visits):
            for number, task in enumerate(NAMES):
                X, y = make_task(number + 10 * visit, n=n, n_features=40)
                learner.partial_fit(rows(X), y, task=task)
        learner.save(tmp_path / "s")
        held = sum(array.nbytes for array in arrays_of(vars(learner)))
        text = len(repr(learner.tasks_))  # longer numbers
        assert held <= learner.state_nbytes_
        sizes.append(((tmp_path / "s").stat().st_size - text, held, learner.state_nbytes_))
    assert max(size[0] for size in sizes) - min(size[0] for size in sizes) < 200
    assert len({size[1:] for size in sizes}) == 1


def test_a_loaded_learner_lets_go_of_what_it_forgets(tmp_path):
    twin = save_and_load(learn(make_learner(gradient_memory=2)), tmp_path / "s")
    for task in NAMES[:2]:
        twin.forget(task)
        assert sum(array.nbytes for array in arrays_of(vars(twin))) <= twin.state_nbytes_


def test_each_task_adds_its_code_its_gradient_and_a_record():
    learner, parts = make_learner(gradient_memory=2), []
    for number in range(5):
        learner.partial_fit(*make_task(number), task=number)
        parts.append(learner.state_parts_)
    steps = [{k: b[k] - a[k] for k in a} for a, b in itertools.pairwise(parts)]
    assert all(step == steps[0] for step in steps)
    assert steps[0]["dictionary"] == 0
    assert steps[0]["codes"] == 8 * 4 * 4
    assert steps[0]["gradients"] == 8 * (2 * 7 + 2 + 1)
    learner.forget(0)
    assert learner.state_parts_ == parts[3]
