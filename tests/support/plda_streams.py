"""Streams of small tasks, and learners of them, for the tests of lifelong PLDA."""

import numpy as np
from scipy import linalg

from lml.plda import LifelongPLDA

GIVEN = {"own_weight": 0.25, "shrinkage": (0.5, 0.2, 0.1)}


def rows(seed, n=40, n_features=6, n_classes=3):
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % n_classes)
    return rng.normal(size=(n, n_features)) + 2 * rng.normal(size=(n_classes, n_features))[y], y


def stream(n_tasks=3, **size):
    return [(*rows(seed, **size), f"task{seed}") for seed in range(n_tasks)]


def learned(visits, **settings):
    learner = LifelongPLDA(random_state=0, **{**GIVEN, **settings})
    for X, y, name in visits:
        learner.partial_fit(X, y, task=name)
    return learner


def scores(learner, visits, name):
    X = next(X for X, _, task in visits if task == name)
    return learner.task_metric(name).bilinear(X[:7], X)


def axes_by_hand(within, raw, noise, rho):
    """V and psi: V' (within + rho I) V = I, V' (raw - noise within) V = diag(psi), cut at 0.

    The difference counts in the directions in which class means differ, where raw is not 0.
    """
    omega = within + rho * np.eye(len(within))
    e, U = linalg.eigh(raw, omega)
    U = U[:, e > 1e-9 * e.max()]
    psi, R = linalg.eigh(U.T @ (raw - noise * within) @ U)
    rest = linalg.null_space(U.T @ omega)
    rest = rest @ linalg.inv(linalg.sqrtm(rest.T @ omega @ rest)) if rest.size else rest
    V = np.concatenate([U @ R, rest], axis=1)
    return V, np.r_[np.maximum(psi, 0.0), np.zeros(len(within) - len(psi))]
