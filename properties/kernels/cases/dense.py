"""Calls of layers without a cache. `T` tokens, `N` heads, `H` head size, `I` inputs, `O` outputs."""

import torch
from hypothesis import strategies as st

from draftproof.properties.kernels import buffers as bf
from draftproof.properties.kernels.buffers import Arguments, Draw, Dtypes, calls, floats
from draftproof.properties.kernels.case import Buffer, KernelCase
from draftproof.properties.strategies.examples import integers, sampled


def normed(draw: Draw, dtype: torch.dtype, *inputs: str) -> Arguments:
    """Draw inputs [T,H] beside an output, with the weight's own stride; it may be of the wider dtype."""
    shape = tuple(bf.distinct(draw, 2, 40))
    return {
        "out": bf.unwritten(draw, shape, dtype),
        **{name: bf.given(draw, shape, dtype) for name in inputs},
        "weight": bf.given(draw, shape[1:], draw(sampled((dtype, bf.wide(dtype))))),
        "eps": draw(sampled((1e-6, 1e-2))),
    }


@calls(floats)
def rms_norm(draw: Draw, dtype: torch.dtype) -> Arguments:
    """Draw rows of different size."""
    return normed(draw, dtype, "x")


@st.composite
def add_rms_norm(draw: Draw, dtypes: Dtypes = ()) -> KernelCase:
    """Draw as rms_norm, with a residual that is read and written."""
    case = draw(rms_norm(dtypes))
    out = case.buffers["out"]
    residual = bf.given(draw, out.shape, out.storage.dtype)
    return KernelCase("add_rms_norm", {"out": out, "residual": residual, **case.arguments})


@calls(floats)
def silu_mul(draw: Draw, dtype: torch.dtype, large: bool = False) -> Arguments:
    """Draw gate and up side by side; large: so many that a row takes several programs."""
    tokens, width = bf.distinct(draw, 2, 40)
    if large:
        tokens, width = tokens % 4 + 1, 1024 + width * 25
    return {"out": bf.unwritten(draw, (tokens, width), dtype), "gate_up": bf.given(draw, (tokens, 2 * width), dtype)}


@calls(floats)
def rope(draw: Draw, dtype: torch.dtype, large: bool = False) -> Arguments:
    """Draw positions up to 5000 and frequencies that fall from 1; heads may have components that are not turned.

    Large: of queries and of keys there are so many heads that they take several programs.
    """
    tokens, q_heads, k_heads, half = bf.distinct(draw, 4)
    if large:
        tokens, q_heads, k_heads = tokens % 4 + 1, q_heads + 17, k_heads + 9
    size = 2 * half + draw(sampled((0, 1, 2, 7)))
    frequencies = 1000.0 ** -(torch.arange(half, dtype=torch.float64) / half)
    return {
        "q": bf.given(draw, (tokens, q_heads, size), dtype),
        "k": bf.given(draw, (tokens, k_heads, size), dtype),
        "positions": bf.index(draw, [draw(integers(0, 5000)) for _ in range(tokens)]),
        "inv_freq": bf.place(draw, frequencies.float()),
    }


@calls()
def ring_mix(draw: Draw) -> Arguments:
    """Draw one to three dimensions, and salts of both signs."""
    shape = tuple(bf.distinct(draw, draw(integers(1, 3))))
    return {
        "out": bf.unwritten(draw, shape, torch.int64),
        "x": bf.given(draw, shape, torch.int64),
        "salt": draw(integers(-(1 << 63), (1 << 63) - 1) | integers(-2, 100)),
    }


@calls()
def ring_linear(draw: Draw) -> Arguments:
    """Draw inputs and outputs over and under the block size."""
    tokens, inputs, outputs = bf.distinct(draw, 3, 80)
    return {
        "out": bf.unwritten(draw, (tokens % 7 + 1, outputs), torch.int64),
        "x": bf.given(draw, (tokens % 7 + 1, inputs), torch.int64),
        "weight": bf.given(draw, (outputs, inputs), torch.int64),
    }


def rowwise(draw: Draw, values: torch.Tensor) -> Buffer:
    """Place values [.., I] with the last dimension contiguous, which the linear ops demand, and gaps between rows."""
    width = values.shape[-1]
    stride, offset = width + draw(integers(0, 3)), draw(integers(0, 5))
    size = offset + stride * values.shape[0] + draw(integers(1, 5))
    poison = draw(sampled(bf.VALUE_POISONS[values.dtype]))
    buffer = Buffer(torch.full((size,), poison, dtype=values.dtype), tuple(values.shape), (stride, 1), offset)
    buffer.tensor.copy_(values)
    return buffer


def _linear(
    draw: Draw, dtype: torch.dtype, large: bool, *, adds: bool = False, norm: bool = False, gated: bool = False
) -> Arguments:
    """Draw few inputs, so that sums are short; large: not the fewest, with so many outputs that they take programs."""
    tokens, inputs, outputs = draw(st.lists(integers(1, 40), min_size=3, max_size=3, unique=True))
    tokens = tokens % 4 + 1
    if large:
        inputs, outputs = 33 + inputs % 8, outputs + 256
    out = torch.full((tokens, outputs), draw(sampled(bf.VALUE_POISONS[dtype])), dtype=dtype)
    if adds:
        out = bf.values_of(draw, (tokens, outputs), dtype)
    arguments: Arguments = {
        "residual" if adds else "out": rowwise(draw, out),
        "x": rowwise(draw, bf.values_of(draw, (tokens, inputs), dtype)),
    }
    if norm:
        # The linear ops take the norm's weight as a model holds it, contiguous.
        arguments["norm"] = Buffer(bf.values_of(draw, (inputs,), dtype), (inputs,), (1,), 0)
    # An eighth keeps sums near 1, so that one bound serves all widths.
    rows = 2 * outputs if gated else outputs
    arguments["weight"] = rowwise(draw, bf.values_of(draw, (rows, inputs), dtype) / 8)
    if norm:
        arguments["eps"] = draw(sampled((1e-6, 1e-2)))
    return arguments


@calls(floats)
def narrow_linear(draw: Draw, dtype: torch.dtype, large: bool = False) -> Arguments:
    """Draw one to four tokens, with gaps between rows of every matrix."""
    return _linear(draw, dtype, large)


@calls(floats)
def norm_linear(draw: Draw, dtype: torch.dtype, large: bool = False) -> Arguments:
    """Draw as narrow_linear, of a normed input."""
    return _linear(draw, dtype, large, norm=True)


@calls(floats)
def norm_gate_up(draw: Draw, dtype: torch.dtype, large: bool = False) -> Arguments:
    """Draw as norm_linear, with a weight that holds gate and up."""
    return _linear(draw, dtype, large, norm=True, gated=True)


@calls(floats)
def linear_add(draw: Draw, dtype: torch.dtype, large: bool = False) -> Arguments:
    """Draw as narrow_linear, added to what is there."""
    return _linear(draw, dtype, large, adds=True)
