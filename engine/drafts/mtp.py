"""Chained multi-token prediction: L layers with weights and entries of their own, one for each proposal.

Entry i of layer j takes token i + 1 + j and, with the chain on, what layer j-1 handed on at entry i. The last j entries
of layer j are made with proposals; they are computed again once the true tokens are known, so every extend begins L - 1
entries before its round. All proposals of a round come from the extend of the round before.
`B` rows of a launch, `R` requests, `L` layers, `W` verify width, `D` hidden width. An extend has L - 1 + W entries a
row.
Sources: DeepSeek-V3 (2024); sgl-project/sglang#22041; docs/semantics/mtp.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor

from draftproof.engine.config import EngineConfig
from draftproof.engine.drafts.base import (
    Accepted,
    DraftContext,
    ModelDraft,
    Needs,
    PromptChunks,
    Shapes,
    metadata_of_rows,
)
from draftproof.engine.models.base import AttentionMetadata, Chain, Target
from draftproof.engine.models.probe import ProbeParts
from draftproof.engine.models.probe_entries import ProbeChain
from draftproof.engine.runner import Outputs, Views
from draftproof.engine.stages import DecodeRow, Launch, PrefillRow, Proposal


class MtpDraft(ModelDraft[Chain]):
    """A `Draft`: one graph for each layer, over buffers in which each finds what the one before it left."""

    token_memory = ("next_draft_tokens", "lookback_ids")

    def __init__(self, model: Chain, context: DraftContext) -> None:
        super().__init__(model, context)
        self._layers = model.cache_shape.layers
        self.lookback = self._layers - 1
        self.extenders = tuple(partial(self.extend, layer) for layer in range(self._layers))

    @classmethod
    def needed(cls, model: Chain) -> Needs:
        """Return that it takes the last hidden states, after or before the target's final norm."""
        return Needs("before_norm" if model.takes == "before_norm" else "after_norm")

    @classmethod
    def memory(cls, model: Chain, target: Target, config: EngineConfig) -> Shapes:
        """Return next_draft_tokens [L] of the next round; ids [L-1] and hidden states [L-1, D] of the last entries."""
        layers = model.cache_shape.layers
        shapes: Shapes = {"next_draft_tokens": ((config.num_rows, layers), torch.int64)}
        if layers > 1:
            shapes["lookback_ids"] = ((config.num_rows, layers - 1), torch.int64)
            shapes["lookback_hidden_states"] = ((config.num_rows, layers - 1, target.width), target.hidden_dtype)
        return shapes

    @classmethod
    def lookahead(cls, model: Chain) -> int:
        """Return L: an entry of the last layer takes the token L behind it."""
        return model.cache_shape.layers

    def propose(self, batch: tuple[DecodeRow, ...], req_rows: Tensor, steps: int) -> Proposal:
        """Return the first proposals of those that the last extend made."""
        draft_tokens = self.context.arena["next_draft_tokens"][req_rows, :steps].clone()
        return Proposal(draft_tokens, tuple(row.num_drafts for row in batch))

    def next_hidden_states(self, req_row: int, seq_len: int) -> Tensor | None:
        """Return the target's of the entries that are computed again."""
        count = min(self.lookback, seq_len)
        return self.context.arena["lookback_hidden_states"][req_row, -count:] if count else None

    def extend_inputs(self, width: int) -> Shapes:
        """Return what was verified, and the inputs of a layer, which the one before it fills.

        These are positions of first and columns of last entries [B], ids and hidden_states [B, L-1+W, ..].
        """
        target, entries = self.context.target, self.lookback + width
        names = ("req_rows", "seq_lens", "correct_len", "positions", "last")
        return {
            **dict.fromkeys(names, ((), torch.int64)),
            "target_tokens": ((width,), torch.int64),
            "target_hidden_states": ((width, target.width), target.hidden_dtype),
            "ids": ((entries,), torch.int64),
            "hidden_states": ((entries, target.width), target.hidden_dtype),
        }

    def extend_values(self, accepted: Accepted) -> Mapping[str, Tensor]:
        """Return what was verified."""
        assert accepted.hidden_states is not None
        return {
            "req_rows": accepted.req_rows,
            "seq_lens": accepted.seq_lens,
            "correct_len": accepted.correct_len,
            "target_tokens": accepted.target_tokens,
            "target_hidden_states": accepted.hidden_states,
        }

    def _begin(self, views: Views) -> Outputs:
        """Fill the inputs of layer 0: entries that are computed again, then the round's own, without a gap.

        A request of fewer tokens has fewer entries to compute again. Returns ids [B, L-1] and hidden states [B, L-1, D]
        of the last entries, from which the next round begins.
        """
        ids, hidden_states = self._window(views)
        missing = (self.lookback - views["seq_lens"]).clamp(min=0)
        columns = torch.arange(ids.shape[1], device=ids.device) + missing[:, None]
        columns = columns.clamp(max=ids.shape[1] - 1)
        views["positions"].copy_((views["seq_lens"] - self.lookback).clamp(min=0))
        views["last"].copy_(views["correct_len"] + self.lookback - missing)
        views["ids"].copy_(ids.gather(1, columns))
        views["hidden_states"].copy_(_rows(hidden_states, columns))
        if not self.lookback:
            return {}
        columns = torch.arange(self.lookback, device=ids.device) + views["correct_len"][:, None] + 1
        return {"lookback_ids": ids.gather(1, columns), "lookback_hidden_states": _rows(hidden_states, columns)}

    def _window(self, views: Views) -> tuple[Tensor, Tensor]:
        """Return ids [B, L-1+W] and the target's hidden states [B, L-1+W, D] of entries n - L + 1, .."""
        ids, hidden_states = views["target_tokens"], views["target_hidden_states"]
        if not self.lookback:
            return ids, hidden_states
        arena, req_rows = self.context.arena, views["req_rows"]
        ids = torch.cat([arena["lookback_ids"].index_select(0, req_rows), ids], dim=1)
        before = arena["lookback_hidden_states"].index_select(0, req_rows)
        return ids, torch.cat([before, hidden_states], dim=1)

    def extend(self, layer: int, views: Views) -> Outputs:
        """Run one layer over all entries: return its proposal [B], and put the next layer's inputs into the buffers.

        The first returns what `_begin` does, too.
        """
        begun = {} if layer else self._begin(views)
        ids, hidden_states, last = views["ids"], views["hidden_states"], views["last"]
        size, entries = ids.shape
        metadata = metadata_of_rows(self.context, views["req_rows"], views["positions"], last, entries)
        packed = hidden_states.view(size * entries, -1)
        self.tapping.inputs("extend", metadata, ids.view(-1), packed, layer)
        states, handed = self.model.forward(layer, ids.view(-1), packed, metadata, self.cache)
        at = last.clamp(min=0).unsqueeze(1)
        token = self._choose("extend", _rows(states.view(size, entries, -1), at).squeeze(1), layer)
        if layer < self.lookback:
            shifted = ids.roll(-1, dims=1)
            ids.copy_(shifted.scatter_(1, at, token.unsqueeze(1)))
            if self.model.chain:
                hidden_states.copy_(handed.view(size, entries, -1))
        return {"token": token, **begun}

    def save_next_round(self, accepted: Accepted, outputs: tuple[Outputs, ...]) -> None:
        """Save the proposals, and ids and hidden states of the last L - 1 entries."""
        arena, req_rows = self.context.arena, accepted.req_rows
        arena["next_draft_tokens"][req_rows] = torch.stack([out["token"] for out in outputs], dim=1)
        if self.lookback:
            for name in ("lookback_ids", "lookback_hidden_states"):
                arena[name][req_rows] = outputs[0][name]

    def prefill(self, chunks: PromptChunks) -> None:
        """Write the entries of a chunk, and of the L - 1 tokens before it: they lacked the tokens behind them so far.

        Behind the last known token come the proposals of the layers before.
        """
        assert chunks.hidden_states is not None
        batch, next_tokens = chunks.rows, chunks.next_tokens
        known = [
            row.text if row.tail >= 0 else (*row.text, token) for row, token in zip(batch, next_tokens, strict=True)
        ]
        spans = self._spans(batch)
        metadata, hidden_states = self._placed(batch, spans), self._behind(batch, spans, chunks.hidden_states)
        ends = torch.tensor([len(span) for span in spans], dtype=torch.int64, device=self.context.device).cumsum(0) - 1
        guesses: list[list[int]] = [[] for _ in batch]
        taken, tokens = hidden_states, []
        self.context.probes.before_launch("extend_prompt")
        for layer in range(self._layers):
            ids = self._ids(spans, known, guesses, layer + 1)
            self.tapping.inputs("prompt", metadata, ids, taken, layer)
            states, handed = self.model.forward(layer, ids, taken, metadata, self.cache)
            tokens.append(self._choose("prompt", states.index_select(0, ends), layer))
            for guess, token in zip(guesses, tokens[-1].tolist(), strict=True):
                guess.append(token)
            taken = handed if self.model.chain else hidden_states
        self.context.probes.on_launch(Launch("extend_prompt", 0, len(batch), 0))
        self._save(batch, spans, known, hidden_states, torch.stack(tokens, dim=1))

    def prompt_entries(self, batch: tuple[PrefillRow, ...]) -> int:
        """Return how many entries `prefill` writes in each layer."""
        return sum(len(span) for span in self._spans(batch))

    def _spans(self, batch: tuple[PrefillRow, ...]) -> list[range]:
        return [range(max(row.cached, row.start - self.lookback), row.end) for row in batch]

    def _placed(self, batch: tuple[PrefillRow, ...], spans: list[range]) -> AttentionMetadata:
        req_rows = [row.req_row for row, span in zip(batch, spans, strict=True) for _ in span]
        positions = [position for span in spans for position in span]
        packed = torch.tensor([req_rows, positions], dtype=torch.int64, device=self.context.device)
        all_live = torch.zeros_like(packed[0])
        return metadata_of_rows(self.context, packed[0].contiguous(), packed[1].contiguous(), all_live)

    def _behind(self, batch: tuple[PrefillRow, ...], spans: list[range], hidden_states: Tensor) -> Tensor:
        """Return the target's hidden states of each chunk behind those saved of the entries before it."""
        parts, at = [hidden_states[:0]], 0
        for row, span in zip(batch, spans, strict=True):
            if before := row.start - span.start:
                parts.append(self.context.arena["lookback_hidden_states"][row.req_row, -before:])
            parts.append(hidden_states[at : at + len(row.ids)])
            at += len(row.ids)
        return torch.cat(parts)

    def _ids(self, spans: list[range], known: list[tuple[int, ...]], guesses: list[list[int]], ahead: int) -> Tensor:
        """Return the token `ahead` of each entry: a known one, or what a layer before proposed."""
        tokens = [
            of[position + ahead] if position + ahead < len(of) else guess[position + ahead - len(of)]
            for span, of, guess in zip(spans, known, guesses, strict=True)
            for position in span
        ]
        return torch.tensor(tokens, dtype=torch.int64, device=self.context.device)

    def _save(
        self,
        batch: tuple[PrefillRow, ...],
        spans: list[range],
        known: list[tuple[int, ...]],
        hidden_states: Tensor,
        proposals: Tensor,
    ) -> None:
        arena, at = self.context.arena, 0
        for row, span, of, proposed in zip(batch, spans, known, proposals, strict=True):
            at += len(span)
            arena["next_draft_tokens"][row.req_row] = proposed
            if count := min(self.lookback, len(span)):
                tokens = torch.tensor(of[row.end - count + 1 : row.end + 1], device=self.context.device)
                arena["lookback_ids"][row.req_row, -count:] = tokens
                arena["lookback_hidden_states"][row.req_row, -count:] = hidden_states[at - count : at]

    def _choose(self, name: str, states: Tensor, layer: int) -> Tensor:
        return self.tapping.choose(name, self.model.layer_logits(layer, states), layer, self.model.target_ids)


def _rows(values: Tensor, columns: Tensor) -> Tensor:
    """values [R, L-1+W, D] at columns [R, W] of each row: [R, W, D]."""
    return values.gather(1, columns.unsqueeze(2).expand(*columns.shape, values.shape[2]))


def probe(parts: ProbeParts) -> ProbeChain:
    """Return the model of a probe's draft."""
    return ProbeChain(parts)


ALGORITHM = MtpDraft
