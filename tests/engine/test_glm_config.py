"""What a GLM-4-MoE or DeepSeek-V3 checkpoint may say and hold, and every draft that goes with a real target."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import DeepseekV3Config, Glm4MoeConfig

from draftproof.engine.drafts.ngram import NgramSettings
from draftproof.engine.models.chain import FirstLayer, MtpChain, OneLayer
from draftproof.engine.models.checkpoint import CheckpointError, Rope, read_json
from draftproof.engine.models.config_fields import draft_fields, fingerprint, target_fields
from draftproof.engine.models.dense import Dense
from draftproof.engine.models.dflash import DFlash
from draftproof.engine.models.eagle_head import EagleHead, head_config
from draftproof.engine.models.grouped import Grouped, load_grouped
from draftproof.engine.models.grouped_config import HeadsConfig, LatentConfig, is_grouped, parse_grouped
from draftproof.engine.models.hybrid import Hybrid
from draftproof.engine.models.mtp import Mtp
from draftproof.engine.subject.checkpoints import build_pair, load
from draftproof.properties.values.drafts import CheckpointDraft, Ngram
from draftproof.properties.values.eagle_weights import HeadSizes, random_head
from draftproof.properties.values.scenario import Checkpoint
from tests.checkpoints import (
    DEEPSEEK_V3,
    GLM4_MOE,
    add_tensors,
    tiny_deepseek_v3,
    tiny_dflash,
    tiny_glm4_moe,
    tiny_head,
    tiny_llama,
    tiny_qwen3,
    tiny_qwen3_next,
)

CPU = torch.device("cpu")
TARGETS: dict[str, Callable[..., Path]] = {
    "glm": tiny_glm4_moe,
    "deepseek": tiny_deepseek_v3,
    "dense": tiny_qwen3,
    "hybrid": tiny_qwen3_next,
}
SPARSE = ("glm", "deepseek")
TYPES: dict[str, type] = {"glm": Grouped, "deepseek": Grouped, "dense": Dense, "hybrid": Hybrid}


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("targets")
    return {name: writer(base / name) for name, writer in TARGETS.items()}


def checkpoint(directory: Path) -> Checkpoint:
    return Checkpoint(path=str(directory), vocab=53)


def parse(directory: Path, **changes: Any) -> Any:
    return parse_grouped({**read_json(directory), **changes})


def test_sizes_of_glm(directories: dict[str, Path]) -> None:
    config = parse(directories["glm"])
    assert config.attention == HeadsConfig(kv_heads=2, head_dim=16, rotary_dim=8, qk_norm=True, bias=False)
    assert (config.layers, config.dense, config.mtp, config.heads, config.intermediate) == (3, 1, 1, 6, 44)
    assert (config.experts.shared, config.experts.scale, config.rope) == (28, 1.25, Rope(10000.0))


def test_sizes_of_deepseek(directories: dict[str, Path]) -> None:
    config = parse(directories["deepseek"])
    assert config.attention == LatentConfig(20, 18, 12, 8, 10, interleaved=True, bias=False)
    assert config.norm_eps == 1e-4
    assert parse(directories["deepseek"], q_lora_rank=None).attention.query_rank == 0


@pytest.mark.parametrize(("name", "written"), [("glm", Glm4MoeConfig), ("deepseek", DeepseekV3Config)])
def test_defaults_are_those_of_transformers(name: str, written: type) -> None:
    # The number of heads that transformers has for GLM leaves no head whose half is an even number.
    full = written(num_attention_heads=64, num_key_value_heads=64).to_dict()
    kept = ("model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "q_lora_rank")
    kept += ("num_attention_heads", "num_key_value_heads", "num_experts_per_tok", "moe_intermediate_size")
    kept += ("n_routed_experts", "kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")
    few = {field: full[field] for field in kept if field in full}
    assert parse_grouped(few) == parse_grouped(full)


@pytest.mark.parametrize("fields", [GLM4_MOE, DEEPSEEK_V3])
def test_configurations_in_memory_are_read_as_on_disk(directories: dict[str, Path], fields: dict[str, Any]) -> None:
    latent = "kv_lora_rank" in fields
    config = (DeepseekV3Config if latent else Glm4MoeConfig)(**fields, num_mtp_layers=1)
    assert config.to_dict()["architectures"] is None
    assert is_grouped(config.to_dict())
    assert parse_grouped(target_fields(config)) == parse(directories["deepseek" if latent else "glm"])


@pytest.mark.parametrize(
    ("fields", "count"),
    [
        ({"num_nextn_predict_layers": 2}, 2),
        ({"num_nextn_predict_layers": None, "num_mtp_layers": 3}, 3),
        ({"num_nextn_predict_layers": 4, "num_mtp_layers": 4}, 4),
        ({"num_nextn_predict_layers": None}, 1),
        ({"num_nextn_predict_layers": 0}, 0),
    ],
)
def test_number_of_mtp_layers(directories: dict[str, Path], fields: dict[str, Any], count: int) -> None:
    assert parse(directories["glm"], **fields).mtp == count


BOTH: list[tuple[dict[str, Any], str]] = [
    ({"hidden_size": 0}, "hidden_size is 0; allowed: a positive integer"),
    ({"hidden_act": "gelu"}, "hidden_act is 'gelu'; allowed: 'silu'"),
    ({"quantization_config": {"bits": 8}}, "quantization_config is .*; allowed: None"),
    ({"rope_parameters": {"rope_type": "yarn"}}, "rope_type in rope_parameters is 'yarn'; allowed: default"),
    ({"rope_parameters": None, "rope_scaling": {"type": "yarn"}}, "rope_type in rope_scaling is 'yarn'"),
    ({"scoring_func": "softmax"}, "scoring_func is 'softmax'; allowed: 'sigmoid'"),
    ({"topk_method": "greedy"}, "topk_method is 'greedy'; allowed: 'noaux_tc'"),
    ({"moe_layer_freq": 2}, "moe_layer_freq is 2; allowed: 1"),
    ({"layer_types": ["linear_attention"] * 3}, "layer_types has 'linear_attention'; allowed for"),
    ({"attention_bias": "yes"}, "attention_bias is 'yes'; allowed: False, True"),
    ({"norm_topk_prob": 2}, "norm_topk_prob is 2; allowed: True, False"),
    ({"first_k_dense_replace": -1}, "first_k_dense_replace is -1; allowed: an integer of at least 0"),
    ({"n_group": 5}, r"n_group is 5; allowed: a divisor of n_routed_experts \(12\)"),
    ({"n_group": 12}, "n_group is 12; allowed: groups of at least two of 12 experts"),
    ({"topk_group": 4}, r"topk_group is 4; allowed: at most n_group \(3\)"),
    ({"num_experts_per_tok": 9}, "num_experts_per_tok is 9; allowed: at most the 8 experts of topk_group"),
    ({"n_shared_experts": 0}, "n_shared_experts is 0; allowed: a positive integer"),
    ({"routed_scaling_factor": -1.0}, "routed_scaling_factor is -1.0; allowed: a positive number"),
    ({"num_mtp_layers": 2}, "num_nextn_predict_layers is 1 and num_mtp_layers is 2; allowed: the same"),
    ({"mlp_bias": True}, "mlp_bias is True; allowed: False"),
    ({"use_sliding_window": True}, "use_sliding_window is True; allowed: False"),
    ({"mtp_hidden_states_first": True}, "mtp_hidden_states_first is True; allowed: False"),
]
GLM_ONLY: list[tuple[dict[str, Any], str]] = [
    ({"num_key_value_heads": 4}, r"num_key_value_heads is 4; allowed: a divisor of num_attention_heads \(6\)"),
    ({"rope_parameters": {"partial_rotary_factor": 0.1875}}, "partial_rotary_factor is 0.1875; allowed with head_dim"),
    ({"use_qk_norm": "yes"}, "use_qk_norm is 'yes'; allowed: False, True"),
]
DEEPSEEK_ONLY: list[tuple[dict[str, Any], str]] = [
    ({"num_key_value_heads": 3}, r"num_key_value_heads is 3; allowed: num_attention_heads \(6\)"),
    ({"qk_rope_head_dim": 7}, "qk_rope_head_dim is 7; allowed: even numbers"),
    ({"q_lora_rank": 0}, "q_lora_rank is 0; allowed: a positive integer"),
    ({"rope_interleave": 1.5}, "rope_interleave is 1.5; allowed: True, False"),
    ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor is 0.5; allowed: 1.0"),
]


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [(name, *case) for name in SPARSE for case in BOTH]
    + [("glm", *case) for case in GLM_ONLY]
    + [("deepseek", *case) for case in DEEPSEEK_ONLY],
)
def test_bad_field(directories: dict[str, Path], name: str, fields: dict[str, Any], message: str) -> None:
    config = {**read_json(directories[name]), **fields}
    with pytest.raises(CheckpointError, match=message):
        build_pair(config, checkpoint(directories[name]), CheckpointDraft(), CPU)


def test_a_rank_of_queries_left_out(directories: dict[str, Path]) -> None:
    config = read_json(directories["deepseek"])
    del config["q_lora_rank"]
    with pytest.raises(CheckpointError, match="q_lora_rank is missing; allowed: a positive integer, or null for none"):
        parse_grouped(config)


def test_another_architecture() -> None:
    assert not is_grouped({"architectures": ["Qwen3ForCausalLM"]})
    with pytest.raises(CheckpointError, match=r"architectures is .*; allowed: Glm4MoeForCausalLM, DeepseekV3ForC"):
        parse_grouped({"architectures": ["Qwen3ForCausalLM"]})


@pytest.mark.parametrize(
    ("name", "tensor", "shape"),
    [
        ("glm", "model.layers.1.mlp.gate.e_score_correction_bias", r"\[12\]"),
        ("glm", "model.layers.2.mlp.shared_experts.up_proj.weight", r"\[28, 30\]"),
        ("glm", "model.layers.0.self_attn.q_norm.weight", r"\[16\]"),
        ("deepseek", "model.layers.1.self_attn.q_b_proj.weight", r"\[120, 20\]"),
        ("deepseek", "model.layers.1.self_attn.kv_a_proj_with_mqa.weight", r"\[26, 30\]"),
        ("deepseek", "model.layers.1.self_attn.kv_b_proj.weight", r"\[132, 18\]"),
        ("deepseek", "model.layers.2.mlp.experts.11.down_proj.weight", r"\[30, 14\]"),
    ],
)
def test_missing_tensor(tmp_path: Path, name: str, tensor: str, shape: str) -> None:
    path = TARGETS[name](tmp_path)
    tensors = load_file(path / "model.safetensors")
    del tensors[tensor]
    save_file(tensors, path / "model.safetensors")
    with pytest.raises(CheckpointError, match=f"tensor {tensor} is missing .*{shape}"):
        load_grouped(path, "cpu", torch.float32)


@pytest.mark.parametrize("name", SPARSE)
def test_tensors_that_nobody_reads(tmp_path: Path, name: str) -> None:
    """MTP layers are known parts, but only as many as the configuration has."""
    path = TARGETS[name](tmp_path)
    load_grouped(path, "cpu", torch.float32)
    add_tensors(path, {"model.layers.4.enorm.weight": torch.ones(30).numpy()})
    with pytest.raises(CheckpointError, match=r"model\.layers\.4\.enorm\.weight .* unknown to the architecture"):
        load(checkpoint(path), CheckpointDraft(), CPU)


@pytest.mark.parametrize("name", SPARSE)
def test_an_eagle_head_of_the_targets_sizes(directories: dict[str, Path], name: str) -> None:
    path = directories[name]
    config = head_config(parse(path))
    kv_heads, head_dim, eps = (2, 16, 1e-5) if name == "glm" else (6, 10, 1e-4)
    assert (config.heads, config.kv_heads, config.head_dim, config.intermediate) == (6, kv_heads, head_dim, 44)
    assert (config.qk_norm, config.norm_eps, config.layers, config.rope) == (True, eps, 1, Rope(10000.0))
    head = load(checkpoint(path), CheckpointDraft(seed=7), CPU).draft.model
    assert isinstance(head, EagleHead)
    arrays = random_head(HeadSizes(30, 44, 6, kv_heads, head_dim, qk_norm=True), 7)
    assert torch.equal(head.fc, torch.from_numpy(arrays["fc.weight"]))
    assert torch.equal(head.layer.k_norm, torch.from_numpy(arrays["layers.0.self_attn.k_norm.weight"]))


def test_odd_values_have_no_eagle_head(directories: dict[str, Path]) -> None:
    config = parse(directories["deepseek"])
    odd = replace(config, attention=replace(config.attention, value_dim=9))
    with pytest.raises(CheckpointError, match="v_head_dim is 9; allowed for an EAGLE head: even numbers"):
        head_config(odd)


def drafts_of(name: str, base: Path) -> dict[CheckpointDraft | Ngram, tuple[str, type, int]]:
    """Every draft of a target: its algorithm, the type of its model, and the layers of that."""
    small = tiny_llama(base / "small", num_hidden_layers=2)
    found: dict[CheckpointDraft | Ngram, tuple[str, type, int]] = {
        CheckpointDraft(seed=1): ("eagle", EagleHead, 1),
        Ngram(max_n=3, min_n=2): ("ngram", NgramSettings, 0),
        CheckpointDraft(algorithm="dflash", path=str(tiny_dflash(base / "dflash"))): ("dflash", DFlash, 2),
        CheckpointDraft(algorithm="standalone", path=str(small)): ("standalone", Dense, 2),
    }
    if name != "dense":
        first, chain = (Mtp, OneLayer) if name == "hybrid" else (FirstLayer, MtpChain)
        found[CheckpointDraft(built_in=True)] = ("eagle", first, 1)
        found[CheckpointDraft(algorithm="mtp", built_in=True)] = ("mtp", chain, 1 if name == "hybrid" else 3)
    return found


@pytest.mark.parametrize("name", TARGETS)
def test_every_draft_of_a_target(tmp_path: Path, name: str) -> None:
    writer = TARGETS[name]
    path = writer(tmp_path / "target", mtp=3) if name in SPARSE else writer(tmp_path / "target")
    config = read_json(path)
    for draft, (kind, model, layers) in drafts_of(name, tmp_path).items():
        pair = load(checkpoint(path), draft, CPU)
        assert type(pair.target) is TYPES[name]
        assert pair.draft.kind == kind
        assert type(pair.draft.model) is model
        if isinstance(pair.draft.model, NgramSettings):
            assert pair.draft.model == NgramSettings(max_n=3, min_n=2)
        else:
            assert pair.draft.model.cache_shape.layers == layers
        assert pair.seen == (fingerprint(config),) * 3


@pytest.mark.parametrize("name", [*SPARSE, "dense"])
def test_any_target_without_states_is_a_standalone_draft(directories: dict[str, Path], name: str) -> None:
    draft = CheckpointDraft(algorithm="standalone", path=str(directories[name]))
    pair = load(checkpoint(directories["hybrid"]), draft, CPU)
    assert type(pair.draft.model) is TYPES[name]
    assert pair.draft.model.hidden_dtype == pair.target.hidden_dtype


@pytest.mark.parametrize("name", TARGETS)
def test_an_eagle_head_from_a_directory(directories: dict[str, Path], tmp_path: Path, name: str) -> None:
    """That of random_head, written as a checkpoint, is the one made from the same seed."""
    path = tiny_head(tmp_path, directories[name], seed=2)
    drafts = [CheckpointDraft(path=str(path)), CheckpointDraft(seed=2)]
    read, made = (load(checkpoint(directories[name]), draft, CPU).draft.model for draft in drafts)
    assert read.cache_shape == made.cache_shape
    assert all(torch.equal(one, other) for one, other in zip(read.weights(), made.weights(), strict=True))


@pytest.mark.parametrize(
    ("target", "draft", "message"),
    [
        ("dense", CheckpointDraft(built_in=True), "built_in is True; allowed: False, this architecture has no draft"),
        ("dense", CheckpointDraft(algorithm="mtp", built_in=True), "built_in is True; allowed: False"),
        ("glm", CheckpointDraft(algorithm="mtp", path="x"), "path of an mtp draft is 'x'; allowed: none"),
        ("glm", CheckpointDraft(algorithm="dflash"), "path of a dflash draft is not given; allowed: a checkpoint dir"),
        ("glm", CheckpointDraft(algorithm="standalone"), "path of a standalone draft is not given"),
        ("glm", CheckpointDraft(algorithm="standalone", built_in=True), "standalone draft is built into the target"),
        ("glm", CheckpointDraft(algorithm="dflash", path="/nowhere"), "/nowhere does not exist"),
    ],
)
def test_a_draft_that_cannot_be(
    directories: dict[str, Path], target: str, draft: CheckpointDraft, message: str
) -> None:
    with pytest.raises(CheckpointError, match=message):
        load(checkpoint(directories[target]), draft, CPU)


def test_a_standalone_draft_that_does_not_fit(directories: dict[str, Path], tmp_path: Path) -> None:
    hybrid = CheckpointDraft(algorithm="standalone", path=str(directories["hybrid"]))
    with pytest.raises(CheckpointError, match="has layers of linear_attention; allowed for a standalone draft"):
        load(checkpoint(directories["glm"]), hybrid, CPU)
    other = CheckpointDraft(algorithm="standalone", path=str(tiny_llama(tmp_path, vocab_size=54)))
    with pytest.raises(CheckpointError, match="vocab_size of the draft is 54; allowed for this target: 53"):
        load(checkpoint(directories["glm"]), other, CPU)


def test_no_mtp_layers_in_the_checkpoint(tmp_path: Path) -> None:
    path = tiny_glm4_moe(tmp_path, mtp=0)
    for draft in (CheckpointDraft(built_in=True), CheckpointDraft(algorithm="mtp", built_in=True)):
        with pytest.raises(CheckpointError, match="num_nextn_predict_layers is 0; allowed for the built-in draft"):
            load(checkpoint(path), draft, CPU)


@pytest.mark.parametrize("name", SPARSE)
def test_a_drafts_view_has_one_layer(directories: dict[str, Path], name: str) -> None:
    config = read_json(directories[name])
    before = fingerprint(config)
    assert parse_grouped(draft_fields(config)).layers == 1
    assert fingerprint(config) == before
