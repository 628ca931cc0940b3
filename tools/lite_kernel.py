"""Gather the kernel of the app in a folder, for a trial that reaches no other host than registries.

Usage: ``python tools/lite_kernel.py --python .venv-lite/bin/python FOLDER``. Python for the browser
is npm's package ``pyodide``; what its kernel is written in comes as wheels by pip. The lock file of
the folder gets the wheels' own checksums. numpy and other compiled libraries are in no registry
for a browser, so they are not in the folder, and the trial ends before it needs them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

KERNEL = ("micropip", "ipython", "jedi")  # and what they need
VERSION = "from jupyterlite_pyodide_kernel.constants import PYODIDE_VERSION; print(PYODIDE_VERSION)"


def needed(packages: dict[str, dict], names: tuple[str, ...]) -> list[str]:
    """Packages of a lock file with all that they depend on."""
    waiting, found = list(names), []
    while waiting:
        name = waiting.pop().replace("_", "-")
        if name not in found:
            found.append(name)
            waiting += packages[name]["depends"]
    return sorted(found)


def gather(folder: Path, version: str) -> int:
    """Fill the folder; the number of wheels."""
    with tempfile.TemporaryDirectory() as work:
        command = ["npm", "install", "--silent", "--ignore-scripts", "--prefix", work]
        subprocess.run([*command, f"pyodide@{version}"], check=True)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(Path(work, "node_modules", "pyodide"), folder)
    path = folder / "pyodide-lock.json"
    lock = json.loads(path.read_text(encoding="utf-8"))
    names = needed(lock["packages"], KERNEL)
    for name in names:
        entry = lock["packages"][name]
        known = {*folder.glob("*.whl")}
        command = ["download", "--quiet", "--no-deps", "--only-binary=:all:", "--platform=any"]
        what = [f"--dest={folder}", "--python-version=3.14", f"{name}=={entry['version']}"]
        subprocess.run([sys.executable, "-m", "pip", *command, *what], check=True)
        (wheel,) = {*folder.glob("*.whl")} - known
        entry["file_name"] = wheel.name
        entry["sha256"] = hashlib.sha256(wheel.read_bytes()).hexdigest()
    path.write_text(json.dumps(lock), encoding="utf-8")
    return len(names)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", required=True, help="the one that has the kernel's package")
    parser.add_argument("folder", type=Path)
    options = parser.parse_args(argv)
    asked = [options.python, "-c", VERSION]
    version = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    count = gather(options.folder, version)
    print(f"lite: Python for the browser {version} and {count} wheels in {options.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
