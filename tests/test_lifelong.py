"""The lifelong learner: its formulas against loops over dense matrices, and tasks over time."""

import copy
import itertools
import pickle
import warnings
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
from lifelong_streams import NAMES, all_of, learn, make_learner, make_task
from numpy.testing import assert_allclose
from scipy import linalg, sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from lml.datasets import load_few_shot_digits, make_embedding_stream
from lml.lifelong import LifelongMetricLearner, contribution, trimmed
from lml.lmnn import LMNN
from lml.metrics import FactoredMetric
from lml.neighbors import k_nearest
from lml.oasis import OASIS
from lml.scml import SCML
from lml.triplets import sample_triplets

FAST = OASIS(n_steps=500)


def learned(tasks, **parameters):
    learner = LifelongMetricLearner(**{"base_learner": FAST, "random_state": 0} | parameters)
    for task in tasks:
        learner.partial_fit(task.X_train, task.y_train, task=task.name)
    return learner


@pytest.fixture(scope="module")
def digits():
    return load_few_shot_digits(n_tasks=6, n_train=6, random_state=1)


def shared_by_definition(codes, m, D):
    """P of a task from the dense codes of the others, by eigenvalues."""
    if not codes:
        return np.eye(D)
    parts = []
    for W in codes:
        values, vectors = np.linalg.eigh(W)
        values = np.maximum(1 + (values - values.mean()) / values.std(), 0)
        parts.append((vectors * values) @ vectors.T * D / values.sum())
    return (1 - m) * np.eye(D) + m * np.mean(parts, axis=0)


def learned_by_definition(base, X, y, P, seed):
    """A code: what the base learner finds in the coordinates of P, back in the units of P."""
    Z = X @ linalg.sqrtm(P).real
    scale = np.linalg.norm(Z) / np.linalg.norm(X)
    seeded = clone(base)
    if "random_state" in seeded.get_params():
        seeded.set_params(random_state=seed)
    M = seeded.fit(Z / scale, y).metric_.to_dense() / scale**2
    return (M + M.T) / 2


def joined_by_definition(X, y, others):
    """The samples of a task, then the class means of others, from their samples."""
    rows, labels = [X], [y]
    for A, b in others:
        for c in sorted(set(b) & set(y)):
            rows.append([A[b == c].mean(axis=0) - A.mean(axis=0) + X.mean(axis=0)])
            labels.append([c])
    return np.concatenate(rows), np.concatenate(labels)


def read_by_definition(W, P):
    R = linalg.sqrtm(P).real
    return R @ W @ R


def base_seed(random_state, number, n_visits=0):
    root = np.random.RandomState(random_state).randint(2**31)
    return int(np.random.SeedSequence([root, number, n_visits]).generate_state(2)[0])


BASES = [OASIS(n_steps=300), SCML(n_basis=20, n_steps=300), LMNN(shrinkage=0.01, max_iter=30)]


@pytest.mark.parametrize("base", BASES, ids=["oasis", "scml", "lmnn"])
@pytest.mark.parametrize("sharing", [0.4, 1.0, "grow"])
def test_tasks_are_learned_and_read_as_in_a_loop_over_dense_matrices(base, sharing):
    learner = make_learner(base, n_components=7, code_rank=None, sharing=sharing)
    codes = {}
    for number, name in enumerate(NAMES):
        X, y = make_task(number)
        learner.partial_fit(X, y, task=name)
        m = 0.9 * number / (number + 5) if sharing == "grow" else sharing
        P = shared_by_definition(list(codes.values()), m, 7)
        codes[name] = learned_by_definition(base, X, y, P, base_seed(0, number))
        assert_allclose(learner.codes_[name].to_dense(), codes[name], rtol=1e-5, atol=1e-7)
        assert learner.sharing_ == learner.tasks_[name].sharing == pytest.approx(m)
    assert_allclose(
        learner.shared_metric_.to_dense(),
        shared_by_definition(list(codes.values()), m, 7),
        atol=1e-6,
    )
    for name in NAMES:
        P = shared_by_definition([W for u, W in codes.items() if u != name], m, 7)
        M = read_by_definition(codes[name], P)
        assert_allclose(learner.metric_matrix(name), M, atol=1e-5 * np.abs(M).max())


class Watched(OASIS):
    """OASIS that notes the samples that it is given."""

    seen: ClassVar[list] = []

    def fit(self, X, y):
        self.seen.append((X, y))
        return super().fit(X, y)


@pytest.mark.parametrize("shared_labels", [False, True])
def test_what_is_shared_is_what_made_the_fewest_mistakes_on_samples_left_out(shared_labels):
    learner = make_learner(
        Watched(n_steps=300), n_components=7, code_rank=None, shared_labels=shared_labels
    )
    candidates, total, chosen, before = [0.0, 0.3, 0.6, 0.9], np.zeros(4), [], {}
    for visit, task in enumerate([0, 1, 2, 3, 0]):
        X, y = make_task(visit % 2, n=31, n_classes=2)  # 16 and 15: 8 of each are learned
        X[:, 2:] += 6 * np.random.default_rng(visit).normal(size=(31, 5))  # others help
        others = [W.to_dense() for u, W in learner.codes_.items() if u != task] if visit else []
        given = [part for u, part in before.items() if u != task] if shared_labels else []
        rows, classes = joined_by_definition(X, y, given)
        n_means = len(rows) - 31
        before.setdefault(task, (X, y))
        Watched.seen.clear()
        learner.partial_fit(X, y, task=task)
        assert len(Watched.seen) == (5 if visit else 1)
        for m, (Z, labels) in zip(candidates if visit else (), Watched.seen):
            P = shared_by_definition(others, m, 7)
            # which samples were given: those whose directions in shared coordinates are the same
            images = rows @ linalg.sqrtm(P).real
            images /= np.linalg.norm(images, axis=1, keepdims=True)
            units = Z / np.linalg.norm(Z, axis=1, keepdims=True)
            own = (units @ images.T).argmax(axis=1)
            assert_allclose(units, images[own], atol=1e-6)
            assert len(set(own)) == 16 + n_means
            assert np.bincount(classes[own[own < 31]]).tolist() == [8, 8]
            np.testing.assert_array_equal(labels, classes[own])
            rest = np.setdiff1d(np.arange(31), own)
            seed = base_seed(0, task, n_visits=int(visit == 4))
            W = learned_by_definition(OASIS(n_steps=300), rows[own], classes[own], P, seed)
            scores = X[rest] @ read_by_definition(W, P) @ rows[own].T
            total[candidates.index(m)] += np.sum(classes[own][scores.argmax(axis=1)] != y[rest])
        if visit:
            np.testing.assert_array_equal(learner._state.mistakes, total)
        chosen.append(candidates[int(total.argmin())])
        assert learner.sharing_ == chosen[-1]
    assert len(set(total)) > 1
    assert len(set(chosen)) > 1


def test_mistakes_are_remembered_while_the_weight_is_given():
    learner = learn(make_learner(), NAMES[:2])
    counted = learner._state.mistakes
    assert counted.any()
    learner.set_params(sharing=0.5).partial_fit(*make_task(2), task="given")
    np.testing.assert_array_equal(learner._state.mistakes, counted)


def test_what_is_shared_grows_with_the_other_tasks():
    learner, found = make_learner(sharing="grow"), []
    for number, task in enumerate(["a", "b", "a", "c", "b"]):
        found.append(learner.partial_fit(*make_task(number), task=task).sharing_)
    assert_allclose(found, [0, 0.9 / 6, 0.9 / 6, 1.8 / 7, 1.8 / 7])


def test_nobody_is_asked_where_half_of_the_samples_hold_no_pair():
    X, y = make_task(0, n=6)  # two of each class
    learner = make_learner(Watched(n_steps=50)).partial_fit(*make_task(1), task="before")
    Watched.seen.clear()
    learner.partial_fit(X, y, task="pairs")
    assert len(Watched.seen) == 1
    learner.partial_fit(*make_task(2, n=7), task="three of one class")
    assert len(Watched.seen) == 6


@pytest.mark.parametrize("base", BASES, ids=["oasis", "scml", "lmnn"])
def test_the_metric_is_the_code_between_roots_of_what_the_others_found(digits, base):
    learner = learned(digits[:3], base_learner=base, sharing=0.7)
    codes = {name: code.to_dense() for name, code in learner.codes_.items()}
    for name, W in codes.items():
        P = shared_by_definition([V for u, V in codes.items() if u != name], 0.7, 64)
        M = read_by_definition(W, P)
        assert_allclose(learner.metric_matrix(name), M, atol=1e-7 * np.abs(W).max())


# --- labels in common ---------------------------------------------------------------------


def several_tasks():
    """Four tasks whose labels are shared, with other means, sizes and a class that one lacks."""
    tasks = {}
    for number, name in enumerate(("a", "b", "c", "d")):
        X, y = make_task(number, n=24 + 3 * number)
        kept = y < (2 if name == "b" else 3)
        tasks[name] = X[kept] + number, y[kept]
    return tasks


def joined_learner(base=BASES[0], **parameters):
    given = {"n_components": 7, "code_rank": None, "sharing": 0.5, "shared_labels": True}
    return make_learner(base, **{**given, **parameters})


@pytest.mark.filterwarnings("ignore:the mean of the samples")  # of the fit by definition
@pytest.mark.parametrize("base", BASES, ids=["oasis", "scml", "lmnn"])
def test_class_means_of_other_tasks_are_samples_when_a_task_is_learned(base):
    learner, codes, before = joined_learner(base), [], []
    for number, (name, (X, y)) in enumerate(several_tasks().items()):
        learner.partial_fit(X, y, task=name)
        rows, classes = joined_by_definition(X, y, before)
        P = shared_by_definition(codes, 0.5, 7)
        codes.append(learned_by_definition(base, rows, classes, P, base_seed(0, number)))
        before.append((X, y))
        assert_allclose(learner.codes_[name].to_dense(), codes[-1], rtol=1e-5, atol=1e-6)
        assert learner.tasks_[name].n_samples == len(y)
    rows, labels = learner.class_means_of_others(task="b")
    X, y = before[1]
    expected, classes = joined_by_definition(X, y, [before[0], *before[2:]])
    assert_allclose(rows, expected[len(y) :], atol=1e-12)
    assert labels == classes[len(y) :].tolist()


def test_class_means_of_a_task_that_comes_back_are_those_of_all_its_samples():
    tasks = several_tasks()
    X, y = tasks["a"]
    first = y < 2  # a label that the first visit does not have
    parts, whole = joined_learner(), joined_learner()
    for one, visits in ((parts, [first, ~first | (np.arange(len(y)) > 12)]), (whole, [y < 3])):
        for visit in visits:
            one.partial_fit(X[visit], y[visit], task="a")
        one.partial_fit(*tasks["c"], task="c")
    seen = np.concatenate([X[first], X[~first | (np.arange(len(y)) > 12)]])
    labels = np.concatenate([y[first], y[~first | (np.arange(len(y)) > 12)]])
    found, theirs = parts.class_means_of_others(task="c")
    expected, classes = joined_by_definition(*tasks["c"], [(seen, labels)])
    n_own = len(tasks["c"][1])
    assert_allclose(found, expected[n_own:], atol=1e-12)
    assert theirs == classes[n_own:].tolist()
    parts.forget("a")
    assert len(parts.class_means_of_others(task="c")[0]) == 0
    assert parts.state_parts_["class means"] == 8 * 3 * (7 + 1)


def test_the_means_of_ten_tasks_are_samples_and_those_of_all_are_references():
    learner = joined_learner(Watched(n_steps=5))
    for number in range(14):
        Watched.seen.clear()
        learner.partial_fit(*make_task(number), task=number)
        (Z, _), *more = Watched.seen
        assert not more
        assert len(Z) == 30 + 3 * min(number, 10)
    assert len(learner.class_means_of_others(task=0)[0]) == 3 * 13


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize(("amount", "shared"), [(0.0, 0.5), (0.4, 0.0), (0.4, 0.3), (1.0, 1.0)])
def test_references_move_toward_the_class_means_of_one_task_or_of_all(form, amount, shared):
    tasks = several_tasks()
    learner = joined_learner()
    for name, (X, y) in tasks.items():
        learner.partial_fit(X, y, task=name)
    X, y = tasks["c"]
    found = learner.shrink_references(form(X), y, task="c", amount=amount, shared=shared)
    centered = np.concatenate([A - A.mean(axis=0) for A, _ in tasks.values()])
    labels = np.concatenate([b for _, b in tasks.values()])
    for x, label, moved in zip(X, y, found):
        joined = X.mean(axis=0) + centered[labels == label].mean(axis=0)
        target = (1 - shared) * X[y == label].mean(axis=0) + shared * joined
        assert_allclose(moved, (1 - amount) * x + amount * target, atol=1e-12)


def test_labels_in_common_with_many_sparse_features_give_the_metrics_of_dense_ones():
    models = []
    for form in (np.asarray, sparse.csr_array):
        learner = joined_learner(n_components=60)
        for number in range(3):
            X, y = make_task(number, n_features=60)
            X[np.abs(X) < 0.5] = 0.0
            learner.partial_fit(form(X), y, task=number)
        models.append(learner)
    for task in range(3):
        assert_allclose(*(model.metric_matrix(task) for model in models), atol=1e-8)


def test_labels_in_common_are_used_from_the_visit_on_that_asks_for_them():
    tasks = several_tasks()
    learner = joined_learner(shared_labels=False).partial_fit(*tasks["a"], task="a")
    X, y = tasks["a"]
    assert learner.state_parts_["class means"] == 0
    with pytest.raises(ValueError, match=r"shared=0\.5 needs shared_labels=True"):
        learner.shrink_references(X, y, task="a", shared=0.5)
    learner.set_params(shared_labels=True).partial_fit(*tasks["c"], task="c")
    for read in (
        lambda: learner.class_means_of_others(task="a"),
        lambda: learner.shrink_references(X, y, task="a", shared=0.5),
    ):
        with pytest.raises(
            ValueError, match=r"'a' has no class means.*or with shared_labels=False"
        ):
            read()
    learner.partial_fit_triplets([[0, 1, 2]], X, task="t")
    with pytest.raises(ValueError, match=r"'t' has no class means.*learned from triplets or"):
        learner.class_means_of_others(task="t")
    assert learner.class_means_of_others(task="c")[1] == []
    assert_allclose(learner.shrink_references(X, y, task="a", amount=0.0), X)
    with pytest.raises(ValueError, match="task 'x' is not known"):
        learner.class_means_of_others(task="x")
    with pytest.raises(ValueError, match="shared_labels=1"):
        learner.set_params(shared_labels=1).partial_fit(*tasks["d"], task="d")


# --- what is shared -----------------------------------------------------------------------


def test_a_task_that_arrives_does_not_see_itself(digits):
    first = learned(digits[:1], sharing=0.9)
    assert_allclose(first.metric_matrix(digits[0].name), first.codes_[digits[0].name].to_dense())
    assert_allclose(first.shared_metric_.inner(FactoredMetric.identity(64)), 64)


def test_the_size_of_a_code_and_a_multiple_of_the_identity_do_not_count():
    rng = np.random.default_rng(0)
    rows = np.linalg.qr(rng.normal(size=(7, 3)))[0].T
    code = FactoredMetric(0.3, rows, np.diag([2.0, -1.0, 0.5]))
    plain = contribution(trimmed(code, 7)).to_dense()
    for other in (50 * code, code + FactoredMetric.identity(7, 8.0), trimmed(code, 7) / 1e6):
        assert_allclose(contribution(trimmed(other, 7)).to_dense(), plain, atol=1e-9)
    same = contribution(FactoredMetric.identity(7, -2.0))
    assert_allclose(same.to_dense(), np.eye(7))


@pytest.mark.parametrize(("D", "k"), [(3, 2), (7, 3), (7, 6), (6, 6), (40, 2)])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_a_contribution_is_that_of_the_dense_code(D, k, sign):
    rng = np.random.default_rng(D + k)
    rows = np.linalg.qr(rng.normal(size=(D, k)))[0].T
    for core in (rng.normal(size=k), sign * (1 + rng.random(k))):
        code = trimmed(FactoredMetric(0.3, rows, np.diag(core)), k)
        found = contribution(code).to_dense()
        assert_allclose(found, shared_by_definition([code.to_dense()], 1.0, D), atol=1e-9)
        assert np.linalg.eigvalsh(found)[0] > -1e-9
        assert np.trace(found) == pytest.approx(D)


def test_what_is_cut_from_the_sum_makes_no_distance_negative(digits):
    base = LMNN(shrinkage=0.1, max_iter=20)
    learner = learned(digits, base_learner=base, n_components=1, code_rank=2, sharing=1.0)
    for task in learner.tasks_:
        values = np.linalg.eigvalsh(learner.metric_matrix(task))
        assert values[0] > -1e-9 * values[-1]


@pytest.mark.parametrize("code_rank", [4, 90])
@pytest.mark.parametrize("sharing", ["auto", "grow", 0.5])
@pytest.mark.parametrize(
    ("base", "atol"),
    [(FAST, 1e-8), (LMNN(shrinkage=0.1, max_iter=15), 1e-6)],
    ids=["oasis", "lmnn"],
)
def test_many_sparse_features_give_the_metrics_of_dense_ones(base, atol, sharing, code_rank):
    few = [  # more features than samples
        (task.name, np.hstack([task.X_train, task.X_train[:, :20] ** 2]), task.y_train)
        for task in load_few_shot_digits(n_tasks=4, n_train=6, random_state=3)
    ]
    for _, X, _ in few:
        X[0] *= 1e-3  # a direction that is nearly missed
    models = []
    for form in (np.asarray, sparse.csr_array):
        learner = LifelongMetricLearner(base, sharing=sharing, code_rank=code_rank, random_state=0)
        for name, X, y in few:
            learner.partial_fit(form(X), y, task=name)
        models.append(learner)
    for name, _, _ in few:
        assert_allclose(*(model.metric_matrix(name) for model in models), atol=atol)


def test_forgetting_is_as_if_the_task_had_only_taught_those_after_it(digits):
    learner = learned(digits[:3], sharing=0.5)
    kept = {name: code.to_dense() for name, code in learner.codes_.items()}
    learner.forget(digits[1].name)
    first, last = digits[0].name, digits[2].name
    P = shared_by_definition([kept[last]], 0.5, 64)
    assert_allclose(learner.metric_matrix(first), read_by_definition(kept[first], P), atol=1e-8)
    for name in (first, last):
        learner.forget(name)
    assert learner.tasks_ == {}
    assert learner.state_parts_["shared"] == 0
    with pytest.raises(NotFittedError):
        check_is_fitted(learner)


@pytest.mark.parametrize("base", BASES, ids=["oasis", "scml", "lmnn"])
def test_a_task_that_comes_back_is_learned_and_counted_as_in_a_loop(base):
    """A visit counts by its samples; what the task had given before is taken back."""
    learner = make_learner(base, n_components=7, code_rank=None, sharing=0.5)
    visits = [("a", make_task(0)), ("b", make_task(1)), ("a", make_task(2, n=15))]
    for name, (X, y) in visits:
        learner.partial_fit(X, y, task=name)
    seeds = [base_seed(0, number, n_visits) for number, n_visits in ((0, 0), (1, 0), (0, 1))]
    first = learned_by_definition(base, *visits[0][1], np.eye(7), seeds[0])
    P = shared_by_definition([first], 0.5, 7)
    other = learned_by_definition(base, *visits[1][1], P, seeds[1])
    Q = shared_by_definition([other], 0.5, 7)  # without what the task itself has given
    again = learned_by_definition(base, *visits[2][1], Q, seeds[2])
    mean = (30 * first + 15 * again) / 45
    assert_allclose(learner.codes_["a"].to_dense(), mean, rtol=1e-4, atol=1e-6)
    P = shared_by_definition([mean], 0.5, 7)
    M = read_by_definition(other, P)
    assert_allclose(learner.metric_matrix("b"), M, atol=1e-5 * np.abs(M).max())
    record = learner.tasks_["a"]
    assert (record.number, record.n_samples, record.n_visits) == (0, 45, 2)
    assert list(learner.tasks_) == ["a", "b"]


def test_the_state_does_not_grow_with_samples_and_little_with_tasks(digits):
    small, large = learned(digits[:3], sharing=0.5), learned(digits, sharing=0.5)
    per_task = small.state_parts_["codes"] / 3
    assert large.state_parts_["codes"] == pytest.approx(6 * per_task, rel=0.2)
    assert large.state_parts_["shared"] <= 8 * (64 * 64 + 64 + 1)


CUTS = [(6, 6, 2), (7, 4, 2), (7, 4, 0), (5, 5, 5), (8, 5, 3), (6, 5, 4), (6, 6, 0)]


@pytest.mark.parametrize(("D", "k", "rank"), CUTS)
@pytest.mark.parametrize("seed", range(4))
def test_what_is_cut_is_the_nearest_of_all_choices_and_keeps_the_trace(D, k, rank, seed):
    rng = np.random.default_rng(seed)
    rows = np.linalg.qr(rng.normal(size=(D, k)))[0].T
    values = rng.normal(size=k) + seed
    metric = FactoredMetric(0.4, rows, np.diag(values))
    near = trimmed(metric, rank)
    assert len(near.core) <= rank
    M, N = metric.to_dense(), near.to_dense()
    assert_allclose(np.trace(N), np.trace(M))
    assert_allclose(near.factor @ near.factor.T, np.eye(len(near.core)), atol=1e-12)
    best = np.inf
    for kept in itertools.combinations(range(k), min(rank, k)):
        cut = np.r_[np.delete(values, kept), np.zeros(D - k)]
        best = min(best, np.sum((cut - cut.mean()) ** 2) if len(cut) else 0.0)
    assert np.sum((M - N) ** 2) == pytest.approx(best, abs=1e-10)
    # rows that say the same again leave rounding, which is not kept
    twice = FactoredMetric(0.4, np.tile(rows, (2, 1)), np.diag(np.tile(values / 2, 2)))
    assert len(trimmed(twice, D).core) == k
    assert_allclose(trimmed(twice, rank).to_dense(), N, atol=1e-10)


def test_the_ranks_bound_what_is_kept(digits):
    learner = learned(digits[:4], sharing=0.5, n_components=5, code_rank=3)
    assert len(learner._state.total.core) == len(learner.shared_metric_.core) == 5
    for code in learner.codes_.values():
        assert len(code.core) == 3
    learner.partial_fit(digits[4].X_train, digits[4].y_train, task=digits[0].name)
    assert len(learner.codes_[digits[0].name].core) == 3
    assert_allclose(np.trace(learner._state.total.to_dense()), 4 * 64)
    none = learned(digits[:2], code_rank=0, sharing=0.5)
    assert len(none.codes_[digits[1].name].core) == 0
    M = none.metric_matrix(digits[1].name)
    assert_allclose(M, M[0, 0] * np.eye(64), atol=1e-12)
    whole = learned(digits[:1], code_rank=None)
    assert len(whole.codes_[digits[0].name].core) > 20


def test_lmnn_without_a_pull_warns_at_visits(digits, tmp_path):
    learner = LifelongMetricLearner(LMNN(max_iter=5))
    with pytest.warns(UserWarning, match="shrinkage") as warned:
        learner.partial_fit(digits[0].X_train, digits[0].y_train, task="t")
    assert warned[0].filename == __file__  # the line of the caller
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        learned(digits[:1], base_learner=LMNN(max_iter=5), sharing=0.0)
        learner.save(tmp_path / "s")  # was warned of when it learned
        again = LifelongMetricLearner.load(tmp_path / "s")
    X, y = digits[0].X_train, digits[0].y_train
    with pytest.warns(UserWarning, match="shrinkage") as warned:
        again.fit(X, y, tasks=["t"] * len(y))
    assert warned[0].filename == __file__


def error(learner, task):
    metric = learner.task_metric(task.name)
    nearest, _ = k_nearest(metric, task.X_test, task.X_train, learner.metric_type_, 1)
    return np.mean(task.y_train[nearest[:, 0]] != task.y_test)


@pytest.mark.parametrize("sharing", ["auto", "grow"])
def test_tasks_that_share_directions_help_each_other(sharing):
    # 40 tasks ask 1600 samples how much to share: with 12 what is shared is a matter of luck
    size = {"n_features": 64, "n_directions": 8, "n_classes": 4, "n_test": 60}
    tasks = list(make_embedding_stream(40, **size, random_state=2))
    alone, shared = learned(tasks, sharing=0.0), learned(tasks, sharing=sharing)
    errors = np.array([[error(alone, task), error(shared, task)] for task in tasks])
    assert errors[:, 1].mean() < errors[:, 0].mean() - 0.02


@pytest.mark.parametrize("best", range(4))
def test_triplets_take_the_weight_of_fewest_mistakes_though_it_made_none(best):
    learner = learn(make_learner(sharing="auto"))
    counts = np.ones(4)
    counts[best] = 0
    learner._state = replace(learner._state, mistakes=counts)
    X, y = make_task(3)
    learner.partial_fit_triplets(sample_triplets(y, 50, 0), X, task="new")
    assert learner.sharing_ == (0.0, 0.3, 0.6, 0.9)[best]
    learner._state = replace(learner._state, mistakes=np.zeros(4))  # nobody has answered
    learner.partial_fit_triplets(sample_triplets(y, 50, 0), X, task="last")
    assert learner.sharing_ == pytest.approx(0.9 * 4 / (4 + 5))


# --- tasks over time ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "again", [copy.deepcopy, lambda learner: pickle.loads(pickle.dumps(learner))]
)
@pytest.mark.parametrize("random_state", [None, np.random.RandomState(3)])
def test_a_copy_of_a_learner_of_any_seed_goes_on_as_the_original(again, random_state):
    learner = learn(make_learner(random_state=random_state), NAMES[:2])
    twin = again(learner)
    for one in (learner, twin):
        learn(one, NAMES[2:], start=2).partial_fit(*make_task(7), task=NAMES[0])
    assert all_of(twin) == all_of(learner)


def test_fit_learns_a_table_in_order_of_appearance_and_resets():
    learner = learn(make_learner(), ["gone"])
    parts = [make_task(number) for number in range(3)]
    X, y = np.vstack([p[0] for p in parts]), np.concatenate([p[1] for p in parts])
    names = [NAMES[i // 30] for i in range(90)]
    order = np.argsort(np.arange(90) % 30, kind="stable")
    assert learner.fit(X[order], y[order], tasks=[names[i] for i in order]) is learner
    assert all_of(learner) == all_of(learn(make_learner()))
    with pytest.raises(ValueError, match="inconsistent"):
        learner.fit(X, y, tasks=names[:-1])


def test_a_task_that_was_forgotten_comes_back_as_a_new_one():
    learner = learn(make_learner(sharing=0.5))
    assert learner.forget("paris") is learner
    assert tuple(learner.tasks_) == tuple(learner.codes_) == NAMES[1:]
    learner.partial_fit(*make_task(4), task="paris")
    assert learner.tasks_["paris"].number == 3
    assert learner.tasks_["paris"].n_visits == 1
    assert learner.shared_metric_.core.shape == (4,)
    assert len(learner.forget("paris")._state.total.core) == 4


def test_labels_of_a_visit_come_after_the_known_ones():
    X, y = make_task(0)
    learner = make_learner().partial_fit(X, y, task="t").partial_fit(X, 3 - y, task="t")
    assert learner.tasks_["t"].classes == (0, 1, 2, 3)


def test_samples_that_are_all_zero_teach_nothing():
    for X in (np.zeros((6, 10)), sparse.csr_array((6, 10))):
        learner = make_learner(sharing=0.5).partial_fit(X, np.arange(6) % 2, task="zero")
        assert_allclose(learner.metric_matrix("zero"), np.eye(10))
        learner.partial_fit(*make_task(0, n_features=10), task="other")
        assert_allclose(np.trace(learner.shared_metric_.to_dense()), 10)


WORDS = {"oasis": OASIS(), "scml": SCML(), "lmnn": LMNN(shrinkage=0.001)}


@pytest.mark.parametrize("word", WORDS)
def test_a_word_is_the_base_learner_that_the_docstring_names(word):
    found, expected = (learn(make_learner(base)) for base in (word, WORDS[word]))
    assert all_of(found) == all_of(expected)


def test_without_a_seed_every_learner_draws_its_own():
    one, other = (learn(make_learner(random_state=None)) for _ in range(2))
    assert all_of(one) != all_of(other)
    generator = np.random.RandomState(3)
    one, other = (learn(make_learner(random_state=generator)) for _ in range(2))
    assert all_of(one) == all_of(other)  # it is read, not advanced


def test_a_code_that_is_the_identity_but_for_rounding_adds_the_identity():
    rng = np.random.default_rng(0)
    for D in range(2, 60):
        for scale in rng.uniform(0.5, 9.0, size=20):
            own = scale * (1 + np.finfo(float).eps * rng.integers(-1, 2, size=D))
            found = contribution(FactoredMetric(0.0, np.eye(D), own)).to_dense()
            assert_allclose(found, np.eye(D), atol=1e-12)
