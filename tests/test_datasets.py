"""Tasks, splits, preprocessing, loaders, and the two streams that need no files."""

from __future__ import annotations

import dataclasses
import itertools
import pickle
from functools import partial

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_digits

from lml import datasets
from lml.datasets import (
    Task,
    load_arrays,
    load_digits_tasks,
    load_few_shot_digits,
    load_isolet_tasks,
    load_sentiment_tasks,
    load_usps_tasks,
    make_embedding_stream,
    make_task,
    split_samples,
)

PARTS = ("train", "validation", "test")
RNG = np.random.default_rng


def samples(task):
    return [getattr(task, f"X_{part}") for part in PARTS]


def labels(task):
    return [getattr(task, f"y_{part}") for part in PARTS]


def made_up(name, download_if_missing=True):
    """What `load_arrays` returns, with 60 samples a task, or 20 of the words and reviews."""
    X, y = RNG(0).integers(-9, 9, size=(300, 3)), np.repeat(np.arange(10), 30)
    usps = {"Xq": X, "divisor": np.array(10), "y": y, "split": 0 * y}
    isolet = {**usps, "group": 1 + y // 2, "group_by_speaker": 1 + (y + 2) % 10 // 2}
    words = {
        "X": RNG(1).random((80, 3)),
        "y": 1 + np.arange(80) % 2,
        "task": np.repeat(np.arange(4), 20),
        "split": np.tile(np.repeat(range(3), [10, 4, 6]), 4),
    }
    if name == "sentiment_raw":
        return [stored_counts(counts) for counts in np.split(made_up_counts(), 4)]
    return [{"usps": usps, "isolet": isolet, "sentiment_words200": words}[name]]


def made_up_counts():
    counts = RNG(2).poisson(0.7, (80, 5)) * (RNG(3).random((80, 5)) < 0.8)
    counts[:, 4] = 0  # a word that never occurs
    return counts.astype(np.uint8)


def stored_counts(counts):
    X = sparse.csr_array(counts)
    parts = {"data": X.data, "indices": X.indices, "indptr": X.indptr}
    return {**parts, "shape": np.array(X.shape), "y": 1 - 2 * (np.arange(len(counts)) % 2)}


@pytest.fixture
def made_up_files(monkeypatch):
    monkeypatch.setattr(datasets, "load_arrays", made_up)


# ---------------------------------------------------------------- the digits


def test_digits_tasks_partition_the_digits():
    X, y = load_digits(return_X_y=True)
    tasks = load_digits_tasks(random_state=3, center=False)
    assert [task.name for task in tasks] == ["0-1", "2-3", "4-5-6", "7-8-9"]
    found = np.vstack([np.vstack(samples(task)) for task in tasks]) * 16
    found_labels = np.concatenate([np.concatenate(labels(task)) for task in tasks])
    order, other = np.lexsort(found.T), np.lexsort(X.T)
    np.testing.assert_array_equal(found[order], X[other])
    assert np.bincount(found_labels).tolist() == np.bincount(y).tolist()
    assert all(label.dtype == np.int64 for task in tasks for label in labels(task))
    assert [set(np.unique(task.y_test)) for task in tasks] == [{0, 1}, {2, 3}, {4, 5, 6}, {7, 8, 9}]


def test_samples_keep_their_labels():
    X, y = load_digits(return_X_y=True)
    known = {row.tobytes(): label for row, label in zip(X / 16.0, y, strict=True)}
    tasks = load_digits_tasks(random_state=1, center=False)
    for task in tasks + load_few_shot_digits(random_state=1, center=False):
        for rows, found in zip(samples(task), labels(task), strict=True):
            assert [known[row.tobytes()] for row in rows] == found.tolist()


@pytest.mark.parametrize(
    "load", [load_digits_tasks, load_few_shot_digits, partial(make_embedding_stream, 3)]
)
def test_same_seed_same_bits_whatever_the_global_state(load):
    np.random.seed(0)  # noqa: NPY002
    first = list(load(random_state=7))
    np.random.seed(1)  # noqa: NPY002
    second, third = load(random_state=7), load(random_state=8)
    for a, b, c in zip(first, second, third, strict=True):
        assert all(np.array_equal(p, q) for p, q in zip(samples(a), samples(b), strict=True))
        assert not np.array_equal(a.X_train, c.X_train)


def test_random_state_instance_advances():
    rng = np.random.RandomState(0)
    first, second = load_digits_tasks(rng), load_digits_tasks(rng)
    assert not np.array_equal(first[0].X_train, second[0].X_train)
    np.testing.assert_array_equal(first[0].X_train, load_digits_tasks(0)[0].X_train)


# ---------------------------------------------------------------- few images of each class


def test_few_shot_tasks_have_the_images_and_classes_asked_for():
    tasks = load_few_shot_digits(random_state=0)
    assert len({task.name for task in tasks}) == 15
    for task in tasks:
        assert np.unique(task.y_train, return_counts=True)[1].tolist() == [4] * 5
        assert set(task.y_test) == set(task.y_train)
        assert task.X_validation.shape == (0, 64)
        np.testing.assert_allclose(task.X_train.mean(axis=0), 0, atol=1e-12)
    assert len({frozenset(task.y_train) for task in tasks}) > 10
    small = load_few_shot_digits(n_tasks=2, n_classes=10, n_train=1, random_state=0)
    assert [len(task.y_train) for task in small] == [10, 10]


def test_no_test_image_is_learned_from_in_any_task_of_any_seed():
    learned, asked = set(), set()
    for seed in range(4):
        for task in load_few_shot_digits(60, random_state=seed, center=False):
            learned |= {row.tobytes() for row in task.X_train}
            asked |= {row.tobytes() for row in task.X_test}
    assert not learned & asked
    assert len(asked) == 1797 // 2
    assert len(learned) > 800


def test_few_shot_test_part_is_the_whole_other_half():
    everything = load_few_shot_digits(1, n_classes=10, random_state=0, center=False)[0]
    for task in load_few_shot_digits(random_state=1, center=False):
        own = np.isin(everything.y_test, task.y_train)
        np.testing.assert_array_equal(task.X_test, everything.X_test[own])


@pytest.mark.parametrize(
    ("argument", "value", "wanted"),
    [
        ("n_tasks", 0, "at least 1"),
        ("n_tasks", 2.0, "whole number"),
        ("n_classes", 1, "at least 2 and at most 10"),
        ("n_classes", 11, "at least 2 and at most 10"),
        ("n_train", 0, "at least 1 and at most 76"),
        ("n_train", 77, "at least 1 and at most 76"),
    ],
)
def test_impossible_few_shot_tasks(argument, value, wanted):
    with pytest.raises(ValueError, match=f"{argument}={value}: give .*{wanted}"):
        load_few_shot_digits(**{argument: value})


# ---------------------------------------------------------------- the stream of embeddings


def test_embedding_stream_has_the_sizes_asked_for_and_unit_samples():
    stream = make_embedding_stream(
        3, n_features=40, n_directions=6, n_classes=4, n_train=5, n_test=2, random_state=0
    )
    tasks = list(stream)
    assert [task.name for task in tasks] == ["task1", "task2", "task3"]
    for task in tasks:
        assert np.bincount(task.y_train).tolist() == [5] * 4
        assert np.bincount(task.y_test).tolist() == [2] * 4
        assert task.X_validation.shape == (0, 40)
        np.testing.assert_allclose(np.linalg.norm(task.X_train, axis=1), 1)
        np.testing.assert_allclose(np.linalg.norm(task.X_test, axis=1), 1)


def test_class_means_lie_in_directions_common_to_all_tasks():
    """Without noise every sample is its class mean, and all tasks together span r directions."""
    sizes = {"n_features": 40, "n_directions": 6, "n_classes": 4, "noise": 0.0}
    tasks = list(make_embedding_stream(5, **sizes, random_state=0))
    assert [np.linalg.matrix_rank(task.X_train) for task in tasks] == [4] * 5
    assert np.linalg.matrix_rank(np.vstack([task.X_train for task in tasks])) == 6
    for task in tasks:
        assert len(np.unique(task.X_train.round(12), axis=0)) == 4
        for label in range(4):
            mean = task.X_train[task.y_train == label][0]
            expected = np.tile(mean, (10, 1))
            np.testing.assert_allclose(task.X_test[task.y_test == label], expected, atol=1e-12)


def test_embedding_stream_has_the_spread_and_the_noise_asked_for():
    """Before the division by the length, D noise^2 + r spread^2 is the mean squared length."""
    sizes = {"n_features": 200, "n_directions": 50, "n_classes": 40, "n_train": 20}
    signal = []
    for task in make_embedding_stream(5, **sizes, spread=3.0, noise=1.5, random_state=0):
        means = np.array([task.X_train[task.y_train == label].mean(axis=0) for label in range(40)])
        signal.append((means**2).sum(axis=1).mean() - 1 / 20)  # the noise of a mean of 20
    share = 50 * 9.0 / (50 * 9.0 + 200 * 2.25)
    assert np.mean(signal) == pytest.approx(share * 19 / 20, abs=0.02)


def test_a_longer_stream_begins_with_the_tasks_of_a_shorter_one_and_is_lazy():
    short = list(make_embedding_stream(2, random_state=3))
    long = list(itertools.islice(make_embedding_stream(10**9, random_state=3), 2))
    for a, b in zip(short, long, strict=True):
        assert np.array_equal(a.X_train, b.X_train)
        assert np.array_equal(a.X_test, b.X_test)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("n_tasks", 0),
        ("n_features", 0),
        ("n_directions", 513),
        ("n_directions", 0),
        ("n_classes", 0),
        ("n_train", 0),
        ("n_test", -1),
        ("spread", -1.0),
        ("noise", float("nan")),
        ("noise", "2"),
    ],
)
def test_impossible_streams_are_refused_before_the_first_task(argument, value):
    with pytest.raises(ValueError, match=f"{argument}={value!r}: give "):
        make_embedding_stream(**{"n_tasks": 3, argument: value})


# ---------------------------------------------------------------- preprocessing


def spoiled(monkeypatch, name, rows, spoil):
    """The files of `made_up`, with some of the samples changed."""

    def load(asked, download_if_missing=True):
        files = made_up(asked)
        if name == "sentiment_raw":
            counts = made_up_counts()
            counts[rows] = spoil(counts[rows])
            return [stored_counts(part) for part in np.split(counts, 4)]
        key = "X" if "X" in files[0] else "Xq"
        X = files[0][key].copy()
        X[rows] = spoil(X[rows])
        return [{**files[0], key: X}]

    monkeypatch.setattr(datasets, "load_arrays", load)


@pytest.mark.parametrize(
    ("name", "load", "options", "n_samples", "sizes"),
    [
        ("usps", load_usps_tasks, {"train_size": 20, "validation_share": 5}, 60, (15, 5)),
        ("isolet", load_isolet_tasks, {"center": True}, 60, (0.1, 0.2)),
        ("sentiment_words200", load_sentiment_tasks, {}, 20, (0.5, 0.25)),
        ("sentiment_raw", load_sentiment_tasks, {"features": "raw"}, 20, (0.5, 0.25)),
    ],
)
def test_statistics_come_from_training_samples_only(
    name, load, options, n_samples, sizes, monkeypatch
):
    """Samples outside the training part of the first task are spoiled; the part keeps its bits."""
    monkeypatch.setattr(datasets, "load_arrays", made_up)
    clean = load(random_state=0, **options)[0]
    outside = np.concatenate(split_samples(n_samples, *sizes, 0)[1:])
    spoiled(monkeypatch, name, outside, lambda X: 3 * X + 1)
    dirty = load(random_state=0, **options)[0]
    parts = [(a, b) for a, b in zip(samples(clean), samples(dirty), strict=True)]
    if sparse.issparse(clean.X_train):
        parts = [(a.toarray(), b.toarray()) for a, b in parts]
    same = [np.array_equal(a, b) for a, b in parts]
    assert same == [True, False, False]


def test_words_by_hand(made_up_files):
    """z-scores with n - 1 in the deviation of the training part, then samples of unit length."""
    X = made_up("sentiment_words200")[0]["X"]
    for number, task in enumerate(load_sentiment_tasks(split="authors")):
        own = X[20 * number : 20 * number + 20]
        mean = own[:10].sum(axis=0) / 10
        sd = np.sqrt(((own[:10] - mean) ** 2).sum(axis=0) / 9)
        z = (own - mean) / sd
        z /= np.sqrt((z**2).sum(axis=1))[:, None]
        np.testing.assert_allclose(np.vstack(samples(task)), z, atol=1e-12)
        assert [len(y) for y in labels(task)] == [10, 4, 6]


def test_a_constant_word_is_only_centered(monkeypatch):
    def constant(X):
        X = X.copy()
        X[:, 1] = 5
        X[:, 2] = 1e-6 * (np.arange(len(X)) % 2)
        return X

    spoiled(monkeypatch, "sentiment_words200", slice(None), constant)
    task = load_sentiment_tasks(split="authors")[0]
    X = constant(made_up("sentiment_words200")[0]["X"])[:20]
    z = X - X[:10].mean(axis=0)
    z[:, 0] /= np.sqrt((z[:10, 0] ** 2).sum() / 9)
    z[:, 1:] = z[:, 1:] * [0, 1]  # columns 1 and 2 have a deviation below 1e-5
    expected = z / np.linalg.norm(z, axis=1)[:, None]
    np.testing.assert_allclose(np.vstack(samples(task)), expected, rtol=1e-6, atol=1e-12)


def test_weights_by_hand_stay_sparse(made_up_files):
    task = load_sentiment_tasks("raw", random_state=0, validation_size=0)[0]
    assert all(sparse.issparse(X) and X.format == "csr" for X in samples(task))
    train, _, test = split_samples(20, 0.5, 0, 0)
    counts = made_up_counts().astype(float)
    idf = 1 + np.log(11 / (1 + (counts[train] > 0).sum(axis=0)))
    expected = (counts * idf)[test]
    norms = np.linalg.norm(expected, axis=1)[:, None]
    expected = np.divide(expected, norms, out=np.zeros_like(expected), where=norms > 0)
    np.testing.assert_allclose(task.X_test.toarray(), expected)
    assert task.X_validation.shape == (0, 5)


def test_with_validation():
    task = load_digits_tasks(random_state=0)[3]
    raw = load_digits_tasks(random_state=0, center=False)[3]
    both, plain = task.with_validation(), raw.with_validation()
    np.testing.assert_array_equal(plain.X_train, np.vstack([raw.X_train, raw.X_validation]))
    np.testing.assert_array_equal(both.y_train, np.r_[task.y_train, task.y_validation])
    mean = plain.X_train.mean(axis=0)
    np.testing.assert_allclose(both.X_train, plain.X_train - mean, atol=1e-12)
    np.testing.assert_allclose(both.X_test, plain.X_test - mean, atol=1e-12)
    assert both.X_validation.shape == (0, 64)
    assert both.centered
    again = both.with_validation()  # an empty validation part changes nothing
    np.testing.assert_allclose(again.X_train, both.X_train, atol=1e-12)
    X = sparse.random_array((9, 50), density=0.1, rng=RNG(0), format="csr")
    y = np.arange(9) % 2
    joined = Task("s", X[:4], y[:4], X[4:6], y[4:6], X[6:], y[6:]).with_validation()
    assert joined.X_train.format == "csr"
    np.testing.assert_array_equal(joined.X_train.toarray(), X[:6].toarray())


# ---------------------------------------------------------------- one task


def test_task_is_frozen_picklable_and_says_what_it_is():
    task = load_digits_tasks(random_state=0)[2]
    assert repr(task) == "Task('4-5-6': 109 + 54 + 381 samples, 64 features, labels 4 5 6)"
    with pytest.raises(dataclasses.FrozenInstanceError):
        task.name = "x"
    copy = pickle.loads(pickle.dumps(task))
    np.testing.assert_array_equal(copy.X_test, task.X_test)
    assert task != copy  # tasks are compared by identity: no ambiguous truth of arrays
    hash(task)


def test_task_checks_its_parts():
    X, y = np.zeros((4, 2)), np.zeros(4, dtype=int)
    with pytest.raises(ValueError, match=r"X_validation .* \(3, 2\) and \(4,\)"):
        Task("t", X, y, X[:3], y, X, y)
    with pytest.raises(ValueError, match=r"\(4, 1\) and .* X_train has \(4, 2\)"):
        Task("t", X, y, X, y, X[:, :1], y)
    with pytest.raises(ValueError, match="X_train"):
        Task("t", X, y[:, None], X, y, X, y)
    with pytest.raises(ValueError, match="test samples of task 't' have masked entries"):
        Task("t", X, y, X, y, np.ma.masked_array(X, mask=True), y)


def test_tasks_hold_arrays_with_labels_of_any_type():
    X = np.ones((3, 2))
    y = np.array([1, "a", 1], dtype=object)
    assert repr(Task("t", X, y, X, y, X, y)).endswith("labels 1 a)")


def test_a_made_task_has_the_samples_of_its_parts():
    X, y = np.arange(12.0).reshape(6, 2), np.arange(6, dtype=np.int8)
    parts = [np.array([5, 0]), np.array([], dtype=int), np.array([3])]
    task = make_task("t", X, y, parts, lambda samples: [2 * part for part in samples])
    assert task.X_train.tolist() == [[20, 22], [0, 2]]
    assert [y.tolist() for y in labels(task)] == [[5, 0], [], [3]]
    assert task.y_train.dtype == np.int64
    assert not task.centered


# ---------------------------------------------------------------- sizes and options


@pytest.mark.parametrize(
    "sizes",
    [
        {"train_size": 0},
        {"train_size": 0.0},
        {"train_size": 1.5},
        {"train_size": 2.5},
        {"train_size": 10**6},
        {"train_size": 0.9, "validation_size": 0.1},
        {"validation_size": 1.0},
        {"validation_size": -1},
        {"validation_size": 0.999},
    ],
)
def test_impossible_sizes(sizes):
    with pytest.raises(ValueError, match=r"train_size|validation_size"):
        load_digits_tasks(random_state=0, **sizes)


def test_sizes_as_counts_and_without_validation():
    for task in load_digits_tasks(random_state=0, train_size=10, validation_size=0):
        assert len(task.y_train) == 10
        assert task.X_validation.shape == (0, 64)
    one = load_digits_tasks(random_state=0, train_size=1, validation_size=np.int64(2))
    assert [len(t.y_train) for t in one] == [1] * 4


LOADERS = [load_digits_tasks, load_usps_tasks, load_isolet_tasks, load_sentiment_tasks]


@pytest.mark.parametrize("size", [1.0, 5.0, "0.2", None, True, -0.1, float("nan"), [0.1], 1j])
@pytest.mark.parametrize("loader", LOADERS)
def test_every_loader_names_a_size_that_is_neither_a_share_nor_a_count(loader, size, made_up_files):
    other = "validation_share" if loader is load_usps_tasks else "validation_size"
    for argument in ("train_size", other):
        with pytest.raises(ValueError, match=f"{argument}=.*: give a share .* whole number of"):
            loader(random_state=0, **{argument: size})


def test_usps_refuses_sizes_that_leave_a_part_empty(made_up_files):
    for sizes in ({"validation_share": 0.99}, {"train_size": 0.999}, {"train_size": 0.0}):
        with pytest.raises(ValueError, match=r"train_size=.* and validation_size=.* ask for"):
            load_usps_tasks(random_state=0, **sizes)


def test_usps_holds_out_a_share_of_the_samples_to_learn_from(made_up_files):
    tasks = load_usps_tasks(random_state=0, train_size=0.5)
    sizes = [[len(y) for y in labels(task)] for task in tasks]
    assert sizes == [[24, 6, 30], [24, 6, 30], [36, 9, 45], [36, 9, 45]]


@pytest.mark.parametrize("key", ["rows", "speakers"])
def test_isolet_groups_are_the_tasks(key, made_up_files):
    stored = made_up("isolet")[0]
    group = stored["group" if key == "rows" else "group_by_speaker"]
    for number, task in enumerate(load_isolet_tasks(key, random_state=0), start=1):
        assert task.name == f"isolet{number}"
        found = np.concatenate(labels(task))
        assert np.array_equal(np.sort(found), np.sort(stored["y"][group == number]))


def test_z_scores_need_two_samples(made_up_files):
    with pytest.raises(ValueError, match="raise train_size"):
        load_sentiment_tasks(random_state=0, train_size=1)
    assert len(load_sentiment_tasks(random_state=0, train_size=2)[0].y_train) == 2


def test_split_is_uniform_and_not_stratified():
    """Every sample is drawn equally often; class counts vary as in sampling without return."""
    rng = np.random.RandomState(0)
    hits, counts = np.zeros(30), []
    for _ in range(3000):
        train = split_samples(30, 0.2, 5, rng)[0]
        hits[train] += 1
        counts.append((train < 10).sum())
    assert abs(hits / 3000 - 0.2).max() < 0.035
    variance = 6 * (1 / 3) * (2 / 3) * 24 / 29
    assert abs(np.var(counts) - variance) < 0.1


def test_unknown_options_before_any_file_is_touched(monkeypatch):
    monkeypatch.setattr(datasets, "load_arrays", lambda *_: pytest.fail("files were read"))
    with pytest.raises(ValueError, match="grouping='block': give one of"):
        load_isolet_tasks("block")
    with pytest.raises(ValueError, match=r"grouping=\['rows'\]: give one of"):
        load_isolet_tasks(["rows"])
    with pytest.raises(ValueError, match="features='bert': give one of"):
        load_sentiment_tasks("bert")
    with pytest.raises(ValueError, match="split='authors': give one of"):
        load_sentiment_tasks("raw", split="authors")


def test_words_of_five_reviews_are_kept():
    lines = [b"five:1 four:3 #label#:positive"] * 4 + [b"five:2 one:1 #label#:positive"]
    contents = [b"\n".join(lines[:3]), b"\n".join(lines[3:]), *[b""] * 6]
    books = datasets._parse_reviews(contents)["sentiment_books.npz"]
    assert books["shape"].tolist() == [5, 1]
    assert books["data"].tolist() == [1, 1, 1, 1, 2]
    assert books["y"].tolist() == [1, 1, 1, -1, -1]


def test_a_download_may_be_as_large_as_the_largest_original(monkeypatch):
    monkeypatch.setattr(datasets, "_LARGEST", 10)
    stream = datasets._LimitedStream(b"")
    assert stream.write(b"1234") + stream.write(b"567890") == 10
    with pytest.raises(ValueError, match="more than 10 bytes"):
        stream.write(b"1")
    assert stream.getvalue() == b"1234567890"


def test_an_unknown_collection():
    with pytest.raises(ValueError, match=r"name='mnist': give one of .*'usps'"):
        load_arrays("mnist")
