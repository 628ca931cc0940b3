"""SCML against linear programs, brute force and awkward inputs."""

import copy
import pickle
import re
import warnings

import numpy as np
import pytest
from scipy import optimize, sparse
from sklearn.base import clone
from sklearn.datasets import load_digits, make_blobs
from sklearn.exceptions import ConvergenceWarning, DataConversionWarning, NotFittedError

from lml.fisher import local_fisher_basis
from lml.metrics import FactoredMetric
from lml.scml import (
    SCML,
    dual_averaging,
    mean_difference,
    scaled_gamma,
    scml_objective,
    triplet_differences,
)
from lml.triplets import nearest_triplets, triplet_loss

SMALL = SCML(n_basis=12, n_steps=300, random_state=0)


def rows_of(n, D, classes, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    scale = np.linspace(0.5, 2.0, D)
    return 1.2 * rng.standard_normal((classes, D))[y] + scale * rng.standard_normal((n, D)), y


def problem(n=45, D=6, classes=3, K=14, seed=0):
    X, y = rows_of(n, D, classes, seed)
    F = local_fisher_basis(X, y, K, random_state=0)
    triplets = nearest_triplets(X, y)
    return X, F, triplets, X @ F.T


def exact_weights(Z, beta):
    m, K = Z.shape
    cost = np.concatenate([np.full(K, beta), np.full(m, 1 / m)])
    A = sparse.hstack([sparse.csr_array(Z), -sparse.eye_array(m)])
    found = optimize.linprog(cost, A_ub=A, b_ub=-np.ones(m), bounds=(0, None), method="highs")
    return found.x[:K], found.fun


def exact_minimum(Z, beta):
    return exact_weights(Z, beta)[1]


def test_differences_by_loops():
    rng = np.random.default_rng(0)
    P, triplets = rng.standard_normal((7, 3)), rng.integers(0, 7, size=(11, 3))
    Z = triplet_differences(P, triplets)
    for z, (i, j, k) in zip(Z, triplets, strict=True):
        np.testing.assert_allclose(z, [(p[i] - p[j]) ** 2 - (p[i] - p[k]) ** 2 for p in P.T])
    assert triplet_differences(P, []).shape == (0, 3)


def test_objective_is_the_triplet_loss_of_the_metric():
    X, F, triplets, P = problem()
    w = np.maximum(np.random.default_rng(1).standard_normal(14), 0)
    loss = triplet_loss(FactoredMetric(0.0, F, w), X, triplets, "distance")
    assert scml_objective(w, P, triplets) == pytest.approx(loss, rel=1e-10)
    assert scml_objective(w, P, triplets, 0.3) == pytest.approx(loss + 0.3 * w.sum(), rel=1e-10)
    assert scml_objective(np.zeros(14), P, triplets, 0.3) == 1.0
    assert scml_objective(w, P, np.zeros((0, 3)), 0.3) == pytest.approx(0.3 * w.sum())


@pytest.mark.parametrize("gamma", [0.03, 2.0])
def test_weights_are_those_of_the_textbook_recursion(gamma):
    _, _, triplets, P = problem()
    beta, n_steps = 0.02, 400
    weights, history = dual_averaging(P, triplets, beta, gamma, n_steps, random_state=3)
    Z = triplet_differences(P, triplets)
    draws = np.random.RandomState(3).randint(len(Z), size=n_steps)
    w, g_bar, best = np.zeros(14), np.zeros(14), (1.0, np.zeros(14))
    for t, choice in enumerate(draws, start=1):
        g_bar += ((1 + w @ Z[choice] > 0) * Z[choice] - g_bar) / t
        w = np.sqrt(t) / gamma * np.maximum(-g_bar - beta, 0)
        if t % 20 == 0:
            value = np.maximum(1 + Z @ w, 0).mean() + beta * w.sum()
            best = min(best, (value, w), key=lambda pair: pair[0])
    np.testing.assert_allclose(weights, best[1], atol=1e-8)
    assert history.min() == pytest.approx(best[0], rel=1e-8)
    assert history.shape == (21,)
    assert history[0] == 1.0


def test_step_is_the_minimiser_of_its_definition():
    rng = np.random.default_rng(0)
    g, t, beta, gamma = rng.standard_normal(4), 9, 0.2, 0.7

    def value(w):
        return g @ w + beta * np.abs(w).sum() + gamma / (2 * np.sqrt(t)) * w @ w

    found = optimize.minimize(value, np.ones(4), bounds=[(0, None)] * 4, tol=1e-14)
    closed = np.sqrt(t) / gamma * np.maximum(-g - beta, 0)
    np.testing.assert_allclose(found.x, closed, atol=1e-4)


def test_the_default_of_gamma_is_a_fifth_of_the_mean_squared_length():
    rng = np.random.default_rng(4)
    P, triplets = rng.normal(size=(30, 5)), rng.integers(30, size=(70, 3))
    lengths = [
        sum(((P[a, c] - P[j, c]) ** 2 - (P[a, c] - P[k, c]) ** 2) ** 2 for c in range(5))
        for a, j, k in triplets
    ]
    assert scaled_gamma(P, triplets) == pytest.approx(sum(lengths) / 70 / 5)


@pytest.mark.parametrize("beta", [0.3, 0.03])
def test_objective_comes_near_the_linear_program(beta):
    _, _, triplets, P = problem()
    Z, n_steps = triplet_differences(P, triplets), 100_000
    w, exact = exact_weights(Z, beta)
    weights, history = dual_averaging(P, triplets, beta, n_steps=n_steps, random_state=0)
    # eq. (scml-rate): how near a run comes depends on how long the best weights are
    square, gamma = np.mean(np.sum(Z**2, axis=1)), scaled_gamma(P, triplets)
    bound = (gamma / 2 * (w @ w) + square / gamma) / np.sqrt(n_steps)
    assert exact - 1e-9 <= history.min() <= exact + bound / 5
    assert scml_objective(weights, P, triplets, beta) == pytest.approx(history.min(), rel=1e-10)


def test_units_and_copies_of_directions():
    _, _, triplets, P = problem()
    w, history = dual_averaging(P, triplets, 0.01, n_steps=500, random_state=0)
    scaled, same = dual_averaging(8 * P, triplets, 64 * 0.01, n_steps=500, random_state=0)
    np.testing.assert_allclose(64 * scaled, w, rtol=1e-9)
    np.testing.assert_allclose(same, history, rtol=1e-9)
    copies, same = dual_averaging(np.tile(P, 4), triplets, 0.01, n_steps=500, random_state=0)
    np.testing.assert_allclose(copies.reshape(4, -1).sum(axis=0), w, rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(same, history, rtol=1e-7)


def test_a_large_penalty_gives_zero_weights():
    _, _, triplets, P = problem()
    top = np.max(-triplet_differences(P, triplets).mean(axis=0))
    weights, history = dual_averaging(P, triplets, 50 * top, n_steps=200, random_state=0)
    np.testing.assert_array_equal(weights, 0)
    assert history.min() == 1.0


def test_the_largest_penalty_is_where_the_linear_program_drops_all_weights():
    X, y = rows_of(45, 6, 3)
    learner = SCML(n_basis=14, n_steps=200, random_state=0).fit(X, y)
    Z = triplet_differences(X @ learner.basis_.T, nearest_triplets(X, y))
    assert exact_minimum(Z, 0.99 * learner.beta_max_) < 1 - 1e-5
    assert exact_minimum(Z, 1.01 * learner.beta_max_) == pytest.approx(1.0, abs=1e-9)
    P = X @ learner.basis_.T
    expected = np.mean([(P[i] - P[j]) ** 2 - (P[i] - P[k]) ** 2 for i, j, k in
                        nearest_triplets(X, y)], axis=0)  # fmt: skip
    np.testing.assert_allclose(mean_difference(P, nearest_triplets(X, y)), expected)
    (one,) = triplet_differences(P, nearest_triplets(X, y)[:1])
    np.testing.assert_allclose(mean_difference(P, nearest_triplets(X, y)[:1]), one)


@pytest.mark.parametrize("c", [1e-3, 1 / 4080, 1 / 3, 7.0, 1e3])
@pytest.mark.parametrize("beta", [1e-5, 0.3])
def test_a_penalty_has_no_units(c, beta):
    X, y = rows_of(60, 5, 3)
    held = clone(SMALL).set_params(beta=beta, n_steps=2000).fit(X, y)
    moved = clone(SMALL).set_params(beta=beta, n_steps=2000).fit(c * X, y)
    np.testing.assert_allclose(moved.beta_max_, c**2 * held.beta_max_)
    M = held.metric_.to_dense()
    assert M.any()
    np.testing.assert_allclose(c**2 * moved.metric_.to_dense(), M, atol=1e-9 * abs(M).max())
    np.testing.assert_allclose(moved.objective_history_, held.objective_history_)


def test_grey_levels_of_any_range_give_a_metric():
    X, y = load_digits(n_class=4, return_X_y=True)
    learner = clone(SMALL).set_params(n_steps=2000).fit(X[:80] / 4080, y[:80])  # 0 to 1 / 255
    assert learner.objective_history_.min() < 0.5


def test_no_step_that_helps_is_said():
    X, y = rows_of(45, 6, 3)
    silent = []
    for seed in range(30):  # at so large a penalty the draws decide whether a step helps
        learner = clone(SMALL).set_params(beta=0.99, n_steps=20, random_state=seed)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            learner.fit(X, y)
        helped = learner.objective_history_.min() < 1
        assert learner.metric_.to_dense().any() == helped
        if not helped:
            (warning,) = caught
            assert warning.category is ConvergenceWarning
            assert re.search("n_steps=20.*raise n_steps or lower beta", str(warning.message))
        silent.append(not caught)
        assert silent[-1] == helped
    assert not all(silent)
    assert any(silent)


def test_fit_stores_a_factored_distance():
    X, y = rows_of(60, 5, 3)
    learner = clone(SMALL).set_params(n_steps=2000).fit(X, y)
    assert learner.metric_type == "distance"
    assert learner.basis_.shape == (12, 5)
    assert learner.weights_.min() >= 0
    M = learner.basis_.T @ np.diag(learner.weights_) @ learner.basis_
    np.testing.assert_allclose(learner.metric_.to_dense(), M, atol=1e-10)
    assert learner.n_triplets_ == 60 * 30
    assert learner.objective_history_.min() < 1
    np.testing.assert_allclose(
        triplet_loss(learner.metric_, X, nearest_triplets(X, y), "distance")
        + 1e-5 * learner.beta_max_ * learner.weights_.sum(),
        learner.objective_history_.min(),
    )
    embedded = learner.transform(X)
    gap = X[3] - X[17]
    assert np.sum((embedded[3] - embedded[17]) ** 2) == pytest.approx(gap @ M @ gap)


def test_default_size_of_the_basis():
    X, y = rows_of(300, 6, 2)
    assert SCML(n_steps=1, random_state=0).fit(X, y).basis_.shape == (100, 6)
    X, y = rows_of(300, 12, 8)
    assert SCML(n_steps=1, random_state=0).fit(X, y).basis_.shape == (140, 12)


def test_default_size_of_the_basis_of_triplets():
    X, y = rows_of(90, 4, 3)
    triplets = nearest_triplets(X, y)
    plain = SCML(n_steps=50, random_state=0).fit_triplets(triplets, X)
    given = SCML(n_basis=100, n_steps=50, random_state=0).fit_triplets(triplets, X)
    assert len(SCML(101, n_steps=50, random_state=0).fit_triplets(triplets, X).basis_) == 101
    np.testing.assert_array_equal(plain.basis_, given.basis_)


def test_learns_to_ignore_noise():
    rng = np.random.default_rng(0)
    y = np.arange(240) % 6
    X = np.c_[2.0 * rng.standard_normal((6, 4))[y] + 0.3 * rng.standard_normal((240, 4)),
              3.0 * rng.standard_normal((240, 12))]  # fmt: skip
    M = SCML(n_steps=3000, random_state=0).fit(X, y).metric_.to_dense()
    assert np.diag(M)[:4].mean() > 5 * np.diag(M)[4:].mean()


def test_same_bits_whatever_the_labels_layout_or_global_state():
    X, y = rows_of(26, 5, 2)
    X.setflags(write=False)
    expected = clone(SMALL).fit(X, y).weights_
    np.random.seed(4)  # noqa: NPY002 - the global state must not matter
    for labels in (["cat", "dog"], [True, False], [7, 9], ["b", "B"]):
        named = np.array(labels, dtype=object)[y] if labels[0] == "cat" else np.array(labels)[y]
        np.testing.assert_array_equal(clone(SMALL).fit(X, named).weights_, expected)
    wide = np.zeros((26, 10))
    wide[:, ::2] = X
    for form in (np.asfortranarray(X), wide[:, ::2], X.tolist(), sparse.csr_array(X)):
        np.testing.assert_allclose(clone(SMALL).fit(form, y).weights_, expected, rtol=1e-6)


def test_float32_and_csr_of_many_features():
    X, y = rows_of(30, 5, 2)
    a, b = clone(SMALL).fit(X, y), clone(SMALL).fit(X.astype(np.float32), y)
    np.testing.assert_allclose(a.weights_, b.weights_, rtol=1e-3, atol=1e-3)
    rng = np.random.default_rng(0)
    wide = sparse.random_array((60, 100_000), density=1e-3, rng=rng, format="csr")
    learner = clone(SMALL).fit(wide, np.arange(60) % 2)
    assert learner.metric_.n_features == 100_000
    assert np.isfinite(learner.transform(wide)).all()


def test_easy_duplicate_and_degenerate_rows():
    rng = np.random.default_rng(0)
    y = np.arange(20) % 2
    far = 1e3 * y[:, None] + 0.01 * rng.standard_normal((20, 3))
    learner = clone(SMALL).fit(far, y)
    assert np.isfinite(learner.weights_).all()
    X, y = rows_of(12, 4, 3)
    assert np.isfinite(clone(SMALL).fit(np.repeat(X, 3, axis=0), np.repeat(y, 3)).weights_).all()
    with pytest.warns(ConvergenceWarning, match="the metric is zero"):
        same = clone(SMALL).fit(np.ones((6, 4)), [0, 0, 0, 1, 1, 1])
    assert same.basis_.shape == (0, 4)
    np.testing.assert_array_equal(same.metric_.to_dense(), np.zeros((4, 4)))
    mixed = np.c_[X, np.ones(12)]
    mixed[::2] *= 1e4
    mixed[1::2] *= 1e-4
    assert np.isfinite(clone(SMALL).fit(mixed, y).metric_.to_dense()).all()


def test_lone_rows_and_the_smallest_input():
    learner = clone(SMALL).fit([[0.0, 1.0], [0.5, 1.0], [3.0, 0.0]], ["a", "a", "b"])
    assert learner.n_triplets_ == 2  # the lone row is no anchor, only an impostor
    wide, y = rows_of(6, 50, 2)
    assert clone(SMALL).fit(wide, y).metric_.factor.shape[0] <= 12


@pytest.mark.parametrize(
    ("X", "y", "said"),
    [
        (np.eye(3), ["a"] * 3, "3 samples of 1 classes"),
        (np.eye(3), ["a", "b", "c"], "no similar pair"),
        (np.eye(2), [0, 1], "minimum of 3"),
        (np.zeros((0, 3)), [], "minimum of 3"),
        (np.eye(4), [0, 0, 1], "inconsistent"),
        (np.array([[1.0, np.nan], [0, 1], [1, 1]]), [0, 0, 1], r"X\[0, 1\] is nan"),
        (np.array([[1.0, 0], [0, 1], [np.inf, 1]]), [0, 0, 1], r"X\[2, 0\] is inf"),
    ],
)
def test_clear_errors_leave_no_trace(X, y, said):
    fitted = clone(SMALL).fit(*rows_of(20, 4, 2))
    kept = pickle.dumps(fitted.weights_)
    with pytest.raises(ValueError, match=said):
        fitted.fit(X, y)
    assert pickle.dumps(fitted.weights_) == kept
    with pytest.raises(ValueError, match=said):
        clone(SMALL).fit(X, y)


@pytest.mark.parametrize(
    ("name", "bad"),
    [(n, b) for n in ("n_basis", "n_steps", "n_targets", "n_impostors") for b in (0, -1, 1.5, "2")]
    + [("beta", b) for b in (-1e-3, 1, 10.0, np.nan, np.inf, "a", None, True)]
    + [("gamma", b) for b in (0, -1, np.nan, "a")],
)
def test_clear_errors_for_parameters(name, bad):
    learner = clone(SMALL).set_params(**{name: bad})
    with pytest.raises(ValueError, match=f"{name}={bad!r}"):
        learner.fit(*rows_of(20, 4, 2))
    assert not hasattr(learner, "n_features_in_")


@pytest.mark.parametrize(("name", "bad"), [("beta", -0.1), ("gamma", 0.0), ("n_steps", 0)])
def test_dual_averaging_refuses_what_no_step_can_use(name, bad):
    _, _, triplets, P = problem()
    with pytest.raises(ValueError, match=f"{name}={bad!r}"):
        dual_averaging(P, triplets, **{"beta": 0.1, name: bad})


def test_column_labels_warn_and_unfitted_raises():
    X, y = rows_of(20, 4, 2)
    with pytest.warns(DataConversionWarning):
        learner = clone(SMALL).fit(X, y[:, None])
    np.testing.assert_array_equal(learner.weights_, clone(SMALL).fit(X, y).weights_)
    with pytest.raises(NotFittedError):
        clone(SMALL).transform(X)


def test_pickle_and_copies():
    X, y = rows_of(20, 4, 2)
    learner = clone(SMALL)
    assert learner.fit(X, y) is learner
    for other in (pickle.loads(pickle.dumps(learner)), copy.deepcopy(learner)):
        np.testing.assert_array_equal(other.transform(X), learner.transform(X))
    np.testing.assert_array_equal(clone(learner).fit(X, y).weights_, learner.weights_)


def test_a_fit_that_fails_leaves_the_learner_as_it_was():
    X, y = make_blobs(30, n_features=4, random_state=0)
    model = SCML(n_basis=10, n_steps=200, random_state=0).fit(X, y)
    before, answers = dict(vars(model)), model.transform(X)
    for bad in (np.zeros(30), np.arange(30), [None, *y[1:]], y[1:]):
        with pytest.raises(ValueError, match=r"y|inconsistent"):
            model.fit(np.c_[X, X], bad)
        assert vars(model).keys() == before.keys()
        assert all(vars(model)[name] is before[name] for name in before)
    np.testing.assert_array_equal(model.transform(X), answers)
    assert model.fit(X, y) is model


@pytest.mark.parametrize(
    "names", [["b", "a", "c"], [b"b", b"a", b"c"], [0.5, 1.5, -2.5], [1, "a", b"c"], [3, 1, 2]]
)
def test_labels_are_names_of_any_type(names):
    X, y = make_blobs(30, n_features=4, random_state=0)
    plain = SCML(n_basis=10, n_steps=200, random_state=0).fit(X, y).metric_.to_dense()
    labels = np.empty(3, dtype=object)
    labels[:] = names
    for form in (labels[y], labels[y].tolist()):
        found = SCML(n_basis=10, n_steps=200, random_state=0).fit(X, form).metric_.to_dense()
        np.testing.assert_array_equal(found, plain)


def test_sparse_rows_with_long_indices():
    X, y = make_blobs(30, n_features=4, random_state=0)
    long = sparse.csr_array(X)
    long.indices, long.indptr = long.indices.astype(np.int64), long.indptr.astype(np.int64)
    found, plain = (
        SCML(n_basis=10, n_steps=200, random_state=0).fit(rows, y).metric_.to_dense()
        for rows in (long, sparse.csr_array(X))
    )
    np.testing.assert_array_equal(found, plain)
    assert long.indices.dtype == np.int64


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, np.float32("nan")])
@pytest.mark.parametrize("dtype", [float, object])
def test_a_missing_label_is_named_by_its_row(bad, dtype):
    X, y = rows_of(20, 4, 2)
    y = y.astype(dtype)
    y[5] = bad
    with pytest.raises(ValueError, match=r"y\[5\] is"):
        clone(SMALL).fit(X, y)


def test_a_continuous_target_is_refused():
    X, _ = rows_of(40, 4, 2)
    y = np.random.default_rng(0).normal(size=40)
    y[1] = y[0]
    with pytest.raises(ValueError, match="continuous"):
        clone(SMALL).fit(X, y)


def test_labels_in_a_list_may_be_tuples():
    X, y = rows_of(20, 4, 2)
    found = clone(SMALL).fit(X, [[("a",), ("b", 2)][code] for code in y])
    np.testing.assert_array_equal(found.weights_, clone(SMALL).fit(X, y).weights_)
