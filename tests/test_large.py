"""Large tasks: the samples that are kept, and work that is bounded above their number."""

import builtins

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from work import work_of

from lml.lmnn import LMNN
from lml.scml import SCML
from lml.triplets import bounded_samples

MAKE = {
    "SCML": lambda **more: SCML(n_basis=8, n_steps=200, random_state=0, **more),
    "LMNN": lambda **more: LMNN(max_iter=5, random_state=0, **more),
}


def task(n, D=4, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    return rng.standard_normal((n, D)) + rng.standard_normal((3, D))[y], y


@pytest.mark.parametrize("sizes", [[50, 30, 20], [900, 90, 9, 1], [5] * 40, [400, 1, 1, 1]])
def test_classes_keep_their_share(sizes):
    codes = np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), sizes))
    X = np.arange(len(codes), dtype=float)[:, None]
    n = len(codes) // 2
    rows, kept = bounded_samples(X, codes, n, random_state=0)
    numbers = rows[:, 0].astype(int)
    assert len(kept) == n
    assert np.all(np.diff(numbers) > 0)  # no sample twice, in their order
    np.testing.assert_array_equal(kept, codes[numbers])
    # Webster's method, a seat at a time, after two for each class
    seats = np.minimum(sizes, 2)
    while seats.sum() < n:
        seats[np.argmax(np.where(seats < sizes, sizes / (2 * seats + 1), 0))] += 1
    # where two classes have equal claims on a seat, either may have it
    np.testing.assert_allclose(np.bincount(kept), seats, atol=len(set(sizes)) < len(sizes))


def test_every_sample_is_as_likely_as_its_class_mates():
    codes = np.repeat([0, 1], [30, 10])
    X = np.arange(40.0)[:, None]
    counts = np.zeros(40)
    rng = np.random.RandomState(0)
    for _ in range(2000):
        counts[bounded_samples(X, codes, 16, rng)[0][:, 0].astype(int)] += 1
    np.testing.assert_allclose(counts / 2000, 0.4, atol=0.06)  # five standard errors


@pytest.mark.filterwarnings("ignore:no weights lowered")  # of noise
@pytest.mark.parametrize("max_samples", [3, 10, 61])
def test_with_too_many_classes_there_are_triplets_still(max_samples):
    codes = np.append(np.arange(60), [5])  # one class of two, the others of one
    X = np.random.default_rng(0).standard_normal((61, 2))
    _, kept = bounded_samples(X, codes, max_samples, random_state=0)
    assert np.bincount(kept).max() == 2
    assert kept.max() + 1 == len(np.unique(kept)) >= 2
    for make in MAKE.values():
        make(max_samples=max_samples).fit(X, codes)


@pytest.mark.parametrize("name", MAKE)
def test_below_the_bound_nothing_changes(name):
    X, y = task(60)
    first, second = (MAKE[name](max_samples=m).fit(X, y).metric_ for m in (60, None))
    np.testing.assert_array_equal(first.to_dense(), second.to_dense())
    third = MAKE[name]().fit(X, y).metric_
    np.testing.assert_array_equal(first.to_dense(), third.to_dense())


@pytest.mark.parametrize("name", MAKE)
def test_above_the_bound_the_seed_decides(name):
    X, y = task(200)
    first = MAKE[name](max_samples=40).fit(X, y).metric_.to_dense()
    again = MAKE[name](max_samples=40).fit(X, y).metric_.to_dense()
    other = MAKE[name](max_samples=40).set_params(random_state=1).fit(X, y).metric_.to_dense()
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)


@pytest.mark.filterwarnings("ignore")  # of iterations that end early
@pytest.mark.parametrize("name", MAKE)
def test_above_the_bound_work_is_linear_and_memory_that_of_the_samples(name):
    small, large = (
        work_of(lambda n=n: MAKE[name](max_samples=100).fit(*task(n))) for n in (4000, 16000)
    )
    assert large.lines < 4.2 * small.lines
    assert large.numbers < 4.2 * small.numbers
    assert large.peak < 20 * 16000 * 4 * 8  # a few copies of the samples, no matrix of all pairs


@pytest.mark.parametrize("name", MAKE)
def test_a_bar_needs_tqdm_and_nothing_else_does(name, monkeypatch, capsys):
    X, y = task(30)
    MAKE[name](verbose=True).fit(X, y)
    assert name in capsys.readouterr().err
    importing = builtins.__import__

    def without_tqdm(module, *args, **kwargs):
        if module == "tqdm":
            raise ModuleNotFoundError(module)
        return importing(module, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_tqdm)
    MAKE[name]().fit(X, y)
    assert capsys.readouterr().err == ""
    learner = MAKE[name](verbose=True)
    with pytest.raises(ModuleNotFoundError, match="install it, or this package's extra progress"):
        learner.fit(X, y)
    with pytest.raises(NotFittedError):
        learner.transform(X)
