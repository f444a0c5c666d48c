"""The narrow linear kernels against their twins. `T` tokens, `I` inputs, `O` outputs."""

import itertools
import sys
from pathlib import Path

import pytest
import torch

from draftproof import kernels
from draftproof.kernels.registry import implementation  # noqa: F401 - the interpreted program's
from draftproof.reference import ops as twins
from tests.warm import Warm

NAMES = ("narrow_linear", "norm_linear", "norm_gate_up", "linear_add")
SIZES = ((1, 5, 24), (3, 8, 64), (4, 7, 40), (1, 1, 1), (2, 130, 8))
# Of the size of the outcome: one rounding to the dtype, on sums of float32 in another order.
BOUNDS = {torch.float64: 1e-13, torch.float32: 1e-6, torch.bfloat16: 8e-3}
INTERPRETED = "TRITON_INTERPRET"
ROOT = Path(__file__).resolve().parents[2]


def arguments(name: str, t: int, o: int, i: int, dtype: torch.dtype, seed: int) -> tuple[torch.Tensor, tuple]:
    """An output that is a part of larger memory, full of a pattern, and the other arguments, some over-allocated."""
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

    rows = 2 * o if name == "norm_gate_up" else o
    x, norm, weight = random(t + 1, i + 3)[1:, 2 : i + 2], random(i).abs(), random(rows, i + 5)[:, :i]
    memory = random(t + 2, o + 4)
    norms = (norm,) if name.startswith("norm") else ()
    return memory, (x, *norms, weight, *((1e-5,) if norms else ()))


def part(memory: torch.Tensor) -> torch.Tensor:
    return memory[1:-1, 2:-2]


def assert_equals_twin(name: str, size: tuple[int, int, int], dtype: torch.dtype, device: str) -> None:
    """Compare the whole of the output's memory, and every argument, with what the twin leaves."""
    memory, others = arguments(name, *size, dtype, seed=sum(size))
    expected = memory.clone()
    getattr(twins, name)(part(expected), *others)
    got = memory.to(device)
    moved = tuple(value.to(device) if isinstance(value, torch.Tensor) else value for value in others)
    getattr(kernels, name)(part(got), *moved)
    got = got.cpu()
    wrong = (part(got).double() - part(expected).double()).norm() / part(expected).double().norm()
    assert wrong < BOUNDS[dtype], (name, size, dtype, float(wrong))
    part(got).copy_(part(expected))
    assert torch.equal(got, expected), f"{name} wrote beside its output"
    for value, original in zip(moved, others, strict=True):
        if isinstance(value, torch.Tensor):
            assert torch.equal(value.cpu(), original), f"{name} changed an argument"


def assert_goes_on(outputs: int, device: str) -> None:
    """Compare gate and up, and a sum, of programs that hold a few rows and go on behind those of all of them."""
    from draftproof.kernels.triton_linear import LaunchShape, launch

    for name, options in (("norm_gate_up", {"gated": True}), ("linear_add", {"add": True})):
        memory, (x, *others) = arguments(name, 1, outputs, 24, torch.float32, seed=outputs)
        expected, got = part(memory), part(memory).to(device, copy=True)
        getattr(twins, name)(expected, x, *others)
        norms = {"norm": others[0].to(device), "eps": others[2]} if len(others) == 3 else {}
        weight = others[-2 if norms else -1].to(device)
        launch(got, x.to(device), weight, **options, **norms, shape=LaunchShape(64, 1, programs=3))
        assert (got.cpu() - expected).norm() / expected.norm() < BOUNDS[torch.float32], (name, outputs)


@pytest.mark.parametrize(("name", "dtype"), list(itertools.product(NAMES, BOUNDS)))
def test_eager_equals_twin(name: str, dtype: torch.dtype) -> None:
    for size in SIZES:
        assert_equals_twin(name, size, dtype, "cpu")


def test_interpreted_equals_twin(warm: Warm) -> None:
    program = (
        "from tests.engine.test_narrow_linear import *\n"
        "assert implementation('cpu') == 'interpreted'\n"
        "for name in NAMES:\n"
        "    for size in SIZES:\n"
        "        assert_equals_twin(name, size, torch.float32, 'cpu')\n"
        "for outputs in (1, 24, 37):\n"
        "    assert_goes_on(outputs, 'cpu')\n"
        "print('compared', len(NAMES) * len(SIZES))\n"
    )
    done = warm.run([sys.executable, "-c", program], ROOT, **{INTERPRETED: "1"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "compared 20"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(("name", "dtype"), list(itertools.product(NAMES, (torch.float32, torch.bfloat16))))
def test_cuda_equals_twin(name: str, dtype: torch.dtype) -> None:
    for size in (*SIZES, (1, 64, 2048), (1, 1040, 2048), (4, 16, 4096)):
        assert_equals_twin(name, size, dtype, "cuda")
    assert_goes_on(37, "cuda")
