"""The EAGLE-3 head of probe models, in numpy uint64 modulo 2^64.

Shapes: `T` new rows, `J` all rows so far, `Df` lanes of features, `Dd` lanes of the head, `De` lanes of its embedding,
`V` vocabulary, `Vd` that part of the vocabulary that it has. Definitions: docs/semantics/probes.md.
"""

from __future__ import annotations

from collections.abc import Hashable
from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from draftproof.properties.values.drafts import Eagle3
from draftproof.properties.values.scenario import ProbeModel
from draftproof.properties.weights.probe import Weights, draft_weights
from draftproof.reference.memo import Memo, Pass
from draftproof.reference.mrope import RopePlaces
from draftproof.reference.probe.ring import mix, turned
from draftproof.reference.probe.target import LayerMatrices, ReferenceUnembedding, empty, joined, visible


@dataclass(frozen=True)
class _Parts:
    """Weights; `embed` [V, De], `fc` [Df, Dd], `layer` over De + Dd lanes; `nothing` is a pass over no entries."""

    name: Hashable
    embed: np.ndarray
    fc: np.ndarray
    layer: LayerMatrices
    unembed: ReferenceUnembedding
    carry: np.uint64
    nothing: Pass


class ProbeEagle3Head:
    """The EAGLE-3 head of a probe scenario: entry i is at position i and consumes the token of position i + 1."""

    def __init__(self, spec: Eagle3, target: ProbeModel, memo: Memo, weights: Weights | None = None) -> None:
        self._parts = _parts(spec, target, weights or draft_weights(spec, target))
        self._known, self.features = memo.of(self._parts.name), spec.features
        self.width, self.ids = target.lanes * len(spec.features), tuple(self._parts.unembed.ids.tolist())
        self._memo = memo

    def placed(self, places: RopePlaces) -> ProbeEagle3Head:
        """Return the same head over entries with these RoPE positions."""
        made = copy(self)
        made._parts = replace(self._parts, layer=self._parts.layer.placed(places))
        made._known = self._memo.of((self._parts.name, places))
        return made

    def join(self, features: np.ndarray) -> np.ndarray:
        """Features [T, Df] -> states [T, Dd]."""
        return features @ self._parts.fc

    def forward(self, tokens: tuple[int, ...], hidden: np.ndarray) -> Pass:
        """Return the causal pass over entries 0, 1, ..: tokens [J], states [J, Dd]; the next step gets its `hidden`."""
        raw, size = hidden.tobytes(), hidden.shape[1] * hidden.itemsize
        inputs = tuple((token, raw[i * size : (i + 1) * size]) for i, token in enumerate(tokens))
        known = self._known.longest(inputs, self._parts.nothing)
        start = len(known.hidden)
        if start == len(tokens):
            return known
        whole = joined(known, self._run(tokens[start:], hidden[start:], known.kv[0]))
        self._known.keep(inputs, whole, start)
        return whole

    def _run(self, tokens: tuple[int, ...], x: np.ndarray, past: np.ndarray) -> Pass:
        """Return the pass over the entries [T] that follow `past` [J-T, entry]."""
        parts, start = self._parts, len(past)
        embedding, normed = parts.embed[list(tokens)], mix(x)
        normed[:, 1] = x[:, 1]
        q, new = parts.layer.project(np.concatenate((mix(embedding), normed), axis=1), start)
        kv = np.concatenate((past, parts.layer.stored(new)))
        o = parts.layer.attend(q, kv, visible(len(kv), parts.layer.window)[start:])
        g = parts.layer.output(x, o)
        positions = np.arange(start, start + len(tokens), dtype=np.uint64) + np.uint64(1)
        g[:, 0] = o[:, 0] + mix(embedding[:, 0] + positions * parts.carry)
        g[:, 1] = embedding[:, 0]
        states = mix(g)
        states[:, 0] = g[:, 0]
        return Pass(g, parts.unembed(states, agreement=256), (kv,))


def _parts(spec: Eagle3, target: ProbeModel, weights: Weights) -> _Parts:
    ids = np.arange(len(weights["unembed"]), dtype=np.uint64) + weights.get("d2t", np.uint64(0))
    return _Parts(
        name=(spec, target),
        embed=weights["embed"],
        fc=turned(weights["fc"]),
        layer=LayerMatrices.of(weights, "layers.0", spec, spec.window),
        unembed=ReferenceUnembedding(turned(weights["unembed"]), target.logit_bits, ids, target.vocab),
        carry=weights["carry.position"][0],
        nothing=empty(spec.lanes, spec, 1, len(weights["unembed"])),
    )
