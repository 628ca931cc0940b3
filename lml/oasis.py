# Generated from book/oasis.ipynb by tools/tangle.py: edit the chapter.
"""OASIS: an online similarity x'Wz learnt from triplets by passive-aggressive steps.

Two exact forms of one loop: the dense form keeps W, the kernel form keeps the scores of the
training rows and costs O(n) a step whatever the number of features.
"""

import copy
from numbers import Integral, Real

import numpy as np
from scipy import sparse
from scipy.linalg.blas import dger
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from lml.metrics import FactoredMetric, MetricLearnerMixin
from lml.neighbors import _check_size, _class_numbers
from lml.triplets import sample_triplets

__all__ = ["OASIS", "passive_aggressive_step"]


def passive_aggressive_step(W, anchor, positive, negative, aggressiveness):
    """One OASIS step on a dense matrix: the nearest matrix that pays little hinge.

    Parameters
    ----------
    W : ndarray of shape (D, D)
        The current matrix; not modified.
    anchor, positive, negative : ndarray of shape (D,)
        The rows of the triplet.
    aggressiveness : float
        The cap C > 0 of the step length.

    Returns
    -------
    W : ndarray of shape (D, D)
        The next matrix (`W` itself when the triplet has its margin).
    step : float
        The multiplier tau, in [0, C].

    Notes
    -----
    Derived in chapter 6 (oasis), eq. (oasis-update). Paper: section V, table I (model OASIS).

    Examples
    --------
    >>> import numpy as np
    >>> W, step = passive_aggressive_step(np.zeros((2, 2)), *np.eye(2)[[0, 0, 1]], 10.0)
    >>> W.tolist(), float(step)
    ([[0.5, -0.5], [0.0, 0.0]], 0.5)
    """
    q = positive - negative
    loss = 1.0 - anchor @ W @ q
    size = (anchor @ anchor) * (q @ q)
    if loss <= 0 or size == 0:
        return W, 0.0
    step = min(aggressiveness, loss / size)
    return W + step * np.outer(anchor, q), step


def _dense_form(X, triplets, aggressiveness, W):
    """Run the steps on W (D, D) in place; returns W, the hinge of each step, the updates."""
    norms = np.einsum("ij,ij->i", X, X)
    losses = np.zeros(len(triplets))
    updates = 0
    for t, (i, j, k) in enumerate(triplets):
        q = X[j] - X[k]
        losses[t] = loss = max(0.0, 1.0 - X[i] @ W @ q)
        size = norms[i] * (q @ q)
        if loss > 0 and size > 0:
            # W is C-ordered, so its transpose is what Fortran's rank-one update changes
            dger(min(aggressiveness, loss / size), q, X[i], a=W.T, overwrite_a=1)
            updates += 1
    return W, losses, updates


def _kernel_form(X, triplets, aggressiveness, start):
    """The same steps through scores of rows; returns coefficients, hinges, updates."""
    gram = FactoredMetric.identity(X.shape[1]).bilinear(X, X)
    scores, norms = start.bilinear(X, X), gram.diagonal()
    K, PT = np.zeros_like(gram), np.zeros_like(gram)  # coefficients and (K gram)'
    losses, updates = np.zeros(len(triplets)), 0
    for t, (i, j, k) in enumerate(triplets):
        margin = scores[i, j] - scores[i, k] + gram[i] @ (PT[j] - PT[k])
        losses[t] = loss = max(0.0, 1.0 - margin)
        spread = norms[j] - 2.0 * gram[j, k] + norms[k]
        if loss > 0 and norms[i] > 0 and spread > 1e-13 * (norms[j] + norms[k]):
            step = min(aggressiveness, loss / (norms[i] * spread))
            PT[:, i] += step * (gram[j] - gram[k])
            K[i, j], K[i, k] = K[i, j] + step, K[i, k] - step
            updates += 1
    return K, losses, updates


class OASIS(MetricLearnerMixin, BaseEstimator):
    """Online similarity learning from triplets by passive-aggressive steps.

    Parameters
    ----------
    aggressiveness : float, default=0.1
        Cap C > 0 of a step.
    n_steps : int, default=20000
        Number of triplets drawn, at least 0; with 0 the metric is the start.
    init : FactoredMetric, array-like of shape (D, D) or None, default=None
        The metric to start from; None is the identity.
    random_state : int, RandomState instance or None, default=None
        Source of the triplets.

    Attributes
    ----------
    metric_ : FactoredMetric
        The learnt metric, not symmetric in general.
    n_updates_ : int
        Steps that changed the metric.
    loss_curve_ : ndarray
        Mean hinge before the step, over at most 50 blocks of consecutive steps.
    n_features_in_ : int
        Number of features D.

    Notes
    -----
    Derived in chapter 6 (oasis), eqs. (oasis-update), (oasis-coefficients) and (oasis-lazy). Paper:
    section V-A (stOASIS). Triplets are drawn by `lml.triplets.sample_triplets`. The cap is not free
    of units: rows multiplied by c need aggressiveness / c**4.

    Examples
    --------
    >>> from lml.datasets import load_digits_tasks
    >>> from lml.oasis import OASIS
    >>> task = load_digits_tasks(random_state=0)[0]
    >>> OASIS(n_steps=500, random_state=0).fit(task.X_train, task.y_train).metric_.shape
    (64, 64)
    """

    metric_type = "similarity"

    def __init__(self, aggressiveness=0.1, n_steps=20_000, init=None, random_state=None):
        self.aggressiveness = aggressiveness
        self.n_steps = n_steps
        self.init = init
        self.random_state = random_state

    def fit(self, X, y):
        """Learn the metric.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, D)
            Rows; sparse rows are never made dense.
        y : array-like of shape (n,)
            Labels of any hashable type. A class of one row gives no anchor, but serves as
            negative.

        Returns
        -------
        OASIS
            The estimator itself.

        Raises
        ------
        ValueError
            If a parameter is out of range, X is not finite, or y allows no triplet.
        """
        self._check_parameters()
        learnt = copy.copy(self)
        learnt._fit(X, y)
        self.__dict__ = vars(learnt)  # all at once: a fit that fails changes nothing
        return self

    def _fit(self, X, y):
        kwargs = {"accept_sparse": "csr", "ensure_all_finite": False, "ensure_min_samples": 3}
        codes, labels = (None, ()) if y is None else _class_numbers(y)
        X, codes = validate_data(self, X, codes, dtype=np.float64, **kwargs)
        _check_finite(X)
        _check_size(X, "X")
        start, y = self._start(X.shape[1]), [labels[code] for code in codes]
        triplets = sample_triplets(y, self.n_steps, self.random_state)
        self.metric_, losses, self.n_updates_ = _run(X, triplets, self.aggressiveness, start)
        blocks = np.array_split(losses, min(50, len(losses)) or 1)
        self.loss_curve_ = np.array([block.mean() for block in blocks if len(block)])

    def _check_parameters(self):
        C, steps = self.aggressiveness, self.n_steps
        if not isinstance(C, Real) or not C > 0:
            raise ValueError(f"aggressiveness is {C!r}: give a number above 0, for example 0.1")
        if not isinstance(steps, Integral) or steps < 0:
            raise ValueError(f"n_steps is {steps!r}: give a whole number of at least 0")

    def _start(self, n_features):
        start = self.init
        if start is None:
            return FactoredMetric.identity(n_features)
        start = start if isinstance(start, FactoredMetric) else FactoredMetric.from_dense(start)
        if start.n_features != n_features:
            raise ValueError(
                f"init is a metric of {start.n_features} features, but X has {n_features}: "
                "start from a metric of the same feature space"
            )
        return start

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.sparse = True
        return tags


def _run(X, triplets, aggressiveness, start):
    """Choose the form; returns the metric, the hinge of each step and the update count."""
    if sparse.issparse(X) or X.shape[1] > X.shape[0]:
        K, losses, updates = _kernel_form(X, triplets, aggressiveness, start)
        used = np.flatnonzero(K.any(axis=0) | K.any(axis=1))
        metric = start + FactoredMetric(0.0, X[used], K[np.ix_(used, used)])
    else:
        W, losses, updates = _dense_form(X, triplets, aggressiveness, start.to_dense().copy())
        metric = FactoredMetric.from_dense(W)
    return metric, losses, updates


def _check_finite(X):
    """Refuse NaN and infinity, and say where the first one is."""
    if np.isfinite(X.data if sparse.issparse(X) else X).all():
        return
    entries = sparse.coo_array(X)
    first = np.flatnonzero(~np.isfinite(entries.data))[0]
    row, column = (int(axis[first]) for axis in entries.coords)
    raise ValueError(
        f"X[{row}, {column}] is {entries.data[first]}: X must not hold NaN or infinity,"
        " remove or impute it"
    )
