"""Sphinx extension of the book: which chapters a reader's browser can run, and the link to it.

`make lite` renders the book with ``BOOK_LITE=1`` in the environment and puts an app beside it that
runs copies of these chapters in the browser (tools/lite.py). Any other build has no link.

A chapter is among them if its code loads none of the real data sets, uses neither the laboratory
``lml.studies``, which is no part of the wheel, nor a library that the app does not install, and
starts no process, thread or server.
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import posixpath
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lml_outputs import code_cells

#: The kernel of the app, and where a reader's browser fetches Python and the libraries from.
HOST = "https://cdn.jsdelivr.net/pyodide/"
LIBRARIES = ("numpy", "scipy", "scikit-learn", "matplotlib")
BESIDE = ("slider",)  # modules in the folder of the chapters
INSTALLED = {"lml", "numpy", "scipy", "sklearn", "matplotlib", "joblib", *BESIDE}
#: What Python has, but not in a browser.
MISSING = {"http", "multiprocessing", "resource", "socket", "subprocess", "threading"}
LINE = """<p class="lml-lite"><a href="{address}" data-host="{host}">Run this page in your
browser</a>. Python and {libraries} come from {host}. Tested without that address: the app opens,
its kernel starts and installs this package. Not tested: what comes from there, and the
speed.</p>"""


def real_data_loaders() -> set[str]:
    """The functions of `lml.datasets` that may download."""
    from lml import datasets

    functions = inspect.getmembers(datasets, inspect.isfunction)
    return {
        name
        for name, function in functions
        if "download_if_missing" in inspect.signature(function).parameters
    }


def imports(tree: ast.AST) -> Iterator[str]:
    """The modules that code imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module or ""


def obstacles(notebook: dict[str, Any]) -> list[str]:
    """What keeps a chapter from running in a browser: none if it can."""
    code = "\n".join("".join(cell["source"]) for cell in code_cells(notebook))
    tree = ast.parse(code)
    used = set(imports(tree))
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    names |= {node.name for node in ast.walk(tree) if isinstance(node, ast.alias)}
    found = [f"loads {name}" for name in sorted(real_data_loaders() & names)]
    found += [f"uses {name}" for name in sorted(used) if name.startswith("lml.studies")]
    for name in sorted({name.partition(".")[0] for name in used}):
        if name in MISSING or name not in INSTALLED | sys.stdlib_module_names:
            found.append(f"imports {name}")
    return found


def runnable(root: Path, pages: list[str]) -> list[str]:
    """The pages among these that a browser can run, in order."""
    found = []
    for page in pages:
        path = root / f"{page}.ipynb"
        if path.exists():
            notebook = json.loads(path.read_text(encoding="utf-8"))
            if code_cells(notebook) and not obstacles(notebook):
                found.append(page)
    return found


def link_app(app, pagename, templatename, context, doctree) -> None:
    """Put the link to the app below the title of a page that it can run."""
    if not os.environ.get("BOOK_LITE") or not runnable(Path(app.srcdir), [pagename]):
        return
    top = posixpath.relpath(".", posixpath.dirname(pagename) or ".")
    address = f"{top}/lite/notebooks/index.html?path={pagename.removeprefix('book/')}.ipynb"
    libraries = f"{', '.join(LIBRARIES[:-1])} and {LIBRARIES[-1]}"
    line = LINE.format(address=address, host=HOST, libraries=libraries)
    context["body"] = context["body"].replace("</h1>", f"</h1>\n{line}", 1)
    app.add_js_file("lite.js", loading_method="defer")


def setup(app):
    app.connect("html-page-context", link_app)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
