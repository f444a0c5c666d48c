"""Probe models in numpy uint64: all arithmetic modulo 2^64, so every result is exact in any order of summation.

Shapes: `T` new rows, `S` all rows so far, `L` lanes of the target, `D` lanes of the head, `V` vocabulary, `N` query
heads, `M` key-value heads, `H` key size, `E` value size. Row i of a pass is position i. Definitions: docs/semantics.md.
Layers of type linear_attention: probe_linear.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from draftproof.properties.values.drafts import Eagle
from draftproof.properties.values.probe import head_weights, target_weights
from draftproof.properties.values.scenario import LayerType, ProbeModel
from draftproof.reference.memo import Memo, Pass
from draftproof.reference.probe_linear import LinearLayer
from draftproof.reference.ring import ONE, mix, turned

Layers = tuple[np.ndarray, ...]
_FAVOUR = float(2**23)
_33, _BYTE = np.array(33, dtype=np.uint64), np.array(255, dtype=np.uint64)


@dataclass(frozen=True)
class _Layer:
    """Attention and MLP of a layer. Matrices are stored input first: `qkv` [L, Q+K+V], `o` [N*E, L], `mlp` [L, L]."""

    qkv: np.ndarray
    position: np.ndarray
    gate: np.ndarray
    o: np.ndarray
    mlp: np.ndarray
    heads: int
    kv_heads: int
    key_dim: int

    @classmethod
    def of(cls, weights: dict[str, np.ndarray], prefix: str, spec: ProbeModel | Eagle) -> _Layer:
        return cls(
            qkv=turned(np.concatenate([weights[f"{prefix}.{name}.weight"] for name in "qkv"])),
            position=np.concatenate([weights[f"{prefix}.{name}.position"] for name in "qkv"]),
            gate=weights[f"{prefix}.q.gate"],
            o=turned(weights[f"{prefix}.o.weight"]),
            mlp=turned(weights[f"{prefix}.mlp.weight"]),
            heads=spec.heads,
            kv_heads=spec.kv_heads,
            key_dim=spec.key_dim,
        )

    def __call__(self, x: np.ndarray, past: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows x [T, L] after the entries past [S-T, K+V]: the output [T, L], all entries [S, K+V], o[0, 0] [T]."""
        start, queries = len(past), self.gate.shape[0]
        positions = np.arange(start, start + len(x), dtype=np.uint64)[:, None]
        qkv = mix(x @ self.qkv + positions * self.position)
        kv = np.concatenate((past, qkv[:, queries:])) if start else qkv[:, queries:]
        o = self._attend(qkv[:, :queries] * self.gate, kv)
        x = x + mix(o @ self.o)
        return x + mix(x @ self.mlp), kv, o[:, 0]

    def _attend(self, q: np.ndarray, kv: np.ndarray) -> np.ndarray:
        """q [T, N*H] of the last T rows over all entries kv [S, M*H + M*E]: [T, N*E]."""
        rows, seen, keys = len(q), len(kv), self.kv_heads * self.key_dim
        q = q.reshape(rows, self.kv_heads, -1, self.key_dim).transpose(1, 2, 0, 3)
        k = kv[:, :keys].reshape(seen, self.kv_heads, self.key_dim).transpose(1, 2, 0)
        v = kv[:, keys:].reshape(seen, self.kv_heads, -1).transpose(1, 0, 2)
        weight = mix(q @ k[:, None]) | ONE
        weight *= _visible(seen)[seen - rows :]
        return (weight @ v[:, None]).transpose(2, 0, 1, 3).reshape(rows, -1)


@dataclass(frozen=True)
class _Unembedding:
    """Logits from hidden states: a hash of the whole state, and one favourite chosen by its carry."""

    weight: np.ndarray
    bits: int

    def __call__(self, hidden: np.ndarray, agreement: int) -> np.ndarray:
        """hidden [T, L] -> [T, V] float64, integers below 2^24; the favourite counts in `agreement` of 256 contexts."""
        logits = (mix(hidden @ self.weight) >> np.uint64(64 - self.bits)).astype(np.float64)
        m = mix(hidden[:, 0])
        favourite = (m >> _33) % np.uint64(logits.shape[1])
        logits[np.arange(len(m)), favourite] += ((m & _BYTE) < np.uint64(agreement)) * _FAVOUR
        return logits


class ProbeTarget:
    """The target of a probe scenario."""

    def __init__(self, spec: ProbeModel, memo: Memo) -> None:
        weights = target_weights(spec)
        self._spec, self._known = spec, memo.of(spec)
        self._embed = weights["embed"]
        self._layers = _target_layers(spec)
        self._unembed = _Unembedding(turned(weights["unembed"]), spec.logit_bits)
        entry = spec.kv_heads * (spec.key_dim + spec.value_dim)
        linear = [layer for layer in self._layers if isinstance(layer, LinearLayer)]
        states = tuple(np.empty((0, len(layer.start)), np.uint64) for layer in linear)
        self._empty = _empty(spec.lanes, spec.vocab, entry, len(self._layers) - len(states))._replace(states=states)

    @property
    def layer_types(self) -> tuple[LayerType, ...]:
        """The type of every layer."""
        return self._spec.types

    def forward(self, tokens: tuple[int, ...]) -> Pass:
        """The causal pass over tokens at positions 0, 1, .."""
        known = self._known.longest(tokens, self._empty)
        start = len(known.hidden)
        if start == len(tokens):
            return known
        x, kv, states, carry = self._run(self._embed[list(tokens[start:])], known)
        hidden = mix(x)
        hidden[:, 0] = carry
        logits = self._unembed(hidden, self._spec.agreement)
        whole = Pass(*_joined(known, hidden, logits), kv, states)
        self._known.keep(tokens, whole, start)
        return whole

    def _run(self, x: np.ndarray, known: Pass) -> tuple[np.ndarray, Layers, Layers, np.ndarray]:
        """Rows x [T, L] through all layers, after a known pass: the output, all entries, all states, the carry [T]."""
        kv: list[np.ndarray] = []
        states: list[np.ndarray] = []
        carry = x[:, 0]
        for layer in self._layers:
            if isinstance(layer, LinearLayer):
                x, after = layer(x, known.states[len(states)])
                states.append(after)
            else:
                x, entries, first = layer(x, known.kv[len(kv)])
                carry = carry if kv else first
                kv.append(entries)
        return x, tuple(kv), tuple(states), carry


class ProbeEagleHead:
    """The EAGLE head of a probe scenario: entry i is at position i and consumes the token of position i + 1."""

    def __init__(self, spec: Eagle, target: ProbeModel, memo: Memo) -> None:
        weights = head_weights(spec, target)
        self._known = memo.of((spec, target))
        self._embed, self._carry = weights["embed"], weights["carry.position"][0]
        self._fc, self._out = turned(weights["fc"]), turned(weights["out"])
        self._layer = _head_layer(spec, target)
        self._unembed = _Unembedding(turned(weights["unembed"]), target.logit_bits)
        self._empty = _empty(target.lanes, target.vocab, spec.kv_heads * (spec.key_dim + spec.value_dim), 1)

    def forward(self, tokens: tuple[int, ...], hidden: np.ndarray) -> Pass:
        """The causal pass over entries 0, 1, ..: tokens [S] and hidden inputs [S, L]; the state g is `hidden` of it."""
        raw, size = hidden.tobytes(), hidden.shape[1] * hidden.itemsize
        inputs = tuple((token, raw[i * size : (i + 1) * size]) for i, token in enumerate(tokens))
        known = self._known.longest(inputs, self._empty)
        start = len(known.hidden)
        if start == len(tokens):
            return known
        embedding, x_in = self._embed[list(tokens[start:])], hidden[start:]
        after = np.arange(start + 1, len(tokens) + 1, dtype=np.uint64)
        x = mix(np.concatenate((embedding, x_in), axis=1) @ self._fc)
        x, kv, _ = self._layer(x, known.kv[0])
        g = mix(x @ self._out)
        g[:, 0] = x_in[:, 0] + mix(embedding[:, 0] + after * self._carry)
        whole = Pass(*_joined(known, g, self._unembed(g, agreement=256)), (kv,))
        self._known.keep(inputs, whole, start)
        return whole


def _empty(lanes: int, vocab: int, entry: int, layers: int) -> Pass:
    kv = np.empty((0, entry), dtype=np.uint64)
    return Pass(np.empty((0, lanes), dtype=np.uint64), np.empty((0, vocab)), (kv,) * layers)


def _joined(known: Pass, hidden: np.ndarray, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if not len(known.hidden):
        return hidden, logits
    return np.concatenate((known.hidden, hidden)), np.concatenate((known.logits, logits))


@lru_cache(maxsize=256)
def _visible(seen: int) -> np.ndarray:
    """[S, S]: 1 where row (query) sees column (entry), which is every position up to its own."""
    visible = np.tri(seen, dtype=np.uint64)
    visible.setflags(write=False)
    return visible


@lru_cache(maxsize=64)
def _target_layers(spec: ProbeModel) -> tuple[_Layer | LinearLayer, ...]:
    weights = target_weights(spec)
    return tuple(
        LinearLayer.of(weights, f"layers.{index}", spec.linear)
        if spec.linear is not None and kind == "linear_attention"
        else _Layer.of(weights, f"layers.{index}", spec)
        for index, kind in enumerate(spec.types)
    )


@lru_cache(maxsize=64)
def _head_layer(spec: Eagle, target: ProbeModel) -> _Layer:
    return _Layer.of(head_weights(spec, target), "layers.0", spec)
