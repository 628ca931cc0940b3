"""Open every built page in headless Chromium at desktop and phone width.

Fails on console errors, failed or off-site requests, equations that were not rendered or
are wider than the text of the desktop page, markup left raw, pictures that are missing or
have no alternative text, icons that no font has, sliders that keys do not move, dead links and
anchors, launch links to files that do not exist, and sideways overflow; on the phone on captions
that are cut, headings of three lines and wide equations without a hint that they scroll; in print
on what is folded. It measures the pages and fails where one is above its bound
(tools/site_bounds.toml).

Usage: ``python tools/site_check.py [--site _build/html] [--screenshots DIR]``. With ``--measure``
it prints the measures of the pages and checks nothing; with ``--tighten`` it lowers the
bounds of pages that have become shorter. The browser is the one named by ``CHROME``, or a
chromium or google-chrome on the path.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gzip
import http.server
import os
import re
import shutil
import sys
import threading
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urldefrag, urljoin, urlparse

from tangle import ROOT, toc_files

sys.path.insert(0, str(ROOT / "book" / "_ext"))  # the rules that fold

import site_bounds
from fontTools.ttLib import TTFont
from lml_cells import read_cells
from lml_folds import folds
from playwright.sync_api import Page, sync_playwright
from reading import read_book

SIZES = {"desktop": (1280, 900), "phone": (390, 844)}
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
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
    hintless: [...document.querySelectorAll('div.math mjx-container')]
      .filter(e => e.scrollWidth > e.clientWidth + 1)
      .filter(e => !getComputedStyle(e).backgroundAttachment.includes('local'))
      .map(e => e.closest('div.math').id),
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
READY = """promise => Promise.race(
  [eval(promise), new Promise(late => setTimeout(late, 60000))]).then(() => true)"""
TEXT = {".html", ".css", ".js", ".svg", ".json", ".txt"}  # a host sends them compressed


# What a reader may look for, and the page that answers.
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
}

LOAD_PICTURES = """() => Promise.all([...document.images].map(i => {
  i.loading = 'eager';
  return i.decode().catch(() => {});
}))"""


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """Serves the site without a log; a browser that leaves a page early is no fault."""

    def log_message(self, *args) -> None:
        pass

    def copyfile(self, source, outputfile) -> None:
        with contextlib.suppress(ConnectionError):
            super().copyfile(source, outputfile)


def browser_path() -> str:
    """The Chromium to use; a clear message when there is none."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = os.environ.get("CHROME") or next(filter(None, map(shutil.which, names)), None)
    if found is None:
        sys.exit("site-check: no Chromium found: install one or name it in CHROME")
    return found


def visit(page: Page, url: str, base: str) -> tuple[dict, list[str]]:
    """Load one page; what is on it, and what went wrong while it loaded."""
    faults: list[str] = []

    def on_request(request) -> None:
        if not request.url.startswith((base, "data:", "blob:", "about:")):
            faults.append(f"off-site request {request.url}")

    def on_response(response) -> None:
        if response.status >= 400:
            faults.append(f"{response.status} for {response.url}")

    def on_console(message) -> None:
        if message.type == "error":
            faults.append(f"console: {message.text}")

    handlers = {
        "request": on_request,
        "response": on_response,
        "console": on_console,
        "pageerror": lambda error: faults.append(f"script error: {error}"),
        "requestfailed": lambda request: faults.append(f"failed request {request.url}"),
    }
    for event, handler in handlers.items():
        page.on(event, handler)
    page.goto(url, wait_until="networkidle")  # lets the redirect of the front page happen
    page.evaluate(READY, "window.MathJax?.startup?.promise")
    page.wait_for_timeout(100)
    page.evaluate(READY, "document.fonts.ready")  # or they abort
    page.evaluate(LOAD_PICTURES)
    seen = page.evaluate(LOOK)
    for event, handler in handlers.items():
        page.remove_listener(event, handler)
    return seen, faults


def slider_faults(page: Page) -> list[str]:
    """Pictures with a slider that keys do not move, or that show more than one drawing."""
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
    return faults


def page_faults(seen: dict) -> list[str]:
    """What is wrong with one page as it stands in the browser."""
    faults = [f"raw markup {match!r}" for match in sorted(set(RAW.findall(seen["text"])))]
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
    faults = [f"wide equation without a hint that it scrolls: {name}" for name in seen["hintless"]]
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


def measure(page: Page, name: str, url: str, base: str, site: Path) -> dict[str, Any]:
    """The measures of a page at its first visit: lengths, code, figure, folds, kilobytes."""
    loaded: set[str] = set()

    def on_request(request) -> None:
        loaded.add(unquote(urlparse(request.url).path).lstrip("/"))

    page.on("request", on_request)
    visit(page, url, base)
    seen = page.evaluate(MEASURE)
    page.remove_listener("request", on_request)
    sent = {file: sent_bytes(site / file) for file in loaded if (site / file).is_file()}
    notebook = ROOT / f"{name}.ipynb"
    cells, kind = [], None
    if notebook.exists():
        cells = [cell for cell in read_cells(notebook, name) if cell]
        kind = cells[0].kind if cells else None
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


def search_faults(page: Page, base: str) -> list[str]:
    """Queries that the right page does not answer among the first three; excerpts with markup."""
    faults = []
    for query, answer in QUERIES.items():
        page.goto(urljoin(base, f"search.html?q={quote(query)}"), wait_until="networkidle")
        links = page.query_selector_all("#search-results li > a")[:3]
        found = [link.get_attribute("href").partition(".html")[0] for link in links]
        if answer not in found:
            faults.append(f"{query!r} finds {found or 'nothing'} first, not {answer}")
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


def serve(site: Path) -> http.server.ThreadingHTTPServer:
    """A server of the site on a free port."""
    handler = functools.partial(QuietHandler, directory=str(site))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--site", type=Path, default=ROOT / "_build" / "html")
    parser.add_argument("--screenshots", type=Path)
    parser.add_argument("--measure", action="store_true", help="print the measures, check nothing")
    parser.add_argument("--tighten", action="store_true", help="lower the bounds, check nothing")
    options = parser.parse_args(argv)
    site = options.site.resolve()
    pages = sorted(p.relative_to(site).as_posix() for p in site.rglob("*.html"))
    pages = [p for p in pages if not p.startswith(("_", "lite/"))]  # the app: lite_check.py
    if not pages:
        sys.exit(f"site-check: no pages in {site}: run `make book` first")
    server = serve(site)
    base = f"http://127.0.0.1:{server.server_address[1]}/"
    bounds = site_bounds.read_bounds()
    book = read_book(ROOT, bounds["book"]["method"])
    measured = {}
    faults: list[tuple[str, str]] = []
    ids, links = {}, {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path(), args=FLAGS)
        width, height = SIZES["desktop"]
        page = browser.new_page(viewport={"width": width, "height": height})
        for file in toc_files(ROOT):
            name = file[0]
            measured[name] = measure(page, name, urljoin(base, f"{name}.html"), base, site)
            faults += [(f"{name}.html (print)", fault) for fault in print_faults(page)]
        page.close()
        if not (options.measure or options.tighten):
            page = browser.new_page()
            faults += [("search.html", fault) for fault in search_faults(page, base)]
            page.close()
        for size, (width, height) in SIZES.items():
            if options.measure or options.tighten:
                break
            page = browser.new_page(viewport={"width": width, "height": height})
            for name in pages:
                seen, loading = visit(page, urljoin(base, name), base)
                ids[name], links[name] = set(seen["ids"]), seen["links"]
                found = loading + page_faults(seen) + slider_faults(page) + icon_faults(seen, site)
                found += phone_faults(seen) if size == "phone" else []
                faults += [(f"{name} ({size})", fault) for fault in found]
                if options.screenshots:
                    options.screenshots.mkdir(parents=True, exist_ok=True)
                    shot = options.screenshots / f"{Path(name).stem}-{size}.png"
                    page.screenshot(path=shot, full_page=True)
            page.close()
        browser.close()
    server.shutdown()
    if options.measure or options.tighten:
        print(site_bounds.table(measured, book))
        if options.tighten:
            site_bounds.write_bounds(site_bounds.tightened(measured, book, bounds))
        return 0
    faults += site_bounds.bound_faults(measured, book, bounds)
    faults += list(link_faults(links, ids, base, site))
    for where, fault in faults:
        print(f"site-check: {where}: {fault}")
    print(f"site-check: {len(pages)} pages at {len(SIZES)} widths, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="backslashreplace")
    sys.stderr.reconfigure(errors="backslashreplace")
    sys.exit(main())
