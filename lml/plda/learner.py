# Generated from book/plda.ipynb by tools/tangle.py: edit the chapter.
"""Lifelong probabilistic LDA: second-order statistics of all tasks in one dictionary.

`LifelongPLDA` writes the within-class and between-class scatter of each task in a shared
dictionary, weighs a task's own statistics against those of all tasks, and scores two rows by
the log-ratio of the two-covariance model. No row is kept.
"""

import copy
from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import replace
from functools import reduce
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg
from sklearn.exceptions import NotFittedError

from lml.base import BaseLifelongLearner, SharedLabelsMixin
from lml.penalties import OffDiagonalL1
from lml.plda.model import (
    LogRatioMetric,
    Moments,
    Scatters,
    class_axes,
    merge_moments,
    mix_scatters,
    shrunken_variances,
)
from lml.plda.selection import Selection, Visit, open_families
from lml.plda.statistics import (
    STATE_FIELDS,
    CoordinateChange,
    FamilyKey,
    PLDAState,
    TaskMemory,
    TaskSums,
    all_scatters,
    move_pools,
    span_basis,
    summed,
    visit_basis,
    whitened_rows,
    written_moments,
)
from lml.single_task import TaskMetricsMixin
from lml.state import RecordField
from lml.utils.typing import Floats, Indices, Matrix, MatrixLike, Seed
from lml.utils.validation import (
    Rule,
    check_columns,
    check_matrix,
    flag,
    one_of,
    optional,
    real,
    seed,
    whole,
)

__all__ = ["LifelongPLDA"]


# book/plda.ipynb#the-read-out-and-its-choice
def _with_least_eigenvalue(omega: Floats, least: float = 1e-3) -> Floats:
    """A symmetric matrix with its smallest eigenvalue lifted to `least`."""
    smallest = linalg.eigvalsh(omega, subset_by_index=[0, 0])[0]
    return omega + max(least - smallest, 0.0) * np.eye(len(omega))


def _log_ratio_metric(
    scatters: Scatters,
    shrinkage: tuple[float, float, float],
    state: PLDAState,
    mean: ArrayLike,
    unit: float,
) -> LogRatioMetric:
    """The log-ratio of mixed statistics in a dictionary, eq. (plda-readout)."""
    L = state.dictionary
    ridge = state.regularization * L @ L.T
    within = _with_least_eigenvalue(scatters.within) - ridge
    V, psi = class_axes(scatters._replace(within=within), ridge, complete=shrinkage[2] > 0)
    return LogRatioMetric(mean, V.T @ L / np.sqrt(unit), shrunken_variances(psi, *shrinkage))


# book/plda.ipynb#the-learner
def _numbers(count: int, most: float, single: bool = False) -> Rule:
    """Rule for "auto" or so many numbers in [0, most], or a single one for all of them."""
    part = real(0, most)

    def allows(value: Any) -> bool:
        if isinstance(value, str):
            return value == "auto"
        if not isinstance(value, (tuple, list)):
            return single and part.allows(value)
        return len(value) == count and all(map(part.allows, value))

    return Rule(allows, f"'auto', {'a number or ' * single}{count} numbers, each {part.wanted}")


class LifelongPLDA(TaskMetricsMixin, SharedLabelsMixin, BaseLifelongLearner[PLDAState]):
    """Tasks one after another, each with the log-ratio of its own two-covariance model.

    Parameters
    ----------
    n_components : int, default=200
        Rows d of the dictionary; with at least n_features of them nothing is lost.
    regularization : float, default=1.0
        rho, added to the within-class scatter, in units of its average diagonal.
    own_weight : "auto", float in [0, 1] or pair of such, default="auto"
        Weight of a task's own statistics, or of its within-class and its between-class
        ones; 0 uses those of all tasks only, 1 its own only. "auto" chooses it for each task
        by validation, and also with which earlier tasks to share, or with none.
    shrinkage : "auto" or three floats, default="auto"
        (g, nu, f): measured between-class variances psi become g psi^2 / (psi + nu) + f, with
        f for all directions of the dictionary. "auto" chooses them by validation.
    code_penalty : float, default=0.0
        Threshold of the off-diagonal entries of a code when it is read.
    shared_labels : bool, default=False
        Whether a label means the same class in every task. With ``own_weight="auto"`` a task
        shares with those only whose labels agree with its own.
    revisit : {"add", "replace"}, default="add"
        Whether rows of a known task are added to those it had, or take their place.
    freeze : bool, default=False
        Keep each task's read-out of its last visit, so that later tasks change no answer.
    max_old_tasks : int or None, default=32
        How many old tasks a visit takes into account one by one at most. Beyond, families keep
        sums, and a visit hardly costs more where there are more tasks: it compares the task with
        that many of the largest families, so that among many small ones "auto" may choose
        differently, and writes that many codes in the present dictionary. The dictionary moves
        only when none is left to write; with fewer rows than n_features, tasks of a new kind
        are worse until it does. None takes all old tasks; every visit then costs more than the
        one before.
    n_folds : int, default=5
        Folds of the validation within a visit.
    random_state : int, RandomState or None, default=None
        Seed of the folds.

    Attributes
    ----------
    state_ : PLDAState
        All that was learned; the attributes below read it.
    dictionary_ : ndarray of shape (d, n_features)
    codes_ : dict
        Task to its code N_t (d, d), thresholded.
    tasks_ : dict
        Task to its `TaskMemory`, in the order of first appearance.
    metric_type_ : "similarity"
        Rows are ranked by the log-ratio, larger is closer.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns, when the first task was a data frame; the later ones must have the
        same.
    state_parts_ : dict
        Bytes of each part of the state.
    state_nbytes_ : int
        Their sum.

    Notes
    -----
    Derived in chapter 22 (two_covariance), eq. (plda-ratio); chapter 23 (plda_memory), eqs.
    (plda-code) and (plda-guess); chapter 24 (plda), eqs. (plda-readout), (plda-validation),
    (plda-alike) and (plda-agree); beyond max_old_tasks (plda-sums) and (plda-follow). Tasks that
    share form a family (`TaskMemory.family`); rows of old tasks are never needed. Not in the paper;
    the metric of a task has its form L' W_t L (section III-C, eq. 4).

    Any number of threads may read while one learns: an answer is that of the state before the
    visit or after it. Visits by several threads come one after another. A visit that fails or
    is interrupted changes nothing. `save` and `load` keep a learner in a file.

    Examples
    --------
    >>> from lml.datasets import load_digits_tasks
    >>> from lml.evaluation import LifelongKNeighborsClassifier
    >>> learner = LifelongPLDA(random_state=0)
    >>> reader = LifelongKNeighborsClassifier(learner, n_neighbors=1)
    >>> for task in load_digits_tasks(random_state=0):
    ...     learner = learner.partial_fit(task.X_train, task.y_train, task=task.name)
    ...     reader = reader.fit(task.X_train, task.y_train, task=task.name)
    >>> reader.score(task.X_test, task.y_test, task=task.name) > 0.95
    True
    """

    metric_type_ = "similarity"
    _state_class = PLDAState
    _kind = "LifelongPLDA"
    _parameter_rules: ClassVar = {
        "n_components": whole(1),
        "regularization": real(0, above=True),
        "own_weight": _numbers(2, most=1.0, single=True),
        "shrinkage": _numbers(3, most=np.inf),
        "code_penalty": real(0),
        "shared_labels": flag(),
        "revisit": one_of("add", "replace"),
        "freeze": flag(),
        "max_old_tasks": optional(whole(1)),
        "n_folds": whole(2),
        "random_state": seed(),
    }

    def __init__(
        self,
        n_components: int = 200,
        regularization: float = 1.0,
        own_weight: Any = "auto",
        shrinkage: Any = "auto",
        *,
        code_penalty: float = 0.0,
        shared_labels: bool = False,
        revisit: str = "add",
        freeze: bool = False,
        max_old_tasks: int | None = 32,
        n_folds: int = 5,
        random_state: Seed = None,
    ) -> None:
        self.n_components = n_components
        self.regularization = regularization
        self.own_weight = own_weight
        self.shrinkage = shrinkage
        self.code_penalty = code_penalty
        self.shared_labels = shared_labels
        self.revisit = revisit
        self.freeze = freeze
        self.max_old_tasks = max_old_tasks
        self.n_folds = n_folds
        self.random_state = random_state

    @classmethod
    def _fields(cls) -> RecordField:
        return STATE_FIELDS

    @property
    def state_(self) -> PLDAState:
        """All that was learned, a `PLDAState`."""
        return self._learned_state("state_")

    def _records(self, state: PLDAState) -> dict[Any, TaskMemory]:
        """Task to its `TaskMemory`, its code in the present dictionary."""
        return {task: state.current(memory) for task, memory in state.tasks.items()}

    @property
    def dictionary_(self) -> Floats:
        """L, (d, n_features)."""
        return self._learned_state("dictionary_").dictionary

    @property
    def codes_(self) -> dict[Any, Floats]:
        """Task to its code N_t (d, d), thresholded."""
        state = self._learned_state("codes_")
        return {u: self._code(state.current(memory)) for u, memory in state.tasks.items()}

    def _known_memory(self, task: Hashable) -> tuple[PLDAState, TaskMemory]:
        """The state, and the memory of a task that must be known."""
        state = self._known_state(task)
        return state, state.current(state.tasks[task])

    # book/plda.ipynb#a-visit
    def _learn_task(
        self, state: PLDAState, X: Matrix, y: Indices, labels: list[Any], task: Hashable
    ) -> PLDAState:
        """The state after a visit: basis, families, validation, statistics, dictionary, codes."""
        L = state.dictionary
        rho = self.regularization
        rng = np.random.default_rng(state.seeds(task))
        known = state.tasks.get(task)
        n_others = len(state.tasks) - (known is not None)
        # a basis that holds the dictionary and the directions of the new rows
        by_sums = self._goes_on_from_sums(state, n_others)
        rests = by_sums and state.move is not None and len(L) <= self.n_components  # codes wait
        basis = span_basis(L) if rests else visit_basis(X, y, L, self.n_components, rho, rng)
        if len(L) != min(self.n_components, len(basis)):
            by_sums = rests  # a dictionary of another size is made from all codes
        # what the other tasks say in it: their sums, kept from the last visit or made from all codes
        read = ([task] if known else []) if by_sums else list(state.tasks)
        moments = state.moments(read, basis)
        earlier = moments.pop(task, None)
        if by_sums:
            pools = move_pools(state.sums_without(task), span_basis(L), basis)
        else:
            pools = self._sums(state.tasks, moments)
        # with whom to share, and how much, by validation within the new rows
        before = (earlier, known.mean) if known and earlier and self.revisit == "add" else None
        visit = Visit(X=X, codes=y, labels=labels, basis=basis, before=before)
        selection = self._selection()
        most = self.max_old_tasks if by_sums else None
        choice = selection.validate(visit, *open_families(pools, most, selection.may_leave), rng)
        # the statistics of the task, then the dictionary of all tasks and the codes in it
        own, mean = visit.moments()
        record = {
            "number": state.number(task),
            "mean": mean,
            "n_visits": 1 if known is None else known.n_visits + 1,
            **choice._asdict(),
        }
        added = (choice.family, choice.at_chance), TaskSums.of_task(own, self.shared_labels)
        pools = summed([*pools.items(), added])
        if by_sums:
            after = self._write_some(state, basis, pools, own, task, record)
        else:
            records = {u: vars(memory) for u, memory in state.tasks.items()} | {task: record}
            after = self._write_all(state, basis, pools, moments | {task: own}, records)
        return self._frozen(after, task) if self.freeze else after

    def _selection(self) -> Selection:
        """What validation chooses from."""
        return Selection.among(
            self.own_weight,
            self.shrinkage,
            regularization=self.regularization,
            shared_labels=self.shared_labels,
            n_folds=self.n_folds,
        )

    def _frozen(self, state: PLDAState, task: Hashable) -> PLDAState:
        """The state with the read-out of a visited task, which later visits do not change."""
        memory = state.tasks[task]
        frozen = replace(memory, frozen=self._read(state, memory))
        return replace(state, tasks=state.tasks | {task: frozen})

    def _sums(
        self, tasks: Mapping[Any, TaskMemory], moments: Mapping[Any, Moments]
    ) -> dict[FamilyKey, TaskSums]:
        """Sums over tasks with such moments."""
        return summed(
            (tasks[u].key, TaskSums.of_task(m, self.shared_labels)) for u, m in moments.items()
        )

    def _goes_on_from_sums(self, state: PLDAState, n_others: int) -> bool:
        """Whether a visit, or its end, goes on from the sums of the last one."""
        if self.max_old_tasks is None or n_others <= self.max_old_tasks:
            return False
        keyed = {pool.joined is not None for pool in state.pools.values()}
        return keyed == {self.shared_labels} and state.regularization == self.regularization

    def _write_all(
        self,
        state: PLDAState,
        basis: Floats,
        pools: Mapping[FamilyKey, TaskSums],
        moments: Mapping[Any, Moments],
        records: Mapping[Any, Mapping[str, Any]],
    ) -> PLDAState:
        """The state of tasks with such moments and sums in a basis, all codes written anew.

        `records` has what a `TaskMemory` knows of each task beside its moments.
        """
        rho = self.regularization
        together = all_scatters(pools)
        T = whitened_rows(together.within, together.spread, rho, self.n_components)
        tasks = {
            task: TaskMemory(**{**record, **written_moments(moments[task], T, rho)})
            for task, record in records.items()
        }
        L = T @ basis
        return replace(
            state.blank(),
            tasks=tasks,
            dictionary=L,
            pools=move_pools(pools, basis, span_basis(L)),
            regularization=rho,
        )

    # book/plda.ipynb#a-visit-among-many-tasks
    def _write_some(
        self,
        state: PLDAState,
        basis: Floats,
        pools: dict[FamilyKey, TaskSums],
        own: Moments,
        task: Hashable,
        record: Mapping[str, Any],
    ) -> PLDAState:
        """The state with a visited task and such sums in a basis, few other codes written anew."""
        rho = self.regularization
        L = state.dictionary
        move = state.move
        moves = state.moves
        if move is None:  # no code waits: the dictionary of all tasks
            together = all_scatters(pools)
            L = whitened_rows(together.within, together.spread, rho, self.n_components) @ basis
            move = CoordinateChange.between(state.dictionary, L)
            moves += 1
            pools = move_pools(pools, basis, span_basis(L))
        # the task's own code in it, and some of those that wait
        memory = TaskMemory(**record, **written_moments(own, L @ basis.T, rho, moves))
        after = replace(
            state,
            dictionary=L,
            tasks=state.tasks | {task: memory},
            pools=pools,
            move=move,
            moves=moves,
        )
        return after.caught_up(self.max_old_tasks)

    # book/plda.ipynb#reading-a-task
    def _code(self, memory: TaskMemory) -> Floats:
        """N_t with its threshold."""
        return OffDiagonalL1(self.code_penalty).prox(memory.code)

    def _read(self, state: PLDAState, memory: TaskMemory) -> LogRatioMetric:
        """The log-ratio of a task in a state."""
        weights, shrinkage = self._selection().settings(state, memory)
        own = memory.scatters._replace(within=self._code(memory))
        mixed = mix_scatters(weights, own, state.shared(memory.family))
        return _log_ratio_metric(mixed, shrinkage, state, memory.mean, memory.unit)

    def task_metric(self, task: Hashable) -> LogRatioMetric:
        """The log-ratio of a task, a `LogRatioMetric` whose matrix is L' W_t L."""
        state, memory = self._known_memory(task)
        if self.freeze and memory.frozen is not None:
            return memory.frozen
        return self._read(state, memory)

    def transform(self, X: MatrixLike, *, task: Hashable, role: str | None = None) -> Floats:
        """Coordinates of rows for one task.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, n_features)
            Rows, or a data frame with the columns that were learned.
        task : hashable
            A known task.
        role : {"query", "reference"} or None, default=None
            None: inner products are the bilinear part x' L' W_t L z of the centred rows.
            "query" and "reference": the Euclidean nearest reference of a query is the one
            with the largest log-ratio; the two maps differ.

        Returns
        -------
        ndarray of shape (n, k), k <= n_components

        Notes
        -----
        Derived in chapter 22 (two_covariance), eq. (plda-stretch).
        """
        now = copy.copy(self)  # no other thread changes it
        metric = now.task_metric(task)
        check_columns(now, X)
        one_of(None, "query", "reference").check("role", role)
        X = check_matrix(X, n_features=metric.n_features, ensure_min_samples=1)
        return metric.embed(X) if role is None else metric.map_rows(X, role)

    # book/plda.ipynb#references-that-know-their-class
    def _joined_means(self, state: PLDAState, task: Hashable) -> dict[Any, Floats]:
        """Label to the class mean over a task's family, at the task's mean, eq. (plda-targets)."""
        memory = state.tasks[task]
        basis = span_basis(state.dictionary)
        joined = state.pool(memory.family).joined
        if joined is None:  # labels are shared only since the last visit
            members = [u for u, m in state.tasks.items() if m.family == memory.family]
            joined = reduce(merge_moments, state.moments(members, basis).values())
        return dict(zip(joined.labels, memory.mean + joined.means @ basis))

    # book/plda.ipynb#a-task-that-has-not-come-and-one-that-is-forgotten
    def shared_metric(self, mean: ArrayLike | None = None) -> LogRatioMetric:
        """The log-ratio of a task that has not been learned, a `LogRatioMetric`.

        It has the statistics of the largest family; `mean` (n_features,) is subtracted from
        its rows, by default the mean of the rows of all tasks.
        """
        state = self._state
        if state is None or not state.tasks:
            raise NotFittedError("no task has been learned: call partial_fit(X, y, task=...)")
        memories = list(state.tasks.values())
        families = [memory.family for memory in memories]
        family = Counter(families).most_common(1)[0][0]
        if mean is None:
            total = sum(memory.n_rows for memory in memories)
            mean = sum(memory.n_rows / total * memory.mean for memory in memories)
        elif np.shape(mean) != (state.n_features,):
            raise ValueError(
                f"mean has shape {np.shape(mean)}: give {(state.n_features,)}, a number for each"
                " feature"
            )
        _, shrinkage = self._selection().settings(state, memories[families.index(family)])
        unit = np.mean([memory.unit for memory in memories if memory.family == family])
        return _log_ratio_metric(state.shared(family), shrinkage, state, mean, float(unit))

    def _forget_task(self, state: PLDAState, task: Hashable) -> PLDAState:
        """The state without a task's memory; the others share without it."""
        number = state.number(task)
        left = {u: memory for u, memory in state.tasks.items() if memory.number != number}
        if not left:
            return state.blank()
        if self._goes_on_from_sums(state, len(left)):
            return replace(state, tasks=left, pools=state.sums_without(task)).caught_up(0)
        basis = span_basis(state.dictionary)
        moments = state.moments(left, basis)
        records = {u: vars(memory) for u, memory in left.items()}
        return self._write_all(state, basis, self._sums(left, moments), moments, records)

    # book/plda.ipynb#what-is-kept
    @property
    def state_parts_(self) -> dict[str, int]:
        """Bytes kept: dictionary, codes, class means, sums, move, frozen read-outs, records."""
        return self._learned_state("state_parts_").nbytes_by_part()
