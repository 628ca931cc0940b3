"""Ranking and votes against loops, scipy and exact arithmetic."""

import doctest
import json
import re
import tracemalloc
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.neighbors import NearestNeighbors

from lml import neighbors
from lml.metrics import FactoredMetric
from lml.neighbors import accuracy, k_nearest, majority_vote, retrieval_scores


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_psd_distance_against_scipy(rng):
    X, Z, L = rng.normal(size=(9, 5)), rng.normal(size=(14, 5)), rng.normal(size=(5, 5))
    oracle = cdist(X, Z, "mahalanobis", VI=L.T @ L)
    indices, scores = k_nearest(FactoredMetric.from_components(L), X, Z, "distance", 4)
    np.testing.assert_array_equal(indices, np.argsort(oracle, axis=1)[:, :4])
    np.testing.assert_allclose(-scores, np.sort(oracle, axis=1)[:, :4] ** 2)


@pytest.mark.parametrize("kind", ["similarity", "distance"])
@pytest.mark.parametrize("as_sparse", [False, True])
def test_indefinite_and_nonsymmetric_metrics(rng, kind, as_sparse):
    X, Z, M = rng.normal(size=(6, 3)), rng.normal(size=(8, 3)), rng.normal(size=(3, 3))

    def score(x, z):
        return x @ M @ z if kind == "similarity" else -(x - z) @ M @ (x - z)

    oracle = np.array([np.argsort([-score(x, z) for z in Z])[:5] for x in X])
    make = sparse.csr_matrix if as_sparse else np.asarray
    found, _ = k_nearest(FactoredMetric.from_dense(M), make(X), make(Z), kind, 5)
    np.testing.assert_array_equal(found, oracle)


@pytest.mark.parametrize("itself", [False, True])
def test_blocks_do_not_change_the_answer(itself, rng, monkeypatch):
    X, Z = rng.normal(size=(11, 3)), rng.normal(size=(7, 3))
    X = None if itself else X
    whole = k_nearest(FactoredMetric.identity(3), X, Z, "distance", 3)
    monkeypatch.setattr(neighbors, "_NUMBERS_AT_A_TIME", 20)
    pieces = k_nearest(FactoredMetric.identity(3), X, Z, "distance", 3)
    np.testing.assert_array_equal(whole[0], pieces[0])


def by_differences(metric, X, Z, kind, k, itself=False):
    """The oracle: every score by itself, a stable sort."""
    if kind == "similarity":
        scores = X @ metric.to_dense() @ Z.T
    else:
        gaps = X[:, None] - Z[None]
        scores = -np.einsum("ijk,kl,ijl->ij", gaps, metric.to_dense(), gaps)
    if itself:
        np.fill_diagonal(scores, -np.inf)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(scores, order, axis=1)


@pytest.mark.parametrize("n", [1, 15, 16, 17, 64, 1023, 3001])  # groups of 1 to 64 columns
@pytest.mark.parametrize("alpha", [0.0, 0.5])
@pytest.mark.parametrize("kind", ["similarity", "distance"])
def test_groups_of_references_pass_over_no_neighbor(n, alpha, kind, rng):
    Z = rng.normal(size=(n, 5))
    Z[n // 2] *= 1e5  # one long row
    metric = FactoredMetric(alpha, rng.normal(size=(3, 5)), np.array([1.0, 2.0, -0.3]))
    for k in {1, min(n, 3)}:
        found = k_nearest(metric, Z[:20] + 0.01, Z, kind, k)
        oracle = by_differences(metric, Z[:20] + 0.01, Z, kind, k)
        np.testing.assert_array_equal(found[0], oracle[0])
        np.testing.assert_allclose(found[1], oracle[1], rtol=1e-9)
        if k < n < 1000:
            others = k_nearest(metric, None, Z, kind, k)[0]
            assert np.array_equal(others, by_differences(metric, Z, Z, kind, k, True)[0])


class Tilted(FactoredMetric):
    """A metric whose score is more than its matrix."""

    def bilinear(self, X, Z):
        return super().bilinear(X, Z) - 5.0 * np.sum(np.square(Z), axis=1)


@pytest.mark.parametrize("n", [3, 40, 1000])
def test_a_metric_with_a_score_of_its_own_is_ranked_by_it(rng, n):
    parts = 0.5, rng.normal(size=(2, 4)), np.eye(2)
    metric, X, Z = Tilted(*parts), rng.normal(size=(7, 4)), rng.normal(size=(n, 4))
    scores = metric.bilinear(X, Z)
    nearest, found = k_nearest(metric, X, Z, "similarity", 3)
    np.testing.assert_array_equal(nearest, np.argsort(-scores, axis=1, kind="stable")[:, :3])
    np.testing.assert_allclose(found, np.sort(scores, axis=1)[:, ::-1][:, :3])
    plain = k_nearest(FactoredMetric(*parts), X, Z, "similarity", 3)[0]
    assert not np.array_equal(nearest, plain)


def test_many_copies_tie_in_their_order_and_take_no_memory(rng):
    Z = rng.integers(0, 2, size=(20_000, 4)).astype(float)  # 16 different rows
    metric = FactoredMetric(0.0, np.diag([1.0, 2.0, 4.0, 8.0]), np.ones(4))
    tracemalloc.start()
    found, scores = k_nearest(metric, None, Z, "distance", 3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60e6
    assert not scores.any()
    for row in range(0, 20_000, 997):
        same = np.flatnonzero((Z[row] == Z).all(axis=1))
        assert found[row].tolist() == same[same != row][:3].tolist()


def test_few_queries_at_a_time_are_scored_where_references_are_many(rng):
    Z = rng.normal(size=(2**18, 1))
    peaks = []
    for n_queries in (1, 40):
        X = Z[:n_queries] + 1e-9
        tracemalloc.start()
        found, _ = k_nearest(FactoredMetric.identity(1), X, Z, "distance", 1)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert found[:, 0].tolist() == list(range(n_queries))
    assert peaks[1] < peaks[0] + 2.5 * 8 * 16 * 2**18  # sixteen queries, a copy, half as much


@pytest.mark.parametrize("form", [np.array, sparse.csr_array])
def test_rows_of_opposite_signs_are_told_apart_and_copies_found(form):
    """The signs of two entries change the sum of a row's bits by a multiple of 2^64."""
    Z = np.array([[1.0, 2.0], [-1.0, -2.0], [1.0, 2.0], [2.0, 1.0]])
    metric = FactoredMetric.identity(2)
    found, scores = k_nearest(metric, form(Z), form(Z), "distance", 4)
    assert found.tolist() == [[0, 2, 3, 1], [1, 3, 0, 2], [0, 2, 3, 1], [3, 0, 2, 1]]
    assert scores[0].tolist() == [0.0, 0.0, -2.0, -20.0]
    pair = k_nearest(metric, form(Z[:2]), form(Z[:2]), "similarity", 2)[0]
    assert pair.tolist() == [[0, 1], [1, 0]]


def test_equal_scores_come_in_the_order_of_the_references():
    Z = np.array([[1.0], [0.0], [1.0], [1.0]])
    found, _ = k_nearest(FactoredMetric.identity(1), [[1.0]], Z, "distance", 4)
    assert found.tolist() == [[0, 2, 3, 1]]


def test_rows_far_from_the_origin_are_ranked_right(rng):
    Z = 1e4 + 1e-4 * rng.normal(size=(50, 3))
    found, _ = k_nearest(FactoredMetric.identity(3), Z, Z, "distance", 1)
    assert found.ravel().tolist() == list(range(50))


@pytest.mark.parametrize("far", [1e4, 1e6, 1e8])
@pytest.mark.parametrize("n", [60, 400])  # groups of 2 and of 16 columns
def test_samples_near_one_another_and_far_from_the_mean_are_ranked_right(rng, n, far):
    for _ in range(10):
        Z = rng.choice([-far, far], size=(n, 1)) + 1e-3 * rng.normal(size=(n, 3))
        X = Z[:20] + 1e-3 * rng.normal(size=(20, 3))
        squares = np.square(X[:, None] - Z).sum(axis=2)
        found, _ = k_nearest(FactoredMetric.identity(3), X, Z, "distance", 3)
        np.testing.assert_array_equal(found, np.argsort(squares, axis=1, kind="stable")[:, :3])


@pytest.mark.parametrize("kind", [str, int, object])
def test_votes_against_counting(rng, kind):
    labels = rng.integers(3, size=(200, 5)).astype(kind)
    for row, winner in zip(labels.tolist(), majority_vote(labels).tolist(), strict=True):
        counts = Counter(row)
        best = max(counts.values())
        assert winner == next(label for label in row if counts[label] == best)


@pytest.mark.parametrize("labels", [[], [[]], [1, 2]])
def test_votes_need_a_table(labels):
    with pytest.raises(ValueError, match="labels has shape"):
        majority_vote(labels)


def test_no_labels_have_no_accuracy():
    with pytest.raises(ValueError, match=r"0 labels.*at least one"):
        accuracy([], [])
    assert accuracy(["a"], ["a"]) == 1.0


@pytest.mark.parametrize("k", [0, -1, 1.5, "three"])
def test_bad_n_neighbors(k):
    with pytest.raises(ValueError, match="n_neighbors"):
        k_nearest(FactoredMetric.identity(2), np.eye(2), np.eye(2), "distance", k)


def test_more_neighbors_than_references_prints_both_numbers():
    with pytest.raises(ValueError, match=r"is 3, but .* n_samples = 2"):
        k_nearest(FactoredMetric.identity(2), np.eye(2), np.eye(2), "distance", 3)


def test_no_queries_have_no_neighbors():
    found, scores = k_nearest(
        FactoredMetric.identity(2), np.zeros((0, 2)), np.eye(2), "distance", 1
    )
    assert found.shape == scores.shape == (0, 1)


def test_unknown_metric_type():
    with pytest.raises(ValueError, match="angle"):
        k_nearest(FactoredMetric.identity(2), np.eye(2), np.eye(2), "angle", 1)


@pytest.mark.parametrize("as_sparse", [False, True])
@pytest.mark.parametrize("alpha", [-0.3, 0.0, 1.0])
def test_mixed_norms_against_exact_arithmetic(rng, as_sparse, alpha):
    scale = 10.0 ** rng.integers(-4, 5, size=(40, 1))
    Z = rng.normal(size=(40, 3)) * scale
    X = np.vstack([Z[:10], Z[10:20] * (1 + 1e-9)])  # rows almost on top of references
    metric = FactoredMetric(alpha, rng.normal(size=(2, 3)), rng.normal(size=(2, 2)))
    F, C = (np.vectorize(Fraction)(A) for A in (metric.factor, metric.core))
    gaps = np.vectorize(Fraction)(X)[:, None] - np.vectorize(Fraction)(Z)
    images = gaps @ F.T
    exact = Fraction(alpha) * (gaps**2).sum(-1) + ((images @ C) * images).sum(-1)
    oracle = [sorted(range(40), key=row.__getitem__)[:5] for row in exact.tolist()]
    make = sparse.csr_matrix if as_sparse else np.asarray
    found, scores = k_nearest(metric, make(X), make(Z), "distance", 5)
    assert found.tolist() == oracle
    truth = [[-float(row[j]) for j in near] for row, near in zip(exact, oracle, strict=True)]
    np.testing.assert_allclose(scores, truth, rtol=1e-9, atol=0)


@pytest.mark.parametrize("kind", ["similarity", "distance"])
@pytest.mark.parametrize("as_sparse", [False, True])
def test_copies_tie_exactly(rng, kind, as_sparse):
    rows = rng.normal(size=(9, 6))
    which = rng.integers(9, size=70)
    make = sparse.csr_matrix if as_sparse else np.asarray
    metric = FactoredMetric(0.7, rng.normal(size=(4, 6)), rng.normal(size=(4, 4)))
    found, scores = k_nearest(metric, rng.normal(size=(13, 6)), make(rows[which]), kind, 70)
    for near, values in zip(found, scores, strict=True):
        blocks = which[near]
        assert len(np.unique(blocks)) == np.sum(np.diff(blocks) != 0) + 1  # copies together
        same = np.diff(blocks) == 0
        assert np.all(np.diff(values)[same] == 0)
        assert np.all(np.diff(near)[same] > 0)


def test_integer_rows_tie_exactly():
    grid = np.stack(np.meshgrid(np.arange(-3.0, 4), np.arange(-3.0, 4)), -1).reshape(-1, 2)
    found, _ = k_nearest(FactoredMetric.identity(2), np.zeros((1, 2)), grid, "distance", 9)
    squares = (grid**2).sum(axis=1)
    assert found[0].tolist() == np.argsort(squares, kind="stable")[:9].tolist()


@pytest.mark.parametrize("kind", ["similarity", "distance"])
def test_leave_one_out(rng, kind):
    Z, M = rng.normal(size=(12, 3)), rng.normal(size=(3, 3))
    metric = FactoredMetric.from_dense(M)
    found, scores = k_nearest(metric, None, Z, kind, 11)
    full, full_scores = k_nearest(metric, Z, Z, kind, 12)
    for i in range(12):
        others = full[i] != i
        assert found[i].tolist() == full[i][others].tolist()
        np.testing.assert_allclose(scores[i], full_scores[i][others], atol=1e-12)
    with pytest.raises(ValueError, match=r"is 12, but .* n_samples = 12 \(the sample itself"):
        k_nearest(metric, None, Z, kind, 12)


def test_search_tree_on_embedded_rows(rng):
    X, Z = rng.normal(size=(20, 5)), rng.normal(size=(60, 5))
    metric = FactoredMetric(0.2, rng.normal(size=(2, 5)), [1.0, 3.0])
    tree = NearestNeighbors(n_neighbors=4, algorithm="kd_tree").fit(metric.embed(Z))
    oracle = tree.kneighbors(metric.embed(X), return_distance=False)
    assert np.array_equal(k_nearest(metric, X, Z, "distance", 4)[0], oracle)


def test_tall_factors_are_condensed(rng):
    X, Z, F = rng.normal(size=(5, 3)), rng.normal(size=(9, 3)), rng.normal(size=(30, 3))
    C = rng.normal(size=(30, 30))
    tall, square = FactoredMetric(0.1, F, C), FactoredMetric(0.1, np.eye(3), F.T @ C @ F)
    for kind in ("similarity", "distance"):
        found = k_nearest(tall, X, Z, kind, 4)
        oracle = k_nearest(square, X, Z, kind, 4)
        assert np.array_equal(found[0], oracle[0])
        np.testing.assert_allclose(found[1], oracle[1], atol=1e-10)


def test_memory_is_bounded_and_sparse_rows_stay_sparse(rng, monkeypatch):
    monkeypatch.setattr(neighbors, "_NUMBERS_AT_A_TIME", 2**14)
    wide = 35_846
    Z = sparse.random_array((300, wide), density=0.002, rng=rng, format="csr")
    X = sparse.random_array((400, wide), density=0.002, rng=rng, format="csr")
    metric = FactoredMetric(1.0, Z[:40], rng.normal(size=(40, 40)))
    tracemalloc.start()
    for kind in ("similarity", "distance"):
        found, _ = k_nearest(metric, X, Z, kind, 3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * 300 * wide / 4  # a quarter of the dense references
    gaps = cdist(X[:5].toarray(), Z.toarray(), "sqeuclidean")
    images = metric.image(X[:5])[:, None] - metric.image(Z)
    oracle = gaps + np.einsum("ija,ab,ijb->ij", images, metric.core, images)
    assert np.array_equal(found[:5], np.argsort(oracle, axis=1)[:, :3])


def test_features_and_values_are_checked():
    metric = FactoredMetric.identity(2)
    with pytest.raises(ValueError, match="references has 3 features, but 2 features are expected"):
        k_nearest(metric, np.eye(2), np.eye(3), "distance", 1)
    with pytest.raises(ValueError, match="X has 3 features, but 2 features are expected"):
        k_nearest(metric, np.eye(3), np.eye(2), "distance", 1)
    with pytest.raises(ValueError, match="NaN"):
        k_nearest(metric, [[np.nan, 0.0]], np.eye(2), "distance", 1)


def test_inputs_are_not_modified(rng):
    X, Z = rng.normal(size=(4, 3)).astype(np.float32), np.asfortranarray(rng.normal(size=(6, 3)))
    old = X.copy(), Z.copy()
    X.flags.writeable = Z.flags.writeable = False
    k_nearest(FactoredMetric.identity(3), X, Z, "distance", 2)
    assert np.array_equal(X, old[0])
    assert np.array_equal(Z, old[1])


def test_examples_in_the_docstrings():
    assert doctest.testmod(neighbors).failed == 0


# --- rankings -----------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 3, 10])
def test_rankings_are_judged_as_by_loops_over_the_labels(rng, k):
    X, Z = rng.normal(size=(15, 3)), rng.normal(size=(40, 3))
    listed = rng.integers(4, size=40)
    asked = np.append(rng.integers(4, size=14), 4)  # nobody knows label 4
    nearest, _ = k_nearest(FactoredMetric.identity(3), X, Z, "distance", 40)
    rows = []
    for label, order in zip(asked, nearest):
        same = [listed[j] == label for j in order]
        R = sum(same)
        if R:
            at = [sum(same[:r]) / r for r in range(1, 41)]
            found = sum(at[r] for r in range(R) if same[r]) / R
            rows.append([found, at[R - 1], any(same[:k]), 1 / (1 + same.index(True))])
    hits = listed[nearest] == asked[:, None]
    scores = retrieval_scores(hits, k)
    np.testing.assert_allclose(scores[:4], np.mean(rows, axis=0))
    assert scores.n_queries == len(rows) < 15
    # as many neighbors as the largest class has samples are enough but for the MRR
    sizes = np.bincount(listed, minlength=5)
    shorter = retrieval_scores(hits[:, : max(sizes.max(), k)], k, sizes[asked])
    np.testing.assert_allclose(shorter[:3], scores[:3])


@pytest.mark.parametrize(
    ("hits", "k", "relevant"),
    [
        ([[0, 0]], 1, None),
        ([[1, 0]], 3, None),
        ([[1, 0]], 1, [3]),
        ([[1, 1]], 1, [1]),
        ([[1, 0]], 1, [1, 1]),
        ([[1, 0]], 1, [1.5]),
        ([[1, 0]], 1, ["1"]),
        (np.zeros((0, 2)), 1, None),
        ([[0.9, 0.2]], 1, None),  # scores and not hits
    ],
)
def test_rankings_that_cannot_be_judged_are_refused(hits, k, relevant):
    with pytest.raises(ValueError, match=r"hits has (shape|other)|n_neighbors is 3|0 sample"):
        retrieval_scores(hits, k, relevant)


def test_the_listing_of_the_gallery_finds_nearly_all_neighbors():
    pytest.importorskip("faiss", reason="faiss-cpu is not installed: pip install .[index]")
    page = Path(__file__).parents[1] / "book/gallery/index_search.ipynb"
    cells = ["".join(c["source"]) for c in json.loads(page.read_text(encoding="utf-8"))["cells"]]
    listing = re.search(r"```python\n(.*?)```", cells[-1], re.S)[1]
    names = {}
    for code in (cells[1], listing):
        exec(code, names)
    exact, found = names["exact"], names["nearest"]
    shares = [len({*a} & {*b}) / 10 for a, b in zip(exact.tolist(), found.tolist())]
    assert np.mean(shares) > 0.95
