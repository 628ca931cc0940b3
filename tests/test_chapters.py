"""The contract that every page of the book keeps, and what each kind of page keeps besides.

The kind stands in the notebook's metadata: ``"lml": {"kind": "workshop"}``. There a workshop page
may also name test modules that check what it exports: ``"tests": ["streams"]`` is
tests/test_streams.py.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from itertools import pairwise
from pathlib import Path

import gallery
import nbformat
import pytest
from tangle import LABEL, ROOT, exported, toc_files

CODE_LINES = 40
SOLUTION_LINES = 20
PICTURES = {"image/png", "image/svg+xml"}
KINDS = ("story", "theory", "workshop", "example", "reference")
TAUGHT = ("story", "theory")  # pages to learn from: exercises, checks, summary, references
# Tags that a cell may have. No other one: several switch off nbval, its errors or its output.
TAGS = {
    "nbval-check-output",
    "remove-output",  # the docstring of a module: it is the module's text, which tangle compares
    "folded",  # fold a cell, or do not, whatever the rules say (book/_ext/lml_folds.py)
    "unfolded",
}
# Comments that switch nbval off, or tell it to expect an error.
MARKERS = re.compile(r"(?im)^\s*#+\s*((?:NBVAL|PYTEST_VALIDATE)_\w+)")
# Text outputs that no run compares, and why.
NOT_COMPARED = {
    "Slider: ": "shapes of drawings, whose last digits differ between machines",
}
RANDOM = re.compile(r"\b(default_rng|RandomState|check_random_state|random_state|seed)\b")
CHECK = re.compile(r"\bassert\b|np\.testing\.|check_grad|pytest\.raises")
TO_CODE = re.compile(
    r"^:::\{admonition\} Exercise (?P<number>\d+) \(code, (?P<level>easy|medium|hard)\)\n"
    r":class: exercise\n(?P<task>(?:(?!:::).*\n)*):::\s*\Z",
    re.MULTILINE,
)
STARTER = re.compile(r"```python\n(.*?)\n```", re.DOTALL)
NUMPY_SCALAR = re.compile(r"np\.(u?int|float|longdouble|complex|bool|str_|bytes_|True_|False_)")
EQ_ROLE = re.compile(r"\{eq\}`(?:[^`<]*<)?([\w:-]+)>?`")
EQ_IN_DOCSTRING = re.compile(r"eqs?\. ((?:\([\w:-]+\)(?:, and |, | and )?)+)")
SPACE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}

NOTEBOOKS = [ROOT / f"{file}.ipynb" for file, _ in toc_files(ROOT)]
NOTEBOOKS = [path for path in NOTEBOOKS if path.exists()]
EXAMPLES = [path for path in NOTEBOOKS if path.parent.name == "gallery"]


def faults(notebook: nbformat.NotebookNode, cited: set[str]) -> list[str]:
    """Everything in which a chapter breaks the contract, as sentences."""
    kind = notebook.metadata.get("lml", {}).get("kind")
    if kind not in KINDS:
        said = "is missing" if kind is None else f"is {kind!r}"
        return [f'the kind of page {said}: put "lml": {{"kind": KIND}} into the metadata of the'
                f" notebook, KIND one of {', '.join(KINDS)}"]  # fmt: skip
    found = page_faults(notebook, cited)
    return found + (lesson_faults(notebook) if kind in TAUGHT else [])


def page_faults(notebook: nbformat.NotebookNode, cited: set[str]) -> list[str]:
    """What is asked of every page: executed, seeded, outputs stored, no warning."""
    found = []
    code = [(i, c) for i, c in enumerate(notebook.cells) if c.cell_type == "code"]
    prose = "\n\n".join(c.source for c in notebook.cells if c.cell_type == "markdown")
    source = "\n".join(c.source for _, c in code)
    if notebook.metadata.get("kernelspec", {}).get("name") != "python3":
        found.append("the kernel is not python3: run `make execute`")
    if not notebook.cells or not notebook.cells[0].source.startswith("# "):
        found.append("the first cell must begin with a level-1 heading")
    found += [fault for i, cell in code for fault in cell_faults(i, cell)]
    told = [(i, c) for i, c in code if exported(c.source)]
    if told and "remove-output" not in told[0][1].metadata.get("tags", []):
        found.append(f"cell {told[0][0]}: tag the module's docstring remove-output")
    counts = [cell.execution_count for _, cell in code]
    if counts != list(range(1, len(code) + 1)):
        found.append("the cells were not executed once, top to bottom: run `make execute`")
    if not any("nbval-check-output" in cell.metadata.get("tags", []) for _, cell in code):
        found.append("no cell is tagged nbval-check-output")
    if RANDOM.search(source) is None:
        found.append("no seed is set")
    if re.search(r"np\.random\.(?!default_rng|RandomState|Generator|SeedSequence)", source):
        found.append("the global random state of numpy is used")
    if re.search(r"\\(newcommand|def|renewcommand)\b", prose):
        found.append("a TeX macro is defined in the chapter: put it into _config.yml")
    if re.search(r"\\(eqref|label)\{", prose):
        found.append(r"\eqref or \label in prose: use `$$ ... $$ (label)` and {eq}`label`")
    found += [
        f"equation label {label!r} is never cited"
        for label in (a or b for a, b in LABEL.findall(prose))
        if label not in cited
    ]
    return found


def lesson_faults(notebook: nbformat.NotebookNode) -> list[str]:
    """What is asked of a story or theory page: checks, exercises, summary, references."""
    found = []
    answers = [cell for _, cell in solved(notebook)]
    code = [c for c in notebook.cells if c.cell_type == "code" and c not in answers]
    prose = "\n\n".join(c.source for c in notebook.cells if c.cell_type == "markdown")
    if "```{bibliography}" not in prose or "{cite" not in prose:
        found.append("there are no references (a {cite} and a {bibliography} block)")
    checks = sum(CHECK.search(cell.source) is not None for cell in code)
    taught = sum(has_more_than_imports(cell.source) for cell in code)
    if 3 * checks < taught:
        found.append(f"only {checks} of {taught} code cells check something (a third is asked)")
    exercises = len(re.findall(r":class: exercise\b", prose))
    solutions = len(re.findall(r":::+\{dropdown\} Solution", prose)) + len(answers)
    if not 3 <= exercises <= 5 or solutions < exercises:
        found.append(f"{exercises} exercises with {solutions} solutions; 3 to 5 are asked")
    found += coding_faults(notebook)
    found += [f"there is no {h!r}" for h in ("## Summary", "## References") if h not in prose]
    return found


def solved(
    notebook: nbformat.NotebookNode,
) -> list[tuple[re.Match[str], nbformat.NotebookNode]]:
    """The exercises to code that end a cell of text, each with the code cell that follows."""
    pairs = [
        (TO_CODE.search(text.source), code)
        for text, code in pairwise(notebook.cells)
        if text.cell_type == "markdown" and code.cell_type == "code"
    ]
    return [(asked, code) for asked, code in pairs if asked]


def coding_faults(notebook: nbformat.NotebookNode) -> list[str]:
    """What is asked of exercises to code: a starter, an executed solution and its test."""
    found = []
    prose = "\n\n".join(c.source for c in notebook.cells if c.cell_type == "markdown")
    wanted = 2 if notebook.metadata["lml"]["kind"] == "story" else 0
    pairs = solved(notebook)
    named = len(re.findall(r"\{admonition\} Exercise \d+ \(code\b", prose))
    if named < wanted or len(pairs) < named:
        found.append(
            f"{len(pairs)} of {named} exercises to code end a cell of text and are followed by the"
            f" cell that solves them; {wanted} are asked, with (code, easy), (code, medium) or"
            " (code, hard) in their titles"
        )
    for asked, cell in pairs:
        where = f"exercise {asked['number']}"
        starter = STARTER.search(asked["task"])
        starts = ast.parse(starter[1]).body if starter else []
        functions = [node for node in starts if isinstance(node, ast.FunctionDef)]
        if not any(ast.get_docstring(f) and ast.unparse(f.body[-1]) == "..." for f in functions):
            found.append(f"{where} has no starter: a function with a docstring and `...`")
        defined = {n.name for n in ast.parse(cell.source).body if isinstance(n, ast.FunctionDef)}
        if not {function.name for function in functions} <= defined:
            found.append(f"{where}: its solution does not define what the starter names")
        if not CHECK.search(cell.source):
            found.append(f"{where}: its solution asserts nothing")
        if (length := code_lines(cell.source)) > SOLUTION_LINES:
            found.append(f"{where}: {length} lines of code, at most {SOLUTION_LINES} are allowed")
        if exported(cell.source) or "unfolded" in cell.metadata.get("tags", []) or cell.outputs:
            found.append(f"{where}: its solution is exported, not folded, or prints something")
    return found


def workshop_faults(notebook: nbformat.NotebookNode, name: str) -> list[str]:
    """What is asked of a workshop page: each public function is checked there or in a test module.

    The test modules are those named like the page or a module that it tells, and those that the
    metadata names.
    """
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    told = [(exported(source), source) for source in code]
    modules = [directive["module"] or name.replace("/", ".") for directive, _ in told if directive]
    named = notebook.metadata["lml"].get("tests", [])
    found = [
        f"there is no tests/test_{test}.py" for test in named if not path_of_tests(test).exists()
    ]
    tests = {name, *modules, *(m.rpartition(".")[2] for m in modules), *named}
    paths = [path for path in map(path_of_tests, sorted(tests)) if path.exists()]
    checks = [source for directive, source in told if not directive and CHECK.search(source)]
    checks += [path.read_text(encoding="utf-8") for path in paths]
    words = set(re.findall(r"\w+", "\n".join(checks)))
    functions = [
        node.name
        for directive, source in told
        if directive
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    ]
    return found + [
        f"{function} is checked neither in the page nor in {[p.name for p in paths]}: add a check,"
        ' or name the test module in the metadata ("lml": {"tests": [...]})'
        for function in functions
        if function not in words
    ]


def path_of_tests(test: str) -> Path:
    """The test module of a page or of a module."""
    return ROOT / "tests" / f"test_{test.replace('/', '_').replace('.', '_')}.py"


def has_more_than_imports(source: str) -> bool:
    """Whether a cell does more than import modules, name types and state a docstring."""
    kept = [n for n in ast.parse(source).body if not names_type(n)]
    return any(not isinstance(n, (ast.Import, ast.ImportFrom, ast.Expr)) for n in kept)


def names_type(node: ast.stmt) -> bool:
    """Whether a statement gives a type a name, for annotations."""
    return isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "TypeAlias"


def code_lines(source: str) -> int:
    """Lines that hold code: no blank lines, comments, docstrings, imports, error messages.

    A signature counts one line, however many its annotations need.
    """
    lines = {
        line
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in SPACE
        for line in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            lines -= set(range(node.lineno, node.end_lineno + 1))
        if isinstance(node, ast.Raise):  # a message may be long: it counts one line
            lines -= set(range(node.lineno + 1, node.end_lineno + 1))
        if isinstance(node, ast.FunctionDef):
            lines -= set(range(node.lineno + 1, node.body[0].lineno))
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            value = body[0].value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                lines -= set(range(body[0].lineno, body[0].end_lineno + 1))
    return len(lines)


def is_docstring(source: str) -> bool:
    """Whether a cell is the docstring of a module and nothing else."""
    (*before, last) = ast.parse(source).body or [None]
    return not before and isinstance(getattr(last, "value", None), ast.Constant)


def is_compared(output: nbformat.NotebookNode) -> bool:
    """Whether an output is text that a run has to give again."""
    data = output.get("data", {})
    text = output.get("text", "") + str(data.get("text/plain", ""))
    return not PICTURES & set(data) and not text.startswith(tuple(NOT_COMPARED))


def cell_faults(index: int, cell: nbformat.NotebookNode) -> list[str]:
    """The contract of one code cell."""
    found, where, source = [], f"cell {index}", cell.source
    draws = source.rstrip().endswith("plt.show()")
    pictures = any(PICTURES & set(o.get("data", {})) for o in cell.outputs)
    length = code_lines(source)
    if length > CODE_LINES:
        found.append(f"{where} has {length} lines of code, at most {CODE_LINES} are allowed")
    if source.rstrip().endswith(";"):
        found.append(f"{where} ends with ';': end figure cells with plt.show()")
    if pictures and not draws:
        found.append(f"{where} shows a figure but does not end with plt.show()")
    settings = cell.metadata.get("mystnb", {})
    if draws and not settings.get("figure", {}).get("caption"):
        found.append(f"{where}: the figure has no caption (cell metadata mystnb.figure.caption)")
    if draws and not settings.get("image", {}).get("alt"):
        found.append(f"{where}: the figure has no alternative text (mystnb.image.alt)")
    if draws and not pictures:
        found.append(f"{where} calls plt.show() but stores no figure")
    for output in cell.outputs:
        text = output.get("text", "") + str(output.get("data", {}).get("text/plain", ""))
        if output.output_type == "error" or output.get("name") == "stderr":
            found.append(f"{where} stores an error or a warning")
        if NUMPY_SCALAR.search(text) or re.search(r"(?<![\w.])-0\.0*(?![\d])", text):
            found.append(f"{where} prints a numpy scalar or -0: format it as a plain number")
    if "nbval-check-output" in cell.metadata.get("tags", []) and not cell.outputs:
        found.append(f"{where} is tagged nbval-check-output but stores no output")
    if "remove-output" in cell.metadata.get("tags", []) and not is_docstring(source):
        found.append(f"{where} is tagged remove-output, which is for docstrings of modules")
    if not {"nbval-check-output", "remove-output"} & set(cell.metadata.get("tags", [])) and any(
        map(is_compared, cell.outputs)
    ):
        found.append(f"{where} shows text that no run compares: tag it nbval-check-output")
    found += [f"{where} has the comment {m}, which switches checks off"
              for m in MARKERS.findall(source)]  # fmt: skip
    if strange := set(cell.metadata.get("tags", [])) - TAGS:
        found.append(f"{where} has tags that are not on the list: {', '.join(sorted(strange))}")
    if "sys.path" in source:
        found.append(f"{where} edits sys.path")
    return found


def all_citations(notebooks: list[nbformat.NotebookNode]) -> set[str]:
    """Equation labels cited in prose or in exported docstrings anywhere in the book."""
    cited: set[str] = set()
    for notebook in notebooks:
        for cell in notebook.cells:
            if cell.cell_type == "markdown":
                cited |= set(EQ_ROLE.findall(cell.source))
            elif exported(cell.source):
                for group in EQ_IN_DOCSTRING.findall(" ".join(cell.source.split())):
                    cited |= set(re.findall(r"\(([\w:-]+)\)", group))
    return cited


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
    assert not missing, f"cited, but labelled nowhere: {sorted(missing)}"


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
