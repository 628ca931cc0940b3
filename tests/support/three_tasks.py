"""Learners of three small tasks, for the tests of reading, views and pipelines."""

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError

from lml.baselines.mtlmnn import MultiTaskLMNN
from lml.baselines.mtscml import MultiTaskSCML
from lml.baselines.omtrsl import MultiTaskOASIS
from lml.baselines.pooled import PooledMetricLearner
from lml.lifelong import LifelongMetricLearner
from lml.metrics import FactoredMetric
from lml.oasis import OASIS
from lml.plda import LifelongPLDA
from lml.scml import SCML
from lml.single_task import TaskMetricsMixin

RNG = np.random.default_rng(0)
X, Z = RNG.normal(size=(9, 4)), RNG.normal(size=(9, 4))
M = RNG.normal(size=(4, 4))
M = M - (np.linalg.eigvalsh((M + M.T) / 2)[0] + 0.5) * np.eye(4)  # x'Mx reaches -x'x / 2


class Told(TaskMetricsMixin, BaseEstimator):
    """A learner that is told its metrics."""

    def __init__(self, metrics=(), kind="distance"):
        self.metrics, self.kind = metrics, kind

    def fit(self, X):
        self.metric_type_ = self.kind
        self._note_columns(X)
        return self

    def task_metric(self, task):
        if not hasattr(self, "metric_type_"):
            raise NotFittedError("no task has been learned")
        return dict(self.metrics)[task]


def told(kind, alpha=0.0):
    metric = FactoredMetric.from_dense(M) + FactoredMetric.identity(4, alpha)
    return Told([(("a", 1), metric)], kind).fit(X)


SCML_SMALL = SCML(n_basis=8, n_steps=200)
LEARNERS = {
    "oasis": LifelongMetricLearner(OASIS(n_steps=50), n_components=4, random_state=0),
    "scml": LifelongMetricLearner(SCML_SMALL, sharing=0.6, random_state=0),
}
JOINT = {
    "pooled": PooledMetricLearner(clone(SCML_SMALL).set_params(random_state=0)),
    "mtscml": MultiTaskSCML(n_basis=8, n_steps=300, random_state=0),
    "mtlmnn": MultiTaskLMNN(max_iter=5),
    "omtrsl": MultiTaskOASIS(n_steps=100, random_state=0),
}
NAMES = [("a", 1), 42, "paris"]


def table(n=72, D=6, seed=0):
    """Rows of three tasks with three classes each, in turn."""
    rng = np.random.default_rng(seed)
    y, tasks = np.arange(n) % 3, np.arange(n) // 3 % 3
    rows = rng.normal(size=(3, 3, D))[tasks, y] + 0.7 * rng.normal(size=(n, D))
    return rows, y, [NAMES[t] for t in tasks]


def rows_of(name, seed=0):
    rows, y, tasks = table(seed=seed)
    own = [t == name for t in tasks]
    return rows[own], y[own]


def learned(kind="scml", names=NAMES):
    learner = clone(LEARNERS[kind])
    for name in names:
        learner.partial_fit(*rows_of(name), task=name)
    return learner


PLDA = LifelongPLDA(n_components=6, n_folds=2, random_state=0)


def brute_score(learner, rows, y, tasks):
    hits = []
    for i in range(len(y)):
        others = [j for j in range(len(y)) if j != i and tasks[j] == tasks[i]]
        pairs = np.array([[rows[i], rows[j]] for j in others])
        hits.append(y[others[np.argmax(learner.pair_score(pairs, task=tasks[i]))]] == y[i])
    return np.array(hits, dtype=float)
