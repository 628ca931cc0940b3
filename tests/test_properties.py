"""Properties that hold for all inputs, tried on many: hypothesis draws them, always the same ones.

Rows are drawn by a seed, so that they are generic (no ties) or, where ties matter, small whole
numbers. Scalings are powers of two, which change no digit: what is said to be equal is compared
bit for bit. A rotation changes the last digits; what it must not change is compared to 1e-6 of
the largest score, and ranks where scores differ by more than that.
"""

from __future__ import annotations

import copy
import pickle
import tempfile
from pathlib import Path

import numpy as np
import pytest
from draws import SCALES, few, labels, seeds, tables
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from lifelong_streams import all_of
from scipy import linalg, stats

from lml.baselines import (
    ELLA,
    MultiTaskLMNN,
    MultiTaskOASIS,
    MultiTaskSCML,
    OffDiagonalLearner,
    PooledMetricLearner,
)
from lml.evaluation import LifelongKNeighborsClassifier
from lml.fisher import class_scatter, fisher_directions
from lml.lifelong import LifelongMetricLearner
from lml.lmnn import LMNN, target_neighbors
from lml.neighbors import MetricKNeighborsClassifier
from lml.oasis import OASIS
from lml.plda import LifelongPLDA
from lml.scml import SCML
from lml.triplets import all_triplets, nearest_triplets, sample_triplets

# tables drawn at random may allow no metric, or be far from zero, or a run may be too short
pytestmark = pytest.mark.filterwarnings(
    "ignore:no weights lowered",
    "ignore:the metrics of the tasks .* are zero",
    "ignore:the mean of the samples",
)


def rotation(D, rng):
    return linalg.qr(rng.normal(size=(D, D)))[0]


# --- triplets -----------------------------------------------------------------------------


@given(labels(), seeds, st.booleans())
def test_triplets_of_all_kinds_are_valid(y, seed, self_pairs):
    rng = np.random.default_rng(seed)
    X = rng.integers(-2, 3, size=(len(y), 2)).astype(float)  # many ties and copies
    sizes = np.bincount(y)
    for triplets, selves in (
        (all_triplets(y, self_pairs), self_pairs),
        (sample_triplets(y, 50, seed % 2**31, self_pairs), self_pairs),
        (nearest_triplets(X, y, 2, 3), False),
    ):
        i, j, k = triplets.T
        assert len(triplets)
        assert (y[i] == y[j]).all()
        assert (y[i] != y[k]).all()
        assert selves or (i != j).all()
        assert (sizes[y[i]] > 1).all()
    assert len(all_triplets(y)) == sum(s * (s - 1) * (len(y) - s) for s in sizes)


@given(labels(), seeds)
def test_all_triplets_do_not_depend_on_the_order_of_the_rows(y, seed):
    order = np.random.default_rng(seed).permutation(len(y))
    moved = order[all_triplets(y[order])]
    assert set(map(tuple, moved.tolist())) == set(map(tuple, all_triplets(y).tolist()))


@given(tables(), seeds, st.integers(1, 4), st.integers(1, 6))
def test_nearest_triplets_do_not_depend_on_the_order_of_the_rows(table, seed, a, b):
    X, y = table
    order = np.random.default_rng(seed).permutation(len(y))
    moved, held = order[nearest_triplets(X[order], y[order], a, b)], nearest_triplets(X, y, a, b)
    assert set(map(tuple, moved.tolist())) == set(map(tuple, held.tolist()))
    pairs = order[target_neighbors(X[order], y[order], a)]
    assert set(map(tuple, pairs.tolist())) == set(map(tuple, target_neighbors(X, y, a).tolist()))


@given(tables(), seeds, SCALES)
def test_nearest_triplets_do_not_depend_on_features_rotation_and_scale(table, seed, c):
    X, y = table
    rng, held = np.random.default_rng(seed), nearest_triplets(X, y)
    D = X.shape[1]
    for changed in (
        X[:, rng.permutation(D)],
        X @ rotation(D, rng).T,
        c * X,
        X + rng.normal(size=D),
    ):
        np.testing.assert_array_equal(nearest_triplets(changed, y), held)


# --- learners, as functions of rows -------------------------------------------------------


def oasis_metric(X, y, **parameters):
    return OASIS(**{"n_steps": 80, "random_state": 0} | parameters).fit(X, y).metric_


def scml_metric(X, y, **parameters):
    options = {"n_basis": 6, "n_steps": 100, "random_state": 0} | parameters
    return SCML(**options).fit(X, y).metric_


def joint_oasis_metric(X, y, **parameters):
    options = {"n_steps": 40, "random_state": 0} | parameters
    return MultiTaskOASIS(**options).fit(X, y, tasks=["t"] * len(X)).task_metric("t")


def lifelong_metric(X, y, **parameters):
    base = OASIS(n_steps=80)
    options = {"sharing": 0.6, "n_components": 2, "random_state": 0} | parameters
    learner = LifelongMetricLearner(base, **options).partial_fit(X[::-1], y[::-1], task="before")
    return learner.partial_fit(X, y, task="t").task_metric("t")


LEARNERS = {
    "OASIS": oasis_metric,
    "SCML": scml_metric,
    "joint OASIS": joint_oasis_metric,
    "lifelong": lifelong_metric,
}
learners = pytest.mark.parametrize("learn", LEARNERS.values(), ids=LEARNERS)


def scores(metric, X):
    return metric.bilinear(X, X)


def distances(metric, X):
    left, right = np.repeat(X, len(X), axis=0), np.tile(X, (len(X), 1))
    return metric.quadratic(left - right).reshape(len(X), len(X))


def assert_same_ranks(found, expected):
    """Equal to 1e-6 of the largest, and of equal order where they differ by more than that."""
    tolerance = 1e-6 * np.abs(expected).max()
    np.testing.assert_allclose(found, expected, atol=tolerance, rtol=0)
    gaps = expected[:, :, None] - expected[:, None, :]
    signs = np.sign(found[:, :, None] - found[:, None, :])
    clear = np.abs(gaps) > 4 * tolerance
    assert (signs[clear] == np.sign(gaps[clear])).all()


@learners
@given(tables(least=16), seeds)
def test_a_permutation_of_the_features_permutes_the_metric(learn, table, seed):
    X, y = table
    order = np.random.default_rng(seed).permutation(X.shape[1])
    moved, held = learn(X[:, order], y), learn(X, y)
    assert_same_ranks(scores(moved, X[:, order]), scores(held, X))


@learners
@given(tables(least=16), seeds)
def test_a_rotation_of_the_rows_changes_no_similarity_and_no_distance(learn, table, seed):
    X, y = table
    Q = rotation(X.shape[1], np.random.default_rng(seed))
    moved, held = learn(X @ Q.T, y), learn(X, y)
    assert_same_ranks(scores(moved, X @ Q.T), scores(held, X))
    assert_same_ranks(distances(moved, X @ Q.T), distances(held, X))


def log_ratio(X, y):
    given = {"own_weight": 0.5, "shrinkage": (1.0, 0.3, 0.1), "random_state": 0}
    return LifelongPLDA(**given).partial_fit(X, y, task="t").task_metric("t")


@few
@given(tables(least=16), seeds, st.sampled_from([1e-3, 0.5, 40.0]))
def test_the_log_ratio_does_not_depend_on_order_names_rotation_and_scale(table, seed, c):
    X, y = table
    rng = np.random.default_rng(seed)
    Q, order = rotation(X.shape[1], rng), rng.permutation(len(y))
    features, held = rng.permutation(X.shape[1]), scores(log_ratio(X, y), X)
    for moved in (X @ Q.T, c * X, X[:, features]):
        assert_same_ranks(scores(log_ratio(moved, y), moved), held)
    assert_same_ranks(scores(log_ratio(X[order], y[order]), X), held)
    renamed = [("class", int(label)) for label in y]
    np.testing.assert_array_equal(scores(log_ratio(X, renamed), X), held)


def lmnn():
    return LMNN(shrinkage=0.1, tol=1e-4)


def off_diagonal():
    return OffDiagonalLearner(n_components=2, ridge=0.1, random_state=0)


def assert_same_minimum(a, b):
    """Solvers stop at a gap: the objectives agree to the two gaps."""
    slack = sum(model.gap_ * max(1.0, model.objective_) for model in (a, b))
    assert abs(a.objective_ - b.objective_) <= slack + 1e-6 * b.objective_


@few
@given(tables(least=16), seeds)
def test_convex_learners_find_the_same_minimum_in_rotated_and_reordered_rows(table, seed):
    X, y = table
    rng = np.random.default_rng(seed)
    Q, order = rotation(X.shape[1], rng), rng.permutation(len(y))
    held = lmnn().fit(X, y)
    assert_same_minimum(lmnn().fit(X @ Q.T, y), held)
    assert_same_minimum(lmnn().fit(X[order], y[order]), held)
    assert_same_minimum(off_diagonal().fit(X @ Q.T, y), off_diagonal().fit(X, y))


@pytest.mark.parametrize("learn", [*LEARNERS.values(), "LMNN", "OffDiagonal", "joint LMNN"])
@few
@given(tables(), st.permutations(["x", "X", ("x", 1), 7, "7", True]))
def test_renamed_labels_give_the_same_bits(learn, table, names):
    X, y = table
    fits = {
        "LMNN": lambda X, y: LMNN(max_iter=5).fit(X, y).metric_,
        "OffDiagonal": lambda X, y: OffDiagonalLearner(ridge=0.1, random_state=0).fit(X, y).metric_,
        "joint LMNN": lambda X, y: (
            MultiTaskLMNN(max_iter=5).fit(X, y, tasks=["t"] * len(X)).task_metric("t")
        ),
    }
    fit = fits.get(learn, learn) if isinstance(learn, str) else learn
    moved, held = fit(X, [names[c] for c in y]), fit(X, y)
    np.testing.assert_array_equal(moved.to_dense(), held.to_dense())


# --- scale --------------------------------------------------------------------------------


@given(tables(), SCALES)
def test_oasis_on_scaled_rows_needs_the_cap_over_the_fourth_power(table, c):
    """W / c^2 from I / c^2 and C / c^4, to the bit."""
    X, y = table
    held = oasis_metric(X, y, aggressiveness=0.01, init=np.eye(X.shape[1]))
    law = {"aggressiveness": 0.01 / c**4, "init": np.eye(X.shape[1]) / c**2}
    np.testing.assert_array_equal(oasis_metric(c * X, y, **law).to_dense() * c**2, held.to_dense())
    joint = joint_oasis_metric(c * X, y, **law).to_dense() * c**2
    np.testing.assert_array_equal(
        joint,
        joint_oasis_metric(X, y, aggressiveness=0.01, init=np.eye(X.shape[1])).to_dense(),
    )


def test_the_cap_of_oasis_is_not_free_of_units():
    X, y = np.random.default_rng(0).normal(size=(20, 3)), np.arange(20) % 2
    held = oasis_metric(X, y, aggressiveness=0.01).to_dense()
    moved = oasis_metric(4 * X, y, aggressiveness=0.01, init=np.eye(3) / 16).to_dense()
    assert not np.allclose(16 * moved, held, rtol=0.01)


@settings(max_examples=10)
@given(tables(least=14), SCALES)
def test_learners_in_units_of_the_rows_scale_with_them(table, c):
    """Metrics divided by c^2, objectives as they were, to the bit."""
    X, y = table
    for make in (
        lambda: SCML(n_basis=6, beta=0.01, n_steps=100, random_state=0),
        lambda: LMNN(max_iter=8),
        lambda: LMNN(shrinkage=0.1, max_iter=8),
        lambda: OffDiagonalLearner(n_components=2, ridge=0.1, random_state=0),
    ):
        moved, held = make().fit(c * X, y), make().fit(X, y)
        np.testing.assert_array_equal(moved.metric_.to_dense() * c**2, held.metric_.to_dense())
    moved, held = (MultiTaskLMNN(max_iter=5).fit(a * X, y, tasks=["t"] * len(X)) for a in (c, 1.0))
    np.testing.assert_array_equal(
        moved.task_metric("t").to_dense() * c**2, held.task_metric("t").to_dense()
    )
    assert moved.objective_ == held.objective_


@given(tables(), SCALES, seeds)
def test_fisher_directions_and_euclidean_neighbors_have_no_scale(table, c, seed):
    X, y = table
    within, between = class_scatter(X, y)
    for scaled, own in zip(class_scatter(c * X, y), (within, between)):
        np.testing.assert_array_equal(scaled, c**2 * own)
    np.testing.assert_array_equal(fisher_directions(c * X, y), fisher_directions(X, y))
    queries = np.random.default_rng(seed).normal(size=(6, X.shape[1]))
    model, scaled = (MetricKNeighborsClassifier().fit(a * X, y) for a in (1.0, c))
    np.testing.assert_array_equal(scaled.predict(c * queries), model.predict(queries))


# --- a learner in a file ------------------------------------------------------------------

plain = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**20), 10**20), st.text(max_size=6), st.floats(-9, 9)
)
names = st.one_of(plain, st.tuples(plain, plain), st.tuples(plain, st.tuples(plain)))


@few
@given(
    st.lists(names.filter(lambda name: name is not None), min_size=3, max_size=3, unique=True),
    st.lists(names.filter(lambda name: name is not None), min_size=2, max_size=2, unique=True),
    seeds,
    st.sampled_from(["oasis", "scml"]),
    st.integers(0, 4),
    st.sampled_from(["auto", "grow", 0.5]),
    st.booleans(),
)
def test_a_learner_that_was_saved_and_loaded_is_the_same_and_goes_on_alike(
    tasks, classes, seed, base, code_rank, sharing, shared_labels
):
    """Names of tasks and labels of any plain type, also within tuples, keep type and order."""
    base = OASIS(n_steps=40) if base == "oasis" else SCML(n_basis=4, n_steps=40)
    assume(not any(isinstance(c, float) and c % 1 for c in classes))  # as in regression
    options = {"n_components": 2, "code_rank": code_rank, "random_state": seed % 2**31}
    options |= {"sharing": sharing, "shared_labels": shared_labels}
    learner = LifelongMetricLearner(base, **options)
    rng = np.random.default_rng(seed)
    parts = [(rng.normal(size=(10, 3)), [classes[c] for c in np.arange(10) % 2]) for _ in tasks]
    for task, (X, y) in zip(tasks[:2], parts):
        learner.partial_fit(X, y, task=task)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "learner.npz"
        learner.save(path)
        loaded = LifelongMetricLearner.load(path)
        loaded.save(Path(folder) / "again.npz")
        twice = LifelongMetricLearner.load(Path(folder) / "again.npz")
    for other in (loaded, twice):
        assert [(type(name), name) for name in other.tasks_] == [(type(n), n) for n in tasks[:2]]
        assert other.tasks_ == learner.tasks_
        for name in tasks[:2]:
            kinds = [type(c) for c in other.tasks_[name].classes]
            assert kinds == [type(c) for c in learner.tasks_[name].classes]
            np.testing.assert_array_equal(other.metric_matrix(name), learner.metric_matrix(name))
    for other in (learner, loaded, twice):
        other.partial_fit(*parts[2], task=tasks[2])
        other.partial_fit(*parts[2], task=tasks[0])
    for other in (loaded, twice):
        assert all_of(other) == all_of(learner)


# --- purity -------------------------------------------------------------------------------

METRIC = np.diag([2.0, 1.0, 1.0])
DICTIONARY = np.eye(3)[:2]
PURE = {
    "OASIS": lambda: OASIS(n_steps=50, init=METRIC, random_state=np.random.RandomState(0)),
    "SCML": lambda: SCML(n_basis=6, n_steps=50, random_state=0),
    "LMNN": lambda: LMNN(max_iter=5),
    "OffDiagonal": lambda: OffDiagonalLearner(dictionary=DICTIONARY, ridge=0.1),
    "k-NN": lambda: MetricKNeighborsClassifier(OASIS(n_steps=50, random_state=0)),
    "lifelong": lambda: LifelongMetricLearner(
        OASIS(n_steps=50, init=METRIC), n_components=2, random_state=0
    ),
    "PLDA": lambda: LifelongPLDA(n_folds=2, random_state=0),
    "ELLA": lambda: ELLA(n_components=2, random_state=0),
    "references": lambda: LifelongKNeighborsClassifier(
        LifelongMetricLearner(OASIS(n_steps=50), n_components=2, random_state=0), max_references=8
    ),
    "pooled": lambda: PooledMetricLearner(SCML(n_basis=6, n_steps=50, random_state=0)),
    "joint SCML": lambda: MultiTaskSCML(n_basis=6, n_steps=50, random_state=0),
    "joint LMNN": lambda: MultiTaskLMNN(max_iter=5, task_penalty={"t": 0.1}),
    "joint OASIS": lambda: MultiTaskOASIS(n_steps=50, init=METRIC, relation=[[1.0]]),
}


def learn_from(model, X, y):
    if isinstance(model, LifelongKNeighborsClassifier):
        model.learner.partial_fit(X, y, task="t")
        return model.fit(X, y, task="t")
    if hasattr(model, "partial_fit"):
        return model.partial_fit(X, y, task="t")
    if isinstance(model, (OASIS, SCML, LMNN, OffDiagonalLearner, MetricKNeighborsClassifier)):
        return model.fit(X, y)
    return model.fit(X, y, tasks=["t"] * len(X))


def parameters(model):
    """The parameters as they are, down to the bytes of arrays and the state of generators."""
    return pickle.dumps({k: v for k, v in model.get_params(deep=False).items() if k != "learner"})


@pytest.mark.parametrize("name", PURE)
@few
@given(tables(least=12, least_features=3, most_features=3), seeds)
def test_learning_touches_no_input_and_reading_touches_nothing(name, table, seed):
    X, y = table
    model, before = PURE[name](), (X.copy(), y.copy())
    held = parameters(model) if name != "OASIS" else None  # a generator advances, as in sklearn
    learn_from(model, X, y)
    assert np.array_equal(X, before[0])
    assert np.array_equal(y, before[1])
    assert held is None or parameters(model) == held
    assert METRIC.tolist() == np.diag([2.0, 1.0, 1.0]).tolist()
    assert DICTIONARY.tolist() == np.eye(3)[:2].tolist()

    queries = np.random.default_rng(seed).normal(size=(6, 3))
    given_to, state = queries.copy(), pickle.dumps(model)
    task = {} if hasattr(model, "metric_") or name == "k-NN" else {"task": "t"}
    pairs = np.stack([queries[:3], queries[3:]], axis=1)
    calls = {
        "transform": queries,
        "predict": queries,
        "predict_proba": queries,
        "decision_function": queries,
        "kneighbors": queries,
        "pair_score": pairs,
        "pair_distance": pairs,
    }
    found = []
    for repeat in range(2):
        for method, argument in calls.items():
            if hasattr(model, method):
                found.append(getattr(model, method)(argument, **task))
        assert pickle.dumps(model) == state, repeat
    half = len(found) // 2
    assert half >= 1
    for a, b in zip(found[:half], found[half:], strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    assert np.array_equal(queries, given_to)
    assert pickle.dumps(copy.deepcopy(model)) == pickle.dumps(copy.deepcopy(model))


def test_the_ranks_of_this_module_are_those_of_scipy():
    """`assert_same_ranks` refuses another order of clearly different scores."""
    S = np.random.default_rng(0).normal(size=(4, 6))
    assert_same_ranks(S, S)
    swapped = S.copy()
    swapped[0, [0, 1]] = swapped[0, [1, 0]]
    assert (stats.rankdata(swapped, axis=1) != stats.rankdata(S, axis=1)).any()
    with pytest.raises(AssertionError):
        assert_same_ranks(swapped, S)
