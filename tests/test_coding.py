"""The coding module: gradient, solver, certificate and errors, against independent oracles."""

import doctest
import warnings

import numpy as np
import pytest
from scipy import optimize, sparse
from sklearn.exceptions import ConvergenceWarning

import lml.coding
from lml.coding import CodeLoss, code_loss, code_metric, fista, fista_iterates
from lml.metrics import FactoredMetric


def problem(d=4, n_features=7, seed=0):
    rng = np.random.default_rng(seed)
    L = np.eye(d, n_features) + 0.5 * rng.standard_normal((d, n_features))  # well conditioned
    M = rng.standard_normal((n_features, n_features))
    return L, M, rng


def objective(W, L, M, strength):
    off = np.abs(W).sum() - np.abs(np.diag(W)).sum()
    return 0.5 * np.sum((L.T @ W @ L - M) ** 2) + strength * off


class OffDiagonal:
    """A penalty written apart from the package."""

    def __init__(self, strength):
        self.strength = strength

    def value(self, W):
        return self.strength * np.abs(W[~np.eye(len(W), dtype=bool)]).sum()

    def prox(self, W, step):
        cut = np.full(W.shape, step * self.strength)
        np.fill_diagonal(cut, 0.0)
        return np.sign(W) * np.maximum(np.abs(W) - cut, 0.0)

    def kkt_residual(self, W, gradient):
        total = 0.0
        for (i, j), g in np.ndenumerate(gradient):
            s = self.strength if i != j else 0.0
            total += max(abs(g) - s, 0.0) ** 2 if W[i, j] == 0 else (g + s * np.sign(W[i, j])) ** 2
        return np.sqrt(total)


def test_loss_and_gradient_against_the_definition():
    L, M, rng = problem()
    M_plus = (M + M.T) / 2
    loss = code_loss(L, FactoredMetric.from_dense(M))
    W = rng.standard_normal((4, 4))
    value, gradient = loss(W)
    np.testing.assert_allclose(value, objective(W, L, M_plus, 0.0), rtol=1e-12)
    numeric = optimize.approx_fprime(
        W.ravel(), lambda w: objective(w.reshape(4, 4), L, M_plus, 0.0), 1e-7
    )
    np.testing.assert_allclose(gradient.ravel(), numeric, rtol=1e-4, atol=1e-3)


def test_loss_of_a_non_symmetric_target_and_code():
    L, M, rng = problem(3, 5, 1)
    W = rng.standard_normal((3, 3))
    value, gradient = CodeLoss(L @ L.T, L @ M @ L.T, 0.5 * np.sum(M**2))(W)
    np.testing.assert_allclose(value, objective(W, L, M, 0.0), rtol=1e-12)
    np.testing.assert_allclose(gradient, L @ (L.T @ W @ L - M) @ L.T, atol=1e-11)


@pytest.mark.parametrize("strength", [0.0, 0.3, 2.0, 1e3])
def test_solution_against_a_derivative_free_walk(strength):
    L, M, rng = problem()
    found = code_metric(L, FactoredMetric.from_dense(M), strength, tol=1e-10, max_iter=20000)
    assert found.converged
    M_plus = (M + M.T) / 2
    best = objective(found.code, L, M_plus, strength)
    np.testing.assert_allclose(found.objective, best, rtol=1e-9)
    for size in [1.0, 1e-2, 1e-4]:
        for E in rng.standard_normal((50, 4, 4)):
            assert objective(found.code + size * E, L, M_plus, strength) >= best - 1e-9


def test_no_penalty_is_least_squares():
    L, M, _ = problem(3, 6, 2)
    found = code_metric(L, FactoredMetric.from_dense(M), 0.0, tol=1e-12, max_iter=20000)
    design = np.kron(L.T, L.T)  # vec(L'WL) for row-major vec
    expected = np.linalg.lstsq(design, ((M + M.T) / 2).ravel(), rcond=None)[0]
    np.testing.assert_allclose(found.code.ravel(), expected, atol=1e-8)


def test_orthonormal_rows_take_no_iteration():
    L, M, _ = problem(4, 9, 3)
    Q = np.linalg.qr(L.T)[0].T
    M_plus = (M + M.T) / 2
    found = code_metric(Q, FactoredMetric.from_dense(M), 0.4)
    B = Q @ M_plus @ Q.T
    expected = np.sign(B) * np.maximum(np.abs(B) - 0.4, 0)
    np.fill_diagonal(expected, np.diag(B))
    np.testing.assert_allclose(found.code, expected, atol=1e-13)
    assert found.n_iter == 0
    assert found.kkt_residual < 1e-12
    # rows that are at right angles, but not of length 1, begin where they are told
    long = np.array([[1.5], [1.0], [2.0], [0.5]]) * Q
    first = code_metric(long, FactoredMetric.from_dense(M), 0.1)
    assert first.n_iter > 0
    again = code_metric(long, FactoredMetric.from_dense(M), 0.1, init=first.code)
    assert again.n_iter == 0
    general = fista(code_loss(Q, FactoredMetric.from_dense(M)), OffDiagonal(0.4), np.zeros((4, 4)))
    np.testing.assert_allclose(general.code, found.code, atol=1e-8)


def test_code_is_exactly_symmetric_and_very_strong_penalty_gives_a_diagonal():
    L, M, _ = problem()
    weak = code_metric(L, FactoredMetric.from_dense(M), 0.3, max_iter=20000)
    assert np.array_equal(weak.code, weak.code.T)
    strong = code_metric(L, FactoredMetric.from_dense(M), 1e3, max_iter=20000)
    assert np.count_nonzero(strong.code - np.diag(np.diag(strong.code))) == 0
    A, B = L @ L.T, L @ M @ L.T
    expected = np.linalg.solve(A * A, np.diag(B))  # the diagonal problem, in closed form
    np.testing.assert_allclose(np.diag(strong.code), expected, atol=1e-6)


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("step", [1e-3, 1.0, 1e6])
def test_fista_does_not_depend_on_the_first_step(affine, step):
    L, M, _ = problem(3, 5, 4)
    loss = code_loss(L, FactoredMetric.from_dense(M))
    options = {"tol": 1e-9, "max_iter": 50000, "affine_gradient": affine}
    found = fista(loss, OffDiagonal(0.5), np.zeros((3, 3)), step=step, **options)
    expected = fista(loss, OffDiagonal(0.5), np.eye(3), restart=False, **options)
    assert found.converged
    assert found.step <= step
    np.testing.assert_allclose(found.code, expected.code, atol=1e-6)


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("size", [1e-12, 1e-6, 1.0, 1e6, 1e12])
def test_rounding_is_told_from_a_bend_in_every_unit(size, affine):
    """Under |W - A|^2 / 2 the longest step is 1, where both sides are equal but for rounding."""

    class Nothing:
        def prox(self, W, step):
            return W

    for seed in range(20):
        A = size * np.random.default_rng(seed).normal(size=(3, 3))

        def smooth(W, A=A):
            return 0.5 * np.sum((W - A) ** 2), W - A

        walk = fista_iterates(smooth, Nothing(), np.zeros((3, 3)), 4.0, True, affine)
        next(walk)
        code, _, _, step, _ = next(walk)
        assert step == 1.0
        np.testing.assert_allclose(code, A)


def test_rate_bound_holds_without_restart():
    L, M, _ = problem(5, 8, 5)
    L = np.diag([1, 0.5, 0.3, 0.2, 0.1]) @ L
    loss = code_loss(L, FactoredMetric.from_dense(M))
    penalty, start = OffDiagonal(0.05), np.ones((5, 5))
    options = {"max_iter": 30000, "affine_gradient": True}
    best = fista(loss, penalty, start, tol=1e-11, **options)
    run = fista(loss, penalty, start, tol=0.0, restart=False, max_iter=300)
    k = np.arange(1, 301)
    bound = 2 * np.sum((start - best.code) ** 2) / (run.step * (k + 1) ** 2)
    assert np.all(run.objective_history[1:] - best.objective <= bound + 1e-9)


@pytest.mark.parametrize("affine", [False, True])
def test_iterates_are_those_of_fista_written_out(affine):
    L, M, rng = problem()
    M = M + M.T
    smooth = code_loss(L, FactoredMetric.from_dense(M))
    penalty = OffDiagonal(0.3)
    step = 1.0 / np.linalg.norm(L @ L.T, 2) ** 2
    W = V = rng.standard_normal((4, 4))
    found = fista_iterates(smooth, penalty, W, step, False, affine)
    np.testing.assert_array_equal(next(found)[0], W)
    t = 1.0
    for _ in range(12):
        P = penalty.prox(V - step * (L @ (L.T @ V @ L - M) @ L.T), step)
        following = (1 + np.sqrt(1 + 4 * t**2)) / 2
        V = P + (t - 1) / following * (P - W)
        W, t = P, following
        code, _, _, used, _ = next(found)
        np.testing.assert_allclose(code, W, atol=1e-12)
        assert used == step


@pytest.mark.parametrize("affine", [False, True])
def test_a_prox_that_writes_into_its_argument_is_refused(affine):
    L, M, _ = problem()
    # rows at right angles, of other lengths: the minimizer is found to the last digits
    L = np.diag([1.0, 1.3, 0.8, 1.1]) @ np.linalg.qr(L.T)[0].T
    smooth = code_loss(L, FactoredMetric.from_dense(M + M.T))

    class InPlace(OffDiagonal):
        def prox(self, W, step):
            W[:] = super().prox(W, step)
            return W

    class Same(OffDiagonal):
        def prox(self, W, step):
            return W

    with pytest.raises(ValueError, match="read-only"):
        fista(smooth, InPlace(0.3), np.zeros((4, 4)), affine_gradient=affine)
    # without a penalty the argument itself may be the answer
    found = fista(smooth, Same(0.0), np.zeros((4, 4)), tol=1e-10, affine_gradient=affine)
    inverse = np.linalg.pinv(L)
    np.testing.assert_allclose(found.code, inverse.T @ (M + M.T) @ inverse, atol=1e-6)
    assert found.code.flags.writeable


def test_fista_solves_a_problem_that_is_not_quadratic():
    rng = np.random.default_rng(6)
    Z, targets = rng.standard_normal((40, 4)), rng.choice([-1.0, 1.0], 40)

    def logistic(W):
        margin = targets * np.einsum("ij,jk,ik->i", Z, W, Z)
        weight = -targets / (1 + np.exp(margin)) / 40
        return np.mean(np.logaddexp(0, -margin)), (Z * weight[:, None]).T @ Z

    found = fista(logistic, OffDiagonal(0.05), np.zeros((2, 2)).repeat(2, 0).repeat(2, 1), step=50)
    assert found.converged

    def smooth_split(x):
        W = np.zeros((4, 4))
        off = ~np.eye(4, dtype=bool)
        W[off], W[~off] = x[:12] - x[12:24], x[24:]
        value, gradient = logistic(W)
        slope = np.concatenate([gradient[off] + 0.05, -gradient[off] + 0.05, gradient[~off]])
        return value + 0.05 * x[:24].sum(), slope

    bounds = [(0, None)] * 24 + [(None, None)] * 4
    oracle = optimize.minimize(smooth_split, np.zeros(28), jac=True, bounds=bounds, tol=1e-12)
    np.testing.assert_allclose(found.objective, oracle.fun, rtol=1e-6)


def test_factored_and_sparse_targets_agree_with_the_dense_one():
    rng = np.random.default_rng(7)
    X = sparse.random(6, 30, 0.3, format="csr", random_state=0)
    C = rng.standard_normal((6, 6))
    L = rng.standard_normal((4, 30))
    dense = 1.5 * np.eye(30) + X.toarray().T @ C @ X.toarray()
    sparse_target = FactoredMetric(1.5, X, C)
    expected = code_metric(L, FactoredMetric.from_dense(dense), 0.3)
    found = code_metric(L, sparse_target, 0.3)
    np.testing.assert_allclose(found.code, expected.code, atol=1e-7)
    np.testing.assert_allclose(found.objective, expected.objective, rtol=1e-9)


def test_many_features_never_form_a_square_matrix():
    n_features = 35_846
    X = sparse.random(20, n_features, 0.01, format="csr", random_state=0)
    L = np.linalg.qr(np.random.default_rng(0).standard_normal((n_features, 5)))[0].T
    found = code_metric(L, FactoredMetric(1.0, X, np.arange(20.0)), 0.01)
    assert found.code.shape == (5, 5)
    assert found.n_iter == 0


def test_a_stopped_run_warns_with_the_numbers():
    L, M, _ = problem()
    with pytest.warns(ConvergenceWarning, match=r"stopped after 3 steps.*condition number"):
        found = code_metric(L, FactoredMetric.from_dense(M), 0.3, max_iter=3)
    assert not found.converged
    assert found.n_iter == 3
    assert len(found.objective_history) == 4


def test_zero_target_and_zero_dictionary_give_a_zero_code():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        zero = FactoredMetric.from_dense(np.zeros((3, 3)))
        assert not code_metric(np.array([[1.0, 2.0, 0.0]]), zero, 0.1).code.any()
        eye = FactoredMetric.identity(3)
        assert not code_metric(np.zeros((2, 3)), eye, 0.1).code.any()


def test_more_rows_than_features_and_repeated_rows():
    L, M, _ = problem(3, 2, 8)
    for rows in (L, np.vstack([L, L[:1]])):
        found = code_metric(rows, FactoredMetric.from_dense(M), 0.2, max_iter=50000)
        assert found.converged


def test_inputs_are_left_alone_and_any_layout_works():
    L, M, _ = problem()
    target = FactoredMetric.from_dense(M)
    expected = code_metric(L, target, 0.3, max_iter=20_000, tol=1e-14).code
    init = np.eye(4)
    L.setflags(write=False)
    init.setflags(write=False)
    warm = code_metric(L, target, 0.3, max_iter=20_000, tol=1e-14, init=init)
    np.testing.assert_allclose(warm.code, expected, atol=1e-6)
    for other in (L.tolist(), np.asfortranarray(L), np.repeat(L, 2, 0)[::2]):
        np.testing.assert_allclose(
            code_metric(other, target, 0.3, max_iter=20_000, tol=1e-14).code, expected
        )
    single = code_metric(L.astype(np.float32), target, 0.3, max_iter=20_000, tol=1e-14)
    np.testing.assert_allclose(single.code, expected, atol=1e-4)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"dictionary": np.ones((2, 5))}, "3 features.*5 columns"),
        ({"dictionary": np.array([[1.0, np.nan, 0.0]])}, "NaN"),
        ({"code_penalty": -0.1}, "code_penalty=-0.1"),
        ({"code_penalty": np.inf}, "code_penalty=inf"),
        ({"init": np.eye(3)}, r"\(3, 3\).*2 rows"),
        ({"max_iter": -1}, "max_iter=-1"),
        ({"tol": -1.0}, "tol=-1.0"),
    ],
)
def test_errors_name_the_argument_and_the_value(change, said):
    arguments = {
        "dictionary": np.eye(3)[:2],
        "target": FactoredMetric.identity(3),
        "code_penalty": 0.1,
    } | change
    with pytest.raises(ValueError, match=said):
        code_metric(**arguments)


def test_a_target_must_be_a_factored_metric():
    with pytest.raises(TypeError, match="target is a ndarray: pass a FactoredMetric"):
        code_metric(np.eye(3), np.eye(3), 0.1)


def test_examples_in_docstrings():
    assert doctest.testmod(lml.coding).failed == 0


@pytest.mark.parametrize("size", [1e-60, 1e60])
def test_large_and_small_targets_are_coded_as_well_as_others(size):
    L, M, _ = problem()
    plain = code_metric(L, FactoredMetric.from_dense(M), 0.1)
    scaled = code_metric(L, FactoredMetric.from_dense(size * M), size * 0.1)
    assert plain.converged
    assert scaled.converged
    np.testing.assert_allclose(scaled.code / size, plain.code, atol=1e-6)


def test_a_target_without_anything_in_the_dictionary_needs_no_steps():
    L, M, rng = problem()
    nothing = FactoredMetric.from_dense(np.zeros_like(M))
    start = rng.standard_normal((4, 4))
    outside = np.linalg.svd(L)[2][4:]  # orthogonal to the rows up to rounding
    for target in (nothing, FactoredMetric(0.0, outside, np.eye(3))):
        for init in (None, start) if target is nothing else (None,):
            result = code_metric(L, target, 0.1, init=init)
            assert (result.n_iter, result.converged) == (0, True)
            assert np.abs(result.code).max() < 1e-12


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"init": np.full((4, 4), np.nan)}, r"init\[0, 0\] is nan"),
        ({"code_penalty": "a"}, "code_penalty='a'"),
        ({"code_penalty": None}, "code_penalty=None"),
        ({"max_iter": 1.5}, "max_iter=1.5"),
        ({"max_iter": -1}, "max_iter=-1"),
        ({"tol": "small"}, "tol='small'"),
        ({"tol": np.nan}, "tol=nan"),
    ],
)
def test_numbers_that_cannot_be_used_are_named(change, said):
    L, M, _ = problem()
    arguments = {"code_penalty": 0.1} | change
    with pytest.raises(ValueError, match=said):
        code_metric(L, FactoredMetric.from_dense(M), **arguments)


@pytest.mark.parametrize("step", [0, -1.0, np.inf, np.nan, "1"])
def test_fista_needs_a_positive_step(step):
    smooth = CodeLoss(np.eye(2), np.eye(2), 0.0)
    with pytest.raises(ValueError, match="step="):
        fista(smooth, lml.coding.OffDiagonalL1(0.1), np.zeros((2, 2)), step=step)


def test_the_code_does_not_depend_on_the_size_of_dictionary_and_target():
    (L, M, _), most = problem(), 5000  # some draws are ill-conditioned
    plain = code_metric(L, FactoredMetric.from_dense(M), 0.0, max_iter=most)
    for size in (1e-90, 1e-30, 1e90):
        scaled = code_metric(L, FactoredMetric.from_dense(size * M), 0.0, max_iter=most)
        assert scaled.converged
        np.testing.assert_allclose(scaled.code / size, plain.code, rtol=1e-5, atol=1e-6)
    for size in (1e-30, 1e30):
        scaled = code_metric(size * L, FactoredMetric.from_dense(M), 0.0, max_iter=most)
        assert scaled.converged
        np.testing.assert_allclose(scaled.code * size**2, plain.code, rtol=1e-5, atol=1e-6)


def test_numbers_that_overflow_are_an_error():
    L, M, _ = problem()
    for size, target_size in ((1.0, 1e160), (1e80, 1.0), (1e200, 1.0)):
        said = r"dictionary has numbers up to .*, target has the norm .*: their squares overflow"
        with np.errstate(all="ignore"), pytest.raises(ValueError, match=said):
            code_metric(size * L, FactoredMetric.from_dense(target_size * M), 0.1)
    large = FactoredMetric.from_dense(np.diag([1.22e154, 1.0, 1.0]))  # finite until they are added
    with np.errstate(all="ignore"), pytest.raises(ValueError, match="squares overflow"):
        code_metric(np.eye(2, 3), large, 0.1)


@pytest.mark.parametrize(("size", "target_size"), [(1e-150, 1.0), (1.0, 1e-170)])
def test_numbers_whose_squares_vanish_are_an_error(size, target_size):
    L, M, _ = problem()
    with pytest.raises(ValueError, match="squares vanish"):
        code_metric(size * L, FactoredMetric.from_dense(target_size * M), 0.1)
    with pytest.raises(ValueError, match="squares vanish"):  # zeros beside them
        code_metric(size * np.eye(4, 7), FactoredMetric.from_dense(target_size * M), 0.1)
    if target_size < 1:  # and of a diagonal target
        diagonal = FactoredMetric.from_dense(target_size * np.diag(np.arange(1.0, 8)))
        with pytest.raises(ValueError, match="squares vanish"):
            code_metric(np.eye(4, 7), diagonal, 0.1)


@pytest.mark.parametrize("scale", [np.nan, -1.0, np.inf, "1", 1j])
def test_a_scale_must_be_a_finite_number(scale):
    smooth = CodeLoss(np.eye(2), np.eye(2), 0.0)
    with pytest.raises(ValueError, match="scale="):
        fista(smooth, lml.coding.OffDiagonalL1(0.1), np.zeros((2, 2)), scale=scale)


def test_a_problem_without_finite_numbers_is_not_called_converged():
    penalty, start = lml.coding.OffDiagonalL1(0.1), np.zeros((2, 2))
    for value in (np.inf, np.nan):
        with pytest.raises(ValueError, match=f"objective at init is {value}"):
            fista(lambda W, value=value: (value, W), penalty, start)
    with pytest.raises(ValueError, match="scale is inf"):
        fista(lambda W: (0.0, W + np.inf), penalty, start)
    loss = CodeLoss(np.diag([1.0, 2.0]), np.full((2, 2), 1e160), 0.0)  # squares overflow
    with np.errstate(over="ignore", invalid="ignore"):
        with pytest.raises(ValueError, match="scale is inf"):
            fista(loss, penalty, start, 0.1, max_iter=3)
        far = fista(lambda W: (0.0 if not W.any() else np.nan, W + 1.0), penalty, start, 1.0)
    assert not far.converged or np.isfinite(far.objective)
    L, M, _ = problem()
    with np.errstate(over="ignore", invalid="ignore"), pytest.raises(ValueError, match="at init"):
        code_metric(L, FactoredMetric.from_dense(M), 0.1, init=np.full((4, 4), 1e200))


def test_fista_takes_iterates_of_any_shape():
    class Nothing:
        value = staticmethod(lambda W: 0.0)
        prox = staticmethod(lambda W, step: W)
        kkt_residual = staticmethod(lambda W, gradient: float(np.linalg.norm(gradient)))

    for shape in ((3,), (2, 3), (2, 2, 2)):
        init = np.zeros(shape)
        found = fista(lambda W: (0.5 * np.sum((W - 1.0) ** 2), W - 1.0), Nothing(), init)
        np.testing.assert_allclose(found.code, np.ones(shape), atol=1e-8)
        assert not init.any()
