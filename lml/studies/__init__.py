# Generated from pyproject.toml ([tool.lml]) by tools/tangle.py: edit that.
"""The laboratory: what measures the learners of this package on real data."""

__all__ = []
