"""Streams of small tasks for learners of tasks in time, and what these know, as bytes."""

from dataclasses import is_dataclass, replace

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator

from lml.lifelong import LifelongMetricLearner
from lml.metrics import FactoredMetric
from lml.oasis import OASIS
from lml.scml import SCML

NAMES = ("paris", 42, ("a", 1))
BASES = [OASIS(n_steps=300), SCML(n_basis=20, n_steps=500)]


class Given(BaseEstimator):
    """A base learner whose metric the test sets (optionally failing on demand)."""

    def __init__(self, metric=None, metric_type="similarity", error=None):
        self.metric = metric
        self.metric_type = metric_type
        self.error = error

    def fit(self, X, y):
        if self.error is not None:
            raise self.error
        self.metric_ = self.metric
        return self


def make_task(seed, n=30, n_features=7, n_classes=3):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    X = rng.normal(size=(n, n_features))
    X[:, :n_classes] += 2.0 * np.eye(n_classes)[y]
    return X, y


def make_learner(base_learner=BASES[0], **parameters):
    given = {"n_components": 4, "random_state": 0} | parameters
    return LifelongMetricLearner(base_learner, **given)


def learn(learner, names=NAMES, start=0):
    for number, name in enumerate(names, start=start):
        learner.partial_fit(*make_task(number), task=name)
    return learner


def save_and_load(learner, path):
    learner.save(path)
    return LifelongMetricLearner.load(path)


def all_of(learner):
    """Everything that a learner knows, as bytes and plain values; None before the first task.

    Births are left out: they tell lives of a name apart while the program runs.
    """
    if learner._state is None:
        return None
    return in_bytes(replace(learner._state, births={}, n_births=0))


def in_bytes(value):
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, value.flags.f_contiguous, value.tobytes("A")
    if isinstance(value, FactoredMetric):
        return in_bytes({"alpha": value.alpha, "factor": value.factor, "core": value.core})
    if sparse.issparse(value) or is_dataclass(value):
        return type(value).__name__, in_bytes(vars(value))
    if isinstance(value, dict):
        return [(repr(key), in_bytes(part)) for key, part in value.items()]
    return repr(value)


def small(**parameters):
    given = {"n_components": 3, "random_state": 0} | parameters
    return LifelongMetricLearner(OASIS(n_steps=3), **given)


def small_task(seed):
    return make_task(seed, n=9, n_features=5)


def arrays_of(thing, seen=None):
    """All arrays that an object holds alive, views with what they are views of."""
    seen = {} if seen is None else seen
    if id(thing) in seen:
        return []
    seen[id(thing)] = thing
    if isinstance(thing, np.ndarray):
        base = thing
        while isinstance(base.base, np.ndarray):
            base = base.base
        return [base]
    if isinstance(thing, dict):
        parts = [*thing.keys(), *thing.values()]
    elif isinstance(thing, (list, tuple)):
        parts = thing
    elif sparse.issparse(thing):
        parts = (thing.data, thing.indices, thing.indptr)
    else:
        parts = vars(thing).values() if hasattr(thing, "__dict__") else ()
    return [array for part in parts for array in arrays_of(part, seen)]
