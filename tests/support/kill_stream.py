"""Stream tasks through `save`, kill the process at random moments, `load`, go on.

Usage: ``python tests/support/kill_stream.py --tasks 1000 --kills 40``. The exit status is 0 when
after every kill the file held all that had been reported as saved, and the last file equals, byte
for byte, that of a learner which was never stopped nor saved before its end.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from lml.lifelong import LifelongMetricLearner
from lml.oasis import OASIS

KINDS = (str, int, float, lambda number: ("task", number), lambda number: (None, (True, number)))


def task_of(number: int) -> int:
    """Task of a visit: a new one, or every fifth time one that is older, mostly known."""
    return number // 2 if number % 5 == 4 else number


def visits_to(n_tasks: int) -> int:
    """Visits until so many tasks are known."""
    known, number = set[int](), 0
    while len(known) < n_tasks:
        known.add(task_of(number))
        number += 1
    return number


def visit(learner: LifelongMetricLearner, number: int) -> None:
    name = task_of(number)
    rng, y = np.random.default_rng(number), np.arange(12) % 3
    X = rng.normal(size=(12, 5)) + 2 * np.eye(3, 5)[y]
    learner.partial_fit(X, y, task=KINDS[name % len(KINDS)](name))


def fresh() -> LifelongMetricLearner:
    return LifelongMetricLearner(OASIS(n_steps=10), n_components=3, random_state=0)


def visits_done(learner: LifelongMetricLearner) -> int:
    return sum(record.n_visits for record in getattr(learner, "tasks_", {}).values())


def work(path: Path, n: int, report: int) -> None:
    """Go on from the file to the end; report each visit that has been saved."""
    learner = LifelongMetricLearner.load(path) if path.exists() else fresh()
    for number in range(visits_done(learner), n):
        visit(learner, number)
        learner.save(path)
        os.write(report, b"%d\n" % (number + 1))


def run_and_kill(path: Path, n: int, reports: int, delay: float) -> tuple[bool, int]:
    """One process, killed some time after so many reports; whether it was, and its last report."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reading)
            work(path, n, writing)
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as lines:
        seen = [line for _, line in zip(range(reports), lines)]
        time.sleep(delay)
        os.kill(child, signal.SIGKILL)
        seen += list(lines)
    status = os.waitpid(child, 0)[1]
    if not os.WIFSIGNALED(status) and os.WEXITSTATUS(status):
        raise SystemExit("the learning process failed")
    return os.WIFSIGNALED(status), int(seen[-1]) if seen else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=60, help="different tasks in the end")
    parser.add_argument("--kills", type=int, default=6, help="kills on average")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    rng, n, kills, saved = random.Random(given.seed), visits_to(given.tasks), 0, 0
    whole, started = fresh(), time.perf_counter()
    for number in range(n):
        visit(whole, number)
    pace = (time.perf_counter() - started) / n
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "learner.npz"
        while True:
            reports = rng.randint(0, 2 * n // (given.kills + 1))
            killed, last = run_and_kill(path, n, reports, rng.uniform(0, 4 * pace))
            kills += killed
            found = visits_done(LifelongMetricLearner.load(path)) if path.exists() else 0
            saved = max(saved, last)
            if not saved <= found <= saved + 1:
                raise SystemExit(f"{saved} visits were saved, the file holds {found}")
            saved = found
            if found == n:
                break
        left = len(list(Path(folder).iterdir())) - 1
        whole.save(Path(folder) / "whole.npz")
        if path.read_bytes() != (Path(folder) / "whole.npz").read_bytes():
            raise SystemExit("the last state differs from the uninterrupted one")
    print(f"{n} visits, {kills} kills, {left} during a save; {len(whole.tasks_)} tasks: equal")


if __name__ == "__main__":
    sys.exit(main())
