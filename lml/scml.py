# Generated from book/scml.ipynb by tools/tangle.py: edit the chapter.
"""Sparse compositional metric learning: M = sum of w_i b_i b_i', non-negative weights.

The directions b_i are a local Fisher basis; the weights minimise the mean hinge of nearest
triplets plus an l1 penalty, by regularised dual averaging. The metric is a squared distance
and stays factored: FactoredMetric(0, basis, weights).
"""

import copy
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import validate_data

from lml.fisher import local_fisher_basis
from lml.metrics import FactoredMetric, MetricLearnerMixin, _is_real, _plain
from lml.neighbors import _class_numbers
from lml.triplets import _check_rows, _count, nearest_triplets
from lml.utils.typing import Floats, Indices, LabelsLike, Matrix, MatrixLike, Seed

__all__ = ["SCML", "dual_averaging", "scml_objective", "triplet_differences"]


# book/scml.ipynb#the-composition
def triplet_differences(projections: Floats, triplets: ArrayLike) -> Floats:
    """Squared differences of projections, positive pair minus negative pair.

    Parameters
    ----------
    projections : ndarray of shape (n_samples, n_basis)
        X F' for directions F.
    triplets : integer array of shape (n_triplets, 3)
        Rows (anchor, positive, negative).

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


# book/scml.ipynb#the-objective-without-all-differences
def _pair_table(triplets: Indices, n_samples: int) -> tuple[Indices, Indices, Indices]:
    """Distinct pairs (a, b) of the triplets, and where each triplet finds its two pairs."""
    i, j, k = triplets.T
    pairs, where = np.unique(i * n_samples + np.stack([j, k]), return_inverse=True)
    return pairs // n_samples, pairs % n_samples, where.reshape(2, -1)


def _mean_hinge(
    weights: Floats, projections: Floats, table: tuple[Indices, Indices, Indices]
) -> float:
    """Mean of [1 + d(i, j) - d(i, k)]_+ over triplets, a block of pairs at a time."""
    a, b, (near, far) = table
    active = np.flatnonzero(weights)
    scaled = projections[:, active] * np.sqrt(weights[active])
    distances = np.empty(len(a))
    step = max(1, 2**16 // max(len(active), 1))  # in the cache
    for start in range(0, len(a), step):
        part = slice(start, start + step)
        gaps = scaled[a[part]] - scaled[b[part]]
        distances[part] = np.einsum("ij,ij->i", gaps, gaps)
    return float(np.maximum(1.0 + distances[near] - distances[far], 0.0).mean())


# book/scml.ipynb#the-objective-without-all-differences
def scml_objective(
    weights: ArrayLike, projections: Floats, triplets: ArrayLike, beta: float = 0.0
) -> float:
    """Mean hinge of the weighted distance plus the l1 penalty of the weights.

    Parameters
    ----------
    weights : array-like of shape (n_basis,)
        Non-negative weights.
    projections : ndarray of shape (n_samples, n_basis)
        X F' for directions F.
    triplets : integer array of shape (n_triplets, 3)
        Rows (anchor, positive, negative); the mean over no triplets is zero.
    beta : float, default=0.0
        Penalty, at least 0.

    Returns
    -------
    objective : float

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
    return penalty + _mean_hinge(weights, projections, _pair_table(triplets, len(projections)))


# book/scml.ipynb#what-should-gamma-be
def _scaled_gamma(projections: Floats, triplets: Indices, gamma: float | None) -> float:
    """The given gamma, or one fifth of the mean squared length of the differences."""
    if gamma is not None:
        return gamma
    total = 0.0
    step = max(1, 2**16 // max(projections.shape[1], 1))
    for start in range(0, len(triplets), step):
        part = triplet_differences(projections, triplets[start : start + step])
        total += float(np.vdot(part, part))
    return total / max(5 * len(triplets), 1)


# book/scml.ipynb#three-operations-a-step
def _advance(Z: Floats, sums: Floats, first: int, beta: float, gamma: float) -> None:
    """Take a step on each row of Z (b, K), numbered from first + 1; sums (K,) is updated."""
    done = first + np.arange(len(Z))
    largest = np.empty_like(sums)
    floors = beta * done
    limits = floors * Z.sum(axis=1) - gamma * np.sqrt(done)
    limits[done == 0] = -np.inf
    maximum = np.maximum
    dot = largest.dot
    level = np.empty(())  # numpy takes arrays sooner
    for z, floor, limit in zip(Z, floors.tolist(), limits.tolist()):
        level[()] = floor
        maximum(sums, level, out=largest)
        if dot(z) > limit:
            sums -= z


# book/scml.ipynb#three-operations-a-step
def _squared_gaps(projections: Floats, a: Indices, b: Indices) -> Floats:
    """Squares of the differences of pairs of rows, in place and a block at a time."""
    squares = projections.take(a, axis=0)
    for start in range(0, len(b), 128):
        part = squares[start : start + 128]
        part -= projections.take(b[start : start + 128], axis=0)
        np.square(part, out=part)
    return squares


# book/scml.ipynb#three-operations-a-step
class _Differences:
    """The differences z of triplets (m, 3), from the squares of their distinct pairs."""

    def __init__(self, projections: Floats, triplets: Indices) -> None:
        self.parts = (projections, triplets)
        self.table = _pair_table(triplets, len(projections))
        a, b, _ = self.table
        self.squares: Floats | None = None
        if len(a) * projections.shape[1] <= 2**23:
            self.squares = _squared_gaps(projections, a, b)

    def rows(self, numbers: Indices) -> Floats:
        """Differences of the triplets of these numbers."""
        near, far = self.table[2][:, numbers]
        if self.squares is None:
            return triplet_differences(self.parts[0], self.parts[1][numbers])
        Z = self.squares.take(near, axis=0)
        Z -= self.squares.take(far, axis=0)
        return Z

    def mean_hinge(self, weights: Floats) -> float:
        """Mean of [1 + w'z]_+ over all triplets."""
        if self.squares is None:
            return _mean_hinge(weights, self.parts[0], self.table)
        distances = self.squares @ weights
        near, far = self.table[2]
        return float(np.maximum(1.0 + distances[near] - distances[far], 0.0).mean())

    def descend(
        self, numbers: Indices, sums: Floats, first: int, beta: float, gamma: float
    ) -> None:
        """A step on each of the triplets of these numbers, numbered from first + 1."""
        block = 2**16 // max(len(sums), 1) + 1
        for start in range(0, len(numbers), block):
            Z = self.rows(numbers[start : start + block])
            _advance(Z, sums, first + start, beta, gamma)


# book/scml.ipynb#three-operations-a-step
def dual_averaging(
    projections: Floats,
    triplets: Indices,
    beta: float,
    gamma: float | None = None,
    n_steps: int = 100_000,
    random_state: Seed = None,
) -> tuple[Floats, Floats]:
    """Weights of the directions by regularised dual averaging, one triplet a step.

    Parameters
    ----------
    projections : ndarray of shape (n_samples, n_basis)
        X F' for directions F.
    triplets : integer array of shape (n_triplets, 3)
        Rows (anchor, positive, negative).
    beta : float
        Penalty, at least 0.
    gamma : float or None, default=None
        Strength of the quadratic term. None: one fifth of the mean squared length of the
        triplets' differences.
    n_steps : int, default=100_000
        Triplets drawn, with replacement.
    random_state : int, RandomState instance or None, default=None
        Draws the triplets.

    Returns
    -------
    weights : ndarray of shape (n_basis,)
        The best of those checked, which are every twentieth part of the steps.
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
    rng = check_random_state(random_state)
    gamma = _scaled_gamma(projections, triplets, gamma)
    history = [1.0]
    (best, sums) = np.zeros((2, projections.shape[1]))
    if not gamma:  # every difference is zero: no weights can change the loss
        return best, np.array(history)
    draws = rng.randint(len(triplets), size=n_steps)
    every = -(-n_steps // 20)
    differences = _Differences(projections, triplets)
    for first in range(0, n_steps, every):
        last = min(first + every, n_steps)
        differences.descend(draws[first:last], sums, first, beta, gamma)
        weights = np.maximum(sums - beta * last, 0.0) / (gamma * np.sqrt(last))
        history.append(differences.mean_hinge(weights) + beta * weights.sum())
        if history[-1] <= min(history):
            best = weights
    return best, np.array(history)


# book/scml.ipynb#the-estimator
class SCML(MetricLearnerMixin, BaseEstimator):
    """Distance metric composed of local Fisher directions with sparse non-negative weights.

    Parameters
    ----------
    n_basis : int or None, default=None
        Number of directions. None: the larger of 100 and 20 (classes - 1).
    beta : float, default=1e-5
        l1 penalty of the weights, at least 0.
    gamma : float or None, default=None
        Strength of the quadratic term of dual averaging, above 0. None: one fifth of the
        mean squared length of the triplets' differences.
    n_steps : int, default=100_000
        Triplets drawn.
    n_targets, n_impostors : int, default=3 and 10
        Neighbours of the same class and of other classes that make the triplets.
    random_state : int, RandomState instance or None, default=None
        Seed of k-means and of the draws.

    Attributes
    ----------
    metric_ : FactoredMetric
        FactoredMetric(0, basis_, weights_).
    basis_ : ndarray of shape (n_basis, n_features)
        Unit directions; fewer where the rows allow fewer regions.
    weights_ : ndarray of shape (n_basis,)
        Non-negative weights.
    objective_history_ : ndarray of shape (n_checks + 1,)
        Objective at zero weights, which is 1, and at each check; the best weights are kept.
    gamma_ : float
        The value used.
    n_triplets_ : int
        Triplets that the rows gave.
    n_features_in_ : int

    Notes
    -----
    Derived in chapter 8 (scml), eqs. (scml-metric), (scml-objective), (scml-step) and (scml-size).
    Paper: section V-A (stSCML) and Table I, row SCML.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> learner = SCML(n_basis=20, n_steps=2000, random_state=0).fit(X, y)
    >>> learner.metric_.shape
    (4, 4)
    """

    metric_type = "distance"

    def __init__(
        self,
        n_basis: int | None = None,
        beta: float = 1e-5,
        gamma: float | None = None,
        n_steps: int = 100_000,
        n_targets: int = 3,
        n_impostors: int = 10,
        random_state: Seed = None,
    ) -> None:
        self.n_basis = n_basis
        self.beta = beta
        self.gamma = gamma
        self.n_steps = n_steps
        self.n_targets = n_targets
        self.n_impostors = n_impostors
        self.random_state = random_state

    def _check_parameters(self) -> None:
        """Every parameter in its range, or an error; None stands for a default."""
        _number(self.beta, "beta", zero=True)
        if self.gamma is not None:
            _number(self.gamma, "gamma", zero=False)
        if self.n_basis is not None:
            _count(self.n_basis, "n_basis")
        for name in ("n_steps", "n_targets", "n_impostors"):
            _count(getattr(self, name), name)

    def fit(self, X: MatrixLike, y: LabelsLike) -> Self:
        """Learn the weights.

        Parameters
        ----------
        X : {array-like, CSR matrix} of shape (n_samples, n_features)
            Rows, at least 3. CSR rows are not made dense; the directions are.
        y : array-like of shape (n_samples,)
            Labels of any hashable type; at least two classes, one of them with two rows.

        Returns
        -------
        self : SCML

        Raises
        ------
        ValueError
            If a parameter is out of range, X is not finite, X and y differ in length, or
            the labels allow no triplet. Nothing is stored then.
        """
        self._check_parameters()
        learnt = copy.copy(self)
        learnt._fit(X, y)
        self.__dict__ = learnt.__dict__  # all at once: a fit that fails changes nothing
        return self

    def _fit(self, X: MatrixLike, y: LabelsLike) -> None:
        """Check the rows, choose triplets and basis, learn the weights."""
        kwargs = {"accept_sparse": "csr", "ensure_all_finite": False, "ensure_min_samples": 3}
        codes, labels = (None, ()) if y is None else _class_numbers(y)
        X, codes = validate_data(self, _plain(X), codes, dtype=np.float64, **kwargs)
        _check_finite(X)
        y = [labels[code] for code in codes]
        triplets = nearest_triplets(X, y, self.n_targets, self.n_impostors)
        rng = check_random_state(self.random_state)
        n_basis = self.n_basis
        if n_basis is None:
            n_basis = max(100, 20 * codes.max())
        basis = local_fisher_basis(X, codes, n_basis, random_state=rng)
        self._learn(X, basis, triplets, rng)

    def _learn(
        self, X: Matrix, basis: Floats, triplets: Indices, rng: np.random.RandomState
    ) -> None:
        """Project, weigh, store."""
        P = safe_sparse_dot(X, basis.T, dense_output=True)
        self.gamma_ = _scaled_gamma(P, triplets, self.gamma)
        self.weights_, self.objective_history_ = dual_averaging(
            P, triplets, self.beta, self.gamma_, self.n_steps, rng
        )
        self.basis_ = basis
        self.n_triplets_ = len(triplets)
        self.metric_ = FactoredMetric(0.0, basis, self.weights_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        return tags


# book/scml.ipynb#the-estimator
def _number(value: Any, name: str, zero: bool) -> float:
    """Return a finite positive number (or zero, if allowed), or say what is wrong with it."""
    if not _is_real(value) or not (0 if zero else np.finfo(float).tiny) <= value < np.inf:
        bound = "of at least 0" if zero else "above 0"
        raise ValueError(f"{name} is {value!r}: give a finite number {bound}")
    return float(value)


# book/scml.ipynb#the-estimator
def _check_finite(X: Matrix) -> None:
    """An error that says where X is not finite."""
    try:
        _check_rows(X)
    except ValueError as error:
        raise ValueError(f"Input X contains NaN or infinity: {error}") from None
