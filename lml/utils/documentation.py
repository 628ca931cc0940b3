# Generated from book/door.ipynb by tools/tangle.py: edit the chapter.
"""Where the book is published, and the link to it from the HTML of an estimator."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, metadata

__all__ = ["DocumentedMixin", "book_address"]


# book/door.ipynb#a-link-to-the-book
def book_address() -> str:
    """Where the book is, by the URL "Documentation" of the installed package; empty without one."""
    try:
        addresses = metadata("lifelong-metric-learning").get_all("Project-URL") or []
    except PackageNotFoundError:  # used from its folder, without being installed
        return ""
    parts = [entry.partition(",") for entry in addresses]
    named = {label.strip().lower(): address.strip() for label, _, address in parts}
    return named.get("documentation", "").rstrip("/")


class DocumentedMixin:
    """The HTML of an estimator links to its entry in the book, where the book has an address."""

    _doc_link_module = "lml"

    @property
    def _doc_link_template(self) -> str:
        address = book_address()
        module = type(self).__module__
        page = f"{address}/book/api/{module.partition('.')[2]}.html"
        return f"{page}#{module}.{type(self).__name__}" if address else ""
