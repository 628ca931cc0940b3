"""The benchmark itself: its checks can fail, failures are kept, the files and the arithmetic."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from benchmarks import __main__ as bench
from benchmarks import loops, worker
from benchmarks.growth import STEPS, Step, measure
from benchmarks.rows import ELSEWHERE, ROWS, WIDTHS, Row
from tangle import ROOT

from lml.oasis import passive_aggressive_step
from lml.studies.results import append_rows, read_rows
from lml.triplets import sample_triplets


def two_ways(shift=0.0, **options):
    """A row whose peer differs by a shift and takes twice as long."""
    return Row(
        "work",
        lambda quick: {},
        lambda data: {"x": 1.0, "seconds": 1.0},
        lambda ours, peer: (bool(ours["x"] == peer["x"]), "compared"),
        {"peer": lambda data: {"x": 1.0 + shift, "seconds": 2.0}},
        **options,
    )


@pytest.fixture
def in_process(monkeypatch):
    """Runs in this process; a table of the rows that exist."""
    table = {}

    def run_side(name, side, quick, limit):
        row = table[name]
        result = worker.timed(row.ours if side == "ours" else row.peers[side], {})
        return {**result, "_megabytes": 10.0}

    monkeypatch.setattr(bench, "run_side", run_side)
    monkeypatch.setattr(bench, "ROWS", table)
    return table


def test_a_goal_is_met_only_when_the_ratio_reaches_it(in_process):
    in_process.update(reached=two_ways(goal=2.0), missed=two_ways(goal=2.1))
    line = bench.run_line("reached", "peer", False, 1.0)
    assert (line["ratio"], line["met"], line["agrees"], line["runs"]) == (2.0, True, True, 5)
    line = bench.run_line("missed", "peer", False, 1.0)
    assert (line["met"], line["agrees"]) == (False, True)


def test_a_fast_but_wrong_result_meets_no_goal(in_process):
    in_process["wrong"] = two_ways(shift=0.1, goal=2.0)
    line = bench.run_line("wrong", "peer", False, 1.0)
    assert (line["met"], line["agrees"]) == (False, False)


@pytest.mark.parametrize(
    ("seconds", "megabytes", "met"), [(1, 10, True), (0.9, 0, False), (0, 9, False)]
)
def test_limits_of_time_and_memory(in_process, seconds, megabytes, met):
    in_process["row"] = two_ways(seconds=seconds, megabytes=megabytes)
    assert bench.run_line("row", "peer", False, 1.0)["met"] is met


def test_ratios_are_of_runs_side_by_side():
    ours = [{"_seconds": s, "_wall": s, "_megabytes": 1.0} for s in (1.0, 4.0, 2.0)]
    peers = [{"_seconds": s, "_wall": s, "_megabytes": 1.0} for s in (10.0, 40.0, 22.0)]
    cells = bench.summary(ROWS["oasis-isolet"], ours, peers)
    assert (cells["ratio"], cells["ratio_low"], cells["ratio_high"]) == (10.0, 10.0, 11.0)
    assert (cells["seconds"], cells["peer_seconds"]) == (2.0, 22.0)


def test_a_failed_run_is_recorded_and_the_others_go_on(in_process, monkeypatch, tmp_path, capsys):
    def broken(data):
        raise bench.RunFailed("peer: stopped after 3 s")

    bad = Row("work", two_ways().prepare, two_ways().ours, two_ways().check, {"peer": broken})
    in_process.update({"first": bad, "second": two_ways()})
    lines = bench.run(["first", "second"], True, 3.0, tmp_path)
    assert [line["failed"] for line in lines] == ["peer: stopped after 3 s", ""]
    assert (lines[0]["agrees"], lines[0]["seconds"]) == (False, 1.0)
    assert "FAILED" in capsys.readouterr().out
    rows = read_rows(tmp_path / "bench.csv")
    assert [row["row"] for row in rows] == ["first", "second"]
    assert rows[0]["failed"] == "peer: stopped after 3 s"
    assert (rows[1]["ratio"], rows[1]["agrees"], rows[1]["form"]) == ("2", "True", "quick")


def test_ctrl_c_keeps_the_finished_rows(in_process, tmp_path, capsys):
    def interrupted(data):
        raise KeyboardInterrupt

    in_process["done"] = two_ways()
    in_process["broken"] = Row("work", lambda quick: {}, interrupted, two_ways().check)
    assert bench.main(["--only", "done", "broken", "--out", str(tmp_path)]) == 130
    assert "finished rows are in" in capsys.readouterr().err
    assert [row["row"] for row in read_rows(tmp_path / "bench.csv")] == ["done"]


def test_a_run_that_takes_too_long_is_stopped():
    with pytest.raises(bench.RunFailed, match=r"ours: stopped after 0\.01 s"):
        bench.run_side("oasis-isolet", "ours", True, 0.01)


def test_the_error_of_a_run_is_told():
    with pytest.raises(bench.RunFailed, match="KeyError: 'nowhere'"):
        bench.run_side("oasis-isolet", "nowhere", True, 60.0)


def test_without_the_peers_environment_the_reason_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "PEERS", bench.ROOT / "missing" / "python")
    with pytest.raises(bench.RunFailed, match="make bench"):
        bench.run_side("scml-sentiment", "metric-learn", True, 60.0)


def test_unknown_rows_are_named(capsys):
    with pytest.raises(SystemExit):
        bench.main(["--only", "oasis-isolet", "oasis-islet"])
    assert "unknown rows ['oasis-islet']: choose from oasis-sentiment" in capsys.readouterr().err


def test_rows_run_anew_replace_their_old_lines_only(tmp_path):
    path = tmp_path / "bench.csv"
    line = {"row": "oasis-isolet", "peer": "numpy loop", "seconds": 1.0}
    bench.write(path, bench.COLUMNS, [line, {**line, "row": "oasis-sentiment"}])
    bench.write(path, bench.COLUMNS, [{**line, "seconds": 2.0}])
    rows = [(row["row"], row["seconds"]) for row in read_rows(path)]
    assert rows == [("oasis-sentiment", "1"), ("oasis-isolet", "2")]  # in the order of the rows
    assert [p.name for p in tmp_path.iterdir()] == ["bench.csv"]


def test_lines_of_rows_that_this_checkout_lacks_stay_unless_all_rows_run(tmp_path):
    path = tmp_path / "bench.csv"
    line = {"row": "from-elsewhere", "peer": "loop", "seconds": "3"}
    append_rows(path, [dict.fromkeys(bench.COLUMNS, "") | line])

    def names():
        return [row["row"] for row in read_rows(path)]

    bench.write(path, bench.COLUMNS, [{"row": "oasis-isolet", "peer": "numpy loop"}])
    assert names() == ["oasis-isolet", "from-elsewhere"]
    bench.forget_unknown(tmp_path)
    assert names() == ["oasis-isolet"]


def test_a_check_that_breaks_stops_no_other_row(in_process, tmp_path, capsys):
    def broken(ours, peer):
        raise KeyError("nothing")

    bad = Row("work", two_ways().prepare, two_ways().ours, broken)
    in_process.update({"first": bad, "second": two_ways()})
    lines = bench.run(["first", "second"], True, 3.0, tmp_path)
    assert [line["failed"] for line in lines] == ["check: KeyError('nothing')", ""]
    assert not lines[0]["met"]
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith("[1/2,")
    assert told[1].startswith("[2/2,")


def test_the_number_of_runs_can_be_set(in_process):
    in_process["row"] = two_ways(goal=2.0)
    counts = [bench.run_line("row", "peer", *how)["runs"] for how in
              ((False, 1.0), (False, 1.0, 2), (True, 1.0), (True, 1.0, 4))]  # fmt: skip
    assert counts == [5, 2, 1, 4]


def test_a_step_measured_anew_keeps_no_old_sizes(tmp_path):
    path = tmp_path / "bench-growth.csv"
    for sizes in ((1, 2, 3), (2, 4)):
        lines = [{"step": "coding", "variable": "d", "value": n, "seconds": 0.1} for n in sizes]
        bench.write(path, bench.GROWTH, lines)
        bench.write(path, bench.GROWTH, [{"step": "re-coding", "value": 7}])
    found = [(row["step"], row["value"]) for row in read_rows(path)]
    assert found == [("coding", "2"), ("coding", "4"), ("re-coding", "7")]


def test_slope_finds_the_exponent_of_a_power_law():
    sizes = np.array([10, 30, 100])
    assert bench.slope(sizes, 3 * sizes**1.5) == pytest.approx(1.5)
    # by hand: least squares through (0, 0), (1, 1), (2, 4) in units of log 10
    assert bench.slope([1, 10, 100], [1, 10, 10_000]) == pytest.approx(2.0)


def wide_lines(power):
    seconds = [1e-3 * D**power for D in WIDTHS]
    return [
        {"row": f"width-{D}", "seconds": s, "megabytes": 100 + 0.01 * D, "form": "full"}
        for D, s in zip(WIDTHS, seconds)
    ]


def test_growth_over_the_width_is_judged_by_its_exponent():
    assert not bench.width_slope(wide_lines(1.0)[:2])
    (line,) = bench.width_slope(wide_lines(1.0))
    assert line["met"]
    assert line["check"] == "slope of time 1.00, of memory beyond 100 MB 1.00"
    assert not bench.width_slope(wide_lines(1.2))[0]["met"]


def result(**values):
    return {key: np.asarray(value) for key, value in values.items()}


NEAR, FAR = np.eye(2), np.eye(2) + 1e-6
CHECKS = {
    "oasis-sentiment": (result(W=NEAR, share=0.5), result(W=NEAR), result(W=FAR)),
    "scml-sentiment": (result(value=1.0), result(value=1.1), result(value=0.9)),
    "lmnn-usps": (result(value=1.0), result(value=1.1), result(value=0.9)),
    "fisher-isolet": (result(F=NEAR), result(F=-NEAR), result(F=NEAR[::-1])),
    "coding-any": (
        result(certificate=1e-9, n_iter=150, objective=1.0),
        result(objective=1.0),
        result(objective=0.9),
    ),
    "coding-iteration": (result(n=100), result(n=100), result(n=99)),
    "task-20": (result(tasks=20), result(tasks=20), result(tasks=19)),
    "neighbors-embedded": (*[result(nearest=[[1, 2]])] * 2, result(nearest=[[2, 1]])),
    "compiled-scores": (result(K=NEAR), result(K=NEAR), result(K=FAR)),
}  # fmt: skip


@pytest.mark.parametrize("name", CHECKS)
def test_the_check_of_a_row_accepts_what_agrees_and_nothing_else(name):
    ours, same, other = CHECKS[name]
    assert ROWS[name].check(ours, same)[0]
    assert not ROWS[name].check(ours, other)[0]


LATE = {"early": 1, "worst": 5, "last": 9}


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("oasis-raw", {"errors": [0.2, 0.3], "D": 5}, {"errors": [0.5, 0.5], "D": 5}),
        ("task-1000", {**LATE, "late": 1.4}, {**LATE, "late": 1.6}),
        ("task-1000-plda", {**LATE, "late": 1.4}, {**LATE, "late": 1.6}),
        ("width-256", {"tasks": 4}, {"tasks": 3}),
    ],
)  # fmt: skip
def test_the_check_of_a_row_without_a_peer_can_fail(name, good, bad):
    assert ROWS[name].check(result(**good), {})[0]
    assert not ROWS[name].check(result(**bad), {})[0]


def test_loops_for_the_compiler_do_the_steps_of_the_chapter():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 5)), np.arange(30) % 3
    triplets, W = sample_triplets(y, 200, 0), np.eye(5)
    for i, j, k in triplets:
        W, _ = passive_aggressive_step(W, X[i], X[j], X[k], 0.1)
    found, gram, K = np.eye(5), X @ X.T, np.zeros((30, 30))
    loops.oasis_steps(X, triplets, 0.1, found)
    np.testing.assert_allclose(found, W, atol=1e-10)
    loops.oasis_scores(gram, gram.copy(), triplets, 0.1, K)
    np.testing.assert_allclose(np.eye(5) + X.T @ K @ X, W, atol=1e-10)


def test_a_step_is_measured_at_every_size():
    calls = []
    found = measure(
        Step("n", (1, 2, 3), lambda n: lambda: calls.append(bytearray(n << 20)), 1), False
    )
    assert found["value"].tolist() == [1, 2, 3]
    np.testing.assert_allclose(found["megabytes"], [1, 2, 3], rtol=0.01)
    assert len(measure(Step("n", (1, 2, 3), lambda n: lambda: None, 1), True)["value"]) == 2


def test_every_peer_elsewhere_is_pinned_and_every_loader_finds_its_packages():
    text = (ROOT / "requirements" / "peers.txt").read_text()
    pins = dict(re.findall(r"^([\w-]+)==(\S+)$", text, re.MULTILINE))
    assert set(ELSEWHERE) <= set(pins)
    ours = (ROOT / "requirements" / "newest.txt").read_text()
    shared = dict(re.findall(r"^([\w-]+)==(\S+)$", ours, re.MULTILINE))
    clash = {name for name in pins if shared.get(name, pins[name]) != pins[name]}
    assert clash == {"scikit-learn"}  # the reason for an environment of their own


def test_the_command_lists_its_rows():
    command = [sys.executable, "-m", "tools.benchmarks", "--help"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert all(name in told.replace("\n", "") or name in told for name in ("oasis-raw", "lml-task"))
    assert not set(ROWS) & set(STEPS)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc of Linux")
def test_memory_of_the_parent_is_not_counted():
    child = "from tools.benchmarks.worker import peak_megabytes as p; print(p())"
    parent = (
        "import subprocess, sys; much = bytearray(b'x' * 400_000_000); "
        f"print(subprocess.check_output([sys.executable, '-c', {child!r}], text=True))"
    )
    out = subprocess.check_output([sys.executable, "-c", parent], text=True, cwd=ROOT)
    assert 20 < float(out) < 350
