"""A base learner for each task, through both learners of tasks in time that take one."""

import copy
import pickle
import warnings
from typing import ClassVar

import numpy as np
import pytest
from lifelong_streams import Given, all_of, make_task
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.neighbors import NeighborhoodComponentsAnalysis

from lml import state
from lml.base import COMMON_FIELDS, LABELS, ClassMeans, base_learner_rule
from lml.lifelong import LifelongMetricLearner
from lml.metrics import FactoredMetric
from lml.oasis import OASIS
from lml.paper import DictionaryMetricLearner
from lml.plda import LifelongPLDA
from lml.scml import SCML
from lml.state import storable

LEARNERS = {
    "lifelong": lambda base, **given: LifelongMetricLearner(base, **{"random_state": 0} | given),
    "paper": lambda base, **given: DictionaryMetricLearner(
        base, **{"n_components": 7, "dictionary_steps": 0, "random_state": 0} | given
    ),
}
each_learner = pytest.mark.parametrize("make", LEARNERS.values(), ids=LEARNERS)


class Noted(OASIS):
    """OASIS that notes its clones and what they are given."""

    seen: ClassVar[list] = []

    def fit(self, X, y):
        self.seen.append((self, X, y))
        return super().fit(X, y)


class Plain(BaseEstimator):
    """A learner without a seed whose metric is an array."""

    metric_type = "distance"

    def fit(self, X, y):
        self.metric_ = np.diag(np.arange(1.0, X.shape[1] + 1))
        return self


def test_a_rule_takes_its_words_and_learners_and_names_both():
    rule = base_learner_rule(["oasis", "lmnn"])
    assert all(map(rule.allows, ["oasis", "lmnn", OASIS(), Plain()]))
    assert not any(map(rule.allows, ["scml", OASIS, None, 3, ["oasis"]]))
    with pytest.raises(
        ValueError, match=r"^base='scml': give one of \('oasis', 'lmnn'\) or a metric"
    ):
        rule.check("base", "scml")


@each_learner
@pytest.mark.filterwarnings("ignore:the base learner's metric")  # in few steps
def test_a_clone_is_seeded_by_the_task_and_the_visit_and_gets_class_numbers(make):
    base = Noted(n_steps=10, random_state=5)
    learner, visits = make(base), ["a", "b", "a"]
    found = []
    for number, task in enumerate(visits):
        X, y = make_task(number)
        Noted.seen.clear()
        learner.partial_fit(X, np.array(["x", "y", "z"])[y], task=task)
        clone, _, labels = Noted.seen[-1]  # of all samples
        assert clone is not base
        assert set(labels) == {0, 1, 2}
        found.append(clone.random_state)
    root = np.random.RandomState(0).randint(2**31)
    keys = [(0, 0), (1, 0), (0, 1)]  # number of the task, visits before
    sequences = [np.random.SeedSequence([root, *key]) for key in keys]
    assert found == [int(sequence.generate_state(2)[0]) for sequence in sequences]
    assert len(set(found)) == 3
    assert base.random_state == 5
    assert not hasattr(base, "metric_")


@pytest.mark.filterwarnings("ignore:the base learner's metric")  # made up
@each_learner
def test_a_metric_may_come_as_a_plain_array_from_a_learner_without_a_seed(make):
    learner = make(Plain()).partial_fit(*make_task(0), task="a")
    np.testing.assert_allclose(learner.metric_matrix("a"), np.diag(np.arange(1.0, 8)), atol=1e-9)
    assert learner.metric_type_ == "distance"


@each_learner
@pytest.mark.parametrize(("word", "kind"), [("oasis", "similarity"), ("scml", "distance")])
def test_a_word_stands_for_a_base_learner(make, word, kind):
    learner = make(word).partial_fit(*make_task(0), task="a")
    assert learner.metric_type_ == kind
    assert learner.base_learner == word


@each_learner
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(
    ("wrong", "error", "said"),
    [
        ("svm", ValueError, r"^base_learner='svm': give one of \('oasis', 'scml'.* metric learner"),
        (None, ValueError, "^base_learner=None: give"),
        (3, ValueError, "^base_learner=3: give"),
        (OASIS, ValueError, "^base_learner=<class"),
        (OASIS(n_steps=-1), ValueError, "n_steps=-1"),
        (SCML(n_basis=0), ValueError, "n_basis=0"),
        (NeighborhoodComponentsAnalysis(max_iter=2), TypeError, "base_learner is a Neighborhood"),
        (Given(FactoredMetric.identity(6)), ValueError, "base_learner gives a metric of 6"),
        (Given(FactoredMetric.identity(7), "norm"), TypeError, "metric_type is 'norm'"),
        (Given(np.full((7, 7), np.nan)), ValueError, "metric_ of base_learner"),
        (Given(np.full((7, 7), np.inf)), ValueError, "metric_ of base_learner"),
        (Given(error=MemoryError("full")), MemoryError, "full"),
        (Given(error=KeyboardInterrupt("now")), KeyboardInterrupt, "now"),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:the base learner's metric")  # in few steps
def test_what_cannot_be_learned_with_is_named_and_changes_nothing(make, known, wrong, error, said):
    learner = make(OASIS(n_steps=10))
    if known:
        learner.partial_fit(*make_task(0), task="t")
    learner.set_params(base_learner=wrong)
    before, text = dict(vars(learner)), all_of(learner)
    for task in ("t", "new"):
        with pytest.raises(error, match=said):
            learner.partial_fit(*make_task(1), task=task)
        assert vars(learner) == before
        assert all_of(learner) == text
    with pytest.raises(error, match=said):
        learner.fit(*make_task(1), tasks=["t"] * 30)
    assert vars(learner) == before


@each_learner
@pytest.mark.filterwarnings("ignore:the base learner's metric")  # in few steps
def test_all_tasks_have_metrics_of_one_type(make):
    learner = make(OASIS(n_steps=10)).partial_fit(*make_task(0), task="a")
    learner.set_params(base_learner=SCML(n_basis=20, n_steps=50))
    before = pickle.dumps(learner)
    for task in ("a", "b"):
        with pytest.raises(ValueError, match=r"gives a distance, the earlier tasks .* similarity"):
            learner.partial_fit(*make_task(1), task=task)
    assert pickle.dumps(learner) == before
    learner.fit(*make_task(1), tasks=["b"] * 30)  # nothing was known before
    assert learner.metric_type_ == "distance"


@storable
class Stretched(BaseEstimator):
    """A learner of somebody else that files may hold."""

    metric_type = "distance"

    def __init__(self, weights=(1.0,)):
        self.weights = weights

    def fit(self, X, y):
        self.metric_ = np.diag(np.resize(self.weights, X.shape[1]))
        return self


def test_a_base_learner_of_a_user_is_stored_by_its_import_path(tmp_path, monkeypatch):
    learner = LifelongMetricLearner(Stretched(weights=np.array([1.0, 2.0])), random_state=0)
    learner.partial_fit(*make_task(0), task="a").save(tmp_path / "s")
    twin = LifelongMetricLearner.load(tmp_path / "s")
    assert type(twin.base_learner) is Stretched
    for one in (learner, twin):
        one.partial_fit(*make_task(1), task="b")
    assert all_of(twin) == all_of(learner)
    monkeypatch.delitem(state._LEARNERS, f"{Stretched.__module__}.Stretched")
    with pytest.raises(ValueError, match=r"learner is '\w+\.Stretched', not .*: import its module"):
        LifelongMetricLearner.load(tmp_path / "s")
    with pytest.raises(TypeError, match=r"put lml\.state\.storable above the class"):
        learner.save(tmp_path / "t")


@pytest.mark.parametrize("shared", [0.0, 0.25])
@pytest.mark.parametrize("amount", [0.0, 0.3, 1.0])
def test_references_move_toward_the_mean_of_their_class(amount, shared):
    (X, y), (Z, _) = make_task(0), make_task(1)
    learner = LifelongMetricLearner("oasis", shared_labels=True, random_state=0)
    learner.partial_fit(X, y, task="here").partial_fit(Z, y, task="there")
    found = learner.shrink_references(X, y, task="here", amount=amount, shared=shared)
    for x, label, moved in zip(X, y, found, strict=True):
        gaps = np.mean([A[y == label].mean(axis=0) - A.mean(axis=0) for A in (X, Z)], axis=0)
        both = X.mean(axis=0) + gaps  # as many samples of each class in both tasks
        target = (1 - shared) * X[y == label].mean(axis=0) + shared * both
        np.testing.assert_allclose(moved, x + amount * (target - x), atol=1e-12)


def test_the_mean_of_a_class_of_one_sample_is_in_a_file(tmp_path):
    X = np.random.default_rng(0).normal(size=(7, 3))
    learner = LifelongMetricLearner("oasis", shared_labels=True, random_state=0)
    for task, shift in (("here", 0.0), ("there", 5.0)):
        learner.partial_fit(X + shift, [0, 0, 0, 1, 1, 1, 2], task=task)
    learner.save(tmp_path / "s")
    for one in (learner, LifelongMetricLearner.load(tmp_path / "s")):
        means, labels = one.class_means_of_others(task="there")
        assert sorted(labels) == [0, 1, 2]
        np.testing.assert_allclose(means[labels.index(2)], X[6] + 5.0, atol=1e-12)


def test_a_name_of_ours_does_not_stand_for_a_class_of_others():
    class OASIS(BaseEstimator):
        pass

    assert storable(OASIS) is OASIS
    forms = state.encode_parameters(LifelongMetricLearner(scml := SCML()), {})
    assert forms["base_learner"]["learner"][0] == type(scml).__name__
    assert state._LEARNERS["OASIS"].__module__ == "lml.oasis"


def test_a_foreign_archive_is_told_what_it_lacks(tmp_path):
    np.savez(tmp_path / "x.npz", weights=np.ones(3))
    with pytest.raises(ValueError, match=r"members is \['weights.npy'\].* header.npy is missing"):
        LifelongMetricLearner.load(tmp_path / "x.npz")


def parts_of(learner, path):
    """What a file of a learner holds, and how it is read when `change` has edited that."""
    kind = type(learner)
    learner.save(path)

    def read(change):
        meta, arrays = state.read_state(path, kind.__name__)
        meta = change(meta, arrays) or meta
        state.write_state(path.with_name("changed"), kind.__name__, meta, arrays)
        return kind.load(path.with_name("changed"))

    return read


def shared_learner():
    learner = LifelongMetricLearner("oasis", shared_labels=True, random_state=0)
    return learner.partial_fit(*make_task(0), task="here").partial_fit(*make_task(1), task="there")


@pytest.mark.parametrize(
    "change",
    [
        lambda meta, arrays: ["state", "parameters"],
        lambda meta, arrays: {"state": meta["state"]},
        lambda meta, arrays: meta | {"more": 1},
    ],
)
def test_a_file_has_a_state_and_parameters_and_nothing_else(change, tmp_path):
    read = parts_of(shared_learner(), tmp_path / "s")
    with pytest.raises(ValueError, match=r"entries is .*state and parameters"):
        read(change)


def test_the_least_root_of_a_file_is_zero(tmp_path):
    read = parts_of(shared_learner(), tmp_path / "s")

    def rooted(root):
        def change(meta, arrays):
            assert isinstance(meta["state"]["root"], int)
            meta["state"]["root"] = root

        return change

    assert read(rooted(0))._state.root == 0
    with pytest.raises(ValueError, match="root is -1"):
        read(rooted(-1))


def test_classes_of_a_file_have_a_sample_each(tmp_path):
    read = parts_of(shared_learner(), tmp_path / "s")

    def count(number):
        def change(meta, arrays):
            (place,) = [name for name in arrays if name.endswith("counts")]
            assert arrays[place].ravel()[0] == 10
            arrays[place].ravel()[0] = number

        return change

    assert read(count(1)).transform(np.eye(7), task="here").shape[0] == 7
    with pytest.raises(ValueError, match=r"counts is .*at least 1"):
        read(count(0))


def test_a_task_of_a_table_has_two_classes_though_it_was_known():
    learner = LifelongPLDA(random_state=0)
    learner.partial_fit(*make_task(0), task="a")
    with pytest.raises(ValueError, match="class"):
        learner.fit(make_task(1)[0], np.zeros(30), tasks=["a"] * 30)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("twin", [lambda one: one, copy.deepcopy, pickle.loads])
@pytest.mark.filterwarnings("ignore:the base learner's metric")  # in few steps
def test_nobody_writes_into_the_arrays_of_a_state(form, twin):
    learner = DictionaryMetricLearner(OASIS(n_steps=10), n_components=3, random_state=0)
    X, y = make_task(0)
    learner.partial_fit(form(X), y, task="a")
    learner = twin(pickle.dumps(learner) if twin is pickle.loads else learner)
    record = learner.tasks_["a"]
    arrays = [learner.dictionary_, learner.codes_["a"], record.triplets]
    arrays.append(record.X.data if sparse.issparse(record.X) else record.X)
    for array in arrays:
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 0


@pytest.mark.parametrize("weight", [-1e-9, 1.0 + 1e-9])
@pytest.mark.parametrize("name", ["amount", "shared"])
def test_weights_of_class_means_are_shares(name, weight):
    (X, y), learner = make_task(0), shared_learner()
    with pytest.raises(ValueError, match=f"{name}="):
        learner.shrink_references(X, y, task="here", **{name: weight})
    assert learner.shrink_references(X, y, task="here", **{name: 1.0}).shape == X.shape


def test_names_of_columns_and_labels_of_classes_are_tuples_without_repetitions():
    columns = COMMON_FIELDS["columns"].field.rule.allows
    labels = LABELS.rule.allows
    assert all(map(columns, [("a", "b"), ("a",), ()]))
    assert not any(map(columns, [["a", "b"], ("a", "a"), ("a", 3), "ab", None]))
    assert all(map(labels, [("a", 3), (("a", 1), None), ()]))
    assert not any(map(labels, [["a", 3], ("a", "a"), "ab", None]))


@pytest.mark.parametrize("kind", [LifelongMetricLearner, LifelongPLDA])
def test_a_bar_counts_the_tasks_and_changes_nothing(kind, capsys, tmp_path):
    parts = [make_task(seed) for seed in range(3)]
    X = np.concatenate([samples for samples, _ in parts])
    y = np.concatenate([labels for _, labels in parts])
    tasks = np.repeat(["a", "b", "c"], [len(labels) for _, labels in parts])
    quiet = kind(random_state=0).fit(X, y, tasks=tasks)
    assert capsys.readouterr().err == ""
    told = kind(random_state=0, verbose=True).fit(X, y, tasks=tasks)
    shown = capsys.readouterr().err
    assert kind.__name__ in shown
    assert "3/3" in shown
    for task in "abc":
        np.testing.assert_array_equal(
            told.task_metric(task).to_dense(), quiet.task_metric(task).to_dense()
        )
    told.save(tmp_path / "learner")
    assert kind.load(tmp_path / "learner").verbose is True
    with pytest.raises(ValueError, match="verbose='yes'"):
        told.set_params(verbose="yes").partial_fit(*parts[0], task="a")


class Compared:
    """A label that counts how often it is compared."""

    n_times = 0

    def __init__(self, name):
        self.name = name

    def __hash__(self):
        return hash(self.name)

    def __eq__(self, other):
        Compared.n_times += 1
        return self.name == other.name


def test_the_mean_of_one_class_is_not_that_of_a_task():
    own = ClassMeans(("a", "b"), np.array([1, 3]), np.array([[0.0, 1.0, 0.0], [4.0, 1.0, 2.0]]))
    other = ClassMeans(("b", "c"), np.array([1, 1]), np.array([[5.0, 0.0, 0.0], [1.0, 2.0, 0.0]]))
    alone = ClassMeans(("b",), np.array([7]), np.array([[9.0, 9.0, 9.0]]))
    means, labels = own.from_others([alone, other])
    assert labels == ["b"]
    np.testing.assert_allclose(means, [[3.0 + 2.0, 1.0 - 1.0, 1.5]])  # from center to center
    for one, others in ((own, [alone]), (alone, [own, other])):
        means, labels = one.from_others(others)
        assert (means.shape, labels) == ((0, 3), [])


@pytest.mark.filterwarnings("ignore:the base learner's metric")  # in few steps
@each_learner
@pytest.mark.parametrize("base", [OASIS(n_steps=10), SCML(n_basis=5, n_steps=10)])
def test_a_mean_far_away_is_told_to_who_learns_inner_products(make, base):
    X, y = make_task(0)
    for method, tasks in (("partial_fit", {"task": "t"}), ("fit", {"tasks": ["t"] * len(y)})):
        learn = getattr(make(base), method)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            learn(X + 50, y, **tasks)
        places = [one.filename for one in found if "mean of the samples" in str(one.message)]
        assert places == [__file__] * isinstance(base, OASIS)


@pytest.mark.parametrize("join", [ClassMeans.plus, lambda a, b: a.from_others([b])])
def test_class_means_are_joined_in_one_comparison_a_label(join):
    parts = [
        ClassMeans(tuple(map(Compared, names)), np.ones(200, dtype=int), np.ones((200, 2)))
        for names in (range(200), range(100, 300))
    ]
    Compared.n_times = 0
    join(*parts)
    assert Compared.n_times < 5 * 200  # one by one there are more than 20000
