"""Bounds of the pages: what fails, what shrinks, and what is counted in the text."""

from __future__ import annotations

import json

import pytest
import reading
import site_bounds
from tangle import ROOT

BOUNDS = {
    "book": {"method": "book/b", "long_sentences": 3, "words_before_method": 100},
    "bounds": {"screens": {"story": 12}, "code": {"story": 0.4}, "figure": {"story": 2}},
    "above": {"screens": {"book/b": 20.0}},
}
TEXT = {"words": 500, "long_sentences": 3, "words_before_method": 100}


def seen(**measures):
    usual = dict.fromkeys(site_bounds.MEASURES, 0.0)
    return usual | {"kind": "story", "folds": 2, "asked_folds": 2} | measures


def faults(pages, book=TEXT, bounds=BOUNDS):
    return list(site_bounds.bound_faults({"book/b": seen()} | pages, book, bounds))


@pytest.mark.parametrize(
    ("page", "measures", "said"),
    [
        ("a", {"screens": 14.0}, "14.0 screens; at most 12.0 screens"),
        ("book/b", {"screens": 21.0}, "21.0 screens; at most 20.0 screens"),
        ("a", {"code": 0.5}, "50% of its height is code; at most 40% of its height is code"),
        ("a", {"figure": 3.0}, "first figure after 3.0 screens"),
        ("a", {"folds": 0}, "0 folds, but the rules ask for 2"),
    ],
)
def test_a_page_above_its_bound_is_a_fault(page, measures, said):
    [(where, fault)] = faults({page: seen(**measures)})
    assert where == page
    assert said in fault


def test_pages_within_their_bounds_and_kinds_without_one_pass():
    assert (
        faults({"a": seen(screens=12.2, code=0.4, figure=None), "book/b": seen(screens=20)}) == []
    )
    assert faults({"api": seen(kind=None, screens=229.0)}) == []


@pytest.mark.parametrize(
    ("page", "kind", "measures", "said"),
    [
        ("book/index", "front", {"all_kB": 420.0}, "420 kB with what pages share; at most 400 kB"),
        ("book/api/metrics", "api", {"screens": 16.0}, "16.0 screens; at most 15.0 screens"),
        ("book/api", "api", {"own_kB": 60.0}, "60 kB of its own; at most 50 kB"),
        ("book/glossary", "list", {"all_kB": 520.0}, "520 kB with what pages share"),
    ],
)
def test_pages_that_are_no_notebooks_have_bounds_in_the_book(page, kind, measures, said):
    assert site_bounds.kind_of_text(page) == kind
    bounds = {**site_bounds.read_bounds(), "above": {}}
    [(_, fault)] = site_bounds.bound_faults({page: seen(kind=kind, **measures)}, TEXT, bounds)
    assert said in fault


def test_more_long_sentences_and_words_before_the_method_are_faults():
    said = [fault for _, fault in faults({}, {**TEXT, "long_sentences": 4})]
    assert said == ["4 sentences of more than 40 words; at most 3"]
    assert "at most 100" in faults({}, {**TEXT, "words_before_method": 101})[0][1]


def test_a_bound_of_a_page_that_is_gone_is_a_fault():
    said = list(site_bounds.bound_faults({}, TEXT, BOUNDS))
    assert said == [
        ("book/b", "site_bounds.toml names it under screens, but there is no such page")
    ]


def test_bounds_shrink_and_never_grow(tmp_path):
    book = {"words": 1, "long_sentences": 5, "words_before_method": 90}
    pages = {"book/b": seen(screens=25.0), "new": seen(screens=15.0), "short": seen(screens=3)}
    bounds = site_bounds.tightened(pages, book, BOUNDS)
    assert bounds["above"] == {"screens": {"book/b": 20.0, "new": 15.0}}
    assert bounds["book"] == {"method": "book/b", "long_sentences": 3, "words_before_method": 90}
    assert site_bounds.tightened({"book/b": seen(screens=11)}, book, BOUNDS)["above"] == {}
    path = tmp_path / "bounds.toml"
    path.write_text("# Why.\n\n[book]\n")
    site_bounds.write_bounds(bounds, path)
    assert path.read_text().startswith("# Why.\n\n[book]\n")
    assert site_bounds.read_bounds(path) == bounds


def test_the_table_has_a_line_for_each_page():
    page = seen(figure=None, folded_cells=1, cells=3)
    said = site_bounds.table({"book/b": page, "book/c": page}, TEXT).split("\n")
    assert len(said) == 4
    assert said[1].split() == ["b", "story", "0.0", "0%", "-", "1/3", "0", "0"]
    assert "2 of 6 cells" in said[-1]


def test_the_bounds_of_the_book_name_pages_of_it_and_its_text_keeps_them():
    bounds = site_bounds.read_bounds()
    for above in bounds.get("above", {}).values():
        assert set(above) <= set(reading.pages(ROOT))
    text = reading.read_book(ROOT, bounds["book"]["method"])
    for measure in site_bounds.BOOK:
        assert text[measure] <= bounds["book"][measure], measure


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("One thing. Another thing.", ["One thing.", "Another thing."]),
        ("By eq. (1), i.e. at once, it holds.", ["By eq (1), ie at once, it holds."]),
        ("It is $a. B$ here. `x` is two.", ["It is X here.", "X is two."]),
        ("# A heading\n\nSay [this link](that.ipynb) {cite}`one`.", ["Say this link X."]),
        ("It is\n\n$$ x = 1. Y $$ (toy-x)\n\nand so on.", ["It is", "and so on."]),
        ("- one item\n- another\n  goes on", ["one item", "another goes on"]),
        ("| a | b |\n\n```python\nx = 1\n```\n\nText.", ["Text."]),
        (":::{admonition} Title\n:class: exercise\n\nProve it.\n:::", ["Prove it."]),
        (":::{figure} x.png\n:alt: words and words\n\nA caption.\n:::\nText.", ["Text."]),
    ],
)
def test_sentences_of_a_page(text, said):
    assert reading.sentences(text) == said


def test_words_of_the_book_in_its_order(tmp_path):
    (tmp_path / "_toc.yml").write_text(
        "format: jb-book\nroot: index\nparts:\n- chapters: [{file: one}, {file: two}]\n"
    )
    (tmp_path / "index.md").write_text("# A book\n\nThree words here.\n")
    cells = [
        {"cell_type": "markdown", "source": [" ".join(["word"] * 41)]},
        {"cell_type": "code", "source": ["x = 1"]},
    ]
    (tmp_path / "one.ipynb").write_text(json.dumps({"cells": cells}))
    (tmp_path / "two.md").write_text("Two words.\n")
    read = reading.read_book(tmp_path, "two")
    assert read == {"words": 46, "long_sentences": 1, "words_before_method": 44}
    assert reading.read_book(tmp_path, "one")["words_before_method"] == 3
    with pytest.raises(ValueError, match="'three', which shows the method, is not in _toc"):
        reading.read_book(tmp_path, "three")
