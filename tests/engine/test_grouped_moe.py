"""Experts chosen by groups against plain loops. `T` tokens, `D` hidden width, `X` experts, `F` inner width."""

import pytest
import torch
import torch.nn.functional as F
from msgspec.structs import replace

from draftproof.engine.graphs.host import HostBackend
from draftproof.engine.models import moe as moe_module
from draftproof.engine.models.grouped_moe import GroupedMoe, read_grouped_moe
from draftproof.engine.models.layers import Mlp
from draftproof.properties.formats.checkpoint_config.sparse import Glm4MoeConfig

D = 10
SIZES = Glm4MoeConfig(
    architectures=("Glm4MoeForCausalLM",),
    vocab_size=1,
    hidden_size=D,
    num_hidden_layers=1,
    num_attention_heads=1,
    num_key_value_heads=1,
    rms_norm_eps=1e-5,
    intermediate_size=1,
    n_routed_experts=12,
    num_experts_per_tok=4,
    n_group=3,
    topk_group=2,
    moe_intermediate_size=6,
    n_shared_experts=2,
    routed_scaling_factor=1.25,
)
VARIANTS = {
    "grouped": SIZES,
    "shares as they are": replace(SIZES, norm_topk_prob=False),
    "one group": replace(SIZES, n_group=1, topk_group=1),
    "pairs": replace(SIZES, n_group=6, topk_group=2),
    "all groups": replace(SIZES, topk_group=3, num_experts_per_tok=5),
}


def random_moe(sizes: Glm4MoeConfig = SIZES, dtype: torch.dtype = torch.float64) -> GroupedMoe:
    source = torch.Generator().manual_seed(5)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=source, dtype=torch.float64).to(dtype)

    count, inner_size = sizes.n_routed_experts, sizes.moe_intermediate_size
    tensors = {"mlp.gate.weight": draw(count, D), "mlp.gate.e_score_correction_bias": 0.3 * draw(count)}
    shared = ("mlp.shared_experts", sizes.n_shared_experts * inner_size)
    prefixes = [*((f"mlp.experts.{i}", inner_size) for i in range(count)), shared]
    for prefix, inner in prefixes:
        tensors |= {f"{prefix}.{name}_proj.weight": draw(inner, D) for name in ("gate", "up")}
        tensors[f"{prefix}.down_proj.weight"] = draw(D, inner)
    return read_grouped_moe(sizes, tensors, "mlp")


def inputs(tokens: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(tokens, D, generator=torch.Generator().manual_seed(tokens), dtype=torch.float64).to(dtype)


def chosen_of(moe: GroupedMoe, token: torch.Tensor) -> tuple[list[int], list[float]]:
    """The experts of one token in the order of choice, and the scores of all."""
    sizes = moe.config
    scores = torch.sigmoid(moe.router @ token).tolist()
    ranks = [score + bias for score, bias in zip(scores, moe.correction.tolist(), strict=True)]
    size = sizes.n_routed_experts // sizes.n_group
    members = [range(g * size, (g + 1) * size) for g in range(sizes.n_group)]
    worth = [sum(sorted((ranks[i] for i in group), reverse=True)[:2]) for group in members]
    best = sorted(range(sizes.n_group), key=lambda g: (-worth[g], g))[: sizes.topk_group]
    allowed = sorted(i for g in best for i in members[g])
    return sorted(allowed, key=lambda i: (-ranks[i], i))[: sizes.num_experts_per_tok], scores


def plain(moe: GroupedMoe, x: torch.Tensor) -> torch.Tensor:
    """One token and one expert at a time."""
    rows = []
    for token in x:
        chosen, scores = chosen_of(moe, token)
        total = sum(scores[i] for i in chosen) if moe.config.norm_topk_prob else 1.0
        row = gated(moe.shared, token)
        for i in chosen:
            row = row + moe.config.routed_scaling_factor * scores[i] / total * gated(
                Mlp(moe.gate_up[i], moe.down[i]), token
            )
        rows.append(row)
    return torch.stack(rows)


def gated(mlp: Mlp, x: torch.Tensor) -> torch.Tensor:
    gate, up = (mlp.gate_up @ x).chunk(2)
    return mlp.down @ (F.silu(gate) * up)


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("tokens", [1, 5, 23])
def test_equals_plain_loops(name: str, tokens: int) -> None:
    moe, x = random_moe(VARIANTS[name]), inputs(tokens)
    torch.testing.assert_close(moe(x), plain(moe, x), rtol=1e-12, atol=1e-12)


def test_groups_change_the_choice() -> None:
    """Or the variants above would prove nothing of them."""
    x = inputs(23)
    routes = [random_moe(sizes).route(x)[1].tolist() for sizes in (SIZES, VARIANTS["one group"])]
    different = sum(a != b for a, b in zip(*routes, strict=True))
    assert 3 < different < 23


@pytest.mark.parametrize(
    ("bias", "expected"),
    [
        # All alike: the first two groups of four, of them the first four experts.
        ([0.0] * 12, [0, 1, 2, 3]),
        # The third group is worth most, the other two are alike.
        ([0.0] * 9 + [0.5, 0.5, 0.0], [9, 10, 0, 1]),
        # One good expert does not make a group that two fair ones outdo.
        ([0.5, 0, 0, 0, 0.3, 0.3, 0, 0, 0.3, 0.3, 0, 0], [4, 5, 8, 9]),
        # Of groups that are alike by their best two the lowest count.
        ([0.25, 0.25, 0, 0, 0.5, 0, 0, 0, 0.5, 0, 0, 0], [4, 0, 1, 2]),
    ],
)
def test_of_equals_the_lowest_are_chosen(bias: list[float], expected: list[int]) -> None:
    """Scores without rounding: the router is zero, so that every score is one half."""
    moe = random_moe()
    moe.router.zero_()
    moe.correction.copy_(torch.tensor(bias))
    x = inputs(9)
    shares, experts = moe.route(x)
    assert experts.tolist() == [expected] * 9
    assert chosen_of(moe, x[0])[0] == expected
    # By the score alone, whatever the correction.
    torch.testing.assert_close(shares, torch.full((9, 4), 1.25 / 4, dtype=torch.float64), rtol=1e-15, atol=0)


def test_blocks_of_tokens_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    moe, x = random_moe(), inputs(11)
    expected = moe(x)
    sizes = []
    route = GroupedMoe.route
    monkeypatch.setattr(GroupedMoe, "route", lambda self, x: sizes.append(x.shape[0]) or route(self, x))
    monkeypatch.setattr(moe_module, "GATHERED", 2 * 4 * 3 * 6 * D)
    torch.testing.assert_close(moe(x), expected, rtol=1e-12, atol=1e-12)
    assert len(sizes) > 1
    assert sum(sizes) == 11


def test_a_captured_one_follows_its_inputs() -> None:
    """Other experts at each replay, from the same graph."""
    moe, x = random_moe(dtype=torch.float32), inputs(4, torch.float32)
    graph = HostBackend().capture(lambda: (moe(x),), [x, *moe.tensors()])
    for seed in (1, 2):
        x.copy_(torch.randn(4, D, generator=torch.Generator().manual_seed(seed)))
        graph.replay()
        assert torch.equal(graph.outputs[0], moe(x))
    assert not torch.equal(moe.route(x)[1], moe.route(inputs(4, torch.float32))[1])


def test_bfloat16_is_close() -> None:
    x, exact = inputs(16), random_moe()
    moe = random_moe(dtype=torch.bfloat16)
    got = moe(x.bfloat16())
    assert got.dtype == torch.bfloat16
    assert moe.router.dtype == moe.correction.dtype == torch.float32
    wrong = (got.double() - plain(exact, x)).norm(dim=1) / plain(exact, x).norm(dim=1)
    # A token whose fourth and fifth expert are about equal may get the other one.
    assert float(wrong.median()) < 2e-2
