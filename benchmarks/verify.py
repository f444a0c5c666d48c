"""A verify of a draft tree beside one of a chain of the same width, and a sampled one beside a greedy one."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import timing
import torch
from decode_model import PAGE, DecodeLoop, Setup, setup
from shapes import llama_config, llama_shapes, random_tensors
from torch import Tensor

from draftproof import kernels
from draftproof.engine.cache import PagedCache
from draftproof.engine.config import EngineConfig
from draftproof.engine.models.llama import Llama
from draftproof.engine.models.probe import ProbeTarget
from draftproof.engine.probes import Probes
from draftproof.engine.sampling import Sampled, SamplingParams, sample, sampling_columns
from draftproof.engine.tree import TreeConfig
from draftproof.engine.upload import uploaded
from draftproof.engine.verify import Verifier
from draftproof.engine.verify_tree import TreeVerifier
from draftproof.properties.formats.checkpoint_config import parse_config
from draftproof.properties.formats.checkpoint_config.llama import LlamaConfig

PARENTS = (0, 0, 0, 0, 1, 1, 1, 2, 2, 5, 5, 6, 10, 10, 11, 13)
"""Four children of the pending token, sixteen drafts, five levels: what EAGLE's beams of four typically keep."""
DEPTH, TOPK, WIDTH = 5, 4, len(PARENTS) + 1
LOGIT = 1 << 24
SAMPLING = SamplingParams(temperature=1.0, top_k=50, top_p=0.875, seed=1 << 40)


class DrawingLlama(Llama):
    """A Llama whose tokens can be drawn, as those of a probe are."""

    def token_weights(self, logits: Tensor, temperatures: Tensor) -> Tensor:
        """Return whole weights of logits [T, V], that are taken for as many units."""
        return ProbeTarget.token_weights(self, (logits.float() * LOGIT).to(torch.int64), temperatures)  # type: ignore[arg-type]


def verify(given: Namespace) -> Iterator[dict[str, Any]]:
    """Time a verify of a draft tree beside one of a chain, and a sampled one beside a greedy one.

    The target is that of `decode`, its logits on a probe's grid so that tokens are drawn in whole numbers. All four
    kinds of verify run in turn in one process, on the same cache; the ratios are of their medians.
    """
    of = setup(given, times=5)
    of = replace(of, prompt=8 * of.prompt, new=WIDTH + PAGE)
    tensors = random_tensors(llama_shapes(of.sizes), of.device, of.dtype, of.seed)
    dense = DrawingLlama(parse_config(llama_config(of.sizes), LlamaConfig), tensors)
    for batch in of.batches:
        yield _measured(dense, of, batch)


def _measured(dense: DrawingLlama, given: Setup, batch: int) -> dict[str, Any]:
    """Return the milliseconds of each kind of verify and of each kind of choice, and their ratios."""
    cache = DecodeLoop(dense, given, batch).cache
    runs = {
        f"{'sampled_' if sampled else ''}{name}": _launch(
            _verify(dense, cache, given, batch, tree=tree, sampled=sampled)
        )
        for name, tree in (("chain", False), ("tree", True))
        for sampled in (False, True)
    }
    logits = dense.logits(torch.randn(batch * WIDTH, given.sizes["hidden_size"], device=given.device).to(given.dtype))
    drawn = Sampled.of(uploaded(sampling_columns([SAMPLING] * batch), logits.device), WIDTH)
    ids, places = torch.zeros((2, batch * WIDTH), dtype=torch.int64, device=given.device)
    runs["greedy_choice"] = _launch(lambda: kernels.greedy_choice(ids, logits))
    runs["sampled_choice"] = _launch(lambda: sample(dense, ids, logits, ids[:, None], places, drawn))
    seconds = {name: timing.median(given.device, run, repeats=given.repeats) for name, run in runs.items()}
    ratios = {
        "tree_of_chain": seconds["tree"] / seconds["chain"],
        "sampled_of_greedy": seconds["sampled_chain"] / seconds["chain"],
        "sampled_of_greedy_tree": seconds["sampled_tree"] / seconds["tree"],
    }
    return {"batch": batch, **{f"{name}_ms": 1e3 * one for name, one in seconds.items()}, **ratios}


def _launch(run: Callable[[], object]) -> Callable[[], object]:
    """Return the run as a graph, where there are graphs."""
    return timing.captured(run, warm=run) if torch.cuda.is_available() else run


def _verify(
    dense: DrawingLlama, cache: PagedCache, given: Setup, batch: int, *, tree: bool, sampled: bool
) -> Callable[[], object]:
    """Return a verify of so many drafts after the prompt of each request."""
    shape = TreeConfig(topk=TOPK, nodes=WIDTH - 1) if tree else None
    config = EngineConfig(
        steps=DEPTH if tree else WIDTH - 1,
        page_size=PAGE,
        pages=batch * cache.page_table.shape[1],
        request_slots=batch,
        max_len=cache.page_table.shape[1] * PAGE,
        max_batch=batch,
        chunk=given.prompt,
        sampled=sampled,
        tree=shape,
    )
    generator = torch.Generator().manual_seed(given.seed)
    drafts = torch.randint(given.sizes["vocab_size"], (batch, WIDTH - 1), generator=generator)
    views = {
        "req_rows": torch.arange(1, batch + 1),
        "state_slots": torch.zeros(batch, dtype=torch.int64),
        "positions": torch.full((batch,), given.prompt),
        "num_drafts": torch.full((batch,), WIDTH - 1),
        "pending_tokens": torch.zeros(batch, dtype=torch.int64),
        "draft_tokens": drafts,
        "parents": torch.tensor(PARENTS).repeat(batch, 1),
    }
    placed = {name: value.to(given.device) for name, value in views.items()}
    if sampled:
        placed |= uploaded(sampling_columns([SAMPLING] * batch), cache.page_table.device)
    verifier = (TreeVerifier if tree else Verifier)(dense, cache, config, Probes())
    return lambda: verifier.verify(placed)
