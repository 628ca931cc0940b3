"""Run the benchmark: ``python -m benchmarks [--quick] [--only ROW ...] [--out FILE]``.

Each run is a process of its own with one BLAS thread: ours, peer, ours, peer, ... The file has
medians and ranges, the ratio of paired runs, peak memory, and whether the results agree.
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.rows import ROWS, WIDTHS, Row

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / ".venv-peers" / "bin" / "python"
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
COLUMNS = (
    "row", "work", "peer", "runs", "seconds", "seconds_low", "seconds_high", "peer_seconds",
    "peer_low", "peer_high", "ratio", "ratio_low", "ratio_high", "megabytes", "peer_megabytes",
    "goal", "met", "agrees", "check", "form", "machine", "versions",
)  # fmt: skip


def run_side(name: str, side: str, quick: bool) -> dict[str, Any]:
    """One run in a process of its own: what it returned, seconds and peak memory."""
    python = str(PEERS) if side == "metric-learn" else sys.executable
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "result.npz"
        command = [python, "-m", "benchmarks.worker", name, side, str(out), str(int(quick))]
        environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": str(ROOT)}
        ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        if ended.returncode:
            raise RuntimeError(f"{name}, {side}: {ended.stderr.strip().splitlines()[-1]}")
        with np.load(out) as stored:
            return {key: stored[key] for key in stored.files}


def _cells(row: Row, ours: list[dict[str, Any]], peers: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians and ranges of the runs; the ratios are of runs that stood side by side."""
    seconds = np.array([float(run["_seconds"]) for run in ours])
    cells: dict[str, Any] = {
        "runs": len(ours), "seconds": np.median(seconds), "seconds_low": seconds.min(),
        "seconds_high": seconds.max(), "megabytes": max(float(run["_megabytes"]) for run in ours),
    }  # fmt: skip
    met = bool(row.seconds == 0 or cells["seconds"] <= row.seconds)
    met &= bool(row.megabytes == 0 or cells["megabytes"] <= row.megabytes)
    if peers:
        other = np.array([float(run["_seconds"]) for run in peers])
        ratios = other / seconds
        cells |= {
            "peer_seconds": np.median(other), "peer_low": other.min(), "peer_high": other.max(),
            "ratio": np.median(ratios), "ratio_low": ratios.min(), "ratio_high": ratios.max(),
            "peer_megabytes": max(float(run["_megabytes"]) for run in peers),
        }  # fmt: skip
        met &= bool(cells["ratio"] >= row.goal)
    return cells | {"met": met}


def _goal(row: Row) -> str:
    parts = [f"{row.goal:.3g} times"] * (row.goal > 0) + [f"{row.seconds:g} s"] * (row.seconds > 0)
    return ", ".join(parts + [f"{row.megabytes:g} MB"] * (row.megabytes > 0)) or "check"


def run_row(name: str, quick: bool) -> list[dict[str, Any]]:
    """The lines of one row, one for each peer, with interleaved runs."""
    row, lines = ROWS[name], []
    data = row.prepare(quick) if name not in ("task-20",) else {}
    for peer in row.peers or {"": None}:
        ours, peers = [], []
        for _ in range(1 if quick else row.runs):
            ours.append(run_side(name, "ours", quick))
            if peer:
                peers.append(run_side(name, peer, quick))
        agrees, text = row.check(data, ours[-1], peers[-1] if peers else {})
        cells = {"row": name, "work": row.work, "peer": peer, **_cells(row, ours, peers)}
        cells |= {"goal": _goal(row), "agrees": agrees, "check": text}
        lines.append(cells | {"form": "quick" if quick else "full"})
    return lines


def slopes(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Log-log slopes of time and of memory beyond the smallest width, over the widths."""
    found = {line["row"]: line for line in lines}
    if not all(f"width-{D}" in found for D in WIDTHS):
        return []
    wide = [found[f"width-{D}"] for D in WIDTHS]
    D = np.log(WIDTHS[1:])
    time_slope = np.polyfit(D, np.log([line["seconds"] for line in wide[1:]]), 1)[0]
    base = wide[0]["megabytes"] - WIDTHS[0] * (wide[-1]["megabytes"] - wide[0]["megabytes"]) / (
        WIDTHS[-1] - WIDTHS[0]
    )  # what a run of no width takes
    memory = np.log([max(line["megabytes"] - base, 1e-3) for line in wide[1:]])
    memory_slope = np.polyfit(D, memory, 1)[0]
    good = bool(max(time_slope, memory_slope) <= 1.1)
    text = (
        f"log-log slope of time {time_slope:.2f}, of memory {memory_slope:.2f} above {base:.0f} MB"
    )
    line = {"row": "width-slope", "work": "growth over D", "goal": "slopes of at most 1.1"}
    return [{**line, "met": good, "agrees": good, "check": text, "form": wide[0]["form"]}]


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
    return ", ".join([f"Python {platform.python_version()}", *parts, "metric-learn 0.7.0"])


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _told(line: dict[str, Any]) -> str:
    """A line of the table for the reader who waits."""
    ratio = f"{line['ratio']:6.1f} times " if "ratio" in line else ""
    goal = f"goal {line['goal']} {'met' if line['met'] else 'NOT MET'}"
    agrees = "agrees" if line["agrees"] else "DISAGREES"
    return (
        f"{line['row']:20} {line['peer']:24} {line['seconds']:8.3f} s {ratio}{goal};"
        f" {agrees}: {line['check']}"
    )


def write(path: Path, lines: list[dict[str, Any]]) -> None:
    """The lines as a table; a row that was not run now keeps its old line."""
    old: list[dict[str, Any]] = []
    if path.exists():
        with path.open(newline="") as file:
            old = list(csv.DictReader(file))
    new = {(line["row"], line.get("peer", "")) for line in lines}
    kept = [line for line in old if (line["row"], line["peer"]) not in new]
    order = {name: n for n, name in enumerate([*ROWS, "width-slope"])}
    lines = sorted([*kept, *lines], key=lambda line: order.get(line["row"], len(order)))
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
        table.writeheader()
        table.writerows({key: _text(value) for key, value in line.items()} for line in lines)


def main(argv: list[str] | None = None) -> int:
    """Run the rows and write the file; 1 where results disagree."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one run a row, short rows only")
    parser.add_argument("--only", nargs="+", metavar="ROW", help=f"of {', '.join(ROWS)}")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "bench.csv")
    asked = parser.parse_args(argv)
    unknown = set(asked.only or ()) - set(ROWS)
    if unknown:
        parser.error(f"unknown rows {sorted(unknown)}: choose from {', '.join(ROWS)}")
    lines: list[dict[str, Any]] = []
    stamp = {"machine": machine(), "versions": versions()}
    for name in asked.only or [name for name, row in ROWS.items() if row.quick or not asked.quick]:
        for line in run_row(name, asked.quick):
            lines.append(line | stamp)
            print(_told(line), flush=True)
            write(asked.out, lines)
    lines += [line | stamp for line in slopes(lines)]
    write(asked.out, lines)
    return int(not all(line["agrees"] for line in lines))


if __name__ == "__main__":
    sys.exit(main())
