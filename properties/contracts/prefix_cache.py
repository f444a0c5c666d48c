"""The prefix cache: what it serves and keeps, by a model of its own that follows the run (S-CACHE)."""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.properties.contracts.base import Differences, contract, ends, listed
from draftproof.properties.diagnosis.compare import Mismatch, first_divergence
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.values.observed import CachedPage, CachedPages, CheckpointReport, Datum
from draftproof.properties.values.relations import Different, Missing, OutOfRange, Surplus
from draftproof.properties.values.trace import Key


def _asked(evidence: Evidence) -> bool:
    return evidence.scenario.schedule.prefix_cache


def _matched(evidence: Evidence) -> Differences:
    """Check that a request begins on as many tokens as the cache holds of its text, and on no more."""
    expected: dict[Key, Datum] = {Key(*place): count for place, count in evidence.prefixes.served.items()}
    yield first_divergence("prefix_cache.matched", "round.cached", expected, evidence.subject.channel("round.cached"))


def _kept(evidence: Evidence) -> Iterator[Mismatch]:
    """Check what the cache keeps after every step: which tokens, on which pages, locked by how many requests."""
    reported = dict(evidence.subject.typed("pool.cached", CachedPages))
    for key in ends(evidence):
        value = reported.pop(key, None)
        if value is None:
            yield Mismatch("pool.cached", key, "pages", None, Missing())
            continue
        yield from _differences(key, evidence.prefixes.pages[key.round], value)
    for key, value in reported.items():
        yield Mismatch("pool.cached", key, None, value, Surplus())


def _differences(key: Key, expected: CachedPages, got: CachedPages) -> Iterator[Mismatch]:
    kept, wanted = {one.tokens: one for one in got}, {one.tokens: one for one in expected}
    if len(kept) < len(got):
        yield Mismatch("pool.cached", key, "tokens once each", str(_twice(got)), Surplus())
    for tokens in sorted(wanted.keys() | kept.keys()):
        one, other = wanted.get(tokens), kept.get(tokens)
        if other is None:
            yield Mismatch("pool.cached", key, str(one), None, Missing())
        elif one is None:
            yield Mismatch("pool.cached", key, None, str(other), Surplus())
        elif one != other:
            yield Mismatch("pool.cached", key, str(one), str(other), Different())


def _states(evidence: Evidence) -> Iterator[Mismatch]:
    """Check after every step which states the cache keeps, each in a slot of its own, and that other slots are free."""
    reported = dict(evidence.subject.typed("pool.checkpoints", CheckpointReport))
    first, count = evidence.scenario.all_rows + 1, evidence.scenario.memory.checkpoint_slots
    for key in ends(evidence):
        value = reported.pop(key, None)
        if value is None:
            yield Mismatch("pool.checkpoints", key, "states", None, Missing())
            continue
        kept, wanted = [one.tokens for one in value.kept], evidence.prefixes.states[key.round]
        for tokens in sorted({*kept} ^ wanted):
            expected, relation = (str(tokens), Missing()) if tokens in wanted else (None, Surplus())
            yield Mismatch("pool.checkpoints", key, expected, None if expected else str(tokens), relation)
        slots = [one.slot for one in value.kept]
        if len({*slots}) < len(slots) or len({*kept}) < len(kept):
            yield Mismatch("pool.checkpoints", key, "a slot for each text", str(value.kept), Surplus())
        for slot in slots:
            if not first <= slot < first + count:
                yield Mismatch("pool.checkpoints", key, f"{first} .. {first + count - 1}", slot, OutOfRange())
        if value.free_slots + len(slots) != count:
            got = f"{value.free_slots} free, {len(slots)} kept"
            yield Mismatch("pool.checkpoints", key, f"{count} slots in all", got, Different())
    for key, value in reported.items():
        yield Mismatch("pool.checkpoints", key, None, value, Surplus())


def _twice(pages: CachedPages) -> CachedPage:
    tokens = [one.tokens for one in pages]
    return next(one for one in pages if tokens.count(one.tokens) > 1)


_READS = ("round.rows", "round.table", "round.attempt", "pool.owners")
CONTRACTS = (
    contract(
        "prefix_cache.matched",
        _matched,
        ("round.cached",),
        reads=_READS,
        cites="S-CACHE-2, S-CACHE-3, S-CACHE-9",
        minimum="scenarios prefix_hits prefix_hits_in_part prefix_hits_of_emitted prefix_hits_after_preemption "
        "prefix_hits_of_images prefix_misses prefix_hits_of_trees prefix_hits_with_adaptive_steps "
        "prefix_hits_by_batch_size",
        concerns=_asked,
    ),
    listed(
        "prefix_cache.pages",
        _kept,
        ("pool.cached",),
        reads=("round.cached", *_READS),
        cites="S-CACHE-1, S-CACHE-2, S-CACHE-4",
        minimum="scenarios prefix_hits prefix_evictions prefix_copies prefix_shared prefix_hits_on_running",
        concerns=_asked,
    ),
    listed(
        "prefix_cache.states",
        _states,
        ("pool.checkpoints",),
        reads=("round.cached", *_READS),
        cites="S-CACHE-6, S-CACHE-7",
        minimum="hybrid_scenarios prefix_hits_of_hybrids prefix_hits_cut_to_checkpoint prefix_hits_without_checkpoint "
        "checkpoints_copied_again checkpoints_cached checkpoints_evicted checkpoints_evicted_with_pages",
        concerns=lambda evidence: evidence.caches_states,
    ),
)
