"""What transformers computes of a GLM-4-MoE or DeepSeek-V3 checkpoint, in float64 and in the shapes of the reference.

Shapes: `n` tokens, `D` hidden size, `M` key-value heads, `H` head size, `V` vocabulary.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor
from transformers import DeepseekV3ForCausalLM, Glm4MoeForCausalLM, PreTrainedModel

from draftproof.reference.models.target import TargetPass
from tests.checkpoints import tiny_deepseek_v3, tiny_glm4_moe

# Rounding of float64 over a few hundred operations, in units of the largest value.
BOUND = 1e-12
TOKENS = tuple((i * i * 7 + 3 * i + 5) % 53 for i in range(41))

CLASSES: dict[str, type[PreTrainedModel]] = {
    "Glm4MoeForCausalLM": Glm4MoeForCausalLM,
    "DeepseekV3ForCausalLM": DeepseekV3ForCausalLM,
}
MODELS: dict[str, Callable[[Path], Path]] = {
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
        rope_parameters={"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 1.0},
    ),
    "deepseek": lambda path: tiny_deepseek_v3(path, seed=3, mtp=2),
    "deepseek-plain": lambda path: tiny_deepseek_v3(
        path, seed=4, q_lora_rank=None, rope_interleave=False, attention_bias=True, n_shared_experts=1, n_group=6
    ),
    "deepseek-bias": lambda path: tiny_deepseek_v3(path, seed=5, attention_bias=True, first_k_dense_replace=3),
}


def load_witness(path: Path, architecture: str) -> PreTrainedModel:
    """The checkpoint as transformers has it, in float64, with plain loops instead of fused kernels."""
    model = CLASSES[architecture].from_pretrained(
        path, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager"
    )
    return model.double().eval()


def witnessed(model: PreTrainedModel, tokens: Sequence[int]) -> dict[str, Tensor]:
    """One pass over `tokens`."""
    outputs: list[Tensor] = []
    hooks = [layer.register_forward_hook(lambda *found: outputs.append(found[2][0])) for layer in model.model.layers]
    with torch.no_grad():
        out = model(torch.tensor([tokens]), output_hidden_states=True, use_cache=True)
    for hook in hooks:
        hook.remove()
    found = {"hidden": out.hidden_states[-1][0], "before_norm": outputs[-1], "logits": out.logits[0]}
    for i, (layer, cached) in enumerate(zip(model.model.layers, out.past_key_values.layers, strict=True)):
        k, v = entries(layer.self_attn, cached)
        found |= {f"k{i}": k, f"v{i}": v, f"layer{i}": outputs[i]}
    return found


def entries(attention: torch.nn.Module, cached: object) -> tuple[Tensor, Tensor]:
    """(k, v), each [n, M, H], of what a layer keeps in transformers' cache, which for DeepSeek-V3 is the latent."""
    keys, values = cached.keys, cached.values  # type: ignore[attr-defined]
    if hasattr(attention, "expand_kv"):
        with torch.no_grad():
            keys, values = attention.expand_kv(keys, values)
    return keys[0].transpose(0, 1), values[0].transpose(0, 1)


def parts(found: TargetPass) -> dict[str, Tensor]:
    """A pass of the reference in the names of `witnessed`."""
    result = {"hidden": found.hidden, "before_norm": found.layers[-1], "logits": found.logits}
    for i, ((k, v), output) in enumerate(zip(found.kv, found.layers, strict=True)):
        result |= {f"k{i}": k, f"v{i}": v, f"layer{i}": output}
    return result
