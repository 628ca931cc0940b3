# Generated from book/experiments.ipynb by tools/tangle.py: edit the chapter.
"""Experiments of the book on real data: ``python -m lml.studies run usps``.

Every run writes one row for each (split, system, task) into ``results/NAME.csv`` as soon
as it is finished, and a second call goes on where the first one was stopped.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from sklearn.model_selection import KFold

from lml.datasets import (
    Task,
    load_digits_tasks,
    load_isolet_tasks,
    load_sentiment_tasks,
    load_usps_tasks,
)
from lml.neighbors import majority_vote
from lml.studies.comparison import comparison_figure, read_paper, results_table
from lml.studies.results import (
    answers_text,
    append_rows,
    finished,
    locked,
    open_results,
    read_rows,
    software_versions,
)
from lml.studies.systems import SYSTEMS, Fitted
from lml.utils.validation import one_of, whole

__all__ = [
    "DATASETS",
    "Protocol",
    "Row",
    "chosen_names",
    "report",
    "run_experiment",
    "run_missing",
    "run_one",
    "search",
    "task_errors",
    "tune",
    "verify",
]


# book/experiments.ipynb#the-protocol
@dataclass(frozen=True)
class Protocol:
    """How a data set is loaded and how parameters are chosen on it."""

    load: Callable[..., list[Task]]  # seed of the split to list of tasks, argument random_state
    n_neighbors: tuple[int, ...] = (1,)  # numbers of neighbors to choose from
    n_folds: int | None = None  # folds of the learning rows; None: the split's validation rows
    shared_labels: bool = False  # a label means the same in every task
    binary: bool = False  # every task has two classes

    def systems(self) -> list[str]:
        """Names of the systems that have a row for the data set."""
        kind = (self.shared_labels, self.binary)
        return [name for name, system in SYSTEMS.items() if system.applies(*kind)]

    def final(self, tasks: Sequence[Task]) -> list[Task]:
        """Tasks as the final model learns them: where folds choose, with the validation rows."""
        if self.n_folds is not None:
            return [t.with_validation() for t in tasks]
        return list(tasks)

    def folds(self, tasks: Sequence[Task], seed: int) -> list[list[Task]]:
        """Lists of tasks without test rows, to learn on and to ask about."""
        if self.n_folds is None:
            return [[replace(t, X_test=t.X_test[:0], y_test=t.y_test[:0]) for t in tasks]]
        folds: list[list[Task]] = [[] for _ in range(self.n_folds)]
        cuts = KFold(self.n_folds, shuffle=True, random_state=seed)
        for task in self.final(tasks):
            X = task.X_train
            y = task.y_train
            for fold, (learned, asked) in zip(folds, cuts.split(X), strict=True):
                rows = X - X[learned].mean(axis=0) if task.centered else X
                part = replace(
                    task,
                    X_train=rows[learned],
                    y_train=y[learned],
                    X_validation=rows[asked],
                    y_validation=y[asked],
                    X_test=rows[:0],
                    y_test=y[:0],
                )
                fold.append(part)
        return folds


# book/experiments.ipynb#the-protocol
_letters = partial(Protocol, n_neighbors=(1, 3, 5), shared_labels=True)
#: Data set name to its protocol.
DATASETS = {
    "digits": Protocol(load_digits_tasks, (1, 3)),  # small, needs no download
    "usps": Protocol(load_usps_tasks, n_folds=5),
    "isolet": _letters(partial(load_isolet_tasks, "rows")),
    "isolet-speakers": _letters(partial(load_isolet_tasks, "speakers")),
    "sentiment": Protocol(
        partial(load_sentiment_tasks, "words200"), (3,), shared_labels=True, binary=True
    ),
}


# book/experiments.ipynb#choosing-parameters
def task_errors(fitted: Fitted, task: Task, part: str, n_neighbors: Sequence[int]) -> list[float]:
    """Error on a part of a task for each number of neighbors."""
    X = getattr(task, f"X_{part}")
    y = getattr(task, f"y_{part}")
    labels = fitted.labels(X, task.name, max(n_neighbors))
    return [float(np.mean(majority_vote(labels[:, :k]) != y)) for k in n_neighbors]


# book/experiments.ipynb#choosing-parameters
def search(
    errors_of: Callable[[dict[str, Any]], list[float]],
    parameters: dict[str, Any],
    stages: list[list[dict[str, Any]]],
) -> tuple[dict[str, Any], list[float]]:
    """The best setting of the last stage and its errors, stage after stage.

    Parameters
    ----------
    errors_of : callable
        A setting to its errors, of which the smallest counts.
    parameters : dict
        What all settings have in common.
    stages : list of list of dict
        Each stage tries its changes of what the stages before have chosen.

    Notes
    -----
    Derived in chapter 39 (systems), eq. (systems-stages).
    """
    chosen = {k: v for stage in reversed(stages) for k, v in stage[0].items()} | parameters
    known = {}
    for stage in stages or [[{}]]:
        settings = [chosen | change for change in stage]
        for setting in settings:
            if str(setting) not in known:
                known[str(setting)] = errors_of(setting)
        errors = [known[str(setting)] for setting in settings]
        lowest = np.nan_to_num(np.min(errors, axis=1), nan=np.inf)
        best = int(np.argmin(lowest))  # of equal ones the first
        chosen = settings[best]
    return chosen, errors[best]


# book/experiments.ipynb#choosing-parameters
def tune(
    system: str,
    tasks: Sequence[Task],
    protocol: Protocol,
    seed: int,
    base: dict[str, Any] | None = None,
) -> tuple[dict[str, Any], int, float]:
    """The parameters and the number of neighbors with the smallest validation error.

    Parameters
    ----------
    system : str
        A key of `lml.studies.systems.SYSTEMS`.
    tasks : list of lml.datasets.Task
        Their test rows are not looked at.
    protocol : Protocol
        Folds, and numbers of neighbors to choose from.
    seed : int
        Seed of the folds and of the learners.
    base : dict or None, default=None
        The parameters chosen for the system's base; None chooses them first.

    Returns
    -------
    parameters : dict
    n_neighbors : int
        0 for a system without neighbors.
    validation_error : float

    Raises
    ------
    ValueError
        If the system is not known.

    Notes
    -----
    Derived in chapter 40 (experiments), eq. (experiments-validation).
    """
    one_of(*SYSTEMS).check("system", system)
    row = SYSTEMS[system]
    folds = protocol.folds(tasks, seed)
    if row.base is not None and base is None:
        base = tune(row.base, tasks, protocol, seed)[0]
    numbers = protocol.n_neighbors if row.votes else (1,)
    fits: dict[str, Any] = {}

    def errors_of(setting: dict[str, Any]) -> list[float]:
        """Mean error over folds and tasks for each number of neighbors."""
        errors = []
        for fold in folds:
            fitted = row.fit(fold, seed, fits, **setting)
            errors += [task_errors(fitted, t, "validation", numbers) for t in fold]
        return np.mean(errors, axis=0).tolist()

    parameters, errors = search(errors_of, base or {}, row.stages(tasks[0].X_train.shape[1]))
    best = int(np.argmin(errors))
    return parameters, numbers[best] if row.votes else 0, float(errors[best])


# book/experiments.ipynb#one-result
@dataclass(frozen=True, kw_only=True)
class Row:
    """One result: the error of one system on one task of one split, and what it took."""

    dataset: str
    split: int
    system: str
    task: str
    error: float  # share of wrong answers on the test rows
    validation_error: float  # of the chosen parameters, mean over folds and tasks
    n_neighbors: int  # 0: a classifier
    parameters: str  # JSON
    n_train: int
    n_test: int
    seconds: float  # training of the final model, all tasks
    total_seconds: float  # with the choice of parameters and the test
    state_bytes: int  # what the learner keeps, reference rows excluded
    seed: int  # of the split, the folds and the learners
    versions: str = field(default_factory=software_versions)
    wrong: str  # which test samples got a wrong answer, by `answers_text`


# book/experiments.ipynb#one-result
def run_one(dataset: str, split: int, system: str, base: dict[str, Any] | None = None) -> list[Row]:
    """Tune one system on one split, refit it, and measure it on the test rows of each task."""
    one_of(*DATASETS).check("dataset", dataset)
    started = time.perf_counter()
    protocol = DATASETS[dataset]
    tasks = protocol.load(random_state=split)
    parameters, k, validation_error = tune(system, tasks, protocol, split, base)
    tasks = protocol.final(tasks)
    begun = time.perf_counter()
    fitted = SYSTEMS[system].fit(tasks, split, {}, **parameters)  # nothing is recalled
    learned = time.perf_counter()
    wrong = [majority_vote(fitted.labels(t.X_test, t.name, max(k, 1))) != t.y_test for t in tasks]
    ended = time.perf_counter()
    return [
        Row(
            dataset=dataset,
            split=split,
            system=system,
            task=t.name,
            error=round(float(wrong_here.mean()), 6),
            validation_error=round(validation_error, 6),
            n_neighbors=k,
            parameters=json.dumps(parameters),
            n_train=len(t.y_train),
            n_test=len(t.y_test),
            seconds=round(learned - begun, 3),
            total_seconds=round(ended - started, 3),
            state_bytes=fitted.nbytes,
            seed=split,
            wrong=answers_text(wrong_here),
        )
        for t, wrong_here in zip(tasks, wrong, strict=True)
    ]


# book/experiments.ipynb#running-stopping-and-going-on
def _seconds_left(left: Sequence[str], seconds: Mapping[str, Sequence[float]], width: int) -> float:
    """Estimate from the systems of the jobs left and the times of finished jobs by system."""
    anyone = np.mean([np.mean(times) for times in seconds.values()]) if seconds else np.nan
    return sum(float(np.mean(seconds.get(system, anyone))) for system in left) / width


# book/experiments.ipynb#running-stopping-and-going-on
def _timed(
    unit: tuple[Any, ...], call: Callable[[], Sequence[Any]]
) -> tuple[tuple[Any, ...], Sequence[Any], float]:
    """What a call returns, with its unit and its time."""
    started = time.perf_counter()
    rows = call()
    return unit, rows, time.perf_counter() - started


def run_missing(
    plan: Mapping[Path, Mapping[tuple[Any, ...], Callable[[], Sequence[Any]]]],
    row_type: type,
    key: Sequence[str],
    n_jobs: int | None = None,
    progress: bool = True,
) -> list[Path]:
    """Run the jobs that results files lack, and write the rows of each as soon as it is done.

    Parameters
    ----------
    plan : dict of pathlib.Path to dict
        Results files of one folder, each with its jobs: what numbers a job, and a call that returns
        its rows.
    row_type : type
        Dataclass of the rows.
    key : sequence of str
        Columns that number the jobs, "system" among them.
    n_jobs : int or None, default=None
        Calls at a time, in joblib's sense: None is one, or what a surrounding
        `joblib.parallel_config` says.
    progress : bool, default=True
        Show a progress bar.

    Returns
    -------
    list of pathlib.Path
        The files.

    Raises
    ------
    BlockingIOError
        If another run writes into the folder.
    ValueError
        If a file has other columns. Nothing has been run then.

    Notes
    -----
    Derived in chapter 40 (experiments), eq. (experiments-remaining).
    """
    (folder,) = {path.parent for path in plan}
    with locked(folder):
        for path in plan:
            open_results(path, row_type)
        for path, calls in plan.items():
            _run_file(path, calls, key, n_jobs, progress)
    return list(plan)


def _run_file(
    path: Path,
    calls: Mapping[tuple[Any, ...], Callable[[], Sequence[Any]]],
    key: Sequence[str],
    n_jobs: int | None,
    progress: bool,
) -> None:
    """Run the jobs that one results file lacks."""
    try:
        from tqdm import tqdm
    except ModuleNotFoundError:
        said = "studies show their progress with tqdm: install it, or this package's extra progress"
        raise ModuleNotFoundError(said) from None
    done = finished(path, *key)
    left = {unit: call for unit, call in calls.items() if tuple(map(str, unit)) not in done}
    system = key.index("system")
    seconds: dict[str, list[float]] = {}
    for unit, rows in done.items():
        if "total_seconds" in rows[0]:
            seconds.setdefault(unit[system], []).append(float(rows[0]["total_seconds"]))
    width = joblib.effective_n_jobs(n_jobs)
    # one by one: a job that is handed over late sees what was written by then
    parallel = joblib.Parallel(n_jobs, pre_dispatch="n_jobs", return_as="generator_unordered")
    work = parallel(joblib.delayed(_timed)(unit, call) for unit, call in list(left.items()))
    with tqdm(total=len(left), desc=path.stem, disable=not progress) as bar:
        for unit, rows, elapsed in work:
            append_rows(path, [vars(row) for row in rows])
            del left[unit]
            seconds.setdefault(unit[system], []).append(elapsed)
            minutes = _seconds_left([u[system] for u in left], seconds, width) / 60
            bar.set_postfix_str(f"about {minutes:.0f} min left")
            bar.update()


# book/experiments.ipynb#running-stopping-and-going-on
def chosen_names(what: str, given: str | Sequence[str] | None, known: Sequence[str]) -> list[str]:
    """The names that are asked for, each once; all for None; an error for one not known."""
    names = [given] if isinstance(given, str) else list(known if given is None else given)
    if not names:
        raise ValueError(f"no {what} is given: name some of {tuple(known)}, or give None for all")
    for name in names:
        one_of(*known).check(what, name)
    return list(dict.fromkeys(names))


# book/experiments.ipynb#running-stopping-and-going-on
def run_experiment(
    dataset: str,
    systems: str | Sequence[str] | None = None,
    n_splits: int = 5,
    n_jobs: int | None = None,
    out: str | Path = "results",
    progress: bool = True,
) -> Path:
    """Run the missing (split, system) pairs of one data set and write them as they finish.

    Parameters
    ----------
    dataset : str
        A key of `DATASETS`.
    systems : str, sequence of str or None, default=None
        Names of systems that apply to the data set; None is all of them.
    n_splits : int, default=5
        Number of splits; split s has the seed s.
    n_jobs : int or None, default=None
        Pairs run at a time, through joblib and so with any of its backends.
    out : path-like, default="results"
        Folder of the results file.
    progress : bool, default=True
        Show a progress bar.

    Returns
    -------
    pathlib.Path
        The results file. Pairs that it already has are not run again.

    Raises
    ------
    ValueError
        If the data set or a system is not known, the system has no row for the data set,
        or the results file has other columns.
    BlockingIOError
        If another run writes into the folder.
    """
    one_of(*DATASETS).check("dataset", dataset)
    whole(1).check("n_splits", n_splits)
    names = chosen_names("system", systems, DATASETS[dataset].systems())
    path = Path(out) / f"{dataset}.csv"
    calls = {
        (split, name): partial(_run_pair, path, dataset, split, name)
        for split in range(n_splits)
        for name in names
    }
    run_missing({path: calls}, Row, ("split", "system"), n_jobs, progress)
    return path


def _run_pair(path: Path, dataset: str, split: int, system: str) -> list[Row]:
    """`run_one`, with the parameters of the base system if they are in the file by now."""
    base = finished(path, "split", "system").get((str(split), SYSTEMS[system].base or ""))
    return run_one(dataset, split, system, json.loads(base[0]["parameters"]) if base else None)


# book/experiments.ipynb#running-it-again
def verify(
    dataset: str,
    systems: str | Sequence[str] | None = None,
    n_splits: int = 1,
    n_jobs: int | None = None,
    out: str | Path = "results",
    progress: bool = True,
) -> tuple[int, list[tuple[str, ...]]]:
    """Run splits again and compare with the results file.

    Parameters
    ----------
    dataset, systems, n_splits, n_jobs, out, progress
        As in `run_experiment`. A pair that the file does not have counts as different.

    Returns
    -------
    n_same : int
        Rows that are equal in everything but times and versions.
    different : list of (split, system, task, column)
    """
    key = ("split", "system", "task")
    known = finished(Path(out) / f"{dataset}.csv", *key)
    if not known:
        raise FileNotFoundError(f"{out} has no results for {dataset!r} to compare with")
    with tempfile.TemporaryDirectory() as folder:
        path = run_experiment(dataset, systems, n_splits, n_jobs, folder, progress)
        again = finished(path, *key)
    free = {"seconds", "total_seconds", "versions"}
    different: list[tuple[str, ...]] = []
    for unit, (row, *_) in again.items():
        stored = known.get(unit, [{}])[0]
        changed = [name for name in row if name not in free and row[name] != stored.get(name)]
        if changed:
            different.append((*unit, ", ".join(changed)))
    return len(again) - len(different), different


# book/experiments.ipynb#the-report
def report(dataset: str, out: str | Path = "results") -> None:
    """Print the table of a data set; write it, and its figure, into the folder ``report``.

    Parameters
    ----------
    dataset : str
    out : path-like, default="results"
        Folder of the results file; the paper's numbers are shown if it has paper.csv.
    """
    from matplotlib.figure import Figure

    rows = read_rows(Path(out) / f"{dataset}.csv")
    paper = Path(out) / "paper.csv"
    if not rows:
        raise FileNotFoundError(f"{out} has no results for {dataset!r}: run the experiment first")
    printed = read_paper(paper) if paper.exists() else ()
    systems = [name for name in SYSTEMS if any(row["system"] == name for row in rows)]
    table = results_table(rows, systems, paper=printed, decimals=2)
    folder = Path(out) / "report"
    folder.mkdir(exist_ok=True)
    print(dataset, table, sep="\n")
    (folder / f"{dataset}.txt").write_text(f"{table}\n", encoding="utf-8")
    figure = Figure(figsize=(6, 0.8 + 0.32 * len(table.lines)), layout="constrained")
    comparison_figure(table, ax=figure.subplots())
    figure.savefig(folder / f"{dataset}.png", dpi=150)
