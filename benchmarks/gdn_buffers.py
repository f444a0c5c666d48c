"""Sizes and buffers of one gated delta net layer, as a verify round finds them.

`B` rows, `W` tokens a row, `S` state slots, `N` key heads, `U` value heads, `H` key size, `E` value size, `C` width of
the convolution, `D` = 2*N*H + U*E channels.
"""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass, replace
from typing import Any

import torch

MOST_SETS = 256
TINY: dict[str, Any] = {
    "key_heads": 2,
    "value_heads": 4,
    "key_dim": 8,
    "value_dim": 16,
    "batches": (1, 3),
    "tokens": (1, 2, 3),
    "rotation": 1 << 15,
    "copy_bytes": 1 << 20,
}


@dataclass(frozen=True)
class Setup:
    """The sizes that are measured.

    `rotation`: bytes of buffers that launches go round in, so that no cache holds them.
    """

    device: str
    seed: int
    key_heads: int = 16
    value_heads: int = 32
    key_dim: int = 128
    value_dim: int = 128
    conv: int = 4
    batches: tuple[int, ...] = (1, 8, 64, 128)
    tokens: tuple[int, ...] = (1, 4, 8)
    rotation: int = 1 << 31
    copy_bytes: int = 1 << 31

    @property
    def channels(self) -> int:
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim


def setup(given: Namespace) -> Setup:
    """Return sizes of Qwen3-Next, or some for trying it out."""
    chosen = {"batches": tuple(sorted(set(given.batch or ()))), "tokens": tuple(sorted(set(given.tokens or ())))}
    of = replace(Setup(given.device, given.seed), **TINY if given.tiny else {})
    return replace(of, **{name: numbers for name, numbers in chosen.items() if numbers})


@dataclass(frozen=True)
class Buffers:
    """One layer's tensors for one round of `B` rows of `W` tokens; a slot for each row, and slot 0.

    In replay all `W` tokens of the round before are pending, the most that can be.
    """

    x: torch.Tensor  # [B,W,D]
    a: torch.Tensor  # [B,W,U]
    b: torch.Tensor  # [B,W,U]
    qkv: torch.Tensor  # [B,W,D]
    out: torch.Tensor  # [B,W,U,E]
    weight: torch.Tensor  # [D,C]
    a_log: torch.Tensor  # [U]
    dt_bias: torch.Tensor  # [U]
    conv: torch.Tensor  # [S,C-1,D]
    windows: torch.Tensor  # [B,W,C-1,D]
    ssm: torch.Tensor  # [S,U,H,E]
    states: torch.Tensor  # [B,W,U,H,E]
    inputs: torch.Tensor  # [2,S,C-1+W,D]
    gates: torch.Tensor  # [2,S,W,2,U]
    cursor: torch.Tensor  # [S,2]
    slots: torch.Tensor  # [B]
    last: torch.Tensor  # [B]
    starts: torch.Tensor  # [B+1]
    untracked: torch.Tensor  # [B]
    no_track: torch.Tensor  # [1,U,H,E]

    def cpu(self) -> Buffers:
        """Return copies on the CPU."""
        return Buffers(**{name: tensor.cpu().clone() for name, tensor in vars(self).items()})

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in vars(self).values())


def buffers(given: Setup, batch: int, tokens: int, seed: int) -> Buffers:
    """Random inputs and states; what the ops write is NaN before."""
    generator = torch.Generator(given.device).manual_seed(seed)
    device, channels, heads = given.device, given.channels, given.value_heads
    window, inner, slots = given.conv - 1, (heads, given.key_dim, given.value_dim), batch + 1

    def normal(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return torch.randn(shape, dtype=dtype, device=device, generator=generator)

    def unwritten(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return torch.full(shape, torch.nan, dtype=dtype, device=device)

    def ints(value: int) -> torch.Tensor:
        return torch.full((batch,), value, dtype=torch.int64, device=device)

    return Buffers(
        x=normal(batch, tokens, channels),
        a=normal(batch, tokens, heads),
        b=normal(batch, tokens, heads),
        qkv=normal(batch, tokens, channels),
        out=unwritten(batch, tokens, heads, given.value_dim),
        weight=(normal(given.conv, channels) * given.conv**-0.5).t(),
        # Decays of 0.4 .. 1 a token: a state matters for many tokens, so that a wrong one shows.
        a_log=torch.log(torch.linspace(0.01, 0.4, heads, device=device)),
        dt_bias=torch.ones(heads, device=device),
        conv=normal(slots, window, channels),
        windows=unwritten(batch, tokens, window, channels),
        ssm=normal(slots, *inner, dtype=torch.float32),
        states=unwritten(batch, tokens, *inner, dtype=torch.float32),
        inputs=normal(2, slots, window + tokens, channels),
        gates=normal(2, slots, tokens, 2, heads),
        cursor=torch.tensor([[tokens, 0]] * slots, dtype=torch.int64, device=device),
        # As in a pool that has been in use: in no order.
        slots=torch.randperm(batch, generator=generator, device=device) + 1,
        last=ints(tokens - 1),
        starts=torch.arange(0, batch * tokens + 1, tokens, device=device),
        untracked=ints(-1),
        no_track=unwritten(1, *inner, dtype=torch.float32),
    )


def sets(given: Setup, batch: int, tokens: int) -> list[Buffers]:
    """Return as many sets of buffers as fill the rotation, at least two."""
    first = buffers(given, batch, tokens, given.seed)
    count = max(2, min(MOST_SETS, -(-given.rotation // first.nbytes)))
    return [first, *(buffers(given, batch, tokens, given.seed + index) for index in range(1, count))]
