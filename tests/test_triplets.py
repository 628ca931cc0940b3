"""The triplets module against oracles that share no code with it."""

import itertools

import numpy as np
import pytest
from scipy import sparse

from lml import triplets as module
from lml.metrics import FactoredMetric, pairwise_scores
from lml.plda.model import LogRatioMetric
from lml.triplets import (
    all_triplets,
    draw_triplets,
    hinge_with_gradient,
    nearest_triplets,
    neighbor_triplets,
    sample_triplets,
    triplet_counts,
    triplet_gradient,
    triplet_hinge,
    triplet_loss,
    triplet_margins,
)

TYPES = ("similarity", "distance")


def by_hand(y, self_pairs=False):
    n = range(len(y))
    return [
        (i, j, k)
        for i, j, k in itertools.product(n, n, n)
        if y[i] == y[j] != y[k] and sum(v == y[i] for v in y) > 1 and (self_pairs or i != j)
    ]


def hinges_by_hand(M, X, triplets, metric_type, margin=1.0):
    out = []
    for i, j, k in triplets:
        if metric_type == "similarity":
            out.append(max(0.0, margin - X[i] @ M @ X[j] + X[i] @ M @ X[k]))
        else:
            p, q = X[i] - X[j], X[i] - X[k]
            out.append(max(0.0, margin + p @ M @ p - q @ M @ q))
    return np.array(out)


@pytest.fixture
def problem():
    rng = np.random.default_rng(3)
    X, M = rng.normal(size=(13, 4)), rng.normal(size=(4, 4))
    y = np.array([0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 1, 7])
    return X, y, M


@pytest.mark.parametrize("self_pairs", [False, True])
@pytest.mark.parametrize("y", ["aab", "abcab", "aabbbc", "zzzzzy"])
def test_all_triplets_is_the_definition(y, self_pairs):
    assert [*map(tuple, all_triplets(list(y), self_pairs))] == by_hand(y, self_pairs)
    sizes = [y.count(c) for c in set(y)]
    if not self_pairs:
        assert len(by_hand(y)) == sum(s * (s - 1) * (len(y) - s) for s in sizes)


class Enumerated(np.random.RandomState):
    """A random state that walks through every outcome of the three draws, each once."""

    def __init__(self, outcomes):
        super().__init__(0)
        self.columns = iter(np.array(outcomes).T)
        self.highs = []

    def randint(self, low, high=None, size=None, dtype=int):
        self.highs.append(low)
        return next(self.columns)


@pytest.mark.parametrize("self_pairs", [False, True])
def test_sampler_by_enumeration(self_pairs):
    """Equally likely integers of the stated ranges give each triplet of an anchor once."""
    y = np.array([5, 3, 5, 9, 3, 5])
    anchors = [0, 1, 2, 4, 5]
    outcomes = []
    for a, row in enumerate(anchors):
        size = int((y == y[row]).sum())
        outcomes += itertools.product([a], range(size - (not self_pairs)), range(6 - size))
    state = Enumerated(outcomes)
    drawn = sample_triplets(y, len(outcomes), state, self_pairs=self_pairs)
    assert sorted(map(tuple, drawn.tolist())) == by_hand(y, self_pairs)
    assert state.highs[0] == 5
    for drawn_row, j_high, k_high in zip(drawn, state.highs[1], state.highs[2], strict=True):
        size = (y == y[drawn_row[0]]).sum()
        assert (j_high, k_high) == (size - (not self_pairs), 6 - size)


def test_sampler_repeats_and_ignores_the_global_seed():
    y = np.arange(30) % 4
    first = sample_triplets(y, 100, random_state=0)
    np.random.seed(5)  # noqa: NPY002
    np.testing.assert_array_equal(first, sample_triplets(y, 100, random_state=0))
    assert (first != sample_triplets(y, 100, random_state=1)).any()


@pytest.mark.parametrize(
    "names",
    [
        ["dog", "cat", "eel"],
        [True, False, "x"],
        ["a", "A", "b"],
        [("a", 1), ("a", 2), ("b", 1)],
        [9.5, -1.0, 7.0],
        [np.int8(3), np.int8(-4), np.int8(0)],
        ["cat", 3, None.__class__],
        [1, "1", ("1",)],
    ],
)
def test_renaming_changes_nothing(names):
    codes = np.array([2, 0, 1, 1, 0, 2, 2, 0, 1, 0])
    X = np.random.default_rng(0).normal(size=(10, 3))
    y = [names[c] for c in codes]
    as_object = np.empty(10, dtype=object)
    as_object[:] = [*y] if not isinstance(names[0], tuple) else None
    for labels in [y] + [as_object] * (not isinstance(names[0], tuple)):
        np.testing.assert_array_equal(
            sample_triplets(labels, 50, random_state=0), sample_triplets(codes, 50, random_state=0)
        )
        np.testing.assert_array_equal(all_triplets(labels), all_triplets(codes))
        np.testing.assert_array_equal(nearest_triplets(X, labels), nearest_triplets(X, codes))


def nearest_by_hand(X, y, a, b):
    out = []
    for i in range(len(y)):
        order = sorted(
            (r for r in range(len(y)) if r != i), key=lambda r, i=i: (sum((X[i] - X[r]) ** 2), r)
        )
        near = [r for r in order if y[r] == y[i]][:a]
        out += [(i, j, k) for j in near for k in [r for r in order if y[r] != y[i]][:b]]
    return out


@pytest.mark.parametrize("block", [1, 7, 2**22])
@pytest.mark.parametrize(("a", "b"), [(3, 10), (1, 2), (99, 99)])
def test_nearest_with_ties_and_copies(monkeypatch, block, a, b):
    monkeypatch.setattr(module, "_BLOCK", block)
    rng = np.random.default_rng(1)
    base = rng.integers(0, 3, size=(9, 2)).astype(float)
    X, y = np.vstack([base, base, base, [[1, 1]]]), np.append(np.tile(np.arange(9) % 2, 3), 5)
    expected = nearest_by_hand(X, y, a, b)
    assert [*map(tuple, nearest_triplets(X, y, a, b))] == expected
    assert [*map(tuple, nearest_triplets(sparse.csr_matrix(X), y, a, b))] == expected
    assert not any(i == j for i, j, _ in expected)
    assert {i for i, _, _ in expected} == set(range(27))  # the lone row is no anchor


def test_nearest_is_exact_where_norms_hide_the_distance():
    """Rows 1e8 away from the origin, 1 apart: |x|^2 + |z|^2 - 2 x'z has no digit left."""
    x = np.array([0.0, 1.0, 3.0, 6.0, 10.0, 15.0, 21.0, 28.0])
    X, y = np.stack([x + 1e8, np.full(8, -1e8)], axis=1), [0, 0, 1, 0, 1, 1, 0, 1]
    assert [*map(tuple, nearest_triplets(X, y, 2, 2))] == nearest_by_hand(X, y, 2, 2)


def test_nearest_is_exact_where_rounding_grows_with_the_features():
    rng = np.random.default_rng(5)
    X, y = rng.integers(0, 3, size=(40, 300)) + 1e7, np.arange(40) % 2
    assert [*map(tuple, nearest_triplets(X, y, 2, 2))] == nearest_by_hand(X, y, 2, 2)


def test_rows_of_very_different_length():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(20, 3)) * np.where(np.arange(20) < 10, 1e4, 1e-4)[:, None]
    y = np.arange(20) % 2
    triplets = nearest_triplets(X, y)
    assert (y[triplets[:, 0]] == y[triplets[:, 1]]).all()
    assert (y[triplets[:, 0]] != y[triplets[:, 2]]).all()
    assert [*map(tuple, triplets)] == nearest_by_hand(X, y, 3, 10)
    for metric_type in TYPES:
        loss, G = triplet_gradient(FactoredMetric.identity(3), X, triplets, metric_type)
        assert np.isfinite(loss)
        assert np.isfinite(G.to_dense()).all()


@pytest.mark.parametrize("metric_type", TYPES)
@pytest.mark.parametrize("block", [1, 30, 2**22])
@pytest.mark.parametrize("count", [5, 40])
def test_hinges_and_gradient(monkeypatch, problem, metric_type, block, count):
    monkeypatch.setattr(module, "_BLOCK", block)
    X, y, M = problem
    triplets = sample_triplets(y, count, random_state=0)
    expected = hinges_by_hand(M, X, triplets, metric_type, 0.7)
    dense, thin = FactoredMetric.from_dense(M), np.asfortranarray(X)
    for rows in (
        X,
        thin,
        X.tolist(),
        sparse.csr_matrix(X),
        sparse.csr_array(X),
        sparse.coo_array(X),
    ):
        hinge = triplet_hinge(dense, rows, triplets, metric_type, margin=0.7)
        np.testing.assert_allclose(hinge, expected, atol=1e-12)
    loss, G = triplet_gradient(dense, X, triplets, metric_type, margin=0.7)
    assert loss == pytest.approx(expected.mean(), abs=1e-12)
    assert triplet_loss(dense, X, triplets, metric_type, 0.7) == pytest.approx(loss, abs=1e-14)
    G, step = G.to_dense(), 1e-6
    for a, b in itertools.product(range(4), range(4)):  # entry by entry: no transposed gradient
        E = np.zeros((4, 4))
        E[a, b] = step
        ahead = hinges_by_hand(M + E, X, triplets, metric_type, 0.7).mean()
        behind = hinges_by_hand(M - E, X, triplets, metric_type, 0.7).mean()
        assert (ahead - behind) / (2 * step) == pytest.approx(G[a, b], abs=1e-7)


@pytest.mark.parametrize("metric_type", TYPES)
def test_what_takes_checked_arrays_gives_the_same_with_the_same_defaults(problem, metric_type):
    X, y, M = problem
    codes, metric = np.unique(y, return_inverse=True)[1], FactoredMetric.from_dense(M)
    triplets = sample_triplets(y, 200, 0)
    np.testing.assert_array_equal(draw_triplets(codes, 200, 0), triplets)
    np.testing.assert_array_equal(neighbor_triplets(X, codes), nearest_triplets(X, y))
    assert (triplets[:, 0] == triplets[:, 1]).any()  # self pairs are drawn
    hinge = hinges_by_hand(M, X, triplets, metric_type).mean()
    loss, G = hinge_with_gradient(metric, X, triplets, metric_type)
    assert loss == pytest.approx(hinge)
    assert triplet_loss(metric, X, triplets, metric_type) == pytest.approx(hinge)
    again, H = triplet_gradient(metric, X, triplets, metric_type)
    assert again == loss
    np.testing.assert_array_equal(G.to_dense(), H.to_dense())


@pytest.mark.parametrize("metric_type", TYPES)
def test_counts_of_repeated_and_degenerate_triplets(problem, metric_type):
    X, _, _ = problem
    triplets = np.array([[0, 0, 4], [0, 3, 4], [0, 3, 4], [2, 5, 0]])
    K = triplet_counts(triplets, len(X), metric_type)
    expected = np.zeros((4, 4))
    for i, j, k in triplets:
        if metric_type == "similarity":
            expected += np.outer(X[i], X[k] - X[j])
        else:
            expected += np.outer(X[i] - X[j], X[i] - X[j]) - np.outer(X[i] - X[k], X[i] - X[k])
    np.testing.assert_allclose(X.T @ (K @ X), expected, atol=1e-12)
    np.testing.assert_allclose(K.sum(axis=1), 0)
    assert K.nnz <= (2 if metric_type == "similarity" else 6) * len(triplets)


@pytest.mark.parametrize("kind", [np.array, sparse.csr_array])
@pytest.mark.parametrize("n_triplets", [8, 60])
def test_a_log_ratio_is_the_similarity_of_its_metric(problem, kind, n_triplets):
    X, y, M = problem
    between = np.array([0.3, 2.0, 5.0])
    metric = LogRatioMetric(X[0], M[:3], between)
    triplets = sample_triplets(y, n_triplets, random_state=0)

    def log_ratio(x, z):  # of the joint normal density of both to the product of their own
        q, r = M[:3] @ (x - X[0]), M[:3] @ (z - X[0])
        total = 0.0
        for p, pair in zip(between, np.stack([q, r], axis=1), strict=True):
            same = np.array([[1 + p, p], [p, 1 + p]])
            apart = (1 + p) * np.eye(2)
            for sign, covariance in ((1, same), (-1, apart)):
                square = pair @ np.linalg.solve(covariance, pair)
                total -= sign * (square + np.log(np.linalg.det(covariance))) / 2
        return total

    expected = [log_ratio(X[i], X[j]) - log_ratio(X[i], X[k]) for i, j, k in triplets]
    margins = triplet_margins(metric, kind(X), triplets, "similarity")
    np.testing.assert_allclose(margins, expected, rtol=1e-10, atol=1e-10)
    hinges = np.maximum(0.7 - np.array(expected), 0)
    found = triplet_hinge(metric, kind(X), triplets, "similarity", 0.7)
    np.testing.assert_allclose(found, hinges, rtol=1e-10, atol=1e-10)
    loss = triplet_loss(metric, kind(X), triplets, "similarity", 0.7)
    np.testing.assert_allclose(loss, hinges.mean())
    # the distance is that of its bilinear part
    S = pairwise_scores(FactoredMetric.from_dense(metric.to_dense()), X, X, "distance")
    i, j, k = triplets.T
    far = triplet_margins(metric, kind(X), triplets, "distance")
    np.testing.assert_allclose(far, S[i, j] - S[i, k], atol=1e-9)
    with pytest.raises(TypeError, match=r"LogRatioMetric.*no gradient"):
        triplet_gradient(metric, kind(X), triplets, "similarity")


@pytest.mark.parametrize("metric_type", TYPES)
def test_nothing_violated_or_nothing_given(metric_type):
    X = np.array([[-5e2], [-5e2], [5e2], [5e2]])
    triplets = all_triplets(["a", "a", "b", "b"])
    for some in (triplets, [], np.zeros((0, 3), dtype=int)):
        loss, G = triplet_gradient(FactoredMetric.identity(1), X, some, metric_type)
        assert loss == 0.0
        assert G.to_dense() == [[0.0]]
        assert triplet_hinge(FactoredMetric.identity(1), X, some, metric_type).shape == (len(some),)


def test_a_shift_of_the_rows_costs_no_digits(problem):
    X, y, M = problem
    triplets, metric = sample_triplets(y, 60, random_state=0), FactoredMetric.from_dense(M)
    moved = triplet_margins(metric, X + 1e6, triplets, "distance")
    np.testing.assert_allclose(moved, triplet_margins(metric, X, triplets, "distance"), atol=1e-6)


def test_wide_sparse_rows_stay_sparse():
    rng = np.random.default_rng(0)
    X = sparse.random_array((60, 20_000), density=0.002, format="csr", rng=rng)
    y = np.arange(60) % 3
    triplets = nearest_triplets(X, y)
    for metric_type in TYPES:
        for some in (triplets, triplets[:20]):
            loss, G = triplet_gradient(FactoredMetric.identity(20_000), X, some, metric_type)
            assert loss > 0
            assert sparse.issparse(G.factor)
            assert sparse.issparse(G.core)
            assert G.core.shape == (60, 60)


@pytest.mark.parametrize("dtype", [np.float32, np.int16])
def test_other_dtypes_and_untouched_inputs(dtype):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 9, size=(12, 3)).astype(dtype)
    X.setflags(write=False)
    y = np.arange(12) % 2
    y.setflags(write=False)
    triplets = nearest_triplets(X, y)
    np.testing.assert_array_equal(triplets, nearest_triplets(X.astype(float), y))
    triplets.setflags(write=False)
    wide = np.zeros((12, 6), dtype=dtype)
    wide[:, ::2] = X
    for metric_type in TYPES:
        expected = hinges_by_hand(np.eye(3), X.astype(float), triplets, metric_type)
        for rows in (X, wide[:, ::2]):
            hinge = triplet_hinge(FactoredMetric.identity(3), rows, triplets, metric_type)
            np.testing.assert_allclose(hinge, expected, rtol=1e-4, atol=1e-4)


def test_column_of_labels_warns_as_scikit_learn_does():
    with pytest.warns(UserWarning, match="column-vector"):
        drawn = sample_triplets(np.array([[0], [0], [1]]), 4, random_state=0)
    np.testing.assert_array_equal(drawn, sample_triplets([0, 0, 1], 4, random_state=0))


X3, Y3 = np.eye(3), ["a", "a", "b"]
I3 = FactoredMetric.identity(3)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: sample_triplets([], 1), "y has 0 samples"),
        (lambda: sample_triplets(["a"], 1), "y has 1 samples"),
        (lambda: all_triplets([0, 1]), "2 samples of 2 classes.*give two classes, one with two"),
        (lambda: sample_triplets(["q"] * 5, 1), "5 samples of 1 classes.*no dissimilar pair"),
        (lambda: all_triplets([0, 1]), "no similar pair"),
        (lambda: all_triplets([1, 2, 3]), "3 samples of 3 classes.*no similar pair"),
        (lambda: nearest_triplets(X3, [1, 2, 3]), "no similar pair"),
        (lambda: nearest_triplets(X3, ["q"] * 3), "no dissimilar pair"),
        (lambda: nearest_triplets(X3, [0, 0, 1, 1]), "inconsistent numbers of samples: \\[3, 4\\]"),
        (lambda: nearest_triplets(X3, Y3, n_targets=0), "n_targets=0"),
        (lambda: nearest_triplets(X3, Y3, n_impostors=1.5), "n_impostors=1.5"),
        (lambda: nearest_triplets(X3, Y3, n_impostors=True), "n_impostors=True"),
        (lambda: sample_triplets(Y3, -1), "n_triplets=-1"),
        (lambda: sample_triplets([0, 0, np.nan], 1), "y\\[2\\] is nan"),
        (lambda: sample_triplets([0, None, 0], 1), "y\\[1\\] is None"),
        (lambda: nearest_triplets([[0.0], [np.inf], [1.0]], Y3), "X\\[1, 0\\] is inf"),
        (lambda: triplet_margins(I3, sparse.csr_array(X3 * np.nan), [], "distance"), "X\\["),
        (lambda: triplet_margins(I3, X3, [[0, 1, 3]], "distance"), "\\(0, 1, 3\\).*0 to 2"),
        (lambda: triplet_margins(I3, X3, [[0, -1, 2]], "distance"), "\\(0, -1, 2\\)"),
        (lambda: triplet_margins(I3, X3, [[0, 1]], "distance"), "shape \\(1, 2\\)"),
        (lambda: triplet_margins(I3, X3, [[0.0, 1, 2]], "distance"), "dtype float64"),
        (lambda: triplet_margins(I3, X3, [[0, 1, 2]], "cosine"), "metric_type='cosine'"),
        (
            lambda: triplet_margins(I3, X3[:, :2], [[0, 1, 2]], "distance"),
            "2 features, but 3 features",
        ),
        (lambda: triplet_counts(np.array([[0, 1, 2]]), 3, "cosine"), "metric_type='cosine'"),
        (lambda: triplet_loss(I3, X3, [[0, 1, 2]], "distance", margin=-1), "margin=-1"),
        (lambda: triplet_loss(I3, X3, [[0, 1, 2]], "distance", margin=np.nan), "margin=nan"),
    ],
)
def test_errors_say_what_and_what_to_do(call, said):
    with pytest.raises(ValueError, match=said):
        call()


def test_least_that_works():
    assert sample_triplets(Y3, 2, random_state=0).shape == (2, 3)
    assert nearest_triplets(X3, Y3).tolist() == [[0, 1, 2], [1, 0, 2]]
