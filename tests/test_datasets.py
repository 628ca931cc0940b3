"""Tasks, splits, preprocessing; from a public file to verified arrays, on a local server."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pooch
import pytest
from scipy import sparse
from scipy.io import savemat
from sklearn.datasets import load_digits

from lml import datasets
from lml.datasets import (
    Task,
    load_digits_tasks,
    load_isolet_tasks,
    load_sentiment_tasks,
    load_usps_tasks,
)

PARTS = ("train", "validation", "test")
RNG = np.random.default_rng


# ---------------------------------------------------------------- tasks and splits


def _rows(task):
    return [getattr(task, f"X_{part}") for part in PARTS]


def _labels(task):
    return [getattr(task, f"y_{part}") for part in PARTS]


def test_digits_tasks_partition_the_digits():
    X, y = load_digits(return_X_y=True)
    tasks = load_digits_tasks(random_state=3, center=False)
    assert [task.name for task in tasks] == ["0-1", "2-3", "4-5-6", "7-8-9"]
    found = np.vstack([np.vstack(_rows(task)) for task in tasks]) * 16
    labels = np.concatenate([np.concatenate(_labels(task)) for task in tasks])
    order, other = np.lexsort(found.T), np.lexsort(X.T)
    np.testing.assert_array_equal(found[order], X[other])
    assert np.bincount(labels).tolist() == np.bincount(y).tolist()
    assert all(label.dtype == np.int64 for task in tasks for label in _labels(task))
    assert [set(np.unique(task.y_test)) for task in tasks] == [{0, 1}, {2, 3}, {4, 5, 6}, {7, 8, 9}]


def test_rows_keep_their_labels():
    X, y = load_digits(return_X_y=True)
    known = {row.tobytes(): label for row, label in zip(X / 16.0, y, strict=True)}
    for task in load_digits_tasks(random_state=1, center=False):
        for rows, labels in zip(_rows(task), _labels(task), strict=True):
            assert [known[row.tobytes()] for row in rows] == labels.tolist()


def test_same_seed_same_bits_whatever_the_global_state():
    np.random.seed(0)  # noqa: NPY002
    first = load_digits_tasks(random_state=7)
    np.random.seed(1)  # noqa: NPY002
    second = load_digits_tasks(random_state=7)
    third = load_digits_tasks(random_state=8)
    for a, b, c in zip(first, second, third, strict=True):
        assert all(np.array_equal(p, q) for p, q in zip(_rows(a), _rows(b), strict=True))
        assert not np.array_equal(a.X_train, c.X_train)


def test_random_state_instance_advances():
    rng = np.random.RandomState(0)
    first, second = load_digits_tasks(rng), load_digits_tasks(rng)
    assert not np.array_equal(first[0].X_train, second[0].X_train)
    np.testing.assert_array_equal(first[0].X_train, load_digits_tasks(0)[0].X_train)


def test_statistics_come_from_training_rows_only():
    X, y = RNG(0).normal(size=(40, 3)), np.arange(40) % 2
    rows = np.split(RNG(1).permutation(40), [8, 12])
    dirty = X.copy()
    dirty[np.concatenate(rows[1:])] *= -50
    counts = sparse.csr_array(RNG(2).poisson(0.5, (40, 6)).astype(np.uint8))
    dirty_counts = counts.toarray()
    dirty_counts[np.concatenate(rows[1:])] += 3
    for preprocess, clean, spoiled in (
        (datasets._center, X, dirty),
        (datasets._standardize, X, dirty),
        (lambda p: datasets._weigh(p, "tfidf", True), counts, sparse.csr_array(dirty_counts)),
    ):
        a, b = (datasets._make_task("t", Z, y, rows, preprocess) for Z in (clean, spoiled))
        left, right = a.X_train, b.X_train
        if sparse.issparse(left):
            left, right = left.toarray(), right.toarray()
        assert np.array_equal(left, right)


def test_standardize_by_hand():
    train = np.array([[1.0, 5.0, 0.0], [3.0, 5.0, 0.0], [8.0, 5.0, 1e-6]])
    test = np.array([[4.0, 7.0, 0.0], [6.0, 5.0, 0.0]])
    done = datasets._standardize([train, test[:0], test])
    sd = np.sqrt(((1 - 4) ** 2 + (3 - 4) ** 2 + (8 - 4) ** 2) / 2)
    z = np.array([[0.0, 2.0, -1e-6 / 3], [2 / sd, 0.0, -1e-6 / 3]])
    np.testing.assert_allclose(done[2], z / np.linalg.norm(z, axis=1)[:, None], atol=1e-12)
    assert done[1].shape == (0, 3)
    np.testing.assert_allclose(np.linalg.norm(done[0], axis=1), 1)


@pytest.mark.parametrize("weighting", ["tfidf", "binary", "counts"])
@pytest.mark.parametrize("unit_rows", [True, False])
def test_weights_by_hand_stay_sparse_and_leave_counts_alone(weighting, unit_rows):
    dense = RNG(0).poisson(0.7, (30, 5)) * (RNG(1).random((30, 5)) < 0.8)
    dense[:, 4] = 0  # a word that never occurs
    raw = [sparse.csr_array(part.astype(np.uint8)) for part in np.split(dense, [10, 10])]
    before = raw[2].toarray()
    done = datasets._weigh(raw, weighting, unit_rows)
    assert all(sparse.issparse(part) and part.format == "csr" for part in done)
    n_j = (dense[:10] > 0).sum(axis=0)
    idf = 1 + np.log(11 / (1 + n_j))
    expected = {"tfidf": dense[10:] * idf, "binary": dense[10:] > 0, "counts": dense[10:]}
    expected = expected[weighting].astype(float)
    if unit_rows:
        norms = np.linalg.norm(expected, axis=1)[:, None]
        expected = np.divide(expected, norms, out=np.zeros_like(expected), where=norms > 0)
    np.testing.assert_allclose(done[2].toarray(), expected)
    assert done[1].shape == (0, 5)
    np.testing.assert_array_equal(raw[2].toarray(), before)


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


def test_task_is_frozen_picklable_and_says_what_it_is():
    task = load_digits_tasks(random_state=0)[2]
    assert repr(task) == "Task('4-5-6': 109 + 54 + 381 rows, 64 features, labels 4 5 6)"
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
    with pytest.raises(ValueError, match="has 1 features, X_train has 2"):
        Task("t", X, y, X, y, X[:, :1], y)
    with pytest.raises(ValueError, match="X_train"):
        Task("t", X, y[:, None], X, y, X, y)


@pytest.mark.parametrize(
    "sizes",
    [
        {"train_size": 0},
        {"train_size": 0.0},
        {"train_size": -0.1},
        {"train_size": 1.5},
        {"train_size": 2.5},
        {"train_size": 1.0},
        {"train_size": 5.0},
        {"validation_size": 1.0},
        {"train_size": "0.2"},
        {"train_size": None},
        {"train_size": True},
        {"train_size": float("nan")},
        {"train_size": 10**6},
        {"train_size": 0.9, "validation_size": 0.1},
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


def made_up(name, download_if_missing=True):
    """What `_load` returns, with 60 rows a task, or 20 of the words."""
    X, y = RNG(0).integers(-9, 9, size=(300, 3)), np.repeat(np.arange(10), 30)
    usps = {"Xq": X, "divisor": np.array(10), "y": y, "split": 0 * y}
    isolet = {**usps, "group": 1 + y // 2, "group_by_speaker": 1 + y // 2}
    words = {"X": X[:80], "y": 1 + np.arange(80) % 2, "task": np.repeat(np.arange(4), 20)}
    return [{"usps": usps, "isolet": isolet, "sentiment_words200": words}[name]]


LOADERS = [load_digits_tasks, load_usps_tasks, load_isolet_tasks, load_sentiment_tasks]


@pytest.mark.parametrize("size", [1.0, 5.0, "0.2", None, True, -0.1, float("nan"), [0.1], 1j])
@pytest.mark.parametrize("loader", LOADERS)
def test_every_loader_names_a_size_that_is_neither_a_share_nor_a_count(loader, size, monkeypatch):
    monkeypatch.setattr(datasets, "_load", made_up)
    other = "validation_share" if loader is load_usps_tasks else "validation_size"
    for argument in ("train_size", other):
        with pytest.raises(ValueError, match=f"{argument} is .* share in .* whole number of rows"):
            loader(random_state=0, **{argument: size})


def test_usps_names_the_sizes_that_were_given(monkeypatch):
    monkeypatch.setattr(datasets, "_load", made_up)
    for sizes in ({"validation_share": 0.99}, {"train_size": 0.999}, {"train_size": 0.0}):
        given = {"train_size": 0.1, "validation_share": 0.2} | sizes
        said = " and ".join(f"{key}={value}" for key, value in given.items())
        with pytest.raises(ValueError, match=f"{said} ask for"):
            load_usps_tasks(random_state=0, **sizes)


def test_z_scores_need_two_rows(monkeypatch):
    monkeypatch.setattr(datasets, "_load", made_up)
    with pytest.raises(ValueError, match="raise train_size"):
        load_sentiment_tasks(random_state=0, train_size=1)
    assert len(load_sentiment_tasks(random_state=0, train_size=2)[0].y_train) == 2


def test_a_grouping_that_is_no_name():
    with pytest.raises(ValueError, match=r"grouping is \['rows'\]"):
        load_isolet_tasks(["rows"])


def test_tasks_hold_arrays_with_labels_of_any_type():
    X = np.ones((3, 2))
    y = np.array([1, "a", 1], dtype=object)
    assert repr(Task("t", X, y, X, y, X, y)).endswith("labels 1 a)")
    with pytest.raises(TypeError, match="y_validation of task 't' are of type ndarray and list"):
        Task("t", X, y, X, [1, 2, 3], X, y)
    with pytest.raises(TypeError, match=r"X_train .* are of type NoneType and ndarray"):
        Task("t", None, y, X, y, X, y)


def test_split_is_uniform_and_not_stratified():
    """Every row is drawn equally often, and class counts vary as in sampling without return."""
    rng = np.random.RandomState(0)
    hits, counts = np.zeros(30), []
    for _ in range(3000):
        rows = datasets._split_rows(30, 0.2, 5, rng)[0]
        hits[rows] += 1
        counts.append((rows < 10).sum())
    assert abs(hits / 3000 - 0.2).max() < 0.035
    variance = 6 * (1 / 3) * (2 / 3) * 24 / 29
    assert abs(np.var(counts) - variance) < 0.1


def test_unknown_options_before_any_file_is_touched(monkeypatch):
    monkeypatch.setattr(datasets, "_load", lambda *_: pytest.fail("files were read"))
    with pytest.raises(ValueError, match="grouping is 'block'"):
        load_isolet_tasks("block")
    with pytest.raises(ValueError, match="features is 'bert'"):
        load_sentiment_tasks("bert")
    with pytest.raises(ValueError, match="split is 'authors': with features='raw'"):
        load_sentiment_tasks("raw", split="authors")
    with pytest.raises(ValueError, match="weighting is 'bm25'"):
        load_sentiment_tasks("raw", weighting="bm25")


# ---------------------------------------------------------------- miniature collections


def usps_arrays(rows=(3, 2)):
    n = sum(rows)
    return {
        "Xq": RNG(0).integers(-1000, 1001, (n, 256)).astype(np.int16),
        "divisor": np.array(1000, dtype=np.int32),
        "y": (np.arange(n) % 10).astype(np.int8),
        "split": np.repeat([0, 1], rows).astype(np.int8),
    }


def usps_files(folder, arrays, packed=True):
    """zip.train(.gz) and zip.test(.gz) as published: label, then values with four decimals."""
    for part, name in ((0, "zip.train"), (1, "zip.test")):
        lines = []
        for row, label in zip(arrays["Xq"], arrays["y"], strict=True):
            values = " ".join(f"{v / 1000:.4f}" for v in row.tolist())
            lines.append(f"{label}.0000 {values} ")
        lines = [s for s, own in zip(lines, arrays["split"] == part, strict=True) if own]
        text = ("\n".join(lines) + "\n").encode()
        path = Path(folder) / (name + ".gz" * packed)
        path.write_bytes(gzip.compress(text, 1) if packed else text)


def isolet_text(Xq, y):
    """UCI's text: four decimals, comma and blank, the letter as `1.`."""
    words = {v: f"{v / 10000:.4f}" for v in np.unique(Xq).tolist()}
    rows = zip(Xq.tolist(), y.tolist(), strict=True)
    return "".join(
        ", ".join([words[v] for v in row] + [f"{k}."]) + "\n" for row, k in rows
    ).encode()


def compress(data, max_bits=16):
    """Unix compress (.Z): LZW with codes of 9 bits and more, in groups of eight, no clearing."""
    out, group, width = bytearray(b"\x1f\x9d" + bytes([0x80 | max_bits])), [], 9
    table, free = {bytes([k]): k for k in range(256)}, 257

    def flush(full):
        bits = sum(code << (k * width) for k, code in enumerate(group))
        size = width if full else (len(group) * width + 7) // 8
        out.extend(bits.to_bytes(size, "little"))
        group.clear()

    word, codes = b"", 0
    for k in range(len(data)):
        longer = word + data[k : k + 1]
        if longer in table:
            word = longer
            continue
        group.append(table[word])
        codes += 1
        if len(group) == 8:
            flush(True)
        if free < 1 << max_bits:
            table[longer] = free
            free += 1
        if free > (1 << width) and width < max_bits:  # the reader is one entry behind
            if group:
                flush(True)
            width += 1
        word = data[k : k + 1]
    group.append(table[word])
    flush(False)
    return bytes(out)


def review_bytes(reviews, label):
    lines = [" ".join(f"{w}:{n}" for w, n in review.items()) for review in reviews]
    return "".join(f"{line} #label#:{label}\n" for line in lines).encode()


def words_mat(path, arrays, kind=np.asarray):
    """sentiment_mt.mat: cells xTr, yTr, ... with one matrix a task."""
    stored = {}
    for s, part in enumerate(("Tr", "Va", "Te")):
        for key, array in (("x", arrays["X"]), ("y", arrays["y"].astype(float)[:, None])):
            cell = np.empty((1, 4), dtype=object)
            for t in range(4):
                own = array[(arrays["task"] == t) & (arrays["split"] == s)]
                cell[0, t] = kind(own) if key == "x" else own
            stored[key + part] = cell
    savemat(path, stored)


# ---------------------------------------------------------------- a local server


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def send_head(self):
        if self.path.startswith("/short"):  # promise more bytes than are sent
            self.send_response(200)
            self.send_header("Content-Length", "100000")
            self.end_headers()
            return io.BytesIO(b"-0.1 0.2\n")
        return super().send_head()


@pytest.fixture
def site(tmp_path):
    """A folder that is served on this machine, and its address."""
    folder = tmp_path / "site"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty data home, no LML_DATA, no progress bar."""
    home = tmp_path / "home"
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(home))
    monkeypatch.delenv("LML_DATA", raising=False)
    return home / "lml"


@pytest.fixture
def table(monkeypatch):
    """Put a collection into the table for one test."""

    def put(name, **changes):
        changed = dataclasses.replace(datasets._COLLECTIONS[name], **changes)
        monkeypatch.setitem(datasets._COLLECTIONS, name, changed)
        return changed

    return put


@pytest.fixture
def small_usps(site, cache, table):
    """A miniature USPS on the server; returns (folder, address, arrays)."""
    folder, address = site
    arrays = usps_arrays()
    usps_files(folder, arrays)
    fields = {key: (a.dtype.name, a.shape) for key, a in arrays.items()}
    labels = {"y": (0, 1, 2, 3, 4), "split": (0, 1), "divisor": (1000,)}
    source = (datasets._parse_usps, (f"{address}zip.train.gz", f"{address}zip.test.gz"))
    digests = {"usps.npz": datasets._digest(arrays)}
    table("usps", fields=fields, labels=labels, digests=digests, sources=(source,))
    return folder, address, arrays


def same(found, expected):
    for key, array in expected.items():
        assert found[key].dtype == array.dtype
        np.testing.assert_array_equal(found[key], array)


def no_network(*args, **kwargs):
    raise AssertionError("the network was used")


def test_download_parse_verify_cache(small_usps, cache, capsys):
    folder, _, arrays = small_usps
    (found,) = datasets._load("usps")
    same(found, arrays)
    assert "100%" in capsys.readouterr().err  # the progress bar
    assert sorted(p.name for p in cache.iterdir()) == ["usps.npz"]
    for path in folder.iterdir():
        path.unlink()
    (again,) = datasets._load("usps")
    same(again, arrays)


def test_second_call_does_not_touch_the_network(small_usps, monkeypatch):
    datasets._load("usps")
    monkeypatch.setattr(pooch, "HTTPDownloader", no_network)
    datasets._load("usps")


def test_lml_data_comes_before_the_cache(small_usps, tmp_path, monkeypatch):
    *_, arrays = small_usps
    monkeypatch.setattr(pooch, "HTTPDownloader", no_network)
    monkeypatch.setenv("LML_DATA", str(tmp_path / "own"))
    datasets._store(tmp_path / "own" / "usps.npz", {**arrays, "extra": np.zeros(2)})
    (found,) = datasets._load("usps")
    assert "extra" not in found
    same(found, arrays)


def test_file_missing_in_lml_data_is_looked_for_in_the_cache(small_usps, tmp_path, monkeypatch):
    (tmp_path / "own").mkdir()
    monkeypatch.setenv("LML_DATA", str(tmp_path / "own"))
    datasets._load("usps")
    assert list((tmp_path / "own").iterdir()) == []


def test_lml_data_that_is_no_folder(cache, monkeypatch, tmp_path):
    monkeypatch.setenv("LML_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match=r"LML_DATA is .*nowhere"):
        load_usps_tasks()


def test_missing_and_download_not_allowed(cache, monkeypatch):
    monkeypatch.setattr(pooch, "HTTPDownloader", no_network)
    for load in (load_usps_tasks, load_isolet_tasks, load_sentiment_tasks):
        with pytest.raises(OSError, match=r"(?s)\.npz.*LML_DATA.*download_if_missing"):
            load(download_if_missing=False)
    with pytest.raises(OSError, match="sentiment_kitchen"):
        load_sentiment_tasks("raw", download_if_missing=False)


@pytest.mark.parametrize("kind", ["404", "refused", "truncated gz", "short", "html", "one pixel"])
def test_faulty_source_is_named_and_nothing_is_cached(kind, small_usps, cache, table):
    folder, address, arrays = small_usps
    first = f"{address}zip.train.gz"
    if kind == "404":
        (folder / "zip.train.gz").unlink()
    elif kind == "refused":
        first = "http://127.0.0.1:9/zip.train.gz"
    elif kind == "truncated gz":
        data = (folder / "zip.train.gz").read_bytes()
        (folder / "zip.train.gz").write_bytes(data[: len(data) // 2])
    elif kind == "short":
        first = f"{address}short/zip.train"
    elif kind == "html":
        (folder / "zip.train.gz").write_bytes(b"<html>moved</html>")
    else:
        changed = arrays["Xq"].copy()
        changed[1, 5] += 1 if changed[1, 5] < 0 else -1
        usps_files(folder, {**arrays, "Xq": changed})
    table("usps", sources=((datasets._parse_usps, (first, f"{address}zip.test.gz")),))
    with pytest.raises(OSError, match="'usps' could not be downloaded") as caught:
        datasets._load("usps")
    message = str(caught.value)
    assert first in message
    assert "LML_DATA" in message
    assert "usps.npz" in message
    if kind == "one pixel":
        assert datasets._digest({**arrays, "Xq": changed}) in message
        assert datasets._digest(arrays) in message
    assert not cache.exists() or list(cache.iterdir()) == []


def test_next_source_is_tried(small_usps, table):
    _, address, arrays = small_usps
    good = datasets._COLLECTIONS["usps"].sources[0]
    dead = (datasets._parse_usps, ("http://127.0.0.1:9/a", f"{address}b"))
    table("usps", sources=(dead, good))
    (found,) = datasets._load("usps")
    same(found, arrays)


def test_all_public_sources_are_named_offline(cache, monkeypatch):
    """Nothing listens: the error lists every address of the table."""

    class Dead:
        def __init__(self, **options):
            pass

        def __call__(self, address, path, _):
            raise ConnectionError("no route to host")

    monkeypatch.setattr(pooch, "HTTPDownloader", Dead)
    for name, collection in datasets._COLLECTIONS.items():
        with pytest.raises(OSError, match=name) as caught:
            datasets._load(name)
        for _, addresses in collection.sources:
            assert all(address in str(caught.value) for address in addresses)
        assert str(caught.value).count("ConnectionError: no route") == len(collection.sources)


def test_interrupt_is_not_swallowed(small_usps, cache, monkeypatch):
    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(datasets, "_retrieve", interrupted)
    with pytest.raises(KeyboardInterrupt):
        datasets._load("usps")


# ---------------------------------------------------------------- stored files


@pytest.fixture
def stored(small_usps, cache):
    *_, arrays = small_usps
    datasets._load("usps")
    return cache / "usps.npz", arrays


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"y": None}, "no array 'y'"),
        ({"y": np.zeros(5)}, "'y' .* type float64"),
        ({"y": np.zeros(4, np.int8)}, r"'y' .* shape \(4,\)"),
        ({"y": np.array([0, 1, 2, 3, 11], np.int8)}, "'y' .* expected values"),
        ({"Xq": np.zeros((5, 256), np.int16)}, "SHA-256"),
        ({"Xq": np.zeros((256, 5), np.int16)}, r"'Xq' .* shape \(256, 5\)"),
        ({"divisor": np.array(10, np.int32)}, "'divisor' .* expected values"),
    ],
)
def test_wrong_content(stored, change, reason):
    path, arrays = stored
    changed = {key: a for key, a in {**arrays, **change}.items() if a is not None}
    np.savez(path, **changed)
    with pytest.raises(ValueError, match=f"(?s){reason}.*LML_DATA") as caught:
        datasets._load("usps")
    assert str(path) in str(caught.value)


def test_broken_files(stored, tmp_path):
    path, arrays = stored
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 255
    single, pickled = io.BytesIO(), io.BytesIO()
    np.save(single, arrays["Xq"])
    np.savez(pickled, **{**arrays, "y": np.array([{"a": 1}] * 5, dtype=object)})
    for content in (b"", whole[:50], whole[:-30], bytes(flipped), single.getvalue(), b"text"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"usps\.npz"):
            datasets._load("usps")
    path.write_bytes(pickled.getvalue())
    with pytest.raises(ValueError, match=r"'y' .* has type object and shape \(5,\), not int8"):
        datasets._load("usps")


def test_killed_while_writing_leaves_the_old_file(stored):
    path, arrays = stored
    before = path.read_bytes()
    program = f"""
import os, signal, numpy as np
from pathlib import Path
from lml import datasets

def half(stream, **arrays):
    stream.write(b"PK half of a file")
    stream.flush()
    os.kill(os.getpid(), signal.{"SIGKILL" if hasattr(signal, "SIGKILL") else "SIGTERM"})

np.savez_compressed = half
datasets._store(Path({str(path)!r}), {{"y": np.zeros(3)}})
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True)
    assert done.returncode != 0, done.stderr
    assert b"Error" not in done.stderr
    assert path.read_bytes() == before
    assert len(list(path.parent.iterdir())) == 2  # the half file lies beside it, under another name
    (found,) = datasets._load("usps")
    same(found, arrays)


def test_error_while_writing_leaves_no_litter(stored, monkeypatch):
    path, _ = stored
    before = path.read_bytes()

    def full(stream, **arrays):
        stream.write(b"PK")
        raise OSError("no space left on device")

    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(OSError, match="no space"):
        datasets._store(path, {"y": np.zeros(3)})
    assert [p.name for p in path.parent.iterdir()] == ["usps.npz"]
    assert path.read_bytes() == before


def test_digest_sees_content_and_not_layout():
    arrays = usps_arrays()
    base = datasets._digest(arrays)
    for same_content in (
        dict(reversed(arrays.items())),
        {**arrays, "Xq": np.asfortranarray(arrays["Xq"])},
        {**arrays, "Xq": arrays["Xq"].astype(">i2")},
        {**arrays, "Xq": np.repeat(arrays["Xq"], 2, axis=0)[::2]},
    ):
        assert datasets._digest(same_content) == base
    others = [
        {**arrays, "Xq": arrays["Xq"].reshape(256, 5)},
        {**arrays, "Xq": arrays["Xq"].view(np.uint16)},
        {**arrays, "Y": arrays["y"]},
        {key: a for key, a in arrays.items() if key != "split"},
        {**arrays, "divisor": arrays["divisor"].reshape(1)},
    ]
    assert len({base, *map(datasets._digest, others)}) == 6


# ---------------------------------------------------------------- public formats


@pytest.mark.parametrize("packed", [True, False])
def test_usps_text(tmp_path, packed):
    arrays = usps_arrays()
    usps_files(tmp_path, arrays, packed)
    names = [f"zip.{part}" + ".gz" * packed for part in ("train", "test")]
    same(datasets._parse_usps([tmp_path / n for n in names])["usps.npz"], arrays)


def test_values_off_the_grid_are_refused():
    good = np.array([[0.123, -1.0, 1.0, -0.0]])
    assert datasets._whole(good, 1000).tolist() == [[123, -1000, 1000, 0]]
    for value in (0.1234, 1.001, -1.5, np.nan, np.inf):
        with pytest.raises(ValueError, match="multiples of 1/1000"):
            datasets._whole(np.array([[0.5, value]]), 1000)


def isolet_rows(n=60):
    Xq = RNG(0).integers(-10000, 10001, (n, 617)).astype(np.int16)
    return Xq, np.sort(RNG(1).integers(1, 27, n)).astype(np.int8)


@pytest.mark.parametrize("form", ["text", "Z", "zip of Z", "zip of text"])
def test_isolet_forms(tmp_path, form):
    Xq, y = isolet_rows()
    names = ["isolet1+2+3+4.data", "isolet5.data"]
    contents = [isolet_text(Xq[:45], y[:45]), isolet_text(Xq[45:], y[45:])]
    if "Z" in form:
        names, contents = [n + ".Z" for n in names], [compress(c) for c in contents]
    paths = [tmp_path / name for name in names]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    if "zip" in form:
        paths = [tmp_path / "isolet.zip"]
        with zipfile.ZipFile(paths[0], "w") as archive:
            archive.writestr("isolet1+2+3+4+5.data.zip", b"PK")
            archive.writestr("isolet.names", "about")
            for name, content in zip(reversed(names), reversed(contents), strict=True):
                archive.writestr(name, content)
    found = datasets._parse_isolet(paths)["isolet.npz"]
    np.testing.assert_array_equal(found["Xq"], Xq)
    np.testing.assert_array_equal(found["y"], y)
    assert {key: str(a.dtype) for key, a in found.items()} == {
        key: kind for key, (kind, _) in datasets._COLLECTIONS["isolet"].fields.items()
    }


@pytest.mark.skipif(shutil.which("gzip") is None, reason="gzip is not installed")
@pytest.mark.parametrize("bits", [10, 12, 16])
@pytest.mark.parametrize("size", [1, 2, 300, 5000, 200_000])
def test_our_compress_is_read_by_gzip_and_by_our_reader(size, bits):
    data = RNG(0).integers(97, 103, size).astype(np.uint8).tobytes()
    packed = compress(data, bits)
    done = subprocess.run(["gzip", "-dc"], input=packed, capture_output=True, check=False)
    assert done.stdout == data, done.stderr
    assert datasets._unlzw(packed, size, "a.Z") == data
    with pytest.raises(ValueError, match=f"a.Z has more than {size - 1} bytes"):
        datasets._unlzw(packed, size - 1, "a.Z")


@pytest.mark.skipif(shutil.which("gzip") is None, reason="gzip is not installed")
@pytest.mark.parametrize("seed", range(12))
def test_packed_noise_is_read_as_gzip_reads_it(seed):
    """Random codes, clearing ones among them: both readers give the same bytes or refuse."""
    rng = RNG(seed)
    known = [rng.integers(257, 257 + k) for k in range(1, 240)]
    codes = [97, *(c if rng.random() < 0.7 else rng.integers(97, 100) for c in known)]
    if seed % 2:  # an empty table, and for some seeds a code that it does not have
        codes[150:] = [256, *rng.integers(97, 101 if seed < 9 else 300, 89)]
    bits = sum(int(code) << (9 * k) for k, code in enumerate(codes))
    packed = b"\x1f\x9d\x90" + bits.to_bytes(270, "little")
    done = subprocess.run(["gzip", "-dc"], input=packed, capture_output=True, check=False)
    try:
        found = datasets._unlzw(packed, 10**6, "noise.Z")
    except ValueError:
        found = None
    assert (found is None) == (done.returncode != 0)
    assert found is None or found == done.stdout


@pytest.mark.parametrize("head", [b"\x1f\x9d", b"\x1f\x9d\x99", b"\x1f\x9d\x88", b"\x1f\x9d\xf0"])
def test_what_does_not_begin_as_a_packed_file(head):
    with pytest.raises(ValueError, match=r"a\.Z does not begin as a \.Z file"):
        datasets._unlzw(head + bytes(9) * (len(head) > 2), 100, "a.Z")


def test_speakers_with_missing_rows():
    twice = np.repeat(np.arange(1, 27), 2)
    order = [twice] * 60 + [np.arange(1, 27)] * 120 + [twice] * 30
    speakers = np.r_[1:121, 61:121, 121:151]
    y, known = np.concatenate(order), np.repeat(speakers, [len(part) for part in order])
    keep = RNG(0).random(len(y)) < 0.98
    assert keep.sum() < 7780
    np.testing.assert_array_equal(datasets._isolet_speakers(y[keep]), known[keep])


def test_isolet_groups():
    twice, once = np.repeat(np.arange(1, 27), 2), np.arange(1, 27)
    y = np.concatenate([twice] * 60 + [once] * 120 + [twice] * 30)
    table = np.column_stack([np.zeros(len(y)), y])
    table = np.delete(table, [4690, 5200, 6300], axis=0)  # UCI's counts of rows: 6238 + 1559
    arrays = datasets._isolet_arrays(table[:6238], table[6238:])["isolet.npz"]
    assert np.bincount(arrays["group"])[1:].tolist() == [1560, 1560, 1560, 1558, 1559]
    for group in range(1, 6):
        found = np.unique(arrays["speaker"][arrays["group_by_speaker"] == group])
        np.testing.assert_array_equal(found, 30 * (group - 1) + np.arange(1, 31))


def test_words_mat_dense_and_sparse(tmp_path):
    split = np.tile(np.repeat([0, 1, 2], [4, 2, 3]), 4).astype(np.int8)
    arrays = {
        "X": RNG(0).random((36, 5)) * (RNG(1).random((36, 5)) < 0.4),
        "y": RNG(2).integers(1, 3, 36).astype(np.int8),
        "task": np.repeat(range(4), 9).astype(np.int8),
        "split": split,
        "task_names": np.array(["books", "dvd", "electronics", "kitchen"]),
    }
    words_mat(tmp_path / "dense.mat", arrays)
    same(datasets._parse_words([tmp_path / "dense.mat"])["sentiment_mt.npz"], arrays)
    words_mat(tmp_path / "sparse.mat", arrays, sparse.csc_matrix)
    same(datasets._parse_words([tmp_path / "sparse.mat"])["sentiment_mt.npz"], arrays)
    savemat(tmp_path / "other.mat", {"fea": np.eye(2)})
    with pytest.raises(ValueError, match=r"other\.mat cannot be read .*no 4 cells xTr"):
        datasets._parse_words([tmp_path / "other.mat"])


REVIEWS = {
    "books": (
        [{"good": 2, "a:b": 1, "caf\u00e9": 1}, {"good": 1, "the_end": 3}],
        [{"bad": 4, "good": 1}],
    ),
    "dvd": ([{"a:b": 1, "<num>": 2}], [{"bad": 1, "the_end": 1}, {"caf\u00e9": 2}]),
    "electronics": ([{"<num>": 1}], [{"zzz": 255}]),
    "kitchen": ([{"good": 1}], [{"rare": 9}]),
}


def review_contents():
    return [
        review_bytes(REVIEWS[domain][k], label)
        for domain in REVIEWS
        for k, label in enumerate(("positive", "negative"))
    ]


def test_reviews_against_a_dictionary_of_strings():
    least = 2
    documents: dict[str, int] = {}
    for domain in REVIEWS.values():
        for review in domain[0] + domain[1]:
            for word in review:
                documents[word] = documents.get(word, 0) + 1
    vocabulary = sorted(word for word, n in documents.items() if n >= least)
    assert vocabulary == ["<num>", "a:b", "bad", "caf\u00e9", "good", "the_end"]
    files = datasets._review_arrays(review_contents(), least)
    for domain, (positive, negative) in REVIEWS.items():
        arrays = files[f"sentiment_{domain}.npz"]
        stored = arrays["data"], arrays["indices"], arrays["indptr"]
        X = sparse.csr_array(stored, shape=tuple(arrays["shape"]))
        expected = [[review.get(w, 0) for w in vocabulary] for review in positive + negative]
        np.testing.assert_array_equal(X.toarray(), expected)
        assert X.has_sorted_indices
        assert arrays["y"].tolist() == [1] * len(positive) + [-1] * len(negative)
        fields = datasets._COLLECTIONS["sentiment_raw"].fields
        assert {key: a.dtype for key, a in arrays.items()} == {
            key: np.dtype(kind) for key, (kind, _) in fields.items()
        }


def test_review_counts_must_fit():
    for count in (b"256", b"x"):
        contents = [b"w:%s #label#:positive\n" % count] + [b""] * 7
        with pytest.raises(ValueError, match=rf"line 1: b'w' .* {count}, not one of 1\.\.255"):
            datasets._review_arrays(contents, 1)


def test_review_archive_and_single_files_agree(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets._review_arrays, "__defaults__", (2,))
    paths = []
    archive = tmp_path / "processed_acl.tar.gz"
    with tarfile.open(archive, "w:gz") as stream:
        for name, content in zip(datasets._REVIEW_FILES, review_contents(), strict=True):
            paths.append(tmp_path / name.replace("/", "-"))
            paths[-1].write_bytes(content)
            stream.add(paths[-1], f"processed_acl/{name}")
    single, packed = datasets._parse_reviews(paths), datasets._parse_reviews([archive])
    assert list(single) == list(packed) == list(datasets._COLLECTIONS["sentiment_raw"].digests)
    for file, arrays in single.items():
        same(packed[file], arrays)
    with tarfile.open(archive, "w:gz") as stream:
        stream.add(paths[0], "processed_acl/books/positive.review")
    with pytest.raises(ValueError, match=r"no books/negative\.review"):
        datasets._parse_reviews([archive])


def test_reviews_over_the_server(site, cache, table, monkeypatch):
    """Four array files from eight text files, stored so that scipy reads them too."""
    folder, address = site
    monkeypatch.setattr(datasets._review_arrays, "__defaults__", (2,))
    for name, content in zip(datasets._REVIEW_FILES, review_contents(), strict=True):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    files = datasets._review_arrays(review_contents())
    collection = datasets._COLLECTIONS["sentiment_raw"]
    fields = {key: (kind, (None,) * len(shape)) for key, (kind, shape) in collection.fields.items()}
    table(
        "sentiment_raw",
        fields=fields,
        labels={"y": (-1, 1)},
        digests={file: datasets._digest(arrays) for file, arrays in files.items()},
        sources=((datasets._parse_reviews, tuple(address + f for f in datasets._REVIEW_FILES)),),
    )
    found = datasets._load("sentiment_raw")
    for arrays, expected in zip(found, files.values(), strict=True):
        same(arrays, expected)
    X = sparse.load_npz(cache / "sentiment_books.npz")
    assert X.shape == (3, 6)
    with pytest.raises(ValueError, match="leave a training row and a test row"):
        load_sentiment_tasks("raw", random_state=0, validation_size=0.5)
    tasks = load_sentiment_tasks("raw", random_state=0, train_size=1, validation_size=0)
    assert [task.name for task in tasks] == ["books", "dvd", "electronics", "kitchen"]
    assert all(sparse.issparse(rows) for task in tasks for rows in _rows(task))


# ---------------------------------------------------------------- full public files, from LML_DATA

DATA = os.environ.get("LML_DATA")
needs_data = pytest.mark.skipif(not DATA, reason="LML_DATA is not set")


def real(name):
    return datasets._load(name, download_if_missing=False)


def serve_and_load(monkeypatch, table, name, sources):
    """Load from the local server only, into an empty cache, with the true digests."""
    monkeypatch.delenv("LML_DATA")
    table(name, sources=sources)
    return datasets._load(name)


@pytest.fixture
def empty_home(tmp_path, monkeypatch):
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "home"))


@needs_data
def test_full_usps(site, empty_home, table, monkeypatch):
    folder, address = site
    (arrays,) = real("usps")
    usps_files(folder, arrays)
    addresses = (f"{address}zip.train.gz", f"{address}zip.test.gz")
    source = (datasets._parse_usps, addresses)
    (found,) = serve_and_load(monkeypatch, table, "usps", (source,))
    same(found, arrays)


@needs_data
def test_full_isolet(site, empty_home, table, monkeypatch):
    folder, address = site
    (arrays,) = real("isolet")
    cut = arrays["group"] < 5
    contents = [isolet_text(arrays["Xq"][own], arrays["y"][own]) for own in (cut, ~cut)]
    blob = hashlib.sha1(b"blob %d\0" % len(contents[0]) + contents[0]).hexdigest()
    assert blob == "755a9eed7776ad9a3d025d52df1e81c6f23d7d7c"  # the published file, to the byte
    for name, content in zip(("isolet_train.data", "isolet_test.data"), contents, strict=True):
        (folder / name).write_bytes(content)
    addresses = (f"{address}isolet_train.data", f"{address}isolet_test.data")
    source = (datasets._parse_isolet, addresses)
    (found,) = serve_and_load(monkeypatch, table, "isolet", (source,))
    same(found, arrays)


@needs_data
def test_full_words200(site, empty_home, table, monkeypatch):
    folder, address = site
    (arrays,) = real("sentiment_words200")
    words_mat(folder / "sentiment_mt.mat", arrays)
    source = (datasets._parse_words, (f"{address}sentiment_mt.mat",))
    (found,) = serve_and_load(monkeypatch, table, "sentiment_words200", (source,))
    same(found, arrays)
