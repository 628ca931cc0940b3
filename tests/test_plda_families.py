"""With whom a task of LifelongPLDA shares, how much, and what it takes for a guess."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from plda_streams import GIVEN, learned, scores, stream
from scipy import linalg, sparse, stats

from lml.plda import LifelongPLDA, selection
from lml.plda.selection import Choice, Selection, choose_family

COUNTS = np.array([200, 200])


def test_a_task_leaves_where_sharing_is_worse_beyond_noise_only():
    rng = np.random.default_rng(0)
    alone = (rng.random((1, 1, 400)) < 0.1).astype(float)
    worse = np.repeat((rng.random((1, 1, 400)) < 0.2).astype(float), 6, axis=0)
    worse[-1] = alone[0]  # the last weights are those of being alone
    assert choose_family({None: alone, 0: worse, 2: worse}, 3, COUNTS, 2.0)[0] == 3
    assert choose_family({None: alone}, 1, COUNTS, 2.0)[0] == 1
    level = np.repeat(rng.permutation(alone[0, 0])[None, None], 6, axis=0)
    assert choose_family({None: alone, 0: worse, 2: level}, 3, COUNTS, 2.0)[0] == 2


def test_less_doubt_is_needed_where_more_is_taken_for_granted():
    alone = np.zeros((1, 1, 100))
    shared = np.zeros((6, 1, 100))
    shared[:5, 0, :2] = 1.0  # 1.4 standard errors worse
    assert choose_family({None: alone, 0: shared}, 1, COUNTS, 2.0)[0] == 0
    assert choose_family({None: alone, 0: shared}, 1, COUNTS, 1.0)[0] == 1


@pytest.mark.parametrize(
    "settings", [{"own_weight": 0.5}, {"own_weight": 0.5, "shrinkage": "auto"}]
)
def test_with_a_given_weight_all_tasks_share_whatever_they_are(settings):
    _, ruined = honest_and_ruined(0)
    learner = LifelongPLDA(random_state=0, n_folds=2, **settings)
    for name, (X, y, _, _) in ruined.items():
        learner.partial_fit(X, y, task=name)
    assert {memory.family for memory in learner.tasks_.values()} == {0}


@pytest.mark.parametrize("place", [0, 1, 3])
@pytest.mark.parametrize("keyed", [False, True])
def test_a_task_with_labels_at_random_shares_with_nobody(place, keyed):
    visits = stream(4, n=60)
    X, y, _ = visits[place]
    lies = np.random.default_rng(1).permutation(y)
    visits.insert(place, (X, lies, "lies"))
    learner = learned(visits, own_weight="auto", shared_labels=keyed)
    memories = learner.tasks_
    assert memories["lies"].at_chance
    assert [task for task, m in memories.items() if m.at_chance] == ["lies"]
    family = memories["lies"].family
    assert [task for task, m in memories.items() if m.family == family] == ["lies"]
    alone = learned([(X, lies, "lies")], own_weight=1.0, **{"shared_labels": keyed})
    found = scores(learner, visits, "lies")
    assert found.shape == scores(alone, visits[place : place + 1], "lies").shape
    assert np.isfinite(found).all()


@pytest.mark.parametrize(
    ("families", "most", "kept"),
    [
        ([0, 0, 1, 2, 2, 2], 1, [2]),
        ([0, 0, 1, 2, 2, 2], 2, [0, 2]),
        ([0, 0, 0, 1, 2, 2], 1, [0]),
        ([0, 1, 1, 2, 2, 3], 1, [2]),  # as large as another, and later
        ([0, 1, 1, 2, 2, 3], 3, [1, 2, 3]),
    ],
)
def test_of_many_families_the_largest_are_open_of_those_the_latest(families, most, kept):
    learner = learned(stream(6), own_weight="auto", max_old_tasks=most)
    tasks = {
        name: replace(memory, family=family, at_chance=False)
        for (name, memory), family in zip(learner.tasks_.items(), families, strict=True)
    }
    assert list(learner._open_families(replace(learner.state_, tasks=tasks))) == kept


def honest_and_ruined(seed, place=1):
    """Parts (X, y, Z, z) of keyed tasks; one with permuted features, one with renamed classes."""
    rng, at = np.random.default_rng(seed), np.repeat(np.arange(10), 5)
    means, mix = rng.normal(size=(10, 40)), rng.normal(size=(40, 40)) * np.linspace(0.05, 0.5, 40)
    asked, order, parts = np.repeat(np.arange(10), 30), rng.permutation(40), []
    for _ in range(6):
        own, center = means + 0.5 * rng.normal(size=means.shape), rng.normal(size=40)
        X, Z = (own[y] + center + rng.normal(size=(len(y), 40)) @ mix for y in (at, asked))
        parts.append((X, at, Z, asked))
    X, y, Z, z = parts[1]
    ruined = {
        "shuffled": (X[:, order], y, Z[:, order], z),
        "renamed": (X, (y + 1) % 10, Z, (z + 1) % 10),
    }
    honest = {f"task{n}": part for n, part in enumerate(parts)}
    names = list(honest)
    names[place:place] = list(ruined)
    return honest, {name: {**honest, **ruined}[name] for name in names}


def end_errors(parts, **settings):
    learner = LifelongPLDA(random_state=0, **{"shared_labels": True, **settings})
    for name, (X, y, _, _) in parts.items():
        learner.partial_fit(X, y, task=name)
    found = {}
    for name, (X, y, Z, z) in parts.items():
        nearest = learner.task_metric(name).bilinear(Z, X).argmax(axis=1)
        found[name] = np.mean(y[nearest] != z)
    return found, learner.tasks_


@pytest.mark.parametrize("place", [0, 1, 4])
def test_ruined_tasks_of_a_keyed_stream_end_as_alone_and_take_nothing_from_the_honest(place):
    gains, kept, harm = [], [], []
    for seed in range(4):
        honest, stream = honest_and_ruined(seed, place)
        found, memories = end_errors(stream)
        clean, _ = end_errors(honest)
        alone = {u: end_errors({u: part})[0][u] for u, part in stream.items()}
        families = {u: m.family for u, m in memories.items()}
        assert len({families[u] for u in honest}) == 1
        assert len(set(families.values())) == 3  # each of the two for itself
        harm.append([found[u] - alone[u] for u in ("shuffled", "renamed")])
        kept.append(np.mean([clean[u] - found[u] for u in honest]))
        gains.append(np.mean([alone[u] - found[u] for u in honest]))
    noise = np.std(harm, axis=0, ddof=1) / 2
    assert np.all(np.mean(harm, axis=0) < 2 * noise + 0.005)
    assert np.mean(gains) > 0.02  # about 0.01 where the two are let in
    assert abs(np.mean(kept)) < 0.005


def test_a_task_with_other_features_is_alone_whoever_else_shares_and_whatever_the_labels():
    for place in (0, 2, 5):
        honest, stream = honest_and_ruined(3, place)
        names = {name: n for n, name in enumerate(stream)}
        for keyed in (False, True):  # labels apart: classes of no task are those of another
            parts = {u: (X, y + 10 * keyed * names[u], Z, z) for u, (X, y, Z, z) in stream.items()}
            learner = LifelongPLDA(shared_labels=keyed, random_state=0)
            for name, (X, y, _, _) in parts.items():
                learner.partial_fit(X, y, task=name)
            families = {u: m.family for u, m in learner.tasks_.items()}
            assert [u for u in families if families[u] == families["shuffled"]] == ["shuffled"]
            assert len({families[u] for u in (*honest, "renamed")}) == 1


def test_tasks_whose_rows_have_no_directions_share():
    rng, at, founded, n_asked = np.random.default_rng(4), np.repeat(np.arange(3), 8), 0, 12 * 11
    for _ in range(12):
        learner = LifelongPLDA(random_state=0)
        for task in range(12):
            means = 0.3 * rng.normal(size=(3, 8))
            learner.partial_fit(means[at] + rng.normal(size=(24, 8)), at, task=task)
        founded += len({m.family for m in learner.tasks_.values()}) - 1
    # where sharing is no worse, it looks worse by two standard errors in 2.3% of the visits
    doubt = stats.norm.sf(2.0)
    assert founded < doubt * n_asked + 5 * np.sqrt(doubt * n_asked)


def test_tasks_whose_labels_have_the_same_other_meaning_share():
    honest, _ = honest_and_ruined(0)
    names = ["task0", "task1", "other2", "task3", "other4", "other5"]
    stream = {}
    for name, (X, y, Z, z) in zip(names, honest.values()):
        step = 3 * name.startswith("other")
        stream[name] = X, (y + step) % 10, Z, (z + step) % 10
    _, memories = end_errors(stream)
    assert [m.family for m in memories.values()] == [0, 0, 1, 0, 1, 1]


def test_a_task_that_comes_back_with_its_labels_renamed_leaves():
    honest, _ = honest_and_ruined(0)
    learner = LifelongPLDA(shared_labels=True, random_state=0)
    for name, (X, y, _, _) in honest.items():
        learner.partial_fit(X, y, task=name)
    X, y, _, _ = honest["task2"]
    learner.forget("task2").partial_fit(X, (y + 1) % 10, task="task2")
    assert [m.family for m in learner.tasks_.values()] == [0, 0, 0, 0, 0, 1]
    learner.forget("task2").partial_fit(X, y, task="task2")
    assert {m.family for m in learner.tasks_.values()} == {0}


@pytest.mark.parametrize("size", [40, 12])
@pytest.mark.parametrize("form", [np.array, sparse.csr_array])
def test_each_task_has_its_own_unit_and_place(form, size):
    _, stream = honest_and_ruined(1)
    one, other = (LifelongPLDA(size, shared_labels=True, random_state=0) for _ in range(2))
    factors = 4.0 ** np.array([0, 5, -5, 10, 1, -10, 3, 0])  # powers of two round nothing
    for factor, (name, (X, y, _, _)) in zip(factors, stream.items(), strict=True):
        one.partial_fit(form(X), y, task=name)
        other.partial_fit(form(factor * X), y, task=name)
    assert {m.family for m in one.tasks_.values()} >= {0, 1, 2}  # there is something to mix up
    for factor, (name, (X, y, Z, _)) in zip(factors, stream.items(), strict=True):
        before, after = one.tasks_[name], other.tasks_[name]
        assert (after.family, after.at_chance) == (before.family, before.at_chance)
        np.testing.assert_array_equal(after.losses, before.losses)
        mine, theirs = (
            learner.task_metric(name).bilinear(by * Z, by * X)
            for learner, by in ((one, 1.0), (other, factor))
        )
        np.testing.assert_allclose(theirs, mine, rtol=1e-6, atol=1e-6)
        shrunk, scaled = (
            learner.shrink_references(by * X, y, task=name, amount=1.0, shared=0.5)
            for learner, by in ((one, 1.0), (other, factor))
        )
        np.testing.assert_allclose(scaled / factor, shrunk, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("step", [10.0, 0.1])
def test_labels_agree_whatever_the_unit_and_the_place_of_the_rows(step):
    for seed in range(4):
        honest, _ = honest_and_ruined(seed)
        learner = LifelongPLDA(shared_labels=True, random_state=0)
        for n, (name, (X, y, _, _)) in enumerate(honest.items()):
            learner.partial_fit(step**n * (X + n), y, task=name)
        assert {m.family for m in learner.tasks_.values()} == {0}


def test_labels_of_which_all_rows_are_held_out_at_once_are_no_error():
    X = np.random.default_rng(0).normal(size=(14, 3))
    learner = LifelongPLDA(shared_labels=True, random_state=0)
    learner.partial_fit(X[:6], list("aabbbb"), task="few")
    learner.partial_fit(X[6:], list("abcccccc"), task="single")  # a and b in one fold or another
    learner.partial_fit(X[6:], list("aabcdefg"), task="many")
    assert np.isfinite(learner.task_metric("single").bilinear(X, X)).all()


def test_the_dictionary_joins_labels_within_a_family_only():
    _, stream = honest_and_ruined(2)
    learner = LifelongPLDA(12, shared_labels=True, random_state=0)
    scatters, spreads = {}, {}
    for name, (X, y, _, _) in stream.items():
        learner.partial_fit(X, y, task=name)
    # at full size the moments of a task are exact: the same families, pooled by hand
    groups = {}
    for name, memory in learner.tasks_.items():
        X, y, _, _ = stream[name]
        groups.setdefault(memory.family, []).append((X - X.mean(axis=0), y))
    assert sorted(map(len, groups.values())) == [1, 1, 6]
    for family, rows_of in groups.items():
        X, y = (np.concatenate(parts) for parts in zip(*rows_of))
        means = np.array([X[y == label].mean(axis=0) for label in y])
        scale = np.sum((X - means) ** 2) / 40
        share = len(rows_of) / 8
        scatters[family] = share * (X - means).T @ (X - means) / scale
        spreads[family] = share * means.T @ means / scale
    S, B = sum(scatters.values()) + np.eye(40), sum(spreads.values())
    kept = learner.dictionary_
    best = linalg.eigh(kept @ B @ kept.T, kept @ S @ kept.T, eigvals_only=True)[-1]
    full = linalg.eigh(B, S, eigvals_only=True)[-1]
    assert best > 0.95 * full
    np.testing.assert_allclose(kept @ kept.T, np.eye(12), atol=1e-10)


def test_few_rows_are_no_guesses():
    X = np.array([[0.0, 0.1], [0.1, 0.0], [5.0, 5.0], [5.1, 5.0], [0.0, 0.0], [5.0, 5.1]])
    learner = LifelongPLDA(random_state=0).partial_fit(X, [0, 0, 1, 1, 0, 1], task="few")
    assert not learner.tasks_["few"].at_chance


def test_a_task_that_left_ends_as_if_alone(monkeypatch):
    visits, numbers = stream(), iter(range(3))
    found = (np.zeros((1, 1)), False, np.zeros(0))
    monkeypatch.setattr(Selection, "validate", lambda *_: Choice(next(numbers), *found))
    learner = learned(visits)
    numbers = itertools.repeat(0)
    assert [memory.family for memory in learner.tasks_.values()] == [0, 1, 2]
    for visit in visits:
        expected = scores(learned([visit]), visits, visit[2])
        np.testing.assert_allclose(scores(learner, visits, visit[2]), expected, atol=1e-8)


def test_the_choice_follows_what_helps():
    rng = np.random.default_rng(3)
    spread = np.r_[np.full(20, 6.0), np.ones(20)]  # loud directions without classes

    def task(seed):
        y = np.arange(20) % 2
        means = np.random.default_rng(seed).normal(size=(2, 40)) * np.repeat([0.0, 1.3], 20)
        return rng.normal(size=(20, 40)) * spread + means[y], y, f"task{seed}"

    learner = learned([task(seed) for seed in range(12)], own_weight="auto")
    assert len({memory.family for memory in learner.tasks_.values()}) == 1
    candidates = Selection.among(
        "auto", GIVEN["shrinkage"], regularization=1.0, shared_labels=False, n_folds=5
    )
    memories = learner.tasks_
    weights, _ = candidates.settings(memories["task11"], memories.values())
    assert weights[0] < 1.0


def test_a_visit_is_judged_by_its_own_rows():
    rng, noise = np.random.default_rng(0), np.random.default_rng(1)
    y = np.arange(200) % 2
    X = rng.normal(size=(200, 6)) + 4 * np.eye(2, 6)[y]
    learner = LifelongPLDA(6, random_state=0).partial_fit(X, y, task="t")
    assert not learner.tasks_["t"].at_chance
    learner.partial_fit(X[:10], noise.permutation(y[:10]), task="t")  # too few rows to say
    memory = learner.tasks_["t"]
    assert memory.losses.min() > 0.2
    assert memory.n_samples == 210
    assert not memory.at_chance
    learner.partial_fit(X, noise.permutation(y), task="t")
    assert learner.tasks_["t"].at_chance


@pytest.mark.parametrize("keyed", [False, True])
def test_the_nearest_five_choose_what_a_full_sort_chooses(keyed, monkeypatch):
    visits = stream(4, n=60)
    visits[2] = (np.round(visits[2][0]), *visits[2][1:])  # equal samples, equal scores
    some = learned(visits, own_weight="auto", shrinkage="auto", shared_labels=keyed)

    def all_sorted(scores, k):
        return np.argsort(-scores, axis=1, kind="stable")[:, :k]

    monkeypatch.setattr(selection, "_nearest", all_sorted)
    every = learned(visits, own_weight="auto", shrinkage="auto", shared_labels=keyed)
    for task, memory in some.tasks_.items():
        assert memory.family == every.tasks_[task].family
        np.testing.assert_array_equal(memory.losses, every.tasks_[task].losses)


def test_of_many_samples_a_draw_is_ranked_and_all_are_learned(monkeypatch):
    ranked = []
    losses = selection._sample_losses

    def spy(fold, *given):
        ranked.append(len(fold.held) + len(fold.others))
        return losses(fold, *given)

    monkeypatch.setattr(selection, "MOST_RANKED", 50)
    monkeypatch.setattr(selection, "_sample_losses", spy)
    visits = stream(3, n=120)
    learner = learned(visits, own_weight="auto", shrinkage="auto")
    assert max(ranked) <= 50
    assert [memory.n_samples for memory in learner.tasks_.values()] == [120] * 3
    again = learned(visits, own_weight="auto", shrinkage="auto")
    for task, memory in learner.tasks_.items():
        np.testing.assert_array_equal(memory.losses, again.tasks_[task].losses)
