"""MTP layers of GLM-4-MoE and DeepSeek-V3 as a chain and as a head, against transformers and the reference.

`T` entries, `D` hidden width. transformers counts positions of entries from 1 + layer, which RoPE cannot see.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from transformers.modeling_layers import MtpModel

from draftproof.engine.models.checkpoint import open_tensors
from draftproof.engine.models.eagle_head import EagleHead
from draftproof.engine.models.grouped_target import GroupedTarget
from draftproof.engine.models.mtp_chain import FirstLayer, MtpChain
from draftproof.engine.models.registry import load_target
from draftproof.properties.formats.checkpoint_config import read_fields
from draftproof.properties.lib.errors import CheckpointError
from draftproof.properties.weights.eagle import random_head
from draftproof.reference.models.eagle_head import ReferenceEagleHead, head_sizes
from draftproof.reference.models.registry import load_target as load_reference
from tests.checkpoints import add_tensors, tiny_glm4_moe, tiny_qwen3_next
from tests.engine.paged import kept, paged, place
from tests.engine.test_targets import relative, unbiased_rows
from tests.reference.witness import GROUPED, TOKENS, load_witness
from tests.widen import Widen

IDS = torch.tensor(TOKENS[1:30])
T = len(IDS)
BOUND = 1e-11


@dataclass(frozen=True)
class Tiny:
    """A checkpoint, its target, all its MTP layers, and states [T, D] to start from."""

    path: Path
    target: GroupedTarget
    chain: MtpChain
    hidden: torch.Tensor


@pytest.fixture(scope="module", params=GROUPED)
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    path = GROUPED[request.param](tmp_path_factory.mktemp(request.param))
    target = load_target(path, "cpu", torch.float64)
    hidden = torch.randn(T, target.width, dtype=torch.float64, generator=torch.Generator().manual_seed(6))
    return Tiny(path, target, chain_of(path, target), hidden)


def chain_of(path: Path, target: GroupedTarget, count: int | None = None) -> MtpChain:
    return target.built_in_draft(read_fields(path), open_tensors(path, "cpu", target.hidden_dtype), count, chain=True)


def test_agrees_with_transformers(tiny: Tiny) -> None:
    """Every layer on its own inputs: the states that it hands on, and the logits."""
    model = load_witness(tiny.path)
    first, count = model.config.num_hidden_layers, model.config.num_mtp_layers
    model._keys_to_ignore_on_load_unexpected = [rf"model\.layers\.{first + j}\." for j in range(count)]
    theirs = MtpModel.from_pretrained(model).double().eval()
    assert tiny.chain.cache_shape.layers == len(theirs.layers) == count
    cache = paged(tiny.chain.cache_shape, T)
    for j in range(count):
        hidden = tiny.hidden.roll(j, dims=1)
        states, handed = tiny.chain.forward(j, IDS, hidden, place(cache, [1] * T, list(range(T))), cache)
        with Widen(), torch.no_grad():
            expected = theirs.forward_layer(j, hidden[None], torch.arange(T)[None] + 1 + j, None, input_ids=IDS[None])
            logits = theirs._project_to_logits(expected)
        assert relative(handed, expected[0]) < BOUND
        assert relative(tiny.chain.logits(states), logits[0]) < BOUND


def test_chained_layers_equal_the_reference(tiny: Tiny) -> None:
    """Entries too, in parts of any size; layer j's are in layer j of the cache."""
    cache, ids, hidden, theirs = paged(tiny.chain.cache_shape, T), IDS, tiny.hidden, tiny.hidden
    for j, layer in enumerate(load_reference(tiny.path).mtp_layers(tiny.path)):
        expected = layer.forward(ids.tolist(), theirs)
        passes = []
        for start, end in ((0, 11), (11, 12), (12, T)):
            where = place(cache, [3] * (end - start), list(range(start, end)))
            passes.append(tiny.chain.forward(j, ids[start:end], hidden[start:end], where, cache))
        hidden = torch.cat([handed for _, handed in passes])
        logits = tiny.chain.logits(torch.cat([states for states, _ in passes]))
        assert relative(hidden, expected.g) < BOUND
        assert relative(logits, expected.logits) < BOUND
        for got, entry in zip(kept(cache, j, 3, T), expected.kv[0], strict=True):
            assert relative(got, entry) < BOUND
        ids, theirs = torch.cat((ids[1:], logits[-1:].argmax(1))), expected.g


def test_the_first_layer_is_a_head(tiny: Tiny) -> None:
    head = FirstLayer(chain_of(tiny.path, tiny.target, 1))
    assert head.cache_shape.layers == 1
    caches = [paged(shape, T) for shape in (head.cache_shape, tiny.chain.cache_shape)]
    got, expected = (
        part.forward(*at, IDS, tiny.hidden, place(cache, [1] * T, list(range(T))), cache)
        for part, at, cache in zip((head, tiny.chain), ((), (0,)), caches, strict=True)
    )
    assert all(torch.equal(one, other) for one, other in zip(got, expected, strict=True))
    assert torch.equal(head.logits(got[0]), tiny.chain.logits(expected[0]))
    ours = [tensor for layer in tiny.chain.layers[:1] for tensor in layer.tensors()]
    shared = 1 if tiny.target.config.tie_word_embeddings else 2
    assert len(head.weights()) == shared + len(ours)


def test_an_eagle_head_equals_the_reference(tiny: Tiny) -> None:
    """The made-up one, which is no layer of the target's kind."""
    arrays = random_head(head_sizes(load_reference(tiny.path)), 11)
    weights = {name: torch.from_numpy(array).double() for name, array in arrays.items()}
    head = EagleHead(tiny.target.eagle_config(tiny.target.config), weights, tiny.target)
    expected = ReferenceEagleHead.random(load_reference(tiny.path), 11).forward(IDS.tolist(), tiny.hidden)
    cache = paged(head.cache_shape, T)
    states, handed = head.forward(IDS, tiny.hidden, place(cache, [1] * T, list(range(T))), cache)
    assert relative(handed, expected.g) < BOUND
    assert relative(head.logits(states), expected.logits) < BOUND
    for ours, theirs in zip(kept(cache, 0, 1, T), expected.kv[0], strict=True):
        assert relative(ours, theirs) < BOUND


def test_weights_are_all_that_is_read(tiny: Tiny) -> None:
    """What is stored, but for the embedding and lm_head, which are the target's own memory."""
    tensors = open_tensors(tiny.path, "cpu", torch.float64)
    own = [tensor for layer in tiny.chain.layers for tensor in layer.tensors()]
    mixers = [layer.layer.mixer for layer in tiny.chain.layers]
    made = sum(mixer.inv_freq.numel() + unbiased_rows(mixer) for mixer in mixers)
    stored = sum(tensors[name].numel() for name in tensors if name.startswith(tiny.target.unread_prefixes()))
    assert sum(tensor.numel() for tensor in own) == stored + made
    assert len(tiny.chain.weights()) == len(own) + (1 if tiny.target.config.tie_word_embeddings else 2)
    assert tiny.chain.weights()[0] is tiny.target.embedding


def test_a_qwen_layer_is_a_chain_of_one(tmp_path: Path) -> None:
    path = tiny_qwen3_next(tmp_path)
    target = load_target(path, "cpu", torch.float64)
    chain = target.built_in_draft(read_fields(path), open_tensors(path, "cpu", torch.float64), None, chain=True)
    head = FirstLayer(chain)
    hidden = torch.randn(T, target.width, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    caches = [paged(chain.cache_shape, T) for _ in range(2)]
    where = place(caches[0], [1] * T, list(range(T)))
    states, handed = chain.forward(0, IDS, hidden, where, caches[0])
    assert torch.equal(states, head.forward(IDS, hidden, where, caches[1])[0])
    assert handed is states
    assert torch.equal(chain.logits(states), head.logits(states))
    assert (chain.chain, chain.cache_shape) == (True, head.cache_shape)
    assert all(one is other for one, other in zip(chain.weights(), head.weights(), strict=True))
    with pytest.raises(IndexError, match="invalid layer 1: expected at most 0, the last of the chain"):
        chain.forward(1, IDS, hidden, where, caches[0])


@pytest.mark.parametrize(
    ("name", "original"),
    [("embed_tokens", "model.embed_tokens"), ("shared_head.head", "lm_head")],
)
def test_what_a_layer_repeats_has_to_be_the_targets(tmp_path: Path, name: str, original: str) -> None:
    path = tiny_glm4_moe(tmp_path)
    target = load_target(path, "cpu", torch.float32)
    copy = open_tensors(path, "cpu", torch.float32)[f"{original}.weight"].clone()
    add_tensors(path, {f"model.layers.3.{name}.weight": copy})
    chain_of(path, target)
    copy[5, 2] += 1
    add_tensors(path, {f"model.layers.3.{name}.weight": copy})
    load_target(path, "cpu", torch.float32)
    with pytest.raises(CheckpointError, match=f"tensor model.layers.3.{name}.weight: expected none, or the same"):
        chain_of(path, target)


def test_bad_layers(tmp_path: Path) -> None:
    path = tiny_glm4_moe(tmp_path / "one")
    target = load_target(path, "cpu", torch.float32)
    two = {**read_fields(path), "num_nextn_predict_layers": 2}
    tensors = open_tensors(path, "cpu", torch.float32)
    with pytest.raises(CheckpointError, match=r"tensor model\.layers\.4\.\S+ is missing"):
        target.built_in_draft(two, tensors, None, chain=True)
    add_tensors(path, {"model.layers.3.eh_proj.bias": torch.ones(30)})
    load_target(path, "cpu", torch.float32)
    with pytest.raises(CheckpointError, match=r"eh_proj\.bias .* unknown to the architecture"):
        chain_of(path, target)
    none = tiny_glm4_moe(tmp_path / "none", mtp=0)
    with pytest.raises(CheckpointError, match=r"invalid num_nextn_predict_layers 0 .*for the built-in draft"):
        chain_of(none, load_target(none, "cpu", torch.float32))
