"""Some hundred damaged files for each reader, as `make fuzz` gives many thousands."""

import os
import random

import fuzz
import numpy as np
import pytest

from lml import LifelongKNeighborsClassifier, LifelongMetricLearner
from lml.baselines.ella import ELLA
from lml.paper import DictionaryMetricLearner
from lml.plda import LifelongPLDA


def flipped(data, most):
    """Bytes with one of them changed, left out or doubled."""
    draw = random.Random(data)
    place = draw.randrange(len(data) + 1)
    middle = draw.choice([b"", bytes([draw.randrange(256)]), 2 * data[place : place + 1]])
    return (data[:place] + middle + data[place + 1 :])[:most]


@pytest.mark.parametrize("name", fuzz.TARGETS)
def test_damaged_files_are_refused_or_read_to_the_end(name, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    files, read = fuzz.TARGETS[name]()
    for data in files:
        fuzz.attempt(read, data, tmp_path / "file")
    for number in range(300):
        data = fuzz.changed(random.Random(number).choice(files), 2**16, number, flipped)
        fuzz.attempt(read, data, tmp_path / "file")
        files.append(data)


def test_a_change_is_made_within_the_archive_which_stays_one():
    (state, *_), _ = fuzz.TARGETS["lifelong"]()
    kept = [fuzz.changed(state, 2**16, number, flipped) for number in range(40)]
    assert len(set(kept)) > 30
    assert sum(data.startswith(b"PK") for data in kept) > 30


def test_an_answer_that_is_not_promised_is_a_fault(tmp_path):
    def read(path):
        raise KeyError(path)

    with pytest.raises(KeyError):
        fuzz.attempt(read, b"", tmp_path / "file")


def test_a_matrix_that_cannot_be_used_is_a_fault_although_its_error_is_a_value_error(tmp_path):
    class Learner:
        tasks_, n_features_in_ = {"a": None}, 4
        fault = np.linalg.LinAlgError

        def partial_fit(self, X, y, *, task):
            return self

        def save(self, path):
            path.write_bytes(b"the same")

        @classmethod
        def load(cls, path):
            return cls()

        def transform(self, X, *, task):
            raise self.fault("of a matrix")

    _, read = fuzz.state_target(Learner())
    with pytest.raises(np.linalg.LinAlgError, match="of a matrix"):
        fuzz.attempt(read, b"the same", tmp_path / "file")
    Learner.fault = ValueError
    fuzz.attempt(read, b"the same", tmp_path / "file")


ASKED = {
    "lifelong": (LifelongMetricLearner, "transform"),
    "plda": (LifelongPLDA, "transform"),
    "paper": (DictionaryMetricLearner, "transform"),
    "ella": (ELLA, "decision_function"),
    "classifier": (LifelongKNeighborsClassifier, "predict"),
}


@pytest.mark.parametrize("name", ASKED)
def test_what_is_read_of_a_learner_is_asked_about_all_its_tasks(name, tmp_path, monkeypatch):
    files, read = fuzz.TARGETS[name]()
    kind, method = ASKED[name]
    asked, answer = [], getattr(kind, method)

    def noted(self, X, *, task):
        asked.append(task)
        return answer(self, X, task=task)

    monkeypatch.setattr(kind, method, noted)
    for data in files:  # of no task, of one, of two
        fuzz.attempt(read, data, tmp_path / "file")
    assert asked == ["paris", "paris", ("a", 1)]
