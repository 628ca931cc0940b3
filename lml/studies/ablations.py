# Generated from book/ablations.ipynb by tools/tangle.py: edit the chapter.
"""The paper's three ablations on real data: ``python -m lml.studies ablations``.

What a penalty on off-diagonal entries, the size of the dictionary and what is kept of old tasks
do to the error. Each writes ``results/ablation-NAME-DATASET.csv`` as it goes, goes on where it
was stopped, and takes the base learners' parameters from files that are there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from lml.baselines.offdiagonal import OffDiagonalLearner, TripletMap, hinge_code
from lml.datasets import Task
from lml.dictionary import stretch_step
from lml.evaluation import evaluate_stream
from lml.lifelong import LifelongMetricLearner
from lml.metrics import FactoredMetric
from lml.oasis import OASIS
from lml.paper import DictionaryMetricLearner
from lml.scml import SCML
from lml.studies.comparison import split_errors
from lml.studies.experiments import DATASETS, Protocol, chosen_names, run_missing, task_errors
from lml.studies.results import Rows, finished, read_rows, software_versions
from lml.studies.systems import Recalled, by_neighbors
from lml.triplets import nearest_triplets
from lml.utils.typing import Floats, Matrix
from lml.utils.validation import encode_labels, one_of, optional, whole

__all__ = [
    "ABLATIONS",
    "DICTIONARIES",
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
    "Unit",
    "best_on_validation",
    "change_since_arrival",
    "chosen_for",
    "errors_by",
    "in_paper_dictionary",
    "in_stretched_dictionary",
    "penalty_path",
    "run_ablation",
]


# book/ablations.ipynb#three-ablations
@dataclass(frozen=True, kw_only=True)
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
    versions: str = field(default_factory=software_versions)


@dataclass(frozen=True, kw_only=True)
class PenaltyRow(_Result):
    """Error of the off-diagonal learner on one task at one strength of its penalty."""

    fraction: float  # of the strength that makes the code diagonal
    validation_error: float
    off_diagonal: float  # share of the off-diagonal entries that are not zero
    gap: float  # duality gap, a bound of the objective's error


@dataclass(frozen=True, kw_only=True)
class SizeRow(_Result):
    """Error on one task, after the last one, by its code in a dictionary of one size."""

    dictionary: str  # a key of DICTIONARIES
    n_components: int


@dataclass(frozen=True, kw_only=True)
class StepRow(_Result):
    """Error on one task after one number of learned tasks."""

    policy: str  # a key of POLICIES
    n_learnt: int  # 0: the base learner alone


# book/ablations.ipynb#three-ablations
def chosen_for(
    dataset: str, split: int, system: str, folder: str | Path = "results"
) -> tuple[dict[str, Any], int]:
    """Parameters and number of neighbors that were chosen for a system on a split.

    Parameters
    ----------
    dataset, system : str
        A key of `lml.studies.experiments.DATASETS`, and one of `lml.studies.systems.SYSTEMS`.
    split : int
        Below 100 a split of the tables, otherwise one of `lml.studies.transfer`.
    folder : path-like, default="results"
        Where the files are.

    Returns
    -------
    parameters : dict
    n_neighbors : int

    Raises
    ------
    FileNotFoundError
        If nothing has been written for the data set.
    ValueError
        If the system has not been run on the split.
    """
    if split < 100:
        path = Path(folder) / f"{dataset}.csv"
        remedy = f"run `python -m lml.studies run {dataset} --systems {system}` first"
    else:
        path = Path(folder) / f"transfer-tables-{dataset}.csv"
        remedy = f"run `python -m lml.studies transfer {dataset} --studies tables` first"
    rows = read_rows(path)
    if not rows:
        raise FileNotFoundError(f"{path} is missing, and parameters are read there: {remedy}")
    own = [r for r in rows if (r["system"], r["split"]) == (system, str(split))]
    if not own:
        raise ValueError(f"{path} has no row of {system} on split {split}: {remedy}")
    parameters = json.loads(own[-1]["parameters"])  # in a stream the last line has the choice
    k = parameters.pop("n_neighbors", own[-1].get("n_neighbors"))
    return parameters, int(k)


# book/ablations.ipynb#three-ablations
@lru_cache(maxsize=1)
def _split(protocol: Protocol, split: int) -> tuple[list[Task], dict[str, Any]]:
    """Tasks of one split as the final models see them, and the fits made on them so far."""
    return protocol.final(protocol.load(random_state=split)), {}


@dataclass(frozen=True)
class Unit:
    """A piece of an ablation that is run at once."""

    dataset: str
    split: int
    system: str
    part: Any  # a task, a size or a policy
    parameters: dict[str, Any]  # what is taken over and is the same in all settings
    n_neighbors: int

    def tasks(self) -> tuple[list[Task], dict[str, Any]]:
        """Tasks of the split, and the fits made on them so far."""
        return _split(DATASETS[self.dataset], self.split)

    def error(self, task: Task, metric: FactoredMetric, metric_type: str, part: str) -> float:
        """Share of wrong answers on a part of a task; the training rows are the references."""
        fitted = by_neighbors([task], {task.name: metric}, metric_type)
        return round(task_errors(fitted, task, part, [self.n_neighbors])[0], 6)

    def columns(self, task: Task) -> dict[str, Any]:
        """Columns that all rows of a task have."""
        own = {name: getattr(self, name) for name in ("dataset", "split", "system", "n_neighbors")}
        own["parameters"] = json.dumps(self.parameters)
        return own | {"task": task.name, "n_train": len(task.y_train), "n_test": len(task.y_test)}


# book/ablations.ipynb#first-ablation-the-off-diagonal-penalty
#: Strengths of the penalty, as shares of the strength that makes a code diagonal.
FRACTIONS = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.0)
_CONE = {"metric_type": "distance", "psd": True, "n_components": 100}
#: Off-diagonal learner to the system it is compared with, and its parameters.
OFF_DIAGONAL = {
    "off-diagonal-distance": ("scml", _CONE),
    "off-diagonal-symmetric": ("scml", _CONE | {"psd": False}),
    "off-diagonal-similarity": ("oasis", _CONE | {"metric_type": "similarity", "psd": False}),
}


@dataclass(frozen=True)
class PathPoint:
    """What `penalty_path` returns for each fraction."""

    fraction: float
    metric: FactoredMetric
    objective: float
    gap: float
    off_diagonal: float  # share of the off-diagonal entries that are not zero


# book/ablations.ipynb#first-ablation-the-off-diagonal-penalty
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
    Derived in chapter 19 (ablations), eq. (ablations-fraction). Paper: section V-C.1.
    """
    fractions = sorted({float(f) for f in fractions}, reverse=True)
    if not fractions or not 0 <= fractions[-1] <= fractions[0] < np.inf:
        raise ValueError(f"fractions are {fractions}: give finite numbers of at least 0")
    first = clone(learner).set_params(penalty=1.0).fit(X, y)
    L = first.dictionary_
    triplets = nearest_triplets(X, y, learner.n_targets, learner.n_impostors)
    plane = TripletMap(X @ L.T, triplets, learner.metric_type)
    given = {
        "ridge": learner.ridge * (plane.size() or 1.0),
        "psd": learner.metric_type == "distance" if learner.psd is None else learner.psd,
        "tol": learner.tol,
        "max_iter": learner.max_iter,
    }
    code = first.code_
    objective = first.objective_
    gap = first.gap_
    points = []
    for fraction in fractions:
        if fraction < 1:
            strength = fraction * first.strength_max_
            found = hinge_code(plane, strength, **given, init=code)  # from the last one
            code = found.code
            objective = found.objective
            gap = found.gap
        n_off = np.count_nonzero(code) - np.count_nonzero(np.diag(code))
        share = n_off / max(code.size - len(code), 1)
        metric = FactoredMetric(0.0, L, code)
        points.append(PathPoint(fraction, metric, objective, gap, off_diagonal=share))
    return points


# book/ablations.ipynb#first-ablation-the-off-diagonal-penalty
def _run_penalty(unit: Unit) -> list[PenaltyRow]:
    """Rows of one task: its error along the path."""
    tasks, _ = unit.tasks()
    task = next(t for t in tasks if t.name == unit.part)
    learner = OffDiagonalLearner(random_state=unit.split, **unit.parameters)
    return [
        PenaltyRow(
            **unit.columns(task),
            error=unit.error(task, point.metric, learner.metric_type, "test"),
            fraction=point.fraction,
            validation_error=unit.error(task, point.metric, learner.metric_type, "validation"),
            off_diagonal=round(point.off_diagonal, 6),
            gap=round(point.gap, 6),
        )
        for point in penalty_path(learner, task.X_train, task.y_train, FRACTIONS)
    ]


# book/ablations.ipynb#first-ablation-the-off-diagonal-penalty
def best_on_validation(
    rows: Rows, column: str, within: Sequence[str] = ()
) -> list[Mapping[str, Any]]:
    """The rows at the value of a column that has the smallest validation error.

    Parameters
    ----------
    rows : list of dict
        As `lml.studies.results.read_rows` gives them.
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
    Derived in chapter 19 (ablations), eq. (ablations-chosen).
    """
    names = ("dataset", "split", "system", *within)
    errors: dict[tuple[Any, ...], dict[Any, list[float]]] = {}
    for r in rows:
        values = errors.setdefault(tuple(r[n] for n in names), {})
        values.setdefault(r[column], []).append(float(r["validation_error"]))
    best = {key: min(v, key=lambda a: np.mean(v[a])) for key, v in errors.items()}
    return [r for r in rows if r[column] == best[tuple(r[n] for n in names)]]


# book/ablations.ipynb#second-ablation-the-size-of-the-dictionary
#: Sizes of the dictionary, as far as the data set has so many features.
SIZES = (10, 20, 40, 80, 120, 200)
_ESTIMATORS = {"oasis": OASIS, "scml": SCML}


def _base_learner(unit: Unit) -> Recalled:
    """The base learner of a unit; what it has learned on the split is recalled."""
    _, fits = unit.tasks()
    return Recalled(_ESTIMATORS[unit.system](random_state=unit.split, **unit.parameters), fits)


def in_paper_dictionary(
    base: Any, tasks: Sequence[Task], seed: int, size: int, **moves: Any
) -> dict[str, FactoredMetric]:
    """Metrics of all tasks by the paper's algorithm; `moves` says how the dictionary moves."""
    learner = DictionaryMetricLearner(base, size, random_state=seed, **moves)
    for t in tasks:
        learner.partial_fit(t.X_train, t.y_train, task=t.name)
    return {t.name: learner.task_metric(t.name) for t in tasks}


# book/ablations.ipynb#second-ablation-the-size-of-the-dictionary
def in_stretched_dictionary(
    base: Any, tasks: Sequence[Task], seed: int, size: int
) -> dict[str, FactoredMetric]:
    """Metrics of all tasks in a dictionary that each task moves in closed form; no sample is kept."""
    first = tasks[0]
    start = DictionaryMetricLearner(base, size, dictionary_steps=0, random_state=seed)
    dictionary = start.partial_fit(first.X_train, first.y_train, task=first.name).dictionary_
    stretch = np.zeros(len(dictionary))
    codes: dict[str, Floats] = {}
    for t in tasks:
        numbers, _ = encode_labels(t.y_train)  # as there, so that the same metric is recalled
        target = clone(base).fit(t.X_train, numbers).metric_
        moved, stretch = stretch_step(dictionary, stretch, target)
        # old metrics stay, as far as the moved rows hold them
        change = moved @ dictionary.T
        codes = {name: change @ code @ change.T for name, code in codes.items()}
        codes[t.name] = target.project(moved)
        dictionary = moved
    return {name: FactoredMetric(0.0, dictionary, code) for name, code in codes.items()}


# book/ablations.ipynb#second-ablation-the-size-of-the-dictionary
#: How the dictionary moves: name to the metrics of all tasks, given base, tasks, seed and size.
DICTIONARIES: dict[str, Callable[..., dict[str, FactoredMetric]]] = {
    "first": partial(in_paper_dictionary, dictionary_steps=0),
    "gradients": in_paper_dictionary,
    "gradients, no samples": partial(in_paper_dictionary, keep_samples=False),
    "closed form": in_stretched_dictionary,
}


# book/ablations.ipynb#second-ablation-the-size-of-the-dictionary
def _run_size(unit: Unit) -> list[SizeRow]:
    """Rows of one way to move the dictionary: all tasks at all sizes, after the last task."""
    tasks, _ = unit.tasks()
    base = _base_learner(unit)
    n_features = tasks[0].X_train.shape[1]
    rows = []
    for size in [d for d in SIZES if d <= n_features]:
        metrics = DICTIONARIES[unit.part](base, tasks, unit.split, size)
        for t in tasks:
            row = SizeRow(
                **unit.columns(t),
                error=unit.error(t, metrics[t.name], base.estimator.metric_type, "test"),
                dictionary=unit.part,
                n_components=size,
            )
            rows.append(row)
    return rows


# book/ablations.ipynb#second-ablation-the-size-of-the-dictionary
def errors_by(
    rows: Rows,
    column: str,
    system: str,
    task: str = "average",
    measured: str = "error",
) -> dict[float, Floats]:
    """Errors over the splits for each value of a column, in per cent.

    Parameters
    ----------
    rows : list of dict
        As `lml.studies.results.read_rows` gives them, of one data set.
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
            " setting must have the same ones: run `python -m lml.studies ablations` to the end"
        )
    parts = {v: [r for r in own if float(r[column]) == v] for v in values}
    return {v: split_errors(part, system, task) for v, part in parts.items()}


# book/ablations.ipynb#third-ablation-what-is-kept-of-old-tasks
def _in_coordinates(base: Any, random_state: int, **size: Any) -> LifelongMetricLearner:
    """The lifelong learner; it has no size, and takes as much from other tasks as it finds good."""
    return LifelongMetricLearner(base, random_state=random_state)


#: What is kept of old tasks: name to a learner, given base learner, seed, size and code penalty.
POLICIES: dict[str, Callable[..., Any]] = {
    "all samples": DictionaryMetricLearner,
    "no samples": partial(DictionaryMetricLearner, keep_samples=False),
    "coordinates": _in_coordinates,
}
#: Size and code penalty with which the number of tasks is varied.
STEP_SIZE: dict[str, Any] = {"n_components": 120, "code_penalty": 0.01}


# book/ablations.ipynb#third-ablation-what-is-kept-of-old-tasks
def _run_tasks(unit: Unit) -> list[StepRow]:
    """Rows of one policy: the base learner alone, and every task after every step."""
    tasks, _ = unit.tasks()
    base = _base_learner(unit)
    metrics = [base.fit(t.X_train, t.y_train).metric_ for t in tasks]
    alone = [unit.error(t, M, base.metric_type, "test") for t, M in zip(tasks, metrics)]
    learner = POLICIES[unit.part](base, random_state=unit.split, **STEP_SIZE)
    stream = evaluate_stream(learner, tasks, n_neighbors=unit.n_neighbors)
    return [
        StepRow(**unit.columns(t), error=round(error, 6), policy=unit.part, n_learnt=n_learnt)
        for n_learnt, errors in enumerate([alone, *stream.errors.tolist()])
        for t, error in zip(tasks[: n_learnt or None], errors)
    ]


# book/ablations.ipynb#third-ablation-what-is-kept-of-old-tasks
def change_since_arrival(rows: Rows, system: str) -> Floats:
    """Mean change of the earlier tasks' errors from their arrival to the end, in points.

    Parameters
    ----------
    rows : list of dict
        Step rows of one data set and one policy, as `lml.studies.results.read_rows` gives them;
        the tasks of a split stand in the order of their arrival.
    system : str

    Returns
    -------
    ndarray of shape (n_splits,)
        Negative where later tasks have improved earlier ones.

    Notes
    -----
    Derived in chapter 19 (ablations), eq. (ablations-change). Paper: section V-C.3.
    """
    names = list(dict.fromkeys(r["task"] for r in rows if r["system"] == system))
    curves = [errors_by(rows, "n_learnt", system, name) for name in names[:-1]]
    gaps = [c[float(len(names))] - c[float(t)] for t, c in enumerate(curves, start=1)]
    return np.mean(gaps, axis=0)


# book/ablations.ipynb#running-stopping-and-going-on
@dataclass(frozen=True, kw_only=True)
class Ablation:
    """What is run for one of the three questions."""

    datasets: tuple[str, ...]
    # to the system of the tables whose choices are taken over, and own parameters
    systems: Mapping[str, tuple[str, dict[str, Any] | None]]
    row_type: type  # of the rows of its files
    column: str  # the column whose values tell the units of a split and system apart
    parts: Callable[[list[str]], Iterable[Any]]  # names of the tasks to these values
    run: Callable[[Unit], Sequence[Any]]
    splits: Sequence[int] = range(5)

    def given(self, dataset: str, split: int, system: str, folder: str | Path) -> tuple[Any, int]:
        """The parameters that a system has on a split, and its number of neighbors."""
        base, own = self.systems[system]
        parameters, k = chosen_for(dataset, split, base, folder)
        return parameters if own is None else own, k


_PLAIN = {name: (name, None) for name in _ESTIMATORS}
_TABLES = ("sentiment", "isolet", "usps")
#: Name of an ablation to what it is.
ABLATIONS = {
    "penalty": Ablation(
        datasets=("isolet",), systems=OFF_DIAGONAL, row_type=PenaltyRow,
        column="task", parts=lambda tasks: tasks, run=_run_penalty,
    ),
    "size": Ablation(
        datasets=_TABLES, systems=_PLAIN, row_type=SizeRow, splits=range(100, 120),
        column="dictionary", parts=lambda tasks: DICTIONARIES, run=_run_size,
    ),
    "tasks": Ablation(
        datasets=_TABLES, systems=_PLAIN, row_type=StepRow,
        column="policy", parts=lambda tasks: POLICIES, run=_run_tasks,
    ),
}  # fmt: skip


# book/ablations.ipynb#running-stopping-and-going-on
def run_ablation(
    name: str,
    datasets: str | Sequence[str] | None = None,
    systems: str | Sequence[str] | None = None,
    n_splits: int | None = None,
    n_jobs: int | None = None,
    out: str | Path = "results",
    base: str | Path = "results",
    progress: bool = True,
) -> list[Path]:  # fmt: skip
    """Run the missing units of one ablation and write their rows as they finish.

    Parameters
    ----------
    name : {"penalty", "size", "tasks"}
    datasets, systems : str, sequence of str or None, default=None
        None is all that `ABLATIONS` lists.
    n_splits : int or None, default=None
        The first so many of the ablation's splits; None is all of them.
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
    BlockingIOError
        If another run writes into the folder.
    """
    one_of(*ABLATIONS).check("ablation", name)
    optional(whole(1)).check("n_splits", n_splits)
    ablation = ABLATIONS[name]
    key = ("split", "system", ablation.column)
    names = chosen_names("system", systems, list(ablation.systems))
    plan: dict[Path, dict[tuple[Any, ...], Any]] = {}
    for dataset in chosen_names(
        "dataset", ablation.datasets if datasets is None else datasets, list(DATASETS)
    ):
        path = Path(out) / f"ablation-{name}-{dataset}.csv"
        done = finished(path, *key)
        tasks, _ = _split(DATASETS[dataset], 0)
        plan[path] = {}
        for split, system in product(ablation.splits[:n_splits], names):
            parameters, k = ablation.given(dataset, split, system, base)
            for part in ablation.parts([t.name for t in tasks]):
                now = (json.dumps(parameters), str(k))
                for row in done.get((str(split), system, str(part)), ()):
                    made = (row["parameters"], row["n_neighbors"])
                    if made != now:
                        raise ValueError(
                            f"{path} has rows of {system} on split {split} made with {made}, but"
                            f" now {now} is chosen: move the file away and run again"
                        )
                unit = Unit(dataset, split, system, part, parameters, k)
                plan[path][split, system, part] = partial(ablation.run, unit)
    return run_missing(plan, ablation.row_type, key, n_jobs, progress)
