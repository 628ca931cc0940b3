"""Visits of one class, of one sample, or without two samples of a class: what is kept of them."""

from typing import ClassVar

import numpy as np
import pytest
from lifelong_streams import NAMES, all_of, learn, make_learner, make_task, save_and_load
from numpy.testing import assert_allclose, assert_array_equal
from scipy import linalg, sparse
from sklearn.base import BaseEstimator

from lml import lifelong
from lml.datasets import Task
from lml.evaluation import LifelongKNeighborsClassifier, evaluate_stream
from lml.lifelong import LifelongMetricLearner
from lml.lmnn import LMNN
from lml.oasis import OASIS
from lml.scml import SCML
from lml.state import read_state, write_state
from lml.weak_supervision import OpenSetClassifier

FIXED = LMNN(shrinkage=0.05, max_iter=20)  # draws nothing from so few samples
BASES = {"oasis": OASIS(n_steps=200), "scml": SCML(n_basis=10, n_steps=100), "lmnn": FIXED}


def small_visits():
    """Samples and labels from which no metric can be learned."""
    X, y = make_task(50)
    one = y == 1
    return {
        "one class": (X[one], y[one]),
        "one sample": (X[:1], y[:1]),
        "all classes once": (X[:3], y[:3]),
    }


SMALL = small_visits()


def dense_shared(codes, m, D=7):
    """P from the dense codes that it is made of, by eigenvalues."""
    parts = []
    for W in codes:
        values, vectors = np.linalg.eigh(W)
        values = np.maximum(1 + (values - values.mean()) / values.std(), 0)
        parts.append((vectors * values) @ vectors.T * D / values.sum())
    return (1 - m) * np.eye(D) + m * np.mean(parts, axis=0) if codes else np.eye(D)


def found_by(base, X, y, P):
    """The code that a base learner without a seed finds in the coordinates of P."""
    Z = X @ linalg.sqrtm(P).real
    scale = np.linalg.norm(Z) / np.linalg.norm(X)
    return base.fit(Z / scale, y).metric_.to_dense() / scale**2


def precise(base=FIXED, **parameters):
    """A learner that cuts nothing."""
    given = {"n_components": 7, "code_rank": None, "sharing": 0.5} | parameters
    return make_learner(base, **given)


# --- what a visit without a triplet leaves ------------------------------------------------


@pytest.mark.parametrize("kind", SMALL)
@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_a_task_without_a_triplet_is_read_in_what_the_others_have_found(kind, base, form):
    learner = learn(precise(BASES[base], sharing=0.6))
    before = all_of(learner)
    codes = [code.to_dense() for code in learner.codes_.values()]
    X, y = SMALL[kind]
    learner.partial_fit(form(X), y, task="new")
    P = dense_shared(codes, 0.6)
    assert_allclose(learner.metric_matrix("new"), P, atol=1e-6)
    assert_array_equal(learner.metric_matrix("new"), learner.shared_metric_.to_dense())
    assert list(learner.codes_) == list(NAMES)
    record = learner.tasks_["new"]
    assert (record.n_samples, record.n_visits, record.n_learned) == (len(y), 1, 0)
    assert record.classes == tuple(dict.fromkeys(y.tolist()))
    assert (record.number, record.sharing) == (3, 0.6)
    # the readings are those of P
    Q, _ = make_task(8)
    Z = learner.transform(Q, task="new")
    assert_allclose(Z @ Z.T, Q @ P @ Q.T, atol=1e-6)
    pairs = np.stack([Q[:5], Q[5:10]], axis=1)
    gaps = pairs[:, 0] - pairs[:, 1]
    products = {True: (pairs[:, 0] @ P * pairs[:, 1]), False: -(gaps @ P * gaps)}
    scores = products[learner.metric_type_ == "similarity"].sum(axis=1)
    assert_allclose(learner.pair_score(pairs, task="new"), scores, atol=1e-6)
    view = learner.as_transformer("new")
    assert_array_equal(view.transform(Q), Z)
    assert learner.index_space("new") in ("l2", "inner product")
    # it leaves no trace
    assert all_of(learner.forget("new")) == before


@pytest.mark.parametrize("kind", SMALL)
def test_a_known_task_keeps_its_code_and_all_metrics_stay(kind):
    learner = learn(precise())
    before = {task: learner.metric_matrix(task) for task in NAMES}
    learner.partial_fit(*SMALL[kind], task=42)
    for task in NAMES:
        assert_array_equal(learner.metric_matrix(task), before[task])
    record = learner.tasks_[42]
    n = len(SMALL[kind][1])
    assert (record.n_samples, record.n_visits, record.n_learned) == (30 + n, 2, 30)


def test_a_task_without_a_code_is_none_of_the_others():
    """Not in the mean, not in the number of others, and nobody is asked because of it."""
    for sharing in ("grow", 0.5):
        plain, mixed = (precise(sharing=sharing) for _ in range(2))
        for number, name in enumerate(NAMES):
            for learner in (plain, mixed):
                learner.partial_fit(*make_task(number), task=name)
            for kind, visit in SMALL.items():
                mixed.partial_fit(*visit, task=(kind, number))
            assert mixed.sharing_ == plain.sharing_
        for name in NAMES:
            assert_array_equal(mixed.metric_matrix(name), plain.metric_matrix(name))
        mixed.forget("paris").forget(42).forget(NAMES[2])
        assert mixed.state_parts_["shared"] == 0
        assert_array_equal(mixed.shared_metric_.to_dense(), np.eye(7))
        assert_array_equal(mixed.metric_matrix(("one class", 0)), np.eye(7))


class Watched(OASIS):
    """OASIS that notes the samples that it is given."""

    seen: ClassVar[list] = []

    def fit(self, X, y):
        self.seen.append(len(X))
        return super().fit(X, y)


@pytest.mark.filterwarnings("ignore:.*has no triplet")
def test_nobody_is_asked_how_much_to_share_with_tasks_without_codes():
    learner = make_learner(Watched(n_steps=20)).partial_fit(*SMALL["one class"], task="before")
    Watched.seen.clear()
    learner.partial_fit(*make_task(0), task="first")
    assert Watched.seen == [30]
    learner.partial_fit(*make_task(1), task="second")
    assert len(Watched.seen) == 6
    learner.partial_fit(*SMALL["one class"], task="second")
    assert len(Watched.seen) == 6


@pytest.mark.filterwarnings("ignore:.*has no triplet")
def test_a_later_visit_counts_by_the_samples_that_taught():
    learner = precise(sharing=0.0)
    visits = [SMALL["one class"], make_task(1), SMALL["one class"], make_task(2, n=15)]
    for X, y in visits:
        learner.partial_fit(X, y, task="a")
    first, second = (found_by(FIXED, *visits[number], np.eye(7)) for number in (1, 3))
    assert_allclose(learner.codes_["a"].to_dense(), (30 * first + 15 * second) / 45, atol=1e-6)
    record = learner.tasks_["a"]
    assert (record.n_samples, record.n_visits, record.n_learned) == (65, 4, 45)


@pytest.mark.filterwarnings("ignore:.*has no triplet")
def test_triplets_and_pairs_teach_a_task_that_had_none():
    X, _ = make_task(0)
    learner = make_learner().partial_fit(*SMALL["one sample"], task="a")
    learner.partial_fit_triplets([[0, 3, 1], [1, 4, 2]], X, task="a")
    assert (learner.tasks_["a"].n_samples, learner.tasks_["a"].n_learned) == (31, 30)
    learner.partial_fit(*SMALL["one sample"], task="b")
    learner.partial_fit_pairs([[0, 3], [0, 1]], [1, -1], X, task="b")
    assert list(learner.codes_) == ["a", "b"]


def test_a_table_may_hold_such_tasks():
    parts = {"a": make_task(0), "one": SMALL["one class"], "b": make_task(1)}
    X, y = (np.concatenate([part[k] for part in parts.values()]) for k in range(2))
    names = [name for name, part in parts.items() for _ in part[1]]
    learner = make_learner()
    for name, part in parts.items():
        learner.partial_fit(*part, task=name)
    assert all_of(make_learner().fit(X, y, tasks=names)) == all_of(learner)


# --- the first visit ----------------------------------------------------------------------


class SaysLater(BaseEstimator):
    """A base learner whose fit says what it has learned."""

    def fit(self, X, y):
        self.metric_, self.metric_type = np.eye(X.shape[1]), "distance"
        return self


@pytest.mark.parametrize("kind", SMALL)
@pytest.mark.parametrize("base", ["oasis", "scml", "lmnn"])
def test_the_first_visit_may_be_such_a_one_and_says_that_nothing_is_known(kind, base, tmp_path):
    learner = precise(base)
    with pytest.warns(UserWarning, match="'a' has no triplet.*no task has been learned") as caught:
        learner.partial_fit(*SMALL[kind], task="a")
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert learner.metric_type_ == ("similarity" if base == "oasis" else "distance")
    assert_array_equal(learner.metric_matrix("a"), np.eye(7))
    assert learner.codes_ == {}
    with pytest.warns(UserWarning, match="'d' has no triplet"):
        learner.partial_fit(*SMALL[kind], task="d")
    twin = save_and_load(learner, tmp_path / "s")
    assert all_of(twin) == all_of(learner)
    for one in (learner, twin):
        one.partial_fit(*make_task(0), task="b").partial_fit(*SMALL["one class"], task="c")
    assert all_of(twin) == all_of(learner)
    for task in "ac":
        shared = dense_shared([learner.codes_["b"].to_dense()], 0.5)
        assert_allclose(learner.metric_matrix(task), shared, atol=1e-6)


@pytest.mark.filterwarnings("error:the mean of the samples")
@pytest.mark.filterwarnings("ignore:.*has no triplet")
def test_the_mean_of_one_class_is_not_one_to_subtract():
    X, y = make_task(0)
    one = y == 1
    make_learner().partial_fit(X[one] + 9, y[one], task="a")
    make_learner().fit(X[one] + 9, y[one], tasks=["a"] * 10)
    with pytest.raises(UserWarning, match="subtract the mean of the task"):
        make_learner().partial_fit(X + 9, y, task="a")


def test_the_first_visit_is_refused_where_the_type_is_not_known():
    learner = make_learner(SaysLater())
    said = r"task 'a' has no triplet.*base_learner=SaysLater\(\) says only after a fit"
    for X, y in SMALL.values():
        with pytest.raises(ValueError, match=said):
            learner.partial_fit(X, y, task="a")
        with pytest.raises(ValueError, match=said):
            learner.fit(X, y, tasks=["a"] * len(y))
    assert not hasattr(learner, "tasks_")
    learner.partial_fit(*make_task(0), task="b").partial_fit(*SMALL["one class"], task="a")
    assert learner.tasks_["a"].n_learned == 0


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), MemoryError()])
def test_such_a_visit_that_fails_changes_nothing(stop, monkeypatch):
    learner = learn(make_learner(shared_labels=True))
    before = all_of(learner)

    def fail(*_):
        raise stop

    with monkeypatch.context() as patch:
        patch.setattr(lifelong, "_noted", fail)
        with pytest.raises(type(stop)):
            learner.partial_fit(*SMALL["one class"], task="new")
    assert all_of(learner) == before
    with pytest.raises(ValueError, match="0 samples of 0 classes"):
        learner.partial_fit(np.zeros((0, 7)), [], task="new")
    with pytest.raises(ValueError, match="features"):
        learner.partial_fit(np.zeros((1, 6)), [0], task="new")
    assert all_of(learner) == before


# --- labels in common ---------------------------------------------------------------------


def centered_means(X, y):
    return {label: X[y == label].mean(axis=0) - X.mean(axis=0) for label in sorted(set(y))}


def test_class_means_of_other_tasks_make_a_visit_of_single_samples_teach():
    learner = precise(shared_labels=True).partial_fit(*make_task(0), task="a")
    P = dense_shared([learner.codes_["a"].to_dense()], 0.5)
    X, y = SMALL["all classes once"]
    means = np.array([X.mean(axis=0) + mean for mean in centered_means(*make_task(0)).values()])
    rows, labels = np.concatenate([X, means]), np.r_[y, 0, 1, 2]
    learner.partial_fit(X, y, task="b")
    assert_allclose(learner.codes_["b"].to_dense(), found_by(FIXED, rows, labels, P), atol=1e-5)
    assert learner.tasks_["b"].n_learned == 3
    learner.partial_fit(*SMALL["one sample"], task="c")  # all of one class still
    assert learner.tasks_["c"].n_learned == 0


def test_the_mean_of_one_class_says_nothing_of_where_a_task_lies():
    """It joins no other task and none joins it, until a second class comes."""
    plain, mixed = (precise(Watched(n_steps=20), shared_labels=True) for _ in range(2))
    for number in range(12):
        for learner in (plain, mixed):
            learner.partial_fit(*make_task(number), task=number)
        mixed.partial_fit(*SMALL["one class"], task=("one", number))
    Watched.seen.clear()
    mixed.partial_fit(*make_task(20), task="last")
    assert Watched.seen == [30 + 3 * 10]  # of ten tasks of three classes
    for number in range(12):
        found, expected = (one.class_means_of_others(task=number)[0] for one in (mixed, plain))
        assert_array_equal(found[: len(expected)], expected)
        assert len(found) == len(expected) + 3  # of "last"
    X, y = SMALL["one class"]
    means, labels = mixed.class_means_of_others(task=("one", 0))
    assert means.shape == (0, 7)
    assert labels == []
    own = mixed.shrink_references(X, y, task=("one", 0), amount=1.0, shared=1.0)
    assert_allclose(own, np.tile(X.mean(axis=0), (len(X), 1)), atol=1e-12)
    found, expected = (
        one.shrink_references(*make_task(3), task=3, amount=1.0, shared=1.0)
        for one in (mixed.forget("last"), plain)
    )
    assert_allclose(found, expected, atol=1e-12)


def test_a_class_that_comes_later_gives_a_task_of_one_class_its_place():
    learner = precise(shared_labels=True).partial_fit(*make_task(0), task="a")
    X, y = make_task(1)
    for label in (0, 1):
        learner.partial_fit(X[y == label], y[y == label], task="b")
    kept = y < 2
    means = centered_means(X[kept], y[kept])
    found, labels = learner.class_means_of_others(task="a")
    assert labels == [0, 1]
    expected = [make_task(0)[0].mean(axis=0) + means[label] for label in labels]
    assert_allclose(found, expected, atol=1e-12)
    record = learner.tasks_["b"]
    assert (record.n_visits, record.n_samples, record.n_learned) == (2, 20, 0)
    assert learner.state_parts_["records"] == 8 * (5 + 3 + 5 + 2)  # numbers, and labels


# --- files and readers --------------------------------------------------------------------


@pytest.mark.parametrize("shared_labels", [False, True])
@pytest.mark.parametrize("base", BASES)
def test_a_file_holds_such_tasks_and_the_next_visits_go_on_bit_for_bit(
    base, shared_labels, tmp_path
):
    learner = learn(make_learner(BASES[base], shared_labels=shared_labels))
    for kind, visit in SMALL.items():
        learner.partial_fit(*visit, task=kind).partial_fit(*visit, task=42)
    twin = save_and_load(learner, tmp_path / "s")
    assert all_of(twin) == all_of(learner)
    for one in (learner, twin):
        one.partial_fit(*make_task(9), task=42).partial_fit(*make_task(10), task="one class")
    assert all_of(twin) == all_of(learner)
    assert learner.tasks_["one class"].n_learned == 30
    assert learner.codes_.keys() >= {*NAMES, "one class"}


SPOILT = {
    "tasks of codes is 3, not all that were learned": lambda state: state["codes"][1].__setitem__(
        0, "new"
    ),
    "tasks of codes is 3, not all that": lambda state: state["tasks"][3][1].update(n_learned=1),
    "n_learned of 42 is 31, not at most": lambda state: state["tasks"][1][1].update(n_learned=31),
    "sum is None, not one with codes": lambda state: state.update(total=None),
    "sum is .*, not one with codes only": lambda state: (
        state.update(codes=[]),
        [record.update(n_learned=0) for _, record in state["tasks"]],
    ),
}


@pytest.mark.parametrize("said", SPOILT)
def test_a_file_whose_codes_are_not_those_of_the_tasks_that_learned_is_refused(said, tmp_path):
    path, kind = tmp_path / "s", "LifelongMetricLearner"
    learn(make_learner(code_rank=0)).partial_fit(*SMALL["one class"], task="new").save(path)
    meta, arrays = read_state(path, kind)
    SPOILT[said](meta["state"])
    if not meta["state"]["codes"]:
        arrays = {name: array for name, array in arrays.items() if not name.startswith("codes")}
    if meta["state"]["total"] is None:
        arrays = {name: array for name, array in arrays.items() if not name.startswith("total")}
    write_state(path, kind, meta, arrays)
    with pytest.raises(ValueError, match=f"cannot be used as a state: {said}"):
        LifelongMetricLearner.load(path)


def test_a_reader_gains_references_and_classifies_in_the_shared_metric():
    learner = learn(precise())
    reader = LifelongKNeighborsClassifier(learner, n_neighbors=1)
    X, y = make_task(60, n=300)
    order = np.argsort(y[:30], kind="stable")
    for label in range(3):  # one class after another
        own = order[y[order] == label]
        learner.partial_fit(X[own], y[own], task="new")
        reader.partial_fit(X[own], y[own], task="new")
        assert reader.classes_["new"].tolist() == list(range(label + 1))
    P = learner.shared_metric_.to_dense()
    gaps = X[30:, None] - X[order][None]
    nearest = np.einsum("ijk,kl,ijl->ij", gaps, P, gaps).argmin(axis=1)
    assert_array_equal(reader.predict(X[30:], task="new"), y[order][nearest])
    assert learner.tasks_["new"].n_learned == 0
    # samples of no known class are far in that metric too
    far = X[30:50] + 60
    model = OpenSetClassifier(reader, task="new", outlier_label=-1)
    model.fit(np.concatenate([X[30:120], far]), [*y[30:120], *[9] * 20])
    assert model.predict(X[120:] + 80).tolist() == [-1] * 180
    assert np.mean(model.predict(X[120:]) == y[120:]) > 0.5
    reader.forget("new")
    assert "new" not in learner.tasks_


def test_a_stream_with_such_tasks_is_evaluated():
    tasks = []
    for number, name in enumerate(("a", "one", "b", "one")):
        X, y = make_task(number, n=315)
        kept = np.flatnonzero(y[:210] == 2) if number == 1 else np.arange(210)
        tasks.append(Task(name, X[kept], y[kept], X[225:], y[225:], X[210:225], y[210:225]))
    result = evaluate_stream(LifelongMetricLearner(FIXED, sharing=0.5), tasks, n_neighbors=1)
    assert result.visits == ("a", "one", "b", "one")
    column = result.accuracy[:, 1]  # of three classes it has references of one, then of all
    assert column[1:3].tolist() == [1 / 3, 1 / 3]
    assert column[3] > 0.5
