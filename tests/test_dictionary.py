"""The dictionary module: gradient, step and closed form, on odd shapes."""

import doctest

import numpy as np
import pytest
from scipy import sparse

import lml.dictionary
from lml.dictionary import (
    descend,
    dictionary_gradient,
    hinge_objective,
    keep_codes,
    line_search,
    polar_factors,
    stretch_step,
)
from lml.metrics import FactoredMetric


def problem(d=3, n_features=7, n=9, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, n_features))
    triplets = rng.permutation(
        [(i, j, k) for i in range(9) for j in range(9) for k in range(9) if i % 3 == j % 3 != k % 3]
    )[:40]
    L = np.linalg.qr(rng.standard_normal((n_features, d)))[0].T
    return L, rng.standard_normal((d, d)), X, triplets, rng


def naive_loss(M, X, triplets, kind):
    total = 0.0
    for i, j, k in triplets:
        if kind == "similarity":
            margin = X[i] @ M @ X[j] - X[i] @ M @ X[k]
        else:
            near, far = X[i] - X[j], X[i] - X[k]
            margin = far @ M @ far - near @ M @ near
        total += max(0.0, 1.0 - margin)
    return total / len(triplets)


@pytest.mark.parametrize("alpha", [0.0, 1.7])
@pytest.mark.parametrize("core", ["full", "diagonal", "sparse"])
def test_gradient_against_finite_differences(alpha, core):
    L, W, X, _, rng = problem()
    cores = {
        "full": rng.standard_normal((9, 9)),
        "diagonal": rng.standard_normal(9),
        "sparse": sparse.random_array((9, 9), density=0.3, rng=rng, format="csr"),
    }
    G = FactoredMetric(alpha, X, cores[core])
    dense, found = G.to_dense(), dictionary_gradient(L, W, G)
    E = rng.standard_normal(L.shape)

    def value(L):
        return np.sum(dense * (L.T @ W @ L))

    slope = (value(L + 1e-5 * E) - value(L - 1e-5 * E)) / 2e-5
    np.testing.assert_allclose(np.sum(found * E), slope, rtol=1e-7)


@pytest.mark.parametrize("kind", ["similarity", "distance"])
def test_objective_against_the_definition_and_its_gradient(kind):
    L, W, X, triplets, rng = problem()

    def naive(L):
        return naive_loss(L.T @ W @ L, X, triplets, kind) + 0.3 * np.sum(L * L)

    assert naive_loss(L.T @ W @ L, X, triplets, kind) > 0.1
    for samples in (X, sparse.csr_array(X)):
        value, slope = hinge_objective(W, samples, triplets, kind, 0.3)(L)
        np.testing.assert_allclose(value, naive(L), rtol=1e-10)
        for E in rng.standard_normal((5, *L.shape)):
            numeric = (naive(L + 1e-6 * E) - naive(L - 1e-6 * E)) / 2e-6
            np.testing.assert_allclose(np.sum(slope() * E), numeric, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("kind", ["similarity", "distance"])
def test_step_lowers_the_objective_and_returns_orthonormal_rows(kind):
    L, W, X, triplets, _ = problem()
    for rows in (L, 1.5 * L):
        step = descend(hinge_objective(W, X, triplets, kind, 0.01), rows, 0.1)
        moved = step.change @ step.dictionary
        np.testing.assert_allclose(step.dictionary @ step.dictionary.T, np.eye(3), atol=1e-12)
        naive = naive_loss(moved.T @ W @ moved, X, triplets, kind) + 0.01 * np.sum(moved**2)
        np.testing.assert_allclose(step.objective_after, naive, rtol=1e-9)
        assert step.objective_after < step.objective_before
        relative = np.linalg.norm(moved - rows) / np.linalg.norm(rows)
        np.testing.assert_allclose(relative, 0.1 / 2**step.n_backtracks, rtol=1e-6)
        metric = step.dictionary.T @ keep_codes(W, step.change) @ step.dictionary
        np.testing.assert_allclose(metric, moved.T @ W @ moved, atol=1e-10)


def test_long_steps_are_halved():
    L, W, X, triplets, _ = problem()
    step = descend(hinge_objective(W, X, triplets, "similarity"), L, 1e6, 60)
    assert step.n_backtracks > 0
    assert step.objective_after < step.objective_before


@pytest.mark.parametrize("curvature", [0.01, 1.0, 100.0])
def test_a_step_must_keep_its_share_of_what_the_gradient_promises(curvature):
    """On a x^2 / 2 at x = 1 a step to 1 - m keeps the share 1 - m / 2, whatever a is."""

    def objective(L):
        return 0.5 * curvature * np.sum(L * L), lambda: curvature * L

    for share, n_halved in ((5e-5, 1), (2e-4, 0)):  # 1e-4 is asked for
        move = 2 * (1 - share)
        moved, step, before, after, n_backtracks = line_search(
            objective, np.array([[1.0]]), max_move=move, max_backtracks=5
        )
        assert n_backtracks == n_halved
        np.testing.assert_allclose(step * curvature, move / 2**n_halved)
        np.testing.assert_allclose(moved, 1 - move / 2**n_halved)
        np.testing.assert_allclose([before, after], [0.5 * curvature, objective(moved)[0]])


def test_nothing_to_lower_leaves_the_dictionary():
    X = np.array([[1e3, 0.0], [1e3, 1.0], [-1e3, 0.0], [-1e3, 1.0]])
    L = np.eye(2)
    for triplets in ([[0, 1, 2], [2, 3, 0]], np.zeros((0, 3), dtype=int)):
        step = descend(hinge_objective(np.eye(2), X, np.array(triplets), "similarity"), L, 0.1)
        assert step.step_size == step.n_backtracks == 0
        np.testing.assert_allclose(step.dictionary, L, atol=1e-14)
        np.testing.assert_allclose(step.change, np.eye(2), atol=1e-14)


def test_no_descent_at_a_kink_leaves_the_dictionary():
    L, W, X, triplets, _ = problem()
    stay = descend(hinge_objective(W, X, triplets, "similarity"), L, 1e9, 0)
    assert stay.step_size == 0
    assert stay.objective_after == stay.objective_before
    np.testing.assert_allclose(stay.dictionary, L, atol=1e-12)


def test_a_step_is_halved_twenty_times_and_then_not_made():
    """Every move raises the objective; the last trial is a millionth of the first."""
    moves = []

    def objective(L):
        moves.append(np.linalg.norm(L - np.eye(2)))
        return moves[-1], lambda: np.eye(2)

    step = descend(objective, np.eye(2), 0.5)
    np.testing.assert_allclose(moves[1:], 0.5 * np.sqrt(2) / 2.0 ** np.arange(21), rtol=1e-8)
    assert step.step_size == 0.0


def test_inputs_are_left_alone():
    L, W, X, triplets, _ = problem()
    for array in (L, W, X, triplets):
        array.setflags(write=False)
    descend(hinge_objective(W, X, triplets, "distance"), L, 0.1)
    stretch_step(L, np.zeros(3), FactoredMetric(0.0, X, np.ones(9)))


def test_polar_factors_and_rank_deficient_rows():
    rng = np.random.default_rng(4)
    L = rng.standard_normal((3, 8))
    change, rows = polar_factors(L)
    np.testing.assert_allclose(change @ rows, L, atol=1e-12)
    np.testing.assert_allclose(change, change.T, atol=1e-12)
    assert np.linalg.eigvalsh(change)[0] > 0
    change, rows = polar_factors(np.vstack([L, L[:1], np.zeros((1, 8))]))
    np.testing.assert_allclose(rows @ rows.T, np.eye(5), atol=1e-12)


def leading_stretch(metrics, d):
    """The d leading eigenvectors of the sum of what the metrics stretch, by dense matrices."""
    total = 0.0
    for M in metrics:
        values, vectors = np.linalg.eigh((M + M.T) / 2)
        above = np.maximum(values - np.median(values), 0)
        total = total + (vectors * above) @ vectors.T / above.sum()
    values, vectors = np.linalg.eigh(total)
    return vectors[:, -d:].T, values[-d:][::-1]


def test_stretch_of_a_first_task_replaces_the_dictionary():
    rng = np.random.default_rng(5)
    for M in (rng.standard_normal((9, 9)), np.eye(9) + 0.1 * rng.standard_normal((9, 9))):
        start = polar_factors(rng.standard_normal((3, 9)))[1]
        found, stretch = stretch_step(start, np.zeros(3), FactoredMetric.from_dense(M))
        rows, values = leading_stretch([M], 3)
        np.testing.assert_allclose(found.T @ found, rows.T @ rows, atol=1e-9)
        np.testing.assert_allclose(stretch, values, atol=1e-9)


def test_the_order_of_tasks_does_not_matter_where_nothing_is_cut_off():
    rng = np.random.default_rng(6)
    common = rng.standard_normal((4, 12))
    metrics = [FactoredMetric(0.3, common, rng.random(4)) for _ in range(5)]
    rows, values = leading_stretch([M.to_dense() for M in metrics], 4)
    for order in (metrics, metrics[::-1]):
        L, stretch = polar_factors(rng.standard_normal((4, 12)))[1], np.zeros(4)
        for M in order:
            L, stretch = stretch_step(L, stretch, M)
        np.testing.assert_allclose(L.T @ L, rows.T @ rows, atol=1e-8)
        np.testing.assert_allclose(stretch, values, atol=1e-8)


def test_a_kept_code_stays_symmetric_to_the_last_bit_and_any_other_is_turned():
    rng = np.random.default_rng(0)
    for _ in range(20):
        W, S = rng.standard_normal((2, 6, 6))
        kept = keep_codes(W + W.T, S)
        np.testing.assert_array_equal(kept, kept.T)
        np.testing.assert_allclose(kept, S.T @ (W + W.T) @ S, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(keep_codes(W, S), S.T @ W @ S, rtol=1e-12, atol=1e-12)


def test_multiples_of_the_identity_stretch_nothing():
    start, stretch = np.eye(6)[:2], np.array([0.4, 0.1])
    for target in (
        FactoredMetric.identity(6, 2.0),
        FactoredMetric(1.0, np.eye(6)[:2], np.zeros(2)),
        FactoredMetric.from_dense(-3 * np.eye(6)),
    ):
        found, same = stretch_step(start, stretch, target)
        np.testing.assert_array_equal(found, start)
        np.testing.assert_array_equal(same, stretch)


@pytest.mark.parametrize(("n_features", "n_seeds"), [(7, 60), (60, 20)])
def test_a_metric_that_only_shrinks_stretches_nothing(n_features, n_seeds):
    for seed in range(n_seeds):  # rounding may lift a value above the median
        rng = np.random.default_rng(seed)
        start = polar_factors(rng.standard_normal((2, n_features)))[1]
        stretch = np.array([0.4, 0.1])
        lost = polar_factors(rng.standard_normal((n_features // 2 - 1, n_features)))[1]
        target = FactoredMetric.from_dense(np.eye(n_features) - lost.T @ lost)
        found, same = stretch_step(start, stretch, target)
        np.testing.assert_array_equal(found, start)
        np.testing.assert_array_equal(same, stretch)


def test_many_features_stay_sparse():
    n_features, rng = 35_846, np.random.default_rng(0)
    X = sparse.random_array((30, n_features), density=0.005, rng=rng, format="csr")
    L = polar_factors(rng.standard_normal((4, n_features)))[1]
    step = descend(hinge_objective(np.eye(4), X, rng.integers(0, 30, (50, 3)), "distance"), L, 0.1)
    assert step.dictionary.shape == L.shape
    found, _ = stretch_step(L, np.zeros(4), FactoredMetric(0.0, X, rng.random(30)))
    np.testing.assert_allclose(found @ found.T, np.eye(4), atol=1e-10)


def test_examples_in_docstrings():
    assert doctest.testmod(lml.dictionary).failed == 0


@pytest.mark.parametrize("n_missing", [0, 1])
def test_no_more_directions_are_added_than_the_atoms_leave(n_missing):
    """Rounding leaves residuals of factor rows that lie in the span of the atoms."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        D = 6
        L = polar_factors(rng.normal(size=(D - n_missing, D)))[1]
        target = FactoredMetric(0.0, rng.normal(size=(40, D)) * 1e3, rng.random(40))
        found, stretch = stretch_step(L, np.zeros(len(L)), target)
        rows, values = leading_stretch([target.to_dense()], len(L))
        assert found.shape == L.shape
        # atoms that nothing stretches are not determined
        np.testing.assert_allclose(
            (found.T * stretch) @ found, (rows[::-1].T * values) @ rows[::-1], atol=1e-6
        )
