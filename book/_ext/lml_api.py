"""Sphinx extension of the book: the API pages, and the ways back from them.

Each module has a page of its own, ``book/api/NAME.md``, which holds its title; what the docstrings
say is added here. The API page itself lists the public names, one line each. In docstrings,
"Derived in chapter 7 (oasis), eq. (oasis-update)" becomes links to the chapter and the
equation, and plain mathematics such as ||M*|| stays plain. A link "[source]" leads to the
section of the book in which the code is told. Below the docstring of a class stand the methods that
it inherits, one line each, with links to the pages that describe them.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import json
import posixpath
import re
from pathlib import Path

import yaml
from lml_folds import EXPORT
from sphinx.errors import ExtensionError
from sphinx.util import logging

API = "book/api"
CHAPTER = re.compile(r"chapter\s+(\d+\s+)?\(([\w/]+)\),")
EQUATIONS = re.compile(r"(eqs?\.\s+)(\([\w:-]+\)(?:(?:,\s+and|,|\s+and)\s+\([\w:-]+\))*)")
MARKUP = re.compile(r"(?P<quoted>`+[^`]+`+)|(?P<sign>\||(?<=\w)[*_](?!\w))")
ENUMERATION = re.compile(r"^( *)(?=[A-Za-z]\.(?: |$))")
PARAMETER = re.compile(r"\s*[*\w, ]+ : ")
ROUTING = re.compile(r"set_\w+_request")
ANCHOR = re.compile(r" *# book/([\w/]+)\.ipynb#([\w-]*)")
MODULE = """
From the chapter [](/{file}.ipynb).

```{{eval-rst}}
.. automodule:: lml.{name}
   :members:
```
"""


def exporting_chapters(root: Path) -> dict[str, str]:
    """Module name to the chapter that tells it first, in reading order."""
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    files = [c["file"] for part in toc["parts"] for c in part["chapters"] or []]
    modules: dict[str, str] = {}
    for file in files:
        path = root / f"{file}.ipynb"
        if not path.exists():
            continue
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            first = "".join(cell["source"]).partition("\n")[0].strip()
            if cell["cell_type"] == "code" and (directive := EXPORT.fullmatch(first)):
                own = file.removeprefix("book/").replace("/", ".")
                modules.setdefault(directive[1] or own, file)
    return modules


def module_page(name: str) -> str:
    """The page that shows a module."""
    return f"{API}/{name}"


def first_line(obj) -> str:
    """What the docstring of an object says first, up to the end of its paragraph."""
    said = inspect.getdoc(obj) or ""
    return " ".join(said.partition("\n\n")[0].split())


def list_of_names(chapters: dict[str, str]) -> str:
    """A list of the public names for each package and module that offers some."""
    text = "## Learners and what they are used with\n\n"
    package = importlib.import_module("lml")
    for name in package.__all__:
        obj = getattr(package, name)
        module = obj.__module__.removeprefix("lml.")
        text += f"- [`lml.{name}`](/{module_page(module)}.md): {first_line(obj)}\n"
    text += "\n## Modules\n\n"
    for name in chapters:
        module = importlib.import_module(f"lml.{name}")
        text += f"- [`lml.{name}`](/{module_page(name)}.md): {first_line(module)}\n"
    return text


def write_api(app, docname, source) -> None:
    """Append the public names to the API page, and what its docstrings say to that of a module."""
    if docname != API and not docname.startswith(f"{API}/"):
        return
    chapters = exporting_chapters(Path(app.srcdir))
    if docname == API:
        source[0] += "\n" + list_of_names(chapters)
        return
    name = docname.removeprefix(f"{API}/")
    if name not in chapters:
        raise ExtensionError(f"{docname}.md: no chapter exports cells to lml.{name}")
    source[0] += MODULE.format(name=name, file=chapters[name])


def check_api(app, env) -> None:
    """Warn about public names that the API page does not show."""
    shown = env.get_domain("py").objects
    for module in exporting_chapters(Path(app.srcdir)):
        for name in importlib.import_module(f"lml.{module}").__all__:
            if f"lml.{module}.{name}" not in shown:
                message = f"lml.{module}.{name} is on no API page: it has no docstring"
                logging.getLogger(__name__).warning(message, location=module_page(module))


@functools.cache
def told_in(module: str) -> dict[str, tuple[str, str]]:
    """Names of a module, methods with their class, to the page and the section that tell them."""
    source = inspect.getsource(importlib.import_module(module))
    anchors = [ANCHOR.fullmatch(line) for line in source.splitlines()]
    found = {}

    def visit(nodes, within: str) -> None:
        for node in nodes:
            names = [getattr(node, "name", None)]
            if isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names = [getattr(target, "id", None) for target in targets]
            above = [match for match in anchors[: node.lineno] if match]
            if above:
                found.update({f"{within}{n}": above[-1].groups() for n in names if n})
            if isinstance(node, ast.ClassDef):
                visit(node.body, f"{within}{node.name}.")

    visit(ast.parse(source).body, "")
    return found


def source_link(domain: str, info: dict[str, str]) -> str | None:
    """Address of the section that tells an object, from the page of its module."""
    place = told_in(info["module"]).get(info["fullname"])
    if place is None:
        return None
    page, section = place
    address = posixpath.relpath(f"book/{page}.html", API)
    return f"{address}#{section}" if section else address


def link_sources(app, config) -> None:
    """Tell `sphinx.ext.linkcode` where the code is."""
    config.linkcode_resolve = source_link


def skip_generated(app, what, name, obj, skip, options) -> bool | None:
    """Leave out what scikit-learn adds for metadata routing, and fields that say nothing."""
    routing = ROUTING.fullmatch(name)
    field = str(getattr(obj, "__doc__", "")).startswith("Alias for field number")
    return True if routing or field else None


def keep_mathematics(app, what, name, obj, options, lines) -> None:
    """Escape what reStructuredText would take for markup: ||x||, M*, a_, a leading `L. `."""
    example = False
    for index, line in enumerate(lines):
        example = line.lstrip().startswith(">>>") or (example and line.strip() != "")
        if not example and not PARAMETER.match(line):
            line = MARKUP.sub(lambda m: m["quoted"] or "\\" + m["sign"], line)
            lines[index] = ENUMERATION.sub(r"\1\\", line)


def described(owner: type, name: str) -> bool:
    """Whether a member of a class has a place of its own on an API page."""
    module = importlib.import_module(owner.__module__)
    member = vars(owner)[name]
    said = inspect.getdoc(member) or ":meta private:"  # which sphinx.ext.autodoc leaves out
    return owner.__name__ in getattr(module, "__all__", ()) and ":meta private:" not in said


def call(member) -> str:
    """The arguments of a method without their defaults."""
    member = getattr(member, "__func__", member)  # of a class method
    if not inspect.isfunction(member):
        return ""
    said: list[str] = []
    for name, argument in list(inspect.signature(member).parameters.items())[1:]:
        if argument.kind is argument.KEYWORD_ONLY and "*" not in said:
            said.append("*")
        said.append(name)
    return f"({', '.join(said)})"


def inherited(cls: type) -> list[tuple[type, str]]:
    """Public methods and properties that a class has from others, with the class they are from."""
    known, found = set(vars(cls)), []
    for owner in cls.__mro__[1:]:
        names = [
            name
            for name, member in vars(owner).items()
            if name not in known and not name.startswith("_") and hasattr(member, "__get__")
        ]
        known.update(vars(owner))
        if owner.__module__.partition(".")[0] in ("lml", "sklearn"):
            found += [(owner, name) for name in names if not ROUTING.fullmatch(name)]
    return found


def list_inherited(app, what, name, obj, options, lines) -> None:
    """Below the docstring of a class: what it inherits, one line each."""
    if what != "class" or not (members := inherited(obj)):
        return
    lines += ["", ".. rubric:: Inherited", ""]
    for owner, member in members:
        if owner.__module__.startswith("lml."):
            where = f"{owner.__module__}.{owner.__name__}.{member}"
            link = f":py:obj:`{member} <{where}>`" if described(owner, member) else f"``{member}``"
            text = [f"{link}\\ ``{args}``" if (args := call(vars(owner)[member])) else link]
            said = [first_line(vars(owner)[member])]
            keep_mathematics(app, "method", where, None, None, said)
            lines.append(f"- {': '.join(filter(None, text + said))}")
    if theirs := [f"``{member}``" for owner, member in members if "sklearn" in owner.__module__]:
        lines.append(f"- from scikit-learn: {', '.join(sorted(theirs))}")
    lines.append("")


def link_derivations(app, what, name, obj, options, lines) -> None:
    """Turn the chapter and equations that a docstring names into cross-references."""
    head, said, tail = "\n".join(lines).partition("Derived in ")
    derivation, gap, rest = tail.partition("\n\n")
    derivation = CHAPTER.sub(r":doc:`chapter \1</book/\2>` (\2),", derivation)
    derivation = EQUATIONS.sub(
        lambda m: m[1] + re.sub(r"\(([\w:-]+)\)", r":eq:`\1`", m[2]), derivation
    )
    lines[:] = (head + said + derivation + gap + rest).split("\n")


def setup(app):
    app.setup_extension("sphinx.ext.linkcode")
    app.connect("config-inited", link_sources)
    app.connect("source-read", write_api)
    app.connect("env-check-consistency", check_api)
    app.connect("autodoc-skip-member", skip_generated)
    app.connect("autodoc-process-docstring", keep_mathematics, priority=90)
    app.connect("autodoc-process-docstring", link_derivations, priority=100)
    app.connect("autodoc-process-docstring", list_inherited, priority=900)  # after numpydoc
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
