# Generated from book/fisher.ipynb and book/weak_supervision.ipynb by tools/tangle.py: edit the chapter.
"""Fisher directions: scatter matrices, the regularized discriminant, and its local version.

Samples may be dense or CSR. With fewer samples than features everything is solved among the samples
(an n x n Gram matrix), and CSR samples are centered without being made dense.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
from scipy import linalg, sparse
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_consistent_length, check_random_state, gen_batches
from sklearn.utils.extmath import row_norms, safe_sparse_dot

from lml.utils.linalg import dense, times_transpose, with_short_indices
from lml.utils.typing import Floats, Indices, LabelsLike, Matrix, MatrixLike, Seed
from lml.utils.validation import check_matrix, encode_labels, optional, real, whole

__all__ = [
    "class_means",
    "class_scatter",
    "fisher_directions",
    "fix_signs",
    "leading_directions",
    "local_directions",
    "local_fisher_basis",
    "local_regions",
    "triplet_directions",
]


# book/fisher.ipynb#two-scatters
def _labeled_samples(X: MatrixLike, y: LabelsLike) -> tuple[Matrix, Indices]:
    """Checked samples and the class of each; an error unless there are two classes."""
    X = check_matrix(X)
    codes, labels = encode_labels(y)
    check_consistent_length(X, codes)
    if len(labels) < 2:
        raise ValueError(
            f"y has {len(codes)} samples of {len(labels)} classes, so no direction separates"
            " classes and there is no dissimilar pair: give at least two samples, of two classes"
        )
    return X, codes


# book/fisher.ipynb#two-scatters
def class_means(X: Matrix, codes: Indices) -> tuple[Indices, Floats]:
    """Compute size and mean of each class.

    Parameters
    ----------
    X : {ndarray, CSR matrix} of shape (n_samples, n_features)
        Samples.
    codes : ndarray of int, shape (n_samples,)
        Class of each sample, from 0; no class is empty.

    Returns
    -------
    counts : ndarray of int, shape (n_classes,)
        Number of samples of each class.
    means : ndarray of shape (n_classes, n_features)
        Mean of the samples of each class.

    Notes
    -----
    Derived in chapter 7 (fisher), eq. (fisher-gamma).

    Examples
    --------
    >>> counts, means = class_means(np.array([[0.0], [2.0], [5.0]]), np.array([0, 0, 1]))
    >>> counts.tolist(), means.tolist()
    ([2, 1], [[1.0], [5.0]])
    """
    counts = np.bincount(codes)
    member = sparse.csr_array((1.0 / counts[codes], (codes, np.arange(len(codes)))))
    return counts, safe_sparse_dot(member, X, dense_output=True)


# book/fisher.ipynb#two-scatters
def _scatter(X: Matrix, codes: Indices) -> tuple[Floats, Floats]:
    """Within scatter (D, D), and Gamma (classes, D) with between = Gamma' Gamma."""
    counts, means = class_means(X, codes)
    gamma = np.sqrt(counts)[:, None] * (means - counts @ means / counts.sum())
    n, D = X.shape
    within = np.zeros((D, D))
    # of CSR samples a block is dense at a time, no larger than the result or 1 MB
    size = max(D, 2**17 // D) if sparse.issparse(X) else n
    for block in gen_batches(n, size):
        deviations = dense(X[block]) - means[codes[block]]
        within += deviations.T @ deviations
    return within, gamma


def class_scatter(X: MatrixLike, y: LabelsLike) -> tuple[Floats, Floats]:
    """Compute the within-class and the between-class scatter of labeled samples.

    Parameters
    ----------
    X : {array-like, CSR matrix} of shape (n_samples, n_features)
        Samples. The results are dense, so n_features should be moderate.
    y : array-like of shape (n_samples,)
        Class of each sample, of any hashable type; at least two classes.

    Returns
    -------
    within : ndarray of shape (n_features, n_features)
        Sum, not average, over the samples of their deviation from the mean of their class.
    between : ndarray of shape (n_features, n_features)
        The same for the class means. Both together are the scatter of the centered samples.

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
    within, gamma = _scatter(*_labeled_samples(X, y))
    return within, gamma.T @ gamma


# book/fisher.ipynb#a-singular-within-scatter
def _ridge(inside: float, between: float, n_features: int, regularization: float) -> float:
    """The multiple of the identity that is added to the within scatter, from both traces."""
    if regularization and inside <= 1e-12 * between:  # one distinct sample a class
        return max(between, 1.0) / n_features
    return regularization * inside / n_features


# book/fisher.ipynb#a-singular-within-scatter
def _leading_eigenvectors(A: Floats, n_directions: int) -> Floats:
    """Eigenvectors (as columns) of a symmetric matrix, largest first, the zeros dropped."""
    values, U = linalg.eigh(A)
    order = np.argsort(-values)[:n_directions]
    return U[:, order[values[order] > max(1e-10 * values.max(), np.finfo(float).tiny)]]


# book/fisher.ipynb#a-singular-within-scatter
def leading_directions(within: Floats, gamma: Floats, ridge: float, n_directions: int) -> Floats:
    """Find directions of the largest ratios of between scatter to within scatter.

    Parameters
    ----------
    within : ndarray of shape (n_features, n_features)
        Within-class scatter.
    gamma : ndarray of shape (n_classes, n_features)
        Gamma. Gamma' Gamma is the between-class scatter.
    ridge : float
        Added to the diagonal of the within scatter.
    n_directions : int
        Largest number of directions.

    Returns
    -------
    directions : ndarray of shape (n_found, n_features)
        Eigenvectors as rows, the largest eigenvalue first; of no particular length.

    Raises
    ------
    ValueError
        If the ridged within scatter is not positive definite.

    Notes
    -----
    Derived in chapter 7 (fisher), eq. (fisher-compact).

    Examples
    --------
    >>> leading_directions(np.eye(2), np.array([[0.0, 1.0], [0.0, -1.0]]), 1.0, 2).shape
    (1, 2)
    """
    try:
        factor = linalg.cho_factor(within + ridge * np.eye(len(within)))
    except linalg.LinAlgError as error:
        raise ValueError(f"regularization is too small ({error}): raise it") from error
    half = linalg.cho_solve(factor, gamma.T)  # (D, classes)
    return (half @ _leading_eigenvectors(gamma @ half, n_directions)).T


# book/fisher.ipynb#fewer-samples-than-features
def _centered_gram(X: Matrix) -> Floats:
    """Inner products (n, n) of the centered samples."""
    gram = times_transpose(X, X)
    gram -= gram.mean(axis=0)
    gram -= gram.mean(axis=1, keepdims=True)
    return gram


def _coordinates(X: Matrix) -> tuple[Floats, Floats]:
    """Coordinates Z (n, p) of the centered samples, and A (n, p) that leads back: v = Xc' A b."""
    squares, U = linalg.eigh(_centered_gram(X))
    keep = squares > 1e-13 * max(squares[-1], 0.0)
    root = np.sqrt(squares[keep])
    return U[:, keep] * root, U[:, keep] / root


def fix_signs(V: Floats) -> Floats:
    """Scale directions to unit length and make their entry of largest magnitude positive.

    Parameters
    ----------
    V : ndarray of shape (n_directions, n_features)
        Directions, none of them zero.

    Returns
    -------
    directions : ndarray of shape (n_directions, n_features)
    """
    largest = V[np.arange(len(V)), np.abs(V).argmax(axis=1)]
    return V * np.sign(largest)[:, None] / np.sqrt(np.sum(V * V, axis=1))[:, None]


# book/fisher.ipynb#fewer-samples-than-features
def _row_coefficients(
    X: Matrix, codes: Indices, n_directions: int, regularization: float
) -> Floats:
    """Coefficients A (directions, n) with Fisher directions A X; for fewer samples than features."""
    K = _centered_gram(X)
    counts = np.bincount(codes)
    means = (codes == np.arange(len(counts))[:, None]) / counts[:, None]  # (classes, n)
    G = np.sqrt(counts)[:, None] * means
    of_means = means @ K
    deviations = K - of_means[codes]  # (I - H) K
    within = deviations - (deviations @ means.T)[:, codes]  # (I - H) K (I - H) = E E'
    ridge = _ridge(np.trace(within), np.vdot(G @ K, G), X.shape[1], regularization)
    within.flat[:: len(K) + 1] += ridge
    N = (G - linalg.cho_solve(linalg.cho_factor(within), deviations @ G.T).T) / ridge
    A = _leading_eigenvectors(np.sqrt(counts)[:, None] * of_means @ N.T, n_directions).T @ N
    return A - A.mean(axis=1, keepdims=True)


# book/fisher.ipynb#fewer-samples-than-features
_SOLVED_BY_ROWS = 1e-3  # least regularization at which nothing is lost by the identity


def _directions(X: Matrix, codes: Indices, n_directions: int, regularization: float) -> Floats:
    """Unit Fisher directions of samples that are already checked."""
    n, D = X.shape
    if not sparse.issparse(X):
        X = X - X.mean(axis=0)  # CSR samples are centered implicitly below
    if n < D and regularization >= _SOLVED_BY_ROWS:  # by Woodbury's identity, among the samples
        A = _row_coefficients(X, codes, n_directions, regularization)
        return fix_signs(safe_sparse_dot(X.T, A.T, dense_output=True).T)
    Z = X
    if n < D:  # in the span of the samples
        Z, back = _coordinates(X)
    within, gamma = _scatter(Z, codes)
    ridge = _ridge(np.trace(within), np.sum(np.square(gamma)), D, regularization)
    V = leading_directions(within, gamma, ridge, n_directions)
    if n < D:
        V = safe_sparse_dot(X.T, back @ V.T, dense_output=True).T  # back sums to zero
    return fix_signs(V)


# book/fisher.ipynb#fewer-samples-than-features
def fisher_directions(
    X: MatrixLike, y: LabelsLike, n_directions: int | None = None, regularization: float = 1.0
) -> Floats:
    """Find directions along which the classes lie far apart compared with their spread.

    Parameters
    ----------
    X : {array-like, CSR matrix} of shape (n_samples, n_features)
        Samples. Of a CSR matrix, few samples are dense at a time. If there are fewer samples
        than features, no n_features x n_features matrix is formed.
    y : array-like of shape (n_samples,)
        Class of each sample, of any hashable type; at least two classes.
    n_directions : int or None, default=None
        Number of directions, at least 1. None, or a number above n_classes - 1, gives
        n_classes - 1.
    regularization : float, default=1.0
        Ridge added to the within scatter, in units of its average diagonal, at least 0.
        Zero needs a nonsingular within scatter.

    Returns
    -------
    directions : ndarray of shape (n_found, n_features)
        Unit directions, the best first; the entry of largest magnitude is positive. Fewer
        than n_directions are found if the class means span fewer dimensions.

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
    X, codes = _labeled_samples(X, y)
    optional(whole(1)).check("n_directions", n_directions)
    real(0).check("regularization", regularization)
    most = int(codes.max())
    if n_directions is not None:
        most = min(most, n_directions)
    return _directions(X, codes, most, regularization)


# book/fisher.ipynb#local-directions
def _centers(X: Matrix, n_clusters: int, random_state: Seed) -> Floats:
    """Means (n_found, D) of k-means clusters; fewer where samples coincide."""
    given = with_short_indices(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct samples than clusters
        clusters = KMeans(n_clusters, n_init=1, random_state=random_state).fit(given).labels_
    return class_means(X, np.unique(clusters, return_inverse=True)[1])[1]


# book/fisher.ipynb#local-directions
def local_regions(
    X: Matrix, codes: Indices, n_regions: int, scales: Sequence[int], random_state: Seed = None
) -> list[Indices]:
    """Find the samples of many small regions: those of each class nearest to a center.

    Parameters
    ----------
    X : {ndarray, CSR matrix} of shape (n_samples, n_features)
        Samples.
    codes : ndarray of int, shape (n_samples,)
        Class of each sample, from 0; no class is empty.
    n_regions : int
        Number of centers. They are the means of k-means clusters, fewer if samples coincide.
    scales : sequence of int
        Samples of each class in a region.
    random_state : int, RandomState instance or None, default=None
        Seed of k-means.

    Returns
    -------
    regions : list of ndarrays of int
        For each scale, the sample numbers of each region, ascending.

    Notes
    -----
    Derived in chapter 7 (fisher), eq. (fisher-region). Ties go to the lower sample number.
    """
    centers = _centers(X, n_regions, random_state)
    # squared distances, less the length of the center, which ranks no sample
    squares = X.multiply(X) if sparse.issparse(X) else np.square(X)
    squares = np.asarray(squares.sum(axis=1)).ravel()
    distances = squares - 2 * times_transpose(X, centers).T
    distances = np.round(distances / max(squares.mean(), np.finfo(float).tiny), 9)
    ranked = []
    for code in range(codes.max() + 1):
        own = np.flatnonzero(codes == code)
        ranked.append(own[np.argsort(distances[:, own], axis=1, kind="stable")])
    return [
        np.sort(np.concatenate([line[:scale] for line in nearest]))
        for scale in scales
        for nearest in zip(*ranked, strict=True)
    ]


# book/fisher.ipynb#local-directions
def local_fisher_basis(
    X: MatrixLike,
    y: LabelsLike,
    n_basis: int,
    scales: Sequence[int] | None = None,
    random_state: Seed = None,
    regularization: float = 1.0,
) -> Floats:
    """Collect Fisher directions of many small regions.

    Parameters
    ----------
    X : {array-like, CSR matrix} of shape (n_samples, n_features)
        Samples. Of a CSR matrix, few samples are dense at a time.
    y : array-like of shape (n_samples,)
        Class of each sample, of any hashable type; at least two classes.
    n_basis : int
        Number of directions to collect, at least 1.
    scales : sequence of int or None, default=None
        Samples of each class in a region. None takes (50, 20) for more than 50 features and
        (10, 20) otherwise.
    random_state : int, RandomState instance or None, default=None
        Seed of k-means.
    regularization : float, default=1.0
        As in `fisher_directions`.

    Returns
    -------
    basis : ndarray of shape (n_found, n_features)
        Unit directions, ordered by scale, region, and quality within the region. Fewer than
        n_basis are found if the samples are too few to form so many regions. Directions may
        repeat: see `numpy.linalg.matrix_rank`.

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
    X, codes = _labeled_samples(X, y)
    whole(1).check("n_basis", n_basis)
    real(0).check("regularization", regularization)
    if scales is not None:
        if not len(scales):
            raise ValueError("scales is empty: give at least one number of samples")
        for scale in scales:
            whole(1).check("scales", scale)
    return local_directions(X, codes, n_basis, scales, random_state, regularization)


# book/fisher.ipynb#local-directions
def local_directions(
    X: Matrix,
    codes: Indices,
    n_basis: int,
    scales: Sequence[int] | None = None,
    random_state: Seed = None,
    regularization: float = 1.0,
) -> Floats:
    """What `local_fisher_basis` gives, for arrays that were checked before."""
    n, D = X.shape
    if scales is None:
        scales = (50 if D > 50 else 10, 20)
    if not sparse.issparse(X):
        X = X - X.mean(axis=0)  # no digits lost to a far origin
    q = min(int(codes.max()), D)
    n_regions = min(-(-n_basis // (q * len(scales))), n)  # eq. fisher-regions
    found = [np.zeros((0, D))]
    known = {}
    for region in local_regions(X, codes, n_regions, scales, random_state):
        key = region.tobytes()
        if key not in known:  # coinciding regions are solved once
            known[key] = _directions(X[region], codes[region], q, regularization)
        found.append(known[key])
    return np.concatenate(found)[:n_basis]


# book/weak_supervision.ipynb#triplets
def _pair_scatter(X: Matrix, i: Indices, j: Indices) -> Floats:
    """Sum of (x_i - x_j)(x_i - x_j)' over pairs, (n_features, n_features)."""
    n = X.shape[0]
    counts = sparse.csr_array((np.ones(len(i)), (i, j)), shape=(n, n))
    degrees = np.bincount(i, minlength=n) + np.bincount(j, minlength=n)
    laplacian = sparse.diags_array(degrees.astype(float)) - counts - counts.T
    return safe_sparse_dot(X.T, laplacian @ X, dense_output=True)


def triplet_directions(
    X: Matrix, triplets: Indices, n_basis: int, random_state: Seed = None
) -> Floats:
    """Find directions along which negatives lie far from anchors, and positives near.

    Parameters
    ----------
    X : {ndarray, csr_array} of shape (n_samples, n_features)
    triplets : ndarray of int, shape (n_triplets, 3)
        Numbers of samples (anchor, positive, negative).
    n_basis : int
        Number of directions to collect, at least 1.
    random_state : int, RandomState instance or None, default=None
        Seed of the regions.

    Returns
    -------
    basis : ndarray of shape (n_found, n_features)
        Unit directions. Fewer are found where the triplets form one region only.

    Notes
    -----
    Derived in chapter 43 (weak_supervision), eq. (pairs-directions).
    """
    n, D = X.shape
    if not sparse.issparse(X):
        X = X - X.mean(axis=0)  # no digits lost to a far origin
    Z = X
    if n < D:  # in the span of the samples
        Z, back = _coordinates(X)
    if not Z.shape[1]:
        return np.zeros((0, D))
    per_region = min(Z.shape[1], 20)
    size = max(100, len(triplets) // 5)
    n_regions = -(-n_basis // per_region) if size < len(triplets) else 1
    anchors = Z[triplets[:, 0]]
    centers = check_random_state(random_state).randint(len(triplets), size=n_regions - 1)
    regions = [triplets]
    for center in triplets[centers, 0]:
        distances = row_norms(anchors - np.asarray(dense(Z[[center]])), squared=True)
        regions.append(triplets[np.argsort(distances, kind="stable")[:size]])
    found = []
    for i, j, k in (region.T for region in regions):
        near = _pair_scatter(Z, i, j)
        near.flat[:: len(near) + 1] += np.trace(near) / D or 1.0
        _, V = linalg.eigh(_pair_scatter(Z, i, k), near)
        found.append(V[:, ::-1][:, :per_region].T)
    V = np.concatenate(found)[:n_basis]
    if n < D:
        V = safe_sparse_dot(X.T, back @ V.T, dense_output=True).T
    return fix_signs(V)
