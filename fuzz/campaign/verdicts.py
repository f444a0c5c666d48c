"""What a campaign says of each contract, from the sums that it keeps."""

from __future__ import annotations

from collections.abc import Mapping

from draftproof.fuzz.campaign.settings import Settings
from draftproof.fuzz.campaign.sums import CampaignSums, Reached
from draftproof.properties.contracts.base import Contract
from draftproof.properties.contracts.registry import ALL
from draftproof.properties.coverage.counts import unreached
from draftproof.properties.coverage.covered import unreachable_by_draft
from draftproof.properties.coverage.shown import observation_gaps
from draftproof.properties.evidence.forms import Form
from draftproof.properties.judge import COMMON, REAL, RUNS_CONTRACT, WORK, too_many_ties
from draftproof.properties.values.drafts import DRAFT_CHANNELS, DRAFT_KINDS_BY_NAME, Algorithm
from draftproof.properties.values.subject_choice import BUILT_IN_SUBJECT
from draftproof.properties.values.verdict import Outcome, Verdict, worst

_BROKEN = (Outcome.ERROR, Outcome.CRASH, Outcome.HANG)


def verdicts(sums: CampaignSums, settings: Settings) -> tuple[Verdict, ...]:
    """Return `runs`, one `runs.<draft>` each, and one a contract, as `check` gives them.

    FAIL, INCONCLUSIVE where a minimum was not reached or nothing was judged, PASS, and SKIP for what no scenario of
    these drafts can show. What the scenarios say that they cannot reach, by their model, draft or subject, is not
    demanded.
    """
    each = [_of_draft(name, sums, settings) for name in settings.drafts]
    beyond = _beyond(sums, settings)
    contracts = (_contract(contract, sums, settings, beyond) for contract in ALL)
    return (_runs(sums, beyond), *each, *contracts)


def _runs(sums: CampaignSums, beyond: frozenset[str]) -> Verdict:
    """Whether every scenario ran to its end, whether it was seen, and whether there was work in them."""
    broken = {outcome: sums.outcomes[outcome] for outcome in _BROKEN if sums.outcomes[outcome]}
    if broken:
        told = ", ".join(f"{count} {outcome}" for outcome, count in broken.items())
        reason = f"{told} of {sums.done}"
        return Verdict(name=RUNS_CONTRACT, verdict=worst(list(broken)), scenarios=sums.done, reason=reason)
    missing = (*unreached(WORK, sums.counts, beyond), *observation_gaps(sums.counts, sums.channels).missing)
    verdict = Outcome.INCONCLUSIVE if missing or not sums.done else Outcome.PASS
    return Verdict(name=RUNS_CONTRACT, verdict=verdict, scenarios=sums.done, missing=missing)


def _of_draft(name: Algorithm, sums: CampaignSums, settings: Settings) -> Verdict:
    """Whether the scenarios of one draft reached what proves something of it."""
    counts = {count: one.value for (draft, count), one in sums.draft_counts.items() if draft == name}
    common = REAL if settings.model else COMMON
    missing = unreached((*common, *DRAFT_KINDS_BY_NAME[name].minimum), counts, _beyond_draft(name, sums))
    verdict = Outcome.INCONCLUSIVE if missing else Outcome.PASS
    return Verdict(
        name=f"{RUNS_CONTRACT}.{name}", verdict=verdict, scenarios=counts.get("scenarios", 0), missing=missing
    )


def _contract(contract: Contract, sums: CampaignSums, settings: Settings, beyond: frozenset[str]) -> Verdict:
    judged, failed = sums.contracts.get(contract.name, (0, 0))
    if failed:
        reason = f"{failed} of {judged}"
        return Verdict(name=contract.name, verdict=Outcome.FAIL, scenarios=judged, reason=reason)
    if not judged and (why := _silent(contract, sums, settings, beyond)):
        return Verdict(name=contract.name, verdict=Outcome.SKIP, scenarios=0, reason=why)
    seen = {name: one for (of, name), one in sums.minimums.items() if of == contract.name}
    reached = {name: one.value for name, one in seen.items()}
    missing = unreached(contract.minimum, reached, beyond | _never(seen, judged))
    if not judged:
        missing = missing or ("scenarios >= 1",)
    missing = (*missing, *too_many_ties(contract, reached))
    verdict = Outcome.INCONCLUSIVE if missing else Outcome.PASS
    return Verdict(name=contract.name, verdict=verdict, scenarios=judged, missing=missing)


def _silent(contract: Contract, sums: CampaignSums, settings: Settings, beyond: frozenset[str]) -> str:
    """Why no scenario of this campaign can be held to a contract; "" if one can."""
    asked = contract.needs | contract.reads
    if not any(_reports(contract, name) for name in settings.drafts):
        return f"the draft does not report {', '.join(sorted(asked & DRAFT_CHANNELS))}"
    if sums.channels and not contract.fits(sums.channels):
        return f"the subject does not report {', '.join(sorted(asked - sums.channels))}"
    unreachable = sorted(beyond.intersection(contract.minimum))
    if unreachable:
        return f"no scenario of this model, draft and subject has {', '.join(unreachable)}"
    return "no run of this subject could be held to it" if settings.subject != BUILT_IN_SUBJECT else ""


def _reports(contract: Contract, draft: Algorithm) -> bool:
    """Whether a run with this draft reports what a contract needs, as far as that is the draft's."""
    lacking = DRAFT_CHANNELS - DRAFT_KINDS_BY_NAME[draft].tapped
    if contract.whole:
        return not (contract.needs | contract.reads) & lacking
    return bool(contract.needs - lacking)


def _beyond(sums: CampaignSums, settings: Settings) -> frozenset[str]:
    """Return the counts that no scenario of this campaign can reach."""
    return frozenset.intersection(*(_beyond_draft(name, sums) for name in settings.drafts))


def _beyond_draft(name: Algorithm, sums: CampaignSums) -> frozenset[str]:
    """Return the counts that no scenario with a draft can reach, all that were judged say so, or the draft alone."""
    seen = {count: one for (draft, count), one in sums.draft_counts.items() if draft == name}
    judged = seen.get("scenarios", Reached()).value
    return unreachable_by_draft(Form(DRAFT_KINDS_BY_NAME[name], 1), real=False) | _never(seen, judged)


def _never(seen: Mapping[str, Reached], judged: int) -> frozenset[str]:
    return frozenset(name for name, one in seen.items() if 0 < judged <= one.beyond)
