"""Holds every op to its contract on one implementation; run as a program, in a process of its own.

TRITON_INTERPRET=1 python lane.py EXAMPLES OP..   prints {ops: {op: {examples, changed, differences}}, ..} as JSON
"""

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import torch
from hypothesis import HealthCheck, Phase, given, seed, settings

from draftproof import kernels
from draftproof.properties.kernels.cases import CASES
from draftproof.properties.kernels.contract import Kernel, KernelCase, check
from draftproof.properties.kernels.table import OPS, OpValues
from draftproof.reference import ops

LARGE_EXAMPLES = 2


@dataclass
class Tally:
    """What was seen of one op: `changed` counts cases in which the twin wrote anything at all."""

    examples: int = 0
    changed: int = 0
    differences: list[str] = field(default_factory=list)


def dtypes_of(op: str, floats: Sequence[torch.dtype]) -> Sequence[torch.dtype]:
    """Return the value dtypes that `op` is drawn with, given the float ones of a lane."""
    integers, values = (torch.int64,), OPS[op].values
    return {OpValues.INTEGER: integers, OpValues.FLOAT: floats, OpValues.RING_AND_FLOAT: (*integers, *floats)}[values]


def tally(op: str, floats: Sequence[torch.dtype], examples: int, device: str = "cpu", **options: bool) -> Tally:
    """Run `examples` cases of `op` on `device`; the first case that differs, shrunk, is what is told."""
    seen = Tally()

    @seed(20)
    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(CASES[op](dtypes_of(op, floats), **options))
    def hold(case: KernelCase) -> None:
        seen.examples += 1
        seen.changed += writes_something(case)
        differences = check(op, getattr(kernels, op), getattr(ops, op), case, device)
        if differences:
            seen.differences = [f"{difference.op}: {difference}" for difference in differences]
        assert not differences

    try:
        hold()
    except AssertionError:
        assert seen.differences, "the contract failed without a difference"
    return seen


def writes_something(case: KernelCase) -> bool:
    """Return whether the twin changes any allocation of the case."""
    after = case.run(getattr(ops, case.op))
    return any(not torch.equal(after[name], case.buffers[name].storage) for name in OPS[case.op].writes)


def is_caught(wrong: Kernel, op: str, dtypes: Sequence[torch.dtype], examples: int, seed_: int = 20) -> str | None:
    """Return the first difference that the contract finds in `wrong`, or None if it never notices."""
    found: list[str] = []

    @seed(seed_)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(CASES[op](dtypes))
    def hold(case: KernelCase) -> None:
        found.extend(map(str, check(op, wrong, getattr(ops, op), case)))
        assert not found

    # The failure only ends the search: what was found is returned.
    with suppress(AssertionError):
        hold()
    return found[0] if found else None


def main() -> None:
    """Print the tallies of the ops, ring, float32 and float16, as one JSON object."""
    examples, ops = int(sys.argv[1]), sys.argv[2:]
    tallies = {
        op: vars(tally(op, (torch.float32, torch.float16), examples // 2 if OPS[op].is_slow else examples))
        for op in ops
    }
    large = {op: vars(tally(op, (torch.float32,), LARGE_EXAMPLES, large=True)) for op in ops if OPS[op].has_large}
    sources = sorted(name.rpartition(".")[2] for name in sys.modules if ".kernels.triton_" in name)
    implementation = kernels.registry.implementation()
    json.dump({"implementation": implementation, "sources": sources, "ops": tallies, "large": large}, sys.stdout)


if __name__ == "__main__":
    main()
