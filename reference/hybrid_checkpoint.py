"""Read a hybrid checkpoint directory, and the multi-token prediction (MTP) layer that it may bring along.

Letters: `D` hidden size, `F` an intermediate size, `X` experts, `N` query or key heads, `M` key-value heads, `U` value
heads, `H` head or key size, `E` value size, `C` width of the convolution.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from draftproof.reference.checkpoint import EMBEDDING, FINAL_NORM, LM_HEAD, read_config_text, read_tensors
from draftproof.reference.config import ARCHITECTURES as DENSE_ARCHITECTURES
from draftproof.reference.config import Config, parse_architecture, parse_config, parse_object
from draftproof.reference.hybrid_config import (
    ARCHITECTURES,
    FULL,
    Experts,
    HybridConfig,
    Linear,
    is_hybrid,
    parse_hybrid_config,
)
from draftproof.reference.sparse_config import ARCHITECTURES as SPARSE_ARCHITECTURES
from draftproof.reference.sparse_config import SparseConfig, is_sparse, parse_sparse_config

MTP = "mtp."
Shapes = dict[str, tuple[int, ...]]

# The vision tower of a model that also reads images; text does not pass through it.
_VISION = "model.visual."


@dataclass(frozen=True)
class HybridCheckpoint:
    """A model's HybridConfig and its float64 tensors by name; `lm_head.weight` is there for tied models too."""

    config: HybridConfig
    tensors: Mapping[str, Tensor]


def read_target_config(directory: str | Path) -> Config | HybridConfig | SparseConfig:
    """Read `config.json` of a checkpoint of any architecture that the reference runs. Raises CheckpointError."""
    text, source = read_config_text(directory)
    if is_hybrid(text, source):
        return parse_hybrid_config(text, source)
    if is_sparse(text, source):
        return parse_sparse_config(text, source)
    known = (*DENSE_ARCHITECTURES, *ARCHITECTURES, *SPARSE_ARCHITECTURES)
    parse_architecture(parse_object(text, source), known, source)
    return parse_config(text, source)


def load_hybrid(directory: str | Path) -> HybridCheckpoint:
    """Read a Qwen3-Next or Qwen3.5 checkpoint. Raises CheckpointError for whatever is wrong with it."""
    config = parse_hybrid_config(*read_config_text(directory))
    tied = config.tie_word_embeddings
    spare = {LM_HEAD} if tied else set()
    tensors = read_tensors(directory, hybrid_shapes(config), ignored=spare, ignored_prefixes=(MTP, _VISION))
    if tied:
        tensors = {**tensors, LM_HEAD: tensors[EMBEDDING]}
    return HybridCheckpoint(config, tensors)


def load_mtp(directory: str | Path, config: HybridConfig) -> dict[str, Tensor]:
    """Read the MTP layer of a checkpoint, names without `mtp.`. Raises CheckpointError, also where there is none."""
    tensors = read_tensors(directory, mtp_shapes(config), ignored_prefixes=("model.", LM_HEAD))
    return {name.removeprefix(MTP): tensor for name, tensor in tensors.items()}


def hybrid_shapes(config: HybridConfig) -> Shapes:
    """Name and shape of every tensor of a hybrid model; no `lm_head.weight` where it is the embedding."""
    shapes: Shapes = {EMBEDDING: (config.vocab, config.hidden), FINAL_NORM: (config.hidden,)}
    for i, (kind, sparse) in enumerate(zip(config.types, config.sparse, strict=True)):
        mixer = attention_shapes(config) if kind == FULL else linear_shapes(config)
        layer = {**mixer, **_rest_shapes(config, sparse)}
        shapes |= {f"model.layers.{i}.{name}": shape for name, shape in layer.items()}
    if not config.tie_word_embeddings:
        shapes[LM_HEAD] = (config.vocab, config.hidden)
    return shapes


def mtp_shapes(config: HybridConfig) -> Shapes:
    """Name and shape of every tensor of the MTP layer: full attention, and experts if the model has any."""
    d = config.hidden
    shapes: Shapes = {
        "fc.weight": (d, 2 * d),
        "pre_fc_norm_embedding.weight": (d,),
        "pre_fc_norm_hidden.weight": (d,),
        "norm.weight": (d,),
    }
    layer = {**attention_shapes(config), **_rest_shapes(config, config.experts is not None)}
    shapes |= {f"layers.0.{name}": shape for name, shape in layer.items()}
    return {f"{MTP}{name}": shape for name, shape in shapes.items()}


def attention_shapes(config: HybridConfig) -> Shapes:
    """Tensors of gated attention; the rows of `q_proj` are, by head, those of the query and those of the gate."""
    d, h = config.hidden, config.head_dim
    return {
        "self_attn.q_proj.weight": (config.heads * 2 * h, d),
        "self_attn.k_proj.weight": (config.kv_heads * h, d),
        "self_attn.v_proj.weight": (config.kv_heads * h, d),
        "self_attn.o_proj.weight": (d, config.heads * h),
        "self_attn.q_norm.weight": (h,),
        "self_attn.k_norm.weight": (h,),
    }


def linear_shapes(config: HybridConfig) -> Shapes:
    """Tensors of a gated delta net; how the input projections are stored depends on the architecture."""
    sizes, d = config.linear, config.hidden
    inner = sizes.value_heads * sizes.value_dim
    shapes: Shapes = {
        "A_log": (sizes.value_heads,),
        "dt_bias": (sizes.value_heads,),
        "conv1d.weight": (sizes.channels, 1, sizes.conv),
        "norm.weight": (sizes.value_dim,),
        "out_proj.weight": (d, inner),
        **_projection_shapes(sizes, d, inner, config.interleaved),
    }
    return {f"linear_attn.{name}": shape for name, shape in shapes.items()}


def _projection_shapes(sizes: Linear, d: int, inner: int, interleaved: bool) -> Shapes:
    if interleaved:
        return {
            "in_proj_qkvz.weight": (sizes.channels + inner, d),
            "in_proj_ba.weight": (2 * sizes.value_heads, d),
        }
    return {
        "in_proj_qkv.weight": (sizes.channels, d),
        "in_proj_z.weight": (inner, d),
        "in_proj_b.weight": (sizes.value_heads, d),
        "in_proj_a.weight": (sizes.value_heads, d),
    }


def _rest_shapes(config: HybridConfig, sparse: bool) -> Shapes:
    """The norms of a layer and its MLP or experts."""
    d = config.hidden
    norms: Shapes = {"input_layernorm.weight": (d,), "post_attention_layernorm.weight": (d,)}
    if sparse:
        assert config.experts is not None
        return norms | _expert_shapes(config.experts, d)
    assert config.intermediate is not None
    return norms | _mlp_shapes("mlp.", config.intermediate, d)


def _expert_shapes(sizes: Experts, d: int) -> Shapes:
    shapes: Shapes = {"mlp.gate.weight": (sizes.total, d), "mlp.shared_expert_gate.weight": (1, d)}
    shapes |= _mlp_shapes("mlp.shared_expert.", sizes.shared_intermediate, d)
    for i in range(sizes.total):
        shapes |= _mlp_shapes(f"mlp.experts.{i}.", sizes.intermediate, d)
    return shapes


def _mlp_shapes(prefix: str, f: int, d: int) -> Shapes:
    return {
        f"{prefix}gate_proj.weight": (f, d),
        f"{prefix}up_proj.weight": (f, d),
        f"{prefix}down_proj.weight": (d, f),
    }
