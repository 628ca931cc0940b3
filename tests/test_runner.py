"""Tests of the runner of the laboratory: errors of a task, versions, jobs that a file lacks."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from lml.datasets import load_digits_tasks
from lml.metrics import FactoredMetric
from lml.studies.experiments import run_missing, task_errors
from lml.studies.results import read_rows, software_versions
from lml.studies.systems import by_neighbors


def test_errors_of_a_task_are_those_of_nearest_neighbors():
    tasks = load_digits_tasks(random_state=1)
    metrics = {t.name: FactoredMetric.identity(t.X_train.shape[1]) for t in tasks}
    fitted = by_neighbors(tasks, metrics, "distance")
    for task in tasks:
        own = KNeighborsClassifier(1).fit(task.X_train, task.y_train)
        [error] = task_errors(fitted, task, "test", [1])
        assert error == pytest.approx(1 - own.score(task.X_test, task.y_test))


def test_versions_name_what_a_result_depends_on():
    assert f"numpy {np.__version__}" in software_versions()
    assert software_versions().startswith("python 3.")


@dataclass(frozen=True)
class Line:
    """A line of a small file of results."""

    split: int
    system: str
    total_seconds: float


def test_only_jobs_that_a_file_lacks_are_run(tmp_path):
    done = []

    def job(split):
        done.append(split)
        return [Line(split=split, system="a", total_seconds=0.5)]

    path = tmp_path / "small.csv"
    for splits in ([0], [0, 1, 2]):
        calls = {(str(split), "a"): partial(job, split) for split in splits}
        assert run_missing({path: calls}, Line, ["split", "system"], progress=False) == [path]
    assert done == [0, 1, 2]
    assert [line["split"] for line in read_rows(path)] == ["0", "1", "2"]
