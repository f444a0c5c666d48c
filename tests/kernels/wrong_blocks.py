"""Implementations that are right up to a block, or a few, and wrong beyond: (op, name, implementation)."""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from draftproof.properties.kernels.contract import Kernel
from draftproof.reference import ops
from tests.kernels.wrong import given

_ALL = slice(None)


def unwritten(op: str, argument: str, *index: slice) -> tuple[str, str, Kernel]:
    """Return what leaves a part of an output as it was."""
    twin = ops.OP_TWINS[op]
    place = list(inspect.signature(twin).parameters).index(argument)

    def wrong(*call: Any) -> None:
        before = call[place].clone()
        twin(*call)
        call[place][index] = before[index]

    return op, f"{argument} not written beyond {index[-1].start}", wrong


def changed(op: str, argument: str, change: Callable[[Tensor], Tensor], name: str) -> tuple[str, str, Kernel]:
    """Return what takes an input for another."""
    return op, name, given(op, **{argument: change})


def _zeros(*index: slice) -> Callable[[Tensor], Tensor]:
    """Return what sets a part of a tensor to zero, so that it is not in a sum."""

    def change(values: Tensor) -> Tensor:
        held = values.clone()
        held[index] = 0
        return held

    return change


def without_a_last_input(values: Tensor) -> Tensor:
    """Return a zero in place of the one that is behind 4096."""
    return _zeros(_ALL, slice(-1, None))(values) if values.shape[1] % 4096 == 1 < values.shape[1] else values


def at_most(most: int) -> Callable[[Tensor], Tensor]:
    """Return what counts up to a number only."""
    return lambda values: values.clamp(max=most)


def _of_16_bits(values: Tensor) -> Tensor:
    return torch.where((values >= 1 << 16) & (values < 1 << 17), values & 0xFFFF, values)


def without_a_last_token(op: str) -> tuple[str, str, Kernel]:
    """Return attention in pieces of whole tokens that look at 2^18 numbers each: a last piece of one is left out."""
    twin = ops.OP_TWINS[op]
    names = list(inspect.signature(twin).parameters)

    def wrong(*call: Any) -> None:
        of = dict(zip(names, call, strict=True))
        before = of["out"].clone()
        twin(*call)
        length = min(int(of["positions"].max()) + 1, of["page_table"].shape[1] * of["page_size"])
        numbers = length * (of["k_pool"][0].numel() + of["v_pool"][0].numel())
        step, tokens = max(1, (1 << 18) // max(1, numbers)), len(before)
        if tokens > step and tokens % step == 1:
            of["out"][-1] = before[-1]

    return op, "a last piece of one token left out", wrong


def without_a_last_position(op: str, block: int) -> tuple[str, str, Kernel]:
    """Return attention that leaves out the last position where it is a piece of its own."""

    def windowed(positions: Tensor, first: Tensor) -> Tensor:
        seen = positions + 1 - first.clamp(min=0)
        return positions - ((seen > block) & (seen % block == 1)).long()

    def from_zero(positions: Tensor) -> Tensor:
        return windowed(positions, torch.zeros_like(positions))

    change = from_zero if op == "paged_attention" else windowed
    return op, f"a last piece of one position behind {block} left out", given(op, positions=change)


def two_blocks_of_a_state(pool: Tensor, *rest: Tensor) -> None:
    """Copy no more than 8192 elements of a state."""
    before, inner = pool.clone(), pool.shape[2:]
    ops.state_scatter(pool, *rest)
    beyond = (torch.arange(inner.numel()) >= 8192).reshape(inner)
    pool.copy_(torch.where(beyond, before, pool))


WRONG_BLOCKS: tuple[tuple[str, str, Kernel], ...] = (
    unwritten("silu_mul", "out", _ALL, slice(2048, None)),
    unwritten("rms_norm", "out", _ALL, slice(1024, None)),
    changed("add_rms_norm", "x", _zeros(_ALL, slice(1024, None)), "a tail that is not added"),
    unwritten("gated_norm", "out", slice(256, None)),
    unwritten("rope", "q", _ALL, slice(24, None)),
    unwritten("rope", "k", _ALL, slice(8, None)),
    changed("ring_linear", "x", _zeros(_ALL, slice(128, None)), "a third piece of inputs that is not added"),
    unwritten("ring_linear", "out", _ALL, slice(128, None)),
    changed("narrow_linear", "x", _zeros(_ALL, slice(4096, None)), "inputs beyond 4096 that are not added"),
    unwritten("norm_gate_up", "out", _ALL, slice(1024, None)),
    unwritten("linear_add", "residual", _ALL, slice(256, None)),
    changed("greedy_choice", "logits", lambda values: values[:, : 1 << 15], "a choice among eight blocks"),
    changed("best_choices", "logits", lambda values: values[:, :2048], "a choice among two blocks"),
    changed("greedy_accept", "num_drafts", at_most(32), "no more drafts than the least block has"),
    changed("accept_tree", "num_drafts", at_most(32), "no more drafts than the least block has"),
    unwritten("assign_slots", "slot_mapping", _ALL, slice(32, None)),
    changed("sampled_choice", "drafts", lambda values: values[:, :16], "no more drafts than the least block has"),
    unwritten("apply_penalties", "logits", _ALL, _ALL, slice(2048, None)),
    unwritten("checkpoint_steps", "steps", slice(256, None)),
    changed("replay_commit", "last_correct_step_indices", _zeros(slice(32, None)), "rows beyond the least block"),
    changed("kv_write", "slot_mapping", _of_16_bits, "slots of 16 bits"),
    changed("kv_move", "dst", _of_16_bits, "slots of 16 bits"),
    unwritten("quantised_write", "k_pool", _ALL, _ALL, slice(16, None)),
    unwritten("fp8_write", "v_pool", _ALL, slice(8, None)),
    changed("paged_attention", "positions", at_most(1023), "no more positions than 1024"),
    changed("windowed_attention", "positions", at_most(512), "no more positions than 513"),
    changed("fp8_attention", "positions", at_most(1023), "no more positions than 1024"),
    changed("quantised_attention", "positions", at_most(200), "no more positions than 201"),
    changed("token_attention", "positions", at_most(511), "no more positions than two blocks"),
    unwritten("conv_verify", "windows", _ALL, _ALL, _ALL, slice(512, None)),
    unwritten("conv_update", "out", slice(512, None)),
    changed("conv_verify", "weight", _zeros(_ALL, slice(8, None)), "taps beyond two of the least blocks"),
    changed("conv_update", "weight", _zeros(_ALL, slice(8, None)), "taps beyond two of the least blocks"),
    unwritten("gdn_verify", "states", _ALL, _ALL, _ALL, _ALL, slice(48, None)),
    unwritten("gdn_update", "ssm", _ALL, _ALL, slice(16, None)),
    unwritten("gdn_replay", "ssm", _ALL, _ALL, slice(32, None)),
    unwritten("gdn_replay", "inputs", _ALL, _ALL, _ALL, slice(768, None)),
    unwritten("gdn_flush", "ssm", _ALL, slice(8, None)),
    unwritten("gdn_checkpoint", "checkpoint_conv", _ALL, _ALL, slice(512, None)),
    unwritten("replay_move", "gates", _ALL, _ALL, _ALL, _ALL, _ALL, slice(8, None)),
    *map(without_a_last_token, ("paged_attention", "windowed_attention", "quantised_attention", "fp8_attention")),
    *(without_a_last_position(op, 512) for op in ("paged_attention", "windowed_attention", "fp8_attention")),
    changed("linear_add", "x", without_a_last_input, "a last piece of one input that is not added"),
    ("state_scatter", "elements beyond 8192 not written", two_blocks_of_a_state),
)
