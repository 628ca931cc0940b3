# Generated from book/evaluation.ipynb by tools/tangle.py: edit the chapter.
"""Accuracy after every task of a stream: the T x T matrix, transfer and forgetting.

A lifelong learner keeps metrics and no samples. The reference samples that k-nearest-neighbor
prediction needs live here, in `LifelongKNeighborsClassifier`, and can be bounded.
"""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.extmath import row_norms

from lml.base import LABELS, BaseLifelongLearner, ShortRepr
from lml.metrics import FactoredMetric
from lml.neighbors import accuracy, k_nearest, majority_vote, vote_shares
from lml.single_task import samples_by_task
from lml.state import (
    ArrayField,
    MatrixField,
    RecordField,
    TableField,
    decode_parameters,
    encode_parameters,
    expect,
    pack,
    read_state,
    reading,
    unpack,
    write_state,
)
from lml.utils.documentation import DocumentedMixin
from lml.utils.linalg import dense, nbytes, stacked, with_short_indices
from lml.utils.typing import Floats, Indices, LabelsLike, Matrix, MatrixLike, Seed, WeightsLike
from lml.utils.validation import (
    Rule,
    as_labels,
    check_columns,
    check_kind,
    check_known_task,
    check_matrix,
    check_n_neighbors,
    check_name,
    check_parameters,
    check_task,
    encode_labels,
    labels_array,
    one_of,
    optional,
    seed,
    sort_classes,
    task_names,
    whole,
)

__all__ = [
    "AccuracyMatrixDisplay",
    "LifelongKNeighborsClassifier",
    "SpectrumDisplay",
    "StreamResult",
    "average_accuracy",
    "backward_transfer",
    "evaluate_stream",
    "forgetting",
    "forward_transfer",
    "spectrum",
]


# book/evaluation.ipynb#the-accuracy-matrix
def _accuracies(values: ArrayLike, name: str) -> Floats:
    """A float array of accuracies, NaN where one was not measured."""
    array = np.array(check_kind(values, name), dtype=float)
    outside = array[(array < 0) | (array > 1)]
    if outside.size:
        raise ValueError(f"{name} contains {outside[0]}: give accuracies from 0 to 1 (1 - error)")
    return array


def _accuracy_matrix(R: ArrayLike, n_tasks: int = 1) -> Floats:
    """R as a square array of accuracies of at least n_tasks tasks."""
    R = _accuracies(R, "R")
    if R.ndim != 2 or R.shape[0] != R.shape[1] or not R.size:
        raise ValueError(f"R has shape {R.shape}: give a square matrix, row = after that task")
    if len(R) < n_tasks:
        raise ValueError(f"R has {len(R)} task: transfer and forgetting need at least {n_tasks}")
    return R


def _needed(values: Floats, what: str, first: int = 0) -> Floats:
    """The values of tasks first, first + 1, ...; an error names one that is missing."""
    missing = np.flatnonzero(np.isnan(values))
    if missing.size:
        raise ValueError(
            f"{what} of task {first + missing[0]} (counted from 0) is NaN: evaluate it"
        )
    return values


# book/evaluation.ipynb#the-accuracy-matrix
def average_accuracy(R: ArrayLike) -> float:
    """Mean accuracy over all tasks at the end of the stream.

    Parameters
    ----------
    R : array-like of shape (n_tasks, n_tasks)
        Accuracies in [0, 1]; row = after that task, column = task. Entries of tasks not
        yet seen may be NaN. For errors give ``1 - errors``.

    Returns
    -------
    float
        The mean of the last row.

    Raises
    ------
    ValueError
        If R is not a square matrix of accuracies or a needed entry is NaN.

    Notes
    -----
    Derived in chapter 37 (evaluation), eqs. (evaluation-matrix) and (evaluation-acc).
    Lopez-Paz and Ranzato (2017).

    Examples
    --------
    >>> R = [[0.8, 0.5, 0.5], [0.9, 0.9, 0.5], [0.7, 0.85, 0.9]]
    >>> round(average_accuracy(R), 4)
    0.8167
    """
    R = _accuracy_matrix(R)
    return float(_needed(R[-1], "the final accuracy").mean())


def backward_transfer(R: ArrayLike) -> float:
    """Mean change of the earlier tasks' accuracies from their arrival to the end.

    Parameters
    ----------
    R : array-like of shape (n_tasks, n_tasks), n_tasks >= 2
        Accuracies in [0, 1]; row = after that task, column = task.

    Returns
    -------
    float
        In [-1, 1]; negative when later tasks harmed earlier ones.

    Raises
    ------
    ValueError
        If R is not a square matrix of accuracies of at least two tasks, or a needed
        entry is NaN.

    Notes
    -----
    Derived in chapter 37 (evaluation), eq. (evaluation-bwt). Lopez-Paz and Ranzato (2017).

    Examples
    --------
    >>> R = [[0.8, 0.5, 0.5], [0.9, 0.9, 0.5], [0.7, 0.85, 0.9]]
    >>> round(backward_transfer(R), 4)
    -0.075
    """
    R = _accuracy_matrix(R, n_tasks=2)
    final = _needed(R[-1, :-1], "the final accuracy")
    return float(np.mean(final - _needed(np.diag(R)[:-1], "the accuracy on arrival")))


# book/evaluation.ipynb#the-accuracy-matrix
def forgetting(R: ArrayLike) -> float:
    """Mean loss of the earlier tasks against their best moment from arrival on.

    Parameters
    ----------
    R : array-like of shape (n_tasks, n_tasks), n_tasks >= 2
        Accuracies in [0, 1]; row = after that task, column = task. Entries above the
        diagonal, from before a task's arrival, do not count and may be NaN.

    Returns
    -------
    float
        In [-1, 1] and never below ``-backward_transfer(R)``; negative when the tasks ended
        better than at any moment since their arrival.

    Raises
    ------
    ValueError
        If R is not a square matrix of accuracies of at least two tasks, or a needed
        entry is NaN.

    Notes
    -----
    Derived in chapter 37 (evaluation), eqs. (evaluation-forgetting) and (evaluation-bound).
    Chaudhry et al. (2018), who also count accuracies from before a task's arrival.

    Examples
    --------
    >>> R = [[0.8, 0.5, 0.5], [0.9, 0.9, 0.5], [0.7, 0.85, 0.9]]
    >>> round(forgetting(R), 4)
    0.125
    """
    R = _accuracy_matrix(R, n_tasks=2)
    _needed(np.diag(R)[:-1], "the accuracy on arrival")
    since_arrival = np.tril(R)[:-1, :-1]  # zero before it, below which no accuracy is
    best = _needed(since_arrival.max(axis=0), "an accuracy between arrival and end")
    return float(np.mean(best - _needed(R[-1, :-1], "the final accuracy")))


# book/evaluation.ipynb#the-accuracy-matrix
def forward_transfer(R: ArrayLike, baseline: ArrayLike | None = None) -> float:
    """Mean gain over a baseline on each task just before it is learned.

    Parameters
    ----------
    R : array-like of shape (n_tasks, n_tasks), n_tasks >= 2
        Accuracies in [0, 1]; row = after that task, column = task. The first diagonal
        above the main one must be measured (see `evaluate_stream`, argument `unseen`).
    baseline : array-like of shape (n_tasks,)
        Accuracy on each task of something that has learned nothing.

    Returns
    -------
    float
        In [-1, 1].

    Raises
    ------
    ValueError
        If there is no baseline, its length is not n_tasks, or a needed entry is NaN.

    Notes
    -----
    Derived in chapter 37 (evaluation), eq. (evaluation-fwt). Lopez-Paz and Ranzato (2017).

    Examples
    --------
    >>> R = [[0.8, 0.5, 0.5], [0.9, 0.9, 0.5], [0.7, 0.85, 0.9]]
    >>> round(forward_transfer(R, baseline=[0.5, 0.5, 0.4]), 4)
    0.05
    """
    R = _accuracy_matrix(R, n_tasks=2)
    if baseline is None:
        raise ValueError(
            "baseline is None: forward transfer needs the accuracy of an untrained"
            " baseline on each task, e.g. of Euclidean k-NN"
        )
    baseline = _accuracies(baseline, "baseline")
    if baseline.shape != (len(R),):
        raise ValueError(
            f"baseline has shape {baseline.shape}: give one accuracy for each of the {len(R)} tasks"
        )
    before = _needed(np.diag(R, k=1), "the accuracy before arrival", first=1)
    return float(np.mean(before - _needed(baseline[1:], "the baseline", first=1)))


# book/evaluation.ipynb#reading-a-metric-k-nn-with-the-samples-outside
def _bounded_rows(
    codes: Indices, max_rows: int | None, max_per_class: int | None, rng: np.random.RandomState
) -> Indices:
    """Indices of at most max_rows samples, stratified by class, in their old order.

    And of at most max_per_class samples of one class.
    """
    sizes = np.minimum(np.bincount(codes), min(max_per_class or len(codes), len(codes)))
    n_kept = min(sizes.sum(), max_rows or len(codes))
    if n_kept == len(codes):
        return np.arange(len(codes))
    if n_kept < len(sizes):
        raise ValueError(
            f"max_references={max_rows} is less than the {len(sizes)} classes of"
            " the task: keep at least one row a class"
        )
    order = rng.permutation(len(codes))
    key = np.empty(len(codes))  # kappa of eq. (evaluation-bounded)
    for code, size in enumerate(sizes):
        rows = order[codes[order] == code]
        key[rows] = np.arange(len(rows)) / size
    return np.sort(order[np.argsort(key[order], kind="stable")[:n_kept]])


# book/evaluation.ipynb#reading-a-metric-k-nn-with-the-samples-outside
def _herded(X: Matrix, n: int) -> Indices:
    """The first n samples of a class by eq. (evaluation-herding), in their old order."""
    if not sparse.issparse(X):  # far from 0 the squares would take the digits
        X = X - X.mean(axis=0, dtype=np.float64)
    mean = np.asarray(X.mean(axis=0)).ravel()
    squares = row_norms(X, squared=True)
    total = np.zeros(X.shape[1])
    chosen: list[int] = []
    for j in range(1, n + 1):
        gaps = squares + 2 * (X @ (total - j * mean))  # but for what all samples have in common
        gaps[chosen] = np.inf
        chosen.append(int(np.argmin(gaps)))
        total += dense(X[[chosen[-1]]])[0]
    return np.sort(chosen)


def _chosen(
    X: Matrix, codes: Indices, rows: Indices, how: str, rng: np.random.RandomState
) -> tuple[Matrix, Indices]:
    """As many references of each class as in `rows`: these, or others in their place."""
    if how == "random" or len(rows) == len(codes):
        return X[rows], codes[rows]
    parts = []
    for code, n in enumerate(np.bincount(codes[rows])):
        own = X[codes == code]
        if n < own.shape[0] and how == "herding":
            own = own[_herded(own, n)]
        elif n < own.shape[0]:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # fewer samples differ than n
                own = KMeans(n, random_state=rng).fit(with_short_indices(own)).cluster_centers_
        parts.append(own)
    return reduce(stacked, parts, X[:0]), np.sort(codes[rows])  # sparse if X is, centers too


# book/evaluation.ipynb#reading-a-metric-k-nn-with-the-samples-outside
@dataclass(frozen=True, eq=False)
class _Kept:
    """What is kept of a task: samples, the class of each, the labels of the classes."""

    X: Matrix
    codes: Indices
    classes: NDArray[Any]


class LifelongKNeighborsClassifier(DocumentedMixin, ClassifierMixin, BaseEstimator):
    """k-nearest-neighbor classification of several tasks with one lifelong learner.

    Parameters
    ----------
    learner : object with ``task_metric(task)`` and ``metric_type_``
        A lifelong learner such as `lml.lifelong.LifelongMetricLearner`. It is used as it
        is, never copied or trained: train it with its own ``partial_fit``.
    n_neighbors : int, default=3
    max_references : int or None, default=None
        Most references kept of a task, every class by its share; None keeps all.
    max_per_class : int or None, default=None
        Most references kept of a class of a task.
    reduction : {"random", "herding", "kmeans"}, default="random"
        How fewer references are chosen: at random, one after the other so that their mean stays
        near that of the class, or as the centers of clusters of the class (one center: its mean).
    random_state : int, RandomState or None, default=None
        Of the random choice and of k-means.

    Attributes
    ----------
    references_ : dict
        Task to (samples, labels).
    classes_ : dict
        Task to its labels, in the order of the columns of ``predict_proba``.
    reference_nbytes_ : int
        Bytes of all references and their classes: what k-NN costs beyond the learner.

    Notes
    -----
    Derived in chapter 37 (evaluation), eqs. (evaluation-knn), (evaluation-bounded) and
    (evaluation-herding). The metric is read at prediction time, so predictions change when the
    learner moves. A distance is projected onto the positive semi-definite matrices before it is
    used.

    Examples
    --------
    >>> from lml.datasets import load_few_shot_digits
    >>> from lml.lifelong import LifelongMetricLearner
    >>> learner = LifelongMetricLearner(random_state=0)
    >>> reader = LifelongKNeighborsClassifier(learner, n_neighbors=1)
    >>> for task in load_few_shot_digits(n_tasks=2, random_state=0):
    ...     learner = learner.partial_fit(task.X_train, task.y_train, task=task.name)
    ...     reader = reader.partial_fit(task.X_train, task.y_train, task=task.name)
    >>> reader.predict_proba(task.X_test, task=task.name).shape[1]
    5
    >>> reader.forget(task.name).classes_.keys() == learner.tasks_.keys()
    True
    """

    _parameter_rules: ClassVar[dict[str, Rule]] = {
        "n_neighbors": whole(1),
        "max_references": optional(whole(1, np.inf)),
        "max_per_class": optional(whole(1, np.inf)),
        "reduction": one_of("random", "herding", "kmeans"),
        "random_state": seed(),
    }
    _tasks: dict[Hashable, _Kept] | None = None
    _known: Mapping[Hashable, Any] = {}  # births of our tasks that the learner has known

    def __init__(
        self,
        learner: Any,
        n_neighbors: int = 3,
        max_references: int | None = None,
        max_per_class: int | None = None,
        reduction: str = "random",
        random_state: Seed = None,
    ) -> None:
        self.learner = learner
        self.n_neighbors = n_neighbors
        self.max_references = max_references
        self.max_per_class = max_per_class
        self.reduction = reduction
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags._skip_test = True  # scikit-learn's checks name no task
        return tags

    def fit(
        self,
        X: MatrixLike,
        y: LabelsLike,
        *,
        task: Hashable = None,
        tasks: Iterable[Hashable] | None = None,
    ) -> Self:
        """Keep the references of tasks, in place of their earlier ones; other tasks stay.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Labels of any type that a file can hold.
        task : hashable
            Name of the task.
        tasks : sequence of length n_samples
            Instead of `task`: the name of each sample's task.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            If a sample, a label, a name or a number cannot be used; nothing has changed then.
        """
        return self._keep(X, y, task, tasks, anew=True)

    def partial_fit(
        self,
        X: MatrixLike,
        y: LabelsLike,
        *,
        task: Hashable = None,
        tasks: Iterable[Hashable] | None = None,
    ) -> Self:
        """Add references of tasks; arguments as of `fit`.

        The bounds then choose among the samples kept before and the new ones.
        """
        return self._keep(X, y, task, tasks, anew=False)

    def _keep(self, X: MatrixLike, y: LabelsLike, task: Any, tasks: Any, anew: bool) -> Self:
        """Keep references; `anew` without the earlier ones of their tasks."""
        check_parameters(self)
        bounds = self.max_references, self.max_per_class
        if self.reduction != "random" and bounds == (None, None):
            raise ValueError(
                f"reduction={self.reduction!r} has no effect without a bound: give max_references"
                " or max_per_class"
            )
        parts = _by_task(X, task, tasks)
        X = self._check_rows(X, replaced=parts if anew else ())
        labels = as_labels(y)
        for label in encode_labels(labels)[1]:
            check_name(label, f"label {label!r}")
        check_consistent_length(X, labels)
        kept = {} if self._tasks is None else self._current()
        rng = check_random_state(self.random_state)
        for name, own in parts.items():
            check_task(name)
            rows = X[own]
            named = labels if tasks is None else [labels[sample] for sample in own]
            if name in kept and not anew:
                rows = stacked(kept[name].X, rows)
                named = [*kept[name].classes[kept[name].codes].tolist(), *named]
            classes, codes = sort_classes(named)
            chosen = _bounded_rows(codes, *bounds, rng)
            check_n_neighbors(self.n_neighbors, len(chosen))
            rows, codes = _chosen(rows, codes, chosen, self.reduction, rng)
            kept = {**kept, name: _Kept(rows, codes, classes)}
        self._tasks = kept
        self._current()  # notes what the learner knows
        return self

    def forget(self, task: Hashable) -> Self:
        """Drop the references of a task, and let the learner forget it if it knows it.

        Where the learner has forgotten it, its references are gone already.
        """
        current = self._current()
        check_known_task(task, current)
        if hasattr(self.learner, "forget") and task in _tasks_of(self.learner):
            self.learner.forget(task)
        self._tasks = {name: kept for name, kept in current.items() if name != task}
        return self

    def _current(self) -> dict[Hashable, _Kept]:
        """What is kept of each task; of one that the learner has forgotten, it is dropped."""
        if self._tasks is None:
            raise NotFittedError("no task has references yet: call fit(X, y, task=...)")
        births = _births_of(self.learner)
        gone = {t for t, born in self._known.items() if t not in births or births[t] != born}
        if gone:
            self._tasks = {task: kept for task, kept in self._tasks.items() if task not in gone}
        self._known = {task: births[task] for task in self._tasks if task in births}
        return self._tasks

    @property
    def references_(self) -> dict[Hashable, tuple[Matrix, NDArray[Any]]]:
        """Task to (samples, labels), a new table."""
        return {task: (kept.X, kept.classes[kept.codes]) for task, kept in self._current().items()}

    @property
    def classes_(self) -> dict[Hashable, NDArray[Any]]:
        """Task to its labels, sorted where they have an order."""
        return {task: kept.classes for task, kept in self._current().items()}

    @property
    def reference_nbytes_(self) -> int:
        """Bytes of the references of all tasks and of the numbers of their classes."""
        return sum(nbytes(kept.X) + kept.codes.nbytes for kept in self._current().values())

    def __sklearn_is_fitted__(self) -> bool:
        return bool(self._tasks)

    def __getstate__(self) -> dict[str, Any]:
        if self._tasks is not None:
            self._current()  # a copy has nothing of forgotten tasks
        return super().__getstate__()

    def _check_rows(self, X: MatrixLike, replaced: Collection[Hashable] = ()) -> Matrix:
        """Samples in single or double precision, with the columns of the learner and the references."""
        if not hasattr(self.learner, "task_metric") or isinstance(self.learner, type):
            raise TypeError(f"learner is {self.learner!r}: give a learner of several tasks")
        check_columns(self.learner, X)
        X = check_matrix(X, dtype=[np.float64, np.float32], ensure_min_samples=1)
        known = getattr(self.learner, "n_features_in_", X.shape[1])
        if X.shape[1] != known:
            raise ValueError(f"X has {X.shape[1]} features, but the learner has learned {known}")
        current = {} if self._tasks is None else self._current()
        for name, kept in current.items():
            if X.shape[1] != kept.X.shape[1] and name not in replaced:
                raise ValueError(
                    f"X has {X.shape[1]} features, the reference rows of task {name!r} have"
                    f" {kept.X.shape[1]}: the tasks share one feature space"
                )
        return X

    def _nearest(
        self,
        X: Matrix | None,
        task: Hashable,
        n_neighbors: int | None = None,
        metric: FactoredMetric | None = None,
    ) -> tuple[_Kept, Indices, Floats]:
        """The references of a task, the nearest of each sample, and scores, eq. (evaluation-knn)."""
        current = self._current()
        check_known_task(task, current)
        kept = current[task]
        metric = self.learner.task_metric(task) if metric is None else metric
        kind = self.learner.metric_type_
        if kind == "distance":
            metric = metric.psd()
        k = self.n_neighbors if n_neighbors is None else n_neighbors
        return kept, *k_nearest(metric, X, kept.X, kind, k)

    def kneighbors(
        self, X: MatrixLike | None = None, n_neighbors: int | None = None, *, task: Hashable
    ) -> tuple[Indices, Floats]:
        """Nearest references of each sample under the learner's current metric of the task.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features), optional
            None ranks, for each reference, all the others.
        n_neighbors : int, optional
        task : hashable
            A task that the learner and this classifier both know.

        Returns
        -------
        indices : ndarray of int, shape (n_queries, n_neighbors)
            Places in ``references_[task]``, nearest first.
        scores : ndarray of shape (n_queries, n_neighbors)
            Larger is closer.
        """
        X = None if X is None else self._check_rows(X)
        return self._nearest(X, task, n_neighbors)[1:]

    def predict(
        self, X: MatrixLike, *, task: Hashable = None, tasks: Iterable[Hashable] | None = None
    ) -> NDArray[Any]:
        """Labels of samples by the learner's current metric of their task.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features)
        task : hashable
            A task that the learner and this classifier both know.
        tasks : sequence of length n_queries
            Instead of `task`: the task of each sample.

        Returns
        -------
        ndarray of shape (n_queries,)
        """
        X = self._check_rows(X)
        if tasks is None:
            return self._predict(X, task)
        parts = _by_task(X, task, tasks)
        found: list[Any] = [None] * X.shape[0]
        for name, own in parts.items():
            for row, label in zip(own, self._predict(X[own], name).tolist()):
                found[row] = label
        return labels_array(found)

    def _predict(
        self, X: Matrix, task: Hashable, metric: FactoredMetric | None = None
    ) -> NDArray[Any]:
        """Labels of samples of one task, by a metric that is not the learner's if it is given."""
        kept, nearest, _ = self._nearest(X, task, metric=metric)
        return kept.classes[majority_vote(kept.codes[nearest])]

    def predict_proba(self, X: MatrixLike, *, task: Hashable) -> Floats:
        """Share of the votes for each class of a task, (n_queries, n_classes)."""
        kept, nearest, _ = self._nearest(self._check_rows(X), task)
        return vote_shares(kept.codes[nearest], len(kept.classes))

    def score(
        self,
        X: MatrixLike,
        y: LabelsLike,
        sample_weight: WeightsLike | None = None,
        *,
        task: Hashable = None,
        tasks: Iterable[Hashable] | None = None,
    ) -> float:
        """Share of the samples whose predicted label is that in y, a float in [0, 1].

        `task` is the task of all samples, or `tasks` that of each; `sample_weight` makes it a
        weighted mean.
        """
        return accuracy(self.predict(X, task=task, tasks=tasks), y, sample_weight)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the classifier and its learner to one file, as learners do.

        Parameters
        ----------
        path : str or path

        Raises
        ------
        TypeError, ValueError
            If the learner has no files, or a parameter cannot be stored. Nothing is written then.
        """
        check_parameters(self)
        if not isinstance(self.learner, BaseLifelongLearner):
            name = type(self.learner).__name__
            raise TypeError(f"learner is a {name}, which has no files: pickle the classifier")
        theirs: dict[str, Any] = {}
        ours: dict[str, Any] = {}
        own = copy.copy(self)
        own.learner = None  # it is stored beside the parameters
        meta = {
            "learner": [self.learner._kind, copy.copy(self.learner)._packed(theirs)],
            "parameters": encode_parameters(own, ours),
            "references": pack(_STORED, self._current() if self._tasks else {}, ours),
        }
        arrays = {f"learner.{name}": array for name, array in theirs.items()}
        arrays |= {f"own{name}": array for name, array in ours.items()}
        write_state(path, "LifelongKNeighborsClassifier", meta, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The classifier, with its learner, in a file that `save` wrote.

        Parameters
        ----------
        path : str or path

        Raises
        ------
        OSError
            If the file cannot be opened.
        ValueError
            If it holds no such classifier, is damaged, or its parts do not belong together.
            Nothing in it is executed: the class of the learner must have been imported.
        """
        meta, arrays = read_state(path, "LifelongKNeighborsClassifier")
        with reading(path):
            ours = {n[3:]: array for n, array in arrays.items() if n.startswith("own")}
            theirs = {n[8:]: array for n, array in arrays.items() if n.startswith("learner.")}
            expect(len(ours) + len(theirs) == len(arrays), "arrays", list(arrays), "of two parts")
            kind, parts = meta["learner"]
            known_learners = BaseLifelongLearner.__subclasses__()
            kinds = {one._kind: one for one in known_learners if hasattr(one, "_kind")}
            expect(kind in kinds, "learner", kind, f"one of {sorted(kinds)}: import its module")
            learner = kinds[kind]._unpacked(parts, theirs)
            parameters = decode_parameters(meta["parameters"], ours)
            reader = cls(**parameters | {"learner": learner})
            check_parameters(reader)
            reader._tasks = unpack(_STORED, meta["references"], ours) or None
            widths = {kept.X.shape[1] for kept in (reader._tasks or {}).values()}
            known = {getattr(learner, "n_features_in_", width) for width in widths}
            expect(widths == known, "features of references", widths, known)
        if reader._tasks:
            reader._current()  # notes what the learner knows
        return reader


# book/evaluation.ipynb#reading-a-metric-k-nn-with-the-samples-outside
def _by_task(X: MatrixLike, task: Any, tasks: Iterable[Hashable] | None) -> dict[Hashable, Any]:
    """The samples of each task: all of one, or the numbers of those of each of several."""
    if tasks is None:
        check_task(task)
        return {task: slice(None)}
    if task is not None:
        raise ValueError(f"task={task!r} and tasks are given: give one of them")
    names = task_names(tasks)
    check_consistent_length(X, names)
    return dict(samples_by_task(names))


def _tasks_of(learner: Any) -> Collection[Hashable]:
    """The tasks that a learner knows, if it tells."""
    return getattr(learner, "tasks_", ())


def _births_of(learner: Any) -> dict[Hashable, Any]:
    """Each task that a learner knows, with what another life of its name does not have."""
    births = learner._births if isinstance(learner, BaseLifelongLearner) else {}
    return {task: births.get(task) for task in _tasks_of(learner)}


# book/evaluation.ipynb#reading-a-metric-k-nn-with-the-samples-outside
def _restored_references(*, X: Matrix, codes: Indices, classes: tuple[Any, ...]) -> _Kept:
    """The references of a task, or an error that says what does not belong together."""
    found = sorted({*codes.tolist()})
    expect(found == list(range(len(classes))), "classes of references", found, "all classes")
    return _Kept(X, codes, labels_array(list(classes)))


_STORED = TableField(
    RecordField(
        _restored_references,
        {
            "X": MatrixField("n", "D"),
            "codes": ArrayField(("n",), int),
            "classes": LABELS,
        },
        lambda kept: {**vars(kept), "classes": tuple(kept.classes.tolist())},
    )
)


# book/evaluation.ipynb#a-stream-step-by-step
@dataclass(frozen=True)
class StreamResult(ShortRepr):
    """What `evaluate_stream` returns: the accuracy matrix and how to read it.

    Attributes
    ----------
    task_names : tuple
        Names of the tasks in the order of their first visit.
    accuracy : ndarray of shape (n_visits, n_tasks)
        Row = after that visit, column = task; NaN where no metric existed.
    n_test : ndarray of shape (n_tasks,)
        Number of test samples of each task.
    visits : tuple
        Name of the task of each visit: that of `task_names`, unless a task came back.
    retrained : bool
        Whether the learner was trained anew, on all samples so far, at each visit.

    Notes
    -----
    Derived in chapter 37 (evaluation), eqs. (evaluation-matrix) and (evaluation-se).
    """

    task_names: tuple[Hashable, ...]
    accuracy: Floats
    n_test: Indices
    visits: tuple[Hashable, ...]
    retrained: bool = False

    @property
    def arrival(self) -> Floats:
        """Accuracy of each task right after its first visit, shape (n_tasks,)."""
        first = [self.visits.index(name) for name in self.task_names]
        return self.accuracy[first, np.arange(len(first))]

    @property
    def final(self) -> Floats:
        """Accuracy of each task after the last visit, shape (n_tasks,)."""
        return self.accuracy[-1].copy()

    @property
    def average_so_far(self) -> Floats:
        """Mean accuracy over the tasks seen so far, after each visit, shape (n_visits,)."""
        n_seen = [len(set(self.visits[: s + 1])) for s in range(len(self.visits))]
        return np.array([np.mean(row[:n]) for row, n in zip(self.accuracy, n_seen)])

    @property
    def errors(self) -> Floats:
        """1 - accuracy, shape (n_visits, n_tasks)."""
        return 1.0 - self.accuracy

    @property
    def standard_errors(self) -> Floats:
        """Binomial standard error of every entry, shape (n_visits, n_tasks)."""
        return np.sqrt(self.accuracy * (1.0 - self.accuracy) / self.n_test)


# book/evaluation.ipynb#a-stream-step-by-step
def _check_stream(
    learner: Any, tasks: Sequence[Any], unseen: Any, max_references: Any
) -> tuple[Hashable, ...]:
    """The name of the task of each visit, where all can be evaluated."""
    needed = unseen is not None or max_references is not None or not hasattr(learner, "predict")
    if needed and not hasattr(learner, "task_metric"):
        name = type(learner).__name__
        raise TypeError(f"learner is a {name}, which has no task_metric to read references with")
    parts = ("name", "X_train", "y_train", "X_test", "y_test")
    for number, task in enumerate(tasks):
        if not all(hasattr(task, part) for part in parts):
            raise TypeError(f"tasks[{number}] is {task!r}: give lml.datasets.Task")
        check_task(task.name, f"tasks[{number}].name")
    if not tasks:
        raise ValueError("tasks is empty: give at least one task")
    return tuple(task.name for task in tasks)


def _keep_references(reader: LifelongKNeighborsClassifier, tasks: Sequence[Any]) -> None:
    """Check all samples; what is kept are the references of the first visits."""
    for task in reversed(tasks):
        reader.fit(task.X_train, task.y_train, task=task.name)
        X_test = reader._check_rows(task.X_test)
        check_consistent_length(X_test, encode_labels(task.y_test)[0])
    reader._known = {}  # what a joint learner knew before, it has not forgotten


def _check_samples_of(learner: Any, tasks: Sequence[Any]) -> None:
    """Check all samples where no references are kept."""
    width = getattr(learner, "n_features_in_", None)
    for task in tasks:
        for X, y in ((task.X_train, task.y_train), (task.X_test, task.y_test)):
            samples = check_matrix(X, n_features=width, ensure_min_samples=1)
            width = samples.shape[1]
            check_consistent_length(samples, encode_labels(y)[0])


def _teach(learner: Any, seen: Sequence[Any]) -> None:
    """Let a learner learn the last task, or all of them anew where it has no `partial_fit`."""
    new = seen[-1]
    if hasattr(learner, "partial_fit"):
        learner.partial_fit(new.X_train, new.y_train, task=new.name)
        return
    labels = [as_labels(task.y_train) for task in seen]
    learner.fit(
        reduce(stacked, [task.X_train for task in seen]),
        [label for own in labels for label in own],
        tasks=[task.name for task, own in zip(seen, labels) for _ in own],
    )


# book/evaluation.ipynb#a-stream-step-by-step
def evaluate_stream(
    learner: Any,
    tasks: Iterable[Any],
    *,
    n_neighbors: int = 3,
    max_references: int | None = None,
    unseen: Callable[[Any], FactoredMetric] | None = None,
    random_state: Seed = None,
) -> StreamResult:
    """Learn the tasks one after another and classify every task after every step.

    Parameters
    ----------
    learner : learner of several tasks
        Trained in place by ``partial_fit(X, y, task=)``, or without it anew on all tasks so far
        by ``fit(X, y, tasks=)``. Read by ``task_metric(task)`` and ``metric_type_``, or without
        them by ``predict(X, task=)``.
    tasks : iterable of objects with name, X_train, y_train, X_test, y_test
        In order of arrival, of one feature space. See `lml.datasets.Task`. A name that comes
        again is another visit of its task, which is asked the test samples of its first visit.
    n_neighbors, max_references, random_state
        As for `LifelongKNeighborsClassifier`, where the learner has metrics.
    unseen : callable or None, default=None
        ``unseen(learner)`` gives the FactoredMetric that classifies tasks not yet learned.

    Returns
    -------
    StreamResult

    Raises
    ------
    ValueError, TypeError
        If there is no task, or samples, labels or a number cannot be used; nothing has been learned
        then. What only the learner can refuse, such as too few classes, it refuses when that
        task arrives.

    Notes
    -----
    Derived in chapter 37 (evaluation), eqs. (evaluation-matrix) and (evaluation-knn).
    A task's training samples are its reference samples. The learner never meets a sample of a task
    before its turn.
    """
    tasks = list(tasks)
    visits = _check_stream(learner, tasks, unseen, max_references)
    names = tuple(dict.fromkeys(visits))
    first = {task.name: task for task in reversed(tasks)}
    has_metrics = hasattr(learner, "task_metric")
    reader = LifelongKNeighborsClassifier(
        learner, n_neighbors, max_references, random_state=random_state
    )
    if has_metrics:  # in both cases all samples are checked before anything is learned
        _keep_references(reader, tasks)
    else:
        _check_samples_of(learner, tasks)
    R = np.full((len(visits), len(names)), np.nan)
    for s, new in enumerate(tasks):
        _teach(learner, tasks[: s + 1])
        if has_metrics and new.name in visits[:s]:
            reader.partial_fit(new.X_train, new.y_train, task=new.name)
        seen = set(visits[: s + 1])
        metric = None
        if unseen is not None and len(seen) < len(names):
            metric = unseen(learner)
            if not isinstance(metric, FactoredMetric):
                raise TypeError(
                    f"unseen(learner) gave a {type(metric).__name__}: give a FactoredMetric"
                )
        for t, name in enumerate(names):
            task = first[name]
            if name in seen:
                found = (reader if has_metrics else learner).predict(task.X_test, task=name)
            elif metric is not None:
                found = reader._predict(reader._check_rows(task.X_test), name, metric)
            else:
                continue
            R[s, t] = accuracy(found, task.y_test)
    return StreamResult(
        task_names=names,
        accuracy=R,
        n_test=np.array([len(first[name].y_test) for name in names]),
        visits=visits,
        retrained=not hasattr(learner, "partial_fit"),
    )


# book/evaluation.ipynb#a-stream-step-by-step
class AccuracyMatrixDisplay:
    """The accuracy matrix of a stream as a picture.

    Parameters
    ----------
    result : StreamResult

    Attributes
    ----------
    im_, ax_, figure_ : matplotlib artists
        After `plot`.

    Examples
    --------
    >>> R = StreamResult(("a", "b"), np.array([[0.9, np.nan], [0.8, 0.7]]), np.ones(2), ("a", "b"))
    >>> display = AccuracyMatrixDisplay(R)  # doctest: +SKIP
    >>> display.plot().figure_.savefig("matrix.svg")  # doctest: +SKIP
    """

    def __init__(self, result: StreamResult) -> None:
        self.result = result

    @classmethod
    def from_stream(
        cls, learner: Any, tasks: Iterable[Any], *, ax: Any = None, **options: Any
    ) -> "AccuracyMatrixDisplay":
        """Learn and evaluate a stream, with the options of `evaluate_stream`, and draw it."""
        return cls(evaluate_stream(learner, tasks, **options)).plot(ax)

    def plot(self, ax: Any = None, *, errors: bool = False, **options: Any) -> Self:
        """Draw the accuracies, or the errors; options are those of ``Axes.imshow``."""
        import matplotlib.pyplot as plt

        self.ax_ = plt.subplots()[1] if ax is None else ax
        self.figure_ = self.ax_.figure
        R = self.result.errors if errors else self.result.accuracy
        self.im_ = self.ax_.imshow(R, **{"cmap": "viridis", "aspect": "auto"} | options)
        self.figure_.colorbar(self.im_, ax=self.ax_, label="error" if errors else "accuracy")
        self.ax_.set_xticks(range(R.shape[1]), map(str, self.result.task_names), rotation=90)
        self.ax_.set_yticks(range(R.shape[0]), map(str, self.result.visits))
        again = " (trained anew)" if self.result.retrained else ""
        self.ax_.set(xlabel="task", ylabel=f"after the visit of{again}")
        return self


# book/evaluation.ipynb#a-stream-step-by-step
def spectrum(metric: FactoredMetric) -> Floats:
    """The n_features eigenvalues of the symmetric part of a metric, largest first."""
    values, _ = metric._spectrum()  # relative to alpha
    rest = np.zeros(metric.n_features - len(values))
    return np.sort(metric.alpha + np.concatenate([values, rest]))[::-1]


class SpectrumDisplay:
    """The eigenvalues of metrics, largest first.

    Parameters
    ----------
    eigenvalues : dict
        Name of each metric to its eigenvalues, falling.

    Attributes
    ----------
    lines_, ax_, figure_ : matplotlib artists
        After `plot`.
    """

    def __init__(self, eigenvalues: dict[Hashable, Floats]) -> None:
        self.eigenvalues = eigenvalues

    @classmethod
    def from_metrics(
        cls, metrics: Mapping[Hashable, FactoredMetric], *, ax: Any = None
    ) -> "SpectrumDisplay":
        """Draw the eigenvalues of the symmetric parts of metrics: a dict of names to metrics."""
        return cls({name: spectrum(metric) for name, metric in metrics.items()}).plot(ax)

    def plot(self, ax: Any = None, **options: Any) -> Self:
        """Draw the eigenvalues; options are those of ``Axes.plot``."""
        import matplotlib.pyplot as plt

        self.ax_ = plt.subplots()[1] if ax is None else ax
        self.figure_ = self.ax_.figure
        self.lines_: list[Any] = []
        for name, values in self.eigenvalues.items():
            places = np.arange(1, len(values) + 1)
            self.lines_ += self.ax_.plot(places, values, **{"label": str(name)} | options)
        self.ax_.set(xlabel="direction", ylabel="eigenvalue")
        self.ax_.legend()
        return self
