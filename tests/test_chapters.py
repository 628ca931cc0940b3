"""The contract that every page of the book keeps, and what each kind of page keeps besides.

The kind stands in the notebook's metadata: ``"lml": {"kind": "workshop"}``. There a workshop page
may also name test modules that check what it exports: ``"tests": ["streams"]`` is
tests/test_streams.py.
"""

from __future__ import annotations

import re
from pathlib import Path

import gallery
import nbformat
import pytest
from jupyter_client.manager import KernelManager
from kernels import own_sockets
from support.contract import (
    CODE_LINES,
    EQ_ROLE,
    EXAMPLES,
    KINDS,
    MARKERS,
    NOT_COMPARED,
    NOTEBOOKS,
    TAGS,
    TAUGHT,
    all_citations,
    code_lines,
    faults,
    workshop_faults,
)
from tangle import LABEL, ROOT


@pytest.fixture(scope="module")
def book() -> dict[str, nbformat.NotebookNode]:
    return {path.stem: nbformat.read(path, as_version=4) for path in NOTEBOOKS}


@pytest.mark.parametrize("name", [path.stem for path in NOTEBOOKS])
def test_chapter_keeps_the_contract(book, name):
    found = faults(book[name], all_citations(list(book.values())))
    assert not found, f"book/{name}.ipynb:\n" + "\n".join(found)


@pytest.mark.parametrize("name", [path.stem for path in NOTEBOOKS])
def test_what_a_workshop_page_exports_is_checked(book, name):
    if book[name].metadata.get("lml", {}).get("kind") == "workshop":
        found = workshop_faults(book[name], name)
        assert not found, f"book/{name}.ipynb:\n" + "\n".join(found)


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_an_example_of_the_gallery_is_short_and_ends_with_a_number(path):
    notebook = nbformat.read(path, as_version=4)
    assert notebook.metadata.lml.kind == "example"
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert sum(code_lines(cell.source) for cell in code) <= CODE_LINES
    assert "nbval-check-output" in code[-1].metadata.tags
    numbers = re.findall(r"\d+\.\d|\d+ kB", code[-1].outputs[0].text)
    assert set(numbers) & set(re.findall(r"\d+\.\d|\d+ kB", notebook.cells[-1].source))


def test_the_gallery_shows_every_example_by_its_picture():
    assert gallery.main(["--check"]) == 0
    text = (ROOT / "book/gallery/index.md").read_text(encoding="utf-8")
    named = [path.stem for path in EXAMPLES]
    assert re.findall(r"^:link: (\w+)$", text, re.MULTILINE) == named
    assert re.findall(r"^:img-top: thumbs/(\w+)\.svg$", text, re.MULTILINE) == named


def test_every_cited_equation_exists(book):
    prose = [c.source for nb in book.values() for c in nb.cells if c.cell_type == "markdown"]
    labels = {a or b for text in prose for a, b in LABEL.findall(text)}
    missing = {label for text in prose for label in EQ_ROLE.findall(text)} - labels
    assert not missing, f"cited, but labeled nowhere: {sorted(missing)}"


TASK = ''':::{{admonition}} Exercise {number} (code, {level})
:class: exercise

Double a number.

```python
def double(x):
    """Twice a number."""
    ...
```
:::'''


def good_chapter() -> nbformat.NotebookNode:
    """A small chapter that keeps the contract; the tests below break it in one place each."""
    new = nbformat.v4
    exercise = ":::{admonition} Exercise\n:class: exercise\nProve it.\n:::\n"
    solution = ":::{dropdown} Solution\nBy hand.\n:::\n"
    text = (
        "# A chapter\n\n$$ a = b $$ (toy-claim)\n\nBy {eq}`toy-claim` {cite}`sun2019lifelong`.\n\n"
        + 3 * (exercise + solution)
        + "## Summary\n\n## References\n\n```{bibliography}\n```\n"
    )
    tasks = [TASK.format(number=4, level="easy"), TASK.format(number=5, level="hard")]
    source = "rng = np.random.default_rng(0)\nassert rng.random() < 1\nprint(0.5)"
    output = new.new_output("stream", name="stdout", text="0.5\n")
    cell = new.new_code_cell(source, execution_count=1, outputs=[output])
    cell.metadata["tags"] = ["nbval-check-output"]
    cells = [new.new_markdown_cell(text), cell]
    for count, task in enumerate(tasks, 2):
        answer = "def double(x):\n    return 2 * x\n\n\nassert double(3) == 6"
        cells += [new.new_markdown_cell(task), new.new_code_cell(answer, execution_count=count)]
    notebook = new.new_notebook(cells=cells)
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "x", "language": "python"}
    notebook.metadata["lml"] = {"kind": "story"}
    return notebook


def figure_cell(source: str, **metadata) -> nbformat.NotebookNode:
    output = nbformat.v4.new_output("display_data", data={"image/png": "aaaa"})
    cell = nbformat.v4.new_code_cell(source, execution_count=4, outputs=[output])
    cell.metadata.update(metadata)
    return cell


def check(notebook: nbformat.NotebookNode) -> str:
    return "\n".join(faults(notebook, all_citations([notebook])))


def test_contract_accepts_a_good_chapter():
    notebook = good_chapter()
    settings = {"figure": {"caption": "See."}, "image": {"alt": "A line."}}
    notebook.cells.append(figure_cell("assert ax\nplt.show()", mystnb=settings))
    assert check(notebook) == ""


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("assert ax\nplt.plot(x);", "ends with ';'"),
        ("assert ax\nfig", "does not end with plt.show()"),
        ("assert ax\nplt.show()", "has no caption"),
        ("import sys\nassert sys.path.append('x')", "edits sys.path"),
        ("\n".join(["assert 1 < 2"] * 41), "has 41 lines of code"),
    ],
)
def test_contract_rejects_a_bad_cell(source, said):
    notebook = good_chapter()
    notebook.cells.append(figure_cell(source))
    assert said in check(notebook)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("assert ax\nplt.plot(x);", "ends with ';': end figure cells with plt.show()"),
        ("assert ax\nfig", "shows a figure but does not end with plt.show()"),
        ("assert ax\nplt.subplots()", "shows a figure but does not end with plt.show()"),
        ("assert ax\nplt.show();", "ends with ';': end figure cells with plt.show()"),
    ],
)
def test_a_figure_cell_is_asked_for_plt_show(source, said):
    notebook = good_chapter()
    notebook.cells.append(figure_cell(source))
    assert f"cell {len(notebook.cells) - 1} {said}" in check(notebook)


@pytest.mark.parametrize(
    ("source", "asked"),
    [
        ("#| export\nx = 1", True),
        ('#| export toys\n"""Toys."""', True),
        ("#| export toys\nx = 1", False),  # continues what another page begins
    ],
)
def test_the_docstring_of_a_module_is_tagged_where_a_page_begins_one(source, asked):
    notebook = good_chapter()
    notebook.cells.append(nbformat.v4.new_code_cell(source, execution_count=4))
    assert ("tag the module's docstring" in check(notebook)) == asked


@pytest.mark.parametrize("name", ["conda-env-py", "python", "Python 3", "", None])
def test_another_kernel_fails_the_contract(name):
    notebook = good_chapter()
    assert check(notebook) == ""
    notebook.metadata.kernelspec["name"] = name
    assert "the kernel is not python3" in check(notebook)
    del notebook.metadata["kernelspec"]
    assert "the kernel is not python3" in check(notebook)


@pytest.mark.parametrize(
    "text", ["np.float64(0.5)", "np.int64(3)", "np.True_", "[np.uint8(1)]", "np.str_('a')"]
)
def test_a_numpy_scalar_as_a_last_line_is_refused(text):
    notebook = good_chapter()
    output = nbformat.v4.new_output("execute_result", data={"text/plain": text}, execution_count=2)
    notebook.cells.append(
        nbformat.v4.new_code_cell("assert x\nx", execution_count=4, outputs=[output])
    )
    notebook.cells[-1].metadata["tags"] = ["nbval-check-output"]
    assert f"cell {len(notebook.cells) - 1} prints a numpy scalar" in check(notebook)
    output.data["text/plain"] = "0.5"
    assert check(notebook) == ""


def _uncite(notebook):
    notebook.cells[0].source = notebook.cells[0].source.replace("{eq}`toy-claim`", "it")


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (lambda nb: nb.metadata.kernelspec.update(name="conda-env"), "the kernel is not python3"),
        (lambda nb: nb.cells[1].update(execution_count=None), "not executed"),
        (lambda nb: nb.cells[1].update(outputs=[]), "stores no output"),
        (lambda nb: nb.cells[1].metadata.update(tags=[]), "no cell is tagged"),
        (lambda nb: nb.cells[1].metadata.tags.append("hide-input"), "not on the list: hide-input"),
        (lambda nb: nb.cells[1].metadata.tags.append("remove-output"), "is for docstrings"),
        (lambda nb: nb.cells[1].update(source="assert 1 < 2"), "no seed"),
        (lambda nb: nb.cells[1].update(source="np.random.seed(0)"), "global random state"),
        (lambda nb: nb.cells[1].update(source="seed = 0"), "check something"),
        (lambda nb: nb.cells[1].outputs[0].update(text="np.float64(1.0)"), "numpy scalar"),
        (lambda nb: nb.cells[1].outputs[0].update(text="-0.0\n"), "numpy scalar or -0"),
        (lambda nb: nb.cells[1].outputs[0].update(name="stderr"), "stores an error or a warning"),
        (lambda nb: nb.cells[0].update(source="# Only a title"), "no references"),
        (_uncite, "'toy-claim' is never cited"),
        (lambda nb: nb.metadata.pop("lml"), "the kind of page is missing: put"),
        (lambda nb: nb.metadata.lml.update(kind="tale"), "is 'tale': put"),
    ],
)
def test_contract_rejects_a_bad_chapter(break_it, said):
    notebook = good_chapter()
    break_it(notebook)
    assert said in check(notebook)


def _edit(index, old, new):
    def edit(notebook):
        assert old in notebook.cells[index].source
        notebook.cells[index].source = notebook.cells[index].source.replace(old, new)

    return edit


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (_edit(2, " (code, easy)", ""), "1 of 1 exercises to code end a cell"),
        (_edit(2, "easy", "simple"), "1 of 2 exercises to code end a cell"),
        (_edit(2, "\n:::", "\n:::\n\nMore."), "1 of 2 exercises to code end a cell"),
        (lambda nb: nb.cells.pop(3), "1 of 2 exercises to code end a cell"),
        (_edit(2, "    ...\n", "    return 2 * x\n"), "exercise 4 has no starter"),
        (_edit(2, '    """Twice a number."""\n', ""), "exercise 4 has no starter"),
        (_edit(2, "```python", "```text"), "exercise 4 has no starter"),
        (_edit(5, "double", "twice"), "exercise 5: its solution does not define"),
        (_edit(5, "assert double", "double"), "exercise 5: its solution asserts nothing"),
        (_edit(5, "    return", 20 * "    x = x\n" + "    return"), "exercise 5: 23 lines of code"),
        (lambda nb: nb.cells[5].metadata.update(tags=["unfolded"]), "exercise 5: its solution is"),
        (_edit(5, "def double", "#| export\ndef double"), "exercise 5: its solution is exported"),
    ],
)
def test_contract_rejects_an_exercise_without_starter_solution_or_test(break_it, said):
    notebook = good_chapter()
    assert check(notebook) == ""
    break_it(notebook)
    assert said in check(notebook)
    notebook.metadata["lml"]["kind"] = "workshop"
    assert "exercise" not in check(notebook)


@pytest.mark.parametrize("tag", ["nbval-skip", "raises-exception", "nbval-ignore-output"])
@pytest.mark.parametrize("as_comment", [False, True])
def test_no_tag_and_no_comment_switches_a_check_off(tag, as_comment):
    notebook = good_chapter()
    cell = notebook.cells[1]
    if as_comment:
        mark = tag.upper().replace("-", "_").replace("RAISES", "NBVAL_RAISES")
        cell.source += f"\nif True:\n    # {mark}\n    assert 1 > 2"
        assert f"has the comment {mark}, which switches checks off" in check(notebook)
    else:
        cell.metadata.tags.append(tag)
        assert f"not on the list: {tag}" in check(notebook)


@pytest.mark.parametrize("ends", ["\n", "\f", "\v", "\x1c", "\x85", "\u2028"])
def test_nothing_that_ends_a_line_hides_a_marker(ends):
    notebook = good_chapter()
    notebook.cells[1].source += f"\nassert 1 > 2  # known{ends}# NBVAL_SKIP"
    assert "has the comment NBVAL_SKIP" in check(notebook)


def test_what_no_run_compares_is_in_the_book():
    ids = {cell.id for path in NOTEBOOKS for cell in nbformat.read(path, as_version=4).cells}
    assert set(NOT_COMPARED) <= ids


def test_all_markers_of_nbval_are_known():
    from nbval.plugin import comment_markers, metadata_tags

    assert all(MARKERS.fullmatch(f"# {marker}") for marker in comment_markers)
    assert TAGS & set(metadata_tags) == {"nbval-check-output"}


@pytest.mark.parametrize("data", [None, {"text/plain": "0.5"}, {"text/html": "<p>"}])
def test_text_that_no_run_compares_is_a_fault(data):
    notebook = good_chapter()
    kind = {"name": "stdout", "text": "1"} if data is None else {"data": data}
    output = nbformat.v4.new_output("display_data" if data else "stream", **kind)
    cell = nbformat.v4.new_code_cell("assert x", execution_count=4, outputs=[output])
    notebook.cells.append(cell)
    assert f"cell {len(notebook.cells) - 1} shows text that no run compares" in check(notebook)
    cell.metadata["tags"] = ["nbval-check-output"]
    assert check(notebook) == ""
    cell.metadata["tags"] = []
    output.update(output_type="display_data", data={"text/plain": "Slider: 3 drawings"}, text="")
    assert "shows text that no run compares" in check(notebook)
    cell["id"] = "codingslider"
    assert check(notebook) == ""


@pytest.mark.parametrize("kind", KINDS)
def test_exercises_checks_and_references_are_asked_of_pages_to_learn_from(kind):
    notebook = good_chapter()
    notebook.metadata["lml"]["kind"] = kind
    notebook.cells[0].source = "# Only a title"
    notebook.cells[1].source = "seed = 0\nprint(0.5)"
    notebook.cells = notebook.cells[:2]
    asked = {"no references", "check something", "0 exercises", "'## Summary'", "'## References'"}
    said = check(notebook)
    assert {text for text in asked if text in said} == (asked if kind in TAUGHT else set())
    assert kind in TAUGHT or said == ""


@pytest.mark.parametrize("kind", KINDS)
def test_every_page_is_executed_and_seeded(kind):
    notebook = good_chapter()
    notebook.metadata["lml"]["kind"] = kind
    notebook.cells[1].update(execution_count=None, source="assert 1 < 2")
    assert "not executed" in check(notebook)
    assert "no seed" in check(notebook)


def workshop(*sources: str, **settings) -> str:
    notebook = good_chapter()
    notebook.metadata["lml"] = {"kind": "workshop", **settings}
    notebook.cells += [nbformat.v4.new_code_cell(source) for source in sources]
    return "\n".join(workshop_faults(notebook, "toy"))


def test_a_workshop_page_checks_what_it_exports_there_or_in_a_named_test_module():
    told = "#| export toys.parts\ndef exported():\n    pass\n\n\ndef _own():\n    pass"
    assert "exported is checked neither in the page nor in []" in workshop(told)
    assert "exported is checked neither" in workshop(told, "exported()")  # called, not checked
    assert "exported is checked neither" in workshop(f"{told}\nassert exported")
    assert workshop(told, "assert exported() is None") == ""
    assert workshop(told, tests=["chapters"]) == ""  # this module has the word
    assert "there is no tests/test_none.py" in workshop(told, tests=["none", "chapters"])
    assert workshop(told.replace("toys.parts", "toys.chapters")) == ""


def test_docstrings_and_comments_do_not_count_as_code():
    assert (
        code_lines('def f():\n    """Say.\n\n    More.\n    """\n    # why\n\n    return 1\n') == 2
    )
    assert code_lines('x = """a\nb"""\n') == 2


def test_the_kernel_of_a_chapter_takes_no_port():
    names = own_sockets()
    manager = KernelManager(**names)
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(60)
        sockets = {Path(f"{names['ip']}-{number}") for number in manager.ports}
        assert len(sockets) == 5
        assert all(path.is_socket() for path in sockets)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert own_sockets()["ip"] != names["ip"]


def test_where_names_of_sockets_are_too_long_kernels_take_ports(tmp_path, monkeypatch):
    deep = tmp_path / ("long" * 25)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    assert own_sockets() == {}
