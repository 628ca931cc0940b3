"""The table of what each package can do, without the environment of the peers."""

import json
import subprocess
import sys

import pytest

from lml.studies.results import read_rows
from tools.benchmarks import abilities

CLAIMED = [claim[0] for claim in abilities.CLAIMS]


@pytest.mark.parametrize(
    ("code", "able"),
    [
        ("learn()", True),
        ("learn().fit_chunks(X, chunks)", False),
        ("holds = len(learn(X, words).transform(X)) == len(X)", True),
        ("learn(); holds = False", False),
        ("raise MemoryError", False),
        ("this is no Python", False),
    ],
)
def test_a_claim_needs_code_that_runs_and_holds(code, able):
    assert abilities._able("lml", "OASIS", code) is able


@pytest.mark.parametrize("name", ["OASIS", "LifelongMetricLearner"])
def test_the_stored_table_says_of_a_learner_what_it_runs(name):
    command = [sys.executable, "-m", "tools.benchmarks.abilities", "lml", name]
    said = subprocess.run(command, cwd=abilities.ROOT, capture_output=True, text=True, check=True)
    held = json.loads(said.stdout.splitlines()[-1])
    stored = read_rows(abilities.OUT)
    assert [row["claim"] for row in stored] == CLAIMED
    assert held == [row["claim"] for row in stored if name in row["lml"].split()]
    assert 0 < len(held) < len(CLAIMED)  # "not one" and "all" would be no table


def test_each_learner_of_a_package_is_asked_in_its_environment(tmp_path, monkeypatch):
    peers = tmp_path / "python"
    peers.write_text(  # runs the learner LSML and no other one
        '#!/bin/sh\ntest "$1 $3" = "-m metric_learn" || exit 1\necho noise\n'
        f'if test "$4" = LSML; then echo \'["{CLAIMED[3]}"]\'; else echo "[]"; fi\n'
    )
    peers.chmod(0o755)
    monkeypatch.setitem(abilities.LEARNERS, "metric_learn", {"LSML": {}, "NCA": {}})
    found = abilities.able("metric_learn", str(peers))
    assert list(found) == CLAIMED
    assert {claim: names for claim, names in found.items() if names} == {CLAIMED[3]: ["LSML"]}
    with pytest.raises(subprocess.CalledProcessError):
        abilities.able("lml", str(peers))


def test_the_table_has_a_line_for_each_claim_and_replaces_the_old_one(tmp_path, monkeypatch):
    asked = []

    def able(package, python):
        asked.append((package, python))
        return {claim: [package, "both"] if claim == CLAIMED[1] else [] for claim in CLAIMED}

    monkeypatch.setattr(abilities, "able", able)
    monkeypatch.setattr(abilities, "OUT", tmp_path / "abilities.csv")
    monkeypatch.setattr(sys, "argv", ["abilities"])
    monkeypatch.setenv("LML_PEERS", "/some/python")
    for _ in range(2):
        abilities.main()
        rows = read_rows(abilities.OUT)
        assert [row["claim"] for row in rows] == CLAIMED
        assert (rows[1]["lml"], rows[1]["metric_learn"]) == ("lml both", "metric_learn both")
        assert {row["lml"] for row in rows if row["claim"] != CLAIMED[1]} == {""}
        assert all(row["versions"].startswith("lml ") for row in rows)
    assert asked[:2] == [("lml", sys.executable), ("metric_learn", "/some/python")]
