"""Sphinx extension of the book: exported cells, and the way back from the API page.

A code cell that begins with ``#| export`` is shown without that line and labelled with the
module it goes to. The API page gets one section for each module, in the order of
``_toc.yml``. In docstrings, "Derived in chapter 7 (oasis), eq. (oasis-update)" becomes
links to the chapter and the equation, and plain mathematics such as ||M*|| stays plain.
Pages write ``{{ versions }}`` for the versions that the book was executed with, and
``{{ install }}`` for the line that installs the package in a hosted notebook. A page that was
moved leaves a small page at its old address, as ``[tool.lml.redirects]`` says.
"""

from __future__ import annotations

import importlib
import json
import platform
import posixpath
import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import yaml
from docutils import nodes
from sphinx.errors import ExtensionError
from sphinx.util import logging

EXPORT = re.compile(r"#\| export(?: ([\w.]+))?")
API = "book/api"
CHAPTER = re.compile(r"chapter\s+(\d+\s+)?\(([\w/]+)\),")
EQUATIONS = re.compile(r"(eqs?\.\s+)(\([\w:-]+\)(?:(?:,\s+and|,|\s+and)\s+\([\w:-]+\))*)")
MARKUP = re.compile(r"(?P<quoted>`+[^`]+`+)|(?P<sign>\||(?<=\w)[*_](?!\w))")
ENUMERATION = re.compile(r"^( *)(?=[A-Za-z]\.(?: |$))")
OPENING = re.compile(r"[(\[“‘]+$")
CLOSING = re.compile(r"[.,;:!?)\]”’]+")
PARAMETER = re.compile(r"\s*[*\w, ]+ : ")
SECTION = """
## `lml.{name}`

From the chapter [](/{file}.ipynb).

```{{eval-rst}}
.. automodule:: lml.{name}
   :members:
```
"""
REDIRECT = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>This page has moved</title>
<meta http-equiv="refresh" content="0; url={relative}">
<link rel="canonical" href="{canonical}">
</head>
<body><p>This page has moved: <a href="{relative}">go to the new page</a>.</p></body>
</html>
"""


def exporting_chapters(root: Path) -> dict[str, str]:
    """Module name to the chapter that tells it first, in reading order."""
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    files = [c["file"] for part in toc["parts"] for c in part["chapters"] or []]
    modules: dict[str, str] = {}
    for file in files:
        path = root / f"{file}.ipynb"
        if not path.exists():
            continue
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            first = "".join(cell["source"]).partition("\n")[0].strip()
            if cell["cell_type"] == "code" and (directive := EXPORT.fullmatch(first)):
                own = file.removeprefix("book/").replace("/", ".")
                modules.setdefault(directive[1] or own, file)
    return modules


def define_substitutions(app, config) -> None:
    """Let pages write ``{{ versions }}`` and ``{{ install }}``."""
    names = ("numpy", "scipy", "scikit-learn", "matplotlib", "jupyter-book")
    parts = [f"Python {platform.python_version()}", *(f"{n} {version(n)}" for n in names)]
    config.myst_substitutions = {
        **config.myst_substitutions,
        "versions": ", ".join(parts),
        "install": f"`%pip install git+{config.html_theme_options['repository_url']}`",
    }


def list_modules(app, docname, source) -> None:
    """Append a section for each module to the API page."""
    if docname == API:
        chapters = exporting_chapters(Path(app.srcdir))
        source[0] += "".join(SECTION.format(name=n, file=f) for n, f in chapters.items())


def check_api(app, env) -> None:
    """Warn about public names that the API page does not show."""
    shown = env.get_domain("py").objects
    for module in exporting_chapters(Path(app.srcdir)):
        for name in importlib.import_module(f"lml.{module}").__all__:
            if f"lml.{module}.{name}" not in shown:
                message = f"lml.{module}.{name} is not on the API page: it has no docstring"
                logging.getLogger(__name__).warning(message, location=API)


def label_exported_cells(app, doctree, docname) -> None:
    """Hide the export line and say above the cell which module the code goes to."""
    for block in list(doctree.findall(nodes.literal_block)):
        first, _, rest = block.astext().partition("\n")
        directive = EXPORT.fullmatch(first.strip())
        if directive is None:
            continue
        module = directive[1] or docname.removeprefix("book/").replace("/", ".")
        shown = nodes.literal_block(rest, rest, **block.attributes)
        block.replace_self(shown)
        target = nodes.reference(
            "", "", nodes.literal("", f"lml/{module.replace('.', '/')}.py"), internal=True,
            refuri=f"{app.builder.get_relative_uri(docname, API)}#module-lml.{module}",
        )  # fmt: skip
        label = nodes.container("", nodes.paragraph("", "", target), classes=["lml-module"])
        shown.parent.insert(shown.parent.index(shown), label)


def hold_punctuation(app, doctree, docname) -> None:
    """Keep a formula in a line together with the bracket, comma or full stop that touches it."""
    for formula in list(doctree.findall(nodes.math)):
        beside = formula.parent.children
        place = beside.index(formula)
        before = beside[place - 1].astext() if place else ""
        after = beside[place + 1].astext() if place + 1 < len(beside) else ""
        opening, closing = OPENING.search(before), CLOSING.match(after)
        pieces = [formula]
        if opening and isinstance(beside[place - 1], nodes.Text):
            pieces.insert(0, nodes.Text(opening[0]))
            formula.parent.replace(beside[place - 1], nodes.Text(before[: opening.start()]))
        if closing and isinstance(beside[place + 1], nodes.Text):
            pieces.append(nodes.Text(closing[0]))
            formula.parent.replace(beside[place + 1], nodes.Text(after[closing.end() :]))
        if len(pieces) > 1:
            formula.replace_self(held := nodes.inline(classes=["lml-held"]))
            held.extend(pieces)


def skip_generated(app, what, name, obj, skip, options) -> bool | None:
    """Leave out what scikit-learn adds for metadata routing, and fields that say nothing."""
    routing = re.fullmatch(r"set_\w+_request", name)
    field = str(getattr(obj, "__doc__", "")).startswith("Alias for field number")
    return True if routing or field else None


def keep_mathematics(app, what, name, obj, options, lines) -> None:
    """Escape what reStructuredText would take for markup: ||x||, M*, a_, a leading `L. `."""
    example = False
    for index, line in enumerate(lines):
        example = line.lstrip().startswith(">>>") or (example and line.strip() != "")
        if not example and not PARAMETER.match(line):
            line = MARKUP.sub(lambda m: m["quoted"] or "\\" + m["sign"], line)
            lines[index] = ENUMERATION.sub(r"\1\\", line)


def link_derivations(app, what, name, obj, options, lines) -> None:
    """Turn the chapter and equations that a docstring names into cross-references."""
    head, said, tail = "\n".join(lines).partition("Derived in ")
    derivation, gap, rest = tail.partition("\n\n")
    derivation = CHAPTER.sub(r":doc:`chapter \1</book/\2>` (\2),", derivation)
    derivation = EQUATIONS.sub(
        lambda m: m[1] + re.sub(r"\(([\w:-]+)\)", r":eq:`\1`", m[2]), derivation
    )
    lines[:] = (head + said + derivation + gap + rest).split("\n")


def drop_thebe(app, pagename, templatename, context, doctree) -> None:
    """Leave out the scripts of thebe: the book has no live cells, and they clash."""
    context["script_files"] = [
        script
        for script in context.get("script_files", [])
        if "thebe" not in f"{script}{getattr(script, 'attributes', '')}".lower()
    ]


def write_redirects(app, exception) -> None:
    """Write a page that leads to the new address wherever a page was moved away."""
    if exception is not None or app.builder.name != "html":
        return
    text = (Path(app.srcdir) / "pyproject.toml").read_text(encoding="utf-8")
    for old, new in tomllib.loads(text)["tool"]["lml"].get("redirects", {}).items():
        where = f"pyproject.toml: [tool.lml.redirects] leads from {old} to {new}"
        if new not in app.env.found_docs:
            raise ExtensionError(f"{where}, but there is no page {new}")
        if old in app.env.found_docs:
            raise ExtensionError(f"{where}, but the page {old} is still there")
        relative = posixpath.relpath(f"{new}.html", posixpath.dirname(old))
        base = app.config.html_baseurl.rstrip("/")
        page = Path(app.outdir, f"{old}.html")
        page.parent.mkdir(parents=True, exist_ok=True)
        canonical = f"{base}/{new}.html" if base else relative
        page.write_text(REDIRECT.format(relative=relative, canonical=canonical), encoding="utf-8")


def setup(app):
    app.connect("config-inited", define_substitutions)
    app.connect("source-read", list_modules)
    app.connect("env-check-consistency", check_api)
    app.connect("doctree-resolved", label_exported_cells)
    app.connect("doctree-resolved", hold_punctuation)
    app.connect("autodoc-skip-member", skip_generated)
    app.connect("autodoc-process-docstring", keep_mathematics, priority=90)
    app.connect("autodoc-process-docstring", link_derivations, priority=100)
    app.connect("html-page-context", drop_thebe, priority=900)
    app.connect("build-finished", write_redirects)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
