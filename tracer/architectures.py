"""Back ends: how each architecture says a program, in tensors and in fields of config.json."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from draftproof.tracer.kernel import DistanceKernel
from draftproof.tracer.parts import (
    EXPERT_COUNT,
    VALUE_DIM,
    Sizes,
    Tensors,
    attention,
    by_sigmoid,
    by_softmax,
    delta_net,
    dense,
    experts,
    latent_attention,
    norms,
    under,
)
from draftproof.tracer.program import SLOT_BITS, TAPS, BitLayer

Fields = Mapping[str, Any]
_PLAIN, _HYBRID = Sizes(), Sizes(head_dim=128, rotary=32, theta=1e4)
_PLAIN_LAYERS, _SCALED = 1, 2.0
"""Of GLM-4-MoE and DeepSeek-V3: layers without experts, and what multiplies the outputs of those that are chosen."""


@dataclass(frozen=True)
class BackEnd:
    """An architecture; `less` is 1 where norms add 1 to their weight.

    `mixers` says of the layers in turn whether they have attention (F) or memories (L); `eagle` names the architecture
    of an EAGLE head. `mtp` has the prefix of an MTP layer, the names of what joins it to the target (norms of
    embedding, state and output, and the projection), and the prefix of the layer itself.
    `windows`: its layers can have them; `beside_tied` are the drafts of one with tied embeddings.
    """

    mixer: Callable[[BitLayer, int, Sizes, DistanceKernel], Tensors]
    rest: Callable[[BitLayer, int, Sizes], Tensors]
    fields: Callable[[Sizes, int], Fields]
    sizes: Sizes = _PLAIN
    mixers: str = "F"
    less: float = 0.0
    eagle: str = "qwen3"
    mtp: tuple[str, tuple[str, ...], str] | None = None
    windows: bool = False
    beside_tied: tuple[str | None, ...] = ()

    @property
    def drafts(self) -> tuple[str, ...]:
        """The drafts that can be built for it."""
        return ("eagle", "eagle3", *(("mtp",) if self.mtp else ()), *(("standalone",) if self.mixers == "F" else ()))

    def layer(self, layer: BitLayer, number: int, first: int, sizes: Sizes, kernel: DistanceKernel) -> Tensors:
        """Return the tensors of a layer."""
        return {
            **norms(("input_layernorm", "post_attention_layernorm"), sizes.width, self.less),
            **self.mixer(layer, first, sizes, kernel),
            **under("mlp.", self.rest(layer, number, sizes)),
        }


def _attention(layer: BitLayer, first: int, sizes: Sizes, kernel: DistanceKernel, *, normed: bool = False) -> Tensors:
    return under("self_attn.", attention(layer, first, sizes, kernel, normed=normed))


def _latent(layer: BitLayer, first: int, sizes: Sizes, kernel: DistanceKernel) -> Tensors:
    return under("self_attn.", latent_attention(layer, first, sizes, kernel))


def _hybrid(layer: BitLayer, first: int, sizes: Sizes, kernel: DistanceKernel, *, joined: bool = False) -> Tensors:
    if layer.memories:
        return under("linear_attn.", _projected(delta_net(layer.memories, sizes.width), sizes.width, joined=joined))
    return under("self_attn.", attention(layer, first, sizes, kernel, normed=True, gated=True))


def _dense(layer: BitLayer, number: int, sizes: Sizes) -> Tensors:
    return dense(layer, sizes)


def _sparse(layer: BitLayer, number: int, sizes: Sizes) -> Tensors:
    return experts(layer, sizes, "shared_expert", by_softmax)


def _grouped(layer: BitLayer, number: int, sizes: Sizes) -> Tensors:
    if number < _PLAIN_LAYERS:
        return dense(layer, sizes)
    wide = max(sizes.of_expert, sizes.of_shared)
    return experts(layer, replace(sizes, of_expert=wide, of_shared=wide), "shared_experts", by_sigmoid, _SCALED)


def _projected(net: Tensors, width: int, *, joined: bool) -> Tensors:
    """Return a delta net with its projections as Qwen3.5 stores them, or `joined` by key head as Qwen3-Next does."""
    parts = {name: net.pop(name) for name in ("q", "k", "v", "z", "b", "a")}
    if joined:
        heads = len(parts["q"])
        by_head = {name: part.reshape(heads, -1, width) for name, part in parts.items()}
        stored = {"qkvz": "qkvz", "ba": "ba"}
        found = {name: np.concatenate([by_head[part] for part in of], axis=1) for name, of in stored.items()}
    else:
        flat = {name: part.reshape(-1, width) for name, part in parts.items()}
        found = {"qkv": np.concatenate([flat[name] for name in "qkv"]), **{name: flat[name] for name in "zba"}}
    return net | {f"in_proj_{name}.weight": part.reshape(-1, width) for name, part in found.items()}


def _fields(architecture: str, model_type: str, sizes: Sizes, layers: int) -> dict[str, Any]:
    return {
        "architectures": [architecture],
        "model_type": model_type,
        "hidden_size": sizes.width,
        "intermediate_size": sizes.units,
        "num_hidden_layers": layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.groups,
        "head_dim": sizes.head_dim,
        "rope_theta": sizes.theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": sizes.theta},
    }


def _hybrid_fields(architecture: str, model_type: str, more: Fields, sizes: Sizes, layers: int) -> dict[str, Any]:
    part, kinds = sizes.rotary / sizes.head_dim, ("linear_attention", "full_attention")
    fields = _fields(architecture, model_type, sizes, layers)
    return {
        **fields,
        "rope_parameters": {**fields["rope_parameters"], "partial_rotary_factor": part, **more.get("rope", {})},
        "partial_rotary_factor": part,
        "layer_types": [kinds[i % 2] for i in range(layers)],
        "full_attention_interval": 2,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 1 << SLOT_BITS,
        "linear_value_head_dim": VALUE_DIM,
        "linear_conv_kernel_dim": TAPS,
        "mtp_num_hidden_layers": 1,
        **more.get("fields", {}),
    }


def _next_fields(sizes: Sizes, layers: int) -> dict[str, Any]:
    of_experts = {
        "num_experts": EXPERT_COUNT,
        "num_experts_per_tok": 2,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "moe_intermediate_size": sizes.of_expert,
        "shared_expert_intermediate_size": sizes.of_shared,
    }
    return _hybrid_fields("Qwen3NextForCausalLM", "qwen3_next", {"fields": of_experts}, sizes, layers)


def _grouped_fields(architecture: str, model_type: str, sizes: Sizes, layers: int) -> dict[str, Any]:
    return {
        **_fields(architecture, model_type, sizes, layers),
        "moe_intermediate_size": max(sizes.of_expert, sizes.of_shared),
        "n_routed_experts": EXPERT_COUNT,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "n_group": 2,
        "topk_group": 1,
        "first_k_dense_replace": _PLAIN_LAYERS,
        "routed_scaling_factor": _SCALED,
        "norm_topk_prob": True,
        "num_nextn_predict_layers": 1,
    }


def _glm_fields(sizes: Sizes, layers: int) -> dict[str, Any]:
    fields = _grouped_fields("Glm4MoeForCausalLM", "glm4_moe", sizes, layers)
    part = {"partial_rotary_factor": sizes.rotary / sizes.head_dim}
    return {**fields, **part, "rope_parameters": {**fields["rope_parameters"], **part}, "use_qk_norm": True}


def _deepseek_fields(sizes: Sizes, layers: int) -> dict[str, Any]:
    fields = _grouped_fields("DeepseekV3ForCausalLM", "deepseek_v3", sizes, layers)
    del fields["head_dim"]
    latent = {"q_lora_rank": sizes.width, "kv_lora_rank": 2 * sizes.width, "v_head_dim": VALUE_DIM}
    plain = {"qk_nope_head_dim": sizes.head_dim - sizes.rotary, "qk_rope_head_dim": sizes.rotary}
    scoring = {"topk_method": "noaux_tc", "scoring_func": "sigmoid", "moe_layer_freq": 1, "ep_size": 1}
    return {**fields, **latent, **plain, **scoring, "num_key_value_heads": sizes.heads}


_MROPE = {"rope": {"mrope_section": [6, 5, 5], "mrope_interleaved": True}}
_OF_QWEN = ("mtp.", ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm", "fc"), "layers.0.")
_OF_GLM = ("model.layers.{}.", ("enorm", "hnorm", "shared_head.norm", "eh_proj"), "")
_HALF, _NO_HEAD = Sizes(head_dim=128), (None, "standalone")
BACK_ENDS = {
    "llama": BackEnd(
        _attention, _dense, partial(_fields, "LlamaForCausalLM", "llama"), eagle="llama", beside_tied=_NO_HEAD
    ),
    "qwen3": BackEnd(
        partial(_attention, normed=True),
        _dense,
        partial(_fields, "Qwen3ForCausalLM", "qwen3"),
        windows=True,
        beside_tied=_NO_HEAD,
    ),
    "qwen3-next": BackEnd(
        partial(_hybrid, joined=True), _sparse, _next_fields, _HYBRID, mixers="LF", less=1.0, mtp=_OF_QWEN
    ),
    "qwen3.5": BackEnd(
        _hybrid,
        _dense,
        partial(_hybrid_fields, "Qwen3_5ForCausalLM", "qwen3_5_text", _MROPE),
        _HYBRID,
        mixers="LF",
        less=1.0,
        mtp=_OF_QWEN,
    ),
    "glm4-moe": BackEnd(partial(_attention, normed=True), _grouped, _glm_fields, _HALF, mtp=_OF_GLM),
    "deepseek-v3": BackEnd(_latent, _grouped, _deepseek_fields, replace(_HALF, groups=16), mtp=_OF_GLM),
}
"""By the name that `draftproof tracer build --arch` takes."""
