"""What stands for those of SGLang's kernels that take no float32: its own code in torch, or another of its kernels."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any


def install() -> None:
    """Have every operation that SGLang has in torch, too, run in torch, and prompts of gated delta nets token by token.

    Experts run in the form that a graph can have.
    """
    from sglang.srt.layers import utils
    from sglang.srt.layers.attention.linear.kernels import gdn_triton

    def dispatched(one: Any) -> Any:
        return _experts if "FusedMoE" in type(one).__name__ else one.forward_native

    utils.MultiPlatformOp.dispatch_forward = dispatched
    gdn_triton.chunk_gated_delta_rule = recurrent


def _experts(layer: Any, dispatch_output: Any) -> Any:
    from sglang.srt.layers.moe.fused_moe_native import fused_moe_forward_native

    made = fused_moe_forward_native(layer, dispatch_output)
    # Its kernel multiplies by this factor, and this code does not.
    factor = layer.moe_runner_config.routed_scaling_factor
    return made if factor is None else made._replace(hidden_states=made.hidden_states * factor)


def _recurrent_module() -> str:
    """Return where a release keeps its recurrent kernels."""
    late = "sglang.kernels.ops.attention.fla.fused_recurrent"  # 0.5.16 and later
    return late if find_spec("sglang.kernels") else "sglang.srt.layers.attention.fla.fused_recurrent"


def recurrent(
    q: Any,
    k: Any,
    v: Any,
    g: Any,
    beta: Any,
    initial_state: Any,
    initial_state_indices: Any,
    cu_seqlens: Any,
    use_qk_l2norm_in_kernel: bool,
    head_first: bool = False,
    scale: float | None = None,
) -> tuple[Any, None, None]:
    """Run prompts through a gated delta net in SGLang's recurrent kernel, which keeps the states where they are.

    It stands for `chunk_gated_delta_rule`, which refuses float32, and makes no states in between: no prefix is cached.
    """
    assert not head_first
    tensors = (one.contiguous() for one in (q, k, v, g, beta))
    made = import_module(_recurrent_module()).fused_recurrent_gated_delta_rule_update_fwd(
        *tensors,
        scale=k.shape[-1] ** -0.5 if scale is None else scale,
        initial_state_source=initial_state,
        initial_state_indices=initial_state_indices,
        use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel,
        cu_seqlens=cu_seqlens,
    )
    return made, None, None
