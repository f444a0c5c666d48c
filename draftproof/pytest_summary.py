"""What checks came to, read from the properties of test reports: those travel from every worker, and into JUnit."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

SCENARIOS, JUDGED, LACKING = "draftproof.scenarios", "draftproof.judged", "draftproof.inconclusive"
UNNAMED = "draftproof.unnamed"
"""Told of a test that names no subject, and so has the built-in engine."""
FINDING_PROPERTIES = tuple(
    f"draftproof.{name}" for name in ["contract", "channel", "identity", "case", "replay", "divergence"]
)
"""The properties of one finding, in this order; a second finding of a test repeats them."""


def findings(report: pytest.TestReport) -> list[dict[str, str]]:
    """Return the findings of a test: property name without its prefix -> value."""
    found: list[dict[str, str]] = []
    for name, value in report.user_properties:
        if name == FINDING_PROPERTIES[0]:
            found.append({})
        if name in FINDING_PROPERTIES and found:
            found[-1][name.removeprefix("draftproof.")] = str(value)
    return found


def summary(reports: Iterable[pytest.TestReport], plain: Callable[[str], str]) -> Iterator[str]:
    """Yield a line of what was run, one of what was not exercised enough, and one for each finding.

    Shares of one test are one: a contract that one of them could judge has been judged.
    """
    ran = [report for report in reports if _counts(report) and _has_ours(report)]
    if not ran:
        return
    tests = {plain(report.nodeid) for report in ran}
    scenarios = sum(int(value) for report in ran for value in _values(report, SCENARIOS))
    found = {one["identity"]: one for report in ran for one in findings(report)}
    from draftproof.report.numbers import plural

    told = ((scenarios, "scenario"), (len(tests), "test"), (len(ran), "share"), (len(found), "finding"))
    told_scenarios, told_tests, told_shares, told_findings = (plural(number, noun) for number, noun in told)
    yield f"{told_scenarios} in {told_tests} ({told_shares}), {told_findings}"
    for test in sorted({plain(report.nodeid) for report in ran if _values(report, UNNAMED)}):
        yield f"{test}: no subject was named, so this is the built-in engine: draftproof_check(SUBJECT)"
    for test in sorted(tests):
        lacking = _lacking([report for report in ran if plain(report.nodeid) == test])
        if lacking:
            yield f"{test}: not enough was exercised to judge {', '.join(lacking)}"
    for one in found.values():
        yield f"{one['contract']}, replay: {one['replay']}"


def _counts(report: pytest.TestReport) -> bool:
    """Drop repeats: a test's properties are in each of its later reports, too."""
    return report.when == "call" or (report.when == "setup" and report.failed)


def _has_ours(report: pytest.TestReport) -> bool:
    return any(name.startswith("draftproof.") for name, _ in report.user_properties)


def _values(report: pytest.TestReport, wanted: str) -> list[str]:
    return [str(value) for name, value in report.user_properties if name == wanted]


def _lacking(shares: list[pytest.TestReport]) -> list[str]:
    """Return the contracts that no share of a test could judge; a failure is a judgement, too."""
    lacking, judged = (
        {name for report in shares for value in _values(report, wanted) for name in value.split()}
        for wanted in (LACKING, JUDGED)
    )
    return sorted(lacking - judged - {one["contract"] for report in shares for one in findings(report)})


def workflow_commands(reports: Iterable[pytest.TestReport], folder: str) -> Iterator[str]:
    """GitHub's workflow commands, one line for each finding of each test; `folder` is where the tests' paths begin."""
    from draftproof.report.workflow_commands import annotation

    for report in filter(_counts, reports):
        path, line, _ = report.location
        for one in findings(report):
            file, at = posixpath.normpath(posixpath.join(folder, path)), (line or 0) + 1
            told = f"{one['divergence']}\n{one['replay']}"
            yield annotation("error", f"Draftproof: {one['contract']}", told, file=file, line=at)
