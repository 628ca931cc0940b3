"""Two lifelong learners that follow a stream together, against each pair by itself."""

from functools import partial

import numpy as np
import pytest
from sklearn.base import BaseEstimator

from lml.datasets import Task, load_digits_tasks, load_few_shot_digits
from lml.metrics import FactoredMetric
from lml.studies import transfer
from lml.studies.experiments import Protocol
from lml.studies.transfer import FOLLOWERS, follow_learner


class Along(BaseEstimator):
    """Ranks by the distance along one of two features, measured in a unit of its own."""

    metric_type_ = "distance"
    state_nbytes_ = 8

    def __init__(self, axis=0, unit=1.0):
        self.axis = axis
        self.unit = unit

    def partial_fit(self, X, y, *, task):
        return self

    def task_metric(self, task):
        return FactoredMetric.from_dense(np.diag(np.eye(2)[self.axis] * self.unit))


def plane_task():
    """Three classes in a plane, which one axis tells apart better than the other."""
    rng = np.random.RandomState(0)  # the same for every seed of the tests
    parts = {}
    for part in ("train", "validation", "test"):
        y = rng.randint(3, size=60)
        parts |= {f"X_{part}": y[:, None] + rng.normal(size=(60, 2)) * [0.7, 0.5], f"y_{part}": y}
    return Task("plane", **parts)


@pytest.mark.parametrize("unit", [1.0, 1e4, 1e-4])
def test_two_learners_are_weighed_in_units_of_their_spread(unit):
    t = plane_task()
    pair = transfer._Together(Along(0, unit), Along(1))
    follow = partial(follow_learner, [pair], [t], Protocol(load_digits_tasks), 0)
    sides = []  # squared distances along each axis, pair by pair, over their spread
    for axis in (0, 1):
        own = [[(x[axis] - z[axis]) ** 2 for z in t.X_train] for x in t.X_train]
        spread = np.sqrt(np.mean([np.var(row) for row in own]))
        sides.append(
            np.array([[(x[axis] - z[axis]) ** 2 for z in t.X_train] for x in t.X_test]) / spread
        )
    expected = {}
    for w in (0.0, 0.25, 0.75, 1.0):
        nearest = ((1 - w) * sides[0] + w * sides[1]).argmin(axis=1)
        expected[w] = np.mean(t.y_train[nearest] != t.y_test)
        (step,) = follow([{"weight": w}])
        assert step.errors == [pytest.approx(expected[w])]
        assert step.state_bytes == 16
    assert len(set(expected.values())) == 4  # a weight at the wrong learner is seen
    # of several weights, the one with the smallest validation error
    ways = [{"weight": w} for w in expected]
    alone = {way["weight"]: follow([way])[0].validation_error for way in ways}
    (chosen,) = follow(ways)
    best = min(alone, key=alone.get)
    assert chosen.parameters["weight"] == best
    assert chosen.validation_error == alone[best] < max(alone.values())


def test_a_learner_whose_scores_are_all_equal_leaves_the_ranking_to_the_other():
    t = plane_task()
    protocol = Protocol(load_digits_tasks)
    pair = transfer._Together(Along(0, 0.0), Along(1))
    (step,) = follow_learner([pair], [t], protocol, 0, [{"weight": 0.5}])
    (alone,) = follow_learner([Along(1)], [t], protocol, 0)
    assert step.errors == alone.errors


class Tilted(Along):
    """The same, by a metric that is negative along the other axis."""

    def task_metric(self, task):
        return FactoredMetric.from_dense(np.diag([1.0, -5.0]))


def test_distances_are_those_of_the_positive_part_of_a_metric():
    t = plane_task()
    protocol = Protocol(load_digits_tasks)
    (alone,), (tilted,) = (follow_learner([one], [t], protocol, 0) for one in (Along(0), Tilted()))
    assert tilted.errors == alone.errors
    first, second = (
        follow_learner([transfer._Together(one, Along(1))], [t], protocol, 0, [{"weight": 0.5}])
        for one in (Along(0), Tilted())
    )
    assert first[0].errors == second[0].errors


@pytest.mark.parametrize("base", ["OASIS", "LMNN"])
def test_the_ends_of_the_weights_are_the_two_learners_as_they_come(base):
    tasks = load_few_shot_digits(n_tasks=2, random_state=0)
    protocol = Protocol(load_few_shot_digits, n_folds=2)
    ends = FOLLOWERS[f"{base} and PLDA"].keywords["ref_ways"]
    assert [way["weight"] for way in ends] == [0.0, 0.25, 0.5, 0.75, 1.0]
    kept = 0
    for way, name in ((ends[0], base), (ends[-1], "PLDA")):
        alone = FOLLOWERS[f"{name}, as it comes"](tasks, protocol, 3)
        follow = partial(FOLLOWERS[f"{base} and PLDA"], ref_ways=[way])
        together = follow(tasks, protocol, 3)
        for one, both in zip(alone, together, strict=True):
            np.testing.assert_array_equal(one.errors, both.errors)
        kept += alone[-1].state_bytes
    assert together[-1].state_bytes == kept
