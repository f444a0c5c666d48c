"""The contract of kernel ops: an implementation must do to its arguments what the naive twin does.

A case gives every tensor argument inside a larger allocation. The implementation and the twin each run on fresh copies;
compared are the outputs, all memory around and between their elements, the arguments that are only read, and what lies
around the memory that the implementation allocates for itself. Ring arithmetic (int64), integers and moved data must be
equal to the bit, float arithmetic within the tolerances of `ALL_OPS`. An interpreted Triton kernel may read elements of
tensors only.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import torch

from draftproof.properties.kernels.case import Buffer, Kernel, KernelCase, words
from draftproof.properties.kernels.explain import WrongArgument, explain
from draftproof.properties.kernels.others.table import ALL_OPS
from draftproof.properties.kernels.reads import WatchedReads
from draftproof.properties.kernels.scratch import POISON_VALUE, guarded_scratch
from draftproof.properties.values.relations import KernelRelation, Part


@dataclass(frozen=True)
class Difference:
    """The first place where an argument is not what it must be.

    `index` is an index into the tensor, or into the flat allocation where `place` is "around"; where it is "outside", a
    read, it is counted from the start of the tensor. `margin` is by how much the bound is exceeded, None where the
    comparison is exact; `count` is how many elements of the argument differ; `relation` says how wrong rows relate to
    right ones, None if that is unknown.
    """

    op: str
    argument: str
    place: Part
    index: tuple[int, ...]
    expected: float
    got: float
    margin: float | None
    count: int
    relation: KernelRelation | None = None


def _bound(case: KernelCase, name: str) -> float | None:
    """Return the bound for an argument, None if it must be equal to the bit."""
    storage, op = case.buffers[name].storage, ALL_OPS[case.op]
    if not storage.is_floating_point():
        return None
    dtype = case.buffers[op.rounded_like].storage.dtype if op.rounded_like else storage.dtype
    return op.bound(name, str(dtype).removeprefix("torch."))


def _excess(expected: torch.Tensor, got: torch.Tensor, limit: float) -> torch.Tensor:
    """Return by how much each element exceeds the bound; NaN where either is NaN."""
    return (got.double() - expected.double()).abs() / (1.0 + expected.double().abs()) - limit


def _near(limit: float | None) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Return the comparison for the search for rows: the same as the contract's."""

    def near(value: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        same = words(value) == words(values)
        return same if limit is None else same | (_excess(value, values, limit) <= 0)

    return near


def _kept(buffer: Buffer, expected: torch.Tensor) -> torch.Tensor:
    """Mark the elements of blocks [H,E] of a pool that nothing may write: there float arithmetic has no excuse."""
    changed = words(expected) != words(buffer.storage)
    kept = torch.zeros_like(changed)
    if len(buffer.shape) > 2:
        blocks = ~buffer.of(changed).any(-1, keepdim=True).any(-2, keepdim=True)
        buffer.of(kept).copy_(blocks.expand(buffer.shape))
    return kept


def _compare(case: KernelCase, name: str, expected: torch.Tensor, got: torch.Tensor, place: Part) -> Difference | None:
    """Compare one argument's whole allocations; `place` is what an element of the tensor itself is called."""
    buffer, limit = case.buffers[name], _bound(case, name)
    wrong = words(expected) != words(got)
    excess = None
    if limit is not None:
        excess = _excess(expected, got, limit)
        # Written so that NaN, which compares false, is never within the bound.
        wrong &= ~((excess <= 0) & (buffer.elements >= 0) & ~_kept(buffer, expected))
    if not wrong.any():
        return None
    one = WrongArgument(case, name, expected, got, wrong, _near(limit))
    first = _first(one, excess, place)
    return replace(first, relation=explain(one)) if place == "output" else first


def _first(one: WrongArgument, excess: torch.Tensor | None, place: Part) -> Difference:
    """Describe the first wrong element of the tensor in its own order, or else of the memory around it."""
    offsets, elements = one.wrong.nonzero().flatten(), one.buffer.elements
    inside = offsets[elements[offsets] >= 0]
    if inside.numel():
        offset = int(inside[elements[inside].argmin()])
        index = one.buffer.index(offset)
        margin = None if excess is None else float(excess[offset])
    else:
        offset, place, margin = int(offsets[0]), "around", None
        index = (offset,)
    expected, got = one.expected[offset].item(), one.got[offset].item()
    return Difference(one.case.op, one.name, place, index, expected, got, margin, int(one.wrong.sum()))


def check(
    op: str,
    implementation: Kernel,
    twin: Kernel,
    case: KernelCase,
    device: str = "cpu",
    undefined: Mapping[str, torch.Tensor] = MappingProxyType({}),
) -> list[Difference]:
    """Return the first difference of each argument that `implementation` leaves otherwise than `twin` does.

    "scratch" may be among them: the implementation wrote past the end of memory that it had allocated, or read there.
    `undefined` has masks of elements of arguments, or of rows, that may hold anything.

    Raises ValueError if the case is another op's.
    """
    if case.op != op:
        raise ValueError(f"invalid case of {case.op}: expected one of {op}")
    expected, scratch, reads = case.run(twin), guarded_scratch(), WatchedReads()

    def watched(*values: object) -> None:
        named = zip(case.arguments, values, strict=True)
        reads.given({name: value for name, value in named if isinstance(value, torch.Tensor)})
        implementation(*values)

    with scratch, reads:
        got = case.run(watched, device)
    _forgive_scratch(case, twin, expected, got)
    differences = []
    for name, buffer in case.buffers.items():
        is_output = name in ALL_OPS[op].writes
        must = expected[name] if is_output else buffer.storage.clone()
        if name in undefined:
            buffer.of(must)[undefined[name]] = buffer.of(got[name])[undefined[name]]
        differences.append(_compare(case, name, must, got[name], "output" if is_output else "read only"))
    damage = scratch.damage()
    if damage is not None:
        differences.append(Difference(op, "scratch", "around", (damage[0],), POISON_VALUE, damage[1], None, 1))
    if stray := reads.stray:
        differences.append(Difference(op, stray.argument or "scratch", "outside", (stray.offset,), 0, 1, None, 1))
    return [difference for difference in differences if difference is not None]


def _forgive_scratch(
    case: KernelCase, twin: Kernel, expected: dict[str, torch.Tensor], got: dict[str, torch.Tensor]
) -> None:
    """Accept in slot 0, the scratch slot, any of what rows leave that are sent there: which one wins is not defined."""
    pools = ALL_OPS[case.op].scratch
    sent = (case.buffers["slot_mapping"].tensor == 0).nonzero().flatten().tolist() if pools else []
    if len(sent) < 2:
        return
    alone = [_sent_alone(case, row).run(twin) for row in sent]
    for pool in pools:
        buffer = case.buffers[pool]
        candidates = torch.stack([buffer.of(words(one[pool]))[0] for one in alone])
        must, is_ = (buffer.of(words(side[pool]))[0] for side in (expected, got))
        must.copy_(torch.where((candidates == is_).any(0), is_, must))


def _sent_alone(case: KernelCase, row: int) -> KernelCase:
    """Return the call in which no other row is sent to slot 0."""
    mapping = case.buffers["slot_mapping"]
    storage = mapping.storage.clone()
    slots = mapping.of(storage)
    slots[slots == 0] = -1
    slots[row] = 0
    return replace(case, arguments={**case.arguments, "slot_mapping": replace(mapping, storage=storage)})
