"""One configuration object for target and draft: what it may hold, and that nobody changes what another sees."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedConfig, Qwen3_5Config, Qwen3_5TextConfig, Qwen3NextConfig

from draftproof.engine.models.checkpoint import CheckpointError, open_tensors, read_json
from draftproof.engine.models.config_fields import draft_fields, fingerprint, read_fields, target_fields
from draftproof.engine.models.dense import Dense
from draftproof.engine.models.eagle_head import EagleHead
from draftproof.engine.models.hybrid import Hybrid, build_target
from draftproof.engine.models.hybrid_config import is_hybrid, parse_hybrid
from draftproof.engine.models.mtp import Mtp, build_mtp
from draftproof.engine.subject.checkpoints import build_pair, load
from draftproof.properties.values.drafts import CheckpointDraft
from draftproof.properties.values.scenario import Checkpoint
from tests.checkpoints import QWEN3_5, QWEN3_NEXT, tiny_head, tiny_qwen3, tiny_qwen3_5, tiny_qwen3_next

CPU = torch.device("cpu")
LISTED = {"hybrid": tiny_qwen3_next, "without experts": tiny_qwen3_5, "dense": tiny_qwen3}
DRAFTS = {"seed": CheckpointDraft(seed=3), "built in": CheckpointDraft(built_in=True)}


class Holder:
    """A configuration object that hands out its insides, as a user's own may."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields

    def to_dict(self) -> dict[str, Any]:
        return self.fields


HANDED_IN: dict[str, Callable[[Path], Any]] = {
    "dict": read_json,
    "own object": lambda path: Holder(read_json(path)),
    "transformers": lambda path: Qwen3NextConfig.from_pretrained(path),
    "transformers, no architecture": lambda path: Qwen3NextConfig(**QWEN3_NEXT),
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_qwen3_next(tmp_path_factory.mktemp("next"))


def plain(config: Any) -> dict[str, Any]:
    return copy.deepcopy(config if isinstance(config, dict) else config.to_dict())


def checkpoint(directory: Path) -> Checkpoint:
    return Checkpoint(path=str(directory), vocab=read_json(directory)["vocab_size"])


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("kind", HANDED_IN)
def test_what_is_handed_in_stays_as_it_is(directory: Path, kind: str, draft: str) -> None:
    config = HANDED_IN[kind](directory)
    before = plain(config)
    pair = build_pair(config, checkpoint(directory), DRAFTS[draft], CPU)
    assert plain(config) == before
    assert pair.config is config
    assert pair.seen == (fingerprint(config),) * 3
    assert pair.seen[0][1:] == (5, 1, 1, 0, 1, 0)
    assert type(pair.draft.model) is (Mtp if draft == "built in" else EagleHead)
    assert pair.draft.model.cache_shape.layers == 1


def test_order_of_building_does_not_matter(directory: Path) -> None:
    config, tensors = read_json(directory), open_tensors(directory, "cpu", torch.float32)
    first = build_target(config, tensors)
    build_mtp(config, tensors, first)
    second = build_target(config, tensors)
    assert second.config == first.config
    assert second.layer_types == ("linear_attention",) * 2 + ("full_attention", "linear_attention", "full_attention")


def test_a_later_change_of_what_was_handed_in_reaches_no_model(directory: Path) -> None:
    config, tensors = read_json(directory), open_tensors(directory, "cpu", torch.float32)
    target = build_target(config, tensors)
    head = build_mtp(config, tensors, target)
    seen, types = fingerprint(config), target.layer_types
    config["layer_types"][:] = ["full_attention"] * 5
    config["rope_parameters"]["rope_theta"] = 7.0
    assert fingerprint(config) != seen
    assert target.layer_types == types
    assert target.config.rope.theta == head.config.rope.theta == 10000.0


@pytest.mark.parametrize("view", [read_fields, target_fields, draft_fields])
@pytest.mark.parametrize("kind", HANDED_IN)
def test_views_share_nothing_with_it(directory: Path, kind: str, view: Callable[[Any], dict[str, Any]]) -> None:
    config = HANDED_IN[kind](directory)
    before = plain(config)
    fields = view(config)
    fields["layer_types"].append("linear_attention")
    fields["rope_parameters"].clear()
    fields["hidden_size"] = 1
    assert plain(config) == before


def test_views_of_a_multimodal_configuration() -> None:
    nested = Qwen3_5Config(text_config=QWEN3_5, vision_config={}, tie_word_embeddings=True)
    before = plain(nested)
    fields = target_fields(nested)
    fields["layer_types"].clear()
    fields["rope_parameters"].clear()
    assert plain(nested) == before
    flat = parse_hybrid(target_fields(Qwen3_5TextConfig(**QWEN3_5)))
    assert parse_hybrid(target_fields(nested)) == replace(flat, tied=True)
    assert fingerprint(nested)[1:] == (4, 1, 1, 0, 1)
    assert draft_fields(nested)["layer_types"] == ["full_attention"]


def test_a_fingerprint_sees_every_field(directory: Path) -> None:
    config = read_json(directory)
    seen = fingerprint(config)
    assert fingerprint(dict(reversed(config.items()))) == seen
    for name in config:
        assert name in ("layer_types", "num_hidden_layers") or fingerprint({**config, name: "other"}) != seen, name
    assert fingerprint({**config, "layer_types": ["full_attention"] * 5})[1:] == (5, 0, 0, 0, 0, 0)


@pytest.mark.parametrize("config", [None, 7, "qwen3_next"])
def test_no_configuration_at_all(config: object) -> None:
    with pytest.raises(CheckpointError, match=r"the configuration is a \w+; allowed: a mapping"):
        read_fields(config)


@pytest.mark.parametrize("name", LISTED)
def test_loading_what_a_scenario_names(tmp_path: Path, name: str) -> None:
    directory = LISTED[name](tmp_path / "target")
    model = checkpoint(directory)
    tiny_head(tmp_path / "head", directory)
    drafts = [CheckpointDraft(seed=1), CheckpointDraft(path=str(tmp_path / "head"))]
    drafts += [] if name == "dense" else [CheckpointDraft(built_in=True)]
    for draft in drafts:
        target, built, config, seen = load(model, draft, CPU)
        assert type(target) is (Dense if name == "dense" else Hybrid)
        assert len(set(seen)) == 1
        assert fingerprint(config) == seen[0]
        assert seen[0][2:] == tuple(int(kind == "linear_attention") for kind in target.layer_types)
        assert (target.state_shape is None) == (name == "dense")
        assert built.kind == "eagle"
        assert built.model.cache_shape.layers == 1


def test_defaults_are_those_of_transformers() -> None:
    for config in (Qwen3NextConfig(), Qwen3_5TextConfig()):
        full = config.to_dict()
        kept = ("model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_experts")
        kept += ("num_attention_heads", "num_key_value_heads", "num_experts_per_tok", "moe_intermediate_size")
        kept += ("shared_expert_intermediate_size", "linear_num_value_heads")
        few = {name: full[name] for name in kept if name in full}
        assert parse_hybrid(few) == parse_hybrid(full)


def test_a_dense_configuration_is_none() -> None:
    assert not is_hybrid({"architectures": ["Qwen3ForCausalLM"]})
    assert not is_hybrid({"architectures": None, "model_type": "qwen3"})
    with pytest.raises(
        CheckpointError, match=r"architectures is \['Qwen3ForCausalLM'\]; allowed: Qwen3NextForCausalLM"
    ):
        parse_hybrid({"architectures": ["Qwen3ForCausalLM"]})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"hidden_size": 0}, "hidden_size is 0; allowed: a positive integer"),
        ({"num_key_value_heads": 3}, r"num_key_value_heads is 3; allowed: a divisor of num_attention_heads \(8\)"),
        ({"linear_num_key_heads": 4}, r"linear_num_key_heads is 4; allowed: a divisor of linear_num_value_heads \(6\)"),
        ({"linear_num_value_heads": -6}, "linear_num_value_heads is -6; allowed: a positive integer"),
        ({"linear_key_head_dim": 1.5}, "linear_key_head_dim is 1.5; allowed: a positive integer"),
        ({"linear_value_head_dim": "a"}, "linear_value_head_dim is 'a'; allowed: a positive integer"),
        ({"linear_conv_kernel_dim": 1}, "linear_conv_kernel_dim is 1; allowed: an integer of at least 2"),
        ({"layer_types": ["full_attention"]}, r"layer_types is .*; allowed: a list of num_hidden_layers \(5\) names"),
        ({"layer_types": ["mamba"] * 5}, "layer_types has 'mamba'; allowed: 'full_attention', 'linear_attention'"),
        ({"layer_types": 5}, "layer_types is 5; allowed: a list"),
        ({"num_experts_per_tok": 10}, r"num_experts_per_tok is 10; allowed: at most num_experts \(9\)"),
        ({"num_experts": -1}, "num_experts is -1; allowed: an integer of at least 0"),
        ({"moe_intermediate_size": None}, "moe_intermediate_size is None; allowed: a positive integer"),
        ({"decoder_sparse_step": 0}, "decoder_sparse_step is 0; allowed: a positive integer"),
        ({"mlp_only_layers": [1.5]}, r"mlp_only_layers is \[1.5\]; allowed: a list of layer numbers"),
        ({"norm_topk_prob": "yes"}, "norm_topk_prob is 'yes'; allowed: True, False"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'; allowed: 'silu'"),
        ({"attention_bias": True}, "attention_bias is True; allowed: False"),
        ({"quantization_config": {"bits": 4}}, "quantization_config is .*; allowed: None"),
        ({"rms_norm_eps": float("inf")}, "rms_norm_eps is inf; allowed: a positive number"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope_type in rope_parameters is 'yarn'; allowed: default"),
        (
            {"rope_parameters": {"partial_rotary_factor": 0.1875}},
            "partial_rotary_factor is 0.1875; allowed with head_dim 16: what gives an even number",
        ),
        ({"rope_parameters": {"partial_rotary_factor": 2.0}}, "partial_rotary_factor is 2.0; allowed with head_dim 16"),
        ({"text_config": 3}, "text_config is 3; allowed: an object"),
    ],
)
def test_bad_field(directory: Path, fields: dict[str, Any], message: str) -> None:
    config = {**read_json(directory), **fields}
    with pytest.raises(CheckpointError, match=message):
        build_pair(config, checkpoint(directory), CheckpointDraft(), CPU)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"mtp_num_hidden_layers": 2}, "mtp_num_hidden_layers is 2; allowed: 1"),
        ({"mtp_use_dedicated_embeddings": True}, "mtp_use_dedicated_embeddings is True; allowed: False"),
    ],
)
def test_bad_field_of_the_built_in_draft(directory: Path, fields: dict[str, Any], message: str) -> None:
    config = {**read_json(directory), **fields}
    build_pair(config, checkpoint(directory), CheckpointDraft(), CPU)
    with pytest.raises(CheckpointError, match=message):
        build_pair(config, checkpoint(directory), CheckpointDraft(built_in=True), CPU)


def test_configurations_in_memory_are_read_as_on_disk(directory: Path) -> None:
    from_disk = parse_hybrid(json.loads((directory / "config.json").read_text()))
    in_memory: PreTrainedConfig = Qwen3NextConfig(**QWEN3_NEXT)
    assert in_memory.to_dict()["architectures"] is None
    assert parse_hybrid(target_fields(in_memory)) == from_disk
