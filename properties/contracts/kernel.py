"""Contracts of kernels: one `check_<op>` for each, which holds any callable to the naive twin's result.

A case gives every tensor argument inside a larger allocation. The callable and the twin each run on fresh copies of
them; compared are the outputs, all memory around and between their elements, and the arguments that are only read.
Ring arithmetic (int64), integers and moved data must be equal to the bit, float arithmetic to the table of tolerances.
`T` tokens, `S` pool slots, `N` KV heads, `H` head size, `D` width, `R` rows, `W` verify width, `V` vocabulary.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from draftproof.properties.contracts.tolerances import TABLE, bound

Kernel = Callable[..., None]

_WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True, eq=False)
class Buffer:
    """A tensor argument as it lies in its allocation: `storage` is flat and holds everything around the tensor too."""

    storage: torch.Tensor
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    def of(self, storage: torch.Tensor) -> torch.Tensor:
        """Return the tensor as a view of `storage`, an allocation of the same size."""
        return storage.as_strided(self.shape, self.strides, self.offset)

    @property
    def tensor(self) -> torch.Tensor:
        return self.of(self.storage)

    def __repr__(self) -> str:
        tensor = self.tensor
        values = tensor.tolist() if tensor.numel() <= 64 else "..."
        return (
            f"Buffer({values}, {tensor.dtype}, shape={self.shape}, strides={self.strides}, offset={self.offset}, "
            f"allocated={self.storage.numel()})"
        )

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Hypothesis prints the fields of a dataclass otherwise, the whole allocation included."""
        printer.text(repr(self))


@dataclass(frozen=True, eq=False)
class KernelCase:
    """One call of an op: its arguments by name, in the order of the signature."""

    op: str
    arguments: Mapping[str, Buffer | int | float]

    @property
    def buffers(self) -> dict[str, Buffer]:
        return {name: value for name, value in self.arguments.items() if isinstance(value, Buffer)}

    def run(self, kernel: Kernel, device: str = "cpu") -> dict[str, torch.Tensor]:
        """Call `kernel` on fresh copies on `device`; return every argument's whole allocation afterwards, on CPU."""
        storages = {name: buffer.storage.to(device, copy=True) for name, buffer in self.buffers.items()}
        kernel(
            *(
                value.of(storages[name]) if isinstance(value, Buffer) else value
                for name, value in self.arguments.items()
            )
        )
        return {name: storage.cpu() for name, storage in storages.items()}


@dataclass(frozen=True)
class Difference:
    """The first place where an argument is not what it must be.

    `index` is that of the tensor, or of the flat allocation where `place` is "around"; `margin` is by how much the
    bound is exceeded, None where the comparison is exact; `count` is how many elements of the argument differ.
    """

    op: str
    argument: str
    place: str
    index: tuple[int, ...]
    expected: float
    got: float
    margin: float | None
    count: int

    def __str__(self) -> str:
        margin = "" if self.margin is None else f", over the bound by {self.margin:.3g}"
        where = f"{self.op}: {self.argument}{list(self.index)} ({self.place})"
        return f"{where} expected {self.expected}, got {self.got}{margin}; {self.count} elements differ"


def _words(storage: torch.Tensor) -> torch.Tensor:
    """Return the bits as integers, so that NaN equals itself and -0 differs from 0."""
    return storage.view(_WORDS[storage.element_size()])


def _is_float_arithmetic(case: KernelCase, name: str) -> bool:
    return name in _ARITHMETIC.get(case.op, ()) and case.buffers[name].storage.is_floating_point()


def _compare(case: KernelCase, name: str, expected: torch.Tensor, got: torch.Tensor, place: str) -> Difference | None:
    """Compare one argument's whole allocations; `place` is what an element of the tensor itself is called."""
    buffer = case.buffers[name]
    wrong = _words(expected) != _words(got)
    owner = torch.full(expected.shape, -1)
    buffer.of(owner).copy_(torch.arange(buffer.tensor.numel()).reshape(buffer.shape))
    excess = None
    if _is_float_arithmetic(case, name):
        error = (got.double() - expected.double()).abs() / (1.0 + expected.double().abs())
        excess = error - bound(case.op, expected.dtype)
        # Written so that NaN, which compares false, is never within the bound.
        wrong &= ~((excess <= 0) & (owner >= 0))
    if not wrong.any():
        return None
    return _first(case, name, expected, got, wrong, owner, excess, place)


def _first(
    case: KernelCase,
    name: str,
    expected: torch.Tensor,
    got: torch.Tensor,
    wrong: torch.Tensor,
    owner: torch.Tensor,
    excess: torch.Tensor | None,
    place: str,
) -> Difference:
    """Describe the first wrong element of the tensor in its own order, or else of the memory around it."""
    offsets = wrong.nonzero().flatten()
    inside = offsets[owner[offsets] >= 0]
    if inside.numel():
        offset = int(inside[owner[inside].argmin()])
        index = tuple(int(i) for i in torch.unravel_index(owner[offset], case.buffers[name].shape))
        margin = None if excess is None else float(excess[offset])
    else:
        offset, place, margin = int(offsets[0]), "around", None
        index = (offset,)
    return Difference(
        case.op, name, place, index, expected[offset].item(), got[offset].item(), margin, int(wrong.sum())
    )


def _check(implementation: Kernel, twin: Kernel, case: KernelCase, device: str, op: str) -> list[Difference]:
    if case.op != op:
        raise ValueError(f"a case of {case.op} was handed to the contract of {op}")
    expected, got = case.run(twin), case.run(implementation, device)
    if op == "kv_write":
        _forgive_scratch(case, expected, got)
    differences = []
    for name, buffer in case.buffers.items():
        written = name in WRITES[op]
        must = expected[name] if written else buffer.storage
        differences.append(_compare(case, name, must, got[name], "output" if written else "read only"))
    return [difference for difference in differences if difference is not None]


def _forgive_scratch(case: KernelCase, expected: dict[str, torch.Tensor], got: dict[str, torch.Tensor]) -> None:
    """Accept in slot 0, the scratch slot, any of the values that rows sent there: which one wins is not defined."""
    sent = (case.buffers["slots"].tensor == 0).nonzero().flatten()
    for pool, rows in (("k_pool", "k"), ("v_pool", "v")):
        candidates = _words(case.buffers[rows].storage)
        candidates = case.buffers[rows].of(candidates)[sent]
        must, is_ = (case.buffers[pool].of(_words(side[pool]))[0] for side in (expected, got))
        must.copy_(torch.where((candidates == is_).any(0), is_, must))


WRITES = {
    "add_rms_norm": ("out", "residual"),
    "assign_slots": ("positions", "slots"),
    "greedy_accept": ("correct_len", "bonus"),
    "greedy_choice": ("choice",),
    "kv_move": ("k_pool", "v_pool"),
    "kv_write": ("k_pool", "v_pool"),
    "linear_add": ("residual",),
    "narrow_linear": ("out",),
    "norm_gate_up": ("out",),
    "norm_linear": ("out",),
    "paged_attention": ("out",),
    "ring_linear": ("out",),
    "ring_mix": ("out",),
    "rms_norm": ("out",),
    "rope": ("q", "k"),
    "silu_mul": ("out",),
}

# Outputs that are computed in floats, rather than moved or computed in integers.
_ARITHMETIC = {op: WRITES[op] for op in {row.name for row in TABLE} & WRITES.keys()}


def check_kv_write(implementation: Kernel, twin: Kernel, case: KernelCase, device: str = "cpu") -> list[Difference]:
    """Every row is in its slot to the bit, and nothing else in either pool changed."""
    return _check(implementation, twin, case, device, "kv_write")


def check_kv_move(implementation: Kernel, twin: Kernel, case: KernelCase, device: str = "cpu") -> list[Difference]:
    """Every slot moved to holds what its source held before the call, and nothing else in either pool changed."""
    return _check(implementation, twin, case, device, "kv_move")


def check_paged_attention(
    implementation: Kernel, twin: Kernel, case: KernelCase, device: str = "cpu"
) -> list[Difference]:
    """Each token attends to exactly the positions it may see, whatever lies in the others' slots."""
    return _check(implementation, twin, case, device, "paged_attention")


def check_rms_norm(implementation: Kernel, twin: Kernel, case: KernelCase, device: str = "cpu") -> list[Difference]:
    """Each row is normed by its own mean square, rounded, then weighted."""
    return _check(implementation, twin, case, device, "rms_norm")


def check_add_rms_norm(implementation: Kernel, twin: Kernel, case: KernelCase, device: str = "cpu") -> list[Difference]:
    """The residual is updated, and the norm is that of the updated residual."""
    return _check(implementation, twin, case, device, "add_rms_norm")


def check_silu_mul(implementation: Kernel, twin: Kernel, case: KernelCase, device: str = "cpu") -> list[Difference]:
    """The first half gates the second."""
    return _check(implementation, twin, case, device, "silu_mul")


def check_rope(implementation: Kernel, twin: Kernel, case: KernelCase, device: str = "cpu") -> list[Difference]:
    """Queries and keys of each token are turned by that token's position."""
    return _check(implementation, twin, case, device, "rope")


def check_assign_slots(implementation: Kernel, twin: Kernel, case: KernelCase, device: str = "cpu") -> list[Difference]:
    """Live, surplus, padding and impossible columns get the positions and slots that are theirs."""
    return _check(implementation, twin, case, device, "assign_slots")


def check_greedy_accept(
    implementation: Kernel, twin: Kernel, case: KernelCase, device: str = "cpu"
) -> list[Difference]:
    """The accepted run stops at the first mismatch or the row's own count, and the bonus is the choice after it."""
    return _check(implementation, twin, case, device, "greedy_accept")


def check_greedy_choice(
    implementation: Kernel, twin: Kernel, case: KernelCase, device: str = "cpu"
) -> list[Difference]:
    """The highest value wins, the lowest id on ties, and NaN loses to every number."""
    return _check(implementation, twin, case, device, "greedy_choice")


def check_ring_mix(implementation: Kernel, twin: Kernel, case: KernelCase, device: str = "cpu") -> list[Difference]:
    """Every element is mixed to the bit, whatever the strides."""
    return _check(implementation, twin, case, device, "ring_mix")


def check_ring_linear(implementation: Kernel, twin: Kernel, case: KernelCase, device: str = "cpu") -> list[Difference]:
    """The product is equal to the bit modulo 2^64."""
    return _check(implementation, twin, case, device, "ring_linear")


def check_narrow_linear(
    implementation: Kernel, twin: Kernel, case: KernelCase, device: str = "cpu"
) -> list[Difference]:
    """The product of a few tokens with a weight."""
    return _check(implementation, twin, case, device, "narrow_linear")


def check_norm_linear(implementation: Kernel, twin: Kernel, case: KernelCase, device: str = "cpu") -> list[Difference]:
    """The product of the normed and rounded input with a weight; the input itself stays."""
    return _check(implementation, twin, case, device, "norm_linear")


def check_norm_gate_up(implementation: Kernel, twin: Kernel, case: KernelCase, device: str = "cpu") -> list[Difference]:
    """The first half of the weight gates the second."""
    return _check(implementation, twin, case, device, "norm_gate_up")


def check_linear_add(implementation: Kernel, twin: Kernel, case: KernelCase, device: str = "cpu") -> list[Difference]:
    """The product is added to the residual once."""
    return _check(implementation, twin, case, device, "linear_add")


CONTRACTS: dict[str, Callable[..., list[Difference]]] = {
    "add_rms_norm": check_add_rms_norm,
    "assign_slots": check_assign_slots,
    "greedy_accept": check_greedy_accept,
    "greedy_choice": check_greedy_choice,
    "kv_move": check_kv_move,
    "kv_write": check_kv_write,
    "linear_add": check_linear_add,
    "narrow_linear": check_narrow_linear,
    "norm_gate_up": check_norm_gate_up,
    "norm_linear": check_norm_linear,
    "paged_attention": check_paged_attention,
    "ring_linear": check_ring_linear,
    "ring_mix": check_ring_mix,
    "rms_norm": check_rms_norm,
    "rope": check_rope,
    "silu_mul": check_silu_mul,
}
