"""Tests of lml.lifelong: the stream, its promises (no rows, all or nothing, same bits)."""

import copy
import pickle

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator, clone
from sklearn.datasets import make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.neighbors import KNeighborsClassifier, NeighborhoodComponentsAnalysis

from lml import lifelong
from lml.evaluation import LifelongKNeighborsClassifier
from lml.lifelong import LifelongMetricLearner
from lml.metrics import FactoredMetric
from lml.oasis import OASIS
from lml.scml import SCML

NAMES = ("paris", 42, ("a", 1))


class Given(BaseEstimator):
    """A base learner whose metric the test sets (optionally failing on demand)."""

    def __init__(self, metric=None, metric_type="similarity", error=None):
        self.metric = metric
        self.metric_type = metric_type
        self.error = error

    def fit(self, X, y):
        if self.error is not None:
            raise self.error
        self.metric_ = self.metric
        return self


def make_task(seed, n=30, n_features=7, n_classes=3):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    X = rng.normal(size=(n, n_features))
    X[:, :n_classes] += 2.0 * np.eye(n_classes)[y]
    return X, y


def make_learner(**parameters):
    parameters = {"n_components": 4, "random_state": 0, **parameters}
    return LifelongMetricLearner(parameters.pop("base_learner", OASIS(n_steps=300)), **parameters)


def learn(learner, names=NAMES, start=0):
    for number, name in enumerate(names, start=start):
        learner.partial_fit(*make_task(number), task=name)
    return learner


def same(a, b):
    assert list(a.tasks_) == list(b.tasks_)
    assert a.tasks_ == b.tasks_
    np.testing.assert_array_equal(a.dictionary_, b.dictionary_)
    for name in a.tasks_:
        np.testing.assert_array_equal(a.codes_[name], b.codes_[name])


BASES = [OASIS(n_steps=300), SCML(n_basis=20, n_steps=500)]


@pytest.mark.parametrize("base", BASES, ids=["oasis", "scml"])
def test_full_dictionary_equals_the_base_learner(base):
    learner = make_learner(base_learner=base, n_components=7)
    for number, name in enumerate(NAMES):
        X, y = make_task(number)
        seed = learner._seeds(name)[1][0]
        learner.partial_fit(X, y, task=name)
        alone = clone(base).set_params(random_state=seed).fit(X, y).metric_
        np.testing.assert_allclose(
            learner.metric_matrix(name), alone.to_dense(), atol=1e-10 * alone.norm()
        )
        assert learner.tasks_[name].captured == pytest.approx(1.0)
    first = clone(base).set_params(random_state=make_learner()._seeds("paris")[1][0])
    alone = first.fit(*make_task(0)).metric_
    np.testing.assert_allclose(
        learner.metric_matrix("paris"), alone.to_dense(), atol=1e-10 * alone.norm()
    )


@pytest.mark.parametrize("kind", ["similarity", "distance"])
def test_code_is_the_thresholded_projection(kind):
    rng = np.random.default_rng(3)
    M = rng.normal(size=(7, 7)) + 4 * np.eye(7)
    M = M @ M.T if kind == "distance" else M
    base = Given(FactoredMetric.from_dense(M), kind)
    learner = make_learner(base_learner=base, code_penalty=0.3).partial_fit(*make_task(0), task=0)
    L, W = learner.dictionary_, learner.codes_[0]
    np.testing.assert_allclose(L @ L.T, np.eye(4), atol=1e-12)
    B = L @ M @ L.T
    expected = np.where(np.abs(B) > 0.3, B - 0.3 * np.sign(B), 0.0)
    np.fill_diagonal(expected, np.diag(B))
    np.testing.assert_allclose(W, expected, atol=1e-10)
    record = learner.tasks_[0]
    assert record.target_norm == pytest.approx(np.linalg.norm(M))
    assert record.captured == pytest.approx(np.sum(B**2) / np.sum(M**2))
    off = ~np.eye(4, dtype=bool)
    assert record.off_diagonal == pytest.approx(np.mean(expected[off] != 0))
    assert record.certificate < 1e-8
    if kind == "similarity":
        assert record.loss_after <= record.loss_before


@pytest.mark.parametrize("loss", ["hinge", "residual"])
@pytest.mark.parametrize("base", BASES, ids=["oasis", "scml"])
def test_metrics_kept_are_the_projections_of_the_old_ones(base, loss):
    learner = make_learner(base_learner=base, dictionary_loss=loss, dictionary_steps=3)
    learner.partial_fit(*make_task(0), task="old")
    before, old_rows = learner.metric_matrix("old"), learner.dictionary_
    learner.partial_fit(*make_task(1), task="new")
    assert not np.array_equal(learner.dictionary_, old_rows)
    P = learner.dictionary_.T @ learner.dictionary_
    np.testing.assert_allclose(learner.metric_matrix("old"), P @ before @ P, atol=1e-9)


def test_codes_kept_follow_the_change_of_basis(monkeypatch):
    taken, real = [], lifelong.dictionary_step
    monkeypatch.setattr(lifelong, "dictionary_step", lambda *a: taken.append(real(*a)) or taken[-1])
    learner = make_learner(old_tasks="codes", dictionary_steps=3)
    learner.partial_fit(*make_task(0), task="old")
    expected = learner.codes_["old"]
    taken.clear()
    learner.partial_fit(*make_task(1), task="new")
    assert sum(step.step_size > 0 for step in taken) > 1
    for step in taken:
        expected = step.change.T @ expected @ step.change
    np.testing.assert_allclose(learner.codes_["old"], expected, atol=1e-12)


def test_moving_helps_the_new_task_and_no_steps_keep_the_dictionary():
    still = learn(make_learner(dictionary_steps=0))
    first = make_learner(dictionary_steps=0).partial_fit(*make_task(0), task="paris")
    np.testing.assert_array_equal(still.dictionary_, first.dictionary_)
    moved = learn(make_learner(dictionary_steps=10))
    for record in moved.tasks_.values():
        assert record.loss_after < record.loss_before


def test_average_weighs_by_rows():
    rng = np.random.default_rng(5)
    A, B = (FactoredMetric.from_dense(rng.normal(size=(7, 7))) for _ in range(2))
    learner = make_learner(base_learner=Given(A), n_components=7)
    learner.partial_fit(*make_task(0, n=30), task="t")
    learner.set_params(base_learner=Given(B)).partial_fit(*make_task(1, n=15), task="t")
    expected = (30 * A.to_dense() + 15 * B.to_dense()) / 45
    np.testing.assert_allclose(learner.metric_matrix("t"), expected, atol=1e-10)
    record = learner.tasks_["t"]
    assert (record.n_rows, record.n_visits, record.number) == (45, 2, 0)


def test_step_zeroes_the_linearised_hinge():
    learner = make_learner(revisit="step", n_components=7).partial_fit(*make_task(0), task="t")
    X, y = make_task(1)
    M = learner.metric_matrix("t")
    i, j, k = learner._triplets(X, y, "similarity", learner._seeds("t")[1][0]).T
    learner.partial_fit(X, y, task="t")
    slack = 1 - np.einsum("na,ab,nb->n", X[i], M, X[j] - X[k])
    active = slack > 0
    G = -(X[i][active].T @ (X[j] - X[k])[active]) / len(i)
    change = learner.metric_matrix("t") - M
    assert np.sum(change * G) == pytest.approx(-np.maximum(slack, 0).mean())
    np.testing.assert_allclose(change, np.sum(change * G) / np.sum(G * G) * G, atol=1e-12)


def test_warm_start_and_transfer_hand_over_the_known_metric():
    seen = []

    class Watch(OASIS):
        def fit(self, X, y):
            seen.append(self.init)
            return super().fit(X, y)

    base = Watch(n_steps=100)
    learner = make_learner(base_learner=base, revisit="warm", transfer=True, dictionary_steps=0)
    learn(learner, ("a", "b"))
    assert seen[0] is None
    codes = dict(learner.codes_)
    learner.partial_fit(*make_task(5), task="c")
    learner.partial_fit(*make_task(6), task="a")
    L = learner.dictionary_
    for init, W in ((seen[2], (codes["a"] + codes["b"]) / 2), (seen[3], codes["a"])):
        expected = np.eye(7) + L.T @ (W - np.eye(4)) @ L
        np.testing.assert_allclose(init.to_dense(), expected, atol=1e-10)


def test_warm_start_needs_init():
    learner = make_learner(base_learner=SCML(n_basis=20, n_steps=200), revisit="warm")
    learner.partial_fit(*make_task(0), task="t")
    with pytest.raises(ValueError, match="init"):
        learner.partial_fit(*make_task(1), task="t")


# --- tasks over time ----------------------------------------------------------------------


def test_names_of_any_kind():
    learner = learn(make_learner())
    assert tuple(learner.tasks_) == NAMES
    assert [record.number for record in learner.tasks_.values()] == [0, 1, 2]
    for name in NAMES:
        assert learner.transform(make_task(0)[0], task=name).shape[0] == 30
    with pytest.raises(ValueError, match=r"never seen.*'paris', 42, \('a', 1\)"):
        learner.transform(make_task(0)[0], task="never seen")
    for method in ("task_metric", "get_metric", "metric_matrix", "forget"):
        with pytest.raises(ValueError, match="known tasks"):
            getattr(learner, method)(0)


def test_before_any_task():
    learner = make_learner()
    X, _ = make_task(0)
    for call in (
        lambda: learner.transform(X, task="t"),
        lambda: learner.pair_score([[X[0], X[1]]], task="t"),
        lambda: learner.get_metric("t"),
        lambda: learner.metric_matrix("t"),
        lambda: learner.state_nbytes_,
        lambda: learner.forget("t"),
    ):
        with pytest.raises(NotFittedError):
            call()


def test_partial_fit_chains():
    X, y = make_task(0)
    learner = make_learner()
    assert learner.partial_fit(X, y, task="t").transform(X, task="t").shape[0] == 30
    assert learner.fit(X, y, tasks=["t"] * 30) is learner


@pytest.mark.parametrize(
    "again", [copy.deepcopy, lambda learner: pickle.loads(pickle.dumps(learner))]
)
@pytest.mark.parametrize("random_state", [0, None, np.random.RandomState(3)])
def test_going_on_after_a_copy_is_identical(again, random_state):
    learner = learn(make_learner(random_state=random_state), NAMES[:2])
    twin = again(learner)
    same(learn(twin, NAMES[2:], start=2), learn(learner, NAMES[2:], start=2))


def test_clone_starts_afresh_and_repeats():
    learner = learn(make_learner())
    fresh = clone(learner)
    assert not hasattr(fresh, "tasks_")
    same(learn(fresh), learner)


def test_same_bits_whatever_the_global_seed():
    np.random.seed(1)  # noqa: NPY002
    one = learn(make_learner())
    np.random.seed(2)  # noqa: NPY002
    same(one, learn(make_learner()))


def test_fit_learns_a_table_in_order_of_appearance_and_resets():
    learner = learn(make_learner(), ["gone"])
    parts = [make_task(number) for number in range(3)]
    X, y = np.vstack([p[0] for p in parts]), np.concatenate([p[1] for p in parts])
    names = [NAMES[i // 30] for i in range(90)]
    order = np.argsort(np.arange(90) % 30, kind="stable")
    learner.fit(X[order], y[order], tasks=[names[i] for i in order])
    same(learner, learn(make_learner()))
    with pytest.raises(ValueError, match="inconsistent"):
        learner.fit(X, y, tasks=names[:-1])


def test_forget():
    learner = learn(make_learner(gradient_memory=2))
    kept = learner.metric_matrix(42)
    assert learner.forget("paris") is learner
    assert tuple(learner.tasks_) == NAMES[1:]
    assert "paris" not in learner.codes_
    assert "paris" not in learner.memory_.gradients
    np.testing.assert_array_equal(learner.metric_matrix(42), kept)
    learner.partial_fit(*make_task(4), task="paris")
    assert learner.tasks_["paris"].number == 3


# --- nothing happens when something goes wrong --------------------------------------------


def bad_calls():
    X, y = make_task(7)
    nan, inf = X.copy(), X.copy()
    nan[3, 2], inf[4, 5] = np.nan, np.inf
    return {
        r"X\[3, 2\] is nan": (nan, y, "t"),
        r"X\[4, 5\] is inf": (sparse.csr_array(inf), y, "t"),
        "5 features.* 7": (X[:, :5], y, "t"),
        "1 classes.*no dissimilar pair": (X, np.zeros(30), "t"),
        "no similar pair": (X, np.arange(30), "t"),
        "inconsistent": (X, y[:-1], "t"),
        "hashable": (X, y, ["t"]),
        "equal to itself": (X, y, float("nan")),
        "minimum of 1": (X[:0], y[:0], "t"),
    }


@pytest.mark.parametrize("match", list(bad_calls()))
def test_a_bad_visit_changes_nothing(match):
    learner = learn(make_learner())
    before = pickle.dumps(learner)
    X, y, task = bad_calls()[match]
    with pytest.raises((ValueError, TypeError), match=match):
        learner.partial_fit(X, y, task=task)
    assert pickle.dumps(learner) == before


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError(), ValueError("no")])
@pytest.mark.parametrize("where", ["base", "record"])
def test_interrupted_anywhere_changes_nothing(error, where, monkeypatch):
    learner = learn(make_learner())
    before = pickle.dumps(learner)

    def stop(*args, **kwargs):
        raise error

    name = {"base": "_base_learner", "record": "_next_state"}[where]
    monkeypatch.setattr(type(learner), name, stop)
    with pytest.raises(type(error)):
        learner.partial_fit(*make_task(4), task="new")
    assert pickle.dumps(learner) == before
    monkeypatch.undo()
    learn(learner, ["new"], start=3)
    same(learner, learn(make_learner(), [*NAMES, "new"]))


def test_a_first_visit_that_fails_leaves_an_unfitted_learner():
    learner = make_learner(base_learner=Given(error=KeyboardInterrupt()))
    before = dict(vars(learner))
    with pytest.raises(KeyboardInterrupt):
        learner.partial_fit(*make_task(0), task="t")
    assert vars(learner) == before


def test_metric_type_cannot_change_midway():
    learner = learn(make_learner(), ["a"])
    learner.set_params(base_learner=SCML(n_basis=20, n_steps=100))
    with pytest.raises(ValueError, match=r"distance.*similarity"):
        learner.partial_fit(*make_task(1), task="b")


@pytest.mark.parametrize(
    ("parameter", "value", "error"),
    [
        ("n_components", 0, ValueError),
        ("n_components", -1, ValueError),
        ("n_components", 1.5, TypeError),
        ("n_components", True, TypeError),
        ("code_penalty", -0.1, ValueError),
        ("code_penalty", np.nan, ValueError),
        ("dictionary_rate", np.inf, ValueError),
        ("dictionary_penalty", "much", TypeError),
        ("dictionary_steps", 0.5, TypeError),
        ("gradient_memory", -1, ValueError),
        ("n_triplets", 0, ValueError),
        ("old_tasks", "rows", ValueError),
        ("revisit", "append", ValueError),
        ("dictionary_loss", "both", ValueError),
        ("base_learner", "lmnn", ValueError),
    ],
)
def test_parameters_are_checked_and_named(parameter, value, error):
    learner = LifelongMetricLearner(**{parameter: value})
    with pytest.raises(error, match=parameter):
        learner.partial_fit(*make_task(0), task="t")
    assert not hasattr(learner, "tasks_")


def test_more_components_than_features_are_clipped():
    learner = make_learner(n_components=100).partial_fit(*make_task(0), task="t")
    assert learner.dictionary_.shape == (7, 7)


# --- inputs -------------------------------------------------------------------------------


def test_inputs_are_not_touched_and_layout_does_not_matter():
    X, y = make_task(0)
    expected = make_learner().partial_fit(X, y, task="t")
    wide = np.zeros((30, 14))
    wide[:, ::2] = X
    locked = X.copy()
    locked.flags.writeable = False
    for rows in (np.asfortranarray(X), wide[:, ::2], locked, X.tolist()):
        keep = np.array(rows)
        learner = make_learner().partial_fit(rows, y, task="t")
        np.testing.assert_array_equal(np.array(rows), keep)
        np.testing.assert_allclose(
            learner.metric_matrix("t"), expected.metric_matrix("t"), atol=1e-8
        )
    low = make_learner().partial_fit(X.astype(np.float32), y, task="t")
    np.testing.assert_allclose(low.metric_matrix("t"), expected.metric_matrix("t"), atol=1e-2)


def test_labels_of_any_type():
    X, y = make_task(0)
    expected = make_learner().partial_fit(X, y, task="t")
    for names in (["ant", "bee", "cat"], [7, 8, 9], [-1.0, 0.0, 2.0]):
        learner = make_learner().partial_fit(X, np.array(names)[y], task="t")
        np.testing.assert_allclose(learner.codes_["t"], expected.codes_["t"], atol=1e-10)
        assert set(learner.tasks_["t"].classes) == set(names)
    two = make_learner().partial_fit(X, y == 0, task="t")
    assert set(two.tasks_["t"].classes) == {False, True}


@pytest.mark.parametrize("old_tasks", ["metrics", "codes"])
def test_sparse_rows_equal_dense_rows(old_tasks):
    dense, csr = make_learner(old_tasks=old_tasks), make_learner(old_tasks=old_tasks)
    for number, name in enumerate(NAMES):
        X, y = make_task(number)
        X[np.abs(X) < 0.3] = 0.0
        dense.partial_fit(X, y, task=name)
        csr.partial_fit(sparse.csr_matrix(X), y, task=name)
    P = dense.dictionary_.T @ dense.dictionary_
    np.testing.assert_allclose(csr.dictionary_.T @ csr.dictionary_, P, atol=1e-6)
    for name in NAMES:
        np.testing.assert_allclose(csr.metric_matrix(name), dense.metric_matrix(name), atol=1e-5)


def test_many_features_without_a_square_array():
    D = 20_000
    X = sparse.random(24, D, density=0.005, random_state=0, format="csr")
    y = np.arange(24) % 3
    learner = make_learner(base_learner=OASIS(n_steps=100), gradient_memory=2)
    learner.partial_fit(X, y, task="a").partial_fit(X[::-1], y[::-1], task="b")
    learner.partial_fit(X[:12], y[:12], task="a")
    assert learner.state_nbytes_ < 50 * D * 8
    Z = learner.transform(X, task="a")
    assert Z.shape[0] == 24
    assert Z.shape[1] <= 4
    assert np.isfinite(learner.pair_score((X[:3], X[3:6]), task="b")).all()


# --- reading ------------------------------------------------------------------------------


@pytest.mark.parametrize("base", BASES, ids=["oasis", "scml"])
def test_readings_agree_with_the_dense_matrix(base):
    learner = learn(make_learner(base_learner=base))
    X, _ = make_task(9)
    M = learner.metric_matrix(42)
    values, vectors = np.linalg.eigh((M + M.T) / 2)
    psd = (vectors * np.maximum(values, 0)) @ vectors.T
    Z = learner.transform(X, task=42)
    np.testing.assert_allclose(Z @ Z.T, X @ psd @ X.T, atol=1e-8 * np.abs(values).max())
    distance = learner.get_metric(42)
    gap = X[0] - X[1]
    assert distance(X[0], X[1]) == pytest.approx(np.sqrt(gap @ psd @ gap))
    pairs = np.stack([X[:5], X[5:10]], axis=1)
    if learner.metric_type_ == "similarity":
        expected = np.einsum("na,ab,nb->n", X[:5], M, X[5:10])
        assert not np.allclose(M, M.T)
    else:
        D = X[:5] - X[5:10]
        expected = -np.einsum("na,ab,nb->n", D, psd, D)
    np.testing.assert_allclose(learner.pair_score(pairs, task=42), expected, rtol=1e-7, atol=1e-9)
    with pytest.raises(ValueError, match=r"5 features.* 7"):
        learner.transform(X[:, :5], task=42)
    KNeighborsClassifier(2, metric=distance).fit(X, np.arange(30) % 2).predict(X[:3])


def test_no_rows_are_kept():
    learner = learn(make_learner(gradient_memory=3))
    rows = np.vstack([make_task(number)[0] for number in range(3)])
    for array in [learner.dictionary_, *learner.codes_.values()]:
        assert array.base is None or array.base.nbytes <= array.nbytes
        for row in rows:
            assert not any(np.array_equal(row, kept) for kept in array)
    for G in learner.memory_.gradients.values():
        assert G.factor.shape[0] <= 3
        assert not any(np.array_equal(row, kept) for row in rows for kept in G.factor)


def test_every_byte_is_counted():
    learner = learn(make_learner(gradient_memory=3))
    parts = learner.state_parts_
    assert parts["dictionary"] == 8 * 4 * 7
    assert parts["codes"] == 8 * 3 * 16
    assert parts["gradients"] == sum(
        G.factor.nbytes + G.core.nbytes + 8 for G in learner.memory_.gradients.values()
    )
    assert learner.state_nbytes_ == sum(parts.values())
    plain = make_learner(gradient_memory=0).partial_fit(*make_task(0), task=0)
    assert plain.state_parts_["gradients"] == 0


def test_nearest_neighbours_read_the_moving_learner():
    learner = make_learner().partial_fit(*make_task(0, n=60), task="t")
    reader = LifelongKNeighborsClassifier(learner, n_neighbors=3)
    X, y = make_task(0, n=60)
    reader.fit(X[:30], y[:30], task="t")
    assert reader.score(X[30:], y[30:], task="t") > 0.6
    learner.partial_fit(*make_task(1), task="other")
    assert 0 <= reader.score(X[30:], y[30:], task="t") <= 1


@pytest.mark.parametrize("base", ["oasis", "scml"])
def test_sparse_rows_with_long_indices(base):
    X, y = make_blobs(40, n_features=6, centers=3, random_state=0)
    long = sparse.csr_array(X)
    long.indices, long.indptr = long.indices.astype(np.int64), long.indptr.astype(np.int64)
    found = [
        LifelongMetricLearner(base, 3, random_state=0).partial_fit(rows, y, task=0).metric_matrix(0)
        for rows in (long, sparse.csr_array(X))
    ]
    np.testing.assert_array_equal(*found)
    assert long.indices.dtype == long.indptr.dtype == np.int64


@pytest.mark.parametrize("base", ["oasis", "scml"])
@pytest.mark.parametrize("revisit", ["average", "step"])
@pytest.mark.parametrize(
    "names", [["b", "a", "c"], [b"b", b"a", b"c"], [0.5, 1.5, -2.5], [1, "a", (2, "c")], [3, 1, 2]]
)
def test_labels_are_names_of_any_type_for_every_base_and_visit(base, revisit, names):
    X, y = make_blobs(40, n_features=6, centers=3, random_state=0)
    labels = np.empty(3, dtype=object)
    labels[:] = names
    metrics = []
    for form in (y, labels[y], labels[y].tolist()):
        learner = LifelongMetricLearner(base, 3, revisit=revisit, random_state=0)
        learner.partial_fit(X, form, task=0).partial_fit(X[::-1], form[::-1], task=0)
        metrics.append(learner.metric_matrix(0))
    np.testing.assert_array_equal(metrics[1], metrics[0])
    np.testing.assert_array_equal(metrics[2], metrics[0])
    assert learner.tasks_[0].classes == tuple(dict.fromkeys(labels[y].tolist()))


def test_a_base_learner_that_learns_no_metric_is_named_and_changes_nothing():
    X, y = make_blobs(40, n_features=6, centers=3, random_state=0)
    learner = LifelongMetricLearner("scml", 3, random_state=0).partial_fit(X, y, task="a")
    before = pickle.dumps(vars(learner)["codes_"])
    learner.set_params(base_learner=NeighborhoodComponentsAnalysis(max_iter=2))
    with pytest.raises(TypeError, match="base_learner is a NeighborhoodComponentsAnalysis"):
        learner.partial_fit(X, y, task="b")
    assert list(learner.tasks_) == ["a"]
    assert pickle.dumps(learner.codes_) == before


class DenseMetric(BaseEstimator):
    """A learner whose metric is a plain array."""

    metric_type = "distance"

    def fit(self, X, y):
        self.metric_ = np.diag(np.arange(1.0, X.shape[1] + 1))
        return self


def test_a_base_learner_may_give_a_plain_array():
    X, y = make_blobs(40, n_features=4, centers=3, random_state=0)
    learner = LifelongMetricLearner(DenseMetric(), 4, random_state=0).partial_fit(X, y, task="a")
    np.testing.assert_allclose(learner.metric_matrix("a"), np.diag([1.0, 2, 3, 4]), atol=1e-9)


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_a_missing_label_is_named_by_its_row(missing):
    X = np.arange(12.0).reshape(4, 3)
    with pytest.raises(ValueError, match=r"y\[2\] is (None|nan)"):
        LifelongMetricLearner("scml", 2).partial_fit(X, ["a", "b", missing, "a"], task=0)


@pytest.mark.parametrize("names", [[1, "1", 2], [("a",), ("b", 2), "c"], [0.5, 1.5, 2]])
def test_a_table_takes_labels_of_any_type(names):
    X, y = make_task(0)
    table = make_learner().fit(X, [names[code] for code in y], tasks=["t"] * len(y))
    oracle = make_learner().fit(X, y, tasks=["t"] * len(y))
    np.testing.assert_array_equal(table.metric_matrix("t"), oracle.metric_matrix("t"))
    assert table.tasks_["t"].classes == tuple(names)


@pytest.mark.parametrize("revisit", ["average", "step"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, "continuous"])
def test_labels_that_are_no_names_are_refused_at_every_visit(revisit, bad):
    learner = learn(make_learner(revisit=revisit), ["t"])
    before, (X, y) = dict(vars(learner)), make_task(1)
    y = y.astype(float)
    y[5:] = np.linspace(0, 1, 25) if bad == "continuous" else bad
    for task in ("t", "new"):
        with pytest.raises(ValueError, match=r"continuous|y\[5\] is"):
            learner.partial_fit(X, y, task=task)
    assert vars(learner) == before


@pytest.mark.parametrize("wrong", [3, OASIS, Given(FactoredMetric.identity(6))])
def test_a_base_learner_of_other_rows_or_of_none_is_named(wrong):
    learner = learn(make_learner(), ["t"])
    before = dict(vars(learner), base_learner=wrong)
    learner.set_params(base_learner=wrong)
    for task in ("t", "new"):
        with pytest.raises((TypeError, ValueError), match=r"^base_learner (is|gives)"):
            learner.partial_fit(*make_task(1), task=task)
    assert vars(learner) == before
