"""How each step grows with the size that matters: seconds and peak memory over that size.

`make` prepares the work for a size, and only the work is measured: the least of some repeats, in
seconds of the processor, then once more with counted allocation.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from lml import oasis
from lml.coding import CodeLoss, fista
from lml.dictionary import descend, hinge_objective
from lml.fisher import local_fisher_basis
from lml.lifelong import LifelongMetricLearner
from lml.metrics import FactoredMetric
from lml.neighbors import k_nearest
from lml.oasis import OASIS
from lml.penalties import OffDiagonalL1
from lml.plda import LifelongPLDA
from lml.scml import dual_averaging
from lml.triplets import sample_triplets, triplet_gradient

Work = Callable[[], Any]


@dataclass(frozen=True)
class Step:
    """A step of the method, the size that is varied, and the exponent that is derived for it."""

    variable: str
    sizes: tuple[int, ...]
    make: Callable[[int], Work]
    exponent: float
    fixed: str = ""  # the other sizes


def _rows(n: int, D: int, n_classes: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Rows of length about one around a mean for each class."""
    rng, y = np.random.default_rng(0), np.arange(n) % n_classes
    means = rng.normal(size=(n_classes, D))
    return (rng.normal(size=(n, D)) + means[y]) / np.sqrt(2 * D), y


def _orthonormal(d: int, D: int) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(1).normal(size=(D, d)))[0].T


def _symmetric(d: int) -> np.ndarray:
    A = np.random.default_rng(2).normal(size=(d, d))
    return (A + A.T) / np.sqrt(d)


def _oasis_dense(D: int) -> Work:
    X, y = _rows(1600, D)
    triplets = sample_triplets(y, 2000, 0)
    return lambda: oasis._dense_form(X, triplets, 1e-3, np.eye(D))


def _oasis_scores(n: int) -> Work:
    """So small a cap that every step is an update."""
    X, y = _rows(n, 50)
    gram, triplets = X @ X.T, sample_triplets(y, 500, 0)
    return lambda: oasis._score_form(gram, gram.copy(), triplets, 1e-6)


def _oasis_kernel(n: int) -> Work:
    X, y = _rows(n, 50)
    gram, triplets = X @ X.T, sample_triplets(y, 2000, 0)
    return lambda: oasis._kernel_form(gram, gram, triplets, 1e-6)


def _oasis_wide(D: int) -> Work:
    X, y = _rows(400, D)
    return lambda: OASIS(n_steps=1000, random_state=0).fit(X, y)


def _scml(K: int) -> Work:
    X, y = _rows(200, 50)
    P = X @ np.random.default_rng(3).normal(size=(50, K))
    triplets = sample_triplets(y, 5000, 0)
    return lambda: dual_averaging(P, triplets, 1e-5, n_steps=20_000, random_state=0)


def _fisher(D: int) -> Work:
    X, y = _rows(200, D)
    return lambda: local_fisher_basis(X, y, 60, (20, 10), 0)


def _gradient(D: int) -> Work:
    X, y = _rows(400, D)
    metric = FactoredMetric(0.0, _orthonormal(40, D), _symmetric(40))
    triplets = sample_triplets(y, 3000, 0)
    return lambda: triplet_gradient(metric, X, triplets, "similarity")


def _code(d: int) -> Work:
    """30 proximal steps as `code_metric` takes them."""
    A = np.eye(d) + 0.1 * _symmetric(d) / np.sqrt(d)
    loss = CodeLoss(A, _symmetric(d), 0.0)
    penalty, start = OffDiagonalL1(0.01), np.zeros((d, d))
    step = float(np.linalg.norm(A, 2) ** -2)
    options: dict[str, Any] = {"tol": 0.0, "max_iter": 30, "affine_gradient": True, "scale": 1.0}
    return lambda: fista(loss, penalty, start, step, **options)


def _dictionary(D: int) -> Work:
    X, y = _rows(400, D)
    L, code, triplets = _orthonormal(40, D), 5 * _symmetric(40), sample_triplets(y, 3000, 0)
    return lambda: descend(hinge_objective(code, X, triplets, "similarity"), L, 0.1)


def _neighbors(m: int) -> Work:
    X, _ = _rows(m + 100, 100)
    metric = FactoredMetric(0.0, _orthonormal(40, 100), np.eye(40))
    return lambda: k_nearest(metric, X[:100], X[100:], "distance", 3)


def _plda(D: int) -> Work:
    X, y = _rows(200, D)
    learner = LifelongPLDA(40, own_weight=0.25, shrinkage=(0.3, 0.0, 0.0), random_state=0)
    learner.partial_fit(X[::2], y[::2], task="first")

    def visit() -> None:
        learner.forget("second") if "second" in learner.tasks_ else None
        learner.partial_fit(X[1::2], y[1::2], task="second")

    return visit


def _visit(learner: Any) -> Callable[[int], Work]:
    """Task t of a learner that knows t - 1."""

    def make(t: int) -> Work:
        rng = np.random.default_rng(t)
        for u in range(len(learner.tasks_) if learner.__sklearn_is_fitted__() else 0, t - 1):
            X, y = _rows(60, 50, 3)
            learner.partial_fit(X + 0.1 * rng.normal(size=X.shape), y, task=u)
        X, y = _rows(60, 50, 3)
        number = iter(range(10**6))

        def visit() -> None:
            learner.partial_fit(X + 0.1 * rng.normal(size=X.shape), y, task=f"{t}/{next(number)}")

        return visit

    return make


def _lml_visit(t: int) -> Work:
    return _visit(_LML)(t)


def _plda_visit(t: int) -> Work:
    return _visit(_PLDA)(t)


_LML = LifelongMetricLearner(OASIS(n_steps=200), n_components=20, random_state=0)
_PLDA = LifelongPLDA(20, own_weight=0.25, shrinkage=(0.3, 0.0, 0.0), random_state=0)


def _sparse_visit(D: int) -> Work:
    """A task of text: 100 of D features in a row."""
    rng, y = np.random.default_rng(0), np.arange(200) % 2
    places = np.stack([rng.choice(D, 100, replace=False) for _ in y])
    parts = (rng.random(places.size), places.ravel(), np.arange(0, places.size + 1, 100))
    X = sparse.csr_array(parts, shape=(200, D))

    def visit() -> None:
        learner = LifelongMetricLearner(OASIS(n_steps=1000), n_components=40, random_state=0)
        learner.partial_fit(X, y, task=0).partial_fit(X, y, task=1)

    return visit


STEPS: dict[str, Step] = {
    "oasis-dense": Step("D", (100, 200, 400, 800, 1600), _oasis_dense, 2, "1,600 rows"),
    "oasis-scores": Step("n", (200, 400, 800, 1600), _oasis_scores, 2, "every step an update"),
    "oasis-kernel": Step("n", (200, 400, 800, 1600, 3200), _oasis_kernel, 1),
    "oasis-wide": Step("D", (500, 2000, 8000, 32_000), _oasis_wide, 1, "400 rows"),
    "scml-step": Step("K", (50, 100, 200, 400, 800), _scml, 1),
    "fisher-basis": Step("D", (500, 2000, 8000, 32_000), _fisher, 1, "regions of 80 rows"),
    "gradient": Step("D", (500, 2000, 8000, 32_000), _gradient, 1, "400 rows, d 40"),
    "coding": Step("d", (40, 80, 160, 320, 640), _code, 3),
    "dictionary": Step("D", (500, 2000, 8000, 32_000), _dictionary, 1, "400 rows, d 40"),
    "neighbors": Step("m", (1000, 4000, 16_000, 64_000), _neighbors, 1, "100 queries"),
    "plda-visit": Step("D", (500, 2000, 8000, 32_000), _plda, 1, "100 rows, d 40"),
    "lml-sparse": Step("D", (1000, 4000, 16_000, 64_000), _sparse_visit, 1, "200 sparse rows"),
    "lml-task": Step("t", (10, 30, 100, 300, 1000), _lml_visit, 0, "60 rows, D 50, l 20"),
    "plda-task": Step("t", (10, 30, 100, 300, 1000), _plda_visit, 0, "60 rows, D 50, d 20"),
}


def measure(step: Step, quick: bool) -> dict[str, Any]:
    """Sizes, least seconds of up to five repeats, megabytes allocated at the peak."""
    seconds, megabytes = [], []
    sizes = step.sizes[:2] if quick else step.sizes
    for size in sizes:
        work = step.make(size)
        spent: list[float] = []
        while len(spent) < 2 or (len(spent) < 5 and sum(spent) < 1.0):
            begun = time.process_time()
            work()
            spent.append(time.process_time() - begun)
        seconds.append(min(spent))
        tracemalloc.start()
        work()
        megabytes.append(tracemalloc.get_traced_memory()[1] / 2**20)
        tracemalloc.stop()
    return {
        "value": np.array(sizes),
        "seconds": np.array(seconds),
        "megabytes": np.array(megabytes),
    }
