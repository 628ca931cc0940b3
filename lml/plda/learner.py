# Generated from book/plda.ipynb by tools/tangle.py: edit the chapter.
"""Lifelong probabilistic LDA: second-order statistics of all tasks in one dictionary.

`LifelongPLDA` writes the within-class scatter and the class means of each task in a shared
dictionary, weighs a task's own statistics against those of its family, and scores two samples by
the log-ratio of the two-covariance model. No sample is kept.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_consistent_length

from lml.base import BaseLifelongLearner, SharedLabelsMixin
from lml.fisher import class_means
from lml.initialization import orthonormal_rows
from lml.plda.model import (
    LogRatioMetric,
    Scatters,
    TaskSums,
    class_axes,
    class_log_ratios,
    mix_scatters,
    shrunken_variances,
)
from lml.plda.selection import Choice, Selection, Visit
from lml.plda.statistics import (
    STATE_FIELDS,
    PLDAState,
    TaskMemory,
    leading_span,
    mean_scatters,
    moved_moments,
    moved_sums,
    visit_basis,
)
from lml.single_task import TaskMetricsMixin
from lml.state import RecordField
from lml.utils.typing import Floats, Indices, LabelsLike, Matrix, MatrixLike, Seed
from lml.utils.validation import (
    Rule,
    check_columns,
    check_matrix,
    encode_labels,
    flag,
    has_pairs,
    labels_array,
    optional,
    real,
    seed,
    whole,
)

__all__ = ["LifelongPLDA"]


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

    wanted = f"'auto', {'a number or ' * single}{count} numbers, each {part.wanted}"
    return Rule(allows, wanted, part.largest)


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
    shared_labels : bool, default=False
        Whether a label means the same class in every task. With ``own_weight="auto"`` a task
        shares with those only whose labels agree with its own.
    max_old_tasks : int or None, default=32
        With more tasks than that, T, a visit compares the task with that many of the largest
        families, and for d < n_features the dictionary moves at one visit in T / max_old_tasks,
        so that the work of a visit hardly grows on average. Tasks of a new kind are worse
        until it moves. None compares with all families and moves at every visit.
    n_folds : int, default=5
        Folds of the validation within a visit.
    random_state : int, RandomState or None, default=None
        Seed of the folds.
    verbose : bool, default=False
        Whether a bar shows the progress of `fit` over the tasks, which needs tqdm.

    Attributes
    ----------
    state_ : PLDAState
        All that was learned; the attributes below read it.
    dictionary_ : ndarray of shape (d, n_features)
        Orthonormal rows.
    codes_ : dict
        Task to its code N_t (d, d), its within-class scatter in the dictionary.
    tasks_ : dict
        Task to its `TaskMemory`, in the order of first appearance.
    metric_type_ : "similarity"
        Samples are ranked by the log-ratio, larger is closer.
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
    Derived in chapter 22 (two_covariance), eq. (plda-ratio); chapter 23 (plda_memory), eq.
    (plda-code); chapter 24 (plda), eqs. (plda-readout), (plda-validation), (plda-guess),
    (plda-alike), (plda-agree) and (plda-divisor). Tasks that share form a family
    (`TaskMemory.family`); samples of old tasks are never needed. Not in the paper; the metric of a
    task has its form L' W_t L (section III-C, eq. 4). A metric that `task_metric` gave does not
    change when more is learned. `pair_score` and `class_log_ratios` give its log-ratio in a size
    that suits held-out pairs.

    Take it rather than `LifelongMetricLearner` where each class is one cloud, or where labels are
    shared. It keeps d^2 numbers of each task, and where classes have several shapes it is no better.

    A new task needs two classes, one of them with two samples. A known one may come with one class
    or one sample. From few classes, ten say, the variance between classes is known badly: log
    ratios of pairs of other classes then need a calibration, as `PairClassifier` has it.

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
        "shared_labels": flag(),
        "max_old_tasks": optional(whole(1)),
        "n_folds": whole(2),
        "random_state": seed(),
        "verbose": flag(),
    }

    def __init__(
        self,
        n_components: int = 200,
        regularization: float = 1.0,
        own_weight: Any = "auto",
        shrinkage: Any = "auto",
        *,
        shared_labels: bool = False,
        max_old_tasks: int | None = 32,
        n_folds: int = 5,
        random_state: Seed = None,
        verbose: bool = False,
    ) -> None:
        self.n_components = n_components
        self.regularization = regularization
        self.own_weight = own_weight
        self.shrinkage = shrinkage
        self.shared_labels = shared_labels
        self.max_old_tasks = max_old_tasks
        self.n_folds = n_folds
        self.random_state = random_state
        self.verbose = verbose

    def _check_labels(self, y: Indices, labels: list[Any], task: Hashable, known: bool) -> None:
        """A task that comes back may bring one class, or one sample."""
        if not (known and labels):
            super()._check_labels(y, labels, task, known)

    def _learn_task(
        self, state: PLDAState, X: Matrix, y: Indices, labels: list[Any], task: Hashable
    ) -> PLDAState:
        """The state after a visit: the dictionary, the task's family, its statistics."""
        chooses = has_pairs(y, labels)  # not with one class or one sample of a known task
        rng = np.random.default_rng(state.seeds(task))
        if chooses and not self._rests(state):
            state = self._moved(state, X, y, labels, task, rng)
        # with which family of the other tasks to share, and how much
        others = state.without(task)
        known = state.tasks.get(task)
        before = None if known is None else (known.moments, known.mean)
        visit = Visit(X=X, codes=y, labels=labels, basis=state.dictionary, before=before)
        new = 1 + max(others.sums(self.shared_labels), default=-1)
        if known is None or chooses:
            choice = self._selection().validate(visit, self._open_families(others), new, rng)
        else:
            choice = Choice(known.family, known.losses, known.at_chance, known.pair_costs)
        # the statistics of the task, all its visits together
        moments, mean = visit.moments()
        memory = TaskMemory(
            number=state.number(task),
            n_visits=1 if known is None else known.n_visits + 1,
            mean=mean,
            moments=moments,
            **choice._asdict(),
        )
        return state.visited(task, memory, self.shared_labels)

    def _rests(self, state: PLDAState) -> bool:
        """Whether a visit leaves the dictionary as it is, because it has moved not long ago."""
        if self.max_old_tasks is None or len(state.dictionary) != self.n_components:
            return False
        return state.rested < len(state.tasks) / self.max_old_tasks

    def _moved(
        self,
        state: PLDAState,
        X: Matrix,
        y: Indices,
        labels: list[Any],
        task: Hashable,
        rng: np.random.Generator,
    ) -> PLDAState:
        """The state in rows that say most of all tasks and of the new samples, eq. (plda-span)."""
        most = self.n_components
        basis = visit_basis(X, y, state.dictionary, most, self.regularization, rng)
        if len(basis) > most:
            A = basis @ state.dictionary.reshape(-1, state.n_features).T  # no rows at first
            known = state.tasks.get(task)
            before = None if known is None else (moved_moments(known.moments, A), known.mean)
            own, _ = Visit(X=X, codes=y, labels=labels, basis=basis, before=before).moments()
            # the task joins its family; one that may choose is alone until it has chosen
            sums = state.without(task).sums(self.shared_labels)
            pools = {f: moved_sums(pool, state.n_features, A) for f, pool in sums.items()}
            family = known.family if known else -1
            if self.own_weight != "auto":  # all tasks are one family
                family = 0
            one = TaskSums.of([own], self.shared_labels)
            pools[family] = pools[family].plus(own) if family in pools else one
            T = leading_span(mean_scatters(pools.values()), self.regularization, most)
            basis = orthonormal_rows(T @ basis)
        elif len(basis) == len(state.dictionary):
            return state  # the samples have no other directions
        return state.in_rows(basis)

    def _open_families(self, state: PLDAState) -> dict[int, TaskSums]:
        """Families that a task may share with: the largest, of those the latest."""
        pools = state.sums(self.shared_labels)
        if self.own_weight != "auto":
            return {family: pool for family, pool in pools.items() if family == 0}
        sharing = {memory.family for memory in state.tasks.values() if not memory.at_chance}
        largest = sorted(sharing, key=lambda family: (-pools[family].size, -family))
        return {family: pools[family] for family in sorted(largest[: self.max_old_tasks])}

    def _selection(self) -> Selection:
        """What validation chooses from."""
        return Selection.among(
            self.own_weight,
            self.shrinkage,
            regularization=self.regularization,
            shared_labels=self.shared_labels,
            n_folds=self.n_folds,
        )

    def _settings(
        self, state: PLDAState, memory: TaskMemory
    ) -> tuple[tuple[float, float], tuple[float, float, float]]:
        """Own weights and shrinkage of a task, which fit its family or itself."""
        return self._selection().settings(memory, _family_of(state, memory))

    def _log_ratio(
        self,
        state: PLDAState,
        scatters: Scatters,
        shrinkage: tuple[float, float, float],
        mean: ArrayLike,
        unit: float,
    ) -> LogRatioMetric:
        """The log-ratio of mixed statistics in the dictionary, eqs. (plda-readout), (plda-cut)."""
        V, psi = class_axes(scatters, self.regularization)
        rows = V.T @ state.dictionary / np.sqrt(unit)
        return LogRatioMetric(mean, rows, shrunken_variances(psi, *shrinkage))

    def task_metric(self, task: Hashable) -> LogRatioMetric:
        """The log-ratio of a task, a `LogRatioMetric` whose matrix is L' W_t L."""
        state = self._known_state(task)
        memory = state.tasks[task]
        weights, shrinkage = self._settings(state, memory)
        shared = state.sums(self.shared_labels)[memory.family].scatters
        mixed = mix_scatters(weights, memory.moments.scatters, shared)
        return self._log_ratio(state, mixed, shrinkage, memory.mean, memory.moments.unit)

    def shared_metric(self, mean: ArrayLike | None = None) -> LogRatioMetric:
        """The log-ratio of a task that has not been learned, a `LogRatioMetric`.

        It has the statistics of the largest family; `mean` (n_features,) is subtracted from
        its samples, by default the mean of the samples of all tasks.
        """
        state = self._state
        if state is None or not state.tasks:
            raise NotFittedError("no task has been learned: call partial_fit(X, y, task=...)")
        if mean is None:
            memories = list(state.tasks.values())
            sizes = [memory.n_samples for memory in memories]
            mean = np.average([memory.mean for memory in memories], axis=0, weights=sizes)
        elif np.shape(mean) != (state.n_features,):
            raise ValueError(
                f"mean has shape {np.shape(mean)}: give {(state.n_features,)}, a number for each"
                " feature"
            )
        pools = state.sums(self.shared_labels)
        largest = max(pools, key=lambda family: pools[family].size)
        family = [memory for memory in state.tasks.values() if memory.family == largest]
        _, shrinkage = self._settings(state, family[0])
        unit = np.mean([memory.moments.unit for memory in family])
        return self._log_ratio(state, pools[largest].scatters, shrinkage, mean, float(unit))

    def _pair_metric(self, task: Hashable) -> LogRatioMetric:
        """The log-ratio with the within-class covariance of eq. (plda-divisor)."""
        now = copy.copy(self)
        metric = now.task_metric(task)
        state = now.state_
        divisor = now._selection().divisor(_family_of(state, state.tasks[task]))
        if divisor == 1:
            return metric
        rows = np.sqrt(divisor) * metric.factor
        return LogRatioMetric(metric.mean, rows, divisor * metric.between)

    def _forget_task(self, state: PLDAState, task: Hashable) -> PLDAState:
        """The state without a task's memory; without any, also without a dictionary."""
        left = state.without(task)
        return left if left.tasks else left.in_rows(np.zeros((0, state.n_features)))

    @classmethod
    def _fields(cls) -> RecordField:
        return STATE_FIELDS

    @property
    def state_(self) -> PLDAState:
        """All that was learned, a `PLDAState`."""
        return self._learned_state("state_")

    @property
    def dictionary_(self) -> Floats:
        """L, orthonormal rows (d, n_features)."""
        return self._learned_state("dictionary_").dictionary

    @property
    def codes_(self) -> dict[Any, Floats]:
        """Task to its code N_t (d, d)."""
        state = self._learned_state("codes_")
        return {u: memory.moments.scatters.within for u, memory in state.tasks.items()}

    @property
    def state_parts_(self) -> dict[str, int]:
        """Bytes kept: dictionary, codes, class means, sums, records."""
        return self._learned_state("state_parts_").nbytes_by_part(self.shared_labels)

    # book/plda.ipynb#references-shrunk-toward-their-class
    def _joined_means(self, state: PLDAState, task: Hashable) -> dict[Any, Floats]:
        """Label to the class mean over a task's family, at the task's mean, eq. (plda-targets)."""
        memory = state.tasks[task]
        joined = state.sums(shared_labels=True)[memory.family].joined
        if joined is None:
            return {}
        means = np.sqrt(memory.moments.unit) * joined.means @ state.dictionary
        return dict(zip(joined.labels, memory.mean + means))

    def class_log_ratios(
        self, X: MatrixLike, references: MatrixLike, y: LabelsLike, *, task: Hashable
    ) -> tuple[NDArray[Any], Floats]:
        """Log-ratios of samples and classes: is a sample of this class, or of any other?

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, n_features)
            Samples.
        references : {array-like, sparse matrix} of shape (m, n_features)
            Samples of the classes, which the learner need not have seen.
        y : array-like of shape (m,)
            Their labels.
        task : hashable
            A known task.

        Returns
        -------
        labels : ndarray of shape (c,)
            By first appearance in `y`.
        log_ratios : ndarray of shape (n, c)

        Notes
        -----
        Derived in chapter 22 (two_covariance), eq. (plda-class).
        """
        metric = self._pair_metric(task)
        for table in (X, references):
            check_columns(self, table)
        samples = check_matrix(X, n_features=metric.n_features, ensure_min_samples=1)
        given = check_matrix(references, "references", metric.n_features, ensure_min_samples=1)
        check_consistent_length(given, y)
        codes, labels = encode_labels(y)
        counts, means = class_means(given, codes)
        ratios = class_log_ratios(
            metric.between, metric.coordinates(samples), metric.coordinates(means), counts
        )
        return labels_array(labels), ratios


# book/plda.ipynb#the-learner
def _family_of(state: PLDAState, memory: TaskMemory) -> list[TaskMemory]:
    """The tasks that share their statistics with a task, and itself."""
    return [other for other in state.tasks.values() if other.family == memory.family]
