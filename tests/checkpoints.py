"""Tiny random checkpoints, written by transformers, for tests of everything that reads real architectures.

All sizes are pairwise distinct, since many bugs hide behind equal ones, and the weights are large enough for clear
margins between the best and the second token.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.numpy import save_file
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from draftproof.properties.values.heads import HeadSizes, random_head

VOCAB = 53
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 30,
    "intermediate_size": 44,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "bos_token_id": None,
    "eos_token_id": 1,
    "pad_token_id": None,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    "tie_word_embeddings": False,
}
# Wavelengths of the eight pairs run from 6 to 2e4 tokens: with these limits some are short, some long, some between.
LLAMA3_ROPE: dict[str, Any] = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
}


def tiny_llama(directory: Path, seed: int = 0, **changes: Any) -> Path:
    """Write a random LlamaForCausalLM; `changes` are LlamaConfig fields. Returns `directory`."""
    return write(LlamaForCausalLM(LlamaConfig(**{**SIZES, **changes})), directory, seed)


def tiny_qwen3(directory: Path, seed: int = 0, **changes: Any) -> Path:
    """Write a random Qwen3ForCausalLM; `changes` are Qwen3Config fields. Returns `directory`."""
    return write(Qwen3ForCausalLM(Qwen3Config(**{**SIZES, **changes})), directory, seed)


def write(model: PreTrainedModel, directory: Path, seed: int, max_shard_size: str = "1GB") -> Path:
    """Randomize `model` and write it in float32; a small `max_shard_size` gives several files and an index."""
    randomize(model, seed)
    model.save_pretrained(directory, max_shard_size=max_shard_size)
    return directory


def randomize(model: PreTrainedModel, seed: int) -> None:
    """Give every weight a scale that keeps states near unit size and the logits several units apart.

    Matrices: deviation 1.5 / sqrt(fan-in); embeddings 1; `lm_head` 5 / sqrt(hidden); norms 1 plus 0.3 of noise.
    """
    source = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=source)
            weight.copy_(1.0 + 0.3 * noise if weight.dim() == 1 else noise * _deviation(name, weight))


def _deviation(name: str, weight: torch.Tensor) -> float:
    if "embed_tokens" in name:
        return 1.0
    gain = 5.0 if "lm_head" in name else 1.5
    return gain / weight.shape[1] ** 0.5


def tiny_head(directory: Path, target: Path, seed: int = 0) -> Path:
    """Write the random EAGLE head of `random_head` for the checkpoint in `target`. Returns `directory`."""

    config = json.loads((target / "config.json").read_text())
    sizes = HeadSizes(
        hidden=config["hidden_size"],
        intermediate=config["intermediate_size"],
        heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"],
        head_dim=config["head_dim"],
        qk_norm=config["architectures"] == ["Qwen3ForCausalLM"],
    )
    directory.mkdir(parents=True, exist_ok=True)
    fields = {name: value for name, value in config.items() if name != "layer_types"}
    (directory / "config.json").write_text(json.dumps({**fields, "num_hidden_layers": 1}))
    save_file(random_head(sizes, seed), directory / "model.safetensors")
    return directory
