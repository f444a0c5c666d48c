"""The benchmark of the gated delta net kernels runs, counts bytes as by hand, and refuses to time a wrong kernel."""

from __future__ import annotations

import importlib
import json
import re
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from draftproof import kernels
from tests.warm import Warm

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
OPS = (
    "conv_verify",
    "gdn_verify",
    "state_scatter",
    "snapshot round",
    "gdn_replay",
    "replay round",
    "gdn_update",
)


def test_it_measures_every_op(warm: Warm, tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "bench.py"), "gdn", "--tiny", "--json", str(tmp_path / "gdn.json")]
    done = warm.run(command)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "gdn.json").read_text())["rows"]
    cases = [(row["batch"], row["tokens"], row["op"]) for row in rows]
    assert cases == [(batch, tokens, op) for tokens in (1, 2, 3) for batch in (1, 3) for op in OPS]
    copies = [row["bytes"] / row["cold_us"] / row["of_copy"] for row in rows]
    assert copies == pytest.approx([copies[0]] * len(rows))
    assert all(row["hot_us"] > 0 for row in rows)


def setup(modules: Callable[[str], Any], *, tiny: bool) -> Any:
    return modules("gdn_buffers").setup(Namespace(device="cpu", seed=1, tiny=tiny, batch=None, tokens=None))


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


def test_bytes_at_the_size_of_qwen3_next(modules: Callable[[str], Any]) -> None:
    """128 rows of 8 tokens: a state is 2 MiB, a token's channels are 16 KiB, a window is 48 KiB."""
    kib = 1024
    given = setup(modules, tiny=False)
    moved = modules("gdn_cases").moved_bytes(given, 128, 8)
    state, window, row, out, gates, weight = 2048 * kib, 48 * kib, 16 * kib, 8 * kib, 128, 64 * kib
    verify = 128 * (state + 8 * (state + row + out + gates)) + 256
    convolution = 128 * (window + 8 * (2 * row + window)) + weight
    assert moved["gdn_verify"] == verify
    assert moved["conv_verify"] == convolution
    assert moved["state_scatter"] == 128 * 2 * state
    assert moved["snapshot round"] == verify + convolution + 128 * 2 * (state + window)
    # Read: state, window, 8 pending rows with gates, 8 new ones. Written: state, window, 8 rows with gates, 8 outputs.
    kept = window + 8 * (row + gates)
    assert moved["replay round"] == 128 * (2 * state + 2 * kept + 8 * (row + gates + out)) + weight + 256
    assert moved["gdn_update"] == 128 * (2 * state + 8 * (row + gates + out)) + 256
    assert moved["fla fused_recurrent"] == 128 * (2 * state + 8 * (row + out + 32 * 6))


def after(name: str, spoil: Callable[..., object]) -> Callable[..., None]:
    """The op, whose results `spoil` then gets."""
    right = getattr(kernels, name)

    def run(*arguments: torch.Tensor) -> None:
        right(*arguments)
        spoil(*arguments)

    return run


WRONG: dict[str, tuple[str, Callable[..., object], str]] = {
    "a head of the outputs is off by a twentieth": (
        "gdn_verify",
        lambda out, *_: out[0, 1, 2].mul_(1.05),
        r"out after gdn_verify differs at \(0, 1, 2\)",
    ),
    "a state is not written": (
        "gdn_verify",
        lambda out, states, *_: states[2, 0].fill_(torch.nan),
        r"states after gdn_verify differs at \(2, 0, 0\) by nan",
    ),
    "the committed state moves": (
        "gdn_verify",
        lambda *arguments: arguments[7].add_(1),
        "ssm after gdn_verify differs",
    ),
    "the last window is the one before": (
        "conv_verify",
        lambda out, windows, *_: windows[:, -1].copy_(windows[:, 0]),
        "windows after conv_verify differs",
    ),
    "a state is committed to another slot": (
        "state_scatter",
        lambda pool, *_: pool.copy_(pool.roll(1, 1)),
        "ssm after state_scatter differs",
    ),
    "nothing is folded": (
        "gdn_replay",
        lambda out, ssm, *_: ssm.zero_(),
        "ssm after gdn_replay differs",
    ),
    "new inputs are not kept": (
        "gdn_replay",
        lambda out, ssm, inputs, *_: inputs[1].zero_(),
        "inputs after gdn_replay differs",
    ),
    "the cursor stays": (
        "replay_commit",
        lambda cursor, *_: cursor[:, 1].zero_(),
        "cursor after replay_commit differs",
    ),
}


def complaint(modules: Callable[[str], Any], tokens: int) -> str:
    """What the check before the benchmark finds wrong; "" if nothing."""
    try:
        modules("gdn_cases").check(setup(modules, tiny=True), 3, tokens)
    except RuntimeError as error:
        return str(error)
    return ""


def test_right_kernels_pass(modules: Callable[[str], Any]) -> None:
    assert complaint(modules, 2) == ""


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_kernel_is_not_timed(name: str, modules: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    op, spoil, said = WRONG[name]
    monkeypatch.setattr(kernels, op, after(op, spoil))
    assert re.search(said, complaint(modules, 2))


def test_the_other_librarys_launch_gets_the_same_inputs(modules: Callable[[str], Any]) -> None:
    """With the delta rule written out in its form, held to gdn_update as the real one is on a GPU."""
    packages, cases, made = modules("gdn_packages"), modules("gdn_cases"), modules("gdn_buffers")
    given = setup(modules, tiny=True)
    before = made.buffers(given, 3, 3, 1)
    on, expected = before.cpu(), before.cpu()
    cases.run(cases.GDN_UPDATE, expected)
    (theirs,) = packages._fla(given, recurrent)
    assert packages._verdict(theirs, on, expected, before) == "right"
    (theirs,) = packages._fla(given, lambda **given: recurrent(**{**given, "g": given["g"] + 0.1}))
    assert packages._verdict(theirs, on, expected, before).startswith("DIFFERS: out differs at (0, 0, ")


def recurrent(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    initial_state: torch.Tensor,
    output_final_state: bool,
    use_qk_l2norm_in_kernel: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The signature, shapes and scale of fla's kernel: q, k [B,T,N,H], v [B,T,U,E], g, beta [B,T,U]."""
    assert output_final_state
    assert use_qk_l2norm_in_kernel
    assert all(tensor.is_contiguous() for tensor in (q, k, v, g, beta, initial_state))
    repeat, state, outs = v.shape[2] // q.shape[2], initial_state.clone(), []
    unit = [
        (x.float() / (x.float().square().sum(-1, keepdim=True) + 1e-6).sqrt()).repeat_interleave(repeat, 2)
        for x in (q, k)
    ]
    for t in range(q.shape[1]):
        key, query = unit[1][:, t], unit[0][:, t] * q.shape[-1] ** -0.5
        state = state * g[:, t, :, None, None].exp()
        wrong = v[:, t].float() - torch.einsum("buhe,buh->bue", state, key)
        state = state + key[..., None] * (beta[:, t, :, None].float() * wrong)[..., None, :]
        outs.append(torch.einsum("buhe,buh->bue", state, query))
    return torch.stack(outs, 1).to(v.dtype), state
