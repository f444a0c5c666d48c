"""Built-in drafts of hybrid checkpoints, and other ways to store the same weights."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from draftproof.engine.models.checkpoint import open_tensors
from draftproof.engine.models.qwen3_next import Qwen3Next
from draftproof.engine.models.registry import load_target
from draftproof.engine.subject.checkpoints import load
from draftproof.properties.formats.checkpoint_config import read_fields
from draftproof.properties.lib.errors import CheckpointError
from draftproof.properties.values.drafts import CheckpointDraft
from draftproof.properties.values.scenario import Checkpoint
from tests.checkpoints import tiny_llama, tiny_qwen3_5, tiny_qwen3_5_moe, tiny_qwen3_next

WEIGHTS = "model.safetensors"
CPU = torch.device("cpu")
Tensors = dict[str, torch.Tensor]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tiny_qwen3_next(tmp_path)


def change(directory: Path, edit: Callable[[Tensors], object]) -> None:
    tensors = load_file(directory / WEIGHTS)
    edit(tensors)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, directory / WEIGHTS)


def read(directory: Path) -> Qwen3Next:
    return load_target(directory, "cpu", torch.float32)


def same(one: Qwen3Next, other: Qwen3Next) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.weights(), other.weights(), strict=True))


@pytest.mark.parametrize("name", ["mtp.fc.weight", "mtp.layers.0.self_attn.q_proj.weight", "mtp.norm.weight"])
def test_missing_tensor_of_the_built_in_draft(directory: Path, name: str) -> None:
    change(directory, lambda tensors: tensors.pop(name))
    target = read(directory)
    with pytest.raises(CheckpointError, match=f"tensor {name} is missing"):
        target.built_in_draft(read_fields(directory), open_tensors(directory, "cpu", torch.float32), None, chain=True)


def test_no_built_in_draft_at_all(tmp_path: Path) -> None:
    directory = tiny_qwen3_5(tmp_path / "hybrid", mtp=False)
    with pytest.raises(CheckpointError, match=r"tensor mtp\.\S+ is missing from the checkpoint"):
        load(Checkpoint(path=str(directory), vocab=59), CheckpointDraft(built_in=True), CPU)
    dense = tiny_llama(tmp_path / "dense")
    with pytest.raises(CheckpointError, match="built_in True: expected False"):
        load(Checkpoint(path=str(dense), vocab=53), CheckpointDraft(built_in=True), CPU)


def test_text_part_of_a_multimodal_checkpoint(tmp_path: Path) -> None:
    """As Qwen3.5 is published: text_config, model.language_model.*, a vision part, and the draft beside them."""
    directory = tiny_qwen3_5(tmp_path)
    before = read(directory)

    def wrap(tensors: Tensors) -> None:
        for name in [name for name in tensors if name.startswith("model.")]:
            tensors[name.replace("model.", "model.language_model.", 1)] = tensors.pop(name)
        tensors["model.visual.patch_embed.proj.weight"] = torch.ones(4, 2)

    change(directory, wrap)
    text = read_fields(directory)
    del text["architectures"]
    outer = {"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", "text_config": text}
    (directory / "config.json").write_text(json.dumps(outer))
    pair = load(Checkpoint(path=str(directory), vocab=59), CheckpointDraft(built_in=True), CPU)
    assert isinstance(pair.target, Qwen3Next)
    assert same(pair.target, before)
    assert pair.seen[0][1:] == (4, 1, 1, 0, 1)


def test_experts_in_one_tensor(tmp_path: Path) -> None:
    """As Qwen3.5 with experts is published: all experts of a layer stacked."""
    directory = tiny_qwen3_5_moe(tmp_path)
    before = read(directory)

    def stack(tensors: Tensors) -> None:
        for layer in (f"model.layers.{i}.mlp.experts" for i in range(4)):
            parts = {
                part: torch.stack([tensors.pop(f"{layer}.{i}.{part}_proj.weight") for i in range(9)])
                for part in ("gate", "up", "down")
            }
            tensors[f"{layer}.gate_up_proj"] = torch.cat((parts["gate"], parts["up"]), dim=1)
            tensors[f"{layer}.down_proj"] = parts["down"]

    change(directory, stack)
    assert same(read(directory), before)


def test_tied_embeddings(tmp_path: Path) -> None:
    target = read(tiny_qwen3_5(tmp_path, tie_word_embeddings=True))
    assert target.lm_head is target.embedding
    assert sum(tensor is target.embedding for tensor in target.weights()) == 1


def test_interleaved_projections_are_sorted_by_kind(directory: Path) -> None:
    """Row by row: each output row of the fused projection is the stored row of the same head and component."""
    stored = load_file(directory / WEIGHTS)
    prefix = "model.layers.0.linear_attn"
    qkvz, ba = stored[f"{prefix}.in_proj_qkvz.weight"], stored[f"{prefix}.in_proj_ba.weight"]
    keys, size, values, group = 3, 10, 12, 2
    per_head = 2 * size + 2 * group * values
    expected = [qkvz[n * per_head + part * size + i] for part in (0, 1) for n in range(keys) for i in range(size)]
    for start in (2 * size, 2 * size + group * values):
        expected += [qkvz[n * per_head + start + i] for n in range(keys) for i in range(group * values)]
    expected += [ba[n * 2 * group + part * group + g] for part in (0, 1) for n in range(keys) for g in range(group)]
    assert torch.equal(read(directory).layers[0].mixer.projection, torch.stack(expected))
