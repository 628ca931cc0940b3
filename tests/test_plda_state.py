"""LifelongPLDA in files and among threads, and beside the other lifelong learner."""

import copy
import itertools
import json
import pickle
import threading
from collections import Counter
from functools import partial, reduce
from operator import getitem

import interrupts
import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from interrupts import stop
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from lml import base
from lml.lifelong import LifelongMetricLearner
from lml.plda import LifelongPLDA, model, selection, statistics
from lml.plda import learner as plda
from lml.plda.model import LogRatioMetric
from lml.state import read_state, write_state

STREAM = ["paris", 42, ("a", (1, None)), True, 0.5, "paris", "", b"b", 42]
SETTINGS = {
    "as it is": {},
    "small": {"n_components": 3},
    "keyed": {"shared_labels": True},
    "given": {"own_weight": (0.2, 0.4), "shrinkage": (1.0, 0.3, 0.1)},
    "lists": {"own_weight": [0.2, 0.4], "random_state": np.random.RandomState(3)},
    "sums": {"max_old_tasks": 2},
    "small sums": {"max_old_tasks": 1, "n_components": 3, "shared_labels": True},
    "given sums": {"max_old_tasks": 2, "shared_labels": True, "own_weight": 0.5},
}


def rows(seed, n=18, n_features=5):
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % 3)
    X = rng.normal(size=(n, n_features)) + 2 * np.eye(3, n_features)[y]
    X[np.abs(X) < 0.3] = 0.0
    return X, y


def small(**settings):
    return LifelongPLDA(**{"random_state": 0, "n_folds": 2, **settings})


def learned(names=("a", "b", ("c", 1)), **settings):
    learner = small(**settings)
    for number, task in enumerate(names):
        learner.partial_fit(*rows(number), task=task)
    return learner


def all_of(learner):
    """Everything that a learner knows, as bytes and plain values."""
    state = getattr(learner, "state_", None)
    if state is None:
        return None
    found = [state.dictionary]
    records = []
    for task, memory in state.tasks.items():
        m = memory.moments
        found += [memory.mean, memory.losses, memory.pair_costs]
        found += [m.counts, m.means, m.within, m.centered]
        plain = (memory.number, memory.family, memory.n_visits, memory.at_chance)
        records.append((task, type(task).__name__, *plain, m.labels, m.trace, m.n_tasks))
    for pool in state.sums(learner.shared_labels).values():
        found += [pool.total.within, pool.total.between]
        found += [] if pool.joined is None else [pool.joined.means, pool.joined.within]
    facts = (state.rested, state.root, state.columns)
    return [(a.dtype.str, a.shape, a.tobytes()) for a in found], records, facts


def save_and_load(learner, path):
    learner.save(path)
    return LifelongPLDA.load(path)


# --- files --------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [np.array, sparse.csr_array])
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("way", ["file", "pickle"])
def test_after_a_file_the_next_visit_goes_on_bit_for_bit(name, form, way, tmp_path):
    learner = small(**SETTINGS[name])
    for number, task in enumerate(STREAM):
        X, y = rows(number)
        if number in (0, 3, 6, 8):
            if way == "file":
                twin = save_and_load(learner, tmp_path / "s.npz")
            else:
                twin = pickle.loads(pickle.dumps(learner))
            assert all_of(twin) == all_of(learner)
            assert repr(twin)[:40] == repr(learner)[:40]
            twin.partial_fit(form(X), y, task=task)
        learner.partial_fit(form(X), y, task=task)
        if number in (0, 3, 6, 8):
            assert all_of(twin) == all_of(learner)
            for task in learner.tasks_:
                scores = [one.task_metric(task).bilinear(X, X) for one in (learner, twin)]
                np.testing.assert_array_equal(*scores)


def test_a_saved_file_has_the_same_bytes_as_that_of_the_loaded_learner(tmp_path):
    learner = learned()
    twin = save_and_load(learner, tmp_path / "a")
    twin.save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_labels_names_of_columns_and_parameters_come_back(tmp_path):
    X, y = rows(0)
    labels = ["a", ("b", 1), b"c"]
    frame = pd.DataFrame(X, columns=list("abcde"))
    learner = small(own_weight=0.5).partial_fit(frame, [labels[code] for code in y], task="t")
    twin = save_and_load(learner, tmp_path / "s")
    assert set(twin.tasks_["t"].moments.labels) == set(labels)
    assert twin.tasks_["t"].moments.labels == learner.tasks_["t"].moments.labels
    assert twin.feature_names_in_.tolist() == list("abcde")
    assert twin.get_params() == learner.get_params()


@pytest.mark.parametrize("size", [1e-4, 1e4])
def test_a_class_of_one_sample_and_samples_of_any_size_come_back(size, tmp_path):
    X, _ = rows(0)
    y = np.r_[np.arange(17) % 2, 2]
    learner = small().partial_fit(size * X, y, task="t")
    learner.save(tmp_path / "s")
    assert learner.tasks_["t"].moments.counts.min() == 1
    assert all_of(LifelongPLDA.load(tmp_path / "s")) == all_of(learner)


def test_a_learner_without_tasks_is_saved_before_and_after_it_had_some(tmp_path):
    blank = save_and_load(small(), tmp_path / "s")
    assert not blank.__sklearn_is_fitted__()
    emptied = learned(("a",)).forget("a")
    twin = save_and_load(emptied, tmp_path / "s")
    assert (twin.n_features_in_, twin.tasks_, twin.dictionary_.shape) == (5, {}, (0, 5))
    for one in (emptied, twin):
        with pytest.raises(NotFittedError):
            one.pair_score(rows(0)[0][None, :2], task="a")
        with pytest.raises(ValueError, match="5 features are expected"):
            one.partial_fit(*rows(0, n_features=4), task="a")
        one.partial_fit(*rows(0), task="a")
    assert all_of(emptied) == all_of(twin) == all_of(learned(("a",)))


def test_each_lifelong_learner_refuses_the_file_of_the_other(tmp_path):
    path = tmp_path / "s"
    learned().save(path)
    with pytest.raises(ValueError, match="kind is 'LifelongPLDA', not 'LifelongMetricLearner'"):
        LifelongMetricLearner.load(path)
    LifelongMetricLearner(n_components=2).partial_fit(*rows(0), task="a").save(path)
    with pytest.raises(ValueError, match="kind is 'LifelongMetricLearner', not 'LifelongPLDA'"):
        LifelongPLDA.load(path)


def test_what_cannot_be_stored_is_named_and_the_old_file_stays(tmp_path):
    path = tmp_path / "s"
    learned().save(path)
    kept = path.read_bytes()
    with pytest.raises(TypeError, match=r"random_state: <module .* cannot be stored"):
        learned().set_params(random_state=np.random).save(path)
    with pytest.raises(ValueError, match="n_folds"):
        learned().set_params(n_folds=0).save(path)
    assert path.read_bytes() == kept
    assert list(tmp_path.iterdir()) == [path]


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "s.npz"
    learned().save(path)
    meta, arrays = read_state(path, "LifelongPLDA")
    return path, meta, arrays


def entry(*path, **change):
    """Change entries of the part of the state that a path leads to."""
    return lambda meta, arrays: reduce(getitem, path, meta["state"]).update(change)


def task(place, *path, **change):
    return entry("tasks", place, 1, *path, **change)


def parameter(**change):
    return lambda meta, arrays: meta["parameters"].update(change)


def without(name):
    return lambda meta, arrays: arrays.pop(name)


def numbers(name, change):
    """Change an array in its place."""
    return lambda meta, arrays: arrays.update({name: change(arrays[name])})


def name_of(place, form):
    return lambda meta, arrays: meta["state"]["tasks"][place].__setitem__(0, form)


def first(value):
    return lambda a: np.append(np.asarray(value, a.dtype), a[1:])


FAULTS = {
    "entries is": lambda meta, arrays: meta.pop("parameters"),
    "state is .*not an object": lambda meta, arrays: meta["state"].pop("root"),
    "'dictionary', not": without("dictionary"),
    "'tasks.moments.means', not": without("tasks.moments.means"),
    "'tasks.losses', not": without("tasks.losses"),
    r"nothing uses is \['more'\]": lambda meta, arrays: arrays.update(more=np.ones(2)),
    "numbers left of dictionary": entry(dictionary=["C", 7, 5]),
    "dictionary is .*not orthonormal": numbers("dictionary", lambda a: 2 * a),
    "dictionary is [^.]*0.*not orthonormal": numbers("dictionary", np.zeros_like),
    "type of dictionary is .*int64": numbers("dictionary", lambda a: a.astype(int)),
    r"shape of dictionary is \[5, 4\]": entry(dictionary=["C", 5, 4]),
    r"shape of tasks\[0\].moments.within is \[4, 4\]": task(0, "moments", within=["C", 4, 4]),
    "nothing uses is .*tasks.moments.within": lambda meta, arrays: meta["state"]["tasks"].pop(),
    r"tasks\[0\].moments.within is .*symmetric": numbers("tasks.moments.within", np.sort),
    r"shape of tasks\[1\].mean is \[4\]": task(1, mean=["C", 4]),
    r"numbers left of tasks.moments.counts": numbers("tasks.moments.counts", lambda a: a[:-1]),
    "type of tasks.moments.counts is .*float64": numbers(
        "tasks.moments.counts", lambda a: a.astype(float)
    ),
    r"tasks\[0\].moments.counts is .*positive": numbers("tasks.moments.counts", first([0])),
    r"tasks\[0\].moments.centered is .*positive": numbers("tasks.moments.centered", first([0])),
    r"shape of tasks\[0\].moments.means is \[3, 4\]": task(0, "moments", means=["C", 3, 4]),
    r"tasks\[0\].losses is .*-1.*not shares": numbers("tasks.losses", first([-1])),
    r"tasks\[0\].losses is .*3.*not shares": numbers("tasks.losses", first([3])),
    r"shape of tasks\[0\].losses is .*one of 2 axes": task(0, losses=["C", 48]),
    r"tasks\[0\].pair_costs is .*-1.*not two costs": numbers("tasks.pair_costs", first([-1])),
    r"tasks\[0\].pair_costs is .*not two costs": task(0, pair_costs=["C", 1]),
    r"name of tasks\[1\] is 'a'": name_of(1, "a"),
    "stands for no value": name_of(1, {"a": 1}),
    r"tasks\[2\] is .*not an object": task(2, more=1),
    r"tasks\[2\].moments.trace is -1": task(2, "moments", trace=-1.0),
    r"tasks\[2\].moments.n_features is 7": task(2, "moments", n_features=7),
    r"tasks\[0\].n_visits is True": task(0, n_visits=True),
    r"tasks\[0\].family is -1": task(0, family=-1),
    r"tasks\[0\].moments is 1": task(0, moments=1),
    r"tasks\[1\].at_chance is 1, not": task(1, at_chance=1),
    r"tasks\[0\].moments.labels is 3": task(0, "moments", labels=3),
    r"tasks\[0\].moments.labels is \(1, 1, 2\)": task(0, "moments", labels=[1, 1, 2]),
    "labels of task 'a'": task(0, "moments", labels=[1, 2]),
    r"numbers of the tasks is \[0, 0": task(1, number=0),
    "rested is -1": entry(rested=-1),
    "root is -1": entry(root=-1),
    "root is 'a'": entry(root="a"),
    "columns is .*not different": entry(columns=["a"] * 5),
    "columns is .*not 5 different": entry(columns=["a", "b"]),
    "n_components='a'": parameter(n_components="a"),
    "n_folds=1": parameter(n_folds=1),
    "shared_labels=1": parameter(shared_labels=1),
    "unexpected keyword": parameter(more=1),
    "learner is 'Popen'": parameter(random_state={"learner": ["Popen", {"args": "true"}]}),
}


@pytest.mark.parametrize("said", list(FAULTS))
def test_a_file_whose_parts_do_not_belong_together_is_refused(said, saved):
    path, meta, arrays = saved
    FAULTS[said](meta, arrays)
    write_state(path, "LifelongPLDA", meta, arrays)
    with pytest.raises(ValueError, match=r"s\.npz' cannot be used as a state: ") as error:
        LifelongPLDA.load(path)
    error.match(said)


@pytest.mark.parametrize("weight", [np.float32(0.3), np.float16(0.3), (np.float16(0.3), 0.2)])
def test_weights_of_few_digits_survive_a_file(weight, tmp_path):
    learner = learned(**{**GIVEN, "own_weight": weight})
    learner.save(tmp_path / "s")
    twin = LifelongPLDA.load(tmp_path / "s")
    for task in learner.tasks_:
        pair = (one.task_metric(task).bilinear(*2 * [rows(9)[0]]) for one in (learner, twin))
        np.testing.assert_array_equal(*pair)


def places(form, path=()):
    """Paths to all entries of nested lists and objects."""
    yield path
    parts = form.items() if isinstance(form, dict) else enumerate(form)
    for key, part in parts if isinstance(form, (dict, list)) else ():
        yield from places(part, (*path, key)) if isinstance(part, (dict, list)) else [(*path, key)]


def changed_text(meta, rng):
    values = [None, True, -1, 0, 3, 2**70, 1e308, "a", [], ["a", 1], {}, {"array": "codes"}]
    values += [{"learner": ["OASIS", {}]}, {"float": "inf"}, {"bytes": "00"}, {"list": [1]}]
    text = json.loads(json.dumps(meta))
    *way, last = (ways := list(places(text)))[rng.integers(1, len(ways))]
    inner = text
    for key in way:
        inner = inner[key]
    if rng.random() < 0.2:
        inner.pop(last)
    else:
        inner[last] = values[rng.integers(len(values))]
    return text


def changed_array(value, rng):
    ways = (lambda a: a[:0], lambda a: a[..., :1], lambda a: a * 1e200, lambda a: a.astype("f4"))
    ways += (lambda a: a.ravel(), lambda a: -a, lambda a: 0 * a, lambda a: a[None])
    return ways[rng.integers(len(ways))](value)


@pytest.mark.filterwarnings("ignore")  # wild numbers overflow
def test_a_changed_text_or_array_gives_an_error_or_a_learner(saved):
    path, meta, arrays = saved
    rng, outcome = np.random.default_rng(0), Counter()
    for _ in range(300):
        text, table = meta, dict(arrays)
        if rng.random() < 0.6:
            text = changed_text(meta, rng)
        else:
            name = rng.choice(list(table))
            table[name] = changed_array(table[name], rng)
        write_state(path, "LifelongPLDA", text, table)
        try:
            learner = LifelongPLDA.load(path)
        except ValueError as error:
            outcome["refused" if "cannot be used as a state: " in str(error) else "other"] += 1
        else:
            assert set(learner.codes_) == set(learner.tasks_)
            pickle.dumps(learner)
            outcome["read"] += 1
    assert set(outcome) == {"refused", "read"}
    assert min(outcome.values()) > 20, outcome


@pytest.mark.filterwarnings("ignore")  # zipfile and numpy may warn about what they find
def test_damaged_files_give_an_error_or_the_same_learner(tmp_path):
    path = tmp_path / "s"
    learner = learned(n_components=2)
    learner.save(path)
    whole, known = path.read_bytes(), all_of(learner)
    rng, refused = np.random.default_rng(0), 0
    for _ in range(400):
        data = bytearray(whole)
        way, place = rng.integers(3), rng.integers(len(data))
        if way == 0:
            data[place] ^= 1 << rng.integers(8)
        elif way == 1:
            del data[place:]
        else:
            del data[place : place + rng.integers(1, 50)]
        path.write_bytes(data)
        try:
            twin = LifelongPLDA.load(path)
        except ValueError:
            refused += 1
        else:
            assert all_of(twin) == known
    assert refused > 300


def test_a_loaded_learner_owns_its_arrays_one_by_one(saved):
    twin = LifelongPLDA.load(saved[0])
    for memory in twin.tasks_.values():
        moments = memory.moments
        for part in (moments.counts, memory.mean, moments.within, moments.means):
            assert part.base is None


# --- interrupts and threads ---------------------------------------------------------------

at_step = partial(interrupts.at_step, (base, plda, model, selection, statistics))
GIVEN = {"own_weight": 0.25, "shrinkage": (0.5, 0.2, 0.1)}
CHANGES = {
    "new": lambda learner: learner.partial_fit(*rows(5), task="new"),
    "known": lambda learner: learner.partial_fit(*rows(5), task="a"),
    "table": lambda learner: learner.fit(*rows(5), tasks=["x"] * 18),
    "forget": lambda learner: learner.forget("a"),
}


@pytest.mark.parametrize("change", [*CHANGES, "first"])
def test_an_interrupt_anywhere_leaves_the_old_state_or_the_new(change):
    learner = small(**GIVEN) if change == "first" else learned(**GIVEN)
    call = CHANGES.get(change, CHANGES["new"])
    new, old = all_of(call(copy.deepcopy(learner))), all_of(learner)
    assert new != old
    before, late = dict(vars(learner)), 0
    for number in itertools.count(0, 1 if change == "forget" else 3):
        twin = copy.copy(learner)
        try:
            done, _ = at_step(number, stop, lambda twin=twin: call(twin))
        except KeyboardInterrupt:
            late += all_of(twin) == new
            assert late or vars(twin) == before
        else:
            assert done
            break
    assert number > 10
    assert late <= 3  # nothing is left to do but to return
    assert all_of(learner) == old  # what the twins shared has not changed either
    thread = threading.Thread(target=learner.partial_fit, args=rows(7), kwargs={"task": "z"})
    thread.start()
    thread.join(60)
    assert "z" in learner.tasks_  # no lock is held


READINGS = {
    "transform": lambda learner: learner.transform(rows(9)[0], task="a"),
    "pair_score": lambda learner: learner.pair_score(rows(9)[0][None, :2], task="a"),
    "metric_matrix": lambda learner: learner.metric_matrix("a"),
    "get_mahalanobis_matrix": lambda learner: learner.get_mahalanobis_matrix("a"),
    "get_metric": lambda learner: learner.get_metric("a")(*rows(9)[0][:2]),
    "shared_metric": lambda learner: learner.shared_metric().bilinear(*[rows(9)[0][:2]] * 2),
    "state_parts_": lambda learner: list(learner.state_parts_.values()),
    "codes_": lambda learner: list(learner.codes_),
}


@pytest.mark.parametrize("read", list(READINGS))
def test_a_reader_gets_the_old_or_the_new_answer_wherever_another_thread_learns(read):
    old, new = learned(("a",), **GIVEN), learned(("a", "b"), **GIVEN)
    answers = [READINGS[read](learner) for learner in (old, new)]
    assert not np.array_equal(*answers)
    found = Counter()
    for number in itertools.count():
        learner = copy.copy(old)

        def learn_meanwhile(learner=learner):
            learner.partial_fit(*rows(1), task="b")

        done, answer = at_step(number, learn_meanwhile, lambda one=learner: READINGS[read](one))
        if done:
            break
        places = [place for place in (0, 1) if np.array_equal(answer, answers[place])]
        assert places, f"step {number}: {answer} is of neither state"
        found[places[0]] += 1
    assert found[0] > 0
    assert found[1] > 0


def test_threads_that_learn_at_once_lose_nothing():
    learner = small(**GIVEN)
    names = [f"t{number}" for number in range(8)]
    calls = [threading.Thread(target=learner.partial_fit, args=rows(k), kwargs={"task": name})
             for k, name in enumerate(names)]  # fmt: skip
    for thread in calls:
        thread.start()
    for thread in calls:
        thread.join()
    assert set(learner.tasks_) == set(names)
    assert sorted(m.number for m in learner.tasks_.values()) == list(range(8))


def test_what_is_handed_out_cannot_change_the_learner():
    learner = learned()
    before = all_of(learner)
    learner.tasks_.clear()
    learner.codes_.clear()
    for part in (learner.dictionary_, learner.tasks_["a"].mean, learner.tasks_["a"].moments.within):
        with pytest.raises(ValueError, match="read-only"):
            part[0] = 0
    with pytest.raises(AttributeError):
        learner.state_.root = 3
    copied = pickle.loads(pickle.dumps(learner)).dictionary_
    assert not copied.flags.writeable
    assert all_of(learner) == before


# --- the interface of the other lifelong learner --------------------------------------------


def test_every_public_method_of_the_other_learner_is_there():
    other = LifelongMetricLearner(n_components=3, random_state=0).partial_fit(*rows(0), task="a")
    mine = learned(("a",))
    names = {n for n in dir(other) if not n.startswith("_") and hasattr(other, n)}
    names -= set(other.get_params())
    lacking = {n for n in names if not hasattr(mine, n)}
    # class means that are references need a metric in which they lie: here they shape the read-out;
    # and triplets and pairs have no scatter
    others = {"class_means_of_others", "partial_fit_pairs", "partial_fit_triplets"}
    assert lacking == {"shared_metric_", "sharing_"} | others


@pytest.mark.parametrize("frame", [pd.DataFrame, lambda X, columns: pl.DataFrame(X, columns)])
def test_names_of_columns_are_noted_and_checked(frame):
    X, y = rows(0)
    learner = small().partial_fit(frame(X, columns=list("abcde")), y, task="t")
    assert learner.feature_names_in_.tolist() == list("abcde")
    before = all_of(learner)
    wrong = frame(X, columns=list("abcdz"))
    for call in (
        lambda: learner.partial_fit(wrong, y, task="u"),
        lambda: learner.transform(wrong, task="t"),
        lambda: learner.shrink_references(wrong, y, task="t"),
        lambda: learner.score(wrong, y, tasks=["t"] * 18),
    ):
        with pytest.raises(ValueError, match="feature names"):
            call()
    assert all_of(learner) == before
    table = learner.fit(frame(X, columns=list("vwxyz")), y, tasks=["t"] * 18)
    assert table.feature_names_in_.tolist() == list("vwxyz")
    assert not hasattr(table.fit(X, y, tasks=["t"] * 18), "feature_names_in_")
    view = learner.partial_fit(X, y, task="u").as_transformer("u")
    names = view.get_feature_names_out()
    assert len(names) == view.transform(X).shape[1]
    assert view.set_output(transform="pandas").transform(X).columns.tolist() == list(names)


def test_a_view_has_the_coordinates_of_the_learner():
    learner, (X, _) = learned(), rows(9)
    view = learner.as_transformer("b")
    np.testing.assert_array_equal(view.transform(X), learner.transform(X, task="b"))
    metric = learner.task_metric("b")
    shift = metric.mean @ view.components_.T
    np.testing.assert_allclose(view.transform(X), X @ view.components_.T - shift, atol=1e-12)
    M = view.components_.T @ view.components_
    np.testing.assert_allclose(M, learner.metric_matrix("b"), atol=1e-12)
    np.testing.assert_allclose(learner.get_mahalanobis_matrix("b"), M, atol=1e-12)
    expected = np.sqrt((X[0] - X[1]) @ M @ (X[0] - X[1]))
    assert learner.get_metric("b")(X[0], X[1]) == pytest.approx(expected)
    assert isinstance(metric.psd(), LogRatioMetric)
    pairs = np.stack([X[:4], X[4:8]], axis=1)
    np.testing.assert_array_equal(view.pair_score(pairs), learner.pair_score(pairs, task="b"))


def test_tasks_are_routed_as_metadata():
    X, y = rows(0)
    names = ["a", "b"] * 9
    with sklearn.config_context(enable_metadata_routing=True):
        learner = small(**GIVEN).set_fit_request(tasks=True)
        made = make_pipeline(StandardScaler(), learner).fit(X, y, tasks=names)
    expected = small(**GIVEN).fit(StandardScaler().fit_transform(X), y, tasks=names)
    assert all_of(made[-1]) == all_of(expected)


def test_bad_rows_of_a_table_name_the_row():
    X, y = rows(0)
    for tasks, said in [([["a"]] * 18, r"tasks\[0\]"), ([None] * 18, r"tasks\[0\]=None is")]:
        with pytest.raises((TypeError, ValueError), match=said):
            small().fit(X, y, tasks=tasks)
    with pytest.raises(ValueError, match="0 samples"):
        small().fit(X[:0], y[:0], tasks=[])
    learner = learned()
    for method in ("task_metric", "get_metric", "metric_matrix", "forget", "as_transformer"):
        with pytest.raises(ValueError, match=r"known tasks: \['a', 'b', \('c', 1\)\]"):
            getattr(learner, method)("d")
        with pytest.raises(TypeError, match=r"task=\['d'\] is not hashable"):
            getattr(learner, method)(["d"])


def test_a_task_with_an_empty_name_stays_when_another_is_forgotten():
    learner = learned(("", "b", "c"), own_weight=1.0, shrinkage=(1.0, 0.0, 0.0))
    before = learner.metric_matrix("")
    learner.forget("b")
    assert list(learner.tasks_) == ["", "c"]
    np.testing.assert_array_equal(learner.metric_matrix(""), before)


def test_unfitted_attributes_say_what_to_do():
    learner = clone(learned())
    for name in ("state_", "tasks_", "dictionary_", "codes_", "n_features_in_"):
        with pytest.raises(NotFittedError, match=name):
            getattr(learner, name)
    for name in ("state_parts_", "state_nbytes_"):
        with pytest.raises(NotFittedError, match=r"no state_(parts|nbytes)_"):
            getattr(learner, name)


@pytest.mark.parametrize(("name", "value"), [("shared_labels", 1), ("shared_labels", "no")])
def test_a_switch_is_true_or_false(name, value):
    with pytest.raises(TypeError, match=f"{name}={value!r}: give True or False"):
        small(**{name: value}).partial_fit(*rows(0), task="a")
