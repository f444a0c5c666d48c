"""The float64 EAGLE-1 head against transformers' own decoder layer without its input layernorm.

Shapes: `n` entries, `D` hidden size, `M` key-value heads, `H` head size, `V` vocabulary.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from draftproof.properties.lib.errors import CheckpointError
from draftproof.properties.weights.eagle import HeadSizes, random_head
from draftproof.reference.models.eagle_head import ReferenceEagleHead, head_sizes
from draftproof.reference.models.registry import load_target
from draftproof.reference.models.target import HeadPass, ReferenceCheckpointTarget
from tests.checkpoints import (
    LLAMA3_ROPE,
    VOCAB,
    tiny_deepseek_v3,
    tiny_glm4_moe,
    tiny_head,
    tiny_llama,
    tiny_qwen3,
    tiny_qwen3_5,
    tiny_qwen3_next,
)
from tests.reference.witness import BOUND, GROUPED, HYBRID, worst
from tests.widen import Widen

TOKENS = tuple((5 * i * i + i + 2) % VOCAB for i in range(23))
PINNED = [0.16639629006385803, -0.09151540696620941, -0.0357334166765213]
TARGETS: dict[str, Callable[[Path], Path]] = {
    "llama": lambda path: tiny_llama(path, seed=1, rope_parameters=LLAMA3_ROPE),
    "qwen3": lambda path: tiny_qwen3(path, seed=2, tie_word_embeddings=True),
    **HYBRID,
    **GROUPED,
}
"""Targets without a dense layer of their own to copy have a Qwen3 layer as a head."""


@dataclass(frozen=True)
class Pair:
    """A target, a head written beside it, and the head's inputs: t_1 .. t_n and h_0 .. h_{n-1}."""

    target: ReferenceCheckpointTarget
    target_path: Path
    head_path: Path
    tokens: tuple[int, ...]
    hidden: Tensor

    def head(self) -> ReferenceEagleHead:
        return ReferenceEagleHead.load(self.target, self.head_path)


of_dense = pytest.mark.parametrize("pair", ["llama", "qwen3"], indirect=True, scope="module")


@pytest.fixture(scope="module", params=TARGETS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp(request.param)
    target_path = TARGETS[request.param](folder / "target")
    target = load_target(target_path)
    hidden = target.forward(TOKENS[:-1]).hidden
    return Pair(target, target_path, tiny_head(folder / "head", target_path, seed=3), TOKENS[1:], hidden)


def witness_model(pair: Pair, tensors: dict[str, Tensor]) -> PreTrainedModel:
    """transformers' model of the head's architecture with the head's one layer, all its norms but one gone."""
    config = AutoConfig.from_pretrained(pair.head_path, attn_implementation="eager")
    model = AutoModelForCausalLM.from_config(config)
    layer = model.model.layers[0]
    layer.input_layernorm, model.model.norm = nn.Identity(), nn.Identity()
    weights = {name.removeprefix("layers.0."): x for name, x in tensors.items() if name.startswith("layers.0.")}
    layer.load_state_dict(weights)
    model.double().lm_head.weight.data = pair.target.lm_head
    return model.eval()


def witnessed(pair: Pair, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The head as SafeAILab's code has it: fc over (embedding, hidden), the layer, the target's lm_head."""
    model = witness_model(pair, tensors)
    embedding = tensors.get("embed_tokens.weight", pair.target.embedding).double()
    inputs = torch.cat((nn.functional.embedding(torch.tensor([pair.tokens]), embedding), pair.hidden[None]), dim=-1)
    with torch.no_grad(), Widen():
        x = nn.functional.linear(inputs, tensors["fc.weight"].double())
        out = model(inputs_embeds=x, output_hidden_states=True)
    cached = out.past_key_values.layers[0]
    k, v = cached.keys[0].transpose(0, 1), cached.values[0].transpose(0, 1)
    return {"g": out.hidden_states[-1][0], "logits": out.logits[0], "k": k, "v": v}


def parts(found: HeadPass) -> dict[str, Tensor]:
    return {"g": found.g, "logits": found.logits, "k": found.kv[0][0], "v": found.kv[0][1]}


def stored(pair: Pair) -> dict[str, Tensor]:
    return load_file(pair.head_path / "model.safetensors")


def rewritten(pair: Pair, directory: Path, tensors: dict[str, Tensor], **fields: Any) -> Path:
    """A copy of the head with other tensors and other config fields."""
    directory.mkdir(exist_ok=True)
    config = json.loads((pair.head_path / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, **fields}))
    save_file(tensors, directory / "model.safetensors")
    return directory


def test_agrees_with_transformers(pair: Pair) -> None:
    assert worst(parts(pair.head().forward(pair.tokens, pair.hidden)), witnessed(pair, stored(pair))) < BOUND


def test_the_witness_notices_every_tensor(pair: Pair) -> None:
    tensors = stored(pair)
    theirs = witnessed(pair, tensors)
    for name, tensor in tensors.items():
        noise = torch.randn(tensor.shape, generator=torch.Generator().manual_seed(0))
        arrays = {**tensors, name: tensor * (1 + 1e-4 * noise)}
        head = ReferenceEagleHead.from_arrays(pair.target, {key: value.numpy() for key, value in arrays.items()})
        assert worst(parts(head.forward(pair.tokens, pair.hidden)), theirs) > 1000 * BOUND, name


def test_the_witness_notices_a_token_or_a_state_of_the_wrong_position(pair: Pair) -> None:
    head, theirs = pair.head(), witnessed(pair, stored(pair))
    wrong_tokens = head.forward(TOKENS[:-1], pair.hidden)
    wrong_hidden = head.forward(pair.tokens, pair.hidden.roll(1, 0))
    before_norm = head.forward(pair.tokens, pair.target.forward(TOKENS[:-1]).layers[-1])
    for wrong in (wrong_tokens, wrong_hidden, before_norm):
        assert worst(parts(wrong), theirs) > 0.1


def test_its_own_embedding_replaces_the_targets(pair: Pair, tmp_path: Path) -> None:
    own = torch.randn(pair.target.embedding.shape, generator=torch.Generator().manual_seed(99))
    tensors = {**stored(pair), "embed_tokens.weight": own}
    head = ReferenceEagleHead.load(pair.target, rewritten(pair, tmp_path, tensors))
    ours = parts(head.forward(pair.tokens, pair.hidden))
    assert worst(ours, witnessed(pair, tensors)) < BOUND
    assert worst(ours, witnessed(pair, stored(pair))) > 0.1


def test_random_equals_the_head_written_to_disk(pair: Pair) -> None:
    random = ReferenceEagleHead.random(pair.target, seed=3).forward(pair.tokens, pair.hidden)
    assert torch.equal(random.logits, pair.head().forward(pair.tokens, pair.hidden).logits)
    other = ReferenceEagleHead.random(pair.target, seed=4).forward(pair.tokens, pair.hidden)
    assert not torch.equal(random.logits, other.logits)


def test_margins_are_clear(pair: Pair) -> None:
    top = pair.head().forward(pair.tokens, pair.hidden).logits.topk(2).values
    assert float((top[:, 0] - top[:, 1]).median()) > 0.3


def test_a_row_depends_on_what_precedes_it_only(pair: Pair) -> None:
    head = pair.head()
    whole, part = head.forward(pair.tokens, pair.hidden), head.forward(pair.tokens[:8], pair.hidden[:8])
    assert float((whole.g[:8] - part.g).abs().max()) < BOUND * float(whole.g.abs().max())


def test_bad_inputs(pair: Pair) -> None:
    with pytest.raises(ValueError, match=r"expected \(3, "):
        pair.head().forward(pair.tokens[:3], pair.hidden)
    with pytest.raises(ValueError, match="token 99 is outside"):
        pair.head().forward((99,), pair.hidden[:1])


@of_dense
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_hidden_layers": 2}, "invalid num_hidden_layers 2 .*expected 1 for an EAGLE head"),
        ({"hidden_size": 36}, "invalid hidden_size 36 .*expected 30 for an EAGLE head"),
        ({"vocab_size": 54}, "invalid vocab_size 54 .*expected 53 for an EAGLE head"),
        ({"architectures": ["GPT2LMHeadModel"]}, "GPT2LMHeadModel.*expected one of LlamaForCausalLM"),
    ],
)
def test_a_head_that_does_not_fit(pair: Pair, tmp_path: Path, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        ReferenceEagleHead.load(pair.target, rewritten(pair, tmp_path, stored(pair), **fields))


def test_a_head_of_the_targets_own_architecture_is_refused_where_that_is_no_dense_one(pair: Pair) -> None:
    if pair.target.config.architecture not in ("LlamaForCausalLM", "Qwen3ForCausalLM"):
        with pytest.raises(CheckpointError, match=r"invalid architectures .*expected one of LlamaForCausalLM"):
            ReferenceEagleHead.load(pair.target, pair.target_path)


@of_dense
def test_a_head_of_the_other_architecture(pair: Pair, tmp_path: Path) -> None:
    other = {"LlamaForCausalLM": "Qwen3ForCausalLM", "Qwen3ForCausalLM": "LlamaForCausalLM"}
    named = [other[pair.target.config.architecture]]
    with pytest.raises(CheckpointError, match=f"{named[0]}.*for an EAGLE head of this target"):
        ReferenceEagleHead.load(pair.target, rewritten(pair, tmp_path, stored(pair), architectures=named))


@pytest.mark.parametrize("name", ["fc.bias", "layers.0.input_layernorm.weight", "layers.1.mlp.up_proj.weight"])
def test_a_tensor_that_the_head_does_not_have(pair: Pair, tmp_path: Path, name: str) -> None:
    with pytest.raises(CheckpointError, match=f"tensor {name} is unknown"):
        ReferenceEagleHead.load(pair.target, rewritten(pair, tmp_path, {**stored(pair), name: torch.ones(30)}))


def test_a_missing_tensor(pair: Pair, tmp_path: Path) -> None:
    tensors = {name: tensor for name, tensor in stored(pair).items() if name != "fc.weight"}
    with pytest.raises(CheckpointError, match=r"tensor fc\.weight is missing"):
        ReferenceEagleHead.load(pair.target, rewritten(pair, tmp_path, tensors))


def test_random_head_is_a_function_of_sizes_and_seed() -> None:
    sizes = HeadSizes(hidden=30, intermediate=44, heads=6, kv_heads=2, head_dim=16, qk_norm=True)
    first, again, other = random_head(sizes, 7), random_head(sizes, 7), random_head(sizes, 8)
    assert {array.dtype for array in first.values()} == {np.dtype(np.float32)}
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not any(np.array_equal(first[name], other[name]) for name in first)
    # Pinned: a case file names a head by its seed alone, so the stream may never change.
    assert [float(x) for x in first["fc.weight"][0, :3]] == PINNED


@of_dense
def test_random_head_has_the_declared_scale(pair: Pair) -> None:
    head = random_head(head_sizes(pair.target), 0)
    assert float(head["fc.weight"].std()) == pytest.approx(1.0 / 60**0.5, rel=0.05)
    norm = head["layers.0.post_attention_layernorm.weight"]
    assert 0.5 <= float(norm.min()) < float(norm.max()) <= 1.5


@pytest.mark.parametrize(
    ("write", "sizes"),
    [
        # Those of the target's own heads, and of its MLP where that is not an expert.
        (tiny_glm4_moe, HeadSizes(hidden=30, intermediate=44, heads=6, kv_heads=2, head_dim=16, qk_norm=True)),
        # Of a value where attention is latent.
        (tiny_deepseek_v3, HeadSizes(hidden=30, intermediate=44, heads=6, kv_heads=6, head_dim=10, qk_norm=True)),
        # Of an expert, where there are only such.
        (tiny_qwen3_next, HeadSizes(hidden=30, intermediate=14, heads=8, kv_heads=2, head_dim=16, qk_norm=True)),
    ],
)
def test_sizes_of_a_made_up_head(write: Callable[[Path], Path], sizes: HeadSizes, tmp_path: Path) -> None:
    assert head_sizes(load_target(write(tmp_path))) == sizes


def test_it_has_a_dense_targets_mlp_and_an_odd_head_cannot_be_turned(tmp_path: Path) -> None:
    assert head_sizes(load_target(tiny_qwen3_5(tmp_path / "qwen3.5"))).intermediate == 46
    target = load_target(tiny_deepseek_v3(tmp_path / "odd", v_head_dim=9))
    with pytest.raises(CheckpointError, match=r"invalid v_head_dim 9 .*an even number for an EAGLE head"):
        ReferenceEagleHead.random(target, 0)


@pytest.mark.parametrize("seed", [-1, 1 << 128])
def test_random_head_refuses_other_seeds(seed: int) -> None:
    sizes = HeadSizes(hidden=4, intermediate=6, heads=2, kv_heads=1, head_dim=2, qk_norm=False)
    with pytest.raises(ValueError, match="invalid seed"):
        random_head(sizes, seed)
