# Generated from book/plda_memory.ipynb by tools/tangle.py: edit the chapter.
"""What lifelong PLDA keeps of its tasks: statistics in a dictionary, their sums, their file.

`TaskMemory` is one task, `PLDAState` all that was learned, `TaskSums` a sum over tasks and `CoordinateChange`
the map that takes what is written in one dictionary to another.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial, reduce
from typing import Any, NamedTuple, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from lml.base import COMMON_FIELDS, LearnerState, ShortRepr
from lml.fisher import fisher_directions, leading_directions
from lml.initialization import orthonormal_rows, residual_directions
from lml.plda.model import (
    DegreesOfFreedom,
    LogRatioMetric,
    Moments,
    Scatters,
    averaged_scatters,
    discriminants,
    merge_moments,
    short_spread,
)
from lml.state import (
    ArrayField,
    OptionalField,
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
    "CoordinateChange",
    "FamilyKey",
    "PLDAState",
    "TaskMemory",
    "TaskSums",
    "all_scatters",
    "is_at_chance",
    "loss_table",
    "move_pools",
    "remembered_moments",
    "scatter_code",
    "scatters_in",
    "span_basis",
    "summed",
    "visit_basis",
    "whitened_rows",
    "written_moments",
]


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
    Derived in chapter 23 (plda_memory), eqs. (plda-dictionary) and (plda-span).
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
    V, _ = discriminants((sigma + sigma.T) / 2, spread @ Z.T, complete=True)
    T = V.T @ Z
    largest = np.take_along_axis(T, np.argmax(np.abs(T), axis=1)[:, None], axis=1)
    return T * np.sign(largest)


# book/plda_memory.ipynb#the-dictionary-and-the-codes
def scatter_code(scatter: Floats, T: Floats, regularization: float) -> Floats:
    """The code T (S + rho I) T' (d, d), symmetric, of a scatter S (k, k) in rows T (d, k)."""
    code = T @ scatter @ T.T + regularization * (T @ T.T)
    return (code + code.T) / 2


def scatters_in(T: Floats, scatters: Scatters, regularization: float) -> Scatters:
    """Scatters in the rows T (d, k) of a dictionary, the first with rho I, at most d rows of spread."""
    return Scatters(
        within=scatter_code(scatters.within, T, regularization),
        spread=short_spread(scatters.spread @ T.T),
        noise=scatters.noise,
    )


# book/plda_memory.ipynb#the-dictionary-and-the-codes
def is_at_chance(loss: float, counts: Indices) -> bool:
    """True if a mean loss of samples of such classes is within two standard errors of chance.

    Derived in chapter 23 (plda_memory), eq. (plda-guess). False where the noise is too large to
    say.
    """
    n = counts.sum()
    guessed = 1 - np.sum((counts / n) ** 2)
    noise = 2 * np.sqrt(loss * (1 - loss) / n)
    return bool(loss + noise > guessed >= 5 * noise)


# book/plda_memory.ipynb#the-dictionary-and-the-codes
#: Names sums: a family, and whether they are over its tasks at chance level or over its others.
FamilyKey: TypeAlias = tuple[int, bool]
_Key = TypeVar("_Key", bound=Hashable)


@dataclass(frozen=True, eq=False)
class TaskMemory(ShortRepr):
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
    at_chance : bool
        Whether these losses are not significantly below chance level: the task has nothing to give.
    n_visits : int
        Calls of ``partial_fit``.
    moves : int
        Moves of the dictionary before the code and the class means were written.
    frozen : LogRatioMetric or None
        The read-out at the last visit, where answers must not change.
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
    at_chance: bool
    n_visits: int
    moves: int = 0
    frozen: LogRatioMetric | None = None

    def __post_init__(self) -> None:
        """Lock its arrays: nobody changes them by accident."""
        for array in (self.counts, self.mean, self.code, self.class_means, self.losses):
            array.flags.writeable = False

    def __reduce__(self) -> tuple[Any, ...]:
        return TaskMemory, tuple(vars(self).values())  # a copy is locked too

    @property
    def n_rows(self) -> int:
        """Rows over all visits that count."""
        return int(self.counts.sum())

    @property
    def freedom(self) -> DegreesOfFreedom:
        """Degrees of freedom of the scatters."""
        return DegreesOfFreedom.of(self.counts, self.counts**2 / self.n_rows, n_tasks=1)

    @property
    def unit(self) -> float:
        """Mean within-class variance of a feature; rows are measured in its root."""
        return self.scale / self.freedom.within

    @property
    def scatters(self) -> Scatters:
        """N_t, F_t and the noise in its scatter."""
        return Scatters.of_means(self.code, self.class_means, self.counts, self.freedom)

    @property
    def key(self) -> FamilyKey:
        """Name of the sums that it is in."""
        return self.family, self.at_chance

    # book/plda_memory.ipynb#a-thousand-tasks-sums-and-a-dictionary-that-rests
    def followed(self, move: "CoordinateChange", regularization: float, moves: int) -> "TaskMemory":
        """The memory after a move of the dictionary, the last of so many."""
        n_features = len(move.gram) + move.n_outside
        trace = self.trace / self.scale + regularization * n_features  # of S_t + rho I
        return replace(
            self,
            code=move.scatter(self.code, trace),
            class_means=self.class_means @ move.map.T,
            moves=moves,
        )


# book/plda_memory.ipynb#the-dictionary-and-the-codes
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
        L; without rows before the first task.
    regularization : float
        rho with which the codes were made.
    pools : dict
        Sums over tasks, in the coordinates of `span_basis`: under (family, at_chance) the `TaskSums` of
        the family's tasks that are, or are not, at chance level.
    move : CoordinateChange or None
        How a code in the dictionary before its last move becomes one in the present dictionary;
        None when no code waits for it.
    moves : int
        Moves of the dictionary since all codes were written at once.
    """

    dictionary: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    regularization: float = 1.0
    pools: "dict[FamilyKey, TaskSums]" = field(default_factory=dict)
    move: "CoordinateChange | None" = None
    moves: int = 0

    def __reduce__(self) -> tuple[Any, ...]:
        parts = {part.name: getattr(self, part.name) for part in fields(self)}
        return partial(PLDAState, **parts), ()  # what is cached is read anew

    def blank(self) -> "PLDAState":
        """The state without a task, which knows the features and the seeds."""
        return PLDAState(
            n_features=self.n_features,
            root=self.root,
            columns=self.columns,
            dictionary=np.zeros((0, self.n_features)),
        )

    # book/plda_memory.ipynb#a-thousand-tasks-sums-and-a-dictionary-that-rests
    def current(self, memory: TaskMemory) -> TaskMemory:
        """A memory, its code written in the dictionary as it is now."""
        if self.move is None or memory.moves == self.moves:
            return memory
        return memory.followed(self.move, self.regularization, self.moves)

    def moments(self, tasks: Collection[Hashable], basis: Floats) -> dict[Any, Moments]:
        """Moments of tasks in an orthonormal basis (k, n_features) that holds the dictionary."""
        if not tasks:
            return {}
        L = self.dictionary
        rho = self.regularization
        back = linalg.inv(L @ basis[: len(L)].T)  # once for all of them
        return {
            task: remembered_moments(self.current(self.tasks[task]), L, rho, basis, back)
            for task in tasks
        }

    def pool(self, family: int) -> "TaskSums":
        """Sums over the tasks of a family."""
        return summed((key[0], pool) for key, pool in self.pools.items() if key[0] == family)[
            family
        ]

    @cached_property
    def _written(self) -> dict[int, Scatters]:
        """What has been read of `shared`."""
        return {}

    def shared(self, family: int) -> Scatters:
        """Scatters of a family in the dictionary, within with rho I."""
        if family not in self._written:
            T = self.dictionary @ span_basis(self.dictionary).T
            scatters = self.pool(family).scatters()
            self._written[family] = scatters_in(T, scatters, self.regularization)
        return self._written[family]

    def sums(
        self, shared_labels: bool, tasks: Mapping[Any, TaskMemory] | None = None
    ) -> "dict[FamilyKey, TaskSums]":
        """The sums over tasks, by default over all, made anew from their codes."""
        tasks = self.tasks if tasks is None else tasks
        moments = self.moments(tasks, span_basis(self.dictionary))
        return summed(
            (tasks[u].key, TaskSums.of_task(m, shared_labels)) for u, m in moments.items()
        )

    def sums_without(self, task: Hashable) -> "dict[FamilyKey, TaskSums]":
        """The sums without a task, made anew where it was nearly all that was in them."""
        pools = dict(self.pools)
        if task not in self.tasks:
            return pools
        key = self.tasks[task].key
        whole = pools.pop(key)
        if whole.size > 1:  # other tasks are left
            keyed = whole.joined is not None
            pools[key] = whole.less(self.sums(keyed, {task: self.tasks[task]})[key])
            if _drowned(pools[key], whole):
                number = self.tasks[task].number
                members = {u: m for u, m in self.tasks.items() if m.key == key}
                others = {u: m for u, m in members.items() if m.number != number}
                pools[key] = self.sums(keyed, others)[key]
        return pools

    def caught_up(self, most: int | None) -> "PLDAState":
        """The state with so many of the codes that wait written in the present dictionary."""
        if self.move is None:
            return self
        waiting = [task for task, memory in self.tasks.items() if memory.moves < self.moves]
        written = {task: self.current(self.tasks[task]) for task in waiting[:most]}
        still_waits = len(written) < len(waiting)
        tasks = self.tasks | written
        return replace(self, tasks=tasks, move=self.move if still_waits else None)

    def family_losses(self, family: int, shape: tuple[int, int]) -> Floats:
        """Mean over a family of the losses of all candidates, of such a shape."""
        members = [m for m in self.tasks.values() if m.family == family]
        return np.asarray(np.mean([loss_table(m.losses, shape) for m in members], axis=0))

    # book/plda_memory.ipynb#how-large-it-is
    def nbytes_by_part(self) -> dict[str, int]:
        """Bytes of each part of the state, counted."""
        memories = list(self.tasks.values())
        move = [] if self.move is None else [self.move.map, self.move.outside, self.move.gram]
        return {
            "dictionary": self.dictionary.nbytes,
            "codes": sum(m.code.nbytes for m in memories),
            "class means": sum(m.class_means.nbytes + m.mean.nbytes for m in memories),
            "sums": sum(part.nbytes for pool in self.pools.values() for part in pool.arrays),
            "move": sum(part.nbytes for part in move),
            "frozen": sum(m.frozen.nbytes for m in memories if m.frozen is not None),
            "records": sum(8 * (6 + 2 * len(m.counts)) + m.losses.nbytes for m in memories),
        }


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
    Derived in chapter 23 (plda_memory), eqs. (plda-move) and (plda-tail).
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
    return Moments(
        labels=memory.classes,
        counts=memory.counts,
        means=means,
        within=within,
        trace=memory.trace,
        n_features=D,
        centred=memory.counts**2 / memory.n_rows,
    )


# book/plda_memory.ipynb#when-the-dictionary-moves
def visit_basis(
    X: Matrix,
    codes: Indices,
    dictionary: Floats,
    n_components: int,
    regularization: float,
    rng: np.random.Generator,
) -> Floats:
    """Orthonormal rows that hold the dictionary and the leading directions of new rows.

    Parameters
    ----------
    X : {ndarray, csr_array} of shape (n, n_features)
        The new rows.
    codes : ndarray of int, shape (n,)
        The class of each.
    dictionary : ndarray of shape (d, n_features)
        Without rows before the first task.
    n_components : int
        Most rows of a dictionary.
    regularization : float
        rho.
    rng : Generator
        Chooses rows where there are very many.

    Returns
    -------
    ndarray of shape (k, n_features)
        The identity where nothing is to be left out.
    """
    D = X.shape[1]
    if n_components >= D and len(dictionary) in (0, D):
        return np.eye(D)
    Q = orthonormal_rows(dictionary) if len(dictionary) else np.zeros((0, D))
    Q = _extended(Q, fisher_directions(X, codes, None, regularization))
    more = min(n_components, D - len(Q))
    if more > 0:
        Q = _extended(Q, residual_directions(Q, X, more, True, rng))
    return Q if len(Q) else np.eye(1, D)  # rows of zeros


# book/plda_memory.ipynb#when-the-dictionary-moves
def written_moments(
    moments: Moments, T: Floats, regularization: float, moves: int = 0
) -> dict[str, Any]:
    """What a `TaskMemory` has of its moments (k) in the rows T (d, k) of a dictionary.

    Derived in chapter 23 (plda_memory), eq. (plda-code). `moves` counts the moves of the dictionary
    before.
    """
    return {
        "classes": moments.labels,
        "counts": moments.counts,
        "code": scatter_code(moments.scatter, T, regularization),
        "class_means": moments.means @ T.T / np.sqrt(moments.scale),
        "trace": moments.trace,
        "scale": moments.scale,
        "moves": moves,
    }


# book/plda_memory.ipynb#a-thousand-tasks-sums-and-a-dictionary-that-rests
class CoordinateChange(NamedTuple):
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
    Derived in chapter 23 (plda_memory), eq. (plda-follow).
    """

    map: Floats
    outside: Floats
    gram: Floats
    n_outside: int

    @classmethod
    def between(cls, dictionary: Floats, rows: Floats) -> Self:
        """What takes from a dictionary (d, n_features) to other rows (m, n_features)."""
        d, D = dictionary.shape
        if d == D:
            R = linalg.inv(dictionary)
            nothing = np.zeros((len(rows), len(rows)))
            return cls(map=rows @ R, outside=nothing, gram=R.T @ R, n_outside=0)
        Q = orthonormal_rows(dictionary)
        R = linalg.inv(dictionary @ Q.T)
        inside = rows @ Q.T
        outside = rows @ rows.T - inside @ inside.T
        return cls(map=inside @ R, outside=outside, gram=R.T @ R, n_outside=D - d)

    def scatter(self, code: Floats, trace: float) -> Floats:
        """A scatter whose trace in the input space is known, (m, m), symmetric."""
        moved = self.map @ code @ self.map.T
        if self.n_outside:
            # what the trace has beyond the span is spread evenly over the outside
            rest = max(trace - float(np.sum(self.gram * code)), 0.0) / self.n_outside
            moved = moved + rest * self.outside
        return (moved + moved.T) / 2


# book/plda_memory.ipynb#a-thousand-tasks-sums-and-a-dictionary-that-rests
def _parted(a: Moments, b: Moments) -> Moments:
    """Moments of a without the rows of b, which are among them."""
    place = {label: number for number, label in enumerate(a.labels)}
    places = [place[label] for label in b.labels]
    counts = a.counts.copy()
    counts[places] -= b.counts
    centred = a.centred.copy()
    centred[places] -= b.centred
    sums = a.counts[:, None] * a.means
    sums[places] -= b.counts[:, None] * b.means
    left = np.flatnonzero(counts)
    n = counts[left]
    means = sums[left] / counts[left, None]
    # class means of both parts about those of the whole
    gaps = [np.sqrt(n)[:, None] * (means - a.means[left])]
    gaps.append(np.sqrt(b.counts)[:, None] * (b.means - a.means[places]))
    gap = np.concatenate(gaps)
    return Moments(
        labels=tuple(a.labels[number] for number in left),
        counts=n,
        means=means,
        within=a.within - b.within - gap.T @ gap,
        trace=max(float(a.trace - b.trace - np.sum(gap**2)), 0.0),
        n_features=a.n_features,
        centred=centred[left],
        n_tasks=a.n_tasks - b.n_tasks,
    )


# book/plda_memory.ipynb#a-thousand-tasks-sums-and-a-dictionary-that-rests
@dataclass(frozen=True, eq=False)
class TaskSums:
    """Sums of the statistics of tasks, in coordinates of an orthonormal basis.

    Attributes
    ----------
    size : int
        Number of tasks.
    within, between : ndarray of shape (k, k)
        Sums of S_t and of B_t.
    noise : float
        Sum of a_t.
    trace : float
        Of the sum of S_t, in the input space.
    joined : Moments or None
        Of all rows, those of one label together, where labels are shared.
    rows : ndarray of shape (k, k) or None
        Sum of the tasks' own within-class scatters, where labels are shared.
    rows_trace : float
        Its trace in the input space.

    Notes
    -----
    Derived in chapter 23 (plda_memory), eqs. (plda-sums) and (plda-part).
    """

    size: int
    within: Floats
    between: Floats
    noise: float
    trace: float
    joined: Moments | None
    rows: Floats | None = None
    rows_trace: float = 0.0

    def __post_init__(self) -> None:
        """Lock all arrays."""
        for array in self.arrays:
            array.flags.writeable = False

    def __reduce__(self) -> tuple[Any, ...]:
        return TaskSums, tuple(getattr(self, name.name) for name in fields(self))

    @property
    def arrays(self) -> list[NDArray[Any]]:
        """All that is kept in arrays."""
        joined = [part for part in self.joined or () if isinstance(part, np.ndarray)]
        rows = [] if self.rows is None else [self.rows]
        return [self.within, self.between, *joined, *rows]

    @classmethod
    def of_task(cls, moments: Moments, shared_labels: bool) -> Self:
        """The sums of one task, from its moments in the basis."""
        within, spread, noise = moments.scatters
        return cls(
            size=1,
            within=within,
            between=spread.T @ spread,
            noise=noise,
            trace=moments.trace / moments.scale,
            joined=moments if shared_labels else None,
            rows=moments.within if shared_labels else None,
            rows_trace=moments.trace if shared_labels else 0.0,
        )

    def plus(self, other: "TaskSums") -> "TaskSums":
        """The sums over the tasks of both."""
        return self._changed(other, 1)

    def less(self, other: "TaskSums") -> "TaskSums":
        """The sums without tasks that are in them."""
        return self._changed(other, -1)

    def _changed(self, other: "TaskSums", sign: int) -> "TaskSums":
        joined = None
        if self.joined is not None and other.joined is not None:
            join = merge_moments if sign > 0 else _parted
            joined = join(self.joined, other.joined)
        rows = None
        if self.rows is not None and other.rows is not None:
            rows = self.rows + sign * other.rows
        return TaskSums(
            size=self.size + sign * other.size,
            within=self.within + sign * other.within,
            between=self.between + sign * other.between,
            noise=max(self.noise + sign * other.noise, 0.0),
            trace=max(self.trace + sign * other.trace, 0.0),
            joined=joined,
            rows=rows,
            rows_trace=max(self.rows_trace + sign * other.rows_trace, 0.0),
        )

    def moved(self, move: CoordinateChange) -> "TaskSums":
        """The sums in other coordinates."""
        joined = self.joined
        rows = self.rows
        A = move.map
        if joined is not None and rows is not None:
            gaps = A @ (joined.within - rows) @ A.T  # of class means: nothing of them is outside
            gaps = (gaps + gaps.T) / 2
            rows = move.scatter(rows, self.rows_trace)
            joined = joined._replace(
                means=joined.means @ A.T,
                within=rows + gaps,
                trace=self.rows_trace + float(np.trace(gaps)),
            )
        within = move.scatter(self.within, self.trace)
        between = A @ self.between @ A.T
        between = (between + between.T) / 2
        return replace(self, within=within, between=between, joined=joined, rows=rows)

    @property
    def mean_within(self) -> Floats:
        """Mean of S_t over the tasks, (k, k)."""
        return self.within / self.size

    @cached_property
    def spread(self) -> Floats:
        """Rows whose scatter is the sum of B_t."""
        values, V = linalg.eigh(self.between)
        used = values > values[-1] * len(values) * np.finfo(float).eps
        return (V * np.sqrt(np.where(used, values, 0.0))).T[used | (values == values[-1])]

    def scatters(self, own: Moments | None = None) -> Scatters:
        """Scatters of these tasks and one more, as `pooled_scatters` has them."""
        if self.joined is not None:
            return (self.joined if own is None else merge_moments(self.joined, own)).scatters
        spread = self.spread / np.sqrt(self.size)
        mean = Scatters(self.mean_within, spread, self.noise / self.size)
        return mean if own is None else averaged_scatters([(self.size, mean), (1, own.scatters)])


# book/plda_memory.ipynb#a-thousand-tasks-sums-and-a-dictionary-that-rests
def summed(parts: Iterable[tuple[_Key, TaskSums]]) -> dict[_Key, TaskSums]:
    """The sums of the pools under each key."""
    pools: dict[_Key, TaskSums] = {}
    for key, pool in parts:
        pools[key] = pools[key].plus(pool) if key in pools else pool
    return pools


# book/plda_memory.ipynb#a-thousand-tasks-sums-and-a-dictionary-that-rests
def _drowned(rest: TaskSums, whole: TaskSums) -> bool:
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
def span_basis(dictionary: Floats) -> Floats:
    """Orthonormal rows of the span of a dictionary, I where it spans the input space."""
    d, D = dictionary.shape
    return np.eye(D) if d == D else orthonormal_rows(dictionary)


# book/plda_memory.ipynb#a-thousand-tasks-sums-and-a-dictionary-that-rests
def move_pools(
    pools: Mapping[FamilyKey, TaskSums], old: Floats, new: Floats
) -> dict[FamilyKey, TaskSums]:
    """Sums in an old orthonormal basis (k, n_features), taken to a new one."""
    if np.array_equal(old, new):
        return dict(pools)
    move = CoordinateChange.between(old, new)
    return {key: pool.moved(move) for key, pool in pools.items()}


# book/plda_memory.ipynb#a-thousand-tasks-sums-and-a-dictionary-that-rests
def all_scatters(pools: Mapping[FamilyKey, TaskSums]) -> Scatters:
    """Scatters of all tasks; where labels are shared, they are joined within families."""
    if any(pool.joined is None for pool in pools.values()):
        return reduce(TaskSums.plus, pools.values()).scatters()
    families = summed((key[0], pool) for key, pool in pools.items())
    return averaged_scatters([(pool.size, pool.scatters()) for pool in families.values()])


# book/plda_memory.ipynb#a-thousand-tasks-sums-and-a-dictionary-that-rests
def loss_table(losses: Floats, shape: tuple[int, int]) -> Floats:
    """Losses of all candidates, of such a shape; none where other candidates were tried."""
    fits = all(n in (1, wanted) for n, wanted in zip(losses.shape, shape, strict=True))
    return np.broadcast_to(losses, shape) if fits else np.zeros(shape)


# book/plda_memory.ipynb#in-a-file
_NUMBER = ValueField(whole(0))
_SIZE = ValueField(whole(1))
_TRACE = ValueField(real(0))
_LABELS = ValueField(
    Rule(lambda names: type(names) is tuple and len(set(names)) == len(names), "different labels")
)
_KEY = Rule(
    lambda key: type(key) is tuple and list(map(type, key)) == [int, bool],
    "a family and whether its tasks are at chance level",
)
_COUNTS = ArrayField(("c",), int, Rule(lambda counts: bool((counts > 0).all()), "at least 1"))
_POSITIVE = Rule(lambda values: bool((values > 0).all()), "positive")
_SYMMETRIC = ArrayField(("d", "d"), rule=Rule(is_symmetric, "symmetric"))
_SHARES = Rule(
    lambda losses: bool(losses.size and 0 <= losses.min() <= losses.max() <= 1), "shares"
)
_FROZEN = RecordField(
    LogRatioMetric,
    {"mean": ArrayField(("D",)), "rows": ArrayField(("k", "D")), "between": ArrayField(("k",))},
    lambda metric: {"mean": metric.mean, "rows": metric.factor, "between": metric.between},
)


# book/plda_memory.ipynb#in-a-file
_MEMORY = RecordField(
    TaskMemory,
    {
        "number": _NUMBER,
        "classes": _LABELS,
        "counts": _COUNTS,
        "mean": ArrayField(("D",)),
        "code": _SYMMETRIC,
        "class_means": ArrayField(("c", "d")),
        "trace": _TRACE,
        "scale": ValueField(real(0, above=True)),
        "family": _NUMBER,
        "losses": ArrayField((None, None), rule=_SHARES),
        "at_chance": ValueField(flag()),
        "n_visits": _SIZE,
        "moves": _NUMBER,
        "frozen": OptionalField(_FROZEN),
    },
)


# book/plda_memory.ipynb#in-a-file
_JOINED = RecordField(
    Moments,
    {
        "labels": _LABELS,
        "counts": _COUNTS,
        "means": ArrayField(("c", "d")),
        "within": _SYMMETRIC,
        "trace": _TRACE,
        "n_features": SizeField(letter="D"),
        "centred": ArrayField(("c",), rule=_POSITIVE),
        "n_tasks": _SIZE,
    },
    Moments._asdict,
)
_POOL = RecordField(
    TaskSums,
    {
        "size": _SIZE,
        "within": _SYMMETRIC,
        "between": _SYMMETRIC,
        "noise": _TRACE,
        "trace": _TRACE,
        "joined": OptionalField(_JOINED),
        "rows": OptionalField(_SYMMETRIC),
        "rows_trace": _TRACE,
    },
)
_SQUARE = ArrayField(("d", "d"))
_MOVE = RecordField(
    CoordinateChange,
    {"map": _SQUARE, "outside": _SQUARE, "gram": _SQUARE, "n_outside": _NUMBER},
    CoordinateChange._asdict,
)


# book/plda_memory.ipynb#in-a-file
def _whole(**parts: Any) -> PLDAState:
    """A state from its parts, which must belong together."""
    state = PLDAState(**parts)
    d, D = state.dictionary.shape
    tasks = state.tasks.values()
    expect(bool(d) == bool(tasks) and d <= D, "dictionary", (d, D), "rows where there are tasks")
    rank = len(orthonormal_rows(state.dictionary)) if d else 0
    expect(rank == d, "rank of dictionary", rank, d)
    for task, memory in state.tasks.items():
        fits = len(memory.classes) == len(memory.counts) > 1
        expect(fits, f"classes of task {task!r}", memory.classes, "a label for each count")
    sizes = dict(Counter(memory.key for memory in tasks))
    found = {key: pool.size for key, pool in state.pools.items()}
    expect(found == sizes, "sizes of the pools", found, sizes)
    for key, pool in state.pools.items():
        joined = pool.joined
        fits = joined is None or len(joined.labels) == len(joined.counts)
        expect(fits, f"labels of pool {key}", joined, "a label for each count")
    shared = {part is not None for p in state.pools.values() for part in (p.joined, p.rows)}
    expect(len(shared) < 2, "joined of the pools", shared, "all or none")
    # a code waits for the last move at most
    behind = {state.moves - memory.moves for memory in tasks}
    fits = behind <= {0, 1} and (state.move is not None) == (1 in behind)
    expect(fits, "moves of the tasks", behind, "at most one behind, with that move")
    return state


# book/plda_memory.ipynb#in-a-file
#: How a `PLDAState` is stored.
STATE_FIELDS = RecordField(
    _whole,
    {
        **COMMON_FIELDS,
        "dictionary": ArrayField(("d", "D")),
        "tasks": TableField(_MEMORY),
        "regularization": ValueField(real(0, above=True)),
        "pools": TableField(_POOL, ValueField(_KEY)),
        "move": OptionalField(_MOVE),
        "moves": _NUMBER,
    },
)
