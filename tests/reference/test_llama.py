"""The float64 dense reference against transformers, run in float64 without its internal float32 casts.

Shapes: `n` tokens, `D` hidden size, `M` key-value heads, `H` head size, `V` vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from draftproof.reference.models.registry import load_target
from draftproof.reference.models.target import ReferenceCheckpointTarget
from tests.checkpoints import LLAMA3_ROPE, SIZES, VOCAB, tiny_llama, tiny_qwen3, write
from tests.widen import Widen

# Rounding of float64 over a few hundred operations, in units of the largest value.
BOUND = 1e-12
TOKENS = tuple((i * i * 7 + 3 * i + 5) % VOCAB for i in range(41))


def sharded_llama(directory: Path) -> Path:
    return write("LlamaForCausalLM", SIZES, directory, seed=6, max_shard_size="20KB")


MODELS: dict[str, Callable[[Path], Path]] = {
    "llama": lambda path: tiny_llama(path, seed=1),
    "llama-tied": lambda path: tiny_llama(path, seed=2, tie_word_embeddings=True),
    "llama-llama3-rope": lambda path: tiny_llama(path, seed=3, rope_parameters=LLAMA3_ROPE),
    "qwen3": lambda path: tiny_qwen3(path, seed=4),
    "qwen3-tied-theta": lambda path: tiny_qwen3(
        path, seed=5, tie_word_embeddings=True, rope_parameters={"rope_type": "default", "rope_theta": 1e6}
    ),
    "llama-sharded": sharded_llama,
}


@dataclass(frozen=True)
class Tiny:
    """A checkpoint, read both ways."""

    path: Path
    checkpoint: ReferenceCheckpointTarget
    witness: PreTrainedModel


@pytest.fixture(scope="module", params=MODELS)
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    path = MODELS[request.param](tmp_path_factory.mktemp(request.param))
    return Tiny(path, load_target(path), load_witness(path))


def load_witness(path: Path) -> PreTrainedModel:
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager")
    return model.double().eval()


def witnessed(model: PreTrainedModel) -> dict[str, Tensor]:
    """One pass of transformers over TOKENS, in the shapes of Pass."""
    before: list[Tensor] = []
    hook = model.model.norm.register_forward_pre_hook(lambda _, inputs: before.append(inputs[0][0]))
    with torch.no_grad():
        out = model(torch.tensor([TOKENS]), output_hidden_states=True)
    hook.remove()
    found = {"hidden": out.hidden_states[-1][0], "before_norm": before[0], "logits": out.logits[0]}
    found |= {f"layer{i}": output[0] for i, output in enumerate(out.hidden_states[1:-1])}
    for i, layer in enumerate(out.past_key_values.layers):
        found |= {f"k{i}": layer.keys[0].transpose(0, 1), f"v{i}": layer.values[0].transpose(0, 1)}
    return found


def computed(checkpoint: ReferenceCheckpointTarget) -> dict[str, Tensor]:
    found = checkpoint.forward(TOKENS)
    result = {"hidden": found.hidden, "before_norm": found.layers[-1], "logits": found.logits}
    result |= {f"layer{i}": output for i, output in enumerate(found.layers[:-1])}
    for i, (k, v) in enumerate(found.kv):
        result |= {f"k{i}": k, f"v{i}": v}
    return result


def worst(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> float:
    """The largest difference, in units of the largest value of the same tensor; names, shapes, dtypes must agree."""
    assert {name: (x.shape, x.dtype) for name, x in ours.items()} == {n: (x.shape, x.dtype) for n, x in theirs.items()}
    return max(float((ours[name] - x).abs().max() / x.abs().max()) for name, x in theirs.items())


def test_agrees_with_transformers_in_float64(tiny: Tiny) -> None:
    with Widen() as widen:
        theirs = witnessed(tiny.witness)
    # One cast for each norm and softmax at the least: the mode really reached inside every layer.
    assert widen.rewrites >= 3 * tiny.checkpoint.config.num_hidden_layers + 1
    named = {"hidden", "before_norm", "logits", "layer0", "layer1"}
    assert set(theirs) == named | {"k0", "v0", "k1", "v1", "k2", "v2"}
    assert worst(computed(tiny.checkpoint), theirs) < BOUND


def test_transformers_not_widened_is_a_float32_model(tiny: Tiny) -> None:
    assert 1e-8 < worst(computed(tiny.checkpoint), witnessed(tiny.witness)) < 1e-5


def test_the_witness_notices_every_tensor(tiny: Tiny) -> None:
    with Widen():
        theirs = witnessed(tiny.witness)
    unnoticed = []
    for name, tensor in tiny.checkpoint.tensors.items():
        noise = torch.randn(tensor.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        changed = {**tiny.checkpoint.tensors, name: tensor * (1 + 1e-6 * noise)}
        if worst(computed(type(tiny.checkpoint)(tiny.checkpoint.config, changed)), theirs) < 1000 * BOUND:
            unnoticed.append(name)
    assert not unnoticed


def test_greedy_continuation_equals_generate(tiny: Tiny) -> None:
    prompt, count = TOKENS[:7], 24
    model = tiny.witness
    model.generation_config.eos_token_id = None
    with Widen(), torch.no_grad():
        theirs = model.generate(torch.tensor([prompt]), max_new_tokens=count, do_sample=False, pad_token_id=0)
    dense, tokens = tiny.checkpoint, prompt
    for _ in range(count):
        logits = dense.forward(tokens).logits[-1]
        tokens = (*tokens, int((logits == logits.max()).nonzero()[0]))
    assert tokens == tuple(theirs[0].tolist())


def test_margins_are_clear(tiny: Tiny) -> None:
    top = computed(tiny.checkpoint)["logits"].topk(2).values
    assert float((top[:, 0] - top[:, 1]).median()) > 0.3


def test_a_row_depends_on_what_precedes_it_only(tiny: Tiny) -> None:
    dense = tiny.checkpoint
    whole, part = dense.forward(TOKENS), dense.forward(list(TOKENS[:9]))
    other = dense.forward((*TOKENS[:9], (TOKENS[9] + 1) % VOCAB))
    pairs = [(whole.hidden, part.hidden), (whole.layers[-1], part.layers[-1]), (whole.logits, part.logits)]
    for long, short in pairs:
        assert float((long[:9] - short).abs().max()) < BOUND * float(long.abs().max())
    assert float((whole.hidden[9] - other.hidden[9]).abs().max()) > 1e-3


@pytest.mark.parametrize(
    ("tokens", "message"),
    [((), "at least one token"), ((1, VOCAB), f"token {VOCAB} is outside"), ((-1,), "token -1 is outside")],
)
def test_bad_tokens(tiny: Tiny, tokens: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tiny.checkpoint.forward(tokens)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_checkpoints_are_widened_exactly(tmp_path: Path, dtype: torch.dtype) -> None:
    wide = load_witness(tiny_llama(tmp_path / "wide"))
    wide.to(dtype).save_pretrained(tmp_path / "narrow")
    stored: dict[str, Any] = dict(wide.state_dict())
    for name, tensor in load_target(tmp_path / "narrow").tensors.items():
        assert tensor.dtype == torch.float64
        assert torch.equal(tensor, stored[name].double()), name
