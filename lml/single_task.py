# Generated from book/single_task.ipynb by tools/tangle.py: edit the chapter.
"""What learners of several tasks are read with, one task at a time.

`TaskMetricsMixin` turns the metric of a task into scores, distances, coordinates and callables;
`TaskTransformer` is one task as a scikit-learn transformer.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.utils import TransformerTags, check_consistent_length, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from lml.metrics import (
    FactoredMetric,
    MetricDistance,
    MetricLearnerMixin,
    check_pairs,
    index_space,
    mapped_samples,
)
from lml.neighbors import accuracy, k_nearest
from lml.utils.documentation import DocumentedMixin
from lml.utils.typing import Floats, LabelsLike, MatrixLike, WeightsLike
from lml.utils.validation import (
    check_columns,
    check_matrix,
    check_samples,
    encode_labels,
    task_names,
)

__all__ = ["TaskMetricsMixin", "TaskTransformer", "samples_by_task"]


# book/single_task.ipynb#scores-and-distances
def _has_distances(learner: Any) -> bool:
    """Whether `pair_distance` is offered; before a task is learned, it says so itself."""
    return getattr(learner, "metric_type_", "distance") == "distance"


class TaskMetricsMixin(DocumentedMixin):
    """Reading methods of learners that have a metric for each task.

    The learner gives `task_metric(task)`, which is a `FactoredMetric` or an error that lists
    the known tasks, and `metric_type_`, "similarity" or "distance".

    Notes
    -----
    Derived in chapter 35 (single_task), eqs. (single-task-score) and (single-task-map).

    Examples
    --------
    >>> from lml.metrics import FactoredMetric
    >>> class Scales(TaskMetricsMixin):
    ...     metric_type_ = "distance"
    ...     def task_metric(self, task):
    ...         return FactoredMetric.identity(1, scale=task)
    >>> Scales().pair_score([[[0.0], [3.0]]], task=4).tolist()
    [-36.0]
    """

    def pair_score(self, pairs: ArrayLike, *, task: Hashable) -> Floats:
        """Scores of pairs of samples under the metric of a task; larger is closer.

        Parameters
        ----------
        pairs : array-like of shape (n_pairs, 2, n_features)
            Pairs of samples, or a tuple of two arrays, sparse matrices or data frames
            (n_pairs, n_features).
        task : hashable
            A known task.

        Returns
        -------
        ndarray of shape (n_pairs,)
            x' M_t z for a similarity; minus the squared distance under the positive
            semi-definite read-out for a distance. `LifelongPLDA` gives natural logarithms of the
            ratio of its model: one class, above 0, or two? For probabilities calibrate them, by
            `lml.weak_supervision.PairClassifier`.

        Notes
        -----
        Derived in chapter 35 (single_task), eq. (single-task-score).
        """
        now = copy.copy(self)  # no other thread changes it
        metric = now._pair_metric(task)
        left, right = check_pairs(now, pairs, metric.n_features)
        if now.metric_type_ == "similarity":
            return metric.paired(left, right)
        gaps = left - right
        return -metric.psd()._paired(gaps, gaps)

    def _pair_metric(self, task: Hashable) -> FactoredMetric:
        """The metric that scores given pairs of a task."""
        return self.task_metric(task)

    # book/single_task.ipynb#coordinates
    def transform(self, X: MatrixLike, *, task: Hashable, role: str | None = None) -> Floats:
        """Coordinates of samples in which Euclidean geometry is that of the task's PSD read-out.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, n_features)
            Samples, or a data frame with the columns that were learned.
        task : hashable
            A known task.
        role : {"query", "reference"} or None, default=None
            For an index of nearest neighbors: the nearest references of a query in
            ``index_space(task)`` are those of the task's metric, indefinite or not.

        Returns
        -------
        ndarray of shape (n, k)
            With k at most n_features; different tasks may have different k.

        Notes
        -----
        Derived in chapter 35 (single_task), eq. (single-task-map); chapter 33 (metrics_factored),
        eq. (metrics-roles).
        """
        now = copy.copy(self)
        metric = now.task_metric(task)
        check_columns(now, X)
        samples = check_matrix(X, n_features=metric.n_features, ensure_min_samples=1)
        return mapped_samples(metric, now.metric_type_, samples, role)

    def index_space(self, task: Hashable) -> str:
        """Where an index finds the nearest of `transform` with roles: "l2" or "inner product"."""
        now = copy.copy(self)
        return index_space(now.task_metric(task), now.metric_type_)

    def _note_columns(self, X: MatrixLike) -> None:
        """Set ``n_features_in_`` and, for a data frame, ``feature_names_in_``."""
        validate_data(self, X, skip_check_array=True)

    if TYPE_CHECKING:  # what the learner brings

        @property
        def metric_type_(self) -> str: ...

        def task_metric(self, task: Hashable) -> FactoredMetric: ...

    def metric_matrix(self, task: Hashable) -> Floats:
        """The metric of a task as a dense array (n_features, n_features), as it was learned."""
        return self.task_metric(task).to_dense()

    def get_mahalanobis_matrix(self, task: Hashable) -> Floats:
        """The PSD read-out of a task's metric as a dense array (n_features, n_features)."""
        return self.task_metric(task).psd().to_dense()

    def get_metric(self, task: Hashable) -> MetricDistance:
        """The distance of two vectors under a task's PSD read-out.

        Returns
        -------
        callable
            ``distance(x, z, squared=False)``, usable as ``metric`` of scikit-learn's
            nearest-neighbor classes; picklable. It does not change with the learner.
        """
        return self.task_metric(task).psd().distance_function()

    @available_if(_has_distances)  # type: ignore[untyped-decorator]  # not typed there
    def pair_distance(self, pairs: ArrayLike, *, task: Hashable) -> Floats:
        """Distances of pairs (n_pairs, 2, n_features) under the PSD read-out, shape (n_pairs,)."""
        return np.sqrt(np.maximum(-self.pair_score(pairs, task=task), 0.0))

    # book/single_task.ipynb#the-view-of-one-task
    def as_transformer(self, task: Hashable) -> "TaskTransformer":
        """One task as a fitted scikit-learn transformer, as it is known now.

        What is learned later does not change it: ask again. Its `fit` learns the task anew,
        on a clone of this learner; this learner is never changed.

        Parameters
        ----------
        task : hashable
            A known task.

        Returns
        -------
        TaskTransformer
        """
        known = copy.copy(self)  # learning replaces attributes: this is a snapshot
        known.task_metric(task)
        view = TaskTransformer(clone(self), task)._read(known)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(known, name):
                setattr(view, name, getattr(known, name))
        return view

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]  # of BaseEstimator, next in line
        tags.target_tags.required = True
        tags.input_tags.sparse = True
        tags.transformer_tags = TransformerTags()
        tags._skip_test = True  # scikit-learn's checks name no task; a view of a task passes them
        return tags

    # book/single_task.ipynb#several-tasks-in-one-table
    def score(
        self,
        X: MatrixLike,
        y: LabelsLike,
        sample_weight: WeightsLike | None = None,
        *,
        tasks: Iterable[Hashable],
    ) -> float:
        """Share of samples whose nearest other sample of their task has their label.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, n_features)
            Samples of known tasks, at least two of each.
        y : array-like of shape (n,)
            Labels.
        sample_weight : array-like of shape (n,), optional
            Weights of the samples in the mean. Not the same as repeated samples, which would be
            each other's nearest.
        tasks : sequence of length n
            Name of each sample's task.

        Returns
        -------
        float in [0, 1]

        Notes
        -----
        Derived in chapter 35 (single_task), eq. (single-task-retrieval).
        """
        now = copy.copy(self)
        check_columns(now, X)
        X = check_matrix(X, ensure_min_samples=1)
        names = task_names(tasks)
        codes, _ = encode_labels(y)
        check_consistent_length(X, codes, names, sample_weight)
        found = np.empty_like(codes)  # label of the nearest other sample
        for task, own in samples_by_task(names).items():
            metric = now.task_metric(task)
            kind = now.metric_type_
            if len(own) < 2:
                raise ValueError(
                    f"task {task!r} has one row, which has no other: give at least two"
                )
            if kind == "distance":
                metric = metric.psd()
            nearest, _ = k_nearest(metric, None, X[own], kind, 1)
            found[own] = codes[own][nearest[:, 0]]
        return accuracy(found, codes, sample_weight)


# book/single_task.ipynb#the-view-of-one-task
def _learns_on(view: Any) -> bool:
    """Whether `partial_fit` is offered: the learner takes one task after another."""
    return hasattr(view.learner, "partial_fit")


class TaskTransformer(MetricLearnerMixin, BaseEstimator):
    """One task of a learner of several tasks, as a scikit-learn transformer.

    ``learner.as_transformer(name)`` gives a fitted one.

    Parameters
    ----------
    learner : learner of several tasks
        Such as `LifelongMetricLearner`; it is never changed. `fit` learns on a clone, which
        knows nothing. A learner in a `sklearn.frozen.FrozenEstimator` keeps what it knows:
        `fit` learns the task, a new one, on a copy of it.
    task : hashable, default="task"
        Name of the task.

    Attributes
    ----------
    metric_ : FactoredMetric
        The metric of the task; of a distance, its PSD read-out.
    metric_type : {"similarity", "distance"}
    components_ : ndarray of shape (k, n_features)
        The map L of `transform`.
    learner_ : learner of several tasks
        The copy that has learned the task.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        When the samples were a data frame.

    Notes
    -----
    Derived in chapter 35 (single_task), eqs. (single-task-map) and (single-task-validation).

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.model_selection import cross_val_score
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from sklearn.pipeline import make_pipeline
    >>> from lml.lifelong import LifelongMetricLearner
    >>> X, y = load_iris(return_X_y=True)
    >>> X = X - X.mean(axis=0)
    >>> learner = LifelongMetricLearner(random_state=0)
    >>> learner = learner.partial_fit(X, y, task="iris")
    >>> learner.as_transformer("iris").set_output(transform="pandas").transform(X).columns[0]
    'tasktransformer0'
    >>> pipeline = make_pipeline(learner.as_transformer("iris"), KNeighborsClassifier())
    >>> bool(cross_val_score(pipeline, X, y, cv=3).mean() > 0.9)
    True
    """

    def __init__(self, learner: Any, task: Hashable = "task") -> None:
        self.learner = learner
        self.task = task

    @property
    def metric_type(self) -> str:  # type: ignore[override]  # that of the learner
        """What the learner has learned: "similarity" or "distance"."""
        return self.learner_.metric_type_

    def fit(self, X: MatrixLike, y: LabelsLike) -> Self:
        """Learn the task anew.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples; sparse if the learner takes them.
        y : array-like of shape (n_samples,)
            Labels.

        Returns
        -------
        self : TaskTransformer

        Raises
        ------
        ValueError, TypeError
            If the samples, the labels or the learner cannot be used. Nothing has changed then.
        """
        return self._learn(X, y, self._beginning(), reset=True)

    @available_if(_learns_on)  # type: ignore[untyped-decorator]  # not typed there
    def partial_fit(self, X: MatrixLike, y: LabelsLike) -> Self:
        """Learn more samples of the task, (n_samples, n_features), in the view's own copy.

        The learner from which the view was made is not changed, nor are other views.
        """
        if not hasattr(self, "learner_"):
            return self.fit(X, y)
        return self._learn(X, y, copy.copy(self.learner_), reset=False)

    def _beginning(self) -> Any:
        """What the task is learned on: a clone of the learner, or a copy of a frozen one."""
        learner = self.learner
        methods = all(hasattr(learner, name) for name in ("fit", "get_params", "task_metric"))
        if isinstance(learner, type) or not methods:
            raise TypeError(
                f"learner is {learner!r}: give an instance of a learner of several tasks, such as"
                " LifelongMetricLearner(); a learner of one task is a transformer already"
            )
        if not isinstance(learner, FrozenEstimator):
            return clone(learner)
        if not _learns_on(self):
            raise TypeError("learner is frozen, but has no partial_fit: give it as it is")
        try:
            learner.task_metric(self.task)
        except (NotFittedError, ValueError):  # a new task, as it must be
            return copy.copy(learner.estimator)
        raise ValueError(
            f"the frozen learner knows task {self.task!r}, and perhaps the rows that are held"
            " out: use another name for a new task, or teach the learner by partial_fit"
        )

    def _learn(self, X: MatrixLike, y: LabelsLike, learner: Any, reset: bool) -> Self:
        """Learn samples with a learner that may be changed; take over its metric."""
        new = copy.copy(self)
        X, codes, labels = check_samples(new, X, y, reset=reset)
        y = [labels[code] for code in codes]
        if hasattr(learner, "partial_fit"):
            learner.partial_fit(X, y, task=self.task)
        else:
            learner.fit(X, y, tasks=[self.task] * len(y))
        self.__dict__ = new._read(learner).__dict__  # all at once
        return self

    def _read(self, learner: Any) -> Self:
        """Take over the metric of the task."""
        metric = learner.task_metric(self.task)
        distance = learner.metric_type_ == "distance"
        self.learner_ = learner
        self.metric_ = metric.psd() if distance else metric
        return self

    def pair_score(self, pairs: ArrayLike) -> Floats:
        """Scores of pairs (n_pairs, 2, n_features), those of the learner; larger is closer."""
        check_is_fitted(self, "metric_")
        return self.learner_.pair_score(pairs, task=self.task)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        if hasattr(self.learner, "__sklearn_tags__"):
            tags.input_tags.sparse = get_tags(self.learner).input_tags.sparse
        return tags


# book/single_task.ipynb#several-tasks-in-one-table
def samples_by_task(tasks: Iterable[Hashable]) -> dict[Hashable, list[int]]:
    """Numbers of the samples of each task, by first appearance."""
    samples: dict[Hashable, list[int]] = {}
    for sample, task in enumerate(tasks):
        try:
            samples.setdefault(task, []).append(sample)
        except TypeError:
            raise TypeError(
                f"tasks[{sample}]={task!r} is not hashable: use a string or tuple"
            ) from None
    return samples
