"""Nothing is timed that is wrong: every op beside gdn_update and conv_update on the same inputs, token by token.

Letters as in gdn_buffers. Values are compared by the norm of the difference over the norm of what is expected, for each
head of each row by itself, so that one wrong head shows; what is only moved must be equal bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from gdn_buffers import Buffers, Setup, buffers
from gdn_cases import FLA, conv_verify, fla_launch, gdn_replay, gdn_verify, scatter_conv, scatter_ssm

from draftproof import kernels

# A bf16 has 8 bits: one rounding is up to 0.004 of a value. A token too many or too few changes a head by its own size.
OUT_BOUND = 0.02
STATE_BOUND = 0.01


def check(given: Setup, batch: int, tokens: int, fla: Callable[..., Any] | None) -> None:
    """Raise RuntimeError, naming what differs, unless all ops agree for this batch and width."""
    _check_snapshot(buffers(given, batch, tokens, given.seed))
    _check_replay(buffers(given, batch, tokens, given.seed + 1))
    if fla is not None:
        _check_fla(given, buffers(given, batch, tokens, given.seed + 2), fla)


def _check_snapshot(on: Buffers) -> None:
    before = on.ssm.clone(), on.conv.clone()
    conv_verify(on)
    gdn_verify(on)
    _equal("state pool after gdn_verify", on.ssm, before[0])
    _equal("window pool after conv_verify", on.conv, before[1])
    convolved, windows = _convolved(on, on.conv, on.x)
    _near("conv_verify", on.qkv, convolved, 1, OUT_BOUND)
    _equal("last windows of conv_verify", on.windows[:, -1], windows)
    for step in range(on.x.shape[1]):
        out, state, final = _updated(on, on.qkv, on.a, on.b, step)
        _near(f"states of gdn_verify after token {step}", on.states[:, step], state, 2, STATE_BOUND)
    _near("gdn_verify", on.out, out, 1, OUT_BOUND)
    _near("last states of gdn_verify", on.states[:, -1], final, 2, STATE_BOUND)
    scatter_ssm(on)
    scatter_conv(on)
    _equal("state pool after state_scatter", on.ssm[on.slots], on.states[:, -1])
    _equal("window pool after state_scatter", on.conv[on.slots], on.windows[:, -1])


def _check_replay(on: Buffers) -> None:
    window, pending = on.weight.shape[1] - 1, on.x.shape[1]
    held, signals = on.inputs[0, on.slots], on.gates[0, on.slots]
    raw = torch.cat((held[:, window:], on.x), 1)
    convolved, _ = _convolved(on, on.inputs[0, :, :window], raw)
    a, b = torch.cat((signals[:, :, 0], on.a), 1), torch.cat((signals[:, :, 1], on.b), 1)
    out, folded, _ = _updated(on, convolved, a, b, pending - 1)
    gdn_replay(on)
    _near("gdn_replay", on.out, out[:, pending:], 1, OUT_BOUND)
    _near("states folded by gdn_replay", on.ssm[on.slots], folded, 2, STATE_BOUND)
    kept = torch.cat((held, on.x), 1)[:, pending:]
    _equal("inputs kept by gdn_replay", on.inputs[1, on.slots], kept)
    _equal("gates kept by gdn_replay", on.gates[1, on.slots], torch.stack((on.a, on.b), 2))
    kernels.replay_commit(on.cursor, on.slots, on.last)
    _equal("cursor", on.cursor[on.slots], torch.tensor([pending, 1], device=on.cursor.device).expand(len(on.slots), 2))


def _check_fla(given: Setup, on: Buffers, fla: Callable[..., Any]) -> None:
    out, _, final = _updated(on, on.qkv, on.a, on.b, 0)
    theirs, state = fla_launch(given, on, fla)()
    _near(FLA, theirs, out, 1, OUT_BOUND)
    _near(f"states of {FLA}", state, final, 2, STATE_BOUND)


def _convolved(on: Buffers, pool: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return conv_update of x [B,W,D] and a pool of windows [S,C-1,D], and the windows [B,C-1,D] after it."""
    out, pool, track = torch.empty_like(x), pool.clone(), torch.empty_like(on.conv[:1])
    starts = torch.arange(0, x.shape[0] * x.shape[1] + 1, x.shape[1], device=x.device)
    kernels.conv_update(
        out.flatten(0, 1), pool, track, x.flatten(0, 1), on.weight, on.slots, starts, on.untracked, on.untracked
    )
    return out, pool[on.slots]


def _updated(
    on: Buffers, qkv: torch.Tensor, a: torch.Tensor, b: torch.Tensor, step: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return outputs [B,W,U,E] of gdn_update, and states [B,U,H,E] after token `step` and after the last."""
    rows, tokens = qkv.shape[:2]
    out = torch.full((rows, tokens, *on.out.shape[2:]), torch.nan, dtype=on.out.dtype, device=qkv.device)
    ssm, track = on.ssm.clone(), torch.full_like(on.states[:, 0], torch.nan)
    starts = torch.arange(0, rows * tokens + 1, tokens, device=qkv.device)
    places = torch.arange(rows, device=qkv.device)
    kernels.gdn_update(
        out.flatten(0, 1),
        ssm,
        track,
        qkv.flatten(0, 1),
        a.flatten(0, 1),
        b.flatten(0, 1),
        on.a_log,
        on.dt_bias,
        on.slots,
        starts,
        places,
        torch.full_like(places, step),
    )
    return out, track, ssm[on.slots]


def _near(name: str, got: torch.Tensor, expected: torch.Tensor, inner: int, bound: float) -> None:
    """Compare over the last `inner` dimensions at a time."""
    ours, theirs = (tensor.float().flatten(-inner) for tensor in (got, expected))
    share = (ours - theirs).norm(dim=-1) / theirs.norm(dim=-1)
    place, worst = int(share.argmax()), float(share.max())
    if not worst < bound:
        at = tuple(int(index) for index in torch.unravel_index(torch.tensor(place), share.shape))
        raise RuntimeError(f"{name} differs at {at} by {worst:.3g} of its size; allowed: {bound}; speed means nothing")


def _equal(name: str, got: torch.Tensor, expected: torch.Tensor) -> None:
    if not torch.equal(got, expected):
        raise RuntimeError(f"{name} differs in {int((got != expected).sum())} elements; speed means nothing")
