# Generated from book/metrics.ipynb and book/oasis.ipynb and book/metrics_factored.ipynb by tools/tangle.py: edit the chapter.
"""Metrics of one task, kept factored.

A metric is M = alpha I + F' C F with a factor F of r rows and a small core C. Products,
projections, the positive semi-definite read-out and low-rank compression cost O(r D) or
O(r^2 D) operations; no D x D array is made unless `to_dense` asks for it.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg, sparse
from sklearn import get_config
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from lml.utils.documentation import DocumentedMixin
from lml.utils.linalg import dense, nbytes, stacked, svd, times_transpose
from lml.utils.typing import Floats, Indices, Matrix, MatrixLike
from lml.utils.validation import (
    Rule,
    check_columns,
    check_finite,
    check_matrix,
    check_new_samples,
    inside,
    is_real,
    one_of,
    optional,
    real,
    whole,
)

__all__ = [
    "METRIC_LEARNER",
    "METRIC_TYPE",
    "ROLE",
    "SIDE",
    "START",
    "FactoredMetric",
    "LabeledPairs",
    "Lesson",
    "MetricDistance",
    "MetricLearnerMixin",
    "check_metric",
    "check_pairs",
    "fitted_metric",
    "has_own_score",
    "index_space",
    "mapped_samples",
    "pairwise_scores",
    "starting_metric",
    "subspace_residual",
]

# book/metrics.ipynb#metrics
#: Rule for how a metric ranks: by x'Mz, or by minus (x-z)'M(x-z).
METRIC_TYPE = one_of("similarity", "distance")


# book/metrics.ipynb#the-factored-form
def _finite_matrix(
    A: MatrixLike, name: str, n_features: int | None = None, **options: Any
) -> Matrix:
    """A finite matrix, of numbers as large as a float can be: a product may overflow."""
    return check_matrix(A, name, n_features, largest=np.finfo(float).max, **options)


def _read_only(A: Matrix) -> Matrix:
    """A CSR array, or a view of a dense array that cannot be written to."""
    if sparse.issparse(A):
        return A.tocsr()
    if A.flags.writeable:
        A = A.view()
        A.flags.writeable = False
    return A


# book/metrics.ipynb#the-factored-form
class FactoredMetric:
    """A metric M = alpha I + F' C F, kept as its three parts.

    Nothing of shape (n_features, n_features) is made unless `to_dense` is called (or
    `components` of a metric with alpha > 0). A metric is immutable: operations return
    new metrics, dense parts are read-only views.

    Parameters
    ----------
    alpha : float
        Coefficient of the identity, of either sign.
    factor : array-like or sparse matrix of shape (r, n_features)
        The factor F. It is converted to float64 (sparse input to CSR) but not copied
        when it already has this form: do not write to it afterwards.
    core : array-like or sparse matrix of shape (r, r), or array-like of shape (r,)
        The core C, not necessarily symmetric; a vector stands for a diagonal matrix.
    n_features : int, optional
        When given, the number of columns that `factor` must have.

    Raises
    ------
    ValueError
        If the shapes do not fit, or a value is NaN or infinite.

    Notes
    -----
    Derived in chapter 3 (metrics), eq. (metrics-factored). A lifelong metric L' W L is
    ``FactoredMetric(0.0, L, W)``. Paper: section III-C, eq. 4.

    Examples
    --------
    >>> import numpy as np
    >>> from lml.metrics import FactoredMetric
    >>> metric = FactoredMetric(1.0, [[1.0, 2.0, 0.0]], [3.0])
    >>> metric.to_dense().tolist()
    [[4.0, 6.0, 0.0], [6.0, 13.0, 0.0], [0.0, 0.0, 1.0]]
    >>> metric.bilinear(np.eye(3)[:1], np.eye(3)).tolist()
    [[4.0, 6.0, 0.0]]
    """

    __array_ufunc__ = None  # numpy scalars leave `scalar * metric` to __rmul__
    _is_psd_read_out = False  # of `psd`: orthonormal rows, rising weights, none below -alpha
    # book/metrics_factored.ipynb#the-map-behind-a-psd-metric
    index_space = "inner product"  # in which the nearest of `map_rows` are those of a similarity

    # book/metrics.ipynb#the-factored-form
    def __init__(
        self, alpha: float, factor: MatrixLike, core: MatrixLike, n_features: int | None = None
    ) -> None:
        real().check("alpha", alpha)
        factor = _finite_matrix(factor, "factor", n_features)
        core = _finite_matrix(core, "core", ensure_2d=False, ensure_min_features=0)
        r = factor.shape[0]
        if core.shape not in ((r,), (r, r)):
            raise ValueError(
                f"core has shape {core.shape}, but factor has shape {factor.shape}: "
                f"pass a core of shape ({r}, {r}), or ({r},) for a diagonal one"
            )
        self._alpha = float(alpha)
        self._factor = _read_only(factor)
        self._core = _read_only(core)

    @classmethod
    def _trusted(
        cls, alpha: float, factor: Matrix, core: Matrix, is_psd_read_out: bool = False
    ) -> Self:
        """A metric of float64 parts, dense or CSR, that fit together: nothing is checked."""
        metric = cls.__new__(cls)
        metric._is_psd_read_out = is_psd_read_out
        metric._alpha = float(alpha)
        metric._factor = _read_only(factor)
        metric._core = _read_only(core)
        return metric

    @property
    def alpha(self) -> float:
        """Coefficient of the identity."""
        return self._alpha

    @property
    def factor(self) -> Matrix:
        """The factor F, of shape (r, n_features); read-only."""
        return self._factor

    @property
    def core(self) -> Matrix:
        """The core C, of shape (r, r), or (r,) when it is diagonal; read-only."""
        return self._core

    @property
    def n_features(self) -> int:
        """Number of features D."""
        return self._factor.shape[1]

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the matrix M, (n_features, n_features)."""
        return (self.n_features, self.n_features)

    @property
    def nbytes(self) -> int:
        """Bytes held by the factor, the core and alpha."""
        return nbytes(self.factor) + nbytes(self.core) + 8

    def __repr__(self) -> str:
        kind = "CSR " if sparse.issparse(self.factor) else ""
        return (
            f"FactoredMetric(alpha={self.alpha:g}, factor {kind}{self.factor.shape}, "
            f"core {self.core.shape})"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        parts = (self.alpha, self.factor, self.core, self._is_psd_read_out)
        return (FactoredMetric._trusted, parts)

    @staticmethod
    def identity(n_features: int, scale: float = 1.0) -> "FactoredMetric":
        """The metric ``scale * I`` on `n_features` features (an empty factor)."""
        real().check("scale", scale)
        return FactoredMetric._trusted(scale, np.zeros((0, n_features)), np.zeros(0))

    @staticmethod
    def from_dense(M: MatrixLike) -> "FactoredMetric":
        """The metric of a dense square matrix `M` (n_features, n_features)."""
        M = _finite_matrix(M, "M")
        if M.shape[0] != M.shape[1]:
            raise ValueError(f"M has shape {M.shape}: pass a square matrix (D, D)")
        return FactoredMetric._trusted(0.0, np.eye(M.shape[0]), M)

    @staticmethod
    def from_components(L: MatrixLike) -> "FactoredMetric":
        """The metric L'L of a linear map `L` (d, n_features), dense or sparse."""
        L = _finite_matrix(L, "L")
        return FactoredMetric._trusted(0.0, L, np.ones(L.shape[0]))

    # book/metrics.ipynb#products
    def image(self, X: MatrixLike) -> Floats:
        """Image X F' of samples `X` (n, n_features), a dense array (n, r)."""
        return times_transpose(_finite_matrix(X, "X", self.n_features), self.factor)

    @cached_property
    def _has_identity_factor(self) -> bool:
        F = self.factor
        if sparse.issparse(F) or F.shape[0] != F.shape[1]:
            return False
        return bool(np.count_nonzero(F) == len(F) and (F.diagonal() == 1).all())

    def _image(self, X: Matrix) -> Floats:
        """X F', which is X itself where F is the identity: not to be written into."""
        return dense(X) if self._has_identity_factor else times_transpose(X, self.factor)

    def _by_core(self, K: Floats) -> Floats:
        """K C for a dense `K` (n, r)."""
        return K * self.core if self.core.ndim == 1 else K @ self.core

    def apply(self, X: MatrixLike) -> Floats:
        """Product X M.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n, n_features)
            A dense array, also for sparse `X`.

        Notes
        -----
        Derived in chapter 3 (metrics), eq. (metrics-apply).
        """
        return self._apply(_finite_matrix(X, "X", self.n_features))

    def _apply(self, X: Matrix) -> Floats:
        product = self._by_core(self._image(X))
        if not self._has_identity_factor:
            product = product @ self.factor
        return product + self.alpha * X if self.alpha else product

    def bilinear(self, X: MatrixLike, Z: MatrixLike) -> Floats:
        """Product X M Z', the similarities of all pairs of samples.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, n_features)
            Left samples (queries).
        Z : array-like or sparse matrix of shape (m, n_features)
            Right samples (references).

        Returns
        -------
        ndarray of shape (n, m)

        Notes
        -----
        Derived in chapter 3 (metrics), eq. (metrics-bilinear). Paper: section III-A, eq. 1.
        """
        left = _finite_matrix(X, "X", self.n_features)
        return self._bilinear(left, left if Z is X else _finite_matrix(Z, "Z", self.n_features))

    def _bilinear(self, X: Matrix, Z: Matrix) -> Floats:
        left = self._image(X)
        right = left if Z is X else self._image(Z)
        product = self._by_core(left) @ right.T
        return product + self.alpha * times_transpose(X, Z) if self.alpha else product

    def project(self, L: MatrixLike, R: MatrixLike | None = None) -> Floats:
        """Projection L M L' (or L M R') onto the rows of a dictionary.

        Parameters
        ----------
        L : array-like of shape (d, n_features)
            Left rows.
        R : array-like of shape (e, n_features), optional
            Right rows; `L` when left out.

        Returns
        -------
        ndarray of shape (d, d) or (d, e)

        Notes
        -----
        Derived in chapter 3 (metrics), eq. (metrics-project).
        """
        return self.bilinear(L, L if R is None else R)

    def paired(self, X: MatrixLike, Z: MatrixLike) -> Floats:
        """Similarities x_i' M z_i of matching samples of `X` and `Z`, both (n, n_features).

        Returns
        -------
        ndarray of shape (n,)
        """
        left = _finite_matrix(X, "X", self.n_features)
        right = left if Z is X else _finite_matrix(Z, "Z", self.n_features)
        if left.shape != right.shape:
            raise ValueError(
                f"X has {left.shape[0]} samples, but Z has {right.shape[0]}: pass as many"
            )
        return self._paired(left, right)

    def _paired(self, X: Matrix, Z: Matrix) -> Floats:
        left = self._image(X)
        right = left if Z is X else self._image(Z)
        values = np.einsum("ij,ij->i", self._by_core(left), right)
        if self.alpha:
            if sparse.issparse(X):
                product = X.multiply(Z)
            else:
                product = Z.multiply(X) if sparse.issparse(Z) else X * Z
            values = values + self.alpha * product.sum(axis=1)
        return values

    def quadratic(self, X: MatrixLike) -> Floats:
        """Quadratic forms x_i' M x_i of the samples of `X` (n, n_features), shape (n,)."""
        return self.paired(X, X)

    def symmetrized(self) -> "FactoredMetric":
        """The symmetric part (M + M') / 2, all that a distance uses.

        Notes
        -----
        Derived in chapter 3 (metrics), eq. (metrics-symmetric-part).
        """
        if self.core.ndim == 1:
            return self
        return FactoredMetric._trusted(self.alpha, self.factor, (self.core + self.core.T) / 2)

    # book/metrics_factored.ipynb#sums-transposes-and-inner-products
    def __add__(self, other: "FactoredMetric") -> "FactoredMetric":
        if not isinstance(other, FactoredMetric):
            return NotImplemented
        alpha = self.alpha + other.alpha
        F = self.factor
        H = other.factor
        if F.shape[1] != H.shape[1]:
            raise ValueError(f"metrics of {F.shape[1]} and {H.shape[1]} features have no sum")
        if H.shape[0] == 0:
            return FactoredMetric._trusted(alpha, F, self.core)
        if F.shape[0] == 0:
            return FactoredMetric._trusted(alpha, H, other.core)
        cores = [self.core, other.core]
        sparse_core = any(map(sparse.issparse, cores))
        if self.core.ndim != other.core.ndim:  # a diagonal core beside a square one
            square = sparse.diags_array if sparse_core else np.diag
            cores = [square(core) if core.ndim == 1 else core for core in cores]
        if _same(F, H):  # the rank does not grow
            return FactoredMetric._trusted(alpha, F, cores[0] + cores[1])
        if cores[0].ndim == 1:
            core = np.concatenate(cores)
        elif sparse_core:
            core = sparse.block_diag(cores, format="csr")
        else:
            core = linalg.block_diag(*cores)
        return FactoredMetric._trusted(alpha, stacked(F, H), core)

    def __mul__(self, scale: float) -> "FactoredMetric":
        if not is_real(scale):
            return NotImplemented
        scale = float(scale)
        if not np.isfinite(scale):
            raise ValueError(f"scale={scale}: give a finite number")
        return FactoredMetric._trusted(scale * self.alpha, self.factor, scale * self.core)

    __rmul__ = __mul__

    def __truediv__(self, scale: float) -> "FactoredMetric":
        return self * (1.0 / scale)

    def __neg__(self) -> "FactoredMetric":
        return -1.0 * self

    def __sub__(self, other: "FactoredMetric") -> "FactoredMetric":
        return self + -other if isinstance(other, FactoredMetric) else NotImplemented

    @property
    def T(self) -> "FactoredMetric":
        """The transposed metric M'."""
        if self.core.ndim == 1:
            return self
        return FactoredMetric._trusted(self.alpha, self.factor, self.core.T)

    def to_dense(self) -> Floats:
        """The matrix M, (n_features, n_features): quadratic in the number of features."""
        F = dense(self.factor)
        M = self._by_core(F.T) @ F
        M[np.diag_indices(self.n_features)] += self.alpha
        return M

    def _trace_factored(self) -> float:
        """tr(F' C F)."""
        if self.core.ndim == 1 and not sparse.issparse(self.factor):
            return float(np.einsum("ij,ij,i->", self.factor, self.factor, self.core))
        return float(np.trace(self._by_core(times_transpose(self.factor, self.factor))))

    def inner(self, other: "FactoredMetric") -> float:
        """Frobenius inner product tr(M' N) with another metric, a float.

        Notes
        -----
        Derived in chapter 33 (metrics_factored), eq. (metrics-inner).
        """
        if self.n_features != other.n_features:
            raise ValueError(
                f"metrics of {self.n_features} and {other.n_features} features have no inner product"
            )
        cross = times_transpose(self.factor, other.factor)
        total = np.sum(self._by_core(cross.T).T * other.T._by_core(cross))
        total += self.alpha * other.alpha * self.n_features
        if self.alpha or other.alpha:
            total += self.alpha * other._trace_factored() + other.alpha * self._trace_factored()
        return float(total)

    # book/metrics_factored.ipynb#eigenvalues-from-a-factor-with-orthonormal-rows
    def _span(self) -> tuple[Floats, Floats]:
        """Orthonormal rows Q (k, D) and R (r, k) with F = R Q."""
        F = self.factor
        r = F.shape[0]
        if r == 0:
            return np.zeros((0, self.n_features)), np.zeros((0, 0))
        if not sparse.issparse(F):
            Q, R = linalg.qr(F.T, mode="economic", check_finite=False)
            return Q.T, R.T
        # the eigenvectors of F F' in place of a QR decomposition, which would fill in
        values, vectors = linalg.eigh(times_transpose(F, F))
        keep = values > max(values[-1], 0.0) * r * np.finfo(float).eps
        Q = (vectors[:, keep] / np.sqrt(values[keep])).T @ F  # (k, D)
        if keep.any():
            Q = linalg.qr(Q.T, mode="economic", check_finite=False)[0].T
        return Q, times_transpose(F, Q)

    def condensed(self) -> "FactoredMetric":
        """The same metric with orthonormal factor rows, at most min(r, n_features) many.

        Notes
        -----
        Derived in chapter 33 (metrics_factored), eq. (metrics-condensed).
        """
        Q, R = self._span()
        return FactoredMetric._trusted(self.alpha, Q, self._by_core(R.T) @ R)

    def norm(self) -> float:
        """Frobenius norm of M, a float, without cancellation.

        Notes
        -----
        Derived in chapter 33 (metrics_factored), eq. (metrics-norm).
        """
        Q, R = self._span()
        inside = self._by_core(R.T) @ R + self.alpha * np.eye(len(Q))
        outside = abs(self.alpha) * np.sqrt(self.n_features - len(Q))
        return float(np.hypot(np.linalg.norm(inside), outside))

    # book/metrics_factored.ipynb#the-nearest-psd-metric
    def _spectrum(self) -> tuple[Floats, Floats]:
        """Values s (k,) and orthonormal rows E (k, D): sym(M) = alpha I + E' diag(s) E.

        Of each row and its negative, the one whose largest entry is positive.
        """
        if self._is_psd_read_out:
            return self.core, self.factor
        Q, R = self._span()
        S = self._by_core(R.T) @ R
        values, vectors = linalg.eigh((S + S.T) / 2)
        rows = vectors.T @ Q
        largest = np.take_along_axis(rows, np.abs(rows).argmax(axis=1)[:, None], axis=1)
        return values, np.where(largest < 0, -rows, rows)

    def psd(self) -> "FactoredMetric":
        """The nearest positive semi-definite metric in the Frobenius norm.

        Returns
        -------
        FactoredMetric
            Symmetric, with a diagonal core and orthonormal factor rows.

        Notes
        -----
        Derived in chapter 3 (metrics), eq. (metrics-psd); chapter 33 (metrics_factored), eq.
        (metrics-psd-factored).
        """
        if self._is_psd_read_out:
            return self
        values, rows = self._spectrum()
        base = max(self.alpha, 0.0)
        weights = np.maximum(self.alpha + values, 0.0) - base
        keep = weights != 0.0
        return FactoredMetric._trusted(base, rows[keep], weights[keep], is_psd_read_out=True)

    # book/metrics_factored.ipynb#compression
    def compress(self, rank: int | None = None) -> "FactoredMetric":
        """The best symmetric approximation alpha I + (a matrix of rank `rank`).

        Parameters
        ----------
        rank : int >= 0, optional
            Number of rows to keep. None keeps all that are above rounding, which is exact for
            the symmetric part; more than there are is clipped.

        Returns
        -------
        FactoredMetric
            With orthonormal factor rows and a diagonal core in the order of falling
            magnitude.

        Notes
        -----
        Derived in chapter 33 (metrics_factored), eq. (metrics-compress).
        """
        optional(whole(0)).check("rank", rank)
        values, rows = self._spectrum()
        order = np.argsort(-np.abs(values), kind="stable")
        floor = 10 * len(values) * np.finfo(float).eps * np.abs(values).max(initial=0.0)
        order = order[np.abs(values[order]) > floor][:rank]  # below it is rounding
        return FactoredMetric._trusted(self.alpha, rows[order], values[order])

    # book/metrics_factored.ipynb#the-map-behind-a-psd-metric
    def _psd_spectrum(self) -> tuple[Floats, Floats]:
        """`_spectrum`, refused when M is not symmetric positive semi-definite."""
        values, rows = self._spectrum()
        ends = [self.alpha] * (len(rows) < self.n_features) + list(self.alpha + values)
        scale = max(np.abs(ends).max(initial=0.0), abs(self.alpha))
        if self.core.ndim == 2 and (self - self.T).norm() > 1e-8 * scale:
            raise ValueError("the metric is not symmetric: use symmetrized() or psd() first")
        if min(ends, default=0.0) < -1e-10 * scale:
            raise ValueError(
                f"the metric is not positive semi-definite (smallest eigenvalue "
                f"{min(ends):.3g}, largest {max(ends):.3g}): use psd() first"
            )
        return values, rows

    def root(self) -> "FactoredMetric":
        """The symmetric square root of a positive semi-definite metric.

        Raises
        ------
        ValueError
            If the metric is not symmetric positive semi-definite.

        Notes
        -----
        Derived in chapter 33 (metrics_factored), eq. (metrics-root).
        """
        values, rows = self._psd_spectrum()
        base = np.sqrt(max(self.alpha, 0.0))
        weights = np.sqrt(np.maximum(self.alpha + values, 0.0)) - base
        return FactoredMetric._trusted(base, rows, weights)

    def components(self, max_features: int = 4096) -> Floats:
        """A map L with L'L = M, for a positive semi-definite metric.

        Parameters
        ----------
        max_features : int, default=4096
            With alpha > 0 every such L has `n_features` rows; more features than this
            are refused.

        Returns
        -------
        ndarray of shape (k, n_features)
            With k = n_features (the square root) for alpha > 0, otherwise k is the rank.

        Raises
        ------
        ValueError
            If the metric is not symmetric positive semi-definite, or too large.
        """
        D = self.n_features
        if self.alpha > 0:
            if max_features < D:
                raise ValueError(
                    f"components of a metric with alpha > 0 is a {D} x {D} array, above "
                    f"max_features={max_features}: use embed(X) instead, or raise max_features"
                )
            return self.root().to_dense()
        values, rows = self._psd_spectrum()
        values = self.alpha + values  # alpha may be below 0
        keep = values > 1e-15 * values.max(initial=0.0)
        return np.sqrt(values[keep])[:, None] * rows[keep]

    def embed(self, X: MatrixLike) -> Floats:
        """Samples whose Euclidean inner products and distances are those of the metric.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n, k)
            With k = n_features for alpha > 0, otherwise k is the rank of the metric (a dense
            array, also for sparse `X`).

        Raises
        ------
        ValueError
            If the metric is not symmetric positive semi-definite.

        Notes
        -----
        Derived in chapter 33 (metrics_factored), eq. (metrics-root).
        """
        return self._embed(_finite_matrix(X, "X", self.n_features))

    def _embed(self, X: Matrix) -> Floats:
        return self.root()._apply(X) if self.alpha > 0 else times_transpose(X, self.components())

    def distance_function(self) -> "MetricDistance":
        """A callable ``distance(x, z, squared=False)`` of two vectors, for a PSD metric."""
        return MetricDistance(self.root())

    def map_rows(self, X: MatrixLike, role: str) -> Floats:
        """Samples as "query" or "reference", whose inner products are the similarities x'Mz.

        Derived in chapter 33 (metrics_factored), eq. (metrics-roles).
        """
        SIDE.check("role", role)
        X = _finite_matrix(X, "X", self.n_features)
        if self.alpha or self.factor.shape[0] > self.n_features:
            return self._apply(X) if role == "query" else np.array(dense(X))
        image = self._image(X)
        if role == "query":
            return self._by_core(image)
        return image.copy() if image is X else image


# book/metrics.ipynb#scores-of-all-pairs
def check_metric(metric: FactoredMetric, name: str) -> None:
    """Raise a TypeError unless a metric is a FactoredMetric."""
    if not isinstance(metric, FactoredMetric):
        raise TypeError(
            f"{name} is a {type(metric).__name__}: pass a FactoredMetric, for example"
            " FactoredMetric.from_dense(M)"
        )


def has_own_score(metric: FactoredMetric) -> bool:
    """Whether the similarity of a metric is another one than x'Mz, as a log-ratio is."""
    return type(metric).bilinear is not FactoredMetric.bilinear


def pairwise_scores(
    metric: FactoredMetric, X: MatrixLike, Z: MatrixLike, metric_type: str
) -> Floats:
    """Scores of all pairs of samples; larger is closer.

    Parameters
    ----------
    metric : FactoredMetric
        The metric M, not necessarily symmetric or positive semi-definite.
    X, Z : array-like or sparse matrix of shape (n, n_features) and (m, n_features)
        Queries and references.
    metric_type : {"similarity", "distance"}
        Whether the score is x'Mz, or minus the squared distance (x-z)'M(x-z).

    Returns
    -------
    ndarray of shape (n, m)

    Notes
    -----
    Derived in chapter 3 (metrics), eqs. (metrics-bilinear) and (metrics-expansion).
    The expansion of the distance rounds at the size of x'Mx;
    `lml.neighbors.k_nearest` guards against that.
    Paper: section III-A, eqs. 1 and 2.
    """
    METRIC_TYPE.check("metric_type", metric_type)
    check_metric(metric, "metric")
    if metric_type == "similarity":
        return metric.bilinear(X, Z)
    metric = metric.symmetrized()
    left = _finite_matrix(X, "X", metric.n_features)
    right = left if Z is X else _finite_matrix(Z, "Z", metric.n_features)
    cross = metric._bilinear(left, right)
    return 2 * cross - metric._paired(left, left)[:, None] - metric._paired(right, right)


# book/oasis.ipynb#the-estimator
#: Rule for the metric that a learner starts from.
START = Rule(
    lambda init: init is None or isinstance(init, FactoredMetric) or np.ndim(init) == 2,
    "a FactoredMetric, a square matrix or None",
)


def starting_metric(init: FactoredMetric | ArrayLike | None, n_features: int) -> FactoredMetric:
    """Return the metric that a learner starts from: `init`, or the identity for None.

    Parameters
    ----------
    init : FactoredMetric, array-like of shape (n_features, n_features) or None
        The metric to start from.
    n_features : int
        Number of features of the samples.

    Returns
    -------
    metric : FactoredMetric of shape (n_features, n_features)

    Raises
    ------
    ValueError
        If `init` is not a square matrix, is not finite, or has another number of features.
    """
    if init is None:
        return FactoredMetric.identity(n_features)
    if isinstance(init, FactoredMetric):
        start = init
    else:
        start = FactoredMetric.from_dense(check_matrix(init, "init", copy=True))
    if start.n_features != n_features:
        raise ValueError(
            f"init is a metric of {start.n_features} features, but X has {n_features}: "
            "start from a metric of the same feature space"
        )
    return start


# book/metrics_factored.ipynb#sums-transposes-and-inner-products
def _same(A: Matrix, B: Matrix) -> bool:
    """Whether two factors are equal, entry by entry."""
    if A.shape != B.shape or sparse.issparse(A) != sparse.issparse(B):
        return False
    if not sparse.issparse(A):
        return np.array_equal(A, B)
    parts = ("indptr", "indices", "data")
    return all(np.array_equal(getattr(A, part), getattr(B, part)) for part in parts)


# book/metrics_factored.ipynb#the-map-behind-a-psd-metric
class MetricDistance:
    """The distance of two vectors under a metric with the given square root."""

    def __init__(self, root: FactoredMetric) -> None:
        self.root = root

    def __call__(self, x: ArrayLike, z: ArrayLike, squared: bool = False) -> float:
        difference = np.asarray(x, dtype=np.float64) - np.asarray(z, dtype=np.float64)
        length = float(np.linalg.norm(self.root._apply(difference[None])))
        return length**2 if squared else length


# book/metrics_factored.ipynb#the-map-behind-a-psd-metric
#: Rule for the side of a similarity that samples stand on.
SIDE = one_of("query", "reference")
#: Rule for the same, or None for the PSD read-out.
ROLE = optional(SIDE)


def mapped_samples(metric: FactoredMetric, metric_type: str, X: Matrix, role: str | None) -> Floats:
    """Samples in the coordinates that `transform` gives, for a role or for the PSD read-out."""
    ROLE.check("role", role)
    if role is None or metric_type == "distance":
        return metric.psd()._embed(X)
    return metric.map_rows(X, role)


def index_space(metric: FactoredMetric, metric_type: str) -> str:
    """In which space an index finds the nearest of mapped samples: "l2" or "inner product"."""
    return "l2" if metric_type == "distance" else metric.index_space


# book/metrics_factored.ipynb#the-residual-of-a-dictionary-without-a-d-x-d-array
def subspace_residual(metric: FactoredMetric, L: MatrixLike) -> float:
    """What the best code L'WL of a metric in a dictionary leaves out.

    Parameters
    ----------
    metric : FactoredMetric
        The metric M, symmetric or not.
    L : array-like of shape (d, n_features)
        The dictionary; its rows need not be orthonormal or independent.

    Returns
    -------
    float
        The Frobenius norm of M - P M P, with P the projector onto the rows of `L`. For
        alpha != 0 it is at least ``abs(alpha) * sqrt(n_features - d)``.

    Notes
    -----
    Derived in chapter 3 (metrics), eq. (metrics-common); chapter 33 (metrics_factored), eq.
    (metrics-residual-factored). Paper: section III-C, Theorem 1 and eq. 4.
    """
    L = dense(_finite_matrix(L, "L", metric.n_features))
    _, values, rows = svd(L)
    basis = rows[values > max(L.shape) * np.finfo(float).eps * values.max(initial=0.0)]
    Q, R = metric._span()
    rows = linalg.qr(np.vstack([basis, Q]).T, mode="economic")[0].T  # begins with the basis
    K = R @ (Q @ rows.T)
    blocks = metric._by_core(K.T) @ K + metric.alpha * np.eye(len(rows))
    blocks[: len(basis), : len(basis)] = 0.0
    outside = abs(metric.alpha) * np.sqrt(metric.n_features - len(rows))
    return float(np.hypot(np.linalg.norm(blocks), outside))


# book/metrics_factored.ipynb#what-every-metric-learner-offers
#: Rule for a learner of the metric of one task.
METRIC_LEARNER = Rule(
    lambda value: (
        not isinstance(value, type) and hasattr(value, "fit") and hasattr(value, "get_params")
    ),
    "an instance of a metric learner, such as OASIS()",
)


class LabeledPairs(NamedTuple):
    """Pairs of sample numbers (n_pairs, 2), and +1 for each similar pair, -1 for the others."""

    numbers: Indices
    signs: Indices


#: What teaches a metric learner: a label of each sample, triplets (n_triplets, 3), or pairs.
Lesson: TypeAlias = NDArray[Any] | LabeledPairs


def fitted_metric(learner: Any, parameter: str, X: Matrix, y: Lesson) -> tuple[FactoredMetric, str]:
    """Fit a learner: its metric, finite, for a distance symmetric, and the metric type.

    An error names the parameter that holds the learner.
    """
    with inside():
        if isinstance(y, LabeledPairs):
            fitted = learner.fit_pairs(y.numbers, y.signs, X)
        else:
            fitted = learner.fit_triplets(y, X) if np.ndim(y) == 2 else learner.fit(X, y)
    metric = getattr(fitted, "metric_", None)
    metric_type: Any = getattr(fitted, "metric_type", None)
    place = f"metric_ of {parameter}"
    if isinstance(metric, np.ndarray):
        metric = FactoredMetric.from_dense(_finite_matrix(metric, place))
    if not isinstance(metric, FactoredMetric) or not METRIC_TYPE.allows(metric_type):
        raise TypeError(
            f"{parameter} is a {type(learner).__name__}, whose fit gives a metric_ of type"
            f" {type(metric).__name__} and whose metric_type is {metric_type!r}: use a metric"
            " learner such as OASIS or SCML, with a FactoredMetric and 'similarity' or 'distance'"
        )
    for part in (metric.factor, metric.core, np.array([metric.alpha])):
        check_finite(part, place, np.finfo(float).max)
    if metric.n_features != X.shape[1]:
        raise ValueError(
            f"{parameter} gives a metric of {metric.n_features} features, but X has {X.shape[1]}:"
            " use a learner that keeps the features"
        )
    return metric.symmetrized() if metric_type == "distance" else metric, metric_type


# book/metrics_factored.ipynb#what-every-metric-learner-offers
def check_pairs(estimator: Any, pairs: Any, n_features: int) -> tuple[Matrix, Matrix]:
    """Left and right samples of pairs (n, 2, n_features), or of a tuple of two tables.

    Data frames must have the columns that the estimator has learned.
    """
    tables = pairs if isinstance(pairs, tuple) and len(pairs) == 2 else [None]
    if all(sparse.issparse(table) or hasattr(table, "__array__") for table in tables):
        for table in tables:
            check_columns(estimator, table)
        left = check_matrix(pairs[0], "pairs[0]", n_features)
        right = check_matrix(pairs[1], "pairs[1]", n_features)
        if left.shape != right.shape:
            raise ValueError(
                f"pairs holds tables of shapes {left.shape} and {right.shape}: pass equal ones"
            )
        return left, right
    pairs = check_matrix(pairs, "pairs", ensure_2d=False, allow_nd=True)
    if pairs.ndim != 3 or pairs.shape[1:] != (2, n_features):
        raise ValueError(
            f"pairs has shape {pairs.shape}: pass an array of shape (n_pairs, 2, {n_features}),"
            f" or a tuple of two arrays, sparse matrices or data frames (n_pairs, {n_features})"
        )
    return pairs[:, 0], pairs[:, 1]


def _learns_distance(estimator: Any) -> bool:
    """Whether `pair_distance` is offered."""
    return getattr(estimator, "metric_type", "distance") == "distance"


# book/metrics_factored.ipynb#what-every-metric-learner-offers
class MetricLearnerMixin(DocumentedMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """Reading methods of estimators with a fitted `metric_` and a class attribute `metric_type`.

    `metric_` is a `FactoredMetric`; `metric_type` is "similarity" (ranked by x'Mz) or
    "distance" (ranked by (x-z)'M(x-z)). The columns of `transform` have names, so
    `set_output` of scikit-learn's transformers works.
    """

    metric_: FactoredMetric
    metric_type: str

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.sparse = True
        return tags

    def _read_out(self) -> FactoredMetric:
        """The PSD metric of all Euclidean answers."""
        check_is_fitted(self, "metric_")
        return self.metric_.psd()

    def transform(self, X: MatrixLike, role: str | None = None) -> Floats:
        """Map samples so that Euclidean geometry is that of the PSD read-out of the metric.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, n_features)
            Samples.
        role : {"query", "reference"} or None, default=None
            For an index of nearest neighbors: the nearest references of a query in `index_space_`
            are those of the metric as it was learned, indefinite or not. For a distance both
            roles are the same.

        Returns
        -------
        ndarray of shape (n, k)
            For a metric without identity part k is its rank, otherwise k = n_features
            (dense, also for sparse `X`).

        Raises
        ------
        ValueError
            If `set_output` asks for a data frame and a role gives other columns than have names.

        Notes
        -----
        Derived in chapter 33 (metrics_factored), eqs. (metrics-psd-factored), (metrics-root) and
        (metrics-roles).
        """
        check_is_fitted(self, "metric_")
        mapped = mapped_samples(self.metric_, self.metric_type, check_new_samples(self, X), role)
        _check_named(self, mapped, role)
        return mapped

    @property
    def components_(self) -> Floats:
        """The map L of `transform`, (k, n_features): L'L is the PSD read-out of the metric.

        It is dense. With an identity part it has n_features rows, and more than 4096 features
        are refused; `transform` needs no such array.

        Notes
        -----
        Derived in chapter 33 (metrics_factored), eq. (metrics-root).
        """
        return self._read_out().components()

    @property
    def _n_features_out(self) -> int:
        metric = self._read_out()
        return metric.n_features if metric.alpha > 0 else len(metric.components())

    def pair_score(self, pairs: ArrayLike) -> Floats:
        """Scores of pairs of samples under the learned metric; larger is closer.

        Parameters
        ----------
        pairs : array-like of shape (n_pairs, 2, n_features)
            Pairs of samples, or a tuple of two arrays, sparse matrices or data frames
            (n_pairs, n_features).

        Returns
        -------
        ndarray of shape (n_pairs,)
            x'Mz for a similarity, minus (x-z)'M(x-z) for a distance.

        Notes
        -----
        Derived in chapter 3 (metrics), eqs. (metrics-similarity) and (metrics-distance).
        """
        check_is_fitted(self, "metric_")
        left, right = check_pairs(self, pairs, self.metric_.n_features)
        if self.metric_type == "similarity":
            return self.metric_.paired(left, right)
        gaps = left - right
        return -self.metric_._paired(gaps, gaps)

    @available_if(_learns_distance)  # type: ignore[untyped-decorator]  # not typed there
    def pair_distance(self, pairs: ArrayLike) -> Floats:
        """Distances of pairs (n_pairs, 2, n_features) under the PSD read-out, shape (n_pairs,)."""
        metric = self._read_out()
        left, right = check_pairs(self, pairs, metric.n_features)
        gaps = left - right
        return np.sqrt(np.maximum(metric._paired(gaps, gaps), 0.0))

    def get_metric(self) -> MetricDistance:
        """A distance of two vectors, that of the PSD read-out of the metric.

        Returns
        -------
        callable
            ``distance(x, z, squared=False)``, usable as ``metric`` of scikit-learn's
            nearest-neighbor classes; picklable.
        """
        return self._read_out().distance_function()

    def get_mahalanobis_matrix(self) -> Floats:
        """The PSD read-out as a dense array of shape (n_features, n_features)."""
        return self._read_out().to_dense()

    @property
    def index_space_(self) -> str:
        """Where an index finds the nearest of `transform` with roles: "l2" or "inner product"."""
        check_is_fitted(self, "metric_")
        return index_space(self.metric_, self.metric_type)


# book/metrics_factored.ipynb#what-every-metric-learner-offers
def _check_named(transformer: Any, mapped: Floats, role: str | None) -> None:
    """Refuse a data frame of the columns of a role where they are not as many as have names."""
    own = getattr(transformer, "_sklearn_output_config", {}).get("transform")
    output = own or get_config()["transform_output"]
    if role is None or output == "default":
        return
    if mapped.shape[1] != transformer._n_features_out:
        raise ValueError(
            f"role={role!r} gives {mapped.shape[1]} columns, but there are names for"
            f" {transformer._n_features_out}: use set_output(transform='default') with a role"
        )
