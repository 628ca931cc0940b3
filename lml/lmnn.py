# Generated from book/lmnn.ipynb by tools/tangle.py: edit the chapter.
"""Large margin nearest neighbors: pull of target neighbors, push of impostors.

min over M >= 0 of (1 - mu) pull + mu push, a convex problem solved over L with M = L'L by
L-BFGS on a rounded hinge, with a lower bound from the dual; optionally shrunk to a multiple
of the identity. The metric is a squared distance.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, optimize, sparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_consistent_length, gen_batches

from lml.metrics import FactoredMetric, MetricLearnerMixin
from lml.neighbors import nearest_references
from lml.state import storable
from lml.triplets import bounded_samples, encode_triplet_classes
from lml.utils.linalg import svd
from lml.utils.progress import progress
from lml.utils.typing import Floats, Indices, LabelsLike, Matrix, MatrixLike, Seed
from lml.utils.validation import (
    Rule,
    check_matrix,
    check_parameters,
    check_samples,
    check_two_classes,
    encode_labels,
    flag,
    is_real,
    optional,
    real,
    seed,
    whole,
)

__all__ = [
    "LMNN",
    "LossGradient",
    "impostors",
    "lmnn_loss_gradient",
    "row_space",
    "target_neighbors",
]


# book/lmnn.ipynb#target-neighbors
def target_neighbors(X: MatrixLike, y: LabelsLike, n_neighbors: int = 3) -> Indices:
    """Pair each sample with its nearest samples of the same class.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Samples; distances are Euclidean.
    y : array-like of shape (n_samples,)
        Class of each sample, of any hashable type.
    n_neighbors : int, default=3
        Targets of each sample; fewer if its class is smaller.

    Returns
    -------
    targets : ndarray of shape (n_targets, 2)
        Samples (i, j), i ascending, and for each i from near to far. The only sample of a
        class is in no pair.

    Raises
    ------
    ValueError
        If X is not finite, X and y differ in length, or the labels allow no triplet.

    Notes
    -----
    Derived in chapter 9 (lmnn), eq. (lmnn-targets).
    Paper: section V-A (stLMNN).

    Examples
    --------
    >>> target_neighbors([[0.0], [1.0], [3.0], [9.0]], ["a", "a", "a", "b"], 1).tolist()
    [[0, 1], [1, 0], [2, 1]]
    """
    X = check_matrix(X)
    whole(1).check("n_neighbors", n_neighbors)
    codes = encode_triplet_classes(y)
    check_consistent_length(X, codes)
    return _targets(X, codes, n_neighbors)


# book/lmnn.ipynb#target-neighbors
def _targets(X: Floats, codes: Indices, n_neighbors: int) -> Indices:
    """What `target_neighbors` gives, for arrays that were checked before."""
    euclidean = FactoredMetric.identity(X.shape[1])
    found = []
    for code in np.flatnonzero(np.bincount(codes) > 1):
        members = np.flatnonzero(codes == code)
        k = min(int(n_neighbors), len(members) - 1)
        near, _ = nearest_references(euclidean, None, X[members], "distance", k)
        found.append(np.stack([np.repeat(members, k), members[near].ravel()], axis=1))
    pairs = np.concatenate(found)
    return pairs[np.argsort(pairs[:, 0], kind="stable")]


# book/lmnn.ipynb#the-objective
def _target_distances(Z: Floats, targets: Indices) -> tuple[Floats, Floats]:
    """Squared distances of the target pairs, and for each sample the largest (-inf: no target)."""
    i, j = targets.T
    distances = np.square(Z[i] - Z[j]).sum(axis=1)
    radii = np.full(len(Z), -np.inf)
    first = np.flatnonzero(np.diff(i, prepend=-1))
    radii[i[first]] = np.maximum.reduceat(distances, first)  # the pairs are sorted by i
    return distances, radii


def _identity_scale(X: Floats, targets: Indices) -> float:
    """One over the mean squared distance of target pairs, or of samples from their mean."""
    for squares in (_target_distances(X, targets)[0], np.square(X - X.mean(axis=0)).sum(axis=1)):
        mean = float(squares.mean())
        if 1e-150 < mean < np.inf:
            return 1 / mean
    return 1.0


# book/lmnn.ipynb#finding-impostors-without-loops
_BLOCK = 2**22  # numbers in the largest temporary array of a block


def _reaches(Z: Floats, targets: Indices, margin: float) -> Floats:
    """The radius of each sample within which one of another class is an impostor; -inf: none."""
    squares = _target_distances(Z, targets)[1] + margin
    return np.where(squares >= 0, np.sqrt(np.maximum(squares, 0.0)), -np.inf)


# book/lmnn.ipynb#finding-impostors-without-loops
def _pairs_within(Z: Floats, codes: Indices, reach: Floats) -> Indices:
    """Pairs (i, k) of two classes with sample k within the radius reach[i] of sample i."""
    limits = np.where(reach >= 0, np.square(reach), -np.inf)
    squares = np.einsum("ij,ij->i", Z, Z)
    found = []
    for rows in gen_batches(len(Z), max(1, _BLOCK // len(Z))):
        close = squares - 2 * (Z[rows] @ Z.T) < (limits - squares)[rows, None]
        i, k = np.nonzero(close & (codes[rows, None] != codes))
        found.append(np.stack([i + rows.start, k], axis=1))
    return np.concatenate(found)


# book/lmnn.ipynb#finding-impostors-without-loops
def impostors(
    Z: Floats, y: LabelsLike, targets: Indices, margin: float = 1.0, slack: float = 0.0
) -> Indices:
    """Pair each sample with those of other classes nearer than its furthest target plus margin.

    Parameters
    ----------
    Z : ndarray of shape (n_samples, n_components)
        Mapped samples X L'. The metric L'L is Euclidean there.
    y : array-like of shape (n_samples,)
        Class of each sample.
    targets : ndarray of shape (n_targets, 2)
        Target pairs, from `target_neighbors`.
    margin : float, default=1.0
        Added to the squared distance of the furthest target.
    slack : float, default=0.0
        Added to the radius, which is the root of that sum.

    Returns
    -------
    pairs : ndarray of shape (n_pairs, 2)
        Samples (i, k) in lexicographic order.

    Notes
    -----
    Derived in chapter 9 (lmnn), eqs. (lmnn-radius) and (lmnn-slack).

    Examples
    --------
    >>> Z = np.array([[0.0], [1.0], [1.2], [3.0]])
    >>> impostors(Z, ["a", "a", "b", "b"], np.array([[0, 1], [1, 0]])).tolist()
    [[0, 2], [1, 2]]
    """
    codes, _ = encode_labels(y)
    return _pairs_within(Z, codes, _reaches(Z, targets, margin) + slack)


# book/lmnn.ipynb#finding-impostors-without-loops
class _ImpostorSearch:
    """Impostor pairs of moving samples, searched anew only when some may be missing."""

    Z: Floats  # the samples at the last search
    reach: Floats  # its radii, with the slack
    pairs: Indices  # what it found

    def __init__(self, codes: Indices, targets: Indices) -> None:
        self.codes = codes
        self.targets = targets
        self.n_searches = 0

    def __call__(self, Z: Floats, margin: float) -> Indices:
        """A list of pairs that holds all impostors."""
        reach = _reaches(Z, self.targets, margin)
        if self.n_searches:
            moves = np.sqrt(np.square(Z - self.Z).sum(axis=1))
            if np.all(reach + moves + moves.max() <= self.reach):
                return self.pairs
        slack = 0.1 * np.sqrt(np.mean(np.square(reach[reach >= 0])))
        self.Z = Z
        self.reach = reach + slack
        self.pairs = _pairs_within(Z, self.codes, self.reach)
        self.n_searches += 1
        return self.pairs


# book/lmnn.ipynb#the-gradient-is-a-laplacian
def _starts(pairs: Indices, n_samples: int) -> Indices:
    """Where the pairs of each sample begin in a list that is sorted by the first sample."""
    return np.searchsorted(pairs[:, 0], np.arange(n_samples + 1))


def _laplacian(pairs: Indices, weights: NDArray[Any], n_samples: int) -> Matrix:
    """Sum of weight (e_i - e_k)(e_i - e_k)' over pairs sorted by i, a CSR array."""
    starts = _starts(pairs, n_samples)
    S = sparse.csr_array((weights, pairs[:, 1], starts), shape=(n_samples, n_samples))
    S = S + S.T
    return sparse.diags_array(S.sum(axis=1), format="csr") - S


def _triplets_of(targets: Indices, pairs: Indices) -> tuple[Indices, Indices]:
    """All triplets as two index arrays, into the impostor pairs and into the target pairs."""
    starts = _starts(targets, 1 + pairs[:, 0].max(initial=0))
    first = starts[pairs[:, 0]]
    counts = np.diff(starts)[pairs[:, 0]]
    pair = np.repeat(np.arange(len(pairs)), counts)
    return pair, np.arange(len(pair)) + np.repeat(first - np.cumsum(counts) + counts, counts)


# book/lmnn.ipynb#the-gradient-is-a-laplacian
def _pair_distances(Z: Floats, pairs: Indices) -> Floats:
    """Squared distances of pairs sorted by their first sample.

    By a product of all samples of a block where many of its pairs are asked for.
    """
    squares = np.einsum("ij,ij->i", Z, Z)
    products = np.empty(len(pairs))
    for rows in gen_batches(len(Z), max(1, _BLOCK // len(Z))):
        part = slice(*np.searchsorted(pairs[:, 0], [rows.start, rows.stop]))
        i, k = pairs[part].T
        if 25 * len(i) < (rows.stop - rows.start) * len(Z):
            products[part] = np.einsum("ij,ij->i", Z[i], Z[k])
        else:
            products[part] = (Z[rows] @ Z.T)[i - rows.start, k]
    return squares[pairs[:, 0]] + squares[pairs[:, 1]] - 2 * products


# book/lmnn.ipynb#rounding-the-kink
def _rounded_hinge(excess: Floats, smoothing: float) -> tuple[Floats, Floats]:
    """Value and slope of the hinge, its kink rounded over a width of `smoothing`."""
    if not smoothing:
        return np.maximum(excess, 0.0), (excess > 0).astype(float)
    slope = np.clip(excess / smoothing + 0.5, 0.0, 1.0)
    return np.where(slope < 1, smoothing / 2 * np.square(slope), excess), slope


# book/lmnn.ipynb#rounding-the-kink
class LossGradient(NamedTuple):
    """Loss of LMNN and its gradient, as `lmnn_loss_gradient` returns them.

    Parameters
    ----------
    loss : float
        The loss with the rounded hinge.
    laplacian : CSR array of shape (n_samples, n_samples)
        K. The gradient with respect to the metric is X' K X.
    exact : float
        The loss with the true hinge.
    weight : float
        Sum of the triplets' slopes times push_weight.
    """

    loss: float
    laplacian: sparse.csr_array
    exact: float
    weight: float


# book/lmnn.ipynb#rounding-the-kink
def lmnn_loss_gradient(
    Z: Floats, targets: Indices, pairs: Indices, push_weight: float = 0.5, smoothing: float = 0.0
) -> LossGradient:
    """Compute pull and push of mapped samples, and the Laplacian of their gradient.

    Parameters
    ----------
    Z : ndarray of shape (n_samples, n_components)
        Mapped samples X L'. The metric L'L is Euclidean there.
    targets : ndarray of shape (n_targets, 2)
        Target pairs, from `target_neighbors`.
    pairs : ndarray of shape (n_pairs, 2)
        Pairs (i, k) of samples of different classes, sorted by i. All pairs of
        ``impostors(Z, y, targets, 1 + smoothing / 2)`` must be among them; others add nothing.
    push_weight : float, default=0.5
        Weight mu of the push, between 0 and 1; the pull has the weight 1 - mu.
    smoothing : float, default=0.0
        Width over which the kink of the hinge is rounded.

    Returns
    -------
    LossGradient
        The gradient of the loss is X' K X with respect to M and 2 (K Z)' X with respect to L.

    Notes
    -----
    Derived in chapter 9 (lmnn), eqs. (lmnn-objective), (lmnn-laplacian), (lmnn-weights) and
    (lmnn-hinge).

    Examples
    --------
    >>> Z, targets = np.array([[0.0], [1.0], [1.5]]), np.array([[0, 1], [1, 0]])
    >>> lmnn_loss_gradient(Z, targets, np.array([[0, 2], [1, 2]])).loss
    1.875
    """
    mu = push_weight
    near, radii = _target_distances(Z, targets)
    far = _pair_distances(Z, pairs)
    close = far < radii[pairs[:, 0]] + 1 + smoothing / 2
    pairs = pairs[close]
    far = far[close]
    pair, target = _triplets_of(targets, pairs)
    excess = 1 + near[target] - far[pair]
    values, slopes = _rounded_hinge(excess, smoothing)
    # the weights of target pairs and of impostor pairs in the Laplacian
    pull = (1 - mu) + mu * np.bincount(target, slopes, len(targets))
    push = mu * np.bincount(pair, slopes, len(pairs))
    pulled = (1 - mu) * near.sum()
    return LossGradient(
        loss=float(pulled + mu * values.sum()),
        laplacian=_laplacian(targets, pull, len(Z)) - _laplacian(pairs, push, len(Z)),
        exact=float(pulled + mu * np.maximum(excess, 0.0).sum()),
        weight=float(push.sum()),
    )


# book/lmnn.ipynb#rounding-the-kink
def row_space(X: Floats) -> tuple[Floats, Floats]:
    """Coordinates (n, r) of samples and the orthonormal rows (r, D) they refer to; r is at least 1."""
    U, values, V = svd(X)
    keep = values > max(X.shape) * np.finfo(float).eps * values[0]
    if not keep.any():  # all samples are zero
        return np.zeros((len(X), 1)), np.eye(1, X.shape[1])
    return U[:, keep] * values[keep], V[keep]


# book/lmnn.ipynb#a-lower-bound
def _feasible_share(P: Floats, G: Floats) -> float:
    """The largest share s in [0, 1] with P + s (G - P) positive semi-definite."""
    if linalg.eigvalsh(G)[0] >= 0:
        return 1.0
    try:
        largest = linalg.eigh(P - G, P, eigvals_only=True)[-1]
    except linalg.LinAlgError:  # P is singular
        return 0.0
    return float(1 / max(largest, 1.0))


# book/lmnn.ipynb#the-solver
class _Problem:
    """The objective over L, for samples in which target neighbors are at distance 1 on average."""

    def __init__(
        self, rows: Floats, codes: Indices, targets: Indices, push_weight: float, ridge: float
    ) -> None:
        self.rows = rows
        self.targets = targets
        self.push_weight = push_weight
        self.ridge = ridge
        self.search = _ImpostorSearch(codes, targets)
        weights = np.full(len(targets), 1 - push_weight)
        self.pull = rows.T @ (_laplacian(targets, weights, len(rows)) @ rows)
        # L = A S^(-1/2) makes the pull bend equally in all directions; S may be singular
        values, vectors = linalg.eigh(self.pull + 2 * ridge * np.eye(len(self.pull)))
        roots = np.sqrt(np.maximum(values, 1e-10 * (max(values[-1], 0.0) or 1.0)))
        self.root = (vectors * roots) @ vectors.T
        self.inverse_root = vectors / roots @ vectors.T
        self.exact = np.inf  # objective at the last point, with the true hinge
        self.best_objective = np.inf
        self.best_map = np.eye(len(values))
        self.history: list[float] = []  # objective of each iterate
        self.has_stopped_early = False

    def evaluate(self, L: Floats, smoothing: float) -> tuple[Floats, LossGradient]:
        """Mapped samples and their loss."""
        Z = self.rows @ L.T
        pairs = self.search(Z, 1 + smoothing / 2)
        return Z, lmnn_loss_gradient(Z, self.targets, pairs, self.push_weight, smoothing)

    def __call__(self, entries: Floats, smoothing: float) -> tuple[float, Floats]:
        """Rounded objective and its gradient, for the entries of A."""
        L = entries.reshape(self.root.shape) @ self.inverse_root
        Z, result = self.evaluate(L, smoothing)
        gradient = 2 * (result.laplacian @ Z).T @ self.rows
        penalty = 0.0
        if self.ridge:
            deviation = L.T @ L - np.eye(len(L))
            penalty = self.ridge * float(np.vdot(deviation, deviation))
            gradient += 4 * self.ridge * (L @ deviation)
        self.exact = result.exact + penalty
        if self.exact < self.best_objective:
            self.best_objective = self.exact
            self.best_map = L
        return result.loss + penalty, (gradient @ self.inverse_root).ravel()

    def bound(self, L: Floats, smoothing: float) -> float:
        """A number that no metric's objective is below."""
        _, result = self.evaluate(L, smoothing)
        G = self.rows.T @ (result.laplacian @ self.rows)
        if not self.ridge:
            return result.weight * _feasible_share(self.pull, G)
        values = linalg.eigvalsh(np.eye(len(G)) - G / (2 * self.ridge))
        return result.weight + self.ridge * (len(G) - np.sum(np.maximum(values, 0.0) ** 2))

    def solve(
        self, tol: float, max_iter: int, advance: Callable[[int], object] | None = None
    ) -> tuple[Floats, float]:
        """The best L and a lower bound of the objective."""
        A = self.root  # L = I
        smoothing = 1.0
        bound = 0.0
        self(A.ravel(), smoothing)
        self.history = [self.exact]
        floor = 0.01 * tol * self.exact

        def after_step(intermediate_result: Any) -> None:
            self.history.append(self.exact)
            if advance is not None:
                advance(1)
            if self.best_objective <= floor:
                raise StopIteration

        while smoothing > 1e-6 and len(self.history) <= max_iter:
            before = self.best_objective
            left = max_iter + 1 - len(self.history)
            options = {"maxiter": left, "maxfun": 10**9, "ftol": 0.1 * tol * smoothing, "gtol": 0.0}
            found = optimize.minimize(
                self, A.ravel(), args=(smoothing,), jac=True, method="L-BFGS-B",
                callback=after_step, options=options,
            )  # fmt: skip
            A = found.x.reshape(A.shape)
            bound = max(bound, self.bound(A @ self.inverse_root, smoothing))
            # end where it is proved to be near the minimum, or where rounding hides no more
            least = self.best_objective
            gap = least - bound
            hidden = max(before - least, gap / 10) if self.ridge else found.fun - least
            if least <= floor or min(gap, hidden) <= tol * least:
                break
            smoothing /= 4
        else:
            self.has_stopped_early = len(self.history) > max_iter
        return self.best_map, bound


# book/lmnn.ipynb#the-estimator
@storable
class LMNN(MetricLearnerMixin, BaseEstimator):
    """Learn a distance by large margin nearest neighbors.

    Parameters
    ----------
    push_weight : float, default=0.5
        Weight mu of the push of impostors, between 0 and 1. The pull of targets has 1 - mu.
    n_targets : int, default=3
        Target neighbors of each sample; fewer if its class is smaller.
    shrinkage : float, default=0.0
        Strength with which the metric is drawn to a multiple of the identity, at least 0. Its
        units depend neither on the scale nor on the number of the samples; 0.01 is a good
        first value. With 0 the problem is the published one. Its minimum is zero and
        meaningless if there are more features than samples.
    max_iter : int, default=1000
        Largest number of steps; a ConvergenceWarning says that they were too few.
    tol : float, default=1e-3
        Relative tolerance, above 0. The solver stops when the objective is proved to be this
        near to the smallest one, when it is proved to be ten times tol near and a finer rounding
        of the hinge lowers it by less than tol, or when it is below tol / 100 times the objective
        at the start; without shrinkage also when rounding the hinge raises it by less than tol.
    max_samples : int or None, default=2_500
        Most samples that are learned from, at least 3. Of more, so many are drawn and each class
        keeps its share. None takes all; the time grows as the square of their number.
    random_state : int, RandomState instance or None, default=None
        Seed of this draw.
    verbose : bool, default=False
        Whether a bar counts the steps, which needs tqdm. Most fits end before max_iter.

    Attributes
    ----------
    metric_ : FactoredMetric of shape (n_features, n_features)
        The learned metric, positive semi-definite.
    scale_ : float
        The multiple of the identity from which the solver starts and to which it shrinks.
    objective_ : float
        Objective of the metric.
    dual_bound_ : float
        Lower bound of the objective of every metric.
    gap_ : float
        Objective minus bound, as a fraction of the objective.
    objective_history_ : ndarray of shape (n_iter + 1,)
        Objective of each iterate. It may rise in a step; the best iterate is kept.
    n_iter_ : int
        Number of steps taken.
    n_features_in_ : int
        Number of features seen in `fit`.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if X was a data frame whose columns are all named by strings.

    See Also
    --------
    lml.baselines.mtlmnn.MultiTaskLMNN : Several tasks with a shared and an own part.

    Notes
    -----
    Derived in chapter 9 (lmnn), eqs. (lmnn-objective), (lmnn-shrunk), (lmnn-scale) and
    (lmnn-bound); chapter 44 (large), eq. (large-share). Paper: section V-A (stLMNN). The only
    sample of a class has no target; it may be an impostor. Outside the span of the centered samples
    the metric is zero; with shrinkage it is `scale_` times the identity. Nearest neighbors among
    the samples are the same either way.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> learner = LMNN(shrinkage=0.01).fit(X, y)
    >>> learner.metric_.shape, bool(learner.gap_ <= 1e-3)
    ((4, 4), True)
    """

    metric_type = "distance"
    _parameter_rules: ClassVar = {
        "push_weight": Rule(lambda mu: is_real(mu) and 0 < mu < 1, "a number between 0 and 1"),
        "n_targets": whole(1),
        "shrinkage": real(0),
        "max_iter": whole(1),
        "tol": real(0, above=True),
        "max_samples": optional(whole(3)),
        "random_state": seed(),
        "verbose": flag(),
    }

    def __init__(
        self,
        push_weight: float = 0.5,
        n_targets: int = 3,
        shrinkage: float = 0.0,
        max_iter: int = 1000,
        tol: float = 1e-3,
        max_samples: int | None = 2_500,
        random_state: Seed = None,
        verbose: bool = False,
    ) -> None:
        self.push_weight = push_weight
        self.n_targets = n_targets
        self.shrinkage = shrinkage
        self.max_iter = max_iter
        self.tol = tol
        self.max_samples = max_samples
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: MatrixLike, y: LabelsLike) -> Self:
        """Learn the metric.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples, at least 3; dense.
        y : array-like of shape (n_samples,)
            Class of each sample, of any hashable type: at least two classes, one of them with
            two samples.

        Returns
        -------
        self : LMNN
            The fitted learner.

        Raises
        ------
        TypeError
            If X is sparse.
        ValueError
            If a parameter is out of range, X is not finite, X and y differ in length, or
            the labels allow no triplet. Nothing is stored then.

        Warns
        -----
        ConvergenceWarning
            If max_iter steps were too few. `gap_` says how far they came.
        """
        check_parameters(self)
        if sparse.issparse(X):
            raise TypeError(
                f"X is sparse {np.shape(X)}, but the metric fills all {np.shape(X)[-1]} features: "
                "reduce the samples first, for example with sklearn's TruncatedSVD"
            )
        fitted = copy.copy(self)  # a fit that fails changes nothing
        X, codes, labels = check_samples(fitted, X, y, accept_sparse=False)
        check_two_classes(codes, labels)
        X, codes = bounded_samples(X, codes, self.max_samples, self.random_state)
        targets = _targets(X, codes, self.n_targets)
        # only the row space counts; there targets are brought to distance 1 on average
        scale = _identity_scale(X, targets)
        rows, V = row_space(X - X.mean(axis=0))
        ridge = self.shrinkage * len(targets)
        problem = _Problem(np.sqrt(scale) * rows, codes, targets, self.push_weight, ridge)
        with progress("LMNN", self.max_iter, self.verbose) as advance:
            L, bound = problem.solve(self.tol, self.max_iter, advance)
        if problem.has_stopped_early:  # one text for all fits: it is shown once
            message = f"LMNN stopped at max_iter={self.max_iter} before tol={self.tol} was reached"
            warnings.warn(f"{message}: raise max_iter or tol", ConvergenceWarning, stacklevel=2)
        if ridge and len(V) < V.shape[1]:  # outside the row space a multiple of the identity
            fitted.metric_ = FactoredMetric._trusted(scale, V, scale * (L.T @ L - np.eye(len(V))))
        else:
            _, values, R = svd(L)
            kept = values > 1e-8 * values[0]
            factor = (np.sqrt(scale) * values[kept, None] * R[kept]) @ V
            fitted.metric_ = FactoredMetric._trusted(0.0, factor, np.ones(len(factor)))
        fitted.scale_ = scale
        fitted.objective_ = float(problem.best_objective)
        fitted.dual_bound_ = float(bound)
        fitted.gap_ = max(fitted.objective_ - fitted.dual_bound_, 0.0) / (fitted.objective_ or 1.0)
        fitted.objective_history_ = np.array(problem.history)
        fitted.n_iter_ = len(problem.history) - 1
        self.__dict__ = fitted.__dict__
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        return tags
