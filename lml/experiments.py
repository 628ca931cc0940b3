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
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import joblib
import numpy as np
import scipy
import sklearn
from sklearn.base import BaseEstimator, clone
from tqdm import tqdm

from lml.datasets import load_usps_tasks
from lml.evaluation import LifelongKNeighborsClassifier
from lml.lifelong import LifelongMetricLearner
from lml.neighbors import MetricKNeighborsClassifier
from lml.oasis import OASIS
from lml.scml import SCML

__all__ = [
    "BASE_GRIDS",
    "DATASETS",
    "N_COMPONENTS",
    "PAPER_GRID",
    "SYSTEMS",
    "Row",
    "main",
    "mean_and_error",
    "read_rows",
    "run_experiment",
    "run_one",
    "split_errors",
]


@dataclass(frozen=True)
class Row:
    """One result: the error of one system on one task of one split."""

    dataset: str
    split: int
    system: str
    task: str
    error: float  # share of wrong answers on the test rows
    validation_error: float  # of the chosen parameters, mean over the tasks
    n_neighbors: int
    parameters: str  # JSON
    n_train: int
    n_test: int
    seconds: float  # training of the final model, all tasks
    state_bytes: int  # what the learner keeps, reference rows excluded
    versions: str


def _single_task(estimator):
    """Fit a clone of ``estimator`` to each task alone; predictions need no other task."""

    def run(tasks, n_neighbors):
        models = {}
        for task in tasks:
            model = MetricKNeighborsClassifier(estimator, n_neighbors=n_neighbors)
            models[task.name] = model.fit(task.X_train, task.y_train)
        learnt = [m.estimator_.metric_.nbytes for m in models.values() if estimator is not None]
        return lambda X, name: models[name].predict(X), sum(learnt)

    return run


def _lifelong(base_learner, random_state, **parameters):
    """Feed the tasks one after another to a lifelong learner; then ask for any of them."""

    def run(tasks, n_neighbors):
        learner = LifelongMetricLearner(base_learner, random_state=random_state, **parameters)
        model = LifelongKNeighborsClassifier(learner, n_neighbors=n_neighbors)
        for task in tasks:
            learner.partial_fit(task.X_train, task.y_train, task=task.name)
            model.fit(task.X_train, task.y_train, task=task.name)
        return lambda X, name: model.predict(X, task=name), learner.state_nbytes_

    return run


class _Fits(dict):
    """Fits kept for all clones of a `_Recalled`: copying it gives the same dictionary."""

    def __deepcopy__(self, memo):
        return self


class _Recalled(BaseEstimator):
    """A base learner whose fits are kept, so that a grid over d learns each metric once."""

    def __init__(self, estimator, fits):
        self.estimator = estimator
        self.fits = fits

    def fit(self, X, y):
        key = joblib.hash((X, y, self.estimator.get_params()))
        if key not in self.fits:
            self.fits[key] = clone(self.estimator).fit(X, y)
        self.metric_ = self.fits[key].metric_
        self.metric_type = self.estimator.metric_type
        return self


def _validation_error(run, tasks, n_neighbors):
    """Mean over the tasks of the error on validation rows; test rows are never looked at."""
    predict, _ = run(tasks, n_neighbors)
    errors = [np.mean(predict(t.X_validation, t.name) != t.y_validation) for t in tasks]
    return float(np.mean(errors))


def _choose(make, grid, tasks, n_neighbors):
    """The parameters of the smallest validation error; a tie goes to the first of the grid."""
    errors = [_validation_error(make(**p), tasks, n_neighbors) for p in grid]
    best = int(np.argmin(errors))
    return grid[best], errors[best]


#: The values that the paper tunes every hyperparameter over.
PAPER_GRID = (10.0, 1.0, 0.1, 0.01, 0.001)
#: Sizes of the dictionary that are tried.
N_COMPONENTS = (40, 80, 120, 160, 200, 256)
#: Settings that are tried for each base learner.
BASE_GRIDS = {
    "oasis": [{"aggressiveness": c} for c in PAPER_GRID],
    "scml": [{"beta": b} for b in (1e-5, 1e-4, *sorted(PAPER_GRID))],  # the authors' two first
}


def _base(name, seed, **parameters):
    """The base learner of that name; its own constants are those of the specification."""
    return {"oasis": OASIS, "scml": SCML}[name](random_state=seed, **parameters)


def _tune_single(name, tasks, seed, n_neighbors):
    """Choose the base learner's parameter; returns parameters, validation error, runner."""

    def make(**parameters):
        return _single_task(_base(name, seed, **parameters))

    chosen, error = _choose(make, BASE_GRIDS[name], tasks, n_neighbors)
    return chosen, error, make(**chosen)


def _tune_lifelong(name, tasks, seed, n_neighbors):
    """The base learner's parameter as it was chosen for it alone, then d and the penalty."""
    base, _, _ = _tune_single(name, tasks, seed, n_neighbors)
    recalled = _Recalled(_base(name, seed, **base), _Fits())
    limit = tasks[0].X_train.shape[1]
    grid = [
        {"n_components": d, "code_penalty": penalty}
        for d in sorted({min(d, limit) for d in N_COMPONENTS}, reverse=True)
        for penalty in sorted(PAPER_GRID)
    ]

    def make(learner=recalled, **parameters):
        return _lifelong(learner, seed, **parameters)

    chosen, error = _choose(make, grid, tasks, n_neighbors)
    final = _Recalled(_base(name, seed, **base), _Fits())  # the same seeds, nothing recalled
    return base | chosen, error, make(final, **chosen)


#: System name to its tuner: (tasks, seed, k) to (chosen, validation error, refitted learner).
SYSTEMS = {
    "euclidean": lambda tasks, seed, k: (
        {},
        _validation_error(_single_task(None), tasks, k),
        _single_task(None),
    ),
    "oasis": lambda tasks, seed, k: _tune_single("oasis", tasks, seed, k),
    "scml": lambda tasks, seed, k: _tune_single("scml", tasks, seed, k),
    "lifelong-oasis": lambda tasks, seed, k: _tune_lifelong("oasis", tasks, seed, k),
    "lifelong-scml": lambda tasks, seed, k: _tune_lifelong("scml", tasks, seed, k),
}
#: Data set name to its loader and protocol.
DATASETS = {"usps": (load_usps_tasks, {"n_neighbors": 1, "refit": True})}


def run_one(dataset, split, system):
    """Tune one system on one split, refit it, and measure it on the test rows of each task."""
    load, protocol = DATASETS[dataset]
    tasks, k = load(random_state=split), protocol["n_neighbors"]
    parameters, validation_error, run = SYSTEMS[system](tasks, split, k)
    final = [t.with_validation() for t in tasks] if protocol["refit"] else tasks
    started = time.perf_counter()
    predict, state_bytes = run(final, k)
    seconds = time.perf_counter() - started
    common = (round(validation_error, 6), k, json.dumps(parameters))
    rows = []
    for t in final:
        error = round(float(np.mean(predict(t.X_test, t.name) != t.y_test)), 6)
        sizes = (len(t.y_train), len(t.y_test), round(seconds, 2), state_bytes)
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
    done = {(int(row["split"]), row["system"]) for row in read_rows(path)}
    jobs = [(s, name) for s in range(n_repeats) for name in systems or SYSTEMS]
    jobs = [job for job in jobs if job not in done]
    parallel = joblib.Parallel(n_jobs=n_jobs, return_as="generator_unordered")
    work = parallel(joblib.delayed(run_one)(dataset, *job) for job in jobs)
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
    Derived in chapter 17 (experiments), eq. (experiments-mean).

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
