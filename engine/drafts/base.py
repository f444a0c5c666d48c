"""What an engine asks of a draft algorithm, and what it lends it.

`R` rows of a batch, `W` verify width, `T` packed tokens, `D` width of what the target hands over for a token.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

import torch
from torch import Tensor

from draftproof import kernels
from draftproof.engine.arena import Arena
from draftproof.engine.cache import PagedCache
from draftproof.engine.config import EngineConfig
from draftproof.engine.models.base import AttentionMetadata, CacheShape, LayerOutputs, Target
from draftproof.engine.probes import Probes
from draftproof.engine.runner import Outputs, Views
from draftproof.engine.stages import DecodeRow, PrefillRow

M = TypeVar("M")
Shapes = dict[str, tuple[tuple[int, ...], torch.dtype]]


@dataclass(frozen=True)
class DraftModel:
    """A draft by the name of its algorithm (`drafts.algorithm`), and the model that it runs."""

    kind: str
    model: Any


@dataclass(frozen=True)
class Needs:
    """What a draft takes of the target's hidden states: none, the last, or the outputs of `layers`, side by side."""

    hidden_states: Literal["none", "last", "layers"] = "none"
    layers: tuple[int, ...] = ()

    def layer_outputs(self) -> LayerOutputs | None:
        """What a forward pass of the target has to be told to keep."""
        return LayerOutputs(self.layers) if self.hidden_states == "layers" else None

    def pick(self, last: Tensor, layer_outputs: LayerOutputs | None) -> Tensor | None:
        """What is handed over, [T, D], of a pass that gave `last` and filled `layer_outputs`."""
        if layer_outputs is not None:
            return layer_outputs.concatenated()
        return last if self.hidden_states == "last" else None

    def width(self, target: Target) -> int:
        """D: 0 if nothing is handed over."""
        return target.width * {"none": 0, "last": 1, "layers": len(self.layers)}[self.hidden_states]


@dataclass(frozen=True)
class DraftContext:
    """What an engine lends its draft: pools, sizes and probes. `cache` is None for a draft without entries;
    `page_table` has the pages of all requests."""

    arena: Arena
    cache: PagedCache | None
    page_table: Tensor
    config: EngineConfig
    probes: Probes
    target: Target

    @property
    def device(self) -> torch.device:
        return self.page_table.device


@dataclass(frozen=True)
class Accepted:
    """Rounds of requests that go on. rows [R]; positions [R]: context before; correct_len [R]; ids [R, W] verified and
    target_tokens [R, W] of the target after each; hidden_states [R, W, D] as needed; tokens emitted, on the host."""

    requests: tuple[int, ...]
    req_rows: Tensor
    seq_lens: Tensor
    correct_len: Tensor
    ids: Tensor
    target_tokens: Tensor
    hidden_states: Tensor | None
    tokens: tuple[tuple[int, ...], ...]


class Draft(ABC, Generic[M]):
    """A draft algorithm on memory of its own: what its graphs are made of, and what it does between them.

    Class methods say what an engine has to allocate. `lookback` is how many entries before those of a round its extend
    computes again. `proposer` fills drafts in a graph (None: `propose` does, on the host); each of `extenders` is a
    graph of the extend, in order. What a draft does not override, it does not have.
    """

    cache: PagedCache | None = None
    lookback: int = 0
    proposer: Callable[[Views], Outputs] | None = None
    extenders: tuple[Callable[[Views], Outputs], ...] = ()
    token_memory: tuple[str, ...] = ()
    """Tensors of `memory` that hold token ids."""

    def __init__(self, model: M, context: DraftContext) -> None:
        self.model, self.context, self.needs = model, context, self.needed(model)
        self.tapping = Tapping(context.probes)

    @classmethod
    def needed(cls, model: M) -> Needs:
        """What it takes of the target: nothing."""
        return Needs()

    @classmethod
    def entries(cls, model: M) -> CacheShape | None:
        """Its own KV entries, if it has any."""
        return None

    @classmethod
    def memory(cls, model: M, target: Target, num_rows: int) -> Shapes:
        """What it keeps of each request besides: arena tensors whose first dimension is the request row."""
        return {}

    def weights(self) -> tuple[Tensor, ...]:
        """Every tensor that its graphs read and nobody else declares."""
        return ()

    @abstractmethod
    def prefill(
        self,
        batch: tuple[PrefillRow, ...],
        metadata: AttentionMetadata,
        hidden_states: Tensor | None,
        next_tokens: Sequence[int],
    ) -> None:
        """Take in one chunk of each prompt, eagerly: packed tokens, what the target hands over for them [T, D], and the
        token that it chose after each chunk."""

    def round_inputs(self) -> Shapes:
        """Buffers of a round besides those of verify, by the shape of one row."""
        return {}

    def round_values(self, req_rows: Tensor) -> Mapping[str, Tensor]:
        """What goes into them: the proposer's inputs for these request rows."""
        return {}

    def propose(self, batch: tuple[DecodeRow, ...], steps: int) -> tuple[Tensor, tuple[int, ...]]:
        """Without a proposer: draft_tokens [R, steps] and how many of them each row has."""
        raise TypeError(f"{type(self).__name__} proposes in its graph")

    def extend_inputs(self, width: int) -> Shapes:
        """Buffers of the extenders, by the shape of one row."""
        return {}

    def extend_values(self, accepted: Accepted) -> Mapping[str, Tensor]:
        """What goes into them."""
        return {}

    def save_next_round(self, accepted: Accepted, outputs: tuple[Outputs, ...]) -> None:
        """After the extenders: remember what the next round starts from."""

    def origin(self, request: int) -> Mapping[str, Any]:
        """Return how it came by the proposals of a request's round: a `propose` channel -> its value in plain types."""
        return {}

    def tracked_requests(self) -> tuple[int, ...]:
        """Requests of which it keeps something on the host, ascending."""
        return ()

    def release(self, request: int) -> None:
        """A request has ended. What is in its row the next owner of that overwrites."""


def metadata_of_tokens(
    context: DraftContext, req_rows: Tensor, positions: Tensor, last_column: Tensor
) -> AttentionMetadata:
    """One token a row, at its position, if its count is 0 or more; otherwise (-1) it belongs nowhere: slot 0."""
    metadata = metadata_of_rows(context, req_rows, positions, last_column, 1)
    return AttentionMetadata(req_rows, metadata.positions, metadata.slot_mapping)


def metadata_of_rows(
    context: DraftContext, req_rows: Tensor, positions: Tensor, last_column: Tensor, width: int
) -> AttentionMetadata:
    """`width` tokens a row from its position on, of which 0 .. count belong somewhere; all packed."""
    size = req_rows.shape[0]
    token_positions = torch.empty((size, width), dtype=torch.int64, device=req_rows.device)
    slot_mapping = torch.empty_like(token_positions)
    config = context.config
    kernels.assign_slots(
        token_positions,
        slot_mapping,
        context.page_table,
        req_rows,
        positions,
        last_column,
        config.page_size,
        config.max_len,
    )
    return AttentionMetadata(
        req_rows[:, None].expand(size, width).reshape(-1), token_positions.view(-1), slot_mapping.view(-1)
    )


class Tapping:
    """Records what goes into a draft's forwards and what it chooses."""

    def __init__(self, probes: Probes) -> None:
        self._taps = probes.taps

    def inputs(
        self, name: str, metadata: AttentionMetadata, ids: Tensor | None, hidden_states: Tensor | None, step: int = -1
    ) -> None:
        """`name`.ids, .positions, .slots and .hidden, as far as there are any."""
        if ids is not None:
            self._taps.record(f"{name}.ids", ids, step)
        self._taps.record(f"{name}.positions", metadata.positions, step)
        self._taps.record(f"{name}.slots", metadata.slot_mapping, step)
        if metadata.last_visible is not None:
            self._taps.record(f"{name}.visible", metadata.last_visible, step)
        if hidden_states is not None:
            self._taps.record(f"{name}.hidden", hidden_states, step)

    def choose(self, name: str, logits: Tensor, step: int = -1) -> Tensor:
        """The highest logit of each row [T], of equals the lowest id; recorded as `name`.proposal."""
        token = torch.empty(logits.shape[0], dtype=torch.int64, device=logits.device)
        kernels.greedy_choice(token, logits)
        self._taps.record(f"{name}.proposal", token, step)
        self._taps.record_margin(f"{name}.margin", logits, step)
        return token
