"""Joint similarities against OASIS, a general solver and odd inputs."""

import copy
import pickle

import numpy as np
import pytest
from scipy import linalg, optimize, sparse
from sklearn.base import clone

from lml.baselines.omtrsl import MultiTaskOASIS, multitask_step, relation_inverse
from lml.evaluation import LifelongKNeighborsClassifier
from lml.metrics import FactoredMetric
from lml.oasis import OASIS, passive_aggressive_step
from lml.triplets import sample_triplets


def problem(sizes=(14, 9, 20), D=5, seed=0):
    """Rows of three tasks, shuffled together, with their labels and task names."""
    rng = np.random.default_rng(seed)
    t = np.repeat(np.arange(len(sizes)), sizes)
    y = np.arange(len(t)) % 2
    X = rng.normal(size=(len(t), D)) * (1 + t)[:, None] / 3 + y[:, None] * rng.normal(size=D)
    order = rng.permutation(len(t))
    return X[order], y[order], np.array(["b", "a", "c"])[t[order]]


def by_definition(X, y, tasks, n_steps, C, R, start, seed=0):
    """The stream and the update, written out with loops."""
    names = list(dict.fromkeys(tasks))
    rows = {name: np.flatnonzero(tasks == name) for name in names}
    drawn = {name: sample_triplets(y[rows[name]], n_steps, seed) for name in names}
    W = [start.copy() for _ in names]
    for n in range(n_steps):
        for t, name in enumerate(names):
            x, p, q = X[rows[name][drawn[name][n]]]
            loss, size = 1 - x @ W[t] @ (p - q), R[t, t] * (x @ x) * np.sum((p - q) ** 2)
            if loss > 0 and size > 0:
                for s in range(len(names)):
                    W[s] = W[s] + min(C, loss / size) * R[s, t] * np.outer(x, p - q)
    return names, W


def test_relation_inverse():
    for T in (1, 2, 7):
        for b in (0, 0.3, 12.0):
            A = (1 + b) * np.eye(T) - b / T * np.ones((T, T))
            np.testing.assert_allclose(relation_inverse(T, b), np.linalg.inv(A), atol=1e-12)
            np.testing.assert_allclose(relation_inverse(T, b).sum(axis=0), 1)
    np.testing.assert_array_equal(relation_inverse(4, np.inf), np.full((4, 4), 0.25))
    np.testing.assert_array_equal(relation_inverse(1, 5.0), [[1.0]])


@pytest.mark.parametrize("C", [0.01, 100.0])
@pytest.mark.parametrize("task", [0, 1])
def test_step_by_a_general_solver(C, task):
    rng = np.random.default_rng(3)
    A = np.array([[2.0, -0.7], [-0.7, 1.1]])
    V, (x, p, q) = 0.2 * rng.normal(size=(2, 2, 2)), rng.normal(size=(3, 2))
    # half of the margin is lacking
    V[task] += (0.5 - x @ V[task] @ (p - q)) * np.outer(x, p - q) / (x @ x * np.sum((p - q) ** 2))

    def value(v):
        move = v[:-1].reshape(V.shape) - V
        return 0.5 * np.einsum("st,sij,tij->", A, move, move) + C * v[-1]

    conditions = [
        {"type": "ineq", "fun": lambda v: v[-1] - 1 + x @ v[:-1].reshape(V.shape)[task] @ (p - q)},
        {"type": "ineq", "fun": lambda v: v[-1]},
    ]
    found = optimize.minimize(
        value, np.append(V.ravel(), 3.0), constraints=conditions, options={"ftol": 1e-15}
    )
    W, tau = multitask_step(V, task, x, p, q, C, linalg.inv(A))
    assert 0 < tau <= C
    np.testing.assert_allclose(W, found.x[:-1].reshape(V.shape), atol=1e-4)
    assert np.abs(W - V)[1 - task].max() > 1e-4  # the other task has learned too


def test_step_is_one_of_oasis_with_the_multitask_kernel():
    rng = np.random.default_rng(4)
    factor = rng.normal(size=(3, 3))
    A = factor @ factor.T + 0.3 * np.eye(3)
    values, vectors = np.linalg.eigh(A)
    root = vectors * np.sqrt(values) @ vectors.T
    R, h = np.linalg.inv(A), np.linalg.inv(root)
    W = rng.normal(size=(3, 4, 4))
    wide = sum(np.kron(root[r], W[r]) for r in range(3))
    for n in range(60):
        t, (x, p, q) = n % 3, rng.normal(size=(3, 4))
        W, tau = multitask_step(W, t, x, p, q, 0.2, R)
        wide, step = passive_aggressive_step(wide, x, np.kron(h[t], p), np.kron(h[t], q), 0.2)
        assert tau == pytest.approx(step, abs=1e-10)
    np.testing.assert_allclose(wide, sum(np.kron(root[r], W[r]) for r in range(3)), atol=1e-8)


def test_step_cures_and_is_passive():
    rng = np.random.default_rng(5)
    V, (x, p, q), R = rng.normal(size=(3, 4, 4)), rng.normal(size=(3, 4)), relation_inverse(3, 2.0)
    before = V.copy()
    W, tau = multitask_step(V, 2, x, p, q, np.inf, R)
    np.testing.assert_array_equal(V, before)
    if tau > 0:
        assert x @ W[2] @ (p - q) == pytest.approx(1)
    _, tau = multitask_step(W, 2, x, p, q, np.inf, R)
    assert tau < 1e-12
    for rows in ((0 * x, p, q), (x, p, p)):
        same, tau = multitask_step(V, 0, *rows, 1.0, R)
        assert same is V
        assert tau == 0.0


@pytest.mark.parametrize("coupling", [0.0, 0.6, 5.0, np.inf])
@pytest.mark.parametrize("wide", [False, True])
def test_fit_by_definition(coupling, wide):
    X, y, tasks = problem(D=60 if wide else 5)
    learner = MultiTaskOASIS(coupling, 0.07, n_steps=80, random_state=0).fit(X, y, tasks=tasks)
    R, D = relation_inverse(3, coupling), X.shape[1]
    names, W = by_definition(X, y, tasks, 80, 0.07, R, np.eye(D))
    assert learner.tasks_ == names
    for name, M in zip(names, W, strict=True):
        np.testing.assert_allclose(learner.task_metric(name).to_dense(), M, atol=1e-9)
    np.testing.assert_allclose(learner.relation_inverse_, R)
    assert 0 < learner.n_updates_ <= 240
    assert learner.n_features_in_ == D


def test_dense_form_for_many_rows():
    X, y, tasks = problem(sizes=(900, 700, 500), D=4)
    learner = MultiTaskOASIS(1.5, 0.05, n_steps=60, random_state=0).fit(X, y, tasks=tasks)
    R = relation_inverse(3, 1.5)
    names, W = by_definition(X, y, tasks, 60, 0.05, R, np.eye(4))
    in_csr = clone(learner).fit(sparse.csr_array(X), y, tasks=tasks)
    for name, M in zip(names, W, strict=True):
        np.testing.assert_allclose(learner.metrics_[name].to_dense(), M, atol=1e-9)
        np.testing.assert_allclose(in_csr.metrics_[name].to_dense(), M, atol=1e-9)
    assert learner.n_updates_ == in_csr.n_updates_
    np.testing.assert_allclose(learner.loss_curve_, in_csr.loss_curve_, atol=1e-9)


def test_no_coupling_is_oasis_with_the_same_seed():
    X, y, tasks = problem()
    learner = MultiTaskOASIS(0.0, 0.3, n_steps=150, random_state=7).fit(X, y, tasks=tasks)
    for name in "abc":
        rows = tasks == name
        alone = OASIS(0.3, n_steps=150, random_state=7).fit(X[rows], y[rows])
        M = learner.task_metric(name).to_dense()
        np.testing.assert_allclose(M, alone.metric_.to_dense(), atol=1e-10)


def test_infinite_coupling_is_pooled_oasis():
    X, y, tasks = problem()
    learner = MultiTaskOASIS(np.inf, 0.3, n_steps=100, random_state=1).fit(X, y, tasks=tasks)
    metrics = [learner.task_metric(name).to_dense() for name in "abc"]
    np.testing.assert_allclose(metrics[1], metrics[0], atol=1e-12)
    np.testing.assert_allclose(metrics[2], metrics[0], atol=1e-12)
    _, W = by_definition(X, y, tasks, 100, 0.1, np.ones((3, 3)), np.eye(5), seed=1)
    np.testing.assert_allclose(metrics[0], W[0], atol=1e-9)
    near = MultiTaskOASIS(1e9, 0.3, n_steps=100, random_state=1).fit(X, y, tasks=tasks)
    np.testing.assert_allclose(near.task_metric("a").to_dense(), metrics[0], atol=1e-5)


def test_given_relation_and_start():
    X, y, tasks = problem()
    A = np.array([[2.0, 0.5, -0.3], [0.5, 1.0, 0.1], [-0.3, 0.1, 1.5]])
    start = np.random.default_rng(0).normal(size=(5, 5))
    R = np.linalg.inv(A)
    names, W = by_definition(X, y, tasks, 50, 0.1, R, start)
    for init in (start, FactoredMetric.from_dense(start)):
        learner = MultiTaskOASIS(relation=A, init=init, n_steps=50, random_state=0)
        learner.fit(X, y, tasks=tasks)
        for name, M in zip(names, W, strict=True):
            np.testing.assert_allclose(learner.task_metric(name).to_dense(), M, atol=1e-9)


def test_one_task_is_oasis():
    X, y, _ = problem()
    for coupling in (0.0, 4.0, np.inf):
        learner = MultiTaskOASIS(coupling, n_steps=60, random_state=2).fit(X, y, tasks=[0] * len(X))
        alone = OASIS(n_steps=60, random_state=2).fit(X, y)
        M = learner.task_metric(0).to_dense()
        np.testing.assert_allclose(M, alone.metric_.to_dense(), atol=1e-10)


def test_tasks_may_disagree_on_labels():
    X, y, tasks = problem()
    learner = MultiTaskOASIS(2.0, n_steps=40, random_state=0).fit(X, y, tasks=tasks)
    renamed = [f"{t}{'no' if v else 'yes'}" for t, v in zip(tasks, y, strict=True)]
    again = clone(learner).fit(X, renamed, tasks=tasks)
    for name in "abc":
        np.testing.assert_allclose(
            again.task_metric(name).to_dense(), learner.task_metric(name).to_dense()
        )


def test_no_steps_and_no_updates():
    X, y, tasks = problem()
    learner = MultiTaskOASIS(n_steps=0).fit(X, y, tasks=tasks)
    np.testing.assert_array_equal(learner.task_metric("a").to_dense(), np.eye(5))
    assert learner.n_updates_ == 0
    assert len(learner.loss_curve_) == 0
    zero = MultiTaskOASIS(n_steps=20, random_state=0).fit(0 * X, y, tasks=tasks)
    np.testing.assert_array_equal(zero.task_metric("a").to_dense(), np.eye(5))
    assert zero.loss_curve_.min() == 1.0


def test_wide_sparse_rows():
    X = sparse.random(60, 20_000, density=0.005, format="csr", random_state=0)
    y, tasks = np.arange(60) % 2, np.repeat(["p", "q"], 30)
    learner = MultiTaskOASIS(3.0, n_steps=50, random_state=0).fit(X, y, tasks=tasks)
    metric = learner.task_metric("q")
    assert metric.shape == (20_000, 20_000)
    assert sparse.issparse(metric.factor)
    alone = MultiTaskOASIS(3.0, n_steps=50, random_state=0)
    alone.fit(X[:, :9000].toarray(), y, tasks=tasks)
    assert alone.task_metric("p").shape == (9000, 9000)
    assert alone.task_metric("p").factor.shape[0] <= 60  # a row of a sample each, nothing square


def test_of_many_narrow_samples_metrics_are_square_and_of_sparse_ones_sparse():
    X, y, tasks = problem()
    learner = MultiTaskOASIS(n_steps=100, random_state=0).fit(X, y, tasks=tasks)
    assert learner.task_metric("a").factor.shape == (5, 5)  # not a row for each sample
    learner.fit(sparse.csr_array(X), y, tasks=tasks)
    assert sparse.issparse(learner.task_metric("a").factor)


def test_neighbors_with_a_joint_learner():
    X, y, tasks = problem()
    learner = MultiTaskOASIS(n_steps=100, random_state=0).fit(X, y, tasks=tasks)
    classifier = LifelongKNeighborsClassifier(learner, n_neighbors=1)
    for name in "abc":
        rows = tasks == name
        classifier.fit(X[rows], y[rows], task=name)
        assert classifier.predict(X[rows], task=name).shape == (rows.sum(),)


def test_scores_of_pairs_are_bilinear():
    X, y, tasks = problem()
    learner = MultiTaskOASIS(n_steps=100, random_state=0).fit(X, y, tasks=tasks)
    pairs = np.stack([X[:4], X[4:8]], axis=1)
    M = learner.metric_matrix("c")
    expected = [x @ M @ z for x, z in pairs]
    np.testing.assert_allclose(learner.pair_score(pairs, task="c"), expected, atol=1e-10)
    assert learner.metric_type_ == "similarity"


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"coupling": -1.0}, "coupling=-1.0"),
        ({"coupling": np.nan}, "coupling=nan"),
        ({"coupling": "much"}, "coupling='much'"),
        ({"aggressiveness": 0.0}, "aggressiveness=0.0"),
        ({"n_steps": 1.5}, "n_steps=1.5"),
        ({"relation": np.eye(2)}, r"relation has shape \(2, 2\) with 3 tasks"),
        ({"relation": np.triu(np.ones((3, 3)))}, "symmetric"),
        ({"relation": np.ones((3, 3)) - np.eye(3)}, "eigenvalue -1"),
        ({"init": FactoredMetric.identity(4)}, "init is a metric of 4 features, but X has 5"),
    ],
)
def test_bad_parameters_are_named_and_the_state_is_kept(parameters, said):
    X, y, tasks = problem()
    learner = MultiTaskOASIS(n_steps=10, random_state=0).fit(X, y, tasks=tasks)
    before = copy.deepcopy(learner.task_metric("a").to_dense())
    with pytest.raises(ValueError, match=said):
        learner.set_params(**parameters).fit(X, y, tasks=tasks)
    np.testing.assert_array_equal(learner.task_metric("a").to_dense(), before)


def test_a_task_without_triplets_is_named():
    X, y, tasks = problem()
    y = np.where(tasks == "a", 0, y)
    learner = MultiTaskOASIS(n_steps=10, random_state=0)
    with pytest.raises(ValueError, match="y of task 'a' has 9 samples of 1 classes"):
        learner.fit(X, y, tasks=tasks)
    assert not hasattr(learner, "metrics_")


def test_pickle_inputs_and_seeds():
    X, y, tasks = problem()
    before = X.copy()
    learner = MultiTaskOASIS(n_steps=40, random_state=0).fit(X, y, tasks=tasks)
    np.testing.assert_array_equal(X, before)
    again = pickle.loads(pickle.dumps(learner))
    M = learner.task_metric("b").to_dense()
    np.testing.assert_array_equal(again.task_metric("b").to_dense(), M)
    np.testing.assert_array_equal(
        clone(learner).fit(X, y, tasks=tasks).task_metric("b").to_dense(), M
    )
    other = clone(learner).set_params(random_state=np.random.RandomState(0))
    assert np.abs(other.fit(X, y, tasks=tasks).task_metric("c").to_dense() - M).max() > 0
