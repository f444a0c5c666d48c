"""The pytest plugin: profiles, fixtures, markers, and what a failing test says.

It is loaded by every pytest run in an environment that has Draftproof, so it imports nothing of it until a test asks.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
from collections.abc import Callable, Generator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from draftproof.pytest_apart import has_options, pytest_cmdline_main, pytest_sessionfinish, pytest_sessionstart
from draftproof.pytest_options import check_case, check_draft, check_rootdir, choice, option
from draftproof.pytest_summary import summary, workflow_commands

__all__ = ["pytest_cmdline_main", "pytest_sessionfinish", "pytest_sessionstart"]
if TYPE_CHECKING:
    from draftproof.properties.values.drafts import Algorithm
    from draftproof.properties.values.subject import Subject
    from draftproof.pytest_checks import ProfileScenarios

PROFILES = {"ci": 60, "nightly": 1000, "campaign": 0}
"""Scenarios of a check, and examples of a Hypothesis test; a campaign goes by time."""
CAMPAIGN_EXAMPLES = 10_000
"""Hypothesis has no budget of time."""
MARKERS = {
    "gpu": "needs a CUDA device",
    "multigpu": "needs two CUDA devices",
    "slow": "runs with --draftproof-profile=nightly or campaign",
}
RANKS = 2
"""Of a scenario that has several, at most."""
_SHARE = re.compile(r"-?share\d+of\d+-?|\[share\d+of\d+\]")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("draftproof", "correctness of speculative decoding")
    counted = ", ".join(f"{name} {count}" for name, count in PROFILES.items() if count)
    group.addoption(
        "--draftproof-profile",
        choices=tuple(PROFILES),
        help=f"how much a check runs ({counted} scenarios, campaign: by time); a profile of Hypothesis, too",
    )
    group.addoption("--draftproof-device", choices=("cpu", "cuda"), help="where the engine under test runs (cpu)")
    group.addoption("--draftproof-subject", metavar="NAME", help="makes draftproof_subject: as --subject of `check`")
    group.addoption("--draftproof-python", metavar="ENV/bin/python", help="the interpreter that it runs in")
    group.addoption("--draftproof-url", metavar="URL", help="the address of its server")
    group.addoption("--draftproof-set", metavar="NAME=VALUE", action="append", help="an argument of its own")
    group.addoption(
        "--draftproof-model",
        metavar="DIR",
        help="scenarios of this checkpoint, not of probes; with --draftproof-case: where its target is",
    )
    group.addoption("--draftproof-draft", metavar="NAME", help="scenarios of this draft only (all that there are)")
    group.addoption("--draftproof-draft-model", metavar="DIR", help="with --draftproof-model: the draft's checkpoint")
    group.addoption(
        "--draftproof-mtp",
        action="store_true",
        default=None,
        help="with --draftproof-model: its first MTP layer is the EAGLE head",
    )
    group.addoption("--draftproof-seed", type=int, help="where scenarios come from (0)")
    group.addoption("--draftproof-examples", type=int, help="scenarios of a check, whatever its profile")
    group.addoption("--draftproof-time", type=_seconds, help="how long one check of a campaign takes (10m)")
    group.addoption("--draftproof-case", metavar="CASE.json", help="only this scenario: a case file, or a bare one")
    parser.addini("draftproof_markers", "heed the markers gpu, multigpu and slow in every test", "bool", False)


def _seconds(text: str) -> float:
    from draftproof.properties.lib.durations import DurationError, parse_duration

    try:
        return parse_duration(text, "--draftproof-time")
    except DurationError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    for name, what in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {what} (Draftproof)")
    _check_options(config)
    check_rootdir(config)
    wanted = config.getoption("--hypothesis-profile", None) or ""
    profile = option(config, "profile")
    if profile or wanted.startswith("draftproof-"):
        _register_profiles(None if wanted else profile)


def _check_options(config: pytest.Config) -> None:
    """Raise UsageError naming the option, its value and what was expected."""
    for name, least in (("seed", 0), ("examples", 1)):
        value = option(config, name, least)
        if value < least:
            raise pytest.UsageError(f"invalid --draftproof-{name} {value}: expected {least} or more")
    if (case := option(config, "case")) is not None:
        check_case(case, option(config, "model", ""), option(config, "draft-model", ""))
    if option(config, "device") == "cuda" and not _devices():
        raise pytest.UsageError("invalid --draftproof-device 'cuda': expected cpu, as torch sees no CUDA device here")
    if has_options(config):
        choice(config)
        check_draft(config)


def _register_profiles(load: str | None) -> None:
    """Make Hypothesis know the profiles as draftproof-NAME, and load one unless --hypothesis-profile names another."""
    from hypothesis import HealthCheck, settings

    for name, count in PROFILES.items():
        settings.register_profile(
            f"draftproof-{name}",
            max_examples=count or CAMPAIGN_EXAMPLES,
            derandomize=name == "ci",
            print_blob=True,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
        )
    if load:
        settings.load_profile(f"draftproof-{load}")


def _used(config: pytest.Config) -> bool:
    """Return whether this run asked for anything of ours.

    The plugin is loaded in every project of an environment, and other projects have markers of the same names.
    """
    return config.getini("draftproof_markers") or has_options(config)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what cannot run here: only tests that use Draftproof, as others may mean something else by these markers."""
    every = _used(config)
    devices: int | None = None
    for item in items:
        if not (every or any(name.startswith("draftproof_") for name in getattr(item, "fixturenames", ()))):
            continue
        if item.get_closest_marker("slow") and option(config, "profile", "ci") == "ci":
            item.add_marker(pytest.mark.skip(reason=MARKERS["slow"]))
        needed = RANKS if item.get_closest_marker("multigpu") else 1 if item.get_closest_marker("gpu") else 0
        if needed and devices is None:
            devices = _devices()
        if needed and (devices or 0) < needed:
            what = MARKERS["multigpu" if needed == RANKS else "gpu"]
            item.add_marker(pytest.mark.skip(reason=f"{what}, {devices or 'none'} here"))


def _devices() -> int:
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """With pytest-xdist a check is as many tests as there are workers, each with its share of the scenarios."""
    workers = int(getattr(metafunc.config, "workerinput", {}).get("workercount", 1))
    shared = "draftproof_share" in metafunc.fixturenames and option(metafunc.config, "case") is None
    if shared and workers > 1:
        shares = [(number, workers) for number in range(workers)]
        names = [f"share{number + 1}of{workers}" for number in range(workers)]
        metafunc.parametrize("draftproof_share", shares, ids=names, indirect=True)


@pytest.fixture
def draftproof_share(request: pytest.FixtureRequest) -> tuple[int, int]:
    """Return (which, of how many): the share of the scenarios that this test runs."""
    return getattr(request, "param", (0, 1))


@pytest.fixture(scope="session")
def draftproof_drafts(pytestconfig: pytest.Config) -> tuple[Algorithm, ...]:
    """Return the drafts whose scenarios are run, where the subject has them; define this fixture to have fewer."""
    from draftproof.properties.values.drafts import ALGORITHMS

    named = option(pytestconfig, "draft")
    return ALGORITHMS if named is None else (named,)


@pytest.fixture
def draftproof_scenarios(
    pytestconfig: pytest.Config, draftproof_share: tuple[int, int], draftproof_drafts: tuple[Algorithm, ...]
) -> ProfileScenarios:
    """Return the profile's scenarios, this worker's share of them; they are generated while you iterate."""
    from draftproof.pytest_checks import ProfileScenarios

    profile = option(pytestconfig, "profile", "ci")
    count = option(pytestconfig, "examples", PROFILES[profile])
    return ProfileScenarios(
        seed=option(pytestconfig, "seed", 0),
        count=count,
        seconds=0.0 if count else option(pytestconfig, "time", 600.0),
        drafts=tuple(draftproof_drafts),
        share=draftproof_share,
        case=option(pytestconfig, "case"),
        model=option(pytestconfig, "model"),
        draft_model=option(pytestconfig, "draft-model"),
        mtp=option(pytestconfig, "mtp", False),
    )


@pytest.fixture
def draftproof_rank_scenarios(pytestconfig: pytest.Config, draftproof_scenarios: ProfileScenarios) -> ProfileScenarios:
    """Return as many scenarios of several ranks, which are processes: over sockets on a CPU, over NCCL on CUDA devices.

    The test is skipped where each rank cannot have a device of its own. Hand them to draftproof_check(scenarios=..).
    """
    if option(pytestconfig, "model") is not None:
        pytest.skip("ranks are of probes only, not of --draftproof-model")
    if option(pytestconfig, "device", "cpu") == "cuda" and (devices := _devices()) < RANKS:
        pytest.skip(f"ranks with --draftproof-device=cuda: {MARKERS['multigpu']}, {devices or 'none'} here")
    return replace(draftproof_scenarios, ranks=True)


@pytest.fixture(scope="session")
def draftproof_subject(pytestconfig: pytest.Config) -> Generator[Subject]:
    """Yield the subject under test; define a fixture of this name to test your own.

    One that cannot be made ends the session, as other wrong options do; with pytest-xdist it fails the tests.
    """
    from draftproof.pytest_checks import make_subject

    try:
        search = os.environ.get("PYTHONPATH", "")
        subject = make_subject(choice(pytestconfig), option(pytestconfig, "device", "cpu"), search)
    except ValueError as error:
        told = re.sub(r"--(?=(subject|python|set|url)\b)", "--draftproof-", str(error))
        told = told.replace("invalid subject", "invalid --draftproof-subject")
        if hasattr(pytestconfig, "workerinput"):
            # pytest-xdist takes a worker that exits for one that crashed.
            pytest.fail(told, pytrace=False)
        pytest.exit(told, pytest.ExitCode.USAGE_ERROR)
    with contextlib.closing(subject):
        yield subject


@pytest.fixture
def draftproof_check(request: pytest.FixtureRequest, draftproof_scenarios: ProfileScenarios) -> Callable[..., Any]:
    """Call it to hold a subject to every contract: see pytest_checks.Check. Without one it takes draftproof_subject."""
    from draftproof.pytest_checks import Check

    config, item = request.config, request.node
    return Check(
        subject=partial(request.getfixturevalue, "draftproof_subject"),
        scenarios=draftproof_scenarios,
        cases=config.rootpath / ".draftproof" / "cases",
        test=without_share(item.nodeid),
        device=option(config, "device", "cpu"),
        choice=choice(config),
        share=draftproof_scenarios.share,
        record=item.user_properties.append,
    )


def without_share(name: str) -> str:
    """Return a test's id without its share."""
    return _SHARE.sub("", name)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Give a failure of ours properties for JUnit, and a section of its own where the error does not say all of it."""
    report = yield
    failures = sys.modules.get("draftproof.pytest_failures")
    if failures is not None and call.excinfo is not None and (found := failures.found_in(call.excinfo.value)):
        found = failures.replayable(found, without_share(item.nodeid))
        told = failures.describe_failures(found)
        report.sections += [("draftproof", told)] if told not in str(call.excinfo.value) else []
        properties = failures.properties(found)
        item.user_properties.extend(properties)
        report.user_properties.extend(properties)
    return report


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the results of all checks of all workers, and annotations on GitHub."""
    reports = [
        report for of in terminalreporter.stats.values() for report in of if isinstance(report, pytest.TestReport)
    ]
    lines = list(summary(reports, without_share))
    if lines:
        terminalreporter.write_sep("=", "draftproof")
    for line in lines:
        terminalreporter.write_line(line)
    if os.environ.get("GITHUB_ACTIONS") == "true":
        for line in workflow_commands(reports, _below_workspace(config)):
            terminalreporter.write_line(line)


def _below_workspace(config: pytest.Config) -> str:
    """Return the tests' folder in the checkout that GitHub knows."""
    workspace = Path(os.environ.get("GITHUB_WORKSPACE") or config.rootpath)
    inside = config.rootpath.is_relative_to(workspace)
    return config.rootpath.relative_to(workspace).as_posix() if inside else "."
