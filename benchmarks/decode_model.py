"""The model that decoding is timed on: a Llama of about 1B parameters with random weights, made on the device.

`D` hidden width, `N` heads, `H` head size, `V` vocabulary. Sizes are those of Llama 3.2 1B, the lm_head tied like its.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from draftproof.engine.models.llama import Llama
from draftproof.properties.values.checkpoint_config import parse_config
from draftproof.properties.values.checkpoint_config.llama import LlamaConfig

LLAMA_1B = {
    "vocab_size": 128256,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
}
TINY = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
}


@dataclass(frozen=True)
class Setup:
    """What is timed and how often; times are medians over `repeats`."""

    sizes: dict[str, int]
    device: str
    dtype: torch.dtype
    batches: tuple[int, ...]
    prompt: int
    new: int
    repeats: int
    copy_bytes: int
    seed: int


def setup(tiny: bool, seed: int, batches: tuple[int, ...] | None) -> Setup:
    """The H200 run, or one that a CPU does in seconds."""
    if tiny:
        return Setup(TINY, "cpu", torch.float32, batches or (1, 3), 8, 6, 2, 1 << 22, seed)
    return Setup(LLAMA_1B, "cuda", torch.bfloat16, batches or (1, 8, 64), 128, 128, 5, 1 << 32, seed)


def hf_config(sizes: dict[str, int]) -> dict[str, Any]:
    """The fields of config.json, read by the engine and by transformers alike."""
    return {
        **sizes,
        "architectures": ["LlamaForCausalLM"],
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
    }


def random_tensors(given: Setup) -> dict[str, torch.Tensor]:
    """Tensors by checkpoint name: matrices of variance 1 / fan-in, norms of one."""
    sizes = given.sizes
    width, inner, size = sizes["hidden_size"], sizes["intermediate_size"], sizes["head_dim"]
    queries, keys = sizes["num_attention_heads"] * size, sizes["num_key_value_heads"] * size
    layer = {
        "self_attn.q_proj": (queries, width),
        "self_attn.k_proj": (keys, width),
        "self_attn.v_proj": (keys, width),
        "self_attn.o_proj": (width, queries),
        "mlp.gate_proj": (inner, width),
        "mlp.up_proj": (inner, width),
        "mlp.down_proj": (width, inner),
        "input_layernorm": (width,),
        "post_attention_layernorm": (width,),
    }
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens": (sizes["vocab_size"], width), "model.norm": (width,)}
    for i in range(sizes["num_hidden_layers"]):
        shapes |= {f"model.layers.{i}.{name}": shape for name, shape in layer.items()}
    generator = torch.Generator(given.device).manual_seed(given.seed)
    return {f"{name}.weight": _tensor(given, shape, generator) for name, shape in shapes.items()}


def _tensor(given: Setup, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    if len(shape) == 1:
        return torch.ones(shape, dtype=given.dtype, device=given.device)
    values = torch.randn(shape, dtype=given.dtype, device=given.device, generator=generator)
    return values.mul_(shape[1] ** -0.5)


def engine_model(given: Setup, tensors: dict[str, torch.Tensor]) -> Llama:
    """The engine's model over the weights."""
    return Llama(parse_config(hf_config(given.sizes), LlamaConfig), tensors)


def transformers_model(given: Setup, tensors: dict[str, torch.Tensor]) -> Any:
    """transformers' model over the same weights, with its default attention."""
    from transformers import AutoModelForCausalLM, LlamaConfig

    fields = {name: value for name, value in hf_config(given.sizes).items() if name != "architectures"}
    config = LlamaConfig(**fields, bos_token_id=0, eos_token_id=None, pad_token_id=0)
    # Not `.to(dtype)` afterwards: that would round the rotary frequencies too.
    with torch.device(given.device):
        model = AutoModelForCausalLM.from_config(config, dtype=given.dtype, attn_implementation="sdpa").eval()
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    if unexpected or set(missing) - {"lm_head.weight"}:
        raise RuntimeError(f"weights do not fit transformers' model: missing {missing}, unexpected {unexpected}")
    return model


def weight_bytes(dense: Llama) -> int:
    """Bytes of weights that one decode step reads: all but the embedding, of which it gathers a row per request."""
    read = {tensor.data_ptr(): tensor.nbytes for tensor in dense.weights()}
    if dense.embedding.data_ptr() != dense.lm_head.data_ptr():
        del read[dense.embedding.data_ptr()]
    return sum(read.values())
