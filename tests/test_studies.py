"""The laboratory as a program: files of results, one run in a folder, one command, its place."""

import json
import os
import re
import stat
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from lml.studies import __main__ as command
from lml.studies.__main__ import main
from lml.studies.experiments import run_experiment, run_missing
from lml.studies.results import append_rows, finished, locked, open_results, read_rows

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results"
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


@dataclass
class Pair:
    """A row of a file of two rows a job."""

    split: int
    task: str
    error: float
    versions: str = "v 1, w 2"


def jobs(n_jobs):
    return [[vars(Pair(split, task, (1 + split) / 10)) for task in "ab"] for split in range(n_jobs)]


def write(path, written):
    for rows in written:
        append_rows(path, rows)
    return path


def texts(rows):
    return [{name: str(value) for name, value in row.items()} for row in rows]


def test_what_is_written_is_read(tmp_path):
    path = write(tmp_path / "r.csv", jobs(3))
    assert read_rows(path) == read_rows(str(path)) == texts(row for job in jobs(3) for row in job)
    assert path.read_text(encoding="utf-8").count("v 1, w 2") == 1
    path.write_text(path.read_text(encoding="utf-8").replace('#1,"v', '#2,"v'), encoding="utf-8")
    with pytest.raises(
        ValueError, match=r"r\.csv, line 4: there is no note #1 above: restore the file"
    ):
        read_rows(path)


def test_missing_and_empty_files_have_no_rows(tmp_path):
    assert read_rows(tmp_path / "none.csv") == []
    (tmp_path / "empty.csv").write_text("")
    assert read_rows(tmp_path / "empty.csv") == []
    assert finished(tmp_path / "none.csv", "split") == {}


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.csv")), ids=lambda path: path.stem)
def test_committed_files_are_read_and_written_to_the_same_bytes(path, tmp_path):
    rows = read_rows(path)
    assert rows
    append_rows(tmp_path / "all.csv", rows)
    assert read_rows(tmp_path / "all.csv") == rows
    if path.name == "paper.csv":  # typed by hand
        return
    blocks = path.read_text(encoding="utf-8").split("\n\n")[1:-1]
    copy, begun = tmp_path / path.name, 0
    for block in blocks:
        size = sum(not line.startswith("#") for line in block.splitlines())
        append_rows(copy, rows[begun : begun + size])
        begun += size
    assert copy.read_bytes() == path.read_bytes()
    assert read_rows(copy) == rows


def test_a_file_that_a_spreadsheet_has_saved_reads_the_same(tmp_path):
    plain, saved = write(tmp_path / "plain.csv", jobs(2)), tmp_path / "saved.csv"
    lines = plain.read_text(encoding="utf-8").splitlines()
    lines = [line or ",,," for line in lines]
    saved.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    assert read_rows(saved) == read_rows(plain)
    with pytest.raises(ValueError, match=r"saved\.csv begins with .*move the file away"):
        open_results(saved, Pair)
    assert len(saved.read_bytes()) > len(plain.read_bytes())


def test_readers_see_finished_jobs_and_the_next_run_keeps_them(tmp_path):
    path = write(tmp_path / "r.csv", jobs(3))
    text, rows = path.read_text(encoding="utf-8"), read_rows(path)
    head = text.index("\n\n") + 2
    for cut in range(len(text) + 1):
        path.write_text(text[:cut], encoding="utf-8")
        n_finished = max(text[:cut].count("\n\n") - 1, 0)
        if cut >= head:
            assert read_rows(path) == rows[: 2 * n_finished]
        open_results(path, Pair)
        assert read_rows(path) == rows[: 2 * n_finished]
        write(path, jobs(3)[n_finished:])
        assert path.read_text(encoding="utf-8") == text or read_rows(path) == rows


def test_blocks_that_a_power_cut_has_lost_read_as_zeros_and_are_cut_off(tmp_path):
    path = write(tmp_path / "r.csv", jobs(3))
    raw, rows, job = path.read_bytes(), read_rows(path), len(b"2,a,0.3,#1\n2,b,0.3,#1\n\n")
    for begun in range(len(raw) - job, len(raw)):
        for size in (1, 7, job):
            lost = raw[begun : begun + size]
            path.write_bytes(raw[:begun] + bytes(len(lost)) + raw[begun + size :])
            assert read_rows(path) == rows[:4]
            open_results(path, Pair)
            assert path.read_bytes() == raw[:-job]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("0.5", "abc", "error is 'abc', not a number"),
        ("0.5", "", "error is '', not a number"),
        ("0.5", "nan", "error is 'nan', not a number"),
        (",2,", ",7,", "the seed of split 2 is '7'"),
        ("2,a", "3,a", "the seed of split 3 is '2'"),
        ("#1", "{C: 1}", "parameters is '{C: 1}', not JSON"),
        ("#1", "#8", "there is no note #8 above"),
        (",#1", "", r"has 5 cells, not 6"),
        ("#1", "#1,1", r"has 7 cells, not 6"),
    ],
)
def test_a_row_that_was_changed_is_named_with_its_file_and_line(tmp_path, old, new, said):
    path = tmp_path / "r.csv"
    row = {"split": 2, "task": "a", "error": 0.5, "seed": 2, "parameters": '{"C": 1}', "n": 3}
    append_rows(path, [{**row, "task": "c"}, row])
    text = path.read_text(encoding="utf-8")
    line = text.splitlines()[-2]
    assert line == "2,a,0.5,2,#1,3"
    path.write_text(text.replace(line, line.replace(old, new, 1)), encoding="utf-8")
    with pytest.raises(ValueError, match=rf"r\.csv, line 5:? {said}.*remove the rows of this job"):
        read_rows(path)


def test_a_column_that_stands_twice_is_refused(tmp_path):
    path = tmp_path / "r.csv"
    for text in ("a,b,a\n\n1,2,3\n\n", ",\n3,4\n\n"):  # the second was found by `make fuzz`
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=r"r\.csv, line 1: columns .* not all different"):
            read_rows(path)


def test_rows_are_on_the_disk_when_the_call_returns(tmp_path, monkeypatch):
    path, synced, sync = tmp_path / "r.csv", [], os.fsync

    def fsync(handle):
        found = os.fstat(handle)
        synced.append("folder" if stat.S_ISDIR(found.st_mode) else found.st_size)
        sync(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    folder = ["folder"] if os.name == "posix" else []
    write(path, jobs(1))
    first = path.stat().st_size
    assert synced == [first, *folder]
    write(path, jobs(1))
    assert synced == [first, *folder, path.stat().st_size]
    del synced[:]
    path.write_bytes(path.read_bytes() + b"0,")
    open_results(path, Pair)
    assert synced == [path.stat().st_size, *folder]


def test_a_job_that_stands_in_a_file_is_not_written_over(tmp_path):
    path = write(tmp_path / "r.csv", jobs(2))
    before = path.read_bytes()
    open_results(path, Pair)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["r.csv"]


def test_nothing_runs_where_one_of_the_files_has_other_columns(tmp_path):
    write(tmp_path / "old.csv", [[{"split": 0, "error": 1.0}]])
    call = partial(pytest.fail, "ran")
    plan = {tmp_path / name: {(0, "a"): call} for name in ("new.csv", "old.csv")}
    with pytest.raises(ValueError, match=r"old\.csv begins with .* move the file away"):
        run_missing(plan, Pair, ("split", "task"), progress=False)
    assert not read_rows(tmp_path / "new.csv")


def content(path):
    """Rows without the times, in a fixed order."""
    free = ("seconds", "total_seconds")
    return sorted(tuple(v for k, v in row.items() if k not in free) for row in read_rows(path))


def run_command(folder, *names, splits="2"):
    return [
        *(sys.executable, "-m", "lml.studies", "run", "digits", "--systems", *names),
        *("--splits", splits, "--out", str(folder)),
    ]


def wait_for_rows(process, path, n_rows):
    while len(read_rows(path)) < n_rows:
        assert process.poll() is None, "the run ended too early"
        time.sleep(0.02)


def test_a_killed_run_goes_on_and_loses_nothing(tmp_path):
    """Kill the command after its first rows are written, then run it again."""
    names = ["euclidean", "logistic", "nca", "mtscml"]
    path = tmp_path / "killed" / "digits.csv"
    process = subprocess.Popen(run_command(path.parent, *names), **QUIET)
    wait_for_rows(process, path, 8)
    process.kill()
    process.wait()
    before = path.read_text(encoding="utf-8")
    assert len(read_rows(path)) < 2 * 4 * 4
    with path.open("a", encoding="utf-8") as file:
        file.write("digits,1,mtscml,0-1,0.0")  # a line that a kill has cut
    subprocess.run(run_command(path.parent, *names), check=True, **QUIET)
    assert path.read_text(encoding="utf-8").startswith(before)
    whole = run_experiment("digits", names, 2, out=tmp_path / "whole", progress=False)
    assert content(path) == content(whole)


def test_a_second_run_in_the_folder_is_refused_until_the_first_has_ended(tmp_path):
    path = tmp_path / "digits.csv"
    first = subprocess.Popen(run_command(tmp_path, "euclidean", "mtscml"), **QUIET)
    try:
        wait_for_rows(first, path, 4)
        again = run_command(tmp_path, "euclidean", "logistic")
        second = subprocess.run(again, capture_output=True, text=True, check=False)
        assert first.poll() is None, "the first run ended before the second began"
    finally:
        first.kill()
        first.wait()
    assert second.returncode == 1
    assert f"another run writes into {tmp_path}: wait until it has ended" in second.stderr
    assert "Traceback" not in second.stderr
    path = run_experiment("digits", ["euclidean", "logistic"], 2, out=tmp_path, progress=False)
    keys = [(row["split"], row["system"], row["task"]) for row in read_rows(path)]
    assert len(keys) == len(set(keys)) >= 2 * 2 * 4


def test_a_lock_is_of_the_folder_and_ends_with_its_block(tmp_path):
    with (
        locked(tmp_path / "new"),
        locked(tmp_path),
        pytest.raises(BlockingIOError, match="another run writes into"),
        locked(tmp_path),
    ):
        pytest.fail("two runs in a folder")
    with pytest.raises(RuntimeError, match="stopped"), locked(tmp_path):
        raise RuntimeError("stopped")
    with locked(tmp_path):
        assert not [p for p in tmp_path.iterdir() if p.name != "new"]


def test_a_cluster_of_processes_gives_the_same_rows(tmp_path):
    """Dask's backend with workers in processes of their own."""
    distributed = pytest.importorskip("distributed")
    names = ["euclidean", "logistic", "nca"]
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        arguments = run_command(tmp_path / "dask", *names)[3:]
        main([*arguments, "--scheduler", client.scheduler.address])
    here = run_experiment("digits", names, 2, out=tmp_path / "here", progress=False)
    assert content(tmp_path / "dask" / "digits.csv") == content(here)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("walk", "invalid choice: 'walk'"),
        ("run foo", "data set 'foo' is not known: use some of"),
        ("run isolet-30", "data set 'isolet-30' is not known: use some of"),
        ("transfer --studies depth", "invalid choice: 'depth'"),
        (
            "ablations usps --studies penalty",
            r"no study of \['penalty'\] has the data sets \['usps'\]",
        ),
        ("ablations --studies streams", "no study of"),
    ],
)
def test_the_command_line_refuses_what_it_does_not_know(capsys, line, said):
    with pytest.raises(SystemExit) as stopped:
        main(line.split())
    assert stopped.value.code == 2
    assert re.search(said, capsys.readouterr().err)


@pytest.mark.parametrize(
    "line",
    [
        "transfer usps --splits 2 --studies learners --out there",
        "transfer --splits 2 --studies learners --out there usps",
        "transfer --studies learners --out there usps --splits 2",
    ],
)
def test_data_sets_may_stand_behind_options_of_the_command(monkeypatch, line):
    calls = []
    monkeypatch.setattr(command, "run_study", lambda *a, **options: calls.append((a, options)))
    assert main(line.split()) == 0
    options = {"n_splits": 2, "n_jobs": None, "out": "there"}
    assert calls == [(("learners", ["usps"], None), options)]


def test_all_studies_that_have_a_data_set_are_run_on_it(monkeypatch):
    calls = []
    monkeypatch.setattr(command, "run_ablation", lambda *a, **options: calls.append(a[:2]))
    assert main(["ablations", "isolet"]) == 0
    assert calls == [(name, ["isolet"]) for name in ("penalty", "size", "tasks")]
    monkeypatch.setattr(command, "run_study", lambda *a, **options: calls.append(a[0]))
    del calls[:]
    assert main(["transfer"]) == 0
    assert calls == list(command.STUDIES)


def test_a_system_without_a_row_is_left_out_of_a_run(monkeypatch):
    calls = []
    monkeypatch.setattr(command, "run_experiment", lambda *a, **options: calls.append(a))
    monkeypatch.setattr(command, "report", lambda *a: None)
    assert main(["run", "usps", "isolet", "--systems", "pooled-scml"]) == 0
    assert calls == [("isolet", ["pooled-scml"])]


def test_nothing_but_the_laboratory_imports_it():
    package = ROOT / "lml"
    others = [p for p in package.rglob("*.py") if "studies" not in p.relative_to(package).parts]
    assert not [p for p in others if "lml.studies" in p.read_text(encoding="utf-8")]


def test_parameters_are_json_that_reads_back():
    for path in RESULTS.glob("transfer-*.csv"):
        for text in {row["parameters"] for row in read_rows(path)}:
            assert json.dumps(json.loads(text)) == text
