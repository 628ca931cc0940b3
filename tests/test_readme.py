"""What the README and the front pages say: their code runs, their numbers are those of results/."""

from __future__ import annotations

import contextlib
import io
import re

import front
import nbformat
import pytest
from tangle import ROOT

LISTING = re.compile(r"```python\n(.*?)```(?:\n+```text\n(.*?)```)?", re.S)
BLOCK = re.compile(r"^(```|:::).*?^\1$", re.S | re.M)
NUMBER = re.compile(r"(?<![\w.])\d+\.\d+")


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def first_page() -> list[nbformat.NotebookNode]:
    return nbformat.read(ROOT / "book/first.ipynb", as_version=4).cells


@pytest.mark.parametrize("page", front.PAGES)
def test_the_python_code_runs_and_prints_what_stands_below_it(page):
    listings = LISTING.findall(text_of(page))
    assert listings[0][1]  # the first thing that a reader sees has its output
    space: dict = {}
    for code, shown in listings:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(code, space)
        assert not shown or printed.getvalue() == shown
    assert len(space["learner"].tasks_) == 15
    if "classifier" in space:
        first = space["first"]
        assert space["classifier"].score(first.X_test, first.y_test, task=first.name) > 0.8
        assert space["embedding"].shape[0] == len(first.X_test)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_files_and_targets_that_are_named_exist(page):
    text = text_of(page)
    links = re.findall(r"\]\((?!https?:)([^)#]+)(?:#[\w-]+)?\)", text)
    named = re.findall(r"`((?:book|tests|tools|lml)/[\w/.]*)`", text)
    named = [name for name in named if "NAME" not in name]
    assert [name for name in links + named if not (ROOT / name).exists()] == []
    targets = re.findall(r"^([a-z-]+):", text_of("Makefile"), re.M)
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.M)) <= set(targets)


def test_numbers_and_figure_of_the_front_pages_are_those_of_the_results(capsys):
    assert front.main(["--check"]) == 0, capsys.readouterr().out


@pytest.mark.parametrize("page", front.PAGES)
def test_the_front_pages_quote_no_number_that_nobody_computes(page):
    computed = set(NUMBER.findall(" ".join(front.quoted().values())))
    prose = BLOCK.sub("", text_of(page)).replace("Python 3.11", "")
    assert set(NUMBER.findall(prose)) - computed == set()


def test_a_sentence_that_is_off_is_named(monkeypatch):
    right = front.quoted()
    monkeypatch.setattr(front, "quoted", lambda: right | {"Sentiment": "| 20.7 | 18.0 |"})
    assert [said.split(" must say ") for said in front.off()] == [
        [page, "'| 20.7 | 18.0 |' (Sentiment)"] for page in front.PAGES
    ]


def test_the_method_is_seen_within_eight_hundred_words():
    """On the front page alone, and again on page one for those who have read the front page."""
    before, found, _ = text_of("book/index.md").partition("1. **Share.**")
    assert found
    assert len(re.findall(r"\w+", before)) <= 800
    front_page = BLOCK.sub("", text_of("book/index.md"))
    prose = "\n".join(cell.source for cell in first_page() if cell.cell_type == "markdown")
    before, found, _ = prose.partition("**Share.**")
    assert found
    assert len(re.findall(r"\w+", before)) <= 300
    assert len(re.findall(r"\w+", front_page)) <= 1000


def test_the_learner_of_page_one_has_eighty_lines():
    lines = []
    for cell in first_page():
        if "nbval-check-output" in cell.metadata.get("tags", []):
            break  # the learner is complete: its errors are shown
        if cell.cell_type == "code":
            source = cell.source.partition("\nfig, axes = ")[0]  # without what draws
            lines += [line for line in source.splitlines() if line.strip()]
    assert 60 <= len(lines) <= 80
