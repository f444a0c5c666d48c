"""The interface of draft algorithms, and what an engine shares with one.

`R` rows of a batch, `W` verify width, `T` packed tokens, `D` width of the target's hidden states for a token.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

import torch
from msgspec import Struct
from torch import Tensor

from draftproof import kernels
from draftproof.engine.arena import Arena
from draftproof.engine.cache import PagedCache
from draftproof.engine.config import EngineConfig
from draftproof.engine.models.base import (
    BEFORE_NORM,
    AttentionMetadata,
    CacheShape,
    LayerOutputs,
    Network,
    NgramSettings,
    Target,
)
from draftproof.engine.probes import Probes
from draftproof.engine.runner import Outputs, Views
from draftproof.engine.sampling import Sampled, sample_draft
from draftproof.engine.stages import DecodeRow, HostDrafts, PrefillRow, Proposal

M = TypeVar("M")
N = TypeVar("N", bound=Network)
Shapes = dict[str, tuple[tuple[int, ...], torch.dtype]]


@dataclass(frozen=True)
class DraftModel:
    """A draft by the name of its algorithm (`drafts.algorithm`), and the model that it runs."""

    kind: str
    model: Network | NgramSettings


@dataclass(frozen=True)
class Needs:
    """Which hidden states of the target a draft reads.

    None, the last ones after or before the final norm, or the outputs of `layers`, concatenated.
    """

    hidden_states: Literal["none", "after_norm", "before_norm", "layers"] = "none"
    layers: tuple[int, ...] = ()

    def layer_outputs(self) -> LayerOutputs | None:
        """Return what has to record a forward pass of the target, if anything."""
        if self.hidden_states == "before_norm":
            return LayerOutputs((BEFORE_NORM,))
        return LayerOutputs(self.layers) if self.hidden_states == "layers" else None

    def pick(self, last: Tensor, layer_outputs: LayerOutputs | None) -> Tensor | None:
        """Return what the draft gets, [T, D], of a pass that gave `last` and filled `layer_outputs`."""
        if layer_outputs is not None:
            return layer_outputs.concatenated()
        return last if self.hidden_states == "after_norm" else None

    def width(self, target: Target) -> int:
        """Return D, 0 if the draft gets nothing."""
        return target.width * {"none": 0, "layers": len(self.layers)}.get(self.hidden_states, 1)


@dataclass(frozen=True)
class DraftContext:
    """Pools, sizes and probes that a draft shares with its engine; `cache` is None for a draft without entries."""

    arena: Arena
    cache: PagedCache | None
    page_table: Tensor
    config: EngineConfig
    probes: Probes
    target: Target

    @property
    def device(self) -> torch.device:
        return self.page_table.device


class PromptChunks(Struct, frozen=True):
    """A chunk of each of several prompts, T packed tokens, that the target has run over.

    hidden_states [T, D] as the draft needs them; next_tokens are the target's after each chunk.
    """

    rows: tuple[PrefillRow, ...]
    metadata: AttentionMetadata
    hidden_states: Tensor | None
    next_tokens: Sequence[int]


class Accepted(Struct, frozen=True):
    """The verified rounds of unfinished requests.

    req_rows, seq_lens before the round, correct_len [R]; ids verified and target_tokens after each [R, W];
    hidden_states [R, W, D] as the draft needs them; tokens emitted, on the host.
    """

    requests: tuple[int, ...]
    req_rows: Tensor
    seq_lens: Tensor
    correct_len: Tensor
    ids: Tensor
    target_tokens: Tensor
    hidden_states: Tensor | None
    tokens: tuple[tuple[int, ...], ...]


class Draft(ABC, Generic[M]):
    """A draft algorithm on memory of its own: the functions that graphs capture, and what runs between them.

    Class methods say what an engine has to allocate. `lookback` is how many entries before the round's own its extend
    computes again. `proposer` fills drafts in a graph (None: `propose` does, on the host); each of `extenders` is a
    graph of the extend, in order. A draft does not have what it does not override.
    """

    cache: PagedCache | None = None
    lookback: int = 0
    proposer: Callable[[Views], Outputs] | None = None
    extenders: tuple[Callable[[Views], Outputs], ...] = ()
    token_memory: tuple[str, ...] = ()
    """Tensors of `memory` that hold token ids."""
    looks_up: bool = False
    """Whether it proposes on the host, by `look_up`."""

    def __init__(self, model: M, context: DraftContext) -> None:
        self.model, self.context, self.needs = model, context, self.needed(model)
        self.tapping = Tapping(context.probes)

    @classmethod
    def needed(cls, model: M) -> Needs:
        """Return which hidden states of the target it takes."""
        return Needs()

    @classmethod
    def entries(cls, model: M) -> CacheShape | None:
        """Return the shape of its own KV entries, if it has any."""
        return None

    @classmethod
    def memory(cls, model: M, target: Target, config: EngineConfig) -> Shapes:
        """Return the other arena tensors that it needs; the first dimension is the request row."""
        return {}

    @classmethod
    def lookahead(cls, model: M) -> int:
        """Return how many tokens behind its own position an entry is made of."""
        return 0

    def weights(self) -> tuple[Tensor, ...]:
        """Return every tensor that its graphs read and that is not declared elsewhere."""
        return ()

    @abstractmethod
    def prefill(self, chunks: PromptChunks) -> None:
        """Add a chunk of each prompt, eagerly."""

    def prompt_entries(self, batch: tuple[PrefillRow, ...]) -> int:
        """Return how many rows a forward of `prefill` has: of ranks all pad to the most."""
        return sum(len(row.ids) for row in batch)

    def look_up(self, batch: tuple[DecodeRow, ...]) -> HostDrafts | None:
        """Return what the host alone proposes before a round begins, within the num_drafts of each row, if it does."""
        return None

    def propose(self, batch: tuple[DecodeRow, ...], req_rows: Tensor, steps: int) -> Proposal:
        """Propose on the device, outside of a graph, within the num_drafts of each row of req_rows [R]."""
        raise TypeError(f"{type(self).__name__} proposes in its graph, or on the host")

    def extend_inputs(self, width: int) -> Shapes:
        """Return the buffers of the extenders, by the shape of one row."""
        return {}

    def extend_values(self, accepted: Accepted) -> Mapping[str, Tensor]:
        """Return the values of those buffers."""
        return {}

    def save_next_round(self, accepted: Accepted, outputs: tuple[Outputs, ...]) -> None:
        """Save what the next round starts from, after the extenders have run."""

    def rows_of(self, req_row: int) -> Mapping[str, Tensor]:
        """Return copies of its tensors of a request row, from which the next round of the request starts."""
        names = self.memory(self.model, self.context.target, self.context.config)
        return {name: self.context.arena[name][req_row].clone() for name in names}

    def receive(self, row: PrefillRow, rows: Mapping[str, Tensor]) -> None:
        """Begin a request that another engine prefilled, with the rows that `rows_of` returned there."""
        for name, values in rows.items():
            self.context.arena[name][row.req_row] = values

    def next_hidden_states(self, req_row: int, seq_len: int) -> Tensor | None:
        """Return the hidden states [C, D] that the next round of a request row has of its last C entries."""
        return None

    def origin(self, request: int) -> Mapping[str, Any]:
        """Return the origin of the proposals of a request's round: a `propose` channel -> its value in plain types."""
        return {}

    def tracked_requests(self) -> tuple[int, ...]:
        """Return the requests that it has something of on the host, ascending."""
        return ()

    def release(self, request: int) -> None:
        """Forget a request that has ended; the next owner of its row overwrites what is there."""


class ModelDraft(Draft[N]):
    """A draft that runs a model with entries of its own."""

    cache: PagedCache

    def __init__(self, model: N, context: DraftContext) -> None:
        super().__init__(model, context)
        assert context.cache is not None
        self.cache = context.cache

    @classmethod
    def entries(cls, model: N) -> CacheShape | None:
        """Return the shape of the model's entries."""
        return model.cache_shape

    def weights(self) -> tuple[Tensor, ...]:
        """Return the model's."""
        return self.model.weights()

    def drawn(
        self,
        views: Views,
        logits: Tensor,
        positions: Tensor,
        token: Tensor,
        *,
        place: int,
        width: int = 1,
        target_ids: Tensor | None = None,
    ) -> Tensor:
        """Return the drafts from number `place` on, `width` a row: `token` [T], the best of logits [T, V'], or drawn.

        `positions` [T] are those where they stand. What they are drawn by is kept in draft_weights [B, W-1, V]; -1 is
        no place there.
        """
        if not self.context.config.drafts_sampled:
            return token
        token = token.clone()
        weights = sample_draft(self.context.target, token, logits, positions, Sampled.of(views, width), target_ids)
        first = max(0, -place)
        kept = views["draft_weights"][:, place + first : place + width]
        kept.copy_(weights.view(len(kept), width, -1)[:, first:])
        return token

    def extend_inputs(self, width: int) -> Shapes:
        """Return req_rows, positions and correct_len [B]."""
        return dict.fromkeys(("req_rows", "positions", "correct_len"), ((), torch.int64))

    def extend_values(self, accepted: Accepted) -> Mapping[str, Tensor]:
        """Return the inputs of the extend for a round; the first correct_len + 1 rows of a request are committed."""
        return {"req_rows": accepted.req_rows, "positions": accepted.seq_lens, "correct_len": accepted.correct_len}


def metadata_of_rows(
    context: DraftContext, req_rows: Tensor, positions: Tensor, last_column: Tensor, width: int = 1
) -> AttentionMetadata:
    """Return the metadata of `width` tokens a row from its position on.

    Those behind `last_column` [R] (-1: all) are padding, in slot 0.
    """
    size = req_rows.shape[0]
    token_positions, slot_mapping = req_rows.new_empty((size, width)), req_rows.new_empty((size, width))
    config = context.config
    pages = (context.page_table, req_rows, positions, last_column, config.page_size, config.max_len)
    kernels.assign_slots(token_positions, slot_mapping, *pages)
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
        """Record `name`.ids, .positions, .slots, .rows, .visible and .hidden, as far as there are any."""
        if ids is not None:
            self._taps.record(f"{name}.ids", ids, step)
        self._taps.record(f"{name}.positions", metadata.positions, step)
        self._taps.record(f"{name}.slots", metadata.slot_mapping, step)
        self._taps.record(f"{name}.rows", metadata.req_rows, step)
        if metadata.last_visible is not None:
            self._taps.record(f"{name}.visible", metadata.last_visible, step)
        if hidden_states is not None:
            self._taps.record(f"{name}.hidden", hidden_states, step)

    def choose(
        self,
        name: str,
        logits: Tensor,
        step: int = -1,
        target_ids: Tensor | None = None,
        draw: Callable[[Tensor], Tensor] | None = None,
    ) -> Tensor:
        """Return the token of the highest logit of each row [T], the lowest id of equals, and record it.

        `target_ids` [V'] are the tokens that ids of the logits stand for, if they are not these. With `draw` the token
        is what that makes of it.
        """
        token = torch.empty(logits.shape[0], dtype=torch.int64, device=logits.device)
        kernels.greedy_choice(token, logits)
        if target_ids is not None:
            token = target_ids.index_select(0, token)
        token = draw(token) if draw else token
        self._taps.record(f"{name}.proposal", token, step)
        self._taps.record_margin(f"{name}.margin", logits, step)
        return token
