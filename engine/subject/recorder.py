"""From what the probes see to observations: who a row belongs to is known from the plan, never from a value.

`R` live rows, `W` verify width, `T` packed prompt tokens.
"""

from __future__ import annotations

from typing import Any

import torch

from draftproof.engine.engine import Engine
from draftproof.engine.probes import Probes
from draftproof.engine.stages import Acceptance, Commit, DecodeRow, Launch, PrefillRow, Proposal, StepPlan
from draftproof.engine.subject.memory import MemoryWatch
from draftproof.engine.subject.taps import RecordingTaps, Tapped
from draftproof.properties.values.script import Script
from draftproof.properties.values.trace import Datum, Key, Observation

KINDS = {"prefill": 0, "draft": 1, "verify": 2, "extend": 3, "extend_prompt": 4, "capture": 5}


def vectors(tensor: torch.Tensor) -> list[Datum]:
    """Rows of a [R, ..] tensor as trace vectors: bytes of integers, or float64 arrays."""
    flat = tensor.detach().reshape(tensor.shape[0], -1).cpu()
    if flat.dtype == torch.int64:
        return [row.tobytes() for row in flat.numpy()]
    array = flat.to(torch.float64).numpy().copy()
    array.setflags(write=False)
    return list(array)


class Recorder(Probes):
    """Collects the trace of one run and steers it by the script."""

    def __init__(self, script: Script, taps: RecordingTaps | None) -> None:
        super().__init__(taps)
        self.observations: list[Observation] = []
        self._recording, self._script = taps, script
        self._plan = StepPlan(-1, (), ())
        self._launches = 0
        self._extend_pending: Tapped = {}
        self._engine: Engine
        self._memory: MemoryWatch

    def attach(self, engine: Engine, memory: MemoryWatch) -> None:
        self._engine, self._memory = engine, memory

    def _add(self, channel: str, key: Key, value: Datum) -> None:
        self.observations.append(Observation(channel, key, value))

    def planned(self, plan: StepPlan) -> None:
        self._plan, self._launches = plan, 0
        for chunk in plan.prefill:
            seen = -(-chunk.start // self._engine.config.page_size)
            self._table(chunk.row, Key(chunk.request, 0), seen)
        for row in plan.decode:
            self._table(row.row, Key(row.request, row.round), 0)

    def _table(self, row: int, key: Key, seen: int) -> None:
        """The request's pages, but for the first `seen` columns, which an earlier chunk of the round reported."""
        for column, page in enumerate(self._engine.scheduler.table.pages[row]):
            if column >= seen:
                self._add("round.table", key._replace(row=column), page)

    def before_launch(self) -> None:
        self._memory.before()

    def launched(self, launch: Launch) -> None:
        key = Key(-1, self._plan.step, step=self._launches)
        self._add("graph.replay", key, (KINDS[launch.kind], launch.size, launch.rows, launch.replays))
        self._add("commit.written", key, tuple(part for place in self._memory.changed() for part in place))
        self._launches += 1
        tapped = self._recording.take() if self._recording else {}
        if launch.kind == "capture":
            return
        if launch.kind == "prefill":
            self._prefill_rows(self._plan.prefill)
        elif launch.kind == "extend_prompt":
            self._prompt_taps(self._plan.prefill, tapped)
        elif launch.kind == "draft":
            self._draft_taps(self._plan.decode, tapped)
        elif launch.kind == "verify":
            self._decode_rows(self._plan.decode, launch.size)
            self._verify_taps(self._plan.decode, tapped)
        else:
            self._extend_pending = tapped

    def steer(self, batch: tuple[DecodeRow, ...], proposal: Proposal) -> Proposal:
        drafts = proposal.drafts.clone()
        for index, row in enumerate(batch):
            rounds = self._script.requests[row.request].rounds
            forced = rounds[row.round - 1].forced if row.round <= len(rounds) else None
            if forced:
                drafts[index, : len(forced)] = torch.tensor(forced, dtype=torch.int64, device=drafts.device)
        return Proposal(drafts)

    def accepted(self, batch: tuple[DecodeRow, ...], acceptance: Acceptance) -> None:
        for row, correct, tokens in zip(batch, acceptance.correct_len, acceptance.tokens, strict=True):
            key = Key(row.request, row.round)
            self._add("accept.correct_len", key, correct)
            self._add("accept.index", key, tuple(range(correct + 1)))
            self._add("accept.bonus", key, tokens[-1])

    def committed(self, commits: tuple[Commit, ...]) -> None:
        for commit in commits:
            key = Key(commit.request, commit.round)
            self._add("accept.emitted", key, commit.emitted)
            self._add("commit.length", key, commit.context)
            self._entries("commit.kv", self._engine.verifier.cache, commit, commit.before, commit.context)

    def extended(self, commits: tuple[Commit, ...]) -> None:
        for commit in commits:
            if self._recording:
                self._entries("extend.kv", self._engine.draft.cache, commit, commit.before, commit.context)
        if self._recording and commits and commits[0].round:
            self._extend_taps(commits, self._extend_pending)

    def released(self, row: int, pages: tuple[int, ...]) -> None:
        self._memory.poison_pages(pages)
        self._memory.poison_row(row)

    def stepped(self, plan: StepPlan) -> None:
        self.pool(plan.step)

    def pool(self, step: int) -> None:
        scheduler = self._engine.scheduler
        owner = {sequence.row: sequence.request.id for sequence in scheduler.live}
        owned = sorted((page, owner.get(row, -1)) for row, pages in enumerate(scheduler.table.pages) for page in pages)
        flat = tuple(part for pair in owned for part in pair)
        self._add("pool.owners", Key(-1, step), (scheduler.pool.free, scheduler.table.free, *flat))
        self._add("pool.guards", Key(-1, step), self._engine.arena.damaged())

    def _entries(self, channel: str, cache: Any, commit: Commit, start: int, end: int) -> None:
        """KV entries of positions start .. end-1, read where the request's own table says they are, if it does."""
        pages, size = self._engine.scheduler.table.pages[commit.row], cache.page_size
        end = min(end, len(pages) * size)
        slots = torch.tensor([pages[p // size] * size + p % size for p in range(start, end)], dtype=torch.int64)
        slots = slots.to(cache.table.device)
        for layer, (keys, values) in enumerate(zip(cache.keys, cache.values, strict=True)):
            entries = torch.cat([keys[slots].flatten(1), values[slots].flatten(1)], dim=1)
            for position, entry in zip(range(start, end), vectors(entries), strict=True):
                self._add(channel, Key(commit.request, commit.round, layer=layer, row=position), entry)

    def _prefill_rows(self, batch: tuple[PrefillRow, ...]) -> None:
        for index, row in enumerate(batch):
            value = (index, row.end - row.start, 0, 0, self._plan.step)
            self._add("round.rows", Key(row.request, 0, step=row.chunk), value)

    def _decode_rows(self, batch: tuple[DecodeRow, ...], size: int) -> None:
        for index, row in enumerate(batch):
            self._add("round.rows", Key(row.request, row.round, step=0), (index, row.drafts, 1, size, self._plan.step))

    def _draft_taps(self, batch: tuple[DecodeRow, ...], tapped: Tapped) -> None:
        for step in range(1, self._engine.config.steps):
            if not tapped:
                return
            columns = self._columns("draft", tapped, step)
            for index, row in enumerate(batch):
                if step < row.drafts:
                    key = Key(row.request, row.round, step=step)
                    for channel, values in columns.items():
                        self._add(f"draft.step.{channel}", key, values[index])

    def _verify_taps(self, batch: tuple[DecodeRow, ...], tapped: Tapped) -> None:
        if not tapped:
            return
        ids, positions, slots = (tapped[f"verify.{name}", -1].tolist() for name in ("ids", "positions", "slots"))
        hidden = vectors(tapped["verify.hidden", -1])
        chosen = self._choices("verify.choice", "verify.margin", tapped)
        width = self._engine.config.width
        for index, row in enumerate(batch):
            for column in range(row.drafts + 1):
                key, at = Key(row.request, row.round, row=column), index * width + column
                self._add("verify.ids", key, ids[index][column])
                self._add("verify.positions", key, positions[at])
                self._add("verify.slots", key, slots[at])
                self._add("verify.hidden", key, hidden[at])
                self._add("verify.choice", key, chosen[at])

    def _extend_taps(self, commits: tuple[Commit, ...], tapped: Tapped) -> None:
        columns = self._columns("extend", tapped)
        proposals = columns.pop("proposal")
        width = self._engine.config.width
        for index, commit in enumerate(commits):
            for row, position in enumerate(range(commit.before, commit.context)):
                for channel, values in columns.items():
                    key = Key(commit.request, commit.round, layer=0, row=position)
                    self._add(f"extend.{channel}", key, values[index * width + row])
            self._add("extend.proposal", Key(commit.request, commit.round, layer=0), proposals[index])

    def _prompt_taps(self, batch: tuple[PrefillRow, ...], tapped: Tapped) -> None:
        if not tapped:
            return
        columns, at = self._columns("prompt", tapped), 0
        proposals = columns.pop("proposal")
        for index, row in enumerate(batch):
            for position in range(row.start, row.end):
                for channel, values in columns.items():
                    self._add(f"extend.{channel}", Key(row.request, 0, layer=0, row=position), values[at])
                at += 1
            if row.tail < 0:
                self._add("extend.proposal", Key(row.request, 0, layer=0), proposals[index])

    def _columns(self, name: str, tapped: Tapped, step: int = -1) -> dict[str, list[Any]]:
        return {
            "ids": tapped[f"{name}.ids", step].tolist(),
            "positions": tapped[f"{name}.positions", step].tolist(),
            "slots": tapped[f"{name}.slots", step].tolist(),
            "hidden_in": vectors(tapped[f"{name}.hidden", step]),
            "proposal": self._choices(f"{name}.proposal", f"{name}.margin", tapped, step),
        }

    @staticmethod
    def _choices(token: str, margin: str, tapped: Tapped, step: int = -1) -> list[tuple[int, float]]:
        margins = tapped[margin, step].to(torch.float64).tolist()
        return list(zip(tapped[token, step].tolist(), margins, strict=True))
