"""Judge evidence: from a run's traces to verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as replace_

from msgspec.structs import replace

from draftproof.properties.contracts.base import Contract
from draftproof.properties.contracts.registry import ALL
from draftproof.properties.coverage.counts import total, unreached
from draftproof.properties.coverage.covered import not_covered, unreachable
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.lib.errors import require_input
from draftproof.properties.values.channel import PHASES
from draftproof.properties.values.channels import TAPPED
from draftproof.properties.values.drafts import ALGORITHMS, DRAFT_KINDS_BY_NAME, algorithm
from draftproof.properties.values.observed import LaunchKind, LaunchRecord
from draftproof.properties.values.trace import MalformedTraceError
from draftproof.properties.values.verdict import Divergence, Outcome, Verdict

# A real model may differ at this many exact-looking ties in a thousand tokens before nothing can be concluded.
TIES_PER_THOUSAND = 2
# A text with more tokens that were not the best of their row proves little about an engine (S-TEXT-4).
TOKEN_TIES_PER_THOUSAND = 20
TIES = ("ties", "token_ties", "tokens_emitted")
"""The counts by which too many of them are seen."""
UNCONCERNED = "it concerns none of these scenarios"
RUNS_CONTRACT = "runs"
"""The name under which a report says whether the subject ran at all."""
_WORK = """
    rounds graph_replays drafts_accepted drafts_rejected accept_none accept_partial accept_all page_crossings
    batch_shrinks states_committed_partial step_switches_up
"""
WORK = tuple(_WORK.split())
"""Counts that prove that work was done: a check without any of these proves nothing, even if all contracts hold."""
REAL = ("scenarios", "rounds_with_drafts", "accept_none", "accept_all")
"""What each draft of a real model must reach: it has a budget of a few scenarios."""
_WRITES = {
    # What it wrote is what arrived: that says more.
    LaunchKind.INSTALL: "draft",
    LaunchKind.PREFILL: "verify",
    LaunchKind.VERIFY: "verify",
    LaunchKind.MIXED: "verify",
    LaunchKind.DRAFT: "draft",
    LaunchKind.COMMIT: "commit",
    LaunchKind.FINISH: "commit",
    LaunchKind.KEEP: "commit",
    LaunchKind.RESTORE: "commit",
    LaunchKind.EXTEND: "extend",
    LaunchKind.EXTEND_PROMPT: "extend",
}

_COMMON = """
    scenarios rounds_with_drafts accept_none accept_partial accept_all rounds_without_drafts unsteered_rounds
    padded_replays page_crossings shrink_below_captured_size chunked_prefills
"""
COMMON = tuple(_COMMON.split())
"""Counts that the scenarios of every draft must reach on their own: scenarios of another draft prove nothing of it."""


@dataclass(frozen=True)
class Judgement:
    """The results of every contract that applies to one scenario; `first` is the earliest divergence.

    `unreachable` are the counts that no scenario of this model and draft can reach, or that this subject cannot show.
    `draft` is its algorithm. `applying` are the channels on which the reference has something, or would have; `defined`
    adds the channels that are never reported without taps.
    """

    results: Mapping[str, Divergence | None]
    first: Divergence | None
    channels: frozenset[str]
    unreachable: frozenset[str] = frozenset()
    draft: str = ""
    applying: frozenset[str] = frozenset()
    defined: frozenset[str] = frozenset()

    @property
    def left_out(self) -> frozenset[str]:
        return self.applying - self.channels

    @property
    def passed(self) -> bool:
        """Return whether a contract held and none failed: nothing passes of which nothing was judged."""
        return self.first is None and bool(self.results)


def judge(evidence: Evidence, contracts: Iterable[Contract] = ALL) -> Judgement:
    """Hold one scenario's traces to the contracts that apply to them; the variant run to the same ones.

    Raises MalformedTraceError for a trace that passes, and says nothing in a channel that its subject declares.
    """
    require_input(isinstance(evidence, Evidence), "evidence", evidence, "an Evidence, as run() returns it")
    contracts = tuple(contracts)
    if evidence.ranks:
        return _of_ranks(evidence, contracts)
    results = _results(evidence, contracts)
    failed = [found for found in results.values() if found]
    first = _first(evidence, failed)
    if evidence.varied is not None:
        other = evidence.variant_run
        beside = _results(other, contracts)
        results = {name: results.get(name) or beside.get(name) for name in (*results, *beside)}
        if first is None or first.contract.startswith("variant."):
            first = _first(other, [found for found in beside.values() if found]) or first
    if first is None and evidence.silent:
        raise MalformedTraceError(
            f"the trace has no observation of {', '.join(sorted(evidence.silent))}, which its subject declares and the"
            " reference has"
        )
    return Judgement(
        results=results,
        first=first,
        channels=evidence.subject.channels,
        unreachable=unreachable(evidence) | not_covered(evidence.limits, evidence.subject.channels),
        draft=algorithm(evidence.scenario.draft),
        applying=evidence.reference.channels - (frozenset() if evidence.scenario.taps else TAPPED),
        defined=evidence.reference.channels,
    )


def _of_ranks(evidence: Evidence, contracts: tuple[Contract, ...]) -> Judgement:
    """Return what the contracts say of each rank, as one judgement: the first divergence is the earliest of all."""
    judged = [judge(replace_(one, ranks=()), contracts) for one in evidence.ranks]
    results: dict[str, Divergence | None] = {}
    firsts: list[tuple[tuple[int, ...], Divergence]] = []
    for rank, (one, of_rank) in enumerate(zip(evidence.ranks, judged, strict=True)):
        for name, found in of_rank.results.items():
            results[name] = results.get(name) or (found and replace(found, rank=rank))
        if of_rank.first:
            firsts.append((_causal(one, of_rank.first), replace(of_rank.first, rank=rank)))
    return replace_(
        judged[0],
        results=results,
        first=min(firsts, key=lambda one: one[0])[1] if firsts else None,
        unreachable=frozenset.intersection(*(one.unreachable for one in judged)),
    )


def _results(evidence: Evidence, contracts: tuple[Contract, ...]) -> dict[str, Divergence | None]:
    results: dict[str, Divergence | None] = {}
    for contract in contracts:
        if contract.applies(evidence):
            found = min(contract.check(evidence), key=lambda one: evidence.order(one.channel, one.key), default=None)
            results[contract.name] = found and replace(found, output_changed=evidence.output_changed)
    return results


def summarise(
    judgements: Iterable[Judgement], counts: Sequence[Mapping[str, int]], contracts: Iterable[Contract] = ALL
) -> tuple[Verdict, ...]:
    """Return a verdict a contract: FAIL with the first divergence, INCONCLUSIVE if a minimum was not reached, or PASS.

    `counts` has the counts of each judged scenario. A contract's minimum applies to the scenarios that it judged.
    """
    judged = tuple(judgements)
    pairs = tuple(zip(judged, counts, strict=True))
    verdicts = []
    for contract in contracts:
        concerned = [own for one, own in pairs if contract.name in one.results]
        # Of some hundred counts a contract asks for a few.
        asked = {name: sum(own.get(name, 0) for own in concerned) for name in (*contract.minimum, *TIES)}
        verdicts.append(_verdict(contract, judged, asked))
    return tuple(verdicts)


def skipped_where_unconcerned(verdicts: Iterable[Verdict]) -> tuple[Verdict, ...]:
    """Return the verdicts of scenarios that were chosen; a contract that concerns none of them is skipped there."""
    return tuple(
        replace(one, verdict=Outcome.SKIP, missing=(), reason=UNCONCERNED)
        if one.verdict is Outcome.INCONCLUSIVE and not one.scenarios
        else one
        for one in verdicts
    )


def _verdict(contract: Contract, judged: tuple[Judgement, ...], counts: Mapping[str, int]) -> Verdict:
    results = [one.results[contract.name] for one in judged if contract.name in one.results]
    failed = [result for result in results if result]
    if failed:
        return Verdict(name=contract.name, verdict=Outcome.FAIL, scenarios=len(results), divergence=failed[0])
    fits = not judged or any(contract.fits(one.channels) for one in judged)
    defined = frozenset().union(*(one.defined for one in judged))
    lacking = [] if fits else sorted((contract.needs | contract.reads) & defined - judged[0].channels)
    if lacking:
        reason = f"the subject does not report {', '.join(lacking)}"
        return Verdict(name=contract.name, verdict=Outcome.SKIP, scenarios=0, reason=reason)
    unreachable = _unreachable([one for one in judged if contract.name in one.results] or judged)
    beyond = sorted(unreachable.intersection(contract.minimum))
    if not results and beyond:
        reason = f"no scenario of this model and draft has {', '.join(beyond)}"
        return Verdict(name=contract.name, verdict=Outcome.SKIP, scenarios=0, reason=reason)
    if not fits:
        return Verdict(name=contract.name, verdict=Outcome.SKIP, scenarios=0, reason=UNCONCERNED)
    missing = unreached(contract.minimum, counts, unreachable)
    if not results:
        missing = missing or ("scenarios >= 1",)
    missing = (*missing, *too_many_ties(contract, counts))
    outcome = Outcome.INCONCLUSIVE if missing else Outcome.PASS
    return Verdict(name=contract.name, verdict=outcome, scenarios=len(results), missing=missing)


def too_many_ties(contract: Contract, counts: Mapping[str, int]) -> tuple[str, ...]:
    """Return in words which share of ties is too large, if one is; `counts` has the counts named in TIES."""
    ties, most = ("ties", TIES_PER_THOUSAND) if contract.by_round else ("token_ties", TOKEN_TIES_PER_THOUSAND)
    too_many = counts.get(ties, 0) * 1000 > most * counts.get("tokens_emitted", 0)
    return (f"{ties} <= {most} per 1000 tokens",) if too_many else ()


def _unreachable(judged: Sequence[Judgement]) -> frozenset[str]:
    """Return the counts that none of these scenarios could have reached."""
    return frozenset.intersection(*(one.unreachable for one in judged)) if judged else frozenset()


def by_draft(
    judgements: Iterable[Judgement],
    counts: Sequence[Mapping[str, int]],
    *,
    wanted: Iterable[str] = (),
    common: Sequence[str] = COMMON,
) -> tuple[Verdict, ...]:
    """Return a verdict an algorithm, `runs.<algorithm>`: INCONCLUSIVE unless its own scenarios reached enough.

    That is `common` and the minimum of its kind (values/drafts.py), as far as they can be reached. `counts` are those
    of each judged scenario. `wanted` names the algorithms; empty: those that occur.
    """
    pairs = tuple(zip(judgements, counts, strict=True))
    names = tuple(wanted) or tuple(name for name in ALGORITHMS if any(one.draft == name for one, _ in pairs))
    verdicts = []
    for name in names:
        own = [one for one, _ in pairs if one.draft == name]
        reached = total(dict(of) for one, of in pairs if one.draft == name)
        missing = unreached((*common, *DRAFT_KINDS_BY_NAME[name].minimum), reached, _unreachable(own))
        outcome = Outcome.INCONCLUSIVE if missing or not own else Outcome.PASS
        verdicts.append(Verdict(name=f"runs.{name}", verdict=outcome, scenarios=len(own), missing=missing))
    return tuple(verdicts)


def _first(evidence: Evidence, failed: list[Divergence]) -> Divergence | None:
    """Return the earliest of all: by engine step, then as in the channel table.

    What a launch wrote astray comes before whatever was wrong from its phase on, save for the positions and slots of
    that very phase: those are where it came from.
    """
    written = [found for found in failed if found.channel == "commit.written"]
    others = sorted((found for found in failed if found not in written), key=lambda found: _causal(evidence, found))
    first = others[0] if others else None
    for found in sorted(written, key=lambda found: _causal(evidence, found)):
        place = _causal(evidence, found)[:3]
        rows = [other for other in others if _causal(evidence, other)[:3] == place]
        explained = any(other.channel.endswith((".positions", ".slots")) for other in rows)
        if first is None or (place <= _causal(evidence, first)[:3] and not explained):
            return found
    return first


def _causal(evidence: Evidence, found: Divergence) -> tuple[int, ...]:
    """Return the order across requests: (variant, engine step, phase, step, layer, rank, request, row).

    A variant's divergence names the pair, not the cause: it comes after any contract with the reference.
    """
    at, phase, *rest = evidence.order(found.channel, found.key)
    if found.channel == "commit.written":
        launch = evidence.subject.typed("graph.replay", LaunchRecord).get(found.key)
        phase = PHASES.index(_WRITES.get(launch.kind if launch else LaunchKind.VERIFY, "plan"))
    return (int(found.contract.startswith("variant.")), at, phase, *rest)
