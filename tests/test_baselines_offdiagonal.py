"""The off-diagonal learner against linear programs, finite differences and odd inputs."""

import copy
import pickle

import numpy as np
import pytest
from scipy import linalg, optimize, sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from lml.baselines.offdiagonal import (
    CodePenalty,
    OffDiagonalLearner,
    SmoothedHinge,
    TripletMap,
    code_bounds,
    diagonal_code,
    hinge_code,
)
from lml.metrics import FactoredMetric
from lml.neighbors import MetricKNeighborsClassifier
from lml.penalties import nearest_psd
from lml.scml import SCML
from lml.triplets import nearest_triplets, triplet_loss, triplet_margins

KINDS = ["similarity", "distance"]


def rows_of(n, D, classes, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    scale = np.linspace(0.5, 2.0, D)
    return rng.standard_normal((classes, D))[y] + scale * rng.standard_normal((n, D)) + 0.3, y


def problem(kind, n=36, d=5, classes=3, seed=0):
    Z, y = rows_of(n, d, classes, seed)
    return TripletMap(Z, nearest_triplets(Z, y, 2, 3), kind)


def matrices(plane):
    """P_t of every triplet, by loops over triplets and entries."""
    out = []
    for i, j, k in plane.triplets:
        x, p, q = plane.projections[[i, j, k]]
        if plane.distance:
            P = [[(x - q)[a] * (x - q)[b] - (x - p)[a] * (x - p)[b] for b in range(len(x))]
                 for a in range(len(x))]  # fmt: skip
        else:
            P = [[(x[a] * (p - q)[b] + x[b] * (p - q)[a]) / 2 for b in range(len(x))]
                 for a in range(len(x))]  # fmt: skip
        out.append(P)
    return np.array(out)


def exact(P, strength):
    """Minimum and code of mean hinge + strength * off-diagonal l1 by a linear program."""
    m, d, _ = P.shape
    pairs = [(a, b) for a in range(d) for b in range(a, d)]
    columns = np.array([P[:, a, b] * (1 if a == b else 2) for a, b in pairs]).T
    off = np.array([a != b for a, b in pairs])
    # w = plus - minus, so that the penalty is linear without further rows
    A = np.hstack([-columns, columns, -np.eye(m)])
    cost = np.concatenate([2 * strength * off, 2 * strength * off, np.full(m, 1 / m)])
    found = optimize.linprog(cost, A, -np.ones(m), bounds=(0, None), method="highs")
    w, W = found.x[: len(pairs)] - found.x[len(pairs) : 2 * len(pairs)], np.zeros((d, d))
    for (a, b), value in zip(pairs, w, strict=True):
        W[a, b] = W[b, a] = value
    return found.fun, W


def objective(plane, W, strength, ridge, P=None):
    P = matrices(plane) if P is None else P
    hinge = np.maximum(1 - np.einsum("tij,ij->t", P, W), 0).mean()
    off = np.abs(W).sum() - np.abs(W.diagonal()).sum()
    return hinge + strength * off + 0.5 * ridge * np.sum(W**2)


@pytest.mark.parametrize("kind", KINDS)
def test_map_and_adjoint_by_loops(kind):
    plane = problem(kind)
    rng, P = np.random.default_rng(1), matrices(plane)
    W = rng.standard_normal((5, 5))
    W = W + W.T
    weights = rng.uniform(-1, 2, size=len(P))
    np.testing.assert_allclose(plane.margins(W), np.einsum("tij,ij->t", P, W), atol=1e-10)
    np.testing.assert_allclose(
        plane.adjoint(weights), np.einsum("t,tij->ij", weights, P) / len(P), atol=1e-12
    )
    assert plane.size() == pytest.approx(np.mean(np.sum(P**2, axis=(1, 2))))
    assert plane.shape == (len(P), 5)
    metric = FactoredMetric.from_dense(W)
    np.testing.assert_allclose(
        plane.margins(W), triplet_margins(metric, plane.projections, plane.triplets, kind)
    )


def test_repeated_triplets_count_twice():
    rng = np.random.default_rng(0)
    Z, once = rng.standard_normal((6, 2)), np.array([[0, 1, 2], [3, 4, 5], [0, 4, 2]])
    twice = np.concatenate([once, once[:1]])
    weights = np.array([1.0, 2.0, 3.0])
    for kind in KINDS:
        S = TripletMap(Z, once, kind).adjoint(weights) * 3
        S += TripletMap(Z, once[:1], kind).adjoint([1.0])
        plane = TripletMap(Z, twice, kind)
        np.testing.assert_allclose(plane.adjoint(np.append(weights, 1.0)) * 4, S)


def test_bad_triplets():
    Z = np.eye(3)
    with pytest.raises(ValueError, match="triplets is empty"):
        TripletMap(Z, np.zeros((0, 3), dtype=int), "distance")
    with pytest.raises(ValueError, match="X has 3 samples"):
        TripletMap(Z, [[0, 1, 3]], "distance")
    with pytest.raises(ValueError, match="metric_type='cosine'"):
        TripletMap(Z, [[0, 1, 2]], "cosine")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [0.05, 1.0])
def test_smoothed_hinge_by_finite_differences(kind, width):
    plane, rng = problem(kind), np.random.default_rng(2)
    W = rng.standard_normal((5, 5))
    W = (W + W.T) / plane.size() ** 0.5
    smooth = SmoothedHinge(plane, width, 0.3)
    value, gradient = smooth(W)
    hinge = objective(plane, W, 0.0, 0.3)
    assert hinge - width / 2 <= value <= hinge
    for a in range(5):
        for b in range(a, 5):
            E = np.zeros((5, 5))
            E[a, b] = E[b, a] = 1e-6
            slope = (smooth(W + E)[0] - smooth(W - E)[0]) / 2e-6
            assert slope == pytest.approx(np.sum(gradient * E) / 1e-6, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("strength", [0.0, 0.4, 5.0])
def test_cone_prox_satisfies_its_conditions(strength):
    rng = np.random.default_rng(3)
    V = rng.standard_normal((6, 6))
    V = V + V.T - 0.5 * np.eye(6)
    penalty = CodePenalty(strength, psd=True)
    W = penalty.prox(V, 1.5, tol=1e-13, max_iter=20_000)
    Y = 1.5 * penalty.multiplier
    assert linalg.eigvalsh(W)[0] > -1e-7
    assert linalg.eigvalsh(Y)[0] > -1e-7
    assert abs(np.sum(W * Y)) < 1e-6
    R = V + Y - W
    np.testing.assert_allclose(R.diagonal(), 0, atol=1e-9)
    assert np.abs(R).max() <= 1.5 * strength + 1e-9
    used = (np.abs(W) > 1e-6) & ~np.eye(6, dtype=bool)
    np.testing.assert_allclose(R[used], 1.5 * strength * np.sign(W[used]), atol=1e-8)
    if strength == 0:
        np.testing.assert_allclose(W, nearest_psd(V), atol=1e-6)
    if strength == 5.0:
        np.testing.assert_allclose(W, np.diag(np.maximum(V.diagonal(), 0)), atol=1e-6)


@pytest.mark.parametrize("n_steps", [1, 2, 3, 10])
def test_the_cone_prox_takes_the_steps_of_fista_on_its_dual(n_steps):
    rng = np.random.default_rng(5)
    V = rng.standard_normal((6, 6))
    V = V + V.T - 0.5 * np.eye(6)

    def code(Y):
        soft = np.sign(V + Y) * np.maximum(np.abs(V + Y) - 0.6, 0.0)
        return soft + np.diag((V + Y).diagonal() - soft.diagonal())

    # t_0 = 1, t_k (t_k - 1) = t_{k-1}^2; the gradient of the dual at Y is the code of Y
    points, t = [np.zeros_like(V), np.zeros_like(V)], [1.0]
    for _ in range(n_steps):
        t.append(max(np.roots([1.0, -1.0, -(t[-1] ** 2)]).real))
        search = points[-1] + (t[-2] - 1) / t[-1] * (points[-1] - points[-2])
        points.append(nearest_psd(search - code(search)))
    found = CodePenalty(0.4, psd=True).prox(V, 1.5, tol=0.0, max_iter=n_steps)
    np.testing.assert_allclose(found, code(points[-1]), atol=1e-12)


@pytest.mark.parametrize("psd", [False, True])
def test_ramps_begin_with_the_margin_and_a_stage_ends_at_a_fraction_of_its_width(psd):
    plane = problem("distance")
    found = hinge_code(plane, 0.01 * plane.size() ** 0.5, 1e-3 * plane.size(), psd, tol=1e-4)
    widths = found.history[:, 1]
    stages = np.unique(widths)[::-1]
    np.testing.assert_array_equal(stages, 0.25 ** np.arange(len(stages)))  # the margin is 1
    assert len(stages) > 3
    assert found.history[0, 0] == 0  # the start is the first that is looked at
    assert np.all(np.diff(widths) <= 0)
    for width in stages[:-1]:
        *before, (_, _, high, low) = found.history[widths == width]
        assert high - low <= width / 2
        assert all(np.diff([steps for steps, *_ in before]) == 10)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.0, 0.003, 0.03])
def test_against_the_linear_program(kind, share):
    plane = problem(kind)
    P = matrices(plane)
    strength = share * plane.size() ** 0.5
    minimum, W_exact = exact(P, strength)
    ridge = 1e-4 * plane.size()
    found = hinge_code(plane, strength, ridge, tol=2e-4, max_iter=20_000)
    own, other = 0.5 * ridge * np.sum(found.code**2), 0.5 * ridge * np.sum(W_exact**2)
    assert found.gap <= 2e-4
    assert found.objective == pytest.approx(objective(plane, found.code, strength, ridge))
    assert found.bound <= minimum + other + 1e-9
    assert minimum - 1e-9 <= found.objective - own <= minimum + other - own + found.gap + 1e-9
    assert found.multipliers.min() >= 0
    assert found.multipliers.max() <= 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("psd", [False, True])
def test_bound_is_below_every_code(kind, psd):
    plane, rng = problem(kind), np.random.default_rng(4)
    strength, ridge = 0.01 * plane.size() ** 0.5, 1e-3 * plane.size()
    found = hinge_code(plane, strength, ridge, psd)
    penalty, P = CodePenalty(strength, psd), matrices(plane)
    for _ in range(100):
        W = rng.standard_normal((5, 5)) * 10 ** rng.uniform(-3, 1) / plane.size() ** 0.5
        W = nearest_psd(W + W.T) if psd else W + W.T
        _, high, low, a = code_bounds(SmoothedHinge(plane, 0.3, ridge), penalty, W)
        assert high == pytest.approx(objective(plane, W, strength, ridge, P))
        assert low <= found.objective + 1e-12
        assert high >= found.bound - 1e-12
        assert 0 <= a.min() <= a.max() <= 1


@pytest.mark.parametrize("kind", KINDS)
def test_cone_by_a_general_minimizer(kind):
    plane = problem(kind, n=18, d=3)
    strength, ridge = 0.02 * plane.size() ** 0.5, 1e-2 * plane.size()
    found = hinge_code(plane, strength, ridge, psd=True, tol=1e-5, max_iter=20_000)
    P = matrices(plane)
    assert linalg.eigvalsh(found.code)[0] >= -1e-12
    best = np.inf
    for seed in range(3):  # W = A'A is any PSD matrix; the objective is not convex in A
        start = np.random.default_rng(seed).standard_normal(9) / plane.size() ** 0.25

        def value(v):
            A = v.reshape(3, 3)
            return objective(plane, A.T @ A, strength, ridge, P)

        options = {"maxiter": 4000, "maxfev": 4000, "xatol": 1e-9, "fatol": 1e-10}
        for _ in range(3):  # begun again where it ended: a simplex may shrink too early
            end = optimize.minimize(value, start, method="Nelder-Mead", options=options)
            start = end.x
        best = min(best, end.fun)
    assert found.bound - 1e-9 <= best
    assert best == pytest.approx(found.objective, abs=5e-3)
    assert found.objective <= best + 1e-5


def test_code_near_the_minimiser_by_strong_convexity():
    plane = problem("distance")
    strength, ridge = 0.01 * plane.size() ** 0.5, 1e-2 * plane.size()
    sharp = hinge_code(plane, strength, ridge, tol=1e-6, max_iter=20_000)
    coarse = hinge_code(plane, strength, ridge, tol=1e-2)
    distance = linalg.norm(sharp.code - coarse.code)
    assert distance <= np.sqrt(2 * sharp.gap / ridge) + np.sqrt(2 * coarse.gap / ridge)
    assert sharp.n_iter > coarse.n_iter
    assert np.all(np.diff(sharp.history[:, 2]) <= 0)
    assert np.all(np.diff(sharp.history[:, 3]) >= 0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("psd", [False, True])
def test_strength_of_a_diagonal_code(kind, psd):
    plane = problem(kind)
    ridge = 1e-3 * plane.size()
    found, top = diagonal_code(plane, ridge, psd)
    np.testing.assert_array_equal(found.code, np.diag(found.code.diagonal()))
    for more in (0.0, 0.1):
        above = hinge_code(plane, (1 + more) * top, ridge, psd)
        assert max(found.bound, above.bound) <= min(found.objective, above.objective) + 1e-9
        off = CodePenalty(1.0).value(above.code)
        # what the strength above the top adds is within the gap: at the top itself nothing is said
        assert more * top * off <= above.objective - found.bound
    assert top * off <= 1e-2
    below = hinge_code(plane, 0.3 * top, ridge, psd)
    assert below.objective < found.bound
    if psd:
        assert found.code.min() >= 0


def test_diagonal_case_is_scml_without_sign_constraint():
    plane = problem("distance", d=4)
    diagonals = np.einsum("tii->ti", matrices(plane))
    m = len(diagonals)
    A = sparse.hstack([sparse.csr_array(-diagonals), -sparse.eye_array(m)])
    cost = np.concatenate([np.zeros(4), np.full(m, 1 / m)])
    ridge = 1e-6 * plane.size()
    for psd, low in ((True, 0), (False, None)):
        bounds = [(low, None)] * 4 + [(0, None)] * m
        minimum = optimize.linprog(cost, A, -np.ones(m), bounds=bounds, method="highs").fun
        found, _ = diagonal_code(plane, ridge, psd, tol=2e-4, max_iter=20_000)
        loss = found.objective - 0.5 * ridge * np.sum(found.code**2)
        assert minimum - 1e-9 <= loss <= minimum + 2e-3


def test_dictionary_of_scml():
    X, y = rows_of(60, 5, 3)
    scml = SCML(n_basis=8, n_steps=5000, random_state=0).fit(X, y)
    learner = OffDiagonalLearner(penalty=1.0, dictionary=scml.basis_, ridge=1e-6).fit(X, y)
    assert learner.code_.shape == (8, 8)
    assert learner.n_triplets_ == scml.n_triplets_
    triplets = nearest_triplets(X, y)
    losses = [triplet_loss(m, X, triplets, "distance") for m in (learner.metric_, scml.metric_)]
    assert losses[0] <= losses[1] + 2e-3
    assert learner.code_.diagonal().min() >= 0


def test_result_does_not_depend_on_units():
    X, y = rows_of(50, 6, 3)
    learner = OffDiagonalLearner(n_components=6, random_state=0).fit(X, y)
    scaled = clone(learner).fit(8 * X, y)
    np.testing.assert_allclose(64 * scaled.code_, learner.code_, rtol=1e-6, atol=1e-8)
    assert scaled.objective_ == pytest.approx(learner.objective_)
    assert scaled.strength_max_ == pytest.approx(64 * learner.strength_max_)


@pytest.mark.parametrize("kind", KINDS)
def test_fit_stores_what_it_says(kind):
    X, y = rows_of(50, 6, 3)
    before = X.copy()
    learner = OffDiagonalLearner(kind, penalty=0.2, n_components=4, random_state=0).fit(X, y)
    np.testing.assert_array_equal(X, before)
    np.testing.assert_allclose(learner.dictionary_ @ learner.dictionary_.T, np.eye(4), atol=1e-10)
    M = learner.dictionary_.T @ learner.code_ @ learner.dictionary_
    np.testing.assert_allclose(learner.metric_.to_dense(), M, atol=1e-12)
    assert learner.strength_ == pytest.approx(0.2 * learner.strength_max_)
    assert learner.gap_ <= learner.tol
    assert learner.objective_history_[-1] == learner.objective_
    assert learner.n_features_in_ == 6
    loss = triplet_loss(learner.metric_, X, nearest_triplets(X, y), kind)
    assert loss < learner.objective_ < 1
    if kind == "distance":
        assert linalg.eigvalsh(learner.code_)[0] >= -1e-12


def test_sparse_rows_give_the_same_code():
    X, y = rows_of(40, 6, 2)
    X[np.abs(X) < 0.7] = 0.0
    L = np.linalg.qr(np.random.default_rng(0).standard_normal((6, 3)))[0].T
    dense = OffDiagonalLearner(dictionary=L).fit(X, y)
    for matrix in (sparse.csr_matrix(X), sparse.csr_array(X), sparse.csc_matrix(X)):
        other = OffDiagonalLearner(dictionary=L).fit(matrix, y)
        np.testing.assert_allclose(other.code_, dense.code_, rtol=1e-6, atol=1e-9)
    wide = sparse.random(40, 30_000, density=0.01, format="csr", random_state=0)
    learner = OffDiagonalLearner(n_components=5, random_state=0, tol=1e-2).fit(wide, y)
    assert learner.metric_.shape == (30_000, 30_000)
    assert learner.code_.shape == (5, 5)


def test_equal_rows_give_a_zero_metric():
    learner = OffDiagonalLearner(dictionary=np.eye(3)[:2]).fit(np.ones((6, 3)), [0, 0, 0, 1, 1, 1])
    np.testing.assert_array_equal(learner.code_, 0)
    assert learner.objective_ == 1.0
    assert learner.strength_max_ == 0.0
    plane = TripletMap(np.zeros((3, 2)), [[0, 1, 2]], "distance")
    found = hinge_code(plane, 0.1, 0.01, tol=0.0)  # a gap of exactly zero is small enough
    assert (found.objective, found.bound, len(found.history)) == (1.0, 1.0, 1)


def test_labels_of_mixed_types_are_told_apart():
    X, y = rows_of(30, 4, 2)
    learner = OffDiagonalLearner(n_components=2, random_state=0, tol=1e-2)
    code = learner.fit(X, y).code_
    for labels in ([1, "1"], [b"x", b"y"], [1.5, 2.5], [True, False]):
        np.testing.assert_array_equal(learner.fit(X, [labels[v] for v in y]).code_, code)


def test_labels_of_other_types_and_the_classifier():
    X, y = rows_of(50, 4, 2)
    names = np.array(["no", "yes"], dtype=object)[y]
    learner = OffDiagonalLearner(n_components=4, random_state=0)
    np.testing.assert_array_equal(learner.fit(X, names).code_, clone(learner).fit(X, y).code_)
    for kind in KINDS:
        model = MetricKNeighborsClassifier(clone(learner).set_params(metric_type=kind)).fit(
            X, names
        )
        assert set(model.predict(X)) == {"no", "yes"}


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"metric_type": "cosine"}, "metric_type='cosine'"),
        ({"penalty": -0.1}, "penalty=-0.1"),
        ({"penalty": np.nan}, "penalty=nan"),
        ({"ridge": 0.0}, "ridge=0.0: give a number above 0"),
        ({"ridge": "small"}, "ridge='small'"),
        ({"psd": "yes"}, "psd='yes'"),
        ({"tol": -1.0}, "tol=-1.0"),
        ({"max_iter": 0}, "max_iter=0"),
        ({"n_components": 2.5}, "n_components=2.5"),
        ({"dictionary": np.ones((2, 3))}, "dictionary has 3 features, but 4 features"),
        ({"dictionary": np.array([[np.nan] * 4])}, r"dictionary\[0, 0\] is nan"),
    ],
)
def test_bad_parameters_are_named_and_a_fitted_learner_keeps_its_state(parameters, said):
    X, y = rows_of(30, 4, 2)
    learner = OffDiagonalLearner(n_components=2, random_state=0, tol=1e-2).fit(X, y)
    before = copy.deepcopy(learner.__dict__)
    learner.set_params(**parameters)
    with pytest.raises(ValueError, match=said):
        learner.fit(X, y)
    for name, value in before.items():
        if name.endswith("_") and name != "metric_":
            np.testing.assert_array_equal(getattr(learner, name), value)


def test_a_sparse_dictionary_is_refused_with_what_to_do():
    X, y = rows_of(30, 4, 2)
    with pytest.raises(TypeError, match="Sparse data was passed for dictionary"):
        OffDiagonalLearner(dictionary=sparse.csr_array(np.eye(4)[:2])).fit(X, y)


def test_failed_refit_on_other_features_keeps_the_state():
    X, y = rows_of(30, 4, 2)
    learner = OffDiagonalLearner(n_components=2, random_state=0, tol=1e-2).fit(X, y)
    code = learner.code_.copy()
    for bad_X, bad_y in ((X[:, :3], np.zeros(30)), (np.full((30, 3), np.nan), y), (X, y[:5])):
        with pytest.raises(ValueError):  # noqa: PT011
            learner.fit(bad_X, bad_y)
        np.testing.assert_array_equal(learner.code_, code)
        assert learner.n_features_in_ == 4
        assert learner.transform(X).shape == (30, 2)


def test_ridge_and_convergence_are_spoken_of():
    plane = problem("distance")
    with pytest.raises(ValueError, match="ridge=0"):
        hinge_code(plane, 0.1, 0.0)
    with pytest.warns(ConvergenceWarning, match="duality gap"):
        found = hinge_code(plane, 0.0, 1e-6 * plane.size(), max_iter=3, tol=1e-6)
    assert found.n_iter == 3
    assert found.gap > 1e-6


def test_start_does_not_change_the_answer():
    plane = problem("distance")
    strength, ridge = 0.01 * plane.size() ** 0.5, 1e-3 * plane.size()
    start = 5 * np.eye(5) / plane.size() ** 0.5
    first = hinge_code(plane, strength, ridge, True)
    second = hinge_code(plane, strength, ridge, True, init=start)
    assert max(first.bound, second.bound) <= min(first.objective, second.objective)
    np.testing.assert_array_equal(start, 5 * np.eye(5) / plane.size() ** 0.5)


def test_clone_pickle_and_unfitted():
    X, y = rows_of(30, 4, 2)
    learner = OffDiagonalLearner(n_components=3, random_state=0, tol=1e-2)
    with pytest.raises(NotFittedError):
        learner.transform(X)
    learner.fit(X, y)
    again = pickle.loads(pickle.dumps(learner))
    np.testing.assert_array_equal(again.transform(X), learner.transform(X))
    np.testing.assert_array_equal(clone(learner).fit(X, y).code_, learner.code_)
