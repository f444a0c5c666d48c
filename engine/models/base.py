"""The interfaces of target and draft models, and the metadata of their tokens.

`T` packed tokens, `D` hidden width, `V` vocabulary, `N` heads, `H` head size, `S` KV slots. Of linear layers: `B` rows
of a launch, `R` sequences, `U` value heads, `E` value size, `C` conv width, `Q` channels of the convolution.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from msgspec import Struct
from torch import Tensor


class VerifyStates(Struct, frozen=True):
    """Tokens in rows of one width, each row from the committed state of its slot: slots int64 [B].

    Of trees each token goes on from its parent: parents int64 [B, width - 1] of tokens 1, 2, ..
    """

    state_slots: Tensor
    width: int
    parents: Tensor | None = None


class PrefillStates(Struct, frozen=True):
    """Packed sequences that advance the state in their slots [R]; sequence r has tokens starts[r] .. starts[r + 1] - 1.

    `fresh` lists the slots whose request begins here. The state after token keep_steps[r] of a sequence (-1: none) is
    kept in slot keep_slots[r] of the checkpoints. All int64.
    """

    state_slots: Tensor
    cu_seqlens: Tensor
    new_slots: Tensor
    checkpoint_slots: Tensor
    checkpoint_steps: Tensor


class MixedStates(Struct, frozen=True):
    """Packed tokens of both kinds, in any order: `verify_tokens` [B * W] are the tokens of the rows of `verify`.

    The ones at the places `live` are tokens of their own; behind its last token a row repeats it. `prefill_tokens` [P]
    are the tokens of the sequences of `prefill`. All int64.
    """

    verify: VerifyStates
    verify_tokens: Tensor
    live: Tensor
    prefill: PrefillStates
    prefill_tokens: Tensor


class AttentionMetadata(Struct, frozen=True):
    """Request row, position and KV slot of each of T packed tokens; all int64 [T].

    `states` has the same for recurrent layers; a model without them never reads it. A token sees the entries of
    positions 0 .. `visible` of its row; that is its own position unless given, because in a block everything sees
    everything. A row of a tree sees what is in `visible_slots` [T, J], `ages` positions before its own.
    """

    req_rows: Tensor
    positions: Tensor
    slot_mapping: Tensor
    states: VerifyStates | PrefillStates | MixedStates | None = None
    last_visible: Tensor | None = None
    visible_slots: Tensor | None = None
    ages: Tensor | None = None


BEFORE_NORM = -1
"""In place of a layer: the last hidden states, before the final norm."""


class LayerOutputs:
    """Outputs of chosen layers of one forward pass, residual included; a model records every layer, and BEFORE_NORM."""

    def __init__(self, layers: tuple[int, ...]) -> None:
        self.layers = layers
        self._outputs: dict[int, Tensor] = {}

    def record(self, layer: int, output: Tensor) -> None:
        """Record the output [T, D] of decoder layer `layer`, counted from 0, or BEFORE_NORM."""
        if layer in self.layers:
            self._outputs[layer] = output

    def concatenated(self) -> Tensor:
        """Return them side by side in the order of `layers`: [T, D * len(layers)]."""
        return torch.cat([self._outputs[layer] for layer in self.layers], dim=1)


class CacheShape(Struct, frozen=True):
    """The shape of KV entries: `layers` pairs of [N, key_dim] and [N, value_dim] of `dtype`.

    `windows` is how many positions a row of each layer sees (0: all); empty if every layer sees all. With `codes`
    entries are kept as numbers of that dtype, with a scale of `dtype` for each head; with `fp8` as bytes of e4m3fn,
    with a scale for the keys and one for the values of each layer.
    """

    layers: int
    kv_heads: int
    key_dim: int
    value_dim: int
    dtype: torch.dtype
    windows: tuple[int, ...] = ()
    codes: torch.dtype | None = None
    fp8: tuple[tuple[float, float], ...] = ()

    @property
    def stored(self) -> torch.dtype:
        """Return the dtype of the pools."""
        return torch.uint8 if self.fp8 else self.codes or self.dtype

    @property
    def widest(self) -> int:
        """Return how many positions the row that sees most sees, 0 if some see all."""
        return max(self.windows) if self.windows and all(self.windows) else 0


@dataclass(frozen=True)
class LinearSizes:
    """Sizes of linear layers: key head u // (value_heads / key_heads) serves value head u; `conv` is C."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv: int

    @property
    def keys(self) -> int:
        """Components of all keys, or of all queries."""
        return self.key_heads * self.key_dim

    @property
    def values(self) -> int:
        """Components of all values."""
        return self.value_heads * self.value_dim

    @property
    def channels(self) -> int:
        """Q, the inputs of the convolution: all queries, all keys, all values."""
        return 2 * self.keys + self.values

    def state_shape(self, layers: int, dtype: torch.dtype) -> StateShape | None:
        """Return what `layers` layers keep of a request; None without any. Matrices of floats are float32 at least."""
        wide = dtype if dtype == torch.int64 else torch.promote_types(dtype, torch.float32)
        return StateShape(**vars(self), layers=layers, dtype=dtype, state_dtype=wide) if layers else None


@dataclass(frozen=True)
class StateShape(LinearSizes):
    """The recurrent state of one request in each of `layers` layers.

    The last C - 1 inputs of the convolution, of `dtype`, and U matrices [key_dim, value_dim] of `state_dtype`.
    """

    layers: int
    dtype: torch.dtype
    state_dtype: torch.dtype

    @property
    def window(self) -> tuple[int, int]:
        """[C - 1, Q]."""
        return self.conv - 1, self.channels

    @property
    def matrices(self) -> tuple[int, int, int]:
        """[U, key_dim, value_dim]."""
        return self.value_heads, self.key_dim, self.value_dim


@dataclass(frozen=True)
class RecurrentWeights:
    """Of a gated delta net layer: conv [Q, C], a_log [U], dt_bias [U], and the state that a new request begins with.

    That is start_conv [C - 1, Q] and start_ssm [U, H, E], zero if None.
    """

    conv: Tensor
    a_log: Tensor
    dt_bias: Tensor
    start_conv: Tensor | None = None
    start_ssm: Tensor | None = None

    @property
    def parameters(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return conv, a_log and dt_bias, as kernels take them."""
        return self.conv, self.a_log, self.dt_bias


@dataclass(frozen=True)
class TokenInput:
    """The one token x [1, D] that enters a layer's attention, and what makes q, k and v of it.

    norm [D], weight [(Nq + 2N)H, D] after it; inv_freq [H / 2] rotates all of a head.
    """

    x: Tensor
    norm: Tensor
    weight: Tensor
    eps: float
    inv_freq: Tensor


class Cache(Protocol):
    """Memory of one model: paged KV of its full attention layers, states of its linear ones. Layers count by kind."""

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, metadata: AttentionMetadata, scale: float) -> Tensor:
        """Write k [T, N, Hk] and v [T, N, Hv] to their slots, then attend with q [T, Nq, Hk]: [T, Nq, Hv]."""
        ...

    def attend_token(self, layer: int, token: TokenInput, metadata: AttentionMetadata, scale: float) -> Tensor | None:
        """Project the only token, rotate, write and attend at once: [1, Nq, H]; None where that takes `attend`."""
        ...

    def rope_positions(self, metadata: AttentionMetadata) -> Tensor:
        """Return the three positions of each token [T, 3], or its only one [T, 1]."""
        ...

    def write(self, layer: int, k: Tensor, v: Tensor, metadata: AttentionMetadata) -> None:
        """Write k [T, N, Hk] and v [T, N, Hv] to their slots."""
        ...

    def recur(
        self, layer: int, weights: RecurrentWeights, x: Tensor, a: Tensor, b: Tensor, metadata: AttentionMetadata
    ) -> Tensor:
        """Convolution inputs x [T, Q] and gate inputs a, b [T, U] through the recurrence: [T, U, E]."""
        ...


class Network(Protocol):
    """A model with KV entries of its own; `cache_shape` counts its layers."""

    cache_shape: CacheShape

    def logits(self, hidden_states: Tensor) -> Tensor:
        """[T, D] -> [T, V], float."""
        ...

    def weights(self) -> tuple[Tensor, ...]:
        """Every tensor that forward and logits read, for the graphs' declared memory."""
        ...


class Target(Network, Protocol):
    """A target language model; `layer_types` are "full_attention", "sliding_attention" or "linear_attention".

    `cache_shape` counts the layers that attend; `state_shape` is None without linear ones. Penalties change logits in
    whole numbers; `logit_units` of them make one logit.
    """

    state_shape: StateShape | None
    layer_types: tuple[str, ...]
    width: int
    vocab: int
    logit_units: int
    hidden_dtype: torch.dtype

    def forward(
        self, ids: Tensor, metadata: AttentionMetadata, cache: Cache, layer_outputs: LayerOutputs | None = None
    ) -> Tensor:
        """Hidden states [T, D] after the final norm; `layer_outputs` is told of the output of every layer."""
        ...


class SampledTarget(Target, Protocol):
    """A target from which tokens can be drawn."""

    def token_weights(self, logits: Tensor, temperatures: Tensor) -> Tensor:
        """Return int64 weights [T, V] of logits [T, V]: their sums are below 2^47, and 0 at temperature 0."""
        ...


class EntryModel(Network, Protocol):
    """A draft of entries (token, hidden state).

    It `takes` the target's last hidden states "after_norm" or "before_norm", or outputs of its "layers". `target_ids`
    [V'] maps its own ids to the target's, None where they are the same.
    """

    takes: str
    target_ids: Tensor | None


class Head(EntryModel, Protocol):
    """An EAGLE head: entry i takes (token i + 1, hidden i) and hands on a stand-in for hidden i + 1."""

    def forward(
        self, ids: Tensor, hidden_states: Tensor, metadata: AttentionMetadata, cache: Cache
    ) -> tuple[Tensor, Tensor]:
        """ids [T], hidden_states [T, D] -> (states for logits, states handed on), both [T, D]."""
        ...


class Eagle3Head(Head, Protocol):
    """An EAGLE-3 head: states of `width` lanes of its own, joined from the target's layers `features`."""

    width: int
    features: tuple[int, ...]

    def join(self, features: Tensor) -> Tensor:
        """Features [T, D * len(features)] -> the states that forward takes, [T, width]."""
        ...


class Chain(EntryModel, Protocol):
    """Layers of chained multi-token prediction: `cache_shape` counts them. Layer j's entry i takes token i + 1 + j.

    With `chain` off every layer takes the target's hidden states.
    """

    chain: bool

    def layer_logits(self, layer: int, hidden_states: Tensor) -> Tensor:
        """[T, D] -> [T, V'], float, by the head that goes with a layer."""
        ...

    def forward(
        self, layer: int, ids: Tensor, hidden_states: Tensor, metadata: AttentionMetadata, cache: Cache
    ) -> tuple[Tensor, Tensor]:
        """ids [T], hidden_states [T, D] -> (states for logits, states handed to the next layer), both [T, D]."""
        ...


class Block(Network, Protocol):
    """A draft that fills in a block of masked tokens (id `mask`) at once, over the target's layers `features`."""

    features: tuple[int, ...]
    mask: int

    def append(self, features: Tensor, metadata: AttentionMetadata, cache: Cache) -> None:
        """Write the context entries of features [T, D * len(features)] in every layer."""
        ...

    def forward(self, ids: Tensor, metadata: AttentionMetadata, cache: Cache) -> Tensor:
        """Return the states [B * W, ..] from which logits are computed; ids [B, W] are the tokens of `metadata`."""
        ...


@dataclass(frozen=True)
class NgramSettings:
    """In place of a model: suffixes of `max_n` down to `min_n` tokens are looked for, and the match that counts."""

    max_n: int
    min_n: int = 1
    match: Literal["earliest", "latest"] = "earliest"
