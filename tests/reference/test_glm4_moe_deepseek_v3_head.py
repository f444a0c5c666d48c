"""An EAGLE-1 head on GLM-4-MoE and DeepSeek-V3: a Qwen3 layer, against transformers' Qwen3 model with one layer."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from transformers import PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from draftproof.errors import CheckpointError
from draftproof.reference.models.eagle_head import ReferenceEagleHead, head_sizes
from draftproof.reference.models.registry import load_target
from draftproof.reference.models.target import HeadPass, ReferenceCheckpointTarget
from tests.checkpoints import tiny_deepseek_v3, tiny_glm4_moe, tiny_head
from tests.reference.witness import BOUND, GROUPED, TOKENS, worst
from tests.widen import Widen


@pytest.fixture(scope="module", params=GROUPED)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return GROUPED[request.param](tmp_path_factory.mktemp(request.param))


def witness(target: ReferenceCheckpointTarget, directory: Path) -> PreTrainedModel:
    """transformers' Qwen3 with the head's one layer and no norms but one."""
    config = Qwen3Config(**json.loads((directory / "config.json").read_text()))
    config._attn_implementation = "eager"
    model = Qwen3ForCausalLM(config)
    layer = model.model.layers[0]
    layer.input_layernorm, model.model.norm = nn.Identity(), nn.Identity()
    stored = load_file(directory / "model.safetensors")
    layer.load_state_dict({name.removeprefix("layers.0."): x for name, x in stored.items() if "layers" in name})
    model.double()
    model.lm_head.weight.data = target.lm_head
    return model.eval()


def parts(found: HeadPass) -> dict[str, torch.Tensor]:
    return {"g": found.g, "logits": found.logits, "k": found.kv[0][0], "v": found.kv[0][1]}


def test_agrees_with_transformers(path: Path, tmp_path: Path) -> None:
    target = load_target(path)
    directory = tiny_head(tmp_path, path, seed=3)
    model = witness(target, directory)
    hidden = target.forward(TOKENS[:16]).hidden
    joined = torch.cat((target.embedding[list(TOKENS[1:17])], hidden), dim=-1)
    fc = load_file(directory / "model.safetensors")["fc.weight"].double()
    with torch.no_grad(), Widen():
        out = model(inputs_embeds=(joined @ fc.T)[None], output_hidden_states=True, use_cache=True)
    cached = out.past_key_values.layers[0]
    theirs = {"g": out.hidden_states[-1][0], "logits": out.logits[0]}
    theirs |= {"k": cached.keys[0].transpose(0, 1), "v": cached.values[0].transpose(0, 1)}
    found = ReferenceEagleHead.load(target, directory).forward(TOKENS[1:17], hidden)
    assert worst(parts(found), theirs) < BOUND
    assert torch.equal(ReferenceEagleHead.random(target, seed=3).forward(TOKENS[1:17], hidden).logits, found.logits)


def test_sizes(tmp_path: Path) -> None:
    """Those of the target's own heads and of its MLP, not of an expert; of a value where attention is latent."""
    glm = head_sizes(load_target(tiny_glm4_moe(tmp_path / "glm")))
    assert (glm.hidden, glm.intermediate, glm.heads, glm.kv_heads, glm.head_dim, glm.qk_norm) == (
        30,
        44,
        6,
        2,
        16,
        True,
    )
    deepseek = head_sizes(load_target(tiny_deepseek_v3(tmp_path / "deepseek")))
    assert (deepseek.intermediate, deepseek.heads, deepseek.kv_heads, deepseek.head_dim) == (44, 6, 6, 10)


def test_an_odd_head_cannot_be_turned(tmp_path: Path) -> None:
    target = load_target(tiny_deepseek_v3(tmp_path, v_head_dim=9))
    with pytest.raises(CheckpointError, match=r"invalid v_head_dim 9 .*an even number for an EAGLE head"):
        ReferenceEagleHead.random(target, 0)
