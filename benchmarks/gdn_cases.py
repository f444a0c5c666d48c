"""What is timed: each op of a verify round, both ways to commit as whole rounds, and decoding.

Letters as in gdn_buffers. Bytes are what the work must move: each element of an input read once and each of an output
written once, from the shapes; index tensors, which are a few hundred bytes, are left out.

Nothing is timed that is wrong: `check` holds every op to the eager one on a CPU, on the same inputs. Values are
compared by the norm of the difference over the norm of what is expected, for each head of each row by itself, so that
one wrong head shows; what is only moved, and heads that the eager op leaves as they are, must be equal bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import timing
import torch
from gdn_buffers import Buffers, Setup, buffers

from draftproof import kernels

BF16, FLOAT32 = 2, 4
FLA = "fla fused_recurrent"
# A bf16 has 8 bits: one rounding is up to 0.004 of a value. A token too many or too few changes a head by its own size.
# Of every field with float arithmetic: the bound, and how many dimensions a head has.
BOUNDS = {"qkv": (0.02, 1), "out": (0.02, 1), "states": (0.01, 2), "ssm": (0.01, 2)}
CHECKED = ("snapshot round", "replay round", "gdn_update")


@dataclass(frozen=True)
class Case:
    """`launches` do the same work, each on buffers of its own; `bytes` is what one of them moves."""

    name: str
    bytes: int
    launches: tuple[Callable[[], object], ...]


Launch = tuple[str, Callable[[Buffers], tuple[torch.Tensor, ...]]]
"""An op and its arguments."""
CONV_VERIFY: Launch = ("conv_verify", lambda on: (on.qkv, on.windows, on.x, on.conv, on.weight, on.slots))
GDN_VERIFY: Launch = (
    "gdn_verify",
    lambda on: (on.out, on.states, on.qkv, on.a, on.b, on.a_log, on.dt_bias, on.ssm, on.slots),
)
SCATTER_SSM: Launch = ("state_scatter", lambda on: (on.ssm[None], on.states[None], on.slots, on.last))
SCATTER_CONV: Launch = ("state_scatter", lambda on: (on.conv[None], on.windows[None], on.slots, on.last))
# Folds the pending tokens, then verifies, convolution included.
GDN_REPLAY: Launch = (
    "gdn_replay",
    lambda on: (
        *(on.out, on.ssm, on.inputs, on.gates, on.x, on.a, on.b, on.weight, on.a_log, on.dt_bias),
        *(on.cursor, on.slots),
    ),
)
# The committed tokens are those pending in the next launch on these buffers.
REPLAY_COMMIT: Launch = ("replay_commit", lambda on: (on.cursor, on.slots, on.last))
# Decodes W tokens a row, of which the state after the last is kept, in place.
GDN_UPDATE: Launch = (
    "gdn_update",
    lambda on: (
        *(on.out.flatten(0, 1), on.ssm, on.no_track, on.qkv.flatten(0, 1), on.a.flatten(0, 1), on.b.flatten(0, 1)),
        *(on.a_log, on.dt_bias, on.slots, on.starts, on.untracked, on.untracked),
    ),
)
OPS: dict[str, tuple[Launch, ...]] = {
    "conv_verify": (CONV_VERIFY,),
    "gdn_verify": (GDN_VERIFY,),
    "state_scatter": (SCATTER_SSM,),
    "snapshot round": (CONV_VERIFY, GDN_VERIFY, SCATTER_SSM, SCATTER_CONV),
    "gdn_replay": (GDN_REPLAY,),
    "replay round": (GDN_REPLAY, REPLAY_COMMIT),
    "gdn_update": (GDN_UPDATE,),
}


def run(launch: Launch, on: Buffers, ops: Any = kernels) -> None:
    """Launch one of `ops` on buffers."""
    name, arguments = launch
    getattr(ops, name)(*arguments(on))


def moved_bytes(given: Setup, batch: int, tokens: int) -> dict[str, int]:
    """Bytes that each case must move."""
    row, window = given.channels * BF16, (given.conv - 1) * given.channels * BF16
    state = given.value_heads * given.key_dim * given.value_dim * FLOAT32
    out, gates = given.value_heads * given.value_dim * BF16, 2 * given.value_heads * BF16
    weight, constants = given.channels * given.conv * BF16, 2 * given.value_heads * FLOAT32
    token = row + gates + out
    scatters = {"state": 2 * batch * state, "window": 2 * batch * window}
    moved = {
        "conv_verify": batch * (window + tokens * (2 * row + window)) + weight,
        "gdn_verify": batch * (state + tokens * (token + state)) + constants,
        "state_scatter": scatters["state"],
        # Both halves: pending inputs and gates read, the new ones written.
        "gdn_replay": batch * (2 * state + 2 * window + tokens * (2 * (row + gates) + token)) + weight + constants,
        "gdn_update": batch * (2 * state + tokens * token) + constants,
        # Its decay and beta come computed, the decay in float32.
        FLA: batch * (2 * state + tokens * (row + out + given.value_heads * (FLOAT32 + BF16))),
    }
    moved["snapshot round"] = moved["conv_verify"] + moved["gdn_verify"] + sum(scatters.values())
    moved["replay round"] = moved["gdn_replay"]
    return moved


def cases(given: Setup, sets: Sequence[Buffers]) -> list[Case]:
    """Every case on every set of buffers."""
    moved = moved_bytes(given, *sets[0].x.shape[:2])
    return [Case(name, moved[name], tuple(_bound(launches, on) for on in sets)) for name, launches in OPS.items()]


def _bound(launches: tuple[Launch, ...], on: Buffers) -> Callable[[], None]:
    ready = [(getattr(kernels, name), arguments(on)) for name, arguments in launches]

    def launch() -> None:
        for op, arguments in ready:
            op(*arguments)

    return launch


def check(given: Setup, batch: int, tokens: int) -> None:
    """Raise RuntimeError, naming what differs, unless all ops agree for this batch and width."""
    for seed, name in enumerate(CHECKED, start=given.seed):
        on = buffers(given, batch, tokens, seed)
        for launch in OPS[name]:
            before, expected = on.cpu(), on.cpu()
            run(launch, on)
            run(launch, expected, torch.ops.draftproof)
            _compare_all(launch[0], on, expected, before)


def _compare_all(op: str, on: Buffers, expected: Buffers, before: Buffers) -> None:
    got = on.cpu()
    for field, must in vars(expected).items():
        compare(f"{field} after {op}", getattr(got, field), must, getattr(before, field), *BOUNDS.get(field, (0.0, 1)))


def compare(
    name: str, got: torch.Tensor, expected: torch.Tensor, before: torch.Tensor, bound: float, inner: int
) -> None:
    """Compare the last `inner` dimensions at a time; a bound of 0 wants equal bits, as does what stays as before."""

    def heads(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.flatten(-inner)

    wrong = heads(timing.bits(got) != timing.bits(expected)).any(-1)
    kept = heads(timing.bits(before) == timing.bits(expected)).all(-1)
    share = heads(got.float() - expected.float()).norm(dim=-1) / heads(expected.float()).norm(dim=-1)
    bad = (wrong & (kept | ~(share < bound))).nonzero()
    if len(bad):
        at = tuple(bad[0].tolist())
        raise RuntimeError(
            f"{name} differs at {at} by {share[at]:.3g} of its size: expected at most {bound}; speed means nothing"
        )
