"""Bounds of the pages as a reader meets them: their lengths, their code, their first figures.

They stand in tools/site_bounds.toml: a bound for each kind of page, and the pages that are above it
today, each with its present value, which may shrink and never grow.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("site_bounds.toml")
SLACK = 1.03  # fonts of another machine are a little wider or narrower
# what is measured, and how it is said
MEASURES = {
    "screens": "{:.1f} screens",
    "code": "{:.0%} of its height is code",
    "figure": "the first figure after {:.1f} screens",
    "own_kB": "{:.0f} kB of its own",
    "all_kB": "{:.0f} kB with what pages share",
}
BOOK = {
    "long_sentences": "{} sentences of more than 40 words",
    "words_before_method": "{} words before the page that shows the method",
}


def read_bounds(path: Path = FILE) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def kind_of_text(page: str) -> str:
    """The kind of a page that is no notebook."""
    if page == "book/index":
        return "front"
    return "api" if page.startswith("book/api") else "list"


def page_bound(bounds: dict[str, Any], measure: str, page: str, kind: str) -> float | None:
    """The bound of a page: what stands for it, or that of its kind; None if there is none."""
    usual = bounds["bounds"].get(measure, {}).get(kind)
    return bounds.get("above", {}).get(measure, {}).get(page, usual)


def bound_faults(
    pages: dict[str, dict[str, Any]], book: dict[str, int], bounds: dict[str, Any]
) -> Iterator[tuple[str, str]]:
    """Where the book is above its bounds, in words.

    `pages` are the measures of each page, with its kind; `book` those of the text.
    """
    for page, seen in pages.items():
        for measure, said in MEASURES.items():
            bound, value = page_bound(bounds, measure, page, seen["kind"]), seen[measure]
            if bound is not None and value is not None and value > SLACK * bound:
                yield page, f"{said.format(value)}; at most {said.format(bound)}"
        if seen["folds"] != seen["asked_folds"]:
            yield page, f"{seen['folds']} folds, but the rules ask for {seen['asked_folds']}"
    for measure, said in BOOK.items():
        if book[measure] > bounds["book"][measure]:
            yield "the book", f"{said.format(book[measure])}; at most {bounds['book'][measure]}"
    for measure, above in bounds.get("above", {}).items():
        for page in above.keys() - pages.keys():
            yield page, f"site_bounds.toml names it under {measure}, but there is no such page"


def tightened(
    pages: dict[str, dict[str, Any]], book: dict[str, int], bounds: dict[str, Any]
) -> dict[str, Any]:
    """The bounds with every page that is above them at its present value; none grows.

    A page that stands for the first time, or under a new name, is taken as it is.
    """
    above: dict[str, dict[str, float]] = {}
    for measure in MEASURES:
        old = bounds.get("above", {}).get(measure, {})
        for page, seen in pages.items():
            usual, value = bounds["bounds"].get(measure, {}).get(seen["kind"]), seen[measure]
            if usual is None or value is None or value <= usual:
                continue
            value = round(min(value, old.get(page, value)), 2)
            above.setdefault(measure, {})[page] = value
    text = {m: min(book[m], bounds["book"].get(m, book[m])) for m in BOOK}
    return {**bounds, "book": {**bounds["book"], **text}, "above": above}


def write_bounds(bounds: dict[str, Any], path: Path = FILE) -> None:
    """Write the file anew, its first comment kept."""
    comment = path.read_text(encoding="utf-8").partition("\n[")[0].rstrip()
    tables = {"book": bounds["book"]}
    for group in ("bounds", "above"):
        tables |= {f"{group}.{measure}": table for measure, table in bounds[group].items()}
    lines = [comment]
    for name, table in tables.items():
        lines += ["", f"[{name}]"]
        lines += [f"{_key(k)} = {v!r}".replace("'", '"') for k, v in table.items()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _key(name: str) -> str:
    return name if name.replace("_", "").isalnum() else f'"{name}"'


def table(pages: dict[str, dict[str, Any]], book: dict[str, int]) -> str:
    """The measures of the pages, a line each, and of the book."""
    lines = [f"{'page':26} {'kind':9} {'screens':>7} {'code':>5} {'figure':>6} {'folded':>7} "
             f"{'own kB':>6} {'all kB':>6}"]  # fmt: skip
    for page, seen in pages.items():
        figure = "-" if seen["figure"] is None else f"{seen['figure']:.1f}"
        lines.append(
            f"{page.removeprefix('book/'):26} {seen['kind'] or '-':9} {seen['screens']:7.1f} "
            f"{seen['code']:5.0%} {figure:>6} {seen['folded_cells']:3}/{seen['cells']:<3} "
            f"{seen['own_kB']:6.0f} {seen['all_kB']:6.0f}"
        )
    folded = sum(seen["folded_cells"] for seen in pages.values())
    cells = sum(seen["cells"] for seen in pages.values())
    screens = sum(seen["screens"] for seen in pages.values() if seen["cells"])
    lines.append(
        f"chapters: {screens:.0f} screens, {folded} of {cells} cells with folds; "
        f"{book['words']} words, " + ", ".join(s.format(book[m]) for m, s in BOOK.items())
    )
    return "\n".join(lines)
