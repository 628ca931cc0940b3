# Generated from book/datasets.ipynb and book/loading.ipynb by tools/tangle.py: edit the chapter.
"""Collections of related classification tasks, split without leaks.

The bundled digits need no download. USPS, Isolet and the two forms of the Sentiment
collection come from the folder named by the environment variable ``LML_DATA``, else from a
cached copy, else from a public address. Every array is checked against a SHA-256 before use.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import importlib.util
import io
import multiprocessing
import os
import sys
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy import sparse
from scipy.io import loadmat
from sklearn.datasets import get_data_home, load_digits
from sklearn.feature_extraction import DictVectorizer
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import normalize
from sklearn.utils import check_random_state

from lml.state import replacing
from lml.utils.linalg import stacked
from lml.utils.typing import Indices, Matrix, Seed
from lml.utils.validation import Rule, is_whole, one_of, real, whole

__all__ = [
    "COLLECTIONS",
    "Collection",
    "Source",
    "Task",
    "array_digest",
    "load_arrays",
    "load_digits_tasks",
    "load_few_shot_digits",
    "load_isolet_tasks",
    "load_sentiment_tasks",
    "load_usps_tasks",
    "make_embedding_stream",
    "make_task",
    "split_samples",
]


# book/datasets.ipynb#splitting-a-task-at-random
def split_samples(
    n_samples: int, train_size: float, validation_size: float, random_state: Seed
) -> list[Indices]:
    """Sample numbers of the three parts: one permutation, cut twice, blind to the classes.

    Parameters
    ----------
    n_samples : int
        Number of samples of the task.
    train_size, validation_size : float in [0, 1) or int
        Share or number of samples in the training and in the validation part; the rest is the
        test part.
    random_state : int, RandomState instance or None
        Seed of the permutation.

    Returns
    -------
    parts : list of int ndarray
        Numbers of the training, the validation and the test samples.

    Raises
    ------
    ValueError
        If a size is impossible, or no training sample or no test sample is left.

    Notes
    -----
    Derived in chapter 2 (datasets), eq. (datasets-split).
    """
    n_train = _part_size(n_samples, train_size, "train_size")
    n_validation = _part_size(n_samples, validation_size, "validation_size")
    if n_train < 1 or n_train + n_validation >= n_samples:
        raise ValueError(
            f"train_size={train_size!r} and validation_size={validation_size!r} ask for {n_train}"
            f" training and {n_validation} validation samples of {n_samples}: leave a training"
            " sample and a test sample"
        )
    order = check_random_state(random_state).permutation(n_samples)
    return np.split(order, [n_train, n_train + n_validation])


# book/datasets.ipynb#centering-without-a-leak
def _center(parts: list[Matrix]) -> list[Matrix]:
    """Subtract the mean of the first (training) part from every part.

    Derived in chapter 2 (datasets), eq. (datasets-center).
    """
    mean = parts[0].mean(axis=0)
    return [part - mean for part in parts]


# book/loading.ipynb#loading-the-data-files-checksums-downloads
_Files: TypeAlias = dict[str, dict[str, Any]]  # file name to arrays


# book/loading.ipynb#the-object-for-one-task
@dataclass(frozen=True, eq=False, repr=False)
class Task:
    """One classification task, split into training, validation and test samples.

    Parameters
    ----------
    name : str
        Name of the task, for example "0-1".
    X_train, X_validation, X_test : ndarray or CSR array of shape (n_samples, n_features)
        Samples of the three parts, preprocessed with statistics of the training part.
    y_train, y_validation, y_test : int ndarray of shape (n_samples,)
        Labels of the three parts.
    centered : bool, default=False
        Whether the mean of the training samples has been subtracted from all samples.

    Raises
    ------
    ValueError
        If samples and labels of a part, or the features of two parts, do not fit together.

    Examples
    --------
    >>> load_digits_tasks(random_state=0)[0]
    Task('0-1': 72 + 36 + 252 samples, 64 features, labels 0 1)
    """

    name: str
    X_train: Matrix
    y_train: NDArray[Any]
    X_validation: Matrix
    y_validation: NDArray[Any]
    X_test: Matrix
    y_test: NDArray[Any]
    centered: bool = False

    def __post_init__(self) -> None:
        n_features = self.X_train.shape[1:]
        for part in ("train", "validation", "test"):
            X = getattr(self, f"X_{part}")
            y = getattr(self, f"y_{part}")
            if np.ma.is_masked(X) or np.ma.is_masked(y):
                raise ValueError(f"{part} samples of task {self.name!r} have masked entries")
            if X.ndim != 2 or y.ndim != 1 or X.shape != (len(y), *n_features):
                raise ValueError(
                    f"X_{part} and y_{part} of task {self.name!r} have shapes {X.shape} and"
                    f" {y.shape}, X_train has {self.X_train.shape}: give matrices of the same"
                    " features, and a vector with one label for each sample"
                )

    def __repr__(self) -> str:
        sizes = " + ".join(str(len(y)) for y in (self.y_train, self.y_validation, self.y_test))
        distinct = sorted(set(self.y_train.tolist()), key=lambda v: (type(v).__name__, v))
        labels = [str(label) for label in distinct]
        if len(labels) > 4:
            labels = [*labels[:2], "..", labels[-1]]
        width = self.X_train.shape[1]
        return f"Task({self.name!r}: {sizes} samples, {width} features, labels {' '.join(labels)})"

    def with_validation(self) -> "Task":
        """Training and validation samples together, for a final fit after tuning.

        Returns
        -------
        task : Task
            The training part is training plus validation, in this order; the validation part
            is empty. A centered task is centered with the new training mean; every other
            preprocessing keeps the statistics of the smaller training part.

        Notes
        -----
        Derived in chapter 2 (datasets), eq. (datasets-center).
        """
        X_train = stacked(self.X_train, self.X_validation)
        X_test = self.X_test
        if self.centered:  # a second shift: its mean is that of the samples shifted before
            mean = X_train.mean(axis=0)
            X_train = X_train - mean
            X_test = X_test - mean
        return Task(
            name=self.name,
            X_train=X_train,
            y_train=np.concatenate([self.y_train, self.y_validation]),
            X_validation=self.X_validation[:0],
            y_validation=self.y_validation[:0],
            X_test=X_test,
            y_test=self.y_test,
            centered=self.centered,
        )


# book/loading.ipynb#the-object-for-one-task
def make_task(
    name: str,
    X: Matrix,
    y: NDArray[Any],
    parts: Sequence[Indices],
    preprocess: Callable[[list[Matrix]], list[Matrix]] | None = None,
) -> Task:
    """A task from the sample numbers of its parts.

    Parameters
    ----------
    name : str
    X : {ndarray, CSR array} of shape (n_samples, n_features)
    y : ndarray of shape (n_samples,)
        Labels, whole numbers.
    parts : sequence of three int ndarrays
        Numbers of the training, the validation and the test samples, as `split_samples`
        returns them.
    preprocess : callable, optional
        From the list of the three parts of X to the list of the preprocessed parts.

    Returns
    -------
    task : Task
    """
    samples = [X[part] for part in parts]
    if preprocess is not None:
        samples = preprocess(samples)
    labels = [y[part].astype(np.int64) for part in parts]
    return Task(
        name=name,
        X_train=samples[0],
        y_train=labels[0],
        X_validation=samples[1],
        y_validation=labels[1],
        X_test=samples[2],
        y_test=labels[2],
        centered=preprocess is _center,
    )


# book/loading.ipynb#the-object-for-one-task
def _part_size(n_samples: int, size: float, argument: str) -> int:
    """Number of samples meant by a share in [0, 1) or by a count."""

    def allows(value: Any) -> bool:
        if is_whole(value):
            return bool(0 <= value <= n_samples)
        return isinstance(value, float | np.floating) and bool(0 <= value < 1)

    wanted = f"a share in [0, 1) or a whole number of the {n_samples} samples (1.0 is neither)"
    Rule(allows, wanted).check(argument, size)
    return int(size) if is_whole(size) else round(size * n_samples)


# book/loading.ipynb#preprocessing-of-the-reviews
def _standardize(parts: list[Matrix]) -> list[Matrix]:
    """z-scores with statistics of the first part, then samples of unit length.

    Derived in chapter 45 (loading), eq. (datasets-zscore).
    """
    if len(parts[0]) < 2:
        raise ValueError("one training sample has no standard deviation: raise train_size to 2")
    mean = parts[0].mean(axis=0)
    deviation = parts[0].std(axis=0, ddof=1)
    deviation = np.where(deviation < 1e-5, 1.0, deviation)
    return [normalize((part - mean) / deviation) if len(part) else part for part in parts]


# book/loading.ipynb#preprocessing-of-the-reviews
def _tf_idf(parts: list[Matrix]) -> list[Matrix]:
    """tf-idf weights with document frequencies of the first part; samples of unit length.

    Derived in chapter 45 (loading), eq. (datasets-tfidf).
    """
    parts = [sparse.csr_array(part, dtype=np.float64) for part in parts]
    weights = TfidfTransformer().fit(parts[0])
    # scikit-learn refuses an empty part
    return [sparse.csr_array(weights.transform(part)) if part.shape[0] else part for part in parts]


# book/loading.ipynb#digits-and-drawn-streams
_DIGIT_TASKS = {"0-1": (0, 1), "2-3": (2, 3), "4-5-6": (4, 5, 6), "7-8-9": (7, 8, 9)}


def _cut_tasks(
    X: Matrix,
    y: NDArray[Any],
    members: Mapping[str, Indices],
    train_size: float,
    validation_size: float,
    random_state: Seed,
    preprocess: Callable[[list[Matrix]], list[Matrix]] | None,
) -> list[Task]:
    """Tasks from the sample numbers of each, split one after the other with one seed."""
    rng = check_random_state(random_state)
    tasks = []
    for name, own in members.items():
        parts = split_samples(len(own), train_size, validation_size, rng)
        tasks.append(make_task(name, X[own], y[own], parts, preprocess))
    return tasks


def load_digits_tasks(
    random_state: Seed = None,
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
        Share or number of a task's samples in the training and in the validation part; the
        rest is the test part. The split is random and not stratified.
    center : bool, default=True
        Subtract from every part the mean of the task's training samples: without it every
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
    members = {name: np.flatnonzero(np.isin(y, digits)) for name, digits in _DIGIT_TASKS.items()}
    preprocess = _center if center else None
    return _cut_tasks(X / 16.0, y, members, train_size, validation_size, random_state, preprocess)


# book/loading.ipynb#digits-and-drawn-streams
_HALVES_SEED = 0


def load_few_shot_digits(
    n_tasks: int = 15,
    n_classes: int = 5,
    n_train: int = 4,
    random_state: Seed = None,
    *,
    center: bool = True,
) -> list[Task]:
    """The digits that come with scikit-learn, as many tasks with few training images.

    Parameters
    ----------
    n_tasks : int, default=15
        Number of tasks.
    n_classes : int, default=5
        Digits of a task, at least 2, drawn at random.
    n_train : int, default=4
        Training images of each digit, drawn at random from one half of the images. The halves
        are fixed, so the tasks share training images and no test image is ever learned from.
    random_state : int, RandomState instance or None, default=None
        Seed of the digits and of the training images.
    center : bool, default=True
        Subtract from every part the mean of the task's training images.

    Returns
    -------
    tasks : list of Task
        "1: 0-2-5-7-8" and so on. The validation part is empty; the test part holds all images
        of the task's digits in the other half. 64 features in [0, 1] before centring.

    Raises
    ------
    ValueError
        If a number is impossible: the half has 76 images of its rarest digit.

    Examples
    --------
    >>> load_few_shot_digits(random_state=0)[0]
    Task('1: 1-2-4-8-9': 20 + 0 + 452 samples, 64 features, labels 1 2 .. 9)
    """
    whole(1).check("n_tasks", n_tasks)
    whole(2, 10).check("n_classes", n_classes)
    X, y = load_digits(return_X_y=True)
    order = np.random.RandomState(_HALVES_SEED).permutation(len(y))
    learning, test = np.array_split(order, 2)
    whole(1, np.bincount(y[learning]).min()).check("n_train", n_train)
    rng = check_random_state(random_state)
    tasks = []
    for number in range(1, n_tasks + 1):
        digits = np.sort(rng.choice(10, n_classes, replace=False))
        train = [rng.choice(learning[y[learning] == d], n_train, replace=False) for d in digits]
        parts = [np.concatenate(train), order[:0], test[np.isin(y[test], digits)]]
        name = f"{number}: {'-'.join(map(str, digits))}"
        tasks.append(make_task(name, X / 16.0, y, parts, _center if center else None))
    return tasks


# book/loading.ipynb#the-stream-of-embeddings
def make_embedding_stream(
    n_tasks: int,
    *,
    n_features: int = 512,
    n_directions: int = 60,
    n_classes: int = 10,
    n_train: int = 20,
    n_test: int = 10,
    spread: float = 1.1,
    noise: float = 2.0,
    random_state: Seed = None,
) -> Iterator[Task]:
    """Tasks like frozen embeddings, drawn one by one as they are asked for.

    Parameters
    ----------
    n_tasks : int
        Number of tasks.
    n_features : int, default=512
    n_directions : int, default=60
        Dimension of the span of all class means, the same for all tasks.
    n_classes : int, default=10
        Classes of a task; a label means another class in another task.
    n_train, n_test : int, default=20 and 10
        Training and test samples of each class.
    spread, noise : float, default=1.1 and 2.0
        Standard deviation of the class means in each of the directions, and of the samples of
        a class in each feature.
    random_state : int, RandomState instance or None, default=None
        Seed of the stream. A longer stream begins with the tasks of a shorter one.

    Returns
    -------
    stream : iterator of Task
        "task1", "task2", ...; samples of unit length, an empty validation part.

    Notes
    -----
    Derived in chapter 45 (loading), eq. (datasets-embedding).

    Examples
    --------
    >>> next(make_embedding_stream(1000, random_state=0))
    Task('task1': 200 + 0 + 100 samples, 512 features, labels 0 1 .. 9)
    """
    whole(1).check("n_tasks", n_tasks)
    whole(1).check("n_features", n_features)
    whole(1, n_features).check("n_directions", n_directions)
    whole(1).check("n_classes", n_classes)
    whole(1).check("n_train", n_train)
    whole(0).check("n_test", n_test)
    real(0).check("spread", spread)
    real(0).check("noise", noise)
    rng = check_random_state(random_state)
    directions = np.linalg.qr(rng.normal(size=(n_features, n_directions)))[0].T
    y = np.repeat(np.arange(n_classes), n_train + n_test)
    learned = np.arange(len(y)) % (n_train + n_test) < n_train
    parts = [np.flatnonzero(learned), np.arange(0), np.flatnonzero(~learned)]

    def draw(number: int) -> Task:
        means = spread * rng.normal(size=(n_classes, n_directions)) @ directions
        X = normalize(means[y] + noise * rng.normal(size=(len(y), n_features)))
        return make_task(f"task{number}", X, y, parts)

    return map(draw, range(1, n_tasks + 1))


# book/loading.ipynb#files-from-outside
_LARGEST = 2**26  # bytes of a download, of a file in it, of a stored file; no original has more
_MEMORY = 2**29  # bytes for a reader that cannot be stopped at a size
_SECONDS = 600.0


def _bounded(stream: Any) -> bytes:
    """The bytes of a stream; an error if there are more than any original has."""
    data: bytes = stream.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise ValueError(f"there are more than {_LARGEST} bytes: this is not the original")
    return data


def _in_time(backend: str, seconds: float, call: Callable[..., Any], *arguments: Any) -> Any:
    """What a call returns, made in a thread or a process of its own; an error if it is late."""
    wait = Parallel(n_jobs=2, backend=backend, timeout=seconds)
    try:
        return wait([delayed(call)(*arguments)])[0]
    except multiprocessing.TimeoutError:
        raise ValueError(f"there is no end after {seconds:g} seconds") from None


def _with_little_memory(read: Callable[[bytes], Any], data: bytes) -> Any:
    """What a reader makes of a file, or its error; with `_MEMORY` where the system can (Linux)."""
    if sys.platform != "linux":
        return read(data)
    import resource

    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    room = pages * resource.getpagesize() + _MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (room, before[1]))
    try:
        return read(data)
    except MemoryError:
        return ValueError(f"it asks for more than {_MEMORY} bytes of memory")
    except Exception as error:  # raised here, it would end all processes of joblib
        return error
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _apart(read: Callable[[bytes], Any], data: bytes) -> Any:
    """What a reader makes of a file, in a process that a damaged file may end."""
    found = _in_time("loky", _SECONDS, _with_little_memory, read, data)
    if isinstance(found, Exception):
        raise found
    return found


# book/loading.ipynb#files-from-outside
def _unpack(data: bytes) -> bytes:
    """The bytes of a text that may be packed by gzip or compress."""
    if data.startswith(b"\x1f\x8b"):
        return _bounded(gzip.GzipFile(fileobj=io.BytesIO(data)))
    if data.startswith(b"\x1f\x9d"):
        from unlzw3 import unlzw

        return _bounded(io.BytesIO(_apart(unlzw, data)))
    return data


def _table(data: bytes, delimiter: str | None = None) -> NDArray[np.float64]:
    """The numbers of a text, one sample a line, whose bytes may be packed."""
    text = io.StringIO(_unpack(data).decode("ascii"))
    return np.loadtxt(text, delimiter=delimiter, comments=None, ndmin=2)


# book/loading.ipynb#usps-decimal-text
def _parse_usps(contents: Sequence[bytes]) -> _Files:
    """Arrays from zip.train and zip.test: text, label first, plain or packed by gzip."""
    parts = [_table(content) for content in contents]
    table = np.vstack(parts)
    return {
        "usps.npz": {
            "Xq": np.rint(1000 * table[:, 1:]).astype(np.int16),
            "divisor": np.array(1000, dtype=np.int32),
            "y": table[:, 0].astype(np.int8),
            "split": np.repeat(np.array([0, 1], dtype=np.int8), [len(part) for part in parts]),
        }
    }


# book/loading.ipynb#isolet-speakers-from-the-order-of-the-samples
def _isolet_speakers(y: NDArray[np.int8]) -> NDArray[np.int16]:
    """Speaker 1..150 of every sample in UCI's order.

    Derived in chapter 45 (loading), eq. (datasets-speaker).
    """
    run = 1 + np.cumsum(np.diff(y, prepend=y[:1]) < 0)
    return np.where(run <= 120, run, run - 60).astype(np.int16)


# book/loading.ipynb#isolet-speakers-from-the-order-of-the-samples
def _parse_isolet(contents: Sequence[bytes]) -> _Files:
    """Arrays from isolet1+2+3+4.data and isolet5.data, plain or .Z, or from a zip of both."""
    if len(contents) == 1:
        with zipfile.ZipFile(io.BytesIO(contents[0])) as archive:
            names = [name for name in archive.namelist() if ".data" in name and "+5" not in name]
            contents = [_bounded(archive.open(name)) for name in sorted(names)[:2]]
    table = np.vstack([_table(content, ",") for content in contents])  # features, then the letter
    letter = table[:, -1].astype(np.int8)
    speaker = _isolet_speakers(letter)
    group = np.repeat(np.arange(1, 6, dtype=np.int8), [1560, 1560, 1560, 1558, 1559])
    return {
        "isolet.npz": {
            "Xq": np.rint(10000 * table[:, :-1]).astype(np.int16),
            "divisor": np.array(10000, dtype=np.int32),
            "y": letter,
            "group": group[: len(letter)],
            "speaker": speaker,
            "group_by_speaker": ((speaker + 29) // 30).astype(np.int8),
        }
    }


# book/loading.ipynb#sentiment-two-file-formats
_DOMAINS = ("books", "dvd", "electronics", "kitchen")


def _read_words(data: bytes) -> _Files:
    """Arrays from sentiment_mt.mat: cells xTr, yTr, xVa, ... of one matrix for each task."""
    stored = loadmat(io.BytesIO(data))
    X = []
    y = []
    places = []
    for task in range(len(_DOMAINS)):
        for split, part in enumerate(("Tr", "Va", "Te")):
            matrix = stored[f"x{part}"].ravel()[task]
            labels = stored[f"y{part}"].ravel()[task].ravel()
            X.append(matrix.toarray() if sparse.issparse(matrix) else matrix)
            y.append(labels)
            places.append(np.tile(np.array([task, split], dtype=np.int8), (len(labels), 1)))
    task_of, split_of = np.vstack(places).T
    return {
        "sentiment_mt.npz": {
            "X": np.vstack(X).astype(np.float64),
            "y": np.concatenate(y).astype(np.int8),
            "task": task_of,
            "split": split_of,
            "task_names": np.array(_DOMAINS),
        }
    }


def _parse_words(contents: Sequence[bytes]) -> _Files:
    """Arrays from sentiment_mt.mat."""
    files: _Files = _apart(_read_words, contents[0])
    return files


# book/loading.ipynb#sentiment-two-file-formats
_REVIEW_FILES = tuple(f"{d}/{p}.review" for d in _DOMAINS for p in ("positive", "negative"))


def _review_counts(line: bytes) -> dict[bytes, int]:
    """Counts of the tokens of a line `token:count ... #label#:positive`."""
    items = [item.rpartition(b":") for item in line.strip(b" \r\n").split(b" ")]
    return {token: int(count) for token, _, count in items if token != b"#label#"}


def _parse_reviews(contents: Sequence[bytes], least: int = 5) -> _Files:
    """Counts of the tokens in `least` documents, from the eight review files or a tar of them."""
    if len(contents) == 1:
        with tarfile.open(fileobj=io.BytesIO(contents[0]), mode="r:gz") as archive:
            members = {"/".join(m.name.split("/")[-2:]): m for m in islice(archive, 1000)}
            contents = [_bounded(archive.extractfile(members[name])) for name in _REVIEW_FILES]
    if (words := sum(content.count(b" ") for content in contents)) > 2**21:
        raise ValueError(f"the reviews have {words} words, the originals 1,519,266")
    reviews = [[_review_counts(line) for line in content.splitlines()] for content in contents]
    counts = DictVectorizer(dtype=np.uint8).fit_transform(chain(*reviews))
    documents = np.bincount(counts.indices, minlength=counts.shape[1])
    counts = counts[:, np.flatnonzero(documents >= least)]
    sizes = [len(part) for part in reviews]
    domain = np.repeat(np.arange(len(sizes)) // 2, sizes)
    label = np.repeat(np.array([1, -1] * len(_DOMAINS), dtype=np.int8), sizes)
    files = {}
    for number, name in enumerate(_DOMAINS):
        own = counts[domain == number]
        files[f"sentiment_{name}.npz"] = {
            "format": np.array(b"csr"),
            "shape": np.array(own.shape, dtype=np.int64),
            "data": own.data,
            "indices": own.indices.astype(np.int32),
            "indptr": own.indptr.astype(np.int32),
            "y": label[domain == number],
        }
    return files


# book/loading.ipynb#checksums-which-copy-is-the-right-one
def array_digest(arrays: Mapping[str, Any]) -> str:
    """SHA-256 over keys, types, shapes and bytes of arrays.

    Derived in chapter 45 (loading), eq. (datasets-digest).
    """
    total = hashlib.sha256()
    for key in sorted(arrays):
        array = np.asarray(arrays[key])
        array = array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)
        total.update(f"{key}|{array.dtype.str}|{array.shape}|".encode())
        total.update(array.tobytes())
    return total.hexdigest()


# book/loading.ipynb#checksums-which-copy-is-the-right-one
@dataclass(frozen=True)
class Source:
    """Public files that a collection can be made from.

    Attributes
    ----------
    parse : callable
        From the contents of the downloaded files to the arrays of each stored file.
    addresses : tuple of str
        Where the files are.
    seconds : float, default=600
        Time that the download of a file may take.
    """

    parse: Callable[[Sequence[bytes]], _Files]
    addresses: tuple[str, ...]
    seconds: float = _SECONDS


@dataclass(frozen=True)
class Collection:
    """What the stored files of a data set hold, and where the public originals are.

    Attributes
    ----------
    keys : tuple of str
        Names of the arrays in each stored file.
    digests : dict of str to str
        Name of each stored file and `array_digest` of its arrays.
    sources : tuple of Source
        They are tried in this order.
    """

    keys: tuple[str, ...]
    digests: Mapping[str, str]
    sources: tuple[Source, ...]


# book/loading.ipynb#checksums-which-copy-is-the-right-one
_ESL = "https://hastie.su.domains/ElemStatLearn/datasets/"
_STANFORD = "https://web.stanford.edu/~hastie/ElemStatLearn/datasets/"
_UCI = "https://archive.ics.uci.edu/"
_UNZIPPED = f"{_UCI}ml/machine-learning-databases/isolet/isolet"
_JHU = "https://www.cs.jhu.edu/~mdredze/datasets/sentiment/processed_acl.tar.gz"
_GITHUB = "https://raw.githubusercontent.com/"
_ROBINTUX = (
    f"{_GITHUB}robintux/Datasets4StackOverFlowQuestions/15e8ef9d1036580b5e5c922460486c27dacf6382/"
)
_CS570 = f"{_GITHUB}phase/cs570/9d992c4c1abf812d7223f56047a25d0c53cc7299/data/"
_PYDML = f"{_GITHUB}jlsuarezdiaz/pyDML/0e066d9f9ba017d517dd712f9d0a95b766973764/data/"
_SCML = f"{_GITHUB}bellet/SCML/4bcf9fd9a73f982c81cc2db23f9bc9a53330d1ac/dataset/"
_REVIEWS = (
    f"{_GITHUB}RyosukeOzaki/Logistic-Regression/9ec5348a0cd608863ef3bf9ee5d1c4c57baf81c8/"
    "processed_acl/"
)
_REVIEW_DIGESTS = (
    "2e9550b032dd3151cbfe9363345b4e223e0a6b97cb2ea99d1aaa26bb3a884af3",
    "171c0940875a226f10e3722249adb149c36ce7ab4bbfda5cbfb04ce70146db80",
    "10a6ec96841a826e60309011cd35aea8e902f3808ba52199220be5822671c7d0",
    "b8a0e7279198c982545b466c5ab8e2e19be2f65ff92b405a282ac93a684ebf3e",
)


# book/loading.ipynb#checksums-which-copy-is-the-right-one
#: What is loaded from files, by name.
COLLECTIONS = {
    "usps": Collection(
        keys=("Xq", "divisor", "y", "split"),
        digests={"usps.npz": "ea2c541dbd75e8e32146e0ae7bd8ba41820ef07fa7c64e072968d89ada66b559"},
        sources=(
            Source(_parse_usps, (f"{_ESL}zip.train.gz", f"{_ESL}zip.test.gz")),
            Source(_parse_usps, (f"{_STANFORD}zip.train.gz", f"{_STANFORD}zip.test.gz")),
            Source(_parse_usps, (f"{_ROBINTUX}zip.train.gz", f"{_CS570}zip.test.gz")),
        ),
    ),
    "isolet": Collection(
        keys=("Xq", "divisor", "y", "group", "speaker", "group_by_speaker"),
        digests={"isolet.npz": "b19a181bdd3ff8d27de2855f361dea63ba385542b973d44e7284837cb2451360"},
        sources=(
            Source(_parse_isolet, (f"{_PYDML}isolet_train.data", f"{_PYDML}isolet_test.data")),
            Source(_parse_isolet, (f"{_UCI}static/public/54/isolet.zip",)),
            Source(_parse_isolet, (f"{_UNZIPPED}1+2+3+4.data.Z", f"{_UNZIPPED}5.data.Z")),
        ),
    ),
    "sentiment_words200": Collection(
        keys=("X", "y", "task", "split", "task_names"),
        digests={
            "sentiment_mt.npz": "dac49c3e059c724f859e0e9b4f72f479c0eb8706439a8485c77053bbf8d2c084"
        },
        sources=(Source(_parse_words, (f"{_SCML}sentiment_mt.mat",)),),
    ),
    "sentiment_raw": Collection(
        keys=("format", "shape", "data", "indices", "indptr", "y"),
        digests={
            f"sentiment_{domain}.npz": digest
            for domain, digest in zip(_DOMAINS, _REVIEW_DIGESTS, strict=True)
        },
        sources=(
            Source(_parse_reviews, tuple(f"{_REVIEWS}{file}" for file in _REVIEW_FILES)),
            Source(_parse_reviews, (_JHU,)),
        ),
    ),
}


# book/loading.ipynb#checked-before-use
def _verify(arrays: Mapping[str, Any], expected: str) -> None:
    """Raise a ValueError unless the arrays have the expected digest."""
    found = array_digest(arrays)
    if found != expected:
        raise ValueError(f"the arrays have SHA-256 {found}, not {expected}")


def _read(path: Path, collection: Collection) -> dict[str, NDArray[Any]]:
    """Arrays of a stored file, checked before use."""
    try:
        with zipfile.ZipFile(path) as archive:  # it never yields more than the size it notes
            size = sum(member.file_size for member in archive.infolist())
        if size > _LARGEST:
            raise ValueError(f"it holds {size} bytes, more than any original")
        with np.load(path, allow_pickle=False) as stored:
            arrays = {key: stored[key] for key in collection.keys}
        _verify(arrays, collection.digests[path.name])
    except Exception as error:  # each format has errors of its own
        said = f"{type(error).__name__}: {error}"[:500]
        raise ValueError(
            f"{path} cannot be read ({said}): delete it, or point LML_DATA at a folder with a"
            " sound copy"
        ) from error
    return arrays


# book/loading.ipynb#downloading
class _LimitedStream(io.BytesIO):
    """Bytes in memory, no more than `_LARGEST`."""

    def write(self, data: Any) -> int:
        if self.tell() + len(data) > _LARGEST:
            raise ValueError(f"there are more than {_LARGEST} bytes: this is not the original")
        return super().write(data)


def _retrieve(source: Source) -> list[bytes]:
    """Contents of the files of a source."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # in a notebook, tqdm asks for ipywidgets
        import pooch
    shown = importlib.util.find_spec("tqdm") is not None  # the extra "progress"
    transfer = pooch.HTTPDownloader(progressbar=shown, chunk_size=2**16, timeout=60)
    contents = []
    for address in source.addresses:
        with _LimitedStream() as stream:  # a late thread ends when it writes into a closed one
            _in_time("threading", source.seconds, transfer, address, stream, None)
            contents.append(stream.getvalue())
    return contents


# book/loading.ipynb#downloading
@contextlib.contextmanager
def _writing() -> Iterator[Path]:
    """The cache, locked until the block ends, without what a killed writer left there."""
    folder = _cache()
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        if sys.platform != "win32":  # where no file that is being written can be removed
            import fcntl

            place = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, place)
            fcntl.flock(place, fcntl.LOCK_EX)  # until it is closed; a kill closes it
        for stray in folder.glob(".*.tmp"):
            with contextlib.suppress(PermissionError):
                stray.unlink(missing_ok=True)  # on Windows another may just have done it
        yield folder


# book/loading.ipynb#downloading
def _store(files: _Files) -> None:
    """Write the arrays of each file into the cache; no file is ever half written."""
    for file, arrays in files.items():
        packed = io.BytesIO()
        np.savez_compressed(packed, **arrays)  # takes long: in memory, where a kill leaves nothing
        with _writing() as folder, replacing(folder / file) as stream:
            stream.write(packed.getbuffer())


def _download(name: str) -> None:
    """Fetch a collection from the first source that gives the right arrays, and cache it."""
    collection = COLLECTIONS[name]
    reasons = []
    for source in collection.sources:
        try:
            with np.errstate(all="ignore"):  # of numbers that the digest refuses
                files = source.parse(_retrieve(source))
            for file, digest in collection.digests.items():
                _verify(files[file], digest)
        except Exception as error:  # any fault of a source means: try the next one
            said = f"{type(error).__name__}: {error}"[:500]
            reasons.append(f"{', '.join(source.addresses)}\n    {said}")
        else:
            _store(files)
            return
    raise OSError(
        f"the data set {name!r} could not be downloaded. Tried:\n  "
        + "\n  ".join(reasons)
        + f"\nSet the environment variable LML_DATA to a folder that holds"
        f" {', '.join(collection.digests)}, or copy them to {_cache()}, or try again online."
    )


# book/loading.ipynb#downloading
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


def load_arrays(name: str, download_if_missing: bool = True) -> list[dict[str, NDArray[Any]]]:
    """Arrays of a collection, as they are stored.

    Parameters
    ----------
    name : {"usps", "isolet", "sentiment_words200", "sentiment_raw"}
    download_if_missing : bool, default=True
        Whether a copy may be downloaded; if not, a missing file is an OSError.

    Returns
    -------
    files : list of dict of str to ndarray
        The arrays of each stored file, in the order of `COLLECTIONS`.

    Raises
    ------
    OSError
        If there is no stored copy and no source gives one.
    ValueError
        If the stored copy is broken.
    """
    one_of(*COLLECTIONS).check("name", name)
    collection = COLLECTIONS[name]
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


# book/loading.ipynb#the-loaders
def load_usps_tasks(
    random_state: Seed = None,
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
        Share or number of a task's samples in training and validation part together; the rest
        is the test part.
    validation_share : float in [0, 1) or int, default=0.2
        Share or number of those samples that is held out for validation.
    center : bool, default=True
        Subtract from every part the mean of the task's training samples.
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
    (arrays,) = load_arrays("usps", download_if_missing)
    X = arrays["Xq"] / float(arrays["divisor"])
    y = arrays["y"]
    rng = check_random_state(random_state)
    tasks = []
    for name, digits in _DIGIT_TASKS.items():
        own = np.flatnonzero((arrays["split"] == 0) & np.isin(y, digits))
        n_learning = _part_size(len(own), train_size, "train_size")
        n_validation = _part_size(n_learning, validation_share, "validation_share")
        parts = split_samples(len(own), n_learning - n_validation, n_validation, rng)
        tasks.append(make_task(name, X[own], y[own], parts, _center if center else None))
    return tasks


# book/loading.ipynb#the-loaders
def load_isolet_tasks(
    grouping: str = "rows",
    random_state: Seed = None,
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
        Share or number of a task's samples in the training and in the validation part.
    center : bool, default=False
        Subtract from every part the mean of the task's training samples.
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
    Derived in chapter 2 (datasets), eq. (datasets-split); chapter 45 (loading), eq.
    (datasets-speaker). Paper: section V-B, tables II and IV.
    """
    one_of("rows", "speakers").check("grouping", grouping)
    (arrays,) = load_arrays("isolet", download_if_missing)
    X = arrays["Xq"] / float(arrays["divisor"])
    group = arrays["group" if grouping == "rows" else "group_by_speaker"]
    members = {f"isolet{number}": np.flatnonzero(group == number) for number in range(1, 6)}
    y = arrays["y"]
    preprocess = _center if center else None
    return _cut_tasks(X, y, members, train_size, validation_size, random_state, preprocess)


# book/loading.ipynb#the-loaders
def load_sentiment_tasks(
    features: str = "words200",
    random_state: Seed = None,
    *,
    split: str = "random",
    train_size: float = 0.5,
    validation_size: float = 0.25,
    download_if_missing: bool = True,
) -> list[Task]:
    """The Sentiment reviews as four tasks: books, dvd, electronics, kitchen.

    Parameters
    ----------
    features : {"words200", "raw"}, default="words200"
        "words200" is the paper's form, dense, 1600 samples a task: z-scores, then unit length.
        "raw" has tf-idf weights of 35,846 words and word pairs, CSR, 2000 samples a task.
    random_state : int, RandomState instance or None, default=None
        Seed of random splits.
    split : {"random", "authors"}, default="random"
        "authors" is the split stored with "words200" (800, 400, 400); it uses no seed.
    train_size, validation_size : float in [0, 1) or int, default=0.5 and 0.25
        Share or number of a task's samples in the parts of a random split.
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
    Derived in chapter 2 (datasets), eq. (datasets-split); chapter 45 (loading), eqs.
    (datasets-zscore) and (datasets-tfidf). Paper: section V-B, tables II and IV.
    """
    one_of("words200", "raw").check("features", features)
    splits = ("random", "authors") if features == "words200" else ("random",)
    one_of(*splits).check("split", split)
    files = load_arrays(f"sentiment_{features}", download_if_missing)
    if features == "raw":
        counts = [
            sparse.csr_array((a["data"], a["indices"], a["indptr"]), shape=tuple(a["shape"]))
            for a in files
        ]
        X = sparse.vstack(counts, format="csr")
        y = np.concatenate([a["y"] for a in files])
        task = np.repeat(np.arange(len(files)), [len(a["y"]) for a in files])
        preprocess = _tf_idf
    else:
        X = files[0]["X"]
        y = files[0]["y"]
        task = files[0]["task"]
        preprocess = _standardize
    members = {name: np.flatnonzero(task == number) for number, name in enumerate(_DOMAINS)}
    if split == "random":
        return _cut_tasks(X, y, members, train_size, validation_size, random_state, preprocess)
    of_part = [np.flatnonzero(files[0]["split"] == part) for part in range(3)]
    return [
        make_task(name, X, y, [np.intersect1d(own, part) for part in of_part], preprocess)
        for name, own in members.items()
    ]
