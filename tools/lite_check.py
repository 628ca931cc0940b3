"""Open the app beside the built book in headless Chromium, from the links of the pages.

Nothing off the site is reached: the link has to say so, and the app has to open all the same, with
the chapter's cells and without a broken formula. If the site holds a kernel of its own (`make
lite-trial`), the kernel has to start and to install the package. Without an app there is nothing to
check.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from urllib.parse import urljoin

from browser import PATIENCE, browser_path, launch, serve
from playwright.sync_api import Browser, Page, TimeoutError
from tangle import ROOT

PAGES = ("book/gallery/pairs", "book/oasis")
LINK = ".lml-lite a[data-host]"
SAID = ".lml-lite strong"
CELL = ".jp-Notebook .jp-Cell"
OUTPUT = ".jp-CodeCell .jp-OutputArea-output"
STARTED = """() => document.querySelector('.jp-Notebook-ExecutionIndicator')?.dataset.status
  === 'idle'"""
TRIAL = """import piplite

await piplite.install("lifelong-metric-learning", deps=False)
import importlib.metadata, importlib.util

print(importlib.util.find_spec("lml").name, importlib.metadata.version("lifelong-metric-learning"))
"""
SECONDS = 1000  # of Playwright's milliseconds


def open_app(page: Page, base: str, name: str) -> list[str]:
    """Follow the link of a page into the app; what went wrong."""
    page.goto(urljoin(base, f"{name}.html"))
    link = page.query_selector(LINK)
    if link is None:
        return ["no link to the app"]
    link.click()
    try:
        said = page.wait_for_selector(SAID).inner_text()
    except TimeoutError:
        return ["the link does not say that Python cannot be reached"]
    if "cannot be reached" not in said:
        return [f"the link says {said!r}"]
    page.goto(link.evaluate("link => link.href"))
    try:
        page.wait_for_selector(CELL)
        page.wait_for_selector(f"{CELL} h1")
    except TimeoutError:
        return ["the app does not open the chapter"]
    page.wait_for_timeout(2 * SECONDS)
    broken = page.query_selector_all("mjx-merror, [data-mjx-error]")
    return [f"{len(broken)} broken formulas"] if broken else []


def start_kernel(page: Page) -> list[str]:
    """Let the kernel install the package; what went wrong."""
    try:
        page.wait_for_function(STARTED, timeout=240 * SECONDS)
    except TimeoutError:
        return ["the kernel does not start"]
    page.click(".jp-CodeCell .cm-content")
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(TRIAL)
    page.keyboard.press("Control+Enter")
    try:
        said = page.wait_for_selector(OUTPUT).inner_text()
    except TimeoutError:
        return ["the kernel does not install the package"]
    print(f"lite-check: the kernel says {said!r}")
    return [] if said.startswith("lml ") else ["the kernel cannot find the package"]


def check(browser: Browser, base: str, kernel: bool) -> list[tuple[str, str]]:
    """The faults of the pages that are tried."""
    faults = []
    for name in PAGES:
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        context.route(lambda url: not url.startswith(base), lambda route: route.abort())
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        found = open_app(page, base, name)
        if kernel and not found:
            found = start_kernel(page)
        faults += [(name, fault) for fault in found]
        context.close()
    return faults


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--site", type=Path, default=ROOT / "_build" / "html")
    options = parser.parse_args(argv)
    site = options.site.resolve()
    if not (site / "lite").exists():
        print("lite-check: there is no app beside the book")
        return 0
    kernel = (site / "lite" / "static" / "pyodide").exists()
    if browser_path() is None:
        sys.exit("lite-check: no Chromium found: install one or name it in CHROME")
    with serve(site) as base, launch() as browser:
        faults = check(browser, base, kernel)
    for where, fault in faults:
        print(f"lite-check: {where}: {fault}")
    tried = "its own kernel started" if kernel else "no kernel was started"
    print(f"lite-check: {len(PAGES)} chapters opened, {tried}, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
