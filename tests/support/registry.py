"""The public learners, each with small settings and with how it is called.

`checks` tells what holds for every one of them, `test_learners` asks each check of each entry.
A new learner is one line in `ENTRIES`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lml.baselines import (
    ELLA,
    MultiTaskLMNN,
    MultiTaskOASIS,
    MultiTaskSCML,
    OffDiagonalLearner,
    PooledMetricLearner,
)
from lml.evaluation import LifelongKNeighborsClassifier
from lml.lifelong import LifelongMetricLearner
from lml.lmnn import LMNN
from lml.metrics import FactoredMetric
from lml.neighbors import MetricKNeighborsClassifier
from lml.oasis import OASIS
from lml.paper import DictionaryMetricLearner
from lml.plda import LifelongPLDA
from lml.scml import SCML
from lml.weak_supervision import OpenSetClassifier, PairClassifier

# --- small data ---------------------------------------------------------------------------


def samples(n=24, D=4, seed=0, gap=3.0):
    """Two classes that overlap a little; the numbers are exact in single precision."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    X = rng.normal(size=(n, D))
    X[:, 0] += gap * y
    return X.astype(np.float32).astype(np.float64), y


X0, Y0 = samples()
FRESH, _ = samples(8, seed=1)  # nothing was learned from these

# Two classes so far apart that no triplet is violated.
FAR = np.random.default_rng(0).normal(size=(20, 4)) * 0.1
FAR[:, 0] += np.repeat([500.0, -500.0], 10)
FAR -= FAR.mean(axis=0)
FAR_Y = np.repeat([0, 1], 10)

TASK_NAMES = ["paris", 42, ("a", 1)]

# --- an entry -----------------------------------------------------------------------------

WITHOUT_SAMPLES = {"task_metric", "metric_matrix", "get_metric", "get_mahalanobis_matrix"}


@dataclass(frozen=True)
class Entry:
    """A learner from samples and labels.

    Attributes
    ----------
    name : str
    make : callable
        Gives a fresh learner; its argument is the number of features.
    kind : {"single", "stream", "references", "table"}
        How it is called: fit(X, y), partial_fit(X, y, task=), fit(X, y, task=), fit(X, y, tasks=).
    family : str
        `--fast` takes the first entry of each family.
    takes_sparse, takes_one_class, seeded : bool
    least : int
        The fewest samples that it takes.
    """

    name: str
    make: Callable
    kind: str
    family: str
    takes_sparse: bool = True
    takes_one_class: bool = False
    seeded: bool = True
    least: int = 3

    def __str__(self):
        return self.name

    @property
    def where(self):
        """The keyword that readings take."""
        return {} if self.kind == "single" else {"task": "t"}

    def learn(self, model, X, y, task="t"):
        """Teach a learner one task."""
        if self.kind == "single":
            return model.fit(X, y)
        if self.kind == "stream":
            return model.partial_fit(X, y, task=task)
        if self.kind == "references":
            return model.fit(X, y, task=task)
        n_samples = X.shape[0] if hasattr(X, "shape") else len(X)
        return model.fit(X, y, tasks=[task] * n_samples)

    def learned(self, X=X0, y=Y0):
        """A fresh learner that has learned one task."""
        return self.learn(self.make(X.shape[1]), X, y)

    def learn_several(self, model, parts):
        """Teach a learner several tasks: a dict of names to samples and labels."""
        if self.kind == "table":
            X, y = (np.concatenate([part[k] for part in parts.values()]) for k in range(2))
            return model.fit(X, y, tasks=[name for name, part in parts.items() for _ in part[1]])
        for name, (X, y) in parts.items():
            self.learn(model, X, y, task=name)
        return model

    def reading_arguments(self, model, X, y=None):
        """The arguments of every public method that reads a learned model."""
        labels = np.arange(len(X)) % 2 if y is None else y
        pairs = np.stack([X[:3], X[3:6]], axis=1)
        arguments = {
            "transform": (X,),
            "predict": (X,),
            "kneighbors": (X,),
            "decision_function": (X,),
            "predict_proba": (X,),
            "score": (X, labels),
            "pair_score": (pairs,),
            "pair_distance": (pairs,),
        } | dict.fromkeys(sorted(WITHOUT_SAMPLES), ())
        return {
            name: given
            for name, given in arguments.items()
            if hasattr(type(model), name) and hasattr(model, name)
        }

    def read(self, model, name, arguments, task="t"):
        """Call a reading method, with the names of tasks in the form that it takes."""
        if self.kind == "single":
            return getattr(model, name)(*arguments)
        if name == "score" and "tasks" in inspect.signature(model.score).parameters:
            return model.score(*arguments, tasks=[task] * len(arguments[0]))
        return getattr(model, name)(*arguments, task=task)

    def answers(self, model, X):
        """Arrays that say what was learned, free of the choice of coordinates."""
        if isinstance(model, ELLA):
            return [model.decision_function(X, **self.where)]
        if isinstance(model, MetricKNeighborsClassifier):
            return list(model.kneighbors(X, n_neighbors=1))
        if isinstance(model, LifelongKNeighborsClassifier):
            return [model.predict(X, **self.where)]
        metric = model.metric_ if self.kind == "single" else model.task_metric("t")
        Z = model.transform(X, **self.where)
        return [metric.to_dense(), Z @ Z.T]


# --- the learners -------------------------------------------------------------------------


class Euclidean:
    """What a `LifelongKNeighborsClassifier` reads, without any learning."""

    metric_type_ = "distance"

    def __init__(self, n_features):
        self.n_features = n_features

    def __repr__(self):
        return f"Euclidean({self.n_features})"

    def task_metric(self, task):
        return FactoredMetric.identity(self.n_features)


def lifelong(base, **parameters):
    given = {"n_components": 3, "code_rank": 3, "random_state": 0} | parameters
    return LifelongMetricLearner(base, **given)


def lifelong_oasis(**parameters):
    return lifelong(OASIS(n_steps=100), **parameters)


def lifelong_scml(**parameters):
    return lifelong(SCML(n_basis=8, n_steps=200), **parameters)


def by_the_paper(base, **parameters):
    given = {"n_components": 3, "n_triplets": 200, "random_state": 0} | parameters
    return DictionaryMetricLearner(base, **given)


def paper_oasis(**parameters):
    # the target of a first task has a hinge below that of no metric: not so in fewer, longer steps
    return by_the_paper(OASIS(0.01, n_steps=300), **parameters)


def off_diagonal(metric_type):
    return OffDiagonalLearner(metric_type, n_components=3, ridge=0.1, random_state=0)


def plda():
    return LifelongPLDA(4, n_folds=2, random_state=0)


def ella():
    return ELLA(n_components=2, random_state=0)


def oasis():
    return OASIS(n_steps=100, random_state=0)


ENTRIES = [
    Entry("OASIS", lambda D=4: oasis(), "single", "one task"),
    Entry("SCML", lambda D=4: SCML(n_basis=8, n_steps=200, random_state=0), "single", "one task"),
    Entry("OffDiagonal", lambda D=4: off_diagonal("distance"), "single", "one task"),
    Entry("OffDiagonal similarity", lambda D=4: off_diagonal("similarity"), "single", "one task"),
    Entry(
        "LMNN",
        lambda D=4: LMNN(max_iter=20),
        "single",
        "dense only",
        takes_sparse=False,
        seeded=False,
    ),
    Entry(
        "LMNN shrunk",
        lambda D=4: LMNN(shrinkage=0.01, max_iter=20),
        "single",
        "dense only",
        takes_sparse=False,
        seeded=False,
    ),
    Entry(
        "k-NN",
        lambda D=4: MetricKNeighborsClassifier(n_neighbors=1),
        "single",
        "neighbors",
        takes_one_class=True,
        least=1,
    ),
    Entry(
        "k-NN of OASIS",
        lambda D=4: MetricKNeighborsClassifier(oasis(), n_neighbors=1),
        "single",
        "neighbors",
    ),
    *(
        Entry(name, make, kind, "lifelong", takes_one_class=True, least=1)
        for name, make, kind in (
            ("lifelong OASIS", lambda D=4: lifelong_oasis(), "stream"),
            ("lifelong SCML", lambda D=4: lifelong_scml(), "stream"),
            ("lifelong table", lambda D=4: lifelong_oasis(), "table"),
        )
    ),
    Entry("the paper's", lambda D=4: paper_oasis(), "stream", "the paper's"),
    Entry("the paper's table", lambda D=4: paper_oasis(), "table", "the paper's"),
    Entry("lifelong PLDA", lambda D=4: plda(), "stream", "PLDA"),
    Entry("PLDA table", lambda D=4: plda(), "table", "PLDA"),
    Entry("ELLA", lambda D=4: ella(), "stream", "ELLA", least=2),
    Entry("ELLA table", lambda D=4: ella(), "table", "ELLA", least=2),
    Entry(
        "references",
        lambda D=4: LifelongKNeighborsClassifier(Euclidean(D), n_neighbors=1),
        "references",
        "references",
        takes_one_class=True,
        least=1,
    ),
    Entry("pooled", lambda D=4: PooledMetricLearner(oasis()), "table", "joint"),
    Entry(
        "joint SCML",
        lambda D=4: MultiTaskSCML(n_basis=8, n_steps=200, random_state=0),
        "table",
        "joint",
    ),
    Entry(
        "joint LMNN",
        lambda D=4: MultiTaskLMNN(max_iter=10),
        "table",
        "joint",
        takes_sparse=False,
        seeded=False,
    ),
    Entry("joint OASIS", lambda D=4: MultiTaskOASIS(n_steps=100, random_state=0), "table", "joint"),
]
FIRST_OF_FAMILY = [
    next(entry for entry in ENTRIES if entry.family == family)
    for family in dict.fromkeys(entry.family for entry in ENTRIES)
]

# --- thresholds for the scores of a fitted learner ------------------------------------------

PAIR_CLASSIFIERS = [
    PairClassifier(oasis(), calibration=calibration) for calibration in ("affine", "isotonic")
]

OPEN_SET_CLASSIFIERS = [
    OpenSetClassifier(MetricKNeighborsClassifier(n_neighbors=1), threshold=threshold)
    for threshold in ("equal_error_rate", "f_score")
]

# --- learners of a stream, with the options that change what is kept ----------------------

STREAMS = {
    "OASIS": lambda: lifelong_oasis(),
    "SCML": lambda: lifelong_scml(),
    "growing": lambda: lifelong_oasis(sharing="grow"),
    "labels in common": lambda: lifelong_oasis(shared_labels=True),
    "LMNN": lambda: lifelong(LMNN(shrinkage=0.01, max_iter=20), sharing=0.6, code_rank=2),
    "the paper's": lambda: paper_oasis(),
    "the paper's, SCML": lambda: by_the_paper(SCML(n_basis=8, n_steps=200), keep_samples=False),
    "ELLA": lambda: ella(),
    "ELLA by conjugate gradients": lambda: ELLA(n_components=2, random_state=0, solver="cg"),
}


def learned_numbers(model):
    """Everything that a learner of a stream knows of its tasks, as arrays."""
    if isinstance(model, LifelongMetricLearner):
        metrics = [model.shared_metric_, *model.codes_.values()]
        return [np.array(model.sharing_)] + [p for M in metrics for p in (M.factor, M.core)]
    arrays = [model.dictionary_, *model.codes_.values()]
    if isinstance(model, ELLA):
        parts = (model.coefficients(task) for task in model.tasks_)
        return arrays + [array for part in parts for array in part]
    return arrays
