# Generated from the modules beside it by tools/tangle.py: edit their chapters.
"""Learners that lifelong metric learning is compared with."""

from lml.baselines.ella import ELLA, DictionarySums, ELLAState, ELLATask, QuadraticModel
from lml.baselines.mtlmnn import JointProblem, JointState, MultiTaskLMNN, TaskLoss
from lml.baselines.mtscml import MultiTaskSCML
from lml.baselines.offdiagonal import (
    CodePenalty,
    HingeCode,
    OffDiagonalLearner,
    SmoothedHinge,
    TripletMap,
)
from lml.baselines.omtrsl import MultiTaskOASIS
from lml.baselines.pooled import JointMetricsMixin, PooledMetricLearner

__all__ = [
    "ELLA",
    "CodePenalty",
    "DictionarySums",
    "ELLAState",
    "ELLATask",
    "HingeCode",
    "JointMetricsMixin",
    "JointProblem",
    "JointState",
    "MultiTaskLMNN",
    "MultiTaskOASIS",
    "MultiTaskSCML",
    "OffDiagonalLearner",
    "PooledMetricLearner",
    "QuadraticModel",
    "SmoothedHinge",
    "TaskLoss",
    "TripletMap",
]
