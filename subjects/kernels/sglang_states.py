"""Bindings of SGLang's kernels on recurrent state: convolution, gated delta rule, scatter."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor

from draftproof.properties.formats.kernel_binding import binding
from draftproof.subjects.kernels.common import FLOATS, heads_of, no_checkpoints, of_no_slot

_CONV = ("sglang.kernels.ops.mamba.causal_conv1d_triton", "sglang.srt.layers.attention.mamba.causal_conv1d_triton")
_SCATTER = (
    "sglang.kernels.ops.mamba.mamba_state_scatter_triton",
    "sglang.srt.layers.attention.mamba.mamba_state_scatter_triton",
)
_GATED = (
    "sglang.kernels.ops.attention.linear.fused_sigmoid_gating_recurrent",
    "sglang.kernels.ops.attention.fla.fused_sigmoid_gating_recurrent",
    "sglang.srt.layers.attention.fla.fused_sigmoid_gating_recurrent",
)


@binding(
    "state_scatter",
    *_SCATTER,
    kernel="_fused_mamba_state_scatter_with_mask_kernel",
    layout={"pool": "01|*", "steps": "012|*", "state_slots": "0", "last_correct_step_indices": "0"},
    invalid={"state_slots": -1, "last_correct_step_indices": -1},
    int32=("state_slots", "last_correct_step_indices"),
)
def fused_mamba_state_scatter_with_mask(
    kernel: Any, pool: Tensor, steps: Tensor, state_slots: Tensor, last_correct_step_indices: Tensor
) -> None:
    layers, size = pool.shape[:2]
    elements, rows = pool[0, 0].numel(), torch.arange(len(state_slots), dtype=torch.int32, device=pool.device)
    # Where a release does not ask for it, a request's row of steps is its place in the batch.
    asked = {"src_indices_raw_ptr": rows, "total_requests": len(state_slots)}
    more = [value for name, value in asked.items() if name in kernel.arg_names]
    kernel[(len(state_slots), layers, -(-elements // 1024))](
        steps, pool, state_slots, last_correct_step_indices, *more, elements, *steps.stride()[:3], *pool.stride()[:2],
        steps.shape[1], steps.shape[2], size, BLOCK_SIZE=1024,
    )  # fmt: skip


def _own_slots(out: Tensor, windows: Tensor, x: Tensor, conv: Tensor, weight: Tensor, state_slots: Tensor) -> bool:
    live = [slot for slot in state_slots.tolist() if slot >= 0]
    return len(set(live)) == len(live)


def _rolled(
    out: Tensor, windows: Tensor, x: Tensor, conv: Tensor, weight: Tensor, state_slots: Tensor
) -> dict[str, Tensor]:
    """Return masks of what may be anything: outputs of rows without a slot, and windows that the commit overwrites."""
    rolled = torch.zeros(len(conv), dtype=torch.bool)
    rolled[state_slots[state_slots >= 0].long()] = True
    return {"out": state_slots < 0, "conv": rolled}


@binding(
    "conv_verify",
    *_CONV,
    kernel="causal_conv1d_update",
    dtypes=FLOATS,
    layout={"weight": "01", "state_slots": "0"},
    invalid={"state_slots": -1},
    int32=("state_slots",),
    draws={"convs": (2, 3, 4)},
    limit=_own_slots,
    undefined=_rolled,
    cannot="widths above 4; rows that share a slot (it moves the window on); outputs of rows without a slot",
)
def causal_conv1d_update(
    kernel: Any, out: Tensor, windows: Tensor, x: Tensor, conv: Tensor, weight: Tensor, state_slots: Tensor
) -> None:
    made = kernel(
        x.transpose(1, 2),
        conv.transpose(1, 2),
        weight,
        None,
        "silu",
        conv_state_indices=state_slots,
        intermediate_conv_window=windows.transpose(2, 3),
        intermediate_state_indices=torch.arange(len(x), dtype=torch.int32, device=x.device),
    )
    out.copy_(made.transpose(1, 2))


@binding(
    "conv_update",
    *_CONV,
    kernel="causal_conv1d_fn",
    dtypes=FLOATS,
    layout={"weight": "01", "conv": "0|12", "x": "0|1", "state_slots": "0", "cu_seqlens": "0"},
    invalid={"state_slots": -1},
    int32=("state_slots", "cu_seqlens"),
    given=no_checkpoints,
    draws={"convs": (2, 3, 4), "shortest": 1},
    undefined=lambda *arguments: of_no_slot(arguments[0], arguments[5], arguments[6]),
    cannot="widths above 4; sequences without tokens; checkpoints; outputs of sequences without a slot stay undefined",
)
def causal_conv1d_fn(
    kernel: Any,
    out: Tensor,
    conv: Tensor,
    checkpoint_conv: Tensor,
    x: Tensor,
    weight: Tensor,
    state_slots: Tensor,
    cu_seqlens: Tensor,
    checkpoint_slots: Tensor,
    checkpoint_steps: Tensor,
) -> None:
    made = kernel(
        x.transpose(0, 1),
        weight,
        None,
        conv.transpose(1, 2),
        cu_seqlens,
        cu_seqlens.diff().tolist(),
        cache_indices=state_slots,
        has_initial_state=torch.ones(len(state_slots), dtype=torch.bool, device=x.device),
        activation="silu",
    )
    first, last = int(cu_seqlens[0]), int(cu_seqlens[-1])
    out[first:last] = made.transpose(0, 1)[first:last]


def _takes(kernel: Any, argument: str) -> bool:
    return argument in vars(sys.modules[kernel.__module__])["fused_sigmoid_gating_delta_rule_update_kernel"].arg_names


def _packed(kernel: Any, stride: str, tensor: Tensor) -> Tensor:
    """Return a tensor as the kernel takes it: without gaps, unless it asks for their stride."""
    return tensor if _takes(kernel, stride) else tensor.contiguous()


def _pool(kernel: Any, ssm: Tensor) -> tuple[Tensor, Tensor]:
    """Return the states as the kernel takes them, and the same memory as ours lie."""
    if not _takes(kernel, "intermediate_states_buffer"):  # those before it verifies are key size by value size
        packed = ssm.contiguous()
        return packed, packed
    pool = _packed(kernel, "stride_h0_source", ssm.transpose(2, 3))
    return pool, pool.transpose(2, 3)


_GATES = {"a": "01", "b": "01", "a_log": "0", "dt_bias": "0", "state_slots": "0"}


@binding(
    "gdn_verify",
    *_GATED,
    kernel="fused_sigmoid_gating_delta_rule_update",
    parameters=("intermediate_states_buffer",),
    dtypes=FLOATS,
    layout={**_GATES, "a": "012", "b": "012", "qkv": "012", "ssm": "0|132", "states": "01243"},
    invalid={"state_slots": -1},
    int32=("state_slots",),
    undefined=lambda *arguments: {"out": arguments[8] < 0},
    cannot="states lie as value size by key size; in older releases without gaps, for which the binding copies"
    " them; outputs of rows without a slot stay undefined",
)
def fused_sigmoid_gating_verify(
    kernel: Any,
    out: Tensor,
    states: Tensor,
    qkv: Tensor,
    a: Tensor,
    b: Tensor,
    a_log: Tensor,
    dt_bias: Tensor,
    ssm: Tensor,
    state_slots: Tensor,
) -> None:
    batch, width, heads = a.shape
    q, k, v = heads_of(qkv.flatten(0, 1), heads, *ssm.shape[2:])
    rows, pool = (
        torch.arange(batch, dtype=torch.int32, device=a.device),
        _packed(kernel, "stride_h0_source", ssm.transpose(2, 3)),
    )
    made = kernel(
        A_log=a_log, a=a.flatten(0, 1), dt_bias=dt_bias, softplus_beta=1.0, softplus_threshold=20.0, q=q, k=k, v=v,
        b=b.flatten(0, 1), initial_state_source=pool, initial_state_indices=state_slots,
        use_qk_l2norm_in_kernel=True,
        cu_seqlens=torch.arange(0, batch * width + 1, width, dtype=torch.int32, device=a.device), is_kda=False,
        disable_state_update=True, intermediate_states_buffer=states.transpose(3, 4),
        intermediate_state_indices=torch.where(state_slots < 0, -1, rows), cache_steps=width,
    )  # fmt: skip
    out.copy_(made.reshape(out.shape))
    ssm.copy_(pool.transpose(2, 3))


@binding(
    "gdn_update",
    *_GATED,
    kernel="fused_sigmoid_gating_delta_rule_update",
    dtypes=FLOATS,
    layout={**_GATES, "a": "0|1", "b": "0|1", "qkv": "0|1", "ssm": "0|132", "cu_seqlens": "0"},
    invalid={"state_slots": -1},
    int32=("state_slots", "cu_seqlens"),
    given=no_checkpoints,
    undefined=lambda *arguments: of_no_slot(arguments[0], arguments[8], arguments[9]),
    cannot="states lie as value size by key size, the other way in 0.5.9; in older releases without gaps, for which"
    " the binding copies them, and gates, too;"
    " checkpoints; outputs of sequences without a slot stay undefined",
)
def fused_sigmoid_gating_update(
    kernel: Any,
    out: Tensor,
    ssm: Tensor,
    checkpoint_ssm: Tensor,
    qkv: Tensor,
    a: Tensor,
    b: Tensor,
    a_log: Tensor,
    dt_bias: Tensor,
    state_slots: Tensor,
    cu_seqlens: Tensor,
    checkpoint_slots: Tensor,
    checkpoint_steps: Tensor,
) -> None:
    q, k, v = heads_of(qkv, a.shape[1], *ssm.shape[2:])
    pool, states = _pool(kernel, ssm)
    made = kernel(
        A_log=a_log, a=_packed(kernel, "stride_a", a), dt_bias=dt_bias, softplus_beta=1.0, softplus_threshold=20.0,
        q=q, k=k, v=v, b=_packed(kernel, "stride_b", b), initial_state_source=pool, initial_state_indices=state_slots,
        use_qk_l2norm_in_kernel=True, cu_seqlens=cu_seqlens, is_kda=False,
    )  # fmt: skip
    first, last = int(cu_seqlens[0]), int(cu_seqlens[-1])
    out[first:last] = made.reshape(out.shape)[first:last]
    ssm.copy_(states)
