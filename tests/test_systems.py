"""Tests of lml.studies.systems: what a fitted system answers."""

import numpy as np
from sklearn.neighbors import NearestNeighbors

from lml.datasets import load_digits_tasks
from lml.metrics import FactoredMetric
from lml.studies.systems import by_neighbors


def test_a_system_ranks_the_training_samples_of_a_task_by_its_metric():
    tasks = load_digits_tasks(random_state=0)[:2]
    weights = np.random.default_rng(0).uniform(0.1, 2.0, tasks[0].X_train.shape[1])
    metrics = {task.name: FactoredMetric(0.0, np.eye(len(weights)), weights) for task in tasks}
    fitted = by_neighbors(tasks, metrics, "distance", 17)
    assert fitted.nbytes == 17
    for task in tasks:
        scaled = NearestNeighbors(n_neighbors=3).fit(task.X_train * np.sqrt(weights))
        nearest = scaled.kneighbors(task.X_test * np.sqrt(weights), return_distance=False)
        labels = fitted.labels(task.X_test, task.name, 3)
        np.testing.assert_array_equal(labels, task.y_train[nearest])
