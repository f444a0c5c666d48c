"""The eager implementations, in this process, held to every contract."""

import sys

import pytest
import torch

from draftproof import kernels
from draftproof.kernels import eager_attention, eager_gdn, eager_state
from draftproof.kernels.registry import implementation
from draftproof.properties.kernels.contract import Buffer, KernelCase, check
from draftproof.properties.kernels.table import OPS
from draftproof.reference import ops
from tests.kernels.lane import tally, writes_something
from tests.warm import Warm

FLOATS = (torch.float32, torch.bfloat16, torch.float64)


@pytest.mark.parametrize("op", OPS)
def test_every_contract_holds(op: str):
    """Two calls of each dtype: `draftproof check` has the list that comes to every block."""
    seen = tally(op, FLOATS, examples=6)
    assert seen.differences == []
    assert seen.examples == 6
    assert seen.changed >= seen.examples // 3


@pytest.mark.parametrize("op", ["conv_update", "gdn_update"])
def test_every_contract_holds_where_a_sequence_takes_several_pieces(op: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(eager_state, "PIECE", 2)
    monkeypatch.setattr(eager_gdn, "PIECE", 2)
    seen = tally(op, FLOATS, examples=18)
    assert seen.differences == []
    assert seen.changed >= seen.examples // 3


def test_attention_holds_where_a_call_takes_several_pieces(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(eager_attention, "_PIECE", 1 << 10)
    seen = tally("paged_attention", FLOATS, examples=18)
    assert seen.differences == []
    assert seen.changed >= seen.examples // 3


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("op", ["gdn_flush", "gdn_checkpoint"])
def test_what_is_not_pending_is_not_computed_with(op: str):
    """Slots with 1 and 3 pending tokens, and numbers behind them that overflow: numpy would warn of arithmetic."""
    generator = torch.Generator().manual_seed(5)

    def rand(*shape: int) -> torch.Tensor:
        return torch.rand(shape, generator=generator)

    inputs, gates = torch.full((2, 2, 4, 7), 3e38), torch.full((2, 2, 3, 2, 1), 3e38)
    for slot, pending in enumerate((1, 3)):
        inputs[0, slot, : 1 + pending] = rand(1 + pending, 7)
        gates[0, slot, :pending] = rand(pending, 2, 1)
    slots = torch.arange(2)
    pools = {"ssm": rand(2, 1, 2, 3), "inputs": inputs}
    weights = {"weight": rand(7, 2), "a_log": rand(1), "dt_bias": rand(1)}
    cursor = torch.tensor([[1, 0], [3, 0]])
    tensors = {
        "gdn_flush": {**pools, "cursor": cursor, "gates": gates, **weights, "state_slots": slots},
        "gdn_checkpoint": {
            "checkpoint_ssm": rand(2, 1, 2, 3),
            "checkpoint_conv": rand(2, 1, 7),
            **pools,
            "gates": gates,
            **weights,
            "cursor": cursor,
            "state_slots": slots,
            "checkpoint_slots": slots,
            "checkpoint_steps": torch.tensor([0, 2]),
        },
    }[op]
    case = KernelCase(op, {name: Buffer(x.flatten(), x.shape, x.stride(), 0) for name, x in tensors.items()})
    assert check(op, getattr(kernels, op), getattr(ops, op), case) == []
    assert writes_something(case)


def test_a_row_has_the_same_bits_whatever_others_have_pending():
    """Slot 0 is nobody's: its cursor, which padding reads, changes how long all rows are."""
    heads, keys, size, value, conv, room = 4, 1, 3, 2, 3, 4
    channels = 2 * keys * size + heads * value

    def live(seed: int, pending: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)

        def rand(*shape: int) -> torch.Tensor:
            return torch.randn(shape, generator=generator)

        out, ssm = torch.empty(3, 2, heads, value), rand(3, heads, size, value)
        held = (rand(2, 3, conv - 1 + room, channels), rand(2, 3, room, 2, heads))
        launch = (rand(3, 2, channels), rand(3, 2, heads), rand(3, 2, heads))
        weights = (rand(channels, conv), rand(heads), rand(heads))
        cursor = torch.tensor([[pending, 0], [1, 1], [0, 0]])
        kernels.gdn_replay(out, ssm, *held, *launch, *weights, cursor, torch.tensor([1, 2, 0]))
        return out[:2], ssm[1:]

    for seed in range(40):
        for pending in (2, 4):
            assert all(map(torch.equal, live(seed, 0), live(seed, pending)))


def test_a_tree_that_is_a_chain_has_the_bits_of_a_chain():
    """Of every op that takes parents: two rows of five tokens, with two pending inputs and none."""
    heads, size, value, conv, width = 2, 3, 2, 3, 5
    channels = 2 * size + heads * value
    generator = torch.Generator().manual_seed(9)

    def rand(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    x, a, b, slots = rand(2, width, channels), rand(2, width, heads), rand(2, width, heads), torch.tensor([1, 2])
    weight, gates = rand(channels, conv), (rand(heads), rand(heads))
    pool, window, cursor = (
        rand(3, heads, size, value),
        rand(3, conv - 1, channels),
        torch.tensor([[0, 0], [2, 1], [0, 0]]),
    )
    held = rand(2, 3, conv - 1 + width, channels), rand(2, 3, width, 2, heads)

    def run(suffix: str, *parents: torch.Tensor) -> tuple[torch.Tensor, ...]:
        qkv, windows = torch.zeros_like(x), torch.zeros(2, width, conv - 1, channels)
        getattr(kernels, f"conv_verify{suffix}")(qkv, windows, x, window, weight, slots, *parents)
        out, states = torch.zeros(2, width, heads, value), torch.zeros(2, width, heads, size, value)
        getattr(kernels, f"gdn_verify{suffix}")(out, states, qkv, a, b, *gates, pool, slots, *parents)
        replayed, ssm, kept = torch.zeros_like(out), pool.clone(), [one.clone() for one in held]
        of_launch = (x, a, b, weight, *gates, cursor, slots)
        getattr(kernels, f"gdn_replay{suffix}")(replayed, ssm, *kept, *of_launch, *parents)
        return qkv, windows, out, states, replayed, ssm, *kept

    chained = torch.arange(width - 1).expand(2, -1)
    assert all(map(torch.equal, run(""), run("_tree", chained)))


def test_this_process_is_eager_and_never_imports_triton(warm: Warm):
    assert implementation() == "eager"
    assert implementation("cuda") == "cuda"
    program = (
        "import sys, torch, draftproof.kernels as k\n"
        "out = torch.zeros(2, dtype=torch.int64)\n"
        "k.ring_mix(out, torch.arange(2), 1)\n"
        "assert out.all()\n"
        "print([name for name in sys.modules if name.split('.')[0] == 'triton'])"
    )
    done = warm.run([sys.executable, "-P", "-c", program])
    assert (done.returncode, done.stdout.strip()) == (0, "[]")
