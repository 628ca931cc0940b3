# Generated from book/lifelong.ipynb by tools/tangle.py: edit the chapter.
"""The lifelong learner: tasks one after another, one dictionary, one small code a task.

`LifelongMetricLearner` runs a base metric learner on each new task, codes its metric in
the shared dictionary and moves the dictionary, without any row of an earlier task.
"""

import contextlib
import copy
import itertools
import os
import threading
from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self
from weakref import WeakKeyDictionary

import joblib
import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_array, check_consistent_length, check_random_state
from sklearn.utils.validation import validate_data

from lml.dictionary import (
    DictionaryStep,
    GradientMemory,
    MovingCodes,
    dictionary_step,
    keep_codes,
    line_search,
    polar_factors,
)
from lml.initialization import initial_dictionary
from lml.metrics import FactoredMetric, _check_finite, _is_real, _is_whole, _plain, _times
from lml.neighbors import _check_size, _class_numbers, _fitted_metric, _labels, _unfitted
from lml.oasis import OASIS
from lml.penalties import OffDiagonalL1
from lml.scml import SCML
from lml.single_task import TaskMetricsMixin
from lml.state import SavedLearnerMixin, about, decode, encode, expect
from lml.triplets import nearest_triplets, sample_triplets, triplet_gradient
from lml.utils.linalg import is_symmetric
from lml.utils.typing import Floats, Indices, LabelsLike, Matrix, MatrixLike, Seed
from lml.utils.validation import check_parameters

__all__ = ["LifelongMetricLearner", "TaskRecord", "residual_step"]


# book/lifelong.ipynb#the-class
@dataclass(frozen=True)
class TaskRecord:
    """What a `LifelongMetricLearner` notes about a task; it holds no rows.

    Attributes
    ----------
    number : int
        Position in the order of first appearance, from 0.
    classes : tuple
        Labels, in the order in which they were first seen.
    n_rows, n_visits : int
        Rows and calls of ``partial_fit`` over all visits.
    target_norm : float
        Frobenius norm of the last target.
    captured : float
        Share of its squared norm that the dictionary holds, in [0, 1].
    certificate : float
        Distance of the code from optimality; rounding for orthonormal rows.
    off_diagonal : float
        Share of the off-diagonal entries of the code that are not zero.
    loss_before, loss_after : float
        Mean hinge of the coded metric before and after the dictionary moved.

    Notes
    -----
    Derived in chapter 15 (lifelong), eqs. (lifelong-captured) and (lifelong-average).
    """

    number: int
    classes: tuple[Any, ...]
    n_rows: int
    n_visits: int
    target_norm: float
    captured: float
    certificate: float
    off_diagonal: float
    loss_before: float
    loss_after: float


# book/lifelong.ipynb#the-class
@dataclass(frozen=True, eq=False)
class _State:
    """All that is known after some visits; it never changes."""

    dictionary: Any = None  # Floats of shape (d, D) after the first task
    codes: MovingCodes = field(default_factory=MovingCodes)
    tasks: dict[Any, TaskRecord] = field(default_factory=dict)
    memory: GradientMemory | None = None
    metric_type: Any = None  # "similarity" or "distance" after the first task
    columns: tuple[Any, ...] | None = None  # names, for data frames
    root: Any = None  # an int after the first task, of the seeds

    def __post_init__(self) -> None:
        if self.dictionary is not None:
            self.dictionary.flags.writeable = False

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(vars(self).values())  # a copy is locked too


# book/lifelong.ipynb#the-class
class LifelongMetricLearner(SavedLearnerMixin, TaskMetricsMixin, BaseEstimator):
    """Metrics of tasks that arrive one after another, M_t = L' W_t L, without old rows.

    Parameters
    ----------
    base_learner : {"oasis", "scml"} or estimator, default="oasis"
        Learns the target metric of each task: an estimator that has ``metric_`` (a
        FactoredMetric, or an array of shape (D, D)) and ``metric_type`` after ``fit``. An
        instance is cloned; it is given class numbers for labels.
    n_components : int, default=40
        Rows d of the dictionary; more than the number of features are clipped to it.
    code_penalty : float, default=0.0
        Threshold of the off-diagonal entries of a code, in the units of the metric.
    dictionary_penalty : float, default=0.0
        The paper's gamma. With orthonormal rows it acts on the length of the steps only.
    dictionary_loss : {"auto", "hinge", "residual"}, default="auto"
        What the dictionary's steps lower: the mean hinge of the new task (needs a gradient
        memory for the old ones), or the distance of the tasks' metrics to what the dictionary
        can represent (needs none). "auto" is the hinge for a similarity, the residual for a
        distance.
    dictionary_steps : int or None, default=None
        Most steps of the dictionary a visit; 0 keeps the first dictionary. None is 5 for the
        hinge, which forgets when it runs longer, and 20 for the residual.
    dictionary_rate : float, default=0.05
        Length of the first step relative to the norm of the dictionary.
    old_tasks : {"metrics", "codes"}, default="metrics"
        What stays when the dictionary moves: the metrics of the other tasks (they are
        coded again) or their codes (the paper; the metrics change).
    max_old_tasks : int or None, default=32
        How many old tasks a visit takes into account at most, those that have waited longest:
        in the dictionary's steps, in the mean of a warm start, and in bringing codes up to date
        (the others follow when they are read, or when it is their turn). None takes all of them;
        every visit then costs more than the one before.
    gradient_memory : int, default=0
        Rank of the hinge gradient kept for each task (only with the hinge); 0 keeps none.
    revisit : {"average", "step", "warm"}, default="average"
        How a task that comes back is learned: a row-weighted average of its metric and the
        new target; one passive-aggressive step; or the base learner started from the
        task's metric (needs a parameter ``init``).
    warm_start_from_dictionary : bool, default=False
        Start the base learner from the mean of the other tasks' metrics, at the first visit
        of a task and at those of ``revisit="average"``. Needs a base learner with a parameter
        ``init``, the metric that it starts from, such as OASIS.
    n_triplets : int, default=3000
        Triplets sampled for the gradient of a similarity (a distance takes nearest ones).
    n_jobs : int or None, default=None
        Base learners that `fit` runs side by side, in joblib's sense: None is one, or what a
        surrounding `joblib.parallel_config` says. The result does not depend on it.
    random_state : int, RandomState or None, default=None
        Root of the seeds of all tasks.

    Attributes
    ----------
    dictionary_ : ndarray of shape (n_components, n_features)
        Orthonormal rows.
    codes_ : dict
        Task to its code, (n_components, n_components). Codes of a similarity need not be
        symmetric.
    tasks_ : dict
        Task to its `TaskRecord`, in the order of first appearance.
    memory_ : lml.dictionary.GradientMemory or None
        Low-rank gradients of the tasks, when `gradient_memory` is not 0.
    metric_type_ : {"similarity", "distance"}
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns, when the first task was a data frame; the later ones must have the
        same.

    Notes
    -----
    Derived in chapter 15 (lifelong), eqs. (lifelong-code), (lifelong-step) and (lifelong-recode).
    Paper: section IV, Algorithm 2. No rows are kept; k-NN keeps its own, see
    `lml.evaluation.LifelongKNeighborsClassifier`. What is outside the row space of the
    dictionary is lost; with n_components = n_features and code_penalty = 0 each metric is the base
    learner's.

    Any number of threads may read while one learns: an answer is that of the state before the
    visit or after it. Visits by several threads come one after another. A visit that fails or
    is interrupted changes nothing. `save` and `load` keep a learner in a file.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> learner = LifelongMetricLearner(n_components=20, random_state=0)
    >>> for task, digits in {"low": (0, 1), "high": (8, 9)}.items():
    ...     rows = (y == digits[0]) | (y == digits[1])
    ...     learner = learner.partial_fit(X[rows] / 16, y[rows], task=task)
    >>> learner.transform(X[:3] / 16, task="low").shape
    (3, 20)
    """

    _state = _State()
    _kind = "LifelongMetricLearner"
    _versions = (1, 2)

    def __init__(
        self,
        base_learner: Any = "oasis",
        n_components: int = 40,
        code_penalty: float = 0.0,
        *,
        dictionary_penalty: float = 0.0,
        dictionary_loss: str = "auto",
        dictionary_steps: int | None = None,
        dictionary_rate: float = 0.05,
        old_tasks: str = "metrics",
        max_old_tasks: int | None = 32,
        gradient_memory: int = 0,
        revisit: str = "average",
        warm_start_from_dictionary: bool = False,
        n_triplets: int = 3000,
        n_jobs: int | None = None,
        random_state: Seed = None,
    ) -> None:
        self.base_learner = base_learner
        self.n_components = n_components
        self.code_penalty = code_penalty
        self.dictionary_penalty = dictionary_penalty
        self.dictionary_loss = dictionary_loss
        self.dictionary_steps = dictionary_steps
        self.dictionary_rate = dictionary_rate
        self.old_tasks = old_tasks
        self.max_old_tasks = max_old_tasks
        self.gradient_memory = gradient_memory
        self.revisit = revisit
        self.warm_start_from_dictionary = warm_start_from_dictionary
        self.n_triplets = n_triplets
        self.n_jobs = n_jobs
        self.random_state = random_state

    def partial_fit(self, X: MatrixLike, y: LabelsLike, *, task: Hashable) -> Self:
        """Learn one task, or more rows of a known one.

        Parameters
        ----------
        X : {array-like, sparse matrix, data frame} of shape (n_samples, n_features)
            Rows of this visit only; they are not kept.
        y : array-like of shape (n_samples,)
            Labels of any type, at least two classes and a class with two rows.
        task : hashable
            Name of the task.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            If the rows, the labels, the task or a parameter cannot be used. The learner is
            then exactly what it was before the call.
        """
        with _lock(self):
            self._state = self._visit(X, y, task)
        return self

    def _visit(self, X: MatrixLike, y: LabelsLike, task: Hashable, learnt: Any = None) -> _State:
        """The state after a visit; what the base learner learns may be known by now."""
        self._check_parameters()
        _check_seed(self.random_state)
        columns, X, y, labels = self._check_task(X, y, task)
        root, (fit_seed, triplet_seed, start_seed) = self._seeds(task)
        target, kind = self._learn_target(X, y, task, fit_seed, learnt)
        triplets = self._triplets(X, y, kind, triplet_seed)
        start = self._state.dictionary
        if start is None:
            start = initial_dictionary(X, y, self.n_components, random_state=start_seed)
        state = self._next_state(start, target, X, labels, triplets, kind, task)
        return replace(state, metric_type=kind, columns=columns, root=root)

    def _check_parameters(self) -> None:
        whole = {"n_components": 1, "n_triplets": 1, "gradient_memory": 0}
        for name, least in {**whole, "dictionary_steps": 0, "max_old_tasks": 1}.items():
            if name in whole or getattr(self, name) is not None:
                _check_number(name, getattr(self, name), least, whole=True)
        for name in ("code_penalty", "dictionary_penalty", "dictionary_rate"):
            _check_number(name, getattr(self, name), 0)
        _check_choice("old_tasks", self.old_tasks, ("metrics", "codes"))
        _check_choice("dictionary_loss", self.dictionary_loss, ("auto", "hinge", "residual"))
        _check_choice("revisit", self.revisit, ("average", "step", "warm"))
        if not isinstance(warm := self.warm_start_from_dictionary, bool | np.bool_):
            raise TypeError(f"warm_start_from_dictionary={warm!r}: give True or False")
        _check_base(self.base_learner)

    def _check_task(
        self, X: MatrixLike, y: LabelsLike, task: Hashable
    ) -> tuple[Any, Matrix, Indices, list[Any]]:
        """Names of columns, rows and labels of one visit, or an error that says what is wrong."""
        _check_name(task, "task")
        rows = _check_rows(X, getattr(self, "n_features_in_", None))
        self._check_columns(X)
        columns = self._state.columns if self._state.dictionary is not None else _columns(X)
        check_consistent_length(rows, y)
        codes, labels = _class_numbers(y)
        _check_classes(codes, task)
        return columns, rows, codes, labels

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        """Names of the columns; missing when the first task had none."""
        columns = self._learnt("feature_names_in_").columns
        if columns is None:
            raise AttributeError("the rows of the first task had no names of columns")
        return np.array(columns, dtype=object)

    def _root(self) -> Any:
        """The root seed: that of the first task, or a new one."""
        if self._state.root is not None:
            return self._state.root
        if self.random_state is None:
            return np.random.SeedSequence().entropy
        generator = copy.deepcopy(check_random_state(self.random_state))  # read, not advanced
        return int(generator.randint(2**31))

    def _seeds(self, task: Hashable) -> tuple[Any, list[int]]:
        """The root seed and three seeds of this visit."""
        root = self._root()
        record = self._record(task)
        return root, _visit_seeds(root, record.number, record.n_visits)

    def _record(self, task: Hashable) -> TaskRecord:
        """The record of a task, or a blank one with the next free number."""
        records = self._state.tasks
        last = next(reversed(records.values()), None)  # the numbers rise
        blank = TaskRecord(0 if last is None else last.number + 1, (), 0, 0, *[0.0] * 6)
        return records.get(task, blank)

    def _triplets(self, X: Matrix, y: Indices, kind: str, seed: int) -> Indices:
        """Triplets for the gradient of the dictionary: sampled, or nearest for a distance."""
        if kind == "similarity":
            return sample_triplets(y, self.n_triplets, seed)
        return nearest_triplets(X, y)

    def _learn_target(
        self, X: Matrix, y: Indices, task: Hashable, seed: int, learnt: Any = None
    ) -> tuple[FactoredMetric, str]:
        """The target metric of this visit and its type."""
        known = self._state.tasks.get(task)
        if known and self.revisit == "step":
            return self._one_step(X, y, task, seed), self.metric_type_
        target, kind = learnt or _fitted(self._base_learner(task, seed), X, y)
        if kind != (self._state.metric_type or kind):
            raise ValueError(
                f"the base learner gives a {kind}, the earlier tasks have a"
                f" {self.metric_type_}: use one kind in one learner"
            )
        if known and self.revisit == "average":
            weight = known.n_rows / (known.n_rows + len(y))
            target = weight * self.task_metric(task) + (1 - weight) * target
        return target, kind

    def _one_step(self, X: Matrix, y: Indices, task: Hashable, seed: int) -> FactoredMetric:
        """The task's metric one closed-form passive-aggressive step on the mean hinge later."""
        metric = self.task_metric(task)
        triplets = self._triplets(X, y, self.metric_type_, seed)
        loss, G = triplet_gradient(metric, X, triplets, self.metric_type_)
        size = G.inner(G)  # no orthogonalisation of the rows: they may be sparse
        return metric if size <= 0.0 else metric - (loss / size) * G

    def _base_learner(self, task: Hashable, seed: int) -> Any:
        """An unfitted base learner of this visit, seeded and perhaps warm-started."""
        names = {"oasis": OASIS, "scml": SCML}
        given = self.base_learner
        known = isinstance(given, str) and given in names
        learner = names[given]() if known else _unfitted(given, "base_learner")
        if "random_state" in learner.get_params():
            learner.set_params(random_state=seed)
        asked = task in self._state.codes and self.revisit == "warm"
        if asked or self.warm_start_from_dictionary:
            _check_start(learner, asked)
        if codes := self._start_codes(task):
            learner.set_params(init=_with_identity_outside(self.dictionary_, codes))
        return learner

    def _start_codes(self, task: Hashable) -> list[Floats]:
        """Codes whose mean the base learner starts from; none for a cold start."""
        codes = self._state.codes
        if task in codes and self.revisit == "warm":
            return [codes[task]]
        if not self.warm_start_from_dictionary:
            return []
        return list(codes.waiting(self.max_old_tasks, [task]).values())

    def _code(self, L: Floats, target: FactoredMetric, kind: str) -> tuple[Floats, float]:
        """The minimiser of the coding problem and its certificate, for orthonormal rows."""
        penalty = OffDiagonalL1(self.code_penalty)
        B = target.project(L)
        code = penalty.prox(B if kind == "similarity" else (B + B.T) / 2)
        return code, float(penalty.certificate(code, code - B))

    def _n_steps(self, L: Floats, kind: str) -> int:
        """Steps that a dictionary may take; none where every metric has an exact code."""
        exact = len(L) == L.shape[1] and self.code_penalty == 0
        if exact or self.dictionary_rate == 0:
            return 0
        automatic = 5 if self._lowers(kind) == "hinge" else 20
        return automatic if self.dictionary_steps is None else self.dictionary_steps

    def _lowers(self, kind: str) -> str:
        """What the dictionary's steps lower for a metric type."""
        automatic = "hinge" if kind == "similarity" else "residual"
        return automatic if self.dictionary_loss == "auto" else self.dictionary_loss

    def _move_dictionary(
        self,
        start: Floats,
        target: FactoredMetric,
        X: Matrix,
        triplets: Indices,
        kind: str,
        task: Hashable,
    ) -> tuple[Floats, dict[Any, Floats], Floats | None]:
        """The dictionary after its steps, the codes in it whose turn it is, and S of the move."""
        old = self._state.codes.waiting(self.max_old_tasks, [task])
        L = start
        codes = old
        change = np.eye(len(start))
        follow = None
        longest = self.dictionary_rate
        known = self._known(start, old, target, kind)
        for _ in range(self._n_steps(start, kind)):
            code = self._code(L, target, kind)[0]
            step = self._step(L, code, codes, known, X, triplets, kind, longest)
            if step.step_size == 0.0:
                break
            longest = min(self.dictionary_rate, 2 * longest / 2**step.n_backtracks)
            L = step.dictionary
            change = change @ step.change
            follow = start @ L.T if self.old_tasks == "metrics" else change
            codes = {u: keep_codes(C, follow) for u, C in old.items()}
        return L, codes, follow

    def _step(
        self,
        L: Floats,
        code: Floats,
        codes: Mapping[Any, Floats],
        known: tuple[dict[Any, FactoredMetric], dict[Any, float]] | None,
        X: Matrix,
        triplets: Indices,
        kind: str,
        longest: float,
    ) -> DictionaryStep:
        """One step of the dictionary for the new code and the other tasks' codes."""
        gamma = self.dictionary_penalty
        if known is None:  # the hinge
            memory = self._state.memory
            stored = {u: C for u, C in codes.items() if memory and u in memory.gradients}
            return dictionary_step(L, code, X, triplets, kind, memory, stored, gamma, longest)
        metrics, sizes = known
        new = next(reversed(metrics))  # the task of this visit
        return residual_step(L, {**codes, new: code}, metrics, gamma, longest, sizes)

    def _known(
        self, start: Floats, old: Mapping[Any, Floats], target: FactoredMetric, kind: str
    ) -> tuple[dict[Any, FactoredMetric], dict[Any, float]] | None:
        """Metrics and squared norms for the residual; None for the hinge or without steps."""
        if self._lowers(kind) == "hinge" or not self._n_steps(start, kind):
            return None
        return _known_metrics(start, old, target)

    def _next_state(
        self,
        start: Floats,
        target: FactoredMetric,
        X: Matrix,
        labels: list[Any],
        triplets: Indices,
        kind: str,
        task: Hashable,
    ) -> _State:
        """Dictionary, codes, records and memory after the visit, as new objects."""
        L, codes, follow = self._move_dictionary(start, target, X, triplets, kind, task)
        values: dict[str, Any] = {}
        for when, rows in (("loss_before", start), ("loss_after", L)):
            code, values["certificate"] = self._code(rows, target, kind)
            metric = FactoredMetric(0.0, rows, code)
            values[when], gradient = triplet_gradient(metric, X, triplets, kind)
        seen = self._record(task)
        classes = tuple(dict.fromkeys((*seen.classes, *labels)))
        values |= {"n_rows": seen.n_rows + X.shape[0], "n_visits": seen.n_visits + 1}
        record = TaskRecord(seen.number, classes, **values, **_diagnostics(target, L, code))
        tasks = {**self._state.tasks, task: record}
        memory = self._next_memory(task, gradient, kind)
        return _State(L, self._state.codes.after({**codes, task: code}, follow), tasks, memory)

    def _next_memory(
        self, task: Hashable, gradient: FactoredMetric, kind: str
    ) -> GradientMemory | None:
        """A copy of the gradient memory with this task's gradient, or None."""
        if not self.gradient_memory or self._lowers(kind) != "hinge":
            return None
        old = self._state.memory
        memory = GradientMemory(self.gradient_memory) if old is None else _copied(old)
        memory.store(task, gradient)
        return memory

    def task_metric(self, task: Hashable) -> FactoredMetric:
        """The metric L' W_t L of a task, a FactoredMetric (not projected onto PSD)."""
        state = self._knowing(task)
        return FactoredMetric(0.0, state.dictionary, state.codes[task])

    def _knowing(self, task: Hashable) -> _State:
        """The state, if the task is known."""
        state = self._state
        if not state.tasks:
            raise NotFittedError("no task has been learned: call partial_fit(X, y, task=...)")
        _check_hashable(task, "task")
        if task not in state.tasks:
            raise ValueError(f"task {task!r} is not known; known tasks: {list(state.tasks)}")
        return state

    def _snapshot(self) -> Self:
        return copy.copy(self)

    def __sklearn_is_fitted__(self) -> bool:
        return bool(self._state.tasks)

    def _learnt(self, name: str) -> _State:
        """The state, if there is one."""
        if (state := self._state).dictionary is None:
            raise NotFittedError(
                f"there is no {name} before a task: call partial_fit(X, y, task=...)"
            )
        return state

    @property
    def dictionary_(self) -> Floats:
        """L, orthonormal rows, (n_components, n_features)."""
        return self._learnt("dictionary_").dictionary

    @property
    def codes_(self) -> dict[Any, Floats]:
        """Task to its code, (n_components, n_components); a copy of the table."""
        return self._learnt("codes_").codes.waiting()

    @property
    def tasks_(self) -> dict[Any, TaskRecord]:
        """Task to its `TaskRecord`, in the order of first appearance; a copy of the table."""
        return dict(self._learnt("tasks_").tasks)

    @property
    def memory_(self) -> GradientMemory | None:
        """Gradients of the tasks, a copy of the GradientMemory, or None."""
        return _copied(self._learnt("memory_").memory)

    @property
    def metric_type_(self) -> str:
        """What the metrics are: "similarity" or "distance"."""
        return self._learnt("metric_type_").metric_type

    @property
    def n_features_in_(self) -> int:
        """Number of features."""
        return self._learnt("n_features_in_").dictionary.shape[1]

    def _ahead(self, visits: Iterable[tuple[Matrix, list[Any], Hashable]]) -> Generator[Any]:
        """What the base learner learns of each new task, in order; None: not before its turn."""
        if self.warm_start_from_dictionary or joblib.effective_n_jobs(self.n_jobs) == 1:
            yield from itertools.repeat(None)
        self._check_parameters()
        calls = []
        root = self._root()
        for number, (X, y, task) in enumerate(visits):
            codes = self._check_task(X, y, task)[2]
            seed = _visit_seeds(root, number, 0)[0]
            calls.append(joblib.delayed(_fitted)(self._base_learner(task, seed), X, codes))
        yield from joblib.Parallel(self.n_jobs, return_as="generator")(calls)

    def _learn_table(
        self, rows: Matrix, labels: list[Any], places: Mapping[Hashable, list[int]]
    ) -> None:
        """Learn tasks, each with the places of its rows, one after another."""

        def visit(task: Hashable) -> tuple[Matrix, list[Any], Hashable]:
            return rows[places[task]], [labels[row] for row in places[task]], task

        self._state = replace(self._state, root=self._root())
        with contextlib.closing(self._ahead(map(visit, places))) as ahead:
            for task, learnt in zip(places, ahead):
                self._state = self._visit(*visit(task), learnt)

    def fit(self, X: MatrixLike, y: LabelsLike, *, tasks: Iterable[Hashable]) -> Self:
        """Forget everything and learn a table of rows, task by task.

        Parameters
        ----------
        X : {array-like, sparse matrix, data frame} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        tasks : sequence of length n_samples
            Task of each row. Tasks are learned in the order of their first row.

        Returns
        -------
        self
        """
        rows, labels, names = _check_table(X, y, tasks)
        columns = _columns(X)
        fresh = clone(self)
        places: dict[Any, list[int]] = {}
        for row, task in enumerate(names):
            places.setdefault(task, []).append(row)
        fresh._learn_table(rows, labels, places)
        with _lock(self):
            self._state = replace(fresh._state, columns=columns)
        return self

    def forget(self, task: Hashable) -> Self:
        """Drop a task's code, gradient and record; the dictionary stays."""
        with _lock(self):
            self._state = self._without(task)
        return self

    def _without(self, task: Hashable) -> _State:
        state = self._knowing(task)
        tasks = {u: record for u, record in state.tasks.items() if u != task}
        memory = _copied(state.memory)
        if memory is not None:
            memory.gradients.pop(task, None)
            memory.errors.pop(task, None)
        return replace(state, codes=state.codes.without(task), tasks=tasks, memory=memory)

    @property
    def state_parts_(self) -> dict[str, int]:
        """Bytes kept, by part: dictionary, codes, moves that codes wait for, gradients, records."""
        state = self._learnt("state")
        records = state.tasks.values()
        memory = state.memory
        return {
            "dictionary": state.dictionary.nbytes,
            "codes": state.codes.nbytes,
            "moves": state.codes.moves_nbytes,
            "gradients": 0 if memory is None else memory.nbytes,
            "records": sum(8 * (9 + len(record.classes)) for record in records),
        }

    def _packed(self, arrays: dict[str, Any]) -> tuple[int, Any]:
        form = _pack(self._state, arrays)
        return 2 if "moves" in arrays else 1, form

    @classmethod
    def _unpacked(cls, version: int, form: Any, arrays: dict[str, NDArray[Any]]) -> _State:
        return _State() if form is None else _unpack(form, arrays)


# book/lifelong.ipynb#the-class
_LOCKS: dict[int, WeakKeyDictionary[Any, Any]] = {}  # by process: a fork holds none


def _lock(learner: Any) -> Any:
    """The lock under which a learner changes; a copy of the learner has another one."""
    own = _LOCKS.setdefault(os.getpid(), WeakKeyDictionary())
    return own.setdefault(learner, threading.RLock())  # one step, for all threads


# book/lifelong.ipynb#the-class
def _check_seed(random_state: Any) -> None:
    try:
        check_random_state(random_state)
    except (TypeError, ValueError) as error:
        raise type(error)(f"random_state={random_state!r} is no seed: {error}") from None


def _check_choice(name: str, value: Any, choices: Sequence[Any]) -> None:
    if value not in choices:
        raise ValueError(f"{name}={value!r} is not known: use one of {choices}")


def _check_number(name: str, value: Any, least: float, whole: bool = False) -> None:
    if not (_is_whole(value) if whole else _is_real(value)):
        raise TypeError(f"{name}={value!r}: give {'an integer' if whole else 'a number'}")
    if not least <= value < np.inf:
        raise ValueError(f"{name}={value!r}: give at least {least}")


# book/lifelong.ipynb#the-class
def _check_base(learner: Any) -> None:
    """Refuse what is no base learner, or one whose own parameters it cannot use."""
    if isinstance(learner, str):
        _check_choice("base_learner", learner, ("oasis", "scml"))
        return
    learner = _unfitted(learner, "base_learner")
    if hasattr(learner, "_parameter_rules"):
        check_parameters(learner)


# book/lifelong.ipynb#the-class
def _check_classes(y: Indices, task: Hashable) -> None:
    classes = set(y.tolist())
    if not 1 < len(classes) < len(y):
        lack = "dissimilar" if len(classes) < 2 else "similar"
        raise ValueError(
            f"y of task {task!r} has {len(y)} rows of {len(classes)} classes, so"
            f" there is no {lack} pair: give two classes, one with two rows"
        )


# book/lifelong.ipynb#the-class
def _check_hashable(task: Any, place: str) -> None:
    try:
        hash(task)
    except TypeError:
        raise TypeError(f"{place}={task!r} is not hashable: use a string or tuple") from None


def _holds_nan(name: Any) -> bool:
    """Whether a name, or a part of it, is not equal to itself: it would not be found again."""
    if isinstance(name, (tuple, frozenset)):
        return any(map(_holds_nan, name))
    return bool(name != name)


def _check_name(task: Any, place: str) -> None:
    _check_hashable(task, place)
    if _holds_nan(task):
        raise ValueError(f"{place}={task!r} is not equal to itself: use another name")


# book/lifelong.ipynb#the-class
def _check_rows(X: MatrixLike, n_features: int | None = None) -> Matrix:
    kwargs = {"accept_sparse": "csr", "dtype": np.float64, "order": "C"}
    X = check_array(_plain(X), ensure_all_finite=False, ensure_min_samples=0, **kwargs)
    _check_finite(X, "X")
    _check_size(X, "X")
    if n_features is not None and X.shape[1] != n_features:
        raise ValueError(
            f"X has {X.shape[1]} features, but the earlier tasks have"
            f" {n_features}: all tasks share one dictionary"
        )
    return X


# book/lifelong.ipynb#the-class
def _columns(X: MatrixLike) -> tuple[Any, ...] | None:
    """Names of the columns of a data frame, as scikit-learn notes them; None without names."""
    reader = BaseEstimator()
    validate_data(reader, X, skip_check_array=True)
    names = getattr(reader, "feature_names_in_", None)
    return None if names is None else tuple(names)


# book/lifelong.ipynb#the-class
def _visit_seeds(root: Any, number: int, n_visits: int) -> list[int]:
    """Three seeds of a visit: base learner, triplets, first dictionary."""
    sequence = np.random.SeedSequence([root, number, n_visits])
    return [int(seed) for seed in sequence.generate_state(3)]


# book/lifelong.ipynb#the-class
def _check_start(learner: Any, asked: bool) -> None:
    """Refuse a base learner that cannot start from the task's metric, or from those of others."""
    name = "warm_start_from_dictionary=True"
    other = "False"
    if asked:
        name = "revisit='warm'"
        other = "revisit='average'"
    if "init" not in learner.get_params():
        raise ValueError(
            f"{name} needs a base learner with a parameter init, the metric that it"
            f" starts from, which {type(learner).__name__} lacks: use {other}"
        )


# book/lifelong.ipynb#the-class
def _with_identity_outside(L: Floats, codes: list[Floats]) -> FactoredMetric:
    """I + L'(mean code - I)L: the codes' mean in the dictionary, the identity outside."""
    return FactoredMetric(1.0, L, np.mean(codes, axis=0) - np.eye(len(L)))


# book/lifelong.ipynb#the-class
def _squared_norms(metrics: Mapping[Any, FactoredMetric]) -> dict[Any, float]:
    return {u: max(M.inner(M), float(np.finfo(float).tiny)) for u, M in metrics.items()}


def _both_symmetric(W: Floats, M: FactoredMetric) -> bool:
    """Whether a code and its metric are symmetric; a sparse core counts as not."""
    dense = isinstance(M.core, np.ndarray)
    return is_symmetric(W) and dense and (M.core.ndim == 1 or is_symmetric(M.core))


def _products(
    A: Floats, W: Floats, M: FactoredMetric, P: Floats, symmetric: bool
) -> tuple[Floats, Floats, Floats, Floats, bool]:
    """A W, W A, P C and W P of a task whose code and metric are symmetric, or are not."""
    AW = A @ W
    return AW, AW.T if symmetric else W @ A, M._by_core(P), W @ P, symmetric


# book/lifelong.ipynb#the-class
def _known_metrics(
    start: Floats, old: Mapping[Any, Floats], target: FactoredMetric
) -> tuple[dict[Any, FactoredMetric], dict[Any, float]]:
    """What does not change in a visit: metrics, the new one last, and their squared norms."""
    metrics = {}
    rows = start
    for u, C in old.items():
        metrics[u] = FactoredMetric(0.0, rows, C)
        rows = metrics[u].factor  # one object for all old tasks
    metrics[object()] = target  # a key that no task has
    return metrics, _squared_norms(metrics)


# book/lifelong.ipynb#the-class
def _residual_objective(
    L: Floats,
    codes: Mapping[Any, Floats],
    metrics: Mapping[Any, FactoredMetric],
    sizes: Mapping[Any, float],
    dictionary_penalty: float,
    symmetric: Mapping[Any, bool] | None = None,
) -> tuple[float, Callable[[], Floats]]:
    """Mean relative residual of metrics coded in L, plus gamma ||L||^2; a function for its slope.

    Metrics that share one factor F, as those of all old tasks do, share the product L F'.
    """
    A = L @ L.T
    value = dictionary_penalty * np.sum(L * L)
    factors = {id(M.factor): M.factor for M in metrics.values()}
    images = {key: _times(L, F) for key, F in factors.items()}  # P = L F'
    weights = {u: 1 / (sizes[u] * len(codes)) for u in codes}
    products = {}
    both = symmetric or {u: _both_symmetric(W, metrics[u]) for u, W in codes.items()}
    for u, W in codes.items():
        M = metrics[u]
        products[u] = AW, WA, PC, WP, _ = _products(A, W, M, images[id(M.factor)], both[u])
        inner = np.vdot(AW, WA) - 2 * (np.vdot(PC, WP) + M.alpha * np.vdot(A, W))
        value += 0.5 * weights[u] * (inner + sizes[u])
    parts = (factors, images, products, weights)
    return float(value), lambda: _residual_slope(L, codes, metrics, dictionary_penalty, *parts)


# book/lifelong.ipynb#the-class
def _residual_slope(
    L: Floats,
    codes: Mapping[Any, Floats],
    metrics: Mapping[Any, FactoredMetric],
    dictionary_penalty: float,
    factors: Mapping[int, Matrix],
    images: Mapping[int, Floats],
    products: Mapping[Any, Any],
    weights: Mapping[Any, float],
) -> Floats:
    """Gradient of the residual from the products that its value has made."""
    own = 2 * dictionary_penalty * np.eye(len(L))
    pulls = {key: np.zeros_like(P) for key, P in images.items()}
    for u, W in codes.items():
        M = metrics[u]
        (AW, WA, PC, WP, symmetric) = products[u]
        if symmetric:
            turn = 2 * (W @ AW)
            pull = 2 * (W @ PC)
        else:
            WPC = WP * M.core if M.core.ndim == 1 else WP @ M.core.T
            turn = WA @ W.T + W.T @ AW
            pull = WPC + W.T @ PC
        own += weights[u] * (turn - M.alpha * (W + W.T))
        pulls[id(M.factor)] += weights[u] * pull
    return own @ L - sum(pulls[key] @ F for key, F in factors.items())


# book/lifelong.ipynb#the-class
def residual_step(
    dictionary: Floats,
    codes: Mapping[Any, Floats],
    metrics: Mapping[Any, FactoredMetric],
    dictionary_penalty: float = 0.0,
    max_move: float = 0.05,
    sizes: Mapping[Any, float] | None = None,
) -> DictionaryStep:
    """One step of the dictionary that lowers the relative residual of coded metrics.

    Parameters
    ----------
    dictionary : ndarray of shape (d, D)
        L, with orthonormal rows.
    codes, metrics : dict
        Tasks to codes W (d, d), and to the FactoredMetrics they stand for.
    dictionary_penalty : float, default=0.0
        gamma.
    max_move : float, default=0.05
        Longest trial step, as a fraction of ||L||_F.
    sizes : dict, optional
        Tasks to squared norms ||M||_F^2 of their metrics, where these are known.

    Returns
    -------
    lml.dictionary.DictionaryStep

    Notes
    -----
    Derived in chapter 15 (lifelong), eq. (lifelong-residual).
    With A = L L' and B = L M L' the squared distance is <A W A - 2 B, W> + ||M||^2,
    and the gradient is (W A W' + W' A W) L - W L M' - W' L M, over ||M||^2.
    Paper: section IV, eq. 10, as a function of L_0.
    """
    sizes = sizes or _squared_norms({u: metrics[u] for u in codes})
    symmetric = {u: _both_symmetric(W, metrics[u]) for u, W in codes.items()}

    def objective(L: Floats) -> tuple[float, Callable[[], Floats]]:
        return _residual_objective(L, codes, metrics, sizes, dictionary_penalty, symmetric)

    moved, step, before, after, n = line_search(objective, dictionary, max_move, 20)
    change, rows = polar_factors(moved)
    return DictionaryStep(rows, change, step, before, after, n)


# book/lifelong.ipynb#the-class
def _diagnostics(target: FactoredMetric, L: Floats, code: Floats) -> dict[str, Any]:
    """Norm of a target, the share of it in the dictionary, filled off-diagonal entries."""
    norm = np.sqrt(max(target.inner(target), 0.0))
    d = len(code)
    inside = float(np.linalg.norm(target.project(L)) / norm) if norm > 0 else 1.0
    off = np.count_nonzero(code) - np.count_nonzero(np.diag(code))
    return {
        "target_norm": float(norm),
        "captured": min(inside, 1.0) ** 2,
        "off_diagonal": float(off / max(d * (d - 1), 1)),
    }


def _copied(memory: Any) -> Any:
    """A gradient memory with tables of its own; the gradients never change."""
    twin = copy.copy(memory)
    if memory is not None:
        twin.gradients = dict(memory.gradients)
        twin.errors = dict(memory.errors)
    return twin


# book/lifelong.ipynb#the-class
def _check_table(
    X: MatrixLike, y: LabelsLike, tasks: Iterable[Hashable]
) -> tuple[Matrix, list[Any], list[Hashable]]:
    """Rows, labels and names of tasks of a table, a list each."""
    names = tasks.tolist() if hasattr(tasks, "tolist") else list(tasks)
    for row, task in enumerate(names):
        _check_name(task, f"tasks[{row}]")
        if task is None:
            raise ValueError(f"tasks[{row}] is None: give each row the name of its task")
    rows = _check_rows(X)
    labels = _labels(y)
    check_consistent_length(rows, labels, names)
    if not names:
        raise ValueError("X has 0 rows: give the rows of at least one task")
    return rows, labels, names


# book/lifelong.ipynb#the-class
def _fitted(learner: Any, X: Matrix, y: Indices) -> tuple[FactoredMetric, str]:
    """The metric that a base learner learns, and its type."""
    return _fitted_metric(learner, "base_learner", X, y)


# book/lifelong.ipynb#the-class
def _pack(state: _State, arrays: dict[str, Any]) -> dict[str, Any] | None:
    """The state as JSON; its arrays go to `arrays`."""
    if state.dictionary is None:
        return None
    d = len(state.dictionary)
    arrays["dictionary"] = state.dictionary
    arrays["codes"] = np.reshape(state.codes.stored, (-1, d, d))
    tasks = [_pack_record(task, record) for task, record in state.tasks.items()]
    form = {
        "tasks": tasks,
        "memory": _pack_memory(state.memory, arrays),
        "root": state.root,
        "metric_type": state.metric_type,
        "columns": encode(state.columns),
    }
    if state.codes.moves:  # codes that wait for their turn
        arrays["moves"] = np.array(state.codes.moves)
        form["queue"] = state.codes.queue
    return form


# book/lifelong.ipynb#the-class
def _pack_record(task: Hashable, record: TaskRecord) -> dict[str, Any]:
    with about(f"task {task!r}"):
        entries = {part.name: encode(getattr(record, part.name)) for part in fields(record)}
        return {"task": encode(task), **entries}


# book/lifelong.ipynb#the-class
def _pack_memory(memory: GradientMemory | None, arrays: dict[str, Any]) -> dict[str, Any] | None:
    if memory is None:
        return None
    gradients = []
    for place, (task, G) in enumerate(memory.gradients.items()):
        arrays[f"gradient{place}"] = G.factor
        arrays[f"weights{place}"] = G.core
        gradients.append([encode(task), G.alpha, memory.errors[task]])
    return {"rank": memory.rank, "gradients": gradients}


# book/lifelong.ipynb#the-class
def _unpack(form: Any, arrays: dict[str, NDArray[Any]]) -> _State:
    """The state that `_pack` took apart, or an error that names what does not fit."""
    keys = {"tasks", "memory", "root", "metric_type", "columns", "queue"}
    form = {"queue": None, **form} if type(form) is dict else form
    expect(type(form) is dict and set(form) == keys, "state", form, f"an object with {keys}")
    L, codes = (decode({"array": name}, arrays) for name in ("dictionary", "codes"))
    fits = L.dtype == codes.dtype == float and L.ndim == 2 and 1 <= len(L) <= L.shape[1]
    expect(fits, "dictionary", (L.dtype, L.shape), "floats of shape (d, D) with d <= D")
    tasks = _unpack_records(form["tasks"])
    fits = codes.shape == (len(tasks), len(L), len(L))
    expect(fits, "shape of codes", codes.shape, f"that of {len(tasks)} tasks and {len(L)} rows")
    memory = _unpack_memory(form["memory"], tasks, L.shape[1], arrays)
    table = {task: code.copy() for task, code in zip(tasks, codes)}
    moving = _unpack_queue(form["queue"], table, arrays)
    return _State(L, moving, tasks, memory, *_unpack_rest(form, L.shape[1]))


# book/lifelong.ipynb#the-class
def _unpack_queue(
    form: Any, codes: Mapping[Any, Floats], arrays: dict[str, NDArray[Any]]
) -> MovingCodes:
    if form is None:
        return MovingCodes(codes)
    moves = decode({"array": "moves"}, arrays)
    shape = next(iter(codes.values())).shape
    fits = moves.dtype == float and moves.ndim == 3 and moves.shape[1:] == shape and len(moves) > 0
    expect(fits, "moves", (moves.dtype, moves.shape), f"floats of shape (n, {shape})")
    places, first = zip(*form, strict=True)
    expect(all(_fits(n, int) for n in first), "queue", first, "whole numbers")
    expect(sorted(places) == list(range(len(codes))), "queue", places, "each task once")
    fits = list(first) == sorted(first) and first[-1] <= first[0] + len(moves)
    expect(fits, "queue", first, f"rising, over at most {len(moves)} moves")
    return MovingCodes.restored(codes, form, moves)


# book/lifelong.ipynb#the-class
def _fits(value: Any, kind: type) -> bool:
    """Whether a value is of a type and, if a number, finite and not negative."""
    if kind in (int, float):
        return type(value) is kind and 0 <= value < np.inf
    return kind is object or type(value) is kind


def _unpack_rest(form: Any, n_features: int) -> tuple[Any, ...]:
    kind = form["metric_type"]
    columns = decode(form["columns"])
    root = form["root"]
    expect(kind in ("similarity", "distance"), "metric_type", kind, "similarity or distance")
    names = () if columns is None else set(columns)
    fits = columns is None or len(names) == len(columns) == n_features
    fits = fits and all(type(name) is str for name in names)
    expect(fits, "columns", columns, f"{n_features} different names")
    expect(_fits(root, int), "root", root, "a whole number")
    return kind, columns, root


# book/lifelong.ipynb#the-class
def _unpack_records(forms: Any) -> dict[Any, TaskRecord]:
    """Tasks and their records."""
    kinds: dict[str, type] = {part.name: float for part in fields(TaskRecord)}
    kinds |= {"task": object, "classes": tuple, "number": int, "n_rows": int, "n_visits": int}
    tasks = {}
    for place, form in enumerate(forms):
        expect(set(form) == set(kinds), f"task {place}", form, f"an object with {list(kinds)}")
        values = {name: decode(value) for name, value in form.items()}
        for name, value in values.items():
            expect(
                _fits(value, kinds[name]), f"{name} of task {place}", value, kinds[name].__name__
            )
        task = values.pop("task")
        expect(task not in tasks, f"name of task {place}", task, "a new one")
        tasks[task] = TaskRecord(**values)
    numbers = [record.number for record in tasks.values()]
    expect(sorted(set(numbers)) == numbers, "numbers of the tasks", numbers, "different and rising")
    return tasks


# book/lifelong.ipynb#the-class
def _unpack_memory(
    form: Any, tasks: Mapping[Any, TaskRecord], n_features: int, arrays: dict[str, NDArray[Any]]
) -> GradientMemory | None:
    """The gradient memory, for known tasks and rows of this many features."""
    if form is None:
        return None
    expect(set(form) == {"rank", "gradients"}, "memory", form, "an object with rank and gradients")
    memory = GradientMemory(form["rank"])
    for place, (task, alpha, error) in enumerate(form["gradients"]):
        task = decode(task)
        known = set(tasks) - set(memory.gradients)
        expect(task in known, f"task of gradient {place}", task, f"one of {known}")
        parts = [decode({"array": f"{name}{place}"}, arrays) for name in ("gradient", "weights")]
        fits = len(parts[0]) <= memory.rank and type(alpha) is float and _fits(error, float)
        expect(fits, f"gradient {place}", (parts[0].shape, alpha, error), "of the rank, in floats")
        memory.gradients[task] = FactoredMetric(alpha, parts[0], parts[1], n_features)
        memory.errors[task] = error
    return memory
