"""What the README and the front page show works as it stands."""

from __future__ import annotations

import re

import pytest
from tangle import ROOT


@pytest.mark.parametrize("page", ["README.md", "book/index.md"])
def test_the_python_code_runs(page):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.S)
    assert blocks
    space: dict = {}
    for block in blocks:
        exec(block, space)
    assert len(space["learner"].tasks_) == 15
    if "classifier" in space:
        first = space["first"]
        assert space["classifier"].score(first.X_test, first.y_test, task=first.name) > 0.8
        assert space["embedding"].shape[0] == len(first.X_test)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_files_and_targets_that_are_named_exist(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", text)
    named = re.findall(r"`((?:book|tests|tools|lml)/[\w/.]*)`", text)
    named = [name for name in named if "NAME" not in name]
    assert [name for name in links + named if not (ROOT / name).exists()] == []
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.M)) <= set(targets)
