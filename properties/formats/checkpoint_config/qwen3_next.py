"""Fields of Qwen3-Next and Qwen3.5: gated delta net layers among layers of full attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from msgspec import Meta

from draftproof.properties.formats.checkpoint_config.base import (
    FULL_ATTENTION,
    Count,
    DecoderConfig,
    MropeParameters,
    TargetConfig,
    Whole,
)


class GatedDeltaNetConfig(TargetConfig, frozen=True, kw_only=True):
    """Fields that the three architectures share.

    Without `layer_types` every `full_attention_interval`th layer is full attention.
    """

    has_states = True
    unsupported: ClassVar[Mapping[str, Any]] = {
        **DecoderConfig.unsupported,
        "attention_bias": False,
        "attn_output_gate": True,
        "mlp_bias": False,
        "use_sliding_window": False,
    }
    rope_defaults: ClassVar[Mapping[str, Any]] = {"partial_rotary_factor": 0.25}

    num_key_value_heads: Count
    head_dim: Count
    full_attention_interval: Count = 4
    linear_num_key_heads: Count
    linear_num_value_heads: Count
    linear_key_head_dim: Count
    linear_value_head_dim: Count
    linear_conv_kernel_dim: Annotated[int, Meta(ge=2)]
    mtp_num_hidden_layers: Whole = 1
    mtp_use_dedicated_embeddings: bool = False

    if TYPE_CHECKING:  # a field of some architectures and a constant of the others; widths may be None where unused

        @property
        def num_experts(self) -> int: ...
        @property
        def num_experts_per_tok(self) -> Any: ...
        @property
        def moe_intermediate_size(self) -> Any: ...
        @property
        def shared_expert_intermediate_size(self) -> Any: ...
        @property
        def norm_topk_prob(self) -> bool: ...
        @property
        def decoder_sparse_step(self) -> int: ...
        @property
        def mlp_only_layers(self) -> tuple[int, ...]: ...
        @property
        def intermediate_size(self) -> Any: ...

    def check(self, source: str) -> None:
        super().check(source)
        self.check_rotary_width(self.head_dim, source)
        listed, interval = self.layer_types, self.full_attention_interval
        if (FULL_ATTENTION not in listed) if listed is not None else self.num_hidden_layers < interval:
            raise self.invalid(source, "layer_types", f"one {FULL_ATTENTION!r} at least")
        self.check_divides(source, "linear_num_key_heads", "linear_num_value_heads")

    def check_mtp(self, source: str) -> None:
        """Raise CheckpointError unless the checkpoint's own draft is one layer that shares the target's embedding."""
        if self.mtp_num_hidden_layers != 1:
            raise self.invalid(source, "mtp_num_hidden_layers", "1 for the built-in draft")
        if self.mtp_use_dedicated_embeddings:
            raise self.invalid(source, "mtp_use_dedicated_embeddings", "false for the built-in draft")


class Qwen3NextConfig(GatedDeltaNetConfig, frozen=True, kw_only=True):
    """The configuration of Qwen3NextForCausalLM.

    A layer has experts if its number + 1 is a multiple of `decoder_sparse_step` and it is not in `mlp_only_layers`.
    """

    num_experts: Whole
    num_experts_per_tok: Count | None = None
    moe_intermediate_size: Count | None = None
    shared_expert_intermediate_size: Count | None = None
    norm_topk_prob: bool = True
    decoder_sparse_step: Count = 1
    mlp_only_layers: tuple[int, ...] = ()
    intermediate_size: Count | None = None

    def check(self, source: str) -> None:
        super().check(source)
        step, plain = self.decoder_sparse_step, self.mlp_only_layers
        if self.num_experts:
            check_experts(self, source)
        layers = range(self.num_hidden_layers)
        needed = not self.num_experts or any(i in plain or (i + 1) % step for i in layers)
        if needed and self.intermediate_size is None:
            raise self.invalid(source, "intermediate_size", "`int` >= 1, since some layers have no experts")


class Qwen3_5Config(GatedDeltaNetConfig, frozen=True, kw_only=True):
    """Qwen3_5ForCausalLM, which has no experts."""

    unsupported: ClassVar[Mapping[str, Any]] = {**GatedDeltaNetConfig.unsupported, "num_experts": 0}
    num_experts: ClassVar[int] = 0
    decoder_sparse_step: ClassVar[int] = 1
    mlp_only_layers: ClassVar[tuple[int, ...]] = ()

    rope_parameters: MropeParameters = MropeParameters()
    intermediate_size: Count


class Qwen3_5MoeConfig(GatedDeltaNetConfig, frozen=True, kw_only=True):
    """Qwen3_5MoeForCausalLM, which has experts in every layer and always normalises their weights."""

    norm_topk_prob: ClassVar[bool] = True
    decoder_sparse_step: ClassVar[int] = 1
    mlp_only_layers: ClassVar[tuple[int, ...]] = ()
    intermediate_size: ClassVar[None] = None

    rope_parameters: MropeParameters = MropeParameters()
    num_experts: Count
    num_experts_per_tok: Count
    moe_intermediate_size: Count
    shared_expert_intermediate_size: Count

    def check(self, source: str) -> None:
        super().check(source)
        check_experts(self, source)


def check_experts(config: Qwen3NextConfig | Qwen3_5MoeConfig, source: str) -> None:
    """Raise CheckpointError for layers with experts that lack a size."""
    for field in ("num_experts_per_tok", "moe_intermediate_size", "shared_expert_intermediate_size"):
        if getattr(config, field) is None:
            raise config.invalid(source, field, "`int` >= 1, since num_experts is not 0")
    config.check_at_most(source, "num_experts_per_tok", config.num_experts, "num_experts")
