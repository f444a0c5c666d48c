"""The drafts of probe models that are made of entries (token, hidden): an EAGLE head, and the layers of a chain.

Arithmetic modulo 2^64. Shapes: `T` new rows, `J` all rows so far, `D` lanes of the target, `Dd` lanes of the draft.
Definitions: docs/semantics/probes.md.
"""

from __future__ import annotations

from collections.abc import Hashable
from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from draftproof.properties.values.drafts import Eagle, Mtp, Standalone
from draftproof.properties.values.scenario import ProbeModel
from draftproof.properties.weights.probe import Weights, draft_weights, standalone_model
from draftproof.reference.memo import Memo, Pass, Prefixes
from draftproof.reference.mrope import RopePlaces
from draftproof.reference.probe.ring import mix, turned
from draftproof.reference.probe.target import (
    LayerMatrices,
    Parts,
    ReferenceProbeTarget,
    ReferenceUnembedding,
    empty,
    joined,
)


@dataclass(frozen=True)
class _Entries:
    """One layer over entries; entry i has the token of position i + `ahead`.

    `fc` [2D, Dd] applies to (embedding, hidden), `out` is [Dd, D]. Logits are of the output after its mix, which a
    probe has in place of a norm; the next step gets that output, or the one before the mix. Lane `carried` of an
    embedding is what a token adds to the carry.
    """

    name: Hashable
    embed: np.ndarray
    masks_first: bool
    carried: int
    carry: np.ndarray
    fc: np.ndarray
    layer: LayerMatrices
    out: np.ndarray
    unembed: ReferenceUnembedding
    ahead: int
    before_norm: bool
    nothing: Pass

    @classmethod
    def of(cls, spec: Eagle | Mtp, target: ProbeModel, index: int, weights: Weights, ending: str = "") -> _Entries:
        """Layer `index` of a draft; `ending` of the names of its fc and out."""
        return cls(
            name=(spec, target, index),
            embed=weights.get("own.embed", weights["embed"]),
            masks_first=spec.masks_first,
            carried=target.lanes - 1 if spec.own_embedding else 0,
            carry=weights["carry.position"][0],
            fc=turned(weights[f"fc{ending}"]),
            layer=LayerMatrices.of(weights, f"layers.{index}", spec, spec.window),
            out=turned(weights[f"out{ending}"]),
            unembed=ReferenceUnembedding.of_draft(weights, target, index),
            ahead=index + 1,
            before_norm=spec.handed == "before_norm",
            nothing=empty(target.lanes, spec, 1, spec.head_vocab or target.vocab),
        )

    def forward(self, tokens: tuple[int, ...], hidden: np.ndarray, table: Prefixes) -> Pass:
        """Return the causal pass over entries 0, 1, ..: tokens [J] and hidden inputs [J, D]."""
        raw, size = hidden.tobytes(), hidden.shape[1] * hidden.itemsize
        inputs = tuple((token, raw[i * size : (i + 1) * size]) for i, token in enumerate(tokens))
        known = table.longest(inputs, self.nothing)
        start = len(known.hidden)
        if start == len(tokens):
            return known
        whole = joined(known, self._run(tokens[start:], hidden[start:], known.kv[0]))
        table.keep(inputs, whole, start)
        return whole

    def _run(self, tokens: tuple[int, ...], x_in: np.ndarray, past: np.ndarray) -> Pass:
        """Return the pass over the entries [T] that follow `past` [J-T, entry]."""
        embedding, start = self.embed[list(tokens)], len(past)
        if self.masks_first and not start:
            embedding[0] = 0
        x = mix(np.concatenate((embedding, x_in), axis=1) @ self.fc)
        x, kv, _ = self.layer(x, past)
        y = x @ self.out
        g = mix(y)
        positions = np.arange(start, start + len(tokens), dtype=np.uint64) + np.uint64(self.ahead)
        g[:, 0] = x_in[:, 0] + mix(embedding[:, self.carried] + positions * self.carry)
        y[:, 0] = g[:, 0]
        return Pass(y if self.before_norm else g, self.unembed(g, agreement=256), (kv,))


class ProbeEagleHead:
    """The EAGLE head of a probe scenario: entry i is at position i and consumes the token of position i + 1."""

    def __init__(self, spec: Eagle, target: ProbeModel, memo: Memo, weights: Weights | None = None) -> None:
        weights = weights or draft_weights(spec, target)
        self._entries = _Entries.of(spec, target, 0, weights)
        self._known, self.width = memo.of(self._entries.name), target.lanes
        self.takes, self.ids = spec.takes, _ids(spec, weights)
        self._memo = memo

    def placed(self, places: RopePlaces) -> ProbeEagleHead:
        """Return the same head over entries with these RoPE positions."""
        made = copy(self)
        made._entries = replace(self._entries, layer=self._entries.layer.placed(places))
        made._known = self._memo.of((self._entries.name, places))
        return made

    def forward(self, tokens: tuple[int, ...], hidden: np.ndarray) -> Pass:
        """Return the causal pass over entries 0, 1, ..: tokens [J], hidden inputs [J, D]; `hidden` of it is g."""
        return self._entries.forward(tokens, hidden, self._known)


class ReferenceProbeChain:
    """The layers of chained multi-token prediction of a probe scenario."""

    def __init__(self, spec: Mtp, target: ProbeModel, memo: Memo, weights: Weights | None = None) -> None:
        weights = weights or draft_weights(spec, target)
        self._layers = [_Entries.of(spec, target, layer, weights, f".{layer}") for layer in range(spec.layers)]
        self._known = [memo.of(layer.name) for layer in self._layers]
        self.width, self.layers, self.chain = target.lanes, spec.layers, spec.chain
        self.takes, self.ids = spec.takes, _ids(spec, weights)
        self._memo = memo

    def placed(self, places: RopePlaces) -> ReferenceProbeChain:
        """Return the same layers over entries with these RoPE positions."""
        made = copy(self)
        made._layers = [replace(one, layer=one.layer.placed(places)) for one in self._layers]
        made._known = [self._memo.of((one.name, places)) for one in self._layers]
        return made

    def forward(self, layer: int, tokens: tuple[int, ...], hidden: np.ndarray) -> Pass:
        """Return the causal pass of one layer over entries 0, 1, ..; entry i has token i + 1 + `layer`."""
        return self._layers[layer].forward(tokens, hidden, self._known[layer])


def standalone(
    spec: Standalone, target: ProbeModel, memo: Memo, weights: Weights | None = None
) -> ReferenceProbeTarget:
    """Return the language model that a standalone draft is."""
    model = standalone_model(spec, target)
    parts = Parts.of((spec, target), weights or draft_weights(spec, target), model)
    return ReferenceProbeTarget(model, memo, parts)


def _ids(spec: Eagle | Mtp, weights: Weights) -> tuple[int, ...] | None:
    return tuple(weights["own.ids"].tolist()) if spec.head_vocab else None
