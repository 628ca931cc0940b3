# Generated from book/metrics.ipynb by tools/tangle.py: edit the chapter.
"""Metrics of one task, kept factored: M = alpha I + F' C F without a D x D matrix."""

import numpy as np
from scipy import linalg, sparse
from sklearn.utils.extmath import safe_sparse_dot

__all__ = ["FactoredMetric", "MetricLearnerMixin", "pairwise_scores"]


def _dense(A):
    return A.toarray() if sparse.issparse(A) else np.asarray(A)


class FactoredMetric:
    """A metric M = alpha I + F' C F kept as its three parts."""

    def __init__(self, alpha, factor, core, n_features=None):
        self.alpha = float(alpha)
        self.factor = factor if sparse.issparse(factor) else np.asarray(factor)
        self.core = core if sparse.issparse(core) else np.asarray(core)
        self.n_features = factor.shape[1] if n_features is None else n_features

    @classmethod
    def identity(cls, n_features, scale=1.0):
        return cls(scale, np.zeros((0, n_features)), np.zeros(0))

    @classmethod
    def from_dense(cls, M):
        M = np.asarray(M, dtype=float)
        return cls(0.0, np.eye(M.shape[0]), M)

    @classmethod
    def from_components(cls, L):
        L = np.asarray(L, dtype=float)
        return cls(0.0, L, np.ones(L.shape[0]))

    @property
    def shape(self):
        return (self.n_features, self.n_features)

    @property
    def rank_bound(self):
        return self.n_features if self.alpha else min(self.factor.shape)

    @property
    def nbytes(self):
        def size(A):
            if sparse.issparse(A):
                return A.data.nbytes + A.indices.nbytes + A.indptr.nbytes
            return A.nbytes

        return size(self.factor) + size(self.core) + 8

    def _core_dot(self, B):
        return self.core[:, None] * B if self.core.ndim == 1 else self.core @ B

    def _core_t_dot(self, B):
        return self.core[:, None] * B if self.core.ndim == 1 else self.core.T @ B

    def _image(self, X):
        return _dense(safe_sparse_dot(self.factor, X.T, dense_output=True))  # (r, n)

    def apply(self, X):
        """X M, of shape (n, D)."""
        left = self._core_t_dot(self._image(X)).T  # (n, r)
        return self.alpha * _dense(X) + safe_sparse_dot(left, self.factor, dense_output=True)

    def bilinear(self, X, Z):
        """X M Z', of shape (n, m)."""
        plain = _dense(safe_sparse_dot(X, Z.T, dense_output=True)) if self.alpha else 0.0
        return self.alpha * plain + self._image(X).T @ self._core_dot(self._image(Z))

    def project(self, L, R=None):
        """L M R' (R = L when left out)."""
        return self.bilinear(L, L if R is None else R)

    def paired(self, X, Z):
        """x_i' M z_i, of shape (n,)."""
        if sparse.issparse(X):
            plain = np.asarray(X.multiply(Z).sum(axis=1)).ravel()
        else:
            plain = np.einsum("ij,ij->i", X, Z)
        return self.alpha * plain + np.einsum(
            "ij,ij->j", self._image(X), self._core_dot(self._image(Z))
        )

    def quadratic(self, X):
        return self.paired(X, X)

    def _dense_core(self):
        if self.core.ndim == 1:
            return np.diag(self.core)
        return _dense(self.core)

    def inner(self, other):
        """Frobenius inner product <M, N>."""
        cross = _dense(safe_sparse_dot(self.factor, other.factor.T, dense_output=True))
        total = self.alpha * other.alpha * self.n_features
        total += self.alpha * other._trace_factored() + other.alpha * self._trace_factored()
        return float(total + np.sum((self._core_t_dot(cross)) * other._core_dot(cross.T).T))

    def _trace_factored(self):
        gram = _dense(safe_sparse_dot(self.factor, self.factor.T, dense_output=True))
        return float(np.sum(self._dense_core() * gram.T))

    def norm(self):
        return float(np.sqrt(max(self.inner(self), 0.0)))

    def symmetrized(self):
        if self.core.ndim == 1:
            return self
        return FactoredMetric(self.alpha, self.factor, (self.core + self.core.T) / 2)

    def _span(self):
        """Orthonormal rows Q of the factor's row space and R with F = R Q."""
        gram = _dense(safe_sparse_dot(self.factor, self.factor.T, dense_output=True))
        values, vectors = linalg.eigh(gram)
        keep = values > max(values.max(initial=0.0), 0.0) * 1e-12
        root = np.sqrt(values[keep])
        Q = safe_sparse_dot((vectors[:, keep] / root).T, self.factor, dense_output=True)
        return _dense(Q), vectors[:, keep] * root

    def compress(self, rank):
        Q, R = self._span()
        S = R.T @ self.symmetrized()._core_dot(R)
        values, vectors = linalg.eigh(S)
        order = np.argsort(-np.abs(values))[:rank]
        return FactoredMetric(self.alpha, vectors[:, order].T @ Q, values[order])

    def psd(self):
        Q, R = self._span()
        values, vectors = linalg.eigh(R.T @ self.symmetrized()._core_dot(R))
        base = max(self.alpha, 0.0)
        return FactoredMetric(base, vectors.T @ Q, np.maximum(self.alpha + values, 0.0) - base)

    def components(self):
        """L with L'L = M for a positive semi-definite M."""
        if self.alpha:
            values, vectors = linalg.eigh(self.symmetrized().to_dense())
            return (vectors * np.sqrt(np.maximum(values, 0.0))).T
        Q, R = self._span()
        values, vectors = linalg.eigh(R.T @ self.symmetrized()._core_dot(R))
        return np.sqrt(np.maximum(values, 0.0))[:, None] * (vectors.T @ Q)

    def to_dense(self):
        F = _dense(self.factor)
        return self.alpha * np.eye(self.n_features) + F.T @ self._core_dot(F)

    def __mul__(self, c):
        return FactoredMetric(c * self.alpha, self.factor, c * self.core)

    __rmul__ = __mul__

    def __add__(self, other):
        alpha = self.alpha + other.alpha
        if self.factor is other.factor and self.core.ndim == other.core.ndim:
            return FactoredMetric(alpha, self.factor, self.core + other.core)
        stack = sparse.vstack if sparse.issparse(self.factor) else np.vstack
        core = linalg.block_diag(self._dense_core(), other._dense_core())
        return FactoredMetric(alpha, stack([self.factor, other.factor]), core)

    def __sub__(self, other):
        return self + (-1.0) * other


def pairwise_scores(metric, X, Z, metric_type):
    """Scores (larger = closer): similarity x'Mz, or minus the squared distance."""
    if metric_type == "similarity":
        return metric.bilinear(X, Z)
    if metric_type != "distance":
        raise ValueError(f"metric_type is {metric_type!r}: use 'similarity' or 'distance'")
    metric = metric.symmetrized()
    return 2 * metric.bilinear(X, Z) - metric.quadratic(X)[:, None] - metric.quadratic(Z)


class MetricLearnerMixin:
    """transform, pair_score, get_metric for estimators with metric_ and metric_type."""

    def transform(self, X):
        return safe_sparse_dot(X, self.metric_.psd().components().T, dense_output=True)
