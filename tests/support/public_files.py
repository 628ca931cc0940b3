"""Small collections in the formats in which they are published, and a server for them."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import threading
import time
import zipfile
from contextlib import contextmanager, suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
from scipy.io import savemat

from lml.datasets import COLLECTIONS, Collection, Source, array_digest

RNG = np.random.default_rng
PARSERS = {name: collection.sources[0].parse for name, collection in COLLECTIONS.items()}
DOMAINS = ("books", "dvd", "electronics", "kitchen")
REVIEW_FILES = [f"{d}/{p}.review" for d in DOMAINS for p in ("positive", "negative")]


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder; below /short/ it promises more than it sends, below /slow/ it drips."""

    def log_message(self, *args):
        pass

    def end_headers(self):
        if self.path.endswith(".encoded"):
            self.send_header("Content-Encoding", "gzip")
        super().end_headers()

    def send_head(self):
        if self.path.startswith("/short/"):
            self.send_response(200)
            self.send_header("Content-Length", "100000")
            self.end_headers()
            return io.BytesIO(b"-0.1 0.2\n")
        if self.path.startswith("/slow/"):
            self.send_response(200)
            self.send_header("Content-Length", "100")
            self.end_headers()
            with suppress(OSError):  # the other side has gone
                for _ in range(100):
                    self.wfile.write(b"1")
                    time.sleep(0.02)
            return None
        return super().send_head()


@contextmanager
def served(folder):
    """The address at which a folder is served on this machine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def described(monkeypatch, name, files, addresses=(), sources=None, **options):
    """Put a miniature into the table, with the addresses of its one source or with sources."""
    monkeypatch.setitem(
        COLLECTIONS,
        name,
        Collection(
            keys=tuple(next(iter(files.values()))),
            digests={file: array_digest(arrays) for file, arrays in files.items()},
            sources=sources or (Source(partial(PARSERS[name], **options), tuple(addresses)),),
        ),
    )


def same(found, expected):
    assert list(found) == list(expected)
    for key, array in expected.items():
        assert found[key].dtype == array.dtype
        np.testing.assert_array_equal(found[key], array)


def is_empty(cache):
    return not cache.exists() or list(cache.iterdir()) == []


def written(folder, contents):
    """Write files; their names."""
    for name, content in contents.items():
        path = Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return list(contents)


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


# ---------------------------------------------------------------- USPS


def usps_arrays(rows=(3, 2)):
    n = sum(rows)
    return {
        "Xq": RNG(0).integers(-1000, 1001, (n, 256)).astype(np.int16),
        "divisor": np.array(1000, dtype=np.int32),
        "y": (np.arange(n) % 10).astype(np.int8),
        "split": np.repeat([0, 1], rows).astype(np.int8),
    }


def usps_files(folder, arrays, packed=True):
    """zip.train(.gz) and zip.test(.gz): label, then values with four decimals."""
    contents = {}
    for part, name in ((0, "zip.train"), (1, "zip.test")):
        lines = []
        own = arrays["split"] == part
        for row, label in zip(arrays["Xq"][own], arrays["y"][own], strict=True):
            values = " ".join(f"{v / 1000:.4f}" for v in row.tolist())
            lines.append(f"{label}.0000 {values} \n")
        text = "".join(lines).encode()
        contents[name + ".gz" * packed] = gzip.compress(text, 1) if packed else text
    return written(folder, contents)


# ---------------------------------------------------------------- Isolet


def isolet_arrays(n=60):
    y = np.sort(RNG(1).integers(1, 27, n)).astype(np.int8)
    return {
        "Xq": RNG(0).integers(-10000, 10001, (n, 617)).astype(np.int16),
        "divisor": np.array(10000, dtype=np.int32),
        "y": y,
        "group": np.ones(n, dtype=np.int8),
        "speaker": np.ones(n, dtype=np.int16),
        "group_by_speaker": np.ones(n, dtype=np.int8),
    }


def isolet_text(Xq, y):
    """UCI's text: four decimals, comma and blank, the letter as `1.`."""
    words = {v: f"{v / 10000:.4f}" for v in np.unique(Xq).tolist()}
    rows = zip(Xq.tolist(), y.tolist(), strict=True)
    return "".join(
        ", ".join([words[v] for v in row] + [f"{k}."]) + "\n" for row, k in rows
    ).encode()


def compress(data):
    """A .Z file that says each byte by its own code and empties the table after seven."""
    groups = []
    for start in range(0, len(data), 7):
        codes = [*data[start : start + 7], 256]
        bits = sum(code << (9 * k) for k, code in enumerate(codes))
        groups.append(bits.to_bytes(9, "little"))
    return b"\x1f\x9d\x90" + b"".join(groups)


def isolet_files(folder, arrays, form="text"):
    """isolet1+2+3+4.data and isolet5.data: "text", "Z", or "zip" or "zip of Z"."""
    cut = len(arrays["y"]) * 4 // 5
    contents = {
        "isolet1+2+3+4.data": isolet_text(arrays["Xq"][:cut], arrays["y"][:cut]),
        "isolet5.data": isolet_text(arrays["Xq"][cut:], arrays["y"][cut:]),
    }
    if "Z" in form:
        contents = {f"{name}.Z": compress(text) for name, text in contents.items()}
    if "zip" not in form:
        return written(folder, contents)
    with zipfile.ZipFile(folder / "isolet.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("isolet1+2+3+4+5.data.zip", b"PK")
        archive.writestr("isolet.names", "about")
        for name in reversed(contents):
            archive.writestr(name, contents[name])
    return ["isolet.zip"]


# ---------------------------------------------------------------- Sentiment


def words_arrays():
    return {
        "X": RNG(0).random((36, 5)) * (RNG(1).random((36, 5)) < 0.4),
        "y": RNG(2).integers(1, 3, 36).astype(np.int8),
        "task": np.repeat(range(4), 9).astype(np.int8),
        "split": np.tile(np.repeat([0, 1, 2], [4, 2, 3]), 4).astype(np.int8),
        "task_names": np.array(DOMAINS),
    }


def words_files(folder, arrays, kind=np.asarray, packed=False):
    """sentiment_mt.mat: cells xTr, yTr, ... with one matrix a task."""
    stored = {}
    for s, part in enumerate(("Tr", "Va", "Te")):
        for key, array in (("x", arrays["X"]), ("y", arrays["y"].astype(float)[:, None])):
            cell = np.empty((1, 4), dtype=object)
            for t in range(4):
                own = array[(arrays["task"] == t) & (arrays["split"] == s)]
                cell[0, t] = kind(own) if key == "x" else own
            stored[key + part] = cell
    savemat(folder / "sentiment_mt.mat", stored, do_compression=packed)
    return ["sentiment_mt.mat"]


REVIEWS = {
    "books": (
        [{"good": 2, "a:b": 1, "caf\u00e9": 1}, {"good": 1, "the_end": 3}],
        [{"bad": 4, "good": 1}],
    ),
    "dvd": ([{"a:b": 1, "<num>": 2}], [{"bad": 1, "the_end": 1}, {"caf\u00e9": 2}]),
    "electronics": ([{"<num>": 1}], [{"zzz": 255}]),
    "kitchen": ([{"good": 1}], [{"rare": 9}]),
}


def review_arrays(least):
    """Arrays of REVIEWS by a dictionary of strings, dense."""
    documents: dict[str, int] = {}
    for domain in REVIEWS.values():
        for review in domain[0] + domain[1]:
            for word in review:
                documents[word] = documents.get(word, 0) + 1
    vocabulary = sorted(word for word, n in documents.items() if n >= least)
    files = {}
    for domain, (positive, negative) in REVIEWS.items():
        dense = np.array([[r.get(w, 0) for w in vocabulary] for r in positive + negative])
        rows, columns = dense.nonzero()
        files[f"sentiment_{domain}.npz"] = {
            "format": np.array(b"csr"),
            "shape": np.array(dense.shape, dtype=np.int64),
            "data": dense[rows, columns].astype(np.uint8),
            "indices": columns.astype(np.int32),
            "indptr": np.append(0, np.cumsum((dense > 0).sum(axis=1))).astype(np.int32),
            "y": np.repeat([1, -1], [len(positive), len(negative)]).astype(np.int8),
        }
    return files


def review_contents():
    contents = {}
    for domain, parts in REVIEWS.items():
        for reviews, label in zip(parts, ("positive", "negative"), strict=True):
            lines = [" ".join(f"{word}:{n}" for word, n in review.items()) for review in reviews]
            text = "".join(f"{line} #label#:{label}\n" for line in lines)
            contents[f"{domain}/{label}.review"] = text.encode()
    return contents


def review_files(folder, packed=False):
    """The eight review files, or processed_acl.tar.gz."""
    if not packed:
        return written(folder, review_contents())
    tar(folder / "processed_acl.tar.gz", review_contents())
    return ["processed_acl.tar.gz"]


def tar(path, contents, **changes):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"processed_acl/{name}")
            member.size = len(content)
            for key, value in changes.items():
                setattr(member, key, value)
            archive.addfile(member, io.BytesIO(content))
