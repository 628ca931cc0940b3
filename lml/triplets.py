# Generated from book/triplets.ipynb and book/large.ipynb by tools/tangle.py: edit the chapter.
"""Triplets (anchor, positive, negative): choosing them, their hinge loss, its gradient.

A triplet (i, j, k) asks that sample i be closer to sample j, of its own class, than to sample k, of
another class. The functions take samples X, dense or CSR, and an integer array of shape
(n_triplets, 3); a metric is a FactoredMetric, and so is the gradient of the mean hinge.
Nothing here loops over triplets or forms a D x D matrix.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.utils import check_consistent_length, check_random_state

from lml.metrics import METRIC_TYPE, FactoredMetric, check_metric, has_own_score
from lml.neighbors import nearest_references
from lml.utils.typing import Floats, Indices, LabelsLike, Matrix, MatrixLike, Seed
from lml.utils.validation import check_matrix, check_two_classes, encode_labels, real, whole

__all__ = [
    "all_triplets",
    "bounded_samples",
    "check_problem",
    "check_sample_numbers",
    "check_triplets",
    "draw_triplets",
    "encode_triplet_classes",
    "hinge_with_gradient",
    "nearest_triplets",
    "neighbor_triplets",
    "sample_triplets",
    "triplet_counts",
    "triplet_gradient",
    "triplet_hinge",
    "triplet_loss",
    "triplet_margins",
]

# book/triplets.ipynb#triplets-which-samples-must-be-closer
_BLOCK = 2**22  # numbers in the largest temporary array of a block


# book/triplets.ipynb#pairs-and-triplets
def encode_triplet_classes(y: LabelsLike) -> Indices:
    """Number the classes of labels that allow a triplet.

    Parameters
    ----------
    y : array-like of shape (n_samples,)
        Labels of any hashable type.

    Returns
    -------
    ndarray of int, shape (n_samples,)
        The class of each sample.

    Raises
    ------
    ValueError
        If there is one class only, or no class with two samples.
    """
    codes, labels = encode_labels(y)
    check_two_classes(codes, labels)
    return codes


# book/triplets.ipynb#pairs-and-triplets
def _block_of(anchors: Indices, positives: Indices, negatives: Indices) -> Indices:
    """Triplets of each anchor with every pair of its own positives and negatives."""
    block = np.empty((len(anchors), positives.shape[1], negatives.shape[1], 3), dtype=np.intp)
    block[..., 0] = anchors[:, None, None]
    block[..., 1] = positives[:, :, None]
    block[..., 2] = negatives[:, None, :]
    return block.reshape(-1, 3)


# book/triplets.ipynb#pairs-and-triplets
def all_triplets(y: LabelsLike, self_pairs: bool = False) -> Indices:
    """Every triplet that the labels allow: sum over classes of n_c (n_c - 1) (n - n_c).

    Parameters
    ----------
    y : array-like of shape (n_samples,)
        Labels of any hashable type.
    self_pairs : bool, default=False
        Whether j = i is allowed (a class of one sample then has no triplets either).

    Returns
    -------
    triplets : ndarray of shape (n_triplets, 3)
        Samples (i, j, k) with y[i] == y[j] != y[k], in lexicographic order.

    Raises
    ------
    ValueError
        If y has fewer than three samples, one class only, or no class with two samples.

    Notes
    -----
    Derived in chapter 5 (triplets), eqs. (triplets-set) and (triplets-count).
    Paper: section III-A.

    Examples
    --------
    >>> all_triplets(["a", "b", "a"]).tolist()
    [[0, 2, 1], [2, 0, 1]]
    """
    codes = encode_triplet_classes(y)
    blocks = []
    for i in np.flatnonzero(np.bincount(codes)[codes] > 1):
        same = np.flatnonzero(codes == codes[i])
        other = np.flatnonzero(codes != codes[i])
        same = same if self_pairs else same[same != i]
        blocks.append(_block_of(np.array([i]), same[None], other[None]))
    return np.concatenate(blocks)


# book/triplets.ipynb#drawing-triplets-at-random
def sample_triplets(
    y: LabelsLike, n_triplets: int, random_state: Seed = None, self_pairs: bool = True
) -> Indices:
    """Random triplets: anchor uniform over samples, positive and negative uniform given it.

    Parameters
    ----------
    y : array-like of shape (n_samples,)
        Labels of any hashable type; renaming the classes changes nothing.
    n_triplets : int
        How many to draw, with replacement; 0 gives an empty array.
    random_state : int, RandomState instance or None, default=None
        Source of randomness.
    self_pairs : bool, default=True
        Whether j = i may be drawn.

    Returns
    -------
    triplets : ndarray of shape (n_triplets, 3)
        Samples (i, j, k) with y[i] == y[j] != y[k]. A sample alone in its class is never an
        anchor, but it may be a negative.

    Raises
    ------
    ValueError
        If y has fewer than three samples, one class only, or no class with two samples.

    Notes
    -----
    Derived in chapter 5 (triplets), eq. (triplets-uniform).
    Paper: section V-A (stOASIS).

    Examples
    --------
    >>> sample_triplets(["a", "b", "a"], 2, random_state=0, self_pairs=False).tolist()
    [[0, 2, 1], [2, 0, 1]]
    """
    whole(0).check("n_triplets", n_triplets)
    return draw_triplets(encode_triplet_classes(y), n_triplets, random_state, self_pairs)


# book/triplets.ipynb#drawing-triplets-at-random
def draw_triplets(
    codes: Indices, n_triplets: int, random_state: Seed = None, self_pairs: bool = True
) -> Indices:
    """What `sample_triplets` gives, for class numbers that were checked before."""
    sizes = np.bincount(codes)
    rng = check_random_state(random_state)
    order = np.argsort(codes, kind="stable")  # samples sorted by class: one block a class
    anchors = np.flatnonzero(sizes[codes] > 1)
    i = anchors[rng.randint(len(anchors), size=n_triplets)]
    size = sizes[codes[i]]
    start = (np.cumsum(sizes) - sizes)[codes[i]]
    j = rng.randint(size if self_pairs else size - 1)  # a place in the anchor's block
    if not self_pairs:
        j += j >= np.argsort(order)[i] - start  # jump over the anchor's own place
    k = rng.randint(len(codes) - size)  # a place outside the block
    k = np.where(k < start, k, k + size)
    return np.stack([i, order[start + j], order[k]], axis=1).astype(np.intp)


# book/triplets.ipynb#drawing-the-nearest-samples
def nearest_triplets(
    X: MatrixLike, y: LabelsLike, n_targets: int = 3, n_impostors: int = 10
) -> Indices:
    """Each sample with its nearest ones of the same class times its nearest ones of the others.

    Parameters
    ----------
    X : {array-like, CSR matrix} of shape (n_samples, n_features)
        Samples; distances are Euclidean, and CSR samples are not made dense.
    y : array-like of shape (n_samples,)
        Labels of any hashable type.
    n_targets, n_impostors : int, default=3 and 10
        Neighbors of the same class and of the other classes, at least 1; fewer are used
        where a class has no more.

    Returns
    -------
    triplets : ndarray of shape (n_triplets, 3)
        Anchors ascending; targets, then impostors, from near to far, ties to the lower sample
        number. A copy of a sample may be its target, the sample itself never is. A sample alone in
        its class is no anchor, but it may be an impostor.

    Raises
    ------
    ValueError
        If X and y differ in length, X is not finite, or the labels allow no triplet.

    Notes
    -----
    Derived in chapter 5 (triplets), eq. (triplets-nearest); chapter 4 (neighbors), eq.
    (neighbors-candidates). Paper: section V-A (stSCML).

    Examples
    --------
    >>> nearest_triplets([[0.0], [1.0], [3.0]], ["a", "a", "b"]).tolist()
    [[0, 1, 2], [1, 0, 2]]
    """
    X = check_matrix(X)
    whole(1).check("n_targets", n_targets)
    whole(1).check("n_impostors", n_impostors)
    codes = encode_triplet_classes(y)
    check_consistent_length(X, codes)
    return neighbor_triplets(X, codes, n_targets, n_impostors)


# book/triplets.ipynb#drawing-the-nearest-samples
def neighbor_triplets(
    X: Matrix, codes: Indices, n_targets: int = 3, n_impostors: int = 10
) -> Indices:
    """What `nearest_triplets` gives, for arrays that were checked before."""
    euclidean = FactoredMetric.identity(X.shape[1])
    blocks = []
    for code in np.flatnonzero(np.bincount(codes) > 1):
        same = np.flatnonzero(codes == code)
        other = np.flatnonzero(codes != code)
        own = X[same]
        n_near = min(int(n_targets), len(same) - 1)
        n_far = min(int(n_impostors), len(other))
        targets, _ = nearest_references(euclidean, None, own, "distance", n_near)
        impostors, _ = nearest_references(euclidean, own, X[other], "distance", n_far)
        blocks.append(_block_of(same, same[targets], other[impostors]))
    triplets = np.concatenate(blocks)
    return triplets[np.argsort(triplets[:, 0], kind="stable")]


# book/triplets.ipynb#the-hinge-and-its-sign
def check_triplets(triplets: ArrayLike, n_samples: int) -> Indices:
    """Triplets as an integer array of sample numbers.

    Parameters
    ----------
    triplets : array-like of shape (n_triplets, 3)
        May be empty.
    n_samples : int
        Number of samples of X.

    Returns
    -------
    ndarray of int, shape (n_triplets, 3)

    Raises
    ------
    ValueError
        If the shape is another one, or an entry is no sample number of X.
    """
    triplets = np.asarray(triplets)
    if triplets.size == 0:
        return np.zeros((0, 3), dtype=np.intp)
    return check_sample_numbers(triplets, n_samples, "triplets", 3)


def check_sample_numbers(numbers: NDArray[Any], n_samples: int, name: str, size: int) -> Indices:
    """Tuples of so many sample numbers each, as an integer array (n, size)."""
    if numbers.ndim != 2 or numbers.shape[1] != size or numbers.dtype.kind not in "iu":
        raise ValueError(
            f"{name} has shape {numbers.shape} and dtype {numbers.dtype}: give numbers of samples,"
            f" an integer array of shape (n_{name}, {size})"
        )
    for n in np.flatnonzero(((numbers < 0) | (numbers >= n_samples)).any(axis=1)):
        raise ValueError(
            f"{name}[{n}] is {tuple(numbers[n].tolist())}, but X has {n_samples} samples:"
            f" their numbers go from 0 to {n_samples - 1}"
        )
    return numbers.astype(np.intp)


def check_problem(
    metric: FactoredMetric, X: MatrixLike, triplets: ArrayLike, metric_type: str, margin: float = 0
) -> tuple[Matrix, Indices]:
    """Samples and triplets of the functions of a hinge, checked."""
    METRIC_TYPE.check("metric_type", metric_type)
    real(0, largest=np.inf).check("margin", margin)
    check_metric(metric, "metric")
    X = check_matrix(X, "X", metric.n_features)
    return X, check_triplets(triplets, X.shape[0])


# book/triplets.ipynb#the-hinge-and-its-sign
def _margins(metric: FactoredMetric, X: Matrix, triplets: Indices, metric_type: str) -> Floats:
    """What `triplet_margins` returns, for arguments that have been checked."""
    distance = metric_type == "distance"
    own_score = has_own_score(metric)
    out = np.empty(len(triplets))
    if len(triplets) <= X.shape[0]:  # gather their samples: eq. (triplets-paired)
        step = max(1, _BLOCK // X.shape[1])
        for start in range(0, len(triplets), step):
            part = slice(start, start + step)
            i, j, k = triplets[part].T
            if distance:
                far = X[i] - X[k]
                near = X[i] - X[j]
                out[part] = metric._paired(far, far) - metric._paired(near, near)
            elif own_score:  # not linear in the samples: both scores are asked
                out[part] = metric.paired(X[i], X[j]) - metric.paired(X[i], X[k])
            else:
                out[part] = metric._paired(X[i], X[j] - X[k])
        return out
    # look them up in X M X', of which a block of anchors is made at a time: eq. (triplets-gram)
    if distance:
        metric = metric.symmetrized()
        X = X if sparse.issparse(X) else X - X.mean(axis=0)
        squares = metric._paired(X, X)
    bilinear = metric.bilinear if own_score and not distance else metric._bilinear
    anchors, place = np.unique(triplets[:, 0], return_inverse=True)
    step = max(1, 4 * _BLOCK // X.shape[0])
    for start in range(0, len(anchors), step):
        gram = bilinear(X[anchors[start : start + step]], X)
        of_these = np.flatnonzero((place >= start) & (place < start + step))
        row = place[of_these] - start
        _, j, k = triplets[of_these].T
        gap = gram[row, j] - gram[row, k]
        out[of_these] = 2 * gap + squares[k] - squares[j] if distance else gap
    return out


# book/triplets.ipynb#the-hinge-and-its-sign
def triplet_margins(
    metric: FactoredMetric, X: MatrixLike, triplets: ArrayLike, metric_type: str
) -> Floats:
    """By how much each triplet holds: s(i, j) - s(i, k), or d(i, k) - d(i, j).

    Parameters
    ----------
    metric : FactoredMetric of shape (n_features, n_features)
    X : {array-like, CSR matrix} of shape (n_samples, n_features)
    triplets : array-like of shape (n_triplets, 3)
        Sample numbers (i, j, k); may be empty.
    metric_type : {"similarity", "distance"}

    Returns
    -------
    margins : ndarray of shape (n_triplets,)
        Positive where i is closer to j than to k.

    Raises
    ------
    ValueError
        If X is not finite or does not fit the metric, or triplets are no sample numbers of X.

    Notes
    -----
    Derived in chapter 5 (triplets), eqs. (triplets-margin), (triplets-paired) and (triplets-gram).
    Paper: Table I.
    Up to n_samples triplets the samples are gathered; beyond, inner products are looked up.

    Examples
    --------
    >>> from lml.metrics import FactoredMetric
    >>> X = [[0.0], [1.0], [3.0]]
    >>> triplet_margins(FactoredMetric.identity(1), X, [[0, 1, 2]], "distance").tolist()
    [8.0]
    """
    X, triplets = check_problem(metric, X, triplets, metric_type)
    return _margins(metric, X, triplets, metric_type)


# book/triplets.ipynb#the-hinge-and-its-sign
def triplet_hinge(
    metric: FactoredMetric,
    X: MatrixLike,
    triplets: ArrayLike,
    metric_type: str,
    margin: float = 1.0,
) -> Floats:
    """Hinge loss of each triplet, max(0, margin - triplet margin).

    Parameters
    ----------
    metric, X, triplets, metric_type
        As in `triplet_margins`.
    margin : float, default=1.0
        The margin asked for, at least 0.

    Returns
    -------
    losses : ndarray of shape (n_triplets,)

    Notes
    -----
    Derived in chapter 5 (triplets), eq. (triplets-loss).
    Paper: Table I, whose distance row has the wrong sign.

    Examples
    --------
    >>> from lml.metrics import FactoredMetric
    >>> X = [[0.0], [1.0], [1.25]]
    >>> triplet_hinge(FactoredMetric.identity(1), X, [[0, 1, 2]], "distance").tolist()
    [0.4375]
    """
    X, triplets = check_problem(metric, X, triplets, metric_type, margin)
    return np.maximum(margin - _margins(metric, X, triplets, metric_type), 0.0)


# book/triplets.ipynb#the-hinge-and-its-sign
def triplet_loss(
    metric: FactoredMetric,
    X: MatrixLike,
    triplets: ArrayLike,
    metric_type: str,
    margin: float = 1.0,
) -> float:
    """Mean hinge over all triplets, the satisfied ones included; 0.0 over no triplets.

    Parameters
    ----------
    metric, X, triplets, metric_type, margin
        As in `triplet_hinge`.

    Returns
    -------
    loss : float

    Notes
    -----
    Derived in chapter 5 (triplets), eq. (triplets-loss).
    Paper: section III-B, eq. 3.

    Examples
    --------
    >>> from lml.metrics import FactoredMetric
    >>> X, triplets = [[0.0], [1.0], [1.25]], [[0, 1, 2], [1, 0, 2]]
    >>> triplet_loss(FactoredMetric.identity(1), X, triplets, "distance")
    1.1875
    """
    losses = triplet_hinge(metric, X, triplets, metric_type, margin)
    return float(losses.mean()) if len(losses) else 0.0


# book/triplets.ipynb#the-gradient-is-x-tp-k-x
def triplet_counts(triplets: Indices, n_samples: int, metric_type: str) -> sparse.csr_array:
    """Coefficients K of the sum of triplet gradients, sum = X' K X.

    Parameters
    ----------
    triplets : ndarray of int, shape (n_triplets, 3)
        Numbers (i, j, k) of samples; a triplet given twice counts twice.
    n_samples : int
        Number of samples.
    metric_type : {"similarity", "distance"}

    Returns
    -------
    counts : CSR array of shape (n_samples, n_samples)
        Its rows sum to zero. Symmetric for a distance.

    Notes
    -----
    Derived in chapter 5 (triplets), eqs. (triplets-k-similarity) and (triplets-k-distance).
    Paper: Table I, last column.

    Examples
    --------
    >>> triplet_counts(np.array([[0, 1, 2]]), 3, "similarity").toarray().astype(int).tolist()
    [[0, -1, 1], [0, 0, 0], [0, 0, 0]]
    """
    METRIC_TYPE.check("metric_type", metric_type)
    i, j, k = triplets.T
    if metric_type == "distance":
        rows = [j, i, j, k, i, k]
        columns = [j, j, i, k, k, i]
        signs = [1.0, -1.0, -1.0, -1.0, 1.0, 1.0]
    else:
        rows = [i, i]
        columns = [k, j]
        signs = [1.0, -1.0]
    place = (np.concatenate(rows), np.concatenate(columns))
    counts = sparse.csr_array((np.repeat(signs, len(i)), place), shape=(n_samples, n_samples))
    counts.eliminate_zeros()
    return counts


# book/triplets.ipynb#the-gradient-is-x-tp-k-x
def triplet_gradient(
    metric: FactoredMetric,
    X: MatrixLike,
    triplets: ArrayLike,
    metric_type: str,
    margin: float = 1.0,
) -> tuple[float, FactoredMetric]:
    """Mean hinge and its gradient with respect to the metric, kept as X' K X.

    Parameters
    ----------
    metric, X, triplets, metric_type, margin
        As in `triplet_hinge`.

    Returns
    -------
    loss : float
        Mean hinge over all triplets.
    gradient : FactoredMetric
        alpha = 0, factor X, core K (sparse). Only violated triplets enter; the divisor is
        the number of all triplets. Zero where no triplet is violated or none is given.

    Raises
    ------
    ValueError
        As in `triplet_margins`.
    TypeError
        If the similarity of the metric is a log-ratio, so not x'Mz.

    Notes
    -----
    Derived in chapter 5 (triplets), eqs. (triplets-gradient) and (triplets-kink).
    Paper: section IV, eq. 8 (G_t) and Table I. At a kink this is the subgradient that leaves
    out triplets whose margin is met exactly.

    Examples
    --------
    >>> from lml.metrics import FactoredMetric
    >>> X, triplets = [[0.0], [1.0], [1.25]], [[0, 1, 2]]
    >>> loss, G = triplet_gradient(FactoredMetric.identity(1), X, triplets, "distance")
    >>> loss, G.to_dense().tolist()
    (0.4375, [[-0.5625]])
    """
    X, triplets = check_problem(metric, X, triplets, metric_type, margin)
    if metric_type == "similarity" and has_own_score(metric):
        raise TypeError(
            f"metric is a {type(metric).__name__}, whose similarity is not x'Mz, so the mean hinge"
            " has no gradient X' K X: pass a FactoredMetric"
        )
    return hinge_with_gradient(metric, X, triplets, metric_type, margin)


# book/triplets.ipynb#the-gradient-is-x-tp-k-x
def hinge_with_gradient(
    metric: FactoredMetric, X: Matrix, triplets: Indices, metric_type: str, margin: float = 1.0
) -> tuple[float, FactoredMetric]:
    """What `triplet_gradient` gives, for arrays that were checked before."""
    losses = np.maximum(margin - _margins(metric, X, triplets, metric_type), 0.0)
    total = max(len(losses), 1)
    core = triplet_counts(triplets[losses > 0], X.shape[0], metric_type) / total
    return float(losses.sum() / total), FactoredMetric._trusted(0.0, X, core)


# book/large.ipynb#the-samples-that-are-kept
def bounded_samples(
    X: Matrix, codes: Indices, max_samples: int | None, random_state: Seed = None
) -> tuple[Matrix, Indices]:
    """Draw samples where there are more than allowed; each class keeps its share.

    Parameters
    ----------
    X : {ndarray, csr_array} of shape (n_samples, n_features)
        Samples that were checked before.
    codes : ndarray of int, shape (n_samples,)
        Class of each sample, from 0.
    max_samples : int or None
        Most samples, at least 3. Where there are no more, or with None, all are kept.
    random_state : int, RandomState instance or None, default=None
        Seed of the draw. It is not used where all samples are kept.

    Returns
    -------
    X : {ndarray, csr_array} of shape (n_kept, n_features)
        The samples that were kept, in their order.
    codes : ndarray of int, shape (n_kept,)
        Their classes, from 0. Some are left out where there are too many for two samples of each.

    Notes
    -----
    Derived in chapter 44 (large), eq. (large-share).

    Examples
    --------
    >>> codes = np.repeat([0, 1], [900, 100])
    >>> np.bincount(bounded_samples(np.zeros((1000, 2)), codes, 50, random_state=0)[1]).tolist()
    [45, 5]
    """
    if max_samples is None or len(codes) <= max_samples:
        return X, codes
    rng = check_random_state(random_state)
    sizes = np.bincount(codes)
    # the number of each sample in its class, in random order
    order = rng.permutation(len(codes))
    order = order[np.argsort(codes[order], kind="stable")]
    number = np.empty(len(codes), dtype=np.intp)
    number[order] = np.arange(len(codes)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    place = (number + 0.5) / sizes[codes]
    # two samples of each class come first, classes in random order, those of one sample last
    turn = rng.permutation(len(sizes)) + len(sizes) * (sizes == 1)
    first = number < 2
    place[first] = turn[codes[first]] - 2 * len(sizes)
    kept = np.sort(np.argsort(place, kind="stable")[:max_samples])
    return X[kept], np.unique(codes[kept], return_inverse=True)[1]
