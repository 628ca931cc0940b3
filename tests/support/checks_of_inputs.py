"""Checks of what a learner is given: numbers that are none, labels, containers of samples.

They join the list of `checks`.
"""

from __future__ import annotations

import copy
import linecache
import pickle
import tracemalloc
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from checks import assert_close, assert_refused, assert_same, check, takes_sparse
from registry import FRESH, WITHOUT_SAMPLES, X0, Y0
from scipy import sparse
from sklearn.exceptions import DataConversionWarning

from lml.baselines import ELLA
from lml.evaluation import LifelongKNeighborsClassifier

# --- numbers that are none ----------------------------------------------------------------

NOT_FINITE = {"nan": (3, 2, np.nan), "-inf": (5, 0, -np.inf), "inf": (0, 3, np.inf)}
CONTAINERS = {"float64": np.asarray, "float32": np.float32, "sparse": sparse.csr_array}


@check(kind=NOT_FINITE, container=CONTAINERS)
def check_a_value_that_is_not_finite_is_named_and_nothing_changes(entry, kind, container):
    line, column, value = NOT_FINITE[kind]
    X = X0.copy()
    X[line, column] = value
    X = CONTAINERS[container](X)
    if sparse.issparse(X) and not entry.takes_sparse:
        said = rf"is sparse|X\[{line}, {column}\] is {kind}"
        assert_refused(entry, X, Y0, said, (TypeError, ValueError))
    else:
        assert_refused(entry, X, Y0, rf"X\[{line}, {column}\] is {kind}: .*remove or impute")


@check()
def check_readings_name_a_value_that_is_not_finite(entry):
    model, X = entry.learned(), FRESH.copy()
    X[4, 1] = np.nan
    arguments = entry.reading_arguments(model, X)
    before = pickle.dumps(model)
    asked = [name for name in arguments if name not in WITHOUT_SAMPLES]
    assert len(asked) >= 2
    for name in asked:
        place = r"pairs\[1, 1, 1\]" if name.startswith("pair_") else r"X\[4, 1\]"
        with pytest.raises(ValueError, match=rf"{place} is nan: .*remove or impute"):
            entry.read(model, name, arguments[name])
    assert pickle.dumps(model) == before


@check()
def check_numbers_whose_squares_overflow_are_refused(entry):
    X = X0.copy()
    X[3, 2] = -1e200
    said = r"X holds a number of size 1e\+200.*rescale the (rows|samples)"
    assert_refused(entry, X, Y0, said)


DATES = (1000 * np.abs(X0)).astype(np.int64)
LOSSY = {
    "masked": np.ma.masked_less(X0, np.median(X0)),
    "masked list": list(np.ma.masked_less(X0, np.median(X0))),
    "complex": X0 + 0j,
    "complex objects": (X0 + 0j).astype(object),
    "dates": DATES.astype("M8[s]"),
    "durations": DATES.astype("m8[s]"),
    "frame of dates": pd.DataFrame(DATES.astype("M8[s]")),
    "objects that are durations": np.array(
        [[np.timedelta64(v, "s") for v in line] for line in DATES.tolist()], dtype=object
    ),
}


@check(kind=LOSSY)
def check_samples_that_would_lose_a_mask_or_a_unit_are_refused(entry, kind):
    said = r"masked|omplex|datetime|timedelta"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
        assert_refused(entry, LOSSY[kind], Y0, f"{said}|sparse", (ValueError, TypeError))
        model = entry.learned()
        before = pickle.dumps(model)
        arguments = entry.reading_arguments(model, X0)
        for name in {"transform", "predict", "kneighbors", "decision_function"} & set(arguments):
            with pytest.raises((ValueError, TypeError), match=said):
                entry.read(model, name, (LOSSY[kind],))
        assert pickle.dumps(model) == before


@check()
def check_a_mask_of_nothing_masks_nothing(entry):
    expected = entry.answers(entry.learned(), FRESH)
    assert_same(entry.answers(entry.learn(entry.make(), np.ma.array(X0), Y0), FRESH), expected)
    assert_same(entry.answers(entry.learn(entry.make(), X0, np.ma.array(Y0)), FRESH), expected)


# --- labels -------------------------------------------------------------------------------

LABELS = {
    "words": ["cat", "dog"],
    "mixed case": ["a", "B"],
    "one word, two cases": ["CAT", "cat"],
    "bools": [False, True],
    "numbers": [7, 9],
    "a number and its name": [1, "1"],
    "tuples": [("a", 1), ("a", 2)],
    "bytes": [b"a", b"b"],
    "large numbers": [5, 10**30],
    "fractions": [0.5, 1.5],
    "empty and blank": ["", " "],
}
# numpy has no array of several types, nor of tuples: those come as lists and as objects
NO_ARRAY = ("a number and its name", "tuples", "large numbers")


@check(kind=LABELS, container=["list", "objects", "array"])
def check_labels_are_names(entry, kind, container):
    names = LABELS[kind]
    labels = [names[c] for c in Y0]
    if container == "objects" or (container == "array" and kind in NO_ARRAY):
        labels = np.fromiter(labels, dtype=object, count=len(labels))
    elif container == "array":
        labels = np.array(labels)
    model, numbered = entry.learned(X0, labels), entry.learned()
    found, expected = entry.answers(model, FRESH), entry.answers(numbered, FRESH)
    if isinstance(model, LifelongKNeighborsClassifier):
        assert found[0].tolist() == [names[c] for c in expected[0]]
    elif isinstance(model, ELLA):  # classes in the order of their labels
        np.testing.assert_allclose(abs(found[0]), abs(expected[0]), rtol=1e-6)
    else:
        assert_same(found, expected)
    if hasattr(model, "predict"):
        given = [names[c] for c in numbered.predict(FRESH, **entry.where)]
        assert model.predict(FRESH, **entry.where).tolist() == given
        assert entry.read(model, "score", (FRESH, given)) == 1.0


LARGE = [2**60 + 1, 2**60 + 2]  # one float
KEPT = {
    "pandas Int64": ("Int64", LARGE),
    "pandas small Int64": ("Int64", [1, 2]),
    "pandas boolean": ("boolean", [False, True]),
    "pandas string": ("string", ["1", "2"]),
    "pandas str": ("str", ["1", "2"]),
    "pandas category": ("category", LARGE),
    "Arrow int64": ("int64[pyarrow]", LARGE),
    "Arrow bool": ("bool[pyarrow]", [False, True]),
    "Arrow string": ("string[pyarrow]", ["1", "2"]),
    "Arrow array": ("array", LARGE),
    "polars": ("polars", LARGE),
    "strings of numpy": ("StringDType", ["1", "2"]),
}


@check(kind=KEPT)
def check_labels_keep_their_values_in_every_container(entry, kind):
    form, names = KEPT[kind]
    labels = [names[c] for c in Y0]
    if "arrow" in kind.lower():
        pyarrow = pytest.importorskip("pyarrow")
    if form == "array":
        given = pyarrow.array(labels)
    elif form == "polars":
        given = pytest.importorskip("polars").Series(labels)
    elif form == "StringDType":
        given = np.array(labels, dtype=np.dtypes.StringDType())
    else:
        given = pd.Series(labels, dtype=form, index=range(100, 124))
    model, listed = entry.learned(X0, given), entry.learned(X0, labels)
    assert_same(entry.answers(model, FRESH), entry.answers(listed, FRESH))
    if hasattr(model, "predict"):
        found, expected = (m.predict(X0, **entry.where).tolist() for m in (model, listed))
        assert found == expected
        assert {*map(type, found)} == {*map(type, names)}
        assert entry.read(model, "score", (X0, given)) == entry.read(listed, "score", (X0, labels))
    for record in getattr(model, "tasks_", {}).values() if entry.kind == "stream" else ():
        assert sorted(getattr(record, "classes", names)) == names


@check()
def check_a_missing_label_of_a_column_is_named(entry):
    labels = pd.array(Y0, dtype="Int64")
    labels[7] = pd.NA
    assert_refused(entry, X0, labels, r"y\[7\] is <NA>")
    times = np.where(np.arange(24) == 7, np.datetime64("NaT"), np.datetime64("2020-01-01"))
    assert_refused(entry, X0, times, r"y\[7\] is NaT")


MISSING = {
    "None": None,
    "nan": float("nan"),
    "numpy's nan": np.float64("nan"),
    "inf": float("inf"),
}


@check(missing=MISSING)
def check_a_missing_label_is_named(entry, missing):
    y = np.array(Y0, dtype=object)
    y[5] = MISSING[missing]
    for labels in (y, list(y)):
        said = r"y\[5\] is (None|nan|inf): drop the (rows|samples) without"
        assert_refused(entry, X0, labels, said)


WRONG_AT_LAST = {
    "missing": (
        [None if line == 59 else c for line, c in enumerate([*Y0] * 3)],
        r"y\[59\] is None",
    ),
    "one class": (np.r_[Y0, Y0, 0 * Y0], "y of task 'c' has 24 samples of 1 classes"),
}


@check(lambda entry: entry.kind == "table", wrong=WRONG_AT_LAST)
def check_the_last_task_of_a_table_is_checked_before_the_first_is_learned(entry, wrong):
    y, said = WRONG_AT_LAST[wrong]
    if wrong == "one class" and entry.name in ("pooled", "ELLA table", "lifelong table"):
        return  # they take such a task
    model = entry.make()
    with pytest.MonkeyPatch.context() as patch:
        if hasattr(model, "_learn_task"):
            patch.setattr(type(model), "_learn_task", lambda *_: pytest.fail("a task was learned"))
        with pytest.raises(ValueError, match=said):
            model.fit(np.concatenate([X0] * 3), y, tasks=np.repeat(["a", "b", "c"], 24))


STANDS_FOR_NONE = {
    "decimal nan": Decimal("NaN"),
    "decimal infinity": Decimal("Infinity"),
    "mask": np.ma.masked,
}


@check(missing=STANDS_FOR_NONE, others=["decimals", "words"])
def check_a_label_that_stands_for_none_is_named(entry, missing, others):
    labels = [Decimal(int(c)) if others == "decimals" else "ab"[c] for c in Y0]
    labels[5] = STANDS_FOR_NONE[missing]
    assert_refused(entry, X0, labels, r"y\[5\]")


@check()
def check_a_masked_label_is_named(entry):
    y = np.ma.array(Y0, mask=np.arange(len(Y0)) == 7)
    assert_refused(entry, X0, y, r"y\[7\] is None")


@check()
def check_a_column_of_labels_warns_and_works(entry):
    with pytest.warns(DataConversionWarning, match="A column-vector y was passed"):
        model = entry.learn(entry.make(), X0, Y0[:, None])
    assert_same(entry.answers(model, FRESH), entry.answers(entry.learned(), FRESH))


@check()
def check_a_wrong_number_of_labels_is_refused_with_both_numbers(entry):
    assert_refused(entry, X0, Y0[:-1], r"(?s)24.*23")
    assert_refused(entry, X0, np.r_[Y0, 0], r"(?s)24.*25")
    assert_refused(entry, X0, np.c_[Y0, Y0], r"y should be a 1d array, got .* \(24, 2\)")


@check(lambda entry: hasattr(entry.make(), "score"))
def check_a_wrong_number_of_labels_to_score_is_refused_with_both_numbers(entry):
    with pytest.raises(ValueError, match=r"(?s)8.*7"):
        entry.read(entry.learned(), "score", (FRESH, Y0[:7]))


# --- containers ---------------------------------------------------------------------------


def dense_containers():
    spread, read_only = np.zeros((48, 8)), X0.copy()
    spread[::2, ::2] = X0
    read_only.flags.writeable = False
    return {
        "float32": X0.astype(np.float32),
        "Fortran": np.asfortranarray(X0),
        "view": spread[::2, ::2],
        "backwards": X0[::-1].copy()[::-1],
        "read-only": read_only,
        "list": X0.tolist(),
        "big-endian": X0.astype(">f8"),
        "objects": X0.astype(object),
    }


@check(kind=dense_containers())
def check_the_container_does_not_matter_and_is_not_touched(entry, kind):
    X, y = dense_containers()[kind], Y0.copy()
    y.flags.writeable = False
    before = copy.deepcopy(X)
    model = entry.learn(entry.make(), X, y)
    assert_close(entry.answers(model, X0), entry.answers(entry.learned(), X0))
    assert_close(entry.answers(model, X), entry.answers(model, X0))
    assert np.array_equal(np.asarray(X), np.asarray(before))
    assert type(X) is type(before)


@check(kind=["pandas", "pandas nullable", "polars"])
def check_a_data_frame_gives_what_an_array_gives(entry, kind):
    import polars

    columns, words = ["a", "b", "c", "d"], ["cat" if c else "dog" for c in Y0]
    if kind == "polars":
        X, y = polars.DataFrame(X0, schema=columns), polars.Series(Y0)
        before, series = X.clone(), polars.Series(words)
    else:
        X, y = pd.DataFrame(X0, columns=columns, index=range(100, 124)), pd.Series(Y0)
        X = X.astype("Float64") if "nullable" in kind else X
        before, series = X.copy(), pd.Series(words, dtype="category")
    model = entry.learn(entry.make(), X, y)
    assert_close(entry.answers(model, X), entry.answers(entry.learned(), X0))
    assert X.equals(before)
    again, named = entry.learn(entry.make(), X, series), entry.learned(X0, words)
    assert_close(entry.answers(again, X), entry.answers(named, X0))


def assert_names_the_call(warned, entry):
    """The line that a warning names is that on which the learner was called."""
    assert warned.filename == entry.learn.__code__.co_filename
    assert "return model." in linecache.getline(warned.filename, warned.lineno)


@check(lambda entry: entry.kind != "references")  # its learner warns
def check_a_column_that_hides_the_others_is_named_once(entry):
    scales = np.array([1.0, 1000.0, 1.0, 1.0])
    forms = [(X0 * scales, "1"), (pd.DataFrame(X0 * scales, columns=list("abcd")), "'b'")]
    for X, name in forms:
        model = entry.make()
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            entry.learn(model, X, Y0)
            if entry.kind == "stream":
                entry.learn(model, X, Y0, task="u")  # said already
        of_scales = [one for one in found if "100 times" in str(one.message)]
        said = [str(one.message) for one in of_scales]
        assert len(said) == 1
        assert_names_the_call(of_scales[0], entry)
        assert said[0].startswith(f"column {name} has more than 100 times the spread")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*100 times the spread")
        entry.learn(entry.make(), X0 * np.array([1.0, 30.0, 1.0, 1.0]), Y0)


OF_PRODUCTS = ["OASIS", "k-NN of OASIS", "lifelong OASIS", "lifelong table"]
OF_PRODUCTS += ["the paper's", "the paper's table"]


@check(lambda entry: entry.kind != "references")  # its learner warns
def check_a_mean_that_hides_the_samples_is_named_once_where_products_are_compared(entry):
    own = X0 - X0.mean(axis=0)
    length = np.sqrt(np.mean(np.sum(own**2, axis=1)))
    direction = np.array([0.6, 0.0, -0.8, 0.0])
    said = {}
    for ratio in (1.9, 2.1):
        model = entry.make()
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            entry.learn(model, own + ratio * length * direction, Y0)
            if entry.kind == "stream":
                entry.learn(model, own + 9 * length * direction, Y0, task="u")  # said already
        of_mean = [one for one in found if "mean of the samples is more than" in str(one.message)]
        said[ratio] = len(of_mean)
        for one in of_mean:
            assert_names_the_call(one, entry)
    assert said == {1.9: 0, 2.1: int(entry.name in OF_PRODUCTS)}


WORDS = ["pandas category", "pandas object", "pandas str", "polars String", "polars Categorical"]


@check(kind=WORDS)
def check_a_column_of_words_is_named(entry, kind):
    package, dtype = kind.split()
    words = ["red" if c else "green" for c in Y0]
    frame = dict(zip("abc", X0.T))
    if package == "pandas":
        X = pd.DataFrame(frame).assign(color=pd.Series(words, dtype=dtype))
    else:
        polars = pytest.importorskip("polars")
        X = polars.DataFrame(frame | {"color": polars.Series(words, dtype=getattr(polars, dtype))})
    assert_refused(entry, X, Y0, "column 'color' of X is of type .*: encode it as numbers")


@check(lambda entry: entry.kind != "references", kind=["pandas", "polars"])  # its learner knows
def check_a_frame_of_other_columns_is_refused_wherever_samples_are_read(entry, kind):
    import polars

    def frame(X, columns="abcd"):
        columns = dict(zip(columns, X.T))
        return pd.DataFrame(columns) if kind == "pandas" else polars.DataFrame(columns)

    model = entry.learned(frame(X0))
    known = frame(FRESH)
    for name, given in entry.reading_arguments(model, FRESH).items():
        if name in WITHOUT_SAMPLES:
            continue
        for other in (known[list("dcba")], frame(FRESH, "abcz")):
            tables = [(other, known), (known, other)] if name.startswith("pair_") else [other]
            for table in tables:
                with pytest.raises(ValueError, match="feature names should match"):
                    entry.read(model, name, (table, *given[1:]))


@check(lambda entry: hasattr(entry.learned(), "pair_score"))
def check_pairs_come_as_two_arrays(entry):
    model, pairs = entry.learned(), np.stack([FRESH[:4], FRESH[4:]], axis=1)
    asked = [name for name in ("pair_score", "pair_distance") if hasattr(model, name)]
    for name in asked:
        expected = entry.read(model, name, (pairs,))
        assert_same([entry.read(model, name, ((FRESH[:4], FRESH[4:]),))], [expected])
        with pytest.raises(ValueError, match=r"shapes \(4, 4\) and \(3, 4\)"):
            entry.read(model, name, ((FRESH[:4], FRESH[4:7]),))


def wide(X):
    """A CSR array with 64-bit indices."""
    X = sparse.csr_array(X)
    places = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    return sparse.csr_array((X.data, *places), shape=X.shape)


SPARSE = {
    "csr_array": sparse.csr_array,
    "csr_matrix": sparse.csr_matrix,
    "csc_array": sparse.csc_array,
    "coo_array": sparse.coo_array,
    "lil_array": sparse.lil_array,
    "dok_array": sparse.dok_array,
    "bsr_array": sparse.bsr_array,
    "wide indices": wide,
}


@check(takes_sparse, kind=SPARSE)
def check_sparse_samples_give_what_dense_ones_give(entry, kind):
    X = X0 * (np.random.default_rng(0).random(X0.shape) < 0.6)
    held = SPARSE[kind](X)
    before = held.toarray()
    model, expected = entry.learn(entry.make(), held, Y0), entry.learned(X, Y0)
    assert_close(entry.answers(model, X), entry.answers(expected, X))
    assert_close(entry.answers(expected, held), entry.answers(expected, X))
    np.testing.assert_array_equal(held.toarray(), before)


def twice_stored(X, zeros=False):
    """The samples as CSR, with every number in two halves, or beside a stored zero."""
    n, D = X.shape
    parts = np.stack([X, np.zeros_like(X)] if zeros else [X / 2, X / 2], axis=2)
    columns = np.tile(np.repeat(np.arange(D), 2)[::-1], n)  # not sorted, too
    data = parts[:, ::-1, ::-1].ravel()
    made = sparse.csr_array((data, columns, np.arange(0, 2 * n * D + 1, 2 * D)), shape=X.shape)
    assert not made.has_canonical_format
    return made


@check(takes_sparse, parts=["halves", "zeros"])
def check_numbers_stored_in_several_parts_are_their_sum(entry, parts):
    given = twice_stored(X0, zeros=parts == "zeros")
    before = given.copy()
    found = entry.answers(entry.learn(entry.make(), given, Y0), FRESH)
    expected = entry.answers(entry.learn(entry.make(), sparse.csr_array(X0), Y0), FRESH)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)
    for part in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(given, part), getattr(before, part))


FILLS = r"X is sparse( \(24, 4\))?, but .* fill.* all 4 features: reduce the (rows|samples) first"


@check(lambda entry: not entry.takes_sparse)
def check_sparse_samples_are_refused_by_learners_of_full_metrics(entry):
    assert_refused(entry, sparse.csr_array(X0), Y0, FILLS, TypeError)


@check(takes_sparse)
def check_nothing_is_made_dense_at_35846_features(entry):
    """A dense copy of the samples would take 86 MB, a D x D array 10 GB."""
    X = sparse.random_array((300, 35_846), density=0.001, rng=np.random.default_rng(0))
    X, y = sparse.csr_array(X), np.arange(300) % 2
    model = entry.make(35_846)
    tracemalloc.start()
    try:
        entry.learn(model, X, y)
        if hasattr(model, "pair_score"):
            scores = model.pair_score((X[:50], X[50:100]), **entry.where)
        else:
            scores = model.predict(X[:50], **entry.where)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert scores.shape == (50,)
    assert peak < 30e6
