"""Put an app beside the built book that runs its chapters in a reader's browser.

Usage: ``python tools/lite.py --jupyter PATH --wheels FOLDER [--site _build/html]``, after the pages
were rendered with ``BOOK_LITE=1``; `make lite` does it all. The app, a JupyterLite, goes to
``lite/`` of the site. It holds the wheel of lml, and copies of the chapters that a browser can run
(the rule is in book/_ext/lml_lite.py), whose first cells define the TeX macros and install lml.
Python and the libraries are not in it: the reader's browser fetches them. With ``--pyodide FOLDER``
they are taken from a folder instead, which a trial without a network needs.
"""

from __future__ import annotations

import argparse
import copy
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from tangle import ROOT, toc_files

sys.path.insert(0, str(ROOT / "book" / "_ext"))

from lml_folds import EXPORT
from lml_lite import BESIDE, HOST, LIBRARIES, runnable

DISTRIBUTION = "lifelong-metric-learning"
SETTINGS = {
    "jupyter-lite-schema-version": 0,
    "jupyter-config-data": {
        "appName": "Lifelong Metric Learning",
        # the name lml is another package's on PyPI: what the app does not hold is not looked for
        "litePluginSettings": {
            "@jupyterlite/pyodide-kernel-extension:kernel": {"disablePyPIFallback": True}
        },
    },
}
WELCOME = """This is a copy of a chapter of the book. Run the cell below first: it fetches
{libraries} from {host} and installs this package. Links, boxes and numbers of equations are in the
book.

{macros}"""
INSTALL = """import piplite

try:
    await piplite.install({libraries})
except Exception as error:
    raise OSError("the libraries could not be fetched from {host}: is it blocked?") from error
await piplite.install({distribution!r}, deps=False)"""
ROLE = re.compile(r"\{[\w:]+\}`([^`<]*?)\s*(?:<[^`>]*>)?`")
REFERENCES = re.compile(r"^(`{3,}|:{3,})\{bibliography\}.*?^\1$", re.M | re.S)
FENCE = re.compile(r"^:{3,}[ \t]*(?:\{[\w:-]+\}[ \t]*(.*?))?[ \t]*\n((?::[\w-]+:.*\n)*)", re.M)
LABEL = re.compile(r"(?<=\$\$)[ \t]*\([\w:-]+\)[ \t]*$|^\([\w:-]+\)=\n", re.M)


def tex_macros(settings: dict[str, Any]) -> str:
    """The book's TeX macros as a formula that defines them."""
    macros = settings["sphinx"]["config"]["mathjax3_config"]["tex"]["macros"]
    said = []
    for name, meaning in macros.items():
        text, count = meaning if isinstance(meaning, list) else (meaning, 0)
        said.append(rf"\newcommand{{\{name}}}{f'[{count}]' if count else ''}{{{text}}}")
    return f"${''.join(said)}$"


def plain_markdown(text: str) -> str:
    """Text of the book without the directives and roles that only the book knows."""

    def title(fence: re.Match[str]) -> str:
        return f"**{fence[1]}**\n\n" if fence[1] else "\n"

    text = FENCE.sub(title, REFERENCES.sub("", f"{text}\n"))
    return ROLE.sub(r"\1", LABEL.sub("", text)).rstrip("\n")


def app_copy(notebook: dict[str, Any], macros: str) -> dict[str, Any]:
    """A chapter for the app: nothing is run yet, and the first cells prepare the kernel."""
    notebook = copy.deepcopy(notebook)
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
            first, _, rest = text.partition("\n")
            cell["source"] = rest if EXPORT.fullmatch(first.strip()) else text
        else:
            cell["source"] = plain_markdown(text)
    libraries = f"{', '.join(LIBRARIES[:-1])} and {LIBRARIES[-1]}"
    welcome = WELCOME.format(libraries=libraries, host=HOST, macros=macros)
    install = INSTALL.format(libraries=list(LIBRARIES), host=HOST, distribution=DISTRIBUTION)
    start: list[dict[str, Any]] = [
        {"cell_type": "markdown", "id": "welcome", "metadata": {}, "source": welcome},
        {"cell_type": "code", "id": "install", "metadata": {}, "source": install}
        | {"outputs": [], "execution_count": None},
    ]
    notebook["cells"] = start + notebook["cells"]
    notebook["metadata"]["kernelspec"] = {
        "display_name": "Python (Pyodide)",
        "language": "python",
        "name": "python",
    }
    return notebook


def write_copies(folder: Path, root: Path = ROOT) -> list[str]:
    """Write the chapters that a browser can run, and what they import from their folder."""
    macros = tex_macros(yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8")))
    pages = runnable(root, [file for file, _ in toc_files(root)])
    for page in pages:
        notebook = json.loads((root / f"{page}.ipynb").read_text(encoding="utf-8"))
        path = folder / f"{page.removeprefix('book/')}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        made = json.dumps(app_copy(notebook, macros), ensure_ascii=False)
        path.write_text(made, encoding="utf-8")
        shutil.copy(root / "book" / "matplotlibrc", path.parent)
    for module in BESIDE:
        shutil.copy(root / "book" / f"{module}.py", folder)
    return pages


def missing(app: Path, pages: list[str], wheels: list[str]) -> list[str]:
    """Files that the app needs and lacks: its page, its chapters, and what the kernel installs."""
    needed = [
        "notebooks/index.html",
        "api/contents/all.json",
        "pypi/all.json",
        "files/matplotlibrc",
    ]
    needed += [f"files/{page.removeprefix('book/')}.ipynb" for page in pages]
    needed += [f"files/{module}.py" for module in BESIDE]
    needed += [f"pypi/{Path(wheel).name}" for wheel in wheels]
    return [name for name in needed if not (app / name).is_file()]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jupyter", type=Path, required=True, help="of requirements/lite.txt")
    parser.add_argument("--wheels", type=Path, required=True, help="folder with the wheel of lml")
    parser.add_argument("--site", type=Path, default=ROOT / "_build" / "html")
    parser.add_argument("--pyodide", type=Path, help="folder with Python and the libraries")
    options = parser.parse_args(argv)
    site = options.site.resolve()
    told = site / "book" / "notation.html"
    if not told.exists() or "lml-lite" not in told.read_text(encoding="utf-8"):
        sys.exit(f"lite: no pages in {site} that were rendered with BOOK_LITE=1: run `make lite`")
    work = site.parent / "lite"
    shutil.rmtree(work, ignore_errors=True)
    shutil.rmtree(site / "lite", ignore_errors=True)
    pages = write_copies(work / "copies")
    (work / "jupyter-lite.json").write_text(json.dumps(SETTINGS), encoding="utf-8")
    build = {
        "apps": ["notebooks"],
        "contents": ["copies"],
        "no_sourcemaps": True,
        "no_unused_shared_packages": True,
        "output_dir": str(site / "lite"),
    }
    wheels = [str(path.resolve()) for path in sorted(options.wheels.glob("*.whl"))]
    if not any(Path(wheel).name.startswith(DISTRIBUTION.replace("-", "_")) for wheel in wheels):
        sys.exit(f"lite: no wheel of {DISTRIBUTION} in {options.wheels}")
    config = {"LiteBuildConfig": build, "PipliteAddon": {"piplite_urls": wheels}}
    (work / "jupyter_lite_config.json").write_text(json.dumps(config), encoding="utf-8")
    if options.pyodide:
        shutil.copytree(options.pyodide, work / "static" / "pyodide")
    command = [str(options.jupyter.absolute()), "lite", "build"]
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"lite: {done.stdout}\n{done.stderr}")
    if lacks := missing(site / "lite", pages, wheels):
        sys.exit(f"lite: the app was built without {', '.join(lacks)}")
    files = [path for path in (site / "lite").rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files) / 1e6
    print(f"lite: {len(pages)} chapters run in a browser: {', '.join(pages)}")
    print(f"lite: {len(files)} files, {size:.0f} MB in {site / 'lite'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
