# Generated from book/baselines/offdiagonal.ipynb by tools/tangle.py: edit the chapter.
"""The off-diagonal learner: one task's code from its triplets, the dictionary fixed.

min over symmetric (or positive semi-definite) W of mean hinge + strength ||W||_1,off +
ridge / 2 ||W||^2, for similarities and distances with the metric L'WL. The hinge is smoothed,
FISTA does the steps, and a duality gap bounds the error of the result.
"""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg, sparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from lml.coding import fista_iterates
from lml.initialization import initial_dictionary
from lml.metrics import FactoredMetric, MetricLearnerMixin
from lml.penalties import OffDiagonalL1, nearest_psd
from lml.state import storable
from lml.triplets import check_triplets, nearest_triplets
from lml.utils.linalg import times_transpose
from lml.utils.typing import Floats, LabelsLike, MatrixLike, Seed
from lml.utils.validation import (
    check_matrix,
    check_parameters,
    check_samples,
    check_two_classes,
    flag,
    one_of,
    optional,
    real,
    seed,
    whole,
)

__all__ = [
    "CodePenalty",
    "HingeCode",
    "OffDiagonalLearner",
    "SmoothedHinge",
    "TripletMap",
    "code_bounds",
    "diagonal_code",
    "hinge_code",
]


# book/baselines/offdiagonal.ipynb#margins-without-loops
class TripletMap:
    """The margins of triplets as a linear map of the code, and its adjoint.

    Parameters
    ----------
    projections : array-like of shape (n_samples, d)
        Z = X L', rows in the dictionary.
    triplets : array-like of shape (n_triplets, 3)
        Sample numbers (anchor, positive, negative), at least one triplet.
    metric_type : {"similarity", "distance"}

    Notes
    -----
    Derived in chapter 27 (baselines/offdiagonal), eqs. (offdiagonal-margin), (offdiagonal-gap) and
    (offdiagonal-adjoint). Paper: Table I, with the sign of the distance corrected.

    Examples
    --------
    >>> import numpy as np
    >>> plane = TripletMap([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]], [[0, 1, 2]], "distance")
    >>> plane.margins(np.eye(2)).tolist(), plane.adjoint(np.ones(1)).tolist()
    ([3.0], [[-1.0, 0.0], [0.0, 4.0]])
    """

    def __init__(self, projections: ArrayLike, triplets: ArrayLike, metric_type: str) -> None:
        one_of("similarity", "distance").check("metric_type", metric_type)
        self.distance = metric_type == "distance"
        self.projections = check_matrix(projections, "projections", accept_sparse=False)
        n_samples = len(self.projections)
        self.triplets = check_triplets(triplets, n_samples)
        if not len(self.triplets):
            raise ValueError("triplets is empty: give at least one triplet")
        # the pairs (i, j) and (i, k) that occur, and where each triplet finds its two
        i, j, k = self.triplets.T
        pairs, where = np.unique(i * n_samples + np.stack([j, k]), return_inverse=True)
        self._left = pairs // n_samples
        self._right = pairs % n_samples
        self._near, self._far = where.reshape(2, -1)
        self._starts = np.searchsorted(self._left, np.arange(n_samples + 1))

    @property
    def shape(self) -> tuple[int, int]:
        """The number of triplets and the size of the code."""
        return len(self.triplets), self.projections.shape[1]

    def margins(self, W: Floats) -> Floats:
        """The margins <P_t, W> of a symmetric code W (d, d), shape (n_triplets,)."""
        Z = self.projections
        ZW = Z @ W
        scores = np.einsum("ij,ij->i", ZW[self._left], Z[self._right])
        gaps = scores[self._near] - scores[self._far]
        if not self.distance:
            return gaps
        squares = np.einsum("ij,ij->i", ZW, Z)
        return 2 * gaps + squares[self.triplets[:, 2]] - squares[self.triplets[:, 1]]

    def adjoint(self, weights: Floats) -> Floats:
        """The mean of weights_t P_t, a symmetric (d, d) array."""
        Z = self.projections
        n_pairs = len(self._left)
        counts = np.bincount(self._near, weights, n_pairs)
        counts -= np.bincount(self._far, weights, n_pairs)
        K = sparse.csr_array((counts, self._right, self._starts), shape=(len(Z), len(Z)))
        S = Z.T @ (K @ Z)
        S = S + S.T if self.distance else (S + S.T) / 2
        if self.distance:
            S -= (Z.T * np.bincount(self._right, counts, len(Z))) @ Z
        return (S + S.T) / (2 * len(self.triplets))

    def size(self) -> float:
        """The mean of ||P_t||^2, the unit of the ridge."""
        Z = self.projections
        i, j, k = self.triplets.T
        if self.distance:
            a = Z[i] - Z[k]
            b = Z[i] - Z[j]
        else:
            a = Z[i]
            b = Z[j] - Z[k]
        aa = np.einsum("ij,ij->i", a, a)
        bb = np.einsum("ij,ij->i", b, b)
        ab = np.einsum("ij,ij->i", a, b)
        sizes = aa**2 + bb**2 - 2 * ab**2 if self.distance else (aa * bb + ab**2) / 2
        return float(sizes.mean())


# book/baselines/offdiagonal.ipynb#positive-semi-definite-codes
class CodePenalty:
    """strength ||W||_1,off over symmetric or over positive semi-definite matrices.

    Parameters
    ----------
    strength : float
        Non-negative and finite.
    psd : bool, default=False
        Whether W is restricted to positive semi-definite matrices.

    Notes
    -----
    Derived in chapter 27 (baselines/offdiagonal), eqs. (offdiagonal-dual-psd) and
    (offdiagonal-psd-prox). With `psd` the proximal operator is iterative and begins at the
    multiplier of the last call.
    """

    def __init__(self, strength: float, psd: bool = False) -> None:
        self.off_diagonal = OffDiagonalL1(strength)
        self.psd = psd
        self.multiplier: Floats | float = 0.0

    def value(self, W: ArrayLike) -> float:
        """The penalty of a code W (d, d), feasible or not."""
        return self.off_diagonal.value(W)

    def feasible(self, W: Floats) -> Floats:
        """W, with the multiple of the identity added that makes it feasible."""
        if not self.psd:
            return W
        return W + max(0.0, -linalg.eigvalsh(W, subset_by_index=[0, 0])[0]) * np.eye(len(W))

    def prox(self, V: Floats, step: float = 1.0, tol: float = 1e-7, max_iter: int = 30) -> Floats:
        """argmin 1/2 ||W - V||^2 + step strength ||W||_1,off over the feasible W."""
        if not self.psd:
            return self.off_diagonal.prox(V, step)
        Y = old = np.zeros_like(V) + step * self.multiplier
        t = 1.0
        accuracy = tol * linalg.norm(V)
        for _ in range(max_iter):
            previous_t = t
            t = (1.0 + np.sqrt(1.0 + 4.0 * t * t)) / 2.0
            search = Y + (previous_t - 1.0) / t * (Y - old)
            old = Y
            Y = nearest_psd(search - self.off_diagonal.prox(V + search, step))
            if linalg.norm(Y - search) <= accuracy:
                break
        self.multiplier = Y / step if step else 0.0
        return self.off_diagonal.prox(V + Y, step)


# book/baselines/offdiagonal.ipynb#smoothing-the-hinge
@dataclass(frozen=True)
class SmoothedHinge:
    """Mean smoothed hinge plus ridge / 2 ||W||^2, with its gradient.

    Parameters
    ----------
    triplet_map : TripletMap
    width : float
        Width of the ramp, above 0: the smoothed hinge is below the hinge by at most half of it.
    ridge : float
        Coefficient of the squared norm, at least 0, in absolute units.

    Notes
    -----
    Derived in chapter 27 (baselines/offdiagonal), eqs. (offdiagonal-smooth) and
    (offdiagonal-gradient).
    """

    triplet_map: TripletMap
    width: float
    ridge: float

    def multipliers(self, W: Floats) -> tuple[Floats, Floats]:
        """Slopes of the smoothed hinge in [0, 1] and what is missing to each margin."""
        missing = 1.0 - self.triplet_map.margins(W)
        return np.clip(missing / self.width, 0.0, 1.0), missing

    def __call__(self, W: Floats) -> tuple[float, Floats]:
        a, missing = self.multipliers(W)
        value = np.mean(a * missing - 0.5 * self.width * a * a) + 0.5 * self.ridge * np.sum(W * W)
        return float(value), self.ridge * W - self.triplet_map.adjoint(a)


# book/baselines/offdiagonal.ipynb#the-solver
def code_bounds(
    smooth: SmoothedHinge, penalty: CodePenalty, W: Floats
) -> tuple[Floats, float, float, Floats]:
    """A feasible code near W, its objective, and a lower bound of the minimum.

    Parameters
    ----------
    smooth : SmoothedHinge
        Its ridge must be above 0.
    penalty : CodePenalty
    W : ndarray of shape (d, d)

    Returns
    -------
    W : ndarray of shape (d, d)
    objective : float
        Of the hinge, not of the smoothed hinge.
    bound : float
    multipliers : ndarray of shape (n_triplets,)
        The point of the dual box that gives the bound.

    Notes
    -----
    Derived in chapter 27 (baselines/offdiagonal), eqs. (offdiagonal-dual-ridge),
    (offdiagonal-bound) and (offdiagonal-dual-psd).
    """
    plane = smooth.triplet_map
    a = smooth.multipliers(W)[0]
    residual = penalty.prox(plane.adjoint(a))
    bound = a.mean() - np.sum(residual * residual) / (2 * smooth.ridge)
    W = penalty.feasible(W)
    hinge = np.maximum(1.0 - plane.margins(W), 0.0).mean()
    ridge = 0.5 * smooth.ridge * np.sum(W * W)
    return W, float(hinge + penalty.value(W) + ridge), float(bound), a


# book/baselines/offdiagonal.ipynb#the-solver
@dataclass(frozen=True)
class HingeCode:
    """What `hinge_code` returns.

    Parameters
    ----------
    code : ndarray of shape (d, d)
        Symmetric and feasible.
    objective, bound : float
        The minimum lies between the two.
    multipliers : ndarray of shape (n_triplets,)
        Weights in [0, 1] that give the bound.
    history : ndarray of shape (n_checks, 4)
        Steps done, width, smallest objective and largest bound so far, at each check.
    """

    code: Floats
    objective: float
    bound: float
    multipliers: Floats
    history: Floats

    @property
    def gap(self) -> float:
        """Bound of the error of the objective."""
        return self.objective - self.bound

    @property
    def n_iter(self) -> int:
        """FISTA's steps over all widths."""
        return int(self.history[-1, 0])


# book/baselines/offdiagonal.ipynb#the-solver
def hinge_code(
    triplet_map: TripletMap,
    strength: float,
    ridge: float,
    psd: bool = False,
    tol: float = 1e-3,
    max_iter: int = 5000,
    init: ArrayLike | None = None,
) -> HingeCode:
    """The code of least mean hinge with an off-diagonal l1 penalty and a ridge.

    Parameters
    ----------
    triplet_map : TripletMap
    strength : float
        Of the off-diagonal l1 norm, at least 0, in absolute units.
    ridge : float
        Above 0, in absolute units; `TripletMap.size` is the natural unit.
    psd : bool, default=False
        Whether the code is restricted to positive semi-definite matrices.
    tol : float, default=1e-3
        Stop when the duality gap is at most this. The zero code has objective 1.
    max_iter : int, default=5000
        Largest number of FISTA's steps.
    init : ndarray of shape (d, d), optional
        First code, symmetric; zero when left out.

    Returns
    -------
    HingeCode

    Raises
    ------
    ValueError
        If ridge is not a finite number above 0.

    Warns
    -----
    ConvergenceWarning
        If the gap is larger than tol after max_iter steps.

    Notes
    -----
    Derived in chapter 27 (baselines/offdiagonal), eqs. (offdiagonal-problem), (offdiagonal-bound)
    and (offdiagonal-width). Paper: section V-C; smoothing, ridge, cone and gap are additions.

    Examples
    --------
    >>> plane = TripletMap([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]], [[0, 1, 2]], "distance")
    >>> found = hinge_code(plane, strength=0.1, ridge=0.01)
    >>> found.gap <= 1e-3, abs(found.code).round(2).tolist()
    (True, [[0.06, 0.0], [0.0, 0.24]])
    """
    # without one there is no finite bound
    real(0, above=True, largest=np.inf).check("ridge", ridge)
    whole(1).check("max_iter", max_iter)
    penalty = CodePenalty(strength, psd)
    shape = (triplet_map.shape[1],) * 2
    W = np.zeros(shape) if init is None else np.array(init, dtype=float)
    code = W
    objective = np.inf
    bound = -np.inf
    weights = np.zeros(0)
    history = []
    n_iter = 0
    width = 1.0
    step = 1.0 / (triplet_map.size() + ridge)
    while objective - bound > tol and n_iter < max_iter:
        # a stage: FISTA on a ramp of this width, checked every ten steps
        smooth = SmoothedHinge(triplet_map, width, ridge)
        iterates = fista_iterates(smooth, penalty, W, step, restart=True, affine_gradient=False)
        for done, (W, _, _, step, _) in enumerate(iterates):  # noqa: B007
            last = n_iter + done == max_iter
            if done % 10 == 0 or last:
                feasible, value, low, a = code_bounds(smooth, penalty, W)
                if value < objective:
                    code = feasible
                    objective = value
                if low > bound:
                    weights = a
                    bound = low
                history.append((n_iter + done, width, objective, bound))
                # by eq. (offdiagonal-width) a stage comes to a quarter of its width
                if last or objective - bound <= tol or value - low <= width / 2:
                    break
        n_iter += done
        width = width / 4
        step = 4 * step
    if objective - bound > tol:
        message = f"the duality gap is {objective - bound:.2e} after {n_iter} steps; tol asks for"
        message += f" {tol:.2e}: raise max_iter, tol or ridge"
        warnings.warn(message, ConvergenceWarning, stacklevel=2)
    return HingeCode(
        code=code, objective=objective, bound=bound, multipliers=weights, history=np.array(history)
    )


# book/baselines/offdiagonal.ipynb#when-the-code-becomes-diagonal
def diagonal_code(
    triplet_map: TripletMap,
    ridge: float,
    psd: bool = False,
    tol: float = 1e-3,
    max_iter: int = 5000,
) -> tuple[HingeCode, float]:
    """The best diagonal code, and a strength from which on it is the best code of all.

    Parameters
    ----------
    triplet_map, ridge, psd, tol, max_iter
        As in `hinge_code`.

    Returns
    -------
    found : HingeCode
        Its code is diagonal.
    strength : float
        At this strength and above, `found` solves the problem within its gap.

    Notes
    -----
    Derived in chapter 27 (baselines/offdiagonal), eq. (offdiagonal-top).
    Paper: section III-C says that a strength going to infinity gives a diagonal code.

    Examples
    --------
    >>> rows = [[0.0, 0.0], [1.0, 0.5], [1.0, 2.0]]
    >>> found, strength = diagonal_code(TripletMap(rows, [[0, 1, 2]], "distance"), 0.1)
    >>> bool(found.code[0, 1] == 0), strength > 0
    (True, True)
    """
    unit = triplet_map.size() ** 0.5
    found = hinge_code(triplet_map, unit, ridge, psd, tol, max_iter)
    S = np.abs(triplet_map.adjoint(found.multipliers))
    np.fill_diagonal(S, 0.0)
    return found, float(S.max(initial=0.0))


# book/baselines/offdiagonal.ipynb#the-estimator
@storable
class OffDiagonalLearner(MetricLearnerMixin, BaseEstimator):
    """Metric L'WL of one task: hinge of its triplets plus an off-diagonal l1 penalty.

    Parameters
    ----------
    metric_type : {"distance", "similarity"}, default="distance"
    penalty : float, default=0.1
        Strength of the off-diagonal l1 norm, at least 0, as a fraction of the strength that
        makes the code diagonal: 1 and more give a diagonal code.
    ridge : float, default=1e-4
        Coefficient of the squared norm of the code, above 0, as a fraction of the mean
        squared size of the triplets' matrices.
    psd : bool or None, default=None
        Whether the code is restricted to positive semi-definite matrices. None: for a
        distance.
    dictionary : array-like of shape (d, n_features) or None, default=None
        The rows L. None: `lml.initialization.initial_dictionary` of the samples.
    n_components : int, default=50
        Rows of the dictionary when none is given; at most n_features.
    n_targets, n_impostors : int, default=3 and 10
        Neighbors of the same class and of other classes that make the triplets.
    tol : float, default=1e-3
        Largest duality gap; the zero metric has objective 1.
    max_iter : int, default=5000
        Largest number of FISTA's steps, for the diagonal code and again for the code.
    random_state : int, RandomState instance or None, default=None
        Seed of the dictionary.

    Attributes
    ----------
    metric_ : FactoredMetric
        FactoredMetric(0, dictionary_, code_).
    code_ : ndarray of shape (d, d)
    dictionary_ : ndarray of shape (d, n_features)
    objective_, gap_ : float
        Objective of the code and the duality gap that bounds its error.
    objective_history_ : ndarray
        Smallest objective at the checks.
    strength_, strength_max_ : float
        The absolute strength, and the one from which on the code is diagonal.
    n_iter_, n_triplets_, n_features_in_ : int

    Notes
    -----
    Derived in chapter 27 (baselines/offdiagonal), eqs. (offdiagonal-problem), (offdiagonal-units),
    (offdiagonal-bound) and (offdiagonal-top). Paper: section V-C, the ablation of the off-diagonal
    norm. Each sample looks for its nearest among all, so the time grows as the square of n_samples.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> learner = OffDiagonalLearner(penalty=0.5, random_state=0).fit(X, y)
    >>> learner.code_.shape, bool(learner.gap_ <= 1e-3)
    ((4, 4), True)
    """

    _parameter_rules: ClassVar = {
        "metric_type": one_of("similarity", "distance"),
        "penalty": real(0),
        "ridge": real(0, above=True),
        "psd": optional(flag()),
        "n_components": whole(1),
        "n_targets": whole(1),
        "n_impostors": whole(1),
        "tol": real(0),
        "max_iter": whole(1),
        "random_state": seed(),
    }

    def __init__(
        self,
        metric_type: str = "distance",
        penalty: float = 0.1,
        ridge: float = 1e-4,
        psd: bool | None = None,
        dictionary: ArrayLike | None = None,
        n_components: int = 50,
        n_targets: int = 3,
        n_impostors: int = 10,
        tol: float = 1e-3,
        max_iter: int = 5000,
        random_state: Seed = None,
    ) -> None:  # fmt: skip
        self.metric_type = metric_type
        self.penalty = penalty
        self.ridge = ridge
        self.psd = psd
        self.dictionary = dictionary
        self.n_components = n_components
        self.n_targets = n_targets
        self.n_impostors = n_impostors
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, X: MatrixLike, y: LabelsLike) -> Self:
        """Learn the code.

        Parameters
        ----------
        X : {array-like, CSR matrix} of shape (n_samples, n_features)
            Samples, at least 3; CSR samples are not made dense.
        y : array-like of shape (n_samples,)
            Labels; at least two classes, one of them with two samples.

        Returns
        -------
        self : OffDiagonalLearner

        Raises
        ------
        ValueError, TypeError
            If a parameter is out of range, X is not finite, X and y differ in length, or
            the labels allow no triplet. Nothing is stored then.
        """
        check_parameters(self)
        fitted = copy.copy(self)  # a fit that fails changes nothing
        X, codes, labels = check_samples(fitted, X, y)
        check_two_classes(codes, labels)
        triplets = nearest_triplets(X, codes, self.n_targets, self.n_impostors)
        if self.dictionary is None:
            rng = check_random_state(self.random_state)
            L = initial_dictionary(X, codes, self.n_components, random_state=rng)
        else:
            L = check_matrix(
                self.dictionary, "dictionary", X.shape[1], accept_sparse=False, copy=True
            )
        plane = TripletMap(times_transpose(X, L), triplets, self.metric_type)
        psd = self.metric_type == "distance" if self.psd is None else bool(self.psd)
        # strengths free of units, eqs. (offdiagonal-units) and (offdiagonal-top)
        ridge = self.ridge * (plane.size() or 1.0)
        found, top = diagonal_code(plane, ridge, psd, self.tol, self.max_iter)
        strength = self.penalty * top
        n_iter = found.n_iter
        if self.penalty < 1:  # the diagonal code is where FISTA starts
            found = hinge_code(plane, strength, ridge, psd, self.tol, self.max_iter, found.code)
            n_iter += found.n_iter
        fitted.dictionary_ = L
        fitted.code_ = found.code
        fitted.metric_ = FactoredMetric._trusted(0.0, L, found.code)
        fitted.objective_ = found.objective
        fitted.gap_ = found.gap
        fitted.objective_history_ = found.history[:, 2]
        fitted.strength_ = strength
        fitted.strength_max_ = top
        fitted.n_iter_ = n_iter
        fitted.n_triplets_ = len(triplets)
        self.__dict__ = fitted.__dict__
        return self
