"""Llama targets and EAGLE heads against transformers and the reference.

`T` tokens, `N` kv heads, `H` head size, `V` vocabulary.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from draftproof.engine.models import llama as llama_module
from draftproof.engine.models.base import AttentionMetadata, LayerOutputs, TokenInput
from draftproof.engine.models.eagle_head import EagleHead
from draftproof.engine.models.llama import Llama
from draftproof.engine.models.registry import load_target
from draftproof.kernels.registry import CALLS
from draftproof.properties.weights.eagle import random_head
from draftproof.reference.models.eagle_head import ReferenceEagleHead, head_sizes
from draftproof.reference.models.registry import load_target as load_reference
from tests.engine.naive import NaiveCache, where
from tests.engine.paged import kept, paged, place

# Both sides are float64; they differ in summation order only.
BOUND = 1e-9
VOCAB = 97
SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 42,
    "intermediate_size": 72,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 10,
    "max_position_embeddings": 512,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
MODELS: dict[str, Callable[[], PreTrainedModel]] = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES)),
    "llama-tied": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, tie_word_embeddings=True)),
    "llama3-rope": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, rope_parameters=LLAMA3)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SIZES, tie_word_embeddings=False)),
}


def save(directory: Path, name: str, **options: str) -> PreTrainedModel:
    """A model with weights large enough that every part of it shows in the output."""
    torch.manual_seed(7)
    model = MODELS[name]().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(
                torch.randn(parameter.shape) * (0.3 if parameter.dim() == 2 else 0.5) + (parameter.dim() == 1)
            )
    model.save_pretrained(directory, **options)
    return model


def run(dense: Llama, ids: torch.Tensor) -> torch.Tensor:
    """Logits [T, V] of one sequence from position 0, in one call."""
    hidden = dense.forward(ids, where([1] * len(ids), list(range(len(ids)))), NaiveCache())
    return dense.logits(hidden)


def relative(got: torch.Tensor, expected: torch.Tensor) -> float:
    return float((got.double() - expected.double()).norm() / expected.double().norm())


@pytest.mark.parametrize("name", MODELS)
def test_agrees_with_transformers_in_float32(tmp_path: Path, name: str) -> None:
    model = save(tmp_path, name)
    ids = torch.randint(0, VOCAB, (150,))
    with torch.no_grad():
        expected = model(ids[None]).logits[0]
    wide = run(load_target(tmp_path, "cpu", torch.float64), ids)
    narrow = run(load_target(tmp_path, "cpu", torch.float32), ids)
    assert wide.dtype == torch.float64
    assert narrow.dtype == torch.float32
    # float32 rounding over three layers, and angles of up to 150 radians held in float32.
    assert relative(wide, expected) < 1e-4
    assert relative(narrow, expected) < 1e-4
    assert torch.equal(narrow.argmax(1), expected.argmax(1))


@pytest.mark.parametrize("name", MODELS)
def test_chunks_and_rows_change_nothing(tmp_path: Path, name: str) -> None:
    save(tmp_path, name)
    dense = load_target(tmp_path, "cpu", torch.float64)
    first, second = torch.randint(0, VOCAB, (2, 12))
    cache = NaiveCache()
    ids = torch.cat((first[:7], second[:4]))
    dense.forward(ids, where([1] * 7 + [2] * 4, [*range(7), *range(4)]), cache)
    ids = torch.cat((second[4:], first[7:]))
    hidden = dense.forward(ids, where([2] * 8 + [1] * 5, [*range(4, 12), *range(7, 12)]), cache)
    expected = torch.cat((run(dense, second)[4:], run(dense, first)[7:]))
    assert relative(dense.logits(hidden), expected) < 1e-12


def test_bfloat16_is_close_to_float64(tmp_path: Path) -> None:
    save(tmp_path, "llama")
    ids = torch.randint(0, VOCAB, (20,))
    got = run(load_target(tmp_path, "cpu", torch.bfloat16), ids)
    expected = run(load_target(tmp_path, "cpu", torch.float64), ids)
    assert got.dtype == torch.bfloat16
    # 8 bits of mantissa, weights rounded too.
    assert 1e-4 < relative(got, expected) < 6e-2


def test_weights_are_all_that_is_read(tmp_path: Path) -> None:
    model = save(tmp_path, "qwen3")
    dense = load_target(tmp_path, "cpu", torch.float32)
    counted = sum(tensor.numel() for tensor in dense.weights())
    assert counted == sum(parameter.numel() for parameter in model.parameters()) + SIZES["head_dim"] // 2


def test_sharded_checkpoint_equals_single_file(tmp_path: Path) -> None:
    save(tmp_path / "single", "llama")
    save(tmp_path / "sharded", "llama", max_shard_size="40KB")
    assert len(list((tmp_path / "sharded").glob("*.safetensors"))) > 1
    ids = torch.arange(9)
    single, sharded = (run(load_target(tmp_path / name, "cpu", torch.float32), ids) for name in ("single", "sharded"))
    assert torch.equal(single, sharded)


@pytest.mark.parametrize("name", MODELS)
def test_target_equals_reference(tmp_path: Path, name: str) -> None:
    save(tmp_path, name)
    ids = torch.randint(0, VOCAB, (150,))
    expected = load_reference(tmp_path).forward(ids.tolist())
    dense = load_target(tmp_path, "cpu", torch.float64)
    cache = NaiveCache()
    hidden = dense.forward(ids, where([3] * 150, list(range(150))), cache)
    assert relative(hidden, expected.hidden) < BOUND
    assert relative(dense.logits(hidden), expected.logits) < BOUND
    assert torch.equal(dense.logits(hidden).argmax(1), expected.logits.argmax(1))
    for layer, (keys, values) in enumerate(expected.kv):
        got = [cache.entries[layer, 3, position] for position in range(150)]
        assert relative(torch.stack([k for k, _ in got]), keys) < BOUND
        assert relative(torch.stack([v for _, v in got]), values) < BOUND


@pytest.mark.parametrize("name", ["llama", "llama3-rope", "qwen3"])
def test_head_equals_reference(tmp_path: Path, name: str) -> None:
    save(tmp_path, name)
    reference = load_reference(tmp_path)
    dense = load_target(tmp_path, "cpu", torch.float64)
    arrays = random_head(head_sizes(reference), 11)
    tensors = {key: torch.from_numpy(array).double() for key, array in arrays.items()}
    head = EagleHead(dense.eagle_config(dense.config), tensors, dense)
    ids = torch.randint(0, VOCAB, (40,))
    hidden = torch.randn(40, dense.width, dtype=torch.float64)
    expected = ReferenceEagleHead.from_arrays(reference, arrays).forward(ids.tolist(), hidden)
    states, handed = head.forward(ids, hidden, where([1] * 40, list(range(40))), NaiveCache())
    assert relative(handed, expected.g) < BOUND
    assert relative(head.logits(states), expected.logits) < BOUND


def test_argmax_over_a_generation_equals_reference(tmp_path: Path) -> None:
    save(tmp_path, "qwen3")
    dense, reference = load_target(tmp_path, "cpu", torch.float64), load_reference(tmp_path)
    tokens = [5, 17, 60]
    for _ in range(12):
        chosen = int(run(dense, torch.tensor(tokens))[-1].argmax())
        assert chosen == int(reference.forward(tokens).logits[-1].argmax())
        tokens.append(chosen)


@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_narrow_path_computes_the_same(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, name)
    dense = load_target(tmp_path, "cpu", torch.float64)
    ids = torch.randint(0, VOCAB, (9,))
    expected = run(dense, ids)
    calls = []
    monkeypatch.setattr(llama_module, "is_narrow", lambda x, sizes: calls.append(x.shape) or True)
    assert relative(run(dense, ids), expected) < 1e-12
    assert len(calls) == 2


@pytest.mark.parametrize(("name", "longest", "calls"), [("llama", 20, 27), ("llama", 1500, 0), ("qwen3", 20, 0)])
def test_a_token_alone_attends_in_one_op_where_that_is_possible(
    tmp_path: Path, name: str, longest: int, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not over a long table, and not where heads are normed; what is computed and stored is the same."""
    save(tmp_path, name)
    dense = load_target(tmp_path, "cpu", torch.float64)
    ids = torch.randint(0, VOCAB, (9,))
    whole, one_by_one = paged(dense.cache_shape, longest), paged(dense.cache_shape, longest)
    expected = dense.forward(ids, place(whole, [2] * 9, list(range(9))), whole)
    monkeypatch.setattr(llama_module, "is_narrow", lambda x, sizes: True)
    before = CALLS["token_attention"]
    got = [dense.forward(ids[i : i + 1], place(one_by_one, [2], [i]), one_by_one) for i in range(9)]
    assert relative(torch.cat(got), expected) < 1e-12
    assert CALLS["token_attention"] - before == calls
    for left, right in zip(kept(one_by_one, 2, 2, 9), kept(whole, 2, 2, 9), strict=True):
        assert relative(left, right) < 1e-12


def test_a_token_that_sees_something_else_does_not_attend_in_one_op(tmp_path: Path) -> None:
    save(tmp_path, "llama")
    dense = load_target(tmp_path, "cpu", torch.float64)
    cache = paged(dense.cache_shape, 20)
    mixer, x = dense.layers[0].mixer, torch.ones((1, SIZES["hidden_size"]), dtype=torch.float64)
    token = TokenInput(x, dense.layers[0].norm, mixer.projection, 1e-5, mixer.inv_freq)
    seen = place(cache, [2], [0])
    assert cache.attend_token(0, token, seen, 1.0) is not None
    for other in (place(cache, [2], [0], [3]), replace(seen, visible_slots=seen.slot_mapping[:, None])):
        assert cache.attend_token(0, token, other, 1.0) is None
    windowed = replace(cache, windows=(0, 4, 0))
    assert [windowed.attend_token(layer, token, seen, 1.0) is None for layer in range(3)] == [False, True, False]
    assert replace(cache, fp8=((1.0, 1.0),) * 3).attend_token(0, token, seen, 1.0) is None


@pytest.mark.parametrize("narrow", [False, True])
def test_outputs_of_layers_are_those_of_transformers(
    tmp_path: Path, narrow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Residual included, of chosen layers, in the order asked for; the last one's before the final norm."""
    model = save(tmp_path, "qwen3").double()
    ids, seen = torch.randint(0, VOCAB, (9,)), []
    for layer in model.model.layers:
        layer.register_forward_hook(lambda *found: seen.append(found[2][0]))
    with torch.no_grad():
        model(ids[None], use_cache=False)
    monkeypatch.setattr(llama_module, "is_narrow", lambda x, sizes: narrow)
    told, kept = [], LayerOutputs((2, 0))
    save_one = kept.record
    monkeypatch.setattr(kept, "record", lambda layer, output: told.append(layer) or save_one(layer, output))
    dense = load_target(tmp_path, "cpu", torch.float64)
    dense.forward(ids, where([1] * 9, list(range(9))), NaiveCache(), kept)
    assert told == [0, 1, 2, -1]
    # transformers computes norms and angles in float32.
    assert relative(kept.concatenated(), torch.cat((seen[2], seen[0]), 1)) < 1e-5


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("tokens", [1, 4, 5])
def test_decode_on_a_gpu_is_close_to_float64(tmp_path: Path, tokens: int, dtype: torch.dtype) -> None:
    save(tmp_path, "llama")
    ids = torch.randint(0, VOCAB, (tokens,))
    expected = run(load_target(tmp_path, "cpu", torch.float64), ids)
    dense = load_target(tmp_path, "cuda", dtype)
    at = where([1] * tokens, list(range(tokens)))
    on_gpu = AttentionMetadata(at.req_rows.cuda(), at.positions.cuda(), at.slot_mapping.cuda())
    got = dense.logits(dense.forward(ids.cuda(), on_gpu, NaiveCache())).cpu()
    assert relative(got, expected) < (1e-4 if dtype == torch.float32 else 6e-2)
