"""Results files: what no run writes is named with its line; an append after one that failed."""

import re
from pathlib import Path

import numpy as np
import pytest

from lml.studies.results import answers_text, append_rows, read_rows

RESULTS = Path(__file__).parent.parent / "results"
WRONG = np.arange(21) % 5 == 0  # 5 of 21
ROW = {
    "dataset": "digits",
    "split": "1",
    "system": "a",
    "task": "0-1",
    "error": "0.238095",
    "n_test": "21",
    "parameters": '{"k": 1}',
    "wrong": answers_text(WRONG),
}
STREAM = {
    "split": "1",
    "system": "a",
    "n_learnt": "1",
    "errors": "0.25 nan",
    "parameters": '[{"k": 1}, {"k": 2}]',
}


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.csv")), ids=lambda path: path.stem)
def test_committed_results_are_read(path):
    assert len(read_rows(path)) > 3


CHANGES = [
    ("error", "-0.1", "error is '-0.1', not a number from 0 to 1"),
    ("error", "1.5", "error is '1.5', not a number from 0 to 1"),
    ("error", "nan", "error is 'nan', not a number"),
    ("error", "0.238", "error is 0.238, but 0.238095 of the answers are wrong"),
    ("error", "0.285714", "error is 0.285714, but 0.238095 of the answers are wrong"),
    ("n_test", "-21", "n_test is '-21', not a whole number of at least 1"),
    ("n_test", "0", "n_test is '0', not a whole number"),
    ("n_test", "21.0", "n_test is '21.0', not a whole number"),
    ("n_test", "many", "n_test is 'many', not a whole number"),
    ("n_test", "25", "wrong has 24 bits for n_test=25 answers"),
    ("wrong", "-84210", "wrong is '-84210', not hexadecimal"),
    ("wrong", "wrong", "wrong is 'wrong', not hexadecimal"),
    ("wrong", "842100", "error is 0.238095, but 0.190476 of the answers are wrong"),
    *(
        ("parameters", value, "not JSON of an object")
        for value in ("5", "[]", "null", "NaN", '"k"')
    ),
    ("parameters", '{"k": NaN}', "not JSON of an object"),
    ("parameters", '[{"k": 1}]', "not JSON of an object"),
]


@pytest.mark.parametrize(("name", "value", "said"), CHANGES)
def test_a_row_that_no_run_writes_is_named_with_its_line(tmp_path, name, value, said):
    path = tmp_path / "r.csv"
    append_rows(path, [ROW])  # head, blank, note, row, blank
    assert read_rows(path) == [ROW]
    append_rows(path, [ROW | {"task": "2-3"}, ROW | {"task": "4-5", name: value}])
    texts = path.read_text(encoding="utf-8").splitlines()
    line = 1 + next(n for n, text in enumerate(texts) if "4-5" in text)
    place = f"{path}, line {line}"
    with pytest.raises(ValueError, match=f"^{re.escape(place)}: .*{re.escape(said)}.*restore"):
        read_rows(path)


STREAM_CHANGES = {
    "errors": ("0.25 1.5", "-0.25 nan", "0.25 inf", "0.25 a"),
    "parameters": ("[]", "5", "[5]", '[{"k": 1}, null]'),
}


@pytest.mark.parametrize("name", STREAM_CHANGES)
def test_a_row_of_a_stream_has_an_error_or_nan_and_an_object_for_each_task(tmp_path, name):
    for number, value in enumerate(STREAM_CHANGES[name]):
        path = tmp_path / f"{number}.csv"
        append_rows(path, [STREAM])
        assert read_rows(path) == [STREAM]
        append_rows(path, [STREAM | {"n_learnt": "2", name: value}])
        with pytest.raises(ValueError, match=rf"{number}\.csv, line \d+: {name} (is|are) "):
            read_rows(path)


def test_what_is_measured_twice_is_named_with_both_lines(tmp_path):
    path = tmp_path / "r.csv"
    others = [ROW | {"task": "2-3"}, ROW | {"split": "2"}, ROW | {"system": "b"}]
    append_rows(path, [ROW, *others])
    assert len(read_rows(path)) == 4
    append_rows(path, [ROW | {"parameters": '{"k": 2}'}])
    with pytest.raises(ValueError, match=r"r\.csv, line 10 measures what line 4 has measured"):
        read_rows(path)
    typed = tmp_path / "typed.csv"  # without splits: not of a run
    append_rows(typed, [{"system": "a", "error": "0.5"}] * 2)
    assert len(read_rows(typed)) == 2


def test_after_an_append_that_failed_anywhere_the_next_one_begins_a_line(tmp_path):
    path = tmp_path / "r.csv"
    rows = [ROW | {"task": f"{number}"} for number in range(3)]
    append_rows(path, rows[:1])
    n_first = path.stat().st_size
    append_rows(path, [rows[1] | {"parameters": "{}"}])
    data = path.read_bytes()
    for size in range(len(data)):
        path.write_bytes(data[:size])
        append_rows(path, rows[2:])
        assert read_rows(path) == (rows[:1] if size >= n_first else []) + rows[2:]
    path.write_bytes(data)
    append_rows(path, rows[2:])
    assert [row["task"] for row in read_rows(path)] == ["0", "1", "2"]
    assert path.read_bytes().startswith(data)


def test_a_file_that_is_torn_stays_as_it_is_where_the_rows_do_not_fit(tmp_path):
    path = tmp_path / "r.csv"
    append_rows(path, [ROW])
    torn = path.read_bytes() + b"digits,1,a"
    for data, said in ((torn, "columns"), (b"dataset,spl", "ends within the line 'dataset,spl'")):
        path.write_bytes(data)
        with pytest.raises(ValueError, match=said):
            append_rows(path, [{"system": "a"}])
        assert path.read_bytes() == data


def test_a_full_disk_leaves_a_file_that_the_next_append_mends(tmp_path, monkeypatch):
    path = tmp_path / "r.csv"
    append_rows(path, [ROW])
    real = Path.open

    def full(self, *args, **kwargs):
        file = real(self, *args, **kwargs)
        write = file.write

        def half(text):
            write(text[: len(text) // 2])
            file.flush()
            raise OSError(28, "No space left on device")

        file.write = half
        return file

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(OSError, match="No space"):
        append_rows(path, [ROW | {"task": "2-3"}])
    monkeypatch.undo()
    assert not path.read_bytes().endswith(b"\n")
    append_rows(path, [ROW | {"task": "4-5"}])
    assert [row["task"] for row in read_rows(path)] == ["0-1", "4-5"]
