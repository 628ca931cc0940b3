"""Sphinx extension of the book: pictures are loaded when the reader comes near them."""

from __future__ import annotations

SLOT = "<img "
LAZY = '<img loading="lazy" '


def load_late(app, pagename, templatename, context, doctree) -> None:
    """Mark the pictures of a page; what the theme adds around the text is left alone."""
    if "body" in context:
        context["body"] = context["body"].replace(SLOT, LAZY)


def setup(app):
    app.connect("html-page-context", load_late)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
