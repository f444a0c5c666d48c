"""Probe targets in numpy uint64: all arithmetic modulo 2^64, so every result is exact in any order of summation.

Shapes: `T` new rows, `J` all rows so far, `D` lanes, `V` vocabulary, `Nq` query heads, `N` key-value heads, `H` key
size, `E` value size. Row i of a pass is position i. Definitions: docs/semantics/probes.md.
Layers of type linear_attention: probe_linear.py; drafts: probe_drafts.py, probe_block.py.
"""

from __future__ import annotations

from collections.abc import Hashable
from copy import copy
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from draftproof.properties.values.drafts import ProbeDraft
from draftproof.properties.values.scenario import LayerType, ProbeModel
from draftproof.properties.weights.probe import Weights, target_weights
from draftproof.reference.memo import Memo, Pass
from draftproof.reference.mrope import RopePlaces
from draftproof.reference.probe.linear import LinearLayer
from draftproof.reference.probe.ring import ONE, coded, mix, turned

_FAVOUR = float(2**23)
TEXT = RopePlaces()
_FULL: LayerType = "full_attention"
_SLIDING: LayerType = "sliding_attention"
_33, _BYTE = np.array(33, dtype=np.uint64), np.array(255, dtype=np.uint64)


@dataclass(frozen=True)
class LayerMatrices:
    """Attention and MLP of a layer. Matrices are stored input first: `qkv` [D, q+k+v], `o` [Nq*E, D], `mlp` [D, D].

    A row sees `window` positions, its own among them (0: all). Entries keep `bits` of each number."""

    qkv: np.ndarray
    position: np.ndarray
    gate: np.ndarray
    o: np.ndarray
    mlp: np.ndarray
    kv_heads: int
    key_dim: int
    window: int
    bits: int
    places: RopePlaces = TEXT

    @classmethod
    def of(cls, weights: Weights, prefix: str, spec: ProbeModel | ProbeDraft, window: int) -> LayerMatrices:
        return cls(
            qkv=turned(np.concatenate([weights[f"{prefix}.{name}.weight"] for name in "qkv"])),
            position=np.concatenate([weights[f"{prefix}.{name}.position"] for name in "qkv"], axis=-1),
            gate=weights[f"{prefix}.q.gate"],
            o=turned(weights[f"{prefix}.o.weight"]),
            mlp=turned(weights[f"{prefix}.mlp.weight"]),
            kv_heads=spec.kv_heads,
            key_dim=spec.key_dim,
            window=window,
            bits=spec.kv_bits,
        )

    def __call__(self, x: np.ndarray, past: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows x [T, D] after the entries past [J-T, k+v]: the output [T, D], all entries [J, k+v], o[0, 0] [T]."""
        start = len(past)
        q, new = self.project(x, start)
        kv = self.stored(new)
        kv = np.concatenate((past, kv)) if start else kv
        o = self.attend(q, kv, visible(len(kv), self.window)[start:])
        return self.output(x, o), kv, o[:, 0]

    def placed(self, places: RopePlaces) -> LayerMatrices:
        """Return the same layer over tokens with these RoPE positions."""
        return replace(self, places=places)

    def project(self, x: np.ndarray, start: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows x [T, D] at positions `start`, `start` + 1, ..: queries [T, Nq*H] and entries [T, k+v]."""
        qkv = mix(x @ self.qkv + located(self.position, self.places, start, len(x)))
        queries = len(self.gate)
        return qkv[:, :queries] * self.gate, qkv[:, queries:]

    def stored(self, kv: np.ndarray) -> np.ndarray:
        """Entries [T, N*H + N*E] as they are read from memory: of each head the first number, and codes of others."""
        if self.bits == 64:
            return kv
        keys = self.kv_heads * self.key_dim
        parts = (kv[:, :keys].reshape(len(kv), self.kv_heads, -1), kv[:, keys:].reshape(len(kv), self.kv_heads, -1))
        return np.concatenate([coded(part, self.bits).reshape(len(kv), -1) for part in parts], axis=1)

    def attend(self, q: np.ndarray, kv: np.ndarray, visible: np.ndarray | None) -> np.ndarray:
        """q [T, Nq*H] over entries kv [J, N*H + N*E], those that visible [T, J] has 1 for or all: [T, Nq*E]."""
        rows, seen, keys = len(q), len(kv), self.kv_heads * self.key_dim
        q = q.reshape(rows, self.kv_heads, -1, self.key_dim).transpose(1, 2, 0, 3)
        k = kv[:, :keys].reshape(seen, self.kv_heads, self.key_dim).transpose(1, 2, 0)
        v = kv[:, keys:].reshape(seen, self.kv_heads, -1).transpose(1, 0, 2)
        weight = mix(q @ k[:, None]) | ONE
        if visible is not None:
            weight *= visible
        return (weight @ v[:, None]).transpose(2, 0, 1, 3).reshape(rows, -1)

    def output(self, x: np.ndarray, o: np.ndarray) -> np.ndarray:
        """x [T, D] and what was attended to, o [T, Nq*E]: the output [T, D]."""
        x = x + mix(o @ self.o)
        return x + mix(x @ self.mlp)


@dataclass(frozen=True)
class ReferenceUnembedding:
    """Logits from hidden states: a hash of the whole state, and one favourite chosen by its carry.

    `ids` are the tokens that the columns of `weight` are for, out of `vocab`.
    """

    weight: np.ndarray
    bits: int
    ids: np.ndarray
    vocab: int

    def __call__(self, hidden: np.ndarray, agreement: int) -> np.ndarray:
        """hidden [T, D] -> [T, V] float64, integers below 2^24; the favourite counts in `agreement` of 256 contexts."""
        logits = (mix(hidden @ self.weight) >> np.uint64(64 - self.bits)).astype(np.float64)
        m = mix(hidden[:, 0])
        counts = (m & _BYTE) < np.uint64(agreement)
        logits += (self.favourite(m)[:, None] == self.ids) * counts[:, None] * _FAVOUR
        return logits

    def favourite(self, m: np.ndarray) -> np.ndarray:
        """Return the token that each mixed carry prefers."""
        return (m >> _33) % np.uint64(self.vocab)

    @classmethod
    def of(cls, weights: Weights, target: ProbeModel) -> ReferenceUnembedding:
        ids = np.arange(target.vocab, dtype=np.uint64)
        return cls(turned(weights["unembed"]), target.logit_bits, ids, target.vocab)

    @classmethod
    def of_draft(cls, weights: Weights, target: ProbeModel, layer: int) -> ReferenceUnembedding:
        """Return the unembedding of a draft's layer: its own, or the target's for the tokens that it can propose."""
        shared = cls.of(weights, target)
        ids = weights.get("own.ids", shared.ids)
        own = weights.get(f"own.unembed.{layer}")
        return replace(shared, weight=shared.weight[:, ids] if own is None else turned(own), ids=ids)


@dataclass(frozen=True)
class Parts:
    """What a language model is made of, and `name`, by which a memo knows it; `embed` [V, D]."""

    name: Hashable
    embed: np.ndarray
    layers: tuple[LayerMatrices | LinearLayer, ...]
    unembed: ReferenceUnembedding
    carry_layer: int

    @classmethod
    def of(cls, name: Hashable, weights: Weights, spec: ProbeModel) -> Parts:
        layers = tuple(
            LinearLayer.of(weights, f"layers.{index}", spec.linear)
            if spec.linear is not None and kind == "linear_attention"
            else LayerMatrices.of(weights, f"layers.{index}", spec, spec.window if kind == _SLIDING else 0)
            for index, kind in enumerate(spec.types)
        )
        # The carry is made in the first layer that sees everything, or else in the first that attends at all.
        making = _FULL if _FULL in spec.types else _SLIDING
        return cls(name, weights["embed"], layers, ReferenceUnembedding.of(weights, spec), spec.types.index(making))


def located(position: np.ndarray, places: RopePlaces, start: int, count: int) -> np.ndarray:
    """Return what positions `start`, `start` + 1, .. add, [T, O].

    `position` is [O], or [3, O] where a token has three positions.
    """
    if position.ndim == 1:
        return np.arange(start, start + count, dtype=np.uint64)[:, None] * position
    return places.rows(start, count) @ position


class ReferenceProbeTarget:
    """The target of a probe scenario; with `parts` of its own any other language model of its sizes."""

    def __init__(self, spec: ProbeModel, memo: Memo, parts: Parts | None = None) -> None:
        parts = parts or Parts.of(spec, target_weights(spec), spec)
        self._spec, self._known, self.layer_types = spec, memo.of(parts.name), spec.types
        self._memo, self._name = memo, parts.name
        self.widened = 0.0
        self._embed, self._layers, self._unembed = parts.embed, parts.layers, parts.unembed
        self._carry_layer = parts.carry_layer
        linear = [layer for layer in self._layers if isinstance(layer, LinearLayer)]
        states = tuple(np.empty((0, len(layer.start)), np.uint64) for layer in linear)
        known = empty(spec.lanes, spec, len(self._layers) - len(states), spec.vocab)
        self._empty = known._replace(states=states, layers=(known.hidden,) * len(self._layers))

    def placed(self, places: RopePlaces) -> ReferenceProbeTarget:
        """Return the same model over texts with these RoPE positions."""
        if not self._spec.mrope:
            return self
        made = copy(self)
        made._layers = tuple(one if isinstance(one, LinearLayer) else one.placed(places) for one in self._layers)
        made._known = self._memo.of((self._name, places))
        return made

    def forward(self, tokens: tuple[int, ...], first: int = 0) -> Pass:
        """Return the causal pass over tokens at positions 0, 1, .."""
        known = self._known.longest(tokens, self._empty)
        start = len(known.hidden)
        if start == len(tokens):
            return known
        x, carry, new = self._run(self._embed[list(tokens[start:])], known)
        before, hidden = x.copy(), mix(x)
        before[:, 0] = hidden[:, 0] = carry
        logits = self._unembed(hidden, self._spec.agreement)
        whole = new._replace(hidden=hidden, logits=logits, before_norm=before)
        whole = joined(known, whole)
        self._known.keep(tokens, whole, start)
        return whole

    def _run(self, x: np.ndarray, known: Pass) -> tuple[np.ndarray, np.ndarray, Pass]:
        """Run rows x [T, D] through all layers after a known pass; return the output, the carry [T], and a pass.

        The pass has the entries and states of all rows, and the layers' outputs of the new ones.
        """
        kv: list[np.ndarray] = []
        states: list[np.ndarray] = []
        outputs: list[np.ndarray] = []
        carry = x[:, 0]
        for index, layer in enumerate(self._layers):
            if isinstance(layer, LinearLayer):
                x, after = layer(x, known.states[len(states)])
                states.append(after)
            else:
                x, entries, first = layer(x, known.kv[len(kv)])
                carry = first if index == self._carry_layer else carry
                kv.append(entries)
            outputs.append(x)
        return x, carry, Pass(x, x, tuple(kv), tuple(states), tuple(outputs))


def empty(lanes: int, sizes: ProbeModel | ProbeDraft, layers: int, vocab: int) -> Pass:
    """Return the pass over no input of a model that has `layers` layers of full attention."""
    kv = np.empty((0, sizes.kv_heads * (sizes.key_dim + sizes.value_dim)), dtype=np.uint64)
    return Pass(np.empty((0, lanes), dtype=np.uint64), np.empty((0, vocab)), (kv,) * layers)


def joined(known: Pass, new: Pass) -> Pass:
    """Return `new` with the rows of a known pass before its own; it has the entries and states of all rows already."""
    if not len(known.hidden):
        return new
    return new._replace(
        hidden=np.concatenate((known.hidden, new.hidden)),
        logits=np.concatenate((known.logits, new.logits)),
        layers=tuple(map(np.concatenate, zip(known.layers, new.layers, strict=True))),
        before_norm=np.concatenate((known.before_norm, new.before_norm)),
    )


@lru_cache(maxsize=256)
def visible(seen: int, window: int = 0) -> np.ndarray:
    """[J, J]: 1 where row (query) sees column (entry), which is every position up to its own, or the last `window`."""
    visible = np.tri(seen, dtype=np.uint64)
    if window:
        visible -= np.tri(seen, k=-window, dtype=np.uint64)
    visible.setflags(write=False)
    return visible
