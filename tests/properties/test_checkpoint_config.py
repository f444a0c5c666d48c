"""The one reader of config.json: both forms of every architecture, and an error for each field that can be wrong."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from transformers import (
    DeepseekV3Config,
    Glm4MoeConfig,
    PreTrainedConfig,
    Qwen3_5Config,
    Qwen3_5MoeTextConfig,
    Qwen3_5TextConfig,
    Qwen3Config,
    Qwen3NextConfig,
)

from draftproof.properties.formats import checkpoint_config as ours
from draftproof.properties.formats.checkpoint_config import parse_config, read_config
from draftproof.properties.formats.checkpoint_config.base import (
    Llama3RopeParameters,
    MropeParameters,
    RopeParameters,
)
from draftproof.properties.formats.checkpoint_config.llama import LlamaConfig
from draftproof.properties.lib.errors import CheckpointError
from tests.checkpoints import DEEPSEEK_V3, GLM4_MOE, LLAMA3_ROPE, QWEN3_5, QWEN3_5_MOE, QWEN3_NEXT, SIZES
from tests.properties.configs import (
    DEEPSEEK,
    DFLASH,
    GLM,
    LLAMA,
    NEXT,
    QWEN3,
    QWEN3_5_DENSE,
    QWEN3_5_SPARSE,
    ROPE,
    parse,
)


def test_fields_keep_their_names() -> None:
    assert parse(LLAMA) == LlamaConfig(
        architectures=("LlamaForCausalLM",),
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        rms_norm_eps=1e-5,
        rope_parameters=RopeParameters(rope_theta=500000.0),
        vocab_size=77,
        max_position_embeddings=512,
        eos_token_id=2,
        intermediate_size=48,
    )
    for base in (LLAMA, QWEN3, NEXT, QWEN3_5_DENSE, QWEN3_5_SPARSE, GLM, DEEPSEEK, DFLASH):
        read = parse(base)
        assert type(read) is ours.CONFIGS[base["architectures"][0]]
        for name in set(read.__struct_fields__) & base.keys() - {"rope_parameters"}:
            value = getattr(read, name)
            assert (list(value) if isinstance(value, tuple) else value) == base[name], name


def test_what_may_be_left_out_of_llama() -> None:
    assert parse(LLAMA, head_dim=None, num_key_value_heads=None) == parse(LLAMA)
    assert parse(LLAMA, eos_token_id=None).eos_token_id is None
    assert parse(LLAMA, eos_token_id=[1, 5]).eos_token_id == (1, 5)
    assert parse(LLAMA, rope_theta=...).rope_parameters.rope_theta == 10000.0
    neutral = {"attention_bias": False, "mlp_bias": False, "use_sliding_window": False, "quantization_config": None}
    assert parse(LLAMA, **neutral, partial_rotary_factor=1.0) == parse(LLAMA)
    assert parse(LLAMA, layer_types=["full_attention"] * 3).layer_types == ("full_attention",) * 3


@pytest.mark.parametrize("key", ["type", "rope_type"])
def test_old_and_new_rope_of_llama_mean_the_same(key: str) -> None:
    scaling = {name: value for name, value in LLAMA3_ROPE.items() if name not in ("rope_type", "rope_theta")}
    old = parse(LLAMA, rope_theta=10000.0, rope_scaling={**scaling, key: "llama3"})
    new = parse(LLAMA, rope_theta=..., rope_scaling=..., rope_parameters=LLAMA3_ROPE)
    assert old == new
    assert new.rope_parameters == Llama3RopeParameters(
        rope_theta=10000.0,
        factor=8.0,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_max_position_embeddings=128,
    )


def test_old_and_new_rope_of_a_part_mean_the_same() -> None:
    outer = {"rope_theta": ..., "partial_rotary_factor": ..., "rope_scaling": ...}
    assert parse(NEXT, **outer, rope_parameters=ROPE) == parse(NEXT)
    # The factor inside wins, as in transformers.
    assert parse(NEXT, partial_rotary_factor=0.5, rope_parameters=ROPE) == parse(NEXT)
    assert parse(NEXT, partial_rotary_factor=0.5).rope_parameters.partial_rotary_factor == 0.5
    inner = {"rope_type": "default", "rope_theta": 5.0, "partial_rotary_factor": 0.25}
    nested = parse(GLM, rope_parameters=inner, partial_rotary_factor=...)
    assert nested.rope_parameters == RopeParameters(rope_theta=5.0, partial_rotary_factor=0.25)


def test_mrope_of_text_is_rope() -> None:
    mrope = {**ROPE, "mrope_section": [11, 11, 10], "mrope_interleaved": True}
    read = parse(QWEN3_5_DENSE, rope_parameters=mrope).rope_parameters
    assert isinstance(read, MropeParameters)
    plain = parse(QWEN3_5_DENSE).rope_parameters
    assert (read.rope_theta, read.partial_rotary_factor) == (plain.rope_theta, plain.partial_rotary_factor)
    with pytest.raises(CheckpointError, match=r"rope_parameters\.mrope_\w+ .*expected none"):
        parse(NEXT, rope_parameters=mrope)


def test_qwen3_5_has_no_choice_of_layers_with_experts() -> None:
    moe = parse(QWEN3_5_SPARSE, norm_topk_prob=False, mlp_only_layers=[1], decoder_sparse_step=2)
    assert (moe.norm_topk_prob, moe.mlp_only_layers, moe.decoder_sparse_step) == (True, (), 1)
    assert parse(QWEN3_5_DENSE).num_experts == 0


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
def test_number_of_mtp_layers(fields: dict[str, Any], count: int) -> None:
    assert parse(GLM, **fields).num_nextn_predict_layers == count


# What transformers' class has for fields that a file may leave out.
DEFAULTS: list[tuple[dict[str, Any], type[PreTrainedConfig], tuple[str, ...]]] = [
    (NEXT, Qwen3NextConfig, ("norm_topk_prob", "decoder_sparse_step")),
    (QWEN3_5_DENSE, Qwen3_5TextConfig, ()),
    (QWEN3_5_SPARSE, Qwen3_5MoeTextConfig, ()),
    (
        GLM,
        Glm4MoeConfig,
        ("n_group", "topk_group", "first_k_dense_replace", "routed_scaling_factor", "norm_topk_prob", "use_qk_norm"),
    ),
    (
        DEEPSEEK,
        DeepseekV3Config,
        (
            "n_group",
            "topk_group",
            "first_k_dense_replace",
            "routed_scaling_factor",
            "norm_topk_prob",
            "rope_interleave",
        ),
    ),
]


@pytest.mark.parametrize(("base", "theirs", "names"), DEFAULTS, ids=lambda value: getattr(value, "__name__", ""))
def test_defaults_are_those_of_transformers(
    base: dict[str, Any], theirs: type[PreTrainedConfig], names: tuple[str, ...]
) -> None:
    # RoPE's defaults are filled in when a configuration is made; half of 64 components is an even number.
    shared = ("tie_word_embeddings",) + ("n_shared_experts", "attention_bias") * (base in (GLM, DEEPSEEK))
    names = (*names, *shared)
    left_out = dict.fromkeys((*names, "rope_theta", "partial_rotary_factor", "num_nextn_predict_layers"), ...)
    read = parse(base, **left_out, head_dim=64)
    full = theirs(head_dim=64).to_dict()
    assert {name: getattr(read, name) for name in names} == {name: full[name] for name in names}
    rope = full["rope_parameters"]
    assert read.rope_parameters.rope_theta == rope["rope_theta"]
    assert read.rope_parameters.partial_rotary_factor == rope.get("partial_rotary_factor", 1.0)
    assert getattr(read, "num_nextn_predict_layers", 1) == full.get("num_mtp_layers", 1)


IN_MEMORY: list[tuple[type[PreTrainedConfig], dict[str, Any]]] = [
    (Qwen3NextConfig, QWEN3_NEXT),
    (Qwen3_5TextConfig, QWEN3_5),
    (Qwen3_5MoeTextConfig, QWEN3_5_MOE),
    (Glm4MoeConfig, GLM4_MOE),
    (DeepseekV3Config, DEEPSEEK_V3),
]


@pytest.mark.parametrize(("theirs", "fields"), IN_MEMORY, ids=lambda value: getattr(value, "__name__", ""))
def test_configurations_in_memory_are_read_as_on_disk(
    theirs: type[PreTrainedConfig], fields: dict[str, Any], tmp_path: Path
) -> None:
    in_memory = theirs(**fields)
    assert in_memory.to_dict()["architectures"] is None
    read = parse_config(in_memory.to_dict())
    theirs(**fields, architectures=list(read.architectures)).save_pretrained(tmp_path)
    assert read_config(tmp_path) == read


def test_the_text_part_of_a_multimodal_configuration() -> None:
    nested = Qwen3_5Config(text_config=QWEN3_5, vision_config={}, tie_word_embeddings=True).to_dict()
    flat = parse_config(Qwen3_5TextConfig(**{**QWEN3_5, "tie_word_embeddings": True}).to_dict())
    assert parse_config(nested) == flat
    published = parse_config({**nested, "architectures": ["Qwen3_5ForConditionalGeneration"]})
    assert published == msgspec.structs.replace(flat, architectures=("Qwen3_5ForConditionalGeneration",))


def test_llama_and_qwen3_in_memory_are_written_with_their_architecture(tmp_path: Path) -> None:
    Qwen3Config(**SIZES, architectures=["Qwen3ForCausalLM"]).save_pretrained(tmp_path)
    assert read_config(tmp_path).architecture == "Qwen3ForCausalLM"
