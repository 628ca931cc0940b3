"""What a save and the files of results do to a disk: special files, permissions, power cuts."""

import contextlib
import os
import socket
import stat
import threading
from dataclasses import dataclass

import numpy as np
import pytest
from lifelong_streams import make_task
from power_loss import Disk

from lml.lifelong import LifelongMetricLearner
from lml.oasis import OASIS
from lml.state import read_state, replacing, sync_folder, write_state
from lml.studies.results import append_rows, open_results, read_rows

ARRAYS = {"codes": np.arange(24.0).reshape(3, 8)}
KEEP = (0.0, 0.1, 0.5, 0.9, 1.0)  # share of what was not synced that a cut leaves


@pytest.fixture
def path(tmp_path):
    write_state(tmp_path / "s", "toy", "old", ARRAYS)
    return tmp_path / "s"


def test_a_folder_is_synced_where_the_system_can(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(os, "fsync", lambda handle: seen.append(os.fstat(handle).st_ino))
    sync_folder(tmp_path)
    assert seen == [tmp_path.stat().st_ino]
    monkeypatch.setattr(os, "fsync", lambda handle: 1 / 0 if handle < 0 else os.stat("/nowhere"))
    sync_folder(tmp_path)  # a file system that cannot


# --- files that are not plain, permissions ------------------------------------------------


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444, 0o666])
def test_a_file_keeps_its_permissions_from_its_first_byte_on(path, mode):
    path.chmod(mode)
    with replacing(path) as file:
        assert os.fstat(file.fileno()).st_mode & 0o777 == mode
        file.write(b"new")
    assert path.stat().st_mode & 0o777 == mode
    assert path.read_bytes() == b"new"


def special(path, kind):
    """Put there what is no file of one name."""
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(os.path.relpath(path))
    elif kind == "hard link":
        (path.parent / "first").write_bytes(b"old")
        os.link(path.parent / "first", path)
    else:
        try:
            os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
        except PermissionError:
            pytest.skip("devices are made by root")


@pytest.mark.skipif(os.name != "posix", reason="files of POSIX")
@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("kind", ["pipe", "socket", "device", "hard link"])
def test_what_is_no_file_of_one_name_is_refused_and_stays(tmp_path, monkeypatch, kind, linked):
    monkeypatch.chdir(tmp_path)  # the name of a socket is short
    special(tmp_path / "s", kind)
    if linked:
        (tmp_path / "link").symlink_to("s")
    before = sorted(tmp_path.iterdir()), (tmp_path / "s").stat()
    said = r"s has 2 names \(hard links\)" if kind == "hard link" else "s is a device or a pipe"
    with pytest.raises(OSError, match=said):
        write_state(tmp_path / ("link" if linked else "s"), "toy", "new", {})
    assert (sorted(tmp_path.iterdir()), (tmp_path / "s").stat()) == before


@pytest.mark.skipif(os.name != "posix", reason="files of POSIX")
@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("kind", ["pipe", "socket", "device"])
def test_what_is_no_file_is_not_read_and_not_waited_for(tmp_path, monkeypatch, kind, linked):
    monkeypatch.chdir(tmp_path)
    special(tmp_path / "s", kind)
    path = tmp_path / ("link" if linked else "s")
    if linked:
        path.symlink_to("s")

    def write_nothing():
        """End the wait of a reader, which would last for ever."""
        with contextlib.suppress(OSError):  # nobody waits
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))

    late = threading.Timer(5, write_nothing)
    late.start()
    try:
        said = "No such device" if kind == "socket" else "is a device or a pipe: give a file"
        for read in (lambda: read_state(path, "toy"), lambda: LifelongMetricLearner.load(path)):
            with pytest.raises(OSError, match=said):
                read()
        assert late.is_alive()  # at once
    finally:
        late.cancel()


def test_a_link_to_a_file_is_followed_when_it_is_read(path, tmp_path):
    (tmp_path / "link").symlink_to(path)
    assert read_state(tmp_path / "link", "toy")[0] == "old"
    with pytest.raises(OSError, match=r"directory|denied"):
        read_state(tmp_path, "toy")


def test_a_folder_that_may_not_be_listed_gets_its_file_and_is_not_synced(path, monkeypatch):
    real, asked = os.open, []

    def of_mode_0300(place, *given, **options):
        if str(place) == str(path.parent):
            asked.append(place)
            raise error("the folder")
        return real(place, *given, **options)

    monkeypatch.setattr(os, "open", of_mode_0300)
    error = PermissionError
    write_state(path, "toy", "new", {})
    assert len(asked) == 1
    assert read_state(path, "toy")[0] == "new"
    error = FileNotFoundError
    with pytest.raises(FileNotFoundError, match="the folder"):
        write_state(path, "toy", "newer", {})


@pytest.mark.skipif(os.name != "posix", reason="owners of POSIX")
@pytest.mark.parametrize("may", [True, False])
def test_the_owner_of_a_file_stays_where_the_process_may_give_it_away(path, monkeypatch, may):
    given, found = [], path.stat()

    def chown(place, owner, group):
        assert os.stat(place).st_size == 0  # before the first byte
        given.append((place.suffix, owner, group))
        if not may:
            raise PermissionError(place)

    monkeypatch.setattr(os, "chown", chown)
    write_state(path, "toy", "new", {})
    assert given == [(".tmp", -1, found.st_gid), (".tmp", found.st_uid, -1)]
    assert read_state(path, "toy")[0] == "new"
    write_state(path.with_name("first"), "toy", "new", {})  # replaces none
    assert len(given) == 2


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="root gives files away")
def test_root_leaves_the_owner_and_the_permissions(path):
    os.chown(path, 12345, 23456)
    path.chmod(0o640)
    write_state(path, "toy", "new", {})
    found = path.stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o7777) == (12345, 23456, 0o640)


def test_a_link_to_nothing_yet_gets_its_file_and_a_circle_is_refused(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "s")
    write_state(tmp_path / "link", "toy", "new", {})
    assert (tmp_path / "link").is_symlink()
    assert read_state(tmp_path / "s", "toy")[0] == "new"
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    with pytest.raises(OSError, match="symbolic"):
        write_state(tmp_path / "circle", "toy", "new", {})
    assert (tmp_path / "circle").is_symlink()


# --- power cuts ---------------------------------------------------------------------------


def cuts(disk, rng, n_times):
    """What may be left: after each event, with all, some or nothing of what was not synced."""
    for n in range(len(disk.log) + 1):
        for keep in KEEP:
            for _ in range(1 if keep in (0, 1) else n_times):
                yield n, disk.after_cut(n, keep, rng)


def lay(folder, files):
    """A new folder with these files."""
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def saves(path, monkeypatch, name="s"):
    """The disk on which a state is saved over another one."""
    disk = Disk(path.parent)
    with monkeypatch.context() as patch:
        disk.record(patch)
        write_state(path, "toy", "new", {"codes": -ARRAYS["codes"]})
    return disk


def test_after_any_cut_the_old_or_the_new_state_loads(path, tmp_path, monkeypatch):
    disk, rng, found = saves(path, monkeypatch), np.random.default_rng(0), []
    for n, files in cuts(disk, rng, 20):
        meta, arrays = read_state(lay(tmp_path / "cut", files) / "s", "toy")
        sign = {"old": 1, "new": -1}[meta]
        np.testing.assert_array_equal(arrays["codes"], sign * ARRAYS["codes"])
        found.append((n, meta))
    assert {meta for n, meta in found if n == len(disk.log)} == {"new"}  # `save` has returned
    assert {meta for _, meta in found} == {"old", "new"}
    assert len(found) > 500


def test_after_any_cut_of_a_first_save_there_is_no_file_or_a_whole_one(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    disk, rng = saves(tmp_path / "a" / "s", monkeypatch), np.random.default_rng(0)
    for n, files in cuts(disk, rng, 10):
        if "s" in files:
            assert read_state(lay(tmp_path / "cut", files) / "s", "toy")[0] == "new"
        else:
            assert n < len(disk.log)


def test_without_a_sync_of_the_file_a_cut_tears_the_state(path, tmp_path, monkeypatch):
    """The layer finds what it is for."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    disk, rng, torn = Disk(path.parent), np.random.default_rng(0), 0
    with monkeypatch.context() as patch:
        disk.record(patch)
        patch.setattr(os, "fsync", lambda handle: None)
        write_state(path, "toy", "new", ARRAYS)
    for _, files in cuts(disk, rng, 20):
        try:
            read_state(lay(tmp_path / "cut", files) / "s", "toy")
        except ValueError:
            torn += 1
    assert torn > 5


def test_after_any_cut_a_learner_has_learned_what_was_saved(tmp_path, monkeypatch):
    folder = tmp_path / "a"
    folder.mkdir()
    learner = LifelongMetricLearner(OASIS(n_steps=10), n_components=2, random_state=0)
    learner.partial_fit(*make_task(0), task="a").save(folder / "s")
    disk, rng = Disk(folder), np.random.default_rng(0)
    with monkeypatch.context() as patch:
        disk.record(patch)
        learner.partial_fit(*make_task(1), task="b").save(folder / "s")
    found = [
        list(LifelongMetricLearner.load(lay(tmp_path / "cut", files) / "s").tasks_)
        for _, files in cuts(disk, rng, 2)
    ]
    assert ["a"] in found
    assert found[-1] == ["a", "b"]
    assert all(tasks in (["a"], ["a", "b"]) for tasks in found)


@dataclass
class Row:
    """A row of a file of two rows a job."""

    split: int
    task: str
    error: float = 0.5
    versions: str = "v 1"


def test_after_any_cut_results_have_whole_jobs_and_a_run_goes_on(tmp_path, monkeypatch):
    folder, rng = tmp_path / "a", np.random.default_rng(0)
    folder.mkdir()
    path, disk = folder / "r.csv", Disk(folder)
    jobs = [[vars(Row(split, task, versions=f"v {split}")) for task in "ab"] for split in range(3)]
    rows = [{name: str(value) for name, value in row.items()} for job in jobs for row in job]
    ends = []  # events until a job was written
    with monkeypatch.context() as patch:
        disk.record(patch)
        open_results(path, Row)
        for job in jobs:
            append_rows(path, job)
            ends.append(len(disk.log))
    n_cuts = 0
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # faster
    for n, files in cuts(disk, rng, 10):
        left = lay(tmp_path / "cut", files) / "r.csv"
        n_done = sum(end <= n for end in ends)
        assert read_rows(left) in (rows[: 2 * n_done], rows[: 2 * (n_done + 1)])
        open_results(left, Row)
        kept = len(read_rows(left)) // 2
        for job in jobs[kept:]:
            append_rows(left, job)
        assert read_rows(left) == rows
        n_cuts += 1
    assert n_cuts > 300


def test_after_any_cut_of_a_repair_the_finished_rows_are_there(tmp_path, monkeypatch):
    folder, rng = tmp_path / "a", np.random.default_rng(0)
    folder.mkdir()
    path = folder / "r.csv"
    open_results(path, Row)
    append_rows(path, [vars(Row(0, "a")), vars(Row(0, "b"))])
    rows = read_rows(path)
    path.write_bytes(path.read_bytes() + b"1,a,0.")
    disk = Disk(folder)
    with monkeypatch.context() as patch:
        disk.record(patch)
        open_results(path, Row)
    for _, files in cuts(disk, rng, 10):
        assert read_rows(lay(tmp_path / "cut", files) / "r.csv") == rows
