"""Write the package ``lml/`` from the exported cells of the chapters in ``book/``.

A code cell that begins with ``#| export`` goes to the module of its chapter: ``book/NAME.ipynb``
becomes ``lml/NAME.py``, ``book/PACKAGE/NAME.ipynb`` becomes ``lml/PACKAGE/NAME.py``. A cell that
begins with ``#| export PACKAGE.NAME`` goes to that module instead, so that one chapter may tell
several modules and one module may be told in several chapters. The first exported cell of a
module is its docstring. ``_toc.yml`` gives the order and the numbers of the chapters. Exported
cells hold imports, constants, functions and classes; ``class X(X):`` continues a class told
earlier: attributes and ``__init__`` are written first, methods in the order told. A comment above
what a cell defines names the page and the heading that it stands under. ``lml/__init__.py`` is
written from the names listed in ``[tool.lml] public`` of ``pyproject.toml``; the ``__init__.py`` of
``lml/PACKAGE`` from those of ``[tool.lml.packages.PACKAGE] public``.

Usage: ``python tools/tangle.py`` writes, ``python tools/tangle.py --check`` compares.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import subprocess
import sys
import textwrap
import tokenize
import tomllib
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import yaml
from docutils.nodes import make_id
from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin
from mdit_py_plugins.myst_role import myst_role_plugin

ROOT = Path(__file__).resolve().parent.parent
EXPORT = re.compile(r"#\| export(?: (?P<module>[a-z_]\w*(?:\.[a-z_]\w*)*))?")
LABEL = re.compile(r"^\$\$\s*\(([\w:-]+)\)\s*$|\$\$\s*\(([\w:-]+)\)\s*$", re.MULTILINE)
MISSPELT = re.compile(r"^\s*#\s*\|\s*exports?\b.*$", re.MULTILINE | re.IGNORECASE)
DERIVED = re.compile(
    r"Derived\s+in\s+"
    r"(?:eqs?\.\s+(?P<labels>\([\w:-]+\)(?:(?:,\s+and|,|\s+and)\s+\([\w:-]+\))*))?"
)
PARAGRAPH = re.compile(r'^([ \t]*)(.*Derived in [^\n]*(?:\n\1(?!["\s])[^\n]*)*)', re.MULTILINE)
CONSTANT = (ast.Assign, ast.AnnAssign)
WIDTH = 100
SHOWN = ("text", "code_inline", "math_inline")  # what of a heading is in its anchor
MARKDOWN = MarkdownIt().use(dollarmath_plugin).use(myst_role_plugin)


class TangleError(Exception):
    """A chapter cannot be turned into a module; the message says where and why."""


@dataclass
class Cell:
    """One exported cell."""

    chapter: Chapter
    index: int  # its place in the notebook
    module: str  # what stands behind ``lml.`` in an import
    source: str  # without the directive
    heading: str  # slug of the nearest heading above it

    @property
    def where(self) -> str:
        return f"book/{self.chapter.name}.ipynb, cell {self.index}"

    @property
    def anchor(self) -> str:
        return f"# book/{self.chapter.name}.ipynb#{self.heading}"


@dataclass
class Chapter:
    """One page of the book, with its exported cells."""

    name: str  # path below book/, without suffix
    number: int | None
    title: str
    labels: list[str]
    cells: list[Cell] = field(default_factory=list)


def exported(source: str) -> re.Match[str] | None:
    """The export directive of a cell, None where the cell stays in the book."""
    return EXPORT.fullmatch(source.partition("\n")[0].rstrip())


def slugs(text: str) -> list[str]:
    """Anchors of the headings of a markdown text, as the built page has them."""
    found = []
    tokens = MARKDOWN.parse(text) if re.search(r"^ {0,3}#", text, re.MULTILINE) else []
    for heading, inline in pairwise(tokens):
        if heading.type == "heading_open":
            said = [t.content for t in inline.children or [] if t.type in SHOWN]
            found.append(make_id("".join(said)))
    return found


def _pages(root: Path, entry: dict[str, str]) -> list[str]:
    """The pages that an entry below a page names, without their suffix."""
    if "file" in entry:
        return [entry["file"]]
    paths = sorted(root.glob(f"{entry['glob']}.*"))
    return [path.relative_to(root).as_posix().rpartition(".")[0] for path in paths]


def toc_files(root: Path) -> list[tuple[str, bool]]:
    """Files of ``_toc.yml`` in reading order, each with whether it is numbered."""
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    files = [(toc["root"], False)]
    for part in toc.get("parts", []):
        for entry in part["chapters"] or []:
            files.append((entry["file"], bool(part.get("numbered"))))
            files += [
                (page, False) for below in entry.get("sections", []) for page in _pages(root, below)
            ]
    return files


def read_chapters(root: Path) -> list[Chapter]:
    """Read every notebook that ``_toc.yml`` names, in order."""
    chapters, number = [], 0
    for file, numbered in toc_files(root):
        number += numbered
        path, text = root / f"{file}.ipynb", root / f"{file}.md"
        if path.exists():
            cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
            sources = [(c["cell_type"], "".join(c["source"])) for c in cells]
        elif text.exists():
            sources = [("markdown", text.read_text(encoding="utf-8"))]
        else:
            raise TangleError(f"_toc.yml names {file}, but neither .ipynb nor .md exists")
        prose = "\n\n".join(s for kind, s in sources if kind == "markdown")
        title = next((s[2:].strip() for s in prose.splitlines() if s.startswith("# ")), path.stem)
        labels = [a or b for a, b in LABEL.findall(prose)]
        name = file.removeprefix("book/")
        chapter = Chapter(name, number if numbered else None, title, labels)
        headings: list[str] = []
        for index, (kind, source) in enumerate(sources):
            if kind == "markdown":
                headings += slugs(source)
            if kind != "code":
                continue
            directive = exported(source)
            rest = source.partition("\n")[2]
            if wrong := MISSPELT.search(rest if directive else source):
                raise TangleError(
                    f"book/{name}.ipynb, cell {index}: {wrong[0].strip()!r}: the directive is"
                    " '#| export' or '#| export MODULE', alone on the first line of the cell"
                )
            if directive:
                module = directive["module"] or name.replace("/", ".")
                heading = headings[-1] if headings else ""
                chapter.cells.append(Cell(chapter, index, module, rest, heading))
        if twice := [slug for slug, count in Counter(headings).items() if count > 1]:
            raise TangleError(
                f"book/{name} has two headings with the anchor #{twice[0]}: rename one"
            )
        chapters.append(chapter)
    listed = {c.name for c in chapters}
    for path in sorted((root / "book").rglob("*.ipynb")):
        name = path.relative_to(root / "book").with_suffix("").as_posix()
        if name not in listed and ".ipynb_checkpoints" not in path.parts:
            raise TangleError(f"book/{name}.ipynb is not listed in _toc.yml: add it there")
    return chapters


def _parse(source: str, where: str) -> list[ast.stmt]:
    try:
        return ast.parse(source).body
    except SyntaxError as error:
        raise TangleError(f"{where}: line {error.lineno} of the code: {error.msg}") from error


def _names(node: ast.stmt) -> list[str]:
    """Names that a definition or an assignment binds; none for any other statement."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    flat = [t for target in targets for t in getattr(target, "elts", [target])]
    return [t.id for t in flat if isinstance(t, ast.Name)]


def _is_program(node: ast.stmt) -> bool:
    """Whether a node is ``if __name__ == "__main__" ...:``, what ``python -m`` runs."""
    return isinstance(node, ast.If) and ast.unparse(node.test).startswith("__name__ == ")


def _continues(node: ast.stmt) -> bool:
    """Whether a node is ``class X(X)``, the continuation of a class told earlier."""
    return isinstance(node, ast.ClassDef) and node.name in map(ast.unparse, node.bases)


def _cut(
    nodes: list[ast.stmt], lines: list[str], end: int, where: str
) -> list[tuple[ast.stmt, str]]:
    """Statements from line ``end`` on, each with the comment lines that stand right above it."""
    pieces = []
    for node in nodes:
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        if first <= end:
            raise TangleError(f"{where}: two statements on one line: {lines[first - 1].strip()!r}")
        pieces.append((node, "\n".join(lines[end : node.end_lineno]).strip("\n")))
        end = node.end_lineno
    rest = "\n".join(lines[end:]).strip("\n")
    if rest.strip() and not pieces:
        raise TangleError(f"{where}: an exported cell with nothing but comments")
    if rest.strip():
        pieces[-1] = (pieces[-1][0], f"{pieces[-1][1]}\n{rest}")
    return pieces


def _header_end(lines: list[str]) -> int:
    """Number of lines up to the colon of ``class X(...):``, comments and decorators included."""
    header = next(i for i, line in enumerate(lines) if line.startswith("class "))
    tokens = tokenize.generate_tokens(io.StringIO("\n".join(lines[header:])).readline)
    return header + next(t.start[0] for t in tokens if t.type == tokenize.NEWLINE)


def _check_continuation(text: str, node: ast.ClassDef, where: str) -> None:
    if len(node.bases) > 1 or node.keywords or node.decorator_list:
        raise TangleError(f"{where}: write `class {node.name}({node.name}):` and nothing more")
    if ast.get_docstring(node) is not None:
        raise TangleError(f"{where}: class {node.name} has its docstring where it begins")
    lines = text.splitlines()
    if not lines[_header_end(lines) - 1].split("#")[0].rstrip().endswith(":"):
        raise TangleError(f"{where}: class {node.name} is continued in one line")


def _first_members(nodes: list[ast.stmt]) -> list[ast.stmt]:
    """Docstring, attributes and ``__init__``; an attribute made of a method stays behind it."""
    docstring = [n for n in nodes[:1] if isinstance(n, ast.Expr)]
    attributes, later = [], {"__init__"}
    for node in nodes:
        names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        if isinstance(node, CONSTANT) and not names & later:
            attributes.append(node)
        else:
            later.update(_names(node))
    return docstring + attributes + [n for n in nodes if "__init__" in _names(n)]


def join_class(told: list[tuple[Cell, str]]) -> str:
    """One class from the cells that tell it; an anchor stands where the page's heading changes."""
    if len(told) == 1:
        return told[0][1]
    pieces: dict[ast.stmt, tuple[Cell, str]] = {}
    for cell, text in told:
        lines = text.splitlines()
        end = _header_end(lines)
        above = "".join(f"    {line}\n" for line in lines[:end] if line.startswith("#"))
        for node, piece in _cut(ast.parse(text).body[0].body, lines, end, cell.where):
            pieces[node] = (cell, piece if not pieces else above + piece)
            above = ""
    first = _first_members(list(pieces))
    lines = told[0][1].splitlines()
    whole = "\n".join(lines[: _header_end(lines)])
    last: tuple[ast.stmt | None, str] = (None, told[0][0].anchor)
    for node in [*first, *(n for n in pieces if n not in first)]:
        cell, piece = pieces[node]
        attributes = isinstance(node, CONSTANT) and isinstance(last[0], CONSTANT)
        anchor = "" if cell.anchor == last[1] else f"    {cell.anchor}\n"
        whole += ("\n" if attributes or last[0] is None else "\n\n") + anchor + piece
        last = (node, cell.anchor)
    return whole


def derive(text: str, home: dict[str, Chapter], where: str) -> str:
    """Put the chapter's number and name into each ``Derived in eq. (label)``."""

    def replace(match: re.Match) -> str:
        if match["labels"] is None:
            said = text[match.start() : match.end() + 30]
            raise TangleError(
                f"{where}: {said!r}: write 'Derived in eq. (label).' or"
                " 'Derived in eqs. (label-a) and (label-b).'"
            )
        labels = re.findall(r"\(([\w:-]+)\)", match["labels"])
        unknown = [label for label in labels if label not in home]
        if unknown:
            raise TangleError(f"{where}: no equation is labeled {unknown[0]!r}")
        parts: dict[str, list[str]] = {}
        for label in labels:
            parts.setdefault(home[label].name, []).append(f"({label})")
        said = []
        for name, group in parts.items():
            chapter = home[group[0][1:-1]]
            number = "" if chapter.number is None else f" {chapter.number}"
            eqs = "eq." if len(group) == 1 else "eqs."
            listing = " and ".join(filter(None, [", ".join(group[:-1]), group[-1]]))
            said.append(f"chapter{number} ({name}), {eqs} {listing}")
        return "Derived in " + "; ".join(said)

    def wrap(match: re.Match) -> str:
        indent, lines = match[1], match[0].splitlines()
        if max(map(len, lines)) <= WIDTH:
            return match[0]
        return textwrap.fill(
            " ".join(match[2].split()),
            WIDTH,
            initial_indent=indent,
            subsequent_indent=indent,
            break_on_hyphens=False,
            break_long_words=False,
        )

    return PARAGRAPH.sub(wrap, DERIVED.sub(replace, text))


def build_module(
    name: str, cells: list[Cell], home: dict[str, Chapter]
) -> tuple[str, dict[str, Cell]]:
    """Source of one module, and the cell in which each of its names is defined."""
    source = cells[0].source
    body = _parse(source, cells[0].where)
    if len(body) != 1 or ast.get_docstring(ast.parse(source)) is None:
        raise TangleError(
            f"{cells[0].where}: the first exported cell of lml.{name} must be a docstring"
        )
    docstring = source.strip()
    imports: list[str] = []
    blocks: list[list[tuple[Cell, str]]] = []  # a class told over several cells is one block
    classes: dict[str, list[tuple[Cell, str]]] = {}
    defined: dict[str, Cell] = {}

    def define(name: str, cell: Cell) -> None:
        if name in defined:
            raise TangleError(f"{name!r} is exported twice: {defined[name].where} and {cell.where}")
        defined[name] = cell

    for cell in cells[1:]:
        where, before, anchor = cell.where, None, f"{cell.anchor}\n"
        for node, text in _cut(_parse(cell.source, where), cell.source.splitlines(), 0, where):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                imports.append(text)
                continue
            names = _names(node)
            if not names and not _is_program(node):
                raise TangleError(
                    f"{where}: {text.strip().splitlines()[-1]!r}: only imports, constants,"
                    " functions and classes can be exported"
                )
            if isinstance(node, ast.ClassDef):
                methods = (n for n in node.body if isinstance(n, ast.FunctionDef))
                for method in (m for m in methods if not m.decorator_list):
                    define(f"{node.name}.{method.name}", cell)
            if _continues(node):
                if node.name not in classes:
                    raise TangleError(f"{where}: class {node.name} is continued before it begins")
                _check_continuation(text, node, where)
                classes[node.name].append((cell, text))
                continue
            for name in names:
                define(name, cell)
            if isinstance(node, CONSTANT) and isinstance(before, CONSTANT):
                blocks[-1] = [(cell, f"{blocks[-1][0][1]}\n{text}")]  # constants stand together
            else:
                blocks.append([(cell, anchor + text)])
            if isinstance(node, ast.ClassDef):
                classes[node.name] = blocks[-1]
            before, anchor = node, ""
    defined = {name: cell for name, cell in defined.items() if "." not in name}
    public = sorted(name for name in defined if not name.startswith("_"))
    exports = "__all__ = [" + ", ".join(f'"{name}"' for name in public) + "]"
    pages = list(dict.fromkeys(f"book/{cell.chapter.name}.ipynb" for cell in cells))
    header = f"# Generated from {' and '.join(pages)} by tools/tangle.py: edit the chapter."
    code = "\n\n\n".join(map(join_class, blocks))
    imports.append("from __future__ import annotations")  # signatures show names of types
    text = "\n\n".join([header + "\n" + docstring, "\n".join(sorted(set(imports))), exports, code])
    return derive(text + "\n", home, f"lml.{name}"), defined


def build_init(origin: str, docstring: str, homes: dict[str, str]) -> str:
    """Source of an ``__init__.py``: names to offer, each with the module it comes from."""
    lines = [f"from lml.{module} import {name}" for name, module in homes.items()]
    exports = "__all__ = [" + ", ".join(f'"{name}"' for name in sorted(homes)) + "]"
    header = f"# Generated from {origin}"
    return "\n\n".join([f'{header}\n"""{docstring}"""', "\n".join(lines), exports]) + "\n"


def tidy(text: str, name: str) -> str:
    """Sort imports, drop unused ones and format, with ruff; names must be defined."""
    for command in (["check", "--select", "I,F401,F821,RUF022", "--fix", "--quiet"], ["format"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--stdin-filename", f"lml/{name}.py", "-"],
            input=text, capture_output=True, encoding="utf-8", cwd=ROOT, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise TangleError(
                f"lml/{name}.py: ruff {command[0]} failed: does an exported cell use what a cell"
                f" without the export directive defines?\n{done.stderr}"
            )
        text = done.stdout
    return text


def build(root: Path = ROOT) -> dict[str, str]:
    """All modules of the package, file name to source."""
    chapters = read_chapters(root)
    home: dict[str, Chapter] = {}
    for chapter in chapters:
        for label in chapter.labels:
            if label in home:
                raise TangleError(
                    f"equation label {label!r} stands in {home[label].name} and in {chapter.name}"
                )
            home[label] = chapter
    modules: dict[str, list[Cell]] = {}
    for chapter in chapters:
        for cell in chapter.cells:
            modules.setdefault(cell.module, []).append(cell)
    sources: dict[str, str] = {}
    owners: dict[str, Cell] = {}
    for module, cells in modules.items():
        text, defined = build_module(module, cells, home)
        for name, cell in defined.items():
            if name in owners and not name.startswith("_"):
                raise TangleError(
                    f"{name!r} is exported by {owners[name].where} and by {cell.where}"
                )
            owners[name] = cell
        path = module.replace(".", "/")
        sources[f"{path}.py"] = tidy(text, path)
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    settings = project["tool"]["lml"]
    packages = sorted({name.split("/")[0] for name in sources if "/" in name})
    for package in ["", *packages]:
        listed = settings.get("packages", {}).get(package) if package else settings
        if listed is None:
            raise TangleError(f"pyproject.toml has no [tool.lml.packages.{package}]: add it")
        within = f"{package}." if package else ""
        homes = {name: cell.module for name, cell in owners.items() if name in listed["public"]}
        for name in listed["public"]:
            if name not in homes or not homes[name].startswith(within):
                raise TangleError(
                    f"pyproject.toml lists {name!r} as public, but no chapter exports it to"
                    f" lml.{within}*"
                )
        origin = "pyproject.toml ([tool.lml]) by tools/tangle.py: edit that."
        text = build_init(origin, listed["docstring"], homes)
        if not package:
            text += f'\n__version__ = "{project["project"]["version"]}"\n'
        path = f"{package}/__init__".lstrip("/")
        sources[f"{path}.py"] = tidy(text, path)
    return sources


def first_difference(old: str, new: str) -> str:
    """Say where two versions of a module part ways."""
    a, b = old.splitlines(), new.splitlines()
    for number, (x, y) in enumerate(zip(a, b, strict=False), start=1):
        if x != y:
            return f"line {number}: the file has {x.strip()!r}, the chapter gives {y.strip()!r}"
    return f"the file has {len(a)} lines, the chapter gives {len(b)}"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    options = parser.parse_args(argv)
    try:
        sources = build(ROOT)
    except TangleError as error:
        print(f"tangle: {error}", file=sys.stderr)
        return 1
    package, faults = ROOT / "lml", []
    package.mkdir(exist_ok=True)
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package).as_posix()
        if name not in sources:
            faults.append(f"lml/{name} has no chapter in book/")
            if not options.check:
                path.unlink()
    for name, text in sources.items():
        path = package / name
        old = path.read_text(encoding="utf-8") if path.exists() else None
        if old == text:
            continue
        chapter = text.partition("Generated from ")[2].partition(" by ")[0]
        if name.endswith("__init__.py"):
            chapter = "pyproject.toml"
        detail = "it is missing" if old is None else first_difference(old, text)
        faults.append(f"lml/{name} is not what {chapter} gives ({detail})")
        if not options.check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
    for fault in faults:
        print(f"tangle: {fault}" if options.check else f"tangle: wrote or removed: {fault}")
    if options.check and faults:
        print("tangle: run `python tools/tangle.py`, or put a hand edit into its chapter")
        return 1
    print(f"tangle: {len(sources)} modules, {'all current' if not faults else 'updated'}")
    return 0


if __name__ == "__main__":
    for stream in (sys.stdout, sys.stderr):  # a terminal may lack the letters of a chapter
        stream.reconfigure(errors="backslashreplace")
    sys.exit(main())
