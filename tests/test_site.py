"""The Sphinx extension of the book: what it makes of docstrings."""

from __future__ import annotations

import inspect
import json
import re
import shutil
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import lml_api
import lml_cells
import lml_lite
import lml_outputs
import lml_search
import lml_site
import pydata_sphinx_theme
import pytest
from docutils import nodes
from fontTools.ttLib import TTFont
from sphinx.errors import ExtensionError
from tangle import ROOT, slugs, toc_files

import lml


def rendered(text):
    lines = text.split("\n")
    lml_api.keep_mathematics(None, "function", "f", None, None, lines)
    lml_api.link_derivations(None, "function", "f", None, None, lines)
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


APP = SimpleNamespace(srcdir=str(ROOT))


def api_page(name, text=""):
    page = [text]
    lml_api.write_api(APP, name, page)
    return page[0]


def test_only_api_pages_get_what_the_docstrings_say():
    assert api_page("book/metrics", "# Anything") == "# Anything"
    page = api_page("book/api/oasis", "# `lml.oasis`")
    assert "[](/book/oasis.ipynb)" in page
    assert re.findall(r"automodule:: (.*)", page) == ["lml.oasis"]
    with pytest.raises(ExtensionError, match="no chapter exports cells to lml"):
        api_page("book/api/nothing")


def test_the_api_page_has_a_line_for_each_public_name_and_each_module():
    lines = [text for text in api_page("book/api").splitlines() if text.startswith("- ")]
    said = [
        re.match(r"- \[`lml\.([\w.]+)`\]\(/book/api/([\w.]+)\.md\): \w.*", line) for line in lines
    ]
    names = [match[1] for match in said]
    assert names[: len(lml.__all__)] == lml.__all__
    pages = {file for file, _ in toc_files(ROOT) if file.startswith("book/api/")}
    assert {f"book/api/{match[2]}" for match in said} == pages
    assert {f"book/api/{name}" for name in names[len(lml.__all__) :]} == pages


@pytest.mark.parametrize("name", [n for n in lml.__all__ if isinstance(getattr(lml, n), type)])
def test_the_page_of_a_class_names_all_that_it_inherits(name):
    cls, lines = getattr(lml, name), []
    lml_api.list_inherited(None, "class", f"lml.{name}", cls, None, lines)
    text = "\n".join(lines)
    listed = re.findall(r"^- (?::py:obj:`|``)(\w+)", text, re.M)
    _, _, theirs = text.partition("- from scikit-learn: ")
    listed += re.findall(r"``(\w+)``", theirs)
    expected = {n for n in dir(cls) if not n.startswith("_") and n not in vars(cls)}
    expected -= {n for n in expected if isinstance(inspect.getattr_static(cls, n), bool)}  # values
    expected -= {n for n in expected if re.fullmatch(r"set_\w+_request", n)}
    assert sorted(listed) == sorted(expected)


def test_the_arguments_of_a_method_are_listed_without_defaults():
    class Learner:
        def visit(self, X, y=None, *, task=1):
            """Learn."""

        size = property(len)

    assert lml_api.call(Learner.visit) == "(X, y, *, task)"
    assert lml_api.call(Learner.size) == ""


@pytest.mark.parametrize(
    ("module", "name", "line"),
    [
        ("lml.oasis", "OASIS", "class OASIS"),
        ("lml.metrics", "FactoredMetric.root", "def root("),
        ("lml.studies.transfer", "STUDIES", "STUDIES = "),
    ],
)
def test_the_source_of_a_name_is_the_section_that_tells_it(module, name, line):
    address = lml_api.source_link("py", {"module": module, "fullname": name})
    page, _, section = address.removeprefix("../").partition(".html#")
    nb = json.loads((ROOT / "book" / f"{page}.ipynb").read_text(encoding="utf-8"))
    below = ""
    for cell in nb["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown" and slugs(source):
            below = slugs(source)[-1]
        elif line in source and "#| export" in source:
            assert below == section
            return
    raise AssertionError(f"{page} does not tell {name}")


def test_a_name_that_no_section_tells_has_no_source():
    assert lml_api.source_link("py", {"module": "lml.oasis", "fullname": "nothing"}) is None


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
    lml_site.drop_icon_script(app, OSError())
    assert "fontawesome" in page.read_text()
    lml_site.drop_icon_script(app, None)
    assert page.read_text() == f"<head>{kept}"
    assert [path.name for path in scripts.iterdir()] == ["bootstrap.js"]


def test_generated_members_are_left_out_of_the_api_page():
    class Pair(NamedTuple):
        first: int

        def total(self):
            """Everything."""

    skip = lml_api.skip_generated
    assert skip(None, "method", "set_fit_request", Pair.total, False, None)
    assert skip(None, "attribute", "first", Pair.first, False, None)
    assert skip(None, "method", "total", Pair.total, False, None) is None


@pytest.mark.parametrize(
    ("published", "base"),
    [("", ""), ("Some-Body/the.book", "https://some-body.github.io/the.book/")],
)
def test_one_setting_says_where_the_book_is_published(monkeypatch, published, base):
    monkeypatch.setenv("BOOK_REPOSITORY", published)
    others = "https://github.com/executablebooks/jupyter-book"  # what the builder sets by itself
    options = {"logo": "a", "repository_url": others}
    config = SimpleNamespace(html_baseurl="", html_theme_options=options)
    lml_site.set_addresses(None, config)
    assert config.html_baseurl == base
    assert config.html_theme_options["logo"] == "a"
    assert ("launch_buttons" in config.html_theme_options) == bool(published)
    if published:
        assert (
            config.html_theme_options["repository_url"] == "https://github.com/Some-Body/the.book"
        )


@pytest.mark.parametrize("published", ["one", "a/b/c", "https://x.org/a", "a b/c"])
def test_an_address_that_is_none_stops_the_build(monkeypatch, published):
    monkeypatch.setenv("BOOK_REPOSITORY", published)
    with pytest.raises(ExtensionError, match="write owner/name"):
        lml_site.set_addresses(None, SimpleNamespace(html_theme_options={}))


def head_of(pagename, document, title="A & B", base=""):
    config = SimpleNamespace(html_baseurl=base, root_doc="book/index")
    app = SimpleNamespace(srcdir=str(ROOT), config=config)
    context = {"title": title, "metatags": "<meta>"}
    lml_site.describe(app, pagename, "page.html", context, document)
    return context["metatags"].splitlines()


def test_a_page_says_in_its_head_what_it_is():
    text = nodes.section("", nodes.title("", "T"), paragraph("of ", "$x", " only"))
    text += nodes.paragraph("", "", nodes.emphasis("", "15 minutes. Read what is before it."))
    text += paragraph("In short. A claim with ", "$x", '. What "it" says. ' + "word " * 60)
    document = nodes.section("", text)
    tags = head_of("book/a", document)
    assert tags[0] == "<meta>"
    assert tags[1].startswith('<meta name="description" content="What &quot;it&quot; says. word')
    assert len(tags[1]) < 260
    assert len(tags) == 2  # nobody knows where it is published
    number = '<span class="section-number">6. </span>'
    tags = head_of("book/a", document, f"{number}A &amp; B", "https://x.org/")
    assert '<meta property="og:title" content="6. A &amp; B">' in tags
    assert '<meta property="og:url" content="https://x.org/book/a.html">' in tags
    assert '<meta property="og:image" content="https://x.org/_static/share.png">' in tags
    assert not any("citation" in tag for tag in tags)
    cited = "\n".join(head_of("book/index", document, base="https://x.org/"))
    assert 'name="citation_author" content="The lml developers"' in cited
    assert "citation_author=Sun, Gan; Cong, Yang" in cited


@pytest.mark.parametrize(("builder", "there"), [("singlehtml", "#a"), ("html", "book/x.html#a")])
def test_links_inside_a_document_of_all_pages_lead_to_its_places(builder, there):
    app = SimpleNamespace(
        builder=SimpleNamespace(name=builder, out_suffix=".html"),
        config=SimpleNamespace(root_doc="book/x"),
    )
    context = {"body": '<a href="book/x.html#a">x</a> <a href="book/y.html#a">y</a>'}
    lml_site.link_inside(app, "book/x", "page.html", context, None)
    assert context["body"] == f'<a href="{there}">x</a> <a href="book/y.html#a">y</a>'


def test_the_picture_of_a_shared_page_is_small():
    picture = ROOT / "book" / "_static" / "share.png"
    assert lml_site.picture_size(picture) == (1200, 630)
    assert picture.stat().st_size < 100_000


@pytest.mark.parametrize(
    ("svg", "size"),
    [
        ('<svg width="30pt" height="60pt" viewBox="0 0 1 2">', (40, 80)),
        ('<?xml version="1.0"?><svg viewBox="0 0 420 270" role="img">', (420, 270)),
        ('<svg width="10" height="20px">', (10, 20)),
        ("<svg>", None),
    ],
)
def test_pages_say_how_large_pictures_are(tmp_path, svg, size):
    (tmp_path / "_images").mkdir()
    (tmp_path / "book").mkdir()
    (tmp_path / "_images" / "a b.svg").write_text(svg)
    sized = '<img height="2" src="../_images/a%20b.svg">'
    page = tmp_path / "book" / "a.html"
    page.write_text('<img alt="x" src="../_images/a%20b.svg" /><img src="gone.png">' + sized)
    app = SimpleNamespace(outdir=tmp_path, builder=SimpleNamespace(format="html"))
    lml_site.keep_room(app, None)
    told = f' width="{size[0]}" height="{size[1]}"' if size else ""
    first = f'<img{told} alt="x" src="../_images/a%20b.svg" />'
    assert page.read_text() == f'{first}<img src="gone.png">{sized}'


def test_lists_of_references_are_lists_to_a_reader_of_the_screen(tmp_path):
    page = tmp_path / "a.html"
    page.write_text('<div role="list"><div class="citation" role="doc-biblioentry">x</div></div>')
    app = SimpleNamespace(outdir=tmp_path, builder=SimpleNamespace(format="html"))
    lml_site.name_parts(app, None)
    assert '<div class="citation" role="listitem">' in page.read_text()


def test_a_published_site_has_a_map(tmp_path):
    app = SimpleNamespace(
        outdir=tmp_path,
        builder=SimpleNamespace(name="html"),
        config=SimpleNamespace(html_baseurl=""),
        env=SimpleNamespace(found_docs={"book/b", "book/a"}),
    )
    lml_site.write_map(app, None)
    assert not list(tmp_path.iterdir())
    app.config.html_baseurl = "https://x.org/y/"
    lml_site.write_map(app, None)
    found = re.findall("<loc>(.*)</loc>", (tmp_path / "sitemap.xml").read_text())
    assert found == ["https://x.org/y/book/a.html", "https://x.org/y/book/b.html"]
    assert 'href="https://x.org/y/"' in (tmp_path / "404.html").read_text()


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
        lml_site.write_redirects(app, exception)
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
        add_js_file=lambda file, **settings: told.append(file),
        setup_extension=told.append,
    )
    for extension in (lml_api, lml_cells, lml_lite, lml_outputs, lml_search, lml_site):
        extension.setup(app)
    assert ("build-finished", lml_site.write_redirects) in told
    assert ("source-read", lml_api.write_api) in told
    assert ("source-read", lml_outputs.put_outputs) in told
    assert ("build-finished", lml_search.write_ranking) in told
    assert ("html-page-context", lml_lite.link_app) in told
    assert "sphinx.ext.linkcode" in told
    assert told.index(("doctree-resolved", lml_cells.label_exported_cells)) < told.index(
        ("doctree-resolved", lml_cells.fold_cells)
    )
    assert told.index(("build-finished", lml_site.drop_icon_script)) < told.index(
        ("build-finished", lml_site.keep_shown_icons)
    )
    assert {lml_cells.FoldedCell, lml_cells.FoldedCode, "print.js"} <= {
        said for said in told if not isinstance(said, tuple)
    }


def test_icon_fonts_hold_the_icons_that_are_shown(tmp_path):
    """A site with three icons, one of them put in by a script and one drawn by a style."""
    fonts = tmp_path / "_static" / "webfonts"
    fonts.mkdir(parents=True)
    installed = Path(pydata_sphinx_theme.__file__).parent.rglob("webfonts/fa-solid-900.ttf")
    shutil.copy(next(installed), fonts)
    (tmp_path / "page.html").write_text('<i class="fas fa-moon"></i>')
    (tmp_path / "_static" / "a.js").write_text("icon.classList.add('fa-bars')")
    rules = '.fa-moon:before{content:"\\f186"}.fa-dog:before,.fa-hound:before{content:"\\f6d3"}'
    rest = '.fa-bars:before{content:"\\f0c9"}.box:after{content:"\\f078"}.bell{--icon:"\uf0f3"}'
    (tmp_path / "_static" / "a.css").write_text(rules + rest)
    app = SimpleNamespace(outdir=tmp_path, builder=SimpleNamespace(format="html"))
    lml_site.keep_shown_icons(app, None)
    for suffix in ("ttf", "woff2"):
        font = TTFont(fonts / f"fa-solid-900.{suffix}")
        assert {code for code in font.getBestCmap()} == {0xF186, 0xF0C9, 0xF078, 0xF0F3}
    style = (tmp_path / "_static" / "a.css").read_text()
    assert style == '.fa-moon:before{content:"\\f186"}' + rest


STYLE = (ROOT / "book" / "_static" / "lml.css").read_text(encoding="utf-8")


def test_print_opens_all_folds_with_and_without_a_script():
    printed = STYLE.partition("@media print")[2]
    assert "details::details-content" in printed
    script = (ROOT / "book" / "_static" / "print.js").read_text(encoding="utf-8")
    assert "beforeprint" in script
    assert "afterprint" in script
