"""Sphinx extension of the book: exported cells and the way back from the API page.

A code cell that begins with ``#| export`` is shown without that line and labelled with the
module it goes to. In docstrings, "Derived in chapter 7 (oasis), eq. (oasis-update)" becomes
links to the chapter and the equation.
"""

from __future__ import annotations

import re

from docutils import nodes

EXPORT = "#| export"
CHAPTER = re.compile(r"chapter (?P<number>\d+) \((?P<name>\w+)\), (?P<eq>eqs?\.)")
LABEL = re.compile(r"\(([a-z]+(?:-[\w]+)+)\)")


def label_exported_cells(app, doctree, docname) -> None:
    """Hide the export line and say above the cell which module the code goes to."""
    module = docname.rsplit("/", 1)[-1]
    for block in list(doctree.findall(nodes.literal_block)):
        first, _, rest = block.astext().partition("\n")
        if first.strip() != EXPORT:
            continue
        shown = nodes.literal_block(rest, rest, **block.attributes)
        block.replace_self(shown)
        target = nodes.reference(
            "", "", nodes.literal("", f"lml/{module}.py"), internal=True,
            refuri=app.builder.get_relative_uri(docname, "book/api") + f"#module-lml.{module}",
        )  # fmt: skip
        label = nodes.container("", nodes.paragraph("", "", target), classes=["lml-module"])
        shown.parent.insert(shown.parent.index(shown), label)


def link_derivations(app, what, name, obj, options, lines) -> None:
    """Turn the chapter and equations that a docstring names into cross-references."""
    text = "\n".join(lines)
    start = text.find("Derived in chapter")
    if start < 0:
        return
    end = text.find("\n\n", start)
    end = len(text) if end < 0 else end
    said = CHAPTER.sub(r":doc:`chapter \g<number> </book/\g<name>>`, \g<eq>", text[start:end])
    said = LABEL.sub(r":eq:`\1`", said)
    lines[:] = (text[:start] + said + text[end:]).split("\n")


def drop_thebe(app, pagename, templatename, context, doctree) -> None:
    """Leave out the scripts of thebe: the book has no live cells, and they clash."""
    scripts = context.get("script_files", [])
    context["script_files"] = [
        s
        for s in scripts
        if "thebe" not in f"{getattr(s, 'filename', s)}{getattr(s, 'attributes', '')}".lower()
    ]


def setup(app):
    app.connect("doctree-resolved", label_exported_cells)
    app.connect("autodoc-process-docstring", link_derivations, priority=100)
    app.connect("html-page-context", drop_thebe, priority=900)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
