"""Chapters that run in a reader's browser: which ones, the link to them, and their copies."""

from __future__ import annotations

import ast
import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import lite
import lite_kernel
import lml_lite
import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from tangle import ROOT, toc_files

RUNNABLE = lml_lite.runnable(ROOT, [file for file, _ in toc_files(ROOT)])


def chapter(*sources):
    return new_notebook(cells=[new_markdown_cell("# A"), *map(new_code_cell, sources)])


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import numpy as np\nfrom lml.oasis import OASIS\nimport slider, tempfile", []),
        ("from sklearn.datasets import load_digits\nload_digits()", []),
        ("from lml.datasets import load_digits_tasks\nload_digits_tasks()", []),
        ("from lml.datasets import load_usps_tasks as f\nf()", ["loads load_usps_tasks"]),
        ("import lml.datasets as d\nd.load_isolet_tasks()", ["loads load_isolet_tasks"]),
        ("from lml.studies.results import rows", ["uses lml.studies.results"]),
        ("import lml.studies", ["uses lml.studies"]),
        ("def f():\n    import threading", ["imports threading"]),
        ("import http.server", ["imports http"]),
        ("import polars\nimport pandas", ["imports pandas", "imports polars"]),
    ],
)
def test_what_keeps_a_chapter_from_a_browser(code, said):
    assert lml_lite.obstacles(chapter("x = 1", code)) == said


def test_loaders_of_real_data_are_those_that_may_download():
    loaders = {"load_usps_tasks", "load_isolet_tasks", "load_sentiment_tasks", "load_arrays"}
    assert lml_lite.real_data_loaders() == loaders


def test_the_chapters_are_many_and_none_reads_the_laboratory():
    assert {"book/first", "book/oasis", "book/lifelong", "book/gallery/pairs"} <= set(RUNNABLE)
    assert not {"book/loading", "book/found", "book/transfer", "book/glossary"} & set(RUNNABLE)
    for page in RUNNABLE:
        text = (ROOT / f"{page}.ipynb").read_text(encoding="utf-8")
        assert "lml.studies" not in "".join(
            line for cell in lml_lite.code_cells(json.loads(text)) for line in cell["source"]
        )


def linked(page, monkeypatch, setting):
    monkeypatch.setenv("BOOK_LITE", setting)
    scripts = []
    app = SimpleNamespace(
        srcdir=str(ROOT), add_js_file=lambda name, **options: scripts.append(name)
    )
    context = {"body": "<h1>T</h1><p>x</p>"}
    lml_lite.link_app(app, page, "page.html", context, None)
    return context["body"], scripts


def test_only_a_book_with_an_app_has_links_to_it(monkeypatch):
    plain = "<h1>T</h1><p>x</p>"
    assert linked("book/oasis", monkeypatch, "") == (plain, [])
    assert linked("book/found", monkeypatch, "1") == (plain, [])
    assert linked("book/index", monkeypatch, "1") == (plain, [])
    body, scripts = linked("book/gallery/pairs", monkeypatch, "1")
    assert '</h1>\n<p class="lml-lite"><a href="../../lite/notebooks/index.html?path=' in body
    assert "path=gallery/pairs.ipynb" in body
    assert "Not tested" in body
    assert scripts == ["lite.js"]


def test_copies_are_notebooks_that_install_the_package_first(tmp_path):
    assert lite.write_copies(tmp_path) == RUNNABLE
    copies = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.ipynb"))
    assert copies == sorted(f"{page.removeprefix('book/')}.ipynb" for page in RUNNABLE)
    assert (tmp_path / "slider.py").is_file()
    for path in tmp_path.rglob("*.ipynb"):
        assert (path.parent / "matplotlibrc").is_file()
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        assert all(cell.outputs == [] and not cell.source.startswith("#| ") for cell in code)
        compile(code[0].source, "cell", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        assert "await piplite.install('lifelong-metric-learning', deps=False)" in code[0].source
        text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
        assert text.count("\\newcommand{\\R}") == 1
        for only_in_the_book in (":::", "{eq}", "{doc}", "{cite", "{term}", "{bibliography}"):
            assert only_in_the_book not in text, path


def test_text_of_the_book_becomes_plain():
    text = (
        "(place)=\nSee {eq}`a-b`, {term}`sample <samples>` and `x`.\n\n"
        ":::{admonition} Exercise 1\n:class: dropdown\n\n$$ x $$ (a-b)\n:::\n\n"
        "```{bibliography}\n:filter: docname\n```"
    )
    plain = lite.plain_markdown(text)
    assert " ".join(plain.split()) == "See a-b, sample and `x`. **Exercise 1** $$ x $$"


def test_macros_with_arguments_keep_them():
    macros = {"R": "\\mathbb{R}", "norm": ["\\|#1\\|", 1]}
    settings = {"sphinx": {"config": {"mathjax3_config": {"tex": {"macros": macros}}}}}
    assert (
        lite.tex_macros(settings) == r"$\newcommand{\R}{\mathbb{R}}\newcommand{\norm}[1]{\|#1\|}$"
    )


JUPYTER = """#!{python}
import json, pathlib, shutil
config = json.loads(pathlib.Path("jupyter_lite_config.json").read_text())
out = pathlib.Path(config["LiteBuildConfig"]["output_dir"])
shutil.copytree("copies", out / "files")
for name in ("notebooks/index.html", "api/contents/all.json", "pypi/all.json"):
    (out / name).parent.mkdir(parents=True, exist_ok=True)
    (out / name).write_text("")
for wheel in config["PipliteAddon"]["piplite_urls"]:
    shutil.copy(wheel, out / "pypi")
"""


@pytest.fixture
def built(tmp_path, monkeypatch):
    """Arguments of the tool: a site, a wheel, and a builder that only copies two chapters."""
    monkeypatch.setattr(lite, "runnable", lambda *args: ["book/oasis", "book/gallery/pairs"])
    site, wheels, jupyter = (tmp_path / name for name in ("html", "wheels", "jupyter"))
    (site / "book").mkdir(parents=True)
    (site / "book" / "notation.html").write_text('<p class="lml-lite">')
    wheels.mkdir()
    (wheels / "lifelong_metric_learning-0.1.0-py3-none-any.whl").write_text("")
    jupyter.write_text(JUPYTER.format(python=sys.executable))
    jupyter.chmod(0o755)
    return {"--jupyter": jupyter, "--wheels": wheels, "--site": site}


def build(arguments):
    return lite.main([str(part) for pair in arguments.items() for part in pair])


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in is a script")
def test_the_app_lies_beside_the_book_and_is_made_afresh(built, capsys):
    app = built["--site"] / "lite"
    app.mkdir()
    (app / "old").write_text("")
    assert build(built) == 0
    assert not (app / "old").exists()
    assert "2 chapters run in a browser" in capsys.readouterr().out
    assert (app / "files" / "oasis.ipynb").is_file()
    settings = json.loads((built["--site"].parent / "lite" / "jupyter-lite.json").read_text())
    assert "disablePyPIFallback" in str(settings)


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in is a script")
def test_an_app_that_lacks_something_is_refused(built):
    text = built["--jupyter"].read_text()
    built["--jupyter"].write_text(text + '(out / "files" / "oasis.ipynb").unlink()\n')
    with pytest.raises(SystemExit, match=r"without files/oasis\.ipynb"):
        build(built)
    built["--jupyter"].write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(SystemExit, match="lite: "):
        build(built)
    shutil.rmtree(built["--wheels"])
    with pytest.raises(SystemExit, match="no wheel of lifelong-metric-learning"):
        build(built)
    Path(built["--site"], "book", "notation.html").write_text("<p>")
    with pytest.raises(SystemExit, match="BOOK_LITE=1"):
        build(built)


def test_a_kernel_is_gathered_with_all_that_it_needs():
    packages = {"a": {"depends": ["b_c", "d"]}, "b-c": {"depends": ["d"]}, "d": {"depends": []}}
    packages["e"] = {"depends": ["a"]}
    assert lite_kernel.needed(packages, ("a",)) == ["a", "b-c", "d"]
