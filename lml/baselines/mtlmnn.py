# Generated from book/baselines/mtlmnn.ipynb by tools/tangle.py: edit the chapter.
"""Large margin nearest neighbours for several tasks: one shared and one own part a task.

min shared ||M_0 - I||^2 + sum_t [own ||M_t||^2 + pull and push of task t under M_0 + M_t],
by spectral projected gradient steps on the smoothed problem, with a duality gap.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse
from sklearn.base import BaseEstimator

from lml.baselines.pooled import JointMetricsMixin, split_tasks
from lml.metrics import FactoredMetric, _is_real, _svd
from lml.neighbors import _class_numbers
from lml.triplets import _classes_with_triplets, _count, _nearest_rows
from lml.utils.typing import Floats, Indices, LabelsLike, Matrix, MatrixLike

__all__ = ["MultiTaskLMNN"]


# book/baselines/mtlmnn.ipynb#the-gradient
def _target_table(X: Floats, codes: Indices, n_targets: int) -> Indices:
    """The nearest rows of the same class of each row, (n, n_targets); -1 where there is none."""
    table = np.full((len(X), n_targets), -1)
    for code in range(codes.max() + 1):
        same = np.flatnonzero(codes == code)
        k = min(n_targets, len(same) - 1)
        if k:
            table[same, :k] = _nearest_rows(X, same, same, k)
    return table


# book/baselines/mtlmnn.ipynb#the-gradient
class _TaskLoss:
    """Pull and smoothed push of one task, functions of its metric."""

    def __init__(
        self, X: Floats, codes: Indices, targets: Indices, push_weight: float, smoothing: float
    ) -> None:
        self.X = X
        self.targets = targets
        self.given = targets >= 0
        self.mu = push_weight
        self.h = smoothing
        anchors, places = np.nonzero(self.given)
        self.pairs = anchors, targets[anchors, places]
        blocks = [(np.flatnonzero(codes == c), np.flatnonzero(codes != c)) for c in set(codes)]
        self.blocks = [(a, b) for a, b in blocks if self.given[a].any()]

    def target_distances(self, XS: Floats, norms: Floats) -> Floats:
        """Distances to the target neighbours, (n, k); zero where there is none."""
        cross = np.einsum("ij,ikj->ik", XS, self.X[self.targets])
        return np.where(self.given, norms[:, None] + norms[self.targets] - 2 * cross, 0.0)

    def violations(
        self, XS: Floats, norms: Floats, limits: Floats
    ) -> Iterator[tuple[Indices, Indices, Floats]]:
        """For each block: anchors, impostors, and by how much each triplet is violated."""
        for a, b in self.blocks:
            squares = XS[a] @ self.X[b].T
            squares *= -2
            squares += norms[b]  # the distances less the norms of the anchors
            own = limits[a] - norms[a, None]
            near = np.flatnonzero(squares < own.max(axis=1)[:, None])
            i = near // len(b)
            excess = own[i] - squares.ravel()[near][:, None]
            yield a[i], b[near - i * len(b)], np.maximum(excess, 0.0)

    def coefficients(self, parts: Sequence[tuple[Indices, Indices, Floats]]) -> Matrix:
        """Omega of the smoothed loss, sparse, from the weights of the violated triplets."""
        (i, j), n, k = self.pairs, *self.targets.shape
        on_targets = np.zeros((n, k))
        for anchors, _, a in parts:
            on_targets += np.stack([np.bincount(anchors, col, n) for col in a.T], axis=1)
        pull = (1 - self.mu) + self.mu * on_targets[self.given]
        push = [-self.mu * a.sum(axis=1) for _, _, a in parts]
        rows = np.concatenate([i, *(anchors for anchors, _, _ in parts)])
        columns = np.concatenate([j, *(others for _, others, _ in parts)])
        place = (rows, columns)
        values = np.concatenate([pull, *push])
        return sparse.csr_array((values, place), shape=(n, n))

    def __call__(self, S: Floats) -> tuple[float, Floats, float, float]:
        """Smoothed loss, its gradient, the loss with the hinge, mu sum of (a - h/2 a^2)."""
        X = self.X
        mu = self.mu
        h = self.h
        XS = X @ S
        norms = np.einsum("ij,ij->i", XS, X)
        to_targets = self.target_distances(XS, norms)
        limits = np.where(self.given, 1.0 + to_targets, -np.inf)
        parts = []
        sums = np.zeros(4)
        for i, k, u in self.violations(XS, norms, limits):
            a = np.minimum(u / h, 1.0)
            parts.append((i, k, a))
            sums += np.vdot(a, u), np.vdot(a, a), a.sum(), u.sum()
        pull = (1 - mu) * to_targets.sum()
        (linear, square, weight, hinge) = mu * sums
        gradient = _quadratic_form(X, self.coefficients(parts))
        return pull + linear - h / 2 * square, gradient, pull + hinge, weight - h / 2 * square


# book/baselines/mtlmnn.ipynb#the-gradient
def _quadratic_form(X: Floats, Omega: Matrix) -> Floats:
    """X' K X with K = diag(row and column sums of Omega) - Omega - Omega'."""
    sums = Omega.sum(axis=0) + Omega.sum(axis=1)
    if Omega.nnz > 0.03 * len(X) ** 2:  # a dense product is faster then
        Omega = Omega.toarray()
    half = X.T @ (sums[:, None] * X / 2 - Omega @ X)
    return half + half.T


# book/baselines/mtlmnn.ipynb#of-all-tasks-together
class _Joint:
    """The smoothed problem of all tasks; unknowns are a stack of matrices."""

    def __init__(
        self,
        losses: Sequence[_TaskLoss],
        n_pairs: int,
        shared: float,
        own: Floats,
        constraint: str,
        bases: Sequence[Floats | None] | None = None,
    ) -> None:
        self.losses = losses
        self.n_pairs = n_pairs
        self.shared = shared
        self.own = np.asarray(own, dtype=float)
        self.totals = constraint == "totals" and np.isfinite(self.own).all()
        self.identity = np.eye(losses[0].X.shape[1])
        self.bases = bases if bases and not self.totals else [None] * len(losses)

    def start(self) -> Floats:
        """M_0 = I and M_t = 0."""
        blocks = np.zeros((len(self.losses) + (not self.totals), *self.identity.shape))
        blocks[slice(None) if self.totals else 0] = self.identity
        return blocks

    def split(self, V: Floats) -> tuple[Floats, Floats]:
        """The shared part and the own parts, (D, D) and (T, D, D)."""
        if not self.totals:
            return V[0], V[1:]
        if np.isinf(self.shared):
            return self.identity, V - self.identity
        total = self.shared * self.identity + np.tensordot(self.own, V, 1)
        M0 = total / (self.shared + self.own.sum())
        return M0, V - M0

    def metrics(self, V: Floats) -> Floats:
        """The totals M_0 + M_t, (T, D, D)."""
        return V if self.totals else V[0] + V[1:]

    def evaluate(self, V: Floats) -> "_State":
        """Objective, gradient, and what the duality gap needs."""
        M0, own = self.split(V)
        found = zip(*map(_call, self.losses, self.metrics(V)), strict=True)
        values, slopes, hinges, linears = found
        G = np.array(slopes) / self.n_pairs
        g0 = _finite(self.shared)
        g = _finite(self.own)
        penalty = g0 * np.sum((M0 - self.identity) ** 2) + g @ np.sum(own**2, axis=(1, 2))
        gradient = G + 2 * g[:, None, None] * own
        if not self.totals:
            gradient[np.isinf(self.own)] = 0.0
            first = 2 * g0 * (M0 - self.identity) + G.sum(axis=0)
            gradient = np.concatenate([first[None] * np.isfinite(self.shared), gradient])
        value, hinge, linear = (sum(part) / self.n_pairs for part in (values, hinges, linears))
        return _State(value + penalty, gradient, hinge + penalty, linear, G, (M0, own))

    # book/baselines/mtlmnn.ipynb#steps
    def project(self, V: Floats) -> Floats:
        """The nearest feasible stack."""
        bases = self.bases if self.totals else [None, *self.bases]
        return np.array([_nearest_psd(A, basis) for A, basis in zip(V, bases, strict=True)])

    # book/baselines/mtlmnn.ipynb#the-duality-gap
    def bound(self, state: "_State") -> float:
        """A lower bound of the smallest objective, by the weights of a state."""
        G = state.task_gradients
        g0 = self.shared
        g = self.own
        (_, own) = state.parts
        if self.totals:
            G = G - self.project(G + 2 * g[:, None, None] * own)
        total = G.sum(axis=0)
        if self.totals or np.isinf(g0):
            least = np.trace(total) - np.sum(total**2) / (4 * g0)
        else:
            moved = _nearest_psd(self.identity - total / (2 * g0))
            least = g0 * (len(total) - np.sum(moved**2))
        if not self.totals:
            G = np.array([_nearest_psd(-A, basis) for A, basis in zip(G, self.bases, strict=True)])
        return state.linear + least - np.sum(np.sum(G**2, axis=(1, 2)) / (4 * g))


# book/baselines/mtlmnn.ipynb#of-all-tasks-together
class _State(NamedTuple):
    """The joint objective at one point, and what its gradient and its bound need."""

    objective: float
    gradient: Floats
    hinge_objective: float
    linear: float
    task_gradients: Floats
    parts: tuple[Floats, Floats]


def _finite(weight: Any) -> Floats:
    """The weight, or 0 where it is infinite and its part is frozen."""
    return np.where(np.isinf(weight), 0.0, weight)


def _call(function: Callable[[Floats], Any], argument: Floats) -> Any:
    return function(argument)


# book/baselines/mtlmnn.ipynb#steps
def _spectral_length(move: Floats, change: Floats, last: float) -> float:
    """Inverse of the curvature met on a move; ten times the last where there was none."""
    bend = np.vdot(move, change)
    return float(np.vdot(move, move) / bend) if bend > 0 else 10 * last


# book/baselines/mtlmnn.ipynb#steps
def _spectral_steps(
    evaluate: Callable[[Floats], _State],
    project: Callable[[Floats], Floats],
    V: Floats,
    state: _State,
) -> Iterator[tuple[Floats, _State]]:
    """Iterates of the spectral projected gradient method and their states.

    Derived in chapter 27 (baselines/mtlmnn), eqs. (mtlmnn-step) and (mtlmnn-search). It ends where
    no step leads down.
    """
    step = 1.0 / max(np.abs(state.gradient).max(), 1e-300)
    recent = [state.objective]
    while True:
        direction = project(V - step * state.gradient) - V
        slope = np.vdot(state.gradient, direction)
        length = 1.0
        ceiling = max(recent[-10:])
        if slope > -1e-14 * abs(state.objective):
            return
        found = evaluate(V + direction)
        while found.objective > ceiling + 1e-4 * length * slope and length > 1e-10:
            length /= 2
            found = evaluate(V + length * direction)
        step = _spectral_length(length * direction, found.gradient - state.gradient, step)
        V = V + length * direction
        state = found
        recent.append(state.objective)
        yield V, state


# book/baselines/mtlmnn.ipynb#steps
def _nearest_psd(A: Floats, basis: Floats | None = None) -> Floats:
    """A without its negative eigenvalues; of A = B'NB with orthonormal rows B by way of N."""
    if basis is not None:
        return basis.T @ _nearest_psd(basis @ A @ basis.T) @ basis
    values, vectors = linalg.eigh(A, driver="evd", check_finite=False)
    cut = int(np.searchsorted(values, 0.0))
    if cut == 0:
        return A
    if 2 * cut > len(values):
        kept = vectors[:, cut:] * np.sqrt(values[cut:])
        return kept @ kept.T
    dropped = vectors[:, :cut] * np.sqrt(-values[:cut])
    return A + dropped @ dropped.T


# book/baselines/mtlmnn.ipynb#the-duality-gap
def _minimize(joint: _Joint, max_iter: int, tol: float) -> tuple[Floats, _State, float, Floats]:
    """Stack, state, largest lower bound and objectives of the best iterate."""
    V = joint.start()
    state = joint.evaluate(V)
    best = (V, state)
    bound = joint.bound(state)
    history = [state.objective]
    steps = _spectral_steps(joint.evaluate, joint.project, V, state)
    for n_iter, (V, state) in enumerate(islice(steps, max_iter), start=1):
        history.append(float(state.objective))
        if state.objective < best[1].objective:
            best = V, state
        if n_iter % 10 == 0:
            bound = max(bound, joint.bound(state))
            if best[1].objective - bound <= tol * abs(best[1].objective):
                break
    bound = max(bound, joint.bound(best[1]))
    return *best, float(bound), np.array(history, dtype=float)


# book/baselines/mtlmnn.ipynb#fewer-dimensions
def _row_space(rows: Floats) -> Floats | None:
    """Orthonormal rows that span the given (centred) rows; None if they span everything."""
    n, D = rows.shape
    _, values, basis = _svd(rows)
    keep = values > max(n, D) * np.finfo(float).eps * values.max(initial=0.0)
    if keep.all() and len(keep) == D:
        return None
    return basis[keep] if keep.any() else np.eye(1, D)


def _mean_square(rows: Sequence[Floats], tables: Sequence[Indices]) -> float:
    """Mean squared distance of target pairs; of rows from their mean where that is zero."""
    total = 0.0
    count = 0
    for X, table in zip(rows, tables, strict=True):
        gaps = X[:, None] - X[table]
        total += np.sum(np.sum(gaps**2, axis=2)[table >= 0])
        count += int(np.sum(table >= 0))
    spread = np.mean([np.mean(np.sum(X**2, axis=1)) for X in rows])
    return total / count or spread or 1.0


# book/baselines/mtlmnn.ipynb#the-estimator
class MultiTaskLMNN(JointMetricsMixin, BaseEstimator):
    """Large margin nearest neighbours for several tasks at once.

    Parameters
    ----------
    shared_penalty : float, default=0.01
        gamma_0 > 0, how strongly the shared part is drawn to the identity. Infinite: it is
        the identity, and the tasks are independent.
    task_penalty : float or dict, default=0.01
        gamma_t > 0, how strongly each own part is drawn to zero; a dict gives one finite
        number a task. Infinite: there are no own parts, all tasks have one metric.
    constraint : {"parts", "totals"}, default="parts"
        What is kept positive semi-definite: M_0 and every M_t, as published, or M_0 and
        every M_0 + M_t, as in the authors' program.
    n_targets : int, default=3
        Target neighbours of a row; fewer where its class has no more.
    push_weight : float in (0, 1), default=0.5
        mu, the weight of the push; the pull has 1 - mu.
    scale : "auto" or float, default="auto"
        The multiple of the identity that the shared part is drawn to, and the unit of both
        penalties. "auto": one over the mean squared distance of target neighbours. 1.0 is
        the published problem.
    smoothing : float, default=0.1
        Width h > 0 of the smoothed kink of the hinge.
    max_iter : int, default=100
        Largest number of steps.
    tol : float, default=1e-3
        Stop when the duality gap is at most this share of the objective.

    Attributes
    ----------
    metrics_ : dict
        Task name to its FactoredMetric, positive semi-definite.
    shared_metric_ : FactoredMetric
        The shared part M_0.
    tasks_ : list
        Task names in order of appearance.
    scale_ : float
        The multiple used.
    objective_ : float
        The objective of the result, with the true hinge.
    objective_history_ : ndarray of shape (n_iter + 1,)
        Smoothed objective of the iterates; it may rise for a step, the best one is kept.
    dual_bound_ : float
        No metrics have a smoothed objective below this.
    gap_ : float
        Distance of the result's smoothed objective to the bound, as a share of it.
    n_iter_ : int
    n_features_in_ : int

    Notes
    -----
    Derived in chapter 27 (baselines/mtlmnn), eqs. (mtlmnn-objective), (mtlmnn-scale),
    (mtlmnn-gradient-parts), (mtlmnn-gradient-totals), (mtlmnn-step), (mtlmnn-dual-parts),
    (mtlmnn-dual-totals) and (mtlmnn-row-space). Paper: section V-A (mtLMNN). Small penalties make
    the problem ill-conditioned: `max_iter` ends the fit then, and `gap_` says how far it came.

    Examples
    --------
    >>> from lml.datasets import load_digits_tasks
    >>> tasks = load_digits_tasks(random_state=0)
    >>> X = np.concatenate([task.X_train for task in tasks])
    >>> y = np.concatenate([task.y_train for task in tasks])
    >>> names = np.repeat([task.name for task in tasks], [len(task.y_train) for task in tasks])
    >>> learner = MultiTaskLMNN(max_iter=5).fit(X, y, tasks=names)
    >>> learner.task_metric("4-5-6").shape
    (64, 64)
    """

    metric_type = "distance"

    # fmt: off
    def __init__(
        self,
        shared_penalty: float = 0.01,
        task_penalty: float | Mapping[Any, float] = 0.01,
        *,
        constraint: str = "parts",
        n_targets: int = 3,
        push_weight: float = 0.5,
        scale: float | str = "auto",
        smoothing: float = 0.1,
        max_iter: int = 100,
        tol: float = 1e-3,
    ) -> None:
        # fmt: on
        self.shared_penalty = shared_penalty
        self.task_penalty = task_penalty
        self.constraint = constraint
        self.n_targets = n_targets
        self.push_weight = push_weight
        self.scale = scale
        self.smoothing = smoothing
        self.max_iter = max_iter
        self.tol = tol

    def _check_parameters(self) -> None:
        """Every parameter in its range, or an error."""
        _positive(self.shared_penalty, "shared_penalty", infinite=True)
        for name in ("smoothing", "tol", *(["scale"] if self.scale != "auto" else [])):
            _positive(getattr(self, name), name)
        if _positive(self.push_weight, "push_weight") >= 1:
            raise ValueError(f"push_weight is {self.push_weight!r}: give a number below 1")
        if self.constraint not in ("parts", "totals"):
            raise ValueError(f"constraint is {self.constraint!r}: use 'parts' or 'totals'")
        for name in ("n_targets", "max_iter"):
            _count(getattr(self, name), name)

    def _own_penalties(self, names: list[Any]) -> Floats:
        """gamma_t of each task, finite or all infinite."""
        if not isinstance(self.task_penalty, dict):
            own = [_positive(self.task_penalty, "task_penalty", infinite=True)] * len(names)
        elif set(self.task_penalty) != set(names):
            raise ValueError(
                f"task_penalty has the tasks {list(self.task_penalty)}, but the rows have {names}: "
                "give one number for each task"
            )
        else:
            own = [_positive(self.task_penalty[t], f"task_penalty[{t!r}]") for t in names]
        if np.isinf([self.shared_penalty, *own]).all():
            raise ValueError("shared_penalty and task_penalty are both infinite: nothing to learn")
        return np.array(own)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        return tags

    def fit(self, X: MatrixLike, y: LabelsLike, *, tasks: Iterable[Hashable]) -> Self:
        """Learn the metrics of all tasks.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows of all tasks, dense.
        y : array-like of shape (n_samples,)
            Labels; in every task at least two classes, one of them with two rows.
        tasks : array-like of shape (n_samples,)
            Name of the task of each row.

        Returns
        -------
        self : MultiTaskLMNN

        Raises
        ------
        TypeError
            If X is sparse.
        ValueError
            If a parameter is out of range, X is not finite, lengths differ, or the labels of
            a task allow no triplet. Nothing is stored then.
        """
        self._check_parameters()
        parts = split_tasks(X, y, tasks)
        if sparse.issparse(parts[0][1]):
            raise TypeError(
                f"X is sparse {np.shape(X)}, but the metrics fill all {np.shape(X)[-1]} features: "
                "reduce the rows first, for example with sklearn's TruncatedSVD"
            )
        names = [name for name, _, _ in parts]
        own = self._own_penalties(names)
        for name, _, labels in parts:
            _check_task(name, labels)
        joint, Q, scale = self._joint(parts, own)
        V, state, bound, history = _minimize(joint, self.max_iter, self.tol)
        self._note_columns(X)
        return self._store(names, joint.metrics(V), state, Q, scale, bound, history)

    def _joint(
        self, parts: list[tuple[Any, Matrix, NDArray[Any]]], own: Floats
    ) -> tuple[_Joint, Floats | None, float]:
        """The problem in scaled rows of the common row space, that space, and the scale."""
        rows = [X - np.mean(X, axis=0, dtype=float) for _, X, _ in parts]  # distances stay
        codes = [_class_numbers(y)[0] for _, _, y in parts]
        given = [(X, c, self.n_targets) for (_, X, _), c in zip(parts, codes, strict=True)]
        tables = [_target_table(*part) for part in given]
        auto = isinstance(self.scale, str)
        scale = 1.0 / _mean_square(rows, tables) if auto else float(self.scale)
        Q = _row_space(np.concatenate(rows))
        rows = [np.sqrt(scale) * (X if Q is None else X @ Q.T) for X in rows]
        settings = zip(rows, codes, tables, strict=True)
        losses = [_TaskLoss(*part, self.push_weight, self.smoothing) for part in settings]
        n_pairs = sum(len(loss.pairs[0]) for loss in losses)
        bases = [_row_space(X) if 2 * len(X) < X.shape[1] else None for X in rows]
        return _Joint(losses, n_pairs, self.shared_penalty, own, self.constraint, bases), Q, scale

    def _store(
        self,
        names: list[Any],
        totals: Floats,
        state: _State,
        Q: Floats | None,
        scale: float,
        bound: float,
        history: Floats,
    ) -> Self:
        """Metrics of the rows as they were given, and the record of the fit."""

        def metric(S: Floats) -> FactoredMetric:
            S = scale * (S + S.T) / 2
            if Q is None:
                return FactoredMetric(0.0, np.eye(len(S)), S)
            return FactoredMetric(scale, Q, S - scale * np.eye(len(S)))

        self.metrics_ = {name: metric(S) for name, S in zip(names, totals, strict=True)}
        self.shared_metric_ = metric(state.parts[0])
        self.tasks_ = names
        self.scale_ = float(scale)
        self.objective_ = float(state.hinge_objective)
        self.dual_bound_ = bound
        self.gap_ = float(state.objective - bound) / max(abs(state.objective), 1e-300)
        self.objective_history_ = history
        self.n_iter_ = len(history) - 1
        return self


# book/baselines/mtlmnn.ipynb#the-estimator
def _positive(value: Any, name: str, infinite: bool = False) -> float:
    """Return a positive number, or say what is wrong with it."""
    good = _is_real(value) and value > 0
    if not good or (np.isinf(value) and not infinite):
        kind = "a positive number, which may be infinite" if infinite else "a finite number above 0"
        raise ValueError(f"{name} is {value!r}: give {kind}")
    return float(value)


# book/baselines/mtlmnn.ipynb#the-estimator
def _check_task(name: Any, labels: NDArray[Any]) -> None:
    """An error that names the task whose labels allow no triplet."""
    try:
        _classes_with_triplets(labels)
    except ValueError as error:
        raise ValueError(f"task {name!r}: {error}") from None
