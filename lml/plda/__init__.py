# Generated from the modules beside it by tools/tangle.py: edit their chapters.
"""Lifelong probabilistic LDA: its model, its statistics and its learner."""

from lml.plda.learner import LifelongPLDA
from lml.plda.model import DegreesOfFreedom, LogRatioMetric, Moments, Scatters
from lml.plda.selection import Choice, Fold, Selection, Visit
from lml.plda.statistics import Follow, PLDAState, Pool, TaskMemory

__all__ = [
    "Choice",
    "DegreesOfFreedom",
    "Fold",
    "Follow",
    "LifelongPLDA",
    "LogRatioMetric",
    "Moments",
    "PLDAState",
    "Pool",
    "Scatters",
    "Selection",
    "TaskMemory",
    "Visit",
]
