"""The runner: no leak from test rows, resumable, one row for each result."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.model_selection import KFold, cross_val_score
from sklearn.neighbors import KNeighborsClassifier

from lml.datasets import load_digits_tasks
from lml.studies import experiments, systems
from lml.studies.__main__ import main
from lml.studies.comparison import split_errors
from lml.studies.experiments import Protocol, run_experiment, run_one, search, tune, verify
from lml.studies.results import answers_text, append_rows, read_rows, wrong_answers
from lml.studies.systems import SYSTEMS

RESULTS = Path(__file__).parent.parent / "results"
FOLDS, ROWS = Protocol(load_digits_tasks, n_folds=3), Protocol(load_digits_tasks, (1, 3))


@pytest.fixture
def small(monkeypatch):
    """The digits as a data set, and systems and grids that take a second."""
    few = [{"aggressiveness": c, "n_steps": 200} for c in (0.1, 0.01)]
    oasis = replace(SYSTEMS["oasis"], stages=lambda n_features: [few])
    monkeypatch.setitem(SYSTEMS, "oasis", oasis)
    monkeypatch.setitem(experiments.DATASETS, "digits", FOLDS)
    monkeypatch.setattr(systems, "N_COMPONENTS", (8, 64))
    monkeypatch.setattr(systems, "PAPER_GRID", (0.1, 0.001))


def test_one_row_a_task_with_everything_that_is_needed_to_repeat_it(small, tmp_path):
    path = run_experiment("digits", ["lifelong-oasis"], 1, out=tmp_path, progress=False)
    rows = read_rows(path)
    assert [row["task"] for row in rows] == ["0-1", "2-3", "4-5-6", "7-8-9"]
    for row in rows:
        assert 0 <= float(row["error"]) < 0.3
        assert int(row["state_bytes"]) > 0
        assert set(json.loads(row["parameters"])) == {"aggressiveness", "n_steps", "sharing"}
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
        Protocol,
        "folds",
        lambda self, tasks, seed: [
            [replace(t, X_validation=t.X_test, y_validation=t.y_test) for t in tasks]
        ],
    )
    leak = [replace(t, y_test=t.y_test[::-1]) for t in tasks]
    assert tune("euclidean", leak, FOLDS, 0) != tune("euclidean", tasks, FOLDS, 0)


def test_every_learning_row_is_asked_about_once():
    tasks = load_digits_tasks(random_state=0)
    folds = FOLDS.folds(tasks, seed=1)
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


def test_rows_that_are_not_centered_are_left_as_they_are():
    tasks = [replace(t, centered=False) for t in load_digits_tasks(random_state=0)]
    merged = tasks[0].with_validation().X_train
    part = FOLDS.folds(tasks, seed=1)[2][0]
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


def test_the_number_of_neighbors_is_chosen_on_the_validation_rows():
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


def test_a_system_takes_over_what_was_chosen_for_its_base(small, tmp_path):
    tasks = load_digits_tasks(random_state=0)
    base = tune("oasis", tasks, FOLDS, 0)[0]
    parameters = tune("paper-oasis", tasks, FOLDS, 0)[0]
    assert base.items() <= parameters.items()
    other = {"aggressiveness": 0.5, "n_steps": 10}
    assert other.items() <= tune("paper-oasis", tasks, FOLDS, 0, base=other)[0].items()
    both = run_experiment("digits", ["oasis", "paper-oasis"], 1, out=tmp_path, progress=False)
    alone = run_experiment("digits", ["paper-oasis"], 1, out=tmp_path / "b", progress=False)
    rows = [r for r in read_rows(both) if r["system"] == "paper-oasis"]
    assert [r["error"] for r in rows] == [r["error"] for r in read_rows(alone)]


def test_the_same_split_gives_the_same_row(small):
    a, b = (run_one("digits", 0, "lifelong-oasis") for _ in range(2))
    assert [replace(x, seconds=0.0, total_seconds=0.0) for x in a] == [
        replace(x, seconds=0.0, total_seconds=0.0) for x in b
    ]


def test_report_prints_and_writes_every_system(small, tmp_path, capsys):
    run_experiment("digits", ["euclidean", "logistic"], 2, out=tmp_path, progress=False)
    assert main(["report", "digits", "--out", str(tmp_path)]) == 0
    printed, rows = capsys.readouterr().out, read_rows(tmp_path / "digits.csv")
    for system in ("euclidean", "logistic"):
        assert f"{split_errors(rows, system).mean():.2f}" in printed
    assert "euclidean" in (tmp_path / "report" / "digits.txt").read_text(encoding="utf-8")
    assert (tmp_path / "report" / "digits.png").stat().st_size > 5000


def test_report_without_results_says_what_to_do(tmp_path):
    with pytest.raises(FileNotFoundError, match="run the experiment first"):
        main(["report", "digits", "--out", str(tmp_path)])


def test_the_search_takes_parameters_one_after_another():
    loss = {"a": {1: 4.0, 2: 3.0, 3: 3.0}, "b": {1: 5.0, 2: 1.0, 3: 0.0}}
    seen = []

    def errors_of(setting):
        seen.append((setting["x"], setting["y"]))
        return [loss[setting["x"]][setting["y"]]]

    stages = [[{"x": "a"}, {"x": "b"}], [{"y": n} for n in (1, 2, 3)]]
    assert search(errors_of, {}, stages) == ({"y": 2, "x": "a"}, [3.0])
    assert seen == [("a", 1), ("b", 1), ("a", 2), ("a", 3)]


def test_a_stage_may_change_a_parameter_of_an_earlier_one():
    def errors_of(setting):
        return [abs(setting["shared"] - 1) + abs(setting["own"] - 3)]

    equal = [{"shared": v, "own": v} for v in (2, 1)]
    stages = [equal, [{"own": v} for v in (2, 3)]]
    assert search(errors_of, {}, stages)[0] == {"shared": 2, "own": 3}


@pytest.mark.parametrize("name", sorted(set(SYSTEMS) - {"euclidean"}))
def test_no_system_looks_at_test_rows(monkeypatch, name):
    system, kept = SYSTEMS[name], SYSTEMS[name].base
    short = [stage[:2] for stage in system.stages(64)][:1]
    monkeypatch.setitem(SYSTEMS, name, replace(system, stages=lambda n_features: short))
    base = kept and {k: v for stage in SYSTEMS[kept].stages(64) for k, v in stage[0].items()}
    extra = {k: v for stage in system.stages(64) for k, v in stage[0].items()}
    tasks = load_digits_tasks(random_state=0)[:2]
    nonsense = [replace(t, X_test=1e6 + 0 * t.X_test, y_test=-t.y_test) for t in tasks]
    start = extra | (base or {})
    honest = tune(name, tasks, ROWS, 0, start)
    assert tune(name, nonsense, ROWS, 0, start) == honest
    assert honest[2] < 0.2
    assert (honest[1] == 0) == (not system.votes)


def test_a_system_without_a_row_for_the_data_set_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"system='pooled-scml': give one of"):
        run_experiment("digits", ["pooled-scml"], 1, out=tmp_path, progress=False)
    assert not list(tmp_path.iterdir())


def test_which_systems_have_a_row():
    rows = {name: set(protocol.systems()) for name, protocol in experiments.DATASETS.items()}
    assert set(SYSTEMS) - rows["usps"] == {
        "pooled-scml",
        "pooled-lmnn",
        "ella",
        "lifelong-plda-keyed",
    }
    assert set(SYSTEMS) - rows["isolet"] == {"ella"}
    assert set(SYSTEMS) - rows["sentiment"] == {"ella-ovr"}


def test_pooled_systems_learn_from_the_union_and_ask_their_own_task():
    tasks = load_digits_tasks(random_state=0)
    fitted = SYSTEMS["pooled-lmnn"].fit(tasks, 0, {}, estimator__shrinkage=0.1)
    answers = {t.name: fitted.labels(t.X_test, t.name, 1) for t in tasks}
    for t in tasks:
        assert set(np.unique(answers[t.name])) <= set(t.y_train.tolist())
    learner = systems.LMNN(max_iter=200, tol=0.01, shrinkage=0.1)
    learner.fit(*(np.concatenate([getattr(t, p) for t in tasks]) for p in ("X_train", "y_train")))
    assert fitted.nbytes == 8 * len(tasks) + min(learner.metric_.nbytes - 8, 8 * 64 * 64)
    model = KNeighborsClassifier(1).fit(learner.transform(tasks[3].X_train), tasks[3].y_train)
    theirs = model.predict(learner.transform(tasks[3].X_test))
    assert np.mean(theirs == answers["7-8-9"][:, 0]) > 0.995


def test_verify_names_what_differs(tmp_path):
    path = run_experiment("digits", ["euclidean"], 1, out=tmp_path, progress=False)
    same = verify("digits", ["euclidean"], 1, out=tmp_path, progress=False)
    assert same == (4, [])
    rows = read_rows(path)
    path.unlink()
    rows[2]["n_neighbors"] = "7"
    append_rows(path, rows[:3])
    arguments = ["verify", "digits", "--systems", "euclidean", "--splits", "1"]
    assert main([*arguments, "--out", str(tmp_path)]) == 1
    n_same, different = verify("digits", ["euclidean"], 1, out=tmp_path, progress=False)
    assert n_same == 2
    assert different[0] == ("0", "euclidean", "4-5-6", "n_neighbors")
    assert different[1][2] == "7-8-9"


def test_texts_come_back_and_what_would_be_read_otherwise_is_refused(tmp_path):
    path, kept = tmp_path / "rows.csv", {"system": "a", "task": "#1", "tasks": "#2", "note": ""}
    append_rows(path, [kept, {**kept, "task": 'a "b", c'}])
    append_rows(path, [kept])
    assert read_rows(path) == [kept, {**kept, "task": 'a "b", c'}, kept]
    refused = ({"system": "#1"}, {"system": "#"}, {"task": "a\nb"}, {"tasks": "a\u2028"})
    for wrong in (*refused, {"task": "a\0b"}):
        before = path.read_bytes()
        with pytest.raises(ValueError, match="no line of results"):
            append_rows(path, [kept, {**kept, **wrong}])
        assert path.read_bytes() == before


def test_rows_of_other_columns_are_refused(tmp_path):
    path, row = tmp_path / "rows.csv", {"a": "1", "b": "2"}
    with pytest.raises(ValueError, match=r"columns \['b'\].*has \['a', 'b'\]"):
        append_rows(path, [row, {"b": "2"}])
    assert not path.exists()
    path.touch()  # as an empty file
    append_rows(path, [row])
    for other in ({"b": "2", "a": "1"}, {"a": "1"}, row | {"c": "3"}):
        with pytest.raises(ValueError, match="columns"):
            append_rows(path, [row, other])
    assert read_rows(path) == [row]


def test_a_quote_that_was_typed_swallows_no_lines(tmp_path):
    path = tmp_path / "rows.csv"
    append_rows(path, [{"a": "1", "tasks": "x", "b": str(n)} for n in range(4)])
    text = path.read_text(encoding="utf-8")
    for old, new, line in (("1,#1,1", '1,#1,"1', 5), ("#1,x", "#1", 3), ("2\n", '"2"2\n', 6)):
        path.write_text(text.replace(old, new, 1), encoding="utf-8")
        with pytest.raises(ValueError, match=f"rows.csv, line {line}.*restore the file"):
            read_rows(path)


def test_a_missing_progress_bar_is_named_with_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with pytest.raises(ModuleNotFoundError, match="this package's extra progress"):
        run_experiment("digits", ["euclidean"], 1, out=tmp_path)


@pytest.mark.parametrize("dataset", ["usps", "isolet", "isolet-speakers", "sentiment"])
def test_committed_results_are_complete(dataset):
    rows = read_rows(RESULTS / f"{dataset}.csv")
    keys = {(row["split"], row["system"], row["task"]) for row in rows}
    tasks, names = {row["task"] for row in rows}, experiments.DATASETS[dataset].systems()
    for split in range(5):
        assert {(str(split), name, task) for name in names for task in tasks} <= keys
    assert len(keys) == len(rows)
    assert all(row["seed"] == row["split"] for row in rows)


@pytest.mark.parametrize("dataset", ["usps", "isolet", "isolet-speakers", "sentiment"])
def test_committed_results_are_those_of_todays_search(dataset):
    """Every chosen setting is one that the search of its system can end at."""
    rows = read_rows(RESULTS / f"{dataset}.csv")
    for row in {(r["system"], r["parameters"]): r for r in rows}.values():
        system, chosen = SYSTEMS[row["system"]], json.loads(row["parameters"])
        stages = system.stages({"usps": 256, "sentiment": 200}.get(dataset, 617))
        if system.base:
            stages = stages + SYSTEMS[system.base].stages(617)
        settings = [setting for stage in stages for setting in stage]
        tried = {(k, json.dumps(v)) for setting in settings for k, v in setting.items()}
        assert {(k, json.dumps(v)) for k, v in chosen.items()} <= tried
        assert {k for k, _ in tried} == set(chosen)


def test_a_file_of_other_columns_is_refused_and_left_alone(tmp_path):
    path = run_experiment("digits", ["euclidean"], 1, out=tmp_path, progress=False)
    text = path.read_text(encoding="utf-8").replace(
        "error,validation_error", "validation_error,error"
    )
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match="move the file away"):
        run_experiment("digits", ["euclidean"], 2, out=tmp_path, progress=False)
    assert path.read_text(encoding="utf-8") == text


def test_what_cannot_be_run_is_said_before_anything_is_computed(tmp_path, monkeypatch):
    monkeypatch.setattr(experiments, "run_one", lambda *job: pytest.fail("ran"))
    (tmp_path / "file").write_text("")
    for arguments, said in [
        (("foo",), "dataset='foo': give one of"),
        (("digits", None, 0), "n_splits=0: give a whole number of at least 1"),
        (("digits", ["foo"]), "system='foo': give one of"),
        (("digits", "foo"), "system='foo': give one of"),
    ]:
        with pytest.raises(ValueError, match=said):
            run_experiment(*arguments, out=tmp_path)
    with pytest.raises(ValueError, match="system='foo': give one of"):
        tune("foo", load_digits_tasks(random_state=0), Protocol(load_digits_tasks), 0)
    with pytest.raises(OSError, match="file"):
        run_experiment("digits", out=tmp_path / "file")
    with pytest.raises(FileNotFoundError, match="to compare with"):
        verify("digits", ["euclidean"], out=tmp_path)


def test_a_setting_without_an_error_is_never_chosen():
    stages = [[{"a": 1}, {"a": 2}]]
    found = search(lambda p: [float("nan") if p["a"] == 1 else 0.1], {}, stages)
    assert found == ({"a": 2}, [0.1])


def test_one_split_has_a_report(tmp_path, capsys):
    command = ["digits", "--systems", "euclidean", "logistic", "--splits", "1"]
    assert main(["run", *command, "--out", str(tmp_path)]) == 0
    assert "logistic" in capsys.readouterr().out


def test_metrics_without_low_rank_count_as_square_matrices():
    tasks = load_digits_tasks(random_state=0)
    fitted = SYSTEMS["omtrsl"].fit(tasks, 0, {}, aggressiveness=0.1, coupling=1.0)
    assert fitted.nbytes == 8 * len(tasks) * (1 + 64 * 64)
    low = SYSTEMS["nca"].fit(tasks, 0, {}, n_components=2)
    assert low.nbytes == 8 * len(tasks) * (1 + 2 * 64 + 2)


def test_an_unknown_name_on_the_command_line_is_named(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["run", "ups", "--out", str(tmp_path)])
    assert "data set 'ups' is not known: use some of ['digits', 'usps'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_single_run_says_which_data_set_is_not_known():
    with pytest.raises(ValueError, match="dataset='foo': give one of"):
        run_one("foo", 0, "euclidean")


@pytest.mark.parametrize("n", [1, 8, 13])
def test_answers_are_told_bit_by_bit(n):
    wrong = np.random.default_rng(n).random(n) < 0.4
    row = {"wrong": answers_text(wrong), "n_test": str(n)}
    assert len(row["wrong"]) == 2 * -(-n // 8)
    np.testing.assert_array_equal(wrong_answers(row), wrong)
    for cut in (row["wrong"][:-2], row["wrong"] + "00"):
        with pytest.raises(ValueError, match=r"wrong has \d+ bits for n_test"):
            wrong_answers({**row, "wrong": cut})
