"""Sphinx extension of the book: what is sent to a reader, and old addresses.

Pages load neither the scripts of thebe nor Font Awesome's script of half a megabyte: its fonts
draw the same icons, and hold only those that the site shows. Pictures are loaded when the
reader comes near them. A page that was moved leaves a small page at its old address, as
``[tool.lml.redirects]`` says.

``BOOK_REPOSITORY=owner/name`` in the environment says where the book is published: only then have
the pages launch buttons, links to their sources and canonical addresses, and the
site a map and a page for dead links.
"""

from __future__ import annotations

import html
import os
import posixpath
import re
import textwrap
import tomllib
from pathlib import Path
from urllib.parse import unquote

import yaml
from docutils import nodes
from fontTools.subset import Options, Subsetter
from fontTools.ttLib import TTFont
from PIL import Image
from sphinx.errors import ExtensionError

ICONS = re.compile(r"\s*<(?:script|link)\b[^>]*scripts/fontawesome\.js[^>]*>(?:</script>)?")
ICON = re.compile(r"(?<![\w-])fa-([a-z0-9-]+)")
ICON_RULE = re.compile(r'((?:\.fa-[\w-]+:before,?)+)\{content:"\\([0-9a-f]+)"\}')
GLYPH = re.compile(r"\\(f[0-9a-f]{3})(?![0-9a-f])|([\ue000-\uf8ff])")  # in other rules
NAMED = {
    'role="doc-biblioentry"': 'role="listitem"',  # it stands in a list
    '<th scope="col"></th>': '<th scope="col"><span class="visually-hidden">name</span></th>',
    # keys scroll wide tables
    'class="dataframe">': 'class="dataframe" tabindex="0">',
    '<table class="': '<table tabindex="0" class="',
    "<th></th>": '<th><span class="visually-hidden">name</span></th>',
    '<th class="head"><p></p></th>': '<th class="head"><p><span class="visually-hidden">name</span>'
    "</p></th>",
    '<summary><span class="toctree-toggle"': '<summary aria-label="pages of this part">'
    '<span class="toctree-toggle"',
}
# The theme waits for its scripts to choose between light and dark, and shows two logos until then.
CHOOSE = """{
  const page = document.documentElement.dataset;
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  if (page.theme === "auto") page.theme = dark ? "dark" : "light";
}"""
PICTURE = re.compile(r'<img\b[^>]*\bsrc="([^":?]+)[^>]*>')
SVG = re.compile(r"<svg\b[^>]*>")
LENGTH = re.compile(r"([\d.]+)(pt|px)?")
SLOT = "<img "
LAZY = '<img loading="lazy" '
REDIRECT = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>This page has moved</title>
<meta http-equiv="refresh" content="0; url={relative}">
<link rel="canonical" href="{canonical}">
</head>
<body><p>This page has moved: <a href="{relative}">go to the new page</a>.</p></body>
</html>
"""
MAP = """<?xml version="1.0" encoding="UTF-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
{pages}</urlset>
"""
LOST = """<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>There is no such page</title></head>
<body>
<h1>There is no such page</h1>
<p>The <a href="{base}">front page</a> leads to all chapters; <a href="{base}search.html">the
search</a> finds words.</p>
</body>
</html>
"""


def set_addresses(app, config) -> None:
    """Where the book is published, if it is."""
    published = os.environ.get("BOOK_REPOSITORY", "")
    options = dict(config.html_theme_options)
    options.pop("repository_url", None)  # of another book: the default of the builder
    if published:
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", published):
            raise ExtensionError(f"BOOK_REPOSITORY is {published!r}: write owner/name")
        owner, _, name = published.partition("/")
        config.html_baseurl = f"https://{owner.lower()}.github.io/{name}/"
        options["repository_url"] = f"https://github.com/{published}"
        options["repository_branch"] = "main"
        options["use_repository_button"] = True
        options["use_edit_page_button"] = True
        options["launch_buttons"] = {
            "notebook_interface": "jupyterlab",
            "binderhub_url": "https://mybinder.org",
            "colab_url": "https://colab.research.google.com",
        }
    config.html_theme_options = options


def first_words(doctree) -> str:
    """What a page says first, some thirty words: whole sentences, none with a formula."""
    for paragraph in doctree.findall(nodes.paragraph):
        told = paragraph.deepcopy()
        if not isinstance(paragraph.parent, nodes.section) or isinstance(told[0], nodes.emphasis):
            continue  # how long the page is, and what to read before it
        for formula in list(told.findall(nodes.math)):
            formula.replace_self(nodes.Text("$"))
        sentences = re.split(r"(?<=[.!?])\s+", told.astext().removeprefix("In short. "))
        plain = " ".join(sentence for sentence in sentences if "$" not in sentence)
        if len(plain.split()) > 3:
            return textwrap.shorten(plain, 200, placeholder=" ...")
    return ""


def citation(app) -> dict[str, str]:
    """What catalogues of publications ask for, from CITATION.cff."""
    cited = yaml.safe_load(Path(app.srcdir, "CITATION.cff").read_text(encoding="utf-8"))
    paper = cited["references"][0]
    authors = [f"{who['family-names']}, {who['given-names']}" for who in paper["authors"]]
    reference = {
        "citation_title": paper["title"],
        "citation_author": "; ".join(authors),
        "citation_journal_title": paper["journal"],
        "citation_publication_date": paper["year"],
        "citation_doi": paper["doi"],
    }
    return {
        "citation_title": cited["title"],
        "citation_author": cited["authors"][0]["name"],
        "citation_public_url": app.config.html_baseurl,
        "citation_reference": "; ".join(f"{name}={said}" for name, said in reference.items()),
    }


def describe(app, pagename, templatename, context, doctree) -> None:
    """Say in the head of a page what it is, to search engines and to those who share it."""
    if doctree is None:
        return
    told = {"description": first_words(doctree)}
    if base := app.config.html_baseurl:
        told |= {
            "og:title": re.sub(r"<[^>]*>", "", context["title"]),
            "og:description": told["description"],
            "og:type": "article",
            "og:url": f"{base}{pagename}.html",
            "og:image": f"{base}_static/share.png",
            "og:image:width": "1200",
            "og:image:height": "630",
            "og:image:alt": "The error of new tasks: learned alone, and lifelong.",
            "twitter:card": "summary_large_image",
        }
        if pagename in (app.config.root_doc, "book/index"):
            told |= citation(app)
    tags = [
        f'<meta {"property" if name.startswith("og:") else "name"}="{name}" '
        f'content="{html.escape(html.unescape(content))}">'
        for name, content in told.items()
        if content
    ]
    context["metatags"] = "\n".join([context.get("metatags", ""), *tags])


def load_late(app, pagename, templatename, context, doctree) -> None:
    """Mark the pictures of a page; what the theme adds around the text is left alone."""
    if "body" in context:
        context["body"] = context["body"].replace(SLOT, LAZY)


def link_inside(app, pagename, templatename, context, doctree) -> None:
    """Let links inside a document of all pages (singlehtml) lead to its own places.

    Sphinx writes them as from the folder of the site, and the first page stands in one below.
    """
    if app.builder.name == "singlehtml" and "body" in context:
        here = f'href="{app.config.root_doc}{app.builder.out_suffix}#'
        context["body"] = context["body"].replace(here, 'href="#')


def picture_size(path: Path) -> tuple[int, int] | None:
    """Width and height of a picture in pixels of the page, if its file says them."""
    if path.suffix != ".svg":
        with Image.open(path) as picture:
            return picture.size
    head = SVG.search(path.read_text(encoding="utf-8"))
    said = dict(re.findall(r'\b(width|height|viewBox)="([^"]*)"', head[0])) if head else {}
    pixels = [LENGTH.fullmatch(said.get(name, "")) for name in ("width", "height")]
    if all(pixels):
        width, height = (float(p[1]) * (4 / 3 if p[2] == "pt" else 1) for p in pixels)
    elif "viewBox" in said:
        width, height = map(float, said["viewBox"].split()[2:])
    else:
        return None
    return round(width), round(height)


def keep_room(app, exception) -> None:
    """Say how large pictures are, so that the text stays where it is when they come."""
    if exception is not None or app.builder.format != "html":
        return
    sizes: dict[Path, tuple[int, int] | None] = {}
    for page in Path(app.outdir).rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        for tag in set(PICTURE.finditer(text)):
            path = Path(os.path.normpath(page.parent / unquote(tag[1])))
            if path not in sizes:
                sizes[path] = picture_size(path) if path.is_file() else None
            if sizes[path] and not re.search(r"\b(width|height)[=:]", tag[0]):
                width, height = sizes[path]
                sized = f'<img width="{width}" height="{height}"{tag[0][len("<img") :]}'
                text = text.replace(tag[0], sized)
        page.write_text(text, encoding="utf-8")


def name_parts(app, exception) -> None:
    """Give parts of the pages the roles and names that readers of the screen go by."""
    if exception is not None or app.builder.format != "html":
        return
    for page in Path(app.outdir).rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        for markup, better in NAMED.items():
            text = text.replace(markup, better)
        page.write_text(text, encoding="utf-8")


def drop_thebe(app, pagename, templatename, context, doctree) -> None:
    """Leave out the scripts of thebe: the book has no live cells, and they clash."""
    context["script_files"] = [
        script
        for script in context.get("script_files", [])
        if "thebe" not in f"{script}{getattr(script, 'attributes', '')}".lower()
    ]


def read_search(app, pagename, templatename, context, doctree) -> None:
    """Let the search page take its excerpts as plain text."""
    if pagename == "search":
        app.add_js_file("search.js", loading_method="defer")


def drop_icon_script(app, exception) -> None:
    """Leave out Font Awesome's script, half a megabyte a page: its fonts draw the same icons."""
    if exception is not None or app.builder.format != "html":
        return
    for page in Path(app.outdir).rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        if ICONS.search(text):
            page.write_text(ICONS.sub("", text), encoding="utf-8")
    for script in Path(app.outdir, "_static", "scripts").glob("fontawesome.js*"):
        script.unlink()


def keep_shown_icons(app, exception) -> None:
    """Cut the icon fonts, and the rules that name icons, down to what the pages show."""
    static = Path(app.outdir, "_static")
    if exception is not None or app.builder.format != "html":
        return
    texts = [*Path(app.outdir).rglob("*.html"), *static.rglob("*.js")]
    shown = {name for path in texts for name in ICON.findall(path.read_text(encoding="utf-8"))}
    glyphs: set[int] = set()

    def keep(rule: re.Match[str]) -> str:
        if shown.isdisjoint(ICON.findall(rule[1])):
            return ""
        glyphs.add(int(rule[2], 16))
        return rule[0]

    for path in static.rglob("*.css"):
        style = ICON_RULE.sub(keep, path.read_text(encoding="utf-8"))
        for code, glyph in GLYPH.findall(ICON_RULE.sub("", style)):
            glyphs.add(int(code, 16) if code else ord(glyph))
        path.write_text(style, encoding="utf-8")
    for path in static.rglob("webfonts/*.ttf"):
        font = TTFont(path, recalcTimestamp=False)
        subsetter = Subsetter(Options(drop_tables=["FFTM", "GSUB", "GPOS"], notdef_outline=True))
        subsetter.populate(unicodes=glyphs)
        subsetter.subset(font)
        font.save(path)
        font.flavor = "woff2"
        font.save(path.with_suffix(".woff2"))


def write_redirects(app, exception) -> None:
    """Write a page that leads to the new address wherever a page was moved away."""
    if exception is not None or app.builder.name != "html":
        return
    text = (Path(app.srcdir) / "pyproject.toml").read_text(encoding="utf-8")
    for old, new in tomllib.loads(text)["tool"]["lml"].get("redirects", {}).items():
        where = f"pyproject.toml: [tool.lml.redirects] leads from {old} to {new}"
        if new not in app.env.found_docs:
            raise ExtensionError(f"{where}, but there is no page {new}")
        if old in app.env.found_docs:
            raise ExtensionError(f"{where}, but the page {old} is still there")
        relative = posixpath.relpath(f"{new}.html", posixpath.dirname(old))
        base = app.config.html_baseurl.rstrip("/")
        page = Path(app.outdir, f"{old}.html")
        page.parent.mkdir(parents=True, exist_ok=True)
        canonical = f"{base}/{new}.html" if base else relative
        page.write_text(REDIRECT.format(relative=relative, canonical=canonical), encoding="utf-8")


def write_map(app, exception) -> None:
    """Write the map of a published site, and its page for dead links."""
    base = app.config.html_baseurl
    if exception is not None or app.builder.name != "html" or not base:
        return
    pages = "".join(
        f"<url><loc>{base}{name}.html</loc></url>\n" for name in sorted(app.env.found_docs)
    )
    Path(app.outdir, "sitemap.xml").write_text(MAP.format(pages=pages), encoding="utf-8")
    Path(app.outdir, "404.html").write_text(LOST.format(base=base), encoding="utf-8")


def setup(app):
    app.connect("config-inited", set_addresses, priority=300)
    app.connect("html-page-context", describe)
    app.connect("build-finished", write_map)
    app.connect("html-page-context", load_late)
    app.connect("html-page-context", link_inside)
    app.connect("html-page-context", drop_thebe, priority=900)
    app.connect("html-page-context", read_search)
    app.add_js_file(None, body=CHOOSE, priority=100)
    app.connect("build-finished", keep_room)
    app.connect("build-finished", name_parts)
    app.connect("build-finished", drop_icon_script)
    app.connect("build-finished", keep_shown_icons)
    app.connect("build-finished", write_redirects)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
