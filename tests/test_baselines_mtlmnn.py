"""Multi-task LMNN against loops, finite differences, a general solver and odd inputs."""

import copy
import pickle
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import optimize, sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from lml.baselines.mtlmnn import (
    JointProblem,
    MultiTaskLMNN,
    TaskLoss,
    _spectral_steps,
    minimize_joint,
    target_table,
)
from lml.evaluation import LifelongKNeighborsClassifier
from lml.metrics import FactoredMetric
from lml.penalties import nearest_psd

CONSTRAINTS = ("parts", "totals")
EXACT = {"tol": 1e-9, "max_iter": 5000, "scale": 1.0}


def rows_of(n, D, seed, classes=2):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    return rng.standard_normal((classes, D))[y] + rng.standard_normal((n, D)), y


def three_tasks(D=4, seed=0):
    """Three tasks of different size and number of classes, rows shuffled together."""
    parts = [rows_of(12, D, seed, 3), rows_of(9, D, seed + 1), rows_of(15, D, seed + 2, 4)]
    X, y = (np.concatenate(part) for part in zip(*parts, strict=True))
    names = np.repeat(["b", "a", "c"], [12, 9, 15])
    order = np.random.default_rng(seed).permutation(len(X))
    return X[order], y[order], names[order]


def smooth(u, h):
    return 0.0 if u <= 0 else u * u / (2 * h) if u < h else u - h / 2


def brute_targets(X, y, k):
    out = []
    for i in range(len(X)):
        same = [j for j in range(len(X)) if y[j] == y[i] and j != i]
        out.append(sorted(same, key=lambda j: np.sum((X[i] - X[j]) ** 2))[:k])
    return out


def brute_loss(S, X, y, k, mu, h):
    """Loss of one task by loops, and its number of target pairs."""
    total, targets = 0.0, brute_targets(X, y, k)
    for i, near in enumerate(targets):
        for j in near:
            d = (X[i] - X[j]) @ S @ (X[i] - X[j])
            total += (1 - mu) * d
            for other in np.flatnonzero(y != y[i]):
                u = 1 + d - (X[i] - X[other]) @ S @ (X[i] - X[other])
                total += mu * (smooth(u, h) if h else max(u, 0.0))
    return total, sum(map(len, targets))


def brute_objective(M0, totals, tasks, g0, g, k, mu, h):
    value, losses, n_pairs = g0 * np.sum((M0 - np.eye(len(M0))) ** 2), 0.0, 0
    for (X, y), S, weight in zip(tasks, totals, g, strict=True):
        loss, pairs = brute_loss(S, X, y, k, mu, h)
        value, losses, n_pairs = (
            value + weight * np.sum((S - M0) ** 2),
            losses + loss,
            n_pairs + pairs,
        )
    return value + losses / n_pairs


def small_joint(constraint, D=3, g0=0.07, g=(0.02, 0.09, 0.04), mu=0.35, h=0.3):
    tasks = [rows_of(9, D, 0, 3), rows_of(7, D, 1), rows_of(12, D, 2, 4)]
    losses = [TaskLoss(X, y, target_table(X, y, 2), mu, h) for X, y in tasks]
    return JointProblem(losses, g0, g, constraint), tasks


def random_psd(count, D, seed):
    A = np.random.default_rng(seed).standard_normal((count, D, D - 1))
    return A @ A.swapaxes(1, 2)


def test_targets_by_sorting():
    X, y = rows_of(17, 5, 3, 4)
    y[16] = 9  # alone in its class
    table = target_table(X, np.unique(y, return_inverse=True)[1], 5)
    for row, near in zip(table, brute_targets(X, y, 5), strict=True):
        assert row[row >= 0].tolist() == near
    assert (table[16] == -1).all()


@pytest.mark.parametrize("mu", [0.2, 0.8])
@pytest.mark.parametrize("h", [0.05, 1.3])
def test_task_loss_by_loops(mu, h):
    X, y = rows_of(13, 4, 5, 3)
    loss = TaskLoss(X, y, target_table(X, y, 3), mu, h)
    for S in [*random_psd(3, 4, 0), np.zeros((4, 4)), 100 * np.eye(4)]:
        value, G, hinge, _ = loss(S)
        assert value == pytest.approx(brute_loss(S, X, y, 3, mu, h)[0], rel=1e-9)
        assert hinge == pytest.approx(brute_loss(S, X, y, 3, mu, 0)[0], rel=1e-9)
        np.testing.assert_array_equal(G, G.T)


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_objective_and_gradient(constraint):
    joint, tasks = small_joint(constraint)
    V = random_psd(4 if constraint == "parts" else 3, 3, 7)
    state = joint.evaluate(V)
    M0, _ = joint.split(V)
    for value, h in ((state.objective, 0.3), (state.hinge_objective, 0.0)):
        by_loops = brute_objective(M0, joint.metrics(V), tasks, 0.07, joint.own, 2, 0.35, h)
        assert value == pytest.approx(by_loops, rel=1e-10)
    rng = np.random.default_rng(1)
    for _ in range(10):
        E = rng.standard_normal(V.shape)
        E += E.swapaxes(1, 2)
        rise = joint.evaluate(V + 1e-5 * E).objective - joint.evaluate(V - 1e-5 * E).objective
        assert np.vdot(state.gradient, E) == pytest.approx(rise / 2e-5, rel=1e-5)


def test_dense_and_sparse_coefficients_agree():
    X, y = rows_of(60, 3, 0)
    for scale in (1e-3, 30.0):  # nearly all triplets violated, and few
        loss = TaskLoss(X, y, target_table(X, y, 3), 0.5, 0.1)
        S, H = scale * np.eye(3), np.diag([1.0, -2.0, 0.5])
        rise = (loss(S + 1e-6 * H)[0] - loss(S - 1e-6 * H)[0]) / 2e-6
        assert np.vdot(loss(S)[1], H) == pytest.approx(rise, rel=1e-5)


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_every_bound_is_below_every_value(constraint):
    joint, _ = small_joint(constraint)
    blocks = 4 if constraint == "parts" else 3
    states = [
        joint.evaluate(s * random_psd(blocks, 3, seed)) for seed in range(6) for s in (0.03, 1)
    ]
    best = minimize_joint(joint, 3000, 1e-9)[1].objective
    assert max(joint.bound(state) for state in states) <= best + 1e-9
    assert best <= min(state.objective for state in states)


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_minimum_by_a_general_solver(constraint):
    joint, _ = small_joint(constraint, D=2)
    V, state, bound, history = minimize_joint(joint, 3000, 1e-9)
    assert state.objective - bound < 1e-6 * state.objective
    assert history[-1] <= history[0]

    def value(entries):
        A = entries.reshape(-1, 2, 2)
        return joint.evaluate(A @ A.swapaxes(1, 2)).objective

    first = np.random.default_rng(0).standard_normal(V.size)
    found = optimize.minimize(value, first, tol=1e-9)
    assert found.fun == pytest.approx(state.objective, rel=1e-5)


def test_a_move_that_leads_uphill_is_halved_until_it_leads_down():
    def evaluate(V):
        return SimpleNamespace(objective=float((V[0] - 0.9) ** 2), gradient=2 * (V - 0.9))

    start = np.ones(1)  # the first move leads to 0; half of it to 1/2, and so on
    steps = _spectral_steps(evaluate, lambda V: V, start, evaluate(start))
    first, state = next(steps)
    assert first.tolist() == [0.875]
    assert state.objective == pytest.approx(0.025**2)
    assert next(steps)[0] == pytest.approx(0.9)  # by the curvature that was met


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_projected_gradient_vanishes(constraint):
    joint, _ = small_joint(constraint)
    V, state, _, _ = minimize_joint(joint, 5000, 1e-12)
    moved = joint.project(V - 0.1 * state.gradient) - V
    assert np.abs(moved).max() < 1e-4
    assert np.linalg.eigvalsh(V)[:, 0].min() > -1e-12


def test_closed_form_of_the_parts():
    joint, _ = small_joint("parts")
    V, state, _, _ = minimize_joint(joint, 5000, 1e-12)
    G = state.task_gradients
    for M, A, g in zip(V[1:], G, joint.own, strict=True):
        np.testing.assert_allclose(M, nearest_psd(-A) / (2 * g), atol=2e-3)
    np.testing.assert_allclose(V[0], nearest_psd(np.eye(3) - G.sum(axis=0) / 0.14), atol=2e-3)


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_fit_gives_the_objective_it_states(constraint):
    X, y, names = three_tasks()
    penalty = {"a": 0.03, "b": 0.01, "c": 0.05}
    learner = MultiTaskLMNN(
        0.04, penalty, constraint=constraint, push_weight=0.4, scale=2.0, max_iter=5000
    )
    learner.fit(X, y, tasks=names)
    assert learner.tasks_ == list(dict.fromkeys(names.tolist()))
    order = learner.tasks_
    tasks = [(np.sqrt(2) * X[names == t], y[names == t]) for t in order]
    totals = [learner.metric_matrix(t) / 2 for t in order]
    M0 = learner.shared_metric_.to_dense() / 2
    value = brute_objective(M0, totals, tasks, 0.04, [penalty[t] for t in order], 3, 0.4, 0)
    assert learner.objective_ == pytest.approx(value, rel=1e-9)
    assert learner.dual_bound_ <= learner.objective_history_.min() <= learner.objective_
    assert learner.gap_ <= 1e-3
    for t in order:
        assert np.linalg.eigvalsh(learner.metric_matrix(t))[0] > -1e-10
    if constraint == "parts":
        for S in totals:
            assert np.linalg.eigvalsh(S - M0)[0] > -1e-10


def test_larger_set_has_the_smaller_minimum():
    X, y, names = three_tasks()
    parts, totals = (
        MultiTaskLMNN(0.05, 0.02, constraint=c, **EXACT).fit(X, y, tasks=names) for c in CONSTRAINTS
    )
    assert totals.objective_history_.min() < parts.objective_history_.min()
    taken = [
        np.linalg.eigvalsh(totals.metric_matrix(t) - totals.shared_metric_.to_dense())[0]
        for t in totals.tasks_
    ]
    assert min(taken) < -1e-3


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_limits(constraint):
    X, y, names = three_tasks(D=3)
    shared = MultiTaskLMNN(0.05, np.inf, constraint=constraint, **EXACT).fit(X, y, tasks=names)
    near = MultiTaskLMNN(0.05, 1e3, constraint=constraint, **EXACT).fit(X, y, tasks=names)
    for t in "abc":
        np.testing.assert_array_equal(shared.metric_matrix(t), shared.metric_matrix("a"))
        np.testing.assert_allclose(near.metric_matrix(t), shared.metric_matrix("a"), atol=5e-3)
    exact = EXACT | {"tol": 1e-11}  # a gap of 1e-9 leaves 4e-4 to a metric
    alone = MultiTaskLMNN(np.inf, 0.05, constraint=constraint, **exact).fit(X, y, tasks=names)
    np.testing.assert_array_equal(alone.shared_metric_.to_dense(), np.eye(3))
    pairs = {t: brute_loss(np.eye(3), X[names == t], y[names == t], 3, 0.5, 0)[1] for t in "abc"}
    for t in "abc":
        g = 0.05 * sum(pairs.values()) / pairs[t]
        one = MultiTaskLMNN(np.inf, g, constraint=constraint, **exact)
        one.fit(X[names == t], y[names == t], tasks=names[names == t])
        np.testing.assert_allclose(alone.metric_matrix(t), one.metric_matrix(t), atol=1e-4)


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_more_features_than_rows(constraint):
    X, y, names = three_tasks(D=4)
    Q = np.linalg.qr(np.random.default_rng(5).standard_normal((50, 4)))[0]
    wide = MultiTaskLMNN(constraint=constraint, **EXACT).fit(X @ Q.T + 3.0, y, tasks=names)
    narrow = MultiTaskLMNN(constraint=constraint, **EXACT).fit(X, y, tasks=names)
    complement = np.eye(50) - Q @ Q.T
    for t in "abc":
        assert wide.metrics_[t].factor.shape == (4, 50)
        M = Q @ narrow.metric_matrix(t) @ Q.T + complement
        np.testing.assert_allclose(wide.metric_matrix(t), M, atol=1e-4)


def test_units():
    X, y, names = three_tasks()
    one = MultiTaskLMNN(0.02, 0.03).fit(X, y, tasks=names)
    other = MultiTaskLMNN(0.02, 0.03).fit(64 * X + 7, y, tasks=names)
    assert one.scale_ == pytest.approx(64**2 * other.scale_)
    np.testing.assert_allclose(64**2 * other.metric_matrix("a"), one.metric_matrix("a"), atol=1e-6)


def test_the_unit_is_the_mean_squared_distance_of_the_target_pairs_of_all_tasks():
    X, y, names = three_tasks()
    squares = []
    for name in "abc":
        A, labels = X[names == name], y[names == name]
        for i, near in enumerate(brute_targets(A, labels, 2)):
            squares += [np.sum((A[i] - A[j]) ** 2) for j in near]
    learner = MultiTaskLMNN(n_targets=2, max_iter=300).fit(X, y, tasks=names)
    assert learner.scale_ == pytest.approx(1 / np.mean(squares))


def test_reading():
    X, y, names = three_tasks()
    learner = MultiTaskLMNN().fit(X, y, tasks=names)
    assert learner.metric_type_ == learner.metric_type == "distance"
    assert isinstance(learner.task_metric("a"), FactoredMetric)
    pairs = np.stack([X[:6], X[6:12]], axis=1)
    gaps, M = X[:6] - X[6:12], learner.metric_matrix("b")
    scores = learner.pair_score(pairs, task="b")
    np.testing.assert_allclose(scores, -np.einsum("ij,jk,ik->i", gaps, M, gaps))
    Z = learner.transform(X, task="b")
    np.testing.assert_allclose(np.sum((Z[:6] - Z[6:12]) ** 2, axis=1), -scores)
    assert learner.get_metric("b")(X[0], X[6], squared=True) == pytest.approx(-scores[0])
    judge = LifelongKNeighborsClassifier(learner, n_neighbors=1)
    judge.fit(X[names == "a"], y[names == "a"], task="a")
    assert judge.score(X[names == "a"], y[names == "a"], task="a") == 1.0


def test_labels_and_names_of_any_type():
    X, y, names = three_tasks()
    one = MultiTaskLMNN(max_iter=20).fit(X, y, tasks=names)
    labels = [("cat", "dog", "Cow", "owl")[c] for c in y]
    keys = {"a": 42, "b": ("x", 1), "c": "paris"}
    other = MultiTaskLMNN(max_iter=20).fit(X.tolist(), labels, tasks=[keys[t] for t in names])
    assert other.tasks_ == [keys[t] for t in one.tasks_]
    for t in "abc":
        np.testing.assert_array_equal(other.metric_matrix(keys[t]), one.metric_matrix(t))
    shifted = y + 10 * (names == "a")  # labels are compared inside a task only
    again = MultiTaskLMNN(max_iter=20).fit(X, shifted, tasks=names)
    np.testing.assert_array_equal(again.metric_matrix("b"), one.metric_matrix("b"))


def test_copies_pickles_and_inputs():
    X, y, names = three_tasks()
    kept = X.copy()
    X.flags.writeable = False
    learner = MultiTaskLMNN(max_iter=10).fit(X, y, tasks=names)
    np.testing.assert_array_equal(X, kept)
    for other in (
        pickle.loads(pickle.dumps(learner)),
        copy.deepcopy(learner),
        clone(learner).fit(X, y, tasks=names),
        clone(learner).fit(np.asfortranarray(X), y[:, None].ravel(), tasks=list(names)),
    ):
        np.testing.assert_array_equal(other.metric_matrix("c"), learner.metric_matrix("c"))


def test_odd_rows():
    X, y, names = three_tasks()
    many = np.concatenate([X] * 5)  # more copies than targets
    learner = MultiTaskLMNN().fit(many, np.tile(y, 5), tasks=np.tile(names, 5))
    assert np.isfinite(learner.metric_matrix("a")).all()
    constant = np.column_stack([X, np.ones(len(X)), np.zeros(len(X))])
    learner = MultiTaskLMNN().fit(constant, y, tasks=names)
    assert learner.metrics_["a"].factor.shape == (4, 6)
    same = MultiTaskLMNN().fit(np.ones((6, 3)), [0, 0, 0, 1, 1, 1], tasks=["t"] * 6)
    np.testing.assert_allclose(same.metric_matrix("t"), np.eye(3), atol=1e-9)
    far = X + 1e3 * y[:, None]  # no impostor anywhere
    assert np.isfinite(MultiTaskLMNN(scale=1.0).fit(far, y, tasks=names).objective_)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"shared_penalty": 0.0}, "shared_penalty=0.0"),
        ({"task_penalty": -1}, "task_penalty=-1"),
        ({"task_penalty": {"a": 1.0}}, "task_penalty has the tasks"),
        ({"task_penalty": {"a": 1.0, "b": np.inf, "c": 1.0}}, r"task_penalty\['b'\]"),
        ({"shared_penalty": np.inf, "task_penalty": np.inf}, "both infinite"),
        ({"constraint": "all"}, "constraint='all'"),
        ({"push_weight": 1.0}, "push_weight=1.0"),
        ({"scale": "none"}, "scale='none'"),
        ({"smoothing": 0}, "smoothing=0"),
        ({"n_targets": 0}, "n_targets=0"),
        ({"max_iter": 1.5}, "max_iter=1.5"),
        ({"tol": np.nan}, "tol=nan"),
    ],
)
def test_parameters_out_of_range(change, said):
    X, y, names = three_tasks()
    learner = MultiTaskLMNN(**change)
    with pytest.raises(ValueError, match=said):
        learner.fit(X, y, tasks=names)
    assert not hasattr(learner, "metrics_")


def test_bad_input():
    X, y, names = three_tasks()
    learner = MultiTaskLMNN(max_iter=2)
    with pytest.raises(NotFittedError):
        learner.task_metric("a")
    with pytest.raises(TypeError, match="sparse"):
        learner.fit(sparse.csr_array(X), y, tasks=names)
    with pytest.raises(ValueError, match="task 'a' has 9 samples of 1 classes"):
        learner.fit(X, np.where(names == "a", 0, y), tasks=names)
    with pytest.raises(ValueError, match=r"numbers of samples: \[36, 35, 36\]"):
        learner.fit(X, y[:-1], tasks=names)
    broken = X.copy()
    broken[3, 1] = np.nan
    with pytest.raises(ValueError, match="nan"):
        learner.fit(broken, y, tasks=names)
    assert not hasattr(learner, "metrics_")
    learner.fit(X, y, tasks=names)
    with pytest.raises(ValueError, match="known tasks"):
        learner.transform(X, task="never seen")


def test_too_few_steps_are_said_and_enough_are_not():
    X, y, names = three_tasks()
    with pytest.warns(ConvergenceWarning, match="max_iter=2 before tol=0.001"):
        short = MultiTaskLMNN(max_iter=2).fit(X, y, tasks=names)
    assert short.n_iter_ == 2
    assert short.gap_ > short.tol
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        long = MultiTaskLMNN(max_iter=1000).fit(X, y, tasks=names)
    assert long.gap_ <= long.tol
    with warnings.catch_warnings():  # the last step that was allowed was enough
        warnings.simplefilter("error")
        last = MultiTaskLMNN(max_iter=long.n_iter_).fit(X, y, tasks=names)
    assert last.n_iter_ == long.n_iter_


def test_a_bar_counts_the_steps(capsys):
    X, y, names = three_tasks()
    learner = MultiTaskLMNN(max_iter=20, verbose=True).fit(X, y, tasks=names)
    assert f"{learner.n_iter_}/20" in capsys.readouterr().err
