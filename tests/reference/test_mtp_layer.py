"""The MTP layers of GLM-4-MoE and DeepSeek-V3 against transformers' `MtpModel`, and its generation with them.

transformers counts the positions of entries from 1 + layer where we count from 0, a shift that RoPE cannot see in what
attention computes; of the keys themselves the comparison takes those that transformers computes at our positions.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import MtpCache
from transformers.modeling_layers import MtpModel

from draftproof.properties.lib.errors import CheckpointError
from draftproof.reference.models.mtp_layer import MtpLayer
from draftproof.reference.models.registry import load_target
from draftproof.reference.models.target import HeadPass, ReferenceCheckpointTarget
from tests.checkpoints import add_tensors, tiny_glm4_moe
from tests.reference.witness import BOUND, GROUPED, TOKENS, entries, load_witness, worst
from tests.widen import Widen

LAYERS = {"glm": 3, "glm-plain": 1, "deepseek": 2, "deepseek-plain": 1, "deepseek-bias": 1}
PROMPT = TOKENS[:17]


@dataclass(frozen=True)
class Pair:
    """A target and its MTP layers, read both ways."""

    path: Path
    target: ReferenceCheckpointTarget
    layers: tuple[MtpLayer, ...]
    model: PreTrainedModel
    mtp: MtpModel


@pytest.fixture(scope="module", params=LAYERS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    path = GROUPED[request.param](tmp_path_factory.mktemp(request.param))
    target = load_target(path)
    model = load_witness(path)
    register_mtp(model)
    # Read in float32, since a checkpoint's dtype is what transformers reads it in.
    mtp = MtpModel.from_pretrained(model).double().eval()
    layers = target.mtp_layers(path)
    assert len(layers) == len(mtp.layers) == LAYERS[request.param]
    return Pair(path, target, layers, model, mtp)


def register_mtp(model: PreTrainedModel) -> None:
    """Let transformers take the layers after the last for MTP layers; its classes name those of published models."""
    first = model.config.num_hidden_layers
    model._keys_to_ignore_on_load_unexpected = [
        rf"model\.layers\.{i}\." for i in range(first, first + model.config.num_mtp_layers)
    ]


def states(pair: Pair) -> Tensor:
    """h [n, D] of PROMPT but its last token."""
    return pair.target.forward(PROMPT[:-1]).hidden


def proposed(pair: Pair) -> tuple[list[int], list[HeadPass]]:
    """The chain's proposals after PROMPT, whose last token is pending, and the passes of its layers."""
    ids, hidden, passes, tokens = PROMPT[1:], states(pair), list[HeadPass](), list[int]()
    for layer in pair.layers:
        passes.append(layer.forward(ids, hidden))
        tokens.append(int(passes[-1].logits[-1].argmax()))
        ids, hidden = (*ids[1:], tokens[-1]), passes[-1].g
    return tokens, passes


def witnessed(pair: Pair, first_position: int) -> tuple[list[int], list[dict[str, Tensor]]]:
    """The same from transformers, entry 0 of layer 0 at `first_position`."""
    outputs: list[Tensor] = []
    hooks = [layer.register_forward_hook(lambda *found: outputs.append(found[2][0])) for layer in pair.mtp.layers]
    cache = MtpCache(config=pair.model.config.get_mtp_config())
    positions = torch.arange(len(PROMPT) - 1)[None] + first_position
    hidden = states(pair)[None]
    with Widen(), torch.no_grad():
        tokens, logits, _ = pair.mtp(torch.tensor([PROMPT[1:]]), hidden, None, positions, cache)
    for hook in hooks:
        hook.remove()
    found = []
    for i, (layer, output) in enumerate(zip(pair.mtp.layers, outputs, strict=True)):
        k, v = entries(layer.mtp_block.self_attn, cache.layers[i])
        found.append({"g": output, "logits": logits[0, i], "k": k, "v": v})
    return tokens[0].tolist(), found


def parts(found: HeadPass) -> dict[str, Tensor]:
    return {"g": found.g, "logits": found.logits[-1], "k": found.kv[0][0], "v": found.kv[0][1]}


def test_agrees_with_transformers_in_float64(pair: Pair) -> None:
    """Proposals, and of every layer the states handed on, the logits, values, and keys at our positions."""
    tokens, passes = proposed(pair)
    for first in (0, 1):
        found, theirs = witnessed(pair, first)
        assert found == tokens
        for j, (ours, expected) in enumerate(zip(map(parts, passes), theirs, strict=True)):
            if first + j:
                # Entry i of its layer j is at position first + i + j.
                assert worst({"k": ours.pop("k")}, {"k": expected.pop("k")}) > 1e-3
            assert worst(ours, expected) < BOUND


def test_keys_of_every_layer(pair: Pair) -> None:
    """A layer alone, with the positions and hidden states that we mean."""
    ids, hidden = PROMPT[1:], states(pair)
    positions = torch.arange(len(ids))[None]
    for j, layer in enumerate(pair.layers):
        cache = MtpCache(config=pair.model.config.get_mtp_config())
        with Widen(), torch.no_grad():
            g = pair.mtp.forward_layer(j, hidden[None], positions, cache, input_ids=torch.tensor([ids]))[0]
        k, v = entries(pair.mtp.layers[j].mtp_block.self_attn, cache.layers[j])
        found = layer.forward(ids, hidden)
        assert worst({"g": found.g, "k": found.kv[0][0], "v": found.kv[0][1]}, {"g": g, "k": k, "v": v}) < BOUND


def test_the_witness_notices_every_tensor(pair: Pair) -> None:
    _, theirs = witnessed(pair, 0)
    layer = pair.layers[0]
    unnoticed = []
    for name, tensor in layer.tensors.items():
        noise = torch.randn(tensor.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        changed = {**layer.tensors, name: tensor + (1.0 if name.endswith("correction_bias") else 1e-6) * noise}
        if worst(parts(MtpLayer(pair.target, changed).forward(PROMPT[1:], states(pair))), theirs[0]) < 1000 * BOUND:
            unnoticed.append(name)
    assert all(".experts." in name for name in unnoticed)
    assert len(unnoticed) < 0.3 * len(layer.tensors)


def test_the_witness_notices_inputs(pair: Pair) -> None:
    _, theirs = witnessed(pair, 0)
    layer, hidden = pair.layers[0], states(pair)
    before_norm = pair.target.forward(PROMPT[:-1]).layers[-1]
    swapped = {**layer.tensors, "eh_proj.weight": layer.tensors["eh_proj.weight"].roll(hidden.shape[1], dims=1)}
    for wrong in (
        layer.forward(PROMPT[:-1], hidden),
        layer.forward(PROMPT[1:], hidden.roll(1, 0)),
        layer.forward(PROMPT[1:], before_norm),
        MtpLayer(pair.target, swapped).forward(PROMPT[1:], hidden),
    ):
        assert worst(parts(wrong), theirs[0]) > 1e-2


def test_generation_with_mtp_equals_plain(pair: Pair) -> None:
    """transformers drafts with these very layers (it reads them from the directory) and emits the greedy tokens."""
    model, prompt, count = pair.model, TOKENS[:7], 10
    model.generation_config.eos_token_id = None
    arguments = {"max_new_tokens": count, "do_sample": False, "pad_token_id": 0}
    tokens = prompt
    for _ in range(count):
        tokens = (*tokens, int(pair.target.forward(tokens).logits[-1].argmax()))
    # Drafting layers are read in the dtype that the config names, beside a float64 model.
    model.config.dtype = torch.float64
    with Widen(), torch.no_grad():
        plain = model.generate(torch.tensor([prompt]), **arguments)
        drafted = model.generate(torch.tensor([prompt]), use_mtp=True, **arguments)
    assert tuple(drafted[0].tolist()) == tuple(plain[0].tolist()) == tokens


def test_margins_are_clear(pair: Pair) -> None:
    for found in proposed(pair)[1]:
        top = found.logits.topk(2).values
        assert float((top[:, 0] - top[:, 1]).median()) > 0.3


def test_bad_inputs(pair: Pair) -> None:
    hidden = states(pair)
    with pytest.raises(ValueError, match=r"expected \(3, "):
        pair.layers[0].forward(PROMPT[:3], hidden)
    with pytest.raises(ValueError, match="token 99 is outside"):
        pair.layers[0].forward((99,), hidden[:1])


def test_no_mtp_layer(tmp_path: Path) -> None:
    path = tiny_glm4_moe(tmp_path, mtp=0)
    with pytest.raises(CheckpointError, match=r"invalid num_nextn_predict_layers 0 .*expected at least 1"):
        load_target(path).mtp_layers(path)


def test_copies_of_embedding_and_head_must_be_copies(tmp_path: Path) -> None:
    path = tiny_glm4_moe(tmp_path)
    stored = load_file(path / "model.safetensors")
    copies = {
        "model.layers.3.embed_tokens.weight": stored["model.embed_tokens.weight"],
        "model.layers.3.shared_head.head.weight": stored["lm_head.weight"],
    }
    add_tensors(path, copies)
    target = load_target(path)
    assert target.mtp_layers(path)[0].forward(PROMPT[1:3], target.forward(PROMPT[:2]).hidden).g.shape == (2, 30)
    for name, array in copies.items():
        add_tensors(path, {**copies, name: array + 1})
        with pytest.raises(CheckpointError, match=rf"tensor {re.escape(name)} in .*expected none, or the same"):
            load_target(path).mtp_layers(path)


def test_a_missing_and_an_unknown_tensor_are_named(tmp_path: Path) -> None:
    path = tiny_glm4_moe(tmp_path, num_hidden_layers=2)
    add_tensors(path, {"model.layers.2.odd": load_file(path / "model.safetensors")["lm_head.weight"]})
    target = load_target(path)
    with pytest.raises(CheckpointError, match=r"tensor model\.layers\.2\.odd is unknown"):
        target.mtp_layers(path)
    config = path / "config.json"
    fields = json.loads(config.read_text())
    config.write_text(json.dumps(fields | {"num_nextn_predict_layers": 2}))
    with pytest.raises(CheckpointError, match=r"tensor model\.layers\.3\.eh_proj\.weight is missing"):
        load_target(path).mtp_layers(path)
    config.write_text(json.dumps(fields | {"num_nextn_predict_layers": 0}))
    with pytest.raises(CheckpointError, match=r"tensor model\.layers\.2\.eh_proj\.weight is unknown"):
        load_target(path)
