"""Probe weights: the checkpoint of a probe model, as odd integers modulo 2^64 drawn by SplitMix64.

An input that engine and reference both read, as they read a safetensors file; the arithmetic done with them is each
side's own. `V` vocabulary, `D` lanes of the target, `Dd` lanes of the head, `N` heads, `H` head sizes.
Source of the generator: Steele, Lea, Flood, "Fast splittable pseudorandom number generators" (OOPSLA 2014).
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from functools import lru_cache

import msgspec
import numpy as np

from draftproof.properties.values.drafts import DFlash, Eagle, Eagle3, Mtp, Ngram, ProbeDraft, Standalone
from draftproof.properties.values.scenario import Linear, ProbeModel

Weights = Mapping[str, np.ndarray]
"""name -> tensor"""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def splitmix(x: np.ndarray) -> np.ndarray:
    """Return the SplitMix64 finalizer, elementwise on uint64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = x ^ (x >> np.uint64(31))
    return mixed


def draw(seed: int, name: str, *shape: int) -> np.ndarray:
    """Return odd uint64 weights, a function of (seed, name, index) only."""
    base = splitmix(np.array([(seed << 32) ^ zlib.crc32(name.encode())], dtype=np.uint64))
    count = np.arange(int(np.prod(shape)), dtype=np.uint64) + np.uint64(1)
    return (splitmix(base + count * _GOLDEN) | np.uint64(1)).reshape(shape)


def _layer(
    seed: int, prefix: str, spec: ProbeModel | ProbeDraft, inputs: int = 0, *, mrope: bool = False
) -> dict[str, np.ndarray]:
    """Return an attention layer with queries, keys and values over `inputs` lanes (0: as many as the layer has).

    Positions are multiplied by one vector for each of q, k and v, or with `mrope` by three.
    """
    sizes = (spec.heads * spec.key_dim, spec.kv_heads * spec.key_dim, spec.kv_heads * spec.value_dim)
    weights: dict[str, np.ndarray] = {}
    for name, size in zip("qkv", sizes, strict=True):
        weights[f"{prefix}.{name}.weight"] = draw(seed, f"{prefix}.{name}", size, inputs or spec.lanes)
        shape = (3, size) if mrope else (size,)
        weights[f"{prefix}.{name}.position"] = draw(seed, f"{prefix}.{name}.p", *shape)
    weights[f"{prefix}.o.weight"] = draw(seed, f"{prefix}.o", spec.lanes, spec.heads * spec.value_dim)
    weights[f"{prefix}.mlp.weight"] = draw(seed, f"{prefix}.mlp", spec.lanes, spec.lanes)
    weights[f"{prefix}.q.gate"] = np.ones(sizes[0], dtype=np.uint64)
    return weights


def _linear_layer(seed: int, prefix: str, sizes: Linear, lanes: int) -> dict[str, np.ndarray]:
    """Return a gated delta net layer; `start.*` is the state of a new request.

    Q channels of the convolution (queries, keys, values), C its width, U value heads of size E, H the key size.
    """
    heads, channels, inner = sizes.value_heads, sizes.channels, sizes.value_heads * sizes.value_dim
    shapes = {
        "qkv.weight": (channels, lanes),
        "z.weight": (inner, lanes),
        "a.weight": (heads, lanes),
        "b.weight": (heads, lanes),
        "conv.weight": (channels, sizes.conv),
        "a_log": (heads,),
        "dt_bias": (heads,),
        "norm.weight": (sizes.value_dim,),
        "o.weight": (lanes, inner),
        "mlp.weight": (lanes, lanes),
        "start.conv": (sizes.conv - 1, channels),
        "start.ssm": (heads, sizes.key_dim, sizes.value_dim),
    }
    weights = {f"{prefix}.{name}": draw(seed, f"{prefix}.{name}", *shape) for name, shape in shapes.items()}
    if not sizes.start:
        for name in ("start.conv", "start.ssm"):
            weights[f"{prefix}.{name}"] = np.zeros(shapes[name], dtype=np.uint64)
    return weights


@lru_cache(maxsize=64)
def target_weights(spec: ProbeModel) -> dict[str, np.ndarray]:
    """Return the weights of a target.

    They are embed [V,D], unembed [V,D]; of a full attention layer layers.i.{q,k,v}.{weight,position}, q.gate, o.weight,
    mlp.weight; of a linear one what `_linear_layer` lists.

    No layer changes lane 0: it is the embedding's. In the first full attention layer the first query head is gated to
    zero (it weighs every visible token 1) and the first value row copies lane 0: that head's first output is the
    *carry*, the sum over visible tokens of mix(embed[t, 0] + p * c), which a draft can continue.
    """
    weights = {"embed": draw(spec.seed, "embed", spec.vocab, spec.lanes)}
    weights["unembed"] = draw(spec.seed, "unembed", spec.vocab, spec.lanes)
    for layer, kind in enumerate(spec.types):
        if kind == "linear_attention":
            assert spec.linear is not None
            weights |= _linear_layer(spec.seed, f"layers.{layer}", spec.linear, spec.lanes)
        else:
            weights |= _layer(spec.seed, f"layers.{layer}", spec, mrope=spec.mrope)
    for layer in range(spec.layers):
        weights[f"layers.{layer}.o.weight"][0] = 0
        weights[f"layers.{layer}.mlp.weight"][0] = 0
    first = f"layers.{carry_layer(spec)}"
    weights[f"{first}.q.gate"][: spec.key_dim] = 0
    weights[f"{first}.v.weight"][0] = _unit(spec.lanes)
    if spec.mrope:
        # A draft does not know the three positions of the next token: the carry goes by none.
        weights[f"{first}.v.position"][:, 0] = 0
    return weights


def carry_layer(spec: ProbeModel) -> int:
    """Return the layer that computes the carry: the first of full attention, or the first with a window."""
    return spec.types.index("full_attention" if "full_attention" in spec.types else "sliding_attention")


def _constant(target: ProbeModel) -> np.ndarray:
    """Return c of the carry: [1]."""
    return target_weights(target)[f"layers.{carry_layer(target)}.v.position"].reshape(-1)[:1]


@lru_cache(maxsize=64)
def draft_weights(draft: ProbeDraft | Ngram, target: ProbeModel) -> dict[str, np.ndarray]:
    """Return the weights of a probe's draft.

    They are those that its specification lists (`shapes`), layers.i.* of its attention layers, and of its target embed,
    unembed and carry.position [1]. A standalone draft is a model of its own. A block draft has over Df = D *
    len(features) lanes of context layers.i.{k,v}.context [.., Df] besides; a draft of entries what `_own` lists. For an
    EAGLE-3 head see `_eagle3_weights`.
    """
    if isinstance(draft, Standalone):
        return _standalone_weights(draft, target)
    if isinstance(draft, Eagle3):
        return _eagle3_weights(draft, target)
    if isinstance(draft, Ngram):
        return {}
    shared = target_weights(target)
    weights = {"embed": shared["embed"], "unembed": shared["unembed"], "carry.position": _constant(target)}
    for name, shape in draft.shapes(target.lanes).items():
        weights[name.partition(".")[2]] = draw(draft.seed, name, *shape)
    for layer in range(getattr(draft, "layers", 1) if hasattr(draft, "heads") else 0):
        weights |= _layer(draft.seed, f"layers.{layer}", draft, mrope=target.mrope)
    if isinstance(draft, Eagle | Mtp):
        weights |= _own(draft, target)
    return _with_context(weights, draft, target) if isinstance(draft, DFlash) else weights


def _own(draft: Eagle | Mtp, target: ProbeModel) -> dict[str, np.ndarray]:
    """Return what a draft has of its own: own.embed [V, D], own.ids [V'] and own.unembed.j [V', D] of layer j.

    own.ids are the target's ids that its own 0, 1, .. V' - 1 stand for, in no order. Lane 0 of the target's embedding,
    which the carry is made of, is the last one of the draft's.
    """
    weights, count = dict[str, np.ndarray](), draft.head_vocab or target.vocab
    if draft.own_embedding:
        weights["own.embed"] = draw(draft.seed, "own.embed", target.vocab, target.lanes)
        weights["own.embed"][:, -1] = target_weights(target)["embed"][:, 0]
    if draft.head_vocab:
        weights["own.ids"] = draw(draft.seed, "own.ids", target.vocab).argsort()[:count].astype(np.uint64)
    for layer in range(getattr(draft, "layers", 1) if draft.own_head else 0):
        weights[f"own.unembed.{layer}"] = draw(draft.seed, f"own.unembed.{layer}", count, target.lanes)
    return weights


def _with_context(weights: dict[str, np.ndarray], draft: DFlash, target: ProbeModel) -> dict[str, np.ndarray]:
    """Add what makes entries of the context, and the carry.

    Lane 0 of a block row is its embedding's. In layer 0 the first query head is gated to zero, and its first value
    copies lane 0 of a block row or of the first feature, with the target's constant: what it sums up is the carry.
    """
    lanes = target.lanes * len(draft.features)
    for layer in range(draft.layers):
        for name, size in (("k", draft.key_dim), ("v", draft.value_dim)):
            shape = (draft.kv_heads * size, lanes)
            weights[f"layers.{layer}.{name}.context"] = draw(draft.seed, f"dflash.{layer}.{name}.context", *shape)
    weights["in"][0] = _unit(target.lanes)
    weights["layers.0.q.gate"][: draft.key_dim] = 0
    weights["layers.0.v.weight"][0] = _unit(draft.lanes)
    weights["layers.0.v.context"][0] = _unit(lanes)
    weights["layers.0.v.position"][..., :1] = _constant(target)
    return weights


def _eagle3_weights(draft: Eagle3, target: ProbeModel) -> dict[str, np.ndarray]:
    """Return the weights of an EAGLE-3 head of Vd tokens, with an embedding of E lanes: the target's, or its own Dd.

    They are fc [Dd, D * len(features)], embed [V, E], layers.0.* over E + Dd lanes, unembed [Vd, Dd], carry.position
    [1], and for a vocabulary of its own d2t [Vd]: the offset from a token's id to the target's.

    Lane 0 of embed is the target's. Lane 1 of the output of fc is lane 0 of the first feature, which is the
    embedding's. The first query head is gated to zero, and its first value copies that lane with the target's constant:
    the sum of these is the carry.
    """
    shared, kept = target_weights(target), draft_vocabulary(draft, target)
    embed = shared["embed"]
    if draft.own_embedding:
        embed = draw(draft.seed, "eagle3.embed", target.vocab, draft.lanes)
        embed[:, 0] = shared["embed"][:, 0]
    weights = {"embed": embed, "carry.position": _constant(target)}
    weights["unembed"] = draw(draft.seed, "eagle3.unembed", len(kept), draft.lanes)
    for name, shape in draft.shapes(target.lanes).items():
        weights[name.partition(".")[2]] = draw(draft.seed, name, *shape)
    if draft.head_vocab:
        weights["d2t"] = (np.array(kept) - np.arange(len(kept))).astype(np.uint64)
    lanes = embed.shape[1]
    weights |= _layer(draft.seed, "layers.0", draft, lanes + draft.lanes, mrope=target.mrope)
    weights["fc"][1] = _unit(target.lanes * len(draft.features))
    weights["layers.0.q.gate"][: draft.key_dim] = 0
    weights["layers.0.v.weight"][0] = np.roll(_unit(lanes + draft.lanes), lanes + 1)
    weights["layers.0.v.position"][..., :1] = _constant(target)
    return weights


@lru_cache(maxsize=64)
def draft_vocabulary(draft: Eagle3, target: ProbeModel) -> tuple[int, ...]:
    """Return the target's ids of the tokens that a draft can choose, ascending: that is their order in the draft."""
    order = np.argsort(draw(draft.seed, "eagle3.vocabulary", target.vocab))
    return tuple(sorted(order[: draft.head_vocab or target.vocab].tolist()))


def standalone_model(draft: Standalone, target: ProbeModel) -> ProbeModel:
    """Return the language model that a standalone draft is."""
    sizes = msgspec.structs.asdict(draft)
    sizes["layer_types"] = ("sliding_attention",) * draft.layers if draft.window else ()
    return ProbeModel(**sizes, vocab=target.vocab, logit_bits=target.logit_bits, agreement=256, mrope=target.mrope)


def _standalone_weights(draft: Standalone, target: ProbeModel) -> dict[str, np.ndarray]:
    """Return the weights of `standalone_model`; what makes the carry, lane 0 of embed and c, are the target's."""
    own = target_weights(standalone_model(draft, target))
    weights = {name: array.copy() for name, array in own.items()}
    weights["embed"][:, 0] = target_weights(target)["embed"][:, 0]
    weights["layers.0.v.position"][..., :1] = _constant(target)
    return weights


def _unit(size: int) -> np.ndarray:
    """Return a vector with 1 at place 0."""
    unit = np.zeros(size, dtype=np.uint64)
    unit[0] = 1
    return unit
