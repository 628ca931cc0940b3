"""Change the package in one place at a time and see whether its tests notice.

Usage: ``python tools/mutants.py [MODULE ...] [--minutes 30] [--seed 0]``. Signs, operators,
comparisons, numbers, bounds of slices and minima are changed, in an order that the seed draws, each
in a copy of the package in a temporary folder; then the tests of the module run there, at most
three times as long as they need for the code as it is. It prints what no test noticed, and adds a
line for each module to tests/mutants.csv. What cannot be noticed is listed with a reason in
tests/mutations.toml and is not counted.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COPIED, LINKED = ("lml", "tests", "tools", "pyproject.toml"), ("book", "results")
LIST = tomllib.loads((ROOT / "tests" / "mutations.toml").read_text(encoding="utf-8"))
SWAPS = {
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult},
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt},
    **{ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.And: ast.Or, ast.Or: ast.And},
}
NAMES = {"minimum": "maximum", "maximum": "minimum", "min": "max", "max": "min", "any": "all"}
NAMES |= {"all": "any", "argmin": "argmax", "argmax": "argmin"}
SILENT = (ast.Raise, ast.Import, ast.ImportFrom, ast.JoinedStr)


def workspace(folder: Path) -> Path:
    """A copy of the package and its tests that may be changed."""
    for name in COPIED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
        copy(ROOT / name, folder / name)
    for name in LINKED:
        (folder / name).symlink_to(ROOT / name)
    return folder


def run_tests(folder: Path, tests: list[str], seconds: float | None) -> int:
    """Exit status of pytest in a workspace: 0 all pass, 1 one fails; -9 if it was too slow."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(
        command, cwd=folder, env=environment, start_new_session=True, **quiet
    ) as process:
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)  # its workers too
            return process.wait()


def tests_of(module: str) -> list[str]:
    """Test modules named like a module or a page that tells it, or named by that page."""
    text = (ROOT / "lml" / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
    names = {module, *re.findall(r"^# book/(.+?)\.ipynb#", text, re.M)}
    for page in list(names):
        if (path := ROOT / "book" / f"{page}.ipynb").exists():
            notebook = json.loads(path.read_text(encoding="utf-8"))
            names.update(notebook["metadata"]["lml"].get("tests", ()))
    stems = "|".join(name.replace("/", "_").replace(".", "_") for name in names)
    found = (ROOT / "tests").glob("test_*.py")
    return sorted(f"tests/{p.name}" for p in found if re.fullmatch(f"test_({stems})", p.stem))


def places(tree: ast.AST) -> Iterator[ast.AST]:
    """Nodes of functions that can be changed, in a fixed order; no annotations, no messages."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, SILENT) or node in getattr(tree, "decorator_list", ()):
            continue
        if node in (getattr(tree, "annotation", None), getattr(tree, "returns", None)):
            continue
        if not isinstance(tree, (ast.Module, ast.ClassDef)) and _can_change(node):
            yield node
        yield from places(node)


def _can_change(node: ast.AST) -> bool:
    return (
        (isinstance(node, ast.Constant) and type(node.value) in (int, float, bool))
        or (isinstance(node, (ast.BinOp, ast.BoolOp)) and type(node.op) in SWAPS)
        or (isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS)
        or (isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.Not)))
        or (isinstance(node, (ast.Name, ast.Attribute)) and _named(node) in NAMES)
    )


def _named(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr


def change(node: ast.AST) -> None:
    """Change a node in its place."""
    if isinstance(node, ast.Constant):
        node.value = not node.value if type(node.value) is bool else node.value + 1
    elif isinstance(node, ast.Compare):
        node.ops[0] = SWAPS[type(node.ops[0])]()
    elif isinstance(node, ast.UnaryOp):
        node.op = ast.UAdd() if isinstance(node.op, ast.USub) else ast.Not()
        if isinstance(node.op, ast.Not):
            node.operand = ast.UnaryOp(ast.Not(), node.operand)
    elif isinstance(node, ast.Name):
        node.id = NAMES[node.id]
    elif isinstance(node, ast.Attribute):
        node.attr = NAMES[node.attr]
    else:
        node.op = SWAPS[type(node.op)]()


def mutant(tree: ast.Module, number: int) -> tuple[str, str]:
    """Text of a module with one place changed, and the changed line: old -> new."""
    changed = deepcopy(tree)
    node = list(places(changed))[number]
    around = [s for s in ast.walk(changed) if isinstance(s, ast.stmt)]
    around = [s for s in around if s.lineno <= node.lineno <= s.end_lineno]
    statement = min(around, key=lambda s: s.end_lineno - s.lineno)
    old = ast.unparse(statement).splitlines()
    change(node)
    new = ast.unparse(statement).splitlines()
    lines = [f"{a.strip()} -> {b.strip()}" for a, b in zip(old, new) if a != b]
    return ast.unparse(changed), f"line {node.lineno}: {'; '.join(lines)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*", help="all of the method if left out")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    paths = sorted((ROOT / "lml").rglob("*.py"))
    names = [".".join(p.relative_to(ROOT / "lml").with_suffix("").parts) for p in paths]
    wanted = given.modules or [n for n in names if "__" not in n and not n.startswith("studies")]
    known = {(e["module"], e["change"]) for e in LIST.get("equivalent", [])}
    end, rng = time.monotonic() + 60 * given.minutes, random.Random(given.seed)
    tried, survived, left = Counter(), Counter(), {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = workspace(Path(temporary).resolve())
        for module in wanted:
            path = folder / "lml" / f"{module.replace('.', '/')}.py"
            tree = ast.parse(path.read_text(encoding="utf-8"))
            numbers = list(range(len(list(places(tree)))))
            rng.shuffle(numbers)
            left[module] = path, path.read_text(encoding="utf-8"), tree, numbers
        limits: dict[str, float] = {}
        while time.monotonic() < end and any(numbers for *_, numbers in left.values()):
            for module, (path, text, tree, numbers) in left.items():
                if not numbers or time.monotonic() > end:
                    continue
                tests = tests_of(module)
                if module not in limits:
                    started = time.monotonic()
                    if not tests or run_tests(folder, tests, None):
                        raise SystemExit(f"{module}: {tests or 'no test'} must pass first")
                    limits[module] = 3 * (time.monotonic() - started) + 5
                changed, said = mutant(tree, numbers.pop())
                if (module, said.partition(": ")[2]) in known:
                    continue
                path.write_text(changed, encoding="utf-8")
                tried[module] += 1
                if run_tests(folder, tests, limits[module]) == 0:
                    survived[module] += 1
                    print(f"survived: {module} {said}", flush=True)
                path.write_text(text, encoding="utf-8")
    with (ROOT / "tests" / "mutants.csv").open("a", encoding="utf-8") as file:
        for module in tried:
            row = date.today(), given.seed, module, tried[module], survived[module]
            file.write(",".join(map(str, row)) + "\n")
    print(f"{tried.total()} changes tried, {survived.total()} survived:", dict(survived))


if __name__ == "__main__":
    sys.exit(main())
