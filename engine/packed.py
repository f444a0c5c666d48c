"""Packed launches of the target: rows of any lengths one behind another, chunks of prompts and verify rows.

`T` packed tokens that are live, `B` rows of the launch, one for each token (a captured number, or T when none holds
them), `R` rows that verify, `W` verify width, `D` hidden width. Source: vLLM's packed batches, docs/semantics/mixed.md,
"Mixed steps".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from msgspec.structs import replace
from torch import Tensor

from draftproof import kernels
from draftproof.engine.config import EngineConfig
from draftproof.engine.drafts.base import Needs, Shapes
from draftproof.engine.graphs.backend import Backend
from draftproof.engine.models.base import AttentionMetadata, MixedStates, PrefillStates, VerifyStates
from draftproof.engine.probes import Probes
from draftproof.engine.ranks import Solo
from draftproof.engine.runner import GraphRunner, Outputs, Views
from draftproof.engine.runtime import padded_buffers
from draftproof.engine.stages import DecodeRow, Launch, PrefillRow, Proposal
from draftproof.engine.step import ChunkOutputs
from draftproof.engine.tree import branched
from draftproof.engine.verify import Verifier


@dataclass(frozen=True)
class RowTokens:
    """Tokens `ids` of a request from position `start` on: of a row that `verifies`, or of a chunk of a prompt.

    Of a tree `parents` are the rows above its drafts.
    """

    request: int
    verifies: bool
    req_row: int
    start: int
    ids: tuple[int, ...]
    parents: tuple[int, ...] = ()

    @property
    def above(self) -> tuple[int, ...]:
        """Return the row above each token in a tree, -1 without one."""
        return (*(-1,) * (len(self.ids) - len(self.parents)), *self.parents)


@dataclass(frozen=True)
class Packing:
    """The rows of a launch, in its order: `num_tokens` of each row, and `offsets` of their first tokens."""

    rows: tuple[RowTokens, ...]

    @property
    def live(self) -> tuple[RowTokens, ...]:
        """Return the rows that have tokens: there are at most as many as tokens."""
        return tuple(row for row in self.rows if row.ids)

    @property
    def num_tokens(self) -> tuple[int, ...]:
        return tuple(len(row.ids) for row in self.rows)

    @property
    def offsets(self) -> tuple[int, ...]:
        return (0, *accumulate(self.num_tokens))[:-1]

    @property
    def total(self) -> int:
        """All live tokens."""
        return sum(self.num_tokens)

    @property
    def above(self) -> list[int]:
        """Return the place of the token above each one in a tree, -1 where it goes on from its context alone."""
        rows = zip(self.rows, self.offsets, strict=True)
        return [-1 if at < 0 else first + at for row, first in rows for at in row.above]

    @property
    def contexts(self) -> list[int]:
        """Return from how many entries of its request each token goes on: in a tree all from the same."""
        return [row.start + (0 if row.verifies else at) for row in self.rows for at in range(len(row.ids))]

    def places(self, *, verifies: bool) -> tuple[range, ...]:
        """Return the places of the tokens of each row of a kind."""
        spans = zip(self.rows, self.offsets, strict=True)
        return tuple(range(at, at + len(row.ids)) for row, at in spans if row.verifies == verifies)


def packing(chunks: Sequence[PrefillRow], rounds: Sequence[DecodeRow], proposal: Proposal, row_seed: int) -> Packing:
    """Return the rows of a step: those that verify before chunks, or behind them if the row seed is odd."""
    drafts = proposal.draft_tokens.tolist()
    parents = [()] * len(rounds) if proposal.parents is None else proposal.parents.tolist()
    verify = list[RowTokens]()
    for row, tokens, above in zip(rounds, drafts, parents, strict=True):
        count = max(0, row.num_drafts)
        ids = () if row.num_drafts < 0 else (row.pending_token, *tokens[:count])
        verify.append(RowTokens(row.request.id, True, row.req_row, row.seq_len, ids, tuple(above[:count])))
    prefill = [RowTokens(row.request.id, False, row.req_row, row.start, row.ids) for row in chunks]
    return Packing(tuple(prefill + verify if row_seed % 2 else verify + prefill))


@dataclass(frozen=True)
class PackedOutputs:
    """What a packed launch left: `hidden_states` [T, D], what the draft takes of them, and where its tokens ran."""

    hidden_states: Tensor
    picked: Tensor | None
    metadata: AttentionMetadata

    def at(self, places: Tensor) -> PackedOutputs:
        """Return the outputs of the tokens at these places."""
        of = self.metadata
        ran = AttentionMetadata(of.req_rows[places], of.positions[places], of.slot_mapping[places])
        picked = None if self.picked is None else self.picked[places]
        return PackedOutputs(self.hidden_states[places], picked, ran)


class PackedTarget:
    """Runs the target over packed rows; the function that graphs of token buckets are made of."""

    def __init__(self, verifier: Verifier, needs: Needs, config: EngineConfig, probes: Probes, group: Solo) -> None:
        self._verifier, self._needs, self._config, self._probes = verifier, needs, config, probes
        self._device = verifier.cache.page_table.device
        inputs: Shapes = dict.fromkeys(("ids", "live_tokens", "req_rows", "positions", "num_tokens"), ((), torch.int64))
        if config.tree:
            inputs |= dict.fromkeys(("above", "contexts"), ((), torch.int64))
        self._buffers = padded_buffers(inputs, config.most_tokens, self._device)
        self._runner = GraphRunner("mixed", 0, self.forward, self._buffers, config.token_sizes, probes, 0, group)

    def capture_with(self, backend: Backend, declared: Sequence[Tensor]) -> None:
        """See GraphRunner."""
        self._runner.capture_with(backend, declared)

    def warm_up(self) -> None:
        """Capture every bucket, the largest first."""
        for size in sorted(self._config.token_sizes, reverse=True):
            self._runner.prepare(size)

    def dtypes(self) -> tuple[tuple[str, torch.dtype], ...]:
        """Return the dtypes of its buffers, by name."""
        return self._buffers.dtypes()

    def forward(self, views: Views, states: PrefillStates | MixedStates | None = None) -> Outputs:
        """Return hidden_states [B, D], what the draft takes of them if that is another, and where each token ran."""
        metadata = replace(self._metadata(views), states=states)
        layer_outputs = self._needs.layer_outputs()
        target, cache = self._verifier.target, self._verifier.cache
        hidden_states = target.forward(views["ids"], metadata, cache, layer_outputs)
        self._tap(views, metadata)
        ran = {"req_rows": metadata.req_rows, "positions": metadata.positions, "slots": metadata.slot_mapping}
        if layer_outputs is not None:
            ran["picked"] = layer_outputs.concatenated()
        return {"hidden_states": hidden_states, **ran}

    def states(
        self, packed: Packing, prefill: PrefillStates, proposal: Proposal, inputs: Mapping[str, Tensor]
    ) -> PrefillStates | MixedStates:
        """Return which states the tokens belong to: of chunks alone these are already in order."""
        spans = packed.places(verifies=True)
        if not spans:
            return prefill
        verify = VerifyStates(inputs["state_slots"], proposal.draft_tokens.shape[1] + 1, proposal.parents)
        live = [row * verify.width + column for row, span in enumerate(spans) for column in range(len(span))]
        own = [place for span in packed.places(verifies=False) for place in span]
        tokens = self._tensor(columns(spans, verify.width))
        return MixedStates(verify, tokens, self._tensor(live), prefill, self._tensor(own))

    def _metadata(self, views: Views) -> AttentionMetadata:
        """Return where each token is: in its row, or nowhere behind the last token."""
        counts, config = views["num_tokens"], self._config
        ends, tokens = counts.cumsum(0), torch.arange(counts.shape[0], device=counts.device)
        rows = torch.searchsorted(ends, tokens, right=True).clamp(max=counts.shape[0] - 1)
        live = views["live_tokens"] > 0
        req_rows = torch.where(live, views["req_rows"][rows], 0)
        starts = views["positions"][rows] + tokens - (ends - counts)[rows]
        positions, slots = torch.empty_like(tokens)[:, None], torch.empty_like(tokens)[:, None]
        cache, columns = self._verifier.cache, torch.where(live, 0, -1)
        table, page_size = cache.page_table, cache.page_size
        kernels.assign_slots(positions, slots, table, req_rows, starts, columns, page_size, config.max_len)
        metadata = AttentionMetadata(req_rows, positions[:, 0], slots[:, 0])
        if config.tree is None:
            return metadata
        known, contexts = views["above"][None], views["contexts"][None]
        return branched(metadata, known, contexts, table, page_size, config.most_steps)

    def _tap(self, views: Views, metadata: AttentionMetadata) -> None:
        taps = self._probes.taps
        taps.record("packed.num_tokens", views["num_tokens"])
        taps.record("packed.positions", metadata.positions)
        taps.record("packed.slots", metadata.slot_mapping)
        taps.record("packed.rows", metadata.req_rows)

    def fill(self, packed: Packing, num_tokens: int) -> None:
        """Capture the bucket of the rows if that is still to be done, and fill its buffers, padding included.

        Of ranks it holds the `num_tokens` of the one with the most.
        """
        self._runner.prepare(num_tokens)
        size = self._runner.size_for(num_tokens)
        ids = self._tensor([token for row in packed.rows for token in row.ids])
        by_token = {"ids": ids, "live_tokens": torch.ones_like(ids)}
        if self._config.tree:
            by_token |= {"above": self._tensor(packed.above), "contexts": self._tensor(packed.contexts)}
        self._buffers.fill(by_token, packed.total, size)
        by_row = {
            "req_rows": self._tensor([row.req_row for row in packed.live]),
            "positions": self._tensor([row.start for row in packed.live]),
            "num_tokens": self._tensor([len(row.ids) for row in packed.live]),
        }
        self._buffers.fill(by_row, len(packed.live), size)

    def launch(
        self, kind: str, packed: Packing, num_tokens: int, width: int, states: PrefillStates | MixedStates | None
    ) -> tuple[PackedOutputs, Launch]:
        """Run over the rows that were filled in. Observers are not told of the launch yet: its choices belong to it.

        `width` is the width of the rows that verify, 0 without any. With `states` it runs eagerly: where these are
        depends on the rows.
        """
        total, rows = packed.total, len(packed.rows)
        if states is None:
            out, launch = self._runner.run(total, num_tokens)
        else:
            out, launch = self.forward(self._buffers.view(total), states), Launch(kind, 0, rows, 0)
        told = tuple((row.request, row.verifies) for row in packed.live)
        launch = replace(launch, kind=kind, rows=rows, width=width, tokens=total, packed=told)
        ran = AttentionMetadata(out["req_rows"], out["positions"], out["slots"], states)
        hidden_states = out["hidden_states"]
        last = self._needs.pick(hidden_states, None) if "picked" not in out else out["picked"]
        return PackedOutputs(hidden_states, last, ran), launch

    def after_chunks(self, out: PackedOutputs, packed: Packing, inputs: Mapping[str, Tensor]) -> ChunkOutputs:
        """Return what is of the chunks alone, with the token after each."""
        places = packed.places(verifies=False)
        own = out.at(self._tensor([place for span in places for place in span]))
        last = self._tensor([*accumulate(map(len, places))]) - 1
        target_tokens, weights = self._verifier.after_prompts(own.hidden_states, own.metadata, last, inputs)
        return ChunkOutputs(own.metadata, own.picked, target_tokens, weights)

    def after_rounds(
        self, out: PackedOutputs, packed: Packing, proposal: Proposal, inputs: Mapping[str, Tensor]
    ) -> Outputs:
        """Return the outputs of a verify of the rows that verify, each W wide: behind its last token that again."""
        width = proposal.draft_tokens.shape[1] + 1
        own = out.at(self._tensor(columns(packed.places(verifies=True), width)))
        ids = torch.cat([inputs["pending_tokens"].unsqueeze(1), proposal.draft_tokens], dim=1)
        outputs = self._verifier.decide(own.hidden_states, ids, own.metadata, {**inputs, **self._drafts(proposal)})
        if own.picked is not None:
            outputs["hidden_states"] = own.picked.view(*ids.shape, own.picked.shape[-1])
        return self._verifier.compacted(replace(own.metadata, states=out.metadata.states), outputs)

    def _drafts(self, proposal: Proposal) -> dict[str, Tensor]:
        drafts = {"draft_tokens": proposal.draft_tokens, "num_drafts": self._tensor(proposal.num_drafts)}
        others = {"draft_weights": proposal.weights, "excluded": proposal.excluded, "parents": proposal.parents}
        return drafts | {name: value for name, value in others.items() if value is not None}

    def _tensor(self, values: Sequence[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self._device)


def columns(spans: Sequence[range], width: int) -> list[int]:
    """Return the places of each row's tokens as columns of one width: behind its last token that again.

    A row without a token has the first place of the launch, for nothing.
    """
    return [span[min(column, len(span) - 1)] if span else 0 for span in spans for column in range(width)]
