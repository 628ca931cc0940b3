# Generated from book/paper.ipynb by tools/tangle.py: edit the chapter.
"""The paper's Algorithm 2 as it is printed: a reference, which keeps the samples of all tasks.

`DictionaryMetricLearner` codes what a base learner finds in a dictionary, and moves the dictionary
along the hinges of all tasks, whose gradients are taken afresh at each step.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from lml.base import (
    COMMON_FIELDS,
    BaseLearnerMixin,
    BaseLifelongLearner,
    LearnerState,
    Record,
    base_learner_rule,
)
from lml.dictionary import descend, hinge_objective, keep_codes
from lml.initialization import initial_dictionary, orthonormal_rows
from lml.metrics import METRIC_TYPE, FactoredMetric
from lml.oasis import OASIS
from lml.penalties import soft_threshold
from lml.scml import SCML
from lml.single_task import TaskMetricsMixin
from lml.state import (
    ORTHONORMAL,
    ArrayField,
    Field,
    MatrixField,
    OptionalField,
    RecordField,
    TableField,
    ValueField,
    expect,
)
from lml.triplets import draw_triplets, neighbor_triplets, triplet_loss
from lml.utils.linalg import nbytes, stacked
from lml.utils.typing import Floats, Indices, Matrix, Seed
from lml.utils.validation import (
    Rule,
    encode_labels,
    flag,
    real,
    seed,
    whole,
)

__all__ = ["DictionaryMetricLearner", "TaskSamples", "mean_objective"]


# book/paper.ipynb#what-the-dictionary-s-step-lowers
def mean_objective(
    codes: Mapping[Hashable, Floats],
    problems: Mapping[Hashable, tuple[Matrix, Indices]],
    metric_type: str,
    dictionary_penalty: float = 0.0,
) -> Callable[[Floats], tuple[float, Callable[[], Floats]]]:
    """Mean hinge of several tasks as a function of the dictionary; their codes are fixed.

    Parameters
    ----------
    codes : dict
        Task to its code W_t of shape (d, d); need not be symmetric.
    problems : dict
        Task to its samples X_t of shape (n, D) and its triplets of shape (m, 3).
    metric_type : {"similarity", "distance"}
    dictionary_penalty : float, default=0.0
        gamma.

    Returns
    -------
    callable
        Takes L of shape (d, D); returns the value and a function for the gradient, as
        `lml.dictionary.line_search` wants it.

    Notes
    -----
    Derived in chapter 15 (paper), eqs. (paper-objective) and (paper-gradient). Paper: section IV-C,
    eq. 14, corrected.
    """
    tasks = [
        hinge_objective(codes[task], X, triplets, metric_type, dictionary_penalty)
        for task, (X, triplets) in problems.items()
    ]

    def objective(L: Floats) -> tuple[float, Callable[[], Floats]]:
        results = [task(L) for task in tasks]
        value = float(np.mean([value for value, _ in results]))
        return value, lambda: np.mean([slope() for _, slope in results], axis=0)

    return objective


# book/paper.ipynb#the-class
@dataclass(frozen=True)
class TaskSamples(Record):
    """What a `DictionaryMetricLearner` keeps of a task, its samples included.

    Attributes
    ----------
    number : int
        Position in the order of first appearance, from 0.
    n_visits : int
        Calls of ``partial_fit``.
    X : {ndarray, csr_array} of shape (n_samples, n_features) or None
        Samples of all visits; None if samples are not kept.
    labels : tuple
        Label of each sample; empty if samples are not kept.
    triplets : ndarray of shape (n_triplets, 3)
        Numbers of samples (anchor, positive, negative); empty if samples are not kept.
    """

    number: int
    n_visits: int
    X: Any
    labels: tuple[Any, ...]
    triplets: Indices


@dataclass(frozen=True, eq=False, kw_only=True)
class _State(LearnerState):
    """What a `DictionaryMetricLearner` knows after some visits; it never changes."""

    dictionary: Any = None  # Floats of shape (d, D) after the first task
    codes: dict[Any, Floats] = field(default_factory=dict)
    metric_type: Any = None  # "similarity" or "distance" after the first task


_SCALES = (10, 20, 50)  # nearest samples of each class in a region, section IV-A of the paper
_BASE_LEARNERS = {"oasis": OASIS(), "scml": SCML()}


# book/paper.ipynb#the-class
class DictionaryMetricLearner(TaskMetricsMixin, BaseLearnerMixin, BaseLifelongLearner[_State]):
    """The paper's Algorithm 2 as printed: a reference, not lifelong, as it keeps all samples.

    Parameters
    ----------
    base_learner : {"oasis", "scml"} or estimator, default="oasis"
        Learns the target metric of each task, as in `lml.lifelong.LifelongMetricLearner`.
    n_components : int, default=40
        Atoms d of the dictionary; more than the number of features are clipped to it.
    code_penalty : float, default=0.0
        Threshold of the off-diagonal entries of a code, in the units of the metric: lambda.
    dictionary_penalty : float, default=0.0
        gamma of eq. 7.
    dictionary_steps : int, default=5
        Most steps of the dictionary on each visit; 0 keeps the first dictionary.
    dictionary_rate : float, default=0.05
        Length of the first trial of a step relative to the norm of the dictionary.
    keep_samples : bool, default=True
        Keep the samples of all tasks and take the gradients of all tasks afresh at each step.
        False drops them: the dictionary moves along the hinge of the new task only.
    init : {"fisher"} or array-like of shape (d, n_features), default="fisher"
        The first dictionary: local Fisher directions of the first task, completed by principal
        components where their rank is less than d; or these rows, made orthonormal.
    n_triplets : int, default=3000
        Triplets sampled for a similarity (a distance takes nearest ones).
    random_state : int, RandomState or None, default=None
        Root of the seeds of all tasks.

    Attributes
    ----------
    dictionary_ : ndarray of shape (n_components, n_features)
        Orthonormal rows.
    codes_ : dict
        Task to its code, (n_components, n_components).
    tasks_ : dict
        Task to its `TaskSamples`, in the order of first appearance.
    metric_type_ : {"similarity", "distance"}
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns, when the first task was a data frame.

    Notes
    -----
    Derived in chapter 15 (paper), eqs. (paper-objective), (paper-gradient) and (paper-codes).
    Paper: Algorithm 2.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> learner = DictionaryMetricLearner(n_components=20, random_state=0)
    >>> for task, digits in {"low": (0, 1), "high": (8, 9)}.items():
    ...     own = (y == digits[0]) | (y == digits[1])
    ...     learner = learner.partial_fit(X[own] / 16, y[own], task=task)
    >>> learner.transform(X[:3] / 16, task="low").shape
    (3, 20)
    """

    _state_class = _State
    _kind = "DictionaryMetricLearner"
    _base_learners = _BASE_LEARNERS
    _parameter_rules: ClassVar[dict[str, Rule]] = {
        "base_learner": base_learner_rule(_BASE_LEARNERS),
        "n_components": whole(1),
        "code_penalty": real(0),
        "dictionary_penalty": real(0),
        "dictionary_steps": whole(0),
        "dictionary_rate": real(0, above=True),
        "keep_samples": flag(),
        "init": Rule(
            lambda value: not np.isscalar(value) or value == "fisher", "'fisher' or an array"
        ),
        "n_triplets": whole(1),
        "random_state": seed(),
    }

    def __init__(
        self,
        base_learner: Any = "oasis",
        n_components: int = 40,
        code_penalty: float = 0.0,
        *,
        dictionary_penalty: float = 0.0,
        dictionary_steps: int = 5,
        dictionary_rate: float = 0.05,
        keep_samples: bool = True,
        init: Any = "fisher",
        n_triplets: int = 3000,
        random_state: Seed = None,
    ) -> None:
        self.base_learner = base_learner
        self.n_components = n_components
        self.code_penalty = code_penalty
        self.dictionary_penalty = dictionary_penalty
        self.dictionary_steps = dictionary_steps
        self.dictionary_rate = dictionary_rate
        self.keep_samples = keep_samples
        self.init = init
        self.n_triplets = n_triplets
        self.random_state = random_state

    def _learn_task(
        self, state: _State, X: Matrix, y: Indices, labels: list[Any], task: Hashable
    ) -> _State:
        """The state after a visit of a task: Algorithm 2."""
        base_seed, triplet_seed, start_seed = map(int, state.seeds(task).generate_state(3))

        # lines 4 to 9: the samples of the task, those of earlier visits included
        known = state.tasks.get(task)
        names = [labels[code] for code in y]
        if known is not None and known.X is not None:
            X = stacked(known.X, X)
            names = [*known.labels, *names]
            y, labels = encode_labels(names)

        # line 10: the target M_t, a matrix of shape (D, D)
        target, kind = self._fit_base(X, y, base_seed, state.metric_type)
        triplets = self._triplets(X, y, kind, triplet_seed)
        _warn_outside_model(target, X, triplets, kind, task)

        # line 1: the first task gives the dictionary, (d, D)
        L = state.dictionary
        if L is None:
            L = self._first_dictionary(X, y, start_seed)

        # line 11: the code (d, d); for orthonormal atoms Algorithm 1 is one soft threshold
        B = target.project(L)
        code = soft_threshold(B if kind == "similarity" else (B + B.T) / 2, self.code_penalty)
        codes = {**state.codes, task: code}

        # line 12: the dictionary descends the hinges of all tasks; all codes stay
        problems = {u: (r.X, r.triplets) for u, r in state.tasks.items() if r.X is not None}
        problems[task] = (X, triplets)
        for _ in range(self.dictionary_steps):
            objective = mean_objective(codes, problems, kind, self.dictionary_penalty)
            step = descend(objective, L, self.dictionary_rate)
            if step.step_size == 0.0:
                break
            L = step.dictionary
            codes = {u: keep_codes(W, step.change) for u, W in codes.items()}

        record = TaskSamples(
            number=state.number(task),
            n_visits=1 + (known.n_visits if known else 0),
            X=X.copy(),
            labels=tuple(names),
            triplets=triplets,
        )
        if not self.keep_samples:
            record = replace(record, X=None, labels=(), triplets=triplets[:0])
        tasks = {**state.tasks, task: record}
        return replace(state, dictionary=L, codes=codes, tasks=tasks, metric_type=kind)

    def _triplets(self, X: Matrix, y: Indices, kind: str, seed: int) -> Indices:
        """Triplets of a task: sampled, or nearest for a distance."""
        if kind == "similarity":
            return draw_triplets(y, self.n_triplets, seed)
        return neighbor_triplets(X, y)

    def _first_dictionary(self, X: Matrix, y: Indices, seed: int) -> Floats:
        """Orthonormal atoms: Fisher directions of the first task, or those that were given."""
        if isinstance(self.init, str):
            return initial_dictionary(
                X,
                y,
                self.n_components,
                scales=_SCALES,
                random_state=seed,
                n_basis=self.n_components,
            )
        atoms = orthonormal_rows(self.init)
        if not len(atoms) or atoms.shape[1] != X.shape[1]:
            raise ValueError(
                f"init has shape {np.shape(self.init)} and rank {len(atoms)}: give an array of"
                f" shape (d, {X.shape[1]}) that is not zero"
            )
        return atoms

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
        return dict(self._learned_state("codes_").codes)

    @property
    def state_parts_(self) -> dict[str, int]:
        """Bytes kept, by part: dictionary, codes, samples, triplets, records."""
        state = self._learned_state("state_parts_")
        samples = [record.X for record in state.tasks.values() if record.X is not None]
        return {
            "dictionary": state.dictionary.nbytes,
            "codes": sum(W.nbytes for W in state.codes.values()),
            "samples": sum(map(nbytes, samples)),
            "triplets": sum(record.triplets.nbytes for record in state.tasks.values()),
            "records": sum(8 * (2 + len(record.labels)) for record in state.tasks.values()),
        }

    @classmethod
    def _fields(cls) -> Field:
        """The table of the fields that are stored."""
        return RecordField(
            _restored_state,
            {
                **COMMON_FIELDS,
                "dictionary": ArrayField(("d", "D"), rule=ORTHONORMAL),
                "tasks": TableField(_TASK),
                "codes": TableField(ArrayField(("d", "d"))),
                "metric_type": ValueField(METRIC_TYPE),
            },
        )


# book/paper.ipynb#the-class
def _warn_outside_model(
    target: FactoredMetric, X: Matrix, triplets: Indices, metric_type: str, task: Hashable
) -> None:
    """Warn where the mean hinge of a target is not below 1, that of the zero metric.

    Derived in chapter 10 (surrogate), eq. (surrogate-region): no passive-aggressive step from there
    ends at the target.
    """
    hinge = triplet_loss(target, X, triplets, metric_type)
    if hinge >= 1.0:
        warnings.warn(
            f"the base learner's metric for task {task!r} has the mean hinge {hinge:.3g}, and no"
            " metric at all has 1: it is not the target of a passive-aggressive step, and its code"
            " need not lower the loss; scale the samples or take another base learner",
            stacklevel=4,  # of the visit
        )


# book/paper.ipynb#the-class
def _restored_state(**parts: Any) -> _State:
    """The state from its stored parts, or an error that says what does not belong together."""
    tasks = parts["tasks"]
    d, D = parts["dictionary"].shape
    expect(1 <= d <= D, "shape of dictionary", (d, D), "(d, D) with 1 <= d <= D")
    expect(set(parts["codes"]) == set(tasks), "tasks of codes", len(parts["codes"]), "all tasks")
    for task, record in tasks.items():
        n = 0 if record.X is None else record.X.shape[0]
        expect(len(record.labels) == n, f"labels of {task!r}", len(record.labels), n)
        inside = bool(((record.triplets >= 0) & (record.triplets < n)).all())
        expect(inside, f"triplets of {task!r}", record.triplets, f"numbers below {n}")
    return _State(**parts)


# book/paper.ipynb#the-class
_TASK = RecordField(
    TaskSamples,
    {
        "number": ValueField(whole(0)),
        "n_visits": ValueField(whole(1)),
        "X": OptionalField(MatrixField("n", "D")),
        "labels": ValueField(Rule(lambda labels: type(labels) is tuple, "a tuple of labels")),
        "triplets": ArrayField((None, 3), int),
    },
)
