"""Stored copies and harmful files: nothing wrong is taken, executed, or unpacked at length."""

from __future__ import annotations

import gzip
import io
import pickle
import shutil
import struct
import subprocess
import sys
import tarfile
import tracemalloc
import zipfile
import zlib
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from joblib import Parallel, delayed
from public_files import (
    described,
    is_empty,
    isolet_arrays,
    review_arrays,
    review_contents,
    same,
    served,
    tar,
    usps_arrays,
    words_arrays,
    written,
)
from scipy.io import loadmat

from lml.datasets import array_digest, load_arrays

MIB = 2**20


# ---------------------------------------------------------------- stored copies


@pytest.fixture
def stored(monkeypatch, tmp_path):
    """Path of a stored miniature, and its arrays."""
    arrays = usps_arrays()
    described(monkeypatch, "usps", {"usps.npz": arrays})
    monkeypatch.setenv("LML_DATA", str(tmp_path))
    np.savez_compressed(tmp_path / "usps.npz", **arrays)
    same(load_arrays("usps")[0], arrays)
    return tmp_path / "usps.npz", arrays


def refused(path, said=""):
    with pytest.raises(ValueError, match=f"(?s)cannot be read.*{said}.*LML_DATA") as caught:
        load_arrays("usps")
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 1500


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"y": None}, "'y"),
        ({"y": np.zeros(5)}, "SHA-256"),
        ({"y": np.zeros(4, np.int8)}, "SHA-256"),
        ({"Xq": np.zeros((5, 256), np.int16)}, "SHA-256"),
        ({"y": np.array([{"a": 1}] * 5, dtype=object)}, "Object arrays"),
    ],
)
def test_wrong_content(stored, change, reason):
    path, arrays = stored
    np.savez(path, **{key: a for key, a in {**arrays, **change}.items() if a is not None})
    refused(path, reason)


def test_broken_files(stored):
    path, arrays = stored
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 255
    single = io.BytesIO()
    np.save(single, arrays["Xq"])
    for content in (b"", whole[:50], whole[:-30], bytes(flipped), single.getvalue(), b"text"):
        path.write_bytes(content)
        refused(path)


def npz(path, **members):
    """An .npz file from bytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for key, content in members.items():
            archive.writestr(f"{key}.npy", content)


def npy_head(kind, shape):
    stream = io.BytesIO()
    head = {"descr": kind, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, head)
    return stream.getvalue()


@pytest.mark.parametrize(
    "member",
    [
        npy_head("<i2", (10**14,)),
        npy_head("<i2", (9298, 256)),
        npy_head("|O", (9298, 256)),
        b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 65535,
        b"\x93NUMPY\x09\x00" + bytes(100),
        b"\x93NUMPY\x01\x00\x10\x00__import__('os')",
        b"",
    ],
)
def test_heads_of_stored_arrays_that_lie(member, stored):
    path, _ = stored
    npz(path, Xq=member, y=b"")
    refused(path)


class Touch:
    """Unpickling it would write a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (Path(self.path),)


def test_nothing_in_a_stored_file_is_executed(stored, tmp_path):
    path, sign = stored[0], tmp_path / "executed"
    payload = pickle.dumps(Touch(sign))
    pickle.loads(payload)
    assert sign.exists()
    sign.unlink()
    for member in (npy_head("|O", (1,)) + payload, payload):
        npz(path, Xq=member)
        refused(path)
    path.write_bytes(payload)
    refused(path)
    assert not sign.exists()


def test_digest_sees_content_and_not_layout():
    arrays = usps_arrays()
    base = array_digest(arrays)
    for same_content in (
        dict(reversed(arrays.items())),
        {**arrays, "Xq": np.asfortranarray(arrays["Xq"])},
        {**arrays, "Xq": arrays["Xq"].astype(">i2")},
        {**arrays, "Xq": np.repeat(arrays["Xq"], 2, axis=0)[::2]},
    ):
        assert array_digest(same_content) == base
    others = [
        {**arrays, "Xq": arrays["Xq"].reshape(256, 5)},
        {**arrays, "Xq": arrays["Xq"].view(np.uint16)},
        {**arrays, "Y": arrays["y"]},
        {key: a for key, a in arrays.items() if key != "split"},
        {**arrays, "divisor": arrays["divisor"].reshape(1)},
    ]
    assert len({base, *map(array_digest, others)}) == 6


# ---------------------------------------------------------------- bombs


def gz_bomb(n_mib, block=bytes(MIB)):
    return gzip.compress(block, 9) * n_mib


def zip_bomb(n_mib):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("isolet5.data", b"0.5, 1.\n")
        with archive.open("isolet1+2+3+4.data", "w") as member:
            for _ in range(n_mib):
                member.write(bytes(MIB))
    return stream.getvalue()


def tar_bomb(n_mib):
    member = tarfile.TarInfo("processed_acl/books/positive.review")
    member.size = n_mib * MIB
    return gzip.compress(member.tobuf()) + gz_bomb(n_mib)


def sparse_tar():
    """A member of a terabyte of zeros that are not there, as GNU tar writes it."""
    member = tarfile.TarInfo("processed_acl/books/positive.review")
    block = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    block[124:136] = b"00000000000\0"  # bytes in the archive
    block[156:157] = tarfile.GNUTYPE_SPARSE
    block[483:495] = b"\x80" + (2**40).to_bytes(11, "big")  # bytes when unpacked
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block[:512])
    return bytes(block) + bytes(1024)


def full_archive(first):
    """The eight files in an archive whose first member is another."""
    rest = io.BytesIO()
    with tarfile.open(fileobj=rest, mode="w") as archive:
        for name, content in list(review_contents().items())[1:]:
            member = tarfile.TarInfo(f"processed_acl/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return first + gzip.compress(rest.getvalue())


BOMBS = {
    "gz": ("usps", "zip.gz", lambda: gz_bomb(100)),
    "gz of blanks": ("usps", "zip.gz", lambda: gz_bomb(100, b" " * MIB)),
    "zip": ("isolet", "isolet.zip", lambda: zip_bomb(100)),
    "tar": ("sentiment_raw", "acl.tar.gz", lambda: full_archive(tar_bomb(100))),
    "sparse tar": (
        "sentiment_raw",
        "acl.tar.gz",
        lambda: full_archive(gzip.compress(sparse_tar()[:512])),
    ),
    "too long": ("usps", "zip.train", lambda: b"0.5 " * 17 * MIB),
    "packed by the server": ("usps", "zip.encoded", lambda: gz_bomb(100)),
}


SMALL = {
    "usps": {"usps.npz": usps_arrays()},
    "isolet": {"isolet.npz": isolet_arrays()},
    "sentiment_raw": review_arrays(least=2),
    "sentiment_words200": {"sentiment_mt.npz": words_arrays()},
}


@pytest.fixture
def refuse(tmp_path, monkeypatch):
    """Try to load a collection from files that are served on this machine."""

    def load(name, contents, said):
        monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "home"))
        monkeypatch.delenv("LML_DATA", raising=False)
        written(tmp_path / "site", contents)
        with served(tmp_path / "site") as address:
            described(monkeypatch, name, SMALL[name], [address + file for file in contents])
            with pytest.raises(OSError, match=said):
                load_arrays(name)
        assert is_empty(tmp_path / "home" / "lml")

    return load


@pytest.mark.parametrize("kind", BOMBS)
def test_bombs_are_neither_downloaded_nor_unpacked(kind, refuse):
    """Files that are larger, or unpack to more, than any original."""
    name, file, make = BOMBS[kind]
    content = make()
    tracemalloc.start()
    try:
        refuse(name, {file: content}, "more than 67108864 bytes")
        assert tracemalloc.get_traced_memory()[1] < 4 * 64 * MIB
    finally:
        tracemalloc.stop()


def z_bomb(bits):
    """A text of one letter by `compress`: each code is a letter longer than the one before."""
    codes = iter([97, *range(257, 2**bits)])
    packed = b"\x1f\x9d\x90"
    for width in range(9, bits + 1):
        for _ in range(2 ** (width - 4)):
            group = sum(next(codes) << width * k for k in range(8))
            packed += group.to_bytes(width, "little")
    return packed


def mat_bomb(n_mib):
    """A MATLAB file whose one variable, packed, has so many MiB of zeros."""
    tag = partial(struct.pack, "<ii")
    head = tag(6, 8) + tag(6, 0) + tag(5, 8) + tag(n_mib * MIB // 8, 1)  # a real matrix of doubles
    head += tag(1, 8) + b"xTrxTrxT" + tag(9, n_mib * MIB)
    pack = zlib.compressobj(1)
    packed = pack.compress(tag(14, len(head) + n_mib * MIB) + head)
    packed += b"".join(pack.compress(bytes(MIB)) for _ in range(n_mib)) + pack.flush()
    return b"MATLAB 5.0 MAT-file".ljust(124) + b"\0\1IM" + tag(15, len(packed)) + packed


@pytest.mark.skipif(shutil.which("gzip") is None, reason="gzip is not installed")
def test_bombs_for_compress_and_for_matlab_are_sound_files():
    """The two makers write what gzip and scipy read."""
    assert loadmat(io.BytesIO(mat_bomb(1)))["xTrxTrxT"].shape == (MIB // 8, 1)
    done = subprocess.run(["gzip", "-dc"], input=z_bomb(10), capture_output=True, check=True)
    assert done.stdout == b"a" * (768 * 769 // 2)


@pytest.mark.builds
@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS")
@pytest.mark.parametrize(
    ("name", "content"),
    [("isolet", partial(z_bomb, 14)), ("sentiment_words200", partial(mat_bomb, 600))],
    ids=["Z", "MATLAB"],
)
def test_readers_that_cannot_be_stopped_at_a_size_are_stopped_at_their_memory(
    name, content, refuse
):
    """And joblib's workers are as free as before."""
    resource = pytest.importorskip("resource")
    ask = [delayed(resource.getrlimit)(resource.RLIMIT_AS)] * 2
    before = Parallel(n_jobs=2)(ask)
    refuse(name, {"one": content(), "two": b""}, "more than 536870912 bytes of memory")
    assert Parallel(n_jobs=2)(ask) == before


def test_reviews_of_more_words_than_the_originals(refuse):
    contents = review_contents() | {"books/positive.review": b"a:1 " * (2**21 + 1)}
    refuse("sentiment_raw", contents, "the originals 1,519,266")


def test_an_archive_of_very_many_members_is_not_listed_to_its_end(refuse):
    heads = tarfile.TarInfo("empty").tobuf() * 1000
    whole = full_archive(gzip.compress(heads + tarfile.TarInfo("books/positive.review").tobuf()))
    refuse("sentiment_raw", {"acl.tar.gz": whole}, "KeyError")


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS")
def test_a_bomb_of_many_gigabytes_in_a_process_of_three(tmp_path):
    (tmp_path / "zip.train.gz").write_bytes(gz_bomb(6000))
    program = f"""
import resource
from pathlib import Path
from lml.datasets import COLLECTIONS
content = Path({str(tmp_path / "zip.train.gz")!r}).read_bytes()
resource.setrlimit(resource.RLIMIT_AS, (3 * 2**30, 3 * 2**30))
try:
    COLLECTIONS["usps"].sources[0].parse([content])
except ValueError as error:
    print("refused:", error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.startswith("refused: there are more than 67108864 bytes"), done.stderr


def test_a_stored_bomb_is_not_unpacked(stored):
    path, _ = stored
    npz(path, Xq=npy_head("<i2", (9298, 256)) + bytes(100 * MIB))
    tracemalloc.start()
    try:
        refused(path, "more than any original")
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()
    with open(path, "wb") as stream:
        stream.truncate(2**36)  # 64 GiB of nothing
    refused(path)


@pytest.mark.parametrize(
    "change",
    [
        {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd", "size": 0},
        {"type": tarfile.LNKTYPE, "linkname": "x", "size": 0},
        {"type": tarfile.DIRTYPE, "size": 0},
        {"type": tarfile.CHRTYPE},
    ],
)
def test_members_that_are_no_files(change, refuse, tmp_path):
    tar(tmp_path / "acl.tar.gz", review_contents(), **change)
    contents = {"acl.tar.gz": (tmp_path / "acl.tar.gz").read_bytes()}
    refuse("sentiment_raw", contents, r"acl\.tar\.gz")
