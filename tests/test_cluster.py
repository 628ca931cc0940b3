"""Base learners of different tasks side by side, on any backend: the same bits, data sent once."""

from __future__ import annotations

import itertools
import os
import uuid

import joblib
import numpy as np
import pytest

from lml.datasets import load_digits_tasks
from lml.lifelong import LifelongMetricLearner
from lml.oasis import OASIS
from lml.scml import SCML

TASKS = load_digits_tasks(random_state=0)
X = np.concatenate([task.X_train for task in TASKS])
Y = np.concatenate([task.y_train for task in TASKS])
NAMES = [task.name for task in TASKS for _ in task.y_train]
BASES = {
    "oasis": OASIS(n_steps=500),
    "scml": SCML(n_basis=20, n_steps=500),
}


def one_by_one(base, **options):
    learner = LifelongMetricLearner(base, random_state=3, **options)
    for task in TASKS:
        learner.partial_fit(task.X_train, task.y_train, task=task.name)
    return learner


def assert_same(learner, other):
    assert np.array_equal(learner.dictionary_, other.dictionary_)
    assert learner.tasks_ == other.tasks_
    assert list(learner.codes_) == list(other.codes_)
    assert all(np.array_equal(learner.codes_[name], other.codes_[name]) for name in other.codes_)


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize(("backend", "n_jobs"), [("threading", 3), ("loky", 2), ("threading", 1)])
def test_a_table_gives_the_bits_of_visits_one_by_one(base, backend, n_jobs):
    wide = LifelongMetricLearner(BASES[base], n_jobs=n_jobs, random_state=3)
    with joblib.parallel_config(backend):
        wide.fit(X, Y, tasks=NAMES)
    assert_same(wide, one_by_one(BASES[base]))


def test_tasks_that_start_from_the_others_keep_their_order():
    options = {"warm_start_from_dictionary": True}
    wide = LifelongMetricLearner(BASES["oasis"], n_jobs=2, random_state=3, **options)
    assert_same(wide.fit(X, Y, tasks=NAMES), one_by_one(BASES["oasis"], **options))


class AwayOASIS(OASIS):
    """Learns in any process but `home`."""

    def __init__(self, home=0, random_state=None):
        super().__init__(n_steps=10, random_state=random_state)
        self.home = home

    def fit(self, X, y):
        if os.getpid() == self.home:
            raise RuntimeError("learnt in the parent")
        return super().fit(X, y)


def test_base_learners_run_in_the_workers():
    base = AwayOASIS(os.getpid())
    with joblib.parallel_config("loky", n_jobs=2):
        LifelongMetricLearner(base, random_state=3).fit(X, Y, tasks=NAMES)
    with pytest.raises(RuntimeError, match="learnt in the parent"):
        LifelongMetricLearner(base, random_state=3).fit(X, Y, tasks=NAMES)


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_a_task_that_cannot_be_learnt_leaves_the_learner_as_it_was(n_jobs):
    learner = one_by_one(BASES["oasis"], n_jobs=n_jobs)
    before = learner.dictionary_, learner.tasks_
    with (
        joblib.parallel_config("threading"),
        pytest.raises(ValueError, match=r"task '7-8-9' has .* samples of 1 classes"),
    ):
        learner.fit(X, np.where(np.array(NAMES) == "7-8-9", 7, Y), tasks=NAMES)
    assert learner.dictionary_ is before[0]
    assert learner.tasks_ == before[1]


def count_draws(monkeypatch, real=np.random.SeedSequence):
    """Instead of entropy of the system, 1 at the first draw, then 2, ..."""
    draws = itertools.count(1)

    def sequence(entropy=None):
        return real(next(draws) if entropy is None else entropy)

    monkeypatch.setattr(np.random, "SeedSequence", sequence)


def test_without_a_seed_a_table_is_learnt_from_one_root(monkeypatch):
    count_draws(monkeypatch)
    with joblib.parallel_config("threading"):
        learner = LifelongMetricLearner(BASES["oasis"], n_jobs=2).fit(X, Y, tasks=NAMES)
    count_draws(monkeypatch)
    again = LifelongMetricLearner(BASES["oasis"], random_state=None)
    for task in TASKS:
        again.partial_fit(task.X_train, task.y_train, task=task.name)
    assert_same(learner, again)


class Rows:
    """Rows that note their arrival in a process."""

    def __init__(self, X):
        self.X, self.arrival = X, uuid.uuid4().hex

    def __reduce__(self):
        return Rows, (self.X,)


def learn(data, y, seed):
    """A repeat on the same rows."""
    model = OASIS(n_steps=200, random_state=seed).fit(data.X, y)
    return model.metric_.to_dense(), os.getpid(), data.arrival


@pytest.fixture(scope="module")
def cluster():
    """Two workers in processes of their own."""
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**options) as local, distributed.Client(local):
        yield local


def test_a_dask_cluster_gives_the_same_bits(cluster):
    with joblib.parallel_config("dask"):
        wide = LifelongMetricLearner(BASES["scml"], random_state=3).fit(X, Y, tasks=NAMES)
    assert_same(wide, one_by_one(BASES["scml"]))


def test_rows_of_many_repeats_are_sent_to_each_worker_once(cluster):
    data, y = Rows(TASKS[0].X_train), TASKS[0].y_train
    calls = [joblib.delayed(learn)(data, y, seed) for seed in range(12)]
    with joblib.parallel_config("dask", scatter=[data]):
        found = joblib.Parallel()(calls)
    processes, arrivals = ({result[n] for result in found} for n in (1, 2))
    assert os.getpid() not in processes
    assert len(arrivals) == len(processes)  # a copy for each worker, not one for each repeat
    for seed, (metric, *_) in enumerate(found):
        assert np.array_equal(metric, learn(data, y, seed)[0])
