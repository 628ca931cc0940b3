"""Sphinx extension of the book: cells as the pages show them.

A code cell that begins with ``#| export`` is shown without that line and labelled with the
module it goes to. Pages write ``{{ versions }}`` for the versions that the book was executed
with, and ``{{ install }}`` for the line that installs the package in a hosted notebook.

What `lml_folds` says of a cell is folded: a line stands for it, and its module's label stays in
view. Folds are ``<details>``, which work without a script; print.js opens them for the printer.
"""

from __future__ import annotations

import html
import json
import platform
import re
from importlib.metadata import version
from pathlib import Path

from docutils import nodes
from lml_api import module_page
from lml_folds import CHECKS, EXPORT, Cell, Fold, continued_classes, folds

OPENING = re.compile(r"[(\[“‘]+$")
NAME = re.compile(r"`(.+?)`")
CLOSING = re.compile(r"[.,;:!?)\]”’]+")


def define_substitutions(app, config) -> None:
    """Let pages write ``{{ versions }}`` and ``{{ install }}``."""
    names = ("numpy", "scipy", "scikit-learn", "matplotlib", "jupyter-book")
    parts = [f"Python {platform.python_version()}", *(f"{n} {version(n)}" for n in names)]
    published = config.html_theme_options.get("repository_url")
    source = f"git+{published}" if published else "."
    config.myst_substitutions = {
        **config.myst_substitutions,
        "versions": ", ".join(parts),
        "install": f"`%pip install {source}`",
    }


def copy_whole_cells(app, config) -> None:
    """Let the button that copies code take the folded lines too, without the lines for them."""
    config.copybutton_selector = "div.highlight > pre, div.highlight > div.lml-parts"
    config.copybutton_exclude = ".linenos, summary"


class FoldedCode(nodes.literal_block):
    """A block of code, some lines of which are folded (the attribute `folds`)."""


class FoldedCell(nodes.container):
    """A block of code behind one line that stands for it (the attribute `fold`)."""


def page_of(node, docname: str) -> str:
    """The page that a node was written on.

    Builders that put all pages into one document (singlehtml, latex) hand over the name of the
    first page, and leave the name of its own page with each section.
    """
    while node is not None:
        if "docname" in node:
            return node["docname"]
        node = node.parent
    return docname


def label_exported_cells(app, doctree, docname) -> None:
    """Hide the export line and say above the cell which module the code goes to."""
    for block in list(doctree.findall(nodes.literal_block)):
        first, _, rest = block.astext().partition("\n")
        directive = EXPORT.fullmatch(first.strip())
        if directive is None:
            continue
        own = page_of(block, docname).removeprefix("book/").replace("/", ".")
        module = directive[1] or own
        shown = nodes.literal_block(rest, rest, **block.attributes)
        block.replace_self(shown)
        file = nodes.literal("", f"lml/{module.replace('.', '/')}.py")
        page = app.builder.get_relative_uri(docname, module_page(module))
        target = nodes.reference("", "", file, internal=True, refuri=f"{page}#module-lml.{module}")
        said = nodes.paragraph()
        for name in continued_classes(rest):
            said += [nodes.Text("continues the class "), nodes.literal("", name), nodes.Text(", ")]
        said += target
        label = nodes.container("", said, classes=["lml-module"])
        shown.parent.insert(shown.parent.index(shown), label)


def read_cells(path: Path, page: str) -> list[Cell | None]:
    """What a notebook's page says about each of its cells; None for text."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    own = page.removeprefix("book/").replace("/", ".")
    sources = ["".join(cell["source"]) for cell in notebook["cells"]]
    code = [cell["cell_type"] == "code" for cell in notebook["cells"]]
    directives = [EXPORT.fullmatch(source.partition("\n")[0].strip()) for source in sources]
    told = {d[1] or own for d, is_code in zip(directives, code) if d and is_code}
    found: list[Cell | None] = []
    checked = False  # whether a check has been met in the section
    for index, cell in enumerate(notebook["cells"]):
        directive = directives[index]
        if not code[index] and re.search(r"^#+ ", sources[index], re.MULTILINE):
            checked = False
        found.append(
            Cell(
                source=sources[index].partition("\n")[2] if directive else sources[index],
                exported=directive is not None,
                kind=notebook["metadata"].get("lml", {}).get("kind", ""),
                before=sources[index - 1] if index and not code[index - 1] else "",
                own=frozenset(told),
                tags=frozenset(cell["metadata"].get("tags", [])),
                has_output=bool(cell.get("outputs")),
                guards=checked,
            )
            if code[index]
            else None
        )
        checked = checked or (code[index] and not directive and bool(CHECKS.search(sources[index])))
    return found


def fold_cells(app, doctree, docname) -> None:
    """Put what is no part of the story behind a line, as the rules of `lml_folds` say."""
    pages: dict[str, list[Cell | None]] = {}
    for container in list(doctree.findall(nodes.container)):
        if container.get("nb_element") != "cell_code":
            continue
        page = page_of(container, docname)
        if page not in pages:
            pages[page] = read_cells(Path(app.env.doc2path(page)), page)
        cell = pages[page][container["cell_index"]]
        block = next(iter(container.findall(nodes.literal_block)), None)
        found = folds(cell) if block is not None else []
        if len(found) == 1 and found[0] == Fold(0, len(cell.lines) - 1, found[0].what):
            block.parent["classes"].append("lml-folded")
            block.replace_self(FoldedCell("", block.deepcopy(), fold=found[0]))
        elif found:
            code = FoldedCode(block.rawsource, block.astext(), **block.attributes)
            code["folds"] = found
            block.replace_self(code)


def begin_fold(fold: Fold) -> str:
    """The line that stands for a fold, and what begins its contents."""
    title = NAME.sub(r"<code>\1</code>", html.escape(fold.title))
    return f'<details class="lml-fold"><summary>{title}</summary>'


def visit_folded_cell(self, node) -> None:
    self.body.append(begin_fold(node["fold"]))


def depart_folded_cell(self, node) -> None:
    self.body.append("</details>\n")


def visit_folded_code(self, node) -> None:
    """Highlight the code as a whole, then put the lines of each fold behind a line."""
    try:
        self.visit_literal_block(node)
    finally:  # it always skips the rest of the node
        self.body[-1] = fold_lines(self.body[-1], node["folds"])


def fold_lines(block: str, found: list[Fold]) -> str:
    """Highlighted code with the lines of each fold behind a line.

    Pygments closes its tags at the end of each line, so a block may be cut between lines. Browsers
    drop a line break that follows ``<pre>``: the code has one to spare.
    """
    head, _, rest = block.partition("<pre>")
    code, _, tail = rest.rpartition("</pre>")
    lines = code.split("\n")
    parts, done = [], 0
    for fold in found:
        if fold.first > done:
            parts.append("<pre>\n" + "\n".join(lines[done : fold.first]) + "\n</pre>")
        inside = "\n".join(lines[fold.first : fold.last + 1])
        text = re.sub(r"<[^>]*>", "", inside).lstrip("\n")
        indent = len(text) - len(text.lstrip())
        begins = begin_fold(fold).replace("<summary>", f'<summary style="--indent: {indent}ch">')
        parts.append(f"{begins}<pre>\n{inside}\n</pre></details>")
        done = fold.last + 1
    if any(line.strip() for line in lines[done:]):
        parts.append("<pre>\n" + "\n".join(lines[done:]) + "</pre>")
    return f'{head}<div class="lml-parts">{"".join(parts)}</div>{tail}'


def pass_by(self, node) -> None:
    """Other builders than those of HTML know no folds."""


def hold_punctuation(app, doctree, docname) -> None:
    """Keep a formula in a line together with the bracket, comma or full stop that touches it."""
    for formula in list(doctree.findall(nodes.math)):
        parent = formula.parent
        place = parent.index(formula)
        pieces = [formula]
        before = parent[place - 1] if place else None
        after = parent[place + 1] if place + 1 < len(parent) else None
        # by position: two pieces of text may be equal
        if isinstance(after, nodes.Text) and (closing := CLOSING.match(after)):
            pieces.append(nodes.Text(closing[0]))
            parent[place + 1] = nodes.Text(after[closing.end() :])
        if isinstance(before, nodes.Text) and (opening := OPENING.search(before)):
            pieces.insert(0, nodes.Text(opening[0]))
            parent[place - 1] = nodes.Text(before[: opening.start()])
        if len(pieces) > 1:
            held = nodes.inline(classes=["lml-held"])
            parent[place] = held
            held.extend(pieces)


def drop_double_brackets(app, doctree, docname) -> None:
    """Leave out brackets around the link to an equation, which brings its own: (6.4)."""
    for link in list(doctree.findall(nodes.reference)):
        if not re.fullmatch(r"\([\w.]+\)", link.astext()):
            continue
        parent = link.parent
        place = parent.index(link)
        if not 0 < place < len(parent) - 1:
            continue
        before, after = parent[place - 1], parent[place + 1]
        if not (isinstance(before, nodes.Text) and isinstance(after, nodes.Text)):
            continue
        if before.endswith("(") and after.startswith(")"):
            parent[place - 1] = nodes.Text(before[:-1])
            parent[place + 1] = nodes.Text(after[1:])


def setup(app):
    in_html = {"html": (visit_folded_cell, depart_folded_cell)}
    elsewhere = dict.fromkeys(("latex", "text", "man", "texinfo"), (pass_by, pass_by))
    app.add_node(FoldedCell, **in_html, **elsewhere)
    app.add_node(FoldedCode, html=(visit_folded_code, None))
    app.add_js_file("print.js")
    app.connect("config-inited", define_substitutions)
    app.connect("config-inited", copy_whole_cells, priority=400)  # it reads them at 500
    app.connect("doctree-resolved", label_exported_cells)
    app.connect("doctree-resolved", fold_cells)
    app.connect("doctree-resolved", drop_double_brackets)
    app.connect("doctree-resolved", hold_punctuation)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
