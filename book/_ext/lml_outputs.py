"""Sphinx extension of the book: pages show what their chapters have just computed.

``tools/execute.py --into _build/executed`` runs the chapters and leaves copies with their outputs
there. Each copy holds a digest of all that it was computed from: the code of the chapter, ``lml/``,
the stored results and the versions. A page takes its outputs from the copy, and the build fails
where the digest is another one now. With ``BOOK_OUTPUTS=committed`` in the environment, pages show
the outputs that the notebooks themselves hold, for a quick look.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from sphinx.errors import ExtensionError

EXECUTED = Path("_build", "executed")
#: What the outputs of any chapter may depend on.
SOURCES = ("lml/**/*.py", "book/*.py", "book/matplotlibrc", "results/*.csv", "tools/ipython*.py")
VERSIONS = "requirements/newest.lock"


def digest(*parts: str | bytes) -> str:
    """A checksum of texts; where one ends and the next begins matters."""
    whole = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        whole.update(b"%d:" % len(content) + content)
    return whole.hexdigest()


@functools.cache
def common_digest(root: Path) -> str:
    """The digest of the files that every chapter may use, and of Python's version."""
    files = sorted({path for pattern in (*SOURCES, VERSIONS) for path in root.glob(pattern)})
    parts: list[str | bytes] = [sys.version]
    for path in files:
        parts += [path.relative_to(root).as_posix(), path.read_bytes()]
    return digest(*parts)


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """The code cells of a notebook, in order."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def chapter_digest(notebook: dict[str, Any], root: Path) -> str:
    """The digest of all that the outputs of a chapter are computed from."""
    code = ("".join(cell["source"]) for cell in code_cells(notebook))
    return digest(common_digest(root), *code)


def fresh_copy(notebook: dict[str, Any], name: str, root: Path) -> dict[str, Any] | None:
    """The executed copy of a chapter, if it was computed from what is there now."""
    path = root / EXECUTED / f"{name}.ipynb"
    if not path.exists():
        return None
    copy = json.loads(path.read_text(encoding="utf-8"))
    same = copy["metadata"].get("computed_from") == chapter_digest(notebook, root)
    return copy if same else None


def put_outputs(app, name: str, source: list[str]) -> None:
    """Give a page the outputs of its chapter's executed copy."""
    committed = os.environ.get("BOOK_OUTPUTS") == "committed"
    if committed or app.env.doc2path(name, base=False)[-6:] != ".ipynb":
        return
    notebook = json.loads(source[0])
    copy = fresh_copy(notebook, name, Path(app.srcdir))
    if copy is None:
        raise ExtensionError(
            f"{name}: its outputs in {EXECUTED.as_posix()} are missing, or older than the chapter, "
            "lml/, results/ or the versions: run tools/execute.py --into _build/executed"
        )
    for cell, run in zip(code_cells(notebook), code_cells(copy), strict=True):
        cell["outputs"] = run["outputs"]
        cell["execution_count"] = run["execution_count"]
    source[0] = json.dumps(notebook)


def setup(app):
    app.connect("source-read", put_outputs)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
