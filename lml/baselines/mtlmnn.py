# Generated from book/baselines/mtlmnn.ipynb by tools/tangle.py: edit the chapter.
"""Large margin nearest neighbors for several tasks: one shared and one own part a task.

min shared ||M_0 - I||^2 + sum_t [own ||M_t||^2 + pull and push of task t under M_0 + M_t],
by spectral projected gradient steps on the smoothed problem, with a duality gap.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from scipy import linalg, sparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning

from lml.baselines.pooled import JointMetricsMixin, encode_tasks
from lml.lmnn import row_space, target_neighbors
from lml.metrics import FactoredMetric
from lml.utils.progress import progress
from lml.utils.typing import Floats, Indices, LabelsLike, Matrix, MatrixLike
from lml.utils.validation import LARGEST_REAL, Rule, check_parameters, flag, one_of, real, whole

__all__ = [
    "JointProblem",
    "JointState",
    "MultiTaskLMNN",
    "TaskLoss",
    "minimize_joint",
    "target_table",
]


# book/baselines/mtlmnn.ipynb#the-gradient
def target_table(X: Floats, codes: Indices, n_targets: int) -> Indices:
    """The nearest samples of the same class of each sample.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
    codes : ndarray of int, shape (n_samples,)
        The class of each sample.
    n_targets : int

    Returns
    -------
    table : ndarray of int, shape (n_samples, n_targets)
        From near to far; -1 where a class has no more samples.

    Notes
    -----
    Derived in chapter 28 (baselines/mtlmnn), eq. (mtlmnn-loss).

    Examples
    --------
    >>> target_table(np.array([[0.0], [1.0], [3.0], [9.0]]), np.array([0, 0, 0, 1]), 2).tolist()
    [[1, 2], [0, 2], [1, 0], [-1, -1]]
    """
    i, j = target_neighbors(X, codes, n_targets).T
    table = np.full((len(X), min(n_targets, len(X) - 1)), -1)
    table[i, np.arange(len(i)) - np.searchsorted(i, i)] = j  # places 0, 1, ... of each sample
    return table


class TaskLoss:
    """Pull and smoothed push of one task, functions of its metric.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        The task's samples.
    codes : ndarray of int, shape (n_samples,)
        The class of each sample.
    targets : ndarray of int, shape (n_samples, n_targets)
        From `target_table`.
    push_weight : float
        mu, in (0, 1).
    smoothing : float
        Width h > 0 of the smoothed kink of the hinge.

    Attributes
    ----------
    n_pairs : int
        Pairs of a sample and its target.

    Notes
    -----
    Derived in chapter 28 (baselines/mtlmnn), eqs. (mtlmnn-loss), (mtlmnn-smooth), (mtlmnn-weights)
    and (mtlmnn-gradient-task).
    """

    def __init__(
        self, X: Floats, codes: Indices, targets: Indices, push_weight: float, smoothing: float
    ) -> None:
        self.X = X
        self.targets = targets
        self.push_weight = push_weight
        self.smoothing = smoothing
        self.given = targets >= 0
        self.n_pairs = int(self.given.sum())
        self.blocks = []
        for code in np.unique(codes):
            members = np.flatnonzero(codes == code)
            if self.given[members].any():
                self.blocks.append((members, np.flatnonzero(codes != code)))

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

    def __call__(self, S: Floats) -> tuple[float, Floats, float, float]:
        """Smoothed loss, its gradient, the loss with the hinge, mu sum of (a - h/2 a^2)."""
        X = self.X
        mu = self.push_weight
        h = self.smoothing
        XS = X @ S
        norms = np.einsum("ij,ij->i", XS, X)
        # distances to the targets; within a distance of one more a sample is an impostor
        cross = np.einsum("ij,ikj->ik", XS, X[self.targets])
        to_targets = np.where(self.given, norms[:, None] + norms[self.targets] - 2 * cross, 0.0)
        limits = np.where(self.given, 1.0 + to_targets, -np.inf)
        # the weights a of the violated triplets, summed over impostors and over targets
        on_targets = np.zeros(self.targets.shape)
        anchors, places = np.nonzero(self.given)
        rows = [anchors]
        columns = [self.targets[anchors, places]]
        push = []
        sums = np.zeros(4)
        for i, k, u in self.violations(XS, norms, limits):
            a = np.minimum(u / h, 1.0)
            sums += np.vdot(a, u), np.vdot(a, a), a.sum(), u.sum()
            on_targets += np.stack([np.bincount(i, column, len(X)) for column in a.T], axis=1)
            rows.append(i)
            columns.append(k)
            push.append(-mu * a.sum(axis=1))
        # Omega, eq. (mtlmnn-weights)
        pull = (1 - mu) + mu * on_targets[self.given]
        place = (np.concatenate(rows), np.concatenate(columns))
        Omega = sparse.csr_array((np.concatenate([pull, *push]), place), shape=(len(X),) * 2)
        gradient = _quadratic_form(X, Omega)
        pulled = (1 - mu) * to_targets.sum()
        linear, square, weight, hinge = mu * sums
        return pulled + linear - h / 2 * square, gradient, pulled + hinge, weight - h / 2 * square


# book/baselines/mtlmnn.ipynb#the-gradient
def _quadratic_form(X: Floats, Omega: Matrix) -> Floats:
    """X' K X of eq. (mtlmnn-gradient-task): K is diag(row and column sums) - Omega - Omega'."""
    sums = Omega.sum(axis=0) + Omega.sum(axis=1)
    if Omega.nnz > 0.03 * len(X) ** 2:  # a dense product is faster then
        Omega = Omega.toarray()
    half = X.T @ (sums[:, None] * X / 2 - Omega @ X)
    return half + half.T


# book/baselines/mtlmnn.ipynb#the-gradient-of-all-tasks-together
class JointState(NamedTuple):
    """The joint objective at one point, and what its gradient and its bound need."""

    objective: float
    gradient: Floats
    hinge_objective: float
    linear: float
    task_gradients: Floats
    shared_part: Floats
    own_parts: Floats


class JointProblem:
    """The smoothed problem of all tasks; unknowns are a stack of matrices.

    Parameters
    ----------
    losses : sequence of TaskLoss
    shared_penalty : float
        gamma_0 > 0; infinite: the shared part is the identity.
    task_penalties : array-like of shape (n_tasks,)
        gamma_t > 0, all finite, or all infinite: no own parts.
    constraint : {"parts", "totals"}
        Which matrices are positive semi-definite, and the unknowns: M_0, M_1, ..., M_T or
        the totals S_1, ..., S_T.
    bases : sequence of {ndarray of shape (r_t, n_features), None}, optional
        Orthonormal rows that span a task's samples, None where they span everything.

    Notes
    -----
    Derived in chapter 28 (baselines/mtlmnn), eqs. (mtlmnn-objective), (mtlmnn-mean),
    (mtlmnn-gradient-parts) and (mtlmnn-gradient-totals).
    """

    def __init__(
        self,
        losses: Sequence[TaskLoss],
        shared_penalty: float,
        task_penalties: Sequence[float] | Floats,
        constraint: str,
        bases: Sequence[Floats | None] | None = None,
    ) -> None:
        self.losses = losses
        self.n_pairs = sum(loss.n_pairs for loss in losses)
        self.shared = shared_penalty
        self.own = np.asarray(task_penalties, dtype=float)
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

    def evaluate(self, V: Floats) -> JointState:
        """Objective, gradient, and what the duality gap needs."""
        M0, own = self.split(V)
        found = [loss(S) for loss, S in zip(self.losses, self.metrics(V), strict=True)]
        values, slopes, hinges, linears = zip(*found, strict=True)
        G = np.array(slopes) / self.n_pairs
        # a part with an infinite penalty is frozen and costs nothing
        g0 = np.where(np.isinf(self.shared), 0.0, self.shared)
        g = np.where(np.isinf(self.own), 0.0, self.own)
        penalty = g0 * np.sum((M0 - self.identity) ** 2) + g @ np.sum(own**2, axis=(1, 2))
        gradient = G + 2 * g[:, None, None] * own
        if not self.totals:
            gradient[np.isinf(self.own)] = 0.0
            first = 2 * g0 * (M0 - self.identity) + G.sum(axis=0)
            gradient = np.concatenate([first[None] * np.isfinite(self.shared), gradient])
        return JointState(
            objective=sum(values) / self.n_pairs + penalty,
            gradient=gradient,
            hinge_objective=sum(hinges) / self.n_pairs + penalty,
            linear=sum(linears) / self.n_pairs,
            task_gradients=G,
            shared_part=M0,
            own_parts=own,
        )

    # book/baselines/mtlmnn.ipynb#projected-gradient-steps
    def project(self, V: Floats) -> Floats:
        """The nearest feasible stack."""
        bases = self.bases if self.totals else [None, *self.bases]
        return np.array([_nearest_psd(A, basis) for A, basis in zip(V, bases, strict=True)])

    # book/baselines/mtlmnn.ipynb#the-duality-gap
    def bound(self, state: JointState) -> float:
        """A lower bound of the smallest objective, by the weights of a state.

        Derived in chapter 28 (baselines/mtlmnn), eqs. (mtlmnn-weak-duality), (mtlmnn-dual-parts)
        and (mtlmnn-dual-totals).
        """
        G = state.task_gradients
        g0 = self.shared
        g = self.own
        if self.totals:  # less the multipliers Z_t
            G = G - self.project(G + 2 * g[:, None, None] * state.own_parts)
        total = G.sum(axis=0)
        if self.totals or np.isinf(g0):
            least = np.trace(total) - np.sum(total**2) / (4 * g0)
        else:
            moved = _nearest_psd(self.identity - total / (2 * g0))
            least = g0 * (len(total) - np.sum(moved**2))
        if not self.totals:
            G = np.array([_nearest_psd(-A, basis) for A, basis in zip(G, self.bases, strict=True)])
        return state.linear + least - np.sum(np.sum(G**2, axis=(1, 2)) / (4 * g))


# book/baselines/mtlmnn.ipynb#projected-gradient-steps
def _spectral_steps(
    evaluate: Callable[[Floats], JointState],
    project: Callable[[Floats], Floats],
    V: Floats,
    state: JointState,
) -> Iterator[tuple[Floats, JointState]]:
    """Iterates of the spectral projected gradient method and their states.

    Derived in chapter 28 (baselines/mtlmnn), eqs. (mtlmnn-step) and (mtlmnn-search). It ends where
    no step leads down.
    """
    step = 1.0 / max(np.abs(state.gradient).max(), 1e-300)
    recent = [state.objective]
    while True:
        direction = project(V - step * state.gradient) - V
        slope = np.vdot(state.gradient, direction)
        if slope > -1e-14 * abs(state.objective):
            return
        # shorten the move until it leads far enough below the largest of the last values
        length = 1.0
        ceiling = max(recent[-10:])
        found = evaluate(V + direction)
        while found.objective > ceiling + 1e-4 * length * slope and length > 1e-10:
            length /= 2
            found = evaluate(V + length * direction)
        move = length * direction
        # the next step is the inverse of the curvature met on the move
        bend = np.vdot(move, found.gradient - state.gradient)
        step = float(np.vdot(move, move) / bend) if bend > 0 else 10 * step
        V = V + move
        state = found
        recent.append(state.objective)
        yield V, state


# book/baselines/mtlmnn.ipynb#projected-gradient-steps
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
def minimize_joint(
    problem: JointProblem,
    max_iter: int,
    tol: float,
    advance: Callable[[int], object] | None = None,
) -> tuple[Floats, JointState, float, Floats]:
    """Minimize a joint problem by spectral projected gradient steps, to a duality gap.

    Parameters
    ----------
    problem : JointProblem
    max_iter : int
        Largest number of steps.
    tol : float
        Stop when the gap is at most this share of the objective; looked at every ten steps.
    advance : callable, optional
        Called with 1 after each step, as a bar of progress is.

    Returns
    -------
    V : ndarray
        The best stack met.
    state : JointState
        The problem's state at V.
    bound : float
        The minimum is not below it.
    history : ndarray
        Objectives from the start on.

    Notes
    -----
    Derived in chapter 28 (baselines/mtlmnn), eqs. (mtlmnn-step), (mtlmnn-search) and
    (mtlmnn-weak-duality).
    """
    V = best_V = problem.start()
    state = best = problem.evaluate(V)
    bound = problem.bound(state)
    history = [state.objective]
    steps = _spectral_steps(problem.evaluate, problem.project, V, state)
    for n_iter, (V, state) in enumerate(islice(steps, max_iter), start=1):
        history.append(state.objective)
        if advance is not None:
            advance(1)
        if state.objective < best.objective:
            best_V = V
            best = state
        if n_iter % 10 == 0:
            bound = max(bound, problem.bound(state))
            if best.objective - bound <= tol * abs(best.objective):
                break
    bound = max(bound, problem.bound(best))
    return best_V, best, float(bound), np.array(history, dtype=float)


# book/baselines/mtlmnn.ipynb#the-duality-gap
def _mean_square(rows: Sequence[Floats], tables: Sequence[Indices]) -> float:
    """Mean squared distance of target pairs; of samples from their mean where that is zero."""
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
    """Large margin nearest neighbors for several tasks at once.

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
        Target neighbors of a sample; fewer where its class has no more.
    push_weight : float in (0, 1), default=0.5
        mu, the weight of the push; the pull has 1 - mu.
    scale : "auto" or float, default="auto"
        The multiple of the identity that the shared part is drawn to, and the unit of both
        penalties. "auto": one over the mean squared distance of target neighbors. 1.0 is
        the published problem.
    smoothing : float, default=0.1
        Width h > 0 of the smoothed kink of the hinge.
    max_iter : int, default=100
        Largest number of steps; a ConvergenceWarning says that they were too few.
    tol : float, default=1e-3
        Stop when the duality gap is at most this share of the objective.
    verbose : bool, default=False
        Whether a bar counts the steps, which needs tqdm. Most fits end before max_iter.

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
    Derived in chapter 28 (baselines/mtlmnn), eqs. (mtlmnn-objective), (mtlmnn-scale),
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
    _parameter_rules: ClassVar = {
        "shared_penalty": real(0, above=True, infinite=True),
        "constraint": one_of("parts", "totals"),
        "n_targets": whole(1),
        "push_weight": Rule(
            lambda value: real(0, above=True).allows(value) and value < 1,
            "a number above 0 and below 1",
        ),
        "scale": Rule(
            lambda value: one_of("auto").allows(value) or real(0, above=True).allows(value),
            "'auto' or a number above 0",
            LARGEST_REAL,
        ),
        "smoothing": real(0, above=True),
        "max_iter": whole(1),
        "tol": real(0, above=True),
        "verbose": flag(),
    }

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
        verbose: bool = False,
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
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        return tags

    def fit(self, X: MatrixLike, y: LabelsLike, *, tasks: Iterable[Hashable]) -> Self:
        """Learn the metrics of all tasks.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples of all tasks, dense.
        y : array-like of shape (n_samples,)
            Labels; in every task at least two classes, one of them with two samples.
        tasks : array-like of shape (n_samples,)
            Name of the task of each sample.

        Returns
        -------
        self : MultiTaskLMNN

        Raises
        ------
        TypeError
            If X is sparse.
        ValueError, TypeError
            If a parameter is out of range, X is not finite, lengths differ, or the labels of
            a task allow no triplet. Nothing is stored then.

        Warns
        -----
        ConvergenceWarning
            If max_iter steps were too few. `gap_` says how far they came.
        """
        check_parameters(self)
        names, rows, codes = encode_tasks(X, y, tasks)
        if sparse.issparse(rows[0]):
            raise TypeError(
                f"X is sparse {np.shape(X)}, but the metrics fill all {np.shape(X)[-1]} features: "
                "reduce the rows first, for example with sklearn's TruncatedSVD"
            )
        problem, Q, scale = self._problem(rows, codes, self._task_penalties(names))
        with progress("MultiTaskLMNN", self.max_iter, self.verbose) as advance:
            V, state, bound, history = minimize_joint(problem, self.max_iter, self.tol, advance)
        metrics = [_in_features(S, Q, scale) for S in problem.metrics(V)]
        shared_metric = _in_features(state.shared_part, Q, scale)
        self._note_columns(X)
        self.tasks_ = names
        self.metrics_ = dict(zip(names, metrics))
        self.shared_metric_ = shared_metric
        self.scale_ = scale
        self.objective_ = float(state.hinge_objective)
        self.dual_bound_ = bound
        self.gap_ = float(state.objective - bound) / max(abs(state.objective), 1e-300)
        self.objective_history_ = history
        self.n_iter_ = len(history) - 1
        if self.gap_ > self.tol and self.n_iter_ == self.max_iter:  # one text for all fits
            message = f"MultiTaskLMNN stopped at max_iter={self.max_iter} before tol={self.tol} was"
            message += " reached: raise max_iter, tol or the penalties"
            warnings.warn(message, ConvergenceWarning, stacklevel=2)
        return self

    def _task_penalties(self, names: list[Any]) -> Floats:
        """gamma_t of each task, all finite or all infinite."""
        given = self.task_penalty
        if isinstance(given, Mapping):
            if set(given) != set(names):
                raise ValueError(
                    f"task_penalty has the tasks {list(given)}, but the rows have {names}: "
                    "give one number for each task"
                )
            for name in names:
                real(0, above=True).check(f"task_penalty[{name!r}]", given[name])
            own = [given[name] for name in names]
        else:
            real(0, above=True, infinite=True).check("task_penalty", given)
            own = [given] * len(names)
        penalties = np.array(own, dtype=float)
        if self.shared_penalty == np.inf and np.isinf(penalties).all():
            raise ValueError("shared_penalty and task_penalty are both infinite: nothing to learn")
        return penalties

    def _problem(
        self, rows: list[Matrix], codes: list[Indices], task_penalties: Floats
    ) -> tuple[JointProblem, Floats | None, float]:
        """The problem in scaled samples of the common row space, that space, and the scale."""
        tables = [target_table(X, own, self.n_targets) for X, own in zip(rows, codes)]
        rows = [X - X.mean(axis=0) for X in rows]  # distances stay
        auto = isinstance(self.scale, str)
        scale = float(1.0 / _mean_square(rows, tables) if auto else self.scale)
        _, span = row_space(np.concatenate(rows))
        Q = span if len(span) < span.shape[1] else None  # None: the samples span everything
        rows = [np.sqrt(scale) * (X if Q is None else X @ Q.T) for X in rows]
        losses = [
            TaskLoss(X, own, table, self.push_weight, self.smoothing)
            for X, own, table in zip(rows, codes, tables, strict=True)
        ]
        bases = [row_space(X)[1] if 2 * len(X) < X.shape[1] else None for X in rows]
        problem = JointProblem(
            losses, float(self.shared_penalty), task_penalties, self.constraint, bases
        )
        return problem, Q, scale


# book/baselines/mtlmnn.ipynb#the-estimator
def _in_features(S: Floats, Q: Floats | None, scale: float) -> FactoredMetric:
    """The metric in the features of a matrix for scaled samples of the row space Q."""
    S = scale * (S + S.T) / 2
    if Q is None:
        return FactoredMetric._trusted(0.0, np.eye(len(S)), S)
    return FactoredMetric._trusted(scale, Q, S - scale * np.eye(len(S)))
