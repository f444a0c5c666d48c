"""Host graphs against eager runs on the CPU, and against real CUDA graphs, on generated programs.

A program is a list of instructions (name, i, j, number) on registers. Every instruction is defined for every i, j
and number: registers count modulo their number, operands are fitted to the shape they are needed in, indices are
taken modulo the length. All is int64, wrapping, so that every device computes the same.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from draftproof.engine.graphs.backend import Backend, CaptureError, Graph
from draftproof.engine.graphs.cuda import CudaBackend
from draftproof.engine.graphs.host import HostBackend

ARENA, OTHER = 48, 5  # words
Instruction = tuple[str, int, int, int]


@dataclass(frozen=True)
class Memory:
    """What exists before any capture."""

    arena: Tensor
    other: Tensor

    @classmethod
    def make(cls, seed: int, device: str) -> "Memory":
        generator = torch.Generator().manual_seed(seed)
        words = torch.randint(-(2**63), 2**63 - 1, (ARENA + OTHER,), generator=generator)
        return cls(words[:ARENA].to(device, copy=True), words[ARENA:].to(device, copy=True))

    def registers(self) -> list[Tensor]:
        """Contiguous, offset, strided and transposed views, with guard words between them."""
        return [self.arena[1:13].view(3, 4), self.arena[14:20], self.arena[22:46:3], self.other]

    def words(self) -> list[int]:
        return self.arena.tolist() + self.other.tolist()

    def declared(self) -> list[Tensor]:
        return [self.arena, self.other]


def fit(source: Tensor, shape: torch.Size) -> Tensor:
    """A new tensor of this shape with the elements of `source`, repeated as needed."""
    flat = source.reshape(-1)
    picked = torch.arange(shape.numel(), device=source.device) % flat.shape[0]
    return flat.index_select(0, picked).view(shape)


def rows_of(indices: Tensor, target: Tensor, count: int) -> Tensor:
    """`count` indices of rows of `target`, from whatever numbers `indices` holds."""
    return fit(indices, torch.Size([count])) % target.shape[0]


def permutation(shift: Tensor, target: Tensor) -> Tensor:
    return (torch.arange(target.shape[0], device=target.device) + shift.reshape(-1)[0] % 97) % target.shape[0]


def shift_right(x: Tensor, y: Tensor, n: int) -> Tensor:
    return x ^ (x >> (n % 63))


NEW: dict[str, Callable[[Tensor, Tensor, int], Tensor]] = {
    "add": lambda x, y, n: x + fit(y, x.shape),
    "sub_number": lambda x, y, n: n - x,
    "mul": lambda x, y, n: x * fit(y, x.shape),
    "mix": shift_right,
    "where": lambda x, y, n: torch.where(x > n, x, fit(y, x.shape)),
    "where_number": lambda x, y, n: torch.where(x > 0, x, n),
    "clone": lambda x, y, n: x.clone(),
    "contiguous": lambda x, y, n: x.contiguous(),
    "convert": lambda x, y, n: x.to(torch.int32).to(torch.int64),
    "sum": lambda x, y, n: x.sum(0, keepdim=True),
    "cumsum": lambda x, y, n: x.cumsum(0),
    "stack": lambda x, y, n: torch.cat([x, fit(y, x.shape)])[:8],
    "zeros": lambda x, y, n: torch.zeros_like(x),
    "full": lambda x, y, n: torch.full((1 + n % 5,), n, device=x.device),
    "fill_empty": lambda x, y, n: torch.empty_like(x).copy_(fit(y, x.shape)),
    "gather_rows": lambda x, y, n: x[rows_of(y, x, 1 + n % 6)],
    "gather": lambda x, y, n: x.gather(0, fit(y, x.shape) % x.shape[0]),
    "slice": lambda x, y, n: x[n % x.shape[0] :],
    "step": lambda x, y, n: x[:: 1 + n % 3],
    "transpose": lambda x, y, n: x.transpose(0, -1),
    "flatten": lambda x, y, n: x.reshape(-1),
    "pair": lambda x, y, n: x.unsqueeze(1) if x.dim() == 1 else x[:, n % x.shape[1]],
}
IN_PLACE: dict[str, Callable[[Tensor, Tensor, int], Any]] = {
    "add_": lambda x, y, n: x.add_(fit(y, x.shape)),
    "mul_number_": lambda x, y, n: x.mul_(n),
    "xor_": lambda x, y, n: x.bitwise_xor_(fit(y, x.shape)),
    "copy_": lambda x, y, n: x.copy_(fit(y, x.shape)),
    "out": lambda x, y, n: torch.add(fit(y, x.shape), n, out=x),
    "set_rows": lambda x, y, n: x.__setitem__(permutation(y, x), fit(y, x.shape)),
    "index_copy_": lambda x, y, n: x.index_copy_(0, permutation(y, x), fit(y, x.shape)),
    "index_add_": lambda x, y, n: x.index_add_(0, rows_of(y, x, x.shape[0]), fit(y, x.shape)),
    "put_add_": lambda x, y, n: x.index_put_((rows_of(y, x, x.shape[0]),), fit(y, x.shape), accumulate=True),
    "scatter_add_": lambda x, y, n: x.scatter_add_(0, fit(y, x.shape) % x.shape[0], fit(y, x.shape)),
}
HOST_READ: dict[str, Callable[[Tensor, Tensor, int], Any]] = {
    "item": lambda x, y, n: x.reshape(-1)[0].item(),
    "bool": lambda x, y, n: bool(x.sum() > n),
    "tolist": lambda x, y, n: x.tolist(),
    "numpy": lambda x, y, n: x.numpy(),
    "cpu": lambda x, y, n: x.cpu(),
    "to_cpu": lambda x, y, n: x.to("cpu"),
    "equal": lambda x, y, n: torch.equal(x, fit(y, x.shape)),
    "nonzero": lambda x, y, n: x.nonzero(),
    "mask": lambda x, y, n: x[x > n],
    "masked_select": lambda x, y, n: x.masked_select(x > n),
    "unique": lambda x, y, n: torch.unique(x),
    "tensor": lambda x, y, n: torch.tensor([n, 1], device=x.device),
}

NUMBERS = st.integers(-(2**31), 2**31) | st.integers(0, 9)


def instructions(names: dict[str, Any]) -> st.SearchStrategy[Instruction]:
    return st.tuples(st.sampled_from(sorted(names)), st.integers(0, 7), st.integers(0, 7), NUMBERS)


PROGRAMS = st.lists(instructions(NEW | IN_PLACE), min_size=1, max_size=12).map(tuple)
BROKEN_PROGRAMS = st.builds(
    lambda before, read, after: (*before, read, *after),
    st.lists(instructions(NEW | IN_PLACE), max_size=5),
    instructions(HOST_READ),
    st.lists(instructions(NEW | IN_PLACE), max_size=3),
)
# Which graph is replayed, and what is written into which word of the arena before.
SCHEDULES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, ARENA - 1), NUMBERS), min_size=1, max_size=6)


def run(program: tuple[Instruction, ...], memory: Memory) -> tuple[Tensor, ...]:
    """Interpret; the last three registers are the outputs."""
    registers = memory.registers()
    for name, i, j, number in program:
        x, y = registers[i % len(registers)], registers[j % len(registers)]
        if name in NEW:
            registers.append(NEW[name](x, y, number))
        else:
            (IN_PLACE | HOST_READ)[name](x, y, number)
    return tuple(registers[-3:])


def capture(backend: Backend, program: tuple[Instruction, ...], memory: Memory) -> Graph:
    """Capture a program, and see that this changed nothing that existed before, whether it succeeds or not."""
    before = memory.words()
    try:
        return backend.capture(lambda: run(program, memory), memory.declared())
    finally:
        assert memory.words() == before


def warm_up(program: tuple[Instruction, ...], seed: int) -> None:
    """Let CUDA load what the program needs, on memory of its own. A host read is one of the things it may do."""
    run(program, Memory.make(seed, "cuda"))
    torch.cuda.synchronize()


@settings(max_examples=150, deadline=None)
@given(programs=st.lists(PROGRAMS, min_size=1, max_size=3), schedule=SCHEDULES, seed=st.integers(0, 2**32))
@example(programs=[(("add_", 0, 1, 0),), (("mul", 0, 0, 0),)], schedule=[(0, 1, 5), (1, 2, 6), (0, 3, 7)], seed=0)
def test_replays_equal_eager_runs(
    programs: list[tuple[Instruction, ...]], schedule: list[tuple[int, int, int]], seed: int
) -> None:
    captured, eager, backend = Memory.make(seed, "cpu"), Memory.make(seed, "cpu"), HostBackend()
    graphs = [capture(backend, program, captured) for program in programs]
    for chosen, word, number in schedule:
        chosen %= len(programs)
        captured.arena[word] = eager.arena[word] = number
        graphs[chosen].replay()
        expected = run(programs[chosen], eager)
        assert captured.words() == eager.words()
        assert [output.tolist() for output in graphs[chosen].outputs] == [output.tolist() for output in expected]


@settings(max_examples=100, deadline=None)
@given(broken=BROKEN_PROGRAMS, program=PROGRAMS, seed=st.integers(0, 2**32))
def test_host_reads_fail_the_capture_and_nothing_else(
    broken: tuple[Instruction, ...], program: tuple[Instruction, ...], seed: int
) -> None:
    captured, eager, backend = Memory.make(seed, "cpu"), Memory.make(seed, "cpu"), HostBackend()
    with pytest.raises(CaptureError):
        capture(backend, broken, captured)
    graph = capture(backend, program, captured)
    graph.replay()
    expected = run(program, eager)
    assert captured.words() == eager.words()
    assert [output.tolist() for output in graph.outputs] == [output.tolist() for output in expected]


def capture_or_error(backend: Backend, program: tuple[Instruction, ...], memory: Memory) -> Graph | type[Exception]:
    try:
        return capture(backend, program, memory)
    except Exception as error:
        return type(error)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="compares with real CUDA graphs: needs a CUDA device")
@settings(max_examples=100, deadline=None)
@given(
    programs=st.lists(PROGRAMS | BROKEN_PROGRAMS, min_size=1, max_size=3),
    schedule=SCHEDULES,
    seed=st.integers(0, 2**32),
)
@example(programs=[(("item", 0, 0, 0),), (("add_", 0, 1, 0),), (("numpy", 1, 1, 0),)], schedule=[(0, 1, 5)] * 3, seed=0)
def test_host_graphs_equal_cuda_graphs(
    programs: list[tuple[Instruction, ...]], schedule: list[tuple[int, int, int]], seed: int
) -> None:
    """Memory that existed before, the outputs, and the class of error agree."""
    host, cuda = Memory.make(seed, "cpu"), Memory.make(seed, "cuda")
    host_backend, cuda_backend = HostBackend(), CudaBackend()
    pairs = []
    for program in programs:
        if not any(name in HOST_READ for name, *_ in program):
            warm_up(program, seed)
        pair = (capture_or_error(host_backend, program, host), capture_or_error(cuda_backend, program, cuda))
        if isinstance(pair[0], type) or isinstance(pair[1], type):
            assert pair == (CaptureError, CaptureError)
        else:
            pairs.append(pair)
    for chosen, word, number in schedule if pairs else []:
        host.arena[word] = cuda.arena[word] = number
        on_host, on_cuda = pairs[chosen % len(pairs)]
        on_host.replay()
        on_cuda.replay()
        assert host.words() == cuda.words()
        assert [o.tolist() for o in on_host.outputs] == [o.tolist() for o in on_cuda.outputs]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="uses real CUDA graphs: needs a CUDA device")
@pytest.mark.parametrize("name", sorted(HOST_READ))
def test_the_device_is_usable_after_a_failed_capture(name: str) -> None:
    """Default stream, allocator, random generator, and the same pool."""
    memory, backend = Memory.make(1, "cuda"), CudaBackend()
    with pytest.raises(CaptureError):
        capture(backend, (("add_", 0, 1, 0), (name, 0, 1, 1)), memory)
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    assert torch.rand(100, device="cuda").sum().item() > 0
    graph = capture(backend, (("add_", 0, 1, 0),), memory)
    expected = Memory.make(1, "cuda")
    run((("add_", 0, 1, 0),), expected)
    graph.replay()
    assert memory.words() == expected.words()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="uses real CUDA graphs: needs a CUDA device")
@pytest.mark.parametrize("what", ["capture", "replay"])
def test_cuda_graphs_do_not_nest(what: str) -> None:
    memory, backend = Memory.make(1, "cuda"), CudaBackend()
    inner = capture(backend, (("add", 0, 1, 0),), memory)

    def function() -> tuple[Tensor, ...]:
        if what == "replay":
            inner.replay()
        else:
            backend.capture(lambda: (memory.arena + 2,), memory.declared())
        return (memory.arena + 1,)

    with pytest.raises(CaptureError) as caught:
        backend.capture(function, memory.declared())
    assert caught.value.rule == "nested"
    inner.replay()
