# Generated from book/experiments.ipynb by tools/tangle.py: edit the chapter.
"""Files of results: one line for each measurement, written as soon as it is there.

A results file is a CSV file. A text that many rows share, such as the versions, stands once, in a
note ``#1,text`` above the first of them, and they have ``#1`` in its place. A blank line ends the
rows of a job that are written together; rows after the last one are unfinished.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import os
import platform
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import scipy
import sklearn
from numpy.typing import ArrayLike, NDArray

from lml.state import replacing, sync_folder

__all__ = [
    "KEYS",
    "NOTED",
    "NUMBERS",
    "Booleans",
    "Rows",
    "answers_text",
    "append_rows",
    "finished",
    "locked",
    "open_results",
    "read_rows",
    "software_versions",
    "wrong_answers",
]

# book/experiments.ipynb#running-stopping-and-going-on
#: Rows of a results file: column to text.
Rows: TypeAlias = Sequence[Mapping[str, Any]]
#: A truth value for each sample.
Booleans: TypeAlias = NDArray[np.bool_]
#: Columns whose texts stand in notes.
NOTED = ("parameters", "versions", "tasks", "machine")
#: Columns of measured rows that hold numbers.
NUMBERS = (
    "split",
    "order",
    "seed",
    "n_learnt",
    "error",
    "validation_error",
    "n_neighbors",
    "n_train",
    "n_test",
    "seconds",
    "total_seconds",
    "state_bytes",
    "raw_bytes",
)
#: Columns that say what a row has measured; a file has some of them.
KEYS = (
    "dataset",
    "split",
    "order",
    "system",
    "task",
    "n_learnt",
    "fraction",
    "dictionary",
    "n_components",
    "policy",
)  # of ablations
_RESTORE = "restore the file, or remove the rows of this job and run it again"


def _kept(text: str) -> str:
    """The finished rows of a file: all before the last blank line, or before a lost block.

    What a power cut took from an append reads as zeros.
    """
    text = text.partition("\0")[0]
    end = text.rfind("\n\n")
    return text[: end + 2] if end >= 0 else text


def _cells(line: str, place: str) -> list[str]:
    """The cells of a line; none goes on in the next one."""
    try:
        return next(csv.reader([line], strict=True))
    except csv.Error as error:
        raise ValueError(f"{place}: {error}: {_RESTORE}") from None


# book/experiments.ipynb#running-stopping-and-going-on
def _is_number(text: str, name: str) -> bool:
    """Whether a run writes such a text in a column of numbers."""
    try:
        number = float(text)
    except ValueError:
        return False
    if name == "error":
        return 0 <= number <= 1
    if name == "n_test":
        return text.isdecimal() and number > 0
    # nan where nothing was chosen by validation
    return math.isfinite(number) or name == "validation_error"


def _is_share(text: str) -> bool:
    return text == "nan" or _is_number(text, "error")


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def _are_parameters(text: str, of_tasks: bool) -> bool:
    """Whether a text is the JSON of an object; with `of_tasks` also a list, one for each task."""
    try:
        found = json.loads(text, parse_constant=_no_constant)
    except ValueError:
        return False
    parts = found if of_tasks and type(found) is list and found else [found]
    return all(type(part) is dict for part in parts)


# book/experiments.ipynb#running-stopping-and-going-on
def _check_row(row: Mapping[str, str], place: str) -> None:
    """Refuse a measured row with what no run writes."""
    if "split" not in row:  # typed by hand, or of another kind
        return
    wanted = {"error": "a number from 0 to 1", "n_test": "a whole number of at least 1"}
    for name in NUMBERS:
        if name in row and not _is_number(row[name], name):
            said = wanted.get(name, "a number")
            raise ValueError(f"{place}: {name} is {row[name]!r}, not {said}: {_RESTORE}")
    if not all(map(_is_share, row.get("errors", "").split())):
        raise ValueError(f"{place}: errors are {row['errors']!r}, not from 0 to 1: {_RESTORE}")
    if row.get("seed", row["split"]) != row["split"]:
        raise ValueError(
            f"{place}: the seed of split {row['split']} is {row['seed']!r}: {_RESTORE}"
        )
    if not _are_parameters(row.get("parameters", "{}"), "errors" in row):
        raise ValueError(
            f"{place}: parameters is {row['parameters']!r}, not JSON of an object: {_RESTORE}"
        )
    if row.get("wrong") and "n_test" in row:
        try:
            share = float(wrong_answers(row).mean())
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from None
        if "error" in row and abs(float(row["error"]) - share) > 1e-6:  # six digits are written
            raise ValueError(
                f"{place}: error is {row['error']}, but {share:.6f} of the answers are wrong:"
                f" {_RESTORE}"
            )


# book/experiments.ipynb#running-stopping-and-going-on
def read_rows(path: str | Path) -> list[dict[str, str]]:
    """Finished rows of a results file, dictionaries of texts; none without the file.

    Raises a ValueError that names the line where a row was changed to what no run writes, or
    measures once more what another one has measured.
    """
    path = Path(path)
    text = _kept(path.read_text(encoding="utf-8-sig")) if path.exists() else ""
    notes: dict[str, str] = {}
    names: list[str] = []
    lines: dict[tuple[str | None, ...], int] = {}
    rows = []
    for number, line in enumerate(text.splitlines(), start=1):
        place = f"{path}, line {number}"
        cells = _cells(line, place)
        if not names:
            names = cells
            if len(set(names)) < len(names):
                raise ValueError(f"{place}: columns {names} are not all different: {_RESTORE}")
        elif cells and cells[0].startswith("#"):
            if len(cells) != 2:
                raise ValueError(f"{place} is no note of a name and a text: {_RESTORE}")
            notes[cells[0]] = cells[1]
        elif any(cells):
            if len(cells) != len(names):
                raise ValueError(f"{place} has {len(cells)} cells, not {len(names)}: {_RESTORE}")
            row = dict(zip(names, cells))
            for name in NOTED:
                if (mark := row.get(name, "")).startswith("#"):
                    if mark not in notes:
                        raise ValueError(f"{place}: there is no note {mark} above: {_RESTORE}")
                    row[name] = notes[mark]
            _check_row(row, place)
            key = tuple(row.get(name) for name in KEYS)
            first = lines.setdefault(key, number) if "split" in row else number
            if first != number:
                raise ValueError(f"{place} measures what line {first} has measured: {_RESTORE}")
            rows.append(row)
    return rows


def finished(path: str | Path, *names: str) -> dict[tuple[str, ...], list[dict[str, str]]]:
    """Rows of a results file by the values of some columns, as strings."""
    by_key: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for row in read_rows(path):
        by_key.setdefault(tuple(row[name] for name in names), []).append(row)
    return by_key


# book/experiments.ipynb#running-stopping-and-going-on
def _to_append_to(path: Path, names: list[str]) -> tuple[str, bool]:
    """The finished rows of a file, and whether more stands there, which an append has left."""
    found = path.read_text(encoding="utf-8-sig") if path.exists() else ""
    kept = _kept(found)
    if kept and "\n\n" not in kept:  # the head is cut, or the file was typed
        head = io.StringIO()
        csv.writer(head, lineterminator="\n").writerows([names, []])
        if head.getvalue().startswith(kept):
            kept = ""
        elif not kept.endswith("\n"):
            raise ValueError(f"{path} ends within the line {kept.splitlines()[-1]!r}: {_RESTORE}")
    return kept, kept != found


# book/experiments.ipynb#running-stopping-and-going-on
def append_rows(path: str | Path, rows: Rows) -> None:
    """Add rows of the same columns to a results file, in one write; make the file if it lacks.

    When the call returns, the rows are on the disk. What an append that failed has left after the
    last finished row is cut off.

    Parameters
    ----------
    path : path-like
    rows : list of dict
        Columns in the order of the file. Texts of the columns `NOTED` become notes.

    Raises
    ------
    ValueError
        If a text has a line break or a zero, the first of a row begins with #, as notes do, or
        the columns are not those of the file. The file is then what it was.
    """
    for row in rows:
        texts = [str(value) for value in row.values()]
        broken = any("\0" in text or text.splitlines() not in ([], [text]) for text in texts)
        if texts[0].startswith("#") or broken:
            raise ValueError(
                f"{texts} is no line of results: no # at its start, no line breaks, no zeros"
            )
    path = Path(path)
    is_new = not path.exists()
    kept, is_torn = _to_append_to(path, list(rows[0]) if rows else [])
    lines = [_cells(line, str(path)) for line in kept.splitlines()]
    names = (lines or [list(row) for row in rows])[0]
    for row in rows:
        if list(row) != names:
            raise ValueError(f"a row has the columns {list(row)}, but {path} has {names}")
    notes = {cells[1]: cells[0] for cells in lines if cells and cells[0].startswith("#")}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if not lines:
        writer.writerows([names, []])
    for row in rows:
        for name in NOTED:
            if name in row and row[name] not in notes:
                notes[row[name]] = f"#{len(notes) + 1}"
                writer.writerow([notes[row[name]], row[name]])
    writer.writerows([notes[v] if name in NOTED else v for name, v in r.items()] for r in rows)
    writer.writerow([])
    if is_torn:
        with replacing(path) as whole:  # a kill leaves the old file or the new one
            whole.write((kept + text.getvalue()).encode())
        return
    with path.open("a", newline="", encoding="utf-8") as file:
        file.write(text.getvalue())
        file.flush()
        os.fsync(file.fileno())
    if is_new and os.name == "posix":
        sync_folder(path.parent)


# book/experiments.ipynb#running-stopping-and-going-on
def answers_text(wrong: ArrayLike) -> str:
    """Write which of n answers are wrong, one bit each, as hexadecimal digits."""
    return np.packbits(np.asarray(wrong, dtype=bool)).tobytes().hex()


def wrong_answers(row: Mapping[str, Any]) -> Booleans:
    """Which test samples got a wrong answer, (n_test,), from the column `wrong` of a row."""
    n_test = int(row["n_test"])
    try:
        bits = np.frombuffer(bytes.fromhex(row["wrong"]), np.uint8)
    except ValueError:
        raise ValueError(
            f"wrong is {reprlib.repr(row['wrong'])}, not hexadecimal: {_RESTORE}"
        ) from None
    if len(bits) != -(-n_test // 8):
        raise ValueError(f"wrong has {8 * len(bits)} bits for n_test={n_test} answers: {_RESTORE}")
    return np.unpackbits(bits, count=n_test).astype(bool)


# book/experiments.ipynb#running-stopping-and-going-on
def open_results(path: Path, row_type: type) -> None:
    """Make a results file, or cut off what a killed run left unfinished.

    Raises ValueError if the file has other columns than the dataclass `row_type`.
    """
    head = ",".join(f.name for f in fields(row_type)) + "\n\n"
    found = path.read_text(encoding="utf-8") if path.exists() else ""
    text = _kept(found)
    if not (text.startswith(head) or head.startswith(text)):
        raise ValueError(
            f"{path} begins with {text.splitlines()[0]!r}, but rows are written below"
            f" {head.strip()!r}: move the file away and run the experiment anew"
        )
    kept = text if text.startswith(head) else head
    if kept != found:
        with replacing(path) as file:  # a kill leaves the old file or the new one
            file.write(kept.encode())


# book/experiments.ipynb#running-stopping-and-going-on
def software_versions() -> str:
    """Versions that a result depends on, in one short string."""
    packages = {"numpy": np, "scipy": scipy, "scikit-learn": sklearn}
    listed = [f"{name} {package.__version__}" for name, package in packages.items()]
    return ", ".join([f"python {platform.python_version()}", *listed])


@contextlib.contextmanager
def locked(folder: str | Path) -> Iterator[None]:
    """Keep other runs out of a folder, which is made where it lacks.

    Raises BlockingIOError while another run, of this process or of another, has the folder.
    """
    import fcntl  # not on Windows, where nothing but a run needs it

    Path(folder).mkdir(parents=True, exist_ok=True)
    place = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a kill takes the lock away
    except BlockingIOError:
        os.close(place)
        raise BlockingIOError(
            f"another run writes into {folder}: wait until it has ended, or give another folder"
        ) from None
    try:
        yield
    finally:
        os.close(place)
