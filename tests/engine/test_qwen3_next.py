"""Qwen3Next targets and their built-in drafts against transformers and the reference.

`T` tokens, `D` hidden width, `V` vocabulary.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM, DynamicCache, PreTrainedModel

from draftproof.engine.models.base import AttentionMetadata, LayerOutputs
from draftproof.engine.models.checkpoint import open_tensors
from draftproof.engine.models.gated_attention import GatedAttention
from draftproof.engine.models.gated_delta import GatedDelta
from draftproof.engine.models.mtp_chain import FirstLayer
from draftproof.engine.models.qwen3_next import Qwen3Next
from draftproof.engine.models.registry import load_target
from draftproof.properties.formats.checkpoint_config import read_fields
from draftproof.reference.models.registry import load_target as load_reference
from tests.checkpoints import tiny_qwen3_5, tiny_qwen3_5_moe, tiny_qwen3_next
from tests.engine.naive import NaiveCache, where
from tests.widen import Widen

WRITERS: dict[str, Callable[..., Path]] = {
    "qwen3_next": tiny_qwen3_next,
    "qwen3_5": tiny_qwen3_5,
    "qwen3_5_moe": tiny_qwen3_5_moe,
}
TOKENS = 70
# Both sides are float64; they differ in summation order only.
BOUND = 1e-11


@pytest.fixture(scope="module", params=WRITERS)
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return WRITERS[request.param](tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def ids(directory: Path) -> torch.Tensor:
    source = torch.Generator().manual_seed(3)
    return torch.randint(0, read_fields(directory)["vocab_size"], (TOKENS,), generator=source)


def witness(directory: Path) -> PreTrainedModel:
    """In float32."""
    options = {"attn_implementation": "eager", "experts_implementation": "eager"}
    return AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, **options).eval()


def run(target: Qwen3Next, ids: torch.Tensor, chunk: int = 0) -> torch.Tensor:
    """Logits [T, V] of one sequence from position 0, in one call or in chunks."""
    cache = NaiveCache(target.state_shape)
    hidden = [
        target.forward(part, where([1] * len(part), list(range(start, start + len(part)))), cache)
        for start, part in ((i, ids[i : i + (chunk or len(ids))]) for i in range(0, len(ids), chunk or len(ids)))
    ]
    return target.logits(torch.cat(hidden))


def relative(got: torch.Tensor, expected: torch.Tensor) -> float:
    return float((got.double() - expected.double()).norm() / expected.double().norm())


def test_float64_agrees_with_widened_transformers(directory: Path, ids: torch.Tensor) -> None:
    model = witness(directory).double()
    with torch.no_grad(), Widen():
        expected = model(ids[None], use_cache=False).logits[0]
    got = run(load_target(directory, "cpu", torch.float64), ids)
    assert relative(got, expected) < BOUND
    assert torch.equal(got.argmax(1), expected.argmax(1))


@pytest.mark.parametrize("chunk", [0, 1, 9])
def test_float32_agrees_with_transformers(directory: Path, ids: torch.Tensor, chunk: int) -> None:
    with torch.no_grad():
        expected = witness(directory)(ids[None], use_cache=False).logits[0]
    got = run(load_target(directory, "cpu", torch.float32), ids, chunk)
    assert got.dtype == torch.float32
    assert relative(got, expected) < 1e-4
    assert torch.equal(got.argmax(1), expected.argmax(1))


def test_decode_agrees_with_cached_transformers(directory: Path, ids: torch.Tensor) -> None:
    """Prefill of nine tokens, then one at a time on both sides."""
    model = witness(directory)
    cache = DynamicCache(config=model.config)
    with torch.no_grad():
        rows = [model(ids[None, :9], past_key_values=cache).logits[0]]
        rows += [model(ids[None, i : i + 1], past_key_values=cache).logits[0] for i in range(9, TOKENS)]
    assert relative(run(load_target(directory, "cpu", torch.float32), ids, 1), torch.cat(rows)) < 1e-4


def test_float64_equals_the_reference(directory: Path, ids: torch.Tensor) -> None:
    """Hidden states, logits, entries, and the states after every token."""
    expected = load_reference(directory).forward(ids.tolist())
    target = load_target(directory, "cpu", torch.float64)
    cache = NaiveCache(target.state_shape)
    hidden = target.forward(ids, where([3] * TOKENS, list(range(TOKENS))), cache)
    assert relative(hidden, expected.hidden) < BOUND
    assert relative(target.logits(hidden), expected.logits) < BOUND
    assert target.state_shape is not None
    assert (len(expected.kv), len(expected.states)) == (target.cache_shape.layers, target.state_shape.layers)
    for layer, (keys, values) in enumerate(expected.kv):
        got = [cache.entries[layer, 3, position] for position in range(TOKENS)]
        assert relative(torch.stack([k for k, _ in got]), keys) < BOUND
        assert relative(torch.stack([v for _, v in got]), values) < BOUND
    for layer, states in enumerate(expected.states):
        after = [cache.states[layer, 3, position] for position in range(TOKENS)]
        flat = torch.stack([torch.cat((window.flatten(), matrix.flatten())) for window, matrix in after])
        assert relative(flat, states) < BOUND


def test_outputs_of_layers_are_those_of_transformers(directory: Path, ids: torch.Tensor) -> None:
    """Residual included, of linear and full layers alike, the last one's before the final norm."""
    model, seen = witness(directory).double(), []
    for layer in model.model.layers:
        layer.register_forward_hook(lambda *found: seen.append(found[2][0]))
    with torch.no_grad(), Widen():
        model(ids[None], use_cache=False)
    target = load_target(directory, "cpu", torch.float64)
    chosen = (len(seen) - 1, 2, 0)
    kept = LayerOutputs(chosen)
    target.forward(ids, where([1] * TOKENS, list(range(TOKENS))), NaiveCache(target.state_shape), kept)
    assert relative(kept.concatenated(), torch.cat([seen[layer] for layer in chosen], 1)) < BOUND


def test_chunks_and_rows_change_nothing(directory: Path, ids: torch.Tensor) -> None:
    target = load_target(directory, "cpu", torch.float64)
    first, second = ids[:12], ids[12:24]
    cache = NaiveCache(target.state_shape)
    target.forward(torch.cat((first[:7], second[:4])), where([1] * 7 + [2] * 4, [*range(7), *range(4)]), cache)
    mixed = where([2] * 8 + [1] * 5, [*range(4, 12), *range(7, 12)])
    hidden = target.forward(torch.cat((second[4:], first[7:])), mixed, cache)
    expected = torch.cat((run(target, second)[4:], run(target, first)[7:]))
    assert relative(target.logits(hidden), expected) < 1e-12


def test_bfloat16_is_close_to_float64(directory: Path, ids: torch.Tensor) -> None:
    target = load_target(directory, "cpu", torch.bfloat16)
    got = run(target, ids[:20])
    expected = run(load_target(directory, "cpu", torch.float64), ids[:20])
    assert got.dtype == torch.bfloat16
    assert target.state_shape is not None
    assert (target.state_shape.dtype, target.state_shape.state_dtype) == (torch.bfloat16, torch.float32)
    # 8 bits of mantissa, weights rounded too; and now and then another expert.
    assert 1e-4 < relative(got, expected) < 0.3


def test_what_stays_in_float32(directory: Path) -> None:
    """Decay rates and norms (1 + weight) are not rounded to bfloat16."""
    target, exact = (load_target(directory, "cpu", dtype) for dtype in (torch.bfloat16, torch.float32))
    for layer, other in zip(target.layers, exact.layers, strict=True):
        assert torch.equal(layer.norm, other.norm)
        assert torch.equal(layer.mlp_norm, other.mlp_norm)
        if isinstance(layer.mixer, GatedDelta) and isinstance(other.mixer, GatedDelta):
            assert torch.equal(layer.mixer.recurrent.a_log, other.mixer.recurrent.a_log)
            assert torch.equal(layer.mixer.recurrent.dt_bias, other.mixer.recurrent.dt_bias)
            assert torch.equal(layer.mixer.norm, other.mixer.norm)
            assert layer.mixer.projection.dtype == torch.bfloat16


def test_layers_route_by_their_type(directory: Path) -> None:
    target = load_target(directory, "cpu", torch.float32)
    kinds = {"full_attention": GatedAttention, "linear_attention": GatedDelta}
    assert [type(layer.mixer) for layer in target.layers] == [kinds[name] for name in target.layer_types]
    for kind in kinds.values():
        indices = [layer.mixer.index for layer in target.layers if type(layer.mixer) is kind]
        assert indices == list(range(len(indices)))
    assert target.cache_shape.layers == target.layer_types.count("full_attention")
    assert target.state_shape is not None
    assert target.state_shape.layers == target.layer_types.count("linear_attention")


def test_weights_are_all_that_is_read(directory: Path) -> None:
    target = load_target(directory, "cpu", torch.float32)
    attention = sum(isinstance(layer.mixer, GatedAttention) for layer in target.layers)
    parameters = sum(parameter.numel() for parameter in witness(directory).parameters())
    counted = sum(tensor.numel() for tensor in target.weights())
    assert (
        counted
        == parameters
        + attention * int(target.config.head_dim * target.config.rope_parameters.partial_rotary_factor) // 2
    )


def mtp_of(directory: Path, target: Qwen3Next) -> FirstLayer:
    """As an EAGLE head."""
    tensors = open_tensors(directory, "cpu", target.hidden_dtype)
    return FirstLayer(target.built_in_draft(read_fields(directory), tensors, 1, chain=True))


def test_mtp_equals_the_reference(directory: Path, ids: torch.Tensor) -> None:
    target = load_target(directory, "cpu", torch.float64)
    head = mtp_of(directory, target)
    hidden = torch.randn(TOKENS, target.width, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    expected = load_reference(directory).mtp_layers(directory)[0].forward(ids.tolist(), hidden)
    states, handed = head.forward(ids, hidden, where([1] * TOKENS, list(range(TOKENS))), NaiveCache())
    assert relative(handed, expected.g) < BOUND
    assert relative(head.logits(states), expected.logits) < BOUND


def test_mtp_is_a_layer_of_transformers_between_its_norms(directory: Path, ids: torch.Tensor) -> None:
    """The layer and the norms of a transformers model of one full attention layer, with the MTP's weights in it."""
    dtype = torch.float64
    target = load_target(directory, "cpu", dtype)
    head = mtp_of(directory, target)
    tensors = open_tensors(directory, "cpu", dtype)
    hidden = torch.randn(TOKENS, target.width, dtype=dtype, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = transformers_mtp(directory, ids, hidden, {name: tensors[name] for name in tensors})
    cache = NaiveCache()
    got = torch.cat(
        [
            head.forward(ids[part], hidden[part], where([4] * len(ids[part]), list(range(TOKENS))[part]), cache)[0]
            for part in (slice(0, 30), slice(30, 31), slice(31, TOKENS))
        ]
    )
    assert relative(got, expected) < BOUND
    assert torch.equal(head.logits(got), F.linear(got, tensors["lm_head.weight"]))
    assert head.cache_shape.layers == 1


def transformers_mtp(
    directory: Path, ids: torch.Tensor, hidden: torch.Tensor, tensors: dict[str, torch.Tensor]
) -> torch.Tensor:
    model = witness(directory).double()
    text = model.model
    full = text.config.layer_types.index("full_attention")
    layer = text.layers[full]
    load_layer(layer, {name: value for name, value in tensors.items() if name.startswith("mtp.layers.0.")})
    text.layers = torch.nn.ModuleList([layer])
    text.config.num_hidden_layers, text.config.layer_types = 1, ["full_attention"]
    layer.self_attn.layer_idx = 0
    text.norm.weight.data.copy_(tensors["mtp.norm.weight"])

    def normed(x: torch.Tensor, name: str) -> torch.Tensor:
        scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + text.config.rms_norm_eps)
        return x * scale * (1 + tensors[f"mtp.pre_fc_norm_{name}.weight"])

    embedded = text.embed_tokens(ids)
    x = torch.cat((normed(embedded, "embedding"), normed(hidden, "hidden")), 1) @ tensors["mtp.fc.weight"].T
    with Widen():
        return text(inputs_embeds=x[None], use_cache=False).last_hidden_state[0]


def load_layer(layer: torch.nn.Module, tensors: dict[str, torch.Tensor]) -> None:
    """Copy tensors of a checkpoint, experts one by one, into a module with its experts in one tensor."""
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            prefix = f"mtp.layers.0.{name}"
            if name.endswith("experts.gate_up_proj"):
                parts = [
                    torch.cat(
                        [tensors[prefix.replace("gate_up_proj", f"{i}.{part}_proj.weight")] for part in ("gate", "up")]
                    )
                    for i in range(parameter.shape[0])
                ]
                parameter.copy_(torch.stack(parts))
            elif name.endswith("experts.down_proj"):
                parts = [tensors[prefix.replace("down_proj", f"{i}.down_proj.weight")] for i in range(len(parameter))]
                parameter.copy_(torch.stack(parts))
            else:
                parameter.copy_(tensors[prefix])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_decode_on_a_gpu_is_close_to_float64(directory: Path, ids: torch.Tensor, dtype: torch.dtype) -> None:
    expected = run(load_target(directory, "cpu", torch.float64), ids[:9])
    target = load_target(directory, "cuda", dtype)
    at = where([1] * 9, list(range(9)))
    on_gpu = AttentionMetadata(at.req_rows.cuda(), at.positions.cuda(), at.slot_mapping.cuda())
    got = target.logits(target.forward(ids[:9].cuda(), on_gpu, NaiveCache(target.state_shape))).cpu()
    # As on the CPU: in bfloat16 now and then another expert.
    assert relative(got, expected) < (1e-4 if dtype == torch.float32 else 0.3)
