"""What a dictionary leaves of a metric, against least squares."""

import numpy as np
import pytest
from scipy import linalg, sparse

from lml.metrics import FactoredMetric, subspace_residual

D = 7


@pytest.mark.parametrize("alpha", [-0.7, 0.0, 0.9])
@pytest.mark.parametrize("d", [1, 3, 7, 9])
def test_subspace_residual_is_the_least_squares_residual(alpha, d):
    rng = np.random.default_rng(d)
    F, C, L = rng.normal(size=(3, D)), rng.normal(size=(3, 3)), rng.normal(size=(d, D))
    L[-1] = L[0]
    M = alpha * np.eye(D) + F.T @ C @ F
    A = np.kron(L.T, L.T)
    fit = np.linalg.lstsq(A, M.ravel(), rcond=None)[0]
    best = np.linalg.norm(A @ fit - M.ravel())
    for factor in (F, sparse.csr_matrix(F)):
        metric = FactoredMetric(alpha, factor, C)
        assert np.isclose(subspace_residual(metric, L), best, atol=1e-10)
        assert np.isclose(subspace_residual(metric, sparse.csr_array(L)), best, atol=1e-10)


def test_a_dictionary_of_nothing_leaves_everything():
    rng = np.random.default_rng(3)
    metric = FactoredMetric(0.4, rng.normal(size=(3, D)), rng.normal(size=(3, 3)))
    assert subspace_residual(metric, np.zeros((2, D))) == pytest.approx(metric.norm())


def test_rows_are_told_from_rounding_by_the_larger_dimension():
    metric = FactoredMetric(0.0, np.eye(3, 1000)[1:2], [1.0])
    for new, left in ((1e-13, 1.0), (1e-11, 0.0)):  # 1000 * eps is 2.2e-13
        L = np.eye(2, 1000)
        L[1, :2] = 1.0, new
        assert subspace_residual(metric, L) == pytest.approx(left, abs=1e-4)


def test_subspace_residual_resolves_tiny_parts():
    q = linalg.qr(np.random.default_rng(0).normal(size=(D, D)))[0]
    metric = FactoredMetric(0.0, q[:3], [1.0, 1.0, 1e-12])
    assert np.isclose(subspace_residual(metric, q[:2]), 1e-12, rtol=1e-3)
    assert subspace_residual(metric, q[:3]) < 1e-14
