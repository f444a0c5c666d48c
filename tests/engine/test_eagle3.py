"""EAGLE-3 heads of both layouts in the engine, against the reference; and what an engine with one runs."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from safetensors.torch import load_file, save_file

from draftproof.engine.config import EngineConfig
from draftproof.engine.drafts.eagle3 import Eagle3Draft
from draftproof.engine.models.eagle3_head import Eagle3Model, layers_of, load_eagle3
from draftproof.engine.models.registry import load_target
from draftproof.properties.formats.checkpoint_config import read_config
from draftproof.properties.formats.checkpoint_config.eagle3 import Eagle3Config
from draftproof.properties.lib.errors import CheckpointError
from draftproof.reference.models.eagle3_head import ReferenceEagle3Head, feature_layers
from draftproof.reference.models.registry import load_target as load_reference
from tests.checkpoints import VOCAB, tiny_eagle3, tiny_qwen3
from tests.engine.naive import NaiveCache, where

BOUND = 1e-12
LAYOUTS = ("safeailab", "speculators")
IDS = torch.tensor([(7 * i * i + 3 * i + 1) % VOCAB for i in range(20)])


def relative(got: torch.Tensor, expected: torch.Tensor) -> float:
    return float((got - expected).abs().max() / expected.abs().max())


def built(folder: Path, layout: str, **changes: Any) -> tuple[Eagle3Model, ReferenceEagle3Head]:
    target, path = tiny_qwen3(folder / "target", seed=6), tiny_eagle3(folder / "head", layout, seed=7, **changes)
    head = load_eagle3(path, load_target(target, "cpu", torch.float64), "cpu", torch.float64)
    return head, ReferenceEagle3Head.load(load_reference(target), path)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_head_equals_the_reference(tmp_path: Path, layout: str, norm_first: bool) -> None:
    head, reference = built(tmp_path, layout, norm_before_residual=norm_first)
    features = torch.randn(20, head.fc.shape[1], dtype=torch.float64)
    x = head.join(features)
    assert relative(x, features @ reference.fc.T) < BOUND
    expected = reference.forward(IDS.tolist(), x)
    states, handed = head.forward(IDS, x, where([1] * 20, list(range(20))), NaiveCache())
    assert relative(handed, expected.g) < BOUND
    assert relative(head.logits(states), expected.logits) < BOUND
    assert head.features == reference.features
    assert head.target_ids is not None
    assert head.target_ids.tolist() == list(reference.ids or ())


def test_what_it_needs_of_the_target_and_what_it_hands_on_are_of_their_own_widths(tmp_path: Path) -> None:
    head, _ = built(tmp_path, "safeailab")
    target = load_target(tmp_path / "target", "cpu", torch.float64)
    assert Eagle3Draft.needed(head).width(target) == 2 * target.width
    assert Eagle3Draft.output_width(head, target) == head.width == 28
    config = EngineConfig(steps=2, page_size=4, pages=8, request_slots=2, max_len=16, max_batch=2, chunk=4)
    shape, dtype = Eagle3Draft.memory(head, target, config)["next_hidden_states"]
    assert (shape, dtype) == ((3, 28), torch.float64)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("ids", [None, [2, 1, 2], [1]])
def test_layers_are_counted_as_the_reference_does(tmp_path: Path, layout: str, ids: list[int] | None) -> None:
    config = read_config(tiny_eagle3(tmp_path, layout, eagle_aux_hidden_state_layer_ids=ids), Eagle3Config)
    for layers in (4, 5, 32):
        assert layers_of(config, layers) == feature_layers(config, layers, "x")
    low = msgspec.structs.replace(config, eagle_aux_hidden_state_layer_ids=(3,))
    for layers in (1, 3):
        with pytest.raises(CheckpointError, match="invalid eagle_aux_hidden_state_layer_ids"):
            layers_of(low, layers)


def test_without_an_embedding_of_its_own_it_takes_the_targets(tmp_path: Path) -> None:
    head, _ = built(tmp_path / "a", "speculators")
    assert torch.equal(head.embedding, load_target(tmp_path / "a" / "target", "cpu", torch.float64).embedding)
    head, _ = built(tmp_path / "b", "safeailab")
    assert head.embedding.shape == (VOCAB, 28)
    file = tmp_path / "b" / "head" / "model.safetensors"
    save_file({name: x for name, x in load_file(file).items() if name != "embed_tokens.weight"}, file)
    with pytest.raises(CheckpointError, match=r"embed_tokens\.weight is missing"):
        load_eagle3(file.parent, load_target(tmp_path / "b" / "target", "cpu", torch.float64), "cpu", torch.float64)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("d2t", lambda x: x.float(), "tensor d2t has shape .* of torch.float32"),
        ("d2t", lambda x: x[:-1].clone(), r"tensor d2t has shape \[30\]"),
        ("d2t", lambda x: x * 0 - 1, "tensor d2t leads outside"),
        ("d2t", lambda x: -torch.arange(31), "tensor d2t leads to a token twice"),
        ("t2d", lambda x: ~x, "tensor t2d marks others"),
    ],
)
def test_maps_that_do_not_fit_are_refused(tmp_path: Path, name: str, change: Any, message: str) -> None:
    built(tmp_path, "safeailab")
    file = tmp_path / "head" / "model.safetensors"
    tensors = load_file(file)
    save_file({**tensors, name: change(tensors[name])}, file)
    with pytest.raises(CheckpointError, match=message):
        load_eagle3(file.parent, load_target(tmp_path / "target", "cpu", torch.float64), "cpu", torch.float64)
