# Generated from book/plda.ipynb by tools/tangle.py: edit the chapter.
"""Lifelong probabilistic LDA: second-order statistics of all tasks in one dictionary.

`LifelongPLDA` writes the within-class and between-class scatter of each task in a shared
dictionary, weighs a task's own statistics against those of all tasks, and scores two rows by
the log-ratio of the two-covariance model. No row is kept.
"""

import copy
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg, sparse
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_array, check_consistent_length, check_random_state
from sklearn.utils.extmath import safe_sparse_dot

from lml.fisher import class_means
from lml.initialization import orthonormal_rows
from lml.lifelong import (
    _check_choice,
    _check_classes,
    _check_hashable,
    _check_name,
    _check_number,
    _check_rows,
    _check_seed,
    _check_table,
    _columns,
    _lock,
)
from lml.metrics import _plain
from lml.neighbors import _class_numbers
from lml.penalties import OffDiagonalL1
from lml.plda.model import (
    LogRatioMetric,
    Moments,
    _discriminants,
    _floors,
    _log_ratios,
    _merged,
    _mixed,
    _moments,
    _short,
    pooled_scatters,
    shrunken_variances,
)
from lml.plda.statistics import (
    PLDAState,
    Pool,
    TaskMemory,
    _all_moments,
    _basis,
    _by_family,
    _caught_up,
    _code,
    _common,
    _follow,
    _guesses,
    _Key,
    _less_task,
    _moved_pools,
    _pack,
    _partner_pools,
    _pools,
    _renewed,
    _span,
    _table,
    _union,
    _unpack,
    _waits,
    _with_sums,
    _written,
    whitened_rows,
)
from lml.single_task import TaskMetricsMixin
from lml.state import SavedLearnerMixin
from lml.utils.typing import Floats, Indices, LabelsLike, Matrix, MatrixLike, Seed

__all__ = ["LifelongPLDA"]


# book/plda.ipynb#the-rows-of-a-visit
class _Visit(NamedTuple):
    """Rows of one visit, a basis, and the moments and the mean that they are added to."""

    X: Matrix
    codes: Indices
    labels: list[Any]
    basis: Floats
    before: tuple[Moments, Floats] | None

    def moments(self, rows: NDArray[np.bool_] | None = None) -> tuple[Moments, Floats]:
        """Moments with these rows of the visit, and the mean of the task."""
        X, codes = (self.X, self.codes) if rows is None else (self.X[rows], self.codes[rows])
        present, codes = np.unique(codes, return_inverse=True)
        now, mean = _moments(X, codes, [self.labels[c] for c in present], self.basis)
        if self.before is None:
            return now, mean
        old, old_mean = self.before
        shift = mean - old_mean
        share = now.counts.sum() / (now.counts.sum() + old.counts.sum())
        return _merged(old, now, self.basis @ shift), old_mean + share * shift


# book/plda.ipynb#the-rows-of-a-visit
def _folds(codes: Indices, n_folds: int, rng: np.random.Generator) -> Indices:
    """Number of the fold of each row; every class is spread over the folds."""
    order = rng.permutation(len(codes))
    folds = np.empty(len(codes), dtype=int)
    first = 0
    for code in range(codes.max() + 1):
        rows = order[codes[order] == code]
        folds[rows] = (first + np.arange(len(rows))) % n_folds
        first += len(rows)
    return np.unique(folds, return_inverse=True)[1]


# book/plda.ipynb#the-read-out-and-its-choice
_OWN_WEIGHTS = ((0.25, 0.0), (0.25, 0.25), (0.0, 0.0), (0.5, 0.25), (1.0, 0.25), (1.0, 1.0))
_SHRINKAGES = (
    (0.3, 0.0, 0.0),
    (1.0, 0.0, 0.0),
    (1.0, 1.0, 0.0),
    (1.0, 0.3, 0.0),
    (3.0, 0.3, 0.0),
    (0.3, 0.0, 0.1),
    (0.3, 0.0, 0.3),
    (1.0, 1.0, 0.1),
)


# book/plda.ipynb#the-read-out-and-its-choice
_NEAREST = 5


def _row_losses(
    V: Floats,
    psi: Floats,
    shrinkages: Sequence[Any],
    Q: Floats,
    R: Floats,
    queries: Indices,
    references: Indices,
) -> Floats:
    """Loss (n_shrinkages, n) of queries with coordinates Q among references with R."""
    Q = Q @ V
    R = R @ V
    stranger = queries[:, None] != references
    losses = []
    for shrinkage in shrinkages:
        scores = _log_ratios(shrunken_variances(psi, *shrinkage), Q, R)
        order = np.argsort(-scores, axis=1, kind="stable")
        nearest = np.take_along_axis(stranger, order[:, :_NEAREST], axis=1)
        shares = np.cumsum(nearest, axis=1) / np.arange(1, nearest.shape[1] + 1)
        losses.append(shares[:, ::2].mean(axis=1))
    return np.array(losses)


# book/plda.ipynb#the-read-out-and-its-choice
def _best(table: Floats) -> tuple[int, int]:
    """Places of the best weights and shrinkage: the shrinkage by its mean over weights."""
    j = table.mean(axis=0).argmin()
    return int(table[:, j].argmin()), int(j)


# book/plda.ipynb#the-read-out-and-its-choice
def _lifted(omega: Floats, least: float = 1e-3) -> Floats:
    """A symmetric matrix with its smallest eigenvalue lifted to `least`."""
    smallest = linalg.eigvalsh(omega, subset_by_index=[0, 0])[0]
    return omega + max(least - smallest, 0.0) * np.eye(len(omega))


# book/plda.ipynb#with-whom-to-share-families
class _Part(NamedTuple):
    """Rows of a visit that are held out, and the task's moments and mean without them."""

    held: NDArray[np.bool_]
    own: Moments
    mean: Floats


_Rule: TypeAlias = tuple[Floats, Floats]


def _places_among(labels: Iterable[Any], wanted: Iterable[Any]) -> Indices:
    """Place of each wanted label, -1 where it is not; labels are found by their hashes."""
    place = {label: number for number, label in enumerate(labels)}
    return np.array([place.get(label, -1) for label in wanted], dtype=np.intp)


def _mean_rule(m: Moments, labels: Sequence[Any], regularization: float) -> _Rule:
    """Matrix and offset of the log-likelihoods of classes, rows in the unit of their task."""
    means = m.means[_places_among(m.labels, labels)] / np.sqrt(m.unit)
    sigma = m.scatter + regularization * np.eye(len(m.within))
    A = linalg.cho_solve(linalg.cho_factor(sigma, check_finite=False), means.T, check_finite=False)
    return A, -0.5 * np.sum(means.T * A, axis=0)


# book/plda.ipynb#with-whom-to-share-families
def _answers(
    visit: "_Visit", part: _Part, rule: _Rule, labels: Sequence[Any], regularization: float
) -> Indices:
    """Classes (3, n) of the held-out rows with such labels: true, by own means, by a rule."""
    codes = _places_among(labels, visit.labels)[visit.codes]
    rows = part.held & (codes >= 0)
    Z = safe_sparse_dot(visit.X[rows], visit.basis.T, dense_output=True)
    Z = (Z - visit.basis @ part.mean) / np.sqrt(part.own.unit)
    A, b = _mean_rule(part.own, part.own.labels, regularization)
    names = _places_among(labels, part.own.labels)
    own = names[np.argmax(Z @ A + b, axis=1)]
    given = np.argmax(Z @ rule[0] + rule[1], axis=1)
    return np.array([codes[rows], own, given])


# book/plda.ipynb#with-whom-to-share-families
def _agree(visit: "_Visit", parts: Sequence[_Part], joint: Moments, regularization: float) -> bool:
    """Whether a label means the same in a visited task as in other tasks together."""
    known = frozenset(joint.labels)
    labels = [label for label in visit.labels if label in known]
    if len(labels) < 2:
        return True
    rest = _mean_rule(joint, labels, regularization), labels, regularization
    true, own, given = np.concatenate([_answers(visit, p, *rest) for p in parts], axis=1)
    shares = [np.bincount(a, minlength=len(labels)) / len(true) for a in (true, given)]
    own_share, share = (np.mean(answer == true) for answer in (own, given))
    return bool(share - (h := shares[0] @ shares[1]) > max(own_share - h, 0.0) / 2)


# book/plda.ipynb#with-whom-to-share-families
def _log_likelihoods(sigma: Floats, R: Floats) -> Floats:
    """Of each row of R (n, k) under N(0, c sigma), c that of their mean square; no constant."""
    size = np.mean(R * R) * len(sigma) / np.trace(sigma)
    lower = np.sqrt(size) * linalg.cholesky(sigma, lower=True, check_finite=False)
    half = linalg.solve_triangular(lower, R.T, lower=True, check_finite=False)
    logs: Floats = -np.sum(np.log(np.diag(lower))) - 0.5 * np.sum(half * half, axis=0)
    return logs


# book/plda.ipynb#with-whom-to-share-families
def _no_worse(gains: Floats) -> bool:
    """Whether a sum is not below 0 by more than two standard errors."""
    return len(gains) == 0 or bool(gains.sum() >= -2 * np.sqrt(len(gains)) * gains.std())


def _alike(visit: "_Visit", parts: Sequence[_Part], within: Floats, regularization: float) -> bool:
    """Whether others' scatter says no less of held-out rows than none, or than the task's own."""
    ridge = regularization * np.eye(len(within))
    found = [np.zeros((3, 0))]
    for held, own, mean in parts:
        classes = _places_among(own.labels, visit.labels)[visit.codes]
        rows = held & (classes >= 0)
        Z = safe_sparse_dot(visit.X[rows], visit.basis.T, dense_output=True)
        R = Z - visit.basis @ mean - own.means[classes[rows]]
        if len(R) and np.mean(R * R) > 1e-12 * own.unit:
            scatters = within + ridge, own.scatter + ridge, np.eye(len(within))
            found.append(np.array([_log_likelihoods(S, R) for S in scatters]))
    theirs, *others = np.concatenate(found, axis=1)
    return any(_no_worse(theirs - other) for other in others)


# book/plda.ipynb#with-whom-to-share-families
def _partners(
    others: Mapping[Hashable, TaskMemory], moments: Mapping[Hashable, Moments], may_leave: bool
) -> tuple[dict[int, list[Moments]], int]:
    """Families that a task can share with, tasks that only guess left out; the next number."""
    groups: dict[int, list[Moments]] = {}
    for u, m in others.items():
        if not (may_leave and m.guesses):
            groups.setdefault(m.family if may_leave else 0, []).append(moments[u])
    return groups, 1 + max((m.family for m in others.values()), default=-1)


# book/plda.ipynb#with-whom-to-share-families
def _joined(
    losses: Mapping[Any, Floats],
    groups: Mapping[int, Any],
    may_leave: bool,
    new: int | None = None,
    counts: Indices | None = None,
    doubt: float = 2.0,
) -> tuple[int, Floats]:
    """The family with the smallest loss, or a new one where sharing is worse beyond noise.

    A new one also where nothing is better than guessing. Where a task may leave, the last weights
    are those of being alone.
    """
    alone = losses[None]
    new = 1 + max(groups, default=-1) if new is None else new
    if not groups:
        return new if may_leave else 0, alone.mean(axis=2)
    sharing = {f: losses[f][:-1] if may_leave else losses[f] for f in groups}
    tables = {f: part.mean(axis=2) for f, part in sharing.items()}
    best = min(groups, key=lambda f: tables[f][_best(tables[f])])
    shared = sharing[best][_best(tables[best])]
    own = alone[_best(alone.mean(axis=2))]
    gain = shared - own  # of being alone, row by row
    leaves = gain.mean() > doubt * gain.std() / np.sqrt(len(gain))
    if counts is not None:
        leaves |= _guesses(min(tables[best].min(), own.mean()), counts)
    return (new, alone.mean(axis=2)) if may_leave and leaves else (best, losses[best].mean(axis=2))


# book/plda.ipynb#the-learner
class LifelongPLDA(SavedLearnerMixin, TaskMetricsMixin, BaseEstimator):
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
    Derived in chapter 21 (two_covariance), eq. (plda-ratio); chapter 22 (plda_memory), eqs.
    (plda-code) and (plda-guess); chapter 23 (plda), eqs. (plda-readout), (plda-validation),
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
    _state: PLDAState | None = None
    # book/plda.ipynb#save-and-load
    _kind = "LifelongPLDA"
    _versions = (1, 2, 3)

    # book/plda.ipynb#the-learner
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

    def __sklearn_is_fitted__(self) -> bool:
        return self._state is not None and bool(self._state.tasks)

    def _snapshot(self) -> Self:
        return copy.copy(self)

    def _known(self, task: Hashable) -> tuple[PLDAState, TaskMemory]:
        """The state, and the memory of a task that must be known."""
        state = self._learned()
        _check_hashable(task, "task")
        memories = dict(state.tasks)
        if task not in memories:
            raise ValueError(f"task {task!r} is not known; known tasks: {list(memories)}")
        return state, state.current(memories[task])

    def _learned(self) -> PLDAState:
        """The state, if there is a task in it."""
        state = self._state
        if state is None or not state.tasks:
            raise NotFittedError("no task has been learned: call partial_fit(X, y, task=...)")
        return state

    def _check_task(
        self, X: MatrixLike, y: LabelsLike, task: Hashable
    ) -> tuple[Matrix, Indices, list[Any]]:
        """Rows, class numbers and labels of one visit, or an error that says what is wrong."""
        _check_name(task, "task")
        rows = _check_rows(X, getattr(self, "n_features_in_", None))
        self._check_columns(X)
        check_consistent_length(rows, y)
        codes, labels = _class_numbers(y)
        return rows, codes, labels

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
        for task, own in places.items():
            fresh.partial_fit(rows[own], [labels[row] for row in own], task=task)
        with _lock(self):
            self._state = replace(fresh.state_, columns=columns)
        return self

    def _has(self, name: str) -> PLDAState:
        """The state, if there is one."""
        if self._state is None:
            raise NotFittedError(
                f"there is no {name} before a task: call partial_fit(X, y, task=...)"
            )
        return self._state

    @property
    def state_(self) -> PLDAState:
        """All that was learned, a `PLDAState`."""
        return self._has("state_")

    @property
    def tasks_(self) -> dict[Hashable, TaskMemory]:
        """Task to its `TaskMemory`, in the order of first appearance; a copy of the table."""
        state = self._has("tasks_")
        return {task: state.current(memory) for task, memory in state.tasks}

    @property
    def dictionary_(self) -> Floats:
        """L, (d, n_features)."""
        return self._has("dictionary_").dictionary

    @property
    def codes_(self) -> dict[Hashable, Floats]:
        """Task to its code N_t (d, d), thresholded."""
        state = self._has("codes_")
        return {task: self._code(state.current(memory)) for task, memory in state.tasks}

    @property
    def n_features_in_(self) -> int:
        """Number of features."""
        return self._has("n_features_in_").dictionary.shape[1]

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        """Names of the columns; missing when the first task had none."""
        columns = self._has("feature_names_in_").columns
        if columns is None:
            raise AttributeError("the rows of the first task had no names of columns")
        return np.array(columns, dtype=object)

    def _check_parameters(self) -> None:
        _check_number("n_components", self.n_components, 1, whole=True)
        _check_number("n_folds", self.n_folds, 2, whole=True)
        if self.max_old_tasks is not None:
            _check_number("max_old_tasks", self.max_old_tasks, 1, whole=True)
        _check_number("regularization", self.regularization, 0)
        _check_number("code_penalty", self.code_penalty, 0)
        if self.regularization == 0:
            raise ValueError(f"regularization={self.regularization!r}: give more than 0")
        _check_choice("revisit", self.revisit, ("add", "replace"))
        for name in ("shared_labels", "freeze"):
            if not isinstance(getattr(self, name), bool | np.bool_):
                raise TypeError(f"{name}={getattr(self, name)!r}: give True or False")
        self._check_numbers()

    def _check_numbers(self) -> None:
        for name, most in (("own_weight", 1.0), ("shrinkage", np.inf)):
            for part in _numbers(name, getattr(self, name)):
                _check_number(name, part, 0)
                if part > most:
                    raise ValueError(f"{name}={getattr(self, name)!r}: give at most {most}")

    # book/plda.ipynb#a-visit
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
            self._state = self._visited(X, y, task)
        return self

    def _visited(self, X: MatrixLike, y: LabelsLike, task: Hashable) -> PLDAState:
        """The state after a visit."""
        self._check_parameters()
        _check_seed(self.random_state)
        checked = self._check_task(X, y, task)
        old = self._state
        _check_classes(checked[1], task)
        columns = _columns(X) if old is None else old.columns
        return replace(self._next_state(*checked, task), columns=columns)

    def _root(self) -> int:
        """The seed of all visits."""
        if self._state is not None:
            return self._state.root
        if self.random_state is None:
            return int(np.random.SeedSequence().generate_state(1)[0])
        return int(copy.deepcopy(check_random_state(self.random_state)).randint(2**31))

    def _next_state(
        self, X: Matrix, codes: Indices, labels: list[Any], task: Hashable
    ) -> PLDAState:
        """The state after a visit, a new object."""
        old = self._state
        root = self._root()
        now = (known := dict(old.tasks) if old else {}).get(task)
        number, count = (now.number, now.n_visits) if now else (_next_number(known), 0)
        if made := self._flat_state(X, codes, labels, task, number, count):
            return made
        basis, moments = self._remembered(X, codes, old, rng := _generator(root, number, count))
        before = (moments[task], now.mean) if now else None
        visit = _Visit(X, codes, labels, basis, before if self.revisit == "add" else None)
        others = {u: m for u, m in known.items() if m.number != number}
        family, losses = self._validated(visit, partial(_partners, others, moments), rng)
        moments[task], mean = visit.moments()
        facts = dict(
            number=number, family=family, n_visits=count + 1, mean=mean, **_judged(losses, codes)
        )
        return self._assembled(basis, moments, known, task, facts, root)

    def _remembered(
        self, X: Matrix, codes: Indices, old: PLDAState | None, rng: np.random.Generator
    ) -> tuple[Floats, dict[Hashable, Moments]]:
        """A basis for the rows of a visit and the old tasks, and the moments of these in it."""
        d = self.n_components
        rho = self.regularization
        if old is None or not old.tasks:
            return _basis(X, codes, None, d, rho, rng), {}
        basis = _basis(X, codes, old.dictionary, d, rho, rng)
        return basis, _all_moments(old, dict(old.tasks), basis)

    def _assembled(
        self,
        basis: Floats,
        moments: dict[Hashable, Moments],
        known: Mapping[Hashable, TaskMemory],
        task: Hashable,
        facts: Mapping[str, Any],
        root: int,
    ) -> PLDAState:
        """The state of tasks with given moments in a basis."""
        rho = self.regularization
        members: dict[int, list[Moments]] = {}
        records = {u: vars(m) for u, m in known.items()}
        records |= {task: {"frozen": None, **facts}}
        for u, m in moments.items():
            members.setdefault(records[u]["family"], []).append(m)
        pooled = {f: pooled_scatters(group, self.shared_labels) for f, group in members.items()}
        within, spread = self._overall(list(moments.values()), members, pooled)
        T = whitened_rows(within, spread, rho, self.n_components)
        written = {u: {**records[u], **_written(m, T, rho)} for u, m in moments.items()}
        tasks = {u: TaskMemory(**record) for u, record in written.items()}
        families = {f: (_code(S, T, rho), _short(F @ T.T)) for f, (S, F) in pooled.items()}
        return self._kept(PLDAState(T @ basis, tuple(tasks.items()), families, rho, root), task)

    def _overall(
        self,
        moments: Sequence[Moments],
        members: Mapping[int, Sequence[Moments]],
        pooled: Mapping[int, tuple[Floats, Floats]],
    ) -> tuple[Floats, Floats]:
        """Scatters of all tasks, for the dictionary; labels are joined within a family only."""
        if not self.shared_labels:
            return pooled_scatters(moments)
        shares = [len(group) / len(moments) for group in members.values()]
        parts = list(zip(shares, pooled.values(), strict=True))
        spread = np.concatenate([np.sqrt(share) * F for share, (_, F) in parts])
        return np.sum([share * S for share, (S, _) in parts], axis=0), spread

    def _kept(self, state: PLDAState, task: Hashable) -> PLDAState:
        """The state with sums of many tasks, and a read-out where answers must not change."""
        if self._beyond(len(state.tasks)) and not state.pools:
            state = replace(state, pools=_pools(state, self.shared_labels))
        if not self.freeze:
            return state
        tasks = dict(state.tasks)
        if task in tasks:
            tasks[task] = replace(tasks[task], frozen=self._read(state, tasks[task]))
        return replace(state, tasks=tuple(tasks.items()))

    # book/plda.ipynb#a-visit-among-many-tasks
    def _beyond(self, n_others: int) -> bool:
        """Whether these are more tasks than a visit takes into account one by one."""
        return self.max_old_tasks is not None and n_others > self.max_old_tasks

    def _sums(self, n_others: int) -> bool:
        """Whether the state has sums that a visit or its end can go on with."""
        old = self._state
        if old is None or not old.pools or not self._beyond(n_others):
            return False
        keyed = old.pools[None].joined is not None
        return keyed == self.shared_labels and old.regularization == self.regularization

    def _start(
        self, X: Matrix, codes: Indices, task: Hashable, rng: np.random.Generator
    ) -> "_Start":
        """A basis for a visit, and the sums of the other tasks in it."""
        old = self.state_
        pools = _less_task(old, task)
        Q = _span(old.dictionary)
        if old.move is not None:  # codes wait
            return _Start(Q, pools, False)
        d = self.n_components
        rho = self.regularization
        basis = _basis(X, codes, old.dictionary, d, rho, rng)
        return _Start(basis, _moved_pools(pools, Q, basis), True)

    def _next_dictionary(self, start: "_Start", own: Moments, family: int) -> Floats:
        """The dictionary after a visit: one that fits all tasks, or the one that rests."""
        if not start.moves:
            return self.state_.dictionary
        whole = start.pools[None].scatters(own)
        within, spread = _by_family(start.pools, own, family) if self.shared_labels else whole
        return whitened_rows(within, spread, self.regularization, self.n_components) @ start.basis

    def _flat_state(
        self, X: Matrix, codes: Indices, labels: list[Any], task: Hashable, number: int, count: int
    ) -> PLDAState | None:
        """The state after a visit that goes on with sums; None where it cannot."""
        old = self._state
        now = dict(old.tasks).get(task) if old else None
        if old is None or not self._sums(len(old.tasks) - (now is not None)):
            return None
        start = self._start(X, codes, task, rng := _generator(old.root, number, count))
        before = (_all_moments(old, {task: now}, start.basis)[task], now.mean) if now else None
        before = before if self.revisit == "add" else None
        visit = _Visit(X, codes, labels, start.basis, before)
        partners = partial(_partner_pools, start.pools, self.max_old_tasks)
        family, losses = self._validated(visit, partners, rng)
        moments, mean = visit.moments()
        facts = dict(
            number=number, family=family, n_visits=count + 1, mean=mean, **_judged(losses, codes)
        )
        return self._added(start, moments, task, facts)

    def _added(
        self, start: "_Start", moments: Moments, task: Hashable, facts: dict[str, Any]
    ) -> PLDAState | None:
        """The state with a visited task; None if the dictionary has another number of rows."""
        old = self.state_
        rho = self.regularization
        L = self._next_dictionary(start, moments, facts["family"])
        if len(L) != len(old.dictionary):
            return None
        moves = old.moves + start.moves
        memory = TaskMemory(**facts, **_written(moments, L @ start.basis.T, rho, moves))
        move = _follow(old.dictionary, L) if start.moves else old.move
        tasks = _caught_up({**dict(old.tasks), task: memory}, move, moves, self.max_old_tasks, rho)
        move = move if _waits(tasks, moves) else None
        pools = _moved_pools(start.pools, start.basis, _span(L))
        state = replace(
            old,
            dictionary=L,
            tasks=tuple(tasks.items()),
            families={},
            pools=pools,
            move=move,
            moves=moves,
        )
        return self._kept(_with_sums(state, task, memory, self.shared_labels), task)

    # book/plda.ipynb#validation-within-a-visit
    def _candidates(self) -> tuple[Any, ...]:
        """Own weights and shrinkages to choose from."""
        names = {"own_weight": _OWN_WEIGHTS, "shrinkage": _SHRINKAGES}
        given = {name: tuple(map(float, _numbers(name, getattr(self, name)))) for name in names}
        return tuple((given[name],) if given[name] else known for name, known in names.items())

    def _validated(
        self,
        visit: "_Visit",
        partners: Callable[[bool], tuple[Mapping[int, Any], int]],
        rng: np.random.Generator,
    ) -> tuple[int, Floats]:
        """The family of a visited task, and its losses for each own weight and shrinkage."""
        weights, shrinkages = self._candidates()
        if len(weights) == len(shrinkages) == 1:
            return 0, np.zeros((1, 1))
        groups, new = partners(len(weights) > 1)
        folds = _folds(visit.codes, self.n_folds, rng)
        parts = [_Part(folds == f, *visit.moments(folds != f)) for f in range(folds.max() + 1)]
        if len(weights) > 1:
            groups = {f: group for f, group in groups.items() if self._fits(visit, parts, group)}
        losses = self._fold_losses(visit, parts, groups, weights, shrinkages)
        doubt = 1.0 if self.shared_labels else 2.0
        return _joined(losses, groups, len(weights) > 1, new, np.bincount(visit.codes), doubt)

    def _fits(self, visit: "_Visit", parts: "Sequence[_Part]", group: Any) -> bool:
        """Whether a family has anything to say about a visited task."""
        rho = self.regularization
        pooled = isinstance(group, Pool)
        within = group.within / group.size if pooled else pooled_scatters(group)[0]
        return _alike(visit, parts, within, rho) and not (
            self.shared_labels and not _agree(visit, parts, _union(group), rho)
        )

    def _fold_losses(
        self,
        visit: "_Visit",
        parts: "Sequence[_Part]",
        groups: Mapping[int, Any],
        weights: Any,
        shrinkages: Any,
    ) -> dict[Any, Floats]:
        """Losses (n_weights, n_shrinkages, n) of all rows, held out in turn, for each family."""
        found: list[dict[Any, list[Floats]]] = []
        images = safe_sparse_dot(visit.X, visit.basis.T, dense_output=True)
        for held, own, mean in parts:
            centred = images - visit.basis @ mean
            codes = visit.codes
            rows = centred[held], centred[~held], codes[held], codes[~held]
            found.append({None: [self._losses(own.scatter, own.spread, shrinkages, rows)]})
            for f, group in groups.items():
                found[-1][f] = self._weighed(
                    own, group, weights, shrinkages, rows, *found[-1][None]
                )
        return {f: np.concatenate([part[f] for part in found], axis=2) for f in found[0]}

    def _weighed(
        self, own: Moments, group: Any, weights: Any, shrinkages: Any, rows: "_Split", alone: Floats
    ) -> list[Floats]:
        """Losses (n_shrinkages, n) of held-out rows for each pair of own weights."""
        if set(weights) == {(1.0, 1.0)}:
            return [alone] * len(weights)
        shared = _with_own(group, own, self.shared_labels)
        plain = (own.scatter, own.spread)
        return [
            alone if w == (1.0, 1.0) else self._losses(*_mixed(w, plain, shared), shrinkages, rows)
            for w in weights
        ]

    def _losses(self, S: Floats, F: Floats, shrinkages: Any, rows: "_Split") -> Floats:
        """Losses (n_shrinkages, n) of held-out rows under a within scatter and a spread."""
        omega = S + self.regularization * np.eye(len(S))
        V, psi = _discriminants(omega, F, complete=_floors(shrinkages))
        return _row_losses(V, psi, shrinkages, *rows)

    # book/plda.ipynb#reading-a-task
    def _knobs(self, state: PLDAState, memory: TaskMemory) -> tuple[Any, Any]:
        """Own weight and shrinkage of a task: those of its family unless its own are clearly better."""
        weights, shrinkages = self._candidates()
        shape = len(weights), len(shrinkages)
        own = _table(memory.losses, shape)
        common = _best(_common(state, memory.family, shape))
        best = _best(own)
        noise = np.sqrt((own[common] + own[best]) / memory.n_rows)
        i, j = best if own[common] - own[best] > noise else common
        return weights[i], shrinkages[j]

    def _code(self, memory: TaskMemory) -> Floats:
        """N_t with its threshold."""
        return OffDiagonalL1(self.code_penalty).prox(memory.code)

    def _read(self, state: PLDAState, memory: TaskMemory) -> LogRatioMetric:
        """The log-ratio of a task in a state."""
        weight, shrinkage = self._knobs(state, memory)
        own = self._code(memory), memory.spread
        omega, F = _mixed(weight, own, state.shared(memory.family))
        V, psi = _discriminants(_lifted(omega), F, complete=_floors([shrinkage]))
        p = shrunken_variances(psi, *shrinkage)
        return LogRatioMetric(memory.mean, V.T @ state.dictionary / np.sqrt(memory.unit), p)

    def task_metric(self, task: Hashable) -> LogRatioMetric:
        """The log-ratio of a task, a `LogRatioMetric` whose matrix is L' W_t L."""
        state, memory = self._known(task)
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
        Derived in chapter 21 (two_covariance), eq. (plda-stretch).
        """
        now = self._snapshot()
        metric = now.task_metric(task)
        now._check_columns(X)
        X = check_array(_plain(X), accept_sparse="csr", dtype=np.float64, ensure_all_finite=False)
        if role is None:
            return metric.embed(X)
        _check_choice("role", role, ("query", "reference"))
        return metric.map_rows(X, role)

    # book/plda.ipynb#references-that-know-their-class
    def _targets(
        self, X: Matrix, codes: Indices, labels: list[Any], task: Hashable, common: float
    ) -> Floats:
        """What the rows of each class are pulled towards, (c, n_features)."""
        state, memory = self._known(task)
        means = class_means(X, codes)[1]
        joined = _joined_means(state, memory) if common else {}
        for place, label in enumerate(labels):
            if label in joined:
                theirs = memory.mean + joined[label]
                means[place] = (1 - common) * means[place] + common * theirs
        return means

    def enrol(
        self,
        X: MatrixLike,
        y: LabelsLike,
        *,
        task: Hashable,
        pull: float = 0.5,
        common: float = 0.0,
    ) -> Floats:
        """Reference rows moved towards the mean of their class, for k nearest neighbours.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, n_features)
        y : array-like of shape (n,)
            Labels.
        task : hashable
            A known task.
        pull : float in [0, 1], default=0.5
            0 leaves the rows as they are, 1 puts class means in their place.
        common : float in [0, 1], default=0.0
            Weight, in these means, of those of all tasks that the task shares with. More than 0
            needs ``shared_labels=True``.

        Returns
        -------
        ndarray of shape (n, n_features)

        Raises
        ------
        ValueError, TypeError
            If the rows, the labels or the task cannot be used, or a weight is not in [0, 1].

        Notes
        -----
        Derived in chapter 23 (plda), eqs. (plda-enrol) and (plda-targets).
        """
        for name, value in (("pull", pull), ("common", common)):
            _check_number(name, value, 0)
            if value > 1:
                raise ValueError(f"{name}={value!r}: give at most 1")
        if common and not self.shared_labels:
            raise ValueError(
                f"common={common!r} needs shared_labels=True: labels of other tasks mean others"
            )
        self._known(task)
        X, codes, labels = self._check_task(X, y, task)
        targets = self._targets(X, codes, labels, task, common)[codes]
        return (1 - pull) * (X.toarray() if sparse.issparse(X) else X) + pull * targets

    # book/plda.ipynb#a-task-that-has-not-come-and-one-that-is-forgotten
    def shared_metric(self, mean: ArrayLike | None = None) -> LogRatioMetric:
        """The log-ratio of a task that has not been learned, a `LogRatioMetric`.

        It has the statistics of the largest family; `mean` (n_features,) is subtracted from
        its rows, by default the mean of the rows of all tasks.
        """
        state = self._learned()
        memories = [m for _, m in state.tasks]
        families = [m.family for m in memories]
        total = sum(m.n_rows for m in memories)
        member = memories[families.index(Counter(families).most_common(1)[0][0])]
        mean = sum(m.n_rows / total * m.mean for m in memories) if mean is None else mean
        if np.shape(mean) != (wanted := state.dictionary.shape[1:]):
            raise ValueError(
                f"mean has shape {np.shape(mean)}: give {wanted}, a number for each feature"
            )
        omega, spread = state.shared(member.family)
        shrinkage = self._knobs(state, member)[1]
        V, psi = _discriminants(omega, spread, complete=_floors([shrinkage]))
        unit = np.mean([m.unit for m in memories if m.family == member.family])
        return LogRatioMetric(
            mean, V.T @ state.dictionary / np.sqrt(unit), shrunken_variances(psi, *shrinkage)
        )

    def forget(self, task: Hashable) -> Self:
        """Drop a task's memory; the others share without it."""
        with _lock(self):
            self._state = self._without(task)
        return self

    def _without(self, task: Hashable) -> PLDAState:
        old, memory = self._known(task)
        left = {u: m for u, m in old.tasks if m.number != memory.number}
        if not left:
            blank: dict[str, Any] = dict(tasks=(), families={}, pools={}, move=None, moves=0)
            return replace(old, dictionary=old.dictionary[:0].copy(), **blank)
        if self._sums(len(left)):
            kept = tuple(left.items())
            move = old.move if _waits(left, old.moves) else None
            return replace(old, tasks=kept, families={}, pools=_less_task(old, task), move=move)
        basis = orthonormal_rows(old.dictionary)
        moments = _all_moments(old, left, basis)
        made = self._assembled(basis, moments, left, object(), {}, old.root)  # nobody's visit
        return replace(made, columns=old.columns)

    # book/plda.ipynb#save-and-load
    def _packed(self, arrays: dict[str, Any]) -> tuple[int, Any]:
        return 3, None if self._state is None else _pack(self._state, arrays)

    @classmethod
    def _unpacked(
        cls, version: int, form: Any, arrays: dict[str, NDArray[Any]]
    ) -> PLDAState | None:
        form = _renewed(form) if version < 3 else form
        return None if form is None else _unpack(form, arrays)

    # book/plda.ipynb#what-is-kept
    @property
    def state_parts_(self) -> dict[str, int]:
        """Bytes kept: dictionary, codes, class means, shared statistics, sums, move, records."""
        state = self._has("state_parts_")
        memories = [m for _, m in state.tasks]
        families = state.families.values()
        return {
            "dictionary": state.dictionary.nbytes,
            "codes": sum(m.code.nbytes for m in memories),
            "class means": sum(m.class_means.nbytes + m.mean.nbytes for m in memories),
            "shared": sum(part.nbytes for pair in families for part in pair),
            "sums": sum(part.nbytes for pool in state.pools.values() for part in pool.arrays),
            "move": sum(part.nbytes for part in (state.move or ())[:3])
            + (8 * len(memories) if state.pools else 0),
            "frozen": sum(0 if m.frozen is None else m.frozen.nbytes for m in memories),
            "records": sum(8 * (5 + 2 * len(m.counts)) + m.losses.nbytes for m in memories),
        }


# book/plda.ipynb#the-learner
def _numbers(name: str, value: Any) -> tuple[Any, ...]:
    """The numbers of a parameter, none for "auto"; one weight stands for both."""
    if isinstance(value, str):
        _check_choice(name, value, ("auto",))
        return ()
    wanted = 2 if name == "own_weight" else 3
    many = isinstance(value, (tuple, list))
    if many and len(value) == wanted:
        return tuple(value)
    if many or name == "shrinkage":
        raise ValueError(f"{name}={value!r}: give {wanted} numbers or 'auto'")
    return value, value


# book/plda.ipynb#a-visit
def _generator(*seeds: int) -> np.random.Generator:
    """The generator of one visit."""
    return np.random.default_rng(seeds)


def _next_number(known: Mapping[Hashable, TaskMemory]) -> int:
    """The number of a task that is new."""
    return 1 + max((m.number for m in known.values()), default=-1)


def _judged(losses: Floats, codes: Indices) -> dict[str, Any]:
    """The losses of a visit, and whether they are a guess by its own rows."""
    return {"losses": losses, "guessed": _guesses(float(losses.min()), np.bincount(codes))}


# book/plda.ipynb#a-visit-among-many-tasks
class _Start(NamedTuple):
    """What a visit among many tasks begins with."""

    basis: Floats
    pools: dict[_Key, Pool]  # of the other tasks, in the basis
    moves: bool  # whether the dictionary does


# book/plda.ipynb#validation-within-a-visit
def _with_own(group: Any, own: Moments, shared_labels: bool) -> tuple[Floats, Floats]:
    """Pooled scatters of a family and of a task that is to join it."""
    if isinstance(group, Pool):
        return group.scatters(own, shared_labels)
    return pooled_scatters([*group, own], shared_labels)


_Split: TypeAlias = tuple[Floats, Floats, Indices, Indices]


# book/plda.ipynb#references-that-know-their-class
def _joined_means(state: PLDAState, memory: TaskMemory) -> dict[Any, Floats]:
    """Mean of each class over the tasks of a family, every task's mean at 0, in the input space."""
    sums: dict[Any, Any] = {}
    counts: dict[Any, int] = {}
    for m in (state.current(m) for _, m in state.tasks if m.family == memory.family):
        for label, n, mean in zip(m.classes, m.counts.tolist(), m.class_means, strict=True):
            sums[label] = sums.get(label, 0.0) + n * np.sqrt(m.scale) * mean
            counts[label] = counts.get(label, 0) + n
    Q, R = linalg.qr(state.dictionary.T, mode="economic")  # L = R'Q': what L sees of a mean
    images = np.array([total / counts[label] for label, total in sums.items()])
    rows = linalg.solve_triangular(R, images.T, trans=1).T @ Q.T
    return dict(zip(sums, rows, strict=True))
