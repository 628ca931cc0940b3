# Generated from book/penalties.ipynb by tools/tangle.py: edit the chapter.
"""The off-diagonal l1 penalty on a task's code and the projection onto PSD matrices.

A penalty is an object with a value, a proximal operator, the distance of a negative
gradient to its subdifferential (the KKT residual) and the strength at which a code
becomes diagonal.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg

from lml.utils.typing import Floats
from lml.utils.validation import real

__all__ = ["OffDiagonalL1", "nearest_psd", "soft_threshold"]

# book/penalties.ipynb#the-penalty-and-its-value
_AT_LEAST_ZERO = real(0, largest=np.inf)  # also for numbers that are computed


@dataclass(frozen=True)
class OffDiagonalL1:
    """The penalty strength * sum of |W_ij| over i != j.

    Parameters
    ----------
    strength : float
        Non-negative and finite, in the units of the code.

    Raises
    ------
    InvalidParameterError
        A ValueError and TypeError, when strength is no such number.

    Notes
    -----
    Derived in chapter 11 (penalties), eqs. (penalties-off-norm) and (penalties-soft). Paper:
    sections III-C and IV-B, eqs. 5 and 13.

    Examples
    --------
    >>> from lml.penalties import OffDiagonalL1
    >>> penalty = OffDiagonalL1(1.0)
    >>> penalty.value([[5.0, 3.0], [0.5, -2.0]])
    3.5
    >>> penalty.prox([[5.0, 3.0], [0.5, -2.0]])
    array([[ 5.,  2.],
           [ 0., -2.]])
    """

    strength: float

    def __post_init__(self) -> None:
        _AT_LEAST_ZERO.check("strength", self.strength)

    def value(self, W: ArrayLike) -> float:
        """The penalty of a square matrix W (d, d), a float."""
        sizes = np.abs(np.asarray(W, dtype=float))
        np.fill_diagonal(sizes, 0.0)
        return float(self.strength * sizes.sum())

    # book/penalties.ipynb#the-proximal-operator-entry-by-entry
    def prox(self, W: ArrayLike, step: float = 1.0) -> Floats:
        """The proximal operator of step * penalty: soft threshold off the diagonal.

        Parameters
        ----------
        W : array of shape (d, d)
            A symmetric W gives a symmetric result.
        step : float, default=1.0
            Non-negative and finite; the threshold is step * strength.

        Returns
        -------
        array of shape (d, d)
            A new array; the diagonal is that of W.

        Notes
        -----
        Derived in chapter 11 (penalties), eq. (penalties-soft). Paper: section IV-B, eq. 13.
        Positive semi-definiteness is not preserved, see nearest_psd.
        """
        _AT_LEAST_ZERO.check("step", step)
        return soft_threshold(np.asarray(W, dtype=float), step * self.strength)

    # book/penalties.ipynb#a-certificate-of-optimality
    def kkt_residual(self, W: Floats, gradient: Floats) -> float:
        """Distance of -gradient to the subdifferential of the penalty at W.

        Parameters
        ----------
        W : array of shape (d, d)
        gradient : array of shape (d, d)
            The gradient at W of the smooth part of the objective.

        Returns
        -------
        float
            Zero exactly when W minimizes the smooth part plus the penalty.

        Notes
        -----
        Derived in chapter 11 (penalties), eqs. (penalties-certificate) and (penalties-gap). Not in
        the paper.
        """
        strength = float(self.strength)
        at_zero = np.maximum(np.abs(gradient) - strength, 0.0)
        distance = np.where(W == 0, at_zero, gradient + strength * np.sign(W))
        np.fill_diagonal(distance, gradient.diagonal())
        return float(np.linalg.norm(distance))

    # book/penalties.ipynb#when-is-the-code-diagonal
    @staticmethod
    def strength_max(B: Floats, gram: Floats | None = None) -> float:
        """Smallest strength with a diagonal code.

        Parameters
        ----------
        B : array of shape (d, d)
            The projected target L M* L'.
        gram : array of shape (d, d), optional
            A = L L'. Left out, the rows of L are orthonormal.

        Returns
        -------
        float
            At this strength and above, a minimizer of
            1/2 ||L'WL - M*||^2 + strength * ||W||_{1,off} is diagonal.

        Notes
        -----
        Derived in chapter 11 (penalties), eq. (penalties-strength-max). Not in the paper.
        """
        off = np.abs(B)
        if gram is not None:
            weights = linalg.lstsq(gram * gram, B.diagonal())[0]
            off = np.abs((gram * weights) @ gram - B)
        np.fill_diagonal(off, 0.0)
        return float(off.max(initial=0.0))


# book/penalties.ipynb#the-proximal-operator-entry-by-entry
def soft_threshold(W: Floats, threshold: float) -> Floats:
    """Soft threshold off the diagonal of a square array, eq. (penalties-soft); a new array."""
    shrunk = W.clip(-threshold, threshold)
    np.subtract(W, shrunk, out=shrunk)
    np.fill_diagonal(shrunk, W.diagonal())
    return shrunk


# book/penalties.ipynb#a-threshold-can-break-a-metric
def nearest_psd(W: ArrayLike) -> Floats:
    """The positive semi-definite matrix nearest to W in the Frobenius norm.

    Parameters
    ----------
    W : array of shape (d, d)
        Any square matrix; its skew part is dropped.

    Returns
    -------
    array of shape (d, d)
        Symmetric, with eigenvalues that are non-negative up to rounding.

    Notes
    -----
    Derived in chapter 11 (penalties), eq. (penalties-psd). Zeros of W are in general not zeros of
    the result: apply it where a distance is read out, not to the stored code. Not in the paper,
    whose section III-A requires it.

    Examples
    --------
    >>> from lml.penalties import nearest_psd
    >>> nearest_psd([[1.0, 0.0], [0.0, -3.0]])
    array([[1., 0.],
           [0., 0.]])
    """
    W = np.asarray(W, dtype=float)
    values, vectors = linalg.eigh((W + W.T) / 2)
    P = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return (P + P.T) / 2
