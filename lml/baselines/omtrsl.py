# Generated from book/baselines/omtrsl.ipynb by tools/tangle.py: edit the chapter.
"""Online multi-task similarities: OASIS for all tasks at once, coupled by a relation matrix.

Every triplet of one task moves the matrices of all tasks, by a passive-aggressive step in the
norm of the relation matrix. Coupling 0 is OASIS for each task alone, an infinite coupling is
one OASIS on the pooled triplets.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg, sparse
from scipy.linalg.blas import dger
from sklearn.base import BaseEstimator

from lml.baselines.pooled import JointMetricsMixin, encode_tasks
from lml.metrics import START, FactoredMetric, starting_metric
from lml.triplets import sample_triplets
from lml.utils.linalg import times_transpose
from lml.utils.typing import Floats, Indices, LabelsLike, Matrix, MatrixLike, Seed
from lml.utils.validation import check_matrix, check_parameters, real, seed, whole

__all__ = ["MultiTaskOASIS", "multitask_step", "relation_inverse"]


# book/baselines/omtrsl.ipynb#a-norm-that-couples-tasks
def relation_inverse(n_tasks: int, coupling: float) -> Floats:
    """The inverse of the relation matrix (1 + b) I - b / T 11' of T tasks.

    Parameters
    ----------
    n_tasks : int
        T, at least 1.
    coupling : float
        b, from 0 (independent tasks) to infinity (one task).

    Returns
    -------
    R : ndarray of shape (n_tasks, n_tasks)
        Symmetric, rows sum to 1. Singular when the coupling is infinite.

    Notes
    -----
    Derived in chapter 29 (baselines/omtrsl), eqs. (omtrsl-relation) and (omtrsl-inverse). Not in
    the paper.

    Examples
    --------
    >>> relation_inverse(2, 1.0).tolist()
    [[0.75, 0.25], [0.25, 0.75]]
    """
    shared = 1.0 if coupling == np.inf else coupling / (1.0 + coupling)
    return (1.0 - shared) * np.eye(n_tasks) + shared / n_tasks


# book/baselines/omtrsl.ipynb#the-step-from-its-kkt-conditions
def multitask_step(
    W: Floats,
    task: int,
    anchor: Floats,
    positive: Floats,
    negative: Floats,
    aggressiveness: float,
    relation: Floats,
) -> tuple[Floats, float]:
    """One step for all tasks: the nearest matrices that pay little hinge of one task.

    Parameters
    ----------
    W : ndarray of shape (T, D, D)
        The current matrices; not modified.
    task : int
        Number of the task that the triplet belongs to.
    anchor, positive, negative : ndarray of shape (D,)
        The samples of the triplet.
    aggressiveness : float
        The cap C > 0 of the multiplier.
    relation : ndarray of shape (T, T)
        The inverse of the relation matrix.

    Returns
    -------
    W : ndarray of shape (T, D, D)
        The next matrices (`W` itself when the triplet has its margin).
    step : float
        The multiplier tau, in [0, C].

    Notes
    -----
    Derived in chapter 29 (baselines/omtrsl), eqs. (omtrsl-direction) and (omtrsl-update). Not in
    the paper.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.eye(2)[[0, 0, 1]]
    >>> W, step = multitask_step(np.zeros((2, 2, 2)), 0, *rows, 10.0, relation_inverse(2, 1.0))
    >>> W[:, 0, 0].round(3).tolist(), round(step, 3)
    ([0.5, 0.167], 0.667)
    """
    q = positive - negative
    loss = 1.0 - anchor @ W[task] @ q
    size = relation[task, task] * (anchor @ anchor) * (q @ q)
    if loss <= 0 or size == 0:
        return W, 0.0
    step = float(min(aggressiveness, loss / size))
    return W + step * np.multiply.outer(relation[:, task], np.outer(anchor, q)), step


# book/baselines/omtrsl.ipynb#the-stream-without-coupling-and-with-infinite-coupling
def _stream(codes: list[Indices], n_steps: int, random_state: Seed) -> tuple[Indices, Indices]:
    """Triplets in turn: the task of each step, and its rows numbered through all tasks."""
    sizes = [len(own) for own in codes]
    starts = np.cumsum(sizes) - sizes
    drawn = [
        start + sample_triplets(own, n_steps, random_state) for start, own in zip(starts, codes)
    ]
    owners = np.tile(np.arange(len(codes)), n_steps)
    return owners, np.stack(drawn, axis=1).reshape(-1, 3)


# book/baselines/omtrsl.ipynb#two-fast-forms
def _dense_form(
    X: Floats,
    owners: Indices,
    triplets: Indices,
    aggressiveness: float,
    relation: Floats,
    W: Floats,
) -> tuple[Floats, Floats]:
    """Run the steps on W (T, D, D) in place; returns the multipliers and the hinges."""
    norms = np.einsum("ij,ij->i", X, X)
    steps, losses = np.zeros((2, len(triplets)))
    for n, (t, (i, j, k)) in enumerate(zip(owners, triplets)):
        q = X[j] - X[k]
        loss = max(0.0, 1.0 - X[i] @ W[t] @ q)
        losses[n] = loss
        size = relation[t, t] * norms[i] * (q @ q)
        if loss > 0 and size > 0:
            steps[n] = min(aggressiveness, loss / size)
            for s in np.flatnonzero(relation[:, t]):
                # W[s] is C-ordered, so its transpose is what Fortran's update changes
                dger(steps[n] * relation[s, t], q, X[i], a=W[s].T, overwrite_a=1)
    return steps, losses


# book/baselines/omtrsl.ipynb#two-fast-forms
def _kernel_form(
    X: Matrix,
    owners: Indices,
    triplets: Indices,
    aggressiveness: float,
    relation: Floats,
    weights: Floats,
    start: FactoredMetric,
) -> tuple[Floats, Floats]:
    """The same steps by scores of samples; weights (T, n) are relation[:, task of sample]."""
    gram = times_transpose(X, X)
    scores = start.bilinear(X, X)
    norms = gram.diagonal()
    PT = np.zeros_like(gram)  # (K gram)'
    steps, losses = np.zeros((2, len(triplets)))
    for n, (t, (i, j, k)) in enumerate(zip(owners, triplets)):
        margin = scores[i, j] - scores[i, k] + (gram[i] * weights[t]) @ (PT[j] - PT[k])
        loss = max(0.0, 1.0 - margin)
        losses[n] = loss
        # ||x_j - x_k||^2 from the Gram matrix; nothing but rounding for equal samples
        spread = norms[j] - 2.0 * gram[j, k] + norms[k]
        size = relation[t, t] * norms[i] * spread
        if loss > 0 and size > 0 and spread > 1e-13 * (norms[j] + norms[k]):
            steps[n] = min(aggressiveness, loss / size)
            PT[:, i] += steps[n] * (gram[j] - gram[k])
    return steps, losses


# book/baselines/omtrsl.ipynb#two-fast-forms
def _kernel_metrics(
    X: Matrix, triplets: Indices, steps: Floats, weights: Floats, start: FactoredMetric
) -> list[FactoredMetric]:
    """The metrics start + X' diag(c_s) K X; dense ones where that takes less memory."""
    active = np.flatnonzero(steps)
    tau = steps[active]
    i, j, k = triplets[active].T
    place = (np.concatenate([i, i]), np.concatenate([j, k]))
    K = sparse.csr_array((np.concatenate([tau, -tau]), place), shape=(X.shape[0],) * 2)
    used = np.unique(np.concatenate(K.nonzero()))
    K = K[used][:, used]
    metrics = []
    for c in weights[:, used]:
        metric = start + FactoredMetric._trusted(0.0, X[used], sparse.diags_array(c) @ K)
        if not sparse.issparse(X) and X.shape[1] <= len(used):
            metric = FactoredMetric.from_dense(metric.to_dense())
        metrics.append(metric)
    return metrics


# book/baselines/omtrsl.ipynb#the-estimator
class MultiTaskOASIS(JointMetricsMixin, BaseEstimator):
    """Similarities of several tasks, learned online and jointly from triplets.

    Parameters
    ----------
    coupling : float, default=1.0
        b >= 0: 0 learns every task alone, `numpy.inf` one similarity for all.
    aggressiveness : float, default=0.1
        Cap C > 0 of the multiplier of a step.
    n_steps : int, default=20000
        Triplets drawn of each task, at least 0.
    relation : array-like of shape (T, T) or None, default=None
        Relation matrix A, symmetric positive definite, tasks in order of first appearance;
        `coupling` is not used then.
    init : FactoredMetric, array-like of shape (D, D) or None, default=None
        The metric all tasks start from; None is the identity.
    random_state : int, RandomState instance or None, default=None
        Source of the triplets. With an int every task draws what `lml.oasis.OASIS` draws
        with that seed.

    Attributes
    ----------
    metrics_ : dict
        Task name to FactoredMetric, none of them symmetric in general.
    tasks_ : list
        Names of the tasks in order of first appearance.
    relation_inverse_ : ndarray of shape (T, T)
    n_updates_ : int
        Steps that changed the metrics.
    loss_curve_ : ndarray
        Mean hinge before the step, over at most 50 blocks of consecutive steps.
    n_features_in_ : int

    Notes
    -----
    Derived in chapter 29 (baselines/omtrsl), eqs. (omtrsl-update), (omtrsl-coefficients) and
    (omtrsl-lazy). Paper: section V-A describes the single-task learner (stOASIS); this joint one is
    not in it.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.random.default_rng(0).normal(size=(12, 3))
    >>> labels, names = [0, 1] * 6, ["a"] * 6 + ["b"] * 6
    >>> learner = MultiTaskOASIS(n_steps=50, random_state=0).fit(rows, labels, tasks=names)
    >>> learner.task_metric("b").shape
    (3, 3)
    """

    metric_type = "similarity"
    _parameter_rules: ClassVar = {
        "coupling": real(0, infinite=True),
        "aggressiveness": real(0, above=True, infinite=True),
        "n_steps": whole(0),
        "init": START,
        "random_state": seed(),
    }

    def __init__(
        self,
        coupling: float = 1.0,
        aggressiveness: float = 0.1,
        n_steps: int = 20_000,
        relation: ArrayLike | None = None,
        init: FactoredMetric | ArrayLike | None = None,
        random_state: Seed = None,
    ) -> None:  # fmt: skip
        self.coupling = coupling
        self.aggressiveness = aggressiveness
        self.n_steps = n_steps
        self.relation = relation
        self.init = init
        self.random_state = random_state

    def fit(self, X: MatrixLike, y: LabelsLike, *, tasks: Iterable[Hashable]) -> Self:
        """Learn the metrics of all tasks.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, D)
            Samples of all tasks; sparse samples are never made dense.
        y : array-like of shape (n,)
            Labels, compared within a task only.
        tasks : array-like of shape (n,)
            Name of the task of each sample.

        Returns
        -------
        MultiTaskOASIS
            The estimator itself.

        Raises
        ------
        ValueError, TypeError
            If a parameter is out of range, X is not finite, or a task allows no triplet.
            Nothing is stored then.
        """
        check_parameters(self)
        names, parts, codes = encode_tasks(X, y, tasks)
        relation = self._relation_inverse(len(names))
        n_features = parts[0].shape[1]
        start = starting_metric(self.init, n_features)
        owners, triplets = _stream(codes, self.n_steps, self.random_state)
        stack = sparse.vstack if sparse.issparse(parts[0]) else np.concatenate
        rows = stack(parts)
        if sparse.issparse(rows) or len(rows) <= max(2000, n_features):
            task_of_row = np.repeat(np.arange(len(names)), [len(own) for own in codes])
            weights = relation[:, task_of_row]
            steps, losses = _kernel_form(
                rows, owners, triplets, self.aggressiveness, relation, weights, start
            )
            metrics = _kernel_metrics(rows, triplets, steps, weights, start)
        else:
            W = np.tile(start.to_dense(), (len(names), 1, 1))
            steps, losses = _dense_form(rows, owners, triplets, self.aggressiveness, relation, W)
            metrics = [FactoredMetric.from_dense(M) for M in W]
        blocks = np.array_split(losses, min(50, len(losses)) or 1)
        loss_curve = np.array([block.mean() for block in blocks if len(block)])
        self._note_columns(X)
        self.tasks_ = names
        self.metrics_ = dict(zip(names, metrics))
        self.relation_inverse_ = relation
        self.n_updates_ = int(np.count_nonzero(steps))
        self.loss_curve_ = loss_curve
        return self

    def _relation_inverse(self, n_tasks: int) -> Floats:
        """The inverse of the relation matrix, given or of the coupling."""
        if self.relation is None:
            return relation_inverse(n_tasks, self.coupling)
        A = check_matrix(self.relation, "relation", accept_sparse=False)
        if A.shape != (n_tasks, n_tasks) or not np.allclose(A, A.T):
            raise ValueError(
                f"relation has shape {A.shape} with {n_tasks} tasks: give a symmetric matrix"
                f" of shape ({n_tasks}, {n_tasks})"
            )
        lowest = linalg.eigvalsh(A)[0]
        if lowest <= 0:
            raise ValueError(
                f"relation has the eigenvalue {lowest:.3g}: give a positive definite matrix"
            )
        return linalg.inv((A + A.T) / 2)
