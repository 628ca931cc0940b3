"""Pictures with a slider: several drawings in one place, of which the page shows one at a time.

A chapter computes what is drawn, checks it, and ends a cell with a `Slider`. Notebooks import this
module from the folder they run in; it is no part of the package. The page's script
(_static/sliders.js) adds the slider; where there is no script one drawing is seen.
"""

from __future__ import annotations

import base64
import struct
import zlib
from dataclasses import dataclass
from html import escape
from itertools import pairwise

import numpy as np

WIDTH = 334  # units of a drawing, which are pixels on a phone
BLUE, ORANGE, INK, GRAY = "#1f6f8b", "#d07a22", "#1c2a33", "#9aa7b0"
STYLE = (
    'fill="none" stroke-width="1.8" stroke-linejoin="round" stroke-linecap="round" '
    'font-family="system-ui, DejaVu Sans, sans-serif" font-size="11"'
)


def _number(value: float) -> str:
    """A tenth of a pixel is enough, and there is no -0."""
    return f"{round(float(value), 1) + 0.0:g}"


@dataclass(frozen=True)
class Panel:
    """A rectangle of the drawing with axes of its own; its methods return shapes as SVG.

    `x` and `y` are the ranges of the data, `box` is (left, top, width, height) in units.
    Points are arrays of shape (n, 2).
    """

    x: tuple[float, float]
    y: tuple[float, float]
    box: tuple[float, float, float, float]

    def _places(self, points) -> list[str]:
        left, top, width, height = self.box
        points = np.asarray(points, dtype=float).reshape(-1, 2)
        across = left + width * (points[:, 0] - self.x[0]) / (self.x[1] - self.x[0])
        down = top + height * (self.y[1] - points[:, 1]) / (self.y[1] - self.y[0])
        return [f"{_number(a)} {_number(b)}" for a, b in zip(across, down, strict=True)]

    def line(self, points, color: str = INK, width: float = 1.8, dash: str = "") -> str:
        """A line through the points; `dash` is "4 3", say."""
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        path = "L".join(self._places(points))
        return f'<path d="M{path}" stroke="{color}" stroke-width="{width}"{dashed}/>'

    def dots(self, points, color: str = INK, size: float = 7) -> str:
        """Round dots: lines of no length with round ends."""
        path = "".join(f"M{place}h0" for place in self._places(points))
        return f'<path d="{path}" stroke="{color}" stroke-width="{size}"/>'

    def arrow(self, start, end, color: str = INK) -> str:
        """A line with a head."""
        tail, tip = ([float(v) for v in place.split()] for place in self._places([start, end]))
        back = np.subtract(tail, tip)
        length = np.hypot(*back)
        if length < 1:
            return ""
        back = 7 * back / length
        wing = 0.5 * np.array([-back[1], back[0]])
        corners = " ".join(_number(v) for v in [*tip, *(tip + back + wing), *(tip + back - wing)])
        head = f'<polygon points="{corners}" fill="{color}" stroke="{color}" stroke-width="1"/>'
        return self.line([start, end], color) + head

    def text(self, point, said: str, color: str = INK, anchor: str = "middle", down: float = 4):
        """A few words; `anchor` is start, middle or end, `down` moves them by units."""
        across, place = self._places(point)[0].split()
        at = f'x="{across}" y="{_number(float(place) + down)}"'
        return f'<text {at} text-anchor="{anchor}" fill="{color}">{escape(said)}</text>'

    def axes(self, xlabel: str = "", ylabel: str = "", xticks=(), yticks=()) -> str:
        """The left and the lower edge, with numbers; the label of y stands above its axis."""
        (left, right), (low, high) = self.x, self.y
        edges = self.line([[left, high], [left, low], [right, low]], GRAY, 1)
        numbers = [self.text([t, low], f"{t:g}", down=15) for t in xticks]
        numbers += [self.text([left, t], f"{t:g}\u00a0", anchor="end", down=4) for t in yticks]
        middle = self.text([(left + right) / 2, low], xlabel, down=29 if len(xticks) else 16)
        return edges + "".join(numbers) + middle + self.text([left, high], ylabel, down=-9)

    def image(self, values, largest: float) -> str:
        """A matrix over the whole panel: blue above zero, orange below, white at zero."""
        left, top, width, height = (_number(v) for v in self.box)
        place = f'x="{left}" y="{top}" width="{width}" height="{height}"'
        look = 'style="image-rendering:pixelated" preserveAspectRatio="none"'
        return f'<image {place} {look} href="{_png(np.asarray(values) / largest)}"/>'


def _png(values) -> str:
    """A picture of numbers between -1 and 1 in fifteen colors, as the address of its data."""
    shares = np.linspace(-1, 1, 15)[:, None]
    blue, orange = ([int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in (BLUE, ORANGE))
    ends = np.where(shares > 0, blue, orange)
    palette = np.round(255 + abs(shares) * (ends - 255.0)).astype(np.uint8).tobytes()
    levels = np.round(7 + 7 * np.clip(values, -1, 1)).astype(np.uint8)
    height, width = levels.shape
    levels = np.pad(levels, ((0, 0), (0, width % 2)))
    lines = levels[:, ::2] << 4 | levels[:, 1::2]  # four bits a pixel
    packed = b"".join(b"\0" + line.tobytes() for line in lines)
    header = struct.pack(">2I5B", width, height, 4, 3, 0, 0, 0)
    parts = [(b"IHDR", header), (b"PLTE", palette), (b"IDAT", zlib.compress(packed, 0))]
    data = b"\x89PNG\r\n\x1a\n"
    for name, body in [*parts, (b"IEND", b"")]:
        check = struct.pack(">I", zlib.crc32(name + body))
        data += struct.pack(">I", len(body)) + name + body + check
    return "data:image/png;base64," + base64.b64encode(data).decode()


@dataclass(frozen=True)
class Slider:
    """Drawings of which one is shown.

    `frames` maps what is said below a drawing to its shapes, `back` is behind all of them,
    `still` the number of the one that is seen first, `name` what the slider sets, `alt` the words
    for those who do not see it.
    """

    name: str
    frames: dict[str, str]
    still: int
    height: int
    alt: str
    back: str = ""

    def _repr_html_(self) -> str:
        drawings = ""
        for number, (said, shapes) in enumerate(self.frames.items()):
            hidden = "" if number == self.still else ' display="none"'
            drawings += f'<g data-label="{escape(said)}"{hidden}>{shapes}</g>'
        said = escape(list(self.frames)[self.still])
        return (
            f'<div class="lml-slider" data-name="{escape(self.name)}" data-still="{self.still}">'
            f'<svg viewBox="0 0 {WIDTH} {self.height}" width="440" role="img" '
            f'aria-label="{escape(self.alt)}" {STYLE}>'
            f'<rect width="{WIDTH}" height="{self.height}" fill="#fff"/>{self.back}{drawings}</svg>'
            f"<p>{said}</p></div>"
        )

    def __repr__(self) -> str:
        said = list(self.frames)
        return f"Slider: {len(said)} drawings, from '{said[0]}' to '{said[-1]}'"


def tasks_slider(atoms, errors, alone, still: int = -1) -> Slider:
    """What is shared, and the errors of all tasks so far, as tasks arrive.

    Parameters
    ----------
    atoms : array-like of shape (n_tasks, 8, n_pixels)
        Eight directions after each task, the strongest first, as square images. Their signs are
        chosen to agree with those of the drawing before.
    errors : array-like of shape (n_tasks, n_tasks)
        errors[t, u] is the error in % of task u after task t has arrived, for u <= t.
    alone : array-like of shape (n_tasks,)
        Errors in % of the tasks learned alone.
    still : int
        The drawing that is seen first.
    """
    atoms, errors, alone = (np.array(a, dtype=float) for a in (atoms, errors, alone))
    n_tasks, side = len(atoms), round(atoms.shape[-1] ** 0.5)
    for before, after in pairwise(atoms):
        after *= np.where(np.sum(before * after, axis=1) < 0, -1, 1)[:, None]
    grid = Panel((0, 1), (0, 1), (8, 28, 312, 154))
    highest = 5 * np.ceil(np.nanmax([*alone, *errors.ravel()]) / 5)
    curve = Panel((1, n_tasks), (0, highest), (34, 220, 286, 84))
    numbers = np.arange(1, n_tasks + 1)
    back = curve.axes("task", "", [1, n_tasks], [0, highest])
    back += curve.line(np.c_[numbers, alone], ORANGE)
    back += grid.text([0, 1], "shared directions", anchor="start", down=-10)
    words = "error in %: alone (orange), lifelong (blue)"
    back += curve.text([1, highest], words, anchor="start", down=-12)
    frames = {}
    for t in range(n_tasks):
        image = np.zeros((2 * side + 1, 4 * side + 3))
        for number, atom in enumerate(atoms[t]):
            row, column = divmod(number, 4)
            corner = image[row * (side + 1) :, column * (side + 1) :]
            corner[:side, :side] = atom.reshape(side, side)
        seen = np.c_[numbers, errors[t]][: t + 1]
        shapes = grid.image(image, abs(image).max() or 1) + curve.line(seen, BLUE)
        shapes += curve.dots(seen, BLUE, 5)
        count = f"{t + 1} tasks" if t else "1 task"
        said = f"{count}: mean error {seen[:, 1].mean():.1f} %, alone {alone[: t + 1].mean():.1f} %"
        frames[said] = shapes
    alt = "Eight small images of pixels that change with the tasks, and two curves of errors."
    return Slider("tasks that have arrived", frames, still % n_tasks, 338, alt, back)
