"""The mixture of experts against plain loops. `T` tokens, `D` hidden width, `X` experts, `F` inner width."""

import pytest
import torch
import torch.nn.functional as F

from draftproof.engine.graphs.host import HostBackend
from draftproof.engine.models import moe as moe_module
from draftproof.engine.models.layers import Mlp
from draftproof.engine.models.moe import Moe, read_moe
from draftproof.properties.formats.checkpoint_config.qwen3_next import Qwen3NextConfig

X, K, D, INNER, SHARED = 7, 3, 10, 6, 8


def random_moe(normalised: bool = True, dtype: torch.dtype = torch.float64) -> Moe:
    source = torch.Generator().manual_seed(5)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=source, dtype=torch.float64).to(dtype)

    config = Qwen3NextConfig(
        architectures=("Qwen3NextForCausalLM",),
        vocab_size=1,
        hidden_size=D,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=2,
        rms_norm_eps=1e-6,
        linear_num_key_heads=1,
        linear_num_value_heads=1,
        linear_key_head_dim=1,
        linear_value_head_dim=1,
        linear_conv_kernel_dim=2,
        num_experts=X,
        num_experts_per_tok=K,
        moe_intermediate_size=INNER,
        shared_expert_intermediate_size=SHARED,
        norm_topk_prob=normalised,
    )
    tensors = {"mlp.gate.weight": draw(X, D), "mlp.shared_expert_gate.weight": draw(1, D)}
    prefixes = [*((f"mlp.experts.{i}", INNER) for i in range(X)), ("mlp.shared_expert", SHARED)]
    for prefix, inner in prefixes:
        tensors |= {f"{prefix}.{name}_proj.weight": draw(inner, D) for name in ("gate", "up")}
        tensors[f"{prefix}.down_proj.weight"] = draw(D, inner)
    return read_moe(config, tensors, "mlp")


def inputs(tokens: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(tokens, D, generator=torch.Generator().manual_seed(tokens), dtype=torch.float64).to(dtype)


def plain(moe: Moe, x: torch.Tensor) -> torch.Tensor:
    """One token and one expert at a time; the most probable, of equals the lowest."""
    rows = []
    for token in x:
        probable = torch.softmax(moe.router @ token, 0).tolist()
        chosen = sorted(range(X), key=lambda i: (-probable[i], i))[:K]
        total = sum(probable[i] for i in chosen) if moe.normalised else 1.0
        row = torch.sigmoid(moe.shared_gate[0] @ token) * gated(moe.shared, token)
        for i in chosen:
            row = row + probable[i] / total * gated(Mlp(moe.gate_up[i], moe.down[i]), token)
        rows.append(row)
    return torch.stack(rows)


def gated(mlp: Mlp, x: torch.Tensor) -> torch.Tensor:
    gate, up = (mlp.gate_up @ x).chunk(2)
    return mlp.down @ (F.silu(gate) * up)


@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("tokens", [1, 5, 23])
def test_equals_plain_loops(normalised: bool, tokens: int) -> None:
    moe, x = random_moe(normalised), inputs(tokens)
    torch.testing.assert_close(moe(x), plain(moe, x), rtol=1e-12, atol=1e-12)


def test_of_equally_probable_experts_the_lowest_are_chosen() -> None:
    """Small integers, so that sums have no rounding: experts 0, 2, 3, 5 are equal, 4 is above and 1, 6 below."""
    moe, x = random_moe(), torch.ones(9, D, dtype=torch.float64)
    moe.router.copy_(torch.tensor([[2.0], [1], [2], [2], [3], [2], [1]]).expand(X, D))
    torch.testing.assert_close(moe(x), plain(moe, x), rtol=1e-12, atol=1e-12)
    assert moe._route(x)[1].tolist() == [[4, 0, 2]] * 9


def test_blocks_of_tokens_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    moe, x = random_moe(), inputs(11)
    expected = moe(x)
    sizes = []
    route = Moe._route
    monkeypatch.setattr(Moe, "_route", lambda self, x: sizes.append(x.shape[0]) or route(self, x))
    monkeypatch.setattr(moe_module, "GATHERED", 2 * K * 3 * INNER * D)
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
    assert not torch.equal(moe._route(x)[1], moe._route(inputs(4, torch.float32))[1])


def test_bfloat16_is_close() -> None:
    x = inputs(16)
    got = random_moe(dtype=torch.bfloat16)(x.bfloat16())
    assert got.dtype == torch.bfloat16
    wrong = (got.double() - plain(random_moe(), x)).norm(dim=1) / plain(random_moe(), x).norm(dim=1)
    # A token whose third and fourth expert are about equal may get the other one.
    assert float(wrong.median()) < 2e-2
