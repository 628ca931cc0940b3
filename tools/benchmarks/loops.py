"""Inner loops compiled by numba, to see what a compiler would win. No part of the package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def compiled(loop: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
    """A loop compiled by numba for arguments like these, which are not changed."""
    import numba

    function = numba.njit(fastmath=True)(loop)
    function(*[np.copy(a) if isinstance(a, np.ndarray) else a for a in arguments])
    return function


def oasis_steps(X: Any, triplets: Any, aggressiveness: float, W: Any) -> int:
    """Passive-aggressive steps on W (D, D) in place; returns the number of updates."""
    D, updates = X.shape[1], 0
    q = np.empty(D)
    for t in range(len(triplets)):
        i, j, k = triplets[t]
        anchor = X[i]
        margin, left, right = 0.0, 0.0, 0.0
        for b in range(D):
            q[b] = X[j, b] - X[k, b]
            left += anchor[b] * anchor[b]
            right += q[b] * q[b]
        for a in range(D):
            row = 0.0
            for b in range(D):
                row += W[a, b] * q[b]
            margin += anchor[a] * row
        if margin < 1.0 and left * right > 0.0:
            step = min(aggressiveness, (1.0 - margin) / (left * right))
            updates += 1
            for a in range(D):
                weight = step * anchor[a]
                for b in range(D):
                    W[a, b] += weight * q[b]
    return updates


def oasis_scores(gram: Any, scores: Any, triplets: Any, aggressiveness: float, K: Any) -> int:
    """The same steps on the scores of n rows (n, n) and the coefficients K (n, n), in place."""
    n, updates = len(gram), 0
    for t in range(len(triplets)):
        i, j, k = triplets[t]
        loss = 1.0 - (scores[i, j] - scores[i, k])
        if loss > 0.0:
            spread = gram[j, j] - 2.0 * gram[j, k] + gram[k, k]
            size = gram[i, i] * spread
            if size > 0.0:
                step = min(aggressiveness, loss / size)
                updates += 1
                K[i, j] += step
                K[i, k] -= step
                for a in range(n):
                    weight = step * gram[i, a]
                    for b in range(n):
                        scores[a, b] += weight * (gram[j, b] - gram[k, b])
    return updates


def scml_steps(
    squares: Any, near: Any, far: Any, sums: Any, first: int, beta: float, gamma: float
) -> int:
    """Dual averaging on triplets given by two pairs each, in place; returns the active steps."""
    K, active = len(sums), 0
    for s in range(len(near)):
        done = first + s
        a, b = squares[near[s]], squares[far[s]]
        total = 0.0
        if done > 0:
            for c in range(K):
                total += max(sums[c] - beta * done, 0.0) * (a[c] - b[c])
            total /= gamma * np.sqrt(done)
        if 1.0 + total > 0.0:
            active += 1
            for c in range(K):
                sums[c] -= a[c] - b[c]
    return active
