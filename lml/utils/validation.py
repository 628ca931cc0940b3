# Generated from book/door.ipynb by tools/tangle.py: edit the chapter.
"""Checks of arguments, asked once, where a user hands the arguments in.

The functions return what they were given in the form that the package computes with, or raise
a ValueError or TypeError that names the argument, shows the value and says what to give.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import numbers
import sys
import warnings
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_array, check_consistent_length, check_random_state, column_or_1d
from sklearn.utils.validation import validate_data

from lml.utils.typing import Floats, Indices, LabelsLike, Matrix, MatrixLike, WeightsLike

__all__ = [
    "LARGEST_REAL",
    "LARGEST_SAMPLE",
    "LARGEST_WHOLE",
    "InvalidParameterError",
    "Rule",
    "as_labels",
    "check_columns",
    "check_dense",
    "check_finite",
    "check_kind",
    "check_known_task",
    "check_matrix",
    "check_n_neighbors",
    "check_name",
    "check_new_samples",
    "check_parameters",
    "check_samples",
    "check_table",
    "check_task",
    "check_two_classes",
    "check_weights",
    "column_names",
    "encode_labels",
    "flag",
    "has_pairs",
    "inside",
    "is_missing",
    "is_real",
    "is_whole",
    "jobs",
    "labels_array",
    "one_of",
    "optional",
    "python_scalar",
    "real",
    "seed",
    "sort_classes",
    "task_names",
    "warn_of_mean",
    "warn_of_scales",
    "whole",
]


# book/door.ipynb#parameters
def is_real(value: object) -> bool:
    """Whether a value is a real number that a float can hold, of any type but bool."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    largest: Any = sys.float_info.max
    return not isinstance(value, numbers.Rational) or abs(value) <= largest


def is_whole(value: object) -> bool:
    """Whether a value is an integer, of any type but bool."""
    return not isinstance(value, bool) and isinstance(value, numbers.Integral)


#: Largest whole number of a parameter: sizes of arrays and numbers of steps.
LARGEST_WHOLE = 2**31 - 1
#: Largest finite number of a parameter without an upper limit of its own: its square is finite.
LARGEST_REAL = 1e100


class InvalidParameterError(ValueError, TypeError):
    """A parameter has a type or a value that cannot be used."""


@dataclass(frozen=True)
class Rule:
    """What a parameter may be.

    Attributes
    ----------
    allows : callable
        Whether a value may be used.
    wanted : str
        What to give instead, for the message.
    largest : float
        The largest finite number, which the message tells only to who gave a larger one.
    """

    allows: Callable[[Any], bool]
    wanted: str
    largest: float = np.inf

    def check(self, name: str, value: Any) -> None:
        """Raise `InvalidParameterError` unless a value may be used."""
        if self.allows(value):
            return
        wanted = self.wanted
        parts = value if isinstance(value, tuple | list) else [value]
        if any(is_real(part) and self.largest < abs(part) < np.inf for part in parts):
            wanted += f"; the largest is {self.largest}"
        raise InvalidParameterError(f"{name}={value!r}: give {wanted}")


# book/door.ipynb#parameters
def real(
    least: float = -np.inf,
    most: float = np.inf,
    *,
    above: bool = False,
    below: bool = False,
    infinite: bool = False,
    largest: float = LARGEST_REAL,
) -> Rule:
    """Rule for a number in [least, most], without least if `above`, without most if `below`.

    With a `least` but no `most`, a finite number is at most `largest`.
    """
    if least == -np.inf or most < np.inf:
        largest = np.inf

    def allows(value: Any) -> bool:
        if not is_real(value) or not (infinite or math.isfinite(value)):
            return False
        if largest < value < np.inf:
            return False
        large_enough = value > least if above else value >= least
        return bool(large_enough and (value < most if below else value <= most))

    wanted = "a number"
    if least > -np.inf:
        wanted += f" above {least:g}" if above else f" of at least {least:g}"
    if most < np.inf:
        wanted += f" and below {most:g}" if below else f" and at most {most:g}"
    if infinite:
        wanted += ", which may be infinite"
    return Rule(allows, wanted, largest)


def whole(least: int, most: float = LARGEST_WHOLE) -> Rule:
    """Rule for an integer in [least, most]."""
    wanted = f"a whole number of at least {least}"
    named = most not in (LARGEST_WHOLE, np.inf)
    if named:
        wanted += f" and at most {most:g}"
    return Rule(
        lambda value: is_whole(value) and least <= value <= most, wanted, np.inf if named else most
    )


# book/door.ipynb#parameters
def one_of(*choices: Any) -> Rule:
    """Rule for one of a few values."""
    return Rule(lambda value: isinstance(value, Hashable) and value in choices, f"one of {choices}")


def flag() -> Rule:
    """Rule for True or False."""
    return Rule(lambda value: isinstance(value, bool | np.bool_), "True or False")


def optional(rule: Rule) -> Rule:
    """Rule for None or what another rule allows."""
    return Rule(
        lambda value: value is None or rule.allows(value), f"{rule.wanted}, or None", rule.largest
    )


def seed() -> Rule:
    """Rule for what `sklearn.utils.check_random_state` takes."""

    def allows(value: Any) -> bool:
        try:
            check_random_state(value)
        except (TypeError, ValueError):
            return False
        return True

    return Rule(allows, "an integer in [0, 2**32), a RandomState or None")


def jobs() -> Rule:
    """Rule for the number of processes or threads, in joblib's sense."""
    return Rule(
        lambda value: value is None or (is_whole(value) and 0 < abs(value) <= LARGEST_WHOLE),
        "a whole number other than 0, or None",
        LARGEST_WHOLE,
    )


def check_parameters(estimator: Any) -> None:
    """Check the parameters of an estimator against its table ``_parameter_rules``.

    Parameters
    ----------
    estimator : estimator
        With ``_parameter_rules``, a dict of parameter names to `Rule`.

    Raises
    ------
    InvalidParameterError
        A ValueError and TypeError that names the first parameter that cannot be used.
    """
    for name, rule in estimator._parameter_rules.items():
        rule.check(name, getattr(estimator, name))


# book/door.ipynb#samples
_LOSSY = (complex, np.complexfloating, np.datetime64, np.timedelta64)
#: Largest size of a number of samples: products of squared distances of larger ones overflow.
LARGEST_SAMPLE = 1e70
_WORDS = ("categor", "enum", "str", "large_string", "date", "time", "duration")  # first letters


def _check_frame(A: Any, name: str) -> None:
    """Name the first column of a data frame that holds categories, words or dates."""
    if not hasattr(A, "columns"):
        return
    for column, kind in zip(A.columns, A.dtypes):
        words = str(kind).lower().startswith(_WORDS)
        objects = getattr(kind, "kind", None) == "O"
        if words or (objects and any(isinstance(v, str) for v in A[column])):
            raise ValueError(
                f"column {column!r} of {name} is of type {kind}: encode it as numbers, for example"
                " with scikit-learn's OneHotEncoder"
            )


def check_kind(A: Any, name: str = "X", ensure_2d: bool = False) -> Any:
    """`A` as it is; an error where a conversion to numbers would drop a mask or a unit.

    With `ensure_2d` also where it has fewer than two axes.
    """
    _check_frame(A, name)
    if any(map(np.ma.is_masked, A if isinstance(A, list | tuple) else [A])):
        raise ValueError(f"{name} has masked entries: remove these samples or impute the entries")
    given = A
    if not (sparse.issparse(A) or isinstance(A, np.ndarray)):
        try:
            given = np.asarray(A)
        except ValueError:  # samples of several lengths: the conversion to numbers names them
            return A
    kinds = [given.dtype.type] if given.dtype != object else set(map(type, given.flat))
    for kind in kinds:
        if issubclass(kind, _LOSSY):
            what = "Complex data not supported: " if issubclass(kind, _LOSSY[:2]) else ""
            raise ValueError(f"{what}{name} holds {kind.__name__}: convert it to real numbers")
    if ensure_2d and given.ndim < 2:
        raise ValueError(
            f"{name} has shape {given.shape}, but two axes are expected. Reshape your data:"
            f" {name}.reshape(1, -1) has one row, {name}.reshape(-1, 1) one column"
        )
    return A


def check_finite(A: Matrix, name: str = "X", largest: float = LARGEST_SAMPLE) -> Matrix:
    """`A`, dense or sparse; an error that says where a number is not finite, or too large."""
    values = A.data if sparse.issparse(A) else A
    size = float(max(values.max(initial=0.0), -values.min(initial=0.0)))  # NaN where there is one
    if size <= largest:
        return A
    if np.isfinite(size):
        raise ValueError(
            f"{name} holds a number of size {size:.3g}, products of its squares overflow: rescale"
            " the samples, for example with scikit-learn's StandardScaler"
        )
    entries = sparse.coo_array(A)
    first = np.flatnonzero(~np.isfinite(entries.data))[0]
    place = [int(axis[first]) for axis in entries.coords]
    raise ValueError(
        f"{name}{place} is {entries.data[first]}: {name} must not hold NaN or infinity,"
        " remove or impute it"
    )


# book/door.ipynb#samples
def _canonical(X: Matrix) -> Matrix:
    """A dense array as it is, or a CSR array that holds each number once, columns ascending."""
    if sparse.isspmatrix(X):  # its product by * is that of matrices
        X = sparse.csr_array(X)
    if sparse.issparse(X) and not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X


def check_matrix(
    X: MatrixLike,
    name: str = "X",
    n_features: int | None = None,
    *,
    largest: float = LARGEST_SAMPLE,
    **options: Any,
) -> Matrix:
    """Samples as a finite float64 matrix, dense or CSR.

    Parameters
    ----------
    X : {array-like, sparse matrix, data frame} of shape (n_samples, n_features)
    name : str, default="X"
        What the messages call it.
    n_features : int, optional
        The number of columns that it must have.
    largest : float, default=1e70
        The size that no number may exceed; products of squared distances overflow above 1e70.
    **options
        For `sklearn.utils.check_array`; it is not asked about an array of float64 unless `order`
        or `copy` is given.

    Returns
    -------
    {ndarray, csr_array} of shape (n_samples, n_features)
        `X` itself where it has this form already.

    Raises
    ------
    ValueError, TypeError
        If it is no such matrix, or a number is not finite or too large.
    """
    # the conversion of a small matrix costs ten times the pass over its numbers: not if it is one
    ready = type(X) is np.ndarray and X.dtype == np.float64 and X.ndim == 2 and X.size > 0
    if not ready or options.keys() & {"order", "copy"}:
        X = check_kind(X, name, options.get("ensure_2d", True))
        options = {"accept_sparse": "csr", "dtype": np.float64, "ensure_min_samples": 0} | options
        X = check_array(X, ensure_all_finite=False, input_name=name, **options)
    X = check_finite(_canonical(X), name, largest)
    if n_features is not None and X.shape[1] != n_features:
        raise ValueError(
            f"{name} has {X.shape[1]} features, but {n_features} features are expected: give the"
            " same columns as before"
        )
    return X


def check_samples(
    estimator: Any, X: MatrixLike, y: LabelsLike | None, **options: Any
) -> tuple[Matrix, Indices, list[Any]]:
    """Samples and labels of one task that an estimator is fitted to.

    Parameters
    ----------
    estimator : estimator
        Gets ``n_features_in_`` and, for a data frame, ``feature_names_in_``.
    X : {array-like, sparse matrix, data frame} of shape (n_samples, n_features)
    y : array-like of shape (n_samples,)
    **options
        For `sklearn.utils.validation.validate_data`.

    Returns
    -------
    X : {ndarray, csr_array} of shape (n_samples, n_features)
    codes : ndarray of int, shape (n_samples,)
        The class of each sample.
    labels : list
        Label of each class, in the order of first appearance.
    """
    options = {"accept_sparse": "csr", "dtype": np.float64, "ensure_min_samples": 3} | options
    codes, labels = (None, []) if y is None else encode_labels(y)  # None is named below
    X, codes = validate_data(
        estimator, check_kind(X, ensure_2d=True), codes, ensure_all_finite=False, **options
    )
    X = check_finite(_canonical(X))
    warn_of_scales(X, getattr(estimator, "feature_names_in_", None))
    return X, codes, labels


def check_new_samples(estimator: Any, X: MatrixLike, **options: Any) -> Matrix:
    """Samples that a fitted estimator is asked about, with the columns that it has learned.

    Parameters
    ----------
    estimator : fitted estimator
    X : {array-like, sparse matrix, data frame} of shape (n_samples, n_features)
    **options
        For `sklearn.utils.validation.validate_data`.

    Returns
    -------
    {ndarray, csr_array} of shape (n_samples, n_features)
    """
    options = {"accept_sparse": "csr", "dtype": np.float64, "reset": False} | options
    X = validate_data(estimator, check_kind(X, ensure_2d=True), ensure_all_finite=False, **options)
    return check_finite(_canonical(X))


def column_names(X: MatrixLike) -> tuple[Any, ...] | None:
    """Names of the columns of a data frame, as scikit-learn notes them; None without names."""
    reader = BaseEstimator()
    validate_data(reader, X, skip_check_array=True)
    names = getattr(reader, "feature_names_in_", None)
    return None if names is None else tuple(names)


def check_columns(estimator: Any, X: MatrixLike) -> None:
    """Refuse a data frame whose columns are not those that an estimator has learned."""
    if hasattr(estimator, "feature_names_in_"):
        validate_data(estimator, X, skip_check_array=True, reset=False)


# book/door.ipynb#samples
_INSIDE: ContextVar[bool] = ContextVar("inside", default=False)


@contextlib.contextmanager
def inside() -> Iterator[None]:
    """A block in which samples come from this package: nobody is warned of their scales."""
    before = _INSIDE.get()
    try:
        _INSIDE.set(True)  # in the block: an interrupt may come at once
        yield
    finally:
        _INSIDE.set(before)


def warn_of_scales(X: Matrix, names: Sequence[Any] | None = None, stacklevel: int = 4) -> None:
    """Warn of the widest column of dense samples, if it hides the others from a metric.

    `stacklevel` is the caller that the warning names, as in `warnings.warn`. The default is
    right in a check that a method calls.
    """
    if sparse.issparse(X) or not len(X) or _INSIDE.get():
        return
    spread = X.std(axis=0)
    widest = int(spread.argmax())
    if spread[widest] > 100 * np.median(spread[spread > 0] if spread.any() else spread):
        column = widest if names is None else names[widest]
        warnings.warn(
            f"column {column!r} has more than 100 times the spread of the median column, so that"
            " distances are those of this column: scale the columns first, for example with"
            " scikit-learn's StandardScaler",
            stacklevel=stacklevel,
        )


# book/door.ipynb#samples
def warn_of_mean(X: Matrix, stacklevel: int = 3) -> None:
    """Warn of samples whose mean is far longer than their deviation, eq. (door-mean).

    Parameters
    ----------
    X : {ndarray, csr_array} of shape (n_samples, n_features)
        What a learner of inner products is given.
    stacklevel : int, default=3
        Which caller the warning names, as in `warnings.warn`; 3 is the caller's caller.
    """
    if X.shape[0] < 2 or _INSIDE.get():  # one sample has no deviation
        return
    mean = np.asarray(X.mean(axis=0)).ravel()
    total = float(np.linalg.norm(X.data if sparse.issparse(X) else X)) ** 2
    of_mean = X.shape[0] * float(mean @ mean)
    if of_mean > 4 * (total - of_mean):
        warnings.warn(
            "the mean of the samples is more than twice as long as their deviation from it, and"
            " inner products then compare each sample with the mean: subtract the mean of the"
            " task first, also from new samples",
            stacklevel=stacklevel,
        )


# book/door.ipynb#samples
def check_dense(A: MatrixLike, name: str, **options: Any) -> Floats:
    """A dense array of finite float64 of any size; with two axes, unless `options` differ.

    Parameters
    ----------
    A : array-like
    name : str
        What the messages call it.
    **options
        For `sklearn.utils.check_array`.

    Returns
    -------
    ndarray

    Raises
    ------
    ValueError, TypeError
        If it is no such array.
    """
    A = check_kind(A, name, options.get("ensure_2d", True))
    A = check_array(A, dtype=np.float64, ensure_all_finite=False, input_name=name, **options)
    return check_finite(A, name, largest=sys.float_info.max)


# book/door.ipynb#labels
def as_labels(y: LabelsLike) -> list[Any]:
    """The labels as they are, a list: an array would turn 1 and "1" into one class."""
    if isinstance(y, (list, tuple)):
        # np.ma.masked is an array, and a label that stands for none
        columns = [v for v in y if isinstance(v, (list, np.ndarray)) and v is not np.ma.masked]
        if not columns:
            return list(y)
        y = np.asarray(y, dtype=object)
    elif not isinstance(getattr(y, "dtype", None), np.dtype):
        y = np.asarray(y, dtype=object)  # other arrays of pandas or Arrow would become floats
    column = column_or_1d(y, warn=True)
    if np.ma.is_masked(y):  # a masked label is None
        column = np.ma.array(column, mask=np.ma.getmaskarray(np.ma.asarray(y)).ravel())
    return list(column) if column.dtype.kind in "mM" else column.tolist()  # times keep their unit


def labels_array(labels: list[Any]) -> NDArray[Any]:
    """A list of labels as an array: of objects where another one would change them."""
    if any(all(isinstance(v, kind) for v in labels) for kind in (numbers.Real, str, bytes)):
        array = np.array(labels)
        if array.tolist() == labels:
            return array
    return np.fromiter(labels, dtype=object, count=len(labels))


def is_missing(label: Any) -> bool:
    """Whether a label stands for none: NaN, infinite, None, or a mark of numpy or pandas."""
    if isinstance(label, Decimal):
        return not label.is_finite()
    if isinstance(label, numbers.Real):
        return bool(label - label != 0)
    if isinstance(label, np.datetime64 | np.timedelta64):
        return bool(np.isnat(label))
    return type(label).__name__ in {"NoneType", "NAType", "NaTType", "MaskedConstant"}


# book/door.ipynb#labels
def encode_labels(y: LabelsLike) -> tuple[Indices, list[Any]]:
    """Number the classes by first appearance.

    Parameters
    ----------
    y : array-like of shape (n_samples,)

    Returns
    -------
    codes : ndarray of int, shape (n_samples,)
        The class of each sample.
    labels : list
        Label of each class.

    Raises
    ------
    ValueError, TypeError
        If a label is missing or not hashable, or the labels look like those of regression.
    """
    labels = as_labels(y)
    codes = []
    seen: dict[Any, int] = {}
    for sample, label in enumerate(labels):
        if is_missing(label):
            raise ValueError(f"y[{sample}] is {label}: drop the samples without a label")
        try:
            codes.append(seen.setdefault(label, len(seen)))
        except TypeError:
            raise TypeError(
                f"y[{sample}] is {label!r}, which is not hashable: use numbers, strings or tuples"
            ) from None
    fractions = any(isinstance(label, (float, np.floating)) and label % 1 for label in seen)
    if fractions and len(seen) > max(10, len(labels) / 2):
        raise ValueError(
            f"Unknown label type: continuous. y holds {len(seen)} different numbers, some with"
            f" fractions, in {len(labels)} samples, as in regression: give classes"
        )
    return np.array(codes, dtype=np.intp), list(seen)


def sort_classes(y: LabelsLike, encoded: Any = None) -> tuple[NDArray[Any], Indices]:
    """The classes, sorted where they have an order, and the class of each sample.

    `encoded` is what `encode_labels` has made of `y`, if it was asked already.
    """
    codes, labels = encoded or encode_labels(y)
    try:
        order = sorted(range(len(labels)), key=labels.__getitem__)
    except TypeError:  # labels of several types
        order = list(range(len(labels)))
    if isinstance(getattr(y, "dtype", None), np.dtype):  # keep it
        classes = column_or_1d(y)[np.unique(codes, return_index=True)[1][order]]
    else:
        classes = labels_array([labels[i] for i in order])
    return classes, np.argsort(order)[codes]


# book/door.ipynb#names-of-tasks-weights-neighbors
def python_scalar(value: Any) -> Any:
    """A numpy scalar as the Python one that it equals; everything else as it is."""
    if not isinstance(value, np.generic) or isinstance(value, np.timedelta64):
        return value  # without its unit a span of time is another thing
    item = value.item()
    same = type(item) in (bool, int, float, str, bytes) and item == value
    return item if same and hash(item) == hash(value) else value


def check_name(name: Any, place: str) -> None:
    """Refuse a name of a task or a label that no file could hold.

    Strings, bytes, numbers, True, False and tuples of these (and of None) may be names.
    """
    name = python_scalar(name)
    kind = type(name)
    if kind is tuple:
        for part in name:
            check_name(part, place)
    elif not (name is None or kind in (str, bytes, bool, int) or (kind is float and name == name)):
        if is_missing(name):
            raise ValueError(f"{place} is missing or not equal to itself: give a name")
        raise TypeError(
            f"{place} has a part of type {kind.__name__}, which cannot be stored: use strings,"
            " numbers or tuples of them, such as str(name)"
        )


def check_task(task: Any, place: str = "task") -> None:
    """Refuse a name of a task that is missing, cannot be found again, or cannot be stored."""
    try:
        hash(task)
    except TypeError:
        raise TypeError(f"{place}={task!r} is not hashable: use a string or tuple") from None
    if task is None:
        raise ValueError(f"{place}=None is missing: give a name")
    check_name(task, f"{place}={task!r}")


def task_names(tasks: Any) -> list[Any]:
    """The name of each sample's task, as it is in an array, a column of a frame or any iterable."""
    return as_labels(tasks) if hasattr(tasks, "__array__") else list(tasks)


# book/door.ipynb#names-of-tasks-weights-neighbors
def check_known_task(task: Any, known: Collection[Any]) -> None:
    """Refuse a name of a task that is not known; the error says which ones are."""
    if not known:
        raise NotFittedError("no task has been learned: call fit or partial_fit")
    try:
        if task in known:
            return
    except TypeError:
        raise TypeError(f"task={task!r} is not hashable: use a string or tuple") from None
    some = list(itertools.islice(known, 10))
    more = f" and {len(known) - 10} more" if len(known) > 10 else ""
    raise ValueError(f"task {task!r} is not known; known tasks: {some}{more}")


def check_table(
    X: MatrixLike, y: LabelsLike, tasks: Iterable[Hashable], stacklevel: int = 4
) -> tuple[Matrix, list[Any], list[Hashable]]:
    """Samples, labels and names of tasks of a table, one of each for every line.

    `stacklevel` is that of `warn_of_scales`.
    """
    names = task_names(tasks)
    for line, task in enumerate(names):
        check_task(task, f"tasks[{line}]")
    columns = column_names(X)
    X = check_matrix(X, order="C")
    warn_of_scales(X, columns, stacklevel)
    labels = as_labels(y)
    check_consistent_length(X, labels, names)
    encode_labels(labels)  # refuses samples without a label
    if not names:
        raise ValueError("X has 0 samples: give the samples of at least one task")
    return X, labels, names


def has_pairs(codes: Indices, labels: Sequence[Any]) -> bool:
    """Whether some two samples are a similar pair and some two a dissimilar one."""
    return 1 < len(labels) < len(codes)


def check_two_classes(codes: Indices, labels: Sequence[Any], what: str = "y") -> None:
    """Refuse labels without a similar pair or without a dissimilar pair."""
    if not has_pairs(codes, labels):
        lack = "dissimilar" if len(labels) < 2 else "similar"
        raise ValueError(
            f"{what} has {len(codes)} samples of {len(labels)} classes, so there is no {lack}"
            " pair: give two classes, one with two samples"
        )


# book/door.ipynb#names-of-tasks-weights-neighbors
def check_weights(sample_weight: WeightsLike) -> Floats:
    """The weights of the samples, finite, none below 0, some above it."""
    weights = check_dense(sample_weight, "sample_weight", ensure_2d=False)
    if weights.ndim != 1 or weights.min() < 0 or not weights.any():
        raise ValueError(
            f"sample_weight has shape {weights.shape} and numbers from {weights.min():.3g} to"
            f" {weights.max():.3g}: give a number for each sample, of at least 0, one above it"
        )
    return weights


def check_n_neighbors(n_neighbors: int, n_references: int, without_itself: bool = False) -> int:
    """A number of neighbors that so many references have."""
    whole(1).check("n_neighbors", n_neighbors)
    if n_neighbors > n_references - without_itself:
        raise ValueError(
            f"n_neighbors is {n_neighbors}, but the references have n_samples = {n_references}"
            f"{' (the sample itself does not count)' * without_itself}: "
            "ask for fewer neighbors or give more samples"
        )
    return int(n_neighbors)
