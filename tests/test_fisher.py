"""Fisher directions against textbook forms, brute force and awkward inputs."""

import tracemalloc

import numpy as np
import pytest
from scipy import linalg, optimize, sparse
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from lml.fisher import (
    class_means,
    class_scatter,
    fisher_directions,
    fix_signs,
    leading_directions,
    local_fisher_basis,
    local_regions,
    triplet_directions,
)
from lml.utils.linalg import with_short_indices


def rows_of(n, D, classes, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    scale = np.linspace(0.5, 2.0, D)
    return 1.7 * rng.standard_normal((classes, D))[y] + scale * rng.standard_normal((n, D)), y


def pencil(X, y, regularization):
    """Between scatter and ridged within scatter from the loops of the definition."""
    D, m = X.shape[1], X.mean(axis=0)
    S, B = np.zeros((D, D)), np.zeros((D, D))
    for label in np.unique(y):
        m_c = X[y == label].mean(axis=0)
        for x in X[y == label]:
            S += np.outer(x - m_c, x - m_c)
            B += np.outer(m_c - m, m_c - m)
    return B, S + regularization * np.trace(S) / D * np.eye(D), S


def assert_same_lines(V, W, atol=1e-8):
    V, W = (A / np.linalg.norm(A, axis=1, keepdims=True) for A in (V, W))
    np.testing.assert_allclose(np.abs(np.sum(V * W, axis=1)), 1.0, atol=atol)


@pytest.mark.parametrize("as_csr", [False, True])
def test_scatter_is_the_definition(as_csr):
    X, y = rows_of(23, 5, 3)
    X[np.abs(X) < 0.5] = 0
    B, _, S = pencil(X, y, 0.0)
    within, between = class_scatter(sparse.csr_matrix(X) if as_csr else X, y)
    np.testing.assert_allclose(within, S, atol=1e-10)
    np.testing.assert_allclose(between, B, atol=1e-10)


@pytest.mark.parametrize("offset", [0, 10**4, 10**8])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array, sparse.csc_matrix])
def test_samples_far_from_the_origin_have_the_scatter_of_near_ones(offset, kind):
    X, y = rows_of(700, 5, 3)
    X = np.round(1024 * X) / 1024  # so the offset is exact
    B, _, S = pencil(X, y, 0.0)
    far = kind(X + offset * np.array([1, -1, 0, 1, 2]))
    within, between = class_scatter(far, y)
    np.testing.assert_allclose(within, S, rtol=1e-9, atol=1e-9 * S.max())
    np.testing.assert_allclose(between, B, rtol=1e-6, atol=1e-6 * B.max())
    np.testing.assert_allclose(fisher_directions(far, y), fisher_directions(X, y), atol=1e-6)


def test_of_sparse_samples_few_are_dense_at_a_time():
    n, D = 200_000, 10
    rng = np.random.default_rng(0)
    X = sparse.random_array((n, D), density=0.05, format="csr", rng=rng)
    X.data += 3
    y = np.arange(n) % 2
    tracemalloc.start()
    within, _ = class_scatter(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * n * D
    A = X.toarray()
    expected = sum(np.cov(A[y == code].T, bias=True) * n / 2 for code in (0, 1))
    np.testing.assert_allclose(within, expected, rtol=1e-9, atol=1e-9 * within.max())


@pytest.mark.parametrize("n", [60, 17, 8])  # more and fewer rows than the 12 features
@pytest.mark.parametrize("regularization", [1e-4, 0.3, 1.0, 20.0])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array, sparse.csc_matrix])
def test_directions_solve_the_generalised_problem(n, regularization, kind):
    X, y = rows_of(n, 12, 4)
    B, S_ridge, _ = pencil(X, y, regularization)
    vectors = linalg.eigh(B, S_ridge)[1][:, ::-1][:, :3].T
    V = fisher_directions(kind(X), y, regularization=regularization)
    assert V.shape == (3, 12)
    assert_same_lines(V, vectors)
    np.testing.assert_allclose(np.linalg.norm(V, axis=1), 1.0)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_means_and_leading_directions_of_classes(kind):
    X, y = rows_of(30, 6, 4)
    counts, means = class_means(kind(X), y)
    np.testing.assert_array_equal(counts, np.bincount(y))
    np.testing.assert_allclose(means, [X[y == c].mean(axis=0) for c in range(4)], atol=1e-12)
    gamma = np.sqrt(counts)[:, None] * (means - X.mean(axis=0))
    B, S_ridge, S = pencil(X, y, 0.5)
    V = leading_directions(S, gamma, 0.5 * np.trace(S) / 6, 2)
    assert_same_lines(V, linalg.eigh(B, S_ridge)[1][:, :-3:-1].T)
    V = fix_signs(V)
    np.testing.assert_allclose(np.linalg.norm(V, axis=1), 1.0)
    assert np.all(np.max(V, axis=1) >= -np.min(V, axis=1))


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_a_region_holds_the_nearest_samples_of_each_class(kind):
    X, y = rows_of(50, 4, 3)
    found = local_regions(kind(X), y, 5, (3, 7), random_state=0)
    assert len(found) == 10
    for scale, regions in ((3, found[:5]), (7, found[5:])):
        assert [len(region) for region in regions] == [3 * scale] * 5
        assert all(np.all(np.diff(region) > 0) for region in regions)
        assert all(np.bincount(y[region]).tolist() == [scale] * 3 for region in regions)
    for small, large in zip(found[:5], found[5:]):  # the same centers at both scales
        assert set(small) <= set(large)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_centers_of_regions_are_the_means_of_clusters(kind):
    X, y = rows_of(50, 4, 3)
    found = local_regions(kind(X), y, 5, (3, 7), random_state=0)
    clusters = KMeans(5, n_init=1, random_state=0).fit_predict(X)
    expected = []
    for scale in (3, 7):
        for cluster in range(5):
            center = X[clusters == cluster].mean(axis=0)
            far = np.linalg.norm(X - center, axis=1)
            own = [np.flatnonzero(y == c) for c in range(3)]
            expected.append({r for rows in own for r in rows[np.argsort(far[rows])[:scale]]})
    assert [set(region) for region in found] == expected


def test_first_direction_maximises_the_quotient():
    X, y = rows_of(40, 4, 3, seed=3)
    B, S_ridge, _ = pencil(X, y, 1.0)

    def loss(v):
        return -(v @ B @ v) / (v @ S_ridge @ v)

    v = fisher_directions(X, y)[0]
    best = min(optimize.minimize(loss, x0).fun for x0 in np.eye(4))
    assert loss(v) == pytest.approx(best, rel=1e-6)


def test_agrees_with_linear_discriminant_analysis_without_ridge():
    X, y = rows_of(80, 6, 4)
    lda = LinearDiscriminantAnalysis(solver="eigen").fit(X, y)
    assert_same_lines(fisher_directions(X, y, regularization=0), lda.scalings_[:, :3].T)


def test_two_classes_have_the_closed_form():
    X, y = rows_of(31, 7, 2)
    _, S_ridge, _ = pencil(X, y, 0.5)
    delta = X[y == 0].mean(axis=0) - X[y == 1].mean(axis=0)
    V = fisher_directions(X, y, regularization=0.5)
    assert_same_lines(V, np.linalg.solve(S_ridge, delta)[None])


def test_number_of_directions():
    X, y = rows_of(40, 6, 4)
    assert fisher_directions(X, y, 2).shape == (2, 6)
    assert fisher_directions(X, y, 99).shape == (3, 6)
    np.testing.assert_array_equal(fisher_directions(X, y, 2), fisher_directions(X, y)[:2])
    assert fisher_directions(X[:, :2], y).shape == (2, 2)  # fewer features than classes


def test_signs_scale_shift_and_duplicates():
    X, y = rows_of(30, 9, 3)
    V = fisher_directions(X, y)
    assert np.all(np.max(V, axis=1) >= -np.min(V, axis=1))
    np.testing.assert_allclose(fisher_directions(1e4 * X + 7, y), V, atol=1e-9)
    np.testing.assert_allclose(fisher_directions(np.repeat(X, 3, 0), np.repeat(y, 3)), V, atol=1e-9)
    np.testing.assert_allclose(fisher_directions(X[::-1], y[::-1]), V, atol=1e-9)


def test_degenerate_rows():
    assert fisher_directions(np.ones((4, 3)), [0, 0, 1, 1]).shape == (0, 3)
    X = [[0.0, 0.0, 1.0], [0.0, 2.0, 1.0]]  # one row a class, a constant column
    np.testing.assert_allclose(fisher_directions(X, ["a", "b"]), [[0.0, 1.0, 0.0]], atol=1e-12)
    X, y = load_digits(return_X_y=True)  # blank pixels
    assert np.isfinite(fisher_directions(X, y)).all()
    assert np.isfinite(local_fisher_basis(X, y, 20, random_state=0)).all()


@pytest.mark.parametrize("labels", [["cat", "dog"], [True, False], [7, 9], ["A", "a"]])
def test_labels_are_only_names(labels):
    X, y = rows_of(26, 5, 2)
    named = np.array(labels, dtype=object)[y]
    np.testing.assert_array_equal(fisher_directions(X, named), fisher_directions(X, y))
    a = local_fisher_basis(X, named, 4, random_state=0)
    np.testing.assert_array_equal(a, local_fisher_basis(X, y, 4, random_state=0))


def test_layouts_and_inputs_untouched():
    X, y = rows_of(26, 5, 2)
    X.setflags(write=False)
    V = local_fisher_basis(X, y, 6, random_state=0)
    wide = np.zeros((26, 10))
    wide[:, ::2] = X
    for form in (np.asfortranarray(X), wide[:, ::2], X.tolist(), X.astype(np.float32)):
        np.testing.assert_allclose(local_fisher_basis(form, y, 6, random_state=0), V, atol=1e-5)


def brute_basis(X, y, centers, scales):
    out = []
    for scale in scales:
        for center in centers:
            rows = []
            for label in np.unique(y):
                members = np.flatnonzero(y == label)
                far = np.linalg.norm(X[members] - center, axis=1)
                rows += members[np.argsort(far)[:scale]].tolist()
            B, S_ridge, _ = pencil(X[rows], y[rows], 1.0)
            q = len(np.unique(y)) - 1
            out.append(linalg.eigh(B, S_ridge)[1][:, ::-1][:, :q].T)
    return np.concatenate(out)


@pytest.mark.parametrize("D", [6, 70])
def test_local_basis_with_one_region_and_with_every_row_a_centre(D):
    X, y = rows_of(20, D, 3)
    q = 2
    one = local_fisher_basis(X, y, q, scales=[4], random_state=0)
    assert_same_lines(one, brute_basis(X, y, [X.mean(axis=0)], [4]), atol=1e-7)
    every = local_fisher_basis(X, y, 10_000, scales=(3, 5), random_state=0)
    assert every.shape == (2 * 20 * q, D)  # no more regions than rows
    expected = brute_basis(X, y, X, (3, 5))
    for part, other in ((every[:40], expected[:40]), (every[40:], expected[40:])):
        overlap = np.abs(other @ part.T) / np.linalg.norm(other, axis=1, keepdims=True)
        np.testing.assert_allclose(overlap.max(axis=1), 1.0, atol=1e-7)


def test_default_scales_depend_on_the_number_of_features():
    for D, scales in ((50, (10, 20)), (51, (50, 20))):
        X, y = rows_of(150, D, 2)
        default = local_fisher_basis(X, y, 4, random_state=0)
        explicit = local_fisher_basis(X, y, 4, scales=scales, random_state=0)
        np.testing.assert_array_equal(default, explicit)


@pytest.mark.parametrize("kind", [tuple, np.array])
def test_scales_may_be_any_sequence(kind):
    X, y = rows_of(60, 4, 3)
    basis = local_fisher_basis(X, y, 8, scales=[5, 10], random_state=0)
    again = local_fisher_basis(X, y, 8, scales=kind([5, 10]), random_state=0)
    np.testing.assert_array_equal(again, basis)
    # one region at each scale holds the samples of each class nearest to the mean
    both = local_fisher_basis(X, y, 4, scales=kind([5, 10]), random_state=0)
    X = X - X.mean(axis=0)
    for scale, found in ((5, both[:2]), (10, both[2:])):
        near = np.argsort(np.sum(X**2, axis=1))
        region = np.concatenate([near[y[near] == code][:scale] for code in range(3)])
        np.testing.assert_allclose(found, fisher_directions(X[region], y[region]), atol=1e-8)


def test_csr_basis_equals_dense():
    X, y = rows_of(40, 90, 3)
    X[np.abs(X) < 1.0] = 0
    kept = X.copy()
    a = local_fisher_basis(X, y, 12, random_state=0)
    b = local_fisher_basis(sparse.csr_matrix(X), y, 12, random_state=0)
    np.testing.assert_allclose(a, b, atol=1e-8)
    np.testing.assert_array_equal(X, kept)


def test_csr_entries_that_are_given_twice_count_twice_and_stay_as_they_are():
    X, y = rows_of(40, 60, 3)
    half = sparse.csr_array(np.tile(X / 2, 2))
    indices = half.indices % 60
    double = sparse.csr_array((half.data.copy(), indices.copy(), half.indptr), shape=X.shape)
    V = local_fisher_basis(double, y, 6, random_state=0)
    np.testing.assert_allclose(V, local_fisher_basis(X, y, 6, random_state=0), atol=1e-8)
    np.testing.assert_array_equal(double.data, half.data)
    np.testing.assert_array_equal(double.indices, indices)


def test_csr_rows_of_many_features_stay_sparse():
    rng = np.random.default_rng(0)
    X = sparse.random_array((60, 200_000), density=1e-4, rng=rng, format="csr")
    V = local_fisher_basis(X, np.arange(60) % 2, 4, scales=(10, 20), random_state=0)
    assert V.shape == (4, 200_000)  # a D x D matrix would take 320 gigabytes
    assert np.isfinite(V).all()


def test_six_rows_a_class_give_one_region():
    rng = np.random.default_rng(1)
    y = np.repeat(np.arange(26), 6)
    X = rng.standard_normal((26, 617))[y] + rng.standard_normal((156, 617))
    F = local_fisher_basis(X, y, 500, random_state=0)
    assert F.shape == (500, 617)
    assert np.linalg.matrix_rank(F) == 25


def test_small_classes_duplicates_and_repeatability():
    X, y = rows_of(24, 5, 3)
    y[y == 2] = 0
    y[0] = 2  # a class of one row
    X, y = np.repeat(X, 3, axis=0), np.repeat(y, 3)
    F = local_fisher_basis(X, y, 30, random_state=0)
    assert np.isfinite(F).all()
    np.random.seed(5)  # noqa: NPY002 - the global state must not matter
    np.testing.assert_array_equal(F, local_fisher_basis(X, y, 30, random_state=0))
    assert local_fisher_basis(np.ones((9, 4)), np.arange(9) % 3, 5).shape == (0, 4)


def test_mixed_row_lengths():
    X, y = rows_of(30, 8, 3)
    X[::2] *= 1e4
    X[1::2] *= 1e-4
    assert np.isfinite(local_fisher_basis(X, y, 12, random_state=0)).all()
    assert np.isfinite(fisher_directions(X, y)).all()


@pytest.mark.parametrize(
    ("X", "y", "said"),
    [
        (np.eye(3), ["a"] * 3, "3 samples of 1 classes"),
        (np.zeros((0, 3)), [], "0 samples of 0 classes"),
        (np.eye(3), [0, 1], r"inconsistent.*\[3, 2\]"),
        (np.array([[1.0, np.nan], [0, 1]]), [0, 1], r"X\[0, 1\] is nan"),
        (np.array([[1.0, 0], [np.inf, 1]]), [0, 1], r"X\[1, 0\] is inf"),
    ],
)
def test_clear_errors_for_rows(X, y, said):
    for function in (fisher_directions, class_scatter, lambda X, y: local_fisher_basis(X, y, 3)):
        with pytest.raises(ValueError, match=said):
            function(X, y)


@pytest.mark.parametrize("bad", [0, -1, 1.5, True, "3"])
def test_clear_errors_for_counts(bad):
    X, y = rows_of(12, 3, 2)
    with pytest.raises(ValueError, match=f"n_basis={bad!r}"):
        local_fisher_basis(X, y, bad)
    with pytest.raises(ValueError, match=f"n_directions={bad!r}"):
        fisher_directions(X, y, bad)
    with pytest.raises(ValueError, match=f"scales={bad!r}"):
        local_fisher_basis(X, y, 3, scales=[bad])


def test_clear_errors_for_the_ridge():
    X, y = rows_of(12, 3, 2)
    for bad in (-1, np.nan, np.inf, "a"):
        with pytest.raises(ValueError, match=f"regularization={bad!r}"):
            fisher_directions(X, y, regularization=bad)
    with pytest.raises(ValueError, match="regularization is too small"):
        fisher_directions(np.c_[X, np.ones(12)], y, regularization=0)
    with pytest.raises(ValueError, match="scales"):
        local_fisher_basis(X, y, 3, scales=[])


@pytest.mark.parametrize("n_features", [5, 2**31 - 1])
def test_indices_are_short_where_they_suffice(n_features):
    X = sparse.csr_array(([2.0, 7.0], [[0, 1], [3, 1]]), shape=(2, 5))
    long = sparse.csr_array(X)
    long.resize(2, n_features)
    long.indices, long.indptr = long.indices.astype(np.int64), long.indptr.astype(np.int64)
    short = with_short_indices(long)
    assert (short.indices.dtype, short.indptr.dtype) == (np.int32, np.int32)
    assert short.shape == (2, n_features)
    np.testing.assert_array_equal(short[:, :5].toarray(), X.toarray())


def test_indices_stay_long_where_they_must_and_dense_samples_as_they_are():
    wide = sparse.csr_array(([1.0], [2**31 + 1], [0, 1, 1]), shape=(2, 2**31 + 2))
    for X in (wide, np.eye(2, 3)):
        assert with_short_indices(X) is X


@pytest.mark.parametrize(("n_triplets", "size"), [(600, 120), (300, 100)])
def test_a_region_of_triplets_holds_a_fifth_of_them_or_a_hundred(n_triplets, size):
    rng = np.random.default_rng(n_triplets)
    X = rng.normal(size=(60, 4)) * [1.0, 2.0, 3.0, 4.0]
    triplets = rng.integers(0, 60, size=(n_triplets, 3))
    found = triplet_directions(X, triplets, 8, random_state=5)
    center = triplets[np.random.RandomState(5).randint(n_triplets, size=1)[0], 0]
    nearest = np.argsort(np.sum((X[triplets[:, 0]] - X[center]) ** 2, axis=1), kind="stable")
    expected = []
    for region in (triplets, triplets[nearest[:size]]):
        near, far = np.zeros((4, 4)), np.zeros((4, 4))
        for i, j, k in region:
            near += np.outer(X[i] - X[j], X[i] - X[j])
            far += np.outer(X[i] - X[k], X[i] - X[k])
        ratios, V = linalg.eig(far, near + np.trace(near) / 4 * np.eye(4))
        expected.extend(V.real.T[np.argsort(-ratios.real)])
    cosines = np.sum(found * expected, axis=1) / np.linalg.norm(found, axis=1)
    np.testing.assert_allclose(np.abs(cosines) / np.linalg.norm(expected, axis=1), 1.0, rtol=1e-7)


@pytest.mark.parametrize("regularization", [1e-4, 1.0])
@pytest.mark.parametrize("n", [11, 12, 13])  # fewer samples than features, as many, more
def test_directions_turn_with_the_samples(n, regularization):
    rng = np.random.default_rng(n)
    y = np.arange(n) % 3
    X = rng.normal(size=(n, 12)) + 3 * np.eye(3, 12)[y]
    turn = np.linalg.qr(rng.normal(size=(12, 12)))[0]
    V = fisher_directions(X, y, 2, regularization)
    turned = fisher_directions(X @ turn, y, 2, regularization) @ turn.T
    np.testing.assert_allclose(np.abs(np.sum(V * turned, axis=1)), 1.0, atol=1e-7)
