"""Verdicts of the contracts, by the sums that a campaign's store keeps."""

from __future__ import annotations

from draftproof.fuzz.campaign.verdicts import verdicts
from draftproof.properties.values.base import Value
from draftproof.properties.values.verdict import Outcome
from draftproof.report.html.source import RunSource


class ContractRow(Value, frozen=True, kw_only=True):
    """One contract: scenarios that it judged, how many failed, the minimums that were not reached, and why else."""

    name: str
    verdict: Outcome
    judged: int
    failed: int
    missing: tuple[str, ...] = ()
    reason: str = ""


def judged(source: RunSource) -> tuple[ContractRow, ...]:
    """Return the verdicts as the campaign itself gives them, worst first."""
    found = [
        ContractRow(
            name=one.name,
            verdict=one.verdict,
            judged=one.scenarios,
            failed=source.sums.contracts.get(one.name, (0, 0))[1],
            missing=one.missing,
            reason=one.reason,
        )
        for one in verdicts(source.sums, source.settings)
    ]
    return tuple(sorted(found, key=lambda one: list(Outcome).index(one.verdict)))
