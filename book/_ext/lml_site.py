"""Sphinx extension of the book: what is sent to a reader, and old addresses.

Pages load neither the scripts of thebe nor Font Awesome's script of half a megabyte: its fonts
draw the same icons, and hold only those that the site shows. Pictures are loaded when the
reader comes near them. A page that was moved leaves a small page at its old address, as
``[tool.lml.redirects]`` says.
"""

from __future__ import annotations

import posixpath
import re
import tomllib
from pathlib import Path

from fontTools.subset import Options, Subsetter
from fontTools.ttLib import TTFont
from sphinx.errors import ExtensionError

ICONS = re.compile(r"\s*<(?:script|link)\b[^>]*scripts/fontawesome\.js[^>]*>(?:</script>)?")
ICON = re.compile(r"(?<![\w-])fa-([a-z0-9-]+)")
ICON_RULE = re.compile(r'((?:\.fa-[\w-]+:before,?)+)\{content:"\\([0-9a-f]+)"\}')
GLYPH = re.compile(r"\\(f[0-9a-f]{3})(?![0-9a-f])")  # in other rules
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


def load_late(app, pagename, templatename, context, doctree) -> None:
    """Mark the pictures of a page; what the theme adds around the text is left alone."""
    if "body" in context:
        context["body"] = context["body"].replace(SLOT, LAZY)


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
        glyphs.update(int(code, 16) for code in GLYPH.findall(ICON_RULE.sub("", style)))
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


def setup(app):
    app.connect("html-page-context", load_late)
    app.connect("html-page-context", drop_thebe, priority=900)
    app.connect("html-page-context", read_search)
    app.connect("build-finished", drop_icon_script)
    app.connect("build-finished", keep_shown_icons)
    app.connect("build-finished", write_redirects)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
