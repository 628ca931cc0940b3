"""The table of fields of lml.state: what is packed comes back, and what does not fit is refused."""

import json
from collections import namedtuple

import numpy as np
import pytest
from scipy import sparse

from lml.state import (
    ArrayField,
    MatrixField,
    OptionalField,
    RecordField,
    SizeField,
    TableField,
    ValueField,
    pack,
    unpack,
)
from lml.utils.validation import Rule, real, whole

Task = namedtuple("Task", ["number", "labels", "counts", "means"])
Point = namedtuple("Point", ["x", "y"])

TASK = RecordField(
    Task,
    {
        "number": ValueField(whole(0)),
        "labels": ValueField(),
        "counts": ArrayField(("c",), int),
        "means": ArrayField(("c", "D")),
    },
)
STATE = RecordField(
    dict,
    {
        "n_features": SizeField(letter="D"),
        "rows": ArrayField(("d", "D")),
        "tasks": TableField(TASK),
        "square": OptionalField(ArrayField(("d", "d"), rule=Rule(lambda A: bool(A.any()), "some"))),
        "weight": OptionalField(ValueField(real(0))),
    },
    parts=dict,
)


def made():
    rng = np.random.default_rng(0)
    tasks = {
        ("a", 1): Task(0, ("x", 2), np.array([3, 4]), rng.normal(size=(2, 3))),
        None: Task(4, (b"y",), np.array([5]), np.asfortranarray(rng.normal(size=(1, 3)))),
    }
    return {
        "n_features": 3,
        "rows": np.asfortranarray(rng.normal(size=(2, 3))),
        "tasks": tasks,
        "square": None,
        "weight": np.float64(0.5),
    }


def packed(value=None):
    arrays = {}
    form = pack(STATE, made() if value is None else value, arrays)
    return json.loads(json.dumps(form)), arrays


def test_a_state_comes_back_with_its_types_orders_and_names():
    form, arrays = packed()
    assert set(arrays) == {"rows", "tasks.counts", "tasks.means"}  # one for each field
    assert all(array.ndim == 1 for array in arrays.values())
    found, expected = unpack(STATE, form, arrays), made()
    assert list(found["tasks"]) == list(expected["tasks"])
    for task, record in expected["tasks"].items():
        assert found["tasks"][task][:2] == record[:2]
        np.testing.assert_array_equal(found["tasks"][task].means, record.means)
        np.testing.assert_array_equal(found["tasks"][task].counts, record.counts)
    np.testing.assert_array_equal(found["rows"], expected["rows"])
    assert found["rows"].flags.f_contiguous
    assert (found["square"], found["weight"]) == (None, 0.5)
    assert type(found["weight"]) is float
    again = {}
    assert pack(STATE, found, again) == form
    assert all(again[name].tobytes() == array.tobytes() for name, array in arrays.items())


@pytest.mark.parametrize("form", [np.asfortranarray, np.array, sparse.csr_array])
def test_a_matrix_comes_back_dense_or_sparse_as_it_was(form):
    A = form(np.array([[0.0, 1.5, 0.0], [2.0, 0.0, 0.0]]))
    field = RecordField(
        dict, {"weights": ArrayField(("n",)), "X": MatrixField("n", "D")}, parts=dict
    )
    arrays = {}
    form = json.loads(json.dumps(pack(field, {"weights": np.ones(2), "X": A}, arrays)))
    found = unpack(field, form, arrays)["X"]
    assert type(found) is type(A)
    if sparse.issparse(A):
        for part in ("data", "indices", "indptr"):
            assert getattr(found, part).dtype == getattr(A, part).dtype
            np.testing.assert_array_equal(getattr(found, part), getattr(A, part))
    else:
        np.testing.assert_array_equal(found, A)
        assert found.flags.f_contiguous == A.flags.f_contiguous
    with pytest.raises(ValueError, match=r"X.* is (\[2, 3\]|2), not (\[1, 3\]|1)"):
        unpack(field, {**form, "weights": ["C", 1]}, {**arrays, "weights": np.ones(1)})


def test_what_comes_back_owns_its_numbers():
    form, arrays = packed()
    found = unpack(STATE, form, arrays)
    for array in (found["rows"], *(record.means for record in found["tasks"].values())):
        assert array.base is None or array.base.nbytes == array.nbytes
        assert not any(np.shares_memory(array, kept) for kept in arrays.values())
        assert array.flags.writeable


def test_empty_tables_and_arrays_come_back():
    value = {**made(), "tasks": {}, "rows": np.zeros((0, 3))}
    form, arrays = packed(value)
    found = unpack(STATE, form, arrays)
    assert found["tasks"] == {}
    assert found["rows"].shape == (0, 3)


def test_a_letter_of_a_record_stands_for_one_number_within_it_only():
    form, arrays = packed()
    assert [record["counts"] for _, record in form["tasks"]] == [["C", 2], ["C", 1]]
    form["tasks"][0][1]["counts"] = ["C", 1]
    form["tasks"][1][1]["counts"] = ["C", 2]
    with pytest.raises(ValueError, match=r"shape of tasks\[0\]\.means is \[2, 3\], not \[1, 3\]"):
        unpack(STATE, form, arrays)


def test_a_value_that_cannot_be_stored_is_named_by_its_entry():
    value = made()
    value["tasks"]["b"] = Task(1, object(), np.array([1]), np.ones((1, 3)))
    with pytest.raises(TypeError, match=r"tasks\['b'\]: <object .* cannot be stored"):
        packed(value)


def test_a_record_may_be_taken_apart_and_checked_by_functions():
    def checked(radius, angle):
        if radius > 2:
            raise ValueError("too far")
        return Point(radius, angle)

    field = RecordField(
        checked,
        {"radius": ValueField(), "angle": ValueField()},
        parts=lambda point: {"radius": point.x, "angle": point.y},
    )
    assert unpack(field, pack(field, Point(1, 0.5), {}), {}) == Point(1, 0.5)
    with pytest.raises(ValueError, match="too far"):
        unpack(field, pack(field, Point(3, 0.5), {}), {})


def rows(*form):
    return lambda state, arrays: state.update(rows=list(form))


FAULTS = {
    "state is .*an object with": lambda state, arrays: state.pop("weight"),
    "n_features is 0, not a whole number": lambda state, arrays: state.update(n_features=0),
    "n_features is True": lambda state, arrays: state.update(n_features=True),
    r"shape of rows is \[2, 3\], not \[2, 4\]": lambda state, arrays: state.update(n_features=4),
    r"shape of rows is \['C', 6\], not one of 2 axes": rows("C", 6),
    r"shape of rows is \['X', 2, 3\]": rows("X", 2, 3),
    r"shape of rows is \['C', 2, -3\]": rows("C", 2, -3),
    r"shape of rows is \['C', 2, True\]": rows("C", 2, True),
    r"shape of rows is 'C', not": lambda state, arrays: state.update(rows="C"),
    "numbers left of rows is 6, not 9": rows("F", 3, 3),
    r"nothing uses is \['rows'\]": rows("F", 1, 3),
    r"nothing uses is \['more'\]": lambda state, arrays: arrays.update(more=np.ones(1)),
    "arrays of several axes": lambda state, arrays: arrays.update(rows=np.ones((2, 3))),
    "type of rows is .*int64": lambda state, arrays: arrays.update(rows=np.ones(6, int)),
    "type of tasks.counts is .*float64": lambda state, arrays: arrays.update(
        {"tasks.counts": np.ones(3)}
    ),
    "array is 'rows', not one of": lambda state, arrays: arrays.pop("rows"),
    "square is array.*not some": lambda state, arrays: (
        state.update(square=["C", 2, 2]),
        arrays.update(square=np.zeros(4)),
    ),
    "weight is -1, not a number of at least 0": lambda state, arrays: state.update(weight=-1),
    "tasks is {}, not a list of pairs": lambda state, arrays: state.update(tasks={}),
    "tasks is .*not a list of pairs": lambda state, arrays: state["tasks"][0].pop(),
    r"name of tasks\[1\] is \('a', 1\), not a new one": lambda state, arrays: state["tasks"][
        1
    ].__setitem__(0, ["a", 1]),
    r"tasks\[0\] is 3, not an object": lambda state, arrays: state["tasks"][0].__setitem__(1, 3),
    r"tasks\[1\]\.number is 'a', not a whole": lambda state, arrays: state["tasks"][1][1].update(
        number="a"
    ),
    "stands for no value": lambda state, arrays: state["tasks"][1][1].update(labels={"a": 1}),
}


@pytest.mark.parametrize("said", list(FAULTS))
def test_a_part_that_does_not_fit_is_refused_by_its_place(said):
    form, arrays = packed()
    FAULTS[said](form, arrays)
    with pytest.raises(ValueError, match=said):
        unpack(STATE, form, arrays)
