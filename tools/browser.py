"""A site on a local port, and a headless Chromium that opens its pages when they are ready."""

from __future__ import annotations

import contextlib
import functools
import http.server
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE = 180_000  # milliseconds, on a busy machine
# Loaded, and not a page that leads to another.
ARRIVED = """() => document.readyState === 'complete'
  && !document.querySelector('meta[http-equiv=refresh]')"""
# Typeset, its pictures loaded (they wait for the reader to come near) and drawn in its fonts.
READY = """() => Promise.race([
  (async () => {
    await window.MathJax?.startup?.promise;
    await Promise.all([...document.images].map(picture => {
      picture.loading = 'eager';
      return picture.decode().catch(() => {});
    }));
    await document.fonts.ready;
  })(),
  new Promise(late => setTimeout(late, 60000)),
]).then(() => true)"""


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """Serves the site without a log; a browser that leaves a page early is no fault."""

    def log_message(self, *args) -> None:
        pass

    def copyfile(self, source, outputfile) -> None:
        with contextlib.suppress(ConnectionError):
            super().copyfile(source, outputfile)


def browser_path() -> str | None:
    """The Chromium to use: that named by ``CHROME``, or one on the path."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return os.environ.get("CHROME") or next(filter(None, map(shutil.which, names)), None)


@contextlib.contextmanager
def serve(site: Path) -> Iterator[str]:
    """The address of a site on a free port of this machine."""
    handler = functools.partial(QuietHandler, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()


@contextlib.contextmanager
def launch() -> Iterator[Browser]:
    """A headless Chromium."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path(), args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


def open_page(page: Page, url: str) -> None:
    """Load a page and wait until it is as a reader sees it."""
    page.set_default_timeout(PATIENCE)
    page.goto(url, wait_until="load")
    page.wait_for_function(ARRIVED)
    page.evaluate(READY)
