"""What all test modules share: options, marks, the profile of hypothesis, fixtures."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("registry", "checks", "checks_of_inputs")

settings.register_profile(
    "repeatable",
    derandomize=True,  # the same examples in every run
    deadline=None,
    database=None,
    max_examples=25,
    suppress_health_check=list(HealthCheck),
)
settings.register_profile("fast", settings.get_profile("repeatable"), max_examples=5)
settings.load_profile("repeatable")


# Test modules of the laboratory, which measures the learners, by their names after `test_`.
STUDIES = {"ablations", "benchmarks", "comparison", "experiments", "studies", "transfer"}
BUILDS = {"book_builds", "cluster"}
# Modules of some ten seconds: files that are damaged, threads, long streams, large data.
SLOW = {
    "baselines_mtlmnn",
    "baselines_offdiagonal",
    "lifelong_files",
    "lifelong_input",
    "lifelong_threads",
    "linear",
    "plda_families",
    "plda_state",
    "plda_sums",
    "readers",
    "real_data",
    "stored_data",
    "task_pipelines",
    "task_views",
}


def pytest_addoption(parser):
    parser.addoption(
        "--fast",
        action="store_true",
        help="one learner of each family, few examples; no studies, no builds",
    )


def pytest_configure(config):
    if config.getoption("--fast"):
        settings.load_profile("fast")


@pytest.hookimpl(tryfirst=True)  # before `-m` looks at the marks
def pytest_collection_modifyitems(config, items):
    """Mark studies and builds; with --fast leave out all but one learner of each family."""
    for item in items:
        name = item.path.stem.removeprefix("test_")
        for mark, modules in (("studies", STUDIES), ("builds", BUILDS), ("slow", SLOW)):
            if name in modules:
                item.add_marker(mark)
    if not config.getoption("--fast"):
        return
    from registry import FIRST_OF_FAMILY

    def is_fast(item):
        if any(item.get_closest_marker(mark) for mark in ("studies", "builds", "slow")):
            return False
        entry = getattr(item, "callspec", None) and item.callspec.params.get("entry")
        return entry is None or entry in FIRST_OF_FAMILY

    left_out = [item for item in items if not is_fast(item)]
    items[:] = [item for item in items if is_fast(item)]
    config.hook.pytest_deselected(items=left_out)
