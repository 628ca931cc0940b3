"""Tests of lml.paper: Algorithm 2 as printed, with the samples of all tasks."""

import numpy as np
import pytest
from lifelong_streams import NAMES, Given, make_task
from scipy import optimize, sparse

from lml.initialization import initial_dictionary
from lml.lmnn import LMNN
from lml.metrics import FactoredMetric
from lml.oasis import OASIS
from lml.paper import DictionaryMetricLearner, mean_objective
from lml.scml import SCML
from lml.state import read_state, write_state
from lml.triplets import neighbor_triplets, sample_triplets

BASES = [OASIS(n_steps=300), SCML(n_basis=20, n_steps=500)]


# samples at random: what a base learner finds need not be the target of a step
pytestmark = pytest.mark.filterwarnings("ignore:the base learner's metric")


def make_learner(base=BASES[0], **parameters):
    return DictionaryMetricLearner(base, **{"n_components": 4, "random_state": 0} | parameters)


def learn(learner, names=NAMES):
    for number, name in enumerate(names):
        learner.partial_fit(*make_task(number), task=name)
    return learner


@pytest.mark.parametrize("kind", ["similarity", "distance"])
def test_gradient_of_all_tasks(kind):
    rng = np.random.default_rng(1)
    codes = {task: rng.normal(size=(3, 3)) for task in NAMES}  # not symmetric
    problems = {}
    for number, task in enumerate(NAMES):
        X, y = make_task(number, n=12 + 3 * number)
        problems[task] = X, sample_triplets(y, 40, number)
    objective = mean_objective(codes, problems, kind, 0.2)
    error = optimize.check_grad(
        lambda L: objective(L.reshape(3, 7))[0],
        lambda L: objective(L.reshape(3, 7))[1]().ravel(),
        rng.normal(size=21),
    )
    assert error < 1e-4
    value = np.mean([mean_objective(codes, {u: problems[u]}, kind)(np.eye(3, 7))[0] for u in codes])
    assert objective(np.eye(3, 7))[0] == pytest.approx(value + 0.2 * 3)


@pytest.mark.parametrize("base", BASES, ids=["oasis", "scml"])
def test_each_step_lowers_the_mean_hinge_of_all_tasks(base):
    learner = learn(make_learner(base))
    kind = learner.metric_type_
    problems = {u: (record.X, record.triplets) for u, record in learner.tasks_.items()}
    still = learn(make_learner(base, dictionary_steps=0))
    losses = [
        mean_objective(one.codes_, problems, kind)(one.dictionary_)[0] for one in (learner, still)
    ]
    assert losses[0] < losses[1]
    np.testing.assert_allclose(learner.dictionary_ @ learner.dictionary_.T, np.eye(4), atol=1e-12)


@pytest.mark.parametrize("kind", ["similarity", "distance"])
def test_a_code_is_the_target_read_in_the_dictionary(kind):
    rng = np.random.default_rng(2)
    M, L = rng.normal(size=(7, 7)), np.eye(7)[1:5]
    base = Given(FactoredMetric.from_dense(M), kind)
    learner = make_learner(base, init=L, dictionary_steps=0).partial_fit(*make_task(0), task=0)
    read = M[1:5, 1:5]
    wanted = read if kind == "similarity" else (read + read.T) / 2
    np.testing.assert_allclose(learner.codes_[0], wanted, atol=1e-12)


def test_triplets_are_drawn_for_a_similarity_and_nearest_for_a_distance():
    X, y = make_task(0)
    found = {}
    for kind in ("similarity", "distance"):
        base = Given(FactoredMetric.identity(7), kind)
        learner = make_learner(base, n_triplets=41).partial_fit(X, y, task=0)
        found[kind] = learner.tasks_[0].triplets
    assert len(found["similarity"]) == 41
    np.testing.assert_array_equal(found["distance"], neighbor_triplets(X, y))


def test_code_is_made_once_and_follows_the_dictionary():
    M = FactoredMetric.from_dense(np.diag(np.arange(1.0, 8.0)))
    start = np.eye(7)[:4]
    learner = make_learner(Given(M), init=start, dictionary_steps=0)
    X, y = make_task(0)
    np.testing.assert_allclose(learner.partial_fit(X, y, task=0).codes_[0], np.diag([1, 2, 3, 4.0]))
    moved = make_learner(Given(M), init=start, n_triplets=50).partial_fit(X, y, task=0)
    L, W = moved.dictionary_, moved.codes_[0]
    assert np.abs(L - start).max() > 1e-3
    again = L @ M.to_dense() @ L.T
    assert np.abs(W - again).max() > 1e-3 * np.abs(again).max()  # coded before the steps


def test_samples_of_a_task_are_joined_or_dropped():
    X, y = make_task(0)
    labels = np.array(["red", "blue", "green"])[y]
    kept = make_learner().partial_fit(X[:12], labels[:12], task="t")
    kept.partial_fit(sparse.csr_array(X[12:]), labels[12:], task="t")
    record = kept.tasks_["t"]
    np.testing.assert_array_equal(record.X.toarray(), X)
    assert record.labels == tuple(labels)
    assert record.n_visits == 2
    dropped = make_learner(keep_samples=False).partial_fit(X, labels, task="t")
    assert dropped.tasks_["t"].X is None
    assert dropped.state_parts_["samples"] == dropped.state_parts_["triplets"] == 0


def test_samples_that_are_changed_afterwards_are_not_the_ones_kept():
    X, y = make_task(0)
    learner = make_learner().partial_fit(X, y, task="t")
    X *= 3.0
    assert not np.array_equal(learner.tasks_["t"].X, X)


def test_without_samples_only_the_new_task_moves_the_dictionary():
    kept, dropped = (learn(make_learner(keep_samples=k), NAMES[:1]) for k in (True, False))
    np.testing.assert_array_equal(kept.dictionary_, dropped.dictionary_)
    for learner in (kept, dropped):
        learner.partial_fit(*make_task(1), task="new")
    assert np.abs(kept.dictionary_ - dropped.dictionary_).max() > 1e-6


def test_first_dictionary():
    X, y = make_task(0)
    fisher = make_learner(dictionary_steps=0).partial_fit(X, y, task=0).dictionary_
    np.testing.assert_allclose(fisher @ fisher.T, np.eye(4), atol=1e-12)
    given = make_learner(init=2 * np.eye(7)[2:4], dictionary_steps=0).partial_fit(X, y, task=0)
    np.testing.assert_allclose(given.dictionary_, np.eye(7)[2:4])
    for init in (np.zeros((2, 7)), np.eye(3)):
        with pytest.raises(ValueError, match="give an array of shape"):
            make_learner(init=init).partial_fit(X, y, task=0)
    with pytest.raises(ValueError, match="'fisher' or an array"):
        make_learner(init="random").partial_fit(X, y, task=0)


def test_the_first_directions_are_of_regions_of_10_20_and_50_neighbors():
    X, y = make_task(0, n=240)
    learner = make_learner(dictionary_steps=0).partial_fit(X, y, task=0)
    seed = np.random.SeedSequence([learner._state.root, 0, 0]).generate_state(3)[2]
    given = {"scales": (10, 20, 50), "random_state": int(seed), "n_basis": 4}
    np.testing.assert_array_equal(learner.dictionary_, initial_dictionary(X, y, 4, **given))


def test_a_learner_that_keeps_no_samples_comes_back_from_a_file(tmp_path):
    learner = learn(make_learner(keep_samples=False))
    learner.save(tmp_path / "s")
    found = DictionaryMetricLearner.load(tmp_path / "s")
    for one in (found, learner):
        one.partial_fit(*make_task(5), task="paris")
    np.testing.assert_array_equal(found.dictionary_, learner.dictionary_)
    assert [record.X for record in found.tasks_.values()] == [None] * 3


def test_one_kind_of_metric():
    learner = make_learner(Given(FactoredMetric.identity(7))).partial_fit(*make_task(0), task=0)
    learner.set_params(base_learner=Given(FactoredMetric.identity(7), "distance"))
    with pytest.raises(ValueError, match="gives a distance, the earlier tasks have a similarity"):
        learner.partial_fit(*make_task(1), task=1)


def test_forgetting_a_task_takes_its_samples():
    learner = learn(make_learner())
    learner.forget(42)
    assert list(learner.tasks_) == list(learner.codes_) == ["paris", ("a", 1)]


@pytest.mark.parametrize("kind", ["similarity", "distance"])
def test_a_target_outside_the_model_is_said(kind):
    """Noise in the place of a metric: the mean hinge grows with its scale, without a bound."""
    X, _ = make_task(0)
    y = np.random.default_rng(3).permutation(np.arange(30) % 3)  # labels that say nothing
    for scale, outside in ((0.0, True), (1e-3, False), (100.0, True)):
        metric = FactoredMetric.identity(7, scale)
        learner = make_learner(Given(metric, kind))
        if outside:
            said = r"task 'odd' has the mean hinge .*no metric at"
            with pytest.warns(UserWarning, match=said) as warned:
                learner.partial_fit(X, y, task="odd")
            assert warned[0].filename == __file__  # the line of the caller
        else:
            learner.partial_fit(X, y, task="odd")


def test_learners_of_a_hinge_stay_in_the_model():
    for base in (*BASES, LMNN(shrinkage=0.001)):
        learn(make_learner(base))  # a warning is an error


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda L: 3 * L, "dictionary is .*not orthonormal rows"),
        (lambda L: 0 * L, "dictionary is .*not orthonormal rows"),
        (lambda L: L[[0, 0, 1, 2]], "dictionary is .*not orthonormal rows"),
        (lambda L: 1e300 * L, "size of numbers in dictionary is .*not at most"),
    ],
)
def test_a_dictionary_of_a_file_must_be_orthonormal(change, said, tmp_path):
    learn(make_learner()).save(tmp_path / "s")
    meta, arrays = read_state(tmp_path / "s", "DictionaryMetricLearner")
    rows = arrays["dictionary"].reshape(4, -1)
    arrays["dictionary"] = change(rows).ravel()
    write_state(tmp_path / "s", "DictionaryMetricLearner", meta, arrays)
    with pytest.raises(ValueError, match=f"s' cannot be .*{said}"):
        DictionaryMetricLearner.load(tmp_path / "s")


@pytest.mark.parametrize("n_components", [1, 4])
def test_a_task_reads_its_code_in_the_dictionary_from_a_file_too(n_components, tmp_path):
    learn(make_learner(n_components=n_components)).save(tmp_path / "s")
    learner = DictionaryMetricLearner.load(tmp_path / "s")
    L = learner.dictionary_
    assert L.shape == (n_components, 7)
    for task in NAMES:
        M = L.T @ learner.codes_[task] @ L
        np.testing.assert_allclose(learner.task_metric(task).to_dense(), M, atol=1e-12)


def test_bytes_of_the_state_are_those_of_its_numbers():
    parts = learn(make_learner()).state_parts_
    assert parts["dictionary"] == 8 * 4 * 7
    assert parts["codes"] == 8 * 3 * 4 * 4
    assert parts["samples"] == 8 * 3 * 30 * 7
    assert parts["records"] == 8 * 3 * (30 + 2)  # labels, number and visits


@pytest.mark.parametrize("number", [-1, 30])
def test_triplets_of_a_file_are_numbers_of_its_samples(number, tmp_path):
    learn(make_learner()).save(tmp_path / "s")
    meta, arrays = read_state(tmp_path / "s", "DictionaryMetricLearner")
    arrays["tasks.triplets"][5] = number
    write_state(tmp_path / "s", "DictionaryMetricLearner", meta, arrays)
    with pytest.raises(ValueError, match=r"triplets of 'paris' .*numbers below 30"):
        DictionaryMetricLearner.load(tmp_path / "s")
