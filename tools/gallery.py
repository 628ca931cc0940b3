"""Thumbnails of the gallery: the picture of each example, as its notebook stores it.

Usage: ``python tools/gallery.py`` writes ``book/gallery/thumbs``, ``--check`` says what is stale.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tangle import ROOT

GALLERY = ROOT / "book" / "gallery"
SVG = "image/svg+xml"


def picture(notebook: Path) -> str:
    """The one picture of an example."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    found = ["".join(o["data"][SVG]) for o in outputs if SVG in o.get("data", {})]
    if len(found) != 1:
        raise ValueError(f"{notebook.name} has {len(found)} pictures: an example has one")
    return found[0]


def thumbnails() -> dict[Path, str]:
    """Each thumbnail of the gallery and what it shows."""
    notebooks = sorted(GALLERY.glob("*.ipynb"))
    return {GALLERY / "thumbs" / f"{path.stem}.svg": picture(path) for path in notebooks}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    options = parser.parse_args(argv)
    stale = []
    for path, shown in thumbnails().items():
        if not options.check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(shown, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != shown:
            stale.append(path.name)
    print("\n".join(f"gallery: {name} is stale: run tools/gallery.py" for name in stale), end="")
    return bool(stale)


if __name__ == "__main__":
    sys.exit(main())
