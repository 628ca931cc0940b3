# Generated from book/two_covariance.ipynb by tools/tangle.py: edit the chapter.
"""Probabilistic LDA: the two-covariance model of labeled samples and its log-ratio.

Two samples are scored by how much more likely they are as members of one class than of two.
`Moments` are the statistics of a task that this needs, `TaskSums` those of several tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg, sparse
from scipy.linalg import lapack
from sklearn.utils.extmath import safe_sparse_dot

from lml.base import Record
from lml.fisher import class_means
from lml.metrics import SIDE, FactoredMetric
from lml.utils.linalg import dense
from lml.utils.typing import Floats, Indices, Matrix, MatrixLike
from lml.utils.validation import check_finite, check_kind

__all__ = [
    "LogRatioMetric",
    "Moments",
    "Scatters",
    "TaskSums",
    "class_axes",
    "class_log_ratios",
    "log_ratio_coefficients",
    "log_ratios",
    "merge_moments",
    "mix_scatters",
    "pooled_scatters",
    "shrunken_variances",
    "task_moments",
]


# book/two_covariance.ipynb#same-class-or-not-the-log-ratio
def log_ratio_coefficients(between: ArrayLike) -> tuple[Floats, Floats, float]:
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
    Derived in chapter 22 (two_covariance), eq. (plda-ratio).

    Examples
    --------
    >>> product, square, constant = log_ratio_coefficients([1.0])
    >>> round(product.item(), 4), round(square.item(), 4), round(constant, 4)
    (0.3333, 0.1667, 0.1438)
    """
    p = np.asarray(between, dtype=float)
    product = p / (1 + 2 * p)
    square = p * p / ((1 + p) * (1 + 2 * p))
    return product, square, float(np.sum(np.log1p(p) - 0.5 * np.log1p(2 * p)))


# book/two_covariance.ipynb#same-class-or-not-the-log-ratio
def log_ratios(between: Floats, Q: Floats, R: Floats) -> Floats:
    """Log-ratios (n, m) of samples with coordinates Q (n, k) and R (m, k).

    `between` are the between-class variances p (k,) of the coordinates.
    """
    product, square, constant = log_ratio_coefficients(between)
    own = 0.5 * (Q * Q) @ square
    return (Q * product) @ R.T - own[:, None] - 0.5 * (R * R) @ square + constant


# book/two_covariance.ipynb#coordinates-with-diagonal-covariances
class LogRatioMetric(FactoredMetric):
    """The log-ratio of same and different class, as a metric that ranks samples.

    M = H' diag(p / (1 + 2p)) H is its bilinear part. `bilinear`, `paired` and `quadratic` give
    the log-ratio; every other operation is that of M.

    Parameters
    ----------
    mean : array-like of shape (n_features,)
        Is subtracted from all samples.
    rows : array-like of shape (k, n_features)
        H: in the coordinates H(x - mean) the within-class covariance is I and the
        between-class covariance diagonal.
    between : array-like of shape (k,)
        Its diagonal p, at least 0. Coordinates with p = 0 are left out.

    Notes
    -----
    Derived in chapter 22 (two_covariance), eqs. (plda-ratio) and (plda-diagonal).

    Examples
    --------
    >>> metric = LogRatioMetric([1.0, 0.0], [[1.0, 0.0]], [1.0])
    >>> metric.bilinear([[2.0, 5.0]], [[3.0, 0.0]]).round(4).tolist()
    [[0.3938]]
    """

    index_space = "l2"

    def __init__(self, mean: MatrixLike, rows: MatrixLike, between: MatrixLike) -> None:
        self._mean = _finite_view(mean, "mean")
        self._between = _finite_view(between, "between")
        if (self._between < 0).any():
            raise ValueError(f"between holds {self._between.min()}: variances are at least 0")
        product = log_ratio_coefficients(self._between)[0]
        super().__init__(0.0, rows, product, self._mean.size)
        used = self._between > 0
        if not used.all():
            self._between = self._between[used]
            super().__init__(0.0, self.factor[used], self.core[used], self._mean.size)
        self._shift = self.factor @ self._mean

    def __reduce__(self) -> tuple[Any, ...]:
        return (LogRatioMetric, (self._mean, self.factor, self._between))

    @property
    def mean(self) -> Floats:
        """What is subtracted from all samples, shape (n_features,)."""
        return self._mean

    @property
    def between(self) -> Floats:
        """Between-class variances p > 0 of the coordinates, shape (k,)."""
        return self._between

    @property
    def nbytes(self) -> int:
        """Bytes of the map H, the variances and the mean."""
        return super().nbytes + self._between.nbytes + self._mean.nbytes

    def coordinates(self, X: MatrixLike) -> Floats:
        """Coordinates H(x - mean) of samples X (n, n_features), shape (n, k)."""
        return self.image(X) - self._shift

    def bilinear(self, X: MatrixLike, Z: MatrixLike) -> Floats:
        """Log-ratios (n, m) of samples X (n, n_features) and Z (m, n_features)."""
        return log_ratios(self._between, self.coordinates(X), self.coordinates(Z))

    def map_rows(self, X: MatrixLike, role: str) -> Floats:
        """Samples as "query" or "reference", (n, k): the Euclidean nearest has the largest log-ratio.

        Derived in chapter 22 (two_covariance), eq. (plda-stretch).
        """
        SIDE.check("role", role)
        p = self._between
        stretch = (1 + p) / p if role == "query" else 1.0
        return self.coordinates(X) * np.sqrt(log_ratio_coefficients(p)[1]) * stretch

    def paired(self, X: MatrixLike, Z: MatrixLike) -> Floats:
        """Log-ratios (n,) of matching samples of X and Z, both (n, n_features)."""
        Q = self.coordinates(X)
        R = self.coordinates(Z)
        if Q.shape != R.shape:
            raise ValueError(f"X has {len(Q)} samples, but Z has {len(R)}: pass as many")
        product, square, constant = log_ratio_coefficients(self._between)
        return (Q * R) @ product - 0.5 * (Q * Q + R * R) @ square + constant

    def symmetrized(self) -> "LogRatioMetric":
        """The log-ratio is symmetric already: the metric itself."""
        return self

    def psd(self) -> "LogRatioMetric":
        """Its bilinear part is positive semi-definite: the metric itself."""
        return self

    def components(self, max_features: int = 4096) -> Floats:
        """A map L (k, n_features) with L'L = M."""
        return np.sqrt(self.core)[:, None] * self.factor

    def _embed(self, X: Matrix) -> Floats:
        """Images L(x - mean), (n, k): inner products are the bilinear part of the log-ratio."""
        return self.coordinates(X) * np.sqrt(self.core)


def _finite_view(values: MatrixLike, name: str) -> Floats:
    """Finite numbers in one dimension, as an array that cannot be written to."""
    array = np.asarray(check_kind(values, name), dtype=float).view()
    if array.ndim != 1:
        raise ValueError(f"{name} has shape {array.shape}: give one dimension")
    array.flags.writeable = False
    return check_finite(array, name, largest=np.finfo(float).max)


# book/two_covariance.ipynb#coordinates-with-diagonal-covariances
def class_log_ratios(between: Floats, Q: Floats, means: Floats, counts: Indices) -> Floats:
    """Log-ratios (n, c) of samples and whole classes, in coordinates with within-class covariance I.

    Parameters
    ----------
    between : ndarray of shape (k,)
        Between-class variances p of the coordinates.
    Q : ndarray of shape (n, k)
        Samples.
    means : ndarray of shape (c, k)
        Mean of the references of each class.
    counts : ndarray of int, shape (c,)
        Number of its references.

    Notes
    -----
    Derived in chapter 22 (two_covariance), eq. (plda-class).
    """
    shrinkage = between / (1 / counts[:, None] + between)  # a, (c, k)
    centers = shrinkage * means
    variance = 1 + between * (1 - shrinkage)
    near = Q**2 @ (1 / variance).T - 2 * Q @ (centers / variance).T
    near += np.sum(centers**2 / variance, axis=1)
    apart = Q**2 @ (1 / (1 + between))
    return 0.5 * (apart[:, None] - near - np.sum(np.log(variance / (1 + between)), axis=1))


# book/two_covariance.ipynb#the-statistics-of-a-task
class Scatters(NamedTuple):
    """What a task, or several, say about the covariances within and between classes.

    Attributes
    ----------
    within : ndarray of shape (k, k)
        S.
    between : ndarray of shape (k, k)
        B, the scatter of the class means.
    noise : float
        a: B has a S of noise in it.

    Notes
    -----
    Derived in chapter 22 (two_covariance), eqs. (plda-scatters) and (plda-noise).
    """

    within: Floats
    between: Floats
    noise: float


@dataclass(frozen=True, eq=False)
class Moments(Record):
    """Counts, means and within-class scatter of labeled samples, in some coordinates.

    Attributes
    ----------
    labels : tuple
        Of the c classes.
    counts : ndarray of shape (c,)
        Samples of each class.
    means : ndarray of shape (c, k)
        Class means, with the mean of the samples of each task at 0.
    within : ndarray of shape (k, k)
        Sum over samples of the outer products of their deviations from the class mean.
    trace : float
        Trace of the within scatter in the input space.
    n_features : int
        Dimensions of the input space.
    centered : ndarray of shape (c,)
        Sum over tasks of n_tc^2 / n_t, what the means of the tasks take from each class.
    n_tasks : int
        Tasks whose samples are joined.

    Notes
    -----
    Derived in chapter 22 (two_covariance), eqs. (plda-scatters) and (plda-joined); chapter 23
    (plda_memory), eq. (plda-tail).
    """

    labels: tuple[Any, ...]
    counts: Indices
    means: Floats
    within: Floats
    trace: float
    n_features: int
    centered: Floats
    n_tasks: int = 1

    @property
    def scale(self) -> float:
        """What the scatter within classes is divided by."""
        between = float(self.counts @ np.sum(self.means**2, axis=1))
        within = self.trace if self.trace > 1e-12 * between else between
        least = self.n_features * np.finfo(float).tiny  # nothing can be divided by less
        return (within if within >= least else 1.0) / self.n_features

    @property
    def freedom(self) -> tuple[float, float, float]:
        """How often S is in the scatter within classes, and S and B in that of class means."""
        n = float(self.counts.sum())
        noise = len(self.counts) - float(np.sum(self.centered / self.counts))
        within = max(n - self.n_tasks - noise, 1.0)
        return within, noise, max(n - float(self.centered.sum()), 1.0)

    @property
    def unit(self) -> float:
        """Mean within-class variance of a feature; samples are measured in its root."""
        return self.scale / self.freedom[0]

    def in_unit(self) -> "Moments":
        """The moments of the samples divided by the root of their unit."""
        u2 = self.unit
        return replace(
            self, means=self.means / np.sqrt(u2), within=self.within / u2, trace=self.trace / u2
        )

    @property
    def scatters(self) -> Scatters:
        """S_t, B_t and the noise in B_t."""
        within, noise, between = self.freedom
        means = self.means / np.sqrt(self.scale)
        spread = np.sqrt(self.counts * within / between)[:, None] * means
        return Scatters(
            within=self.within / self.scale, between=spread.T @ spread, noise=noise / between
        )


# book/two_covariance.ipynb#the-statistics-of-a-task
def task_moments(
    X: Matrix, codes: Indices, labels: Sequence[Any], basis: Floats | None = None
) -> tuple[Moments, Floats]:
    """Moments of a task's samples in an orthonormal basis, and their mean.

    Parameters
    ----------
    X : {ndarray, csr_array} of shape (n, n_features)
    codes : ndarray of int, shape (n,)
        The class of each sample.
    labels : sequence
        Label of each class.
    basis : ndarray of shape (k, n_features), optional
        Orthonormal rows; the input space by default.

    Returns
    -------
    moments : Moments
    mean : ndarray of shape (n_features,)
    """
    counts, means = class_means(X, codes)
    mean = counts @ means / len(codes)
    Y = dense(X if basis is None else safe_sparse_dot(X, basis.T, dense_output=True))
    image = means if basis is None else means @ basis.T
    R = Y - image[codes]
    squares = (X.multiply(X) if sparse.issparse(X) else X * X).sum()
    trace = float(squares - counts @ np.sum(means**2, axis=1))
    if basis is None or len(basis) == X.shape[1] or trace < 1e-12 * squares:
        trace = float(np.sum(R * R))  # no cancellation
    moments = Moments(
        labels=tuple(labels),
        counts=counts,
        means=image - counts @ image / len(codes),
        within=R.T @ R,
        trace=trace,
        n_features=X.shape[1],
        centered=counts**2 / len(codes),
    )
    return moments, mean


# book/two_covariance.ipynb#the-statistics-of-a-task
def merge_moments(a: Moments, b: Moments, shift: Floats | None = None) -> Moments:
    """Moments of two sets of samples together.

    `shift` (k,) is the mean of the samples of b less that of a, both of one task. None: they are
    of different tasks, each with its mean at 0.
    """
    labels = tuple(dict.fromkeys((*a.labels, *b.labels)))
    place = {label: number for number, label in enumerate(labels)}
    at = np.array([place[label] for label in (*a.labels, *b.labels)], dtype=np.intp)
    sizes = np.concatenate([a.counts, b.counts])
    n = int(sizes.sum())
    # class means of both sets about the joint mean, and the joint class means
    own = np.concatenate([a.means, b.means])
    if shift is not None:
        share = b.counts.sum() / n
        own = np.concatenate([a.means - share * shift, b.means + (1 - share) * shift])
    counts = np.bincount(at, sizes).astype(int)
    sums = np.zeros((len(labels), own.shape[1]))
    np.add.at(sums, at, sizes[:, None] * own)
    means = sums / counts[:, None]
    # the scatter about them: of each set about its own class means, and of these
    gaps = np.sqrt(sizes)[:, None] * (own - means[at])
    summed = np.bincount(at, np.concatenate([a.centered, b.centered])).astype(float)
    return Moments(
        labels=labels,
        counts=counts,
        means=means,
        within=a.within + b.within + gaps.T @ gaps,
        trace=float(a.trace + b.trace + np.sum(gaps**2)),
        n_features=a.n_features,
        centered=summed if shift is None else counts**2 / n,
        n_tasks=a.n_tasks + b.n_tasks if shift is None else 1,
    )


# book/two_covariance.ipynb#what-tasks-say-together
class TaskSums(NamedTuple):
    """Sums of the statistics of tasks, in one orthonormal basis; they grow task by task.

    Attributes
    ----------
    size : int
        Number of tasks.
    total : Scatters
        Sums of S_t, B_t and a_t.
    trace : float
        Sum of the traces of S_t in the input space.
    joined : Moments or None
        Of all samples, each in the unit of its task, those of one label together; where labels
        are shared.

    Notes
    -----
    Derived in chapter 22 (two_covariance), eqs. (plda-pooled), (plda-keyed) and (plda-joined).
    """

    size: int
    total: Scatters
    trace: float
    joined: Moments | None

    @classmethod
    def of(cls, moments: Sequence[Moments], shared_labels: bool) -> Self:
        """The sums over tasks, at least one, with such moments."""
        first, *others = moments
        one = cls(
            size=1,
            total=first.scatters,
            trace=first.trace / first.scale,
            joined=first.in_unit() if shared_labels else None,
        )
        return reduce(cls.plus, others, one)

    def plus(self, moments: Moments) -> Self:
        """The sums with one more task."""
        more = moments.scatters
        total = Scatters(
            within=self.total.within + more.within,
            between=self.total.between + more.between,
            noise=self.total.noise + more.noise,
        )
        trace = self.trace + moments.trace / moments.scale
        joined = None if self.joined is None else merge_moments(self.joined, moments.in_unit())
        return self._replace(size=self.size + 1, total=total, trace=trace, joined=joined)

    @property
    def mean_within(self) -> Floats:
        """Mean of S_t over the tasks, (k, k)."""
        return self.total.within / self.size

    @property
    def scatters(self) -> Scatters:
        """S, B and the noise in B: of joined samples, or the means over the tasks."""
        if self.joined is not None:
            return self.joined.scatters
        within, between, noise = self.total
        return Scatters(within / self.size, between / self.size, noise / self.size)


def pooled_scatters(moments: Sequence[Moments], shared_labels: bool = False) -> Scatters:
    """What several tasks say together about within-class and between-class scatter.

    Parameters
    ----------
    moments : list of Moments
        Of the tasks, in the same coordinates.
    shared_labels : bool, default=False
        Whether a label means the same class in every task. False averages the tasks'
        scatters; True joins the samples of a class over tasks.

    Returns
    -------
    Scatters

    Notes
    -----
    Derived in chapter 22 (two_covariance), eqs. (plda-pooled), (plda-keyed) and (plda-joined).
    """
    return TaskSums.of(moments, shared_labels).scatters


# book/two_covariance.ipynb#how-much-of-its-own-the-mixed-model
def mix_scatters(weights: tuple[float, float], own: Scatters, shared: Scatters) -> Scatters:
    """Weighted mean of a task's own scatters and the shared ones, eq. (plda-mixed).

    `weights` are those of its own, within and between classes.
    """
    inside, outside = weights
    return Scatters(
        within=inside * own.within + (1 - inside) * shared.within,
        between=outside * own.between + (1 - outside) * shared.between,
        noise=outside * own.noise + (1 - outside) * shared.noise,
    )


def class_axes(scatters: Scatters, ridge: float) -> tuple[Floats, Floats]:
    """Directions V (k, k), and the variances psi (k,) between classes along them, falling.

    V' (within + ridge I) V = I. Where class means do not differ psi is 0. Derived in chapter 22
    (two_covariance), eqs. (plda-mixed) and (plda-cut).
    """
    within, between, noise = scatters
    omega = within + ridge * np.eye(len(within))
    if ridge > 0 and _differ_everywhere(between, omega, ridge):
        psi, V = linalg.eigh(between - noise * within, omega)
        return V[:, ::-1], np.maximum(psi[::-1], 0.0)
    e, U = linalg.eigh(between, omega)
    differs = e > 1e-8 * e[-1]  # sums of many tasks leave rounding where they do not
    inside = U[:, differs]
    # the noise of the class means, in these coordinates
    blur = noise * (np.eye(inside.shape[1]) - ridge * inside.T @ inside)
    psi, R = linalg.eigh(np.diag(e[differs]) - blur)
    V = np.concatenate([inside @ R[:, ::-1], U[:, ~differs]], axis=1)
    return V, np.concatenate([np.maximum(psi[::-1], 0.0), np.zeros(np.sum(~differs))])


def _differ_everywhere(between: Floats, omega: Floats, ridge: float) -> bool:
    """Whether class means differ in all directions, by far more than rounding."""
    most = np.trace(between) / ridge  # no ratio of between to omega >= ridge I is larger
    _, place = lapack.dpotrf(between - 1e-8 * most * omega)
    return bool(place == 0 < most)  # positive definite


def shrunken_variances(
    psi: Floats, scale: float = 1.0, noise: float = 0.0, floor: float = 0.0
) -> Floats:
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
    Derived in chapter 22 (two_covariance), eq. (plda-wiener).

    Examples
    --------
    >>> shrunken_variances([0.0, 1.0, 3.0], noise=1.0).tolist()
    [0.0, 0.5, 2.25]
    """
    psi = np.maximum(psi, 0.0)
    total = psi + noise
    return scale * psi * np.divide(psi, total, out=np.zeros_like(total), where=total > 0) + floor
