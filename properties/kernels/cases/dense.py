"""Calls of layers without a cache. `T` tokens, `N` heads, `H` head size, `I` inputs, `O` outputs."""

import torch
from hypothesis import strategies as st

from draftproof.properties.kernels.buffers import (
    FLOATS,
    VALUE_POISONS,
    Arguments,
    Draw,
    Dtypes,
    distinct,
    given,
    index,
    place,
    unwritten,
    values_of,
    wide,
)
from draftproof.properties.kernels.case import Buffer, KernelCase


@st.composite
def rms_norm(draw: Draw, dtypes: Dtypes = FLOATS) -> KernelCase:
    """Draw rows of different size, with the weight's own stride; it may be of the wider dtype."""
    dtype = draw(st.sampled_from(dtypes))
    tokens, width = distinct(draw, 2, 40)
    arguments: Arguments = {
        "out": unwritten(draw, (tokens, width), dtype),
        "x": given(draw, (tokens, width), dtype),
        "weight": given(draw, (width,), draw(st.sampled_from((dtype, wide(dtype))))),
        "eps": draw(st.sampled_from((1e-6, 1e-2))),
    }
    return KernelCase("rms_norm", arguments)


@st.composite
def add_rms_norm(draw: Draw, dtypes: Dtypes = FLOATS) -> KernelCase:
    """Draw as rms_norm, with a residual that is read and written."""
    case = draw(rms_norm(dtypes))
    out = case.buffers["out"]
    residual = given(draw, out.shape, out.storage.dtype)
    return KernelCase("add_rms_norm", {"out": out, "residual": residual, **dict(list(case.arguments.items())[1:])})


@st.composite
def silu_mul(draw: Draw, dtypes: Dtypes = FLOATS) -> KernelCase:
    """Draw gate and up side by side."""
    dtype = draw(st.sampled_from(dtypes))
    tokens, width = distinct(draw, 2, 40)
    arguments: Arguments = {
        "out": unwritten(draw, (tokens, width), dtype),
        "gate_up": given(draw, (tokens, 2 * width), dtype),
    }
    return KernelCase("silu_mul", arguments)


@st.composite
def rope(draw: Draw, dtypes: Dtypes = FLOATS) -> KernelCase:
    """Draw positions up to 5000 and frequencies that fall from 1; heads may have components that are not turned."""
    dtype = draw(st.sampled_from(dtypes))
    tokens, q_heads, k_heads, half = distinct(draw, 4)
    size = 2 * half + draw(st.sampled_from((0, 1, 2, 7)))
    frequencies = 1000.0 ** -(torch.arange(half, dtype=torch.float64) / half)
    arguments: Arguments = {
        "q": given(draw, (tokens, q_heads, size), dtype),
        "k": given(draw, (tokens, k_heads, size), dtype),
        "positions": index(draw, [draw(st.integers(0, 5000)) for _ in range(tokens)]),
        "inv_freq": place(draw, frequencies.float()),
    }
    return KernelCase("rope", arguments)


@st.composite
def ring_mix(draw: Draw, dtypes: Dtypes = (torch.int64,)) -> KernelCase:
    """Draw one to three dimensions, and salts of both signs."""
    del dtypes
    shape = tuple(distinct(draw, draw(st.integers(1, 3))))
    arguments: Arguments = {
        "out": unwritten(draw, shape, torch.int64),
        "x": given(draw, shape, torch.int64),
        "salt": draw(st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-2, 100)),
    }
    return KernelCase("ring_mix", arguments)


@st.composite
def ring_linear(draw: Draw, dtypes: Dtypes = (torch.int64,)) -> KernelCase:
    """Draw inputs and outputs over and under the block size."""
    del dtypes
    tokens, inputs, outputs = distinct(draw, 3, 80)
    arguments: Arguments = {
        "out": unwritten(draw, (tokens % 7 + 1, outputs), torch.int64),
        "x": given(draw, (tokens % 7 + 1, inputs), torch.int64),
        "weight": given(draw, (outputs, inputs), torch.int64),
    }
    return KernelCase("ring_linear", arguments)


def _rowwise(draw: Draw, values: torch.Tensor) -> Buffer:
    """Place values [.., I] with the last dimension contiguous, which the linear ops demand, and gaps between rows."""
    width = values.shape[-1]
    stride, offset = width + draw(st.integers(0, 3)), draw(st.integers(0, 5))
    size = offset + stride * values.shape[0] + draw(st.integers(1, 5))
    poison = draw(st.sampled_from(VALUE_POISONS[values.is_floating_point()]))
    buffer = Buffer(torch.full((size,), poison, dtype=values.dtype), tuple(values.shape), (stride, 1), offset)
    buffer.tensor.copy_(values)
    return buffer


def _linear_case(draw: Draw, op: str, dtypes: Dtypes, *, norm: bool = False, gated: bool = False) -> KernelCase:
    dtype = draw(st.sampled_from(dtypes))
    tokens, inputs, outputs = draw(st.lists(st.integers(1, 40), min_size=3, max_size=3, unique=True))
    tokens = tokens % 4 + 1
    out = torch.full((tokens, outputs), draw(st.sampled_from(VALUE_POISONS[True])), dtype=dtype)
    if op == "linear_add":
        out = values_of(draw, (tokens, outputs), dtype)
    arguments: dict[str, Buffer | int | float] = {
        "residual" if op == "linear_add" else "out": _rowwise(draw, out),
        "x": _rowwise(draw, values_of(draw, (tokens, inputs), dtype)),
    }
    if norm:
        # The linear ops take the norm's weight as a model holds it, contiguous.
        weight = values_of(draw, (inputs,), dtype)
        arguments["norm"] = Buffer(weight, (inputs,), (1,), 0)
    # An eighth keeps sums near 1, so that one bound serves all widths.
    rows = 2 * outputs if gated else outputs
    arguments["weight"] = _rowwise(draw, values_of(draw, (rows, inputs), dtype) / 8)
    if norm:
        arguments["eps"] = draw(st.sampled_from((1e-6, 1e-2)))
    return KernelCase(op, arguments)


@st.composite
def narrow_linear(draw: Draw, dtypes: Dtypes = FLOATS) -> KernelCase:
    """Draw one to four tokens, with gaps between rows of every matrix."""
    return _linear_case(draw, "narrow_linear", dtypes)


@st.composite
def norm_linear(draw: Draw, dtypes: Dtypes = FLOATS) -> KernelCase:
    """Draw as narrow_linear, of a normed input."""
    return _linear_case(draw, "norm_linear", dtypes, norm=True)


@st.composite
def norm_gate_up(draw: Draw, dtypes: Dtypes = FLOATS) -> KernelCase:
    """Draw as norm_linear, with a weight that holds gate and up."""
    return _linear_case(draw, "norm_gate_up", dtypes, norm=True, gated=True)


@st.composite
def linear_add(draw: Draw, dtypes: Dtypes = FLOATS) -> KernelCase:
    """Draw as narrow_linear, added to what is there."""
    return _linear_case(draw, "linear_add", dtypes)
