"""The runner: no leak from test rows, resumable, one row for each result."""

import csv
import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from sklearn.model_selection import KFold, cross_val_score
from sklearn.neighbors import KNeighborsClassifier

from lml import experiments
from lml.datasets import load_digits_tasks
from lml.experiments import (
    Protocol,
    main,
    mean_and_error,
    read_rows,
    run_experiment,
    split_errors,
    tune,
)
from lml.oasis import OASIS

FOLDS, ROWS = Protocol(load_digits_tasks, n_folds=3), Protocol(load_digits_tasks, (1, 3))


@pytest.fixture
def small(monkeypatch):
    """The digits as a data set, and systems and grids that take a second."""
    few = [{"aggressiveness": c, "n_steps": 200} for c in (0.1, 0.01)]
    oasis = replace(experiments.SYSTEMS["oasis"], grid=lambda n_features: few)
    monkeypatch.setitem(experiments.SYSTEMS, "oasis", oasis)
    monkeypatch.setitem(experiments.DATASETS, "digits", FOLDS)
    monkeypatch.setattr(experiments, "N_COMPONENTS", (8, 64))
    monkeypatch.setattr(experiments, "PAPER_GRID", (0.1, 0.001))


def test_one_row_a_task_with_everything_that_is_needed_to_repeat_it(small, tmp_path):
    path = run_experiment("digits", ["lifelong-oasis"], 1, out=tmp_path, progress=False)
    rows = read_rows(path)
    assert [row["task"] for row in rows] == ["0-1", "2-3", "4-5-6", "7-8-9"]
    for row in rows:
        assert 0 <= float(row["error"]) < 0.3
        assert int(row["state_bytes"]) > 0
        assert set(json.loads(row["parameters"])) == {
            "aggressiveness",
            "n_steps",
            "n_components",
            "code_penalty",
        }
        assert "numpy" in row["versions"]


def test_finished_pairs_are_not_run_again(small, tmp_path, monkeypatch):
    path = run_experiment("digits", ["euclidean"], 2, out=tmp_path, progress=False)
    before = path.read_text()
    monkeypatch.setattr(experiments, "run_one", lambda *job: pytest.fail(f"ran {job} again"))
    run_experiment("digits", ["euclidean"], 2, out=tmp_path, progress=False)
    assert path.read_text() == before


def test_a_failing_pair_keeps_the_finished_ones(small, tmp_path, monkeypatch):
    real = experiments.run_one

    def fails_on_split_1(dataset, split, *rest):
        if split == 1:
            raise RuntimeError("killed")
        return real(dataset, split, *rest)

    monkeypatch.setattr(experiments, "run_one", fails_on_split_1)
    with pytest.raises(RuntimeError, match="killed"):
        run_experiment("digits", ["euclidean"], 2, out=tmp_path, progress=False)
    monkeypatch.setattr(experiments, "run_one", real)
    path = run_experiment("digits", ["euclidean"], 2, out=tmp_path, progress=False)
    assert sorted({row["split"] for row in read_rows(path)}) == ["0", "1"]


@pytest.mark.parametrize("protocol", [FOLDS, ROWS])
@pytest.mark.parametrize("system", ["oasis", "lifelong-oasis"])
def test_tuning_never_sees_test_rows(small, protocol, system):
    tasks = load_digits_tasks(random_state=0)
    leak = [replace(t, X_test=np.full_like(t.X_test, 1e9), y_test=t.y_test[::-1]) for t in tasks]
    honest = tune(system, tasks, protocol, 0)
    assert tune(system, leak, protocol, 0) == honest
    none = [replace(t, X_test=t.X_test[:0], y_test=t.y_test[:0]) for t in tasks]
    assert tune(system, none, protocol, 0) == honest


def test_a_planted_leak_would_be_seen(small, monkeypatch):
    tasks = load_digits_tasks(random_state=0)
    monkeypatch.setattr(
        experiments,
        "_folds",
        lambda tasks, n_folds, seed: [
            [replace(t, X_validation=t.X_test, y_validation=t.y_test) for t in tasks]
        ],
    )
    leak = [replace(t, y_test=t.y_test[::-1]) for t in tasks]
    assert tune("euclidean", leak, FOLDS, 0) != tune("euclidean", tasks, FOLDS, 0)


def test_every_learning_row_is_asked_about_once():
    tasks = load_digits_tasks(random_state=0)
    folds = experiments._folds(tasks, 3, seed=1)
    for place, task in enumerate(t.with_validation() for t in tasks):
        parts = [fold[place] for fold in folds]
        assert [p.name for p in parts] == [task.name] * 3
        asked = np.vstack([p.X_validation - p.X_train[0] for p in parts])
        assert len(asked) == len(task.y_train)
        for p in parts:
            assert len(p.y_test) == 0
            assert len(p.y_train) + len(p.y_validation) == len(task.y_train)
            both = np.vstack([p.X_train, p.X_validation])
            shift = both.mean(axis=0) - task.X_train.mean(axis=0)
            np.testing.assert_allclose(
                np.sort(both - shift, 0), np.sort(task.X_train, 0), atol=1e-9
            )
            np.testing.assert_allclose(p.X_train.mean(axis=0), 0, atol=1e-12)


def test_rows_that_are_not_centred_are_left_as_they_are():
    tasks = [replace(t, centered=False) for t in load_digits_tasks(random_state=0)]
    merged = tasks[0].with_validation().X_train
    part = experiments._folds(tasks, 3, seed=1)[2][0]
    known = {row.tobytes() for row in merged}
    assert {row.tobytes() for row in np.vstack([part.X_train, part.X_validation])} == known


def test_the_validation_error_is_that_of_scikit_learns_cross_validation():
    tasks = [t.with_validation() for t in load_digits_tasks(random_state=0)]
    cuts = KFold(3, shuffle=True, random_state=5)
    rates = [cross_val_score(KNeighborsClassifier(1), t.X_train, t.y_train, cv=cuts) for t in tasks]
    parameters, k, error = tune("euclidean", load_digits_tasks(random_state=0), FOLDS, 5)
    assert (parameters, k) == ({}, 1)
    assert error == pytest.approx(1 - np.mean(rates))
    assert 0 < error < 0.1


def test_the_number_of_neighbours_is_chosen_on_the_validation_rows():
    tasks = load_digits_tasks(random_state=0)
    _, k, error = tune("euclidean", tasks, replace(ROWS, n_neighbors=(1, 21)), 0)
    by_k = {}
    for n in (1, 21):
        models = [KNeighborsClassifier(n).fit(t.X_train, t.y_train) for t in tasks]
        parts = [(t.X_validation, t.y_validation) for t in tasks]
        by_k[n] = 1 - np.mean([m.score(*p) for m, p in zip(models, parts, strict=True)])
    assert by_k[1] < by_k[21]  # otherwise the test shows nothing
    assert k == 1
    assert error == pytest.approx(by_k[1])


def test_a_lifelong_system_takes_over_what_was_chosen_for_its_base(small, tmp_path):
    tasks = load_digits_tasks(random_state=0)
    base = tune("oasis", tasks, FOLDS, 0)[0]
    parameters = tune("lifelong-oasis", tasks, FOLDS, 0)[0]
    assert base.items() <= parameters.items()
    other = {"aggressiveness": 0.5, "n_steps": 10}
    assert other.items() <= tune("lifelong-oasis", tasks, FOLDS, 0, base=other)[0].items()
    both = run_experiment("digits", ["oasis", "lifelong-oasis"], 1, out=tmp_path, progress=False)
    alone = run_experiment("digits", ["lifelong-oasis"], 1, out=tmp_path / "b", progress=False)
    rows = [r for r in read_rows(both) if r["system"] == "lifelong-oasis"]
    assert [r["error"] for r in rows] == [r["error"] for r in read_rows(alone)]


def test_the_same_split_gives_the_same_row(small):
    a, b = (experiments.run_one("digits", 0, "lifelong-oasis") for _ in range(2))
    assert [replace(x, seconds=0.0) for x in a] == [replace(x, seconds=0.0) for x in b]


def test_lifelong_at_full_size_without_penalty_is_its_base_learner():
    tasks, fits = load_digits_tasks(random_state=0), experiments._Fits()
    alone = experiments._fit_alone(OASIS, tasks, 0, fits, aggressiveness=0.1)
    sizes = {"n_components": 64, "code_penalty": 0.0}
    fit = partial(experiments._fit_lifelong, OASIS)
    lifelong = fit(tasks, 0, fits, aggressiveness=0.1, **sizes)
    known = len(fits)
    fit(tasks, 0, fits, aggressiveness=0.1, n_components=20, code_penalty=0.01)
    assert len(fits) == known  # recalled, not learnt again
    for task in tasks:
        same = lifelong.labels(task.X_test, task.name, 1) == alone.labels(task.X_test, task.name, 1)
        assert same.mean() > 0.99  # equal up to rounding of tied scores


def test_mean_and_standard_error_by_hand():
    values = [1.0, 2.0, 6.0]
    mean, error = mean_and_error(values)
    assert mean == pytest.approx(3.0)
    assert error == pytest.approx(np.sqrt((4 + 1 + 9) / 2 / 3))


def test_report_prints_every_system(small, tmp_path, capsys):
    run_experiment("digits", ["euclidean"], 2, out=tmp_path, progress=False)
    assert main(["report", "digits", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    rows = read_rows(tmp_path / "digits.csv")
    assert f"{split_errors(rows, 'euclidean').mean():.2f}" in printed


def test_committed_results_are_complete():
    path = experiments.Path(__file__).parent.parent / "results" / "usps.csv"
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    keys = {(row["split"], row["system"], row["task"]) for row in rows}
    assert len(keys) == len(rows) == 5 * len(experiments.SYSTEMS) * 4
