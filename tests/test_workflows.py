"""What a host runs: pinned actions, no more rights than needed, an end to every job."""

from __future__ import annotations

import re

import package_tests
import pytest
import yaml
from tangle import ROOT

PATHS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in PATHS}
JOBS = [
    pytest.param(job, id=f"{flow}-{name}")
    for flow, said in WORKFLOWS.items()
    for name, job in said["jobs"].items()
]
WRITES = {"publish": {"pages": "write", "id-token": "write"}}


def test_actions_are_pinned_by_one_commit_each():
    used = [line for path in PATHS for line in re.findall(r"uses: (.*)", path.read_text("utf-8"))]
    assert used
    commits = {}
    for line in used:
        pinned = re.fullmatch(r"([\w-]+/[\w-]+)@([0-9a-f]{40}) # v\d+\.\d+\.\d+", line)
        assert pinned, line
        assert commits.setdefault(pinned[1], pinned[2]) == pinned[2], line


def test_only_the_job_that_publishes_may_write():
    for flow in WORKFLOWS.values():
        assert flow["permissions"] == {"contents": "read"}
        given = {
            name: job["permissions"] for name, job in flow["jobs"].items() if "permissions" in job
        }
        assert given in ({}, WRITES)
    assert WORKFLOWS["book"]["jobs"]["publish"]["if"] == "github.event_name != 'pull_request'"


@pytest.mark.parametrize("job", JOBS)
def test_a_job_ends_keeps_no_password_and_runs_what_there_is(job):
    assert job["timeout-minutes"] <= 360
    recipes = (ROOT / "Makefile").read_text(encoding="utf-8")
    for step in job["steps"]:
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False
        run = step.get("run", "")
        for target in re.findall(r"^make ([a-z-]+)", run, re.M):
            assert re.search(rf"^{target}:", recipes, re.M), target
        for script in re.findall(r"\btools/\w+\.py", run):
            assert (ROOT / script).is_file()


def test_every_system_and_both_ends_of_the_versions_are_tried():
    jobs = WORKFLOWS["test"]["jobs"]
    assert set(jobs["systems"]["strategy"]["matrix"]["system"]) == {
        "windows-latest",
        "macos-latest",
    }
    assert jobs["locale"]["env"]["LC_ALL"] == "C"
    assert {"3.11", "3.13"} <= set(jobs["test"]["strategy"]["matrix"]["python"])
    assert "oldest" in jobs
    # YAML reads the key `on` as true
    assert "pull_request" in WORKFLOWS["book"][True]
    assert "schedule" in WORKFLOWS["links"][True]


def test_package_tests_leave_out_what_make_leaves_out():
    names = package_tests.left_out()
    assert "--ignore=tests/test_lite.py" in names
    assert "--ignore=tests/test_site.py" in names
    assert all((ROOT / name.partition("=")[2]).is_file() for name in names)
