"""Fields of Llama and Qwen3, and of the one layer of an EAGLE head, which is stored as either."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

from draftproof.properties.formats.checkpoint_config.base import (
    Count,
    DecoderConfig,
    Even,
    Llama3RopeParameters,
    RopeParameters,
    TargetConfig,
    Whole,
    invalid,
)


class LlamaHeads(Protocol):
    """The fields that heads of Llama and their RoPE depend on."""

    @property
    def hidden_size(self) -> int: ...
    @property
    def num_attention_heads(self) -> int: ...
    @property
    def head_dim(self) -> int | None: ...
    @property
    def rope_parameters(self) -> RopeParameters | Llama3RopeParameters: ...

    def check_rotates_all(self, source: str) -> None: ...


def check_heads(config: LlamaHeads, source: str) -> None:
    """Raise CheckpointError for heads that RoPE cannot turn."""
    config.check_rotates_all(source)
    rope = config.rope_parameters
    if isinstance(rope, Llama3RopeParameters) and rope.high_freq_factor <= rope.low_freq_factor:
        expected = f"above low_freq_factor ({rope.low_freq_factor})"
        raise invalid(source, "high_freq_factor", rope.high_freq_factor, expected)
    if config.head_dim is None and config.hidden_size // config.num_attention_heads % 2:
        raise invalid(source, "head_dim", config.hidden_size // config.num_attention_heads, "an even number")


class LlamaConfig(TargetConfig, frozen=True, kw_only=True):
    """LlamaForCausalLM; without `head_dim` heads share out the hidden size."""

    unsupported: ClassVar[Mapping[str, Any]] = {
        **DecoderConfig.unsupported,
        "attention_bias": False,
        "mlp_bias": False,
        "use_sliding_window": False,
    }
    qk_norm: ClassVar[bool] = False
    """True if each query and key head has a norm of its own."""
    biased: ClassVar[bool] = False
    """True if queries, keys and values have a bias."""

    intermediate_size: Count
    head_dim: Even | None = None
    rope_parameters: RopeParameters | Llama3RopeParameters = RopeParameters()

    def check(self, source: str) -> None:
        super().check(source)
        check_heads(self, source)


class Qwen3Config(LlamaConfig, frozen=True, kw_only=True):
    """The configuration of Qwen3ForCausalLM; its head size does not depend on its hidden size."""

    qk_norm: ClassVar[bool] = True

    num_key_value_heads: Count
    head_dim: Even


class MimoConfig(LlamaConfig, frozen=True, kw_only=True):
    """MiMoForCausalLM: a Qwen2 model with biases, and with MTP layers."""

    unsupported: ClassVar[Mapping[str, Any]] = {**LlamaConfig.unsupported, "attention_bias": True, "use_mrope": False}
    biased: ClassVar[bool] = True

    num_nextn_predict_layers: Whole = 0

    def check_mtp(self, source: str) -> None:
        """Raise CheckpointError if the checkpoint has no draft of its own."""
        if not self.num_nextn_predict_layers:
            raise self.invalid(source, "num_nextn_predict_layers", "at least 1 for the built-in draft")


def eagle_layer(
    target: TargetConfig, num_key_value_heads: int, head_dim: int, intermediate_size: int, field: str = "head_dim"
) -> Qwen3Config:
    """Return the configuration of a made-up EAGLE head: a Qwen3 layer, rotated whole by the target's base.

    Raises CheckpointError, which names `field`, for an odd head size.
    """
    if head_dim % 2:
        raise invalid("config.json", field, head_dim, "an even number for an EAGLE head")
    return Qwen3Config(
        architectures=("Qwen3ForCausalLM",),
        hidden_size=target.hidden_size,
        num_hidden_layers=1,
        num_attention_heads=target.num_attention_heads,
        num_key_value_heads=num_key_value_heads,
        rms_norm_eps=target.rms_norm_eps,
        rope_parameters=RopeParameters(rope_theta=target.rope_parameters.rope_theta),
        vocab_size=target.vocab_size,
        intermediate_size=intermediate_size,
        head_dim=head_dim,
    )


def check_head_fits(head: LlamaConfig, made_up: LlamaConfig, source: str) -> None:
    """Raise CheckpointError unless an EAGLE head has the layer, width and vocabulary of one made up for its target."""
    for field in ("architectures", "num_hidden_layers", "hidden_size", "vocab_size"):
        expected = getattr(made_up, field)
        if getattr(head, field) != expected:
            told = list(expected) if isinstance(expected, tuple) else expected
            raise head.invalid(source, field, f"{told!r} for an EAGLE head of this target")
