"""From public files to verified arrays: downloads, stored copies, damaged and harmful files.

Everything is served from this machine. `load_arrays` answers with the right arrays or with an
error that names the file or the address, and unpacks no more than any original holds.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pooch
import pytest
from public_files import (
    PARSERS,
    RNG,
    compress,
    damaged,
    described,
    is_empty,
    isolet_arrays,
    isolet_files,
    review_arrays,
    review_files,
    same,
    served,
    usps_arrays,
    usps_files,
    words_arrays,
    words_files,
)
from scipy import sparse

from lml import datasets
from lml.datasets import (
    COLLECTIONS,
    Source,
    array_digest,
    load_arrays,
    load_isolet_tasks,
    load_sentiment_tasks,
    load_usps_tasks,
)


@pytest.fixture
def site(tmp_path):
    """A folder that is served on this machine, and its address."""
    folder = tmp_path / "site"
    folder.mkdir()
    with served(folder) as address:
        yield folder, address


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty data home, no LML_DATA."""
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "home"))
    monkeypatch.delenv("LML_DATA", raising=False)
    return tmp_path / "home" / "lml"


@pytest.fixture
def describe(monkeypatch):
    return partial(described, monkeypatch)


@pytest.fixture
def small_usps(site, describe):
    """A miniature USPS on the server; returns (folder, address, arrays)."""
    folder, address = site
    arrays = usps_arrays()
    names = usps_files(folder, arrays)
    describe("usps", {"usps.npz": arrays}, [address + name for name in names])
    return folder, address, arrays


def no_network(*args, **kwargs):
    raise AssertionError("the network was used")


# ---------------------------------------------------------------- public formats

USPS = {"usps.npz": usps_arrays()}
ISOLET = {"isolet.npz": isolet_arrays()}
WORDS = {"sentiment_mt.npz": words_arrays()}
TEXT = review_arrays(least=2)
FORMATS = {
    "usps text": ("usps", USPS, lambda f, a: usps_files(f, a, packed=False)),
    "usps gz": ("usps", USPS, usps_files),
    "isolet text": ("isolet", ISOLET, isolet_files),
    "isolet Z": ("isolet", ISOLET, lambda f, a: isolet_files(f, a, "Z")),
    "isolet zip": ("isolet", ISOLET, lambda f, a: isolet_files(f, a, "zip")),
    "isolet zip of Z": ("isolet", ISOLET, lambda f, a: isolet_files(f, a, "zip of Z")),
    "words": ("sentiment_words200", WORDS, words_files),
    "words packed": ("sentiment_words200", WORDS, partial(words_files, packed=True)),
    "words sparse": ("sentiment_words200", WORDS, partial(words_files, kind=sparse.csc_matrix)),
    "reviews text": ("sentiment_raw", TEXT, lambda f, a: review_files(f)),
    "reviews tar": ("sentiment_raw", TEXT, lambda f, a: review_files(f, packed=True)),
}


QUICK = [name for name in FORMATS if "words" not in name]  # read in this process


@pytest.fixture
def public(request, site, describe):
    """A collection in one of its formats on the server; returns (name, paths, addresses, files)."""
    name, files, make = FORMATS[request.param]
    folder, address = site
    names = make(folder, next(iter(files.values())))
    addresses = [address + file for file in names]
    describe(name, files, addresses, **({"least": 2} if name == "sentiment_raw" else {}))
    return name, [folder / file for file in names], addresses, files


@pytest.mark.parametrize("public", FORMATS, indirect=True)
def test_every_format_gives_the_arrays_and_then_the_cache_does(public, cache, capsys):
    name, paths, _, files = public
    for found, expected in zip(load_arrays(name), files.values(), strict=True):
        same(found, expected)
    assert "100%" in capsys.readouterr().err  # the progress bar
    assert sorted(p.name for p in cache.iterdir()) == sorted(files)
    for path in paths:
        path.unlink()
    for found, expected in zip(load_arrays(name), files.values(), strict=True):
        same(found, expected)


@pytest.mark.parametrize("public", QUICK, indirect=True)
def test_damaged_public_files_give_the_arrays_or_an_error_that_names_them(public, cache):
    name, paths, addresses, files = public
    rng, refused = RNG(7), 0
    intact = [path.read_bytes() for path in paths]
    for _ in range(25):
        which = rng.integers(len(paths))
        paths[which].write_bytes(damaged(intact[which], rng))
        shutil.rmtree(cache, ignore_errors=True)
        try:  # bytes that no array depends on may differ
            found, said = load_arrays(name), None
        except OSError as error:
            found, said = files.values(), str(error)
        for arrays, expected in zip(found, files.values(), strict=True):
            same(arrays, expected)
        if said is not None:
            refused += 1
            assert addresses[which] in said
            assert len(said) < 3000
            assert is_empty(cache)
        paths[which].write_bytes(intact[which])
    assert refused > 12
    load_arrays(name)


OTHERS = (
    *(b"", b"\n\n \n", b"\0" * 50, b"<html>404</html>", b"\x1f\x8b", b"\x1f\x9d", b"PK\x03\x04"),
    *(b"\x1f\x9d\x90", b"\x89PNG\r\n\x1a\n", bytes(range(256)), b"a" * 10**6, b"1 " * 10**5),
)


@pytest.mark.parametrize("public", QUICK, indirect=True)
def test_other_files_are_refused(public, cache):
    name, paths, addresses, _ = public
    for content in OTHERS:
        paths[0].write_bytes(content)
        with pytest.raises(OSError, match=f"(?s){name}.*could not be downloaded") as caught:
            load_arrays(name)
        assert addresses[0] in str(caught.value)
        assert is_empty(cache)


@pytest.mark.parametrize("public", ["words sparse"], indirect=True)
def test_matlab_files_that_end_their_reader_or_are_none_are_refused(public, cache):
    name, (path,), (address,), _ = public
    whole = path.read_bytes()
    shifted = whole[:1721] + whole[1744:]  # scipy's reader ends its process with a signal
    for content in (shifted, b"<html>404</html>"):
        path.write_bytes(content)
        with pytest.raises(OSError, match="'sentiment_words200' could not be") as caught:
            load_arrays(name)
        assert address in str(caught.value)
        assert is_empty(cache)


@pytest.mark.parametrize(
    "text",
    ["3 0.1", "4 " + "0.5 " * 256, "nan " + "0.5 " * 256, "1 " + "0.5 " * 255 + "1e999"],
)
def test_wrong_numbers_in_text(text, small_usps):
    folder, *_ = small_usps
    (folder / "zip.test.gz").write_bytes(gzip.compress(f"{text}\n".encode()))
    with pytest.raises(OSError, match=r"SHA-256|dimensions"):
        load_arrays("usps")


def test_isolet_groups_and_speakers_from_the_order_of_the_letters():
    """60 + 60 speakers in two layouts, then 30; some letters are missing."""
    twice, once = np.repeat(np.arange(1, 27), 2), np.arange(1, 27)
    order = [twice] * 60 + [once] * 120 + [twice] * 30
    speakers = np.repeat(np.r_[1:121, 61:121, 121:151], [len(part) for part in order])
    lines = np.array([f"0.5000, {letter}.\n" for letter in np.concatenate(order)], dtype=object)
    present = np.delete(np.arange(len(lines)), [4690, 5200, 6300])  # UCI has 6238 + 1559 samples
    contents = ["".join(part).encode() for part in np.split(lines[present], [6238])]
    arrays = PARSERS["isolet"](contents)["isolet.npz"]
    np.testing.assert_array_equal(arrays["speaker"], speakers[present])
    assert np.bincount(arrays["group"])[1:].tolist() == [1560, 1560, 1560, 1558, 1559]
    for group in range(1, 6):
        found = np.unique(arrays["speaker"][arrays["group_by_speaker"] == group])
        np.testing.assert_array_equal(found, 30 * (group - 1) + np.arange(1, 31))


@pytest.mark.skipif(shutil.which("gzip") is None, reason="gzip is not installed")
@pytest.mark.parametrize("size", [1, 7, 300, 5000])
def test_the_packed_text_of_these_tests_is_read_by_gzip(size):
    data = RNG(0).integers(97, 103, size).astype(np.uint8).tobytes()
    done = subprocess.run(["gzip", "-dc"], input=compress(data), capture_output=True, check=False)
    assert done.stdout == data, done.stderr


def test_reviews_make_tasks_and_scipy_reads_their_copies(site, describe, cache):
    folder, address = site
    names = review_files(folder)
    describe("sentiment_raw", TEXT, [address + name for name in names], least=2)
    tasks = load_sentiment_tasks("raw", random_state=0, train_size=1, validation_size=0)
    assert [task.name for task in tasks] == ["books", "dvd", "electronics", "kitchen"]
    assert all(sparse.issparse(X) for task in tasks for X in (task.X_train, task.X_test))
    assert sparse.load_npz(cache / "sentiment_books.npz").shape == (3, 6)
    with pytest.raises(ValueError, match="leave a training sample and a test sample"):
        load_sentiment_tasks("raw", random_state=0, validation_size=0.5)


# ---------------------------------------------------------------- downloads


def test_second_call_does_not_touch_the_network(small_usps, monkeypatch):
    load_arrays("usps")
    monkeypatch.setattr(pooch, "HTTPDownloader", no_network)
    load_arrays("usps")


def test_a_stored_file_may_hold_as_much_as_the_largest_original(small_usps, cache, monkeypatch):
    *_, arrays = small_usps
    load_arrays("usps")
    with zipfile.ZipFile(cache / "usps.npz") as archive:
        size = sum(member.file_size for member in archive.infolist())
    monkeypatch.setattr(pooch, "HTTPDownloader", no_network)
    monkeypatch.setattr(datasets, "_LARGEST", size)
    same(load_arrays("usps")[0], arrays)
    monkeypatch.setattr(datasets, "_LARGEST", size - 1)
    with pytest.raises(ValueError, match=f"it holds {size} bytes, more than any original"):
        load_arrays("usps")


def test_lml_data_comes_before_the_cache(small_usps, tmp_path, monkeypatch):
    *_, arrays = small_usps
    monkeypatch.setattr(pooch, "HTTPDownloader", no_network)
    monkeypatch.setenv("LML_DATA", str(tmp_path))
    np.savez(tmp_path / "usps.npz", **arrays, extra=np.zeros(2))
    same(load_arrays("usps")[0], arrays)


def test_file_missing_in_lml_data_is_looked_for_in_the_cache(small_usps, tmp_path, monkeypatch):
    (tmp_path / "own").mkdir()
    monkeypatch.setenv("LML_DATA", str(tmp_path / "own"))
    load_arrays("usps")
    assert list((tmp_path / "own").iterdir()) == []


def test_lml_data_that_is_no_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("LML_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match=r"LML_DATA is .*nowhere"):
        load_usps_tasks()


def test_missing_and_download_not_allowed(monkeypatch):
    monkeypatch.setattr(pooch, "HTTPDownloader", no_network)
    for load in (load_usps_tasks, load_isolet_tasks, load_sentiment_tasks):
        with pytest.raises(OSError, match=r"(?s)\.npz.*LML_DATA.*download_if_missing"):
            load(download_if_missing=False)
    with pytest.raises(OSError, match="sentiment_kitchen"):
        load_sentiment_tasks("raw", download_if_missing=False)


@pytest.mark.parametrize("kind", ["404", "refused", "cut off", "short", "one pixel"])
def test_faulty_source_is_named_and_nothing_is_cached(kind, small_usps, cache, describe):
    folder, address, arrays = small_usps
    first = f"{address}zip.train.gz"
    changed = arrays["Xq"].copy()
    if kind == "404":
        (folder / "zip.train.gz").unlink()
    elif kind == "refused":
        first = "http://127.0.0.1:9/zip.train.gz"
    elif kind == "cut off":
        data = (folder / "zip.train.gz").read_bytes()
        (folder / "zip.train.gz").write_bytes(data[: len(data) // 2])
    elif kind == "short":
        first = f"{address}short/zip.train"
    else:
        changed[1, 5] += 1 if changed[1, 5] < 0 else -1
        usps_files(folder, {**arrays, "Xq": changed})
    describe("usps", {"usps.npz": arrays}, [first, f"{address}zip.test.gz"])
    with pytest.raises(OSError, match="'usps' could not be downloaded") as caught:
        load_arrays("usps")
    assert all(part in str(caught.value) for part in (first, "LML_DATA", "usps.npz"))
    if kind == "one pixel":
        assert array_digest({**arrays, "Xq": changed}) in str(caught.value)
        assert array_digest(arrays) in str(caught.value)
    assert is_empty(cache)


def test_a_source_that_sends_a_byte_now_and_then_is_given_up(small_usps, cache, describe):
    """It never keeps silent for long, so only the time of the whole file bounds it."""
    _, address, arrays = small_usps
    good = COLLECTIONS["usps"].sources[0]
    slow = Source(PARSERS["usps"], (f"{address}slow/zip.train",), seconds=0.3)
    describe("usps", {"usps.npz": arrays}, sources=(slow,))
    began = time.monotonic()
    with pytest.raises(OSError, match=r"no end after 0\.3 seconds"):
        load_arrays("usps")
    assert time.monotonic() - began < 5
    assert is_empty(cache)
    describe("usps", {"usps.npz": arrays}, sources=(slow, good))
    same(load_arrays("usps")[0], arrays)


def test_next_source_is_tried(small_usps, describe):
    _, address, arrays = small_usps
    good = COLLECTIONS["usps"].sources[0]
    dead = Source(PARSERS["usps"], ("http://127.0.0.1:9/a", f"{address}b"))
    describe("usps", {"usps.npz": arrays}, sources=(dead, good))
    same(load_arrays("usps")[0], arrays)


def test_without_the_reader_of_packed_text_the_error_names_it(site, describe, monkeypatch):
    folder, address = site
    names = isolet_files(folder, ISOLET["isolet.npz"], "Z")
    describe("isolet", ISOLET, [address + name for name in names])
    monkeypatch.setitem(sys.modules, "unlzw3", None)
    with pytest.raises(OSError, match=r"ModuleNotFoundError: .*unlzw3"):
        load_arrays("isolet")


def test_all_public_sources_are_named_offline(monkeypatch):
    """Nothing listens: the error lists every address of the table."""

    class Dead:
        def __init__(self, *, timeout, **options):
            assert timeout <= 60

        def __call__(self, address, path, _):
            raise ConnectionError("no route to host")

    monkeypatch.setattr(pooch, "HTTPDownloader", Dead)
    for name, collection in COLLECTIONS.items():
        with pytest.raises(OSError, match=name) as caught:
            load_arrays(name)
        for source in collection.sources:
            assert all(address in str(caught.value) for address in source.addresses)
        assert str(caught.value).count("ConnectionError: no route") == len(collection.sources)


def test_addresses_on_github_are_pinned_to_a_commit():
    for collection in COLLECTIONS.values():
        assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in collection.digests.values())
        for source in collection.sources:
            for address in source.addresses:
                assert address.startswith("https://")
                pinned = re.search("/[0-9a-f]{40}/", address) is not None
                assert pinned == ("githubusercontent" in address), address


def test_interrupt_is_not_swallowed(small_usps, cache, monkeypatch):
    def interrupted(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(pooch, "HTTPDownloader", interrupted)
    with pytest.raises(KeyboardInterrupt):
        load_arrays("usps")
    assert is_empty(cache)


# ---------------------------------------------------------------- writing the cache


def killed(small_usps, program):
    """Run a program that kills itself while it loads."""
    kill = f"os.kill(os.getpid(), signal.{'SIGKILL' if hasattr(signal, 'SIGKILL') else 'SIGTERM'})"
    program = f"""
import os, signal, numpy as np
from lml.datasets import COLLECTIONS, Collection, Source, load_arrays

{program.replace("KILL", kill)}
real = COLLECTIONS["usps"]
source = Source(real.sources[0].parse, {COLLECTIONS["usps"].sources[0].addresses!r})
COLLECTIONS["usps"] = Collection(real.keys, {dict(COLLECTIONS["usps"].digests)!r}, (source,))
load_arrays("usps")
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True)
    assert done.returncode != 0
    assert b"Error" not in done.stderr


def test_killed_while_packing_leaves_nothing(small_usps, cache):
    killed(
        small_usps,
        """
def half(stream, **arrays):
    stream.write(b"PK half of a file")
    stream.flush()
    KILL

np.savez_compressed = half
""",
    )
    assert is_empty(cache)


def test_killed_while_writing_leaves_no_half_file(small_usps, cache):
    *_, arrays = small_usps
    killed(small_usps, "os.fsync = lambda handle: KILL")
    assert not (cache / "usps.npz").exists()
    assert len(list(cache.iterdir())) == 1  # the hidden file
    same(load_arrays("usps")[0], arrays)
    assert [path.name for path in cache.iterdir()] == ["usps.npz"]


def test_a_hidden_file_that_another_process_has_removed_is_no_error(small_usps, cache, monkeypatch):
    monkeypatch.setattr(Path, "glob", lambda folder, pattern: iter([folder / ".gone.tmp"]))
    same(load_arrays("usps")[0], small_usps[-1])


def test_two_downloads_at_once_leave_each_other_alone(small_usps, cache, monkeypatch):
    *_, arrays = small_usps
    writing, go_on = threading.Event(), threading.Event()

    def wait(handle):
        writing.set()
        go_on.wait(60)

    monkeypatch.setattr(os, "fsync", wait)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(load_arrays, "usps")
        assert writing.wait(60)
        hidden = list(cache.iterdir())
        second = pool.submit(load_arrays, "usps")
        with pytest.raises(TimeoutError):
            second.result(2)
        assert list(cache.iterdir()) == hidden
        go_on.set()
        same(first.result()[0], arrays)
        same(second.result()[0], arrays)
    assert [path.name for path in cache.iterdir()] == ["usps.npz"]


def test_killed_while_downloading_leaves_nothing(small_usps, tmp_path):
    _, address, _ = small_usps
    program = f"""
import os, signal, sys
from lml.datasets import COLLECTIONS, Collection, Source, load_arrays

def kill(contents):
    os.kill(os.getpid(), signal.{"SIGKILL" if hasattr(signal, "SIGKILL") else "SIGTERM"})

source = Source(kill, ({address + "zip.train.gz"!r},))
COLLECTIONS["usps"] = Collection(("y",), {{"usps.npz": ""}}, (source,))
load_arrays("usps")
"""
    folders = {"SCIKIT_LEARN_DATA": str(tmp_path / "new"), "TMPDIR": str(tmp_path / "temporary")}
    (tmp_path / "temporary").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, env=os.environ | folders
    )
    assert done.returncode != 0
    assert b"Error" not in done.stderr
    assert [path for path in tmp_path.glob("new/**/*") if path.is_file()] == []
    assert list((tmp_path / "temporary").iterdir()) == []


def test_the_file_and_its_folder_are_on_the_disk_before_the_arrays_are_used(
    small_usps, cache, monkeypatch
):
    """The bytes are forced to the disk before the file gets its name, the name after it."""
    done = []
    sync, replace = os.fsync, os.replace

    def fsync(handle):
        done.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        sync(handle)

    def named(old, new):
        done.append(Path(new).name)
        replace(old, new)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", named)
    load_arrays("usps")
    assert done == ["file", "usps.npz", *(["folder"] if os.name == "posix" else [])]


def test_error_while_writing_leaves_no_litter(small_usps, cache, monkeypatch):
    def full(file, **arrays):
        file.write(b"PK")
        raise OSError("no space left on device")

    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(OSError, match="no space"):
        load_arrays("usps")
    assert is_empty(cache)
