"""What every config.json says, under Hugging Face's own field names, and how a bad one is refused.

Only what a file says is here. What follows from it (rotary width, default head size, list of layer types) is computed
by the engine and by the reference separately, because it can be wrong.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from draftproof.properties.lib.errors import CheckpointError

FULL_ATTENTION, LINEAR_ATTENTION = "full_attention", "linear_attention"

Count = Annotated[int, Meta(ge=1)]
Whole = Annotated[int, Meta(ge=0)]
Even = Annotated[int, Meta(ge=2, multiple_of=2)]
Positive = Annotated[float, Meta(gt=0, le=sys.float_info.max)]


def invalid(source: str, field: str, value: object, expected: str) -> CheckpointError:
    """Return the error for a field of `source` that has a wrong value."""
    return CheckpointError(f"invalid {field} {value!r} in {source}: expected {expected}")


class RopeParameters(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="rope_type", tag="default"
):
    """Plain rotary embedding; the first `partial_rotary_factor` of a head is rotated."""

    rope_theta: Positive = 10000.0
    partial_rotary_factor: Positive = 1.0


class Llama3RopeParameters(RopeParameters, frozen=True, kw_only=True, tag="llama3"):
    """Llama 3.1's scaling of frequencies; wavelengths are compared with `original_max_position_embeddings` tokens."""

    factor: Positive
    low_freq_factor: Positive
    high_freq_factor: Positive
    original_max_position_embeddings: Count


class MropeParameters(RopeParameters, frozen=True, kw_only=True, tag="default"):
    """M-RoPE, which equals RoPE for text: the three positions of a token are equal, so its own fields are not read."""

    mrope_section: tuple[int, ...] | None = None
    mrope_interleaved: bool = False


class DecoderConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Fields of every decoder, target or draft."""

    has_states: ClassVar[bool] = False
    """True if some layers keep a recurrent state, which a rejected token would change."""
    rope_defaults: ClassVar[Mapping[str, Any]] = {}
    """What transformers takes for fields of `rope_parameters` that are left out."""
    unsupported: ClassVar[Mapping[str, Any]] = {"hidden_act": "silu", "quantization_config": None}
    """Fields that would change the arithmetic, with the only value that is supported."""

    architectures: tuple[str]
    hidden_size: Count
    num_hidden_layers: Count
    num_attention_heads: Count
    num_key_value_heads: Count | None = None
    rms_norm_eps: Positive
    rope_parameters: RopeParameters = RopeParameters()
    layer_types: tuple[str, ...] | None = None
    bos_token_id: Whole | None = None

    @classmethod
    def flattened(cls, fields: dict[str, Any], source: str) -> dict[str, Any]:
        """Return the fields of a file side by side, where it has them in parts. Raises CheckpointError."""
        return fields

    @classmethod
    def adapted(cls, fields: dict[str, Any], source: str) -> dict[str, Any]:
        """Return the fields of a file of this architecture in the form of the struct. Raises CheckpointError."""
        return fields

    @property
    def architecture(self) -> str:
        """The name under which both sides register the model."""
        return self.architectures[0]

    def invalid(self, source: str, field: str, expected: str) -> CheckpointError:
        """Return the error for a field of `source` that has a wrong value."""
        value = getattr(self, field)
        return invalid(source, field, list(value) if isinstance(value, tuple) else value, expected)

    def check(self, source: str) -> None:
        """Raise CheckpointError for fields that do not fit each other."""
        self.check_divides(source, "num_key_value_heads", "num_attention_heads")
        allowed = (FULL_ATTENTION, LINEAR_ATTENTION) if self.has_states else (FULL_ATTENTION,)
        types = (FULL_ATTENTION,) * self.num_hidden_layers if self.layer_types is None else self.layer_types
        if len(types) != self.num_hidden_layers or not set(types) <= set(allowed):
            expected = f"num_hidden_layers ({self.num_hidden_layers}) times {' or '.join(map(repr, allowed))}"
            raise self.invalid(source, "layer_types", expected)

    def check_divides(self, source: str, field: str, of: str) -> None:
        """Raise CheckpointError unless the field, if given, divides another one."""
        value, whole = getattr(self, field), getattr(self, of)
        if value is not None and whole % value:
            raise self.invalid(source, field, f"a divisor of {of} ({whole})")

    def check_at_most(self, source: str, field: str, most: int, what: str) -> None:
        """Raise CheckpointError for a value above `most`."""
        if getattr(self, field) > most:
            raise self.invalid(source, field, f"at most {most} ({what})")

    def check_rotates_all(self, source: str) -> None:
        """Raise CheckpointError if only a part of each head is rotated."""
        if self.rope_parameters.partial_rotary_factor != 1.0:
            raise invalid(source, "partial_rotary_factor", self.rope_parameters.partial_rotary_factor, "1.0")

    def check_rotary_width(self, head_dim: int, source: str) -> None:
        """Raise CheckpointError unless an even number of a head's components is rotated, of at least two."""
        factor = self.rope_parameters.partial_rotary_factor
        width = int(head_dim * factor)
        if not 2 <= width <= head_dim or width % 2:
            expected = f"an even part of head_dim ({head_dim}), not none of it"
            raise invalid(source, "partial_rotary_factor", factor, expected)


class TargetConfig(DecoderConfig, frozen=True, kw_only=True):
    """Fields of every language model."""

    vocab_size: Count
    max_position_embeddings: Count | None = None
    tie_word_embeddings: bool = False
    eos_token_id: Whole | tuple[Whole, ...] | None = None
