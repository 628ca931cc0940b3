"""LMNN against loops, finite differences, exact one-dimensional answers and a second algorithm."""

import copy
import pickle
import warnings

import numpy as np
import pytest
from scipy import optimize, sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, DataConversionWarning, NotFittedError

from lml.baselines.mtlmnn import MultiTaskLMNN
from lml.lmnn import LMNN, impostors, lmnn_loss_gradient, row_space, target_neighbors

SMALL = LMNN(shrinkage=0.01, max_iter=50)


def rows_of(n, D, classes, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    scale = np.linspace(0.5, 2.0, D)
    return 1.2 * rng.standard_normal((classes, D))[y] + scale * rng.standard_normal((n, D)), y


def by_loops(M, X, y, n_targets, mu):
    """The objective from its definition, targets included."""
    X, total = np.asarray(X, dtype=float), 0.0

    def d(a, b, M=M):
        return (X[a] - X[b]) @ M @ (X[a] - X[b])

    for i in range(len(X)):
        same = [j for j in range(len(X)) if j != i and y[j] == y[i]]
        for j in sorted(same, key=lambda j: (d(i, j, np.eye(X.shape[1])), j))[:n_targets]:
            total += (1 - mu) * d(i, j)
            for k in range(len(X)):
                if y[k] != y[i]:
                    total += mu * max(0.0, 1 + d(i, j) - d(i, k))
    return total


def test_targets_of_small_classes():
    X = np.array([[0.0], [1.0], [3.0], [0.1], [5.0], [5.5], [2.0]])
    y = ["a", "a", "a", "b", "c", "c", "a"]
    found = target_neighbors(X, y, 3)
    assert found[found[:, 0] == 0, 1].tolist() == [1, 6, 2]  # all of the class
    assert found[found[:, 0] == 2, 1].tolist() == [6, 1, 0]
    assert found[found[:, 0] == 4].tolist() == [[4, 5]]  # a class of two
    assert 3 not in found  # a row alone in its class
    assert target_neighbors(X, y, 1)[:, 0].tolist() == [0, 1, 2, 4, 5, 6]
    ties = target_neighbors([[0.0], [1.0], [-1.0], [9.0]], [0, 0, 0, 1], 1)
    assert ties[0].tolist() == [0, 1]


@pytest.mark.parametrize("smoothing", [0.0, 0.5])
@pytest.mark.parametrize("mu", [0.2, 0.7])
def test_loss_and_gradient_by_loops_and_differences(mu, smoothing):
    X, y = rows_of(24, 4, 3)
    y = np.append(y, 7)  # a row alone in its class
    X = np.vstack([X, X[0] + 0.1])
    targets = target_neighbors(X, y, 2)
    rng = np.random.default_rng(1)
    L = rng.standard_normal((3, 4)) / 2

    def loss(L):
        Z = X @ L.T
        return lmnn_loss_gradient(
            Z, targets, impostors(Z, y, targets, 1 + smoothing / 2), mu, smoothing
        )

    result = loss(L)
    assert result.exact == pytest.approx(by_loops(L.T @ L, X, y, 2, mu), rel=1e-10)
    if smoothing:
        assert result.exact < result.loss < result.exact + mu * smoothing / 8 * 2 * 25 * 17
    else:
        assert result.loss == result.exact
    gradient = 2 * (result.laplacian @ (X @ L.T)).T @ X
    for _ in range(4):
        H = rng.standard_normal(L.shape)
        rise = (loss(L + 1e-6 * H).loss - loss(L - 1e-6 * H).loss) / 2e-6
        assert np.vdot(gradient, H) == pytest.approx(rise, rel=1e-5)
    K = result.laplacian.toarray()
    np.testing.assert_allclose(K, K.T)
    np.testing.assert_allclose(K.sum(axis=0), 0, atol=1e-12)
    M = L.T @ L  # exercise 2: the loss is linear between kinks
    if not smoothing:
        assert np.vdot(X.T @ K @ X, M) + result.weight == pytest.approx(result.loss)


def test_superfluous_pairs_change_nothing():
    X, y = rows_of(40, 5, 3)
    targets = target_neighbors(X, y)
    listed = impostors(X, y, targets)
    more = impostors(X, y, targets, margin=3.0, slack=0.4)
    assert len(more) > len(listed)
    whole, other = (lmnn_loss_gradient(X, targets, pairs) for pairs in (listed, more))
    assert other.loss == pytest.approx(whole.loss)
    np.testing.assert_allclose(other.laplacian.toarray(), whole.laplacian.toarray(), atol=1e-12)


@pytest.mark.parametrize("scale", [1.0, 12.0])  # many and few impostors a block
def test_more_rows_than_a_block_holds(scale):
    X, y = rows_of(2100, 2, 3)  # a block holds 1997 of them
    X *= scale
    targets = target_neighbors(X, y, 1)
    squares = np.square(X[:, None] - X).sum(axis=2)
    near = squares[np.arange(2100), targets[:, 1]]
    excess = np.where(y[:, None] != y, 1 + near[:, None] - squares, 0.0)
    pairs = impostors(X, y, targets)
    np.testing.assert_array_equal(pairs, np.argwhere(excess > 0))
    result = lmnn_loss_gradient(X, targets, pairs)
    assert result.loss == pytest.approx((near.sum() + np.maximum(excess, 0).sum()) / 2)


def test_every_step_knows_all_impostors_with_few_searches(monkeypatch):
    X, y = rows_of(50, 4, 3)
    targets = target_neighbors(X, y)
    lists = []

    def watched(Z, given, pairs, mu, smoothing):
        needed = impostors(Z, y, targets, 1 + smoothing / 2)
        assert set(map(tuple, needed.tolist())) <= set(map(tuple, pairs.tolist()))
        lists.append(pairs)
        return lmnn_loss_gradient(Z, given, pairs, mu, smoothing)

    monkeypatch.setattr("lml.lmnn.lmnn_loss_gradient", watched)
    LMNN(shrinkage=0.01, tol=1e-6).fit(X, y)
    assert 1 < len({id(pairs) for pairs in lists}) < len(lists) / 2


@pytest.mark.parametrize("mu", [0.3, 0.5, 0.9])
def test_one_feature_has_an_exact_answer(mu):
    X, y = rows_of(30, 1, 3, seed=4)
    targets = target_neighbors(X, y, 3)
    gaps = [
        np.sum((X[i] - X[k]) ** 2) - np.sum((X[i] - X[j]) ** 2)
        for i, j in targets
        for k in np.flatnonzero(y != y[i])
    ]
    ends = [0.0, *(1 / gap for gap in gaps if gap > 0)]
    pull = (1 - mu) * sum(np.sum((X[i] - X[j]) ** 2) for i, j in targets)
    exact = min(m * pull + mu * np.maximum(1 - m * np.array(gaps), 0).sum() for m in ends)
    learner = LMNN(push_weight=mu, tol=1e-6).fit(X, y)
    assert exact <= learner.objective_ * (1 + 1e-12)
    assert learner.objective_ <= exact * (1 + 1e-4)
    assert learner.dual_bound_ <= exact * (1 + 1e-12)


@pytest.mark.parametrize(("mu", "seed"), [(0.5, 45), (0.3, 49)])
def test_a_stage_without_gain_is_not_the_end(mu, seed):
    # the best exact objective of the first stage is met by luck: the second is no better
    rng = np.random.Generator(np.random.PCG64([seed, 4]))
    y = np.arange(30) % 3
    X = 1.2 * rng.standard_normal((3, 1))[y] + 0.5 * rng.standard_normal((30, 1))
    found = LMNN(push_weight=mu, tol=1e-6).fit(X, y)
    exact = LMNN(push_weight=mu, tol=1e-12, max_iter=5000).fit(X, y)
    assert exact.gap_ < 1e-9
    assert found.objective_ <= exact.objective_ * (1 + 3e-6)


def test_with_shrinkage_stages_that_gain_little_are_not_enough():
    rng = np.random.Generator(np.random.PCG64([45, 3]))
    y = np.arange(60) % 3
    X = 1.2 * rng.standard_normal((3, 5))[y] + np.linspace(0.5, 2, 5) * rng.standard_normal((60, 5))
    learner = LMNN(shrinkage=0.01, tol=1e-5, max_iter=3000).fit(X, y)
    assert 0 <= learner.gap_ <= 1e-4


@pytest.mark.parametrize("seed", [0, 1])
def test_two_features_by_a_generic_minimizer(seed):
    X, y = rows_of(24, 2, 2, seed)
    targets = target_neighbors(X, y, 3)
    triplets = [(i, j, k) for i, j in targets for k in np.flatnonzero(y != y[i])]
    i, j, k = np.array(triplets).T

    def objective(v):
        Z = X @ np.array([[v[0], 0.0], [v[1], v[2]]]).T
        near, far = np.square(Z[i] - Z[j]).sum(axis=1), np.square(Z[i] - Z[k]).sum(axis=1)
        pull = np.square(Z[targets[:, 0]] - Z[targets[:, 1]]).sum()
        return 0.6 * pull + 0.4 * np.maximum(1 + near - far, 0).sum()

    options = {"xatol": 1e-8, "fatol": 1e-8, "maxiter": 1000}
    starts = [0.4, 0, 0.4], [1, 0, 0.1], [0.1, 0.5, 0.5], [0.1, -0.5, 0.5]  # one may end in a kink
    ends = [optimize.minimize(objective, v, method="Nelder-Mead", options=options) for v in starts]
    found = min(ends, key=lambda end: end.fun)
    learner = LMNN(push_weight=0.4, tol=1e-5).fit(X, y)
    assert learner.objective_ == pytest.approx(found.fun, rel=3e-4)
    assert learner.dual_bound_ <= found.fun
    L = np.array([[found.x[0], 0.0], [found.x[1], found.x[2]]])
    assert found.fun == pytest.approx(by_loops(L.T @ L, X, y, 3, 0.4))


@pytest.mark.parametrize("shrinkage", [0.003, 0.1])
def test_agrees_with_another_algorithm(shrinkage):
    X, y = rows_of(40, 6, 3)
    single = LMNN(shrinkage=shrinkage, tol=1e-6, max_iter=3000).fit(X, y)
    joint = MultiTaskLMNN(
        np.inf, shrinkage, constraint="totals", smoothing=1e-3, tol=1e-4, max_iter=6000
    ).fit(X, y, tasks=["t"] * 40)
    assert single.objective_ / 120 == pytest.approx(joint.objective_, rel=1e-3)
    size = single.metric_.norm()
    assert (single.metric_ - joint.task_metric("t")).norm() < 0.05 * size


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("shrinkage", [0.0, 0.01])
def test_certificates_hold(seed, shrinkage):
    X, y = rows_of(60, 5, 3, seed)
    learner = LMNN(shrinkage=shrinkage, tol=1e-5, max_iter=3000).fit(X, y)
    assert 0 <= learner.gap_ <= (1e-4 if shrinkage else 2e-2)
    rng = np.random.default_rng(seed)
    M, s = learner.metric_.to_dense(), learner.scale_
    assert np.linalg.eigvalsh(M)[0] > -1e-12
    root = np.linalg.cholesky(M + 1e-9 * np.eye(5)).T
    for size in (1e-3, 1e-2, 0.1, 1.0):  # no other metric does better than the bound
        L = root + size * np.sqrt(s) * rng.standard_normal((5, 5))
        value = by_loops(L.T @ L, X, y, 3, 0.5)
        value += shrinkage * 180 * np.sum((L.T @ L / s - np.eye(5)) ** 2)
        assert value >= learner.dual_bound_
    own = by_loops(M, X, y, 3, 0.5) + shrinkage * 180 * np.sum((M / s - np.eye(5)) ** 2)
    assert own == pytest.approx(learner.objective_, rel=1e-6)


@pytest.mark.parametrize("n_targets", [1, 3])
def test_the_bound_holds_where_the_pull_is_singular(n_targets):
    X, y = rows_of(40, 3, 2)
    X = np.c_[X, 0.3 * y]  # targets do not differ in the last feature, impostors do
    learner = LMNN(n_targets=n_targets, tol=1e-5).fit(X, y)
    assert 0 <= learner.dual_bound_ <= learner.objective_
    assert learner.objective_ < 1e-3 * learner.objective_history_[0]  # the last feature is enough


def test_history_and_limits():
    X, y = rows_of(60, 5, 3)
    with pytest.warns(ConvergenceWarning, match="max_iter=4 before tol=0.001.*raise"):
        learner = LMNN(max_iter=4).fit(X, y)
    assert learner.n_iter_ == 4
    assert len(learner.objective_history_) == 5
    assert learner.objective_ <= learner.objective_history_.min() * (1 + 1e-12)
    start = by_loops(learner.scale_ * np.eye(5), X, y, 3, 0.5)
    assert learner.objective_history_[0] == pytest.approx(start)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        longer = LMNN(max_iter=400).fit(X, y)
    assert longer.objective_ < learner.objective_ < start
    assert longer.dual_bound_ <= longer.objective_
    for one in (learner, longer):
        own = (one.objective_ - one.dual_bound_) / one.objective_
        assert one.gap_ == pytest.approx(own, rel=1e-12)
    assert learner.gap_ > learner.tol


def test_the_scale_is_of_target_pairs_or_of_samples_about_their_mean():
    X, y = np.array([[4.0, 1.0], [4.0, 2.0], [9.0, 1.0], [9.0, 4.0], [9.0, 4.0]]), [0, 0, 1, 1, 1]
    learner = LMNN(n_targets=1, shrinkage=0.1, max_iter=30).fit(X, y)
    assert learner.scale_ == pytest.approx(5 / (1 + 1 + 9 + 0 + 0))
    copies = np.repeat([[4.0, 1.0], [9.0, 4.0]], [2, 4], axis=0)  # targets do not differ
    learner = LMNN(n_targets=1, shrinkage=0.1, max_iter=30).fit(copies, [0, 0, 1, 1, 1, 1])
    squares = np.sum((copies - copies.mean(axis=0)) ** 2, axis=1)
    assert learner.scale_ == pytest.approx(1 / squares.mean())


@pytest.mark.parametrize("c", [1e-3, 8.0])
def test_units_and_shifts_do_not_matter(c):
    X, y = rows_of(50, 4, 3)
    base = LMNN(shrinkage=0.01).fit(X, y)
    other = LMNN(shrinkage=0.01).fit(c * X + 5, y)
    assert other.objective_ == pytest.approx(base.objective_, rel=1e-6)
    np.testing.assert_allclose(c**2 * other.metric_.to_dense(), base.metric_.to_dense(), rtol=1e-3)


@pytest.mark.parametrize(("n", "n_features"), [(4, 30), (3, 5000)])
def test_the_span_of_centered_samples_is_told_from_rounding(n, n_features):
    for seed in range(40):
        X = np.random.default_rng(seed).normal(size=(n, n_features))
        X -= X.mean(axis=0)
        coordinates, rows = row_space(X)
        assert rows.shape == (n - 1, n_features)  # centered samples sum to zero
        np.testing.assert_allclose(rows @ rows.T, np.eye(n - 1), atol=1e-12)
        np.testing.assert_allclose(coordinates @ rows, X, atol=1e-11)
    assert row_space(np.zeros((4, 3)))[1].tolist() == [[1.0, 0.0, 0.0]]


@pytest.mark.parametrize("shrinkage", [0.0, 0.02])
def test_more_features_than_rows(shrinkage):
    X, y = rows_of(20, 60, 3)
    learner = LMNN(shrinkage=shrinkage).fit(X, y)
    M, s = learner.get_mahalanobis_matrix(), learner.scale_
    own = by_loops(M, X, y, 3, 0.5) + shrinkage * 60 * (np.sum((M / s - np.eye(60)) ** 2))
    assert own == pytest.approx(learner.objective_, rel=1e-6, abs=1e-9)
    outside = np.linalg.svd(X - X.mean(axis=0))[2][-1]  # a direction that no row has
    expected = learner.scale_ * (shrinkage > 0)
    assert outside @ M @ outside == pytest.approx(expected, abs=1e-12)
    if not shrinkage:
        assert learner.objective_ <= 1e-3 * learner.objective_history_[0]
        wrong = np.random.default_rng(0).permutation(y)  # any labels will do
        assert LMNN(tol=1e-6).fit(X, wrong).objective_ < 1e-3


def test_no_impostors_at_all():
    X, y = rows_of(30, 3, 2)
    learner = LMNN(shrinkage=0.1).fit(X + 1e3 * y[:, None], y)
    M = learner.metric_.to_dense()
    assert np.isfinite(M).all()
    assert learner.objective_ < learner.objective_history_[0]


def test_learns_to_ignore_noise():
    rng = np.random.default_rng(0)
    y = np.arange(120) % 3
    means = 2.0 * np.array([[1, 1, 1, 1], [-1, 1, -1, 1], [1, -1, -1, -1]])  # each feature tells
    X = np.c_[means[y] + 0.3 * rng.standard_normal((120, 4)), 3.0 * rng.standard_normal((120, 12))]
    M = LMNN(shrinkage=0.01).fit(X, y).metric_.to_dense()
    assert np.diag(M)[:4].min() > 5 * np.diag(M)[4:].mean()


def test_same_bits_whatever_the_labels_layout_or_global_state():
    X, y = rows_of(26, 5, 2)
    X.setflags(write=False)
    expected = clone(SMALL).fit(X, y).metric_.to_dense()
    np.random.seed(4)  # noqa: NPY002 - the global state must not matter
    for labels in (["cat", "dog"], [True, False], [7, 9], ["b", "B"]):
        named = np.array(labels, dtype=object)[y] if labels[0] == "cat" else np.array(labels)[y]
        np.testing.assert_array_equal(clone(SMALL).fit(X, named).metric_.to_dense(), expected)
    wide = np.zeros((26, 10))
    wide[:, ::2] = X
    for rows in (X.tolist(), np.asfortranarray(X), wide[:, ::2]):
        np.testing.assert_allclose(
            clone(SMALL).fit(rows, y).metric_.to_dense(), expected, rtol=1e-6, atol=1e-12
        )


def test_awkward_rows():
    X, y = rows_of(12, 4, 3)
    for shrinkage in (0.0, 0.01):
        learner = clone(SMALL).set_params(shrinkage=shrinkage)
        tripled = clone(learner).fit(np.repeat(X, 3, axis=0), np.repeat(y, 3))
        assert np.isfinite(tripled.metric_.to_dense()).all()
        same = clone(learner).fit(np.ones((6, 4)), [0, 0, 0, 1, 1, 1])
        assert np.isfinite(same.metric_.to_dense()).all()
        assert same.objective_ == pytest.approx(0.5 * 6 * 2 * 3)
        mixed = np.c_[X, np.ones(12)]
        mixed[::2] *= 1e4
        mixed[1::2] *= 1e-4
        assert np.isfinite(clone(learner).fit(mixed, y).metric_.to_dense()).all()
        least = clone(learner).fit([[0.0, 1.0], [0.5, 1.0], [3.0, 0.0]], ["a", "a", "b"])
        assert np.isfinite(least.metric_.to_dense()).all()


@pytest.mark.parametrize(
    ("X", "y", "said"),
    [
        (np.eye(3), ["a"] * 3, "3 samples of 1 classes"),
        (np.eye(3), ["a", "b", "c"], "no similar pair"),
        (np.eye(2), [0, 1], "minimum of 3"),
        (np.zeros((0, 3)), [], "minimum of 3"),
        (np.eye(4), [0, 0, 1], "inconsistent"),
        (np.array([[1.0, np.nan], [0, 1], [1, 1]]), [0, 0, 1], r"X\[0, 1\] is nan"),
        (np.array([[1.0, 0], [0, 1], [np.inf, 1]]), [0, 0, 1], r"X\[2, 0\] is inf"),
    ],
)
def test_clear_errors_leave_no_trace(X, y, said):
    fitted = clone(SMALL).fit(*rows_of(20, 4, 2))
    kept = pickle.dumps(fitted.metric_)
    with pytest.raises(ValueError, match=said):
        fitted.fit(X, y)
    assert pickle.dumps(fitted.metric_) == kept
    with pytest.raises(ValueError, match=said):
        clone(SMALL).fit(X, y)


@pytest.mark.parametrize(
    ("name", "bad"),
    [(n, b) for n in ("n_targets", "max_iter") for b in (0, -1, 1.5, "2")]
    + [("push_weight", b) for b in (0, 1, 1.5, -0.5, np.nan, "a")]
    + [("shrinkage", b) for b in (-1e-3, np.nan, np.inf, "a", None, True)]
    + [("tol", b) for b in (0, -1, np.nan, "a")],
)
def test_clear_errors_for_parameters(name, bad):
    learner = clone(SMALL).set_params(**{name: bad})
    with pytest.raises(ValueError, match=f"{name}={bad!r}"):
        learner.fit(*rows_of(20, 4, 2))
    assert not hasattr(learner, "n_features_in_")


def test_sparse_rows_column_labels_and_unfitted():
    X, y = rows_of(20, 4, 2)
    with pytest.raises(TypeError, match=r"X is sparse \(20, 4\).*TruncatedSVD"):
        clone(SMALL).fit(sparse.csr_array(X), y)
    with pytest.warns(DataConversionWarning):
        learner = clone(SMALL).fit(X, y[:, None])
    again = clone(SMALL).fit(X, y)
    np.testing.assert_array_equal(learner.metric_.to_dense(), again.metric_.to_dense())
    with pytest.raises(NotFittedError):
        clone(SMALL).transform(X)
    with pytest.raises(ValueError, match=r"inconsistent.*\[5, 3\]"):
        target_neighbors(np.eye(5), [0, 0, 1])


def test_pickle_and_copies():
    X, y = rows_of(20, 4, 2)
    learner = clone(SMALL)
    assert learner.fit(X, y) is learner
    for other in (pickle.loads(pickle.dumps(learner)), copy.deepcopy(learner)):
        np.testing.assert_array_equal(other.transform(X), learner.transform(X))


def test_a_second_fit_starts_anew():
    X, y = rows_of(30, 3, 2)
    learner = clone(SMALL).fit(X, y)
    first = learner.metric_.to_dense(), learner.objective_history_, learner.dual_bound_
    learner.fit(*rows_of(25, 5, 3)).fit(X, y)
    np.testing.assert_array_equal(learner.metric_.to_dense(), first[0])
    np.testing.assert_array_equal(learner.objective_history_, first[1])
    assert learner.dual_bound_ == first[2]
