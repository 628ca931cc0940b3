"""The door of the package: checks of arguments and small linear algebra, each against an oracle."""

from __future__ import annotations

import inspect
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from scipy import linalg, sparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import DataConversionWarning
from sklearn.linear_model import LinearRegression

from lml.metrics import FactoredMetric
from lml.neighbors import k_nearest
from lml.oasis import OASIS
from lml.utils.linalg import dense, is_symmetric, nbytes, stacked, svd, times_transpose
from lml.utils.validation import (
    InvalidParameterError,
    Rule,
    as_labels,
    check_columns,
    check_dense,
    check_finite,
    check_kind,
    check_known_task,
    check_matrix,
    check_n_neighbors,
    check_new_samples,
    check_parameters,
    check_samples,
    check_table,
    check_task,
    check_two_classes,
    check_weights,
    column_names,
    encode_labels,
    flag,
    has_pairs,
    is_missing,
    is_real,
    is_whole,
    jobs,
    labels_array,
    one_of,
    optional,
    real,
    seed,
    sort_classes,
    whole,
)

NAN, INF = float("nan"), float("inf")
X0, Y0 = np.diag([1.0, 2.0, 3.0]), ["b", "a", "b"]

# --- parameters ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "is_a_real", "is_a_whole"),
    [
        (3, True, True),
        (np.int8(3), True, True),
        (2.5, True, False),
        (np.float32(2.5), True, False),
        (Fraction(1, 3), True, False),
        (NAN, True, False),
        (10**400, False, True),
        (True, False, False),
        (np.True_, False, False),
        ("3", False, False),
        (1j, False, False),
        (None, False, False),
    ],
)
def test_numbers_are_told_from_what_looks_like_them(value, is_a_real, is_a_whole):
    assert is_real(value) == is_a_real
    assert is_whole(value) == is_a_whole


RULES = {
    "closed": (real(0, 2), [0, 2, 0.5, np.float32(1)], [-1e-9, 2.1, NAN, INF, True, "1", None]),
    "above": (real(0, above=True), [1e-300, 5], [0, 0.0, -1, INF]),
    "infinite": (real(0, infinite=True), [0, INF], [-INF, NAN, 10**400]),
    "any number": (real(), [-1e300, 0, 1e300], [NAN, INF, -INF]),
    "whole": (whole(1, 3), [1, 3, np.int64(2)], [0, 4, 2.0, True, "2", None]),
    "choice": (one_of("a", None), ["a", None], ["b", 1, ["a"], {}]),
    "flag": (flag(), [True, False, np.True_], [0, 1, "yes", None]),
    "jobs": (jobs(), [None, 1, -1, np.int64(2)], [0, 1.0, True, "a"]),
    "optional": (optional(whole(1)), [None, 1], [0, 1.5]),
    "seed": (
        seed(),
        [None, 0, 2**32 - 1, np.random.RandomState(0)],
        [-1, 2**32, 1.5, "0", np.random.default_rng(0)],
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_a_rule_allows_what_it_says_and_its_message_says_what_to_give(name):
    rule, allowed, refused = RULES[name]
    for value in allowed:
        rule.check("size", value)
    for value in refused:
        with pytest.raises(InvalidParameterError) as caught:
            rule.check("size", value)
        assert str(caught.value) == f"size={value!r}: give {rule.wanted}"


@pytest.mark.parametrize(
    ("rule", "wanted"),
    [
        (real(0, 2), "a number of at least 0 and at most 2"),
        (real(0, above=True), "a number above 0"),
        (real(infinite=True), "a number, which may be infinite"),
        (whole(1, 3), "a whole number of at least 1 and at most 3"),
        (optional(flag()), "True or False, or None"),
        (one_of("a", "b"), "one of ('a', 'b')"),
    ],
)
def test_the_words_of_a_rule(rule, wanted):
    assert rule.wanted == wanted


def test_an_invalid_parameter_is_an_error_of_value_and_of_type():
    assert issubclass(InvalidParameterError, ValueError)
    assert issubclass(InvalidParameterError, TypeError)


def test_parameters_of_an_estimator_are_checked_by_its_table():
    class Learner(BaseEstimator):
        def __init__(self, rate=1, steps=1):
            self.rate = rate
            self.steps = steps

    Learner._parameter_rules = {"rate": Rule(lambda value: value == 1, "one"), "steps": whole(1)}
    assert check_parameters(Learner()) is None
    with pytest.raises(InvalidParameterError, match="steps=0: give a whole number of at least 1"):
        check_parameters(Learner(steps=0))
    with pytest.raises(InvalidParameterError, match="rate=2: give one"):
        check_parameters(Learner(rate=2, steps=0))


# --- samples ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lossy", "said"),
    [
        (np.ma.masked_equal([1.0, 2.0], 2.0), "A has masked entries"),
        ([1.0, np.ma.masked], "A has masked entries"),
        (np.array([1 + 0j]), "Complex data not supported: A holds complex128"),
        (np.array([1 + 0j], dtype=object), "Complex data not supported: A holds complex"),
        (np.array(["2020-01-01"], dtype="M8[D]"), "A holds datetime64"),
        (np.array([1], dtype="m8[s]"), "A holds timedelta64"),
        (sparse.csr_array([[1j]]), "Complex data"),
    ],
)
def test_a_mask_or_a_unit_is_not_dropped(lossy, said):
    with pytest.raises(ValueError, match=f"^{said}"):
        check_kind(lossy, "A")


def test_what_loses_nothing_is_given_back():
    for given in ([1, 2], [[1], [1, 2]], np.ma.array([1.0]), X0, sparse.csr_array(X0), "text"):
        assert check_kind(given) is given


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array, sparse.coo_array])
def test_the_first_number_that_is_not_finite_is_named(container):
    assert check_finite(container(X0)) is not None
    for value in (np.nan, np.inf, -np.inf):
        A = X0.copy()
        A[1, 2] = A[2, 0] = value
        with pytest.raises(ValueError, match=rf"A\[1, 2\] is {value}: A must not hold NaN"):
            check_finite(container(A), "A")


def test_numbers_up_to_the_largest_are_let_through():
    A = np.array([[1e70, -1e70]])
    assert check_finite(A) is A
    with pytest.raises(ValueError, match=r"X holds a number of size 1\.01e\+70.*rescale"):
        check_finite(1.01 * A)
    assert check_finite(10 * A, largest=1e72).tolist() == [[1e71, -1e71]]
    assert check_finite(np.empty((0, 2))).shape == (0, 2)


@pytest.mark.parametrize("container", [sparse.csr_matrix, sparse.csc_array, sparse.coo_matrix])
def test_sparse_samples_become_a_csr_array(container):
    learner = BaseEstimator()
    for form in (
        check_matrix(container(X0)),
        check_samples(learner, container(X0), [0, 1, 0])[0],
        check_new_samples(learner, container(X0)),
    ):
        assert isinstance(form, sparse.csr_array)
        assert np.array_equal(form.toarray(), X0)


def test_numbers_stored_in_several_parts_are_summed_and_the_input_is_left_as_it_was():
    parts = ([1.0, 2.0, 4.0], [1, 0, 1], [0, 3])
    X = sparse.csr_matrix(parts, shape=(1, 2))
    for form in (check_matrix(X), check_new_samples(BaseEstimator(), X)):
        assert form.has_canonical_format
        assert form.data.tolist() == [2.0, 5.0]
    assert X.data.tolist() == parts[0]
    assert X.indices.tolist() == parts[1]


def test_a_matrix_that_is_one_already_is_given_back():
    assert check_matrix(X0) is X0
    assert check_matrix([[1, 2]]).dtype == np.float64
    assert check_matrix(np.empty((0, 3)), n_features=3).shape == (0, 3)
    for empty, options in ((np.empty((0, 3)), {"ensure_min_samples": 1}), (np.empty((3, 0)), {})):
        with pytest.raises(ValueError, match=r"0 (sample|feature)"):
            check_matrix(empty, **options)
    with pytest.raises(ValueError, match="A has 3 features, but 4 features are expected"):
        check_matrix(X0, "A", n_features=4)
    with pytest.raises(ValueError, match=r"A\[0, 1\] is nan"):
        check_matrix([[1.0, np.nan]], "A")


def test_samples_and_labels_are_checked_together():
    learner = BaseEstimator()
    X, codes, labels = check_samples(learner, pd.DataFrame(X0, columns=list("abc")), Y0)
    assert X.tolist() == X0.tolist()
    assert codes.tolist() == [0, 1, 0]
    assert labels == ["b", "a"]
    assert learner.n_features_in_ == 3
    assert list(learner.feature_names_in_) == ["a", "b", "c"]
    with pytest.raises(ValueError, match="requires y to be passed"):
        check_samples(LinearRegression(), X0, None)
    with pytest.raises(ValueError, match=r"inconsistent numbers of samples: \[3, 2\]"):
        check_samples(BaseEstimator(), X0, [0, 1])
    with pytest.raises(ValueError, match="minimum of 3"):
        check_samples(BaseEstimator(), X0[:2], [0, 1])
    with pytest.raises(ValueError, match=r"X\[2, 0\] is nan"):
        check_samples(BaseEstimator(), np.vstack([X0[:2], [NAN, 1.0, 2.0]]), Y0)


def test_new_samples_have_the_columns_that_were_learned():
    learner = BaseEstimator()
    frame = pd.DataFrame(np.eye(3), columns=["a", "b", "c"])
    check_samples(learner, frame, [0, 1, 0])
    assert np.array_equal(check_new_samples(learner, frame), np.eye(3))
    for columns in (["b", "a", "c"], ["a", "b"]):
        with pytest.raises(ValueError, match="feature names should match"):
            check_new_samples(learner, frame[columns])
    frame.loc[1, "c"] = np.nan
    with pytest.raises(ValueError, match=r"X\[1, 2\] is nan"):
        check_new_samples(learner, frame)


def test_columns_are_compared_where_names_were_learned():
    learner, frame = BaseEstimator(), pd.DataFrame(X0, columns=["a", "b", "c"])
    assert check_columns(learner, frame) is None  # none were learned
    check_samples(learner, frame, Y0)
    assert check_columns(learner, frame) is None
    with pytest.raises(ValueError, match="feature names should match"):
        check_columns(learner, frame[["b", "a", "c"]])


def test_names_of_columns_are_those_of_a_frame():
    assert column_names(pd.DataFrame(X0, columns=["p", "q", "r"])) == ("p", "q", "r")
    assert column_names(pd.DataFrame(X0)) is None  # numbers are no names
    assert column_names(X0) is None


@pytest.mark.parametrize("flat", [X0[0], X0[0].tolist(), 3.0, pd.Series(X0[0])], ids=type)
def test_an_argument_of_one_axis_is_named_with_what_to_do(flat):
    said = r"has shape .*, but two axes .*reshape\(1, -1\) has one row"
    fitted = OASIS(n_steps=5, random_state=0).fit(X0, Y0)
    for name, call in {
        "X": lambda: OASIS().fit(flat, Y0),
        "references": lambda: k_nearest(fitted.metric_, X0, flat, "distance", 1),
        "factor": lambda: FactoredMetric(1.0, flat, [1.0]),
        "L": lambda: check_dense(flat, "L"),
    }.items():
        with pytest.raises(ValueError, match=f"^{name} {said}"):
            call()
    with pytest.raises(ValueError, match=f"^X {said}"):
        fitted.transform(flat)


def test_an_array_that_is_ready_is_neither_copied_nor_converted():
    assert check_matrix(X0) is X0
    turned = np.asfortranarray(X0)
    assert check_matrix(turned) is turned
    assert check_matrix(turned, order="C").flags.c_contiguous
    for value in (np.nan, -np.inf, -1e300):
        spoilt = X0.copy()
        spoilt[2, 1] = value
        with pytest.raises(ValueError, match=r"^X\[2, 1\] is|^X holds a number of size 1e\+300"):
            check_matrix(spoilt)


def test_a_dense_array_may_hold_any_finite_number():
    assert check_dense([[1e300]], "L").tolist() == [[1e300]]
    assert check_dense([1, 2], "L", ensure_2d=False).dtype == np.float64
    with pytest.raises(ValueError, match=r"L\[0, 1\] is inf"):
        check_dense([[0, np.inf]], "L")
    with pytest.raises(TypeError, match="dense data is required"):
        check_dense(sparse.csr_array(X0), "L")
    with pytest.raises(ValueError, match="two axes"):
        check_dense([1.0], "L")


# --- labels -------------------------------------------------------------------------------


def test_labels_keep_their_types():
    mixed = [1, "1", ("a", 1), None]
    assert as_labels(mixed) == mixed
    assert as_labels(tuple(mixed)) == mixed
    with pytest.warns(DataConversionWarning):
        assert as_labels([[label] for label in ("1", 1, True)]) == ["1", 1, True]
    assert as_labels(np.ma.array([1, 2], mask=[0, 1])) == [1, None]
    assert as_labels(["a", np.ma.masked])[1] is np.ma.masked
    assert as_labels(pd.Series(["a", "b"], dtype="category")) == ["a", "b"]
    with pytest.raises(ValueError, match="should be a 1d array"):
        as_labels(np.ones((2, 2)))


@pytest.mark.parametrize(
    ("labels", "is_object"),
    [
        ([1, 2], False),
        (["a", "b"], False),
        ([b"a"], False),
        ([1, "1"], True),
        ([("a", 1), ("b", 2)], True),
        ([10**30], True),
    ],
)
def test_an_array_of_labels_changes_none(labels, is_object):
    array = labels_array(labels)
    assert array.shape == (len(labels),)
    assert (array.dtype == object) == is_object
    assert array.tolist() == labels


@pytest.mark.parametrize(
    "label", [None, NAN, INF, -INF, np.float32("nan"), Decimal("NaN"), Decimal("Infinity"), pd.NA,
              pd.NaT, np.ma.masked]
)  # fmt: skip
def test_a_label_that_stands_for_none_is_missing(label):
    assert is_missing(label)
    with pytest.raises(ValueError, match=r"y\[1\] is .*: drop the samples without a label"):
        encode_labels(["a", label])


@pytest.mark.parametrize("label", [0, "", "nan", False, Decimal(0), (None,), 10**400])
def test_other_labels_are_not_missing(label):
    assert not is_missing(label)


def test_classes_are_numbered_by_first_appearance_or_sorted():
    codes, labels = encode_labels(["b", "a", "b", "c"])
    assert codes.tolist() == [0, 1, 0, 2]
    assert labels == ["b", "a", "c"]
    classes, codes = sort_classes(["b", "a", "b", "c"])
    assert classes.tolist() == ["a", "b", "c"]
    assert codes.tolist() == [1, 0, 1, 2]
    classes, codes = sort_classes(["b", 1, "b"])  # without an order
    assert classes.tolist() == ["b", 1]
    assert codes.tolist() == [0, 1, 0]
    assert sort_classes(np.array([3, 1], dtype=np.int8))[0].dtype == np.int8


def test_sorted_classes_are_those_of_numpy():
    y = np.random.default_rng(0).integers(-3, 4, size=50)
    for found, expected in zip(sort_classes(y), np.unique(y, return_inverse=True), strict=True):
        assert np.array_equal(found, expected)


def test_labels_that_are_no_classes_are_refused():
    with pytest.raises(TypeError, match=r"y\[1\] is \{'a'\}, which is not hashable"):
        encode_labels(["a", {"a"}])
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        encode_labels(np.linspace(0.1, 2.9, 30))
    assert encode_labels([0.5, 1.5, 0.5])[1] == [0.5, 1.5]


@pytest.mark.parametrize(
    ("labels", "lack"), [(["a", "a", "a"], "dissimilar"), (["a", "b", "c"], "similar"), ([], "dis")]
)
def test_two_classes_one_of_two_samples_are_asked_for(labels, lack):
    with pytest.raises(ValueError, match=rf"task has {len(labels)} samples of .* no {lack}"):
        check_two_classes(*encode_labels(labels), "task")
    assert not has_pairs(*encode_labels(labels))
    check_two_classes(*encode_labels(["a", "b", "a"]))
    assert has_pairs(*encode_labels(["a", "b", "a"]))


# --- tasks, weights, neighbors ------------------------------------------------------------


@pytest.mark.parametrize("name", ["paris", 42, ("a", (1, None)), np.str_("a"), 0.5, INF, ""])
def test_a_name_that_is_found_again_is_a_name_of_a_task(name):
    assert check_task(name) is None


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ([1], TypeError, r"task=\[1\] is not hashable"),
        (np.ones(1), TypeError, "is not hashable"),
        (NAN, ValueError, "task=nan is missing or not equal to itself"),
        (("a", (NAN,)), ValueError, "not equal to itself"),
        (frozenset({1}), TypeError, "of type frozenset, which cannot be stored"),
        (
            np.datetime64("2020-01-01", "ns"),
            TypeError,
            "of type datetime64, which cannot be stored",
        ),
        (None, ValueError, "task=None is missing"),
        (pd.NA, ValueError, "task=<NA> is missing"),
        (("a", pd.NA), ValueError, "is missing"),
    ],
)
def test_other_names_are_refused(name, error, said):
    with pytest.raises(error, match=said):
        check_task(name)


def test_an_unknown_task_is_answered_with_the_first_known_ones():
    assert check_known_task("p", {"p": 1}) is None
    with pytest.raises(ValueError, match=r"task 0 is not known; known tasks: \['p', \('a', 1\)\]$"):
        check_known_task(0, {"p": 1, ("a", 1): 2})
    with pytest.raises(ValueError, match=r"known tasks: \[0, 1, .* 9\] and 5 more$"):
        check_known_task("p", range(15))
    with pytest.raises(TypeError, match=r"task=\[\] is not hashable"):
        check_known_task([], {"p": 1})


def test_a_table_has_a_sample_a_label_and_a_name_in_each_line():
    X, labels, names = check_table(X0, Y0, iter(["p", 1, "p"]))
    assert np.array_equal(X, X0)
    assert labels == Y0
    assert names == ["p", 1, "p"]
    assert check_table(X0, Y0, np.array([1, 2, 3]))[2] == [1, 2, 3]
    with pytest.raises(ValueError, match=r"tasks\[1\]=None is missing"):
        check_table(X0, Y0, ["p", None, "p"])
    with pytest.raises(TypeError, match=r"tasks\[2\]=\[\] is not hashable"):
        check_table(X0, Y0, ["p", "q", []])
    with pytest.raises(ValueError, match=r"\[3, 3, 2\]"):
        check_table(X0, Y0, ["p", "q"])
    with pytest.raises(ValueError, match="X has 0 samples"):
        check_table(X0[:0], [], [])


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ([[1.0], [2.0]], r"sample_weight has shape \(2, 1\)"),
        ([1.0, -1.0, 0.0], "numbers from -1 to 1: give a number for each sample, of at least 0"),
        ([0.0, 0.0, 0.0], "numbers from 0 to 0: .* one above it"),
        ([1.0, np.nan, 1.0], "NaN"),
        (np.ma.masked_equal([1.0, 2.0, 3.0], 2.0), "sample_weight has masked entries"),
    ],
)
def test_weights_that_have_no_mean_are_refused(weights, said):
    with pytest.raises(ValueError, match=said):
        check_weights(weights)


def test_weights_are_floats():
    weights = check_weights([0, 1, 2])
    assert weights.dtype == np.float64
    assert weights.tolist() == [0.0, 1.0, 2.0]


def test_as_many_neighbors_as_there_are_references():
    assert type(check_n_neighbors(np.int64(3), 3)) is int
    assert check_n_neighbors(1, 1) == check_n_neighbors(1, 2, without_itself=True) == 1
    with pytest.raises(ValueError, match=r"n_neighbors is 4, but .* n_samples = 3"):
        check_n_neighbors(4, 3)
    with pytest.raises(ValueError, match="the sample itself does not count"):
        check_n_neighbors(3, 3, without_itself=True)
    with pytest.raises(InvalidParameterError, match="n_neighbors=0"):
        check_n_neighbors(0, 3)


# --- small linear algebra -----------------------------------------------------------------


@pytest.mark.parametrize("left", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("right", [np.asarray, sparse.csr_array])
def test_a_product_with_a_transpose_is_the_sum_over_the_columns(left, right):
    rng = np.random.default_rng(0)
    A, B = rng.normal(size=(3, 4)), rng.normal(size=(2, 4))
    found = times_transpose(left(A), right(B))
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found, np.einsum("ik,jk->ij", A, B))


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
def test_symmetry_is_exact(container):
    A = np.array([[1.0, 2.0], [2.0, 3.0]])
    assert is_symmetric(container(A))
    A[0, 1] = np.nextafter(2.0, 3.0)
    assert not is_symmetric(container(A))


def test_a_dense_array_of_a_matrix():
    assert dense(X0) is X0
    assert np.array_equal(dense(sparse.csr_array(X0)), X0)


@pytest.mark.parametrize("upper", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("lower", [np.asarray, sparse.csr_array])
def test_samples_below_others_stay_sparse_where_some_are(upper, lower):
    below = np.array([[0.0, 7.0, 0.0]])
    both = stacked(upper(X0), lower(below))
    assert sparse.issparse(both) == (sparse.csr_array in (upper, lower))
    assert dense(both).tolist() == [*X0.tolist(), [0.0, 7.0, 0.0]]


def test_bytes_are_those_of_all_arrays_of_a_matrix():
    A = sparse.csr_array(X0)  # 3 values, 3 columns and 4 ends of rows
    assert nbytes(X0) == 8 * 9
    assert nbytes(A) == 8 * 3 + A.indices.itemsize * (3 + 4)


def test_of_the_singular_vectors_those_with_a_value_are_given():
    A = np.random.default_rng(7).normal(size=(3, 5))
    U, values, V = svd(A)
    assert (U.shape, V.shape) == ((3, 3), (3, 5))
    np.testing.assert_allclose(U @ np.diag(values) @ V, A, atol=1e-12)


def test_singular_values_are_found_where_divide_and_conquer_does_not_converge(monkeypatch):
    A = np.random.default_rng(7).normal(size=(4, 7))
    oracle = np.sqrt(np.linalg.eigvalsh(A @ A.T)[::-1])
    plain = linalg.svd

    def no_divide_and_conquer(A, full_matrices, lapack_driver="gesdd"):
        if lapack_driver == "gesdd":
            raise linalg.LinAlgError("SVD did not converge")
        return plain(A, full_matrices, lapack_driver=lapack_driver)

    monkeypatch.setattr(linalg, "svd", no_divide_and_conquer)
    U, values, V = svd(A)
    np.testing.assert_allclose(values, oracle)
    np.testing.assert_allclose(U * values @ V, A, atol=1e-12)


@pytest.mark.parametrize("dtype", ["datetime64[ns]", "timedelta64[ns]"])
def test_a_column_of_dates_is_named(dtype):
    X = pd.DataFrame({"size": [1.0, 2.0, 3.0, 4.0]})
    X["when"] = np.arange(4).astype(dtype)
    with pytest.raises(ValueError, match=f"column 'when' of X is of type {dtype[:-4]}"):
        OASIS().fit(X, [0, 0, 1, 1])


def test_help_names_types_and_not_what_they_stand_for():
    assert "X: 'MatrixLike'" in str(inspect.signature(OASIS.fit))
    assert len(str(inspect.signature(OASIS.fit_pairs))) < 120
