"""How the work of learning grows with samples, features and tasks: linearly, or as is written here.

The work is counted (`support/work.py`), so a slow machine changes nothing.
"""

import pytest
from registry import ENTRIES, samples
from scipy import sparse
from work import exponent, work_of

from lml.metrics import FactoredMetric, pairwise_scores
from lml.oasis import OASIS
from lml.plda import selection

FACTOR = 4
SMALL = {"n": 120, "D": 30, "T": 3}
SLACK = 0.3  # a square shows as 1.4 or more where it is worth a remark

# What grows faster than linearly in samples n and features D, or in the number T of tasks: than
# linearly for a table of tasks, than not at all for a visit. The power, and why.
DOCUMENTED = {
    ("OASIS", "D"): (2, "a full metric: its dense form keeps D x D numbers"),
    ("pooled", "D"): (2, "the same"),
    ("k-NN", "n"): (2, "all samples are compared with all"),
    ("k-NN of OASIS", "n"): (2, "the same"),
    ("LMNN", "n"): (2, "impostors are looked for among all pairs"),
    ("LMNN shrunk", "n"): (2, "the same"),
    ("joint LMNN", "n"): (2, "the same"),
    ("lifelong OASIS", "n"): (2, "the sharing is chosen by k-NN within the visit"),
    ("lifelong PLDA", "n"): (2, "of at most MOST_RANKED samples, all are compared: see below"),
    ("PLDA table", "n"): (2, "the same"),
    ("lifelong PLDA", "T"): (0.5, "families of tasks are asked, at most so many"),
    ("PLDA table", "T"): (1.5, "the same"),
    ("the paper's", "T"): (1, "a step of the dictionary asks all tasks"),
    ("the paper's table", "T"): (2, "the same, after each of them"),
    ("ELLA", "D"): (2, "running sums of (k D)^2 numbers"),
    ("ELLA table", "D"): (2, "the same"),
    ("joint OASIS", "n"): (2, "scores of all pairs of samples"),
    ("joint OASIS", "T"): (2, "the same, of all tasks"),
}


def learning(entry, n=40, D=8, T=1):
    """A call that learns: one task; with a stream the visit after so many tasks."""
    model, parts = entry.make(D), {task: samples(n, D, seed=task) for task in range(T + 1)}
    X, y = parts.pop(T)
    if entry.kind == "table":
        return lambda: entry.learn_several(model, parts)
    if entry.kind != "single":
        entry.learn_several(model, parts)
        return lambda: entry.learn(model, X, y, task=T)
    if hasattr(model, "predict"):
        return lambda: model.fit(X, y).predict(X)
    return lambda: model.fit(X, y)


CASES = [
    pytest.param(entry, variable, id=f"{entry} in {variable}")
    for entry in ENTRIES
    for variable in SMALL
    if variable != "T" or entry.kind != "single"
]


@pytest.mark.filterwarnings("ignore")  # of iterations that end early
@pytest.mark.parametrize(("entry", "variable"), CASES)
def test_the_work_grows_linearly_or_as_documented(entry, variable):
    small, large = (
        work_of(learning(entry, **{variable: size}))
        for size in (SMALL[variable], FACTOR * SMALL[variable])
    )
    usual = 0 if variable == "T" and entry.kind != "table" else 1
    most, _ = DOCUMENTED.get((entry.name, variable), (usual, ""))
    counted = ["lines", "peak"] if variable == "T" else ["lines", "numbers", "peak"]
    found = {k: exponent(getattr(small, k), getattr(large, k), FACTOR) for k in counted}
    assert max(found.values()) <= most + SLACK, found


@pytest.mark.parametrize("name", ["lifelong PLDA", "PLDA table"])
def test_plda_grows_linearly_beyond_the_samples_that_are_ranked(name, monkeypatch):
    monkeypatch.setattr(selection, "MOST_RANKED", 60)
    (entry,) = (entry for entry in ENTRIES if entry.name == name)
    small, large = (work_of(learning(entry, n=n)) for n in (240, 240 * FACTOR))
    for kind in ("lines", "numbers", "peak"):
        assert exponent(getattr(small, kind), getattr(large, kind), FACTOR) <= 1 + SLACK, kind


def test_sparse_samples_are_learned_from_as_dense_ones_are():
    def fit(n):
        X, y = samples(n, 12)
        return work_of(lambda: OASIS(n_steps=100, random_state=0).fit(sparse.csr_array(X), y))

    small, large = fit(480), fit(480 * FACTOR)
    for kind in ("lines", "numbers", "peak"):
        assert exponent(getattr(small, kind), getattr(large, kind), FACTOR) <= 1 + SLACK, kind


def test_the_list_names_learners_of_the_registry():
    known = {(entry.name, variable) for entry, variable in (case.values for case in CASES)}
    assert set(DOCUMENTED) <= known


def test_a_square_is_seen():
    def scores(n):
        X, _ = samples(n)
        return work_of(lambda: pairwise_scores(FactoredMetric.identity(4), X, X, "distance"))

    small, large = scores(200), scores(800)
    assert exponent(small.numbers, large.numbers, FACTOR) > 1.7
    assert exponent(small.peak, large.peak, FACTOR) > 1.7
    assert small.lines == large.lines
