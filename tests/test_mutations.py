"""A change of a formula that the book cites is noticed by the tests of its module, within 20 s."""

import ast
import os
import re
from pathlib import Path

import mutants
import pytest

MUTATIONS = mutants.LIST["mutation"]
SECONDS = 20  # of the processor


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    return mutants.workspace(tmp_path_factory.mktemp("package"))


def changes(tree: ast.Module) -> list[dict[str, str]]:
    """What a list says of each change of a module."""
    return [mutants.mutant(tree, n)[2] for n in range(len(list(mutants.places(tree))))]


def module_path(folder: Path, module: str) -> Path:
    return folder / "lml" / f"{module.replace('.', '/')}.py"


@pytest.mark.parametrize("entry", MUTATIONS, ids=lambda entry: entry["equation"])
def test_a_changed_formula_is_noticed(entry, workspace):
    path = module_path(workspace, entry["module"])
    text = path.read_text(encoding="utf-8")
    assert text.count(entry["old"]) == 1, "the formula is written otherwise now: list it anew"
    tests = [f"tests/{t}.py" for t in entry.get("tests", ())] or mutants.tests_of(entry["module"])
    path.write_text(text.replace(entry["old"], entry["new"]), encoding="utf-8")
    before = os.times()
    try:
        status = mutants.run_tests(workspace, tests, 10 * SECONDS)
    finally:
        path.write_text(text, encoding="utf-8")
    used = os.times()
    assert status == 1, f"{tests} did not notice it (status {status})"  # 1: a test failed
    seconds = sum(used[2:4]) - sum(before[2:4])
    assert seconds < SECONDS, f"{tests} took {seconds:.0f} s to notice it"


def test_the_list_is_of_cited_equations_one_change_each():
    equations = [entry["equation"] for entry in MUTATIONS]
    assert len(set(equations)) == len(equations) >= 30
    for entry in MUTATIONS:
        text = module_path(mutants.ROOT, entry["module"]).read_text(encoding="utf-8")
        assert re.search(rf"\({entry['equation']}\)", text), entry["equation"]


def test_every_kind_of_place_is_changed_into_code_that_is_another():
    source = (
        "def f(x, y=1):\n    if not x < y and x != 0:\n        return -np.maximum(x[1:], True)\n"
        "    return x @ y + x * y\n"
    )
    tree = ast.parse(source)
    found = [said["change"] for said in changes(tree)]
    assert len(set(found)) == len(found) == 12
    said = "\n".join(found)
    for new in ("y=2", "x <= y", "x == 0", "or x", "+np.", "minimum", "x[2:]", "False", "- x * y"):
        assert new in said
    assert ast.unparse(tree) == source.strip()


def told(module: str, function: str) -> ast.Module:
    """A function of a module alone, or what stands outside of all."""
    tree = ast.parse(module_path(mutants.ROOT, module).read_text(encoding="utf-8"))
    if not function:
        return ast.Module([node for node in tree.body if not hasattr(node, "name")], [])
    for name in function.split("."):
        part = [node for node in tree.body if getattr(node, "name", "") == name]
        assert part, f"{module} has no {function} now"
        tree = part[0]
    return ast.Module([tree], [])


def test_an_equivalent_change_is_one_of_the_module_as_it_is_and_has_a_reason():
    entries = mutants.EQUIVALENT["equivalent"]
    assert len({(e["module"], e["function"], e["change"]) for e in entries}) == len(entries)
    for entry in entries:
        found = [said["change"] for said in changes(told(entry["module"], entry["function"]))]
        assert entry["change"] in found, f"{entry['module']} is written otherwise now"
        assert entry["reason"]


@pytest.mark.parametrize(("body", "status"), [("while True: pass", -9), ("time.sleep(6)", 0)])
def test_a_loop_is_stopped_by_seconds_of_the_processor_and_waiting_is_not(body, status, tmp_path):
    (tmp_path / "test_it.py").write_text(f"import time\n\ndef test():\n    {body}\n")
    assert mutants.run_tests(tmp_path, ["test_it.py"], 4) == status


def test_messages_imports_and_annotations_are_left_alone():
    source = 'def f(x: "tuple[int, 3]") -> "1":\n    raise ValueError(f"{x + 1}", 3)\n'
    assert list(mutants.places(ast.parse(source))) == []


def test_only_the_copy_is_changed(workspace):
    assert module_path(workspace, "oasis").resolve().is_relative_to(workspace.resolve())
    assert not (workspace / "lml").is_symlink()
    assert not (workspace / "tests").is_symlink()
