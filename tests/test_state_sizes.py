"""Numbers of a file that are too large: refused when it is read, and when it is written."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

from lml import LifelongKNeighborsClassifier, LifelongMetricLearner
from lml.baselines.ella import ELLA
from lml.oasis import OASIS
from lml.paper import DictionaryMetricLearner
from lml.plda import LifelongPLDA
from lml.state import (
    LARGEST,
    LARGEST_COUNT,
    LARGEST_MEAN,
    ArrayField,
    MatrixField,
    ValueField,
    pack,
    read_state,
    unpack,
    write_state,
)
from lml.utils.validation import LARGEST_SAMPLE, real

LEARNERS = {
    "lifelong": LifelongMetricLearner(OASIS(n_steps=100), shared_labels=True, random_state=0),
    "paper": DictionaryMetricLearner(OASIS(n_steps=100), 3, random_state=0),
    "plda": LifelongPLDA(n_folds=2, shared_labels=True, random_state=0),
    "small plda": LifelongPLDA(3, 1.0, 0.5, (0.3, 0.0, 0.0), random_state=0),
    "ella": ELLA(2, random_state=0),
}


def samples(seed, n=18, D=5):
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % 2)
    return rng.normal(size=(n, D)) + 3 * np.eye(2, D)[y], y


def taught(name):
    learner = clone(LEARNERS[name])
    for number, task in enumerate("ab"):
        learner = learner.partial_fit(*samples(number), task=task)
    return learner


def answers(learner):
    """What a learner says of samples like those that it has learned."""
    X = samples(7)[0]
    for task in learner.tasks_:
        yield (
            learner.transform(X, task=task)
            if hasattr(learner, "transform")
            else (learner.decision_function(X, task=task))
        )
        if hasattr(learner, "task_metric"):
            yield learner.task_metric(task).bilinear(X, X)


def numbers_of(form, way=()):
    """Places of the fractional numbers of a JSON form."""
    parts = form.items() if isinstance(form, dict) else enumerate(form)
    for key, part in parts if isinstance(form, (dict, list)) else ():
        if isinstance(part, (dict, list)):
            yield from numbers_of(part, (*way, key))
        elif isinstance(part, float):
            yield *way, key


@pytest.fixture(params=LEARNERS)
def saved(request, tmp_path):
    learner = taught(request.param)
    path = tmp_path / "s"
    learner.save(path)
    kind = type(learner).__name__
    return type(learner), path, kind, *read_state(path, kind)


def spoilt(path, kind, meta, arrays, member, place, value):
    """Write the file with another number in one place of an array."""
    array = arrays[member].copy()
    array[place] = value
    write_state(path, kind, meta, {**arrays, member: array})


@pytest.mark.parametrize("value", [1e308, -1e160, 2e150])
def test_a_number_whose_products_overflow_is_refused_by_the_name_of_its_field(saved, value):
    learner, path, kind, meta, arrays = saved
    floats = [name for name, array in arrays.items() if array.dtype == float and array.size]
    assert len(floats) >= 2
    for member in floats:
        for place in (0, -1):
            spoilt(path, kind, meta, arrays, member, place, value)
            with pytest.raises(ValueError, match="size of numbers in") as caught:
                learner.load(path)
            found = re.sub(r"\[\d+\]", "", str(caught.value))
            assert f"{path}' cannot be used as a state: size of numbers in {member} is" in found
    for *way, last in numbers_of(meta["state"]):
        text = json.loads(json.dumps(meta))
        inner = text["state"]
        for key in way:
            inner = inner[key]
        inner[last] = value
        write_state(path, kind, text, arrays)
        with pytest.raises(ValueError, match=rf"{last} is -?[0-9.e+]+, not a number") as caught:
            learner.load(path)


def test_what_loads_answers_in_finite_numbers(saved):
    learner, path, kind, meta, arrays = saved
    rng = np.random.default_rng(0)
    floats = [name for name, array in arrays.items() if array.dtype == float and array.size]
    n_loaded = 0
    for member in floats:
        for factor in 10.0 ** rng.uniform(-300, 150, size=20):
            array = arrays[member]
            whole = bool(rng.integers(2))
            changed = np.where(whole | (np.arange(array.size) == 0), factor * array, array)
            if not np.isfinite(changed).all():
                continue
            write_state(path, kind, meta, {**arrays, member: changed})
            try:
                one = learner.load(path)
            except ValueError as error:
                assert str(path) in str(error)  # noqa: PT017
                continue
            n_loaded += 1
            with np.errstate(over="raise", invalid="raise", divide="raise"):
                assert all(np.isfinite(answer).all() for answer in answers(one))
    assert n_loaded > 5


def test_samples_in_a_file_are_no_larger_than_at_the_door(tmp_path):
    path = tmp_path / "s"
    reader = LifelongKNeighborsClassifier(taught("lifelong"), n_neighbors=1)
    reader.fit(*samples(0), task="a").save(path)
    kind = "LifelongKNeighborsClassifier"
    meta, arrays = read_state(path, kind)
    member = next(name for name in arrays if name.startswith("own") and name.endswith("X"))
    spoilt(path, kind, meta, arrays, member, 3, LARGEST_SAMPLE)
    assert LifelongKNeighborsClassifier.load(path).predict(samples(1)[0], task="a").shape == (18,)
    spoilt(path, kind, meta, arrays, member, 3, 1.01 * LARGEST_SAMPLE)
    with pytest.raises(ValueError, match=r"size of numbers in \[0\]\.X is 1\.01e\+70, not at most"):
        LifelongKNeighborsClassifier.load(path)


FIELDS = {
    "array": (ArrayField(("n",)), np.ones(3), LARGEST),
    "means": (ArrayField(("n",), largest=LARGEST_MEAN), np.ones(3), LARGEST_MEAN),
    "samples": (MatrixField("n", "D"), np.ones((2, 2)), LARGEST_SAMPLE),
    "sparse": (MatrixField("n", "D"), sparse.csr_array(np.eye(2)), LARGEST_SAMPLE),
    "counts": (ArrayField(("n",), int, None, LARGEST_COUNT), np.ones(3, int), LARGEST_COUNT),
}


@pytest.mark.parametrize("kind", FIELDS)
@pytest.mark.parametrize("sign", [1, -1])
def test_a_field_bounds_what_is_written_and_what_is_read(kind, sign):
    field, value, largest = FIELDS[kind]
    arrays = {}
    form = pack(field, sign * largest * value, arrays)
    unpack(field, form, arrays)
    member = next(name for name in arrays if np.abs(arrays[name]).max() == largest)
    above = 3 * sign * largest
    with pytest.raises(ValueError, match=r"size of numbers in .*, not at most"):
        pack(field, above * value, {})
    arrays[member] = np.where(arrays[member] == 0, 0, above)
    with pytest.raises(ValueError, match=r"size of numbers in .*, not at most"):
        unpack(field, form, arrays)


def test_a_value_that_its_rule_forbids_is_not_written():
    field = ValueField(real(-LARGEST, LARGEST))
    assert unpack(field, pack(field, -LARGEST, {}), {}) == -LARGEST
    with pytest.raises(ValueError, match=r"is 1e\+151, not a number of at least -1e\+150"):
        pack(field, 1e151, {})


def test_a_learner_that_could_not_be_read_is_not_written(tmp_path):
    path = tmp_path / "s"
    learner = taught("plda")
    learner.save(path)
    before = path.read_bytes()
    tasks = learner.state_.tasks
    tasks["a"] = replace(tasks["a"], mean=np.full(5, 1e80))
    with pytest.raises(ValueError, match=r"size of numbers in tasks\[0\]\.mean is 1e\+80"):
        learner.save(path)
    assert path.read_bytes() == before


INNER = {
    "centered of task 'a' is .*not at most counts": {"tasks.moments.centered": 3.0},
    "within of task 'a' is .*, twice the trace": {"tasks.moments.within": 1e3},
    "within of task 'a' is .*, not positive semi-definite": {"tasks.moments.within": -1.0},
    "mean of task 'a' is .*as its unit wants": {"tasks.mean": 1e74, "tasks.moments.within": 0.0},
    "counts": {"tasks.moments.counts": 2**41},
}


@pytest.mark.parametrize("said", INNER)
def test_statistics_of_a_task_that_no_samples_have_are_refused(said, tmp_path):
    path = tmp_path / "s"
    taught("plda").save(path)
    meta, arrays = read_state(path, "LifelongPLDA")
    if "unit" in said:
        for _, record in meta["state"]["tasks"]:
            record["moments"]["trace"] = 1e-20
        arrays = {**arrays, "tasks.moments.means": 1e-20 * arrays["tasks.moments.means"]}
    changed = {name: factor * arrays[name] for name, factor in INNER[said].items()}
    write_state(path, "LifelongPLDA", meta, {**arrays, **changed})
    with pytest.raises(ValueError, match=said):
        LifelongPLDA.load(path)


def test_a_scatter_of_no_samples_is_refused_and_one_that_rounding_moved_is_read(tmp_path):
    path = tmp_path / "s"
    learner = LifelongPLDA(n_folds=2, random_state=0)
    for number, task in enumerate("abc"):
        learner.partial_fit(*samples(number), task=task)
    learner.save(path)
    meta, arrays = read_state(path, "LifelongPLDA")
    within = arrays["tasks.moments.within"].reshape(3, 5, 5)

    def store(last):
        changed = np.concatenate([within[:2], last[None]]).ravel()
        write_state(path, "LifelongPLDA", meta, {**arrays, "tasks.moments.within": changed})

    # every two coordinates alone could be, all five together cannot: an eigenvalue is 1 - 4 * 0.6
    size = np.trace(within[2]) / 5
    for wrong in (-within[2], size * (1.6 * np.eye(5) - 0.6)):
        store(wrong)
        with pytest.raises(ValueError, match=r"within of task 'c' is .*, not positive semi-def"):
            LifelongPLDA.load(path)
    # of one direction only, with what many moves of the dictionary leave
    flat = np.zeros((5, 5))
    flat[0, 0] = 5 * size
    store(flat - 1e-12 * size * np.eye(5))
    found = LifelongPLDA.load(path)
    for task in "abc":
        assert np.isfinite(found.transform(samples(3)[0], task=task)).all()
    found.partial_fit(*samples(3), task="d")
