"""The Sphinx extension of the book: what it makes of docstrings."""

from __future__ import annotations

import tomllib
from types import SimpleNamespace
from typing import NamedTuple

import lml_cells
import pytest
from docutils import nodes
from sphinx.errors import ExtensionError
from tangle import ROOT, toc_files


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


def paragraph(*pieces):
    """A paragraph of text, formulas ($x) and links (@x)."""
    found = nodes.paragraph()
    for piece in pieces:
        kind = {"$": nodes.math, "@": nodes.reference}.get(piece[0])
        found += nodes.Text(piece) if kind is None else kind("", "", nodes.Text(piece[1:]))
    return found


@pytest.mark.parametrize(
    "pieces",
    [
        ("By ", "@(6.4)", ", ", "$a", ", ", "$b", "."),  # equal pieces of text
        ("(", "$a", ")", "@(1.1)", "(", "$b", ")"),
        ("$a", ", ", "$b", ", ", "$c", ", "),
    ],
)
def test_punctuation_is_held_by_position(pieces):
    text = paragraph(*pieces)
    said = text.astext()
    lml_cells.hold_punctuation(None, text, "book/any")
    assert text.astext() == said
    assert "," not in [node.astext()[:1] for node in text.findall(nodes.inline)]


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        (("as in (", "@(6.4)", ") it"), "as in (6.4) it"),
        (("as in (", "@(6.4)", ", too)"), "as in ((6.4), too)"),
        (("by (", "@(1.1)", ") and (", "@(1.2)", ")."), "by (1.1) and (1.2)."),
        (("a (", "@page", ") is"), "a (page) is"),
        (("by ", "@(1.1)", ")"), "by (1.1))"),
    ],
)
def test_a_link_to_an_equation_has_one_pair_of_brackets(pieces, said):
    text = paragraph(*pieces)
    lml_cells.drop_double_brackets(None, text, "book/any")
    assert text.astext() == said


def test_icons_are_drawn_by_their_fonts(tmp_path):
    scripts = tmp_path / "_static" / "scripts"
    scripts.mkdir(parents=True)
    for name in ("fontawesome.js", "fontawesome.js.map", "bootstrap.js"):
        (scripts / name).write_text("")
    page = tmp_path / "book" / "a.html"
    page.parent.mkdir()
    kept = '<script defer src="../_static/scripts/bootstrap.js?digest=1"></script>'
    page.write_text(
        f'<head>\n<script src="../_static/scripts/fontawesome.js?digest=1"></script>{kept}'
    )
    app = SimpleNamespace(outdir=tmp_path, builder=SimpleNamespace(format="html"))
    lml_cells.drop_icon_script(app, OSError())
    assert "fontawesome" in page.read_text()
    lml_cells.drop_icon_script(app, None)
    assert page.read_text() == f"<head>{kept}"
    assert [path.name for path in scripts.iterdir()] == ["bootstrap.js"]


def test_generated_members_are_left_out_of_the_api_page():
    class Pair(NamedTuple):
        first: int

        def total(self):
            """Everything."""

    skip = lml_cells.skip_generated
    assert skip(None, "method", "set_fit_request", Pair.total, False, None)
    assert skip(None, "attribute", "first", Pair.first, False, None)
    assert skip(None, "method", "total", Pair.total, False, None) is None


@pytest.fixture
def site(tmp_path):
    """Build nothing, but write the redirects of a site with these pages; its folder."""

    def build(redirects, pages, baseurl="", builder="html", exception=None):
        lines = "\n".join(f'"{old}" = "{new}"' for old, new in redirects.items())
        text = f"[tool.lml.redirects]\n{lines}\n"
        (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
        app = SimpleNamespace(
            srcdir=tmp_path,
            outdir=tmp_path / "html",
            builder=SimpleNamespace(name=builder),
            config=SimpleNamespace(html_baseurl=baseurl),
            env=SimpleNamespace(found_docs=set(pages)),
        )
        lml_cells.write_redirects(app, exception)
        return app.outdir

    return build


@pytest.mark.parametrize(
    ("old", "new", "relative"),
    [
        ("book/initialisation", "book/initialization", "initialization.html"),
        ("book/baselines/lmnn", "book/lmnn", "../lmnn.html"),
        ("book/a", "book/parts/a", "parts/a.html"),
        ("old", "book/new", "book/new.html"),
    ],
)
def test_an_old_address_leads_to_the_new_page(site, old, new, relative):
    folder = site({old: new}, [new])
    page = (folder / f"{old}.html").read_text(encoding="utf-8")
    assert f'http-equiv="refresh" content="0; url={relative}"' in page
    assert f'<link rel="canonical" href="{relative}">' in page
    assert f'<a href="{relative}">' in page
    target = (folder / f"{old}.html").parent / relative
    assert target.resolve() == (folder / f"{new}.html").resolve()
    page = (site({old: new}, [new], "https://x.org/y/") / f"{old}.html").read_text(encoding="utf-8")
    assert f'<link rel="canonical" href="https://x.org/y/{new}.html">' in page


def test_a_redirect_that_cannot_be_right_stops_the_build(site):
    with pytest.raises(ExtensionError, match="from old to new, but there is no page new"):
        site({"old": "new"}, [])
    with pytest.raises(ExtensionError, match="from old to new, but the page old is still there"):
        site({"old": "new"}, ["old", "new"])


def test_redirects_are_written_after_a_build_of_pages_that_went_well(site):
    site({}, [])
    assert not site({"old": "new"}, [], builder="singlehtml").exists()
    assert not site({"old": "new"}, [], exception=OSError()).exists()


def test_the_redirects_of_the_book_lead_to_pages_of_it():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    redirects = tomllib.loads(text)["tool"]["lml"]["redirects"]
    pages = {file for file, _ in toc_files(ROOT)}
    assert set(redirects.values()) <= pages
    assert not set(redirects) & pages


def test_hooks_are_told_to_sphinx():
    told = []
    app = SimpleNamespace(
        connect=lambda event, hook, **kwargs: told.append((event, hook)),
        add_node=lambda node, **visitors: told.append(node),
        add_js_file=told.append,
    )
    lml_cells.setup(app)
    assert ("build-finished", lml_cells.write_redirects) in told
    assert told.index(("doctree-resolved", lml_cells.label_exported_cells)) < told.index(
        ("doctree-resolved", lml_cells.fold_cells)
    )
    assert {lml_cells.FoldedCell, lml_cells.FoldedCode, "print.js"} <= {
        said for said in told if not isinstance(said, tuple)
    }


STYLE = (ROOT / "book" / "_static" / "lml.css").read_text(encoding="utf-8")


def test_print_opens_all_folds_with_and_without_a_script():
    printed = STYLE.partition("@media print")[2]
    assert "details::details-content" in printed
    script = (ROOT / "book" / "_static" / "print.js").read_text(encoding="utf-8")
    assert "beforeprint" in script
    assert "afterprint" in script
