"""Open every built page in headless Chromium at desktop and phone width.

Fails on console errors, failed or off-site requests, equations that were not rendered or
are wider than the text of the desktop page, markup left raw, pictures that are missing or
have no alternative text, icons that no font has, text that moves while the page loads, sliders
and folds that keys do not reach or move, dead links and anchors, launch links to files that do not
exist, and sideways overflow; on the phone on captions that are cut, headings of three lines and
equations, code and tables that scroll without a hint; in print on what is folded. axe-core looks
for what shuts readers out: on the desktop in light and dark, and on the phone. It measures the
pages and fails where one is above its bound (tools/site_bounds.toml).

Usage: ``python tools/site_check.py [--site _build/html] [--screenshots DIR] [NAME ...]``. With
``--measure`` it prints the measures of the pages and checks nothing; with ``--tighten`` it lowers
the bounds of pages that have become shorter. Names of pages limit the check to them. The browser is
the one named by ``CHROME``, or a chromium or google-chrome on the path.
"""

from __future__ import annotations

import argparse
import functools
import gzip
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urldefrag, urljoin, urlparse

import axe_playwright_python
from browser import browser_path, launch, open_page, serve
from tangle import ROOT, toc_files

sys.path.insert(0, str(ROOT / "book" / "_ext"))  # the rules that fold

import site_bounds
from fontTools.ttLib import TTFont
from lml_cells import read_cells
from lml_folds import folds
from playwright.sync_api import Browser, ElementHandle, Page
from reading import read_book

SIZES = {"desktop": (1280, 900), "phone": (390, 844)}
SHIFT = 0.1  # of a window, by which the text of a page may move while it loads
LOADS = 3  # of a page whose text moves more
RAW = re.compile(r"\$\$|\\\(|\\\[|\{(?:eq|cite|doc|ref|numref)(?::\w+)?\}`|#\| export")
LOOK = r"""() => {
  const skip = new Set(['SCRIPT', 'STYLE', 'CODE', 'PRE', 'KBD']);
  const walker = document.createTreeWalker(
    document.querySelector('article') || document.body, NodeFilter.SHOW_TEXT, n => {
      for (let e = n.parentElement; e; e = e.parentElement)
        if (skip.has(e.tagName) || e.tagName.startsWith('MJX')) return NodeFilter.FILTER_REJECT;
      return NodeFilter.FILTER_ACCEPT;
    });
  const text = [];
  while (walker.nextNode()) text.push(walker.currentNode.data);
  const images = [...document.querySelectorAll('article img')];
  return {
    text: text.join('\\n'),
    mathErrors: document.querySelectorAll('mjx-merror, [data-mjx-error]').length,
    unrendered: [...document.querySelectorAll('.math')]
      .filter(e => !e.querySelector('mjx-container')).length,
    clipped: [...document.querySelectorAll('div.math')].filter(e => {
      const box = e.querySelector('mjx-container');
      return box && box.scrollWidth > box.clientWidth + 1;
    }).map(e => e.id),
    broken: images.filter(i => !i.naturalWidth).map(i => i.src),
    silent: images.filter(i => !i.alt).map(i => i.src),
    width: document.documentElement.scrollWidth,
    room: document.documentElement.clientWidth,
    ids: [...document.querySelectorAll('[id], a[name]')].map(e => e.id || e.name),
    links: [...document.querySelectorAll('a[href]')].map(e => e.href),
    hintless: ['div.math mjx-container', 'article :is(pre, .lml-parts, table)']
      .flatMap(wide => [...document.querySelectorAll(wide)])
      .filter(e => e.scrollWidth > e.clientWidth + 1)
      .map(e => [e, getComputedStyle(e)])
      .filter(([e, style]) => style.overflowX !== 'visible')
      .filter(([e, style]) => !style.backgroundAttachment.includes('local'))
      .map(([e]) => e.closest('div.math')?.id ?? e.textContent.trim().slice(0, 60)),
    cut: [...document.querySelectorAll('article :is(figcaption, caption)')]
      .filter(e => e.getBoundingClientRect().right > document.documentElement.clientWidth)
      .map(e => e.textContent.trim()),
    icons: [...new Set([...document.querySelectorAll('*')].flatMap(
      e => ['::before', '::after'].map(where => getComputedStyle(e, where)))
      .filter(style => style.fontFamily.includes('Font Awesome'))
      .flatMap(style => style.content.match(/[\ue000-\uf8ff]/g) || []))]
      .map(icon => icon.codePointAt(0)),
    tall: [...document.querySelectorAll('article h2')].filter(e => {
      const style = getComputedStyle(e);
      return e.getBoundingClientRect().height > 2.5 * parseFloat(style.lineHeight);
    }).map(e => e.textContent.replace('#', '').trim()),
  };
}"""
MEASURE = """() => {
  const height = e => e.getBoundingClientRect().height;
  const article = document.querySelector('article') || document.body;
  const code = [...article.querySelectorAll('div.highlight')]
    .filter(e => !e.closest('.cell_output') && e.checkVisibility());
  const pictures = [...article.querySelectorAll('img, svg, canvas')]
    .filter(e => height(e) > 60).map(e => e.getBoundingClientRect().top + scrollY);
  return {
    screens: document.documentElement.scrollHeight / innerHeight,
    code: code.reduce((sum, e) => sum + height(e), 0) / height(article),
    figure: pictures.length ? Math.min(...pictures) / innerHeight : null,
    folds: article.querySelectorAll('details.lml-fold').length,
  };
}"""
HIDDEN_IN_PRINT = """() => [...document.querySelectorAll('article details')]
  .filter(e => ![...e.children].slice(1).every(inside => inside.checkVisibility()))
  .map(e => e.querySelector('summary').textContent.trim())"""
TEXT = {".html", ".css", ".js", ".svg", ".json", ".txt"}  # a host sends them compressed


# What a reader may look for, and the page that must come first.
QUERIES = {
    "LMNN": "book/lmnn",
    "OASIS": "book/oasis",
    "soft threshold": "book/penalties",
    "dictionary": "book/dictionary",
    "triplets": "book/triplets",
    "lifelong learner": "book/lifelong",
    "errata": "book/errata",
    "catastrophic forgetting": "book/glossary",
    "PLDA": "book/plda",
    "LifelongMetricLearner": "book/api/lifelong",
    "FactoredMetric": "book/api/metrics",
    "forgetting": "book/evaluation",
    "hinge": "book/triplets",
    "save": "book/gallery/saving",
}

# Sums up how far the text moves while a page loads, and tells what moved most, when, from and to
# where.
SHIFTS = """(() => {
  window.shift = {sum: 0, most: 0, who: ''};
  const place = ({x, y, width, height}) => [x, y, width, height].map(Math.round).join(' ');
  new PerformanceObserver(list => list.getEntries().forEach(entry => {
    if (entry.hadRecentInput) return;
    shift.sum += entry.value;
    if (entry.value <= shift.most) return;
    shift.most = entry.value;
    shift.who = `after ${Math.round(entry.startTime)} ms: ` + entry.sources.map(
      ({node, previousRect, currentRect}) => `${node?.nodeName}.${node?.className ?? ''} ` +
        `(${place(previousRect)}) -> (${place(currentRect)})`).join(', ');
  })).observe({type: 'layout-shift', buffered: true});
})()"""

AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js").read_text(encoding="utf-8")
# What the theme brings along: rule, and what the element's place in the page holds.
OF_THE_THEME = {
    "region": "logo__image",  # the picture above the navigation stands in no landmark
    "color-contrast": "pst-back-to-top",  # while it fades in
}
# Leaves out what only costs time: the glyphs of a formula (hidden from readers of the screen),
# and all but the first piece of code of each color. Colors change at once.
THIN = """() => {
  const still = document.createElement('style');
  still.textContent = '* { transition: none !important; animation: none !important; }';
  document.head.append(still);
  const formulas = [...document.querySelectorAll('mjx-container > mjx-math')];
  const boxes = formulas.map(formula => formula.getBoundingClientRect());
  formulas.forEach((formula, number) => {
    const box = document.createElement('span');
    box.ariaHidden = 'true';
    const {width, height} = boxes[number];
    box.style = `display: inline-block; width: ${width}px; height: ${height}px`;
    formula.replaceWith(box);
  });
  document.querySelectorAll('mjx-assistive-mml').forEach(said => said.replaceChildren('formula'));
  const seen = new Set();
  for (const piece of document.querySelectorAll('pre > span')) {
    if (seen.has(piece.className)) piece.replaceWith(piece.textContent);
    seen.add(piece.className);
  }
  document.querySelectorAll('pre').forEach(code => code.normalize());
}"""
RUN_AXE = """async rules => {
  const only = rules ? {runOnly: rules} : {};
  const options = {resultTypes: ['violations'], preload: false, ...only};
  const {violations} = await axe.run(document, options);
  return violations.flatMap(({id, impact, help, nodes}) =>
    nodes.map(node => ({id, impact, help, html: node.html, where: node.target.join(' '),
                        why: node.failureSummary.split('\\n').slice(1).join(';')})));
}"""


@dataclass
class Tab:
    """A page of the browser, and what it asks for and complains of since it was last opened."""

    page: Page
    base: str
    faults: list[str] = field(default_factory=list)
    loaded: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.page.on("request", self.on_request)
        self.page.on("requestfailed", self.on_failure)
        self.page.on("response", self.on_response)
        self.page.on("console", self.on_console)
        self.page.on("pageerror", lambda error: self.faults.append(f"script error: {error}"))
        self.page.add_init_script(SHIFTS)

    def on_request(self, request) -> None:
        self.loaded.add(unquote(urlparse(request.url).path).lstrip("/"))
        if not request.url.startswith((self.base, "data:", "blob:", "about:")):
            self.faults.append(f"off-site request {request.url}")

    def on_failure(self, request) -> None:
        if request.failure != "net::ERR_ABORTED":  # what the last page still asked for
            self.faults.append(f"failed request {request.url}")

    def on_response(self, response) -> None:
        if response.status >= 400:
            self.faults.append(f"{response.status} for {response.url}")

    def on_console(self, message) -> None:
        if message.type == "error":
            self.faults.append(f"console: {message.text}")

    def visit(self, name: str) -> dict:
        """Open a page; what is on it.

        Text that moves because of the page moves whenever it is opened. What moves once, in a
        browser on a busy machine, is no fault of the page: such a page is opened again.
        """
        self.faults.clear()
        for _ in range(LOADS):
            self.loaded.clear()
            open_page(self.page, urljoin(self.base, name))
            shift = self.page.evaluate("window.shift")
            if shift["sum"] <= SHIFT:
                break
        return self.page.evaluate(LOOK) | {"shift": shift}


def open_tab(browser: Browser, size: str, base: str) -> Tab:
    """A window of this size."""
    width, height = SIZES[size]
    return Tab(browser.new_page(viewport={"width": width, "height": height}), base)


def unreached(page: Page, element: ElementHandle) -> bool:
    """Whether the tabulator key does not lead to an element, or shows nothing there."""
    element.focus()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")
    return not element.evaluate(
        "e => e === document.activeElement && getComputedStyle(e).outlineStyle !== 'none'"
    )


def slider_faults(page: Page) -> list[str]:
    """Pictures with a slider that keys do not reach or move, or that show several drawings."""
    faults = []
    for number, box in enumerate(page.query_selector_all(".lml-slider")):
        slider = box.query_selector("input")
        if slider is None:
            faults.append(f"picture {number} with drawings has no slider")
            continue
        said = []
        for key in ("Home", "ArrowRight", "End"):
            slider.press(key)
            said.append(box.query_selector("p").inner_text())
        shown = box.query_selector_all("svg > g[data-label]:not([display=none])")
        if len(set(said)) < 3 or [d.get_attribute("data-label") for d in shown] != said[-1:]:
            faults.append(f"slider {number} does not follow the keys: {said}")
        if unreached(page, slider):
            faults.append(f"no key leads to slider {number}")
    return faults


def fold_faults(page: Page) -> list[str]:
    """Whether keys lead to the first fold of a page, open it and close it again."""
    summary = page.query_selector("article details > summary")
    if summary is None or not summary.is_visible():
        return []
    title = summary.inner_text()
    if unreached(page, summary):
        return [f"no key leads to the fold {title!r}"]
    states = [summary.evaluate("e => e.parentElement.open")]
    for _ in range(2):
        page.keyboard.press("Enter")
        states.append(summary.evaluate("e => e.parentElement.open"))
    return [] if states[0] == states[2] != states[1] else [f"keys do not open the fold {title!r}"]


def axe_faults(page: Page, rules: list[str] | None = None) -> list[str]:
    """What axe-core objects to, but for what the theme brings along."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(THIN)
        page.evaluate(AXE)
    found: dict[str, list[dict]] = {}
    for node in page.evaluate(RUN_AXE, rules):
        if OF_THE_THEME.get(node["id"], node["html"] + "?") not in node["html"]:
            found.setdefault(node["id"], []).append(node)
    return [
        f"axe: {rule} ({nodes[0]['impact']}), {len(nodes)} places: {nodes[0]['help']}; "
        f"{nodes[0]['where']}: {' '.join(nodes[0]['why'].split())}"
        for rule, nodes in found.items()
    ]


def dark_faults(page: Page) -> list[str]:
    """What axe-core objects to in the dark; only colors differ."""
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    return [f"in the dark: {fault}" for fault in axe_faults(page, ["color-contrast"])]


def page_faults(seen: dict) -> list[str]:
    """What is wrong with one page as it stands in the browser."""
    faults = [f"raw markup {match!r}" for match in sorted(set(RAW.findall(seen["text"])))]
    moved = seen["shift"]
    if moved["sum"] > SHIFT:
        faults.append(
            f"the text moves by {moved['sum']:.2f} of the window while the page loads: "
            f"{moved['who']}"
        )
    if seen["mathErrors"] or seen["unrendered"]:
        faults.append(f"{seen['mathErrors']} bad and {seen['unrendered']} unrendered equations")
    if seen["room"] > SIZES["phone"][0]:  # on a phone a wide equation scrolls inside its box
        faults += [f"equation wider than the text: {name}" for name in seen["clipped"]]
    if seen["width"] > seen["room"]:
        faults.append(f"sideways overflow: {seen['width']} in a window of {seen['room']}")
    faults += [f"missing picture {src}" for src in seen["broken"]]
    faults += [f"picture without alternative text {src}" for src in seen["silent"]]
    return faults


def phone_faults(seen: dict) -> list[str]:
    """What is wrong with one page on a phone only."""
    faults = [f"wide without a hint that it scrolls: {name}" for name in seen["hintless"]]
    faults += [f"caption is cut: {text}" for text in seen["cut"]]
    return faults + [f"heading of three lines: {text}" for text in seen["tall"]]


def print_faults(page: Page) -> list[str]:
    """What is folded and would be missing on paper."""
    page.emulate_media(media="print")
    hidden = page.evaluate(HIDDEN_IN_PRINT)
    page.emulate_media(media="screen")
    return [f"not printed: {title}" for title in hidden]


@functools.cache
def icons_drawn(site: Path) -> set[int]:
    """What the icon fonts of a site can draw."""
    fonts = [TTFont(path) for path in site.rglob("webfonts/*.woff2")]
    return {code for font in fonts for code in font.getBestCmap() or ()}


def icon_faults(seen: dict, site: Path) -> list[str]:
    """Icons of a page that are in no font."""
    return [
        f"no font has the icon {code:x}" for code in sorted({*seen["icons"]} - icons_drawn(site))
    ]


@functools.cache
def sent_bytes(path: Path) -> int:
    """Bytes of a file as a host sends it."""
    content = path.read_bytes()
    return len(gzip.compress(content)) if path.suffix in TEXT else len(content)


def measure(tab: Tab, name: str, site: Path) -> dict[str, Any]:
    """The measures of a page that is open: lengths, code, figure, folds, kilobytes."""
    seen = tab.page.evaluate(MEASURE)
    sent = {file: sent_bytes(site / file) for file in tab.loaded if (site / file).is_file()}
    notebook = ROOT / f"{name}.ipynb"
    cells = []
    if notebook.exists():
        cells = [cell for cell in read_cells(notebook, name) if cell]
    kind = cells[0].kind if cells else site_bounds.kind_of_text(name)
    found = [folds(cell) for cell in cells]
    own = sum(size for file, size in sent.items() if not file.startswith("_static/"))
    return seen | {
        "kind": kind,
        "cells": len(cells),
        "folded_cells": sum(map(bool, found)),
        "asked_folds": sum(map(len, found)),
        "own_kB": own / 1000,
        "all_kB": sum(sent.values()) / 1000,
    }


FOUND = "document.querySelector('.search-summary')?.textContent.startsWith('Search finished')"


def search_faults(page: Page, base: str) -> list[str]:
    """Queries that the right page does not answer first; excerpts with markup."""
    faults = []
    for query, answer in QUERIES.items():
        open_page(page, urljoin(base, f"search.html?q={quote(query)}"))
        page.wait_for_function(FOUND)
        page.wait_for_load_state("networkidle")  # the excerpts
        first = page.query_selector("#search-results li > a")
        found = first.get_attribute("href").partition(".html")[0] if first else "nothing"
        if found != answer:
            faults.append(f"{query!r} finds {found} first, not {answer}")
        for said in page.query_selector_all("#search-results .context"):
            if raw := RAW.search(said.inner_text()):
                faults.append(f"{query!r}: an excerpt shows {raw[0]!r}")
    return faults


def link_faults(links: dict[str, list[str]], ids: dict[str, set[str]], base: str, site: Path):
    """Dead internal links and anchors, and launch links to files that are not there."""
    for page, targets in links.items():
        for link in sorted(set(targets)):
            address, anchor = urldefrag(link)
            if not address.startswith(base):
                launch = re.search(
                    r"(?:urlpath=\S*?|blob/[\w.-]+/)(book/[\w./%-]+\.ipynb)", unquote(link)
                )
                if launch and not (ROOT / launch[1]).exists():
                    yield page, f"launch link to {launch[1]}, which is not in the repository"
                continue
            path = unquote(urlparse(address).path).lstrip("/") or "index.html"
            if not (site / path).exists():
                yield page, f"dead link {link}"
            elif anchor and path in ids and unquote(anchor) not in ids[path] | {"top"}:
                yield page, f"dead anchor {link}"


@dataclass
class Report:
    """What is found on the pages of a site."""

    measured: dict[str, dict[str, Any]] = field(default_factory=dict)
    faults: list[tuple[str, str]] = field(default_factory=list)
    ids: dict[str, set[str]] = field(default_factory=dict)
    links: dict[str, list[str]] = field(default_factory=dict)

    def add(self, other: Report) -> None:
        self.measured |= other.measured
        self.faults += other.faults
        self.ids |= other.ids
        self.links |= other.links


def check_page(tabs: dict[str, Tab], name: str, site: Path, shots: Path | None) -> Report:
    """Open one page in each window, and look."""
    report = Report()
    for size, tab in tabs.items():
        seen = tab.visit(f"{name}.html")
        report.ids[f"{name}.html"], report.links[f"{name}.html"] = set(seen["ids"]), seen["links"]
        if shots:
            tab.page.screenshot(path=shots / f"{Path(name).stem}-{size}.png", full_page=True)
        found = page_faults(seen) + icon_faults(seen, site)
        if size == "phone":
            found += phone_faults(seen) + slider_faults(tab.page) + axe_faults(tab.page)
        else:
            report.measured[name] = measure(tab, name, site)
            found += print_faults(tab.page) + slider_faults(tab.page) + fold_faults(tab.page)
            found += axe_faults(tab.page) + dark_faults(tab.page)
        report.faults += [(f"{name}.html ({size})", fault) for fault in [*tab.faults, *found]]
    return report


def check_pages(names: list[str], base: str, site: Path, shots: Path | None) -> Report:
    """Look at these pages, one after another, in a browser of their own."""
    report = Report()
    with launch() as browser:
        tabs = {size: open_tab(browser, size, base) for size in SIZES}
        for name in names:
            report.add(check_page(tabs, name, site, shots))
        if "search" in names:
            faults = search_faults(tabs["desktop"].page, base)
            report.faults += [("search.html", fault) for fault in faults]
    return report


def measure_pages(names: list[str], base: str, site: Path) -> Report:
    """Measure these pages and check nothing."""
    report = Report()
    with launch() as browser:
        tab = open_tab(browser, "desktop", base)
        for name in names:
            tab.visit(f"{name}.html")
            report.measured[name] = measure(tab, name, site)
    return report


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="pages to check, as book/oasis; all by default")
    parser.add_argument("--site", type=Path, default=ROOT / "_build" / "html")
    parser.add_argument("--screenshots", type=Path)
    parser.add_argument("--measure", action="store_true", help="print the measures, check nothing")
    parser.add_argument("--tighten", action="store_true", help="lower the bounds, check nothing")
    parser.add_argument("--jobs", type=int, default=2, help="browsers at once")
    options = parser.parse_args(argv)
    began = time.perf_counter()
    site = options.site.resolve()
    pages = sorted(p.relative_to(site).with_suffix("").as_posix() for p in site.rglob("*.html"))
    pages = [name for name in pages if not name.startswith(("_", "lite/"))]  # lite_check.py
    chapters = [file for file, _ in toc_files(ROOT)]
    if not pages:
        sys.exit(f"site-check: no pages in {site}: run `make book` first")
    if browser_path() is None:
        sys.exit("site-check: no Chromium found: install one or name it in CHROME")
    only_measure = options.measure or options.tighten
    names = options.names or (chapters if only_measure else pages)
    if options.screenshots:
        options.screenshots.mkdir(parents=True, exist_ok=True)
    report = Report()
    with serve(site) as base, ThreadPoolExecutor(options.jobs) as pool:
        for part in [
            pool.submit(measure_pages, names[job :: options.jobs], base, site)
            if only_measure
            else pool.submit(
                check_pages, names[job :: options.jobs], base, site, options.screenshots
            )
            for job in range(options.jobs)
        ]:
            report.add(part.result())
    bounds = site_bounds.read_bounds()
    book = read_book(ROOT, bounds["book"]["method"])
    measured = {name: report.measured[name] for name in chapters if name in report.measured}
    if only_measure:
        print(site_bounds.table(measured, book))
        if options.tighten:
            site_bounds.write_bounds(site_bounds.tightened(measured, book, bounds))
        return 0
    faults = report.faults
    if not options.names:
        faults += site_bounds.bound_faults(measured, book, bounds)
        faults += list(link_faults(report.links, report.ids, base, site))
    for where, fault in faults:
        print(f"site-check: {where}: {fault}")
    seconds = time.perf_counter() - began
    print(f"site-check: {len(names)} pages in {seconds:.0f} s, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="backslashreplace")
    sys.stderr.reconfigure(errors="backslashreplace")
    sys.exit(main())
