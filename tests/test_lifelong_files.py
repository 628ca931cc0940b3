"""LifelongMetricLearner in files: what comes back, and what is refused."""

import itertools
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from lifelong_streams import (
    NAMES,
    Given,
    all_of,
    learn,
    make_learner,
    make_task,
    same,
    save_and_load,
)
from scipy import sparse
from sklearn.base import clone

from lml.baselines.offdiagonal import OffDiagonalLearner
from lml.lifelong import LifelongMetricLearner
from lml.lmnn import LMNN
from lml.metrics import FactoredMetric
from lml.oasis import OASIS
from lml.scml import SCML
from lml.state import read_state, write_state

WARM = {"warm_start_from_dictionary": True}
BASES = {"oasis": (("average", "step", "warm"), WARM), "scml": (("average", "step"), {})}
POLICIES = [
    ({"base_learner": base, "old_tasks": old, "revisit": way, **more}, rows)
    for base, (ways, warm) in BASES.items()
    for old, way in itertools.product(("metrics", "codes"), ways)
    for more in ({}, {"gradient_memory": 2, "dictionary_loss": "hinge", **warm})
    for rows in (np.array, sparse.csr_array)
]
STREAM = ["paris", 42, ("a", (1, None)), True, 0.5, "paris", "", b"b", 42]


@pytest.mark.parametrize(("policy", "rows"), POLICIES)
def test_after_a_file_the_next_visit_goes_on_bit_for_bit(policy, rows, tmp_path):
    bases = {"oasis": OASIS(n_steps=100), "scml": SCML(n_basis=10, n_steps=50)}
    base = bases[policy["base_learner"]]
    learner = make_learner(**{**policy, "base_learner": base, "n_triplets": 100})
    for number, task in enumerate(STREAM):
        X, y = make_task(number)
        X[np.abs(X) < 0.3] = 0.0
        if number in (0, 3, 6, 8):
            twin = save_and_load(learner, tmp_path / "s.npz")
            assert all_of(twin) == all_of(learner)
            assert repr(twin) == repr(learner)
            twin.partial_fit(rows(X), y, task=task)
        learner.partial_fit(rows(X), y, task=task)
        if number in (0, 3, 6, 8):
            assert all_of(twin) == all_of(learner)


def test_labels_and_names_of_columns_come_back(tmp_path):
    X, y = make_task(0)
    labels = ["a", ("b", 1), b"c"]
    frame = pd.DataFrame(X, columns=list("abcdefg"))
    learner = make_learner().partial_fit(frame, [labels[code] for code in y], task="t")
    twin = save_and_load(learner, tmp_path / "s.npz")
    assert twin.tasks_["t"].classes == tuple(labels)
    assert twin.feature_names_in_.tolist() == list("abcdefg")


@pytest.mark.parametrize("name", [np.int64(3), np.str_("a"), np.float32(0.1), np.bool_(True)])
def test_a_numpy_name_is_found_again_by_itself_and_by_its_python_twin(name, tmp_path):
    learner = make_learner().partial_fit(*make_task(0), task=name)
    twin = save_and_load(learner, tmp_path / "s.npz")
    for key in (name, name.item()):
        np.testing.assert_array_equal(twin.metric_matrix(key), learner.metric_matrix(name))


BASE_PARAMETERS = [
    "oasis",
    "scml",
    OASIS(0.2, init=FactoredMetric.identity(7, 0.5), random_state=np.random.RandomState(1)),
    OASIS(init=np.eye(7)),
    SCML(n_basis=8, beta=0.0, gamma=0.5),
    LMNN(max_iter=5),
    OffDiagonalLearner(dictionary=np.eye(7)[:3], max_iter=20),
]


def shown(learner):
    """Its representation, without addresses of objects."""
    return re.sub("at 0x[0-9A-F]+", "", repr(learner))


@pytest.mark.parametrize("base", BASE_PARAMETERS, ids=lambda base: repr(base)[:20])
@pytest.mark.parametrize("random_state", [None, 5, np.random.RandomState(3)])
def test_parameters_come_back_also_before_any_task(base, random_state, tmp_path):
    learner = LifelongMetricLearner(base, 3, 0.1, random_state=random_state, dictionary_steps=2)
    twin = save_and_load(learner, tmp_path / "s.npz")
    assert shown(twin) == shown(learner)
    assert not hasattr(twin, "tasks_")
    if random_state is not None:
        same(*(one.set_params(base_learner=OASIS(n_steps=9)).partial_fit(*make_task(0), task="t")
               for one in (twin, learner)))  # fmt: skip


def test_a_fresh_clone_of_a_loaded_learner_repeats_it(tmp_path):
    learner = make_learner(random_state=np.random.RandomState(7))
    learn(learner, NAMES[:2])
    same(learn(clone(save_and_load(learner, tmp_path / "s")), NAMES[:2]), learner)


def test_forgetting_all_tasks_keeps_the_dictionary_also_in_a_file(tmp_path):
    learner = learn(make_learner(gradient_memory=2), NAMES[:1]).forget(NAMES[0])
    twin = save_and_load(learner, tmp_path / "s")
    assert twin.tasks_ == {}
    np.testing.assert_array_equal(twin.dictionary_, learner.dictionary_)
    assert all_of(learn(twin, ["new"])) == all_of(learn(learner, ["new"]))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda learner: learner.partial_fit(*make_task(1), task=frozenset("a")), "frozenset"),
        (lambda learner: learner.partial_fit(*make_task(1), task=("a", object())), r"tasks\[\('a'"),
        (
            lambda learner: learner.partial_fit(make_task(1)[0], [1j] * 20 + [2j] * 10, task="b"),
            "1j",
        ),
        (lambda learner: learner.set_params(base_learner=Given()), "base_learner: Given"),
        (lambda learner: learner.set_params(random_state=np.random), "random_state: <module"),
        (lambda learner: learner.set_params(n_components=0), "n_components=0"),
    ],
)
def test_what_cannot_be_stored_is_named_before_anything_is_written(spoil, said, tmp_path):
    learner = make_learner().partial_fit(*make_task(0), task="a")
    learner.save(tmp_path / "s")
    before = (tmp_path / "s").read_bytes()
    spoil(learner)
    with pytest.raises((TypeError, ValueError), match=said):
        learner.save(tmp_path / "s")
    assert (tmp_path / "s").read_bytes() == before
    assert list(tmp_path.iterdir()) == [tmp_path / "s"]


def queue(place, axis, value):
    """Another number in the queue: of each task, in turn, its place and the move it waits for."""
    return lambda state, arrays: arrays["queue"].__setitem__(2 * place + axis, value)


WAITING = {
    "queue is .*not counts": queue(0, 1, -1),
    "places of queue is .*each task once": queue(0, 0, 1),
    "moves of queue is .*rising": queue(0, 1, 9),
    "moves of queue is .*at most 1 moves": lambda state, arrays: (
        state["moves"].__setitem__(1, 1), arrays.update(moves=arrays["moves"][:16])),
    "moves is 47, not 48": lambda state, arrays: arrays.update(moves=arrays["moves"][1:]),
    r"shape of moves is \[3, 3, 4\]": lambda state, arrays: state["moves"].__setitem__(2, 3),
    "type of moves is .*int64": lambda state, arrays: arrays.update(moves=np.ones(48, int)),
    "array is 'moves', not": lambda state, arrays: arrays.pop("moves"),
    "state is .*an object with": lambda state, arrays: state.pop("queue"),
    r"nothing uses is \['moves'\]": lambda state, arrays: arrays.update(moves=np.ones(64)),
}  # fmt: skip


@pytest.mark.parametrize("said", list(WAITING))
def test_a_queue_that_does_not_belong_is_refused(said, tmp_path):
    path, learner = tmp_path / "s.npz", learn(make_learner(max_old_tasks=1), range(8))
    learner.save(path)
    meta, arrays = read_state(path, "LifelongMetricLearner")
    assert meta["state"]["moves"] == ["C", 3, 4, 4]
    assert arrays["queue"].reshape(-1, 2)[:, 1].tolist() == [3, 3, 4, 4, 5, 5, 6, 6]
    WAITING[said](meta["state"], arrays)
    write_state(path, "LifelongMetricLearner", meta, arrays)
    with pytest.raises(ValueError, match=r"s\.npz' cannot be used as a state: ") as error:
        LifelongMetricLearner.load(path)
    error.match(said)


@pytest.fixture
def saved(tmp_path):
    """A saved learner with a memory, and the two parts of its file."""
    learner = learn(make_learner(gradient_memory=2))
    learner.save(tmp_path / "s.npz")
    meta, arrays = read_state(tmp_path / "s.npz", "LifelongMetricLearner")
    return tmp_path / "s.npz", meta, arrays


def entry(**change):
    return lambda meta, arrays: meta["state"].update(change)


def task_entry(place, **change):
    return lambda meta, arrays: meta["state"]["tasks"][place][1].update(change)


def array(name, size, dtype=float):
    return lambda meta, arrays: arrays.update({name: np.ones(size, dtype)})


def shape(*way, to):
    """Another shape of an array in the text."""

    def spoil(meta, arrays):
        inner = meta["state"]
        for key in way[:-1]:
            inner = inner[key]
        inner[way[-1]] = ["C", *to]

    return spoil


def gradient(place):
    return "memory", "gradients", place, 1, "metric"


FAULTS = {
    "entries is": lambda meta, arrays: meta.pop("parameters"),
    "state is .*not an object": lambda meta, arrays: meta["state"].pop("root"),
    "array is 'dictionary', not": lambda meta, arrays: arrays.pop("dictionary"),
    "array is 'codes', not": lambda meta, arrays: arrays.pop("codes"),
    r"array is 'memory\.gradi.*factor', not": lambda meta, arrays: arrays.pop(
        "memory.gradients.metric.factor"
    ),
    r"nothing uses is \['more'\]": array("more", 2),
    "nothing uses is .*gradients": entry(memory=None),
    r"shape of dictionary is \[7, 4\]": shape("dictionary", to=(7, 4)),
    r"shape of codes is \[3, 4, 4\]": shape("dictionary", to=(3, 7)),
    r"shape of dictionary is \['C', 4\], not one of 2 axes": shape("dictionary", to=(4,)),
    r"shape of dictionary is \['C', -4, 7\]": shape("dictionary", to=(-4, 7)),
    "type of dictionary is .*int64": array("dictionary", 28, int),
    "numbers left of dictionary is 27, not 28": array("dictionary", 27),
    "arrays of several axes": array("dictionary", (4, 7)),
    r"shape of codes is \[3, 5, 5\]": shape("codes", to=(3, 5, 5)),
    "number of codes is 2, not 3": shape("codes", to=(2, 4, 4)),
    "number of codes is 3, not 2": lambda meta, arrays: meta["state"]["tasks"].pop(),
    "n_features is 0": entry(n_features=0),
    r"shape of dictionary is \[4, 7\], not \[4, 8\]": entry(n_features=8),
    r"factor is \[2, 6\], not \[2, 7\]": shape(*gradient(0), "factor", to=(2, 6)),
    "core has shape": shape(*gradient(2), "core", to=(1,)),
    r"gradient of 'paris' is \(2, 7\), not rank 1": lambda meta, arrays: meta["state"][
        "memory"
    ].update(rank=1),
    r"name of memory\.gradients\[1\] is 'paris'": lambda meta, arrays: meta["state"]["memory"][
        "gradients"
    ][1].__setitem__(0, "paris"),
    "tasks of memory is": lambda meta, arrays: meta["state"]["memory"]["gradients"][1].__setitem__(
        0, "unknown"
    ),
    r"memory\.rank is 0": lambda meta, arrays: meta["state"]["memory"].update(rank=0),
    "memory is": lambda meta, arrays: meta["state"]["memory"].pop("rank"),
    r"name of tasks\[1\] is 'paris'": lambda meta, arrays: meta["state"]["tasks"][1].__setitem__(
        0, "paris"
    ),
    "stands for no value": lambda meta, arrays: meta["state"]["tasks"][1].__setitem__(0, {"a": 1}),
    "tasks is .*pairs": lambda meta, arrays: meta["state"]["tasks"][1].pop(),
    r"tasks\[2\] is .*not an object": lambda meta, arrays: meta["state"]["tasks"][2][1].pop(
        "n_rows"
    ),
    r"tasks\[2\]\.n_rows is -1": task_entry(2, n_rows=-1),
    r"tasks\[0\]\.n_visits is True": task_entry(0, n_visits=True),
    r"tasks\[0\]\.captured is 'a'": task_entry(0, captured="a"),
    r"tasks\[0\]\.classes is 3": task_entry(0, classes=3),
    r"numbers of the tasks is \[0, 0": task_entry(1, number=0),
    "root is -1": entry(root=-1),
    "root is 'a'": entry(root="a"),
    "metric_type is 'norm'": entry(metric_type="norm"),
    "columns is .*not different": entry(columns=["a"] * 7),
    "columns is .*not 7": entry(columns=["a", "b"]),
    "n_components='a'": lambda meta, arrays: meta["parameters"].update(n_components="a"),
    "revisit='back'": lambda meta, arrays: meta["parameters"].update(revisit="back"),
    "unexpected keyword": lambda meta, arrays: meta["parameters"].update(more=1),
    "learner is 'Popen'": lambda meta, arrays: meta["parameters"].update(
        base_learner={"learner": ["Popen", {"args": "true"}]}
    ),
}


@pytest.mark.parametrize("said", list(FAULTS))
def test_a_file_whose_parts_do_not_belong_together_is_refused(said, saved):
    path, meta, arrays = saved
    FAULTS[said](meta, arrays)
    write_state(path, "LifelongMetricLearner", meta, arrays)
    with pytest.raises(ValueError, match=r"s\.npz' cannot be used as a state: ") as error:
        LifelongMetricLearner.load(path)
    error.match(said)


def test_a_state_of_something_else_is_refused(saved):
    path, meta, arrays = saved
    write_state(path, "Other", meta, arrays)
    with pytest.raises(ValueError, match="kind is 'Other', not 'LifelongMetricLearner'"):
        LifelongMetricLearner.load(path)


def places(form, path=()):
    """Paths to all entries of nested lists and objects."""
    yield path
    parts = form.items() if isinstance(form, dict) else enumerate(form)
    for key, part in parts if isinstance(form, (dict, list)) else ():
        yield from places(part, (*path, key)) if isinstance(part, (dict, list)) else [(*path, key)]


def test_a_changed_text_or_array_gives_an_error_or_a_learner_that_works(saved):
    path, meta, arrays = saved
    rng, outcome = np.random.default_rng(0), Counter()
    values = [None, True, -1, 0, 3, 2**70, 1e308, "a", "scml", [], ["a", 1], {}, {"array": "codes"}]
    values += [{"learner": ["OASIS", {}]}, {"float": "inf"}, {"bytes": "00"}, {"list": [1]}]
    for _ in range(300):
        text, table = json.loads(json.dumps(meta)), dict(arrays)
        if rng.random() < 0.8:
            ways = list(places(text))
            *way, last = ways[rng.integers(1, len(ways))]
            inner = text
            for key in way:
                inner = inner[key]
            if rng.random() < 0.2:
                inner.pop(last)
            else:
                inner[last] = values[rng.integers(len(values))]
        else:
            name = rng.choice(list(table))
            shape = rng.integers(0, 8, size=rng.integers(0, 4))
            table[name] = rng.normal(size=shape).astype(rng.choice(["f8", "f4", "i8"]))
        write_state(path, "LifelongMetricLearner", text, table)
        try:
            learner = LifelongMetricLearner.load(path)
        except ValueError as error:
            outcome["s.npz" in str(error)] += 1
            continue
        outcome["read"] += 1
        assert all_of(save_and_load(learner, path)) == all_of(learner)
        for task in getattr(learner, "tasks_", {}):
            assert np.isfinite(learner.transform(make_task(0)[0], task=task)).all()
    assert outcome[False] == 0
    assert outcome[True] > 100
    assert outcome["read"] > 25


@pytest.mark.builds
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the script forks")
def test_nothing_saved_is_lost_when_the_process_is_killed():
    n = os.environ.get("LML_KILL_TASKS", "60")
    script = Path(__file__).with_name("support") / "kill_stream.py"
    run = [sys.executable, str(script), "--tasks", n, "--kills", str(max(6, int(n) // 25))]
    done = subprocess.run(run, capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"; {n} tasks: " in done.stdout
    assert done.stdout.endswith("equal\n")
    assert int(done.stdout.split()[2]) > 1  # kills
