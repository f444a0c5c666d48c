"""The block draft of probe models (DFlash), in numpy uint64 modulo 2^64.

Shapes: `T` positions of context, `W` rows of a block, `D` lanes of the target, `Df` lanes of features, `Dd` lanes of
the draft, `Hk` and `Hv` sizes of the keys and values of an entry, `V` vocabulary.
Definitions: docs/semantics/probes.md.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from draftproof.properties.values.drafts import DFlash
from draftproof.properties.values.scenario import ProbeModel
from draftproof.properties.weights.probe import Weights, draft_weights
from draftproof.reference.memo import Memo, Pass
from draftproof.reference.mrope import RopePlaces
from draftproof.reference.probe.ring import mix, turned
from draftproof.reference.probe.target import TEXT, LayerMatrices, ReferenceUnembedding, located


@dataclass(frozen=True)
class _Context:
    """How a layer makes the entries of features: `weight` [Df, Hk+Hv] and `position` [Hk+Hv] or [3, Hk+Hv]."""

    weight: np.ndarray
    position: np.ndarray
    places: RopePlaces = TEXT

    @classmethod
    def of(cls, weights: Weights, prefix: str) -> _Context:
        return cls(
            turned(np.concatenate([weights[f"{prefix}.{name}.context"] for name in "kv"])),
            np.concatenate([weights[f"{prefix}.{name}.position"] for name in "kv"], axis=-1),
        )

    def __call__(self, features: np.ndarray, first: int) -> np.ndarray:
        """features [T, Df] of positions `first`, `first` + 1, ..: entries [T, Hk+Hv]."""
        return mix(features @ self.weight + located(self.position, self.places, first, len(features)))


@dataclass(frozen=True)
class _Parts:
    """Weights; `embed` [V+1, D] has the mask behind the vocabulary, `into` [D, Dd], `out` [Dd, D].

    In layer 0 the entry of a masked row has 0 at place `carried`: a mask adds nothing to the carry.
    """

    embed: np.ndarray
    into: np.ndarray
    contexts: tuple[_Context, ...]
    layers: tuple[LayerMatrices, ...]
    out: np.ndarray
    unembed: ReferenceUnembedding
    carry: np.ndarray
    carried: int


class ReferenceProbeBlock:
    """The block draft of a probe scenario; a mask is the first id behind the vocabulary."""

    def __init__(self, spec: DFlash, target: ProbeModel, memo: Memo, weights: Weights | None = None) -> None:
        self._parts = _parts(spec, target, weights or draft_weights(spec, target))
        self._memo, self._name = memo, (spec, target)
        self._known = memo.of(self._name)
        self.width, self.layers = target.lanes * len(spec.features), spec.layers
        self.features, self.mask = spec.features, target.vocab

    def placed(self, places: RopePlaces) -> ReferenceProbeBlock:
        """Return the same block over features and rows with these RoPE positions."""
        made, parts = copy(self), self._parts
        layers = tuple(layer.placed(places) for layer in parts.layers)
        contexts = tuple(replace(context, places=places) for context in parts.contexts)
        made._parts = replace(parts, layers=layers, contexts=contexts)
        made._known = self._memo.of((self._name, places))
        return made

    def entries(self, features: np.ndarray, first: int) -> tuple[np.ndarray, ...]:
        """Context entries [T, Hk+Hv] of every layer from features [T, Df] of positions `first`, `first` + 1, .."""
        both = zip(self._parts.layers, self._parts.contexts, strict=True)
        return tuple(layer.stored(context(features, first)) for layer, context in both)

    def forward(self, ids: tuple[int, ...], features: np.ndarray) -> Pass:
        """Return the pass over a block of ids [W] at positions n, n + 1, .. after features [n, Df]."""
        inputs = (ids, features.tobytes())
        if (known := self._known.exact(inputs)) is not None:
            return known
        parts, kv = self._parts, list[np.ndarray]()
        x, carry = parts.embed[list(ids)] @ parts.into, np.zeros(0, np.uint64)
        for index, (layer, context) in enumerate(zip(parts.layers, self.entries(features, 0), strict=True)):
            q, own = layer.project(x, len(features))
            if not index:
                own[np.array(ids) == self.mask, parts.carried] = 0
            own = layer.stored(own)
            o = layer.attend(q, np.concatenate((context, own)), _seen(len(features), len(ids), layer.window))
            carry = carry if index else o[:, 0]
            x = layer.output(x, o)
            kv.append(own)
        g = mix(x @ parts.out)
        g[:, 0] = self._continued(carry, len(features))
        whole = Pass(g, parts.unembed(g, agreement=256), tuple(kv))
        self._known.keep_exact(inputs, whole)
        return whole

    def _continued(self, carry: np.ndarray, n: int) -> np.ndarray:
        """Row i's carry of position n, [W], followed along its own favourites up to position n + i - 1.

        Row 0, which proposes nothing, mixes it: else it would choose what row 1 does.
        """
        parts, place = self._parts, np.arange(len(carry))
        carry = np.where(place == 0, mix(carry), carry)
        for s in range(1, len(carry) - 1):
            lane = parts.embed[parts.unembed.favourite(mix(carry)), 0]
            carry = np.where(place > s, carry + mix(lane + np.uint64(n + s) * parts.carry), carry)
        return carry


def _seen(context: int, rows: int, window: int) -> np.ndarray | None:
    """[W, n+W]: 1 where a row of a block sees a feature or a row of the block; None if each sees them all."""
    if not window:
        return None
    positions = np.arange(context + rows)
    return (positions > positions[context:, None] - window).astype(np.uint64)


def _parts(spec: DFlash, target: ProbeModel, weights: Weights) -> _Parts:
    prefixes = [f"layers.{layer}" for layer in range(spec.layers)]
    return _Parts(
        embed=np.concatenate((weights["embed"], weights["mask"][None])),
        into=turned(weights["in"]),
        contexts=tuple(_Context.of(weights, prefix) for prefix in prefixes),
        layers=tuple(LayerMatrices.of(weights, prefix, spec, spec.window) for prefix in prefixes),
        out=turned(weights["out"]),
        unembed=ReferenceUnembedding.of(weights, target),
        carry=weights["carry.position"],
        carried=spec.kv_heads * spec.key_dim,
    )
