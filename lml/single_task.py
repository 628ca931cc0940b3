# Generated from book/single_task.ipynb by tools/tangle.py: edit the chapter.
"""What learners of several tasks are read with, one task at a time.

`TaskMetricsMixin` turns the metric of a task into scores, distances, coordinates and callables.
"""

import numpy as np
from sklearn.utils import check_array
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import validate_data

from lml.metrics import _split_pairs

__all__ = ["TaskMetricsMixin"]


def _has_distances(learner):
    """Whether `pair_distance` is offered; before a task is learned, it says so itself."""
    return getattr(learner, "metric_type_", "distance") == "distance"


class TaskMetricsMixin:
    """Reading methods of learners that have a metric for each task.

    The learner gives `task_metric(task)`, which is a `FactoredMetric` or an error that lists
    the known tasks, and `metric_type_`, "similarity" or "distance".

    Notes
    -----
    Derived in chapter 14 (single_task), eqs. (single-task-score) and (single-task-map).

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

    def _snapshot(self):
        """What one answer is read from: the learner, or a copy that no other thread changes."""
        return self

    def pair_score(self, pairs, *, task):
        """Scores of pairs of rows under the metric of a task; larger is closer.

        Parameters
        ----------
        pairs : array-like of shape (n_pairs, 2, n_features)
            Pairs of rows, or a tuple of two sparse matrices or data frames
            (n_pairs, n_features).
        task : hashable
            A known task.

        Returns
        -------
        ndarray of shape (n_pairs,)
            x' M_t z for a similarity; minus the squared distance under the positive
            semi-definite read-out for a distance.

        Notes
        -----
        Derived in chapter 14 (single_task), eq. (single-task-score).
        """
        now = self._snapshot()
        metric = now.task_metric(task)
        left, right = _split_pairs(pairs, metric.n_features)
        if now.metric_type_ == "similarity":
            return metric.paired(left, right)
        return -metric.psd().quadratic(left - right)

    def transform(self, X, *, task):
        """Coordinates of rows in which Euclidean geometry is that of the task's PSD read-out.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, n_features)
            Rows, or a data frame with the columns that were learned.
        task : hashable
            A known task.

        Returns
        -------
        ndarray of shape (n, k)
            With k at most n_features; different tasks may have different k.

        Notes
        -----
        Derived in chapter 14 (single_task), eq. (single-task-map).
        """
        now = self._snapshot()
        metric = now.task_metric(task).psd()
        now._check_columns(X)
        kwargs = {"accept_sparse": "csr", "ensure_all_finite": False}  # embed says where
        return metric.embed(check_array(X, dtype=np.float64, **kwargs))

    def _check_columns(self, X):
        """Refuse a data frame whose columns are not those that were learned."""
        if hasattr(self, "feature_names_in_"):
            validate_data(self, X, skip_check_array=True, reset=False)

    def _note_columns(self, X):
        """Set ``n_features_in_`` and, for a data frame, ``feature_names_in_``."""
        validate_data(self, X, skip_check_array=True)

    def metric_matrix(self, task):
        """The metric of a task as a dense array (n_features, n_features), as it was learned."""
        return self.task_metric(task).to_dense()

    def get_mahalanobis_matrix(self, task):
        """The PSD read-out of a task's metric as a dense array (n_features, n_features)."""
        return self.task_metric(task).psd().to_dense()

    def get_metric(self, task):
        """The distance of two vectors under a task's PSD read-out.

        Returns
        -------
        callable
            ``distance(x, z, squared=False)``, usable as ``metric`` of scikit-learn's
            nearest-neighbour classes; picklable. It does not change with the learner.
        """
        return self.task_metric(task).psd().distance_function()

    @available_if(_has_distances)
    def pair_distance(self, pairs, *, task):
        """Squared distances of pairs (n_pairs, 2, n_features), shape (n_pairs,)."""
        return -self.pair_score(pairs, task=task)
