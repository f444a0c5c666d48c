"""Kernels as torch ops: eager on CPU, Triton on CUDA, and the same Triton source under the interpreter."""

from draftproof.kernels.ops import (
    add_rms_norm,
    assign_slots,
    greedy_accept,
    greedy_choice,
    kv_move,
    kv_write,
    linear_add,
    narrow_linear,
    norm_gate_up,
    norm_linear,
    paged_attention,
    ring_linear,
    ring_mix,
    rms_norm,
    rope,
    silu_mul,
)

__all__ = [
    "add_rms_norm",
    "assign_slots",
    "greedy_accept",
    "greedy_choice",
    "kv_move",
    "kv_write",
    "linear_add",
    "narrow_linear",
    "norm_gate_up",
    "norm_linear",
    "paged_attention",
    "ring_linear",
    "ring_mix",
    "rms_norm",
    "rope",
    "silu_mul",
]
