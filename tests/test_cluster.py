"""Candidates and repeats side by side, on any backend: the same bits, data sent once."""

from __future__ import annotations

import os
import uuid

import joblib
import numpy as np
import pytest
from lifelong_streams import all_of

from lml.datasets import load_digits_tasks
from lml.lifelong import LifelongMetricLearner
from lml.oasis import OASIS
from lml.scml import SCML

TASKS = load_digits_tasks(random_state=0)
BASES = {
    "oasis": OASIS(n_steps=500),
    "scml": SCML(n_basis=20, n_steps=500),
}


def learned(base, n_jobs=None):
    """A learner of all tasks, the first of which comes back."""
    learner = LifelongMetricLearner(base, n_jobs=n_jobs, random_state=3)
    for task in [*TASKS, TASKS[0]]:
        learner.partial_fit(task.X_train, task.y_train, task=task.name)
    return learner


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize(
    ("backend", "n_jobs"), [("threading", 3), ("loky", 2), ("threading", 1), ("threading", -1)]
)
def test_candidates_side_by_side_give_the_bits_of_one_after_the_other(base, backend, n_jobs):
    with joblib.parallel_config(backend):
        wide = learned(BASES[base], n_jobs)
    assert all_of(wide) == all_of(learned(BASES[base]))


class AwayOASIS(OASIS):
    """Learns half of the samples in any process but `home`."""

    def __init__(self, home=0, random_state=None):
        super().__init__(n_steps=10, random_state=random_state)
        self.home = home

    def fit(self, X, y):
        if os.getpid() == self.home and len(y) < 60:
            raise RuntimeError("learned in the parent")
        return super().fit(X, y)


def test_candidates_run_in_the_workers():
    assert {len(task.y_train) // 60 for task in TASKS} == {1}  # half of them are fewer than 60
    base = AwayOASIS(os.getpid())
    with joblib.parallel_config("loky", n_jobs=2):
        assert len(learned(base).tasks_) == len(TASKS)
    with pytest.raises(RuntimeError, match="learned in the parent"):
        learned(base)


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
        wide = learned(BASES["scml"])
    assert all_of(wide) == all_of(learned(BASES["scml"]))


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
