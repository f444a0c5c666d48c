"""The float64 GLM-4-MoE and DeepSeek-V3 against transformers, run in float64 without its internal float32 casts."""

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace
from transformers import PreTrainedModel

from draftproof.properties.formats.checkpoint_config.sparse import Glm4MoeConfig
from draftproof.reference.models.experts import BIAS, ROUTER, grouped_shares
from draftproof.reference.models.registry import load_target
from draftproof.reference.models.target import ReferenceCheckpointTarget
from tests.reference.grouped_witness import BOUND, MODELS, TOKENS, load_witness, parts, witnessed
from tests.reference.qwen3_next_witness import worst
from tests.widen import Widen


@dataclass(frozen=True)
class Tiny:
    """A checkpoint, read both ways."""

    path: Path
    checkpoint: ReferenceCheckpointTarget
    witness: PreTrainedModel


@pytest.fixture(scope="module", params=MODELS)
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    path = MODELS[request.param](tmp_path_factory.mktemp(request.param))
    checkpoint = load_target(path)
    return Tiny(path, checkpoint, load_witness(path, checkpoint.config.architecture))


def test_agrees_with_transformers_in_float64(tiny: Tiny) -> None:
    with Widen():
        theirs = witnessed(tiny.witness, TOKENS)
    assert {"layer0", "layer2", "k2", "v2"} <= theirs.keys()
    assert worst(parts(tiny.checkpoint.forward(TOKENS)), theirs) < BOUND


def test_transformers_not_widened_is_a_float32_model(tiny: Tiny) -> None:
    assert worst(parts(tiny.checkpoint.forward(TOKENS)), witnessed(tiny.witness, TOKENS)) > 1e-8


def test_the_witness_notices_every_tensor(tiny: Tiny) -> None:
    """But for experts that few tokens choose, and the routers' biases, which only take part in the choice."""
    tokens = TOKENS[:16]
    with Widen():
        theirs = witnessed(tiny.witness, tokens)
    unnoticed = []
    for name, tensor in tiny.checkpoint.tensors.items():
        noise = torch.randn(tensor.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        changed = {**tiny.checkpoint.tensors, name: tensor + (1.0 if BIAS in name else 1e-6) * noise}
        other = type(tiny.checkpoint)(tiny.checkpoint.config, changed).forward(tokens)
        if worst(parts(other), theirs) < 1000 * BOUND:
            unnoticed.append(name)
    assert all(".experts." in name for name in unnoticed)
    assert len(unnoticed) < 0.2 * len(tiny.checkpoint.tensors)


def test_every_part_of_the_routing_counts(tiny: Tiny) -> None:
    """Without any one of its parts the pass is another: the checkpoints are made to tell them apart."""
    config = tiny.checkpoint.config
    expected = tiny.checkpoint.forward(TOKENS).logits
    variants = [
        replace(config, norm_topk_prob=not config.norm_topk_prob),
        replace(config, routed_scaling_factor=config.routed_scaling_factor + 0.5),
        replace(config, num_experts_per_tok=config.num_experts_per_tok - 1),
    ]
    if config.n_group > 1:
        variants += [replace(config, n_group=1, topk_group=1), replace(config, topk_group=config.topk_group + 1)]
    for variant in variants:
        other = type(tiny.checkpoint)(variant, tiny.checkpoint.tensors)
        differs = float((other.forward(TOKENS).logits - expected).abs().max()) > 1e-3
        assert differs == (config.first_k_dense_replace < config.num_hidden_layers), variant


def test_margins_are_clear(tiny: Tiny) -> None:
    top = tiny.checkpoint.forward(TOKENS).logits.topk(2).values
    assert float((top[:, 0] - top[:, 1]).median()) > 0.3


def test_greedy_continuation_equals_generate(tiny: Tiny) -> None:
    prompt, count = TOKENS[:7], 12
    model = tiny.witness
    model.generation_config.eos_token_id = None
    with Widen(), torch.no_grad():
        theirs = model.generate(torch.tensor([prompt]), max_new_tokens=count, do_sample=False, pad_token_id=0)
    sparse, tokens = tiny.checkpoint, prompt
    for _ in range(count):
        tokens = (*tokens, int(sparse.forward(tokens).logits[-1].argmax()))
    assert tokens == tuple(theirs[0].tolist())


def test_a_row_depends_on_what_precedes_it_only(tiny: Tiny) -> None:
    sparse = tiny.checkpoint
    whole, part = sparse.forward(TOKENS), sparse.forward(TOKENS[:9])
    for long, short in ((whole.logits, part.logits), (whole.layers[1], part.layers[1])):
        assert float((long[:9] - short).abs().max()) < BOUND * float(long.abs().max())


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
