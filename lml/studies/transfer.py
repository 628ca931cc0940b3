# Generated from book/transfer.ipynb by tools/tangle.py: edit the chapter.
"""What lifelong learning is worth on real data: ``python -m lml.studies.transfer run isolet``.

Streams of tasks in which every task is measured after every step, with settings chosen by
validation in the rows seen so far. Each study writes ``results/transfer-STUDY-DATASET.csv`` as
it goes and goes on where it was stopped.
"""

import argparse
import copy
import importlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression

from lml.datasets import Task, load_arrays, load_sentiment_tasks, make_task, split_samples
from lml.lifelong import LifelongMetricLearner
from lml.metrics import pairwise_scores
from lml.neighbors import majority_vote
from lml.oasis import OASIS
from lml.plda import LifelongPLDA
from lml.plda.model import (
    Moments,
    discriminants,
    log_ratios,
    mix_scatters,
    pooled_scatters,
    short_spread,
    shrunken_variances,
    task_moments,
)
from lml.studies.experiments import (
    DATASETS,
    Protocol,
    _folds,
    _task_errors,
    _versions,
    finished,
    open_results,
    repair,
    run_jobs,
    tune,
)
from lml.studies.systems import SYSTEMS, _Fits
from lml.utils.linalg import nbytes
from lml.utils.typing import Floats

__all__ = [
    "FOLLOWERS",
    "RUINED",
    "STREAMS",
    "STUDIES",
    "Grid",
    "Setting",
    "Study",
    "Transfer",
    "TransferRow",
    "best_setting",
    "error_matrices",
    "follow_alone",
    "follow_grid",
    "follow_honest",
    "follow_joint",
    "follow_learner",
    "follow_table",
    "load_ruined_tasks",
    "load_speaker_tasks",
    "plda_bytes",
    "ruined_task",
    "run_study",
    "run_unit",
    "transfer_values",
]


# book/transfer.ipynb#rows-of-results
@dataclass(frozen=True)
class TransferRow:
    """The errors of all tasks after one step of a stream."""

    dataset: str
    split: int  # its seed
    order: int  # 0: that of the data set, otherwise the seed of a permutation
    system: str
    n_learnt: int
    tasks: str  # names in the order of their arrival
    errors: str  # shares of wrong answers on the test rows, in that order; nan: not asked
    validation_error: float  # of the setting, over the tasks learnt so far
    parameters: str  # JSON: the setting
    seconds: float  # to learn the task of this step, with its choice
    state_bytes: int  # what the learner keeps
    raw_bytes: int  # of the learning rows seen so far
    versions: str


# book/transfer.ipynb#the-matrix-of-a-stream
def error_matrices(rows: Iterable[Mapping[str, Any]], system: str) -> Floats:
    """Errors of every task after every step, in per cent.

    Parameters
    ----------
    rows : list of dict
        Rows of one study and data set, as `lml.studies.comparison.read_rows` gives them.
    system : str

    Returns
    -------
    ndarray of shape (n_units, n_tasks, n_tasks)
        A matrix for each split and order, sorted by these: row = number of learnt tasks,
        column = task in the order of arrival; NaN where a task was not asked.

    Raises
    ------
    ValueError
        If there is no row of the system, or a step is missing.

    Notes
    -----
    Derived in chapter 19 (transfer), eq. (transfer-matrix).
    """
    units: dict[tuple[int, int], dict[int, list[float]]] = {}
    for row in (r for r in rows if r["system"] == system):
        steps = units.setdefault((int(row["split"]), int(row["order"])), {})
        steps[int(row["n_learnt"])] = [100 * float(e) for e in row["errors"].split()]
    sizes = {(len(steps), len(steps[n])) for steps in units.values() for n in steps}
    if len(sizes) != 1 or len(set(*sizes)) != 1:
        raise ValueError(
            f"rows of {system!r} make matrices of shapes {sorted(sizes)}: finish the run"
        )
    return np.array([[units[u][n] for n in sorted(units[u])] for u in sorted(units)])


# book/transfer.ipynb#the-matrix-of-a-stream
class Transfer(NamedTuple):
    """What a stream is worth, one number for each matrix, in per cent or points.

    Derived in chapter 19 (transfer), eq. (transfer-values).
    """

    arrival: Floats  # mean error on arrival
    final: Floats  # mean error after all tasks
    backward: Floats  # arrival - final, mean over all tasks but the last


def transfer_values(matrices: Floats) -> Transfer:
    """Arrival, final error and backward transfer of matrices (n_units, n_tasks, n_tasks).

    Examples
    --------
    >>> [v.item() for v in transfer_values([[[8.0, 50.0], [6.0, 4.0]]])]
    [6.0, 5.0, 2.0]

    Notes
    -----
    Derived in chapter 19 (transfer), eq. (transfer-values).
    """
    R = np.asarray(matrices, dtype=float)
    arrival = np.diagonal(R, axis1=1, axis2=2)
    final = R[:, -1]
    return Transfer(arrival.mean(1), final.mean(1), (arrival - final)[:, :-1].mean(1))


# book/transfer.ipynb#streams
def load_speaker_tasks(
    random_state: int | None = None, *, n_speakers: int = 5, download_if_missing: bool = True
) -> list[Task]:
    """Isolet as many small tasks: the rows of a few speakers each.

    Parameters
    ----------
    random_state : int, RandomState instance or None, default=None
    n_speakers : int, default=5
        Speakers of a task; 150 / n_speakers tasks.
    download_if_missing : bool, default=True

    Returns
    -------
    list of Task
        A third of the rows to learn from, a fifth for validation.

    Notes
    -----
    Derived in chapter 2 (datasets), eq. (datasets-speaker).
    """
    rng = np.random.RandomState(random_state)
    (arrays,) = load_arrays("isolet", download_if_missing)
    X = arrays["Xq"] / float(arrays["divisor"])
    y = arrays["y"]
    tasks = []
    for first in range(1, 151, n_speakers):
        own = np.flatnonzero((arrays["speaker"] - first) // n_speakers == 0)
        rows = split_samples(len(own), 1 / 3, 0.2, rng)
        tasks.append(make_task(f"from{first}", X[own], y[own], rows))
    return tasks


# book/transfer.ipynb#streams
#: Ways to ruin a task.
RUINED = ("shuffled", "renamed", "random")


def ruined_task(task: Task, how: str, rng: np.random.Generator) -> Task:
    """A task that has nothing to give to the one it is a copy of.

    Parameters
    ----------
    task : Task
    how : {"shuffled", "renamed", "random"}
        The same permutation of the features for all rows, the name of another class for each
        class (a class without training rows gets one that another has, too), or a permutation
        of the labels of each part. It becomes the task's name.
    rng : numpy.random.Generator

    Returns
    -------
    Task
    """
    changed: dict[str, Any] = {}
    classes = np.unique(task.y_train)
    columns = rng.permutation(task.X_train.shape[1])
    for part in ("train", "validation", "test"):
        X = getattr(task, f"X_{part}")
        y = getattr(task, f"y_{part}")
        if how == "shuffled":
            changed[f"X_{part}"] = X[:, columns]
        elif how == "renamed":
            changed[f"y_{part}"] = np.roll(classes, 1)[np.searchsorted(classes, y) % len(classes)]
        else:
            changed[f"y_{part}"] = rng.permutation(y)
    return replace(task, name=how, **changed)


# book/transfer.ipynb#streams
def load_ruined_tasks(dataset: str, random_state: int | None = None) -> list[Task]:
    """The tasks of a table, with ruined copies of the second to fourth task between them."""
    tasks = DATASETS[dataset].load(random_state=random_state)
    rng = np.random.default_rng(random_state)
    stream = tasks[:1]
    for n, how in enumerate(RUINED, start=1):
        stream += [ruined_task(tasks[n], how, rng), tasks[n]]
    return stream + tasks[len(RUINED) + 1 :]


def _with_ruined(dataset: str, k: int) -> Protocol:
    """The protocol of a stream with ruined tasks; one k, so that no task chooses it for another."""
    load = partial(load_ruined_tasks, dataset)
    return replace(DATASETS[dataset], load=load, n_neighbors=(k,))


# book/transfer.ipynb#streams
#: Data set name to its protocol: those of the tables, 30 tasks of speakers, sparse reviews, and
#: streams with ruined tasks.
STREAMS = {
    **DATASETS,
    "isolet-30": replace(DATASETS["isolet"], load=load_speaker_tasks),
    "sentiment-raw": replace(DATASETS["sentiment"], load=partial(load_sentiment_tasks, "raw")),
    "isolet-ruined": _with_ruined("isolet", 3),
    "usps-ruined": _with_ruined("usps", 1),
}


def _ordered(dataset: str, split: int, order: int) -> list[Task]:
    """The tasks of a split in one order."""
    tasks = STREAMS[dataset].load(random_state=split)
    if order == 0:
        return tasks
    return [tasks[t] for t in np.random.default_rng(order).permutation(len(tasks))]


# book/transfer.ipynb#what-is-chosen-and-by-which-rows
def best_setting(tables: Sequence[Floats]) -> tuple[tuple[int, ...], float]:
    """Place of the smallest entry in the mean of several tables, and that entry.

    Parameters
    ----------
    tables : list of ndarray of one shape
        Validation error of each setting, one table for each task. Of equal ones the first counts.

    Notes
    -----
    Derived in chapter 19 (transfer), eq. (transfer-choice).
    """
    table = np.mean(tables, axis=0)
    place = np.unravel_index(np.argmin(table), table.shape)
    return tuple(map(int, place)), float(table[place])


# book/transfer.ipynb#what-is-chosen-and-by-which-rows
def _refitted(tasks: Sequence[Task], protocol: Protocol, always: bool = False) -> list[Task]:
    """Tasks as they are learnt: with their validation rows where folds choose, or always."""
    merged = always or protocol.n_folds is not None
    return [t.with_validation() for t in tasks] if merged else list(tasks)


def _asked(task: Task, protocol: Protocol, seed: int) -> list[Task]:
    """Parts of one task: training rows to learn from, validation rows to be asked about."""
    return [fold[0] for fold in _folds([task], protocol.n_folds, seed)]


def _shares(
    scores: Floats, labels: NDArray[Any], y: NDArray[Any], ks: Sequence[int]
) -> list[float]:
    """Shares of wrong answers by the references with the largest scores, for each k."""
    few = min(max(ks), scores.shape[1] - 1)
    some = np.argpartition(-scores, few, axis=1)[:, : max(ks)]
    order = np.argsort(-np.take_along_axis(scores, some, axis=1), axis=1)
    near = labels[np.take_along_axis(some, order, axis=1)]
    return [float(np.mean(majority_vote(near[:, :k]) != y)) for k in ks]


# book/transfer.ipynb#read-outs-in-closed-form
class _Learnt(NamedTuple):
    """The statistics of a task and the rows that it is asked with."""

    moments: Moments
    mean: Floats
    task: Task
    common: Mapping[Any, Floats] | None = None  # class means of all tasks, each task's mean at 0

    def targets(self) -> Floats:
        """What each training row is pulled towards, less the mean of the task."""
        own = dict(zip(self.moments.labels, self.moments.means, strict=True))
        if self.common is not None:
            own = {label: (mean + self.common[label]) / 2 for label, mean in own.items()}
        return np.array([own[label] for label in self.task.y_train.tolist()])


def _learnt(task: Task) -> _Learnt:
    """Statistics of the training rows of a task."""
    labels, codes = np.unique(task.y_train, return_inverse=True)
    return _Learnt(*task_moments(task.X_train, codes, labels.tolist()), task)


# book/transfer.ipynb#read-outs-in-closed-form
def _common(moments: Sequence[Moments]) -> dict[Any, Floats]:
    """Mean of each class over the rows of all tasks, each task's mean at 0."""
    rows: dict[Any, list[tuple[int, Floats]]] = {}
    for m in moments:
        for label, count, mean in zip(m.labels, m.counts.tolist(), m.means, strict=True):
            rows.setdefault(label, []).append((count, mean))
    return {k: np.average([m for _, m in v], 0, [n for n, _ in v]) for k, v in rows.items()}


# book/transfer.ipynb#read-outs-in-closed-form
def _together(moments: Sequence[Moments], shared_labels: bool) -> tuple[Floats, Floats]:
    """What tasks say together, with no more rows of spread than features."""
    within, spread = pooled_scatters(moments, shared_labels)
    return within, short_spread(spread)


# book/transfer.ipynb#read-outs-in-closed-form
_Triple: TypeAlias = tuple[float, float, float]


class Setting(NamedTuple):
    """One read-out of a task's statistics and those of all tasks."""

    regularization: float = 1.0  # rho
    own_weight: tuple[float, float] = (0.25, 0.0)  # within and between classes
    shrinkage: _Triple = (0.3, 0.0, 0.0)
    pull: float = 0.0  # of references towards the mean of their class
    n_neighbors: int = 1


def _axes(
    learnt: _Learnt, pooled: tuple[Floats, Floats], rho: float, weight: Any, whole: bool
) -> tuple[Floats, Floats]:
    """V (D, k) and psi (k,) of a task's read-out, rows measured in within-class units."""
    m = learnt.moments
    S, F = mix_scatters(weight, (m.scatter, m.spread), pooled)
    V, psi = discriminants(S + rho * np.eye(len(S)), F, complete=whole)
    return V / np.sqrt(m.scale / max(m.counts.sum() - len(m.counts), 1)), psi


# book/transfer.ipynb#read-outs-in-closed-form
def _scored(
    learnt: _Learnt,
    axes: tuple[Floats, Floats],
    part: str,
    choices: Iterable[tuple[_Triple, float]],
    ks: Sequence[int],
) -> list[list[float]]:
    """Errors on a part of a task for pairs of a shrinkage and a pull, and each k."""
    t = learnt.task
    (V, psi) = axes
    X = getattr(t, f"X_{part}")
    y = getattr(t, f"y_{part}")
    Q, R = ((rows - learnt.mean) @ V for rows in (X, t.X_train))
    means = learnt.targets() @ V
    found = []
    for shrinkage, pull in choices:
        p = shrunken_variances(psi, *shrinkage)
        scores = log_ratios(p, Q, (1 - pull) * R + pull * means)
        found.append(_shares(scores, t.y_train, y, ks))
    return found


# book/transfer.ipynb#read-outs-in-closed-form
@dataclass(frozen=True)
class Grid:
    """The settings that a system of closed-form read-outs chooses from."""

    regularizations: tuple[float, ...] = (1.0, 3.0)
    weights: tuple[tuple[float, float], ...] = ((0.25, 0.0), (0.0, 0.0), (1.0, 0.25), (1.0, 1.0))
    shrinkages: tuple[_Triple, ...] = ((0.3, 0.0, 0.0), (1.0, 1.0, 0.0), (0.3, 0.0, 0.3))
    pulls: tuple[float, ...] = (0.0, 1.0)
    shared_labels: bool = False
    each: bool = False  # a task chooses by its own validation error alone
    refit: bool = False  # what was chosen learns the validation rows too
    common: bool = False  # class means are half those of all tasks

    def setting(self, place: Sequence[int], ks: Sequence[int]) -> Setting:
        """The setting at a place of the table."""
        i, j, n, m, k = place
        first = self.regularizations[i], self.weights[j], self.shrinkages[n]
        return Setting(*first, self.pulls[m], ks[k])

    def table(self, learnt: _Learnt, pooled: tuple[Floats, Floats], ks: Sequence[int]) -> Floats:
        """Validation errors: regularizations x weights x shrinkages x pulls x ks."""
        shape = tuple(
            map(len, (self.regularizations, self.weights, self.shrinkages, self.pulls, ks))
        )
        table = np.empty(shape)
        for i, rho in enumerate(self.regularizations):
            for j, weight in enumerate(self.weights):
                for whole in {floor > 0 for _, _, floor in self.shrinkages}:
                    own = [n for n, s in enumerate(self.shrinkages) if (s[2] > 0) == whole]
                    choices = [(self.shrinkages[n], pull) for n in own for pull in self.pulls]
                    axes = _axes(learnt, pooled, rho, weight, whole)
                    errors = _scored(learnt, axes, "validation", choices, ks)
                    table[i, j, own] = np.reshape(errors, (len(own), len(self.pulls), len(ks)))
        return table


# book/transfer.ipynb#read-outs-in-closed-form
class _Step(NamedTuple):
    """What is written of one step."""

    errors: list[float]  # of all tasks in the order of arrival; nan: not asked
    validation_error: float
    parameters: Any
    seconds: float
    state_bytes: int


def _test_error(learnt: _Learnt, pooled: tuple[Floats, Floats], setting: Setting) -> float:
    """Error of one read-out on the test rows of a task."""
    rho, weight, shrinkage, pull, k = setting
    axes = _axes(learnt, pooled, rho, weight, shrinkage[2] > 0)
    return _scored(learnt, axes, "test", [(shrinkage, pull)], [k])[0][0]


# book/transfer.ipynb#read-outs-in-closed-form
class _Stream:
    """Tasks one after another, read in closed form from their statistics."""

    def __init__(self, grid: Grid, raw: Sequence[Task], protocol: Protocol, seed: int) -> None:
        self.grid = grid
        self.raw = raw
        self.protocol = protocol
        self.seed = seed
        self.tasks = _refitted(raw, protocol, grid.refit)
        self.ks = protocol.n_neighbors
        self.learnt: list[_Learnt] = []
        self.tables: list[Floats] = []

    def learn(self) -> None:
        """The next task: the errors of all settings on its validation rows, its statistics."""
        n = len(self.learnt)
        old = [known.moments for known in self.learnt]
        tables = []
        for part in _asked(self.raw[n], self.protocol, self.seed):
            own = _learnt(part)
            group = [*old, own.moments]
            own = own._replace(common=_common(group) if self.grid.common else None)
            pooled = _together(group, self.grid.shared_labels)
            tables.append(self.grid.table(own, pooled, self.ks))
        self.tables.append(np.mean(tables, axis=0))
        self.learnt.append(_learnt(self.tasks[n]))

    def settings(self) -> list[Setting]:
        """The setting of each learnt task."""
        grid = self.grid
        all_tables = [self.tables] * len(self.tables)
        choices = [[table] for table in self.tables] if grid.each else all_tables
        return [grid.setting(best_setting(tables)[0], self.ks) for tables in choices]

    def errors(self) -> list[float]:
        """Test errors of all tasks; those that are still to come are read from shared statistics."""
        moments = [known.moments for known in self.learnt]
        settings = self.settings()
        pooled = _together(moments, self.grid.shared_labels)
        common = _common(moments) if self.grid.common else None
        read = zip([one._replace(common=common) for one in self.learnt], settings, strict=True)
        found = [_test_error(known, pooled, setting) for known, setting in read]
        rho, _, shrinkage, pull, k = settings[-1]
        axes = _axes(self.learnt[-1], pooled, rho, (0.0, 0.0), shrinkage[2] > 0)
        for task in self.tasks[len(found) :]:  # the rows to come are references, no more
            found += _scored(_learnt(task), axes, "test", [(shrinkage, pull)], [k])[0]
        return found


# book/transfer.ipynb#read-outs-in-closed-form
def plda_bytes(moments: Sequence[Moments], shared_labels: bool = False) -> int:
    """Bytes that `LifelongPLDA` keeps of tasks at d = D: dictionary, codes, means, statistics.

    Notes
    -----
    Derived in chapter 23 (plda), eq. (plda-bytes).
    """
    n = moments[0].n_features
    n_classes = sum(len(m.counts) for m in moments)
    spread = len({label for m in moments for label in m.labels}) if shared_labels else n_classes
    return 8 * n * (n * (2 + len(moments)) + n_classes + len(moments) + min(n, spread))


def follow_grid(grid: Grid, raw: Sequence[Task], protocol: Protocol, seed: int) -> list[_Step]:
    """Every step of a stream of closed-form read-outs."""
    stream = _Stream(grid, raw, protocol, seed)
    steps = []
    for _ in raw:
        begun = time.perf_counter()
        stream.learn()
        seconds = time.perf_counter() - begun
        chosen = stream.settings()
        v = best_setting(stream.tables)[1]
        said = [s._asdict() for s in (chosen if grid.each else chosen[-1:])]
        kept = plda_bytes([known.moments for known in stream.learnt], grid.shared_labels)
        steps.append(_Step(stream.errors(), v, said, seconds, kept))
    return steps


# book/transfer.ipynb#learners-and-joint-models
def follow_learner(
    variants: Sequence[Any],
    raw: Sequence[Task],
    protocol: Protocol,
    seed: int,
    enrolled: Sequence[Mapping[str, float]] = ({},),
) -> list[_Step]:
    """Every step of a stream learnt by lifelong learners, of which validation chooses one.

    `variants` are unfitted learners that differ in their parameters; `enrolled` are ways to
    enrol the references, of which validation chooses one as well; {} leaves these as they are.
    """
    if not enrolled or isinstance(enrolled, Mapping):
        raise ValueError(f"enrolled is {enrolled!r}: give a list of ways, [{{}}] leaves references")
    tasks = _refitted(raw, protocol)
    ks = protocol.n_neighbors
    steps = []
    tables = []
    learners = [_seeded(variant, seed) for variant in variants]
    for n, task in enumerate(tasks):
        begun = time.perf_counter()
        tables.append(_learn_and_try(learners, task, _asked(raw[n], protocol, seed), ks, enrolled))
        (i, p, j), v = best_setting(tables)
        seconds = time.perf_counter() - begun
        best = learners[i]
        k = ks[j]
        how = enrolled[p]
        errors = [_asked_errors(best, t, "test", [k], [how])[0][0] for t in tasks[: n + 1]]
        errors += [float("nan")] * (len(tasks) - n - 1)
        said = {"variant": i, "n_neighbors": k, **(how if len(enrolled) > 1 else {})}
        steps.append(_Step(errors, v, said, seconds, best.state_nbytes_))
    return steps


# book/transfer.ipynb#learners-and-joint-models
def _seeded(learner: Any, seed: int) -> Any:
    """A clone with the seed in every random_state."""
    names = [name for name in learner.get_params() if name.endswith("random_state")]
    return clone(learner).set_params(**dict.fromkeys(names, seed))


def _asked_errors(
    learner: Any, task: Task, part: str, ks: Sequence[int], enrolled: Sequence[Mapping[str, float]]
) -> list[list[float]]:
    """Errors of a learner on a part of a known task for each way to enrol and each k."""
    X = getattr(task, f"X_{part}")
    R = task.X_train
    y = task.y_train
    metric = learner.task_metric(task.name)
    kind = learner.metric_type_
    errors = []
    metric = metric.psd() if kind == "distance" else metric
    for how in enrolled:
        references = learner.enrol(R, y, task=task.name, **how) if how else R
        scores = pairwise_scores(metric, X, references, kind)
        errors.append(_shares(scores, y, getattr(task, f"y_{part}"), ks))
    return errors


# book/transfer.ipynb#learners-and-joint-models
def _learn_and_try(
    learners: Sequence[Any],
    task: Task,
    parts: Sequence[Task],
    ks: Sequence[int],
    enrolled: Sequence[Mapping[str, float]],
) -> Floats:
    """Let learners see a task; mean errors (learners, enrolled, ks) on parts that were held out."""
    errors = []
    for part in parts if len(learners) * len(enrolled) * len(ks) > 1 else []:
        if len(parts) > 1:  # folds: by copies that see the other folds
            held = [copy.deepcopy(one) for one in learners]
            held = [one.partial_fit(part.X_train, part.y_train, task=task.name) for one in held]
            errors.append([_asked_errors(one, part, "validation", ks, enrolled) for one in held])
    for one in learners:
        one.partial_fit(task.X_train, task.y_train, task=task.name)
    if len(parts) == 1:
        errors = [[_asked_errors(one, parts[0], "validation", ks, enrolled) for one in learners]]
    return np.mean(errors or [[[[0.0]]]], axis=0)


# book/transfer.ipynb#learners-and-joint-models
def _at_the_end(step: _Step) -> list[_Step]:
    """Steps of a stream in which nobody is asked before the last one."""
    none = [float("nan")] * len(step.errors)
    early = [_Step(none, float("nan"), {}, 0.0, 0) for _ in none[1:]]
    return [*early, step]


def follow_joint(
    variants: Sequence[Any], refit: bool, raw: Sequence[Task], protocol: Protocol, seed: int
) -> list[_Step]:
    """The last step of a stream by a classifier of the rows of all tasks together.

    Each task's mean is subtracted from its rows; only labels of the task can be answers.
    """
    folds = _folds(raw, protocol.n_folds, seed)
    tables = [[_joint_errors(v, fold, "validation") for v in variants] for fold in folds]
    table = np.mean(tables, axis=(0, 2))
    best = int(np.argmin(table))
    tasks = _refitted(raw, protocol, refit)
    begun = time.perf_counter()
    errors = _joint_errors(variants[best], tasks, "test")
    seconds = time.perf_counter() - begun
    kept = sum(nbytes(t.X_train) + t.y_train.nbytes for t in tasks)
    return _at_the_end(_Step(errors, float(table[best]), {"variant": best}, seconds, kept))


# book/transfer.ipynb#learners-and-joint-models
def _joint_errors(model: Any, tasks: Sequence[Task], part: str) -> list[float]:
    """Errors on a part of each task by a classifier of all their training rows."""
    means = [t.X_train.mean(axis=0) for t in tasks]
    X = np.concatenate([t.X_train - mean for t, mean in zip(tasks, means, strict=True)])
    model = clone(model).fit(X, np.concatenate([t.y_train for t in tasks]))
    errors = []
    for t, mean in zip(tasks, means, strict=True):
        scores = model.predict_log_proba(getattr(t, f"X_{part}") - mean)
        possible = np.isin(model.classes_, t.y_train)
        answers = model.classes_[np.where(possible, scores, -np.inf).argmax(axis=1)]
        errors.append(float(np.mean(answers != getattr(t, f"y_{part}"))))
    return errors


# book/transfer.ipynb#learners-and-joint-models
def follow_table(system: str, raw: Sequence[Task], protocol: Protocol, seed: int) -> list[_Step]:
    """The last step of a stream by a system of `lml.studies.systems`, tuned as it is for the tables."""
    parameters, k, v = tune(system, raw, protocol, seed)
    tasks = _refitted(raw, protocol)
    begun = time.perf_counter()
    fitted = SYSTEMS[system].fit(tasks, seed, _Fits(), **parameters)
    seconds = time.perf_counter() - begun
    errors = [_task_errors(fitted, t, "test", (max(k, 1),))[0] for t in tasks]
    said = {**parameters, "n_neighbors": k}
    return _at_the_end(_Step(errors, v, said, seconds, fitted.nbytes))


# book/transfer.ipynb#systems-and-studies
_Systems: TypeAlias = dict[str, Callable[..., list[_Step]]]
_OWN = ((1.0, 1.0),)
_KEYED = Grid(shrinkages=(*Grid().shrinkages, (1.0, 0.0, 0.0), (3.0, 1.0, 0.0)), shared_labels=True)


# book/transfer.ipynb#systems-and-studies
_FEW = {
    "regularizations": (1.0,),
    "weights": ((0.25, 0.0), (1.0, 1.0)),
    "shrinkages": ((1.0, 1.0, 0.0),),
    "pulls": (1.0,),
}


# book/transfer.ipynb#systems-and-studies
_LDA = [LinearDiscriminantAnalysis(solver="lsqr", shrinkage=s) for s in (0.03, 0.1, 0.3, 0.6)]
_LOGISTIC = [LogisticRegression(C=c, max_iter=10_000) for c in (10.0, 1.0, 0.1, 0.01)]
_OASIS = {
    warm: [
        LifelongMetricLearner(OASIS(a), 200, 0.01, warm_start_from_dictionary=warm)
        for a in (0.1, 1.0, 0.01)
    ]
    for warm in (False, True)
}


# book/transfer.ipynb#systems-and-studies
_MAIN: _Systems = {
    "alone": partial(follow_grid, Grid(weights=_OWN)),
    "alone, each": partial(follow_grid, Grid(weights=_OWN, each=True)),
    "shared": partial(follow_grid, Grid()),
    "keyed": partial(follow_grid, _KEYED),
    "keyed, common means": partial(follow_grid, replace(_KEYED, common=True)),
    "joint LDA": partial(follow_joint, _LDA, False),
    "joint logistic": partial(follow_joint, _LOGISTIC, False),
    "lifelong OASIS": partial(follow_learner, _OASIS[False]),
    "lifelong OASIS, warm": partial(follow_learner, _OASIS[True]),
}


# book/transfer.ipynb#systems-and-studies
def _varied(**fields: Any) -> Callable[..., list[_Step]]:
    """A grid with some of its values fixed."""
    return partial(follow_grid, Grid(**fields))


# book/transfer.ipynb#systems-and-studies
_PARTS: _Systems = {
    "own within, shared between": _varied(weights=((1.0, 0.0), (1.0, 0.25))),
    "shared within, own between": _varied(weights=((0.0, 1.0), (0.25, 1.0))),
    "all shared": _varied(weights=((0.0, 0.0),)),
    "mixed within, shared between": _varied(weights=((0.25, 0.0),)),
    "similarity": _varied(shrinkages=((1e-6, 0.0, 0.0),)),
    "distance": _varied(shrinkages=((1e6, 0.0, 0.0),)),
    "measured variances": _varied(shrinkages=((1.0, 0.0, 0.0),)),
    "no floor": _varied(shrinkages=Grid().shrinkages[:2]),
    "rows as references": _varied(pulls=(0.0,)),
    "class means as references": _varied(pulls=(1.0,)),
    "rho 1": _varied(regularizations=(1.0,)),
    "one setting": partial(follow_grid, Grid((2.0,), ((1.0, 0.25),), ((0.3, 0.0, 0.1),), (0.0,))),
    "one setting, alone": partial(follow_grid, Grid((2.0,), _OWN, ((0.1, 0.0, 0.3),), (0.0,))),
}


# book/transfer.ipynb#systems-and-studies
_GIVEN: dict[str, Any] = {"own_weight": (0.25, 0.0), "shrinkage": (0.3, 0.0, 0.0)}
_SIZES = (25, 50, 100, 200, 400, 617)
_THRESHOLDS = (0.01, 0.03, 0.1, 0.3, 1.0)


def _fixed(**parameters: Any) -> Callable[..., list[_Step]]:
    """`LifelongPLDA` with given parameters."""
    return partial(follow_learner, [LifelongPLDA(**{**_GIVEN, **parameters})])


# book/transfer.ipynb#systems-and-studies
_REFIT: _Systems = {
    "alone, all rows": _varied(weights=_OWN, refit=True),
    "shared, all rows": _varied(refit=True),
    "keyed, common means, all rows": partial(follow_grid, replace(_KEYED, common=True, refit=True)),
    "joint logistic, all rows": partial(follow_joint, _LOGISTIC, True),
}
_SIZE: _Systems = {
    **{f"d = {d}": _fixed(n_components=d) for d in _SIZES},
    **{f"threshold {c:g}": _fixed(n_components=617, code_penalty=c) for c in _THRESHOLDS},
}


# book/transfer.ipynb#systems-and-studies
_FEW_SYSTEMS: _Systems = {
    "few, alone": _varied(**{**_FEW, "weights": _OWN}),
    "few, shared": _varied(**_FEW),
    "few, keyed": _varied(**_FEW, shared_labels=True, common=True),
    "few, keyed, own means": _varied(**_FEW, shared_labels=True),
}
_RAW: _Systems = {
    "raw alone": _fixed(n_components=200, own_weight=1.0),
    "raw keyed": _fixed(n_components=200, shared_labels=True),
}


# book/transfer.ipynb#systems-and-studies
_PULLS: list[dict[str, float]] = [{}, {"pull": 0.5}, {"pull": 1.0}]
_MEANS = [{"pull": 1.0, "common": 0.5}]  # class means, half their own
_OURS = {
    "own choice": (LifelongPLDA(617), _PULLS),
    "own choice, alone": (LifelongPLDA(617, own_weight=1.0), _PULLS),
    "own choice, keyed": (LifelongPLDA(617, shared_labels=True), _MEANS),
}
_CHOICE: _Systems = {
    **{name: partial(follow_learner, [own]) for name, (own, _) in _OURS.items()},
    **{f"{name}, enrolled": partial(follow_learner, [own], enrolled=ways)
       for name, (own, ways) in _OURS.items()},
}  # fmt: skip


# book/transfer.ipynb#systems-and-studies
def follow_alone(learner: Any, raw: Sequence[Task], protocol: Protocol, seed: int) -> list[_Step]:
    """Every step of a stream in which each task has a learner that sees no other task."""
    ends = [follow_learner([learner], [task], protocol, seed)[0] for task in raw]
    found = [end.errors[0] for end in ends]
    steps = []
    kept = 0
    for n, end in enumerate(ends, start=1):
        kept += end.state_bytes
        errors = found[:n] + [float("nan")] * (len(raw) - n)
        steps.append(end._replace(errors=errors, state_bytes=kept))
    return steps


# book/transfer.ipynb#systems-and-studies
def follow_honest(
    follow: Callable[..., list[_Step]], raw: Sequence[Task], protocol: Protocol, seed: int
) -> list[_Step]:
    """Every step of a stream without its ruined tasks, which are neither learnt nor asked."""
    honest = [n for n, task in enumerate(raw) if task.name not in RUINED]
    found = follow([raw[n] for n in honest], protocol, seed)
    none = [float("nan")] * len(raw)
    steps = [_Step(none, float("nan"), {}, 0.0, 0)] * len(raw)
    for n in range(honest[0], len(raw)):
        step = found[sum(m <= n for m in honest) - 1]
        at = dict(zip(honest, step.errors, strict=True))
        steps[n] = step._replace(errors=[at.get(m, float("nan")) for m in range(len(raw))])
    return steps


# book/transfer.ipynb#systems-and-studies
_GUARDED: _Systems = {
    "on its own": partial(follow_alone, LifelongPLDA(617)),
    "own choice, keyed, no ruin": partial(follow_honest, _CHOICE["own choice, keyed"]),
}


# book/transfer.ipynb#systems-and-studies
#: System name to what follows a stream: (tasks, protocol, seed) to steps.
FOLLOWERS: _Systems = {
    **{name: partial(follow_table, name) for name in SYSTEMS},
    **_MAIN,
    **_PARTS,
    **_REFIT,
    **_SIZE,
    **_FEW_SYSTEMS,
    **_RAW,
    **_CHOICE,
    **_GUARDED,
}


# book/transfer.ipynb#systems-and-studies
@dataclass(frozen=True)
class Study:
    """Which systems are followed on which streams."""

    datasets: tuple[str, ...]
    systems: tuple[str, ...]
    n_splits: int
    orders: tuple[int, ...] = (0,)

    def units(self, dataset: str, n_splits: int | None = None) -> list[tuple[int, int, str]]:
        """(split, order, system), split by split; labels are shared where they mean the same."""
        shared = STREAMS[dataset].shared_labels
        splits = range(100, 100 + (self.n_splits if n_splits is None else n_splits))
        systems = [name for name in self.systems if shared or "keyed" not in name]
        own = {name for name in SYSTEMS if SYSTEMS[name].applies(shared, STREAMS[dataset].binary)}
        systems = [name for name in systems if name in own or name not in SYSTEMS]
        return [(s, order, name) for s in splits for order in self.orders for name in systems]


_TABLES = ("isolet", "usps", "sentiment")


# book/transfer.ipynb#systems-and-studies
#: Study name to what is run for it.
STUDIES = {
    "streams": Study((*_TABLES, "isolet-speakers"),
        ("alone", "alone, each", "shared", "keyed", "keyed, common means", "joint LDA",
         "joint logistic", "few, alone", "few, shared"), 20),
    "tables": Study(_TABLES, ("euclidean", "nca", "logistic", "oasis", "scml", "lmnn", "pooled-scml",
        "pooled-lmnn", "mtscml", "mtlmnn", "ella", "ella-ovr", "lifelong-scml"), 20),
    "orders": Study(_TABLES, ("shared", "keyed"), 20, (1, 2, 3, 4, 5)),
    "parts": Study(_TABLES, tuple(_PARTS), 20),
    "refit": Study(("sentiment", "isolet"), tuple(_REFIT), 20),
    "count": Study(("isolet-30",), tuple(_FEW_SYSTEMS), 20),
    "learners": Study(_TABLES, ("lifelong OASIS", "lifelong OASIS, warm", *_CHOICE), 20),
    "size": Study(("isolet",), tuple(_SIZE), 20),
    "raw": Study(("sentiment-raw",), ("raw alone", "d = 50", "d = 100", "d = 200", "d = 400", "raw keyed"), 20),
    "safeguard": Study(("isolet-ruined", "usps-ruined"), ("own choice", "own choice, keyed", *_GUARDED), 20),
}  # fmt: skip


# book/transfer.ipynb#the-runner
def run_unit(dataset: str, split: int, order: int, system: str) -> list[TransferRow]:
    """Follow one stream with one system; a row for each step."""
    tasks = _ordered(dataset, split, order)
    protocol = STREAMS[dataset]
    steps = FOLLOWERS[system](tasks, protocol, split)
    rows = []
    seen = 0
    names = " ".join(t.name for t in tasks)
    for n, (task, step) in enumerate(zip(_refitted(tasks, protocol), steps, strict=True), start=1):
        seen += nbytes(task.X_train) + task.y_train.nbytes
        errors = " ".join(f"{error:.6g}" for error in step.errors)
        said = round(step.validation_error, 6), json.dumps(step.parameters), round(step.seconds, 3)
        first = dataset, split, order, system, n, names, errors
        rows.append(TransferRow(*first, *said, step.state_bytes, seen, _versions()))
    return rows


# book/transfer.ipynb#the-runner
def run_study(
    study: str,
    datasets: Sequence[str] | None = None,
    systems: Sequence[str] | None = None,
    n_splits: int | None = None,
    n_jobs: int | None = None,
    out: str | Path = "results",
    progress: bool = True,
) -> list[Path]:  # fmt: skip
    """Run the missing units of one study and write their rows as they finish.

    Parameters
    ----------
    study : str
        A key of `STUDIES`.
    datasets, systems : sequence of str or None, default=None
        Some of the study's; None is all of them.
    n_splits : int or None, default=None
        Number of splits, with seeds from 100; None is what the study says.
    n_jobs : int or None, default=None
        Units run at a time, through joblib.
    out : path-like, default="results"
        Folder of the files ``transfer-STUDY-DATASET.csv``.
    progress : bool, default=True
        Show a progress bar.

    Returns
    -------
    list of pathlib.Path
        A results file for each data set. Units that it already has are not run again.

    Raises
    ------
    ValueError
        If the study, a data set or a system is not known, or a file has other columns.
        Nothing has been run then.
    """
    plan = _checked(study, datasets, systems, n_splits)
    work = {}
    for dataset, units in plan.items():
        path = open_results(Path(out) / f"transfer-{study}-{dataset}.csv", TransferRow)
        repair(path, ("split", "order", "system"), len(STREAMS[dataset].load(random_state=0)))
        done = finished(path, "split", "order", "system")
        left = [unit for unit in units if tuple(map(str, unit)) not in done]
        work[path] = [(unit[-1], partial(run_unit, dataset, *unit)) for unit in left]
    for path, calls in work.items():
        run_jobs(path, calls, (), n_jobs, path.stem, progress)
    return list(work)


# book/transfer.ipynb#the-runner
def _checked(
    study: str, datasets: Sequence[str] | None, systems: Sequence[str] | None, n_splits: int | None
) -> dict[str, list[tuple[int, int, str]]]:
    """Units of each data set, or an error that says what is wrong."""
    if study not in STUDIES:
        raise ValueError(f"study {study!r} is not known: use one of {list(STUDIES)}")
    chosen = STUDIES[study]
    if n_splits is not None and n_splits < 1:
        raise ValueError(f"n_splits is {n_splits!r}: give the number of splits, at least 1")
    for what, given, known in (
        ("data set", datasets, chosen.datasets),
        ("system", systems, chosen.systems),
    ):
        for name in [given] if isinstance(given, str) else given or ():
            if name not in known:
                raise ValueError(f"{what} {name!r} has no part in {study!r}: use some of {known}")
    wanted = set(systems or chosen.systems)
    names = [datasets] if isinstance(datasets, str) else datasets or chosen.datasets
    return {d: [u for u in chosen.units(d, n_splits) if u[-1] in wanted] for d in names}


# book/transfer.ipynb#the-runner
def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lml.studies.transfer")
    parser.add_argument("action", choices=["run"])
    parser.add_argument("datasets", nargs="*", metavar="DATASET", help=", ".join(STREAMS))
    parser.add_argument("--studies", nargs="+", choices=list(STUDIES))
    parser.add_argument("--systems", nargs="+", metavar="SYSTEM")
    parser.add_argument("--splits", type=int, help="number of splits")
    parser.add_argument("--jobs", type=int, help="units at a time")
    parser.add_argument("--out", default="results", help="folder of the results files")
    return parser


# book/transfer.ipynb#the-runner
def _main(argv: Sequence[str] | None = None) -> int:
    o = _parser().parse_intermixed_args(argv)
    for study in o.studies or STUDIES:
        named = [d for d in STUDIES[study].datasets if d in o.datasets]
        if named or not o.datasets:
            run_study(study, named or None, o.systems, o.splits, o.jobs, o.out)
    return 0


# book/transfer.ipynb#the-runner
if __name__ == "__main__" and "__file__" in globals():  # run as a program, not in the book
    # the module of that name, and not this copy of it, is what workers know
    sys.exit(importlib.import_module("lml.studies.transfer")._main())
