"""Prefill on one engine, decode on another: what the first sends to the second.

A request that is not done when its prompt has run is packed into a `KvTransfer`, and belongs to no engine until the
decode engine has a row, pages and a place in its batch. It names no page, slot or row: each engine has its own. `n`
tokens committed, `L` layers.

Sources: SGLang, python/sglang/srt/disaggregation/ (prefill.py, decode.py, `MetadataBuffers` of utils.py); vLLM,
vllm/distributed/kv_transfer/kv_connector/v1/; docs/semantics/disaggregation.md, S-DISAGG-1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from msgspec import Struct
from torch import Tensor

from draftproof.engine.stages import GenerationRequest
from draftproof.engine.states.base import LogicalStates


class Entries(Struct, frozen=True):
    """Copies of KV entries of positions up to n-1, as they are stored: keys and values [m, N, H] of each layer.

    They begin at 0, or at the first page that a window reaches. Of codes there are the scales [m, N] of both.
    """

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    scales: tuple[tuple[Tensor, Tensor], ...] = ()


class KvTransfer(Struct, frozen=True):
    """A request with `seq_len` tokens committed, what it has `emitted` in `rounds` rounds, and its place in `order`.

    `draft_rows` are the draft's tensors of a request row, from which its first round starts; `states` those after the
    prompt (None: the model has none), and `checkpoint` the last one kept.
    """

    request: GenerationRequest
    seq_len: int
    emitted: tuple[int, ...]
    rounds: int
    order: int
    entries: Entries
    draft_entries: Entries | None
    draft_rows: Mapping[str, Tensor]
    states: LogicalStates | None = None
    checkpoint: LogicalStates | None = None


def slots_of(pages: Sequence[int], page_size: int, count: int, device: torch.device) -> Tensor:
    """Return the slots of positions 0 .. count-1 of a request with these pages, in the order of its columns."""
    first = torch.tensor(pages, dtype=torch.int64, device=device)[:, None] * page_size
    return (first + torch.arange(page_size, device=device)).flatten()[:count]
