"""The gated delta net kernels of SGLang, vLLM and flash-linear-attention side by side with ours, in one run.

Verdict and time of each at the sizes of Qwen3-Next: first what it computes is held to the eager op on a CPU, on the
same inputs, as gdn_speed.py holds ours; then it is timed as there, cold and hot. `--wheel FILE` names the wheels, those
without compiled modules, too; a package without one is imported as it is installed here, or left out, and the reason
printed. All see states that lie as value size by key size, but for flash-linear-attention, whose states are key size by
value size and new tensors. vLLM keeps the state after each token in a slot of its own, the first of which is the state
before.
`--tiny --device cpu` tries the script itself, with TRITON_INTERPRET=1.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import bench
import torch
from gdn_buffers import Buffers, Setup, buffers, setup
from gdn_cases import BOUNDS, FLA, GDN_UPDATE, GDN_VERIFY, compare, fla_launch, moved_bytes, run
from gdn_speed import MOST_SETS

from draftproof.harness.bound_kernels import found
from draftproof.harness.bound_releases import ReleasedKernels
from draftproof.harness.wheels import wheels_of
from draftproof.subjects.kernels.common import heads_of

OURS = "draftproof"
PACKAGES = ("sglang", "vllm", "fla")
COLUMNS: dict[str, Callable[[dict[str, Any]], object]] = {
    "batch": lambda row: row["batch"],
    "tokens": lambda row: row["tokens"],
    "op": lambda row: row["op"],
    "kernel": lambda row: row["kernel"],
    "verdict": lambda row: row["verdict"],
    "us cold": lambda row: f"{1e6 * row['cold']:.2f}",
    "us hot": lambda row: f"{1e6 * row['hot']:.2f}",
    "GB/s cold": lambda row: f"{row['bytes'] / row['cold'] / 1e9:.0f}",
}
Results = Mapping[str, torch.Tensor]
"""What a launch made, under the names of the buffers that it stands for."""


@dataclass(frozen=True)
class Rival:
    """A kernel for an op: `prepare` returns its launch on buffers, and what reads the results of one afterwards."""

    name: str
    op: str
    prepare: Callable[[Buffers], tuple[Callable[[], Any], Callable[[Any], Results]]]


def main() -> None:
    """Hold to the eager op, measure, print a table, write JSON."""
    parser = bench.parser(__doc__, "tiny", "batch", "tokens", "seed")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--wheel", type=_wheel, action="append", default=[], help="a wheel, may be given several times")
    arguments = parser.parse_args()
    given = _setup(arguments)
    rivals, said = _rivals(given, arguments.wheel)
    rows: list[dict[str, Any]] = []
    result = {**bench.machine(given.device), "seed": given.seed, "left_out": said, "rows": rows}
    torch.set_num_threads(os.cpu_count() or 1)  # of the eager op, which everything is held to
    with torch.inference_mode():
        for row in _measured(given, rivals):
            rows.append(row)
            # At once: whoever stops this early keeps what is measured.
            print(", ".join(f"{name} {cell(row)}" for name, cell in COLUMNS.items()), flush=True)
            bench.write(arguments.json, result)
    bench.show("gated delta net kernels", rows, COLUMNS, left=("op", "kernel", "verdict"), section=_section)
    for line in said:
        print(line)


def _wheel(text: str) -> Path:
    """Return the path of a wheel of a package that is measured here."""
    path = Path(text)
    if path.suffix != ".whl" or not path.name.startswith(PACKAGES) or not path.is_file():
        raise argparse.ArgumentTypeError(f"invalid {text!r}: expected a file *.whl of {', '.join(PACKAGES)}")
    return path


def _section(row: dict[str, Any]) -> object:
    return row["batch"], row["tokens"], row["op"]


def _setup(arguments: argparse.Namespace) -> Setup:
    given = setup(arguments.device, arguments.tiny, arguments.seed)
    return replace(
        given,
        batches=tuple(arguments.batch or (given.batches[:1] if arguments.tiny else (1, 64))),
        tokens=tuple(arguments.tokens or (given.tokens[:2] if arguments.tiny else (1, 4, 8))),
    )


def _value_first(on: Buffers) -> Buffers:
    """Return buffers whose states lie as value size by key size."""

    def turned(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.transpose(-1, -2).contiguous().transpose(-1, -2)

    return replace(on, ssm=turned(on.ssm), states=turned(on.states))


def _measured(given: Setup, rivals: list[Rival]) -> Iterator[dict[str, Any]]:
    """Yield the row of each kernel at each size; what the eager op makes is computed once for all kernels of an op."""
    for batch in given.batches:
        for tokens in given.tokens:
            before = _value_first(buffers(given, batch, tokens, given.seed)).cpu()
            for op, some in groupby(rivals, key=lambda one: one.op):
                expected = before.cpu()
                run({"gdn_verify": GDN_VERIFY, "gdn_update": GDN_UPDATE}[op], expected, _Eager())
                yield from (_row(given, one, batch, tokens, expected, before) for one in some)


def _row(
    given: Setup, rival: Rival, batch: int, tokens: int, expected: Buffers, before: Buffers
) -> dict[str, Any]:  # fmt: skip
    count = max(2, min(MOST_SETS, -(-given.rotation // before.nbytes)))
    sets = [_value_first(buffers(given, batch, tokens, given.seed + n)) for n in range(count)]
    verdict = _verdict(rival, sets[0], expected, before)
    launches = [rival.prepare(on)[0] for on in sets]
    cold, hot = (bench.launch_seconds(given.device, some) for some in (launches, launches[:1]))
    moved = moved_bytes(given, batch, tokens)[FLA if rival.name == FLA else rival.op]
    row = {"batch": batch, "tokens": tokens, "op": rival.op, "kernel": rival.name, "verdict": verdict}
    return {**row, "bytes": moved, "cold": cold, "hot": hot}


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


def _rivals(given: Setup, wheels: list[Path]) -> tuple[list[Rival], list[str]]:
    """Return the kernels that can be imported here, and why others are left out."""
    rivals = [
        _ours("gdn_verify", GDN_VERIFY, ("out", "states")),
        _ours("gdn_update", GDN_UPDATE, ("out", "ssm")),
    ]
    said, released = [], ReleasedKernels()
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
            said.append(f"{package} left out: {type(error).__name__}: {error}")
            continue
        said.append(f"{package}: {folder[1] or 'as installed'}")
        rivals += make(given, kernel)
    return sorted(rivals, key=lambda one: one.op), said


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
    def prepare(on: Buffers) -> tuple[Callable[[], Any], Callable[[Any], Results]]:
        def results(made: Any) -> Results:
            ssm = on.ssm.clone()
            ssm[on.slots] = made[1]
            return {"out": made[0], "ssm": ssm}

        return fla_launch(given, on, kernel), results

    return [Rival(FLA, "gdn_update", prepare)]


if __name__ == "__main__":
    main()
