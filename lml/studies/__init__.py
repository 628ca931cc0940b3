# Generated from the modules beside it by tools/tangle.py: edit their chapters.
"""The laboratory: what measures the learners of this package on real data."""

__all__ = []
