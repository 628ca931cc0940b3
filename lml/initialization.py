# Generated from book/initialization.ipynb by tools/tangle.py: edit the chapter.
"""The first lifelong dictionary: Fisher directions, completion, orthonormal rows.

A dictionary has its d rows in R^D. It begins with local Fisher directions of the first task,
is completed by principal components of the residual rows and, when these run out, by random
directions; its rows are orthonormal throughout.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg, sparse
from sklearn.utils import check_random_state

from lml.fisher import fix_signs, local_fisher_basis
from lml.utils.linalg import times_transpose
from lml.utils.typing import Floats, LabelsLike, Matrix, MatrixLike, Seed
from lml.utils.validation import check_dense, check_matrix, optional, whole

__all__ = ["complete_dictionary", "initial_dictionary", "orthonormal_rows", "residual_directions"]


# book/initialization.ipynb#an-orthonormal-basis-of-the-row-space
def orthonormal_rows(L: ArrayLike, tol: float | None = None) -> Floats:
    """Orthonormal basis of the row space, row by row in the given order.

    Parameters
    ----------
    L : array-like of shape (n_rows, n_features)
        Rows; zero and dependent rows are allowed, and so is an empty array.
    tol : float or None, default=None
        A row counts as dependent when less than this fraction of its length is new.
        None: ten times the larger dimension of L times the machine precision.

    Returns
    -------
    Q : ndarray of shape (rank, n_features)
        Q Q' = I. Each row has a positive inner product with the row of L it comes from;
        orthonormal rows are returned as they are, to rounding.

    Raises
    ------
    ValueError
        If L is not a finite two-dimensional array.

    Notes
    -----
    Derived in chapter 13 (initialization), eqs. (init-qr) and (init-gram-schmidt).
    Paper: Theorem 1 uses the same factorisation for one task.

    Examples
    --------
    >>> Q = orthonormal_rows([[0.0, 2.0], [0.0, 3.0], [5.0, 5.0]])
    >>> abs(Q).round(6).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    rows = check_dense(L, "L", ensure_min_samples=0)
    # unit length, by the largest entry first: no square overflows; rows of zeros go
    largest = np.abs(rows).max(axis=1)
    rows = rows[largest > 0] / largest[largest > 0, None]
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    if not rows.size:
        return rows
    tol = 10 * max(rows.shape) * np.finfo(float).eps if tol is None else tol
    R, _ = linalg.qr(rows.T, mode="r", pivoting=True)
    if np.sum(np.abs(np.diag(R)) > tol) < len(rows):
        rows = rows[_independent(rows, tol)]
    # eq. (init-gram-schmidt) up to signs
    Q, R = linalg.qr(rows.T, mode="economic")
    return (Q * np.sign(np.diag(R))).T


def _independent(rows: Floats, tol: float) -> list[int]:
    """Numbers of the rows, of length 1, that are not in the span of those before them."""
    basis = np.zeros((min(rows.shape), rows.shape[1]))
    chosen: list[int] = []
    for number, row in enumerate(rows):
        if len(chosen) == len(basis):
            break
        known = basis[: len(chosen)]
        left = row - (known @ row) @ known
        left -= (known @ left) @ known  # twice: what rounding has left of them
        if (length := np.linalg.norm(left)) > tol:
            basis[len(chosen)] = left / length
            chosen.append(number)
    return chosen


# book/initialization.ipynb#step-2-completion
_ROWS = 2000  # samples that enter a Gram matrix; more are thinned at random


def residual_directions(
    L: Floats,
    X: Matrix,
    n_directions: int,
    center: bool,
    rng: np.random.RandomState | np.random.Generator,
) -> Floats:
    """Leading principal directions of samples outside the span of a dictionary.

    Parameters
    ----------
    L : ndarray of shape (n_rows, n_features)
        Orthonormal rows; trusted, as is all else.
    X : {ndarray, CSR matrix} of shape (n_samples, n_features)
    n_directions : int
    center : bool
        Whether the mean of the samples is subtracted first.
    rng : RandomState or Generator
        Thins the samples where there are many of many features.

    Returns
    -------
    ndarray of shape (at most n_directions, n_features)
        Rows orthogonal to those of L, by decreasing size of the residual.

    Notes
    -----
    Derived in chapter 13 (initialization), eqs. (init-residual) and (init-side).
    """
    n, D = X.shape
    if min(n, D) > _ROWS:
        X = X[np.sort(rng.permutation(n)[:_ROWS])]
    mean = np.asarray(X.mean(axis=0)).ravel() if center else np.zeros(D)
    by_features = n >= D and D <= _ROWS
    if by_features:  # R'R = (I - L'L) X'X (I - L'L)
        if sparse.issparse(X):
            scatter = (X.T @ X).toarray() - X.shape[0] * np.outer(mean, mean)
        else:
            scatter = (X - mean).T @ (X - mean)
        left = scatter - (scatter @ L.T) @ L
        square = left - L.T @ (L @ left)
    else:  # RR', eq. (init-side); CSR samples are centered in the products
        centered = X if sparse.issparse(X) else X - mean
        scatter = times_transpose(centered, centered)
        inside = times_transpose(centered, L)
        if sparse.issparse(X) and mean.any():
            inside = inside - inside.mean(axis=0)
            scatter = scatter - scatter.mean(axis=0)
            scatter -= scatter.mean(axis=1, keepdims=True)
        square = scatter - inside @ inside.T
    values, vectors = linalg.eigh(square)
    order = np.argsort(-values)[:n_directions]
    vectors = vectors[:, order[values[order] > 1e-12 * np.trace(scatter)]]
    if not by_features:
        vectors = times_transpose(X.T, vectors.T)  # sums to zero if centered
    return fix_signs((vectors - L.T @ (L @ vectors)).T)


# book/initialization.ipynb#step-2-completion
def complete_dictionary(
    L: Floats, X: Matrix, n_components: int, random_state: Seed = None, center: bool = True
) -> Floats:
    """Extend a dictionary to n_components orthonormal rows.

    Parameters
    ----------
    L : ndarray of shape (n_rows, n_features)
        Orthonormal rows to keep; may be empty. Trusted, as is all else.
    X : {ndarray, CSR matrix} of shape (n_samples, n_features)
        Rows whose residual supplies the new directions. CSR rows are not made dense.
        When both dimensions exceed 2000, 2000 rows drawn at random are used.
    n_components : int
        Rows of the result; at most n_features are returned.
    random_state : int, RandomState instance or None, default=None
        Draws the directions that are left when the residual is exhausted.
    center : bool, default=True
        Whether the mean of the rows is subtracted first; False for a similarity of rows
        that are not centered.

    Returns
    -------
    dictionary : ndarray of shape (min(n_components, n_features), n_features)
        Orthonormal rows: those of L first, then principal directions of the residual by
        decreasing size, then random directions.

    Notes
    -----
    Derived in chapter 13 (initialization), eqs. (init-residual), (init-side) and (init-random).

    Examples
    --------
    >>> X = np.array([[0.0, 0.0, 0.0], [0.0, 4.0, 0.0], [1.0, 0.0, 0.0]])
    >>> abs(complete_dictionary(np.eye(1, 3), X, 2)).round(6).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """
    d = min(n_components, X.shape[1])
    rng = check_random_state(random_state)
    if len(L) < d:
        residual = residual_directions(L, X, d - len(L), center, rng)
        L = orthonormal_rows(np.vstack([L, residual]))
    while len(L) < d:  # once, unless a draw is dependent
        L = orthonormal_rows(np.vstack([L, rng.standard_normal((d - len(L), L.shape[1]))]))
    return L[:d]


# book/initialization.ipynb#step-3-how-many-fisher-directions
def initial_dictionary(
    X: MatrixLike,
    y: LabelsLike,
    n_components: int,
    scales: Sequence[int] | None = None,
    random_state: Seed = None,
    n_basis: int | None = None,
    center: bool = True,
) -> Floats:
    """Orthonormal dictionary from the rows of the first task.

    Parameters
    ----------
    X : {array-like, CSR matrix} of shape (n_samples, n_features)
        Rows; CSR rows are not made dense.
    y : array-like of shape (n_samples,)
        Labels of any hashable type, of at least two classes.
    n_components : int
        Rows of the dictionary, at least 1. More than n_features gives n_features rows.
    scales : sequence of int or None, default=None
        As in `local_fisher_basis`.
    random_state : int, RandomState instance or None, default=None
        Seed of k-means and of the random directions.
    n_basis : int or None, default=None
        Local Fisher directions to begin with, at least 1. None: a quarter of the rows,
        rounded up. n_components: Fisher directions only, as far as their rank goes.
    center : bool, default=True
        Whether the mean of the rows is subtracted before the completion; False for a
        similarity of rows that are not centered.

    Returns
    -------
    ndarray of shape (min(n_components, n_features), n_features)
        Orthonormal rows: Fisher directions first, then those of the residual, then random ones.

    Raises
    ------
    ValueError
        If n_components or n_basis is not a positive integer, y holds fewer than two
        classes, X is not finite, or X and y differ in length.

    Notes
    -----
    Derived in chapter 13 (initialization), eqs. (init-residual) and (init-share).
    Paper: section IV, "Lifelong dictionary initialization"; the completion and the
    normalization are additions.

    Examples
    --------
    >>> X = [[0.0, 0.0, 1.0], [0.0, 2.0, 1.0], [3.0, 0.0, 1.0], [3.0, 2.0, 1.0]]
    >>> initial_dictionary(X, ["a", "a", "b", "b"], 3, random_state=0).shape
    (3, 3)
    """
    X = check_matrix(X)
    whole(1).check("n_components", n_components)
    optional(whole(1)).check("n_basis", n_basis)
    rng = check_random_state(random_state)
    if n_basis is None:
        n_basis = -(-min(n_components, X.shape[1]) // 4)  # a quarter, rounded up
    basis = local_fisher_basis(X, y, n_basis, scales=scales, random_state=rng)
    return complete_dictionary(orthonormal_rows(basis), X, n_components, rng, center)
