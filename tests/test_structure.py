"""The package as a whole: one-way imports, the API page, the one list of pins."""

from __future__ import annotations

import ast
import importlib
import json
import re
import subprocess
import sys
import tomllib
from collections import Counter
from importlib.metadata import requires, version
from xml.etree import ElementTree

import count_calls
import flow
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from sphinx.pycode import ModuleAnalyzer
from tangle import ROOT, read_chapters

import lml

MODULES = list(
    dict.fromkeys(cell.module for chapter in read_chapters(ROOT) for cell in chapter.cells)
)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def read_pins(name: str) -> list[Requirement]:
    path = ROOT / "requirements" / f"{name}.txt"
    lines = path.read_text(encoding="utf-8").splitlines()
    return [Requirement(line) for line in lines if line.strip() and not line.startswith("#")]


PINNED = read_pins("newest")
OLDEST = read_pins("oldest")


def test_every_module_stands_in_one_layer_and_imports_go_down():
    wrong = list(flow.faults(flow.read_layers(ROOT), flow.read_imports(ROOT)))
    assert not wrong, "\n".join(wrong)


def test_imports_of_every_module_are_read():
    imports = flow.read_imports(ROOT)
    assert set(MODULES) <= set(imports)
    assert "metrics" in imports["neighbors"]
    assert imports["utils.typing"] == set()


def test_the_picture_of_the_layers_and_the_table_of_modules_are_current():
    assert flow.main(["--check"]) == 0
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| .* \| `([\w.]+)` \| \[", text, re.M)
    assert sorted(rows) == sorted(MODULES)
    changed = text.replace("| `metrics` | [metrics]", "| `metrics` | [elsewhere]")
    assert text == flow.with_map(changed, flow.read_layers(ROOT), ROOT) != changed


LAYERS = [flow.Layer("base", ["utils"]), flow.Layer("middle", ["a", "b"]), flow.Layer("top", ["p"])]
SOUND = {"utils": set(), "a": {"utils"}, "b": set(), "p": {"a"}, "p.x": {"b"}, "p.y": {"p.x"}}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, []),
        ({"a": {"b"}}, ["lml.a imports from lml.b, which is not in an earlier layer"]),
        ({"a": {"p.x"}}, ["lml.a imports from lml.p.x, which is not in an earlier layer"]),
        ({"c": set()}, ["lml.c is listed 0 times in [tool.lml] layers"]),
        ({"a": {""}}, ["lml.a imports from lml itself"]),
        ({"p.x": {"p.y"}}, ["imports go round in a circle: lml.p."]),
        ({"b": {"b"}}, ["imports go round in a circle: lml.b -> lml.b"]),
    ],
)
def test_imports_against_the_layers_are_named(changed, said):
    found = list(flow.faults(LAYERS, SOUND | changed))
    assert len(found) == len(said)
    assert all(fault.startswith(text) for fault, text in zip(found, said))


def test_a_layer_that_lists_a_module_twice_or_none_is_named():
    layers = [*LAYERS, flow.Layer("more", ["p.x", "q"])]
    assert [fault.partition(":")[0] for fault in flow.faults(layers, SOUND)] == [
        "[tool.lml] layers lists q, but there is no lml.q",
        "lml.p.x is listed 2 times in [tool.lml] layers",
    ]


def write_package(root, sources):
    for name, source in sources.items():
        path = root / "lml" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8")


def test_imports_are_read_wherever_and_however_they_are_written(tmp_path):
    inside = "def f():\n    from lml.p import x, g\n    import lml.b\n    from lmlx import c\n"
    named = 'FOUND = {"x": "lml.p"}  # for importlib\nSAID = "lml.p is no module of xml.a"'
    sources = {"__init__.py": "", "a.py": inside, "b.py": "from lml import a, f", "p/x.py": named}
    write_package(tmp_path, {**sources, "p/__init__.py": "from lml.p.x import g"})
    assert flow.read_imports(tmp_path) == {
        "a": {"p.x", "p", "b"}, "b": {"a", ""}, "p": {"p.x"}, "p.x": {"p"}
    }  # fmt: skip
    write_package(tmp_path, {"b.py": "from .a import f"})
    with pytest.raises(ValueError, match=r"lml\.b: import from lml by full names"):
        flow.read_imports(tmp_path)


def test_a_layer_needs_a_comment(tmp_path):
    text = '[tool.lml]\nlayers = [\n    # base\n    ["a"],\n    ["b"],\n]\n'
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match="2 layers and 1 comments: write one comment line above"):
        flow.read_layers(tmp_path)


def test_arrows_are_drawn_only_where_no_other_way_leads():
    assert flow.arrows(LAYERS, SOUND) == [(0, 1), (1, 2)]
    assert flow.arrows(LAYERS, SOUND | {"p": {"utils"}, "p.x": set()}) == [(0, 1), (0, 2)]
    drawn = flow.draw(LAYERS, [(0, 1), (0, 2)])
    assert drawn.count("marker-end") == 2
    assert all(f">{name}</text>" in drawn for name in ("utils", "a", "b", "p", "middle"))
    ElementTree.fromstring(drawn)
    crowded = [flow.Layer("base", ["long_name"] * 8)]
    with pytest.raises(ValueError, match="names of the layer 'base' do not fit"):
        flow.draw(crowded, [])


def test_few_assignments_of_the_package_pack_several_names():
    """One assignment a line: packed ones are for a swap or for what is unpacked at once."""
    count, packed = 0, []
    for path in sorted((ROOT / "lml").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Assign):
                continue
            count += 1
            if isinstance(node.value, ast.Tuple) and isinstance(node.targets[0], ast.Tuple):
                packed.append((str(path.relative_to(ROOT)), node.lineno, ast.unparse(node)))
    worst = Counter(name for name, _, _ in packed).most_common(5)
    shown = "\n".join(f"{name}:{line}: {text}" for name, line, text in packed)
    assert 50 * len(packed) <= count, f"{len(packed)} of {count}; most in {worst}:\n{shown}"


@pytest.mark.parametrize("name", MODULES)
def test_every_public_name_has_a_docstring(name):
    module = importlib.import_module(f"lml.{name}")
    assert module.__doc__
    noted = ModuleAnalyzer.for_module(module.__name__).find_attr_docs()
    bare = [
        name
        for name in module.__all__
        if ("", name) not in noted
        and not (callable(getattr(module, name)) and getattr(module, name).__doc__)
    ]
    assert not bare, f"lml.{name}: give {bare} a docstring, or a constant a `#:` line above it"


@pytest.mark.parametrize("name", MODULES)
def test_every_module_has_a_page_of_the_api(name):
    page = ROOT / "book" / "api" / f"{name}.md"
    assert page.exists(), f"write {page.relative_to(ROOT)}, which holds the line # `lml.{name}`"
    assert page.read_text(encoding="utf-8") == f"# `lml.{name}`\n"


def test_pins_are_exact_and_each_package_is_pinned_once():
    for pins in (PINNED, OLDEST):
        assert all([s.operator for s in pin.specifier] == ["=="] for pin in pins)
        names = [re.sub("[-_.]+", "-", pin.name).lower() for pin in pins]
        assert len(set(names)) == len(names)
    [book] = [next(iter(pin.specifier)).version for pin in PINNED if pin.name == "jupyter-book"]
    assert book.startswith("1.")  # 2 is another program


def test_pins_satisfy_the_bounds_of_the_distribution():
    pins = {r.name.lower(): next(iter(r.specifier)).version for r in PINNED}
    for text in PROJECT["project"]["dependencies"]:
        bound = Requirement(text)
        assert pins[bound.name] in bound.specifier


def test_the_oldest_pins_are_the_lower_bounds_of_the_distribution():
    project = PROJECT["project"]
    extras = project["optional-dependencies"].values()
    bounds = [*project["dependencies"], *(text for extra in extras for text in extra)]
    pins = {r.name.lower(): Version(next(iter(r.specifier)).version) for r in OLDEST}
    for text in bounds:
        bound = Requirement(text)
        [lower] = bound.specifier
        assert lower.operator == ">=", f"{text}: a lower bound and nothing else"
        assert pins[bound.name] == Version(lower.version), f"requirements/oldest.txt: {text}"


def test_importing_the_package_loads_nothing_but_itself_and_what_scikit_learn_loads():
    """Plots, data sets and clusters are loaded where they are used, not by `import lml`."""
    code = """
import numpy, scipy, sklearn, sys
before = set(sys.modules)
import lml
print(*sorted(set(sys.modules) - before))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True
    )
    loaded = done.stdout.split()
    packages = {name.split(".")[0].lstrip("_") for name in loaded} - sys.stdlib_module_names
    assert packages - {"numpy", "scipy", "sklearn", "joblib", "threadpoolctl"} == {"lml"}
    assert "lml.oasis" in loaded
    assert "lml.datasets" not in loaded
    assert not any(name.startswith("lml.studies") for name in loaded)


def test_the_package_is_marked_as_typed():
    assert (ROOT / "lml" / "py.typed").is_file()  # tools/try_dist.py looks for it in the wheel


def test_what_types_do_not_check_is_named_with_its_reason():
    lines = [
        line
        for path in (ROOT / "lml").rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if "type: ignore" in line
    ]
    assert lines
    assert [line for line in lines if not re.search(r"type: ignore\[[\w-]+\]  # \w", line)] == []


def test_no_test_is_switched_off():
    """A skip has a condition and a reason; no test may fail."""
    off = re.compile(r"mark\.skip\b|xfail|mark\.skipif\(\s*(True|1|not False)\b|unittest\.skip")
    for path in (ROOT / "tests").rglob("*.py"):
        if path.name != "test_structure.py":
            assert not off.search(path.read_text(encoding="utf-8")), path.name


def test_every_reader_of_pins_reads_the_one_list():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    plain = [d for d in environment["dependencies"] if isinstance(d, str)]
    assert [re.split(r"[<>=]", d)[0] for d in plain] == ["python", "pip"]
    pip = ["-r requirements/newest.txt", "-e ."]
    assert environment["dependencies"][-1]["pip"] == pip
    recipes = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "install --quiet --require-hashes -r requirements/newest.lock" in recipes
    # what builds the package is pinned as well: nothing is fetched for it
    assert "install --quiet --no-deps --no-build-isolation --editable ." in recipes
    (builder,) = PROJECT["build-system"]["requires"]
    assert {Requirement(builder).name, "editables"} <= {pin.name for pin in PINNED}
    others = [*(ROOT / ".github" / "workflows").glob("*.yml"), ROOT / ".ci" / "run"]
    texts = [recipes, *(path.read_text(encoding="utf-8") for path in others)]
    assert not any("pip install" in text for text in texts[1:])
    named = {name for text in texts for name in re.findall(r"\brequirements\S*\.txt", text)}
    names = ("newest", "oldest", "peers", "lite", "fuzz")
    assert named == {f"requirements/{name}.txt" for name in names}
    assert all((ROOT / name).is_file() for name in named)


def test_the_lock_has_the_pins_with_hashes_of_their_files():
    text = (ROOT / "requirements" / "newest.lock").read_text(encoding="utf-8")
    entries = [Requirement(e.partition(" \\\n")[0]) for e in re.split(r"\n(?=\S)", text.strip())]
    locked = {canonicalize_name(r.name): r for r in entries}
    pins = {canonicalize_name(r.name): r.specifier for r in PINNED}
    assert {name: locked[name].specifier for name in pins} == pins
    # besides: what other systems need, and what pip itself brings
    others = {name for name, r in locked.items() if name not in pins and r.marker is None}
    assert others <= {"setuptools", "wheel"}
    assert text.count("--hash=sha256:") > len(locked)
    assert all("--hash=sha256:" in entry for entry in re.split(r"\n(?=\S)", text.strip()))


def test_installed_versions_are_the_pinned_ones():
    pins = {r.name: next(iter(r.specifier)).version for r in PINNED}
    assert {n: version(n) for n in ("numpy", "scipy", "scikit-learn")}.items() <= pins.items()
    assert requires("lifelong-metric-learning")


def test_calls_of_checks_are_counted_by_package():
    learner = lml.OASIS(n_steps=5, random_state=0)
    X = [[0.0, 0.0], [0.0, 1.0], [5.0, 0.0], [5.0, 1.0]]
    counted = count_calls.count(lambda: learner.fit(X, [0, 0, 1, 1]))
    assert sys.getprofile() is None
    checked = counted.checks["sklearn"]
    assert checked["sklearn.utils.validation.check_array"] >= 1
    names = [name.rpartition(".")[2] for calls in counted.checks.values() for name in calls]
    assert all(re.search("check|valid", name) for name in names)
    assert {"lml.oasis", "lml.triplets"} <= counted.modules <= {f"lml.{name}" for name in MODULES}
    assert counted.calls > counted.checks["lml"].total()
    nothing = count_calls.count(lambda: None)
    assert (nothing.calls, nothing.modules) == (0, set())


def test_the_counter_ends_when_what_it_counts_fails():
    with pytest.raises(ValueError, match="no number"):
        count_calls.count(lambda: int("no number"))
    assert sys.getprofile() is None


def test_calls_of_a_second_visit_are_shown_for_each_learner(capsys):
    assert count_calls.main([]) == 0
    shown = capsys.readouterr().out.splitlines()[1:]
    assert [line.split()[0] for line in shown] == list(count_calls.learners())
    assert all(int(number) > 0 for line in shown for number in line.split()[1:])


def test_pages_that_every_user_runs_import_nothing_of_the_laboratory():
    """Only pages that measure, the workshop, the reference and the summary of all results do."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    allowed = {"Does it work?", "Workshop", "Reference"}
    assert allowed <= {part["caption"] for part in toc["parts"]}
    found = []
    for part in toc["parts"]:
        for entry in part["chapters"] if part["caption"] not in allowed else []:
            path = ROOT / f"{entry['file']}.ipynb"
            if path.name == "found.ipynb":
                continue
            cells = json.loads(path.read_text(encoding="utf-8"))["cells"] if path.exists() else []
            code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
            found += [path.name for text in code if "lml.studies" in text or "/results/" in text]
    assert not found


def test_each_test_is_run_by_one_target():
    recipes = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "tools/tangle.py --check" in recipes.partition("\ntest: ")[2].partition("\n\n")[0]
    assert '-m "not studies and not builds" tests' in recipes
    assert '-m "studies or builds" tests' in recipes
    steps = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert [step for step in steps if step.startswith("make ")] == [
        "make test",
        "make test-studies",
        "make book",
    ]


def test_no_test_module_imports_another_and_none_is_long():
    for path in (ROOT / "tests").glob("test_*.py"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"^(from|import) test_", text, re.M), path.name
        assert len(text.splitlines()) <= 600, path.name
