"""Contracts of kernels: one `check_<op>` for each, which holds any callable to the naive twin's result.

A case gives every tensor argument inside a larger allocation. The callable and the twin each run on fresh copies of
them; compared are the outputs, all memory around and between their elements, and the arguments that are only read.
Ring arithmetic (int64), integers and moved data must be equal to the bit, float arithmetic to the table of tolerances.
`T` tokens, `S` pool slots, `N` KV heads, `H` head size, `D` width, `R` rows, `W` verify width, `V` vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from draftproof.properties.contracts.tolerances import TABLE, bound
from draftproof.properties.kernels.case import Buffer, Kernel, KernelCase, words
from draftproof.properties.kernels.explain import explain


@dataclass(frozen=True)
class Difference:
    """The first place where an argument is not what it must be.

    `index` is that of the tensor, or of the flat allocation where `place` is "around"; `margin` is by how much the
    bound is exceeded, None where the comparison is exact; `count` is how many elements of the argument differ;
    `relation` says how wrong rows relate to right ones, "" if no relation is seen.
    """

    op: str
    argument: str
    place: str
    index: tuple[int, ...]
    expected: float
    got: float
    margin: float | None
    count: int
    relation: str = ""

    def __str__(self) -> str:
        relation = f"; {self.relation}" if self.relation else ""
        margin = "" if self.margin is None else f", over the bound by {self.margin:.3g}"
        where = f"{self.op}: {self.argument}{list(self.index)} ({self.place})"
        return f"{where} expected {self.expected}, got {self.got}{margin}; {self.count} elements differ{relation}"


def _bound(case: KernelCase, name: str) -> float | None:
    """The bound for an argument, None if it must be equal to the bit."""
    storage = case.buffers[name].storage
    if name not in _ARITHMETIC.get(case.op, ()) or not storage.is_floating_point():
        return None
    dtype = case.buffers[_COARSE[case.op]].storage.dtype if case.op in _COARSE else storage.dtype
    return bound(case.op, dtype)


def _excess(expected: torch.Tensor, got: torch.Tensor, limit: float) -> torch.Tensor:
    """By how much each element is over the bound; NaN where either is NaN."""
    return (got.double() - expected.double()).abs() / (1.0 + expected.double().abs()) - limit


def _near(limit: float | None) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """How the search for rows compares: as the contract does."""

    def near(value: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        same = words(value) == words(values)
        return same if limit is None else same | (_excess(value, values, limit) <= 0)

    return near


def _kept(buffer: Buffer, expected: torch.Tensor) -> torch.Tensor:
    """Which elements lie in blocks [H,E] of a pool that nothing may write: there float arithmetic has no excuse."""
    changed = words(expected) != words(buffer.storage)
    kept = torch.zeros_like(changed)
    if len(buffer.shape) > 2:
        blocks = ~buffer.of(changed).any(-1, keepdim=True).any(-2, keepdim=True)
        buffer.of(kept).copy_(blocks.expand(buffer.shape))
    return kept


def _compare(case: KernelCase, name: str, expected: torch.Tensor, got: torch.Tensor, place: str) -> Difference | None:
    """Compare one argument's whole allocations; `place` is what an element of the tensor itself is called."""
    buffer, limit = case.buffers[name], _bound(case, name)
    wrong = words(expected) != words(got)
    owner = torch.full(expected.shape, -1)
    buffer.of(owner).copy_(torch.arange(buffer.tensor.numel()).reshape(buffer.shape))
    excess = None
    if limit is not None:
        excess = _excess(expected, got, limit)
        # Written so that NaN, which compares false, is never within the bound.
        wrong &= ~((excess <= 0) & (owner >= 0) & ~_kept(buffer, expected))
    if not wrong.any():
        return None
    first = _first(case, name, expected, got, wrong, owner, excess, place)
    if place != "output":
        return first
    return replace(first, relation=explain(case, name, expected, got, wrong, _near(limit)))


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
        candidates = words(case.buffers[rows].storage)
        candidates = case.buffers[rows].of(candidates)[sent]
        must, is_ = (case.buffers[pool].of(words(side[pool]))[0] for side in (expected, got))
        must.copy_(torch.where((candidates == is_).any(0), is_, must))


WRITES = {
    "add_rms_norm": ("out", "residual"),
    "assign_slots": ("positions", "slots"),
    "checkpoint_steps": ("steps",),
    "conv_update": ("out", "conv", "track"),
    "conv_verify": ("out", "windows"),
    "gated_norm": ("out",),
    "gdn_checkpoint": ("track_ssm", "track_conv"),
    "gdn_flush": ("ssm", "inputs"),
    "gdn_replay": ("out", "ssm", "inputs", "gates"),
    "gdn_update": ("out", "ssm", "track"),
    "gdn_verify": ("out", "states"),
    "greedy_accept": ("correct_len", "bonus"),
    "greedy_choice": ("choice",),
    "kv_move": ("k_pool", "v_pool"),
    "kv_write": ("k_pool", "v_pool"),
    "linear_add": ("residual",),
    "narrow_linear": ("out",),
    "norm_gate_up": ("out",),
    "norm_linear": ("out",),
    "paged_attention": ("out",),
    "replay_commit": ("cursor",),
    "replay_rewind": ("cursor",),
    "ring_linear": ("out",),
    "ring_mix": ("out",),
    "rms_norm": ("out",),
    "rope": ("q", "k"),
    "silu_mul": ("out",),
    "state_scatter": ("pool",),
}

# What is written but only moved, in ops that also compute.
_MOVED = {
    "conv_update": ("conv", "track"),
    "conv_verify": ("windows",),
    "gdn_checkpoint": ("track_conv",),
    "gdn_flush": ("inputs",),
    "gdn_replay": ("inputs", "gates"),
}

# Outputs that are computed in floats, rather than moved or computed in integers.
_ARITHMETIC = {
    op: tuple(name for name in WRITES[op] if name not in _MOVED.get(op, ()))
    for op in {row.name for row in TABLE} & WRITES.keys()
}

# Here all that is computed is as coarse as this argument: the convolution's output is rounded to its dtype on the way.
_COARSE = {"gdn_checkpoint": "inputs", "gdn_flush": "inputs", "gdn_replay": "inputs"}


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


def check_checkpoint_steps(
    implementation: Kernel, twin: Kernel, case: KernelCase, device: str = "cpu"
) -> list[Difference]:
    """The row after which the last multiple of the interval is reached, and -1 where none is."""
    return _check(implementation, twin, case, device, "checkpoint_steps")


def check_conv_update(implementation: Kernel, twin: Kernel, case: KernelCase, device: str = "cpu") -> list[Difference]:
    """Each sequence goes on from its slot's window and leaves its last inputs there; tracked windows are copied."""
    return _check(implementation, twin, case, device, "conv_update")


def check_conv_verify(implementation: Kernel, twin: Kernel, case: KernelCase, device: str = "cpu") -> list[Difference]:
    """The window after every row is in that row's place, by the pool's own strides; the committed one stays."""
    return _check(implementation, twin, case, device, "conv_verify")


def check_gated_norm(implementation: Kernel, twin: Kernel, case: KernelCase, device: str = "cpu") -> list[Difference]:
    """Each row is normed by its own mean square, weighted, and gated."""
    return _check(implementation, twin, case, device, "gated_norm")


def check_gdn_checkpoint(
    implementation: Kernel, twin: Kernel, case: KernelCase, device: str = "cpu"
) -> list[Difference]:
    """State and window after a step of what is pending; base, inputs and cursor stay."""
    return _check(implementation, twin, case, device, "gdn_checkpoint")


def check_gdn_flush(implementation: Kernel, twin: Kernel, case: KernelCase, device: str = "cpu") -> list[Difference]:
    """Everything pending is folded into the base once, and the window follows; the cursor stays."""
    return _check(implementation, twin, case, device, "gdn_flush")


def check_gdn_replay(implementation: Kernel, twin: Kernel, case: KernelCase, device: str = "cpu") -> list[Difference]:
    """What is pending is folded into the base, the new rows are kept as inputs only, and the cursor stays."""
    return _check(implementation, twin, case, device, "gdn_replay")


def check_gdn_update(implementation: Kernel, twin: Kernel, case: KernelCase, device: str = "cpu") -> list[Difference]:
    """Each sequence goes on from its slot's state and leaves its last there; tracked states are copied."""
    return _check(implementation, twin, case, device, "gdn_update")


def check_gdn_verify(implementation: Kernel, twin: Kernel, case: KernelCase, device: str = "cpu") -> list[Difference]:
    """The state after every row is in that row's place, by the pool's own strides; the committed one stays."""
    return _check(implementation, twin, case, device, "gdn_verify")


def check_replay_commit(
    implementation: Kernel, twin: Kernel, case: KernelCase, device: str = "cpu"
) -> list[Difference]:
    """The accepted rows become pending in the half that verify wrote."""
    return _check(implementation, twin, case, device, "replay_commit")


def check_replay_rewind(
    implementation: Kernel, twin: Kernel, case: KernelCase, device: str = "cpu"
) -> list[Difference]:
    """Nothing is pending where something was, and the halves are exchanged there only."""
    return _check(implementation, twin, case, device, "replay_rewind")


def check_state_scatter(
    implementation: Kernel, twin: Kernel, case: KernelCase, device: str = "cpu"
) -> list[Difference]:
    """The state after the last correct step is the slot's, to the bit, in all layers; no other slot changes."""
    return _check(implementation, twin, case, device, "state_scatter")


CONTRACTS: dict[str, Callable[..., list[Difference]]] = {
    "add_rms_norm": check_add_rms_norm,
    "assign_slots": check_assign_slots,
    "checkpoint_steps": check_checkpoint_steps,
    "conv_update": check_conv_update,
    "conv_verify": check_conv_verify,
    "gated_norm": check_gated_norm,
    "gdn_checkpoint": check_gdn_checkpoint,
    "gdn_flush": check_gdn_flush,
    "gdn_replay": check_gdn_replay,
    "gdn_update": check_gdn_update,
    "gdn_verify": check_gdn_verify,
    "greedy_accept": check_greedy_accept,
    "greedy_choice": check_greedy_choice,
    "kv_move": check_kv_move,
    "kv_write": check_kv_write,
    "linear_add": check_linear_add,
    "narrow_linear": check_narrow_linear,
    "norm_gate_up": check_norm_gate_up,
    "norm_linear": check_norm_linear,
    "paged_attention": check_paged_attention,
    "replay_commit": check_replay_commit,
    "replay_rewind": check_replay_rewind,
    "ring_linear": check_ring_linear,
    "ring_mix": check_ring_mix,
    "rms_norm": check_rms_norm,
    "rope": check_rope,
    "silu_mul": check_silu_mul,
    "state_scatter": check_state_scatter,
}
