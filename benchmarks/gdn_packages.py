"""The gated delta net kernels of SGLang, vLLM and flash-linear-attention beside ours."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import timing
import torch
from gdn import timed
from gdn_buffers import Buffers, Setup, buffers, sets, setup
from gdn_cases import BOUNDS, FLA, GDN_UPDATE, GDN_VERIFY, compare, moved_bytes, run

from draftproof.harness.bound_kernels import found
from draftproof.harness.bound_releases import ReleasedKernels
from draftproof.harness.wheels import wheels_of
from draftproof.subjects.kernels.common import heads_of

OURS = "draftproof"
Results = Mapping[str, torch.Tensor]
"""What a launch made, under the names of the buffers that it stands for."""


@dataclass(frozen=True)
class Rival:
    """A kernel for an op: `prepare` returns its launch on buffers, and what reads the results of one afterwards."""

    name: str
    op: str
    prepare: Callable[[Buffers], tuple[Callable[[], Any], Callable[[Any], Results]]]


def gdn_packages(given: Namespace) -> Iterator[dict[str, Any]]:
    """Time the gated delta net kernels of SGLang, vLLM and flash-linear-attention beside ours, each with its verdict.

    What each computes is held to the eager op on a CPU, on the same inputs; then it is timed as in `gdn`. `--wheel
    FILE` names the wheels, those without compiled modules, too; a package without one is imported as it is installed
    here, or left out, and the reason printed. All see states that lie as value size by key size, but for
    flash-linear-attention, whose states are key size by value size and new tensors, and whose decay and beta come
    computed. vLLM keeps the state after each token in a slot of its own, the first of which is the state before. With
    `--tiny --device cpu` Triton needs TRITON_INTERPRET=1.
    """
    of = setup(given)
    if not given.batch:
        of = replace(of, batches=of.batches[:1] if given.tiny else (1, 64))
    if given.tiny and not given.tokens:
        of = replace(of, tokens=of.tokens[:2])
    torch.set_num_threads(os.cpu_count() or 1)  # of the eager op, which everything is held to
    rivals = _rivals(of, given.wheel or [])
    copy = timing.copy_bandwidth(of.device, of.copy_bytes)
    for batch in of.batches:
        for tokens in of.tokens:
            before = _value_first(buffers(of, batch, tokens, of.seed)).cpu()
            for op, some in groupby(rivals, key=lambda one: one.op):
                expected = before.cpu()
                run({"gdn_verify": GDN_VERIFY, "gdn_update": GDN_UPDATE}[op], expected, _Eager())
                for one in some:
                    on = [_value_first(buffer) for buffer in sets(of, batch, tokens)]
                    verdict = _verdict(one, on[0], expected, before)
                    moved = moved_bytes(of, batch, tokens)[FLA if one.name == FLA else op]
                    times = timed(of, moved, [one.prepare(buffer)[0] for buffer in on], copy)
                    yield {"op": op, "kernel": one.name, "batch": batch, "tokens": tokens, **times, "verdict": verdict}


def _value_first(on: Buffers) -> Buffers:
    """Return buffers whose states lie as value size by key size."""

    def turned(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.transpose(-1, -2).contiguous().transpose(-1, -2)

    return replace(on, ssm=turned(on.ssm), states=turned(on.states))


def _verdict(rival: Rival, on: Buffers, expected: Buffers, before: Buffers) -> str:
    """Compare what a launch on these buffers makes with what the eager op makes of the same, where that lies."""
    launch, results = rival.prepare(on)
    for field, got in results(launch()).items():
        must, held = (getattr(side, field).to(got.device) for side in (expected, before))
        try:
            compare(field, got, must, held, *BOUNDS.get(field, (0.0, 1)))
        except RuntimeError as error:
            return f"DIFFERS: {error}"
    return "right"


class _Eager:
    """The ops of the CPU, whatever this process runs there by default."""

    def __getattr__(self, name: str) -> Any:
        from draftproof.kernels import eager_gdn, eager_state

        return getattr(eager_gdn, name, None) or getattr(eager_state, name)


def _ours(op: str, launch: Any, fields: tuple[str, ...]) -> Rival:
    def prepare(on: Buffers) -> tuple[Callable[[], Any], Callable[[Any], Results]]:
        return lambda: run(launch, on), lambda _: {field: getattr(on, field) for field in fields}

    return Rival(OURS, op, prepare)


def _rivals(given: Setup, wheels: list[Path]) -> list[Rival]:
    """Return the kernels that can be imported here; say why others are left out."""
    rivals = [
        _ours("gdn_verify", GDN_VERIFY, ("out", "states")),
        _ours("gdn_update", GDN_UPDATE, ("out", "ssm")),
    ]
    released = ReleasedKernels()
    makers = {
        "sglang": ("fused_sigmoid_gating_verify", _sglang),
        "vllm": ("fused_sigmoid_gating_verify", _vllm),
        "fla": ("fused_recurrent_gated_delta_rule", _fla),
    }
    for package, (name, make) in makers.items():
        (binding,) = found(f"{package}:{name}")
        try:
            files = [file for file in wheels if file.name.startswith((package, f"{package}_"))]
            folder = wheels_of(files[:1], None, [binding])[0] if files else ("", "", "")
            kernel = released.kernel(binding, folder[2])
        # A witness that is not needed: whatever its import dies of, the rest is measured, and the reason printed.
        except Exception as error:
            print(f"{package} left out: {type(error).__name__}: {error}")
            continue
        print(f"{package}: {folder[1] or 'as installed'}")
        rivals += make(given, kernel)
    return sorted(rivals, key=lambda one: one.op)


def _heads(given: Setup, on: Buffers) -> dict[str, torch.Tensor]:
    q, k, v = heads_of(on.qkv.flatten(0, 1), given.value_heads, given.key_dim, given.value_dim)
    gates = {"a": on.a.flatten(0, 1), "b": on.b.flatten(0, 1)}
    return {"q": q, "k": k, "v": v, **gates, "A_log": on.a_log, "dt_bias": on.dt_bias}


def _sglang(given: Setup, kernel: Callable[..., Any]) -> list[Rival]:
    def prepare(on: Buffers, *, verify: bool) -> tuple[Callable[[], Any], Callable[[Any], Results]]:
        words = _heads(given, on) | {
            "softplus_beta": 1.0,
            "softplus_threshold": 20.0,
            "initial_state_source": on.ssm.transpose(2, 3),
            "initial_state_indices": on.slots.int(),
            "use_qk_l2norm_in_kernel": True,
            "cu_seqlens": on.starts.int(),
            "is_kda": False,
        }
        if verify:
            words |= {
                "disable_state_update": True,
                "intermediate_states_buffer": on.states.transpose(3, 4),
                "intermediate_state_indices": torch.arange(len(on.slots), dtype=torch.int32, device=on.slots.device),
                "cache_steps": on.states.shape[1],
            }
        kept = {"states": on.states} if verify else {"ssm": on.ssm}
        return lambda: kernel(**words), lambda made: {"out": made.reshape(on.out.shape), **kept}

    return [
        Rival("sglang", "gdn_verify", lambda on: prepare(on, verify=True)),
        Rival("sglang", "gdn_update", lambda on: prepare(on, verify=False)),
    ]


def _vllm(given: Setup, kernel: Callable[..., Any]) -> list[Rival]:
    def words(on: Buffers) -> dict[str, Any]:
        return _heads(given, on) | {"cu_seqlens": on.starts.int(), "use_qk_l2norm_in_kernel": True}

    def update(on: Buffers) -> tuple[Callable[[], Any], Callable[[Any], Results]]:
        slots = on.slots[:, None].expand(on.x.shape[:2]).int().contiguous()
        own = words(on) | {"initial_state": on.ssm.transpose(2, 3), "ssm_state_indices": slots}
        return lambda: kernel(**own), lambda made: {"out": made[0].reshape(on.out.shape), "ssm": on.ssm}

    def verify(on: Buffers) -> tuple[Callable[[], Any], Callable[[Any], Results]]:
        batch, width = on.x.shape[:2]
        pool = on.states.new_empty(1 + batch * width, *on.states.shape[2:]).transpose(2, 3).contiguous()
        pool[1::width] = on.ssm[on.slots].transpose(2, 3)
        slots = torch.arange(1, 1 + batch * width, dtype=torch.int32, device=pool.device).reshape(batch, width)
        own = words(on) | {"initial_state": pool, "ssm_state_indices": slots}
        states = pool[1:].unflatten(0, (batch, width)).transpose(3, 4)
        return lambda: kernel(**own), lambda made: {"out": made[0].reshape(on.out.shape), "states": states}

    return [Rival("vllm", "gdn_verify", verify), Rival("vllm", "gdn_update", update)]


def _fla(given: Setup, kernel: Callable[..., Any]) -> list[Rival]:
    """Return gdn_update's work in flash-linear-attention's form: contiguous arguments, results in new tensors."""

    def prepare(on: Buffers) -> tuple[Callable[[], Any], Callable[[Any], Results]]:
        shape = on.qkv.shape[:2]
        q, k, v = heads_of(on.qkv.flatten(0, 1), given.value_heads, given.key_dim, given.value_dim)
        arguments = {name: one.unflatten(1, shape)[0].contiguous() for name, one in {"q": q, "k": k, "v": v}.items()}
        arguments |= {
            "g": -on.a_log.exp() * torch.nn.functional.softplus(on.a.float() + on.dt_bias),
            "beta": on.b.sigmoid(),
            "initial_state": on.ssm[on.slots],
        }

        def results(made: Any) -> Results:
            ssm = on.ssm.clone()
            ssm[on.slots] = made[1]
            return {"out": made[0], "ssm": ssm}

        return lambda: kernel(**arguments, output_final_state=True, use_qk_l2norm_in_kernel=True), results

    return [Rival(FLA, "gdn_update", prepare)]
