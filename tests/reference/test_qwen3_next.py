"""The float64 hybrid reference against transformers, run in float64 without its internal float32 casts.

transformers goes through a prompt in chunks by solving triangular systems, and in `generate` token by token with a
cache: two formulations of the recurrence, neither of them the reference's code.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from draftproof.reference.models.qwen3_next_layer import DeltaNetSizes
from draftproof.reference.models.registry import load_target
from draftproof.reference.models.target import ReferenceCheckpointTarget, TargetPass
from tests.checkpoints import tiny_qwen3_5, tiny_qwen3_next
from tests.reference.qwen3_next_witness import BOUND, MODELS, TOKENS, load_witness, parts, witnessed, worst
from tests.widen import Widen

SHORT = TOKENS[:13]


@dataclass(frozen=True)
class Tiny:
    """A checkpoint, read both ways, and what transformers computes over SHORT."""

    path: Path
    checkpoint: ReferenceCheckpointTarget
    witness: PreTrainedModel
    short: dict[str, Tensor]


@pytest.fixture(scope="module", params=MODELS)
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    path = MODELS[request.param](tmp_path_factory.mktemp(request.param))
    checkpoint = load_target(path)
    witness = load_witness(path, checkpoint.config.architecture)
    with Widen():
        return Tiny(path, checkpoint, witness, witnessed(witness, SHORT))


def changed(tiny: Tiny, name: str, change: Callable[[Tensor], Tensor]) -> TargetPass:
    """SHORT through the model with one tensor changed."""
    tensors = {**tiny.checkpoint.tensors, name: change(tiny.checkpoint.tensors[name].clone())}
    return type(tiny.checkpoint)(tiny.checkpoint.config, tensors).forward(SHORT)


def test_agrees_with_transformers_in_float64(tiny: Tiny) -> None:
    with Widen() as widen:
        theirs = witnessed(tiny.witness, TOKENS)
    # Two norms for each layer at the least, and the last one: the mode really reached inside every layer.
    assert widen.rewrites >= 2 * len(tiny.checkpoint.layer_types) + 1
    full = tiny.checkpoint.layer_types.count("full_attention")
    entries = {f"{kind}{i}" for kind in "kv" for i in range(full)}
    entries |= {f"layer{i}" for i in range(len(tiny.checkpoint.layer_types) - 1)}
    assert set(theirs) == {"hidden", "before_norm", "logits", "state0", "state1", "state2"} | entries
    assert worst(parts(tiny.checkpoint.forward(TOKENS)), theirs) < BOUND


def test_transformers_not_widened_is_a_float32_model(tiny: Tiny) -> None:
    assert 1e-8 < worst(parts(tiny.checkpoint.forward(SHORT)), unwidened(tiny)) < 1e-4


def unwidened(tiny: Tiny) -> dict[str, Tensor]:
    return {name: x.double() for name, x in witnessed(tiny.witness, SHORT).items()}


def test_the_state_after_every_token(tiny: Tiny) -> None:
    """Shorter prompts than the convolution is wide leave zeros at the start of the window."""
    long = tiny.checkpoint.forward(SHORT)
    assert [layer.shape for layer in long.states] == [(len(SHORT), size(DeltaNetSizes.of(tiny.checkpoint.config)))] * 3
    for count in range(1, len(SHORT)):
        with Widen():
            theirs = witnessed(tiny.witness, SHORT[:count])
        for i, layer in enumerate(long.states):
            assert worst({"state": layer[count - 1]}, {"state": theirs[f"state{i}"]}) < BOUND, count


def size(linear: DeltaNetSizes) -> int:
    recurrent = linear.value_heads * linear.key_dim * linear.value_dim
    return (linear.conv - 1) * linear.channels + recurrent


def test_the_window_is_the_last_inputs_and_starts_at_zero(tiny: Tiny) -> None:
    linear = DeltaNetSizes.of(tiny.checkpoint.config)
    for layer in tiny.checkpoint.forward(SHORT).states:
        windows = layer[:, : (linear.conv - 1) * linear.channels].reshape(len(SHORT), linear.conv - 1, -1)
        assert not windows[0, :-1].any()
        assert windows[0, -1].all()
        assert torch.equal(windows[1:, :-1], windows[:-1, 1:])


def test_the_witness_notices_every_tensor(tiny: Tiny) -> None:
    unnoticed = []
    for name, tensor in tiny.checkpoint.tensors.items():
        noise = torch.randn(tensor.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        found = changed(tiny, name, partial(torch.mul, 1 + 1e-6 * noise))
        if worst(parts(found), tiny.short) < 1000 * BOUND:
            unnoticed.append(name)
    # A few tokens need not reach every expert.
    missed = {name for name in unnoticed if ".experts." in name}
    assert set(unnoticed) == missed
    assert len(missed) < 0.2 * len(tiny.checkpoint.tensors)


PARTS: dict[str, tuple[str, Callable[[Tensor], Tensor]]] = {
    "oldest tap": ("model.layers.0.linear_attn.conv1d.weight", lambda x: scaled(x, x[..., 0])),
    "one channel": ("model.layers.1.linear_attn.conv1d.weight", lambda x: scaled(x, x[3])),
    "decay": ("model.layers.0.linear_attn.A_log", lambda x: scaled(x, x[1])),
    "bias of the decay": ("model.layers.0.linear_attn.dt_bias", lambda x: scaled(x, x[2])),
    "gate of the norm": ("model.layers.0.linear_attn.norm.weight", lambda x: scaled(x, x[5])),
    "gate of attention": ("model.layers.2.self_attn.q_proj.weight", lambda x: scaled(x, x[-1])),
    "query": ("model.layers.2.self_attn.q_proj.weight", lambda x: scaled(x, x[0])),
}


def scaled(x: Tensor, part: Tensor) -> Tensor:
    """x after its view `part` was scaled in place."""
    part *= 1 + 1e-4
    return x


@pytest.mark.parametrize("part", PARTS)
def test_the_witness_notices_parts_of_a_tensor(tiny: Tiny, part: str) -> None:
    name, change = PARTS[part]
    assert worst(parts(changed(tiny, name, change)), tiny.short) > 1000 * BOUND


def test_greedy_continuation_equals_generate(tiny: Tiny) -> None:
    prompt, count = TOKENS[:7], 24
    model = tiny.witness
    model.generation_config.eos_token_id = None
    with Widen(), torch.no_grad():
        theirs = model.generate(torch.tensor([prompt]), max_new_tokens=count, do_sample=False, pad_token_id=0)
    hybrid, tokens = tiny.checkpoint, prompt
    for _ in range(count):
        tokens = (*tokens, int(hybrid.forward(tokens).logits[-1].argmax()))
    assert tokens == tuple(theirs[0].tolist())


def test_margins_are_clear(tiny: Tiny) -> None:
    top = tiny.checkpoint.forward(TOKENS).logits.topk(2).values
    assert float((top[:, 0] - top[:, 1]).median()) > 0.3


def test_a_row_depends_on_what_precedes_it_only(tiny: Tiny) -> None:
    hybrid = tiny.checkpoint
    whole, part = hybrid.forward(TOKENS), hybrid.forward(TOKENS[:9])
    other = hybrid.forward((*TOKENS[:9], (TOKENS[9] + 1) % 53))
    for long, short in zip((whole.logits, *whole.states), (part.logits, *part.states), strict=True):
        assert float((long[:9] - short).abs().max()) < BOUND * float(long.abs().max())
    assert float((whole.hidden[9] - other.hidden[9]).abs().max()) > 1e-3


def test_the_state_matters_long_after(tiny: Tiny) -> None:
    """The first token is seen at the last position by the linear layers, not only through attention."""
    hybrid = tiny.checkpoint
    whole, other = hybrid.forward(SHORT), hybrid.forward(((SHORT[0] + 1) % 53, *SHORT[1:]))
    window = (DeltaNetSizes.of(tiny.checkpoint.config).conv - 1) * DeltaNetSizes.of(tiny.checkpoint.config).channels
    assert torch.equal(whole.states[0][-1, :window], other.states[0][-1, :window])
    assert not torch.allclose(whole.states[0][-1, window:], other.states[0][-1, window:], atol=1e-6, rtol=0)


def test_a_decay_beyond_the_linear_part_of_softplus(tmp_path: Path) -> None:
    """Above 20 softplus is its argument; the exponential of 800 would not be a number."""
    path = tiny_qwen3_5(tmp_path, seed=6)
    name = "model.layers.0.linear_attn.dt_bias"
    checkpoint = load_target(path)
    witness = load_witness(path, checkpoint.config.architecture)
    bias = torch.tensor([800.0, 20.5, 19.5, -800.0], dtype=torch.float64)
    rate = torch.full((4,), -6.0, dtype=torch.float64)
    with torch.no_grad(), Widen():
        state = witness.state_dict()
        state[name].copy_(bias)
        state["model.layers.0.linear_attn.A_log"].copy_(rate)
        theirs = witnessed(witness, SHORT)
    tensors = {**checkpoint.tensors, name: bias, "model.layers.0.linear_attn.A_log": rate}
    assert worst(parts(type(checkpoint)(checkpoint.config, tensors).forward(SHORT)), theirs) < BOUND


def test_the_vision_tower_and_the_mtp_layer_are_not_read(tmp_path: Path) -> None:
    with_mtp = load_target(tiny_qwen3_next(tmp_path / "with", seed=1))
    without = load_target(tiny_qwen3_next(tmp_path / "without", seed=1, mtp=False))
    assert with_mtp.tensors.keys() == without.tensors.keys()
    assert all(torch.equal(tensor, without.tensors[name]) for name, tensor in with_mtp.tensors.items())


@pytest.mark.parametrize(("tokens", "message"), [((), "at least one token"), ((1, 99), "token 99 is outside")])
def test_bad_tokens(tiny: Tiny, tokens: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tiny.checkpoint.forward(tokens)
