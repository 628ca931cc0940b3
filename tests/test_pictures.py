"""The pictures of the book: colors, bytes, and the drawings behind a slider."""

from __future__ import annotations

import base64
import re
import shutil
import xml.etree.ElementTree as ET
import zlib
from itertools import combinations

import matplotlib
import nbformat
import numpy as np
import pytest
import slider
from execute import execute, slim
from lml_site import load_late
from tangle import ROOT

STYLE = matplotlib.rc_params_from_file(ROOT / "book" / "matplotlibrc", use_default_template=False)
# What a color becomes, in linear RGB (Machado, Oliveira and Fernandes 2009, full strength).
SIGHT = {
    "full": np.eye(3),
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "tritanopia": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def lab(color: str, sight) -> np.ndarray:
    """CIE L*a*b* of a color as somebody sees it."""
    shares = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
    ratios = XYZ @ np.clip(sight @ linear, 0, 1) / XYZ.sum(axis=1)
    roots = np.where(ratios > 0.008856, np.cbrt(ratios), 7.787 * ratios + 16 / 116)
    return np.array([116 * roots[1] - 16, 500 * (roots[0] - roots[1]), 200 * (roots[1] - roots[2])])


@pytest.mark.parametrize("sight", SIGHT)
def test_colors_of_figures_stay_apart_however_one_sees_them(sight):
    colors = STYLE["axes.prop_cycle"].by_key()["color"]
    places = [lab(color, np.array(SIGHT[sight])) for color in [*colors, "#ffffff"]]
    assert min(np.linalg.norm(a - b) for a, b in combinations(places, 2)) > 20


def test_colors_are_those_of_the_logo_and_of_the_sliders():
    logo = (ROOT / "book/_static/logo-light.svg").read_text(encoding="utf-8")
    colors = STYLE["axes.prop_cycle"].by_key()["color"]
    assert all(color in logo for color in colors[:3])
    assert colors == [slider.BLUE, slider.ORANGE, slider.INK, slider.GRAY]


def test_text_of_a_figure_can_be_read_on_a_phone():
    shown = 342  # pixels of a figure in a window of 390
    sizes = [size for name, size in STYLE.items() if name.endswith("size") and "marker" not in name]
    sizes = [size for size in sizes if isinstance(size, float)]
    assert min(sizes) * shown / (72 * STYLE["figure.figsize"][0]) >= 11
    assert shown >= slider.WIDTH
    assert 'font-size="11"' in slider.STYLE


def stored_drawings():
    for path in sorted((ROOT / "book").rglob("*.ipynb")):
        for cell in nbformat.read(path, as_version=4).cells:
            for output in cell.get("outputs", []):
                if "image/svg+xml" in output.get("data", {}):
                    yield path.stem, cell, output.data["image/svg+xml"]


def test_stored_drawings_are_narrow_enough_for_a_phone_and_have_no_date():
    wide = []
    for name, cell, drawing in stored_drawings():
        width = float(re.search(r'width="([\d.]+)pt"', drawing)[1])
        if 11 * 342 / width < 11 or "<dc:date" in drawing:
            wide.append(f"{name} {cell.id}: {width:.0f} points")
    assert not wide, f"let the style set the size of the figure, at most 4.75 inches: {wide}"


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """Run kernels with the settings that `make` gives them."""
    profile = tmp_path / "ipython" / "profile_default"
    profile.mkdir(parents=True)
    shutil.copy(ROOT / "tools" / "ipython_kernel_config.py", profile)
    monkeypatch.setenv("IPYTHONDIR", str(profile.parent))
    monkeypatch.setenv("JUPYTER_PREFER_ENV_PATH", "1")
    shutil.copy(ROOT / "book" / "matplotlibrc", tmp_path)  # read where the notebook runs
    monkeypatch.delenv("MATPLOTLIBRC", raising=False)


@pytest.mark.slow
def test_two_runs_give_the_same_bytes(tmp_path, kernel):
    source = "import matplotlib.pyplot as plt\nplt.plot([1, 3], '--', label='a')\nplt.legend()\n"
    source += "plt.scatter([0, 1], [1, 2])\nplt.imshow([[1, 2]])\nplt.show()"
    for name in ("first", "second"):
        cells = [nbformat.v4.new_code_cell(source, id="one")]
        nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / f"{name}.ipynb")
        execute(tmp_path / f"{name}.ipynb")
    first, second = ((tmp_path / f"{n}.ipynb").read_bytes() for n in ("first", "second"))
    assert first == second
    assert b"image/svg+xml" in first
    assert b"image/png" not in first.replace(b"data:image/png", b"")


def test_a_slimmer_drawing_keeps_its_scales():
    svg = (
        '<g transform="translate(1.23456 7.0) scale(0.015625)">\n <path d="M 0.123456 -2.5"/>\n</g>'
    )
    slimmer = '<g transform="translate(1.23 7.0) scale(0.015625)"><path d="M 0.12 -2.5"/></g>'
    assert slim(svg) == slimmer


def test_pictures_of_a_page_are_loaded_late():
    context = {"body": '<p><img alt="a" src="b.svg" /></p>', "sidebar": "<img >"}
    load_late(None, "page", "page.html", context, None)
    assert context["body"] == '<p><img loading="lazy" alt="a" src="b.svg" /></p>'
    assert context["sidebar"] == "<img >"
    load_late(None, "search", "search.html", context := {}, None)
    assert context == {}


def example() -> slider.Slider:
    panel = slider.Panel((0, 1), (0, 2), (10, 20, 100, 50))
    back = panel.axes("x < 1", "y", [0, 1], [0, 2])
    frames = {
        f"{i} & more": panel.dots([[i / 2, i]]) + panel.image([[-1, 0, i]], 1) for i in range(3)
    }
    return slider.Slider('the "i"', frames, 1, 90, "Three dots <rise>.", back)


def test_a_slider_is_well_formed_and_shows_one_drawing_without_a_script():
    html = example()._repr_html_()
    assert html == example()._repr_html_()
    box = ET.fromstring(html)
    drawings = box.findall("svg/g[@data-label]")
    assert [d.get("data-label") for d in drawings] == ["0 & more", "1 & more", "2 & more"]
    assert [d.get("display") for d in drawings] == ["none", None, "none"]
    assert box.find("p").text == "1 & more"
    assert box.find("svg").get("aria-label") == "Three dots <rise>."
    assert repr(example()) == "Slider: 3 drawings, from '0 & more' to '2 & more'"


def test_a_stream_of_tasks_keeps_the_signs_of_its_atoms():
    atoms = np.tile(np.linspace(-1, 1, 16), (2, 8, 1))
    errors, alone = np.array([[9.0, np.nan], [7.0, 5.0]]), [9.0, 8.0]
    plain = slider.tasks_slider(atoms, errors, alone)
    assert list(plain.frames) == [
        "1 task: mean error 9.0 %, alone 9.0 %",
        "2 tasks: mean error 6.0 %, alone 8.5 %",
    ]
    turned = atoms * np.array([1, -1])[:, None, None]
    assert slider.tasks_slider(turned, errors, alone)._repr_html_() == plain._repr_html_()


def test_places_of_points_and_arrows():
    panel = slider.Panel((0, 1), (0, 2), (10, 20, 100, 50))
    assert 'd="M10 70h0M110 20h0M60 45h0"' in panel.dots([[0, 0], [1, 2], [0.5, 1]])
    assert 'x="60" y="49"' in panel.text([0.5, 1], "a")
    assert 'points="110 45 103 41.5 103 48.5"' in panel.arrow([0, 1], [1, 1])
    assert panel.arrow([0.5, 1], [0.5, 1]) == ""
    assert 'd="M10 70L110 70"' in panel.line([[-1e-17, 0], [1, -1e-17]])  # no -0


@pytest.mark.parametrize("width", [3, 4])
def test_an_image_keeps_signs_and_sizes(width):
    values = np.array([[-2.0, 0.0, 1.0, 0.5][:width], [2.0, 0.0, 0.0, 9.0][:width]])
    href = re.search('base64,([^"]+)', slider.Panel((0, 1), (0, 1), (0, 0, 9, 9)).image(values, 2))
    data = base64.b64decode(href[1])
    pieces, place = {}, 8
    while place < len(data):
        size = int.from_bytes(data[place : place + 4], "big")
        name, body = data[place + 4 : place + 8], data[place + 8 : place + 8 + size]
        check = int.from_bytes(data[place + 8 + size : place + 12 + size], "big")
        assert check == zlib.crc32(name + body)
        pieces[name] = body
        place += 12 + size
    lines = np.frombuffer(zlib.decompress(pieces[b"IDAT"]), np.uint8).reshape(2, -1)[:, 1:]
    levels = np.stack([lines >> 4, lines & 15], axis=-1).reshape(2, -1)[:, :width]
    palette = np.frombuffer(pieces[b"PLTE"], np.uint8).reshape(-1, 3)
    colors = ["#" + palette[v].tobytes().hex() for v in levels.ravel()]
    assert colors[0] == slider.ORANGE
    assert colors[1] == "#ffffff"
    assert colors[width] == slider.BLUE
    assert width == 3 or colors[-1] == slider.BLUE  # beyond the scale
