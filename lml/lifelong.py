# Generated from book/lifelong.ipynb by tools/tangle.py: edit the chapter.
"""The lifelong learner: tasks one after another, one dictionary, one small code a task.

`LifelongMetricLearner` runs a base metric learner on each new task, codes its metric in
the shared dictionary and moves the dictionary, without any row of an earlier task.
"""

import contextlib
import copy
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import joblib
import numpy as np

from lml.base import COMMON_FIELDS, BaseLifelongLearner, LearnerState
from lml.dictionary import (
    DictionaryStep,
    GradientMemory,
    MovingCodes,
    descend,
    keep_codes,
    step_objective,
)
from lml.initialization import initial_dictionary
from lml.metrics import FactoredMetric, fitted_metric, unfitted_learner
from lml.oasis import OASIS
from lml.penalties import OffDiagonalL1, soft_threshold
from lml.scml import SCML
from lml.single_task import TaskMetricsMixin
from lml.state import (
    ArrayField,
    Field,
    OptionalField,
    RecordField,
    TableField,
    ValueField,
    expect,
)
from lml.triplets import draw_triplets, hinge_with_gradient, neighbor_triplets
from lml.utils.linalg import is_symmetric, times_transpose
from lml.utils.typing import Floats, Indices, Matrix, Seed
from lml.utils.validation import (
    Rule,
    check_parameters,
    flag,
    one_of,
    optional,
    real,
    seed,
    whole,
)

__all__ = ["LifelongMetricLearner", "TaskRecord", "residual_step"]


# book/lifelong.ipynb#the-class
@dataclass(frozen=True)
class TaskRecord:
    """What a `LifelongMetricLearner` notes about a task; it holds no rows.

    Attributes
    ----------
    number : int
        Position in the order of first appearance, from 0.
    classes : tuple
        Labels, in the order in which they were first seen.
    n_rows, n_visits : int
        Rows and calls of ``partial_fit`` over all visits.
    target_norm : float
        Frobenius norm of the last target.
    captured : float
        Share of its squared norm that the dictionary holds, in [0, 1]; 0 of a target of zero.
    certificate : float
        Distance of the code from optimality; rounding for orthonormal rows.
    off_diagonal : float
        Share of the off-diagonal entries of the code that are not zero.
    loss_before, loss_after : float
        Mean hinge of the coded metric before and after the dictionary moved.

    Notes
    -----
    Derived in chapter 15 (lifelong), eqs. (lifelong-captured) and (lifelong-average).
    """

    number: int
    classes: tuple[Any, ...]
    n_rows: int
    n_visits: int
    target_norm: float
    captured: float
    certificate: float
    off_diagonal: float
    loss_before: float
    loss_after: float


# book/lifelong.ipynb#the-class
@dataclass(frozen=True, eq=False, kw_only=True)
class _State(LearnerState):
    """What a `LifelongMetricLearner` knows after some visits; it never changes."""

    dictionary: Any = None  # Floats of shape (d, D) after the first task
    codes: MovingCodes = field(default_factory=MovingCodes)
    memory: GradientMemory | None = None
    metric_type: Any = None  # "similarity" or "distance" after the first task


# book/lifelong.ipynb#the-class
_BASE_LEARNERS = {"oasis": OASIS, "scml": SCML}
_BASE_LEARNER = Rule(
    lambda value: not isinstance(value, str) or value in _BASE_LEARNERS,
    f"one of {tuple(_BASE_LEARNERS)} or a metric learner",
)


class LifelongMetricLearner(TaskMetricsMixin, BaseLifelongLearner[_State]):
    """Metrics of tasks that arrive one after another, M_t = L' W_t L, without old rows.

    Parameters
    ----------
    base_learner : {"oasis", "scml"} or estimator, default="oasis"
        Learns the target metric of each task: an estimator that has ``metric_`` (a
        FactoredMetric, or an array of shape (D, D)) and ``metric_type`` after ``fit``. An
        instance is cloned; it is given class numbers for labels.
    n_components : int, default=40
        Rows d of the dictionary; more than the number of features are clipped to it.
    code_penalty : float, default=0.0
        Threshold of the off-diagonal entries of a code, in the units of the metric.
    dictionary_penalty : float, default=0.0
        The paper's gamma. With orthonormal rows it acts on the length of the steps only.
    dictionary_loss : {"auto", "hinge", "residual"}, default="auto"
        What the dictionary's steps lower: the mean hinge of the new task (needs a gradient
        memory for the old ones), or the distance of the tasks' metrics to what the dictionary
        can represent (needs none). "auto" is the hinge for a similarity, the residual for a
        distance.
    dictionary_steps : int or None, default=None
        Most steps of the dictionary a visit; 0 keeps the first dictionary. None is 5 for the
        hinge, which forgets when it runs longer, and 20 for the residual.
    dictionary_rate : float, default=0.05
        Length of the first step relative to the norm of the dictionary.
    old_tasks : {"metrics", "codes"}, default="metrics"
        What stays when the dictionary moves: the metrics of the other tasks (they are
        coded again) or their codes (the paper; the metrics change).
    max_old_tasks : int or None, default=32
        How many old tasks a visit takes into account at most, those that have waited longest:
        in the dictionary's steps, in the mean of a warm start, and in bringing codes up to date
        (the others follow when they are read, or when it is their turn). None takes all of them;
        every visit then costs more than the one before.
    gradient_memory : int, default=0
        Rank of the hinge gradient kept for each task (only with the hinge); 0 keeps none.
    revisit : {"average", "step", "warm"}, default="average"
        How a task that comes back is learned: a row-weighted average of its metric and the
        new target; one passive-aggressive step; or the base learner started from the
        task's metric (needs a parameter ``init``).
    warm_start_from_dictionary : bool, default=False
        Start the base learner from the mean of the other tasks' metrics, at the first visit
        of a task and at those of ``revisit="average"``. Needs a base learner with a parameter
        ``init``, the metric that it starts from, such as OASIS.
    n_triplets : int, default=3000
        Triplets sampled for the gradient of a similarity (a distance takes nearest ones).
    n_jobs : int or None, default=None
        Base learners that `fit` runs side by side, in joblib's sense: None is one, or what a
        surrounding `joblib.parallel_config` says. The result does not depend on it.
    random_state : int, RandomState or None, default=None
        Root of the seeds of all tasks.

    Attributes
    ----------
    dictionary_ : ndarray of shape (n_components, n_features)
        Orthonormal rows.
    codes_ : dict
        Task to its code, (n_components, n_components). Codes of a similarity need not be
        symmetric.
    tasks_ : dict
        Task to its `TaskRecord`, in the order of first appearance.
    memory_ : lml.dictionary.GradientMemory or None
        Low-rank gradients of the tasks, when `gradient_memory` is not 0.
    metric_type_ : {"similarity", "distance"}
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns, when the first task was a data frame; the later ones must have the
        same.

    Notes
    -----
    Derived in chapter 15 (lifelong), eqs. (lifelong-code), (lifelong-step) and (lifelong-recode).
    Paper: section IV, Algorithm 2. No rows are kept; k-NN keeps its own, see
    `lml.evaluation.LifelongKNeighborsClassifier`. What is outside the row space of the
    dictionary is lost; with n_components = n_features and code_penalty = 0 each metric is the base
    learner's.

    Any number of threads may read while one learns: an answer is that of the state before the
    visit or after it. Visits by several threads come one after another. A visit that fails or
    is interrupted changes nothing. `save` and `load` keep a learner in a file.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> learner = LifelongMetricLearner(n_components=20, random_state=0)
    >>> for task, digits in {"low": (0, 1), "high": (8, 9)}.items():
    ...     rows = (y == digits[0]) | (y == digits[1])
    ...     learner = learner.partial_fit(X[rows] / 16, y[rows], task=task)
    >>> learner.transform(X[:3] / 16, task="low").shape
    (3, 20)
    """

    _state_class = _State
    _parameter_rules: ClassVar[dict[str, Rule]] = {
        "base_learner": _BASE_LEARNER,
        "n_components": whole(1),
        "code_penalty": real(0),
        "dictionary_penalty": real(0),
        "dictionary_loss": one_of("auto", "hinge", "residual"),
        "dictionary_steps": optional(whole(0)),
        "dictionary_rate": real(0),
        "old_tasks": one_of("metrics", "codes"),
        "max_old_tasks": optional(whole(1)),
        "gradient_memory": whole(0),
        "revisit": one_of("average", "step", "warm"),
        "warm_start_from_dictionary": flag(),
        "n_triplets": whole(1),
        "random_state": seed(),
    }
    _kind = "LifelongMetricLearner"

    def __init__(
        self,
        base_learner: Any = "oasis",
        n_components: int = 40,
        code_penalty: float = 0.0,
        *,
        dictionary_penalty: float = 0.0,
        dictionary_loss: str = "auto",
        dictionary_steps: int | None = None,
        dictionary_rate: float = 0.05,
        old_tasks: str = "metrics",
        max_old_tasks: int | None = 32,
        gradient_memory: int = 0,
        revisit: str = "average",
        warm_start_from_dictionary: bool = False,
        n_triplets: int = 3000,
        n_jobs: int | None = None,
        random_state: Seed = None,
    ) -> None:
        self.base_learner = base_learner
        self.n_components = n_components
        self.code_penalty = code_penalty
        self.dictionary_penalty = dictionary_penalty
        self.dictionary_loss = dictionary_loss
        self.dictionary_steps = dictionary_steps
        self.dictionary_rate = dictionary_rate
        self.old_tasks = old_tasks
        self.max_old_tasks = max_old_tasks
        self.gradient_memory = gradient_memory
        self.revisit = revisit
        self.warm_start_from_dictionary = warm_start_from_dictionary
        self.n_triplets = n_triplets
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _learn_task(
        self,
        state: _State,
        X: Matrix,
        y: Indices,
        labels: list[Any],
        task: Hashable,
        learned: tuple[FactoredMetric, str] | None = None,
    ) -> _State:
        """The state after a visit; `learned` is what the base learner gives, where it is known."""
        base_seed, triplet_seed, start_seed = map(int, state.seeds(task).generate_state(3))
        target, kind = self._target(state, X, y, task, base_seed, learned)
        triplets = self._triplets(X, y, kind, triplet_seed)

        # the dictionary moves, and the codes whose turn it is follow; the others wait
        start = state.dictionary
        if start is None:
            start = initial_dictionary(X, y, self.n_components, random_state=start_seed)
        L, codes, follow = self._move_dictionary(state, start, target, X, triplets, kind, task)

        # the code in the moved dictionary, and how well its metric ranks the triplets
        before = FactoredMetric._trusted(0.0, start, self._code(start, target, kind))
        loss_before = hinge_with_gradient(before, X, triplets, kind)[0]
        code = self._code(L, target, kind)
        after = FactoredMetric._trusted(0.0, L, code)
        loss_after, gradient = hinge_with_gradient(after, X, triplets, kind)

        B = target._bilinear(L, L)
        known = state.tasks.get(task)
        record = TaskRecord(
            number=state.number(task),
            classes=tuple(dict.fromkeys((*(known.classes if known else ()), *labels))),
            n_rows=X.shape[0] + (known.n_rows if known else 0),
            n_visits=1 + (known.n_visits if known else 0),
            certificate=OffDiagonalL1(self.code_penalty).certificate(code, code - B),
            loss_before=loss_before,
            loss_after=loss_after,
            **_diagnostics(target, B, code),
        )
        memory = None
        if self.gradient_memory and self._lowers(kind) == "hinge":
            memory = GradientMemory(self.gradient_memory)
            if state.memory is not None:
                memory = _copied(state.memory)
            memory.store(task, gradient)
        return replace(
            state,
            dictionary=L,
            codes=state.codes.after({**codes, task: code}, follow),
            tasks={**state.tasks, task: record},
            memory=memory,
            metric_type=kind,
        )

    def _target(
        self, state: _State, X: Matrix, y: Indices, task: Hashable, seed: int, learned: Any
    ) -> tuple[FactoredMetric, str]:
        """The target metric of a visit and its type, eqs. (lifelong-target) and after."""
        known = state.tasks.get(task)
        if known and self.revisit == "step":
            # one passive-aggressive step on the mean hinge, eq. (lifelong-pa)
            kind = state.metric_type
            metric = FactoredMetric._trusted(0.0, state.dictionary, state.codes[task])
            triplets = self._triplets(X, y, kind, seed)
            loss, G = hinge_with_gradient(metric, X, triplets, kind)
            size = G.inner(G)  # no orthogonalisation of the rows: they may be sparse
            return (metric if size <= 0.0 else metric - (loss / size) * G), kind
        if learned is None:
            learned = fitted_metric(self._base_learner(state, task, seed), "base_learner", X, y)
        target, kind = learned
        if kind != (state.metric_type or kind):
            raise ValueError(
                f"the base learner gives a {kind}, the earlier tasks have a"
                f" {state.metric_type}: use one kind in one learner"
            )
        if known and self.revisit == "average":  # by samples, eq. (lifelong-average)
            old = FactoredMetric._trusted(0.0, state.dictionary, state.codes[task])
            weight = known.n_rows / (known.n_rows + len(y))
            target = weight * old + (1 - weight) * target
        return target, kind

    def _triplets(self, X: Matrix, y: Indices, kind: str, seed: int) -> Indices:
        """Triplets for a gradient: sampled, or nearest for a distance."""
        if kind == "similarity":
            return draw_triplets(y, self.n_triplets, seed)
        return neighbor_triplets(X, y)

    def _check_parameters(self) -> None:
        """Refuse parameters that cannot be used, those of the base learner included."""
        super()._check_parameters()
        learner = self._unfitted_base()
        if hasattr(learner, "_parameter_rules"):
            check_parameters(learner)

    def _unfitted_base(self) -> Any:
        """The base learner, unfitted, by its name or as a clone."""
        if isinstance(self.base_learner, str):
            return _BASE_LEARNERS[self.base_learner]()
        return unfitted_learner(self.base_learner, "base_learner")

    def _base_learner(self, state: _State, task: Hashable, seed: int) -> Any:
        """An unfitted base learner of a visit, seeded and perhaps warm-started."""
        learner = self._unfitted_base()
        if "random_state" in learner.get_params():
            learner.set_params(random_state=seed)
        again = self.revisit == "warm" and task in state.codes
        if not again and not self.warm_start_from_dictionary:
            return learner
        if "init" not in learner.get_params():
            asked = "revisit='warm'" if again else "warm_start_from_dictionary=True"
            other = "revisit='average'" if again else "False"
            raise ValueError(
                f"{asked} needs a base learner with a parameter init, the metric that it"
                f" starts from, which {type(learner).__name__} lacks: use {other}"
            )
        if again:
            codes = [state.codes[task]]
        else:
            codes = list(state.codes.waiting(self.max_old_tasks, [task]).values())
        if codes:  # without another task the start is cold
            learner.set_params(init=_with_identity_outside(state.dictionary, codes))
        return learner

    def _code(self, L: Floats, target: FactoredMetric, kind: str) -> Floats:
        """The minimiser of the coding problem for orthonormal rows, eq. (lifelong-code)."""
        B = target._bilinear(L, L)
        return soft_threshold(B if kind == "similarity" else (B + B.T) / 2, self.code_penalty)

    def _lowers(self, kind: str) -> str:
        """What the dictionary's steps lower for a metric type."""
        automatic = "hinge" if kind == "similarity" else "residual"
        return automatic if self.dictionary_loss == "auto" else self.dictionary_loss

    def _n_steps(self, L: Floats, kind: str) -> int:
        """Steps that a dictionary may take; none where every metric has an exact code."""
        exact = len(L) == L.shape[1] and self.code_penalty == 0
        if exact or self.dictionary_rate == 0:
            return 0
        automatic = 5 if self._lowers(kind) == "hinge" else 20
        return automatic if self.dictionary_steps is None else self.dictionary_steps

    def _move_dictionary(
        self,
        state: _State,
        start: Floats,
        target: FactoredMetric,
        X: Matrix,
        triplets: Indices,
        kind: str,
        task: Hashable,
    ) -> tuple[Floats, dict[Any, Floats], Floats | None]:
        """The dictionary after its steps, the codes in it whose turn it is, and S of the move."""
        old = state.codes.waiting(self.max_old_tasks, [task])
        L = start
        codes = old
        change = np.eye(len(start))
        follow = None
        gamma = self.dictionary_penalty
        longest = self.dictionary_rate
        n_steps = self._n_steps(start, kind)
        hinge = self._lowers(kind) == "hinge"
        if not hinge and n_steps:
            metrics, sizes = _known_metrics(start, old, target)
            new = next(reversed(metrics))  # the task of this visit
        for _ in range(n_steps):
            code = self._code(L, target, kind)
            if hinge:  # of the new task, with the gradients that are remembered of the others
                gradients = state.memory.gradients if state.memory else {}
                remembered = {u: C for u, C in codes.items() if u in gradients}
                objective = step_objective(code, X, triplets, kind, state.memory, remembered, gamma)
                step = descend(objective, L, longest)
            else:
                step = residual_step(
                    L, {**codes, new: code}, metrics, gamma, max_move=longest, sizes=sizes
                )
            if step.step_size == 0.0:
                break
            # begin the next step at twice the length that was accepted
            longest = min(self.dictionary_rate, 2 * longest / 2**step.n_backtracks)
            L = step.dictionary
            # old codes follow from where they stood at the start: one projection, not several
            change = change @ step.change
            follow = start @ L.T if self.old_tasks == "metrics" else change
            codes = {u: keep_codes(C, follow) for u, C in old.items()}
        return L, codes, follow

    def _forget_task(self, state: _State, task: Hashable) -> _State:
        """The state without a task's code, gradient and record; the dictionary stays."""
        tasks = {u: record for u, record in state.tasks.items() if u != task}
        memory = _copied(state.memory)
        if memory is not None:
            memory.gradients.pop(task, None)
            memory.errors.pop(task, None)
        return replace(state, codes=state.codes.without(task), tasks=tasks, memory=memory)

    def task_metric(self, task: Hashable) -> FactoredMetric:
        """The metric L' W_t L of a task, a FactoredMetric (not projected onto PSD)."""
        state = self._known_state(task)
        return FactoredMetric._trusted(0.0, state.dictionary, state.codes[task])

    @property
    def dictionary_(self) -> Floats:
        """L, orthonormal rows, (n_components, n_features)."""
        return self._learned_state("dictionary_").dictionary

    @property
    def codes_(self) -> dict[Any, Floats]:
        """Task to its code, (n_components, n_components); a copy of the table."""
        return self._learned_state("codes_").codes.waiting()

    @property
    def memory_(self) -> GradientMemory | None:
        """Gradients of the tasks, a copy of the GradientMemory, or None."""
        return _copied(self._learned_state("memory_").memory)

    @property
    def metric_type_(self) -> str:
        """What the metrics are: "similarity" or "distance"."""
        return self._learned_state("metric_type_").metric_type

    @property
    def state_parts_(self) -> dict[str, int]:
        """Bytes kept, by part: dictionary, codes, moves that codes wait for, gradients, records."""
        state = self._learned_state("state")
        records = state.tasks.values()
        return {
            "dictionary": state.dictionary.nbytes,
            "codes": state.codes.nbytes,
            "moves": state.codes.moves_nbytes,
            "gradients": 0 if state.memory is None else state.memory.nbytes,
            "records": sum(8 * (9 + len(record.classes)) for record in records),
        }

    def _learn_tasks(
        self, state: _State, visits: Iterable[tuple[Matrix, Indices, list[Any], Hashable]]
    ) -> _State:
        """The state after visits of new tasks; base learners run side by side where they can."""
        if self.warm_start_from_dictionary or joblib.effective_n_jobs(self.n_jobs) == 1:
            return super()._learn_tasks(state, visits)
        table = list(visits)
        calls = []
        for number, (X, y, _, task) in enumerate(table):
            sequence = np.random.SeedSequence([state.root, number, 0])  # as in the task's turn
            learner = self._base_learner(state, task, int(sequence.generate_state(3)[0]))
            calls.append(joblib.delayed(fitted_metric)(learner, "base_learner", X, y))
        results = joblib.Parallel(self.n_jobs, return_as="generator")(calls)
        with contextlib.closing(results):
            for (X, y, labels, task), learned in zip(table, results):
                state = self._learn_task(state, X, y, labels, task, learned)
        return state

    @classmethod
    def _fields(cls) -> Field:
        """The table of the fields that are stored."""
        return RecordField(
            _restored_state,
            {
                **COMMON_FIELDS,
                "dictionary": ArrayField(("d", "D")),
                "tasks": TableField(_RECORD),
                "codes": ArrayField((None, "d", "d")),
                "queue": ArrayField((None, 2), int, Rule(lambda q: bool((q >= 0).all()), "counts")),
                "moves": ArrayField((None, "d", "d")),
                "memory": OptionalField(_MEMORY),
                "metric_type": ValueField(one_of("similarity", "distance")),
            },
            _stored_parts,
        )


# book/lifelong.ipynb#the-class
def _diagnostics(target: FactoredMetric, B: Floats, code: Floats) -> dict[str, float]:
    """Norm of a target, the share of it in the dictionary, filled off-diagonal entries."""
    norm = np.sqrt(max(target.inner(target), 0.0))
    d = len(code)
    inside = float(np.linalg.norm(B) / norm) if norm > 0 else 0.0  # a target of zero holds nothing
    off = np.count_nonzero(code) - np.count_nonzero(np.diag(code))
    return {
        "target_norm": float(norm),
        "captured": min(inside, 1.0) ** 2,
        "off_diagonal": float(off / max(d * (d - 1), 1)),
    }


# book/lifelong.ipynb#the-class
def _with_identity_outside(L: Floats, codes: list[Floats]) -> FactoredMetric:
    """I + L'(mean code - I)L: the codes' mean in the dictionary, the identity outside."""
    return FactoredMetric._trusted(1.0, L, np.mean(codes, axis=0) - np.eye(len(L)))


# book/lifelong.ipynb#the-class
def _squared_norms(metrics: Mapping[Any, FactoredMetric]) -> dict[Any, float]:
    return {u: max(M.inner(M), float(np.finfo(float).tiny)) for u, M in metrics.items()}


def _both_symmetric(W: Floats, M: FactoredMetric) -> bool:
    """Whether a code and its metric are symmetric; a sparse core counts as not."""
    dense = isinstance(M.core, np.ndarray)
    return is_symmetric(W) and dense and (M.core.ndim == 1 or is_symmetric(M.core))


def _products(
    A: Floats, W: Floats, M: FactoredMetric, P: Floats, symmetric: bool
) -> tuple[Floats, Floats, Floats, Floats, bool]:
    """A W, W A, P C and W P of a task whose code and metric are symmetric, or are not."""
    AW = A @ W
    return AW, AW.T if symmetric else W @ A, M._by_core(P), W @ P, symmetric


# book/lifelong.ipynb#the-class
def _known_metrics(
    start: Floats, old: Mapping[Any, Floats], target: FactoredMetric
) -> tuple[dict[Any, FactoredMetric], dict[Any, float]]:
    """What does not change in a visit: metrics, the new one last, and their squared norms."""
    metrics = {}
    rows = start
    for u, C in old.items():
        metrics[u] = FactoredMetric(0.0, rows, C)
        rows = metrics[u].factor  # one object for all old tasks
    metrics[object()] = target  # a key that no task has
    return metrics, _squared_norms(metrics)


# book/lifelong.ipynb#the-class
def _residual_objective(
    L: Floats,
    codes: Mapping[Any, Floats],
    metrics: Mapping[Any, FactoredMetric],
    sizes: Mapping[Any, float],
    dictionary_penalty: float,
    symmetric: Mapping[Any, bool] | None = None,
) -> tuple[float, Callable[[], Floats]]:
    """Mean relative residual of metrics coded in L, plus gamma ||L||^2; a function for its slope.

    Metrics that share one factor F, as those of all old tasks do, share the product L F'.
    """
    A = L @ L.T
    value = dictionary_penalty * np.sum(L * L)
    factors = {id(M.factor): M.factor for M in metrics.values()}
    images = {key: times_transpose(L, F) for key, F in factors.items()}  # P = L F'
    weights = {u: 1 / (sizes[u] * len(codes)) for u in codes}
    products = {}
    both = symmetric or {u: _both_symmetric(W, metrics[u]) for u, W in codes.items()}
    for u, W in codes.items():
        M = metrics[u]
        products[u] = AW, WA, PC, WP, _ = _products(A, W, M, images[id(M.factor)], both[u])
        inner = np.vdot(AW, WA) - 2 * (np.vdot(PC, WP) + M.alpha * np.vdot(A, W))
        value += 0.5 * weights[u] * (inner + sizes[u])
    parts = (factors, images, products, weights)
    return float(value), lambda: _residual_slope(L, codes, metrics, dictionary_penalty, *parts)


# book/lifelong.ipynb#the-class
def _residual_slope(
    L: Floats,
    codes: Mapping[Any, Floats],
    metrics: Mapping[Any, FactoredMetric],
    dictionary_penalty: float,
    factors: Mapping[int, Matrix],
    images: Mapping[int, Floats],
    products: Mapping[Any, Any],
    weights: Mapping[Any, float],
) -> Floats:
    """Gradient of the residual from the products that its value has made."""
    own = 2 * dictionary_penalty * np.eye(len(L))
    pulls = {key: np.zeros_like(P) for key, P in images.items()}
    for u, W in codes.items():
        M = metrics[u]
        (AW, WA, PC, WP, symmetric) = products[u]
        if symmetric:
            turn = 2 * (W @ AW)
            pull = 2 * (W @ PC)
        else:
            WPC = WP * M.core if M.core.ndim == 1 else WP @ M.core.T
            turn = WA @ W.T + W.T @ AW
            pull = WPC + W.T @ PC
        own += weights[u] * (turn - M.alpha * (W + W.T))
        pulls[id(M.factor)] += weights[u] * pull
    return own @ L - sum(pulls[key] @ F for key, F in factors.items())


# book/lifelong.ipynb#the-class
def residual_step(
    dictionary: Floats,
    codes: Mapping[Any, Floats],
    metrics: Mapping[Any, FactoredMetric],
    dictionary_penalty: float = 0.0,
    max_move: float = 0.05,
    sizes: Mapping[Any, float] | None = None,
) -> DictionaryStep:
    """One step of the dictionary that lowers the relative residual of coded metrics.

    Parameters
    ----------
    dictionary : ndarray of shape (d, D)
        L, with orthonormal rows.
    codes, metrics : dict
        Tasks to codes W (d, d), and to the FactoredMetrics they stand for.
    dictionary_penalty : float, default=0.0
        gamma.
    max_move : float, default=0.05
        Longest trial step, as a fraction of ||L||_F.
    sizes : dict, optional
        Tasks to squared norms ||M||_F^2 of their metrics, where these are known.

    Returns
    -------
    lml.dictionary.DictionaryStep

    Notes
    -----
    Derived in chapter 15 (lifelong), eq. (lifelong-residual).
    With A = L L' and B = L M L' the squared distance is <A W A - 2 B, W> + ||M||^2,
    and the gradient is (W A W' + W' A W) L - W L M' - W' L M, over ||M||^2.
    Paper: section IV, eq. 10, as a function of L_0.
    """
    sizes = sizes or _squared_norms({u: metrics[u] for u in codes})
    symmetric = {u: _both_symmetric(W, metrics[u]) for u, W in codes.items()}

    def objective(L: Floats) -> tuple[float, Callable[[], Floats]]:
        return _residual_objective(L, codes, metrics, sizes, dictionary_penalty, symmetric)

    return descend(objective, dictionary, max_move)


# book/lifelong.ipynb#the-class
def _copied(memory: Any) -> Any:
    """A gradient memory with tables of its own; the gradients never change."""
    twin = copy.copy(memory)
    if memory is not None:
        twin.gradients = dict(memory.gradients)
        twin.errors = dict(memory.errors)
    return twin


# book/lifelong.ipynb#the-class
def _stored_parts(state: _State) -> dict[str, Any]:
    """What is stored of a state: its fields, with the table of codes taken apart."""
    d = len(state.dictionary)
    return {
        **vars(state),
        "codes": np.reshape(state.codes.stored, (-1, d, d)),
        "queue": np.reshape(state.codes.queue, (-1, 2)),
        "moves": np.reshape(state.codes.moves, (-1, d, d)),
    }


# book/lifelong.ipynb#the-class
def _restored_state(
    *, dictionary: Floats, codes: Floats, queue: Indices, moves: Floats, **parts: Any
) -> _State:
    """The state that `_stored_parts` took apart, or an error that says what does not belong."""
    tasks = parts["tasks"]
    d, D = dictionary.shape
    expect(1 <= d <= D, "shape of dictionary", (d, D), "(d, D) with 1 <= d <= D")
    expect(len(codes) == len(tasks), "number of codes", len(codes), len(tasks))
    numbers = [record.number for record in tasks.values()]
    expect(sorted(set(numbers)) == numbers, "numbers of the tasks", numbers, "different and rising")
    memory = parts["memory"]
    if memory is not None:
        expect(set(memory.gradients) <= set(tasks), "tasks of memory", memory.gradients, "known")
    # of each task, longest waiting first: its place, and the first move that it waits for
    places, first = queue.T.tolist()
    expect(sorted(places) == list(range(len(tasks))), "places of queue", places, "each task once")
    fits = first == sorted(first) and (not first or first[-1] <= first[0] + len(moves))
    expect(fits, "moves of queue", first, f"rising, over at most {len(moves)} moves")
    table = {task: code.copy() for task, code in zip(tasks, codes)}
    moving = MovingCodes(table)
    if len(moves) and tasks:
        moving = MovingCodes.restored(table, queue.tolist(), moves)
    return _State(dictionary=dictionary, codes=moving, **parts)


# book/lifelong.ipynb#the-class
def _are_labels(classes: Any) -> bool:
    return type(classes) is tuple and len(set(classes)) == len(classes)


_RECORD = RecordField(
    TaskRecord,
    {
        "number": ValueField(whole(0)),
        "classes": ValueField(Rule(_are_labels, "a tuple of different labels")),
        "n_rows": ValueField(whole(1)),
        "n_visits": ValueField(whole(1)),
        **{name: ValueField(real(0)) for name in ("target_norm", "certificate")},
        **{name: ValueField(real(0, 1)) for name in ("captured", "off_diagonal")},
        **{name: ValueField(real(0)) for name in ("loss_before", "loss_after")},
    },
)


# book/lifelong.ipynb#the-class
def _restored_memory(rank: int, gradients: Mapping[Any, Any]) -> GradientMemory:
    """The gradient memory of tasks with a metric and an error each."""
    memory = GradientMemory(rank)
    for task, part in gradients.items():
        shape = part["metric"].factor.shape
        expect(len(part["metric"].factor) <= rank, f"gradient of {task!r}", shape, f"rank {rank}")
        memory.gradients[task] = part["metric"]
        memory.errors[task] = part["error"]
    return memory


_GRADIENT: dict[str, Field] = {
    "metric": RecordField(
        FactoredMetric,
        {
            "alpha": ValueField(real()),
            "factor": ArrayField((None, "D")),
            "core": ArrayField((None,)),
        },
    ),
    "error": ValueField(real(0)),
}
_MEMORY = RecordField(
    _restored_memory,
    {"rank": ValueField(whole(1)), "gradients": TableField(RecordField(dict, _GRADIENT, dict))},
    lambda memory: {
        "rank": memory.rank,
        "gradients": {
            task: {"metric": G, "error": memory.errors[task]}
            for task, G in memory.gradients.items()
        },
    },
)
