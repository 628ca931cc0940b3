"""The ablations: parameters from the runner, resumable, each against an independent oracle."""

import json
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

from lml.baselines.offdiagonal import OffDiagonalLearner
from lml.datasets import load_digits_tasks
from lml.evaluation import backward_transfer, evaluate_stream
from lml.neighbors import k_nearest, majority_vote
from lml.oasis import OASIS
from lml.studies import ablations
from lml.studies.ablations import (
    ABLATIONS,
    DICTIONARIES,
    FRACTIONS,
    POLICIES,
    SIZES,
    StepRow,
    Unit,
    best_on_validation,
    change_since_arrival,
    chosen_for,
    errors_by,
    in_stretched_dictionary,
    penalty_path,
    run_ablation,
)
from lml.studies.comparison import split_errors
from lml.studies.experiments import Protocol
from lml.studies.results import read_rows
from lml.studies.systems import Recalled

RESULTS = Path(__file__).parent.parent / "results"
OWN = {"aggressiveness": 0.1, "n_steps": 200}
CHOSEN = {"oasis": OWN, "scml": {"beta": 1e-4}}
SIZE = ("oasis",)


def write_choices(folder, chosen, n_splits=2, k=3):
    """A file as the runner writes it, with the columns that are read."""
    lines = ["dataset,split,system,task,n_neighbors,parameters"]
    for split in range(n_splits):
        for system, parameters in chosen.items():
            quoted = json.dumps(parameters).replace('"', '""')
            lines += [f'digits,{split},{system},{t},{k},"{quoted}"' for t in ("0-1", "2-3")]
    folder.mkdir(exist_ok=True)
    (folder / "digits.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture
def small(monkeypatch, tmp_path):
    """The digits as data set, few settings, and choices of the runner; gives the two folders."""
    anew = partial(load_digits_tasks)  # unlike any other, so that nothing is read from a cache
    monkeypatch.setitem(ablations.DATASETS, "digits", Protocol(anew, (3,)))
    monkeypatch.setattr(ablations, "FRACTIONS", (1.0, 0.1))
    monkeypatch.setattr(ablations, "SIZES", (20, 64))
    monkeypatch.setitem(ablations.STEP_SIZE, "n_components", 20)
    ways = ("first", "closed form")
    few = replace(ABLATIONS["size"], parts=lambda tasks: ways, splits=range(3))
    monkeypatch.setitem(ablations.ABLATIONS, "size", few)
    write_choices(tmp_path / "base", CHOSEN)
    folders = {"out": tmp_path / "out", "base": tmp_path / "base"}
    return folders | {"datasets": ["digits"], "progress": False}


def error_of(metric, metric_type, task):
    """Error of three neighbors on the test rows, by the search of the package."""
    if metric_type == "distance":
        metric = metric.psd()
    nearest, _ = k_nearest(metric, task.X_test, task.X_train, metric_type, 3)
    return np.mean(majority_vote(task.y_train[nearest]) != task.y_test)


def run(small, name, n_splits=1, systems=SIZE, **changes):
    options = {"systems": systems, "n_splits": n_splits} | small | changes
    return read_rows(run_ablation(name, **options)[0])


def test_parameters_come_from_the_runners_file(tmp_path):
    write_choices(tmp_path, CHOSEN, k=5)
    assert chosen_for("digits", 1, "oasis", tmp_path) == (OWN, 5)
    assert chosen_for("digits", 0, "scml", tmp_path) == ({"beta": 1e-4}, 5)


def test_a_missing_file_system_or_split_is_named_before_anything_runs(small, tmp_path, monkeypatch):
    loud = replace(ablations.ABLATIONS["size"], run=lambda unit: pytest.fail(f"ran {unit}"))
    monkeypatch.setitem(ablations.ABLATIONS, "size", loud)
    with pytest.raises(FileNotFoundError, match=r"digits\.csv is missing.*studies run digits"):
        run(small, "size", base=tmp_path / "elsewhere")
    write_choices(small["base"], {"oasis": OWN})
    with pytest.raises(ValueError, match=r"no row of scml on split 0.*--systems scml"):
        run(small, "size", systems=["scml"])
    with pytest.raises(ValueError, match="no row of oasis on split 2"):
        run(small, "size", n_splits=3)
    assert not small["out"].exists()


def test_parameters_of_the_streams_stand_in_the_line_of_the_last_step(tmp_path):
    chosen = json.dumps({"beta": 0.1, "n_neighbors": 5}).replace('"', '""')
    lines = ["split,system,n_learnt,parameters", "100,scml,1,{}", f'100,scml,2,"{chosen}"']
    (tmp_path / "transfer-tables-digits.csv").write_text("\n".join(lines), encoding="utf-8")
    assert chosen_for("digits", 100, "scml", tmp_path) == ({"beta": 0.1}, 5)
    with pytest.raises(ValueError, match=r"transfer-tables-digits.*--studies tables"):
        chosen_for("digits", 101, "scml", tmp_path)


def test_one_row_for_each_task_and_setting(small):
    rows = run(small, "size")
    assert len(rows) == 2 * 2 * 4
    keys = [(r["n_components"], r["dictionary"], r["task"]) for r in rows]
    assert len(set(keys)) == len(keys)
    for r in rows:
        assert 0 <= float(r["error"]) < 0.4
        assert json.loads(r["parameters"]) == OWN
        assert "numpy" in r["versions"]


def test_at_full_size_every_dictionary_has_the_errors_of_the_base_learner(small):
    rows = run(small, "size")
    for way in ("first", "closed form"):
        whole = [r for r in rows if (r["n_components"], r["dictionary"]) == ("64", way)]
        for t, r in zip(load_digits_tasks(random_state=0), whole, strict=True):
            base = OASIS(**OWN, random_state=0).fit(t.X_train, t.y_train)
            expected = error_of(base.metric_, "similarity", t)
            assert float(r["error"]) == pytest.approx(expected, abs=0.005)


def test_a_dictionary_as_large_as_the_ranks_of_all_tasks_holds_their_metrics():
    tasks = load_digits_tasks(random_state=0)[:3]
    base = OffDiagonalLearner("distance", n_components=5, random_state=0)
    found = in_stretched_dictionary(base, tasks, 0, 15)
    few = in_stretched_dictionary(base, tasks, 0, 5)
    for t in tasks:
        target = clone(base).fit(t.X_train, t.y_train).metric_.to_dense()
        size = np.abs(target).max()
        np.testing.assert_allclose(found[t.name].to_dense(), target, atol=1e-7 * size)
        assert np.linalg.norm(few[t.name].to_dense() - target) > 0.01 * np.linalg.norm(target)


def test_a_base_metric_is_learned_once_for_all_sizes_and_dictionaries(small, monkeypatch):
    fits, real = [], OASIS.fit

    def counted(self, X, y):
        fits.append(len(y))
        return real(self, X, y)

    monkeypatch.setattr(OASIS, "fit", counted)
    run(small, "size")
    assert len(fits) == 4


def test_the_order_in_which_units_run_does_not_matter(small, monkeypatch, tmp_path):
    rows = run(small, "size")
    backwards = replace(ablations.ABLATIONS["size"], parts=lambda tasks: ("closed form", "first"))
    monkeypatch.setitem(ablations.ABLATIONS, "size", backwards)
    anew = Protocol(partial(load_digits_tasks), (3,))
    monkeypatch.setitem(ablations.DATASETS, "digits", anew)
    again = run(small, "size", out=tmp_path / "again")
    assert again != rows
    order = partial(map, lambda r: tuple(r.values()))
    assert sorted(order(again)) == sorted(order(rows))


@pytest.mark.parametrize("name", ["size", "tasks"])
def test_a_killed_run_is_taken_up_without_repeating_anything(small, monkeypatch, tmp_path, name):
    one_go = run(small, name, 2, out=tmp_path / "one")
    real, ran = ABLATIONS[name].run, []

    def killed_at_the_third(unit):
        ran.append(unit)
        if len(ran) == 3:
            raise KeyboardInterrupt
        return real(unit)

    killed = replace(ablations.ABLATIONS[name], run=killed_at_the_third)
    monkeypatch.setitem(ablations.ABLATIONS, name, killed)
    with pytest.raises(KeyboardInterrupt):
        run(small, name, 2)
    n_units = {"size": 4, "tasks": 2 * len(POLICIES)}[name]
    rows = read_rows(small["out"] / f"ablation-{name}-digits.csv")
    assert len(rows) == 2 * len(one_go) // n_units
    finished = run(small, name, 2)
    assert finished == one_go
    jobs = [(unit.split, unit.system, unit.part) for unit in ran]
    assert len(jobs) == len(set(jobs)) + 1  # only the one that was killed ran twice
    again = len(ran)
    assert run(small, name, 2) == one_go
    assert len(ran) == again


def test_rows_made_with_other_parameters_are_not_mixed_in(small):
    before = run(small, "size")
    write_choices(small["base"], {"oasis": OWN | {"aggressiveness": 1.0}})
    with pytest.raises(
        ValueError, match=r"ablation-size-digits\.csv has rows of .* move the file away"
    ):
        run(small, "size", 2)
    assert read_rows(small["out"] / "ablation-size-digits.csv") == before
    write_choices(small["base"], CHOSEN, k=1)
    with pytest.raises(ValueError, match="move the file away"):
        run(small, "size")


def test_rows_of_other_systems_and_splits_stay(small):
    run(small, "penalty", 2, systems=["off-diagonal-similarity"])
    rows = run(small, "penalty", 1, systems=["off-diagonal-distance"])
    counts = {(r["system"], r["split"]) for r in rows}
    assert len(counts) == 3
    assert len(rows) == 3 * 4 * 2


@pytest.mark.parametrize(
    ("kind", "psd"), [("distance", True), ("distance", False), ("similarity", None)]
)
def test_a_warm_path_has_the_minima_of_cold_fits(kind, psd):
    task = load_digits_tasks(random_state=1)[3]
    learner = OffDiagonalLearner(kind, psd=psd, n_components=12, random_state=2)
    path = penalty_path(learner, task.X_train, task.y_train, (0.01, 1.0, 0.1, 2.0))
    assert [point.fraction for point in path] == [2.0, 1.0, 0.1, 0.01]
    for point in path:
        cold = clone(learner).set_params(penalty=point.fraction).fit(task.X_train, task.y_train)
        assert abs(cold.objective_ - point.objective) <= max(cold.gap_, point.gap) <= 1e-3
        np.testing.assert_array_equal(point.metric.factor, cold.dictionary_)
    assert path[0].off_diagonal == path[1].off_diagonal == 0
    np.testing.assert_array_equal(path[0].metric.core, path[1].metric.core)
    assert 0 < path[2].off_diagonal < path[3].off_diagonal <= 1
    assert not hasattr(learner, "code_")


@pytest.mark.parametrize("bad", [(), (-0.1,), (np.nan,), (np.inf, 0.1)])
def test_a_path_needs_usable_fractions(bad):
    with pytest.raises(ValueError, match="fractions are"):
        penalty_path(OffDiagonalLearner(), np.zeros((4, 2)), [0, 0, 1, 1], bad)


def test_penalty_rows_are_errors_of_the_learner(small):
    rows = run(small, "penalty", systems=["off-diagonal-distance"])
    task = load_digits_tasks(random_state=0)[2]
    own = [r for r in rows if r["task"] == task.name]
    assert [float(r["fraction"]) for r in own] == [1.0, 0.1]
    parameters = json.loads(own[0]["parameters"])
    learner = OffDiagonalLearner(**parameters, penalty=1.0, random_state=0)
    learner.fit(task.X_train, task.y_train)
    error = error_of(learner.metric_, "distance", task)
    assert float(own[0]["error"]) == pytest.approx(error, abs=1e-6)
    assert [float(r["off_diagonal"]) > 0 for r in own] == [False, True]
    assert all(float(r["gap"]) <= 1e-3 for r in own)


def test_off_diagonal_learners_take_k_of_what_they_are_compared_with(small):
    write_choices(small["base"], {"scml": {}, "oasis": {}}, k=1)
    assert run(small, "penalty", systems=["off-diagonal-symmetric"])[0]["n_neighbors"] == "1"
    write_choices(small["base"], {"scml": {}})
    with pytest.raises(ValueError, match="no row of oasis"):
        run(small, "penalty", systems=["off-diagonal-similarity"])


@pytest.mark.parametrize("policy", POLICIES)
def test_steps_are_those_of_a_stream_and_begin_with_the_base_learner_alone(small, policy):
    rows = [r for r in run(small, "tasks") if r["policy"] == policy]
    tasks = load_digits_tasks(random_state=0)
    base = OASIS(**OWN)
    for t in tasks:
        alone = clone(base).set_params(random_state=0).fit(t.X_train, t.y_train)
        error = error_of(alone.metric_, "similarity", t)
        first = [r for r in rows if (r["n_learnt"], r["task"]) == ("0", t.name)]
        assert [float(r["error"]) for r in first] == [pytest.approx(error, abs=1e-6)]
    keep = Recalled(base.set_params(random_state=0), {})
    learner = POLICIES[policy](keep, random_state=0, n_components=20, code_penalty=0.01)
    R = evaluate_stream(learner, tasks, n_neighbors=3)
    for s in range(4):
        after = [float(r["error"]) for r in rows if r["n_learnt"] == str(s + 1)]
        np.testing.assert_allclose(after, R.errors[s, : s + 1], atol=1e-6)
    change = change_since_arrival(rows, "oasis")
    np.testing.assert_allclose(change, -100 * backward_transfer(R.accuracy), atol=1e-3)


def test_folds_mean_that_validation_rows_are_learnt_from(small, monkeypatch):
    monkeypatch.setitem(ablations.DATASETS, "digits", Protocol(load_digits_tasks, (3,), n_folds=3))
    plain = {t.name: t for t in load_digits_tasks(random_state=0)}
    for row in run(small, "tasks"):
        t = plain[row["task"]]
        assert int(row["n_train"]) == len(t.y_train) + len(t.y_validation)


def table(values, column="n_components"):
    """Rows of two tasks and two splits: (value, split) to two errors."""
    return [
        {"dataset": "a", "split": str(s), "system": "b", "task": f"t{t}", column: value,
         "validation_error": str(e), "error": str(2 * e)}
        for (value, s), errors in values.items() for t, e in enumerate(errors)
    ]  # fmt: skip


def test_curves_are_in_the_order_of_numbers_and_of_splits():
    values = {("100", 1): (0.1, 0.3), ("40", 0): (0.2, 0.2), ("100", 0): (0.0, 0.2)}
    rows = table(values | {("40", 1): (0.4, 0.6)})
    curve = errors_by(rows, "n_components", "b")
    assert list(curve) == [40.0, 100.0]
    np.testing.assert_allclose(curve[40.0], [40.0, 100.0])
    np.testing.assert_allclose(curve[100.0], [20.0, 40.0])
    by_task = errors_by(rows, "n_components", "b", "t1", "validation_error")
    np.testing.assert_allclose(by_task[100.0], [20.0, 30.0])
    whole = [r for r in rows if r["n_components"] == "40"]
    np.testing.assert_array_equal(curve[40.0], split_errors(whole, "b"))


def test_a_curve_with_a_hole_is_refused():
    rows = table({("40", 0): (1, 1), ("40", 1): (1, 1), ("80", 0): (1, 1)})
    with pytest.raises(ValueError, match=r"40\.0: 2, 80\.0: 1.*studies ablations"):
        errors_by(rows, "n_components", "b")
    with pytest.raises(ValueError, match="splits of c"):
        errors_by(rows, "n_components", "c")
    other = table({("40", 0): (1, 1), ("80", 1): (1, 1)})
    with pytest.raises(ValueError, match="must have the same ones"):
        errors_by(other, "n_components", "b")


def test_the_choice_is_by_validation_and_the_first_of_equals():
    rows = table({("40", 0): (0.1, 0.3), ("80", 0): (0.3, 0.1), ("20", 0): (0.3, 0.3)})
    for r in rows:
        r["error"] = {"40": 9, "80": 8, "20": 0}[r["n_components"]]
    assert {r["n_components"] for r in best_on_validation(rows, "n_components")} == {"40"}
    later = table({("40", 1): (0.2, 0.3), ("80", 1): (0.2, 0.1)})
    both = best_on_validation(rows + later, "n_components")
    assert [(r["split"], r["n_components"]) for r in both] == 2 * [("0", "40")] + 2 * [("1", "80")]


def test_the_ranges_are_the_papers():
    assert {40, 120, 200} <= set(SIZES)
    assert (max(FRACTIONS), min(FRACTIONS)) == (1.0, 0.0)
    assert ABLATIONS["penalty"].datasets == ("isolet",)
    assert "sentiment" in ABLATIONS["size"].datasets
    assert "sentiment" in ABLATIONS["tasks"].datasets


def test_the_command_line_says_what_is_missing(tmp_path):
    command = [sys.executable, "-m", "lml.studies", "ablations", "--studies", "size"]
    command += ["--base", str(tmp_path), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "transfer-tables-sentiment.csv is missing" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_row_has_the_columns_of_its_unit():
    t = load_digits_tasks(random_state=0)[0]
    unit = Unit("digits", 1, "s", "no samples", OWN, 3)
    row = vars(StepRow(**unit.columns(t), error=0.25, policy="no samples", n_learnt=2))
    assert (row["dataset"], row["split"], row["system"], row["task"]) == ("digits", 1, "s", "0-1")
    assert (row["error"], row["n_neighbors"], row["n_learnt"]) == (0.25, 3, 2)
    assert (row["n_train"], row["n_test"]) == (len(t.y_train), len(t.y_test))
    assert json.loads(row["parameters"]) == OWN
    assert "numpy" in row["versions"]


def test_half_a_unit_is_run_again(small):
    path = small["out"] / "ablation-tasks-digits.csv"
    whole = run(small, "tasks")
    text = path.read_text(encoding="utf-8")
    path.write_text(text[: int(0.9 * len(text))], encoding="utf-8")
    assert run(small, "tasks") == whole
    assert path.read_text(encoding="utf-8") == text


COLUMNS = {"penalty": "fraction", "size": "n_components", "tasks": "n_learnt"}
FILES = [(name, dataset) for name in COLUMNS for dataset in ABLATIONS[name].datasets]


@pytest.mark.parametrize(("name", "dataset"), FILES)
def test_committed_results_are_complete_and_fit_the_runners(name, dataset):
    path, ablation = RESULTS / f"ablation-{name}-{dataset}.csv", ABLATIONS[name]
    units = [(str(s), system) for s in ablation.splits for system in ablation.systems]
    rows = read_rows(path)
    assert {(r["split"], r["system"]) for r in rows} == set(units)
    for split, system in units:
        made = {(r["parameters"], r["n_neighbors"]) for r in rows
                if (r["split"], r["system"]) == (split, system)}  # fmt: skip
        parameters, k = ablation.given(dataset, int(split), system, RESULTS)
        assert made == {(json.dumps(parameters), str(k))}
    kinds = {"size": ("dictionary", DICTIONARIES), "tasks": ("policy", POLICIES)}
    column, parts = kinds.get(name, ("dictionary", [None]))
    for system in ablation.systems:
        for part in parts:
            some = [r for r in rows if r.get(column) == part]
            curve = errors_by(some, COLUMNS[name], system)
            assert {len(errors) for errors in curve.values()} == {len(ablation.splits)}


def test_a_system_without_a_part_is_refused(tmp_path):
    with pytest.raises(ValueError, match="system='lifelong-oasis': give one of"):
        run_ablation("penalty", systems=["lifelong-oasis"], out=tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_unknown_ablation_is_refused(tmp_path):
    with pytest.raises(ValueError, match="ablation='depth': give one of"):
        run_ablation("depth", out=tmp_path, base=tmp_path)
