"""What a worker's extends run on: a probe's draft behind its model runner, batches, and a table of slots.

`R` requests, `T` tokens of a forward, `D` hidden width, `V` vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from draftproof import kernels
from draftproof.engine.drafts.base import DraftContext, PromptChunks
from draftproof.engine.models.base import AttentionMetadata
from draftproof.engine.stages import PrefillRow
from draftproof.subjects.making import SubjectNameError
from draftproof.subjects.sglang.bare import NoneAttributes, StubAttributes
from draftproof.subjects.sglang.runner import Addressed, decided

VALUES = ("ids", "positions", "slots", "hidden", "rows")
"""What a forward is given."""
_LAST_ROWS = ("EXTEND", "DRAFT_EXTEND")
"""Modes in which only each request's last row has logits."""
Forward = Callable[[Tensor, Tensor, AttentionMetadata], tuple[Tensor, Tensor]]
"""Ids [T], hidden states [T, D] and their places -> states, and what is handed on."""


@dataclass(frozen=True)
class Stage:
    """Which extends are a release's: those after prefill, or those after verify.

    `graphs`: through its graph runners, where a scenario has graphs.
    """

    prefill: bool
    graphs: bool


_STAGES = {"prefill": Stage(True, False), "verify": Stage(False, False), "verify, graphs": Stage(False, True)}


def stage_of(name: str) -> Stage:
    """Return a stage by its name. Raises SubjectNameError."""
    if name not in _STAGES:
        raise SubjectNameError(f"invalid setting stage={name!r}: expected one of {'; '.join(_STAGES)}")
    return _STAGES[name]


class ExtendRunner(StubAttributes):
    """The model runner of an extend, eager or in a graph: runs the probe's model, and keeps what it was given.

    `given` has each of VALUES, `logits` [T, V] the model's own, `table` the slots of positions. A worker that knows no
    vocabulary but the target's is given `target_ids` for what the model chooses.
    """

    def __init__(
        self,
        context: DraftContext,
        vocab: int,
        forward: Forward,
        logits: Callable[[Tensor], Tensor],
        target_ids: Tensor | None = None,
    ) -> None:
        assert context.cache is not None
        slots = TokenTable(context)
        table = StubAttributes(req_to_token=slots.slots)
        pool = StubAttributes(translate_loc_from_full_to_swa=lambda slots: slots)
        backend = StubAttributes(
            get_cuda_graph_seq_len_fill_value=lambda: 1,
            supports_draft_extend_metadata_staging=False,
            req_to_token_pool=table,
            token_to_kv_pool=pool,
        )
        width, dtype = context.target.width, context.target.hidden_dtype
        super().__init__(
            device="cpu",
            dtype=dtype,
            tp_size=1,
            dp_size=1,
            attn_backend=backend,
            model_config=StubAttributes(
                hidden_size=width,
                spec_hidden_size=width,
                vocab_size=vocab,
                dtype=dtype,
                hf_config=SimpleNamespace(architectures=["Probe"]),
            ),
            req_to_token_pool=table,
            token_to_kv_pool=pool,
            graph_shared_output=StubAttributes(get_logits_buffer=lambda size, rows: torch.zeros((rows, size))),
            kv_index_translator=StubAttributes(),
            model_is_mrope=False,
            canary_manager=None,
        )
        self.server_args: Any = None
        self.spec_algorithm: Any = None
        self.draft_extend_attn_backend = backend
        self.model = StubAttributes(forward=lambda ids, positions, batch, *_, **__: self._run(batch))
        self.table = slots
        self.given: dict[str, Tensor] = {}
        self.logits: Tensor
        self._forward, self._logits, self._vocab, self._target_ids = forward, logits, vocab, target_ids
        self._addressed = Addressed(context.cache, context.target.vocab)

    def forward(self, batch: Any, *args: Any, **options: Any) -> StubAttributes:
        """Run the rows of every request; each sees what is before it, and itself."""
        return StubAttributes(logits_output=self._run(batch))

    def _run(self, batch: Any) -> StubAttributes:
        lengths = torch.as_tensor(batch.extend_seq_lens, dtype=torch.int64)
        count, hidden = len(batch.input_ids), batch.spec_info.hidden_states
        req_rows = _fitted(batch.req_pool_indices.repeat_interleave(lengths), count)
        values = (batch.input_ids, batch.positions, batch.out_cache_loc, hidden, req_rows)
        self.given = {name: value[:count].clone() for name, value in zip(VALUES, values, strict=True)}
        metadata = self._addressed.metadata(req_rows, batch.positions, batch.out_cache_loc, batch.positions)
        states, handed = self._forward(self._addressed.ids(batch.input_ids), hidden, metadata)
        self.logits = self._logits(states)
        place = torch.empty(count, dtype=torch.int64)
        kernels.greedy_choice(place, self.logits)
        if self._target_ids is not None:
            place = self._target_ids[place]
        chosen = decided(torch.zeros((count, self._vocab)), place)
        rows = self._rows(batch, lengths, count)
        last = batch.capture_hidden_mode is not None and batch.capture_hidden_mode.name == "LAST"
        return StubAttributes(next_token_logits=chosen[rows], hidden_states=handed[rows] if last else handed.clone())

    @staticmethod
    def _rows(batch: Any, lengths: Tensor, count: int) -> Tensor:
        """Return the rows that have logits, as the release's logits processor has them."""
        if batch.forward_mode.name in _LAST_ROWS:
            return (lengths.cumsum(0) - 1).clamp(max=count - 1)
        wanted = getattr(batch.spec_info, "select_index", None)
        return wanted if isinstance(wanted, Tensor) else torch.arange(count)


def _fitted(values: Tensor, count: int) -> Tensor:
    """Return as many values; what is missing is 0."""
    return torch.cat([values[:count], values.new_zeros(max(0, count - len(values)))])


class WorkerBatch(NoneAttributes):
    """A batch as a scheduler has it; attributes that were not set are None."""

    def get_model_worker_batch(self, **options: Any) -> WorkerBatch:
        """Return the batch itself, as the older workers take it."""
        self.capture_hidden_mode = self.spec_info.capture_hidden_mode
        self.extend_seq_lens, self.extend_prefix_lens = self.extend_lens, self.prefix_lens
        return self


def prompt_batch(mode: Any, chunks: PromptChunks, rows: Sequence[int]) -> WorkerBatch:
    """Return the batch of some rows of a prefill; at most one of them has more of its prompt to come."""
    batch = [chunks.rows[row] for row in rows]
    taken = token_places(chunks.rows, rows)
    lengths, starts = [len(row.ids) for row in batch], [row.start for row in batch]
    ends = torch.tensor([row.end for row in batch])
    requests = [
        NoneAttributes(rid=str(row.request.id), full_untruncated_fill_ids=list(row.request.prompt), extend_end=row.end)
        for row in batch
    ]
    unfinished = next((place for place, row in enumerate(batch) if row.tail >= 0), None)
    return WorkerBatch(
        forward_mode=mode,
        input_ids=torch.tensor([token for row in batch for token in row.ids]),
        req_pool_indices=torch.tensor([row.req_row for row in batch]),
        seq_lens=ends,
        seq_lens_cpu=ends.clone(),
        seq_lens_sum=int(ends.sum()),
        orig_seq_lens=ends.to(torch.int32),
        out_cache_loc=chunks.metadata.slot_mapping[taken],
        extend_lens=lengths,
        extend_seq_lens=lengths,
        prefix_lens=starts,
        extend_prefix_lens=starts,
        extend_num_tokens=sum(lengths),
        extend_logprob_start_lens=starts,
        chunked_req=None if unfinished is None else requests[unfinished],
        chunked_req_next_prompt_token=None if unfinished is None else batch[unfinished].tail,
        reqs=requests,
        device="cpu",
        return_logprob=False,
        is_extend_in_batch=True,
        has_grammar=False,
        model_config=StubAttributes(),
    )


def token_places(rows: Sequence[PrefillRow], wanted: Sequence[int]) -> Tensor:
    """Return where the tokens of the wanted rows are among the tokens of all rows."""
    starts = [sum(len(row.ids) for row in rows[:place]) for place in range(len(rows))]
    return torch.tensor([starts[place] + i for place in wanted for i in range(len(rows[place].ids))])


def one_unfinished(rows: Sequence[PrefillRow]) -> Iterator[list[int]]:
    """Yield the places of rows that a scheduler puts into one batch: it cuts one prompt at a time."""
    whole = [place for place, row in enumerate(rows) if row.tail < 0]
    cut = [place for place, row in enumerate(rows) if row.tail >= 0]
    if whole or cut:
        yield sorted([*whole, *cut[:1]])
    for place in cut[1:]:
        yield [place]


class TokenTable:
    """The slots of all positions of every request row, as a table that a worker reads: 0 where there is none."""

    def __init__(self, context: DraftContext) -> None:
        self._context = context
        rows, pages = context.page_table.shape
        self.slots = torch.zeros((rows, pages * context.config.page_size), dtype=torch.int32)

    def fill(self) -> None:
        """Take the pages as they are now."""
        page = self._context.config.page_size
        slots = self._context.page_table.unsqueeze(2) * page + torch.arange(page)
        self.slots.copy_(slots.masked_fill(self._context.page_table.unsqueeze(2) <= 0, 0).flatten(1))
