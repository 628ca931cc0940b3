"""Kinds 24 to 32 of `test_cases`: a figure, a warning, a kernel, a failing cell, a slow cell.

Some are held by the contract of the chapters and by the tangler, whose tests are called here on
the very input of the kind; for the others a book of one chapter is built with the settings of
this one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import execute
import nbformat
import pytest
import tangle
import test_cases
import yaml
from nbclient.exceptions import CellTimeoutError
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from packaging.requirements import Requirement
from tangle import ROOT
from test_chapters import check, figure_cell, good_chapter
from test_tangle import DOC, export, write_book

# ---------------------------------------------------------------- 24, 26, 31: the contract


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("assert ax\nplt.plot(x);", "ends with ';': end figure cells with plt.show()"),
        ("assert ax\nfig", "shows a figure but does not end with plt.show()"),
        ("assert ax\nplt.subplots()", "shows a figure but does not end with plt.show()"),
        ("assert ax\nplt.show();", "ends with ';': end figure cells with plt.show()"),
    ],
)
def test_case_24_a_figure_cell_is_asked_for_plt_show(source, said):
    notebook = good_chapter()
    notebook.cells.append(figure_cell(source))
    assert f"cell {len(notebook.cells) - 1} {said}" in check(notebook)


@pytest.mark.parametrize("name", ["conda-env-py", "python", "Python 3", "", None])
def test_case_26_another_kernel_fails_the_contract(name):
    notebook = good_chapter()
    assert check(notebook) == ""
    notebook.metadata.kernelspec["name"] = name
    assert "the kernel is not python3" in check(notebook)
    del notebook.metadata["kernelspec"]
    assert "the kernel is not python3" in check(notebook)


@pytest.mark.parametrize(
    "text", ["np.float64(0.5)", "np.int64(3)", "np.True_", "[np.uint8(1)]", "np.str_('a')"]
)
def test_case_31_a_numpy_scalar_as_a_last_line_is_refused(text):
    notebook = good_chapter()
    output = new_output("execute_result", data={"text/plain": text}, execution_count=2)
    notebook.cells.append(new_code_cell("assert x\nx", execution_count=2, outputs=[output]))
    assert f"cell {len(notebook.cells) - 1} prints a numpy scalar" in check(notebook)
    output.data["text/plain"] = "0.5"
    assert check(notebook) == ""


# ---------------------------------------------------------------- 30: the tangler


@pytest.fixture
def book(tmp_path, monkeypatch):
    monkeypatch.setattr(tangle, "ROOT", tmp_path)
    return tmp_path


def test_case_30_two_chapters_that_export_one_name_are_both_named(book):
    write_book(book, {"first": [DOC, export("A = 1")], "second": [DOC, export("B = 2\nA = 3")]})
    with pytest.raises(tangle.TangleError) as caught:
        tangle.build(book)
    assert "book/first.ipynb, cell 2" in str(caught.value)
    assert "book/second.ipynb, cell 2" in str(caught.value)


def test_case_30_a_hand_edit_names_the_module_the_chapter_and_both_lines(book, capsys):
    write_book(book, {"first": [DOC, export("def f():\n    return 1")]})
    assert tangle.main([]) == 0
    module = book / "lml" / "first.py"
    module.write_text(module.read_text().replace("return 1", "return 2"))
    capsys.readouterr()
    assert tangle.main(["--check"]) == 1
    said = capsys.readouterr().out
    assert "lml/first.py is not what book/first.ipynb gives" in said
    assert "the file has 'return 2', the chapter gives 'return 1'" in said
    assert "tools/tangle.py --check" in (ROOT / "Makefile").read_text()  # part of `make test`


# ---------------------------------------------------------------- 32: one list of pins


def test_case_32_every_reader_of_pins_reads_the_one_list_below_jupyter_book_2():
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    assert all([s.operator for s in pin.specifier] == ["=="] for pin in pins)
    names = [re.sub("[-_.]+", "-", pin.name).lower() for pin in pins]
    assert len(set(names)) == len(names)
    assert {"jupyter-book": "1"}.items() <= {
        name: str(next(iter(pin.specifier)).version)[0] for name, pin in zip(names, pins)
    }.items()
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    assert environment[-1]["pip"] == ["-r requirements.txt", "-e ."]
    assert [d.split("=")[0].split(">")[0] for d in environment[:-1]] == ["python", "pip"]
    assert "install --quiet -r requirements.txt" in (ROOT / "Makefile").read_text()
    others = [*(ROOT / ".github" / "workflows").glob("*.yml"), ROOT / ".ci" / "run"]
    for path in others:
        assert "jupyter-book==" not in path.read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = dict(zip(names, pins))
    for text in project["dependencies"]:
        bound = Requirement(text)
        assert next(iter(pinned[bound.name].specifier)).version in bound.specifier


# ---------------------------------------------------------------- 25, 27, 28, 29: books to build

OFFLINE = """
import socket

connect = socket.socket.connect


def refuse(*args, **kwargs):
    raise OSError("no network")


def here_only(self, address):
    here = not isinstance(address, tuple) or address[0] in ("127.0.0.1", "::1", "localhost")
    return connect(self, address) if here else refuse()


socket.socket.connect = here_only
socket.getaddrinfo = refuse
"""


def small_book(folder, *sources):
    """A book of one chapter, with the settings, the extension and the files of this one."""
    folder.mkdir()
    for name in ("_config.yml", "pyproject.toml"):
        shutil.copy(ROOT / name, folder / name)
    (folder / "book").mkdir()
    for name in ("_ext", "_static", "_extra"):
        shutil.copytree(ROOT / "book" / name, folder / "book" / name)
    shutil.copy(ROOT / "book" / "references.bib", folder / "book")
    cells = [new_markdown_cell("# A chapter"), *map(new_code_cell, sources)]
    notebook = new_notebook(cells=cells)
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "x", "language": "python"}
    nbformat.write(notebook, folder / "book" / "toy.ipynb")
    (folder / "book" / "index.md").write_text("# The book\n\nA page.\n")
    (folder / "_toc.yml").write_text(
        yaml.safe_dump(
            {
                "format": "jb-book",
                "root": "book/index",
                "parts": [{"caption": "One", "chapters": [{"file": "book/toy"}]}],
            }
        )
    )
    return folder


def run(*command, folder, offline=None):
    """Run a command with this interpreter's programs first on the path."""
    environment = dict(os.environ, JUPYTER_PREFER_ENV_PATH="1")
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    if offline is not None:
        environment["PYTHONPATH"] = str(offline)
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=590,
    )


def build(folder, **options):
    """What `make book` does after tangling."""
    recipe = (ROOT / "Makefile").read_text().partition("\nbook: ")[2].partition("\n\n")[0]
    assert "jupyter-book build . -W -n --keep-going" in recipe
    assert "rm -rf _build" in recipe
    shutil.rmtree(folder / "_build", ignore_errors=True)
    return run("jupyter-book", "build", ".", "-W", "-n", "--keep-going", folder=folder, **options)


def test_case_27_a_failing_assertion_fails_the_build_also_the_second_time(tmp_path):
    folder = small_book(tmp_path / "book", "x = 1", "assert 1 == 2")
    for _ in range(2):
        done = build(folder)
        assert done.returncode != 0
        assert "assert 1 == 2" in done.stdout + done.stderr
        assert "book/toy" in done.stdout + done.stderr


WARNS = 'import warnings\n\nwarnings.warn("the cell of case 25", stacklevel=1)'


def test_case_25_a_cell_that_warns_fails_build_nbval_and_contract(tmp_path):
    folder = small_book(tmp_path / "book", "x = 1", WARNS)
    done = build(folder)
    assert done.returncode != 0
    assert re.search(r"book/toy.*stderr was found in the cell outputs", done.stdout + done.stderr)

    path = folder / "book" / "toy.ipynb"
    notebook = nbformat.read(path, as_version=4)
    cell = notebook.cells[2]
    cell.metadata["tags"] = ["nbval-check-output"]
    notebook.cells[1].execution_count, cell.execution_count = 1, 2
    cell.outputs = [new_output("stream", name="stdout", text="quiet\n")]
    nbformat.write(notebook, path)
    command = ("-m", "pytest", "-p", "no:cacheprovider", "--nbval-lax", "--nbval-current-env")
    done = run(sys.executable, *command, str(path), folder=folder)
    assert done.returncode == 1
    assert re.search(r"FAILED .*toy\.ipynb::Cell 1", done.stdout)

    cell.outputs = [new_output("stream", name="stderr", text="UserWarning: the cell of case 25\n")]
    assert "cell 2 stores an error or a warning" in check(notebook)


def test_case_28_a_slow_cell_has_time_and_there_is_an_end(tmp_path, monkeypatch):
    """31 s are more than the 30 s of jupyter-book; here a cell of 3 s, and limits of 2 and 60 s."""
    limit = yaml.safe_load((ROOT / "_config.yml").read_text())["execute"]["timeout"]
    assert min(limit, execute.CELL_SECONDS) > 10 * 31
    folder = small_book(tmp_path / "book", "import time\n\ntime.sleep(3)")
    monkeypatch.setattr(execute, "CELL_SECONDS", 60)
    assert execute.execute(folder / "book" / "toy.ipynb") > 3
    monkeypatch.setattr(execute, "CELL_SECONDS", 2)
    with pytest.raises(CellTimeoutError, match="after 2 seconds"):
        execute.execute(folder / "book" / "toy.ipynb")


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_case_29_a_clean_clone_builds_from_another_folder_without_a_network(tmp_path):
    """The clone's own tangler and settings, and one of its chapters, with every socket refused."""
    clone = tmp_path / "another folder" / "clone"
    done = run("git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(clone), folder=tmp_path)
    if done.returncode:
        pytest.skip(f"this tree cannot be cloned: {done.stderr}")
    offline = tmp_path / "offline"
    offline.mkdir()
    (offline / "sitecustomize.py").write_text(OFFLINE)
    probe = "import urllib.request as u\nu.urlopen('https://example.org', timeout=5)"
    assert "no network" in run(sys.executable, "-c", probe, folder=clone, offline=offline).stderr

    done = run(
        sys.executable, "tools/tangle.py", "--check", folder=clone, offline=f"{offline}:{clone}"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    contents = yaml.safe_load((clone / "_toc.yml").read_text())
    contents["parts"] = [{"caption": "One", "chapters": [{"file": "book/toy"}]}]
    (clone / "_toc.yml").write_text(yaml.safe_dump(contents))
    cell = textwrap.dedent(
        f"""
        import lml
        from lml.datasets import load_digits_tasks

        assert lml.__file__.startswith({str(clone)!r}), lml.__file__
        print(len(load_digits_tasks(random_state=0)))
        """
    ).strip()
    small = small_book(tmp_path / "small", cell)
    shutil.copy(small / "book" / "toy.ipynb", clone / "book")
    (clone / "book" / "index.md").write_text("# The book\n\nA page.\n")
    done = build(clone, offline=f"{offline}{os.pathsep}{clone}")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    page = (clone / "_build" / "html" / "book" / "toy.html").read_text()
    assert re.search(r"<pre>(<span></span>)?4\s*</pre>", page)


def test_every_kind_has_a_test():
    names = [*vars(test_cases), *globals()]
    numbers = {int(name[10:12]) for name in names if re.match(r"test_case_\d\d_\w", name)}
    assert numbers == set(range(1, 33))
