"""What an engine transfers to another, and installs of what was transferred to it (S-DISAGG).

Sources: as of `KvTransfer`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from msgspec.structs import replace
from torch import Tensor

from draftproof.engine.cache import PagedCache
from draftproof.engine.config import EngineConfig
from draftproof.engine.drafts.base import Draft
from draftproof.engine.kv_transfer import KvTransfer, slots_of
from draftproof.engine.probes import Probes
from draftproof.engine.scheduler import Scheduler
from draftproof.engine.stages import Commit, Launch, PrefillRow
from draftproof.engine.states.base import LogicalStates, StateCache


class Exchange:
    """Packs requests that leave an engine, and installs those that come, in slots that the engine has given them."""

    def __init__(
        self,
        cache: PagedCache,
        draft: Draft,
        states: StateCache | None,
        scheduler: Scheduler,
        config: EngineConfig,
        probes: Probes,
        device: torch.device,
    ) -> None:
        self.cache, self.draft, self.states = cache, draft, states
        self.scheduler, self.config, self.probes, self.device = scheduler, config, probes, device

    def pack(self, commits: list[Commit], arrival: int) -> tuple[KvTransfer, ...]:
        """Return copies of all that requests need to go on elsewhere, from step `arrival` on."""
        self.probes.before_launch("pack")
        state_slots = self._tensor([commit.state_slot for commit in commits])
        states = self.states.logical_states(state_slots) if self.states else None
        packed = tuple(
            self._packed_request(commit, arrival, (states[0][:, [place]], states[1][:, [place]]) if states else None)
            for place, commit in enumerate(commits)
        )
        self.probes.on_launch(Launch("pack", 0, len(commits), 0))
        return packed

    def _packed_request(self, commit: Commit, arrival: int, states: LogicalStates | None) -> KvTransfer:
        slots, own, length = self._slots(commit.req_row, commit.seq_len), self.draft.cache, commit.seq_len
        has_checkpoint = 0 < self.config.checkpoint <= length
        sequence = self.scheduler.find(commit.request)
        return KvTransfer(
            replace(sequence.request, arrival=arrival),
            length,
            tuple(sequence.emitted),
            sequence.rounds,
            sequence.waited.order,
            self.cache.copies(slots),
            own.copies(slots) if own else None,
            self.draft.rows_of(commit.req_row),
            states,
            self.states.checkpoints.of(self._tensor([commit.state_slot])) if self.states and has_checkpoint else None,
        )

    def _slots(self, req_row: int, length: int) -> Tensor:
        """Return the slots of the first positions of a request row, without those that no window reaches."""
        pages, size = self.scheduler.page_table.pages[req_row], self.config.page_size
        return slots_of(pages, size, length, self.device)[self.scheduler.columns_behind(length) * size :]

    def install(self, rows: tuple[PrefillRow, ...]) -> None:
        """Copy transferred requests into the pages, slots and rows that this engine has given them."""
        handed = [self.scheduler.find(row.request.id).take_transfer() for row in rows]
        self.probes.before_launch("install")
        for row, transfer in zip(rows, handed, strict=True):
            slots = self._slots(row.req_row, transfer.seq_len)
            self.cache.install(slots, transfer.entries)
            if self.draft.cache and transfer.draft_entries:
                self.draft.cache.install(slots, transfer.draft_entries)
            if self.states and transfer.states:
                self.states.install(self._tensor([row.state_slot]), transfer.states, transfer.checkpoint)
        self.probes.on_launch(Launch("install", 0, len(rows), 0))
        for row, transfer in zip(rows, handed, strict=True):
            self.draft.receive(row, transfer.draft_rows)
        self.probes.on_install(rows)

    def _tensor(self, values: Sequence[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self.device)
