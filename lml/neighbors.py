# Generated from book/neighbors.ipynb by tools/tangle.py: edit the chapter.
"""k nearest neighbours under a factored metric: ranking, votes, and a classifier.

A score is larger for a closer row: the similarity itself, or minus the squared distance.
Ties go to the reference that comes first, tied votes to the nearest of the tied labels.
"""

from numbers import Integral

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import gen_batches
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from lml.metrics import FactoredMetric, pairwise_scores

__all__ = ["MetricKNeighborsClassifier", "k_nearest", "majority_vote"]

_SCORES_AT_A_TIME = 2**22


def k_nearest(metric, X, references, metric_type, n_neighbors):
    """The nearest references of each query, nearest first.

    Parameters
    ----------
    metric : FactoredMetric
        The metric, of either sign; for a distance its symmetric part counts.
    X : {array-like, sparse matrix} of shape (n, D)
        Queries.
    references : {array-like, sparse matrix} of shape (m, D)
        Rows to choose from.
    metric_type : {"similarity", "distance"}
        How the metric ranks.
    n_neighbors : int
        How many, from 1 to m.

    Returns
    -------
    indices : ndarray of int, shape (n, n_neighbors)
        Rows of `references`; equal scores are ordered by row.
    scores : ndarray of shape (n, n_neighbors)
        Their scores, larger is closer.

    Raises
    ------
    ValueError
        If `n_neighbors` is not a whole number from 1 to m, or shapes do not fit.

    Notes
    -----
    Derived in chapter 3 (neighbors), eqs. (neighbors-score) and (neighbors-expansion). Paper:
    section V.

    Examples
    --------
    >>> from lml.metrics import FactoredMetric
    >>> line = [[0.0], [2.0], [5.0]]
    >>> k_nearest(FactoredMetric.identity(1), [[1.0]], line, "distance", 2)[0].tolist()
    [[0, 1]]
    """
    k = _check_n_neighbors(n_neighbors, _n_rows(references))
    X, references = _centred(X, references, metric_type)
    indices = np.empty((_n_rows(X), k), dtype=np.intp)
    scores = np.empty(indices.shape)
    for block in gen_batches(len(indices), max(1, _SCORES_AT_A_TIME // _n_rows(references))):
        all_scores = pairwise_scores(metric, X[block], references, metric_type)
        indices[block] = np.argsort(-all_scores, axis=1, kind="stable")[:, :k]
        scores[block] = np.take_along_axis(all_scores, indices[block], axis=1)
    return indices, scores


def _centred(X, references, metric_type):
    """Rows shifted by the mean reference: a distance keeps its value and gains digits."""
    if metric_type != "distance" or sparse.issparse(X) or sparse.issparse(references):
        return (A if sparse.issparse(A) else np.asarray(A, dtype=float) for A in (X, references))
    references = np.asarray(references, dtype=float)
    mean = references.mean(axis=0)
    return np.asarray(X, dtype=float) - mean, references - mean


def _n_rows(X):
    return X.shape[0] if hasattr(X, "shape") else len(X)


def _check_n_neighbors(n_neighbors, n_references):
    if not isinstance(n_neighbors, Integral) or n_neighbors < 1:
        raise ValueError(f"n_neighbors is {n_neighbors!r}: give a whole number of at least 1")
    if n_neighbors > n_references:
        raise ValueError(
            f"n_neighbors is {n_neighbors}, but the references have n_samples = {n_references}: "
            "ask for fewer neighbours or give more rows"
        )
    return int(n_neighbors)


def majority_vote(labels):
    """The commonest label of each row; a tie goes to the tied label that comes first.

    Parameters
    ----------
    labels : array-like of shape (n, k)
        Labels of the neighbours, nearest first; any type that compares equal.

    Returns
    -------
    ndarray of shape (n,)
        One label a row.

    Notes
    -----
    Derived in chapter 3 (neighbors), eq. (neighbors-vote). Paper: section V.

    Examples
    --------
    >>> majority_vote([["cat", "dog", "dog"], ["cat", "dog", "owl"]]).tolist()
    ['dog', 'cat']
    """
    labels = np.asarray(labels)
    if labels.ndim != 2 or labels.shape[1] == 0:
        raise ValueError(f"labels has shape {labels.shape}: give (n, k) with k of at least 1")
    votes = (labels[:, :, None] == labels[:, None, :]).sum(axis=2)
    return labels[np.arange(len(labels)), votes.argmax(axis=1)]


class MetricKNeighborsClassifier(ClassifierMixin, BaseEstimator):
    """k-nearest-neighbour classifier under a metric that it learns first.

    Parameters
    ----------
    estimator : estimator or None, default=None
        A metric learner whose ``fit(X, y)`` sets ``metric_`` and which has ``metric_type``,
        for example `OASIS` or `SCML`; cloned before it is fitted. None is Euclidean.
    n_neighbors : int, default=3
        Number of votes.

    Attributes
    ----------
    estimator_ : estimator or None
        The fitted metric learner.
    classes_ : ndarray
        The labels, sorted.
    references_ : {ndarray, csr_matrix} of shape (n, D)
        The training rows.
    n_features_in_ : int
        Number of features D.

    Notes
    -----
    Derived in chapter 3 (neighbors), eqs. (neighbors-score) and (neighbors-vote). Paper: section V.

    Examples
    --------
    >>> from lml.datasets import load_digits_tasks
    >>> task = load_digits_tasks(random_state=0)[0]
    >>> model = MetricKNeighborsClassifier().fit(task.X_train, task.y_train)
    >>> round(model.score(task.X_test, task.y_test), 2)
    1.0
    """

    def __init__(self, estimator=None, n_neighbors=3):
        self.estimator = estimator
        self.n_neighbors = n_neighbors

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(self, X, y):
        """Learn the metric and keep the references.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, D)
            Rows.
        y : array-like of shape (n,)
            Labels of any type.

        Returns
        -------
        MetricKNeighborsClassifier
            The classifier itself.

        Raises
        ------
        ValueError
            If X or y is not usable, or there are fewer rows than neighbours.
        """
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64)
        check_classification_targets(y)
        _check_n_neighbors(self.n_neighbors, X.shape[0])
        learner = None if self.estimator is None else clone(self.estimator).fit(X, y)
        self.classes_, self._codes = np.unique(y, return_inverse=True)
        self.estimator_, self.references_ = learner, X.copy()
        return self

    def _metric(self):
        if self.estimator_ is None:
            return FactoredMetric.identity(self.n_features_in_), "distance"
        return self.estimator_.metric_, self.estimator_.metric_type

    def kneighbors(self, X, n_neighbors=None):
        """Indices and scores of the nearest references, as `k_nearest` gives them."""
        check_is_fitted(self, "references_")
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        k = self.n_neighbors if n_neighbors is None else n_neighbors
        metric, metric_type = self._metric()
        return k_nearest(metric, X, self.references_, metric_type, k)

    def predict(self, X):
        """Labels of the rows of X (n, D), an array of shape (n,)."""
        indices, _ = self.kneighbors(X)
        return self.classes_[majority_vote(self._codes[indices])]
