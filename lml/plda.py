# Generated from book/plda.ipynb by tools/tangle.py: edit the chapter.
"""Lifelong probabilistic LDA: second-order statistics of all tasks in one dictionary.

`LifelongPLDA` writes the within-class and between-class scatter of each task in a shared
dictionary, weighs a task's own statistics against those of all tasks, and scores two rows by
the log-ratio of the two-covariance model. No row is kept.
"""

import copy
import os
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial, reduce
from itertools import islice
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg, sparse
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_array, check_consistent_length, check_random_state
from sklearn.utils.extmath import safe_sparse_dot

from lml.fisher import _class_means, _leading, fisher_directions
from lml.initialisation import _residual_directions, orthonormal_rows
from lml.lifelong import (
    _check_choice,
    _check_classes,
    _check_hashable,
    _check_name,
    _check_number,
    _check_rows,
    _check_seed,
    _check_table,
    _columns,
    _fits,
    _lock,
)
from lml.metrics import FactoredMetric, _as_matrix, _Floats, _Matrix, _MatrixLike, _Places, _plain
from lml.neighbors import _class_numbers, _LabelsLike
from lml.penalties import OffDiagonalL1
from lml.single_task import TaskMetricsMixin
from lml.state import (
    about,
    decode,
    decode_parameters,
    encode,
    encode_parameters,
    expect,
    read_state,
    reading,
    write_state,
)
from lml.triplets import _Seed

__all__ = [
    "Follow",
    "LifelongPLDA",
    "LogRatioMetric",
    "Moments",
    "PLDAState",
    "Pool",
    "TaskMemory",
    "log_ratio_coefficients",
    "pooled_scatters",
    "remembered_moments",
    "shrunken_variances",
    "whitened_rows",
]


def log_ratio_coefficients(between: ArrayLike) -> tuple[_Floats, _Floats, float]:
    """Coefficients of the log-ratio in coordinates with within-class covariance I.

    Parameters
    ----------
    between : array-like of shape (k,)
        Between-class variances p >= 0 of the coordinates.

    Returns
    -------
    product : ndarray of shape (k,)
        p / (1 + 2p), of the products x_i z_i.
    square : ndarray of shape (k,)
        p^2 / ((1 + p)(1 + 2p)), of -x_i^2 / 2 and -z_i^2 / 2.
    constant : float
        Sum of log(1 + p) - log(1 + 2p) / 2.

    Notes
    -----
    Derived in chapter 25 (plda), eq. (plda-ratio).

    Examples
    --------
    >>> product, square, constant = log_ratio_coefficients([1.0])
    >>> round(product.item(), 4), round(square.item(), 4), round(constant, 4)
    (0.3333, 0.1667, 0.1438)
    """
    p = np.asarray(between, dtype=float)
    product, square = p / (1 + 2 * p), p * p / ((1 + p) * (1 + 2 * p))
    return product, square, float(np.sum(np.log1p(p) - 0.5 * np.log1p(2 * p)))


def _log_ratios(between: _Floats, Q: _Floats, R: _Floats) -> _Floats:
    """Log-ratios (n, m) of rows of coordinates Q (n, k) and R (m, k)."""
    product, square, constant = log_ratio_coefficients(between)
    own = 0.5 * (Q * Q) @ square
    return (Q * product) @ R.T - own[:, None] - 0.5 * (R * R) @ square + constant


class LogRatioMetric(FactoredMetric):
    """The log-ratio of same and different class, as a metric that ranks rows.

    M = H' diag(p / (1 + 2p)) H is its bilinear part. `bilinear`, `paired` and `quadratic` give
    the log-ratio; every other operation is that of M.

    Parameters
    ----------
    mean : array-like of shape (n_features,)
        Is subtracted from all rows.
    rows : array-like of shape (k, n_features)
        H: in the coordinates H(x - mean) the within-class covariance is I and the
        between-class covariance diagonal.
    between : array-like of shape (k,)
        Its diagonal p, at least 0.

    Notes
    -----
    Derived in chapter 25 (plda), eqs. (plda-ratio) and (plda-diagonal).

    Examples
    --------
    >>> metric = LogRatioMetric([1.0, 0.0], [[1.0, 0.0]], [1.0])
    >>> metric.bilinear([[2.0, 5.0]], [[3.0, 0.0]]).round(4).tolist()
    [[0.3938]]
    """

    def __init__(self, mean: _MatrixLike, rows: _MatrixLike, between: _MatrixLike) -> None:
        between = _as_matrix(between, "between")
        if (between < 0).any():
            raise ValueError(f"between holds {between.min()}: variances are at least 0")
        super().__init__(0.0, rows, log_ratio_coefficients(between)[0], np.size(mean))
        self._mean, self._between = _as_matrix(mean, "mean"), between
        self._shift = self.factor @ self._mean

    def __reduce__(self) -> tuple[Any, ...]:
        return (LogRatioMetric, (self._mean, self.factor, self._between))

    @property
    def mean(self) -> _Floats:
        """What is subtracted from all rows, shape (n_features,)."""
        return self._mean

    @property
    def between(self) -> _Floats:
        """Between-class variances p of the coordinates, shape (k,)."""
        return self._between

    @property
    def nbytes(self) -> int:
        """Bytes of the rows, the variances and the mean."""
        return super().nbytes + self._between.nbytes + self._mean.nbytes

    def coordinates(self, X: _MatrixLike) -> _Floats:
        """Coordinates H(x - mean) of the rows of X (n, n_features), shape (n, k)."""
        return self.image(X) - self._shift

    def bilinear(self, X: _MatrixLike, Z: _MatrixLike) -> _Floats:
        """Log-ratios of all pairs of rows of X (n, n_features) and Z (m, n_features)."""
        return _log_ratios(self._between, self.coordinates(X), self.coordinates(Z))

    def paired(self, X: _MatrixLike, Z: _MatrixLike) -> _Floats:
        """Log-ratios of matching rows of X and Z, both (n, n_features), shape (n,)."""
        Q, R = self.coordinates(X), self.coordinates(Z)
        if Q.shape != R.shape:
            raise ValueError(f"X has {len(Q)} rows, but Z has {len(R)}: pass as many")
        product, square, constant = log_ratio_coefficients(self._between)
        return (Q * R) @ product - 0.5 * (Q * Q + R * R) @ square + constant

    def symmetrized(self) -> "LogRatioMetric":
        """The log-ratio is symmetric already: the metric itself."""
        return self

    def psd(self) -> "LogRatioMetric":
        """Its bilinear part is positive semi-definite: the metric itself."""
        return self

    def map_rows(self, X: _MatrixLike, role: str) -> _Floats:
        """Rows of X (n, n_features) as "query" or "reference": Euclidean nearest = log-ratio.

        Derived in chapter 25 (plda), eq. (plda-stretch). Coordinates with p = 0 are left out, shape
        (n, k').
        """
        used = self._between > 0
        p, rows = self._between[used], self.coordinates(X)[:, used]
        square = log_ratio_coefficients(p)[1]
        return rows * np.sqrt(square) * ((1 + p) / p if role == "query" else 1.0)

    def components(self, max_features: int = 4096) -> _Floats:
        """A map L (k', n_features) with L'L = M; coordinates with p = 0 are left out."""
        used = self._between > 0
        return np.sqrt(self.core[used])[:, None] * self.factor[used]

    def embed(self, X: _MatrixLike) -> _Floats:
        """Rows L(x - mean), (n, k'): inner products are the bilinear part of the log-ratio."""
        used = self._between > 0
        return self.coordinates(X)[:, used] * np.sqrt(self.core[used])


class Moments(NamedTuple):
    """Counts, means and within-class scatter of labelled rows, in some coordinates.

    Attributes
    ----------
    labels : tuple
        Of the c classes.
    counts : ndarray of shape (c,)
        Rows of each class.
    means : ndarray of shape (c, k)
        Class means, with the mean of all rows at 0.
    within : ndarray of shape (k, k)
        Sum over rows of the outer products of their deviations from the class mean.
    trace : float
        Trace of the within scatter in the input space.
    n_features : int
        Dimensions of the input space.

    Notes
    -----
    Derived in chapter 25 (plda), eqs. (plda-scatters) and (plda-tail).
    """

    labels: tuple[Any, ...]
    counts: _Places
    means: _Floats
    within: _Floats
    trace: float
    n_features: int

    @property
    def scale(self) -> float:
        """What both scatters are divided by."""
        between = float(self.counts @ np.sum(self.means**2, axis=1))
        within = self.trace if self.trace > 1e-12 * between else between
        return (within or 1.0) / self.n_features

    @property
    def unit(self) -> float:
        """Mean within-class variance of a feature."""
        return self.scale / max(int(self.counts.sum()) - len(self.counts), 1)

    @property
    def scatter(self) -> _Floats:
        """The scaled within scatter S_t, (k, k)."""
        return self.within / self.scale

    @property
    def spread(self) -> _Floats:
        """Rows (c, k) whose scatter is the scaled between scatter B_t."""
        return np.sqrt(self.counts / self.scale)[:, None] * self.means


def _moments(
    X: _Matrix, codes: _Places, labels: Sequence[Any], basis: _Floats | None = None
) -> tuple[Moments, _Floats]:
    """Moments of rows (dense or CSR) in the coordinates of an orthonormal basis, and their mean."""
    counts, means = _class_means(X, codes)
    mean = counts @ means / len(codes)
    Y = X if basis is None else safe_sparse_dot(X, basis.T, dense_output=True)
    Y = Y.toarray() if sparse.issparse(Y) else Y
    image = means if basis is None else means @ basis.T
    R = Y - image[codes]
    squares = (X.multiply(X) if sparse.issparse(X) else X * X).sum()
    trace = float(squares - counts @ np.sum(means**2, axis=1))
    if basis is None or len(basis) == X.shape[1] or trace < 1e-12 * squares:
        trace = float(np.sum(R * R))  # no cancellation
    centred = image - counts @ image / len(codes)
    return Moments(tuple(labels), counts, centred, R.T @ R, trace, X.shape[1]), mean


def _merged(a: Moments, b: Moments, shift: _Floats) -> Moments:
    """Moments of two sets of rows together; shift is the mean of b's rows less that of a's."""
    n, m = a.counts.sum(), b.counts.sum()
    labels = tuple(dict.fromkeys((*a.labels, *b.labels)))
    place = {label: number for number, label in enumerate(labels)}
    counts, sums, parts = np.zeros(len(labels), dtype=int), np.zeros((len(labels), len(shift))), []
    for part, move in ((a, -m / (n + m) * shift), (b, n / (n + m) * shift)):
        places = [place[label] for label in part.labels]
        parts.append((places, part.counts, part.means + move))
        counts[places] += part.counts
        sums[places] += part.counts[:, None] * parts[-1][2]
    means = sums / counts[:, None]
    gaps = [np.sqrt(k)[:, None] * (own - means[places]) for places, k, own in parts]
    gap = np.concatenate(gaps)
    within, trace = a.within + b.within + gap.T @ gap, a.trace + b.trace + np.sum(gap**2)
    return Moments(labels, counts, means, within, float(trace), a.n_features)


def _joint(moments: Sequence[Moments]) -> Moments:
    """Moments of the rows of several tasks together, each task's mean at 0."""
    joined = moments[0]
    for m in moments[1:]:
        joined = _merged(joined, m, np.zeros(joined.means.shape[1]))
    return joined


def pooled_scatters(
    moments: Sequence[Moments], shared_labels: bool = False
) -> tuple[_Floats, _Floats]:
    """What several tasks say together about within-class and between-class scatter.

    Parameters
    ----------
    moments : list of Moments
        Of the tasks, in the same coordinates.
    shared_labels : bool, default=False
        Whether a label means the same class in every task. False averages the tasks'
        scatters; True joins the rows of a class over tasks.

    Returns
    -------
    within : ndarray of shape (k, k)
        S, scaled.
    spread : ndarray of shape (r, k)
        Rows with spread' spread = B.

    Notes
    -----
    Derived in chapter 25 (plda), eqs. (plda-pooled) and (plda-keyed).
    """
    if not shared_labels:
        within = np.mean([m.scatter for m in moments], axis=0)
        return within, np.concatenate([m.spread for m in moments]) / np.sqrt(len(moments))
    joined = _joint(moments)
    return joined.scatter, joined.spread


def _discriminants(
    omega: _Floats, spread: _Floats, complete: bool = False
) -> tuple[_Floats, _Floats]:
    """V (k, r) and psi (r,), falling: V' omega V = I, V' spread' spread V = diag(psi).

    Without `complete` only as many columns as `spread` has rows, or k.
    """
    lower = linalg.cholesky(omega, lower=True, check_finite=False)
    half = linalg.solve_triangular(lower, spread.T, lower=True, check_finite=False)
    full = complete and half.shape[1] < len(half)
    U, s, _ = linalg.svd(half, full_matrices=full, check_finite=False)
    psi = np.zeros(U.shape[1])
    psi[: len(s)] = s * s
    V = linalg.solve_triangular(lower, U, lower=True, trans=1, check_finite=False)
    return V, psi


def whitened_rows(
    within: _Floats, spread: _Floats, regularization: float, n_components: int
) -> _Floats:
    """Rows T of a dictionary: T (S + rho I) T' = I, T B T' diagonal and falling.

    Parameters
    ----------
    within : ndarray of shape (k, k)
        S.
    spread : ndarray of shape (r, k)
        With spread' spread = B.
    regularization : float
        rho > 0.
    n_components : int
        Most rows. Fewer than k: half of them are the best discriminants, the others the
        leading principal directions that are left.

    Returns
    -------
    ndarray of shape (min(n_components, k), k)

    Notes
    -----
    Derived in chapter 25 (plda), eqs. (plda-dictionary) and (plda-span).
    """
    k = len(within)
    Z, sigma = np.eye(k), within + regularization * np.eye(k)
    if n_components < k:
        best = _leading(within, spread, regularization, max(1, n_components // 2))
        best = orthonormal_rows(best)
        outside = np.eye(k) - best.T @ best
        _, principal = linalg.eigh(outside @ (within + spread.T @ spread) @ outside)
        Z = np.concatenate([best, principal.T[::-1][: n_components - len(best)]])
    sigma = Z @ sigma @ Z.T
    V, _ = _discriminants((sigma + sigma.T) / 2, spread @ Z.T, complete=True)
    T = V.T @ Z
    largest = np.take_along_axis(T, np.argmax(np.abs(T), axis=1)[:, None], axis=1)
    return T * np.sign(largest)


@dataclass(frozen=True, eq=False)
class TaskMemory:
    """What a `LifelongPLDA` keeps of a task; no rows.

    Attributes
    ----------
    number : int
        Position in the order of first appearance, from 0.
    classes : tuple
        Labels, in the order in which they were first seen.
    counts : ndarray of shape (c,)
        Rows of each class.
    mean : ndarray of shape (n_features,)
        Mean of the task's rows.
    code : ndarray of shape (d, d)
        N_t, the within-class scatter (with rho I) in the dictionary.
    class_means : ndarray of shape (c, d)
        Scaled class means in the dictionary.
    trace : float
        Trace of the unscaled within scatter.
    scale : float
        What the scatters are divided by.
    family : int
        Tasks of one family share their statistics.
    losses : ndarray of shape (n_weights, n_shrinkages)
        Validation loss at the last visit for each own weight and shrinkage that was tried.
    n_visits : int
        Calls of ``partial_fit``.
    frozen : LogRatioMetric or None
        The read-out at the last visit, where answers must not change.
    moves : int
        Moves of the dictionary before the code and the class means were written.
    """

    number: int
    classes: tuple[Any, ...]
    counts: _Places
    mean: _Floats
    code: _Floats
    class_means: _Floats
    trace: float
    scale: float
    family: int
    losses: _Floats
    n_visits: int
    frozen: LogRatioMetric | None = None
    moves: int = 0

    @property
    def n_rows(self) -> int:
        """Rows over all visits that count."""
        return int(self.counts.sum())

    @property
    def unit(self) -> float:
        """Mean within-class variance of a feature; rows are measured in its root."""
        return self.scale / max(self.n_rows - len(self.counts), 1)

    @property
    def guesses(self) -> bool:
        """Whether its validation cannot be told from guessing: it has nothing to give."""
        return _guesses(float(self.losses.min()), self.counts)

    @property
    def spread(self) -> _Floats:
        """F_t: rows whose scatter is the task's between-class scatter in the dictionary."""
        return np.sqrt(self.counts)[:, None] * self.class_means

    def __post_init__(self) -> None:
        """Lock its arrays: nobody changes them by accident."""
        for array in (self.counts, self.mean, self.code, self.class_means, self.losses):
            array.flags.writeable = False

    def __reduce__(self) -> tuple[Any, ...]:
        return TaskMemory, tuple(vars(self).values())  # a copy is locked too


@dataclass(frozen=True, eq=False)
class PLDAState:
    """Everything that a `LifelongPLDA` has learned; replaced as a whole, never changed.

    Attributes
    ----------
    dictionary : ndarray of shape (d, n_features)
        L.
    tasks : tuple of (task, TaskMemory)
        In the order of first appearance.
    families : dict
        Family to its within code (d, d) and its spread (r, d), r <= d.
    regularization : float
        rho with which the codes were made.
    root : int
        Seed of the folds.
    columns : tuple of str or None
        Names of the features, when the first task was a data frame.
    pools : dict
        Sums over tasks: under None the `Pool` of all, under (family, guesses) that of the
        family's tasks that cannot, or can, be told from guessing. Empty until there are more
        tasks than a visit takes into account one by one.
    move : Follow or None
        How a code in the dictionary before its last move becomes one in the present dictionary;
        None when no code waits for it.
    moves : int
        Moves of the dictionary since there are sums.
    """

    dictionary: _Floats
    tasks: tuple[tuple[Hashable, TaskMemory], ...]
    families: dict[int, tuple[_Floats, _Floats]]
    regularization: float
    root: int
    columns: tuple[Any, ...] | None = None
    pools: "dict[tuple[int, bool] | None, Pool]" = field(default_factory=dict)
    move: "Follow | None" = None
    moves: int = 0

    def __post_init__(self) -> None:
        """Lock the shared arrays, as each memory has locked its own."""
        for array in (self.dictionary, *(part for pair in self.families.values() for part in pair)):
            array.flags.writeable = False

    def __reduce__(self) -> tuple[Any, ...]:
        return PLDAState, tuple(vars(self).values())  # a copy is locked too

    def current(self, memory: TaskMemory) -> TaskMemory:
        """A memory, its code written in the dictionary as it is now."""
        if self.move is None or memory.moves == self.moves:
            return memory
        return _followed(memory, self.move, self.regularization, self.moves)

    def parts(self, family: int) -> "list[Pool]":
        """Sums over the tasks of a family, those that guess apart."""
        return [pool for key, pool in self.pools.items() if key is not None and key[0] == family]

    def shared(self, family: int) -> tuple[_Floats, _Floats]:
        """Within code (d, d) and spread of a family."""
        if family in self.families:
            return self.families[family]
        pool = reduce(Pool.plus, self.parts(family))
        T = self.dictionary @ _span(self.dictionary).T
        within, spread = pool.scatters(shared_labels=True)
        return _code(within, T, self.regularization), spread @ T.T


def _extended(Q: _Floats, rows: _Floats) -> _Floats:
    """Orthonormal rows: those of Q as they are, then the parts of other rows outside."""
    rows = rows[np.any(rows, axis=1)]
    for _ in range(2):  # once more for what rounding has left
        rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        rows = rows - (rows @ Q.T) @ Q
        rows = rows[np.linalg.norm(rows, axis=1) > 1e-8]
    return np.concatenate([Q, orthonormal_rows(rows)])


def remembered_moments(
    memory: TaskMemory,
    dictionary: _Floats,
    regularization: float,
    basis: _Floats,
    back: _Floats | None = None,
) -> Moments:
    """Moments of a task, from its memory, in the coordinates of an orthonormal basis.

    Parameters
    ----------
    memory : TaskMemory
    dictionary : ndarray of shape (d, n_features)
        In which its code is written.
    regularization : float
        rho in the code.
    basis : ndarray of shape (k, n_features)
        Orthonormal rows that begin with a basis of the dictionary, or that span the
        input space.
    back : ndarray of shape (d, d), optional
        Inverse of dictionary @ basis[:d].T, where it is known.

    Returns
    -------
    Moments

    Notes
    -----
    Derived in chapter 25 (plda), eqs. (plda-move) and (plda-tail).
    """
    (d, D), k = dictionary.shape, len(basis)
    back = linalg.inv(dictionary @ basis[:d].T) if back is None else back
    scatter = back @ memory.code @ back.T - regularization * np.eye(d)
    if memory.trace <= 1e-12 * D * memory.scale:
        scatter = np.zeros((d, d))  # of one whose rows are all means, rounding would be left
    within = np.zeros((k, k))
    within[:d, :d] = memory.scale * (scatter + scatter.T) / 2
    tail = max(memory.trace - np.trace(within), 0.0) / max(D - d, 1)
    within[range(d, k), range(d, k)] = tail
    means = np.zeros((len(memory.counts), k))
    means[:, :d] = np.sqrt(memory.scale) * memory.class_means @ back.T
    return Moments(memory.classes, memory.counts, means, within, memory.trace, D)


def _basis(
    X: _Matrix,
    y: _Places,
    L: _Floats | None,
    n_components: int,
    regularization: float,
    rng: np.random.Generator,
) -> _Floats:
    """Orthonormal rows that hold the dictionary and the leading directions of new rows."""
    D = X.shape[1]
    if n_components >= D and (L is None or len(L) == D):
        return np.eye(D)
    Q = np.zeros((0, D)) if L is None else orthonormal_rows(L)
    Q = _extended(Q, fisher_directions(X, y, None, regularization))
    more = min(n_components, D - len(Q))
    Q = _extended(Q, _residual_directions(Q, X, more, True, rng)) if more > 0 else Q
    return Q if len(Q) else np.eye(1, D)  # rows of zeros


class Follow(NamedTuple):
    """What takes scatters and rows written in a dictionary to other rows.

    Attributes
    ----------
    map : ndarray of shape (m, d)
        A.
    outside : ndarray of shape (m, m)
        K, of the part outside the span of the dictionary.
    gram : ndarray of shape (d, d)
        R'R.
    n_outside : int
        D - d.

    Notes
    -----
    Derived in chapter 25 (plda), eq. (plda-follow).
    """

    map: _Floats
    outside: _Floats
    gram: _Floats
    n_outside: int

    def scatter(self, code: _Floats, trace: float) -> _Floats:
        """A scatter whose trace in the input space is known, (m, m), symmetric."""
        moved = self.map @ code @ self.map.T
        if self.n_outside:
            rest = max(trace - float(np.sum(self.gram * code)), 0.0) / self.n_outside
            moved = moved + rest * self.outside
        return (moved + moved.T) / 2


def _follow(L: _Floats, rows: _Floats) -> Follow:
    """From the dictionary L (d, D) to other rows (m, D)."""
    d, D = L.shape
    if d == D:
        R = linalg.inv(L)
        return Follow(rows @ R, np.zeros((len(rows), len(rows))), R.T @ R, 0)
    Q = orthonormal_rows(L)
    R, inside = linalg.inv(L @ Q.T), rows @ Q.T
    return Follow(inside @ R, rows @ rows.T - inside @ inside.T, R.T @ R, D - d)


def _followed(memory: TaskMemory, move: Follow, regularization: float, moves: int) -> TaskMemory:
    """A memory after a move of the dictionary."""
    trace = _full_trace(memory, regularization, move.gram.shape[0] + move.n_outside)
    code, means = move.scatter(memory.code, trace), memory.class_means @ move.map.T
    return replace(memory, code=code, class_means=means, moves=moves)


def _full_trace(memory: TaskMemory, regularization: float, n_features: int) -> float:
    """Trace of S_t + rho I in the input space."""
    return memory.trace / memory.scale + regularization * n_features


def _parted(a: Moments, b: Moments) -> Moments:
    """Moments of a without the rows of b, which are among them."""
    place = {label: number for number, label in enumerate(a.labels)}
    places = [place[label] for label in b.labels]
    counts, sums = a.counts.copy(), a.counts[:, None] * a.means
    counts[places] -= b.counts
    sums[places] -= b.counts[:, None] * b.means
    left = np.flatnonzero(counts)
    n, means = counts[left], sums[left] / counts[left, None]
    gaps = [np.sqrt(n)[:, None] * (means - a.means[left])]
    gaps.append(np.sqrt(b.counts)[:, None] * (b.means - a.means[places]))
    gap = np.concatenate(gaps)
    within, trace = a.within - b.within - gap.T @ gap, a.trace - b.trace - np.sum(gap**2)
    labels = tuple(a.labels[number] for number in left)
    return Moments(labels, n, means, within, max(float(trace), 0.0), a.n_features)


def _span(L: _Floats) -> _Floats:
    """Orthonormal rows of the span of a dictionary."""
    return np.eye(len(L)) if len(L) == L.shape[1] else orthonormal_rows(L)


@dataclass(frozen=True, eq=False)
class Pool:
    """Sums of the statistics of tasks, in coordinates of an orthonormal basis.

    Attributes
    ----------
    size : int
        Number of tasks.
    within, between : ndarray of shape (k, k)
        Sums of S_t and of B_t.
    trace : float
        Of the sum of S_t, in the input space.
    joined : Moments or None
        Of all rows, those of one label together, where labels are shared.
    losses : dict
        Shape of a table of losses to the number of tasks that have such a one, and their sum.
    rows : ndarray of shape (k, k) or None
        Sum of the tasks' own within-class scatters, where labels are shared.
    rows_trace : float
        Its trace in the input space.

    Notes
    -----
    Derived in chapter 25 (plda), eqs. (plda-sums) and (plda-part).
    """

    size: int
    within: _Floats
    between: _Floats
    trace: float
    joined: Moments | None
    losses: dict[tuple[int, ...], tuple[int, _Floats]]
    rows: _Floats | None = None
    rows_trace: float = 0.0

    @property
    def arrays(self) -> list[NDArray[Any]]:
        """All that is kept in arrays."""
        tables = [table for _, table in self.losses.values()]
        joined = [] if self.joined is None else list(self.joined[1:4])
        rows = [] if self.rows is None else [self.rows]
        return [self.within, self.between, *tables, *joined, *rows]

    def __post_init__(self) -> None:
        """Lock all arrays."""
        for array in self.arrays:
            array.flags.writeable = False

    def __reduce__(self) -> tuple[Any, ...]:
        return Pool, tuple(getattr(self, name.name) for name in fields(self))

    def plus(self, other: "Pool") -> "Pool":
        """The sums over the tasks of both."""
        return self._changed(other, 1, lambda a, b: _merged(a, b, np.zeros(len(a.within))))

    def less(self, other: "Pool") -> "Pool":
        """The sums without tasks that are in them."""
        return self._changed(other, -1, _parted)

    def _changed(
        self, other: "Pool", sign: int, join: Callable[[Moments, Moments], Moments]
    ) -> "Pool":
        joined = join(self.joined, other.joined) if self.joined and other.joined else None
        a, b = self.rows, other.rows
        rows = None if a is None or b is None else a + sign * b
        within, between = self.within + sign * other.within, self.between + sign * other.between
        losses = self._losses_with(other, sign)
        n, trace = self.size + sign * other.size, max(self.trace + sign * other.trace, 0.0)
        rows_trace = max(self.rows_trace + sign * other.rows_trace, 0.0)
        return Pool(n, within, between, trace, joined, losses, rows, rows_trace)

    def _losses_with(self, other: "Pool", sign: int) -> dict[tuple[int, ...], tuple[int, _Floats]]:
        """Sums of tables of losses with those of other tasks, or without them."""
        losses = dict(self.losses)
        for shape, (n, table) in other.losses.items():
            count, known = losses.pop(shape, (0, np.zeros(shape)))
            if count + sign * n:
                losses[shape] = count + sign * n, np.maximum(known + sign * table, 0.0)
        return losses

    def moved(self, move: Follow) -> "Pool":
        """The sums in other coordinates."""
        joined, rows, A = self.joined, self.rows, move.map
        if joined is not None and rows is not None:
            gaps = A @ (joined.within - rows) @ A.T  # of class means: nothing of them is outside
            rows, gaps = move.scatter(rows, self.rows_trace), (gaps + gaps.T) / 2
            joined = joined._replace(means=joined.means @ A.T, within=rows + gaps)
            joined = joined._replace(trace=self.rows_trace + float(np.trace(gaps)))
        within, between = move.scatter(self.within, self.trace), A @ self.between @ A.T
        between = (between + between.T) / 2
        return replace(self, within=within, between=between, joined=joined, rows=rows)

    @cached_property
    def spread(self) -> _Floats:
        """Rows whose scatter is the sum of B_t."""
        values, V = linalg.eigh(self.between)
        used = values > values[-1] * len(values) * np.finfo(float).eps
        return (V * np.sqrt(np.where(used, values, 0.0))).T[used | (values == values[-1])]

    def scatters(
        self, own: Moments | None = None, shared_labels: bool = False
    ) -> tuple[_Floats, _Floats]:
        """Within scatter and spread of these tasks and one more, as `pooled_scatters` has them."""
        if shared_labels and self.joined is not None:
            joined = self.joined
            joined = joined if own is None else _merged(joined, own, np.zeros(len(joined.within)))
            return joined.scatter, joined.spread
        within, rows, size = self.within, self.spread, self.size
        if own is not None:
            within, rows, size = within + own.scatter, np.concatenate([rows, own.spread]), size + 1
        return within / size, rows / np.sqrt(size)


def _pool(memory: TaskMemory, moments: Moments, shared_labels: bool) -> Pool:
    """The sums of one task."""
    F, losses = moments.spread, {memory.losses.shape: (1, memory.losses)}
    parts = moments.scatter, F.T @ F, memory.trace / memory.scale
    if not shared_labels:
        return Pool(1, *parts, None, losses)
    return Pool(1, *parts, moments, losses, moments.within, moments.trace)


def _drowned(rest: Pool, whole: Pool) -> bool:
    """Whether so little is left of sums that rounding could show."""
    sizes = []
    for pool in (rest, whole):
        parts = [pool.trace, float(np.trace(pool.between))]
        if pool.joined is not None:
            between = pool.joined.counts @ np.sum(pool.joined.means**2, axis=1)
            parts += [pool.joined.trace, float(between)]
        sizes.append(np.array(parts))
    return bool(np.any(sizes[0] < 1e-6 * sizes[1]))


_Key = tuple[int, bool] | None


def _pools(state: PLDAState, shared_labels: bool, wanted: Any = None) -> dict[_Key, Pool]:
    """Sums over the tasks of a state, made anew; all, or those with a wanted key."""
    Q, pools = _span(state.dictionary), dict[_Key, Pool]()
    keys = {u: _keys(m) for u, m in state.tasks}
    chosen = {u: m for u, m in state.tasks if wanted is None or set(wanted) & set(keys[u])}
    for u, moments in _all_moments(state, chosen, Q).items():
        own = _pool(chosen[u], moments, shared_labels)
        for key in keys[u]:
            pools[key] = pools[key].plus(own) if key in pools else own
    return pools


def _keys(memory: TaskMemory) -> tuple[_Key, ...]:
    """Of the sums that a task is in: of all tasks, and of its family."""
    return None, (memory.family, memory.guesses)


def _less_task(state: PLDAState, task: Hashable) -> dict[_Key, Pool]:
    """Sums without those of a task, made anew where it was nearly all that was in them."""
    memory, pools = dict(state.tasks).get(task), dict(state.pools)
    if memory is None:
        return pools
    shared = pools[None].joined is not None
    moments = _all_moments(state, {task: memory}, _span(state.dictionary))[task]
    for key in _keys(memory):
        whole = pools.pop(key)
        if whole.size > 1:
            rest = whole.less(_pool(memory, moments, shared))
            if _drowned(rest, whole):
                left = tuple((u, m) for u, m in state.tasks if m.number != memory.number)
                rest = _pools(replace(state, tasks=left), shared, [key])[key]
            pools[key] = rest
    return pools


def _moved_pools(pools: Mapping[_Key, Pool], old: _Floats, new: _Floats) -> dict[_Key, Pool]:
    """Sums in another orthonormal basis."""
    if len(old) == len(new) == old.shape[1]:
        return dict(pools)  # both are I
    move = _follow(old, new)
    return {key: pool.moved(move) for key, pool in pools.items()}


def _union(group: Any) -> Moments:
    """Moments of the rows of all tasks of a family together."""
    joined: Moments | None = group.joined if isinstance(group, Pool) else _joint(group)
    assert joined is not None  # labels are shared
    return joined


def _partner_pools(
    pools: Mapping[_Key, Pool], most: int | None, may_leave: bool
) -> tuple[dict[int, Pool], int]:
    """The largest families, of those the latest, without tasks that only guess; the next number."""
    new = 1 + max((key[0] for key in pools if key is not None), default=-1)
    if not may_leave:
        return {0: pools[None]}, new
    sharing = {key[0]: pool for key, pool in pools.items() if key is not None and not key[1]}
    largest = sorted(sharing, key=lambda f: (-sharing[f].size, -f))
    return {f: sharing[f] for f in sorted(largest[:most])}, new


def _by_family(pools: Mapping[_Key, Pool], own: Moments, family: int) -> tuple[_Floats, _Floats]:
    """Scatters of all tasks and one more, for the dictionary; labels are joined within families."""
    groups: dict[int, Pool] = {}
    for key, pool in pools.items():
        if key is not None:
            groups[key[0]] = groups[key[0]].plus(pool) if key[0] in groups else pool
    parts = [(pool.size + (f == family), pool.scatters(own if f == family else None, True))
             for f, pool in groups.items()]  # fmt: skip
    if family not in groups:
        parts.append((1, (own.scatter, own.spread)))
    total = sum(size for size, _ in parts)
    spread = np.concatenate([np.sqrt(size / total) * F for size, (_, F) in parts])
    return np.sum([size / total * S for size, (S, _) in parts], axis=0), spread


_OWN_WEIGHTS = ((0.25, 0.0), (0.25, 0.25), (0.0, 0.0), (0.5, 0.25), (1.0, 0.25), (1.0, 1.0))
_SHRINKAGES = (
    (0.3, 0.0, 0.0),
    (1.0, 0.0, 0.0),
    (1.0, 1.0, 0.0),
    (1.0, 0.3, 0.0),
    (3.0, 0.3, 0.0),
    (0.3, 0.0, 0.1),
    (0.3, 0.0, 0.3),
    (1.0, 1.0, 0.1),
)


def shrunken_variances(
    psi: _Floats, scale: float = 1.0, noise: float = 0.0, floor: float = 0.0
) -> _Floats:
    """Between-class variances p = g psi^2 / (psi + nu) + f of measured ones psi >= 0.

    Parameters
    ----------
    psi : array-like of shape (k,)
    scale, noise, floor : float
        g, nu and f, all at least 0.

    Returns
    -------
    ndarray of shape (k,)

    Notes
    -----
    Derived in chapter 25 (plda), eq. (plda-wiener).

    Examples
    --------
    >>> shrunken_variances([0.0, 1.0, 3.0], noise=1.0).tolist()
    [0.0, 0.5, 2.25]
    """
    psi = np.maximum(psi, 0.0)
    total = psi + noise
    return scale * psi * np.divide(psi, total, out=np.zeros_like(total), where=total > 0) + floor


_NEAREST = 5


def _row_losses(
    V: _Floats,
    psi: _Floats,
    shrinkages: Sequence[Any],
    Q: _Floats,
    R: _Floats,
    queries: _Places,
    references: _Places,
) -> _Floats:
    """Loss (n_shrinkages, n) of queries with coordinates Q among references with R."""
    Q, R = Q @ V, R @ V
    stranger, losses = queries[:, None] != references, []
    for shrinkage in shrinkages:
        scores = _log_ratios(shrunken_variances(psi, *shrinkage), Q, R)
        order = np.argsort(-scores, axis=1, kind="stable")
        nearest = np.take_along_axis(stranger, order[:, :_NEAREST], axis=1)
        shares = np.cumsum(nearest, axis=1) / np.arange(1, nearest.shape[1] + 1)
        losses.append(shares[:, ::2].mean(axis=1))
    return np.array(losses)


class LifelongPLDA(TaskMetricsMixin, BaseEstimator):
    """Tasks one after another, each with the log-ratio of its own two-covariance model.

    Parameters
    ----------
    n_components : int, default=200
        Rows d of the dictionary; with at least n_features of them nothing is lost.
    regularization : float, default=1.0
        rho, added to the within-class scatter, in units of its average diagonal.
    own_weight : "auto", float in [0, 1] or pair of such, default="auto"
        Weight of a task's own statistics, or of its within-class and its between-class
        ones; 0 uses those of all tasks only, 1 its own only. "auto" chooses it for each task
        by validation, and also with which earlier tasks to share, or with none.
    shrinkage : "auto" or three floats, default="auto"
        (g, nu, f): measured between-class variances psi become g psi^2 / (psi + nu) + f, with
        f for all directions of the dictionary. "auto" chooses them by validation.
    code_penalty : float, default=0.0
        Threshold of the off-diagonal entries of a code when it is read.
    shared_labels : bool, default=False
        Whether a label means the same class in every task. With ``own_weight="auto"`` a task
        shares with those only whose labels agree with its own.
    revisit : {"add", "replace"}, default="add"
        Whether rows of a known task are added to those it had, or take their place.
    freeze : bool, default=False
        Keep each task's read-out of its last visit, so that later tasks change no answer.
    max_old_tasks : int or None, default=32
        How many old tasks a visit takes into account one by one at most. Beyond, families keep
        sums, and a visit hardly costs more where there are more tasks: it compares the task with
        that many of the largest families, so that among many small ones "auto" may choose
        differently, and writes that many codes in the present dictionary. The dictionary moves
        only when none is left to write; with fewer rows than n_features, tasks of a new kind
        are worse until it does. None takes all old tasks; every visit then costs more than the
        one before.
    n_folds : int, default=5
        Folds of the validation within a visit.
    random_state : int, RandomState or None, default=None
        Seed of the folds.

    Attributes
    ----------
    state_ : PLDAState
        All that was learned; the attributes below read it.
    dictionary_ : ndarray of shape (d, n_features)
    codes_ : dict
        Task to its code N_t (d, d), thresholded.
    tasks_ : dict
        Task to its `TaskMemory`, in the order of first appearance.
    metric_type_ : "similarity"
        Rows are ranked by the log-ratio, larger is closer.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns, when the first task was a data frame; the later ones must have the
        same.
    state_parts_ : dict
        Bytes of each part of the state.
    state_nbytes_ : int
        Their sum.

    Notes
    -----
    Derived in chapter 25 (plda), eqs. (plda-ratio), (plda-code), (plda-readout), (plda-validation),
    (plda-guess), (plda-alike) and (plda-agree); beyond max_old_tasks (plda-sums) and (plda-follow).
    Tasks that share form a family (`TaskMemory.family`); rows of old tasks are never needed. Not in
    the paper; the metric of a task has its form L' W_t L (section III-C, eq. 4).

    Any number of threads may read while one learns: an answer is that of the state before the
    visit or after it. Visits by several threads come one after another. A visit that fails or
    is interrupted changes nothing. `save` and `load` keep a learner in a file.

    Examples
    --------
    >>> from lml.datasets import load_digits_tasks
    >>> from lml.evaluation import LifelongKNeighborsClassifier
    >>> learner = LifelongPLDA(random_state=0)
    >>> reader = LifelongKNeighborsClassifier(learner, n_neighbors=1)
    >>> for task in load_digits_tasks(random_state=0):
    ...     learner = learner.partial_fit(task.X_train, task.y_train, task=task.name)
    ...     reader = reader.fit(task.X_train, task.y_train, task=task.name)
    >>> reader.score(task.X_test, task.y_test, task=task.name) > 0.95
    True
    """

    def __init__(
        self,
        n_components: int = 200,
        regularization: float = 1.0,
        own_weight: Any = "auto",
        shrinkage: Any = "auto",
        *,
        code_penalty: float = 0.0,
        shared_labels: bool = False,
        revisit: str = "add",
        freeze: bool = False,
        max_old_tasks: int | None = 32,
        n_folds: int = 5,
        random_state: _Seed = None,
    ) -> None:
        self.n_components, self.regularization = n_components, regularization
        self.own_weight, self.shrinkage = own_weight, shrinkage
        self.code_penalty = code_penalty
        self.shared_labels, self.revisit, self.freeze = shared_labels, revisit, freeze
        self.max_old_tasks = max_old_tasks
        self.n_folds, self.random_state = n_folds, random_state

    metric_type_ = "similarity"
    _state: PLDAState | None = None

    def __sklearn_is_fitted__(self) -> bool:
        return self._state is not None and bool(self._state.tasks)

    def _snapshot(self) -> Self:
        return copy.copy(self)

    def _known(self, task: Hashable) -> tuple[PLDAState, TaskMemory]:
        """The state, and the memory of a task that must be known."""
        state = self._learned()
        _check_hashable(task, "task")
        memories = dict(state.tasks)
        if task not in memories:
            raise ValueError(f"task {task!r} is not known; known tasks: {list(memories)}")
        return state, state.current(memories[task])

    def _learned(self) -> PLDAState:
        """The state, if there is a task in it."""
        state = self._state
        if state is None or not state.tasks:
            raise NotFittedError("no task has been learned: call partial_fit(X, y, task=...)")
        return state

    def _check_task(
        self, X: _MatrixLike, y: _LabelsLike, task: Hashable
    ) -> tuple[_Matrix, _Places, list[Any]]:
        """Rows, class numbers and labels of one visit, or an error that says what is wrong."""
        _check_name(task, "task")
        rows = _check_rows(X, getattr(self, "n_features_in_", None))
        self._check_columns(X)
        check_consistent_length(rows, y)
        codes, labels = _class_numbers(y)
        return rows, codes, labels

    def fit(self, X: _MatrixLike, y: _LabelsLike, *, tasks: Iterable[Hashable]) -> Self:
        """Forget everything and learn a table of rows, task by task.

        Parameters
        ----------
        X : {array-like, sparse matrix, data frame} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        tasks : sequence of length n_samples
            Task of each row. Tasks are learned in the order of their first row.

        Returns
        -------
        self
        """
        rows, labels, names = _check_table(X, y, tasks)
        columns, fresh = _columns(X), clone(self)
        places: dict[Any, list[int]] = {}
        for row, task in enumerate(names):
            places.setdefault(task, []).append(row)
        for task, own in places.items():
            fresh.partial_fit(rows[own], [labels[row] for row in own], task=task)
        with _lock(self):
            self._state = replace(fresh.state_, columns=columns)
        return self

    def _has(self, name: str) -> PLDAState:
        """The state, if there is one."""
        if self._state is None:
            raise NotFittedError(
                f"there is no {name} before a task: call partial_fit(X, y, task=...)"
            )
        return self._state

    @property
    def state_(self) -> PLDAState:
        """All that was learned, a `PLDAState`."""
        return self._has("state_")

    @property
    def tasks_(self) -> dict[Hashable, TaskMemory]:
        """Task to its `TaskMemory`, in the order of first appearance; a copy of the table."""
        state = self._has("tasks_")
        return {task: state.current(memory) for task, memory in state.tasks}

    @property
    def dictionary_(self) -> _Floats:
        """L, (d, n_features)."""
        return self._has("dictionary_").dictionary

    @property
    def codes_(self) -> dict[Hashable, _Floats]:
        """Task to its code N_t (d, d), thresholded."""
        state = self._has("codes_")
        return {task: self._code(state.current(memory)) for task, memory in state.tasks}

    @property
    def n_features_in_(self) -> int:
        """Number of features."""
        return self._has("n_features_in_").dictionary.shape[1]

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        """Names of the columns; missing when the first task had none."""
        columns = self._has("feature_names_in_").columns
        if columns is None:
            raise AttributeError("the rows of the first task had no names of columns")
        return np.array(columns, dtype=object)

    def _check_parameters(self) -> None:
        _check_number("n_components", self.n_components, 1, whole=True)
        _check_number("n_folds", self.n_folds, 2, whole=True)
        if self.max_old_tasks is not None:
            _check_number("max_old_tasks", self.max_old_tasks, 1, whole=True)
        _check_number("regularization", self.regularization, 0)
        _check_number("code_penalty", self.code_penalty, 0)
        if self.regularization == 0:
            raise ValueError(f"regularization={self.regularization!r}: give more than 0")
        _check_choice("revisit", self.revisit, ("add", "replace"))
        for name in ("shared_labels", "freeze"):
            if not isinstance(getattr(self, name), bool | np.bool_):
                raise TypeError(f"{name}={getattr(self, name)!r}: give True or False")
        self._check_numbers()

    def _check_numbers(self) -> None:
        for name, most in (("own_weight", 1.0), ("shrinkage", np.inf)):
            for part in _numbers(name, getattr(self, name)):
                _check_number(name, part, 0)
                if part > most:
                    raise ValueError(f"{name}={getattr(self, name)!r}: give at most {most}")

    def partial_fit(self, X: _MatrixLike, y: _LabelsLike, *, task: Hashable) -> Self:
        """Learn one task, or more rows of a known one.

        Parameters
        ----------
        X : {array-like, sparse matrix, data frame} of shape (n_samples, n_features)
            Rows of this visit only; they are not kept.
        y : array-like of shape (n_samples,)
            Labels of any type, at least two classes and a class with two rows.
        task : hashable
            Name of the task.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            If the rows, the labels, the task or a parameter cannot be used. The learner is
            then exactly what it was before the call.
        """
        with _lock(self):
            self._state = self._visited(X, y, task)
        return self

    def _visited(self, X: _MatrixLike, y: _LabelsLike, task: Hashable) -> PLDAState:
        """The state after a visit."""
        self._check_parameters()
        _check_seed(self.random_state)
        checked, old = self._check_task(X, y, task), self._state
        _check_classes(checked[1], task)
        columns = _columns(X) if old is None else old.columns
        return replace(self._next_state(*checked, task), columns=columns)

    def _root(self) -> int:
        """The seed of all visits."""
        if self._state is not None:
            return self._state.root
        if self.random_state is None:
            return int(np.random.SeedSequence().generate_state(1)[0])
        return int(copy.deepcopy(check_random_state(self.random_state)).randint(2**31))

    def _next_state(
        self, X: _Matrix, codes: _Places, labels: list[Any], task: Hashable
    ) -> PLDAState:
        """The state after a visit, a new object."""
        old, root = self._state, self._root()
        now = (known := dict(old.tasks) if old else {}).get(task)
        number, count = (now.number, now.n_visits) if now else (_next_number(known), 0)
        if made := self._flat_state(X, codes, labels, task, number, count):
            return made
        basis, moments = self._remembered(X, codes, old, rng := _generator(root, number, count))
        before = (moments[task], now.mean) if now else None
        visit = _Visit(X, codes, labels, basis, before if self.revisit == "add" else None)
        others = {u: m for u, m in known.items() if m.number != number}
        family, losses = self._validated(visit, partial(_partners, others, moments), rng)
        moments[task], mean = visit.moments()
        facts = dict(number=number, family=family, losses=losses, n_visits=count + 1, mean=mean)
        return self._assembled(basis, moments, known, task, facts, root)

    def _remembered(
        self, X: _Matrix, codes: _Places, old: PLDAState | None, rng: np.random.Generator
    ) -> tuple[_Floats, dict[Hashable, Moments]]:
        """A basis for the rows of a visit and the old tasks, and the moments of these in it."""
        d, rho = self.n_components, self.regularization
        if old is None or not old.tasks:
            return _basis(X, codes, None, d, rho, rng), {}
        basis = _basis(X, codes, old.dictionary, d, rho, rng)
        return basis, _all_moments(old, dict(old.tasks), basis)

    def _assembled(
        self,
        basis: _Floats,
        moments: dict[Hashable, Moments],
        known: Mapping[Hashable, TaskMemory],
        task: Hashable,
        facts: Mapping[str, Any],
        root: int,
    ) -> PLDAState:
        """The state of tasks with given moments in a basis."""
        rho = self.regularization
        members: dict[int, list[Moments]] = {}
        records = {u: vars(m) for u, m in known.items()}
        records |= {task: {"frozen": None, **facts}}
        for u, m in moments.items():
            members.setdefault(records[u]["family"], []).append(m)
        pooled = {f: pooled_scatters(group, self.shared_labels) for f, group in members.items()}
        within, spread = self._overall(list(moments.values()), members, pooled)
        T = whitened_rows(within, spread, rho, self.n_components)
        written = {u: {**records[u], **_written(m, T, rho)} for u, m in moments.items()}
        tasks = {u: TaskMemory(**record) for u, record in written.items()}
        families = {f: (_code(S, T, rho), _short(F @ T.T)) for f, (S, F) in pooled.items()}
        return self._kept(PLDAState(T @ basis, tuple(tasks.items()), families, rho, root), task)

    def _overall(
        self,
        moments: Sequence[Moments],
        members: Mapping[int, Sequence[Moments]],
        pooled: Mapping[int, tuple[_Floats, _Floats]],
    ) -> tuple[_Floats, _Floats]:
        """Scatters of all tasks, for the dictionary; labels are joined within a family only."""
        if not self.shared_labels:
            return pooled_scatters(moments)
        shares = [len(group) / len(moments) for group in members.values()]
        parts = list(zip(shares, pooled.values(), strict=True))
        spread = np.concatenate([np.sqrt(share) * F for share, (_, F) in parts])
        return np.sum([share * S for share, (S, _) in parts], axis=0), spread

    def _kept(self, state: PLDAState, task: Hashable) -> PLDAState:
        """The state with sums of many tasks, and a read-out where answers must not change."""
        if self._beyond(len(state.tasks)) and not state.pools:
            state = replace(state, pools=_pools(state, self.shared_labels))
        if not self.freeze:
            return state
        tasks = dict(state.tasks)
        if task in tasks:
            tasks[task] = replace(tasks[task], frozen=self._read(state, tasks[task]))
        return replace(state, tasks=tuple(tasks.items()))

    def _beyond(self, n_others: int) -> bool:
        """Whether these are more tasks than a visit takes into account one by one."""
        return self.max_old_tasks is not None and n_others > self.max_old_tasks

    def _sums(self, n_others: int) -> bool:
        """Whether the state has sums that a visit or its end can go on with."""
        old = self._state
        if old is None or not old.pools or not self._beyond(n_others):
            return False
        keyed = old.pools[None].joined is not None
        return keyed == self.shared_labels and old.regularization == self.regularization

    def _start(
        self, X: _Matrix, codes: _Places, task: Hashable, rng: np.random.Generator
    ) -> "_Start":
        """A basis for a visit, and the sums of the other tasks in it."""
        old = self.state_
        pools, Q = _less_task(old, task), _span(old.dictionary)
        if old.move is not None:  # codes wait
            return _Start(Q, pools, False)
        d, rho = self.n_components, self.regularization
        basis = _basis(X, codes, old.dictionary, d, rho, rng)
        return _Start(basis, _moved_pools(pools, Q, basis), True)

    def _next_dictionary(self, start: "_Start", own: Moments, family: int) -> _Floats:
        """The dictionary after a visit: one that fits all tasks, or the one that rests."""
        if not start.moves:
            return self.state_.dictionary
        whole = start.pools[None].scatters(own)
        within, spread = _by_family(start.pools, own, family) if self.shared_labels else whole
        return whitened_rows(within, spread, self.regularization, self.n_components) @ start.basis

    def _flat_state(
        self, X: _Matrix, codes: _Places, labels: list[Any], task: Hashable, number: int, count: int
    ) -> PLDAState | None:
        """The state after a visit that goes on with sums; None where it cannot."""
        old = self._state
        now = dict(old.tasks).get(task) if old else None
        if old is None or not self._sums(len(old.tasks) - (now is not None)):
            return None
        start = self._start(X, codes, task, rng := _generator(old.root, number, count))
        before = (_all_moments(old, {task: now}, start.basis)[task], now.mean) if now else None
        before = before if self.revisit == "add" else None
        visit = _Visit(X, codes, labels, start.basis, before)
        partners = partial(_partner_pools, start.pools, self.max_old_tasks)
        family, losses = self._validated(visit, partners, rng)
        moments, mean = visit.moments()
        facts = dict(number=number, family=family, losses=losses, n_visits=count + 1, mean=mean)
        return self._added(start, moments, task, facts)

    def _added(
        self, start: "_Start", moments: Moments, task: Hashable, facts: dict[str, Any]
    ) -> PLDAState | None:
        """The state with a visited task; None if the dictionary has another number of rows."""
        old, rho = self.state_, self.regularization
        L = self._next_dictionary(start, moments, facts["family"])
        if len(L) != len(old.dictionary):
            return None
        moves = old.moves + start.moves
        memory = TaskMemory(**facts, **_written(moments, L @ start.basis.T, rho, moves))
        move = _follow(old.dictionary, L) if start.moves else old.move
        tasks = _caught_up({**dict(old.tasks), task: memory}, move, moves, self.max_old_tasks, rho)
        move = move if _waits(tasks, moves) else None
        pools = _moved_pools(start.pools, start.basis, _span(L))
        state = replace(
            old,
            dictionary=L,
            tasks=tuple(tasks.items()),
            families={},
            pools=pools,
            move=move,
            moves=moves,
        )
        return self._kept(_with_sums(state, task, memory, self.shared_labels), task)

    def _candidates(self) -> tuple[Any, ...]:
        """Own weights and shrinkages to choose from."""
        names = {"own_weight": _OWN_WEIGHTS, "shrinkage": _SHRINKAGES}
        given = {name: _numbers(name, getattr(self, name)) for name in names}
        return tuple((given[name],) if given[name] else known for name, known in names.items())

    def _validated(
        self,
        visit: "_Visit",
        partners: Callable[[bool], tuple[Mapping[int, Any], int]],
        rng: np.random.Generator,
    ) -> tuple[int, _Floats]:
        """The family of a visited task, and its losses for each own weight and shrinkage."""
        weights, shrinkages = self._candidates()
        if len(weights) == len(shrinkages) == 1:
            return 0, np.zeros((1, 1))
        groups, new = partners(len(weights) > 1)
        folds = _folds(visit.codes, self.n_folds, rng)
        parts = [_Part(folds == f, *visit.moments(folds != f)) for f in range(folds.max() + 1)]
        if len(weights) > 1:
            groups = {f: group for f, group in groups.items() if self._fits(visit, parts, group)}
        losses = self._fold_losses(visit, parts, groups, weights, shrinkages)
        doubt = 1.0 if self.shared_labels else 2.0
        return _joined(losses, groups, len(weights) > 1, new, np.bincount(visit.codes), doubt)

    def _fits(self, visit: "_Visit", parts: "Sequence[_Part]", group: Any) -> bool:
        """Whether a family has anything to say about a visited task."""
        rho, pooled = self.regularization, isinstance(group, Pool)
        within = group.within / group.size if pooled else pooled_scatters(group)[0]
        return _alike(visit, parts, within, rho) and not (
            self.shared_labels and not _agree(visit, parts, _union(group), rho)
        )

    def _fold_losses(
        self,
        visit: "_Visit",
        parts: "Sequence[_Part]",
        groups: Mapping[int, Any],
        weights: Any,
        shrinkages: Any,
    ) -> dict[Any, _Floats]:
        """Losses (n_weights, n_shrinkages, n) of all rows, held out in turn, for each family."""
        found: list[dict[Any, list[_Floats]]] = []
        images = safe_sparse_dot(visit.X, visit.basis.T, dense_output=True)
        for held, own, mean in parts:
            centred, codes = images - visit.basis @ mean, visit.codes
            rows = centred[held], centred[~held], codes[held], codes[~held]
            found.append({None: [self._losses(own.scatter, own.spread, shrinkages, rows)]})
            for f, group in groups.items():
                found[-1][f] = self._weighed(
                    own, group, weights, shrinkages, rows, *found[-1][None]
                )
        return {f: np.concatenate([part[f] for part in found], axis=2) for f in found[0]}

    def _weighed(
        self,
        own: Moments,
        group: Any,
        weights: Any,
        shrinkages: Any,
        rows: "_Split",
        alone: _Floats,
    ) -> list[_Floats]:
        """Losses (n_shrinkages, n) of held-out rows for each pair of own weights."""
        if set(weights) == {(1.0, 1.0)}:
            return [alone] * len(weights)
        shared, plain = _with_own(group, own, self.shared_labels), (own.scatter, own.spread)
        mixed = {w: _mixed(w, plain, shared) for w in weights if w != (1.0, 1.0)}
        return [self._losses(*mixed[w], shrinkages, rows) if w in mixed else alone for w in weights]

    def _losses(self, S: _Floats, F: _Floats, shrinkages: Any, rows: "_Split") -> _Floats:
        """Losses (n_shrinkages, n) of held-out rows under a within scatter and a spread."""
        omega = S + self.regularization * np.eye(len(S))
        V, psi = _discriminants(omega, F, complete=_floors(shrinkages))
        return _row_losses(V, psi, shrinkages, *rows)

    def _knobs(self, state: PLDAState, memory: TaskMemory) -> tuple[Any, Any]:
        """Own weight and shrinkage of a task: those of its family unless its own are clearly better."""
        weights, shrinkages = self._candidates()
        shape = len(weights), len(shrinkages)
        own = _table(memory.losses, shape)
        common, best = _best(_common(state, memory.family, shape)), _best(own)
        noise = np.sqrt((own[common] + own[best]) / memory.n_rows)
        i, j = best if own[common] - own[best] > noise else common
        return weights[i], shrinkages[j]

    def _code(self, memory: TaskMemory) -> _Floats:
        """N_t with its threshold."""
        return OffDiagonalL1(self.code_penalty).prox(memory.code)

    def _read(self, state: PLDAState, memory: TaskMemory) -> LogRatioMetric:
        """The log-ratio of a task in a state."""
        weight, shrinkage = self._knobs(state, memory)
        own = self._code(memory), memory.spread
        omega, F = _mixed(weight, own, state.shared(memory.family))
        V, psi = _discriminants(_lifted(omega), F, complete=_floors([shrinkage]))
        p = shrunken_variances(psi, *shrinkage)
        return LogRatioMetric(memory.mean, V.T @ state.dictionary / np.sqrt(memory.unit), p)

    def task_metric(self, task: Hashable) -> LogRatioMetric:
        """The log-ratio of a task, a `LogRatioMetric` whose matrix is L' W_t L."""
        state, memory = self._known(task)
        if self.freeze and memory.frozen is not None:
            return memory.frozen
        return self._read(state, memory)

    def transform(self, X: _MatrixLike, *, task: Hashable, role: str | None = None) -> _Floats:
        """Coordinates of rows for one task.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, n_features)
            Rows, or a data frame with the columns that were learned.
        task : hashable
            A known task.
        role : {"query", "reference"} or None, default=None
            None: inner products are the bilinear part x' L' W_t L z of the centred rows.
            "query" and "reference": the Euclidean nearest reference of a query is the one
            with the largest log-ratio; the two maps differ.

        Returns
        -------
        ndarray of shape (n, k), k <= n_components

        Notes
        -----
        Derived in chapter 25 (plda), eq. (plda-stretch).
        """
        now = self._snapshot()
        metric = now.task_metric(task)
        now._check_columns(X)
        X = check_array(_plain(X), accept_sparse="csr", dtype=np.float64, ensure_all_finite=False)
        if role is None:
            return metric.embed(X)
        _check_choice("role", role, ("query", "reference"))
        return metric.map_rows(X, role)

    def _targets(
        self, X: _Matrix, codes: _Places, labels: list[Any], task: Hashable, common: float
    ) -> _Floats:
        """What the rows of each class are pulled towards, (c, n_features)."""
        state, memory = self._known(task)
        means = _class_means(X, codes)[1]
        joined = _joined_means(state, memory) if common else {}
        for place, label in enumerate(labels):
            if label in joined:
                theirs = memory.mean + joined[label]
                means[place] = (1 - common) * means[place] + common * theirs
        return means

    def enrol(
        self,
        X: _MatrixLike,
        y: _LabelsLike,
        *,
        task: Hashable,
        pull: float = 0.5,
        common: float = 0.0,
    ) -> _Floats:
        """Reference rows moved towards the mean of their class, for k nearest neighbours.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, n_features)
        y : array-like of shape (n,)
            Labels.
        task : hashable
            A known task.
        pull : float in [0, 1], default=0.5
            0 leaves the rows as they are, 1 puts class means in their place.
        common : float in [0, 1], default=0.0
            Weight, in these means, of those of all tasks that the task shares with. More than 0
            needs ``shared_labels=True``.

        Returns
        -------
        ndarray of shape (n, n_features)

        Raises
        ------
        ValueError, TypeError
            If the rows, the labels or the task cannot be used, or a weight is not in [0, 1].

        Notes
        -----
        Derived in chapter 25 (plda), eqs. (plda-enrol) and (plda-targets).
        """
        for name, value in (("pull", pull), ("common", common)):
            _check_number(name, value, 0)
            if value > 1:
                raise ValueError(f"{name}={value!r}: give at most 1")
        if common and not self.shared_labels:
            raise ValueError(
                f"common={common!r} needs shared_labels=True: labels of other tasks mean others"
            )
        self._known(task)
        X, codes, labels = self._check_task(X, y, task)
        targets = self._targets(X, codes, labels, task, common)[codes]
        return (1 - pull) * (X.toarray() if sparse.issparse(X) else X) + pull * targets

    def shared_metric(self, mean: ArrayLike | None = None) -> LogRatioMetric:
        """The log-ratio of a task that has not been learned, a `LogRatioMetric`.

        It has the statistics of the largest family; `mean` (n_features,) is subtracted from
        its rows, by default the mean of the rows of all tasks.
        """
        state = self._learned()
        memories = [m for _, m in state.tasks]
        families = [m.family for m in memories]
        total = sum(m.n_rows for m in memories)
        member = memories[families.index(Counter(families).most_common(1)[0][0])]
        mean = sum(m.n_rows / total * m.mean for m in memories) if mean is None else mean
        if np.shape(mean) != (wanted := state.dictionary.shape[1:]):
            raise ValueError(
                f"mean has shape {np.shape(mean)}: give {wanted}, a number for each feature"
            )
        omega, spread = state.shared(member.family)
        shrinkage = self._knobs(state, member)[1]
        V, psi = _discriminants(omega, spread, complete=_floors([shrinkage]))
        unit = np.mean([m.unit for m in memories if m.family == member.family])
        return LogRatioMetric(
            mean, V.T @ state.dictionary / np.sqrt(unit), shrunken_variances(psi, *shrinkage)
        )

    def forget(self, task: Hashable) -> Self:
        """Drop a task's memory; the others share without it."""
        with _lock(self):
            self._state = self._without(task)
        return self

    def _without(self, task: Hashable) -> PLDAState:
        old, memory = self._known(task)
        left = {u: m for u, m in old.tasks if m.number != memory.number}
        if not left:
            blank: dict[str, Any] = dict(tasks=(), families={}, pools={}, move=None, moves=0)
            return replace(old, dictionary=old.dictionary[:0].copy(), **blank)
        if self._sums(len(left)):
            kept, move = tuple(left.items()), old.move if _waits(left, old.moves) else None
            return replace(old, tasks=kept, families={}, pools=_less_task(old, task), move=move)
        basis = orthonormal_rows(old.dictionary)
        moments = _all_moments(old, left, basis)
        made = self._assembled(basis, moments, left, object(), {}, old.root)  # nobody's visit
        return replace(made, columns=old.columns)

    @property
    def state_parts_(self) -> dict[str, int]:
        """Bytes kept: dictionary, codes, class means, shared statistics, sums, move, records."""
        state = self._has("state_parts_")
        memories, families = [m for _, m in state.tasks], state.families.values()
        return {
            "dictionary": state.dictionary.nbytes,
            "codes": sum(m.code.nbytes for m in memories),
            "class means": sum(m.class_means.nbytes + m.mean.nbytes for m in memories),
            "shared": sum(part.nbytes for pair in families for part in pair),
            "sums": sum(part.nbytes for pool in state.pools.values() for part in pool.arrays),
            "move": sum(part.nbytes for part in (state.move or ())[:3])
            + (8 * len(memories) if state.pools else 0),
            "frozen": sum(0 if m.frozen is None else m.frozen.nbytes for m in memories),
            "records": sum(8 * (5 + 2 * len(m.counts)) + m.losses.nbytes for m in memories),
        }

    @property
    def state_nbytes_(self) -> int:
        """Bytes of everything that is kept between two tasks."""
        return sum(self.state_parts_.values())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the learner to a file, which another one that is there gives way to.

        Parameters
        ----------
        path : str or path
            Holds the old file or the new one at any time, whatever happens.

        Raises
        ------
        TypeError, ValueError
            If a task, a label or a parameter cannot be stored (see `lml.state.encode`), or a
            parameter is not valid. Nothing is written then.

        Notes
        -----
        Derived in chapter 15 (state), eqs. (state-atomic) and (state-size).
        """
        now = copy.copy(self)
        arrays: dict[str, Any] = {}
        now._check_parameters()
        state = None if now._state is None else _pack(now._state, arrays)
        meta = {"state": state, "parameters": encode_parameters(now, arrays)}
        write_state(path, "LifelongPLDA", 2, meta, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The learner in a file that `save` wrote; the next visit goes on bit for bit.

        Parameters
        ----------
        path : str or path

        Returns
        -------
        LifelongPLDA

        Raises
        ------
        OSError
            If the file cannot be opened.
        ValueError
            If it holds no learner of this kind and a known version, is damaged, or its parts do
            not belong together. Nothing in it is executed.

        Notes
        -----
        Derived in chapter 15 (state), eqs. (state-round-trip) and (state-bound).
        """
        version, meta, arrays = read_state(path, "LifelongPLDA", (1, 2))
        with reading(path):
            fits = type(meta) is dict and set(meta) == {"state", "parameters"}
            expect(fits, "entries", meta, "state and parameters")
            form = _renewed(meta["state"]) if version == 1 else meta["state"]
            state = None if form is None else _unpack(form, arrays)
            learner = cls(**decode_parameters(meta["parameters"], arrays))
            learner._check_parameters()
            expect(not arrays, "arrays that nothing uses", list(arrays), "empty")
            learner._state = state
        return learner


def _numbers(name: str, value: Any) -> tuple[Any, ...]:
    """The numbers of a parameter, none for "auto"; one weight stands for both."""
    if isinstance(value, str):
        _check_choice(name, value, ("auto",))
        return ()
    wanted, many = 2 if name == "own_weight" else 3, isinstance(value, (tuple, list))
    if many and len(value) == wanted:
        return tuple(value)
    if many or name == "shrinkage":
        raise ValueError(f"{name}={value!r}: give {wanted} numbers or 'auto'")
    return value, value


def _all_moments(
    state: PLDAState, memories: Mapping[Hashable, TaskMemory], basis: _Floats
) -> dict[Hashable, Moments]:
    """Moments of tasks in an orthonormal basis; the dictionary is inverted once."""
    L, rho = state.dictionary, state.regularization
    back, now = linalg.inv(L @ basis[: len(L)].T), state.current
    return {u: remembered_moments(now(m), L, rho, basis, back) for u, m in memories.items()}


class _Visit(NamedTuple):
    """Rows of one visit, a basis, and the moments and the mean that they are added to."""

    X: _Matrix
    codes: _Places
    labels: list[Any]
    basis: _Floats
    before: tuple[Moments, _Floats] | None

    def moments(self, rows: NDArray[np.bool_] | None = None) -> tuple[Moments, _Floats]:
        """Moments with these rows of the visit, and the mean of the task."""
        X, codes = (self.X, self.codes) if rows is None else (self.X[rows], self.codes[rows])
        present, codes = np.unique(codes, return_inverse=True)
        now, mean = _moments(X, codes, [self.labels[c] for c in present], self.basis)
        if self.before is None:
            return now, mean
        old, old_mean = self.before
        shift, share = mean - old_mean, now.counts.sum() / (now.counts.sum() + old.counts.sum())
        return _merged(old, now, self.basis @ shift), old_mean + share * shift


def _short(spread: _Floats) -> _Floats:
    """At most as many rows as columns with the same scatter."""
    if len(spread) <= spread.shape[1]:
        return spread
    return linalg.qr(spread, mode="economic")[1]


def _code(scatter: _Floats, T: _Floats, regularization: float) -> _Floats:
    """T (S + rho I) T', symmetric."""
    code = T @ scatter @ T.T + regularization * (T @ T.T)
    return (code + code.T) / 2


def _generator(*seeds: int) -> np.random.Generator:
    """The generator of one visit."""
    return np.random.default_rng(seeds)


def _next_number(known: Mapping[Hashable, TaskMemory]) -> int:
    """The number of a task that is new."""
    return 1 + max((m.number for m in known.values()), default=-1)


def _written(moments: Moments, T: _Floats, regularization: float, moves: int = 0) -> dict[str, Any]:
    """What a task remembers of its moments in the rows T of a dictionary."""
    return {
        "classes": moments.labels,
        "counts": moments.counts,
        "trace": moments.trace,
        "scale": moments.scale,
        "code": _code(moments.scatter, T, regularization),
        "class_means": moments.means @ T.T / np.sqrt(moments.scale),
        "moves": moves,
    }


class _Start(NamedTuple):
    """What a visit among many tasks begins with."""

    basis: _Floats
    pools: dict[_Key, Pool]  # of the other tasks, in the basis
    moves: bool  # whether the dictionary does


def _waits(tasks: Mapping[Hashable, TaskMemory], moves: int) -> bool:
    """Whether a code waits for the last move of the dictionary."""
    return any(memory.moves < moves for memory in tasks.values())


def _caught_up(
    tasks: dict[Hashable, TaskMemory], move: Follow | None, moves: int, most: Any, rho: float
) -> dict[Hashable, TaskMemory]:
    """Tasks with so many of the codes that wait written in the present dictionary."""
    waiting = (task for task, memory in tasks.items() if memory.moves < moves)
    if move is not None:
        for task in list(islice(waiting, most)):
            tasks[task] = _followed(tasks[task], move, rho, moves)
    return tasks


def _with_sums(
    state: PLDAState, task: Hashable, memory: TaskMemory, shared_labels: bool
) -> PLDAState:
    """The state with a task's statistics in the sums."""
    moments, pools = _all_moments(state, {task: memory}, _span(state.dictionary)), dict(state.pools)
    own = _pool(memory, moments[task], shared_labels)
    for key in _keys(memory):
        pools[key] = pools[key].plus(own) if key in pools else own
    return replace(state, pools=pools)


def _with_own(group: Any, own: Moments, shared_labels: bool) -> tuple[_Floats, _Floats]:
    """Pooled scatters of a family and of a task that is to join it."""
    if isinstance(group, Pool):
        return group.scatters(own, shared_labels)
    return pooled_scatters([*group, own], shared_labels)


_Split: TypeAlias = tuple[_Floats, _Floats, _Places, _Places]


def _folds(codes: _Places, n_folds: int, rng: np.random.Generator) -> _Places:
    """Number of the fold of each row; every class is spread over the folds."""
    order, folds = rng.permutation(len(codes)), np.empty(len(codes), dtype=int)
    first = 0
    for code in range(codes.max() + 1):
        rows = order[codes[order] == code]
        folds[rows] = (first + np.arange(len(rows))) % n_folds
        first += len(rows)
    return np.unique(folds, return_inverse=True)[1]


def _best(table: _Floats) -> tuple[int, int]:
    """Places of the best weights and shrinkage: the shrinkage by its mean over weights."""
    j = table.mean(axis=0).argmin()
    return int(table[:, j].argmin()), int(j)


def _guesses(loss: float, counts: _Places) -> bool:
    """Whether a mean loss of rows of these classes is guessing's within noise, if that is small."""
    n, guessed = counts.sum(), 1 - np.sum((counts / counts.sum()) ** 2)
    noise = 2 * np.sqrt(loss * (1 - loss) / n)
    return bool(loss + noise > guessed > 5 * noise)


class _Part(NamedTuple):
    """Rows of a visit that are held out, and the task's moments and mean without them."""

    held: NDArray[np.bool_]
    own: Moments
    mean: _Floats


_Rule: TypeAlias = tuple[_Floats, _Floats]


def _places_among(labels: Iterable[Any], wanted: Iterable[Any]) -> _Places:
    """Place of each wanted label, -1 where it is not; labels are found by their hashes."""
    place = {label: number for number, label in enumerate(labels)}
    return np.array([place.get(label, -1) for label in wanted], dtype=np.intp)


def _mean_rule(m: Moments, labels: Sequence[Any], regularization: float) -> _Rule:
    """Matrix and offset of the log-likelihoods of classes, rows in the unit of their task."""
    means = m.means[_places_among(m.labels, labels)] / np.sqrt(m.unit)
    sigma = m.scatter + regularization * np.eye(len(m.within))
    A = linalg.cho_solve(linalg.cho_factor(sigma, check_finite=False), means.T, check_finite=False)
    return A, -0.5 * np.sum(means.T * A, axis=0)


def _answers(
    visit: "_Visit", part: _Part, rule: _Rule, labels: Sequence[Any], regularization: float
) -> _Places:
    """Classes (3, n) of the held-out rows with such labels: true, by own means, by a rule."""
    codes = _places_among(labels, visit.labels)[visit.codes]
    rows = part.held & (codes >= 0)
    Z = safe_sparse_dot(visit.X[rows], visit.basis.T, dense_output=True)
    Z = (Z - visit.basis @ part.mean) / np.sqrt(part.own.unit)
    A, b = _mean_rule(part.own, part.own.labels, regularization)
    names = _places_among(labels, part.own.labels)
    own, given = names[np.argmax(Z @ A + b, axis=1)], np.argmax(Z @ rule[0] + rule[1], axis=1)
    return np.array([codes[rows], own, given])


def _agree(visit: "_Visit", parts: Sequence[_Part], joint: Moments, regularization: float) -> bool:
    """Whether a label means the same in a visited task as in other tasks together."""
    known = frozenset(joint.labels)
    labels = [label for label in visit.labels if label in known]
    if len(labels) < 2:
        return True
    rest = _mean_rule(joint, labels, regularization), labels, regularization
    true, own, given = np.concatenate([_answers(visit, p, *rest) for p in parts], axis=1)
    shares = [np.bincount(a, minlength=len(labels)) / len(true) for a in (true, given)]
    own_share, share = (np.mean(answer == true) for answer in (own, given))
    return bool(share - (g := shares[0] @ shares[1]) > max(own_share - g, 0.0) / 2)


def _log_likelihoods(sigma: _Floats, R: _Floats) -> _Floats:
    """Of each row of R (n, k) under N(0, c sigma), c that of their mean square; no constant."""
    size = np.mean(R * R) * len(sigma) / np.trace(sigma)
    lower = np.sqrt(size) * linalg.cholesky(sigma, lower=True, check_finite=False)
    half = linalg.solve_triangular(lower, R.T, lower=True, check_finite=False)
    logs: _Floats = -np.sum(np.log(np.diag(lower))) - 0.5 * np.sum(half * half, axis=0)
    return logs


def _no_worse(gains: _Floats) -> bool:
    """Whether a sum is not below 0 by more than two standard errors."""
    return len(gains) == 0 or bool(gains.sum() >= -2 * np.sqrt(len(gains)) * gains.std())


def _alike(visit: "_Visit", parts: Sequence[_Part], within: _Floats, regularization: float) -> bool:
    """Whether others' scatter says no less of held-out rows than none, or than the task's own."""
    ridge, found = regularization * np.eye(len(within)), [np.zeros((3, 0))]
    for held, own, mean in parts:
        classes = _places_among(own.labels, visit.labels)[visit.codes]
        rows = held & (classes >= 0)
        Z = safe_sparse_dot(visit.X[rows], visit.basis.T, dense_output=True)
        R = Z - visit.basis @ mean - own.means[classes[rows]]
        if len(R) and np.mean(R * R) > 1e-12 * own.unit:
            scatters = within + ridge, own.scatter + ridge, np.eye(len(within))
            found.append(np.array([_log_likelihoods(S, R) for S in scatters]))
    theirs, *others = np.concatenate(found, axis=1)
    return any(_no_worse(theirs - other) for other in others)


def _joined(
    losses: Mapping[Any, _Floats],
    groups: Mapping[int, Any],
    may_leave: bool,
    new: int | None = None,
    counts: _Places | None = None,
    doubt: float = 2.0,
) -> tuple[int, _Floats]:
    """The family with the smallest loss, or a new one where sharing is worse beyond noise.

    A new one also where nothing is better than guessing. Where a task may leave, the last weights
    are those of being alone.
    """
    alone, new = losses[None], 1 + max(groups, default=-1) if new is None else new
    if not groups:
        return new if may_leave else 0, alone.mean(axis=2)
    sharing = {f: losses[f][:-1] if may_leave else losses[f] for f in groups}
    tables = {f: part.mean(axis=2) for f, part in sharing.items()}
    best = min(groups, key=lambda f: tables[f][_best(tables[f])])
    shared, own = sharing[best][_best(tables[best])], alone[_best(alone.mean(axis=2))]
    gain = shared - own  # of being alone, row by row
    leaves = gain.mean() > doubt * gain.std() / np.sqrt(len(gain))
    if counts is not None:
        leaves |= _guesses(min(tables[best].min(), own.mean()), counts)
    return (new, alone.mean(axis=2)) if may_leave and leaves else (best, losses[best].mean(axis=2))


def _common(state: PLDAState, family: int, shape: tuple[int, int]) -> _Floats:
    """Mean over a family of the losses of all candidates."""
    if family in state.families or not state.pools:
        tables = [_table(m.losses, shape) for _, m in state.tasks if m.family == family]
        return np.asarray(np.mean(tables, axis=0))
    parts = state.parts(family)
    sums = [_table(table, shape) for pool in parts for _, table in pool.losses.values()]
    return np.asarray(sum(sums) / sum(pool.size for pool in parts))


def _partners(
    others: Mapping[Hashable, TaskMemory], moments: Mapping[Hashable, Moments], may_leave: bool
) -> tuple[dict[int, list[Moments]], int]:
    """Families that a task can share with, tasks that only guess left out; the next number."""
    groups: dict[int, list[Moments]] = {}
    for u, m in others.items():
        if not (may_leave and m.guesses):
            groups.setdefault(m.family if may_leave else 0, []).append(moments[u])
    return groups, 1 + max((m.family for m in others.values()), default=-1)


def _mixed(
    weights: tuple[float, float], own: tuple[_Floats, _Floats], shared: tuple[_Floats, _Floats]
) -> tuple[_Floats, _Floats]:
    """Within scatter and spread of a task: its own ones and the shared ones, weighed."""
    (v, w), (S, F), (T, G) = weights, own, shared
    parts = [np.sqrt(share) * spread for share, spread in ((w, F), (1 - w, G)) if share]
    return v * S + (1 - v) * T, np.concatenate(parts)


def _floors(shrinkages: Sequence[Any]) -> bool:
    """Whether a shrinkage has a floor, so that all directions count."""
    return any(floor > 0 for _, _, floor in shrinkages)


def _table(losses: _Floats, shape: tuple[int, int]) -> _Floats:
    """Losses of all candidates; none where other candidates were tried."""
    fits = all(n in (1, wanted) for n, wanted in zip(losses.shape, shape, strict=True))
    return np.broadcast_to(losses, shape) if fits else np.zeros(shape)


def _lifted(omega: _Floats, least: float = 1e-3) -> _Floats:
    """A symmetric matrix with its smallest eigenvalue lifted to `least`."""
    smallest = linalg.eigvalsh(omega, subset_by_index=[0, 0])[0]
    return omega + max(least - smallest, 0.0) * np.eye(len(omega))


def _joined_means(state: PLDAState, memory: TaskMemory) -> dict[Any, _Floats]:
    """Mean of each class over the tasks of a family, every task's mean at 0, in the input space."""
    sums: dict[Any, Any] = {}
    counts: dict[Any, int] = {}
    for m in (state.current(m) for _, m in state.tasks if m.family == memory.family):
        for label, n, mean in zip(m.classes, m.counts.tolist(), m.class_means, strict=True):
            sums[label] = sums.get(label, 0.0) + n * np.sqrt(m.scale) * mean
            counts[label] = counts.get(label, 0) + n
    Q, R = linalg.qr(state.dictionary.T, mode="economic")  # L = R'Q': what L sees of a mean
    images = np.array([total / counts[label] for label, total in sums.items()])
    rows = linalg.solve_triangular(R, images.T, trans=1).T @ Q.T
    return dict(zip(sums, rows, strict=True))


def _pack(state: PLDAState, arrays: dict[str, Any]) -> dict[str, Any]:
    """The state as JSON; its arrays go to `arrays`."""
    d, D = state.dictionary.shape
    memories = [m for _, m in state.tasks]
    arrays["dictionary"] = state.dictionary
    arrays["codes"] = np.reshape([m.code for m in memories], (len(memories), d, d))
    arrays["means"] = np.reshape([m.mean for m in memories], (len(memories), D))
    arrays["counts"] = np.concatenate([np.zeros(0, int), *(m.counts for m in memories)])
    arrays["class_means"] = np.concatenate([np.zeros((0, d)), *(m.class_means for m in memories)])
    tasks = [_pack_memory(u, m, place, arrays) for place, (u, m) in enumerate(state.tasks)]
    for f, (within, spread) in state.families.items():
        arrays[f"within{f}"], arrays[f"spread{f}"] = within, spread
    facts = {"tasks": tasks, "families": list(state.families), "columns": encode(state.columns)}
    facts |= {"root": state.root, "regularization": float(state.regularization)}
    return facts | _pack_sums(state, arrays)


_RECORD: dict[str, type] = {
    "number": int,
    "classes": tuple,
    "trace": float,
    "scale": float,
    "family": int,
    "n_visits": int,
    "moves": int,
}


def _pack_memory(
    task: Hashable, memory: TaskMemory, place: int, arrays: dict[str, Any]
) -> dict[str, Any]:
    arrays[f"losses{place}"] = memory.losses
    frozen = memory.frozen
    if frozen is not None:
        arrays[f"frozen_mean{place}"], arrays[f"frozen_rows{place}"] = frozen.mean, frozen.factor
        arrays[f"frozen_between{place}"] = frozen.between
    with about(f"task {task!r}"):
        form = {name: encode(kind(getattr(memory, name))) for name, kind in _RECORD.items()}
        return {"task": encode(task), "frozen": frozen is not None, **form}


def _taken(arrays: dict[str, NDArray[Any]], name: str, shape: tuple[Any, ...]) -> NDArray[Any]:
    """An array of floats (of whole numbers if they count) of a shape; None fits any length."""
    array: NDArray[Any] = decode({"array": name}, arrays)
    kind = np.dtype(int if name.endswith("counts") else float)
    fits = len(shape) == array.ndim and all(a in (n, None) for n, a in zip(array.shape, shape))
    expect(fits and array.dtype == kind, name, (array.dtype, array.shape), f"{kind} of {shape}")
    return array


def _shares(A: _Floats) -> bool:
    """Whether there are numbers and all are from 0 to 1."""
    return A.size > 0 and bool(0 <= A.min() <= A.max() <= 1)


def _symmetric(A: _Floats) -> bool:
    """Whether a matrix is square and symmetric."""
    return A.shape == A.T.shape and np.array_equal(A, A.T)


def _unpack(form: Any, arrays: dict[str, NDArray[Any]]) -> PLDAState:
    """The state that `_pack` took apart, or an error that names what does not fit."""
    keys = {"tasks", "families", "columns", "root", "regularization", "pools", "move", "moves"}
    expect(type(form) is dict and set(form) == keys, "state", form, f"an object with {keys}")
    L, rho = _taken(arrays, "dictionary", (None, None)), form["regularization"]
    (d, D), records = L.shape, _unpack_records(form["tasks"])
    expect(bool(d) == bool(records) and d <= D, "dictionary", L.shape, "rows where there are tasks")
    expect(_fits(rho, float) and rho > 0, "regularization", rho, "a number above 0")
    _check_columns(form, D)
    wanted = {r["family"] for r in records.values()}
    families = _unpack_families(form["families"], wanted, d, arrays, bool(form["pools"]))
    tasks = _unpack_tasks(records, d, D, arrays)
    least = min((int(m.counts.min()) for _, m in tasks), default=1)
    expect(least > 0, "least of counts", least, "at least 1")
    sums = _unpack_sums(form, tasks, d, D, arrays)
    return PLDAState(L, tasks, families, rho, form["root"], decode(form["columns"]), *sums)


def _unpack_families(
    form: Any, wanted: set[int], d: int, arrays: dict[str, NDArray[Any]], may_lack: bool = False
) -> dict[int, tuple[_Floats, _Floats]]:
    """Shared statistics of the families that tasks belong to; there may be sums in their place."""
    fits = type(form) is list and all(type(f) is int for f in form)
    fits = fits and (sorted(form) == sorted(wanted) or (may_lack and not form))
    expect(fits, "families", form, f"{wanted}, those of the tasks")
    families = {}
    for f in form:
        within, spread = (_taken(arrays, f"{name}{f}", (None, d)) for name in ("within", "spread"))
        expect(_symmetric(within), f"within{f}", within, f"symmetric, {d} x {d}")
        expect(1 <= len(spread) <= d, f"rows of spread{f}", len(spread), f"1 to {d}")
        families[f] = within, spread
    return families


def _checked_record(form: Any, place: int, kinds: Mapping[str, type]) -> dict[str, Any]:
    values = {name: decode(value) for name, value in form.items()}
    for name, kind in kinds.items():
        fits = _fits(values[name], kind) and (name != "scale" or values[name] > 0)
        expect(fits, f"{name} of task {place}", values[name], kind.__name__)
    classes = values["classes"]
    expect(len(set(classes)) == len(classes) > 1, f"classes of task {place}", classes, "different")
    return values


def _unpack_records(forms: Any) -> dict[Any, dict[str, Any]]:
    """Tasks and what is no array in their memories."""
    expect(type(forms) is list, "tasks", forms, "a list")
    kinds, records = {"task": object, "frozen": bool, **_RECORD}, {}
    for place, form in enumerate(forms):
        fits = type(form) is dict and set(form) == set(kinds)
        expect(fits, f"task {place}", form, f"an object with {list(kinds)}")
        values = _checked_record(form, place, kinds)
        task = values.pop("task")
        expect(task not in records, f"name of task {place}", task, "a new one")
        records[task] = values
    numbers = [record["number"] for record in records.values()]
    expect(len(set(numbers)) == len(numbers), "numbers of the tasks", numbers, "different")
    return records


def _unpack_tasks(
    records: Mapping[Any, dict[str, Any]], d: int, D: int, arrays: dict[str, NDArray[Any]]
) -> tuple[tuple[Hashable, TaskMemory], ...]:
    """Tasks and their memories, from records and arrays of all tasks side by side."""
    m, n = len(records), sum(len(record["classes"]) for record in records.values())
    codes, means = _taken(arrays, "codes", (m, d, d)), _taken(arrays, "means", (m, D))
    counts, class_means = _taken(arrays, "counts", (n,)), _taken(arrays, "class_means", (n, d))
    tasks, first = [], 0
    for place, (task, record) in enumerate(records.items()):
        own = slice(first, first := first + len(record["classes"]))
        expect(_symmetric(codes[place]), f"code of task {place}", codes[place], "symmetric")
        losses = _taken(arrays, f"losses{place}", (None, None))
        expect(_shares(losses), f"losses{place}", losses, "from 0 to 1")
        frozen = _unpack_frozen(place, D, arrays) if record.pop("frozen") else None
        parts: dict[str, Any] = {
            "counts": counts[own].copy(),
            "class_means": class_means[own].copy(),
        }
        parts |= {"mean": means[place].copy(), "code": codes[place].copy()}
        tasks.append((task, TaskMemory(**record, **parts, losses=losses, frozen=frozen)))
    return tuple(tasks)


def _check_columns(form: Any, n_features: int) -> None:
    columns, root = decode(form["columns"]), form["root"]
    fits = columns is None or len(set(columns)) == len(columns) == n_features
    fits = fits and all(type(name) is str for name in columns or ())
    expect(fits, "columns", columns, f"{n_features} different names")
    expect(_fits(root, int), "root", root, "a whole number")


def _unpack_frozen(place: int, D: int, arrays: dict[str, NDArray[Any]]) -> LogRatioMetric:
    """The read-out of a task's last visit."""
    mean, rows = (_taken(arrays, f"frozen_{name}{place}", shape)
                  for name, shape in (("mean", (D,)), ("rows", (None, D))))  # fmt: skip
    return LogRatioMetric(mean, rows, _taken(arrays, f"frozen_between{place}", (len(rows),)))


def _pack_sums(state: PLDAState, arrays: dict[str, Any]) -> dict[str, Any]:
    """Sums of many tasks and the last move as JSON; their arrays go to `arrays`."""
    for name, part in zip(Follow._fields[:3], (state.move or ())[:3]):
        arrays[f"move_{name}"] = part
    pools = [_pack_pool(key, pool, n, arrays) for n, (key, pool) in enumerate(state.pools.items())]
    return {"pools": pools, "moves": state.moves, "move": state.move is not None}


def _pack_pool(key: _Key, pool: Pool, place: int, arrays: dict[str, Any]) -> dict[str, Any]:
    arrays[f"pool{place}_within"], arrays[f"pool{place}_between"] = pool.within, pool.between
    for number, (_, table) in enumerate(pool.losses.values()):
        arrays[f"pool{place}_losses{number}"] = table
    form = {"key": encode(key), "size": pool.size, "trace": float(pool.trace), "joined": None}
    if (joined := pool.joined) is not None:
        for name, part in zip(Moments._fields[1:4], joined[1:4]):
            arrays[f"pool{place}_joined_{name}"] = part
        traces = {"trace": float(joined.trace), "rows_trace": float(pool.rows_trace)}
        form["joined"] = {"labels": encode(joined.labels), **traces}
        arrays[f"pool{place}_rows"] = pool.rows
    return form | {"losses": [n for n, _ in pool.losses.values()]}


def _unpack_sums(
    form: Any, tasks: Sequence[tuple[Hashable, TaskMemory]], d: int, D: int, arrays: dict[str, Any]
) -> tuple[dict[_Key, Pool], Follow | None, int]:
    """What `_pack_sums` took apart."""
    moves, forms = form["moves"], form["pools"]
    expect(_fits(moves, int) and type(form["move"]) is bool, "moves", moves, "a whole number")
    behind = {moves - memory.moves for _, memory in tasks}
    fits = behind <= {0, 1} and form["move"] == (1 in behind)
    expect(fits, "moves of the tasks", behind, "at most one behind, with that move")
    sizes = Counter(key for _, memory in tasks for key in _keys(memory))
    expect(type(forms) is list, "pools", forms, "a list")
    pools = dict(_unpack_pool(one, place, d, D, arrays) for place, one in enumerate(forms))
    found = {key: pool.size for key, pool in pools.items()}
    expect(not forms or found == dict(sizes), "sizes of the pools", found, dict(sizes))
    kinds = {pool.joined is not None for pool in pools.values()}
    expect(len(kinds) < 2, "joined of the pools", kinds, "all or none")
    return pools, _unpack_move(d, D, arrays) if form["move"] else None, moves


def _unpack_pool(
    form: Any, place: int, d: int, D: int, arrays: dict[str, Any]
) -> tuple[_Key, Pool]:
    keys, name = {"key", "size", "trace", "joined", "losses"}, f"pool{place}"
    expect(type(form) is dict and set(form) == keys, name, form, f"an object with {keys}")
    size, trace, counts = form["size"], form["trace"], form["losses"]
    fits = _fits(size, int) and _fits(trace, float) and type(counts) is list
    expect(fits and all(_fits(n, int) for n in counts), name, form, "whole numbers and a trace")
    losses = _unpack_losses(counts, size, name, arrays)
    within, between = (_taken(arrays, f"{name}_{part}", (d, d)) for part in ("within", "between"))
    expect(_symmetric(within) and _symmetric(between), f"scatters of {name}", within, "symmetric")
    sums = size, within, between, trace
    if form["joined"] is None:
        return decode(form["key"]), Pool(*sums, None, losses)
    joined = _unpack_joined(form["joined"], name, d, D, arrays)
    rows = _taken(arrays, f"{name}_rows", (d, d))
    return decode(form["key"]), Pool(*sums, joined, losses, rows, form["joined"]["rows_trace"])


def _unpack_joined(form: Any, name: str, d: int, D: int, arrays: dict[str, Any]) -> Moments:
    """Joined statistics of the tasks in a pool."""
    fits = type(form) is dict and set(form) == {"labels", "trace", "rows_trace"}
    fits = fits and all(_fits(form[trace], float) for trace in ("trace", "rows_trace"))
    expect(fits, f"joined of {name}", form, "labels and traces")
    expect(type(labels := decode(form["labels"])) is tuple, f"labels of {name}", labels, "a tuple")
    expect(len(set(labels)) == len(labels), f"labels of {name}", labels, "different")
    counts = _taken(arrays, f"{name}_joined_counts", (len(labels),))
    expect(bool((counts > 0).all()), f"counts of {name}", counts, "at least 1")
    means = _taken(arrays, f"{name}_joined_means", (len(labels), d))
    within = _taken(arrays, f"{name}_joined_within", (d, d))
    expect(_symmetric(within), f"joined scatter of {name}", within, "symmetric")
    return Moments(labels, counts, means, within, form["trace"], D)


def _unpack_move(d: int, D: int, arrays: dict[str, Any]) -> Follow:
    """The last move of the dictionary."""
    names = Follow._fields[:3]
    first, outside, gram = (_taken(arrays, f"move_{name}", (d, d)) for name in names)
    return Follow(first, outside, gram, D - d)


def _unpack_losses(
    counts: Sequence[int], size: int, name: str, arrays: dict[str, Any]
) -> dict[tuple[int, ...], tuple[int, _Floats]]:
    """Sums of tables of losses in a pool."""
    tables = [_taken(arrays, f"{name}_losses{n}", (None, None)) for n in range(len(counts))]
    losses = {table.shape: (n, table) for n, table in zip(counts, tables)}
    fits = sum(counts) == size and len(losses) == len(counts)
    expect(fits, f"losses of {name}", counts, f"{size} in all, of different shapes")
    return losses


def _renewed(form: Any) -> Any:
    """The form of a state in a file of version 1, as version 2 has it."""
    if type(form) is not dict or type(form.get("tasks")) is not list:
        return form
    tasks = [{"moves": 0, **task} if type(task) is dict else task for task in form["tasks"]]
    return {"pools": [], "move": False, "moves": 0, **form, "tasks": tasks}
