# Generated from book/baselines/pooled.ipynb by tools/tangle.py: edit the chapter.
"""One metric for all tasks, and what joint learners of several tasks share.

`PooledMetricLearner` fits a single-task estimator to the union of the tasks' samples.
`split_tasks` takes a table of several tasks apart; `JointMetricsMixin` gives an estimator with
a table of metrics the methods that read them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, ClassVar, Self

from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils import get_tags

from lml.metrics import METRIC_LEARNER, FactoredMetric, fitted_metric
from lml.single_task import TaskMetricsMixin, samples_by_task
from lml.utils.typing import Indices, LabelsLike, Matrix, MatrixLike
from lml.utils.validation import (
    check_known_task,
    check_parameters,
    check_table,
    check_two_classes,
    encode_labels,
    flag,
    labels_array,
)

__all__ = ["JointMetricsMixin", "PooledMetricLearner", "encode_tasks", "split_tasks"]


# book/baselines/pooled.ipynb#a-table-of-several-tasks
def split_tasks(
    X: MatrixLike, y: LabelsLike, tasks: Iterable[Hashable]
) -> list[tuple[Any, Matrix, NDArray[Any]]]:
    """Take a table of several tasks apart.

    Parameters
    ----------
    X : {array-like, CSR matrix} of shape (n_samples, n_features)
        Samples of all tasks, in any order.
    y : array-like of shape (n_samples,)
        Labels of any hashable type.
    tasks : sequence of length n_samples
        Name of each sample's task, of any hashable type.

    Returns
    -------
    parts : list of (name, samples, labels)
        One entry a task, in the order of first appearance; samples keep their order.

    Raises
    ------
    ValueError, TypeError
        If the lengths differ, there is no sample, a value of X is not finite, or a label or
        the name of a task is missing or not hashable.

    Notes
    -----
    Derived in chapter 25 (baselines/pooled), eq. (pooled-union).

    Examples
    --------
    >>> parts = split_tasks([[0.0], [1.0], [2.0]], [7, 8, 9], ["b", "a", "b"])
    >>> [(name, X.tolist(), y.tolist()) for name, X, y in parts]
    [('b', [[0.0], [2.0]], [7, 9]), ('a', [[1.0]], [8])]
    """
    return _taken_apart(*check_table(X, y, tasks))


def _taken_apart(
    X: Matrix, labels: list[Any], names: list[Hashable]
) -> list[tuple[Any, Matrix, NDArray[Any]]]:
    """Name, samples and labels of each task of a checked table."""
    y = labels_array(labels)
    return [(name, X[own], y[own]) for name, own in samples_by_task(names).items()]


def encode_tasks(
    X: MatrixLike, y: LabelsLike, tasks: Iterable[Hashable]
) -> tuple[list[Any], list[Matrix], list[Indices]]:
    """Take a table apart into tasks that all have triplets, and number their classes.

    Parameters
    ----------
    X, y, tasks
        As in `split_tasks`.

    Returns
    -------
    names : list
        The tasks, in the order of first appearance.
    samples : list of {ndarray, csr_array}
        The samples of each task.
    codes : list of ndarray of int
        The class of each sample, numbered within the task by first appearance.

    Raises
    ------
    ValueError, TypeError
        As `split_tasks`, and if a task has no two classes, one of them with two samples.

    Notes
    -----
    Derived in chapter 25 (baselines/pooled), eq. (pooled-union).

    Examples
    --------
    >>> names, rows, codes = encode_tasks([[0.0], [1.0], [2.0]], ["b", "c", "b"], [7, 7, 7])
    >>> names, codes[0].tolist()
    ([7], [0, 1, 0])
    """
    parts = _taken_apart(*check_table(X, y, tasks, stacklevel=5))  # of who calls `fit`
    codes = []
    for name, _, labels in parts:
        own, classes = encode_labels(labels)
        check_two_classes(own, classes, f"y of task {name!r}")
        codes.append(own)
    return [name for name, _, _ in parts], [rows for _, rows, _ in parts], codes


# book/baselines/pooled.ipynb#reading-a-task-s-metric
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
        """What the metrics are: "similarity" or "distance".

        :meta private:
        """
        return self.metric_type

    def task_metric(self, task: Hashable) -> FactoredMetric:
        """The metric of a task, a FactoredMetric; an error lists the known tasks."""
        check_known_task(task, getattr(self, "metrics_", {}))
        return self.metrics_[task]

    def __sklearn_is_fitted__(self) -> bool:
        return bool(getattr(self, "metrics_", None))


# book/baselines/pooled.ipynb#the-learner
class PooledMetricLearner(JointMetricsMixin, BaseEstimator):
    """One metric for all tasks: a single-task learner on the union of their samples.

    Parameters
    ----------
    estimator : estimator
        Learns from all samples: `SCML`, `LMNN`, `OASIS` or another one with ``metric_`` after
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
    Derived in chapter 25 (baselines/pooled), eqs. (pooled-metric), (pooled-price) and (pooled-key).
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

    _parameter_rules: ClassVar = {"estimator": METRIC_LEARNER, "shared_labels": flag()}

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
        """Learn one metric from the samples of all tasks.

        Parameters
        ----------
        X : {array-like, CSR matrix} of shape (n_samples, n_features)
            Samples of all tasks; CSR if the estimator takes it.
        y : array-like of shape (n_samples,)
            Labels of any type. A task may have few of them: only the union must make
            triplets or pairs.
        tasks : sequence of length n_samples
            Name of each sample's task.

        Returns
        -------
        self : PooledMetricLearner

        Raises
        ------
        ValueError, TypeError
            If the table or a parameter cannot be used. Nothing is stored then.
        """
        check_parameters(self)
        rows, labels, names = check_table(X, y, tasks)
        # a label means the same in every task, or is a label of its task, eq. (pooled-key)
        codes, _ = encode_labels(labels if self.shared_labels else list(zip(names, labels)))
        estimator = clone(self.estimator)
        metric, _ = fitted_metric(estimator, "estimator", rows, codes)
        self._note_columns(X)
        self.estimator_ = estimator
        self.tasks_ = list(dict.fromkeys(names))
        self.metrics_ = dict.fromkeys(self.tasks_, metric)
        return self
