"""Run the benchmark: ``python -m tools.benchmarks [--quick] [--only ROW ...] [--runs N]``.

Each run is a process of its own with one BLAS thread: ours, peer, ours, peer, ... The files have
medians and ranges, the ratio of paired runs, peak memory, and whether the results agree. Seconds
are those of the processor, so that other work on the machine counts as little as possible.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from lml.studies.results import append_rows, read_rows

from .growth import STEPS
from .rows import ELSEWHERE, ROWS, WIDTHS, Row

ROOT = Path(__file__).resolve().parents[2]
PEERS = ROOT / ".venv-peers" / "bin" / "python"
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
COLUMNS = (
    "row", "work", "peer", "runs", "seconds", "seconds_low", "seconds_high", "wall_seconds",
    "peer_seconds", "peer_low", "peer_high", "peer_wall_seconds", "ratio", "ratio_low",
    "ratio_high", "megabytes", "peer_megabytes", "goal", "met", "agrees", "check", "failed",
    "form", "machine", "versions",
)  # fmt: skip
GROWTH = ("step", "variable", "value", "seconds", "megabytes", "form", "machine", "versions")
KEYS = {"bench.csv": ("row", "peer"), "bench-growth.csv": ("step", "value")}


class RunFailed(Exception):
    """A run that ended with an error or took too long."""


def run_side(name: str, side: str, quick: bool, limit: float) -> dict[str, Any]:
    """One run in a process of its own: what it returned, seconds and peak memory."""
    python = str(PEERS) if side in ELSEWHERE else sys.executable
    if not Path(python).exists():
        raise RunFailed(f"{side}: there is no {PEERS.relative_to(ROOT)}, which make bench makes")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "result.npz"
        command = [python, "-m", "tools.benchmarks.worker", name, side, str(out), str(int(quick))]
        environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": str(ROOT)}
        options: dict[str, Any] = {"cwd": ROOT, "env": environment, "timeout": limit}
        try:
            ended = subprocess.run(command, capture_output=True, text=True, **options)
        except subprocess.TimeoutExpired:
            raise RunFailed(f"{side}: stopped after {limit:g} s") from None
        if ended.returncode or not out.exists():
            said = ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"]
            raise RunFailed(f"{side}: {said[-1]}")
        with np.load(out) as stored:
            return {key: stored[key] for key in stored.files}


def summary(row: Row, ours: list[dict[str, Any]], peers: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians and ranges of the runs; the ratios are of runs that stood side by side."""
    if not ours:
        return {"runs": 0, "met": False}
    seconds = np.array([float(run["_seconds"]) for run in ours])
    cells: dict[str, Any] = {
        "runs": len(ours), "seconds": float(np.median(seconds)),
        "seconds_low": float(seconds.min()), "seconds_high": float(seconds.max()),
        "wall_seconds": float(np.median([float(run["_wall"]) for run in ours])),
        "megabytes": max(float(run["_megabytes"]) for run in ours),
    }  # fmt: skip
    met = row.seconds == 0 or cells["seconds"] <= row.seconds
    met &= row.megabytes == 0 or cells["megabytes"] <= row.megabytes
    if peers and np.isfinite(float(peers[0]["_seconds"])):
        other = np.array([float(run["_seconds"]) for run in peers])
        ratios = other / seconds[: len(other)]
        cells |= {
            "peer_seconds": float(np.median(other)), "peer_low": float(other.min()),
            "peer_high": float(other.max()),
            "peer_wall_seconds": float(np.median([float(run["_wall"]) for run in peers])),
            "ratio": float(np.median(ratios)), "ratio_low": float(ratios.min()),
            "ratio_high": float(ratios.max()),
            "peer_megabytes": max(float(run["_megabytes"]) for run in peers),
        }  # fmt: skip
    met &= row.goal == 0 or cells.get("ratio", 0.0) >= row.goal
    return cells | {"met": bool(met)}


def goal(row: Row) -> str:
    """What a row is to reach, in words."""
    parts = [f"{row.goal:.3g} times"] * (row.goal > 0) + [f"{row.seconds:g} s"] * (row.seconds > 0)
    return ", ".join(parts + [f"{row.megabytes:g} MB"] * (row.megabytes > 0)) or "check"


def run_line(
    name: str, peer: str, quick: bool, limit: float, n_runs: int | None = None
) -> dict[str, Any]:
    """A line of the table: interleaved runs of one row against one peer."""
    row, ours, peers = ROWS[name], [], []
    line: dict[str, Any] = {"row": name, "work": row.work, "peer": peer, "goal": goal(row)}
    line |= {"agrees": False, "check": "", "failed": "", "form": "quick" if quick else "full"}
    try:
        for _ in range(n_runs or (1 if quick else row.runs)):
            ours.append(run_side(name, "ours", quick, limit))
            if peer:
                peers.append(run_side(name, peer, quick, limit))
        line["agrees"], line["check"] = row.check(ours[-1], peers[-1] if peers else {})
    except RunFailed as error:
        line["failed"] = str(error)
    except Exception as error:  # a check that breaks must not stop the other rows
        line["failed"] = f"check: {error!r}"
    line |= summary(row, ours, peers)
    return line | {"met": bool(line["met"] and line["agrees"])}


def run_growth(name: str, quick: bool, limit: float) -> list[dict[str, Any]]:
    """Seconds and peak memory of one step at growing sizes."""
    found, step = run_side(name, "growth", quick, limit), STEPS[name]
    columns = {key: found[key].tolist() for key in ("value", "seconds", "megabytes")}
    lines = [dict(zip(columns, values)) for values in zip(*columns.values())]
    form = {"form": "quick" if quick else "full"}
    return [{"step": name, "variable": step.variable, **line, **form} for line in lines]


def slope(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Exponent p of the power law values ~ sizes**p, by least squares of the logarithms."""
    x = np.log(np.asarray(sizes, dtype=float))
    y, x = np.log(np.asarray(values, dtype=float)), x - x.mean()
    return float(x @ y / (x @ x))


def width_slope(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The line on the growth of time and of memory over the number of features.

    Memory counts from what a run of no width would take, by the line through first and last.
    """
    rows = {line["row"]: line for line in lines if "seconds" in line}
    widths = [D for D in WIDTHS if f"width-{D}" in rows]
    if len(widths) < 3:
        return []
    wide = [rows[f"width-{D}"] for D in widths]
    memory = [line["megabytes"] for line in wide]
    base = memory[0] - widths[0] * (memory[-1] - memory[0]) / (widths[-1] - widths[0])
    above = [max(value - base, 1e-3) for value in memory[1:]]
    p, q = slope(widths, [line["seconds"] for line in wide]), slope(widths[1:], above)
    good = max(p, q) <= 1.1
    text = f"slope of time {p:.2f}, of memory beyond {base:.0f} MB {q:.2f}"
    line = {"row": "width-slope", "work": "growth over D", "peer": "", "goal": "slopes <= 1.1"}
    return [{**line, "met": good, "agrees": True, "check": text, "form": wide[0]["form"]}]


def machine() -> str:
    """Model and number of the processors."""
    file, name = Path("/proc/cpuinfo"), platform.processor() or platform.machine()
    for line in file.read_text().splitlines() if file.exists() else ():
        if line.startswith("model name"):
            name = line.split(":", 1)[1].strip()
    return f"{name}, {os.cpu_count()} cores, one thread"


def versions() -> str:
    """Versions of what is measured."""
    parts = [f"{name} {version(name)}" for name in ("numpy", "scipy", "scikit-learn")]
    pins = (ROOT / "requirements" / "peers.txt").read_text(encoding="utf-8").splitlines()
    other = [pin.replace("==", " ") for pin in pins if pin.split("==")[0] in ELSEWHERE]
    return ", ".join([f"Python {platform.python_version()}", *parts, *other])


def _told(line: dict[str, Any]) -> str:
    """A line of the table for the reader who waits."""
    reached = f"goal {line['goal']} {'met' if line['met'] else 'NOT MET'}"
    said = f"{line['row']:20} {line['peer']:24}"
    if "seconds" in line:
        said += f" {line['seconds']:8.3f} s"
    if "ratio" in line:
        said += f" {line['ratio']:8.2f} times ({line['ratio_low']:.2f} to {line['ratio_high']:.2f})"
    if line.get("failed"):
        return f"{said} FAILED: {line['failed']}"
    return f"{said} {reached}; {'agrees' if line['agrees'] else 'DISAGREES'}: {line['check']}"


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def write(
    path: Path, columns: Sequence[str], lines: Sequence[dict[str, Any]], only_known: bool = False
) -> None:
    """The lines as a table, in the order of the rows; old lines of other rows stay.

    Those of rows that this checkout does not have stay too, at the end, unless told otherwise.
    """
    name = KEYS[path.name][0]
    order = _order()
    old = [row for row in read_rows(path) if row[name] in order or not only_known]
    new = [{key: _text(value) for key, value in line.items()} for line in lines]
    if name == "step":  # sizes that a step no longer has go
        old = [row for row in old if row["step"] not in {line["step"] for line in new}]
    table = {tuple(row[key] for key in KEYS[path.name]): row for row in (*old, *new)}
    rows = sorted(table.values(), key=lambda row: order.get(row[name], len(order)))
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)
    if rows:
        append_rows(part, [{key: row.get(key, "") for key in columns} for row in rows])
        part.replace(path)  # Ctrl-C leaves the old file or the new one
    else:
        path.unlink(missing_ok=True)


def _order() -> dict[str, int]:
    return {name: n for n, name in enumerate([*ROWS, "width-slope", *STEPS])}


def forget_unknown(out: Path) -> None:
    """Drop the lines of rows that this checkout does not have, before a run of all."""
    for name, columns in (("bench.csv", COLUMNS), ("bench-growth.csv", GROWTH)):
        if (out / name).exists():
            write(out / name, columns, [], only_known=True)


def _processor() -> float:
    """Seconds that the runs so far took of the processors."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(
    names: Sequence[str], quick: bool, limit: float, out: Path, n_runs: int | None = None
) -> list[dict[str, Any]]:
    """Run rows and steps one after another; what is finished is in the files."""
    stamp = {"machine": machine(), "versions": versions()}
    lines: list[dict[str, Any]] = []
    pieces = [(name, peer) for name in names if name in ROWS for peer in ROWS[name].peers or ("",)]
    steps = [name for name in names if name in STEPS]
    total, begun, last = len(pieces) + len(steps), _processor(), _processor()

    def tell(done: int, text: str) -> None:
        nonlocal last
        spent, last = _processor() - last, _processor()
        print(f"[{done}/{total}, {last - begun:5.0f} s, {spent:4.0f} s] {text}", flush=True)

    for done, (name, peer) in enumerate(pieces, 1):
        lines.append(run_line(name, peer, quick, limit, n_runs) | stamp)
        write(out / "bench.csv", COLUMNS, lines[-1:])
        tell(done, _told(lines[-1]))
    for line in width_slope(lines):
        lines.append(line | stamp)
        write(out / "bench.csv", COLUMNS, lines[-1:])
        tell(len(pieces), _told(lines[-1]))
    for done, name in enumerate(steps, len(pieces) + 1):
        try:
            points = run_growth(name, quick, limit)
        except RunFailed as error:
            lines.append({"row": name, "agrees": False})
            tell(done, f"{name:20} FAILED: {error}")
            continue
        p = slope([point["value"] for point in points], [point["seconds"] for point in points])
        write(out / "bench-growth.csv", GROWTH, [point | stamp for point in points])
        tell(done, f"{name:20} time ~ {STEPS[name].variable}^{p:.2f}")
    return lines


def main(argv: list[str] | None = None) -> int:
    """Run what is asked for; 1 where a run failed or results disagree."""
    parser = argparse.ArgumentParser(prog="python -m tools.benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one run a row, short rows only")
    parser.add_argument("--only", nargs="+", metavar="ROW", help=", ".join([*ROWS, *STEPS]))
    parser.add_argument("--limit", type=float, help="most seconds of a run (1800, quick: 120)")
    parser.add_argument("--runs", type=int, metavar="N", help="runs a row, instead of its own")
    parser.add_argument("--out", type=Path, help="folder (results, quick: results/report)")
    asked = parser.parse_args(argv)
    unknown = set(asked.only or ()) - set(ROWS) - set(STEPS)
    if unknown:
        parser.error(f"unknown rows {sorted(unknown)}: choose from {', '.join([*ROWS, *STEPS])}")
    short = [name for name, row in ROWS.items() if row.quick or not asked.quick]
    names = asked.only or [*short, *STEPS]
    if asked.runs is not None and asked.runs < 1:
        parser.error(f"--runs is {asked.runs}: give at least 1")
    limit = asked.limit or (120.0 if asked.quick else 1800.0)
    out = asked.out or ROOT / "results" / ("report" if asked.quick else "")
    print("row done/rows, seconds of the processor since the start and for the row", flush=True)
    if not asked.only:
        forget_unknown(out)
    try:
        lines = run(names, asked.quick, limit, out, asked.runs)
    except KeyboardInterrupt:
        print(f"stopped; finished rows are in {out}", file=sys.stderr)
        return 130
    return int(not all(line["agrees"] for line in lines))


if __name__ == "__main__":
    sys.exit(main())
