"""OASIS against the naive loop, its properties, scikit-learn's checks and odd inputs."""

import tracemalloc
import warnings

import numpy as np
import pytest
import scipy.linalg.blas
from scipy import sparse
from sklearn.datasets import make_blobs

from lml.lifelong import LifelongMetricLearner
from lml.metrics import FactoredMetric
from lml.oasis import OASIS, passive_aggressive_step
from lml.triplets import sample_triplets


def blobs(n=40, D=6, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(classes, size=n)
    return rng.normal(size=(n, D)) + rng.normal(size=(classes, D))[y], y


def naive(X, y, n_steps, C, seed, W):
    """The loop written out, with the update typed anew."""
    for i, j, k in sample_triplets(y, n_steps, seed):
        q = X[j] - X[k]
        loss = 1 - X[i] @ W @ q
        size = X[i] @ X[i] * (q @ q)
        if loss > 0 and size > 0:
            W = W + min(C, loss / size) * np.outer(X[i], q)
    return W


@pytest.mark.parametrize(("n", "D"), [(40, 6), (12, 30)])
@pytest.mark.parametrize("as_sparse", [False, True])
@pytest.mark.parametrize("C", [0.003, 1.0])
def test_both_forms_give_the_naive_iterates(n, D, as_sparse, C):
    X, y = blobs(n, D)
    given = sparse.csr_matrix(X) if as_sparse else X
    model = OASIS(C, n_steps=400, random_state=3).fit(given, y)
    W = naive(X, y, 400, C, 3, np.eye(D))
    np.testing.assert_allclose(model.metric_.to_dense(), W, atol=1e-10)


@pytest.mark.parametrize("D", [4, 60])
def test_init_is_the_start(D):
    X, y = blobs(30, D)
    start = np.random.default_rng(1).normal(size=(D, D))
    for init in (start, FactoredMetric.from_dense(start)):
        model = OASIS(n_steps=200, init=init, random_state=0).fit(X, y)
        W = naive(X, y, 200, 0.1, 0, start)
        np.testing.assert_allclose(model.metric_.to_dense(), W, atol=1e-9)


def test_a_step_cures_its_triplet_unless_the_cap_binds():
    rng = np.random.default_rng(0)
    for _ in range(100):
        V, rows = 0.01 * rng.normal(size=(5, 5)), rng.normal(size=(3, 5))
        W, step = passive_aggressive_step(V, *rows, 0.02)
        loss = 1 - rows[0] @ W @ (rows[1] - rows[2])
        assert 0 < step <= 0.02
        assert (abs(loss) < 1e-12) if step < 0.02 else (loss >= -1e-12)


def test_a_triplet_with_exactly_its_margin_gives_back_the_matrix():
    W = np.eye(2)
    found, step = passive_aggressive_step(W, *np.eye(2)[[0, 0, 1]], 10.0)
    assert found is W
    assert step == 0


def test_no_violation_no_update():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    X[:20, 0] += 500
    X[20:, 0] -= 500  # two centered classes 1e3 apart
    for given in (X, sparse.csr_matrix(X)):  # dense and kernel form
        model = OASIS(n_steps=500, random_state=0).fit(given, np.repeat([0, 1], 20))
        assert model.n_updates_ == 0
        np.testing.assert_array_equal(model.metric_.to_dense(), np.eye(3))
        assert not model.loss_curve_.any()


def test_zero_steps_keep_the_start():
    X, y = blobs()
    model = OASIS(n_steps=0).fit(X, y)
    np.testing.assert_array_equal(model.metric_.to_dense(), np.eye(6))


@pytest.mark.parametrize("D", [3, 50])
def test_duplicates_and_zero_rows_stay_finite(D):
    X, y = blobs(8, D)
    X[0] = 0
    X, y = np.repeat(X, 3, axis=0), np.repeat(y, 3)
    y[:3] = y[3]
    model = OASIS(n_steps=300, random_state=0).fit(X, y)
    assert np.isfinite(model.metric_.to_dense()).all()


def test_same_seed_same_bits_whatever_the_global_seed():
    X, y = blobs()
    first = OASIS(n_steps=300, random_state=0).fit(X, y).metric_.to_dense()
    np.random.default_rng(5).normal()
    second = OASIS(n_steps=300, random_state=0).fit(X, y).metric_.to_dense()
    assert np.array_equal(first, second)


def test_renamed_labels_change_nothing():
    X, y = blobs()
    names = np.array(["zebra", "Ant", "ant"], dtype=object)[y]
    a = OASIS(n_steps=300, random_state=0).fit(X, y).metric_.to_dense()
    b = OASIS(n_steps=300, random_state=0).fit(X, names).metric_.to_dense()
    np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("C", [0, -1, np.nan, "much"])
def test_bad_aggressiveness(C):
    with pytest.raises(ValueError, match="aggressiveness"):
        OASIS(C).fit(*blobs())


@pytest.mark.parametrize("n_steps", [-1, 2.5, None])
def test_bad_n_steps(n_steps):
    with pytest.raises(ValueError, match="n_steps"):
        OASIS(n_steps=n_steps).fit(*blobs())


def test_init_of_another_width_is_refused_with_both_numbers():
    with pytest.raises(ValueError, match="4 features, but X has 6"):
        OASIS(init=np.eye(4)).fit(*blobs())


def test_one_class_is_refused():
    X, _ = blobs()
    with pytest.raises(ValueError, match="class"):
        OASIS().fit(X, np.zeros(len(X)))


@pytest.mark.parametrize("n", [1, 2])
def test_too_few_rows_are_refused_with_the_least_number_that_works(n):
    X, y = np.eye(3), np.array([0, 0, 1])
    with pytest.raises(ValueError, match="minimum of 3"):
        OASIS().fit(X[:n], y[:n])
    assert np.isfinite(OASIS(n_steps=20, random_state=0).fit(X, y).metric_.to_dense()).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("as_sparse", [False, True])
def test_bad_values_are_refused_with_their_place(bad, as_sparse):
    X, y = blobs()
    X[7, 2] = bad
    model = OASIS(n_steps=10)
    with pytest.raises(ValueError, match=rf"X\[7, 2\] is {bad}"):
        model.fit(sparse.csr_matrix(X) if as_sparse else X, y)
    assert not hasattr(model, "metric_")


def test_a_lone_row_is_no_anchor():
    X, y = blobs(20, 30)
    y[:] = np.arange(20) % 2
    y[4] = 2
    model = OASIS(n_steps=500, random_state=0).fit(X, y)
    change = model.metric_ - FactoredMetric.identity(30)
    other = np.linalg.qr(np.delete(X, 4, axis=0).T)[0]  # all rows but the lone one
    inside = change.to_dense().T @ (X[4] - other @ (other.T @ X[4]))
    outside = change.to_dense() @ (X[4] - other @ (other.T @ X[4]))
    assert np.abs(inside).max() < 1e-9  # never on the anchor's side
    assert np.abs(outside).max() > 1e-6  # but a negative


@pytest.mark.filterwarnings("ignore:the mean of the samples")  # all are equal
@pytest.mark.parametrize(("n", "D"), [(6, 4), (6, 60), (40, 60)])  # dense, score, kernel form
def test_equal_rows_of_two_classes_are_skipped(n, D):
    X = np.repeat(np.random.default_rng(0).normal(size=(1, D)), n, axis=0)
    model = OASIS(n_steps=100, random_state=0).fit(X, np.arange(n) % 2)
    assert model.n_updates_ == 0


@pytest.mark.parametrize("D", [4, 60])
def test_the_layout_and_kind_of_the_input_do_not_matter(D):
    X, y = blobs(30, D)
    X = X.astype(np.float32).astype(float)  # so that single precision holds the same rows
    wide = np.zeros((60, 2 * D))
    wide[::2, ::2] = X
    locked = X.copy()
    locked.flags.writeable = False
    first = OASIS(n_steps=200, random_state=0).fit(X, y).metric_.to_dense()
    kinds = [X.astype(np.float32), np.asfortranarray(X), wide[::2, ::2], locked, X.tolist()]
    for given in [*kinds, sparse.csc_matrix(X), sparse.csr_array(X)]:
        again = OASIS(n_steps=200, random_state=0).fit(given, y).metric_.to_dense()
        np.testing.assert_allclose(again, first, atol=1e-10)


def test_rows_of_very_different_size_stay_finite():
    X, y = blobs(30, 5)
    X[::2] *= 1e4
    X[1::2] *= 1e-4
    for given in (X, sparse.csr_matrix(X)):
        model = OASIS(n_steps=1000, random_state=0).fit(given, y)
        assert np.isfinite(model.metric_.to_dense()).all()


def test_scaled_rows_need_a_scaled_cap():
    X, y = blobs(40, 6)
    start = np.random.default_rng(2).normal(size=(6, 6))
    one = OASIS(0.01, n_steps=300, init=start, random_state=0).fit(X, y)
    ten = OASIS(0.01 / 1e4, n_steps=300, init=start / 100, random_state=0).fit(10 * X, y)
    np.testing.assert_allclose(100 * ten.metric_.to_dense(), one.metric_.to_dense(), atol=1e-9)


def test_loss_curve_is_the_mean_hinge_of_blocks():
    X, y = blobs(30, 4)
    model = OASIS(n_steps=120, random_state=0).fit(X, y)
    W, losses = np.eye(4), []
    for i, j, k in sample_triplets(y, 120, 0):
        losses.append(max(0.0, 1 - X[i] @ W @ (X[j] - X[k])))
        W, _ = passive_aggressive_step(W, X[i], X[j], X[k], 0.1)
    means = [block.mean() for block in np.array_split(losses, 50)]
    np.testing.assert_allclose(model.loss_curve_, means, atol=1e-12)


@pytest.mark.parametrize("factor_is_sparse", [False, True])
@pytest.mark.parametrize("rows_are_sparse", [False, True])
def test_a_factored_start_of_either_kind(factor_is_sparse, rows_are_sparse):
    X, y = blobs(20, 50)
    F, C = np.random.default_rng(3).normal(size=(4, 50)), np.diag([1.0, -0.5, 2.0, 0.1])
    init = FactoredMetric(0.5, sparse.csr_array(F) if factor_is_sparse else F, C)
    given = sparse.csr_array(X) if rows_are_sparse else X
    model = OASIS(n_steps=200, init=init, random_state=0).fit(given, y)
    W = naive(X, y, 200, 0.1, 0, 0.5 * np.eye(50) + F.T @ C @ F)
    np.testing.assert_allclose(model.metric_.to_dense(), W, atol=1e-9)


def test_no_large_matrix_for_many_features():
    rng = np.random.default_rng(0)
    X = sparse.random(30, 20_000, density=0.001, random_state=0, format="csr")
    model = OASIS(n_steps=200, random_state=0).fit(X, rng.integers(2, size=30))
    assert sparse.issparse(model.metric_.factor)
    assert model.metric_.nbytes < 1e6


def test_a_fit_that_fails_leaves_the_learner_as_it_was():
    X, y = make_blobs(30, n_features=4, random_state=0)
    model = OASIS(n_steps=50, random_state=0).fit(X, y)
    before, answers = dict(vars(model)), model.transform(X)
    for bad in (np.zeros(30), np.arange(30), [None, *y[1:]], y[1:]):
        with pytest.raises(ValueError, match=r"y|inconsistent"):
            model.fit(np.c_[X, X], bad)
        assert vars(model).keys() == before.keys()
        assert all(vars(model)[name] is before[name] for name in before)
    np.testing.assert_array_equal(model.transform(X), answers)
    assert model.fit(X, y) is model


@pytest.mark.parametrize(
    "names", [["b", "a", "c"], [b"b", b"a", b"c"], [0.5, 1.5, -2.5], [1, "a", b"c"], [3, 1, 2]]
)
def test_labels_are_names_of_any_type(names):
    X, y = make_blobs(30, n_features=4, random_state=0)
    plain = OASIS(n_steps=50, random_state=0).fit(X, y).metric_.to_dense()
    labels = np.empty(3, dtype=object)
    labels[:] = names
    for form in (labels[y], labels[y].tolist()):
        found = OASIS(n_steps=50, random_state=0).fit(X, form).metric_.to_dense()
        np.testing.assert_array_equal(found, plain)


def test_sparse_rows_with_long_indices():
    X, y = make_blobs(30, n_features=4, random_state=0)
    long = sparse.csr_array(X)
    long.indices, long.indptr = long.indices.astype(np.int64), long.indptr.astype(np.int64)
    found, plain = (
        OASIS(n_steps=50, random_state=0).fit(rows, y).metric_.to_dense()
        for rows in (long, sparse.csr_array(X))
    )
    np.testing.assert_array_equal(found, plain)
    assert long.indices.dtype == np.int64


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, np.float32("nan")])
@pytest.mark.parametrize("dtype", [float, object])
def test_a_missing_label_is_named_by_its_row(bad, dtype):
    X, y = blobs(20, 4)
    y = y.astype(dtype)
    y[5] = bad
    with pytest.raises(ValueError, match=r"y\[5\] is"):
        OASIS(n_steps=5).fit(X, y)


def test_a_continuous_target_is_refused():
    X, _ = blobs(40, 4)
    y = np.random.default_rng(0).normal(size=40)
    y[1] = y[0]
    with pytest.raises(ValueError, match="continuous"):
        OASIS(n_steps=5).fit(X, y)


def test_labels_in_a_list_may_be_tuples():
    X, y = blobs(20, 4, classes=2)
    found = OASIS(n_steps=60, random_state=0).fit(X, [[("a",), ("b", 2)][code] for code in y])
    oracle = OASIS(n_steps=60, random_state=0).fit(X, y)
    np.testing.assert_array_equal(found.metric_.to_dense(), oracle.metric_.to_dense())


def busy(n, D, seed=0):
    """Rows so short that nearly every triplet lacks its margin."""
    X, y = blobs(n, D, seed=seed)
    return 0.05 * X, y


def quiet(n, D, seed=0):
    """Rows so long that only some triplets lack their margin."""
    X, y = blobs(n, D, seed=seed)
    return 0.15 * X, y


@pytest.mark.parametrize(
    ("n", "D", "rows"), [(90, 30, busy), (40, 90, busy), (40, 90, blobs), (40, 90, quiet)]
)
@pytest.mark.parametrize("C", [0.01, 10.0, np.inf])
def test_long_streams_give_the_naive_iterates_whether_updates_are_rare_or_not(n, D, rows, C):
    X, y = rows(n, D)
    model = OASIS(C, n_steps=1500, random_state=1).fit(X, y)
    assert (model.n_updates_ > 700) == (rows is busy and C < 1)
    W = naive(X, y, 1500, C, 1, np.eye(D))
    np.testing.assert_allclose(model.metric_.to_dense(), W, atol=1e-10 * abs(W).max())


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csr_array, sparse.csc_array])
@pytest.mark.parametrize("n_steps", [64, 500])
def test_many_sparse_samples_are_learned_from_as_dense_ones_and_in_as_little_memory(kind, n_steps):
    n, D = 1500, 12
    X, y = blobs(n, D)
    X *= np.random.default_rng(1).random((n, D)) < 0.4
    given = kind(X)
    tracemalloc.start()
    model = OASIS(0.1, n_steps=n_steps, random_state=2).fit(given, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * n * n / 10
    dense = OASIS(0.1, n_steps=n_steps, random_state=2).fit(X, y)
    np.testing.assert_array_equal(model.metric_.to_dense(), dense.metric_.to_dense())
    W = naive(X, y, n_steps, 0.1, 2, np.eye(D))
    np.testing.assert_allclose(model.metric_.to_dense(), W, atol=1e-10)


def test_an_update_moves_the_scores_only_where_the_start_violates_few_triplets(monkeypatch):
    moved = []
    dger = scipy.linalg.blas.dger
    monkeypatch.setattr("lml.oasis.dger", lambda *args, **kw: moved.append(1) or dger(*args, **kw))
    X, y = blobs(40, 90)
    X *= 0.2  # all triplets have their margin
    X[:3] *= 0.2  # but those of three samples
    rare = OASIS(n_steps=300, random_state=0).fit(X, y)
    assert len(moved) == rare.n_updates_ > 0
    moved.clear()
    X, y = blobs(40, 90, classes=2)
    X = 0.05 * X + np.outer(2.0 * (-1.0) ** y, np.eye(90)[0])  # scores of other classes below zero
    y[:3] = 1 - y[:3]
    opposite = OASIS(n_steps=300, random_state=0).fit(X, y)
    assert len(moved) == opposite.n_updates_ > 0
    moved.clear()
    X, y = busy(90, 200)
    frequent = OASIS(n_steps=300, random_state=0).fit(X, y)
    assert not moved
    assert rare.n_updates_ < frequent.n_updates_


@pytest.mark.parametrize("D", [5, 80])
def test_a_stream_that_repeats_one_triplet_updates_until_it_is_cured(D, monkeypatch):
    rng = np.random.default_rng(0)
    X = 0.1 * rng.normal(size=(60, D))
    triplets = np.tile([[0, 1, 2]], (200, 1))
    monkeypatch.setattr("lml.oasis.draw_triplets", lambda *args: triplets)
    model = OASIS(0.5, n_steps=200).fit(X, np.arange(60) // 2)
    size = X[0] @ X[0] * ((X[1] - X[2]) @ (X[1] - X[2]))
    left = 1 - X[0] @ (X[1] - X[2])
    oracle = [max(left - 0.5 * size * t, 0.0) for t in range(200)]  # the cap binds, then none
    means = np.reshape(oracle, (50, 4)).mean(axis=1)
    np.testing.assert_allclose(model.loss_curve_, means, atol=1e-12)
    change = model.metric_.to_dense() - np.eye(D)
    assert np.linalg.matrix_rank(change, tol=1e-9) == 1


@pytest.mark.parametrize("n_steps", [1, 2, 63, 64, 65, 128, 129])
@pytest.mark.parametrize(("D", "as_sparse"), [(30, False), (150, False), (30, True)])
@pytest.mark.parametrize("rows", [blobs, busy])
def test_the_last_block_may_hold_one_step(n_steps, D, as_sparse, rows):
    X, y = rows(90, D)
    X *= 0.3 if rows is busy else 1.0
    given = sparse.csr_array(X) if as_sparse else X
    W = np.eye(D)
    losses, steps = [], []
    for i, j, k in sample_triplets(y, n_steps, 2):
        losses.append(max(0.0, 1 - X[i] @ W @ (X[j] - X[k])))
        W, step = passive_aggressive_step(W, X[i], X[j], X[k], 0.1)
        steps.append(step)
    if rows is busy:
        assert steps[-1] > 0  # to leave out the last step would show
    model = OASIS(n_steps=n_steps, random_state=2).fit(given, y)
    np.testing.assert_allclose(model.metric_.to_dense(), W, rtol=0, atol=1e-12)
    means = [block.mean() for block in np.array_split(losses, min(50, n_steps))]
    np.testing.assert_allclose(model.loss_curve_, means, rtol=0, atol=1e-12)
    assert model.n_updates_ == np.count_nonzero(steps)


def test_a_long_mean_is_said_of_triplets_and_pairs_too():
    X, y = blobs()
    X -= X.mean(axis=0)
    triplets = sample_triplets(y, 20, 0)
    pairs, signs = triplets[:, :2].copy(), np.ones(20, dtype=int)
    pairs[::2, 1], signs[::2] = triplets[::2, 2], -1
    model = OASIS(n_steps=20)
    for shift, warned in ((0.0, 0), (9.0, 4)):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            model.fit_triplets(triplets, X + shift)
            model.fit_pairs(pairs, signs, X + shift)
            LifelongMetricLearner(model).partial_fit_triplets(triplets, X + shift, task="t")
            LifelongMetricLearner(model).partial_fit_pairs(pairs, signs, X + shift, task="t")
        assert [str(one.message)[:24] for one in found] == ["the mean of the samples "] * warned
        assert {one.filename for one in found} <= {__file__}
