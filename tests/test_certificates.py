"""Answers of the solvers are certified for all inputs, tried on many: hypothesis draws them.

A certificate says how far an answer is from the best one without knowing it: the distance to the
subdifferential, the gap of a dual, or another algorithm of scipy or scikit-learn.
"""

from __future__ import annotations

import numpy as np
import pytest
from draws import few, seeds, tables
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import linalg, optimize
from sklearn.linear_model import Lasso

from lml.baselines.mtscml import group_shrink
from lml.baselines.offdiagonal import TripletMap, hinge_code
from lml.coding import code_metric, fista
from lml.dictionary import keep_codes, polar_factors
from lml.initialization import orthonormal_rows
from lml.metrics import FactoredMetric
from lml.penalties import OffDiagonalL1, nearest_psd
from lml.triplets import nearest_triplets

# --- certificates -------------------------------------------------------------------------


def off_diagonal_distance(W, gradient, strength):
    """Distance of -gradient to the subdifferential of strength * |W_ij|, i != j, by its cases."""
    total = 0.0
    for (i, j), w in np.ndenumerate(W):
        g = gradient[i, j]
        if i == j:
            away = g
        elif w != 0:
            away = g + strength * np.sign(w)
        else:
            away = max(abs(g) - strength, 0.0)
        total += away * away
    return np.sqrt(total)


@given(seeds, st.integers(1, 7), st.floats(0, 3), st.floats(1e-3, 10))
def test_the_proximal_point_is_certified(seed, d, strength, step):
    V, penalty = np.random.default_rng(seed).normal(size=(d, d)) * 2, OffDiagonalL1(strength)
    P = penalty.prox(V, step)
    assert penalty.kkt_residual(P, (P - V) / step) <= 1e-9 * max(1.0, np.abs(V).max() / step)
    assert off_diagonal_distance(P, (P - V) / step, strength) <= 1e-9 * max(1.0, 10 / step)
    for other in np.random.default_rng(seed + 1).normal(size=(20, d, d)):
        objective = [
            penalty.value(W) + np.sum((W - V) ** 2) / (2 * step) for W in (P, P + other, other)
        ]
        assert objective[0] <= min(objective[1:]) + 1e-9
    assert (penalty.prox(V + V.T, step) == penalty.prox(V + V.T, step).T).all()


@given(seeds, st.integers(1, 4), st.integers(1, 5), st.floats(0, 2))
def test_the_group_step_is_the_minimizer(seed, T, K, strength):
    """Against a numerical minimizer over non-negative columns."""
    V = np.random.default_rng(seed).normal(size=(T, K)) * 2
    U = group_shrink(V, strength)
    assert (U >= 0).all()
    for v, u in zip(V.T, U.T):

        def value(x, v=v):
            return 0.5 * np.sum((x - v) ** 2) + strength * np.sqrt(np.sum(x * x))

        starts = (np.maximum(v, 1e-3), np.full(T, 1e-3))
        found = [optimize.minimize(value, s, bounds=[(0, None)] * T) for s in starts]
        assert value(u) <= min(result.fun for result in found) + 1e-8


@given(seeds, st.integers(1, 7))
def test_the_nearest_psd_matrix_is_a_projection(seed, d):
    """Moreau: the part that is taken away is negative and orthogonal to what stays."""
    V = np.random.default_rng(seed).normal(size=(d, d))
    P, S = nearest_psd(V), (V + V.T) / 2
    size = np.abs(S).max() + 1e-300
    assert linalg.eigvalsh(P)[0] >= -1e-12 * size
    assert linalg.eigvalsh(S - P)[-1] <= 1e-12 * size
    assert abs(np.sum(P * (S - P))) <= 1e-11 * size**2


@given(seeds, st.integers(1, 5), st.integers(1, 6), st.floats(0, 1), st.booleans())
def test_codes_are_certified_for_any_dictionary_and_asymmetric_targets(seed, d, D, share, thin):
    rng = np.random.default_rng(seed)
    L, M = rng.normal(size=(d, D)), rng.normal(size=(D, D))  # more rows than columns as well
    if thin:
        L[-1] = L[0]  # dependent rows
    sizes = linalg.svdvals(L)
    assume(sizes[0] < 30 * sizes[sizes > 1e-10 * sizes[0]][-1])  # or 20,000 steps are too few
    top = OffDiagonalL1.strength_max(L @ (M + M.T) @ L.T / 2, L @ L.T)
    strength = share * top
    result = code_metric(L, FactoredMetric.from_dense(M), strength, tol=1e-6, max_iter=20_000)
    W, S = result.code, (M + M.T) / 2
    assert (W == W.T).all()
    gradient = L @ (L.T @ W @ L - S) @ L.T
    scale = linalg.norm(L @ S @ L.T) + 1e-12
    assert off_diagonal_distance(W, gradient, strength) <= 1.1e-6 * scale
    value = 0.5 * np.sum((L.T @ W @ L - S) ** 2) + OffDiagonalL1(strength).value(W)
    assert result.objective == pytest.approx(value, rel=1e-9, abs=1e-9)
    for other in rng.normal(size=(10, d, d)):
        V = W + 0.1 * (other + other.T)
        worse = 0.5 * np.sum((L.T @ V @ L - S) ** 2) + OffDiagonalL1(strength).value(V)
        assert value <= worse + 1e-6 * scale * linalg.norm(V - W)


class Lasso1:
    """strength * ||x||_1 for arrays of any shape."""

    def __init__(self, strength):
        self.strength = strength

    def value(self, x):
        return self.strength * np.abs(x).sum()

    def prox(self, x, step=1.0):
        return np.sign(x) * np.maximum(np.abs(x) - step * self.strength, 0.0)

    def kkt_residual(self, x, gradient):
        free = np.maximum(np.abs(gradient) - self.strength, 0.0)
        away = np.where(x == 0, free, gradient + self.strength * np.sign(x))
        return float(np.linalg.norm(away))


@given(seeds, st.integers(1, 6), st.integers(1, 4), st.floats(0.01, 1), st.booleans())
def test_fista_solves_lassos_of_any_shape(seed, rows, columns, share, restart):
    """min 1/2 ||A X B - C||^2 + strength ||X||_1 over X of shape (rows, columns)."""
    rng = np.random.default_rng(seed)
    A, B = rng.normal(size=(rows + 2, rows)), rng.normal(size=(columns, columns + 3))
    C = rng.normal(size=(rows + 2, columns + 3))
    strength = share * np.abs(A.T @ C @ B.T).max()

    def smooth(X):
        R = A @ X @ B - C
        return 0.5 * np.sum(R * R), A.T @ R @ B.T

    start = rng.normal(size=(rows, columns))
    result = fista(smooth, Lasso1(strength), start, tol=1e-7, max_iter=20_000, restart=restart)
    assert result.converged
    assert result.kkt_residual <= 1e-7 * np.linalg.norm(A.T @ C @ B.T)
    design, n = np.kron(A, B.T), C.size
    lasso = Lasso(strength / n, fit_intercept=False, tol=1e-12, max_iter=100_000)
    oracle = lasso.fit(design, C.ravel()).coef_
    best = 0.5 * np.sum((design @ oracle - C.ravel()) ** 2) + strength * np.abs(oracle).sum()
    assert result.objective <= best + 1e-8 * max(1.0, best)


@few
@given(tables(least=10), st.sampled_from(["similarity", "distance"]), st.floats(0.05, 1))
def test_the_gap_of_a_hinge_code_bounds_every_other_code(table, kind, share):
    X, y = table
    plane = TripletMap(X, nearest_triplets(X, y, 2, 2), kind)
    ridge = 0.1 * plane.size()
    strength = share * plane.size() ** 0.5
    found = hinge_code(plane, strength, ridge, psd=kind == "distance")
    assert 0 <= found.gap <= 1e-3
    d = X.shape[1]
    for other in np.random.default_rng(0).normal(size=(30, d, d)):
        W = other @ other.T / d * 0.3 if kind == "distance" else (other + other.T) / 4
        hinge = np.maximum(1 - plane.margins(W), 0).mean()
        value = hinge + OffDiagonalL1(strength).value(W) + ridge / 2 * np.sum(W * W)
        assert value >= found.bound - 1e-12


@given(seeds, st.integers(1, 5), st.integers(0, 3))
def test_moves_of_a_dictionary_are_what_they_say(seed, d, extra):
    rng = np.random.default_rng(seed)
    D = d + extra
    L, W = rng.normal(size=(d, D)), rng.normal(size=(d, d))
    change, rows = polar_factors(L)
    np.testing.assert_allclose(change @ rows, L, atol=1e-9)
    np.testing.assert_allclose(rows @ rows.T, np.eye(d), atol=1e-9)
    Q = orthonormal_rows(L)
    np.testing.assert_allclose(Q @ Q.T, np.eye(d), atol=1e-9)
    code = keep_codes(W, rows @ Q.T)  # equal row spaces: the metric stays
    np.testing.assert_allclose(Q.T @ code @ Q, rows.T @ W @ rows, atol=1e-9)
