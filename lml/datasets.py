# Generated from book/datasets.ipynb by tools/tangle.py: edit the chapter.
"""Collections of related classification tasks, split without leaks.

The bundled digits need no download. USPS, Isolet and the two forms of the Sentiment
collection come from the folder named by the environment variable ``LML_DATA``, else from a
cached copy, else from a public address. Every array is checked against a SHA-256 before use.
"""

import gzip
import hashlib
import io
import math
import os
import struct
import tarfile
import tempfile
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.datasets import get_data_home, load_digits
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import normalize
from sklearn.utils import check_random_state

__all__ = [
    "Task",
    "load_digits_tasks",
    "load_isolet_tasks",
    "load_sentiment_tasks",
    "load_usps_tasks",
]

# book/datasets.ipynb#the-data-four-collections-of-tasks
_Rows: TypeAlias = NDArray[np.float64] | sparse.csr_array
_Files: TypeAlias = dict[str, dict[str, NDArray[Any]]]  # file name to arrays
_Paths: TypeAlias = Sequence[str | Path]


# book/datasets.ipynb#one-task
@dataclass(frozen=True, eq=False, repr=False)
class Task:
    """One classification task, split into training, validation and test rows.

    Parameters
    ----------
    name : str
        Name of the task, for example "0-1".
    X_train, X_validation, X_test : ndarray or CSR array of shape (n_rows, n_features)
        Rows of the three parts, preprocessed with statistics of the training part.
    y_train, y_validation, y_test : int ndarray of shape (n_rows,)
        Labels of the three parts.
    centered : bool, default=False
        Whether the mean of the training rows has been subtracted from all rows.

    Raises
    ------
    ValueError
        If rows and labels of a part, or the features of two parts, do not fit together.
    TypeError
        If a part is not an array.

    Examples
    --------
    >>> load_digits_tasks(random_state=0)[0]
    Task('0-1': 72 + 36 + 252 rows, 64 features, labels 0 1)
    """

    name: str
    X_train: _Rows
    y_train: NDArray[Any]
    X_validation: _Rows
    y_validation: NDArray[Any]
    X_test: _Rows
    y_test: NDArray[Any]
    centered: bool = False

    def __post_init__(self) -> None:
        self._check()

    def _check(self) -> None:
        for part in ("train", "validation", "test"):
            X = getattr(self, f"X_{part}")
            y = getattr(self, f"y_{part}")
            if not (hasattr(X, "ndim") and hasattr(y, "ndim")):
                raise TypeError(
                    f"X_{part} and y_{part} of task {self.name!r} are of type {type(X).__name__}"
                    f" and {type(y).__name__}: give arrays"
                )
            if np.ma.is_masked(X) or np.ma.is_masked(y):
                raise ValueError(f"{part} rows of task {self.name!r} have masked entries")
            if X.ndim != 2 or y.ndim != 1 or X.shape[0] != y.shape[0]:
                raise ValueError(
                    f"X_{part} and y_{part} of task {self.name!r} have shapes {X.shape} and"
                    f" {y.shape}: give a matrix and a vector with one label a row"
                )
            if X.shape[1] != self.X_train.shape[1]:
                raise ValueError(
                    f"X_{part} of task {self.name!r} has {X.shape[1]} features, X_train has"
                    f" {self.X_train.shape[1]}: give the three parts the same features"
                )

    def __repr__(self) -> str:
        rows = " + ".join(str(len(y)) for y in (self.y_train, self.y_validation, self.y_test))
        distinct = sorted(set(self.y_train.tolist()), key=lambda v: (type(v).__name__, v))
        labels = [str(label) for label in distinct]
        if len(labels) > 4:
            labels = [*labels[:2], "..", labels[-1]]
        width = self.X_train.shape[1]
        said = " ".join(labels)
        return f"Task({self.name!r}: {rows} rows, {width} features, labels {said})"

    def with_validation(self) -> "Task":
        """Training and validation rows together, for a final fit after tuning.

        Returns
        -------
        task : Task
            The training part is training plus validation, in this order; the validation part
            is empty. A centred task is centred with the new training mean; every other
            preprocessing keeps the statistics of the smaller training part.

        Notes
        -----
        Derived in chapter 2 (datasets), eq. (datasets-center).
        """
        parts = [self.X_train, self.X_validation]
        rows = sparse.vstack(parts, format="csr") if sparse.issparse(parts[0]) else np.vstack(parts)
        shift = rows.mean(axis=0) if self.centered else 0
        kept = (rows, self.X_test)
        X_train, X_test = (part - shift for part in kept) if self.centered else kept
        labels = np.concatenate([self.y_train, self.y_validation])
        nothing = self.X_validation[:0], self.y_validation[:0]
        return Task(self.name, X_train, labels, *nothing, X_test, self.y_test, self.centered)


# book/datasets.ipynb#random-splits
def _part_size(n_rows: int, size: float, argument: str) -> int:
    """Number of rows meant by a share in [0, 1) or by a count."""
    share = isinstance(size, float | np.floating) and 0 <= size < 1
    whole = isinstance(size, int | np.integer) and type(size) is not bool and 0 <= size <= n_rows
    if not (share or whole):
        raise ValueError(
            f"{argument} is {size!r}, the task has {n_rows} rows: give a share in [0, 1)"
            " or a whole number of rows (an int: 1.0 is neither)"
        )
    return round(size * n_rows) if share else int(size)


# book/datasets.ipynb#random-splits
def _check_parts(n_rows: int, n_train: int, n_validation: int, asked: str) -> None:
    if n_train < 1 or n_train + n_validation >= n_rows:
        raise ValueError(
            f"{asked} ask for {n_train} and {n_validation} of {n_rows} rows: leave a training row"
            " and a test row"
        )


def _split_rows(
    n_rows: int, train_size: float, validation_size: float, rng: np.random.RandomState
) -> list[NDArray[np.intp]]:
    """Row numbers of the three parts: one permutation, cut twice, blind to the classes.

    Derived in chapter 2 (datasets), eq. (datasets-split).
    """
    n_train = _part_size(n_rows, train_size, "train_size")
    n_validation = _part_size(n_rows, validation_size, "validation_size")
    asked = f"train_size={train_size!r} and validation_size={validation_size!r}"
    _check_parts(n_rows, n_train, n_validation, asked)
    return np.split(rng.permutation(n_rows), [n_train, n_train + n_validation])


# book/datasets.ipynb#preprocessing-without-a-leak
def _center(parts: list[_Rows]) -> list[_Rows]:
    """Subtract the mean of the first (training) part from every part.

    Derived in chapter 2 (datasets), eq. (datasets-center).
    """
    mean = parts[0].mean(axis=0)
    return [part - mean for part in parts]


def _make_task(
    name: str,
    X: _Rows,
    y: NDArray[Any],
    rows: Sequence[NDArray[np.intp]],
    preprocess: Callable[[list[_Rows]], list[_Rows]] | None = None,
) -> Task:
    """A task from row numbers; preprocess maps the list of parts to a list of parts."""
    parts = [X[index] for index in rows]
    labels = [y[index].astype(np.int64) for index in rows]
    if preprocess is not None:
        parts = preprocess(parts)
    (train, validation, test), (own, held, asked) = parts, labels
    centered = preprocess is _center
    return Task(name, train, own, validation, held, test, asked, centered)


# book/datasets.ipynb#preprocessing-without-a-leak
def _standardize(parts: list[_Rows]) -> list[_Rows]:
    """z-scores with statistics of the first part, then rows of unit length.

    Derived in chapter 2 (datasets), eq. (datasets-zscore).
    """
    if len(parts[0]) < 2:
        raise ValueError("one training row has no standard deviation: raise train_size to 2 rows")
    mean = parts[0].mean(axis=0)
    deviation = parts[0].std(axis=0, ddof=1)
    deviation = np.where(deviation < 1e-5, 1.0, deviation)
    return [normalize((part - mean) / deviation) if len(part) else part for part in parts]


# book/datasets.ipynb#preprocessing-without-a-leak
def _weigh(parts: list[Any], weighting: str, unit_rows: bool) -> list[_Rows]:
    """tf-idf weights (of the first part), 0/1 entries or counts; rows of unit length."""
    parts = [sparse.csr_array(part, dtype=np.float64) for part in parts]
    if weighting == "tfidf":
        scheme = TfidfTransformer(norm=None).fit(parts[0])
        parts = [
            sparse.csr_array(scheme.transform(part)) if len(part.indptr) > 1 else part
            for part in parts
        ]
    elif weighting == "binary":
        parts = [part.sign() for part in parts]
    if unit_rows:
        parts = [normalize(part) if len(part.indptr) > 1 else part for part in parts]
    return parts


# book/datasets.ipynb#the-running-example
_DIGIT_TASKS = {"0-1": (0, 1), "2-3": (2, 3), "4-5-6": (4, 5, 6), "7-8-9": (7, 8, 9)}


def load_digits_tasks(
    random_state: int | np.random.RandomState | None = None,
    *,
    train_size: float = 0.2,
    validation_size: float = 0.1,
    center: bool = True,
) -> list[Task]:
    """The digits that come with scikit-learn, as four tasks; no download.

    Parameters
    ----------
    random_state : int, RandomState instance or None, default=None
        Seed of the splits.
    train_size, validation_size : float in [0, 1) or int, default=0.2 and 0.1
        Share or number of a task's rows in the training and in the validation part; the
        rest is the test part. The split is random and not stratified.
    center : bool, default=True
        Subtract from every part the mean of the task's training rows: without it every
        inner product of two images is positive.

    Returns
    -------
    tasks : list of Task
        "0-1", "2-3", "4-5-6", "7-8-9"; 64 features in [0, 1] before centring.

    Notes
    -----
    Derived in chapter 2 (datasets), eqs. (datasets-split) and (datasets-center).
    The tasks are those that the paper makes of USPS (section V).

    Examples
    --------
    >>> [task.name for task in load_digits_tasks(random_state=0)]
    ['0-1', '2-3', '4-5-6', '7-8-9']
    """
    X, y = load_digits(return_X_y=True)
    X = X / 16.0
    rng = check_random_state(random_state)
    tasks = []
    for name, digits in _DIGIT_TASKS.items():
        own = np.flatnonzero(np.isin(y, digits))
        rows = _split_rows(len(own), train_size, validation_size, rng)
        tasks.append(_make_task(name, X[own], y[own], rows, _center if center else None))
    return tasks


# book/datasets.ipynb#files-from-outside
@contextmanager
def _sound(name: str | Path, remedy: str = "use a sound copy of the original") -> Iterator[None]:
    """Whatever a decoder says of a damaged file becomes a ValueError that names the file."""
    try:
        yield
    except Exception as error:  # each format has errors of its own
        said = f"{type(error).__name__}: {error}"[:500]
        raise ValueError(f"{name} cannot be read ({said}): {remedy}") from error


# book/datasets.ipynb#files-from-outside
def _bounded(stream: IO[bytes] | gzip.GzipFile, most: int, name: str) -> bytes:
    """The bytes of a stream; an error if there are more than `most`."""
    parts = []
    left = most
    while part := stream.read(min(left, 2**16) + 1):  # a long read would reserve its memory at once
        parts.append(part)
        left -= len(part)
        if left < 0:
            raise ValueError(f"{name} has more than {most} bytes, so it is no copy of the original")
    return b"".join(parts)


def _file(path: str | Path, most: int) -> bytes:
    """The bytes of a file of at most `most`."""
    with open(path, "rb") as stream:
        return _bounded(stream, most, Path(path).name)


# book/datasets.ipynb#files-from-outside
def _lzw_codes(group: bytes, width: int) -> list[int]:
    """The codes in a group of bytes, the lowest bits first."""
    bits = int.from_bytes(group, "little")
    return [bits >> k * width & (1 << width) - 1 for k in range(8 * len(group) // width)]


def _lzw_string(code: int, table: list[bytes], last: bytes, limit: int) -> bytes:
    """The string of a code; the table grows by one."""
    if code > len(table) or (code == len(table) and not last):
        raise ValueError(f"code {code} comes before its string is known")
    string = table[code] if code < len(table) else last + last[:1]
    if last and len(table) < limit:
        table.append(last + string[:1])
    return string


# book/datasets.ipynb#files-from-outside
def _lzw_strings(data: bytes, limit: int, block: int) -> Iterator[bytes]:
    """The strings of the codes of a .Z file without its first three bytes, in turn."""
    place = 0
    width = 9
    last = b""
    table: list[bytes] = []
    while place < len(data):
        table = table or [bytes([k]) for k in range(256)] + [b""] * block
        group = data[place : place + width]
        place = place + width
        for code in _lzw_codes(group, width):
            if block and code == 256:
                width = 9
                table = []
                last = b""
                break
            last = _lzw_string(code, table, last, limit)
            yield last
            if len(table) == 1 << width < limit:
                width += 1
                break


# book/datasets.ipynb#files-from-outside
def _unlzw(data: bytes, most: int, name: str) -> bytes:
    """The bytes packed in a .Z file."""
    if len(data) < 3 or data[2] & 0x60 or not 10 <= data[2] & 31 <= 16:
        raise ValueError(f"{name} does not begin as a .Z file")
    parts = []
    left = most
    for string in _lzw_strings(data[3:], 1 << (data[2] & 31), data[2] >> 7):
        parts.append(string)
        left -= len(string)
        if left < 0:
            raise ValueError(f"{name} has more than {most} bytes, so it is no copy of the original")
    return b"".join(parts)


# book/datasets.ipynb#usps-decimal-text
def _unpack(data: bytes, most: int, name: str) -> bytes:
    """The bytes of a text that may be packed by gzip or compress."""
    if data[:2] == b"\x1f\x8b":
        return _bounded(gzip.GzipFile(fileobj=io.BytesIO(data)), most, name)
    return _unlzw(data, most, name) if data[:2] == b"\x1f\x9d" else data


def _text_table(
    data: bytes, most: int, name: str, delimiter: str | None = None
) -> NDArray[np.float64]:
    """The numbers of a text, one row a line, whose bytes may be packed."""
    with _sound(name):
        lines = _unpack(data, most, name).decode("ascii").splitlines()
        if not any(map(str.strip, lines)):
            raise ValueError("it is empty")
        return np.loadtxt(lines, delimiter=delimiter, comments=None, ndmin=2)


# book/datasets.ipynb#usps-decimal-text
def _joined(tables: Sequence[NDArray[np.float64]], names: Sequence[str]) -> NDArray[np.float64]:
    """Tables of equal width above each other, with at least two columns."""
    widths = [table.shape[1] for table in tables]
    if len(set(widths)) > 1 or widths[0] < 2:
        raise ValueError(
            f"{', '.join(names)} have rows of {widths} numbers: all need one label and equally"
            " many features, use sound copies of the originals"
        )
    return np.vstack(tables)


def _labels_of(column: NDArray[Any], allowed: Sequence[int]) -> NDArray[np.int8]:
    """Labels as int8; an error says where one is none of those allowed."""
    for row in np.flatnonzero(~np.isin(column, allowed))[:1]:
        raise ValueError(
            f"row {row} has the label {column[row]}, which is not in {allowed[0]}..{allowed[-1]}:"
            " use a sound copy of the original"
        )
    return column.astype(np.int8)


# book/datasets.ipynb#usps-decimal-text
def _whole(values: NDArray[np.float64], divisor: int) -> NDArray[np.int16]:
    """Decimal values in [-1, 1] as int16 multiples of 1 / divisor; an error if they are not."""
    inside = np.abs(values) <= 1  # false for NaN
    exact = np.where(inside, values, 0.0) * divisor
    whole = np.rint(exact)
    off = ~inside | (np.abs(whole - exact) > 1e-4)
    for row, column in np.argwhere(off)[:1]:
        raise ValueError(
            f"row {row} has the value {values[row, column]}: the values are not multiples of"
            f" 1/{divisor} in [-1, 1], use a sound copy of the original"
        )
    return whole.astype(np.int16)


# book/datasets.ipynb#usps-decimal-text
def _parse_usps(paths: _Paths, most: int = 2**24) -> _Files:
    """Arrays from zip.train and zip.test (text, label first, also .gz); the longer has 14.5 MB."""
    names = [Path(path).name for path in paths]
    parts = [_text_table(_file(path, most), most, Path(path).name) for path in paths]
    table = _joined(parts, names)
    arrays: dict[str, NDArray[Any]] = {
        "Xq": _whole(table[:, 1:], 1000),
        "divisor": np.array(1000, dtype=np.int32),
        "y": _labels_of(table[:, 0], range(10)),
        "split": np.repeat(np.array([0, 1], dtype=np.int8), [len(part) for part in parts]),
    }
    return {"usps.npz": arrays}


# book/datasets.ipynb#isolet-speakers-from-the-order-of-the-rows
def _isolet_speakers(y: NDArray[np.int8]) -> NDArray[np.int16]:
    """Speaker 1..150 of every row in UCI's order.

    Derived in chapter 2 (datasets), eq. (datasets-speaker).
    """
    run = 1 + np.cumsum(np.diff(y, prepend=y[:1]) < 0)
    return np.where(run <= 120, run, run - 60).astype(np.int16)


# book/datasets.ipynb#isolet-speakers-from-the-order-of-the-rows
def _isolet_arrays(train: NDArray[np.float64], test: NDArray[np.float64]) -> _Files:
    """Arrays from the two tables of UCI (features, then the letter)."""
    table = _joined([train, test], ["the two tables"])
    letter = _labels_of(table[:, -1], range(1, 27))
    speaker = _isolet_speakers(letter)
    block = np.repeat(np.arange(1, 6, dtype=np.int8), [1560, 1560, 1560, 1558, 1559])
    arrays: dict[str, NDArray[Any]] = {
        "Xq": _whole(table[:, :-1], 10000),
        "divisor": np.array(10000, dtype=np.int32),
        "y": letter,
        "group": block[: len(letter)],
        "speaker": speaker,
        "group_by_speaker": ((speaker + 29) // 30).astype(np.int8),
    }
    return {"isolet.npz": arrays}


# book/datasets.ipynb#isolet-speakers-from-the-order-of-the-rows
def _from_zip(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    """The bytes of a member of a zip archive, stored or deflated."""
    method = archive.getinfo(name).compress_type
    if method not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{name} is packed by method {method}, not deflated")
    with archive.open(name) as stream:
        return _bounded(stream, most, name)


def _parse_isolet(paths: _Paths, most: int = 2**25) -> _Files:
    """Arrays from isolet1+2+3+4.data (32.4 MB) and isolet5.data, plain or .Z, or a zip of both."""
    files = [(Path(path).name, _file(path, most)) for path in paths]
    if len(files) == 1:
        with _sound(files[0][0]), zipfile.ZipFile(io.BytesIO(files[0][1])) as archive:
            names = sorted(n for n in archive.namelist() if ".data" in n and "+5" not in n)
            if len(names) != 2:
                raise ValueError(f"it holds {len(names)} tables, not two")
            files = [(name, _from_zip(archive, name, most)) for name in names]
    return _isolet_arrays(*(_text_table(data, most, name, ",") for name, data in files))


# book/datasets.ipynb#sentiment-two-file-formats
_DOMAINS = ("books", "dvd", "electronics", "kitchen")
_MAT_TYPES = {1: "<i1", 2: "<u1", 3: "<i2", 4: "<u2", 5: "<i4", 6: "<u4", 7: "<f4", 9: "<f8"}


def _mat_elements(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Type and bytes of the elements in a piece of a MATLAB 5 file, in turn."""
    place = 0
    while place < len(data):
        kind, size = struct.unpack_from("<II", data, place)
        start = place + 8
        step = size + (-size % 8 if kind != 15 else 0)
        if kind >> 16:  # a small element: type, size and up to four bytes in eight
            size = kind >> 16
            kind = kind & 0xFFFF
            start = place + 4
            step = 4
        if start + size > len(data) or size > step:
            raise ValueError(f"an element of {size} bytes at byte {place} goes beyond its end")
        yield kind, data[start : start + size]
        place = start + step


# book/datasets.ipynb#sentiment-two-file-formats
def _mat_matrix(data: memoryview, most: int) -> NDArray[np.float64]:
    """The entries of a real matrix, dense or sparse, as a dense array."""
    (_, flags), (_, size), _, *stored = islice(_mat_elements(data), 6)
    shape = tuple(np.frombuffer(size, "<i4").tolist())
    if len(shape) != 2 or min(shape) < 0 or 8 * shape[0] * shape[1] > most or flags[1] & 8:
        raise ValueError(f"a matrix of the shape {shape} is complex or too large")
    parts = [np.frombuffer(part, _MAT_TYPES[kind]) for kind, part in stored]
    if flags[0] != 5:
        return parts[0].astype(float).reshape(shape, order="F")
    rows, starts, values = parts
    n = starts[-1]
    matrix = sparse.csc_array((values[:n].astype(float), rows[:n], starts), shape=shape)
    matrix.check_format(full_check=True)  # every row number lies inside
    return matrix.toarray()


# book/datasets.ipynb#sentiment-two-file-formats
def _mat_variables(data: bytes, most: int) -> Iterator[memoryview]:
    """The matrices of a MATLAB 5 file, unpacked, in turn."""
    if bytes(data[124:128]) != b"\x00\x01IM":
        raise ValueError("it is no MATLAB 5 file")
    left = most
    for kind, part in _mat_elements(memoryview(data)[128:]):
        if kind == 15:
            part = memoryview(zlib.decompressobj().decompress(part, left + 1))
            left -= len(part)
            if left < 0:
                raise ValueError(f"it has more than {most} bytes, the original has fewer")
            _, part = next(_mat_elements(part))
        yield part


# book/datasets.ipynb#sentiment-two-file-formats
def _mat_cells(
    data: bytes, wanted: Sequence[str], most: int
) -> dict[str, list[NDArray[np.float64]]]:
    """Variable to its cells, matrices, of those variables that are wanted and are cells."""
    found = {}
    for part in _mat_variables(data, most):
        (_, flags), _, (_, name), *cells = islice(_mat_elements(part), 3 + len(_DOMAINS))
        if flags[0] == 1 and (key := bytes(name).decode("ascii")) in wanted:
            found[key] = [_mat_matrix(cell, most) for _, cell in cells]
    return found


# book/datasets.ipynb#sentiment-two-file-formats
def _parse_words(paths: _Paths, most: int = 2**24) -> _Files:
    """Arrays from sentiment_mt.mat (10.3 MB), MATLAB cells of one matrix a task."""
    name = Path(paths[0]).name
    wanted = ("xTr", "yTr", "xVa", "yVa", "xTe", "yTe")
    with _sound(name):
        stored = _mat_cells(_file(paths[0], most), wanted, most)
        for key in wanted:
            if len(stored.get(key, ())) != len(_DOMAINS):
                raise ValueError(f"it has no {len(_DOMAINS)} cells {key}")
        places = [(t, s) for t in range(len(_DOMAINS)) for s in range(3)]
        X = np.vstack([stored[wanted[2 * s]][t] for t, s in places])
        y = [stored[wanted[2 * s + 1]][t].ravel() for t, s in places]
        task, split = np.repeat(
            np.array(places, dtype=np.int8), [len(part) for part in y], axis=0
        ).T
        if len(task) != len(X):
            raise ValueError(f"it has {len(task)} labels for {len(X)} rows")
        arrays = {"X": X, "y": _labels_of(np.concatenate(y), (1, 2)), "task": task, "split": split}
    return {"sentiment_mt.npz": {**arrays, "task_names": np.array(_DOMAINS)}}


# book/datasets.ipynb#sentiment-two-file-formats
_REVIEW_FILES = tuple(f"{d}/{p}.review" for d in _DOMAINS for p in ("positive", "negative"))


def _read_reviews(data: bytes, name: str = "the text") -> list[dict[bytes, int]]:
    """One dict of counts a line of `token:count ... #label#:positive`, as bytes."""
    reviews = []
    for number, line in enumerate(data.splitlines(), start=1):
        items = [item.rpartition(b":") for item in line.strip(b" \r\n").split(b" ")]
        counts = [(token, count) for token, _, count in items if token != b"#label#"]
        for token, count in counts:
            if not (token and count.isdigit() and 0 < int(count[:4]) < 256):
                raise ValueError(
                    f"{name}, line {number}: {token[:30]!r} has the count {count[:30]!r}, not one of"
                    " 1..255: use a sound copy of the original"
                )
        reviews.append({token: int(count) for token, count in counts})
        if len(reviews[-1]) < len(counts):
            raise ValueError(f"{name}, line {number}, has a token twice: use a sound copy")
    return reviews


# book/datasets.ipynb#sentiment-two-file-formats
def _count_matrix(
    reviews: list[dict[bytes, int]], column: dict[bytes, int]
) -> dict[str, NDArray[Any]]:
    """CSR arrays of the counts of tokens that have a column; columns ascend in every row."""
    kept = [sorted((column[t], n) for t, n in review.items() if t in column) for review in reviews]
    pairs = np.array([pair for row in kept for pair in row], dtype=np.int32).reshape(-1, 2)
    indptr = np.cumsum([0, *map(len, kept)], dtype=np.int32)
    return {"data": pairs[:, 1].astype(np.uint8), "indices": pairs[:, 0], "indptr": indptr}


# book/datasets.ipynb#sentiment-two-file-formats
def _review_arrays(contents: Sequence[bytes], least: int = 5) -> _Files:
    """Arrays of all domains from the bytes of their positive and negative files, in turn."""
    if (words := sum(data.count(b" ") for data in contents)) > 2**21:
        raise ValueError(f"the reviews have {words} words, the originals 1,519,266: use those")
    reviews = list(map(_read_reviews, contents, _REVIEW_FILES))
    documents = Counter(token for part in reviews for review in part for token in review)
    column = {t: j for j, t in enumerate(sorted(t for t, n in documents.items() if n >= least))}
    files = {}
    for domain, positive, negative in zip(_DOMAINS, reviews[::2], reviews[1::2], strict=True):
        files[f"sentiment_{domain}.npz"] = {
            "format": np.array(b"csr"),
            "shape": np.array([len(positive + negative), len(column)], dtype=np.int64),
            **_count_matrix(positive + negative, column),
            "y": np.repeat(np.array([1, -1], dtype=np.int8), [len(positive), len(negative)]),
        }
    return files


# book/datasets.ipynb#sentiment-two-file-formats
class _Limited:
    """A stream that fails after `most` bytes."""

    def __init__(self, stream: Any, most: int) -> None:
        self.stream = stream
        self.most = most
        self.left = most
        self.flush = stream.flush

    def _counted(self, data: bytes) -> bytes:
        self.left -= len(data)
        if self.left < 0:
            raise ValueError(f"there are more than {self.most} bytes: this is not the original")
        return data

    def read(self, size: int) -> bytes:
        return self._counted(self.stream.read(min(size, self.left + 1)))

    def write(self, data: bytes) -> None:
        self.stream.write(self._counted(data))


# book/datasets.ipynb#sentiment-two-file-formats
def _from_tar(data: bytes, names: Sequence[str], most: int, largest: int) -> list[bytes]:
    """The bytes of members of a packed tar archive, read once from its beginning."""
    stream: Any = _Limited(gzip.GzipFile(fileobj=io.BytesIO(data)), most)
    found: dict[str, bytes] = {}
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in islice(archive, 1000):
            name = "/".join(member.name.split("/")[-2:])
            part = archive.extractfile(member) if name in names and member.isreg() else None
            if part is not None:
                found[name] = _bounded(part, largest, name)
            if len(found) == len(names):
                return [found[name] for name in names]
    missing = next(name for name in names if name not in found)
    raise ValueError(f"the archive has no {missing}")


# book/datasets.ipynb#sentiment-two-file-formats
def _parse_reviews(paths: _Paths, most: int = 2**28, largest: int = 2**23) -> _Files:
    """Arrays from the eight review files, or from processed_acl.tar.gz."""
    if len(paths) == len(_REVIEW_FILES):
        return _review_arrays([_file(path, largest) for path in paths])
    with _sound(Path(paths[0]).name):
        contents = _from_tar(_file(paths[0], most), _REVIEW_FILES, most, largest)
    return _review_arrays(contents)


# book/datasets.ipynb#digests-which-copy-is-the-right-one
def _digest(arrays: Mapping[str, Any]) -> str:
    """SHA-256 over keys, types, shapes and bytes of the arrays.

    Derived in chapter 2 (datasets), eq. (datasets-digest).
    """
    total = hashlib.sha256()
    for key in sorted(arrays):
        array = np.asarray(arrays[key])
        array = array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)
        total.update(f"{key}|{array.dtype.str}|{array.shape}|".encode())
        total.update(array.tobytes())
    return total.hexdigest()


# book/datasets.ipynb#digests-which-copy-is-the-right-one
@dataclass(frozen=True)
class _Collection:
    """What stored files must hold, and where the public originals are."""

    digests: dict[str, str]  # file name: SHA-256 of its arrays
    # key: (type, shape); None in a shape is any length
    fields: dict[str, tuple[Any, tuple[int | None, ...]]]
    labels: dict[str, Sequence[Any]]  # key: the values that occur, all of them
    # (parser, addresses), tried in this order
    sources: tuple[tuple[Callable[..., _Files], tuple[str, ...]], ...]


# book/datasets.ipynb#digests-which-copy-is-the-right-one
_ESL = "https://hastie.su.domains/ElemStatLearn/datasets/"
_STANFORD = "https://web.stanford.edu/~hastie/ElemStatLearn/datasets/"
_UCI = "https://archive.ics.uci.edu/"
_UNZIPPED = f"{_UCI}ml/machine-learning-databases/isolet/"
_GITHUB = "https://raw.githubusercontent.com/"
_PYDML = f"{_GITHUB}jlsuarezdiaz/pyDML/0e066d9f9ba017d517dd712f9d0a95b766973764/data/"
_ROBINTUX = (
    f"{_GITHUB}robintux/Datasets4StackOverFlowQuestions/15e8ef9d1036580b5e5c922460486c27dacf6382/"
)
_CS570 = f"{_GITHUB}phase/cs570/9d992c4c1abf812d7223f56047a25d0c53cc7299/data/"
_SCML = f"{_GITHUB}bellet/SCML/4bcf9fd9a73f982c81cc2db23f9bc9a53330d1ac/dataset/"
_REVIEWS = (
    f"{_GITHUB}RyosukeOzaki/Logistic-Regression/9ec5348a0cd608863ef3bf9ee5d1c4c57baf81c8/"
    "processed_acl/"
)


# book/datasets.ipynb#digests-which-copy-is-the-right-one
_USPS = _Collection(
    digests={"usps.npz": "ea2c541dbd75e8e32146e0ae7bd8ba41820ef07fa7c64e072968d89ada66b559"},
    fields={
        "Xq": ("int16", (9298, 256)),
        "divisor": ("int32", ()),
        "y": ("int8", (9298,)),
        "split": ("int8", (9298,)),
    },
    labels={"y": range(10), "split": (0, 1), "divisor": (1000,)},
    sources=(
        (_parse_usps, (f"{_ESL}zip.train.gz", f"{_ESL}zip.test.gz")),
        (_parse_usps, (f"{_STANFORD}zip.train.gz", f"{_STANFORD}zip.test.gz")),
        (_parse_usps, (f"{_ROBINTUX}zip.train.gz", f"{_CS570}zip.test.gz")),
    ),
)


# book/datasets.ipynb#digests-which-copy-is-the-right-one
_ISOLET = _Collection(
    digests={"isolet.npz": "b19a181bdd3ff8d27de2855f361dea63ba385542b973d44e7284837cb2451360"},
    fields={
        "Xq": ("int16", (7797, 617)),
        "divisor": ("int32", ()),
        "y": ("int8", (7797,)),
        "group": ("int8", (7797,)),
        "speaker": ("int16", (7797,)),
        "group_by_speaker": ("int8", (7797,)),
    },
    labels={
        "y": range(1, 27),
        "group": range(1, 6),
        "group_by_speaker": range(1, 6),
        "speaker": range(1, 151),
        "divisor": (10000,),
    },
    sources=(
        (_parse_isolet, (f"{_PYDML}isolet_train.data", f"{_PYDML}isolet_test.data")),
        (_parse_isolet, (f"{_UCI}static/public/54/isolet.zip",)),
        (_parse_isolet, tuple(f"{_UNZIPPED}{n}.data.Z" for n in ("isolet1+2+3+4", "isolet5"))),
    ),
)


# book/datasets.ipynb#digests-which-copy-is-the-right-one
_WORDS200 = _Collection(
    digests={
        "sentiment_mt.npz": "dac49c3e059c724f859e0e9b4f72f479c0eb8706439a8485c77053bbf8d2c084"
    },
    fields={
        "X": ("float64", (6400, 200)),
        "y": ("int8", (6400,)),
        "task": ("int8", (6400,)),
        "split": ("int8", (6400,)),
        "task_names": ("<U11", (4,)),
    },
    labels={"y": (1, 2), "task": range(4), "split": range(3), "task_names": _DOMAINS},
    sources=((_parse_words, (f"{_SCML}sentiment_mt.mat",)),),
)


# book/datasets.ipynb#digests-which-copy-is-the-right-one
_JHU = "https://www.cs.jhu.edu/~mdredze/datasets/sentiment/processed_acl.tar.gz"
_RAW = _Collection(
    digests={
        "sentiment_books.npz": "2e9550b032dd3151cbfe9363345b4e223e0a6b97cb2ea99d1aaa26bb3a884af3",
        "sentiment_dvd.npz": "171c0940875a226f10e3722249adb149c36ce7ab4bbfda5cbfb04ce70146db80",
        "sentiment_electronics.npz": "10a6ec96841a826e60309011cd35aea8e902f3808ba52199220be5822671c7d0",
        "sentiment_kitchen.npz": "b8a0e7279198c982545b466c5ab8e2e19be2f65ff92b405a282ac93a684ebf3e",
    },
    fields={
        "format": ("|S3", ()),
        "shape": ("int64", (2,)),
        "data": ("uint8", (None,)),
        "indices": ("int32", (None,)),
        "indptr": ("int32", (2001,)),
        "y": ("int8", (2000,)),
    },
    labels={"y": (-1, 1), "shape": (2000, 35846), "format": (b"csr",)},
    sources=(
        (_parse_reviews, tuple(f"{_REVIEWS}{file}" for file in _REVIEW_FILES)),
        (_parse_reviews, (_JHU,)),
    ),
)


# book/datasets.ipynb#digests-which-copy-is-the-right-one
_COLLECTIONS = {
    "usps": _USPS,
    "isolet": _ISOLET,
    "sentiment_words200": _WORDS200,
    "sentiment_raw": _RAW,
}


# book/datasets.ipynb#checked-before-use
def _check_field(
    key: str, kind: Any, shape: tuple[int, ...], collection: _Collection, where: str | Path
) -> None:
    """Raise a ValueError unless type and shape of an array are those of the table."""
    expected, lengths = collection.fields[key]
    fits = len(shape) == len(lengths) and all(
        m is None or m == n for m, n in zip(lengths, shape, strict=True)
    )
    if kind != np.dtype(expected) or not fits:
        raise ValueError(
            f"{key!r} in {where} has type {kind} and shape {shape}, not {expected} and {lengths}"
        )


# book/datasets.ipynb#checked-before-use
def _validate(
    arrays: Mapping[str, NDArray[Any]], collection: _Collection, file: str, where: str
) -> None:
    """Raise a ValueError unless the arrays are what the table says."""
    for key in collection.fields:
        if key not in arrays:
            raise ValueError(f"{where} has no array {key!r}")
        array = arrays[key]
        allowed = collection.labels.get(key)
        _check_field(key, array.dtype, array.shape, collection, where)
        if allowed is not None and set(array.ravel().tolist()) != set(allowed):
            raise ValueError(f"{key!r} in {where} does not hold the expected values")
    found = _digest(arrays)
    expected = collection.digests[file]
    if found != expected:
        raise ValueError(f"the arrays in {where} have SHA-256 {found}, not {expected}")


# book/datasets.ipynb#checked-before-use
_LARGEST = 2**26  # bytes of a stored file or a download; Isolet as text has 32.4 MB
_LONGEST = 2**20  # entries of an array whose length the table leaves open; there are 288,594


def _stored_array(
    archive: zipfile.ZipFile, key: str, collection: _Collection, where: str | Path
) -> NDArray[Any]:
    """An array of an .npz file; its head is compared with the table before its values count."""
    kind, shape = collection.fields[key]
    room = np.dtype(kind).itemsize * math.prod(_LONGEST if n is None else n for n in shape)
    stream = io.BytesIO(_from_zip(archive, f"{key}.npy", room + 2**14))
    old = np.lib.format.read_magic(stream) == (1, 0)
    head = np.lib.format.read_array_header_1_0 if old else np.lib.format.read_array_header_2_0
    shape, _, kind = head(stream)
    _check_field(key, kind, shape, collection, where)
    if kind.itemsize * math.prod(shape) > room:
        raise ValueError(f"{key!r} in {where} has the shape {shape}, more than the original")
    stream.seek(0)
    return np.lib.format.read_array(stream, allow_pickle=False)


# book/datasets.ipynb#checked-before-use
def _read(path: Path, collection: _Collection) -> dict[str, NDArray[Any]]:
    """Arrays of a stored file, checked before use."""
    with _sound(path, "delete it, or point LML_DATA at a folder with a sound copy"):
        with zipfile.ZipFile(io.BytesIO(_file(path, _LARGEST))) as archive:
            keys = [key for key in collection.fields if f"{key}.npy" in archive.namelist()]
            arrays = {key: _stored_array(archive, key, collection, path) for key in keys}
        _validate(arrays, collection, Path(path).name, str(path))
    return arrays


# book/datasets.ipynb#checked-before-use
def _store(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write an .npz so that the file is the old one or the new one, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            np.savez_compressed(stream, **arrays)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


# book/datasets.ipynb#downloading
def _retrieve(addresses: Sequence[str], folder: str | Path, progressbar: bool = True) -> _Paths:
    """Download the addresses into a folder; the paths."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # in a notebook, tqdm asks for ipywidgets
        import pooch
    transfer = pooch.HTTPDownloader(progressbar=progressbar, timeout=60)
    names = [f"{k}-{address.rpartition('/')[2]}" for k, address in enumerate(addresses)]
    paths = [Path(folder) / name for name in names]
    for address, path in zip(addresses, paths, strict=True):
        with open(path, "wb") as stream:
            transfer(address, _Limited(stream, _LARGEST), None)
    return paths


# book/datasets.ipynb#downloading
def _download(name: str) -> None:
    """Fetch a collection from the first source that gives the right arrays, and cache it."""
    collection = _COLLECTIONS[name]
    reasons = []
    for parse, addresses in collection.sources:
        try:
            with tempfile.TemporaryDirectory() as folder:
                files = parse(_retrieve(addresses, folder))
            for file, arrays in files.items():
                _validate(arrays, collection, file, f"{file} made from this source")
        except Exception as error:  # any fault of a source means: try the next one
            reasons.append(f"{', '.join(addresses)}\n    {type(error).__name__}: {error}")
            continue
        for file, arrays in files.items():
            _store(_cache() / file, arrays)
        return
    raise OSError(
        f"the data set {name!r} could not be downloaded. Tried:\n  "
        + "\n  ".join(reasons)
        + f"\nSet the environment variable LML_DATA to a folder that holds"
        f" {', '.join(collection.digests)}, or copy them to {_cache()}, or try again online."
    )


# book/datasets.ipynb#downloading
def _cache() -> Path:
    """Folder of the cached copies, in scikit-learn's data home."""
    return Path(get_data_home()) / "lml"


def _find(file: str) -> Path | None:
    """Path of a stored file: in LML_DATA if it is there, else in the cache, else None."""
    chosen = os.environ.get("LML_DATA")
    if chosen and not Path(chosen).is_dir():
        raise FileNotFoundError(
            f"LML_DATA is {chosen!r}, which is no folder: set it to the folder with {file},"
            " or unset it"
        )
    folders = [Path(chosen)] if chosen else []
    return next((p for f in [*folders, _cache()] if (p := f / file).is_file()), None)


# book/datasets.ipynb#downloading
def _load(name: str, download_if_missing: bool = True) -> list[dict[str, NDArray[Any]]]:
    """Arrays of the files of a collection, in the order of the table."""
    collection = _COLLECTIONS[name]
    missing = [file for file in collection.digests if _find(file) is None]
    if missing and not download_if_missing:
        raise OSError(
            f"{', '.join(missing)} of the data set {name!r} is neither in LML_DATA"
            f" ({os.environ.get('LML_DATA')!r}) nor in {_cache()}: allow the download"
            " (download_if_missing=True) or set LML_DATA"
        )
    if missing:
        _download(name)
    paths = map(_find, collection.digests)
    return [_read(path, collection) for path in paths if path is not None]


# book/datasets.ipynb#the-loaders
def load_usps_tasks(
    random_state: int | np.random.RandomState | None = None,
    *,
    train_size: float = 0.1,
    validation_share: float = 0.2,
    center: bool = True,
    download_if_missing: bool = True,
) -> list[Task]:
    """The USPS digits as four tasks, in the protocol of the paper.

    Parameters
    ----------
    random_state : int, RandomState instance or None, default=None
        Seed of the splits.
    train_size : float in [0, 1) or int, default=0.1
        Share or number of a task's rows in training and validation part together; the rest
        is the test part.
    validation_share : float in [0, 1) or int, default=0.2
        Share or number of those rows that is held out for validation.
    center : bool, default=True
        Subtract from every part the mean of the task's training rows.
    download_if_missing : bool, default=True
        Whether a copy may be downloaded; if not, a missing file is an OSError.

    Returns
    -------
    tasks : list of Task
        "0-1", "2-3", "4-5-6", "7-8-9" of the 7291 training images; 256 features in [-1, 1]
        before centring. `Task.with_validation` gives the training part of the paper.

    Raises
    ------
    OSError
        If there is no stored copy and no source gives one.
    ValueError
        If the stored copy is broken.

    Notes
    -----
    Derived in chapter 2 (datasets), eqs. (datasets-split) and (datasets-center).
    Paper: section V-B, table III.
    """
    (arrays,) = _load("usps", download_if_missing)
    X = arrays["Xq"] / float(arrays["divisor"])
    y = arrays["y"]
    rng = check_random_state(random_state)
    tasks = []
    for name, digits in _DIGIT_TASKS.items():
        own = np.flatnonzero((arrays["split"] == 0) & np.isin(y, digits))
        both = _part_size(len(own), train_size, "train_size")
        held = _part_size(both, validation_share, "validation_share")
        asked = f"train_size={train_size!r} and validation_share={validation_share!r}"
        _check_parts(len(own), both - held, held, asked)
        rows = _split_rows(len(own), both - held, held, rng)
        tasks.append(_make_task(name, X[own], y[own], rows, _center if center else None))
    return tasks


# book/datasets.ipynb#the-loaders
def load_isolet_tasks(
    grouping: str = "rows",
    random_state: int | np.random.RandomState | None = None,
    *,
    train_size: float = 0.1,
    validation_size: float = 0.2,
    center: bool = False,
    download_if_missing: bool = True,
) -> list[Task]:
    """The spoken letters of Isolet as five tasks.

    Parameters
    ----------
    grouping : {"rows", "speakers"}, default="rows"
        "rows" are the paper's tasks, UCI's row blocks, of which 3 and 4 share their
        speakers; "speakers" are five groups of 30 speakers, inferred from the row order.
    random_state : int, RandomState instance or None, default=None
        Seed of the splits.
    train_size, validation_size : float in [0, 1) or int, default=0.1 and 0.2
        Share or number of a task's rows in the training and in the validation part.
    center : bool, default=False
        Subtract from every part the mean of the task's training rows.
    download_if_missing : bool, default=True
        Whether a copy may be downloaded; if not, a missing file is an OSError.

    Returns
    -------
    tasks : list of Task
        "isolet1" .. "isolet5"; 617 features in [-1, 1], labels 1..26 for A..Z.

    Raises
    ------
    OSError
        If there is no stored copy and no source gives one.
    ValueError
        If the stored copy is broken or `grouping` is unknown.

    Notes
    -----
    Derived in chapter 2 (datasets), eqs. (datasets-split) and (datasets-speaker).
    Paper: section V-B, tables II and IV.
    """
    keys = {"rows": "group", "speakers": "group_by_speaker"}
    if grouping not in list(keys):
        raise ValueError(f"grouping is {grouping!r}: choose one of {sorted(keys)}")
    (arrays,) = _load("isolet", download_if_missing)
    X = arrays["Xq"] / float(arrays["divisor"])
    rng = check_random_state(random_state)
    tasks = []
    for group in range(1, 6):
        own = np.flatnonzero(arrays[keys[grouping]] == group)
        rows = _split_rows(len(own), train_size, validation_size, rng)
        preprocess = _center if center else None
        tasks.append(_make_task(f"isolet{group}", X[own], arrays["y"][own], rows, preprocess))
    return tasks


# book/datasets.ipynb#the-loaders
def _words_tasks(
    arrays: dict[str, NDArray[Any]],
    random_state: int | np.random.RandomState | None,
    split: str,
    train_size: float,
    validation_size: float,
) -> list[Task]:
    """Tasks of the 200-word form."""
    rng = check_random_state(random_state)
    tasks = []
    for number, name in enumerate(_DOMAINS):
        own = np.flatnonzero(arrays["task"] == number)
        if split == "authors":
            rows = [np.flatnonzero(arrays["split"][own] == part) for part in range(3)]
        else:
            rows = _split_rows(len(own), train_size, validation_size, rng)
        tasks.append(_make_task(name, arrays["X"][own], arrays["y"][own], rows, _standardize))
    return tasks


# book/datasets.ipynb#the-loaders
def _raw_tasks(
    files: list[dict[str, NDArray[Any]]],
    random_state: int | np.random.RandomState | None,
    train_size: float,
    validation_size: float,
    weighting: str,
    unit_rows: bool,
) -> list[Task]:
    """Tasks of the raw form, sparse throughout."""
    rng = check_random_state(random_state)
    tasks = []
    for name, arrays in zip(_DOMAINS, files, strict=True):
        stored = arrays["data"], arrays["indices"], arrays["indptr"]
        X = sparse.csr_array(stored, shape=tuple(arrays["shape"].tolist()))
        rows = _split_rows(X.shape[0], train_size, validation_size, rng)
        tasks.append(
            _make_task(name, X, arrays["y"], rows, lambda p: _weigh(p, weighting, unit_rows))
        )
    return tasks


# book/datasets.ipynb#the-loaders
def load_sentiment_tasks(
    features: str = "words200",
    random_state: int | np.random.RandomState | None = None,
    *,
    split: str = "random",
    train_size: float = 0.5,
    validation_size: float = 0.25,
    weighting: str = "tfidf",
    unit_rows: bool = True,
    download_if_missing: bool = True,
) -> list[Task]:
    """The Sentiment reviews as four tasks: books, dvd, electronics, kitchen.

    Parameters
    ----------
    features : {"words200", "raw"}, default="words200"
        "words200" is the paper's form, dense, 1600 rows a task: z-scores, then unit rows.
        "raw" has counts of 35,846 words and word pairs, CSR, 2000 rows a task.
    random_state : int, RandomState instance or None, default=None
        Seed of random splits.
    split : {"random", "authors"}, default="random"
        "authors" is the split stored with "words200" (800, 400, 400); it uses no seed.
    train_size, validation_size : float in [0, 1) or int, default=0.5 and 0.25
        Share or number of a task's rows in the parts of a random split.
    weighting : {"tfidf", "binary", "counts"}, default="tfidf"
        Weights of "raw"; document frequencies are counted in the training rows.
    unit_rows : bool, default=True
        Whether the rows of "raw" are divided by their length.
    download_if_missing : bool, default=True
        Whether a copy may be downloaded; if not, a missing file is an OSError.

    Returns
    -------
    tasks : list of Task
        Labels are those of the files: 1 and 2 ("words200"), -1 and 1 ("raw").

    Raises
    ------
    OSError
        If there is no stored copy and no source gives one.
    ValueError
        If the stored copy is broken or an argument is unknown.

    Notes
    -----
    Derived in chapter 2 (datasets), eqs. (datasets-split), (datasets-zscore) and (datasets-tfidf).
    Paper: section V-B, tables II and IV.
    """
    splits = ("random", "authors") if features == "words200" else ("random",)
    for argument, value, allowed in (
        ("features", features, ("words200", "raw")),
        ("split", split, splits),
        ("weighting", weighting, ("tfidf", "binary", "counts")),
    ):
        if value not in allowed:
            raise ValueError(f"{argument} is {value!r}: with {features=} use one of {allowed}")
    files = _load(f"sentiment_{features}", download_if_missing)
    if features == "words200":
        return _words_tasks(files[0], random_state, split, train_size, validation_size)
    return _raw_tasks(files, random_state, train_size, validation_size, weighting, unit_rows)
