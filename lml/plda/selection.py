# Generated from book/plda.ipynb by tools/tangle.py: edit the chapter.
"""What a visit chooses by validation within its own rows: with whom to share, and how much.

`Selection` holds the candidates. It asks the families of earlier tasks whether they say something
about the rows of a `Visit`, and compares sharing with being alone on the rows of each fold.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
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
    class_axes,
    log_ratios,
    merge_moments,
    mix_scatters,
    shrunken_variances,
    task_moments,
)
from lml.plda.statistics import (
    FamilyKey,
    PLDAState,
    TaskMemory,
    TaskSums,
    is_at_chance,
    loss_table,
    summed,
)
from lml.utils.typing import Floats, Indices, Matrix

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
    "labels_agree",
    "open_families",
    "ranked_samples",
    "scatter_tells",
]


# book/plda.ipynb#the-rows-of-a-visit
class Visit(NamedTuple):
    """Rows of one visit, and what they are added to.

    Attributes
    ----------
    X : {ndarray, csr_array} of shape (n, n_features)
    codes : ndarray of int, shape (n,)
        The class of each row.
    labels : list
        Label of each class.
    basis : ndarray of shape (k, n_features)
        Orthonormal rows.
    before : tuple of Moments and ndarray, or None
        Statistics of the task's earlier rows in the basis, and their mean.
    """

    X: Matrix
    codes: Indices
    labels: list[Any]
    basis: Floats
    before: tuple[Moments, Floats] | None

    def moments(self, rows: NDArray[np.bool_] | None = None) -> tuple[Moments, Floats]:
        """Moments with these rows of the visit, and the mean of the task."""
        X = self.X if rows is None else self.X[rows]
        codes = self.codes if rows is None else self.codes[rows]
        present, codes = np.unique(codes, return_inverse=True)
        now, mean = task_moments(X, codes, [self.labels[c] for c in present], self.basis)
        if self.before is None:
            return now, mean
        old, old_mean = self.before
        shift = mean - old_mean
        share = now.counts.sum() / (now.counts.sum() + old.counts.sum())
        return merge_moments(old, now, self.basis @ shift), old_mean + share * shift


# book/plda.ipynb#the-rows-of-a-visit
def _folds(codes: Indices, n_folds: int, rng: np.random.Generator) -> Indices:
    """Number of the fold of each row; every class is spread over the folds."""
    order = rng.permutation(len(codes))
    folds = np.empty(len(codes), dtype=int)
    first = 0
    for code in range(codes.max() + 1):
        rows = order[codes[order] == code]
        folds[rows] = (first + np.arange(len(rows))) % n_folds
        first += len(rows)
    return np.unique(folds, return_inverse=True)[1]


# book/plda.ipynb#the-rows-of-a-visit
#: Most samples of a visit that are ranked among each other.
MOST_RANKED = 2048


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


# book/plda.ipynb#the-read-out-and-its-choice
#: Weights of a task's own statistics to choose from, within and between classes.
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


# book/plda.ipynb#the-read-out-and-its-choice
_Pair: TypeAlias = tuple[float, float]
_Shrinkage: TypeAlias = tuple[float, float, float]


class Fold(NamedTuple):
    """Samples that are held out and those they are ranked among, in the coordinates of a basis.

    Both have the mean of the task without the held-out samples at 0; `own` are its moments.
    """

    own: Moments
    held: Floats
    held_codes: Indices
    others: Floats
    other_codes: Indices


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


def _row_losses(
    fold: Fold, shrinkages: Sequence[_Shrinkage], regularization: float, scatters: Scatters
) -> Floats:
    """Loss (n_shrinkages, n) of held-out samples among the others, eq. (plda-validation)."""
    complete = any(floor > 0 for _, _, floor in shrinkages)
    V, psi = class_axes(scatters, regularization, complete)
    held = fold.held @ V
    others = fold.others @ V
    stranger = fold.held_codes[:, None] != fold.other_codes
    losses = []
    for shrinkage in shrinkages:
        scores = log_ratios(shrunken_variances(psi, *shrinkage), held, others)
        nearest = np.take_along_axis(stranger, _nearest(scores, 5), axis=1)
        shares = np.cumsum(nearest, axis=1) / np.arange(1, nearest.shape[1] + 1)
        losses.append(shares[:, ::2].mean(axis=1))  # among one, three and five
    return np.array(losses)


# book/plda.ipynb#the-read-out-and-its-choice
def _best(table: Floats) -> tuple[int, int]:
    """Places of the best weights and shrinkage: the shrinkage by its mean over weights."""
    j = table.mean(axis=0).argmin()
    return int(table[:, j].argmin()), int(j)


# book/plda.ipynb#the-read-out-and-its-choice
def folds_of(visit: Visit, n_folds: int, rng: np.random.Generator) -> list[Fold]:
    """The folds of a visit: their samples are some of it, their statistics of all others."""
    ranked = ranked_samples(visit.codes, n_folds, rng)
    codes = visit.codes[ranked]
    numbers = _folds(codes, n_folds, rng)
    images = safe_sparse_dot(visit.X[ranked], visit.basis.T, dense_output=True)
    folds = []
    for number in range(numbers.max() + 1):
        held = numbers == number
        rest = np.ones(len(visit.codes), dtype=bool)
        rest[ranked[held]] = False
        own, mean = visit.moments(rest)
        centred = images - visit.basis @ mean
        folds.append(
            Fold(
                own=own,
                held=centred[held],
                held_codes=codes[held],
                others=centred[~held],
                other_codes=codes[~held],
            )
        )
    return folds


# book/plda.ipynb#with-whom-to-share-families
def _places_among(labels: Iterable[Any], wanted: Iterable[Any]) -> Indices:
    """Place of each wanted label, -1 where it is not; labels are found by their hashes."""
    place = {label: number for number, label in enumerate(labels)}
    return np.array([place.get(label, -1) for label in wanted], dtype=np.intp)


def _mean_rule(m: Moments, labels: Sequence[Any], regularization: float) -> tuple[Floats, Floats]:
    """Matrix and offset of the log-likelihoods of classes, rows in the unit of their task."""
    means = m.means[_places_among(m.labels, labels)] / np.sqrt(m.unit)
    sigma = m.scatter + regularization * np.eye(len(m.within))
    A = linalg.cho_solve(linalg.cho_factor(sigma, check_finite=False), means.T, check_finite=False)
    return A, -0.5 * np.sum(means.T * A, axis=0)


# book/plda.ipynb#with-whom-to-share-families
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
def _log_likelihoods(sigma: Floats, R: Floats) -> Floats:
    """Of each row of R (n, k) under N(0, c sigma), c that of their mean square; no constant."""
    size = np.mean(R * R) * len(sigma) / np.trace(sigma)
    lower = np.sqrt(size) * linalg.cholesky(sigma, lower=True, check_finite=False)
    half = linalg.solve_triangular(lower, R.T, lower=True, check_finite=False)
    logs: Floats = -np.sum(np.log(np.diag(lower))) - 0.5 * np.sum(half * half, axis=0)
    return logs


# book/plda.ipynb#with-whom-to-share-families
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
            scatters = (within + ridge, fold.own.scatter + ridge, np.eye(len(within)))
            likelihoods.append(np.array([_log_likelihoods(S, R) for S in scatters]))
    theirs, *others = np.concatenate(likelihoods, axis=1)
    gains = [theirs - other for other in others]
    # not below 0 by more than two standard errors
    return any(
        len(gain) == 0 or gain.sum() >= -2 * np.sqrt(len(gain)) * gain.std() for gain in gains
    )


# book/plda.ipynb#with-whom-to-share-families
def open_families(
    pools: Mapping[FamilyKey, TaskSums], most: int | None, may_leave: bool
) -> tuple[dict[int, TaskSums], int]:
    """Families that a task can share with, and the number of a new one.

    The largest families, of those the latest, at most so many; tasks at chance level are left out.
    Where a task may not leave, all tasks are one family.
    """
    new = 1 + max((family for family, _ in pools), default=-1)
    if not may_leave:
        return summed((0, pool) for pool in pools.values()), new
    sharing = {family: pool for (family, at_chance), pool in pools.items() if not at_chance}
    largest = sorted(sharing, key=lambda f: (-sharing[f].size, -f))
    return {f: sharing[f] for f in sorted(largest[:most])}, new


# book/plda.ipynb#with-whom-to-share-families
class Choice(NamedTuple):
    """The family that a task shares with, its table of losses, and whether it is at chance level."""

    family: int
    losses: Floats
    at_chance: bool


def choose_family(
    losses: Mapping[Any, Floats],
    families: Collection[int],
    may_leave: bool,
    new: int | None = None,
    counts: Indices | None = None,
    doubt: float = 2.0,
) -> tuple[int, Floats]:
    """The family with the smallest loss, or a new one where sharing is worse beyond noise.

    Parameters
    ----------
    losses : dict
        Family to its losses (n_weights, n_shrinkages, n), row by row; under None those of being
        alone, with one weight. Where a task may leave, the last weights of a family are those of
        being alone.
    families : collection of int
    may_leave : bool
    new : int, optional
        Number of a new family.
    counts : ndarray of shape (c,), optional
        Rows of each class: a new family also where nothing is better than guessing.
    doubt : float, default=2.0
        Standard errors that count as noise.

    Returns
    -------
    family : int
    losses : ndarray of shape (n_weights, n_shrinkages)
        Mean over the rows.
    """
    alone = losses[None]
    new = 1 + max(families, default=-1) if new is None else new
    if not families:
        return new if may_leave else 0, alone.mean(axis=2)
    sharing = {f: losses[f][:-1] if may_leave else losses[f] for f in families}
    tables = {f: part.mean(axis=2) for f, part in sharing.items()}
    best = min(families, key=lambda f: tables[f][_best(tables[f])])
    if may_leave:
        own = alone[_best(alone.mean(axis=2))]
        gain = sharing[best][_best(tables[best])] - own  # of being alone, row by row
        leaves = gain.mean() > doubt * gain.std() / np.sqrt(len(gain))
        if counts is not None:
            leaves |= is_at_chance(min(tables[best].min(), own.mean()), counts)
        if leaves:
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

    @property
    def may_leave(self) -> bool:
        """Whether a task may share with nobody: the last weights are those of being alone."""
        return len(self.own_weights) > 1

    def validate(
        self,
        visit: Visit,
        families: Mapping[int, TaskSums],
        new: int,
        rng: np.random.Generator,
    ) -> Choice:
        """With whom a visited task shares, and its losses for each own weight and shrinkage."""
        if len(self.own_weights) == len(self.shrinkages) == 1:
            return Choice(family=0, losses=np.zeros((1, 1)), at_chance=False)
        folds = folds_of(visit, self.n_folds, rng)
        if self.may_leave:
            families = {
                f: group for f, group in families.items() if self._fits(folds, visit.labels, group)
            }
        losses = self._fold_losses(folds, families)
        counts = np.bincount(np.concatenate([fold.held_codes for fold in folds]))
        counts = counts[counts > 0]
        doubt = 1.0 if self.shared_labels else 2.0
        family, table = choose_family(losses, families, self.may_leave, new, counts, doubt)
        return Choice(family, table, at_chance=is_at_chance(float(table.min()), counts))

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
        shares = any(weights != (1.0, 1.0) for weights in self.own_weights)
        found: dict[int | None, list[list[Floats]]] = {f: [] for f in (None, *families)}
        for fold in folds:
            losses = partial(_row_losses, fold, self.shrinkages, self.regularization)
            own = fold.own.scatters
            alone = losses(own)
            found[None].append([alone])
            for number, family in families.items():
                shared = family.scatters(fold.own) if shares else own
                tables = []
                for weights in self.own_weights:
                    nothing_shared = weights == (1.0, 1.0)
                    mixed = alone if nothing_shared else losses(mix_scatters(weights, own, shared))
                    tables.append(mixed)
                found[number].append(tables)
        return {f: np.concatenate(tables, axis=2) for f, tables in found.items()}

    def settings(self, state: PLDAState, memory: TaskMemory) -> tuple[_Pair, _Shrinkage]:
        """Own weights and shrinkage of a task: its family's, unless others are clearly better."""
        shape = len(self.own_weights), len(self.shrinkages)
        if shape == (1, 1):
            return self.own_weights[0], self.shrinkages[0]
        own = loss_table(memory.losses, shape)
        common = _best(state.family_losses(memory.family, shape))
        best = _best(own)
        noise = np.sqrt((own[common] + own[best]) / min(memory.n_rows, MOST_RANKED))
        i, j = best if own[common] - own[best] > noise else common
        return self.own_weights[i], self.shrinkages[j]
