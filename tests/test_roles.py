"""Samples as queries and as references of an index of nearest neighbors."""

import numpy as np
import pytest
from scipy import sparse
from sklearn import config_context
from sklearn.base import BaseEstimator, clone

from lml.metrics import FactoredMetric, MetricLearnerMixin
from lml.plda.model import LogRatioMetric

RNG = np.random.default_rng(0)
D = 5
X = RNG.normal(size=(7, D))
Z = RNG.normal(size=(4, D))


class Learner(MetricLearnerMixin, BaseEstimator):
    """A learner of similarities that is told the metric."""

    metric_type = "similarity"

    def __init__(self, metric):
        self.metric = metric

    def fit(self, X, y=None):
        self.metric_ = self.metric
        self.n_features_in_ = X.shape[1]
        return self


@pytest.mark.parametrize(("alpha", "r"), [(0.5, 3), (0.0, 3), (0.0, 2 * D)])
def test_inner_products_of_queries_and_references_are_the_similarities(alpha, r):
    metric = FactoredMetric(alpha, RNG.normal(size=(r, D)), RNG.normal(size=(r, r)))
    learner = Learner(metric).fit(X)
    asked = learner.transform(X, role="query")
    listed = learner.transform(sparse.csr_array(Z), role="reference")
    np.testing.assert_allclose(asked @ listed.T, X @ metric.to_dense() @ Z.T, atol=1e-12)
    assert asked.shape[1] == min(r, D) if alpha == 0 else D
    assert not np.shares_memory(learner.transform(X, role="reference"), X)
    assert learner.index_space_ == "inner product"


@pytest.mark.parametrize("factor", [np.eye(D), np.eye(D)[::-1], np.zeros((0, D))])
@pytest.mark.parametrize("role", ["query", "reference", None])
def test_what_is_done_to_mapped_samples_is_not_done_to_the_samples(factor, role):
    given = X.copy()
    learner = Learner(FactoredMetric(float(not len(factor)), factor, np.ones(len(factor))))
    learner.fit(given).transform(given, role=role)[:] = np.nan
    np.testing.assert_array_equal(given, X)


METRICS = [FactoredMetric.identity(2), LogRatioMetric(np.zeros(2), np.eye(2), np.ones(2))]


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: type(metric).__name__)
@pytest.mark.parametrize("role", ["Query", "", None])
def test_an_unknown_role_is_not_taken_for_a_reference(metric, role):
    with pytest.raises(ValueError, match=r"role=.*give one of \('query', 'reference'\)"):
        metric.map_rows(np.eye(2), role)


@pytest.mark.parametrize("role", ["query", "reference"])
@pytest.mark.parametrize("output", ["pandas", "polars"])
def test_a_role_with_other_columns_than_have_names_is_refused_for_frames(output, role):
    metric = FactoredMetric(0.0, RNG.normal(size=(3, D)), np.array([1.0, -1.0, 1.0]))
    learner = Learner(metric).fit(X)
    array = learner.transform(X, role=role)
    said = f"role='{role}' gives 3 columns.*names for 2"
    asked_of_all = config_context(transform_output=output)
    with asked_of_all, pytest.raises(ValueError, match=said):
        learner.transform(X, role=role)
    learner.set_output(transform=output)  # asked of this one
    assert learner.transform(X).shape == (7, 2)
    with pytest.raises(ValueError, match="with a role"):
        learner.transform(X, role=role)
    np.testing.assert_array_equal(
        learner.set_output(transform="default").transform(X, role=role), array
    )


@pytest.mark.parametrize("role", ["query", "reference"])
@pytest.mark.parametrize("output", ["pandas", "polars"])
def test_a_role_with_as_many_columns_as_have_names_gives_a_frame(output, role):
    learner = Learner(FactoredMetric(0.0, RNG.normal(size=(3, D)), np.ones(3))).fit(X)
    array = learner.transform(X, role=role)
    frame = clone(learner).fit(X).set_output(transform=output).transform(X, role=role)
    assert list(frame.columns) == ["learner0", "learner1", "learner2"]
    np.testing.assert_array_equal(frame.to_numpy(), array)
