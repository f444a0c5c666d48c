"""Qwen3-Next and Qwen3.5 (text) in float64.

Letters: `D` hidden size, `F` an intermediate size, `X` experts, `Nq` query heads, `N` key-value heads, `U` value
heads, `H` head or key size, `E` value size, `C` width of the convolution.
"""

from pathlib import Path

from torch import Tensor

from draftproof.properties.values.checkpoint_config.llama import LlamaConfig, eagle_layer
from draftproof.properties.values.checkpoint_config.qwen3_next import GatedDeltaNetConfig, Qwen3NextConfig
from draftproof.properties.values.scenario import LayerType
from draftproof.reference.models.layers import KV, mlp_shapes, norm_shapes
from draftproof.reference.models.qwen3_next_layer import (
    FULL,
    DeltaNetSizes,
    centred_norm,
    full_layer,
    layer_types,
    linear_layer,
)
from draftproof.reference.models.qwen3_next_mtp import PREFIX, Qwen3NextMtpLayer
from draftproof.reference.models.target import DraftLayer, ReferenceCheckpointTarget
from draftproof.reference.models.tensors import LM_HEAD, Shapes, read_tensors


class ReferenceQwen3Next(ReferenceCheckpointTarget[GatedDeltaNetConfig]):
    """Qwen3NextForCausalLM, Qwen3_5ForCausalLM and Qwen3_5MoeForCausalLM."""

    @staticmethod
    def layer_shapes(config: GatedDeltaNetConfig, index: int) -> Shapes:
        """See ReferenceCheckpointTarget."""
        mixer = attention_shapes(config) if layer_types(config)[index] == FULL else linear_shapes(config)
        return mixer | rest_shapes(config, has_experts(config, index))

    @staticmethod
    def eagle_config(config: GatedDeltaNetConfig) -> LlamaConfig:
        """Return the configuration of an EAGLE head: as wide inside as one expert, if there are any."""
        inner = config.moe_intermediate_size if config.num_experts else config.intermediate_size
        return eagle_layer(config, config.num_key_value_heads, config.head_dim, inner)

    @staticmethod
    def unread_prefixes(config: GatedDeltaNetConfig) -> tuple[str, ...]:
        """Return those of the MTP layer and of the vision tower of a model that also reads images."""
        return (PREFIX, "model.visual.")

    @property
    def layer_types(self) -> tuple[LayerType, ...]:
        """The type of every layer."""
        return layer_types(self.config)

    def layer(self, index: int, x: Tensor) -> tuple[Tensor, KV | None, Tensor | None]:
        """See ReferenceCheckpointTarget."""
        if self.layer_types[index] == FULL:
            return *full_layer(x, self.layers[index], self.config), None
        x, state = linear_layer(x, self.layers[index], self.config)
        return x, None, state

    def norm(self, x: Tensor, weight: Tensor) -> Tensor:
        """Return the norm, which multiplies by 1 + weight."""
        return centred_norm(x, weight, self.config.rms_norm_eps)

    def mtp_layers(self, directory: str | Path) -> tuple[DraftLayer, ...]:
        """Read the one MTP layer of the target's directory. Raises CheckpointError, also where there is none."""
        self.config.check_mtp(str(directory))
        tensors = read_tensors(directory, mtp_shapes(self.config), ignored_prefixes=("model.", LM_HEAD))
        own = {name.removeprefix(PREFIX): tensor for name, tensor in tensors.items()}
        return (Qwen3NextMtpLayer(self.config, own, self.embedding, self.lm_head),)


def has_experts(config: GatedDeltaNetConfig, index: int) -> bool:
    """Return if a layer has experts: of Qwen3-Next every `decoder_sparse_step`-th one not in `mlp_only_layers`."""
    plain = index in config.mlp_only_layers or (index + 1) % config.decoder_sparse_step
    return config.num_experts > 0 and not plain


def mtp_shapes(config: GatedDeltaNetConfig) -> Shapes:
    """Return name and shape of every tensor of the MTP layer: full attention, and experts if the model has any."""
    d = config.hidden_size
    shapes: Shapes = {
        "fc.weight": (d, 2 * d),
        "pre_fc_norm_embedding.weight": (d,),
        "pre_fc_norm_hidden.weight": (d,),
        "norm.weight": (d,),
    }
    layer = attention_shapes(config) | rest_shapes(config, config.num_experts > 0)
    shapes |= {f"layers.0.{name}": shape for name, shape in layer.items()}
    return {f"{PREFIX}{name}": shape for name, shape in shapes.items()}


def attention_shapes(config: GatedDeltaNetConfig) -> Shapes:
    """Return tensors of gated attention; the rows of `q_proj` are, by head, those of the query and of the gate."""
    d, h, heads, kv_heads = config.hidden_size, config.head_dim, config.num_attention_heads, config.num_key_value_heads
    return {
        "self_attn.q_proj.weight": (heads * 2 * h, d),
        "self_attn.k_proj.weight": (kv_heads * h, d),
        "self_attn.v_proj.weight": (kv_heads * h, d),
        "self_attn.o_proj.weight": (d, heads * h),
        "self_attn.q_norm.weight": (h,),
        "self_attn.k_norm.weight": (h,),
    }


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
    d = config.hidden_size
    if not sparse:
        return norm_shapes(d) | mlp_shapes("mlp.", config.intermediate_size, d)
    shapes = norm_shapes(d) | {"mlp.gate.weight": (config.num_experts, d), "mlp.shared_expert_gate.weight": (1, d)}
    shapes |= mlp_shapes("mlp.shared_expert.", config.shared_expert_intermediate_size, d)
    for i in range(config.num_experts):
        shapes |= mlp_shapes(f"mlp.experts.{i}.", config.moe_intermediate_size, d)
    return shapes
