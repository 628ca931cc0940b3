# Generated from book/neighbors.ipynb by tools/tangle.py: edit the chapter.
"""k nearest neighbors under a factored metric: ranking, votes, and a classifier.

A score is larger for a closer sample: the similarity itself, or minus the squared distance.
Ties go to the reference that comes first, tied votes to the nearest of the tied labels.
"""

from __future__ import annotations

import copy
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import check_consistent_length, gen_batches
from sklearn.utils.extmath import row_norms
from sklearn.utils.validation import check_is_fitted

from lml.metrics import (
    METRIC_LEARNER,
    METRIC_TYPE,
    FactoredMetric,
    check_metric,
    fitted_metric,
    has_own_score,
)
from lml.utils.documentation import DocumentedMixin
from lml.utils.linalg import times_transpose
from lml.utils.typing import Floats, Indices, LabelsLike, Matrix, MatrixLike, WeightsLike
from lml.utils.validation import (
    as_labels,
    check_dense,
    check_matrix,
    check_n_neighbors,
    check_new_samples,
    check_parameters,
    check_samples,
    check_two_classes,
    check_weights,
    optional,
    sort_classes,
    warn_of_mean,
    whole,
)

__all__ = [
    "MetricKNeighborsClassifier",
    "RetrievalScores",
    "accuracy",
    "k_nearest",
    "majority_vote",
    "nearest_references",
    "retrieval_scores",
    "vote_shares",
]

# book/neighbors.ipynb#nearest-neighbors-under-a-metric
_NUMBERS_AT_A_TIME = 2**20  # size of a block of scores, 8 MB


# book/neighbors.ipynb#rounding-errors-and-which-scores-to-compute-again
def _error_scale(metric: FactoredMetric) -> float:
    """The factor before (|x| + |z|)^2 in the error bound of a computed distance.

    Derived in chapter 4 (neighbors), eq. (neighbors-error).
    """
    terms = metric.n_features + 2 * metric.factor.shape[0] + 8
    F, C = (A.data if sparse.issparse(A) else A for A in (metric.factor, metric.core))
    size = abs(metric.alpha) + np.linalg.norm(F) ** 2 * np.linalg.norm(C)
    return terms * np.finfo(float).eps * size


# book/neighbors.ipynb#ranking
def _distinct(references: Matrix) -> tuple[Indices, Indices]:
    """Places of the distinct samples, and for each sample the distinct one it equals."""
    if sparse.issparse(references):
        references = references.copy()
        references.eliminate_zeros()  # one form of each sample
        ends = zip(references.indptr[:-1], references.indptr[1:], strict=True)
        parts = (references.indices, references.data)
        rows = [b"".join(part[a:b].tobytes() for part in parts) for a, b in ends]
        keys = np.array(rows, dtype=object)
    else:
        references = np.ascontiguousarray(references)
        keys = references.view(f"V{references[0].nbytes}").ravel()
    _, places, inverse = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(places)  # the distinct samples as they come first
    return places[order], np.argsort(order)[inverse]


# book/neighbors.ipynb#ranking
class _References:
    """References made ready for many queries."""

    def __init__(
        self, metric: FactoredMetric, rows: Matrix, metric_type: str, k: int, centered: bool
    ) -> None:
        m = rows.shape[0]
        self.rows = rows
        self.exact = metric
        self.k = min(k, m)
        self.size = max(1, min(64, m // (8 * k)))  # columns of a group
        self.distance = metric_type == "distance"
        self.metric = metric.symmetrized() if self.distance else metric
        # a distance does not notice a shift of all samples, and shorter samples round less
        self.mean = rows.mean(axis=0) if centered and self.distance else None
        self.shifted = rows if self.mean is None else rows - self.mean
        self.images = metric._image(self.shifted)
        self.norms = np.zeros(m + -m % self.size)  # zeros fill the last group
        self.error = 0.0  # a similarity is ranked as it is computed
        if self.distance:
            self.error = _error_scale(self.metric)
            self.norms[:m] = row_norms(self.shifted)
            # x'Mx is left out: it is the same for all references of a query
            own = np.einsum("ij,ij->i", self.metric._by_core(self.images), self.images)
            own += metric.alpha * self.norms[:m] ** 2
            self.images = np.column_stack([self.images, -own])  # (2 C F x, 1)'(F z, - z'Mz)
        self.longest = self.norms.reshape(-1, self.size).max(axis=1)

    def scores(self, X: Matrix) -> Floats:
        """Scores of queries but for a number of the query, with columns to fill the last group."""
        M = self.metric
        m = len(self.images)
        if has_own_score(M) and not self.distance:
            own = M.bilinear(X, self.rows)  # a metric with a score of its own
            return np.pad(own, ((0, 0), (0, len(self.norms) - m)), constant_values=-np.inf)
        left = M._by_core(M._image(X))
        if self.distance:
            left = np.column_stack([2 * left, np.ones(len(left))])
        scores = np.empty((X.shape[0], len(self.norms)))
        np.matmul(left, self.images.T, out=scores[:, :m])
        scores[:, m:] = -np.inf
        if M.alpha:
            scores[:, :m] += (1 + self.distance) * M.alpha * times_transpose(X, self.shifted)
        return scores

    def candidates(self, X: Matrix) -> tuple[Indices, Indices, Floats]:
        """Queries and references that may be among the k nearest, and their scores.

        Derived in chapter 4 (neighbors), eqs. (neighbors-error), (neighbors-candidates) and
        (neighbors-groups).
        """
        X = X if self.mean is None else X - self.mean
        left = row_norms(X)
        groups = self.scores(X).reshape(X.shape[0], -1, self.size)
        # groups whose best reference is certainly not among the k nearest are passed over
        top = groups.max(axis=2)
        error = self.error * (left[:, None] + self.longest) ** 2
        bound = np.partition(top - error, -self.k, axis=1)[:, -self.k]
        rows, which = np.nonzero(top + error >= bound[:, None])
        # in the others the same is asked of each reference
        scores = groups[rows, which]
        columns = which[:, None] * self.size + np.arange(self.size)
        error = self.error * (left[rows, None] + self.norms[columns]) ** 2
        near, place = np.nonzero(scores + error >= bound[rows, None])
        return rows[near], columns[near, place], scores[near, place]

    def ranked(self, X: Matrix) -> tuple[Indices, Indices, Floats]:
        """The candidates, each with its accurate score."""
        i, j, scores = self.candidates(X)
        if self.distance:
            for batch in gen_batches(len(i), max(1, _NUMBERS_AT_A_TIME // X.shape[1])):
                gaps = X[i[batch]] - self.rows[j[batch]]
                scores[batch] = -self.exact._paired(gaps, gaps)
        return i, j, scores


# book/neighbors.ipynb#ranking
def nearest_references(
    metric: FactoredMetric, X: Matrix | None, references: Matrix, metric_type: str, k: int
) -> tuple[Indices, Floats]:
    """What `k_nearest` gives, for arguments that were checked before."""
    itself = X is None
    queries: Matrix = references if itself else X
    if not sparse.issparse(metric.factor) and metric.factor.shape[0] > metric.n_features:
        metric = metric.condensed()
    # scores are computed for the distinct references: copies tie, and the first few may count
    places, inverse = _distinct(references)
    distinct = references if len(places) == len(inverse) else references[places]
    copies = np.argsort(inverse, kind="stable")
    counts = np.bincount(inverse)
    begin = np.cumsum(counts) - counts
    counts = np.minimum(counts, k + itself)
    dense = not (sparse.issparse(queries) or sparse.issparse(references))
    ready = _References(metric, distinct, metric_type, k + itself, centered=dense)
    indices = np.empty((queries.shape[0], k), dtype=np.intp)
    scores = np.empty(indices.shape)
    n = _NUMBERS_AT_A_TIME
    m = len(inverse)
    step = max(1, n // m, min(n // 2**15, 4 * n // m))
    for start in range(0, len(indices), step):
        block = slice(start, start + step)
        query, which, score = ready.ranked(queries[block])
        # each candidate's copies, one beside the other
        number = counts[which]
        entry = np.repeat(np.arange(len(which)), number)
        nth = np.arange(len(entry)) - np.repeat(np.cumsum(number) - number, number)
        place = copies[begin[which][entry] + nth]
        if itself:  # leave the query out
            others = place != query[entry] + start
            entry = entry[others]
            place = place[others]
        order = np.lexsort((place, -score[entry], query[entry]))
        first = np.flatnonzero(np.diff(query[entry][order], prepend=-1))  # of each query
        chosen = order[first[:, None] + np.arange(k)]
        indices[block] = place[chosen]
        scores[block] = score[entry][chosen]
    return indices, scores


# book/neighbors.ipynb#ranking
def k_nearest(
    metric: FactoredMetric,
    X: MatrixLike | None,
    references: MatrixLike,
    metric_type: str,
    n_neighbors: int,
) -> tuple[Indices, Floats]:
    """The nearest references of each query, nearest first.

    Parameters
    ----------
    metric : FactoredMetric
        The metric, not necessarily PSD; for a distance its symmetric part counts.
    X : array-like or sparse matrix of shape (n, D), or None
        Queries. None ranks, for each reference, all the others (leave one out).
    references : array-like or sparse matrix of shape (m, D)
        Samples to choose from.
    metric_type : {"similarity", "distance"}
        How the metric ranks.
    n_neighbors : int
        How many, from 1 to m (to m - 1 if `X` is None).

    Returns
    -------
    indices : ndarray of int, shape (n, n_neighbors)
        Samples of `references`; equal scores are ordered by sample.
    scores : ndarray of shape (n, n_neighbors)
        Their scores, larger is closer.

    Raises
    ------
    ValueError
        If `n_neighbors` is not a whole number from 1 to m, shapes do not fit, or a value
        is not finite.

    Notes
    -----
    Derived in chapter 4 (neighbors), eqs. (neighbors-score), (neighbors-expansion) and
    (neighbors-groups). Samples that are equal have equal scores. Sparse samples are never made
    dense; memory beyond the arguments is bounded, whatever n is. Paper: section V.

    Examples
    --------
    >>> from lml.metrics import FactoredMetric
    >>> from lml.neighbors import k_nearest
    >>> line = [[0.0], [2.0], [5.0]]
    >>> k_nearest(FactoredMetric.identity(1), [[1.0]], line, "distance", 2)[0].tolist()
    [[0, 1]]
    """
    METRIC_TYPE.check("metric_type", metric_type)
    check_metric(metric, "metric")
    references = check_matrix(references, "references", metric.n_features)
    queries = None if X is None else check_matrix(X, "X", metric.n_features)
    k = check_n_neighbors(n_neighbors, references.shape[0], X is None)
    return nearest_references(metric, queries, references, metric_type, k)


# book/neighbors.ipynb#votes
def majority_vote(labels: ArrayLike) -> NDArray[Any]:
    """The commonest label of each sample; a tie goes to the tied label that comes first.

    Parameters
    ----------
    labels : array-like of shape (n, k)
        Labels of the neighbors, nearest first: class numbers, or labels of one type. NumPy makes
        one type of labels of several.

    Returns
    -------
    ndarray of shape (n,)
        One label a sample.

    Notes
    -----
    Derived in chapter 4 (neighbors), eq. (neighbors-vote). Paper: section V.

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


# book/neighbors.ipynb#votes
def vote_shares(codes: Indices, n_classes: int) -> Floats:
    """Share of the votes for each class, (n, n_classes), by the classes of k neighbors, (n, k).

    Of tied classes the one of the nearest neighbor is ahead by one rounding, as in
    `majority_vote`.
    """
    n, k = codes.shape
    places = codes + n_classes * np.arange(n)[:, None]
    counts = np.bincount(places.ravel(), minlength=n * n_classes)
    shares = counts.reshape(n, n_classes) / k
    winner = np.arange(n), majority_vote(codes)
    shares[winner] = np.nextafter(shares[winner], 1.0)
    return shares


# book/neighbors.ipynb#judging-a-ranking
class RetrievalScores(NamedTuple):
    """What `retrieval_scores` returns; `n_queries` are those with a relevant reference."""

    map_at_r: float
    r_precision: float
    recall_at_k: float
    mrr: float
    n_queries: int


def retrieval_scores(
    hits: ArrayLike, n_neighbors: int = 1, n_relevant: ArrayLike | None = None
) -> RetrievalScores:
    """Judge rankings by where the relevant references stand.

    Parameters
    ----------
    hits : array-like of bool, shape (n_queries, n_ranked)
        Whether each neighbor of a query, nearest first, is relevant.
    n_neighbors : int, default=1
        k of the recall.
    n_relevant : array-like of int, shape (n_queries,), optional
        Number of relevant references of each query; by default all of them are among the ranked.

    Returns
    -------
    RetrievalScores

    Raises
    ------
    ValueError
        If no query has a relevant reference, or fewer neighbors are ranked than one of them needs.

    Notes
    -----
    Derived in chapter 4 (neighbors), eq. (neighbors-retrieval). Queries without a relevant
    reference do not count. A query without a hit in a ranking that ends early has 0 in the MRR.

    Examples
    --------
    >>> retrieval_scores([[True, False, True], [False, True, False]])
    RetrievalScores(map_at_r=0.25, r_precision=0.25, recall_at_k=0.5, mrr=0.75, n_queries=2)
    """
    table = check_dense(hits, "hits")
    if not np.isin(table, (0, 1)).all():
        raise ValueError(
            "hits has other numbers than 0 and 1: say of each neighbor if it is relevant"
        )
    table = table.astype(bool)
    relevant = table.sum(axis=1) if n_relevant is None else np.asarray(n_relevant)
    check_n_neighbors(n_neighbors, table.shape[1])
    fits = relevant.shape == table.shape[:1] and relevant.dtype.kind in "iu"
    fits = fits and relevant.any() and (relevant >= table.sum(axis=1)).all()
    if not fits or relevant.max() > table.shape[1]:
        raise ValueError(
            f"hits has shape {table.shape}, n_relevant is {relevant}: rank as many references as"
            " a query has relevant ones, and at least one"
        )
    table = table[relevant > 0]
    relevant = relevant[relevant > 0]
    ranks = np.arange(1, table.shape[1] + 1)
    precision = np.cumsum(table, axis=1) / ranks
    first = np.where(ranks <= relevant[:, None], table * precision, 0.0)  # the first R_i
    return RetrievalScores(
        map_at_r=float(np.mean(first.sum(axis=1) / relevant)),
        r_precision=float(np.mean(precision[np.arange(len(table)), relevant - 1])),
        recall_at_k=float(np.mean(table[:, :n_neighbors].any(axis=1))),
        mrr=float(np.mean((table / ranks).max(axis=1))),
        n_queries=len(table),
    )


# book/neighbors.ipynb#a-classifier
class MetricKNeighborsClassifier(DocumentedMixin, ClassifierMixin, BaseEstimator):
    """k-nearest-neighbor classifier under a metric that it learns first.

    Parameters
    ----------
    estimator : estimator or None, default=None
        A metric learner whose ``fit(X, y)`` sets ``metric_`` (a FactoredMetric, or an array
        of shape (D, D)) and which has ``metric_type``, for example `OASIS` or `SCML`; cloned
        before it is fitted, on class numbers for labels. None is Euclidean.
    n_neighbors : int, default=3
        Number of votes.

    Attributes
    ----------
    estimator_ : estimator or None
        The fitted metric learner.
    classes_ : ndarray
        The labels, sorted where they have an order, else as they first appear.
    references_ : {ndarray, csr_array} of shape (n, D)
        The training samples.
    n_features_in_ : int
        Number of features D.

    Notes
    -----
    Derived in chapter 4 (neighbors), eqs. (neighbors-score) and (neighbors-vote). Paper: section V.

    Examples
    --------
    >>> from lml.datasets import load_digits_tasks
    >>> task = load_digits_tasks(random_state=0)[0]
    >>> model = MetricKNeighborsClassifier().fit(task.X_train, task.y_train)
    >>> round(model.score(task.X_test, task.y_test), 2)
    1.0
    """

    _parameter_rules: ClassVar = {
        "estimator": optional(METRIC_LEARNER),
        "n_neighbors": whole(1),
    }

    def __init__(self, estimator: BaseEstimator | None = None, n_neighbors: int = 3) -> None:
        self.estimator = estimator
        self.n_neighbors = n_neighbors

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(self, X: MatrixLike, y: LabelsLike) -> Self:
        """Learn the metric and keep the references.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, D)
            Samples.
        y : array-like of shape (n,)
            Labels of any hashable type.

        Returns
        -------
        MetricKNeighborsClassifier
            The classifier itself.

        Raises
        ------
        ValueError, TypeError
            If X or y is not usable, there are fewer samples than neighbors, or
            `estimator` is no learner of a metric. The classifier is then what it was before.
        """
        check_parameters(self)
        fitted = copy.copy(self)
        X, codes, labels = check_samples(fitted, X, y, ensure_min_samples=1)
        check_n_neighbors(self.n_neighbors, X.shape[0])
        fitted.classes_, fitted._codes = sort_classes(y, (codes, labels))
        fitted.references_ = X.copy()
        fitted.estimator_ = None
        fitted._metric = FactoredMetric.identity(X.shape[1])
        fitted._metric_type = "distance"
        if self.estimator is not None:
            check_two_classes(codes, labels)
            if getattr(self.estimator, "metric_type", None) == "similarity":
                warn_of_mean(X)
            fitted.estimator_ = clone(self.estimator)
            fitted._metric, fitted._metric_type = fitted_metric(
                fitted.estimator_, "estimator", X, fitted._codes
            )
        self.__dict__ = fitted.__dict__  # all at once: a fit that fails changes nothing
        return self

    def kneighbors(
        self, X: MatrixLike | None = None, n_neighbors: int | None = None
    ) -> tuple[Indices, Floats]:
        """Nearest references of the samples of X (n, D), nearest first.

        With X = None, those of each reference without itself (leave one out). Returns
        the indices and the scores, both (n, n_neighbors), as `k_nearest` does.
        """
        check_is_fitted(self, "references_")
        queries = None if X is None else check_new_samples(self, X)
        k = self.n_neighbors if n_neighbors is None else n_neighbors
        k = check_n_neighbors(k, self.references_.shape[0], X is None)
        return nearest_references(self._metric, queries, self.references_, self._metric_type, k)

    def predict(self, X: MatrixLike) -> NDArray[Any]:
        """Labels of the samples of X (n, D), an array of shape (n,)."""
        indices, _ = self.kneighbors(X)
        return self.classes_[majority_vote(self._codes[indices])]

    def predict_proba(self, X: MatrixLike) -> Floats:
        """Share of the k votes for each class, (n, n_classes), in the order of ``classes_``."""
        indices, _ = self.kneighbors(X)
        return vote_shares(self._codes[indices], len(self.classes_))

    def score(
        self, X: MatrixLike, y: LabelsLike, sample_weight: WeightsLike | None = None
    ) -> float:
        """Share of the samples of X (n, D) whose predicted label equals that in y (n,)."""
        return accuracy(self.predict(X), y, sample_weight)


# book/neighbors.ipynb#a-classifier
def accuracy(
    predicted: LabelsLike, y: LabelsLike, sample_weight: WeightsLike | None = None
) -> float:
    """Share of the predicted labels that equal the true ones, which may be of any type.

    Parameters
    ----------
    predicted, y : array-like of shape (n_samples,)
        Labels, at least one.
    sample_weight : array-like of shape (n_samples,), optional
        What each sample counts, at least 0.

    Returns
    -------
    float in [0, 1]

    Raises
    ------
    ValueError
        If there are no labels, or the lengths differ.

    Examples
    --------
    >>> accuracy([1, ("b", 2), "1"], [1, ("b", 2), 1], sample_weight=[1, 1, 2])
    0.5
    """
    answers = as_labels(predicted)
    labels = as_labels(y)
    check_consistent_length(answers, labels, sample_weight)
    if not len(labels):
        raise ValueError("y has 0 labels, whose accuracy is not defined: give at least one")
    hits = np.array([a == b for a, b in zip(answers, labels, strict=True)], dtype=float)
    weights = None if sample_weight is None else check_weights(sample_weight)
    return float(np.average(hits, weights=weights))
