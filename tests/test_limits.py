"""The numbers that each parameter allows, written as intervals: its ends and nothing beyond."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from functools import partial

import numpy as np
import pytest
from registry import ENTRIES, X0, Y0, oasis, samples

import lml
from lml.neighbors import MetricKNeighborsClassifier
from lml.utils.validation import InvalidParameterError, optional, real, whole
from lml.weak_supervision import OpenSetClassifier, PairClassifier

# (0 is without 0, [0 with it; "1.." are whole numbers from 1 to 2^31 - 1, "1..." without an end;
# "(0, inf]" are numbers to 1e100, and infinity.
LIMITS = {
    "DictionaryMetricLearner": {
        "n_components": "1..",
        "code_penalty": "[0, 1e100]",
        "dictionary_penalty": "[0, 1e100]",
        "dictionary_steps": "0..",
        "dictionary_rate": "(0, 1e100]",
        "n_triplets": "1..",
    },
    "ELLA": {
        "n_components": "1..",
        "code_penalty": "[0, 1e100]",
        "dictionary_penalty": "(0, 1e100]",
        "C": "(0, 1e100]",
    },
    "LMNN": {
        "push_weight": "(0, 1)",
        "n_targets": "1..",
        "shrinkage": "[0, 1e100]",
        "max_iter": "1..",
        "tol": "(0, 1e100]",
        "max_samples": "3.. or None",
    },
    "LifelongKNeighborsClassifier": {
        "n_neighbors": "1..",
        "max_references": "1... or None",
        "max_per_class": "1... or None",
    },
    "LifelongMetricLearner": {
        "sharing": "[0, 1]",
        "n_components": "1..",
        "code_rank": "0.. or None",
    },
    "LifelongPLDA": {
        "n_components": "1..",
        "regularization": "(0, 1e100]",
        "own_weight": "[0, 1]",
        "max_old_tasks": "1.. or None",
        "n_folds": "2..",
    },
    "MetricKNeighborsClassifier": {"n_neighbors": "1.."},
    "MultiTaskLMNN": {
        "shared_penalty": "(0, inf]",
        "n_targets": "1..",
        "push_weight": "(0, 1)",
        "scale": "(0, 1e100]",
        "smoothing": "(0, 1e100]",
        "max_iter": "1..",
        "tol": "(0, 1e100]",
    },
    "MultiTaskOASIS": {"coupling": "[0, inf]", "aggressiveness": "(0, inf]", "n_steps": "0.."},
    "MultiTaskSCML": {
        "n_basis": "1.. or None",
        "beta": "[0, 1)",
        "gamma": "(0, 1e100] or None",
        "n_steps": "1..",
        "n_targets": "1..",
        "n_impostors": "1..",
    },
    "OASIS": {"aggressiveness": "(0, inf]", "n_steps": "0.."},
    "OffDiagonalLearner": {
        "penalty": "[0, 1e100]",
        "ridge": "(0, 1e100]",
        "n_components": "1..",
        "n_targets": "1..",
        "n_impostors": "1..",
        "tol": "[0, 1e100]",
        "max_iter": "1..",
    },
    "OpenSetClassifier": {"beta": "(0, 1e100]"},
    "PairClassifier": {
        "prior": "(0, 1) or None",
        "miss_cost": "(0, 1e100]",
        "pass_cost": "(0, 1e100]",
        "beta": "(0, 1e100]",
    },
    "SCML": {
        "n_basis": "1.. or None",
        "beta": "[0, 1)",
        "gamma": "(0, 1e100] or None",
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
        least = int(interval.rstrip("."))
        allowed, refused = [least, least + 10**6, 2**31 - 1], [least - 1, least + 0.5, np.inf]
        (allowed if interval.endswith("...") else refused).extend([2**31, 2**63])
        return allowed, refused
    least, most = (float(part) for part in interval[1:-1].split(", "))
    after = np.nextafter(least, np.inf)
    before = np.nextafter(most, 0.0)
    inside = [after if interval[0] == "(" else least, before if interval[-1] == ")" else most]
    outside = [least if interval[0] == "(" else np.nextafter(least, -np.inf)]
    if interval[-1] == ")" or np.isfinite(most):
        outside.append(most if interval[-1] == ")" else np.nextafter(most, np.inf))
    else:
        inside.append(1e100)
        outside.extend([np.nextafter(1e100, np.inf), 1e308])
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
    assert rule.allows((0.0, 0.0, 1e100))
    with pytest.raises(InvalidParameterError, match=r"size=.* at least 0; the largest is 1e\+100$"):
        rule.check("size", (0.0, 0.0, 1e300))
    for refused in ((0.0, 0.0), (0.0, 0.0, 0.0, 0.0), (0.0, -1e-300, 0.0), (0.0, np.inf, 0.0), 0.5):
        assert not rule.allows(refused)
    pair = RULES["LifelongPLDA"]["own_weight"]
    assert pair.allows((0.0, 1.0))
    assert not pair.allows((0.0, 1.0, 1.0))


def test_any_whole_number_of_jobs_but_none():
    rule = RULES["LifelongMetricLearner"]["n_jobs"]
    assert all(map(rule.allows, (None, -2, -1, 1, 7)))
    assert not any(map(rule.allows, (0, 0.5, "1", 2**63, -(2**63))))


# --- absurd sizes -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "value", "said"),
    [
        (whole(1), 2**63, "a whole number of at least 1; the largest is 2147483647"),
        (
            optional(whole(1)),
            2**31,
            "a whole number of at least 1, or None; the largest is 214",
        ),
        (real(0), 1e308, "a number of at least 0; the largest is 1e+100"),
        (real(0, infinite=True), 1e308, ", which may be infinite; the largest is 1e+100"),
        (whole(1), 0, "a whole number of at least 1"),
        (real(0), -1.0, "a number of at least 0"),
        (real(0), np.inf, "a number of at least 0"),
    ],
)
def test_the_largest_number_is_told_to_who_gave_a_larger_one(rule, value, said):
    with pytest.raises(InvalidParameterError) as caught:
        rule.check("size", value)
    assert said in str(caught.value)
    assert ("largest" in said) == ("largest" in str(caught.value))


def pair_classifier():
    model = PairClassifier(oasis().fit(X0, Y0), threshold="f_score")
    pairs, signs = X0.reshape(12, 2, 4), np.where(np.arange(12) % 3, 1, -1)
    return model, lambda: model.fit(pairs, signs)


def open_set_classifier():
    known = MetricKNeighborsClassifier(n_neighbors=1).fit(X0, Y0)
    model, (X, y) = OpenSetClassifier(known, threshold="f_score"), samples(seed=1)
    return model, lambda: model.fit(X, np.where(np.arange(len(y)) % 5, y, 2))


def learner(entry):
    model = entry.make()
    return model, lambda: entry.learn(model, X0, Y0)


MAKERS = {entry.name: partial(learner, entry) for entry in ENTRIES} | {
    "PairClassifier": pair_classifier,
    "OpenSetClassifier": open_set_classifier,
}


@pytest.mark.filterwarnings("ignore")  # of iterations that end early, or a metric that is zero
@pytest.mark.parametrize("value", [2**63, 2**64, 1e100, 1e308], ids=str)
@pytest.mark.parametrize("name", MAKERS)
def test_a_parameter_of_absurd_size_is_used_or_named(name, value):
    rules = MAKERS[name]()[0]._parameter_rules
    numbers = [key for key, rule in rules.items() if rule.allows(0.5) or rule.allows(3)]
    for parameter in [*numbers, *(["task_penalty"] if name == "joint LMNN" else [])]:
        model, learn = MAKERS[name]()
        model.set_params(**{parameter: value})
        said = None
        try:
            learn()
        except (ValueError, TypeError) as error:
            said = str(error)
        assert said is None or parameter in said, said


def test_every_class_with_rules_is_asked_for_absurd_sizes():
    assert {type(make()[0]).__name__ for make in MAKERS.values()} == set(RULES)
