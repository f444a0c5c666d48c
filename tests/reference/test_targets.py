"""The float64 reference of each architecture against transformers, run in float64 without its internal float32 casts.

Through a prompt transformers goes in chunks by solving triangular systems where the reference has a recurrence, and in
`generate` token by token with a cache: two formulations, neither of them the reference's code.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor
from transformers import PreTrainedModel

from draftproof.properties.formats.checkpoint_config.sparse import Glm4MoeConfig
from draftproof.reference.models.experts import BIAS, ROUTER, grouped_shares
from draftproof.reference.models.qwen3_next_layer import DeltaNetSizes
from draftproof.reference.models.registry import load_target
from draftproof.reference.models.target import ReferenceCheckpointTarget, TargetPass
from tests.checkpoints import VOCAB, tiny_llama, tiny_qwen3_5, tiny_qwen3_next
from tests.reference.witness import (
    BOUND,
    DENSE,
    GROUPED,
    HYBRID,
    MODELS,
    TOKENS,
    load_witness,
    parts,
    witnessed,
    worst,
)
from tests.widen import Widen

SHORT = TOKENS[:16]


@dataclass(frozen=True)
class Tiny:
    """A checkpoint, read both ways, and what transformers computes over SHORT."""

    name: str
    checkpoint: ReferenceCheckpointTarget
    witness: PreTrainedModel
    short: dict[str, Tensor]

    def changed(self, name: str, change: Callable[[Tensor], Tensor]) -> TargetPass:
        """SHORT through the model with one tensor changed."""
        tensors = {**self.checkpoint.tensors, name: change(self.checkpoint.tensors[name].clone())}
        return type(self.checkpoint)(self.checkpoint.config, tensors).forward(SHORT)


@pytest.fixture(scope="module", params=MODELS)
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    path = MODELS[request.param](tmp_path_factory.mktemp(request.param))
    checkpoint, witness = load_target(path), load_witness(path)
    with Widen():
        return Tiny(request.param, checkpoint, witness, witnessed(witness, SHORT))


of_hybrids = pytest.mark.parametrize("tiny", HYBRID, indirect=True, scope="module")
of_groups = pytest.mark.parametrize("tiny", GROUPED, indirect=True, scope="module")


def test_agrees_with_transformers_in_float64(tiny: Tiny) -> None:
    with Widen() as widen:
        theirs = witnessed(tiny.witness)
    types = tiny.checkpoint.layer_types
    # Casts of norms, and of softmax in dense models, for each layer: the mode really reached inside every one.
    assert widen.rewrites >= (3 if tiny.name in DENSE else 2) * len(types) + 1
    last = types.count("full_attention") - 1
    assert {f"layer{len(types) - 1}", f"k{last}", f"v{last}"} <= theirs.keys()
    assert ("state2" in theirs) == (tiny.name in HYBRID)
    assert worst(parts(tiny.checkpoint.forward(TOKENS)), theirs) < BOUND


def test_transformers_not_widened_is_a_float32_model(tiny: Tiny) -> None:
    theirs = {name: x.double() for name, x in witnessed(tiny.witness, SHORT).items()}
    # Where experts are chosen by groups, rounding may choose others.
    most = 1e-5 if tiny.name in DENSE else 1e-4 if tiny.name in HYBRID else 10
    assert 1e-8 < worst(parts(tiny.checkpoint.forward(SHORT)), theirs) < most


def test_the_witness_notices_every_tensor(tiny: Tiny) -> None:
    """But for experts that few tokens choose; routers' biases only take part in the choice."""
    unnoticed = []
    for name, tensor in tiny.checkpoint.tensors.items():
        noise = torch.randn(tensor.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        size = 1.0 if BIAS in name else 1e-6
        found = tiny.changed(name, lambda x, by=size * noise: x + by)
        if worst(parts(found), tiny.short) < 1000 * BOUND:
            unnoticed.append(name)
    assert all(".experts." in name for name in unnoticed)
    assert len(unnoticed) < 0.2 * len(tiny.checkpoint.tensors)


def test_greedy_continuation_equals_generate(tiny: Tiny) -> None:
    prompt, count = TOKENS[:7], 12 if tiny.name in GROUPED else 24
    model, tokens = tiny.witness, prompt
    model.generation_config.eos_token_id = None
    with Widen(), torch.no_grad():
        theirs = model.generate(torch.tensor([prompt]), max_new_tokens=count, do_sample=False, pad_token_id=0)
    for _ in range(count):
        logits = tiny.checkpoint.forward(tokens).logits[-1]
        tokens = (*tokens, int((logits == logits.max()).nonzero()[0]))
    assert tokens == tuple(theirs[0].tolist())


def test_margins_are_clear(tiny: Tiny) -> None:
    top = tiny.checkpoint.forward(TOKENS).logits.topk(2).values
    assert float((top[:, 0] - top[:, 1]).median()) > 0.3


def test_a_row_depends_on_what_precedes_it_only(tiny: Tiny) -> None:
    whole, part = (tiny.checkpoint.forward(tokens) for tokens in (TOKENS, list(TOKENS[:9])))
    other = tiny.checkpoint.forward((*TOKENS[:9], (TOKENS[9] + 1) % VOCAB))
    rows = [(one.hidden, one.logits, *one.layers, *one.states) for one in (whole, part)]
    for long, short in zip(*rows, strict=True):
        assert float((long[:9] - short).abs().max()) < BOUND * float(long.abs().max())
    assert float((whole.hidden[9] - other.hidden[9]).abs().max()) > 1e-3


@pytest.mark.parametrize(
    ("tokens", "message"),
    [((), "at least one token"), ((1, 99), "token 99 is outside"), ((-1,), "token -1 is outside")],
)
def test_bad_tokens(tiny: Tiny, tokens: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tiny.checkpoint.forward(tokens)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_checkpoints_are_widened_exactly(tmp_path: Path, dtype: torch.dtype) -> None:
    wide = load_witness(tiny_llama(tmp_path / "wide"))
    wide.to(dtype).save_pretrained(tmp_path / "narrow")
    stored: dict[str, Any] = dict(wide.state_dict())
    for name, tensor in load_target(tmp_path / "narrow").tensors.items():
        assert tensor.dtype == torch.float64
        assert torch.equal(tensor, stored[name].double()), name


@of_hybrids
def test_the_state_after_every_token(tiny: Tiny) -> None:
    """Shorter prompts than the convolution is wide leave zeros at the start of the window."""
    states, linear = tiny.checkpoint.forward(SHORT).states, DeltaNetSizes.of(tiny.checkpoint.config)
    size = (linear.conv - 1) * linear.channels + linear.value_heads * linear.key_dim * linear.value_dim
    assert [layer.shape for layer in states] == [(len(SHORT), size)] * 3
    for count in range(1, len(SHORT)):
        with Widen():
            theirs = witnessed(tiny.witness, SHORT[:count])
        for i, layer in enumerate(states):
            assert worst({"state": layer[count - 1]}, {"state": theirs[f"state{i}"]}) < BOUND, count
    for layer in states:
        windows = layer[:, : (linear.conv - 1) * linear.channels].reshape(len(SHORT), linear.conv - 1, -1)
        assert not windows[0, :-1].any()
        assert windows[0, -1].all()
        assert torch.equal(windows[1:, :-1], windows[:-1, 1:])


def scaled(x: Tensor, part: Tensor) -> Tensor:
    """x after its view `part` was scaled in place."""
    part *= 1 + 1e-4
    return x


PARTS: dict[str, tuple[str, Callable[[Tensor], Tensor]]] = {
    "oldest tap": ("model.layers.0.linear_attn.conv1d.weight", lambda x: scaled(x, x[..., 0])),
    "one channel": ("model.layers.1.linear_attn.conv1d.weight", lambda x: scaled(x, x[3])),
    "decay": ("model.layers.0.linear_attn.A_log", lambda x: scaled(x, x[1])),
    "bias of the decay": ("model.layers.0.linear_attn.dt_bias", lambda x: scaled(x, x[2])),
    "gate of the norm": ("model.layers.0.linear_attn.norm.weight", lambda x: scaled(x, x[5])),
    "gate of attention": ("model.layers.2.self_attn.q_proj.weight", lambda x: scaled(x, x[-1])),
    "query": ("model.layers.2.self_attn.q_proj.weight", lambda x: scaled(x, x[0])),
}


@of_hybrids
@pytest.mark.parametrize("part", PARTS)
def test_the_witness_notices_parts_of_a_tensor(tiny: Tiny, part: str) -> None:
    assert worst(parts(tiny.changed(*PARTS[part])), tiny.short) > 1000 * BOUND


@of_hybrids
def test_the_state_matters_long_after(tiny: Tiny) -> None:
    """The first token is seen at the last position by the linear layers, not only through attention."""
    whole, other = (tiny.checkpoint.forward(tokens) for tokens in (SHORT, ((SHORT[0] + 1) % VOCAB, *SHORT[1:])))
    linear = DeltaNetSizes.of(tiny.checkpoint.config)
    window = (linear.conv - 1) * linear.channels
    assert torch.equal(whole.states[0][-1, :window], other.states[0][-1, :window])
    assert not torch.allclose(whole.states[0][-1, window:], other.states[0][-1, window:], atol=1e-6, rtol=0)


def test_a_decay_beyond_the_linear_part_of_softplus(tmp_path: Path) -> None:
    """Above 20 softplus is its argument; the exponential of 800 would not be a number."""
    path = tiny_qwen3_5(tmp_path, seed=6)
    checkpoint, witness = load_target(path), load_witness(path)
    values = {"dt_bias": [800.0, 20.5, 19.5, -800.0], "A_log": [-6.0] * 4}
    tensors = {f"model.layers.0.linear_attn.{name}": torch.tensor(value).double() for name, value in values.items()}
    with torch.no_grad(), Widen():
        for name, tensor in tensors.items():
            witness.state_dict()[name].copy_(tensor)
        theirs = witnessed(witness, SHORT)
    changed = type(checkpoint)(checkpoint.config, {**checkpoint.tensors, **tensors})
    assert worst(parts(changed.forward(SHORT)), theirs) < BOUND


def test_the_vision_tower_and_the_mtp_layer_are_not_read(tmp_path: Path) -> None:
    with_mtp = load_target(tiny_qwen3_next(tmp_path / "with", seed=1))
    without = load_target(tiny_qwen3_next(tmp_path / "without", seed=1, mtp=False))
    assert with_mtp.tensors.keys() == without.tensors.keys()
    assert all(torch.equal(tensor, without.tensors[name]) for name, tensor in with_mtp.tensors.items())


@of_groups
def test_every_part_of_the_routing_counts(tiny: Tiny) -> None:
    """Without any one of its parts the pass is another: the checkpoints are made to tell them apart."""
    config: Any = tiny.checkpoint.config
    expected = tiny.checkpoint.forward(TOKENS).logits
    variants = [
        {"norm_topk_prob": not config.norm_topk_prob},
        {"routed_scaling_factor": config.routed_scaling_factor + 0.5},
        {"num_experts_per_tok": config.num_experts_per_tok - 1},
    ]
    if config.n_group > 1:
        variants += [{"n_group": 1, "topk_group": 1}, {"topk_group": config.topk_group + 1}]
    for variant in variants:
        other = type(tiny.checkpoint)(replace(config, **variant), tiny.checkpoint.tensors)
        differs = float((other.forward(TOKENS).logits - expected).abs().max()) > 1e-3
        assert differs == (config.first_k_dense_replace < config.num_hidden_layers), variant


@pytest.mark.parametrize(
    ("bias", "chosen"),
    [
        # All alike: the first two groups of three, and their first three experts.
        ([0.0] * 9, [0, 1, 2]),
        # The last group is worth most, the first two are alike.
        ([0, 0, 0, 0, 0, 0, 1, 1, 0], [6, 7, 0]),
        # A group is judged by two of its experts: one good one does not make it.
        ([0, 0, 0, 0.6, 0.6, 0, 1, 0, 0], [6, 3, 4]),
        ([0.4, 0.4, 0, 0.6, 0.6, 0, 0.7, 0, 0], [0, 3, 4]),
    ],
)
def test_ties_go_to_the_lowest_number(bias: list[float], chosen: list[int]) -> None:
    sizes = Glm4MoeConfig(
        architectures=("Glm4MoeForCausalLM",),
        vocab_size=1,
        hidden_size=2,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        rms_norm_eps=1e-5,
        intermediate_size=1,
        moe_intermediate_size=1,
        n_routed_experts=9,
        num_experts_per_tok=3,
        n_group=3,
        topk_group=2,
        routed_scaling_factor=3.0,
    )
    weights = {ROUTER: torch.zeros(9, 2).double(), BIAS: torch.tensor(bias).double()}
    shares = grouped_shares(torch.ones(1, 2).double(), weights, sizes)[0][0]
    assert shares.nonzero()[:, 0].tolist() == sorted(chosen)
    # The bias takes no part in the weights: all three are alike, and their sum is the scale.
    assert torch.allclose(shares[chosen], torch.ones(3).double(), atol=1e-15)
