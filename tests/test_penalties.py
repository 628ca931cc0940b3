"""The off-diagonal l1 penalty and the PSD projection against independent oracles."""

from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from lml.penalties import OffDiagonalL1, nearest_psd


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_value_counts_only_off_diagonal_entries():
    assert OffDiagonalL1(0.5).value([[9.0, -2.0, 0.0], [1.0, -7.0, 4.0], [0.5, 0.0, 3.0]]) == 3.75


def test_value_of_a_code_without_atoms_is_zero():
    value = OffDiagonalL1(2.0).value(np.zeros((0, 0)))
    assert type(value) is float
    assert value == 0.0


@pytest.mark.parametrize(("strength", "step"), [(0.7, 1.0), (0.7, 0.3), (0.0, 2.0), (2.5, 0.4)])
def test_prox_minimises_entry_by_entry(rng, strength, step):
    V = rng.normal(size=(3, 3))
    W = OffDiagonalL1(strength).prox(V, step)
    for (i, j), v in np.ndenumerate(V):
        weight = 0.0 if i == j else strength
        best = minimize_scalar(
            lambda w, v=v, weight=weight: 0.5 * (w - v) ** 2 + step * weight * abs(w),
            bounds=(-5, 5), method="bounded", options={"xatol": 1e-10},
        )  # fmt: skip
        assert abs(W[i, j] - best.x) < 1e-6


def test_prox_keeps_its_input_and_symmetry(rng):
    V = rng.normal(size=(4, 4))
    V = V + V.T
    kept = V.copy()
    W = OffDiagonalL1(0.6).prox(V)
    assert np.array_equal(V, kept)
    assert np.array_equal(W, W.T)
    assert np.array_equal(W.diagonal(), V.diagonal())
    assert not np.signbit(W[W == 0]).any()


def test_certificate_is_zero_at_the_minimiser_only(rng):
    penalty, B = OffDiagonalL1(0.4), rng.normal(size=(5, 5))
    W = penalty.prox(B)
    assert penalty.kkt_residual(W, W - B) < 1e-15
    moved = W + 0.01 * rng.normal(size=W.shape)
    assert penalty.kkt_residual(moved, moved - B) > 1e-3


def test_certificate_is_the_distance_to_the_box_of_subgradients(rng):
    strength, W, G = 0.8, np.diag([1.0, -2.0, 0.0]), rng.normal(size=(3, 3))
    W[0, 1] = 3.0
    best = np.inf
    for u in np.linspace(-strength, strength, 4001):
        best = min(best, abs(-G[1, 0] - u))
    box = [max(abs(G[i, j]) - strength, 0) for i, j in [(1, 0), (0, 2), (2, 0), (1, 2), (2, 1)]]
    assert abs(box[0] - best) < 1e-3
    whole = np.sqrt(sum(b**2 for b in box) + (G[0, 1] + strength) ** 2 + (G.diagonal() ** 2).sum())
    assert OffDiagonalL1(strength).kkt_residual(W, G) == pytest.approx(whole)


def test_strength_max_is_the_edge_of_diagonal_codes(rng):
    B = rng.normal(size=(4, 4))
    B = B + B.T
    edge = OffDiagonalL1.strength_max(B)
    off = ~np.eye(4, dtype=bool)
    assert not OffDiagonalL1(edge).prox(B)[off].any()
    assert OffDiagonalL1(0.999 * edge).prox(B)[off].any()


@pytest.mark.parametrize("size", [1e-6, 1e6])
def test_strength_max_has_the_units_of_the_target(rng, size):
    B, L = rng.normal(size=(4, 4)), rng.normal(size=(4, 5))
    for gram in (None, L @ L.T):
        edge = OffDiagonalL1.strength_max(B, gram)
        assert OffDiagonalL1.strength_max(size * B, gram) == pytest.approx(size * edge)
    assert OffDiagonalL1.strength_max(np.diag([2.0, -1.0])) == 0


def test_strength_max_for_a_general_gram_matrix(rng):
    L, N = rng.normal(size=(3, 5)), rng.normal(size=(5, 5))
    A, B = L @ L.T, L @ (N + N.T) @ L.T
    edge = OffDiagonalL1.strength_max(B, A)
    # the diagonal minimizer from least squares over the three outer products
    basis = np.stack([np.outer(row, row).ravel() for row in L], axis=1)
    W = np.diag(np.linalg.lstsq(basis, (N + N.T).ravel(), rcond=None)[0])
    assert OffDiagonalL1(edge).kkt_residual(W, A @ W @ A - B) < 1e-9
    assert OffDiagonalL1(0.99 * edge).kkt_residual(W, A @ W @ A - B) > 1e-6


def test_threshold_does_not_preserve_definiteness():
    v = np.array([10.0, 1.0, 1.0])
    W = OffDiagonalL1(1.0).prox(np.outer(v, v))
    assert np.linalg.det(W) == pytest.approx(-62.0)


def test_nearest_psd_drops_the_skew_part(rng):
    W = rng.normal(size=(4, 4))
    values, vectors = np.linalg.eigh((W + W.T) / 2)
    expected = sum(v * np.outer(e, e) for v, e in zip(values, vectors.T) if v > 0)
    np.testing.assert_allclose(nearest_psd(W), expected, atol=1e-12)
    np.testing.assert_allclose(nearest_psd(W.T), expected, atol=1e-12)


def test_nearest_psd_beats_random_competitors(rng):
    W = rng.normal(size=(4, 4))
    P = nearest_psd(W)
    S = (W + W.T) / 2
    assert np.linalg.eigvalsh(P)[0] > -1e-12
    for _ in range(200):
        R = rng.normal(size=(4, 4))
        # the variational inequality of a projection onto a convex set
        assert np.sum((S - P) * (R @ R.T - P)) < 1e-10


@pytest.mark.parametrize("strength", [-1.0, np.nan, np.inf])
def test_bad_strength(strength):
    with pytest.raises(ValueError, match=f"strength={strength}"):
        OffDiagonalL1(strength)


def test_strength_must_be_a_number():
    with pytest.raises(TypeError, match="'strong'"):
        OffDiagonalL1("strong")


def test_bad_step():
    with pytest.raises(ValueError, match=r"step=-0\.1"):
        OffDiagonalL1(1.0).prox(np.eye(2), -0.1)


def test_value_does_not_cancel_against_a_large_diagonal():
    W = np.diag([1e20, -3e18, 7e19]) + 1e-3 * (1 - np.eye(3))
    assert OffDiagonalL1(2.0).value(W) == pytest.approx(2.0 * 6e-3, rel=1e-12)


@pytest.mark.parametrize("step", [np.inf, np.nan, -1e-9, "1", None])
def test_a_step_is_a_finite_number(step):
    with pytest.raises(ValueError, match="step="):
        OffDiagonalL1(0.0).prox(np.eye(2), step)


def test_a_strength_of_any_real_type():
    W, G = np.arange(9.0).reshape(3, 3) - 4, np.eye(3) + 0.5
    for strength in (Fraction(1, 4), np.float32(0.25)):
        assert OffDiagonalL1(strength).kkt_residual(W, G) == OffDiagonalL1(0.25).kkt_residual(W, G)
        np.testing.assert_array_equal(OffDiagonalL1(strength).prox(W), OffDiagonalL1(0.25).prox(W))
