# Generated from book/systems.ipynb by tools/tangle.py: edit the chapter.
"""Every system of the tables: how it is fitted to tasks, and the settings that are tried."""

from __future__ import annotations

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
from lml.paper import DictionaryMetricLearner
from lml.plda import LifelongPLDA
from lml.scml import SCML
from lml.utils.typing import Matrix

__all__ = [
    "N_COMPONENTS",
    "PAPER_GRID",
    "SYSTEMS",
    "Fitted",
    "Recalled",
    "System",
    "by_neighbors",
    "prepared",
]

# book/systems.ipynb#the-systems-of-the-tables
_Stages: TypeAlias = list[list[dict[str, Any]]]
_Fits: TypeAlias = dict[str, Any]  # what was fitted already, by the hash of data and learner


# book/systems.ipynb#what-a-fitted-system-answers
@dataclass(frozen=True)
class Fitted:
    """What a system has learned from all tasks."""

    # (X, task name, k) to labels (n, k), nearest first; (n, 1) of a classifier
    labels: Callable[[Matrix, Any, int], NDArray[Any]]
    nbytes: int  # what the learner keeps, training rows excluded


# book/systems.ipynb#what-a-fitted-system-answers
def by_neighbors(
    tasks: Sequence[Task],
    metrics: Mapping[Any, FactoredMetric],
    metric_type: str,
    nbytes: int | None = None,
) -> Fitted:
    """A fitted system that ranks the training rows of each task by the metric of the task."""
    nbytes = _distinct_bytes(metrics.values()) if nbytes is None else nbytes
    known = {t.name: t for t in tasks}
    if metric_type == "distance":
        metrics = {name: metric.psd() for name, metric in metrics.items()}

    def labels(X: Matrix, name: Any, k: int) -> NDArray[Any]:
        nearest, _ = k_nearest(metrics[name], X, known[name].X_train, metric_type, k)
        return known[name].y_train[nearest]

    return Fitted(labels, nbytes)


# book/systems.ipynb#what-is-counted-as-stored
def _distinct_bytes(metrics: Iterable[FactoredMetric]) -> int:
    """Bytes of dense metrics: of their arrays, each counted once, or of square matrices."""
    metrics = list(metrics)
    parts = [part for m in metrics for part in (m.factor, m.core)]
    arrays = {part.__array_interface__["data"][0]: part.nbytes for part in parts}
    n_distinct = len({m.core.__array_interface__["data"][0] for m in metrics})
    squares = 8 * n_distinct * metrics[0].n_features ** 2
    return 8 * len(metrics) + min(sum(arrays.values()), squares)


# book/systems.ipynb#one-task-at-a-time
def prepared(prototype: Any, seed: int, **parameters: Any) -> Any:
    """A clone of an estimator with parameters and with the seed in every random_state."""
    learner = clone(prototype).set_params(**parameters)
    seeded = [name for name in learner.get_params() if name.endswith("random_state")]
    return learner.set_params(**dict.fromkeys(seeded, seed))


# book/systems.ipynb#one-task-at-a-time
class Recalled(BaseEstimator):
    """A metric learner whose fits are kept, so that a grid over d learns each metric once.

    Parameters
    ----------
    estimator : estimator
        The metric learner.
    fits : dict
        Fitted metric learners by the hash of what they were fitted to; all clones share it.
    """

    def __init__(self, estimator: Any, fits: _Fits) -> None:
        self.estimator = estimator
        self.fits = fits

    def __sklearn_clone__(self) -> Self:
        return type(self)(clone(self.estimator), self.fits)

    def fit(self, X: Matrix, y: NDArray[Any]) -> Self:
        learner = clone(self.estimator)
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
    return by_neighbors(tasks, metrics, "distance", nbytes=0)


def _fit_alone(
    prototype: Any, tasks: Sequence[Task], seed: int, fits: _Fits, **parameters: Any
) -> Fitted:
    """A learner of its own for each task."""
    learner = Recalled(prepared(prototype, seed, **parameters), fits)
    metrics = {t.name: clone(learner).fit(t.X_train, t.y_train).metric_ for t in tasks}
    return by_neighbors(tasks, metrics, prototype.metric_type)


def _fit_nca(tasks: Sequence[Task], seed: int, fits: _Fits, *, n_components: int) -> Fitted:
    """Neighborhood components analysis of scikit-learn for each task."""
    metrics = {}
    for t in tasks:
        nca = NeighborhoodComponentsAnalysis(n_components, max_iter=100, random_state=seed)
        components = nca.fit(t.X_train, t.y_train).components_
        metrics[t.name] = FactoredMetric.from_components(components)
    return by_neighbors(tasks, metrics, "distance")


def _fit_logistic(tasks: Sequence[Task], seed: int, fits: _Fits, *, C: float) -> Fitted:
    """Logistic regression of scikit-learn for each task."""
    model = LogisticRegression(C=C, max_iter=10_000)
    models = {t.name: clone(model).fit(t.X_train, t.y_train) for t in tasks}
    nbytes = sum(m.coef_.nbytes + m.intercept_.nbytes for m in models.values())
    return Fitted(lambda X, name, k: models[name].predict(X)[:, None], nbytes)


# book/systems.ipynb#all-tasks-at-once
def _fit_together(
    prototype: Any, tasks: Sequence[Task], seed: int, fits: _Fits, **parameters: Any
) -> Fitted:
    """A joint learner of the rows of all tasks."""
    X = np.concatenate([t.X_train for t in tasks])
    y = np.concatenate([t.y_train for t in tasks])
    names = [t.name for t in tasks for _ in t.y_train]
    learner = prepared(prototype, seed, **parameters).fit(X, y, tasks=names)
    metrics = {t.name: learner.task_metric(t.name) for t in tasks}
    return by_neighbors(tasks, metrics, learner.metric_type_)


# book/systems.ipynb#one-task-after-another
def _fit_lifelong(
    prototype: Any,
    tasks: Sequence[Task],
    seed: int,
    fits: _Fits,
    *,
    sharing: float,
    **parameters: Any,
) -> Fitted:
    """The tasks one after another by one lifelong learner; asked after the last of them."""
    base = prepared(prototype, seed, **parameters)
    n_features = tasks[0].X_train.shape[1]  # nothing is cut
    learner = LifelongMetricLearner(
        base, sharing=sharing, n_components=n_features, code_rank=None, random_state=seed
    )
    for t in tasks:
        learner.partial_fit(t.X_train, t.y_train, task=t.name)
    metrics = {t.name: learner.task_metric(t.name) for t in tasks}
    return by_neighbors(tasks, metrics, learner.metric_type_, learner.state_nbytes_)


def _fit_ella(
    multi_class: str, tasks: Sequence[Task], seed: int, fits: _Fits, **parameters: Any
) -> Fitted:
    """The tasks one after another by ELLA; asked after the last of them."""
    learner = ELLA(multi_class=multi_class, random_state=seed, **parameters)
    for t in tasks:
        learner.partial_fit(t.X_train, t.y_train, task=t.name)
    parts = learner.state_parts_
    nbytes = sum(parts.values()) - parts["rows"]
    return Fitted(lambda X, name, k: np.asarray(learner.predict(X, task=name))[:, None], nbytes)


# book/systems.ipynb#one-task-after-another
def _fit_paper(
    prototype: Any,
    keep_samples: bool,
    tasks: Sequence[Task],
    seed: int,
    fits: _Fits,
    *,
    n_components: int,
    code_penalty: float,
    **parameters: Any,
) -> Fitted:
    """The tasks one after another by the paper's Algorithm 2; asked after the last of them."""
    base = Recalled(prepared(prototype, seed, **parameters), fits)
    learner = DictionaryMetricLearner(
        base, n_components, code_penalty, keep_samples=keep_samples, random_state=seed
    )
    for t in tasks:
        learner.partial_fit(t.X_train, t.y_train, task=t.name)
    metrics = {t.name: learner.task_metric(t.name) for t in tasks}
    nbytes = learner.state_nbytes_ - learner.state_parts_["samples"]
    return by_neighbors(tasks, metrics, learner.metric_type_, nbytes)


# book/systems.ipynb#one-task-after-another
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
        fits[key] = LifelongPLDA(tasks[0].X_train.shape[1], random_state=seed, **given)
        for t in tasks:
            fits[key].partial_fit(t.X_train, t.y_train, task=t.name)
    learner = copy.copy(fits[key]).set_params(**read)
    metrics = {t.name: learner.task_metric(t.name) for t in tasks}
    return by_neighbors(tasks, metrics, learner.metric_type_, learner.state_nbytes_)


# book/systems.ipynb#what-is-tried
#: The values that the paper tunes every hyperparameter over.
PAPER_GRID = (10.0, 1.0, 0.1, 0.01, 0.001)
#: Sizes of the dictionary that are tried.
N_COMPONENTS = (40, 80, 120, 160, 200, 256)


def _each(name: str, values: Iterable[Any]) -> list[dict[str, Any]]:
    """A stage: the values of one parameter, the one that later stages start from first."""
    return [{name: value} for value in values]


_CAPS = _each("aggressiveness", (0.1, 10.0, 1.0, 0.01, 0.001))  # of OASIS
_SHARING = _each("sharing", (0.6, 0.0, 0.2, 0.4, 0.8, 0.9))  # of the lifelong learner


def _dictionary(n_features: int) -> _Stages:
    """The size without penalty, the code penalty, and the size again at that penalty."""
    largest_first = sorted({min(d, n_features) for d in N_COMPONENTS}, reverse=True)
    sizes = _each("n_components", largest_first)
    return [sizes, _each("code_penalty", (0.0, *sorted(PAPER_GRID))), sizes]


def _few(n_features: int) -> _Stages:
    """Three sizes without penalty, then four code penalties, for a learner that takes long."""
    sizes = [d for d in (200, 120, 40) if d <= n_features] or [n_features]
    return [_each("n_components", sizes), _each("code_penalty", (0.0, 0.01, 0.1, 1.0))]


# book/systems.ipynb#what-is-tried
@dataclass(frozen=True)
class System:
    """A row of the tables: how it is fitted, the settings that are tried, where it applies."""

    fit: Callable[..., Fitted]  # (tasks, seed, fits, **parameters) to Fitted
    # number of features to lists of settings, searched one after another
    stages: Callable[[int], _Stages] = lambda n_features: []
    base: str | None = None  # the system whose chosen parameters are taken over
    votes: bool = True  # answers with neighbors, which vote
    shared_labels: bool = False  # needs labels that mean the same in every task
    n_classes: str = "any"  # "two", "more" or "any": the tasks it is a row for

    def applies(self, shared_labels: bool, binary: bool) -> bool:
        """Whether it has a row for tasks of this kind."""
        classes = {"any": True, "two": binary, "more": not binary}[self.n_classes]
        return classes and (shared_labels or not self.shared_labels)


# book/systems.ipynb#what-is-tried
_BETAS = (1e-4, 1e-5, *sorted(share for share in PAPER_GRID if share < 1))
_SHRINKAGES = (0.01, 0.1, 0.001, 1.0, 0.0)  # of LMNN
_PENALTIES = (0.01, 0.1, 1.0, 10.0, 0.001, 1e-4)  # of mtLMNN
_STARTS = [(k, init) for k in (4, 2, 8, 16, 32) for init in ("random", "tasks")]  # of ELLA
_ELLA = [
    [{"n_components": k, "init": init} for k, init in _STARTS],
    _each("code_penalty", (1e-3, 1e-2, 0.1, 1e-4, 1e-5)),
    _each("dictionary_penalty", (1e-5, 1e-3, 0.1, 1e-7)),
]
_OFF = [_each("penalty", (0.1, 0.3, 1.0, 0.03, 0.01)), _each("n_components", (50, 100))]
_READ = [[0.3, 0, 0], [1, 1, 0], [1, 0, 0], [3, 0.3, 0], [0.3, 0, 0.1], [0.3, 0, 0.3]]
_PLDA = [_each("shrinkage", _READ), _each("regularization", (1.0, 0.5, 2.0))]
_WEIGHTS = _each("own_weight", ([0.25, 0], [0.25, 0.25], [0, 0], [0.5, 0], [1, 0.25], [1, 1]))


# book/systems.ipynb#what-is-tried
def _tuned(fit: Callable[..., Fitted], *stages: list[dict[str, Any]], **flags: Any) -> System:
    """A system whose stages are the same for every number of features."""
    return System(fit, lambda n_features: list(stages), **flags)


def _alone(prototype: Any, *stages: list[dict[str, Any]]) -> System:
    """A system that learns each task alone."""
    return _tuned(partial(_fit_alone, prototype), *stages)


def _shared(base: str, prototype: Any, own: list[dict[str, Any]]) -> System:
    """The lifelong learner: how much is shared, then its base learner's parameter once more."""
    stages = [_SHARING, own]
    return System(partial(_fit_lifelong, prototype), lambda n_features: stages, base=base)


def _together(prototype: Any, *stages: list[dict[str, Any]], **flags: Any) -> System:
    """A system that learns all tasks at once."""
    return _tuned(partial(_fit_together, prototype), *stages, **flags)


# book/systems.ipynb#what-is-tried
_LMNN = LMNN(max_iter=200, tol=0.01, max_samples=None)
_POOLED = {"scml": PooledMetricLearner(SCML()), "lmnn": PooledMetricLearner(_LMNN)}
_JOINT = {"shared_labels": True}
#: System name to what it is: each task alone, all tasks at once, one after another.
SYSTEMS = {
    "euclidean": System(_fit_euclidean),
    "oasis": _alone(OASIS(), _each("aggressiveness", PAPER_GRID)),
    "scml": _alone(SCML(), _each("beta", _BETAS)),
    "lmnn": _alone(_LMNN, _each("shrinkage", _SHRINKAGES)),
    "nca": _tuned(_fit_nca, _each("n_components", (8, 2, 32))),
    "logistic": _tuned(_fit_logistic, _each("C", PAPER_GRID), votes=False),
    "off-diagonal-similarity": _alone(OffDiagonalLearner("similarity", tol=0.01), *_OFF),
    "off-diagonal-distance": _alone(OffDiagonalLearner("distance", tol=0.01), *_OFF),
    "pooled-scml": _together(_POOLED["scml"], _each("estimator__beta", _BETAS), **_JOINT),
    "pooled-lmnn": _together(_POOLED["lmnn"], _each("estimator__shrinkage", _SHRINKAGES), **_JOINT),
    "mtscml": _together(MultiTaskSCML(), _each("beta", _BETAS)),
    "mtlmnn": _together(
        MultiTaskLMNN(tol=0.01),
        [{"shared_penalty": p, "task_penalty": p} for p in _PENALTIES],
        _each("task_penalty", _PENALTIES),
    ),
    "omtrsl": _together(MultiTaskOASIS(), _CAPS, _each("coupling", (1.0, 10.0, 0.1, 0.01, 0.001))),
    "ella": _tuned(partial(_fit_ella, "binary"), *_ELLA, votes=False, n_classes="two"),
    "ella-ovr": _tuned(partial(_fit_ella, "ovr"), *_ELLA, votes=False, n_classes="more"),
    "lifelong-oasis": _shared("oasis", OASIS(), _CAPS),
    "lifelong-scml": _shared("scml", SCML(), _each("beta", _BETAS)),
    "lifelong-lmnn": _shared("lmnn", _LMNN, _each("shrinkage", _SHRINKAGES)),
    "paper-oasis": System(partial(_fit_paper, OASIS(), True), _dictionary, base="oasis"),
    "paper-scml": System(partial(_fit_paper, SCML(), True), _few, base="scml"),
    "paper-oasis-rowfree": System(partial(_fit_paper, OASIS(), False), _dictionary, base="oasis"),
    "plda-alone": _tuned(partial(_fit_plda, {"own_weight": 1.0}), *_PLDA),
    "lifelong-plda": _tuned(partial(_fit_plda, {}), *_PLDA, _WEIGHTS),
    "lifelong-plda-keyed": _tuned(partial(_fit_plda, _JOINT), *_PLDA, _WEIGHTS, **_JOINT),
}
