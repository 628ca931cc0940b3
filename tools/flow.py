"""Draw the layers of the package, as ``[tool.lml] layers`` of ``pyproject.toml`` lists them.

A module imports from earlier layers and from its own package only, and no imports go round in a
circle. The picture ``book/_static/flow.svg`` has a band for each layer, with a box for each of its
modules and packages; an arrow leads from a layer to one that imports from it, unless a way over
other layers is drawn. The table of modules in ``CONTRIBUTING.md`` is written from the same list.

Usage: ``python tools/flow.py`` writes, ``python tools/flow.py --check`` compares.
"""

from __future__ import annotations

import argparse
import ast
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from html import escape
from pathlib import Path

from tangle import ROOT, read_chapters

PICTURE = Path("book", "_static", "flow.svg")
MAP = Path("CONTRIBUTING.md")
MARKS = ("<!-- map: written by tools/flow.py -->\n", "<!-- end of the map -->\n")
WIDTH = 520
BAND, GAP, MARGIN, LANE = 68, 22, 16, 14  # heights of a band and below it; sides; between arrows
LETTER = 8.6  # width of a letter of 15 px, generously


@dataclass(frozen=True)
class Layer:
    """Modules and whole packages that stand beside each other."""

    about: str
    names: list[str]


def read_layers(root: Path) -> list[Layer]:
    """The layers, lowest first, each with the comment line above it."""
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    listed = tomllib.loads(text)["tool"]["lml"]["layers"]
    block = text.partition("\nlayers = [\n")[2].partition("\n]\n")[0]
    said = [line.strip()[2:] for line in block.splitlines() if line.strip().startswith("# ")]
    if len(said) != len(listed):
        raise ValueError(
            f"pyproject.toml: [tool.lml] has {len(listed)} layers and {len(said)} comments:"
            " write one comment line above each layer"
        )
    return [Layer(about, names) for about, names in zip(said, listed)]


def read_imports(root: Path) -> dict[str, set[str]]:
    """Modules below ``lml``, packages among them, each with what it imports from ``lml``.

    The package's own top, which imports all that is public, is named "" and read for nothing.
    """
    package = root / "lml"
    paths = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    found: dict[str, set[str]] = {}
    for module in filter(None, paths):
        found[module] = set()
        for node in ast.walk(ast.parse(paths[module].read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found[module] |= {a.name[4:] for a in node.names if a.name.startswith("lml.")}
            elif isinstance(node, ast.Constant) and str(node.value).startswith("lml."):
                found[module] |= {node.value[4:]} & set(paths)  # a name for importlib
            elif isinstance(node, ast.ImportFrom) and node.level:
                raise ValueError(f"lml.{module}: import from lml by full names, not from dots")
            elif isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith("lml."):
                base = str(node.module)[4:]
                names = [f"{base}.{alias.name}".lstrip(".") for alias in node.names]
                found[module] |= {name if name in paths else base for name in names}
    return found


def layers_of(module: str, layers: list[Layer]) -> list[int]:
    """Numbers of the layers that list a module, by its own name or that of its package."""
    return [
        number
        for number, layer in enumerate(layers)
        for name in layer.names
        if f"{module}.".startswith(f"{name}.")
    ]


def faults(layers: list[Layer], imports: dict[str, set[str]]) -> Iterator[str]:
    """What is wrong with layers and imports, as sentences that say what to do."""
    for name in [name for layer in layers for name in layer.names]:
        if not any(f"{module}.".startswith(f"{name}.") for module in imports):
            yield f"[tool.lml] layers lists {name}, but there is no lml.{name}: take it out"
    for module, used in imports.items():
        home = layers_of(module, layers)
        if len(home) != 1:
            yield f"lml.{module} is listed {len(home)} times in [tool.lml] layers: list it once"
            continue
        for other in sorted(used):
            if other == "":
                yield f"lml.{module} imports from lml itself: import from the module"
            elif other.split(".")[0] != module.split(".")[0] and home <= layers_of(other, layers):
                yield (
                    f"lml.{module} imports from lml.{other}, which is not in an earlier layer of"
                    " [tool.lml] layers: move one of the two, or what they share"
                )
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        circle = " -> ".join(f"lml.{module}" for module in reversed(error.args[1]))
        yield f"imports go round in a circle: {circle}"


def arrows(layers: list[Layer], imports: dict[str, set[str]]) -> list[tuple[int, int]]:
    """Pairs of layers, used and using, without those that other pairs lead to as well."""
    below: dict[int, set[int]] = {number: set() for number in range(len(layers))}
    for module, used in imports.items():
        [home] = layers_of(module, layers)
        below[home] |= {layers_of(other, layers)[0] for other in used} - {home}
    reached: dict[int, set[int]] = {}
    for number, direct in below.items():
        reached[number] = direct.union(*(reached[other] for other in direct))
    return [
        (other, number)
        for number, direct in below.items()
        for other in sorted(direct)
        if not any(other in reached[between] for between in direct)
    ]


def draw(layers: list[Layer], pairs: list[tuple[int, int]]) -> str:
    """The picture: bands from top to bottom on a light card of their own, for dark pages too."""
    tops = [MARGIN + number * (BAND + GAP) for number in range(len(layers))]
    detours = [pair for pair in pairs if pair[1] - pair[0] > 1]
    edge = WIDTH - MARGIN - LANE * (len(detours) + 1)  # right side of the bands
    height = tops[-1] + BAND + MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"'
        ' font-family="system-ui, sans-serif" aria-label="Layers of the package, lowest first">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff" rx="8"/>',
        '<defs><marker id="a" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7"'
        ' markerHeight="7" orient="auto"><path d="M0 0L10 5L0 10z" fill="#444"/></marker></defs>',
    ]
    for layer, top in zip(layers, tops):
        lines.append(
            f'<rect x="{MARGIN}" y="{top}" width="{edge - MARGIN}" height="{BAND}" rx="6"'
            ' fill="#eef4f7" stroke="#5b6b75"/>'
            f'<text x="{MARGIN + 12}" y="{top + 20}" font-size="14" fill="#33424c">'
            f"{escape(layer.about)}</text>"
        )
        left = MARGIN + 12.0
        for name in layer.names:
            width = LETTER * len(name) + 14
            lines.append(
                f'<rect x="{left:g}" y="{top + 30}" width="{width:g}" height="28" rx="4"'
                ' fill="#ffffff" stroke="#5b6b75"/>'
                f'<text x="{left + width / 2:g}" y="{top + 49}" text-anchor="middle"'
                f' font-size="15" font-weight="600" fill="#1c2a33">{name}</text>'
            )
            left += width + 8
        if left > edge:
            raise ValueError(f"the names of the layer {layer.about!r} do not fit beside each other")
    arrow = '<path d="{}" fill="none" stroke="#444" stroke-width="1.6" marker-end="url(#a)"/>'
    for used, using in pairs:
        if (used, using) in detours:
            lane = edge + LANE * (1 + detours.index((used, using)))
            begin, end = tops[used] + BAND - 16, tops[using] + 16
            lines.append(arrow.format(f"M{edge} {begin}H{lane}V{end}H{edge + 2}"))
        else:
            lines.append(arrow.format(f"M{edge // 2} {tops[used] + BAND}v{GAP - 2}"))
    return "\n".join([*lines, "</svg>"]) + "\n"


def with_map(text: str, layers: list[Layer], root: Path) -> str:
    """A text with the table of layers, their modules and the pages that tell these."""
    pages: dict[str, list[str]] = {}
    for chapter in read_chapters(root):
        for module in dict.fromkeys(cell.module for cell in chapter.cells):
            pages.setdefault(module, []).append(f"[{chapter.name}](book/{chapter.name}.ipynb)")
    lines = ["| layer | module | told in |", "|---|---|---|"]
    for number, layer in enumerate(layers):
        for module in sorted(m for m in pages if number in layers_of(m, layers)):
            lines.append(
                f"| {number + 1}. {layer.about} | `{module}` | {', '.join(pages[module])} |"
            )
    before, after = text.split(MARKS[0])[0], text.split(MARKS[1])[1]
    return "".join([before, MARKS[0], "\n".join(lines), "\n", MARKS[1], after])


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    options = parser.parse_args(argv)
    layers, imports = read_layers(ROOT), read_imports(ROOT)
    if wrong := list(faults(layers, imports)):
        print("\n".join(f"flow: {fault}" for fault in wrong), file=sys.stderr)
        return 1
    known = (ROOT / MAP).read_text(encoding="utf-8")
    wanted = {PICTURE: draw(layers, arrows(layers, imports)), MAP: with_map(known, layers, ROOT)}
    for name, text in wanted.items():
        path = ROOT / name
        if not options.check:
            path.write_text(text, encoding="utf-8", newline="\n")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            print(f"flow: {name.as_posix()} is not what layers and pages give: run tools/flow.py")
            return 1
    print(f"flow: {len(layers)} layers, {len(imports)} modules and packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
