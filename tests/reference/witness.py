"""What transformers computes of a checkpoint, in float64 and in the shapes of the reference.

Shapes: `n` tokens, `D` hidden size, `M` key-value heads, `H` head size, `V` vocabulary.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from draftproof.reference.models.target import TargetPass
from tests.checkpoints import (
    LLAMA3_ROPE,
    VOCAB,
    tiny_deepseek_v3,
    tiny_glm4_moe,
    tiny_llama,
    tiny_qwen3,
    tiny_qwen3_5,
    tiny_qwen3_5_moe,
    tiny_qwen3_next,
)

# Rounding of float64 over a few hundred operations, in units of the largest value.
BOUND = 1e-12
TOKENS = tuple((i * i * 7 + 3 * i + 5) % VOCAB for i in range(41))


def _in_shards(whole: Path, path: Path) -> Path:
    AutoModelForCausalLM.from_pretrained(whole).save_pretrained(path, max_shard_size="20KB")
    return path


def _rope(**more: float) -> dict[str, object]:
    return {"rope_type": "default", "rope_theta": 1e6, **more}


DENSE: dict[str, Callable[[Path], Path]] = {
    "llama": lambda path: tiny_llama(path, seed=1),
    "llama-tied": lambda path: tiny_llama(path, seed=2, tie_word_embeddings=True),
    "llama-llama3-rope": lambda path: tiny_llama(path, seed=3, rope_parameters=LLAMA3_ROPE),
    "qwen3": lambda path: tiny_qwen3(path, seed=4),
    "qwen3-tied-theta": lambda path: tiny_qwen3(path, seed=5, tie_word_embeddings=True, rope_parameters=_rope()),
    "llama-sharded": lambda path: _in_shards(tiny_llama(path / "whole", seed=6), path),
}
HYBRID: dict[str, Callable[[Path], Path]] = {
    "qwen3-next": lambda path: tiny_qwen3_next(path, seed=1),
    "qwen3-next-tied": lambda path: tiny_qwen3_next(
        path, seed=2, mtp=False, tie_word_embeddings=True, norm_topk_prob=False, decoder_sparse_step=2
    ),
    "qwen3-next-dense": lambda path: tiny_qwen3_next(path, seed=3, num_experts=0),
    "qwen3.5": lambda path: tiny_qwen3_5(path, seed=4),
    "qwen3.5-moe": lambda path: tiny_qwen3_5_moe(path, seed=5),
}
GROUPED: dict[str, Callable[[Path], Path]] = {
    "glm": lambda path: tiny_glm4_moe(path, seed=1, mtp=3),
    "glm-plain": lambda path: tiny_glm4_moe(
        path,
        seed=2,
        use_qk_norm=False,
        attention_bias=True,
        tie_word_embeddings=True,
        norm_topk_prob=False,
        n_group=1,
        topk_group=1,
        first_k_dense_replace=0,
        rope_parameters=_rope(partial_rotary_factor=1.0),
    ),
    "deepseek": lambda path: tiny_deepseek_v3(path, seed=3, mtp=2),
    "deepseek-plain": lambda path: tiny_deepseek_v3(
        path, seed=4, q_lora_rank=None, rope_interleave=False, attention_bias=True, n_shared_experts=1, n_group=6
    ),
    "deepseek-bias": lambda path: tiny_deepseek_v3(path, seed=5, attention_bias=True, first_k_dense_replace=3),
}
MODELS = DENSE | HYBRID | GROUPED


def load_witness(path: Path) -> PreTrainedModel:
    """The checkpoint as transformers has it, in float64, with plain loops instead of fused kernels."""
    eager = {"attn_implementation": "eager", "experts_implementation": "eager"}
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, **eager).double().eval()


def witnessed(model: PreTrainedModel, tokens: Sequence[int] = TOKENS) -> dict[str, Tensor]:
    """One pass over `tokens`; `state{i}` of the i-th linear layer is the one after the last token."""
    outputs: list[Tensor] = []
    hooks = [layer.register_forward_hook(lambda *found: outputs.append(found[2][0])) for layer in model.model.layers]
    with torch.no_grad():
        out = model(torch.tensor([tokens]), output_hidden_states=True, use_cache=True)
    for hook in hooks:
        hook.remove()
    found = {"hidden": out.hidden_states[-1][0], "before_norm": outputs[-1], "logits": out.logits[0]}
    found |= {f"layer{i}": output for i, output in enumerate(outputs)}
    full = states = 0
    for layer, cached in zip(model.model.layers, out.past_key_values.layers, strict=True):
        if hasattr(layer, "linear_attn"):
            found[f"state{states}"] = _state(cached, model.config.linear_conv_kernel_dim)
            states += 1
        else:
            found[f"k{full}"], found[f"v{full}"] = entries(layer.self_attn, cached)
            full += 1
    return found


def entries(attention: torch.nn.Module, cached: object) -> tuple[Tensor, Tensor]:
    """(k, v), each [n, M, H], of what a layer keeps in transformers' cache, which for DeepSeek-V3 is the latent."""
    keys, values = cached.keys, cached.values  # type: ignore[attr-defined]
    if hasattr(attention, "expand_kv"):
        with torch.no_grad():
            keys, values = attention.expand_kv(keys, values)
    return keys[0].transpose(0, 1), values[0].transpose(0, 1)


def _state(layer: object, width: int) -> Tensor:
    """The last inputs of the convolution, oldest first, then the recurrent state [U, H, E]."""
    window, recurrent = layer.conv_states[0][0], layer.recurrent_states[0][0]  # type: ignore[attr-defined]
    return torch.cat((window[:, window.shape[1] - (width - 1) :].T.flatten(), recurrent.flatten()))


def parts(found: TargetPass) -> dict[str, Tensor]:
    """A pass of the reference in the names of `witnessed`."""
    result = {"hidden": found.hidden, "before_norm": found.layers[-1], "logits": found.logits}
    result |= {f"layer{i}": output for i, output in enumerate(found.layers)}
    for i, (k, v) in enumerate(found.kv):
        result |= {f"k{i}": k, f"v{i}": v}
    return result | {f"state{i}": state[-1] for i, state in enumerate(found.states)}


def worst(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> float:
    """The largest difference, in units of the largest value of the same tensor; names, shapes, dtypes must agree."""
    assert {name: (x.shape, x.dtype) for name, x in ours.items()} == {n: (x.shape, x.dtype) for n, x in theirs.items()}
    return max(float((ours[name] - x).abs().max() / x.abs().max()) for name, x in theirs.items())
