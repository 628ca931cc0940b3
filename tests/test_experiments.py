"""The runner: no leak from test rows, resumable, one row for each result."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from lml import experiments
from lml.datasets import load_digits_tasks
from lml.experiments import main, mean_and_error, read_rows, run_experiment, split_errors


@pytest.fixture
def small(monkeypatch):
    """The digits as a data set, and systems and grids that take a second."""
    tiny = [{"aggressiveness": c} for c in (0.1, 0.01)]
    monkeypatch.setitem(
        experiments.DATASETS, "digits", (load_digits_tasks, {"n_neighbors": 1, "refit": True})
    )
    monkeypatch.setitem(experiments.BASE_GRIDS, "oasis", tiny)
    monkeypatch.setattr(experiments, "N_COMPONENTS", (16, 64))
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

    def fails_on_split_1(dataset, split, system):
        if split == 1:
            raise RuntimeError("killed")
        return real(dataset, split, system)

    monkeypatch.setattr(experiments, "run_one", fails_on_split_1)
    with pytest.raises(RuntimeError, match="killed"):
        run_experiment("digits", ["euclidean"], 2, out=tmp_path, progress=False)
    monkeypatch.setattr(experiments, "run_one", real)
    path = run_experiment("digits", ["euclidean"], 2, out=tmp_path, progress=False)
    assert sorted({row["split"] for row in read_rows(path)}) == ["0", "1"]


def test_tuning_never_sees_test_rows(small):
    tasks = load_digits_tasks(random_state=0)
    leak = [replace(t, X_test=np.full_like(t.X_test, 1e9), y_test=t.y_test[::-1]) for t in tasks]
    for system in ("oasis", "lifelong-oasis"):
        honest = experiments.SYSTEMS[system](tasks, 0, 1)[:2]
        assert experiments.SYSTEMS[system](leak, 0, 1)[:2] == honest


def test_the_validation_error_is_scikit_learns():
    tasks = load_digits_tasks(random_state=0)
    found = experiments._validation_error(experiments._single_task(None), tasks, 1)
    models = [KNeighborsClassifier(1).fit(t.X_train, t.y_train) for t in tasks]
    scores = [m.score(t.X_validation, t.y_validation) for m, t in zip(models, tasks, strict=True)]
    assert found == pytest.approx(1 - np.mean(scores))
    assert found < 0.5


def test_the_same_split_gives_the_same_row(small):
    a, b = (experiments.run_one("digits", 0, "lifelong-oasis") for _ in range(2))
    assert [replace(x, seconds=0.0) for x in a] == [replace(x, seconds=0.0) for x in b]


def test_lifelong_at_full_size_without_penalty_is_its_base_learner():
    tasks = load_digits_tasks(random_state=0)
    base = experiments._Recalled(
        experiments._base("oasis", 0, aggressiveness=0.1), experiments._Fits()
    )
    lifelong = experiments._lifelong(base, 0, n_components=64, code_penalty=0.0)(tasks, 1)[0]
    alone = experiments._single_task(experiments._base("oasis", 0, aggressiveness=0.1))(tasks, 1)[0]
    for task in tasks:
        same = lifelong(task.X_test, task.name) == alone(task.X_test, task.name)
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
