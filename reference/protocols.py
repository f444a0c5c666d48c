"""Protocols of the models that speculative decoding needs: a target, and one for each kind of draft with a model.

No model has a cache: every call is a function of its arguments. A draft algorithm (reference/drafts/) takes any model
that fits its protocol, a probe or a checkpoint. A standalone draft runs a target; an n-gram draft has no model.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from draftproof.properties.values.drafts import StateOf
from draftproof.properties.values.scenario import LayerType
from draftproof.reference.memo import Pass


class ReferenceTarget(Protocol):
    """A language model: every call is one causal pass from token zero."""

    layer_types: tuple[LayerType, ...]
    """The type of every layer: which of them have key-value entries and which have states."""
    widened: float
    """How many times as far off as a real model's own the logits may be, 1 or more; 0 for a probe, which is exact."""

    def forward(self, tokens: tuple[int, ...], first: int = 0) -> Pass:
        """Tokens at positions 0, 1, ..; `hidden` is what a draft consumes (docs/semantics/heads.md).

        Nobody reads the logits of rows before `first`.
        """


def last_logits(target: ReferenceTarget, tokens: tuple[int, ...]) -> np.ndarray:
    """Return the logits [V] of the last row of a target's pass."""
    logits: np.ndarray = target.forward(tokens, len(tokens) - 1).logits[-1]
    return logits


class _OfEntries(Protocol):
    """A draft of entries (token, hidden).

    `width` is the width of the target's hidden states, which it `takes` after or before the final norm. `ids` are the
    tokens that the places of its logits stand for; None: the target's.
    """

    width: int
    takes: StateOf
    ids: tuple[int, ...] | None


def taken(draft: _OfEntries, whole: Pass) -> np.ndarray:
    """Return the hidden states of the target's pass that a draft reads: [T, width]."""
    return whole.before_norm if draft.takes == "before_norm" else whole.hidden


class ReferenceHead(_OfEntries, Protocol):
    """An EAGLE head."""

    def forward(self, tokens: tuple[int, ...], hidden: np.ndarray) -> Pass:
        """Entries at positions 0, 1, ..; entry i has the token of position i + 1; `hidden` is the state handed on."""


class ReferenceWideHead(Protocol):
    """An EAGLE-3 head; it takes the outputs of the target's layers `features`, which are of `width` side by side.

    `ids` are the tokens that the places of its logits stand for; None: the target's.
    """

    width: int
    features: tuple[int, ...]

    @property
    def ids(self) -> tuple[int, ...] | None: ...

    def forward(self, tokens: tuple[int, ...], hidden: np.ndarray) -> Pass:
        """Return the pass of `ReferenceHead.forward`, over states of the head's own width."""

    def join(self, features: np.ndarray) -> np.ndarray:
        """Features [T, F] -> states of the head's own width, which entries consume and hand on."""


class ReferenceChain(_OfEntries, Protocol):
    """The `layers` of chained multi-token prediction, each with weights and entries of its own.

    With `chain` off every layer takes the target's states, else layer j > 0 takes what layer j - 1 handed on.
    """

    layers: int
    chain: bool

    def forward(self, layer: int, tokens: tuple[int, ...], hidden: np.ndarray) -> Pass:
        """One layer over entries at positions 0, 1, ..; entry i has the token of position i + 1 + layer.

        `hidden` of the pass is what the layer hands on, which need not be the states that `logits` are of; `kv` has one
        element.
        """


class ReferenceBlock(Protocol):
    """A draft of `layers` layers that fills in masked tokens at once; `mask` is the id of one.

    Its context entries are made of the outputs of the target's layers `features`, side by side: `F` lanes together,
    which is `width`.
    """

    width: int
    layers: int
    features: tuple[int, ...]
    mask: int

    def entries(self, features: np.ndarray, first: int) -> tuple[np.ndarray, ...]:
        """Context entries [T, entry] of every layer from features [T, F] of positions `first`, `first` + 1, .."""

    def forward(self, ids: tuple[int, ...], features: np.ndarray) -> Pass:
        """Return the pass over a block of ids at positions n, n + 1, .. after features [n, F].

        Each row sees the features and the whole block.

        The pass has a row for each of the block; `hidden` is what logits are of, `kv` are the block's own entries.
        """
