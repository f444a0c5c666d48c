"""From what the probes see to observations: who a row belongs to is known from the plan, never from a value.

`R` live rows, `W` verify width, `T` packed prompt tokens.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from draftproof.engine.adaptive import ControllerState
from draftproof.engine.drafts.ngram import Ngram
from draftproof.engine.engine import Engine
from draftproof.engine.models.config_fields import FULL
from draftproof.engine.probes import Probes
from draftproof.engine.stages import Acceptance, Commit, DecodeRow, Launch, PrefillRow, Proposal, StepPlan
from draftproof.engine.states.replay import Replay
from draftproof.engine.states.snapshot import Snapshot
from draftproof.engine.subject.memory import MemoryWatch
from draftproof.engine.subject.states import after_rows, base, kept, logical, pending_inputs, stored
from draftproof.engine.subject.taps import RecordingTaps, Tapped
from draftproof.engine.subject.vectors import vectors
from draftproof.properties.values.observed import (
    BatchRow,
    ConfigSeen,
    Datum,
    DraftNeeds,
    LaunchKind,
    LaunchRecord,
    LayerKind,
    MemoryRegion,
    NgramMatch,
    Owner,
    PoolReport,
    StatePoolReport,
    StepsInForce,
    WriteSet,
)
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.script import Script, forced
from draftproof.properties.values.trace import Key, Observation


class Recorder(Probes):
    """Collects the trace of one run and steers it by the script."""

    def __init__(
        self,
        scenario: Scenario,
        script: Script,
        taps: RecordingTaps | None,
        announce: Callable[[int, str], None] = lambda step, kind: None,
    ) -> None:
        super().__init__(taps)
        self._announce = announce
        self._prompts = [len(request.prompt) for request in scenario.requests]
        self._checkpoint = scenario.states.checkpoint
        self.observations: list[Observation] = []
        self._recording, self._script = taps, script
        self._plan = StepPlan(-1, 0, (), ())
        self._launches = 0
        self._layers_seen, self._first_prefill_done = 0, False
        self._extend_pending: tuple[Tapped, int] = ({}, 0)
        self._prompt_seen: dict[tuple[str, Key], Datum] = {}
        self._fed: set[int] = set()
        self._engine: Engine
        self._memory: MemoryWatch

    def attach(self, engine: Engine, memory: MemoryWatch) -> None:
        self._engine, self._memory = engine, memory
        types = engine.verifier.target.layer_types
        self._full_layers = tuple(layer for layer, kind in enumerate(types) if kind == FULL)
        self._linear_layers = tuple(layer for layer, kind in enumerate(types) if kind != FULL)

    def _add(self, channel: str, key: Key, value: Datum) -> None:
        self.observations.append(Observation(channel, key, value))

    def configured(self, seen: Sequence[tuple[int, ...]], first: int = 0) -> None:
        """Fingerprints of the configuration at points `first`, first + 1, .. of the run."""
        for point, fingerprint in enumerate(seen, start=first):
            crc, layers, *kinds = fingerprint
            self._add("config.seen", Key(-1, 0, step=point), ConfigSeen(crc, layers, tuple(map(LayerKind, kinds))))

    def routed(self, layer_type: int) -> None:
        if self._plan.prefill and not self._first_prefill_done:
            self._add("config.routing", Key(-1, 0, layer=self._layers_seen), LayerKind(layer_type))
            self._layers_seen += 1

    def planned(self, plan: StepPlan) -> None:
        self._plan, self._launches = plan, 0
        self._announce(plan.step, "plan")
        for chunk in plan.prefill:
            seen = -(-chunk.start // self._engine.config.page_size)
            self._table(chunk.row, Key(chunk.request, 0), seen)
            if not chunk.start:
                self._state_slot(chunk.state, Key(chunk.request, 0))
        for row in plan.decode:
            self._table(row.row, Key(row.request, row.round), 0)
            self._state_slot(row.state, Key(row.request, row.round))

    def _state_slot(self, slot: int, key: Key) -> None:
        if self._engine.states:
            self._add("round.state", key, slot)

    def _table(self, row: int, key: Key, seen: int) -> None:
        """The request's pages, but for the first `seen` columns, which an earlier chunk of the round reported."""
        for column, page in enumerate(self._engine.scheduler.table.pages[row]):
            if column >= seen:
                self._add("round.table", key._replace(row=column), page)

    def before_launch(self, kind: str) -> None:
        self._announce(self._plan.step, kind)
        self._memory.before()

    def launched(self, launch: Launch) -> None:
        key = Key(-1, self._plan.step, step=self._launches)
        kind = LaunchKind[launch.kind.upper()]
        record = LaunchRecord(kind, launch.size, launch.rows, launch.replays, launch.width, launch.layer)
        self._add("graph.replay", key, record)
        self._add("commit.written", key, self._written(launch))
        self._launches += 1
        tapped = self._recording.take() if self._recording else {}
        if launch.kind in ("capture", "commit", "finish"):
            return
        if launch.kind == "prefill":
            self._first_prefill_done = True
            self._prefill_rows(self._plan.prefill)
            self._prefill_choices(self._plan.prefill, tapped)
        elif launch.kind == "extend_prompt":
            self._prompt_taps(self._plan.prefill, tapped)
        elif launch.kind == "draft":
            self._draft_taps(self._plan.decode, tapped, launch.width)
            self._block_taps(self._plan.decode, tapped, launch.width)
        elif launch.kind == "verify":
            self._decode_rows(self._plan.decode, launch.size)
            self._verify_taps(self._plan.decode, tapped, launch.width)
            self._intermediate(self._plan.decode)
        else:
            self._extend_pending = ((self._extend_pending[0] if launch.layer else {}) | tapped, launch.width)

    def _written(self, launch: Launch) -> WriteSet:
        """What the launch changed, but for the rows of its padding."""
        live = launch.rows * self._engine.config.most_width
        changed = self._memory.changed()
        return tuple(one for one in changed if one.region != MemoryRegion.INTERMEDIATE or one.place < live)

    def steer(self, batch: tuple[DecodeRow, ...], proposal: Proposal) -> Proposal:
        """The script's drafts in place of the proposals, which are reported as they were."""
        drafts, counts, own = proposal.drafts.clone(), list(proposal.counts), proposal.drafts.tolist()
        for index, row in enumerate(batch):
            self._proposed(row, tuple(own[index][: counts[index]]))
            emitted = row.context + 1 - self._prompts[row.request]
            tokens = forced(self._script.requests[row.request], row.round, emitted, row.drafts)
            if tokens:
                tokens = tokens[: drafts.shape[1]]
                drafts[index, : len(tokens)] = torch.tensor(tokens, dtype=torch.int64, device=drafts.device)
                counts[index] = len(tokens)
        verified = tuple(replace(row, drafts=count) for row, count in zip(batch, counts, strict=True))
        self._plan = replace(self._plan, decode=verified)
        return Proposal(drafts, tuple(counts))

    def _proposed(self, row: DecodeRow, tokens: tuple[int, ...]) -> None:
        key, draft = Key(row.request, row.round), self._engine.draft
        self._add("propose.tokens", key, tokens)
        if isinstance(draft, Ngram):
            self._add("propose.match", key, NgramMatch(*draft.match(row.request)))

    def fed(self, hidden: torch.Tensor | None) -> None:
        self._fed.add(0 if hidden is None else hidden.shape[-1])

    def fed_at_all(self) -> None:
        """The width of what the draft was handed over of hidden states, and the layers of its entries."""
        cache = self._engine.draft.cache
        needs = DraftNeeds(max(self._fed, default=0), len(cache.keys) if cache else 0)
        self._add("config.draft", Key(-1, 0), needs)

    def accepted(self, batch: tuple[DecodeRow, ...], acceptance: Acceptance) -> None:
        for row, correct, tokens in zip(batch, acceptance.correct_len, acceptance.tokens, strict=True):
            key = Key(row.request, row.round)
            self._add("accept.correct_len", key, correct)
            self._add("accept.index", key, tuple(range(correct + 1)))
            self._add("accept.bonus", key, tokens[-1])

    def controlled(self, before: ControllerState, after: ControllerState) -> None:
        key = Key(-1, self._plan.step)
        self._add("control.steps", key, StepsInForce(before.steps, before.count))
        self._add("control.average", key, struct.pack("<d", after.average))

    def committed(self, commits: tuple[Commit, ...]) -> None:
        for commit in commits:
            key = Key(commit.request, commit.round)
            self._add("accept.emitted", key, commit.emitted)
            self._add("commit.length", key, commit.context)
            self._entries("commit.kv", self._engine.verifier.cache, commit, commit.before, commit.context)
        if self._engine.states:
            self._states(commits)

    def handed_over(self, commits: tuple[Commit, ...]) -> None:
        if self._engine.states and commits:
            self._vectors("commit.final", commits, stored(self._engine.states, commits))
        if isinstance(self._engine.states, Replay):
            for commit, left in zip(commits, pending_inputs(self._engine.states, commits), strict=True):
                self._add("commit.unfolded", Key(commit.request, commit.round), left)

    def _states(self, commits: tuple[Commit, ...]) -> None:
        """The logical states after a round, what they are made of, and checkpoints that are due."""
        states = self._engine.states
        if states is None or not commits:
            return
        for commit in commits:
            if commit.round:
                self._add("commit.step_index", Key(commit.request, commit.round), commit.last_correct_step_index)
        self._vectors("commit.state", commits, logical(states, commits))
        if isinstance(states, Replay):
            for commit, pending in zip(commits, pending_inputs(states, commits), strict=True):
                self._add("commit.pending", Key(commit.request, commit.round), pending)
            self._vectors("commit.base", commits, base(states, commits))
        every = self._checkpoint
        have = tuple(commit for commit in commits if every and commit.context >= every)
        if have:
            self._vectors("commit.checkpoint", have, kept(states, have))

    def _vectors(self, channel: str, commits: Sequence[Commit], layers: Mapping[int, list[Datum]]) -> None:
        for order, values in layers.items():
            layer = self._linear_layers[order]
            for commit, value in zip(commits, values, strict=True):
                self._add(channel, Key(commit.request, commit.round, layer=layer), value)

    def _intermediate(self, batch: tuple[DecodeRow, ...]) -> None:
        """The states after every row of a verify, where they are kept."""
        states = self._engine.states
        if not isinstance(states, Snapshot):
            return
        for order, layer in enumerate(self._linear_layers):
            for index, row in enumerate(batch):
                for step, value in enumerate(after_rows(states, order, index, row.drafts + 1)):
                    self._add("commit.intermediate", Key(row.request, row.round, layer=layer, row=step), value)

    def extended(self, commits: tuple[Commit, ...]) -> None:
        for commit in commits:
            if self._recording and self._engine.draft.cache:
                first = max(0, commit.before - self._engine.draft.back)
                self._entries("extend.kv", self._engine.draft.cache, commit, first, commit.context)
        if self._recording and commits and commits[0].round:
            self._extend_taps(commits, *self._extend_pending)

    def released(self, row: int, pages: tuple[int, ...], state: int) -> None:
        self._memory.poison_pages(pages)
        self._memory.poison_row(row)
        if state:
            self._memory.poison_states((state,))

    def stepped(self, plan: StepPlan) -> None:
        self.pool(plan.step)

    def pool(self, step: int) -> None:
        scheduler = self._engine.scheduler
        owner = {sequence.row: sequence.request.id for sequence in scheduler.live}
        rows = enumerate(scheduler.table.pages)
        owners = tuple(sorted(Owner(page, owner.get(row, -1)) for row, pages in rows for page in pages))
        self._add("pool.owners", Key(-1, step), PoolReport(scheduler.pool.free, scheduler.table.free, owners))
        self._add("pool.guards", Key(-1, step), self._engine.arena.damaged())
        self._add("pool.drafts", Key(-1, step), self._engine.draft.held())
        if scheduler.states:
            owners = tuple(sorted(Owner(sequence.state, sequence.request.id) for sequence in scheduler.live))
            self._add("pool.states", Key(-1, step), StatePoolReport(scheduler.states.free, owners))

    def _entries(self, channel: str, cache: Any, commit: Commit, start: int, end: int) -> None:
        """KV entries of positions start .. end-1, read where the request's own table says they are, if it does."""
        pages, size = self._engine.scheduler.table.pages[commit.row], cache.page_size
        end = min(end, len(pages) * size)
        slots = torch.tensor([pages[p // size] * size + p % size for p in range(start, end)], dtype=torch.int64)
        slots = slots.to(cache.table.device)
        layers = self._full_layers if channel == "commit.kv" else range(len(cache.keys))
        for layer, keys, values in zip(layers, cache.keys, cache.values, strict=True):
            entries = torch.cat([keys[slots].flatten(1), values[slots].flatten(1)], dim=1)
            for position, entry in zip(range(start, end), vectors(entries), strict=True):
                self._add(channel, Key(commit.request, commit.round, layer=layer, row=position), entry)

    def _prefill_rows(self, batch: tuple[PrefillRow, ...]) -> None:
        for index, row in enumerate(batch):
            chunk = BatchRow(index, row.end - row.start, 0, 0, self._plan.step)
            self._add("round.rows", Key(row.request, 0, step=row.chunk), chunk)

    def _prefill_choices(self, batch: tuple[PrefillRow, ...], tapped: Tapped) -> None:
        """The choice after each prompt that ends here."""
        if tapped:
            chosen = self._choices("prefill.choice", "prefill.margin", tapped)
            for row, choice in zip(batch, chosen, strict=True):
                if row.tail < 0:
                    self._add("verify.choice", Key(row.request, 0, row=0), choice)

    def _decode_rows(self, batch: tuple[DecodeRow, ...], size: int) -> None:
        for index, row in enumerate(batch):
            one = BatchRow(index, row.drafts, 1, size, self._plan.step)
            self._add("round.rows", Key(row.request, row.round, step=0), one)

    def _draft_taps(self, batch: tuple[DecodeRow, ...], tapped: Tapped, width: int) -> None:
        """Steps of a chain: an EAGLE head's are one fewer than a row's drafts, a standalone draft's as many."""
        for step in range(1, width):
            columns = self._columns("draft", tapped, step)
            last = step + int("hidden_in" in columns)
            for index, row in enumerate(batch):
                if last <= row.drafts:
                    for channel, values in columns.items():
                        self._add(f"draft.step.{channel}", Key(row.request, row.round, step=step), values[index])

    def _block_taps(self, batch: tuple[DecodeRow, ...], tapped: Tapped, width: int) -> None:
        columns = self._columns("block", tapped)
        for index, row in enumerate(batch):
            for place in range(row.drafts + 1 if row.drafts else 0):
                for channel, values in columns.items():
                    if place or channel != "proposal":
                        key = Key(row.request, row.round, row=place)
                        self._add(f"draft.block.{channel}", key, values[index * width + place])

    def _verify_taps(self, batch: tuple[DecodeRow, ...], tapped: Tapped, width: int) -> None:
        if not tapped:
            return
        ids, positions, slots = (tapped[f"verify.{name}", -1].tolist() for name in ("ids", "positions", "slots"))
        hidden = vectors(tapped["verify.hidden", -1])
        chosen = self._choices("verify.choice", "verify.margin", tapped)
        for index, row in enumerate(batch):
            for column in range(row.drafts + 1):
                key, at = Key(row.request, row.round, row=column), index * width + column
                self._add("verify.ids", key, ids[index][column])
                self._add("verify.positions", key, positions[at])
                self._add("verify.slots", key, slots[at])
                self._add("verify.hidden", key, hidden[at])
                self._add("verify.choice", key, chosen[at])

    def _extend_taps(self, commits: tuple[Commit, ...], tapped: Tapped, width: int) -> None:
        entries, back = width + self._engine.draft.back, self._engine.draft.back
        for layer, columns in self._extends("extend", tapped):
            proposals = columns.pop("proposal", None)
            for index, commit in enumerate(commits):
                for row, position in enumerate(range(max(0, commit.before - back), commit.context)):
                    key = Key(commit.request, commit.round, layer=layer, row=position)
                    for channel, values in columns.items():
                        self._add(f"extend.{channel}", key, values[index * entries + row])
                if proposals:
                    self._add("extend.proposal", Key(commit.request, commit.round, layer=layer), proposals[index])

    def _prompt_taps(self, batch: tuple[PrefillRow, ...], tapped: Tapped) -> None:
        """Entries of a prompt are known once its last chunk is: some are computed again by a later one."""
        back = self._engine.draft.back
        for layer, columns in self._extends("prompt", tapped):
            proposals, at = columns.pop("proposal", None), 0
            for index, row in enumerate(batch):
                for position in range(max(0, row.start - back), row.end):
                    key = Key(row.request, 0, layer=layer, row=position)
                    for channel, values in columns.items():
                        self._prompt_seen[f"extend.{channel}", key] = values[at]
                    at += 1
                if proposals:
                    self._prompt_seen["extend.proposal", Key(row.request, 0, layer=layer)] = proposals[index]
        for row in batch:
            if row.tail < 0:
                for place in [place for place in self._prompt_seen if place[1].request == row.request]:
                    self._add(*place, self._prompt_seen.pop(place))

    def _extends(self, name: str, tapped: Tapped) -> Iterator[tuple[int, dict[str, list[Any]]]]:
        """Layers of an extend with what was tapped of each; a draft that runs them all at once counts as layer 0."""
        steps = sorted({step for tap, step in tapped if tap == f"{name}.positions"})
        for step in steps:
            yield max(step, 0), self._columns(name, tapped, step)

    def _columns(self, name: str, tapped: Tapped, step: int = -1) -> dict[str, list[Any]]:
        """Of every packed token what was tapped of it, by the last word of its channel."""
        columns: dict[str, list[Any]] = {}
        for tap in ("ids", "positions", "slots", "visible"):
            if (tensor := tapped.get((f"{name}.{tap}", step))) is not None:
                columns[tap] = tensor.flatten().tolist()
        if (hidden := tapped.get((f"{name}.hidden", step))) is not None:
            columns["hidden_in"] = vectors(hidden)
        if (f"{name}.proposal", step) in tapped:
            columns["proposal"] = self._choices(f"{name}.proposal", f"{name}.margin", tapped, step)
        return columns

    @staticmethod
    def _choices(token: str, margin: str, tapped: Tapped, step: int = -1) -> list[tuple[int, float]]:
        margins = tapped[margin, step].to(torch.float64).tolist()
        return list(zip(tapped[token, step].tolist(), margins, strict=True))
