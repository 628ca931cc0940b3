"""Samples with triplets and pairs that say which feature matters."""

import numpy as np


def tuples_of_samples(n=40, D=5, seed=0):
    """Samples of which the first feature matters, and triplets and pairs that say so."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D))
    i, j, k = rng.integers(n, size=(3, 300))
    swap = abs(X[i, 0] - X[j, 0]) > abs(X[i, 0] - X[k, 0])
    triplets = np.stack([i, np.where(swap, k, j), np.where(swap, j, k)], axis=1)
    pairs = np.stack([i, j], axis=1)
    return X, triplets, pairs, np.where(X[i, 0] * X[j, 0] > 0, 1, -1)
