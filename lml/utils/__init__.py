# Generated from pyproject.toml ([tool.lml]) by tools/tangle.py: edit that.
"""The door: types, checks of arguments and small linear algebra."""

__all__ = []
