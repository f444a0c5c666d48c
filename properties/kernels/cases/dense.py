"""Calls of layers without a cache. `T` tokens, `N` heads, `H` head size, `I` inputs, `O` outputs."""

from __future__ import annotations

import math

import torch

from draftproof.properties.choose import Choose
from draftproof.properties.kernels import buffers as bf
from draftproof.properties.kernels.buffers import ANY, Arguments, Sizes, calls, floats
from draftproof.properties.kernels.case import Buffer


def normed(choose: Choose, dtype: torch.dtype, aim: Sizes, *inputs: str) -> Arguments:
    """Choose inputs [T,H] beside an output, with the weight's own stride; it may be of the wider dtype."""
    tokens, columns = bf.distinct(choose, "tokens", "columns", aim=aim, high=40)
    shape = (tokens, columns)
    return {
        "out": bf.unwritten(choose, shape, dtype),
        **{name: bf.given(choose, shape, dtype) for name in inputs},
        "weight": bf.given(choose, shape[1:], choose.one_of((dtype, bf.wide(dtype)))),
        "eps": choose.one_of((1e-6, 1e-2)),
    }


@calls(floats)
def rms_norm(choose: Choose, dtype: torch.dtype, aim: Sizes = ANY) -> Arguments:
    """Choose rows of different size."""
    return normed(choose, dtype, aim, "x")


@calls(floats)
def add_rms_norm(choose: Choose, dtype: torch.dtype, aim: Sizes = ANY) -> Arguments:
    """Choose as rms_norm, with a residual that is read and written."""
    return normed(choose, dtype, aim, "residual", "x")


@calls(floats)
def silu_mul(choose: Choose, dtype: torch.dtype, aim: Sizes = ANY) -> Arguments:
    """Choose gate and up side by side."""
    tokens, width = bf.distinct(choose, "tokens", "columns", aim=aim, high=40)
    return {
        "out": bf.unwritten(choose, (tokens, width), dtype),
        "gate_up": bf.given(choose, (tokens, 2 * width), dtype),
    }


@calls(floats)
def rope(choose: Choose, dtype: torch.dtype, aim: Sizes = ANY) -> Arguments:
    """Choose positions up to 5000 and frequencies that fall from 1; heads may have components that are not turned."""
    tokens, q_heads, k_heads, half = bf.distinct(choose, "tokens", "q_heads", "k_heads", "half", aim=aim)
    size = 2 * half + choose.one_of((0, 1, 2, 7))
    frequencies = 1000.0 ** -(torch.arange(half, dtype=torch.float64) / half)
    return {
        "q": bf.given(choose, (tokens, q_heads, size), dtype),
        "k": bf.given(choose, (tokens, k_heads, size), dtype),
        "positions": bf.index(choose, [choose.integer(0, 5000) for _ in range(tokens)]),
        "inv_freq": bf.place(choose, frequencies.float()),
    }


@calls()
def ring_mix(choose: Choose, aim: Sizes = ANY) -> Arguments:
    """Choose one to three dimensions, and salts of both signs."""
    names = ("planes", "rows", "columns")[: choose.integer(1, 3)]
    shape = tuple(bf.distinct(choose, *names))
    if "elements" in aim:
        factor = choose.one_of([one for one in (1, 2, 3, 7) if aim["elements"] % one == 0])
        shape = choose.one_of(((aim["elements"] // factor, factor), (factor, 1, aim["elements"] // factor)))
    return {
        "out": bf.unwritten(choose, shape, torch.int64),
        "x": bf.given(choose, shape, torch.int64),
        "salt": choose.one_of((bf.any_word(choose), choose.integer(-2, 100))),
    }


@calls()
def ring_linear(choose: Choose, aim: Sizes = ANY) -> Arguments:
    """Choose inputs and outputs over and under the block size."""
    tokens, inputs, outputs = bf.distinct(choose, "tokens", "inputs", "outputs", aim=aim, high=80)
    tokens = aim.get("tokens", tokens % 7 + 1)
    return {
        "out": bf.unwritten(choose, (tokens, outputs), torch.int64),
        "x": bf.given(choose, (tokens, inputs), torch.int64),
        "weight": bf.given(choose, (outputs, inputs), torch.int64),
    }


def rowwise(choose: Choose, values: torch.Tensor) -> Buffer:
    """Place values [.., I] with the last dimension contiguous, which the linear ops demand, and gaps between rows."""
    width = values.shape[-1]
    stride, offset = width + choose.integer(0, 3), choose.integer(0, 5)
    size = offset + stride * values.shape[0] + choose.integer(1, 5)
    poison = choose.one_of(bf.VALUE_POISONS[values.dtype])
    buffer = Buffer(torch.full((size,), poison, dtype=values.dtype), tuple(values.shape), (stride, 1), offset)
    buffer.tensor.copy_(values)
    return buffer


def linear_weight(choose: Choose, outputs: int, inputs: int, dtype: torch.dtype) -> torch.Tensor:
    """Return weights [O,I] that keep sums near 1, so that one bound serves all widths."""
    smaller = max(8.0, math.sqrt(2 ** inputs.bit_length()))
    return bf.values_of(choose, (outputs, inputs), dtype) / smaller


def _linear(
    choose: Choose, dtype: torch.dtype, aim: Sizes, *, adds: bool = False, norm: bool = False, gated: bool = False
) -> Arguments:
    """Choose few tokens. With an aim the last input of the first is so large that no bound hides that it is lost."""
    tokens, inputs, outputs = bf.distinct(choose, "tokens", "inputs", "outputs", aim=aim, high=40)
    tokens = aim.get("tokens", tokens % 4 + 1)
    out = torch.full((tokens, outputs), choose.one_of(bf.VALUE_POISONS[dtype]), dtype=dtype)
    if adds:
        out = bf.values_of(choose, (tokens, outputs), dtype)
    x = bf.values_of(choose, (tokens, inputs), dtype)
    if aim:
        x[0, -1] = 2 * math.sqrt(inputs)
    arguments: Arguments = {"residual" if adds else "out": rowwise(choose, out), "x": rowwise(choose, x)}
    if norm:
        # The linear ops take the norm's weight as a model holds it, contiguous.
        arguments["norm"] = Buffer(bf.values_of(choose, (inputs,), dtype), (inputs,), (1,), 0)
    arguments["weight"] = rowwise(choose, linear_weight(choose, 2 * outputs if gated else outputs, inputs, dtype))
    if norm:
        arguments["eps"] = choose.one_of((1e-6, 1e-2))
    return arguments


@calls(floats)
def narrow_linear(choose: Choose, dtype: torch.dtype, aim: Sizes = ANY) -> Arguments:
    """Choose one to four tokens, with gaps between rows of every matrix."""
    return _linear(choose, dtype, aim)


@calls(floats)
def norm_linear(choose: Choose, dtype: torch.dtype, aim: Sizes = ANY) -> Arguments:
    """Choose as narrow_linear, of a normed input."""
    return _linear(choose, dtype, aim, norm=True)


@calls(floats)
def norm_gate_up(choose: Choose, dtype: torch.dtype, aim: Sizes = ANY) -> Arguments:
    """Choose as norm_linear, with a weight that holds gate and up."""
    return _linear(choose, dtype, aim, norm=True, gated=True)


@calls(floats)
def linear_add(choose: Choose, dtype: torch.dtype, aim: Sizes = ANY) -> Arguments:
    """Choose as narrow_linear, added to what is there."""
    return _linear(choose, dtype, aim, adds=True)
