"""What dense targets compute in another way where there is little to do, and EAGLE heads against the reference.

`T` tokens, `N` kv heads, `H` head size, `V` vocabulary.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from msgspec import structs

from draftproof.engine.models import llama as llama_module
from draftproof.engine.models.base import LayerOutputs, TokenInput
from draftproof.engine.models.eagle_head import EagleHead
from draftproof.engine.models.llama import Llama
from draftproof.engine.models.registry import load_target
from draftproof.kernels.registry import CALLS
from draftproof.properties.weights.eagle import random_head
from draftproof.reference.models.eagle_head import ReferenceEagleHead, head_sizes
from draftproof.reference.models.registry import load_target as load_reference
from tests.engine.naive import NaiveCache, where
from tests.engine.paged import kept, paged, place
from tests.engine.test_targets import relative
from tests.reference.witness import DENSE, TOKENS, load_witness, witnessed
from tests.widen import Widen

# Both sides are float64; they differ in summation order only.
BOUND = 1e-9
IDS = torch.tensor(TOKENS[:9])


@pytest.fixture
def dense(request: pytest.FixtureRequest, tmp_path: Path) -> Llama:
    """A target in float64, by default a Llama."""
    return load_target(DENSE[getattr(request, "param", "llama")](tmp_path), "cpu", torch.float64)


of = partial(pytest.mark.parametrize, "dense", indirect=True)


@of(["llama", "llama-llama3-rope", "qwen3"])
def test_head_equals_reference(dense: Llama, tmp_path: Path) -> None:
    reference = load_reference(tmp_path)
    arrays = random_head(head_sizes(reference), 11)
    tensors = {key: torch.from_numpy(array).double() for key, array in arrays.items()}
    head, ids = EagleHead(dense.eagle_config(dense.config), tensors, dense), torch.tensor(TOKENS[:40])
    hidden = torch.randn(40, dense.width, dtype=torch.float64, generator=torch.Generator().manual_seed(7))
    expected = ReferenceEagleHead.from_arrays(reference, arrays).forward(ids.tolist(), hidden)
    states, handed = head.forward(ids, hidden, where([1] * 40, list(range(40))), NaiveCache())
    assert relative(handed, expected.g) < BOUND
    assert relative(head.logits(states), expected.logits) < BOUND


@of(["llama", "qwen3"])
def test_narrow_path_computes_the_same(dense: Llama, monkeypatch: pytest.MonkeyPatch) -> None:
    at, calls = where([1] * 9, list(range(9))), []
    expected = dense.forward(IDS, at, NaiveCache())
    monkeypatch.setattr(llama_module, "is_narrow", lambda x, sizes: calls.append(x.shape) or True)
    got = dense.forward(IDS, at, NaiveCache())
    assert relative(got, expected) < 1e-12
    assert relative(dense.logits(got), dense.logits(expected)) < 1e-12
    assert len(calls) == 3


@pytest.mark.parametrize(
    ("dense", "longest", "calls"), [("llama", 20, 27), ("llama", 1500, 0), ("qwen3", 20, 0)], indirect=["dense"]
)
def test_a_token_alone_attends_in_one_op_where_that_is_possible(
    dense: Llama, longest: int, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not over a long table, and not where heads are normed; what is computed and stored is the same."""
    whole, one_by_one = paged(dense.cache_shape, longest), paged(dense.cache_shape, longest)
    expected = dense.forward(IDS, place(whole, [2] * 9, list(range(9))), whole)
    monkeypatch.setattr(llama_module, "is_narrow", lambda x, sizes: True)
    before = CALLS["token_attention"]
    got = [dense.forward(IDS[i : i + 1], place(one_by_one, [2], [i]), one_by_one) for i in range(9)]
    assert relative(torch.cat(got), expected) < 1e-12
    assert CALLS["token_attention"] - before == calls
    for left, right in zip(kept(one_by_one, 2, 2, 9), kept(whole, 2, 2, 9), strict=True):
        assert relative(left, right) < 1e-12


def test_a_token_that_sees_something_else_does_not_attend_in_one_op(dense: Llama) -> None:
    cache, mixer = paged(dense.cache_shape, 20), dense.layers[0].mixer
    x = torch.ones((1, dense.width), dtype=torch.float64)
    token = TokenInput(x, dense.layers[0].norm, mixer.projection, 1e-5, mixer.inv_freq)
    seen = place(cache, [2], [0])
    assert cache.attend_token(0, token, seen, 1.0) is not None
    for other in (place(cache, [2], [0], [3]), structs.replace(seen, visible_slots=seen.slot_mapping[:, None])):
        assert cache.attend_token(0, token, other, 1.0) is None
    windowed = replace(cache, windows=(0, 4, 0))
    assert [windowed.attend_token(layer, token, seen, 1.0) is None for layer in range(3)] == [False, True, False]
    assert replace(cache, fp8=((1.0, 1.0),) * 3).attend_token(0, token, seen, 1.0) is None


@pytest.mark.parametrize("narrow", [False, True])
@of(["qwen3"])
def test_outputs_of_layers_are_those_of_transformers(
    dense: Llama, tmp_path: Path, narrow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Residual included, of chosen layers, in the order asked for; the last one's before the final norm."""
    model = load_witness(tmp_path)
    with Widen():
        expected = witnessed(model, IDS.tolist())
    monkeypatch.setattr(llama_module, "is_narrow", lambda x, sizes: narrow)
    told, asked = [], LayerOutputs((2, 0))
    save_one = asked.record
    monkeypatch.setattr(asked, "record", lambda layer, output: told.append(layer) or save_one(layer, output))
    dense.forward(IDS, where([1] * 9, list(range(9))), NaiveCache(), asked)
    assert told == [0, 1, 2, -1]
    assert relative(asked.concatenated(), torch.cat((expected["layer2"], expected["layer0"]), 1)) < BOUND
