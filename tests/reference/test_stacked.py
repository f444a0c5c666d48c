"""Experts stored as one tensor are the experts that they are one by one; what is wrong with a stack is named."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from draftproof.properties.lib.errors import CheckpointError
from draftproof.reference.models.tensors import Shapes, read_tensors

LAYER = "model.layers.1.mlp.experts"
INNER, WIDTH, COUNT = 3, 5, 11
SHAPES: Shapes = {"model.norm.weight": (WIDTH,)}
for i in range(COUNT):
    SHAPES |= {f"{LAYER}.{i}.{part}_proj.weight": (INNER, WIDTH) for part in ("gate", "up")}
    SHAPES[f"{LAYER}.{i}.down_proj.weight"] = (WIDTH, INNER)


def stacked(single: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return what transformers' Qwen3.5 holds: gates above ups, the experts in order."""
    gate, up, down = (
        torch.stack([single[f"{LAYER}.{i}.{part}_proj.weight"] for i in range(COUNT)])
        for part in ("gate", "up", "down")
    )
    both = {f"{LAYER}.gate_up_proj": torch.cat((gate, up), dim=1), f"{LAYER}.down_proj": down}
    return {"model.norm.weight": single["model.norm.weight"], **both}


@pytest.fixture
def single() -> dict[str, torch.Tensor]:
    source = torch.Generator().manual_seed(5)
    return {name: torch.randn(shape, generator=source) for name, shape in SHAPES.items()}


def read(directory: Path, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    save_file(tensors, directory / "model.safetensors")
    return read_tensors(directory, SHAPES)


def test_both_layouts_are_read_as_one(tmp_path: Path, single: dict[str, torch.Tensor]) -> None:
    one_by_one, at_once = read(tmp_path, single), read(tmp_path, stacked(single))
    assert one_by_one.keys() == at_once.keys() == SHAPES.keys()
    assert all(torch.equal(one_by_one[name], at_once[name]) for name in SHAPES)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda stack: stack.pop(f"{LAYER}.down_proj"), rf"{LAYER}.down_proj is missing \(1 missing in all\)"),
        (
            lambda stack: stack.update({f"{LAYER}.gate_up_proj": stack[f"{LAYER}.gate_up_proj"][1:]}),
            r"gate_up_proj has shape \(10, 6, 5\); config.json asks for \(11, 6, 5\)",
        ),
        (lambda stack: stack.update({f"{LAYER}.0.up_proj.weight": torch.ones(INNER, WIDTH)}), "is unknown"),
    ],
    ids=["half", "fewer", "both"],
)
def test_a_wrong_stack_is_named(tmp_path: Path, single: dict[str, torch.Tensor], change, message: str) -> None:
    stack = stacked(single)
    change(stack)
    with pytest.raises(CheckpointError, match=message):
        read(tmp_path, {name: x.contiguous() for name, x in stack.items()})
