"""One side of one row in this process: ``python -m tools.benchmarks.worker ROW SIDE OUT QUICK``."""

from __future__ import annotations

import resource
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .growth import STEPS, measure
from .rows import ROWS, clock

#: Short work is done again, up to this often and this long; the first time warms up.
REPEATS, SHORT = 7, 0.2


def timed(work: Callable[..., dict[str, Any]], data: dict[str, Any]) -> dict[str, Any]:
    """What the work returns, with `_seconds` of the processor and `_wall` seconds."""
    begun, start = time.perf_counter(), clock()
    result = work(data)
    seconds, wall = [clock() - start], time.perf_counter() - begun
    while "seconds" not in result and seconds[0] < SHORT and len(seconds) < REPEATS:
        begun, start = time.perf_counter(), clock()
        result = work(data)
        seconds.append(clock() - start)
        wall = time.perf_counter() - begun
    middle = float(np.median(seconds[1:] or seconds))
    units = float(result.get("units", 1.0))
    own = float(result.get("seconds", middle))
    return {**result, "_seconds": own / units, "_wall": wall / units}


def peak_megabytes() -> float:
    """Most memory that this process has had.

    `getrusage` also counts what its parent had when it started it, where the system says it.
    """
    status = Path("/proc/self/status")
    for line in status.read_text().splitlines() if status.exists() else ():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(name: str, side: str, out: str, quick: str) -> None:
    """Prepare, do the work, store what it returned, the seconds and the peak memory."""
    if side == "growth":
        np.savez(out, **measure(STEPS[name], bool(int(quick))))
        return
    row = ROWS[name]
    data = row.prepare(bool(int(quick)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = timed(row.ours if side == "ours" else row.peers[side], data)
    result["_megabytes"] = peak_megabytes()
    if row.value is not None:
        result["value"] = row.value(data, result)
    np.savez(out, **result)


if __name__ == "__main__":
    main(*sys.argv[1:])
