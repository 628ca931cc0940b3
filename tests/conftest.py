"""What all test modules share: options, marks, the profile of hypothesis, fixtures."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, core, settings

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
STUDIES = {
    "ablations",
    "benchmarks",
    "comparison",
    "experiments",
    "studies",
    "transfer",
    "transfer_together",
}
BUILDS = {"book_builds", "cluster", "fuzz", "mutations", "site_tools"}
# Modules of some ten seconds: files that are damaged, threads, long streams, large data.
SLOW = {
    "baselines_mtlmnn",
    "baselines_offdiagonal",
    "growth",
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

    parser.addoption(
        "--global-random-seed",
        type=int,
        default=0,
        help="draw other numbers wherever tests draw some: all tests hold for every seed",
    )


def draw_from(seed: int) -> None:
    """Let ``np.random.default_rng(number)`` and hypothesis draw what another seed gives."""
    plain = np.random.default_rng

    def default_rng(own=None):
        return plain([seed, *np.ravel(own)] if isinstance(own, (int, np.integer, list)) else own)

    np.random.default_rng = default_rng
    profile = settings.get_profile(settings.get_current_profile_name())
    settings.register_profile("seeded", profile, derandomize=False)
    settings.load_profile("seeded")
    core.global_force_seed = seed


@pytest.fixture
def global_random_seed(request):
    """The seed of this run, for what is not drawn by ``np.random.default_rng``."""
    return request.config.getoption("--global-random-seed")


def pytest_configure(config):
    if config.getoption("--fast"):
        settings.load_profile("fast")
    if seed := config.getoption("--global-random-seed"):
        draw_from(seed)


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
