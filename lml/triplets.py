# Generated from book/triplets.ipynb by tools/tangle.py: edit the chapter.
"""Triplets (anchor, positive, negative): sampling, hinge losses and their gradient."""

import numpy as np
from scipy import sparse
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import check_random_state

from lml.metrics import FactoredMetric

__all__ = [
    "nearest_triplets",
    "sample_triplets",
    "triplet_gradient",
    "triplet_hinge",
    "triplet_loss",
    "triplet_margins",
]


def sample_triplets(y, n_triplets, random_state=None):
    """Random triplets, array (n_triplets, 3); j = i allowed; lone rows are no anchors."""
    rng = check_random_state(random_state)
    codes = np.unique(y, return_inverse=True)[1]
    order = np.argsort(codes, kind="stable")
    sizes = np.bincount(codes)
    first = np.cumsum(sizes) - sizes
    anchors = np.flatnonzero(sizes[codes] > 1)
    i = anchors[rng.randint(len(anchors), size=n_triplets)]
    size, start = sizes[codes[i]], first[codes[i]]
    j = order[start + (rng.random_sample(n_triplets) * size).astype(int)]
    other = (rng.random_sample(n_triplets) * (len(codes) - size)).astype(int)
    k = order[np.where(other < start, other, other + size)]
    return np.stack([i, j, k], axis=1)


def nearest_triplets(X, y, n_targets=3, n_impostors=10):
    """Every row with its nearest same-class rows times its nearest other-class rows."""
    y, triplets = np.asarray(y), []
    for label in np.unique(y):
        same, other = np.flatnonzero(y == label), np.flatnonzero(y != label)
        t, m = min(n_targets, len(same) - 1), min(n_impostors, len(other))
        if t < 1:
            continue
        near = NearestNeighbors(n_neighbors=t).fit(X[same]).kneighbors(return_distance=False)
        far = NearestNeighbors(n_neighbors=m).fit(X[other])
        far = far.kneighbors(X[same], return_distance=False)
        i = np.repeat(same, t * m)
        triplets.append(
            np.stack(
                [i, np.repeat(same[near], m, axis=1).ravel(), np.tile(other[far], t).ravel()], 1
            )
        )
    return np.vstack(triplets)


def triplet_margins(metric, X, triplets, metric_type):
    """s(i,j) - s(i,k), or d(i,k) - d(i,j)."""
    i, j, k = np.asarray(triplets).T
    if metric_type == "similarity":
        S = metric.bilinear(X, X)
        return S[i, j] - S[i, k]
    S = metric.symmetrized().bilinear(X, X)
    q = np.diag(S)
    return (q[k] - 2 * S[i, k]) - (q[j] - 2 * S[i, j])


def triplet_hinge(metric, X, triplets, metric_type, margin=1.0):
    return np.maximum(margin - triplet_margins(metric, X, triplets, metric_type), 0.0)


def triplet_loss(metric, X, triplets, metric_type, margin=1.0):
    losses = triplet_hinge(metric, X, triplets, metric_type, margin)
    return float(losses.mean()) if len(losses) else 0.0


def triplet_gradient(metric, X, triplets, metric_type, margin=1.0):
    """Mean hinge and its gradient X'KX as a FactoredMetric with a sparse core K."""
    losses = triplet_hinge(metric, X, triplets, metric_type, margin)
    n, m = X.shape[0], max(len(losses), 1)
    i, j, k = np.asarray(triplets)[losses > 0].T
    one = np.full(len(i), 1.0 / m)
    if metric_type == "similarity":
        rows, cols, values = [i, i], [k, j], [one, -one]
    else:
        rows, cols = [i, j, j, i, k, k], [j, i, j, k, i, k]
        values = [-one, -one, one, one, one, -one]
    K = sparse.coo_matrix(
        (np.concatenate(values), (np.concatenate(rows), np.concatenate(cols))), shape=(n, n)
    ).tocsr()
    return float(losses.sum() / m), FactoredMetric(0.0, X, K)
