# Generated from book/scml.ipynb by tools/tangle.py: edit the chapter.
"""Sparse compositional metric learning: M = sum of w_i b_i b_i', non-negative weights.

The directions b_i are a local Fisher basis; the weights minimize the mean hinge of nearest
triplets plus an l1 penalty, by regularized dual averaging. The metric is a squared distance
and stays factored: FactoredMetric(0, basis, weights).
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state, gen_batches

from lml.fisher import local_directions, triplet_directions
from lml.metrics import FactoredMetric, MetricLearnerMixin
from lml.state import storable
from lml.triplets import bounded_samples, neighbor_triplets
from lml.utils.linalg import times_transpose
from lml.utils.progress import progress
from lml.utils.typing import Floats, Indices, LabelsLike, Matrix, MatrixLike, Seed
from lml.utils.validation import (
    check_parameters,
    check_samples,
    check_two_classes,
    flag,
    optional,
    real,
    seed,
    whole,
)
from lml.weak_supervision import TripletLearnerMixin

__all__ = [
    "SCML",
    "PairTable",
    "dual_averaging",
    "mean_difference",
    "mean_hinge",
    "pair_table",
    "scaled_gamma",
    "scml_objective",
    "triplet_differences",
]


# book/scml.ipynb#the-composition
def triplet_differences(projections: Floats, triplets: ArrayLike) -> Floats:
    """Compute squared differences of projections, positive pair minus negative pair.

    Parameters
    ----------
    projections : ndarray of shape (n_samples, n_basis)
        X F' for directions F.
    triplets : integer array of shape (n_triplets, 3)
        Samples (anchor, positive, negative).

    Returns
    -------
    differences : ndarray of shape (n_triplets, n_basis)
        z with d(i, j) - d(i, k) = w'z for every weight vector w.

    Notes
    -----
    Derived in chapter 8 (scml), eq. (scml-difference).
    Paper: Table I, row SCML.

    Examples
    --------
    >>> P = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    >>> triplet_differences(P, np.array([[0, 1, 2]])).tolist()
    [[1.0, -4.0]]
    """
    i, j, k = np.asarray(triplets, dtype=np.intp).reshape(-1, 3).T
    anchors = projections[i]
    near = anchors - projections[j]
    far = anchors - projections[k]
    np.square(near, out=near)
    near -= np.square(far, out=far)
    return near


# book/scml.ipynb#the-composition
class PairTable(NamedTuple):
    """The distinct pairs of triplets.

    Parameters
    ----------
    first : ndarray of shape (n_pairs,)
        First sample of each pair.
    second : ndarray of shape (n_pairs,)
        Second sample of each pair.
    near : ndarray of shape (n_triplets,)
        Place of the pair (anchor, positive) of each triplet.
    far : ndarray of shape (n_triplets,)
        Place of the pair (anchor, negative) of each triplet.
    """

    first: Indices
    second: Indices
    near: Indices
    far: Indices


def pair_table(triplets: Indices, n_samples: int) -> PairTable:
    """List the distinct pairs of triplets (n_triplets, 3), and where each finds its two."""
    i, j, k = triplets.T
    pairs, place = np.unique(i * n_samples + np.stack([j, k]), return_inverse=True)
    near, far = place.reshape(2, -1)
    return PairTable(first=pairs // n_samples, second=pairs % n_samples, near=near, far=far)


def _blocks(n_lines: int, width: int) -> Iterator[slice]:
    """Slices of as many lines of a table as fit into the cache, at least one."""
    return gen_batches(n_lines, max(1, 2**16 // max(width, 1)))


def mean_hinge(weights: Floats, projections: Floats, table: PairTable) -> float:
    """Compute the mean of [1 + d(i, j) - d(i, k)]_+ over triplets, a block of pairs at a time."""
    active = np.flatnonzero(weights)
    scaled = projections[:, active] * np.sqrt(weights[active])
    distances = np.empty(len(table.first))
    for block in _blocks(len(distances), len(active)):
        gaps = scaled[table.first[block]] - scaled[table.second[block]]
        distances[block] = np.einsum("ij,ij->i", gaps, gaps)
    return float(np.maximum(1.0 + distances[table.near] - distances[table.far], 0.0).mean())


# book/scml.ipynb#the-composition
def scml_objective(
    weights: ArrayLike, projections: Floats, triplets: ArrayLike, beta: float = 0.0
) -> float:
    """Compute the mean hinge of the weighted distance plus the l1 penalty of the weights.

    Parameters
    ----------
    weights : array-like of shape (n_basis,)
        Non-negative weights.
    projections : ndarray of shape (n_samples, n_basis)
        X F' for directions F.
    triplets : integer array of shape (n_triplets, 3)
        Samples (anchor, positive, negative); the mean over no triplets is zero.
    beta : float, default=0.0
        Penalty, at least 0, in the units of the differences.

    Returns
    -------
    objective : float
        It is 1 at zero weights.

    Notes
    -----
    Derived in chapter 8 (scml), eq. (scml-objective).
    Paper: Table I, row SCML, with the sign corrected.

    Examples
    --------
    >>> P = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    >>> scml_objective([0.5, 0.25], P, np.array([[0, 1, 2]]), beta=0.1)
    0.575
    """
    weights = np.asarray(weights, dtype=float)
    triplets = np.asarray(triplets, dtype=np.intp).reshape(-1, 3)
    penalty = beta * float(weights.sum())
    if not len(triplets):
        return penalty
    return penalty + mean_hinge(weights, projections, pair_table(triplets, len(projections)))


# book/scml.ipynb#what-should-gamma-be
def scaled_gamma(projections: Floats, triplets: Indices) -> float:
    """Compute one fifth of the mean squared length of the differences, the default of gamma.

    Parameters
    ----------
    projections : ndarray of shape (n_samples, n_basis)
        X F' for directions F.
    triplets : integer array of shape (n_triplets, 3)
        Samples (anchor, positive, negative), at least one.

    Returns
    -------
    gamma : float
        Strength of the quadratic term of dual averaging.

    Notes
    -----
    Derived in chapter 8 (scml), eq. (scml-gamma).

    Examples
    --------
    >>> scaled_gamma(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]]), np.array([[0, 1, 2]]))
    3.4
    """
    total = 0.0
    for block in _blocks(len(triplets), projections.shape[1]):
        Z = triplet_differences(projections, triplets[block])
        total += float(np.vdot(Z, Z))
    return total / (5 * len(triplets))


# book/scml.ipynb#what-should-gamma-be
def _gamma(projections: Floats, triplets: Indices, gamma: float | None) -> float:
    """The given gamma, or that of the rule; 1 where every difference is zero and any will do."""
    return gamma or scaled_gamma(projections, triplets) or 1.0


# book/scml.ipynb#what-should-gamma-be
def _dual_steps(Z: Floats, sums: Floats, first: int, beta: float, gamma: float) -> None:
    """Take a step on each row of Z (b, K), numbered from first + 1; sums (K,) is updated."""
    done = first + np.arange(len(Z))
    # the hinge is active where w'z > -1, eq. (scml-active); with w from eq. (scml-step) that is
    # max(sums, floor)'z > limit, and always at the first step, where w is zero
    floors = beta * done
    limits = floors * Z.sum(axis=1) - gamma * np.sqrt(done)
    limits[done == 0] = -np.inf
    # the loop runs once a triplet: look up nothing in it and make no array
    largest = np.empty_like(sums)
    maximum = np.maximum
    dot = largest.dot
    level = np.empty(())  # numpy takes arrays sooner
    for z, floor, limit in zip(Z, floors.tolist(), limits.tolist()):
        level[()] = floor
        maximum(sums, level, out=largest)
        if dot(z) > limit:
            sums -= z


# book/scml.ipynb#what-should-gamma-be
class _Differences:
    """The differences z of triplets (m, 3), from the squares of their distinct pairs."""

    def __init__(self, projections: Floats, triplets: Indices) -> None:
        self.projections = projections
        self.triplets = triplets
        self.table = pair_table(triplets, len(projections))
        self.squares: Floats | None = None
        if len(self.table.first) * projections.shape[1] <= 2**23:
            self.squares = projections.take(self.table.first, axis=0)
            for block in gen_batches(len(self.squares), 128):  # in place, in the cache
                gaps = self.squares[block]
                gaps -= projections.take(self.table.second[block], axis=0)
                np.square(gaps, out=gaps)

    def rows(self, numbers: Indices) -> Floats:
        """Differences of the triplets of these numbers."""
        if self.squares is None:
            return triplet_differences(self.projections, self.triplets[numbers])
        Z = self.squares.take(self.table.near[numbers], axis=0)
        Z -= self.squares.take(self.table.far[numbers], axis=0)
        return Z

    def mean_hinge(self, weights: Floats) -> float:
        """Mean of [1 + w'z]_+ over all triplets."""
        if self.squares is None:
            return mean_hinge(weights, self.projections, self.table)
        distances = self.squares @ weights
        near = distances[self.table.near]
        far = distances[self.table.far]
        return float(np.maximum(1.0 + near - far, 0.0).mean())


# book/scml.ipynb#what-should-gamma-be
def dual_averaging(
    projections: Floats,
    triplets: Indices,
    beta: float,
    gamma: float | None = None,
    n_steps: int = 100_000,
    random_state: Seed = None,
    advance: Callable[[int], object] | None = None,
) -> tuple[Floats, Floats]:
    """Learn the weights of the directions by regularized dual averaging, a triplet a step.

    Parameters
    ----------
    projections : ndarray of shape (n_samples, n_basis)
        X F' for directions F.
    triplets : integer array of shape (n_triplets, 3)
        Samples (anchor, positive, negative).
    beta : float
        Penalty, at least 0, in the units of the differences. `SCML` takes it as a fraction.
    gamma : float or None, default=None
        Strength of the quadratic term. None takes `scaled_gamma`.
    n_steps : int, default=100_000
        Number of triplets drawn, with replacement, one in each step.
    random_state : int, RandomState instance or None, default=None
        Seed of the draws.
    advance : callable, optional
        Told at each check how many steps it comes after, as a bar of progress is.

    Returns
    -------
    weights : ndarray of shape (n_basis,)
        The best weights of those checked, which are 20 along the run.
    history : ndarray of shape (n_checks + 1,)
        Objective at zero weights, which is 1, and at each check.

    Notes
    -----
    Derived in chapter 8 (scml), eqs. (scml-dual-averaging), (scml-step), (scml-active) and
    (scml-gamma). Paper: section V-A (stSCML).

    Examples
    --------
    >>> P = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    >>> weights, history = dual_averaging(P, np.array([[0, 1, 2]]), 0.01, n_steps=1000)
    >>> weights.round(2).tolist()
    [0.0, 0.25]
    """
    real(0, largest=np.inf).check("beta", beta)
    optional(real(0, above=True, largest=np.inf)).check("gamma", gamma)
    whole(1).check("n_steps", n_steps)
    rng = check_random_state(random_state)
    gamma = _gamma(projections, triplets, gamma)
    n_basis = projections.shape[1]
    best = np.zeros(n_basis)
    history = [1.0]
    draws = rng.randint(len(triplets), size=n_steps)
    differences = _Differences(projections, triplets)
    sums = np.zeros(n_basis)  # minus the sum of the gradients
    every = -(-n_steps // 20)
    for first in range(0, n_steps, every):
        last = min(first + every, n_steps)
        for block in _blocks(last - first, n_basis):
            Z = differences.rows(draws[first:last][block])
            _dual_steps(Z, sums, first + block.start, beta, gamma)
        weights = np.maximum(sums - beta * last, 0.0) / (gamma * np.sqrt(last))
        history.append(differences.mean_hinge(weights) + beta * weights.sum())
        if history[-1] <= min(history):
            best = weights
        if advance is not None:
            advance(last - first)
    return best, np.array(history)


# book/scml.ipynb#how-strong-a-penalty
def mean_difference(projections: Floats, triplets: Indices) -> Floats:
    """Compute the mean over triplets of the squared differences of projections.

    Parameters
    ----------
    projections : ndarray of shape (n_samples, n_basis)
        X F' for directions F.
    triplets : integer array of shape (n_triplets, 3)
        Samples (anchor, positive, negative); of no triplets the mean is zero.

    Returns
    -------
    mean : ndarray of shape (n_basis,)
        The slope of the mean hinge at zero weights. Its largest negative is the smallest
        penalty under which all weights are zero.

    Notes
    -----
    Derived in chapter 8 (scml), eqs. (scml-mean) and (scml-largest).

    Examples
    --------
    >>> P = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    >>> mean_difference(P, np.array([[0, 1, 2]])).tolist()
    [1.0, -4.0]
    """
    total = np.zeros(projections.shape[1])
    for block in _blocks(len(triplets), projections.shape[1]):
        total += triplet_differences(projections, triplets[block]).sum(axis=0)
    return total / max(len(triplets), 1)


# book/scml.ipynb#how-strong-a-penalty
@storable
class SCML(TripletLearnerMixin, MetricLearnerMixin, BaseEstimator):
    """Learn a distance as a sparse non-negative combination of local Fisher directions.

    Parameters
    ----------
    n_basis : int or None, default=None
        Number of directions. None takes the larger of 100 and 20 (n_classes - 1).
    beta : float, default=1e-5
        l1 penalty of the weights, as a fraction of the smallest penalty that makes all of
        them zero. At least 0 and below 1; it has no units.
    gamma : float or None, default=None
        Strength of the quadratic term of dual averaging, above 0, in units of X to the power
        of four. None takes one fifth of the mean squared length of the triplets' differences.
    n_steps : int, default=100_000
        Number of triplets drawn, one in each step.
    n_targets : int, default=3
        Nearest samples of its own class that each sample forms triplets with.
    n_impostors : int, default=10
        Nearest samples of other classes that each sample forms triplets with.
    random_state : int, RandomState instance or None, default=None
        Seed of k-means and of the draws.
    max_samples : int or None, default=10_000
        Most samples that are learned from, at least 3. Of more, so many are drawn and each class
        keeps its share. None takes all; the time grows as the square of their number.
    verbose : bool, default=False
        Whether a bar shows the progress, which needs tqdm.

    Attributes
    ----------
    metric_ : FactoredMetric of shape (n_features, n_features)
        The learned metric, FactoredMetric(0, basis_, weights_).
    basis_ : ndarray of shape (n_found, n_features)
        Unit directions. Fewer than n_basis are found where the samples form too few regions.
    weights_ : ndarray of shape (n_found,)
        Non-negative weights of the directions.
    objective_history_ : ndarray of shape (n_checks + 1,)
        Objective at zero weights, which is 1, and at each check. The best weights are kept.
    gamma_ : float
        Strength of the quadratic term that was used.
    beta_max_ : float
        Smallest penalty that makes all weights zero. The penalty used is beta * beta_max_.
    n_triplets_ : int
        Number of triplets of the samples.
    n_features_in_ : int
        Number of features seen in `fit`.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if X was a data frame whose columns are all named by strings.

    See Also
    --------
    lml.baselines.mtscml.MultiTaskSCML : Several tasks that share their directions.

    Notes
    -----
    Derived in chapter 8 (scml), eqs. (scml-metric), (scml-objective), (scml-step), (scml-size) and
    (scml-scale). Paper: section V-A (stSCML) and Table I, row SCML. Multiplying X by c divides the
    metric by the square of c and changes no ranking, unless gamma is given.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> learner = SCML(n_basis=20, n_steps=2000, random_state=0).fit(X, y)
    >>> learner.metric_.shape
    (4, 4)
    """

    metric_type = "distance"
    _parameter_rules: ClassVar = {
        "n_basis": optional(whole(1)),
        "beta": real(0, 1, below=True),
        "gamma": optional(real(0, above=True)),
        "n_steps": whole(1),
        "n_targets": whole(1),
        "n_impostors": whole(1),
        "max_samples": optional(whole(3)),
        "random_state": seed(),
        "verbose": flag(),
    }

    def __init__(
        self,
        n_basis: int | None = None,
        beta: float = 1e-5,
        gamma: float | None = None,
        n_steps: int = 100_000,
        n_targets: int = 3,
        n_impostors: int = 10,
        random_state: Seed = None,
        max_samples: int | None = 10_000,
        verbose: bool = False,
    ) -> None:
        self.n_basis = n_basis
        self.beta = beta
        self.gamma = gamma
        self.n_steps = n_steps
        self.n_targets = n_targets
        self.n_impostors = n_impostors
        self.random_state = random_state
        self.max_samples = max_samples
        self.verbose = verbose

    def fit(self, X: MatrixLike, y: LabelsLike) -> Self:
        """Learn the weights of the directions.

        Parameters
        ----------
        X : {array-like, CSR matrix} of shape (n_samples, n_features)
            Samples, at least 3. A CSR matrix is not made dense; the directions are dense.
        y : array-like of shape (n_samples,)
            Class of each sample, of any hashable type: at least two classes, one of them with
            two samples.

        Returns
        -------
        self : SCML
            The fitted learner.

        Raises
        ------
        ValueError
            If a parameter is out of range, X is not finite, X and y differ in length, or
            the labels allow no triplet. Nothing is stored then.

        Warns
        -----
        ConvergenceWarning
            If every weight is zero, so that the metric is zero and ranks nothing.
        """
        check_parameters(self)
        fitted = copy.copy(self)  # a fit that fails changes nothing
        X, codes, labels = check_samples(fitted, X, y)
        check_two_classes(codes, labels)
        rng = check_random_state(self.random_state)
        X, codes = bounded_samples(X, codes, self.max_samples, rng)
        triplets = neighbor_triplets(X, codes, self.n_targets, self.n_impostors)
        # without a number 20 regions, or enough for 100 directions
        n_basis = self.n_basis or max(100, 20 * codes.max())
        basis = local_directions(X, codes, n_basis, random_state=rng)
        fitted._compose(X, basis, triplets, rng)
        self.__dict__ = fitted.__dict__
        return self

    def _learn_triplets(self, X: Matrix, triplets: Indices) -> None:
        """Directions of the triplets, then their weights."""
        rng = check_random_state(self.random_state)
        basis = triplet_directions(X, triplets, self.n_basis or 100, rng)
        self._compose(X, basis, triplets, rng)

    def _compose(
        self, X: Matrix, basis: Floats, triplets: Indices, rng: np.random.RandomState
    ) -> None:
        """Learn the weights of directions, eqs. (scml-objective) and (scml-largest)."""
        projections = times_transpose(X, basis)
        gamma = _gamma(projections, triplets, self.gamma)
        beta_max = float(np.max(-mean_difference(projections, triplets), initial=0.0))
        with progress("SCML", self.n_steps, self.verbose) as advance:
            self.weights_, self.objective_history_ = dual_averaging(
                projections, triplets, self.beta * beta_max, gamma, self.n_steps, rng, advance
            )
        if not self.weights_.any():
            warnings.warn(
                f"no weights lowered the objective in n_steps={self.n_steps}, so the metric is"
                " zero and ranks nothing: raise n_steps or lower beta; if that does not help, no"
                " direction brings samples of one class nearer than those of others",
                ConvergenceWarning,
                stacklevel=3,
            )
        self.basis_ = basis
        self.gamma_ = gamma
        self.beta_max_ = beta_max
        self.n_triplets_ = len(triplets)
        self.metric_ = FactoredMetric._trusted(0.0, basis, self.weights_)
