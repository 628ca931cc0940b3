# Generated from book/shell.ipynb by tools/tangle.py: edit the chapter.
"""The shell of learners of tasks in time: what all of them do alike.

`BaseLifelongLearner` checks the arguments of `fit` and `partial_fit`, keeps all that was learned in
one `LearnerState`, which it replaces as a whole, and saves and loads it. A learner inherits it and
gives

- ``_state_class``, a frozen dataclass that inherits `LearnerState` and adds its own fields, each
  with a default: before the first task the shell makes a blank one;
- ``_learn_task(state, X, y, labels, task) -> state``, the state after a visit. ``X`` is a finite
  float64 array or CSR array, ``y`` the number of each sample's class, ``labels`` the label of each
  class. It changes neither the state nor the learner. ``state.seeds(task)`` gives its randomness;
- ``_parameter_rules``, the table of `lml.utils.validation.check_parameters`;
- ``_kind``, the name of the learner in a file, and the class method ``_fields()``, the table of the
  fields that are stored: an `lml.state.RecordField` that begins with `COMMON_FIELDS`;
- ``state_parts_``, the bytes of each part of the state.

Where it must, it overrides ``_check_parameters``, ``_warn_of_parameters``, ``_check_labels`` (two
classes, one of them with two samples), or ``_forget_task``, where a task leaves more behind than
its entries in the tables of the state. It reads the state through ``_known_state(task)`` or
``_learned_state(attribute)``, an error if there is none. A method of its own that replaces
``_state`` does so under ``_lock``. A record of a task in ``state.tasks`` has ``number``, the
position in the order of first appearance, and ``n_visits``; it is a `Record` if it holds arrays.
Metrics are read with `lml.single_task.TaskMetricsMixin`, named before this class.
"""

from __future__ import annotations

import copy
import os
import reprlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_consistent_length, check_random_state

from lml.metrics import METRIC_LEARNER, FactoredMetric, Lesson, fitted_metric
from lml.single_task import samples_by_task
from lml.state import (
    LARGEST_COUNT,
    LARGEST_MEAN,
    ArrayField,
    Field,
    OptionalField,
    RecordField,
    SizeField,
    ValueField,
    decode_parameters,
    encode_parameters,
    expect,
    pack,
    read_state,
    reading,
    unpack,
    write_state,
)
from lml.utils.documentation import DocumentedMixin
from lml.utils.linalg import dense
from lml.utils.progress import progress
from lml.utils.typing import Floats, Indices, LabelsLike, Matrix, MatrixLike, Seed
from lml.utils.validation import (
    Rule,
    check_columns,
    check_known_task,
    check_matrix,
    check_name,
    check_parameters,
    check_table,
    check_task,
    check_two_classes,
    column_names,
    encode_labels,
    one_of,
    real,
    warn_of_mean,
    warn_of_scales,
    whole,
)

__all__ = [
    "CLASS_MEANS",
    "COMMON_FIELDS",
    "LABELS",
    "BaseLearnerMixin",
    "BaseLifelongLearner",
    "ClassMeans",
    "LearnerState",
    "Record",
    "SharedLabelsMixin",
    "ShortRepr",
    "base_learner_rule",
]


# book/shell.ipynb#the-state
class ShortRepr:
    """A dataclass whose repr gives the type and shape of an array, and cuts what is long."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.__repr__ = ShortRepr.__repr__  # type: ignore[method-assign]  # dataclass keeps it

    def __repr__(self) -> str:
        parts = (f"{name}={_short(value)}" for name, value in vars(self).items())
        return f"{type(self).__name__}({', '.join(parts)})"


def _short(value: Any) -> str:
    if isinstance(value, np.ndarray) or sparse.issparse(value):
        return f"<{value.dtype} {value.shape}>"
    if isinstance(value, dict):
        return f"<{len(value)} entries>"
    return reprlib.repr(value) if isinstance(value, (str, tuple)) else repr(value)


# book/shell.ipynb#the-state
class Record(ShortRepr):
    """A frozen dataclass into whose arrays nobody can write, nor into those of a copy."""

    def __post_init__(self) -> None:
        """Lock its arrays, those of its tables too; records in them have locked their own."""
        _lock(vars(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), dict(vars(self)))


def _lock(value: Any) -> None:
    if isinstance(value, np.ndarray):
        value.flags.writeable = False
    elif isinstance(value, dict):
        for part in value.values():
            _lock(part)
    elif sparse.issparse(value):
        _lock(vars(value))


def _restored(kind: Any, parts: Mapping[str, Any]) -> Any:
    return kind(**parts)


# book/shell.ipynb#the-state
@dataclass(frozen=True, eq=False, kw_only=True)
class LearnerState(Record):
    """What every learner of tasks in time knows after some visits; it never changes.

    Attributes
    ----------
    n_features : int
    root : int
        Root of the seeds of all visits.
    columns : tuple of str or None
        Names of the features, when the first task was a data frame.
    tasks : dict
        Task to its record, in the order of first appearance. A record has ``number`` and
        ``n_visits``.
    births : dict
        Task to a number that another life of its name, after `forget`, does not have; None or
        nothing if the task is from a file, which has no births.
    n_births : int
    """

    n_features: int
    root: int
    columns: tuple[str, ...] | None = None
    tasks: dict[Any, Any] = field(default_factory=dict)
    births: dict[Any, int | None] = field(default_factory=dict)
    n_births: int = 0

    def number(self, task: Hashable) -> int:
        """Position of a task in the order of first appearance; the next free one if it is new."""
        if task in self.tasks:
            return self.tasks[task].number
        return 1 + max((record.number for record in self.tasks.values()), default=-1)

    def born(self, task: Hashable) -> Self:
        """The state in which a task, if it is new, has a birth."""
        if task in self.tasks or task in self.births:
            return self
        births = {**self.births, task: self.n_births}
        return replace(self, births=births, n_births=self.n_births + 1)

    def seeds(self, task: Hashable) -> np.random.SeedSequence:
        """Seeds of the next visit of a task."""
        n_visits = self.tasks[task].n_visits if task in self.tasks else 0
        return np.random.SeedSequence([self.root, self.number(task), n_visits])


def _are_names(columns: Any) -> bool:
    """Whether these are names of columns, all different."""
    named = type(columns) is tuple and all(type(name) is str for name in columns)
    return named and len(set(columns)) == len(columns)


#: Fields that the state of every learner stores; ``D`` stands for the number of features.
COMMON_FIELDS: dict[str, Field] = {
    "n_features": SizeField(letter="D"),
    "root": ValueField(whole(0, np.inf)),
    "columns": OptionalField(ValueField(Rule(_are_names, "different names"))),
}


# book/shell.ipynb#a-visit
_S = TypeVar("_S", bound=LearnerState)
_LOCKS: dict[int, WeakKeyDictionary[Any, Any]] = {}  # by process: a fork holds none


def _encoded(y: LabelsLike) -> tuple[Indices, list[Any]]:
    """The class of each sample and the label of each class; a label must fit into a file."""
    codes, labels = encode_labels(y)
    for label in labels:
        check_name(label, f"label {label!r}")
    return codes, labels


class BaseLifelongLearner(DocumentedMixin, BaseEstimator, ABC, Generic[_S]):
    """A learner of tasks that arrive one after another.

    Any number of threads may read while one learns: an answer is that of the state before the
    visit or after it. Visits by several threads come one after another. A visit that fails or
    is interrupted changes nothing. The module says what a learner gives.
    """

    _state_class: ClassVar[Any]
    _parameter_rules: ClassVar[dict[str, Rule]]
    _kind: ClassVar[str]
    _state: _S | None = None
    random_state: Seed
    verbose: bool = False  # a parameter of learners whose `fit` shows a bar

    @property
    def _lock(self) -> Any:
        """The lock under which the learner changes; a copy of the learner has another one."""
        own = _LOCKS.setdefault(os.getpid(), WeakKeyDictionary())
        return own.setdefault(self, threading.RLock())  # one step, for all threads

    @classmethod
    @abstractmethod
    def _fields(cls) -> Field:
        """The table of the fields that are stored."""

    def _check_parameters(self) -> None:
        """Refuse parameters that cannot be used."""
        check_parameters(self)

    def _warn_of_parameters(self) -> None:
        """At a visit, warn of parameters that can be used, but not well; stacklevel is 3."""

    def _compares_products(self) -> bool:
        """Whether what is learned compares inner products of the samples as they come."""
        return False

    def _check_labels(self, y: Indices, labels: list[Any], task: Hashable, known: bool) -> None:
        """Refuse the labels of a visit, of a known task or a new one, that cannot be learned from."""
        check_two_classes(y, labels, f"y of task {task!r}")

    @abstractmethod
    def _learn_task(
        self, state: _S, X: Matrix, y: Indices, labels: list[Any], task: Hashable
    ) -> _S:
        """The state after a visit of a task."""

    def _forget_task(self, state: _S, task: Hashable) -> _S:
        """The state without a known task; here, without its entry in each table of the state."""
        tables = {name: table for name, table in vars(state).items() if isinstance(table, dict)}
        left: dict[str, Any] = {
            name: {u: entry for u, entry in table.items() if u != task}
            for name, table in tables.items()
        }
        return replace(state, **left)

    def partial_fit(self, X: MatrixLike, y: LabelsLike, *, task: Hashable) -> Self:
        """Learn one task, or more samples of a known one.

        Parameters
        ----------
        X : {array-like, sparse matrix, data frame} of shape (n_samples, n_features)
            Samples of this visit only.
        y : array-like of shape (n_samples,)
            Labels: strings, numbers or tuples of them, which a file can hold.
        task : hashable
            Name of the task, of the same types.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            If the samples, the labels, the task or a parameter cannot be used. The learner is
            then exactly what it was before the call.
        """
        with self._lock:
            self._check_parameters()
            self._warn_of_parameters()
            check_task(task)
            state = self._state
            known = None if state is None else state.n_features
            samples = check_matrix(X, n_features=known, order="C")
            check_columns(self, X)
            check_consistent_length(samples, y)
            codes, labels = _encoded(y)
            comes_back = state is not None and task in state.tasks
            self._check_labels(codes, labels, task, known=comes_back)
            if state is None:
                state = self._blank_state(samples, column_names(X), len(labels))
                warn_of_scales(samples, state.columns, stacklevel=3)
            self._state = self._learn_task(state.born(task), samples, codes, labels, task)
        return self

    def _blank_state(
        self, X: Matrix, columns: tuple[str, ...] | None, n_classes: int | None = None
    ) -> _S:
        """The state before the first task, whose samples are X."""
        if self._compares_products() and n_classes != 1:  # one class has a mean of its own
            warn_of_mean(X, stacklevel=4)  # of who calls the public method
        if self.random_state is None:
            root = np.random.SeedSequence().entropy
        else:  # a generator is read, not advanced
            generator = copy.deepcopy(check_random_state(self.random_state))
            root = int(generator.randint(2**31))
        return self._state_class(n_features=X.shape[1], root=root, columns=columns)

    def fit(self, X: MatrixLike, y: LabelsLike, *, tasks: Iterable[Hashable]) -> Self:
        """Forget everything and learn a table of samples, task by task.

        Parameters
        ----------
        X : {array-like, sparse matrix, data frame} of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        tasks : sequence of length n_samples
            Task of each sample. Tasks are learned in the order of their first sample.

        Returns
        -------
        self
        """
        with self._lock:
            self._check_parameters()
            self._warn_of_parameters()
            columns = column_names(X)
            table, all_labels, names = check_table(X, y, tasks)
            # all tasks are checked before one is learned; samples are taken when it is their turn
            encoded = []
            for task, own in samples_by_task(names).items():
                codes, labels = _encoded([all_labels[sample] for sample in own])
                self._check_labels(codes, labels, task, known=False)
                encoded.append((own, codes, labels, task))
            state = self._blank_state(table[encoded[0][0]], columns, len(encoded[0][2]))
            if self._state is not None:  # a name that is learned again was not forgotten
                again = [task for *_, task in encoded if task in self._state.tasks]
                births = {task: self._state.births.get(task) for task in again}
                state = replace(state, births=births, n_births=self._state.n_births)
            with progress(type(self).__name__, len(encoded), self.verbose) as advance:
                for own, codes, labels, task in encoded:
                    state = self._learn_task(state.born(task), table[own], codes, labels, task)
                    advance(1)
            self._state = state
        return self

    def forget(self, task: Hashable) -> Self:
        """Drop all that was learned of one task alone; an error if it is not known."""
        with self._lock:
            state = self._known_state(task)
            births = dict(state.births)
            births.pop(task, None)
            self._state = replace(self._forget_task(state, task), births=births)
        return self

    # book/shell.ipynb#reading
    def __sklearn_is_fitted__(self) -> bool:
        return self._state is not None and bool(self._state.tasks)

    @property
    def _births(self) -> dict[Any, int | None]:
        """Task to what tells it from a later task of its name."""
        return {} if self._state is None else self._state.births

    def _known_state(self, task: Hashable) -> _S:
        """The state, if a task is known in it."""
        state = self._learned_state("metric of a task")
        check_known_task(task, state.tasks)
        return state

    def _learned_state(self, attribute: str) -> _S:
        """The state, if there is one; an error says which attribute is missing without it."""
        state = self._state
        if state is None:
            raise NotFittedError(
                f"no task has been learned, so there is no {attribute}: call fit or partial_fit"
            )
        return state

    @property
    def tasks_(self) -> dict[Any, Any]:
        """Task to its record, in the order of first appearance; a copy of the table."""
        return dict(self._learned_state("tasks_").tasks)

    @property
    def n_features_in_(self) -> int:
        """Number of features."""
        return self._learned_state("n_features_in_").n_features

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        """Names of the columns; missing when the first task had none."""
        columns = self._learned_state("feature_names_in_").columns
        if columns is None:
            raise AttributeError("the samples of the first task had no names of columns")
        return np.array(columns, dtype=object)

    if TYPE_CHECKING:  # what the learner brings

        @property
        def state_parts_(self) -> dict[str, int]: ...

    @property
    def state_nbytes_(self) -> int:
        """Bytes of everything that is kept between two tasks."""
        return sum(self.state_parts_.values())

    # book/shell.ipynb#files
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the learner to a file, which another one that is there gives way to.

        Parameters
        ----------
        path : str or path
            Holds the old file or the new one at any time, whatever happens.

        Raises
        ------
        TypeError, ValueError
            If a task, a label or a parameter cannot be stored (see `lml.state.encode`), or a
            parameter is not valid. Nothing is written then.

        Notes
        -----
        Derived in chapter 34 (state), eqs. (state-atomic) and (state-size).
        """
        arrays: dict[str, Any] = {}
        write_state(path, self._kind, copy.copy(self)._packed(arrays), arrays)

    def _packed(self, arrays: dict[str, Any]) -> dict[str, Any]:
        """JSON form of the learner; its arrays go to `arrays`."""
        self._check_parameters()
        return {
            "parameters": encode_parameters(self, arrays),
            "state": pack(OptionalField(self._fields()), self._state, arrays),
        }

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The learner in a file that `save` wrote; the next visit goes on bit for bit.

        Parameters
        ----------
        path : str or path

        Returns
        -------
        learner
            One of the class that is asked.

        Raises
        ------
        OSError
            If the file cannot be opened.
        ValueError
            If it holds no learner of this kind, is damaged, or its parts do
            not belong together. Nothing in it is executed.

        Notes
        -----
        Derived in chapter 34 (state), eqs. (state-round-trip) and (state-bound).
        """
        meta, arrays = read_state(path, cls._kind)
        with reading(path):
            return cls._unpacked(meta, arrays)

    @classmethod
    def _unpacked(cls, meta: Any, arrays: dict[str, Any]) -> Self:
        """The learner that `_packed` took apart, or an error that names what does not fit."""
        fits = type(meta) is dict and set(meta) == {"state", "parameters"}
        expect(fits, "entries", meta, "state and parameters")
        learner = cls(**decode_parameters(meta["parameters"], arrays))
        learner._check_parameters()
        state = unpack(OptionalField(cls._fields()), meta["state"], arrays)
        if state is not None:
            numbers = [record.number for record in state.tasks.values()]
            rising = sorted(set(numbers)) == numbers
            expect(rising, "numbers of the tasks", numbers, "different and rising")
            n = state.n_features
            named = state.columns is None or len(state.columns) == n
            expect(named, "columns", state.columns, f"{n} different names")
        learner._state = state
        return learner


# book/shell.ipynb#a-base-learner-for-each-task
class BaseLearnerMixin:
    """A parameter ``base_learner``: a word, or an instance that learns the metric of one task.

    A learner inherits it before `BaseLifelongLearner` and gives ``_base_learners``, the table of
    its words. Its rule for the parameter is ``base_learner_rule(_base_learners)``, and its state
    has a field ``metric_type``.
    """

    _base_learners: ClassVar[Mapping[str, Any]]
    base_learner: Any
    if TYPE_CHECKING:  # what the learner brings

        def _learned_state(self, attribute: str) -> Any: ...

    @property
    def metric_type_(self) -> str:
        """What the metrics are: "similarity" or "distance"."""
        return self._learned_state("metric_type_").metric_type

    def _base(self) -> Any:
        """The base learner of a word, or the one that was given."""
        learner = self.base_learner
        return self._base_learners[learner] if isinstance(learner, str) else learner

    def _compares_products(self) -> bool:
        """Whether the base learner compares inner products of the samples as they come."""
        return getattr(self._base(), "metric_type", None) == "similarity"

    def _fit_base(
        self, X: Matrix, y: Lesson, seed: int, metric_type: str | None
    ) -> tuple[FactoredMetric, str]:
        """The metric that a clone of the base learner finds, and its type, the known one if any."""
        learner = clone(self._base())
        if "random_state" in learner.get_params():
            learner.set_params(random_state=seed)
        metric, found = fitted_metric(learner, "base_learner", X, y)
        if found != (metric_type or found):
            raise ValueError(
                f"the base learner gives a {found}, the earlier tasks have a {metric_type}: use one"
                " kind in one learner"
            )
        return metric, found


def base_learner_rule(words: Iterable[str]) -> Rule:
    """Rule for a parameter that is one of these words or a metric learner."""
    named = one_of(*words)
    return Rule(
        lambda value: named.allows(value) or METRIC_LEARNER.allows(value),
        f"one of {tuple(words)} or a metric learner",
    )


# book/shell.ipynb#labels-that-mean-the-same-in-every-task
@dataclass(frozen=True, eq=False)
class ClassMeans(Record):
    """Label, size and mean of each class of a task.

    Attributes
    ----------
    labels : tuple of length c
    counts : ndarray of int, shape (c,)
    means : ndarray of shape (c, n_features)
    """

    labels: tuple[Any, ...]
    counts: Indices
    means: Floats

    @property
    def center(self) -> Floats:
        """The mean of all samples."""
        return self.counts @ self.means / self.counts.sum()

    @property
    def has_center(self) -> bool:
        """Whether the mean of all samples is that of a task, and not of its only class."""
        return len(self.labels) > 1

    def centered(self) -> "ClassMeans":
        """The means from the mean of all samples."""
        return replace(self, means=self.means - self.center)

    def from_others(self, others: Iterable["ClassMeans"]) -> tuple[Floats, list[Any]]:
        """Class means of other tasks, moved to this one, and their labels; of its classes only.

        The mean of one class says nothing of where a task lies: it is not moved, nor to it.
        """
        own = set(self.labels if self.has_center else ())
        found = [
            (label, mean)
            for other in others
            if other.has_center
            for label, mean in zip(other.labels, other.centered().means)
            if label in own
        ]
        means = np.array([mean for _, mean in found]).reshape(-1, self.means.shape[1])
        return self.center + means, [label for label, _ in found]

    def plus(self, other: "ClassMeans") -> "ClassMeans":
        """The class means of the samples of both."""
        labels = tuple(dict.fromkeys((*self.labels, *other.labels)))
        place = {label: number for number, label in enumerate(labels)}
        counts = np.zeros(len(labels), dtype=int)
        sums = np.zeros((len(labels), self.means.shape[1]))
        for part in (self, other):
            at = [place[label] for label in part.labels]
            counts[at] += part.counts
            sums[at] += part.counts[:, None] * part.means
        return ClassMeans(labels, counts, sums / counts[:, None])


# book/shell.ipynb#labels-that-mean-the-same-in-every-task
def _restored_means(*, labels: tuple[Any, ...], counts: Indices, means: Floats) -> ClassMeans:
    """Class means of a file, with a label each."""
    expect(len(labels) == len(counts), "labels of class means", labels, f"{len(counts)} labels")
    return ClassMeans(labels, counts, means)


def _are_labels(labels: Any) -> bool:
    return type(labels) is tuple and len(set(labels)) == len(labels)


#: Labels as they are stored.
LABELS = ValueField(Rule(_are_labels, "a tuple of different labels"))
#: How a `ClassMeans` is stored.
CLASS_MEANS = RecordField(
    _restored_means,
    {
        "labels": LABELS,
        "counts": ArrayField(
            ("c",), int, Rule(lambda n: bool((n > 0).all()), "at least 1"), LARGEST_COUNT
        ),
        "means": ArrayField(("c", "D"), largest=LARGEST_MEAN),
    },
)


# book/shell.ipynb#labels-that-mean-the-same-in-every-task
class SharedLabelsMixin:
    """A parameter ``shared_labels``: whether a label means the same class in every task.

    A learner inherits it before `BaseLifelongLearner` and gives ``_joined_means(state, task)``, a
    dict of labels to class means over several tasks, moved to the mean of the task.
    """

    shared_labels: bool
    if TYPE_CHECKING:  # what the learner brings

        def _known_state(self, task: Hashable) -> Any: ...

        def _joined_means(self, state: Any, task: Hashable) -> dict[Any, Floats]: ...

    def shrink_references(
        self,
        X: MatrixLike,
        y: LabelsLike,
        *,
        task: Hashable,
        amount: float = 0.5,
        shared: float = 0.0,
    ) -> Floats:
        """Move reference samples toward the mean of their class, for k nearest neighbors.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n, n_features)
        y : array-like of shape (n,)
            Labels.
        task : hashable
            A known task.
        amount : float in [0, 1], default=0.5
            0 leaves the samples as they are, 1 puts class means in their place.
        shared : float in [0, 1], default=0.0
            Weight, in these means, of the class means over all tasks (for `LifelongPLDA`, of its
            family), moved to the mean of this one. More than 0 needs ``shared_labels=True``.

        Returns
        -------
        ndarray of shape (n, n_features)

        Raises
        ------
        ValueError, TypeError
            If the samples, the labels or the task cannot be used, or a weight is not in [0, 1].

        Notes
        -----
        Derived in chapter 24 (plda), eqs. (plda-references) and (plda-targets).
        """
        real(0, 1).check("amount", amount)
        real(0, 1).check("shared", shared)
        if shared and not self.shared_labels:
            raise ValueError(
                f"shared={shared!r} needs shared_labels=True: labels of other tasks mean others"
            )
        now = copy.copy(self)  # no other thread changes it
        state = now._known_state(task)
        samples = check_matrix(X, n_features=state.n_features, order="C")
        check_columns(now, X)
        check_consistent_length(samples, y)
        codes, labels = encode_labels(y)
        joined = now._joined_means(state, task) if shared else {}
        references = dense(samples).copy()
        for code, label in enumerate(labels):
            own = codes == code
            target = references[own].mean(axis=0)
            if label in joined:
                target = (1 - shared) * target + shared * joined[label]
            references[own] = (1 - amount) * references[own] + amount * target
        return references
