# Generated from book/weak_supervision.ipynb by tools/tangle.py: edit the chapter.
"""Learning from given pairs and triplets, and decisions about pairs.

`TripletLearnerMixin` gives a learner `fit_triplets`; `pair_steps` is the loop of `OASIS.fit_pairs`.
`PairClassifier` calibrates the scores of pairs of a fitted learner.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_curve
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import check_is_fitted

from lml.triplets import check_sample_numbers
from lml.utils.documentation import DocumentedMixin
from lml.utils.typing import Floats, Indices, LabelsLike, Matrix, MatrixLike
from lml.utils.validation import (
    as_labels,
    check_dense,
    check_new_samples,
    check_parameters,
    labels_array,
    one_of,
    optional,
    real,
    warn_of_scales,
)

__all__ = [
    "OpenSetClassifier",
    "PairClassifier",
    "TripletLearnerMixin",
    "best_f_score",
    "check_pair_labels",
    "check_tuples",
    "equal_error_rate",
    "log_ratio_cost",
    "pair_steps",
]


# book/weak_supervision.ipynb#tuples-of-samples
def check_tuples(
    estimator: Any, tuples: ArrayLike, X: MatrixLike | None, size: int, **options: Any
) -> tuple[Matrix, Indices]:
    """Samples and the numbers of the samples of each tuple.

    Parameters
    ----------
    estimator : estimator
        Gets ``n_features_in_`` and, for a data frame, ``feature_names_in_``.
    tuples : array-like of shape (n_tuples, size, n_features) or (n_tuples, size)
        Tuples of samples, or with `X` the numbers of their samples.
    X : {array-like, sparse matrix} of shape (n_samples, n_features) or None
    size : int
        2 for pairs, 3 for triplets.
    **options
        For `sklearn.utils.validation.validate_data`.

    Returns
    -------
    X : {ndarray, csr_array} of shape (n_samples, n_features)
    numbers : ndarray of int, shape (n_tuples, size)

    Raises
    ------
    ValueError, TypeError
        If there is no tuple, the shape is another one, or a number is no sample of X.
    """
    name = {2: "pairs", 3: "triplets"}[size]
    if X is None:
        given = check_dense(tuples, name, ensure_2d=False, allow_nd=True)
        if given.ndim != 3 or given.shape[1] != size:
            raise ValueError(
                f"{name} has shape {given.shape}: give (n_{name}, {size}, n_features), or"
                f" numbers of samples (n_{name}, {size}) and the samples as X"
            )
        X = given.reshape(-1, given.shape[2])
        numbers = np.arange(given.shape[0] * size).reshape(-1, size)
    else:
        numbers = np.asarray(tuples)
    if not numbers.size:
        raise ValueError(f"{name} is empty: give at least one")
    samples = check_new_samples(estimator, X, reset=True, **options)
    warn_of_scales(samples, getattr(estimator, "feature_names_in_", None))
    return samples, check_sample_numbers(numbers, samples.shape[0], name, size)


# book/weak_supervision.ipynb#tuples-of-samples
def check_pair_labels(y: ArrayLike, n_pairs: int) -> Indices:
    """The labels of pairs, +1 and -1, of both kinds at least one."""
    labels = np.asarray(y)
    if labels.shape != (n_pairs,):
        raise ValueError(f"y has shape {labels.shape}: give ({n_pairs},), a label for each pair")
    if set(labels.tolist()) != {1, -1} or labels.dtype == bool:
        raise ValueError(
            f"y holds {sorted(set(map(str, labels.tolist())))[:5]}: give +1 for similar and -1 for"
            " dissimilar pairs, of both at least one"
        )
    return labels.astype(np.intp)


# book/weak_supervision.ipynb#triplets
class TripletLearnerMixin:
    """`fit_triplets` of a learner with `_learn_triplets(X, triplets)`.

    Notes
    -----
    Derived in chapter 5 (triplets), eq. (triplets-loss).
    """

    def fit_triplets(self, triplets: ArrayLike, X: MatrixLike | None = None) -> Self:
        """Learn the metric from given triplets.

        Parameters
        ----------
        triplets : array-like of shape (n_triplets, 3, n_features) or (n_triplets, 3)
            Triplets (anchor, positive, negative) of samples, or with `X` the numbers of their
            samples. The anchor is more similar to the positive.
        X : {array-like, sparse matrix} of shape (n_samples, n_features), optional
            Samples that `triplets` counts.

        Returns
        -------
        self
            The fitted learner.

        Raises
        ------
        ValueError, TypeError
            If a parameter or a triplet cannot be used. Nothing is stored then.
        """
        check_parameters(self)
        fitted = copy.copy(self)  # a fit that fails changes nothing
        samples, numbers = check_tuples(fitted, triplets, X, 3)
        fitted._learn_triplets(samples, numbers)
        self.__dict__ = fitted.__dict__
        return self

    if TYPE_CHECKING:  # what the learner brings: it sets what is learned from checked triplets

        def _learn_triplets(self, X: Matrix, triplets: Indices) -> None: ...


# book/weak_supervision.ipynb#pairs
def pair_steps(
    X: Floats, pairs: Indices, signs: Indices, drawn: Indices, aggressiveness: float, W: Floats
) -> tuple[Floats, float, Floats, Floats]:
    """Move a dense matrix and a threshold by a passive-aggressive step for each drawn pair.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
    pairs : ndarray of int, shape (n_pairs, 2)
        Numbers of samples.
    signs : ndarray of int, shape (n_pairs,)
        +1 for a similar pair, -1 for a dissimilar one; of both at least one.
    drawn : ndarray of int, shape (n_steps,)
        Number of the pair of each step.
    aggressiveness : float
        Largest step C, above 0.
    W : ndarray of shape (n_features, n_features)
        The matrix at the start. It is changed in place.

    Returns
    -------
    W : ndarray of shape (n_features, n_features)
    threshold : float
    losses, steps : ndarray of shape (n_steps,)
        Hinge before each step, and the length of the step.

    Notes
    -----
    Derived in chapter 43 (weak_supervision), eqs. (pairs-problem) and (pairs-step).
    """
    left = X[pairs[:, 0]]
    right = X[pairs[:, 1]]
    sizes = np.sum(left**2, axis=1) * np.sum(right**2, axis=1)
    unit = sizes.mean()  # s^2
    scores = np.vecdot(left @ W, right)
    threshold = float(scores[signs > 0].mean() + scores[signs < 0].mean()) / 2
    losses = np.zeros(len(drawn))
    steps = np.zeros(len(drawn))
    for t, pair in enumerate(drawn):
        x = left[pair]
        z = right[pair]
        sign = signs[pair]
        losses[t] = max(0.0, 1.0 - sign * (x @ W @ z - threshold))
        if losses[t] > 0 and unit > 0:
            steps[t] = min(aggressiveness, losses[t] / (sizes[pair] + unit))
            W += np.outer(sign * steps[t] * x, z)
            threshold -= steps[t] * sign * unit
    return W, threshold, losses, steps


# book/weak_supervision.ipynb#decisions-and-probabilities
def log_ratio_cost(log_ratios: ArrayLike, y: ArrayLike) -> float:
    """Compute the log-likelihood-ratio cost of scores of pairs, in bits.

    Parameters
    ----------
    log_ratios : array-like of shape (n_pairs,)
        Natural logarithms of the likelihood ratios, similar to dissimilar.
    y : array-like of shape (n_pairs,)
        +1 for a similar pair, -1 for a dissimilar one.

    Returns
    -------
    cost : float
        0 for certainty that is right, 1 for ratios of one.

    Notes
    -----
    Derived in chapter 43 (weak_supervision), eq. (pairs-cllr).

    Examples
    --------
    >>> log_ratio_cost([0.0, 0.0], [1, -1])
    1.0
    """
    ratios = check_dense(log_ratios, "log_ratios", ensure_2d=False)
    signs = check_pair_labels(y, len(ratios))
    losses = np.logaddexp(0.0, -signs * ratios) / np.log(2.0)
    return float(losses[signs > 0].mean() + losses[signs < 0].mean()) / 2


def equal_error_rate(scores: ArrayLike, y: ArrayLike) -> tuple[float, float]:
    """Find where similar pairs are refused as often as dissimilar ones pass.

    Parameters
    ----------
    scores : array-like of shape (n_pairs,)
        Larger is closer.
    y : array-like of shape (n_pairs,)
        +1 for a similar pair, -1 for a dissimilar one.

    Returns
    -------
    rate : float
        The mean of both rates, at the threshold where they differ least.
    threshold : float
        Pairs with this score or a larger one pass.

    Examples
    --------
    >>> equal_error_rate([3.0, 2.0, 1.0, 0.0], [1, -1, 1, -1])
    (0.5, 2.0)
    """
    scores = check_dense(scores, "scores", ensure_2d=False)
    signs = check_pair_labels(y, len(scores))
    passed, accepted, thresholds = roc_curve(signs, scores, drop_intermediate=False)
    refused = 1.0 - accepted
    best = np.argmin(np.abs(refused - passed)[1:]) + 1  # the first threshold is infinite
    return float(passed[best] + refused[best]) / 2, float(thresholds[best])


# book/weak_supervision.ipynb#decisions-and-probabilities
def best_f_score(
    scores: ArrayLike, y: ArrayLike, beta: float = 1.0, prior: float | None = None
) -> tuple[float, float]:
    """Find the threshold with the largest F-score of the pairs that pass.

    Parameters
    ----------
    scores : array-like of shape (n_pairs,)
        Larger is closer.
    y : array-like of shape (n_pairs,)
        +1 for a similar pair, -1 for a dissimilar one.
    beta : float, default=1.0
        How much more a similar pair that is refused counts, above 0.
    prior : float, optional
        Share of similar pairs; that in `y` by default.

    Returns
    -------
    score : float
    threshold : float
        Pairs with this score or a larger one pass.

    Notes
    -----
    Derived in chapter 43 (weak_supervision), eq. (pairs-f).

    Examples
    --------
    >>> best_f_score([3.0, 2.0, 1.0, 0.0], [1, -1, 1, -1])
    (0.8, 1.0)
    """
    scores = check_dense(scores, "scores", ensure_2d=False)
    signs = check_pair_labels(y, len(scores))
    real(0, above=True, largest=np.inf).check("beta", beta)
    optional(real(0, 1, above=True, below=True)).check("prior", prior)
    share = np.mean(signs > 0) if prior is None else prior
    rates = roc_curve(signs, scores, drop_intermediate=False)
    passed, accepted, thresholds = (rate[1:] for rate in rates)  # the first threshold is infinite
    right = share * accepted
    weight = 1 / (1 + float(beta) * float(beta))  # of the precision, 0 for an immense beta
    values = right / (weight * (right + (1 - share) * passed) + (1 - weight) * share)
    best = np.argmax(values)
    return float(values[best]), float(thresholds[best])


# book/weak_supervision.ipynb#decisions-and-probabilities
def _where(task: Hashable) -> dict[str, Any]:
    """The task for a method of a learner of several tasks; nothing for one of one task."""
    return {} if task is None else {"task": task}


class PairClassifier(DocumentedMixin, ClassifierMixin, BaseEstimator):
    """Decide whether two samples are similar, by the calibrated scores of a fitted learner.

    Parameters
    ----------
    learner : fitted learner
        With `pair_score`. It is read and never changed.
    task : hashable or None, default=None
        The task, for a learner of several tasks.
    calibration : {"affine", "isotonic"}, default="affine"
        How a score becomes a log ratio.
    threshold : {"cost", "equal_error_rate", "f_score"}, default="cost"
        The cheapest decisions, or on the pairs of `fit` equal rates of both mistakes or the
        largest F-score.
    prior : float or None, default=None
        Share of similar pairs, between 0 and 1. None is their share in `fit`.
    miss_cost, pass_cost : float, default=1.0
        Price of a similar pair that is refused and of a dissimilar one that passes, above 0.
    beta : float, default=1.0
        Of the F-score: how much more a similar pair that is refused counts, above 0.

    Attributes
    ----------
    calibrator_ : LogisticRegression or IsotonicRegression
    threshold_ : float
        Log ratio above which a pair is called similar.
    prior_ : float
    classes_ : ndarray of int, [-1, 1]

    Notes
    -----
    Derived in chapter 43 (weak_supervision), eqs. (pairs-cost), (pairs-f) and (pairs-cllr). The
    pairs of `fit` should be of samples that the learner has not learned from. It is pickled with
    its learner.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from lml.oasis import OASIS
    >>> X, y = load_iris(return_X_y=True)
    >>> pairs = np.random.default_rng(0).integers(150, size=(500, 2))
    >>> labels = np.where(y[pairs[:, 0]] == y[pairs[:, 1]], 1, -1)
    >>> learner = OASIS(random_state=0).fit(X - X.mean(axis=0), y)
    >>> verifier = PairClassifier(learner).fit((X - X.mean(axis=0))[pairs], labels)
    >>> verifier.predict_proba((X - X.mean(axis=0))[pairs]).shape
    (500, 2)
    """

    _parameter_rules: ClassVar = {
        "calibration": one_of("affine", "isotonic"),
        "threshold": one_of("cost", "equal_error_rate", "f_score"),
        "prior": optional(real(0, 1, above=True, below=True)),
        "miss_cost": real(0, above=True),
        "pass_cost": real(0, above=True),
        "beta": real(0, above=True),
    }

    def __init__(
        self,
        learner: Any,
        *,
        task: Hashable = None,
        calibration: str = "affine",
        threshold: str = "cost",
        prior: float | None = None,
        miss_cost: float = 1.0,
        pass_cost: float = 1.0,
        beta: float = 1.0,
    ) -> None:
        self.learner = learner
        self.task = task
        self.calibration = calibration
        self.threshold = threshold
        self.prior = prior
        self.miss_cost = miss_cost
        self.pass_cost = pass_cost
        self.beta = beta

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        return tags

    def fit(self, pairs: ArrayLike, y: ArrayLike) -> Self:
        """Calibrate the scores and choose the threshold.

        Parameters
        ----------
        pairs : array-like of shape (n_pairs, 2, n_features)
            Pairs of samples, in any form that `pair_score` of the learner takes.
        y : array-like of shape (n_pairs,)
            +1 for a similar pair, -1 for a dissimilar one.

        Returns
        -------
        self : PairClassifier
        """
        check_parameters(self)
        fitted = copy.copy(self)  # a fit that fails changes nothing
        scores = self._scores(pairs)
        signs = check_pair_labels(y, len(scores))
        counts = {1: np.count_nonzero(signs > 0), -1: np.count_nonzero(signs < 0)}
        if self.calibration == "affine":
            # scores of spread one; the tiny ridge keeps separable pairs finite
            fitted.center_ = scores.mean()
            fitted.scale_ = scores.std() or 1.0
            model = LogisticRegression(C=1e4, class_weight="balanced", tol=1e-8, max_iter=1000)
            fitted.calibrator_ = model.fit(fitted._column(scores), signs)
        else:
            weights = 1.0 / np.where(signs > 0, counts[1], counts[-1])
            least = 1.0 / (len(signs) + 2)  # no pair is certain
            model = IsotonicRegression(y_min=least, y_max=1 - least, out_of_bounds="clip")
            fitted.calibrator_ = model.fit(scores, signs > 0, sample_weight=weights)
        fitted.classes_ = np.array([-1, 1])
        fitted.prior_ = self.prior or counts[1] / len(signs)
        fitted.threshold_ = float(np.log(self.pass_cost / self.miss_cost) - logit(fitted.prior_))
        if self.threshold == "equal_error_rate":
            _, fitted.threshold_ = equal_error_rate(fitted._calibrated(scores), signs)
        elif self.threshold == "f_score":
            ratios = fitted._calibrated(scores)
            _, fitted.threshold_ = best_f_score(ratios, signs, self.beta, fitted.prior_)
        self.__dict__ = fitted.__dict__
        return self

    def _scores(self, pairs: ArrayLike) -> Floats:
        """Scores of the learner, for its task."""
        return self.learner.pair_score(pairs, **_where(self.task))

    def _column(self, scores: Floats) -> Floats:
        """Scores of mean zero and spread one on the pairs of `fit`, (n_pairs, 1)."""
        return ((scores - self.center_) / self.scale_)[:, None]

    def _calibrated(self, scores: Floats) -> Floats:
        """Log ratios of scores."""
        if isinstance(self.calibrator_, LogisticRegression):
            return self.calibrator_.decision_function(self._column(scores))
        return logit(self.calibrator_.predict(scores))

    def log_ratio(self, pairs: ArrayLike) -> Floats:
        """Calibrated log ratios of pairs (n_pairs, 2, n_features), shape (n_pairs,)."""
        check_is_fitted(self, "threshold_")
        return self._calibrated(self._scores(pairs))

    def decision_function(self, pairs: ArrayLike) -> Floats:
        """Log ratio minus the threshold, shape (n_pairs,); positive for similar pairs."""
        return self.log_ratio(pairs) - self.threshold_

    def predict(self, pairs: ArrayLike) -> NDArray[np.int_]:
        """+1 for the pairs that are called similar and -1 for the others, shape (n_pairs,)."""
        return np.where(self.decision_function(pairs) >= 0, 1, -1)

    def predict_proba(self, pairs: ArrayLike) -> Floats:
        """Probabilities of dissimilar and similar, shape (n_pairs, 2), for the prior."""
        ratios = self.log_ratio(pairs) + logit(self.prior_)
        return np.stack([expit(-ratios), expit(ratios)], axis=1)


# book/weak_supervision.ipynb#samples-of-no-known-class
class OpenSetClassifier(DocumentedMixin, ClassifierMixin, BaseEstimator):
    """Labels by a fitted classifier with references, or that a sample is of none of its classes.

    Parameters
    ----------
    classifier : fitted classifier
        `MetricKNeighborsClassifier` or `LifelongKNeighborsClassifier`. It is read and never
        changed; references that it gets later count.
    task : hashable or None, default=None
        The task, for a classifier of several tasks.
    outlier_label : object, default=None
        The label of a sample of no known class.
    threshold : {"equal_error_rate", "f_score"}, default="equal_error_rate"
        Known samples are refused as often as outliers pass, or the known samples that pass have the
        largest F-score.
    beta : float, default=1.0
        Of the F-score: how much more a known sample that is refused counts, above 0.

    Attributes
    ----------
    classes_ : ndarray
        Labels of the classes that have references now; `outlier_label` is not one of them.
    threshold_ : float
        Least score of the nearest reference of a known sample.

    Notes
    -----
    It is pickled with its classifier. To store it without pickle, save the classifier by itself
    and keep ``threshold_``.

    Examples
    --------
    >>> from lml.neighbors import MetricKNeighborsClassifier
    >>> classifier = MetricKNeighborsClassifier(n_neighbors=1).fit([[0.0], [1.0]], ["a", "b"])
    >>> model = OpenSetClassifier(classifier, outlier_label="?")
    >>> model.fit([[0.1], [1.2], [5.0]], ["a", "b", "c"]).predict([[0.9], [7.0]]).tolist()
    ['b', '?']
    """

    _parameter_rules: ClassVar = {
        "threshold": one_of("equal_error_rate", "f_score"),
        "beta": real(0, above=True),
    }

    def __init__(
        self,
        classifier: Any,
        *,
        task: Hashable = None,
        outlier_label: Any = None,
        threshold: str = "equal_error_rate",
        beta: float = 1.0,
    ) -> None:
        self.classifier = classifier
        self.task = task
        self.outlier_label = outlier_label
        self.threshold = threshold
        self.beta = beta

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags._skip_test = True  # scikit-learn's checks give no fitted classifier
        return tags

    def fit(self, X: MatrixLike, y: LabelsLike) -> Self:
        """Choose the threshold.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, n_features)
            Validation samples; none of them is a reference.
        y : array-like of shape (n,)
            Their labels. A label that the classifier does not know is that of an outlier.

        Returns
        -------
        self : OpenSetClassifier
        """
        check_parameters(self)
        scores = self._nearest_scores(X)
        check_consistent_length(scores, y)
        known = set(self.classes_.tolist())
        if self.outlier_label in known:
            raise ValueError(f"outlier_label={self.outlier_label!r} is the label of a known class")
        signs = [1 if label in known else -1 for label in as_labels(y)]
        if len(set(signs)) < 2:
            raise ValueError(
                f"y has {signs.count(1)} labels of known classes and {signs.count(-1)} of outliers:"
                " give of both at least one"
            )
        if self.threshold == "f_score":
            _, self.threshold_ = best_f_score(scores, signs, self.beta)
        else:
            _, self.threshold_ = equal_error_rate(scores, signs)
        return self

    @property
    def classes_(self) -> NDArray[Any]:
        """Labels of the known classes, those of references that came later too."""
        classes = self.classifier.classes_
        return classes if self.task is None else classes[self.task]

    def _nearest_scores(self, X: MatrixLike) -> Floats:
        """The score of the nearest reference of each sample."""
        found, scores = self.classifier.kneighbors(X, n_neighbors=1, **_where(self.task))
        if found.dtype.kind != "i":  # scikit-learn's give distances first
            raise TypeError(
                f"classifier is {self.classifier!r}: give a MetricKNeighborsClassifier or a"
                " LifelongKNeighborsClassifier"
            )
        return scores[:, 0]

    def decision_function(self, X: MatrixLike) -> Floats:
        """Score of the nearest reference minus the threshold, (n,); negative for outliers."""
        check_is_fitted(self, "threshold_")
        return self._nearest_scores(X) - self.threshold_

    def predict(self, X: MatrixLike) -> NDArray[Any]:
        """Label of each sample of X (n, n_features), or `outlier_label`, shape (n,)."""
        inside = self.decision_function(X) >= 0
        labels = self.classifier.predict(X, **_where(self.task)).tolist()
        found = [label if near else self.outlier_label for label, near in zip(labels, inside)]
        return labels_array(found)
