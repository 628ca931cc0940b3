"""Print the chapters of the built site, and bind them to one volume, in _build/pdf.

Headless Chromium prints each page with the style for paper (book/_static/lml.css): equations,
fonts, an outline of the sections and tags come along. pypdf binds the files: links from chapter
to chapter lead to pages of the volume, chapters and sections are its bookmarks, their tags become
one tree, and a list of contents stands in front. The site gets a link to the volume beside its
downloads.

Usage: ``python tools/pdf.py [--site _build/html] [--out _build/pdf] [NAME ...]``. Names of pages
limit the volume to them.
"""

from __future__ import annotations

import argparse
import html
import io
import sys
import time
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urldefrag, urlparse

import pikepdf
import yaml
from browser import browser_path, launch, open_page, serve
from playwright.sync_api import Page
from pypdf import PageObject, PdfReader, PdfWriter
from pypdf.generic import (
    ArrayObject,
    BooleanObject,
    DictionaryObject,
    IndirectObject,
    NameObject,
    NullObject,
    NumberObject,
    PdfObject,
    TextStringObject,
)
from tangle import ROOT, toc_files

VOLUME = "lifelong-metric-learning.pdf"
PAPER = {
    "format": "A4",
    "scale": 0.8,
    "print_background": True,
    "outline": True,
    "tagged": True,
    "prefer_css_page_size": True,
}
# A number at the foot of each page, the chapter at its head, and a place in the file for each
# anchor: Chromium writes one only where a link of the same page leads.
PREPARE = """([title, pages]) => {
  document.documentElement.dataset.theme = 'light';
  const style = document.createElement('style');
  style.textContent = `
    html { counter-reset: page ${pages}; }
    @page {
      @bottom-center { content: counter(page); font: 10pt sans-serif; color: #555; }
      @top-right { content: ${JSON.stringify(title)}; font: 9pt sans-serif; color: #777; }
    }`;
  document.head.append(style);
  const links = document.createElement('div');
  links.hidden = true;
  for (const {id} of document.querySelectorAll('article [id]')) {
    const link = document.createElement('a');
    link.href = '#' + id;
    links.append(link);
  }
  document.body.append(links);
}"""
CONTENTS = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>
  @page {{ margin: 25mm 22mm; }}
  body {{ font-family: sans-serif; font-size: 12pt; line-height: 1.45; }}
  h1 {{ font-size: 30pt; margin-top: 30mm; }}
  h2 {{ font-size: 15pt; break-before: page; }}
  h3 {{ break-after: avoid; font-size: 12pt; margin: 1.1em 0 0.2em; }}
  p {{ display: flex; justify-content: space-between; margin: 0; }}
  a {{ color: inherit; text-decoration: none; }}
</style></head>
<body><h1>{title}</h1><div>{author}</div><h2>Contents</h2>
{lines}
</body></html>
"""
BUTTON = '<ul class="dropdown-menu">'
LINK = '<li><a class="btn btn-sm dropdown-item" href="{path}">The book as PDF</a></li>'


class Chapter(NamedTuple):
    """A printed page of the site: its name, its title, its file and its first page from 0."""

    name: str
    title: str
    file: Path
    first: int
    pages: int


def print_chapter(page: Page, base: str, name: str, out: Path, first: int) -> Chapter:
    """Print one page of the site, its pages numbered from `first` + 1."""
    open_page(page, f"{base}{name}.html")
    title = page.title().partition(" \u2014 ")[0]
    page.evaluate(PREPARE, [title, first])
    file = out / f"{name.removeprefix('book/').replace('/', '-')}.pdf"
    page.pdf(path=file, **PAPER)
    return Chapter(name, title, file, first, len(PdfReader(file).pages))


def parts(root: Path) -> dict[str, str]:
    """The caption of the part that begins with a page."""
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    return {part["chapters"][0]["file"]: part["caption"] for part in toc["parts"]}


def print_contents(page: Page, base: str, chapters: list[Chapter], out: Path) -> Chapter:
    """Print the title and the list of contents; links lead to the chapters."""
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    captions, lines = parts(ROOT), []
    for chapter in chapters:
        if caption := captions.get(chapter.name):
            lines.append(f"<h3>{html.escape(caption)}</h3>")
        lines.append(
            f'<p><a href="{base}{chapter.name}.html">{html.escape(chapter.title)}</a>'
            f"<span>{chapter.first + 1}</span></p>"
        )
    text = CONTENTS.format(title=config["title"], author=config["author"], lines="\n".join(lines))
    page.set_content(text)
    file = out / "contents.pdf"
    page.pdf(path=file, **PAPER)
    return Chapter("", config["title"], file, 0, len(PdfReader(file).pages))


def destination(writer: PdfWriter, page: int, left: object, top: object) -> ArrayObject:
    """A place in the volume: a page of it, and where on that page."""
    where = [value if isinstance(value, (int, float)) else None for value in (left, top)]
    spot = [NullObject() if value is None else NumberObject(round(value)) for value in where]
    return ArrayObject(
        [writer.pages[page].indirect_reference, NameObject("/XYZ"), *spot, NullObject()]
    )


def bind(front: Chapter, chapters: list[Chapter], base: str) -> tuple[PdfWriter, int]:
    """The volume, and how many of its links lead nowhere in it."""
    writer = PdfWriter()
    tags = Tags(writer)
    places: dict[tuple[str, str], ArrayObject] = {}
    for chapter in [front, *chapters]:
        reader = PdfReader(chapter.file)
        start = len(writer.pages)
        writer.append(reader, import_outline=False)
        tags.add(reader, writer.pages[start:])
        places[chapter.name, ""] = destination(writer, start, None, None)
        for anchor, there in reader.named_destinations.items():
            page = start + reader.get_destination_page_number(there)
            spot = destination(writer, page, there.left, there.top)
            places[chapter.name, unquote(anchor.lstrip("/"))] = spot
        add_bookmarks(writer, reader, reader.outline, start, None)
    lost = 0
    number = 0
    for chapter in [front, *chapters]:
        for _ in range(chapter.pages):
            for annotation in writer.pages[number].get("/Annots", []):
                lost += lead(annotation.get_object(), chapter.name, base, places)
            number += 1
    writer.set_page_label(0, front.pages - 1, style="/r")
    writer.set_page_label(front.pages, len(writer.pages) - 1, style="/D", start=1)
    writer.add_metadata({"/Title": front.title})
    writer.root_object[NameObject("/Lang")] = TextStringObject("en")
    writer.page_mode = "/UseOutlines"
    tags.finish()
    writer.compress_identical_objects(remove_unreferenced=True)
    return writer, lost


class Tags:
    """The tags of the chapters as one tree, which a screen reader goes by.

    A page and its links name their places in a list of their file by number. In the volume the
    lists stand one behind the other, so the numbers of a chapter grow by the length of those before
    it. Names of table heads get that number in front.
    """

    def __init__(self, writer: PdfWriter) -> None:
        self.writer = writer
        self.root = DictionaryObject({NameObject("/Type"): NameObject("/StructTreeRoot")})
        self.here = writer._add_object(self.root)
        self.documents = ArrayObject()
        self.places = ArrayObject()
        self.heads: dict[str, IndirectObject] = {}
        self.next = 0

    def add(self, reader: PdfReader, pages: list[PageObject]) -> None:
        """Take in the tags of a chapter whose pages are in the volume already."""
        theirs = reader.root_object["/StructTreeRoot"]
        document = theirs["/K"].clone(self.writer)  # its pages are those of the volume
        document[NameObject("/P")] = self.here
        self.documents.append(document.indirect_reference)
        numbers, places = theirs["/ParentTree"]["/Nums"][::2], theirs["/ParentTree"]["/Nums"][1::2]
        for number, place in zip(numbers, places, strict=True):
            self.places += [NumberObject(self.next + number), place.clone(self.writer)]
        for page, printed in zip(pages, reader.pages, strict=True):
            number = NumberObject(self.next + printed["/StructParents"])  # pypdf leaves it out
            page[NameObject("/StructParents")] = number
            for annotation in page.get("/Annots", []):
                link = annotation.get_object()
                link[NameObject("/StructParent")] = NumberObject(self.next + link["/StructParent"])
        self.rename(document)
        self.next += theirs["/ParentTreeNextKey"]

    def rename(self, element: DictionaryObject) -> None:
        """Tell apart the table heads below an element, and where cells name them."""
        if "/ID" in element:
            name = f"{self.next:06}-{element['/ID']}"
            element[NameObject("/ID")] = TextStringObject(name)
            self.heads[name] = element.indirect_reference
        for said in many(element, "/A"):
            if "/Headers" in said:
                names = [f"{self.next:06}-{head}" for head in said["/Headers"]]
                said[NameObject("/Headers")] = ArrayObject(map(TextStringObject, names))
        for kid in many(element, "/K"):
            if isinstance(kid, DictionaryObject):
                self.rename(kid)

    def finish(self) -> None:
        """Write the tree into the volume."""
        heads = ArrayObject()
        for name in sorted(self.heads):
            heads += [TextStringObject(name), self.heads[name]]
        said = {
            "/K": self.documents,
            "/ParentTree": DictionaryObject({NameObject("/Nums"): self.places}),
            "/ParentTreeNextKey": NumberObject(self.next),
            "/IDTree": DictionaryObject({NameObject("/Names"): heads}),
        }
        self.root.update({NameObject(key): value for key, value in said.items()})
        marked = DictionaryObject({NameObject("/Marked"): BooleanObject(True)})
        self.writer.root_object[NameObject("/MarkInfo")] = marked
        self.writer.root_object[NameObject("/StructTreeRoot")] = self.here


def write_small(writer: PdfWriter, path: Path) -> None:
    """Write the volume; its small objects, most of them tags, stand in compressed streams."""
    plain = io.BytesIO()
    writer.write(plain)
    with pikepdf.open(plain) as volume:
        volume.save(path, object_stream_mode=pikepdf.ObjectStreamMode.generate)


def many(element: DictionaryObject, key: str) -> list[PdfObject]:
    """What stands under a key, whether it is one thing or a list."""
    value = element.get(key, ArrayObject()).get_object()
    return [one.get_object() for one in (value if isinstance(value, list) else [value])]


def add_bookmarks(writer: PdfWriter, reader: PdfReader, outline: list, start: int, parent) -> None:
    """Bookmarks of a chapter: its title, and its sections below."""
    last = parent
    for entry in outline:
        if isinstance(entry, list):
            add_bookmarks(writer, reader, entry, start, last)
        else:
            page = start + reader.get_destination_page_number(entry)
            title = entry.title.rstrip("#").strip()
            last = writer.add_outline_item(
                title=title, page_number=page, parent=parent, is_open=False
            )


def lead(link: DictionaryObject, name: str, base: str, places: dict) -> bool:
    """Let a link to the site or to an anchor lead to a page of the volume; whether it cannot."""
    action = link["/A"].get_object() if "/A" in link else {}
    if "/Dest" in link or action.get("/S") == "/GoTo":
        anchor = str(link.get("/Dest") or action["/D"]).lstrip("/")
        target = (name, unquote(anchor))
    elif str(action.get("/URI", "")).startswith(base):
        address, anchor = urldefrag(str(action["/URI"]))
        path = unquote(urlparse(address).path).strip("/").removesuffix(".html")
        target = (path, unquote(anchor))
    else:
        return False
    place = places.get(target) or places.get((target[0], ""))
    link.pop("/A", None)
    link.pop("/Dest", None)
    if place is not None:
        link[NameObject("/Dest")] = place
    return target not in places


def link_from_site(site: Path, volume: Path) -> int:
    """Put the volume beside the downloads of the site's pages; how many got a link."""
    (site / VOLUME).write_bytes(volume.read_bytes())
    count = 0
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        if VOLUME not in text and BUTTON in text:
            up = "../" * (len(page.relative_to(site).parts) - 1)
            link = LINK.format(path=up + VOLUME)
            page.write_text(text.replace(BUTTON, BUTTON + link, 1), encoding="utf-8")
            count += 1
    return count


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="pages to bind, as book/oasis; all by default")
    parser.add_argument("--site", type=Path, default=ROOT / "_build" / "html")
    parser.add_argument("--out", type=Path, default=ROOT / "_build" / "pdf")
    options = parser.parse_args(argv)
    site, out = options.site.resolve(), options.out.resolve()
    names = options.names or [file for file, _ in toc_files(ROOT)]
    if not (site / f"{names[0]}.html").exists():
        sys.exit(f"pdf: no pages in {site}: run `make book` first")
    if browser_path() is None:
        sys.exit("pdf: no Chromium found: install one or name it in CHROME")
    out.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    chapters: list[Chapter] = []
    with serve(site) as base, launch() as browser:
        page = browser.new_page()
        for name in names:
            first = sum(chapter.pages for chapter in chapters)
            chapters.append(print_chapter(page, base, name, out, first))
        front = print_contents(page, base, chapters, out)
    writer, lost = bind(front, chapters, base)
    volume = out / VOLUME
    write_small(writer, volume)
    if not options.names:
        link_from_site(site, volume)
    seconds = time.perf_counter() - began
    print(
        f"pdf: {len(chapters)} chapters, {len(writer.pages)} pages, "
        f"{volume.stat().st_size / 1e6:.1f} MB in {seconds:.0f} s; "
        f"{lost} links lead to no place of it\nThe volume: file://{volume}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
