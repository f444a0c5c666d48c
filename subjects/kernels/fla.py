"""Bindings of flash-linear-attention. It has no pools: initial states go in and final ones come out, one a sequence."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor

from draftproof.properties.formats.kernel_binding import binding
from draftproof.subjects.kernels.common import FLOATS, heads_of, no_checkpoints

_RULE = "fla.ops.gated_delta_rule"
# What the products of a chunk's triangular solve are computed in, where a GPU has TF32.
_SOLVED_IN = "SOLVE_TRIL_DOT_PRECISION"
_UPDATE = {
    "dtypes": FLOATS,
    "invalid": {"state_slots": None},
    "given": no_checkpoints,
    "cannot": "pools: the binding takes states out and puts them back; slots that do not exist; checkpoints",
}


def _update(
    kernel: Any,
    out: Tensor,
    ssm: Tensor,
    qkv: Tensor,
    gates: tuple[Tensor, Tensor],
    constants: tuple[Tensor, Tensor],
    state_slots: Tensor,
    cu_seqlens: Tensor,
) -> None:
    q, k, v = heads_of(qkv, gates[0].shape[1], *ssm.shape[2:])
    made, states = kernel(
        q=q, k=k, v=v, g=gates[0][None], beta=gates[1][None], initial_state=ssm[state_slots], output_final_state=True,
        use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True, A_log=constants[0], dt_bias=constants[1],
        use_beta_sigmoid_in_kernel=True, cu_seqlens=cu_seqlens,
    )  # fmt: skip
    first, last = int(cu_seqlens[0]), int(cu_seqlens[-1])
    out[first:last] = made[0, first:last]
    ssm[state_slots] = states


@binding("gdn_update", f"{_RULE}.fused_recurrent", kernel="fused_recurrent_gated_delta_rule", **_UPDATE)
def fused_recurrent_gated_delta_rule(
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
    _update(kernel, out, ssm, qkv, (a, b), (a_log, dt_bias), state_slots, cu_seqlens)


@binding(
    "gdn_update",
    f"{_RULE}.chunk",
    kernel="chunk_gated_delta_rule",
    draws={"shortest": 1},
    interpreted=False,
    **_UPDATE
    | {
        "dtypes": ("float32",),
        "cannot": f"TF32, in which it multiplies float32 unless it is told otherwise; narrower types, which it rounds"
        f" states between chunks to; {_UPDATE['cannot']}; Triton's interpreter",
    },
)
def chunk_gated_delta_rule(
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
    import triton.language as tl

    for module in [one for name, one in sys.modules.items() if name.startswith("fla.ops.") and _SOLVED_IN in vars(one)]:
        setattr(module, _SOLVED_IN, tl.constexpr("ieee"))
    _update(kernel, out, ssm, qkv, (a, b), (a_log, dt_bias), state_slots, cu_seqlens)


@binding(
    "conv_update",
    "fla.modules.causal_conv1d.ops",
    "fla.modules.convolution",
    kernel="causal_conv1d",
    draws={"shortest": 1},
    **_UPDATE,
)
def causal_conv1d(
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
    before = conv[state_slots].transpose(1, 2)
    # Its states have the input itself in front, which no output depends on.
    states = torch.cat((torch.zeros_like(before[..., :1]), before), -1)
    made, after = kernel(
        x[None], weight, activation="silu", initial_state=states, output_final_state=True, cu_seqlens=cu_seqlens
    )
    first, last = int(cu_seqlens[0]), int(cu_seqlens[-1])
    out[first:last] = made[0, first:last]
    conv[state_slots] = after[..., 1:].transpose(1, 2)
