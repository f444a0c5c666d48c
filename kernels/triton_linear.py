"""Linear layers for few tokens on a GPU: every weight is read once, at memory speed.

`T` tokens, `I` inputs, `O` outputs.

A program holds whole rows of the weight, so that it can load them all at once. With programmatic dependent launch (see
triton_common) it does so before the kernel that makes its input has ended: weights do not depend on anything that runs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from draftproof.kernels.triton_common import dependent_launch


@triton.jit
def _weights(p_weight, first, outputs, inputs, stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr, GATED: tl.constexpr):
    """Return ROWS rows of weight from `first` on, and with GATED the rows `outputs` below, else the same rows again."""
    i_row = first + tl.arange(0, ROWS)
    i_column = tl.arange(0, COLUMNS)
    mask = (i_row < outputs)[:, None] & (i_column < inputs)[None, :]
    p_block = p_weight + i_row.to(tl.int64)[:, None] * stride + i_column[None, :]
    b_weight = tl.load(p_block, mask=mask, other=0.0, eviction_policy="evict_first")
    b_up = b_weight
    if GATED:
        p_block += outputs.to(tl.int64) * stride
        b_up = tl.load(p_block, mask=mask, other=0.0, eviction_policy="evict_first")
    return b_weight, b_up


@triton.jit
def _input(p_x, b_norm, inputs, eps, COLUMNS: tl.constexpr, NORM: tl.constexpr):
    """Return one token, normed with NORM."""
    i_column = tl.arange(0, COLUMNS)
    b_x = tl.load(p_x + i_column, mask=i_column < inputs, other=0.0)
    if NORM:
        b_wide = b_x.to(tl.float32)
        b_scale = tl.rsqrt(tl.sum(b_wide * b_wide, axis=0) / inputs + eps)
        b_x = ((b_wide * b_scale).to(b_norm.dtype) * b_norm).to(b_x.dtype)
    return b_x


@triton.jit
def _store(p_out, first, outputs, b_x, b_weight, b_up, ROWS: tl.constexpr, GATED: tl.constexpr, ADD: tl.constexpr):
    """Store ROWS outputs of one token from `first` on."""
    i_row = first + tl.arange(0, ROWS)
    is_row = i_row < outputs
    b_x = b_x.to(tl.float32)[None, :]
    b_sum = tl.sum(b_weight.to(tl.float32) * b_x, axis=1).to(p_out.dtype.element_ty)
    if GATED:
        b_gate = b_sum.to(tl.float32)
        b_other = tl.sum(b_up.to(tl.float32) * b_x, axis=1).to(p_out.dtype.element_ty).to(tl.float32)
        b_sum = (b_gate / (1.0 + tl.exp(-b_gate)) * b_other).to(p_out.dtype.element_ty)
    if ADD:
        b_sum += tl.load(p_out + i_row, mask=is_row, other=0.0)
    tl.store(p_out + i_row, b_sum, mask=is_row)


@triton.jit(do_not_specialize=["outputs"])
def _narrow_linear(
    p_out, p_x, p_norm, p_weight, outputs, inputs, out_stride, x_stride, weight_stride, eps,
    TOKENS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, NORM: tl.constexpr, GATED: tl.constexpr,
    ADD: tl.constexpr, GOES_ON: tl.constexpr, LATE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """ROWS outputs a program: out [T,O] of x [T,I], norm [I] and weight [O,I], or [2O,I] with GATED.

    With GOES_ON, which takes one token, a program goes on behind the rows of all programs, and asks for its next rows
    before it computes.
    """
    if PDL:  # noqa: SIM102 - what only PDL does is one statement, which no mutant changes
        if not LATE:
            gdc_launch_dependents()
    first = tl.program_id(0) * ROWS
    b_weight, b_up = _weights(p_weight, first, outputs, inputs, weight_stride, ROWS, COLUMNS, GATED)
    b_norm = b_weight
    if NORM:
        i_column = tl.arange(0, COLUMNS)
        b_norm = tl.load(p_norm + i_column, mask=i_column < inputs, other=0.0)
    if PDL:
        gdc_wait()
        if LATE:
            gdc_launch_dependents()
    if GOES_ON:
        step = tl.num_programs(0) * ROWS
        b_x = _input(p_x, b_norm, inputs, eps, COLUMNS, NORM)
        for here in tl.range(first, outputs, step, num_stages=1):
            b_next, b_next_up = _weights(p_weight, here + step, outputs, inputs, weight_stride, ROWS, COLUMNS, GATED)
            _store(p_out, here, outputs, b_x, b_weight, b_up, ROWS, GATED, ADD)
            b_weight, b_up = b_next, b_next_up
    else:
        for i_token in tl.static_range(TOKENS):
            b_x = _input(p_x + i_token * x_stride, b_norm, inputs, eps, COLUMNS, NORM)
            _store(p_out + i_token * out_stride, first, outputs, b_x, b_weight, b_up, ROWS, GATED, ADD)


@dataclass(frozen=True)
class LaunchShape:
    """How the work is cut: `elements` of weight that a program holds, its warps, and the most programs (0: any)."""

    elements: int
    warps: int
    programs: int = 0


# By padded number of inputs; `benchmarks/bench.py linear` tries others.
_SHAPES = {8192: LaunchShape(16384, 8), 4096: LaunchShape(16384, 8)}
_DEFAULT = LaunchShape(8192, 4)
# The same of gate and up for one token: two programs for almost every processor of an H200, which leaves half of its
# registers to the next kernel.
_GATE_UP = {2048: LaunchShape(16384, 8, programs=256)}


def narrow_linear(out: Tensor, x: Tensor, weight: Tensor) -> None:
    """Launch the kernel; see the eager function."""
    launch(out, x, weight)


def norm_linear(out: Tensor, x: Tensor, norm: Tensor, weight: Tensor, eps: float) -> None:
    """Launch the kernel; see the eager function."""
    launch(out, x, weight, norm=norm, eps=eps)


def norm_gate_up(out: Tensor, x: Tensor, norm: Tensor, weight: Tensor, eps: float) -> None:
    """Launch the kernel; see the eager function."""
    launch(out, x, weight, norm=norm, eps=eps, gated=True)


def linear_add(residual: Tensor, x: Tensor, weight: Tensor) -> None:
    """Launch the kernel; see the eager function."""
    launch(residual, x, weight, add=True)


def launch(
    out: Tensor, x: Tensor, weight: Tensor, *, norm: Tensor | None = None, eps: float = 0.0, gated: bool = False,
    add: bool = False, late: bool = False, shape: LaunchShape | None = None,
) -> None:  # fmt: skip
    """Launch the kernel. If the next one must start `late`, it is released only behind this one's own wait.

    Raises ValueError for float64, and for a tensor whose last dimension is not contiguous.
    """
    if x.dtype == torch.float64:
        raise ValueError("invalid dtype float64 of x: expected float32, bfloat16 or float16 (sums are in float32)")
    for name, tensor in (("out", out), ("x", x), ("weight", weight)):
        if tensor.stride(-1) != 1:
            raise ValueError(f"{name} has strides {tensor.stride()}; its last dimension must be contiguous")
    outputs, inputs = weight.shape[0] // (2 if gated else 1), weight.shape[1]
    columns = triton.next_power_of_2(inputs)
    if shape is None and gated and x.shape[0] == 1:
        shape = _GATE_UP.get(columns)
    shape = shape or _SHAPES.get(columns, _DEFAULT)
    rows = max(1, shape.elements // columns // (2 if gated else 1))
    if not out.numel():
        return
    programs = triton.cdiv(outputs, rows)
    goes_on = x.shape[0] == 1 and 0 < shape.programs < programs
    _narrow_linear[(shape.programs if goes_on else programs,)](
        out, x, x if norm is None else norm, weight, outputs, inputs, out.stride(0), x.stride(0), weight.stride(0), eps,
        TOKENS=x.shape[0], ROWS=rows, COLUMNS=columns, NORM=norm is not None, GATED=gated, ADD=add, GOES_ON=goes_on,
        LATE=late, num_warps=shape.warps, enable_fp_fusion=_is_summed_in_threads(columns, shape),
        **dependent_launch(x.device),
    )  # fmt: skip


def _is_summed_in_threads(columns: int, shape: LaunchShape) -> bool:
    """Return whether every thread adds products of its own before threads add theirs to each other's.

    Where it has one only, a fused addition rounds the other's product and not its own: the threads that hold one output
    would differ in its last bits, and which of them is stored is a race (compute-sanitizer's racecheck reports it).
    """
    return columns > 32 * shape.warps
