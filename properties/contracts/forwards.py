"""The forwards of an engine step, of target and draft, in order, as every rank runs them (S-RANK-3, S-TP-4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.evidence.lockstep import Lockstep

Model = Literal["target", "draft"]
TARGET_MODEL: Model = "target"
DRAFT_MODEL: Model = "draft"


class ModelForward(NamedTuple):
    """One forward of a model over a number of packed rows, padding included, and the numbers of logit rows after it.

    `layers` of a chain's draft run one at a time.
    """

    model: Model
    rows: int
    logits: tuple[int, ...] = ()


def run_in(evidence: Evidence, lockstep: Lockstep, step: int) -> Iterator[ModelForward | int]:
    """Yield each forward of a step, and between them how many numbers data-parallel ranks agree on."""
    form, tokens, rows = evidence.form, lockstep.tokens(step), lockstep.rows(step, 1)
    proposes_at_extend = form.kind.proposes_at_extend or form.proposes == "chain"
    planned, width = lockstep.planned_width(step), lockstep.width(step)
    size, chunks = launched(evidence, rows), lockstep.rows(step, 0)
    packs, disaggregated = tokens > 0 and evidence.scenario.schedule.mixed, evidence.scenario.engines > 1
    held = packed_tokens(evidence, lockstep.packed(step)) if packs else tokens
    chosen = ((chunks, tokens) if _tells_of_prompts(evidence) else (chunks,)) if tokens else ()
    overlaps = bool(evidence.schedule.overlap)
    yield 4 + overlaps
    if tokens and (disaggregated or not packs):
        yield from (1,) if packs else ()
        yield ModelForward(TARGET_MODEL, held, chosen)
        yield from _entries(evidence, lockstep, step, chunks if proposes_at_extend else 0)
    # The step of the prefill engine ends, and that of the decode engine begins.
    yield from (1, 4) if disaggregated else ()
    if rows and planned > 1:
        blocks, beams = form.proposes == "block", form.tree.topk if form.tree and form.proposes == "steps" else 1
        for _ in range(1 if blocks else form.launched(planned)):
            count = size * (planned if blocks else beams)
            yield ModelForward(DRAFT_MODEL, count, (count,))
        if not overlaps:
            yield 1
    if packs and not disaggregated:
        yield 1
        yield ModelForward(TARGET_MODEL, held, (*chosen, rows * width) if rows else chosen)
        yield from _entries(evidence, lockstep, step, chunks if proposes_at_extend else 0)
    elif rows:
        yield ModelForward(TARGET_MODEL, size * width, (size * width,))
    if rows:
        if not overlaps:
            yield 1
        going_on = lockstep.going_on(step)
        for _ in range(form.extend_launches if going_on and form.proposes != "block" else 0):
            size = launched(evidence, going_on)
            yield ModelForward(DRAFT_MODEL, size * (width + form.reach), (size,) if proposes_at_extend else ())
    yield 1


def _entries(evidence: Evidence, lockstep: Lockstep, step: int, proposals: int) -> Iterator[ModelForward]:
    """Yield the draft's forwards of prompts, each with so many proposals."""
    form = evidence.form
    for _ in range(form.layers if form.proposes == "chain" else int(form.kind.extends and form.proposes != "block")):
        yield ModelForward(DRAFT_MODEL, lockstep.entries(step), (proposals,) if proposals else ())


def launched(evidence: Evidence, rows: int) -> int:
    """Return the number of rows that a launch for `rows` rows has: the captured size that fits, or `rows` itself."""
    return next((size for size in evidence.scenario.graphs.sizes if size >= rows), rows)


def packed_tokens(evidence: Evidence, tokens: int) -> int:
    """Return the number of rows that a packed launch of so many tokens has: its bucket, or as many."""
    return next((size for size in evidence.scenario.graphs.tokens if size >= tokens), tokens)


def _tells_of_prompts(evidence: Evidence) -> bool:
    return evidence.scenario.most_prompt_logprobs is not None
