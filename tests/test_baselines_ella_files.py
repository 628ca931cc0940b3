"""ELLA in files and copies: what comes back, and what is refused."""

import copy
import pickle

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

from lml.baselines.ella import ELLA
from lml.state import read_state, write_state


def make_task(seed, n=30, D=7, classes=2):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    return rng.normal(size=(classes, D))[y] + rng.normal(size=(n, D)), y


def same_to_the_bit(a, b):
    """Two learners that know the same, samples included."""
    assert list(a.tasks_) == list(b.tasks_)
    np.testing.assert_array_equal(a.dictionary_, b.dictionary_)
    for task in a.tasks_:
        np.testing.assert_array_equal(a.codes_[task], b.codes_[task])
    assert a.state_parts_ == b.state_parts_
    for one, other in zip(a.tasks_.values(), b.tasks_.values(), strict=True):
        assert (one.number, one.n_visits) == (other.number, other.n_visits)
        np.testing.assert_array_equal(one.classes, other.classes)
        np.testing.assert_array_equal(one.y, other.y)
        for name, part in vars(one.model).items():
            again = getattr(other.model, name)
            assert sparse.issparse(part) == sparse.issparse(again)
            if sparse.issparse(part):
                part, again = part.toarray(), again.toarray()
            np.testing.assert_array_equal(part, again)


def test_pickle_copy_and_clone_go_on_alike():
    def learn(learner, *seeds):
        for seed in seeds:
            learner.partial_fit(*make_task(seed), task=seed)
        return learner

    straight = learn(ELLA(3, random_state=0), 0, 1, 2)
    for twin in (pickle.loads(pickle.dumps(straight)), copy.deepcopy(straight)):
        same_to_the_bit(learn(twin, 5), learn(copy.deepcopy(straight), 5))
    same_to_the_bit(learn(clone(straight), 0, 1, 2), straight)
    rng = np.random.RandomState(3)
    state = rng.get_state()[1].copy()
    same_to_the_bit(*(learn(ELLA(3, random_state=rng), 0, 1) for _ in range(2)))
    np.testing.assert_array_equal(rng.get_state()[1], state)


FORMS = {
    "dense": (np.array, np.array),
    "CSR": (sparse.csr_array, sparse.csr_array),
    "dense, then CSR": (np.array, sparse.csr_array),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("solver", ["auto", "direct", "cg"])
def test_after_a_file_the_next_visit_goes_on_bit_for_bit(form, solver, tmp_path):
    learner = ELLA(3, 1e-3, 1e-2, solver=solver, random_state=0)
    for number, task in enumerate(["paris", 42, ("a", 1), "paris", 42]):
        learner.save(tmp_path / "ella")
        twin = ELLA.load(tmp_path / "ella")
        X, y = make_task(number, classes=2 + (task == 42))
        X[np.abs(X) < 0.8] = 0.0
        labels = [("cat", "dog", 3)[code] for code in y]
        for one in (learner, twin):
            one.partial_fit(FORMS[form][number > 2](X), labels, task=task)
        same_to_the_bit(twin, learner)
    learner.forget("paris").forget(42).forget(("a", 1)).save(tmp_path / "ella")
    twin = ELLA.load(tmp_path / "ella")
    assert twin.dictionary_ is None
    same_to_the_bit(*(one.partial_fit(*make_task(9), task="new") for one in (twin, learner)))


def task_entry(place, **change):
    return lambda state, arrays: state["tasks"][place][1].update(change)


def model_entry(place, **change):
    return lambda state, arrays: state["tasks"][place][1]["model"].update(change)


def number_of(name, place, value):
    return lambda state, arrays: arrays[name].__setitem__(place, value)


FAULTS = {
    r"shape of tasks\[0\]\.model\.weights is \[30, 1\], not \[29": task_entry(0, y=["C", 29]),
    "classes of a task is .*two or more": task_entry(0, classes=[1]),
    "classes of a task is .*in order": task_entry(0, classes=[1, 0]),
    "classes of a task is .*, not two": task_entry(0, classes=[1, 1]),
    "classes of samples is": number_of("tasks.y", slice(None), 1),
    "problems is 1, not 3": lambda state, arrays: (
        state["tasks"][0][1].update(classes=[0, 1, 2]), arrays["tasks.y"].__setitem__(0, 2)),
    r"classes is 3, not a tuple": task_entry(0, classes=3),
    r"y\[0\] is None": task_entry(0, classes=[None, 1]),
    "numbers of the tasks": task_entry(1, number=0),
    r"n_visits is 0": task_entry(0, n_visits=0),
    r"ridge is 0": model_entry(0, ridge=0),
    r"weights is .*above 0": number_of("tasks.model.weights", 0, 0.0),
    r"shape of tasks\[0\]\.model\.X is \[29, 7\], not \[30, 7\]": model_entry(0, X=["C", 29, 7]),
    r"model\.X\.n_columns is 8, not 7": lambda state, arrays: state["tasks"][1][1]["model"][
        "X"
    ].update(n_columns=8),
    r"ind(ices|ex)": number_of("tasks.model.X.columns", 0, 7),
    "array is 'tasks.model.X.starts'": lambda state, arrays: arrays.pop("tasks.model.X.starts"),
    r"shape of codes\[0\] is \[1, 3\], not \[1, 2\]": lambda state, arrays: state[
        "dictionary"
    ].__setitem__(2, 2),
    "tasks of codes": lambda state, arrays: state["codes"].pop(),
    "number of codes is": lambda state, arrays: (
        state["codes"][0][1].__setitem__(1, 2), arrays.update(codes=np.ones(9))),
    "problems in sums is 3, not 2": lambda state, arrays: state["sums"].update(n_problems=3),
    "size of sums is": lambda state, arrays: state["sums"].update(A=["C", 20, 20], b=["C", 20]),
    "tasks is .*those of a dictionary": lambda state, arrays: state.update(
        dictionary=None, sums=None
    ),
}  # fmt: skip


@pytest.mark.parametrize("said", FAULTS)
def test_a_file_whose_parts_do_not_belong_together_is_refused(said, tmp_path):
    path = tmp_path / "ella"
    learner = ELLA(3, solver="direct", random_state=0).partial_fit(*make_task(0), task="a")
    X, y = make_task(1)
    learner.partial_fit(sparse.csr_array(X), y, task="b").save(path)
    meta, arrays = read_state(path, "ELLA")
    FAULTS[said](meta["state"], arrays)
    write_state(path, "ELLA", meta, arrays)
    with pytest.raises(ValueError, match=r"ella' cannot be used as a state: ") as error:
        ELLA.load(path)
    error.match(said)
