# Generated from pyproject.toml ([tool.lml]) by tools/tangle.py: edit that.
"""Lifelong metric learning: one dictionary, one small code a task."""

__all__ = []
