# Generated from book/two_covariance.ipynb by tools/tangle.py: edit the chapter.
"""Probabilistic LDA: the two-covariance model of labelled rows and its log-ratio.

Two rows are scored by how much more likely they are as members of one class than of two.
`Moments` are the statistics that this needs; `pooled_scatters` is what several tasks say together.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg, sparse
from sklearn.utils.extmath import safe_sparse_dot

from lml.fisher import class_means
from lml.metrics import FactoredMetric
from lml.utils.linalg import dense, svd
from lml.utils.typing import Floats, Indices, Matrix, MatrixLike
from lml.utils.validation import check_finite, check_kind

__all__ = [
    "DegreesOfFreedom",
    "LogRatioMetric",
    "Moments",
    "Scatters",
    "averaged_scatters",
    "class_axes",
    "discriminants",
    "log_ratio_coefficients",
    "log_ratios",
    "merge_moments",
    "mix_scatters",
    "pooled_scatters",
    "short_spread",
    "shrunken_variances",
    "task_moments",
]


# book/two_covariance.ipynb#same-class-or-not
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


# book/two_covariance.ipynb#same-class-or-not
def log_ratios(between: Floats, Q: Floats, R: Floats) -> Floats:
    """Log-ratios (n, m) of rows of coordinates Q (n, k) and R (m, k).

    `between` are the between-class variances p (k,) of the coordinates.
    """
    product, square, constant = log_ratio_coefficients(between)
    own = 0.5 * (Q * Q) @ square
    return (Q * product) @ R.T - own[:, None] - 0.5 * (R * R) @ square + constant


# book/two_covariance.ipynb#coordinates-in-which-both-covariances-are-diagonal
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
    Derived in chapter 22 (two_covariance), eqs. (plda-ratio) and (plda-diagonal).

    Examples
    --------
    >>> metric = LogRatioMetric([1.0, 0.0], [[1.0, 0.0]], [1.0])
    >>> metric.bilinear([[2.0, 5.0]], [[3.0, 0.0]]).round(4).tolist()
    [[0.3938]]
    """

    def __init__(self, mean: MatrixLike, rows: MatrixLike, between: MatrixLike) -> None:
        self._mean = _finite_view(mean, "mean")
        self._between = _finite_view(between, "between")
        if (self._between < 0).any():
            raise ValueError(f"between holds {self._between.min()}: variances are at least 0")
        product = log_ratio_coefficients(self._between)[0]
        super().__init__(0.0, rows, product, self._mean.size)
        self._shift = self.factor @ self._mean

    def __reduce__(self) -> tuple[Any, ...]:
        return (LogRatioMetric, (self._mean, self.factor, self._between))

    @property
    def mean(self) -> Floats:
        """What is subtracted from all rows, shape (n_features,)."""
        return self._mean

    @property
    def between(self) -> Floats:
        """Between-class variances p of the coordinates, shape (k,)."""
        return self._between

    @property
    def nbytes(self) -> int:
        """Bytes of the rows, the variances and the mean."""
        return super().nbytes + self._between.nbytes + self._mean.nbytes

    def coordinates(self, X: MatrixLike) -> Floats:
        """Coordinates H(x - mean) of the rows of X (n, n_features), shape (n, k)."""
        return self.image(X) - self._shift

    def bilinear(self, X: MatrixLike, Z: MatrixLike) -> Floats:
        """Log-ratios of all pairs of rows of X (n, n_features) and Z (m, n_features)."""
        return log_ratios(self._between, self.coordinates(X), self.coordinates(Z))

    def paired(self, X: MatrixLike, Z: MatrixLike) -> Floats:
        """Log-ratios of matching rows of X and Z, both (n, n_features), shape (n,)."""
        Q = self.coordinates(X)
        R = self.coordinates(Z)
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

    def map_rows(self, X: MatrixLike, role: str) -> Floats:
        """Rows of X (n, n_features) as "query" or "reference": Euclidean nearest = log-ratio.

        Derived in chapter 22 (two_covariance), eq. (plda-stretch). Coordinates with p = 0 are left
        out, shape (n, k').
        """
        used = self._between > 0
        p = self._between[used]
        rows = self.coordinates(X)[:, used]
        square = log_ratio_coefficients(p)[1]
        return rows * np.sqrt(square) * ((1 + p) / p if role == "query" else 1.0)

    def components(self, max_features: int = 4096) -> Floats:
        """A map L (k', n_features) with L'L = M; coordinates with p = 0 are left out."""
        used = self._between > 0
        return np.sqrt(self.core[used])[:, None] * self.factor[used]

    def _embed(self, X: Matrix) -> Floats:
        """Rows L(x - mean), (n, k'): inner products are the bilinear part of the log-ratio."""
        used = self._between > 0
        return self.coordinates(X)[:, used] * np.sqrt(self.core[used])


def _finite_view(values: MatrixLike, name: str) -> Floats:
    """Finite numbers as an array that cannot be written to."""
    array = np.asarray(check_kind(values, name), dtype=float).view()
    array.flags.writeable = False
    return check_finite(array, name, largest=np.finfo(float).max)


# book/two_covariance.ipynb#the-statistics-of-a-task
class DegreesOfFreedom(NamedTuple):
    """How often the covariances are in the sums of eq. (plda-expected).

    Attributes
    ----------
    within : float
        S in the scatter of the samples about their class means.
    noise : float
        S in that of the class means.
    between : float
        B in that of the class means.
    """

    within: float
    noise: float
    between: float

    @classmethod
    def of(cls, counts: Indices, centred: Floats, n_tasks: int) -> Self:
        """Those of classes of such sizes (c,); `Moments` tells what the other two are."""
        n = int(counts.sum())
        noise = len(counts) - float(np.sum(centred / counts))
        return cls(
            within=max(n - n_tasks - noise, 1.0),
            noise=noise,
            between=max(n - float(centred.sum()), 1.0),
        )


class Scatters(NamedTuple):
    """What a task, or several, say about the covariances within and between classes.

    Attributes
    ----------
    within : ndarray of shape (k, k)
        S.
    spread : ndarray of shape (r, k)
        Rows with spread' spread = B, the scatter of the class means.
    noise : float
        a: B has a S of noise in it.

    Notes
    -----
    Derived in chapter 22 (two_covariance), eqs. (plda-scatters) and (plda-noise).
    """

    within: Floats
    spread: Floats
    noise: float

    @classmethod
    def of_means(
        cls, within: Floats, means: Floats, counts: Indices, freedom: DegreesOfFreedom
    ) -> Self:
        """S and the scatter of class means (c, k), the mean of all at 0, in one unit."""
        weights = counts * freedom.within / freedom.between
        return cls(
            within=within,
            spread=np.sqrt(weights)[:, None] * means,
            noise=freedom.noise / freedom.between,
        )


# book/two_covariance.ipynb#the-statistics-of-a-task
class Moments(NamedTuple):
    """Counts, means and within-class scatter of labelled rows, in some coordinates.

    Attributes
    ----------
    labels : tuple
        Of the c classes.
    counts : ndarray of shape (c,)
        Rows of each class.
    means : ndarray of shape (c, k)
        Class means, with the mean of the rows of each task at 0.
    within : ndarray of shape (k, k)
        Sum over rows of the outer products of their deviations from the class mean.
    trace : float
        Trace of the within scatter in the input space.
    n_features : int
        Dimensions of the input space.
    centred : ndarray of shape (c,)
        Sum over tasks of n_tc^2 / n_t, what the means of the tasks have of each class.
    n_tasks : int
        Tasks whose rows are joined.

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
    centred: Floats
    n_tasks: int = 1

    @property
    def scale(self) -> float:
        """What the scatter within classes is divided by."""
        between = float(self.counts @ np.sum(self.means**2, axis=1))
        within = self.trace if self.trace > 1e-12 * between else between
        least = self.n_features * np.finfo(float).tiny  # nothing can be divided by less
        return (within if within >= least else 1.0) / self.n_features

    @property
    def freedom(self) -> DegreesOfFreedom:
        """Degrees of freedom of both scatters."""
        return DegreesOfFreedom.of(self.counts, self.centred, self.n_tasks)

    @property
    def unit(self) -> float:
        """Mean within-class variance of a feature."""
        return self.scale / self.freedom.within

    @property
    def scatter(self) -> Floats:
        """The scaled within scatter S_t, (k, k)."""
        return self.within / self.scale

    @property
    def scatters(self) -> Scatters:
        """S_t, rows (c, k) whose scatter is B_t, and the noise in it."""
        means = self.means / np.sqrt(self.scale)
        return Scatters.of_means(self.scatter, means, self.counts, self.freedom)


# book/two_covariance.ipynb#the-statistics-of-a-task
def task_moments(
    X: Matrix, codes: Indices, labels: Sequence[Any], basis: Floats | None = None
) -> tuple[Moments, Floats]:
    """Moments of the rows of a task in the coordinates of an orthonormal basis, and their mean.

    Parameters
    ----------
    X : {ndarray, csr_array} of shape (n, n_features)
    codes : ndarray of int, shape (n,)
        The class of each row.
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
        centred=counts**2 / len(codes),
    )
    return moments, mean


# book/two_covariance.ipynb#the-statistics-of-a-task
def merge_moments(a: Moments, b: Moments, shift: Floats | None = None) -> Moments:
    """Moments of two sets of rows together.

    `shift` (k,) is the mean of the rows of b less that of the rows of a, both of one task. None:
    they are of different tasks, each with its mean at 0.
    """
    n = a.counts.sum()
    m = b.counts.sum()
    gap = np.zeros(a.means.shape[1]) if shift is None else shift
    labels = tuple(dict.fromkeys((*a.labels, *b.labels)))
    place = {label: number for number, label in enumerate(labels)}
    # class means about the joint mean
    counts = np.zeros(len(labels), dtype=int)
    sums = np.zeros((len(labels), len(gap)))
    centred = np.zeros(len(labels))
    parts = []
    for part, move in ((a, -m / (n + m) * gap), (b, n / (n + m) * gap)):
        places = [place[label] for label in part.labels]
        own = part.means + move
        counts[places] += part.counts
        sums[places] += part.counts[:, None] * own
        centred[places] += part.centred
        parts.append((places, part.counts, own))
    means = sums / counts[:, None]
    # the scatter about them: of each set about its own class means, and of these
    between = np.concatenate([np.sqrt(k)[:, None] * (own - means[at]) for at, k, own in parts])
    return Moments(
        labels=labels,
        counts=counts,
        means=means,
        within=a.within + b.within + between.T @ between,
        trace=float(a.trace + b.trace + np.sum(between**2)),
        n_features=a.n_features,
        centred=centred if shift is None else counts**2 / (n + m),
        n_tasks=a.n_tasks + b.n_tasks if shift is None else 1,
    )


# book/two_covariance.ipynb#what-tasks-say-together
def pooled_scatters(moments: Sequence[Moments], shared_labels: bool = False) -> Scatters:
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
    Scatters

    Notes
    -----
    Derived in chapter 22 (two_covariance), eqs. (plda-pooled), (plda-keyed) and (plda-joined).
    """
    if shared_labels:
        return reduce(merge_moments, moments).scatters  # each task's mean is at 0
    return averaged_scatters([(1, m.scatters) for m in moments])


def averaged_scatters(parts: Sequence[tuple[float, Scatters]]) -> Scatters:
    """The mean of scatters, each with its weight; a weight of 0 leaves a part out."""
    total = sum(weight for weight, _ in parts)
    shares = [(weight / total, part) for weight, part in parts if weight]
    return Scatters(
        within=np.sum([share * part.within for share, part in shares], axis=0),
        spread=np.concatenate([np.sqrt(share) * part.spread for share, part in shares]),
        noise=sum(share * part.noise for share, part in shares),
    )


# book/two_covariance.ipynb#what-tasks-say-together
def short_spread(spread: Floats) -> Floats:
    """At most as many rows as columns, (r, k), with the scatter of a spread."""
    if len(spread) <= spread.shape[1]:
        return spread
    return linalg.qr(spread, mode="economic")[1]


# book/two_covariance.ipynb#how-much-of-its-own
def mix_scatters(weights: tuple[float, float], own: Scatters, shared: Scatters) -> Scatters:
    """Scatters of a task: its own ones and the shared ones, weighed.

    Derived in chapter 22 (two_covariance), eq. (plda-mixed). `weights` are those of its own, within
    and between classes.
    """
    within_weight, between_weight = weights
    within = within_weight * own.within + (1 - within_weight) * shared.within
    mixed = averaged_scatters([(between_weight, own), (1 - between_weight, shared)])
    return mixed._replace(within=within)


# book/two_covariance.ipynb#how-much-of-its-own
def discriminants(omega: Floats, spread: Floats, complete: bool = False) -> tuple[Floats, Floats]:
    """V (k, r) and psi (r,), falling: V' omega V = I, V' spread' spread V = diag(psi).

    Without `complete` only as many columns as `spread` has rows, or k.
    """
    lower = linalg.cholesky(omega, lower=True, check_finite=False)
    half = linalg.solve_triangular(lower, spread.T, lower=True, check_finite=False)
    full = complete and half.shape[1] < len(half)
    U, s, _ = svd(half, full_matrices=full)
    psi = np.zeros(U.shape[1])
    psi[: len(s)] = s * s
    V = linalg.solve_triangular(lower, U, lower=True, trans=1, check_finite=False)
    return V, psi


# book/two_covariance.ipynb#how-much-of-its-own
def class_axes(
    scatters: Scatters, ridge: Floats | float, complete: bool = False
) -> tuple[Floats, Floats]:
    """Directions V (k, r), and the variances psi (r,) between classes along them.

    V' (within + ridge) V = I, with rho for rho I as the ridge, or rho I written in other
    coordinates. Without `complete` only directions in which class means differ. Derived in chapter
    22 (two_covariance), eq. (plda-cut).
    """
    is_matrix = isinstance(ridge, np.ndarray)
    omega = scatters.within + (ridge if is_matrix else ridge * np.eye(len(scatters.within)))
    U, e = discriminants(omega, scatters.spread, complete)
    differs = e > 1e-8 * e.max()  # sums of many tasks leave rounding where they do not
    directions = U[:, differs]
    # the noise of the class means, in these coordinates
    stretched = ridge @ directions if is_matrix else ridge * directions
    noise = scatters.noise * (np.eye(len(directions.T)) - directions.T @ stretched)
    psi, R = linalg.eigh(np.diag(e[differs]) - noise)
    V = np.concatenate([directions @ R[:, ::-1], U[:, ~differs]], axis=1)
    return V, np.concatenate([np.maximum(psi[::-1], 0.0), np.zeros(np.sum(~differs))])


# book/two_covariance.ipynb#how-much-of-its-own
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
