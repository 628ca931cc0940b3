"""Thirty-two kinds of odd and bad input, at every public entry that they can reach.

`test_case_NN_...` belongs to kind NN. Kinds 1 to 16 are about learning, 17 to 23 about tasks
over time; 24 to 32, about the book and its tests, stand in `test_book_cases`. `ENTRIES` lists
what learns, with small settings; each test takes the entries that the kind can reach.
`filterwarnings = error` in pyproject.toml makes every unexpected warning a failure.
"""

from __future__ import annotations

import copy
import inspect
import itertools
import pickle
import re
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import DataConversionWarning, NotFittedError

from lml.baselines import (
    ELLA,
    MultiTaskLMNN,
    MultiTaskOASIS,
    MultiTaskSCML,
    OffDiagonalLearner,
    PooledMetricLearner,
)
from lml.baselines.mtscml import joint_dual_averaging, joint_objective
from lml.baselines.offdiagonal import TripletMap
from lml.baselines.omtrsl import multitask_step, relation_inverse
from lml.baselines.pooled import split_tasks
from lml.coding import code_metric, fista
from lml.datasets import Task, load_digits_tasks
from lml.dictionary import dictionary_step, polar_factors
from lml.evaluation import (
    LifelongKNeighborsClassifier,
    average_accuracy,
    backward_transfer,
    evaluate_stream,
    forgetting,
    forward_transfer,
)
from lml.fisher import class_scatter, fisher_directions, local_fisher_basis
from lml.initialization import complete_dictionary, initial_dictionary, orthonormal_rows
from lml.lifelong import LifelongMetricLearner
from lml.lmnn import LMNN, impostors, lmnn_loss_gradient, target_neighbors
from lml.metrics import FactoredMetric, pairwise_scores
from lml.neighbors import MetricKNeighborsClassifier, k_nearest
from lml.oasis import OASIS, passive_aggressive_step
from lml.penalties import OffDiagonalL1
from lml.plda import LifelongPLDA
from lml.scml import SCML, dual_averaging, scml_objective
from lml.triplets import (
    all_triplets,
    nearest_triplets,
    sample_triplets,
    triplet_gradient,
    triplet_loss,
    triplet_margins,
)

# ---------------------------------------------------------------- the entries


class Euclidean:
    """What a `LifelongKNeighborsClassifier` reads, without any learning."""

    metric_type_ = "distance"

    def __init__(self, n_features):
        self.n_features = n_features

    def task_metric(self, task):
        return FactoredMetric.identity(self.n_features)


@dataclass(frozen=True)
class Entry:
    """Something that learns from rows and labels.

    `kind` says how it is called: "single" has fit(X, y); "stream" has partial_fit(X, y, task=);
    "references" has fit(X, y, task=); "table" has fit(X, y, tasks=).
    """

    name: str
    make: Callable
    kind: str
    takes_sparse: bool = True
    takes_one_class: bool = False
    least: int = 3

    def __str__(self):
        return self.name

    def learn(self, model, X, y, task="t"):
        if self.kind == "single":
            return model.fit(X, y)
        if self.kind == "stream":
            return model.partial_fit(X, y, task=task)
        if self.kind == "references":
            return model.fit(X, y, task=task)
        n_rows = X.shape[0] if hasattr(X, "shape") else len(X)
        return model.fit(X, y, tasks=[task] * n_rows)

    @property
    def where(self):
        """The keyword that readings take."""
        return {} if self.kind == "single" else {"task": "t"}

    def readings(self, model, X, y=None):
        """Every public method that reads a learnt model, as calls without arguments."""
        pairs, labels = np.stack([X[:3], X[3:6]], axis=1), np.arange(len(X)) % 2 if y is None else y
        arguments = {
            "transform": (X,),
            "predict": (X,),
            "kneighbors": (X,),
            "decision_function": (X,),
            "predict_proba": (X,),
            "score": (X, labels),
            "pair_score": (pairs,),
            "pair_distance": (pairs,),
            "task_metric": (),
            "metric_matrix": (),
            "get_metric": (),
            "get_mahalanobis_matrix": (),
        }
        return {
            name: lambda name=name, args=args: self.read(model, name, args)
            for name, args in arguments.items()
            if hasattr(type(model), name) and hasattr(model, name)
        }

    def read(self, model, name, arguments, task="t"):
        """Call a reading method, with the names of tasks in the form that it takes."""
        if self.kind == "single":
            return getattr(model, name)(*arguments)
        if name == "score" and "tasks" in inspect.signature(model.score).parameters:
            return model.score(*arguments, tasks=[task] * len(arguments[0]))
        return getattr(model, name)(*arguments, task=task)

    def answers(self, model, X):
        """Arrays that say what was learnt, free of the choice of coordinates."""
        if isinstance(model, ELLA):
            return [model.decision_function(X, **self.where)]
        if isinstance(model, MetricKNeighborsClassifier):
            return list(model.kneighbors(X, n_neighbors=1))
        if isinstance(model, LifelongKNeighborsClassifier):
            return [model.predict(X, **self.where)]
        metric = model.metric_ if self.kind == "single" else model.task_metric("t")
        Z = model.transform(X, **self.where)
        return [metric.to_dense(), Z @ Z.T]


def single_learners():
    return {
        "OASIS": lambda D=4: OASIS(n_steps=100, random_state=0),
        "SCML": lambda D=4: SCML(n_basis=8, n_steps=200, random_state=0),
        "OffDiagonal": lambda D=4: OffDiagonalLearner(n_components=3, ridge=0.1, random_state=0),
        "OffDiagonal similarity": lambda D=4: OffDiagonalLearner(
            "similarity", n_components=3, ridge=0.1, random_state=0
        ),
        "k-NN of OASIS": lambda D=4: MetricKNeighborsClassifier(
            OASIS(n_steps=100, random_state=0), n_neighbors=1
        ),
    }


def lifelong(base, **parameters):
    return LifelongMetricLearner(
        base, **{"n_components": 3, "n_triplets": 200, "random_state": 0} | parameters
    )


def oasis(**parameters):
    return lifelong(OASIS(n_steps=100), **parameters)


def scml(**parameters):
    return lifelong(SCML(n_basis=8, n_steps=200), **parameters)


ENTRIES = [
    *(Entry(name, make, "single") for name, make in single_learners().items()),
    Entry("LMNN", lambda D=4: LMNN(max_iter=20), "single", False),
    Entry("LMNN shrunk", lambda D=4: LMNN(shrinkage=0.01, max_iter=20), "single", False),
    Entry("k-NN", lambda D=4: MetricKNeighborsClassifier(n_neighbors=1), "single", True, True, 1),
    Entry("lifelong OASIS", lambda D=4: oasis(), "stream"),
    Entry("lifelong SCML", lambda D=4: scml(), "stream"),
    Entry("lifelong table", lambda D=4: oasis(), "table"),
    Entry("lifelong PLDA", lambda D=4: LifelongPLDA(4, n_folds=2, random_state=0), "stream"),
    Entry("PLDA table", lambda D=4: LifelongPLDA(4, n_folds=2, random_state=0), "table"),
    Entry("ELLA", lambda D=4: ELLA(n_components=2, random_state=0), "stream", least=2),
    Entry("ELLA table", lambda D=4: ELLA(n_components=2, random_state=0), "table", least=2),
    Entry(
        "references",
        lambda D=4: LifelongKNeighborsClassifier(Euclidean(D), n_neighbors=1),
        "references",
        True,
        True,
        1,
    ),
    Entry(
        "pooled",
        lambda D=4: PooledMetricLearner(OASIS(n_steps=100, random_state=0)),
        "table",
    ),
    Entry("joint SCML", lambda D=4: MultiTaskSCML(n_basis=8, n_steps=200, random_state=0), "table"),
    Entry("joint LMNN", lambda D=4: MultiTaskLMNN(max_iter=10), "table", False),
    Entry("joint OASIS", lambda D=4: MultiTaskOASIS(n_steps=100, random_state=0), "table"),
]
SPARSE = [entry for entry in ENTRIES if entry.takes_sparse]
DENSE_ONLY = [entry for entry in ENTRIES if not entry.takes_sparse]
BY_TASK = [entry for entry in ENTRIES if entry.kind != "single"]
NEEDS_PAIRS = [entry for entry in ENTRIES if not entry.takes_one_class]
SEEDED = [entry for entry in ENTRIES if "LMNN" not in entry.name]

every = pytest.mark.parametrize("entry", ENTRIES, ids=str)


def rows(n=24, D=4, seed=0, gap=3.0):
    """Two classes that overlap a little; the numbers are exact in single precision."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    X = rng.normal(size=(n, D))
    X[:, 0] += gap * y
    return X.astype(np.float32).astype(np.float64), y


X0, Y0 = rows()
FRESH, _ = rows(8, seed=1)  # rows that nothing was learnt from


def learnt(entry, X=X0, y=Y0):
    return entry.learn(entry.make(X.shape[1]), X, y)


def finite(arrays):
    return all(np.isfinite(a).all() for a in arrays if np.asarray(a).dtype.kind == "f")


def assert_same(found, expected):
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def assert_refused(entry, X, y, said, error=ValueError):
    """The call fails with the words; a fresh and a fitted model stay what they were, to the bit."""
    for model in (entry.make(), learnt(entry)):
        before = pickle.dumps(model)
        with pytest.raises(error, match=said):
            entry.learn(model, X, y, task="new")
        assert pickle.dumps(model) == before


# ---------------------------------------------------------------- 1: nothing to do

FAR = np.random.default_rng(0).normal(size=(20, 4)) * 0.1
FAR[:, 0] += np.repeat([500.0, -500.0], 10)
FAR -= FAR.mean(axis=0)
FAR_Y = np.repeat([0, 1], 10)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_case_01_oasis_without_a_violated_triplet_reports_no_update(form):
    for model in (
        OASIS(n_steps=500, random_state=0).fit(form(FAR), FAR_Y),
        MultiTaskOASIS(n_steps=500, random_state=0).fit(form(FAR), FAR_Y, tasks=["t"] * 20),
    ):
        metric = model.metric_ if isinstance(model, OASIS) else model.task_metric("t")
        assert model.n_updates_ == 0
        assert not model.loss_curve_.any()
        assert metric.to_dense().tolist() == np.eye(4).tolist()


def test_case_01_lifelong_learner_without_a_violated_triplet_keeps_the_identity():
    model = oasis(n_components=4).partial_fit(FAR, FAR_Y, task="t")
    np.testing.assert_allclose(model.metric_matrix("t"), np.eye(4), atol=1e-12)
    assert (model.tasks_["t"].loss_before, model.tasks_["t"].loss_after) == (0.0, 0.0)


@every
def test_case_01_far_classes_are_learnt_without_a_warning(entry):
    model = learnt(entry, FAR, FAR_Y)
    assert finite(entry.answers(model, FAR))


def test_case_01_lmnn_without_impostors():
    targets = target_neighbors(FAR, FAR_Y)
    pairs = impostors(FAR, FAR_Y, targets)
    assert pairs.shape == (0, 2)
    found = lmnn_loss_gradient(FAR, targets, pairs)
    pull = np.square(FAR[targets[:, 0]] - FAR[targets[:, 1]]).sum()
    assert found.loss == pytest.approx(0.5 * pull, rel=1e-12)
    assert found.weight == 0.0


def test_case_01_means_over_nothing_are_zero():
    none, identity = np.zeros((0, 3), dtype=int), FactoredMetric.identity(4)
    P, found = X0[:, :2], all_triplets(FAR_Y)
    for kind in ("similarity", "distance"):
        for triplets in (none, found, []):
            assert triplet_loss(identity, FAR, triplets, kind) == 0.0
            loss, gradient = triplet_gradient(identity, FAR, triplets, kind)
            assert loss == 0.0
            assert not gradient.to_dense().any()
        start = np.eye(4)[:2]
        step = dictionary_step(start, np.eye(2), FAR, none, kind)
        assert step.step_size == 0.0
        np.testing.assert_allclose(step.dictionary, start, atol=1e-15)
    assert scml_objective([1.0, 2.0], P, none, beta=0.5) == 1.5
    assert joint_objective([[1.0, 2.0]], [P], [none]) == 0.0
    with pytest.raises(ValueError, match="triplets is empty: give at least one"):
        TripletMap(P, none, "distance")


def test_case_01_steps_that_are_not_needed_return_what_they_were_given():
    x, near, far = np.array([3.0, 0.0]), np.array([3.0, 0.0]), np.array([-3.0, 0.0])
    W, tasks = np.eye(2), np.stack([np.eye(2)] * 2)
    assert passive_aggressive_step(W, x, near, far, 0.1) == (W, 0.0)
    assert multitask_step(tasks, 1, x, near, far, 0.1, relation_inverse(2, 1.0)) == (tasks, 0.0)


# ---------------------------------------------------------------- 2: one class


@pytest.mark.parametrize("entry", NEEDS_PAIRS, ids=str)
def test_case_02_one_class_is_refused_and_nothing_changes(entry):
    said = r"(one class only \(7\)|1 classes).*give (rows of at least )?two"
    assert_refused(entry, X0, np.full(24, 7), said)


@pytest.mark.parametrize("entry", [e for e in ENTRIES if e.takes_one_class], ids=str)
def test_case_02_nearest_neighbours_answer_with_the_one_class(entry):
    model = entry.learn(entry.make(), X0, np.full(24, 7))
    assert model.predict(FRESH, **entry.where).tolist() == [7] * 8


@pytest.mark.parametrize(
    "call",
    [
        lambda y: all_triplets(y),
        lambda y: sample_triplets(y, 5),
        lambda y: nearest_triplets(X0, y),
        lambda y: target_neighbors(X0, y),
        lambda y: class_scatter(X0, y),
        lambda y: fisher_directions(X0, y),
        lambda y: local_fisher_basis(X0, y, 4),
        lambda y: initial_dictionary(X0, y, 3),
    ],
)
def test_case_02_functions_refuse_one_class(call):
    with pytest.raises(ValueError, match=r"(one class only \('a'\)|of 1 classes).*give .*two"):
        call(["a"] * 24)


def test_case_02_a_task_of_one_class_beside_others():
    names, y = ["one"] * 12 + ["two"] * 12, np.r_[np.zeros(12, int), Y0[:12]]
    pooled = PooledMetricLearner(OASIS(n_steps=50, random_state=0)).fit(X0, y, tasks=names)
    assert pooled.tasks_ == ["one", "two"]  # the union has pairs
    for model in (MultiTaskSCML(), MultiTaskLMNN(), MultiTaskOASIS(), oasis()):
        before = pickle.dumps(model)
        with pytest.raises(ValueError, match=r"task 'one'.*(one class|1 classes)"):
            model.fit(X0, y, tasks=names)
        assert pickle.dumps(model) == before


# ---------------------------------------------------------------- 3: hardly any rows


@every
def test_case_03_too_few_rows_are_refused_with_the_least_that_works(entry):
    least = {
        1: "minimum of 1 is required",
        2: "give (two|at least one|the (rows|samples) of at least one)",
        3: "minimum of 3|at least (3 rows|one task|two classes)|one with two (rows|samples)",
    }
    for n in range(entry.name == "k-NN of OASIS", entry.least):  # no row: the least of k-NN
        assert_refused(entry, X0[:n], Y0[:n], least[entry.least])
    n = entry.least
    model = entry.learn(entry.make(), X0[:n], Y0[:n])
    assert finite(entry.answers(model, FRESH))


@pytest.mark.parametrize("n", [0, 1, 2])
def test_case_03_functions_name_the_least_that_works(n):
    y = Y0[:n].tolist()
    for call in (
        lambda: all_triplets(y),
        lambda: sample_triplets(y, 3),
        lambda: nearest_triplets(X0[:n], y),
        lambda: target_neighbors(X0[:n], y),
    ):
        with pytest.raises(
            ValueError, match=rf"y has {n} (rows|samples).*(at least 3 rows|two samples)"
        ):
            call()
    if n < 2:
        for call in (
            lambda: fisher_directions(X0[:n], y),
            lambda: initial_dictionary(X0[:n], y, 2),
            lambda: class_scatter(X0[:n], y),
        ):
            with pytest.raises(
                ValueError, match=r"give at least two (rows|samples), of two classes"
            ):
                call()
    else:
        assert fisher_directions(X0[:2], y).shape == (1, 4)
    assert all_triplets(Y0[:3]).tolist() == [[0, 2, 1], [2, 0, 1]]


# ---------------------------------------------------------------- 4: more features than rows


@every
def test_case_04_more_features_than_triplets(entry):
    X, y = rows(6, 50)
    model = learnt(entry, X, y)
    assert finite(entry.answers(model, rows(6, 50, seed=1)[0]))


@pytest.mark.parametrize("make", [oasis, scml])
def test_case_04_the_dictionary_reports_where_its_rows_come_from(make):
    X, y = rows(6, 50)
    L, report = initial_dictionary(X, y, 20, random_state=0, return_report=True)
    assert np.linalg.matrix_rank(L) == len(L) == 20
    assert (report.basis_rank, report.n_fisher, report.n_residual) == (1, 1, 4)  # 6 centred rows
    assert report.n_random == 15
    model = make(n_components=20).partial_fit(X, y, task="t")
    assert np.linalg.matrix_rank(model.dictionary_) == 20
    assert 0 < model.tasks_["t"].captured <= 1


# ---------------------------------------------------------------- 5: a class of one row


LONE = np.r_[[9], Y0[1:]]


@every
def test_case_05_a_class_of_one_row_does_no_harm(entry):
    model = learnt(entry, X0, LONE)
    assert finite(entry.answers(model, FRESH))


def test_case_05_a_lone_row_is_no_anchor_but_an_impostor():
    for triplets in (
        all_triplets(LONE),
        sample_triplets(LONE, 500, random_state=0),
        nearest_triplets(X0, LONE, 3, 23),
    ):
        assert 0 not in triplets[:, :2]
        assert 0 in triplets[:, 2]
        i, j, k = triplets.T
        assert (LONE[i] == LONE[j]).all()
        assert (LONE[i] != LONE[k]).all()
    assert 0 not in target_neighbors(X0, LONE)
    with pytest.raises(
        ValueError, match=r"24 samples of 24 classes, .*no similar pair: give two classes"
    ):
        all_triplets(np.arange(24))


def test_case_05_a_bounded_set_of_references_keeps_a_lone_row():
    reader = LifelongKNeighborsClassifier(Euclidean(4), 1, max_references=3, random_state=0)
    assert 9 in reader.fit(X0, LONE, task="t").references_["t"][1]


# ---------------------------------------------------------------- 6: copies


@every
@pytest.mark.parametrize("X", [np.repeat(X0, 3, axis=0), np.ones((9, 4)), np.zeros((9, 4))])
def test_case_06_copies_of_rows_are_learnt_without_a_division_by_zero(entry, X):
    y = np.repeat(Y0, 3) if len(X) > 9 else np.arange(9) % 2
    model = learnt(entry, X, y)
    assert finite(entry.answers(model, FRESH))
    assert finite(entry.answers(model, X))


def test_case_06_copies_have_equal_scores_and_a_row_is_not_its_own_neighbour():
    X, y = np.repeat(X0, 3, axis=0), np.repeat(Y0, 3)
    i, j, _ = nearest_triplets(X, y, 2, 5).T
    assert (i != j).all()
    assert (i // 3 == j // 3).all()  # the two other copies are nearest
    metric = FactoredMetric.from_dense(X0[:4].T @ X0[:4])
    for kind in ("distance", "similarity"):
        _, scores = k_nearest(metric, FRESH, X, kind, 3)
        assert (scores == scores[:, :1]).all()


# ---------------------------------------------------------------- 7: constant columns


@every
def test_case_07_constant_columns_and_blank_pixels(entry):
    X = X0.copy()
    X[:, 1] = 7.0
    assert finite(entry.answers(learnt(entry, X, Y0), FRESH))
    digits, y = load_digits(return_X_y=True)
    own = np.flatnonzero(y < 2)[:40]
    X, y = digits[own], y[own]  # raw: 0 to 16, many pixels always 0
    assert (np.ptp(X, axis=0) == 0).sum() > 10
    assert finite(entry.answers(learnt(entry, X, y), X))


# ---------------------------------------------------------------- 8: not finite

SPOILED = {"nan": (3, 2, np.nan), "-inf": (5, 0, -np.inf), "inf": (0, 3, np.inf)}


@every
@pytest.mark.parametrize("kind", SPOILED)
@pytest.mark.parametrize("form", [np.asarray, np.float32, sparse.csr_array])
def test_case_08_a_value_that_is_not_finite_is_named_and_nothing_changes(entry, kind, form):
    row, column, value = SPOILED[kind]
    X = X0.copy()
    X[row, column] = value
    X = form(X)
    if sparse.issparse(X) and not entry.takes_sparse:
        said = rf"is sparse|X\[{row}, {column}\] is {kind}"
        assert_refused(entry, X, Y0, said, (TypeError, ValueError))
    else:
        assert_refused(entry, X, Y0, rf"X\[{row}, {column}\] is {kind}: .*remove or impute")


@every
def test_case_08_readings_name_a_value_that_is_not_finite(entry):
    model, X = learnt(entry), FRESH.copy()
    X[4, 1] = np.nan
    called = 0
    before = pickle.dumps(model)
    for name, call in entry.readings(model, X).items():
        if name in ("task_metric", "metric_matrix") or name.startswith("get_"):
            continue
        place = r"pairs\[1, 1, 1\]" if name.startswith("pair_") else r"X\[4, 1\]"
        with pytest.raises(ValueError, match=rf"{place} is nan: .*remove or impute"):
            call()
        called += 1
    assert called >= 2
    assert pickle.dumps(model) == before


def test_case_08_functions_name_a_value_that_is_not_finite():
    X, triplets = X0.copy(), all_triplets(Y0)[:5]
    X[3, 2] = np.nan
    metric, L = FactoredMetric.identity(4), np.eye(4)[:2]
    for call in (
        lambda: nearest_triplets(X, Y0),
        lambda: target_neighbors(X, Y0),
        lambda: triplet_margins(metric, X, triplets, "distance"),
        lambda: triplet_loss(metric, X, triplets, "similarity"),
        lambda: triplet_gradient(metric, X, triplets, "similarity"),
        lambda: class_scatter(X, Y0),
        lambda: fisher_directions(X, Y0),
        lambda: local_fisher_basis(X, Y0, 4),
        lambda: initial_dictionary(X, Y0, 3),
        lambda: complete_dictionary(L, X, 3),
        lambda: k_nearest(metric, X, X0, "distance", 1),
        lambda: k_nearest(metric, X0, X, "similarity", 1),
        lambda: pairwise_scores(metric, X, X0, "distance"),
        lambda: metric.embed(X),
        lambda: metric.bilinear(X0, X),
        lambda: metric.quadratic(sparse.csr_array(X)),
        lambda: FactoredMetric.from_components(X),
        lambda: FactoredMetric(0.0, X, np.ones(24)),
        lambda: split_tasks(X, Y0, ["t"] * 24),
        lambda: dictionary_step(L, np.eye(2), X, triplets, "distance"),
    ):
        with pytest.raises(ValueError, match=r"\[3, 2\] is nan: .*remove or impute"):
            call()


def test_case_08_dictionaries_and_codes_that_are_not_finite():
    L, W, metric = np.eye(4)[:2], np.eye(2), FactoredMetric.identity(4)
    bad = L.copy()
    bad[1, 3] = np.inf
    for call in (
        lambda: code_metric(bad, metric, 0.1),
        lambda: polar_factors(bad),
        lambda: dictionary_step(bad, W, X0, all_triplets(Y0)[:5], "distance"),
        lambda: orthonormal_rows(bad),
        lambda: complete_dictionary(bad, X0, 3),
        lambda: OffDiagonalLearner(dictionary=bad).fit(X0, Y0),
    ):
        with pytest.raises(ValueError, match=r"(dictionary|L)\[1, 3\] is inf: .*remove or impute"):
            call()
    bad = np.array([[1.0, np.nan], [0.0, 1.0]])
    with pytest.raises(ValueError, match=r"init\[0, 1\] is nan"):
        code_metric(L, metric, 0.1, init=bad)
    with pytest.raises(ValueError, match=r"init\[0, 1\] is nan"):
        fista(lambda W: (np.sum(W * W) / 2, W), OffDiagonalL1(1.0), bad)
    with pytest.raises(ValueError, match=r"\[0, 1\] is nan"):
        OASIS(init=bad).fit(X0[:, :2], Y0)
    with pytest.raises(ValueError, match=r"relation\[0, 1\] is nan"):
        MultiTaskOASIS(relation=bad).fit(X0, Y0, tasks=["a"] * 12 + ["b"] * 12)


@pytest.mark.parametrize("missing", [None, float("nan"), np.float64("nan"), float("inf")])
@every
def test_case_08_a_missing_label_is_named(entry, missing):
    y = np.array(Y0, dtype=object)
    y[5] = missing
    for labels in (y, list(y)):
        assert_refused(
            entry, X0, labels, r"y\[5\] is (None|nan|inf): drop the (rows|samples) without"
        )


@every
def test_case_08_numbers_whose_squares_overflow_are_refused(entry):
    X = X0.copy()
    X[3, 2] = -1e200
    assert_refused(entry, X, Y0, r"X holds a number of size 1e\+200.*rescale the (rows|samples)")


# ---------------------------------------------------------------- 9: seeds


@pytest.mark.parametrize("entry", SEEDED, ids=str)
def test_case_09_the_same_seed_gives_the_same_bits_whatever_the_global_seed(entry):
    np.random.seed(1)  # noqa: NPY002
    first = entry.answers(learnt(entry), FRESH)
    np.random.seed(2)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    assert_same(entry.answers(learnt(entry), FRESH), first)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


def test_case_09_functions_and_streams_repeat():
    tasks = load_digits_tasks(random_state=0, train_size=0.1)[:2]

    def results():
        learner = lifelong(OASIS(n_steps=100), n_components=5)
        stream = evaluate_stream(learner, tasks, max_references=20, random_state=0)
        P = X0[:, :3]
        return [
            sample_triplets(Y0, 50, random_state=0),
            local_fisher_basis(X0, Y0, 8, random_state=0),
            initial_dictionary(X0, Y0, 4, random_state=0),
            complete_dictionary(np.eye(4)[:1], np.zeros((3, 4)), 4, random_state=0),
            dual_averaging(P, all_triplets(Y0), 0.01, n_steps=100, random_state=0)[0],
            joint_dual_averaging([P], [all_triplets(Y0)], 0.01, n_steps=100, random_state=0)[0],
            stream.accuracy,
            load_digits_tasks(random_state=0)[1].X_train,
        ]

    first = results()
    np.random.seed(7)  # noqa: NPY002
    assert_same(results(), first)


# ---------------------------------------------------------------- 10: labels

LABELS = {
    "words": ["cat", "dog"],
    "mixed case": ["a", "B"],
    "one word, two cases": ["CAT", "cat"],
    "bools": [False, True],
    "numbers": [7, 9],
    "a number and its name": [1, "1"],
    "tuples": [("a", 1), ("a", 2)],
    "bytes": [b"a", b"b"],
    "large numbers": [5, 10**30],
    "fractions": [0.5, 1.5],
    "empty and blank": ["", " "],
}


# numpy has no array of several types, nor of tuples: those come as lists and as objects
ARRAYS = [
    kind for kind in LABELS if kind not in ("a number and its name", "tuples", "large numbers")
]
KINDS_OF_LABELS = [
    *itertools.product(LABELS, ["list", "object"]),
    *itertools.product(ARRAYS, ["array"]),
]


@every
@pytest.mark.parametrize(("kind", "form"), KINDS_OF_LABELS)
def test_case_10_labels_are_names(entry, kind, form):
    names = LABELS[kind]
    labels = [names[c] for c in Y0]
    if form == "object":
        labels = np.fromiter(labels, dtype=object, count=len(labels))
    elif form == "array":
        labels = np.array(labels)
    model, numbered = learnt(entry, X0, labels), learnt(entry)
    expected = entry.answers(numbered, FRESH)
    found = entry.answers(model, FRESH)
    if isinstance(model, LifelongKNeighborsClassifier):
        expected = [np.fromiter([names[c] for c in expected[0]], object, len(FRESH))]
        assert found[0].tolist() == expected[0].tolist()
    elif isinstance(model, ELLA):  # classes in the order of their labels
        np.testing.assert_allclose(abs(found[0]), abs(expected[0]), rtol=1e-6)
    else:
        assert_same(found, expected)
    if hasattr(model, "predict"):
        given = [names[c] for c in numbered.predict(FRESH, **entry.where)]
        assert model.predict(FRESH, **entry.where).tolist() == given
        assert entry.read(model, "score", (FRESH, given)) == 1.0


# ---------------------------------------------------------------- 11: shape of y


@every
def test_case_11_a_column_of_labels_warns_and_works(entry):
    expected = entry.answers(learnt(entry), FRESH)
    with pytest.warns(DataConversionWarning, match="A column-vector y was passed"):
        model = entry.learn(entry.make(), X0, Y0[:, None])
    assert_same(entry.answers(model, FRESH), expected)


@every
def test_case_11_a_wrong_number_of_labels_is_refused_with_both_numbers(entry):
    assert_refused(entry, X0, Y0[:-1], r"(?s)24.*23")
    assert_refused(entry, X0, np.r_[Y0, 0], r"(?s)24.*25")
    assert_refused(entry, X0, np.c_[Y0, Y0], r"y should be a 1d array, got .* \(24, 2\)")


@every
def test_case_11_a_wrong_number_of_labels_to_score(entry):
    model = learnt(entry)
    if hasattr(model, "score"):
        with pytest.raises(ValueError, match=r"(?s)8.*7"):
            entry.read(model, "score", (FRESH, Y0[:7]))


# ---------------------------------------------------------------- 12: rows of very different size

SIZES = np.where(np.arange(24) % 3 == 0, 1e4, 1e-4)[:, None]


@every
def test_case_12_rows_of_very_different_size(entry):
    X = X0 / np.linalg.norm(X0, axis=1, keepdims=True) * SIZES
    model = learnt(entry, X, Y0)
    assert finite(entry.answers(model, X))


def test_case_12_triplets_stay_valid():
    X = X0 / np.linalg.norm(X0, axis=1, keepdims=True) * SIZES
    for triplets in (nearest_triplets(X, Y0), sample_triplets(Y0, 100, 0, self_pairs=False)):
        i, j, k = triplets.T
        assert (Y0[i] == Y0[j]).all()
        assert (Y0[i] != Y0[k]).all()
        assert (i != j).all()


# ---------------------------------------------------------------- 13: forms of rows


def forms():
    spread, read_only = np.zeros((48, 8)), X0.copy()
    spread[::2, ::2] = X0
    read_only.flags.writeable = False
    return {
        "float32": X0.astype(np.float32),
        "Fortran": np.asfortranarray(X0),
        "view": spread[::2, ::2],
        "backwards": X0[::-1].copy()[::-1],
        "read-only": read_only,
        "list": X0.tolist(),
        "big-endian": X0.astype(">f8"),
        "objects": X0.astype(object),
    }


def assert_close(found, expected):
    """Equal but for the last digits, which the layout of an array may change."""
    for a, b in zip(found, expected, strict=True):
        if np.asarray(b).dtype.kind in "iuOSTU":
            np.testing.assert_array_equal(a, b)
        else:
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * np.abs(b).max())


@every
@pytest.mark.parametrize("name", forms())
def test_case_13_the_form_of_the_rows_does_not_matter_and_they_are_not_touched(entry, name):
    X, y = forms()[name], Y0.copy()
    y.flags.writeable = False
    before = copy.deepcopy(X)
    model = entry.learn(entry.make(), X, y)
    assert_close(entry.answers(model, X0), entry.answers(learnt(entry), X0))
    assert_close(entry.answers(model, X), entry.answers(model, X0))
    assert np.array_equal(np.asarray(X), np.asarray(before))
    assert type(X) is type(before)


@every
@pytest.mark.parametrize("name", ["pandas", "pandas nullable", "polars"])
def test_case_13_data_frames(entry, name):
    import pandas
    import polars

    columns = ["a", "b", "c", "d"]
    if name == "polars":
        X, y = polars.DataFrame(X0, schema=columns), polars.Series(Y0)
    else:
        X, y = pandas.DataFrame(X0, columns=columns, index=range(100, 124)), pandas.Series(Y0)
        X = X.astype("Float64") if "nullable" in name else X
    before, model = X.clone() if name == "polars" else X.copy(), entry.make()
    entry.learn(model, X, y)
    assert_close(entry.answers(model, X), entry.answers(learnt(entry), X0))
    assert X.equals(before)
    words = ["cat" if c else "dog" for c in Y0]
    series = polars.Series(words) if name == "polars" else pandas.Series(words, dtype="category")
    again = entry.learn(entry.make(), X, series)
    named = entry.learn(entry.make(), X0, words)
    assert_close(entry.answers(again, X), entry.answers(named, X0))


@pytest.mark.parametrize("entry", [e for e in BY_TASK if e.kind == "table"], ids=str)
def test_case_13_names_of_tasks_from_frames(entry):
    import pandas
    import polars

    names = ["p"] * 12 + ["q"] * 12
    forms = (
        names,
        tuple(names),
        iter(names),
        np.array(names),
        np.array(names, dtype=object),
        pandas.Series(names, index=range(50, 74)),
        pandas.Series(names, dtype="category"),
        polars.Series(names),
    )
    for tasks in forms:
        model = entry.make().fit(X0, Y0, tasks=tasks)
        assert [type(name) for name in model.tasks_] == [str, str]
        assert list(model.tasks_) == ["p", "q"]


# ---------------------------------------------------------------- 14: sparse rows

KINDS = ["csr_array", "csr_matrix", "csc_array", "coo_array", "lil_array", "dok_array", "bsr_array"]


def wide(X):
    """The same CSR array with 64-bit indices."""
    X = sparse.csr_array(X)
    places = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    return sparse.csr_array((X.data, *places), shape=X.shape)


@pytest.mark.parametrize("entry", SPARSE, ids=str)
@pytest.mark.parametrize("kind", [*KINDS, "wide"])
def test_case_14_sparse_rows_give_what_dense_rows_give(entry, kind):
    X = X0 * (np.random.default_rng(0).random(X0.shape) < 0.6)
    make = wide if kind == "wide" else getattr(sparse, kind)
    held = make(X)
    before = held.toarray()
    model = entry.learn(entry.make(), held, Y0)
    expected = learnt(entry, X, Y0)
    assert_close(entry.answers(model, X), entry.answers(expected, X))
    assert_close(entry.answers(expected, held), entry.answers(expected, X))
    np.testing.assert_array_equal(held.toarray(), before)


@pytest.mark.parametrize("entry", DENSE_ONLY, ids=str)
def test_case_14_learners_of_full_metrics_refuse_sparse_rows(entry):
    said = r"X is sparse \(24, 4\), but .* fill.* all 4 features: reduce the rows first"
    assert_refused(entry, sparse.csr_array(X0), Y0, said, TypeError)
    pooled = PooledMetricLearner(LMNN())
    with pytest.raises(TypeError, match=said):
        pooled.fit(sparse.csr_array(X0), Y0, tasks=["t"] * 24)


@pytest.mark.parametrize("entry", SPARSE, ids=str)
def test_case_14_nothing_is_made_dense_at_35846_features(entry):
    """A dense copy of the rows would take 86 MB, a D x D array 10 GB."""
    X = sparse.random_array((300, 35_846), density=0.001, rng=np.random.default_rng(0))
    X, y = sparse.csr_array(X), np.arange(300) % 2
    model = entry.make(35_846)
    tracemalloc.start()
    try:
        entry.learn(model, X, y)
        if hasattr(model, "pair_score"):
            scores = model.pair_score((X[:50], X[50:100]), **entry.where)
        else:
            scores = model.predict(X[:50], **entry.where)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert scores.shape == (50,)
    assert peak < 30e6


# ---------------------------------------------------------------- 15: other features


@pytest.mark.parametrize(
    "entry", [e for e in ENTRIES if e.kind in ("stream", "references")], ids=str
)
def test_case_15_a_second_task_of_other_features_is_refused_with_both_numbers(entry):
    model = learnt(entry)
    before = pickle.dumps(model)
    for width in (3, 7):
        X, y = rows(D=width)
        with pytest.raises(ValueError, match=rf"X has {width} features.* 4"):
            entry.learn(model, X, y, task="new")
    assert pickle.dumps(model) == before


@every
def test_case_15_readings_of_other_features_are_refused_with_both_numbers(entry):
    model = learnt(entry)
    for width in (3, 7):
        X = rows(8, width)[0]
        for name, call in entry.readings(model, X).items():
            if name in ("task_metric", "metric_matrix") or name.startswith("get_"):
                continue
            with pytest.raises(ValueError, match=rf"{width} features.* 4"):
                call()


def test_case_15_a_stream_is_refused_before_anything_is_learnt():
    X, y = rows(D=7)
    tasks = [Task("a", X0, Y0, X0[:0], Y0[:0], X0, Y0), Task("b", X, y, X[:0], y[:0], X, y)]
    learner = oasis()
    before = pickle.dumps(learner)
    with pytest.raises(ValueError, match="X has 7 features, the reference rows of task 'a' have 4"):
        evaluate_stream(learner, tasks)
    assert pickle.dumps(learner) == before


def test_case_15_functions_say_both_numbers():
    metric, L, W = FactoredMetric.identity(4), np.eye(4)[:2], np.eye(2)
    X, triplets = rows(D=7)[0], all_triplets(Y0)[:5]
    for call in (
        lambda: triplet_margins(metric, X, triplets, "distance"),
        lambda: k_nearest(metric, X, X0, "distance", 1),
        lambda: pairwise_scores(metric, X0, X, "similarity"),
        lambda: metric + FactoredMetric.identity(7),
        lambda: metric.inner(FactoredMetric.identity(7)),
        lambda: code_metric(np.eye(7)[:2], metric, 0.1),
        lambda: dictionary_step(L, W, X, triplets, "distance"),
        lambda: complete_dictionary(L, X, 3),
        lambda: OASIS(init=metric).fit(X, Y0),
        lambda: OffDiagonalLearner(dictionary=L).fit(X, Y0),
    ):
        with pytest.raises(ValueError, match=r"(?s)7.*4|4.*7"):
            call()


# ---------------------------------------------------------------- 16: sizes that are asked for

BAD_COUNTS = [0, -1, 1.5, "2", True, None, float("nan")]
COUNTS = {
    "lifelong n_components": lambda v: oasis(n_components=v).partial_fit(X0, Y0, task="t"),
    "ELLA n_components": lambda v: ELLA(n_components=v).partial_fit(X0, Y0, task="t"),
    "OffDiagonal n_components": lambda v: OffDiagonalLearner(n_components=v).fit(X0, Y0),
    "initial_dictionary n_components": lambda v: initial_dictionary(X0, Y0, v),
    "complete_dictionary n_components": lambda v: complete_dictionary(np.eye(4)[:1], X0, v),
    "local_fisher_basis n_basis": lambda v: local_fisher_basis(X0, Y0, v),
    "SCML n_targets": lambda v: SCML(n_targets=v).fit(X0, Y0),
    "LMNN n_targets": lambda v: LMNN(n_targets=v).fit(X0, Y0),
    "MultiTaskLMNN n_targets": lambda v: MultiTaskLMNN(n_targets=v).fit(X0, Y0, tasks=["t"] * 24),
    "nearest_triplets n_targets": lambda v: nearest_triplets(X0, Y0, v),
    "k_nearest n_neighbors": lambda v: k_nearest(FactoredMetric.identity(4), X0, X0, "distance", v),
    "k-NN n_neighbors": lambda v: MetricKNeighborsClassifier(n_neighbors=v).fit(X0, Y0),
    "references n_neighbors": lambda v: LifelongKNeighborsClassifier(Euclidean(4), v).fit(
        X0, Y0, task="t"
    ),
}


@pytest.mark.parametrize("value", BAD_COUNTS)
@pytest.mark.parametrize("name", COUNTS)
def test_case_16_counts_out_of_range_are_named(name, value):
    parameter = name.split()[1]
    with pytest.raises(
        (ValueError, TypeError), match=rf"{parameter}( is |=){re.escape(repr(value))}"
    ):
        COUNTS[name](value)


def test_case_16_more_components_than_features_are_clipped_as_documented():
    for model in (oasis(n_components=50), scml(n_components=50)):
        model.partial_fit(X0, Y0, task="t")
        assert model.dictionary_.shape == (4, 4)
        assert model.n_components == 50
    assert OffDiagonalLearner(n_components=50, ridge=0.1).fit(X0, Y0).code_.shape == (4, 4)
    assert initial_dictionary(X0, Y0, 50).shape == (4, 4)
    assert complete_dictionary(np.eye(4)[:1], X0, 50).shape == (4, 4)
    assert ELLA(n_components=50).partial_fit(X0, Y0, task="t").dictionary_.shape == (4, 50)
    assert FactoredMetric.identity(4).compress(rank=50).rank_bound <= 4


def test_case_16_more_components_than_the_rank_of_the_rows_are_completed():
    X = np.outer(X0[:, 0], [1.0, 2.0, 0.0, 1.0])  # rank one
    for model in (oasis(n_components=4), scml(n_components=4)):
        model.partial_fit(X, Y0, task="t")
        L = model.dictionary_
        np.testing.assert_allclose(L @ L.T, np.eye(4), atol=1e-12)
        assert finite([model.transform(FRESH, task="t")])


# ---------------------------------------------------------------- 17-19: names of tasks

NAMES = ["paris", 42, ("a", 1)]


@pytest.mark.parametrize("entry", BY_TASK, ids=str)
def test_case_17_names_of_tasks_are_no_places(entry):
    order = [2, 0, 1]
    model, parts = entry.make(), {NAMES[k]: rows(12, seed=k) for k in order}
    if entry.kind == "table":
        X, y = (np.concatenate([part[k] for part in parts.values()]) for k in range(2))
        model.fit(X, y, tasks=[name for name in parts for _ in range(12)])
    else:
        for name, (X, y) in parts.items():
            entry.learn(model, X, y, task=name)
    known = model.references_ if entry.kind == "references" else model.tasks_
    assert list(known) == [NAMES[k] for k in order]
    single = entry.make()
    entry.learn(single, *parts["paris"], task="paris")
    for name in NAMES:
        read = model.transform if hasattr(model, "transform") else model.predict
        assert len(read(FRESH, task=name)) == len(FRESH)
    with pytest.raises(ValueError, match=r"known tasks: \[\('a', 1\), 'paris', 42\]"):
        read(FRESH, task=0)  # not the first task
    with pytest.raises(ValueError, match="known tasks"):
        read(FRESH, task="42")


@pytest.mark.parametrize("entry", BY_TASK, ids=str)
def test_case_17_a_name_that_cannot_be_found_again_is_refused(entry):
    for name in (["x"], {"x"}, {}, np.array([1]), float("nan")):
        for model in (entry.make(), learnt(entry)):
            before = pickle.dumps(model)
            with pytest.raises((TypeError, ValueError), match=r"tasks?(\[0\])?( is |=)"):
                entry.learn(model, X0, Y0, task=name)
            assert pickle.dumps(model) == before


@pytest.mark.parametrize("entry", BY_TASK, ids=str)
def test_case_18_an_unknown_task_is_answered_with_the_known_ones(entry):
    model = learnt(entry)
    before = pickle.dumps(model)
    names = ("never seen", 0, None, float("nan"), ["t"], np.array(["t"]))
    for name, task in itertools.product(entry.readings(model, FRESH), names):
        arguments = reading_arguments(name)
        hashable = isinstance(task, (str, int, float)) or task is None
        said = (
            r"known tasks: \['t'\]|use a name that equals itself|is not equal to itself"
            if hashable
            else r"tasks?(\[0\])?( is |=)"
        )
        with pytest.raises((ValueError, TypeError), match=said):
            entry.read(model, name, arguments, task)
    assert pickle.dumps(model) == before


def reading_arguments(name):
    pairs = np.stack([FRESH[:3], FRESH[3:6]], axis=1)
    if name.startswith("pair_"):
        return (pairs,)
    if name == "score":
        return FRESH, np.arange(8) % 2
    return () if name in ("task_metric", "metric_matrix") or name[:4] == "get_" else (FRESH,)


@every
def test_case_19_reading_before_anything_was_learnt(entry):
    model = entry.make()
    calls = entry.readings(model, FRESH)
    assert len(calls) >= 2
    for call in calls.values():
        with pytest.raises(NotFittedError):
            call()
    if hasattr(model, "state_parts_"):
        pytest.fail("state without a task")


# ---------------------------------------------------------------- 20: going on after a copy


def learned_numbers(model):
    """Everything that a learner of a stream knows of its tasks, as arrays."""
    arrays = [model.dictionary_, *model.codes_.values()]
    if isinstance(model, ELLA):
        parts = (model.coefficients(task) for task in model.tasks_)
        return arrays + [array for part in parts for array in part]
    memory = [] if model.memory_ is None else model.memory_.gradients.values()
    return arrays + [part for G in memory for part in (G.factor, G.core)]


STREAMS = {
    "OASIS": lambda: oasis(),
    "SCML": lambda: scml(),
    "codes kept": lambda: oasis(old_tasks="codes", n_components=2),
    "memory": lambda: oasis(gradient_memory=2, n_components=2),
    "warm start": lambda: oasis(warm_start_from_dictionary=True),
    "penalty": lambda: scml(code_penalty=0.01, n_components=2),
    "ELLA": lambda: ELLA(n_components=2, random_state=0),
    "ELLA by conjugate gradients": lambda: ELLA(n_components=2, random_state=0, solver="cg"),
}


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("again", [lambda m: pickle.loads(pickle.dumps(m)), copy.deepcopy])
def test_case_20_a_copy_after_two_tasks_goes_on_as_the_original(name, again):
    parts = [rows(20, seed=k) for k in range(3)]
    whole, copied = STREAMS[name](), STREAMS[name]()
    for k in range(2):
        whole.partial_fit(*parts[k], task=NAMES[k])
        copied.partial_fit(*parts[k], task=NAMES[k])
    copied = again(copied)
    for task, part in ((NAMES[2], parts[2]), (NAMES[0], parts[1])):  # a new task, a known one
        whole.partial_fit(*part, task=task)
        copied.partial_fit(*part, task=task)
    assert_same(learned_numbers(copied), learned_numbers(whole))
    assert list(copied.tasks_) == list(whole.tasks_)


@pytest.mark.parametrize("name", STREAMS)
def test_case_20_a_clone_begins_anew(name):
    parts, model = [rows(20, seed=k) for k in range(2)], STREAMS[name]()
    for k in range(2):
        model.partial_fit(*parts[k], task=NAMES[k])
    fresh = clone(model)
    with pytest.raises(NotFittedError):
        (fresh.predict if hasattr(fresh, "predict") else fresh.transform)(FRESH, task="paris")
    for k in range(2):
        fresh.partial_fit(*parts[k], task=NAMES[k])
    assert_same(learned_numbers(fresh), learned_numbers(model))


@pytest.mark.parametrize("name", [name for name in STREAMS if "ELLA" not in name])
def test_case_20_a_saved_learner_goes_on_as_the_original(name, tmp_path):
    parts, whole = [rows(20, seed=k) for k in range(3)], STREAMS[name]()
    for k in range(2):
        whole.partial_fit(*parts[k], task=NAMES[k])
    whole.save(tmp_path / "learner.npz")
    loaded = LifelongMetricLearner.load(tmp_path / "learner.npz")
    for task, part in ((NAMES[2], parts[2]), (NAMES[0], parts[1])):
        whole.partial_fit(*part, task=task)
        loaded.partial_fit(*part, task=task)
    assert_same(learned_numbers(loaded), learned_numbers(whole))
    assert loaded.tasks_ == whole.tasks_


@every
def test_case_20_a_fitted_model_survives_pickle_and_deepcopy(entry):
    model = learnt(entry)
    expected = entry.answers(model, FRESH)
    for again in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert_same(entry.answers(again, FRESH), expected)


# ---------------------------------------------------------------- 21: chains


@every
def test_case_21_learning_returns_the_learner(entry):
    model = entry.make()
    assert entry.learn(model, X0, Y0) is model
    chained = entry.learn(entry.make(), X0, Y0)
    read = "transform" if hasattr(chained, "transform") else "predict"
    found = getattr(entry.learn(entry.make(), X0, Y0), read)(FRESH, **entry.where)
    np.testing.assert_array_equal(found, getattr(model, read)(FRESH, **entry.where))


# ---------------------------------------------------------------- 22, 23: numbers of a stream

R = [[0.8, 0.5, 0.5], [0.9, 0.9, 0.5], [0.7, 0.85, 0.9]]


def test_case_22_accuracy_transfer_and_forgetting():
    assert average_accuracy(R) == pytest.approx((0.7 + 0.85 + 0.9) / 3)
    assert backward_transfer(R) == pytest.approx(((0.7 - 0.8) + (0.85 - 0.9)) / 2)
    assert forgetting(R) == pytest.approx(((0.9 - 0.7) + (0.9 - 0.85)) / 2)
    assert [round(f(R), 4) for f in (average_accuracy, backward_transfer, forgetting)] == [
        *(0.8167, -0.075, 0.125)
    ]
    for number in (average_accuracy, backward_transfer, forgetting):
        assert type(number(R)) is float
        with pytest.raises(ValueError, match=r"1\.5.*accuracies from 0 to 1"):
            number(np.where(np.eye(3, dtype=bool), 1.5, R))
        with pytest.raises(ValueError, match=r"R has shape \(2, 3\)"):
            number(R[:2])


def test_case_23_forward_transfer_needs_a_baseline():
    with pytest.raises(ValueError, match="baseline is None: forward transfer needs"):
        forward_transfer(R)
    for wrong, said in (
        ([0.5, 0.5], r"shape \(2,\)"),
        ([0.5, np.nan, 0.5], "NaN"),
        ([0.5, 1.5, 0.5], "1.5"),
    ):
        with pytest.raises(ValueError, match=said):
            forward_transfer(R, baseline=wrong)
    assert forward_transfer(R, baseline=[0.5, 0.5, 0.4]) == pytest.approx((0.0 + 0.1) / 2)
