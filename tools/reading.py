"""Measures of the book as a text: its words, its long sentences, the words before the method."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tangle import toc_files

LONG = 40  # words of a sentence that is too long
DROPPED = re.compile(
    r"^```.*?^```"  # listings and directives
    r"|\$\$.*?\$\$(?:[ ]*\([\w:-]+\))?"  # displayed formulas
    r"|^:::+[ ]*\{(?:bibliography|figure|image)\}.*?^:::+"
    r"|^[ ]*:[\w-]+:.*?$"  # options of directives
    r"|^[ ]*:::+.*?$"  # what begins and ends a box
    r"|^[ ]*[|#>%].*?$",  # tables, headings, quotations, comments
    re.DOTALL | re.MULTILINE,
)
ROLE = re.compile(r"\{[\w:-]+\}`[^`]*`|\$[^$]+\$|`[^`]+`")  # a word each
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
ITEM = re.compile(r"^[ ]*(?:[-*+]|\d+\.)[ ]+", re.MULTILINE)
ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|cf|eqs?|sec|fig|vs|no)\.(?=\s)", re.IGNORECASE)
END = re.compile(r"(?<=[.!?])[\"')\]*_]*\s+(?=[\"'(\[*_`]*[A-Z0-9])|\n[ ]*\n")


def prose(text: str) -> str:
    """What is read of a page's markdown, a formula or a reference as one word."""
    text = ROLE.sub("X", DROPPED.sub("\n\n", text))
    return ITEM.sub("\n\n", LINK.sub(r"\1", text))


def sentences(text: str) -> list[str]:
    """Sentences of a page's markdown; an item of a list begins one."""
    text = ABBREVIATION.sub(lambda m: m[0].replace(".", ""), prose(text))
    return [" ".join(s.split()) for s in END.split(text) if re.search(r"\w", s)]


def markdown(path: Path) -> str:
    """The markdown of a page, which is a notebook or a markdown file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".ipynb":
        return text
    cells = json.loads(text)["cells"]
    return "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")


def pages(root: Path) -> dict[str, Path]:
    """Files of the book in reading order, by their names."""
    found = {}
    for file, _ in toc_files(root):
        notebook = root / f"{file}.ipynb"
        found[file] = notebook if notebook.exists() else root / f"{file}.md"
    return found


def read_book(root: Path, method: str) -> dict[str, int]:
    """Words, sentences that are too long, and words of the pages before the page `method`."""
    words = long_sentences = before = 0
    met = False
    for name, path in pages(root).items():
        met = met or name == method
        lengths = [len(s.split()) for s in sentences(markdown(path))]
        words += sum(lengths)
        long_sentences += sum(n > LONG for n in lengths)
        before += 0 if met else sum(lengths)
    if not met:
        raise ValueError(f"the page {method!r}, which shows the method, is not in _toc.yml")
    return {"words": words, "long_sentences": long_sentences, "words_before_method": before}
