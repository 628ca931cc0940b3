# Generated from book/plda.ipynb by tools/tangle.py: edit the chapter.
"""What a visit chooses by validation within its own samples: with whom to share, and how much.

`Selection` holds the candidates. It asks the families of earlier tasks whether they say something
about the samples of a `Visit`, and compares sharing with being alone on the samples of each fold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from sklearn.utils.extmath import safe_sparse_dot

from lml.plda.model import (
    Moments,
    Scatters,
    TaskSums,
    class_axes,
    log_ratio_coefficients,
    log_ratios,
    merge_moments,
    mix_scatters,
    shrunken_variances,
    task_moments,
)
from lml.plda.statistics import TaskMemory
from lml.utils.typing import Floats, Indices, Matrix
from lml.weak_supervision import log_ratio_cost

__all__ = [
    "MOST_RANKED",
    "OWN_WEIGHTS",
    "SHRINKAGES",
    "Choice",
    "Fold",
    "Selection",
    "Visit",
    "choose_family",
    "folds_of",
    "is_at_chance",
    "labels_agree",
    "pair_costs",
    "ranked_samples",
    "scatter_tells",
]


# book/plda.ipynb#the-samples-of-a-visit-and-their-folds
class Visit(NamedTuple):
    """Samples of one visit, and what they are added to.

    Attributes
    ----------
    X : {ndarray, csr_array} of shape (n, n_features)
    codes : ndarray of int, shape (n,)
        The class of each sample.
    labels : list
        Label of each class.
    basis : ndarray of shape (k, n_features)
        Orthonormal rows.
    before : pair or None
        Moments of the task's earlier samples, in the basis, and their mean.
    """

    X: Matrix
    codes: Indices
    labels: list[Any]
    basis: Floats
    before: tuple[Moments, Floats] | None

    def moments(self, part: NDArray[np.bool_] | None = None) -> tuple[Moments, Floats]:
        """Moments of the task with this part of the visit, and the mean of its samples."""
        X = self.X if part is None else self.X[part]
        codes = self.codes if part is None else self.codes[part]
        present, codes = np.unique(codes, return_inverse=True)
        now, mean = task_moments(X, codes, [self.labels[c] for c in present], self.basis)
        if self.before is None:
            return now, mean
        earlier, first = self.before
        shift = mean - first
        share = len(codes) / (len(codes) + earlier.counts.sum())
        return merge_moments(earlier, now, self.basis @ shift), first + share * shift

    def only(self, samples: Indices) -> "Visit":
        """The visit of some of the samples, with all others before them."""
        if len(samples) == len(self.codes):
            return self
        others = np.ones(len(self.codes), dtype=bool)
        others[samples] = False
        before = self.moments(others)
        return self._replace(X=self.X[samples], codes=self.codes[samples], before=before)


class Fold(NamedTuple):
    """Samples that are held out and those they are ranked among, in the coordinates of a basis.

    Both have the mean of the task without the held-out samples at 0; `own` are its moments.
    """

    own: Moments
    held: Floats
    held_codes: Indices
    others: Floats
    other_codes: Indices


# book/plda.ipynb#the-samples-of-a-visit-and-their-folds
#: Most samples of a visit that are ranked among each other.
MOST_RANKED = 2048


def _folds(codes: Indices, n_folds: int, rng: np.random.Generator) -> Indices:
    """Number of the fold of each sample; every class is spread over the folds."""
    order = rng.permutation(len(codes))
    folds = np.empty(len(codes), dtype=int)
    first = 0
    for code in range(codes.max() + 1):
        samples = order[codes[order] == code]
        folds[samples] = (first + np.arange(len(samples))) % n_folds
        first += len(samples)
    return np.unique(folds, return_inverse=True)[1]


def ranked_samples(codes: Indices, n_folds: int, rng: np.random.Generator) -> Indices:
    """Samples that validation ranks: all, or a draw in which classes keep their shares."""
    chosen = np.arange(len(codes))
    most_classes = MOST_RANKED // (2 * n_folds)
    if len(codes) > MOST_RANKED and codes.max() >= most_classes:
        kept = rng.permutation(codes.max() + 1) < most_classes
        chosen = np.flatnonzero(kept[codes])
    parts = -(-len(chosen) // MOST_RANKED)
    if parts > 1:
        chosen = chosen[_folds(codes[chosen], parts, rng) == 0]
    return chosen


# book/plda.ipynb#the-samples-of-a-visit-and-their-folds
def folds_of(visit: Visit, n_folds: int, rng: np.random.Generator) -> list[Fold]:
    """The folds of a visit: their samples are some of it, their statistics of all others."""
    visit = visit.only(ranked_samples(visit.codes, n_folds, rng))
    codes = visit.codes
    numbers = _folds(codes, n_folds, rng)
    images = safe_sparse_dot(visit.X, visit.basis.T, dense_output=True)
    folds = []
    for number in range(numbers.max() + 1):
        held = numbers == number
        own, mean = visit.moments(~held)
        centered = images - visit.basis @ mean
        folds.append(
            Fold(
                own=own,
                held=centered[held],
                held_codes=codes[held],
                others=centered[~held],
                other_codes=codes[~held],
            )
        )
    return folds


# book/plda.ipynb#how-a-task-is-read
#: Weights of a task's own statistics to choose from, within and between classes; the last: alone.
OWN_WEIGHTS = ((0.25, 0.0), (0.25, 0.25), (0.0, 0.0), (0.5, 0.25), (1.0, 0.25), (1.0, 1.0))
#: Shrinkages (scale, noise, floor) to choose from.
SHRINKAGES = (
    (0.3, 0.0, 0.0),
    (0.1, 0.0, 0.0),
    (1.0, 0.0, 0.0),
    (1.0, 1.0, 0.0),
    (1.0, 0.3, 0.0),
    (0.3, 0.0, 0.1),
    (0.3, 0.0, 0.3),
    (1.0, 1.0, 0.1),
)
_Pair: TypeAlias = tuple[float, float]
_Shrinkage: TypeAlias = tuple[float, float, float]


def _nearest(scores: Floats, k: int) -> Indices:
    """Places of the k largest scores of each row, largest first; of equal ones the first."""
    m = scores.shape[1]
    if m <= k:
        return np.argsort(-scores, axis=1, kind="stable")
    bound = np.partition(scores, m - k, axis=1)[:, m - k, None]
    rows, places = np.nonzero(scores >= bound)  # k a row, more where scores are equal
    order = np.lexsort((-scores[rows, places], rows))
    first = np.searchsorted(rows, np.arange(len(scores)))
    return places[order][first[:, None] + np.arange(k)]


def _sample_losses(
    fold: Fold, shrinkages: Sequence[_Shrinkage], regularization: float, scatters: Scatters
) -> Floats:
    """Loss (n_shrinkages, n) of held-out samples among the others, eq. (plda-validation)."""
    V, psi = class_axes(scatters, regularization)
    held = fold.held @ V
    others = fold.others @ V
    stranger = fold.held_codes[:, None] != fold.other_codes
    scores = np.empty((len(shrinkages), len(held), len(others)))
    for row, shrinkage in zip(scores, shrinkages, strict=True):
        product, square, _ = log_ratio_coefficients(shrunken_variances(psi, *shrinkage))
        np.matmul(held * product, others.T, out=row)
        row -= 0.5 * (others * others) @ square  # the rest is the same for all others
    nearest = _nearest(scores.reshape(-1, len(others)), 5).reshape(*scores.shape[:2], -1)
    wrong = np.take_along_axis(stranger[None], nearest, axis=2)
    shares = np.cumsum(wrong, axis=2) / np.arange(1, wrong.shape[2] + 1)
    losses: Floats = shares[:, :, ::2].mean(axis=2)  # among one, three and five
    return losses


# book/plda.ipynb#with-whom-to-share-families
def _places_among(labels: Iterable[Any], wanted: Iterable[Any]) -> Indices:
    """Place of each wanted label, -1 where it is not; labels are found by their hashes."""
    place = {label: number for number, label in enumerate(labels)}
    return np.array([place.get(label, -1) for label in wanted], dtype=np.intp)


def _log_likelihoods(sigma: Floats, R: Floats) -> Floats:
    """Of each row of R (n, k) under N(0, c sigma), c that of their mean square; no constant."""
    size = np.mean(R * R) * len(sigma) / np.trace(sigma)
    lower = np.sqrt(size) * linalg.cholesky(sigma, lower=True, check_finite=False)
    half = linalg.solve_triangular(lower, R.T, lower=True, check_finite=False)
    logs: Floats = -np.sum(np.log(np.diag(lower))) - 0.5 * np.sum(half * half, axis=0)
    return logs


# book/plda.ipynb#with-whom-to-share-families
def is_at_chance(loss: float, counts: Indices) -> bool:
    """True if a mean loss of samples of such classes is within two standard errors of chance.

    Derived in chapter 24 (plda), eq. (plda-guess). False where the noise is too large to say.
    """
    n = counts.sum()
    guessed = 1 - np.sum((counts / n) ** 2)
    noise = 2 * np.sqrt(loss * (1 - loss) / n)
    return bool(loss + noise > guessed >= 5 * noise)


def scatter_tells(
    folds: Sequence[Fold], labels: Sequence[Any], within: Floats, regularization: float
) -> bool:
    """Whether others' scatter says no less of held-out samples than none, or than the task's own.

    `labels` has that of each class of the visit. Derived in chapter 24 (plda), eq. (plda-alike).
    """
    ridge = regularization * np.eye(len(within))
    likelihoods = [np.zeros((3, 0))]
    for fold in folds:
        classes = _places_among(fold.own.labels, labels)[fold.held_codes]
        R = fold.held[classes >= 0] - fold.own.means[classes[classes >= 0]]
        if len(R) and np.mean(R * R) > 1e-12 * fold.own.unit:
            scatters = (within + ridge, fold.own.scatters.within + ridge, np.eye(len(within)))
            likelihoods.append(np.array([_log_likelihoods(S, R) for S in scatters]))
    theirs, *others = np.concatenate(likelihoods, axis=1)
    gains = [theirs - other for other in others]
    # not below 0 by more than two standard errors
    return any(
        len(gain) == 0 or gain.sum() >= -2 * np.sqrt(len(gain)) * gain.std() for gain in gains
    )


# book/plda.ipynb#with-whom-to-share-families
def _mean_rule(m: Moments, labels: Sequence[Any], regularization: float) -> tuple[Floats, Floats]:
    """Matrix and offset of the log-likelihoods of classes, samples in the unit of their task."""
    means = m.means[_places_among(m.labels, labels)] / np.sqrt(m.unit)
    sigma = m.scatters.within + regularization * np.eye(len(m.within))
    A = linalg.cho_solve(linalg.cho_factor(sigma, check_finite=False), means.T, check_finite=False)
    return A, -0.5 * np.sum(means.T * A, axis=0)


def labels_agree(
    folds: Sequence[Fold], labels: Sequence[Any], joint: Moments, regularization: float
) -> bool:
    """Whether a label means the same in a visited task as in other tasks together.

    `labels` has that of each class of the visit. Derived in chapter 24 (plda), eq. (plda-agree).
    """
    known = frozenset(joint.labels)
    common = [label for label in labels if label in known]
    if len(common) < 2:
        return True  # nothing that could contradict
    place = _places_among(common, labels)
    A, b = _mean_rule(joint, common, regularization)
    true = []
    by_own_means = []
    by_joint_means = []
    for fold in folds:
        codes = place[fold.held_codes]
        Z = fold.held[codes >= 0] / np.sqrt(fold.own.unit)
        own_A, own_b = _mean_rule(fold.own, fold.own.labels, regularization)
        own = np.argmax(Z @ own_A + own_b, axis=1)
        true.append(codes[codes >= 0])
        by_own_means.append(_places_among(common, fold.own.labels)[own])
        by_joint_means.append(np.argmax(Z @ A + b, axis=1))
    answer = np.concatenate(true)
    theirs = np.concatenate(by_joint_means)
    # right answers beyond those that would be right whatever the samples are
    shares = [np.bincount(c, minlength=len(common)) / len(answer) for c in (answer, theirs)]
    chance = shares[0] @ shares[1]
    own_share = np.mean(np.concatenate(by_own_means) == answer)
    return bool(np.mean(theirs == answer) - chance > max(own_share - chance, 0.0) / 2)


# book/plda.ipynb#with-whom-to-share-families
class Choice(NamedTuple):
    """The family of a task, its losses, whether it is at chance level, and the costs of its pairs."""

    family: int
    losses: Floats
    at_chance: bool
    pair_costs: Floats


def _best(table: Floats) -> tuple[int, int]:
    """Places of the best weights and shrinkage: the shrinkage by its mean over weights."""
    j = table.mean(axis=0).argmin()
    return int(table[:, j].argmin()), int(j)


def choose_family(
    losses: Mapping[Any, Floats], new: int, counts: Indices, doubt: float
) -> tuple[int, Floats]:
    """The family with the smallest loss, or a new one where sharing is worse beyond noise.

    Parameters
    ----------
    losses : dict
        Family to its losses (n_weights, n_shrinkages, n), sample by sample; under None those of
        being alone, with one weight. The last weights of a family are those of being alone.
    new : int
        Number of a new family.
    counts : ndarray of shape (c,)
        Samples of each class: a new family also at chance level.
    doubt : float
        Standard errors that count as noise.

    Returns
    -------
    family : int
    losses : ndarray of shape (n_weights, n_shrinkages)
        Mean over the samples.
    """
    alone = losses[None]
    sharing = {family: part[:-1] for family, part in losses.items() if family is not None}
    if not sharing:
        return new, alone.mean(axis=2)
    tables = {family: part.mean(axis=2) for family, part in sharing.items()}
    best = min(tables, key=lambda family: tables[family][_best(tables[family])])
    own = alone[_best(alone.mean(axis=2))]
    gain = sharing[best][_best(tables[best])] - own  # of being alone, sample by sample
    worse = gain.mean() > doubt * gain.std() / np.sqrt(len(gain))
    if worse or is_at_chance(min(tables[best].min(), own.mean()), counts):
        return new, alone.mean(axis=2)
    return best, losses[best].mean(axis=2)


# book/plda.ipynb#with-whom-to-share-families
@dataclass(frozen=True)
class Selection:
    """The candidates that validation chooses from.

    Attributes
    ----------
    own_weights : sequence of pairs of float
        Weights of a task's own statistics, within and between classes.
    shrinkages : sequence of three floats each
        Scale, noise and floor of `shrunken_variances`.
    regularization : float
        rho.
    shared_labels : bool
        Whether a label means the same class in every task.
    n_folds : int
    """

    own_weights: Sequence[_Pair]
    shrinkages: Sequence[_Shrinkage]
    regularization: float
    shared_labels: bool
    n_folds: int

    @classmethod
    def among(cls, own_weight: Any, shrinkage: Any, **settings: Any) -> Self:
        """The candidates for parameters that are given, or "auto"."""
        weights: Any = OWN_WEIGHTS
        shrinkages: Any = SHRINKAGES
        if not isinstance(own_weight, str):
            pair = own_weight if isinstance(own_weight, (tuple, list)) else 2 * (own_weight,)
            weights = (tuple(map(float, pair)),)
        if not isinstance(shrinkage, str):
            shrinkages = (tuple(map(float, shrinkage)),)
        return cls(own_weights=weights, shrinkages=shrinkages, **settings)

    def validate(
        self,
        visit: Visit,
        families: Mapping[int, TaskSums],
        new: int,
        rng: np.random.Generator,
    ) -> Choice:
        """With whom a visited task shares, its losses for each setting, the costs of its pairs.

        `families` are those that it may share with, `new` is the number of a new one. Where the
        weights are given all tasks are family 0.
        """
        may_leave = len(self.own_weights) > 1
        if not may_leave and len(self.shrinkages) == 1:
            return Choice(0, np.zeros((1, 1)), at_chance=False, pair_costs=np.zeros(0))
        folds = folds_of(visit, self.n_folds, rng)
        if may_leave:
            families = {
                f: sums for f, sums in families.items() if self._fits(folds, visit.labels, sums)
            }
        losses = self._fold_losses(folds, families)
        held = np.concatenate([fold.held_codes for fold in folds])
        counts = np.unique(held, return_counts=True)[1]
        if may_leave:
            doubt = 1.0 if self.shared_labels else 2.0
            family, table = choose_family(losses, new, counts, doubt)
        else:
            family = 0
            table = losses.get(0, losses[None]).mean(axis=2)
        i, j = _best(table)
        weights = self.own_weights[i] if len(table) == len(self.own_weights) else (1.0, 1.0)
        shared = families.get(family)
        costs = pair_costs(visit, shared, weights, self.shrinkages[j], self.regularization, rng)
        return Choice(family, table, is_at_chance(float(table.min()), counts), costs)

    def _fits(self, folds: Sequence[Fold], labels: Sequence[Any], family: TaskSums) -> bool:
        """Whether a family has anything to say about a visited task."""
        rho = self.regularization
        if not scatter_tells(folds, labels, family.mean_within, rho):
            return False
        return family.joined is None or labels_agree(folds, labels, family.joined, rho)

    def _fold_losses(
        self, folds: Sequence[Fold], families: Mapping[int, TaskSums]
    ) -> dict[int | None, Floats]:
        """Losses (n_weights, n_shrinkages, n) of all ranked samples, for each family."""
        found: dict[int | None, list[list[Floats]]] = {f: [] for f in (None, *families)}
        for fold in folds:
            losses = partial(_sample_losses, fold, self.shrinkages, self.regularization)
            own = fold.own.scatters
            alone = losses(own)
            found[None].append([alone])
            for number, family in families.items():
                shared = family.plus(fold.own).scatters
                found[number].append(
                    [
                        alone
                        if weights == (1.0, 1.0)
                        else losses(mix_scatters(weights, own, shared))
                        for weights in self.own_weights
                    ]
                )
        return {f: np.concatenate(tables, axis=2) for f, tables in found.items()}

    def settings(
        self, memory: TaskMemory, family: Iterable[TaskMemory]
    ) -> tuple[_Pair, _Shrinkage]:
        """Own weights and shrinkage of a task: its family's, unless others are clearly better."""
        shape = len(self.own_weights), len(self.shrinkages)
        if shape == (1, 1):
            return self.own_weights[0], self.shrinkages[0]
        own = _loss_table(memory.losses, shape)
        common = _best(np.mean([_loss_table(m.losses, shape) for m in family], axis=0))
        best = _best(own)
        noise = np.sqrt((own[common] + own[best]) / min(memory.n_samples, MOST_RANKED))
        i, j = best if own[common] - own[best] > noise else common
        return self.own_weights[i], self.shrinkages[j]

    def divisor(self, family: Iterable[TaskMemory]) -> float:
        """What divides the within-class covariance in log-ratios, by the mean costs of the family.

        Derived in chapter 24 (plda), eq. (plda-divisor).
        """
        costs = [memory.pair_costs for memory in family if len(memory.pair_costs)]
        if not costs:
            return 1.0
        as_noise, divided = np.mean(costs, axis=0)
        return 1.0 if as_noise <= divided else 1.0 + self.regularization


# book/plda.ipynb#with-whom-to-share-families
def pair_costs(
    visit: Visit,
    family: TaskSums | None,
    weights: _Pair,
    shrinkage: _Shrinkage,
    regularization: float,
    rng: np.random.Generator,
) -> Floats:
    """Costs of the log-ratios of held-out pairs for both divisors of eq. (plda-divisor).

    Nothing, shape (0,), where the dictionary has been fitted to the held-out samples, or where no
    two of them are of one class.
    """
    if len(visit.basis) < visit.X.shape[1]:
        return np.zeros(0)
    signs = []
    ratios = []
    for fold in folds_of(visit, 2, rng):
        own = fold.own.scatters
        shared = own if family is None else family.plus(fold.own).scatters
        V, psi = class_axes(mix_scatters(weights, own, shared), regularization)
        p = shrunken_variances(psi, *shrinkage)
        Q = fold.held @ V / np.sqrt(fold.own.unit)
        i, j = np.triu_indices(len(Q), 1)
        signs.append(np.where(fold.held_codes[i] == fold.held_codes[j], 1, -1))
        ratios.append(
            [log_ratios(d * p, d**0.5 * Q, d**0.5 * Q)[i, j] for d in (1.0, 1.0 + regularization)]
        )
    y = np.concatenate(signs)
    if len(set(y)) < 2:
        return np.zeros(0)
    return np.array([log_ratio_cost(both, y) for both in np.concatenate(ratios, axis=1)])


# book/plda.ipynb#with-whom-to-share-families
def _loss_table(losses: Floats, shape: tuple[int, int]) -> Floats:
    """Losses of all candidates, of such a shape; none where other candidates were tried."""
    fits = all(n in (1, wanted) for n, wanted in zip(losses.shape, shape, strict=True))
    return np.broadcast_to(losses, shape) if fits else np.zeros(shape)
