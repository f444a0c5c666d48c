"""What the files of a checkpoint may hold: each side that reads them names what is wrong, or reads what is right."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file, save_file

from draftproof.engine.models.eagle_head import load_head
from draftproof.engine.models.registry import load_target
from draftproof.properties.lib.errors import CheckpointError
from draftproof.reference.models.registry import load_target as load_reference
from tests.checkpoints import tiny_deepseek_v3, tiny_glm4_moe, tiny_llama, tiny_qwen3_5, tiny_qwen3_next
from tests.reference.witness import MODELS

SIDES: dict[str, Callable[[Path], Any]] = {
    "engine": lambda path: load_target(path, "cpu", torch.float32),
    "reference": load_reference,
}
of_both = pytest.mark.parametrize("side", SIDES)
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
NORM, BIAS = "model.layers.1.post_attention_layernorm.weight", "model.layers.1.mlp.gate.e_score_correction_bias"
LINEAR = "model.layers.0.linear_attn"
Edit = Callable[[Path], object]


def with_tensors(**changes: Any) -> Edit:
    """Return what sets tensors: to others, to what a function makes of them, or to None, which removes them."""

    def edit(path: Path) -> None:
        tensors = load_file(path / WEIGHTS)
        for name, change in changes.items():
            made = change(tensors[name]) if callable(change) else change
            tensors.pop(name, None)
            tensors |= {} if made is None else {name: made.contiguous()}
        save_file(tensors, path / WEIGHTS)

    return edit


def with_config(**fields: Any) -> Edit:
    def edit(path: Path) -> None:
        file = path / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | fields))

    return edit


def cut(size: int) -> Edit:
    return lambda path: (path / WEIGHTS).write_bytes((path / WEIGHTS).read_bytes()[:size])


def indexed(weight_map: Any) -> Edit:
    """Return what leaves one shard, and an index that has this map."""

    def edit(path: Path) -> None:
        (path / WEIGHTS).rename(path / "shard.safetensors")
        (path / INDEX).write_text(json.dumps({} if weight_map is None else {"weight_map": weight_map}))

    return edit


def lies_about_its_length(path: Path) -> None:
    (path / WEIGHTS).write_bytes(struct.pack("<Q", 1 << 60) + (path / WEIGHTS).read_bytes()[8:])


class Broken(NamedTuple):
    """What is written, what breaks it, and what each side says of it; "" where that side reads it."""

    write: Callable[..., Path]
    edit: Edit
    engine: str
    reference: str


def missing(write: Callable[..., Path], name: str, shape: str = "") -> Broken:
    said = f"tensor {name} is missing"
    return Broken(write, with_tensors(**{name: None}), f"{said} .*{shape}", said)


def unknown(write: Callable[..., Path], name: str, size: int = 3) -> Broken:
    edit = with_tensors(**{name: torch.ones(size)})
    return Broken(write, edit, f"{name} .* unknown to the architecture", f"tensor {name} is unknown")


def shard(weight_map: Any, engine: str, reference: str) -> Broken:
    return Broken(tiny_llama, indexed(weight_map), engine, reference)


TIED = {"tie_word_embeddings": True}
UNREADABLE = ("is not a readable safetensors file", "broken or truncated safetensors file")
BROKEN: dict[str, Broken] = {
    "no config": Broken(
        tiny_llama,
        lambda path: (path / "config.json").unlink(),
        r"config\.json does not exist: expected a checkpoint directory",
        r"config\.json does not exist",
    ),
    "no weights": Broken(
        tiny_llama,
        lambda path: (path / WEIGHTS).unlink(),
        r"has no weights: expected model\.safetensors or",
        r"no weights found: expected model\.safetensors",
    ),
    "a pickle": Broken(
        tiny_llama,
        lambda path: (path / WEIGHTS).rename(path / "pytorch_model.bin"),
        r"found the pickle pytorch_model\.bin, which is never loaded",
        r"found the pickle pytorch_model\.bin, which is never opened",
    ),
    **{f"cut at {size}": Broken(tiny_llama, cut(size), *UNREADABLE) for size in (0, 4, 100, 300, -1, -7)},
    "a header that lies about its length": Broken(tiny_llama, lies_about_its_length, *UNREADABLE),
    "a tensor too few": missing(tiny_llama, NORM, r"\[30\]"),
    "no lm_head": Broken(
        lambda path: tiny_llama(path, **TIED),
        with_config(tie_word_embeddings=False),
        r"tensor lm_head\.weight is missing",
        r"tensor lm_head\.weight is missing",
    ),
    "another size": Broken(
        tiny_llama,
        with_config(intermediate_size=43),
        r"_proj\.weight has shape \[.*44.*\]; expected \[.*43.*\]",
        r"mlp\.\w+_proj\.weight has shape \(.*44.*\); config.json asks for .*43",
    ),
    "integers": Broken(
        tiny_llama,
        with_tensors(**{NORM: lambda x: x.to(torch.int8)}),
        r"expected a floating-point dtype, not torch\.int8",
        r"has dtype torch\.int8: expected torch\.float64",
    ),
    **{
        f"{value} in a tensor": Broken(
            tiny_llama, with_tensors(**{NORM: lambda x, value=value: x.fill_(value)}), "", "holds NaN or infinity"
        )
        for value in (float("nan"), float("inf"))
    },
    "a bias": unknown(tiny_llama, "model.layers.0.self_attn.q_proj.bias"),
    "a layer too many": unknown(tiny_llama, "model.layers.3.mlp.up_proj.weight"),
    "a map that is none": shard(
        3,
        "invalid weight_map 3 in .*: expected tensor and file",
        "weight_map is int; an object of file names is needed",
    ),
    "no map": shard(
        None,
        "invalid weight_map None in .*: expected tensor and file names",
        "weight_map is NoneType; an object of file names is needed",
    ),
    "a shard elsewhere": shard(
        {NORM: "../model.safetensors"},
        "invalid shard '../model.safetensors' in",
        "weight_map names '../model.safetensors'.*expected a .safetensors file beside the index",
    ),
    "a pickle as a shard": shard(
        {NORM: "model-1.bin"},
        r"invalid shard 'model-1\.bin' in",
        r"weight_map names 'model-1\.bin'.*expected a .safetensors file beside the index",
    ),
    "a shard that is not there": shard(
        {NORM: "gone.safetensors"}, r"gone\.safetensors is not a readable", "names 'gone.safetensors'.*does not exist"
    ),
    "a tensor that its shard lacks": shard(
        {"other": "shard.safetensors"},
        r"tensor other is missing from .*shard\.safetensors",
        r"tensor lm_head\.weight is missing",
    ),
    **{
        f"without {name}": missing(tiny_qwen3_next, name, shape)
        for name, shape in {
            f"{LINEAR}.in_proj_qkvz.weight": r"\[204, 30\]",
            "model.layers.3.linear_attn.in_proj_ba.weight": r"\[12, 30\]",
            f"{LINEAR}.conv1d.weight": r"\[132, 1, 4\]",
            "model.layers.1.linear_attn.A_log": r"\[6\]",
            "model.layers.2.self_attn.q_norm.weight": r"\[16\]",
            "model.layers.4.mlp.experts.8.up_proj.weight": r"\[14, 30\]",
            "model.layers.4.mlp.shared_expert_gate.weight": r"\[1, 30\]",
        }.items()
    },
    "another number of time steps": Broken(
        tiny_qwen3_next,
        with_tensors(**{f"{LINEAR}.dt_bias": torch.ones(5)}),
        r"dt_bias has shape \[5\]; expected \[6\]",
        r"dt_bias has shape \(5,\); config\.json asks for \(6,\)",
    ),
    "a flat convolution": Broken(
        tiny_qwen3_5,
        with_tensors(**{f"{LINEAR}.conv1d.weight": lambda x: x[:, 0]}),
        r"conv1d\.weight has shape \[96, 3\]; expected \[96, 1, 3\]",
        rf"{LINEAR}.conv1d.weight has shape \(96, 3\); config\.json asks for \(96, 1, 3\)",
    ),
    "a bias of a convolution": unknown(tiny_qwen3_next, f"{LINEAR}.conv1d.bias", 132),
    **{
        f"{name}, {what}": broken
        for name, write in {"glm": tiny_glm4_moe, "deepseek": tiny_deepseek_v3}.items()
        for what, broken in {
            "no correction": missing(write, BIAS),
            "a layer behind the MTP layers": unknown(write, "model.layers.4.eh_proj.weight"),
            "a short norm": Broken(
                write,
                with_tensors(**{"model.norm.weight": lambda x: x[:3]}),
                r"model\.norm\.weight has shape \[3\]; expected",
                r"tensor model\.norm\.weight has shape \(3,\); config\.json asks for",
            ),
        }.items()
    },
}


@of_both
@pytest.mark.parametrize("name", BROKEN)
def test_what_is_wrong_is_named(name: str, side: str, tmp_path: Path) -> None:
    broken = BROKEN[name]
    path = broken.write(tmp_path)
    broken.edit(path)
    message = getattr(broken, side)
    if not message:
        assert SIDES[side](path).vocab
        return
    with pytest.raises(CheckpointError, match=message):
        SIDES[side](path)


@of_both
def test_a_directory_that_is_not_there(side: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"nowhere/config\.json does not exist"):
        SIDES[side](tmp_path / "nowhere")


def values_of(side: str, path: Path) -> list[torch.Tensor]:
    read = SIDES[side](path)
    return list(read.weights() if side == "engine" else [read.tensors[name] for name in sorted(read.tensors)])


@of_both
@pytest.mark.parametrize(
    ("write", "edit"),
    [
        (tiny_llama, with_tensors(**{"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8)})),
        (tiny_qwen3_5, with_tensors(**{"model.visual.blocks.0.norm1.weight": torch.ones(3)})),
        (tiny_qwen3_next, with_tensors(**{"mtp.layers.1.mlp.gate.weight": torch.ones(9, 30)})),
    ],
    ids=["stored frequencies", "a vision tower", "a further MTP layer"],
)
def test_what_is_not_read_changes_nothing(write: Callable[..., Path], edit: Edit, side: str, tmp_path: Path) -> None:
    path = write(tmp_path)
    before = values_of(side, path)
    edit(path)
    assert all(torch.equal(one, other) for one, other in zip(before, values_of(side, path), strict=True))


@of_both
def test_a_tied_model_may_store_its_lm_head_too(side: str, tmp_path: Path) -> None:
    path = tiny_llama(tmp_path)
    with_config(**TIED)(path)
    target = SIDES[side](path)
    assert target.lm_head is target.embedding


def test_what_is_read_is_all_but_mtp_layers(tmp_path: Path) -> None:
    for name, write in {"glm": tiny_glm4_moe, "deepseek": tiny_deepseek_v3}.items():
        path = write(tmp_path / name, attention_bias=True)
        stored = load_file(path / WEIGHTS)
        assert set(load_reference(path).tensors) == {one for one in stored if not one.startswith("model.layers.3.")}


@of_both
def test_shards_equal_a_single_file(side: str, tmp_path: Path) -> None:
    path = MODELS["llama-sharded"](tmp_path)
    assert len(list(path.glob("model-*.safetensors"))) > 2
    pairs = zip(values_of(side, path), values_of(side, path / "whole"), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_an_index_that_names_the_wrong_shard(tmp_path: Path) -> None:
    path = MODELS["llama-sharded"](tmp_path)
    index = json.loads((path / INDEX).read_text())
    own = index["weight_map"][NORM]
    index["weight_map"][NORM] = next(file for file in sorted({*index["weight_map"].values()}) if file != own)
    (path / INDEX).write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=f"tensor {NORM} is missing, although the index"):
        load_reference(path)
    del index["weight_map"][NORM]
    (path / INDEX).write_text(json.dumps(index))
    for read in SIDES.values():
        with pytest.raises(CheckpointError, match=f"tensor {NORM} is missing"):
            read(path)


@pytest.mark.parametrize("name", ["mtp.embed_tokens.weight", "mtp.layers.1.input_layernorm.weight", "mtp.fc.bias"])
def test_a_tensor_of_another_mtp_layer(tmp_path: Path, name: str) -> None:
    path = tiny_qwen3_next(tmp_path)
    with_tensors(**{name: torch.ones(30)})(path)
    target = load_reference(path)
    with pytest.raises(CheckpointError, match=f"tensor {name} is unknown"):
        target.mtp_layers(path)


def test_head_must_fit_its_target(tmp_path: Path) -> None:
    path = tiny_llama(tmp_path)
    target = load_target(path, "cpu", torch.float32)
    made_up = target.eagle_config(target.config)
    with pytest.raises(CheckpointError, match=r"invalid num_hidden_layers 3 .*expected 1 for an EAGLE head"):
        load_head(path, target, made_up, "cpu", torch.float32)
    with_config(num_hidden_layers=1)(path)
    with pytest.raises(CheckpointError, match=r"tensor fc\.weight is missing .*\[30, 60\]"):
        load_head(path, target, made_up, "cpu", torch.float32)
