"""A task of a stream that is given by triplets or pairs in place of labels."""

import numpy as np
import pytest
from scipy.linalg import sqrtm
from toy_tuples import tuples_of_samples

from lml.lifelong import LifelongMetricLearner
from lml.oasis import OASIS
from lml.scml import SCML

X, TRIPLETS, PAIRS, SIGNS = tuples_of_samples()
LEARNERS = [OASIS(n_steps=300, random_state=0), SCML(n_steps=2000, random_state=0)]


def stream(base="oasis", sharing=0.6):
    """A learner of one task with labels and one with triplets."""
    learner = LifelongMetricLearner(base, sharing=sharing, random_state=0)
    learner.partial_fit(X, (X[:, 0] > 0).astype(int), task="labels")
    return learner.partial_fit_triplets(TRIPLETS, X, task="triplets")


@pytest.mark.parametrize("base", LEARNERS)
def test_a_task_given_by_triplets_is_stored_and_comes_back(base, tmp_path):
    learner = stream(base)
    learner.save(tmp_path / "learner.npz")
    there = LifelongMetricLearner.load(tmp_path / "learner.npz")
    labels = (X[:, 0] > 0).astype(int)
    for model in (learner, there):
        model.partial_fit(X, labels, task="triplets")
    found = there.task_metric("triplets").to_dense()
    np.testing.assert_array_equal(found, learner.task_metric("triplets").to_dense())
    record = there.tasks_["triplets"]
    assert (record.n_visits, record.n_samples) == (2, 2 * len(X))
    assert record.classes == tuple(dict.fromkeys(labels.tolist()))  # as they first appear


def test_triplets_as_arrays_teach_a_task_alike():
    learner = stream(sharing=0.0)
    other = stream(sharing=0.0).forget("triplets")
    other.partial_fit_triplets(X[TRIPLETS], task="triplets")
    assert other.tasks_["triplets"].n_samples == TRIPLETS.size
    found = other.metric_matrix("triplets")
    np.testing.assert_allclose(found, learner.metric_matrix("triplets"), atol=1e-9)


def test_auto_follows_the_tasks_with_labels_and_grows_without_any():
    learner = LifelongMetricLearner(random_state=0)
    for n_others in range(3):
        learner.partial_fit_triplets(TRIPLETS, X, task=n_others)
        assert learner.sharing_ == pytest.approx(0.9 * n_others / (n_others + 5))
    rng = np.random.default_rng(0)
    noisy = rng.normal(size=X.shape)
    for task in "ab":  # labels of noise: somebody makes mistakes
        learner.partial_fit(noisy, np.arange(len(X)) % 2, task=task)
    chosen = learner.sharing_
    assert learner.partial_fit_triplets(TRIPLETS, X, task="c").sharing_ == chosen


def test_a_base_learner_that_needs_labels_is_refused():
    with pytest.raises(TypeError, match="does not learn from triplets"):
        stream("lmnn")
    learner = LifelongMetricLearner("scml", random_state=0)
    with pytest.raises(TypeError, match="does not learn from pairs: use 'oasis'"):
        learner.partial_fit_pairs(PAIRS, SIGNS, X, task="pairs")
    assert not hasattr(learner, "tasks_")


def test_a_task_given_by_pairs_is_learned_from_them_in_shared_coordinates(tmp_path):
    """The pairs themselves teach: OASIS sees them in the coordinates of the first task."""
    learner = LifelongMetricLearner(FixedDraws(), sharing=0.7, code_rank=None)
    learner.partial_fit(X, (X[:, 0] > 0).astype(int), task="labels")
    root = sqrtm(learner.shared_metric_.to_dense()).real
    Z = X @ root
    scale = np.linalg.norm(Z) / np.linalg.norm(X)
    W = FixedDraws().fit_pairs(PAIRS, SIGNS, Z / scale).metric_.to_dense()
    assert abs(W - W.T).max() > 1e-3
    learner.partial_fit_pairs(PAIRS, SIGNS, X, task="pairs")
    expected = root @ (W + W.T) @ root / (2 * scale**2)
    np.testing.assert_allclose(learner.metric_matrix("pairs"), expected, atol=1e-9)
    # the same pairs as arrays; a file; and labels for the same task
    other = LifelongMetricLearner(FixedDraws(), sharing=0.0)
    for task, given in (("numbers", (PAIRS, SIGNS, X)), ("arrays", (X[PAIRS], SIGNS))):
        other.partial_fit_pairs(*given, task=task)
    matrices = other.metric_matrix("numbers"), other.metric_matrix("arrays")
    np.testing.assert_allclose(*matrices, atol=1e-9)
    assert other.tasks_["arrays"].n_samples == PAIRS.size
    auto = LifelongMetricLearner(random_state=0).partial_fit_pairs(PAIRS, SIGNS, X, task="pairs")
    auto.save(tmp_path / "learner.npz")
    there = LifelongMetricLearner.load(tmp_path / "learner.npz")
    for model in (auto, there):
        model.partial_fit(X, (X[:, 0] > 0).astype(int), task="pairs")
    np.testing.assert_array_equal(there.metric_matrix("pairs"), auto.metric_matrix("pairs"))


class FixedDraws(OASIS):
    """OASIS that draws alike whatever its seed is."""

    def fit_pairs(self, pairs, y, X=None):
        return OASIS(n_steps=300, random_state=3).fit_pairs(pairs, y, X)


@pytest.mark.parametrize(
    ("kind", "given", "said"),
    [
        ("triplets", (TRIPLETS, X[:, :3]), "features"),
        ("triplets", (TRIPLETS, X[:5]), "numbers go from 0 to 4"),
        ("triplets", (X[PAIRS],), "triplets has shape"),
        ("pairs", (PAIRS, SIGNS[:-1], X), "a label for each pair"),
        ("pairs", (PAIRS, np.ones(len(PAIRS)), X), "of both at least one"),
        ("pairs", (PAIRS, SIGNS, X[:5]), "numbers go from 0 to 4"),
        ("pairs", (PAIRS, SIGNS, X[:, :3]), "features"),
        ("pairs", (TRIPLETS, SIGNS, X), "pairs"),
    ],
)
def test_a_visit_of_tuples_that_fails_changes_nothing(kind, given, said):
    learner = stream()
    before = learner.__dict__.copy()
    with pytest.raises(ValueError, match=said):
        getattr(learner, f"partial_fit_{kind}")(*given, task="new")
    assert learner.__dict__ == before
    assert list(learner.tasks_) == ["labels", "triplets"]
