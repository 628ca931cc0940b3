"""LifelongMetricLearner in files: what comes back, and what is refused."""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import kill_stream
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

BASES = {"oasis": OASIS(n_steps=100), "scml": SCML(n_basis=10, n_steps=50),
         "lmnn": LMNN(shrinkage=0.01, max_iter=10)}  # fmt: skip
FORMS = {"dense": (np.array, 7), "sparse": (sparse.csr_array, 7), "wide": (sparse.csr_array, 60)}
STREAM = ["paris", 42, ("a", (1, None)), True, 0.5, "paris", "", b"b", 42]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("sharing", "shared_labels"), [("auto", False), ("grow", False), (0.5, True)]
)
@pytest.mark.parametrize("base", BASES)
def test_after_a_file_the_next_visit_goes_on_bit_for_bit(
    base, sharing, shared_labels, form, tmp_path
):
    samples, n_features = FORMS[form]
    given = {"sharing": sharing, "shared_labels": shared_labels, "code_rank": 5}
    learner = make_learner(BASES[base], **given)
    for number, task in enumerate(STREAM):
        X, y = make_task(number, n_features=n_features)
        X[np.abs(X) < 0.3] = 0.0
        if number in (0, 3, 6, 8):
            twin = save_and_load(learner, tmp_path / "s.npz")
            assert all_of(twin) == all_of(learner)
            assert repr(twin) == repr(learner)
            twin.partial_fit(samples(X), y, task=task)
        learner.partial_fit(samples(X), y, task=task)
        if number in (0, 3, 6, 8):
            assert all_of(twin) == all_of(learner)


@pytest.mark.parametrize("size", [1e3, 1e6])
def test_codes_of_wide_samples_of_very_different_sizes_come_back(size, tmp_path):
    """Short samples beside long ones are near rounding in the span of both."""
    for seed in range(6):
        learner = make_learner(BASES["oasis"], sharing=1.0, code_rank=3, n_components=40)
        for task in ("a", "b"):
            X, y = make_task(seed, n=15, n_features=40)
            X[::2] *= size if task == "b" else 1.0
            learner.partial_fit(sparse.csr_array(X), y, task=task)
            rows = learner.codes_[task].factor
            np.testing.assert_allclose(rows @ rows.T, np.eye(len(rows)), atol=1e-12)
        assert all_of(save_and_load(learner, tmp_path / "s.npz")) == all_of(learner)


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
    "lmnn",
    OASIS(0.2, init=FactoredMetric.identity(7, 0.5), random_state=np.random.RandomState(1)),
    OASIS(init=np.eye(7)),
    SCML(n_basis=8, beta=0.0, gamma=0.5),
    LMNN(max_iter=5, shrinkage=0.01),
    OffDiagonalLearner(dictionary=np.eye(7)[:3], max_iter=20),
]


def shown(learner):
    """Its representation, without addresses of objects."""
    return re.sub("at 0x[0-9A-F]+", "", repr(learner))


@pytest.mark.parametrize("base", BASE_PARAMETERS, ids=lambda base: repr(base)[:20])
@pytest.mark.parametrize("random_state", [None, 5, np.random.RandomState(3)])
def test_parameters_come_back_also_before_any_task(base, random_state, tmp_path):
    given = {"sharing": 0.3, "n_components": 3, "code_rank": None, "n_jobs": 2}
    given["shared_labels"] = True
    learner = LifelongMetricLearner(base, random_state=random_state, **given)
    twin = save_and_load(learner, tmp_path / "s.npz")
    assert shown(twin) == shown(learner)
    assert not hasattr(twin, "tasks_")
    if random_state is not None:
        for one in (twin, learner):
            one.set_params(base_learner=OASIS(n_steps=9)).partial_fit(*make_task(0), task="t")
        assert all_of(twin) == all_of(learner)


def test_a_fresh_clone_of_a_loaded_learner_repeats_it(tmp_path):
    learner = make_learner(random_state=np.random.RandomState(7))
    learn(learner, NAMES[:2])
    again = learn(clone(save_and_load(learner, tmp_path / "s")), NAMES[:2])
    assert all_of(again) == all_of(learner)


def test_a_learner_that_has_forgotten_all_tasks_goes_on_from_a_file(tmp_path):
    learner = learn(make_learner(), NAMES[:2]).forget(NAMES[0]).forget(NAMES[1])
    twin = save_and_load(learner, tmp_path / "s")
    assert twin.tasks_ == twin.codes_ == {}
    assert twin.n_features_in_ == 7
    assert all_of(learn(twin, ["new"])) == all_of(learn(learner, ["new"]))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
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


@pytest.fixture
def saved(tmp_path):
    """A saved learner of three tasks, and the two parts of its file."""
    learner = learn(make_learner(shared_labels=True))
    learner.save(tmp_path / "s.npz")
    meta, arrays = read_state(tmp_path / "s.npz", "LifelongMetricLearner")
    return tmp_path / "s.npz", meta, arrays


def entry(**change):
    return lambda meta, arrays: meta["state"].update(change)


def task_entry(place, **change):
    return lambda meta, arrays: meta["state"]["tasks"][place][1].update(change)


def means_entry(place, **change):
    return lambda meta, arrays: meta["state"]["means"][place][1].update(change)


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


def code(place, part):
    return "codes", place, 1, part


def named(table, place, name):
    """Another name in a table."""
    return lambda meta, arrays: meta["state"][table][place].__setitem__(0, name)


def longer(name, by):
    """Longer rows of an array."""
    return lambda meta, arrays: arrays.update({name: arrays[name] * (1 + by)})


FAULTS = {
    "entries is": lambda meta, arrays: meta.pop("parameters"),
    "state is .*not an object": lambda meta, arrays: meta["state"].pop("root"),
    "array is 'total.factor', not": lambda meta, arrays: arrays.pop("total.factor"),
    "array is 'codes.factor', not": lambda meta, arrays: arrays.pop("codes.factor"),
    "array is 'codes.core', not": lambda meta, arrays: arrays.pop("codes.core"),
    "array is 'mistakes', not": lambda meta, arrays: arrays.pop("mistakes"),
    r"nothing uses is \['more'\]": array("more", 2),
    "nothing uses is .*mistakes": entry(mistakes=None),
    r"shape of total\.factor is \[7, 4\]": shape("total", "factor", to=(7, 4)),
    r"shape of total\.factor is \['C', 4\], not one of 2 axes": shape("total", "factor", to=(4,)),
    r"shape of total\.factor is \['C', -4, 7\]": shape("total", "factor", to=(-4, 7)),
    r"shape of total\.factor is \[4, 7\], not \[4, 8\]": entry(n_features=8),
    "type of total.factor is .*int64": array("total.factor", 28, int),
    "numbers left of total.factor is 27, not 28": array("total.factor", 27),
    "arrays of several axes": array("total.factor", (4, 7)),
    r"shape of codes\[1\]\.factor is \[7, 6\]": shape(*code(1, "factor"), to=(7, 6)),
    r"shape of codes\[2\]\.core is \[6\], not \[7\]": shape(*code(2, "core"), to=(6,)),
    "total.factor is .*, not orthonormal rows": longer("total.factor", 1e-5),
    r"codes\[0\]\.factor is .*, not orthonormal rows": longer("codes.factor", 1.0),
    r"shape of mistakes is \[3\], not \[4\]": shape("mistakes", to=(3,)),
    r"labels of the means of 'unknown'": named("means", 1, "unknown"),
    r"labels of the means of 42 is \(0, 1, 2\), not classes of the task": task_entry(
        1, classes=[0, 1]
    ),
    r"labels of class means is \(0, 1\), not 3 labels": means_entry(1, labels=[0, 1]),
    r"means\[1\]\.labels is \(1, 1, 2\)": means_entry(1, labels=[1, 1, 2]),
    r"means\[0\]\.counts is .* not at least 1": longer("means.counts", -1),
    r"shape of means\[2\]\.means is \[7, 3\]": shape("means", 2, 1, "means", to=(7, 3)),
    "tasks of codes is 2, not all that": lambda meta, arrays: meta["state"]["codes"].pop(),
    "tasks of codes is 3, not all that were": lambda meta, arrays: meta["state"]["tasks"].pop(),
    "tasks of codes is 3, not all that were learned": named("codes", 1, "unknown"),
    "sum is None": entry(total=None),
    "sum is .*with codes only": entry(tasks=[], codes=[], means=[]),
    "n_features is 0": entry(n_features=0),
    "total is .*not an object": lambda meta, arrays: meta["state"]["total"].pop("alpha"),
    r"total\.alpha is 'a'": lambda meta, arrays: meta["state"]["total"].update(alpha="a"),
    r"name of codes\[1\] is 'paris'": named("codes", 1, "paris"),
    r"name of tasks\[1\] is 'paris'": named("tasks", 1, "paris"),
    "stands for no value": named("tasks", 1, {"a": 1}),
    "tasks is .*pairs": lambda meta, arrays: meta["state"]["tasks"][1].pop(),
    r"tasks\[2\] is .*not an object": lambda meta, arrays: meta["state"]["tasks"][2][1].pop(
        "n_samples"
    ),
    r"tasks\[2\]\.n_samples is 0": task_entry(2, n_samples=0),
    r"tasks\[0\]\.n_visits is True": task_entry(0, n_visits=True),
    r"tasks\[0\]\.n_visits is 0": task_entry(0, n_visits=0),
    r"tasks\[0\]\.n_learned is -1": task_entry(0, n_learned=-1),
    r"tasks\[1\]\.n_learned is 1\.0": task_entry(1, n_learned=1.0),
    r"n_learned of 42 is 31, not at most its n_samples": task_entry(1, n_learned=31),
    "tasks of codes is 3, not all that": task_entry(1, n_learned=0),
    r"tasks\[0\]\.sharing is 1\.5": task_entry(0, sharing=1.5),
    r"tasks\[0\]\.classes is 3": task_entry(0, classes=3),
    r"tasks\[0\]\.classes is \(1, 1\)": task_entry(0, classes=[1, 1]),
    r"numbers of the tasks is \[0, 0": task_entry(1, number=0),
    "root is -1": entry(root=-1),
    "root is 'a'": entry(root="a"),
    "sharing is -0.5": entry(sharing=-0.5),
    "sharing is 'auto'": entry(sharing="auto"),
    "metric_type is 'norm'": entry(metric_type="norm"),
    "columns is .*not different": entry(columns=["a"] * 7),
    r"columns is \('a', .*, not different": entry(columns=[*"abcdef", 1]),
    "columns is .*not 7": entry(columns=["a", "b"]),
    "n_components='a'": lambda meta, arrays: meta["parameters"].update(n_components="a"),
    "sharing='most'": lambda meta, arrays: meta["parameters"].update(sharing="most"),
    "n_jobs=0": lambda meta, arrays: meta["parameters"].update(n_jobs=0),
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
    values = [None, True, -1, 0, 3, 2**70, 1e308, "a", "scml", [], ["a", 1], {}]
    values += [{"array": "mistakes"}, ["C", 7, 7], ["C", 3]]
    values += [{"learner": ["OASIS", {}]}, {"float": "inf"}, {"bytes": "00"}, {"list": [1]}]
    for _ in range(500):
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
    assert outcome["read"] > 5


@pytest.mark.parametrize("learner", kill_stream.FRESH)
def test_what_is_killed_saves_and_loads_by_the_methods_of_the_package(learner):
    kind = type(kill_stream.FRESH[learner]())
    for name in ("save", "load"):
        assert getattr(kind, name).__module__.partition(".")[0] == "lml"


@pytest.mark.builds
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the script forks")
@pytest.mark.parametrize("learner", ["oasis", "plda", "classifier"])
def test_nothing_saved_is_lost_when_the_process_is_killed(learner):
    n = os.environ.get("LML_KILL_TASKS", "60")
    script = Path(__file__).with_name("support") / "kill_stream.py"
    run = [sys.executable, str(script), "--learner", learner]
    run += ["--tasks", n, "--kills", str(max(6, int(n) // 25))]
    done = subprocess.run(run, capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"; {n} tasks: " in done.stdout
    assert done.stdout.endswith("equal\n")
    assert int(done.stdout.split()[2]) > 1  # kills
