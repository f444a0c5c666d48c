"""Decoding with the draft off, against transformers and against the memory floor, and the kernels of one step."""

from __future__ import annotations

import statistics
from argparse import Namespace
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import timing
import torch
from decode_model import DecodeLoop, Setup, engine_model, setup, transformers_model, weight_bytes
from server import Server, dense_model, sizes
from shapes import llama_shapes, random_tensors
from torch.overrides import BaseTorchFunctionMode

# bf16 logits of sixteen layers differ by a few per cent; of another model, by more than their own size.
LOGITS_BOUND = 0.1


def decode(given: Namespace) -> Iterator[dict[str, Any]]:
    """Time a decode step of a Llama of about 1B parameters beside transformers', and the reading of its weights.

    The floor of a step is the bytes of weights that it reads over the bandwidth of a large device-to-device copy, which
    counts bytes read plus bytes written. "engine" is `Engine.step`, one step behind the other to the end of the texts,
    with all that the host does; "graph" is the target's part of it alone, a graph that feeds its tokens to the next.
    """
    of = setup(given)
    tensors = random_tensors(llama_shapes(of.sizes), of.device, of.dtype, of.seed)
    dense, other = engine_model(of, tensors), transformers_model(of, tensors)
    floor = 1e3 * weight_bytes(dense) / timing.copy_bandwidth(of.device, of.copy_bytes)
    for batch in of.batches:
        ids = _prompts(of, batch)
        loop = DecodeLoop(dense, of, batch)
        loop.prefill(ids)
        difference = _relative(loop.logits, other(ids).logits[:, -1])
        if not difference < LOGITS_BOUND:
            raise RuntimeError(
                f"logits differ from transformers' by {difference:.3g} of their size; speed means nothing"
            )
        engine, graph, theirs = _served(of, dense, ids), _replayed(of, loop, ids), _generated(of, other, ids)
        yield {
            "batch": batch,
            "engine_ms": engine,
            "graph_ms": graph,
            "transformers_ms": theirs,
            "floor_ms": floor,
            "tokens_per_second": 1e3 * batch / engine,
            "transformers_of_engine": theirs / engine,
            "floor_of_engine": floor / engine,
            "floor_of_graph": floor / graph,
            "logits_difference": difference,
        }


def _served(given: Setup, dense: Any, ids: torch.Tensor) -> float:
    """Return the milliseconds of an engine step in which every request gains a token, without drafts."""
    batch, texts = len(ids), [tuple(row) for row in ids.tolist()]
    server = Server(given, dense, sizes(given, batch, given.prompt, given.new))
    times = []
    for _ in range(given.repeats + 1):
        steps = server.rounds(texts, given.new, num_drafts=0)
        if any(step.plan.prefill or len(step.plan.decode) < batch for step in steps):
            raise RuntimeError("a step did something else than a round of every request; there is nothing to time")
        times.append(statistics.fmean(step.seconds for step in steps))
    return 1e3 * statistics.median(times[1:])


def _replayed(given: Setup, loop: DecodeLoop, ids: torch.Tensor) -> float:
    """Return the milliseconds of a step that is one graph."""

    def steps() -> None:
        for _ in range(given.new - 1):
            loop.step()

    return _milliseconds(given, steps, before=lambda: loop.prefill(ids)) / (given.new - 1)


def _generated(given: Setup, model: Any, ids: torch.Tensor) -> float:
    """Return the milliseconds of a step of transformers' greedy `generate`."""

    def of(new: int) -> float:
        ask = {"max_new_tokens": new, "min_new_tokens": new, "do_sample": False}
        return _milliseconds(given, lambda: model.generate(ids, attention_mask=torch.ones_like(ids), **ask))

    return (of(given.new) - of(1)) / (given.new - 1)


def _prompts(given: Setup, batch: int) -> torch.Tensor:
    """Return random prompts [B, n]."""
    generator = torch.Generator().manual_seed(given.seed)
    return torch.randint(0, given.sizes["vocab_size"], (batch, given.prompt), generator=generator).to(given.device)


def _milliseconds(given: Setup, run: Callable[[], object], before: Callable[[], object] | None = None) -> float:
    return 1e3 * timing.median(given.device, run, repeats=given.repeats, warm=1, before=before)


def _relative(got: torch.Tensor, expected: torch.Tensor) -> float:
    return float((got.float() - expected.float()).norm() / expected.float().norm())


def profile(given: Namespace) -> Iterator[dict[str, Any]]:
    """Show the kernels of one such step, the longest first; "gap" is the time before them in which none ran."""
    of = setup(given)
    batch, cuda = of.batches[0], of.device == "cuda"
    loop = DecodeLoop(dense_model(of), of, batch)
    loop.prefill(_prompts(of, batch))
    for _ in range(3):
        loop.step()
    kind = torch.profiler.ProfilerActivity.CUDA if cuda else torch.profiler.ProfilerActivity.CPU
    # In a mode of torch kernels of the CPU go by its dispatcher, too, which the profiler sees.
    with torch.profiler.profile(activities=[kind]) as ran, nullcontext() if cuda else BaseTorchFunctionMode():
        loop.step()
        timing.synchronize(of.device)
    events = sorted(timing.kernels(ran) if cuda else ran.events(), key=lambda event: event.time_range.start)
    if not events:
        raise RuntimeError("the profiler saw no kernel")
    times, gaps, end = defaultdict(list), defaultdict(float), events[0].time_range.start
    for event in events:
        times[event.name].append(event.time_range.elapsed_us())
        gaps[event.name] += max(0.0, event.time_range.start - end)
        end = max(end, event.time_range.end)
    for name, taken in sorted(times.items(), key=lambda item: -sum(item[1])):
        yield {"kernel": name, "count": len(taken), "total_us": float(sum(taken)), "gap_us": gaps[name]}
