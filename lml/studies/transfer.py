# Generated from book/streams.ipynb by tools/tangle.py: edit the chapter.
"""What lifelong learning is worth on real data: ``python -m lml.studies transfer``.

Streams of tasks in which every task is measured after every step, with settings chosen by
validation in the samples seen so far. Each study writes ``results/transfer-STUDY-DATASET.csv`` as
it goes and goes on where it was stopped.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression

from lml.datasets import (
    Task,
    load_arrays,
    load_few_shot_digits,
    load_sentiment_tasks,
    make_embedding_stream,
    make_task,
    split_samples,
)
from lml.lifelong import LifelongMetricLearner
from lml.lmnn import LMNN
from lml.metrics import FactoredMetric, pairwise_scores
from lml.neighbors import majority_vote
from lml.oasis import OASIS
from lml.plda import LifelongPLDA
from lml.plda.model import (
    Moments,
    Scatters,
    class_axes,
    log_ratios,
    mix_scatters,
    pooled_scatters,
    shrunken_variances,
    task_moments,
)
from lml.scml import SCML
from lml.studies.experiments import (
    DATASETS,
    Protocol,
    chosen_names,
    run_missing,
    task_errors,
    tune,
)
from lml.studies.results import Rows, software_versions
from lml.studies.systems import SYSTEMS, prepared
from lml.utils.linalg import nbytes
from lml.utils.typing import Floats, Indices, Matrix
from lml.utils.validation import one_of, optional, whole

__all__ = [
    "FOLLOWERS",
    "RUINED",
    "STREAMS",
    "STUDIES",
    "Grid",
    "Setting",
    "Step",
    "Study",
    "Transfer",
    "TransferRow",
    "best_setting",
    "error_matrices",
    "follow_alone",
    "follow_class_means",
    "follow_grid",
    "follow_joint",
    "follow_learner",
    "follow_table",
    "follow_without_ruined",
    "load_ruined_tasks",
    "load_speaker_tasks",
    "ordered_tasks",
    "plda_bytes",
    "ruined_task",
    "run_study",
    "run_unit",
    "transfer_values",
]


# book/streams.ipynb#lines-of-results
@dataclass(frozen=True, kw_only=True)
class TransferRow:
    """The errors of all tasks after one step of a stream."""

    dataset: str
    split: int  # its seed
    order: int  # 0: that of the data set, otherwise the seed of a permutation
    system: str
    n_learnt: int
    tasks: str  # names in the order of their arrival
    errors: str  # shares of wrong answers on the test samples, in that order; nan: not asked
    validation_error: float  # of the setting, over the tasks learned so far
    parameters: str  # JSON: the setting
    seconds: float  # to learn the task of this step, with its choice
    state_bytes: int  # what the learner keeps
    raw_bytes: int  # of the learning rows seen so far
    versions: str = field(default_factory=software_versions)


# book/streams.ipynb#lines-of-results
def error_matrices(rows: Rows, system: str) -> Floats:
    """Errors of every task after every step, in per cent.

    Parameters
    ----------
    rows : list of dict
        Rows of one study and data set, as `lml.studies.results.read_rows` gives them.
    system : str

    Returns
    -------
    ndarray of shape (n_units, n_tasks, n_tasks)
        A matrix for each split and order, sorted by these: row = number of learned tasks,
        column = task in the order of arrival; NaN where a task was not asked.

    Raises
    ------
    ValueError
        If there is no row of the system, or a step is missing.

    Notes
    -----
    Derived in chapter 20 (transfer), eq. (transfer-matrix).
    """
    units: dict[tuple[int, int], dict[int, list[float]]] = {}
    for row in (r for r in rows if r["system"] == system):
        steps = units.setdefault((int(row["split"]), int(row["order"])), {})
        steps[int(row["n_learnt"])] = [100 * float(e) for e in row["errors"].split()]
    for steps in units.values():
        n_tasks = max(map(len, steps.values()))  # nothing is written of a step that asked nobody
        steps.update({n: [float("nan")] * n_tasks for n in steps if not steps[n]})
    sizes = {(len(steps), len(steps[n])) for steps in units.values() for n in steps}
    if len(sizes) != 1 or len(set(*sizes)) != 1:
        raise ValueError(
            f"rows of {system!r} make matrices of shapes {sorted(sizes)}: finish the run"
        )
    return np.array([[units[u][n] for n in sorted(units[u])] for u in sorted(units)])


# book/streams.ipynb#lines-of-results
class Transfer(NamedTuple):
    """What a stream is worth, one number for each matrix, in per cent or points.

    Derived in chapter 20 (transfer), eq. (transfer-values).
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
    Derived in chapter 20 (transfer), eq. (transfer-values).
    """
    R = np.asarray(matrices, dtype=float)
    arrival = np.diagonal(R, axis1=1, axis2=2)
    final = R[:, -1]
    return Transfer(
        arrival=arrival.mean(axis=1),
        final=final.mean(axis=1),
        backward=(arrival - final)[:, :-1].mean(axis=1),
    )


# book/streams.ipynb#streams
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
    Derived in chapter 45 (loading), eq. (datasets-speaker).
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


# book/streams.ipynb#streams
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


# book/streams.ipynb#streams
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


def _load_embeddings(n_tasks: int, random_state: int | None = None) -> list[Task]:
    """Tasks like embeddings."""
    return list(make_embedding_stream(n_tasks, random_state=random_state))


#: Data set name to its protocol: those of the tables, 30 tasks of speakers, sparse reviews, and
#: streams with ruined tasks; two hundred tasks like embeddings, and fifteen of a few digits.
STREAMS = {
    **DATASETS,
    "isolet-30": replace(DATASETS["isolet"], load=load_speaker_tasks),
    "sentiment-raw": replace(DATASETS["sentiment"], load=partial(load_sentiment_tasks, "raw")),
    "isolet-ruined": _with_ruined("isolet", 3),
    "usps-ruined": _with_ruined("usps", 1),
    "embeddings": Protocol(partial(_load_embeddings, 200), n_folds=2),
    "embeddings-40": Protocol(partial(_load_embeddings, 40), n_folds=2),
    "digits-few": Protocol(load_few_shot_digits, n_folds=2),
}


def ordered_tasks(dataset: str, split: int, order: int) -> list[Task]:
    """The tasks of a split in one order: 0 is that of the data set, others are seeds."""
    tasks = STREAMS[dataset].load(random_state=split)
    if order == 0:
        return tasks
    return [tasks[t] for t in np.random.default_rng(order).permutation(len(tasks))]


# book/streams.ipynb#what-is-chosen-and-by-which-samples
def best_setting(tables: Sequence[Floats]) -> tuple[tuple[int, ...], float]:
    """Place of the smallest entry in the mean of several tables, and that entry.

    Parameters
    ----------
    tables : list of ndarray of one shape
        Validation error of each setting, one table for each task. Of equal ones the first counts.

    Notes
    -----
    Derived in chapter 41 (streams), eq. (transfer-choice).
    """
    table = np.mean(tables, axis=0)
    place = np.unravel_index(np.argmin(table), table.shape)
    return tuple(map(int, place)), float(table[place])


# book/streams.ipynb#what-is-chosen-and-by-which-samples
def _shares(
    scores: Floats, labels: NDArray[Any], y: NDArray[Any], ks: Sequence[int]
) -> list[float]:
    """Shares of wrong answers by the references with the largest scores, for each k."""
    few = min(max(ks), scores.shape[1] - 1)
    some = np.argpartition(-scores, few, axis=1)[:, : max(ks)]
    order = np.argsort(-np.take_along_axis(scores, some, axis=1), axis=1)
    near = labels[np.take_along_axis(some, order, axis=1)]
    return [float(np.mean(majority_vote(near[:, :k]) != y)) for k in ks]


# book/streams.ipynb#read-outs-in-closed-form
class _Known(NamedTuple):
    """The statistics of a task and the rows that it is asked with."""

    moments: Moments
    mean: Floats
    task: Task


def _known(task: Task) -> _Known:
    """Statistics of the training rows of a task."""
    labels, codes = np.unique(task.y_train, return_inverse=True)
    return _Known(*task_moments(task.X_train, codes, labels.tolist()), task)


class _Memory(NamedTuple):
    """What the tasks so far say together."""

    scatters: Scatters
    means: Mapping[Any, Floats] | None  # of each class, each task's mean at 0, in its unit


def _memory(known: Sequence[_Known], grid: "Grid") -> _Memory:
    """Pooled statistics of tasks, with the class means over the rows of all if the grid has them."""
    moments = [one.moments for one in known]
    scatters = pooled_scatters(moments, grid.shared_labels)
    means = None
    if grid.common:
        rows: dict[Any, list[tuple[int, Floats]]] = {}
        for m in (one.in_unit() for one in moments):
            for label, count, mean in zip(m.labels, m.counts.tolist(), m.means, strict=True):
                rows.setdefault(label, []).append((count, mean))
        means = {k: np.average([m for _, m in v], 0, [n for n, _ in v]) for k, v in rows.items()}
    return _Memory(scatters, means)


def _targets(known: _Known, memory: _Memory) -> Floats:
    """What each training row is pulled toward, less the mean of the task."""
    own = dict(zip(known.moments.labels, known.moments.means, strict=True))
    if memory.means is not None:
        root = np.sqrt(known.moments.unit)
        own = {label: (mean + root * memory.means[label]) / 2 for label, mean in own.items()}
    return np.array([own[label] for label in known.task.y_train.tolist()])


# book/streams.ipynb#read-outs-in-closed-form
_Triple: TypeAlias = tuple[float, float, float]
_Axes: TypeAlias = tuple[Floats, Floats]  # V (D, k) and psi (k,)


class Setting(NamedTuple):
    """One read-out of a task's statistics and those of all tasks."""

    regularization: float = 1.0  # rho
    own_weight: tuple[float, float] = (0.25, 0.0)  # within and between classes
    shrinkage: _Triple = (0.3, 0.0, 0.0)
    pull: float = 0.0  # of references toward the mean of their class
    n_neighbors: int = 1


def _axes(known: _Known, memory: _Memory, rho: float, weight: Any) -> _Axes:
    """Axes of a task's read-out and the spread along them, in within-class units."""
    m = known.moments
    mixed = mix_scatters(weight, m.scatters, memory.scatters)
    V, psi = class_axes(mixed, rho)
    return V / np.sqrt(m.unit), psi


def _read_errors(
    known: _Known, targets: Floats, axes: _Axes, setting: Setting, part: str, ks: Sequence[int]
) -> list[float]:
    """Errors on a part of a task by the log-ratios along some axes, for each k."""
    V, psi = axes
    t = known.task
    Q = (getattr(t, f"X_{part}") - known.mean) @ V
    R = (t.X_train - known.mean) @ V
    references = (1 - setting.pull) * R + setting.pull * (targets @ V)
    scores = log_ratios(shrunken_variances(psi, *setting.shrinkage), Q, references)
    return _shares(scores, t.y_train, getattr(t, f"y_{part}"), ks)


# book/streams.ipynb#read-outs-in-closed-form
@dataclass(frozen=True)
class Grid:
    """The settings that a system of closed-form read-outs chooses from."""

    regularizations: tuple[float, ...] = (1.0, 3.0)
    weights: tuple[tuple[float, float], ...] = ((0.25, 0.0), (0.0, 0.0), (1.0, 0.25), (1.0, 1.0))
    shrinkages: tuple[_Triple, ...] = ((0.3, 0.0, 0.0), (1.0, 1.0, 0.0), (0.3, 0.0, 0.3))
    pulls: tuple[float, ...] = (0.0, 1.0)
    shared_labels: bool = False
    each: bool = False  # a task chooses by its own validation error alone
    common: bool = False  # class means are half those of all tasks

    def settings(self) -> list[Setting]:
        """All settings but for the number of neighbors, which one reading has for all k."""
        values = (self.regularizations, self.weights, self.shrinkages, self.pulls)
        return [Setting(*chosen) for chosen in product(*values)]

    def table(self, known: _Known, memory: _Memory, ks: Sequence[int]) -> Floats:
        """Validation errors of shape (n_settings, n_ks)."""
        axes = lru_cache(maxsize=None)(partial(_axes, known, memory))
        targets = _targets(known, memory)
        errors = []
        for s in self.settings():
            own = axes(s.regularization, s.own_weight)
            errors.append(_read_errors(known, targets, own, s, "validation", ks))
        return np.array(errors)


# book/streams.ipynb#read-outs-in-closed-form
class Step(NamedTuple):
    """What is written of one step of a stream."""

    errors: list[float]  # of all tasks in the order of arrival; nan: not asked
    parameters: Any
    validation_error: float = float("nan")
    seconds: float = 0.0
    state_bytes: int = 0


def plda_bytes(moments: Sequence[Moments], shared_labels: bool = False) -> int:
    """Bytes that `LifelongPLDA` keeps of tasks at d = D: dictionary, codes, means, statistics.

    Notes
    -----
    Derived in chapter 23 (plda_memory), eq. (plda-bytes).
    """
    n = moments[0].n_features
    n_classes = sum(len(m.counts) for m in moments)
    sums = 2 * n * n
    if shared_labels:
        n_labels = len({label for m in moments for label in m.labels})
        sums = 3 * n * n + n_labels * (n + 2)
    return 8 * (n * n * (1 + len(moments)) + n * (n_classes + len(moments)) + sums)


# book/streams.ipynb#read-outs-in-closed-form
def follow_grid(grid: Grid, raw: Sequence[Task], protocol: Protocol, seed: int) -> list[Step]:
    """Every step of a stream of closed-form read-outs."""
    ks = protocol.n_neighbors
    tasks = protocol.final(raw)
    known: list[_Known] = []  # tasks that have arrived
    tables: list[Floats] = []  # validation errors of all settings, made when a task arrives
    steps = []
    for n, task in enumerate(tasks):
        begun = time.perf_counter()
        held_out = []
        for (part,) in protocol.folds([raw[n]], seed):
            own = _known(part)
            memory = _memory([*known, own], grid)
            held_out.append(grid.table(own, memory, ks))
        tables.append(np.mean(held_out, axis=0))
        known.append(_known(task))
        memory = _memory(known, grid)
        seconds = time.perf_counter() - begun
        # one setting for all tasks by (transfer-choice), or each by its own table
        settings = []
        for table in tables:
            (i, k), _ = best_setting([table] if grid.each else tables)
            settings.append(grid.settings()[i]._replace(n_neighbors=ks[k]))
        errors = []
        for one, s in zip(known, settings, strict=True):
            axes = _axes(one, memory, s.regularization, s.own_weight)
            errors += _read_errors(one, _targets(one, memory), axes, s, "test", [s.n_neighbors])
        # tasks to come, by shared statistics alone; their own rows are references, no more
        axes = _axes(known[n], memory, s.regularization, (0.0, 0.0))
        for one in map(_known, tasks[n + 1 :]):
            targets = _targets(one, memory._replace(means=None))
            errors += _read_errors(one, targets, axes, s, "test", [s.n_neighbors])
        step = Step(
            errors=errors,
            parameters=[s._asdict() for s in (settings if grid.each else settings[-1:])],
            validation_error=best_setting(tables)[1],
            seconds=seconds,
            state_bytes=plda_bytes([one.moments for one in known], grid.shared_labels),
        )
        steps.append(step)
    return steps


# book/streams.ipynb#learners-and-joint-models
def follow_learner(
    variants: Sequence[Any],
    raw: Sequence[Task],
    protocol: Protocol,
    seed: int,
    ref_ways: Sequence[Mapping[str, float]] = ({},),
) -> list[Step]:
    """Every step of a stream learned by lifelong learners, of which validation chooses one.

    `variants` are unfitted learners that differ in their parameters; `ref_ways` are ways to
    use the references, of which validation chooses one as well; {} leaves these as they are.
    In a stream of more than 50 tasks the first 20 choose for all.
    """
    if not ref_ways or isinstance(ref_ways, Mapping):
        raise ValueError(f"ref_ways is {ref_ways!r}: give a list of ways, [{{}}] leaves references")
    ks = protocol.n_neighbors
    tasks = protocol.final(raw)
    learners = [prepared(variant, seed) for variant in variants]
    n_choices = len(learners) * len(ref_ways) * len(ks)
    tables = []
    steps = []
    for n, task in enumerate(tasks):
        begun = time.perf_counter()
        chooses = len(tasks) <= 50 or n < 20
        parts = [part for (part,) in protocol.folds([raw[n]], seed)] if chooses else []
        before = copy.deepcopy(learners) if len(parts) > 1 else []
        for one in learners:
            one.partial_fit(task.X_train, task.y_train, task=task.name)
        held_out = []
        for part in parts if n_choices > 1 or not before else []:
            tried = copy.deepcopy(before) or learners  # of folds: copies that see the other folds
            for one in tried if before else []:
                one.partial_fit(part.X_train, part.y_train, task=task.name)
            held_out.append([_reference_errors(t, part, "validation", ks, ref_ways) for t in tried])
        if chooses:
            tables.append(np.mean(held_out or [[[[0.0]]]], axis=0))  # learners x ref_ways x ks
        (i, p, j), validation_error = best_setting(tables)
        seconds = time.perf_counter() - begun
        way = ref_ways[p]
        # of a long stream, each task is asked about on arrival and all of them at the end
        asked = [n] if len(tasks) > 50 and n + 1 < len(tasks) else range(n + 1)
        errors = np.full(len(tasks), np.nan)
        for t in asked:
            errors[t] = _reference_errors(learners[i], tasks[t], "test", [ks[j]], [way])[0][0]
        step = Step(
            errors=errors.tolist(),
            validation_error=validation_error,
            parameters={"variant": i, "n_neighbors": ks[j], **(way if len(ref_ways) > 1 else {})},
            seconds=seconds,
            state_bytes=learners[i].state_nbytes_,
        )
        steps.append(step)
    return steps


# book/streams.ipynb#learners-and-joint-models
def _read_out(learner: Any, task: str) -> tuple[FactoredMetric, str]:
    """The metric that ranks the references of a task, and its type."""
    kind = learner.metric_type_
    metric = learner.task_metric(task)
    return (metric.psd() if kind == "distance" else metric), kind


def _reference_errors(
    learner: Any, task: Task, part: str, ks: Sequence[int], ref_ways: Sequence[Mapping[str, float]]
) -> list[list[float]]:
    """Errors of a learner on a part of a known task for each way to use references and each k.

    A way has the amount of `shrink_references` ("pull") and its weight of all tasks ("common"), and
    whether the class means of other tasks are references, too ("others"). Of two learners, it has
    the weight of the second ("weight").
    """
    if hasattr(learner, "reference_errors"):  # two learners
        return learner.reference_errors(task, part, ks, [way["weight"] for way in ref_ways])
    metric, kind = _read_out(learner, task.name)
    errors = []
    for way in ref_ways:
        references = task.X_train
        labels = task.y_train
        if "pull" in way:
            references = learner.shrink_references(
                references,
                task.y_train,
                task=task.name,
                amount=way["pull"],
                shared=way.get("common", 0.0),
            )
        if "others" in way:
            means, theirs = learner.class_means_of_others(task=task.name)
            references = np.concatenate([references, means])
            labels = np.concatenate([labels, theirs])
        scores = pairwise_scores(metric, getattr(task, f"X_{part}"), references, kind)
        errors.append(_shares(scores, labels, getattr(task, f"y_{part}"), ks))
    return errors


# book/streams.ipynb#learners-and-joint-models
class _Together(BaseEstimator):
    """Two lifelong learners of one stream, whose scores make one ranking.

    Derived in chapter 41 (streams), eq. (transfer-together).
    """

    def __init__(self, first: Any, second: Any) -> None:
        self.first = first
        self.second = second

    def partial_fit(self, X: Matrix, y: NDArray[Any], *, task: str) -> Self:
        """Learn a task with both."""
        for one in (self.first, self.second):
            one.partial_fit(X, y, task=task)
        return self

    @property
    def state_nbytes_(self) -> int:
        """Bytes that the two keep."""
        return int(self.first.state_nbytes_ + self.second.state_nbytes_)

    def reference_errors(
        self, task: Task, part: str, ks: Sequence[int], weights: Sequence[float]
    ) -> list[list[float]]:
        """Errors on a part of a known task for each weight of the second learner and each k."""
        X = getattr(task, f"X_{part}")
        y = getattr(task, f"y_{part}")
        first, second = (_standardized(one, task, X) for one in (self.first, self.second))
        return [_shares((1 - w) * first + w * second, task.y_train, y, ks) for w in weights]


def _standardized(learner: Any, task: Task, X: Matrix) -> Floats:
    """Scores of samples and the learning samples of a task, in units of their spread.

    The spread is that of the scores of one sample, root mean square over the learning samples.
    """
    metric, kind = _read_out(learner, task.name)
    own = pairwise_scores(metric, task.X_train, task.X_train, kind)
    spread = np.sqrt(np.mean(np.var(own, axis=1)))
    return pairwise_scores(metric, X, task.X_train, kind) / (spread or 1.0)  # 0: all are as near


# book/streams.ipynb#learners-and-joint-models
def _row_bytes(task: Task) -> int:
    """Bytes of the training rows of a task and their labels."""
    return nbytes(task.X_train) + task.y_train.nbytes


def _at_the_end(step: Step) -> list[Step]:
    """Steps of a stream in which nobody is asked before the last one."""
    none = [float("nan")] * len(step.errors)
    return [*[Step(none, parameters={})] * (len(none) - 1), step]


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


def follow_joint(
    variants: Sequence[Any], raw: Sequence[Task], protocol: Protocol, seed: int
) -> list[Step]:
    """The last step of a stream by a classifier of the rows of all tasks together.

    Each task's mean is subtracted from its rows; only labels of the task can be answers.
    """
    folds = protocol.folds(raw, seed)
    tables = [[_joint_errors(v, fold, "validation") for v in variants] for fold in folds]
    table = np.mean(tables, axis=(0, 2))
    best = int(np.argmin(table))
    tasks = protocol.final(raw)
    begun = time.perf_counter()
    errors = _joint_errors(variants[best], tasks, "test")
    seconds = time.perf_counter() - begun
    step = Step(
        errors=errors,
        parameters={"variant": best},
        validation_error=float(table[best]),
        seconds=seconds,
        state_bytes=sum(map(_row_bytes, tasks)),
    )
    return _at_the_end(step)


# book/streams.ipynb#learners-and-joint-models
def follow_table(system: str, raw: Sequence[Task], protocol: Protocol, seed: int) -> list[Step]:
    """The last step of a stream by a system of `lml.studies.systems`, tuned as for the tables."""
    parameters, k, validation_error = tune(system, raw, protocol, seed)
    tasks = protocol.final(raw)
    begun = time.perf_counter()
    fitted = SYSTEMS[system].fit(tasks, seed, {}, **parameters)
    seconds = time.perf_counter() - begun
    step = Step(
        errors=[task_errors(fitted, t, "test", (max(k, 1),))[0] for t in tasks],
        parameters={**parameters, "n_neighbors": k},
        validation_error=validation_error,
        seconds=seconds,
        state_bytes=fitted.nbytes,
    )
    return _at_the_end(step)


# book/streams.ipynb#systems-and-studies
_Systems: TypeAlias = dict[str, Callable[..., list[Step]]]
_OWN = ((1.0, 1.0),)  # weights of a task alone
_KEYED = Grid(shrinkages=(*Grid().shrinkages, (1.0, 0.0, 0.0), (3.0, 1.0, 0.0)), shared_labels=True)
_LOGISTIC = [LogisticRegression(C=c, max_iter=10_000) for c in (10.0, 1.0, 0.1, 0.01)]


def _varied(**fields: Any) -> Callable[..., list[Step]]:
    """A grid with some of its values fixed."""
    return partial(follow_grid, Grid(**fields))


_MAIN: _Systems = {
    "alone": _varied(weights=_OWN),
    "alone, each": _varied(weights=_OWN, each=True),
    "shared": _varied(),
    "keyed": partial(follow_grid, _KEYED),
    "keyed, common means": partial(follow_grid, replace(_KEYED, common=True)),
    "joint LDA": partial(
        follow_joint,
        [LinearDiscriminantAnalysis(solver="lsqr", shrinkage=s) for s in (0.03, 0.1, 0.3, 0.6)],
    ),
    "joint logistic": partial(follow_joint, _LOGISTIC),
}


# book/streams.ipynb#systems-and-studies
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
_FEW = Grid((1.0,), ((0.25, 0.0), (1.0, 1.0)), ((1.0, 1.0, 0.0),), (1.0,))
_FEW_SYSTEMS: _Systems = {
    "few, alone": partial(follow_grid, replace(_FEW, weights=_OWN)),
    "few, shared": partial(follow_grid, _FEW),
    "few, keyed": partial(follow_grid, replace(_FEW, shared_labels=True, common=True)),
    "few, keyed, own means": partial(follow_grid, replace(_FEW, shared_labels=True)),
}


# book/streams.ipynb#systems-and-studies
def _fixed(n_components: int, **parameters: Any) -> Callable[..., list[Step]]:
    """`LifelongPLDA` with given parameters."""
    given = {"own_weight": (0.25, 0.0), "shrinkage": (0.3, 0.0, 0.0)} | parameters
    return partial(follow_learner, [LifelongPLDA(n_components, **given)])


_RAW: _Systems = {
    "raw alone": _fixed(200, own_weight=1.0),
    "raw shared": _fixed(200),
    "raw keyed": _fixed(200, shared_labels=True),
}
_OURS = {
    "own choice": LifelongPLDA(617),
    "own choice, alone": LifelongPLDA(617, own_weight=1.0),
    "own choice, keyed": LifelongPLDA(617, shared_labels=True),
}
_PULLS: list[dict[str, float]] = [{}, {"pull": 0.5}, {"pull": 1.0}]
_MEANS = [{"pull": 1.0, "common": 0.5}]  # class means, half their own
_OTHERS = [{"others": 1.0}]  # those of other tasks beside the samples
_CHOICE: _Systems = {
    **{name: partial(follow_learner, [learner]) for name, learner in _OURS.items()},
    **{
        f"{name}, enrolled": partial(
            follow_learner, [learner], ref_ways=_MEANS if learner.shared_labels else _PULLS
        )
        for name, learner in _OURS.items()
    },
}


# book/streams.ipynb#systems-and-studies
def _in_coordinates(
    bases: Sequence[Any],
    weights: Sequence[float],
    ref_ways: Sequence[Mapping[str, float]] = ({},),
    shared_labels: bool = False,
) -> Callable[..., list[Step]]:
    """Base learners and weights of what is shared, of which validation chooses; nothing is cut."""
    whole = LifelongMetricLearner(n_components=617, code_rank=None, shared_labels=shared_labels)
    variants = [
        clone(whole).set_params(base_learner=base, sharing=m) for m in weights for base in bases
    ]
    return partial(follow_learner, variants, ref_ways=ref_ways)


_BASES: dict[str, list[Any]] = {
    "OASIS": [OASIS(cap) for cap in (0.1, 1.0, 0.01)],
    "LMNN": [LMNN(max_iter=200, tol=0.01, shrinkage=s) for s in (0.01, 0.001)],
    "SCML": [SCML(beta=b) for b in (1e-4, 1e-2)],
}


# book/streams.ipynb#systems-and-studies
class _NothingLearned(BaseEstimator):
    """A base learner that keeps the Euclidean distance."""

    metric_type = "distance"

    def fit(self, X: Matrix, y: Indices) -> Self:
        self.metric_ = FactoredMetric.identity(X.shape[1])
        return self


def follow_class_means(raw: Sequence[Task], protocol: Protocol, seed: int) -> list[Step]:
    """The last step of a stream in which the mean of a class is its one reference."""
    learner = LifelongMetricLearner(_NothingLearned(), sharing=0.0)
    steps = follow_learner([learner], raw, protocol, seed, ref_ways=[{"pull": 1.0}])
    return _at_the_end(steps[-1])


# book/streams.ipynb#systems-and-studies
_AS_THEY_COME: dict[str, Any] = {
    **{f"{n}, as it comes": LifelongMetricLearner(n.lower()) for n in _BASES},
    **{f"{n}, nothing shared": LifelongMetricLearner(n.lower(), sharing=0.0) for n in _BASES},
    "PLDA, as it comes": LifelongPLDA(),
    "PLDA, nothing shared": LifelongPLDA(own_weight=1.0),
}
_WAYS: dict[str, list[dict[str, float]]] = {"": [{}], ", enrolled": _PULLS}
_COORDINATES: _Systems = {
    **{f"{name} alone": _in_coordinates(bases, [0.0]) for name, bases in _BASES.items()},
    **{
        f"{name} shared": _in_coordinates(bases, (0.0, 0.4, 0.8) + (0.2, 0.6) * (name == "OASIS"))
        for name, bases in _BASES.items()
    },
    "LMNN shared, enrolled": _in_coordinates(_BASES["LMNN"], (0.0, 0.4, 0.8), _PULLS),
    "LMNN alone, enrolled": _in_coordinates(_BASES["LMNN"], [0.0], _PULLS),
    "LMNN shared, joined": _in_coordinates(_BASES["LMNN"], (0.4, 0.8), _OTHERS, True),
    **{
        f"{name}{ending}": partial(follow_learner, [learner], ref_ways=ways)
        for name, learner in _AS_THEY_COME.items()
        for ending, ways in _WAYS.items()
    },
    **{
        f"{n}, twenty directions": partial(
            follow_learner, [LifelongMetricLearner(n.lower(), code_rank=20)]
        )
        for n in _BASES
    },
    **{
        f"OASIS{ending}, base tuned": partial(
            follow_learner, [LifelongMetricLearner(b, sharing=m) for b in _BASES["OASIS"]]
        )
        for ending, m in (("", "auto"), (" alone", 0.0))
    },
    "class means": follow_class_means,
}


# book/streams.ipynb#systems-and-studies
#: Weights of PLDA beside a learner whose base learner has the rest, of which validation chooses.
_SHARES = [{"weight": w} for w in (0.0, 0.25, 0.5, 0.75, 1.0)]
_PAIRS: _Systems = {
    f"{name} and PLDA": partial(
        follow_learner,
        [_Together(_AS_THEY_COME[f"{name}, as it comes"], _AS_THEY_COME["PLDA, as it comes"])],
        ref_ways=_SHARES,
    )
    for name in ("OASIS", "LMNN")
}


# book/streams.ipynb#systems-and-studies
def follow_alone(learner: Any, raw: Sequence[Task], protocol: Protocol, seed: int) -> list[Step]:
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


# book/streams.ipynb#systems-and-studies
def follow_without_ruined(
    follow: Callable[..., list[Step]], raw: Sequence[Task], protocol: Protocol, seed: int
) -> list[Step]:
    """Every step of a stream without its ruined tasks, which are neither learned nor asked."""
    honest = [n for n, task in enumerate(raw) if task.name not in RUINED]
    found = follow([raw[n] for n in honest], protocol, seed)
    steps = [Step([float("nan")] * len(raw), parameters={})] * len(raw)
    for n in range(honest[0], len(raw)):
        step = found[sum(m <= n for m in honest) - 1]
        at = dict(zip(honest, step.errors, strict=True))
        steps[n] = step._replace(errors=[at.get(m, float("nan")) for m in range(len(raw))])
    return steps


# book/streams.ipynb#systems-and-studies
_GUARDED: _Systems = {
    "on its own": partial(follow_alone, LifelongPLDA(617)),
    "own choice, keyed, no ruin": partial(follow_without_ruined, _CHOICE["own choice, keyed"]),
}
_WITHOUT: _Systems = {
    "OASIS, as it comes, no ruin": partial(
        follow_without_ruined, _COORDINATES["OASIS, as it comes"]
    ),
}
#: System name to what follows a stream: (tasks, protocol, seed) to steps.
FOLLOWERS: _Systems = {
    **{name: partial(follow_table, name) for name in SYSTEMS},
    **_MAIN, **_PARTS, **_FEW_SYSTEMS, **_RAW, **_CHOICE, **_GUARDED,
    **_COORDINATES, **_WITHOUT, **_PAIRS,
}  # fmt: skip


# book/streams.ipynb#systems-and-studies
@dataclass(frozen=True)
class Study:
    """Which systems are followed on which streams."""

    datasets: tuple[str, ...]
    systems: tuple[str, ...]
    n_splits: int = 20
    orders: tuple[int, ...] = (0,)

    def units(self, dataset: str, n_splits: int | None = None) -> list[tuple[int, int, str]]:
        """(split, order, system), split by split; labels are shared where they mean the same."""
        protocol = STREAMS[dataset]
        needs = ("keyed", "joined")  # in the names of those that need labels in common
        own = {s for s in FOLLOWERS if protocol.shared_labels or not any(n in s for n in needs)}
        own -= set(SYSTEMS) - set(protocol.systems())
        splits = range(100, 100 + (self.n_splits if n_splits is None else n_splits))
        systems = [name for name in self.systems if name in own]
        return [(s, order, name) for s in splits for order in self.orders for name in systems]


# book/streams.ipynb#systems-and-studies
def _as_it_comes(base: str, ending: str = "") -> tuple[str, str]:
    """The lifelong learner with a base learner, and that alone."""
    return f"{base}, as it comes{ending}", f"{base}, nothing shared{ending}"


def _beside_plda(base: str) -> tuple[str, str, str]:
    """The lifelong learner with a base learner, lifelong PLDA, and the two together."""
    return f"{base}, as it comes", "PLDA, as it comes", f"{base} and PLDA"


_TABLES = ("isolet", "usps", "sentiment")
#: Study name to what is run for it.
STUDIES = {
    "streams": Study((*_TABLES, "isolet-speakers"),
        ("alone", "alone, each", "shared", "keyed", "keyed, common means", "joint LDA",
         "joint logistic", "few, alone", "few, shared")),
    "tables": Study(_TABLES,
        ("euclidean", "nca", "logistic", "oasis", "scml", "lmnn", "pooled-scml", "pooled-lmnn",
         "mtscml", "mtlmnn", "ella", "ella-ovr")),
    "parts": Study(_TABLES, tuple(_PARTS)),
    "count": Study(("isolet-30",), tuple(_FEW_SYSTEMS)),
    "learners": Study(_TABLES, tuple(_CHOICE)),
    "raw": Study(("sentiment-raw",),
        ("raw alone", "raw shared", "raw keyed")),
    "shared": Study(
        (*_TABLES, "digits-few", "embeddings", "isolet-ruined", "usps-ruined"), _as_it_comes("OASIS")
    ),
    "plain": Study(("digits-few", "embeddings"), ("euclidean", "class means", "logistic")),
    "sharedplda": Study(("embeddings",), _as_it_comes("PLDA"), n_splits=5),
    "sharedlmnn": Study((*_TABLES, "digits-few"), _as_it_comes("LMNN")),
    "enrolled": Study(("digits-few", "embeddings"), _as_it_comes("OASIS", ", enrolled")),
    "enrolledplda": Study(("embeddings",), _as_it_comes("PLDA", ", enrolled"), n_splits=5),
    "sharedscml": Study(_TABLES, _as_it_comes("SCML")),
    "small": Study(("isolet", "usps"), tuple(f"{n}, twenty directions" for n in _BASES)),
    "fortylmnn": Study(("embeddings-40",), _as_it_comes("LMNN"), n_splits=2),
    "smalloasis": Study(("embeddings",), ("OASIS, twenty directions",), n_splits=5),
    "tuned": Study(_TABLES, ("OASIS shared", "OASIS alone")),
    "tunedbase": Study(("embeddings",), ("OASIS, base tuned", "OASIS alone, base tuned"), n_splits=5),
    "tunedlmnn": Study(("isolet",),
        ("LMNN shared", "LMNN alone", "LMNN shared, enrolled", "LMNN alone, enrolled",
         "LMNN shared, joined")),
    "safeguard": Study(("isolet-ruined", "usps-ruined"),
        ("own choice", "own choice, keyed", *_GUARDED), n_splits=10),
    "together": Study(("sentiment",), _beside_plda("OASIS")),
    "togetherlmnn": Study(("isolet",), _beside_plda("LMNN")),
    "harm": Study(("isolet-ruined", "usps-ruined"), tuple(_WITHOUT)),
}  # fmt: skip


# book/streams.ipynb#the-runner
def run_unit(dataset: str, split: int, order: int, system: str) -> list[TransferRow]:
    """Follow one stream with one system; a row for each step."""
    tasks = ordered_tasks(dataset, split, order)
    protocol = STREAMS[dataset]
    steps = FOLLOWERS[system](tasks, protocol, split)
    seen = np.cumsum([_row_bytes(task) for task in protocol.final(tasks)])
    return [
        TransferRow(
            dataset=dataset,
            split=split,
            order=order,
            system=system,
            n_learnt=n_learnt,
            tasks=" ".join(t.name for t in tasks),
            # nothing where no task was asked
            errors="" if np.isnan(step.errors).all() else " ".join(f"{e:.6g}" for e in step.errors),
            validation_error=round(step.validation_error, 6),
            parameters=json.dumps(step.parameters),
            seconds=round(step.seconds, 3),
            state_bytes=step.state_bytes,
            raw_bytes=int(raw_bytes),
        )
        for n_learnt, (step, raw_bytes) in enumerate(zip(steps, seen, strict=True), start=1)
    ]


# book/streams.ipynb#the-runner
def run_study(
    study: str,
    datasets: str | Sequence[str] | None = None,
    systems: str | Sequence[str] | None = None,
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
    datasets, systems : str, sequence of str or None, default=None
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
    BlockingIOError
        If another run writes into the folder.
    """
    one_of(*STUDIES).check("study", study)
    optional(whole(1)).check("n_splits", n_splits)
    chosen = STUDIES[study]
    wanted = chosen_names("system", systems, chosen.systems)
    plan = {
        Path(out) / f"transfer-{study}-{dataset}.csv": {
            unit: partial(run_unit, dataset, *unit)
            for unit in chosen.units(dataset, n_splits)
            if unit[-1] in wanted
        }
        for dataset in chosen_names("dataset", datasets, chosen.datasets)
    }
    return run_missing(plan, TransferRow, ("split", "order", "system"), n_jobs, progress)
