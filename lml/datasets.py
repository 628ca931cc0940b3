# Generated from book/datasets.ipynb by tools/tangle.py: edit the chapter.
"""Collections of related classification tasks, split without leaks.

The bundled digits need no download. USPS, Isolet and the two forms of the Sentiment
collection come from the folder named by the environment variable ``LML_DATA``, else from a
cached copy, else from a public address. Every array is checked against a SHA-256 before use.
"""

import hashlib
import os
import tarfile
import tempfile
import warnings
import zipfile
import zlib
from collections import Counter
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path

import numpy as np
from scipy import sparse
from scipy.io import loadmat
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
    X_train: np.ndarray
    y_train: np.ndarray
    X_validation: np.ndarray
    y_validation: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    centered: bool = False

    def __post_init__(self):
        self._check()

    def _check(self):
        for part in ("train", "validation", "test"):
            X, y = getattr(self, f"X_{part}"), getattr(self, f"y_{part}")
            if not (hasattr(X, "ndim") and hasattr(y, "ndim")):
                raise TypeError(
                    f"X_{part} and y_{part} of task {self.name!r} are of type {type(X).__name__}"
                    f" and {type(y).__name__}: give arrays"
                )
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

    def __repr__(self):
        rows = " + ".join(str(len(y)) for y in (self.y_train, self.y_validation, self.y_test))
        distinct = sorted(set(self.y_train.tolist()), key=lambda v: (type(v).__name__, v))
        labels = [str(label) for label in distinct]
        if len(labels) > 4:
            labels = [*labels[:2], "..", labels[-1]]
        width, labels = self.X_train.shape[1], " ".join(labels)
        return f"Task({self.name!r}: {rows} rows, {width} features, labels {labels})"

    def with_validation(self):
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


def _part_size(n_rows, size, argument):
    """Number of rows meant by a share in [0, 1) or by a count."""
    share = isinstance(size, float | np.floating) and 0 <= size < 1
    whole = isinstance(size, Integral) and not isinstance(size, bool) and 0 <= size <= n_rows
    if not (share or whole):
        raise ValueError(
            f"{argument} is {size!r}, the task has {n_rows} rows: give a share in [0, 1)"
            " or a whole number of rows (an int: 1.0 is neither)"
        )
    return round(size * n_rows) if share else int(size)


def _check_parts(n_rows, n_train, n_validation, asked):
    if n_train < 1 or n_train + n_validation >= n_rows:
        raise ValueError(
            f"{asked} ask for {n_train} and {n_validation} of {n_rows} rows: leave a training row"
            " and a test row"
        )


def _split_rows(n_rows, train_size, validation_size, rng):
    """Row numbers of the three parts: one permutation, cut twice, blind to the classes.

    Derived in chapter 2 (datasets), eq. (datasets-split).
    """
    n_train = _part_size(n_rows, train_size, "train_size")
    n_validation = _part_size(n_rows, validation_size, "validation_size")
    asked = f"train_size={train_size!r} and validation_size={validation_size!r}"
    _check_parts(n_rows, n_train, n_validation, asked)
    return np.split(rng.permutation(n_rows), [n_train, n_train + n_validation])


def _center(parts):
    """Subtract the mean of the first (training) part from every part.

    Derived in chapter 2 (datasets), eq. (datasets-center).
    """
    mean = parts[0].mean(axis=0)
    return [part - mean for part in parts]


def _make_task(name, X, y, rows, preprocess=None):
    """A task from row numbers; preprocess maps the list of parts to a list of parts."""
    parts, labels = [X[index] for index in rows], [y[index].astype(np.int64) for index in rows]
    if preprocess is not None:
        parts = preprocess(parts)
    pairs = [item for pair in zip(parts, labels, strict=True) for item in pair]
    return Task(name, *pairs, centered=preprocess is _center)


def _standardize(parts):
    """z-scores with statistics of the first part, then rows of unit length.

    Derived in chapter 2 (datasets), eq. (datasets-zscore).
    """
    if len(parts[0]) < 2:
        raise ValueError("one training row has no standard deviation: raise train_size to 2 rows")
    mean, deviation = parts[0].mean(axis=0), parts[0].std(axis=0, ddof=1)
    deviation = np.where(deviation < 1e-5, 1.0, deviation)
    return [normalize((part - mean) / deviation) if len(part) else part for part in parts]


def _weigh(parts, weighting, unit_rows):
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


_DIGIT_TASKS = {"0-1": (0, 1), "2-3": (2, 3), "4-5-6": (4, 5, 6), "7-8-9": (7, 8, 9)}


def load_digits_tasks(random_state=None, *, train_size=0.2, validation_size=0.1, center=True):
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
    X, rng, tasks = X / 16.0, check_random_state(random_state), []
    for name, digits in _DIGIT_TASKS.items():
        own = np.flatnonzero(np.isin(y, digits))
        rows = _split_rows(len(own), train_size, validation_size, rng)
        tasks.append(_make_task(name, X[own], y[own], rows, _center if center else None))
    return tasks


def _whole(values, divisor):
    """Decimal values in [-1, 1] as int16 multiples of 1 / divisor; an error if they are not."""
    whole = np.rint(values * divisor) if np.isfinite(values).all() else np.full_like(values, np.inf)
    if abs(whole).max() > divisor or abs(whole - values * divisor).max() > 1e-4:
        raise ValueError(f"the values are not multiples of 1/{divisor} in [-1, 1]")
    return whole.astype(np.int16)


def _parse_usps(paths):
    """Arrays from zip.train and zip.test (text, label first, also .gz)."""
    parts = [np.loadtxt(path, ndmin=2) for path in paths]
    table = np.vstack(parts)
    arrays = {
        "Xq": _whole(table[:, 1:], 1000),
        "divisor": np.array(1000, dtype=np.int32),
        "y": table[:, 0].astype(np.int8),
        "split": np.repeat(np.array([0, 1], dtype=np.int8), [len(part) for part in parts]),
    }
    return {"usps.npz": arrays}


def _isolet_speakers(y):
    """Speaker 1..150 of every row in UCI's order.

    Derived in chapter 2 (datasets), eq. (datasets-speaker).
    """
    run = 1 + np.cumsum(np.diff(y, prepend=y[:1]) < 0)
    return np.where(run <= 120, run, run - 60).astype(np.int16)


def _isolet_arrays(train, test):
    """Arrays from the two tables of UCI (features, then the letter)."""
    table = np.vstack([train, test])
    letter = table[:, -1].astype(np.int8)
    speaker = _isolet_speakers(letter)
    block = np.repeat(np.arange(1, 6, dtype=np.int8), [1560, 1560, 1560, 1558, 1559])
    arrays = {
        "Xq": _whole(table[:, :-1], 10000),
        "divisor": np.array(10000, dtype=np.int32),
        "y": letter,
        "group": block[: len(letter)],
        "speaker": speaker,
        "group_by_speaker": ((speaker + 29) // 30).astype(np.int8),
    }
    return {"isolet.npz": arrays}


def _isolet_table(data, name):
    """The table in the bytes of one file, unpacked if it is a .Z file."""
    if data[:2] == b"\x1f\x9d":
        try:
            from unlzw3 import unlzw
        except ImportError as error:
            raise ValueError(f"{name} is a .Z file: pip install unlzw3") from error
        data = unlzw(data)
    return np.loadtxt(data.decode("ascii").splitlines(), delimiter=",", ndmin=2)


def _parse_isolet(paths):
    """Arrays from isolet1+2+3+4.data and isolet5.data (text or .Z), or from a zip of both."""
    if len(paths) == 1:
        with zipfile.ZipFile(paths[0]) as archive:
            names = sorted(n for n in archive.namelist() if ".data" in n and "+5" not in n)
            tables = [_isolet_table(archive.read(name), name) for name in names]
    else:
        tables = [_isolet_table(Path(path).read_bytes(), Path(path).name) for path in paths]
    return _isolet_arrays(*tables)


_DOMAINS = ("books", "dvd", "electronics", "kitchen")


def _parse_words(paths):
    """Arrays from sentiment_mt.mat, MATLAB cells of one matrix a task."""
    stored = loadmat(paths[0])
    X, y, task, split = [], [], [], []
    for t in range(len(_DOMAINS)):
        for s, part in enumerate(("Tr", "Va", "Te")):
            rows, labels = (stored[f"{kind}{part}"].ravel()[t] for kind in "xy")
            X.append(rows.toarray() if sparse.issparse(rows) else np.asarray(rows, dtype=float))
            y.append(np.asarray(labels).ravel())
            task.append(np.full(len(y[-1]), t))
            split.append(np.full(len(y[-1]), s))
    y, task, split = (np.concatenate(part).astype(np.int8) for part in (y, task, split))
    arrays = {"X": np.vstack(X), "y": y, "task": task, "split": split}
    return {"sentiment_mt.npz": {**arrays, "task_names": np.array(_DOMAINS)}}


def _read_reviews(data):
    """One dict of counts a line of `token:count ... #label#:positive`, as bytes."""
    reviews = []
    for line in data.splitlines():
        items = [item.rpartition(b":") for item in line.strip(b" \r\n").split(b" ")]
        reviews.append({token: int(count) for token, _, count in items if token != b"#label#"})
    return reviews


def _count_matrix(reviews, column):
    """CSR arrays of the counts of tokens that have a column; columns ascend in every row."""
    kept = [sorted((column[t], n) for t, n in review.items() if t in column) for review in reviews]
    pairs = np.array([pair for row in kept for pair in row], dtype=np.int32).reshape(-1, 2)
    if pairs.size and not 0 < pairs[:, 1].min() <= pairs[:, 1].max() < 256:
        raise ValueError("a word count lies outside 1..255")
    indptr = np.cumsum([0, *map(len, kept)], dtype=np.int32)
    return {"data": pairs[:, 1].astype(np.uint8), "indices": pairs[:, 0], "indptr": indptr}


def _review_arrays(contents, least=5):
    """Arrays of all domains from the bytes of their positive and negative files, in turn."""
    reviews = [_read_reviews(data) for data in contents]
    documents = Counter(token for part in reviews for review in part for token in review)
    column = {t: j for j, t in enumerate(sorted(t for t, n in documents.items() if n >= least))}
    files = {}
    for domain, positive, negative in zip(_DOMAINS, reviews[::2], reviews[1::2], strict=True):
        counts = _count_matrix(positive + negative, column)
        files[f"sentiment_{domain}.npz"] = {
            "format": np.array(b"csr"),
            "shape": np.array([len(positive + negative), len(column)], dtype=np.int64),
            **counts,
            "y": np.repeat(np.array([1, -1], dtype=np.int8), [len(positive), len(negative)]),
        }
    return files


_REVIEW_FILES = tuple(f"{d}/{p}.review" for d in _DOMAINS for p in ("positive", "negative"))


def _parse_reviews(paths):
    """Arrays from the eight review files, or from processed_acl.tar.gz."""
    if len(paths) == len(_REVIEW_FILES):
        return _review_arrays([Path(path).read_bytes() for path in paths])
    with tarfile.open(paths[0]) as archive:
        members = {"/".join(m.name.split("/")[-2:]): m for m in archive.getmembers()}
        missing = [name for name in _REVIEW_FILES if name not in members]
        if missing:
            raise ValueError(f"the archive has no {missing[0]}")
        return _review_arrays([archive.extractfile(members[name]).read() for name in _REVIEW_FILES])


def _digest(arrays):
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


@dataclass(frozen=True)
class _Collection:
    """What stored files must hold, and where the public originals are."""

    digests: dict  # file name: SHA-256 of its arrays
    fields: dict  # key: (type, shape); None in a shape is any length
    labels: dict  # key: the values that occur, all of them
    sources: tuple  # (parser, addresses), tried in this order


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


_COLLECTIONS = {
    "usps": _USPS,
    "isolet": _ISOLET,
    "sentiment_words200": _WORDS200,
    "sentiment_raw": _RAW,
}


def _validate(arrays, collection, file, where):
    """Raise a ValueError unless the arrays are what the table says."""
    for key, (kind, shape) in collection.fields.items():
        if key not in arrays:
            raise ValueError(f"{where} has no array {key!r}")
        array = arrays[key]
        fits = len(shape) == array.ndim and all(
            m is None or m == n for m, n in zip(shape, array.shape, strict=True)
        )
        if array.dtype != np.dtype(kind) or not fits:
            raise ValueError(
                f"{key!r} in {where} has type {array.dtype} and shape {array.shape}, not"
                f" {kind} and {shape}"
            )
        if key in collection.labels and set(array.ravel().tolist()) != set(collection.labels[key]):
            raise ValueError(f"{key!r} in {where} does not hold the expected values")
    found, expected = _digest(arrays), collection.digests[file]
    if found != expected:
        raise ValueError(f"the arrays in {where} have SHA-256 {found}, not {expected}")


def _read(path, collection):
    """Arrays of a stored file, checked before use."""
    advice = "delete it, or point LML_DATA at a folder with a sound copy"
    try:
        with open(path, "rb") as stream:
            stored = np.load(stream, allow_pickle=False)
            if not isinstance(stored, np.lib.npyio.NpzFile):
                raise ValueError("it is no .npz archive")
            arrays = {key: stored[key] for key in collection.fields if key in stored.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} cannot be read ({error}): {advice}") from error
    try:
        _validate(arrays, collection, Path(path).name, str(path))
    except ValueError as error:
        raise ValueError(f"{error}: {advice}") from error
    return arrays


def _store(path, arrays):
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


def _retrieve(addresses, folder, progressbar=True):
    """Download the addresses into a folder; the paths."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # in a notebook, tqdm asks for ipywidgets
        import pooch
    transfer = pooch.HTTPDownloader(progressbar=progressbar, timeout=60)
    names = [f"{k}-{address.rpartition('/')[2]}" for k, address in enumerate(addresses)]
    paths = [Path(folder) / name for name in names]
    for address, path in zip(addresses, paths, strict=True):
        transfer(address, str(path), None)
    return paths


def _download(name):
    """Fetch a collection from the first source that gives the right arrays, and cache it."""
    collection, reasons = _COLLECTIONS[name], []
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


def _cache():
    """Folder of the cached copies, in scikit-learn's data home."""
    return Path(get_data_home()) / "lml"


def _find(file):
    """Path of a stored file: in LML_DATA if it is there, else in the cache, else None."""
    chosen = os.environ.get("LML_DATA")
    if chosen and not Path(chosen).is_dir():
        raise FileNotFoundError(
            f"LML_DATA is {chosen!r}, which is no folder: set it to the folder with {file},"
            " or unset it"
        )
    folders = [Path(chosen)] if chosen else []
    return next((p for f in [*folders, _cache()] if (p := f / file).is_file()), None)


def _load(name, download_if_missing=True):
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
    return [_read(_find(file), collection) for file in collection.digests]


def load_usps_tasks(
    random_state=None,
    *,
    train_size=0.1,
    validation_share=0.2,
    center=True,
    download_if_missing=True,
):
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
    X, y = arrays["Xq"] / float(arrays["divisor"]), arrays["y"]
    rng, tasks = check_random_state(random_state), []
    for name, digits in _DIGIT_TASKS.items():
        own = np.flatnonzero((arrays["split"] == 0) & np.isin(y, digits))
        both = _part_size(len(own), train_size, "train_size")
        held = _part_size(both, validation_share, "validation_share")
        asked = f"train_size={train_size!r} and validation_share={validation_share!r}"
        _check_parts(len(own), both - held, held, asked)
        rows = _split_rows(len(own), both - held, held, rng)
        tasks.append(_make_task(name, X[own], y[own], rows, _center if center else None))
    return tasks


def load_isolet_tasks(
    grouping="rows",
    random_state=None,
    *,
    train_size=0.1,
    validation_size=0.2,
    center=False,
    download_if_missing=True,
):
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
    X, rng, tasks = arrays["Xq"] / float(arrays["divisor"]), check_random_state(random_state), []
    for group in range(1, 6):
        own = np.flatnonzero(arrays[keys[grouping]] == group)
        rows = _split_rows(len(own), train_size, validation_size, rng)
        preprocess = _center if center else None
        tasks.append(_make_task(f"isolet{group}", X[own], arrays["y"][own], rows, preprocess))
    return tasks


def _words_tasks(arrays, random_state, split, train_size, validation_size):
    """Tasks of the 200-word form."""
    rng, tasks = check_random_state(random_state), []
    for number, name in enumerate(_DOMAINS):
        own = np.flatnonzero(arrays["task"] == number)
        if split == "authors":
            rows = [np.flatnonzero(arrays["split"][own] == part) for part in range(3)]
        else:
            rows = _split_rows(len(own), train_size, validation_size, rng)
        tasks.append(_make_task(name, arrays["X"][own], arrays["y"][own], rows, _standardize))
    return tasks


def _raw_tasks(files, random_state, train_size, validation_size, weighting, unit_rows):
    """Tasks of the raw form, sparse throughout."""
    rng, tasks = check_random_state(random_state), []
    for name, arrays in zip(_DOMAINS, files, strict=True):
        stored = arrays["data"], arrays["indices"], arrays["indptr"]
        X = sparse.csr_array(stored, shape=tuple(arrays["shape"].tolist()))
        rows = _split_rows(X.shape[0], train_size, validation_size, rng)
        tasks.append(
            _make_task(name, X, arrays["y"], rows, lambda p: _weigh(p, weighting, unit_rows))
        )
    return tasks


def load_sentiment_tasks(
    features="words200",
    random_state=None,
    *,
    split="random",
    train_size=0.5,
    validation_size=0.25,
    weighting="tfidf",
    unit_rows=True,
    download_if_missing=True,
):
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
