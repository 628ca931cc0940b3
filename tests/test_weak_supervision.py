"""Given triplets and pairs: what is learned, what is refused, and decisions about pairs."""

import pickle

import numpy as np
import pytest
from scipy import sparse
from scipy.linalg import eigh
from scipy.optimize import linprog
from sklearn.base import clone
from sklearn.metrics import f1_score, fbeta_score
from sklearn.neighbors import KNeighborsClassifier
from toy_tuples import tuples_of_samples

import lml.weak_supervision
from lml.evaluation import LifelongKNeighborsClassifier
from lml.fisher import triplet_directions
from lml.metrics import FactoredMetric
from lml.neighbors import MetricKNeighborsClassifier
from lml.oasis import OASIS
from lml.plda import LifelongPLDA
from lml.scml import SCML, triplet_differences
from lml.triplets import triplet_margins
from lml.weak_supervision import (
    OpenSetClassifier,
    PairClassifier,
    best_f_score,
    equal_error_rate,
    log_ratio_cost,
    pair_steps,
)

X, TRIPLETS, PAIRS, SIGNS = tuples_of_samples()
LEARNERS = [OASIS(n_steps=300, random_state=0), SCML(n_steps=2000, random_state=0)]


@pytest.mark.parametrize("learner", LEARNERS)
def test_numbers_and_arrays_and_sparse_samples_teach_the_same(learner):
    by_number = clone(learner).fit_triplets(TRIPLETS, X)
    for given in [(X[TRIPLETS],), (TRIPLETS.tolist(), sparse.csr_matrix(X))]:
        other = clone(learner).fit_triplets(*given)
        found = other.metric_.to_dense()
        np.testing.assert_allclose(found, by_number.metric_.to_dense(), rtol=1e-5, atol=1e-7)
        assert other.n_features_in_ == X.shape[1]


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((TRIPLETS,), "triplets has shape"),
        ((X[TRIPLETS[:, :2]],), "triplets has shape"),
        ((TRIPLETS[:0], X), "empty"),
        ((TRIPLETS + 0.5, X), "numbers of samples"),
        (([[0, 1, 40]], X), "numbers go from 0 to 39"),
        (([[0, 1, -1]], X), "numbers go from 0 to 39"),
        ((np.full((2, 3, 5), np.nan),), "NaN"),
    ],
)
def test_a_fit_of_triplets_that_fails_leaves_the_learner_as_it_was(learner, given, said):
    model = clone(learner).fit_triplets(TRIPLETS, X)
    before = model.__dict__.copy()
    with pytest.raises(ValueError, match=said):
        model.fit_triplets(*given)
    assert model.__dict__ == before


def test_oasis_takes_its_steps_on_the_given_triplets_only():
    exact = np.array([[2.0, 0, 0, 0, 0], [1, 1, 0, 0, 0], [0, 1, 1, 0, 0]])  # without rounding
    for samples, triplet in ((X, [3, 4, 5]), (exact, [0, 1, 2])):
        model = OASIS(np.inf, n_steps=50, init=np.zeros((5, 5)), random_state=0)
        model.fit_triplets([triplet], samples)
        # one triplet, learned once: the step of least length that gives it its margin
        x, near, far = samples[triplet]
        q = near - far
        expected = np.outer(x, q) / (x @ x * (q @ q))
        np.testing.assert_allclose(model.metric_.to_dense(), expected, atol=1e-12)
    assert model.n_updates_ == 1


def test_scml_comes_near_the_linear_program_of_its_triplets():
    model = SCML(n_basis=5, beta=0.0, n_steps=200_000, random_state=0).fit_triplets(TRIPLETS, X)
    Z = triplet_differences(X @ model.basis_.T, TRIPLETS)
    n, K = Z.shape
    cost = np.r_[np.zeros(K), np.full(n, 1 / n)]
    least = linprog(cost, np.hstack([Z, -np.eye(n)]), np.full(n, -1.0)).fun  # all are >= 0
    assert least <= model.objective_history_.min() <= least + 0.03
    wrong = dict.fromkeys(("learned", "euclid"), 0.0)
    for seed in range(1, 11):
        fresh, asked, _, _ = tuples_of_samples(seed=seed)
        for name, metric in zip(wrong, (model.metric_, FactoredMetric.identity(5)), strict=True):
            wrong[name] += np.mean(triplet_margins(metric, fresh, asked, "distance") < 0)
    assert wrong["learned"] < 0.8 * wrong["euclid"]


@pytest.mark.parametrize("n", [8, 60])
def test_directions_have_unit_length_and_do_not_move_with_the_origin(n):
    rng = np.random.default_rng(n)
    samples = rng.normal(size=(n, 20))
    triplets = rng.integers(n, size=(500, 3))
    F = triplet_directions(samples, triplets, 30, 0)
    np.testing.assert_allclose(np.sum(F**2, axis=1), 1.0)
    for far in (100.0, 1e6):
        moved = triplet_directions(samples + far, triplets, 30, 0)
        np.testing.assert_allclose(np.abs(np.sum(F * moved, axis=1)), 1.0, atol=1e-6)
    np.testing.assert_allclose(
        np.abs(np.sum(F * triplet_directions(sparse.csr_array(samples), triplets, 30, 0), axis=1)),
        1.0,
        atol=1e-6,
    )


def test_directions_of_one_region_are_those_of_the_definition_each_once():
    rng = np.random.default_rng(7)
    samples, triplets = rng.normal(size=(40, 6)), rng.integers(40, size=(100, 3))
    near, far = np.zeros((6, 6)), np.zeros((6, 6))
    for i, j, k in triplets:
        near += np.outer(samples[i] - samples[j], samples[i] - samples[j])
        far += np.outer(samples[i] - samples[k], samples[i] - samples[k])
    V = eigh(far, near + np.trace(near) / 6 * np.eye(6))[1][:, ::-1].T
    found = triplet_directions(samples, triplets, 30, 0)
    assert found.shape == (6, 6)  # a hundred triplets are one region
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    np.testing.assert_allclose(np.abs(np.sum(V * found, axis=1)), 1.0, atol=1e-9)


def test_equal_samples_give_no_direction_of_their_own():
    assert triplet_directions(np.ones((4, 9)), np.array([[0, 1, 2]]), 5).shape == (0, 9)


# --- pairs --------------------------------------------------------------------------------


def test_pairs_are_learned_with_their_threshold():
    X, _, pairs, signs = tuples_of_samples(
        n=300
    )  # pairs among 40 samples teach too little in some draws
    model = OASIS(random_state=0, n_steps=5000).fit_pairs(pairs, signs, X)
    fresh, _, asked, truth = tuples_of_samples(n=300, seed=1)
    said = np.where(model.pair_score(fresh[asked]) > model.threshold_, 1, -1)
    start = OASIS(random_state=0, n_steps=0).fit_pairs(pairs, signs, X)
    before = np.where(start.pair_score(fresh[asked]) > start.threshold_, 1, -1)
    assert np.mean(said != truth) < 0.6 * np.mean(before != truth)
    by_array = OASIS(random_state=0, n_steps=5000).fit_pairs(X[pairs], signs)
    np.testing.assert_array_equal(by_array.metric_.to_dense(), model.metric_.to_dense())
    labels = np.arange(len(X)) % 2
    assert not hasattr(model.fit(X, labels), "threshold_")  # that was of the pairs


def test_a_step_on_a_pair_gives_it_its_margin_unless_the_cap_binds():
    for t in range(len(PAIRS)):
        W, b, (loss,), (step,) = pair_steps(X, PAIRS, SIGNS, [t], 0.05, np.eye(5))
        margin = SIGNS[t] * (X[PAIRS[t, 0]] @ W @ X[PAIRS[t, 1]] - b)
        assert 0 <= step <= 0.05
        if loss > 0 and step < 0.05:
            assert abs(margin - 1) < 1e-10
        assert (step > 0) == (loss > 0)


def test_steps_on_pairs_start_halfway_and_go_no_further_than_they_must():
    """Each step is the nearest pair of matrix and threshold, by least squares."""
    W = np.random.default_rng(2).normal(size=(5, 5))
    sizes = [(X[i] @ X[i]) * (X[j] @ X[j]) for i, j in PAIRS]
    unit = np.mean(sizes)
    scores = np.array([X[i] @ W @ X[j] for i, j in PAIRS])
    start = (scores[SIGNS == 1].mean() + scores[SIGNS == -1].mean()) / 2
    assert pair_steps(X, PAIRS, SIGNS, [], 1.0, W.copy())[1] == pytest.approx(start)
    for t in range(20):
        moved, threshold, _, _ = pair_steps(X, PAIRS, SIGNS, [t], np.inf, W.copy())
        i, j = PAIRS[t]
        # unknowns: the move of W, and that of the threshold in units of s
        row = SIGNS[t] * np.append(np.outer(X[i], X[j]).ravel(), -np.sqrt(unit))
        short = max(1.0 - SIGNS[t] * (scores[t] - start), 0.0)
        least = np.linalg.lstsq(row[None], [short], rcond=None)[0]
        np.testing.assert_allclose(moved - W, least[:-1].reshape(5, 5), atol=1e-10)
        assert threshold - start == pytest.approx(np.sqrt(unit) * least[-1])


def test_pairs_of_samples_that_are_zero_teach_nothing():
    given = np.zeros((3, 2)), np.array([[0, 1], [1, 2]]), np.array([1, -1])
    W, threshold, losses, steps = pair_steps(*given, [0, 1], np.inf, np.eye(2))
    assert (W.tolist(), threshold) == (np.eye(2).tolist(), 0.0)
    assert (losses.tolist(), steps.tolist()) == ([1.0, 1.0], [0.0, 0.0])


@pytest.mark.parametrize("c", [0.01, 100.0])
def test_scaled_pairs_are_learned_alike(c):
    model = OASIS(0.1, n_steps=500, random_state=0).fit_pairs(PAIRS, SIGNS, X)
    scaled = OASIS(0.1 / c**4, n_steps=500, init=np.eye(5) / c**2, random_state=0)
    scaled.fit_pairs(PAIRS, SIGNS, c * X)
    np.testing.assert_allclose(scaled.metric_.to_dense() * c**2, model.metric_.to_dense())
    np.testing.assert_allclose(scaled.threshold_, model.threshold_)


@pytest.mark.parametrize(
    ("y", "said"),
    [
        (np.ones(300), "of both at least one"),
        (np.arange(300) % 2, "give \\+1 for similar"),
        (SIGNS > 0, "give \\+1 for similar"),
        (SIGNS[:-1], "y has shape"),
    ],
)
def test_labels_of_pairs_are_plus_and_minus_one(y, said):
    with pytest.raises(ValueError, match=said):
        OASIS(random_state=0).fit_pairs(PAIRS, y, X)
    with pytest.raises(TypeError, match=r"[Ss]parse"):
        OASIS(random_state=0).fit_pairs(PAIRS, SIGNS, sparse.csr_array(X))


# --- decisions ----------------------------------------------------------------------------


class Given:
    """A learner whose score of a pair is its first number."""

    def pair_score(self, pairs):
        return np.asarray(pairs)[:, 0, 0]


def gaussian_scores(n=40_000, seed=0, slope=3.0, shift=2.0):
    """Pairs whose scores are Gaussian, and their true log ratios."""
    rng = np.random.default_rng(seed)
    y = np.repeat([1, -1], n // 2)
    ratios = 2.0 * (y + rng.normal(size=n))  # N(+1, 1) against N(-1, 1): the log ratio is 2 x
    scores = slope * ratios + shift
    return np.tile(scores[:, None, None], (1, 2, 1)), y, ratios


@pytest.mark.parametrize("calibration", ["affine", "isotonic"])
def test_calibration_finds_the_true_log_ratios(calibration):
    pairs, y, _ = gaussian_scores()
    model = PairClassifier(Given(), calibration=calibration).fit(pairs, y)
    fresh, labels, truth = gaussian_scores(seed=1)
    found = model.log_ratio(fresh)
    middle = abs(truth) < 4
    assert np.sqrt(np.mean((found - truth)[middle] ** 2)) < 0.25
    assert log_ratio_cost(found, labels) <= 1.01 * log_ratio_cost(truth, labels)


@pytest.mark.parametrize(("slope", "shift"), [(1e-6, 0.0), (1e6, 0.0), (1.0, 1e6), (1.0, -1e6)])
def test_ratios_depend_neither_on_the_unit_nor_on_the_origin_of_scores(slope, shift):
    pairs, y, _ = gaussian_scores(500)
    plain = PairClassifier(Given()).fit(pairs, y).log_ratio(pairs)
    moved = slope * pairs + shift
    found = PairClassifier(Given()).fit(moved, y).log_ratio(moved)
    np.testing.assert_allclose(found, plain, rtol=1e-5, atol=1e-5)


def test_unequal_numbers_of_labels_do_not_shift_the_ratios():
    pairs, y, ratios = gaussian_scores()
    kept = np.r_[:2000, 20_000:40_000]
    model = PairClassifier(Given()).fit(pairs[kept], y[kept])
    middle = abs(ratios) < 6  # all but one in a thousand
    np.testing.assert_allclose(model.log_ratio(pairs)[middle], ratios[middle], atol=0.6)
    assert model.prior_ == pytest.approx(1 / 11)
    # with this share of similar pairs the probabilities are the frequencies
    chances = model.predict_proba(pairs[kept])[:, 1]
    assert chances.mean() == pytest.approx(1 / 11, abs=0.01)
    assert ((chances >= 0.5) == (model.predict(pairs[kept]) == 1)).all()


def test_dear_mistakes_become_rare():
    pairs, y, _ = gaussian_scores()
    said = [PairClassifier(Given(), miss_cost=c).fit(pairs, y).predict(pairs) for c in (1, 20)]
    missed = [np.mean(answer[y > 0] < 0) for answer in said]
    assert missed[1] < missed[0] / 5
    prices = [20 * np.sum((y > 0) & (a < 0)) + np.sum((y < 0) & (a > 0)) for a in said]
    assert prices[1] < prices[0]


def test_equal_error_rate_of_gaussian_scores():
    pairs, y, _ = gaussian_scores()
    model = PairClassifier(Given(), threshold="equal_error_rate").fit(pairs, y)
    said = model.predict(pairs)
    both = np.mean(said[y > 0] < 0), np.mean(said[y < 0] > 0)
    assert abs(both[0] - both[1]) < 1e-3
    assert np.mean(both) == pytest.approx(0.1587, abs=0.005)  # of N(0, 1) beyond one
    assert equal_error_rate(pairs[:, 0, 0], y)[0] == pytest.approx(np.mean(both), abs=1e-3)


def test_equal_error_rate_is_the_best_of_all_thresholds():
    for seed in range(40):
        rng = np.random.default_rng(seed)
        y = np.array([1, -1, *rng.choice([-1, 1], 10)])
        scores = np.round(rng.normal(size=12) + 0.5 * y, 1)  # with ties
        rate, threshold = equal_error_rate(scores, y)
        refused = [np.mean(scores[y > 0] < t) for t in (threshold, *scores)]
        passed = [np.mean(scores[y < 0] >= t) for t in (threshold, *scores)]
        gaps = np.abs(np.subtract(refused, passed))
        assert gaps[0] == pytest.approx(gaps.min())
        assert rate == pytest.approx((refused[0] + passed[0]) / 2)


def test_a_pair_with_exactly_the_threshold_passes():
    scores, y = np.array([3.0, 2.0, 1.0, 0.0]), [1, -1, 1, -1]
    pairs = np.tile(scores[:, None, None], (1, 2, 1))
    model = PairClassifier(Given(), threshold="equal_error_rate").fit(pairs, y)
    assert equal_error_rate(scores, y)[1] == 2.0
    assert model.predict(pairs).tolist() == [1, 1, -1, -1]
    np.testing.assert_allclose(model.predict_proba(pairs).sum(axis=1), 1.0)


@pytest.mark.parametrize("beta", [0.5, 1.0, 3.0])
def test_the_threshold_of_the_f_score_is_the_best_of_all(beta):
    rng = np.random.default_rng(0)
    y = np.where(rng.random(200) < 0.3, 1, -1)
    scores = np.round(y + rng.normal(size=200), 1)  # with ties
    by_hand = [fbeta_score(y, np.where(scores >= t, 1, -1), beta=beta) for t in scores]
    found, threshold = best_f_score(scores, y, beta)
    assert found == pytest.approx(max(by_hand))
    said = np.where(scores >= threshold, 1, -1)
    assert fbeta_score(y, said, beta=beta) == pytest.approx(found)
    # with another share of similar pairs it is the score of pairs that are drawn so
    repeated = np.r_[np.repeat(scores[y > 0], 8), scores[y < 0]]
    labels = np.repeat([1, -1], [8 * np.sum(y > 0), np.sum(y < 0)])
    share = np.mean(labels > 0)
    assert best_f_score(scores, y, beta, share) == pytest.approx(
        best_f_score(repeated, labels, beta)
    )


def test_an_f_score_of_immense_or_tiny_beta_is_recall_or_precision():
    scores, y = [4.0, 3.0, 2.0, 1.0, 0.0], [1, -1, 1, 1, -1]
    assert best_f_score(scores, y, np.float64(1e200)) == (1.0, 1.0)  # the recall of three of three
    assert best_f_score(scores, y, 1e-200) == (1.0, 4.0)  # the precision of one of one
    for wrong in ({"beta": 0.0}, {"beta": np.nan}, {"prior": 1.0}, {"prior": 0.0}):
        with pytest.raises(ValueError, match="give a number"):
            best_f_score(scores, y, **wrong)


def test_a_classifier_of_pairs_takes_the_threshold_of_its_f_score():
    pairs, y, _ = gaussian_scores(4000)
    scores = {}
    for name in ("cost", "f_score", "equal_error_rate"):
        model = PairClassifier(Given(), threshold=name).fit(pairs[::3], y[::3])
        scores[name] = f1_score(y[::3], model.predict(pairs[::3]))
    assert max(scores.values()) == scores["f_score"]
    shares = []
    for beta in (0.2, 5.0):
        model = PairClassifier(Given(), threshold="f_score", beta=beta).fit(pairs, y)
        shares.append(np.mean(model.predict(pairs) > 0))
    assert shares[0] < 0.5 < shares[1]


@pytest.mark.parametrize("calibration", ["affine", "isotonic"])
def test_separable_pairs_stay_finite(calibration):
    pairs = np.tile(np.arange(10.0)[:, None, None], (1, 2, 1))
    model = PairClassifier(Given(), calibration=calibration).fit(pairs, np.repeat([-1, 1], 5))
    assert np.isfinite(model.log_ratio(pairs * 10)).all()
    assert model.score(pairs, np.repeat([-1, 1], 5)) == 1.0


def test_isotonic_ratios_know_neither_the_numbers_of_labels_nor_certainty():
    """Counted by hand: equal scores say nothing, and the ends are those of n + 2 pairs."""
    pairs = np.tile(np.repeat([0.0, 1.0, 2.0], [4, 9, 2])[:, None, None], (1, 2, 1))
    y = np.array([-1] * 4 + [1, 1, 1, -1, -1, -1, -1, -1, -1] + [1] * 2)  # 5 similar, 10 not
    model = PairClassifier(Given(), calibration="isotonic").fit(pairs, y)
    middle = np.log((3 / 5) / (6 / 10))  # shares of each kind that score one
    end = np.log(16)  # 1 - 1/17 against 1/17
    np.testing.assert_allclose(model.log_ratio(pairs[[0, 4, -1]]), [-end, middle, end], atol=1e-9)


def test_a_classifier_of_pairs_is_copied_and_pickled_and_checked():
    model = PairClassifier(OASIS(random_state=0).fit_pairs(PAIRS, SIGNS, X)).fit(X[PAIRS], SIGNS)
    there = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(there.predict_proba(X[PAIRS]), model.predict_proba(X[PAIRS]))
    np.testing.assert_array_equal(there.classes_, [-1, 1])
    before = model.__dict__.copy()
    for bad in (
        {"prior": 1.0},
        {"calibration": "none"},
        {"threshold": 0.5},
        {"pass_cost": 0},
        {"miss_cost": 0},
        {"beta": 0},
    ):
        with pytest.raises(ValueError, match=next(iter(bad))):
            clone(model).set_params(**bad).fit(X[PAIRS], SIGNS)
    with pytest.raises(ValueError, match="y has shape"):
        model.fit(X[PAIRS], SIGNS[1:])
    assert model.__dict__ == before


def test_costs_that_can_be_counted():
    assert log_ratio_cost([0.0, 0.0], [1, -1]) == 1.0
    assert log_ratio_cost([np.log(3), -np.log(3)], [1, -1]) == pytest.approx(np.log2(4 / 3))
    assert lml.weak_supervision.log_ratio_cost([-1000.0, 5.0], [1, -1]) > 500  # no overflow


# --- open sets ----------------------------------------------------------------------------


def on_a_line(**parameters):
    """References at 0 and 10; validation samples of both classes, and outliers at 5 and 20."""
    known = MetricKNeighborsClassifier(n_neighbors=1).fit([[0.0], [10.0]], ["a", ("b", 1)])
    model = OpenSetClassifier(known, outlier_label="none", **parameters)
    return known, model.fit([[1.0], [8.0], [5.0], [20.0]], ["a", ("b", 1), "c", "d"])


def test_a_sample_far_from_all_references_gets_the_label_of_outliers():
    known, model = on_a_line()
    assert model.threshold_ == -4.0  # of the sample at 8, the farther of the known ones
    assert model.predict([[2.0], [8.1], [7.9], [-3.0]]).tolist() == ["a", ("b", 1), "none", "none"]
    np.testing.assert_allclose(model.decision_function([[3.0], [9.0]]), [-5.0, 3.0])
    assert known.predict([[-3.0]]).tolist() == ["a"]  # nothing of it has changed
    assert model.classes_.tolist() == known.classes_.tolist() == ["a", ("b", 1)]
    assert on_a_line(threshold="f_score")[1].threshold_ == -4.0
    there = pickle.loads(pickle.dumps(model))
    assert there.predict([[7.9]]).tolist() == ["none"]
    assert clone(model).set_params(classifier=known).get_params()["outlier_label"] == "none"


@pytest.mark.parametrize(
    ("parameters", "threshold"),
    [
        ({}, -25.0),  # one of four known samples is refused, one of three outliers passes
        ({"threshold": "f_score"}, -9.0),  # precision 1 and recall 3/4: an F-score of 6/7
        ({"threshold": "f_score", "beta": 3.0}, -81.0),  # all known samples pass
    ],
)
def test_each_threshold_of_an_open_set_is_the_one_of_its_name(parameters, threshold):
    known = MetricKNeighborsClassifier(n_neighbors=1).fit([[0.0]], ["a"])
    samples = [[1.0], [2.0], [3.0], [9.0], [5.0], [6.0], [7.0]]
    model = OpenSetClassifier(known, **parameters).fit(samples, ["a"] * 4 + ["b"] * 3)
    assert model.threshold_ == threshold


def test_a_threshold_without_outliers_or_without_known_samples_is_refused():
    _, model = on_a_line()
    before = model.__dict__.copy()
    for labels in (["a", "a"], ["c", "d"]):
        with pytest.raises(ValueError, match="of both at least one"):
            model.fit([[1.0], [8.0]], labels)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.fit([[1.0], [8.0]], ["a", "c", "d"])
    with pytest.raises(ValueError, match="threshold"):
        model.set_params(threshold="cost").fit([[1.0]], ["a"])
    model.set_params(threshold="equal_error_rate", outlier_label=("b", 1))
    with pytest.raises(ValueError, match=r"outlier_label=\('b', 1\) is the label of a known class"):
        model.fit([[1.0], [8.0], [5.0]], ["a", ("b", 1), "c"])
    model.set_params(outlier_label="none")
    assert model.set_params(threshold="equal_error_rate").__dict__ == before


def test_a_classifier_that_gives_distances_before_its_neighbors_is_refused():
    known = KNeighborsClassifier(n_neighbors=1).fit([[0.0], [10.0]], ["a", "b"])
    with pytest.raises(TypeError, match="give a MetricKNeighborsClassifier"):
        OpenSetClassifier(known).fit([[1.0], [5.0]], ["a", "c"])


def test_a_class_that_is_enrolled_later_is_known_without_another_fit(tmp_path):
    rng = np.random.default_rng(0)
    centers = 10 * np.concatenate([np.eye(8), -np.eye(8)])[:14]
    y = np.repeat(np.arange(14), 30)
    samples = centers[y] + rng.normal(size=(420, 8))
    learn, chosen, asked = (np.arange(420) % 3 == part for part in range(3))
    old = learn & (y < 12)
    learner = LifelongPLDA(random_state=0).partial_fit(samples[old], y[old], task="t")
    reader = LifelongKNeighborsClassifier(learner, n_neighbors=1)
    reader.fit(samples[old], y[old], task="t")
    model = OpenSetClassifier(reader, task="t", outlier_label=-1)
    model.fit(samples[chosen & (y < 13)], y[chosen & (y < 13)])
    assert np.mean(model.predict(samples[asked & (y == 13)]) == -1) > 0.8
    new = learn & (y == 13)
    reader.partial_fit(samples[new], y[new], task="t")
    assert np.mean(model.predict(samples[asked & (y == 13)]) == 13) > 0.8
    assert np.mean(model.predict(samples[asked & (y == 12)]) == -1) > 0.8
    assert model.classes_.tolist() == [*range(12), 13]
    # without pickle: the classifier by itself, and the threshold
    reader.save(tmp_path / "classifier")
    again = OpenSetClassifier(LifelongKNeighborsClassifier.load(tmp_path / "classifier"))
    again.set_params(task="t", outlier_label=-1).threshold_ = model.threshold_
    assert again.predict(samples).tolist() == model.predict(samples).tolist()
    assert again.classes_.tolist() == model.classes_.tolist()
