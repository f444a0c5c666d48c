"""The MTP layer of hybrid checkpoints against modules of transformers, which does not run it.

The witness is its model of the target's architecture with one layer, whose weights are those of `mtp.*`.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from draftproof.properties.lib.errors import CheckpointError
from draftproof.reference.models.mtp_layer import MtpLayer
from draftproof.reference.models.registry import load_target
from draftproof.reference.models.target import HeadPass, ReferenceCheckpointTarget
from tests.checkpoints import tiny_qwen3_5
from tests.reference.witness import BOUND, HYBRID, TOKENS, load_witness, worst
from tests.widen import Widen

WITH_MTP = [name for name in HYBRID if name != "qwen3-next-tied"]


@dataclass(frozen=True)
class Pair:
    """A target that has an MTP layer, and a head's inputs."""

    path: Path
    target: ReferenceCheckpointTarget
    tokens: tuple[int, ...]
    hidden: Tensor


@pytest.fixture(scope="module", params=WITH_MTP)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    path = HYBRID[request.param](tmp_path_factory.mktemp(request.param))
    target = load_target(path)
    return Pair(path, target, TOKENS[1:17], target.forward(TOKENS[:16]).hidden)


@pytest.fixture(scope="module")
def mtp_witness(pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> PreTrainedModel:
    """The architecture's own model whose only layer and final norm are those of `mtp.*`."""
    directory = tmp_path_factory.mktemp("witness")
    config = json.loads((pair.path / "config.json").read_text())
    layer = {"num_hidden_layers": 1, "layer_types": ["full_attention"], "mlp_only_layers": []}
    if "mlp_only_layers" not in config:
        del layer["mlp_only_layers"]
    (directory / "config.json").write_text(json.dumps({**config, **layer}))
    stored = load_file(pair.path / "model.safetensors")
    kept = {name: stored[name] for name in ("model.embed_tokens.weight", "lm_head.weight")}
    moved = {
        name.replace("mtp.", "model.", 1): tensor
        for name, tensor in stored.items()
        if name.startswith(("mtp.layers.", "mtp.norm."))
    }
    save_file({**kept, **moved}, directory / "model.safetensors", metadata={"format": "pt"})
    return load_witness(directory)


def witnessed_mtp(pair: Pair, model: PreTrainedModel, tokens: Sequence[int], hidden: Tensor) -> dict[str, Tensor]:
    """fc over the normed embedding and the normed state, the layer, its norm, the target's lm_head."""
    stored = {name: tensor.double() for name, tensor in load_file(pair.path / "model.safetensors").items()}
    norm = type(model.model.norm)
    joined = []
    for name, x in (("embedding", model.model.embed_tokens(torch.tensor([tokens]))), ("hidden", hidden[None])):
        module = norm(hidden.shape[1], eps=model.config.rms_norm_eps).double()
        module.weight.data = stored[f"mtp.pre_fc_norm_{name}.weight"]
        with Widen(), torch.no_grad():
            joined.append(module(x))
    with Widen(), torch.no_grad():
        x = nn.functional.linear(torch.cat(joined, dim=-1), stored["mtp.fc.weight"])
        out = model(inputs_embeds=x, output_hidden_states=True, use_cache=True)
    return head_parts(out)


def head_parts(out: object) -> dict[str, Tensor]:
    cached = out.past_key_values.layers[0]  # type: ignore[attr-defined]
    k, v = cached.keys[0].transpose(0, 1), cached.values[0].transpose(0, 1)
    return {"g": out.hidden_states[-1][0], "logits": out.logits[0], "k": k, "v": v}  # type: ignore[attr-defined]


def parts(found: HeadPass) -> dict[str, Tensor]:
    assert len(found.kv) == 1
    return {"g": found.g, "logits": found.logits, "k": found.kv[0][0], "v": found.kv[0][1]}


def test_mtp_agrees_with_the_modules_of_transformers(pair: Pair, mtp_witness: PreTrainedModel) -> None:
    mtp = pair.target.mtp_layers(pair.path)[0]
    theirs = witnessed_mtp(pair, mtp_witness, pair.tokens, pair.hidden)
    found = mtp.forward(pair.tokens, pair.hidden)
    assert worst(parts(found), theirs) < BOUND
    # What is handed on is fed back: the second step of a chain.
    chained = torch.cat((pair.hidden, found.g[-1:]))
    tokens = (*pair.tokens, int(found.logits[-1].argmax()))
    assert worst(parts(mtp.forward(tokens, chained)), witnessed_mtp(pair, mtp_witness, tokens, chained)) < BOUND


def test_the_witness_notices_every_tensor_of_the_mtp_layer(pair: Pair, mtp_witness: PreTrainedModel) -> None:
    mtp = pair.target.mtp_layers(pair.path)[0]
    theirs = witnessed_mtp(pair, mtp_witness, pair.tokens, pair.hidden)
    unnoticed = []
    for name, tensor in mtp.tensors.items():
        noise = torch.randn(tensor.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        other = MtpLayer(pair.target, {**mtp.tensors, name: tensor * (1 + 1e-6 * noise)})
        if worst(parts(other.forward(pair.tokens, pair.hidden)), theirs) < 1000 * BOUND:
            unnoticed.append(name)
    assert all(".experts." in name for name in unnoticed)
    assert len(unnoticed) < 0.3 * len(mtp.tensors)


def test_the_witness_notices_inputs_of_the_mtp_layer(pair: Pair, mtp_witness: PreTrainedModel) -> None:
    mtp = pair.target.mtp_layers(pair.path)[0]
    theirs = witnessed_mtp(pair, mtp_witness, pair.tokens, pair.hidden)
    before_norm = pair.target.forward(TOKENS[:16]).layers[-1]
    d = pair.target.config.hidden_size
    swapped = MtpLayer(pair.target, {**mtp.tensors, "eh_proj.weight": mtp.tensors["eh_proj.weight"].roll(d, dims=1)})
    for wrong in (
        mtp.forward(TOKENS[:16], pair.hidden),
        mtp.forward(pair.tokens, pair.hidden.roll(1, 0)),
        mtp.forward(pair.tokens, before_norm),
        swapped.forward(pair.tokens, pair.hidden),
    ):
        assert worst(parts(wrong), theirs) > 1e-2


def test_mtp_margins_are_clear(pair: Pair) -> None:
    top = pair.target.mtp_layers(pair.path)[0].forward(pair.tokens, pair.hidden).logits.topk(2).values
    assert float((top[:, 0] - top[:, 1]).median()) > 0.3


def test_bad_inputs_of_the_mtp_layer(pair: Pair) -> None:
    mtp = pair.target.mtp_layers(pair.path)[0]
    with pytest.raises(ValueError, match=r"expected \(3, "):
        mtp.forward(pair.tokens[:3], pair.hidden)
    with pytest.raises(ValueError, match="token 99 is outside"):
        mtp.forward((99,), pair.hidden[:1])


def test_a_checkpoint_without_an_mtp_layer(tmp_path: Path) -> None:
    path = tiny_qwen3_5(tmp_path, mtp=False)
    with pytest.raises(CheckpointError, match=r"tensor mtp\.fc\.weight is missing"):
        load_target(path).mtp_layers(path)[0]
