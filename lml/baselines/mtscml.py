# Generated from book/baselines/mtscml.ipynb by tools/tangle.py: edit the chapter.
"""SCML for several tasks: common directions, own weights, a group penalty that couples them.

The directions are the local Fisher bases of all tasks. The weights W (tasks x directions) are
not negative and minimize the mean over tasks of the mean hinge plus beta times the sum of the
norms of W's columns, by regularized dual averaging with a task and a triplet drawn a step.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from lml.baselines.pooled import JointMetricsMixin, encode_tasks
from lml.fisher import local_fisher_basis
from lml.metrics import FactoredMetric
from lml.scml import (
    mean_difference,
    mean_hinge,
    pair_table,
    scaled_gamma,
    scml_objective,
    triplet_differences,
)
from lml.triplets import nearest_triplets
from lml.utils.linalg import times_transpose
from lml.utils.progress import progress
from lml.utils.typing import Floats, Indices, LabelsLike, MatrixLike, Seed
from lml.utils.validation import (
    check_parameters,
    flag,
    optional,
    real,
    seed,
    whole,
)

__all__ = ["MultiTaskSCML", "group_shrink", "joint_dual_averaging", "joint_objective"]


# book/baselines/mtscml.ipynb#common-directions-own-weights
def joint_objective(
    weights: Floats, projections: Sequence[Floats], triplets: Sequence[Indices], beta: float = 0.0
) -> float:
    """Mean over tasks of the mean hinge, plus the group penalty of the weights.

    Parameters
    ----------
    weights : array-like of shape (n_tasks, n_basis)
        Non-negative weights.
    projections : sequence of ndarrays of shape (n_samples of the task, n_basis)
        X_t F' for the common directions F.
    triplets : sequence of integer arrays of shape (n_triplets of the task, 3)
        Row numbers (anchor, positive, negative) within the task.
    beta : float, default=0.0
        Penalty, at least 0.

    Returns
    -------
    objective : float

    Notes
    -----
    Derived in chapter 26 (baselines/mtscml), eq. (mtscml-objective). Paper: section V-A (mtSCML).

    Examples
    --------
    >>> P, triplets = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]]), [[0, 1, 2]]
    >>> W = [[0.5, 0.25], [0.0, 0.25]]
    >>> round(joint_objective(W, [P, P], [triplets, triplets], beta=0.1), 4)
    0.3354
    """
    own = map(scml_objective, weights, projections, triplets)
    return float(np.mean(list(own)) + beta * np.linalg.norm(weights, axis=0).sum())


# book/baselines/mtscml.ipynb#the-step
def _column_norms(plus: Floats) -> Floats:
    """Norms of the columns, at least the smallest positive number (to divide by)."""
    return np.maximum(np.sqrt(np.einsum("ij,ij->j", plus, plus)), np.finfo(float).tiny)


def group_shrink(V: Floats, strength: float) -> Floats:
    """The non-negative matrix nearest to V under a penalty of the norms of its columns.

    Parameters
    ----------
    V : array-like of shape (n_tasks, n_basis)
    strength : float
        At least 0.

    Returns
    -------
    U : ndarray of shape (n_tasks, n_basis)
        argmin over U >= 0 of ||U - V||^2 / 2 + strength * sum of ||U_j||, U_j the columns.

    Notes
    -----
    Derived in chapter 26 (baselines/mtscml), eq. (mtscml-step). Negative entries are clipped first,
    then columns are shrunk.

    Examples
    --------
    >>> group_shrink([[3.0, 1.0], [-4.0, 0.0]], 2.0).tolist()
    [[1.0, 0.0], [0.0, 0.0]]
    """
    plus = np.maximum(V, 0.0)
    norms = _column_norms(plus)
    return np.maximum(norms - strength, 0.0) / norms * plus


# book/baselines/mtscml.ipynb#what-gamma-should-be
def _joint_gamma(
    projections: Sequence[Floats], triplets: Sequence[Indices], gamma: float | None
) -> float:
    """The given gamma, or the mean of the tasks' own by SCML's rule over sqrt(n_tasks).

    It is 1 where every difference is zero and any will do.
    """
    if gamma is not None:
        return gamma
    own = [scaled_gamma(P, t) for P, t in zip(projections, triplets, strict=True)]
    return float(np.mean(own)) / math.sqrt(len(own)) or 1.0


# book/baselines/mtscml.ipynb#the-fast-form
def _advance(
    totals: Floats,
    tasks: Sequence[int],
    differences: Floats,
    first: int,
    beta: float,
    gamma: float,
) -> None:
    """Take a step on each difference, numbered from first + 1; totals (T, K) is updated."""
    plus = np.maximum(-totals, 0.0)
    norms = _column_norms(plus)
    for s, (t, z) in enumerate(zip(tasks, differences, strict=True), start=first):
        shrunk = np.maximum(norms - s * beta, 0.0) / norms * plus[t]
        if shrunk @ z > -gamma * math.sqrt(max(s, 1)):  # the hinge is active
            totals[t] += z
            np.maximum(-totals[t], 0.0, out=plus[t])
            norms = _column_norms(plus)


# book/baselines/mtscml.ipynb#the-fast-form
def joint_dual_averaging(
    projections: Sequence[Floats],
    triplets: Sequence[Indices],
    beta: float,
    gamma: float | None = None,
    n_steps: int = 60_000,
    random_state: Seed = None,
    advance: Callable[[int], object] | None = None,
) -> tuple[Floats, Floats]:
    """Weights of common directions for several tasks by regularized dual averaging.

    Parameters
    ----------
    projections : sequence of ndarrays of shape (n_samples of the task, n_basis)
        X_t F' for the common directions F.
    triplets : sequence of integer arrays of shape (n_triplets of the task, 3)
        Row numbers (anchor, positive, negative) within the task; at least one a task.
    beta : float
        Penalty, at least 0, in the units of the differences. `MultiTaskSCML` takes it as a
        fraction.
    gamma : float or None, default=None
        Strength of the quadratic term. None: the mean of the tasks' values by SCML's rule
        over the square root of the number of tasks.
    n_steps : int, default=60_000
        Triplets drawn, of a task drawn uniformly.
    random_state : int, RandomState instance or None, default=None
        Draws tasks and triplets.
    advance : callable, optional
        Told at each check how many steps it comes after, as a bar of progress is.

    Returns
    -------
    weights : ndarray of shape (n_tasks, n_basis)
        The best of those checked, which are every twelfth part of the steps (5,000).
    history : ndarray of shape (n_checks + 1,)
        Objective at zero weights, which is 1, and at each check.

    Notes
    -----
    Derived in chapter 26 (baselines/mtscml), eqs. (mtscml-averaging), (mtscml-fast) and
    (mtscml-gamma). Paper: section V-A (mtSCML).

    Examples
    --------
    >>> P, triplets = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]]), np.array([[0, 1, 2]])
    >>> W, _ = joint_dual_averaging([P, P], [triplets] * 2, 0.01, n_steps=2000, random_state=0)
    >>> bool(abs(W - [[0.0, 0.25], [0.0, 0.25]]).max() < 0.01)
    True
    """
    optional(real(0, above=True, largest=np.inf)).check("gamma", gamma)
    rng = check_random_state(random_state)
    gamma = _joint_gamma(projections, triplets, gamma)
    n_basis = projections[0].shape[1]
    best = np.zeros((len(projections), n_basis))
    history = [1.0]
    # each step draws a task, then one of its triplets; rows are numbered within the task
    sizes = np.array([len(own) for own in triplets])
    tasks = rng.randint(len(sizes), size=n_steps)
    starts = np.cumsum(sizes) - sizes
    drawn = np.concatenate(triplets)[starts[tasks] + rng.randint(sizes[tasks])]
    tables = [pair_table(own, len(P)) for own, P in zip(triplets, projections, strict=True)]
    totals = np.zeros_like(best)
    every = -(-n_steps // 12)
    block = 2**18 // max(n_basis, 1) + 1  # steps whose differences fit into memory
    for first in range(0, n_steps, every):
        last = min(first + every, n_steps)
        for start in range(first, last, block):
            part = slice(start, min(start + block, last))
            differences = np.empty((part.stop - start, n_basis))
            for t, P in enumerate(projections):
                own = tasks[part] == t
                differences[own] = triplet_differences(P, drawn[part][own])
            _advance(totals, tasks[part].tolist(), differences, start, beta, gamma)
        # the weights now, eq. (mtscml-step) with sums in the place of averages
        weights = group_shrink(-totals, beta * last) / (gamma * math.sqrt(last))
        hinges = list(map(mean_hinge, weights, projections, tables))
        history.append(np.mean(hinges) + beta * np.linalg.norm(weights, axis=0).sum())
        if history[-1] <= min(history):
            best = weights
        if advance is not None:
            advance(last - first)
    return best, np.array(history)


# book/baselines/mtscml.ipynb#the-penalty-from-which-on-all-weights-are-zero
def _joint_beta_max(projections: Sequence[Floats], triplets: Sequence[Indices]) -> float:
    """Smallest penalty that makes the weights of all tasks zero, eq. (mtscml-top)."""
    means = np.array([mean_difference(*own) for own in zip(projections, triplets, strict=True)])
    norms = np.linalg.norm(np.maximum(-means, 0.0), axis=0)
    return float(norms.max(initial=0.0)) / len(means)


# book/baselines/mtscml.ipynb#the-estimator
class MultiTaskSCML(JointMetricsMixin, BaseEstimator):
    """Learn a distance for each of several tasks from directions that the tasks share.

    Parameters
    ----------
    n_basis : int or None, default=100
        Directions that each task contributes. None takes as many as `SCML`, which depends on
        the number of classes.
    beta : float, default=1e-4
        Penalty of the norms of the directions' weights over the tasks, as a fraction of the
        smallest penalty that makes all weights zero. At least 0 and below 1; it has no units.
    gamma : float or None, default=None
        Strength of the quadratic term of dual averaging, above 0, in units of X to the power
        of four. None takes the mean of the tasks' values in `SCML`, divided by the square root
        of the number of tasks.
    n_steps : int, default=60_000
        Number of triplets drawn, one in each step, over all tasks.
    n_targets : int, default=3
        Nearest samples of its own class that each sample forms triplets with.
    n_impostors : int, default=10
        Nearest samples of other classes that each sample forms triplets with.
    random_state : int, RandomState instance or None, default=None
        Seed of k-means and of the draws.
    verbose : bool, default=False
        Whether a bar shows the progress, which needs tqdm.

    Attributes
    ----------
    metrics_ : dict
        The metric of each task, FactoredMetric(0, basis_, the task's line of weights_).
    tasks_ : list
        Names of the tasks in the order of first appearance.
    basis_ : ndarray of shape (n_found, n_features)
        Unit directions of all tasks, in the order of the tasks.
    weights_ : ndarray of shape (n_tasks, n_found)
        Non-negative weights of the directions.
    objective_history_ : ndarray of shape (n_checks + 1,)
        Objective at zero weights, which is 1, and at each check. The best weights are kept.
    gamma_ : float
        Strength of the quadratic term that was used.
    beta_max_ : float
        Smallest penalty that makes all weights zero. The penalty used is beta * beta_max_.
    n_features_in_ : int
        Number of features seen in `fit`.

    See Also
    --------
    lml.scml.SCML : One task by itself.

    Notes
    -----
    Derived in chapter 26 (baselines/mtscml), eqs. (mtscml-metric), (mtscml-objective),
    (mtscml-step), (mtscml-gamma) and (mtscml-top). Paper: section V-A (mtSCML). Each sample looks
    for its nearest among all of its task, so the time grows as the square of their number.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> tasks = ["even" if row % 2 == 0 else "odd" for row in range(150)]
    >>> learner = MultiTaskSCML(n_basis=10, n_steps=2000, random_state=0)
    >>> learner.fit(X, y, tasks=tasks).weights_.shape
    (2, 20)
    """

    metric_type = "distance"
    _parameter_rules: ClassVar = {
        "n_basis": optional(whole(1)),
        "beta": real(0, 1, below=True),
        "gamma": optional(real(0, above=True)),
        "n_steps": whole(1),
        "n_targets": whole(1),
        "n_impostors": whole(1),
        "random_state": seed(),
        "verbose": flag(),
    }

    def __init__(
        self,
        n_basis: int | None = 100,
        beta: float = 1e-4,
        gamma: float | None = None,
        n_steps: int = 60_000,
        n_targets: int = 3,
        n_impostors: int = 10,
        random_state: Seed = None,
        verbose: bool = False,
    ) -> None:  # fmt: skip
        self.n_basis = n_basis
        self.beta = beta
        self.gamma = gamma
        self.n_steps = n_steps
        self.n_targets = n_targets
        self.n_impostors = n_impostors
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: MatrixLike, y: LabelsLike, *, tasks: Iterable[Hashable]) -> Self:
        """Learn the weights of all tasks together.

        Parameters
        ----------
        X : {array-like, CSR matrix} of shape (n_samples, n_features)
            Samples of all tasks. A CSR matrix is not made dense; the directions are dense.
        y : array-like of shape (n_samples,)
            Class of each sample, of any hashable type. Classes are compared within a task
            only; each task has at least two of them, one with two samples.
        tasks : sequence of length n_samples
            Name of the task of each sample, of any hashable type.

        Returns
        -------
        self : MultiTaskSCML
            The fitted learner.

        Raises
        ------
        ValueError, TypeError
            If a parameter is out of range, the table cannot be used, or the labels of a task
            allow no triplet. Nothing is stored then.

        Warns
        -----
        ConvergenceWarning
            If every weight of a task is zero, so that its metric is zero and ranks nothing.
        """
        check_parameters(self)
        names, rows, codes = encode_tasks(X, y, tasks)
        rng = check_random_state(self.random_state)
        # every task offers its own directions to all
        bases = []
        for X_t, y_t in zip(rows, codes):
            n_basis = self.n_basis
            if n_basis is None:  # SCML's rule
                n_basis = max(100, 20 * y_t.max())
            bases.append(local_fisher_basis(X_t, y_t, n_basis, random_state=rng))
        basis = np.concatenate(bases)
        projections = [times_transpose(X_t, basis) for X_t in rows]
        triplets = [
            nearest_triplets(X_t, y_t, self.n_targets, self.n_impostors)
            for X_t, y_t in zip(rows, codes)
        ]
        gamma = _joint_gamma(projections, triplets, self.gamma)
        beta_max = _joint_beta_max(projections, triplets)
        with progress("MultiTaskSCML", self.n_steps, self.verbose) as advance:
            weights, history = joint_dual_averaging(
                projections, triplets, self.beta * beta_max, gamma, self.n_steps, rng, advance
            )
        zero = [name for name, own in zip(names, weights) if not own.any()]
        if zero:
            warnings.warn(
                f"the metrics of the tasks {zero} are zero: raise n_steps or lower beta",
                ConvergenceWarning,
                stacklevel=2,
            )
        metrics = [FactoredMetric._trusted(0.0, basis, w) for w in weights]
        self._note_columns(X)
        self.tasks_ = names
        self.metrics_ = dict(zip(names, metrics))
        self.basis_ = basis
        self.weights_ = weights
        self.gamma_ = gamma
        self.beta_max_ = beta_max
        self.objective_history_ = history
        return self
