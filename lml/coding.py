# Generated from book/coding.ipynb by tools/tangle.py: edit the chapter.
"""Code one metric in a dictionary: min over W of 1/2 ||L'WL - M||^2 + strength ||W||_1,off.

One soft threshold when the dictionary's rows are orthonormal, otherwise FISTA with
backtracking and adaptive restart. Every result carries its KKT residual: the distance of
minus the gradient to the subdifferential of the penalty.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg
from sklearn.exceptions import ConvergenceWarning

from lml.metrics import FactoredMetric, check_metric
from lml.penalties import OffDiagonalL1
from lml.utils.typing import Floats
from lml.utils.validation import check_dense, optional, real, whole

__all__ = ["CodeLoss", "CodingResult", "code_loss", "code_metric", "fista", "fista_iterates"]


# book/coding.ipynb#the-gradient
@dataclass(frozen=True)
class CodeLoss:
    """The smooth part f(W) = 1/2 ||L'WL - M||_F^2 through d x d matrices only.

    Calling it returns the value and the gradient A W A - B.

    Parameters
    ----------
    gram : ndarray of shape (d, d)
        A = L L'.
    projected : ndarray of shape (d, d)
        B = L M L'.
    constant : float
        1/2 ||M||_F^2.

    Notes
    -----
    Derived in chapter 12 (coding), eqs. (coding-gradient) and (coding-trace).
    Paper: section IV-B, eq. 11.

    Examples
    --------
    >>> import numpy as np
    >>> loss = CodeLoss(np.eye(2), np.diag([3.0, 1.0]), 5.0)
    >>> value, gradient = loss(np.zeros((2, 2)))
    >>> float(value), gradient.diagonal().tolist()
    (5.0, [-3.0, -1.0])
    """

    gram: Floats
    projected: Floats
    constant: float

    def __call__(self, W: Floats) -> tuple[float, Floats]:
        gradient = self.gram @ W @ self.gram
        gradient -= self.projected
        inner = np.vdot(W, gradient) - np.vdot(W, self.projected)
        return float(0.5 * inner + self.constant), gradient


# book/coding.ipynb#orthonormal-rows-one-soft-threshold
_EPS = float(np.finfo(float).eps)  # unit of rounding
_ROOT = float(np.finfo(float).tiny) ** 0.5  # squares of smaller numbers vanish
_Smooth: TypeAlias = Callable[[Floats], tuple[float, Floats]]


class _Proximal(Protocol):
    """What a proximal step asks of a penalty."""

    def prox(self, W: Floats, step: float, /) -> Floats: ...


# book/coding.ipynb#the-proximal-gradient-step
class _Step(NamedTuple):
    """A proximal step from V to P."""

    P: Floats
    value: float  # of the smooth part at P
    gradient: Floats  # of the smooth part at P
    size: float
    forward_P: Floats  # P - size * gradient
    move: Floats  # P - V
    bound: float  # of the KKT residual at P, (coding-screen)


# book/coding.ipynb#the-proximal-gradient-step
def _proximal_step(
    smooth: _Smooth,
    penalty: _Proximal,
    V: Floats,
    forward_V: Floats,
    at_V: tuple[float, Floats] | None,
    step: float,
) -> _Step:
    """Halve the step until the parabola at V lies above f at the proximal point P.

    `at_V` has the value and the gradient at V, or is None where the gradient is affine.
    """
    for _ in range(100):
        forward_V.setflags(write=False)  # it is needed below: a prox that writes into it raises
        P = penalty.prox(forward_V, step)
        forward_V.setflags(write=True)
        move = P - V
        value, gradient = smooth(P)
        forward_P = -step * gradient
        forward_P += P
        # the prox hands over an element of the subdifferential at P; the slope is times the step
        slope = forward_V - forward_P
        if at_V is None:  # the gradient is affine: both bends are exact without values
            excess = 0.5 * np.vdot(slope, move)
            noise = 0.0
            if excess > 0.0:
                length = np.linalg.norm(move)
                noise = float(8 * _EPS * (np.linalg.norm(forward_V) + length) * length)
        else:
            value_V, gradient_V = at_V
            excess = value - value_V - np.vdot(gradient_V, move)
            excess -= np.vdot(move, move) / (2 * step)
            noise = 64 * _EPS * max(abs(value), abs(value_V))
        if excess <= noise:
            break
        step = step / 2
        forward_V = (forward_V + V) / 2  # half as far from V
    bound = float(np.sqrt(np.vdot(slope, slope)) / step)
    return _Step(P, value, gradient, step, forward_P, move, bound)


# book/coding.ipynb#fista
def fista_iterates(
    smooth: _Smooth,
    penalty: _Proximal,
    init: Floats,
    step: float,
    restart: bool,
    affine_gradient: bool,
) -> Iterator[tuple[Floats, float, Floats, float, float]]:
    """The iterates of `fista`, without an end.

    Parameters
    ----------
    smooth, penalty, init, step, restart, affine_gradient
        As in `fista`, and trusted; of the penalty only ``prox`` is asked.

    Yields
    ------
    code : ndarray
        W_k, for k = 0, 1, ...
    value : float
        Of the smooth part at W_k.
    gradient : ndarray
        Of the smooth part at W_k.
    step : float
        The step size that led to W_k.
    bound : float
        The KKT residual at W_k is at most this; 0 at the start, where there is no bound.

    Notes
    -----
    Derived in chapter 12 (coding), eqs. (coding-fista) and (coding-screen).
    """
    W = init
    value, gradient = smooth(W)
    forward_W = W - step * gradient
    forward_previous = forward_W.copy()  # the forward point of W_{k-1}
    last = np.zeros(W.shape)  # W_k - W_{k-1}
    t = 1.0
    momentum = 0.0
    bound = 0.0
    while True:
        yield W, value, gradient, step, bound
        # the search point V runs ahead of W; with an affine gradient its forward point runs alike
        last *= momentum
        V = W + last
        if affine_gradient:
            at_V = None
            forward_V = np.subtract(forward_W, forward_previous, out=forward_previous)
            forward_V *= momentum
            forward_V += forward_W
        else:
            at_V = smooth(V)
            forward_V = V - step * at_V[1]
        found = _proximal_step(smooth, penalty, V, forward_V, at_V, step)
        last += found.move  # P - W
        if found.size < step:
            step = found.size
            forward_W = W - step * gradient
        W = found.P
        value = found.value
        gradient = found.gradient
        bound = found.bound
        forward_previous = forward_W
        forward_W = found.forward_P
        # the momentum of the next search point; none after a move uphill
        following = float(1.0 + np.sqrt(1.0 + 4.0 * t * t)) / 2.0
        momentum = (t - 1.0) / following
        t = following
        if restart and np.vdot(found.move, last) < 0.0:  # uphill
            t = 1.0
            momentum = 0.0


# book/coding.ipynb#when-to-stop-a-certificate
@dataclass(frozen=True)
class CodingResult:
    """What a solver returns: the code and the evidence for it.

    Parameters
    ----------
    code : ndarray of shape (d, d)
        The minimizer found.
    objective : float
        f(code) + g(code).
    kkt_residual : float
        Distance of minus the gradient at the code to the subdifferential of the penalty.
    n_iter : int
        Proximal steps taken (0: the start was optimal, or the closed form applied).
    converged : bool
        Whether the KKT residual is at most ``tol`` times the scale.
    objective_history : ndarray of shape (n_iter + 1,)
        The objective at the start and after every step.
    step : float
        The last step size.
    """

    code: Floats
    objective: float
    kkt_residual: float
    n_iter: int
    converged: bool
    objective_history: Floats
    step: float


def _check_solver(
    init: ArrayLike, step: float, tol: float, max_iter: int, scale: float | None
) -> Floats:
    """The first iterate as an array; an error if a number is out of range."""
    real(0, above=True, largest=np.inf).check("step", step)
    real(0, largest=np.inf).check("tol", tol)
    whole(0).check("max_iter", max_iter)
    optional(real(0, largest=np.inf)).check("scale", scale)
    return check_dense(init, "init", ensure_2d=False, allow_nd=True, copy=True)


def _check_finite_start(objective: float, scale: float) -> None:
    if not np.isfinite([objective, scale]).all():
        raise ValueError(
            f"the objective at init is {objective} and scale is {scale}: both must be"
            " finite; rescale the problem"
        )


# book/coding.ipynb#when-to-stop-a-certificate
def fista(
    smooth: _Smooth,
    penalty: Any,
    init: ArrayLike,
    step: float = 1.0,
    tol: float = 1e-8,
    max_iter: int = 500,
    scale: float | None = None,
    restart: bool = True,
    affine_gradient: bool = False,
) -> CodingResult:
    """Minimize smooth(W) + penalty.value(W) by an accelerated proximal gradient method.

    Parameters
    ----------
    smooth : callable
        ``smooth(W)`` returns (value, gradient) of a differentiable convex function.
    penalty : object
        Has ``value(W)``, ``prox(W, step)`` and ``kkt_residual(W, gradient)``.
        ``prox(W, step)`` returns a new array.
    init : array-like
        The first iterate W_0; it is not modified.
    step : float, default=1.0
        First step size tried; backtracking halves it and it never grows again.
    tol : float, default=1e-8
        Stop when the KKT residual is at most ``tol * scale``.
    max_iter : int, default=500
        Largest number of proximal steps.
    scale : float, optional
        Unit of the KKT residual; the norm of the gradient at zero when left out.
    restart : bool, default=True
        Set the momentum back when it points uphill.
    affine_gradient : bool, default=False
        Whether the gradient is an affine function of W (a quadratic ``smooth``). It halves
        the evaluations of ``smooth`` and makes the backtracking test exact.

    Returns
    -------
    CodingResult
        ``converged`` is False when ``max_iter`` steps did not reach the tolerance.

    Raises
    ------
    ValueError
        If a number is out of range, or the objective at init or the scale is not finite.

    Notes
    -----
    Derived in chapter 12 (coding), eqs. (coding-prox-step) and (coding-fista).
    Paper: section IV-B, Algorithm 1, corrected.

    Examples
    --------
    >>> import numpy as np
    >>> from lml.penalties import OffDiagonalL1
    >>> smooth = CodeLoss(np.diag([1.0, 2.0]), np.array([[1.0, 2.0], [2.0, 8.0]]), 0.0)
    >>> fista(smooth, OffDiagonalL1(1.0), np.zeros((2, 2))).code.round(6).tolist()
    [[1.0, 0.5], [0.5, 2.0]]
    """
    W = _check_solver(init, step, tol, max_iter, scale)
    if scale is None:
        scale = float(np.linalg.norm(smooth(np.zeros_like(W))[1]))
    history = []
    iterates = fista_iterates(smooth, penalty, W, float(step), restart, affine_gradient)
    for n_iter, (W, value, gradient, last_step, bound) in enumerate(iterates):  # noqa: B007
        history.append(float(value + penalty.value(W)))
        if n_iter == 0:
            _check_finite_start(history[0], scale)
        # far from a minimizer the bound of (coding-screen) saves the KKT residual
        if 10 * tol * scale < bound < np.inf and n_iter < max_iter:
            continue
        kkt_residual = penalty.kkt_residual(W, gradient)
        if not kkt_residual > tol * scale or n_iter >= max_iter:
            break
    return CodingResult(
        code=W,
        objective=history[-1],
        kkt_residual=kkt_residual,
        n_iter=n_iter,
        converged=bool(kkt_residual <= tol * scale),
        objective_history=np.array(history),
        step=last_step,
    )


# book/coding.ipynb#the-package-s-function
def code_loss(dictionary: Floats, target: FactoredMetric) -> CodeLoss:
    """The smooth part of the coding problem for the symmetric part of a target.

    Parameters
    ----------
    dictionary : ndarray of shape (d, D)
    target : FactoredMetric on D features

    Returns
    -------
    CodeLoss
        Its ``projected`` and ``constant`` belong to (M + M') / 2.

    Notes
    -----
    Derived in chapter 12 (coding), eqs. (coding-trace) and (coding-split).
    Paper: section IV-B, eq. 11.
    """
    target = target.symmetrized()
    projected = target.project(dictionary)
    return CodeLoss(
        gram=dictionary @ dictionary.T,
        projected=(projected + projected.T) / 2,
        constant=0.5 * target.inner(target),
    )


# book/coding.ipynb#the-package-s-function
def _check_problem(
    dictionary: ArrayLike, target: FactoredMetric, code_penalty: float, init: ArrayLike | None
) -> tuple[Floats, Floats]:
    """The dictionary and the first code as arrays; an error unless all belong together."""
    L = check_dense(dictionary, "dictionary", order="C")
    d = len(L)
    check_metric(target, "target")
    if target.n_features != L.shape[1]:
        raise ValueError(
            f"target is a metric on {target.n_features} features but dictionary has"
            f" {L.shape[1]} columns: both must be of the same task"
        )
    real(0, largest=np.inf).check("code_penalty", code_penalty)
    start = np.zeros((d, d)) if init is None else check_dense(init, "init")
    if start.shape != (d, d):
        raise ValueError(
            f"init has shape {start.shape} but dictionary has {d} rows: use shape ({d}, {d})"
        )
    return L, start / 2 + start.T / 2


def _check_sizes(L: Floats, target: FactoredMetric, smooth: CodeLoss) -> tuple[float, float]:
    """||A||_2 and the unit of the KKT residual; an error where squares overflow or vanish."""
    squares = np.vdot(smooth.gram, smooth.gram) + np.vdot(smooth.projected, smooth.projected)
    overflow = not np.isfinite(squares + smooth.constant)
    size = 0.0 if overflow else float(linalg.norm(smooth.gram, 2))
    rounding = _EPS * size * np.sqrt(2 * smooth.constant)  # of L M L'
    scale = max(float(np.linalg.norm(smooth.projected)), rounding)
    if overflow or (L.any() and size < _ROOT) or (scale == 0.0 and smooth.projected.any()):
        raise ValueError(
            f"dictionary has numbers up to {abs(L).max():.1e}, target has the norm {target.norm():.1e}:"
            f" their squares {'overflow' if overflow else 'vanish'}, rescale them"
        )
    return size, scale


def _warn_of_early_end(result: CodingResult, asked: float, smooth: CodeLoss) -> None:
    warnings.warn(
        f"code_metric stopped after {result.n_iter} steps with KKT residual"
        f" {result.kkt_residual:.2e}; tol asks for {asked:.2e}. The condition number of"
        f" the problem is {np.linalg.cond(smooth.gram) ** 2:.1e}: raise max_iter, or make the"
        " rows of dictionary orthonormal (then one soft threshold is exact)",
        ConvergenceWarning,
        stacklevel=3,
    )


# book/coding.ipynb#the-package-s-function
def code_metric(
    dictionary: ArrayLike,
    target: FactoredMetric,
    code_penalty: float,
    tol: float = 1e-8,
    max_iter: int = 500,
    init: ArrayLike | None = None,
) -> CodingResult:
    """The sparse code of a metric: argmin 1/2 ||L'WL - M||_F^2 + code_penalty ||W||_1,off.

    Parameters
    ----------
    dictionary : array-like of shape (d, D)
        L, the rows of the dictionary. With orthonormal rows the answer is one soft threshold.
    target : FactoredMetric
        M, a metric on D features. A non-symmetric target is symmetrized: for symmetric codes
        the objective splits, and the antisymmetric part adds a constant that is left out.
    code_penalty : float
        Strength of the off-diagonal l1 penalty, >= 0, in the units of M.
    tol : float, default=1e-8
        Stop when the KKT residual is at most ``tol * ||L M L'||_F``.
    max_iter : int, default=500
        Largest number of proximal steps.
    init : array-like of shape (d, d), optional
        First code (symmetrized); zeros when left out. Not used when the rows are orthonormal.

    Returns
    -------
    CodingResult
        The code is exactly symmetric. ``n_iter`` is 0 when the closed form applies.

    Raises
    ------
    ValueError
        If the target has another number of features than the dictionary, or an argument is
        out of range.
    TypeError
        If the target is not a FactoredMetric.

    Warns
    -----
    ConvergenceWarning
        If ``max_iter`` steps did not reach the tolerance.

    Notes
    -----
    Derived in chapter 12 (coding), eqs. (coding-closed-form) and (coding-certificate).
    Paper: section IV-B, Algorithm 1, corrected.

    Examples
    --------
    >>> import numpy as np
    >>> from lml.metrics import FactoredMetric
    >>> target = FactoredMetric.from_dense([[2.0, 0.5, 0], [0.5, 1.0, 0], [0, 0, 3.0]])
    >>> code_metric(np.eye(3)[:2], target, code_penalty=0.2).code.round(6).tolist()
    [[2.0, 0.3], [0.3, 1.0]]
    """
    L, start = _check_problem(dictionary, target, code_penalty, init)
    smooth = code_loss(L, target)
    size, scale = _check_sizes(L, target, smooth)
    penalty = OffDiagonalL1(code_penalty)
    # orthonormal rows: one soft threshold, which FISTA finds optimal without a step
    if scale == 0.0 or np.max(np.abs(smooth.gram - np.eye(len(L)))) <= 1e-10:
        start = penalty.prox(smooth.projected)
    result = fista(
        smooth,
        penalty,
        start,
        step=max(size, _ROOT) ** -2,
        tol=tol,
        max_iter=max_iter,
        scale=scale,
        affine_gradient=True,
    )
    if not result.converged:
        _warn_of_early_end(result, tol * scale, smooth)
    return replace(result, code=(result.code + result.code.T) / 2)  # symmetric to the last bit
