# Generated from book/lifelong.ipynb by tools/tangle.py: edit the chapter.
"""The lifelong learner: each task is learned in the coordinates that the others have shaped.

`LifelongMetricLearner` keeps one shared metric, the mean of what the tasks contribute, and a code of
low rank for each task. A base learner sees the samples of a task in the coordinates of the shared
metric; when that moves, the metrics of all tasks move with it. No samples are kept.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, ClassVar, Self

import joblib
import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg, sparse
from sklearn.base import BaseEstimator

from lml.base import (
    CLASS_MEANS,
    COMMON_FIELDS,
    LABELS,
    BaseLearnerMixin,
    BaseLifelongLearner,
    ClassMeans,
    LearnerState,
    SharedLabelsMixin,
    ShortRepr,
    base_learner_rule,
)
from lml.fisher import class_means
from lml.lmnn import LMNN
from lml.metrics import METRIC_TYPE, FactoredMetric, LabeledPairs, Lesson
from lml.neighbors import nearest_references
from lml.oasis import OASIS
from lml.scml import SCML
from lml.single_task import TaskMetricsMixin
from lml.state import (
    LARGEST,
    ORTHONORMAL,
    ArrayField,
    Field,
    OptionalField,
    RecordField,
    TableField,
    ValueField,
    expect,
)
from lml.utils.linalg import dense, stacked
from lml.utils.typing import Floats, Indices, Matrix, MatrixLike, Seed
from lml.utils.validation import (
    Rule,
    check_columns,
    check_matrix,
    check_task,
    column_names,
    flag,
    has_pairs,
    jobs,
    optional,
    real,
    seed,
    whole,
)
from lml.weak_supervision import check_pair_labels, check_tuples

__all__ = ["LifelongMetricLearner", "TaskRecord", "agreement", "contribution", "trimmed"]


# book/lifelong.ipynb#the-shared-metric
def _shared_metric(state: "_State", task: Hashable, sharing: float) -> FactoredMetric:
    """P of a task, eq. (shared-metric): the identity, and the mean of the other tasks' parts."""
    others, n_others = state.of_others(task)
    if not n_others:
        return FactoredMetric.identity(state.n_features)
    identity = FactoredMetric.identity(state.n_features, 1 - sharing)
    # the positive part: what was cut from the sum may leave a trace of the own part
    return (identity + (sharing / n_others) * others).psd()


# book/lifelong.ipynb#learn-and-read
def _in_features(code: FactoredMetric, shared: FactoredMetric) -> FactoredMetric:
    """R W R, the metric of a code, eq. (shared-read)."""
    rows = shared.root()._apply(code.factor)
    return code.alpha * shared + FactoredMetric._trusted(0.0, rows, code.core)


# book/lifelong.ipynb#what-a-task-contributes
def contribution(code: FactoredMetric) -> FactoredMetric:
    """What a task adds to the shared metric, of trace D.

    Parameters
    ----------
    code : FactoredMetric
        W, the code of a task: orthonormal factor rows and a diagonal core.

    Returns
    -------
    FactoredMetric
        Positive semi-definite, with the factor of the code. The identity where all eigenvalues of
        the code are equal.

    Notes
    -----
    Derived in chapter 16 (lifelong), eq. (shared-contribution).
    """
    D = code.n_features
    n_rest = D - len(code.core)
    own = code.alpha + code.core  # eigenvalues; the other n_rest of them are alpha
    mean = (own.sum() + n_rest * code.alpha) / D
    spread = np.sqrt((np.sum((own - mean) ** 2) + n_rest * (code.alpha - mean) ** 2) / D)
    if spread <= 4 * D * np.finfo(float).eps * abs(mean):  # what rounds in the mean
        return FactoredMetric.identity(D)
    weights = np.maximum(1 + (own - mean) / spread, 0.0)
    base = max(1 + (code.alpha - mean) / spread, 0.0)
    trace = weights.sum() + n_rest * base
    scale = D / trace
    return FactoredMetric._trusted(scale * base, code.factor, scale * (weights - base))


# book/lifelong.ipynb#a-sum-that-keeps-its-size
def trimmed(metric: FactoredMetric, rank: int) -> FactoredMetric:
    """The nearest metric c I + (a symmetric matrix of some rank); the trace stays.

    Parameters
    ----------
    metric : FactoredMetric
        Its symmetric part counts.
    rank : int >= 0
        How many directions keep eigenvalues of their own. The others share c, the mean of
        theirs. Directions in which `metric` is alpha times the identity are not kept.

    Returns
    -------
    FactoredMetric
        With orthonormal factor rows and a diagonal core.

    Notes
    -----
    Derived in chapter 16 (lifelong), eq. (shared-trimmed).
    """
    values, rows = metric._spectrum()  # rising, relative to alpha
    kept, mean = _least_spread(values, metric.n_features, rank)
    return FactoredMetric._trusted(metric.alpha + mean, rows[kept], values[kept] - mean)


# book/lifelong.ipynb#a-sum-that-keeps-its-size
def _least_spread(values: Floats, n_features: int, rank: int) -> tuple[Indices, float]:
    """The eigenvalues to keep, and the mean of the others; all but `values` are zero."""
    # what is above rounding
    floor = 10 * len(values) * np.finfo(float).eps * np.abs(values).max(initial=0.0)
    seen = np.flatnonzero(np.abs(values) > floor)
    if len(seen) <= rank:
        return seen, 0.0
    values = values[seen]
    n_zeros = n_features - len(values)  # they are cut together
    below = int(np.searchsorted(values, 0.0))
    spectrum = np.insert(values, below, np.zeros(n_zeros))
    n_cut = n_features - rank
    first = np.arange(rank + 1)  # where the list of those that are cut may begin
    if n_zeros:
        first = first[(first <= below) & (first + n_cut >= below + n_zeros)]
    sums = np.concatenate([[0.0], np.cumsum(spectrum)])
    squares = np.concatenate([[0.0], np.cumsum(spectrum**2)])
    means = (sums[first + n_cut] - sums[first]) / n_cut
    spread = squares[first + n_cut] - squares[first] - n_cut * means**2
    best = int(np.argmin(spread))
    begin = first[best]
    return seen[np.r_[:begin, begin + n_cut - n_zeros : len(values)]], float(means[best])


# book/lifelong.ipynb#how-much-to-share
def _halves(y: Indices, seed: int) -> tuple[Indices, Indices]:
    """Samples to learn from and to ask: half of each class, the larger half to learn from.

    Nobody is asked where the rest has no pair of one class.
    """
    order = np.random.default_rng(seed).permutation(len(y))
    order = order[np.argsort(y[order], kind="stable")]  # class by class, shuffled within
    counts = np.bincount(y)
    if counts.max() < 3:
        return order, order[:0]
    place = np.arange(len(y)) - np.repeat(np.cumsum(counts) - counts, counts)
    learned = place < np.repeat((counts + 1) // 2, counts)
    return order[learned], order[~learned]


# book/lifelong.ipynb#how-much-to-share
_AGREES = 2.0  # standard deviations of chance


def agreement(own: FactoredMetric, others: FactoredMetric) -> float:
    """How far the contribution of a task points where those of others do.

    Parameters
    ----------
    own, others : FactoredMetric
        Symmetric, of trace D: a contribution, and a mean of such.

    Returns
    -------
    float
        Cosine of their differences from the identity, in standard deviations of what a random
        turn gives: about 0 for what has nothing in common. Infinite if one of them is the identity,
        which contradicts nothing.

    Notes
    -----
    Derived in chapter 16 (lifelong), eq. (shared-agreement).
    """
    D = own.n_features
    identity = FactoredMetric.identity(D)
    A, B = own - identity, others - identity
    sizes = A.norm(), B.norm()
    if min(sizes) <= D * np.sqrt(np.finfo(float).eps):  # rounding
        return np.inf
    return float(A.inner(B) / np.prod(sizes) * np.sqrt((D - 1) * (D + 2) / 2))


# book/lifelong.ipynb#labels-in-common
def _joined(
    state: "_State", task: Hashable, own: ClassMeans, X: Matrix, y: Indices
) -> tuple[Matrix, Indices]:
    """The samples of a visit and the class means of the last other tasks, eq. (shared-joined)."""
    others = [means for u, means in state.means.items() if u != task and means.has_center]
    means, labels = own.from_others(others[-_MOST_JOINED:])
    classes = np.array([own.labels.index(label) for label in labels], dtype=y.dtype)
    return stacked(X, means), np.concatenate([y, classes])


# book/lifelong.ipynb#the-learner
@dataclass(frozen=True)
class TaskRecord(ShortRepr):
    """What a `LifelongMetricLearner` notes about a task; it holds no samples.

    Attributes
    ----------
    number : int
        Position in the order of first appearance, from 0.
    classes : tuple
        Labels, in the order in which they were first seen.
    n_samples, n_visits : int
        Samples and calls of ``partial_fit`` over all visits.
    n_learned : int
        Samples of the visits that taught a metric. At 0 the task has no code.
    sharing : float
        m with which the last visit that taught was learned: 0 if the task was left alone.
    """

    number: int
    classes: tuple[Any, ...]
    n_samples: int
    n_visits: int
    n_learned: int
    sharing: float


@dataclass(frozen=True, eq=False, kw_only=True)
class _State(LearnerState):
    """What a `LifelongMetricLearner` knows after some visits; it never changes."""

    total: Any = None  # FactoredMetric: the sum of all contributions, after the first code
    codes: dict[Any, FactoredMetric] = field(default_factory=dict)  # of tasks that were learned
    means: dict[Any, ClassMeans] = field(default_factory=dict)  # of tasks with shared labels
    mistakes: Any = None  # Floats: of candidates for m, over all tasks, if m was ever chosen
    sharing: float = 0.0  # m, as it was at the last visit that taught
    metric_type: Any = None  # "similarity" or "distance" after the first task

    def of_others(self, task: Hashable) -> tuple[Any, int]:
        """Sum of the contributions of the other tasks (None before any code), and their number."""
        if task not in self.codes:
            return self.total, len(self.codes)
        return self.total - contribution(self.codes[task]), len(self.codes) - 1

    def agrees(self, task: Hashable, code: FactoredMetric) -> bool:
        """Whether what a task has found alone points where the other tasks do."""
        others, n_others = self.of_others(task)
        if not n_others:
            return True
        most = np.sqrt((self.n_features - 1) * (self.n_features + 2) / 2)  # of the same directions
        return agreement(contribution(code), others / n_others) >= min(_AGREES, most / 2)

    def sharing_of(self, task: Hashable) -> float:
        """m with which a task is read: 0 if it was learned alone and does not agree with others."""
        chosen = self.mistakes is not None and self.sharing > 0
        own = task in self.codes and task not in self.means  # not of joined class means
        if chosen and own and self.tasks[task].sharing == 0:
            return self.sharing if self.agrees(task, self.codes[task]) else 0.0
        return self.sharing


# book/lifelong.ipynb#the-learner
def _noted(
    state: _State, task: Hashable, labels: list[Any], n_samples: int, n_learned: int, sharing: float
) -> TaskRecord:
    """The record of a task after a visit."""
    new = TaskRecord(
        number=state.number(task),
        classes=(),
        n_samples=0,
        n_visits=0,
        n_learned=0,
        sharing=sharing,
    )
    known = state.tasks.get(task, new)
    return TaskRecord(
        number=known.number,
        classes=tuple(dict.fromkeys((*known.classes, *labels))),
        n_samples=known.n_samples + n_samples,
        n_visits=known.n_visits + 1,
        n_learned=known.n_learned + n_learned,
        sharing=known.sharing if known.n_learned and not n_learned else sharing,
    )


# book/lifelong.ipynb#the-learner
_BASE_LEARNERS = {"oasis": OASIS(), "scml": SCML(), "lmnn": LMNN(shrinkage=0.001)}
_CANDIDATES = (0.0, 0.3, 0.6, 0.9)  # for m
_MOST_JOINED = 10  # tasks whose class means are samples: a visit costs no more among a thousand


def _is_sharing(value: Any) -> bool:
    return value in ("auto", "grow") if isinstance(value, str) else real(0, 1).allows(value)


class LifelongMetricLearner(
    TaskMetricsMixin, SharedLabelsMixin, BaseLearnerMixin, BaseLifelongLearner[_State]
):
    """Metrics of tasks that arrive one after another, learned in coordinates that they share.

    Parameters
    ----------
    base_learner : {"oasis", "scml", "lmnn"} or estimator, default="oasis"
        Learns the metric of a task in the shared coordinates. "oasis" compares inner products:
        center the samples of a task and bring them to unit length. "scml" and "lmnn" (with the
        shrinkage 0.001) learn distances. An estimator has ``metric_`` (a FactoredMetric, or an array
        of shape (D, D)) and ``metric_type`` after ``fit``; it is cloned, and given class numbers.
    sharing : {"auto", "grow"} or float, default="auto"
        m, the weight of what the other tasks have found, from 0 (each task is learned alone)
        to 1. "auto" chooses among 0, 0.3, 0.6 and 0.9 by the mistakes on samples that are left
        out, summed over the tasks so far; a visit then fits the base learner four times more, on
        half of the samples. A task whose code does not agree with the others' is left alone,
        unless labels are shared. "grow" is .9 n / (n + 5) with n other tasks.
    n_components : int, default=100
        Most directions of the shared metric; the others have one weight.
    code_rank : int or None, default=100
        Most directions of a code. None keeps all, which is D x D numbers for LMNN.
    shared_labels : bool, default=False
        Whether a label means the same class in every task. When a task is learned, the class
        means of other tasks are then samples too, and `class_means_of_others` gives them as
        references. The state keeps the class means of each task.
    n_jobs : int or None, default=None
        Candidates for m that are tried side by side, in joblib's sense. The result does not
        depend on it.
    random_state : int, RandomState or None, default=None
        Root of the seeds of all tasks.
    verbose : bool, default=False
        Whether a bar shows the progress of `fit` over the tasks, which needs tqdm.

    Attributes
    ----------
    shared_metric_ : FactoredMetric
        P for a task that is not known yet.
    codes_ : dict
        Task to its code W, a FactoredMetric; of the tasks that have learned one.
    sharing_ : float
        m, as it was at the last visit that taught a metric.
    tasks_ : dict
        Task to its `TaskRecord`, in the order of first appearance.
    metric_type_ : {"similarity", "distance"}
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns, when the first task was a data frame; the later ones must have the
        same.

    Notes
    -----
    Derived in chapter 16 (lifelong), eqs. (shared-metric), (shared-learn), (shared-read),
    (shared-agreement) and (shared-joined). Paper: section IV, where M_t = L' W_t L. The metrics of
    all tasks change when a task arrives. A task that comes back keeps what was learned: its code
    becomes the mean over all of its samples.

    A visit without a triplet (one class, or no class with two samples, the joined class means
    counted) teaches no metric: it is noted, and where labels are shared its class means are kept.
    A task without a code is read in P itself, and is not one of the others. The first visit of
    all may be such a one if the base learner has its ``metric_type`` before `fit`.

    Where nearest samples are looked for, the time of a visit grows as the square of its number of
    samples: by "scml" and "lmnn", up to their ``max_samples``, and by the choice of m in "auto".

    Any number of threads may read while one learns: an answer is that of the state before the
    visit or after it. Visits by several threads come one after another. A visit that fails or
    is interrupted changes nothing. `save` and `load` keep a learner in a file.

    Examples
    --------
    >>> from lml.datasets import load_few_shot_digits
    >>> learner = LifelongMetricLearner(random_state=0)
    >>> for task in load_few_shot_digits(n_tasks=3, random_state=0):
    ...     learner = learner.partial_fit(task.X_train, task.y_train, task=task.name)
    >>> learner.transform(task.X_test, task=task.name).shape[1]
    64
    """

    _state_class = _State
    _kind = "LifelongMetricLearner"
    _base_learners = _BASE_LEARNERS
    _parameter_rules: ClassVar[dict[str, Rule]] = {
        "base_learner": base_learner_rule(_BASE_LEARNERS),
        "sharing": Rule(_is_sharing, "'auto', 'grow' or a number from 0 to 1"),
        "n_components": whole(1),
        "code_rank": optional(whole(0)),
        "shared_labels": flag(),
        "n_jobs": jobs(),
        "random_state": seed(),
        "verbose": flag(),
    }

    def __init__(
        self,
        base_learner: Any = "oasis",
        *,
        sharing: float | str = "auto",
        n_components: int = 100,
        code_rank: int | None = 100,
        shared_labels: bool = False,
        n_jobs: int | None = None,
        random_state: Seed = None,
        verbose: bool = False,
    ) -> None:
        self.base_learner = base_learner
        self.sharing = sharing
        self.n_components = n_components
        self.code_rank = code_rank
        self.shared_labels = shared_labels
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _learn_visit(
        self, state: _State, X: Matrix, y: Lesson, n_own: int, labels: list[Any], task: Hashable
    ) -> _State:
        """The state after samples X and what teaches of them, y."""
        # the base learner in the coordinates of what the other tasks have found
        base_seed, fold_seed = map(int, state.seeds(task).generate_state(2))
        sharing, own_sharing, mistakes = self._choose_sharing(
            state, X, y, n_own, task, base_seed, fold_seed
        )
        shared = _shared_metric(state, task, own_sharing)
        code, kind = self._learn_code(shared, X, y, base_seed, state.metric_type)

        # the mean with earlier visits, by the samples that taught it
        if task in state.codes:
            new = n_own / (state.tasks[task].n_learned + n_own)
            code = trimmed((1 - new) * state.codes[task] + new * code, self._most(X.shape[1]))

        # the sum, with what the task adds to it now
        others, _ = state.of_others(task)
        added = contribution(code)
        total = trimmed(added if others is None else others + added, self.n_components)
        return replace(
            state,
            total=total,
            codes={**state.codes, task: code},
            tasks={**state.tasks, task: _noted(state, task, labels, n_own, n_own, own_sharing)},
            mistakes=mistakes,
            sharing=sharing,
            metric_type=kind,
        )

    def _learn_task(
        self, state: _State, X: Matrix, y: Indices, labels: list[Any], task: Hashable
    ) -> _State:
        """The state after a visit."""
        # the class means of other tasks, where labels mean the same, are samples too
        means = state.means
        n_own = len(y)
        if self.shared_labels:
            own = ClassMeans(tuple(labels), *class_means(X, y))
            X, y = _joined(state, task, own, X, y)
            means = {**means, task: means[task].plus(own) if task in means else own}
        state = replace(state, means=means)
        if not has_pairs(y, labels):
            return self._note_visit(state, n_own, labels, task)
        return self._learn_visit(state, X, y, n_own, labels, task)

    def _check_labels(self, y: Indices, labels: list[Any], task: Hashable, known: bool) -> None:
        """A visit may bring one class, or one sample."""
        if not labels:
            super()._check_labels(y, labels, task, known)

    def _note_visit(self, state: _State, n_own: int, labels: list[Any], task: Hashable) -> _State:
        """The state after a visit without a triplet, which teaches the base learner nothing."""
        base = self._base()
        kind = state.metric_type or getattr(base, "metric_type", None)
        if not METRIC_TYPE.allows(kind):
            raise ValueError(
                f"task {task!r} has no triplet to learn from, and base_learner={base!r} says only"
                " after a fit whether it learns a similarity or a distance: begin with a visit of"
                " two classes, one with two samples"
            )
        if not state.codes:
            warnings.warn(
                f"task {task!r} has no triplet to learn from, and no task has been learned so far:"
                " until a visit has two classes, one with two samples, its metric is the identity",
                stacklevel=4,
            )
        record = _noted(state, task, labels, n_own, 0, state.sharing)
        return replace(state, tasks={**state.tasks, task: record}, metric_type=kind)

    def _learn_code(
        self, shared: FactoredMetric, X: Matrix, y: Lesson, seed: int, metric_type: str | None
    ) -> tuple[FactoredMetric, str]:
        """The code that the base learner finds in the shared coordinates, and its type."""
        n_samples, D = X.shape
        if sparse.issparse(X) and n_samples < D:
            return self._learn_in_span(shared, X, y, seed, metric_type)
        Z = shared.root()._apply(dense(X))
        # the base learner's steps have units: it sees samples as long as they came
        length = linalg.norm(Z)  # 0 where the shared metric sees nothing of them
        scale = length / linalg.norm(X.data if sparse.issparse(X) else X) if length else 1.0
        code, kind = self._fit_base(Z / scale, y, seed, metric_type)
        return trimmed(code, self._most(D)) / scale**2, kind

    def _learn_in_span(
        self, shared: FactoredMetric, X: Matrix, y: Lesson, seed: int, metric_type: str | None
    ) -> tuple[FactoredMetric, str]:
        """The same of few sparse samples with many features, eq. (shared-span)."""
        # squares of tiny numbers are 0: a power of two, which rounds nothing, takes them to size 1
        size, power = np.frexp(linalg.norm(X.data))
        X = sparse.csr_array((np.ldexp(X.data, -power), X.indices, X.indptr), shape=X.shape)
        # the samples in a basis of their span, and one coordinate in which all are zero, which
        # stands for all directions outside
        gram = shared._bilinear(X, X)
        values, vectors = linalg.eigh((gram + gram.T) / 2)
        seen = values > values[-1] * X.shape[0] * np.finfo(float).eps
        lengths = np.sqrt(values[seen])
        scale = linalg.norm(lengths) / size if len(lengths) else 1.0
        Z = np.pad(vectors[:, seen] * lengths, ((0, 0), (0, 1)))
        metric, kind = self._fit_base(np.ldexp(Z / scale, power), y, seed, metric_type)
        inside = metric.symmetrized().to_dense()
        outside = float(inside[-1, -1])
        values, axes = linalg.eigh(inside[:-1, :-1])
        kept, mean = _least_spread(values - outside, X.shape[1], self._most(X.shape[1]))
        weights = (axes[:, kept].T / lengths) @ vectors[:, seen].T
        rows = shared.root()._apply(weights @ X)
        code = FactoredMetric._trusted(outside + mean, rows, values[kept] - outside - mean)
        # samples in which some lengths are near rounding leave the rows askew
        return trimmed(code, len(kept)) / scale**2, kind

    def _most(self, n_features: int) -> int:
        """Most directions of a code."""
        return n_features if self.code_rank is None else self.code_rank

    def _warn_of_parameters(self) -> None:
        """Warn of a base learner that shares nothing."""
        learner = self._base()
        if isinstance(learner, LMNN) and learner.shrinkage == 0 and self.sharing != 0:
            warnings.warn(
                "LMNN with shrinkage=0 finds almost the same metric in all coordinates, so that"
                " nothing is shared: give it a shrinkage, such as 0.001",
                stacklevel=3,
            )

    def _forget_task(self, state: _State, task: Hashable) -> _State:
        """The state without a task's entries and its part of the sum."""
        left = super()._forget_task(state, task)
        if task not in state.codes:
            return left
        others, n_others = state.of_others(task)
        return replace(left, total=trimmed(others, self.n_components) if n_others else None)

    def _choose_sharing(
        self,
        state: _State,
        X: Matrix,
        y: Lesson,
        n_own: int,
        task: Hashable,
        base_seed: int,
        fold_seed: int,
    ) -> tuple[float, float, Any]:
        """m for all tasks and for this one, and the mistakes of the candidates so far."""
        n_others = len(state.codes) - (task in state.codes)
        grown = 0.9 * n_others / (n_others + 5)
        if self.sharing != "auto":
            sharing = grown if self.sharing == "grow" else float(self.sharing)
            return sharing, sharing, state.mistakes

        total = np.zeros(len(_CANDIDATES)) if state.mistakes is None else state.mistakes
        # with triplets or pairs nobody is asked, but tasks with labels may have answered
        if isinstance(y, LabeledPairs) or y.ndim == 2:
            sharing = _CANDIDATES[int(np.argmin(total))] if total.any() else grown
            return sharing, sharing, total

        agrees = n_others > 0
        half, asked = _halves(y[:n_own], fold_seed)
        if len(asked) and n_others:  # somebody to ask, and something to share
            learned = np.r_[half, n_own : len(y)]  # half of the task, and what has joined it
            mistakes, alone = self._try_candidates(
                state, task, (X[learned], y[learned]), (X[asked], y[asked]), base_seed
            )
            total = total + mistakes
            agrees = task in state.means or state.agrees(task, alone)
        sharing = _CANDIDATES[int(np.argmin(total))]
        return sharing, sharing if agrees else 0.0, total

    def _try_candidates(
        self,
        state: _State,
        task: Hashable,
        learned: tuple[Matrix, Indices],
        asked: tuple[Matrix, Indices],
        seed: int,
    ) -> tuple[Floats, FactoredMetric]:
        """Mistakes of each candidate for m on the samples that are asked, and the code of m = 0."""

        def attempt(sharing: float) -> tuple[int, FactoredMetric]:
            shared = _shared_metric(state, task, sharing)
            code, kind = self._learn_code(shared, *learned, seed, state.metric_type)
            metric = _in_features(code, shared)
            nearest, _ = nearest_references(metric, asked[0], learned[0], kind, 1)
            return int(np.count_nonzero(learned[1][nearest[:, 0]] != asked[1])), code

        calls = (joblib.delayed(attempt)(sharing) for sharing in _CANDIDATES)
        mistakes, codes = zip(*joblib.Parallel(self.n_jobs, prefer="threads")(calls))
        return np.array(mistakes), codes[0]

    def partial_fit_triplets(
        self, triplets: ArrayLike, X: MatrixLike | None = None, *, task: Hashable
    ) -> Self:
        """Learn one task, or more of a known one, from triplets in place of labels.

        Parameters
        ----------
        triplets : array-like of shape (n_triplets, 3, n_features) or (n_triplets, 3)
            Triplets (anchor, positive, negative) of samples, or with `X` the numbers of their
            samples. The anchor is more similar to the positive.
        X : {array-like, sparse matrix, data frame} of shape (n_samples, n_features), optional
            Samples that `triplets` counts.
        task : hashable
            Name of the task. Its record has no classes from this visit.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            If the triplets, the task or a parameter cannot be used, or the base learner has no
            `fit_triplets`. The learner is then exactly what it was before the call.
        """
        with self._lock:
            self._check_parameters()
            self._warn_of_parameters()
            self._check_learns_from("triplets", task)
            # the state keeps the names of columns, not an attribute
            samples, numbers = check_tuples(BaseEstimator(), triplets, X, 3)
            columns = None if X is None else column_names(X)
            state = self._state or self._blank_state(samples, columns)
            self._check_table(state, samples, X)
            self._state = self._learn_visit(
                state.born(task), samples, numbers, samples.shape[0], [], task
            )
        return self

    def partial_fit_pairs(
        self, pairs: ArrayLike, y: ArrayLike, X: MatrixLike | None = None, *, task: Hashable
    ) -> Self:
        """Learn one task, or more of a known one, from similar and dissimilar pairs.

        Parameters
        ----------
        pairs : array-like of shape (n_pairs, 2, n_features) or (n_pairs, 2)
            Pairs of samples, or with `X` the numbers of their samples.
        y : array-like of shape (n_pairs,)
            +1 for a similar pair, -1 for a dissimilar one.
        X : {array-like, sparse matrix, data frame} of shape (n_samples, n_features), optional
            Samples that `pairs` counts.
        task : hashable
            Name of the task. Its record has no classes from this visit.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            If the pairs, the task or a parameter cannot be used, or the base learner has no
            `fit_pairs`. The learner is then exactly what it was before the call.
        """
        with self._lock:
            self._check_parameters()
            self._warn_of_parameters()
            self._check_learns_from("pairs", task)
            samples, numbers = check_tuples(BaseEstimator(), pairs, X, 2)
            lesson = LabeledPairs(numbers, check_pair_labels(y, len(numbers)))
            columns = None if X is None else column_names(X)
            state = self._state or self._blank_state(samples, columns)
            self._check_table(state, samples, X)
            self._state = self._learn_visit(
                state.born(task), samples, lesson, samples.shape[0], [], task
            )
        return self

    def _check_learns_from(self, kind: str, task: Hashable) -> None:
        """Refuse a task's name, or a base learner without `fit_triplets` or `fit_pairs`."""
        check_task(task)
        if not hasattr(self._base(), f"fit_{kind}"):
            raise TypeError(
                f"base_learner={self.base_learner!r} does not learn from {kind}: use 'oasis' or"
                f" another learner that has fit_{kind}"
            )

    def _check_table(self, state: _State, samples: Matrix, X: MatrixLike | None) -> None:
        """Refuse samples, those of X if it was given, with other columns than those learned."""
        check_matrix(samples, "X", state.n_features)
        if X is not None:
            check_columns(self, X)

    def class_means_of_others(self, *, task: Hashable) -> tuple[Floats, list[Any]]:
        """Class means of the other tasks, moved to this one: more references for k-NN.

        Parameters
        ----------
        task : hashable
            A known task.

        Returns
        -------
        means : ndarray of shape (n_means, n_features)
            Of the task's own classes only. A task of one class gives and is given none: its mean
            does not say where it lies.
        labels : list of length n_means

        Raises
        ------
        ValueError
            If the task is not known, or was learned from triplets or without ``shared_labels``.

        Notes
        -----
        Derived in chapter 16 (lifelong), eq. (shared-joined).
        """
        state = self._known_state(task)
        others = [means for u, means in state.means.items() if u != task]
        return _known_means(state, task).from_others(others)

    def _joined_means(self, state: _State, task: Hashable) -> dict[Any, Floats]:
        """Label to the mean of the class over all tasks, moved to the mean of this one."""
        own = _known_means(state, task)
        if not own.has_center:
            return {}
        parts = (part.centered() for part in state.means.values() if part.has_center)
        joined = reduce(ClassMeans.plus, parts)
        return dict(zip(joined.labels, own.center + joined.means))

    def task_metric(self, task: Hashable) -> FactoredMetric:
        """The metric R W R of a task, a FactoredMetric, as the other tasks shape it now."""
        state = self._known_state(task)
        shared = _shared_metric(state, task, state.sharing_of(task))
        return _in_features(state.codes[task], shared) if task in state.codes else shared

    @property
    def shared_metric_(self) -> FactoredMetric:
        """P for a task that is not known yet."""
        state = self._learned_state("shared_metric_")
        return _shared_metric(state, object(), state.sharing)

    @property
    def codes_(self) -> dict[Any, FactoredMetric]:
        """Task to its code W, if it has learned one; a copy of the table."""
        return dict(self._learned_state("codes_").codes)

    @property
    def sharing_(self) -> float:
        """m, the weight of what the tasks share, as it was at the last visit that taught."""
        return self._learned_state("sharing_").sharing

    @property
    def state_parts_(self) -> dict[str, int]:
        """Bytes kept, by part: the sum of the contributions, codes, class means, records."""
        state = self._learned_state("state_parts_")
        return {
            "shared": 0 if state.total is None else state.total.nbytes,
            "codes": sum(code.nbytes for code in state.codes.values()),
            "class means": sum(
                part.means.nbytes + part.counts.nbytes for part in state.means.values()
            ),
            "records": sum(8 * (5 + len(r.classes)) for r in state.tasks.values()),
        }

    @classmethod
    def _fields(cls) -> Field:
        """The table of the fields that are stored."""
        return RecordField(
            _restored_state,
            {
                **COMMON_FIELDS,
                "tasks": TableField(_RECORD),
                "total": OptionalField(_METRIC),
                "codes": TableField(_METRIC),
                "means": TableField(CLASS_MEANS),
                "mistakes": OptionalField(ArrayField((len(_CANDIDATES),))),
                "sharing": ValueField(real(0, 1)),
                "metric_type": ValueField(METRIC_TYPE),
            },
        )


# book/lifelong.ipynb#the-learner
def _known_means(state: _State, task: Hashable) -> ClassMeans:
    """The class means of a task, if they were kept."""
    if task not in state.means:
        raise ValueError(
            f"task {task!r} has no class means: it was learned from triplets or with"
            " shared_labels=False"
        )
    return state.means[task]


# book/lifelong.ipynb#the-learner
def _restored_state(**parts: Any) -> _State:
    """The state of these fields, or an error that says what does not belong."""
    tasks = parts["tasks"]
    codes = parts["codes"]
    learned = {task for task, record in tasks.items() if record.n_learned}
    expect(set(codes) == learned, "tasks of codes", len(codes), "all that were learned")
    for task, record in tasks.items():
        known = record.n_learned <= record.n_samples
        expect(known, f"n_learned of {task!r}", record.n_learned, "at most its n_samples")
    for task, part in parts["means"].items():
        known = task in tasks and set(part.labels) <= set(tasks[task].classes)
        expect(known, f"labels of the means of {task!r}", part.labels, "classes of the task")
    expect((parts["total"] is None) == (not codes), "sum", parts["total"], "one with codes only")
    return _State(**parts)


# book/lifelong.ipynb#the-learner
_METRIC = RecordField(
    FactoredMetric._trusted,
    {
        "alpha": ValueField(real(-LARGEST, LARGEST)),
        "factor": ArrayField(("r", "D"), rule=ORTHONORMAL),
        "core": ArrayField(("r",)),
    },
)
_RECORD = RecordField(
    TaskRecord,
    {
        "number": ValueField(whole(0)),
        "classes": LABELS,
        "n_samples": ValueField(whole(1)),
        "n_visits": ValueField(whole(1)),
        "n_learned": ValueField(whole(0)),
        "sharing": ValueField(real(0, 1)),
    },
)
