# Generated from book/oasis.ipynb by tools/tangle.py: edit the chapter.
"""OASIS: an online similarity x'Wz learned from triplets by passive-aggressive steps.

Three exact forms of one loop. The dense form keeps W and resolves a block of steps at a time
by matrix products. The other two never touch a feature: where updates are rare the score form
keeps the scores of the training samples, and a passive step costs O(1); the kernel form costs
O(n) a step.
"""

from __future__ import annotations

import copy
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.linalg.blas import dgemm, dger, dsyrk
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from lml.metrics import START, FactoredMetric, MetricLearnerMixin, starting_metric
from lml.state import storable
from lml.triplets import draw_triplets
from lml.utils.linalg import times_transpose
from lml.utils.typing import Floats, Indices, LabelsLike, Matrix, MatrixLike, Seed
from lml.utils.validation import (
    check_parameters,
    check_samples,
    check_two_classes,
    real,
    seed,
    warn_of_mean,
    whole,
)
from lml.weak_supervision import TripletLearnerMixin, check_pair_labels, check_tuples, pair_steps

__all__ = ["OASIS", "passive_aggressive_step"]


# book/oasis.ipynb#the-step-from-its-kkt-conditions
def passive_aggressive_step(
    W: Floats, anchor: Floats, positive: Floats, negative: Floats, aggressiveness: float
) -> tuple[Floats, float]:
    """Move a dense matrix as little as possible while keeping the hinge of a triplet small.

    Parameters
    ----------
    W : ndarray of shape (n_features, n_features)
        The current matrix. It is not modified.
    anchor : ndarray of shape (n_features,)
        Sample that the two others are compared with.
    positive : ndarray of shape (n_features,)
        Sample of the anchor's class.
    negative : ndarray of shape (n_features,)
        Sample of another class.
    aggressiveness : float
        Largest step C, above 0.

    Returns
    -------
    W : ndarray of shape (n_features, n_features)
        The next matrix; the given one if the triplet already has its margin.
    step : float
        Length tau of the step, in [0, C].

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
    step = min(aggressiveness, float(loss / size))
    return W + step * np.outer(anchor, q), step


# book/oasis.ipynb#the-dense-form-a-block-of-steps-at-a-time
_BLOCK = 64  # steps that are resolved, or searched, at once


def _resolve(short: Floats, H: Floats, aggressiveness: float) -> tuple[Floats, Floats]:
    """Hinges and multipliers of a block of b steps.

    short (b,) is 1 - margin at the start of the block, H (b, b) is zero above the diagonal.
    """
    sizes = H.diagonal()
    sizes = np.where(sizes > 0, sizes, np.inf)  # a direction of length zero is skipped
    H = H.copy()
    np.fill_diagonal(H, 0.0)
    steps = np.zeros_like(short)
    for _ in range(len(short) + 1):
        losses = np.maximum(short - H @ steps, 0.0)
        last = steps
        steps = np.minimum(aggressiveness, losses / sizes)
        if (last == steps).all():
            break
    return losses, steps


# book/oasis.ipynb#the-dense-form-a-block-of-steps-at-a-time
def _dense_form(
    X: Matrix, triplets: Indices, aggressiveness: float, W: Floats
) -> tuple[Floats, Floats]:
    """Run the steps on W (D, D), C-ordered, in place; the hinge and the multiplier of each."""
    X = X if sparse.issparse(X) else np.ascontiguousarray(X)
    losses = np.zeros(len(triplets))
    steps = np.zeros(len(triplets))
    for first in range(0, len(triplets), _BLOCK):
        block = slice(first, first + _BLOCK)
        of_block = triplets[block].T.ravel()  # anchors, then positives, then negatives
        rows = X[of_block].toarray() if sparse.issparse(X) else X.take(of_block, axis=0)
        A, positives, negatives = rows.reshape(3, -1, X.shape[1])
        Q = positives - negatives
        # both products of the block are symmetric: BLAS computes one triangle of each
        H = (dsyrk(1.0, A.T, trans=1) * dsyrk(1.0, Q.T, trans=1)).T
        short = 1.0 - np.vecdot(A @ W, Q)
        losses[block], steps[block] = _resolve(short, H, aggressiveness)
        used = np.flatnonzero(steps[block])
        if len(used):
            A = steps[block][used, None] * A.take(used, axis=0)
            Q = Q.take(used, axis=0)
            # the transpose of W is what Fortran's product changes
            dgemm(1.0, Q.T, A.T, 1.0, W.T, trans_b=1, overwrite_c=1)
    return losses, steps


# book/oasis.ipynb#score-form-and-kernel-form-without-the-features
def _sizes(gram: Floats, triplets: Indices) -> Floats:
    """Squared length of x_i times that of x_j - x_k, for each triplet."""
    i, j, k = triplets.T
    norms = gram.diagonal()
    spread = norms[j] - 2.0 * gram[j, k] + norms[k]
    return norms[i] * np.where(spread > 1e-13 * (norms[j] + norms[k]), spread, 0.0)


def _score_form(
    gram: Floats, scores: Floats, triplets: Indices, aggressiveness: float
) -> tuple[Floats, Floats]:
    """The same steps; the scores of the samples (n, n) are kept up to date in place."""
    i, j, k = triplets.T
    near = i * len(gram) + j
    far = i * len(gram) + k
    sizes = _sizes(gram, triplets)
    losses = np.zeros(len(triplets))
    steps = np.zeros(len(triplets))
    t = 0
    while t < len(triplets):
        # nothing changes until the next update: look for it in a slice of the stream
        ahead = slice(t, t + _BLOCK)
        short = 1.0 - (scores.take(near[ahead]) - scores.take(far[ahead]))
        found = np.flatnonzero(short > 0)
        if not len(found):
            t += _BLOCK
            continue
        t += int(found[0])
        losses[t] = short[found[0]]
        if sizes[t] > 0:
            steps[t] = min(aggressiveness, losses[t] / sizes[t])
            dger(steps[t], gram[j[t]] - gram[k[t]], gram[i[t]], a=scores.T, overwrite_a=1)
        t += 1
    return losses, steps


# book/oasis.ipynb#score-form-and-kernel-form-without-the-features
def _kernel_form(
    gram: Floats, scores: Floats, triplets: Indices, aggressiveness: float
) -> tuple[Floats, Floats]:
    """The same steps; of the samples' scores only those of the start are kept, and (K gram)'."""
    sizes = _sizes(gram, triplets)
    losses = np.zeros(len(triplets))
    steps = np.zeros(len(triplets))
    PT = np.zeros_like(gram)
    for t, (i, j, k) in enumerate(triplets):
        margin = scores[i, j] - scores[i, k] + gram[i] @ (PT[j] - PT[k])
        losses[t] = max(0.0, 1.0 - margin)
        if losses[t] > 0 and sizes[t] > 0:
            steps[t] = min(aggressiveness, losses[t] / sizes[t])
            PT[:, i] += steps[t] * (gram[j] - gram[k])
    return losses, steps


def _coefficients(triplets: Indices, steps: Floats, n_samples: int) -> Floats:
    """K (n, n) of all steps."""
    i, j, k = triplets.T
    K = np.zeros((n_samples, n_samples))
    np.add.at(K, (i, j), steps)
    np.subtract.at(K, (i, k), steps)
    return K


# book/oasis.ipynb#the-estimator
@storable
class OASIS(TripletLearnerMixin, MetricLearnerMixin, BaseEstimator):
    """Learn a similarity x'Mz from triplets by passive-aggressive steps.

    Parameters
    ----------
    aggressiveness : float, default=0.1
        Largest length C of a step, above 0; may be infinite.
    n_steps : int, default=20_000
        Number of triplets drawn, one in each step. With 0 the metric is the start.
    init : FactoredMetric, array-like of shape (n_features, n_features) or None, default=None
        The metric to start from. None is the identity.
    random_state : int, RandomState instance or None, default=None
        Seed of the triplets.

    Attributes
    ----------
    metric_ : FactoredMetric of shape (n_features, n_features)
        The learned metric. In general it is not symmetric.
    n_updates_ : int
        Number of steps that changed the metric.
    loss_curve_ : ndarray of shape (n_blocks,)
        Mean hinge before the step, over at most 50 blocks of consecutive steps.
    threshold_ : float
        Score above which a pair is similar, learned by `fit_pairs` only.
    n_features_in_ : int
        Number of features seen in `fit`.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if X was a data frame whose columns are all named by strings.

    See Also
    --------
    lml.baselines.omtrsl.MultiTaskOASIS : Several tasks that are learned together.

    Notes
    -----
    Derived in chapter 6 (oasis), eqs. (oasis-update), (oasis-block), (oasis-kernel) and
    (oasis-lazy). Paper: section V-A (stOASIS). Triplets are drawn by
    `lml.triplets.sample_triplets`. The largest step has units: X times c needs aggressiveness /
    c**4 and a start divided by c**2.

    Inner products depend on the origin: center the samples. A fit warns of a mean that is more
    than twice as long as the deviation of the samples from it.

    Examples
    --------
    >>> from lml.datasets import load_digits_tasks
    >>> from lml.oasis import OASIS
    >>> task = load_digits_tasks(random_state=0)[0]
    >>> OASIS(n_steps=500, random_state=0).fit(task.X_train, task.y_train).metric_.shape
    (64, 64)
    """

    metric_type = "similarity"
    _parameter_rules: ClassVar = {
        "aggressiveness": real(0, above=True, infinite=True),
        "n_steps": whole(0),
        "init": START,
        "random_state": seed(),
    }

    def __init__(
        self,
        aggressiveness: float = 0.1,
        n_steps: int = 20_000,
        init: FactoredMetric | ArrayLike | None = None,
        random_state: Seed = None,
    ) -> None:
        self.aggressiveness = aggressiveness
        self.n_steps = n_steps
        self.init = init
        self.random_state = random_state

    def fit(self, X: MatrixLike, y: LabelsLike) -> Self:
        """Learn the metric.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples, at least 3. Of a sparse matrix, few samples are made dense at a time.
        y : array-like of shape (n_samples,)
            Class of each sample, of any hashable type: at least two classes, one of them with
            two samples. The only sample of a class is no anchor, but may be a negative.

        Returns
        -------
        self : OASIS
            The fitted learner.

        Raises
        ------
        ValueError
            If a parameter is out of range, X is not finite, X and y differ in length, or
            the labels allow no triplet. Nothing is stored then.
        """
        check_parameters(self)
        fitted = copy.copy(self)  # a fit that fails changes nothing
        X, codes, labels = check_samples(fitted, X, y)
        warn_of_mean(X)
        check_two_classes(codes, labels)
        triplets = draw_triplets(codes, self.n_steps, self.random_state)
        fitted._run(X, triplets)
        self.__dict__ = fitted.__dict__
        return self

    def _learn_triplets(self, X: Matrix, triplets: Indices) -> None:
        """Draw the triplets of the steps from the given ones."""
        warn_of_mean(X, stacklevel=4)
        rng = check_random_state(self.random_state)
        self._run(X, triplets[rng.randint(len(triplets), size=self.n_steps)])

    def _run(self, X: Matrix, triplets: Indices) -> None:
        """Take a step for each triplet, in the form that suits the samples."""
        start = starting_metric(self.init, X.shape[1])
        if X.shape[1] <= X.shape[0]:  # dense form
            W = start.to_dense()
            losses, steps = _dense_form(X, triplets, self.aggressiveness, W)
            self.metric_ = FactoredMetric._trusted(0.0, np.eye(len(W)), W)
        else:  # score or kernel form, from inner products of the samples alone
            gram = times_transpose(X, X)
            scores = np.ascontiguousarray(start._bilinear(X, X))
            # a step of the kernel form costs n, an update of the score form n**2 operations
            i, j, k = triplets.T
            n_lacking = np.count_nonzero(scores[i, j] - scores[i, k] < 1.0)
            updates_are_rare = n_lacking * len(gram) <= 25 * len(triplets)
            form = _score_form if updates_are_rare else _kernel_form
            losses, steps = form(gram, scores, triplets, self.aggressiveness)
            K = _coefficients(triplets, steps, len(gram))
            used = np.flatnonzero(K.any(axis=0) | K.any(axis=1))
            change = FactoredMetric._trusted(0.0, X[used], K[np.ix_(used, used)])
            self.metric_ = start + change
        self._note_steps(losses, steps)

    def _note_steps(self, losses: Floats, steps: Floats) -> None:
        """Number of updates, and the hinge along the way."""
        self.n_updates_ = int(np.count_nonzero(steps))
        blocks = np.array_split(losses, min(50, len(losses))) if len(losses) else []
        self.loss_curve_ = np.array([block.mean() for block in blocks])
        self.__dict__.pop("threshold_", None)  # of an earlier `fit_pairs`

    def fit_pairs(self, pairs: ArrayLike, y: ArrayLike, X: MatrixLike | None = None) -> Self:
        """Learn the metric, and a threshold of its scores, from similar and dissimilar pairs.

        Parameters
        ----------
        pairs : array-like of shape (n_pairs, 2, n_features) or (n_pairs, 2)
            Pairs of samples, or with `X` the numbers of their samples.
        y : array-like of shape (n_pairs,)
            +1 for a similar pair, -1 for a dissimilar one.
        X : array-like of shape (n_samples, n_features), optional
            Samples that `pairs` counts, dense.

        Returns
        -------
        self : OASIS
            The fitted learner, with `threshold_`.

        Raises
        ------
        ValueError
            If a parameter, a pair or a label cannot be used. Nothing is stored then.

        Notes
        -----
        Derived in chapter 43 (weak_supervision), eq. (pairs-step).
        """
        check_parameters(self)
        fitted = copy.copy(self)
        samples, numbers = check_tuples(fitted, pairs, X, 2, accept_sparse=False)
        warn_of_mean(samples)
        signs = check_pair_labels(y, len(numbers))
        start = starting_metric(self.init, samples.shape[1]).to_dense()
        drawn = check_random_state(self.random_state).randint(len(numbers), size=self.n_steps)
        W, threshold, losses, steps = pair_steps(
            samples, numbers, signs, drawn, self.aggressiveness, start
        )
        fitted.metric_ = FactoredMetric._trusted(0.0, np.eye(len(W)), W)
        fitted._note_steps(losses, steps)
        fitted.threshold_ = threshold
        self.__dict__ = fitted.__dict__
        return self
