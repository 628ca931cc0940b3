# Generated from book/evaluation.ipynb by tools/tangle.py: edit the chapter.
"""Accuracy after every task of a stream: the T x T matrix, transfer and forgetting.

A lifelong learner keeps metrics and no rows. The reference rows that k-nearest-neighbour
prediction needs live here, in `LifelongKNeighborsClassifier`, and can be bounded.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_consistent_length, check_random_state

from lml.metrics import FactoredMetric
from lml.neighbors import accuracy, k_nearest, majority_vote
from lml.utils.linalg import nbytes
from lml.utils.typing import Floats, Indices, LabelsLike, Matrix, MatrixLike, Seed, WeightsLike
from lml.utils.validation import (
    Rule,
    check_columns,
    check_kind,
    check_known_task,
    check_matrix,
    check_n_neighbors,
    check_parameters,
    check_task,
    encode_labels,
    optional,
    seed,
    sort_classes,
    whole,
)

__all__ = [
    "LifelongKNeighborsClassifier",
    "StreamResult",
    "average_accuracy",
    "backward_transfer",
    "evaluate_stream",
    "forgetting",
    "forward_transfer",
    "knn_labels",
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
    Derived in chapter 36 (evaluation), eqs. (evaluation-matrix) and (evaluation-acc).
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
    Derived in chapter 36 (evaluation), eq. (evaluation-bwt). Lopez-Paz and Ranzato (2017).

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
    Derived in chapter 36 (evaluation), eqs. (evaluation-forgetting) and (evaluation-bound).
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
    Derived in chapter 36 (evaluation), eq. (evaluation-fwt). Lopez-Paz and Ranzato (2017).

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
def _bounded_rows(codes: Indices, max_rows: int | None, rng: np.random.RandomState) -> Indices:
    """Indices of at most max_rows rows, stratified by class, in their old order."""
    n_classes = codes.max(initial=-1) + 1
    if max_rows is None or len(codes) <= max_rows:
        return np.arange(len(codes))
    if max_rows < n_classes:
        raise ValueError(
            f"max_references={max_rows} is less than the {n_classes} classes of"
            " the task: keep at least one row a class"
        )
    order = rng.permutation(len(codes))
    key = np.empty(len(codes))  # kappa of eq. (evaluation-bounded)
    for code in range(n_classes):
        rows = order[codes[order] == code]
        key[rows] = np.arange(len(rows)) / len(rows)
    return np.sort(order[np.argsort(key[order], kind="stable")[:max_rows]])


# book/evaluation.ipynb#reading-a-metric-k-nn-with-the-samples-outside
def knn_labels(
    metric: FactoredMetric,
    metric_type: str,
    X: Matrix,
    references: Matrix,
    labels: NDArray[Any],
    n_neighbors: int,
) -> NDArray[Any]:
    """Labels (n,) of rows by the metric's nearest references, eq. (evaluation-knn).

    A distance is projected onto the positive semi-definite matrices first.
    """
    if metric_type == "distance":
        metric = metric.psd()
    nearest, _ = k_nearest(metric, X, references, metric_type, n_neighbors)
    return majority_vote(labels[nearest])


class LifelongKNeighborsClassifier(BaseEstimator):
    """k-nearest-neighbour classification of several tasks with one lifelong learner.

    Parameters
    ----------
    learner : object with ``task_metric(task)`` and ``metric_type_``
        A lifelong learner such as `lml.lifelong.LifelongMetricLearner`. It is used as it
        is, never copied or trained: train it with its own ``partial_fit``.
    n_neighbors : int, default=3
    max_references : int or None, default=None
        Most reference rows kept a task; None keeps all. Fewer are drawn at random with
        every class keeping its share.
    random_state : int, RandomState or None, default=None
        Used only when rows are drawn.

    Attributes
    ----------
    references_ : dict
        Task to (rows, labels).
    reference_nbytes_ : int
        Bytes of all reference rows and labels: what k-NN costs beyond the learner.

    Notes
    -----
    Derived in chapter 36 (evaluation), eqs. (evaluation-knn) and (evaluation-bounded).
    The metric is read at prediction time, so predictions change when the learner moves. A
    distance is projected onto the positive semi-definite matrices before it is used.
    """

    _parameter_rules: ClassVar[dict[str, Rule]] = {
        "n_neighbors": whole(1),
        "max_references": optional(whole(1)),
        "random_state": seed(),
    }

    def __init__(
        self,
        learner: Any,
        n_neighbors: int = 3,
        max_references: int | None = None,
        random_state: Seed = None,
    ) -> None:
        self.learner = learner
        self.n_neighbors = n_neighbors
        self.max_references = max_references
        self.random_state = random_state

    def fit(self, X: MatrixLike, y: LabelsLike, *, task: Hashable) -> Self:
        """Keep the reference rows of one task; other tasks' rows stay.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Labels of any hashable type.
        task : hashable
            Name of the task; its earlier reference rows are replaced.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            If a row, a label, the name or a number cannot be used; nothing has changed then.
        """
        check_parameters(self)
        check_task(task)
        X = self._check_rows(X, replaced=[task])
        classes, codes = sort_classes(y)
        check_consistent_length(X, codes)
        kept = _bounded_rows(codes, self.max_references, check_random_state(self.random_state))
        check_n_neighbors(self.n_neighbors, len(kept))
        references = X[kept], classes[codes[kept]]
        self.references_ = {**getattr(self, "references_", {}), task: references}
        return self

    def _check_rows(self, X: MatrixLike, replaced: Collection[Hashable] = ()) -> Matrix:
        """Rows in single or double precision, with the columns of the learner and the references."""
        if not hasattr(self.learner, "task_metric") or isinstance(self.learner, type):
            raise TypeError(f"learner is {self.learner!r}: give a learner of several tasks")
        check_columns(self.learner, X)
        X = check_matrix(X, dtype=[np.float64, np.float32], ensure_min_samples=1)
        known = getattr(self.learner, "n_features_in_", X.shape[1])
        if X.shape[1] != known:
            raise ValueError(f"X has {X.shape[1]} features, but the learner has learned {known}")
        for name, (rows, _) in getattr(self, "references_", {}).items():
            if X.shape[1] != rows.shape[1] and name not in replaced:
                raise ValueError(
                    f"X has {X.shape[1]} features, the reference rows of task {name!r} have"
                    f" {rows.shape[1]}: the tasks share one feature space"
                )
        return X

    def predict(self, X: MatrixLike, *, task: Hashable) -> NDArray[Any]:
        """Labels of the rows of X by the learner's current metric of the task.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features)
        task : hashable
            A task that the learner and this classifier have both seen.

        Returns
        -------
        ndarray of shape (n_queries,)
        """
        X = self._check_query(X, task)
        return self._predict(X, task, self.learner.task_metric(task))

    def _check_query(self, X: MatrixLike, task: Hashable) -> Matrix:
        """Rows to classify, of a task that has references."""
        if not getattr(self, "references_", None):
            raise NotFittedError("no task has reference rows yet: call fit(X, y, task=...)")
        check_known_task(task, self.references_)
        return self._check_rows(X)

    def _predict(self, X: Matrix, task: Hashable, metric: FactoredMetric) -> NDArray[Any]:
        """Labels of rows by a metric, among the reference rows of a task, eq. (evaluation-knn)."""
        references, labels = self.references_[task]
        kind = self.learner.metric_type_
        return knn_labels(metric, kind, X, references, labels, self.n_neighbors)

    def score(
        self,
        X: MatrixLike,
        y: LabelsLike,
        sample_weight: WeightsLike | None = None,
        *,
        task: Hashable,
    ) -> float:
        """Accuracy on (X, y) of one task, a float in [0, 1]; a weighted mean."""
        return accuracy(self.predict(X, task=task), y, sample_weight)

    @property
    def reference_nbytes_(self) -> int:
        """Bytes of the reference rows and labels of all tasks."""
        return sum(nbytes(X) + y.nbytes for X, y in getattr(self, "references_", {}).values())


# book/evaluation.ipynb#a-stream-step-by-step
@dataclass(frozen=True)
class StreamResult:
    """What `evaluate_stream` returns: the accuracy matrix and how to read it.

    Attributes
    ----------
    task_names : tuple
        Names of the tasks in the order of the stream.
    accuracy : ndarray of shape (n_tasks, n_tasks)
        Row = after that task, column = task; NaN where no metric existed.
    n_test : ndarray of shape (n_tasks,)
        Number of test rows of each task.

    Notes
    -----
    Derived in chapter 36 (evaluation), eqs. (evaluation-matrix) and (evaluation-se).
    """

    task_names: tuple[Hashable, ...]
    accuracy: Floats
    n_test: Indices

    @property
    def arrival(self) -> Floats:
        """Accuracy of each task right after it was learned, shape (n_tasks,)."""
        return np.diag(self.accuracy).copy()

    @property
    def final(self) -> Floats:
        """Accuracy of each task after the last one was learned, shape (n_tasks,)."""
        return self.accuracy[-1].copy()

    @property
    def errors(self) -> Floats:
        """1 - accuracy, shape (n_tasks, n_tasks)."""
        return 1.0 - self.accuracy

    @property
    def standard_errors(self) -> Floats:
        """Binomial standard error of every entry, shape (n_tasks, n_tasks)."""
        return np.sqrt(self.accuracy * (1.0 - self.accuracy) / self.n_test)


# book/evaluation.ipynb#a-stream-step-by-step
def _check_stream(tasks: Sequence[Any]) -> tuple[Hashable, ...]:
    """The names of the tasks of a stream, each of them once."""
    parts = ("name", "X_train", "y_train", "X_test", "y_test")
    for number, task in enumerate(tasks):
        if not all(hasattr(task, part) for part in parts):
            raise TypeError(f"tasks[{number}] is {task!r}: give lml.datasets.Task")
        check_task(task.name, f"tasks[{number}].name")
    names = tuple(task.name for task in tasks)
    if not names:
        raise ValueError("tasks is empty: give at least one task")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"tasks contains {twice!r} twice: give each task one name")
    return names


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
    learner : object with ``partial_fit(X, y, task=)``, ``task_metric(task)``, ``metric_type_``
        Trained in place.
    tasks : iterable of objects with name, X_train, y_train, X_test, y_test
        In order of arrival, of one feature space; names are unique. See `lml.datasets.Task`.
    n_neighbors, max_references, random_state
        As for `LifelongKNeighborsClassifier`.
    unseen : callable or None, default=None
        ``unseen(learner)`` gives the FactoredMetric that classifies tasks not yet learned.

    Returns
    -------
    StreamResult

    Raises
    ------
    ValueError
        If there is no task, a name comes twice, or rows, labels or a number cannot be used;
        nothing has been learned then. What only the learner can refuse, such as a task of one
        class, it refuses when that task arrives.

    Notes
    -----
    Derived in chapter 36 (evaluation), eqs. (evaluation-matrix) and (evaluation-knn).
    A task's training rows are its reference rows. The learner never meets a row of a task
    before its turn.
    """
    tasks = list(tasks)
    names = _check_stream(tasks)
    reader = LifelongKNeighborsClassifier(learner, n_neighbors, max_references, random_state)
    if not (unseen is None or callable(unseen)):
        raise TypeError(f"unseen is {unseen!r}: give a function of the learner, or None")
    # references and test rows of all tasks are checked before anything is learned
    for task in tasks:
        reader.fit(task.X_train, task.y_train, task=task.name)
        X_test = reader._check_query(task.X_test, task.name)
        check_consistent_length(X_test, encode_labels(task.y_test)[0])
    R = np.full((len(tasks), len(tasks)), np.nan)
    for s, new in enumerate(tasks):
        learner.partial_fit(new.X_train, new.y_train, task=new.name)
        for t, task in enumerate(tasks[: s + 1]):
            R[s, t] = reader.score(task.X_test, task.y_test, task=task.name)
        if unseen is None or s + 1 == len(tasks):
            continue
        metric = unseen(learner)
        if not isinstance(metric, FactoredMetric):
            raise TypeError(
                f"unseen(learner) gave a {type(metric).__name__}: give a FactoredMetric"
            )
        for t, task in enumerate(tasks[s + 1 :], start=s + 1):
            X_test = reader._check_query(task.X_test, task.name)
            R[s, t] = accuracy(reader._predict(X_test, task.name, metric), task.y_test)
    return StreamResult(
        task_names=names,
        accuracy=R,
        n_test=np.array([len(task.y_test) for task in tasks]),
    )
