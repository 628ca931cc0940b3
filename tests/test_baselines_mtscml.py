"""Multi-task SCML against loops, general solvers, cutting planes and awkward inputs."""

import copy
import pickle

import numpy as np
import pytest
from scipy import optimize, sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from lml.baselines.mtscml import (
    MultiTaskSCML,
    group_shrink,
    joint_dual_averaging,
    joint_objective,
)
from lml.evaluation import LifelongKNeighborsClassifier
from lml.fisher import local_fisher_basis
from lml.scml import (
    SCML,
    dual_averaging,
    mean_difference,
    scaled_gamma,
    scml_objective,
    triplet_differences,
)
from lml.triplets import nearest_triplets, triplet_loss

SMALL = MultiTaskSCML(n_basis=8, n_steps=360, random_state=0)


def table(sizes=(24, 30, 18), D=5, classes=3, seed=0):
    """Tasks whose classes differ in different features."""
    rng = np.random.default_rng(seed)
    X, y, tasks = [], [], []
    for t, n in enumerate(sizes):
        y.append(np.arange(n) % classes)
        means = rng.standard_normal((classes, D)) * np.where(np.arange(D) % len(sizes) == t, 0, 1.5)
        X.append(means[y[-1]] + rng.standard_normal((n, D)))
        tasks += [["x", 7, ("a", 1)][t]] * n
    order = rng.permutation(sum(sizes))
    return np.vstack(X)[order], np.concatenate(y)[order], [tasks[i] for i in order]


def problem(sizes=(24, 30), K=9, seed=0):
    X, y, tasks = table(sizes, seed=seed)
    own = [np.array([task == name for task in tasks]) for name in ("x", 7, ("a", 1))[: len(sizes)]]
    F = np.random.default_rng(seed).standard_normal((K, X.shape[1]))
    P = [X[rows] @ F.T for rows in own]
    triplets = [nearest_triplets(X[rows], y[rows], 2, 3 + t) for t, rows in enumerate(own)]
    return P, triplets, [triplet_differences(*pair) for pair in zip(P, triplets, strict=True)]


def bounds(Z, beta, rounds=60):
    """Lower and upper bound of the minimum by linear programs with cutting planes; weights."""
    (T, K), sizes = (len(Z), Z[0].shape[1]), [len(z) for z in Z]
    n, best = sum(sizes), np.inf
    cost = np.concatenate(
        [np.zeros(T * K), np.full(K, beta), *(np.full(m, 1 / T / m) for m in sizes)]
    )
    cuts, hinge = [np.full((T, K), T**-0.5)], sparse.block_diag(Z)
    hinge = sparse.hstack([hinge, sparse.csr_array((n, K)), -sparse.eye_array(n)])
    for _ in range(rounds):
        rows = [hinge]
        for cut in cuts:
            left = sparse.hstack([sparse.diags_array(a) for a in cut])
            rows.append(sparse.hstack([left, -sparse.eye_array(K), sparse.csr_array((K, n))]))
        b = np.concatenate([-np.ones(n), np.zeros(K * len(cuts))])
        found = optimize.linprog(cost, sparse.vstack(rows).tocsr(), b, method="highs")
        W = found.x[: T * K].reshape(T, K)
        value = np.mean([np.maximum(1 + z @ w, 0).mean() for z, w in zip(Z, W, strict=True)])
        value = value + beta * np.sqrt((W**2).sum(axis=0)).sum()
        if value < best:
            best, weights = value, W
        if best - found.fun < 1e-3 * best:
            break
        norms = np.linalg.norm(W, axis=0)
        cuts.append(np.where(norms > 0, W / np.where(norms > 0, norms, 1), T**-0.5))
    return found.fun, best, weights


def test_objective_by_loops():
    P, triplets, _ = problem()
    W = np.random.default_rng(1).exponential(0.1, size=(2, 9))
    W[0, 2] = W[1, 5] = 0
    total = 0.0
    for t in range(2):
        for i, j, k in triplets[t]:
            gap = sum(
                W[t, q] * ((P[t][i, q] - P[t][j, q]) ** 2 - (P[t][i, q] - P[t][k, q]) ** 2)
                for q in range(9)
            )
            total += max(0.0, 1 + gap) / len(triplets[t]) / 2
    penalty = sum((W[0, q] ** 2 + W[1, q] ** 2) ** 0.5 for q in range(9))
    assert joint_objective(W, P, triplets, 0.7) == pytest.approx(total + 0.7 * penalty)
    assert joint_objective(np.zeros((2, 9)), P, triplets, 0.7) == 1.0
    one = joint_objective(W[:1], P[:1], triplets[:1], 0.7)
    assert one == pytest.approx(scml_objective(W[0], P[0], triplets[0], 0.7))


@pytest.mark.parametrize("seed", range(4))
def test_shrink_is_the_minimizer(seed):
    rng = np.random.default_rng(seed)
    V, strength = 2 * rng.standard_normal((3, 5)), 0.9

    def value(u):
        U = u.reshape(3, 5)
        return np.sum((U - V) ** 2) / 2 + strength * np.sqrt((U**2).sum(axis=0)).sum()

    U = group_shrink(V, strength)
    assert U.min() >= 0
    found = optimize.minimize(value, np.ones(15), bounds=[(0, None)] * 15, tol=1e-13)
    np.testing.assert_allclose(U.ravel(), found.x, atol=3e-3)
    assert value(U.ravel()) <= found.fun + 1e-9
    for _ in range(200):  # no feasible point nearby is better
        near = np.maximum(U + 0.05 * rng.standard_normal(U.shape), 0)
        assert value(near.ravel()) >= value(U.ravel()) - 1e-12


def test_shrink_clips_first():
    np.testing.assert_allclose(group_shrink([[3.0, 1.0], [-4.0, -4.0]], 2.0), [[1, 0], [0, 0]])
    V = np.random.default_rng(0).standard_normal((1, 50))
    np.testing.assert_allclose(group_shrink(V, 0.4), np.maximum(V - 0.4, 0))
    np.testing.assert_array_equal(group_shrink(np.zeros((2, 3)), 0.0), np.zeros((2, 3)))
    np.testing.assert_array_equal(group_shrink(-np.abs(V), 0.0), np.zeros(V.shape))
    np.testing.assert_allclose(group_shrink(V, 0.0), np.maximum(V, 0))


@pytest.mark.parametrize(("beta", "gamma"), [(0.05, 0.3), (0.0, 2.0), (0.4, 5.0)])
def test_weights_are_those_of_the_textbook_recursion(beta, gamma):
    P, triplets, Z = problem((24, 30, 18))
    weights, history = joint_dual_averaging(P, triplets, beta, gamma, 600, random_state=3)
    rng = np.random.RandomState(3)
    tasks = rng.randint(3, size=600)
    choices = rng.randint(np.array([len(z) for z in Z])[tasks])
    W, G, best = np.zeros((3, 9)), np.zeros((3, 9)), (1.0, np.zeros((3, 9)))
    for s, (t, choice) in enumerate(zip(tasks, choices, strict=True), start=1):
        now = np.zeros((3, 9))
        if 1 + W[t] @ Z[t][choice] > 0:
            now[t] = Z[t][choice]
        G = G + (now - G) / s
        for q in range(9):
            v = np.maximum(-G[:, q], 0)
            length = np.sqrt(v @ v)
            W[:, q] = np.sqrt(s) / gamma * max(1 - beta / length, 0) * v if length > 0 else 0 * v
        if s % 50 == 0:
            hinges = [np.maximum(1 + z @ w, 0).mean() for z, w in zip(Z, W, strict=True)]
            value = np.mean(hinges) + beta * np.linalg.norm(W, axis=0).sum()
            best = min(best, (value, W.copy()), key=lambda pair: pair[0])
    np.testing.assert_allclose(weights, best[1], atol=1e-8)
    assert history.min() == pytest.approx(best[0], rel=1e-8)
    assert history.shape == (13,)
    assert history[0] == 1.0


def test_one_task_is_scml():
    (P,), (triplets,), _ = problem((40,))
    _, joint = joint_dual_averaging([P], [triplets], 0.02, n_steps=6000, random_state=5)
    _, single = dual_averaging(P, triplets, 0.02, n_steps=6000, random_state=5)
    np.testing.assert_allclose(joint[3::3], single[5::5])  # each quarter
    X, y, _ = table((40,))
    own = SCML(n_basis=8, beta=1e-4, n_steps=6000, random_state=5).fit(X, y)
    learner = MultiTaskSCML(n_basis=8, n_steps=6000, random_state=5).fit(X, y, tasks=["a"] * 40)
    np.testing.assert_array_equal(learner.basis_, own.basis_)
    assert learner.gamma_ == pytest.approx(own.gamma_)
    assert learner.beta_max_ == pytest.approx(own.beta_max_)
    np.testing.assert_allclose(learner.objective_history_[3::3], own.objective_history_[5::5])


@pytest.mark.parametrize("beta", [0.2, 0.05])
def test_comes_near_the_minimum(beta):
    P, triplets, Z = problem()
    low, high, best = bounds(Z, beta)
    assert low <= high <= 1.002 * low
    n_steps = 40_000
    weights, history = joint_dual_averaging(P, triplets, beta, n_steps=n_steps, random_state=0)
    gamma = np.mean([scaled_gamma(*pair) for pair in zip(P, triplets)]) / np.sqrt(2)
    # a step of this problem is one of SCML in all weights, so that eq. (scml-rate) holds
    square = np.mean([np.sum(z**2, axis=1).mean() for z in Z])
    bound = (gamma / 2 * np.sum(best**2) + square / gamma) / np.sqrt(n_steps)
    assert low - 1e-9 <= history.min() <= high + bound / 5
    assert joint_objective(weights, P, triplets, beta) == pytest.approx(history.min(), rel=1e-10)


def test_smallest_penalty_without_weights():
    P, triplets, Z = problem()
    means = np.maximum(-np.array([z.mean(axis=0) for z in Z]), 0) / 2
    top = np.linalg.norm(means, axis=0).max()
    assert bounds(Z, 1.02 * top)[0] > 1 - 1e-3  # the lower bound
    assert bounds(Z, 0.9 * top)[1] < 1 - 2e-3  # the upper bound
    weights, history = joint_dual_averaging(P, triplets, 60 * top, n_steps=600, random_state=0)
    np.testing.assert_array_equal(weights, 0)
    assert history.min() == 1.0


def test_units_and_copies_of_directions():
    P, triplets, _ = problem()
    W, history = joint_dual_averaging(P, triplets, 0.01, n_steps=600, random_state=0)
    scaled, same = joint_dual_averaging(
        [8 * own for own in P], triplets, 64 * 0.01, n_steps=600, random_state=0
    )
    np.testing.assert_allclose(64 * scaled, W, rtol=1e-9)
    np.testing.assert_allclose(same, history, rtol=1e-9)
    copies, same = joint_dual_averaging(
        [np.tile(own, 3) for own in P], triplets, 0.01, n_steps=600, random_state=0
    )
    np.testing.assert_allclose(copies.reshape(2, 3, -1).sum(axis=1), W, rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(same, history, rtol=1e-7)


def test_blocks_do_not_matter():
    P, triplets, _ = problem()
    wide = [np.tile(own, 3000) for own in P]  # 27,000 directions: ten steps a block
    W, _ = joint_dual_averaging(P, triplets, 0.01, n_steps=240, random_state=0)
    copies, _ = joint_dual_averaging(wide, triplets, 0.01, n_steps=240, random_state=0)
    np.testing.assert_allclose(copies.reshape(2, 3000, -1).sum(axis=1), W, rtol=1e-6)


def test_more_directions_than_a_block_has_numbers():
    P, triplets, _ = problem((8, 10))
    W, history = joint_dual_averaging(P, triplets, 1e-4, 300.0, n_steps=40, random_state=0)
    wide = [np.pad(own, ((0, 0), (0, 2**18))) for own in P]  # one step a block
    found, same = joint_dual_averaging(wide, triplets, 1e-4, 300.0, n_steps=40, random_state=0)
    np.testing.assert_allclose(found[:, :9], W, rtol=1e-12)
    np.testing.assert_allclose(same, history, rtol=1e-12)
    assert W.any()
    assert not found[:, 9:].any()


def test_as_many_tasks_have_samples_as_have_triplets():
    P, triplets = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]]), np.array([[0, 1, 2]])
    for samples, given in (([P, P], [triplets]), ([P], [triplets, triplets])):
        with pytest.raises(ValueError, match="argument 2 is"):
            joint_dual_averaging(samples, given, 0.01, gamma=1.0, n_steps=12)


@pytest.mark.parametrize("c", [1e-3, 1 / 4080, 7.0, 1e3])
def test_a_penalty_has_no_units(c):
    X, y, tasks = table()
    held, moved = (
        clone(SMALL).set_params(beta=0.1, n_steps=3000).fit(a * X, y, tasks=tasks) for a in (1.0, c)
    )
    np.testing.assert_allclose(moved.beta_max_, c**2 * held.beta_max_)
    np.testing.assert_allclose(c**2 * moved.weights_, held.weights_, atol=1e-9)


def test_the_fraction_does_not_depend_on_the_number_of_tasks_that_agree():
    X, y, _ = table((200,))
    options = {"n_basis": 8, "beta": 0.2, "n_steps": 20_000, "random_state": 0}
    one = SCML(**options).fit(X, y)
    four = MultiTaskSCML(**options).fit(
        np.tile(X, (4, 1)), np.tile(y, 4), tasks=np.repeat(list("abcd"), len(X))
    )
    assert four.objective_history_.min() == pytest.approx(one.objective_history_.min(), rel=0.05)


def test_fit_stores_factored_distances():
    X, y, tasks = table()
    learner = clone(SMALL).set_params(n_steps=3000).fit(X, y, tasks=tasks)
    assert learner.tasks_ == list(learner.metrics_) == list(dict.fromkeys(tasks))
    assert learner.metric_type_ == "distance"
    assert learner.basis_.shape == (24, 5)
    assert learner.weights_.shape == (3, 24)
    assert learner.weights_.min() >= 0
    losses = []
    for w, task in zip(learner.weights_, learner.tasks_, strict=True):
        own = np.array([name == task for name in tasks])
        M = learner.basis_.T @ np.diag(w) @ learner.basis_
        np.testing.assert_allclose(learner.metric_matrix(task), M, atol=1e-12)
        T = nearest_triplets(X[own], y[own])
        losses.append(triplet_loss(learner.task_metric(task), X[own], T, "distance"))
        gap = X[3] - X[17]
        x, z = learner.transform(X[[3, 17]], task=task)
        assert np.sum((x - z) ** 2) == pytest.approx(gap @ M @ gap)
        assert learner.pair_score(X[None, [3, 17]], task=task)[0] == pytest.approx(-gap @ M @ gap)
    penalty = 1e-4 * learner.beta_max_ * np.linalg.norm(learner.weights_, axis=0).sum()
    assert np.mean(losses) + penalty == pytest.approx(learner.objective_history_.min())
    assert len({id(M.factor.base) for M in learner.metrics_.values()}) == 1  # one array


def test_basis_is_that_of_the_tasks():
    X, y, tasks = table()
    learner = clone(SMALL).fit(X, y, tasks=tasks)
    rng, names = np.random.RandomState(0), list(dict.fromkeys(tasks))
    for t, name in enumerate(names):
        own = np.array([task == name for task in tasks])
        expected = local_fisher_basis(X[own], y[own], 8, random_state=rng)
        np.testing.assert_array_equal(learner.basis_[8 * t : 8 * t + 8], expected)
    X, y, tasks = table((30, 30, 30))
    sized = clone(SMALL).set_params(n_basis=None).fit(X, y, tasks=tasks)
    assert sized.basis_.shape == (300, 5)
    X, y, tasks = table((56, 56), classes=7)  # 20 directions for each class but one
    sized = clone(SMALL).set_params(n_basis=None).fit(X, y, tasks=tasks)
    assert sized.basis_.shape == (240, 5)


def test_the_penalty_shares_directions():
    X, y, tasks = table((45, 45, 45))
    names = list(dict.fromkeys(tasks))
    joint = MultiTaskSCML(n_basis=10, beta=0.03, n_steps=9000, random_state=0)
    used = joint.fit(X, y, tasks=tasks).weights_ > 0
    alone = []
    for name in names:
        own = np.array([task == name for task in tasks])
        P, T = X[own] @ joint.basis_.T, nearest_triplets(X[own], y[own])
        beta = 0.03 * np.max(-mean_difference(P, T))
        alone.append(dual_averaging(P, T, beta, n_steps=3000, random_state=0)[0] > 0)
    together, apart = used.sum(axis=0), np.sum(alone, axis=0)
    assert together[together > 0].mean() > apart[apart > 0].mean()


def test_works_with_the_classifier_and_labels_of_any_type():
    X, y, tasks = table((60, 60))
    learner = MultiTaskSCML(n_basis=10, n_steps=3000, random_state=0).fit(X, y, tasks=tasks)
    own = np.flatnonzero([task == 7 for task in tasks])
    known, asked = own[:30], own[30:]
    knn = LifelongKNeighborsClassifier(learner, n_neighbors=1).fit(X[known], y[known], task=7)
    gaps = X[asked, None] - X[known]
    nearest = np.einsum("qri,ij,qrj->qr", gaps, learner.task_metric(7).to_dense(), gaps).argmin(1)
    np.testing.assert_array_equal(knn.predict(X[asked], task=7), y[known][nearest])
    for names in (["b", "B", "c"], [("p", 1), ("p", 2), None.__class__], [2.5, "2.5", 7]):
        labels = [names[label] for label in y]
        other = MultiTaskSCML(n_basis=10, n_steps=3000, random_state=0)
        other.fit(X, labels, tasks=tasks)
        np.testing.assert_array_equal(other.weights_, learner.weights_)
    coincide = [label if task == 7 else -label for label, task in zip(y, tasks, strict=True)]
    other.fit(X, coincide, tasks=tasks)  # labels are compared within a task only
    np.testing.assert_array_equal(other.weights_, learner.weights_)


def test_same_bits_whatever_the_layout_or_global_state():
    X, y, tasks = table()
    X.setflags(write=False)
    expected = clone(SMALL).fit(X, y, tasks=tasks).weights_
    np.random.seed(4)  # noqa: NPY002 - the global state must not matter
    np.testing.assert_array_equal(clone(SMALL).fit(X, y, tasks=tasks).weights_, expected)
    wide = np.zeros((len(X), 10))
    wide[:, ::2] = X
    for form in (np.asfortranarray(X), wide[:, ::2], X.tolist(), sparse.csr_array(X)):
        other = clone(SMALL).fit(form, y, tasks=tuple(tasks)).weights_
        np.testing.assert_allclose(other, expected, rtol=1e-6)
    single = clone(SMALL).fit(X.astype(np.float32), y, tasks=tasks).weights_
    np.testing.assert_allclose(single, expected, rtol=1e-3, atol=1e-3)


def test_csr_of_many_features():
    rng = np.random.default_rng(0)
    X = sparse.random_array((60, 100_000), density=1e-3, rng=rng, format="csr")
    learner = clone(SMALL).fit(X, np.arange(60) % 2, tasks=np.arange(60) // 30)
    assert learner.task_metric(1).n_features == 100_000
    assert np.isfinite(learner.transform(X, task=0)).all()


def test_easy_duplicate_and_degenerate_rows():
    rng = np.random.default_rng(0)
    y, tasks = np.arange(24) % 2, np.arange(24) // 12
    far = 1e3 * y[:, None] + 0.01 * rng.standard_normal((24, 3))
    assert np.isfinite(clone(SMALL).fit(far, y, tasks=tasks).weights_).all()
    X = rng.standard_normal((24, 3))
    thrice = clone(SMALL).fit(np.repeat(X, 3, axis=0), np.repeat(y, 3), tasks=np.repeat(tasks, 3))
    assert np.isfinite(thrice.weights_).all()
    with pytest.warns(ConvergenceWarning, match=r"metrics of the tasks \[0, 1\] are zero"):
        constant = clone(SMALL).fit(np.ones((24, 3)), y, tasks=tasks)
    np.testing.assert_array_equal(constant.metric_matrix(0), np.zeros((3, 3)))
    one = X.copy()
    one[tasks == 0] = 1.0  # a task without any direction uses those of the other
    with pytest.warns(ConvergenceWarning, match=r"of the tasks \[0\]"):
        learner = clone(SMALL).fit(one, y, tasks=tasks)
    assert learner.weights_[1].max() > 0
    np.testing.assert_array_equal(learner.weights_[0], 0)
    wide = clone(SMALL).fit(rng.standard_normal((24, 50)), y, tasks=tasks)
    assert np.isfinite(wide.transform(rng.standard_normal((2, 50)), task=1)).all()


@pytest.mark.parametrize(
    ("X", "y", "tasks", "said"),
    [
        (np.eye(6), [0, 1, 1, 0, 0, 0], "aaabbb", "y of task 'b' has 3 samples of 1 classes"),
        (np.eye(6), [0, 1, 1, 0, 1, 2], "aaabbb", "y of task 'b' has 3 samples of 3 classes"),
        (np.eye(6), [0, 1, 1, 0, 0, 1], "aaaabb", "y of task 'b' has 2 samples of 2 classes"),
        (np.eye(6), [0, 1, 1, 0, 0], "aaabbb", r"numbers of samples: \[6, 5, 6\]"),
        (np.eye(6), [0, 1, 1, 0, 0, 1], "aaabb", r"numbers of samples: \[6, 6, 5\]"),
        (np.diag([1, 1, np.nan, 1, 1, 1]), [0, 1, 1, 0, 0, 1], "aaabbb", r"X\[2, 2\] is nan"),
        (np.zeros((0, 2)), [], "", "X has 0 samples"),
    ],
)
def test_clear_errors_leave_no_trace(X, y, tasks, said):
    fitted = clone(SMALL).fit(*table()[:2], tasks=table()[2])
    kept = vars(fitted).copy()
    with pytest.raises(ValueError, match=said):
        fitted.fit(X, y, tasks=list(tasks))
    assert vars(fitted) == kept
    fresh = clone(SMALL)
    with pytest.raises(ValueError, match=said):
        fresh.fit(X, y, tasks=list(tasks))
    assert not hasattr(fresh, "n_features_in_")


@pytest.mark.parametrize(
    ("name", "bad"),
    [(n, b) for n in ("n_basis", "n_steps", "n_targets", "n_impostors") for b in (0, -1, 1.5, "2")]
    + [("beta", b) for b in (-1e-3, 1, 10.0, np.nan, np.inf, "a", None, True)]
    + [("gamma", b) for b in (0, -1, np.nan, "a")],
)
def test_clear_errors_for_parameters(name, bad):
    X, y, tasks = table()
    learner = clone(SMALL).set_params(**{name: bad})
    with pytest.raises(ValueError, match=f"{name}={bad!r}"):
        learner.fit(X, y, tasks=tasks)
    assert not hasattr(learner, "metrics_")


def test_unknown_tasks_and_unfitted():
    X, y, tasks = table()
    with pytest.raises(NotFittedError):
        clone(SMALL).transform(X, task="x")
    learner = clone(SMALL).fit(X, y, tasks=tasks)
    with pytest.raises(ValueError, match="'z' is not known; known tasks"):
        learner.transform(X, task="z")


def test_pickle_copies_and_fitting_again():
    X, y, tasks = table()
    learner = clone(SMALL)
    assert learner.fit(X, y, tasks=tasks) is learner
    for other in (pickle.loads(pickle.dumps(learner)), copy.deepcopy(learner)):
        np.testing.assert_array_equal(other.transform(X, task=7), learner.transform(X, task=7))
    again = clone(learner).fit(X, y, tasks=tasks)
    np.testing.assert_array_equal(again.weights_, learner.weights_)
    learner.fit(X[:, :3], y, tasks=tasks)
    assert learner.n_features_in_ == 3


def test_a_bar_counts_the_steps_and_changes_nothing(capsys):
    X, y, names = table()
    quiet = MultiTaskSCML(n_basis=5, n_steps=250, random_state=0).fit(X, y, tasks=names)
    assert capsys.readouterr().err == ""
    told = MultiTaskSCML(n_basis=5, n_steps=250, random_state=0, verbose=True)
    told.fit(X, y, tasks=names)
    assert "250/250" in capsys.readouterr().err
    np.testing.assert_array_equal(told.weights_, quiet.weights_)
    with pytest.raises(ValueError, match="verbose=2"):
        told.set_params(verbose=2).fit(X, y, tasks=names)
