# Generated from book/experiments.ipynb by tools/tangle.py: edit the chapter.
"""The command of the laboratory: ``python -m lml.studies run``, and verify, report and more."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import joblib

from lml.studies.ablations import ABLATIONS, run_ablation
from lml.studies.experiments import DATASETS, report, run_experiment, verify
from lml.studies.systems import SYSTEMS
from lml.studies.transfer import FOLLOWERS, STREAMS, STUDIES, run_study

__all__ = ["main"]


# book/experiments.ipynb#the-command
def _parser() -> argparse.ArgumentParser:
    systems = {*FOLLOWERS, *(name for ablation in ABLATIONS.values() for name in ablation.systems)}
    parser = argparse.ArgumentParser(prog="python -m lml.studies")
    actions = ["run", "verify", "report", "ablations", "transfer"]
    parser.add_argument("action", choices=actions)
    parser.add_argument("datasets", nargs="*", metavar="DATASET", help=", ".join(STREAMS))
    parser.add_argument("--studies", nargs="+", choices=[*ABLATIONS, *STUDIES])
    parser.add_argument("--systems", nargs="+", choices=sorted(systems), metavar="SYSTEM")
    parser.add_argument("--splits", type=int, help="number of splits")
    parser.add_argument("--jobs", type=int, help="jobs at a time")
    parser.add_argument("--scheduler", help="address of a Dask scheduler whose workers are used")
    parser.add_argument("--out", default="results", help="folder of the results files")
    parser.add_argument("--base", default="results", help="folder that ablations look into")
    return parser


def _table(action: str, dataset: str, systems: Sequence[str], options: dict[str, Any]) -> int:
    """Run, verify or report one data set; the number of rows that are not as the file has them."""
    own = [name for name in DATASETS[dataset].systems() if name in systems]
    if action == "verify" and own:
        n_same, different = verify(dataset, own, **options)
        print(f"{dataset}: {n_same} rows are the same, {len(different)} differ")
        print(*different, sep="\n", end="\n" if different else "")
        return len(different)
    if action == "run" and own:
        run_experiment(dataset, own, **options)
    if action == "report" or own:
        report(dataset, options["out"])
    return 0


# book/experiments.ipynb#the-command
def main(argv: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; 1 where `verify` finds a difference."""
    parser = _parser()
    o = parser.parse_intermixed_args(argv)
    known = STREAMS if o.action == "transfer" else DATASETS
    for name in o.datasets:
        if name not in known:
            parser.error(f"data set {name!r} is not known: use some of {list(known)}")
    options: dict[str, Any] = {"n_jobs": o.jobs, "out": o.out}
    if o.splits is not None:
        options["n_splits"] = o.splits
    n_different = 0
    with contextlib.ExitStack() as stack:
        if o.scheduler is not None:
            from distributed import Client

            stack.enter_context(Client(o.scheduler))  # type: ignore[no-untyped-call]  # so in distributed
            stack.enter_context(joblib.parallel_config("dask"))
        try:
            if o.action in ("ablations", "transfer"):
                _studies(parser, o, options)
            else:
                for dataset in o.datasets or [name for name in DATASETS if name != "digits"]:
                    n_different += _table(o.action, dataset, o.systems or list(SYSTEMS), options)
        except BlockingIOError as error:
            parser.exit(1, f"{error}\n")
    return int(n_different > 0)


def _studies(
    parser: argparse.ArgumentParser, o: argparse.Namespace, options: dict[str, Any]
) -> None:
    """Run the ablations or studies that are named, on those of the data sets that they have."""
    plan: Mapping[str, Any] = ABLATIONS if o.action == "ablations" else STUDIES
    run = partial(run_ablation, base=o.base) if o.action == "ablations" else run_study
    wanted = {
        study: [d for d in plan[study].datasets if d in o.datasets or not o.datasets]
        for study in o.studies or plan
        if study in plan
    }
    if not any(wanted.values()):
        parser.error(f"{o.action}: no study of {o.studies} has the data sets {o.datasets}")
    for study, datasets in wanted.items():
        if datasets:
            run(study, datasets, o.systems, **options)


# book/experiments.ipynb#the-command
if __name__ == "__main__" and "__file__" in globals():  # run as a program, not in the book
    sys.exit(main())
