"""The measurements of transfer: resumable, and each number against an independent computation."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from plda_streams import axes_by_hand
from scipy.spatial.distance import cdist
from sklearn.linear_model import LogisticRegression

from lml.datasets import load_digits_tasks, load_few_shot_digits, load_usps_tasks
from lml.evaluation import backward_transfer, evaluate_stream
from lml.lifelong import LifelongMetricLearner
from lml.neighbors import k_nearest
from lml.oasis import OASIS
from lml.plda import LifelongPLDA
from lml.plda.model import task_moments
from lml.studies import transfer
from lml.studies.experiments import Protocol
from lml.studies.results import read_rows
from lml.studies.systems import prepared
from lml.studies.transfer import (
    FOLLOWERS,
    RUINED,
    STUDIES,
    Grid,
    Study,
    best_setting,
    error_matrices,
    follow_alone,
    follow_class_means,
    follow_grid,
    follow_joint,
    follow_learner,
    follow_without_ruined,
    load_ruined_tasks,
    load_speaker_tasks,
    ordered_tasks,
    plda_bytes,
    ruined_task,
    run_study,
    run_unit,
    transfer_values,
)

RESULTS = Path(__file__).parent.parent / "results"
DIGITS = Protocol(load_digits_tasks, (1,))
TASKS = load_digits_tasks(random_state=0)
ONE = Grid((2.0,), ((0.25, 0.5),), ((0.3, 0.2, 0.1),), (0.0,))


def plain_error(t, within, spread, noise, setting):
    """Error of nearest neighbors by the two-covariance log-ratio, from densities' formula."""
    V, psi = axes_by_hand(within, spread.T @ spread, noise, setting.regularization)
    g, nu, floor = setting.shrinkage
    p = g * psi**2 / np.where(psi + nu > 0, psi + nu, 1.0) + floor
    unit = np.sqrt(t["unit"])
    Q, R = (t["X_test"] - t["mean"]) @ V / unit, (t["X"] - t["mean"]) @ V / unit
    wrong = 0
    for q, label in zip(Q, t["y_test"], strict=True):
        a, b = p / (1 + 2 * p), p**2 / ((1 + p) * (1 + 2 * p))
        scores = (R * q) @ a - 0.5 * (R**2) @ b
        wrong += t["y"][np.argmax(scores)] != label
    return wrong / len(Q)


def scatters(X, y):
    """Within scatter, rows of between scatter, its noise and the unit, with loops over rows."""
    means = {c: X[y == c].mean(axis=0) for c in set(y.tolist())}
    sizes = np.array([(y == c).sum() for c in means])
    deviations = np.array([x - means[c] for x, c in zip(X, y.tolist(), strict=True)])
    unit = np.sum(deviations**2) / X.shape[1] / (len(y) - len(means))
    within = deviations.T @ deviations / (len(y) - len(means)) / unit
    gaps = np.array([m - X.mean(axis=0) for m in means.values()])
    rest = len(y) - np.sum(sizes**2) / len(y)
    spread = np.sqrt(sizes / rest / unit)[:, None] * gaps
    return within, spread, (len(means) - 1) / rest, unit


def test_the_matrix_is_that_of_plain_loops_over_rows():
    """Two weights, a full floor (so that V is square) and k = 1, written once more by hand."""
    (setting,) = ONE.settings()
    steps = follow_grid(ONE, TASKS, Protocol(load_digits_tasks), 0)
    known = [scatters(t.X_train, t.y_train) for t in TASKS]
    for n, step in enumerate(steps, start=1):
        S = sum(s for s, _, _, _ in known[:n]) / n
        F = np.concatenate([f for _, f, _, _ in known[:n]]) / np.sqrt(n)
        a = sum(noise for _, _, noise, _ in known[:n]) / n
        for t, (own, spread, noise, unit) in list(zip(TASKS, known, strict=True))[:n]:
            within = 0.25 * own + 0.75 * S
            both = np.concatenate([np.sqrt(0.5) * spread, np.sqrt(0.5) * F])
            rows = {"X": t.X_train, "y": t.y_train, "X_test": t.X_test, "y_test": t.y_test}
            facts = rows | {"mean": t.X_train.mean(axis=0), "unit": unit}
            expected = plain_error(facts, within, both, 0.5 * noise + 0.5 * a, setting)
            assert abs(step.errors[TASKS.index(t)] - expected) < 1e-12


@pytest.mark.parametrize("shared_labels", [False, True])
def test_the_matrix_is_that_of_the_learner(shared_labels):
    steps = follow_grid(
        Grid(ONE.regularizations, ONE.weights, ONE.shrinkages, ONE.pulls, shared_labels),
        TASKS,
        Protocol(load_digits_tasks, (3,)),
        0,
    )
    R = np.array([step.errors for step in steps])
    learner = LifelongPLDA(64, 2.0, (0.25, 0.5), (0.3, 0.2, 0.1), shared_labels=shared_labels)
    theirs = evaluate_stream(learner, TASKS, n_neighbors=3).errors
    below = np.tril_indices(len(TASKS))
    np.testing.assert_allclose(R[below], theirs[below])
    assert np.all(np.isfinite(R))
    parts = learner.state_parts_
    assert steps[-1].state_bytes == sum(parts.values()) - parts["records"]


@pytest.mark.parametrize("common", [False, True])
def test_what_is_joined_of_a_task_does_not_depend_on_its_unit(common):
    grid = replace(ONE, pulls=(1.0,), shared_labels=True, common=common)
    first, *others = TASKS
    names = ("X_train", "X_validation", "X_test")
    large = [replace(first, **{name: 64 * getattr(first, name) for name in names}), *others]
    plain, scaled = (follow_grid(grid, tasks, DIGITS, 0) for tasks in (TASKS, large))
    for one, other in zip(plain, scaled, strict=True):
        np.testing.assert_array_equal(one.errors, other.errors)


def test_the_setting_is_chosen_without_test_rows():
    blind = [transfer.replace(t, X_test=t.X_test[::-1] * 0.0, y_test=t.y_test * 0) for t in TASKS]
    protocol = Protocol(load_digits_tasks, (1, 3))
    plain, changed = (follow_grid(Grid(), tasks, protocol, 0) for tasks in (TASKS, blind))
    assert [s.parameters for s in plain] == [s.parameters for s in changed]
    assert [s.validation_error for s in plain] == [s.validation_error for s in changed]
    assert [s.errors for s in plain] != [s.errors for s in changed]


def test_a_later_task_changes_no_earlier_step():
    protocol = Protocol(load_digits_tasks, (1, 3))
    whole, short = (follow_grid(Grid(), tasks, protocol, 0) for tasks in (TASKS, TASKS[:2]))
    for a, b in zip(whole, short, strict=False):
        assert a.parameters == b.parameters
        assert a.errors[:2] == b.errors


def test_a_task_that_chooses_for_itself_keeps_its_setting():
    grid = Grid(weights=((1.0, 1.0),), each=True)
    steps = follow_grid(grid, TASKS, Protocol(load_digits_tasks, (1, 3)), 0)
    R = np.array([step.errors for step in steps])
    for t in range(4):
        np.testing.assert_array_equal(R[t:, t], R[t, t])  # alone: nothing moves it
        assert [s.parameters[t] for s in steps[t:]] == [steps[t].parameters[t]] * (4 - t)


def test_the_smallest_mean_is_chosen_and_the_first_of_equals():
    tables = [np.array([[3.0, 1.0], [1.0, 2.0]]), np.array([[0.0, 2.0], [2.0, 2.0]])]
    assert best_setting(tables) == ((0, 0), 1.5)
    assert best_setting(tables[:1]) == ((0, 1), 1.0)


def test_values_of_a_matrix():
    R = np.random.default_rng(0).uniform(0, 30, size=(5, 3, 3))
    values = transfer_values(R)
    for n in range(5):
        assert values.arrival[n] == pytest.approx(np.trace(R[n]) / 3)
        assert values.final[n] == pytest.approx(R[n, 2].mean())
        assert values.backward[n] == pytest.approx(100 * backward_transfer(1 - R[n] / 100))


def test_a_missing_step_is_refused(tmp_path):
    rows = [vars(row) for row in run_unit("digits", 100, 0, "alone")]
    assert error_matrices(rows, "alone").shape == (1, 4, 4)
    with pytest.raises(ValueError, match=r"'alone' make matrices of shapes \[\(3, 4\)\]"):
        error_matrices(rows[:2] + rows[3:], "alone")
    with pytest.raises(ValueError, match="'none' make matrices"):
        error_matrices(rows, "none")


def test_learners_are_followed_as_they_are():
    variants = [LifelongMetricLearner(OASIS(a, n_steps=200), sharing=0.5) for a in (0.01, 0.1)]
    steps = follow_learner(variants, TASKS, Protocol(load_digits_tasks, (3,)), 5)
    for n, step in enumerate(steps):
        best = prepared(variants[step.parameters["variant"]], 5)
        errors = evaluate_stream(best, TASKS[: n + 1], n_neighbors=3).errors[-1]
        np.testing.assert_allclose(step.errors[: n + 1], errors)
        assert all(np.isnan(step.errors[n + 1 :]))
    assert steps[-1].state_bytes > 0


def test_trying_folds_leaves_the_learner_as_it_would_be():
    variant = [LifelongMetricLearner(OASIS(0.1, n_steps=200), sharing=0.5)]
    folded = follow_learner(variant, TASKS, Protocol(load_digits_tasks, (1, 3), n_folds=3), 0)
    merged = [t.with_validation() for t in TASKS]
    k = folded[-1].parameters["n_neighbors"]
    plain = evaluate_stream(prepared(variant[0], 0), merged, n_neighbors=k).errors
    np.testing.assert_allclose(folded[-1].errors, plain[-1])


def test_the_way_to_enrol_that_validation_prefers_is_asked():
    learner = [LifelongPLDA(64, 4.0, (0.25, 0.0), (0.3, 0.0, 0.0))]
    protocol = Protocol(load_digits_tasks)
    ways = [{}, {"pull": 0.5}, {"pull": 1.0}]
    alone = [follow_learner(learner, TASKS, protocol, 0, [way]) for way in ways]
    chosen = follow_learner(learner, TASKS, protocol, 0, ways)
    for n, step in enumerate(chosen):
        best = min((steps[n] for steps in alone), key=lambda one: one.validation_error)
        assert step.validation_error == pytest.approx(best.validation_error)
        np.testing.assert_array_equal(step.errors, best.errors)
    assert len({step.parameters.get("pull", 0.0) for step in chosen}) > 1


def test_the_first_twenty_tasks_of_a_long_stream_choose_for_all():
    tasks = load_few_shot_digits(n_tasks=51, random_state=0)
    learner = [LifelongMetricLearner(OASIS(n_steps=20), sharing=0.5)]
    protocol = Protocol(load_few_shot_digits, n_folds=2)
    ways = [{}, {"pull": 1.0}]
    steps = follow_learner(learner, tasks, protocol, 0, ways)
    first = follow_learner(learner, tasks[:20], protocol, 0, ways)
    assert [s.parameters for s in steps[:20]] == [s.parameters for s in first]
    assert {s.validation_error for s in steps[20:]} == {first[-1].validation_error}
    assert len({s.validation_error for s in first}) > 15
    alone = follow_learner(learner, tasks, protocol, 0, [steps[-1].parameters])
    np.testing.assert_array_equal(steps[-1].errors, alone[-1].errors)


def test_class_means_of_other_tasks_are_asked_for_as_references():
    tasks = load_few_shot_digits(n_tasks=3, random_state=0)
    learner = LifelongMetricLearner(OASIS(n_steps=100), sharing=0.5, shared_labels=True)
    protocol = Protocol(load_few_shot_digits, n_folds=2)
    step = follow_learner([learner], tasks, protocol, 3, [{"others": 1.0}])[-1]
    twin = prepared(learner, 3)
    for task in protocol.final(tasks):
        twin.partial_fit(task.X_train, task.y_train, task=task.name)
    for task, error in zip(protocol.final(tasks), step.errors, strict=True):
        means, labels = twin.class_means_of_others(task=task.name)
        references = np.concatenate([task.X_train, means])
        found, _ = k_nearest(twin.task_metric(task.name), task.X_test, references, "similarity", 1)
        answers = np.concatenate([task.y_train, labels])[found[:, 0]]
        assert error == pytest.approx(np.mean(answers != task.y_test))


@pytest.mark.parametrize("ways", [[], {"pull": 1.0}, None])
def test_ways_to_take_references_that_are_no_list_are_named(ways):
    with pytest.raises(ValueError, match=r"ref_ways is .*give a list"):
        follow_learner([LifelongPLDA(20)], TASKS, Protocol(load_digits_tasks), 0, ways)


def test_a_joint_classifier_answers_with_labels_of_the_task():
    models = [LogisticRegression(C=c, max_iter=1000) for c in (1e-6, 0.1)]
    steps = follow_joint(models, TASKS, Protocol(load_digits_tasks), 0)
    assert len(steps) == 4
    assert all(np.isnan(steps[0].errors))
    assert steps[-1].parameters == {"variant": 1}
    assert max(steps[-1].errors) < 0.15


def test_bytes_grow_with_the_tasks_only():
    samples = [(t.X_train, *np.unique(t.y_train, return_inverse=True)) for t in TASKS]
    moments = [task_moments(X, codes, labels)[0] for X, labels, codes in samples]
    doubled = [
        task_moments(np.tile(X, (2, 1)), np.tile(codes, 2), labels)[0]
        for X, labels, codes in samples
    ]
    assert plda_bytes(moments) == plda_bytes(doubled)
    assert plda_bytes(moments[:2]) < plda_bytes(moments)


@pytest.fixture
def small(monkeypatch, tmp_path):
    """Two fast systems on the digits as a study."""
    study = Study(("digits",), ("alone", "shared", "keyed"), 2, (0, 1))
    monkeypatch.setitem(transfer.STUDIES, "small", study)
    return partial(run_study, "small", out=tmp_path, progress=False)


TIMES = {"seconds"}


def timeless(rows):
    return [{k: v for k, v in row.items() if k not in TIMES} for row in rows]


def test_a_killed_run_is_taken_up_without_repeating_anything(small, monkeypatch, tmp_path):
    one_go = read_rows(small(out=tmp_path / "one")[0])
    assert len(one_go) == 2 * 2 * 2 * 4  # splits, orders, systems, steps; "keyed" has no part
    real, ran = transfer.run_unit, []

    def killed_at_the_third(*unit):
        ran.append(unit)
        if len(ran) == 3:
            raise KeyboardInterrupt
        return real(*unit)

    monkeypatch.setattr(transfer, "run_unit", killed_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        small()
    assert len(read_rows(tmp_path / "transfer-small-digits.csv")) == 8
    (path,) = small()
    assert timeless(read_rows(path)) == timeless(one_go)
    assert len(ran) == len(set(ran)) + 1  # only the one that was killed ran twice
    again = len(ran)
    small()
    assert len(ran) == again


def test_half_a_unit_is_run_again(small):
    (path,) = small(n_splits=1)
    whole, text = read_rows(path), path.read_text(encoding="utf-8")
    path.write_text(text[: int(0.9 * len(text))], encoding="utf-8")
    assert timeless(read_rows(small(n_splits=1)[0])) == timeless(whole)


def test_other_columns_are_not_mixed_in(small, tmp_path):
    (tmp_path / "transfer-small-digits.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(ValueError, match="move the file away"):
        small()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"study": "depth"}, "study='depth': give one of"),
        ({"study": "count", "datasets": ["usps"]}, "dataset='usps': give one of"),
        ({"study": "count", "datasets": "usps"}, "dataset='usps': give one of"),
        ({"study": "count", "systems": ["alone"]}, "system='alone': give one of"),
        ({"study": "count", "systems": []}, "no system is given: name some of"),
        ({"study": "count", "datasets": []}, "no dataset is given: name some of"),
        ({"study": "count", "n_splits": 0}, "n_splits=0: give a whole number of at least 1"),
    ],
)
def test_bad_arguments_are_refused_before_anything_runs(change, said, tmp_path, monkeypatch):
    monkeypatch.setattr(transfer, "run_unit", lambda *unit: pytest.fail(f"ran {unit}"))
    with pytest.raises(ValueError, match=said):
        run_study(**change, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_order_is_a_permutation_and_the_same_in_all_splits():
    names = [t.name for t in TASKS]
    orders = [[t.name for t in ordered_tasks("digits", 3, order)] for order in range(6)]
    assert orders[0] == names
    assert len({tuple(order) for order in orders}) > 3
    assert all(sorted(order) == sorted(names) for order in orders)
    assert orders[4] == [t.name for t in ordered_tasks("digits", 9, 4)]


def test_the_final_error_of_one_setting_is_the_same_in_all_orders():
    protocol = Protocol(load_digits_tasks)
    forward, backward = (follow_grid(ONE, tasks, protocol, 0) for tasks in (TASKS, TASKS[::-1]))
    np.testing.assert_allclose(forward[-1].errors, backward[-1].errors[::-1], atol=2 / 250)


def test_speakers_are_in_one_task_each():
    try:
        tasks = load_speaker_tasks(0, download_if_missing=False)
    except OSError as error:
        pytest.skip(str(error))
    assert len(tasks) == 30
    assert sum(len(t.y_train) + len(t.y_validation) + len(t.y_test) for t in tasks) == 7797
    assert {len(set(t.y_train.tolist())) for t in tasks} <= set(range(24, 27))


FILES = sorted(RESULTS.glob("transfer-*.csv"))


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_committed_results_are_complete_and_of_fresh_splits(path):
    _, study, dataset = path.stem.split("-", 2)
    rows = read_rows(path)
    assert dataset in STUDIES[study].datasets
    units = {(int(r["split"]), int(r["order"]), r["system"]) for r in rows}
    assert min(split for split, _, _ in units) == 100
    whole = set(STUDIES[study].units(dataset, 1 + max(split for split, _, _ in units) - 100))
    assert units == whole
    for system in {system for _, _, system in units}:
        R = error_matrices(rows, system)
        assert len(R) == len(whole) / len({s for _, _, s in whole})
        final = R[:, -1]
        asked = final[~np.isnan(final)]
        assert asked.size > 0
        assert np.all((asked >= 0) & (asked < (100 if "ruined" in dataset else 90)))
        assert all(json.loads(r["parameters"]) is not None for r in rows)


def test_the_main_table_has_twenty_splits():
    for dataset in STUDIES["streams"].datasets:
        rows = read_rows(RESULTS / f"transfer-streams-{dataset}.csv")
        assert len({r["split"] for r in rows}) >= 20


@pytest.mark.parametrize("dataset", STUDIES["safeguard"].datasets)
def test_no_task_of_a_ruined_stream_ends_worse_than_on_its_own_beyond_noise(dataset):
    rows = read_rows(RESULTS / f"transfer-safeguard-{dataset}.csv")
    names = rows[0]["tasks"].split()
    own = error_matrices(rows, "on its own")[:, -1]
    assert len(own) >= STUDIES["safeguard"].n_splits
    assert set(RUINED) < set(names)
    honest = [n for n, name in enumerate(names) if name not in RUINED]
    systems = {r["system"] for r in rows if "no ruin" not in r["system"]} - {"on its own"}
    for system in systems:
        gaps = error_matrices(rows, system)[:, -1] - own
        noise = gaps.std(axis=0, ddof=1) / np.sqrt(len(gaps))
        assert np.all(gaps.mean(axis=0) < 3 * noise + 1e-9), (system, names)
    if "own choice, keyed" in systems:
        without = error_matrices(rows, "own choice, keyed, no ruin")[:, -1]
        assert np.isnan(without[:, [n for n in range(len(names)) if n not in honest]]).all()
        keyed = error_matrices(rows, "own choice, keyed")[:, -1]
        lost = (keyed - without)[:, honest].mean(axis=1)
        assert lost.mean() < 3 * lost.std(ddof=1) / np.sqrt(len(lost))
        assert np.all((own - keyed)[:, honest].mean(axis=0) > 2)  # points that joined labels give


@pytest.mark.parametrize("dataset", STUDIES["harm"].datasets)
def test_ruined_tasks_take_nothing_from_the_others_beyond_two_standard_errors(dataset):
    rows = read_rows(RESULTS / f"transfer-shared-{dataset}.csv")
    names = rows[0]["tasks"].split()
    honest = [n for n, name in enumerate(names) if name not in RUINED]
    system = "OASIS, as it comes"
    ends = error_matrices(rows, system)[:, -1, honest]
    clean = read_rows(RESULTS / f"transfer-harm-{dataset}.csv")
    assert clean[0]["tasks"].split() == names
    without = error_matrices(clean, f"{system}, no ruin")[:, -1]
    assert np.isnan(np.delete(without, honest, axis=1)).all()
    lost = ends - without[:, honest]
    assert len(lost) == 20
    assert np.all(lost.mean(axis=0) < 2 * lost.std(axis=0, ddof=1) / np.sqrt(20) + 1e-9)


def test_what_ruins_a_task_is_the_same_for_all_its_rows_and_leaves_the_task_alone():
    task = load_digits_tasks(random_state=0)[2]
    before = task.X_train.copy(), task.y_train.copy()
    made = {how: ruined_task(task, how, np.random.default_rng(3)) for how in RUINED}
    assert [t.name for t in made.values()] == ["shuffled", "renamed", "random"]
    column = [np.flatnonzero((c == made["shuffled"].X_train.T).all(axis=1)) for c in task.X_train.T]
    for n, places in enumerate(column):
        assert any((made["shuffled"].X_test[:, k] == task.X_test[:, n]).all() for k in places)
    for part in ("train", "validation", "test"):
        pairs = set(zip(getattr(task, f"y_{part}"), getattr(made["renamed"], f"y_{part}")))
        assert pairs == {(4, 6), (5, 4), (6, 5)}
        labels, X = (getattr(made["random"], f"{name}_{part}") for name in "yX")
        np.testing.assert_array_equal(np.sort(labels), np.sort(getattr(task, f"y_{part}")))
        np.testing.assert_array_equal(X, getattr(task, f"X_{part}"))
    np.testing.assert_array_equal(task.X_train, before[0])
    np.testing.assert_array_equal(task.y_train, before[1])


def test_ruined_copies_come_before_what_they_are_copies_of(monkeypatch):
    monkeypatch.setitem(transfer.DATASETS, "digits", DIGITS)
    stream = load_ruined_tasks("digits", 0)
    names = ["0-1", "shuffled", "2-3", "renamed", "4-5-6", "random", "7-8-9"]
    assert [t.name for t in stream] == names
    for n in (1, 3, 5):
        assert stream[n].X_train.shape == stream[n + 1].X_train.shape
        assert sorted(set(stream[n].y_train)) == sorted(set(stream[n + 1].y_train))


def test_a_task_on_its_own_is_the_same_whatever_comes_before():
    tasks = load_digits_tasks(random_state=0)
    ahead = follow_alone(LifelongPLDA(64), tasks, DIGITS, 0)
    back = follow_alone(LifelongPLDA(64), tasks[::-1], DIGITS, 0)
    assert ahead[-1].errors == back[-1].errors[::-1]
    assert ahead[0].errors[0] == ahead[3].errors[0]
    assert np.isnan(ahead[0].errors[1:]).all()
    assert ahead[3].state_bytes > ahead[0].state_bytes


def test_a_stream_without_its_ruined_tasks_is_that_of_the_honest_ones():
    tasks = load_digits_tasks(random_state=0)
    ruined = [ruined_task(tasks[0], how, np.random.default_rng(0)) for how in RUINED[:2]]
    follow = partial(follow_learner, [LifelongPLDA(64)])
    found = follow_without_ruined(follow, [ruined[0], *tasks[:2], ruined[1], tasks[2]], DIGITS, 0)
    plain = follow(tasks[:3], DIGITS, 0)
    assert np.isnan(found[0].errors).all()
    assert [step.errors[1] for step in found[1:]] == [plain[n].errors[0] for n in (0, 1, 1, 2)]
    assert found[4].errors[2] == plain[2].errors[1]
    assert found[4].errors[4] == plain[2].errors[2]
    assert all(np.isnan(step.errors[3]) for step in found)


def test_a_committed_split_is_found_again():
    try:
        load_usps_tasks(random_state=0, download_if_missing=False)
    except OSError as error:
        pytest.skip(str(error))
    stored = read_rows(RESULTS / "transfer-streams-usps.csv")
    for system in ("alone", "shared"):
        lines = [r for r in stored if (r["split"], r["system"]) == ("101", system)]
        for row, line in zip(run_unit("usps", 101, 0, system), lines, strict=True):
            mine, theirs = (np.array(e.split(), float) for e in (row.errors, line["errors"]))
            np.testing.assert_allclose(mine, theirs, atol=2e-3)
            assert json.loads(line["parameters"]) == json.loads(row.parameters)


def test_every_study_names_systems_that_can_be_followed():
    for study in STUDIES.values():
        assert set(study.systems) <= set(FOLLOWERS)
        assert set(study.datasets) <= set(transfer.STREAMS)


def test_class_means_are_asked_at_the_end_and_give_the_nearest_mean():
    tasks = ordered_tasks("digits-few", 3, 0)
    rows = [vars(row) for row in run_unit("digits-few", 3, 0, "class means")]
    assert {row["errors"] for row in rows[:-1]} == {""}
    with pytest.raises(ValueError, match="finish the run"):
        error_matrices(rows[:-1], "class means")
    (R,) = error_matrices(rows, "class means")
    assert np.isnan(R[:-1]).all()
    last = follow_class_means(tasks, transfer.STREAMS["digits-few"], 3)[-1]
    np.testing.assert_allclose(R[-1], 100 * np.array(last.errors), atol=1e-3)
    for task, error in zip(tasks, R[-1], strict=True):
        labels = np.unique(task.y_train)
        means = np.array([task.X_train[task.y_train == label].mean(axis=0) for label in labels])
        nearest = labels[cdist(task.X_test, means).argmin(axis=1)]
        assert error == pytest.approx(100 * np.mean(nearest != task.y_test), abs=1e-3)
