"""Change the package in one place at a time and see whether its tests notice.

Usage: ``python tools/mutants.py [MODULE ...] [--minutes 30] [--count N] [--seed 0]``. Signs,
operators, comparisons, numbers, bounds of slices and minima are changed, at most N in a module, in
an order that the seed draws, each in a copy of the package in a temporary folder. There the tests
that run the changed lines are run, then, if they pass, all tests of the module. A change that needs
three times the seconds of the processor that the code as it is needs counts as noticed: it loops.
It prints what no test noticed, and adds a line for each module to tests/mutants.csv. What cannot be
noticed stands with a reason in tests/mutants_equivalent.toml: such changes are counted apart and
not tried.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from copy import deepcopy
from datetime import date
from pathlib import Path

from coverage import CoverageData

ROOT = Path(__file__).resolve().parent.parent
COPIED, LINKED = ("lml", "tests", "tools", "pyproject.toml"), ("book", "results")
LIST, EQUIVALENT = (
    tomllib.loads((ROOT / "tests" / f"{name}.toml").read_text(encoding="utf-8"))
    for name in ("mutations", "mutants_equivalent")
)
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


def run_tests(folder: Path, tests: list[str], seconds: int | None) -> int:
    """Exit status of pytest in a workspace: 0 all pass, 1 one fails; -9 if it was too slow.

    Seconds are of the processor, so that others on the machine do not count. Whoever waits for
    something that never comes is stopped after ten times as many by the clock.
    """

    def limit() -> None:
        if seconds is not None:
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))

    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(
        command, cwd=folder, env=environment, start_new_session=True, preexec_fn=limit, **quiet
    ) as process:
        try:
            return process.wait(seconds and 10 * seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)  # its workers too
            return process.wait()


def tests_by_line(folder: Path, tests: list[str], path: Path) -> dict[int, set[str]]:
    """The tests that run each line of a module, which all pass; a line's set may lack some."""
    if not tests or run_tests(
        folder, [*tests, "--cov", "--cov-context=test", "--cov-report="], None
    ):
        raise SystemExit(f"{path.stem}: {tests or 'no test'} must pass first")
    data = CoverageData(folder / ".coverage")
    data.read()
    found = defaultdict(set)
    for line, contexts in data.contexts_by_lineno(str(path)).items():
        found[line] = {c.removesuffix("|run") for c in contexts if c.endswith("|run")}
    return found


def survives(folder: Path, near: list[str], tests: list[str], seconds: int) -> bool:
    """Whether all tests pass, those near the change first."""
    if near and run_tests(folder, near, seconds) in (1, -9):
        return False
    return run_tests(folder, tests, seconds) == 0


def tests_of(module: str) -> list[str]:
    """Test modules named like a module or a page that tells it, or by that page or the list."""
    text = (ROOT / "lml" / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
    names = {module, *re.findall(r"^# book/(.+?)\.ipynb#", text, re.M)}
    for page in list(names):
        if (path := ROOT / "book" / f"{page}.ipynb").exists():
            notebook = json.loads(path.read_text(encoding="utf-8"))
            names.update(notebook["metadata"]["lml"].get("tests", ()))
    stems = "|".join(name.replace("/", "_").replace(".", "_") for name in names)
    found = (ROOT / "tests").glob("test_*.py")
    found = [p.stem for p in found if re.fullmatch(f"test_({stems})", p.stem)]
    listed = EQUIVALENT["tests"]["*"] + EQUIVALENT["tests"].get(module, [])
    return [f"tests/{name}.py" for name in sorted({*found, *listed})] if found else []


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


def mutant(tree: ast.Module, number: int) -> tuple[str, range, dict[str, str]]:
    """Text of a module with one place changed, its lines, and what a list says of it."""
    changed = deepcopy(tree)
    node = list(places(changed))[number]
    holders = (ast.stmt, ast.ExceptHandler)
    around = [s for s in ast.walk(changed) if isinstance(s, holders) and _holds(s, node)]
    around.sort(key=lambda s: s.end_lineno - s.lineno)
    names = [s.name for s in around if isinstance(s, (ast.FunctionDef, ast.ClassDef))]
    old = ast.unparse(around[0]).splitlines()
    change(node)
    new = ast.unparse(around[0]).splitlines()
    lines = [f"{a.strip()} -> {b.strip()}" for a, b in zip(old, new) if a != b]
    said = {"function": ".".join(reversed(names)), "change": "; ".join(lines)}
    return ast.unparse(changed), range(node.lineno, node.end_lineno + 1), said


def _holds(statement: ast.AST, node: ast.AST) -> bool:
    return statement.lineno <= node.lineno <= statement.end_lineno


def try_changes(folder: Path, module: str, rng: random.Random) -> Iterator[str]:
    """Change a module in one place after another: each is killed, survived or equivalent."""
    path = folder / "lml" / f"{module.replace('.', '/')}.py"
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    numbers = list(range(len(list(places(tree)))))
    rng.shuffle(numbers)
    tests = tests_of(module)
    before = os.times()
    near = tests_by_line(folder, tests, path)
    seconds = 3 * int(sum(os.times()[2:4]) - sum(before[2:4])) + 5  # of children, by the processor
    n_lines = Counter(test for tests_of_line in near.values() for test in tests_of_line)
    known = [(e["module"], e["function"], e["change"]) for e in EQUIVALENT["equivalent"]]
    for number in numbers:
        changed, lines, said = mutant(tree, number)
        if (module, said["function"], said["change"]) in known:
            yield "equivalent"
            continue
        path.write_text(changed, encoding="utf-8")
        # a test that runs few lines of the module takes little time and comes first
        first = sorted(set().union(*(near[n] for n in lines)), key=lambda t: (n_lines[t], t))
        passed = survives(folder, first, tests, seconds)
        path.write_text(text, encoding="utf-8")
        if passed:
            print(f"# survived, line {lines[0]}\nmodule = {module!r}", flush=True)
            print(f"function = {said['function']!r}\nchange = {said['change']!r}", flush=True)
        yield "survived" if passed else "killed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*", help="all of the method if left out")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--count", type=int, default=10**6, help="changes of a module at most")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    paths = sorted((ROOT / "lml").rglob("*.py"))
    names = [".".join(p.relative_to(ROOT / "lml").with_suffix("").parts) for p in paths]
    wanted = given.modules or [n for n in names if "__" not in n and not n.startswith("studies")]
    end = time.monotonic() + 60 * given.minutes
    with tempfile.TemporaryDirectory() as temporary:
        folder = workspace(Path(temporary).resolve())
        runs = {m: try_changes(folder, m, random.Random(given.seed)) for m in wanted}
        results = {module: Counter() for module in wanted}
        for _ in range(given.count):
            for module in list(runs):
                if time.monotonic() >= end:
                    break
                if (result := next(runs[module], None)) is None:
                    del runs[module]
                else:
                    results[module][result] += 1
    with (ROOT / "tests" / "mutants.csv").open("a", encoding="utf-8") as file:
        for module, counts in results.items():
            tried = counts["killed"] + counts["survived"]
            row = date.today(), given.seed, module, tried, counts["survived"], counts["equivalent"]
            file.write(",".join(map(str, row)) + "\n")
    total = sum(results.values(), Counter())
    print(f"{total['killed'] + total['survived']} changes tried, {total['survived']} survived,")
    print(f"{total['equivalent']} equivalent were not tried")


if __name__ == "__main__":
    sys.exit(main())
