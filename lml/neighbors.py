# Generated from book/neighbors.ipynb by tools/tangle.py: edit the chapter.
"""k nearest neighbours under a factored metric: ranking, votes, and a classifier.

A score is larger for a closer row: the similarity itself, or minus the squared distance.
Ties go to the reference that comes first, tied votes to the nearest of the tied labels.
"""

import copy
from collections.abc import Collection
from decimal import Decimal
from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import check_array, check_consistent_length, column_or_1d, gen_batches
from sklearn.utils.validation import check_is_fitted, validate_data

from lml.metrics import (
    FactoredMetric,
    _check_finite,
    _check_rows,
    _is_whole,
    _learnt_metric,
    _plain,
    _times,
)
from lml.utils.typing import Floats, Indices, LabelsLike, Matrix, MatrixLike, WeightsLike

__all__ = ["MetricKNeighborsClassifier", "k_nearest", "majority_vote"]

# book/neighbors.ipynb#rounding
_NUMBERS_AT_A_TIME = 2**20  # size of a block of scores, 8 MB


# book/neighbors.ipynb#rounding
def _norms(X: Matrix) -> Floats:
    """Euclidean norms of the rows."""
    squares = X.multiply(X).sum(axis=1) if sparse.issparse(X) else np.einsum("ij,ij->i", X, X)
    return np.sqrt(np.asarray(squares).ravel())


def _error_scale(metric: FactoredMetric) -> float:
    """The factor before (|x| + |z|)^2 in the error bound of a computed distance."""
    terms = metric.n_features + 2 * metric.factor.shape[0] + 8
    F, C = (A.data if sparse.issparse(A) else A for A in (metric.factor, metric.core))
    size = abs(metric.alpha) + np.linalg.norm(F) ** 2 * np.linalg.norm(C)
    return terms * np.finfo(float).eps * size


# book/neighbors.ipynb#ranking
def _all_differ(rows: Floats) -> bool:
    """Whether sums of the rows' bits with random odd weights differ; then the rows do."""
    words = np.ascontiguousarray(rows).view(np.uint64)
    weights = np.random.default_rng(0).integers(2**63, size=words.shape[1], dtype=np.uint64)
    return len(np.unique(words @ (2 * weights + 1))) == len(words)


# book/neighbors.ipynb#ranking
def _distinct(references: Matrix) -> tuple[Indices, Indices]:
    """Places of the distinct rows, and for each row the distinct one it equals."""
    if sparse.issparse(references):
        references = references.copy()
        references.sum_duplicates()  # one form of each row, its columns ascending
        references.eliminate_zeros()
        ends = zip(references.indptr[:-1], references.indptr[1:], strict=True)
        parts = (references.indices, references.data)
        keys = [tuple(part[a:b].tobytes() for part in parts) for a, b in ends]
    elif _all_differ(references):
        return np.arange(len(references)), np.arange(len(references))
    else:
        keys = [row.tobytes() for row in np.ascontiguousarray(references)]
    first: dict[Any, int] = {}
    inverse = np.array([first.setdefault(key, len(first)) for key in keys], dtype=np.intp)
    return np.unique(inverse, return_index=True)[1], inverse


# book/neighbors.ipynb#ranking
def _check_size(X: Matrix, name: str) -> None:
    """Refuse rows so large that products of their squared distances overflow."""
    values = X.data if sparse.issparse(X) else X
    largest = float(max(values.max(initial=0), -values.min(initial=0)))
    if largest > 1e70:
        raise ValueError(
            f"{name} holds a number of size {largest:.3g}, products of its squares overflow: rescale"
            " the rows, for example with scikit-learn's StandardScaler"
        )


def _prepared(
    metric: FactoredMetric, X: MatrixLike | None, references: MatrixLike, metric_type: str
) -> tuple[FactoredMetric, Matrix, Matrix]:
    """Checked arguments of `k_nearest`: metric, queries, references."""
    if metric_type not in ("similarity", "distance"):
        raise ValueError(f"metric_type is {metric_type!r}: use 'similarity' or 'distance'")
    references = _check_rows(references, metric.n_features, "references")
    X = references if X is None else _check_rows(X, metric.n_features)
    _check_size(references, "references")
    _check_size(X, "X")
    if not sparse.issparse(metric.factor) and metric.factor.shape[0] > metric.n_features:
        metric = metric.condensed()
    return metric, X, references


# book/neighbors.ipynb#ranking
def _check_n_neighbors(n_neighbors: int, n_references: float, without_itself: bool = False) -> int:
    whole = _is_whole(n_neighbors)
    if not whole or n_neighbors < 1:
        raise ValueError(f"n_neighbors is {n_neighbors!r}: give a whole number of at least 1")
    if n_neighbors > n_references - without_itself:
        raise ValueError(
            f"n_neighbors is {n_neighbors}, but the references have n_samples = {n_references}"
            f"{' (the row itself does not count)' * without_itself}: "
            "ask for fewer neighbours or give more rows"
        )
    return int(n_neighbors)


# book/neighbors.ipynb#ranking
class _References:
    """References made ready for many queries."""

    def __init__(
        self, metric: FactoredMetric, rows: Matrix, metric_type: str, k: int, centred: bool
    ) -> None:
        self.rows = rows
        self.distance = metric_type == "distance"
        self.exact = metric
        self.metric = metric.symmetrized() if self.distance else metric
        self.mean = rows.mean(axis=0) if centred and self.distance else None
        self.shifted = rows if self.mean is None else rows - self.mean
        self.images = _times(self.shifted, metric.factor)
        m = rows.shape[0]
        self.k = min(k, m)
        self.size = max(1, min(64, m // (8 * k)))  # columns of a group
        self.norms = np.zeros(m + -m % self.size)
        if self.distance:
            self.norms[:m] = _norms(self.shifted)
            own = np.einsum("ij,ij->i", self.metric._by_core(self.images), self.images)
            own += metric.alpha * self.norms[:m] ** 2
            self.images = np.column_stack([self.images, -own])  # (2 C F x, 1)'(F z, - z'Mz)
        self.longest = self.norms.reshape(-1, self.size).max(axis=1)

    @property
    def error(self) -> float:
        """The factor of the error bound; a similarity is ranked as it is computed."""
        return _error_scale(self.metric) if self.distance else 0.0

    def scores(self, X: Matrix) -> Floats:
        """Scores of queries but for a number of the query, with columns to fill the last group."""
        M = self.metric
        m = len(self.images)
        if type(M).bilinear is not FactoredMetric.bilinear and not self.distance:
            filled = ((0, 0), (0, len(self.norms) - m))  # a metric with a score of its own
            return np.pad(M.bilinear(X, self.rows), filled, constant_values=-np.inf)
        left = M._by_core(M.image(X))
        if self.distance:
            left = np.column_stack([2 * left, np.ones(len(left))])
        scores = np.empty((X.shape[0], len(self.norms)))
        np.matmul(left, self.images.T, out=scores[:, :m])
        scores[:, m:] = -np.inf
        if M.alpha:
            scores[:, :m] += (1 + self.distance) * M.alpha * _times(X, self.shifted)
        return scores

    def candidates(self, X: Matrix) -> tuple[Indices, Indices, Floats]:
        """Queries and references that may be among the k nearest, and their scores.

        Derived in chapter 4 (neighbors), eqs. (neighbors-error), (neighbors-candidates) and
        (neighbors-groups).
        """
        X = X if self.mean is None else X - self.mean
        left = _norms(X)
        groups = self.scores(X).reshape(X.shape[0], -1, self.size)
        top = groups.max(axis=2)
        error = self.error * (left[:, None] + self.longest) ** 2
        bound = np.partition(top - error, -self.k, axis=1)[:, -self.k]
        rows, which = np.nonzero(top + error >= bound[:, None])
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
                scores[batch] = -self.exact.quadratic(gaps)
        return i, j, scores


# book/neighbors.ipynb#ranking
class _Copies:
    """Places of the equal references, for each distinct one at most a few."""

    def __init__(self, inverse: Indices, most: int) -> None:
        self.places = np.argsort(inverse, kind="stable")
        counts = np.bincount(inverse)
        self.first = np.cumsum(counts) - counts
        self.counts = np.minimum(counts, most)

    def of(self, distinct: Indices) -> tuple[Indices, Indices]:
        """Which entry each copy belongs to, and the copy's place."""
        counts = self.counts[distinct]
        entry = np.repeat(np.arange(len(distinct)), counts)
        nth = np.arange(len(entry)) - np.repeat(np.cumsum(counts) - counts, counts)
        return entry, self.places[self.first[distinct][entry] + nth]


def _block_size(n_references: int) -> int:
    """How many queries go at a time."""
    n = _NUMBERS_AT_A_TIME
    return max(1, n // n_references, min(n // 2**15, 4 * n // n_references))


# book/neighbors.ipynb#ranking
def _first(
    rows: Indices, distinct: Indices, scores: Floats, copies: _Copies, k: int, start: int | None
) -> tuple[Indices, Floats]:
    """The k nearest of each query of a block; with `start`, without the query itself."""
    entry, places = copies.of(distinct)
    rows = rows[entry]
    scores = scores[entry]
    if start is not None:
        other = places != rows + start
        rows = rows[other]
        scores = scores[other]
        places = places[other]
    order = np.lexsort((places, -scores, rows))
    begins = np.flatnonzero(np.diff(rows[order], prepend=-1))
    chosen = order[begins[:, None] + np.arange(k)]
    return places[chosen], scores[chosen]


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
        Rows to choose from.
    metric_type : {"similarity", "distance"}
        How the metric ranks.
    n_neighbors : int
        How many, from 1 to m (to m - 1 if `X` is None).

    Returns
    -------
    indices : ndarray of int, shape (n, n_neighbors)
        Rows of `references`; equal scores are ordered by row.
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
    (neighbors-groups). Rows that are equal have equal scores. Sparse rows are never made dense;
    memory beyond the arguments is bounded, whatever n is. Paper: section V.

    Examples
    --------
    >>> from lml.metrics import FactoredMetric
    >>> from lml.neighbors import k_nearest
    >>> line = [[0.0], [2.0], [5.0]]
    >>> k_nearest(FactoredMetric.identity(1), [[1.0]], line, "distance", 2)[0].tolist()
    [[0, 1]]
    """
    itself = X is None
    metric, queries, references = _prepared(metric, X, references, metric_type)
    k = _check_n_neighbors(n_neighbors, references.shape[0], itself)
    places, inverse = _distinct(references)
    copies = _Copies(inverse, k + itself)
    distinct = references if len(places) == len(inverse) else references[places]
    dense = not (sparse.issparse(queries) or sparse.issparse(references))
    ready = _References(metric, distinct, metric_type, k + itself, dense)
    blocks = gen_batches(queries.shape[0], _block_size(len(inverse)))
    found = [
        _first(*ready.ranked(queries[b]), copies, k, b.start if itself else None) for b in blocks
    ]
    empty = np.empty((0, k), dtype=np.intp), np.empty((0, k))
    indices, scores = zip(empty, *found, strict=True)
    return np.concatenate(indices), np.concatenate(scores)


# book/neighbors.ipynb#votes
def majority_vote(labels: ArrayLike) -> NDArray[Any]:
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
def _weighted_vote(codes: Indices, weights: Floats, n_votes: int) -> Indices:
    """The class number with most votes; weights (n, m) of neighbours, nearest first.

    Derived in chapter 4 (neighbors), eq. (neighbors-weighted-vote).
    """
    before = np.cumsum(weights, axis=1) - weights
    votes = np.clip(n_votes - before, 0, weights)
    rows = np.arange(len(codes))[:, None]
    table = np.zeros((len(codes), codes.max(initial=0) + 1))
    np.add.at(table, (rows, codes), votes)
    first = (table[rows, codes] == table.max(axis=1, keepdims=True)).argmax(axis=1)
    return codes[rows[:, 0], first]


# book/neighbors.ipynb#a-classifier
def _labels(y: LabelsLike) -> list[Any]:
    """The labels as they are, a list: an array would turn 1 and "1" into one class."""
    if isinstance(y, (list, tuple)) and not any(isinstance(v, (list, np.ndarray)) for v in y):
        return list(y)
    column = column_or_1d(y, warn=True)
    if np.ma.is_masked(y):  # a masked label is None
        column = np.ma.array(column, mask=np.ma.getmaskarray(np.ma.asarray(y)).ravel())
    return column.tolist()


def _as_array(labels: list[Any]) -> NDArray[Any]:
    """A list of labels as an array: of objects where another one would change them."""
    if any(all(isinstance(v, kind) for v in labels) for kind in (Real, str, bytes)):
        array = np.array(labels)
        if array.tolist() == labels:
            return array
    return np.fromiter(labels, dtype=object, count=len(labels))


# book/neighbors.ipynb#a-classifier
def _class_numbers(y: LabelsLike) -> tuple[Indices, list[Any]]:
    """Class of each row, numbered by first appearance, and the labels in that order."""
    labels = _labels(y)
    codes = []
    seen: dict[Any, int] = {}
    for row, label in enumerate(labels):
        if _is_missing(label):
            raise ValueError(f"y[{row}] is {label}: drop the rows without a label")
        try:
            codes.append(seen.setdefault(label, len(seen)))
        except TypeError:
            raise TypeError(
                f"y[{row}] is {label!r}, which is not hashable: use numbers, strings or tuples"
            ) from None
    _check_not_continuous(seen, len(labels))
    return np.array(codes, dtype=np.intp), list(seen)


# book/neighbors.ipynb#a-classifier
def _is_missing(label: Any) -> bool:
    """Whether a label stands for none: NaN, infinite, None, or a mark of numpy or pandas."""
    if isinstance(label, Decimal):
        return not label.is_finite()
    if isinstance(label, Real):
        return bool(label - label != 0)
    return type(label).__name__ in {"NoneType", "NAType", "NaTType", "MaskedConstant"}


def _check_not_continuous(labels: Collection[Any], n_rows: int) -> None:
    """Refuse numbers with fractions that hardly repeat, as in regression."""
    fractions = any(isinstance(label, (float, np.floating)) and label % 1 for label in labels)
    if fractions and len(labels) > max(10, n_rows / 2):
        raise ValueError(
            f"Unknown label type: continuous. y holds {len(labels)} different numbers, some with"
            f" fractions, in {n_rows} rows, as in regression: give classes"
        )


# book/neighbors.ipynb#a-classifier
def _sorted_classes(y: LabelsLike) -> tuple[NDArray[Any], Indices]:
    """The labels, sorted where they have an order, and the number of each row's label."""
    codes, labels = _class_numbers(y)
    try:
        order = sorted(range(len(labels)), key=labels.__getitem__)
    except TypeError:  # labels of several types
        order = list(range(len(labels)))
    if hasattr(y, "dtype"):  # keep it
        classes = column_or_1d(y)[np.unique(codes, return_index=True)[1][order]]
    else:
        classes = _as_array([labels[i] for i in order])
    return classes, np.argsort(order)[codes]


# book/neighbors.ipynb#a-classifier
class MetricKNeighborsClassifier(ClassifierMixin, BaseEstimator):
    """k-nearest-neighbour classifier under a metric that it learns first.

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
    references_ : {ndarray, csr_matrix} of shape (n, D)
        The training rows.
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

    def __init__(self, estimator: BaseEstimator | None = None, n_neighbors: int = 3) -> None:
        self.estimator = estimator
        self.n_neighbors = n_neighbors

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(self, X: MatrixLike, y: LabelsLike, sample_weight: WeightsLike | None = None) -> Self:
        """Learn the metric and keep the references.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, D)
            Rows.
        y : array-like of shape (n,)
            Labels of any hashable type.
        sample_weight : array-like of shape (n,), optional
            How many of the `n_neighbors` votes a row may take, at least 0: whole numbers
            are repetitions of the row. Not for an estimator that has yet to learn.

        Returns
        -------
        MetricKNeighborsClassifier
            The classifier itself.

        Raises
        ------
        ValueError, TypeError
            If X, y or a weight is not usable, there are fewer rows than neighbours, or
            `estimator` is no learner of a metric. The classifier is then what it was before.
        """
        learnt = copy.copy(self)
        learnt._fit(X, y, sample_weight)
        self.__dict__ = learnt.__dict__  # all at once: a fit that fails changes nothing
        return self

    def _weigh(self, sample_weight: WeightsLike | None, n_rows: int) -> slice | Indices:
        """Note the weights; the rows of weight above 0."""
        self._weights = None
        if sample_weight is None:
            _check_n_neighbors(self.n_neighbors, n_rows)
            return slice(None)
        if not (self.estimator is None or isinstance(self.estimator, FrozenEstimator)):
            raise ValueError(
                f"sample_weight is given, but repeated rows would change the metric that"
                f" {type(self.estimator).__name__} learns: repeat the rows, or fit the estimator"
                " first and give FrozenEstimator(estimator)"
            )
        weights = _check_weights(sample_weight, n_rows)
        kept = np.flatnonzero(weights)
        self._weights = weights[kept]
        _n_voters(self._weights, self.n_neighbors)
        return kept

    def _fit(self, X: MatrixLike, y: LabelsLike | None, sample_weight: WeightsLike | None) -> None:
        codes: Indices | None = None  # validate_data says what to do about None
        if y is not None:
            self.classes_, codes = _sorted_classes(y)
        kwargs = {"accept_sparse": "csr", "ensure_all_finite": False}
        X, codes = validate_data(self, _plain(X), codes, dtype=np.float64, **kwargs)
        _check_finite(X, "X")
        _check_size(X, "X")
        kept = self._weigh(sample_weight, X.shape[0])
        self._codes = codes[kept]
        self.estimator_ = None
        self.references_ = X[kept].copy()
        if self.estimator is not None:
            _check_two_classes(self.classes_)
            self.estimator_ = _unfitted(self.estimator, "estimator")
            _fitted_metric(self.estimator_, "estimator", X, codes)

    def _metric(self) -> tuple[FactoredMetric, str]:
        if self.estimator_ is None:
            return FactoredMetric.identity(self.n_features_in_), "distance"
        return _learnt_metric(self.estimator_, "estimator")

    def kneighbors(
        self, X: MatrixLike | None = None, n_neighbors: int | None = None
    ) -> tuple[Indices, Floats]:
        """Nearest references of the rows of X (n, D), nearest first.

        With X = None, those of each reference without itself (leave one out). Returns
        the indices and the scores, both (n, n_neighbors), as `k_nearest` does.
        """
        check_is_fitted(self, "references_")
        if X is not None:
            kwargs = {"accept_sparse": "csr", "ensure_all_finite": False}  # k_nearest says where
            X = validate_data(self, _plain(X), dtype=np.float64, reset=False, **kwargs)
        k = self.n_neighbors if n_neighbors is None else n_neighbors
        metric, metric_type = self._metric()
        return k_nearest(metric, X, self.references_, metric_type, k)

    def predict(self, X: MatrixLike) -> NDArray[Any]:
        """Labels of the rows of X (n, D), an array of shape (n,)."""
        check_is_fitted(self, "references_")
        if self._weights is None:
            return self.classes_[majority_vote(self._codes[self.kneighbors(X)[0]])]
        indices, _ = self.kneighbors(X, _n_voters(self._weights, self.n_neighbors))
        votes = self._codes[indices], self._weights[indices]
        return self.classes_[_weighted_vote(*votes, self.n_neighbors)]

    def score(
        self, X: MatrixLike, y: LabelsLike, sample_weight: WeightsLike | None = None
    ) -> float:
        """Share of the rows of X (n, D) whose predicted label equals that in y (n,)."""
        return _hit_share(self.predict(X), y, sample_weight)


# book/neighbors.ipynb#a-classifier
def _unfitted(learner: Any, parameter: str) -> Any:
    """A clone of a learner; an error names the parameter that holds something else."""
    methods = all(hasattr(learner, name) for name in ("fit", "get_params"))
    if isinstance(learner, type) or not methods:
        raise TypeError(
            f"{parameter} is {learner!r}: give an instance of a metric learner, such as OASIS()"
        )
    return clone(learner)


def _check_two_classes(classes: NDArray[Any]) -> None:
    """Refuse a single label, by its name: the learner sees numbers only."""
    if len(classes) < 2:
        raise ValueError(
            f"y holds one class only ({classes.tolist()[0]!r}), so there is no dissimilar pair:"
            " give rows of at least two classes, or use no estimator"
        )


def _fitted_metric(
    learner: Any, parameter: str, X: Matrix, y: NDArray[Any]
) -> tuple[FactoredMetric, str]:
    """The metric and the metric type that a learner finds; an error names the parameter."""
    metric, kind = _learnt_metric(learner.fit(X, y), parameter)
    if metric.n_features != X.shape[1]:
        raise ValueError(
            f"{parameter} gives a metric of {metric.n_features} features, but X has {X.shape[1]}:"
            " use a learner that keeps the features"
        )
    return metric, kind


# book/neighbors.ipynb#a-classifier
def _check_weights(sample_weight: WeightsLike, n_rows: int) -> Floats:
    """The weights of the rows, finite, none below 0, some above it."""
    weights = check_array(
        _plain(sample_weight, "sample_weight"),
        ensure_2d=False,
        dtype=np.float64,
        input_name="sample_weight",
    )
    if weights.shape != (n_rows,):
        raise ValueError(f"sample_weight has shape {weights.shape}: give ({n_rows},), one a row")
    if weights.min() < 0:
        row = int(weights.argmin())
        raise ValueError(f"sample_weight[{row}] is {weights[row]}: give weights of at least 0")
    if not weights.max() <= np.finfo(float).max / len(weights):
        raise ValueError(f"sample_weight of size {weights.max():.3g} overflows in sums: scale it")
    if not weights.any():
        raise ValueError("sample_weight: all weights are zero, give one above it at least")
    return weights


# book/neighbors.ipynb#a-classifier
def _weighted_share(hits: ArrayLike, sample_weight: WeightsLike | None) -> float:
    """Mean of hits, by the weights of the rows if there are any."""
    hits = np.asarray(hits, dtype=float)
    if sample_weight is not None:
        sample_weight = _check_weights(sample_weight, len(hits))
    return float(np.average(hits, weights=sample_weight))


def _hit_share(
    predicted: NDArray[Any], y: LabelsLike, sample_weight: WeightsLike | None = None
) -> float:
    """Share of the predicted labels that equal those of y."""
    guesses = predicted.tolist()
    labels = _labels(y)
    check_consistent_length(guesses, labels, sample_weight)
    hits = [a == b for a, b in zip(guesses, labels, strict=True)]
    return _weighted_share(hits, sample_weight)


# book/neighbors.ipynb#a-classifier
def _n_voters(weights: Floats, n_votes: int) -> int:
    """How many neighbours have n_votes votes together, whoever they are."""
    total = np.cumsum(np.sort(weights))
    if _check_n_neighbors(n_votes, np.inf) > round(total[-1], 9):
        raise ValueError(
            f"sample_weight sums to {total[-1]:g}, but n_neighbors is {n_votes}: ask for fewer"
            " neighbours, or give larger weights or more rows"
        )
    return 1 + int(np.searchsorted(total[:-1], n_votes))
