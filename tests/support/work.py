"""Work that is counted, not timed: the same on every machine and in every run.

`work_of(call)` is the lines of lml that a call runs, the numbers in the arrays that its functions
have made when they end, and the most bytes at once: loops show in the lines, sizes of matrices in
the numbers and bytes.
"""

from __future__ import annotations

import sys
import tracemalloc
from dataclasses import dataclass

import numpy as np
from scipy import sparse


@dataclass
class Work:
    lines: int = 0
    numbers: int = 0
    peak: int = 0  # bytes allocated at once


def _size(value) -> int:
    if isinstance(value, np.ndarray):
        return value.size
    return value.nnz if sparse.issparse(value) else 0


def work_of(call) -> Work:
    """What a call does, counted; its threads and processes are not."""
    work = Work()

    def inside(frame, event, argument):
        if event == "line":
            work.lines += 1
        elif event == "return":
            given = frame.f_code.co_varnames[: frame.f_code.co_argcount]
            made = (value for name, value in frame.f_locals.items() if name not in given)
            work.numbers += sum(map(_size, made))
        return inside

    def trace(frame, event, argument):
        if frame.f_globals.get("__name__", "").startswith("lml."):
            return inside
        return None

    before = sys.gettrace()
    tracemalloc.start()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
        work.peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return work


def exponent(small: float, large: float, factor: float) -> float:
    """How fast something grows: 1 is linearly, 2 with the square."""
    return float(np.log(max(large, 1) / max(small, 1)) / np.log(factor))
