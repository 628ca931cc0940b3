"""The package as a whole: one-way imports, the API page, the one list of pins."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from graphlib import TopologicalSorter
from importlib.metadata import requires, version
from types import SimpleNamespace

import lml_cells
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version
from sphinx.pycode import ModuleAnalyzer
from tangle import ROOT, read_chapters

MODULES = list(
    dict.fromkeys(cell.module for chapter in read_chapters(ROOT) for cell in chapter.cells)
)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def read_pins(name: str) -> list[Requirement]:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    return [Requirement(line) for line in lines if line.strip() and not line.startswith("#")]


PINNED = read_pins("requirements.txt")
OLDEST = read_pins("requirements-oldest.txt")


def test_imports_have_no_cycle():
    imported = {}
    for name in MODULES:
        path = ROOT / "lml" / f"{name.replace('.', '/')}.py"
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        used = {n.module for n in nodes if isinstance(n, ast.ImportFrom) and n.module}
        imported[name] = {m.removeprefix("lml.") for m in used if m.startswith("lml.")}
    order = list(TopologicalSorter(imported).static_order())
    assert set(MODULES) <= set(order)


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_has_a_docstring(name):
    module = importlib.import_module(f"lml.{name}")
    assert module.__doc__
    noted = ModuleAnalyzer.for_module(module.__name__).find_attr_docs()
    bare = [
        name
        for name in module.__all__
        if ("", name) not in noted
        and not (callable(getattr(module, name)) and getattr(module, name).__doc__)
    ]
    assert not bare, f"lml.{name}: give {bare} a docstring, or a constant a `#:` line above it"


def test_api_page_lists_every_module_in_the_order_of_the_chapters():
    page = [""]
    lml_cells.list_modules(SimpleNamespace(srcdir=str(ROOT)), "book/api", page)
    assert re.findall(r"automodule:: lml\.([\w.]+)", page[0]) == MODULES


def test_every_pin_is_exact_and_jupyter_book_stays_below_2():
    loose = [str(r) for r in PINNED + OLDEST if [s.operator for s in r.specifier] != ["=="]]
    assert not loose
    pins = {r.name.lower(): next(iter(r.specifier)).version for r in PINNED}
    assert pins["jupyter-book"].startswith("1.")


def test_pins_satisfy_the_bounds_of_the_distribution():
    pins = {r.name.lower(): next(iter(r.specifier)).version for r in PINNED}
    for text in PROJECT["project"]["dependencies"]:
        bound = Requirement(text)
        assert pins[bound.name] in bound.specifier


def test_the_oldest_pins_are_the_lower_bounds_of_the_distribution():
    project = PROJECT["project"]
    extras = project["optional-dependencies"].values()
    bounds = [*project["dependencies"], *(text for extra in extras for text in extra)]
    pins = {r.name.lower(): Version(next(iter(r.specifier)).version) for r in OLDEST}
    for text in bounds:
        bound = Requirement(text)
        [lower] = bound.specifier
        assert lower.operator == ">=", f"{text}: a lower bound and nothing else"
        assert pins[bound.name] == Version(lower.version), f"requirements-oldest.txt: {text}"


def test_importing_the_package_loads_nothing_but_itself_and_what_scikit_learn_loads():
    """Plots, data sets and clusters are loaded where they are used, not by `import lml`."""
    code = """
import numpy, scipy, sklearn, sys
before = set(sys.modules)
import lml
print(*sorted(set(sys.modules) - before))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    packages = {name.split(".")[0].lstrip("_") for name in loaded} - sys.stdlib_module_names
    assert packages - {"numpy", "scipy", "sklearn", "joblib", "threadpoolctl"} == {"lml"}
    assert "lml.oasis" in loaded
    assert "lml.datasets" not in loaded
    assert not any(name.startswith("lml.studies") for name in loaded)


def test_the_package_is_marked_as_typed():
    assert (ROOT / "lml" / "py.typed").is_file()
    assert "py.typed" in PROJECT["tool"]["setuptools"]["package-data"]["lml"]


def test_what_types_do_not_check_is_named_with_its_reason():
    lines = [
        line
        for path in (ROOT / "lml").rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if "type: ignore" in line
    ]
    assert lines
    assert [line for line in lines if not re.search(r"type: ignore\[[\w-]+\]  # \w", line)] == []


def test_environment_and_workflows_read_the_one_list():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    plain = [d for d in environment["dependencies"] if isinstance(d, str)]
    assert {re.split(r"[<>=]", d)[0] for d in plain} == {"python", "pip"}
    assert environment["dependencies"][-1]["pip"] == ["-r requirements.txt", "-e ."]
    for path in [*(ROOT / ".github" / "workflows").glob("*.yml"), ROOT / ".ci" / "run"]:
        assert "pip install" not in path.read_text(encoding="utf-8")
    assert "-r requirements.txt" in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_installed_versions_are_the_pinned_ones():
    pins = {r.name: next(iter(r.specifier)).version for r in PINNED}
    assert {n: version(n) for n in ("numpy", "scipy", "scikit-learn")}.items() <= pins.items()
    assert requires("lifelong-metric-learning")
