"""The float64 EAGLE-3 head, of both layouts, against the parts of transformers' own decoder layers.

Shapes: `n` entries, `D` width of the head, `N` key-value heads, `H` head size, `V` vocabulary.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import DynamicCache, LlamaConfig, Qwen3Config
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRMSNorm, LlamaRotaryEmbedding
from transformers.models.qwen3.modeling_qwen3 import Qwen3DecoderLayer, Qwen3RMSNorm, Qwen3RotaryEmbedding

from draftproof.properties.formats.checkpoint_config import read_config
from draftproof.properties.formats.checkpoint_config.eagle3 import Eagle3Config
from draftproof.properties.lib.errors import CheckpointError
from draftproof.reference.models.eagle3_head import ReferenceEagle3Head, feature_layers
from draftproof.reference.models.registry import load_target
from draftproof.reference.models.target import ReferenceCheckpointTarget
from tests.checkpoints import EAGLE3_SIZES, LLAMA3_ROPE, SIZES, VOCAB, tiny_eagle3, tiny_llama
from tests.widen import Widen

BOUND = 1e-12
TOKENS = tuple((5 * i * i + i + 2) % VOCAB for i in range(17))
LAYOUTS = ("safeailab", "speculators")
Target = ReferenceCheckpointTarget[Any]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Target:
    return load_target(tiny_llama(tmp_path_factory.mktemp("target"), seed=4, num_hidden_layers=4))


def features_of(target: Target, head: ReferenceEagle3Head) -> Tensor:
    layers = target.forward(TOKENS[:-1]).layers
    return torch.cat([layers[layer] for layer in head.features], dim=1)


def witness_layer(layout: str, tensors: dict[str, Tensor], fields: dict[str, Any]) -> tuple[nn.Module, nn.Module, type]:
    """(the decoder layer with wider projections, its rotary embedding, its kind of norm)."""
    qwen = layout == "speculators"
    config = (Qwen3Config if qwen else LlamaConfig)(**fields, attn_implementation="eager", attention_bias=False)
    kinds = (Qwen3DecoderLayer, Qwen3RotaryEmbedding, Qwen3RMSNorm)
    layer_kind, rotary, norm = kinds if qwen else (LlamaDecoderLayer, LlamaRotaryEmbedding, LlamaRMSNorm)
    layer, prefix, d = layer_kind(config, 0), "layers.0." if qwen else "midlayer.", fields["hidden_size"]
    for name in "qkv":
        old = getattr(layer.self_attn, f"{name}_proj")
        setattr(layer.self_attn, f"{name}_proj", nn.Linear(2 * d, old.out_features, bias=False))
    layer.hidden_norm = norm(d, eps=fields["rms_norm_eps"])
    layer.load_state_dict({name.removeprefix(prefix): x for name, x in tensors.items() if name.startswith(prefix)})
    return layer.double().eval(), rotary(config), norm


def witnessed(target: Target, directory: Path, features: Tensor) -> dict[str, Tensor]:
    """The head as SafeAILab's and speculators' code has it, over features and then two steps of its own states."""
    tensors, config = load_file(directory / "model.safetensors"), json.loads((directory / "config.json").read_text())
    layout = "speculators" if "transformer_layer_config" in config else "safeailab"
    fields = config.get("transformer_layer_config", config)
    fields = {name: fields[name] for name in EAGLE3_SIZES if name in fields}
    layer, rotary, norm = witness_layer(layout, tensors, fields)
    table = tensors.get("embed_tokens.weight", target.embedding).double()
    final = norm(fields["hidden_size"], eps=fields["rms_norm_eps"])
    final.load_state_dict({"weight": tensors["norm.weight"]})
    hidden = nn.functional.linear(features, tensors["fc.weight"].double())
    count, cache = len(hidden), DynamicCache()
    with torch.no_grad(), Widen():
        residual, embeds = hidden[None], nn.functional.embedding(torch.tensor([TOKENS[1:]]), table)
        normed, embeds = layer.hidden_norm(residual), layer.input_layernorm(embeds)
        residual = normed if config.get("norm_before_residual") else residual
        places = torch.arange(count)[None]
        cos, sin = rotary(hidden[None], places)
        mask = torch.full((count, count), -torch.inf, dtype=torch.float64).triu(1)[None, None]
        attended, _ = layer.self_attn(
            hidden_states=torch.cat((embeds, normed), dim=-1),
            position_embeddings=(cos, sin),
            attention_mask=mask,
            past_key_values=cache,
        )
        y = residual + attended
        g = y + layer.mlp(layer.post_attention_layernorm(y))
        logits = final.double()(g) @ tensors["lm_head.weight"].double().T
    kept = cache.layers[0]
    k, v = kept.keys[0].transpose(0, 1), kept.values[0].transpose(0, 1)
    return {"x": hidden, "g": g[0], "logits": logits[0], "k": k, "v": v}


def computed(head: ReferenceEagle3Head, features: Tensor) -> dict[str, Tensor]:
    x = features @ head.fc.T
    found = head.forward(TOKENS[1:], x)
    return {"x": x, "g": found.g, "logits": found.logits, "k": found.kv[0][0], "v": found.kv[0][1]}


def worst(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> float:
    assert {name: x.shape for name, x in ours.items()} == {name: x.shape for name, x in theirs.items()}
    return max(float((ours[name] - x).abs().max() / x.abs().max()) for name, x in theirs.items())


@pytest.mark.parametrize(
    ("layout", "changes"),
    [
        ("safeailab", {}),
        ("safeailab", {"norm_before_residual": True}),
        ("speculators", {}),
        ("speculators", {"norm_before_residual": False}),
        ("speculators", {"hidden_size": SIZES["hidden_size"], "draft_vocab_size": VOCAB}),
    ],
)
def test_agrees_with_transformers(target: Target, tmp_path: Path, layout: str, changes: dict[str, Any]) -> None:
    head = ReferenceEagle3Head.load(target, tiny_eagle3(tmp_path, layout, seed=5, **changes))
    features = features_of(target, head)
    assert worst(computed(head, features), witnessed(target, tmp_path, features)) < BOUND


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_witness_notices_every_tensor(target: Target, tmp_path: Path, layout: str) -> None:
    tiny_eagle3(tmp_path, layout, seed=5)
    tensors = load_file(tmp_path / "model.safetensors")
    head = ReferenceEagle3Head.load(target, tmp_path)
    features = features_of(target, head)
    theirs = witnessed(target, tmp_path, features)
    floats = [name for name, x in tensors.items() if x.is_floating_point()]
    assert len(floats) == (14 if layout == "safeailab" else 15)
    for name in floats:
        save_file({**tensors, name: tensors[name].flip(-1)}, tmp_path / "model.safetensors")
        assert worst(computed(ReferenceEagle3Head.load(target, tmp_path), features), theirs) > 1e-3, name


def test_layers_are_counted_as_each_layout_does(target: Target, tmp_path: Path) -> None:
    assert ReferenceEagle3Head.load(target, tiny_eagle3(tmp_path / "a", "safeailab")).features == (1, 0)
    assert ReferenceEagle3Head.load(target, tiny_eagle3(tmp_path / "b", "speculators")).features == (1, 0)
    for layout in LAYOUTS:
        path = tiny_eagle3(tmp_path / layout, layout, eagle_aux_hidden_state_layer_ids=None)
        config = read_config(path, Eagle3Config)
        assert feature_layers(config, 32, "x") == (1, 15, 28)
        assert feature_layers(config, 4, "x") == (1, 1, 0)
        with pytest.raises(CheckpointError, match="invalid eagle_aux_hidden_state_layer_ids None"):
            feature_layers(config, 3, "x")


def test_its_vocabulary_is_that_of_d2t(target: Target, tmp_path: Path) -> None:
    tensors = load_file(tiny_eagle3(tmp_path, "safeailab") / "model.safetensors")
    ids = ReferenceEagle3Head.load(target, tmp_path).ids
    assert ids is not None
    assert list(ids) == (tensors["d2t"] + torch.arange(31)).tolist()
    assert [token for token, marked in enumerate(tensors["t2d"].tolist()) if marked] == list(ids)


def _twice(tensors: dict[str, Tensor]) -> None:
    tensors["d2t"][0] = tensors["d2t"][1] + 1


def _outside(tensors: dict[str, Tensor]) -> None:
    tensors["d2t"][-1] = VOCAB


def _marks(tensors: dict[str, Tensor]) -> None:
    tensors["t2d"] = ~tensors["t2d"]


BROKEN: dict[str, tuple[Callable[[dict[str, Tensor]], object], str]] = {
    "token twice": (_twice, "tensor d2t leads to tokens twice"),
    "token outside": (_outside, "tensor d2t leads to tokens twice, or outside 0 .. 52"),
    "other marks": (_marks, "tensor t2d marks other tokens"),
    "no map": (lambda tensors: tensors.pop("d2t"), "tensor d2t is missing"),
    "no embedding": (lambda tensors: tensors.pop("embed_tokens.weight"), "embed_tokens.weight is missing"),
    "float map": (lambda tensors: tensors.update(d2t=tensors["d2t"].float()), "tensor d2t has dtype torch.float32"),
    "further layer": (lambda tensors: tensors.update({"layers.1.x": torch.ones(1)}), "tensor layers.1.x is unknown"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_tensors_that_do_not_fit_are_refused(target: Target, tmp_path: Path, name: str) -> None:
    broken, message = BROKEN[name]
    tensors = load_file(tiny_eagle3(tmp_path, "safeailab") / "model.safetensors")
    broken(tensors)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=message):
        ReferenceEagle3Head.load(target, tmp_path)


@pytest.mark.parametrize(
    ("layout", "changes", "message"),
    [
        ("safeailab", {"eagle_aux_hidden_state_layer_ids": [0, 3]}, "invalid eagle_aux_hidden_state_layer_ids"),
        ("speculators", {"eagle_aux_hidden_state_layer_ids": [0, 1]}, "invalid eagle_aux_hidden_state_layer_ids"),
        ("speculators", {"eagle_aux_hidden_state_layer_ids": [4, 1]}, "invalid eagle_aux_hidden_state_layer_ids"),
        ("safeailab", {"target_hidden_size": 31}, "invalid target_hidden_size 31 .*expected 30"),
        ("safeailab", {"target_hidden_size": None}, "invalid hidden_size 28 .*expected 30"),
        ("safeailab", {"vocab_size": 54}, "invalid vocab_size 54 .*expected 53"),
        ("safeailab", {"draft_vocab_size": 54}, "invalid draft_vocab_size 54 .*at most vocab_size, 53"),
        ("speculators", {"norm_before_fc": True}, "invalid norm_before_fc True .*only supported value"),
        ("safeailab", {"rope_parameters": {**LLAMA3_ROPE, "high_freq_factor": 1.0}}, "invalid high_freq_factor"),
    ],
)
def test_configs_that_do_not_fit_are_refused(
    target: Target, tmp_path: Path, layout: str, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(CheckpointError, match=message):
        ReferenceEagle3Head.load(target, tiny_eagle3(tmp_path, layout, **changes))
