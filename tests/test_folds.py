"""What of a cell is folded: the rules, and what the page makes of them."""

from __future__ import annotations

import re
from types import SimpleNamespace

import lml_cells
import nbformat
import pytest
from docutils import nodes
from lml_folds import Cell, Fold, continued_classes, folds
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from sphinx.highlighting import PygmentsBridge

LONG = '    """Do it.\n\n    Parameters\n    ----------\n' + "    x : float\n" * 6 + '    """\n'


def titles(source, **said):
    return [fold.title for fold in folds(Cell(source, **said))]


def covers(found, source):
    """Whether one fold holds the whole cell."""
    return [(f.first, f.last) for f in found] == [(0, source.rstrip("\n").count("\n"))]


@pytest.mark.parametrize(
    ("source", "said", "title"),
    [
        ("import numpy as np\nfrom x import y", {}, "Imports: 2 lines"),
        ("import x\n\nrng = np.random.default_rng(0)\nn = 3", {}, "Imports; settings: 4 lines"),
        ('"""What the module is."""\n', {"exported": True}, "Docstring of the module: 1 line"),
        ("fig, ax = plt.subplots()\nax.plot(x)\nplt.show()", {}, "Code of the figure: 3 lines"),
        ("def curve(ax, x):\n    ax.plot(x)", {}, "Plotting `curve`: 2 lines"),
        (
            "import lml.toy\n\nassert lml.toy.f(1) == f(1)",
            {"own": frozenset({"toy"})},
            "Check that the package agrees: 3 lines",
        ),
        (
            "from lml.toy import f as again\n\nnp.testing.assert_allclose(again(1), f(1))",
            {"own": frozenset({"toy"})},
            "Check that the package agrees: 3 lines",
        ),
        ("def _check_sizes(n):\n    if n < 1:\n        raise ValueError(n)", {"exported": True},
         "Checks of arguments (`_check_sizes`): 3 lines"),
        ("_A = RecordField(_restored, {})", {"exported": True}, "What is stored in a file: 1 line"),
        ("def _restored_state(**parts):\n    return parts", {"exported": True},
         "What is stored in a file (`_restored_state`): 2 lines"),
        ("class X(X):\n    def __sklearn_tags__(self):\n        return tags", {"exported": True},
         "Tags of scikit-learn: 3 lines"),
        ("class X(X):\n    @property\n    def a_(self):\n        return 1", {"exported": True},
         "Property `a_`: 4 lines"),
        ("def _small(x):\n    return x", {"exported": True}, "Helper `_small`: 2 lines"),
        ("class _Table:\n    def rows(self):\n        return 1", {"exported": True},
         "Helper `_Table`: 3 lines"),
        ("assert f(1) == 1", {"guards": True}, "Check: 1 line"),
    ],
)  # fmt: skip
def test_plumbing_is_folded_behind_a_line_that_says_what_and_how_long(source, said, title):
    assert titles(source, **said) == [title]
    assert covers(folds(Cell(source, **said)), source)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("W = step(V)\nprint(W)", {}),
        ("assert f(1) == 1", {}),  # the first check of its section
        ("assert f(1) == 1", {"guards": True, "has_output": True}),
        ("assert f(1) == 1", {"guards": True, "before": "Hence\n\n$$ f = 1 $$ (toy-one)"}),
        ("assert f(1) == 1", {"guards": True, "kind": "workshop"}),
        ("import lml.toy\n\nprint(lml.toy.f(1))", {"own": frozenset({"toy"})}),
        ("from lml.other import f\n\nassert f(1) == 1", {"own": frozenset({"toy"})}),
        ("def public(x):\n    return x", {"exported": True}),
        ("def _small(x):\n    return x", {}),  # an oracle of the chapter, not of the package
        ("def _small(x):\n    return x", {"exported": True, "kind": "reference"}),
        ("def _learn_task(x):\n    return x", {"exported": True}),
        ("%pip install lml", {}),
        ("# only a comment", {}),
    ],
)
def test_what_a_reader_came_for_is_not_folded(source, said):
    assert titles(source, **said) == []


@pytest.mark.parametrize(
    "source",
    [
        "def _shift(x):\n    # eq. (toy-step)\n    return x",
        'def _slope(x):\n    """The slope, eq. (toy-slope)."""\n    return x',
        'def _slope(x):\n    """Slope.\n\n    Derived in eqs.\n    (a-x), (a-y)."""\n    return x',
        "class X(X):\n    def _reach(self):\n        return 2  # eq. (toy-reach)",
    ],
)
def test_a_cell_that_implements_an_equation_is_not_folded(source):
    assert titles(source, exported=True) == []
    plain = re.sub(r"eqs?\.\s+\(|Derived in", "(", source)
    assert len(titles(plain, exported=True)) == 1
    before = "The step is\n\n$$\nx = y\n$$ (toy-step)\n\nwith a comment."
    assert titles(plain, exported=True, before=before) == []


def test_a_cell_that_follows_an_exercise_is_its_solution():
    asked = ":::{admonition} Exercise 3 (code, easy)\n:class: exercise\n\nDo it.\n:::\n"
    source = "def double(x):\n    return 2 * x\n\n\nassert double(3) == 6"
    assert titles(source, before=f"## Exercises\n\n{asked}") == ["Solution of exercise 3: 5 lines"]
    assert covers(folds(Cell(source, before=asked)), source)
    again = asked.replace("3", "4")
    assert titles("assert f() == 1", before=asked + again) == ["Solution of exercise 4: 1 line"]
    for other in (f"{asked}Look:", asked.replace("exercise\n", "erratum\n"), f"{asked}## Summary"):
        assert titles(source, before=other) == []
    assert titles(source, before=asked, tags=frozenset({"unfolded"})) == []


def test_a_protocol_implements_nothing():
    source = "class _Penalty(Protocol):\n    def value(self, W): ..."
    before = "The penalty is\n\n$$ g $$ (toy-g)"
    assert titles(source, exported=True, before=before) == ["Helper `_Penalty`: 2 lines"]


def test_a_long_docstring_keeps_its_first_paragraph():
    source = f"def f(x):\n{LONG}    return x\n"
    lines = source.split("\n")
    [fold] = folds(Cell(source, exported=True))
    assert fold.title == f"Docstring (parameters): {fold.last - fold.first + 1} lines"
    shown = lines[: fold.first] + lines[fold.last + 1 :]
    assert shown == ["def f(x):", '    """Do it.', "    return x", ""]
    short = 'def f(x):\n    """Do it.\n\n' + "    More.\n" * 5 + '    """\n    return x\n'
    assert folds(Cell(short, exported=True)) == []  # eight lines


def test_a_docstring_without_a_blank_line_keeps_its_first_line():
    source = 'def f(x):\n    """Do it.\n' + "    More.\n" * 9 + '    """\n    return x\n'
    [fold] = folds(Cell(source))
    assert (fold.first, fold.last) == (2, 11)


def test_a_class_shows_its_name_and_first_words_and_what_it_does():
    stores = "    def __init__(self, *, a=1):\n        self.a = a\n"
    rules = "    _parameter_rules = {\n        'a': whole(1),\n    }\n"
    fit = "    def fit(self, X):\n        return self\n"
    source = f"class X(Base):\n{LONG}{rules}\n{stores}\n{fit}"
    [fold] = folds(Cell(source, exported=True))
    shown = source.split("\n")[: fold.first] + source.split("\n")[fold.last + 1 :]
    assert "\n".join(shown).split() == f'class X(Base): """Do it. {fit}'.split()
    assert "parameters" in fold.title
    head = f"class X(Base):\n{LONG}{rules}\n{stores}"  # all plumbing: its name still stands
    assert not covers(folds(Cell(head, exported=True)), head)
    other = "    def __init__(self, a):\n        self.a = abs(a)\n\n" + fit
    assert folds(Cell(f"class X(Base):\n{other}", exported=True)) == []


def test_parts_of_a_class_are_folded_where_the_rest_is_told():
    source = (
        "class X(X):\n    def fit(self):\n        return self\n\n"
        "    @property\n    def a_(self):\n        return 1\n\n"
        "    # bytes\n    @property\n    def nbytes(self):\n        return 2\n\n"
        "    def predict(self):\n        return 3\n"
    )
    assert folds(Cell(source, exported=True)) == [Fold(3, 11, "properties `a_`, `nbytes`")]


def test_tags_overrule_the_rules():
    assert titles("x = f(1)", tags=frozenset({"folded"})) == ["Code: 1 line"]
    source = "def f():\n    pass\n\nx = f()"
    assert titles(source, tags=frozenset({"folded"})) == ["Code of `f`: 4 lines"]
    source = f"class X(Y):\n{LONG}    def g(self):\n        return 1"
    assert titles(source, tags=frozenset({"folded"})) == ["Code of `X`: 14 lines"]
    source = "x = f(1)\nassert x == 1\nprint(x)"
    said = {"has_output": True, "tags": frozenset({"folded"})}
    assert titles(source, **said) == ["Code of the output: 3 lines"]
    assert titles(source, **said | {"has_output": False}) == ["Check: 3 lines"]
    assert titles("import x", tags=frozenset({"unfolded"})) == []


def test_folds_are_in_order_and_never_overlap(notebooks):
    seen = 0
    for name, path in notebooks.items():
        for cell in filter(None, lml_cells.read_cells(path, name)):
            found = folds(cell)
            seen += len(found)
            ends = [-1] + [f.last for f in found]
            assert all(end < f.first <= f.last for end, f in zip(ends, found))
            assert ends[-1] < len(cell.lines)
    assert seen > 300


def test_no_equation_of_the_book_is_folded_with_helpers(notebooks):
    for name, path in notebooks.items():
        for index, cell in enumerate(lml_cells.read_cells(path, name)):
            for fold in folds(cell) if cell and cell.exported else []:
                if "helpers" in fold.title.lower():
                    lines = "\n".join(cell.lines[fold.first : fold.last + 1])
                    assert not re.search(r"eqs?\. \(", lines), (name, index)


@pytest.fixture(scope="module")
def notebooks():
    from tangle import ROOT, toc_files

    paths = {file: ROOT / f"{file}.ipynb" for file, _ in toc_files(ROOT)}
    return {file: path for file, path in paths.items() if path.exists()}


def test_a_continued_class_is_named():
    assert continued_classes("class X(X):\n    pass\n\n\nclass Y(X):\n    pass") == ["X"]
    assert continued_classes("%pip install lml") == []


SOURCE = f'import a\n\ntext = """two\nlines & <more>\n"""\n\n\ndef f(x):\n{LONG}    return x'


@pytest.mark.parametrize("cut", [[(0, 1)], [(3, 4), (8, 17)], [(12, 18)], [(2, 3), (4, 5)]])
def test_highlighted_code_is_cut_between_lines_and_loses_nothing(cut):
    block = PygmentsBridge("html", "default").highlight_block(SOURCE, "python")
    found = [Fold(first, last, "part") for first, last in cut]
    page = lml_cells.fold_lines(block, found)
    for tag in ("span", "pre", "details", "summary", "div"):
        assert page.count(f"<{tag}") == page.count(f"</{tag}>")
    for piece in re.findall(r"<pre>(.*?)</pre>", page, re.DOTALL):
        assert piece.count("<span") == piece.count("</span>")
    assert page.count("<details") == len(cut)

    def text(part):
        return re.sub(r"<[^>]*>", "", part)

    assert page.count("<pre>\n") == page.count("<pre>")  # a browser drops this line break
    without = re.sub(r"<summary.*?</summary>", "", page.replace("<pre>\n", "<pre>"))
    assert text(without).rstrip() == text(block).rstrip()


def test_a_fold_is_a_line_that_works_without_a_script():
    began = lml_cells.begin_fold(Fold(0, 3, "imports of <a>"))
    assert began == ('<details class="lml-fold"><summary>Imports of &lt;a&gt;: 4 lines</summary>')


def test_what_a_page_says_of_its_cells(tmp_path):
    cells = [
        new_markdown_cell("# A\n\n$$ x $$ (a-x)"),
        new_code_cell("#| export parts.one\nx = 1"),
        new_code_cell("assert x == 1"),
        new_code_cell("assert x == 2"),
        new_markdown_cell("## B"),
        new_code_cell("assert x == 3"),
    ]
    path = tmp_path / "toy.ipynb"
    nbformat.write(new_notebook(cells=cells, metadata={"lml": {"kind": "theory"}}), path)
    text, told, first, second, heading, other = lml_cells.read_cells(path, "book/toy")
    assert text is heading is None
    assert told.source == "x = 1"
    assert told.exported
    assert told.before.endswith("(a-x)")
    assert told.own == {"parts.one"}
    assert first.kind == "theory"
    assert [cell.guards for cell in (first, second, other)] == [False, True, False]


class Builder:
    def get_relative_uri(self, here, there):
        return there


def label(source, document=None):
    """The label of an exported cell, as text."""
    block = nodes.literal_block(source, source)
    document = nodes.container() if document is None else document
    document += block
    app = SimpleNamespace(builder=Builder())
    lml_cells.label_exported_cells(app, document, "book/toy")
    return document.astext()


def test_the_label_says_where_code_goes_and_what_it_continues():
    assert label("#| export\nx = 1").split("\n\n")[0] == "lml/toy.py"
    said = label("#| export a.b\nclass X(X):\n    pass").split("\n\n")[0]
    assert said == "continues the class X, lml/a/b.py"


def test_a_document_of_all_pages_keeps_each_page_apart(tmp_path):
    """As singlehtml puts it together: sections say the page that they are from."""
    document = nodes.section("", docname="book/index")
    env = SimpleNamespace(doc2path=lambda name: str(tmp_path / f"{name.rpartition('/')[2]}.ipynb"))
    for name, source in {"one": "x = f(1)", "two": "import this"}.items():
        page = nodes.section("", nodes.section(""), docname=f"book/parts/{name}")
        assert label("#| export\nx = 1", page[0]).startswith(f"lml/parts/{name}.py")
        cell = nodes.container("", nodes.literal_block(source, source), cell_index=0)
        page[0] += cell
        cell["nb_element"] = "cell_code"
        document += page
        notebook = new_notebook(cells=[new_code_cell(source)])
        nbformat.write(notebook, tmp_path / f"{name}.ipynb")
    lml_cells.fold_cells(SimpleNamespace(env=env), document, "book/index")
    [folded] = document.findall(lml_cells.FoldedCell)
    assert folded.astext() == "import this"
    assert folded["fold"].what == "imports"


def test_names_in_the_line_of_a_fold_are_code():
    line = lml_cells.begin_fold(Fold(0, 3, "code of `f`, `X`"))
    assert line.endswith("<summary>Code of <code>f</code>, <code>X</code>: 4 lines</summary>")
