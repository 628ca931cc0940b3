# Generated from book/plda_memory.ipynb by tools/tangle.py: edit the chapter.
"""What lifelong PLDA keeps of its tasks: statistics in a dictionary of orthonormal rows.

`TaskMemory` is one task, `PLDAState` all that was learned. No sample is kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from scipy import linalg

from lml.base import COMMON_FIELDS, LABELS, LearnerState, Record
from lml.fisher import fisher_directions
from lml.initialization import orthonormal_rows, residual_directions
from lml.plda.model import Moments, Scatters, TaskSums
from lml.state import (
    LARGEST,
    LARGEST_COUNT,
    LARGEST_MEAN,
    ArrayField,
    RecordField,
    SizeField,
    TableField,
    ValueField,
    expect,
)
from lml.utils.linalg import is_symmetric
from lml.utils.typing import Floats, Indices, Matrix
from lml.utils.validation import Rule, flag, real, whole

__all__ = [
    "STATE_FIELDS",
    "PLDAState",
    "TaskMemory",
    "leading_span",
    "mean_scatters",
    "moved_moments",
    "moved_sums",
    "visit_basis",
]


# book/plda_memory.ipynb#the-dictionary-and-the-codes
def leading_span(scatters: Scatters, regularization: float, n_components: int) -> Floats:
    """Orthonormal rows (n_components, k) of the span that says most of all tasks.

    Half of it are the best discriminants, as far as class means differ; the others are the
    leading principal directions that are left. Derived in chapter 23 (plda_memory), eq.
    (plda-span).
    """
    k = len(scatters.within)
    omega = scatters.within + regularization * np.eye(k)
    e, U = linalg.eigh(scatters.between, omega)
    n_best = min(max(1, n_components // 2), int(np.sum(e > 1e-8 * e[-1])))
    best = orthonormal_rows(U.T[::-1][:n_best])
    outside = np.eye(k) - best.T @ best
    _, principal = linalg.eigh(outside @ (scatters.within + scatters.between) @ outside)
    return np.concatenate([best, principal.T[::-1][: n_components - n_best]])


# book/plda_memory.ipynb#when-the-dictionary-moves
def moved_moments(moments: Moments, A: Floats) -> Moments:
    """Moments in other orthonormal rows; A (m, k) are their inner products with the present ones.

    Derived in chapter 23 (plda_memory), eqs. (plda-tail) and (plda-move).
    """
    within = _moved_within(moments.within, moments.trace, moments.n_features, A)
    return replace(moments, means=moments.means @ A.T, within=within)


def moved_sums(sums: TaskSums, n_features: int, A: Floats) -> TaskSums:
    """Sums over tasks in other orthonormal rows, whose span holds that of the present ones."""
    total = Scatters(
        within=_moved_within(sums.total.within, sums.trace, n_features, A),
        between=A @ sums.total.between @ A.T,
        noise=sums.total.noise,
    )
    joined = None if sums.joined is None else moved_moments(sums.joined, A)
    return sums._replace(total=total, joined=joined)


def _moved_within(within: Floats, trace: float, n_features: int, A: Floats) -> Floats:
    """A scatter with such a trace in the input space, in other rows, eq. (plda-move)."""
    n_outside = max(n_features - len(within), 1)
    tail = max(trace - np.trace(within), 0.0) / n_outside
    moved = A @ within @ A.T + tail * (np.eye(len(A)) - A @ A.T)
    return (moved + moved.T) / 2


# book/plda_memory.ipynb#when-the-dictionary-moves
def _extended(Q: Floats, rows: Floats) -> Floats:
    """Orthonormal rows: those of Q as they are, then the parts of other rows outside."""
    rows = rows[np.any(rows, axis=1)]
    for _ in range(2):  # once more for what rounding has left
        rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        rows = rows - (rows @ Q.T) @ Q
        rows = rows[np.linalg.norm(rows, axis=1) > 1e-8]
    return np.concatenate([Q, orthonormal_rows(rows)])


def visit_basis(
    X: Matrix,
    codes: Indices,
    dictionary: Floats,
    n_components: int,
    regularization: float,
    rng: np.random.Generator,
) -> Floats:
    """Orthonormal rows: those of the dictionary, then the leading directions of new samples.

    Parameters
    ----------
    X : {ndarray, csr_array} of shape (n, n_features)
        The new samples.
    codes : ndarray of int, shape (n,)
        The class of each.
    dictionary : ndarray of shape (d, n_features)
        Without rows before the first task.
    n_components : int
        Most rows of a dictionary.
    regularization : float
        rho.
    rng : Generator
        Chooses samples where there are very many.

    Returns
    -------
    ndarray of shape (k, n_features)
        The identity where nothing is to be left out.
    """
    D = X.shape[1]
    if n_components >= D and len(dictionary) in (0, D):
        return dictionary if len(dictionary) else np.eye(D)
    Q = dictionary if len(dictionary) else np.zeros((0, D))
    Q = _extended(Q, fisher_directions(X, codes, None, regularization))
    more = min(n_components, D - len(Q))
    if more > 0:
        Q = _extended(Q, residual_directions(Q, X, more, True, rng))
    return Q if len(Q) else np.eye(1, D)  # samples that are all 0


# book/plda_memory.ipynb#what-is-kept-of-a-task-and-of-all
@dataclass(frozen=True, eq=False, kw_only=True)
class TaskMemory(Record):
    """What a `LifelongPLDA` keeps of a task; no samples.

    Attributes
    ----------
    number : int
        Position in the order of first appearance, from 0.
    n_visits : int
        Calls of ``partial_fit``.
    mean : ndarray of shape (n_features,)
        Mean of the task's samples.
    moments : Moments
        The task's counts, class means and scatter in the dictionary.
    family : int
        Tasks of one family share their statistics.
    losses : ndarray of shape (n_weights, n_shrinkages)
        Validation loss at the last visit for each own weight and shrinkage that was tried.
    at_chance : bool
        Whether these losses are not significantly below chance level: the task has nothing to give.
    pair_costs : ndarray of shape (2,), or (0,) where it was not measured
        Cost of the log-ratios of held-out pairs, with the ridge as noise and without it.

    Notes
    -----
    Derived in chapter 23 (plda_memory), eq. (plda-code); chapter 24 (plda), eqs. (plda-guess) and
    (plda-divisor).
    """

    number: int
    n_visits: int
    mean: Floats
    moments: Moments
    family: int
    losses: Floats
    at_chance: bool
    pair_costs: Floats

    @property
    def n_samples(self) -> int:
        """Samples over all visits that count."""
        return int(self.moments.counts.sum())


# book/plda_memory.ipynb#what-is-kept-of-a-task-and-of-all
@dataclass(frozen=True, eq=False, kw_only=True)
class PLDAState(LearnerState):
    """Everything that a `LifelongPLDA` has learned; replaced as a whole, never changed.

    Attributes
    ----------
    n_features : int
    root : int
        Root of the seeds of all visits, which draw the folds.
    columns : tuple of str or None
        Names of the features, when the first task was a data frame.
    tasks : dict
        Task to its `TaskMemory`, in the order of first appearance.
    dictionary : ndarray of shape (d, n_features)
        L, orthonormal rows; none before the first task.
    rested : int
        Visits since the dictionary has moved, with the one that moved it.
    """

    dictionary: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    rested: int = 0

    def __reduce__(self) -> tuple[Any, ...]:
        parts = {part.name: getattr(self, part.name) for part in fields(self)}
        return partial(PLDAState, **parts), ()  # sums are made anew

    @cached_property
    def _known_sums(self) -> dict[bool, dict[int, TaskSums]]:
        """What `sums` has been asked for."""
        return {}

    def sums(self, shared_labels: bool) -> dict[int, TaskSums]:
        """Family to the sums over its tasks, made once from the memories."""
        if shared_labels not in self._known_sums:
            families: dict[int, list[Moments]] = {}
            for memory in self.tasks.values():
                families.setdefault(memory.family, []).append(memory.moments)
            self._known_sums[shared_labels] = {
                family: TaskSums.of(moments, shared_labels) for family, moments in families.items()
            }
        return self._known_sums[shared_labels]

    def without(self, task: Any) -> "PLDAState":
        """The state without the memory of a task, known or not."""
        tasks = dict(self.tasks)
        return self if tasks.pop(task, None) is None else replace(self, tasks=tasks)

    def visited(self, task: Any, memory: TaskMemory, shared_labels: bool) -> "PLDAState":
        """The state after a visit; to the sums a new task is added."""
        after = replace(self, tasks=self.tasks | {task: memory}, rested=self.rested + 1)
        if task not in self.tasks:
            pools = self.sums(shared_labels)
            pool = pools.get(memory.family)
            one = TaskSums.of([memory.moments], shared_labels)
            grown = one if pool is None else pool.plus(memory.moments)
            after._known_sums[shared_labels] = pools | {memory.family: grown}
        return after

    def in_rows(self, dictionary: Floats) -> "PLDAState":
        """The state with other orthonormal rows (m, n_features) as its dictionary."""
        tasks = {}
        if self.tasks:
            A = dictionary @ self.dictionary.T
            for task, memory in self.tasks.items():
                tasks[task] = replace(memory, moments=moved_moments(memory.moments, A))
        return replace(self, tasks=tasks, dictionary=dictionary, rested=0)

    # book/plda_memory.ipynb#how-large-it-is
    def nbytes_by_part(self, shared_labels: bool) -> dict[str, int]:
        """Bytes of each part of the state, counted."""
        moments = [memory.moments for memory in self.tasks.values()]
        sums = [pool.total for pool in self.sums(shared_labels).values()]
        joined = [pool.joined for pool in self.sums(shared_labels).values() if pool.joined]
        return {
            "dictionary": self.dictionary.nbytes,
            "codes": sum(m.within.nbytes for m in moments),
            "class means": sum(m.means.nbytes for m in moments)
            + sum(memory.mean.nbytes for memory in self.tasks.values()),
            "sums": sum(total.within.nbytes + total.between.nbytes for total in sums)
            + sum(m.within.nbytes + m.means.nbytes + 16 * len(m.counts) for m in joined),
            "records": sum(
                8 * (5 + 3 * len(memory.moments.counts))
                + memory.losses.nbytes
                + memory.pair_costs.nbytes
                for memory in self.tasks.values()
            ),
        }


def mean_scatters(pools: Iterable[TaskSums]) -> Scatters:
    """Mean scatters of the tasks of several families, each with its number of tasks."""
    pools = list(pools)
    n_tasks = sum(pool.size for pool in pools)
    shares = [pool.size / n_tasks for pool in pools]
    parts = zip(*(pool.scatters for pool in pools), strict=True)
    return Scatters(*(sum(s * p for s, p in zip(shares, part, strict=True)) for part in parts))


# book/plda_memory.ipynb#in-a-file
_NUMBER = ValueField(whole(0))
_SIZE = ValueField(whole(1))
_POSITIVE = Rule(lambda values: bool((values > 0).all()), "positive")
_COSTS = Rule(lambda costs: len(costs) in (0, 2) and bool((costs >= 0).all()), "two costs, or none")
_SHARES = Rule(
    lambda losses: bool(losses.size and 0 <= losses.min() <= losses.max() <= 1), "shares"
)
_MOMENTS = RecordField(
    Moments,
    {
        "labels": LABELS,
        "counts": ArrayField(("c",), int, _POSITIVE, LARGEST_COUNT),
        "means": ArrayField(("c", "d"), largest=LARGEST_MEAN),
        "within": ArrayField(("d", "d"), rule=Rule(is_symmetric, "symmetric")),
        "trace": ValueField(real(0, LARGEST)),
        "n_features": SizeField(letter="D"),
        "centered": ArrayField(("c",), rule=_POSITIVE),
        "n_tasks": ValueField(whole(1, LARGEST_COUNT)),
    },
)
_MEMORY = RecordField(
    TaskMemory,
    {
        "number": _NUMBER,
        "n_visits": _SIZE,
        "mean": ArrayField(("D",), largest=LARGEST_MEAN),
        "moments": _MOMENTS,
        "family": _NUMBER,
        "losses": ArrayField((None, None), rule=_SHARES),
        "at_chance": ValueField(flag()),
        "pair_costs": ArrayField((None,), rule=_COSTS),
    },
)


# book/plda_memory.ipynb#in-a-file
def _whole(**parts: Any) -> PLDAState:
    """A state from its parts, which must belong together."""
    state = PLDAState(**parts)
    L = state.dictionary
    fits = bool(len(L)) == bool(state.tasks) and np.allclose(L @ L.T, np.eye(len(L)))
    expect(fits, "dictionary", L, "orthonormal rows where there are tasks")
    for task, memory in state.tasks.items():
        labels = memory.moments.labels
        fits = len(labels) == len(memory.moments.counts) > 1
        expect(fits, f"labels of task {task!r}", labels, "a label for each count")
        _check_sizes(memory, f"of task {task!r}")
    return state


def _is_semidefinite(scatter: Floats, trace: float) -> bool:
    """Whether no eigenvalue is below 0, but for rounding, which grows with the trace."""
    scaled = scatter / max(trace, np.finfo(float).tiny)
    try:  # a factor exists for positive definite matrices only, and costs d^3 / 3 steps
        np.linalg.cholesky(scaled + 1e-9 * np.eye(len(scaled)))
    except np.linalg.LinAlgError:
        return False
    return True


def _check_sizes(memory: TaskMemory, whose: str) -> None:
    """Refuse what no samples have: it would overflow in units of the task, or give no metric."""
    m = memory.moments
    fits = bool((m.centered <= (1 + 1e-6) * m.counts).all())
    expect(fits, f"centered {whose}", m.centered, f"at most counts, {m.counts}")
    most = 2 * m.trace + np.finfo(float).tiny  # positive semi-definite, but for rounding
    fits = bool(np.abs(m.within).max(initial=0.0) <= most)
    expect(fits, f"within {whose}", m.within, f"at most {most:g}, twice the trace")
    fits = _is_semidefinite(m.within, m.trace)
    expect(fits, f"within {whose}", m.within, "positive semi-definite, as a scatter is")
    most = LARGEST_MEAN * np.sqrt(m.unit)
    fits = bool(np.abs(memory.mean).max(initial=0.0) <= most)
    expect(fits, f"mean {whose}", memory.mean, f"at most {most:g}, as its unit wants")


#: How a `PLDAState` is stored.
STATE_FIELDS = RecordField(
    _whole,
    {
        **COMMON_FIELDS,
        "dictionary": ArrayField(("d", "D")),
        "tasks": TableField(_MEMORY),
        "rested": _NUMBER,
    },
)
