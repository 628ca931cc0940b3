"""Tests of LifelongPLDA: the log-ratio, exact memory, invariances, sparse rows, odd rows."""

import pickle
import warnings

import numpy as np
import pytest
from plda_streams import GIVEN, axes_by_hand, learned, rows, scores, stream
from scipy import linalg, sparse
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from lml.datasets import load_digits_tasks
from lml.evaluation import LifelongKNeighborsClassifier, evaluate_stream
from lml.lifelong import LifelongMetricLearner
from lml.metrics import FactoredMetric
from lml.neighbors import k_nearest
from lml.plda import LifelongPLDA
from lml.plda.model import (
    LogRatioMetric,
    Scatters,
    class_axes,
    log_ratio_coefficients,
    shrunken_variances,
)


def one_way(X, y, mean_of_task, tables):
    """Covariance within classes and that of class means less its noise, in one unit, from rows.

    `tables` has the sizes of the classes in each task; the noise by the analysis of variance.
    """
    means = np.array([X[y == label].mean(axis=0) for label in y])
    n, counts = len(X), tables.sum(axis=0)
    lost = (tables**2 / tables.sum(axis=1, keepdims=True)).sum(axis=0)
    noise = len(counts) - np.sum(lost / counts)
    within = (X - means).T @ (X - means) / (n - len(tables) - noise)
    unit = np.trace(within) / X.shape[1]
    centered = means - mean_of_task
    raw = centered.T @ centered / (n - lost.sum())
    return within / unit, raw / unit, noise / (n - lost.sum())


def unit_of(X, y):
    """Mean within-class variance of a feature."""
    means = np.array([X[y == label].mean(axis=0) for label in y])
    return np.sum((X - means) ** 2) / X.shape[1] / (len(X) - len(set(y)))


def in_own_unit(X, y):
    """Samples of a task about their mean, in the root of the task's unit."""
    return (X - X.mean(axis=0)) / np.sqrt(unit_of(X, y))


def direct_scores(visits, name, keyed=False, rho=1.0):
    """The score from all rows at once, by densities of the joint Gaussian."""
    sizes = {task: np.unique(y, return_counts=True)[1][None] for _, y, task in visits}
    found = {task: one_way(X, y, X.mean(axis=0), sizes[task]) for X, y, task in visits}
    pooled = [np.mean(part, axis=0) for part in zip(*found.values(), strict=True)]
    if keyed:
        Z = np.concatenate([in_own_unit(X, y) for X, y, _ in visits])
        labels = np.concatenate([y for _, y, _ in visits])
        pooled = one_way(Z, labels, 0.0, np.concatenate(list(sizes.values())))
    X, y, _ = next(visit for visit in visits if visit[2] == name)
    within, raw, noise = (
        0.25 * own + 0.75 * others for own, others in zip(found[name], pooled, strict=True)
    )
    V, psi = axes_by_hand(within, raw, noise, rho)
    p = 0.5 * psi**2 / (psi + 0.2) + 0.1
    Q = in_own_unit(X, y) @ V
    same = np.block([[np.diag(1 + p), np.diag(p)], [np.diag(p), np.diag(1 + p)]])
    joint, apart = (
        multivariate_normal(cov=same),
        multivariate_normal(cov=np.diag(np.tile(1 + p, 2))),
    )
    pairs = np.array([[np.concatenate([q, r]) for r in Q] for q in Q[:7]])
    return joint.logpdf(pairs) - apart.logpdf(pairs)


@pytest.mark.parametrize("keyed", [False, True])
def test_scores_are_the_log_ratio_of_joint_densities_of_statistics_from_all_rows(keyed):
    visits = stream()
    learner = learned(visits, shared_labels=keyed)
    expected = direct_scores(visits, "task1", keyed)
    np.testing.assert_allclose(scores(learner, visits, "task1"), expected, atol=1e-8)
    pairs = np.stack([visits[1][0][:7], visits[1][0][:7]], axis=1)
    np.testing.assert_allclose(learner.pair_score(pairs, task="task1"), np.diag(expected))


def test_limits_are_a_similarity_and_a_distance():
    product, square, _ = log_ratio_coefficients([1e-8, 1e8])
    np.testing.assert_allclose(product, [1e-8, 0.5], rtol=1e-6)
    np.testing.assert_allclose(square, [1e-16, 0.5], rtol=1e-6)


def test_the_metric_has_the_form_of_the_paper():
    learner = learned(stream())
    metric, L = learner.task_metric("task0"), learner.dictionary_
    W = linalg.solve(L.T, linalg.solve(L.T, metric.to_dense()).T).T  # L' W L = M
    np.testing.assert_allclose(L.T @ W @ L, metric.to_dense(), atol=1e-10)
    assert linalg.eigvalsh(W).min() > 0
    np.testing.assert_array_equal(learner.metric_matrix("task0"), metric.to_dense())


def test_the_metric_is_the_bilinear_part_of_the_log_ratio():
    metric = learned(stream()).task_metric("task0")
    rng = np.random.default_rng(3)
    X, Z, origin = rng.normal(size=(5, 6)), rng.normal(size=(4, 6)), np.zeros((1, 6))
    assert metric.n_features == 6
    alone = metric.bilinear(X, origin) + metric.bilinear(origin, Z)
    both = metric.bilinear(X, Z) + metric.bilinear(origin, origin)
    np.testing.assert_allclose(X @ metric.to_dense() @ Z.T, both - alone, atol=1e-9)


def test_euclidean_neighbors_of_the_two_maps_are_those_of_the_log_ratio():
    visits = stream()
    learner, X = learned(visits), visits[0][0]
    metric = learner.task_metric("task0")
    roles = ("query", "reference")
    queries, references = (learner.transform(X, task="task0", role=role) for role in roles)
    assert learner.index_space("task0") == "l2"
    distances = np.sum((queries[:, None] - references) ** 2, axis=2)
    nearest = np.argsort(distances, axis=1)[:, :4]
    found, _ = k_nearest(metric, X, X, "similarity", 4)
    np.testing.assert_array_equal(found, nearest)
    Z = learner.transform(X, task="task0")
    centered = X - X.mean(axis=0)
    np.testing.assert_allclose(
        Z @ Z.T, centered @ learner.metric_matrix("task0") @ centered.T, atol=1e-8
    )


def test_order_of_tasks_and_pieces_of_a_task_do_not_matter():
    visits = stream(4)
    once = learned(visits)
    X, y, name = visits[1]
    pieces = [visits[0], (X[:15], y[:15], name), visits[3], (X[15:], y[15:], name), visits[2]]
    for other in (visits[::-1], pieces):
        again = learned(other)
        for task in ("task0", "task1", "task3"):
            np.testing.assert_allclose(
                scores(again, visits, task), scores(once, visits, task), atol=1e-8
            )


@pytest.mark.parametrize("n_components", [200, 5])
def test_one_class_or_one_sample_adds_to_a_known_task(n_components):
    visits = stream()
    X, y, name = visits[1]
    order = np.argsort(y, kind="stable")
    kept = np.r_[order[:-4]]  # without some samples of the last class
    pieces = [visits[0], (X[kept], y[kept], name), visits[2]]
    pieces += [(X[[i]], y[[i]], name) for i in order[-4:-2]]
    pieces += [(X[order[-2:]], y[order[-2:]], name)]
    again = learned(pieces, n_components=n_components)
    once = learned([visits[0], (X[kept], y[kept], name), visits[2]], n_components=n_components)
    assert again.tasks_[name].n_samples == len(y)
    np.testing.assert_array_equal(again.dictionary_, once.dictionary_)
    if n_components == 200:
        whole = learned(visits)
        np.testing.assert_allclose(
            scores(again, visits, name), scores(whole, visits, name), atol=1e-8
        )
    with pytest.raises(ValueError, match="dissimilar pair"):  # but nothing begins so
        again.partial_fit(X[:1], y[:1], task="new")
    assert "new" not in again.tasks_
    with pytest.raises(ValueError, match="dissimilar pair"):
        again.fit(X[:1], y[:1], tasks=[name])
    with pytest.raises(ValueError, match="0 samples"):
        again.partial_fit(X[:0], y[:0], task=name)
    assert again.tasks_[name].n_samples == len(y)


def test_whole_classes_are_scored_by_the_densities_of_their_samples():
    visits = stream()
    learner, (X, _, name) = learned(visits), visits[0]
    metric = learner.task_metric(name)
    references, asked = X[:9] + 0.1, X[9:14]
    y = ["b", "a", "b", ("c", 1), "a", "b", "b", "b", "a"]
    labels, found = learner.class_log_ratios(asked, references, y, task=name)
    assert labels.tolist() == ["b", "a", ("c", 1)]
    Q, R = metric.coordinates(asked), metric.coordinates(references)
    for c, label in enumerate(labels):
        own = R[[given == label for given in y]]
        m, k = own.shape
        one = np.eye(m + 1)[:, :, None] + metric.between  # covariance of samples of one class
        expected = np.zeros(len(Q))
        for j in range(k):
            every = multivariate_normal(cov=one[:, :, j])
            others = multivariate_normal(cov=one[1:, 1:, j]).logpdf(own[:, j])
            alone = multivariate_normal(cov=1 + metric.between[j])
            expected += [every.logpdf([q, *own[:, j]]) - others - alone.logpdf(q) for q in Q[:, j]]
        np.testing.assert_allclose(found[:, c], expected, atol=1e-9)
    with pytest.raises(ValueError, match="features"):
        learner.class_log_ratios(asked[:, :-1], references, y, task=name)
    with pytest.raises(ValueError, match="inconsistent"):
        learner.class_log_ratios(asked, references, y[1:], task=name)


def test_replaced_rows_leave_nothing_behind():
    visits = stream()
    wrong = visits[1][0][::-1] + 3.0, visits[1][1], "task1"
    replaced = learned([visits[0], wrong, visits[2]]).forget("task1")
    replaced.partial_fit(*visits[1][:2], task="task1")
    once = learned(visits)
    for task in ("task0", "task1", "task2"):
        np.testing.assert_allclose(
            scores(replaced, visits, task), scores(once, visits, task), atol=1e-8
        )


def test_visits_are_counted_and_without_tasks_there_is_no_shared_metric():
    visits = stream()
    learner = learned([*visits, visits[1]], max_old_tasks=1)
    assert [memory.n_visits for memory in learner.tasks_.values()] == [1, 2, 1]
    assert np.isfinite(scores(learner, visits, "task1")).all()
    for task in list(learner.tasks_):
        learner.forget(task)
    with pytest.raises(NotFittedError, match="no task"):
        learner.shared_metric()


def test_a_forgotten_task_leaves_nothing_behind():
    visits = stream()
    learner = learned(visits).forget("task1")
    without = learned([visits[0], visits[2]])
    assert list(learner.tasks_) == ["task0", "task2"]
    np.testing.assert_allclose(
        scores(learner, visits, "task2"), scores(without, visits, "task2"), atol=1e-8
    )


def changed(visits, change):
    return [(*change(X, y), name) for X, y, name in visits]


def test_rotation_scale_shift_and_row_order_do_not_matter():
    visits = stream()
    once = scores(learned(visits), visits, "task2")
    turn = linalg.qr(np.random.default_rng(1).normal(size=(6, 6)))[0]
    order = np.random.default_rng(2).permutation(6)
    for change in (
        lambda X, y: (X @ turn, y),
        lambda X, y: (X[:, order], y),
        lambda X, y: (7.0 * X, y),
        lambda X, y: (X - 5.0, y),
        lambda X, y: (X, np.array(["c", "a", "b"])[y]),
    ):
        other = changed(visits, change)
        np.testing.assert_allclose(scores(learned(other), other, "task2"), once, atol=1e-7)
    reversed_rows = changed(visits, lambda X, y: (X[::-1], y[::-1]))
    again = learned(reversed_rows).task_metric("task2")
    X = visits[2][0]
    np.testing.assert_allclose(again.bilinear(X[:7], X), once, atol=1e-7)


def test_labels_may_differ_between_tasks_unless_they_are_shared():
    visits = stream(2)
    renamed = [visits[0], (visits[1][0], visits[1][1] + 10, "task1")]
    same = scores(learned(visits), visits, "task0")
    np.testing.assert_allclose(scores(learned(renamed), visits, "task0"), same, atol=1e-10)
    keyed = [scores(learned(v, shared_labels=True), visits, "task0") for v in (visits, renamed)]
    assert np.abs(keyed[0] - keyed[1]).max() > 1e-3


def test_old_tasks_read_the_newer_memory_and_a_metric_that_was_given_stays():
    visits = stream()
    learner = learned(visits[:2])
    early, metric = scores(learner, visits, "task0"), learner.task_metric("task0")
    learner.partial_fit(*visits[2][:2], task="task2")
    assert np.abs(scores(learner, visits, "task0") - early).max() > 1e-3
    X = visits[0][0]
    np.testing.assert_array_equal(metric.bilinear(X[:7], X), early)


def test_sparse_rows_give_what_dense_ones_give():
    visits = changed(stream(n_features=30), lambda X, y: (np.where(X > 1.0, X, 0.0), y))
    for d in (30, 12):
        dense = learned(visits, n_components=d)
        csr = changed(visits, lambda X, y: (sparse.csr_array(X), y))
        thin = learned(csr, n_components=d)
        expected = scores(dense, visits, "task0")
        np.testing.assert_allclose(scores(thin, csr, "task0"), expected, atol=1e-6)


def test_many_features_make_no_square_of_them():
    rng = np.random.default_rng(0)
    X = sparse.random_array((60, 50_000), density=0.001, rng=rng, format="csr")
    y = np.arange(60) % 2
    learner = LifelongPLDA(5, random_state=0).partial_fit(X[:30], y[:30], task="a")
    learner.partial_fit(X[30:], y[30:], task="b")
    assert learner.dictionary_.shape == (5, 50_000)
    assert learner.state_nbytes_ < 10 * 8 * 50_000


def test_the_larger_the_dictionary_the_nearer_the_scores():
    visits = stream(4, n_features=20)
    small, whole = learned(visits, n_components=5), learned(visits)
    assert small.dictionary_.shape == (5, 20)
    L = small.dictionary_
    np.testing.assert_allclose(L @ L.T, np.eye(5), atol=1e-12)
    seen = L @ whole.codes_["task3"] @ L.T  # of the last task all that is inside
    np.testing.assert_allclose(small.codes_["task3"], seen, atol=1e-10)
    errors = []
    for d in (4, 8, 16):
        found = scores(learned(visits, n_components=d), visits, "task3")
        errors.append(np.std(found - scores(whole, visits, "task3")))
    assert errors[0] > errors[1] > errors[2]


def test_it_classifies_the_digits_and_can_be_stored():
    tasks = load_digits_tasks(random_state=0)
    learner = LifelongPLDA(random_state=0)
    result = evaluate_stream(
        learner, tasks, n_neighbors=1, unseen=lambda model: model.shared_metric()
    )
    assert result.final.mean() > 0.97
    assert np.isfinite(result.accuracy).all()
    again = pickle.loads(pickle.dumps(learner))
    reader = LifelongKNeighborsClassifier(again, 1).fit(
        tasks[0].X_train, tasks[0].y_train, task="0-1"
    )
    assert reader.score(tasks[0].X_test, tasks[0].y_test, task="0-1") == result.final[0]
    same = clone(learner)
    for task in tasks:
        same.partial_fit(task.X_train, task.y_train, task=task.name)
    np.testing.assert_array_equal(same.dictionary_, learner.dictionary_)


def test_a_metric_survives_pickling():
    metric = LogRatioMetric(np.ones(3), np.eye(3), [0.0, 1.0, 2.0])
    again = pickle.loads(pickle.dumps(metric))
    np.testing.assert_array_equal(
        again.bilinear(np.eye(3), np.eye(3)), metric.bilinear(np.eye(3), np.eye(3))
    )
    with pytest.raises(ValueError, match="between"):
        LogRatioMetric(np.ones(3), np.eye(3), [0.0, 1.0, -2.0])


@pytest.mark.parametrize("owner", [LogRatioMetric, LogRatioMetric(np.ones(2), np.eye(2), [1, 2])])
def test_constructors_of_a_log_ratio_give_the_metrics_that_they_name(owner):
    made = [owner.identity(2, 3.0), owner.from_dense(3 * np.eye(2))]
    made.append(owner.from_components(np.sqrt(3) * np.eye(2)))
    for metric in made:
        assert type(metric) is FactoredMetric
        np.testing.assert_allclose(metric.bilinear([[1.0, 2.0]], [[3.0, -5.0]]), [[-21.0]])


@pytest.mark.parametrize("wrong", ["mean", "between"])
@pytest.mark.parametrize("shape", [(1, 4), (2, 2), ()])
def test_a_log_ratio_has_a_mean_and_variances_of_one_dimension(wrong, shape):
    given = {"mean": np.ones(4), "rows": np.eye(4), "between": np.ones(4)} | {wrong: np.ones(shape)}
    with pytest.raises(ValueError, match=rf"{wrong} has shape .*: give one dimension"):
        LogRatioMetric(**given)


def test_a_failed_visit_changes_nothing():
    learner = learned(stream())
    X, y, _ = stream()[0]
    before = pickle.dumps(learner)
    for rows_, labels, task in [
        (X[:, :3], y, "new"),
        (X, y[:5], "new"),
        (X, np.zeros(40), "new"),
        (X * np.nan, y, "new"),
        (X, y, ["unhashable"]),
    ]:
        with pytest.raises((ValueError, TypeError)):
            learner.partial_fit(rows_, labels, task=task)
    assert pickle.dumps(learner) == before
    with pytest.raises(ValueError, match="not known"):
        learner.task_metric("new")
    with pytest.raises(NotFittedError):
        LifelongPLDA().task_metric("new")


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("own_weight", 1.5),
        ("own_weight", "own"),
        ("own_weight", (0.1, 0.2, 0.3)),
        ("shrinkage", (1.0, 2.0)),
        ("shrinkage", (1.0, -1.0, 0.0)),
        ("regularization", 0.0),
        ("n_components", 0),
        ("n_folds", 1),
        ("shared_labels", 1),
    ],
)
def test_a_parameter_that_cannot_be_used_is_named(setting, value):
    X, y, name = stream()[0]
    with pytest.raises((ValueError, TypeError), match=setting):
        LifelongPLDA(**{setting: value}).partial_fit(X, y, task=name)


def test_degenerate_rows_end_in_finite_scores():
    X = np.repeat(np.eye(4), 3, axis=0)
    y = np.repeat([0, 1, 2, 3], 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner = LifelongPLDA(random_state=0).partial_fit(X, y, task="equal rows")
        learner.partial_fit(X[:4], [0, 0, 1, 1], task="few")
    for task in learner.tasks_:
        assert np.isfinite(learner.task_metric(task).bilinear(X, X)).all()


def test_it_has_the_methods_of_the_other_learner():
    theirs = {name for name in dir(LifelongMetricLearner) if not name.startswith("_")}
    mine = {name for name in dir(LifelongPLDA) if not name.startswith("_")}
    assert {"fit", "partial_fit", "transform", "pair_score", "task_metric"} <= theirs & mine
    X = np.concatenate([X for X, _, _ in stream()])
    y = np.concatenate([y for _, y, _ in stream()])
    names = [name for X, _, name in stream() for _ in X]
    fitted = LifelongPLDA(random_state=0, **GIVEN).fit(X, y, tasks=names)
    expected = scores(learned(stream()), stream(), "task1")
    np.testing.assert_allclose(scores(fitted, stream(), "task1"), expected, atol=1e-10)


@pytest.mark.parametrize("power", [-150, -154, -155, -157, -160, -163, -200])
def test_rows_of_tiny_numbers_are_learned(power):
    X, y = rows(0)
    learner = LifelongPLDA(6, random_state=0).partial_fit(X, y, task="plain")
    learner.partial_fit(X * 10.0**power, y, task="tiny")
    assert np.isfinite(scores(learner, [(X * 10.0**power, y, "tiny")], "tiny")).all()


def test_shrunken_references_lie_between_rows_and_class_means():
    X, y, _ = stream()[0]
    learner = learned(stream())
    np.testing.assert_array_equal(learner.shrink_references(X, y, task="task0", amount=0.0), X)
    half = learner.shrink_references(X, y, task="task0", amount=0.5)
    np.testing.assert_allclose(half[y == 1], (X[y == 1] + X[y == 1].mean(axis=0)) / 2)


def test_references_are_shrunken_toward_the_class_means_of_all_tasks():
    rng = np.random.default_rng(5)
    learner = LifelongPLDA(4, 1.0, 0.25, (0.3, 0.0, 0.0), shared_labels=True, random_state=0)
    tasks = {u: (10**n * rng.normal(size=(12 + 6 * n, 6)) + 3 * n, np.arange(12 + 6 * n) % 3)
             for n, u in enumerate("ab")}  # fmt: skip
    for u, (X, y) in tasks.items():
        learner.partial_fit(X, y, task=u)
    X, y = tasks["b"]
    found = learner.shrink_references(X, y, task="b", amount=1.0, shared=0.25)
    centered = {u: in_own_unit(A, b) for u, (A, b) in tasks.items()}
    for c in range(3):
        rows = np.sqrt(unit_of(X, y)) * np.concatenate(
            [centered[u][tasks[u][1] == c] for u in tasks]
        )
        expected = 0.75 * X[y == c].mean(axis=0) + 0.25 * (X.mean(axis=0) + rows.mean(axis=0))
        # below d = D the memory has of them what the dictionary sees, as far as it has moved
        L = learner.dictionary_
        seen = np.linalg.norm(L @ (found[y == c][0] - expected))
        assert seen < 0.35 * np.linalg.norm(L @ rows.mean(axis=0))
    learner.set_params(n_components=6)
    whole = clone(learner)
    for u, (A, b) in tasks.items():
        whole.partial_fit(A, b, task=u)
    exact = whole.shrink_references(X, y, task="b", amount=1.0, shared=0.25)
    rows = np.concatenate([centered[u][tasks[u][1] == 2] for u in tasks])
    rows = rows * np.sqrt(unit_of(X, y))
    expected = 0.75 * X[y == 2].mean(axis=0) + 0.25 * (X.mean(axis=0) + rows.mean(axis=0))
    np.testing.assert_allclose(exact[y == 2], np.tile(expected, (np.sum(y == 2), 1)), atol=1e-9)


def test_class_means_of_other_tasks_need_labels_in_common():
    X, y, name = stream()[0]
    with pytest.raises(ValueError, match="shared_labels=True"):
        learned(stream()).shrink_references(X, y, task=name, shared=0.5)
    with pytest.raises(ValueError, match=r"shared=1\.5"):
        learned(stream()).shrink_references(X, y, task=name, shared=1.5)
    with pytest.raises(ValueError, match=r"amount=1\.5: give a number .* at most 1"):
        learned(stream()).shrink_references(X, y, task=name, amount=1.5)


def test_small_variances_are_shrunk_more():
    assert shrunken_variances([0.0, 1.0], 2.0, 0.0).tolist() == [0.0, 2.0]
    kept = shrunken_variances([0.1, 10.0], noise=1.0) / [0.1, 10.0]
    np.testing.assert_allclose(kept, [0.1 / 1.1, 10 / 11])


def labeled(names, seed=0, n_features=4):
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(18) % 3)
    X = rng.normal(size=(18, n_features)) + 3 * rng.normal(size=(3, n_features))[y]
    return X, [names[place] for place in y]


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("names", [[np.int64(1), (1, 2), "a"], [np.float32(0.5), (1, 2), 3]])
def test_tuples_and_numbers_of_numpy_can_be_labels_of_one_task(names, keyed):
    odd, plain = (LifelongPLDA(random_state=0, shared_labels=keyed, n_folds=2) for _ in range(2))
    for task in range(3):
        odd.partial_fit(*labeled(names, task), task=task)
        plain.partial_fit(*labeled([0, 1, 2], task), task=task)
    Z = labeled(names)[0]
    for task in range(3):
        found, expected = (one.task_metric(task).bilinear(Z, Z) for one in (odd, plain))
        np.testing.assert_array_equal(found, expected)


def test_tuples_and_numbers_of_numpy_can_be_names_of_tasks():
    settings = dict(own_weight=0.5, shrinkage=(1.0, 0.0, 0.0), max_old_tasks=2)
    odd, plain = (LifelongPLDA(random_state=0, **settings) for _ in range(2))
    names = [np.int64(3), (), (1, 2), np.float32(0.5), np.str_("n")]
    for number in (0, 1, 2, 3, 4, 1, 0):
        odd.partial_fit(*labeled([0, 1, 2], number), task=names[number])
        plain.partial_fit(*labeled([0, 1, 2], number), task=number)
    for number in (1, 0):
        odd.forget(names[number])
        plain.forget(number)
    assert list(odd.tasks_) == names[2:]
    Z = labeled([0, 1, 2])[0]
    for number in plain.tasks_:
        found = odd.task_metric(names[number]).bilinear(Z, Z)
        np.testing.assert_array_equal(found, plain.task_metric(number).bilinear(Z, Z))


@pytest.mark.parametrize("n_components", [2, 200])
@pytest.mark.parametrize("value", [0.0, 3.3])
def test_rows_without_any_spread_may_come_first_and_again(value, n_components):
    learner = LifelongPLDA(n_components, random_state=1, n_folds=3)
    constant = np.full((8, 6), value), np.arange(8) % 2
    for task in ("constant", 0, 1, "constant", "constant"):
        rows = constant if task == "constant" else labeled([0, 1, 2], task, 6)
        learner.partial_fit(*rows, task=task)
    X, y = labeled([0, 1, 2], 1, 6)
    scores = learner.task_metric(1).bilinear(X, X)
    np.fill_diagonal(scores, -np.inf)
    assert np.mean(np.array(y)[scores.argmax(axis=1)] == y) > 0.6
    flat = learner.task_metric("constant").bilinear(*constant[:1] * 2)
    np.testing.assert_allclose(flat, flat[0, 0])
    assert np.isfinite(flat).all()


def test_references_of_one_class_or_of_one_row_are_shrunken():
    learner = LifelongPLDA(random_state=0, shared_labels=True, n_folds=2)
    X, y = labeled(["a", "b", "c"])
    learner.partial_fit(X, y, task="t")
    every, one = learner.shrink_references(X, y, task="t", shared=0.5), np.array(y) == "b"
    found = learner.shrink_references(X[one], ["b"] * one.sum(), task="t", shared=0.5)
    np.testing.assert_allclose(found, every[one], rtol=1e-12)
    mean = X[one].mean(axis=0)
    alone = learner.shrink_references(X[:1], ["b"], task="t", amount=1.0, shared=0.25)
    np.testing.assert_allclose(alone, [0.75 * X[0] + 0.25 * mean], rtol=1e-6)
    with pytest.raises(ValueError, match="no dissimilar pair"):
        learner.partial_fit(X[one], ["b"] * one.sum(), task="u")


@pytest.mark.parametrize("mean", [0.0, np.zeros(3), np.zeros((1, 4))])
def test_a_mean_of_another_shape_is_named(mean):
    learner = LifelongPLDA(random_state=0, n_folds=2).partial_fit(*labeled([0, 1, 2]), task="t")
    with pytest.raises(ValueError, match="mean has shape"):
        learner.shared_metric(mean)


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("sizes", [[2] * 6000, [1, 2, 3, 8] * 800])  # the bound: 5 standard errors
def test_the_true_variances_between_classes_are_found(sizes, keyed):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(len(sizes)), sizes)
    learner = LifelongPLDA(3, 1e-9, 1.0 - keyed, (1.0, 0.0, 0.0), shared_labels=keyed)
    for task in range(2):  # keyed: classes of their own in each task
        centers = np.array([3.0, 1.0, 0.3]) * rng.normal(size=(len(sizes), 3))
        learner.partial_fit(centers[y] + rng.normal(size=(len(y), 3)), y + 10**4 * task, task=task)
    found = learner.task_metric(0).between
    np.testing.assert_allclose(found, [9.0, 1.0, 0.09], rtol=0.12, atol=0.07)


def test_class_means_of_single_samples_leave_the_variances_finite():
    X = np.random.default_rng(0).normal(size=(9, 4))
    learner = LifelongPLDA(4, own_weight=1.0, shrinkage=(1.0, 0.0, 0.0))
    learner.partial_fit(X, [0, 1, 2, 3, 4, 5, 6, 7, 7], task="t")
    between = learner.task_metric("t").between
    assert np.isfinite(between).all()
    assert between.min() >= 0
    unit = np.sum((X[7] - X[8]) ** 2) / 2 / 4  # the only pair has one degree of freedom
    assert learner.tasks_["t"].moments.unit == pytest.approx(unit)


@pytest.mark.parametrize("rank", [0, 1, 3, 6])
def test_axes_are_those_of_the_directions_in_which_class_means_differ(rank):
    rng = np.random.default_rng(rank)
    A, B = rng.normal(size=(6, 9)), rng.normal(size=(6, rank))
    B[0] *= rank != 3  # so that class means may not differ in the first feature
    within, between, ridge, noise = A @ A.T / 9, B @ B.T, 0.7, 0.4
    omega = within + ridge * np.eye(6)
    V, psi = class_axes(Scatters(within, between, noise), ridge)
    np.testing.assert_allclose(V.T @ omega @ V, np.eye(6), atol=1e-10)
    inside = linalg.orth(linalg.inv(omega) @ B)  # (6, rank)
    left = inside.T @ (between - noise * within) @ inside
    expected = np.zeros(6)
    expected[:rank] = linalg.eigvals(linalg.inv(inside.T @ omega @ inside) @ left).real
    np.testing.assert_allclose(psi, np.sort(np.maximum(expected, 0.0))[::-1], atol=1e-10)
    apart = V[:, :rank].T @ (between - noise * within) @ V[:, :rank]
    np.testing.assert_allclose(apart, np.diag(np.diagonal(apart)), atol=1e-10)
