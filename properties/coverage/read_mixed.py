"""Read what a mixed schedule made of launches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.evidence.schedule import StepLaunch
from draftproof.properties.values.observed import LaunchKind


def read_mixed(evidence: Evidence) -> Mapping[str, int]:
    """Return how often each of these was in a scenario."""
    if not evidence.scenario.schedule.mixed:
        return Counter()
    packed = [launch for launch in evidence.schedule.launches if launch.tokens]
    return Counter(name for launch in packed for name in (*_rows(evidence, launch), *_tokens(evidence, launch, packed)))


def _rows(evidence: Evidence, launch: StepLaunch) -> Iterator[str]:
    sizes = evidence.scenario.graphs.sizes if evidence.scenario.graphs.capture else ()
    width = evidence.scenario.width
    like = "mixed_as_large_as_decode" if launch.kind == LaunchKind.MIXED else "prefill_as_large_as_decode"
    if launch.tokens in [size * width for size in sizes]:
        yield like
    if launch.kind == LaunchKind.MIXED:
        yield "mixed_launches"
        counts = [row.count for row in evidence.schedule.batches.get((launch.step, 1), ())]
        if any(counts) and not all(counts):
            yield "mixed_beside_no_drafts"


def _tokens(evidence: Evidence, launch: StepLaunch, packed: list[StepLaunch]) -> Iterator[str]:
    buckets = evidence.scenario.graphs.tokens
    bucket = next((size for size in buckets if size >= launch.tokens), 0)
    if not buckets:
        return
    if not bucket:
        yield "buckets_exceeded"
        return
    yield "buckets_filled" if launch.tokens == bucket else "buckets_padded"
    before = [
        one for one in packed if (one.step, one.number) < (launch.step, launch.number) and one.size == launch.size
    ]
    if launch.size and before and before[-1].tokens > launch.tokens:
        yield "buckets_after_larger"
