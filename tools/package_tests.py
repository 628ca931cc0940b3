"""Run the package's tests in an environment of its own, on any system and without make.

Usage: ``python tools/package_tests.py [arguments of pytest]``. The environment is made in
``.venv-package`` from the lock file. The tests of the book and of its tools stay out, as in
`make test-seeds`: the book is built on Linux.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / ".venv-package"


def left_out() -> list[str]:
    """The test modules that are not the package's own, as the Makefile lists them."""
    recipes = (ROOT / "Makefile").read_text(encoding="utf-8")
    (names,) = re.findall(r"^BOOK_TESTS := (.*)$", recipes, re.M)
    return [f"--ignore=tests/test_{name}.py" for name in names.split()]


def main(argv: list[str]) -> int:
    venv.create(PLACE, clear=True, with_pip=True)
    python = PLACE / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    install = [python, "-m", "pip", "install", "--quiet"]
    subprocess.run(
        [*install, "--require-hashes", "-r", "requirements/newest.lock"], cwd=ROOT, check=True
    )
    own = ["--no-deps", "--no-build-isolation", "--editable", "."]
    subprocess.run([*install, *own], cwd=ROOT, check=True)
    chosen = ["-m", "not studies and not builds", *left_out(), *argv]
    return subprocess.run(
        [python, "-m", "pytest", "-n", "auto", *chosen, "tests"], cwd=ROOT
    ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
