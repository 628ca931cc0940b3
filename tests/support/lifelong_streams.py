"""Streams of small tasks for the tests of LifelongMetricLearner, and what it knows, as bytes."""

from typing import ClassVar

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator

from lml.lifelong import LifelongMetricLearner
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


def make_learner(**parameters):
    parameters = {"n_components": 4, "random_state": 0, **parameters}
    return LifelongMetricLearner(parameters.pop("base_learner", OASIS(n_steps=300)), **parameters)


def learn(learner, names=NAMES, start=0):
    for number, name in enumerate(names, start=start):
        learner.partial_fit(*make_task(number), task=name)
    return learner


def seeds_of(learner, number, n_visits=0):
    """The seeds of a visit: of the base learner, of the triplets, of the first dictionary."""
    root = np.random.RandomState(learner.random_state).randint(2**31)
    sequence = np.random.SeedSequence([root, number, n_visits])
    return sequence.generate_state(3).tolist()


class Watched(OASIS):
    """OASIS that notes what it is started with and what it learns."""

    seen: ClassVar[list] = []

    def fit(self, X, y):
        super().fit(X, y)
        self.seen.append(self)
        return self


def same(a, b):
    assert list(a.tasks_) == list(b.tasks_)
    assert a.tasks_ == b.tasks_
    np.testing.assert_array_equal(a.dictionary_, b.dictionary_)
    for name in a.tasks_:
        np.testing.assert_array_equal(a.codes_[name], b.codes_[name])


def save_and_load(learner, path):
    learner.save(path)
    return LifelongMetricLearner.load(path)


def all_of(learner):
    """Everything that a learner knows, as bytes and plain values."""
    if not hasattr(learner, "tasks_"):
        return None
    memory = learner.memory_ and [
        (u, G.alpha, G.factor.tobytes("A"), G.factor.flags.f_contiguous, G.core.tobytes())
        for u, G in learner.memory_.gradients.items()
    ]
    arrays = [learner.dictionary_, *learner.codes_.values()]
    return (
        [(array.shape, array.tobytes()) for array in arrays],
        [(repr(u), repr(record)) for u, record in learner.tasks_.items()],
        repr(list(learner.codes_)),
        memory and (learner.memory_.rank, memory, learner.memory_.errors),
        (learner.metric_type_, list(getattr(learner, "feature_names_in_", []))),
        learner.n_features_in_,
    )


def small(**parameters):
    parameters = {"n_components": 3, "random_state": 0, "n_triplets": 5, "dictionary_steps": 1,
                  "gradient_memory": 1, **parameters}  # fmt: skip
    return LifelongMetricLearner(OASIS(n_steps=3), **parameters)


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
