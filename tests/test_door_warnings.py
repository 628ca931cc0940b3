"""Warnings of scales and of means: which samples are warned of, and by whom."""

import warnings

import numpy as np
import pytest
from scipy import sparse

from lml.utils.validation import inside, warn_of_mean, warn_of_scales


def test_scales_are_those_of_dense_samples_of_users():
    X = np.random.default_rng(0).normal(size=(9, 3)) * [1.0, 1.0, 1e4]
    with pytest.warns(UserWarning, match="column 2 has more than 100 times"):
        warn_of_scales(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_scales(sparse.csr_array(X))
        warn_of_scales(X * [1.0, 1.0, 1e-3])
        warn_of_scales(np.ones((4, 3)))
        warn_of_scales(X[:0])
        warn_of_scales(X * [0.0, 0.0, 1.0])  # constant columns hide nothing
        with inside():
            warn_of_scales(X)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_a_mean_is_long_beside_the_deviation(form):
    X = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])  # each of length one
    with pytest.warns(UserWarning, match="mean of the samples is more than twice as long"):
        warn_of_mean(form(X + np.array([0.0, 2.001])))
    warn_of_mean(form(X + np.array([0.0, 1.999])))
    warn_of_mean(form(X))
    warn_of_mean(form(np.zeros((4, 3))))
    warn_of_mean(form(X[:0]))
    warn_of_mean(form(X[:1] + 5))  # one sample has no deviation
    with inside(), warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_mean(form(X + 5))


def test_an_interrupt_leaves_nobody_inside(monkeypatch):
    class Interrupted:
        now = False

        def get(self):
            return self.now

        def set(self, value):
            self.now = value
            if value:
                raise KeyboardInterrupt

    monkeypatch.setattr("lml.utils.validation._INSIDE", Interrupted())
    with pytest.raises(KeyboardInterrupt), inside():
        pass
    with pytest.warns(UserWarning, match="mean of the samples"):
        warn_of_mean(np.full((2, 1), 5.0))
