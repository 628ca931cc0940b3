# Generated from book/door.ipynb by tools/tangle.py: edit the chapter.
"""Small linear algebra that several modules need."""

from __future__ import annotations

import numpy as np
from scipy import linalg, sparse
from sklearn.utils.extmath import safe_sparse_dot

from lml.utils.typing import Floats, Matrix

__all__ = [
    "dense",
    "is_symmetric",
    "nbytes",
    "stacked",
    "svd",
    "times_transpose",
    "with_short_indices",
]


# book/door.ipynb#small-linear-algebra
def times_transpose(A: Matrix, B: Matrix) -> Floats:
    """A B' as a dense array, for dense or CSR `A` and `B`."""
    return safe_sparse_dot(A, B.T, dense_output=True)


def is_symmetric(A: Matrix) -> bool:
    """Whether a square matrix equals its transpose, entry by entry."""
    if sparse.issparse(A):
        return (A != A.T).nnz == 0
    return bool(np.array_equal(A, A.T))


def svd(A: Floats) -> tuple[Floats, Floats, Floats]:
    """Singular vectors and values; by QR steps where divide and conquer does not converge."""
    try:
        return linalg.svd(A, full_matrices=False)
    except linalg.LinAlgError:  # of finite numbers it is rare, and a last bit cures it
        return linalg.svd(A, full_matrices=False, lapack_driver="gesvd")


def nbytes(A: Matrix) -> int:
    """Bytes of a dense array, or of the three arrays of a CSR array."""
    parts = (A.data, A.indices, A.indptr) if sparse.issparse(A) else (A,)
    return sum(part.nbytes for part in parts)


def stacked(A: Matrix, B: Matrix) -> Matrix:
    """The samples of `A` and below them those of `B`; sparse where one of them is."""
    if sparse.issparse(A) or sparse.issparse(B):
        return sparse.vstack([sparse.csr_array(A), sparse.csr_array(B)], format="csr")
    return np.vstack([A, B])


def dense(A: Matrix) -> Floats:
    """A dense array of a dense or sparse matrix; a dense one as it is."""
    return A.toarray() if sparse.issparse(A) else A


# book/door.ipynb#small-linear-algebra
def with_short_indices(A: Matrix) -> Matrix:
    """A dense array as it is, a CSR array with 32-bit indices if they suffice.

    Compiled code, such as that of k-means, takes no others.
    """
    if not sparse.issparse(A) or max(A.nnz, *A.shape) > np.iinfo(np.int32).max:
        return A
    indices = A.indices.astype(np.int32, copy=False)
    indptr = A.indptr.astype(np.int32, copy=False)
    return sparse.csr_array((A.data, indices, indptr), shape=A.shape)
