"""Chained multi-token prediction: L layers with weights and entries of their own, one for each proposal.

Entry i of layer j takes token i + 1 + j and, with the chain on, what layer j-1 handed on at entry i. The last j entries
of layer j are made with proposals; they are computed again once the true tokens are known, so every extend begins L - 1
entries before its round. All proposals of a round come from the extend of the round before.
`B` rows of a launch, `L` layers, `W` verify width, `D` hidden width. An extend has L - 1 + W entries a row.
Sources: DeepSeek-V3 (2024); sgl-project/sglang#22041; docs/semantics.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch

from draftproof.engine.cache import PagedCache
from draftproof.engine.drafts.base import Accepted, Draft, Lent, Needs, Shapes, place, place_rows
from draftproof.engine.models.base import CacheShape, Chain, Target, Where
from draftproof.engine.models.probe import ProbeParts
from draftproof.engine.models.probe_mtp import ProbeChain
from draftproof.engine.runner import Outputs, Views
from draftproof.engine.stages import DecodeRow, Launch, PrefillRow


class MtpDraft(Draft[Chain]):
    """A `Draft`: one graph for each layer, over buffers in which each finds what the one before it left."""

    token_memory = ("proposals", "history")

    def __init__(self, model: Chain, lent: Lent) -> None:
        super().__init__(model, lent)
        assert lent.cache is not None
        self.cache: PagedCache = lent.cache
        self._layers = model.cache_shape.layers
        self.back = self._layers - 1
        self.extenders = tuple(partial(self.extend, layer) for layer in range(self._layers))

    @classmethod
    def needed(cls, model: Chain) -> Needs:
        """The state after the target's final norm."""
        return Needs("last")

    @classmethod
    def entries(cls, model: Chain) -> CacheShape:
        """Those of its layers."""
        return model.cache_shape

    @classmethod
    def memory(cls, model: Chain, target: Target, rows: int) -> Shapes:
        """The proposals [L] of the next round; tokens [L-1] and hidden states [L-1, D] of the last entries."""
        layers = model.cache_shape.layers
        shapes: Shapes = {"proposals": ((rows, layers), torch.int64)}
        if layers > 1:
            shapes["history"] = ((rows, layers - 1), torch.int64)
            shapes["recent"] = ((rows, layers - 1, target.width), target.hidden_dtype)
        return shapes

    def weights(self) -> tuple[torch.Tensor, ...]:
        """Those of all layers."""
        return self.model.weights()

    def propose(self, batch: tuple[DecodeRow, ...], steps: int) -> tuple[torch.Tensor, tuple[int, ...]]:
        """The first proposals of those that the last extend made."""
        rows = torch.tensor([row.row for row in batch], device=self.lent.device)
        drafts = self.lent.arena["proposals"][rows, :steps].clone()
        return drafts, tuple(row.drafts for row in batch)

    def extend_inputs(self, width: int) -> Shapes:
        """rows [B], first positions [B], column last [B] of the last entry, ids [B, L-1+W] and hidden [B, L-1+W, D]."""
        target, entries = self.lent.target, self.back + width
        ints: Shapes = dict.fromkeys(("rows", "positions", "last"), ((), torch.int64))
        ints["ids"] = ((entries,), torch.int64)
        return ints | {"hidden": ((entries, target.width), target.hidden_dtype)}

    def extend_values(self, accepted: Accepted) -> Mapping[str, torch.Tensor]:
        """What layer 0 takes: the entries of the round behind those that are computed again, without a gap.

        A request of fewer tokens has fewer entries to compute again.
        """
        ids, hidden = self._window(accepted)
        missing = (self.back - accepted.positions).clamp(min=0)
        columns = torch.arange(ids.shape[1], device=ids.device) + missing[:, None]
        columns = columns.clamp(max=ids.shape[1] - 1)
        return {
            "rows": accepted.rows,
            "positions": (accepted.positions - self.back).clamp(min=0),
            "last": accepted.correct + self.back - missing,
            "ids": ids.gather(1, columns),
            "hidden": _rows(hidden, columns),
        }

    def _window(self, accepted: Accepted) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens [R, L-1+W] and the target's states [R, L-1+W, D] of entries n - L + 1, .."""
        assert accepted.hidden is not None
        if not self.back:
            return accepted.choice, accepted.hidden
        arena, rows = self.lent.arena, accepted.rows
        ids = torch.cat([arena["history"][rows], accepted.choice], dim=1)
        return ids, torch.cat([arena["recent"][rows], accepted.hidden], dim=1)

    def extend(self, layer: int, views: Views) -> Outputs:
        """One layer over all entries: its proposal [B], and in the buffers what the next layer takes."""
        ids, hidden, last = views["ids"], views["hidden"], views["last"]
        size, entries = ids.shape
        where = place_rows(self.lent, views["rows"], views["positions"], last, entries)
        packed = hidden.view(size * entries, -1)
        self.tapping.inputs("extend", where, ids.view(-1), packed, layer)
        states, handed = self.model.forward(layer, ids.view(-1), packed, where, self.cache)
        at = last.clamp(min=0).unsqueeze(1)
        token = self._choose("extend", _rows(states.view(size, entries, -1), at).squeeze(1), layer)
        if layer < self.back:
            shifted = ids.roll(-1, dims=1)
            ids.copy_(shifted.scatter_(1, at, token.unsqueeze(1)))
            if self.model.chain:
                hidden.copy_(handed.view(size, entries, -1))
        return {"token": token}

    def keep(self, accepted: Accepted, outputs: tuple[Outputs, ...]) -> None:
        """The proposals, and the last L - 1 entries' tokens and hidden states."""
        arena, rows = self.lent.arena, accepted.rows
        arena["proposals"][rows] = torch.stack([out["token"] for out in outputs], dim=1)
        if self.back:
            ids, hidden = self._window(accepted)
            columns = torch.arange(self.back, device=ids.device) + accepted.correct[:, None] + 1
            arena["history"][rows] = ids.gather(1, columns)
            arena["recent"][rows] = _rows(hidden, columns)

    def prompt(
        self, batch: tuple[PrefillRow, ...], where: Where, hidden: torch.Tensor | None, chosen: Sequence[int]
    ) -> None:
        """The entries of a chunk, and of the L - 1 before it: only now are the tokens known that those embed.

        Behind the last known token come the proposals of the layers before.
        """
        assert hidden is not None
        starts = [max(0, row.start - self.back) for row in batch]
        known = [
            row.prompt if row.tail >= 0 else (*row.prompt, token) for row, token in zip(batch, chosen, strict=True)
        ]
        spans = [range(start, row.end) for start, row in zip(starts, batch, strict=True)]
        where, hidden = self._placed(batch, spans), self._behind(batch, spans, hidden)
        ends = torch.tensor([len(span) for span in spans], device=self.lent.device).cumsum(0) - 1
        guesses: list[list[int]] = [[] for _ in batch]
        taken, tokens = hidden, []
        self.lent.probes.before_launch("extend_prompt")
        for layer in range(self._layers):
            ids = self._ids(spans, known, guesses, layer + 1)
            self.tapping.inputs("prompt", where, ids, taken, layer)
            states, handed = self.model.forward(layer, ids, taken, where, self.cache)
            tokens.append(self._choose("prompt", states.index_select(0, ends), layer))
            for guess, token in zip(guesses, tokens[-1].tolist(), strict=True):
                guess.append(token)
            taken = handed if self.model.chain else hidden
        self.lent.probes.launched(Launch("extend_prompt", 0, len(batch), 0))
        self._remember(batch, spans, known, hidden, torch.stack(tokens, dim=1))

    def _placed(self, batch: tuple[PrefillRow, ...], spans: list[range]) -> Where:
        rows = [row.row for row, span in zip(batch, spans, strict=True) for _ in span]
        positions = [position for span in spans for position in span]
        packed = torch.tensor([rows, positions], device=self.lent.device)
        return place(self.lent, packed[0].contiguous(), packed[1].contiguous(), torch.zeros_like(packed[0]))

    def _behind(self, batch: tuple[PrefillRow, ...], spans: list[range], hidden: torch.Tensor) -> torch.Tensor:
        """The target's states of a chunk behind those remembered of the entries before it."""
        parts, at = [], 0
        for row, span in zip(batch, spans, strict=True):
            if before := row.start - span.start:
                parts.append(self.lent.arena["recent"][row.row, -before:])
            parts.append(hidden[at : at + len(row.ids)])
            at += len(row.ids)
        return torch.cat(parts)

    def _ids(
        self, spans: list[range], known: list[tuple[int, ...]], guesses: list[list[int]], ahead: int
    ) -> torch.Tensor:
        """The tokens `ahead` of each entry: known ones, then what the layers before proposed."""
        tokens = [
            of[position + ahead] if position + ahead < len(of) else guess[position + ahead - len(of)]
            for span, of, guess in zip(spans, known, guesses, strict=True)
            for position in span
        ]
        return torch.tensor(tokens, dtype=torch.int64, device=self.lent.device)

    def _remember(
        self,
        batch: tuple[PrefillRow, ...],
        spans: list[range],
        known: list[tuple[int, ...]],
        hidden: torch.Tensor,
        proposals: torch.Tensor,
    ) -> None:
        arena, at = self.lent.arena, 0
        for row, span, of, proposed in zip(batch, spans, known, proposals, strict=True):
            at += len(span)
            arena["proposals"][row.row] = proposed
            if kept := min(self.back, len(span)):
                tokens = torch.tensor(of[row.end - kept + 1 : row.end + 1], device=self.lent.device)
                arena["history"][row.row, -kept:] = tokens
                arena["recent"][row.row, -kept:] = hidden[at - kept : at]

    def _choose(self, name: str, states: torch.Tensor, layer: int) -> torch.Tensor:
        return self.tapping.choose(name, self.model.logits(states), layer)


def _rows(values: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """values [R, L-1+W, D] at columns [R, W] of each row: [R, W, D]."""
    return values.gather(1, columns.unsqueeze(2).expand(*columns.shape, values.shape[2]))


def probe(spec: Any, parts: ProbeParts) -> ProbeChain:
    """Return the model of a probe's draft, built from its specification."""
    return ProbeChain(parts.weights, parts.shape, parts.logit_bits, chain=spec.chain, handed=spec.handed)


ALGORITHM = MtpDraft
