"""Typeset the formulas of the built site, so that no reader's browser has to.

MathJax is 300 kilobytes and moves the text while it works. Here it typesets every formula of the
site once, in headless Chromium; the pages get what it made of them and one style sheet with the
glyphs that they use. Without a Chromium the pages stay as they are, and MathJax typesets them at
the reader's.

Usage: ``python tools/typeset.py [--site _build/html]``.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from pathlib import Path

from browser import browser_path, launch, open_page, serve
from tangle import ROOT

MATH = re.compile(
    r'(<(?P<tag>span|div) class="(?:amsmath )?math [^>]*>'
    r'(?:\s*<span class="eqno">.*?</a></span>)?\s*)'
    r"(?P<formula>\\\(.*?\\\)|\\\[.*?\\\])",
    re.DOTALL,
)
SCRIPTS = re.compile(
    r"\s*<script>window\.MathJax = .*?</script>"
    r'\s*<script defer="defer" src="(?P<path>[^"]*)tex-mml-chtml\.js[^"]*"></script>'
)
NOISE = re.compile(r' (?:ctxtmenu_counter="\d+"|style="font-size: [\d.]+%; position: relative;")')
SHEET = "formulas.css"
# What MathJax made of each formula, and the styles of that.
RESULT = """() => ({
  made: [...document.querySelectorAll('.math > mjx-container')].map(e => e.outerHTML),
  bad: [...document.querySelectorAll('.math')]
    .filter(e => !e.querySelector('mjx-container') || e.querySelector('mjx-merror'))
    .map(e => e.textContent),
  scale: parseFloat(document.querySelector('mjx-container')?.style.fontSize),
  style: [...document.querySelectorAll('style')].filter(e => e.id.startsWith('MJX'))
    .flatMap(e => [...e.sheet.cssRules].map(rule => rule.cssText)).join('\\n'),
})"""
STYLE = "\nmjx-container {{ font-size: {scale}%; position: relative; }}\n"
LINK = '<link rel="stylesheet" type="text/css" href="{path}' + SHEET + '">'


def sheet_of_formulas(page: str, formulas: list[tuple[str, str]]) -> str:
    """A page with the head of another one, and these formulas (tag and TeX) alone as its text."""
    head, _, _ = page.partition("</head>")
    boxes = "\n".join(f'<{tag} class="math">{tex}</{tag}>' for tag, tex in formulas)
    return f'{head}</head><body><article class="bd-article">{boxes}</article></body></html>'


def keep_still(container: str) -> str:
    """A formula without what only MathJax's menu reads; those that may scroll keep the focus."""
    start, _, rest = container.partition(">")
    start = NOISE.sub("", start)
    if 'display="true"' not in start:
        start = start.replace(' tabindex="0"', "")
    return f"{start}>{rest}"


def ask_mathjax(site: Path, example: Path, formulas: list[tuple[str, str]]) -> dict:
    """What MathJax makes of formulas (tag and TeX) with the settings of a page of the site."""
    scratch = example.with_name("_formulas.html")
    text = sheet_of_formulas(example.read_text(encoding="utf-8"), formulas)
    scratch.write_text(text, encoding="utf-8")
    try:
        with serve(site) as base, launch() as browser:
            page = browser.new_page()
            open_page(page, base + scratch.relative_to(site).as_posix())
            result = page.evaluate(RESULT)
    finally:
        scratch.unlink()
    if result["bad"] or len(result["made"]) != len(formulas):
        raise SystemExit(f"typeset: MathJax does not read {result['bad']}")
    return result


def typeset(site: Path) -> int:
    """Typeset a site; how many formulas its pages have."""
    pages = {path: path.read_text(encoding="utf-8") for path in sorted(site.rglob("*.html"))}
    pages = {path: text for path, text in pages.items() if SCRIPTS.search(text)}
    found = {
        path: [(m["tag"], m["formula"]) for m in MATH.finditer(t)] for path, t in pages.items()
    }
    formulas = list(dict.fromkeys(formula for here in found.values() for formula in here))
    if not formulas:
        return 0
    result = ask_mathjax(site, next(path for path in pages if found[path]), formulas)
    made = dict(zip(formulas, map(keep_still, result["made"]), strict=True))
    style = re.sub(r'url\("[^"]*/mathjax/', 'url("', result["style"])
    script = next((site / "_static").rglob("tex-mml-chtml.js"))
    sheet = script.with_name(SHEET)
    before = sheet.read_text(encoding="utf-8") if sheet.exists() else ""  # pages built earlier
    sheet.write_text(before + style + STYLE.format_map(result), encoding="utf-8")
    for path, text in pages.items():
        text = MATH.sub(lambda m: m[1] + made[m["tag"], m["formula"]], text)
        link = "\n" + LINK.format(path=SCRIPTS.search(text)["path"]) if found[path] else ""
        path.write_text(SCRIPTS.sub(link, text), encoding="utf-8")
    script.unlink()
    return sum(map(len, found.values()))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--site", type=Path, default=ROOT / "_build" / "html")
    site = parser.parse_args(argv).site.resolve()
    if browser_path() is None:
        print("typeset: no Chromium found: MathJax typesets in the reader's browser")
        return 0
    began = time.perf_counter()
    print(f"typeset: {typeset(site)} formulas in {time.perf_counter() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
