"""Entries in FP8: both roundings against torch's own, and the reference against transformers with torch's casts.

Shapes: `n` tokens, `V` vocabulary.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import DynamicCache

from draftproof.kernels.eager_fp8 import decoded, encoded
from draftproof.properties.lib.errors import CheckpointError
from draftproof.properties.values.drafts import Ngram
from draftproof.properties.values.scenario import Checkpoint
from draftproof.properties.values.trace import Key
from draftproof.reference.checkpoints import load
from draftproof.reference.memo import ALL_SURE, Memo
from draftproof.reference.models.fp8 import LARGEST_FP8, Fp8, e4m3, scales_of
from draftproof.reference.stored import Following
from tests.checkpoints import SIZES, VOCAB, tiny_llama, tiny_qwen3
from tests.reference.witness import TOKENS, load_witness
from tests.widen import Widen

BYTES = torch.arange(256, dtype=torch.uint8)
NUMBERS = BYTES.view(torch.float8_e4m3fn).double()
FINITE = NUMBERS[NUMBERS.isfinite()].unique()
LAYERS = SIZES["num_hidden_layers"]
# No two alike, of float32; with the first the largest keys are beyond what FP8 holds.
SCALES = tuple((float(np.float32(0.002 * (i + 1))), float(np.float32(0.3 / (i + 1)))) for i in range(LAYERS))


def boundaries() -> Tensor:
    """Return all numbers, all middles of two, and the float32 beside each; beyond the largest, too."""
    middles = (FINITE[1:] + FINITE[:-1]) / 2
    around = torch.cat((FINITE, middles, torch.tensor([448.5, 463.9, 464.0, 465.0, 480.0, 1e9]))).float()
    beside = [torch.nextafter(around, torch.tensor(end)) for end in (-torch.inf, torch.inf)]
    return torch.cat((around, *beside))


def witness(x: Tensor) -> Tensor:
    return x.clamp(-LARGEST_FP8, LARGEST_FP8).to(torch.float8_e4m3fn).double()


def test_every_byte_is_read_as_torch_reads_it():
    torch.testing.assert_close(decoded(BYTES, torch.float64), NUMBERS, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(e4m3(FINITE), FINITE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_every_boundary_is_rounded_as_torch_rounds_it(dtype: torch.dtype):
    x = boundaries()
    assert torch.equal(e4m3(x.to(dtype)).double(), witness(x))
    assert torch.equal(decoded(encoded(x, 1.0), torch.float64), witness(x))


def test_all_numbers_of_bfloat16_are_rounded_as_torch_rounds_them():
    bits = torch.arange(1 << 16).to(torch.int32).sub(1 << 15).to(torch.int16)
    x = bits.view(torch.bfloat16).float()
    x = x[x.isfinite()]
    assert torch.equal(e4m3(x).double(), witness(x))
    assert torch.equal(encoded(x, 0.37), encoded(x / torch.tensor(0.37), 1.0))


class WitnessCache(DynamicCache):
    """A cache of transformers that passes everything through torch's own FP8."""

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **more: Any) -> Any:
        pairs = zip((key_states, value_states), SCALES[layer_idx], strict=True)
        read = [witness(x / s) * s for x, s in pairs]
        return super().update(*read, layer_idx, *args, **more)


def with_scales(path: Path) -> Path:
    """Add the scales, of every other layer under the shorter name."""
    stored = load_file(path / "model.safetensors")
    for i, scales in enumerate(SCALES):
        for part, scale in zip("kv", scales, strict=True):
            name = f"model.layers.{i}.self_attn." + (f"{part}_proj." if i % 2 else "") + f"{part}_scale"
            stored[name] = torch.tensor([scale] if i % 2 else scale)
    save_file(stored, path / "model.safetensors", metadata={"format": "pt"})
    return path


@pytest.mark.parametrize("write", [tiny_llama, tiny_qwen3], ids=["llama", "qwen3"])
def test_the_reference_computes_what_transformers_does_with_torchs_casts(write: Any, tmp_path: Path):
    path = write(tmp_path)
    model = load_witness(path)
    with_scales(path)
    cache = WitnessCache()
    with torch.no_grad(), Widen():
        expected = model(torch.tensor([TOKENS]), past_key_values=cache, use_cache=True).logits[0]
    kept, plain = (
        load(Checkpoint(path=str(path), vocab=VOCAB, kv_cache_dtype=dtype), Ngram(max_n=1), Memo())[0]
        for dtype in ("fp8_e4m3", "auto")
    )
    found = torch.from_numpy(kept.forward(TOKENS).logits)
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11)
    assert not torch.allclose(torch.from_numpy(plain.forward(TOKENS).logits), expected, atol=1e-3)


def test_the_largest_keys_are_beyond_what_fp8_holds(tmp_path: Path):
    """Else nothing here shows a saturation."""
    path = with_scales(tiny_llama(tmp_path))
    model = Checkpoint(path=str(path), vocab=VOCAB, kv_cache_dtype="fp8_e4m3")
    keys = load(model, Ngram(max_n=1), Memo())[0].forward(TOKENS).kv[0][:, : 2 * 16]
    assert np.abs(keys).max() == 448.0 * SCALES[0][0]


def test_scales_are_those_of_the_file_and_else_one(tmp_path: Path):
    path = with_scales(tiny_llama(tmp_path))
    found = scales_of(str(path), [f"model.layers.{i}.self_attn" for i in range(LAYERS)])
    assert found == SCALES
    assert scales_of(str(path), ["model.layers.7.self_attn"]) == ((1.0, 1.0),)
    assert scales_of("", ["layers.0.self_attn"]) == ((1.0, 1.0),)


@pytest.mark.parametrize("scale", [torch.tensor(0.0), torch.tensor(-1.0), torch.tensor(torch.nan), torch.ones(2)])
def test_a_scale_that_is_none_is_refused(scale: Tensor, tmp_path: Path):
    path = tiny_llama(tmp_path)
    stored = load_file(path / "model.safetensors")
    save_file({**stored, "model.layers.0.self_attn.v_scale": scale}, path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"layers\.0\.self_attn\.v_scale.*expected one positive number"):
        scales_of(str(path), ["model.layers.0.self_attn"])


def followed(stored: float, x: float, slack: float = 1e-3) -> tuple[float, int]:
    """Return what the reference reads of one number x whose subject stored another, and the first unsure row of two.

    The second row has the same number, and no subject reports it.
    """
    entries = {"commit.kv": {Key(0, 0, -1, 0, 0): entry(stored)}}
    memo = Memo(following=Following(entries, [(3, 4)], lambda position: slack))
    store = Fp8(((1.0, 1.0),), "target", 0).store((3, 4), memo)
    k, v = store.kept(torch.tensor([[[x]], [[x]]], dtype=torch.float64), torch.ones(2, 1, 1, dtype=torch.float64))
    assert (v == 1).all()
    return float(k[0]), store.unsure


def entry(stored: float) -> np.ndarray:
    return np.array([stored, 1.0])


def test_an_entry_near_a_middle_is_what_the_subject_stored():
    """Numbers from 1 to 2 are an eighth apart."""
    assert followed(stored=1.125, x=1.0624) == (1.125, 1)
    assert followed(stored=1.0, x=1.0624) == (1.0, 1)
    assert followed(stored=1.0, x=1.0626) == (1.0, 1)


def test_any_other_entry_is_the_references_own():
    assert followed(stored=1.125, x=1.06) == (1.0, ALL_SURE)
    assert followed(stored=1.25, x=1.0624) == (1.0, 1)
    assert followed(stored=np.nan, x=1.0624) == (1.0, 1)
    assert followed(stored=1.0624, x=1.0624) == (1.0, 1), "not rounded at all"
    assert followed(stored=1.0, x=500.0, slack=1e-7) == (448.0, ALL_SURE)


def test_what_is_reported_later_is_followed_later_and_of_the_same_text_only():
    made = {Key(0, number, -1, 0, 0): entry(float(number)) for number in (0, 2)}
    following = Following({"commit.kv": made}, [(3, 4)], lambda position: 0.0)
    for round_, expected in ((0, 0.0), (1, 0.0), (2, 2.0), (3, 2.0)):
        following.move(0, round_)
        assert following.entries("target", (3, 4), 0)[0][0, 0] == expected
    assert len(following.entries("target", (9, 4), 0)[0]) == 0
    assert following.entries("draft", (4,), 1) == ()
