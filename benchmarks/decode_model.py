"""The model that decoding is timed on: a Llama of about 1B parameters with random weights, made on the device.

`D` hidden width, `N` heads, `H` head size, `V` vocabulary. Sizes are those of Llama 3.2 1B, the lm_head tied like its.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from shapes import llama_config, sizes_of

from draftproof.engine.models.llama import Llama
from draftproof.properties.values.checkpoint_config import parse_config
from draftproof.properties.values.checkpoint_config.llama import LlamaConfig

LLAMA_1B = sizes_of(128256, 2048, 8192, 16, 32, 8, 64)
TINY = sizes_of(256, 64, 128, 2, 4, 2, 16)


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
    """Return the H200 run, or one that a CPU does in seconds."""
    if tiny:
        return Setup(TINY, "cpu", torch.float32, batches or (1, 3), 8, 6, 2, 1 << 22, seed)
    return Setup(LLAMA_1B, "cuda", torch.bfloat16, batches or (1, 8, 64), 128, 128, 5, 1 << 32, seed)


def engine_model(given: Setup, tensors: dict[str, torch.Tensor]) -> Llama:
    """Return the engine's model over the weights."""
    return Llama(parse_config(llama_config(given.sizes), LlamaConfig), tensors)


def transformers_model(given: Setup, tensors: dict[str, torch.Tensor]) -> Any:
    """Return transformers' model over the same weights, with its default attention."""
    from transformers import AutoModelForCausalLM, LlamaConfig

    fields = {name: value for name, value in llama_config(given.sizes).items() if name != "architectures"}
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
