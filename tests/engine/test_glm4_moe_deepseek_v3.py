"""GLM-4-MoE and DeepSeek-V3 targets against transformers and the reference.

`T` tokens, `D` hidden width, `V` vocabulary.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from draftproof.engine.graphs.host import HostBackend
from draftproof.engine.models.base import AttentionMetadata, LayerOutputs
from draftproof.engine.models.deepseek_v3 import LatentAttention
from draftproof.engine.models.grouped_moe import GroupedMoe
from draftproof.engine.models.grouped_target import GroupedTarget
from draftproof.engine.models.layers import SelfAttention
from draftproof.engine.models.registry import load_target
from draftproof.properties.formats.checkpoint_config import read_fields
from draftproof.reference.models.registry import load_target as load_reference
from tests.engine.paged import kept, paged, place
from tests.reference.grouped_witness import MODELS, TOKENS, load_witness, witnessed
from tests.widen import Widen

IDS = torch.tensor(TOKENS)
T = len(TOKENS)
# Both sides are float64; they differ in summation order only.
BOUND = 1e-11


@dataclass(frozen=True)
class Run:
    """One request from position 0: hidden [T, D], logits [T, V], entries and outputs by layer."""

    hidden: torch.Tensor
    logits: torch.Tensor
    layers: tuple[tuple[torch.Tensor, torch.Tensor], ...]
    outputs: torch.Tensor


@pytest.fixture(scope="module", params=MODELS)
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return MODELS[request.param](tmp_path_factory.mktemp(request.param))


def read(directory: Path, dtype: torch.dtype = torch.float64) -> GroupedTarget:
    return load_target(directory, "cpu", dtype)


def run(target: GroupedTarget, cuts: tuple[int, ...] = ()) -> Run:
    """In one pass, or in parts that begin at `cuts`, through a paged cache."""
    cache, layers = paged(target.cache_shape, T), range(target.config.num_hidden_layers)
    ends = (*cuts, T)
    hidden, outputs = [], []
    for start, end in zip((0, *cuts), ends, strict=True):
        asked = LayerOutputs(tuple(layers))
        where = place(cache, [2] * (end - start), list(range(start, end)))
        hidden.append(target.forward(IDS[start:end], where, cache, asked))
        outputs.append(asked.concatenated())
    whole = torch.cat(hidden)
    entries = tuple(kept(cache, layer, 2, T) for layer in layers)
    return Run(whole, target.logits(whole), entries, torch.cat(outputs))


def relative(got: torch.Tensor, expected: torch.Tensor) -> float:
    return float((got.double() - expected.double()).norm() / expected.double().norm())


def test_float64_agrees_with_widened_transformers(directory: Path) -> None:
    """Hidden states, logits, the output of every layer, and its entries: expanded keys and values of latent ones."""
    model = load_witness(directory, read_fields(directory)["architectures"][0])
    with Widen():
        expected = witnessed(model, TOKENS)
    got = run(read(directory))
    assert relative(got.hidden, expected["hidden"]) < BOUND
    assert relative(got.logits, expected["logits"]) < BOUND
    for i, ((k, v), output) in enumerate(zip(got.layers, got.outputs.chunk(len(got.layers), 1), strict=True)):
        assert relative(k, expected[f"k{i}"]) < BOUND
        assert relative(v, expected[f"v{i}"]) < BOUND
        assert relative(output, expected[f"layer{i}"]) < BOUND


def test_float64_equals_the_reference(directory: Path) -> None:
    expected = load_reference(directory).forward(TOKENS)
    got = run(read(directory))
    assert relative(got.hidden, expected.hidden) < BOUND
    assert relative(got.logits, expected.logits) < BOUND
    assert torch.equal(got.logits.argmax(1), expected.logits.argmax(1))
    assert relative(got.outputs, torch.cat(expected.layers, 1)) < BOUND
    for (k, v), (keys, values) in zip(got.layers, expected.kv, strict=True):
        assert relative(k, keys) < BOUND
        assert relative(v, values) < BOUND


def test_float32_agrees_with_transformers(directory: Path) -> None:
    model = load_witness(directory, read_fields(directory)["architectures"][0]).float()
    with torch.no_grad():
        expected = model(IDS[None], use_cache=False).logits[0]
    got = run(read(directory, torch.float32)).logits
    assert got.dtype == torch.float32
    assert relative(got, expected) < 1e-4
    assert torch.equal(got.argmax(1), expected.argmax(1))


@pytest.mark.parametrize("cuts", [(17, 22, 27, 32), tuple(range(1, T)), (40,)])
def test_prefill_and_verify_rows_equal_one_pass(directory: Path, cuts: tuple[int, ...]) -> None:
    target = read(directory)
    got, expected = run(target, cuts), run(target)
    assert relative(got.logits, expected.logits) < 1e-12
    assert relative(got.outputs, expected.outputs) < 1e-12
    for (k, v), (keys, values) in zip(got.layers, expected.layers, strict=True):
        assert relative(k, keys) < 1e-12
        assert relative(v, values) < 1e-12


def test_requests_share_a_pass(directory: Path) -> None:
    target = read(directory)
    cache, expected = paged(target.cache_shape, T), run(target).logits
    target.forward(torch.cat((IDS[:9], IDS[:4])), place(cache, [1] * 9 + [3] * 4, [*range(9), *range(4)]), cache)
    mixed = place(cache, [3] * 8 + [1] * 2, [*range(4, 12), 9, 10])
    got = target.logits(target.forward(torch.cat((IDS[4:12], IDS[9:11])), mixed, cache))
    assert relative(got, torch.cat((expected[4:12], expected[9:11]))) < 1e-12


def test_a_captured_pass_follows_its_inputs(directory: Path) -> None:
    """Other tokens, and so other experts, from the same graph."""
    target = read(directory, torch.float32)
    cache = paged(target.cache_shape, T)
    ids, where = IDS[:5].clone(), place(cache, [1] * 5, list(range(5)))
    memory = [ids, where.req_rows, where.positions, where.slot_mapping, cache.page_table, *cache.keys, *cache.values]
    features = tuple(range(target.config.num_hidden_layers - 1))

    def both() -> tuple[torch.Tensor, ...]:
        asked = LayerOutputs(features)
        return target.logits(target.forward(ids, where, cache, asked)), asked.concatenated()

    graph = HostBackend().capture(both, [*memory, *target.weights()])
    for start in (5, 20):
        ids.copy_(IDS[start : start + 5])
        graph.replay()
        got = [part.clone() for part in graph.outputs]
        assert all(torch.equal(one, other) for one, other in zip(got, both(), strict=True))


def test_bfloat16_is_close_to_float64(directory: Path) -> None:
    got, expected = run(read(directory, torch.bfloat16)).logits, run(read(directory)).logits
    assert got.dtype == torch.bfloat16
    # 8 bits of mantissa, weights rounded too; and now and then another expert.
    wrong = (got.double() - expected).norm(dim=1) / expected.norm(dim=1)
    assert 1e-4 < float(wrong.median()) < 0.3


def test_weights_are_all_that_is_read(directory: Path) -> None:
    target = read(directory, torch.float32)
    model = load_witness(directory, read_fields(directory)["architectures"][0])
    stored = sum(parameter.numel() for parameter in model.parameters())
    corrections = sum(layer.mlp.correction.numel() for layer in target.layers if isinstance(layer.mlp, GroupedMoe))
    frequencies = sum(layer.mixer.inv_freq.numel() for layer in target.layers)
    zeros = sum(unbiased_rows(layer.mixer) for layer in target.layers)
    assert sum(tensor.numel() for tensor in target.weights()) == stored + corrections + frequencies + zeros


def unbiased_rows(attention: SelfAttention | LatentAttention) -> int:
    """Queries without a latent have no bias, for which the fused projection holds zeros."""
    if isinstance(attention, SelfAttention) or attention.bias is None or attention.queries is not None:
        return 0
    return attention.projection.shape[0] - attention.config.kv_lora_rank - attention.config.qk_rope_head_dim


def test_shapes_of_entries(directory: Path) -> None:
    target, fields = read(directory), read_fields(directory)
    shape = target.cache_shape
    latent = fields["model_type"] == "deepseek_v3"
    sizes = (fields["qk_nope_head_dim"] + fields["qk_rope_head_dim"], fields["v_head_dim"]) if latent else (16, 16)
    assert (shape.layers, shape.key_dim, shape.value_dim) == (3, *sizes)
    assert shape.kv_heads == (6 if latent else 2)
    assert target.layer_types == ("full_attention",) * 3
    assert target.state_shape is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_decode_on_a_gpu_is_close_to_float64(directory: Path, dtype: torch.dtype) -> None:
    expected = run(read(directory)).logits[:9]
    target = load_target(directory, "cuda", dtype)
    cpu = paged(target.cache_shape, T)
    keys, values = (tuple(pool.cuda() for pool in pools) for pools in (cpu.keys, cpu.values))
    at = place(cpu, [1] * 9, list(range(9)))
    cache = replace(cpu, keys=keys, values=values, page_table=cpu.page_table.cuda())
    on_gpu = AttentionMetadata(at.req_rows.cuda(), at.positions.cuda(), at.slot_mapping.cuda())
    got = target.logits(target.forward(IDS[:9].cuda(), on_gpu, cache)).cpu().double()
    wrong = (got - expected).norm(dim=1) / expected.norm(dim=1)
    # As on the CPU: in bfloat16 now and then another expert.
    assert float(wrong.median()) < (1e-4 if dtype == torch.float32 else 0.3)
