"""The tangler, on small books made for the purpose."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys

import nbformat
import pytest
import tangle
import yaml
from docutils import nodes
from docutils.core import publish_doctree
from myst_parser.parsers.docutils_ import Parser
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

EXPORT = "#| export\n"
DOC = EXPORT + '"""What the module is."""'


def write_book(root, chapters, public=(), toc=None):
    """A book in ``root``: name to list of code cells, and markdown cells that begin with '# '."""
    (root / "book").mkdir(exist_ok=True)
    for name, sources in chapters.items():
        cells = [new_markdown_cell(f"# The {name} chapter\n\n$$ a = b $$ ({name}-main)")]
        for source in sources:
            prose = source.startswith(("$$", "## "))
            cells.append(new_markdown_cell(source) if prose else new_code_cell(source))
        nbformat.write(new_notebook(cells=cells), root / "book" / f"{name}.ipynb")
    (root / "book" / "index.md").write_text("# The book\n", encoding="utf-8")
    listed = [{"file": f"book/{name}"} for name in (chapters if toc is None else toc)]
    contents = {
        "format": "jb-book",
        "root": "book/index",
        "parts": [{"caption": "One", "numbered": True, "chapters": listed}],
    }
    (root / "_toc.yml").write_text(yaml.safe_dump(contents), encoding="utf-8")
    names = ", ".join(f'"{name}"' for name in public)
    (root / "pyproject.toml").write_text(
        '[project]\nversion = "1.2.3"\n\n'
        f'[tool.lml]\ndocstring = "A package."\npublic = [{names}]\n\n'
        '[tool.ruff]\nline-length = 100\n\n[tool.ruff.lint.isort]\nknown-first-party = ["lml"]\n',
        encoding="utf-8",
    )


@pytest.fixture
def book(tmp_path, monkeypatch):
    """Write a book and give what the tangler makes of it."""
    monkeypatch.setattr(tangle, "ROOT", tmp_path)

    def make(*cells, **chapters):
        chapters = {"first": [DOC, *cells]} if cells else chapters
        write_book(tmp_path, chapters)
        return tangle.build(tmp_path)

    return make


def export(source):
    return EXPORT + source


def test_a_module_has_header_docstring_imports_all_and_code_in_this_order(book):
    text = book(export("import math\n\n\ndef area(r):\n    return math.pi * r**2"))["first.py"]
    lines = text.splitlines()
    assert lines[0] == "# Generated from book/first.ipynb by tools/tangle.py: edit the chapter."
    assert lines[1] == '"""What the module is."""'
    assert lines.index("import math") < lines.index('__all__ = ["area"]')
    assert lines.index('__all__ = ["area"]') < lines.index("def area(r):")


def test_cells_without_the_directive_stay_in_the_chapter(book):
    text = book(export("A = 1"), "naive = 2\nassert naive == 2")["first.py"]
    assert "naive" not in text


def test_a_class_told_over_several_cells_becomes_one(book):
    cells = [
        export('class Box:\n    """A box."""\n\n    def __init__(self, a):\n        self.a = a'),
        export("def double(a):\n    return 2 * a"),
        export(
            "# What it gives.\nclass Box(Box):  # go on\n    def get(self):\n        return self.a"
        ),
        export(
            "class Box(Box):\n    @property\n    def twice(self):\n        return double(self.a)"
        ),
    ]
    text = book(*cells)["first.py"]
    assert text.count("class Box") == 1
    assert "# What it gives." in text
    space = {}
    exec(text, space)
    assert space["Box"](3).get() == 3
    assert space["Box"](3).twice == 6
    assert space["__all__"] == ["Box", "double"]


def test_a_continued_header_may_hold_strings_and_colons(book):
    cells = [
        export("class A:\n    x = 1"),
        export('class A(\n    A,  # the: same\n):\n    y = ":"\n\n    def f(self):\n        pass'),
    ]
    space = {}
    exec(book(*cells)["first.py"], space)
    assert (space["A"].x, space["A"].y) == (1, ":")


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["class A(A):\n    x = 1"], "cell 2: class A is continued before it begins"),
        (
            ["class A:\n    x = 1", 'class A(A):\n    """Again."""'],
            "cell 3: class A has its docstring",
        ),
        (
            ["class A:\n    x = 1", "class A(A, object):\n    y = 1"],
            r"cell 3: write `class A\(A\):`",
        ),
        (["class A:\n    x = 1", "class A(A): y = 1"], "cell 3: class A is continued in one line"),
        (
            [
                "class A:\n    def f(self):\n        pass",
                "class A(A):\n    def f(self):\n        pass",
            ],
            "'A.f' is exported twice: book/first.ipynb, cell 2 and book/first.ipynb, cell 3",
        ),
        (
            ["A = 1", "def A():\n    pass"],
            "'A' is exported twice: book/first.ipynb, cell 2 and book/first.ipynb, cell",
        ),
        (["A, B = 1, 2", "B = 3"], "'B' is exported twice"),
        (["def f(:\n    pass"], "book/first.ipynb, cell 2: line 1 of the code: invalid syntax"),
        (["%timeit 1"], "book/first.ipynb, cell 2: line 1"),
        (["a = 1; b = 2"], "cell 2: two statements on one line"),
        (["A = 1\nassert A == 1"], "cell 2: 'assert A == 1': only imports, constants"),
        (["A = 1\nprint(A)"], "only imports, constants, functions and classes"),
        (["# nothing yet"], "cell 2: an exported cell with nothing but comments"),
        (["def f():\n    return naive()"], "lml/first.py: ruff check failed"),
    ],
)
def test_a_cell_that_cannot_be_exported_is_refused_with_its_place(book, cells, message):
    with pytest.raises(tangle.TangleError, match=message):
        book(*map(export, cells))


def test_what_python_m_runs_is_exported(book):
    text = 'if __name__ == "__main__" and "__file__" in globals():\n    print(1)'
    assert text in book(*map(export, ["A = 1", text]))["first.py"]


@pytest.mark.parametrize(
    "source",
    ["#|export\nA = 1", "# | export\nA = 1", "#| Export\nA = 1", "#| exports\nA = 1",
     "#| export Lml\nA = 1", " #| export\nA = 1", "\n#| export\nA = 1", "A = 1\n#| export"],
)  # fmt: skip
def test_a_misspelt_directive_is_refused(book, source):
    with pytest.raises(tangle.TangleError, match=r"cell 2: .*the directive is '#\| export' or"):
        book(source)


def test_the_first_exported_cell_must_be_a_docstring(book):
    for source in ("import math", '"""A docstring."""\nA = 1', "A = ("):
        with pytest.raises(tangle.TangleError, match=r"book/first.ipynb, cell 1"):
            book(first=[export(source)])


def test_imports_are_merged_sorted_and_dropped_when_unused(book):
    cells = [
        export("import numpy as np\nfrom scipy import linalg\nimport os"),
        export("from scipy import sparse\nimport numpy as np\nfrom lml.other import thing"),
        export("import math  # for pi\n\nA = math.pi, np, linalg, sparse, thing"),
    ]
    text = book(*cells)["first.py"]
    imports = text.partition('"""\n\n')[2].partition("\n\n__all__")[0]
    assert imports.splitlines() == [
        "from __future__ import annotations",
        "",
        "import math  # for pi",
        "",
        "import numpy as np",
        "from scipy import linalg, sparse",
        "",
        "from lml.other import thing",
    ]


def test_comments_and_nested_decorators_are_kept(book):
    cells = [
        export("# Above the constant.\nA = 1  # beside it\n# Below it."),
        export(
            "import functools\n\n\n"
            "# Above the decorators.\n@functools.lru_cache(maxsize=None)  # beside\n"
            "@functools.wraps(\n    int\n)\ndef f():\n    # inside\n    def g():\n"
            "        @functools.wraps(int)\n        def h():\n            pass\n\n"
            "        return h\n\n    return g\n    # at the end of f"
        ),
    ]
    text = book(*cells)["first.py"]
    for said in ("Above the constant", "beside it", "Below it", "Above the decorators", "inside"):
        assert text.count(f"# {said}") == 1
    assert text.count("# at the end of f") == 1
    assert text.count("@functools") == 3
    ast.parse(text)


def test_constants_of_one_cell_stand_together(book):
    text = book(export("#: One.\nA = 1\n#: Two.\nB = 2"), export("C = 3"))["first.py"]
    assert "#: One.\nA = 1\n#: Two.\nB = 2\n" in text


def derived(sentence, indent=4):
    return export(f'def f():\n    """Do it.\n\n    Notes\n    -----\n    {sentence}\n    """')


def test_derived_in_gets_chapter_number_and_name(book):
    text = book(
        zero=["A = 1"],
        first=[DOC, derived("Derived in eqs. (first-main) and (zero-main), and more.")],
    )["first.py"]
    assert "chapter 2 (first), eq. (first-main); chapter 1 (zero), eq. (zero-main), and" in text


def test_labels_on_lines_of_their_own_and_in_text_pages_are_found(book, tmp_path):
    cells = ["$$\na = b\n$$ (first-own)", DOC, derived("Derived in eq. (first-own).")]
    assert "chapter 1 (first), eq. (first-own)." in book(first=cells)["first.py"]
    write_book(
        tmp_path, {"first": [DOC, derived("Derived in eq. (page-main).")]}, toc=["p", "first"]
    )
    (tmp_path / "book" / "p.md").write_text("# Page\n\n$$ a = b $$ (page-main)\n", encoding="utf-8")
    assert "chapter 1 (p), eq. (page-main)." in tangle.build(tmp_path)["first.py"]


def test_derived_in_may_be_broken_over_lines_and_is_wrapped_again(book):
    sentence = (
        "Derived in eqs. (first-main),\n    (zero-main) and (first-b), after a good deal of work"
        " that fills the line.\n    Paper: section III."
    )
    text = book(zero=["A = 1"], first=["$$ c $$ (first-b)", DOC, derived(sentence)])["first.py"]
    assert max(map(len, text.splitlines())) <= 100
    assert "  " not in text.partition("Derived")[2].replace("\n    ", "")
    said = " ".join(text.split())
    assert "chapter 2 (first), eqs. (first-main) and (first-b); chapter 1 (zero)" in said
    assert (
        "eq. (zero-main), after a good deal of work that fills the line. Paper: section III."
        in said
    )
    assert "\n    Paper" not in text


@pytest.mark.parametrize(
    ("sentence", "message"),
    [
        ("Derived in eq. (first-none).", "no equation is labeled 'first-none'"),
        ("Derived in equation (first-main).", "write 'Derived in eq. "),
        ("Derived in (first-main).", "write 'Derived in eq. "),
    ],
)
def test_a_derivation_that_leads_nowhere_is_refused(book, sentence, message):
    with pytest.raises(tangle.TangleError, match=message):
        book(derived(sentence))


def test_one_name_in_two_chapters_is_refused_naming_both_places(book):
    with pytest.raises(tangle.TangleError) as error:
        book(first=[DOC, export("A = 1")], second=[DOC, "x = 1", export("A = 2")])
    assert "book/first.ipynb, cell 2" in str(error.value)
    assert "book/second.ipynb, cell 3" in str(error.value)
    modules = book(first=[DOC, export("_A = 1")], second=[DOC, export("_A = 2")])
    assert "_A = 2" in modules["second.py"]


def test_one_label_in_two_chapters_is_refused(book):
    with pytest.raises(tangle.TangleError, match="'first-main' stands in first and in second"):
        book(first=["A = 1"], second=["$$ c $$ (first-main)"])


def test_a_chapter_and_the_table_of_contents_must_agree(book, tmp_path):
    write_book(tmp_path, {"first": [DOC]}, toc=["first", "second"])
    with pytest.raises(tangle.TangleError, match=r"_toc\.yml names book/second"):
        tangle.build(tmp_path)
    write_book(tmp_path, {"first": [DOC]}, toc=[])
    with pytest.raises(tangle.TangleError, match=r"first\.ipynb is not listed in _toc\.yml"):
        tangle.build(tmp_path)


def test_the_package_offers_the_public_names(book, tmp_path):
    write_book(tmp_path, {"first": [DOC, export("A = 1\nB = 2")]}, public=["B"])
    assert "from lml.first import B" in tangle.build(tmp_path)["__init__.py"]
    write_book(tmp_path, {"first": [DOC, export("A = 1")]}, public=["C"])
    with pytest.raises(tangle.TangleError, match="lists 'C' as public"):
        tangle.build(tmp_path)


def test_check_says_what_is_stale_and_writing_mends_it(book, tmp_path, capsys):
    book(export("A = 1"))
    assert tangle.main(["--check"]) == 1
    assert "lml/first.py is not what book/first.ipynb gives (it is missing)" in (
        capsys.readouterr().out
    )
    assert tangle.main([]) == 0
    assert tangle.main(["--check"]) == 0

    module = tmp_path / "lml" / "first.py"
    written = module.read_text(encoding="utf-8")
    module.write_text(written.replace("A = 1", "A = 3"), encoding="utf-8")
    capsys.readouterr()
    assert tangle.main(["--check"]) == 1
    said = capsys.readouterr().out
    assert "lml/first.py is not what book/first.ipynb gives" in said
    assert "the file has 'A = 3', the chapter gives 'A = 1'" in said
    assert module.read_text(encoding="utf-8") != written  # --check writes nothing
    assert tangle.main([]) == 0
    assert module.read_text(encoding="utf-8") == written

    orphan = tmp_path / "lml" / "orphan.py"
    orphan.write_text("A = 1\n", encoding="utf-8")
    capsys.readouterr()
    assert tangle.main(["--check"]) == 1
    assert "lml/orphan.py has no chapter in book/" in capsys.readouterr().out
    assert orphan.exists()
    assert tangle.main([]) == 0
    assert not orphan.exists()


def test_a_fault_leaves_the_modules_as_they_were(book, tmp_path, capsys):
    book(export("A = 1"))
    assert tangle.main([]) == 0
    written = (tmp_path / "lml" / "first.py").read_text(encoding="utf-8")
    write_book(tmp_path, {"first": [DOC, export("def f(:")]})
    assert tangle.main([]) == 1
    assert "tangle: book/first.ipynb, cell 2" in capsys.readouterr().err
    assert (tmp_path / "lml" / "first.py").read_text(encoding="utf-8") == written


def test_the_output_does_not_depend_on_the_run(book):
    cells = [
        export("from scipy import sparse, linalg\nimport numpy as np"),
        export("B = np, sparse, linalg"),
    ]
    assert book(*cells) == book(*cells)


def test_a_chapter_in_a_folder_becomes_a_module_of_a_package(book, tmp_path):
    write_book(tmp_path, {"first": [DOC, export("A = 1")]})
    (tmp_path / "book" / "extra").mkdir()
    cell = "from lml.first import A\n\n\nclass Later:\n    b = A\n\n\ndef helper():\n    return A"
    write_book(
        tmp_path,
        {"first": [DOC, export("A = 1")], "extra/second": [DOC, export(cell)]},
        public=["Later"],
    )
    with pytest.raises(tangle.TangleError, match=r"has no \[tool.lml.packages.extra\]: add"):
        tangle.build(tmp_path)
    with (tmp_path / "pyproject.toml").open("a", encoding="utf-8") as file:
        file.write('\n[tool.lml.packages.extra]\ndocstring = "More of it."\npublic = ["A"]\n')
    with pytest.raises(tangle.TangleError, match=r"lists 'A' as public, .* to lml.extra"):
        tangle.build(tmp_path)
    project = tmp_path / "pyproject.toml"
    text = project.read_text(encoding="utf-8").replace('public = ["A"]', 'public = ["Later"]')
    project.write_text(text, encoding="utf-8")
    sources = tangle.build(tmp_path)
    assert "Generated from book/extra/second.ipynb" in sources["extra/second.py"]
    assert "from lml.extra.second import Later" in sources["__init__.py"]
    package = sources["extra/__init__.py"]
    assert ast.get_docstring(ast.parse(package)) == "More of it."
    assert "from lml.extra.second import Later" in package
    assert "helper" not in package


def test_one_chapter_tells_several_modules_and_one_module_is_told_in_several_chapters(book):
    other = EXPORT.rstrip() + " second\n"
    sources = book(
        first=[DOC, EXPORT + "A = 1", other + '"""Told elsewhere first."""', other + "B = 2"],
        second=[EXPORT + "C = 3"],
    )
    assert "A = 1" in sources["first.py"]
    assert "B = 2" not in sources["first.py"]
    assert "Generated from book/first.ipynb and book/second.ipynb" in sources["second.py"]
    assert sources["second.py"].index("B = 2") < sources["second.py"].index("C = 3")


def lines_of(text, *said):
    """Stripped lines of a module that begin with one of the words, in order."""
    return [line.strip() for line in text.splitlines() if line.strip().startswith(said)]


def test_a_comment_names_the_page_and_the_heading_once_a_cell(book):
    text = book(
        export("import math"),
        "## The loop, step by step",
        export("import os\n\n\n# Why.\n@staticmethod\ndef f():\n    return os, math"),
        export("A = 1\n\n\ndef g():\n    pass"),
        "## $x$ and `code`\n\n```\n# no heading\n```",
        export("B = 2"),
        "## The end",
        export("C = 3"),
    )["first.py"]
    assert lines_of(text, "# ", "def", "A", "B", "C") == [
        "# Generated from book/first.ipynb by tools/tangle.py: edit the chapter.",
        "# book/first.ipynb#the-loop-step-by-step",
        "# Why.",
        "def f():",
        "# book/first.ipynb#the-loop-step-by-step",
        "A = 1",
        "def g():",
        "# book/first.ipynb#x-and-code",
        "B = 2",
        "# book/first.ipynb#the-end",
        "C = 3",
    ]


def test_a_cell_before_any_section_is_found_under_the_title(book):
    assert "\n# book/first.ipynb#the-first-chapter\nA = 1\n" in book(export("A = 1"))["first.py"]


def test_a_class_repeats_the_comment_where_the_heading_changes(book):
    text = book(
        export("class A:\n    def f(self):\n        pass"),
        export("class A(A):\n    def g(self):\n        pass"),
        "## More",
        export("# Why.\nclass A(A):\n    # How.\n    def h(self):\n        pass"),
        export("class A(A):\n    def i(self):\n        pass"),
    )["first.py"]
    assert lines_of(text, "# ", "class", "def")[1:] == [
        "# book/first.ipynb#the-first-chapter",
        "class A:",
        "def f(self):",
        "def g(self):",
        "# book/first.ipynb#more",
        "# Why.",
        "# How.",
        "def h(self):",
        "def i(self):",
    ]


def test_attributes_and_init_of_a_continued_class_come_first(book):
    text = book(
        export(
            '# Above.\n@staticmethod\nclass A:\n    """Docs."""\n\n    first = 1\n\n'
            "    def fit(self):\n        pass"
        ),
        "## How it begins",
        export("class A(A):\n    def _read(self):\n        pass\n\n    size = property(_read)"),
        export(
            "class A(A):\n    #: Its kind.\n    kind: str = 'a'\n\n    other = size\n\n"
            "    def __init__(self):\n        pass\n\n    def _last(self):\n        pass"
        ),
    )["first.py"]
    begun = "# book/first.ipynb#how-it-begins"
    assert text.partition("class A:\n")[2].split("\n") == [
        '    """Docs."""',
        "",
        "    first = 1",
        f"    {begun}",
        "    #: Its kind.",
        '    kind: str = "a"',
        "",
        "    def __init__(self):",
        "        pass",
        "",
        "    # book/first.ipynb#the-first-chapter",
        "    def fit(self):",
        "        pass",
        "",
        f"    {begun}",
        "    def _read(self):",
        "        pass",
        "",
        "    size = property(_read)",
        "    other = size",
        "",
        "    def _last(self):",
        "        pass",
        "",
    ]
    assert text.count("# Above.\n@staticmethod\nclass A:") == 1


def test_a_class_told_in_one_cell_is_left_as_it_is_written(book):
    source = "class A:\n    def f(self):\n        pass\n\n    b = 1"
    assert source in book(export(source))["first.py"]


EXTENSIONS = {"dollarmath", "amsmath", "colon_fence", "deflist", "substitution"}


def built_anchors(text):
    """Identifiers of the sections that MyST and docutils make of a page."""
    settings = {"myst_enable_extensions": EXTENSIONS, "doctitle_xform": False}
    quiet = {"report_level": 5, "halt_level": 5}  # roles and directives of Sphinx are unknown
    page = publish_doctree(text, parser=Parser(), settings_overrides=settings | quiet)
    return [section["ids"][0] for section in page.findall(nodes.section)]


def test_anchors_of_the_headings_are_those_of_the_built_page():
    config = yaml.safe_load((tangle.ROOT / "_config.yml").read_text(encoding="utf-8"))
    assert set(config["parse"]["myst_enable_extensions"]) >= EXTENSIONS - {"deflist"}
    texts = {page: page.read_text("utf-8") for page in (tangle.ROOT / "book").glob("*.md")}
    for page in (tangle.ROOT / "book").rglob("*.ipynb"):
        cells = nbformat.read(page, as_version=4).cells
        texts[page] = "\n\n".join(
            cell.source for cell in cells if cell.cell_type == "markdown" and "#" in cell.source
        )
    compared = 0
    for page, text in texts.items():
        anchors = built_anchors(text)
        assert tangle.slugs(text) == anchors, page
        compared += len(anchors)
    assert compared > 5 * len(texts)


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("The gradient is $X^\\tp K X$", "the-gradient-is-x-tp-k-x"),
        ("A $D \\times D$ matrix", "a-d-times-d-matrix"),
        ("The paper's `code` -- and *more*", "the-paper-s-code-and-more"),
        ("Équation: why?", "equation-why"),
    ],
)
def test_formulas_and_signs_of_a_heading_are_in_its_anchor_as_docutils_writes_them(heading, anchor):
    text = f"# Title\n\n## {heading}\n\ntext"
    assert tangle.slugs(text) == built_anchors(text) == ["title", anchor]


def test_two_headings_of_one_page_with_one_anchor_are_refused(book):
    message = "book/first has two headings with the anchor #more: rename one"
    with pytest.raises(tangle.TangleError, match=message):
        book("## More", export("A = 1"), "## More?")


def test_chapters_with_other_letters_are_tangled_where_the_locale_has_none(book, tmp_path):
    """No read, write or subprocess takes its encoding from the locale, no message needs letters."""
    cells = [export('"""Γραμμή — naïve x′Wz."""'), export("# λ ≥ 0\nÄ = 'é'")]
    sources = book(first=cells)
    (tmp_path / "tools").mkdir()
    tool = shutil.copy(tangle.__file__, tmp_path / "tools")
    settings = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}

    def run(*options):
        return subprocess.run(
            [sys.executable, tool, *options], env=os.environ | settings, capture_output=True,
            encoding="ascii", check=False,
        )  # fmt: skip

    done = run()
    assert done.returncode == 0, done.stderr
    path = tmp_path / "lml" / "first.py"
    assert path.read_bytes() == sources["first.py"].encode("utf-8")
    path.write_text(sources["first.py"].replace("é", "è"), encoding="utf-8")
    done = run("--check")
    assert done.returncode == 1
    assert r"""the file has '\xc4 = "\xe8"', the chapter""" in done.stdout
    assert done.stderr == ""


def test_the_package_says_its_version(book):
    assert '__version__ = "1.2.3"' in book(export("A = 1"))["__init__.py"]


def test_two_chapters_that_export_one_name_are_both_named(tmp_path, monkeypatch):
    monkeypatch.setattr(tangle, "ROOT", tmp_path)
    write_book(tmp_path, {"first": [DOC, export("A = 1")], "second": [DOC, export("B = 2\nA = 3")]})
    with pytest.raises(tangle.TangleError) as caught:
        tangle.build(tmp_path)
    assert "book/first.ipynb, cell 2" in str(caught.value)
    assert "book/second.ipynb, cell 2" in str(caught.value)


def test_a_hand_edit_names_the_module_the_chapter_and_both_lines(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tangle, "ROOT", tmp_path)
    write_book(tmp_path, {"first": [DOC, export("def f():\n    return 1")]})
    assert tangle.main([]) == 0
    module = tmp_path / "lml" / "first.py"
    module.write_text(module.read_text().replace("return 1", "return 2"))
    capsys.readouterr()
    assert tangle.main(["--check"]) == 1
    said = capsys.readouterr().out
    assert "lml/first.py is not what book/first.ipynb gives" in said
    assert "the file has 'return 2', the chapter gives 'return 1'" in said
