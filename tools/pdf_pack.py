"""Write a PDF with its small objects in compressed streams.

pypdf writes each object as plain text, with a line of 20 bytes in a table of places. The tags of
the volume are a few hundred thousand small objects that resemble each other. PDF 1.5 knows streams
that hold many objects (ISO 32000-1, 7.5.7), and a table of places that is a stream (7.5.8): both
are compressed. Nothing else changes.
"""

from __future__ import annotations

import io
import zlib
from pathlib import Path

from pypdf import PdfWriter
from pypdf.generic import (
    ArrayObject,
    NameObject,
    NumberObject,
    PdfObject,
    StreamObject,
)

TOGETHER = 250  # objects in a stream: a reader unpacks all of them to see one
PLACE = (1, 4, 2)  # bytes of a line in the table: kind; offset or stream; place in the stream
FREE, ALONE, PACKED = range(3)


def written(thing: PdfObject) -> bytes:
    """An object as it stands in a file."""
    text = io.BytesIO()
    thing.write_to_stream(text)
    return text.getvalue()


def compressed(content: bytes, **entries: PdfObject) -> StreamObject:
    """A stream of the file itself, such as a table of places."""
    stream = StreamObject()
    stream.update({NameObject(f"/{key}"): value for key, value in entries.items()})
    stream[NameObject("/Filter")] = NameObject("/FlateDecode")
    stream.set_data(zlib.compress(content, 9))
    return stream


def packed(objects: list[tuple[int, bytes]]) -> StreamObject:
    """One stream with these objects, each given by its number and its text."""
    places, content = [], b""
    for number, text in objects:
        places.append(f"{number} {len(content)}")
        content += text + b"\n"
    head = f"{' '.join(places)}\n".encode()
    return compressed(
        head + content,
        Type=NameObject("/ObjStm"),
        N=NumberObject(len(objects)),
        First=NumberObject(len(head)),
    )


def write_packed(writer: PdfWriter, path: Path) -> None:
    """Write what pypdf has bound, small."""
    size = len(writer._objects) + 1
    small: list[tuple[int, bytes]] = []
    large: list[tuple[int, PdfObject]] = []
    for number, thing in enumerate(writer._objects, 1):
        if isinstance(thing, StreamObject):
            large.append((number, thing))  # pictures, fonts, pages: these stand alone
        elif thing is not None:
            small.append((number, written(thing)))

    places: dict[int, tuple[int, int, int]] = {}
    for start in range(0, len(small), TOGETHER):
        group = small[start : start + TOGETHER]
        large.append((size, packed(group)))
        for order, (number, _) in enumerate(group):
            places[number] = (PACKED, size, order)
        size += 1

    with path.open("wb") as file:
        file.write(b"%PDF-1.5\n%\xe2\xe3\xcf\xd3\n")
        for number, thing in large:
            places[number] = (ALONE, file.tell(), 0)
            file.write(b"%d 0 obj\n%s\nendobj\n" % (number, written(thing)))
        start = file.tell()
        places[size] = (ALONE, start, 0)
        lines = [places.get(number, (FREE, 0, 0)) for number in range(size + 1)]
        table = compressed(
            b"".join(
                value.to_bytes(width)
                for line in lines
                for value, width in zip(line, PLACE, strict=True)
            ),
            Type=NameObject("/XRef"),
            Size=NumberObject(len(lines)),
            W=ArrayObject(map(NumberObject, PLACE)),
            Root=writer.root_object.indirect_reference,
            Info=writer._info.indirect_reference,
        )
        file.write(b"%d 0 obj\n%s\nendobj\n" % (size, written(table)))
        file.write(b"startxref\n%d\n%%%%EOF\n" % start)
