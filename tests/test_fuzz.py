"""Some hundred damaged files for each reader, as `make fuzz` gives many thousands."""

import os
import random

import fuzz
import pytest


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
