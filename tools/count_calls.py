"""Count the calls of checks, and the modules of ``lml``, in one second visit of ``partial_fit``.

Each learner of tasks in time sees every task of the digits once; then the first task comes back,
and that visit is counted. A check is a function with "check" or "valid" in its name. Those of
``lml`` and those of scikit-learn are counted apart.

Usage: ``python tools/count_calls.py [--names]``; ``--names`` lists the checks called most often.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from lml import LifelongMetricLearner, LifelongPLDA
from lml.baselines import ELLA
from lml.datasets import load_digits_tasks

CHECK = re.compile(r"check|valid", re.IGNORECASE)
HEADER = f"{'':24}{'checks: lml':>12}{'sklearn':>9}{'all calls: lml':>16}{'modules of lml':>16}"


@dataclass
class Count:
    """What was called: functions by package, and the modules of ``lml`` they stand in."""

    checks: dict[str, Counter[str]] = field(
        default_factory=lambda: {"lml": Counter(), "sklearn": Counter()}
    )
    calls: int = 0  # of functions of lml
    modules: set[str] = field(default_factory=set)

    def note(self, frame: FrameType, event: str, argument: object) -> None:
        """Take one event of ``sys.setprofile``."""
        module = frame.f_globals.get("__name__") or ""
        package = module.partition(".")[0]
        if event != "call" or package not in self.checks:
            return
        if package == "lml":
            self.calls += 1
            self.modules.add(module)
        if CHECK.search(frame.f_code.co_name):
            self.checks[package][f"{module}.{frame.f_code.co_qualname}"] += 1


def count(function: Callable[[], object]) -> Count:
    """Call a function and count what it calls, in this thread."""
    counted, before = Count(), sys.getprofile()
    sys.setprofile(counted.note)
    try:
        function()
    finally:
        sys.setprofile(before)
    return counted


def second_visit(learner: Any) -> Count:
    """Count the visit in which the first task of the digits comes back."""
    tasks = load_digits_tasks(random_state=0)
    for task in tasks:
        learner.partial_fit(task.X_train, task.y_train, task=task.name)
    first = tasks[0]
    return count(lambda: learner.partial_fit(first.X_train, first.y_train, task=first.name))


def learners() -> dict[str, Any]:
    """The learners that are counted, by the name in the table."""
    return {
        "LifelongMetricLearner": LifelongMetricLearner("oasis", sharing="grow", random_state=0),
        "sharing='auto'": LifelongMetricLearner("oasis", random_state=0),
        "LifelongPLDA": LifelongPLDA(random_state=0),
        "ELLA": ELLA(random_state=0),
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--names", action="store_true", help="list the checks called most often")
    options = parser.parse_args(argv)
    print(HEADER)
    for name, learner in learners().items():
        counted = second_visit(learner)
        own, others = (counted.checks[package].total() for package in ("lml", "sklearn"))
        print(f"{name:24}{own:12}{others:9}{counted.calls:16}{len(counted.modules):16}")
        if options.names:
            for called, times in (counted.checks["lml"] + counted.checks["sklearn"]).most_common(9):
                print(f"    {times:4} {called}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
