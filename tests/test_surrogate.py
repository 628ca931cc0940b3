"""The surrogate module against dense arithmetic and general-purpose minimisers."""

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize

from lml.metrics import FactoredMetric
from lml.surrogate import (
    dropped_constant,
    linearized_objective,
    surrogate_objective,
    surrogate_penalty,
    target_metric,
)
from lml.triplets import sample_triplets, triplet_gradient, triplet_loss


@pytest.fixture
def problem():
    rng = np.random.default_rng(4)
    M, G = rng.normal(size=(2, 5, 5))
    L, W = rng.normal(size=(3, 5)), rng.normal(size=(3, 3))
    return M, G, L, W


def linear(Z, M, loss, G, eta):
    return loss + np.trace((Z - M).T @ G) + np.linalg.norm(Z - M, "fro") ** 2 / (2 * eta)


@pytest.mark.parametrize("eta", [1e-3, 0.2, 1, 30.0, np.float32(0.5)])
def test_completing_the_square(problem, eta):
    M, G, L, W = problem
    metric, gradient = FactoredMetric.from_dense(M), FactoredMetric.from_dense(G)
    Z = FactoredMetric(0.0, L, W)
    target = target_metric(metric, gradient, eta)
    np.testing.assert_allclose(target.to_dense(), M - float(eta) * G, atol=1e-12)
    expected = linear(L.T @ W @ L, M, 0.3, G, float(eta))
    assert linearized_objective(Z, metric, 0.3, gradient, eta) == pytest.approx(expected)
    constant = dropped_constant(0.3, gradient, eta)
    assert constant == pytest.approx(0.3 - float(eta) * np.sum(G * G) / 2)
    assert surrogate_objective(Z, target) / float(eta) + constant == pytest.approx(expected)
    assert linearized_objective(target, metric, 0.3, gradient, eta) == pytest.approx(constant)


def test_target_is_the_minimiser(problem):
    M, G, _, _ = problem
    found = minimize(lambda z: linear(z.reshape(5, 5), M, 0.3, G, 0.4), np.zeros(25))
    target = target_metric(FactoredMetric.from_dense(M), FactoredMetric.from_dense(G), 0.4)
    np.testing.assert_allclose(found.x.reshape(5, 5), target.to_dense(), atol=1e-5)


@pytest.mark.parametrize("eta", [0.1, 0.7, 3.0])
def test_penalties_keep_the_minimiser(eta):
    """One code entry w and one dictionary scale l, both by grid search over the linear model."""
    rng = np.random.default_rng(0)
    m, g, penalty = 0.4, -0.9, 0.25
    grid = np.linspace(-1, 5, 600_001)
    brute = grid[np.argmin((grid - m) * g + (grid - m) ** 2 / (2 * eta) + penalty * abs(grid))]
    half = (grid - (m - eta * g)) ** 2 / 2 + surrogate_penalty(penalty, eta) * abs(grid)
    assert grid[np.argmin(half)] == pytest.approx(brute, abs=3e-5)
    square, gamma = grid[grid >= 0] ** 2, rng.uniform(0.1, 0.3)
    brute = np.argmin((square - m) * g + (square - m) ** 2 / (2 * eta) + gamma * square)
    half = (square - (m - eta * g)) ** 2 / 2 + surrogate_penalty(gamma, eta) * square
    assert abs(int(np.argmin(half)) - int(brute)) <= 3


@pytest.mark.parametrize("metric_type", ["similarity", "distance"])
@pytest.mark.parametrize("wrap", [np.asarray, sparse.csr_array])
def test_target_of_a_task_descends_and_stays_factored(metric_type, wrap):
    rng = np.random.default_rng(1)
    y = np.arange(20) % 3
    X = wrap(rng.normal(size=(20, 4)) + y[:, None])
    triplets = sample_triplets(y, 200, random_state=0)
    M = FactoredMetric(1.0, X, sparse.csr_array((20, 20)))
    loss, G = triplet_gradient(M, X, triplets, metric_type)
    target = target_metric(M, G, 1e-3)
    after = triplet_loss(target, X, triplets, metric_type)
    assert after < loss
    promise = 1e-3 * G.norm() ** 2
    assert loss - promise - 1e-12 <= after <= loss - promise / 2
    dense = X.toarray() if sparse.issparse(X) else X
    expected = np.eye(4) - 1e-3 * dense.T @ G.core.toarray() @ dense
    np.testing.assert_allclose(target.to_dense(), expected, atol=1e-12)


def test_a_second_step_shares_the_factor():
    X = np.random.default_rng(1).normal(size=(9, 4))
    M = FactoredMetric(1.0, X, sparse.csr_array((9, 9)))
    triplets = sample_triplets(np.arange(9) % 2, 50, random_state=0)
    for _ in range(3):
        _, G = triplet_gradient(M, X, triplets, "similarity")
        M = target_metric(M, G, 0.01)
        assert M.factor.shape == (9, 4)
        assert M.alpha == 1.0


def test_zero_gradient_leaves_the_metric():
    M = FactoredMetric.from_dense(np.diag([1.0, 2.0]))
    zero = FactoredMetric(0.0, np.zeros((1, 2)), np.zeros((1, 1)))
    np.testing.assert_array_equal(target_metric(M, zero, 5.0).to_dense(), M.to_dense())
    assert dropped_constant(0.25, zero, 5.0) == 0.25


TWO, THREE = FactoredMetric.identity(2), FactoredMetric.identity(3)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: target_metric(TWO, THREE, 0.1), "2 and 3 features"),
        (lambda: surrogate_objective(TWO, THREE), "2 and 3 features"),
        (lambda: linearized_objective(THREE, TWO, 1.0, TWO, 0.1), "3 and 2 features"),
        (lambda: target_metric(TWO, TWO, 0.0), "learning_rate=0.0"),
        (lambda: target_metric(TWO, TWO, -1), "learning_rate=-1"),
        (lambda: target_metric(TWO, TWO, np.nan), "learning_rate=nan"),
        (lambda: dropped_constant(1.0, TWO, np.inf), "learning_rate=inf"),
        (lambda: surrogate_penalty(-0.1, 1.0), "penalty=-0.1"),
        (lambda: surrogate_penalty([0.1], 1.0), "penalty=\\[0.1\\]"),
        (lambda: surrogate_penalty(0.1, 0), "learning_rate=0"),
    ],
)
def test_errors_say_what_and_what_to_do(call, said):
    with pytest.raises(ValueError, match=said):
        call()
