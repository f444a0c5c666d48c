"""What a scenario and each of its requests were, as values of coverpoints."""

from __future__ import annotations

from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.values.drafts import Mtp, algorithm
from draftproof.properties.values.scenario import ProbeModel

_NEED_SIZES = frozenset({"graph_vs_eager", "padded_vs_exact", "other_bucket"})
# Where such a variant must have changed something: rows and pages that did not move prove nothing.
_SHOWS = {"rows_permuted": "round.rows", "pages_permuted": "round.table"}


def scenario_facts(evidence: Evidence) -> dict[str, str | None]:
    """The coverpoints of a whole scenario."""
    scenario, size = evidence.scenario, evidence.page_size
    linear = scenario.model.linear if isinstance(scenario.model, ProbeModel) else None
    return {
        "draft": algorithm(scenario.draft),
        "layers": scenario.states.commit if evidence.hybrid else "dense",
        "page size": str(size) if size < 5 else "5 and more",
        "variant": _variant(evidence),
        "taps": "off" if not scenario.taps else "on and off" if scenario.variant == "taps_off" else "on",
        "poison": str(scenario.memory.poison),
        "control": _control(evidence),
        "start": ("other" if linear.start else "zero") if linear else None,
        "chain": _chain(evidence),
    }


def request_facts(evidence: Evidence) -> list[dict[str, str | None]]:
    """The coverpoints of every request by itself."""
    pages, states = _pages(evidence), _states(evidence)
    joined = {row.request for row in evidence.rows if not row.phase and (row.step, 1) in evidence.batches}
    found = []
    for index, request in enumerate(evidence.scenario.requests):
        first = evidence.spans.get(index, (request.arrival, 0))[0]
        found.append(
            {
                "end": _end(evidence, index),
                "pages": pages.get(index),
                "state": states.get(index),
                "chunks": _chunks(len(request.prompt), evidence.scenario.schedule.chunk),
                "joined": "beside decode" if index in joined else "alone",
                "waited": "yes" if first > request.arrival else "no",
            }
        )
    return found


def _variant(evidence: Evidence) -> str | None:
    """None if the variant run was no other run."""
    variant, other = evidence.scenario.variant, evidence.varied
    if variant == "none":
        return variant
    if other is None or (variant in _NEED_SIZES and not evidence.scenario.graphs.sizes):
        return None
    channel = _SHOWS.get(variant)
    moved = channel is None or evidence.subject.channel(channel) != other.channel(channel)
    return variant if moved else None


def _control(evidence: Evidence) -> str:
    scenario = evidence.scenario
    if scenario.adaptive is None:
        return "draft batch" if scenario.schedule.draft_batch else "fixed"
    return "adaptive and draft batch" if scenario.schedule.draft_batch else "adaptive"


def _chain(evidence: Evidence) -> str | None:
    if not evidence.form.chained:
        return None
    layers, draft = evidence.form.layers, evidence.scenario.draft
    if layers == 1:
        return "one layer"
    if isinstance(draft, Mtp) and not draft.chain:
        return "unchained"
    return "layers to spare" if layers > evidence.scenario.steps else "chained"


def _end(evidence: Evidence, index: int) -> str | None:
    request, script = evidence.scenario.requests[index], evidence.script.requests[index]
    if not script.tokens:
        return None
    stopped = script.tokens[-1] in script.stop
    if not script.rounds:
        return "stop at prefill" if stopped else "at prefill"
    spent = len(script.tokens) == request.budget
    if not stopped:
        return "budget" if spent else "max_len"
    if spent:
        return "stop on budget"
    last = script.rounds[-1]
    return "stop in run" if len(last.emitted) <= last.correct_len else "stop as bonus"


def _lengths(evidence: Evidence) -> list[int]:
    """Tokens of every request at its end."""
    both = zip(evidence.scenario.requests, evidence.script.requests, strict=True)
    return [len(request.prompt) + len(script.tokens) for request, script in both]


def _pages(evidence: Evidence) -> dict[int, str]:
    """Whether a request had pages that another had before it; the longest of those counts."""
    lengths = _lengths(evidence)
    owner: dict[int, int] = {}
    found: dict[int, str] = {row.request: "fresh" for row in evidence.rows}
    for row in evidence.rows:
        for page in evidence.table_at(row).values():
            last = owner.get(page, row.request)
            owner[page] = row.request
            if last != row.request and found[row.request] != "after longer":
                found[row.request] = _after(lengths, last, row.request)
    return found


def _states(evidence: Evidence) -> dict[int, str]:
    """Likewise for the slot of the recurrent state."""
    if not evidence.hybrid:
        return {}
    lengths = _lengths(evidence)
    owner: dict[int, int] = {}
    found: dict[int, str] = {}
    for request in sorted(evidence.spans, key=lambda one: evidence.spans[one]):
        slot = evidence.state_slot(request, 0)
        if slot is not None:
            found[request] = _after(lengths, owner[slot], request) if slot in owner else "fresh"
            owner[slot] = request
    return found


def _after(lengths: list[int], one: int, other: int) -> str:
    return "after longer" if lengths[one] > lengths[other] else "after shorter"


def _chunks(length: int, chunk: int) -> str:
    if length <= chunk:
        return "one"
    return {0: "full", 1: "tail of one"}.get(length % chunk, "short tail")
