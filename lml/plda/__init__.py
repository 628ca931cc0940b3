# Generated from pyproject.toml ([tool.lml]) by tools/tangle.py: edit that.
"""Lifelong probabilistic LDA: its model, its statistics and its learner."""

from lml.plda.learner import LifelongPLDA
from lml.plda.model import LogRatioMetric
from lml.plda.statistics import TaskMemory

__all__ = ["LifelongPLDA", "LogRatioMetric", "TaskMemory"]
