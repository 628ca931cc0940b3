"""No D x D array on the linear paths: all that is allocated, counted at D = 20,000."""

import tracemalloc

import numpy as np
import pytest
from scipy import sparse

from lml.lifelong import LifelongMetricLearner
from lml.lmnn import LMNN
from lml.metrics import FactoredMetric
from lml.neighbors import k_nearest
from lml.oasis import OASIS
from lml.plda import LifelongPLDA
from lml.scml import SCML

D = 20_000
LEAST = D * D * 8 // 20  # 160 MB: a twentieth of one D x D array


def rows(seed):
    X = np.random.default_rng(seed).normal(size=(30, D))
    y = np.arange(30) % 3
    X[:, :3] += 3 * np.eye(3)[y]
    return X, y


def lifelong(base, form=np.asarray):
    learner = LifelongMetricLearner(base, n_components=10, random_state=0)
    for task in range(3):
        X, y = rows(task)
        learner.partial_fit(form(X), y, task=task)
    learner.transform(rows(0)[0], task=0)
    learner.score(*rows(1), tasks=[1] * 30)
    return learner.metric_type_


def plda():
    learner = LifelongPLDA(n_components=10)
    for task in range(3):
        learner.partial_fit(*rows(task), task=task)
    return learner.pair_score(np.stack([rows(0)[0], rows(1)[0]], axis=1), task=0)


def neighbors(kind):
    F = np.random.default_rng(1).normal(size=(5, D))
    return k_nearest(FactoredMetric(1.0, F, np.ones(5)), rows(0)[0], rows(1)[0], kind, 3)


BASES = {"oasis": OASIS(n_steps=300, random_state=0), "scml": SCML(30, n_steps=300, random_state=0)}
PATHS = {
    **{name: lambda base=base: base.fit(*rows(0)).pair_score(
        np.stack([rows(0)[0][:4], rows(1)[0][:4]], axis=1)) for name, base in BASES.items()},
    "sparse oasis": lambda: BASES["oasis"].fit(sparse.csr_array(rows(0)[0]), rows(0)[1]),
    **{f"lifelong {name}": lambda base=base: lifelong(base) for name, base in BASES.items()},
    "lifelong lmnn, sparse": lambda: lifelong(LMNN(shrinkage=0.1, max_iter=20), sparse.csr_array),
    "lifelong plda": plda,
    "nearest by similarity": lambda: neighbors("similarity"),
    "nearest by distance": lambda: neighbors("distance"),
}  # fmt: skip


def peak(call):
    """Most bytes that were allocated at once."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("path", list(PATHS))
def test_no_square_array_of_the_features_is_made(path):
    assert peak(PATHS[path]) < LEAST


def test_the_count_sees_a_square_array():
    assert peak(lambda: FactoredMetric.identity(5_000).to_dense()) >= 8 * 5_000**2
