"""Fields of Step-3.5, under the names of the published config.json. Source: stepfun-ai/Step-3.5-Flash."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from draftproof.properties.formats.checkpoint_config.base import (
    FULL_ATTENTION,
    Count,
    DecoderConfig,
    Even,
    Positive,
    TargetConfig,
    Whole,
    invalid,
)

# A value for each layer; the MTP layers' values are behind the model's.
_EACH_LAYER = ("rope_theta", "partial_rotary_factors")
_LIMITS = ("swiglu_limits", "swiglu_limits_shared")


class Step3p5Config(TargetConfig, frozen=True, kw_only=True):
    """Step3p5ForCausalLM, of full attention throughout: windows are not supported, nor limits of activations.

    Layers in `moe_layers_enum` have experts, MTP layers counted on from the model's.
    """

    unsupported: ClassVar[Mapping[str, Any]] = {
        **DecoderConfig.unsupported,
        "attention_bias": False,
        "rope_scaling": None,
        "moe_router_activation": "sigmoid",
        "norm_expert_weight": True,
        "use_head_wise_attn_gate": True,
        "use_moe_router_bias": True,
        "zero_centered": True,
    }
    n_group: ClassVar[int] = 1
    topk_group: ClassVar[int] = 1
    norm_topk_prob: ClassVar[bool] = True

    num_attention_groups: Count
    head_dim: Even
    intermediate_size: Count
    moe_intermediate_size: Count
    moe_num_experts: Count
    moe_top_k: Count
    share_expert_dim: Count
    moe_layers_enum: tuple[Whole, ...]
    moe_router_scaling_factor: Positive = 1.0
    num_nextn_predict_layers: Whole = 0

    @property
    def num_experts_per_tok(self) -> int:
        return self.moe_top_k

    @property
    def n_routed_experts(self) -> int:
        return self.moe_num_experts

    @property
    def routed_scaling_factor(self) -> float:
        return self.moe_router_scaling_factor

    @classmethod
    def adapted(cls, fields: dict[str, Any], source: str) -> dict[str, Any]:
        """Return the fields with one value where the file has a list of equal ones, and experts' layers as numbers."""
        made = dict(fields)
        for name in _LIMITS:
            if any(fields.get(name) or ()):
                raise invalid(source, name, fields[name], "null or zeros: limits of activations are not supported")
        for name in _EACH_LAYER:
            each = fields.get(name)
            if isinstance(each, list):
                if len(set(each)) != 1:
                    raise invalid(source, name, each, "the same for every layer, as all are of full attention")
                made[name] = each[0]
        if made.get("partial_rotary_factors") is not None:
            made["partial_rotary_factor"] = made["partial_rotary_factors"]
        if isinstance(fields.get("moe_layers_enum"), str):
            listed = [part.strip() for part in fields["moe_layers_enum"].split(",") if part.strip()]
            if not all(part.isdigit() for part in listed):
                raise invalid(source, "moe_layers_enum", fields["moe_layers_enum"], "numbers of layers with commas")
            made["moe_layers_enum"] = [int(part) for part in listed]
        types = fields.get("layer_types")
        if isinstance(types, list):
            if set(types) != {FULL_ATTENTION}:
                raise invalid(
                    source, "layer_types", types, f"{FULL_ATTENTION!r} in every layer: windows are not supported"
                )
            made["layer_types"] = types[: fields.get("num_hidden_layers")]
        return made

    def check(self, source: str) -> None:
        super().check(source)
        self.check_divides(source, "num_attention_groups", "num_attention_heads")
        self.check_rotary_width(self.head_dim, source)
        self.check_at_most(source, "moe_top_k", self.moe_num_experts, "moe_num_experts")

    def check_mtp(self, source: str) -> None:
        """Raise CheckpointError if the checkpoint has no draft of its own."""
        if not self.num_nextn_predict_layers:
            raise self.invalid(source, "num_nextn_predict_layers", "at least 1 for the built-in draft")
