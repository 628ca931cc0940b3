"""One side of one row in this process: ``python -m benchmarks.worker ROW SIDE OUT QUICK``."""

from __future__ import annotations

import resource
import sys
import time
import warnings

import numpy as np

from benchmarks.rows import ROWS


def main(name: str, side: str, out: str, quick: str) -> None:
    """Prepare, do the work once, store what it returned, the seconds and the peak memory."""
    row = ROWS[name]
    data = row.prepare(bool(int(quick)))
    work = row.ours if side == "ours" else row.peers[side]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        begun = time.perf_counter()
        result = work(data)
        seconds = time.perf_counter() - begun
    seconds = float(result.get("seconds", seconds)) / float(result.get("units", 1.0))
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    np.savez(out, _seconds=seconds, _megabytes=megabytes, **result)


if __name__ == "__main__":
    main(*sys.argv[1:])
