# Generated from book/datasets.ipynb by tools/tangle.py: edit the chapter.
"""Collections of related classification tasks, split without leaks.

The bundled digits need no download. USPS, Isolet and the two forms of the Sentiment
collection come from the folder named by ``LML_DATA``, a cached copy, or a public address.
"""

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.utils import check_random_state

__all__ = ["Task", "load_digits_tasks"]


@dataclass(frozen=True, eq=False, repr=False)
class Task:
    """One classification task, split into training, validation and test rows.

    Parameters
    ----------
    name : str
        Name of the task, for example "0-1".
    X_train, X_validation, X_test : array or CSR array of shape (n_rows, n_features)
        Rows of the three parts, preprocessed with statistics of the training part.
    y_train, y_validation, y_test : int array of shape (n_rows,)
        Labels of the three parts.

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

    def __post_init__(self):
        for part in ("train", "validation", "test"):
            X, y = getattr(self, f"X_{part}"), getattr(self, f"y_{part}")
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
        labels = [str(label) for label in np.unique(self.y_train)]
        if len(labels) > 4:
            labels = [*labels[:2], "..", labels[-1]]
        return (
            f"Task({self.name!r}: {rows} rows, {self.X_train.shape[1]} features,"
            f" labels {' '.join(labels)})"
        )

    def with_validation(self):
        """Training and validation rows together, for a final fit after tuning.

        Returns
        -------
        task : Task
            The same test part; the training part is training plus validation, in this
            order, and the validation part is empty. The rows are not preprocessed again:
            the statistics remain those of the smaller training part.
        """
        stack = sparse.vstack if sparse.issparse(self.X_train) else np.vstack
        options = {"format": "csr"} if sparse.issparse(self.X_train) else {}
        return Task(
            self.name,
            stack([self.X_train, self.X_validation], **options),
            np.concatenate([self.y_train, self.y_validation]),
            self.X_validation[:0],
            self.y_validation[:0],
            self.X_test,
            self.y_test,
        )


_DIGIT_TASKS = {"0-1": (0, 1), "2-3": (2, 3), "4-5-6": (4, 5, 6), "7-8-9": (7, 8, 9)}


def _part_size(n_rows, size, argument):
    """Number of rows meant by a fraction in [0, 1) or by a count."""
    count = round(size * n_rows) if isinstance(size, float) and 0 <= size < 1 else size
    if isinstance(count, bool | np.bool_) or count != int(count) or not 0 <= count <= n_rows:
        raise ValueError(
            f"{argument} is {size!r}, the task has {n_rows} rows: give a fraction in [0, 1)"
            " or a whole number of rows"
        )
    return int(count)


def _split_rows(n_rows, train_size, validation_size, rng):
    """Row numbers of the three parts: one permutation, cut twice; classes are not looked at."""
    n_train = _part_size(n_rows, train_size, "train_size")
    n_validation = _part_size(n_rows, validation_size, "validation_size")
    if n_train < 1 or n_train + n_validation >= n_rows:
        raise ValueError(
            f"train_size={train_size!r} and validation_size={validation_size!r} ask for"
            f" {n_train} and {n_validation} of {n_rows} rows: leave a training row and a test row"
        )
    return np.split(rng.permutation(n_rows), [n_train, n_train + n_validation])


def _make_task(name, X, y, rows, center=False):
    """A task from row numbers; `center` subtracts the mean of the training rows only."""
    y = y.astype(np.int64)
    parts = [X[index] for index in rows]
    if center:
        mean = parts[0].mean(axis=0)
        parts = [part - mean for part in parts]
    labels = [y[index] for index in rows]
    return Task(name, parts[0], labels[0], parts[1], labels[1], parts[2], labels[2])


def load_digits_tasks(random_state=None, *, train_size=0.2, validation_size=0.1, center=True):
    """The digits that come with scikit-learn, as four tasks.

    Parameters
    ----------
    random_state : int, RandomState instance or None, default=None
        Seed of the splits.
    train_size, validation_size : float in [0, 1) or int, default=0.2 and 0.1
        Share or number of a task's rows in the training and in the validation part; the
        rest is the test part.
    center : bool, default=True
        Subtract from every part the mean of the task's training rows.

    Returns
    -------
    tasks : list of Task
        "0-1", "2-3", "4-5-6", "7-8-9"; 64 features in [0, 1] before centring.
    """
    X, y = load_digits(return_X_y=True)
    X, rng, tasks = X / 16.0, check_random_state(random_state), []
    for name, digits in _DIGIT_TASKS.items():
        own = np.flatnonzero(np.isin(y, digits))
        rows = _split_rows(len(own), train_size, validation_size, rng)
        tasks.append(_make_task(name, X[own], y[own], rows, center))
    return tasks
