"""Tests of the residual step of lml.lifelong: its direction is the gradient of what it lowers."""

import numpy as np
import pytest
from scipy import linalg, optimize

from lml.lifelong import residual_step
from lml.metrics import FactoredMetric


@pytest.mark.parametrize("alpha", [0.0, 1.7, -0.6])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("penalty", [0.0, 0.3])
def test_the_residual_step_goes_against_the_gradient(alpha, symmetric, penalty):
    rng = np.random.default_rng(3)
    d, D = 3, 5
    L = linalg.qr(rng.normal(size=(D, d)), mode="economic")[0].T
    cores, codes = rng.normal(size=(2, 2, 4, 4))
    codes = codes[:, :d, :d]
    if symmetric:
        cores = cores + cores.transpose(0, 2, 1)
        codes = codes + codes.transpose(0, 2, 1)
    metrics = {u: FactoredMetric(alpha, rng.normal(size=(4, D)), cores[u]) for u in range(2)}
    dense = [metrics[u].to_dense() for u in range(2)]

    def objective(entries):
        moved = entries.reshape(d, D)
        value = penalty * np.sum(moved**2)
        for W, M in zip(codes, dense, strict=True):
            value += 0.5 * np.sum((moved.T @ W @ moved - M) ** 2) / np.sum(M**2) / 2
        return value

    step = residual_step(L, dict(enumerate(codes)), metrics, penalty, max_move=1e-3)
    assert step.step_size > 0
    gradient = (L - step.change @ step.dictionary) / step.step_size
    expected = optimize.approx_fprime(L.ravel(), objective, 1e-7).reshape(d, D)
    np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-5)
    assert step.objective_before == pytest.approx(objective(L.ravel()))
