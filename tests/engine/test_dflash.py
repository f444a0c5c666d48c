"""A DFlashModel draft against transformers. `T` context tokens, `W` rows of a block, `D` hidden width, `M` features."""

import json
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import MuseGlimmerAssistantModel, Qwen3ForCausalLM

from draftproof.engine.graphs.host import HostBackend
from draftproof.engine.models.base import LayerOutputs
from draftproof.engine.models.dflash import DFlashModel, load_dflash
from draftproof.engine.models.llama import Llama
from draftproof.engine.models.registry import load_target
from draftproof.properties.formats.checkpoint_config import read_fields
from draftproof.properties.lib.errors import CheckpointError
from draftproof.reference.models.dflash import ReferenceDFlashModel
from draftproof.reference.models.registry import load_target as load_reference
from tests.checkpoints import add_tensors, tiny_dflash, tiny_qwen3
from tests.engine.paged import kept, paged, place
from tests.engine.test_targets import relative
from tests.widen import Widen

T, W = 21, 5
IDS = torch.tensor([(i * i * 7 + 3 * i + 5) % 53 for i in range(T)])
# Both sides are float64; they differ in summation order only.
BOUND = 1e-11


@dataclass(frozen=True)
class Tiny:
    """Directories of a target and its draft, both read, and features [T, MD] of the context."""

    path: Path
    target: Llama
    draft: DFlashModel
    features: torch.Tensor


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    path = tmp_path_factory.mktemp("dflash")
    target = load_target(tiny_qwen3(path / "target"), "cpu", torch.float64)
    draft = load_dflash(tiny_dflash(path / "draft"), target, "cpu", torch.float64)
    asked = LayerOutputs(draft.features)
    cache = paged(target.cache_shape, T)
    target.forward(IDS, place(cache, [1] * T, list(range(T))), cache, asked)
    return Tiny(path, target, draft, asked.concatenated())


def witness(tiny: Tiny, context: int, ids: torch.Tensor, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """What transformers makes of a block [W] behind `context` tokens, without a cache: [W, D]."""
    model = MuseGlimmerAssistantModel.from_pretrained(tiny.path / "draft", dtype=torch.float32).to(dtype).eval()
    embeds = tiny.target.embedding[ids].to(dtype)
    with torch.no_grad(), Widen() if dtype == torch.float64 else nullcontext():
        return model(noise_embeds=embeds[None], context_hidden_states=tiny.features[None, :context].to(dtype))[0][0]


def block(tiny: Tiny, count: int) -> torch.Tensor:
    return torch.tensor([17] + [tiny.draft.mask] * (count - 1))


def filled(tiny: Tiny, cuts: tuple[int, ...] = ()) -> Any:
    """A cache with the context of request 2, appended in parts that begin at `cuts`."""
    cache = paged(tiny.draft.cache_shape, T + W)
    for start, end in zip((0, *cuts), (*cuts, T), strict=True):
        tiny.draft.append(tiny.features[start:end], place(cache, [2] * (end - start), list(range(start, end))), cache)
    return cache


def test_features_are_outputs_of_the_targets_layers(tiny: Tiny) -> None:
    """As transformers passes them: in the order of the config, which is not that of the layers."""
    model = Qwen3ForCausalLM.from_pretrained(tiny.path / "target", dtype=torch.float32).double().eval()
    with torch.no_grad(), Widen():
        outputs = model(IDS[None], output_hidden_states=True).hidden_states
    assert tiny.draft.features == (1, 0)
    assert relative(tiny.features, torch.cat((outputs[2][0], outputs[1][0]), 1)) < BOUND


@pytest.mark.parametrize("cuts", [(), (1,), (8, 9, 14)])
@pytest.mark.parametrize("width", [2, W])
def test_agrees_with_transformers(tiny: Tiny, width: int, cuts: tuple[int, ...]) -> None:
    ids = block(tiny, width)
    expected = witness(tiny, T, ids)
    cache = filled(tiny, cuts)
    where = place(cache, [2] * width, list(range(T, T + width)), [T + width - 1] * width)
    got = tiny.draft.forward(ids[None], where, cache)
    assert relative(got, expected) < BOUND
    assert relative(tiny.draft.logits(got), expected @ tiny.target.lm_head.T) < BOUND


def test_equals_the_reference(tiny: Tiny) -> None:
    """States, logits, and the entries of context and block."""
    reference = ReferenceDFlashModel.load(load_reference(tiny.path / "target"), tiny.path / "draft")
    cache, ids = filled(tiny), block(tiny, W)
    expected = reference.forward(ids.tolist(), tiny.features)
    got = tiny.draft.forward(ids[None], place(cache, [2] * W, list(range(T, T + W)), [T + W - 1] * W), cache)
    assert relative(got, expected.g) < BOUND
    assert relative(tiny.draft.logits(got), expected.logits) < BOUND
    for i, (context, own) in enumerate(zip(reference.entries(tiny.features), expected.kv, strict=True)):
        for ours, *theirs in zip(kept(cache, i, 2, T + W), context, own, strict=True):
            assert relative(ours, torch.cat(theirs)) < BOUND


def test_rounds_replace_the_block_by_context(tiny: Tiny) -> None:
    """A block behind 9 tokens, three of which are accepted; the next is as if there had been no other."""
    cache = paged(tiny.draft.cache_shape, T + W)
    ids = block(tiny, W)
    done = 0
    for context in (9, 12):
        tiny.draft.append(
            tiny.features[done:context], place(cache, [1] * (context - done), list(range(done, context))), cache
        )
        done = context
        where = place(cache, [1] * W, list(range(context, context + W)), [context + W - 1] * W)
        got = tiny.draft.forward(ids[None], where, cache)
        assert relative(got, witness(tiny, context, ids)) < BOUND


def test_blocks_of_a_batch_have_lengths_of_their_own(tiny: Tiny) -> None:
    """Request 3 has a block of two rows only: what stands behind them goes to page 0 and is seen by none of it."""
    cache = paged(tiny.draft.cache_shape, T + W)
    for row, context in ((1, T), (3, 7)):
        where = place(cache, [row] * context, list(range(context)))
        tiny.draft.append(tiny.features[:context], where, cache)
    ids = torch.stack((block(tiny, W), block(tiny, W)))
    where = place(cache, [1] * W + [3] * W, [*range(T, T + W), *range(7, 7 + W)], [T + W - 1] * W + [8] * W)
    where.slot_mapping[W + 2 :] = 0
    got = tiny.draft.forward(ids, where, cache)
    assert relative(got[:W], witness(tiny, T, ids[0])) < BOUND
    assert relative(got[W : W + 2], witness(tiny, 7, ids[1, :2])) < BOUND


def test_entries_are_normed_and_rotated_by_position(tiny: Tiny) -> None:
    """Against transformers' own modules; the input norm has no part in it."""
    model = MuseGlimmerAssistantModel.from_pretrained(tiny.path / "draft", dtype=torch.float32).double().eval()
    cache = filled(tiny)
    with torch.no_grad(), Widen():
        context = model.encoder(tiny.features[None])
        cos, sin = model.rotary_emb(context, torch.arange(T)[None])
        for i, layer in enumerate(model.layers):
            attention = layer.self_attn
            k = attention.k_norm(attention.k_proj(context).view(T, 3, 12))
            half = torch.cat((-k[..., 6:], k[..., :6]), -1)
            keys, values = kept(cache, i, 2, T)
            assert relative(keys, k * cos[0][:, None] + half * sin[0][:, None]) < BOUND
            assert relative(values, attention.v_proj(context).view(T, 3, 12)) < BOUND


def test_float32_agrees_with_transformers(tiny: Tiny) -> None:
    target = load_target(tiny.path / "target", "cpu", torch.float32)
    draft = load_dflash(tiny.path / "draft", target, "cpu", torch.float32)
    cache, ids = paged(draft.cache_shape, T + W), block(tiny, W)
    draft.append(tiny.features.float(), place(cache, [2] * T, list(range(T))), cache)
    where = place(cache, [2] * W, list(range(T, T + W)), [T + W - 1] * W)
    got = draft.forward(ids[None], where, cache)
    assert got.dtype == torch.float32
    assert relative(got, witness(tiny, T, ids, torch.float32)) < 1e-4


def test_captured(tiny: Tiny) -> None:
    cache, ids = filled(tiny), block(tiny, W)[None].clone()
    where = place(cache, [2] * W, list(range(T, T + W)), [T + W - 1] * W)
    features, behind = tiny.features[:3].clone(), place(cache, [2] * 3, [4, 5, 6])
    places = [at for one in (where, behind) for at in (one.req_rows, one.positions, one.slot_mapping, one.last_visible)]
    memory = [ids, features, cache.page_table, *cache.keys, *cache.values, *(at for at in places if at is not None)]

    def both() -> tuple[torch.Tensor, ...]:
        tiny.draft.append(features, behind, cache)
        return (tiny.draft.forward(ids, where, cache),)

    graph = HostBackend().capture(both, [*memory, *tiny.draft.weights()])
    ids[0, 0] = 3
    features.mul_(1.5)
    graph.replay()
    got = graph.outputs[0].clone()
    assert torch.equal(got, both()[0])
    features.copy_(tiny.features[4:7])
    graph.replay()
    assert relative(graph.outputs[0], witness(tiny, T, ids[0])) < BOUND


def test_weights_are_all_that_is_read(tiny: Tiny) -> None:
    model = MuseGlimmerAssistantModel.from_pretrained(tiny.path / "draft")
    shared = tiny.target.embedding.numel() + tiny.target.lm_head.numel()
    counted = sum(tensor.numel() for tensor in tiny.draft.weights())
    assert counted == sum(parameter.numel() for parameter in model.parameters()) + shared + 6
    assert (tiny.draft.block, tiny.draft.mask, tiny.draft.cache_shape.layers) == (5, 52, 2)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"hidden_size": 32}, "invalid hidden_size 32 .*expected 30, as in the target"),
        ({"block_size": 1}, "invalid block_size 1 "),
        ({"target_layer_ids": [0]}, r"tensor encoder\.fc\.weight has shape \[30, 60\]; expected \[30, 30\]"),
    ],
)
def test_bad_field(tiny: Tiny, tmp_path: Path, fields: dict[str, Any], message: str) -> None:
    path = tiny_dflash(tmp_path)
    (path / "config.json").write_text(json.dumps({**read_fields(path), **fields}))
    with pytest.raises(CheckpointError, match=message):
        load_dflash(path, tiny.target, "cpu", torch.float32)


def test_tensor_that_nobody_reads(tiny: Tiny, tmp_path: Path) -> None:
    path = add_tensors(tiny_dflash(tmp_path), {"layers.0.self_attn.q_proj.bias": torch.ones(72)})
    with pytest.raises(CheckpointError, match=r"q_proj\.bias .* unknown to the architecture"):
        load_dflash(path, tiny.target, "cpu", torch.float32)
