# Generated from the modules beside it by tools/tangle.py: edit their chapters.
"""The door: types, checks of arguments and small linear algebra."""

__all__ = []
