"""Step-count controllers by batch size that move within a few rounds."""

from __future__ import annotations

from hypothesis import strategies as st

from draftproof.properties.strategies.examples import composed, integers, sampled
from draftproof.properties.values.scenario import AdaptiveByBatch, AdaptiveSlot

_Table = tuple[tuple[int, tuple[int, ...]], ...]
_Rounding = tuple[int, ...]
# Least batch size and step counts of each slot; 0 is a round without drafts. Some begin above one row, some leave large
# batches no drafts at all. Beside it what numbers of rows are rounded up to: into the slot of a larger batch, mostly.
_TABLES: tuple[tuple[_Table, tuple[_Rounding, ...]], ...] = (
    (((1, (0, 1, 3)), (2, (0, 3, 4))), ((2, 4), (1, 2), ())),
    (((1, (0, 2, 5)), (2, (0, 1, 3)), (4, (1, 2))), ((1, 4), (2, 4), (1, 3))),
    (((2, (0, 1, 2, 4)), (3, (1, 3))), ((1, 4), (1, 3), ())),
    (((1, (0, 1, 5)), (2, (0, 1, 3)), (4, (0,))), ((2, 4), (1, 4), (2, 3))),
    (((1, (1, 3, 4)), (2, (0, 2)), (3, (0, 1))), ((1, 3), (2, 4), (1, 4))),
)
# 6 is in no slot: each then begins with its middle one.
_INITIAL = (0, 6, 0, 3, 0, 6)
# One that no average meets exactly, and one at whose thresholds it is after a round that accepted all.
_THRESHOLDS = (False, True)


@composed
def by_batch(draw: st.DrawFn) -> AdaptiveByBatch:
    """Draw a controller by batch size; `initial` is a candidate of some slots, and 0 is probed at once."""
    (table, roundings), is_exact = draw(sampled(_TABLES)), draw(sampled(_THRESHOLDS))
    slots = tuple(
        AdaptiveSlot(
            batch=batch,
            candidates=candidates,
            down=0.0 if is_exact else draw(sampled((0.0, -0.25, 0.5))),
            up=0.0 if is_exact else draw(sampled((0.0, -0.25, 0.25))),
            ceiling=draw(sampled((0.5, 0.0, 0.5, 0.5, 1.0, 0.5))),
        )
        for batch, candidates in table
    )
    return AdaptiveByBatch(
        initial=draw(sampled(_INITIAL)),
        slots=slots,
        alpha=0.5 if is_exact else draw(sampled((0.5, 0.75, 1.0))),
        interval=1 if is_exact else draw(sampled((1, 1, 2))),
        warmup=0 if is_exact else draw(integers(0, 1)),
        rounding=draw(sampled(roundings)),
    )
