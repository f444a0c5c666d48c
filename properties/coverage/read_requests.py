"""Read the scenario and its requests off evidence."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from draftproof.properties.coverage.points import OF_ENTRIES
from draftproof.properties.coverage.read_handovers import handover_of, read_handovers
from draftproof.properties.coverage.read_memory import read_cache, read_memory
from draftproof.properties.coverage.read_mixed import read_mixed
from draftproof.properties.coverage.read_overlap import read_overlap
from draftproof.properties.coverage.read_step_tokens import read_step_tokens
from draftproof.properties.coverage.samples import RequestSample, RunSample
from draftproof.properties.coverage.shown import drafts_seen
from draftproof.properties.evidence.ends import STOPS, count_ends, ended_by, sequence_at_end
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.evidence.rank_counts import rank_counts, tensor_counts
from draftproof.properties.evidence.tolerances import is_right_token
from draftproof.properties.values.drafts import Eagle, Mtp, algorithm
from draftproof.properties.values.observed import TokenIds
from draftproof.properties.values.scenario import AdaptiveByBatch, ProbeModel, Request, Scenario, delta_of
from draftproof.properties.values.trace import Key
from draftproof.properties.variants import NEED_SIZES

# Variants that must show in a channel: rows and pages that did not move prove nothing.
_SHOWN_IN = {"rows_permuted": "round.rows", "pages_permuted": "round.table"}
_FORMATS = {64: "whole", 16: "16 bits", 8: "8 bits"}
_SMALL_VOCAB = 61
_LENGTHS = (8, 16, 32, 64, 128, 256, 512)


def read_run(evidence: Evidence) -> RunSample:
    """Return the sample of the whole scenario."""
    scenario, size = evidence.scenario, evidence.page_size
    linear = scenario.model.linear if isinstance(scenario.model, ProbeModel) else None
    changed = _changed(evidence)
    runs_as_base = changed in NEED_SIZES and not scenario.graphs.sizes
    choices = evidence.reference.choices("verify.choice").values()
    extends, first_layer, replaced = _chain_counts(evidence)
    ranks = {**rank_counts(evidence), **tensor_counts(evidence)}
    return RunSample(
        draft=algorithm(scenario.draft),
        layers=scenario.states.commit if evidence.hybrid else "dense",
        page_size=str(size) if size < 5 else "5 to 7" if size < 8 else "8 and more",
        variant=None
        if runs_as_base or changed != scenario.variant or changed in ("chain_as_tree", "alone")
        else changed,
        taps="off" if not scenario.taps else "on and off" if scenario.variant == "taps_off" else "on",
        poison=str(scenario.memory.poison),
        control=_control(evidence),
        start=("other" if linear.start else "zero") if linear else None,
        chain=_chain(evidence),
        **_of_entries(scenario),
        **_equal_sizes(scenario),
        **read_cache(evidence),
        vocabulary_size="to 61" if scenario.model.vocab <= _SMALL_VOCAB else "more",
        form=evidence.form,
        changed=changed,
        is_by_batch=isinstance(scenario.adaptive, AdaptiveByBatch),
        steps=scenario.steps,
        engine_steps=len({row.step for row in evidence.schedule.rows}),
        ties=len(evidence.ties) + sum(map(len, evidence.draft_ties.values())),
        token_ties=_token_ties(evidence),
        exact_ties=sum(not margin for _, margin in choices),
        chained_extends=extends,
        first_layer_extends=first_layer,
        guesses_replaced=replaced,
        is_shown=bool(evidence.subject.observations),
        has_text=bool(evidence.subject.channel("accept.emitted"))
        or not any(one.tokens for one in evidence.script.requests),
        drafts_seen=drafts_seen(evidence.subject),
        is_sampled=evidence.scenario.is_sampled,
        is_constrained=evidence.scenario.is_constrained,
        prefixes=evidence.prefixes.counts if evidence.scenario.schedule.prefix_cache else {},
        step_tokens=read_step_tokens(evidence),
        mixed=read_mixed(evidence),
        overlap=read_overlap(evidence),
        handovers=read_handovers(evidence),
        windows=_windows(scenario),
        entries=_FORMATS.get(getattr(scenario.model, "kv_bits", 0)),
        draft_entries=_FORMATS.get(getattr(scenario.draft, "kv_bits", 0)),
        unequal_windows=0 < getattr(scenario.draft, "window", 0) != getattr(scenario.model, "window", 0) > 0,
        ranks=ranks,
        lockstep=_lockstep(ranks),
    )


def _lockstep(ranks: Mapping[str, int]) -> str:
    """Return what a rank was beside others."""
    if not ranks:
        return "alone"
    if "tensor_ranks_run" in ranks:
        return "in parts"
    if ranks["idle_steps"]:
        return "idle"
    return "padded" if ranks["agreed_rows"] or ranks["agreed_tokens"] else "largest"


def _token_ties(evidence: Evidence) -> int:
    """Count the tokens of real texts that are right, and not the best (S-TEXT-4)."""
    gaps = (gap for of_text in evidence.reference.token_gaps.values() for gap in of_text)
    return sum(gap.below > 0 and is_right_token(evidence.scenario, gap) for gap in gaps)


def read_requests(evidence: Evidence, run: RunSample) -> tuple[RequestSample, ...]:
    """Return a sample of every request."""
    lengths = _lengths(evidence)
    pages, states = _page_owners(evidence), _state_owners(evidence)
    joined = {
        row.request for row in evidence.schedule.rows if not row.phase and (row.step, 1) in evidence.schedule.batches
    }
    chunked = {row.request for row in evidence.schedule.rows if not row.phase and row.chunk == 1}
    again = [row for row in evidence.schedule.rows if (row.request, row.round) in evidence.schedule.resumed]
    emitted = evidence.subject.typed("accept.emitted", TokenIds)
    finals = {key.request for key in evidence.subject.channel("commit.final")}
    unfolded = [key.request for key in evidence.subject.channel("commit.unfolded") if key.round]
    tokens = [(key.request, len(value)) for key, value in emitted.items()]
    has_images = getattr(evidence.scenario.model, "mrope", False)
    freed, scenario_frees = _freed(evidence), evidence.scenario.widest_window > 0
    samples = []
    for index, (request, script) in enumerate(zip(evidence.scenario.requests, evidence.script.requests, strict=True)):
        before = pages.get(index, [])
        length = min(request.budget, evidence.scenario.memory.max_len - len(request.prompt))
        first = evidence.schedule.spans.get(index, (request.arrival, 0))[0]
        ends = frozenset(count_ends(evidence.scenario, index, script))
        samples.append(
            RequestSample(
                run=run,
                end=_end(evidence, index),
                pages=_after(lengths, before, index) if index in evidence.schedule.spans else None,
                state=_after(lengths, states[index], index) if index in states else None,
                chunks=_chunks(len(request.prompt), evidence.scenario.schedule.chunk),
                length=_power(lengths[index]),
                stops=("none", "one", "several")[min(len(script.stop), 2)],
                stopped_by=_stopped_by(script.tokens, script.stop),
                joined="beside decode" if index in joined else "alone",
                waited="yes" if first > request.arrival else "no",
                is_admitted_before_others=first > request.arrival and _is_before_others(evidence, index),
                reuses=len(before),
                shorter_reuses=sum(lengths[index] < lengths[one] for one in before),
                is_prefilled=Key(index, 0) in emitted,
                is_chunked=index in chunked,
                aborted=_aborted(evidence, index),
                is_aborted_before_others=_is_aborted_before_others(evidence, index),
                is_aborted_on_served_pages=_is_aborted_on_served_pages(evidence, index),
                **read_memory(evidence, index)._asdict(),
                preemptions=max(
                    (one for place, one in evidence.schedule.attempts.items() if place[0] == index), default=0
                ),
                resumed_in_chunks=sum(row.request == index and row.chunk == 1 for row in again),
                ends_across_resume="ends_by_sequence" in ends and _is_across_resume(evidence, index),
                tokens=sum(count for owner, count in tokens if owner == index),
                is_text_settled=evidence.scenario.requests[index].sampling is None or not evidence.scenario.dynamic,
                stops_in_run=_stops_in_run(evidence, index),
                is_at_limit=len(script.tokens) == length,
                prompt_logprobs=_told_of_prompt(evidence, index, is_chunked=index in chunked),
                zero_tails=_zero_tails(request, evidence.scenario.schedule.chunk),
                has_final_state=index in finals,
                flushes=unfolded.count(index),
                ended_by=ended_by(evidence.scenario, index, script),
                sequence=_sequence(ends) if script.sequences else None,
                ends=ends,
                freed=("yes" if freed.get(index) else "no") if scenario_frees else None,
                handover=handover_of(evidence, index),
                images=("none", "one", "several")[min(len(request.images), 2)] if has_images else None,
                delta=delta_of(len(request.prompt), request.images),
                cuts_image=_cuts_image(request, evidence.scenario.schedule.chunk),
                pages_freed=freed.get(index, 0),
                beyond_window=0 < getattr(evidence.scenario.model, "window", 0) < len(request.prompt),
            )
        )
    return tuple(samples)


def _cuts_image(request: Request, chunk: int) -> bool:
    """Return whether a chunk of a prompt ends within an image."""
    ends = range(chunk, len(request.prompt), chunk)
    return any(image.start < end < image.end for image in request.images for end in ends)


def _windows(scenario: Scenario) -> str | None:
    """Return whose layers have windows; None of a real model."""
    if not isinstance(scenario.model, ProbeModel):
        return None
    target, draft = scenario.model.window > 0, getattr(scenario.draft, "window", 0) > 0
    return ("none", "target's", "draft's", "both")[target + 2 * draft]


def _freed(evidence: Evidence) -> dict[int, int]:
    """Return request -> the pages that it no longer had in its last round, as its tables say."""
    if not evidence.scenario.widest_window:
        return {}
    return {
        request: min(table, default=0)
        for (request, round_), table in sorted(evidence.tables.pages.items())
        if round_ and (request, round_) not in evidence.schedule.resumed
    }


def _equal_sizes(scenario: Scenario) -> dict[str, str | None]:
    """Return whether sizes are equal that differ in most probes; None for what has no such sizes."""
    model, lanes = scenario.model, getattr(scenario.draft, "lanes", None)
    if not isinstance(model, ProbeModel):
        return {"keys": None, "state_shape": None, "draft_width": None}
    linear = model.linear
    return {
        "keys": "as values" if model.key_dim == model.value_dim else "other than values",
        "state_shape": None if linear is None else "square" if linear.key_dim == linear.value_dim else "oblong",
        "draft_width": None if lanes is None else "target's" if lanes == model.lanes else "other",
    }


def _power(length: int) -> str:
    """Return the bin of a length, up to a power of two."""
    return next((f"to {most}" for most in _LENGTHS if length <= most), "more")


def _stopped_by(tokens: Sequence[int], stop: Sequence[int]) -> str | None:
    """Return which of its stop tokens ended a request, None if none did."""
    if not tokens or tokens[-1] not in stop:
        return None
    return "only one" if len(stop) == 1 else "lowest" if tokens[-1] == min(stop) else "higher"


def _sequence(ends: frozenset[str]) -> str:
    """Return what became of the stop sequences of a request, by the counts of its end."""
    effects = {
        "sequences_across_rounds": "across rounds",
        "ends_by_sequence": "in one round",
        "sequences_before_minimum": "before minimum",
        "sequences_from_prompt": "from prompt",
    }
    return next((effect for name, effect in effects.items() if name in ends), "nothing")


def _is_across_resume(evidence: Evidence, index: int) -> bool:
    """Return whether the stop sequence that ended a request began before it was last resumed."""
    script = evidence.script.requests[index]
    last = max((number for owner, number in evidence.schedule.resumed if owner == index), default=0)
    since = sum(len(one.emitted) for one in script.rounds[last - 1 :])
    return last > 0 and len(sequence_at_end(script, script.tokens)) > since


def _is_before_others(evidence: Evidence, index: int) -> bool:
    """Return whether one who came later waited as well when a request was admitted."""
    spans, first = evidence.schedule.spans, evidence.schedule.spans.get(index, (-1, -1))[0]
    requests = evidence.scenario.requests
    return any(
        requests[other].arrival <= first < spans[other][0]
        for other in spans
        if (requests[other].arrival, other) > (requests[index].arrival, index)
    )


def _changed(evidence: Evidence) -> str:
    """Return the variant if the variant run differs where the variant must show."""
    variant, other = evidence.scenario.variant, evidence.varied
    if other is None:
        return "none"
    channel = _SHOWN_IN.get(variant)
    moved = channel is None or evidence.subject.channel(channel) != other.channel(channel)
    return variant if moved else "none"


def _control(evidence: Evidence) -> str:
    scenario = evidence.scenario
    by = {"adaptive": scenario.adaptive, "draft batch": scenario.schedule.draft_batch}
    return " and ".join(name for name, has in by.items() if has) or "fixed"


def _of_entries(scenario: Scenario) -> dict[str, str | None]:
    """Return the points of a probe's draft of entries (token, hidden), None for any other."""
    draft, model = scenario.draft, scenario.model
    if not isinstance(draft, Eagle | Mtp) or not isinstance(model, ProbeModel):
        return dict.fromkeys(point.replace(" ", "_") for point in OF_ENTRIES)
    ids = "other order" if draft.head_vocab == model.vocab else "reduced"
    return {
        "takes": draft.takes,
        "handed": draft.handed,
        "embedding": "own" if draft.own_embedding else "target's",
        "head": "own" if draft.own_head else "target's",
        "vocabulary": ids if draft.head_vocab else "target's",
        "first_embedding": "masked" if draft.masks_first else "seen",
    }


def _chain(evidence: Evidence) -> str | None:
    if evidence.form.proposes != "chain":
        return None
    layers = evidence.form.layers
    if layers == 1:
        return "one layer"
    if not getattr(evidence.scenario.draft, "chain", True):
        return "unchained"
    return "layers to spare" if layers > evidence.scenario.steps else "chained"


def _chain_counts(evidence: Evidence) -> tuple[int, int, int]:
    """Count extends of layers j >= 1, extends of layer 0 after a round, and entries whose guess was replaced.

    The guess of an entry is replaced if its token is known by then and differs from that of the round before.
    """
    if evidence.form.proposes != "chain":
        return 0, 0, 0
    done = {key[:2]: length for key, length in evidence.subject.typed("commit.length", int).items()}
    proposals = evidence.reference.channel("extend.proposal")
    ids, replaced = evidence.reference.channel("extend.ids"), 0
    for key, token in ids.items():
        length = done.get(key[:2])
        known = length is not None and key.row + 1 + key.layer <= length
        before = ids.get(key._replace(round=key.round - 1))
        replaced += int(key.layer > 0 and known and before not in (None, token))
    extends = sum(key.layer > 0 and key[:2] in done for key in proposals)
    return extends, sum(key.round > 0 and not key.layer for key in proposals), replaced


def _aborted(evidence: Evidence, index: int) -> str | None:
    """Return what an aborted request was about to do; None of any other."""
    abort, schedule = evidence.aborts.get(index), evidence.schedule
    if abort is None:
        return None
    if index not in schedule.spans:
        return "waiting"
    if index in evidence.preempted(abort.step - 1):
        return "preempted"
    return (
        "in_prefill"
        if any(schedule.is_unfinished(row) for row in schedule.rows if row.request == index)
        else "in_decode"
    )


def _told_of_prompt(evidence: Evidence, index: int, *, is_chunked: bool) -> frozenset[str]:
    """Return how a request was told of its prompt; nothing if it was not."""
    if not any(key.request == index for key in evidence.reference.channel("accept.prompt_logprobs")):
        return frozenset()
    served = evidence.schedule.cached.get((index, 0), 0)
    return frozenset(
        name for name, is_so in (("told", True), ("in_chunks", is_chunked), ("behind_prefix", served > 0)) if is_so
    )


def _is_aborted_before_others(evidence: Evidence, index: int) -> bool:
    """Return whether one who came later waited as well when a request was aborted that waited, and goes on."""
    abort, requests = evidence.aborts.get(index), evidence.scenario.requests
    if abort is None or index in evidence.schedule.spans:
        return False
    return any(
        requests[other].arrival < abort.step <= first
        for other, (first, _) in evidence.schedule.spans.items()
        if (requests[other].arrival, other) > (requests[index].arrival, index)
    )


def _is_aborted_on_served_pages(evidence: Evidence, index: int) -> bool:
    """Return whether a request was aborted on pages that a prefix cache had served it."""
    if not evidence.scenario.schedule.prefix_cache or _aborted(evidence, index) not in ("in_prefill", "in_decode"):
        return False
    begun = [row.round for row in evidence.schedule.rows if row.request == index and not row.phase]
    return evidence.prefixes.served.get((index, max(begun)), 0) > 0


def _end(evidence: Evidence, index: int) -> str | None:
    request, script = evidence.scenario.requests[index], evidence.script.requests[index]
    if not script.tokens or script.aborted:
        return None
    stopped = ended_by(evidence.scenario, index, script) in STOPS
    if not script.rounds:
        return "stop at prefill" if stopped else "at prefill"
    spent = len(script.tokens) == request.budget
    if not stopped:
        return "budget" if spent else "max_len"
    if spent:
        return "stop on budget"
    last = script.rounds[-1]
    return "stop in run" if len(last.emitted) <= last.correct_len else "stop as bonus"


def _stops_in_run(evidence: Evidence, index: int) -> bool:
    """Return whether the subject's last round ended at a stop among its accepted drafts."""
    script = evidence.script.requests[index]
    key = Key(index, len(script.rounds))
    last = evidence.subject.typed("accept.emitted", TokenIds).get(key)
    correct_len = evidence.subject.typed("accept.correct_len", int).get(key)
    if last is None or correct_len is None:
        return False
    return ended_by(evidence.scenario, index, script) in STOPS and len(last) <= correct_len


def _lengths(evidence: Evidence) -> list[int]:
    """Return the tokens of every request at its end."""
    both = zip(evidence.scenario.requests, evidence.script.requests, strict=True)
    return [len(request.prompt) + len(script.tokens) for request, script in both]


def _page_owners(evidence: Evidence) -> Mapping[int, list[int]]:
    """Return request -> the requests that had its pages just before it, one a page."""
    owners: dict[int, list[int]] = {}
    for row in evidence.schedule.rows:
        for page in evidence.tables.at(row).values():
            in_order = owners.setdefault(page, [])
            if row.request not in in_order:
                in_order.append(row.request)
    before: dict[int, list[int]] = {}
    for in_order in owners.values():
        for one, other in itertools.pairwise(in_order):
            before.setdefault(other, []).append(one)
    return before


def _state_owners(evidence: Evidence) -> Mapping[int, list[int]]:
    """Return request -> the request that had its state slot just before it, if any."""
    if not evidence.hybrid:
        return {}
    owner: dict[int, int] = {}
    before: dict[int, list[int]] = {}
    slots = {key.request: slot for key, slot in evidence.subject.typed("round.state", int).items() if not key.round}
    for request in sorted(slots, key=lambda one: evidence.schedule.spans.get(one, (0, 0))):
        slot = slots[request]
        before[request] = [owner[slot]] if slot in owner else []
        owner[slot] = request
    return before


def _after(lengths: Sequence[int], before: Sequence[int], request: int) -> str:
    """Return how a request compares with the longest of those whose memory it got."""
    if not before:
        return "fresh"
    return "after longer" if max(lengths[one] for one in before) > lengths[request] else "after shorter"


def _chunks(length: int, chunk: int) -> str:
    if length <= chunk:
        return "one"
    return {0: "full", 1: "tail of one"}.get(length % chunk, "short tail")


def _zero_tails(request: Request, chunk: int) -> int:
    """Count later chunks of the prompt that begin with token 0."""
    return sum(request.prompt[start] == 0 for start in range(chunk, len(request.prompt), chunk))
