# Generated from book/state.ipynb by tools/tangle.py: edit the chapter.
"""State that survives: a learner in one file of arrays and JSON, read without trust.

`write_state` puts a header and arrays into an ``.npz`` file in one atomic step, `read_state`
gets them back or refuses the file. `encode` and `decode` turn names of tasks, labels and
parameters into JSON and back, value and type.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import re
import reprlib
import secrets
import stat
import zipfile
from abc import ABC, abstractmethod
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lml.metrics import FactoredMetric
from lml.utils.validation import (
    LARGEST_SAMPLE,
    InvalidParameterError,
    Rule,
    check_parameters,
    python_scalar,
    whole,
)

__all__ = [
    "LARGEST",
    "LARGEST_COUNT",
    "LARGEST_MEAN",
    "ORTHONORMAL",
    "ArrayField",
    "Field",
    "MatrixField",
    "OptionalField",
    "RecordField",
    "SizeField",
    "TableField",
    "ValueField",
    "decode",
    "decode_parameters",
    "encode",
    "encode_parameters",
    "expect",
    "pack",
    "read_state",
    "reading",
    "replacing",
    "storable",
    "sync_folder",
    "unpack",
    "write_state",
]


# book/state.ipynb#names-of-tasks-and-labels-in-json
def encode(value: Any, arrays: dict[str, Any] | None = None) -> Any:
    """JSON form of a name, or of a parameter.

    Parameters
    ----------
    value : object
        A string, bytes, an integer, a float other than NaN, True, False, None, a numpy
        scalar that equals one of these, or a tuple of such values. With `arrays` also a list,
        an array, a FactoredMetric, a RandomState, or one of the package's learners.
    arrays : dict, optional
        Takes the arrays that `value` holds, under new names.

    Returns
    -------
    object
        For `json.dumps` and `decode`.

    Raises
    ------
    TypeError
        If `value` is something else.

    Notes
    -----
    Derived in chapter 34 (state), eq. (state-round-trip).

    Examples
    --------
    >>> encode(("a", 1, None, (True, 2.5)))
    ['a', 1, None, [True, 2.5]]
    >>> decode(encode(("a", 1, None, (True, 2.5))))
    ('a', 1, None, (True, 2.5))
    """
    value = python_scalar(value)
    kind = type(value)
    if value is None or kind in (str, bool, int) or (kind is float and math.isfinite(value)):
        return value
    if kind is float and not math.isnan(value):
        return {"float": str(value)}
    if kind is bytes:
        return {"bytes": value.hex()}
    if kind is tuple:
        return [encode(part, arrays) for part in value]
    if arrays is not None:
        return _encode_object(value, arrays)
    raise TypeError(
        f"{value!r} of type {kind.__name__} cannot be stored: use strings, numbers,"
        " True, False, None, or tuples of them"
    )


# book/state.ipynb#names-of-tasks-and-labels-in-json
def decode(form: Any, arrays: dict[str, NDArray[Any]] | None = None) -> Any:
    """The value whose JSON form `encode` gave.

    Parameters
    ----------
    form : object
        From `json.loads`.
    arrays : dict, optional
        Named arrays, for a parameter; those that are used are taken out.

    Returns
    -------
    object

    Raises
    ------
    ValueError
        If `form` stands for nothing.
    """
    if form is None or type(form) in (str, bool, int):
        return form
    if type(form) is float and math.isfinite(form):
        return form
    if type(form) is list:
        return tuple(decode(part, arrays) for part in form)
    tag, content = next(iter(form.items())) if type(form) is dict and len(form) == 1 else ("", "")
    if tag == "float" and content in ("inf", "-inf"):
        return float(content)
    if tag == "bytes":
        return bytes.fromhex(content)
    if tag and arrays is not None:
        return _decode_object(tag, content, arrays)
    raise ValueError(f"{reprlib.repr(form)} stands for no value")


# book/state.ipynb#parameters
def expect(fits: bool, part: str, value: Any, wanted: Any) -> None:
    """Refuse a part of a file that does not fit; the error names the part and the value."""
    if not fits:
        raise ValueError(f"{part} is {reprlib.repr(value)}, not {wanted}")


_LEARNERS: dict[str, type] = {}
_Class = TypeVar("_Class", bound=type)


def storable(learner: _Class) -> _Class:
    """Let files hold a class of learners among the parameters; a decorator of the class.

    A file names a class of another package by its module; `load` knows it when that module, which
    calls `storable`, has been imported.
    """
    _LEARNERS[_place(learner)] = learner
    return learner


def _place(learner: type) -> str:
    """How a file names a class of learners."""
    own = learner.__module__.partition(".")[0] == "lml"
    return learner.__name__ if own else f"{learner.__module__}.{learner.__qualname__}"


# book/state.ipynb#parameters
def _generator_parts(generator: np.random.RandomState) -> tuple[Any, ...]:
    state = generator.get_state(legacy=False)
    if state["bit_generator"] != "MT19937":
        raise TypeError(f"a RandomState of {state['bit_generator']} cannot be stored: use a number")
    return state["state"]["key"], state["state"]["pos"], state["has_gauss"], state["gauss"]


def _generator(
    key: NDArray[Any], position: int, has_gauss: int, gauss: float
) -> np.random.RandomState:
    expect(key.dtype == np.uint32 and key.shape == (624,), "generator", key.shape, "624 words")
    expect(0 <= position <= 624, "position of the generator", position, "0 to 624")
    made = np.random.RandomState(0)
    made.set_state(("MT19937", key, position, has_gauss, gauss))
    return made


# book/state.ipynb#parameters
def _sparse_rows(
    shape: tuple[int, int], data: NDArray[Any], columns: NDArray[Any], starts: NDArray[Any]
) -> sparse.csr_array:
    made = sparse.csr_array((data, columns, starts), shape=shape)
    made.check_format(full_check=True)  # numbers of columns and rows in range
    kind = sparse.get_index_dtype(maxval=max(*made.shape, made.nnz))
    made.indices, made.indptr = sparse.safely_cast_index_arrays(made, kind)
    return made


# tag: class, its parts, the object from the parts
_OBJECTS: dict[str, tuple[type, Callable[[Any], Any], Callable[..., Any]]] = {
    "list": (list, tuple, lambda *parts: list(parts)),
    "metric": (FactoredMetric, lambda M: (M.alpha, M.factor, M.core), FactoredMetric),
    "sparse": (sparse.csr_array, lambda A: (A.shape, A.data, A.indices, A.indptr), _sparse_rows),
    "generator": (np.random.RandomState, _generator_parts, _generator),
}


# book/state.ipynb#parameters
def _usable(learner: Any) -> Any:
    """The learner, if its parameters can be used."""
    if hasattr(learner, "_parameter_rules"):
        check_parameters(learner)
    return learner


def _encode_object(value: Any, arrays: dict[str, Any]) -> dict[str, Any]:
    """JSON form of a parameter that is more than a name; its arrays go to `arrays`."""
    kind = type(value)
    if kind is np.ndarray:
        name = f"parameter{len(arrays)}"
        arrays[name] = value
        return {"array": name}
    for tag, (known, parts, _) in _OBJECTS.items():
        if kind is known:
            return {tag: [encode(part, arrays) for part in parts(value)]}
    if _LEARNERS.get(_place(kind)) is kind:
        return {"learner": [_place(kind), encode_parameters(_usable(value), arrays)]}
    raise TypeError(
        f"{reprlib.repr(value)} of type {kind.__name__} cannot be stored: use numbers,"
        f" strings, arrays or one of {', '.join(sorted(_LEARNERS))}; put lml.state.storable"
        " above the class of a learner of yours; or use pickle"
    )


# book/state.ipynb#parameters
def _decode_object(tag: str, content: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    """The parameter of `_encode_object`; its arrays are taken out of `arrays`."""
    if tag == "array":
        expect(content in arrays, "array", content, f"one of {list(arrays)}")
        return arrays.pop(content)
    if tag == "learner":
        name, parameters = content
        known = f"one of {sorted(_LEARNERS)}: import its module, which makes it storable"
        expect(name in _LEARNERS, "learner", name, known)
        return _usable(_LEARNERS[name](**decode_parameters(parameters, arrays)))
    expect(tag in _OBJECTS, "kind of a value", tag, f"one of {list(_OBJECTS)}")
    return _OBJECTS[tag][2](*[decode(part, arrays) for part in content])


# book/state.ipynb#parameters
@contextlib.contextmanager
def _about(part: str) -> Iterator[None]:
    """Let a TypeError within the block begin with the part that it is about."""
    try:
        yield
    except InvalidParameterError:
        raise
    except TypeError as error:
        raise TypeError(f"{part}: {error}") from None


def encode_parameters(estimator: Any, arrays: dict[str, Any]) -> dict[str, Any]:
    """JSON form of all parameters of an estimator.

    Parameters
    ----------
    estimator : estimator
        With ``get_params``.
    arrays : dict
        Takes the arrays among the parameters.

    Returns
    -------
    dict
        For `decode_parameters`.

    Raises
    ------
    TypeError
        If a parameter cannot be stored; the error names it.
    """
    forms = {}
    for name, value in estimator.get_params(deep=False).items():
        with _about(name):
            forms[name] = encode(value, arrays)
    return forms


# book/state.ipynb#parameters
def decode_parameters(forms: Any, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """The parameters, a dict, whose JSON form `encode_parameters` gave."""
    expect(type(forms) is dict, "parameters", forms, "an object")
    return {name: decode(form, arrays) for name, form in forms.items()}


# book/state.ipynb#writing-in-one-atomic-step
@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A new file that takes the place of `path` when the block ends without an error.

    Parameters
    ----------
    path : str or path
        A symbolic link is followed and stays a link. The permissions of an old file are kept,
        and its owner where the process may.

    Yields
    ------
    file
        Open for writing bytes, in the same folder under a hidden name.

    Raises
    ------
    OSError
        If at `path` stands a folder, a device, a pipe, or a file that has another name too.

    Notes
    -----
    Derived in chapter 34 (state), eq. (state-atomic).
    """
    path = Path(os.path.realpath(path))
    old = _replaced(path)
    new = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with open(new, "xb") as file:
            if old is not None:  # before the first byte: what was private stays private
                os.chmod(new, stat.S_IMODE(old.st_mode))
                _give(new, old)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    if os.name == "posix":
        sync_folder(path.parent)


# book/state.ipynb#writing-in-one-atomic-step
def _replaced(path: Path) -> os.stat_result | None:
    """Permissions and owner of the file that is to be replaced; None if there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(f"{path} is a directory: name a file in it")
    if not stat.S_ISREG(found.st_mode):
        raise OSError(f"{path} is a device or a pipe, which a file would replace: use another path")
    if found.st_nlink > 1:
        raise OSError(
            f"{path} has {found.st_nlink} names (hard links), and the others would keep"
            " the old contents: use another path, or remove this name first"
        )
    return found


def _give(new: Path, old: os.stat_result) -> None:
    """Let a file have the owner and the group of another one, where the process may."""
    if os.name == "posix":
        for owner, group in ((-1, old.st_gid), (old.st_uid, -1)):  # -1 leaves it as it is
            with contextlib.suppress(OSError):
                os.chown(new, owner, group)


def sync_folder(folder: Path) -> None:
    """Force the names in a folder to the disk, where the system can."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except PermissionError:  # one may write into a folder that one may not list
        return
    try:
        with contextlib.suppress(OSError):
            os.fsync(handle)
    finally:
        os.close(handle)


# book/state.ipynb#the-format-of-the-file
_FORMAT = "lml state 1"  # another layout gets another number
_DTYPES = ("<f8", "<f4", "<i8", "<i4", "<u4", "|u1", "|b1")


def _storable(name: str, array: Any) -> NDArray[Any]:
    """An array with the bytes in the order of the file; others than finite numbers are refused."""
    array = np.asarray(array)
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    if array.dtype.str not in _DTYPES:
        raise TypeError(f"array {name} has the type {array.dtype}: use one of {_DTYPES}")
    if not np.isfinite(array).all():
        raise ValueError(f"array {name} {array.shape} has NaN or infinite values")
    return array


# book/state.ipynb#the-format-of-the-file
def write_state(
    path: str | os.PathLike[str], kind: str, meta: Any, arrays: Mapping[str, Any]
) -> None:
    """Write a state file, all of it or nothing.

    Parameters
    ----------
    path : str or path
        Is used as it is, without a suffix of our own; what is there is replaced.
    kind : str
        What the state is of, such as the name of a class.
    meta : object
        For `json.dumps`; names and parameters in it come from `encode`.
    arrays : dict
        Names to arrays of numbers, all finite. Arrays keep the order of their axes in memory.

    Raises
    ------
    TypeError, ValueError
        If something cannot be stored. The file is then what it was before.

    Notes
    -----
    Derived in chapter 34 (state), eqs. (state-atomic) and (state-size).
    """
    arrays = {name: _storable(name, array) for name, array in arrays.items()}
    table = {name: [array.dtype.str, array.shape] for name, array in arrays.items()}
    header = {"format": _FORMAT, "kind": kind, "arrays": table, "meta": meta}
    text = json.dumps(header, allow_nan=False).encode("ascii")
    with replacing(path) as file:
        try:
            np.savez(file, header=np.frombuffer(text, np.uint8), **arrays)
        except ValueError as error:  # a ZipFile that is closed half-way hides what stopped it
            raise (error.__context__ or error) from None


# book/state.ipynb#reading-without-trust
@contextlib.contextmanager
def reading(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn every error about the contents of a file into a ValueError that names the file."""
    try:
        yield
    except Exception as error:
        said = str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
        raise ValueError(f"{os.fspath(path)!r} cannot be used as a state: {said}") from error


# book/state.ipynb#reading-without-trust
def _check_sizes(archive: zipfile.ZipFile, n_bytes: int) -> None:
    """Refuse members that are compressed or overlap: their sizes exceed the file's."""
    members = archive.infolist()
    declared = sum(member.file_size for member in members)
    packed = [m.filename for m in members if m.compress_type or m.file_size != m.compress_size]
    expect(declared <= n_bytes, "sum of the members' sizes", declared, f"at most {n_bytes}")
    expect(not packed, "compressed members", packed, "empty")


# book/state.ipynb#reading-without-trust
def _array(archive: zipfile.ZipFile, name: str, entry: Any = None) -> NDArray[Any]:
    """An array of the archive that is as the header's table says; None is for the header."""
    data = archive.read(f"{name}.npy")
    stream = io.BytesIO(data)
    expect(np.lib.format.read_magic(stream) == (1, 0), f"version of {name}.npy", data[:8], "1.0")
    shape, by_columns, dtype = np.lib.format.read_array_header_1_0(stream)
    found = [dtype.str, list(shape)]
    start = stream.tell()
    expect(dtype.str in _DTYPES, f"type of array {name}", dtype.str, f"one of {_DTYPES}")
    expect(found == (entry or ["|u1", list(shape)]), f"array {name}", found, entry)
    held = len(data) - start
    asked = math.prod(shape) * dtype.itemsize
    expect(held == asked, f"bytes of array {name}", held, asked)
    array = np.frombuffer(data, dtype, offset=start)
    expect(np.isfinite(array).all(), f"array {name}", array, "finite")
    array = array.reshape(shape, order="F" if by_columns else "C")
    return array.astype(dtype.newbyteorder("="))  # a copy that owns its numbers


# book/state.ipynb#reading-without-trust
def _header(archive: zipfile.ZipFile, kind: str) -> dict[str, Any]:
    """The header, of the known format and kind, with a table of the other members."""
    names = archive.namelist()
    expect("header.npy" in names, "members", names, "those of `save`: header.npy is missing")
    text = _array(archive, "header").tobytes().decode("ascii")
    header = json.loads(text)
    expect(type(header) is dict, "header", header, "an object")
    found = header.get("format")
    expect(found == _FORMAT, "format", found, f"{_FORMAT!r}, which this release reads")
    expect(header.get("kind") == kind, "kind", header.get("kind"), repr(kind))
    keys = ["arrays", "format", "kind", "meta"]
    expect(sorted(header) == keys, "entries of the header", sorted(header), keys)
    members = sorted(m.filename for m in archive.infolist())
    table = header["arrays"]
    expect(type(table) is dict, "arrays", table, "an object")
    expect(
        members == sorted(f"{name}.npy" for name in ("header", *table)),
        "members",
        members,
        f"the header and {list(table)}",
    )
    return header


# book/state.ipynb#reading-without-trust
def _regular(path: str, flags: int) -> int:
    """Open a file for `open`; a pipe is refused, and not waited for until somebody writes."""
    handle = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    mode = os.fstat(handle).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # `open` itself refuses a folder
        os.close(handle)
        raise OSError(f"{path} is a device or a pipe: give a file that `save` wrote")
    return handle


def read_state(path: str | os.PathLike[str], kind: str) -> tuple[Any, dict[str, NDArray[Any]]]:
    """Read a state file; nothing in it is executed.

    Parameters
    ----------
    path : str or path
    kind : str
        What the state must be of.

    Returns
    -------
    meta : object
        From `json.loads`: what it means is for the caller to check.
    arrays : dict
        Names to arrays with finite numbers.

    Raises
    ------
    OSError
        If there is no such file, it may not be read, or it is a folder, a device or a pipe.
    ValueError
        If it is no state of this kind in the known format, or is damaged. The error names
        the file, the part and the value.

    Notes
    -----
    Derived in chapter 34 (state), eq. (state-bound).
    """
    with open(path, "rb", opener=_regular) as file, reading(path), zipfile.ZipFile(file) as archive:
        _check_sizes(archive, os.fstat(file.fileno()).st_size)
        header = _header(archive, kind)
        table = header["arrays"]
        arrays = {name: _array(archive, name, entry) for name, entry in table.items()}
    return header["meta"], arrays


# book/state.ipynb#a-table-of-fields
#: Largest size of a stored number: its square, and its product with those of samples, are finite.
LARGEST = 1e150
#: Largest size of a number that is measured as samples are, such as a class mean.
LARGEST_MEAN = 1e75
#: Largest number of samples of a class.
LARGEST_COUNT = 2**40
_Parts: TypeAlias = dict[str, list[NDArray[Any]]]


@dataclass(frozen=True)
class _Source:
    """What is left of the arrays of a file, and what the letters in shapes stand for."""

    arrays: dict[str, NDArray[Any]]
    sizes: MutableMapping[str, int]


class Field(ABC):
    """How a part of a state is stored: as JSON, its arrays apart.

    Notes
    -----
    Derived in chapter 34 (state), eq. (state-round-trip).
    """

    @abstractmethod
    def pack(self, value: Any, place: str, arrays: _Parts) -> Any:
        """JSON form of a value; its arrays are appended to `arrays`."""

    @abstractmethod
    def unpack(self, form: Any, place: str, source: _Source) -> Any:
        """The value of a JSON form, or an error that names the place; uses its arrays up."""


@dataclass(frozen=True)
class ValueField(Field):
    """A name, a label, a number, None, or a tuple of these, that its rule allows."""

    rule: Rule | None = None

    def pack(self, value: Any, place: str, arrays: _Parts) -> Any:
        return encode(self._checked(value, place))

    def unpack(self, form: Any, place: str, source: _Source) -> Any:
        return self._checked(decode(form), place)

    def _checked(self, value: Any, place: str) -> Any:
        if self.rule is not None:
            expect(self.rule.allows(value), place, value, self.rule.wanted)
        return value


@dataclass(frozen=True)
class SizeField(ValueField):
    """A whole number of at least 1, which a letter stands for in the shapes that follow."""

    letter: str = "n"

    def unpack(self, form: Any, place: str, source: _Source) -> Any:
        rule = whole(1, np.inf)  # a sparse table may be wider than any parameter is large
        expect(rule.allows(form), place, form, rule.wanted)
        size = source.sizes.setdefault(self.letter, form)
        expect(size == form, place, form, size)
        return form


# book/state.ipynb#a-table-of-fields
@dataclass(frozen=True)
class ArrayField(Field):
    """An array of a dtype and a shape, of numbers up to a size, which its rule allows.

    The shape has a number, a letter, or None for any number, for each axis. The order of the axes
    in memory is kept.
    """

    shape: tuple[int | str | None, ...]
    dtype: type = float
    rule: Rule | None = None
    largest: float = LARGEST

    def pack(self, value: Any, place: str, arrays: _Parts) -> Any:
        array: NDArray[Any] = np.asarray(value, dtype=self.dtype)
        self._check_size(array, place)
        order: Any = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
        arrays.setdefault(_member(place), []).append(array.ravel(order))
        return [order, *array.shape]

    def unpack(self, form: Any, place: str, source: _Source) -> NDArray[Any]:
        fits = type(form) is list and len(form) == 1 + len(self.shape) and form[0] in ("C", "F")
        fits = fits and all(type(n) is int and n >= 0 for n in form[1:])
        expect(fits, f"shape of {place}", form, f"one of {len(self.shape)} axes")
        order, *shape = form
        wanted = list(shape)
        for axis, size in enumerate(self.shape):
            if isinstance(size, str):
                wanted[axis] = source.sizes.setdefault(size, shape[axis])
            elif size is not None:
                wanted[axis] = size
        expect(shape == wanted, f"shape of {place}", shape, wanted)
        # the next numbers of the member that holds all arrays of this field
        member = _member(place)
        expect(member in source.arrays, "array", member, f"one of {list(source.arrays)}")
        left = source.arrays[member]
        n = math.prod(shape)
        expect(left.dtype == self.dtype, f"type of {member}", left.dtype, np.dtype(self.dtype))
        expect(n <= len(left), f"numbers left of {member}", len(left), n)
        source.arrays[member] = left[n:]
        array = left[:n].reshape(shape, order=order).copy(order)  # owns its numbers
        self._check_size(array, place)
        if self.rule is not None:
            expect(self.rule.allows(array), place, array, self.rule.wanted)
        return array

    def _check_size(self, array: NDArray[Any], place: str) -> None:
        size = max(float(array.max(initial=0)), -float(array.min(initial=0)))
        expect(
            size <= self.largest, f"size of numbers in {place}", size, f"at most {self.largest:g}"
        )


# book/state.ipynb#a-table-of-fields
def _member(place: str) -> str:
    """Name of the array for all arrays of a field: the place without the entries of tables."""
    return re.sub(r"\[\d+\]", "", place)


def _are_orthonormal(rows: NDArray[Any]) -> bool:
    with np.errstate(all="ignore"):  # of numbers that are far off
        return bool(np.abs(rows @ rows.T - np.eye(len(rows))).max(initial=0.0) < 1e-6)


#: Rule for an array that must have orthonormal rows.
ORTHONORMAL = Rule(_are_orthonormal, "orthonormal rows")


# book/state.ipynb#a-table-of-fields
@dataclass(frozen=True)
class OptionalField(Field):
    """None, or what another field stores."""

    field: Field

    def pack(self, value: Any, place: str, arrays: _Parts) -> Any:
        return None if value is None else self.field.pack(value, place, arrays)

    def unpack(self, form: Any, place: str, source: _Source) -> Any:
        return None if form is None else self.field.unpack(form, place, source)


@dataclass(frozen=True)
class TableField(Field):
    """A dict of names to values that another field stores, in its order."""

    field: Field

    def pack(self, value: Any, place: str, arrays: _Parts) -> Any:
        entries = []
        for n, (key, part) in enumerate(value.items()):
            with _about(f"{place}[{key!r}]"):
                entries.append([encode(key), self.field.pack(part, f"{place}[{n}]", arrays)])
        return entries

    def unpack(self, form: Any, place: str, source: _Source) -> dict[Any, Any]:
        fits = type(form) is list and all(type(e) is list and len(e) == 2 for e in form)
        expect(fits, place, form, "a list of pairs")
        table: dict[Any, Any] = {}
        for n, (name, part) in enumerate(form):
            key = decode(name)
            expect(key not in table, f"name of {place}[{n}]", key, "a new one")
            table[key] = self.field.unpack(part, f"{place}[{n}]", source)
        return table


# book/state.ipynb#a-table-of-fields
@dataclass(frozen=True)
class RecordField(Field):
    """An object of named parts, each with its field.

    Parameters
    ----------
    make : callable
        The object from its parts, given by name; it may refuse them.
    fields : dict
        Names to fields. Letters in shapes are known to the fields that follow.
    parts : callable, optional
        The parts of an object, a dict; its attributes if left out.
    """

    make: Callable[..., Any]
    fields: Mapping[str, Field]
    parts: Callable[[Any], Mapping[str, Any]] | None = None

    def pack(self, value: Any, place: str, arrays: _Parts) -> Any:
        if self.parts is None:
            given: Mapping[str, Any] = {name: getattr(value, name) for name in self.fields}
        else:
            given = self.parts(value)
        way = f"{place}." if place else ""
        return {
            name: field.pack(given[name], way + name, arrays) for name, field in self.fields.items()
        }

    def unpack(self, form: Any, place: str, source: _Source) -> Any:
        names = list(self.fields)
        fits = type(form) is dict and set(form) == set(names)
        expect(fits, place or "state", form, f"an object with {names}")
        # letters that are new here are of this record only
        own = _Source(source.arrays, ChainMap({}, source.sizes))
        way = f"{place}." if place else ""
        parts = {name: self.fields[name].unpack(form[name], way + name, own) for name in names}
        return self.make(**parts)


# book/state.ipynb#a-table-of-fields
@dataclass(frozen=True)
class MatrixField(Field):
    """Samples: a dense array of floats or a CSR array, of a shape of two letters."""

    rows: str
    columns: str

    def pack(self, value: Any, place: str, arrays: _Parts) -> Any:
        return self._field(sparse.issparse(value)).pack(value, place, arrays)

    def unpack(self, form: Any, place: str, source: _Source) -> Any:
        return self._field(type(form) is dict).unpack(form, place, source)

    def _field(self, is_sparse: bool) -> Field:
        if not is_sparse:
            return ArrayField((self.rows, self.columns), largest=LARGEST_SAMPLE)
        sizes = {"n_rows": SizeField(letter=self.rows), "n_columns": SizeField(letter=self.columns)}
        indices = ArrayField((None,), int)
        return RecordField(
            lambda n_rows, n_columns, **parts: _sparse_rows((n_rows, n_columns), **parts),
            {
                **sizes,
                "data": ArrayField((None,), largest=LARGEST_SAMPLE),
                "columns": indices,
                "starts": indices,
            },
            lambda A: {
                "n_rows": A.shape[0],
                "n_columns": A.shape[1],
                "data": A.data,
                "columns": A.indices,
                "starts": A.indptr,
            },
        )


# book/state.ipynb#a-table-of-fields
def pack(field: Field, value: Any, arrays: dict[str, Any]) -> Any:
    """JSON form of a value, as its field stores it; one array for each field goes to `arrays`."""
    parts: _Parts = {}
    form = field.pack(value, "", parts)
    arrays |= {name: np.concatenate(part) for name, part in parts.items()}
    return form


def unpack(field: Field, form: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    """The value that `pack` took apart, or an error that names what does not fit.

    All of `arrays` belongs to it.
    """
    odd = [name for name, array in arrays.items() if array.ndim != 1]
    expect(not odd, "arrays of several axes", odd, "empty")
    source = _Source(dict(arrays), {})
    value = field.unpack(form, "", source)
    unused = [name for name, left in source.arrays.items() if len(left)]
    expect(not unused, "arrays that nothing uses", unused, "empty")
    return value
