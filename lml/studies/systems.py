# Generated from book/systems.ipynb by tools/tangle.py: edit the chapter.
"""Every system of the tables: how it is fitted to tasks, and the settings that are tried."""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, TypeAlias

import joblib
import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NeighborhoodComponentsAnalysis

from lml.baselines.ella import ELLA
from lml.baselines.mtlmnn import MultiTaskLMNN
from lml.baselines.mtscml import MultiTaskSCML
from lml.baselines.offdiagonal import OffDiagonalLearner
from lml.baselines.omtrsl import MultiTaskOASIS
from lml.baselines.pooled import PooledMetricLearner
from lml.datasets import Task
from lml.lifelong import LifelongMetricLearner
from lml.lmnn import LMNN
from lml.metrics import FactoredMetric
from lml.neighbors import k_nearest
from lml.oasis import OASIS
from lml.plda import LifelongPLDA
from lml.scml import SCML
from lml.utils.typing import Matrix

__all__ = ["N_COMPONENTS", "PAPER_GRID", "SYSTEMS", "Fitted", "System"]

# book/systems.ipynb#the-systems-of-the-tables
_Stages: TypeAlias = list[list[dict[str, Any]]]


# book/systems.ipynb#what-a-fitted-system-answers
@dataclass(frozen=True)
class Fitted:
    """What a system has learnt from all tasks."""

    # (X, task name, k) to labels (n, k), nearest first; (n, 1) of a classifier
    labels: Callable[[Matrix, Any, int], NDArray[Any]]
    nbytes: int  # what the learner keeps, training rows excluded


# book/systems.ipynb#what-a-fitted-system-answers
def _by_neighbors(
    tasks: Sequence[Task], metrics: Mapping[Any, FactoredMetric], metric_type: str, nbytes: int
) -> Fitted:
    """A fitted system that ranks each task's training rows by the task's metric."""
    known = {t.name: t for t in tasks}
    if metric_type == "distance":
        metrics = {name: metric.psd() for name, metric in metrics.items()}

    def labels(X: Matrix, name: Any, k: int) -> NDArray[Any]:
        nearest, _ = k_nearest(metrics[name], X, known[name].X_train, metric_type, k)
        return known[name].y_train[nearest]

    return Fitted(labels, nbytes)


def _by_classifiers(predict: Callable[[Matrix, Any], NDArray[Any]], nbytes: int) -> Fitted:
    """A fitted system that answers with one label a row; predict takes rows and a name."""
    return Fitted(lambda X, name, k: np.asarray(predict(X, name))[:, None], nbytes)


# book/systems.ipynb#what-is-counted-as-stored
def _distinct_bytes(metrics: Sequence[FactoredMetric]) -> int:
    """Bytes of dense metrics: of their arrays, each counted once, or of square matrices."""
    parts = [part for m in metrics for part in (m.factor, m.core)]
    arrays = {part.__array_interface__["data"][0]: part.nbytes for part in parts}
    n_distinct = len({m.core.__array_interface__["data"][0] for m in metrics})
    squares = 8 * n_distinct * metrics[0].n_features ** 2
    return 8 * len(metrics) + min(sum(arrays.values()), squares)


# book/systems.ipynb#one-task-at-a-time
def _prepared(prototype: Any, seed: int, parameters: Mapping[str, Any]) -> Any:
    """A clone of an estimator with parameters and with the seed in every random_state."""
    learner = clone(prototype).set_params(**parameters)
    seeded = [name for name in learner.get_params() if name.endswith("random_state")]
    return learner.set_params(**dict.fromkeys(seeded, seed))


# book/systems.ipynb#one-task-at-a-time
class _Fits(dict[str, Any]):
    """Fits kept for all clones of a `_Recalled`: copying it gives the same dictionary."""

    def __deepcopy__(self, memo: Any) -> Self:
        return self


class _Recalled(BaseEstimator):
    """A metric learner whose fits are kept, so that a grid over d learns each metric once."""

    def __init__(self, estimator: Any, fits: _Fits, init: FactoredMetric | None = None) -> None:
        self.estimator = estimator
        self.fits = fits
        self.init = init  # where the estimator starts, if it is not its own start

    def fit(self, X: Matrix, y: NDArray[Any]) -> Self:
        learner = clone(self.estimator)
        if self.init is not None:
            learner.set_params(init=self.init)
        key = joblib.hash((X, y, type(learner), learner.get_params()))
        if key not in self.fits:
            self.fits[key] = learner.fit(X, y)
        self.metric_ = self.fits[key].metric_
        self.metric_type = self.estimator.metric_type
        return self


# book/systems.ipynb#one-task-at-a-time
def _fit_euclidean(tasks: Sequence[Task], seed: int, fits: _Fits) -> Fitted:
    """No learning: the identity."""
    metrics = {t.name: FactoredMetric.identity(t.X_train.shape[1]) for t in tasks}
    return _by_neighbors(tasks, metrics, "distance", 0)


def _fit_alone(
    prototype: Any, tasks: Sequence[Task], seed: int, fits: _Fits, **parameters: Any
) -> Fitted:
    """A learner of its own for each task."""
    learner = _Recalled(_prepared(prototype, seed, parameters), fits)
    metrics = {t.name: clone(learner).fit(t.X_train, t.y_train).metric_ for t in tasks}
    nbytes = _distinct_bytes(list(metrics.values()))
    return _by_neighbors(tasks, metrics, prototype.metric_type, nbytes)


# book/systems.ipynb#one-task-at-a-time
def _fit_nca(tasks: Sequence[Task], seed: int, fits: _Fits, *, n_components: int) -> Fitted:
    """Neighbourhood components analysis of scikit-learn for each task."""
    metrics = {}
    for t in tasks:
        nca = NeighborhoodComponentsAnalysis(n_components, max_iter=100, random_state=seed)
        components = nca.fit(t.X_train, t.y_train).components_
        metrics[t.name] = FactoredMetric.from_components(components)
    return _by_neighbors(tasks, metrics, "distance", _distinct_bytes(list(metrics.values())))


def _fit_logistic(tasks: Sequence[Task], seed: int, fits: _Fits, *, C: float) -> Fitted:
    """Logistic regression of scikit-learn for each task."""
    model = LogisticRegression(C=C, max_iter=10_000)
    models = {t.name: clone(model).fit(t.X_train, t.y_train) for t in tasks}
    nbytes = sum(m.coef_.nbytes + m.intercept_.nbytes for m in models.values())
    return _by_classifiers(lambda X, name: models[name].predict(X), nbytes)


# book/systems.ipynb#all-tasks-at-once
def _fit_together(
    prototype: Any, tasks: Sequence[Task], seed: int, fits: _Fits, **parameters: Any
) -> Fitted:
    """A joint learner of the rows of all tasks."""
    X, y = (np.concatenate([getattr(t, part) for t in tasks]) for part in ("X_train", "y_train"))
    names = [t.name for t in tasks for _ in t.y_train]
    learner = _prepared(prototype, seed, parameters).fit(X, y, tasks=names)
    metrics = {t.name: learner.task_metric(t.name) for t in tasks}
    nbytes = _distinct_bytes(list(metrics.values()))
    return _by_neighbors(tasks, metrics, learner.metric_type_, nbytes)


# book/systems.ipynb#one-task-after-another
def _fit_lifelong(
    prototype: Any,
    tasks: Sequence[Task],
    seed: int,
    fits: _Fits,
    *,
    n_components: int,
    code_penalty: float,
    warm: bool = False,
    **parameters: Any,
) -> Fitted:
    """The tasks one after another by one lifelong learner; asked after the last of them."""
    base = _Recalled(_prepared(prototype, seed, parameters), fits)
    sizes: dict[str, Any] = {"n_components": n_components, "code_penalty": code_penalty}
    sizes["warm_start_from_dictionary"] = warm
    learner = LifelongMetricLearner(base, random_state=seed, **sizes)
    for t in tasks:
        learner.partial_fit(t.X_train, t.y_train, task=t.name)
    metrics = {t.name: learner.task_metric(t.name) for t in tasks}
    return _by_neighbors(tasks, metrics, learner.metric_type_, learner.state_nbytes_)


# book/systems.ipynb#one-task-after-another
def _fit_ella(
    multi_class: str, tasks: Sequence[Task], seed: int, fits: _Fits, **parameters: Any
) -> Fitted:
    """The tasks one after another by ELLA; asked after the last of them."""
    learner = ELLA(multi_class=multi_class, random_state=seed, **parameters)
    for t in tasks:
        learner.partial_fit(t.X_train, t.y_train, task=t.name)
    parts = learner.state_parts_
    nbytes = sum(parts.values()) - parts["rows"]
    return _by_classifiers(lambda X, name: learner.predict(X, task=name), nbytes)


# book/systems.ipynb#one-task-after-another
def _learnt_plda(tasks: Sequence[Task], seed: int, given: Mapping[str, Any]) -> LifelongPLDA:
    """A lifelong PLDA that has seen the tasks one after another."""
    learner = LifelongPLDA(tasks[0].X_train.shape[1], random_state=seed, **given)
    for t in tasks:
        learner.partial_fit(t.X_train, t.y_train, task=t.name)
    return learner


def _fit_plda(
    fixed: Mapping[str, Any], tasks: Sequence[Task], seed: int, fits: _Fits, **parameters: Any
) -> Fitted:
    """The tasks one after another by lifelong PLDA; asked after the last of them."""
    given = {**fixed, **parameters}
    read = {name: given[name] for name in ("own_weight", "shrinkage") if name in given}
    # where nothing is chosen while learning, one fit will do for all their values
    asked = given if len(read) < 2 else {n: value for n, value in given.items() if n not in read}
    key = joblib.hash(([t.X_train for t in tasks], [t.y_train for t in tasks], seed, asked))
    if key not in fits:
        fits[key] = _learnt_plda(tasks, seed, given)
    learner = copy.copy(fits[key]).set_params(**read)
    metrics = {t.name: learner.task_metric(t.name) for t in tasks}
    return _by_neighbors(tasks, metrics, learner.metric_type_, learner.state_nbytes_)


# book/systems.ipynb#what-is-tried
#: The values that the paper tunes every hyperparameter over.
PAPER_GRID = (10.0, 1.0, 0.1, 0.01, 0.001)
#: Sizes of the dictionary that are tried.
N_COMPONENTS = (40, 80, 120, 160, 200, 256)


def _each(name: str, values: Iterable[Any]) -> list[dict[str, Any]]:
    """A stage: the values of one parameter, the one that later stages start from first."""
    return [{name: value} for value in values]


def _dictionary(n_features: int) -> _Stages:
    """The size without penalty, the code penalty, and the size again at that penalty."""
    largest_first = sorted({min(d, n_features) for d in N_COMPONENTS}, reverse=True)
    sizes = _each("n_components", largest_first)
    return [sizes, _each("code_penalty", (0.0, *sorted(PAPER_GRID))), sizes]


# book/systems.ipynb#what-is-tried
@dataclass(frozen=True)
class System:
    """A row of the tables: how it is fitted, the settings that are tried, where it applies."""

    fit: Callable[..., Fitted]  # (tasks, seed, fits, **parameters) to Fitted
    stages: Callable[[int], _Stages] = (
        lambda n_features: []
    )  # lists of settings, searched one after another
    base: str | None = None  # the system whose chosen parameters are taken over
    votes: bool = True  # answers with neighbours, which vote
    shared_labels: bool = False  # needs labels that mean the same in every task
    n_classes: str = "any"  # "two", "more" or "any": the tasks it is a row for

    def applies(self, shared_labels: bool, binary: bool) -> bool:
        """Whether it has a row for tasks of this kind."""
        classes = {"any": True, "two": binary, "more": not binary}[self.n_classes]
        return classes and (shared_labels or not self.shared_labels)


# book/systems.ipynb#what-is-tried
_BETAS = (1e-4, 1e-5, *sorted(PAPER_GRID))
_SHRINKAGES = (0.01, 0.1, 0.001, 1.0, 0.0)
_FRACTIONS = (0.1, 0.3, 1.0, 0.03, 0.01)
_STARTS = ("random", "tasks")
_JOINT_PENALTIES = (0.01, 0.1, 1.0, 10.0, 0.001, 1e-4)


def _mtlmnn(n_features: int) -> _Stages:
    """Both penalties together, then the tasks' own ones alone."""
    equal = [{"shared_penalty": p, "task_penalty": p} for p in _JOINT_PENALTIES]
    return [equal, _each("task_penalty", _JOINT_PENALTIES)]


def _ella(n_features: int) -> _Stages:
    """The number of columns and how they begin, then the two penalties."""
    sizes = [{"n_components": k, "init": init} for k in (4, 2, 8, 16, 32) for init in _STARTS]
    codes = _each("code_penalty", (1e-3, 1e-2, 0.1, 1e-4, 1e-5))
    return [sizes, codes, _each("dictionary_penalty", (1e-5, 1e-3, 0.1, 1e-7))]


def _off_diagonal(n_features: int) -> _Stages:
    """The penalty, then the size of the dictionary."""
    return [_each("penalty", _FRACTIONS), _each("n_components", (50, 100))]


# book/systems.ipynb#what-is-tried
def _alone(prototype: Any, name: str, values: Iterable[Any]) -> System:
    """A system that learns each task alone and tunes one parameter."""
    return System(partial(_fit_alone, prototype), lambda n_features: [_each(name, values)])


def _together(prototype: Any, name: str, values: Iterable[Any], **flags: Any) -> System:
    """A system that learns all tasks at once and tunes one parameter."""
    fit = partial(_fit_together, prototype)
    return System(fit, lambda n_features: [_each(name, values)], **flags)


# book/systems.ipynb#what-is-tried
_LMNN = LMNN(max_iter=200, tol=0.01)
_OFF = {kind: OffDiagonalLearner(kind, tol=0.01) for kind in ("similarity", "distance")}
#: Systems that learn each task alone: name to what it is.
_SINGLE = {
    "euclidean": System(_fit_euclidean),
    "oasis": _alone(OASIS(), "aggressiveness", PAPER_GRID),
    "scml": _alone(SCML(), "beta", _BETAS),
    "lmnn": _alone(_LMNN, "shrinkage", _SHRINKAGES),
    "nca": System(_fit_nca, lambda n_features: [_each("n_components", (8, 2, 32))]),
    "logistic": System(_fit_logistic, lambda n_features: [_each("C", PAPER_GRID)], votes=False),
    "off-diagonal-similarity": System(partial(_fit_alone, _OFF["similarity"]), _off_diagonal),
    "off-diagonal-distance": System(partial(_fit_alone, _OFF["distance"]), _off_diagonal),
}


# book/systems.ipynb#what-is-tried
def _omtrsl(n_features: int) -> _Stages:
    """OASIS's cap, then how strongly the tasks are coupled."""
    caps = (0.1, 10.0, 1.0, 0.01, 0.001)
    return [_each("aggressiveness", caps), _each("coupling", (1.0, 10.0, 0.1, 0.01, 0.001))]


_POOLED = {"scml": PooledMetricLearner(SCML()), "lmnn": PooledMetricLearner(_LMNN)}
#: Systems that learn all tasks at once.
_JOINT = {
    "pooled-scml": _together(_POOLED["scml"], "estimator__beta", _BETAS, shared_labels=True),
    "pooled-lmnn": _together(
        _POOLED["lmnn"], "estimator__shrinkage", _SHRINKAGES, shared_labels=True
    ),
    "mtscml": _together(MultiTaskSCML(), "beta", _BETAS),
    "mtlmnn": System(partial(_fit_together, MultiTaskLMNN(tol=0.01)), _mtlmnn),
    "omtrsl": System(partial(_fit_together, MultiTaskOASIS()), _omtrsl),
}


# book/systems.ipynb#what-is-tried
def _warm(n_features: int) -> _Stages:
    """OASIS's cap, which matters more from a start that knows something, then the dictionary."""
    caps = _each("aggressiveness", (0.1, 10.0, 1.0, 0.01, 0.001))
    return [caps, *_dictionary(n_features)]


def _plda(n_features: int, own: bool = True) -> _Stages:
    """The shrinkage of the between-class variances, the ridge, and the weights of a task."""
    shrinkages = [[0.3, 0, 0], [1, 1, 0], [1, 0, 0], [3, 0.3, 0], [0.3, 0, 0.1], [0.3, 0, 0.3]]
    weights = [[0.25, 0], [0.25, 0.25], [0, 0], [0.5, 0], [1, 0.25], [1, 1]]
    stages = [_each("shrinkage", shrinkages), _each("regularization", (1.0, 0.5, 2.0))]
    return [*stages, _each("own_weight", weights)] if own else stages


# book/systems.ipynb#what-is-tried
#: Systems that learn one task after another.
_SEQUENTIAL = {
    "ella": System(partial(_fit_ella, "binary"), _ella, votes=False, n_classes="two"),
    "ella-ovr": System(partial(_fit_ella, "ovr"), _ella, votes=False, n_classes="more"),
    "lifelong-oasis": System(partial(_fit_lifelong, OASIS()), _dictionary, "oasis"),
    "lifelong-scml": System(partial(_fit_lifelong, SCML()), _dictionary, "scml"),
    "lifelong-oasis-warm": System(partial(_fit_lifelong, OASIS(), warm=True), _warm),
    "plda-alone": System(partial(_fit_plda, {"own_weight": 1.0}), partial(_plda, own=False)),
    "lifelong-plda": System(partial(_fit_plda, {}), _plda),
    "lifelong-plda-keyed": System(
        partial(_fit_plda, {"shared_labels": True}), _plda, shared_labels=True
    ),
}
#: System name to what it is.
SYSTEMS = {**_SINGLE, **_JOINT, **_SEQUENTIAL}
