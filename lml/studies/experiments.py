# Generated from book/experiments.ipynb by tools/tangle.py: edit the chapter.
"""Experiments of the book on real data: ``python -m lml.studies.experiments run usps``.

Every run writes one row for each (split, system, task) into ``results/NAME.csv`` as soon
as it is finished, and a second call goes on where the first one was stopped.
"""

import argparse
import contextlib
import csv
import json
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import scipy
import sklearn
from sklearn.model_selection import KFold
from tqdm import tqdm

from lml.datasets import (
    Task,
    load_digits_tasks,
    load_isolet_tasks,
    load_sentiment_tasks,
    load_usps_tasks,
)
from lml.neighbors import majority_vote
from lml.studies.comparison import comparison_figure, read_paper, read_rows, results_table
from lml.studies.systems import SYSTEMS, Fitted, System, _Fits

__all__ = [
    "DATASETS",
    "Protocol",
    "Row",
    "append_rows",
    "finished",
    "main",
    "open_results",
    "repair",
    "report",
    "run_experiment",
    "run_jobs",
    "run_one",
    "tune",
    "verify",
]


# book/experiments.ipynb#the-protocol
@dataclass(frozen=True)
class Protocol:
    """How a data set is loaded and how parameters are chosen on it."""

    load: Callable[..., list[Task]]  # seed of the split to list of tasks, argument random_state
    n_neighbors: tuple[int, ...] = (1,)  # numbers of neighbours to choose from
    n_folds: int | None = None  # folds of the learning rows; None: the split's validation rows
    shared_labels: bool = False  # a label means the same in every task
    binary: bool = False  # every task has two classes


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


# book/experiments.ipynb#the-protocol
def _protocol(dataset: str) -> Protocol:
    """The protocol of a data set, or an error that lists the known ones."""
    if dataset not in DATASETS:
        raise ValueError(f"data set {dataset!r} is not known: use one of {list(DATASETS)}")
    return DATASETS[dataset]


def _applicable(dataset: str) -> list[str]:
    """Names of the systems that have a row for a data set."""
    kind = DATASETS[dataset].shared_labels, DATASETS[dataset].binary
    return [name for name, system in SYSTEMS.items() if system.applies(*kind)]


# book/experiments.ipynb#choosing-parameters
def _part_of(task: Task, learnt: Any, asked: Any) -> Task:
    """A task without test rows: some of its training rows, and others to be asked about."""
    X = task.X_train
    y = task.y_train
    if task.centered:
        X = X - X[learnt].mean(axis=0)
    nothing: dict[str, Any] = {"X_test": X[:0], "y_test": y[:0]}
    rows: dict[str, Any] = {"X_train": X[learnt], "X_validation": X[asked]}
    return replace(task, y_train=y[learnt], y_validation=y[asked], **rows, **nothing)


def _folds(tasks: Sequence[Task], n_folds: int | None, seed: int) -> list[list[Task]]:
    """Lists of tasks without test rows, to learn on and to ask about."""
    if n_folds is None:
        nothing: dict[str, Any] = {"X_test": tasks[0].X_test[:0], "y_test": tasks[0].y_test[:0]}
        return [[replace(t, **nothing) for t in tasks]]
    merged = [t.with_validation() for t in tasks]
    cuts = KFold(n_folds, shuffle=True, random_state=seed)
    parts = [[_part_of(t, *cut) for cut in cuts.split(t.X_train)] for t in merged]
    return [list(fold) for fold in zip(*parts, strict=True)]


# book/experiments.ipynb#choosing-parameters
def _task_errors(fitted: Fitted, task: Task, part: str, n_neighbors: Sequence[int]) -> list[float]:
    """Error on a part of a task for each number of neighbours."""
    X = getattr(task, f"X_{part}")
    y = getattr(task, f"y_{part}")
    labels = fitted.labels(X, task.name, max(n_neighbors))
    return [float(np.mean(majority_vote(labels[:, :k]) != y)) for k in n_neighbors]


def _validation_errors(
    row: System,
    folds: Sequence[Sequence[Task]],
    fits: _Fits,
    seed: int,
    n_neighbors: Sequence[int],
    parameters: Mapping[str, Any],
) -> list[float]:
    """Mean error of a setting over folds and tasks for each number of neighbours."""
    errors = []
    for fold in folds:
        fitted = row.fit(fold, seed, fits, **parameters)
        errors += [_task_errors(fitted, t, "validation", n_neighbors) for t in fold]
    return np.mean(errors, axis=0).tolist()


# book/experiments.ipynb#choosing-parameters
def _search(
    errors_of: Callable[[dict[str, Any]], list[float]],
    parameters: dict[str, Any],
    stages: list[list[dict[str, Any]]],
) -> tuple[dict[str, Any], list[float]]:
    """The best setting of the last stage and its errors, stage after stage."""
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
    """The parameters and the number of neighbours with the smallest validation error.

    Parameters
    ----------
    system : str
        A key of `lml.studies.systems.SYSTEMS`.
    tasks : list of lml.datasets.Task
        Their test rows are not looked at.
    protocol : Protocol
        Folds, and numbers of neighbours to choose from.
    seed : int
        Seed of the folds and of the learners.
    base : dict or None, default=None
        The parameters chosen for the system's base; None chooses them first.

    Returns
    -------
    parameters : dict
    n_neighbors : int
        0 for a system without neighbours.
    validation_error : float

    Raises
    ------
    ValueError
        If the system is not known.

    Notes
    -----
    Derived in chapter 38 (experiments), eq. (experiments-validation).
    """
    if system not in SYSTEMS:
        raise ValueError(f"system {system!r} is not known: use one of {list(SYSTEMS)}")
    row = SYSTEMS[system]
    folds = _folds(tasks, protocol.n_folds, seed)
    if row.base is not None and base is None:
        base = tune(row.base, tasks, protocol, seed)[0]
    numbers = protocol.n_neighbors if row.votes else (1,)
    errors_of = partial(_validation_errors, row, folds, _Fits(), seed, numbers)
    stages = row.stages(tasks[0].X_train.shape[1])
    parameters, errors = _search(errors_of, base or {}, stages)
    best = int(np.argmin(errors))
    return parameters, numbers[best] if row.votes else 0, float(errors[best])


# book/experiments.ipynb#one-result
@dataclass(frozen=True)
class _Answer:
    """The error of one system on one task of one split."""

    dataset: str
    split: int
    system: str
    task: str
    error: float  # share of wrong answers on the test rows
    validation_error: float  # of the chosen parameters, mean over folds and tasks
    n_neighbors: int  # 0: a classifier
    parameters: str  # JSON


# book/experiments.ipynb#one-result
@dataclass(frozen=True)
class Row(_Answer):
    """One result: the error of one system on one task of one split, and what it took."""

    n_train: int
    n_test: int
    seconds: float  # training of the final model, all tasks
    total_seconds: float  # with the choice of parameters and the test
    state_bytes: int  # what the learner keeps, reference rows excluded
    seed: int  # of the split, the folds and the learners
    versions: str


# book/experiments.ipynb#one-result
def _versions() -> str:
    """Versions that a result depends on, in one short string."""
    packages = {"numpy": np, "scipy": scipy, "scikit-learn": sklearn}
    listed = [f"{name} {package.__version__}" for name, package in packages.items()]
    return ", ".join([f"python {platform.python_version()}", *listed])


# book/experiments.ipynb#one-result
def run_one(dataset: str, split: int, system: str, base: dict[str, Any] | None = None) -> list[Row]:
    """Tune one system on one split, refit it, and measure it on the test rows of each task."""
    started = time.perf_counter()
    protocol = _protocol(dataset)
    tasks = protocol.load(random_state=split)
    parameters, k, v = tune(system, tasks, protocol, split, base)
    final = tasks if protocol.n_folds is None else [t.with_validation() for t in tasks]
    begun = time.perf_counter()
    fitted = SYSTEMS[system].fit(final, split, _Fits(), **parameters)  # nothing is recalled
    learnt = time.perf_counter()
    errors = [_task_errors(fitted, t, "test", (max(k, 1),))[0] for t in final]
    times = round(learnt - begun, 3), round(time.perf_counter() - started, 3)
    chosen = round(v, 6), k, json.dumps(parameters)
    cost = (*times, fitted.nbytes, split, _versions())
    return [
        Row(
            dataset,
            split,
            system,
            *(t.name, round(e, 6), *chosen, len(t.y_train), len(t.y_test), *cost),
        )
        for t, e in zip(final, errors, strict=True)
    ]


# book/experiments.ipynb#running-stopping-and-going-on
def finished(path: str | Path, *names: str) -> dict[tuple[str, ...], list[dict[str, str]]]:
    """Rows of a results file by the values of some columns, as strings."""
    by_key: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for row in read_rows(path):
        by_key.setdefault(tuple(row[name] for name in names), []).append(row)
    return by_key


def open_results(path: str | Path, row_type: type) -> Path:
    """The path of a results file that rows of a type can be added to; its folder is made.

    Raises ValueError if the file has other columns than the dataclass `row_type`.
    """
    path = Path(path)
    names = [f.name for f in fields(row_type)]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:  # fails here if nothing can be written
        file.seek(0)
        found = next(csv.reader(file), names)
    if found != names:
        raise ValueError(
            f"{path} has the columns {found}, but the rows have {names}: move the file away and"
            " run the experiment anew"
        )
    return path


# book/experiments.ipynb#running-stopping-and-going-on
def append_rows(path: str | Path, rows: Sequence[Any]) -> None:
    """Add finished rows, dataclass instances of one kind, to a results file at once."""
    path = open_results(path, type(rows[0]))
    names = [f.name for f in fields(rows[0])]
    new = not path.stat().st_size
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerows(asdict(row) for row in rows)


# book/experiments.ipynb#running-stopping-and-going-on
def repair(path: str | Path, key: Sequence[str], size: int) -> None:
    """Drop what a killed run left unfinished: half a line, and keys with less than `size` rows.

    Of a job that two runs have written the rows of the first are kept.

    Parameters
    ----------
    path : path-like
        A results file; nothing happens if it does not exist.
    key : tuple of str
        Columns that number the jobs.
    size : int
        Rows of a finished job.
    """
    path = Path(path)
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    lines = text.splitlines(keepends=True)
    whole = [line for line in lines if line.endswith("\n")]
    rows = list(csv.DictReader(whole))
    of_job: dict[tuple[str, ...], list[int]] = {}
    for n, row in enumerate(rows):
        of_job.setdefault(tuple(row[name] for name in key), []).append(n)
    kept = sorted(n for own in of_job.values() if len(own) >= size for n in own[:size])
    if len(whole) < len(lines) or len(kept) < len(rows):
        lines = [whole[0], *[whole[n + 1] for n in kept]] if whole else []
        part = path.with_name(path.name + ".part")
        part.write_text("".join(lines), encoding="utf-8")
        part.replace(path)  # a kill leaves the old file or the new one


# book/experiments.ipynb#running-stopping-and-going-on
def _seconds_left(left: Sequence[str], seconds: Sequence[tuple[str, float]], n_jobs: int) -> float:
    """Estimate from the systems of the pairs left and the (system, seconds) of finished ones."""
    by_system: dict[str, list[float]] = {}
    for system, value in seconds:
        by_system.setdefault(system, []).append(value)
    anyone = np.mean([np.mean(v) for v in by_system.values()]) if by_system else np.nan
    each = [float(np.mean(by_system.get(system, anyone))) for system in left]
    return sum(each) / n_jobs


# book/experiments.ipynb#running-stopping-and-going-on
def run_jobs(
    path: Path,
    calls: Sequence[tuple[str, Callable[[], Sequence[Any]]]],
    seconds: Sequence[tuple[str, float]] = (),
    n_jobs: int | None = None,
    label: str = "",
    progress: bool = True,
) -> None:
    """Run calls that return rows, and write the rows of each as soon as it is finished.

    Parameters
    ----------
    path : path-like
        Results file; rows are added to it.
    calls : list of (kind, call)
        ``call()`` returns a list of rows with `total_seconds`; kind is what its time is
        estimated by.
    seconds : iterable of (kind, float)
        Times of finished calls.
    n_jobs : int or None, default=None
        Calls at a time, in joblib's sense: None is one, or what a surrounding
        `joblib.parallel_config` says.
    label : str
        Text before the progress bar.
    progress : bool, default=True

    Notes
    -----
    Derived in chapter 38 (experiments), eq. (experiments-remaining).
    """
    parallel = joblib.Parallel(n_jobs, pre_dispatch="n_jobs", return_as="generator_unordered")
    work = parallel(joblib.delayed(_timed)(kind, call) for kind, call in calls)
    left = [kind for kind, _ in calls]
    seconds = list(seconds)
    wide = joblib.effective_n_jobs(n_jobs)
    with tqdm(total=len(calls), desc=label, disable=not progress) as bar:
        for kind, rows, elapsed in work:
            append_rows(path, rows)
            left.remove(kind)
            seconds.append((kind, elapsed))
            bar.set_postfix_str(f"about {_seconds_left(left, seconds, wide) / 60:.0f} min left")
            bar.update()


# book/experiments.ipynb#running-stopping-and-going-on
def _timed(kind: str, call: Callable[[], Sequence[Any]]) -> tuple[str, Sequence[Any], float]:
    """What a call returns, with its kind and its time."""
    started = time.perf_counter()
    return kind, call(), time.perf_counter() - started


# book/experiments.ipynb#running-stopping-and-going-on
def _checked(dataset: str, systems: Sequence[str] | None, n_repeats: int) -> list[str]:
    """The names of the systems, each once, or an error that says what is wrong."""
    _protocol(dataset)
    if n_repeats < 1:
        raise ValueError(f"n_repeats is {n_repeats!r}: give the number of splits, at least 1")
    if isinstance(systems, str):
        raise TypeError(f"systems is {systems!r}: give a list of names")
    fitting = _applicable(dataset)
    for name in systems or ():
        if name not in fitting:
            raise ValueError(f"system {name!r} has no row for {dataset!r}: use some of {fitting}")
    return list(dict.fromkeys(systems or fitting))


# book/experiments.ipynb#running-stopping-and-going-on
def run_experiment(
    dataset: str,
    systems: Sequence[str] | None = None,
    n_repeats: int = 5,
    n_jobs: int | None = None,
    out: str | Path = "results",
    progress: bool = True,
) -> Path:
    """Run the missing (split, system) pairs of one data set and write them as they finish.

    Parameters
    ----------
    dataset : str
        A key of `DATASETS`.
    systems : sequence of str or None, default=None
        Names of systems that apply to the data set; None is all of them.
    n_repeats : int, default=5
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
    """
    names = _checked(dataset, systems, n_repeats)
    n_tasks = len(DATASETS[dataset].load(random_state=0))
    path = open_results(Path(out) / f"{dataset}.csv", Row)
    repair(path, ("split", "system"), n_tasks)
    done = finished(path, "split", "system")
    pairs = [(s, name) for s in range(n_repeats) for name in names]
    calls = [(name, partial(_run_pair, path, dataset, s, name)) for s, name in pairs
             if (str(s), name) not in done]  # fmt: skip
    times = [(name, float(rows[0]["total_seconds"])) for (_, name), rows in done.items()]
    run_jobs(path, calls, times, n_jobs, dataset, progress)
    return path


# book/experiments.ipynb#running-stopping-and-going-on
def _run_pair(path: Path, dataset: str, split: int, system: str) -> list[Row]:
    """`run_one`, with the parameters of the base system if they are in the file by now."""
    base = finished(path, "split", "system").get((str(split), SYSTEMS[system].base or ""))
    return run_one(dataset, split, system, json.loads(base[0]["parameters"]) if base else None)


# book/experiments.ipynb#running-it-again
def verify(
    dataset: str,
    systems: Sequence[str] | None = None,
    n_repeats: int = 1,
    n_jobs: int | None = None,
    out: str | Path = "results",
    progress: bool = True,
) -> tuple[int, list[tuple[str, ...]]]:
    """Run splits again and compare with the results file.

    Parameters
    ----------
    dataset, systems, n_repeats, n_jobs, out, progress
        As in `run_experiment`. A pair that the file does not have counts as different.

    Returns
    -------
    n_same : int
        Rows that are equal in everything but times and versions.
    different : list of (split, system, task, column)
    """
    known = finished(Path(out) / f"{dataset}.csv", "split", "system", "task")
    if not known:
        raise FileNotFoundError(f"{out} has no results for {dataset!r} to compare with")
    with tempfile.TemporaryDirectory() as folder:
        path = run_experiment(dataset, systems, n_repeats, n_jobs, folder, progress)
        again = finished(path, "split", "system", "task")
    changed = {key: _changed(again[key][0], known.get(key, [{}])[0]) for key in again}
    different = [(*key, ", ".join(columns)) for key, columns in changed.items() if columns]
    return len(again) - len(different), different


def _changed(row: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """Columns in which two rows differ, times and versions aside."""
    free = {"seconds", "total_seconds", "versions"}
    return [name for name in row if name not in free and row[name] != other.get(name)]


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
    (folder / f"{dataset}.md").write_text(table.to_markdown() + "\n", encoding="utf-8")
    figure = Figure(figsize=(6, 0.8 + 0.32 * len(table.lines)), layout="constrained")
    comparison_figure(table, ax=figure.subplots())
    figure.savefig(folder / f"{dataset}.png", dpi=150)


# book/experiments.ipynb#the-command
def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lml.studies.experiments")
    parser.add_argument("action", choices=["run", "verify", "report"])
    parser.add_argument("datasets", nargs="*", metavar="DATASET", help=", ".join(DATASETS))
    parser.add_argument("--systems", nargs="+", choices=list(SYSTEMS), metavar="SYSTEM")
    parser.add_argument("--repeats", type=int, default=5, help="number of splits")
    parser.add_argument("--jobs", type=int, help="pairs at a time")
    parser.add_argument("--scheduler", help="address of a Dask scheduler whose workers are used")
    parser.add_argument("--out", default="results", help="folder of the results files")
    return parser


# book/experiments.ipynb#the-command
@contextlib.contextmanager
def _backend(scheduler: str | None) -> Iterator[None]:
    """The joblib backend of a command: Dask's for an address, else the default one."""
    if scheduler is None:
        yield
        return
    from distributed import Client

    with Client(scheduler), joblib.parallel_config("dask"):  # type: ignore[no-untyped-call]  # so in distributed
        yield


# book/experiments.ipynb#the-command
def _run(name: str, systems: Sequence[str], n_repeats: int, n_jobs: int | None, out: str) -> None:
    if systems:
        run_experiment(name, systems, n_repeats, n_jobs, out)
        report(name, out)


def _verify(name: str, systems: Sequence[str], n_repeats: int, n_jobs: int | None, out: str) -> int:
    n_same, different = verify(name, systems, n_repeats, n_jobs, out) if systems else (0, [])
    print(f"{name}: {n_same} rows are the same, {len(different)} differ")
    print(*different, sep="\n", end="\n" * bool(different))
    return len(different)


_ACTIONS = {"run": _run, "verify": _verify, "report": lambda *work: report(work[0], work[-1])}


# book/experiments.ipynb#the-command
def main(argv: Sequence[str] | None = None) -> int:
    """Command line: ``run``, ``verify`` and ``report`` some data sets, all by default."""
    options = _parser().parse_args(argv)
    for name in options.datasets:
        if name not in DATASETS:
            _parser().error(f"data set {name!r} is not known: use some of {list(DATASETS)}")
    names = dict.fromkeys(options.datasets) or [name for name in DATASETS if name != "digits"]
    counts = []
    with _backend(options.scheduler):
        for name in names:
            systems = [s for s in options.systems or SYSTEMS if s in _applicable(name)]
            work = name, systems, options.repeats, options.jobs, options.out
            counts.append(_ACTIONS[options.action](*work))
    return int(any(counts))


# book/experiments.ipynb#the-command
if __name__ == "__main__" and "__file__" in globals():  # run as a program, not in the book
    sys.exit(main())
