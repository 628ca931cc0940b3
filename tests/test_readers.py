"""Files from outside that are damaged, of another kind, or made to do harm.

Every reader of `lml.datasets` is given files in the public format, changed at random (with a
seed) or on purpose. It answers with the arrays or with a ValueError, never with anything else,
and unpacks no more than the original holds.
"""

from __future__ import annotations

import gzip
import io
import os
import pickle
import struct
import subprocess
import sys
import tarfile
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from scipy.io import savemat
from test_datasets import (
    RNG,
    cache,
    compress,
    isolet_rows,
    isolet_text,
    needs_data,
    real,
    review_contents,
    site,
    small_usps,
    table,
    usps_arrays,
    usps_files,
    words_mat,
)

from lml import datasets

FIXTURES = (cache, site, small_usps, table)  # used by name

# ---------------------------------------------------------------- intact files, one set a format


def usps(folder, packed):
    usps_files(folder, usps_arrays(), packed)
    return [folder / f"zip.{part}{'.gz' * packed}" for part in ("train", "test")]


def isolet(folder, form):
    Xq, y = isolet_rows(12)
    names = ["isolet1+2+3+4.data", "isolet5.data"]
    contents = [isolet_text(Xq[:7], y[:7]), isolet_text(Xq[7:], y[7:])]
    if "Z" in form:
        names, contents = [name + ".Z" for name in names], [compress(text) for text in contents]
    if "zip" not in form:
        return written(folder, dict(zip(names, contents, strict=True)))
    with zipfile.ZipFile(folder / "isolet.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in zip(names, contents, strict=True):
            archive.writestr(name, content)
    return [folder / "isolet.zip"]


def words(folder, kind, packed):
    arrays = {
        "X": RNG(0).random((36, 5)) * (RNG(1).random((36, 5)) < 0.4),
        "y": RNG(2).integers(1, 3, 36).astype(np.int8),
        "task": np.repeat(range(4), 9).astype(np.int8),
        "split": np.tile(np.repeat([0, 1, 2], [4, 2, 3]), 4).astype(np.int8),
    }
    words_mat(folder / "words.mat", arrays, kind)
    if packed:
        data = (folder / "words.mat").read_bytes()
        elements, place = [data[:128]], 128
        while place < len(data):
            size = 8 + struct.unpack_from("<I", data, place + 4)[0]
            element = zlib.compress(data[place : place + size])
            elements.append(struct.pack("<II", 15, len(element)) + element)
            place += size
        (folder / "words.mat").write_bytes(b"".join(elements))
    return [folder / "words.mat"]


def reviews(folder, packed):
    contents = dict(zip(datasets._REVIEW_FILES, review_contents(), strict=True))
    if not packed:
        return written(folder, {n.replace("/", "-"): c for n, c in contents.items()})
    return [tar(folder / "processed_acl.tar.gz", contents)]


def written(folder, contents):
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return [folder / name for name in contents]


def tar(path, contents, **changes):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"processed_acl/{name}")
            member.size = len(content)
            for key, value in changes.items():
                setattr(member, key, value)
            archive.addfile(member, io.BytesIO(content))
    return path


FORMATS = {
    "usps text": (datasets._parse_usps, lambda f: usps(f, False)),
    "usps gz": (datasets._parse_usps, lambda f: usps(f, True)),
    "isolet text": (datasets._parse_isolet, lambda f: isolet(f, "text")),
    "isolet Z": (datasets._parse_isolet, lambda f: isolet(f, "Z")),
    "isolet zip": (datasets._parse_isolet, lambda f: isolet(f, "zip")),
    "words": (datasets._parse_words, lambda f: words(f, np.asarray, False)),
    "words packed": (datasets._parse_words, lambda f: words(f, np.asarray, True)),
    "words sparse": (datasets._parse_words, lambda f: words(f, sparse.csc_matrix, True)),
    "reviews text": (datasets._parse_reviews, lambda f: reviews(f, False)),
    "reviews tar": (datasets._parse_reviews, lambda f: reviews(f, True)),
}
BITS = [b"nan", b"-inf", b"1e999", b"9" * 400, b"\0", b"\xff", b"#", b"\n", b":", b" ", b",", b"-"]


def damaged(data, rng):
    """A copy of a file with one thing wrong."""
    data, n, a = bytearray(data), len(data), int(rng.integers(len(data)))
    size = int(rng.integers(1, 40))
    kind = rng.integers(7)
    if kind == 0:  # bytes flipped
        for place in rng.integers(n, size=rng.integers(1, 6)):
            data[place] ^= int(rng.integers(1, 256))
    elif kind == 1:  # one bit
        data[a] ^= 1 << int(rng.integers(8))
    elif kind == 2:  # cut off
        del data[a:]
    elif kind == 3:  # a piece missing
        del data[a : a + size]
    elif kind == 4:  # a piece twice
        data[a:a] = data[a : a + size]
    elif kind == 5:  # something put in
        data[a:a] = BITS[rng.integers(len(BITS))]
    else:  # a number of bytes, a shape or a count made large
        data[a : a + 4] = struct.pack("<i", int(rng.choice([-1, 2**31 - 1, 2**30, 2**16])))
    return bytes(data)


@pytest.mark.parametrize("name", FORMATS)
def test_damaged_files_give_arrays_or_a_value_error(name, tmp_path, monkeypatch):
    monkeypatch.setattr(datasets._review_arrays, "__defaults__", (1,))  # keep every word
    parse, make = FORMATS[name]
    paths = make(tmp_path)
    sound = {file: datasets._digest(arrays) for file, arrays in parse(paths).items()}
    rng, refused, intact = RNG(7), 0, [path.read_bytes() for path in paths]
    for _ in range(150):
        which = rng.integers(len(paths))
        paths[which].write_bytes(damaged(intact[which], rng))
        try:
            found, said = parse(paths), ""
        except ValueError as error:
            found, said, refused = {}, str(error), refused + 1
        assert len(said) < 1500
        if found:  # what can be read has the types of the table; the digest tells it apart
            for file, arrays in found.items():
                fields = collection_of(file).fields
                assert {k: a.dtype for k, a in arrays.items()} == {
                    k: np.dtype(kind) for k, (kind, _) in fields.items()
                }
            refused += {f: datasets._digest(a) for f, a in found.items()} != sound
        paths[which].write_bytes(intact[which])
    assert refused > 100
    assert {file: datasets._digest(arrays) for file, arrays in parse(paths).items()} == sound


def collection_of(file):
    return next(c for c in datasets._COLLECTIONS.values() if file in c.digests)


OTHERS = (
    *(b"", b"\n\n \n", b"\0" * 50, b"<html>404</html>", b"\x1f\x8b", b"\x1f\x9d", b"PK\x03\x04"),
    *(b"\x1f\x9d\x90", b"\x89PNG\r\n\x1a\n", bytes(range(256)), b"a" * 10**6, b"1 " * 10**5),
)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("content", OTHERS, ids=lambda c: repr(c[:8]))
def test_other_files_are_refused_by_name(name, content, tmp_path):
    parse, make = FORMATS[name]
    paths = make(tmp_path)
    paths[-1].write_bytes(content)
    if name == "reviews text" and not content:  # no line, no review
        assert parse(paths)["sentiment_kitchen.npz"]["y"].tolist() == [1]
        return
    with pytest.raises(ValueError, match="sound cop") as caught:
        parse(paths)
    assert len(str(caught.value)) < 1500


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"3 0.1", r"zip\.train, zip\.test have rows of \[2, 257\] numbers"),
        (b"3.5 " + b"0.5 " * 256, r"row 0 has the label 3\.5, which is not in 0\.\.9"),
        (b"10 " + b"0.5 " * 256, r"row 0 has the label 10\.0"),
        (b"nan " + b"0.5 " * 256, "row 0 has the label nan"),
        (b"3 " + b"0.5 " * 255 + b"nan", "row 0 has the value nan"),
        (b"3 " + b"0.5 " * 255 + b"1e999", "row 0 has the value inf"),
        (b"3 " + b"0.5 " * 255 + b"-1e300", r"row 0 has the value -1e\+300"),
        (b"3 " + b"0.5 " * 255 + b"0.00051", "row 0 has the value 0.00051"),
        (b"3 " + b"0.5 " * 255 + b"x" * 10**5, r"zip\.train cannot be read"),
    ],
)
def test_wrong_numbers_in_text(line, said, tmp_path):
    paths = usps(tmp_path, False)
    paths[0].write_bytes(line + b"\n")
    with pytest.raises(ValueError, match=said) as caught:
        datasets._parse_usps(paths)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"good:2 good:3 #label#:positive", "books/positive.review, line 1, has a token twice"),
        (
            b"good:256 #label#:positive",
            r"line 1: b'good' has the count b'256', not one of 1\.\.255",
        ),
        (b"good:0 #label#:positive", "line 1: b'good' has the count b'0'"),
        (b"good:-3 #label#:positive", "line 1: b'good' has the count b'-3'"),
        (b"good:1_0 #label#:positive", "line 1: b'good' has the count b'1_0'"),
        (b"good:" + b"9" * 10**5, "line 1: b'good' has the count b'9{30}'"),
        (b"w" * 10**5, "line 1: b'' has the count b'w{30}'"),
        (b"\n", "line 1: b'' has the count b''"),
    ],
)
def test_wrong_counts_in_reviews(line, said, tmp_path):
    paths = reviews(tmp_path, False)
    paths[0].write_bytes(line + b"\n")
    with pytest.raises(ValueError, match=said) as caught:
        datasets._parse_reviews(paths)
    assert len(str(caught.value)) < 1000


def test_more_words_than_the_originals_hold(tmp_path):
    paths = reviews(tmp_path, False)
    paths[0].write_bytes(b"a:1 " * (2**21 - 10))
    with pytest.raises(ValueError, match="the originals 1,519,266"):
        datasets._parse_reviews(paths)


# ---------------------------------------------------------------- bombs


def gz_bomb(n_blocks, block=bytes(2**20)):
    """A file that gzip unpacks to n_blocks MiB."""
    return gzip.compress(block, 9) * n_blocks


def z_bomb(n_codes):
    """A .Z file whose codes are each defined by their own step: strings of 1, 2, 3, ... bytes."""
    codes, width, out = [97, *range(257, 256 + n_codes)], 9, bytearray(b"\x1f\x9d\x90")
    free, group = 257, []

    def flush():
        bits = sum(code << (k * width) for k, code in enumerate(group))
        out.extend(bits.to_bytes(width, "little"))
        group.clear()

    for place, code in enumerate(codes):
        group.append(code)
        free += place > 0
        if len(group) == 8 or free == 1 << width:
            flush()
        width += free == 1 << width
    flush()
    return bytes(out)


def zip_bomb(name, n_blocks):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("isolet5.data", b"0.5, 1.\n")
        with archive.open(name, "w", force_zip64=True) as member:
            for _ in range(n_blocks):
                member.write(bytes(2**20))
    return stream.getvalue()


def tar_bomb(n_blocks, name="books/positive.review"):
    """A packed archive whose first member is n_blocks MiB long."""
    member = tarfile.TarInfo(f"processed_acl/{name}")
    member.size = n_blocks * 2**20
    return gzip.compress(member.tobuf()) + gz_bomb(n_blocks)


def mat_bomb(n_blocks):
    packer = zlib.compressobj(9)
    element = b"".join(packer.compress(bytes(2**20)) for _ in range(n_blocks)) + packer.flush()
    head = b"MATLAB 5.0".ljust(124) + b"\x00\x01IM"
    return head + struct.pack("<II", 15, len(element)) + element


def npz(**members):
    """An .npz file from bytes."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for key, content in members.items():
            archive.writestr(f"{key}.npy", content)
    return stream.getvalue()


def npy_head(kind, shape):
    stream = io.BytesIO()
    head = {"descr": kind, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, head)
    return stream.getvalue()


def read_stored(path):
    return datasets._read(path, datasets._COLLECTIONS["usps"])


def read_raw(path):
    return datasets._read(path, datasets._COLLECTIONS["sentiment_raw"])


BOMBS = {
    "gz": (lambda p: datasets._parse_usps([p, p]), "zip.train.gz", gz_bomb),
    "gz of blanks": (
        lambda p: datasets._parse_usps([p, p]),
        "zip.train.gz",
        lambda n: gz_bomb(n, b" " * 2**20),
    ),
    "Z": (lambda p: datasets._parse_isolet([p, p]), "isolet5.data.Z", lambda n: z_bomb(250 * n)),
    "zip": (
        lambda p: datasets._parse_isolet([p]),
        "isolet.zip",
        lambda n: zip_bomb("isolet1+2+3+4.data", n),
    ),
    "tar": (lambda p: datasets._parse_reviews([p]), "processed_acl.tar.gz", tar_bomb),
    "tar, skipped": (
        lambda p: datasets._parse_reviews([p]),
        "processed_acl.tar.gz",
        lambda n: tar_bomb(n, "books/unlabeled.review"),
    ),
    "mat": (lambda p: datasets._parse_words([p]), "sentiment_mt.mat", mat_bomb),
    "npz": (
        read_stored,
        "usps.npz",
        lambda n: npz(Xq=npy_head("<i2", (9298, 256)) + bytes(n * 2**20)),
    ),
    "npz of any length": (
        read_raw,
        "sentiment_books.npz",
        lambda n: npz(data=npy_head("|u1", (n * 2**20,)) + bytes(n * 2**20)),
    ),
}
LIMIT = """
import resource, sys, time
resource.setrlimit(resource.RLIMIT_AS, (3 * 2**30, 3 * 2**30))
sys.path.insert(0, {tests!r})
from test_readers import BOMBS
read, _, _ = BOMBS[{name!r}]
try:
    read({path!r})
except ValueError as error:
    print("refused:", str(error)[:200], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_not_unpacked(name, tmp_path):
    """Files of at most a few megabytes that unpack to more than their originals, many times."""
    read, file, make = BOMBS[name]
    path, size = tmp_path / file, {"tar": 40, "tar, skipped": 300, "Z": 40, "mat": 60}.get(name, 80)
    path.write_bytes(make(size))
    assert path.stat().st_size < 2**22
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=rf"{file}.*(more than|sound copy)"):
            read(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    largest = {"tar": 2**23, "tar, skipped": 2**20, "mat": 2**24, "npz of any length": 2**20}
    assert peak < 4 * largest.get(name, 2**25) + 2**23


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS")
def test_a_bomb_of_many_gigabytes_in_a_process_of_three(tmp_path):
    path = tmp_path / "zip.train.gz"
    path.write_bytes(gz_bomb(6000))
    program = LIMIT.format(tests=str(Path(__file__).parent), name="gz", path=str(path))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.startswith("refused: zip.train.gz cannot be read"), done.stderr
    assert "more than 16777216 bytes" in done.stdout


def test_a_file_larger_than_its_original_is_not_read_whole(tmp_path):
    path = tmp_path / "zip.train"
    with open(path, "wb") as stream:
        stream.truncate(2**36)  # 64 GiB of nothing
    for read in (lambda p: datasets._parse_usps([p, p]), lambda p: datasets._parse_isolet([p, p])):
        with pytest.raises(ValueError, match=r"zip\.train has more than \d+ bytes"):
            read(path)
    os.replace(path, tmp_path / "usps.npz")
    with pytest.raises(ValueError, match=r"usps\.npz has more than 67108864 bytes"):
        read_stored(tmp_path / "usps.npz")


# ---------------------------------------------------------------- archives and heads that lie


@pytest.mark.parametrize(
    ("member", "said"),
    [
        (npy_head("<i2", (10**12,)), r"shape \(1000000000000,\), not int16"),
        (npy_head("<i2", (9298, 256)), "EOF"),
        (npy_head("<f8", (9298, 256)), "type float64"),
        (npy_head("|O", (9298, 256)), "type object"),
        (b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 65535, "is large"),
        (b"\x93NUMPY\x09\x00" + bytes(100), "header"),
        (b"\x93NUMPY\x01\x00\x10\x00__import__('os')", "malformed"),
        (b"", "EOF"),
    ],
)
def test_heads_of_stored_arrays_that_lie(member, said, tmp_path):
    (tmp_path / "usps.npz").write_bytes(npz(Xq=member, y=b""))
    with pytest.raises(ValueError, match=rf"(?s)usps\.npz cannot be read.*{said}.*LML_DATA"):
        read_stored(tmp_path / "usps.npz")


def test_an_array_of_any_length_has_an_end(tmp_path):
    (tmp_path / "sentiment_books.npz").write_bytes(npz(data=npy_head("|u1", (10**12,))))
    expected = npz(data=npy_head("|u1", (10**12,)), format=npy_head("|S3", ()) + b"csr")
    for content in (expected, npz(format=npy_head("|S3", ()) + b"csr", data=b"")):
        (tmp_path / "sentiment_books.npz").write_bytes(content)
        with pytest.raises(ValueError, match=r"sentiment_books\.npz cannot be read"):
            read_raw(tmp_path / "sentiment_books.npz")


class Touch:
    """Unpickling it would write a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (Path(self.path),)


def test_nothing_in_a_stored_file_is_executed(tmp_path):
    path, sign = tmp_path / "usps.npz", tmp_path / "executed"
    payload = pickle.dumps(Touch(sign))
    pickle.loads(payload)
    assert sign.exists()
    sign.unlink()
    for content in (npz(Xq=npy_head("|O", (1,)) + payload), npz(Xq=payload), payload):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="cannot be read"):
            read_stored(path)
        assert not sign.exists()


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_members_that_are_not_deflated_are_refused(method, tmp_path):
    path = tmp_path / "isolet.zip"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("isolet1+2+3+4.data", "0.5, 1.\n")
        archive.writestr("isolet5.data", "0.5, 1.\n")
    with pytest.raises(ValueError, match=rf"isolet\.zip.*packed by method {method}, not deflated"):
        datasets._parse_isolet([path])


@pytest.mark.parametrize("names", [(), ("isolet5.data",), ("a.data", "b.data", "c.data")])
def test_a_zip_of_other_files(names, tmp_path):
    path = tmp_path / "isolet.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "0.5, 1.\n")
    with pytest.raises(ValueError, match=rf"isolet\.zip .*holds {len(names)} tables, not two"):
        datasets._parse_isolet([path])


@pytest.mark.parametrize(
    "change",
    [
        {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"},
        {"type": tarfile.LNKTYPE, "linkname": "x"},
        {"type": tarfile.DIRTYPE},
        {"type": tarfile.CHRTYPE},
    ],
)
def test_members_that_are_no_files(change, tmp_path):
    contents = dict(zip(datasets._REVIEW_FILES, review_contents(), strict=True))
    if change["type"] != tarfile.CHRTYPE:
        change["size"] = 0
    path = tar(tmp_path / "processed_acl.tar.gz", contents, **change)
    with pytest.raises(ValueError, match=r"processed_acl\.tar\.gz"):
        datasets._parse_reviews([path])


def test_a_member_of_zeros_that_are_not_there(tmp_path):
    """A sparse member of a terabyte, as GNU tar writes it."""
    member = tarfile.TarInfo("processed_acl/books/positive.review")
    block = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    block[124:136] = b"00000000000\0"  # bytes in the archive
    block[156:157] = tarfile.GNUTYPE_SPARSE
    block[483:495] = b"\x80" + (2**40).to_bytes(11, "big")  # bytes when unpacked
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block[:512])
    path = tmp_path / "processed_acl.tar.gz"
    path.write_bytes(gzip.compress(bytes(block) + bytes(1024)))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"processed_acl\.tar\.gz.*more than 8388608 bytes"):
            datasets._parse_reviews([path])
        assert tracemalloc.get_traced_memory()[1] < 2**26
    finally:
        tracemalloc.stop()


def element(kind, content):
    return struct.pack("<II", kind, len(content)) + content + bytes(-len(content) % 8)


def mat_matrix(kind, shape, *parts, name=b"", flags=0):
    head = element(6, bytes([kind, flags, 0, 0, 0, 0, 0, 0]))
    head += element(5, struct.pack(f"<{len(shape)}i", *shape)) + element(1, name)
    return element(14, head + b"".join(parts))


def mat_file(*variables):
    return b"MATLAB 5.0".ljust(124) + b"\x00\x01IM" + b"".join(variables)


DOUBLE = element(9, struct.pack("<2d", 1.0, 2.0))
SPARSE = [
    element(5, struct.pack("<2i", 0, 1)),
    element(5, struct.pack("<2i", 0, 2)),
    element(9, struct.pack("<2d", 1, 2)),
]


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        (mat_matrix(6, (2, 1), DOUBLE), None),
        (mat_matrix(5, (2, 1), *SPARSE), None),
        (mat_matrix(6, (2**30, 2**30), DOUBLE), "too large"),
        (mat_matrix(6, (-1, 2), DOUBLE), "too large"),
        (mat_matrix(6, (2, 1, 1), DOUBLE), "too large"),
        (mat_matrix(6, (2, 1), DOUBLE, DOUBLE, flags=8), "complex"),
        (mat_matrix(6, (3, 1), DOUBLE), "reshape"),
        (mat_matrix(6, (2, 1)), "IndexError"),
        (mat_matrix(4, (2, 1), element(16, b"ab")), "KeyError"),
        (mat_matrix(5, (2**30, 2**30), *SPARSE), "too large"),
        (mat_matrix(5, (1, 1), *SPARSE), "indices must be"),
        (mat_matrix(5, (2, 1), SPARSE[0], element(5, struct.pack("<2i", 0, 9)), SPARSE[2]), "ind"),
        (
            mat_matrix(5, (2, 1), SPARSE[0], element(5, struct.pack("<2i", 0, -5)), SPARSE[2]),
            "negative",
        ),
        (mat_matrix(5, (2, 1), SPARSE[0]), "values"),
        (element(14, b"\0" * 8), "values|elements"),
    ],
)
def test_matlab_matrices_that_lie(cell, said, tmp_path):
    """The cell stands where a matrix of two rows and a vector of two labels are expected."""
    sound = mat_matrix(6, (2, 1), DOUBLE)
    variables = [
        mat_matrix(1, (1, 4), *(cell if k == "xTr" else sound for _ in range(4)), name=k.encode())
        for k in ("xTr", "yTr", "xVa", "yVa", "xTe", "yTe")
    ]
    path = tmp_path / "sentiment_mt.mat"
    path.write_bytes(mat_file(*variables))
    if said is None:
        found = datasets._parse_words([path])["sentiment_mt.npz"]
        assert found["X"].tolist() == [[1.0], [2.0]] * 12
    else:
        with pytest.raises(ValueError, match=rf"sentiment_mt\.mat cannot be read.*({said})"):
            datasets._parse_words([path])


def test_matlab_cells_in_cells_do_not_go_deep(tmp_path):
    cell = mat_matrix(6, (2, 1), DOUBLE)
    for _ in range(3000):
        cell = mat_matrix(1, (1, 1), cell)
    path = tmp_path / "sentiment_mt.mat"
    path.write_bytes(mat_file(mat_matrix(1, (1, 4), cell, cell, cell, cell, name=b"xTr")))
    with pytest.raises(ValueError, match=r"sentiment_mt\.mat cannot be read"):
        datasets._parse_words([path])


def test_other_matlab_files(tmp_path):
    path = tmp_path / "sentiment_mt.mat"
    savemat(path, {"xTr": np.eye(2)})
    with pytest.raises(ValueError, match="has no 4 cells xTr"):
        datasets._parse_words([path])
    savemat(path, {"xTr": np.eye(2)}, format="4")
    with pytest.raises(ValueError, match="no MATLAB 5 file"):
        datasets._parse_words([path])


# ---------------------------------------------------------------- stored copies


@needs_data
@pytest.mark.parametrize("name", ["usps", "sentiment_words200", "sentiment_raw"])
def test_damaged_copies_of_the_real_files(name, tmp_path):
    collection = datasets._COLLECTIONS[name]
    file = next(iter(collection.digests))
    intact = (Path(os.environ["LML_DATA"]) / file).read_bytes()
    first, rng = real(name)[0], RNG(3)
    (tmp_path / file).write_bytes(intact)
    found = datasets._read(tmp_path / file, collection)
    assert all(np.array_equal(found[key], first[key]) for key in first)
    unnoticed = 0
    for _ in range(25):
        (tmp_path / file).write_bytes(damaged(intact, rng))
        try:  # bytes that no array depends on, such as dates, may differ
            found, said = datasets._read(tmp_path / file, collection), None
        except ValueError as error:
            said = str(error)
        if said is None:
            assert all(np.array_equal(found[key], first[key]) for key in first)
            unnoticed += 1
        else:
            assert str(tmp_path / file) in said
            assert "LML_DATA" in said
    assert unnoticed < 5


# ---------------------------------------------------------------- downloads


def test_a_source_that_never_ends(small_usps, table, cache, monkeypatch):
    folder, address, _ = small_usps
    monkeypatch.setattr(datasets, "_LARGEST", 10_000)
    (folder / "zip.train").write_bytes(b"0.5 " * 10**6)
    table("usps", sources=((datasets._parse_usps, (address + "zip.train", address + "zip.test")),))
    with pytest.raises(OSError, match="more than 10000 bytes"):
        datasets._load("usps")
    assert not cache.exists() or list(cache.iterdir()) == []


def test_a_text_that_the_server_packs_is_bounded_too(monkeypatch, small_usps, table, cache):
    """`Content-Encoding: gzip` is unpacked on the way."""
    from test_datasets import Quiet

    folder, address, _ = small_usps
    (folder / "bomb").write_bytes(gz_bomb(50))
    send = Quiet.end_headers

    def with_encoding(self):
        if self.path == "/bomb":
            self.send_header("Content-Encoding", "gzip")
        send(self)

    monkeypatch.setattr(Quiet, "end_headers", with_encoding, raising=False)
    monkeypatch.setattr(datasets, "_LARGEST", 10_000)
    table("usps", sources=((datasets._parse_usps, (address + "bomb", address + "zip.test")),))
    tracemalloc.start()
    try:
        with pytest.raises(OSError, match="more than 10000 bytes"):
            datasets._load("usps")
        assert tracemalloc.get_traced_memory()[1] < 2**25
    finally:
        tracemalloc.stop()
