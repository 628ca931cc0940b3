"""The contract that every page of the book keeps, and what each kind of page keeps besides."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from itertools import pairwise
from pathlib import Path

import nbformat
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
# Cells whose text no run compares, and why.
_DRAWINGS = "shapes of drawings, whose last digits differ between machines"
NOT_COMPARED = {
    "first-slide-1": _DRAWINGS,
    "oasisslider": _DRAWINGS,
    "codingslider": _DRAWINGS,
    "life-slide-1": _DRAWINGS,
    "ca20067f": "the paper's steps amplify rounding, which differs between processors",
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
    # a page that only continues modules of other pages has no docstring of a module
    begins = [(i, c) for i, c in told if not exported(c.source)["module"] or is_docstring(c.source)]
    if begins and "remove-output" not in begins[0][1].metadata.get("tags", []):
        found.append(f"cell {begins[0][0]}: tag the module's docstring remove-output")
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
    return not before and isinstance(last, ast.Expr) and isinstance(last.value, ast.Constant)


def is_text(output: nbformat.NotebookNode) -> bool:
    """Whether an output is text: a run has to give it again."""
    return not PICTURES & set(output.get("data", {}))


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
    tags = set(cell.metadata.get("tags", []))
    is_free = cell.id in NOT_COMPARED or tags & {"nbval-check-output", "remove-output"}
    if not is_free and any(map(is_text, cell.outputs)):
        found.append(f"{where} shows text that no run compares: tag it nbval-check-output")
    found += [f"{where} has the comment {m}, which switches checks off"
              for m in MARKERS.findall("\n".join(source.splitlines()))]  # fmt: skip
    if strange := tags - TAGS:
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
