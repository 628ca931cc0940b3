# Generated from book/experiments.ipynb by tools/tangle.py: edit the chapter.
"""Experiments of the book on real data: ``python -m lml.experiments run usps``.

Every run writes one row for each (split, system, task) into ``results/NAME.csv`` as soon
as it is finished, and a second call goes on where the first one was stopped.
"""

import argparse
import csv
import json
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path

import joblib
import numpy as np
import scipy
import sklearn
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import KFold
from tqdm import tqdm

from lml.datasets import load_isolet_tasks, load_sentiment_tasks, load_usps_tasks
from lml.lifelong import LifelongMetricLearner
from lml.metrics import FactoredMetric
from lml.neighbors import k_nearest, majority_vote
from lml.oasis import OASIS
from lml.scml import SCML

__all__ = [
    "DATASETS",
    "N_COMPONENTS",
    "PAPER_GRID",
    "SYSTEMS",
    "Protocol",
    "Row",
    "System",
    "main",
    "mean_and_error",
    "read_rows",
    "run_experiment",
    "run_one",
    "split_errors",
    "tune",
]


@dataclass(frozen=True)
class Protocol:
    """How a data set is loaded and how parameters are chosen on it."""

    load: Callable  # seed of the split to list of tasks, argument random_state
    n_neighbors: tuple = (1,)  # numbers of neighbours to choose from
    n_folds: int | None = None  # folds of the learning rows; None: the split's validation rows


#: Data set name to its protocol.
DATASETS = {
    "usps": Protocol(load_usps_tasks, n_folds=5),
    "isolet": Protocol(partial(load_isolet_tasks, "rows"), (1, 3, 5)),
    "isolet-speakers": Protocol(partial(load_isolet_tasks, "speakers"), (1, 3, 5)),
    "sentiment": Protocol(partial(load_sentiment_tasks, "words200"), (3,)),
}


@dataclass(frozen=True)
class Row:
    """One result: the error of one system on one task of one split."""

    dataset: str
    split: int
    system: str
    task: str
    error: float  # share of wrong answers on the test rows
    validation_error: float  # of the chosen parameters, mean over folds and tasks
    n_neighbors: int
    parameters: str  # JSON
    n_train: int
    n_test: int
    seconds: float  # training of the final model, all tasks
    state_bytes: int  # what the learner keeps, reference rows excluded
    versions: str


@dataclass(frozen=True)
class _Fitted:
    """What a system has learnt from all tasks."""

    labels: Callable  # (X, task name, k) to the labels (n, k) of the nearest references
    nbytes: int


def _by_neighbors(tasks, metrics, metric_type, nbytes):
    """A fitted system that ranks each task's training rows by the task's metric."""
    known = {t.name: t for t in tasks}
    if metric_type == "distance":
        metrics = {name: metric.psd() for name, metric in metrics.items()}

    def labels(X, name, k):
        nearest, _ = k_nearest(metrics[name], X, known[name].X_train, metric_type, k)
        return known[name].y_train[nearest]

    return _Fitted(labels, nbytes)


def _fit_euclidean(tasks, seed, fits):
    """No learning: the identity."""
    metrics = {t.name: FactoredMetric.identity(t.X_train.shape[1]) for t in tasks}
    return _by_neighbors(tasks, metrics, "distance", 0)


def _fit_alone(estimator, tasks, seed, fits, **parameters):
    """A learner of its own for each task."""
    learner = _Recalled(estimator(random_state=seed, **parameters), fits)
    metrics = {t.name: clone(learner).fit(t.X_train, t.y_train).metric_ for t in tasks}
    nbytes = sum(metric.nbytes for metric in metrics.values())
    return _by_neighbors(tasks, metrics, estimator.metric_type, nbytes)


def _fit_lifelong(estimator, tasks, seed, fits, *, n_components, code_penalty, **parameters):
    """The tasks one after another by one lifelong learner; asked after the last of them."""
    base = _Recalled(estimator(random_state=seed, **parameters), fits)
    sizes = {"n_components": n_components, "code_penalty": code_penalty}
    learner = LifelongMetricLearner(base, random_state=seed, **sizes)
    for t in tasks:
        learner.partial_fit(t.X_train, t.y_train, task=t.name)
    metrics = {t.name: learner.task_metric(t.name) for t in tasks}
    return _by_neighbors(tasks, metrics, learner.metric_type_, learner.state_nbytes_)


class _Fits(dict):
    """Fits kept for all clones of a `_Recalled`: copying it gives the same dictionary."""

    def __deepcopy__(self, memo):
        return self


class _Recalled(BaseEstimator):
    """A metric learner whose fits are kept, so that a grid over d learns each metric once."""

    def __init__(self, estimator, fits):
        self.estimator = estimator
        self.fits = fits

    def fit(self, X, y):
        key = joblib.hash((X, y, type(self.estimator), self.estimator.get_params()))
        if key not in self.fits:
            self.fits[key] = clone(self.estimator).fit(X, y)
        self.metric_ = self.fits[key].metric_
        self.metric_type = self.estimator.metric_type
        return self


#: The values that the paper tunes every hyperparameter over.
PAPER_GRID = (10.0, 1.0, 0.1, 0.01, 0.001)
#: Sizes of the dictionary that are tried.
N_COMPONENTS = (40, 80, 120, 160, 200, 256)


def _dictionary_grid(n_features):
    """Sizes of the dictionary, the largest first, and code penalties, the smallest first."""
    sizes = sorted({min(d, n_features) for d in N_COMPONENTS}, reverse=True)
    pairs = [(d, penalty) for d in sizes for penalty in sorted(PAPER_GRID)]
    return [{"n_components": d, "code_penalty": penalty} for d, penalty in pairs]


@dataclass(frozen=True)
class System:
    """A row of the tables: how it is fitted and the settings that are tried."""

    fit: Callable  # (tasks, seed, fits, **parameters) to a fitted system
    grid: Callable = lambda n_features: [{}]
    base: str | None = None  # the system whose chosen parameters are taken over


def _oasis_grid(n_features):
    return [{"aggressiveness": c} for c in PAPER_GRID]


def _scml_grid(n_features):
    return [{"beta": b} for b in (1e-5, 1e-4, *sorted(PAPER_GRID))]  # the authors' two first


#: System name to what it is.
SYSTEMS = {
    "euclidean": System(_fit_euclidean),
    "oasis": System(partial(_fit_alone, OASIS), _oasis_grid),
    "scml": System(partial(_fit_alone, SCML), _scml_grid),
    "lifelong-oasis": System(partial(_fit_lifelong, OASIS), _dictionary_grid, "oasis"),
    "lifelong-scml": System(partial(_fit_lifelong, SCML), _dictionary_grid, "scml"),
}


def _part_of(task, learnt, asked):
    """A task without test rows: some of its training rows, and others to be asked about."""
    X, y = task.X_train, task.y_train
    if task.centered:
        X = X - X[learnt].mean(axis=0)
    nothing = {"X_test": X[:0], "y_test": y[:0]}
    rows = {"X_train": X[learnt], "X_validation": X[asked]}
    return replace(task, y_train=y[learnt], y_validation=y[asked], **rows, **nothing)


def _folds(tasks, n_folds, seed):
    """Lists of tasks without test rows, to learn on and to ask about."""
    if n_folds is None:
        nothing = {"X_test": tasks[0].X_test[:0], "y_test": tasks[0].y_test[:0]}
        return [[replace(t, **nothing) for t in tasks]]
    merged = [t.with_validation() for t in tasks]
    cuts = KFold(n_folds, shuffle=True, random_state=seed)
    parts = [[_part_of(t, *cut) for cut in cuts.split(t.X_train)] for t in merged]
    return [list(fold) for fold in zip(*parts, strict=True)]


def _task_errors(fitted, task, part, n_neighbors):
    """Error on a part of a task for each number of neighbours."""
    X, y = getattr(task, f"X_{part}"), getattr(task, f"y_{part}")
    labels = fitted.labels(X, task.name, max(n_neighbors))
    return [float(np.mean(majority_vote(labels[:, :k]) != y)) for k in n_neighbors]


def _validation_errors(fit, folds, n_neighbors):
    """Mean error over folds and tasks for each number of neighbours."""
    errors = []
    for fold in folds:
        fitted = fit(fold)
        errors += [_task_errors(fitted, t, "validation", n_neighbors) for t in fold]
    return np.mean(errors, axis=0)


def tune(system, tasks, protocol, seed, base=None):
    """The parameters and the number of neighbours with the smallest validation error.

    Parameters
    ----------
    system : str
        A key of `SYSTEMS`.
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
    validation_error : float
        Mean over folds and tasks; of equal settings the first of the grid is taken.
    """
    row, folds, fits = SYSTEMS[system], _folds(tasks, protocol.n_folds, seed), _Fits()
    if row.base is not None and base is None:
        base = tune(row.base, tasks, protocol, seed)[0]
    grid = [(base or {}) | p for p in row.grid(tasks[0].X_train.shape[1])]
    errors = []
    for parameters in grid:
        fit = partial(row.fit, seed=seed, fits=fits, **parameters)
        errors.append(_validation_errors(fit, folds, protocol.n_neighbors))
    best, k = np.unravel_index(np.argmin(errors), np.shape(errors))
    return grid[best], protocol.n_neighbors[k], float(errors[best][k])


def run_one(dataset, split, system, base=None):
    """Tune one system on one split, refit it, and measure it on the test rows of each task."""
    protocol = DATASETS[dataset]
    tasks = protocol.load(random_state=split)
    parameters, k, validation_error = tune(system, tasks, protocol, split, base)
    final = tasks if protocol.n_folds is None else [t.with_validation() for t in tasks]
    started = time.perf_counter()
    fitted = SYSTEMS[system].fit(final, split, _Fits(), **parameters)  # nothing is recalled
    seconds = round(time.perf_counter() - started, 2)
    common = (round(validation_error, 6), k, json.dumps(parameters))
    rows = []
    for t in final:
        error = round(_task_errors(fitted, t, "test", (k,))[0], 6)
        sizes = (len(t.y_train), len(t.y_test), seconds, fitted.nbytes)
        rows.append(Row(dataset, split, system, t.name, error, *common, *sizes, _versions()))
    return rows


def _versions():
    """Versions that a result depends on, in one short string."""
    packages = {"numpy": np, "scipy": scipy, "scikit-learn": sklearn}
    listed = [f"{name} {package.__version__}" for name, package in packages.items()]
    return ", ".join([f"python {platform.python_version()}", *listed])


def read_rows(path):
    """Rows of a results file, as a list of dictionaries of strings; empty without the file."""
    path = Path(path)
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _chosen(path):
    """Parameters of each finished (split, system) of a results file."""
    rows = read_rows(path)
    return {(int(row["split"]), row["system"]): json.loads(row["parameters"]) for row in rows}


def _append(path, rows):
    """Add finished rows to a results file at once."""
    new = not path.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [f.name for f in fields(Row)], lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerows(asdict(row) for row in rows)


def run_experiment(dataset, systems=None, n_repeats=5, n_jobs=1, out="results", progress=True):
    """Run the missing (split, system) pairs of one data set and write them as they finish.

    Parameters
    ----------
    dataset : str
        A key of `DATASETS`.
    systems : sequence of str or None, default=None
        Keys of `SYSTEMS`; None is all of them.
    n_repeats : int, default=5
        Number of splits; split s has the seed s.
    n_jobs : int, default=1
        Pairs run at a time, through joblib and so with any of its backends.
    out : path-like, default="results"
        Folder of the results file.
    progress : bool, default=True
        Show a progress bar.

    Returns
    -------
    pathlib.Path
        The results file. Pairs that it already has are not run again.
    """
    path = Path(out) / f"{dataset}.csv"
    jobs = [(s, name) for name in systems or SYSTEMS for s in range(n_repeats)]
    jobs = [job for job in jobs if job not in _chosen(path)]
    parallel = joblib.Parallel(n_jobs, pre_dispatch="n_jobs", return_as="generator_unordered")
    work = parallel(
        joblib.delayed(run_one)(dataset, s, name, _chosen(path).get((s, SYSTEMS[name].base)))
        for s, name in jobs
    )
    for rows in tqdm(work, total=len(jobs), desc=dataset, disable=not progress):
        _append(path, rows)
    return path


def split_errors(rows, system, task="average"):
    """Errors of one system over the splits, in per cent, in the order of the splits.

    Parameters
    ----------
    rows : list of dict
        As `read_rows` gives them.
    system, task : str
        Names; the task "average" is the mean over all tasks.

    Returns
    -------
    ndarray of shape (n_splits,)
    """
    by_split = {}
    for row in rows:
        if row["system"] == system and task in (row["task"], "average"):
            by_split.setdefault(int(row["split"]), []).append(100 * float(row["error"]))
    return np.array([np.mean(by_split[s]) for s in sorted(by_split)])


def mean_and_error(values):
    """Mean and standard error of values over splits.

    Notes
    -----
    Derived in chapter 24 (experiments), eq. (experiments-mean).

    Examples
    --------
    >>> mean_and_error([1.0, 2.0, 3.0, 6.0])
    (3.0, 1.0801234497346435)
    """
    values = np.asarray(values, dtype=float)
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


def _parser():
    parser = argparse.ArgumentParser(prog="python -m lml.experiments")
    parser.add_argument("action", choices=["run", "report"])
    parser.add_argument("dataset", choices=sorted(DATASETS))
    parser.add_argument("--systems", nargs="+", choices=sorted(SYSTEMS))
    parser.add_argument("--repeats", type=int, default=5, help="number of splits")
    parser.add_argument("--jobs", type=int, default=1, help="pairs at a time")
    parser.add_argument("--out", default="results", help="folder of the results file")
    return parser


def main(argv=None):
    """Command line: ``run DATASET`` runs what is missing, ``report DATASET`` prints it."""
    options = _parser().parse_args(argv)
    path = Path(options.out) / f"{options.dataset}.csv"
    if options.action == "run":
        run_experiment(options.dataset, options.systems, options.repeats, options.jobs, options.out)
    rows = read_rows(path)
    for system in [name for name in SYSTEMS if any(row["system"] == name for row in rows)]:
        for task in (*dict.fromkeys(row["task"] for row in rows), "average"):
            errors = split_errors(rows, system, task)
            spread = mean_and_error(errors)[1] if len(errors) > 1 else float("nan")
            print(
                f"{system:15} {task:8} {errors.mean():6.2f} +- {spread:.2f} ({len(errors)} splits)"
            )
    return 0


if __name__ == "__main__" and "__file__" in globals():  # run as a program, not in the book
    sys.exit(main())
