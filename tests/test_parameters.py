"""Parameters that cannot be used are named, wherever they are given; sizes are kept or clipped."""

from __future__ import annotations

import inspect
import pickle
import re

import numpy as np
import pytest
from checks import is_finite
from registry import (
    ENTRIES,
    FRESH,
    X0,
    Y0,
    Euclidean,
    lifelong_oasis,
    lifelong_scml,
    paper_oasis,
    samples,
)

from lml.baselines import ELLA, MultiTaskLMNN, OffDiagonalLearner
from lml.datasets import Task
from lml.evaluation import LifelongKNeighborsClassifier, evaluate_stream
from lml.fisher import local_fisher_basis
from lml.initialization import initial_dictionary
from lml.lifelong import LifelongMetricLearner
from lml.lmnn import LMNN
from lml.metrics import FactoredMetric
from lml.neighbors import MetricKNeighborsClassifier, k_nearest
from lml.oasis import OASIS
from lml.scml import SCML
from lml.state import read_state, write_state
from lml.triplets import nearest_triplets

# --- sizes --------------------------------------------------------------------------------

COUNTS = {
    "lifelong n_components": lambda v: lifelong_oasis(n_components=v).partial_fit(X0, Y0, task="t"),
    "paper n_components": lambda v: paper_oasis(n_components=v).partial_fit(X0, Y0, task="t"),
    "ELLA n_components": lambda v: ELLA(n_components=v).partial_fit(X0, Y0, task="t"),
    "OffDiagonal n_components": lambda v: OffDiagonalLearner(n_components=v).fit(X0, Y0),
    "initial_dictionary n_components": lambda v: initial_dictionary(X0, Y0, v),
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


@pytest.mark.parametrize("value", [0, -1, 1.5, "2", True, None, float("nan")])
@pytest.mark.parametrize("name", COUNTS)
def test_counts_out_of_range_are_named(name, value):
    parameter = name.split()[1]
    with pytest.raises(
        (ValueError, TypeError), match=rf"{parameter}( is |=){re.escape(repr(value))}"
    ):
        COUNTS[name](value)


def test_more_components_than_features_are_clipped_as_documented():
    for model in (lifelong_oasis(n_components=50), lifelong_scml(n_components=50)):
        model.partial_fit(X0, Y0, task="t").partial_fit(X0[::-1], Y0, task="u")
        assert model.shared_metric_.factor.shape[0] <= 4
        assert model.n_components == 50
    paper = paper_oasis(n_components=50).partial_fit(X0, Y0, task="t")
    assert paper.dictionary_.shape == (4, 4)
    assert OffDiagonalLearner(n_components=50, ridge=0.1).fit(X0, Y0).code_.shape == (4, 4)
    assert initial_dictionary(X0, Y0, 50).shape == (4, 4)
    assert ELLA(n_components=50).partial_fit(X0, Y0, task="t").dictionary_.shape == (4, 50)
    assert FactoredMetric.identity(4).compress(rank=50).factor.shape[0] <= 4


@pytest.mark.filterwarnings("ignore:the base learner's metric")  # on a line
def test_more_components_than_the_rank_of_the_samples_are_completed():
    X = np.outer(X0[:, 0], [1.0, 2.0, 0.0, 1.0])  # rank one
    model = paper_oasis(n_components=4).partial_fit(X, Y0, task="t")
    L = model.dictionary_
    np.testing.assert_allclose(L @ L.T, np.eye(4), atol=1e-12)
    assert is_finite([model.transform(FRESH, task="t")])


def test_a_dictionary_of_more_atoms_than_samples_has_full_rank():
    X, y = samples(6, 50)
    model = paper_oasis(n_components=20).partial_fit(X, y, task="t")
    assert np.linalg.matrix_rank(model.dictionary_) == 20


# --- the tables of rules ------------------------------------------------------------------

# parameters that are read where they are used, beside other data
DATA = {"dictionary", "relation", "task_penalty", "learner"}


@pytest.mark.parametrize("entry", ENTRIES, ids=str)
def test_every_parameter_of_a_learner_has_a_rule(entry):
    model = entry.make()
    names = set(inspect.signature(type(model)).parameters)
    rules = set(model._parameter_rules)
    assert rules <= names
    assert names - rules <= DATA


BAD = {
    "n_jobs": lifelong_oasis(n_jobs="a"),
    "random_state": MetricKNeighborsClassifier(OASIS(random_state="a")),
    "init": MetricKNeighborsClassifier(OASIS(init="a")),
    "estimator": MetricKNeighborsClassifier("oasis"),
    "base_learner": LifelongMetricLearner("OASIS"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_parameter_that_cannot_be_used_is_named_with_what_to_give(name):
    fit = BAD[name].partial_fit if hasattr(BAD[name], "partial_fit") else BAD[name].fit
    with pytest.raises(ValueError, match=rf"^{name}=.*: give "):
        fit(X0, Y0, **({"task": "t"} if hasattr(BAD[name], "partial_fit") else {}))


# --- seeds, base learners, numbers --------------------------------------------------------


@pytest.mark.parametrize("bad", ["x", -1, 2**40, 1.5, [1], np.random.default_rng(0)])
@pytest.mark.parametrize("known", [False, True])
def test_what_is_no_seed_is_named_also_between_visits(bad, known):
    model = lifelong_oasis()
    if known:
        model.partial_fit(X0, Y0, task="a")
    model.set_params(random_state=bad)
    before = pickle.dumps(model)
    with pytest.raises((TypeError, ValueError), match="random_state="):
        model.partial_fit(X0, Y0, task="b")
    assert pickle.dumps(model) == before


@pytest.mark.parametrize("base", [None, True, 3, [], OASIS, OASIS(aggressiveness=10**400)])
def test_what_is_no_base_learner_is_refused_at_once(base):
    model = LifelongMetricLearner(base)
    with pytest.raises((ValueError, TypeError), match=r"base_learner|aggressiveness"):
        model.partial_fit(X0, Y0, task="a")
    assert not hasattr(model, "codes_")


def test_a_weight_too_large_for_a_float_is_refused():
    with pytest.raises((ValueError, TypeError), match="sharing"):
        lifelong_oasis(sharing=10**400).partial_fit(X0, Y0, task="a")


@pytest.mark.parametrize("name", ["code_penalty", "dictionary_rate", "dictionary_penalty"])
def test_a_number_too_large_for_a_float_is_refused(name):
    with pytest.raises((ValueError, TypeError), match=name):
        paper_oasis(**{name: 10**400}).partial_fit(X0, Y0, task="a")


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
        (("sharing",), 10**400),
    ],
    ids=str,
)
def test_a_file_whose_parameters_cannot_be_used_is_refused_when_it_is_loaded(
    tmp_path, place, value
):
    path, kind = tmp_path / "state", "LifelongMetricLearner"
    lifelong_oasis().partial_fit(X0, Y0, task="a").save(path)
    meta, arrays = read_state(path, kind)
    part = meta["parameters"]
    for key in place[:-1]:
        part = part[key]
    assert place[-1] in part
    part[place[-1]] = value
    write_state(path, kind, meta, arrays)
    with pytest.raises(ValueError, match="cannot be used as a state"):
        LifelongMetricLearner.load(path)


# --- learners and tasks that are none -----------------------------------------------------


@pytest.mark.parametrize("given", [3, "oasis", OASIS(), LifelongMetricLearner])
def test_what_is_no_learner_of_tasks_is_refused_by_the_classifier_and_the_stream(given):
    with pytest.raises(TypeError, match="learner"):
        LifelongKNeighborsClassifier(given, 1).fit(X0, Y0, task="a")
    with pytest.raises(TypeError, match="learner"):
        evaluate_stream(given, [Task("a", X0, Y0, X0, Y0, X0, Y0)])


@pytest.mark.parametrize("tasks", [["a"], [("a", 1)], [np.ones(3)]])
def test_a_stream_of_no_tasks_is_refused(tasks):
    with pytest.raises(TypeError, match=r"tasks\[0\] is .* give lml.datasets.Task"):
        evaluate_stream(LifelongMetricLearner(random_state=0), tasks)


# --- weights ------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [np.zeros(12), -np.ones(12)])
def test_a_score_refuses_weights_that_have_no_mean(weights):
    y = np.arange(12) % 3
    X = np.random.default_rng(0).normal(size=(12, 5)) + 2 * np.eye(3, 5)[y]
    learner = lifelong_oasis().partial_fit(X, y, task="a")
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
