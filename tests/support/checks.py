"""What holds for every public learner: functions `check_x(entry)`, for entries of `registry`.

`all_checks` gives each entry with each check that can reach it, as scikit-learn's
`parametrize_with_checks` does. A check that comes in variants gets the name of one. A warning
that no check asks for is an error (`filterwarnings` in pyproject.toml).
"""

from __future__ import annotations

import copy
import itertools
import pickle
import tempfile
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from registry import (
    ENTRIES,
    FAR,
    FAR_Y,
    FRESH,
    TASK_NAMES,
    WITHOUT_SAMPLES,
    X0,
    Y0,
    Entry,
    samples,
)
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from lml.plda.model import LogRatioMetric
from lml.state import read_state, write_state

# --- the list of checks -------------------------------------------------------------------


@dataclass(frozen=True)
class Check:
    function: Callable
    reaches: Callable
    variants: dict


CHECKS = []


def check(reaches=lambda entry: True, **variants):
    """Put a check on the list; `variants` are arguments, each with the values that it takes."""

    def register(function):
        CHECKS.append(Check(function, reaches, variants))
        return function

    return register


def all_checks():
    """Each entry with each check that reaches it, in each variant, under a readable id."""
    for entry, asked in itertools.product(ENTRIES, CHECKS):
        if asked.reaches(entry):
            for values in itertools.product(*asked.variants.values()):
                name = asked.function.__name__.removeprefix("check_")
                call = partial(asked.function, entry, **dict(zip(asked.variants, values)))
                yield pytest.param(entry, call, id="-".join([entry.name, name, *values]))


def by_task(entry):
    return entry.kind != "single"


def by_visit(entry):
    return entry.kind in ("stream", "references")


def takes_sparse(entry):
    return entry.takes_sparse


# --- what checks ask ----------------------------------------------------------------------


def is_finite(arrays):
    return all(np.isfinite(a).all() for a in arrays if np.asarray(a).dtype.kind == "f")


def assert_same(found, expected):
    """The same arrays, to the bit."""
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def assert_close(found, expected, rtol=1e-9):
    """Equal but for the last digits, which the layout of an array may change."""
    for a, b in zip(found, expected, strict=True):
        if np.asarray(b).dtype.kind in "iuOSTU":
            np.testing.assert_array_equal(a, b)
        else:
            np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-9 * np.abs(b).max())


def assert_refused(entry, X, y, said, error=ValueError):
    """The call fails with the words; a fresh and a fitted learner stay as they were, to the bit."""
    for model in (entry.make(), entry.learned()):
        before = pickle.dumps(model)
        with pytest.raises(error, match=said):
            entry.learn(model, X, y, task="new")
        assert pickle.dumps(model) == before


# --- the call -----------------------------------------------------------------------------


@check()
def check_learning_returns_the_learner(entry):
    model = entry.make()
    assert entry.learn(model, X0, Y0) is model
    read = "transform" if hasattr(model, "transform") else "predict"
    found = getattr(entry.learned(), read)(FRESH, **entry.where)
    np.testing.assert_array_equal(found, getattr(model, read)(FRESH, **entry.where))


@check()
def check_nothing_can_be_read_before_something_was_learned(entry):
    model = entry.make()
    arguments = entry.reading_arguments(model, FRESH)
    assert len(arguments) >= 2
    for name, given in arguments.items():
        with pytest.raises(NotFittedError):
            entry.read(model, name, given)
    assert not hasattr(model, "state_parts_")


@check(again=["pickle", "deepcopy"])
def check_a_copy_answers_as_the_original(entry, again):
    model = entry.learned()
    other = pickle.loads(pickle.dumps(model)) if again == "pickle" else copy.deepcopy(model)
    assert_same(entry.answers(other, FRESH), entry.answers(model, FRESH))


def spoil(value):
    """Write into all arrays that can be written into, through tables, tuples and objects."""
    if isinstance(value, np.ndarray):
        if value.flags.writeable:
            value[...] = value.flat[:1].sum() if value.dtype.kind == "O" else 0
    elif isinstance(value, dict):
        for part in value.values():
            spoil(part)
    elif isinstance(value, (tuple, list)):
        for part in value:
            spoil(part)
    elif hasattr(value, "__dict__"):
        for part in vars(value).values():
            spoil(part)


@check(lambda entry: entry.kind == "stream")
def check_a_record_is_shown_in_a_line(entry):
    model = entry.make(60)
    X = np.random.default_rng(0).normal(size=(400, 60))
    entry.learn(model, X, np.arange(400) % 200)
    shown = repr(model.tasks_["t"])
    assert len(shown) < 500
    assert "\n" not in shown
    assert shown.startswith(f"{type(model.tasks_['t']).__name__}(number=0")


@check(lambda entry: entry.kind == "stream")
def check_nothing_that_is_shown_can_change_the_learner(entry):
    model = entry.learn(entry.learned(), X0 + 1, Y0, task="other")
    twin = copy.deepcopy(model)
    names = [n for n in dir(type(model)) if n.endswith("_") and n[0] != "_" and hasattr(model, n)]
    assert {"tasks_", "n_features_in_"} <= set(names)
    for name in names:
        spoil(shown := getattr(model, name))
        if isinstance(shown, dict):
            shown.clear()
    for one in (model, twin):
        entry.learn(one, X0[:8], Y0[:8])
    assert_same(entry.answers(model, FRESH), entry.answers(twin, FRESH))


@check(lambda entry: entry.seeded)
def check_the_same_seed_gives_the_same_bits_whatever_the_global_seed(entry):
    np.random.seed(1)  # noqa: NPY002
    first = entry.answers(entry.learned(), FRESH)
    np.random.seed(2)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    assert_same(entry.answers(entry.learned(), FRESH), first)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


# --- samples that are hard to learn from --------------------------------------------------


@check()
def check_far_classes_are_learned_without_a_warning(entry):
    assert is_finite(entry.answers(entry.learned(FAR, FAR_Y), FAR))


@check(lambda entry: not entry.takes_one_class)
def check_one_class_is_refused_and_nothing_changes(entry):
    said = r"(one class only \(7\)|1 classes).*give ((rows|samples) of at least )?two"
    assert_refused(entry, X0, np.full(24, 7), said)


def taught_nothing(entry, X, y):
    """A learner of labels without a triplet; one that would learn a metric says so."""
    says = entry.family == "lifelong"
    with pytest.warns(UserWarning, match="has no triplet") if says else nullcontext():
        return entry.learn(entry.make(), X, y)


@check(lambda entry: entry.takes_one_class)
def check_one_class_is_taken(entry):
    model = taught_nothing(entry, X0, np.full(24, 7))
    if hasattr(model, "predict"):
        assert model.predict(FRESH, **entry.where).tolist() == [7] * 8
    else:
        np.testing.assert_array_equal(entry.answers(model, FRESH)[0], np.eye(4))


LEAST = {
    1: "minimum of 1 is required|0 samples of 0 classes|samples of at least one task",
    2: "give (two|at least one|the (rows|samples) of at least one)",
    3: r"minimum of 3|at least (3 (rows|samples)|one task|two classes)"
    "|two classes, one with two (rows|samples)",
}


@check()
def check_too_few_samples_are_refused_with_the_least_that_works(entry):
    for n in range(entry.name == "k-NN of OASIS", entry.least):  # without any: the least of k-NN
        assert_refused(entry, X0[:n], Y0[:n], LEAST[entry.least])
    learn = taught_nothing if entry.least == 1 else Entry.learned
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # so few may give a metric of zero
        model = learn(entry, X0[: entry.least], Y0[: entry.least])
    assert is_finite(entry.answers(model, FRESH))


@check()
def check_more_features_than_triplets_are_learned(entry):
    model = entry.learned(*samples(6, 50))
    assert is_finite(entry.answers(model, samples(6, 50, seed=1)[0]))


@check()
def check_a_class_of_one_sample_does_no_harm(entry):
    assert is_finite(entry.answers(entry.learned(X0, np.r_[[9], Y0[1:]]), FRESH))


COPIES = {
    "three of each": (np.repeat(X0, 3, axis=0), np.repeat(Y0, 3)),
    "ones": (np.ones((9, 4)), np.arange(9) % 2),
    "zeros": (np.zeros((9, 4)), np.arange(9) % 2),
}


@check(kind=COPIES)
def check_copies_of_samples_are_learned_without_a_division_by_zero(entry, kind):
    X, y = COPIES[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # that a metric is zero may be said
        warnings.filterwarnings("ignore", "the mean of the samples")  # and that all are equal
        model = entry.learned(X, y)
        assert is_finite(entry.answers(model, FRESH))
        assert is_finite(entry.answers(model, X))


@check()
def check_a_constant_column_does_no_harm(entry):
    X = X0.copy()
    X[:, 1] = 7.0
    X -= 0.9 * X.mean(axis=0)
    assert is_finite(entry.answers(entry.learned(X, Y0), FRESH))


@check()
def check_blank_pixels_do_no_harm(entry):
    digits, y = load_digits(return_X_y=True)
    own = np.flatnonzero(y < 2)[:40]
    X = digits[own]  # raw: 0 to 16
    assert (np.ptp(X, axis=0) == 0).sum() > 10
    assert is_finite(entry.answers(entry.learned(X, y[own]), X))


@check()
def check_samples_of_very_different_size_are_learned(entry):
    sizes = np.where(np.arange(24) % 3 == 0, 1e4, 1e-4)[:, None]
    X = X0 / np.linalg.norm(X0, axis=1, keepdims=True) * sizes
    assert is_finite(entry.answers(entry.learned(X, Y0), X))


# --- features and tasks over time ---------------------------------------------------------


@check(by_visit)
def check_a_second_task_of_other_features_is_refused_with_both_numbers(entry):
    model = entry.learned()
    before = pickle.dumps(model)
    for width in (3, 7):
        X, y = samples(D=width)
        with pytest.raises(ValueError, match=rf"X has {width} features.* 4"):
            entry.learn(model, X, y, task="new")
    assert pickle.dumps(model) == before


@check()
def check_readings_of_other_features_are_refused_with_both_numbers(entry):
    model = entry.learned()
    for width in (3, 7):
        for name, given in entry.reading_arguments(model, samples(8, width)[0]).items():
            if name not in WITHOUT_SAMPLES:
                with pytest.raises(ValueError, match=rf"({width} features|, {width}\)).* 4"):
                    entry.read(model, name, given)


@check(lambda entry: hasattr(entry.make(4), "transform"))
def check_an_index_of_mapped_samples_finds_the_nearest_of_the_metric(entry):
    rng = np.random.default_rng(2)
    model = entry.learned()
    queries = rng.normal(size=(5, 4))
    references = rng.normal(size=(7, 4))
    asked = model.transform(queries, role="query", **entry.where)
    listed = model.transform(references, role="reference", **entry.where)
    space = model.index_space_ if entry.kind == "single" else model.index_space("t")
    if space == "inner product":
        found = asked @ listed.T
    else:
        found = -((asked[:, None] - listed) ** 2).sum(axis=2)
    metric = model.metric_ if entry.kind == "single" else model.task_metric("t")
    if isinstance(metric, LogRatioMetric):  # `pair_score` has another within-class covariance
        scores = metric.bilinear(queries, references)
    else:
        pairs = np.stack(np.broadcast_arrays(queries[:, None], references), axis=2)
        scores = model.pair_score(pairs.reshape(-1, 2, 4), **entry.where).reshape(5, 7)
    # equal but for a factor and a number of each query
    changes = (np.diff(table, axis=1) for table in (scores, found))
    expected, given = (change / np.linalg.norm(change) for change in changes)
    np.testing.assert_allclose(given, expected, rtol=1e-9, atol=1e-12)
    with pytest.raises(ValueError, match="role"):
        model.transform(queries, role="left", **entry.where)


@check(by_task)
def check_names_of_tasks_are_no_places(entry):
    parts = {TASK_NAMES[k]: samples(12, seed=k) for k in (2, 0, 1)}
    model = entry.learn_several(entry.make(), parts)
    known = model.references_ if entry.kind == "references" else model.tasks_
    assert list(known) == list(parts)
    read = model.transform if hasattr(model, "transform") else model.predict
    for name in TASK_NAMES:
        assert len(read(FRESH, task=name)) == len(FRESH)
    with pytest.raises(ValueError, match=r"known tasks: \[\('a', 1\), 'paris', 42\]"):
        read(FRESH, task=0)  # not the first task
    with pytest.raises(ValueError, match="known tasks"):
        read(FRESH, task="42")


@check(lambda entry: entry.kind == "table")
def check_names_of_tasks_come_in_any_container(entry):
    import polars

    names = ["p"] * 12 + ["q"] * 12
    for tasks in (
        names,
        tuple(names),
        iter(names),
        np.array(names),
        np.array(names, dtype=object),
        pd.Series(names, index=range(50, 74)),
        pd.Series(names, dtype="category"),
        pd.Series(names, dtype="string"),
        polars.Series(names),
    ):
        model = entry.make().fit(X0, Y0, tasks=tasks)
        assert [type(name) for name in model.tasks_] == [str, str]
        assert list(model.tasks_) == ["p", "q"]


@check(by_task)
def check_a_name_that_cannot_be_found_again_is_refused(entry):
    for name in (["x"], {"x"}, {}, np.array([1]), float("nan"), None, pd.NA, pd.NaT):
        for model in (entry.make(), entry.learned()):
            before = pickle.dumps(model)
            with pytest.raises((TypeError, ValueError), match=r"tasks?(\[0\])?( is |=)"):
                entry.learn(model, X0, Y0, task=name)
            assert pickle.dumps(model) == before


UNEQUAL = {"tuple": (1, float("nan")), "tuple in a tuple": ("a", (np.nan,))}
DAY = np.datetime64("2020-01-01")
NOT_STORED = {
    "day": DAY,
    "nanosecond": DAY.astype("M8[ns]"),
    "timestamp": pd.Timestamp("2020-01-01"),
    "date": DAY.item(),
    "span": np.timedelta64(1, "D"),
    "set": frozenset({1}),
    "decimal": Decimal(1),
    "day in a tuple": ("a", DAY),
}


@check(by_task, kind=NOT_STORED)
def check_a_name_that_no_file_can_hold_is_refused_on_arrival(entry, kind):
    model = entry.make()
    before = pickle.dumps(model)
    with pytest.raises(TypeError, match="cannot be stored"):
        entry.learn(model, X0, Y0, task=NOT_STORED[kind])
    assert pickle.dumps(model) == before


@check(lambda entry: entry.kind == "table")
def check_times_are_no_names_of_tasks_in_any_container(entry):
    days = np.repeat(np.array(["2020-01-01", "2020-01-02"], dtype="M8[D]"), 12)
    for tasks in (days, days.astype("M8[ns]"), list(days), pd.Series(days), days - days[0]):
        with pytest.raises(TypeError, match=r"tasks\[0\]=.* cannot be stored"):
            entry.make().fit(X0, Y0, tasks=tasks)


@check(lambda entry: entry.kind in ("stream", "references"))
def check_a_label_that_no_file_can_hold_is_refused_on_arrival(entry):
    labels = np.repeat(np.array(["2020-01-01", "2020-01-02"], dtype="M8[ns]"), 12)
    for given in (labels, list(labels), pd.Series(labels), [Decimal(int(c)) for c in Y0]):
        assert_refused(entry, X0, given, "label .* cannot be stored", TypeError)


@check(by_visit, kind=UNEQUAL)
def check_a_name_with_a_part_that_is_not_equal_to_itself_is_refused(entry, kind):
    model = entry.make()
    before = pickle.dumps(model)
    with pytest.raises((TypeError, ValueError), match="equal"):
        entry.learn(model, X0, Y0, task=UNEQUAL[kind])
    assert pickle.dumps(model) == before


@check(by_task)
def check_an_unknown_task_is_answered_with_the_known_ones(entry):
    model = entry.learned()
    before = pickle.dumps(model)
    for name, given in entry.reading_arguments(model, FRESH).items():
        for task in ("never seen", 0, None):
            with pytest.raises(ValueError, match=r"known tasks: \['t'\]"):
                entry.read(model, name, given, task)
        with pytest.raises((ValueError, TypeError), match=r"known tasks: \['t'\]|equals? .*itself"):
            entry.read(model, name, given, float("nan"))
        for task in (["t"], np.array(["t"])):
            with pytest.raises((ValueError, TypeError), match=r"tasks?(\[0\])?( is |=)"):
                entry.read(model, name, given, task)
    assert pickle.dumps(model) == before


@check(lambda entry: entry.kind == "stream", kind=["int64", "bool", "float32", "float64"])
def check_numbers_of_another_type_in_a_file_are_refused(entry, kind):
    model = entry.learned()
    name = type(model).__name__
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s"
        model.save(path)
        meta, arrays = read_state(path, name)
        for part, array in arrays.items():
            if array.dtype != kind:
                write_state(path, name, meta, {**arrays, part: array.astype(kind)})
                with pytest.raises(ValueError, match=f"type of {part} is .*{kind}"):
                    type(model).load(path)
