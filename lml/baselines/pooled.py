# Generated from book/baselines/pooled.ipynb by tools/tangle.py: edit the chapter.
"""One metric for all tasks, and what joint learners of several tasks share.

`PooledMetricLearner` fits a single-task estimator to the union of the tasks' rows.
`split_tasks` takes a table of several tasks apart; `JointMetricsMixin` gives an estimator with
a table of metrics the methods that read them.
"""

from collections.abc import Hashable, Iterable
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils import column_or_1d, get_tags

from lml.metrics import FactoredMetric
from lml.neighbors import _as_array, _class_numbers, _labels
from lml.single_task import TaskMetricsMixin
from lml.triplets import _check_rows
from lml.utils.typing import LabelsLike, Matrix, MatrixLike

__all__ = ["JointMetricsMixin", "PooledMetricLearner", "split_tasks"]


# book/baselines/pooled.ipynb#a-table-of-several-tasks
def _is_name(name: Any) -> bool:
    """Whether a value can be found again in a table."""
    try:
        return name is not None and {name: name}.get(name) is name and bool(name == name)
    except (TypeError, ValueError):  # not hashable, or compared entry by entry
        return False


def _task_names(tasks: Any) -> tuple[list[Any], list[Any]]:
    """The name of the task of each row, and the distinct names by first appearance."""
    names = list(tasks.tolist() if hasattr(tasks, "tolist") else tasks)
    for row, name in enumerate(names):
        if not _is_name(name):
            raise ValueError(f"tasks[{row}] is {name!r}: give each row the name of its task")
    return names, list(dict.fromkeys(names))


def _label_array(y: LabelsLike) -> NDArray[Any]:
    """One label a row, in an array that keeps labels of different types apart."""
    _class_numbers(y)  # refuses rows without a label
    return _as_array(_labels(y)) if isinstance(y, (list, tuple)) else column_or_1d(y)


# book/baselines/pooled.ipynb#a-table-of-several-tasks
def _check_table(
    X: MatrixLike, y: LabelsLike, tasks: Iterable[Hashable]
) -> tuple[Matrix, NDArray[Any], list[Any], list[Any]]:
    """Rows, labels, names of the rows' tasks, distinct names; all of them checked."""
    X = _check_rows(X)
    y = _label_array(y)
    (names, distinct) = _task_names(tasks)
    lengths = X.shape[0], len(y), len(names)
    if len(set(lengths)) > 1:
        raise ValueError(
            f"X has {lengths[0]} rows, y has {lengths[1]} and tasks has {lengths[2]} entries:"
            " give a label and a task for each row"
        )
    if not names:
        raise ValueError("X has 0 rows: give the rows of at least one task")
    return X, y, names, distinct


def split_tasks(
    X: MatrixLike, y: LabelsLike, tasks: Iterable[Hashable]
) -> list[tuple[Any, Matrix, NDArray[Any]]]:
    """Take a table of several tasks apart.

    Parameters
    ----------
    X : {array-like, CSR matrix} of shape (n_samples, n_features)
        Rows of all tasks, in any order.
    y : array-like of shape (n_samples,)
        Labels of any hashable type.
    tasks : sequence of length n_samples
        Name of each row's task, of any hashable type.

    Returns
    -------
    parts : list of (name, rows, labels)
        One entry a task, in the order of first appearance; rows keep their order.

    Raises
    ------
    ValueError
        If the lengths differ, there is no row, a value of X is not finite, or a label or
        the name of a task is missing.

    Notes
    -----
    Derived in chapter 24 (baselines/pooled), eq. (pooled-union).

    Examples
    --------
    >>> parts = split_tasks([[0.0], [1.0], [2.0]], [7, 8, 9], ["b", "a", "b"])
    >>> [(name, X.tolist(), y.tolist()) for name, X, y in parts]
    [('b', [[0.0], [2.0]], [7, 9]), ('a', [[1.0]], [8])]
    """
    X, y, names, distinct = _check_table(X, y, tasks)
    number = {name: t for t, name in enumerate(distinct)}
    codes = np.array([number[name] for name in names])
    rows = [np.flatnonzero(codes == t) for t in range(len(distinct))]
    return [(name, X[own], y[own]) for name, own in zip(distinct, rows, strict=True)]


# book/baselines/pooled.ipynb#reading-a-tasks-metric
class JointMetricsMixin(TaskMetricsMixin):
    """A learner of several tasks that keeps a table of their metrics.

    The estimator sets `metrics_`, a dict from the name of a task to its `FactoredMetric`, and
    has `metric_type`, "similarity" or "distance". It is read by the methods of
    `lml.single_task.TaskMetricsMixin`.

    Examples
    --------
    >>> from lml.metrics import FactoredMetric
    >>> class Scales(JointMetricsMixin):
    ...     metric_type = "distance"
    ...     metrics_ = {"wide": FactoredMetric.identity(1, 4.0)}
    >>> Scales().pair_score([[[0.0], [3.0]]], task="wide").tolist()
    [-36.0]
    """

    metric_type: str
    metrics_: dict[Hashable, FactoredMetric]

    @property
    def metric_type_(self) -> str:
        """What the metrics are: "similarity" or "distance"."""
        return self.metric_type

    def task_metric(self, task: Hashable) -> FactoredMetric:
        """The metric of a task, a FactoredMetric; an error lists the known tasks."""
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("no task has been learned: call fit(X, y, tasks=...)")
        try:
            known = task in self.metrics_
        except TypeError:
            raise TypeError(f"task={task!r} is not hashable: use a string or tuple") from None
        if not known:
            raise ValueError(f"task {task!r} is not known; known tasks: {list(self.metrics_)}")
        return self.metrics_[task]

    def __sklearn_is_fitted__(self) -> bool:
        return bool(getattr(self, "metrics_", None))


# book/baselines/pooled.ipynb#the-learner
class PooledMetricLearner(JointMetricsMixin, BaseEstimator):
    """One metric for all tasks: a single-task learner on the union of their rows.

    Parameters
    ----------
    estimator : estimator
        Learns from all rows: `SCML`, `LMNN`, `OASIS` or another one with ``metric_`` after
        ``fit(X, y)`` and with ``metric_type``. It is cloned.
    shared_labels : bool, default=True
        Whether a label means the same in every task. False: labels of different tasks are
        different classes, even if they look alike.

    Attributes
    ----------
    estimator_ : estimator
        Fitted to the union.
    metrics_ : dict
        Name of each task to the metric, one and the same object for all.
    tasks_ : list
        Names in the order of first appearance.
    n_features_in_ : int

    Notes
    -----
    Derived in chapter 24 (baselines/pooled), eqs. (pooled-metric), (pooled-price) and (pooled-key).
    Paper: section V-A (uSCML and uLMNN).

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from lml.scml import SCML
    >>> X, y = load_iris(return_X_y=True)
    >>> tasks = ["even" if row % 2 == 0 else "odd" for row in range(150)]
    >>> learner = PooledMetricLearner(SCML(n_basis=20, n_steps=2000, random_state=0))
    >>> learner.fit(X, y, tasks=tasks).transform(X[:2], task="odd").shape
    (2, 4)
    """

    def __init__(self, estimator: BaseEstimator, shared_labels: bool = True) -> None:
        self.estimator = estimator
        self.shared_labels = shared_labels

    @property
    def metric_type(self) -> str:  # type: ignore[override]  # that of the estimator
        """What the estimator learns: "similarity" or "distance"."""
        return getattr(self, "estimator_", self.estimator).metric_type

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = get_tags(self.estimator).input_tags.sparse
        return tags

    def fit(self, X: MatrixLike, y: LabelsLike, *, tasks: Iterable[Hashable]) -> Self:
        """Learn one metric from the rows of all tasks.

        Parameters
        ----------
        X : {array-like, CSR matrix} of shape (n_samples, n_features)
            Rows of all tasks; CSR if the estimator takes it.
        y : array-like of shape (n_samples,)
            Labels of any type. A task may have few of them: only the union must make
            triplets or pairs.
        tasks : sequence of length n_samples
            Name of each row's task.

        Returns
        -------
        self : PooledMetricLearner

        Raises
        ------
        ValueError, TypeError
            If the table or a parameter cannot be used. Nothing is stored then.
        """
        if self.shared_labels not in (True, False):
            raise ValueError(f"shared_labels is {self.shared_labels!r}: use True or False")
        rows, y, names, distinct = _check_table(X, y, tasks)
        if not self.shared_labels:
            y, _ = _class_numbers(list(zip(names, y.tolist())))
        estimator = clone(self.estimator).fit(rows, y)
        self._note_columns(X)
        self.estimator_ = estimator
        self.tasks_ = distinct
        self.metrics_ = dict.fromkeys(distinct, estimator.metric_)
        return self
