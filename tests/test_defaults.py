"""A default that a docstring names is the one of the signature, and no class leaves one unsaid."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re

import pytest

import lml

MODULES = [m.name for m in pkgutil.walk_packages(lml.__path__, "lml.") if "studies" not in m.name]
FIELD = re.compile(r"^(\w+(?:, \w+)*) : .*?default=(.+)$", re.M)


def callables(module):
    """Public functions, classes and methods that a module defines, by their names."""
    for name, value in vars(module).items():
        if name.startswith("_") or getattr(value, "__module__", None) != module.__name__:
            continue
        if inspect.isfunction(value) or (
            inspect.isclass(value) and not issubclass(value, Exception)
        ):
            yield name, value
        if inspect.isclass(value):
            for method, code in vars(value).items():
                code = getattr(code, "__func__", code)
                if inspect.isfunction(code) and not method.startswith("_"):
                    yield f"{name}.{method}", code


def documented_defaults(docstring):
    """Defaults of a numpydoc section of parameters; several names share a line, or one value."""
    for names, said in FIELD.findall(inspect.cleandoc(docstring)):
        names, values = names.split(", "), said.split(" and ")
        yield from zip(names, values * (len(names) // len(values)), strict=True)


@pytest.mark.parametrize("name", MODULES)
def test_documented_defaults_are_those_of_the_signature(name):
    module = importlib.import_module(name)
    for where, code in callables(module):
        parameters = inspect.signature(code).parameters
        said = dict(documented_defaults(code.__doc__ or ""))
        for parameter, text in said.items():
            default = parameters[parameter].default
            assert default == ast.literal_eval(text), f"{where}: {parameter}"
        if inspect.isclass(code) and "Parameters\n" in (code.__doc__ or ""):
            given = {p.name for p in parameters.values() if isinstance(p.default, (int, float))}
            assert given <= set(said), f"{where} leaves a default unsaid"


def test_defaults_are_read_from_docstrings():
    text = """Do.

    Parameters
    ----------
    a, b : float, default=1 and 2.5
    c, d : int or None, default=None
        Whatever.
    e : bool
    """
    found = dict(documented_defaults(text))
    assert found == {"a": "1", "b": "2.5", "c": "None", "d": "None"}
