# Generated from pyproject.toml ([tool.lml]) by tools/tangle.py: edit that.
"""Learners that lifelong metric learning is compared with."""

from lml.baselines.ella import ELLA, ELLATask
from lml.baselines.mtlmnn import MultiTaskLMNN
from lml.baselines.mtscml import MultiTaskSCML
from lml.baselines.offdiagonal import OffDiagonalLearner
from lml.baselines.omtrsl import MultiTaskOASIS
from lml.baselines.pooled import PooledMetricLearner

__all__ = [
    "ELLA",
    "ELLATask",
    "MultiTaskLMNN",
    "MultiTaskOASIS",
    "MultiTaskSCML",
    "OffDiagonalLearner",
    "PooledMetricLearner",
]
