"""What transformers computes of a hybrid checkpoint, in float64 and in the shapes of the reference.

Shapes: `n` tokens, `D` hidden size, `M` key-value heads, `H` head size, `V` vocabulary.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel, Qwen3_5ForCausalLM, Qwen3_5MoeForCausalLM, Qwen3NextForCausalLM

from draftproof.reference.models.target import TargetPass
from tests.checkpoints import tiny_qwen3_5, tiny_qwen3_5_moe, tiny_qwen3_next

# Rounding of float64 over a few hundred operations, in units of the largest value.
BOUND = 1e-12
TOKENS = tuple((i * i * 7 + 3 * i + 5) % 53 for i in range(41))

CLASSES: dict[str, type[PreTrainedModel]] = {
    "Qwen3NextForCausalLM": Qwen3NextForCausalLM,
    "Qwen3_5ForCausalLM": Qwen3_5ForCausalLM,
    "Qwen3_5MoeForCausalLM": Qwen3_5MoeForCausalLM,
}
MODELS: dict[str, Callable[[Path], Path]] = {
    "qwen3-next": lambda path: tiny_qwen3_next(path, seed=1),
    "qwen3-next-tied": lambda path: tiny_qwen3_next(
        path, seed=2, mtp=False, tie_word_embeddings=True, norm_topk_prob=False, decoder_sparse_step=2
    ),
    "qwen3-next-dense": lambda path: tiny_qwen3_next(path, seed=3, num_experts=0),
    "qwen3.5": lambda path: tiny_qwen3_5(path, seed=4),
    "qwen3.5-moe": lambda path: tiny_qwen3_5_moe(path, seed=5),
}


def load_witness(path: Path, architecture: str) -> PreTrainedModel:
    """The checkpoint as transformers has it, in float64, with plain loops instead of fused kernels."""
    model = CLASSES[architecture].from_pretrained(
        path, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager"
    )
    return model.double().eval()


def witnessed(model: PreTrainedModel, tokens: Sequence[int]) -> dict[str, Tensor]:
    """One pass over `tokens`; `state{i}` of the i-th linear layer is the one after the last token."""
    before: list[Tensor] = []
    hook = model.model.norm.register_forward_pre_hook(lambda _, inputs: before.append(inputs[0][0]))
    with torch.no_grad():
        out = model(torch.tensor([tokens]), output_hidden_states=True, use_cache=True)
    hook.remove()
    found = {"hidden": out.hidden_states[-1][0], "before_norm": before[0], "logits": out.logits[0]}
    found |= {f"layer{i}": output[0] for i, output in enumerate(out.hidden_states[1:-1])}
    types = model.config.layer_types
    layers = list(zip(types, out.past_key_values.layers, strict=True))
    for i, layer in enumerate(layer for kind, layer in layers if kind == "full_attention"):
        found |= {f"k{i}": layer.keys[0].transpose(0, 1), f"v{i}": layer.values[0].transpose(0, 1)}
    for i, layer in enumerate(layer for kind, layer in layers if kind == "linear_attention"):
        found[f"state{i}"] = _state(layer, model.config.linear_conv_kernel_dim)
    return found


def _state(layer: object, width: int) -> Tensor:
    """The last inputs of the convolution, oldest first, then the recurrent state [U, H, E]."""
    window, recurrent = layer.conv_states[0][0], layer.recurrent_states[0][0]  # type: ignore[attr-defined]
    return torch.cat((window[:, window.shape[1] - (width - 1) :].T.flatten(), recurrent.flatten()))


def parts(found: TargetPass) -> dict[str, Tensor]:
    """A pass of the reference in the names of `witnessed`."""
    result = {"hidden": found.hidden, "before_norm": found.layers[-1], "logits": found.logits}
    result |= {f"layer{i}": output for i, output in enumerate(found.layers[:-1])}
    for i, (k, v) in enumerate(found.kv):
        result |= {f"k{i}": k, f"v{i}": v}
    return result | {f"state{i}": state[-1] for i, state in enumerate(found.states)}


def worst(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> float:
    """The largest difference, in units of the largest value of the same tensor; names, shapes, dtypes must agree."""
    assert {name: (x.shape, x.dtype) for name, x in ours.items()} == {n: (x.shape, x.dtype) for n, x in theirs.items()}
    return max(float((ours[name] - x).abs().max() / x.abs().max()) for name, x in theirs.items())
