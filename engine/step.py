"""What a step of an engine hands from one of its parts to the next.

`R` rows of a batch, `T` packed prompt tokens, `D` width of the hidden states that a draft takes.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field
from torch import Tensor

from draftproof.engine.models.base import AttentionMetadata
from draftproof.engine.runner import Outputs
from draftproof.engine.runtime import Runtime
from draftproof.engine.stages import DecodeRow, Proposal, StepPlan


class Step(Struct, frozen=True):
    """A plan, with the tokens, draft entries and rows of the rank that has the most of each, and K of its rounds.

    `waits`: the host of some rank waits for the results before it plans its next step, and needs the collectives of
    this one for that: then no rank runs the step late. The other hosts need not wait.

    A step in flight was given to the device as this `work`, with `buffers` that it shares with the host; `weights` are
    what tokens of chunks and of rounds were chosen from, once it has run.
    """

    plan: StepPlan
    num_tokens: int
    num_entries: int
    num_rows: int
    steps: int
    waits: bool
    work: int = 0
    buffers: Mapping[str, Tensor] = field(default_factory=dict)
    weights: dict[str, Outputs] = field(default_factory=dict)


class Rounds(Struct, frozen=True):
    """Rounds that have their drafts: the runtime that verifies them, a row of each, and its inputs [R]."""

    runtime: Runtime
    batch: tuple[DecodeRow, ...]
    inputs: Mapping[str, Tensor]
    proposal: Proposal


class ChunkOutputs(Struct, frozen=True):
    """What the target left of chunks: where they ran, hidden_states [T, D] as the draft needs them, target_tokens [R].

    `weights` are what these were chosen from, and prompt logprobs, where requests ask for any.
    """

    metadata: AttentionMetadata
    hidden_states: Tensor | None
    target_tokens: Tensor
    weights: Outputs
