"""The dictionary module: gradient, step, memories and the two policies, on odd shapes."""

import doctest

import numpy as np
import pytest
from scipy import sparse

import lml.dictionary
from lml.dictionary import (
    GradientMemory,
    RunningGradient,
    dictionary_gradient,
    dictionary_objective,
    dictionary_step,
    keep_codes,
    keep_metrics,
    line_search,
    polar_factors,
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
@pytest.mark.parametrize("remember", [False, True])
def test_objective_against_the_definition_and_its_gradient(kind, remember):
    L, W, X, triplets, rng = problem()
    old = rng.standard_normal((7, 7))
    V = rng.standard_normal((3, 3))
    V = V + V.T
    memory = GradientMemory(7)
    memory.store("old", FactoredMetric.from_dense(old))
    extra = {"memory": memory, "codes": {"old": V}} if remember else {}

    def naive(L):
        value = naive_loss(L.T @ W @ L, X, triplets, kind)
        if remember:
            value = (value + np.sum(old * (L.T @ V @ L))) / 2
        return value + 0.3 * np.sum(L * L)

    assert naive_loss(L.T @ W @ L, X, triplets, kind) > 0.1
    value, slope = dictionary_objective(L, W, X, triplets, kind, dictionary_penalty=0.3, **extra)
    np.testing.assert_allclose(value, naive(L), rtol=1e-10)
    for E in rng.standard_normal((5, *L.shape)):
        numeric = (naive(L + 1e-6 * E) - naive(L - 1e-6 * E)) / 2e-6
        np.testing.assert_allclose(np.sum(slope * E), numeric, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("kind", ["similarity", "distance"])
def test_step_lowers_the_objective_and_returns_orthonormal_rows(kind):
    L, W, X, triplets, _ = problem()
    for rows in (L, 1.5 * L):
        step = dictionary_step(rows, W, X, triplets, kind, dictionary_penalty=0.01)
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
    step = dictionary_step(L, W, X, triplets, "similarity", max_move=1e6, max_backtracks=60)
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
        step = dictionary_step(L, np.eye(2), X, np.array(triplets), "similarity")
        assert step.step_size == 0
        np.testing.assert_allclose(step.dictionary, L, atol=1e-14)
        np.testing.assert_allclose(step.change, np.eye(2), atol=1e-14)


def test_no_descent_at_a_kink_leaves_the_dictionary():
    L, W, X, triplets, _ = problem()
    stay = dictionary_step(L, W, X, triplets, "similarity", max_move=1e9, max_backtracks=0)
    assert stay.step_size == 0
    assert stay.objective_after == stay.objective_before
    np.testing.assert_allclose(stay.dictionary, L, atol=1e-12)


def test_sparse_rows_give_the_dense_step():
    L, W, _, triplets, _ = problem()
    X = sparse.random_array((9, 7), density=0.5, rng=np.random.default_rng(1), format="csr")
    G = FactoredMetric(0.0, X, np.random.default_rng(2).standard_normal((9, 9)))
    dense = FactoredMetric(0.0, X.toarray(), G.core)
    steps = []
    for rows, gradient in ((X, G), (X.toarray(), dense)):
        memory = GradientMemory(2)
        memory.store("old", gradient)
        steps.append(
            (memory, dictionary_step(L, W, rows, triplets, "similarity", memory, {"old": W}))
        )
    (a, one), (b, two) = steps
    np.testing.assert_allclose(
        a.gradients["old"].to_dense(), b.gradients["old"].to_dense(), atol=1e-10
    )
    np.testing.assert_allclose(a.errors["old"], b.errors["old"], rtol=1e-8)
    np.testing.assert_allclose(one.dictionary, two.dictionary, atol=1e-10)


def test_many_features_need_dense_arrays_of_d_rows_only():
    n_features, rng = 35_846, np.random.default_rng(0)
    X = sparse.random_array((30, n_features), density=0.005, rng=rng, format="csr")
    L = polar_factors(rng.standard_normal((4, n_features)))[1]
    triplets = rng.integers(0, 30, (50, 3))
    memory = GradientMemory(4)
    memory.store("old", FactoredMetric(0.0, X, rng.standard_normal((30, 30))))
    step = dictionary_step(L, np.eye(4), X, triplets, "distance", memory, {"old": np.eye(4)})
    assert step.dictionary.shape == L.shape
    assert memory.nbytes < 4.1 * n_features * 8 + 100
    running = RunningGradient()
    running.store("old", memory.gradients["old"], L, np.eye(4))
    assert running.nbytes == 4 * n_features * 8


def test_low_rank_memory_is_the_best_and_replaces_on_revisit():
    rng = np.random.default_rng(3)
    G = rng.standard_normal((6, 6))
    half = (G + G.T) / 2
    memory = GradientMemory(2)
    memory.store(("a", 1), FactoredMetric.from_dense(np.eye(6)))
    memory.store(("a", 1), FactoredMetric.from_dense(G))
    assert len(memory) == 1
    values = np.sort(np.abs(np.linalg.eigvalsh(half)))[::-1]
    error = np.linalg.norm(memory.gradients[("a", 1)].to_dense() - half)
    np.testing.assert_allclose(error, np.linalg.norm(values[2:]))
    np.testing.assert_allclose(memory.errors[("a", 1)], error / np.linalg.norm(half))


def test_a_gradient_of_zero_is_remembered_as_zero():
    for X in (np.zeros((2, 5)), sparse.csr_array((2, 5))):
        memory = GradientMemory(3)
        memory.store(0, FactoredMetric(0.0, X, np.zeros((2, 2))))
        assert memory.errors[0] == 0.0
        value, slope, n = memory.terms(np.ones((2, 5)), {0: np.eye(2)})
        assert (value, n) == (0.0, 1)
        assert not slope.any()


def test_running_sum_follows_both_policies():
    L, W, _, _, rng = problem(d=3, n_features=7)
    G, H = (FactoredMetric.from_dense(rng.standard_normal((7, 7))) for _ in range(2))
    V = rng.standard_normal((3, 3))
    running = RunningGradient()
    assert running.nbytes == 0
    assert running.terms(L, {})[2] == 0
    running.store("a", G, L, W)
    running.store("b", H, L, V)
    assert len(running) == 2
    change, rows = polar_factors(L + 0.1 * rng.standard_normal(L.shape))
    running.total = dictionary_gradient(change @ rows, W, G) + dictionary_gradient(
        change @ rows, V, H
    )  # fresh at the moved rows
    running.change_basis(change.T)
    fresh = dictionary_gradient(rows, keep_codes(W, change), G)
    fresh += dictionary_gradient(rows, keep_codes(V, change), H)
    np.testing.assert_allclose(running.total, fresh, atol=1e-10)
    turn = np.linalg.qr(rng.standard_normal((3, 3)))[0] @ rows  # the same row space
    running.change_basis(turn @ rows.T)
    again = dictionary_gradient(turn, keep_metrics(keep_codes(W, change), rows, turn), G)
    again += dictionary_gradient(turn, keep_metrics(keep_codes(V, change), rows, turn), H)
    np.testing.assert_allclose(running.total, again, atol=1e-10)


def test_polar_factors_and_rank_deficient_rows():
    rng = np.random.default_rng(4)
    L = rng.standard_normal((3, 8))
    change, rows = polar_factors(L)
    np.testing.assert_allclose(change @ rows, L, atol=1e-12)
    np.testing.assert_allclose(change, change.T, atol=1e-12)
    assert np.linalg.eigvalsh(change)[0] > 0
    change, rows = polar_factors(np.vstack([L, L[:1], np.zeros((1, 8))]))
    np.testing.assert_allclose(rows @ rows.T, np.eye(5), atol=1e-12)
    with pytest.raises(ValueError, match="8 rows in 3 features"):
        polar_factors(L.T)


def test_kept_metrics_are_the_nearest_and_exact_within_the_row_space():
    L, W, _, _, rng = problem(d=2, n_features=6)
    M = L.T @ W @ L
    wide = np.vstack([L, np.linalg.svd(L)[2][2:4]])  # contains the old rows
    turned = np.linalg.qr(rng.standard_normal((4, 4)))[0] @ wide
    np.testing.assert_allclose(turned.T @ keep_metrics(W, L, turned) @ turned, M, atol=1e-12)
    new = polar_factors(L + 0.3 * rng.standard_normal(L.shape))[1]
    kept = keep_metrics(W, L, new)
    best = np.linalg.norm(new.T @ kept @ new - M)
    for E in rng.standard_normal((50, 2, 2)):
        assert np.linalg.norm(new.T @ (kept + 0.01 * E) @ new - M) > best
    with pytest.raises(ValueError, match="from orthonormal"):
        keep_metrics(W, L, 2 * new)


def test_inputs_are_left_alone_and_the_step_is_deterministic():
    L, W, X, triplets, _ = problem()
    for array in (L, W, X, triplets):
        array.setflags(write=False)
    one = dictionary_step(L, W, X, triplets, "distance")
    two = dictionary_step(L, W, X, triplets, "distance")
    assert np.array_equal(one.dictionary, two.dictionary)
    lists = dictionary_step(L.tolist(), W, X.tolist(), triplets, "distance")
    np.testing.assert_allclose(one.dictionary, lists.dictionary, atol=1e-12)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"code": np.eye(2)}, r"code has shape \(2, 2\).*3 rows"),
        ({"X": np.ones((9, 5))}, "X has 5 features.* 7"),
        ({"dictionary": np.full((3, 7), np.nan)}, "NaN"),
        ({"dictionary_penalty": -1.0}, "dictionary_penalty=-1.0"),
        ({"max_backtracks": -1}, "max_backtracks=-1"),
        ({"max_move": 0.0}, "max_move=0.0"),
        ({"metric_type": "cosine"}, "cosine"),
        ({"memory": GradientMemory(1), "codes": {"x": np.eye(3)}}, "'x'.*no gradient is stored"),
    ],
)
def test_errors_name_the_argument_and_the_value(change, said):
    L, W, X, triplets, _ = problem()
    arguments = {"dictionary": L, "code": W, "X": X, "triplets": triplets}
    with pytest.raises(ValueError, match=said):
        dictionary_step(**(arguments | {"metric_type": "similarity"} | change))


@pytest.mark.parametrize("rank", [0, -1, 1.5])
def test_a_rank_must_be_a_positive_integer(rank):
    with pytest.raises(ValueError, match=f"rank={rank}"):
        GradientMemory(rank)


def test_examples_in_docstrings():
    assert doctest.testmod(lml.dictionary).failed == 0
