"""Bindings of vLLM's kernels on recurrent state. Slot 0 stands for none; windows are stored channels first."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from draftproof.properties.formats.kernel_binding import binding
from draftproof.subjects.kernels.common import FLOATS, heads_of, no_checkpoints, no_slot_zero, of_no_slot

_CONV = ("vllm.model_executor.layers.mamba.ops.causal_conv1d",)
_FLA = "vllm.third_party.flash_linear_attention.ops", "vllm.model_executor.layers.fla.ops"
_GATED = tuple(f"{place}.fused_sigmoid_gating" for place in _FLA)
_UPDATE = {
    "dtypes": FLOATS,
    "invalid": {"state_slots": -1},
    "int32": ("state_slots", "cu_seqlens"),
    "given": no_checkpoints,
}
_NO_ZERO = "slot 0, which stands for none; checkpoints; outputs of sequences without a slot stay undefined"


def _null(state_slots: Tensor) -> Tensor:
    """Return slots with 0 for none."""
    return state_slots.clamp(min=0)


@binding(
    "conv_update",
    *_CONV,
    kernel="causal_conv1d_update",
    layout={"weight": "01", "conv": "0|12", "x": "0|1", "state_slots": "0", "cu_seqlens": "0"},
    draws={"convs": (2, 3, 4), "shortest": 1, "longest": 1},
    limit=lambda *arguments: no_slot_zero(arguments[5]),
    undefined=lambda *arguments: of_no_slot(arguments[0], arguments[5], arguments[6]),
    cannot=f"widths above 4; sequences of more than one token, or none; {_NO_ZERO}",
    **_UPDATE,
)
def causal_conv1d_update(
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
    rows = slice(int(cu_seqlens[0]), int(cu_seqlens[-1]))
    slots = _null(state_slots)
    kernel(x[rows], conv.transpose(1, 2), weight, None, "silu", conv_state_indices=slots, out=out[rows])


@binding(
    "conv_update",
    *_CONV,
    kernel="causal_conv1d_fn",
    layout={"weight": "01", "conv": "0|12", "x": "0|1", "state_slots": "0", "cu_seqlens": "0"},
    draws={"convs": (2, 3, 4), "shortest": 1},
    limit=lambda *arguments: no_slot_zero(arguments[5]),
    undefined=lambda *arguments: of_no_slot(arguments[0], arguments[5], arguments[6]),
    interpreted=False,
    cannot=f"widths above 4; sequences without tokens; {_NO_ZERO}; Triton's interpreter, in which its grid fails",
    **_UPDATE,
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
        x.transpose(0, 1), weight, None, conv.transpose(1, 2), cu_seqlens, cache_indices=_null(state_slots),
        has_initial_state=torch.ones(len(state_slots), dtype=torch.bool, device=x.device), activation="silu",
    )  # fmt: skip
    first, last = int(cu_seqlens[0]), int(cu_seqlens[-1])
    out[first:last] = made.transpose(0, 1)[first:last]


_GATES = {"a_log": "0", "dt_bias": "0", "state_slots": "0"}


@binding(
    "gdn_update",
    *_GATED,
    kernel="fused_sigmoid_gating_delta_rule_update",
    layout={**_GATES, "a": "0|1", "b": "0|1", "qkv": "0|1", "ssm": "0|132", "cu_seqlens": "0"},
    limit=lambda *arguments: no_slot_zero(arguments[8]),
    undefined=lambda *arguments: of_no_slot(arguments[0], arguments[8], arguments[9]),
    cannot=f"states lie as value size by key size; {_NO_ZERO}",
    **_UPDATE,
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
    # A slot for each token: the state is stored after each.
    steps = max(1, int(cu_seqlens.diff().max()))
    slots = _null(state_slots)[:, None].expand(-1, steps).contiguous()
    made, _ = kernel(
        A_log=a_log, a=a, b=b, dt_bias=dt_bias, q=q, k=k, v=v, initial_state=ssm.transpose(2, 3),
        cu_seqlens=cu_seqlens, ssm_state_indices=slots, use_qk_l2norm_in_kernel=True,
    )  # fmt: skip
    first, last = int(cu_seqlens[0]), int(cu_seqlens[-1])
    out[first:last] = made.reshape(out.shape)[first:last]


def _slots(out: Tensor, states: Tensor, *others: Tensor) -> dict[str, Tensor]:
    return {"out": others[-1] < 0}


@binding(
    "gdn_verify",
    *_GATED,
    kernel="fused_sigmoid_gating_delta_rule_update",
    dtypes=FLOATS,
    layout={**_GATES, "a": "012", "b": "012", "qkv": "012", "ssm": "0|132", "states": "01243"},
    invalid={"state_slots": -1},
    int32=("state_slots",),
    undefined=_slots,
    cannot="a state is in the first of its row's slots before, and after token t in slot t, so that the binding moves"
    " it there first; states lie as value size by key size; outputs of rows without a slot stay undefined",
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
    rows, steps = states.shape[:2]
    live = state_slots >= 0
    # Slot 0 of this pool stands for none, so that the intermediate states begin behind it.
    pool = states.new_full((1 + rows * steps, *states.shape[2:]), float("nan")).transpose(2, 3).contiguous()
    stored = pool[1:].unflatten(0, (rows, steps))
    stored.copy_(states.transpose(3, 4))
    stored[: len(live)][live, 0] = ssm[state_slots[live].long()].transpose(2, 3)
    slots = 1 + torch.arange(batch, device=a.device)[:, None] * steps + torch.arange(width, device=a.device)
    q, k, v = heads_of(qkv.flatten(0, 1), heads, *ssm.shape[2:])
    made, _ = kernel(
        A_log=a_log, a=a.flatten(0, 1), b=b.flatten(0, 1), dt_bias=dt_bias, q=q, k=k, v=v, initial_state=pool,
        cu_seqlens=torch.arange(0, batch * width + 1, width, dtype=torch.int32, device=a.device),
        ssm_state_indices=torch.where(live[:, None], slots, 0).int(), use_qk_l2norm_in_kernel=True,
    )  # fmt: skip
    out.copy_(made.reshape(out.shape))
    states.copy_(stored.transpose(3, 4))
