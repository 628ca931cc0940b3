"""Draw the picture that is shown where somebody shares the address of the book.

It is the figure of the front page beside the book's title, as book/_static/share.png. Draw it anew
when `tools/front.py` has drawn the figure anew.

Usage: ``python tools/share.py``.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

from browser import browser_path, launch
from PIL import Image
from tangle import ROOT

STATIC = ROOT / "book" / "_static"
WIDTH, HEIGHT = 1200, 630
COLORS = 64
CARD = """<style>
  body {{ margin: 0; background: #fff; color: #222; font-family: sans-serif; }}
  div {{ display: flex; align-items: center; gap: 30px; height: 630px; padding: 0 40px; }}
  section {{ flex: 0 0 400px; }}
  h1 {{ font-size: 50px; line-height: 1.15; margin: 24px 0; }}
  p {{ font-size: 26px; line-height: 1.4; margin: 0; }}
  svg {{ width: 100%; height: auto; }}
</style>
<div><section><h1>Lifelong metric learning</h1><p>Better with every task, without the old data: a
book whose cells are the package.</p></section>{figure}</div>"""


def draw(file: Path) -> None:
    """Write the picture in few colors."""
    figure = (STATIC / "front.svg").read_text(encoding="utf-8")
    with launch() as browser:
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.set_content(CARD.format(figure=figure))
        shot = page.screenshot()
    picture = Image.open(io.BytesIO(shot)).convert("RGB")
    picture.quantize(COLORS, dither=Image.Dither.NONE).save(file, optimize=True)


def main() -> int:
    if browser_path() is None:
        sys.exit("share: no Chromium found: install one or name it in CHROME")
    draw(STATIC / "share.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
