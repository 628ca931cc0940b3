# Generated from book/plda_memory.ipynb by tools/tangle.py: edit the chapter.
"""What lifelong PLDA keeps of its tasks: statistics in a dictionary, their sums, their file.

`TaskMemory` is one task, `PLDAState` all that was learned, `Pool` a sum over tasks and `Follow`
the map that takes what is written in one dictionary to another.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial, reduce
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from lml.fisher import fisher_directions, leading_directions
from lml.initialization import orthonormal_rows, residual_directions
from lml.lifelong import _fits
from lml.plda.model import (
    LogRatioMetric,
    Moments,
    _discriminants,
    _joint,
    _merged,
)
from lml.state import about, decode, encode, expect
from lml.utils.typing import Floats, Indices, Matrix

__all__ = ["Follow", "PLDAState", "Pool", "TaskMemory", "remembered_moments", "whitened_rows"]


# book/plda_memory.ipynb#the-dictionary-and-the-codes
def whitened_rows(
    within: Floats, spread: Floats, regularization: float, n_components: int
) -> Floats:
    """Rows T of a dictionary: T (S + rho I) T' = I, T B T' diagonal and falling.

    Parameters
    ----------
    within : ndarray of shape (k, k)
        S.
    spread : ndarray of shape (r, k)
        With spread' spread = B.
    regularization : float
        rho > 0.
    n_components : int
        Most rows. Fewer than k: half of them are the best discriminants, the others the
        leading principal directions that are left.

    Returns
    -------
    ndarray of shape (min(n_components, k), k)

    Notes
    -----
    Derived in chapter 22 (plda_memory), eqs. (plda-dictionary) and (plda-span).
    """
    k = len(within)
    Z = np.eye(k)
    sigma = within + regularization * np.eye(k)
    if n_components < k:
        best = leading_directions(within, spread, regularization, max(1, n_components // 2))
        best = orthonormal_rows(best)
        outside = np.eye(k) - best.T @ best
        _, principal = linalg.eigh(outside @ (within + spread.T @ spread) @ outside)
        Z = np.concatenate([best, principal.T[::-1][: n_components - len(best)]])
    sigma = Z @ sigma @ Z.T
    V, _ = _discriminants((sigma + sigma.T) / 2, spread @ Z.T, complete=True)
    T = V.T @ Z
    largest = np.take_along_axis(T, np.argmax(np.abs(T), axis=1)[:, None], axis=1)
    return T * np.sign(largest)


# book/plda_memory.ipynb#the-dictionary-and-the-codes
def _code(scatter: Floats, T: Floats, regularization: float) -> Floats:
    """T (S + rho I) T', symmetric."""
    code = T @ scatter @ T.T + regularization * (T @ T.T)
    return (code + code.T) / 2


# book/plda_memory.ipynb#the-dictionary-and-the-codes
def _guesses(loss: float, counts: Indices) -> bool:
    """Whether a mean loss of rows of these classes is guessing's within noise, if that is small."""
    n = counts.sum()
    guessed = 1 - np.sum((counts / counts.sum()) ** 2)
    noise = 2 * np.sqrt(loss * (1 - loss) / n)
    return bool(loss + noise > guessed >= 5 * noise)


# book/plda_memory.ipynb#the-dictionary-and-the-codes
@dataclass(frozen=True, eq=False, kw_only=True)
class _LastVisit:
    """How the last visit left a task; told in `TaskMemory`."""

    frozen: LogRatioMetric | None = None
    moves: int = 0
    guessed: bool | None = None


# book/plda_memory.ipynb#the-dictionary-and-the-codes
@dataclass(frozen=True, eq=False)
class TaskMemory(_LastVisit):
    """What a `LifelongPLDA` keeps of a task; no rows.

    Attributes
    ----------
    number : int
        Position in the order of first appearance, from 0.
    classes : tuple
        Labels, in the order in which they were first seen.
    counts : ndarray of shape (c,)
        Rows of each class.
    mean : ndarray of shape (n_features,)
        Mean of the task's rows.
    code : ndarray of shape (d, d)
        N_t, the within-class scatter (with rho I) in the dictionary.
    class_means : ndarray of shape (c, d)
        Scaled class means in the dictionary.
    trace : float
        Trace of the unscaled within scatter.
    scale : float
        What the scatters are divided by.
    family : int
        Tasks of one family share their statistics.
    losses : ndarray of shape (n_weights, n_shrinkages)
        Validation loss at the last visit for each own weight and shrinkage that was tried.
    n_visits : int
        Calls of ``partial_fit``.
    frozen : LogRatioMetric or None
        The read-out at the last visit, where answers must not change.
    moves : int
        Moves of the dictionary before the code and the class means were written.
    guessed : bool or None
        Whether the losses cannot be told from guessing by the rows of that visit; None where a
        file of an earlier version did not say.
    """

    number: int
    classes: tuple[Any, ...]
    counts: Indices
    mean: Floats
    code: Floats
    class_means: Floats
    trace: float
    scale: float
    family: int
    losses: Floats
    n_visits: int

    @property
    def n_rows(self) -> int:
        """Rows over all visits that count."""
        return int(self.counts.sum())

    @property
    def unit(self) -> float:
        """Mean within-class variance of a feature; rows are measured in its root."""
        return self.scale / max(self.n_rows - len(self.counts), 1)

    @property
    def guesses(self) -> bool:
        """Whether its validation cannot be told from guessing: it has nothing to give."""
        if self.guessed is not None:
            return self.guessed
        return _guesses(float(self.losses.min()), self.counts)

    @property
    def spread(self) -> Floats:
        """F_t: rows whose scatter is the task's between-class scatter in the dictionary."""
        return np.sqrt(self.counts)[:, None] * self.class_means

    def __post_init__(self) -> None:
        """Lock its arrays: nobody changes them by accident."""
        for array in (self.counts, self.mean, self.code, self.class_means, self.losses):
            array.flags.writeable = False

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(TaskMemory, **vars(self)), ()  # a copy is locked too


# book/plda_memory.ipynb#the-dictionary-and-the-codes
@dataclass(frozen=True, eq=False)
class PLDAState:
    """Everything that a `LifelongPLDA` has learned; replaced as a whole, never changed.

    Attributes
    ----------
    dictionary : ndarray of shape (d, n_features)
        L.
    tasks : tuple of (task, TaskMemory)
        In the order of first appearance.
    families : dict
        Family to its within code (d, d) and its spread (r, d), r <= d.
    regularization : float
        rho with which the codes were made.
    root : int
        Seed of the folds.
    columns : tuple of str or None
        Names of the features, when the first task was a data frame.
    pools : dict
        Sums over tasks: under None the `Pool` of all, under (family, guesses) that of the
        family's tasks that cannot, or can, be told from guessing. Empty until there are more
        tasks than a visit takes into account one by one.
    move : Follow or None
        How a code in the dictionary before its last move becomes one in the present dictionary;
        None when no code waits for it.
    moves : int
        Moves of the dictionary since there are sums.
    """

    dictionary: Floats
    tasks: tuple[tuple[Hashable, TaskMemory], ...]
    families: dict[int, tuple[Floats, Floats]]
    regularization: float
    root: int
    columns: tuple[Any, ...] | None = None
    pools: "dict[tuple[int, bool] | None, Pool]" = field(default_factory=dict)
    move: "Follow | None" = None
    moves: int = 0

    def __post_init__(self) -> None:
        """Lock the shared arrays, as each memory has locked its own."""
        for array in (self.dictionary, *(part for pair in self.families.values() for part in pair)):
            array.flags.writeable = False

    def __reduce__(self) -> tuple[Any, ...]:
        return PLDAState, tuple(vars(self).values())  # a copy is locked too

    # book/plda_memory.ipynb#a-thousand-tasks-sums-and-a-dictionary-that-rests
    def current(self, memory: TaskMemory) -> TaskMemory:
        """A memory, its code written in the dictionary as it is now."""
        if self.move is None or memory.moves == self.moves:
            return memory
        return _followed(memory, self.move, self.regularization, self.moves)

    def parts(self, family: int) -> "list[Pool]":
        """Sums over the tasks of a family, those that guess apart."""
        return [pool for key, pool in self.pools.items() if key is not None and key[0] == family]

    def shared(self, family: int) -> tuple[Floats, Floats]:
        """Within code (d, d) and spread of a family."""
        if family in self.families:
            return self.families[family]
        pool = reduce(Pool.plus, self.parts(family))
        T = self.dictionary @ _span(self.dictionary).T
        within, spread = pool.scatters(shared_labels=True)
        return _code(within, T, self.regularization), spread @ T.T


# book/plda_memory.ipynb#when-the-dictionary-moves
def _extended(Q: Floats, rows: Floats) -> Floats:
    """Orthonormal rows: those of Q as they are, then the parts of other rows outside."""
    rows = rows[np.any(rows, axis=1)]
    for _ in range(2):  # once more for what rounding has left
        rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        rows = rows - (rows @ Q.T) @ Q
        rows = rows[np.linalg.norm(rows, axis=1) > 1e-8]
    return np.concatenate([Q, orthonormal_rows(rows)])


# book/plda_memory.ipynb#when-the-dictionary-moves
def remembered_moments(
    memory: TaskMemory,
    dictionary: Floats,
    regularization: float,
    basis: Floats,
    back: Floats | None = None,
) -> Moments:
    """Moments of a task, from its memory, in the coordinates of an orthonormal basis.

    Parameters
    ----------
    memory : TaskMemory
    dictionary : ndarray of shape (d, n_features)
        In which its code is written.
    regularization : float
        rho in the code.
    basis : ndarray of shape (k, n_features)
        Orthonormal rows that begin with a basis of the dictionary, or that span the
        input space.
    back : ndarray of shape (d, d), optional
        Inverse of dictionary @ basis[:d].T, where it is known.

    Returns
    -------
    Moments

    Notes
    -----
    Derived in chapter 22 (plda_memory), eqs. (plda-move) and (plda-tail).
    """
    k = len(basis)
    (d, D) = dictionary.shape
    back = linalg.inv(dictionary @ basis[:d].T) if back is None else back
    scatter = back @ memory.code @ back.T - regularization * np.eye(d)
    if memory.trace <= 1e-12 * D * memory.scale:
        scatter = np.zeros((d, d))  # of one whose rows are all means, rounding would be left
    within = np.zeros((k, k))
    within[:d, :d] = memory.scale * (scatter + scatter.T) / 2
    tail = max(memory.trace - np.trace(within), 0.0) / max(D - d, 1)
    within[range(d, k), range(d, k)] = tail
    means = np.zeros((len(memory.counts), k))
    means[:, :d] = np.sqrt(memory.scale) * memory.class_means @ back.T
    return Moments(memory.classes, memory.counts, means, within, memory.trace, D)


# book/plda_memory.ipynb#when-the-dictionary-moves
def _basis(
    X: Matrix,
    y: Indices,
    L: Floats | None,
    n_components: int,
    regularization: float,
    rng: np.random.Generator,
) -> Floats:
    """Orthonormal rows that hold the dictionary and the leading directions of new rows."""
    D = X.shape[1]
    if n_components >= D and (L is None or len(L) == D):
        return np.eye(D)
    Q = np.zeros((0, D)) if L is None else orthonormal_rows(L)
    Q = _extended(Q, fisher_directions(X, y, None, regularization))
    more = min(n_components, D - len(Q))
    Q = _extended(Q, residual_directions(Q, X, more, True, rng)) if more > 0 else Q
    return Q if len(Q) else np.eye(1, D)  # rows of zeros


# book/plda_memory.ipynb#when-the-dictionary-moves
def _written(moments: Moments, T: Floats, regularization: float, moves: int = 0) -> dict[str, Any]:
    """What a task remembers of its moments in the rows T of a dictionary."""
    return {
        "classes": moments.labels,
        "counts": moments.counts,
        "trace": moments.trace,
        "scale": moments.scale,
        "code": _code(moments.scatter, T, regularization),
        "class_means": moments.means @ T.T / np.sqrt(moments.scale),
        "moves": moves,
    }


# book/plda_memory.ipynb#a-thousand-tasks-sums-and-a-dictionary-that-rests
class Follow(NamedTuple):
    """What takes scatters and rows written in a dictionary to other rows.

    Attributes
    ----------
    map : ndarray of shape (m, d)
        A.
    outside : ndarray of shape (m, m)
        K, of the part outside the span of the dictionary.
    gram : ndarray of shape (d, d)
        R'R.
    n_outside : int
        D - d.

    Notes
    -----
    Derived in chapter 22 (plda_memory), eq. (plda-follow).
    """

    map: Floats
    outside: Floats
    gram: Floats
    n_outside: int

    def scatter(self, code: Floats, trace: float) -> Floats:
        """A scatter whose trace in the input space is known, (m, m), symmetric."""
        moved = self.map @ code @ self.map.T
        if self.n_outside:
            rest = max(trace - float(np.sum(self.gram * code)), 0.0) / self.n_outside
            moved = moved + rest * self.outside
        return (moved + moved.T) / 2


# book/plda_memory.ipynb#a-thousand-tasks-sums-and-a-dictionary-that-rests
def _follow(L: Floats, rows: Floats) -> Follow:
    """From the dictionary L (d, D) to other rows (m, D)."""
    d, D = L.shape
    if d == D:
        R = linalg.inv(L)
        return Follow(rows @ R, np.zeros((len(rows), len(rows))), R.T @ R, 0)
    Q = orthonormal_rows(L)
    R = linalg.inv(L @ Q.T)
    inside = rows @ Q.T
    return Follow(inside @ R, rows @ rows.T - inside @ inside.T, R.T @ R, D - d)


def _followed(memory: TaskMemory, move: Follow, regularization: float, moves: int) -> TaskMemory:
    """A memory after a move of the dictionary."""
    trace = _full_trace(memory, regularization, move.gram.shape[0] + move.n_outside)
    code = move.scatter(memory.code, trace)
    means = memory.class_means @ move.map.T
    return replace(memory, code=code, class_means=means, moves=moves)


def _full_trace(memory: TaskMemory, regularization: float, n_features: int) -> float:
    """Trace of S_t + rho I in the input space."""
    return memory.trace / memory.scale + regularization * n_features


# book/plda_memory.ipynb#a-thousand-tasks-sums-and-a-dictionary-that-rests
def _parted(a: Moments, b: Moments) -> Moments:
    """Moments of a without the rows of b, which are among them."""
    place = {label: number for number, label in enumerate(a.labels)}
    places = [place[label] for label in b.labels]
    counts = a.counts.copy()
    sums = a.counts[:, None] * a.means
    counts[places] -= b.counts
    sums[places] -= b.counts[:, None] * b.means
    left = np.flatnonzero(counts)
    n = counts[left]
    means = sums[left] / counts[left, None]
    gaps = [np.sqrt(n)[:, None] * (means - a.means[left])]
    gaps.append(np.sqrt(b.counts)[:, None] * (b.means - a.means[places]))
    gap = np.concatenate(gaps)
    within = a.within - b.within - gap.T @ gap
    trace = a.trace - b.trace - np.sum(gap**2)
    labels = tuple(a.labels[number] for number in left)
    return Moments(labels, n, means, within, max(float(trace), 0.0), a.n_features)


# book/plda_memory.ipynb#a-thousand-tasks-sums-and-a-dictionary-that-rests
def _span(L: Floats) -> Floats:
    """Orthonormal rows of the span of a dictionary."""
    return np.eye(len(L)) if len(L) == L.shape[1] else orthonormal_rows(L)


@dataclass(frozen=True, eq=False)
class Pool:
    """Sums of the statistics of tasks, in coordinates of an orthonormal basis.

    Attributes
    ----------
    size : int
        Number of tasks.
    within, between : ndarray of shape (k, k)
        Sums of S_t and of B_t.
    trace : float
        Of the sum of S_t, in the input space.
    joined : Moments or None
        Of all rows, those of one label together, where labels are shared.
    losses : dict
        Shape of a table of losses to the number of tasks that have such a one, and their sum.
    rows : ndarray of shape (k, k) or None
        Sum of the tasks' own within-class scatters, where labels are shared.
    rows_trace : float
        Its trace in the input space.

    Notes
    -----
    Derived in chapter 22 (plda_memory), eqs. (plda-sums) and (plda-part).
    """

    size: int
    within: Floats
    between: Floats
    trace: float
    joined: Moments | None
    losses: dict[tuple[int, ...], tuple[int, Floats]]
    rows: Floats | None = None
    rows_trace: float = 0.0

    @property
    def arrays(self) -> list[NDArray[Any]]:
        """All that is kept in arrays."""
        tables = [table for _, table in self.losses.values()]
        joined = [] if self.joined is None else list(self.joined[1:4])
        rows = [] if self.rows is None else [self.rows]
        return [self.within, self.between, *tables, *joined, *rows]

    def __post_init__(self) -> None:
        """Lock all arrays."""
        for array in self.arrays:
            array.flags.writeable = False

    def __reduce__(self) -> tuple[Any, ...]:
        return Pool, tuple(getattr(self, name.name) for name in fields(self))

    def plus(self, other: "Pool") -> "Pool":
        """The sums over the tasks of both."""
        return self._changed(other, 1, lambda a, b: _merged(a, b, np.zeros(len(a.within))))

    def less(self, other: "Pool") -> "Pool":
        """The sums without tasks that are in them."""
        return self._changed(other, -1, _parted)

    def _changed(
        self, other: "Pool", sign: int, join: Callable[[Moments, Moments], Moments]
    ) -> "Pool":
        joined = join(self.joined, other.joined) if self.joined and other.joined else None
        a = self.rows
        b = other.rows
        rows = None if a is None or b is None else a + sign * b
        within = self.within + sign * other.within
        between = self.between + sign * other.between
        losses = self._losses_with(other, sign)
        n = self.size + sign * other.size
        trace = max(self.trace + sign * other.trace, 0.0)
        rows_trace = max(self.rows_trace + sign * other.rows_trace, 0.0)
        return Pool(n, within, between, trace, joined, losses, rows, rows_trace)

    def _losses_with(self, other: "Pool", sign: int) -> dict[tuple[int, ...], tuple[int, Floats]]:
        """Sums of tables of losses with those of other tasks, or without them."""
        losses = dict(self.losses)
        for shape, (n, table) in other.losses.items():
            count, known = losses.pop(shape, (0, np.zeros(shape)))
            if count + sign * n:
                losses[shape] = count + sign * n, np.maximum(known + sign * table, 0.0)
        return losses

    def moved(self, move: Follow) -> "Pool":
        """The sums in other coordinates."""
        joined = self.joined
        rows = self.rows
        A = move.map
        if joined is not None and rows is not None:
            gaps = A @ (joined.within - rows) @ A.T  # of class means: nothing of them is outside
            rows = move.scatter(rows, self.rows_trace)
            gaps = (gaps + gaps.T) / 2
            joined = joined._replace(means=joined.means @ A.T, within=rows + gaps)
            joined = joined._replace(trace=self.rows_trace + float(np.trace(gaps)))
        within = move.scatter(self.within, self.trace)
        between = A @ self.between @ A.T
        between = (between + between.T) / 2
        return replace(self, within=within, between=between, joined=joined, rows=rows)

    @cached_property
    def spread(self) -> Floats:
        """Rows whose scatter is the sum of B_t."""
        values, V = linalg.eigh(self.between)
        used = values > values[-1] * len(values) * np.finfo(float).eps
        return (V * np.sqrt(np.where(used, values, 0.0))).T[used | (values == values[-1])]

    def scatters(
        self, own: Moments | None = None, shared_labels: bool = False
    ) -> tuple[Floats, Floats]:
        """Within scatter and spread of these tasks and one more, as `pooled_scatters` has them."""
        if shared_labels and self.joined is not None:
            joined = self.joined
            joined = joined if own is None else _merged(joined, own, np.zeros(len(joined.within)))
            return joined.scatter, joined.spread
        within = self.within
        rows = self.spread
        size = self.size
        if own is not None:
            within = within + own.scatter
            rows = np.concatenate([rows, own.spread])
            size = size + 1
        return within / size, rows / np.sqrt(size)


# book/plda_memory.ipynb#a-thousand-tasks-sums-and-a-dictionary-that-rests
def _pool(memory: TaskMemory, moments: Moments, shared_labels: bool) -> Pool:
    """The sums of one task."""
    F = moments.spread
    losses = {memory.losses.shape: (1, memory.losses)}
    parts = moments.scatter, F.T @ F, memory.trace / memory.scale
    if not shared_labels:
        return Pool(1, *parts, None, losses)
    return Pool(1, *parts, moments, losses, moments.within, moments.trace)


# book/plda_memory.ipynb#a-thousand-tasks-sums-and-a-dictionary-that-rests
def _drowned(rest: Pool, whole: Pool) -> bool:
    """Whether so little is left of sums that rounding could show."""
    sizes = []
    for pool in (rest, whole):
        parts = [pool.trace, float(np.trace(pool.between))]
        if pool.joined is not None:
            between = pool.joined.counts @ np.sum(pool.joined.means**2, axis=1)
            parts += [pool.joined.trace, float(between)]
        sizes.append(np.array(parts))
    return bool(np.any(sizes[0] < 1e-6 * sizes[1]))


# book/plda_memory.ipynb#a-thousand-tasks-sums-and-a-dictionary-that-rests
def _all_moments(
    state: PLDAState, memories: Mapping[Hashable, TaskMemory], basis: Floats
) -> dict[Hashable, Moments]:
    """Moments of tasks in an orthonormal basis; the dictionary is inverted once."""
    L = state.dictionary
    rho = state.regularization
    back = linalg.inv(L @ basis[: len(L)].T)
    now = state.current
    return {u: remembered_moments(now(m), L, rho, basis, back) for u, m in memories.items()}


# book/plda_memory.ipynb#a-thousand-tasks-sums-and-a-dictionary-that-rests
_Key = tuple[int, bool] | None


def _pools(state: PLDAState, shared_labels: bool, wanted: Any = None) -> dict[_Key, Pool]:
    """Sums over the tasks of a state, made anew; all, or those with a wanted key."""
    Q = _span(state.dictionary)
    pools = dict[_Key, Pool]()
    keys = {u: _keys(m) for u, m in state.tasks}
    chosen = {u: m for u, m in state.tasks if wanted is None or set(wanted) & set(keys[u])}
    for u, moments in _all_moments(state, chosen, Q).items():
        own = _pool(chosen[u], moments, shared_labels)
        for key in keys[u]:
            pools[key] = pools[key].plus(own) if key in pools else own
    return pools


def _keys(memory: TaskMemory) -> tuple[_Key, ...]:
    """Of the sums that a task is in: of all tasks, and of its family."""
    return None, (memory.family, memory.guesses)


# book/plda_memory.ipynb#a-thousand-tasks-sums-and-a-dictionary-that-rests
def _less_task(state: PLDAState, task: Hashable) -> dict[_Key, Pool]:
    """Sums without those of a task, made anew where it was nearly all that was in them."""
    memory = dict(state.tasks).get(task)
    pools = dict(state.pools)
    if memory is None:
        return pools
    shared = pools[None].joined is not None
    moments = _all_moments(state, {task: memory}, _span(state.dictionary))[task]
    for key in _keys(memory):
        whole = pools.pop(key)
        if whole.size > 1:
            rest = whole.less(_pool(memory, moments, shared))
            if _drowned(rest, whole):
                left = tuple((u, m) for u, m in state.tasks if m.number != memory.number)
                rest = _pools(replace(state, tasks=left), shared, [key])[key]
            pools[key] = rest
    return pools


# book/plda_memory.ipynb#a-thousand-tasks-sums-and-a-dictionary-that-rests
def _moved_pools(pools: Mapping[_Key, Pool], old: Floats, new: Floats) -> dict[_Key, Pool]:
    """Sums in another orthonormal basis."""
    if len(old) == len(new) == old.shape[1]:
        return dict(pools)  # both are I
    move = _follow(old, new)
    return {key: pool.moved(move) for key, pool in pools.items()}


# book/plda_memory.ipynb#a-thousand-tasks-sums-and-a-dictionary-that-rests
def _union(group: Any) -> Moments:
    """Moments of the rows of all tasks of a family together."""
    joined: Moments | None = group.joined if isinstance(group, Pool) else _joint(group)
    assert joined is not None  # labels are shared
    return joined


def _partner_pools(
    pools: Mapping[_Key, Pool], most: int | None, may_leave: bool
) -> tuple[dict[int, Pool], int]:
    """The largest families, of those the latest, without tasks that only guess; the next number."""
    new = 1 + max((key[0] for key in pools if key is not None), default=-1)
    if not may_leave:
        return {0: pools[None]}, new
    sharing = {key[0]: pool for key, pool in pools.items() if key is not None and not key[1]}
    largest = sorted(sharing, key=lambda f: (-sharing[f].size, -f))
    return {f: sharing[f] for f in sorted(largest[:most])}, new


# book/plda_memory.ipynb#a-thousand-tasks-sums-and-a-dictionary-that-rests
def _by_family(pools: Mapping[_Key, Pool], own: Moments, family: int) -> tuple[Floats, Floats]:
    """Scatters of all tasks and one more, for the dictionary; labels are joined within families."""
    groups: dict[int, Pool] = {}
    for key, pool in pools.items():
        if key is not None:
            groups[key[0]] = groups[key[0]].plus(pool) if key[0] in groups else pool
    parts = [(pool.size + (f == family), pool.scatters(own if f == family else None, True))
             for f, pool in groups.items()]  # fmt: skip
    if family not in groups:
        parts.append((1, (own.scatter, own.spread)))
    total = sum(size for size, _ in parts)
    spread = np.concatenate([np.sqrt(size / total) * F for size, (_, F) in parts])
    return np.sum([size / total * S for size, (S, _) in parts], axis=0), spread


# book/plda_memory.ipynb#a-thousand-tasks-sums-and-a-dictionary-that-rests
def _waits(tasks: Mapping[Hashable, TaskMemory], moves: int) -> bool:
    """Whether a code waits for the last move of the dictionary."""
    return any(memory.moves < moves for memory in tasks.values())


def _caught_up(
    tasks: dict[Hashable, TaskMemory], move: Follow | None, moves: int, most: Any, rho: float
) -> dict[Hashable, TaskMemory]:
    """Tasks with so many of the codes that wait written in the present dictionary."""
    waiting = (task for task, memory in tasks.items() if memory.moves < moves)
    if move is not None:
        for task in list(islice(waiting, most)):
            tasks[task] = _followed(tasks[task], move, rho, moves)
    return tasks


def _with_sums(
    state: PLDAState, task: Hashable, memory: TaskMemory, shared_labels: bool
) -> PLDAState:
    """The state with a task's statistics in the sums."""
    moments = _all_moments(state, {task: memory}, _span(state.dictionary))
    pools = dict(state.pools)
    own = _pool(memory, moments[task], shared_labels)
    for key in _keys(memory):
        pools[key] = pools[key].plus(own) if key in pools else own
    return replace(state, pools=pools)


# book/plda_memory.ipynb#a-thousand-tasks-sums-and-a-dictionary-that-rests
def _table(losses: Floats, shape: tuple[int, int]) -> Floats:
    """Losses of all candidates; none where other candidates were tried."""
    fits = all(n in (1, wanted) for n, wanted in zip(losses.shape, shape, strict=True))
    return np.broadcast_to(losses, shape) if fits else np.zeros(shape)


def _common(state: PLDAState, family: int, shape: tuple[int, int]) -> Floats:
    """Mean over a family of the losses of all candidates."""
    if family in state.families or not state.pools:
        tables = [_table(m.losses, shape) for _, m in state.tasks if m.family == family]
        return np.asarray(np.mean(tables, axis=0))
    parts = state.parts(family)
    sums = [_table(table, shape) for pool in parts for _, table in pool.losses.values()]
    return np.asarray(sum(sums) / sum(pool.size for pool in parts))


# book/plda_memory.ipynb#in-a-file
def _pack(state: PLDAState, arrays: dict[str, Any]) -> dict[str, Any]:
    """The state as JSON; its arrays go to `arrays`."""
    d, D = state.dictionary.shape
    memories = [m for _, m in state.tasks]
    arrays["dictionary"] = state.dictionary
    arrays["codes"] = np.reshape([m.code for m in memories], (len(memories), d, d))
    arrays["means"] = np.reshape([m.mean for m in memories], (len(memories), D))
    arrays["counts"] = np.concatenate([np.zeros(0, int), *(m.counts for m in memories)])
    arrays["class_means"] = np.concatenate([np.zeros((0, d)), *(m.class_means for m in memories)])
    tasks = [_pack_memory(u, m, place, arrays) for place, (u, m) in enumerate(state.tasks)]
    for f, (within, spread) in state.families.items():
        arrays[f"within{f}"] = within
        arrays[f"spread{f}"] = spread
    facts = {"tasks": tasks, "families": list(state.families), "columns": encode(state.columns)}
    facts |= {"root": state.root, "regularization": float(state.regularization)}
    return facts | _pack_sums(state, arrays)


# book/plda_memory.ipynb#in-a-file
_RECORD: dict[str, type] = {
    "number": int,
    "classes": tuple,
    "trace": float,
    "scale": float,
    "family": int,
    "n_visits": int,
    "moves": int,
}


def _pack_memory(
    task: Hashable, memory: TaskMemory, place: int, arrays: dict[str, Any]
) -> dict[str, Any]:
    arrays[f"losses{place}"] = memory.losses
    frozen = memory.frozen
    if frozen is not None:
        arrays[f"frozen_mean{place}"] = frozen.mean
        arrays[f"frozen_rows{place}"] = frozen.factor
        arrays[f"frozen_between{place}"] = frozen.between
    with about(f"task {task!r}"):
        form = {name: encode(kind(getattr(memory, name))) for name, kind in _RECORD.items()}
        form["guessed"] = memory.guessed
        return {"task": encode(task), "frozen": frozen is not None, **form}


# book/plda_memory.ipynb#in-a-file
def _taken(arrays: dict[str, NDArray[Any]], name: str, shape: tuple[Any, ...]) -> NDArray[Any]:
    """An array of floats (of whole numbers if they count) of a shape; None fits any length."""
    array: NDArray[Any] = decode({"array": name}, arrays)
    kind = np.dtype(int if name.endswith("counts") else float)
    fits = len(shape) == array.ndim and all(a in (n, None) for n, a in zip(array.shape, shape))
    expect(fits and array.dtype == kind, name, (array.dtype, array.shape), f"{kind} of {shape}")
    return array


def _shares(A: Floats) -> bool:
    """Whether there are numbers and all are from 0 to 1."""
    return A.size > 0 and bool(0 <= A.min() <= A.max() <= 1)


def _symmetric(A: Floats) -> bool:
    """Whether a matrix is square and symmetric."""
    return A.shape == A.T.shape and np.array_equal(A, A.T)


# book/plda_memory.ipynb#in-a-file
def _unpack(form: Any, arrays: dict[str, NDArray[Any]]) -> PLDAState:
    """The state that `_pack` took apart, or an error that names what does not fit."""
    keys = {"tasks", "families", "columns", "root", "regularization", "pools", "move", "moves"}
    expect(type(form) is dict and set(form) == keys, "state", form, f"an object with {keys}")
    L = _taken(arrays, "dictionary", (None, None))
    rho = form["regularization"]
    records = _unpack_records(form["tasks"])
    (d, D) = L.shape
    expect(bool(d) == bool(records) and d <= D, "dictionary", L.shape, "rows where there are tasks")
    expect(_fits(rho, float) and rho > 0, "regularization", rho, "a number above 0")
    _check_columns(form, D)
    wanted = {r["family"] for r in records.values()}
    families = _unpack_families(form["families"], wanted, d, arrays, bool(form["pools"]))
    tasks = _unpack_tasks(records, d, D, arrays)
    least = min((int(m.counts.min()) for _, m in tasks), default=1)
    expect(least > 0, "least of counts", least, "at least 1")
    sums = _unpack_sums(form, tasks, d, D, arrays)
    return PLDAState(L, tasks, families, rho, form["root"], decode(form["columns"]), *sums)


# book/plda_memory.ipynb#in-a-file
def _unpack_families(
    form: Any, wanted: set[int], d: int, arrays: dict[str, NDArray[Any]], may_lack: bool = False
) -> dict[int, tuple[Floats, Floats]]:
    """Shared statistics of the families that tasks belong to; there may be sums in their place."""
    fits = type(form) is list and all(type(f) is int for f in form)
    fits = fits and (sorted(form) == sorted(wanted) or (may_lack and not form))
    expect(fits, "families", form, f"{wanted}, those of the tasks")
    families = {}
    for f in form:
        within, spread = (_taken(arrays, f"{name}{f}", (None, d)) for name in ("within", "spread"))
        expect(_symmetric(within), f"within{f}", within, f"symmetric, {d} x {d}")
        expect(1 <= len(spread) <= d, f"rows of spread{f}", len(spread), f"1 to {d}")
        families[f] = within, spread
    return families


# book/plda_memory.ipynb#in-a-file
def _checked_record(form: Any, place: int, kinds: Mapping[str, type]) -> dict[str, Any]:
    values = {name: decode(value) for name, value in form.items()}
    for name, kind in kinds.items():
        fits = _fits(values[name], kind) and (name != "scale" or values[name] > 0)
        expect(fits, f"{name} of task {place}", values[name], kind.__name__)
    guessed = values["guessed"]
    classes = values["classes"]
    fits = guessed is None or type(guessed) is bool
    expect(fits, f"guessed of task {place}", guessed, "a bool or None")
    expect(len(set(classes)) == len(classes) > 1, f"classes of task {place}", classes, "different")
    return values


# book/plda_memory.ipynb#in-a-file
def _unpack_records(forms: Any) -> dict[Any, dict[str, Any]]:
    """Tasks and what is no array in their memories."""
    expect(type(forms) is list, "tasks", forms, "a list")
    kinds = {"task": object, "frozen": bool, "guessed": object, **_RECORD}
    records = {}
    for place, form in enumerate(forms):
        fits = type(form) is dict and set(form) == set(kinds)
        expect(fits, f"task {place}", form, f"an object with {list(kinds)}")
        values = _checked_record(form, place, kinds)
        task = values.pop("task")
        expect(task not in records, f"name of task {place}", task, "a new one")
        records[task] = values
    numbers = [record["number"] for record in records.values()]
    expect(len(set(numbers)) == len(numbers), "numbers of the tasks", numbers, "different")
    return records


# book/plda_memory.ipynb#in-a-file
def _unpack_tasks(
    records: Mapping[Any, dict[str, Any]], d: int, D: int, arrays: dict[str, NDArray[Any]]
) -> tuple[tuple[Hashable, TaskMemory], ...]:
    """Tasks and their memories, from records and arrays of all tasks side by side."""
    m = len(records)
    n = sum(len(record["classes"]) for record in records.values())
    codes = _taken(arrays, "codes", (m, d, d))
    means = _taken(arrays, "means", (m, D))
    counts = _taken(arrays, "counts", (n,))
    class_means = _taken(arrays, "class_means", (n, d))
    tasks = []
    first = 0
    for place, (task, record) in enumerate(records.items()):
        own = slice(first, first := first + len(record["classes"]))
        expect(_symmetric(codes[place]), f"code of task {place}", codes[place], "symmetric")
        losses = _taken(arrays, f"losses{place}", (None, None))
        expect(_shares(losses), f"losses{place}", losses, "from 0 to 1")
        frozen = _unpack_frozen(place, D, arrays) if record.pop("frozen") else None
        parts: dict[str, Any] = {
            "counts": counts[own].copy(),
            "class_means": class_means[own].copy(),
        }
        parts |= {"mean": means[place].copy(), "code": codes[place].copy()}
        tasks.append((task, TaskMemory(**record, **parts, losses=losses, frozen=frozen)))
    return tuple(tasks)


# book/plda_memory.ipynb#in-a-file
def _check_columns(form: Any, n_features: int) -> None:
    columns = decode(form["columns"])
    root = form["root"]
    fits = columns is None or len(set(columns)) == len(columns) == n_features
    fits = fits and all(type(name) is str for name in columns or ())
    expect(fits, "columns", columns, f"{n_features} different names")
    expect(_fits(root, int), "root", root, "a whole number")


def _unpack_frozen(place: int, D: int, arrays: dict[str, NDArray[Any]]) -> LogRatioMetric:
    """The read-out of a task's last visit."""
    mean, rows = (_taken(arrays, f"frozen_{name}{place}", shape)
                  for name, shape in (("mean", (D,)), ("rows", (None, D))))  # fmt: skip
    return LogRatioMetric(mean, rows, _taken(arrays, f"frozen_between{place}", (len(rows),)))


# book/plda_memory.ipynb#in-a-file
def _pack_sums(state: PLDAState, arrays: dict[str, Any]) -> dict[str, Any]:
    """Sums of many tasks and the last move as JSON; their arrays go to `arrays`."""
    for name, part in zip(Follow._fields[:3], (state.move or ())[:3]):
        arrays[f"move_{name}"] = part
    pools = [_pack_pool(key, pool, n, arrays) for n, (key, pool) in enumerate(state.pools.items())]
    return {"pools": pools, "moves": state.moves, "move": state.move is not None}


# book/plda_memory.ipynb#in-a-file
def _pack_pool(key: _Key, pool: Pool, place: int, arrays: dict[str, Any]) -> dict[str, Any]:
    arrays[f"pool{place}_within"] = pool.within
    arrays[f"pool{place}_between"] = pool.between
    for number, (_, table) in enumerate(pool.losses.values()):
        arrays[f"pool{place}_losses{number}"] = table
    form = {"key": encode(key), "size": pool.size, "trace": float(pool.trace), "joined": None}
    if (joined := pool.joined) is not None:
        for name, part in zip(Moments._fields[1:4], joined[1:4]):
            arrays[f"pool{place}_joined_{name}"] = part
        traces = {"trace": float(joined.trace), "rows_trace": float(pool.rows_trace)}
        form["joined"] = {"labels": encode(joined.labels), **traces}
        arrays[f"pool{place}_rows"] = pool.rows
    return form | {"losses": [n for n, _ in pool.losses.values()]}


# book/plda_memory.ipynb#in-a-file
def _unpack_sums(
    form: Any, tasks: Sequence[tuple[Hashable, TaskMemory]], d: int, D: int, arrays: dict[str, Any]
) -> tuple[dict[_Key, Pool], Follow | None, int]:
    """What `_pack_sums` took apart."""
    moves = form["moves"]
    forms = form["pools"]
    expect(_fits(moves, int) and type(form["move"]) is bool, "moves", moves, "a whole number")
    behind = {moves - memory.moves for _, memory in tasks}
    fits = behind <= {0, 1} and form["move"] == (1 in behind)
    expect(fits, "moves of the tasks", behind, "at most one behind, with that move")
    sizes = Counter(key for _, memory in tasks for key in _keys(memory))
    expect(type(forms) is list, "pools", forms, "a list")
    pools = dict(_unpack_pool(one, place, d, D, arrays) for place, one in enumerate(forms))
    found = {key: pool.size for key, pool in pools.items()}
    expect(not forms or found == dict(sizes), "sizes of the pools", found, dict(sizes))
    kinds = {pool.joined is not None for pool in pools.values()}
    expect(len(kinds) < 2, "joined of the pools", kinds, "all or none")
    return pools, _unpack_move(d, D, arrays) if form["move"] else None, moves


# book/plda_memory.ipynb#in-a-file
def _unpack_pool(
    form: Any, place: int, d: int, D: int, arrays: dict[str, Any]
) -> tuple[_Key, Pool]:
    keys = {"key", "size", "trace", "joined", "losses"}
    name = f"pool{place}"
    expect(type(form) is dict and set(form) == keys, name, form, f"an object with {keys}")
    size = form["size"]
    trace = form["trace"]
    counts = form["losses"]
    fits = _fits(size, int) and _fits(trace, float) and type(counts) is list
    expect(fits and all(_fits(n, int) for n in counts), name, form, "whole numbers and a trace")
    losses = _unpack_losses(counts, size, name, arrays)
    within, between = (_taken(arrays, f"{name}_{part}", (d, d)) for part in ("within", "between"))
    expect(_symmetric(within) and _symmetric(between), f"scatters of {name}", within, "symmetric")
    sums = size, within, between, trace
    if form["joined"] is None:
        return decode(form["key"]), Pool(*sums, None, losses)
    joined = _unpack_joined(form["joined"], name, d, D, arrays)
    rows = _taken(arrays, f"{name}_rows", (d, d))
    return decode(form["key"]), Pool(*sums, joined, losses, rows, form["joined"]["rows_trace"])


# book/plda_memory.ipynb#in-a-file
def _unpack_joined(form: Any, name: str, d: int, D: int, arrays: dict[str, Any]) -> Moments:
    """Joined statistics of the tasks in a pool."""
    fits = type(form) is dict and set(form) == {"labels", "trace", "rows_trace"}
    fits = fits and all(_fits(form[trace], float) for trace in ("trace", "rows_trace"))
    expect(fits, f"joined of {name}", form, "labels and traces")
    expect(type(labels := decode(form["labels"])) is tuple, f"labels of {name}", labels, "a tuple")
    expect(len(set(labels)) == len(labels), f"labels of {name}", labels, "different")
    counts = _taken(arrays, f"{name}_joined_counts", (len(labels),))
    expect(bool((counts > 0).all()), f"counts of {name}", counts, "at least 1")
    means = _taken(arrays, f"{name}_joined_means", (len(labels), d))
    within = _taken(arrays, f"{name}_joined_within", (d, d))
    expect(_symmetric(within), f"joined scatter of {name}", within, "symmetric")
    return Moments(labels, counts, means, within, form["trace"], D)


# book/plda_memory.ipynb#in-a-file
def _unpack_move(d: int, D: int, arrays: dict[str, Any]) -> Follow:
    """The last move of the dictionary."""
    names = Follow._fields[:3]
    first, outside, gram = (_taken(arrays, f"move_{name}", (d, d)) for name in names)
    return Follow(first, outside, gram, D - d)


def _unpack_losses(
    counts: Sequence[int], size: int, name: str, arrays: dict[str, Any]
) -> dict[tuple[int, ...], tuple[int, Floats]]:
    """Sums of tables of losses in a pool."""
    tables = [_taken(arrays, f"{name}_losses{n}", (None, None)) for n in range(len(counts))]
    losses = {table.shape: (n, table) for n, table in zip(counts, tables)}
    fits = sum(counts) == size and len(losses) == len(counts)
    expect(fits, f"losses of {name}", counts, f"{size} in all, of different shapes")
    return losses


# book/plda_memory.ipynb#in-a-file
def _renewed(form: Any) -> Any:
    """The form of a state in a file of an earlier version, as the present one has it."""
    if type(form) is not dict or type(form.get("tasks")) is not list:
        return form
    new = {"moves": 0, "guessed": None}
    tasks = [{**new, **task} if type(task) is dict else task for task in form["tasks"]]
    return {"pools": [], "move": False, "moves": 0, **form, "tasks": tasks}
