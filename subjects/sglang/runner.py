"""The model runner behind a worker: a probe's draft, exact, which records what it is given.

`R` rows of a forward, `D` hidden width, `V` vocabulary of the draft.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from draftproof.engine.cache import PagedCache
from draftproof.engine.drafts.base import Tapping
from draftproof.engine.models.base import AttentionMetadata
from draftproof.engine.probes import Probes
from draftproof.subjects.sglang.bare import StubAttributes


def decided(logits: Tensor, place: Tensor) -> Tensor:
    """Return logits [R, V] that leave no doubt: 1 at the choice, 0 elsewhere; an engine may break ties as it likes."""
    return torch.zeros_like(logits).scatter_(1, place.unsqueeze(1), 1.0)


class Addressed:
    """Keeps a worker's arguments within the memory that there is: a wrong value must show as such, not as a crash."""

    def __init__(self, cache: PagedCache, vocab: int) -> None:
        self._slots = cache.keys[0].shape[0]
        self._positions = cache.page_table.shape[1] * cache.page_size
        self._rows, self._vocab = cache.page_table.shape[0], vocab

    def ids(self, ids: Tensor) -> Tensor:
        """Return token ids that an embedding has."""
        return ids.to(torch.int64).clamp(0, self._vocab - 1)

    def metadata(self, req_rows: Tensor, positions: Tensor, slots: Tensor, visible: Tensor) -> AttentionMetadata:
        """Return where tokens are, and how far each of them sees."""
        return AttentionMetadata(
            req_rows.to(torch.int64).clamp(0, self._rows - 1),
            positions.to(torch.int64).clamp(0, self._positions - 1),
            slots.to(torch.int64).clamp(0, self._slots - 1),
            last_visible=visible.to(torch.int64).clamp(-1, self._positions - 1),
        )


class Backends:
    """Attention backends of a draft's steps, told apart by their `step`, counted from 1."""

    def __init__(self, steps: int) -> None:
        self.attn_backends = [
            StubAttributes(step=step, get_cuda_graph_seq_len_fill_value=lambda: 1) for step in range(1, steps + 1)
        ]

    def __getattr__(self, name: str) -> Any:
        return StubAttributes.__getattr__(self, name)  # type: ignore[arg-type]


class DecodeRunner(StubAttributes):
    """Runs a draft head for a worker's decode steps, one token a row."""

    def __init__(self, draft: Any, tapping: Tapping, vocab: int, **attributes: Any) -> None:
        super().__init__(**attributes)
        self._draft, self._tapping = draft, tapping
        self._addressed = Addressed(draft.cache, vocab)

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Record nothing: a capture runs with values of no request."""
        self._tapping, heard = Tapping(Probes()), self._tapping
        yield
        self._tapping = heard

    def forward(self, batch: Any, *args: Any, **options: Any) -> StubAttributes:
        """Run one step; the attention sees what the step's backend was planned for: everything before, and itself."""
        step = self._backend(batch).step
        hidden, model = batch.spec_info.hidden_states, self._draft.model
        taps = AttentionMetadata(batch.req_pool_indices, batch.positions, batch.out_cache_loc)
        self._tapping.inputs("draft", taps, batch.input_ids, hidden, step)
        visible = batch.seq_lens + step - 1
        metadata = self._addressed.metadata(batch.req_pool_indices, batch.positions, batch.out_cache_loc, visible)
        states, handed = model.forward(self._addressed.ids(batch.input_ids), hidden, metadata, self._draft.cache)
        logits = model.logits(states)
        place = self._tapping.choose("draft", logits, step, model.target_ids)
        if model.target_ids is not None:
            place = (model.target_ids == place.unsqueeze(1)).int().argmax(1)
        return StubAttributes(
            logits_output=StubAttributes(next_token_logits=decided(logits.float(), place), hidden_states=handed)
        )

    def _backend(self, batch: Any) -> Any:
        if "attn_backend" in vars(batch):
            return batch.attn_backend
        return self.current_backend()
