# Generated from book/dictionary.ipynb by tools/tangle.py: edit the chapter.
"""Move the shared dictionary: along a gradient, or at once to what the tasks stretch most.

`descend` lowers an objective such as `hinge_objective` by one step and makes the rows orthonormal
again; `keep_codes` gives the codes with which no metric changes by that. `stretch_step` needs no
gradient and no length. Arrays are trusted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import linalg

from lml.metrics import FactoredMetric
from lml.triplets import hinge_with_gradient
from lml.utils.linalg import is_symmetric, svd, times_transpose
from lml.utils.typing import Floats, Indices, Matrix

__all__ = [
    "DictionaryStep",
    "descend",
    "dictionary_gradient",
    "hinge_objective",
    "keep_codes",
    "line_search",
    "polar_factors",
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
    return code @ gradient.T._apply(dictionary) + code.T @ gradient._apply(dictionary)


# book/dictionary.ipynb#what-the-step-lowers
def hinge_objective(
    code: Floats, X: Matrix, triplets: Indices, metric_type: str, dictionary_penalty: float = 0.0
) -> Callable[[Floats], tuple[float, Callable[[], Floats]]]:
    """Mean hinge of a task as a function of the dictionary; its code is fixed.

    Parameters
    ----------
    code : ndarray of shape (d, d)
        W; need not be symmetric.
    X : {ndarray, CSR matrix} of shape (n, D)
        Samples.
    triplets : ndarray of shape (m, 3)
        Numbers of samples (anchor, positive, negative).
    metric_type : {"similarity", "distance"}
    dictionary_penalty : float, default=0.0
        gamma, >= 0.

    Returns
    -------
    callable
        Takes L of shape (d, D); returns the value and a function for the gradient (d, D).

    Notes
    -----
    Derived in chapter 14 (dictionary), eqs. (dictionary-gradient) and (dictionary-objective).
    Paper: section IV-C, eq. 14.
    """

    def objective(L: Floats) -> tuple[float, Callable[[], Floats]]:
        metric = FactoredMetric._trusted(0.0, L, code)
        hinge, G = hinge_with_gradient(metric, X, triplets, metric_type)
        value = float(hinge + dictionary_penalty * np.sum(L * L))
        return value, lambda: dictionary_gradient(L, code, G) + 2 * dictionary_penalty * L

    return objective


# book/dictionary.ipynb#orthonormal-rows-and-the-change-of-basis
def polar_factors(dictionary: Floats) -> tuple[Floats, Floats]:
    """Split a dictionary L = S Q into a symmetric change of basis S and orthonormal rows Q.

    Parameters
    ----------
    dictionary : ndarray of shape (d, D), d <= D

    Returns
    -------
    change : ndarray of shape (d, d)
        S = (L L')^(1/2).
    rows : ndarray of shape (d, D)
        Q, the orthonormal rows nearest to L. Where L has lower rank they are completed.

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
    L = dictionary
    squares, left = linalg.eigh(L @ L.T)
    if squares[0] > 0.01 * squares[-1]:  # rows after a step; otherwise squaring loses digits
        roots = np.sqrt(squares)
        return (left * roots) @ left.T, (left / roots) @ (left.T @ L)
    left, values, right = svd(L)
    return (left * values) @ left.T, left @ right


# book/dictionary.ipynb#orthonormal-rows-and-the-change-of-basis
def keep_codes(code: Floats, change: Floats) -> Floats:
    """The code S' W S: with it the metric is unchanged by the normalization L = S Q.

    Parameters
    ----------
    code : ndarray of shape (d, d)
        W, an old task's code in the dictionary before the step.
    change : ndarray of shape (d, d)
        S, as returned by `descend` or `polar_factors`.

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


# book/dictionary.ipynb#choosing-the-step-length
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


# book/dictionary.ipynb#choosing-the-step-length
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


# book/dictionary.ipynb#choosing-the-step-length
def descend(
    objective: Callable[[Floats], tuple[float, Callable[[], Floats]]],
    L: Floats,
    max_move: float,
    max_backtracks: int = 20,
) -> DictionaryStep:
    """One step of a dictionary along minus a gradient, made orthonormal again.

    Parameters
    ----------
    objective, L, max_move, max_backtracks
        As in `line_search`, such as the objective of `hinge_objective`.

    Returns
    -------
    DictionaryStep
        ``dictionary`` Q and ``change`` S with L_moved = S Q. Pass all codes through `keep_codes`
        with S afterwards.

    Notes
    -----
    Derived in chapter 14 (dictionary), eqs. (dictionary-armijo) and (dictionary-polar).
    Paper: section IV-C, eq. 14 and Algorithm 2, line 12.
    """
    moved, step_size, before, after, n_backtracks = line_search(
        objective, L, max_move, max_backtracks
    )
    change, rows = polar_factors(moved)
    return DictionaryStep(
        dictionary=rows,
        change=change,
        step_size=step_size,
        objective_before=before,
        objective_after=after,
        n_backtracks=n_backtracks,
    )


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
    L = dictionary
    F = target.factor
    # the factor's rows in an orthonormal basis [L; Q] of all that matters: F = P L + root Q
    P = times_transpose(F, L)
    gram = times_transpose(F, F)
    squares, U = linalg.eigh(gram - P @ P.T)
    keep = squares > len(gram) * np.finfo(float).eps * np.trace(gram)
    keep[: max(len(keep) - (D - d), 0)] = False  # no more than are orthogonal to all atoms
    U = U[:, keep]
    roots = np.sqrt(squares[keep])
    coordinates = np.hstack([P, U * roots])  # (r, d + k)
    # the new task's stretch: what is above the median of all D eigenvalues (alpha cancels)
    M = target._by_core(coordinates.T) @ coordinates
    values, vectors = linalg.eigh((M + M.T) / 2)
    level = np.median(np.concatenate([values, np.zeros(D - len(values))]))
    above = np.maximum(values - level, 0.0)
    above[above <= 100 * D * np.finfo(float).eps * np.abs(values).max()] = 0.0  # rounding
    if not above.any():
        return dictionary, stretch
    total = (vectors * (above / above.sum())) @ vectors.T
    total[:d, :d] += np.diag(stretch)
    # its leading eigenvectors, first in the basis and then in the features
    stretch, turn = linalg.eigh(total, subset_by_index=[len(total) - d, len(total) - 1])
    by_row = turn[:d, ::-1]
    by_rest = (U / roots) @ turn[d:, ::-1]
    moved = (by_row - P.T @ by_rest).T @ L + by_rest.T @ F
    return polar_factors(moved)[1], np.maximum(stretch[::-1], 0.0)
