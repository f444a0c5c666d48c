"""MiMo and Step-3.5 in their published layouts, against plain forwards in transformers' modules, in float64.

transformers has MiMo's decoder layer as Qwen2's and Step-3.5's as Step-3.7's; what joins MTP layers to the target is
written out here. The engine's side is held to the reference by scenarios of the same checkpoints.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers.models.qwen2.modeling_qwen2 import Qwen2Model
from transformers.models.step3p7.modeling_step3p7 import Step3p7TextModel

from draftproof.engine.subject import EngineSubject
from draftproof.faults import tiny_checkpoints as tiny
from draftproof.harness.checkpoint_scenarios import one_draft
from draftproof.harness.lockstep import evidence
from draftproof.properties.formats.checkpoint_config import parse_config
from draftproof.properties.judge import judge
from draftproof.properties.lib.errors import CheckpointError
from draftproof.properties.values.drafts import CheckpointDraft
from draftproof.properties.values.scenario import Checkpoint
from draftproof.reference.models.registry import load_target
from tests.named.real import real
from tests.widen import Widen

TOKENS = tuple((i * i * 7 + 3 * i + 5) % 67 for i in range(23))
BOUND = 1e-12


@pytest.fixture(scope="module")
def mimo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, alike = tmp_path_factory.mktemp("tiny") / "mimo", tiny.Alike(2)
    tiny.add_mtp_of_mimo(tiny.write(tiny.model("Qwen2ForCausalLM", tiny.TINY_SIZES), path, alike), alike, 2)
    return path


@pytest.fixture(scope="module")
def step(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny") / "step3p5"
    tiny.write_step(path, tiny.Alike(2), 3)
    return path


def tensors_of(path: Path) -> dict[str, Tensor]:
    return {name: x.double() for name, x in load_file(path / "model.safetensors").items()}


class Witness:
    """Decoder layers of transformers, run one by one over TOKENS from position 0."""

    def __init__(self, model: nn.Module, state: Mapping[str, Tensor]) -> None:
        model.load_state_dict(state, strict=False)
        self.model = model.double().eval()
        mask = torch.full((len(TOKENS), len(TOKENS)), torch.finfo(torch.float64).min, dtype=torch.float64).triu(1)
        self.mask = mask[None, None]

    def layer(self, number: int, x: Tensor, *kind: str) -> Tensor:
        """x [n, D] -> [n, D]."""
        positions = torch.arange(len(x))[None]
        with Widen(), torch.no_grad():
            turned = self.model.rotary_emb(x[None], positions, *kind)
            mask = self.mask[..., : len(x), : len(x)]
            out = self.model.layers[number](
                hidden_states=x[None], attention_mask=mask, position_embeddings=turned, position_ids=positions
            )
        return out[0]


def qwen2(path: Path, prefix: str, layers: int) -> Witness:
    fields = json.loads((path / "config.json").read_text())
    known = {name: fields[name] for name in ("head_dim", "rope_parameters", "rms_norm_eps", "vocab_size")}
    sizes = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads")
    config = transformers.Qwen2Config(
        **known, **{name: fields[name] for name in sizes}, num_hidden_layers=layers, attn_implementation="eager"
    )
    found = tensors_of(path)
    state = {name.replace(prefix, "layers."): x for name, x in found.items() if name.startswith(prefix)}
    return Witness(Qwen2Model(config), state)


def rms(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + tiny.TINY_SIZES["rms_norm_eps"]) * weight


def close(ours: Tensor, theirs: Tensor) -> bool:
    return float((ours - theirs).abs().max() / theirs.abs().max()) < BOUND


def test_a_mimo_target_is_a_qwen2_model(mimo: Path) -> None:
    found, witness, done = tensors_of(mimo), qwen2(mimo, "model.layers.", 4), load_target(mimo).forward(TOKENS)
    x = found["model.embed_tokens.weight"][list(TOKENS)]
    for number in range(4):
        x = witness.layer(number, x)
        assert close(done.layers[number], x)
    assert close(done.hidden, rms(x, found["model.norm.weight"]))
    assert close(done.logits, rms(x, found["model.norm.weight"]) @ found["lm_head.weight"].T)


def test_mimo_takes_what_no_norm_has_seen_joins_it_first_and_sees_no_first_embedding(mimo: Path) -> None:
    found, witness, target = tensors_of(mimo), qwen2(mimo, "model.mtp_layers.", 2), load_target(mimo)
    hidden, layers = target.forward(TOKENS[:-2]).hidden, target.mtp_layers(mimo)
    assert [layer.takes for layer in layers] == ["before_norm"] * 2
    for number, layer in enumerate(layers):
        ids, own = TOKENS[number + 1 : number + 1 + len(hidden)], f"model.mtp_layers.{number}."
        embedded = found["model.embed_tokens.weight"][list(ids)]
        embedded[0] = 0
        parts = (
            rms(hidden, found[f"{own}hidden_layernorm.weight"]),
            rms(embedded, found[f"{own}token_layernorm.weight"]),
        )
        x = witness.layer(number, torch.cat(parts, dim=1) @ found[f"{own}input_proj.weight"].T)
        expected, done = rms(x, found[f"{own}final_layernorm.weight"]), layer.forward(ids, hidden)
        assert close(done.g, expected)
        assert close(done.logits, expected @ found["lm_head.weight"].T)
        hidden = expected


def step3p7(path: Path) -> tuple[Witness, dict[str, Tensor]]:
    """The four layers of the target and the three MTP layers as one model of transformers, and the stored tensors."""
    found, state = tensors_of(path), {}
    kinds = ["dense", *["sparse"] * 3, *["dense"] * 3]
    fields = {**tiny.STEP, "num_hidden_layers": 7, "mlp_layer_types": kinds, "attn_implementation": "eager"}
    names = {"share_expert.": "mlp.shared_experts.", "moe.gate.weight": "mlp.gate.weight", "transformer.": ""}
    names |= {"moe.router_bias": "mlp.gate.e_score_correction_bias", "moe.down_proj.weight": "mlp.experts.down_proj"}
    for stored, x in found.items():
        name = stored.removeprefix("model.")
        for published, theirs in names.items():
            name = name.replace(published, theirs)
        if name.endswith("moe.gate_proj.weight"):
            up = found[stored.replace("gate_proj", "up_proj")]
            name, x = name.replace("moe.gate_proj.weight", "mlp.experts.gate_up_proj"), torch.cat((x, up), dim=1)
        state[name] = x
    config = transformers.Step3p7TextConfig(**fields)
    config._experts_implementation = "eager"
    return Witness(Step3p7TextModel(config), state), found


def test_a_step_target_is_the_text_part_of_step_3_7(step: Path) -> None:
    (witness, found), done = step3p7(step), load_target(step).forward(TOKENS)
    x = found["model.embed_tokens.weight"][list(TOKENS)]
    for number in range(4):
        x = witness.layer(number, x, "full_attention")
        assert close(done.layers[number], x)
    normed = rms(x, 1 + found["model.norm.weight"])
    assert close(done.hidden, normed)
    assert close(done.logits, normed @ found["lm_head.weight"].T)


def test_step_takes_and_hands_on_what_no_norm_has_seen_and_has_a_head_of_its_own(step: Path) -> None:
    (witness, found), target = step3p7(step), load_target(step)
    x, layers = target.forward(TOKENS[:-3]).layers[-1], target.mtp_layers(step)
    assert [layer.takes for layer in layers] == ["before_norm"] * 3
    for number, layer in enumerate(layers):
        ids, own = TOKENS[number + 1 : number + 1 + len(x)], f"model.layers.{4 + number}."
        embedded = rms(found[f"{own}embed_tokens.weight"][list(ids)], 1 + found[f"{own}enorm.weight"])
        joined = torch.cat((embedded, rms(x, 1 + found[f"{own}hnorm.weight"])), dim=1)
        done = layer.forward(ids, x)
        x = witness.layer(4 + number, joined @ found[f"{own}eh_proj.weight"].T, "full_attention")
        normed = rms(x, 1 + found[f"{own}transformer.shared_head.norm.weight"])
        assert close(done.g, x)
        assert close(done.logits, normed @ found[f"{own}transformer.shared_head.output.weight"].T)


@pytest.mark.parametrize("name", ["mimo", "step"])
@pytest.mark.parametrize("form", [{}, {"chain": False}, {"algorithm": "eagle"}], ids=str)
def test_the_engine_agrees_in_a_scenario(name: str, form: dict[str, object], request: pytest.FixtureRequest) -> None:
    path = request.getfixturevalue(name)
    draft = one_draft(path, str(form.get("algorithm", "mtp")), None, 0, built_in=True)
    draft = draft._replace(draft=msgspec.structs.replace(draft.draft, chain=form.get("chain", True)))
    (scenario,) = real(path, ["eagle_padded"], draft)
    scenario = msgspec.structs.replace(scenario, draft=draft.draft)
    assert isinstance(scenario.model, Checkpoint)
    assert isinstance(scenario.draft, CheckpointDraft)
    assert judge(evidence(EngineSubject(), scenario)).first is None


def test_a_tensor_that_no_layer_reads_is_refused(step: Path, tmp_path: Path) -> None:
    found = load_file(step / "model.safetensors")
    save_file({**found, "model.layers.4.self_attn.q_proj.bias": torch.zeros(96)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text((step / "config.json").read_text())
    with pytest.raises(CheckpointError, match=r"model.layers.4.self_attn.q_proj.bias is unknown to the architecture"):
        load_target(tmp_path).mtp_layers(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layer_types": ["full_attention", "sliding_attention"] * 3}, "windows are not supported"),
        ({"swiglu_limits": [0, 0, 7]}, "limits of activations are not supported"),
        ({"rope_theta": [1e4, 1e6]}, "the same for every layer"),
        ({"moe_layers_enum": "3-44"}, "numbers of layers with commas"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "rope_scaling"),
        ({"num_attention_groups": 5}, "a divisor of num_attention_heads"),
    ],
)
def test_what_is_not_supported_of_step_is_said(step: Path, change: dict[str, object], message: str) -> None:
    fields = json.loads((step / "config.json").read_text())
    with pytest.raises(CheckpointError, match=message):
        parse_config({**fields, **change})


@pytest.mark.parametrize("name", ["MiMoV2FlashConfig", "Step3p7Config"])
def test_architectures_that_are_not_supported_are_named(name: str) -> None:
    fields = getattr(transformers, name)().to_dict()
    for architectures in (None, [name.replace("Config", "ForCausalLM")]):
        with pytest.raises(CheckpointError, match=r"invalid architectures .*expected one of LlamaForCausalLM, .*MiMo"):
            parse_config({**fields, "architectures": architectures})
