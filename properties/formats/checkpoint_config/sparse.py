"""Fields of GLM-4-MoE and DeepSeek-V3: a few dense layers, then experts that are chosen by groups, then MTP layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from draftproof.properties.formats.checkpoint_config.base import (
    Count,
    DecoderConfig,
    Even,
    Positive,
    TargetConfig,
    Whole,
)


class GroupedMoeConfig(TargetConfig, frozen=True, kw_only=True):
    """Fields that both architectures share.

    The first `first_k_dense_replace` layers have one MLP, all others experts: the best `topk_group` of `n_group` groups
    are open, and `num_experts_per_tok` experts are chosen in them.
    """

    unsupported: ClassVar[Mapping[str, Any]] = {
        **DecoderConfig.unsupported,
        "mlp_bias": False,
        "moe_layer_freq": 1,
        "mtp_hidden_states_first": False,
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
        "use_sliding_window": False,
    }

    intermediate_size: Count
    moe_intermediate_size: Count
    n_routed_experts: Count
    n_shared_experts: Count = 1
    num_experts_per_tok: Count
    n_group: Count
    topk_group: Count
    first_k_dense_replace: Whole
    routed_scaling_factor: Positive
    norm_topk_prob: bool = True
    attention_bias: bool = False
    num_nextn_predict_layers: Whole = 1

    def check(self, source: str) -> None:
        super().check(source)
        self.check_divides(source, "n_group", "n_routed_experts")
        size = self.n_routed_experts // self.n_group
        if size < 2:
            expected = f"groups of at least two of n_routed_experts ({self.n_routed_experts})"
            raise self.invalid(source, "n_group", expected)
        self.check_at_most(source, "topk_group", self.n_group, "n_group")
        self.check_at_most(source, "num_experts_per_tok", self.topk_group * size, "experts of topk_group groups")

    def check_mtp(self, source: str) -> None:
        """Raise CheckpointError if the checkpoint has no draft of its own."""
        if not self.num_nextn_predict_layers:
            raise self.invalid(source, "num_nextn_predict_layers", "at least 1 for the built-in draft")


class Glm4MoeConfig(GroupedMoeConfig, frozen=True, kw_only=True):
    """Glm4MoeForCausalLM; without `head_dim` heads share out the hidden size."""

    rope_defaults: ClassVar[Mapping[str, Any]] = {"partial_rotary_factor": 0.5}

    num_key_value_heads: Count
    head_dim: Count | None = None
    use_qk_norm: bool = False
    n_group: Count = 1
    topk_group: Count = 1
    first_k_dense_replace: Whole = 1
    routed_scaling_factor: Positive = 1.0

    @property
    def qk_norm(self) -> bool:
        """Return `use_qk_norm`, by the name that the class of other configurations gives it."""
        return self.use_qk_norm

    def check(self, source: str) -> None:
        super().check(source)
        self.check_rotary_width(self.head_dim or self.hidden_size // self.num_attention_heads, source)


class DeepseekV3Config(GroupedMoeConfig, frozen=True, kw_only=True):
    """DeepseekV3ForCausalLM; `q_lora_rank` is null without a latent of queries."""

    n_group: Count = 8
    topk_group: Count = 4
    first_k_dense_replace: Whole = 3
    routed_scaling_factor: Positive = 2.5
    q_lora_rank: Count | None
    kv_lora_rank: Count
    qk_nope_head_dim: Count
    qk_rope_head_dim: Even
    v_head_dim: Count
    rope_interleave: bool = True

    def check(self, source: str) -> None:
        super().check(source)
        self.check_rotates_all(source)
        if self.num_key_value_heads not in (None, self.num_attention_heads):
            raise self.invalid(source, "num_key_value_heads", f"{self.num_attention_heads}, as of queries")
