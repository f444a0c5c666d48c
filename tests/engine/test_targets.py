"""Targets of every architecture against transformers and the reference.

`T` tokens, `D` hidden width, `V` vocabulary.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from draftproof.engine.graphs.host import HostBackend
from draftproof.engine.models.base import AttentionMetadata, LayerOutputs
from draftproof.engine.models.deepseek_v3 import LatentAttention
from draftproof.engine.models.gated_attention import GatedAttention
from draftproof.engine.models.gated_delta import GatedDelta
from draftproof.engine.models.grouped_moe import GroupedMoe
from draftproof.engine.models.layers import SelfAttention
from draftproof.engine.models.registry import load_target
from draftproof.properties.formats.checkpoint_config import read_fields
from draftproof.reference.models.registry import load_target as load_reference
from tests.checkpoints import VOCAB
from tests.engine.naive import NaiveCache, where
from tests.engine.paged import paged, place
from tests.reference.witness import DENSE, GROUPED, HYBRID, MODELS, load_witness, parts, witnessed
from tests.widen import Widen

T = 70
IDS = torch.tensor([(i * i * 7 + 3 * i + 5) % VOCAB for i in range(T)])
# Both sides are float64; they differ in summation order only.
BOUND = 1e-11


@pytest.fixture(scope="module", params=MODELS)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return MODELS[request.param](tmp_path_factory.mktemp("target") / request.param)


of_hybrids = pytest.mark.parametrize("path", HYBRID, indirect=True, scope="module")
without_states = pytest.mark.parametrize("path", DENSE | GROUPED, indirect=True, scope="module")


@cache
def read(path: Path, dtype: torch.dtype = torch.float64) -> Any:
    return load_target(path, "cpu", dtype)


@cache
def told(path: Path) -> Tensor:
    """The logits of transformers in float32."""
    with torch.no_grad():
        return load_witness(path).float()(IDS[None], use_cache=False).logits[0]


@cache
def ran(path: Path, dtype: torch.dtype = torch.float64, cuts: tuple[int, ...] = ()) -> dict[str, Tensor]:
    return run(read(path, dtype), cuts)


def run(target: Any, cuts: Sequence[int] = (), ids: Tensor = IDS) -> dict[str, Tensor]:
    """One request from position 0, in one pass or in parts that begin at `cuts`, in the names of the witness.

    `states{i}` are those after every token.
    """
    cache, count, kinds = NaiveCache(target.state_shape), len(ids), target.layer_types
    hidden, outputs = list[Tensor](), list[Tensor]()
    for start, end in zip((0, *cuts), (*cuts, count), strict=True):
        asked = LayerOutputs(tuple(range(len(kinds))))
        at = where([2] * (end - start), list(range(start, end)))
        hidden.append(target.forward(ids[start:end], at, cache, asked))
        outputs.append(asked.concatenated())
    whole, layers = torch.cat(hidden), torch.cat(outputs).chunk(len(kinds), 1)
    found = {"hidden": whole, "logits": target.logits(whole), "before_norm": layers[-1]}
    found |= {f"layer{i}": layer for i, layer in enumerate(layers)}
    for i in range(kinds.count("full_attention")):
        kept = [cache.entries[i, 2, position] for position in range(count)]
        found |= {f"k{i}": torch.stack([k for k, _ in kept]), f"v{i}": torch.stack([v for _, v in kept])}
    for i in range(kinds.count("linear_attention")):
        after = [cache.states[i, 2, position] for position in range(count)]
        found[f"states{i}"] = torch.stack([torch.cat((window.flatten(), matrix.flatten())) for window, matrix in after])
    return found


def relative(got: Tensor, expected: Tensor) -> float:
    return float((got.double() - expected.double()).norm() / expected.double().norm())


def worst(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> float:
    """The largest difference of those that the others have."""
    return max(relative(ours[name], value) for name, value in theirs.items())


def test_float64_agrees_with_widened_transformers(path: Path) -> None:
    """Hidden states, logits, the output of every layer, and its entries: expanded keys and values of latent ones."""
    model = load_witness(path)
    with Widen():
        expected = witnessed(model, IDS.tolist())
    found = {**ran(path)}
    found |= {name.replace("states", "state"): value[-1] for name, value in found.items() if "states" in name}
    assert worst(found, expected) < BOUND
    assert torch.equal(found["logits"].argmax(1), expected["logits"].argmax(1))


def test_float64_equals_the_reference(path: Path) -> None:
    expected = load_reference(path).forward(IDS.tolist())
    target, found = read(path), ran(path)
    named = {name: value for name, value in parts(expected).items() if not name.startswith("state")}
    assert worst(found, named | {f"states{i}": state for i, state in enumerate(expected.states)}) < BOUND
    assert torch.equal(found["logits"].argmax(1), expected.logits.argmax(1))
    assert len(expected.kv) == target.cache_shape.layers
    assert len(expected.states) == (target.state_shape.layers if target.state_shape else 0)


@pytest.mark.parametrize("cuts", [(), tuple(range(1, T)), tuple(range(9, T, 9))], ids=["whole", "tokens", "chunks"])
def test_float32_agrees_with_transformers(path: Path, cuts: tuple[int, ...]) -> None:
    expected, got = told(path), ran(path, torch.float32, cuts)["logits"]
    assert got.dtype == torch.float32
    assert relative(got, expected) < 1e-4
    assert torch.equal(got.argmax(1), expected.argmax(1))


@pytest.mark.parametrize("cuts", [(17, 22, 27, 32), tuple(range(1, T))], ids=["verify", "tokens"])
def test_prefill_and_verify_rows_equal_one_pass(path: Path, cuts: tuple[int, ...]) -> None:
    assert worst(ran(path, cuts=cuts), ran(path)) < 1e-12


def test_requests_share_a_pass(path: Path) -> None:
    target = read(path)
    first, second = IDS[:12], IDS[12:24]
    cache = NaiveCache(target.state_shape)
    target.forward(torch.cat((first[:7], second[:4])), where([1] * 7 + [2] * 4, [*range(7), *range(4)]), cache)
    mixed = where([2] * 8 + [1] * 5, [*range(4, 12), *range(7, 12)])
    got = target.logits(target.forward(torch.cat((second[4:], first[7:])), mixed, cache))
    alone = [run(target, ids=ids)["logits"] for ids in (first, second)]
    assert relative(got, torch.cat((alone[1][4:], alone[0][7:]))) < 1e-12


def test_bfloat16_is_close_to_float64(path: Path) -> None:
    target = read(path, torch.bfloat16)
    got, expected = run(target)["logits"], ran(path)["logits"]
    assert got.dtype == torch.bfloat16
    if target.state_shape is not None:
        assert (target.state_shape.dtype, target.state_shape.state_dtype) == (torch.bfloat16, torch.float32)
    wrong = (got.double() - expected).norm(dim=1) / expected.norm(dim=1)
    # 8 bits of mantissa, weights rounded too; and now and then another expert.
    assert 1e-4 < float(wrong.median()) < (6e-2 if path.name in DENSE else 0.3)


def test_weights_are_all_that_is_read(path: Path) -> None:
    target, model = read(path, torch.float32), load_witness(path)
    mixers = [layer.mixer for layer in target.layers]
    # One tensor may be that of all layers.
    found = [mixer.inv_freq for mixer in mixers if not isinstance(mixer, GatedDelta)]
    frequencies = {tensor.data_ptr(): tensor.numel() for tensor in found}
    stored = sum(parameter.numel() for parameter in model.parameters())
    corrections = sum(layer.mlp.correction.numel() for layer in target.layers if isinstance(layer.mlp, GroupedMoe))
    zeros = sum(map(unbiased_rows, mixers))
    counted = sum(tensor.numel() for tensor in target.weights())
    assert (len(list(path.glob("*.safetensors"))) > 1) == (path.name == "llama-sharded")
    assert counted == stored + corrections + sum(frequencies.values()) + zeros


def unbiased_rows(attention: object) -> int:
    """Queries without a latent have no bias, for which the fused projection holds zeros."""
    if not isinstance(attention, LatentAttention) or attention.bias is None or attention.queries is not None:
        return 0
    return attention.projection.shape[0] - attention.config.kv_lora_rank - attention.config.qk_rope_head_dim


def test_shapes_of_entries_and_layers_by_their_type(path: Path) -> None:
    target, fields = read(path), read_fields(path)
    shape, is_latent = target.cache_shape, fields["model_type"] == "deepseek_v3"
    full = LatentAttention if is_latent else GatedAttention if path.name in HYBRID else SelfAttention
    kinds = {"full_attention": full, "linear_attention": GatedDelta}
    assert [type(layer.mixer) for layer in target.layers] == [kinds[name] for name in target.layer_types]
    for kind in kinds.values():
        indices = [layer.mixer.index for layer in target.layers if type(layer.mixer) is kind]
        assert indices == list(range(len(indices)))
    assert shape.layers == target.layer_types.count("full_attention")
    assert (target.state_shape.layers if target.state_shape else 0) == target.layer_types.count("linear_attention")
    if path.name not in HYBRID:
        latent = (fields["qk_nope_head_dim"] + fields["qk_rope_head_dim"], fields["v_head_dim"]) if is_latent else ()
        assert (shape.layers, shape.key_dim, shape.value_dim) == (3, *(latent or (16, 16)))
        assert shape.kv_heads == (6 if is_latent else 2)


@without_states
def test_a_captured_pass_follows_its_inputs(path: Path) -> None:
    """Other tokens, and so other experts, from the same graph."""
    target = read(path, torch.float32)
    cache = paged(target.cache_shape, T)
    ids, at = IDS[:5].clone(), place(cache, [1] * 5, list(range(5)))
    memory = [ids, at.req_rows, at.positions, at.slot_mapping, cache.page_table, *cache.keys, *cache.values]

    def both() -> tuple[Tensor, ...]:
        asked = LayerOutputs((0, 1))
        return target.logits(target.forward(ids, at, cache, asked)), asked.concatenated()

    graph = HostBackend().capture(both, [*memory, *target.weights()])
    for start in (5, 20):
        ids.copy_(IDS[start : start + 5])
        graph.replay()
        got = [part.clone() for part in graph.outputs]
        assert all(torch.equal(one, other) for one, other in zip(got, both(), strict=True))


@of_hybrids
def test_what_stays_in_float32(path: Path) -> None:
    """Decay rates and norms (1 + weight) are not rounded to bfloat16."""
    target, exact = (read(path, dtype) for dtype in (torch.bfloat16, torch.float32))
    for layer, other in zip(target.layers, exact.layers, strict=True):
        assert torch.equal(layer.norm, other.norm)
        assert torch.equal(layer.mlp_norm, other.mlp_norm)
        if isinstance(layer.mixer, GatedDelta) and isinstance(other.mixer, GatedDelta):
            assert torch.equal(layer.mixer.recurrent.a_log, other.mixer.recurrent.a_log)
            assert torch.equal(layer.mixer.recurrent.dt_bias, other.mixer.recurrent.dt_bias)
            assert torch.equal(layer.mixer.norm, other.mixer.norm)
            assert layer.mixer.projection.dtype == torch.bfloat16


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("tokens", [1, 4, 9])
def test_decode_on_a_gpu_is_close_to_float64(path: Path, tokens: int, dtype: torch.dtype) -> None:
    expected = run(read(path), ids=IDS[:tokens])["logits"]
    target = load_target(path, "cuda", dtype)
    at, cache = where([1] * tokens, list(range(tokens))), NaiveCache(target.state_shape)
    if path.name in GROUPED:
        cpu = paged(target.cache_shape, T)
        at = place(cpu, [1] * tokens, list(range(tokens)))
        keys, values = (tuple(pool.cuda() for pool in pools) for pools in (cpu.keys, cpu.values))
        cache = replace(cpu, keys=keys, values=values, page_table=cpu.page_table.cuda())  # type: ignore[assignment]
    on_gpu = AttentionMetadata(at.req_rows.cuda(), at.positions.cuda(), at.slot_mapping.cuda())
    got = target.logits(target.forward(IDS[:tokens].cuda(), on_gpu, cache)).cpu().double()
    wrong = (got - expected).norm(dim=1) / expected.norm(dim=1)
    # As on the CPU: in bfloat16 now and then another expert.
    assert float(wrong.median()) < (1e-4 if dtype == torch.float32 else 6e-2 if path.name in DENSE else 0.3)
