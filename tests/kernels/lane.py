"""Holds every op to its contract on one implementation; run as a program, in a process of its own.

TRITON_INTERPRET=1 python lane.py EXAMPLES OP..   prints {ops: {op: {examples, changed, differences}}, ..} as JSON
"""

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice

import torch

from draftproof import kernels
from draftproof.properties.kernels.contract import Kernel, KernelCase, check
from draftproof.properties.kernels.listed import calls
from draftproof.properties.kernels.table import OPS, OpValues
from draftproof.reference import ops

SEED = 20
LARGE = 1 << 20
"""Numbers in a buffer."""


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


def tally(op: str, floats: Sequence[torch.dtype], examples: int, device: str = "cpu") -> Tally:
    """Run the first calls of a list of `op` on `device`, up to one that differs."""
    seen = Tally()
    for case in islice(calls(op, SEED, dtypes_of(op, floats)), examples):
        seen.examples += 1
        seen.changed += writes_something(case)
        differences = check(op, getattr(kernels, op), getattr(ops, op), case, device)
        if differences:
            seen.differences = [f"{difference.op}: {difference}" for difference in differences]
            break
    return seen


def writes_something(case: KernelCase) -> bool:
    """Return whether the twin changes any allocation of the case."""
    after = case.run(getattr(ops, case.op))
    return any(not torch.equal(after[name], case.buffers[name].storage) for name in OPS[case.op].writes)


def is_caught(wrong: Kernel, op: str, dtypes: Sequence[torch.dtype], examples: int, seed: int = SEED) -> str | None:
    """Return the first difference that the contract finds in `wrong`, or None if it never notices.

    Large calls come last: to say how all of their values went wrong takes longer than to notice it.
    """
    for is_large in (False, True):
        for case in islice(calls(op, seed, dtypes), examples):
            if (max(one.storage.numel() for one in case.buffers.values()) > LARGE) is not is_large:
                continue
            # What reads poison may fail over it; another call shows what it writes.
            with suppress(ValueError):
                if found := check(op, wrong, getattr(ops, op), case):
                    return str(found[0])
    return None


def main() -> None:
    """Print the tallies of the ops, ring, float32 and float16, as one JSON object."""
    examples, ops = int(sys.argv[1]), sys.argv[2:]
    tallies = {op: vars(tally(op, (torch.float32, torch.float16), examples)) for op in ops}
    sources = sorted(name.rpartition(".")[2] for name in sys.modules if ".kernels.triton_" in name)
    implementation = kernels.registry.implementation()
    json.dump({"implementation": implementation, "sources": sources, "ops": tallies}, sys.stdout)


if __name__ == "__main__":
    main()
