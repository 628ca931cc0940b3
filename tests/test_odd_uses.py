"""Uses and inputs that the thirty-two kinds of `test_cases` do not name."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError
from test_cases import BY_TASK, ENTRIES, FRESH, SPARSE, X0, Y0, assert_refused, assert_same

from lml import LMNN
from lml.baselines import ELLA, MultiTaskOASIS
from lml.datasets import Task
from lml.evaluation import LifelongKNeighborsClassifier, average_accuracy, evaluate_stream
from lml.fisher import fisher_directions, local_fisher_basis
from lml.lifelong import LifelongMetricLearner
from lml.metrics import FactoredMetric
from lml.neighbors import MetricKNeighborsClassifier, k_nearest
from lml.oasis import OASIS
from lml.plda import LifelongPLDA
from lml.scml import SCML
from lml.state import read_state, write_state
from lml.triplets import nearest_triplets, sample_triplets, triplet_loss


def learner(**parameters):
    given = {"n_components": 3, "random_state": 0} | parameters
    return LifelongMetricLearner(OASIS(n_steps=50), **given)


def twice_stored(X, zeros=False):
    """The rows as CSR, with every number in two halves, or beside a stored zero."""
    n, D = X.shape
    parts = np.stack([X, np.zeros_like(X)] if zeros else [X / 2, X / 2], axis=2)
    columns = np.tile(np.repeat(np.arange(D), 2)[::-1], n)  # not sorted, too
    data = parts[:, ::-1, ::-1].ravel()
    made = sparse.csr_array((data, columns, np.arange(0, 2 * n * D + 1, 2 * D)), shape=X.shape)
    assert not made.has_canonical_format
    return made


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("entry", SPARSE, ids=str)
def test_numbers_stored_in_several_parts_are_their_sum(entry, zeros):
    given = twice_stored(X0, zeros)
    before = given.copy()
    found = entry.answers(entry.learn(entry.make(), given, Y0), FRESH)
    expected = entry.answers(entry.learn(entry.make(), sparse.csr_array(X0), Y0), FRESH)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)
    for part in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(given, part), getattr(before, part))


def test_equal_sparse_rows_tie_however_they_are_stored():
    rng = np.random.default_rng(0)
    rows = np.repeat(rng.normal(size=(5, 4)), 2, axis=0)
    forms = [sparse.csr_array(rows[::2]), twice_stored(rows[1::2])]
    metric = FactoredMetric.from_components(rng.normal(size=(4, 4)))
    for kind in ("similarity", "distance"):
        for forms_in_turn in (forms, forms[::-1]):
            both = sparse.csr_array(sparse.vstack(forms_in_turn))
            places, scores = k_nearest(metric, rows, both, kind, 10)
            found = np.take_along_axis(scores, np.argsort(places, axis=1), axis=1)
            np.testing.assert_array_equal(found[:, :5], found[:, 5:])


def test_bases_of_rows_in_several_parts():
    given, plain = twice_stored(X0), sparse.csr_array(X0)
    np.testing.assert_allclose(fisher_directions(given, Y0), fisher_directions(plain, Y0))
    bases = [local_fisher_basis(X, Y0, 8, random_state=0) for X in (given, plain)]
    np.testing.assert_allclose(*bases)


@pytest.mark.parametrize("missing", [Decimal("NaN"), Decimal("Infinity"), np.ma.masked])
@pytest.mark.parametrize("entry", ENTRIES, ids=str)
def test_a_label_that_stands_for_none_is_named(entry, missing):
    labels = [Decimal(int(label)) for label in Y0]
    labels[5] = missing
    assert_refused(entry, X0, labels, r"y\[5\]")


@pytest.mark.parametrize("entry", ENTRIES, ids=str)
def test_masked_labels_are_named_and_a_mask_of_nothing_is_none(entry):
    assert_refused(entry, X0, np.ma.array(Y0, mask=np.arange(len(Y0)) == 7), r"y\[7\] is None")
    found = entry.answers(entry.learn(entry.make(), X0, np.ma.array(Y0)), FRESH)
    assert_same(found, entry.answers(entry.learn(entry.make(), X0, Y0), FRESH))


NAMED = [entry for entry in BY_TASK if entry.kind in ("stream", "references")]


@pytest.mark.parametrize("name", [(1, float("nan")), frozenset({float("nan")}), ("a", (np.nan,))])
@pytest.mark.parametrize("entry", NAMED, ids=str)
def test_a_name_with_a_part_that_is_not_equal_to_itself_is_refused(entry, name):
    model = entry.make()
    before = pickle.dumps(model)
    with pytest.raises((TypeError, ValueError), match="equal"):
        entry.learn(model, X0, Y0, task=name)
    assert pickle.dumps(model) == before


def test_plda_refuses_names_as_the_others_do():
    for name in (float("nan"), (1, float("nan")), [1]):
        with pytest.raises((TypeError, ValueError), match=r"equal|hashable"):
            LifelongPLDA().partial_fit(X0, Y0, task=name)


FRAME = pd.DataFrame(X0, columns=list("abcd"))
TURNED = FRAME[list("dcba")]


@pytest.mark.parametrize("fit", [False, True])
def test_ella_knows_the_columns_of_a_frame(fit):
    model = ELLA(n_components=2, random_state=0)
    if fit:
        model.fit(FRAME, Y0, tasks=["t"] * len(Y0))
    else:
        model.partial_fit(FRAME, Y0, task="t")
    assert list(model.feature_names_in_) == list("abcd")
    before = pickle.dumps(model)
    for call in (
        lambda: model.partial_fit(TURNED, Y0, task="u"),
        lambda: model.predict(TURNED, task="t"),
        lambda: model.predict_proba(TURNED, task="t"),
        lambda: model.score(TURNED, Y0, task="t"),
    ):
        with pytest.raises(ValueError, match="feature names"):
            call()
    assert pickle.dumps(model) == before
    plain = ELLA(n_components=2, random_state=0).partial_fit(X0, Y0, task="t")
    assert not hasattr(plain, "feature_names_in_")
    np.testing.assert_allclose(
        model.decision_function(FRAME, task="t"), plain.decision_function(X0, task="t")
    )


def test_references_have_the_columns_that_the_learner_has_learned():
    known = learner().partial_fit(FRAME, Y0, task="t")
    model = LifelongKNeighborsClassifier(known, n_neighbors=1).fit(FRAME, Y0, task="t")
    for call in (model.fit, lambda X, y, task: model.predict(X, task=task)):
        with pytest.raises(ValueError, match="feature names"):
            call(TURNED, Y0, task="t")
    assert model.predict(FRAME, task="t").shape == Y0.shape
    model = LifelongKNeighborsClassifier(learner().partial_fit(X0, Y0, task="t"), n_neighbors=1)
    with pytest.raises(ValueError, match="X has 2 features, but the learner has learned 4"):
        model.fit(X0[:, :2], Y0, task="t")
    assert not hasattr(model, "references_")


def test_references_may_come_before_the_learner_has_learned():
    unfitted = learner()
    model = LifelongKNeighborsClassifier(unfitted, n_neighbors=1).fit(X0, Y0, task="t")
    with pytest.raises(NotFittedError):
        model.predict(X0, task="t")
    unfitted.partial_fit(X0, Y0, task="t")
    assert model.predict(X0, task="t").shape == Y0.shape


def test_a_sparse_vector_is_refused_by_lmnn():
    with pytest.raises(TypeError, match=r"X is sparse \(24,\)"):
        LMNN().fit(sparse.coo_array(X0[:, 0]), Y0)


def test_joint_oasis_on_rows_whose_products_underflow():
    for form in (np.asarray, sparse.csr_array):
        model = MultiTaskOASIS(n_steps=50, random_state=0)
        model.fit(form(X0 * 1e-150), Y0, tasks=["t"] * len(Y0))
        assert model.n_updates_ == 0  # a step of any length is as good as none


def test_bytes_are_counted_also_when_every_task_is_forgotten():
    model = learner(gradient_memory=1).partial_fit(X0, Y0, task="a").forget("a")
    parts = model.state_parts_
    assert parts.pop("dictionary") == 8 * 3 * 4
    assert {"codes", "gradients", "records"} <= set(parts)
    assert not any(parts.values())
    assert model.state_nbytes_ == 96
    with pytest.raises(NotFittedError, match="no state before a task"):
        _ = learner().state_nbytes_


@pytest.mark.parametrize("bad", ["x", -1, 2**40, 1.5, [1], np.random.default_rng(0)])
@pytest.mark.parametrize("known", [False, True])
def test_what_is_no_seed_is_named_also_between_visits(bad, known):
    model = learner()
    if known:
        model.partial_fit(X0, Y0, task="a")
    model.set_params(random_state=bad)
    before = model._state
    with pytest.raises((TypeError, ValueError), match="random_state="):
        model.partial_fit(X0, Y0, task="b")
    assert model._state is before


DATES = (1000 * np.abs(X0)).astype(np.int64)
LOSSY = {
    "masked": np.ma.masked_less(X0, np.median(X0)),
    "masked list": list(np.ma.masked_less(X0, np.median(X0))),
    "complex": X0 + 0j,
    "complex objects": (X0 + 0j).astype(object),
    "dates": DATES.astype("M8[s]"),
    "durations": DATES.astype("m8[s]"),
    "frame of dates": pd.DataFrame(DATES.astype("M8[s]")),
    "objects that are durations": np.array(
        [[np.timedelta64(v, "s") for v in row] for row in DATES.tolist()], dtype=object
    ),
}


@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
@pytest.mark.parametrize("kind", LOSSY)
@pytest.mark.parametrize("entry", ENTRIES, ids=str)
def test_rows_that_would_lose_a_mask_or_a_unit_are_refused(entry, kind):
    model = entry.make()
    before = pickle.dumps(model)
    with pytest.raises((ValueError, TypeError), match=r"masked|omplex|datetime|timedelta|sparse"):
        entry.learn(model, LOSSY[kind], Y0)
    assert pickle.dumps(model) == before
    model = entry.learn(entry.make(), X0, Y0)
    before = pickle.dumps(model)
    for name in {"transform", "predict", "kneighbors", "decision_function"} & set(
        entry.readings(model, X0)
    ):
        with pytest.raises((ValueError, TypeError), match=r"masked|omplex|datetime|timedelta"):
            entry.read(model, name, (LOSSY[kind],))
    assert pickle.dumps(model) == before


@pytest.mark.parametrize("entry", ENTRIES, ids=str)
def test_rows_with_a_mask_of_nothing_are_rows(entry):
    found = entry.answers(entry.learn(entry.make(), np.ma.array(X0), Y0), FRESH)
    expected = entry.answers(entry.learn(entry.make(), X0, Y0), FRESH)
    assert_same(found, expected)


@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
@pytest.mark.parametrize("kind", LOSSY)
def test_functions_refuse_rows_that_would_lose_a_mask_or_a_unit(kind):
    rows, M, given = LOSSY[kind], FactoredMetric.identity(4), r"masked|omplex|datetime|timedelta"
    triplets = sample_triplets(Y0, 10, 0)
    calls = [
        lambda: M.bilinear(rows, X0),
        lambda: M.bilinear(X0, rows),
        lambda: M.embed(rows),
        lambda: k_nearest(M, X0, rows, "distance", 1),
        lambda: k_nearest(M, rows, X0, "distance", 1),
        lambda: nearest_triplets(rows, Y0),
        lambda: triplet_loss(M, rows, triplets, "distance"),
        lambda: fisher_directions(rows, Y0),
        lambda: FactoredMetric.from_components(rows),
    ]
    for call in calls:
        with pytest.raises((ValueError, TypeError), match=given):
            call()


@pytest.mark.parametrize("kind", ["masked", "complex", "dates"])
def test_pairs_that_would_lose_a_mask_or_a_unit_are_refused(kind):
    one, many = OASIS(n_steps=5).fit(X0, Y0), learner().partial_fit(X0, Y0, task="a")
    pairs = np.ma.stack([LOSSY[kind], LOSSY[kind]], axis=1)
    pairs = pairs if kind == "masked" else np.asarray(pairs)
    for score in (one.pair_score, lambda pairs: many.pair_score(pairs, task="a")):
        with pytest.raises(ValueError, match=r"pairs has masked|holds"):
            score(pairs)


def test_masked_rows_of_a_task_and_a_masked_table_of_accuracies_are_refused():
    masked = np.ma.masked_less(X0, 0.0)
    with pytest.raises(ValueError, match="masked"):
        Task("a", masked, Y0, X0, Y0, X0, Y0)
    with pytest.raises(ValueError, match="masked"):
        average_accuracy(np.ma.array([[0.5, 0.5], [0.5, 0.5]], mask=[[0, 1], [0, 0]]))
    assert average_accuracy(np.ma.array([[0.5, 0.5], [0.5, 0.5]])) == 0.5


@pytest.mark.parametrize("base", [None, True, 3, [], OASIS, OASIS(aggressiveness=10**400)])
def test_what_is_no_base_learner_is_refused_at_once(base):
    model = LifelongMetricLearner(base, 3)
    with pytest.raises((ValueError, TypeError), match=r"base_learner|aggressiveness"):
        model.partial_fit(X0, Y0, task="a")
    assert not hasattr(model, "dictionary_")


@pytest.mark.parametrize("name", ["code_penalty", "dictionary_rate", "dictionary_penalty"])
def test_a_number_too_large_for_a_float_is_refused(name):
    with pytest.raises(TypeError, match=name):
        learner(**{name: 10**400}).partial_fit(X0, Y0, task="a")


@pytest.mark.parametrize("model", [OASIS(aggressiveness=10**400), SCML(beta=10**400)])
def test_learners_of_one_task_refuse_a_number_too_large_for_a_float(model):
    with pytest.raises((ValueError, TypeError), match=r"aggressiveness|beta"):
        model.fit(X0, Y0)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("base_learner",), None),
        (("base_learner",), 3),
        (("base_learner",), []),
        (("base_learner", "learner", 1, "aggressiveness"), 10**400),
        (("base_learner", "learner", 1, "aggressiveness"), "x"),
        (("base_learner", "learner", 1, "n_steps"), -1),
        (("code_penalty",), 10**400),
    ],
    ids=str,
)
def test_a_file_whose_parameters_cannot_be_used_is_refused_when_it_is_loaded(
    tmp_path, place, value
):
    path, kind = tmp_path / "state", "LifelongMetricLearner"
    learner().partial_fit(X0, Y0, task="a").save(path)
    version, meta, arrays = read_state(path, kind, (1, 2))
    part = meta["parameters"]
    for key in place[:-1]:
        part = part[key]
    assert place[-1] in part
    part[place[-1]] = value
    write_state(path, kind, version, meta, arrays)
    with pytest.raises(ValueError, match="cannot be used as a state"):
        LifelongMetricLearner.load(path)


@pytest.mark.parametrize("given", [3, "oasis", OASIS(), LifelongMetricLearner])
def test_what_is_no_learner_of_tasks_is_refused_by_the_classifier_and_the_stream(given):
    with pytest.raises(TypeError, match="learner"):
        LifelongKNeighborsClassifier(given, 1).fit(X0, Y0, task="a")
    with pytest.raises(TypeError, match="learner"):
        evaluate_stream(given, [Task("a", X0, Y0, X0, Y0, X0, Y0)])


def test_weights_whose_sum_overflows_are_refused():
    with pytest.raises(ValueError, match="sample_weight"):
        MetricKNeighborsClassifier().fit(X0, Y0, sample_weight=np.full(len(Y0), 1e308))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_made_while_another_thread_learns_can_learn():
    model, inside, go = learner(), threading.Event(), threading.Event()
    model.partial_fit(X0, Y0, task="a")

    class Slow(OASIS):
        def fit(self, X, y):
            inside.set()
            assert go.wait(60)
            return super().fit(X, y)

    model.set_params(base_learner=Slow(n_steps=10))
    thread = threading.Thread(target=model.partial_fit, args=(X0, Y0), kwargs={"task": "b"})
    thread.start()
    assert inside.wait(60)
    if (child := os.fork()) == 0:
        signal.alarm(30)  # a child that waits for the lock is ended
        try:
            model.set_params(base_learner="oasis").partial_fit(X0, Y0, task="c")
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    go.set()
    thread.join()
    assert status == 0
    assert list(model.tasks_) == ["a", "b"]


@pytest.mark.parametrize("weights", [np.zeros(12), -np.ones(12), np.full(12, 1e308)])
def test_a_score_refuses_weights_that_have_no_mean(weights):
    X, y = small_rows()
    learner = LifelongMetricLearner(OASIS(n_steps=20), 3, random_state=0).partial_fit(
        X, y, task="a"
    )
    reader = LifelongKNeighborsClassifier(learner).fit(X, y, task="a")
    alone = MetricKNeighborsClassifier(OASIS(n_steps=20, random_state=0)).fit(X, y)
    ella = ELLA(2).partial_fit(X, y, task="a")
    for score in (
        lambda: learner.score(X, y, weights, tasks=["a"] * 12),
        lambda: reader.score(X, y, weights, task="a"),
        lambda: alone.score(X, y, weights),
        lambda: ella.score(X, y, weights, task="a"),
    ):
        with pytest.raises(ValueError, match="sample_weight"):
            score()


@pytest.mark.parametrize("tasks", [["a"], [("a", 1)], [np.ones(3)]])
def test_a_stream_of_no_tasks_is_refused(tasks):
    with pytest.raises(TypeError, match=r"tasks\[0\] is .* give lml.datasets.Task"):
        evaluate_stream(LifelongMetricLearner(random_state=0), tasks)


def small_rows():
    y = np.arange(12) % 3
    return np.random.default_rng(0).normal(size=(12, 5)) + 2 * np.eye(3, 5)[y], y
