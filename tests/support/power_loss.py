"""A folder whose writes are recorded, and what a power cut may leave of it.

While a `Disk` records, files in its folder are opened through it. `after_cut` gives the folder
after the first n events: what was synced by then is there; of all else every block of a file and
every change of a name is there or not, in any mixture. A block that is lost reads as zeros.
"""

from __future__ import annotations

import builtins
import io
import os
import stat
from pathlib import Path

BLOCK = 16  # bytes that a disk writes at once: few, for many mixtures


class _Recorded(io.FileIO):
    """A file whose writes are noted with their place."""

    def __init__(self, path, mode, log):
        super().__init__(path, mode)
        self.log = log

    def write(self, data):
        found = os.fstat(self.fileno())
        place = found.st_size if self.mode.startswith("a") else self.tell()
        self.log.append(("write", found.st_ino, place, bytes(data)))
        return super().write(data)


class Disk:
    """Records what happens in a folder; `log` has the events."""

    def __init__(self, folder: Path):
        self.folder, self.log = folder.resolve(), []
        self.names = {path.name: path.stat().st_ino for path in folder.iterdir()}
        self.contents = {path.stat().st_ino: path.read_bytes() for path in folder.iterdir()}

    def record(self, patch) -> None:
        """Note from now on what is written; `patch` is pytest's monkeypatch."""
        opened, sync, replace, unlink = builtins.open, os.fsync, os.replace, os.unlink

        def open_(path, mode="r", *given, **options):
            inside = not isinstance(path, int) and Path(path).resolve().parent == self.folder
            if "r" in mode or not inside:
                return opened(path, mode, *given, **options)
            assert "w" not in mode, "a file is emptied in its place"
            is_new = not Path(path).exists()
            file = _Recorded(path, mode.replace("b", ""), self.log)
            if is_new:
                self.log.append(("name", Path(path).name, os.fstat(file.fileno()).st_ino))
            buffered = io.BufferedWriter(file)
            if "b" in mode:
                return buffered
            return io.TextIOWrapper(buffered, **options)

        def fsync(handle):
            found = os.fstat(handle)
            self.log.append(("names",) if stat.S_ISDIR(found.st_mode) else ("sync", found.st_ino))
            sync(handle)

        def replace_(old, new):
            self.log.append(("name", Path(new).name, os.stat(old).st_ino, Path(old).name))
            replace(old, new)

        def unlink_(path, **options):
            self.log.append(("name", Path(path).name, None))
            unlink(path, **options)

        for owner, name, call in (
            *((module, "open", open_) for module in (builtins, io)),
            *((os, "fsync", fsync), (os, "replace", replace_), (os, "unlink", unlink_)),
        ):
            patch.setattr(owner, name, call)

    def after_cut(self, n: int, keep: float, rng) -> dict[str, bytes]:
        """Names to contents after n events; what is not synced is kept with this probability."""
        events = self.log[:n]
        synced = {event[1]: i for i, event in enumerate(events) if event[0] == "sync"}
        named = max((i for i, event in enumerate(events) if event[0] == "names"), default=-1)
        names = dict(self.names)
        contents = {inode: bytearray(data) for inode, data in self.contents.items()}
        for i, (what, *about) in enumerate(events):
            if what == "write":
                inode, place, data = about
                file = contents.setdefault(inode, bytearray())
                for start in range(0, len(data), BLOCK):
                    block, at = data[start : start + BLOCK], place + start
                    kept = i < synced.get(inode, -1) or rng.random() < keep
                    if kept or rng.random() < 0.5:  # else not even its place is known
                        file.extend(bytes(max(at + len(block) - len(file), 0)))
                    if kept:
                        file[at : at + len(block)] = block
            elif what == "name" and (i < named or rng.random() < keep):
                name, inode, *old = about
                names[name] = inode
                for gone in old:
                    names.pop(gone, None)
        return {name: bytes(contents.get(i, b"")) for name, i in names.items() if i is not None}
