"""Ask for every address outside that the built site links to; print those that do not answer.

A host is asked twice, the second time after a while. What answers that it knows us too well (403,
429) or is out of order (5xx) counts as being there; a page that is gone (404, 410) or a host
without a name does not.

Usage: ``python tools/linkcheck.py [--site _build/html]``.
"""

from __future__ import annotations

import argparse
import html
import os
import re
import sys
import time
import urllib.error
import urllib.request
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urldefrag

from tangle import ROOT

LINK = re.compile(r'<a\b[^>]*\bhref="(https?://[^"]+)"')
PAUSE = 10  # seconds before an address is asked again
THERE = {401, 403, 405, 429, *range(500, 600)}


def outward_links(site: Path, own: str = "") -> dict[str, list[str]]:
    """The addresses outside of a site, with the pages that link there; `own` are left out."""
    found = defaultdict(list)
    for page in sorted(site.rglob("*.html")):
        for link in set(LINK.findall(page.read_text(encoding="utf-8"))):
            address, _ = urldefrag(html.unescape(link))
            if not (own and re.search(rf"[./]{re.escape(own)}\b", address, re.IGNORECASE)):
                found[address].append(page.relative_to(site).as_posix())
    return found


def answer(address: str, tries: int = 2) -> str:
    """What is wrong with an address; nothing if it answers."""
    request = urllib.request.Request(address, headers={"User-Agent": "Mozilla/5.0 (linkcheck)"})
    fault = ""
    for attempt in range(tries):
        time.sleep(PAUSE * (attempt > 0))
        try:
            with urllib.request.urlopen(request, timeout=30):
                return ""
        except urllib.error.HTTPError as error:
            if error.code in THERE:
                return ""
            fault = f"{error.code} {error.reason}"
        except (OSError, ValueError) as error:
            fault = str(error)
    return fault


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--site", type=Path, default=ROOT / "_build" / "html")
    site = parser.parse_args(argv).site.resolve()
    if not (site / "index.html").exists():
        sys.exit(f"linkcheck: no pages in {site}: run `make book` first")
    # buttons of a published book lead to itself, which may not be published yet
    links = outward_links(site, os.environ.get("BOOK_REPOSITORY", ""))
    with ThreadPoolExecutor(8) as pool:
        answers = dict(zip(links, pool.map(answer, links), strict=True))
    faults = {address: fault for address, fault in answers.items() if fault}
    for address, fault in faults.items():
        print(f"linkcheck: {address}: {fault} (on {', '.join(links[address][:3])})")
    print(f"linkcheck: {len(links)} addresses, {len(faults)} do not answer")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
