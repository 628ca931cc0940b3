# Generated from book/fisher.ipynb by tools/tangle.py: edit the chapter.
"""Fisher directions: scatter matrices, the regularised discriminant, and its local version.

Rows may be dense or CSR. With fewer rows than features everything is solved among the rows
(an n x n Gram matrix), and CSR rows are centred without being made dense.
"""

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg, sparse
from scipy.linalg.lapack import dpotrf, dpotrs, dsyevr, dsyevr_lwork
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.extmath import safe_sparse_dot

from lml.metrics import _is_real
from lml.neighbors import _class_numbers
from lml.triplets import _check_rows, _count
from lml.utils.typing import Floats, Indices, LabelsLike, Matrix, MatrixLike, Seed

__all__ = ["basis_rank", "class_scatter", "fisher_directions", "local_fisher_basis"]


# book/fisher.ipynb#two-scatters
def _labelled_rows(X: MatrixLike, y: LabelsLike) -> tuple[Matrix, Indices]:
    """Float rows (dense or CSR) and class numbers; an error unless there are two classes."""
    X = _check_rows(X)
    (codes, labels) = _class_numbers(y)
    if X.shape[0] != len(codes):
        raise ValueError(f"X has {X.shape[0]} rows but y has {len(codes)}: give one label a row")
    if len(labels) < 2:
        held = f"one class only ({labels[0]!r})" if labels else "no rows"
        raise ValueError(
            f"y holds {held}, so no direction separates classes and there is no dissimilar "
            "pair: give at least two rows, of two classes"
        )
    X = X.astype(float)
    if sparse.issparse(X):
        X.sum_duplicates()  # k-means takes the stored numbers as they are
    return X, codes


# book/fisher.ipynb#two-scatters
def _class_means(X: Matrix, codes: Indices) -> tuple[Indices, Floats]:
    """Rows in each class and the class means, dense, of shape (classes, D)."""
    counts = np.bincount(codes)
    member = sparse.csr_array((1.0 / counts[codes], (codes, np.arange(len(codes)))))
    means = member @ X
    return counts, means.toarray() if sparse.issparse(means) else means


# book/fisher.ipynb#two-scatters
def _scatter(X: Matrix, codes: Indices) -> tuple[Floats, Floats]:
    """Within scatter (D, D), and Gamma (classes, D) with between = Gamma' Gamma."""
    counts, means = _class_means(X, codes)
    gamma = np.sqrt(counts)[:, None] * (means - counts @ means / counts.sum())
    if sparse.issparse(X):
        return (X.T @ X).toarray() - means.T @ (counts[:, None] * means), gamma
    deviations = X - means[codes]
    return deviations.T @ deviations, gamma


def class_scatter(X: MatrixLike, y: LabelsLike) -> tuple[Floats, Floats]:
    """Within-class and between-class scatter of labelled rows.

    Parameters
    ----------
    X : {array-like, CSR matrix} of shape (n_samples, n_features)
        Rows. The results are dense, so n_features should be moderate.
    y : array-like of shape (n_samples,)
        Labels of any hashable type, of at least two classes.

    Returns
    -------
    within, between : ndarrays of shape (n_features, n_features)
        Sums, not averages; together they are the scatter of the centred rows.

    Raises
    ------
    ValueError
        If X and y differ in length, X is not finite, or y holds fewer than two classes.

    Notes
    -----
    Derived in chapter 7 (fisher), eqs. (fisher-scatter) and (fisher-gamma).
    Paper: section IV, "Lifelong dictionary initialization".

    Examples
    --------
    >>> within, between = class_scatter([[0.0], [2.0], [5.0]], ["a", "a", "b"])
    >>> round(within.item(), 6), round(between.item(), 6)
    (2.0, 10.666667)
    """
    within, gamma = _scatter(*_labelled_rows(X, y))
    return within, gamma.T @ gamma


# book/fisher.ipynb#a-singular-within-scatter
def _ridge(inside: float, between: float, n_features: int, regularization: float) -> float:
    """The multiple of the identity that is added to the within scatter, from both traces."""
    if regularization and inside <= 1e-12 * between:  # one distinct row a class
        return max(between, 1.0) / n_features
    return regularization * inside / n_features


# book/fisher.ipynb#a-singular-within-scatter
def _largest(A: Floats, n_directions: int) -> Floats:
    """Eigenvectors (as columns) of a symmetric matrix, largest first, the zeros dropped."""
    lwork, liwork, _ = dsyevr_lwork(len(A), lower=1)
    options = {"lower": 1, "lwork": int(lwork), "liwork": int(liwork)}
    values, U, *_ = dsyevr(np.asarray_chkfinite(A), **options)
    order = np.argsort(-values)[:n_directions]
    return U[:, order[values[order] > max(1e-10 * values.max(), np.finfo(float).tiny)]]


# book/fisher.ipynb#a-singular-within-scatter
def _leading(within: Floats, gamma: Floats, ridge: float, n_directions: int) -> Floats:
    """Eigenvectors (as rows) of the pencil (Gamma' Gamma, within + ridge I), largest first."""
    try:
        factor = linalg.cho_factor(within + ridge * np.eye(len(within)))
    except linalg.LinAlgError as error:
        raise ValueError(f"regularization is too small ({error}): raise it") from error
    half = linalg.cho_solve(factor, gamma.T)  # (D, classes)
    return (half @ _largest(gamma @ half, n_directions)).T


# book/fisher.ipynb#fewer-rows-than-features
def _centred_gram(X: Matrix) -> Floats:
    """Inner products (n, n) of the centred rows."""
    gram = safe_sparse_dot(X, X.T, dense_output=True)
    gram -= gram.mean(axis=0)
    gram -= gram.mean(axis=1, keepdims=True)
    return gram


def _coordinates(X: Matrix) -> tuple[Floats, Floats]:
    """Coordinates Z (n, p) of the centred rows, and A (n, p) that leads back: v = Xc' A b."""
    squares, U = linalg.eigh(_centred_gram(X))
    keep = squares > 1e-13 * max(squares[-1], 0.0)
    root = np.sqrt(squares[keep])
    return U[:, keep] * root, U[:, keep] / root


def _fix_signs(V: Floats) -> Floats:
    """Rows scaled to unit length, the entry of largest magnitude positive."""
    largest = V[np.arange(len(V)), np.abs(V).argmax(axis=1)]
    return V * np.sign(largest)[:, None] / np.sqrt(np.sum(V * V, axis=1))[:, None]


# book/fisher.ipynb#fewer-rows-than-features
_SOLVED_BY_ROWS = 1e-3  # least regularization at which nothing is lost by the identity


def _solved(A: Floats, B: Floats) -> Floats:
    """A^-1 B for a positive definite A; hundreds of small ones, so LAPACK is called directly."""
    factor, info = dpotrf(np.asarray_chkfinite(A), clean=0)
    if info:
        raise linalg.LinAlgError(f"the leading minor of order {info} is not positive definite")
    return dpotrs(factor, B)[0]


# book/fisher.ipynb#fewer-rows-than-features
def _row_coefficients(
    X: Matrix, codes: Indices, n_directions: int, regularization: float
) -> Floats:
    """Coefficients A (directions, n) with Fisher directions A X; for fewer rows than features."""
    K = _centred_gram(X)
    counts = np.bincount(codes)
    means = (codes == np.arange(len(counts))[:, None]) / counts[:, None]  # (classes, n)
    G = np.sqrt(counts)[:, None] * means
    of_means = means @ K
    deviations = K - of_means[codes]
    within = deviations - (deviations @ means.T)[:, codes]
    ridge = _ridge(np.trace(within), np.vdot(G @ K, G), X.shape[1], regularization)
    within.flat[:: len(K) + 1] += ridge
    N = (G - _solved(within, deviations @ G.T).T) / ridge
    A = _largest(np.sqrt(counts)[:, None] * of_means @ N.T, n_directions).T @ N
    return A - A.mean(axis=1, keepdims=True)


# book/fisher.ipynb#fewer-rows-than-features
def _directions(X: Matrix, codes: Indices, n_directions: int, regularization: float) -> Floats:
    """Unit Fisher directions of rows that are already checked."""
    n, D = X.shape
    if not sparse.issparse(X):
        X = X - X.mean(axis=0)  # CSR rows are centred implicitly below
    if n < D and regularization >= _SOLVED_BY_ROWS:
        A = _row_coefficients(X, codes, n_directions, regularization)
        return _fix_signs(safe_sparse_dot(X.T, A.T, dense_output=True).T)
    Z, back = (X, None) if n >= D else _coordinates(X)
    within, gamma = _scatter(Z, codes)
    ridge = _ridge(np.trace(within), np.sum(np.square(gamma)), D, regularization)
    V = _leading(within, gamma, ridge, n_directions)
    if back is not None:
        V = safe_sparse_dot(X.T, back @ V.T, dense_output=True).T  # back sums to zero
    return _fix_signs(V)


# book/fisher.ipynb#fewer-rows-than-features
def _strength(value: Any, name: str) -> float:
    """Return a finite number of at least zero, or say what is wrong with it."""
    if not _is_real(value) or not 0 <= value < np.inf:
        raise ValueError(f"{name} is {value!r}: give a finite number of at least 0")
    return float(value)


# book/fisher.ipynb#fewer-rows-than-features
def fisher_directions(
    X: MatrixLike, y: LabelsLike, n_directions: int | None = None, regularization: float = 1.0
) -> Floats:
    """Directions along which the classes lie far apart compared with their spread.

    Parameters
    ----------
    X : {array-like, CSR matrix} of shape (n_samples, n_features)
        Rows. CSR rows are not made dense; with n_samples < n_features nothing of size
        n_features x n_features is formed.
    y : array-like of shape (n_samples,)
        Labels of any hashable type, of at least two classes.
    n_directions : int or None, default=None
        How many directions, at least 1. None, or a number above (classes - 1), gives
        (classes - 1).
    regularization : float, default=1.0
        Ridge added to the within scatter, in units of its average diagonal, at least 0.
        Zero needs a nonsingular within scatter.

    Returns
    -------
    directions : ndarray of shape (n_found, n_features)
        Unit rows, the best first; the entry of largest magnitude is positive. n_found is
        below n_directions where the class means span fewer dimensions.

    Raises
    ------
    ValueError
        If X and y differ in length, X is not finite, y holds fewer than two classes, or
        an argument is out of range.

    Notes
    -----
    Derived in chapter 7 (fisher), eqs. (fisher-eigen), (fisher-ridge), (fisher-coordinates) and
    (fisher-woodbury). Paper: section IV, "Lifelong dictionary initialization".

    Examples
    --------
    >>> X = [[0.0, 0.0], [0.0, 2.0], [3.0, 0.0], [3.0, 2.0]]
    >>> abs(fisher_directions(X, ["a", "a", "b", "b"])).round(6).tolist()
    [[1.0, 0.0]]
    """
    X, codes = _labelled_rows(X, y)
    most = int(codes.max())
    if n_directions is not None:
        most = min(most, _count(n_directions, "n_directions"))
    return _directions(X, codes, most, _strength(regularization, "regularization"))


# book/fisher.ipynb#local-directions
def _short(X: Matrix) -> Matrix:
    """A CSR matrix with 32-bit indices, which k-means wants; other rows as they are."""
    if not sparse.issparse(X) or X.nnz > np.iinfo(np.int32).max:
        return X
    places = (part.astype(np.int32, copy=False) for part in (X.indices, X.indptr))
    return sparse.csr_array((X.data, *places), shape=X.shape)


def _centres(X: Matrix, n_regions: int, random_state: Seed) -> Floats:
    """Means of k-means clusters; fewer than n_regions where rows coincide."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct rows than clusters
        labels = KMeans(n_regions, n_init=1, random_state=random_state).fit(_short(X)).labels_
    return _class_means(X, np.unique(labels, return_inverse=True)[1])[1]


# book/fisher.ipynb#local-directions
def _ranked_by_class(X: Matrix, codes: Indices, centres: Floats) -> list[Indices]:
    """For each class, its rows from near to far, one line a centre; ties to the lower row."""
    squares = X.multiply(X) if sparse.issparse(X) else np.square(X)
    squares = np.asarray(squares.sum(axis=1)).ravel()
    distances = squares - 2 * safe_sparse_dot(X, centres.T, dense_output=True).T
    distances = np.round(distances / max(squares.mean(), np.finfo(float).tiny), 9)
    ranked = []
    for code in range(codes.max() + 1):
        rows = np.flatnonzero(codes == code)
        ranked.append(rows[np.argsort(distances[:, rows], axis=1, kind="stable")])
    return ranked


# book/fisher.ipynb#local-directions
def _scales(scales: Sequence[int] | None, n_features: int) -> list[int]:
    """Rows of each class in a region, one number a scale."""
    if scales is None:
        return [50 if n_features > 50 else 10, 20]
    if not len(scales):
        raise ValueError("scales is empty: give at least one number of rows")
    return [_count(scale, "scales") for scale in scales]


def _regions(ranked: list[Indices], scales: list[int]) -> Iterator[Indices]:
    """Row numbers of each region, ascending, scale by scale."""
    for scale in scales:
        for nearest in zip(*ranked, strict=True):
            yield np.sort(np.concatenate([line[:scale] for line in nearest]))


# book/fisher.ipynb#local-directions
def local_fisher_basis(
    X: MatrixLike,
    y: LabelsLike,
    n_basis: int,
    scales: Sequence[int] | None = None,
    random_state: Seed = None,
    regularization: float = 1.0,
) -> Floats:
    """Fisher directions of many small regions.

    Parameters
    ----------
    X : {array-like, CSR matrix} of shape (n_samples, n_features)
        Rows; CSR rows are not made dense.
    y : array-like of shape (n_samples,)
        Labels of any hashable type, of at least two classes.
    n_basis : int
        Number of directions to collect, at least 1.
    scales : sequence of int or None, default=None
        Rows of each class in a region. None: (50, 20) for more than 50 features, else
        (10, 20).
    random_state : int, RandomState instance or None, default=None
        Seed of k-means.
    regularization : float, default=1.0
        As in `fisher_directions`.

    Returns
    -------
    basis : ndarray of shape (n_found, n_features)
        Unit rows, ordered by scale, region, and quality within the region. n_found is
        n_basis unless the rows are too few to have so many regions. Rows may repeat:
        see `basis_rank`.

    Raises
    ------
    ValueError
        As in `fisher_directions`.

    Notes
    -----
    Derived in chapter 7 (fisher), eqs. (fisher-region) and (fisher-regions).
    Paper: section IV, "Lifelong dictionary initialization", and section V-A (stSCML).

    Examples
    --------
    >>> X = [[0.0, 0.0], [0.0, 2.0], [3.0, 0.0], [3.0, 2.0]]
    >>> local_fisher_basis(X, ["a", "a", "b", "b"], 2, random_state=0).shape
    (2, 2)
    """
    X, codes = _labelled_rows(X, y)
    n_basis = _count(n_basis, "n_basis")
    scales = _scales(scales, X.shape[1])
    q = min(int(codes.max()), X.shape[1])
    strength = _strength(regularization, "regularization")
    X = X if sparse.issparse(X) else X - X.mean(axis=0)  # no digits lost to a far origin
    n_regions = min(-(-n_basis // (q * len(scales))), X.shape[0])
    ranked = _ranked_by_class(X, codes, _centres(X, n_regions, random_state))
    found = [np.zeros((0, X.shape[1]))]
    known = {}
    for rows in _regions(ranked, scales):
        if (key := rows.tobytes()) not in known:  # coinciding regions are solved once
            known[key] = _directions(X[rows], codes[rows], q, strength)
        found.append(known[key])
    return np.concatenate(found)[:n_basis]


# book/fisher.ipynb#the-rank-of-a-basis
def basis_rank(F: ArrayLike, tol: float | None = None) -> int:
    """Numerical rank of a set of directions.

    Parameters
    ----------
    F : array-like of shape (n_basis, n_features)
        Directions as rows; may be empty.
    tol : float or None, default=None
        Singular values up to tol times the largest count as zero. None: the larger
        dimension of F times the machine precision.

    Returns
    -------
    rank : int

    Notes
    -----
    Derived in chapter 7 (fisher), eq. (fisher-rank).

    Examples
    --------
    >>> basis_rank([[1.0, 0.0], [2.0, 0.0], [0.0, 0.0]])
    1
    """
    F = np.asarray(F, dtype=float)
    values = linalg.svdvals(F) if F.size else np.zeros(0)
    tol = max(F.shape) * np.finfo(float).eps if tol is None else _strength(tol, "tol")
    return int(np.sum(values > tol * values.max(initial=0.0)))
