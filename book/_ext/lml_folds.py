"""What of a code cell is folded on its page: a rule, from what the cell contains.

A reader comes for the text, the equations, the cells that implement them and the figures. The
plumbing is folded: imports, checks of arguments, what is stored in files, tags of scikit-learn,
plotting, the comparison with the installed package, long docstrings and private helpers. A cell
is folded as a whole where all of it is plumbing, and in parts where some of it is; the parts are
statements, members of a class and the rest of a docstring.

A cell that implements an equation shows its methods and helpers: its docstrings or comments cite
the equation, or a labelled equation stands in the text just before it. Pages to look things up
in, workshop and reference, show their helpers and checks too. A cell just after an exercise is its
solution, and folded. Two tags of a cell overrule all this: ``folded`` folds it, ``unfolded`` leaves
it open.

Nothing here knows of Sphinx: `lml_cells` writes the folds into the page.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

EXPORT = re.compile(r"#\| export(?: ([\w.]+))?")
FOLDED, UNFOLDED = "folded", "unfolded"  # the tags
MILD = ("workshop", "reference")  # kinds of page that show their helpers and checks
DOCSTRING_LINES = 8  # a longer docstring keeps its first paragraph
PART_LINES = 4  # fewer lines of a cell are not worth a fold

CITED = re.compile(r"\beqs?\.\s+\([\w:-]+\)")
LABELLED = re.compile(r"\$\$\s*\([\w:-]+\)")
EXERCISE = re.compile(  # the last thing in a text
    r"^:::\{admonition\} Exercise (\d+)\b.*\n:class: exercise\n(?:(?!:::).*\n)*:::\s*\Z",
    re.MULTILINE,
)
CHECKS = re.compile(r"\bassert\b|np\.testing\.|check_grad|pytest\.raises")
SHOWS = re.compile(r"\bplt\.show\(\)\s*$")
SECTION = re.compile(r"^ *(\w[\w ]*)\n *-{3,} *$", re.MULTILINE)
CHECKING = re.compile(r"_*(check|checked|require|refuse|validate|expect)(_|$)")
STORING = re.compile(r"save|load|_fields|__[gs]etstate__|__reduce__|_?(stored|restored)(_\w+)?")
TAGGING = re.compile(r"__sklearn_tags__|_more_tags|get_metadata_routing|__sklearn_is_fitted__")
FIELD = re.compile(r"\w*Field\(")
RULE = re.compile(r"(Rule|real|whole|one_of|seed)\(")
LEARNING = re.compile(r"_?(learn|fit|move|solve|step)(_\w+)?")  # never a mere helper
RULES = "_parameter_rules"

IMPORTS = "imports"
SETTINGS = "settings"
PARAMETERS = "parameters"
PROPERTIES = "properties"
PROPERTY = "property"
ARGUMENTS = "checks of arguments"
STORED = "what is stored in a file"
TAGS = "tags of scikit-learn"
PLOTTING = "plotting"
HELPERS = "helpers"
HELPER = "helper"
DOCUMENTATION = "docstring"
AGREES = "check that the package agrees"
FIGURE = "code of the figure"
OUTPUT = "code of the output"
CHECK = "check"


class Fold(NamedTuple):
    """Lines `first` to `last` of a cell, from 0 and inclusive, behind a line that says `what`.

    Names of the code stand between backquotes.
    """

    first: int
    last: int
    what: str

    @property
    def title(self) -> str:
        """The line that stands for the fold: what is inside, and how long it is."""
        count = self.last - self.first + 1
        return f"{self.what[0].upper()}{self.what[1:]}: {count} line{'s' if count > 1 else ''}"


class Cell(NamedTuple):
    """A code cell, and what its page says about it."""

    source: str  # without the line that exports it
    exported: bool = False
    kind: str = "story"  # of its page
    before: str = ""  # the text of the cell before it, if that is text
    own: frozenset[str] = frozenset()  # modules that the page tells
    tags: frozenset[str] = frozenset()
    has_output: bool = False
    guards: bool = False  # not the first check of its section

    @property
    def lines(self) -> list[str]:
        return self.source.rstrip("\n").split("\n")


class _Unit(NamedTuple):
    """A statement, a member of a class or a docstring: its lines, and what it is if plumbing."""

    first: int
    last: int
    category: str | None
    name: str = ""


def folds(cell: Cell) -> list[Fold]:
    """The folds of a cell, in order; a fold of all its lines folds the cell."""
    try:
        tree = ast.parse(cell.source)
    except SyntaxError:  # the magics of IPython
        return []
    if not tree.body or UNFOLDED in cell.tags:
        return []
    units = list(_units(tree, cell))
    whole = _whole(tree, cell) or (all(u.category for u in units) and _said(units))
    if FOLDED in cell.tags:
        names = list(_defined(tree))
        checks = not cell.exported and CHECKS.search(cell.source)
        # what prints a result is not called a check, although it asserts what the text says
        said = OUTPUT if cell.has_output else CHECK if checks else "code"
        whole = whole or (f"code of {_quoted(names)}" if names else said)
    if whole and not _begins_public_class(tree, cell):
        return [Fold(0, len(cell.lines) - 1, whole)]
    found = []
    for run in _runs(units):
        first, last = run[0].first, run[-1].last
        long = last - first + 1 >= PART_LINES
        while first and not cell.lines[first - 1].strip():  # blank lines go with what they precede
            first -= 1
        if long:
            found.append(Fold(first, last, _said(run)))
    return found


def _defined(tree: ast.Module) -> Iterator[str]:
    """Names of what a cell defines; of a class that it continues, those of the members."""
    for node in tree.body:
        if continues(node):
            yield from (member.name for member in node.body if isinstance(member, ast.FunctionDef))
        elif isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            yield node.name


def _begins_public_class(tree: ast.Module, cell: Cell) -> bool:
    """Whether a cell begins a class that users read of: its name and first words stay in view."""
    return FOLDED not in cell.tags and any(
        isinstance(node, ast.ClassDef)
        and cell.exported
        and not node.name.startswith("_")
        and not continues(node)
        for node in tree.body
    )


def continues(node: ast.AST) -> bool:
    """Whether a class is continued, as in ``class OASIS(OASIS):``."""
    return isinstance(node, ast.ClassDef) and [ast.unparse(b) for b in node.bases] == [node.name]


def continued_classes(source: str) -> list[str]:
    """Names of the classes that a cell continues."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return []
    return [node.name for node in tree.body if continues(node)]


def _whole(tree: ast.Module, cell: Cell) -> str:
    """What a cell is as a whole, if that alone folds it."""
    if asked := EXERCISE.search(cell.before):
        return f"solution of exercise {asked[1]}"
    if SHOWS.search(cell.source):
        return FIGURE
    if cell.exported:
        return ""
    checks = CHECKS.search(cell.source) is not None
    if checks and any(_imports(node, cell.own) for node in ast.walk(tree)):
        return AGREES
    guards = checks and cell.guards and not cell.has_output and not LABELLED.search(cell.before)
    return CHECK if guards and cell.kind not in MILD else ""


def _imports(node: ast.AST, modules: frozenset[str]) -> bool:
    """Whether a statement imports the package as a user does, or one of these modules of it."""
    if isinstance(node, ast.Import):
        return any(a.name == "lml" or a.name.removeprefix("lml.") in modules for a in node.names)
    if isinstance(node, ast.ImportFrom) and node.module == "lml":
        return bool(modules)
    return isinstance(node, ast.ImportFrom) and (node.module or "").removeprefix("lml.") in modules


def _implements_equation(cell: Cell) -> bool:
    """Whether a cell cites an equation, or one stands just before the cell."""
    return _is_cited(cell.source) or LABELLED.search(cell.before) is not None


def _is_cited(source: str) -> bool:
    return CITED.search(" ".join(source.replace("#", " ").split())) is not None


def _units(tree: ast.Module, cell: Cell) -> Iterator[_Unit]:
    """The units of a cell in order."""
    lines = cell.lines
    equation = _implements_equation(cell)
    for index, node in enumerate(tree.body):
        if index == 0 and _is_docstring(node):
            yield _Unit(node.lineno - 1, node.end_lineno - 1, "docstring of the module")
        elif isinstance(node, ast.ClassDef):
            yield from _members(node, cell, equation)
        elif isinstance(node, ast.FunctionDef):
            category = _function(node, cell, equation)
            if category is None and _docstring_rest(node, lines):
                yield _Unit(_start(node, lines), node.body[0].lineno - 1, None, node.name)
                yield _docstring_rest(node, lines)
                yield _Unit(node.body[0].end_lineno, node.end_lineno - 1, None, node.name)
            else:
                yield _Unit(_start(node, lines), node.end_lineno - 1, category, node.name)
        else:
            yield _Unit(_start(node, lines), node.end_lineno - 1, _statement(node, cell))


def _members(node: ast.ClassDef, cell: Cell, equation: bool) -> Iterator[_Unit]:
    """The head of a class, its docstring and its members."""
    lines = cell.lines
    declares = "Protocol" in map(ast.unparse, node.bases)  # and implements nothing
    private = node.name.startswith("_") and cell.exported and (declares or not equation)
    helper = HELPERS if private and cell.kind not in MILD else None
    first = node.body[0]
    rest = _docstring_rest(node, lines)
    members = node.body[1:] if _is_docstring(first) else node.body
    found = [
        _member(member, cell, equation)
        or (None if LEARNING.fullmatch(getattr(member, "name", "")) else helper)
        for member in members
    ]
    plumbing = bool(found) and all(found)
    # of a class that is all plumbing, the head goes with its members
    head = (found[0] if continues(node) else helper) if plumbing else helper
    said = first.end_lineno if _is_docstring(first) else node.lineno
    ends = rest.first - 1 if rest else said - 1
    yield _Unit(_start(node, lines), ends, head, node.name if private and head == HELPERS else "")
    if rest:
        yield rest
    for member, category in zip(members, found):
        name = "" if helper else getattr(member, "name", "")
        rest = None if category else _docstring_rest(member, lines)
        if rest:
            yield _Unit(_start(member, lines), rest.first - 1, None)
            yield rest
            yield _Unit(rest.last + 1, member.end_lineno - 1, None)
        else:
            yield _Unit(_start(member, lines), member.end_lineno - 1, category, name)


def _member(node: ast.stmt, cell: Cell, equation: bool) -> str | None:
    """What a member of a class is, if it is plumbing."""
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if ast.unparse(targets[0]) == RULES:
            return PARAMETERS
        if isinstance(node, ast.Assign) and cell.exported and _is_literal(node.value):
            return SETTINGS
        return STORED if node.value and FIELD.match(ast.unparse(node.value)) else None
    if not isinstance(node, ast.FunctionDef):
        return None
    if node.name == "__init__" and _only_stores(node):
        return PARAMETERS
    decorators = [ast.unparse(d) for d in node.decorator_list]
    reads = node.name in ("__len__", "__iter__", "__contains__", "nbytes")
    if ("property" in decorators or reads) and not _cites(node, cell):
        return PROPERTIES
    return _function(node, cell, equation)


def _function(node: ast.FunctionDef, cell: Cell, equation: bool) -> str | None:
    """What a function is, if it is plumbing."""
    if _cites(node, cell):
        return None
    if TAGGING.fullmatch(node.name):
        return TAGS
    if STORING.fullmatch(node.name) and cell.exported:
        return STORED
    if CHECKING.match(node.name) and node.name.startswith("_"):
        return ARGUMENTS
    if not cell.exported and _draws(node):
        return PLOTTING
    private = node.name.startswith("_") and not node.name.endswith("__")
    helps = private and not LEARNING.fullmatch(node.name)
    return HELPERS if helps and cell.exported and not equation and cell.kind not in MILD else None


def _cites(node: ast.stmt, cell: Cell) -> bool:
    """Whether the lines of a definition cite an equation."""
    return _is_cited("\n".join(cell.lines[node.lineno - 1 : node.end_lineno]))


def _only_stores(node: ast.FunctionDef) -> bool:
    """Whether a function only stores its arguments, each under its name."""
    return all(
        _is_docstring(statement) or re.fullmatch(r"self\.(\w+) = \1", ast.unparse(statement))
        for statement in node.body
    )


def _draws(node: ast.FunctionDef) -> bool:
    """Whether a function draws: it is given axes, or asks pyplot for them."""
    arguments = {a.arg for a in node.args.args}
    return bool(arguments & {"ax", "axes", "fig"}) or "plt." in ast.unparse(node)


def _statement(node: ast.stmt, cell: Cell) -> str | None:
    """What a statement that defines nothing is, if it is plumbing."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return IMPORTS
    if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
        value = ast.unparse(node.value)
        if cell.exported and FIELD.match(value):
            return STORED
        if cell.exported and RULE.match(value):
            return PARAMETERS
        if _is_literal(node.value) or re.match(
            r"np\.random\.(default_rng|RandomState)\(\d*\)$", value
        ):
            return SETTINGS
        if isinstance(node, ast.AnnAssign) and "TypeAlias" in ast.unparse(node.annotation):
            return SETTINGS
    return None


def _is_literal(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError):
        return False
    return True


def _is_docstring(node: ast.stmt) -> bool:
    value = getattr(node, "value", None) if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _start(node: ast.stmt, lines: list[str]) -> int:
    """The first line of a statement from 0, with its decorators and the comment above it."""
    decorators = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(d.lineno for d in decorators)]) - 1
    while first and lines[first - 1].lstrip().startswith("#"):
        first -= 1
    return first


def _docstring_rest(node: ast.stmt, lines: list[str]) -> _Unit | None:
    """What follows the first paragraph of a long docstring, with the sections it has."""
    body = getattr(node, "body", None)
    if not isinstance(body, list) or not body or not _is_docstring(body[0]):
        return None
    first, last = body[0].lineno - 1, body[0].end_lineno - 1
    if last - first + 1 <= DOCSTRING_LINES:
        return None
    blank = next((i for i in range(first, last) if not lines[i].strip()), first)
    begins = blank if first < blank <= first + DOCSTRING_LINES else first + 1
    sections = [s.lower() for s in SECTION.findall("\n".join(lines[begins : last + 1]))]
    return _Unit(begins, last, DOCUMENTATION, ", ".join(sections))


def _runs(units: list[_Unit]) -> Iterator[list[_Unit]]:
    """Units of plumbing that follow one another."""
    run: list[_Unit] = []
    for unit in units:
        if unit.category:
            run.append(unit)
        else:
            if run:
                yield run
            run = []
    if run:
        yield run


def _said(units: list[_Unit]) -> str:
    """What is in a run of units, in words, the names of helpers with it."""
    parts: dict[str, list[str]] = {}
    for unit in units:
        names = parts.setdefault(unit.category, [])
        if unit.name and unit.name not in names:
            names.append(unit.name)
    said = []
    for category, names in parts.items():
        if category == DOCUMENTATION:
            said.append(f"docstring ({names[0]})" if names else "rest of the docstring")
        elif category in (HELPERS, PLOTTING, PROPERTIES) and names:
            one = {HELPERS: HELPER, PROPERTIES: PROPERTY} if len(names) == 1 else {}
            said.append(f"{one.get(category, category)} {_quoted(names)}")
        elif category in (STORED, ARGUMENTS) and names:
            said.append(f"{category} ({_quoted(names)})")
        else:
            said.append(category)
    return "; ".join(said)


def _quoted(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
