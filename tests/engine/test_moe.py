"""Mixtures of experts against plain loops. `T` tokens, `D` hidden width, `X` experts, `F` inner width."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from msgspec.structs import replace
from torch import Tensor

from draftproof.engine.graphs.host import HostBackend
from draftproof.engine.models import moe as moe_module
from draftproof.engine.models.grouped_moe import GroupedMoe, read_grouped_moe
from draftproof.engine.models.layers import Mlp
from draftproof.engine.models.moe import Moe, read_moe
from draftproof.properties.formats.checkpoint_config.qwen3_next import Qwen3NextConfig
from draftproof.properties.formats.checkpoint_config.sparse import Glm4MoeConfig

D, INNER, SHARED = 10, 6, 8
_SIZES: dict[str, Any] = {
    **dict.fromkeys(("vocab_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"), 1),
    "hidden_size": D,
    "moe_intermediate_size": INNER,
}
_LINEAR = dict.fromkeys((f"linear_{name}" for name in ("num_key_heads", "num_value_heads", "key_head_dim")), 1)
SIZES = Qwen3NextConfig(
    **_SIZES,
    **_LINEAR,
    architectures=("Qwen3NextForCausalLM",),
    head_dim=2,
    rms_norm_eps=1e-6,
    linear_value_head_dim=1,
    linear_conv_kernel_dim=2,
    num_experts=7,
    num_experts_per_tok=3,
    shared_expert_intermediate_size=SHARED,
)
GROUPS = Glm4MoeConfig(
    **_SIZES,
    architectures=("Glm4MoeForCausalLM",),
    rms_norm_eps=1e-5,
    intermediate_size=1,
    n_routed_experts=12,
    num_experts_per_tok=4,
    n_group=3,
    topk_group=2,
    n_shared_experts=2,
    routed_scaling_factor=1.25,
)
VARIANTS: dict[str, Any] = {
    "plain": SIZES,
    "plain, shares as they are": replace(SIZES, norm_topk_prob=False),
    "grouped": GROUPS,
    "shares as they are": replace(GROUPS, norm_topk_prob=False),
    "one group": replace(GROUPS, n_group=1, topk_group=1),
    "pairs": replace(GROUPS, n_group=6, topk_group=2),
    "all groups": replace(GROUPS, topk_group=3, num_experts_per_tok=5),
}
of_both = pytest.mark.parametrize("sizes", [SIZES, GROUPS], ids=["plain", "grouped"])


def random_moe(sizes: Any, dtype: torch.dtype = torch.float64) -> Any:
    source = torch.Generator().manual_seed(5)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=source, dtype=torch.float64).to(dtype)

    is_grouped = isinstance(sizes, Glm4MoeConfig)
    count = sizes.n_routed_experts if is_grouped else sizes.num_experts
    tensors = {"mlp.gate.weight": draw(count, D)}
    if is_grouped:
        tensors["mlp.gate.e_score_correction_bias"] = 0.3 * draw(count)
    else:
        tensors["mlp.shared_expert_gate.weight"] = draw(1, D)
    shared = ("mlp.shared_experts", sizes.n_shared_experts * INNER) if is_grouped else ("mlp.shared_expert", SHARED)
    for prefix, inner in [*((f"mlp.experts.{i}", INNER) for i in range(count)), shared]:
        tensors |= {f"{prefix}.{name}_proj.weight": draw(inner, D) for name in ("gate", "up")}
        tensors[f"{prefix}.down_proj.weight"] = draw(D, inner)
    return (read_grouped_moe if is_grouped else read_moe)(sizes, tensors, "mlp")


def inputs(tokens: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(tokens, D, generator=torch.Generator().manual_seed(tokens), dtype=torch.float64).to(dtype)


Routed = tuple[list[int], list[float], Any]
"""The experts of one token in the order of choice, the share of each, and that of the shared ones."""


def routed(moe: Any, token: Tensor) -> Routed:
    if isinstance(moe, GroupedMoe):
        return by_groups(moe, token)
    probable = torch.softmax(moe.router @ token, 0).tolist()
    chosen = sorted(range(len(probable)), key=lambda i: (-probable[i], i))[: SIZES.num_experts_per_tok]
    total = sum(probable[i] for i in chosen) if moe.normalised else 1.0
    return (chosen, [probable[i] / total for i in chosen], torch.sigmoid(moe.shared_gate[0] @ token))


def by_groups(moe: GroupedMoe, token: Tensor) -> Routed:
    sizes: Any = moe.config
    scores = torch.sigmoid(moe.router @ token).tolist()
    ranks = [score + bias for score, bias in zip(scores, moe.correction.tolist(), strict=True)]
    size = sizes.n_routed_experts // sizes.n_group
    members = [range(g * size, (g + 1) * size) for g in range(sizes.n_group)]
    worth = [sum(sorted((ranks[i] for i in group), reverse=True)[:2]) for group in members]
    best = sorted(range(sizes.n_group), key=lambda g: (-worth[g], g))[: sizes.topk_group]
    allowed = sorted(i for g in best for i in members[g])
    chosen = sorted(allowed, key=lambda i: (-ranks[i], i))[: sizes.num_experts_per_tok]
    total = sum(scores[i] for i in chosen) if sizes.norm_topk_prob else 1.0
    return (chosen, [sizes.routed_scaling_factor * scores[i] / total for i in chosen], 1.0)


def plain(moe: Any, x: Tensor) -> Tensor:
    """One token and one expert at a time."""
    rows = []
    for token in x:
        experts, shares, of_shared = routed(moe, token)
        row = of_shared * gated(moe.shared, token)
        for i, share in zip(experts, shares, strict=True):
            row = row + share * gated(Mlp(moe.gate_up[i], moe.down[i]), token)
        rows.append(row)
    return torch.stack(rows)


def gated(mlp: Mlp, x: Tensor) -> Tensor:
    gate, up = (mlp.gate_up @ x).chunk(2)
    return mlp.down @ (F.silu(gate) * up)


def route_of(moe: Any) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    return moe.route if isinstance(moe, GroupedMoe) else moe._route


close = partial(torch.testing.assert_close, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("tokens", [1, 5, 23])
def test_equals_plain_loops(name: str, tokens: int) -> None:
    moe, x = random_moe(VARIANTS[name]), inputs(tokens)
    assert isinstance(moe, Moe if "plain" in name else GroupedMoe)
    close(moe(x), plain(moe, x))


def test_groups_change_the_choice() -> None:
    """Or the variants above would prove nothing of them."""
    x = inputs(23)
    routes = [random_moe(sizes).route(x)[1].tolist() for sizes in (GROUPS, VARIANTS["one group"])]
    assert 3 < sum(a != b for a, b in zip(*routes, strict=True)) < 23


def test_of_equally_probable_experts_the_lowest_are_chosen() -> None:
    """Small integers, so that sums have no rounding: experts 0, 2, 3, 5 are equal, 4 is above and 1, 6 below."""
    moe, x = random_moe(SIZES), torch.ones(9, D, dtype=torch.float64)
    moe.router.copy_(torch.tensor([[2.0], [1], [2], [2], [3], [2], [1]]).expand(7, D))
    close(moe(x), plain(moe, x))
    assert moe._route(x)[1].tolist() == [[4, 0, 2]] * 9


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
def test_of_equal_groups_the_lowest_are_chosen(bias: list[float], expected: list[int]) -> None:
    """Scores without rounding: the router is zero, so that every score is one half."""
    moe, x = random_moe(GROUPS), inputs(9)
    moe.router.zero_()
    moe.correction.copy_(torch.tensor(bias))
    shares, experts = moe.route(x)
    assert experts.tolist() == [expected] * 9
    assert routed(moe, x[0])[0] == expected
    # By the score alone, whatever the correction.
    torch.testing.assert_close(shares, torch.full((9, 4), 1.25 / 4, dtype=torch.float64), rtol=1e-15, atol=0)


@of_both
def test_blocks_of_tokens_change_nothing(sizes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    moe, x, counts = random_moe(sizes), inputs(11), list[int]()
    expected, route = moe(x), route_of(moe)
    monkeypatch.setattr(type(moe), route.__name__, lambda _, x: counts.append(x.shape[0]) or route(x))
    monkeypatch.setattr(moe_module, "GATHERED", 2 * sizes.num_experts_per_tok * 3 * INNER * D)
    close(moe(x), expected)
    assert len(counts) > 1
    assert sum(counts) == 11


@of_both
def test_a_captured_one_follows_its_inputs(sizes: Any) -> None:
    """Other experts at each replay, from the same graph."""
    moe, x = random_moe(sizes, torch.float32), inputs(4, torch.float32)
    graph = HostBackend().capture(lambda: (moe(x),), [x, *moe.tensors()])
    for seed in (1, 2):
        x.copy_(torch.randn(4, D, generator=torch.Generator().manual_seed(seed)))
        graph.replay()
        assert torch.equal(graph.outputs[0], moe(x))
    assert not torch.equal(route_of(moe)(x)[1], route_of(moe)(inputs(4, torch.float32))[1])


@of_both
def test_bfloat16_is_close(sizes: Any) -> None:
    x, moe = inputs(16), random_moe(sizes, torch.bfloat16)
    got, expected = moe(x.bfloat16()), plain(random_moe(sizes), x)
    assert got.dtype == torch.bfloat16
    if isinstance(moe, GroupedMoe):
        assert moe.router.dtype == moe.correction.dtype == torch.float32
    wrong = (got.double() - expected).norm(dim=1) / expected.norm(dim=1)
    # A token whose last expert and the next are about equal may get the other one.
    assert float(wrong.median()) < 2e-2
