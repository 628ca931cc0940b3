"""LifelongMetricLearner has one state: interrupts, signals, threads."""

import copy
import gc
import itertools
import os
import signal
import sys
import threading
from collections import Counter
from functools import partial

import interrupts
import numpy as np
import pytest
from interrupts import stop
from lifelong_streams import (
    all_of,
    learn,
    make_learner,
    make_task,
    small,
    small_task,
)

from lml import base, lifelong
from lml.lifelong import LifelongMetricLearner
from lml.oasis import OASIS

at_step = partial(interrupts.at_step, (lifelong, base))

CHANGES = {
    "new": lambda learner: learner.partial_fit(*small_task(5), task="new"),
    "known": lambda learner: learner.partial_fit(*small_task(5), task="a"),
    "table": lambda learner: learner.fit(*small_task(5), tasks=["x"] * 9),
    "forget": lambda learner: learner.forget("a"),
}


@pytest.mark.parametrize("change", [*CHANGES, "first"])
def test_an_interrupt_anywhere_leaves_the_old_state_or_after_the_assignment_the_new(change):
    learner = small()
    if change != "first":
        for number, task in enumerate(("a", "b")):
            learner.partial_fit(*small_task(number), task=task)
    call = CHANGES.get(change, CHANGES["new"])
    new, old = all_of(call(copy.deepcopy(learner))), all_of(learner)
    assert new != old
    before, late = dict(vars(learner)), 0
    stride = 1 if change == "forget" else int(os.environ.get("LML_STRIDE", "5"))  # 1: every step
    for number in itertools.count(0, stride):
        twin = copy.copy(learner)
        try:
            done, _ = at_step(number, stop, lambda twin=twin: call(twin))
        except KeyboardInterrupt:
            late += all_of(twin) == new
            assert late or vars(twin) == before
        else:
            assert done
            break
    assert number > 10
    assert late <= 3  # nothing is left to do but to return
    assert all_of(learner) == old  # what the twins shared has not changed either
    assert all_of(call(learner)) == new
    thread = threading.Thread(target=learner.partial_fit, args=small_task(7), kwargs={"task": "z"})
    thread.start()
    thread.join(60)
    assert "z" in learner.tasks_  # no lock is held


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there is no such timer")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_signals_at_random_times_leave_whole_states_and_no_other_files(tmp_path):
    learner, path, rng = small(), tmp_path / "s", np.random.default_rng(0)
    outcome, kept = Counter(), all_of(learner)
    learner.save(path)
    handler = signal.signal(signal.SIGALRM, lambda *_: stop())
    try:
        for number in range(150):
            twin, visit = copy.copy(learner), (*small_task(number), number % 4)
            old, new = all_of(learner), all_of(twin.partial_fit(*visit[:2], task=visit[2]))
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-4, 0.02))
                learner.partial_fit(*visit[:2], task=visit[2])
                learner.save(path)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                outcome[all_of(learner) == new] += 1
            assert all_of(learner) in (old, new)
            found = all_of(LifelongMetricLearner.load(path))
            assert found in (kept, all_of(learner))
            kept = found
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
    gc.collect()  # archives closed half-way complain here, not in another test
    assert outcome[False] > 0  # during visits
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_candidate_that_fails_in_a_thread_of_its_own_changes_nothing(n_jobs):
    learner = learn(make_learner(n_jobs=n_jobs))
    before, twin = all_of(learner), copy.deepcopy(learner)
    learner.set_params(base_learner=Failing(n_steps=300))
    with pytest.raises(MemoryError):
        learner.partial_fit(*make_task(4), task="new")
    assert all_of(learner) == before
    learner.set_params(base_learner=OASIS(n_steps=300))
    for one in (learner, twin):
        one.partial_fit(*make_task(4), task="new")
    assert all_of(learner) == all_of(twin)


class Failing(OASIS):
    """Cannot learn from half of the samples."""

    def fit(self, X, y):
        if len(X) < 20:
            raise MemoryError
        return super().fit(X, y)


READINGS = {
    "transform": lambda learner: learner.transform(small_task(9)[0], task="a"),
    "pair_score": lambda learner: learner.pair_score(small_task(9)[0][None, :2], task="a"),
    "metric_matrix": lambda learner: learner.metric_matrix("a"),
    "get_mahalanobis_matrix": lambda learner: learner.get_mahalanobis_matrix("a"),
    "get_metric": lambda learner: learner.get_metric("a")(*small_task(9)[0][:2]),
    "state_parts_": lambda learner: list(learner.state_parts_.values()),
    "codes_": lambda learner: list(learner.codes_),
    "tasks_": lambda learner: [record.n_visits for record in learner.tasks_.values()],
    "shared_metric_": lambda learner: learner.shared_metric_.to_dense(),
}


@pytest.mark.parametrize("read", list(READINGS))
def test_a_reader_gets_the_old_or_the_new_answer_wherever_another_thread_learns(read):
    X, y = small_task(4)
    X /= 10  # no triplet has its margin, so that each step learns
    old = small(sharing=0.6).partial_fit(*small_task(0), task="a")
    new = copy.deepcopy(old).partial_fit(X, y, task="b")
    answers = [READINGS[read](learner) for learner in (old, new)]
    assert not np.array_equal(*answers)  # a task that arrives moves the others
    found = Counter()
    for number in itertools.count():
        learner = copy.copy(old)

        def learn_meanwhile(learner=learner):
            learner.partial_fit(X, y, task="b")

        done, answer = at_step(number, learn_meanwhile, lambda one=learner: READINGS[read](one))
        if done:
            break
        places = [place for place in (0, 1) if np.array_equal(answer, answers[place])]
        assert places, f"step {number}: {answer} is of neither state"
        found[places[0]] += 1
    assert found[0] > 0
    assert found[1] > 0


def test_a_file_holds_one_state_wherever_another_thread_learns(tmp_path):
    old = small().partial_fit(*small_task(0), task="a")
    new = copy.deepcopy(old).partial_fit(*small_task(2), task="b")
    both = [all_of(old), all_of(new)]
    for number in itertools.count(0, 7):
        learner = copy.copy(old)

        def learn_meanwhile(learner=learner):
            learner.partial_fit(*small_task(2), task="b")

        done, _ = at_step(number, learn_meanwhile, lambda one=learner: one.save(tmp_path / "s"))
        assert all_of(LifelongMetricLearner.load(tmp_path / "s")) in both
        if done:
            break


def test_threads_that_read_while_one_learns_see_only_whole_states():
    stream = [(*small_task(number), f"t{number % 3}") for number in range(12)]
    learner = small(sharing=0.6).partial_fit(*small_task(20), task="q")
    query = small_task(9)[0]
    allowed, twin = [], copy.deepcopy(learner)
    for X, y, task in [(None, None, None), *stream]:
        if task:
            twin.partial_fit(X, y, task=task)
        allowed.append(twin.transform(query, task="q").tobytes())
    seen, done = [[] for _ in range(3)], threading.Event()

    def read(answers):
        while not done.is_set():
            answers.append(learner.transform(query, task="q").tobytes())
        answers.append(learner.transform(query, task="q").tobytes())

    threads = [threading.Thread(target=read, args=(answers,)) for answers in seen]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for X, y, task in stream:
            learner.partial_fit(X, y, task=task)
    finally:
        done.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(interval)
    for answers in seen:
        order = [allowed.index(answer) for answer in answers]
        assert order == sorted(order)
        assert answers[-1] == allowed[-1]
    assert all_of(learner) == all_of(twin)


def test_threads_that_learn_at_once_take_turns_and_lose_nothing():
    learner = small()
    visits = [(number, f"t{number}") for number in range(6)]
    threads = [
        threading.Thread(target=learner.partial_fit, args=small_task(n), kwargs={"task": task})
        for n, task in visits
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(learner.tasks_) == {task for _, task in visits}
    assert sorted(record.number for record in learner.tasks_.values()) == list(range(6))
    twin = small()  # the same visits in the order in which they came
    for task in learner.tasks_:
        twin.partial_fit(*small_task(int(task[1:])), task=task)
    assert all_of(twin) == all_of(learner)


def test_what_is_handed_out_cannot_change_the_learner():
    learner = learn(make_learner(sharing=0.5))
    before = all_of(learner)
    learner.codes_.clear()
    learner.tasks_.clear()
    for metric in (learner.codes_[42], learner.shared_metric_, learner.task_metric(42)):
        for array in (metric.factor, metric.core):
            with pytest.raises(ValueError, match="read-only"):
                array.flat[0] = 1.0
    names = ("codes_", "tasks_", "sharing_", "shared_metric_", "metric_type_", "n_features_in_")
    for name in names:
        with pytest.raises(AttributeError):
            setattr(learner, name, None)
    assert all_of(learner) == before
