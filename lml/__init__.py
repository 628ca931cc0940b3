# Generated from pyproject.toml ([tool.lml]) by tools/tangle.py: edit that.
"""Lifelong metric learning: tasks learned one after another in coordinates that they share."""

from lml.baselines.offdiagonal import OffDiagonalLearner
from lml.evaluation import LifelongKNeighborsClassifier
from lml.lifelong import LifelongMetricLearner
from lml.lmnn import LMNN
from lml.metrics import FactoredMetric
from lml.neighbors import MetricKNeighborsClassifier
from lml.oasis import OASIS
from lml.plda.learner import LifelongPLDA
from lml.scml import SCML
from lml.single_task import TaskTransformer
from lml.weak_supervision import OpenSetClassifier, PairClassifier

__all__ = [
    "LMNN",
    "OASIS",
    "SCML",
    "FactoredMetric",
    "LifelongKNeighborsClassifier",
    "LifelongMetricLearner",
    "LifelongPLDA",
    "MetricKNeighborsClassifier",
    "OffDiagonalLearner",
    "OpenSetClassifier",
    "PairClassifier",
    "TaskTransformer",
]

__version__ = "0.1.0"
