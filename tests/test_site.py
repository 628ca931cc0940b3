"""The Sphinx extension of the book: what it makes of docstrings."""

from __future__ import annotations

from typing import NamedTuple

import lml_cells
import pytest
from docutils import nodes


def rendered(text):
    lines = text.split("\n")
    lml_cells.keep_mathematics(None, "function", "f", None, None, lines)
    lml_cells.link_derivations(None, "function", "f", None, None, lines)
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("said", "linked"),
    [
        (
            "Derived in chapter 7 (oasis), eq. (oasis-update).",
            "Derived in :doc:`chapter 7 </book/oasis>` (oasis), eq. :eq:`oasis-update`.",
        ),
        (
            "Derived in chapter 7\n(oasis), eqs. (oasis-a),\n(oasis-b) and (oasis-c), see (d).",
            "Derived in :doc:`chapter 7\n</book/oasis>` (oasis), eqs. :eq:`oasis-a`,\n"
            ":eq:`oasis-b` and :eq:`oasis-c`, see (d).",
        ),
        (
            "Derived in chapter 1 (a), eq. (a-x); chapter 2 (b), eq. (b-y).\n\neq. (b-z)",
            "Derived in :doc:`chapter 1 </book/a>` (a), eq. :eq:`a-x`; "
            ":doc:`chapter 2 </book/b>` (b), eq. :eq:`b-y`.\n\neq. (b-z)",
        ),
        (
            "Derived in chapter 9 (lmnn), eq. (lmnn-pull).",
            "Derived in :doc:`chapter 9 </book/lmnn>` (lmnn), eq. :eq:`lmnn-pull`.",
        ),
        ("Nothing. Paper: eq. (12).", "Nothing. Paper: eq. (12)."),
    ],
)
def test_derivations_become_links(said, linked):
    assert rendered(said) == linked


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("1/2 ||M* - L'WL||_F^2", "1/2 \\|\\|M\\* - L'WL\\|\\|_F^2"),
        ("the attribute metric_ and `metric_`", "the attribute metric\\_ and `metric_`"),
        ("``a | b`` or a|b", "``a | b`` or a\\|b"),
        ("metric_ : FactoredMetric", "metric_ : FactoredMetric"),
        (">>> a | b\n6 | 7\n\na | b", ">>> a | b\n6 | 7\n\na \\| b"),
        ("    L. It is moved.", "    \\L. It is moved."),
        ("*args and **kwargs", "*args and **kwargs"),
    ],
)
def test_plain_mathematics_is_no_markup(said, kept):
    assert rendered(said) == kept


def test_only_the_api_page_gets_the_modules():
    page = ["# Anything"]
    lml_cells.list_modules(None, "book/metrics", page)
    assert page == ["# Anything"]


def test_a_formula_keeps_the_punctuation_that_touches_it():
    formulas = [nodes.math("", "d = 8"), nodes.math("", "n"), nodes.math("", "D")]
    words = [nodes.Text(text) for text in ("rows (", "), at once ", "; ", " in all")]
    paragraph = nodes.paragraph()
    paragraph += [words[0], formulas[0], words[1], formulas[1], words[2], formulas[2], words[3]]
    said = paragraph.astext()
    lml_cells.hold_punctuation(None, paragraph, "book/any")
    held = [node.astext() for node in paragraph.findall(nodes.inline)]
    assert held == ["(d = 8),", "n;"]
    assert paragraph.astext() == said
    assert formulas[2].parent is paragraph


def test_generated_members_are_left_out_of_the_api_page():
    class Pair(NamedTuple):
        first: int

        def total(self):
            """Everything."""

    skip = lml_cells.skip_generated
    assert skip(None, "method", "set_fit_request", Pair.total, False, None)
    assert skip(None, "attribute", "first", Pair.first, False, None)
    assert skip(None, "method", "total", Pair.total, False, None) is None
