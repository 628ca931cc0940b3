# Generated from book/dictionary.ipynb by tools/tangle.py: edit the chapter.
"""Move the shared dictionary: gradient, step, memory of old tasks, what becomes of their codes.

A step lowers the current task's mean hinge plus the remembered linear terms of old tasks and
returns orthonormal rows together with the d x d change of basis. Old codes then follow one of
two policies: keep_codes (old metrics move along) or keep_metrics (they stay). A table of
`MovingCodes` lets them follow when they are read.
"""

import itertools
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg, sparse

from lml.metrics import FactoredMetric
from lml.triplets import check_problem, hinge_with_gradient
from lml.utils.linalg import is_symmetric, svd, times_transpose
from lml.utils.typing import Floats, Indices, Matrix, MatrixLike
from lml.utils.validation import check_dense, check_matrix, real, whole

__all__ = [
    "DictionaryStep",
    "GradientMemory",
    "MovingCodes",
    "RunningGradient",
    "descend",
    "dictionary_gradient",
    "dictionary_objective",
    "dictionary_step",
    "keep_codes",
    "keep_metrics",
    "line_search",
    "polar_factors",
    "step_objective",
    "stretch_step",
]


# book/dictionary.ipynb#the-gradient
def dictionary_gradient(dictionary: Floats, code: Floats, gradient: FactoredMetric) -> Floats:
    """Gradient of <G, L'WL> with respect to the dictionary L: W L G' + W' L G.

    Parameters
    ----------
    dictionary : ndarray of shape (d, D)
        L.
    code : ndarray of shape (d, d)
        W; need not be symmetric.
    gradient : FactoredMetric on D features
        G, the gradient of a loss with respect to the metric; need not be symmetric.

    Returns
    -------
    ndarray of shape (d, D)

    Notes
    -----
    Derived in chapter 14 (dictionary), eqs. (dictionary-first-order) and (dictionary-gradient).
    Paper: section IV-C, eq. 14, corrected.

    Examples
    --------
    >>> import numpy as np
    >>> from lml.metrics import FactoredMetric
    >>> G = FactoredMetric.from_dense([[1.0, 2.0], [0.0, 3.0]])
    >>> dictionary_gradient(np.array([[1.0, 0.0]]), np.array([[2.0]]), G).tolist()
    [[4.0, 4.0]]
    """
    dictionary = check_matrix(dictionary, "dictionary", gradient.n_features)
    return _gradient(dictionary, code, gradient)


def _gradient(L: Floats, W: Floats, G: FactoredMetric) -> Floats:
    """W L G' + W' L G, eq. (dictionary-gradient)."""
    core = G.core if G.core.ndim == 1 else G.core.T
    transposed = FactoredMetric._trusted(G.alpha, G.factor, core)
    return W @ transposed._apply(L) + W.T @ G._apply(L)


# book/dictionary.ipynb#what-the-step-is-meant-to-lower
def step_objective(
    code: Floats,
    X: Matrix,
    triplets: Indices,
    metric_type: str,
    memory: "GradientMemory | RunningGradient | None",
    codes: Mapping[Hashable, Floats] | None,
    dictionary_penalty: float,
) -> Callable[[Floats], tuple[float, Callable[[], Floats]]]:
    """What a step lowers: of L, the value and a function for the gradient, which trials skip.

    The arrays are those of `dictionary_objective`, checked before.
    """

    def objective(L: Floats) -> tuple[float, Callable[[], Floats]]:
        metric = FactoredMetric._trusted(0.0, L, code)
        value, G = hinge_with_gradient(metric, X, triplets, metric_type)
        n_tasks = 1
        if memory is not None:
            old_value, old_slope, n_old = memory.terms(L, codes or {})
            value += old_value
            n_tasks += n_old
        value = float(value / n_tasks + dictionary_penalty * np.sum(L * L))

        def slope() -> Floats:
            total = _gradient(L, code, G)
            if memory is not None:
                total = total + old_slope
            return total / n_tasks + 2 * dictionary_penalty * L

        return value, slope

    return objective


# book/dictionary.ipynb#what-the-step-is-meant-to-lower
def dictionary_objective(
    dictionary: Floats,
    code: Floats,
    X: MatrixLike,
    triplets: ArrayLike,
    metric_type: str,
    memory: "GradientMemory | RunningGradient | None" = None,
    codes: Mapping[Hashable, Floats] | None = None,
    dictionary_penalty: float = 0.0,
) -> tuple[float, Floats]:
    """Value and gradient of what a dictionary step lowers.

    (1/T) [ loss_t(L'W_tL) + sum_s <Delta_s, L'W_sL> ] + gamma ||L||_F^2

    Parameters
    ----------
    dictionary : ndarray of shape (d, D)
        L; its rows need not be orthonormal.
    code : ndarray of shape (d, d)
        W_t, the code of the current task.
    X : {ndarray, CSR matrix} of shape (n, D)
        Rows of the current task.
    triplets : ndarray of shape (m, 3)
        Its triplets (anchor, positive, negative).
    metric_type : {"similarity", "distance"}
    memory : GradientMemory or RunningGradient, optional
        What is remembered of old tasks.
    codes : dict, optional
        Old tasks and their codes W_s. Leave out the current task when it is revisited.
    dictionary_penalty : float, default=0.0
        gamma, >= 0.

    Returns
    -------
    value : float
    gradient : ndarray of shape (d, D)

    Notes
    -----
    Derived in chapter 14 (dictionary), eqs. (dictionary-gradient) and (dictionary-objective).
    Paper: section IV-C, eq. 14.
    """
    metric = FactoredMetric(0.0, dictionary, code)
    X, triplets = check_problem(metric, X, triplets, metric_type)
    objective = step_objective(code, X, triplets, metric_type, memory, codes, dictionary_penalty)
    value, slope = objective(metric.factor)
    return value, slope()


# book/dictionary.ipynb#remembering-old-tasks-without-their-rows
def _low_rank(gradient: FactoredMetric, rank: int) -> tuple[FactoredMetric, float]:
    """Best symmetric part of rank `rank`, and the relative error of leaving out the rest."""
    X = gradient.factor
    K = gradient.core
    if sparse.issparse(X):  # the Gram matrix of X gives the spectrum of X'KX and `rank` dense rows
        values, vectors = linalg.eigh((X @ X.T).toarray())
        keep = values > max(values[-1], 0.0) * len(values) * np.finfo(float).eps
        root = np.sqrt(values[keep])
        vectors = vectors[:, keep]
        inner = (vectors * root).T @ ((K if K.ndim == 2 else np.diag(K)) @ (vectors * root))
        theta, turn = linalg.eigh((inner + inner.T) / 2)
        order = np.argsort(-np.abs(theta), kind="stable")
        theta = theta[order]
        rows = ((vectors / root) @ turn[:, order[:rank]]).T @ X
    else:
        spectrum = gradient.compress()
        theta = spectrum.core
        rows = spectrum.factor[:rank].copy()  # not a view of all
    error = linalg.norm(theta[rank:]) / max(linalg.norm(theta), np.finfo(float).tiny)
    return FactoredMetric(gradient.alpha, rows, theta[:rank].copy()), float(error)


# book/dictionary.ipynb#remembering-old-tasks-without-their-rows
class GradientMemory:
    """Low-rank gradients of old tasks, one a task.

    Parameters
    ----------
    rank : int
        Largest rank kept of a task's gradient, >= 1.

    Attributes
    ----------
    gradients : dict
        Task to FactoredMetric, symmetric, of rank at most ``rank``.
    errors : dict
        Task to the relative error of its compression, in the Frobenius norm.

    Notes
    -----
    Derived in chapter 14 (dictionary), eqs. (dictionary-objective) and (dictionary-low-rank).
    Paper: section IV-C, eq. 14. The antisymmetric part of a gradient is left out: it acts
    on codes that are not symmetric only.

    Examples
    --------
    >>> from lml.metrics import FactoredMetric
    >>> memory = GradientMemory(rank=1)
    >>> memory.store("a", FactoredMetric.from_dense([[4.0, 0.0], [0.0, 3.0]]))
    >>> len(memory), round(memory.errors["a"], 6)
    (1, 0.6)
    """

    def __init__(self, rank: int) -> None:
        whole(1).check("rank", rank)
        self.rank = int(rank)
        self.gradients: dict[Hashable, FactoredMetric] = {}
        self.errors: dict[Hashable, float] = {}

    def __len__(self) -> int:
        return len(self.gradients)

    @property
    def nbytes(self) -> int:
        """Bytes of all that is kept."""
        return sum(gradient.nbytes for gradient in self.gradients.values())

    def store(
        self,
        task: Hashable,
        gradient: FactoredMetric,
        dictionary: Floats | None = None,
        code: Floats | None = None,
    ) -> None:
        """Keep a task's gradient, in place of what was kept of it before."""
        self.gradients[task], self.errors[task] = _low_rank(gradient, self.rank)

    def terms(
        self, dictionary: Floats, codes: Mapping[Hashable, Floats]
    ) -> tuple[float, Floats, int]:
        """Sum of <Delta_s, L'W_sL> over the tasks in codes, its gradient, and their number."""
        value = 0.0
        slope = np.zeros_like(dictionary)
        for task, code in codes.items():
            if task not in self.gradients:
                raise ValueError(
                    f"codes has task {task!r}, of which no gradient is stored: store it first;"
                    f" known tasks are {list(self.gradients)}"
                )
            image = self.gradients[task].apply(dictionary)
            value += np.sum((image @ dictionary.T) * code)
            slope += (code + code.T) @ image
        return float(value), slope, len(codes)

    def change_basis(self, change: Floats) -> None:
        """Nothing to do: the gradients live in the D features, not in the dictionary."""


# book/dictionary.ipynb#a-memory-that-does-not-grow
class RunningGradient:
    """The sum of old tasks' gradients with respect to the dictionary: one d x D array.

    Attributes
    ----------
    total : ndarray of shape (d, D) or None
        R, the sum of W_s L Delta_s' + W_s' L Delta_s, each taken when its task was stored.
    n_tasks : int
        How many gradients were added. A revisited task counts again.

    Notes
    -----
    Derived in chapter 14 (dictionary), eq. (dictionary-running).
    """

    def __init__(self) -> None:
        self.total: Floats | None = None
        self.n_tasks = 0

    def __len__(self) -> int:
        return self.n_tasks

    @property
    def nbytes(self) -> int:
        """Bytes of all that is kept."""
        return 0 if self.total is None else self.total.nbytes

    def store(
        self, task: Hashable, gradient: FactoredMetric, dictionary: Floats, code: Floats
    ) -> None:
        """Add a task's gradient with respect to the dictionary."""
        slope = dictionary_gradient(dictionary, code, gradient)
        self.total = slope if self.total is None else self.total + slope
        self.n_tasks += 1

    def terms(
        self, dictionary: Floats, codes: Mapping[Hashable, Floats]
    ) -> tuple[float, Floats, int]:
        """<R, L>, its gradient R, and the number of gradients in the sum."""
        if self.total is None:
            return 0.0, np.zeros_like(dictionary), 0
        return float(np.sum(self.total * dictionary)), self.total, self.n_tasks

    def change_basis(self, change: Floats) -> None:
        """Follow a change of the codes from W to C W C' (C is ``change``)."""
        if self.total is not None:
            self.total = change @ self.total


# book/dictionary.ipynb#orthonormal-rows-and-the-change-of-basis
def polar_factors(dictionary: ArrayLike) -> tuple[Floats, Floats]:
    """Split a dictionary L = S Q into a symmetric change of basis S and orthonormal rows Q.

    Parameters
    ----------
    dictionary : array-like of shape (d, D), d <= D

    Returns
    -------
    change : ndarray of shape (d, d)
        S = (L L')^(1/2).
    rows : ndarray of shape (d, D)
        Q, the orthonormal rows nearest to L. Where L has lower rank they are completed.

    Raises
    ------
    ValueError
        If there are more rows than features.

    Notes
    -----
    Derived in chapter 14 (dictionary), eq. (dictionary-polar).

    Examples
    --------
    >>> import numpy as np
    >>> change, rows = polar_factors(np.array([[3.0, 4.0]]))
    >>> change.round(6).tolist(), rows.round(6).tolist()
    ([[5.0]], [[0.6, 0.8]])
    """
    L = check_dense(dictionary, "dictionary", order="C")
    if L.shape[0] > L.shape[1]:
        raise ValueError(
            f"dictionary has {L.shape[0]} rows in {L.shape[1]} features: at most"
            f" {L.shape[1]} rows can be orthonormal"
        )
    return _polar(L)


def _polar(L: Floats) -> tuple[Floats, Floats]:
    """What `polar_factors` returns, for an array that has been checked."""
    squares, left = linalg.eigh(L @ L.T)
    if squares[0] > 0.01 * squares[-1]:  # rows after a step; otherwise squaring loses digits
        roots = np.sqrt(squares)
        return (left * roots) @ left.T, (left / roots) @ (left.T @ L)
    left, values, right = svd(L)
    return (left * values) @ left.T, left @ right


# book/dictionary.ipynb#orthonormal-rows-and-the-change-of-basis
def keep_codes(code: Floats, change: Floats) -> Floats:
    """The code S' W S: with it the metric is unchanged by the normalisation L = S Q.

    Parameters
    ----------
    code : ndarray of shape (d, d)
        W, an old task's code in the dictionary before the step.
    change : ndarray of shape (d, d)
        S, as returned by `dictionary_step` or `polar_factors`.

    Returns
    -------
    ndarray of shape (d, d)
        The old task's metric becomes L'WL in the moved dictionary L: it moves along.
        Symmetric to the last bit if the old code is.

    Notes
    -----
    Derived in chapter 14 (dictionary), eq. (dictionary-keep-codes). Paper: section IV-C, which
    leaves W_s alone.
    """
    moved = change.T @ code @ change
    return (moved + moved.T) / 2 if is_symmetric(code) else moved


# book/dictionary.ipynb#how-far
@dataclass(frozen=True)
class DictionaryStep:
    """Outcome of a dictionary step.

    Parameters
    ----------
    dictionary : ndarray of shape (d, D)
        Q, the new dictionary with orthonormal rows.
    change : ndarray of shape (d, d)
        S with L_moved = S Q, for `keep_codes`.
    step_size : float
        The accepted multiple of the gradient; 0 when the dictionary stayed.
    objective_before, objective_after : float
        The objective at the given dictionary and at L_moved, codes unchanged.
    n_backtracks : int
        How often the trial step was halved.
    """

    dictionary: Floats
    change: Floats
    step_size: float
    objective_before: float
    objective_after: float
    n_backtracks: int


# book/dictionary.ipynb#how-far
def line_search(
    objective: Callable[[Floats], tuple[float, Callable[[], Floats]]],
    L: Floats,
    max_move: float,
    max_backtracks: int,
    sufficient: float = 1e-4,
) -> tuple[Floats, float, float, float, int]:
    """Halve the step along minus the gradient until Armijo's condition holds.

    Parameters
    ----------
    objective : callable
        ``objective(L)`` returns the value and a function for the gradient, which trials do
        not need.
    L : ndarray
        Where the search begins.
    max_move : float
        Length of the first trial, as a fraction of ||L||_F.
    max_backtracks : int
        How often the trial step may be halved, at least 0.
    sufficient : float, default=1e-4
        The share c of what the gradient promises.

    Returns
    -------
    moved : ndarray
        The first trial that is accepted; L itself where none is, or the gradient is zero.
    step : float
        The accepted multiple of the gradient, or 0.
    before, after : float
        The objective at L and at the moved L.
    n_backtracks : int

    Notes
    -----
    Derived in chapter 14 (dictionary), eq. (dictionary-armijo).
    """
    before, gradient = objective(L)
    slope = gradient()
    steepness = linalg.norm(slope)
    if steepness == 0.0:
        return L, 0.0, before, before, 0
    step = max_move * linalg.norm(L) / steepness
    for n_backtracks in range(max_backtracks + 1):
        moved = L - step * slope
        after = objective(moved)[0]
        if after <= before - sufficient * step * steepness**2:
            return moved, float(step), before, after, n_backtracks
        step /= 2
    return L, 0.0, before, before, n_backtracks


# book/dictionary.ipynb#how-far
def dictionary_step(
    dictionary: Floats,
    code: Floats,
    X: MatrixLike,
    triplets: ArrayLike,
    metric_type: str,
    memory: GradientMemory | RunningGradient | None = None,
    codes: Mapping[Hashable, Floats] | None = None,
    dictionary_penalty: float = 0.0,
    max_move: float = 0.1,
    max_backtracks: int = 20,
) -> DictionaryStep:
    """One step of the dictionary that lowers its objective, made orthonormal again.

    Parameters
    ----------
    dictionary : array-like of shape (d, D), d <= D
        L.
    code, X, triplets, metric_type, memory, codes, dictionary_penalty
        As in `dictionary_objective`.
    max_move : float, default=0.1
        Longest trial step, as a fraction of ||L||_F.
    max_backtracks : int, default=20
        How often the trial step may be halved before the dictionary is left as it is.

    Returns
    -------
    DictionaryStep
        ``dictionary`` Q and ``change`` S with L_moved = S Q. Pass the codes through
        `keep_codes` (with S) or `keep_metrics` (with both dictionaries) afterwards, and tell
        ``memory.change_basis`` the matrix C of W -> C W C' (S', or Q L').

    Raises
    ------
    ValueError
        If shapes do not fit or a number is out of range.

    Notes
    -----
    Derived in chapter 14 (dictionary), eqs. (dictionary-armijo) and (dictionary-polar).
    Paper: section IV-C, eq. 14 and Algorithm 2, line 12.
    """
    L = check_dense(dictionary, "dictionary", order="C")
    d = len(L)
    if np.shape(code) != (d, d):
        raise ValueError(f"code has shape {np.shape(code)}, dictionary {d} rows: use ({d}, {d})")
    real(0).check("dictionary_penalty", dictionary_penalty)
    real(0, above=True).check("max_move", max_move)
    whole(0).check("max_backtracks", max_backtracks)
    X, triplets = check_problem(FactoredMetric(0.0, L, code), X, triplets, metric_type)
    objective = step_objective(code, X, triplets, metric_type, memory, codes, dictionary_penalty)
    return descend(objective, L, max_move, max_backtracks)


def descend(
    objective: Callable[[Floats], tuple[float, Callable[[], Floats]]],
    L: Floats,
    max_move: float,
    max_backtracks: int = 20,
) -> DictionaryStep:
    """One step of a dictionary along minus a gradient, made orthonormal again.

    The arguments are those of `line_search`, checked before.
    """
    moved, step_size, before, after, n_backtracks = line_search(
        objective, L, max_move, max_backtracks
    )
    change, rows = _polar(moved)
    return DictionaryStep(
        dictionary=rows,
        change=change,
        step_size=step_size,
        objective_before=before,
        objective_after=after,
        n_backtracks=n_backtracks,
    )


# book/dictionary.ipynb#two-policies-for-old-tasks
def keep_metrics(code: Floats, old_dictionary: Floats, new_dictionary: Floats) -> Floats:
    """Re-code a metric in a moved dictionary: C W C' with C = L_new L_old', no threshold.

    Parameters
    ----------
    code : ndarray of shape (d, d)
        W, the code of the metric L_old' W L_old.
    old_dictionary : ndarray of shape (d, D)
        L_old.
    new_dictionary : ndarray of shape (d_new, D)
        L_new, with orthonormal rows.

    Returns
    -------
    ndarray of shape (d_new, d_new)
        The code in L_new of the metric nearest to the old one; the same metric exactly when
        the rows of L_old lie in the row space of L_new.

    Raises
    ------
    ValueError
        If the rows of the new dictionary are not orthonormal.

    Notes
    -----
    Derived in chapter 14 (dictionary), eqs. (dictionary-keep-metrics) and
    (dictionary-keep-residual).

    Examples
    --------
    >>> import numpy as np
    >>> keep_metrics(np.diag([1.0, 2.0]), np.eye(2), np.eye(2)[::-1]).tolist()
    [[2.0, 0.0], [0.0, 1.0]]
    """
    gram = new_dictionary @ new_dictionary.T
    off = float(np.max(np.abs(gram - np.eye(len(gram)))))
    if off > 1e-8:
        raise ValueError(
            f"new_dictionary has rows that are {off:.1e} from orthonormal: use polar_factors"
        )
    across = new_dictionary @ old_dictionary.T
    return keep_codes(code, across.T)


# book/dictionary.ipynb#codes-that-follow-when-they-are-read
class MovingCodes(Mapping[Any, Floats]):
    """Codes of tasks in a dictionary that moves; a code follows when it is read.

    A table never changes: `after` and `without` give new ones. Reading gives the code in the
    dictionary as it is now.

    Parameters
    ----------
    codes : dict, default={}
        Tasks to codes (d, d), all in the present dictionary; they are made read-only.

    Notes
    -----
    Derived in chapter 14 (dictionary), eqs. (dictionary-compose) and (dictionary-dyadic). A visit
    costs the same for any number of tasks, but for copies of tables of references; reading a code
    that has waited for m moves takes at most 2 log2(m) + 3 more products of d x d matrices.

    Examples
    --------
    >>> import numpy as np
    >>> table = MovingCodes({"a": np.eye(2), "b": np.eye(2)})
    >>> table = table.after({"c": np.eye(2)}, change=np.diag([1.0, 0.5]))
    >>> [code[1, 1].item() for code in table.values()], len(table.moves)
    ([0.25, 0.25, 1.0], 1)
    """

    def __init__(self, codes: Mapping[Any, Floats] | None = None) -> None:
        self._codes: dict[Any, Floats] = dict(codes or {})
        self._since: dict[Any, int] = dict.fromkeys(self._codes, 0)  # longest waiting first
        self._moves: dict[tuple[int, int], Floats] = {}  # (k, i): moves i 2^k to (i + 1) 2^k
        self._count = 0
        self._lock()

    def _lock(self) -> None:
        for array in (*self._codes.values(), *self._moves.values()):
            array.flags.writeable = False

    def __setstate__(self, parts: dict[str, Any]) -> None:
        vars(self).update(parts)
        self._lock()  # a copy is locked too

    def __getitem__(self, task: Any) -> Floats:
        return self._read(task, {})

    def _read(self, task: Any, changes: dict[int, Floats | None]) -> Floats:
        """A code as it is now; tasks that have waited equally long share a product."""
        code = self._codes[task]
        first = self._since[task]
        if first not in changes:
            changes[first] = self._change(first)
        change = changes[first]
        if change is not None:
            code = keep_codes(code, change)
            code.flags.writeable = False
        return code

    def _change(self, first: int) -> Floats | None:
        """The product of all moves from one on, by blocks; None if there is none."""
        product = None
        while first < self._count:
            k = 0
            while first % 2 ** (k + 1) == 0 and first + 2 ** (k + 1) <= self._count:
                k += 1
            block = self._moves[k, first >> k]
            product = block if product is None else product @ block
            first += 2**k
        return product

    def __iter__(self) -> Iterator[Any]:
        return iter(self._codes)

    def __len__(self) -> int:
        return len(self._codes)

    def __contains__(self, task: object) -> bool:
        return task in self._codes

    def waiting(self, most: int | None = None, but: Collection[Any] = ()) -> dict[Any, Floats]:
        """Codes of the tasks that have waited longest, in the order of the table.

        Parameters
        ----------
        most : int, optional
            How many at most; all when left out.
        but : collection, default=()
            Tasks to leave out.

        Returns
        -------
        dict
        """
        others = (task for task in self._since if task not in but)
        chosen = set(itertools.islice(others, most))
        changes: dict[int, Floats | None] = {}
        return {task: self._read(task, changes) for task in self._codes if task in chosen}

    def after(self, codes: Mapping[Any, Floats], change: Floats | None = None) -> "MovingCodes":
        """The table after a move of the dictionary.

        Parameters
        ----------
        codes : dict
            Tasks, known or new, to their codes in the moved dictionary.
        change : ndarray of shape (d, d), optional
            S of W -> S' W S, by which all others follow; None if the dictionary stayed.

        Returns
        -------
        MovingCodes
        """
        new = self._twin()
        if change is not None:
            new._append(change)
        for task, code in codes.items():
            code.flags.writeable = False
            new._since.pop(task, None)
            new._since[task] = new._count
            new._codes[task] = code
        new._let_go()
        return new

    def without(self, task: Hashable) -> "MovingCodes":
        """The table without a task."""
        new = self._twin()
        del new._codes[task], new._since[task]
        new._let_go()
        return new

    def _twin(self) -> "MovingCodes":
        """A copy with tables of its own, for the same arrays."""
        new = MovingCodes()
        new._codes = dict(self._codes)
        new._since = dict(self._since)
        new._moves = dict(self._moves)
        new._count = self._count
        return new

    def _let_go(self) -> None:
        """Drop the blocks that begin before the oldest code."""
        oldest = next(iter(self._since.values()), self._count)
        if oldest == self._count:  # nobody waits: count from 0 again, in the order of the table
            self._moves = {}
            self._count = 0
            self._since = dict.fromkeys(self._codes, 0)
        for place in range(next(iter(self._moves), (0, oldest))[1], oldest):
            k = 0
            while self._moves.pop((k, place >> k), None) is not None and not place >> k & 1:
                k += 1

    def _append(self, change: Floats) -> None:
        """Add a move, and the blocks that it completes."""
        k = 0
        place = self._count
        self._count += 1
        self._moves[0, place] = change
        change.flags.writeable = False
        while place % 2 and (k, place - 1) in self._moves:
            change = self._moves[k, place - 1] @ change
            k += 1
            place //= 2
            self._moves[k, place] = change
            change.flags.writeable = False

    @property
    def nbytes(self) -> int:
        """Bytes of the codes."""
        return sum(code.nbytes for code in self._codes.values())

    @property
    def stored(self) -> list[Floats]:
        """The codes as they were when each was stored."""
        return list(self._codes.values())

    @property
    def moves(self) -> list[Floats]:
        """The moves that are kept, oldest first."""
        return [change for (k, _), change in self._moves.items() if k == 0]

    @property
    def moves_nbytes(self) -> int:
        """Bytes of the moves and of their products."""
        return sum(change.nbytes for change in self._moves.values())

    @property
    def queue(self) -> list[tuple[int, int]]:
        """Of each task, longest waiting first: its place, and the move that it waits for."""
        places = {task: place for place, task in enumerate(self._codes)}
        return [(places[task], first) for task, first in self._since.items()]

    @classmethod
    def restored(
        cls, codes: Mapping[Any, Floats], queue: Sequence[tuple[int, int]], moves: Iterable[Floats]
    ) -> "MovingCodes":
        """The table with these parts: `stored` codes, the `queue` and the `moves`."""
        table = MovingCodes(codes)
        tasks = list(codes)
        table._since = {tasks[place]: first for place, first in queue}
        table._count = queue[0][1]
        for change in moves:
            table._append(change)
        return table


# book/dictionary.ipynb#what-a-task-stretches
def stretch_step(
    dictionary: Floats, stretch: Floats, target: FactoredMetric
) -> tuple[Floats, Floats]:
    """Move a dictionary to the directions that the tasks so far stretch most.

    Parameters
    ----------
    dictionary : ndarray of shape (d, D)
        L, with orthonormal rows.
    stretch : ndarray of shape (d,)
        How much the tasks so far stretch each row, >= 0.
    target : FactoredMetric on D features
        The metric of the new task; its symmetric part counts.

    Returns
    -------
    dictionary : ndarray of shape (d, D)
        Orthonormal rows, the most stretched one first.
    stretch : ndarray of shape (d,)
        How much all tasks stretch each row, falling.

    Notes
    -----
    Derived in chapter 14 (dictionary), eqs. (dictionary-stretched), (dictionary-stretch-sum) and
    (dictionary-span). A target that is a multiple of the identity stretches nothing and changes
    nothing.

    Examples
    --------
    >>> import numpy as np
    >>> from lml.metrics import FactoredMetric
    >>> target = FactoredMetric.from_dense(np.diag([1.0, 1.0, 1.0, 1.5, 4.0]))
    >>> dictionary, stretch = stretch_step(np.eye(5)[:2], np.array([0.2, 0.1]), target)
    >>> np.abs(dictionary).tolist()
    [[0.0, 0.0, 0.0, 0.0, 1.0], [1.0, 0.0, 0.0, 0.0, 0.0]]
    >>> stretch.round(2).tolist()
    [0.86, 0.2]
    """
    d, D = dictionary.shape
    L, F = dictionary, target.factor
    # the factor's rows in an orthonormal basis [L; Q] of all that matters: F = P L + root Q
    P = times_transpose(F, L)
    gram = times_transpose(F, F)
    squares, U = linalg.eigh(gram - P @ P.T)
    keep = squares > len(gram) * np.finfo(float).eps * np.trace(gram)
    U = U[:, keep]
    roots = np.sqrt(squares[keep])
    coordinates = np.hstack([P, U * roots])  # (r, d + k)
    # the new task's stretch: what is above the median of all D eigenvalues (alpha cancels)
    M = target._by_core(coordinates.T) @ coordinates
    values, vectors = linalg.eigh((M + M.T) / 2)
    level = np.median(np.concatenate([values, np.zeros(D - len(values))]))
    above = np.maximum(values - level, 0.0)
    above[above <= D * np.finfo(float).eps * np.abs(values).max()] = 0.0
    if not above.any():
        return dictionary, stretch
    total = (vectors * (above / above.sum())) @ vectors.T
    total[:d, :d] += np.diag(stretch)
    # its leading eigenvectors, first in the basis and then in the features
    stretch, turn = linalg.eigh(total, subset_by_index=[len(total) - d, len(total) - 1])
    by_row, by_rest = turn[:d, ::-1], (U / roots) @ turn[d:, ::-1]
    moved = (by_row - P.T @ by_rest).T @ L + by_rest.T @ F
    return _polar(moved)[1], np.maximum(stretch[::-1], 0.0)
