"""Fields of a DFlash draft, as transformers has it for Muse Glimmer. Source: sgl-project/sglang#25029."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from draftproof.properties.formats.checkpoint_config.base import Count, DecoderConfig, Even, Whole


class DFlashConfig(DecoderConfig, frozen=True, kw_only=True):
    """The configuration of MuseGlimmerAssistantModel.

    A block has at most `block_size` rows, the pending token's included; `target_layer_ids` are the layers of the target
    whose outputs are the context, in that order.
    """

    qk_norm: ClassVar[bool] = True
    rope_defaults: ClassVar[Mapping[str, Any]] = {"rope_theta": 500000.0}

    num_key_value_heads: Count
    head_dim: Even
    intermediate_size: Count
    # Left out it means sliding windows.
    layer_types: tuple[str, ...]
    block_size: Annotated[int, Meta(ge=2)]
    mask_token_id: Whole
    target_layer_ids: Annotated[tuple[Whole, ...], Meta(min_length=1)]

    def check(self, source: str) -> None:
        super().check(source)
        self.check_rotates_all(source)
        if len(set(self.target_layer_ids)) < len(self.target_layer_ids):
            raise self.invalid(source, "target_layer_ids", "distinct layers")

    def check_fits(self, hidden_size: int, vocab_size: int, layers: int, source: str) -> None:
        """Raise CheckpointError unless the draft fits a target of these sizes.

        The output of the target's last layer is ambiguous: transformers returns it after the final norm, and the output
        of any other layer before any norm.
        """
        if self.hidden_size != hidden_size:
            raise self.invalid(source, "hidden_size", f"{hidden_size}, as in the target")
        if self.mask_token_id >= vocab_size:
            raise self.invalid(source, "mask_token_id", f"less than the target's vocab_size, {vocab_size}")
        if max(self.target_layer_ids) > layers - 2:
            raise self.invalid(source, "target_layer_ids", f"layers 0 .. {layers - 2}")
