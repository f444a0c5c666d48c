"""From an answer to the row of a finding, and from the row to its text."""

from __future__ import annotations

from typing import Any

import msgspec

from draftproof.fuzz.campaign.schema import CampaignFinding
from draftproof.fuzz.shrinking.size import rounds
from draftproof.harness.identity import Identity
from draftproof.harness.workers.messages import Answer
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.verdict import Divergence, Outcome

STABILITY = "stability"


def finding_of(answer: Answer, scenario: Scenario, number: int, at: float) -> CampaignFinding | None:
    """Return the row of what a scenario hit; None if it hit nothing."""
    identity = answer.identity
    return None if identity is None else _finding(identity, answer, scenario, number, at)


def unstable(number: int, scenario: Scenario, at: float, detail: str) -> CampaignFinding:
    """Return the row of a scenario whose second run differed: a kind of its own, whatever else it hit."""
    identity = Identity(contract=STABILITY, channel="trace", relation="two runs differ")
    answer = Answer(number=number, outcome=Outcome.FAIL, detail=detail)
    finding = _finding(identity, answer, scenario, number, at)
    return msgspec.structs.replace(finding, state="unstable", runs="1/2")


def sign_of(answer: Answer) -> str:
    """Return what two runs of one scenario must agree in."""
    identity = answer.identity
    return " ".join((answer.outcome.value, answer.digest, identity.text if identity else ""))


def _finding(identity: Identity, answer: Answer, scenario: Scenario, number: int, at: float) -> CampaignFinding:
    return CampaignFinding(
        identity=identity.text,
        slug=identity.slug,
        outcome=answer.outcome.value,
        contract=identity.contract,
        channel=identity.channel,
        phase=identity.phase,
        relation=identity.relation,
        first=number,
        at=at,
        node=answer.node,
        **described(answer, scenario),
    )


def described(answer: Answer, scenario: Scenario) -> dict[str, Any]:
    """Return the columns that follow from an answer and the size of its scenario."""
    return {
        "divergence": "" if answer.first is None else msgspec.json.encode(answer.first).decode(),
        "place": str(answer.place) if answer.place else "",
        "detail": answer.detail or (f"digest of the trace: {answer.digest}" if answer.digest else ""),
        "requests": len(scenario.requests),
        "rounds": sum(rounds(request, scenario.memory.max_len) for request in scenario.requests),
    }


def divergence_of(finding: CampaignFinding) -> Divergence | None:
    """Return the first divergence of a finding; None for a crash or a hang."""
    return msgspec.json.decode(finding.divergence, type=Divergence) if finding.divergence else None


def detail_of(finding: CampaignFinding) -> str:
    """Return the text of a finding's detail.txt."""
    found = divergence_of(finding)
    lines = (
        f"{finding.outcome} {finding.identity}",
        f"first hit by scenario {finding.first}",
        f"on {finding.node}" if finding.node else "",
        f"during {finding.place}" if finding.place else "",
        f"expected {found.expected}, got {found.got} in {found.channel}" if found else "",
        f"\n{finding.detail.rstrip()}" if finding.detail else "",
    )
    return "".join(f"{line}\n" for line in lines if line)
