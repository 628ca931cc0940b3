"""Facts about USPS, Isolet and Sentiment that a right copy must show.

Skipped when there is no copy (LML_DATA or the cache); where ``CI`` is set nothing is skipped:
the download is tried, and its failure is a failure.
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import os
from pathlib import Path

import numpy as np
import pytest
from public_files import (
    PARSERS,
    REVIEW_FILES,
    RNG,
    damaged,
    isolet_text,
    same,
    served,
    usps_files,
    words_files,
    written,
)
from scipy import sparse
from sklearn.neighbors import KNeighborsClassifier

from lml.datasets import (
    COLLECTIONS,
    Source,
    load_arrays,
    load_isolet_tasks,
    load_sentiment_tasks,
    load_usps_tasks,
)

SPLITS = range(5)


def stored(name):
    """Arrays of a collection, or a skip that says why."""
    try:
        return load_arrays(name, download_if_missing="CI" in os.environ)
    except OSError as error:
        if "CI" in os.environ:
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def usps():
    return stored("usps")[0]


@pytest.fixture(scope="module")
def isolet():
    return stored("isolet")[0]


@pytest.fixture(scope="module")
def words():
    return stored("sentiment_words200")[0]


@pytest.fixture(scope="module")
def reviews():
    return stored("sentiment_raw")


def errors(X, y, Z, labels, k=1):
    """Number of wrong answers of Euclidean nearest neighbors."""
    return int((KNeighborsClassifier(k, algorithm="brute").fit(X, y).predict(Z) != labels).sum())


def mean_error(load, k, refit=False, **options):
    """Mean error in per cent over tasks and random splits."""
    rates = []
    for seed in SPLITS:
        for task in load(random_state=seed, **options):
            task = task.with_validation() if refit else task
            wrong = errors(task.X_train, task.y_train, task.X_test, task.y_test, k)
            rates.append(100 * wrong / len(task.y_test))
    return np.mean(rates)


# ---------------------------------------------------------------- USPS


def test_usps_counts(usps):
    counts = [np.bincount(usps["y"][usps["split"] == part]).tolist() for part in (0, 1)]
    assert counts[0] == [1194, 1005, 731, 658, 652, 556, 664, 645, 542, 644]
    assert counts[1] == [359, 264, 198, 166, 200, 160, 170, 147, 166, 177]
    assert len(np.unique(usps["Xq"], axis=0)) == 9298


def test_usps_nearest_neighbor(usps):
    X, train = usps["Xq"] / 1000, usps["split"] == 0
    assert errors(X[train], usps["y"][train], X[~train], usps["y"][~train]) == 113


def test_usps_tasks(usps):
    tasks = load_usps_tasks(random_state=0)
    sizes = [(len(t.y_train), len(t.y_validation), len(t.y_test)) for t in tasks]
    assert sizes == [(176, 44, 1979), (111, 28, 1250), (150, 37, 1685), (146, 37, 1648)]
    assert sum(map(sum, sizes)) == 7291
    for task in tasks:
        np.testing.assert_allclose(task.X_train.mean(axis=0), 0, atol=1e-12)


def test_usps_euclidean(usps):
    assert mean_error(load_usps_tasks, 1, refit=True) == pytest.approx(3.2, abs=0.3)


# ---------------------------------------------------------------- Isolet


def test_isolet_counts(isolet):
    assert np.bincount(isolet["group"])[1:].tolist() == [1560, 1560, 1560, 1558, 1559]
    assert np.bincount(isolet["group_by_speaker"])[1:].tolist() == [1560, 1560, 1559, 1559, 1559]
    table = np.zeros((6, 27), dtype=int)
    np.add.at(table, (isolet["group"], isolet["y"]), 1)
    expected = np.full((5, 26), 60)
    expected[3, 5], expected[4, 12] = 58, 59  # two F and one M are missing
    np.testing.assert_array_equal(table[1:, 1:], expected)


def test_isolet_blocks_share_speakers(isolet):
    """Pass k of block 3 and pass k of block 4 are nearest to each other, for every k."""
    X, y = isolet["Xq"] / float(isolet["divisor"]), isolet["y"]
    run = 1 + np.cumsum(np.diff(y, prepend=y[:1]) < 0)
    profiles = []
    for block in (3, 4):
        own = isolet["group"] == block
        rest, letters = X[own], y[own]
        for letter in np.unique(letters):
            rest[letters == letter] -= rest[letters == letter].mean(axis=0)
        profiles.append([rest[run[own] == k].mean(axis=0) for k in np.unique(run[own])])
    a, b = map(np.array, profiles)
    distances = ((a[:, None] - b) ** 2).sum(axis=-1)
    assert distances.shape == (60, 60)
    assert distances.argmin(axis=0).tolist() == distances.argmin(axis=1).tolist() == [*range(60)]


def test_isolet_speakers(isolet):
    np.testing.assert_array_equal((isolet["speaker"] + 29) // 30, isolet["group_by_speaker"])
    groups = [set(isolet["speaker"][isolet["group"] == g]) for g in (3, 4)]
    assert groups[0] == groups[1]
    assert len(groups[0]) == 60
    assert dict(zip(*np.unique(isolet["speaker"], return_counts=True), strict=True)) == {
        s: 51 if s in (85, 109, 124) else 52 for s in range(1, 151)
    }


def test_isolet_passes_of_groups_3_and_4_are_the_same_speakers(isolet):
    """Mean profiles, letter means removed: pass k is nearest to pass k, both ways."""
    X = isolet["Xq"] / 10000
    profiles = []
    for group in (3, 4):
        own = isolet["group"] == group
        rows, y, speaker = X[own], isolet["y"][own], isolet["speaker"][own]
        means = np.array([rows[y == letter].mean(axis=0) for letter in range(1, 27)])
        centered = rows - means[y - 1]
        profiles.append(np.array([centered[speaker == s].mean(axis=0) for s in range(61, 121)]))
    a, b = profiles
    squared = (a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T
    assert np.array_equal(squared.argmin(axis=0), np.arange(60))
    assert np.array_equal(squared.argmin(axis=1), np.arange(60))


def test_isolet_nearest_neighbor(isolet):
    X, train = isolet["Xq"] / 10000, isolet["group"] < 5
    assert errors(X[train], isolet["y"][train], X[~train], isolet["y"][~train]) == 178


def test_isolet_euclidean(isolet):
    assert mean_error(load_isolet_tasks, 1) == pytest.approx(33.5, abs=1)
    by_speakers = load_isolet_tasks("speakers", random_state=0)
    assert [len(t.y_test) for t in by_speakers] == [1092, 1092, 1091, 1091, 1091]


# ---------------------------------------------------------------- Sentiment


def test_words_counts(words):
    X, parts = words["X"], words["task"] * 3 + words["split"]
    assert np.bincount(parts).tolist() == [800, 400, 400] * 4
    balance = [np.bincount(words["y"][parts == p]).tolist()[1:] for p in range(12)]
    assert balance == [[400, 400], [200, 200], [200, 200]] * 4
    np.testing.assert_allclose(X.sum(axis=1), 1)
    assert X.min() == 0


def test_words_authors_split(words):
    one, two = (load_sentiment_tasks(split="authors", random_state=seed) for seed in (0, 1))
    for a, b in zip(one, two, strict=True):
        assert [len(a.y_train), len(a.y_validation), len(a.y_test)] == [800, 400, 400]
        np.testing.assert_array_equal(a.X_train, b.X_train)


def test_words_three_neighbors(words):
    assert mean_error(load_sentiment_tasks, 3) == pytest.approx(29.8, abs=1)


def matrices(reviews):
    for arrays in reviews:
        stored_parts = arrays["data"], arrays["indices"], arrays["indptr"]
        yield sparse.csr_array(stored_parts, shape=tuple(arrays["shape"].tolist()))


def test_reviews_counts(reviews):
    Xs = list(matrices(reviews))
    assert [X.shape for X in Xs] == [(2000, 35846)] * 4
    assert sum(X.nnz for X in Xs) == 962_261
    assert max(X.data.max() for X in Xs) == 61
    documents = sum(np.bincount(X.indices, minlength=35846) for X in Xs)
    assert documents.min() == 5
    duplicates = []
    for X, arrays in zip(Xs, reviews, strict=True):
        assert arrays["y"].tolist() == [1] * 1000 + [-1] * 1000
        rows = {(r.indices.tobytes(), r.data.tobytes()) for r in (X[[i]] for i in range(2000))}
        duplicates.append(2000 - len(rows))
        assert X.has_sorted_indices
        assert np.diff(X.indptr).min() > 0
    assert all(0 < n <= 46 for n in duplicates)


def test_reviews_vocabulary(reviews):
    """Column j is word j of the list, and the order is that of the parser."""
    path = Path(os.environ.get("LML_DATA", "")) / "sentiment_vocab.txt.gz"
    if not path.is_file():
        pytest.skip("the list of words is not in LML_DATA; it is not needed for loading")
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        words, counts = zip(*(line.rstrip("\n").split("\t") for line in stream), strict=True)
    documents = sum(np.bincount(X.indices, minlength=35846) for X in matrices(reviews))
    np.testing.assert_array_equal(documents, np.array(counts, dtype=int))
    encoded = [word.encode() for word in words]
    assert encoded == sorted(encoded)


def test_reviews_tasks(reviews):
    for task in load_sentiment_tasks("raw", random_state=0):
        assert sparse.issparse(task.X_train)
        assert task.X_train.shape == (1000, 35846)
        lengths = np.sqrt(task.X_test.multiply(task.X_test).sum(axis=1))
        np.testing.assert_allclose(lengths, 1)


# ---------------------------------------------------------------- the way from the public files


@pytest.fixture
def download(tmp_path, monkeypatch):
    """Load from a folder that is served on this machine, into an empty cache."""

    def load(name, folder, names):
        monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "home"))
        monkeypatch.delenv("LML_DATA", raising=False)
        with served(folder) as address:
            source = Source(PARSERS[name], tuple(address + file for file in names))
            here = dataclasses.replace(COLLECTIONS[name], sources=(source,))
            monkeypatch.setitem(COLLECTIONS, name, here)
            return load_arrays(name)

    return load


def test_full_usps(usps, tmp_path, download):
    names = usps_files(tmp_path, usps)
    same(download("usps", tmp_path, names)[0], usps)


def test_full_isolet(isolet, tmp_path, download):
    cut = isolet["group"] < 5
    contents = [isolet_text(isolet["Xq"][own], isolet["y"][own]) for own in (cut, ~cut)]
    blob = hashlib.sha1(b"blob %d\0" % len(contents[0]) + contents[0]).hexdigest()
    assert blob == "755a9eed7776ad9a3d025d52df1e81c6f23d7d7c"  # the published file, to the byte
    names = written(tmp_path, dict(zip(("train.data", "test.data"), contents, strict=True)))
    same(download("isolet", tmp_path, names)[0], isolet)


def test_full_words(words, tmp_path, download):
    names = words_files(tmp_path, words)
    same(download("sentiment_words200", tmp_path, names)[0], words)


def test_full_reviews(reviews, tmp_path, download):
    """Written out as review text and parsed again, the counts come back in the same columns."""
    tokens = [b"w%05d" % j for j in range(35846)]
    contents = []
    for X in matrices(reviews):
        for part in (X[:1000], X[1000:]):
            lines = []
            for a, b in zip(part.indptr, part.indptr[1:], strict=False):
                entries = zip(part.indices[a:b].tolist(), part.data[a:b].tolist(), strict=True)
                lines.append(b" ".join(b"%b:%d" % (tokens[j], n) for j, n in entries))
            contents.append(b" #label#:x\n".join([*lines, b""]))
    names = written(tmp_path, dict(zip(REVIEW_FILES, contents, strict=True)))
    for found, expected in zip(download("sentiment_raw", tmp_path, names), reviews, strict=True):
        same(found, expected)


@pytest.mark.parametrize("name", ["usps", "sentiment_words200", "sentiment_raw"])
def test_damaged_copies_are_refused_unless_no_array_changed(name, tmp_path, monkeypatch):
    first = stored(name)
    files = list(COLLECTIONS[name].digests)
    for file, arrays in zip(files, first, strict=True):
        np.savez_compressed(tmp_path / file, **arrays)
    monkeypatch.setenv("LML_DATA", str(tmp_path))
    intact = (tmp_path / files[0]).read_bytes()
    rng, unnoticed = RNG(3), 0
    for _ in range(25):
        (tmp_path / files[0]).write_bytes(damaged(intact, rng))
        try:  # bytes that no array depends on, such as dates, may differ
            found, said = load_arrays(name), None
        except ValueError as error:
            found, said = first, str(error)
        for arrays, expected in zip(found, first, strict=True):
            same(arrays, expected)
        if said is None:
            unnoticed += 1
        else:
            assert str(tmp_path / files[0]) in said
            assert "LML_DATA" in said
    assert unnoticed < 5
