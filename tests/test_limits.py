"""The numbers that each parameter allows, written as intervals: its ends and nothing beyond."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import numpy as np
import pytest

import lml

# (0 is without 0, [0 with it; "1.." are whole numbers from 1 on.
LIMITS = {
    "DictionaryMetricLearner": {
        "n_components": "1..",
        "code_penalty": "[0, inf)",
        "dictionary_penalty": "[0, inf)",
        "dictionary_steps": "0..",
        "dictionary_rate": "(0, inf)",
        "n_triplets": "1..",
    },
    "ELLA": {
        "n_components": "1..",
        "code_penalty": "[0, inf)",
        "dictionary_penalty": "(0, inf)",
        "C": "(0, inf)",
    },
    "LMNN": {
        "push_weight": "(0, 1)",
        "n_targets": "1..",
        "shrinkage": "[0, inf)",
        "max_iter": "1..",
        "tol": "(0, inf)",
        "max_samples": "3.. or None",
    },
    "LifelongKNeighborsClassifier": {
        "n_neighbors": "1..",
        "max_references": "1.. or None",
        "max_per_class": "1.. or None",
    },
    "LifelongMetricLearner": {
        "sharing": "[0, 1]",
        "n_components": "1..",
        "code_rank": "0.. or None",
    },
    "LifelongPLDA": {
        "n_components": "1..",
        "regularization": "(0, inf)",
        "own_weight": "[0, 1]",
        "max_old_tasks": "1.. or None",
        "n_folds": "2..",
    },
    "MetricKNeighborsClassifier": {"n_neighbors": "1.."},
    "MultiTaskLMNN": {
        "shared_penalty": "(0, inf]",
        "n_targets": "1..",
        "push_weight": "(0, 1)",
        "scale": "(0, inf)",
        "smoothing": "(0, inf)",
        "max_iter": "1..",
        "tol": "(0, inf)",
    },
    "MultiTaskOASIS": {"coupling": "[0, inf]", "aggressiveness": "(0, inf]", "n_steps": "0.."},
    "MultiTaskSCML": {
        "n_basis": "1.. or None",
        "beta": "[0, 1)",
        "gamma": "(0, inf) or None",
        "n_steps": "1..",
        "n_targets": "1..",
        "n_impostors": "1..",
    },
    "OASIS": {"aggressiveness": "(0, inf]", "n_steps": "0.."},
    "OffDiagonalLearner": {
        "penalty": "[0, inf)",
        "ridge": "(0, inf)",
        "n_components": "1..",
        "n_targets": "1..",
        "n_impostors": "1..",
        "tol": "[0, inf)",
        "max_iter": "1..",
    },
    "OpenSetClassifier": {"beta": "(0, inf)"},
    "PairClassifier": {
        "prior": "(0, 1) or None",
        "miss_cost": "(0, inf)",
        "pass_cost": "(0, inf)",
        "beta": "(0, inf)",
    },
    "SCML": {
        "n_basis": "1.. or None",
        "beta": "[0, 1)",
        "gamma": "(0, inf) or None",
        "n_steps": "1..",
        "n_targets": "1..",
        "n_impostors": "1..",
        "max_samples": "3.. or None",
    },
}


def rules():
    """The table of rules of each class, by its name."""
    for module in pkgutil.walk_packages(lml.__path__, "lml."):
        if "studies" in module.name:
            continue
        for name, kind in vars(importlib.import_module(module.name)).items():
            own = inspect.isclass(kind) and kind.__module__ == module.name
            if own and "_parameter_rules" in vars(kind):
                yield name, kind._parameter_rules


RULES = dict(rules())
CASES = [(owner, name) for owner, table in LIMITS.items() for name in table]


def ends(interval):
    """Numbers of an interval at its ends, and the nearest ones beyond."""
    if interval.endswith(".."):
        least = int(interval.removesuffix(".."))
        return [least, least + 10**6], [least - 1, least + 0.5, np.inf]
    least, most = (float(part) for part in interval[1:-1].split(", "))
    after = np.nextafter(least, np.inf)
    before = np.nextafter(most, 0.0)
    inside = [after if interval[0] == "(" else least, before if interval[-1] == ")" else most]
    outside = [least if interval[0] == "(" else np.nextafter(least, -np.inf)]
    if interval[-1] == ")" or np.isfinite(most):
        outside.append(most if interval[-1] == ")" else np.nextafter(most, np.inf))
    return inside, outside


@pytest.mark.parametrize(("owner", "name"), CASES)
def test_a_parameter_allows_its_interval_and_nothing_else(owner, name):
    rule = RULES[owner][name]
    interval, _, none = LIMITS[owner][name].partition(" or ")
    allowed, refused = ends(interval)
    assert all(map(rule.allows, allowed))
    assert not any(map(rule.allows, refused))
    assert rule.allows(None) == bool(none)


def test_every_number_has_its_interval():
    for owner, table in RULES.items():
        numbers = {name for name, rule in table.items() if rule.allows(0.5) or rule.allows(3)}
        seeds = {name for name in numbers if "RandomState" in table[name].wanted}
        counts = {name for name in numbers if name == "n_jobs"}  # any but 0
        arrays = {name for name in numbers if "array" in table[name].wanted}  # read elsewhere
        assert numbers - seeds - counts - arrays == set(LIMITS.get(owner, {})), owner


def test_three_numbers_shrink_a_plda_and_none_is_below_zero():
    rule = RULES["LifelongPLDA"]["shrinkage"]
    assert rule.allows((0.0, 0.0, 1e300))
    for refused in ((0.0, 0.0), (0.0, 0.0, 0.0, 0.0), (0.0, -1e-300, 0.0), (0.0, np.inf, 0.0), 0.5):
        assert not rule.allows(refused)
    pair = RULES["LifelongPLDA"]["own_weight"]
    assert pair.allows((0.0, 1.0))
    assert not pair.allows((0.0, 1.0, 1.0))


def test_any_whole_number_of_jobs_but_none():
    rule = RULES["LifelongMetricLearner"]["n_jobs"]
    assert all(map(rule.allows, (None, -2, -1, 1, 7)))
    assert not any(map(rule.allows, (0, 0.5, "1")))
