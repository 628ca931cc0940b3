"""Write the package ``lml/`` from the exported cells of the chapters in ``book/``.

A chapter ``book/NAME.ipynb`` whose code cells begin with ``#| export`` becomes the
module ``lml/NAME.py``; its first exported cell is the module docstring. ``_toc.yml``
gives the order and the numbers of the chapters. ``lml/__init__.py`` is written from the
names listed in ``[tool.lml] public`` of ``pyproject.toml``.

Usage: ``python tools/tangle.py`` writes, ``python tools/tangle.py --check`` compares.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
EXPORT = "#| export"
LABEL = re.compile(r"^\$\$\s*\(([\w:-]+)\)\s*$|\$\$\s*\(([\w:-]+)\)\s*$", re.MULTILINE)
DERIVED = re.compile(
    r"Derived in eqs?\. (?P<labels>\([\w:-]+\)(?:(?:,| and|, and)\s+\([\w:-]+\))*)"
)


class TangleError(Exception):
    """A chapter cannot be turned into a module; the message says where and why."""


@dataclass
class Chapter:
    """The exported part of one notebook."""

    name: str
    number: int | None
    title: str
    labels: list[str]
    cells: list[tuple[int, str]] = field(default_factory=list)  # (cell index, source)

    def where(self, index: int) -> str:
        return f"book/{self.name}.ipynb, cell {index}"


def toc_files(root: Path) -> list[tuple[str, bool]]:
    """Files of ``_toc.yml`` in reading order, each with whether it is numbered."""
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    files = [(toc["root"], False)]
    for part in toc.get("parts", []):
        files += [(entry["file"], bool(part.get("numbered"))) for entry in part["chapters"] or []]
    return files


def read_chapters(root: Path) -> list[Chapter]:
    """Read every notebook that ``_toc.yml`` names, in order."""
    chapters, number = [], 0
    for file, numbered in toc_files(root):
        number += numbered
        path = root / f"{file}.ipynb"
        if not path.exists():
            if not (root / f"{file}.md").exists():
                raise TangleError(f"_toc.yml names {file}, but neither .ipynb nor .md exists")
            continue
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        sources = [(c["cell_type"], "".join(c["source"])) for c in cells]
        prose = "\n\n".join(s for kind, s in sources if kind == "markdown")
        title = next((s[2:].strip() for s in prose.splitlines() if s.startswith("# ")), path.stem)
        labels = [a or b for a, b in LABEL.findall(prose)]
        chapter = Chapter(path.stem, number if numbered else None, title, labels)
        for index, (kind, source) in enumerate(sources):
            first, _, rest = source.partition("\n")
            if kind == "code" and first.strip() == EXPORT:
                chapter.cells.append((index, rest))
        chapters.append(chapter)
    listed = {c.name for c in chapters}
    for path in sorted((root / "book").glob("*.ipynb")):
        if path.stem not in listed:
            raise TangleError(f"book/{path.name} is not listed in _toc.yml: add it there")
    return chapters


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [t.id for t in node.targets if isinstance(t, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return []


def _continues(node: ast.stmt) -> bool:
    """Whether a node is ``class X(X)``, the continuation of a class told earlier."""
    return (
        isinstance(node, ast.ClassDef)
        and len(node.bases) == 1
        and isinstance(node.bases[0], ast.Name)
        and node.bases[0].id == node.name
    )


def _start(node: ast.stmt) -> int:
    """First line of a statement, decorators included (1-based)."""
    return min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])


def _split(source: str) -> list[tuple[ast.stmt, str]]:
    """Statements of a cell, each with the comment lines that stand right above it."""
    lines, pieces, end = source.splitlines(), [], 0
    for node in ast.parse(source).body:
        pieces.append((node, "\n".join(lines[end : node.end_lineno]).strip("\n")))
        end = node.end_lineno
    return pieces


def _class_body(source: str, node: ast.ClassDef) -> str:
    lines = source.splitlines()
    header = next(i for i, s in enumerate(lines) if s.startswith("class "))
    while not lines[header].rstrip().endswith(":"):
        header += 1
    return "\n".join(lines[header + 1 :]).strip("\n")


def derive(text: str, home: dict[str, Chapter], where: str) -> str:
    """Put the chapter's number and name into each ``Derived in eq. (label)``."""

    def replace(match: re.Match) -> str:
        labels = re.findall(r"\(([\w:-]+)\)", match["labels"])
        unknown = [label for label in labels if label not in home]
        if unknown:
            raise TangleError(f"{where}: no equation is labelled {unknown[0]!r}")
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

    return DERIVED.sub(replace, text)


def build_module(chapter: Chapter, home: dict[str, Chapter]) -> tuple[str, dict[str, int]]:
    """Source of the module of one chapter, and the cell in which each name is defined."""
    index, source = chapter.cells[0]
    body = ast.parse(source).body
    if len(body) != 1 or ast.get_docstring(ast.parse(source)) is None:
        raise TangleError(f"{chapter.where(index)}: the first exported cell must be a docstring")
    docstring = source.strip()
    imports: list[str] = []
    blocks: list[str] = []
    where_class: dict[str, int] = {}
    defined: dict[str, int] = {}
    for index, source in chapter.cells[1:]:
        try:
            pieces = _split(source)
        except SyntaxError as error:
            raise TangleError(f"{chapter.where(index)}: {error}") from error
        for node, text in pieces:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                imports.append(ast.unparse(node))
            elif _continues(node):
                if node.name not in where_class:
                    raise TangleError(
                        f"{chapter.where(index)}: class {node.name} is continued before it begins"
                    )
                blocks[where_class[node.name]] += "\n\n" + _class_body(text, node)
            else:
                for name in _names(node):
                    if name in defined:
                        raise TangleError(
                            f"{name!r} is exported twice: {chapter.where(defined[name])}"
                            f" and cell {index}"
                        )
                    defined[name] = index
                if isinstance(node, ast.ClassDef):
                    where_class[node.name] = len(blocks)
                blocks.append(text)
    public = sorted(name for name in defined if not name.startswith("_"))
    exports = "__all__ = [" + ", ".join(f'"{name}"' for name in public) + "]"
    header = f"# Generated from book/{chapter.name}.ipynb by tools/tangle.py: edit the chapter."
    code = "\n\n\n".join(blocks)
    text = "\n\n".join([header + "\n" + docstring, "\n".join(sorted(set(imports))), exports, code])
    return derive(text + "\n", home, f"book/{chapter.name}.ipynb"), defined


def build_init(public: list[str], homes: dict[str, str], docstring: str) -> str:
    """Source of ``lml/__init__.py``: the names of ``[tool.lml] public``."""
    missing = [name for name in public if name not in homes]
    if missing:
        raise TangleError(
            f"pyproject.toml lists {missing[0]!r} as public, but no chapter exports it"
        )
    lines = [f"from lml.{homes[name]} import {name}" for name in public]
    exports = "__all__ = [" + ", ".join(f'"{name}"' for name in sorted(public)) + "]"
    header = "# Generated from pyproject.toml ([tool.lml]) by tools/tangle.py: edit that."
    return "\n\n".join([f'{header}\n"""{docstring}"""', "\n".join(lines), exports]) + "\n"


def tidy(text: str, name: str) -> str:
    """Sort imports, drop unused ones and format, with ruff."""
    for command in (["check", "--select", "I,F401", "--fix", "--quiet"], ["format"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--stdin-filename", f"lml/{name}.py", "-"],
            input=text, capture_output=True, text=True, cwd=ROOT, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise TangleError(
                f"lml/{name}.py: ruff {command[0]} failed\n{done.stderr}{done.stdout}"
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
    sources, owners = {}, {}
    for chapter in chapters:
        if not chapter.cells:
            continue
        text, defined = build_module(chapter, home)
        for name, index in defined.items():
            if name in owners and not name.startswith("_"):
                other, cell = owners[name]
                raise TangleError(
                    f"{name!r} is exported by {other.where(cell)} and by {chapter.where(index)}"
                )
            owners[name] = (chapter, index)
        sources[f"{chapter.name}.py"] = tidy(text, chapter.name)
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    homes = {name: chapter.name for name, (chapter, _) in owners.items()}
    settings = project["tool"]["lml"]
    sources["__init__.py"] = tidy(
        build_init(settings["public"], homes, settings["docstring"]), "__init__"
    )
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
    for path in sorted(package.glob("*.py")):
        if path.name not in sources:
            faults.append(f"lml/{path.name} has no chapter in book/")
            if not options.check:
                path.unlink()
    for name, text in sources.items():
        path = package / name
        old = path.read_text(encoding="utf-8") if path.exists() else None
        if old == text:
            continue
        chapter = "pyproject.toml" if name == "__init__.py" else f"book/{name[:-3]}.ipynb"
        detail = "it is missing" if old is None else first_difference(old, text)
        faults.append(f"lml/{name} is not what {chapter} gives ({detail})")
        if not options.check:
            path.write_text(text, encoding="utf-8")
    for fault in faults:
        print(f"tangle: {fault}" if options.check else f"tangle: wrote or removed: {fault}")
    if options.check and faults:
        print("tangle: run `python tools/tangle.py`, or put a hand edit into its chapter")
        return 1
    print(f"tangle: {len(sources)} modules, {'all current' if not faults else 'updated'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
