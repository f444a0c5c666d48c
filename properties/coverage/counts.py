"""What was exercised: counts read off traces, without which a pass proves nothing.

`P` page size; K drafts of a round, a of them accepted, n the context length before it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable

from draftproof.properties.coverage import draft_counts, state_counts
from draftproof.properties.evidence.evidence import CAPTURE, DRAFT, EXTEND, VERIFY, Evidence
from draftproof.properties.evidence.rounds import Round, decode_rounds
from draftproof.properties.values.scenario import VARIANTS
from draftproof.properties.values.trace import Key, Trace

NAMES = (
    "scenarios",
    "requests",
    "engine_steps",
    "rounds",
    "decode_rounds",
    "draft_steps",
    "second_draft_steps",
    "verify_rows",
    "tokens_emitted",
    "drafts_accepted",
    "drafts_rejected",
    "graph_replays",
    "eager_launches",
    "padded_replays",
    "captures",
    "accept_none",
    "accept_partial",
    "accept_all",
    "accept_alternating",
    "rounds_with_drafts",
    "rounds_without_drafts",
    "drafts_after_none",
    "all_accepted_then_draft",
    "unsteered_rounds",
    "page_crossings",
    "contexts_at_page_boundary",
    "partial_accept_padded_replay",
    "partial_accept_padded_replay_at_page_boundary",
    "batch_shrinks",
    "batch_grows",
    "shrink_below_captured_size",
    "oversized_batches",
    "mixed_draft_counts",
    "no_drafts_among_drafts",
    "prefill_beside_decode",
    "chunked_prefills",
    "slot_reuses",
    "slot_reuses_by_shorter",
    "stops_in_accepted_run",
    "limits_hit",
    "exact_ties",
    "ties",
    "poison_0",
    "poison_1",
    *(f"variant_{variant}" for variant in VARIANTS),
    "taps_off_long_proposals",
    *state_counts.NAMES,
    *draft_counts.NAMES,
)
# What no scenario of a model without linear layers can reach.
HYBRID = frozenset({*state_counts.HYBRID, "variant_other_commit"})


def beyond(evidence: Evidence) -> frozenset[str]:
    """What no scenario of this model and this draft can reach. Probes are generated, so that each kind of them is
    there; real models are what they are."""
    drafts = draft_counts.beyond(evidence.form, real=not evidence.exact)
    return drafts if evidence.exact or evidence.hybrid else drafts | HYBRID


def counts(evidence: Evidence) -> dict[str, int]:
    """Every name of NAMES, 0 where nothing of the kind happened. Additive over scenarios."""
    counter = Counter(dict.fromkeys(NAMES, 0))
    counter["scenarios"] = 1
    counter["requests"] = len(evidence.scenario.requests)
    counter["ties"] = len(evidence.ties)
    counter[f"poison_{evidence.scenario.memory.poison}"] = 1
    if evidence.varied is not None and _differs(evidence, evidence.varied):
        counter[f"variant_{evidence.scenario.variant}"] = 1
        if evidence.scenario.variant == "taps_off":
            counter["taps_off_long_proposals"] = _long_proposals(evidence)
    counter.update(_batches(evidence))
    counter.update(_launches(evidence))
    rounds = tuple(decode_rounds(evidence))
    for round_ in rounds:
        counter.update(_round(evidence, round_))
    counter.update(_sequences(rounds))
    counter.update(_requests(evidence))
    counter.update(_reuses(evidence))
    counter.update(state_counts.counts(evidence, rounds))
    counter.update(draft_counts.counts(evidence, rounds))
    choices = evidence.reference.channel("verify.choice").values()
    counter["exact_ties"] = sum(isinstance(value, tuple) and value[1] == 0 for value in choices)
    return dict(counter)


def total(each: Iterable[dict[str, int]]) -> dict[str, int]:
    """The sum over scenarios, with every name present."""
    counter = Counter(dict.fromkeys(NAMES, 0))
    for one in each:
        counter.update(one)
    return dict(counter)


def _round(evidence: Evidence, round_: Round) -> Counter[str]:
    found: Counter[str] = Counter(rounds=1, decode_rounds=1, verify_rows=round_.drafts + 1)
    drafts, accepted, size = round_.drafts, round_.accepted, evidence.page_size
    found["draft_steps"] = evidence.form.forwards(drafts)
    found["second_draft_steps"] = int(evidence.form.forwards(drafts) > 1)
    found["drafts_accepted"], found["drafts_rejected"] = accepted, drafts - accepted
    partial = 0 < accepted < drafts
    found["rounds_with_drafts"] = int(drafts > 0)
    found["rounds_without_drafts"] = int(not drafts)
    found["accept_none"] = int(drafts > 0 == accepted)
    found["accept_partial"] = int(partial)
    found["accept_all"] = int(accepted == drafts > 0)
    found["unsteered_rounds"] = int(not round_.forced and drafts > 0)
    crosses = round_.context // size != (round_.context + drafts) // size
    found["page_crossings"] = int(crosses)
    found["contexts_at_page_boundary"] = int(round_.context % size == 0)
    found["partial_accept_padded_replay"] = int(partial and round_.padded)
    found["partial_accept_padded_replay_at_page_boundary"] = int(partial and round_.padded and crosses)
    return found


def _sequences(rounds: tuple[Round, ...]) -> Counter[str]:
    """What takes two rounds of one request."""
    found: Counter[str] = Counter()
    for one, other in itertools.pairwise(rounds):
        if one.request != other.request:
            continue
        found["drafts_after_none"] += int(not one.drafts and other.drafts > 0)
        found["all_accepted_then_draft"] += int(one.accepted == one.drafts > 0 and other.drafts > 1)
        both = one.drafts > 0 and other.drafts > 0
        extremes = {one.accepted == one.drafts, other.accepted == other.drafts} == {True, False}
        found["accept_alternating"] += int(both and extremes and 0 in (one.accepted, other.accepted))
    return found


def _batches(evidence: Evidence) -> Counter[str]:
    found: Counter[str] = Counter()
    found["engine_steps"] = len({row.step for row in evidence.rows})
    decode = [rows for (_, phase), rows in sorted(evidence.batches.items()) if phase]
    for before, rows in itertools.pairwise(decode):
        found["batch_shrinks"] += int(len(rows) < len(before))
        found["batch_grows"] += int(len(rows) > len(before))
        found["shrink_below_captured_size"] += int(len(rows) < min(len(before), rows[0].size))
    largest = max(evidence.scenario.graphs.sizes, default=0)
    for rows in decode:
        drafts = {row.count for row in rows}
        found["mixed_draft_counts"] += int(len(drafts) > 1)
        found["no_drafts_among_drafts"] += int(len(drafts) > 1 and 0 in drafts)
        found["oversized_batches"] += int(len(rows) > largest > 0)
        found["hybrid_oversized_batches"] += int(len(rows) > largest > 0 and evidence.hybrid)
        found["prefill_beside_decode"] += int((rows[0].step, 0) in evidence.batches)
    found["chunked_prefills"] = sum(row.phase == 0 and row.chunk == 1 for row in evidence.rows)
    return found


def _launches(evidence: Evidence) -> Counter[str]:
    found: Counter[str] = Counter()
    for launch in evidence.launches:
        found["captures"] += int(launch.kind == CAPTURE)
        if launch.kind in (DRAFT, VERIFY, EXTEND):
            found["graph_replays"] += int(launch.replays > 0)
            found["eager_launches"] += int(launch.size == 0)
            found["padded_replays"] += int(launch.replays > 0 and launch.rows < launch.size)
    return found


def _requests(evidence: Evidence) -> Counter[str]:
    """How requests ended."""
    found: Counter[str] = Counter()
    emitted = evidence.subject.channel("accept.emitted")
    accepted = evidence.subject.channel("accept.correct_len")
    found["rounds"] = sum(key.round == 0 for key in emitted)
    found["tokens_emitted"] = sum(len(value) for value in emitted.values() if isinstance(value, tuple))
    for index, (request, script) in enumerate(zip(evidence.scenario.requests, evidence.script.requests, strict=True)):
        key = Key(index, len(script.rounds))
        last, correct = emitted.get(key), accepted.get(key)
        stopped = script.tokens[-1] in script.stop
        if stopped and isinstance(last, tuple) and isinstance(correct, int):
            found["stops_in_accepted_run"] += int(len(last) <= correct)
        length = min(request.budget, evidence.scenario.memory.max_len - len(request.prompt))
        found["limits_hit"] += int(len(script.tokens) == length)
    return found


def _reuses(evidence: Evidence) -> Counter[str]:
    """Pages that a second request came to own."""
    owners: dict[int, list[int]] = {}
    for row in evidence.rows:
        for page in evidence.table_at(row).values():
            held = owners.setdefault(page, [])
            if row.request not in held:
                held.append(row.request)
    found: Counter[str] = Counter()
    lengths = [len(one.prompt) + len(two.tokens) for one, two in _zipped(evidence)]
    for requests in owners.values():
        for one, other in itertools.pairwise(requests):
            found["slot_reuses"] += 1
            found["slot_reuses_by_shorter"] += int(lengths[other] < lengths[one])
    return found


def _zipped(evidence: Evidence) -> Iterable[tuple]:
    return zip(evidence.scenario.requests, evidence.script.requests, strict=True)


_SHOWS = {"rows_permuted": "round.rows", "pages_permuted": "round.table"}


def _differs(evidence: Evidence, other: Trace) -> bool:
    """Whether the variant run was another run at all: rows and pages that did not move prove nothing."""
    channel = _SHOWS.get(evidence.scenario.variant)
    return channel is None or evidence.subject.channel(channel) != other.channel(channel)


def _long_proposals(evidence: Evidence) -> int:
    """Rounds in which three drafts and more of the draft's own were verified."""
    rounds = (round_ for request in evidence.script.requests for round_ in request.rounds)
    return sum(round_.forced is None and round_.drafts >= 3 for round_ in rounds)
