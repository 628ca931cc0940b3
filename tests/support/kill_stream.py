"""Stream tasks through `save`, kill the process at random moments, `load`, go on.

Usage: ``python tests/support/kill_stream.py --learner plda --tasks 1000 --kills 40``. The exit
status is 0 when after every kill the file held all that had been reported as saved, and the last
file equals, byte for byte, that of a learner which was never stopped nor saved before its end. The
classifier is saved with its learner, in one file.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from lml.evaluation import LifelongKNeighborsClassifier
from lml.lifelong import LifelongMetricLearner
from lml.oasis import OASIS
from lml.plda import LifelongPLDA

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


def lifelong() -> LifelongMetricLearner:
    return LifelongMetricLearner(OASIS(n_steps=10), n_components=3, random_state=0)


class Reader(LifelongKNeighborsClassifier):
    """The classifier and its learner, visited and stored together."""

    def partial_fit(self, X, y, *, task):
        self.learner.partial_fit(X, y, task=task)
        return super().partial_fit(X, y, task=task)

    @property
    def tasks_(self) -> dict[Any, Any]:
        if list(self.learner.tasks_) != list(self.references_):
            raise SystemExit("the file holds a visit of the learner without its references")
        return self.learner.tasks_


FRESH: dict[str, Callable[[], Any]] = {
    "oasis": lifelong,
    "plda": lambda: LifelongPLDA(random_state=0),
    "classifier": lambda: Reader(lifelong(), n_neighbors=1, max_references=9, random_state=0),
}


def visit(learner: Any, number: int) -> None:
    name = task_of(number)
    rng, y = np.random.default_rng(number), np.arange(12) % 3
    X = rng.normal(size=(12, 5)) + 2 * np.eye(3, 5)[y]
    learner.partial_fit(X, y, task=KINDS[name % len(KINDS)](name))


def visits_done(learner: Any) -> int:
    return sum(record.n_visits for record in getattr(learner, "tasks_", {}).values())


def content(learner: Any, path: Path) -> bytes:
    """All that a learner knows, as bytes; `path` is written over."""
    learner.save(path)
    return path.read_bytes()


def work(learner: Any, path: Path, n: int, report: int) -> None:
    """Go on from the file to the end; report each visit that has been saved."""
    if path.exists():
        learner = learner.load(path)
    for number in range(visits_done(learner), n):
        visit(learner, number)
        learner.save(path)
        os.write(report, b"%d\n" % (number + 1))


def run_and_kill(learner: Any, path: Path, n: int, reports: int, delay: float) -> tuple[bool, int]:
    """One process, killed some time after so many reports; whether it was, and its last report."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reading)
            work(learner, path, n, writing)
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
    parser.add_argument("--learner", choices=FRESH, default="oasis")
    parser.add_argument("--tasks", type=int, default=60, help="different tasks in the end")
    parser.add_argument("--kills", type=int, default=6, help="kills on average")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    rng, n, kills, saved = random.Random(given.seed), visits_to(given.tasks), 0, 0
    fresh = FRESH[given.learner]
    whole, started = fresh(), time.perf_counter()
    for number in range(n):
        visit(whole, number)
    pace = (time.perf_counter() - started) / n
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "learner.npz"
        while True:
            reports = rng.randint(0, 2 * n // (given.kills + 1))
            killed, last = run_and_kill(fresh(), path, n, reports, rng.uniform(0, 4 * pace))
            kills += killed
            found = visits_done(whole.load(path)) if path.exists() else 0
            saved = max(saved, last)
            if not saved <= found <= saved + 1:
                raise SystemExit(f"{saved} visits were saved, the file holds {found}")
            saved = found
            if found == n:
                break
        left = len(list(Path(folder).iterdir())) - 1
        if path.read_bytes() != content(whole, path):
            raise SystemExit("the last state differs from the uninterrupted one")
    print(f"{n} visits, {kills} kills, {left} during a save; {len(whole.tasks_)} tasks: equal")


if __name__ == "__main__":
    sys.exit(main())
