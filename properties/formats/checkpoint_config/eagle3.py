"""Fields of an EAGLE-3 head, as SafeAILab and as `speculators` write them.

Sources: SafeAILab/EAGLE `eagle/model/cnets.py`; vllm-project/speculators `src/speculators/models/eagle3/config.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from draftproof.properties.formats.checkpoint_config.base import (
    Count,
    DecoderConfig,
    Even,
    Llama3RopeParameters,
    RopeParameters,
    Whole,
    invalid,
)
from draftproof.properties.formats.checkpoint_config.llama import LlamaConfig, check_heads

SAFEAILAB = "LlamaForCausalLMEagle3"


class Eagle3Config(DecoderConfig, frozen=True, kw_only=True):
    """An EAGLE-3 head: one layer of Llama or Qwen3 on [embedding, state], `draft_vocab_size` of `vocab_size` tokens.

    `eagle_aux_hidden_state_layer_ids` are the layers of the target that feed it. How they are counted depends on the
    layout, which is the `speculators` layout where `speculators_model_type` is given.
    """

    unsupported: ClassVar[Mapping[str, Any]] = {
        **LlamaConfig.unsupported,
        "use_aux_hidden_state": True,
        "norm_before_fc": False,
        "norm_output": False,
    }

    vocab_size: Count
    intermediate_size: Count
    model_type: Literal["llama", "qwen3"] = "llama"
    head_dim: Even | None = None
    rope_parameters: RopeParameters | Llama3RopeParameters = RopeParameters()
    draft_vocab_size: Annotated[int, Meta(ge=2)] | None = None
    target_hidden_size: Count | None = None
    norm_before_residual: bool = False
    eagle_aux_hidden_state_layer_ids: Annotated[tuple[Whole, ...], Meta(min_length=1)] | None = None
    speculators_model_type: Literal["eagle3"] | None = None

    @property
    def qk_norm(self) -> bool:
        """True if each query and key head has a norm of its own."""
        return self.model_type == "qwen3"

    @classmethod
    def flattened(cls, fields: dict[str, Any], source: str) -> dict[str, Any]:
        """Return the fields of either layout side by side. Raises CheckpointError for a part that is no object."""
        name = "transformer_layer_config" if fields.get("speculators_model_type") else "eagle_config"
        part = fields.get(name) or {}
        if not isinstance(part, dict):
            raise invalid(source, name, part, "an object")
        if name == "transformer_layer_config":
            return {**part, **fields}
        # SafeAILab's own files have the architecture of the layer.
        named = [SAFEAILAB] if "draft_vocab_size" in fields else fields.get("architectures")
        return {**fields, **part, "architectures": named, "model_type": "llama"}

    def check(self, source: str) -> None:
        super().check(source)
        check_heads(self, source)
        if self.num_hidden_layers != 1:
            raise self.invalid(source, "num_hidden_layers", "1")
        if (self.draft_vocab_size or 0) > self.vocab_size:
            raise self.invalid(source, "draft_vocab_size", f"at most vocab_size, {self.vocab_size}")

    def check_fits(self, hidden_size: int, vocab_size: int, source: str) -> None:
        """Raise CheckpointError unless the head fits a target of these sizes."""
        name = "target_hidden_size" if self.target_hidden_size else "hidden_size"
        if getattr(self, name) != hidden_size:
            raise self.invalid(source, name, f"{hidden_size}, the target's hidden_size")
        if self.vocab_size != vocab_size:
            raise self.invalid(source, "vocab_size", f"{vocab_size}, as in the target")
