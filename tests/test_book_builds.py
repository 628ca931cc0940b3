"""Books of one chapter, built with the settings of this one: what fails them, and offline."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import execute
import nbformat
import pytest
import yaml
from nbclient.exceptions import CellTimeoutError
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from tangle import ROOT

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


def without_redirects(settings):
    """Let pyproject.toml lead from no old page: the pages that it leads to are not in the book."""
    text = settings.read_text(encoding="utf-8")
    found = re.subn(r"(\[tool\.lml\.redirects\]\n)(?:.+\n)+", r"\1", text)
    assert found[1] == 1
    settings.write_text(found[0], encoding="utf-8")


def small_book(folder, *sources):
    """A book of one chapter, with the settings, the extension and the files of this one."""
    folder.mkdir()
    for name in ("_config.yml", "pyproject.toml", "CITATION.cff"):
        shutil.copy(ROOT / name, folder / name)
    without_redirects(folder / "pyproject.toml")
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


def render(folder, **options):
    """The pages, from the outputs that are there."""
    shutil.rmtree(folder / "_build" / "html", ignore_errors=True)
    shutil.rmtree(folder / "_build" / ".doctrees", ignore_errors=True)
    return run("jupyter-book", "build", ".", "-W", "-n", "--keep-going", folder=folder, **options)


def build(folder, **options):
    """What `make book` does after tangling."""
    recipe = (ROOT / "Makefile").read_text().partition("\nbook: ")[2].partition("\n\n")[0]
    command = ("tools/execute.py", "--into", "_build/executed")
    assert " ".join(command) in recipe
    assert "rm -rf _build/html _build/.doctrees" in recipe
    assert "jupyter-book build . -W -n --keep-going" in recipe
    tools = folder if (folder / "tools").exists() else ROOT
    command = (sys.executable, str(tools / command[0]), *command[1:], "--root", str(folder))
    done = run(*command, folder=folder, **options)
    return done if done.returncode else render(folder, **options)


def test_a_good_cell_builds(tmp_path):
    done = build(small_book(tmp_path / "book", "assert 1 + 1 == 2"))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def test_imports_are_folded_and_icons_have_no_script(tmp_path):
    folder = small_book(tmp_path / "book", "import os\nimport sys", "print(6 * 7)")
    done = build(folder)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    page = (folder / "_build" / "html" / "book" / "toy.html").read_text()
    assert page.count('<details class="lml-fold"><summary>Imports: 2 lines</summary>') == 1
    assert "print.js" in page
    assert "fontawesome.js" not in page
    assert not (folder / "_build" / "html" / "_static" / "scripts" / "fontawesome.js").exists()


def test_cells_are_those_of_their_page_also_where_all_pages_are_one(tmp_path, monkeypatch):
    """The builder singlehtml tells its extensions the name of the first page only."""
    folder = small_book(tmp_path / "book", "#| export\nx = 1", "import os\nimport sys")
    (folder / "book" / "toy.ipynb").rename(folder / "book" / "oasis.ipynb")  # lml has this module
    contents = folder / "_toc.yml"
    contents.write_text(contents.read_text().replace("book/toy", "book/oasis"))
    monkeypatch.setenv("BOOK_OUTPUTS", "committed")
    done = run("jupyter-book", "build", ".", "--builder", "singlehtml", folder=folder)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    page = (folder / "_build" / "singlehtml" / "book" / "index.html").read_text()
    assert re.findall(r"lml/\w+\.py", page) == ["lml/oasis.py"]
    assert page.count('<details class="lml-fold"><summary>Imports: 2 lines</summary>') == 1


def test_a_failing_assertion_fails_the_build_also_the_second_time(tmp_path):
    folder = small_book(tmp_path / "book", "x = 1", "assert 1 == 2")
    for _ in range(2):
        done = build(folder)
        assert done.returncode != 0
        assert "assert 1 == 2" in done.stdout + done.stderr
        assert "book/toy" in done.stdout + done.stderr


def rewrite(folder, *sources):
    """Give the chapter of a small book other code."""
    path = folder / "book" / "toy.ipynb"
    notebook = nbformat.read(path, as_version=4)
    for cell, source in zip(notebook.cells[1:], sources, strict=True):
        cell.source = source
    nbformat.write(notebook, path)


def test_pages_show_what_was_computed_and_the_notebook_is_left_alone(tmp_path):
    folder = small_book(tmp_path / "book", "import os", "print(6 * 7, os.sep)")
    (folder / "lml").mkdir()
    module = folder / "lml" / "a.py"
    module.write_text("x = 1\n")
    before = (folder / "book" / "toy.ipynb").read_bytes()
    first = build(folder)
    assert first.returncode == 0, first.stdout[-3000:] + first.stderr[-3000:]
    assert (folder / "book" / "toy.ipynb").read_bytes() == before
    page = folder / "_build" / "html" / "book" / "toy.html"
    assert "42 /" in page.read_text()
    for change in (
        lambda: rewrite(folder, "import os", "print(6 * 8, os.sep)"),
        lambda: module.write_text("x = 2\n"),
        lambda: shutil.rmtree(folder / "_build" / "executed"),
    ):
        change()
        done = render(folder)
        assert done.returncode != 0
        assert "book/toy: its outputs in _build/executed are missing" in done.stdout + done.stderr
        command = (sys.executable, str(ROOT / "tools" / "execute.py"), "--root", str(folder))
        again = [run(*command, "--into", "_build/executed", folder=folder) for _ in range(2)]
        assert [re.search(r"execute: (\d) chapters", done.stdout)[1] for done in again] == [
            "1",
            "0",
        ]
    assert render(folder).returncode == 0
    assert "48 /" in page.read_text()


WARNS = 'import warnings\n\nwarnings.warn("the cell warns", stacklevel=1)'


def test_a_cell_that_warns_fails_the_build_and_nbval(tmp_path):
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


def test_assertions_of_chapters_cannot_be_left_out(tmp_path, monkeypatch, capsys):
    folder = small_book(tmp_path / "book", "assert 1 > 2")
    monkeypatch.setenv("PYTHONOPTIMIZE", "1")
    with pytest.raises(SystemExit):
        execute.main(["--root", str(folder)])
    assert "PYTHONOPTIMIZE is set" in capsys.readouterr().err


def test_a_slow_cell_has_time_and_there_is_an_end(tmp_path, monkeypatch):
    """Chapters may take 31 s; here a cell of 3 s, and limits of 2 and 60 s."""
    assert execute.CELL_SECONDS > 10 * 31
    folder = small_book(tmp_path / "book", "import time\n\ntime.sleep(3)")
    monkeypatch.setattr(execute, "CELL_SECONDS", 60)
    assert execute.execute(folder / "book" / "toy.ipynb").clock > 3
    monkeypatch.setattr(execute, "CELL_SECONDS", 2)
    with pytest.raises(CellTimeoutError, match="after 2 seconds"):
        execute.execute(folder / "book" / "toy.ipynb")


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_clean_clone_builds_from_another_folder_without_a_network(tmp_path):
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
    without_redirects(clone / "pyproject.toml")
    small = small_book(tmp_path / "small", cell)
    shutil.copy(small / "book" / "toy.ipynb", clone / "book")
    (clone / "book" / "index.md").write_text("# The book\n\nA page.\n")
    done = build(clone, offline=f"{offline}{os.pathsep}{clone}")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    page = (clone / "_build" / "html" / "book" / "toy.html").read_text()
    assert re.search(r"<pre>(<span></span>)?4\s*</pre>", page)
