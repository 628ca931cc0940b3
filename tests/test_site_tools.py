"""What is done with the built site in a browser: typeset, print, look, and ask what it links to."""

from __future__ import annotations

import contextlib
import http.server
import re
import shutil
import threading

import linkcheck
import pdf
import pytest
import site_check
import typeset
from browser import browser_path, launch, open_page, serve
from pypdf import PdfReader, PdfWriter
from pypdf.generic import DictionaryObject, NameObject, TextStringObject
from tangle import ROOT

in_browser = pytest.mark.skipif(browser_path() is None, reason="no Chromium on this machine")

SETTINGS = '{"tex": {"macros": {"tp": "{\\\\mathsf{T}}"}}}'
HEAD = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title} \u2014 A book</title>
<link rel="stylesheet" href="_static/lml.css">
<style>:root {{ --pst-color-primary: #00f; }}</style>
<script>window.MathJax = {settings}</script>
<script defer="defer" src="_static/mathjax/tex-mml-chtml.js?v=1"></script>
</head>
<body><main class="bd-main"><div class="bd-content"><article class="bd-article"><h1>{title}</h1>
"""
FOOT = "</article></div></main></body></html>"
EQUATION = (
    '<div class="math notranslate nohighlight" id="equation-a">\n<span class="eqno">(1.1)'
    '<a class="headerlink" href="#equation-a" title="Link">#</a></span>\\[\na^\\tp b = 1\n\\]</div>'
)
FOLD = '<details class="lml-fold"><summary>Imports</summary><pre>\nimport this\n</pre></details>'


@pytest.fixture
def site(tmp_path):
    """Write pages, given by their text, with what pages of the book load; their folder."""

    def write(**pages):
        (tmp_path / "_static").mkdir()
        shutil.copy(ROOT / "book" / "_static" / "lml.css", tmp_path / "_static")
        shutil.copy(ROOT / "book" / "_static" / "equations.js", tmp_path / "_static")
        shutil.copytree(ROOT / "book" / "_static" / "mathjax", tmp_path / "_static" / "mathjax")
        for name, text in pages.items():
            page = HEAD.format(title=f"Page {name}", settings=SETTINGS) + text + FOOT
            (tmp_path / f"{name}.html").write_text(page, encoding="utf-8")
        return tmp_path

    return write


@contextlib.contextmanager
def opened(folder, name="a"):
    """A page of a site in a browser."""
    with serve(folder) as base, launch() as browser:
        page = browser.new_page()
        open_page(page, f"{base}{name}.html")
        yield page


INLINE = '<span class="math notranslate nohighlight">\\(a^\\tp b\\)</span>'


@in_browser
def test_formulas_are_typeset_once_and_need_no_script(site):
    folder = site(a=f"<p>By {INLINE}, {INLINE} {EQUATION}", b="<p>Text alone.")
    assert typeset.typeset(folder) == 3
    text = (folder / "a.html").read_text()
    assert "\\(" not in text
    assert "\\[" not in text
    assert '<span class="eqno">(1.1)' in text
    assert text.count("formulas.css") == 1
    assert "MathJax =" not in text
    assert "formulas.css" not in (folder / "b.html").read_text()
    assert not (folder / "_static" / "mathjax" / "tex-mml-chtml.js").exists()
    assert typeset.typeset(folder) == 0
    with opened(folder) as page:
        wide = page.evaluate(
            "[...document.querySelectorAll('mjx-mi')].map(e => e.getBoundingClientRect().width)"
        )
        stops = page.query_selector_all("[tabindex]")
        family = page.evaluate("[...document.fonts].some(f => f.status === 'loaded')")
    assert min(wide) > 2
    assert family
    assert len(stops) == 1  # a wide equation is scrolled by keys


@in_browser
def test_a_formula_that_mathjax_does_not_read_is_named(site):
    folder = site(a='<p><span class="math x">\\(\\frac{nonsense\\)</span>')
    with pytest.raises(SystemExit, match=r"does not read .*nonsense"):
        typeset.typeset(folder)
    assert [path.name for path in folder.glob("*.html")] == ["a.html"]


@in_browser
def test_the_style_for_paper_opens_all_folds_and_wraps_code(site):
    inner = f'<div class="cell"><div class="cell_input lml-folded">{FOLD}</div></div>'
    long = f"<pre>\n{'word_' * 100}\n</pre>"
    style = "where => getComputedStyle(document.querySelector(where))"
    listed = '<style>dl { display: grid; }</style><dl class="field-list"><dt>X<dd>Y</dl>'
    with opened(site(a=inner + f'<div class="lml-parts">{FOLD}{long}</div>{listed}')) as page:
        assert len(page.evaluate(site_check.HIDDEN_IN_PRINT)) == 2
        assert site_check.print_faults(page) == []
        page.emulate_media(media="print")
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        boxes = [page.evaluate(f"{style}.display", where) for where in (".cell_input", "dl")]
        together = page.evaluate(f"{style}.breakAfter", "dt")
    assert wide <= 0
    assert boxes == ["block", "block"]  # others leave their empty edge on the page before
    assert together == "avoid"


@in_browser
def test_chapters_are_bound_with_links_between_them(site, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(pdf, "parts", lambda root: {"b": "Part two"})
    break_page = '<div style="break-before: page"></div>'
    menu = '<ul class="dropdown-menu"></ul>'
    folder = site(
        a=f'{menu}<p><a href="b.html#equation-a">there</a> <a href="#end">below</a>'
        f'<a href="lost.html">nowhere</a>{FOLD}{break_page}<h2 id="end">The end</h2>',
        b=f'{break_page}{EQUATION}<p><a href="a.html">back</a> <a href="https://x.org/">out</a>',
    )
    assert pdf.main(["a", "b", "--site", str(folder), "--out", str(tmp_path / "out")]) == 0
    assert "2 chapters, 6 pages" in capsys.readouterr().out
    volume = PdfReader(tmp_path / "out" / pdf.VOLUME)
    texts = [page.extract_text() for page in volume.pages]
    assert volume.page_labels == ["i", "ii", "1", "2", "3", "4"]
    assert "import this" in texts[2]
    assert all(str(number) in text.split() for number, text in enumerate(texts[2:], 1))
    assert "Part two" in texts[1]
    titles = [item["/Title"] for item in volume.outline if not isinstance(item, list)]
    assert titles == ["Lifelong Metric Learning", "Page a", "Page b"]
    leads = []
    for number, page in enumerate(volume.pages):
        for link in page.get("/Annots", []):
            link = link.get_object()
            there = link["/Dest"][0].get_object() if "/Dest" in link else None
            place = next((i for i, p in enumerate(volume.pages) if p == there), None)
            leads.append((number, place, link.get("/A", {}).get("/URI", "")))
    assert leads == [
        (1, 2, ""), (1, 4, ""), (2, 5, ""), (2, 3, ""), (2, None, ""), (5, 2, ""),
        (5, None, "https://x.org/"),
    ]  # fmt: skip
    assert pdf.link_from_site(folder, tmp_path / "out" / pdf.VOLUME) == 1
    assert f'href="{pdf.VOLUME}"' in (folder / "a.html").read_text()
    assert (folder / pdf.VOLUME).read_bytes()[:5] == b"%PDF-"


@in_browser
def test_the_tags_of_the_chapters_are_one_tree(site, tmp_path):
    table = "<table><tr><th>{0}</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table>"
    break_page = '<div style="break-before: page"></div>'
    links = '<p><a href="b.html">there</a> <a href="#end">below</a>'
    folder = site(
        a=f'{table.format("head of a")}{links}{break_page}<h2 id="end">The end</h2>',
        b=f'<p><a href="a.html">back</a>{break_page}{table.format("head of b")}',
    )
    pdf.main(["a", "b", "--site", str(folder), "--out", str(tmp_path / "out")])
    volume = PdfReader(tmp_path / "out" / pdf.VOLUME)
    tree = volume.root_object["/StructTreeRoot"]
    assert volume.root_object["/MarkInfo"]["/Marked"]
    assert [document.get_object()["/S"] for document in tree["/K"]] == ["/Document"] * 3
    numbers = tree["/ParentTree"]["/Nums"]
    places = dict(zip(numbers[::2], numbers[1::2], strict=True))
    assert list(places) == sorted(places) == list(range(tree["/ParentTreeNextKey"]))
    for page in volume.pages:
        for mark, element in enumerate(places[page["/StructParents"]].get_object()):
            assert element["/Pg"] == page
            assert mark in pdf.many(element.get_object(), "/K")
        for link in page.get("/Annots", []):
            element = places[link.get_object()["/StructParent"]].get_object()
            said = [kid for kid in pdf.many(element, "/K") if isinstance(kid, dict)]
            assert link.get_object() in [kid["/Obj"] for kid in said if "/Obj" in kid]
    names = tree["/IDTree"]["/Names"]
    assert len(names) == 8
    for name, element in zip(names[::2], names[1::2], strict=True):
        assert element.get_object()["/ID"] == name
        assert element.get_object()["/S"] == "/TH"


def test_the_volume_is_written_small_and_whole(tmp_path):
    """A thousand tags, each of its own: their objects share compressed streams."""
    writer = PdfWriter()
    writer.add_blank_page(100, 70)
    writer.add_outline_item(title="A part (of it)", page_number=0)
    above = writer.root_object.indirect_reference
    for number in range(1000):
        said = {
            "/S": NameObject("/P"),
            "/P": above,
            "/Alt": TextStringObject(f"\\{number}) \u03b1"),
        }
        above = writer._add_object(DictionaryObject({NameObject(k): v for k, v in said.items()}))
    writer.root_object[NameObject("/Last")] = above
    writer.write(tmp_path / "plain.pdf")
    pdf.write_small(writer, tmp_path / "small.pdf")
    plain, small = (PdfReader(tmp_path / f"{name}.pdf", strict=True) for name in ("plain", "small"))
    assert [item["/Title"] for item in small.outline] == ["A part (of it)"]
    assert small.pages[0].mediabox == plain.pages[0].mediabox
    tags = plain.root_object["/Last"], small.root_object["/Last"]
    for number in reversed(range(1000)):
        assert tags[1]["/Alt"] == tags[0]["/Alt"] == f"\\{number}) \u03b1"
        tags = tuple(tag["/P"] for tag in tags)
    assert tags[1]["/Type"] == "/Catalog"
    size = {name: (tmp_path / f"{name}.pdf").stat().st_size for name in ("plain", "small")}
    assert size["small"] < size["plain"] / 5


@in_browser
def test_on_paper_long_tables_break_and_cards_do_not(site):
    theme = "<style>.bd-main .bd-content table { break-inside: avoid; }</style>"
    short, long = ("<table>" + "<tr><td>x" * rows + "</table>" for rows in (11, 12))
    results = f'<div class="lml-results">{short}</div><div class="lml-results">{long}</div>'
    gallery = '<div class="lml-gallery"><div class="sd-col" style="width: 50%">x</div></div>'
    with opened(site(a=theme + short + long + results + gallery)) as page:
        page.emulate_media(media="print")
        kept = page.evaluate(
            "[...document.querySelectorAll('article > *, .sd-col')].slice(2)"
            ".map(e => getComputedStyle(e).breakInside)"
        )
    assert kept == ["avoid", "auto", "avoid", "auto", "auto", "avoid"]


@in_browser
def test_axe_names_what_shuts_readers_out(site):
    pale = '<p style="color: #bbb; background: #fff">Pale</p>'
    picture = '<img src="logo.svg">'
    with opened(site(a=pale + picture)) as page:
        faults = "\n".join(site_check.axe_faults(page))
        assert "axe: color-contrast (serious), 1 places" in faults
        assert "axe: image-alt (critical)" in faults
        [dark] = site_check.dark_faults(page)
    assert "color-contrast" in dark


@in_browser
@pytest.mark.parametrize(
    ("summary", "faults"),
    [
        ("<summary>", []),
        ('<summary tabindex="-1">', ["no key leads to the fold 'Imports'"]),
        ("<summary onclick='return false'>", ["keys do not open the fold 'Imports'"]),
    ],
)
def test_keys_open_folds(site, summary, faults):
    text = '<a href="b.html">first</a>' + FOLD.replace("<summary>", summary)
    with opened(site(a=text)) as page:
        assert site_check.fold_faults(page) == faults


# A block that comes late, and so moves the text, at as many loads of the page as said.
LATE = """<p>Text.</p><script>
const loads = Number(sessionStorage.loads ?? 0) + 1;
sessionStorage.loads = loads;
addEventListener('load', () => {{
  MathJax.startup.promise = new Promise(done => setTimeout(() => {{
    if (loads <= {loads})
      document.querySelector('h1').insertAdjacentHTML('beforebegin', '<div style="height: 500px">');
    setTimeout(done, 300);
  }}, 300));
}});
</script>"""


@in_browser
@pytest.mark.parametrize(("loads", "faulty"), [(0, False), (1, False), (9, True)])
def test_text_that_moves_whenever_a_page_is_opened_is_a_fault(site, loads, faulty):
    folder = site(a=LATE.format(loads=loads) + "<p>Text.</p>" * 20)
    with serve(folder) as base, launch() as browser:
        tab = site_check.open_tab(browser, "desktop", base)
        faults = "\n".join(site_check.page_faults(tab.visit("a.html")))
    assert ("the text moves" in faults) == faulty, faults
    assert (" -> (0 0 0 0), P. (" in faults) == faulty, faults  # out of sight


@in_browser
def test_a_link_to_an_equation_shows_it(site):
    script = '<script defer src="_static/equations.js"></script>'
    links = '<a href="#equation-a">(1.1)</a> <a href="b.html#equation-a">(2.1)</a>'
    folder = site(a=script + links + EQUATION, b=EQUATION.replace("1.1", "2.1"))
    typeset.typeset(folder)
    with opened(folder) as page:
        for link, number in zip(page.query_selector_all("article > a"), ("(1.1)", "(2.1)")):
            link.focus()
            page.wait_for_selector("#lml-preview mjx-container")
            assert number in page.inner_text("#lml-preview")
            assert link.get_attribute("aria-describedby") == "lml-preview"
            page.keyboard.press("Escape")
            assert page.query_selector("#lml-preview") is None
        page.hover("article > a")
        page.wait_for_selector("#lml-preview")
        page.hover("h1")
        page.wait_for_selector("#lml-preview", state="detached")


class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(int(self.path.strip("/")))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args):
        pass


def test_only_addresses_that_are_gone_are_dead(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(linkcheck, "PAUSE", 0)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{server.server_address[1]}"
        links = "".join(f'<a href="{base}/{code}#here">x</a>' for code in (200, 403, 404, 503))
        (tmp_path / "index.html").write_text(links + '<a href="page.html">y</a>')
        assert linkcheck.main(["--site", str(tmp_path)]) == 1
        server.shutdown()
    told = capsys.readouterr().out.splitlines()
    assert re.fullmatch(rf"linkcheck: {base}/404: 404 .* \(on index\.html\)", told[0])
    assert told[1:] == ["linkcheck: 4 addresses, 1 do not answer"]


def test_addresses_of_the_book_itself_are_left_out(tmp_path):
    own = ("https://github.com/Some/book/edit/x", "https://colab.x.org/github/some/book/blob/a")
    (tmp_path / "a.html").write_text(
        "".join(f'<a href="{address}">x</a>' for address in (*own, "https://x.org/?a=1&amp;b=2"))
    )
    assert list(linkcheck.outward_links(tmp_path, "Some/book")) == ["https://x.org/?a=1&b=2"]
