# Generated from book/ablations.ipynb by tools/tangle.py: edit the chapter.
"""The paper's three ablations on real data: ``python -m lml.studies.ablations run size``.

What a penalty on off-diagonal entries, the size of the dictionary and the number of learnt
tasks do to the error. Each writes ``results/ablation-NAME-DATASET.csv`` as it goes, goes on
where it was stopped, and takes the base learners' parameters from the runner's files.
"""

import argparse
import importlib
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from lml.baselines.offdiagonal import OffDiagonalLearner, TripletMap, hinge_code
from lml.datasets import Task
from lml.evaluation import evaluate_stream, knn_labels
from lml.lifelong import LifelongMetricLearner
from lml.metrics import FactoredMetric
from lml.oasis import OASIS
from lml.scml import SCML
from lml.studies.comparison import read_rows, split_errors
from lml.studies.experiments import DATASETS, Protocol, _versions, finished, repair, run_jobs
from lml.studies.systems import SYSTEMS, _Fits, _Recalled
from lml.triplets import nearest_triplets
from lml.utils.typing import Floats, Matrix

__all__ = [
    "ABLATIONS",
    "CODE_PENALTIES",
    "FRACTIONS",
    "OFF_DIAGONAL",
    "POLICIES",
    "SIZES",
    "STEP_SIZE",
    "Ablation",
    "PathPoint",
    "PenaltyRow",
    "SizeRow",
    "StepRow",
    "best_on_validation",
    "change_since_arrival",
    "chosen_for",
    "errors_by",
    "penalty_path",
    "run_ablation",
]


# book/ablations.ipynb#rows-of-results
@dataclass(frozen=True)
class _Result:
    """Columns that all ablations have."""

    dataset: str
    split: int
    system: str
    task: str
    error: float  # share of wrong answers on the test rows
    n_neighbors: int
    n_train: int
    n_test: int
    parameters: str  # JSON: what was taken over and is the same in all settings
    versions: str


# book/ablations.ipynb#rows-of-results
@dataclass(frozen=True)
class PenaltyRow(_Result):
    """Error of the off-diagonal learner on one task at one strength of its penalty."""

    fraction: float  # of the strength that makes the code diagonal
    validation_error: float
    off_diagonal: float  # share of the off-diagonal entries that are not zero
    gap: float  # duality gap, a bound of the objective's error


@dataclass(frozen=True)
class SizeRow(_Result):
    """Error of a lifelong learner on one task at one size of its dictionary."""

    n_components: int
    code_penalty: float
    validation_error: float
    captured: float  # share of the squared norm of the target, on arrival


# book/ablations.ipynb#rows-of-results
@dataclass(frozen=True)
class StepRow(_Result):
    """Error of a lifelong learner on one task after one number of learnt tasks."""

    old_tasks: str  # a key of POLICIES
    n_learnt: int  # 0: the base learner alone


# book/ablations.ipynb#rows-of-results
def chosen_for(
    dataset: str, split: int, system: str, folder: str | Path = "results"
) -> tuple[dict[str, Any], int]:
    """The parameters and the number of neighbours that the runner chose for a system.

    Parameters
    ----------
    dataset, system : str
        A key of `lml.studies.experiments.DATASETS`, and one of `lml.studies.experiments.SYSTEMS`.
    split : int
    folder : path-like, default="results"
        Where the runner's files are.

    Returns
    -------
    parameters : dict
    n_neighbors : int

    Raises
    ------
    FileNotFoundError
        If the runner has written nothing for the data set.
    ValueError
        If the system has not been run on the split.
    """
    path = Path(folder) / f"{dataset}.csv"
    remedy = f"run `python -m lml.studies.experiments run {dataset} --systems {system}` first"
    rows = read_rows(path)
    if not rows:
        raise FileNotFoundError(f"{path} is missing, and parameters are read there: {remedy}")
    own = [r for r in rows if (r["system"], r["split"]) == (system, str(split))]
    if not own:
        raise ValueError(f"{path} has no row of {system} on split {split}: {remedy}")
    return json.loads(own[0]["parameters"]), int(own[0]["n_neighbors"])


# book/ablations.ipynb#rows-of-results
@lru_cache(maxsize=1)
def _split(protocol: Protocol, split: int) -> tuple[list[Task], _Fits]:
    """Tasks of one split as the final models see them, and the fits made on them so far."""
    tasks = protocol.load(random_state=split)
    if protocol.n_folds is not None:
        tasks = [t.with_validation() for t in tasks]
    return tasks, _Fits()


def _error(
    metric: FactoredMetric, metric_type: str, task: Task, part: str, n_neighbors: int
) -> float:
    """Share of wrong answers on a part of a task; the training rows are the references."""
    X = getattr(task, f"X_{part}")
    y = getattr(task, f"y_{part}")
    known = task.X_train, task.y_train
    return float(np.mean(knn_labels(metric, metric_type, X, *known, n_neighbors) != y))


def _common(
    dataset: str,
    split: int,
    system: str,
    task: Task,
    error: float,
    n_neighbors: int,
    parameters: Mapping[str, Any],
) -> tuple[str, int, str, str, float, int, int, int, str, str]:
    """The columns of `_Result`, in their order."""
    counts = (round(error, 6), n_neighbors, len(task.y_train), len(task.y_test))
    return (dataset, split, system, task.name, *counts, json.dumps(parameters), _versions())


# book/ablations.ipynb#one-the-off-diagonal-penalty
#: Strengths of the penalty, as shares of the strength that makes a code diagonal.
FRACTIONS = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.0)
#: Off-diagonal learner to the system it is compared with, and its parameters.
OFF_DIAGONAL = {
    "off-diagonal-distance": ("scml", {"metric_type": "distance", "psd": True}),
    "off-diagonal-symmetric": ("scml", {"metric_type": "distance", "psd": False}),
    "off-diagonal-similarity": ("oasis", {"metric_type": "similarity", "psd": False}),
}


@dataclass(frozen=True)
class PathPoint:
    """What `penalty_path` returns for each fraction."""

    fraction: float
    metric: FactoredMetric
    objective: float
    gap: float
    off_diagonal: float  # share of the off-diagonal entries that are not zero


# book/ablations.ipynb#one-the-off-diagonal-penalty
def penalty_path(
    learner: Any, X: Matrix, y: NDArray[Any], fractions: Iterable[float] = FRACTIONS
) -> list[PathPoint]:
    """Codes of one task for falling strengths of the off-diagonal penalty.

    Parameters
    ----------
    learner : OffDiagonalLearner
        Everything but its penalty; it is not fitted.
    X : {array-like, CSR matrix} of shape (n_samples, n_features)
    y : array-like of shape (n_samples,)
    fractions : sequence of float, default=FRACTIONS
        Finite and at least 0, shares of the strength that makes the code diagonal.

    Returns
    -------
    list of PathPoint
        From the largest fraction to the smallest.

    Raises
    ------
    ValueError
        If there is no fraction or one is out of range, or rows and labels cannot be used.

    Notes
    -----
    Derived in chapter 18 (ablations), eq. (ablations-fraction). Paper: section V-C.1.
    """
    fractions = sorted({float(f) for f in fractions}, reverse=True)
    if not fractions or not 0 <= fractions[-1] <= fractions[0] < np.inf:
        raise ValueError(f"fractions are {fractions}: give finite numbers of at least 0")
    first = clone(learner).set_params(penalty=1.0).fit(X, y)
    plane, settings = _problem(learner, first.dictionary_, X, y)
    found = (first.code_, first.objective_, first.gap_)
    points = []
    for fraction in fractions:
        if fraction < 1:
            code = hinge_code(plane, fraction * first.strength_max_, *settings, found[0])
            found = (code.code, code.objective, code.gap)
        points.append(_path_point(fraction, first.dictionary_, *found))
    return points


# book/ablations.ipynb#one-the-off-diagonal-penalty
def _problem(
    learner: Any, dictionary: Floats, X: Matrix, y: NDArray[Any]
) -> tuple[TripletMap, tuple[float, bool, float, int]]:
    """The triplets of a learner's problem, and ridge, psd, tol and max_iter as it has them."""
    triplets = nearest_triplets(X, y, learner.n_targets, learner.n_impostors)
    plane = TripletMap(X @ dictionary.T, triplets, learner.metric_type)
    psd = learner.metric_type == "distance" if learner.psd is None else learner.psd
    return plane, (learner.ridge * (plane.size() or 1.0), psd, learner.tol, learner.max_iter)


def _path_point(
    fraction: float, dictionary: Floats, code: Floats, objective: float, gap: float
) -> PathPoint:
    off = np.count_nonzero(code) - np.count_nonzero(np.diag(code))
    share = off / max(code.size - len(code), 1)
    return PathPoint(fraction, FactoredMetric(0.0, dictionary, code), objective, gap, share)


# book/ablations.ipynb#one-the-off-diagonal-penalty
def _run_penalty(
    dataset: str, split: int, system: str, part: str, parameters: dict[str, Any], n_neighbors: int
) -> list[PenaltyRow]:
    """Rows of one task: its error along the path."""
    tasks, _ = _split(DATASETS[dataset], split)
    task = next(t for t in tasks if t.name == part)
    learner = OffDiagonalLearner(random_state=split, **parameters)
    rows = []
    for point in penalty_path(learner, task.X_train, task.y_train, FRACTIONS):
        asked = (point.metric, learner.metric_type, task)
        error, chosen_by = (_error(*asked, part, n_neighbors) for part in ("test", "validation"))
        common = _common(dataset, split, system, task, error, n_neighbors, parameters)
        measured = (round(chosen_by, 6), round(point.off_diagonal, 6), round(point.gap, 6))
        rows.append(PenaltyRow(*common, point.fraction, *measured))
    return rows


def _given_penalty(
    dataset: str, split: int, system: str, folder: str | Path
) -> tuple[dict[str, Any], int]:
    """The learner's own parameters, and k as it was chosen for what it is compared with."""
    base, parameters = OFF_DIAGONAL[system]
    return {**parameters, "n_components": 100}, chosen_for(dataset, split, base, folder)[1]


# book/ablations.ipynb#two-the-size-of-the-dictionary
#: Sizes of the dictionary.
SIZES = tuple(range(40, 201, 20))
#: Code penalties that are tried at every size.
CODE_PENALTIES = (0.0, 0.01, 0.1, 1.0, 10.0)
_ESTIMATORS = {"lifelong-oasis": OASIS, "lifelong-scml": SCML}


# book/ablations.ipynb#two-the-size-of-the-dictionary
def _run_size(
    dataset: str, split: int, system: str, part: int, parameters: dict[str, Any], n_neighbors: int
) -> list[SizeRow]:
    """Rows of one size: all tasks at all code penalties, after the last task."""
    tasks, fits = _split(DATASETS[dataset], split)
    base = _Recalled(_ESTIMATORS[system](random_state=split, **parameters), fits)
    rows = []
    for penalty in CODE_PENALTIES:
        learner = LifelongMetricLearner(base, part, penalty, random_state=split)
        for t in tasks:
            learner.partial_fit(t.X_train, t.y_train, task=t.name)
        for t in tasks:
            asked = (learner.task_metric(t.name), learner.metric_type_, t)
            error, chosen_by = (_error(*asked, p, n_neighbors) for p in ("test", "validation"))
            common = _common(dataset, split, system, t, error, n_neighbors, parameters)
            measured = (round(chosen_by, 6), round(learner.tasks_[t.name].captured, 6))
            rows.append(SizeRow(*common, part, penalty, *measured))
    return rows


# book/ablations.ipynb#two-the-size-of-the-dictionary
def best_on_validation(
    rows: Sequence[Mapping[str, Any]], column: str, within: Sequence[str] = ()
) -> list[Mapping[str, Any]]:
    """The rows at the value of a column that has the smallest validation error.

    Parameters
    ----------
    rows : list of dict
        As `lml.studies.comparison.read_rows` gives them.
    column : str
        What is chosen, once for each data set, split and system and for all their tasks.
    within : sequence of str, default=()
        Columns for each of whose values a choice of its own is made.

    Returns
    -------
    list of dict
        Of equal validation errors, the value that comes first in the file.

    Notes
    -----
    Derived in chapter 18 (ablations), eq. (ablations-chosen).
    """
    names = ("dataset", "split", "system", *within)
    errors: dict[tuple[Any, ...], dict[Any, list[float]]] = {}
    for r in rows:
        values = errors.setdefault(tuple(r[n] for n in names), {})
        values.setdefault(r[column], []).append(float(r["validation_error"]))
    best = {key: min(v, key=lambda a: np.mean(v[a])) for key, v in errors.items()}
    return [r for r in rows if r[column] == best[tuple(r[n] for n in names)]]


# book/ablations.ipynb#two-the-size-of-the-dictionary
def errors_by(
    rows: Sequence[Mapping[str, Any]],
    column: str,
    system: str,
    task: str = "average",
    measured: str = "error",
) -> dict[float, Floats]:
    """Errors over the splits for each value of a column, in per cent.

    Parameters
    ----------
    rows : list of dict
        As `lml.studies.comparison.read_rows` gives them, of one data set.
    column : str
        A column of numbers: fraction, n_components, n_learnt.
    system, task : str
        As in `lml.studies.comparison.split_errors`.
    measured : str, default="error"
        The column that is read.

    Returns
    -------
    dict of float to ndarray of shape (n_splits,)
        In the order of the values.

    Raises
    ------
    ValueError
        If there is no such row, or not every value has the same splits.
    """
    own = [{**r, "error": r[measured]} for r in rows if r["system"] == system]
    own = [r for r in own if task in (r["task"], "average")]
    values = sorted({float(r[column]) for r in own})
    splits = {v: {r["split"] for r in own if float(r[column]) == v} for v in values}
    if not own or len({frozenset(s) for s in splits.values()}) > 1:
        raise ValueError(
            f"splits of {system} by {column}: { {v: len(s) for v, s in splits.items()} }; every"
            " setting must have the same ones: run `python -m lml.studies.ablations run` to the end"
        )
    parts = {v: [r for r in own if float(r[column]) == v] for v in values}
    return {v: split_errors(part, system, task) for v, part in parts.items()}


# book/ablations.ipynb#three-the-number-of-learnt-tasks
#: What is kept of old tasks: name to parameters of the lifelong learner.
POLICIES: dict[str, dict[str, Any]] = {
    "metrics": {"old_tasks": "metrics"},
    "codes": {"old_tasks": "codes"},
    "gradients": {"old_tasks": "codes", "dictionary_loss": "hinge", "gradient_memory": 256},
}
#: Size and code penalty with which the number of tasks is varied.
STEP_SIZE: dict[str, Any] = {"n_components": 120, "code_penalty": 0.01}


# book/ablations.ipynb#three-the-number-of-learnt-tasks
def _run_tasks(
    dataset: str, split: int, system: str, part: str, parameters: dict[str, Any], n_neighbors: int
) -> list[StepRow]:
    """Rows of one policy: the base learner alone, and every task after every step."""
    tasks, fits = _split(DATASETS[dataset], split)
    base = _Recalled(_ESTIMATORS[system](random_state=split, **parameters), fits)
    learner = LifelongMetricLearner(base, random_state=split, **STEP_SIZE, **POLICIES[part])
    alone = [base.fit(t.X_train, t.y_train).metric_ for t in tasks]
    kind = base.metric_type
    errors = [[_error(M, kind, t, "test", n_neighbors) for M, t in zip(alone, tasks)]]
    errors += evaluate_stream(learner, tasks, n_neighbors=n_neighbors).errors.tolist()
    rows = []
    for step, after in enumerate(errors):
        for t, error in list(zip(tasks, after))[: step or None]:
            common = _common(dataset, split, system, t, error, n_neighbors, parameters)
            rows.append(StepRow(*common, part, step))
    return rows


# book/ablations.ipynb#three-the-number-of-learnt-tasks
def change_since_arrival(rows: Sequence[Mapping[str, Any]], system: str) -> Floats:
    """Mean change of the earlier tasks' errors from their arrival to the end, in points.

    Parameters
    ----------
    rows : list of dict
        Step rows of one data set and one policy, as `lml.studies.comparison.read_rows` gives them;
        the tasks of a split stand in the order of their arrival.
    system : str

    Returns
    -------
    ndarray of shape (n_splits,)
        Negative where later tasks have improved earlier ones.

    Notes
    -----
    Derived in chapter 18 (ablations), eq. (ablations-change). Paper: section V-C.3.
    """
    names = list(dict.fromkeys(r["task"] for r in rows if r["system"] == system))
    curves = [errors_by(rows, "n_learnt", system, name) for name in names[:-1]]
    gaps = [c[float(len(names))] - c[float(t)] for t, c in enumerate(curves, start=1)]
    return np.mean(gaps, axis=0)


# book/ablations.ipynb#running-stopping-and-going-on
@dataclass(frozen=True)
class Ablation:
    """What is run for one of the three questions."""

    datasets: tuple[str, ...]
    systems: tuple[str, ...]
    column: str  # the column whose values tell the units of a split and system apart
    parts: Callable[[list[str]], Iterable[Any]]  # names of the tasks to these values
    # (dataset, split, system, folder) to parameters and n_neighbors
    given: Callable[..., tuple[dict[str, Any], int]]
    # (dataset, split, system, part, parameters, n_neighbors) to rows
    run: Callable[..., Sequence[Any]]
    n_rows: Callable[[int], int]  # number of tasks to the rows of a unit


def _given_lifelong(
    dataset: str, split: int, system: str, folder: str | Path
) -> tuple[dict[str, Any], int]:
    """What was chosen for the base learner alone."""
    return chosen_for(dataset, split, SYSTEMS[system].base or system, folder)


# book/ablations.ipynb#running-stopping-and-going-on
#: Name of an ablation to what it is.
ABLATIONS = {
    "penalty": Ablation(
        ("isolet",), tuple(OFF_DIAGONAL), "task", lambda tasks: tasks,
        _given_penalty, _run_penalty, lambda n_tasks: len(FRACTIONS),
    ),
    "size": Ablation(
        ("sentiment",), tuple(_ESTIMATORS), "n_components", lambda tasks: SIZES,
        _given_lifelong, _run_size, lambda n_tasks: len(CODE_PENALTIES) * n_tasks,
    ),
    "tasks": Ablation(
        ("sentiment", "isolet", "usps"), tuple(_ESTIMATORS), "old_tasks", lambda tasks: POLICIES,
        _given_lifelong, _run_tasks, lambda n_tasks: n_tasks + n_tasks * (n_tasks + 1) // 2,
    ),
}  # fmt: skip


# book/ablations.ipynb#running-stopping-and-going-on
def _units(
    name: str, dataset: str, systems: Sequence[str] | None, n_repeats: int, folder: str | Path
) -> dict[tuple[int, str, Any], tuple[dict[str, Any], int]]:
    """Every unit (split, system, part) of an ablation to what it is given."""
    ablation = ABLATIONS[name]
    units: dict[tuple[int, str, Any], tuple[dict[str, Any], int]] = {}
    parts = ablation.parts([t.name for t in _split(DATASETS[dataset], 0)[0]])
    for split in range(n_repeats):
        for system in systems or ablation.systems:
            if system not in ablation.systems:
                raise ValueError(
                    f"system {system!r} has no part in {name!r}: use some of {ablation.systems}"
                )
            given = ablation.given(dataset, split, system, folder)
            units |= {(split, system, part): given for part in parts}
    return units


def _n_rows(ablation: Ablation, dataset: str) -> int:
    """Rows of a unit."""
    return ablation.n_rows(len(_split(DATASETS[dataset], 0)[0]))


# book/ablations.ipynb#running-stopping-and-going-on
def _missing(
    path: Path, column: str, units: Mapping[tuple[int, str, Any], tuple[dict[str, Any], int]]
) -> list[tuple[int, str, Any]]:
    """The units that a file lacks; those that it has must be made with what is given now."""
    done = finished(path, "split", "system", column)
    for (split, system, part), (parameters, k) in units.items():
        for row in done.get((str(split), system, str(part)), []):
            made = (row["parameters"], row["n_neighbors"])
            now = (json.dumps(parameters), str(k))
            if made != now:
                raise ValueError(
                    f"{path} has rows of {system} on split {split} made with {made}, but now"
                    f" {now} is chosen: move the file away and run again"
                )
    return [unit for unit in units if tuple(map(str, unit)) not in done]


# book/ablations.ipynb#running-stopping-and-going-on
def run_ablation(
    name: str,
    datasets: Sequence[str] | None = None,
    systems: Sequence[str] | None = None,
    n_repeats: int = 5,
    n_jobs: int | None = None,
    out: str | Path = "results",
    base: str | Path = "results",
    progress: bool = True,
) -> list[Path]:  # fmt: skip
    """Run the missing units of one ablation and write their rows as they finish.

    Parameters
    ----------
    name : {"penalty", "size", "tasks"}
    datasets, systems : sequence of str or None, default=None
        Some of those that `ABLATIONS` lists; None is all of them.
    n_repeats : int, default=5
        Number of splits; split s has the seed s.
    n_jobs : int or None, default=None
        Units run at a time, through joblib.
    out, base : path-like, default="results"
        Folder of the files ``ablation-NAME-DATASET.csv``, and folder of the runner's files,
        from which the base learners' parameters are taken.
    progress : bool, default=True
        Show a progress bar.

    Returns
    -------
    list of pathlib.Path
        A results file for each data set. Units that it already has are not run again.

    Raises
    ------
    FileNotFoundError, ValueError
        If the ablation is not known, a parameter is not in the runner's files, or a results
        file was made with other parameters. Nothing has been run then.
    """
    if name not in ABLATIONS:
        raise ValueError(f"ablation {name!r} is not known: use one of {list(ABLATIONS)}")
    ablation = ABLATIONS[name]
    work = {}
    names = datasets or ablation.datasets
    given = {dataset: _units(name, dataset, systems, n_repeats, base) for dataset in names}
    for dataset, units in given.items():
        path = Path(out) / f"ablation-{name}-{dataset}.csv"
        repair(path, ("split", "system", ablation.column), _n_rows(ablation, dataset))
        jobs = [(dataset, *unit, *units[unit]) for unit in _missing(path, ablation.column, units)]
        work[path] = [(job[2], partial(ablation.run, *job)) for job in jobs]
    for path, calls in work.items():
        run_jobs(path, calls, (), n_jobs, path.stem, progress)
    return list(work)


# book/ablations.ipynb#running-stopping-and-going-on
def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lml.studies.ablations")
    parser.add_argument("action", choices=["run"])
    parser.add_argument("names", nargs="+", choices=sorted(ABLATIONS))
    parser.add_argument("--repeats", type=int, default=5, help="number of splits")
    parser.add_argument("--jobs", type=int, help="units at a time")
    parser.add_argument("--out", default="results", help="folder of the results files")
    parser.add_argument("--base", default="results", help="folder of the runner's files")
    parser.add_argument("--datasets", nargs="+", choices=sorted(DATASETS))
    systems = sorted({system for a in ABLATIONS.values() for system in a.systems})
    parser.add_argument("--systems", nargs="+", choices=systems)
    return parser


# book/ablations.ipynb#running-stopping-and-going-on
def _main(argv: Sequence[str] | None = None) -> int:
    o = _parser().parse_args(argv)
    for name in o.names:
        run_ablation(name, o.datasets, o.systems, o.repeats, o.jobs, o.out, o.base)
    return 0


if __name__ == "__main__" and "__file__" in globals():  # run as a program, not in the book
    # the module of that name, and not this copy of it, is what workers know
    sys.exit(importlib.import_module("lml.studies.ablations")._main())
