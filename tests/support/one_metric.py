"""Small tasks, and a learner whose metric a test sets."""

from collections import namedtuple

import numpy as np

from lml.metrics import FactoredMetric

Task = namedtuple("Task", "name X_train y_train X_test y_test")


class OneMetric:
    """A learner whose metric of every task is a scale that the test sets."""

    metric_type_ = "distance"

    def __init__(self, n_features):
        self.root, self.known = np.eye(n_features), []

    def partial_fit(self, X, y, task):
        self.known.append(task)
        return self

    def task_metric(self, task):
        return FactoredMetric.from_components(self.root)


def make_tasks(names=("paris", 42, ("a", 1)), n_features=5, seed=0):
    rng = np.random.default_rng(seed)
    tasks = []
    for name in names:
        y = np.repeat(["x", "y", "z"], [12, 8, 10])
        X = rng.normal(size=(len(y), n_features)) + (y == "y")[:, None] * 2.0
        tasks.append(Task(name, X[::2], y[::2], X[1::2], y[1::2]))
    return tasks
