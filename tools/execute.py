"""Execute chapters top to bottom in this environment and store their outputs.

Usage: ``python tools/execute.py [book/NAME.ipynb ...]`` (default: every notebook of
``_toc.yml``). What changes from run to run without meaning (timestamps, cell metadata of
the front end) is removed, so that a second run leaves the files as they are.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from tangle import ROOT, toc_files

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


def execute(path: Path) -> float:
    """Run one notebook in place; seconds it took."""
    notebook = nbformat.read(path, as_version=4)
    started = time.perf_counter()
    NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        kernel_name="python3",
        extra_arguments=["--log-level=ERROR"],
        resources={"metadata": {"path": str(path.parent)}},
    ).execute()
    clean(notebook)
    nbformat.write(notebook, path)
    return time.perf_counter() - started


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="*", type=Path)
    options = parser.parse_args(argv)
    paths = options.notebooks or [
        path for file, _ in toc_files(ROOT) if (path := ROOT / f"{file}.ipynb").exists()
    ]
    failed = 0
    for path in paths:
        try:
            print(f"execute: {path.name}: {execute(path):.1f} s", flush=True)
        except CellExecutionError as error:
            failed += 1
            print(f"execute: {path.name} failed\n{error}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="backslashreplace")
    sys.stderr.reconfigure(errors="backslashreplace")
    sys.exit(main())
