"""A run and its variant agree bit for bit: one contract a variant, over every channel that it leaves alone.

A real model's floats depend on the shape of a batch, so of variants that change shapes only its integers are compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial

from msgspec.structs import replace

from draftproof.properties.contracts.base import Differences, contract
from draftproof.properties.diagnosis.compare import first_divergence
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.values.channels import CHANNELS
from draftproof.properties.values.observed import (
    BatchRow,
    Datum,
    DiscardedRows,
    IndexBytes,
    LaunchKind,
    LaunchRecord,
    MemoryRegion,
    TokenIds,
    WriteSet,
)
from draftproof.properties.values.scenario import VARIANTS, Variant
from draftproof.properties.values.trace import Key, Trace
from draftproof.properties.variants import RESHAPED, unchanged

Values = Mapping[Key, Datum]


def _check(variant: Variant, evidence: Evidence) -> Differences:
    if evidence.varied is None:
        return
    if variant == "chain_as_tree":
        yield from _steps_as_beams(evidence.subject, evidence.varied)
    if variant == "alone":
        yield from _alone(evidence)
        return
    if variant == "unoverlapped":
        yield from _unoverlapped(evidence)
        return
    for channel in sorted(unchanged(variant), key=lambda name: CHANNELS[name].order):
        if channel not in evidence.subject.channels & evidence.varied.channels:
            continue
        if channel == "commit.step_index" and variant == "other_commit" and evidence.scenario.tree:
            # Each way counts the rows of a tree in its own manner (S-STATE-11, S-STATE-12); states are the same.
            continue
        if not evidence.exact and variant in RESHAPED and _rounded(channel, evidence):
            continue
        expected = _comparable(variant, channel, evidence.varied, evidence)
        got = _comparable(variant, channel, evidence.subject, evidence)
        if not evidence.exact and variant in RESHAPED:
            expected, got = _before_forks(channel, expected, evidence), _before_forks(channel, got, evidence)
        yield first_divergence(f"variant.{variant}", channel, expected, got)


def _alone(evidence: Evidence) -> Differences:
    """Compare what is reported of each request with what is reported of it alone (S-BATCH-10)."""
    assert evidence.varied is not None
    again = dict[int, int]()
    for request, number in evidence.schedule.resumed:
        again[request] = min(number, again.get(request, number))
    for channel in sorted(unchanged("alone"), key=lambda name: CHANNELS[name].order):
        own, all_of_it = evidence.varied.channel(channel), evidence.subject.channel(channel)
        got = {key: value for key, value in all_of_it.items() if key.round < again.get(key.request, key.round + 1)}
        yield first_divergence("variant.alone", channel, {key: own[key] for key in got if key in own}, got)
    # Behind it, rounds are others, of the same text. What is drawn depends on how a text is cut.
    later = {one for one in again if evidence.scenario.requests[one].sampling is None}
    entries = {(key.request, key.layer, key.row): one for key, one in evidence.varied.channel("commit.kv").items()}
    got = {key: one for key, one in evidence.subject.channel("commit.kv").items() if key.request in later}
    own = {key: entries[key.request, key.layer, key.row] for key in got if (key.request, key.layer, key.row) in entries}
    yield first_divergence("variant.alone", "commit.kv", own, got)
    emitted = evidence.subject.typed("accept.emitted", TokenIds)
    expected, texts = dict[Key, Datum](), dict[Key, Datum]()
    for key in sorted(one for one in emitted if one.request in later):
        before = sum(len(emitted[one]) for one in emitted if one.request == key.request and one.round < key.round)
        texts[key] = emitted[key]
        text = evidence.varied.texts.get(key.request, ())
        expected[key] = text[before : before + len(emitted[key])]
    yield first_divergence("variant.alone", "accept.emitted", expected, texts)


def _unoverlapped(evidence: Evidence) -> Differences:
    """Compare what is reported of each request with what it is where the host waits for every step (S-OVERLAP-8).

    A round that ends a request commits and extends all of what it accepted if that is not known in time.
    """
    assert evidence.varied is not None
    last = [len(script.rounds) for script in evidence.script.requests]
    for channel in sorted(unchanged("unoverlapped"), key=lambda name: CHANNELS[name].order):
        if channel not in evidence.subject.channels & evidence.varied.channels:
            continue
        ends = CHANNELS[channel].phase not in ("commit", "extend")
        sides = (evidence.varied.channel(channel), evidence.subject.channel(channel))
        expected, got = (
            {key: one for key, one in side.items() if ends or key.round < last[key.request]} for side in sides
        )
        yield first_divergence("variant.unoverlapped", channel, expected, got)


_OF_OTHER_LAUNCHES = ("graph_vs_eager", "unmixed")
"""Variants whose run may show no slots: taps see those of verify, in a launch that runs or that is captured."""
_STEPS = tuple(f"draft.step.{name}" for name in ("ids", "positions", "slots", "hidden_in"))


def _steps_as_beams(chain: Trace, tree: Trace) -> Differences:
    """Compare draft steps with the steps of a single beam, and their proposals with its candidates (S-TREE-14)."""
    for channel in _STEPS:
        beams = f"draft.beam.{channel.rpartition('.')[2]}"
        if channel in chain.channels and beams in tree.channels:
            expected = {key._replace(row=-1): value for key, value in tree.channel(beams).items()}
            yield first_divergence("variant.chain_as_tree", channel, expected, chain.channel(channel))
    if "draft.step.proposal" in chain.channels and "draft.beam.candidates" in tree.channels:
        # A beam tells no margin.
        own = chain.choices("draft.step.proposal")
        told = tree.typed("draft.beam.candidates", TokenIds).items()
        best = {(at := key._replace(row=-1)): (tokens[0], own.get(at, (0, 0.0))[1]) for key, tokens in told}
        yield first_divergence("variant.chain_as_tree", "draft.step.proposal", best, own)


def _rounded(channel: str, evidence: Evidence) -> bool:
    """Return whether a channel shows the last bits of floats, or which entries came out as they were."""
    if channel == "commit.written":
        return evidence.form.repeats
    return CHANNELS[channel].is_float


def _comparable(variant: Variant, channel: str, trace: Trace, evidence: Evidence) -> Values:
    """Return a channel without what the variant changes: captured sizes, places in the batch, what capture wrote."""
    if channel == "round.rows" and variant in ("graph_vs_eager", "unmixed"):
        return {key: replace(row, size=0) for key, row in trace.typed(channel, BatchRow).items()}
    if channel == "round.rows" and variant == "other_batches":
        return {key: replace(row, place=0, size=0) for key, row in trace.typed(channel, BatchRow).items()}
    if channel == "commit.written":
        return _written(trace, evidence.page_size)
    if channel == "config.index_bytes" and variant in _OF_OTHER_LAUNCHES and not _show_slots(evidence):
        return {key: replace(one, slots=0) for key, one in trace.typed(channel, IndexBytes).items()}
    if channel == "draft.discarded" and variant == "chain_as_tree":
        # Steps count from 1, columns of beams from 0.
        first = int(trace is evidence.subject)
        return {
            key: tuple(replace(row, column=row.column - first) for row in rows)
            for key, rows in trace.typed(channel, DiscardedRows).items()
        }
    return trace.channel(channel)


def _show_slots(evidence: Evidence) -> bool:
    """Return whether both runs show how many bytes a slot has."""
    runs = (one.typed("config.index_bytes", IndexBytes) for one in (evidence.subject, evidence.varied) if one)
    return all(seen.slots for run in runs for seen in run.values())


def _before_forks(channel: str, values: Values, evidence: Evidence) -> Values:
    """Return what was observed before the engine step in which a tie may have sent a request two ways (S-FOLLOW-9)."""
    end = evidence.forked_at
    if end is None:
        return values
    if channel.startswith("total."):
        return {}
    steps = evidence.schedule.steps
    return {
        key: one for key, one in values.items() if (steps.get(key[:2], end) if key.request >= 0 else key.round) < end
    }


def _written(trace: Trace, page_size: int) -> dict[Key, WriteSet]:
    """Return what launches wrote outside the reserved page and intermediate states, numbered without captures.

    Slot 0 and the intermediate states of a place hold whatever padding and captures left there last, so whether a
    launch changes them depends on the launches before: two requests of one text write the same after each other.
    """
    launches, numbers = trace.typed("graph.replay", LaunchRecord), Counter[int]()
    kept: dict[Key, WriteSet] = {}
    for key, places in sorted(trace.typed("commit.written", WriteSet).items()):
        if key in launches and launches[key].kind == LaunchKind.CAPTURE:
            continue
        owned = (one for one in places if one.region != MemoryRegion.INTERMEDIATE)
        live = (one for one in owned if one.region > MemoryRegion.DRAFT or one.place >= page_size)
        kept[key._replace(step=numbers[key.round])] = tuple(live)
        numbers[key.round] += 1
    return kept


def _drawn(variant: Variant, evidence: Evidence) -> bool:
    return evidence.scenario.variant == variant and evidence.varied is not None


# Without taps, a draft is seen only through proposals that are verified.
_MORE: Mapping[Variant, str] = {
    "taps_off": "taps_off_long_proposals",
    "alone": "variant_alone_of_served variant_alone_of_resumed",
}

_CITES: Mapping[Variant, str] = {
    "alone": "S-BATCH-10",
    "unmixed": "S-MIXED-6",
    "unoverlapped": "S-OVERLAP-8",
    "graph_vs_eager": "S-BATCH-3",
    "other_batches": "S-BATCH-2, S-BATCH-5",
    "other_commit": "S-STATE-3",
    "other_memory": "S-BATCH-5",
    "chain_as_tree": "S-TREE-14",
    "taps_off": "S-TRACE-7",
}
CONTRACTS = tuple(
    contract(
        f"variant.{variant}",
        partial(_check, variant),
        unchanged(variant),
        concerns=partial(_drawn, variant),
        whole=False,
        # What a request was served, or runs again, is not run alone, or not in these rounds; its last round may commit
        # more where its end is not known.
        partial=unchanged(variant) if variant in ("alone", "unoverlapped") else (),
        cites=_CITES[variant],
        minimum=f"variant_{variant} decode_rounds {_MORE.get(variant, '')}",
    )
    for variant in VARIANTS
)
