"""Operations as tensors, by the names that Hugging Face gives to those of one layer, without the layer's prefix."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from draftproof.tracer.kernel import DistanceKernel
from draftproof.tracer.matrices import Matrix, mlp, queries_and_keys, values_and_outputs
from draftproof.tracer.program import SLOT_BITS, TAPS, TRUE, BitHead, BitLayer, CopyHead, SlotMemory

Tensors = dict[str, Matrix]
SATURATED = 32.0
"""Whose sigmoid is 1 and whose negative's is 0; SiLU leaves it as it is, and its negative nothing."""
NORM_EPSILON, EXPERT_COUNT = 1e-6, 4
_LITERALS = np.array([[-1, -1], [1, -1], [-1, 1], [1, 1]])
"""The signs of the route's bits for which each of the experts is meant."""
VALUE_DIM = 64
"""Lanes of a delta net's values: four for each bit that one can keep."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of an architecture's layers; units are those of an MLP, of an expert, and of the shared one."""

    width: int = 0
    units: int = 0
    of_expert: int = 0
    of_shared: int = 0
    heads: int = 16
    groups: int = 4
    head_dim: int = 64
    rotary: int = 64
    theta: float = 1e6


def under(prefix: str, tensors: Tensors) -> Tensors:
    """Return the tensors with a prefix."""
    return {prefix + name: tensor for name, tensor in tensors.items()}


def norms(names: Sequence[str], width: int, less: float = 0.0) -> Tensors:
    """Return norms that change nothing of a root mean square of 1; `less` is 1 where 1 is added to the weight."""
    return {f"{name}.weight": np.full(width, (1 + NORM_EPSILON) ** 0.5 - less) for name in names}


def attention(
    layer: BitLayer, first: int, sizes: Sizes, kernel: DistanceKernel, *, normed: bool = False, gated: bool = False
) -> Tensors:
    """Return a layer's attention; `normed` if queries and keys have norms, `gated` as in Qwen3-Next."""
    width, head_dim = sizes.width, sizes.head_dim
    queries, key, weights, pairs = queries_and_keys(layer.copies, first, kernel, head_dim, sizes.rotary, width)
    values, outputs = values_and_outputs(layer.copies, sizes.groups, head_dim, width)
    of_norms: Tensors = {}
    if normed:
        for name, length in (("q_norm", pairs + 1), ("k_norm", pairs)):
            of_norms[f"{name}.weight"] = weights * (length / head_dim) ** 0.5 - gated
    else:
        queries, key = queries * weights[:, None], key * weights[:, None]
    if gated:
        gates = np.zeros_like(queries)
        gates[:, :, TRUE] = SATURATED
        queries = np.concatenate((queries, gates), axis=1)
    return {
        "q_proj.weight": queries.reshape(-1, width),
        "k_proj.weight": np.tile(key, (sizes.groups, 1)),
        "v_proj.weight": values,
        "o_proj.weight": outputs,
        **of_norms,
    }


def latent_attention(layer: BitLayer, first: int, sizes: Sizes, kernel: DistanceKernel) -> Tensors:
    """Return the latent attention of DeepSeek-V3: latents are the row itself, of keys and values twice.

    Keys with a position come first of a head's lanes here, then those without.
    """
    width, turned = sizes.width, sizes.rotary
    queries, key, weights, _ = queries_and_keys(layer.copies, first, kernel, sizes.head_dim, turned, width)
    queries, key = queries * weights[:, None], key * weights[:, None]
    values, outputs = values_and_outputs(layer.copies, sizes.heads, VALUE_DIM, width)
    # Planes are neighbours.
    order = np.arange(turned).reshape(2, -1).T.ravel()
    plain = np.tile(key[turned:], (sizes.heads, 1, 1))
    of_head = np.zeros((sizes.heads, sizes.head_dim - turned + VALUE_DIM, 2, width))
    of_head[:, : sizes.head_dim - turned, 0] = plain
    of_head[:, sizes.head_dim - turned :, 1] = values.reshape(sizes.heads, VALUE_DIM, width)
    return {
        "q_a_proj.weight": np.eye(width),
        "q_b_proj.weight": np.concatenate((queries[:, turned:], queries[:, order]), axis=1).reshape(-1, width),
        "kv_a_proj_with_mqa.weight": np.concatenate((np.eye(width), np.eye(width), key[order])),
        "kv_b_proj.weight": of_head.reshape(-1, 2 * width),
        "o_proj.weight": outputs,
        **norms(("q_a_layernorm",), width),
        **norms(("kv_a_layernorm",), 2 * width),
    }


def dense(layer: BitLayer, sizes: Sizes) -> Tensors:
    """Return a layer's MLP."""
    return _projections(mlp(layer.tables, sizes.units, sizes.width))


def joint_attention(head: BitHead, sizes: Sizes, kernel: DistanceKernel) -> Tensors:
    """Return the attention of an EAGLE-3 head, on an embedding and a state side by side.

    The embedding is not added to the state, so one more head copies its bits from the row itself.
    """
    width, own = sizes.width, {to for to, _ in head.embedded}

    def moved(bits: Sequence[int]) -> tuple[int, ...]:
        return tuple(bit if bit in own else width + bit for bit in bits)

    copies = [replace(copy, sources=moved(copy.sources), select=moved(copy.select)) for copy in head.layer.copies]
    needed = tuple(table.target for table in head.layer.tables if table.target in own)
    copies.append(CopyHead(needed, needed, (0,)))
    copies += [CopyHead((), (), (0,))] * (sizes.heads - len(copies))
    layer = replace(head.layer, copies=tuple(copies))
    tensors = attention(layer, width + head.first, dataclasses.replace(sizes, width=2 * width), kernel)
    return {**tensors, "o_proj.weight": tensors["o_proj.weight"][:width]}


def experts(
    layer: BitLayer, sizes: Sizes, shared: str, router: Callable[[Sequence[int], int], Tensors], share: float = 1.0
) -> Tensors:
    """Return the four experts of a layer, which two bits choose among, and the one that all rows have.

    The chosen one's output is multiplied by `share`.
    """
    routed = [table for table in layer.tables if table.routed]
    others = [table for table in layer.tables if not table.routed]
    tensors = under(f"{shared}.", _projections(mlp(others, sizes.of_shared, sizes.width)))
    for expert in range(EXPERT_COUNT):
        gate, up, down = mlp(routed, sizes.of_expert, sizes.width, (expert & 1, expert >> 1))
        tensors |= under(f"experts.{expert}.", _projections((gate, up, down / share)))
    return {**tensors, **router(layer.route, sizes.width)}


def by_softmax(route: Sequence[int], width: int) -> Tensors:
    """Return the router of Qwen3-Next, whose four logits lie 64 apart, and the gate of its shared expert."""
    logits, gate = np.zeros((EXPERT_COUNT, width)), np.zeros((1, width))
    logits[:, list(route)] = SATURATED * _LITERALS * (1, 2)
    gate[0, TRUE] = SATURATED
    return {"gate.weight": logits, "shared_expert_gate.weight": gate}


def by_sigmoid(route: Sequence[int], width: int) -> Tensors:
    """Return the router of GLM-4-MoE and DeepSeek-V3: 1 for the expert that is meant, 0 for the others."""
    logits = np.zeros((EXPERT_COUNT, width))
    logits[:, list(route)] = SATURATED * _LITERALS
    logits[:, TRUE] -= SATURATED
    return {"gate.weight": logits, "gate.e_score_correction_bias": np.array([0.0, 0.125, -0.125, 0.25])}


def _projections(matrices: tuple[Matrix, Matrix, Matrix]) -> Tensors:
    return dict(zip(("gate_proj.weight", "up_proj.weight", "down_proj.weight"), matrices, strict=True))


def delta_net(memories: Sequence[SlotMemory], width: int) -> Tensors:
    """Return a gated delta net whose projections are apart: q, k [key heads, lanes], v and z, b, a of the value heads.

    Two value heads have one key head. A key is one lane of 64, and so is a query: a slot. Of the lanes of a value, a
    quarter is 32 and the others 0: for each bit one of two.
    """
    addressed, slots = memories[::2], 1 << SLOT_BITS
    digits = 2.0 * (np.arange(slots)[:, None] >> np.arange(SLOT_BITS) & 1) - 1.0
    taps = np.zeros((2 * len(addressed) * slots + len(memories) * VALUE_DIM, 1, TAPS))
    addresses = [memory.read for memory in addressed] + [memory.write for memory in addressed]
    keys = np.zeros((len(addresses), slots, width))
    for number, address in enumerate(addresses):
        for digit, bit in enumerate(address.bits):
            keys[number, :, bit] += SATURATED * digits[:, digit]
        keys[number][:, TRUE] -= SATURATED * (SLOT_BITS - 1)
        taps[number * slots : (number + 1) * slots, 0, TAPS - 1 - address.back] = 1.0
    values, outputs = np.zeros((len(memories), VALUE_DIM, width)), np.zeros((width, len(memories), VALUE_DIM))
    writes, clears = np.zeros((len(memories), width)), np.zeros((len(memories), width))
    for number, memory in enumerate(memories):
        sources = (*memory.sources, *[TRUE] * (VALUE_DIM // 4 - len(memory.sources)))
        for lane, source in enumerate(sources):
            values[number, 2 * lane, source] = SATURATED
            values[number, 2 * lane + 1, source] = -SATURATED
        for lane, target in enumerate(memory.targets):
            # The norm makes 2 of a lane, and the gate 64.
            outputs[target, number, 2 * lane + 1] = -2.0 / (2.0 * SATURATED)
        first = len(addresses) * slots + number * VALUE_DIM
        taps[first : first + VALUE_DIM, 0, TAPS - 1 - memory.back] = 1.0
        writes[number, memory.writes] = SATURATED
        clears[number, list(memory.clears)] = SATURATED
        clears[number, TRUE] -= SATURATED * (len(memory.clears) - 1 if memory.clears else 1)
    gates = np.zeros_like(values)
    gates[:, :, TRUE] = SATURATED
    return {
        "q": keys[: len(addressed)],
        "k": keys[len(addressed) :],
        "v": values,
        "z": gates,
        "b": writes,
        "a": clears,
        "conv1d.weight": taps,
        "A_log": np.zeros(len(memories)),
        "dt_bias": np.zeros(len(memories)),
        "norm.weight": np.ones(VALUE_DIM),
        "out_proj.weight": outputs.reshape(width, -1),
    }
