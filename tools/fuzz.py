"""Read damaged files, guided by which branches of the package they reach.

Usage: ``python tools/fuzz.py [TARGET ...] [--minutes 10] [--seed 0]``, with atheris, which `make
fuzz` fetches. The targets are files of ours and their readers: states (`lifelong`, `plda`, `paper`,
`ella`, `classifier`), results (`results`), stored data (`stored`). Inputs begin as sound files. A
change is made within a member of an archive, or within the JSON of its header, and the archive is
closed anew, so that its checksums fit. A reader answers with a ValueError or an OSError, or with
something that works: it is written and read once more, and must be the same. All else is a fault,
also a LinAlgError, which is a ValueError: what is read must not fail for its matrices. The file
that did it stays in build/fuzz.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "build" / "fuzz"
PROMISED = (ValueError, OSError)
VALUES = [None, True, -1, 0, 1, 3, 2**70, 0.5, 1e308, "", "a", [], {}, ["C", 3], {"float": "inf"}]


def places(form: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Ways to all entries of nested lists and objects."""
    if isinstance(form, dict | list):
        for key in form if isinstance(form, dict) else range(len(form)):
            yield (*way, key)
            yield from places(form[key], (*way, key))


def at(form: Any, way: tuple[Any, ...]) -> Any:
    for key in way:
        form = form[key]
    return form


def changed_json(text: bytes, draw: random.Random) -> bytes:
    """A JSON text with one entry left out, replaced or moved to another place."""
    form = json.loads(text)
    ways = list(places(form))
    *way, last = draw.choice(ways)
    inner, how = at(form, tuple(way)), draw.random()
    if how < 0.2:
        inner.pop(last)
    elif how < 0.6:
        inner[last] = draw.choice(VALUES)
    else:
        inner[last] = json.loads(json.dumps(at(form, draw.choice(ways))))
    return json.dumps(form).encode()


def as_member(text: bytes) -> bytes:
    """A text as a state holds its header."""
    stream = io.BytesIO()
    np.save(stream, np.frombuffer(text, np.uint8))
    return stream.getvalue()


def changed(data: bytes, most: int, seed: int, mutate: Callable[[bytes, int], bytes]) -> bytes:
    """A file with a change, within a member if it is an archive; `mutate` changes plain bytes."""
    draw = random.Random(seed)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
            name = draw.choice(list(members))
            if draw.random() < 0.1:
                return mutate(data, most)
            if name == "header.npy" or ("header.npy" in members and draw.random() < 0.5):
                text = np.load(io.BytesIO(members["header.npy"])).tobytes()
                members["header.npy"] = as_member(changed_json(text, draw))
            elif draw.random() < 0.1:
                members[draw.choice(list(members))] = members.pop(name)
            else:
                members[name] = mutate(members[name], len(members[name]) + 64)
    except Exception:  # no archive, or no header in it
        return mutate(data, most)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()[:most]


# ---------------------------------------------------------------- targets


def samples(seed: int, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    y = np.arange(12) % n_classes
    return np.random.default_rng(seed).normal(size=(12, 4)) + 2 * np.eye(3, 4)[y], y


@contextlib.contextmanager
def refused(*kinds: type[Exception]) -> Iterator[None]:
    """Suppress errors that are promised; a LinAlgError is none, although it is a ValueError."""
    try:
        yield
    except np.linalg.LinAlgError:
        raise
    except kinds:
        pass


def state_target(
    learner: Any, answer: str = "transform", n_classes: int = 3
) -> tuple[list[bytes], Callable[[Path], None]]:
    """Sound states of a learner of tasks, and how one is read and asked by its method `answer`."""
    sound = []
    for number, task in enumerate(["paris", ("a", 1), 3]):
        with tempfile.TemporaryDirectory() as folder:
            learner.save(path := Path(folder) / "s.npz")
            sound.append(path.read_bytes())
        for part in (getattr(learner, "learner", None), learner):  # first that of a classifier
            if hasattr(part, "partial_fit"):
                part.partial_fit(*samples(number, n_classes), task=task)
    kind = type(learner)

    def read(path: Path) -> None:
        found = None
        with refused(*PROMISED):
            found = kind.load(path)
        if found is None:
            return
        found.save(path)
        again = path.read_bytes()
        kind.load(path).save(path)
        if path.read_bytes() != again:
            raise AssertionError("what was read is not what was written")
        learned = getattr(found, "learner", found)
        known = getattr(found, "references_", None) or {}  # of a classifier; others ask all tasks
        for task in list(getattr(learned, "tasks_", {}))[:3]:
            if learned is found or task in known:
                with refused(ValueError):  # of numbers that are too large
                    getattr(found, answer)(np.ones((2, learned.n_features_in_)), task=task)

    return sound, read


def results_target() -> tuple[list[bytes], Callable[[Path], None]]:
    """A results file, and how its rows are read and written anew."""
    from lml.studies.results import append_rows, read_rows, wrong_answers

    row = dict(
        system="a", split=1, seed=1, error=1.0, n_test=9, parameters='{"k": 1}', wrong="ff80"
    )
    row |= dict(versions="python, numpy", tasks="1, 2")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r.csv"
        append_rows(path, [row, row | {"split": 2, "seed": 2}])
        append_rows(path, [row | {"split": 3, "seed": 3, "versions": "others"}])
        sound = [path.read_bytes()]

    def read(path: Path) -> None:
        try:
            rows = read_rows(path)
        except PROMISED:
            return
        for found in rows:
            with contextlib.suppress(ValueError, KeyError):  # without such a column
                wrong_answers(found)
        if rows:
            new = path.with_name("again.csv")
            new.unlink(missing_ok=True)
            append_rows(new, rows)
            if read_rows(new) != rows:
                raise AssertionError("what was read is not what was written")

    return sound, read


def stored_target() -> tuple[list[bytes], Callable[[Path], None]]:
    """A stored data set, and how it is loaded: nothing but the original is."""
    from lml.datasets import COLLECTIONS, Collection, array_digest, load_arrays

    arrays = {"Xq": np.arange(12, dtype=np.int16).reshape(3, 4), "y": np.arange(3, dtype=np.int8)}
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    small = Collection(tuple(arrays), {"usps.npz": array_digest(arrays)}, ())

    def read(path: Path) -> None:
        os.replace(path, path.with_name("usps.npz"))
        folder = {"LML_DATA": str(path.parent)}
        with mock.patch.dict(COLLECTIONS, usps=small), mock.patch.dict(os.environ, folder):
            try:
                (found,) = load_arrays("usps", download_if_missing=False)
            except PROMISED:
                return
        for name, array in arrays.items():
            np.testing.assert_array_equal(found[name], array, strict=True)

    return [stream.getvalue()], read


def lifelong() -> tuple[list[bytes], Callable[[Path], None]]:
    from lml import LifelongMetricLearner
    from lml.oasis import OASIS

    return state_target(LifelongMetricLearner(OASIS(n_steps=20), n_components=3, random_state=0))


def plda() -> tuple[list[bytes], Callable[[Path], None]]:
    from lml.plda import LifelongPLDA

    return state_target(LifelongPLDA(random_state=0))


def paper() -> tuple[list[bytes], Callable[[Path], None]]:
    from lml.oasis import OASIS
    from lml.paper import DictionaryMetricLearner

    return state_target(DictionaryMetricLearner(OASIS(n_steps=20), n_components=3, random_state=0))


def ella() -> tuple[list[bytes], Callable[[Path], None]]:
    from lml.baselines.ella import ELLA

    return state_target(ELLA(2, random_state=0), "decision_function", n_classes=2)


def classifier() -> tuple[list[bytes], Callable[[Path], None]]:
    from lml import LifelongKNeighborsClassifier, LifelongMetricLearner
    from lml.oasis import OASIS

    learner = LifelongMetricLearner(OASIS(n_steps=20), n_components=3, random_state=0)
    return state_target(LifelongKNeighborsClassifier(learner, n_neighbors=1), "predict")


TARGETS: dict[str, Callable[[], tuple[list[bytes], Callable[[Path], None]]]] = {
    "lifelong": lifelong,
    "plda": plda,
    "paper": paper,
    "ella": ella,
    "classifier": classifier,
    "results": results_target,
    "stored": stored_target,
}


# ---------------------------------------------------------------- running


def attempt(read: Callable[[Path], None], data: bytes, path: Path) -> None:
    """Read a file; an error is a fault."""
    path.write_bytes(data)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        read(path)


def fuzz(name: str, minutes: float, seed: int) -> None:
    """Fuzz one target in this process, which ends with it."""
    import atheris

    with atheris.instrument_imports(include=["lml"]):
        sound, read = TARGETS[name]()
    os.fsync = lambda handle: None  # files here need not survive a power cut
    corpus = KEPT / f"{name}-corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(sound):
        (corpus / f"sound{number}").write_bytes(data)
    fast = "/dev/shm" if Path("/dev/shm").is_dir() else None
    path = Path(tempfile.mkdtemp(dir=fast)) / "file"
    atheris.Setup(
        [
            "fuzz",
            f"-max_total_time={60 * minutes:.0f}",
            f"-seed={seed + 1}",
            "-print_final_stats=1",
            "-timeout=60",
            "-rss_limit_mb=4096",
            "-max_len=65536",
            f"-artifact_prefix={KEPT}/{name}-",
            str(corpus),
        ],
        lambda data: attempt(read, data, path),
        custom_mutator=lambda data, most, number: changed(data, most, number, atheris.Mutate),
    )
    atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--minutes", type=float, default=10, help="for all targets together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    names = given.targets or list(TARGETS)
    if odd := set(names) - set(TARGETS):
        parser.error(f"{sorted(odd)} are no targets: use {list(TARGETS)}")
    if given.here:
        fuzz(names[0], given.minutes, given.seed)
    faults = 0
    for name in names:
        command = [sys.executable, __file__, "--here", name]
        command += ["--minutes", str(given.minutes / len(names)), "--seed", str(given.seed)]
        began = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
        counts = [x.split()[-1] for x in done.stderr.splitlines() if "executed_units" in x]
        print(f"{name}: {counts[0] if counts else 'no'} files in {time.monotonic() - began:.0f} s")
        if done.returncode:
            faults += 1
            print((done.stdout + done.stderr)[-4000:])
    return min(faults, 1)


if __name__ == "__main__":
    sys.exit(main())
