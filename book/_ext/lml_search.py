"""Sphinx extension of the book: what the search ranks its results by.

The index that Sphinx writes says which pages hold a word, not how often, nor which page explains
it. Here three things are added, and scorer.js ranks by them. One is how often each page says a word
in its text. Another is what a page is called: its address, and its title up to a colon or comma.
The third is the terms that a page defines. These are its headings up to a colon or comma, and what
stands in italics or bold, as the book does where it introduces a word. The glossary defines its
entries, and an entry with one link says that the page it leads to defines the term too.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

from docutils import nodes
from lml_api import API
from sphinx.search.en import SearchEnglish

LANGUAGE = SearchEnglish({})
INDEX = "searchindex.js"
LONGEST = 4  # words of a term
BEGINS, ENDS = "Search.setIndex(", ")"


@cache
def stem(word: str) -> str:
    """The form under which the index lists a word; empty for words that it leaves out."""
    found = LANGUAGE.stem(word).lower()
    return found if LANGUAGE.word_filter(found) else ""


def stems(text: str) -> list[str]:
    """The words of a text as the index lists them."""
    return [found for word in LANGUAGE.split(text) if (found := stem(word))]


def count_words(document) -> Counter[str]:
    """How often a page says each word in its text: code and outputs do not count."""
    said: Counter[str] = Counter()

    def visit(node) -> None:
        if isinstance(node, nodes.literal_block | nodes.raw | nodes.comment):
            return
        if isinstance(node, nodes.Text):
            said.update(stems(node.astext()))
        for child in node.children:
            visit(child)

    visit(document)
    return said


def term(text: str) -> str:
    """The stems of a term; empty for what is too long to be one."""
    words = stems(text)
    return " ".join(words) if len(words) <= LONGEST else ""


def page_names(document, docname: str) -> set[str]:
    """What a page is called: its address, and its title up to a colon or comma."""
    title = next(iter(document.findall(nodes.title)), nodes.Text("")).astext()
    address = docname.rpartition("/")[2].replace("_", " ")
    return {term(re.split("[:,]", name)[0]) for name in (title, address)} - {""}


def defined_terms(document, docname: str) -> dict[str, set[str]]:
    """Terms that a page defines, and the pages that a reader finds them on."""
    found: dict[str, set[str]] = {}
    headings = [re.split("[:,]", title.astext())[0] for title in document.findall(nodes.title)]
    words = document.findall(lambda node: isinstance(node, nodes.emphasis | nodes.strong))
    for name in [*headings[1:], *(word.astext() for word in words)]:
        found[term(name)] = {docname}
    for item in document.findall(nodes.definition_list_item):
        links = {link["reftarget"] for link in item.findall(lambda node: "reftarget" in node)}
        for name in item.findall(nodes.term):
            if name["ids"]:  # an entry of a glossary
                found[term(name.astext())] = {docname} | (links if len(links) == 1 else set())
    found.pop("", None)
    return found


class Said(NamedTuple):
    """What a page says: how often it says each word, what it is called, and what it defines."""

    words: dict[str, int]
    names: set[str]
    terms: dict[str, set[str]]


def read_page(app, document) -> None:
    """Keep what a page says, until the index is written."""
    env, name = app.env, app.env.docname
    if not hasattr(env, "lml_search"):
        env.lml_search = {}
    said = Said(dict(count_words(document)), set(), {})
    if not name.startswith(API):
        said = Said(said.words, page_names(document, name), defined_terms(document, name))
    env.lml_search[name] = said


def forget_page(app, env, docname: str) -> None:
    """Drop what a page said, which has changed or is gone."""
    getattr(env, "lml_search", {}).pop(docname, None)


def merge_pages(app, env, docnames, other) -> None:
    """Take over what another process has read."""
    env.lml_search = getattr(env, "lml_search", {}) | getattr(other, "lml_search", {})


def ranking(pages: dict[str, Said], docnames: list[str]) -> dict[str, list | dict]:
    """What is added to the index; pages are numbered as in the index.

    `lengths` holds the words of each page; `counts` how often a page says a word, where that is
    more than once; `named` the pages that are called so, and `defined` those that define a term.
    """
    number = {name: index for index, name in enumerate(docnames)}
    lengths = [0] * len(docnames)
    counts: dict[str, dict[int, int]] = {}
    named: dict[str, set[int]] = {}
    defined: dict[str, set[int]] = {}
    for page, said in pages.items():
        if page not in number:
            continue
        index = number[page]
        lengths[index] = sum(said.words.values())
        for word, times in said.words.items():
            if times > 1:
                counts.setdefault(word, {})[index] = times
        for name in said.names:
            named.setdefault(name, set()).add(index)
        for name, places in said.terms.items():
            defined.setdefault(name, set()).update(number[p] for p in places if p in number)
    return {
        "lengths": lengths,
        "counts": dict(sorted(counts.items())),
        "named": {name: sorted(places) for name, places in sorted(named.items())},
        "defined": {name: sorted(places) for name, places in sorted(defined.items())},
    }


def write_ranking(app, exception) -> None:
    """Add to the index of a built site what its results are ranked by."""
    path = Path(app.outdir, INDEX)
    if exception is not None or not path.exists():  # other builders write no index
        return
    text = path.read_text(encoding="utf-8")
    index = json.loads(text.removeprefix(BEGINS).removesuffix(ENDS))
    index |= ranking(getattr(app.env, "lml_search", {}), index["docnames"])
    text = json.dumps(index, separators=(",", ":"))
    path.write_text(f"{BEGINS}{text}{ENDS}", encoding="utf-8")


def setup(app):
    app.connect("doctree-read", read_page)
    app.connect("env-purge-doc", forget_page)
    app.connect("env-merge-info", merge_pages)
    app.connect("build-finished", write_ranking)
    return {
        "version": "1",
        "env_version": 1,
        "parallel_read_safe": True,
        "parallel_write_safe": True,
    }
