# Generated from book/surrogate.ipynb by tools/tangle.py: edit the chapter.
"""The quadratic surrogate of a task: a target metric M - eta G in the place of its rows.

The passive-aggressive model of a loss, linearised at the current metric, is the squared
distance to one target metric plus a constant. The functions give the target, both
objectives and the penalties that keep the minimiser where it is.
"""

from lml.metrics import FactoredMetric
from lml.utils.validation import real

__all__ = [
    "dropped_constant",
    "linearized_objective",
    "surrogate_objective",
    "surrogate_penalty",
    "target_metric",
]


# book/surrogate.ipynb#functions
def target_metric(
    metric: FactoredMetric, gradient: FactoredMetric, learning_rate: float
) -> FactoredMetric:
    """The target M - eta G of one gradient step, kept factored.

    Parameters
    ----------
    metric : FactoredMetric of shape (n_features, n_features)
        The metric M before the step.
    gradient : FactoredMetric of shape (n_features, n_features)
        Gradient G of the loss at M, as `lml.triplets.triplet_gradient` returns it.
    learning_rate : float
        The step eta, above 0.

    Returns
    -------
    target : FactoredMetric of shape (n_features, n_features)
        Its factor is that of the gradient where M has the same factor or none; otherwise the
        two factors are stacked.

    Notes
    -----
    Derived in chapter 10 (surrogate), eqs. (surrogate-square) and (surrogate-target).
    Paper: section IV, eq. 10.

    Examples
    --------
    >>> from lml.metrics import FactoredMetric
    >>> G = FactoredMetric.from_dense([[1.0, 2.0], [2.0, 4.0]])
    >>> target_metric(FactoredMetric.identity(2), G, 0.5).to_dense().tolist()
    [[0.5, -1.0], [-1.0, -1.0]]
    """
    real(0, above=True).check("learning_rate", learning_rate)
    return metric - float(learning_rate) * gradient


# book/surrogate.ipynb#functions
def linearized_objective(
    candidate: FactoredMetric,
    metric: FactoredMetric,
    loss: float,
    gradient: FactoredMetric,
    learning_rate: float,
) -> float:
    """Tangent of the loss at a metric plus the proximal term, l + <Z - M, G> + |Z - M|^2 / 2 eta.

    Parameters
    ----------
    candidate : FactoredMetric of shape (n_features, n_features)
        The metric Z at which to evaluate, for instance ``FactoredMetric(0.0, L, W)``.
    metric : FactoredMetric of shape (n_features, n_features)
        The metric M at which the loss was linearised.
    loss : float
        Loss at M.
    gradient : FactoredMetric of shape (n_features, n_features)
        Gradient G of the loss at M.
    learning_rate : float
        The step eta, above 0.

    Returns
    -------
    value : float

    Notes
    -----
    Derived in chapter 10 (surrogate), eq. (surrogate-linear).
    Paper: section IV, eq. 8, without the penalties.

    Examples
    --------
    >>> from lml.metrics import FactoredMetric
    >>> M, G = FactoredMetric.identity(1), FactoredMetric.from_dense([[-2.0]])
    >>> linearized_objective(FactoredMetric.identity(1, 2.0), M, 3.0, G, 0.5)
    2.0
    """
    real(0, above=True).check("learning_rate", learning_rate)
    step = candidate - metric
    return float(loss + step.inner(gradient) + step.norm() ** 2 / (2 * float(learning_rate)))


# book/surrogate.ipynb#functions
def surrogate_objective(candidate: FactoredMetric, target: FactoredMetric) -> float:
    """Half the squared distance to the target, |Z - M*|^2 / 2.

    Parameters
    ----------
    candidate, target : FactoredMetric of shape (n_features, n_features)

    Returns
    -------
    value : float

    Notes
    -----
    Derived in chapter 10 (surrogate), eqs. (surrogate-completed) and (surrogate-half).
    Paper: section IV-B, f in eq. 11. Divided by eta and increased by `dropped_constant` it is
    `linearized_objective`.

    Examples
    --------
    >>> from lml.metrics import FactoredMetric
    >>> round(surrogate_objective(FactoredMetric.identity(2), FactoredMetric.identity(2, 4.0)), 6)
    9.0
    """

    return float((candidate - target).norm() ** 2 / 2)


def dropped_constant(loss: float, gradient: FactoredMetric, learning_rate: float) -> float:
    """What completing the square leaves over: l(M) - eta |G|^2 / 2.

    Parameters
    ----------
    loss : float
        Loss at M.
    gradient : FactoredMetric
        Gradient G of the loss at M.
    learning_rate : float
        The step eta, above 0.

    Returns
    -------
    value : float
        Also the least value of `linearized_objective`, which it takes at the target.

    Notes
    -----
    Derived in chapter 10 (surrogate), eq. (surrogate-constant).
    Paper: suppressed between eqs. 8 and 9.

    Examples
    --------
    >>> from lml.metrics import FactoredMetric
    >>> dropped_constant(3.0, FactoredMetric.from_dense([[-2.0]]), 0.5)
    2.0
    """
    real(0, above=True).check("learning_rate", learning_rate)
    return float(loss - float(learning_rate) * gradient.norm() ** 2 / 2)


# book/surrogate.ipynb#the-exchange-rate-of-the-penalties
def surrogate_penalty(penalty: float, learning_rate: float) -> float:
    """Penalty for f = |Z - M*|^2 / 2 that keeps the minimiser: eta times the one beside the loss.

    Parameters
    ----------
    penalty : float
        Code penalty (lambda) or dictionary penalty (gamma) beside the loss, at least 0.
    learning_rate : float
        The step eta of the target, above 0.

    Returns
    -------
    penalty : float

    Notes
    -----
    Derived in chapter 10 (surrogate), eqs. (surrogate-scaled) and (surrogate-half).
    Paper: section IV, eqs. 9 to 11, which keep the old letters. A target that a base learner
    made has no learning rate: use the penalty as it is, in the units of the target.

    Examples
    --------
    >>> surrogate_penalty(0.5, 0.25)
    0.125
    """
    real(0).check("penalty", penalty)
    real(0, above=True).check("learning_rate", learning_rate)
    return float(penalty) * float(learning_rate)
