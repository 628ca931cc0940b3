"""Execute chapters top to bottom in this environment and store their outputs.

Usage: ``python tools/execute.py [book/NAME.ipynb ...]`` (default: every notebook of
``_toc.yml``). What changes from run to run without meaning (timestamps, cell metadata of
the front end) is removed, so that a second run leaves the files as they are.

With ``--into FOLDER`` the notebooks stay as they are and executed copies go to the folder; a
chapter is left out whose copy there was computed from what is there now. Chapters run two at a
time, each in a process of its own, and the cost of each is printed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

import nbformat
from kernels import own_sockets
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from tangle import ROOT, toc_files
from traitlets.config import Config

sys.path.insert(0, str(ROOT / "book" / "_ext"))

from lml_outputs import chapter_digest, fresh_copy

CELL_SECONDS = 600
KEPT_METADATA = {"tags", "mystnb"}
BOOK = "lml"  # settings of the page, such as its kind
SVG = "image/svg+xml"
PLACES = re.compile(r'(?<=\bd=")[^"]+|(?<=translate\()[^)]+|(?<= [xy]=")[^"]+')
DECIMALS = re.compile(r"(\.\d\d)\d+")


def slim(svg: str) -> str:
    """A drawing on one line, with places to a hundredth of a point: half the bytes."""
    svg = PLACES.sub(lambda places: DECIMALS.sub(r"\1", places[0]), svg)
    return " ".join(svg.split()).replace("> <", "><")


def clean(notebook: nbformat.NotebookNode) -> None:
    """Strip what differs between two runs of the same notebook; merge stream pieces."""
    own = {BOOK: notebook.metadata[BOOK]} if BOOK in notebook.metadata else {}
    notebook.metadata = nbformat.from_dict(
        own
        | {
            "kernelspec": {
                "display_name": "Python 3 (ipykernel)",
                "language": "python",
                "name": "python3",
            },
            "language_info": {"name": "python"},
        }
    )
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict(
            {key: value for key, value in cell.metadata.items() if key in KEPT_METADATA}
        )
        if cell.cell_type != "code":
            continue
        merged = []
        for output in cell.outputs:
            if SVG in output.get("data", {}):
                output.data[SVG] = slim(output.data[SVG])
            last = merged[-1] if merged else None
            if (
                last
                and output.output_type == "stream" == last.output_type
                and output.name == last.name
            ):
                last.text += output.text
            else:
                merged.append(output)
        cell.outputs = merged


class Cost(NamedTuple):
    """What a chapter took: seconds on the clock, and of the processors."""

    clock: float
    processor: float


def execute(path: Path, target: Path | None = None, root: Path = ROOT) -> Cost:
    """Run one notebook and store it, in place or as a copy that says what it was computed from."""
    notebook = nbformat.read(path, as_version=4)
    computed_from = chapter_digest(notebook, root)
    started, before = time.perf_counter(), os.times()
    NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        kernel_name="python3",
        extra_arguments=["--log-level=ERROR"],
        resources={"metadata": {"path": str(path.parent)}},
        config=Config(KernelManager=own_sockets()),
    ).execute()
    clean(notebook)
    if target:
        notebook.metadata["computed_from"] = computed_from
        target.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, target or path)
    after = os.times()
    processor = sum(now - then for now, then in zip(after[2:4], before[2:4]))  # of the kernel
    return Cost(time.perf_counter() - started, processor)


def attempt(path: Path, target: Path | None, root: Path) -> Cost | str:
    """The cost of a chapter, or what its failing cell said."""
    try:
        return execute(path, target, root)
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        return str(error)


def waiting(paths: list[Path], folder: Path | None, root: Path) -> dict[Path, Path | None]:
    """The chapters that have to run, each with the place of its copy; old copies go away."""
    targets: dict[Path, Path | None] = {}
    for path in paths:
        name = path.resolve().relative_to(root).with_suffix("").as_posix()
        if folder is None:
            targets[path] = None
        elif fresh_copy(nbformat.read(path, as_version=4), name, root) is None:
            targets[path] = folder / f"{name}.ipynb"
            targets[path].unlink(missing_ok=True)
    return targets


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="*", type=Path)
    parser.add_argument("--into", type=Path, metavar="FOLDER", help="leave the notebooks alone")
    parser.add_argument("--jobs", type=int, default=2, help="chapters at a time")
    parser.add_argument("--root", type=Path, default=ROOT, help="the folder of _toc.yml")
    options = parser.parse_args(argv)
    if os.environ.get("PYTHONOPTIMIZE"):
        parser.error("PYTHONOPTIMIZE is set: the kernels would leave out what the chapters assert")
    root = options.root.resolve()
    paths = options.notebooks or [
        path for file, _ in toc_files(root) if (path := root / f"{file}.ipynb").exists()
    ]
    targets = waiting(paths, options.into and options.into.resolve(), root)
    started = time.perf_counter()
    processor, failed = 0.0, 0
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.jobs, mp_context=spawn) as pool:
        jobs = {pool.submit(attempt, path, targets[path], root): path for path in targets}
        for job in as_completed(jobs):
            name = jobs[job].resolve().relative_to(root).with_suffix("").as_posix()
            outcome = job.result()
            if isinstance(outcome, str):
                failed += 1
                print(f"execute: {name} failed\n{outcome}", file=sys.stderr, flush=True)
            else:
                processor += outcome.processor
                cost = f"{outcome.clock:.1f} s, {outcome.processor:.1f} s of processor"
                print(f"execute: {name}: {cost}", flush=True)
    print(
        f"execute: {len(targets)} chapters in {time.perf_counter() - started:.0f} s, "
        f"{processor:.0f} s of processor; {len(paths) - len(targets)} are as they were; "
        f"{failed} failed"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="backslashreplace")
    sys.stderr.reconfigure(errors="backslashreplace")
    sys.exit(main())
