"""Qwen3-Next and Qwen3.5 (text) in float64.

Letters: `D` hidden size, `F` an intermediate size, `X` experts, `Nq` query heads, `N` key-value heads, `U` value
heads, `H` head or key size, `E` value size, `C` width of the convolution.
"""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from draftproof.properties.formats.checkpoint_config.llama import LlamaConfig, eagle_layer
from draftproof.properties.formats.checkpoint_config.qwen3_next import GatedDeltaNetConfig, Qwen3NextConfig
from draftproof.properties.values.scenario import LayerType
from draftproof.reference.models.attention import attention_shapes
from draftproof.reference.models.experts import expert_shapes, softmax_experts
from draftproof.reference.models.layers import KV, Places, mlp_shapes, norm_shapes, with_prefix
from draftproof.reference.models.mtp_layer import MtpLayer, joint_shapes
from draftproof.reference.models.qwen3_next_layer import (
    FULL_LAYER,
    DeltaNetSizes,
    centred_norm,
    delta_net,
    gated_attention,
    layer_types,
)
from draftproof.reference.models.target import DraftLayer, FedForward, ReferenceCheckpointTarget
from draftproof.reference.models.tensors import LM_HEAD, Shapes, read_tensors

_PREFIX = "mtp."
_JOINT = {"enorm": "pre_fc_norm_embedding", "hnorm": "pre_fc_norm_hidden", "eh_proj": "fc", "shared_head.norm": "norm"}
"""What joins an MTP layer to its target: names in GLM-4-MoE, and those here."""


class ReferenceQwen3Next(ReferenceCheckpointTarget[GatedDeltaNetConfig]):
    """Qwen3NextForCausalLM, Qwen3_5ForCausalLM and Qwen3_5MoeForCausalLM."""

    @staticmethod
    def layer_shapes(config: GatedDeltaNetConfig, index: int) -> Shapes:
        """See ReferenceCheckpointTarget."""
        mixer = full_shapes(config) if layer_types(config)[index] == FULL_LAYER else linear_shapes(config)
        return mixer | rest_shapes(config, has_experts(config, index))

    @staticmethod
    def eagle_config(config: GatedDeltaNetConfig) -> LlamaConfig:
        """Return the configuration of an EAGLE head: as wide inside as one expert, if there are any."""
        inner = config.moe_intermediate_size if config.num_experts else config.intermediate_size
        return eagle_layer(config, config.num_key_value_heads, config.head_dim, inner)

    @staticmethod
    def unread_prefixes(config: GatedDeltaNetConfig) -> tuple[str, ...]:
        """Return the prefixes of the MTP layer and of the vision tower of a model that also reads images."""
        return (_PREFIX, "model.visual.")

    @property
    def layer_types(self) -> tuple[LayerType, ...]:
        """The type of every layer."""
        return layer_types(self.config)

    def mixer(
        self, x: Tensor, weights: Mapping[str, Tensor], places: Places | None = None
    ) -> tuple[Tensor, KV | Tensor]:
        """See ReferenceCheckpointTarget; a layer has a delta net if its weights do."""
        if "linear_attn.A_log" in weights:
            return delta_net(x, weights, self.config)
        return gated_attention(x, weights, self.config, places)

    def feed_forward(self, x: Tensor, weights: Mapping[str, Tensor]) -> FedForward:
        """See ReferenceCheckpointTarget."""
        return softmax_experts(x, weights, self.config)

    def norm(self, x: Tensor, weight: Tensor) -> Tensor:
        """Return the norm, which multiplies by 1 + weight."""
        return centred_norm(x, weight, self.config.rms_norm_eps)

    def mtp_layers(self, directory: str | Path) -> tuple[DraftLayer, ...]:
        """Read the one MTP layer of the target's directory. Raises CheckpointError, also where there is none."""
        self.config.check_mtp(str(directory))
        shapes, ignored = mtp_shapes(self.config), ("model.", LM_HEAD)
        tensors = read_tensors(directory, shapes, ignored_prefixes=ignored, dtype=self.dtype)
        own = with_prefix(tensors, f"{_PREFIX}layers.0.")
        own |= {f"{name}.weight": tensors[f"{_PREFIX}{stored}.weight"] for name, stored in _JOINT.items()}
        return (MtpLayer(self, own),)


def has_experts(config: GatedDeltaNetConfig, index: int) -> bool:
    """Return if a layer has experts: of Qwen3-Next every `decoder_sparse_step`-th one not in `mlp_only_layers`."""
    plain = index in config.mlp_only_layers or (index + 1) % config.decoder_sparse_step
    return config.num_experts > 0 and not plain


def mtp_shapes(config: GatedDeltaNetConfig) -> Shapes:
    """Return name and shape of every tensor of the MTP layer: full attention, and experts if the model has any."""
    layer = full_shapes(config) | rest_shapes(config, config.num_experts > 0)
    joint = joint_shapes(config.hidden_size)
    shapes: Shapes = {f"{_PREFIX}{stored}.weight": joint[f"{name}.weight"] for name, stored in _JOINT.items()}
    return shapes | {f"{_PREFIX}layers.0.{name}": shape for name, shape in layer.items()}


def full_shapes(config: GatedDeltaNetConfig) -> Shapes:
    """Return name and shape of every tensor of gated attention."""
    return attention_shapes(config, config.head_dim, norms=True, gated=True)


def linear_shapes(config: GatedDeltaNetConfig) -> Shapes:
    """Return tensors of a gated delta net; how the input projections are stored depends on the architecture."""
    sizes, d = DeltaNetSizes.of(config), config.hidden_size
    inner, heads = sizes.value_heads * sizes.value_dim, sizes.value_heads
    if isinstance(config, Qwen3NextConfig):
        stored = {"qkvz": sizes.channels + inner, "ba": 2 * heads}
    else:
        stored = {"qkv": sizes.channels, "z": inner, "b": heads, "a": heads}
    shapes: Shapes = {
        "A_log": (heads,),
        "dt_bias": (heads,),
        "conv1d.weight": (sizes.channels, 1, sizes.conv),
        "norm.weight": (sizes.value_dim,),
        "out_proj.weight": (d, inner),
        **{f"in_proj_{name}.weight": (rows, d) for name, rows in stored.items()},
    }
    return {f"linear_attn.{name}": shape for name, shape in shapes.items()}


def rest_shapes(config: GatedDeltaNetConfig, sparse: bool) -> Shapes:
    """Return the norms of a layer and its MLP or experts."""
    d, norms = config.hidden_size, norm_shapes(config.hidden_size)
    if not sparse:
        return norms | mlp_shapes("mlp.", config.intermediate_size, d)
    shared = mlp_shapes("mlp.shared_expert.", config.shared_expert_intermediate_size, d)
    experts = expert_shapes(config.num_experts, config.moe_intermediate_size, d)
    return norms | shared | experts | {"mlp.shared_expert_gate.weight": (1, d)}
