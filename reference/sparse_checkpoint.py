"""Read a GLM-4-MoE or DeepSeek-V3 checkpoint directory, and the layers for multi-token prediction (MTP) in it.

Letters: `D` hidden size, `F` an intermediate size, `X` experts, `N` query heads, `M` key-value heads, `H` head size.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from draftproof.reference.checkpoint import EMBEDDING, FINAL_NORM, LM_HEAD, read_config_text, read_tensors
from draftproof.reference.config import CheckpointError
from draftproof.reference.dense_layer import with_prefix
from draftproof.reference.sparse_config import Grouped, Latent, SparseConfig, parse_sparse_config

Shapes = dict[str, tuple[int, ...]]
# An MTP layer may bring the target's embedding and head again.
MTP_EMBEDDING = "embed_tokens.weight"
MTP_HEAD = "shared_head.head.weight"


@dataclass(frozen=True)
class SparseCheckpoint:
    """A model's SparseConfig and its float64 tensors by name; `lm_head.weight` is there for tied models too."""

    config: SparseConfig
    tensors: Mapping[str, Tensor]


def load_sparse(directory: str | Path) -> SparseCheckpoint:
    """Read a GLM-4-MoE or DeepSeek-V3 checkpoint. Raises CheckpointError for whatever is wrong with it."""
    config = parse_sparse_config(*read_config_text(directory))
    tied = config.tie_word_embeddings
    spare = {LM_HEAD} if tied else set()
    prefixes = tuple(mtp_prefix(config, j) for j in range(config.mtp_layers))
    tensors = read_tensors(directory, sparse_shapes(config), ignored=spare, ignored_prefixes=prefixes)
    if tied:
        tensors = {**tensors, LM_HEAD: tensors[EMBEDDING]}
    return SparseCheckpoint(config, tensors)


def load_mtp_layers(directory: str | Path, target: SparseCheckpoint) -> tuple[dict[str, Tensor], ...]:
    """Read every MTP layer, names without `model.layers.{number}.`. Raises CheckpointError, also where there is none.

    An embedding or a head of its own must be the target's: transformers takes the target's without looking.
    """
    config = target.config
    if not config.mtp_layers:
        raise CheckpointError(f"{directory}: num_nextn_predict_layers is 0; allowed for an MTP draft: 1 or more")
    shapes, copies = mtp_shapes(config), mtp_copies(config)
    own = tuple(f"model.layers.{i}." for i in range(config.layers))
    ignored = (EMBEDDING, FINAL_NORM, LM_HEAD, *own)
    tensors = read_tensors(directory, shapes, optional=dict.fromkeys(copies, (config.vocab, config.hidden)),
                           ignored_prefixes=ignored)  # fmt: skip
    for name, original in copies.items():
        if name in tensors and not torch.equal(tensors[name], target.tensors[original]):
            raise CheckpointError(f"{directory}: tensor {name} differs from {original}; allowed: none, or the same")
    return tuple(with_prefix(tensors, mtp_prefix(config, j)) for j in range(config.mtp_layers))


def mtp_prefix(config: SparseConfig, layer: int) -> str:
    """What the names of an MTP layer's tensors start with: MTP layers count on after those of the model."""
    return f"model.layers.{config.layers + layer}."


def mtp_copies(config: SparseConfig) -> dict[str, str]:
    """Tensors that MTP layers may have again, and which of the target's they repeat."""
    prefixes = [mtp_prefix(config, j) for j in range(config.mtp_layers)]
    embeddings = {prefix + MTP_EMBEDDING: EMBEDDING for prefix in prefixes}
    return embeddings | {prefix + MTP_HEAD: LM_HEAD for prefix in prefixes}


def mtp_shapes(config: SparseConfig) -> Shapes:
    """Name and shape of every tensor of the MTP layers, which have experts even where the model's first have none."""
    d = config.hidden
    joint: Shapes = {
        "enorm.weight": (d,),
        "hnorm.weight": (d,),
        "eh_proj.weight": (d, 2 * d),
        "shared_head.norm.weight": (d,),
    }
    layer = joint | layer_shapes(config, sparse=True)
    return {mtp_prefix(config, j) + name: shape for j in range(config.mtp_layers) for name, shape in layer.items()}


def sparse_shapes(config: SparseConfig) -> Shapes:
    """Name and shape of every tensor of the model; no `lm_head.weight` where it is the embedding."""
    shapes: Shapes = {EMBEDDING: (config.vocab, config.hidden), FINAL_NORM: (config.hidden,)}
    for i in range(config.layers):
        layer = layer_shapes(config, sparse=i >= config.dense_layers)
        shapes |= {f"model.layers.{i}.{name}": shape for name, shape in layer.items()}
    if not config.tie_word_embeddings:
        shapes[LM_HEAD] = (config.vocab, config.hidden)
    return shapes


def layer_shapes(config: SparseConfig, sparse: bool) -> Shapes:
    """Tensors of one decoder layer, with experts or with an MLP."""
    d = config.hidden
    norms: Shapes = {"input_layernorm.weight": (d,), "post_attention_layernorm.weight": (d,)}
    mixer = _grouped_query_shapes(config) if config.latent is None else _latent_shapes(config, config.latent)
    rest = _expert_shapes(config.experts, d) if sparse else _mlp_shapes("mlp.", config.intermediate, d)
    return norms | {f"self_attn.{name}": shape for name, shape in mixer.items()} | rest


def _grouped_query_shapes(config: SparseConfig) -> Shapes:
    d, h = config.hidden, config.head_dim
    heads = {"q_proj": config.heads, "k_proj": config.kv_heads, "v_proj": config.kv_heads}
    shapes: Shapes = {f"{name}.weight": (number * h, d) for name, number in heads.items()}
    shapes["o_proj.weight"] = (d, config.heads * h)
    if config.bias:
        shapes |= {f"{name}.bias": (number * h,) for name, number in heads.items()}
    if config.qk_norm:
        shapes |= {"q_norm.weight": (h,), "k_norm.weight": (h,)}
    return shapes


def _latent_shapes(config: SparseConfig, sizes: Latent) -> Shapes:
    d, queries = config.hidden, config.heads * (sizes.nope + sizes.rope)
    shapes: Shapes = {
        "kv_a_proj_with_mqa.weight": (sizes.kv_rank + sizes.rope, d),
        "kv_a_layernorm.weight": (sizes.kv_rank,),
        "kv_b_proj.weight": (config.heads * (sizes.nope + sizes.value), sizes.kv_rank),
        "o_proj.weight": (d, config.heads * sizes.value),
    }
    biases = {"kv_a_proj_with_mqa.bias": (sizes.kv_rank + sizes.rope,), "o_proj.bias": (d,)}
    if sizes.q_rank is None:
        shapes["q_proj.weight"] = (queries, d)
    else:
        shapes |= {"q_a_proj.weight": (sizes.q_rank, d), "q_a_layernorm.weight": (sizes.q_rank,)}
        shapes["q_b_proj.weight"] = (queries, sizes.q_rank)
        biases["q_a_proj.bias"] = (sizes.q_rank,)
    return shapes | biases if config.bias else shapes


def _expert_shapes(sizes: Grouped, d: int) -> Shapes:
    shapes: Shapes = {"mlp.gate.weight": (sizes.total, d), "mlp.gate.e_score_correction_bias": (sizes.total,)}
    shapes |= _mlp_shapes("mlp.shared_experts.", sizes.shared_intermediate, d)
    for i in range(sizes.total):
        shapes |= _mlp_shapes(f"mlp.experts.{i}.", sizes.intermediate, d)
    return shapes


def _mlp_shapes(prefix: str, f: int, d: int) -> Shapes:
    return {
        f"{prefix}gate_proj.weight": (f, d),
        f"{prefix}up_proj.weight": (f, d),
        f"{prefix}down_proj.weight": (d, f),
    }
