"""Odd and bad input to the functions of the package; `test_learners` has that to the learners."""

from __future__ import annotations

import numpy as np
import pytest
from checks import assert_same
from checks_of_inputs import FILLS, LOSSY, twice_stored
from registry import FAR, FAR_Y, FRESH, X0, Y0, Euclidean, lifelong_oasis, samples
from scipy import sparse

from lml.baselines import MultiTaskOASIS, OffDiagonalLearner, PooledMetricLearner
from lml.baselines.mtscml import joint_dual_averaging, joint_objective
from lml.baselines.offdiagonal import TripletMap
from lml.baselines.omtrsl import multitask_step, relation_inverse
from lml.baselines.pooled import split_tasks
from lml.coding import code_metric, fista
from lml.datasets import Task, load_digits_tasks
from lml.dictionary import descend, hinge_objective
from lml.evaluation import LifelongKNeighborsClassifier, average_accuracy, evaluate_stream
from lml.fisher import class_scatter, fisher_directions, local_fisher_basis
from lml.initialization import complete_dictionary, initial_dictionary, orthonormal_rows
from lml.lmnn import LMNN, impostors, lmnn_loss_gradient, target_neighbors
from lml.metrics import FactoredMetric, pairwise_scores
from lml.neighbors import k_nearest
from lml.oasis import OASIS, passive_aggressive_step
from lml.penalties import OffDiagonalL1
from lml.scml import dual_averaging, scml_objective
from lml.triplets import (
    all_triplets,
    nearest_triplets,
    sample_triplets,
    triplet_gradient,
    triplet_loss,
    triplet_margins,
)

BY_LABELS = {
    "all_triplets": lambda X, y: all_triplets(y),
    "sample_triplets": lambda X, y: sample_triplets(y, 5),
    "nearest_triplets": nearest_triplets,
    "target_neighbors": target_neighbors,
}
BY_CLASSES = {
    "class_scatter": class_scatter,
    "fisher_directions": fisher_directions,
    "local_fisher_basis": lambda X, y: local_fisher_basis(X, y, 4),
    "initial_dictionary": lambda X, y: initial_dictionary(X, y, 3),
}


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda M: k_nearest(M, X0, X0, "distance", 1), "metric"),
        (lambda M: triplet_margins(M, X0, [[0, 2, 1]], "distance"), "metric"),
        (lambda M: pairwise_scores(M, X0, X0, "distance"), "metric"),
        (lambda M: pairwise_scores(M, X0, X0, "similarity"), "metric"),
        (lambda M: code_metric(np.eye(4), M, 0.1), "target"),
    ],
)
@pytest.mark.parametrize("given", [np.eye(4), None, "euclidean"])
def test_what_is_no_metric_is_named(call, name, given):
    with pytest.raises(TypeError, match=f"{name} is a {type(given).__name__}: pass a Factored"):
        call(given)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_metrics_of_different_sizes_have_no_inner_product(alpha):
    three = FactoredMetric(alpha, np.ones((1, 3)), [1.0])
    four = FactoredMetric(alpha, np.ones((1, 4)), [1.0])
    for first, second in ((three, four), (FactoredMetric.identity(3), FactoredMetric.identity(4))):
        with pytest.raises(ValueError, match="3 and 4 features have no inner product"):
            first.inner(second)


# --- nothing to do ------------------------------------------------------------------------


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
def test_oasis_without_a_violated_triplet_reports_no_update(container):
    for model in (
        OASIS(n_steps=500, random_state=0).fit(container(FAR), FAR_Y),
        MultiTaskOASIS(n_steps=500, random_state=0).fit(container(FAR), FAR_Y, tasks=["t"] * 20),
    ):
        metric = model.metric_ if isinstance(model, OASIS) else model.task_metric("t")
        assert model.n_updates_ == 0
        assert not model.loss_curve_.any()
        assert metric.to_dense().tolist() == np.eye(4).tolist()


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
def test_joint_oasis_makes_no_step_where_products_underflow(container):
    model = MultiTaskOASIS(n_steps=50, random_state=0)
    model.fit(container(X0 * 1e-150), Y0, tasks=["t"] * len(Y0))
    assert model.n_updates_ == 0  # a step of any length is as good as none


def test_a_lifelong_learner_without_a_violated_triplet_keeps_the_identity():
    model = lifelong_oasis(n_components=4).partial_fit(FAR, FAR_Y, task="t")
    np.testing.assert_allclose(model.metric_matrix("t"), np.eye(4), atol=1e-12)
    model.partial_fit(FAR[::-1], FAR_Y[::-1], task="u")  # nor has the other anything to add
    np.testing.assert_allclose(model.shared_metric_.to_dense(), np.eye(4), atol=1e-12)


def test_lmnn_without_impostors_is_the_pull():
    targets = target_neighbors(FAR, FAR_Y)
    pairs = impostors(FAR, FAR_Y, targets)
    assert pairs.shape == (0, 2)
    found = lmnn_loss_gradient(FAR, targets, pairs)
    pull = np.square(FAR[targets[:, 0]] - FAR[targets[:, 1]]).sum()
    assert found.loss == pytest.approx(0.5 * pull, rel=1e-12)
    assert found.weight == 0.0


@pytest.mark.parametrize("kind", ["similarity", "distance"])
def test_means_over_no_triplet_are_zero(kind):
    none, identity = np.zeros((0, 3), dtype=int), FactoredMetric.identity(4)
    for triplets in (none, all_triplets(FAR_Y), []):
        assert triplet_loss(identity, FAR, triplets, kind) == 0.0
        loss, gradient = triplet_gradient(identity, FAR, triplets, kind)
        assert loss == 0.0
        assert not gradient.to_dense().any()
    start = np.eye(4)[:2]
    step = descend(hinge_objective(np.eye(2), FAR, none, kind), start, 0.1)
    assert step.step_size == 0.0
    np.testing.assert_allclose(step.dictionary, start, atol=1e-15)


def test_objectives_over_no_triplet_are_their_penalty():
    P, none = X0[:, :2], np.zeros((0, 3), dtype=int)
    assert scml_objective([1.0, 2.0], P, none, beta=0.5) == 1.5
    assert joint_objective([[1.0, 2.0]], [P], [none]) == 0.0
    with pytest.raises(ValueError, match="triplets is empty: give at least one"):
        TripletMap(P, none, "distance")


def test_steps_that_are_not_needed_return_what_they_were_given():
    x, near, far = np.array([3.0, 0.0]), np.array([3.0, 0.0]), np.array([-3.0, 0.0])
    W, tasks = np.eye(2), np.stack([np.eye(2)] * 2)
    assert passive_aggressive_step(W, x, near, far, 0.1) == (W, 0.0)
    assert multitask_step(tasks, 1, x, near, far, 0.1, relation_inverse(2, 1.0)) == (tasks, 0.0)


# --- few classes, few samples -------------------------------------------------------------


@pytest.mark.parametrize("name", [*BY_LABELS, *BY_CLASSES])
def test_functions_refuse_one_class(name):
    said = r"of 1 classes.*give .*two"
    with pytest.raises(ValueError, match=said):
        (BY_LABELS | BY_CLASSES)[name](X0, ["a"] * 24)


@pytest.mark.parametrize("n", [0, 1, 2])
@pytest.mark.parametrize("name", BY_LABELS)
def test_functions_of_triplets_name_the_least_that_works(name, n):
    said = rf"y has {n} (rows|samples).*(at least 3 rows|two samples)"
    with pytest.raises(ValueError, match=said):
        BY_LABELS[name](X0[:n], Y0[:n].tolist())


@pytest.mark.parametrize("n", [0, 1])
@pytest.mark.parametrize("name", ["class_scatter", "fisher_directions", "initial_dictionary"])
def test_functions_of_classes_name_the_least_that_works(name, n):
    with pytest.raises(ValueError, match=r"give at least two (rows|samples), of two classes"):
        BY_CLASSES[name](X0[:n], Y0[:n].tolist())


def test_the_least_samples_work():
    assert fisher_directions(X0[:2], Y0[:2]).shape == (1, 4)
    assert all_triplets(Y0[:3]).tolist() == [[0, 2, 1], [2, 0, 1]]


def test_a_lone_sample_is_no_anchor_but_an_impostor():
    y = np.r_[[9], Y0[1:]]
    for triplets in (
        all_triplets(y),
        sample_triplets(y, 500, random_state=0),
        nearest_triplets(X0, y, 3, 23),
    ):
        i, j, k = triplets.T
        assert 0 not in triplets[:, :2]
        assert 0 in k
        assert (y[i] == y[j]).all()
        assert (y[i] != y[k]).all()
    assert 0 not in target_neighbors(X0, y)
    with pytest.raises(ValueError, match=r"24 classes.*: give .*class(es)?.* two"):
        all_triplets(np.arange(24))


def test_a_bounded_set_of_references_keeps_a_lone_sample():
    y = np.r_[[9], Y0[1:]]
    reader = LifelongKNeighborsClassifier(Euclidean(4), 1, max_references=3, random_state=0)
    assert 9 in reader.fit(X0, y, task="t").references_["t"][1]


# --- copies, ties, sizes ------------------------------------------------------------------


def test_copies_have_equal_scores_and_a_sample_is_not_its_own_neighbor():
    X, y = np.repeat(X0, 3, axis=0), np.repeat(Y0, 3)
    i, j, _ = nearest_triplets(X, y, 2, 5).T
    assert (i != j).all()
    assert (i // 3 == j // 3).all()  # the two other copies are nearest
    metric = FactoredMetric.from_dense(X0[:4].T @ X0[:4])
    for kind in ("distance", "similarity"):
        _, scores = k_nearest(metric, FRESH, X, kind, 3)
        assert (scores == scores[:, :1]).all()


@pytest.mark.parametrize("kind", ["distance", "similarity"])
def test_equal_sparse_samples_tie_however_they_are_stored(kind):
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(5, 4)), 2, axis=0)
    stored = [sparse.csr_array(X[::2]), twice_stored(X[1::2])]
    metric = FactoredMetric.from_components(rng.normal(size=(4, 4)))
    for in_turn in (stored, stored[::-1]):
        both = sparse.csr_array(sparse.vstack(in_turn))
        places, scores = k_nearest(metric, X, both, kind, 10)
        found = np.take_along_axis(scores, np.argsort(places, axis=1), axis=1)
        np.testing.assert_array_equal(found[:, :5], found[:, 5:])


def test_bases_of_numbers_stored_in_several_parts():
    given, plain = twice_stored(X0), sparse.csr_array(X0)
    np.testing.assert_allclose(fisher_directions(given, Y0), fisher_directions(plain, Y0))
    bases = [local_fisher_basis(X, Y0, 8, random_state=0) for X in (given, plain)]
    np.testing.assert_allclose(*bases)


def test_triplets_of_samples_of_very_different_size_are_valid():
    sizes = np.where(np.arange(24) % 3 == 0, 1e4, 1e-4)[:, None]
    X = X0 / np.linalg.norm(X0, axis=1, keepdims=True) * sizes
    for triplets in (nearest_triplets(X, Y0), sample_triplets(Y0, 100, 0, self_pairs=False)):
        i, j, k = triplets.T
        assert (Y0[i] == Y0[j]).all()
        assert (Y0[i] != Y0[k]).all()
        assert (i != j).all()


# --- numbers that are none ----------------------------------------------------------------


def with_samples(X):
    """Calls of the functions that take samples, by name."""
    metric = FactoredMetric.identity(4)
    triplets = all_triplets(Y0)[:5]
    return {
        "nearest_triplets": lambda: nearest_triplets(X, Y0),
        "target_neighbors": lambda: target_neighbors(X, Y0),
        "triplet_margins": lambda: triplet_margins(metric, X, triplets, "distance"),
        "triplet_loss": lambda: triplet_loss(metric, X, triplets, "similarity"),
        "triplet_loss of distances": lambda: triplet_loss(metric, X, triplets, "distance"),
        "triplet_gradient": lambda: triplet_gradient(metric, X, triplets, "similarity"),
        "class_scatter": lambda: class_scatter(X, Y0),
        "fisher_directions": lambda: fisher_directions(X, Y0),
        "local_fisher_basis": lambda: local_fisher_basis(X, Y0, 4),
        "initial_dictionary": lambda: initial_dictionary(X, Y0, 3),
        "k_nearest, queries": lambda: k_nearest(metric, X, X0, "distance", 1),
        "k_nearest, references": lambda: k_nearest(metric, X0, X, "similarity", 1),
        "k_nearest, references by distance": lambda: k_nearest(metric, X0, X, "distance", 1),
        "pairwise_scores": lambda: pairwise_scores(metric, X, X0, "distance"),
        "embed": lambda: metric.embed(X),
        "bilinear, left": lambda: metric.bilinear(X, X0),
        "bilinear, right": lambda: metric.bilinear(X0, X),
        "quadratic": lambda: metric.quadratic(sparse.csr_array(X)),
        "from_components": lambda: FactoredMetric.from_components(X),
        "FactoredMetric": lambda: FactoredMetric(0.0, X, np.ones(24)),
        "split_tasks": lambda: split_tasks(X, Y0, ["t"] * 24),
    }


@pytest.mark.parametrize("name", with_samples(X0))
def test_functions_name_a_value_that_is_not_finite(name):
    X = X0.copy()
    X[3, 2] = np.nan
    with pytest.raises(ValueError, match=r"\[3, 2\] is nan: .*remove or impute"):
        with_samples(X)[name]()


@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
@pytest.mark.parametrize("kind", LOSSY)
@pytest.mark.parametrize(
    "name",
    [
        "bilinear, left",
        "bilinear, right",
        "embed",
        "k_nearest, queries",
        "k_nearest, references by distance",
        "nearest_triplets",
        "triplet_loss of distances",
        "fisher_directions",
        "from_components",
    ],
)
def test_functions_refuse_samples_that_would_lose_a_mask_or_a_unit(name, kind):
    with pytest.raises((ValueError, TypeError), match=r"masked|omplex|datetime|timedelta"):
        with_samples(LOSSY[kind])[name]()


@pytest.mark.parametrize("kind", ["masked", "complex", "dates"])
def test_pairs_that_would_lose_a_mask_or_a_unit_are_refused(kind):
    one = OASIS(n_steps=5).fit(X0, Y0)
    many = lifelong_oasis().partial_fit(X0, Y0, task="a")
    pairs = np.ma.stack([LOSSY[kind], LOSSY[kind]], axis=1)
    pairs = pairs if kind == "masked" else np.asarray(pairs)
    for score in (one.pair_score, lambda pairs: many.pair_score(pairs, task="a")):
        with pytest.raises(ValueError, match=r"pairs has masked|holds"):
            score(pairs)


def test_masked_samples_of_a_task_and_a_masked_table_of_accuracies_are_refused():
    masked = np.ma.masked_less(X0, 0.0)
    with pytest.raises(ValueError, match="masked"):
        Task("a", masked, Y0, X0, Y0, X0, Y0)
    with pytest.raises(ValueError, match="masked"):
        average_accuracy(np.ma.array([[0.5, 0.5], [0.5, 0.5]], mask=[[0, 1], [0, 0]]))
    assert average_accuracy(np.ma.array([[0.5, 0.5], [0.5, 0.5]])) == 0.5


def test_dictionaries_that_are_not_finite_are_named():
    metric, bad = FactoredMetric.identity(4), np.eye(4)[:2]
    bad[1, 3] = np.inf
    for call in (
        lambda: code_metric(bad, metric, 0.1),
        lambda: orthonormal_rows(bad),
        lambda: OffDiagonalLearner(dictionary=bad).fit(X0, Y0),
    ):
        with pytest.raises(ValueError, match=r"(dictionary|L)\[1, 3\] is inf: .*remove or impute"):
            call()


def test_codes_and_relations_that_are_not_finite_are_named():
    bad = np.array([[1.0, np.nan], [0.0, 1.0]])
    with pytest.raises(ValueError, match=r"init\[0, 1\] is nan"):
        code_metric(np.eye(4)[:2], FactoredMetric.identity(4), 0.1, init=bad)
    with pytest.raises(ValueError, match=r"init\[0, 1\] is nan"):
        fista(lambda W: (np.sum(W * W) / 2, W), OffDiagonalL1(1.0), bad)
    with pytest.raises(ValueError, match=r"\[0, 1\] is nan"):
        OASIS(init=bad).fit(X0[:, :2], Y0)
    with pytest.raises(ValueError, match=r"relation\[0, 1\] is nan"):
        MultiTaskOASIS(relation=bad).fit(X0, Y0, tasks=["a"] * 12 + ["b"] * 12)


@pytest.mark.parametrize("wide", [False, True])
def test_a_learned_metric_does_not_change_with_what_it_started_from(wide):
    X, y = samples(6, 9) if wide else (X0, Y0)
    given = np.eye(X.shape[1])
    names = ["t"] * len(y)
    metrics = [
        OASIS(init=given, n_steps=20, random_state=0).fit(X, y).metric_,
        MultiTaskOASIS(init=given, n_steps=20, random_state=0).fit(X, y, tasks=names).metrics_["t"],
        OffDiagonalLearner(dictionary=given, ridge=0.1).fit(X, y).metric_,
    ]
    before = [metric.to_dense() for metric in metrics]
    given[:] = 7.0
    assert_same([metric.to_dense() for metric in metrics], before)


@pytest.mark.parametrize("average", [dual_averaging, joint_dual_averaging])
def test_dual_averaging_refuses_no_quadratic_term(average):
    P, triplets = X0[:, :2], all_triplets(Y0)
    given = (P, triplets) if average is dual_averaging else ([P], [triplets])
    with pytest.raises(ValueError, match="gamma=0: give a number above 0"):
        average(*given, 0.01, gamma=0)
    same = tuple(part if average is dual_averaging else [part] for part in (0 * P, triplets))
    weights, history = average(*same, 0.01, n_steps=50, random_state=0)  # any weights will do
    assert not weights.any()
    assert set(history.tolist()) == {1.0}


# --- features, forms, seeds ---------------------------------------------------------------


def test_a_mismatch_of_features_is_refused_with_both_numbers():
    metric, L = FactoredMetric.identity(4), np.eye(4)[:2]
    X, triplets = samples(D=7)[0], all_triplets(Y0)[:5]
    for call in (
        lambda: triplet_margins(metric, X, triplets, "distance"),
        lambda: k_nearest(metric, X, X0, "distance", 1),
        lambda: pairwise_scores(metric, X0, X, "similarity"),
        lambda: metric + FactoredMetric.identity(7),
        lambda: metric.inner(FactoredMetric.identity(7)),
        lambda: code_metric(np.eye(7)[:2], metric, 0.1),
        lambda: OASIS(init=metric).fit(X, Y0),
        lambda: OffDiagonalLearner(dictionary=L).fit(X, Y0),
    ):
        with pytest.raises(ValueError, match=r"(?s)7.*4|4.*7"):
            call()


def test_sparse_samples_are_refused_where_a_metric_would_fill():
    with pytest.raises(TypeError, match=FILLS):
        PooledMetricLearner(LMNN()).fit(sparse.csr_array(X0), Y0, tasks=["t"] * 24)
    with pytest.raises(TypeError, match=r"X is sparse \(24,\)"):
        LMNN().fit(sparse.coo_array(X0[:, 0]), Y0)


def test_functions_and_streams_repeat_whatever_the_global_seed():
    tasks = load_digits_tasks(random_state=0, train_size=0.1)[:2]
    P = X0[:, :3]

    def results():
        learner = lifelong_oasis(n_components=5)
        stream = evaluate_stream(learner, tasks, max_references=20, random_state=0)
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
