"""What hypothesis draws: seeds, scales, labels and small tables of samples."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, settings
from hypothesis import strategies as st

few = settings(max_examples=10)

seeds = st.integers(0, 2**32 - 1)
SCALES = st.sampled_from([2.0**-8, 0.5, 4.0, 2.0**10])


@st.composite
def labels(draw, most=14):
    """Class numbers of rows, two classes or more, one of them with two rows or more."""
    y = np.array(draw(st.lists(st.integers(0, 3), min_size=3, max_size=most)))
    sizes = np.unique(y, return_counts=True)[1]
    assume(len(sizes) > 1 and sizes.max() > 1)
    return y


@st.composite
def tables(draw, least=8, most=20, least_features=2, most_features=5, classes=3):
    """Generic rows and labels; each class has at least two rows."""
    rng = np.random.default_rng(draw(seeds))
    n, D = draw(st.integers(least, most)), draw(st.integers(least_features, most_features))
    n_classes = draw(st.integers(2, classes))
    y = np.r_[np.repeat(np.arange(n_classes), 2), rng.integers(n_classes, size=n - 2 * n_classes)]
    X = rng.normal(size=(n, D)) + 2 * rng.normal(size=(n_classes, D))[y]
    return X, rng.permutation(y)
