"""A subject without a fault or a tensor: it plans batches and memory by itself and says what the reference says.

`P` page size, `A` steps that intermediate states are allocated for, `K` drafts of a round.
"""

from __future__ import annotations

import random
import zlib
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache

from msgspec import structs

from draftproof.properties.evidence.forms import form_of
from draftproof.properties.features import FEATURES_BY_NAME
from draftproof.properties.values.channels import CHANNELS, TAPPED
from draftproof.properties.values.drafts import DRAFT_CHANNELS, Ngram, tapped
from draftproof.properties.values.limits import NO_LIMITS
from draftproof.properties.values.observed import (
    GRAPHED,
    KEPT_EVERY,
    BatchRow,
    ConfigSeen,
    Datum,
    DiscardedRow,
    Footprint,
    Holdings,
    IndexBytes,
    LaunchKind,
    LaunchRecord,
    LaunchWork,
    LayerKind,
    MemoryRegion,
    Owner,
    PoolReport,
    Returned,
    StatePoolReport,
    WrittenPlace,
)
from draftproof.properties.values.scenario import Scenario, columns_freed, drafts_allowed, pages_needed, round_plan
from draftproof.properties.values.script import Finish, RoundScript, Script, forced
from draftproof.properties.values.subject import Subject
from draftproof.properties.values.trace import Key, Observation, Trace
from draftproof.reference.adaptive_steps import after, begin, observations, slot_of
from draftproof.reference.drafts.ngram import ReferenceNgram
from draftproof.reference.memo import Memo
from draftproof.reference.run import run
from draftproof.reference.solve import resolve, solve

SHARED = frozenset(CHANNELS) - DRAFT_CHANNELS


def channels_of(scenario: Scenario) -> frozenset[str]:
    """What a run of the scenario reports: of the draft's own channels those of its kind."""
    names = SHARED | tapped(scenario.draft, scenario.tree is not None)
    return names if scenario.taps else names - TAPPED


class IdealSubject(Subject):
    """Reports every channel that the scenario's draft has."""

    name = "ideal"

    def __init__(self, finish: Finish = "cut") -> None:
        self.limits = structs.replace(NO_LIMITS, finish=finish)

    def channels(self, scenario: Scenario) -> frozenset[str]:
        return channels_of(scenario)

    def run(self, scenario: Scenario, script: Script) -> Trace:
        played = _Play(scenario, self.limits.finish)
        played.serve()
        channels = self.channels(scenario)
        said = tuple(one for one in (*played.said, *played.computed()) if one.channel in channels)
        return Trace(self.name, channels, said)


@lru_cache(maxsize=16)
def _memo(_model: object, _draft: object) -> Memo:
    """One for all runs of a model and its draft: a scenario, its variant, and the other scenarios of a test."""
    return Memo()


@dataclass
class _Live:
    request: int
    state: int
    reserved: int
    pages: list[int] = field(default_factory=list)
    prefilled: int = 0
    chunks: int = 0
    rounds: int = 0
    context: int = 0
    emitted: int = 0


class _Play:
    """One run, step by step."""

    def __init__(self, scenario: Scenario, finish: Finish) -> None:
        self.scenario, self.memo, self.finish_as = scenario, _memo(scenario.model, scenario.draft), finish
        self.script = solve(scenario, self.memo)
        memory = scenario.memory
        self.free = list(range(1, memory.pages + 1))
        random.Random(memory.page_seed).shuffle(self.free)
        self.slots = list(range(1, memory.request_slots + 1))
        order = sorted(range(len(scenario.requests)), key=lambda request: (scenario.requests[request].arrival, request))
        self.waiting, self.live, self.going = order, list[_Live](), 0
        self.controls = begin(scenario.adaptive_steps) if scenario.adaptive_steps else ()
        self.drafts: dict[tuple[int, int], int] = {}
        self.rows: dict[tuple[int, int], tuple[int, int]] = {}
        self.tables: dict[tuple[int, int], tuple[int, ...]] = {}
        self.states: dict[tuple[int, int], int] = {}
        self.replays: Counter[tuple[int, int, int, int]] = Counter()
        self.captured: set[tuple[int, int]] = set()
        self.said: list[Observation] = []
        self.step, self.launched = 0, 0
        self.hybrid = scenario.model.linear is not None  # type: ignore[union-attr]
        self.form = form_of(scenario.draft, tree=scenario.tree, steps=scenario.step_counts)
        self.drafts_in_launch = self.form.proposes in ("steps", "block")
        self.layers = range(self.form.extend_launches)

    def say(self, channel: str, key: Key, value: Datum) -> None:
        self.said.append(Observation(channel, key, value))

    def serve(self) -> None:
        self.say("pool.kept", Key(-1, -1), Holdings((), 4096, 0))
        while self.waiting or self.live:
            self.launched = 0
            self.admit()
            prefill = [live for live in self.live if not live.emitted]
            decode = [live for live in self.live if live.emitted][: self.scenario.schedule.max_batch]
            if seed := self.scenario.schedule.row_seed:
                random.Random(seed * 1000003 + self.step).shuffle(decode)
            counts = self.planned(decode)
            ended = (self.prefill(prefill) if prefill else []) + (self.decode(decode, counts) if decode else [])
            for live in ended:
                self.live.remove(live)
                self.free += filter(None, live.pages)
                self.slots.append(live.state)
            self.drop()
            self.pools()
            self.step += 1
        self.pools()
        for service in (1, 2) if self.scenario.is_served_twice else ():
            self.say("pool.reachable", Key(-1, service * self.step, step=service), Footprint(100, 30, 4096))

    def drop(self) -> None:
        """Give back pages that no window reaches any more."""
        for live in self.live:
            for column in range(columns_freed(self.scenario, live.context) if live.emitted else 0):
                if column < len(live.pages) and live.pages[column]:
                    self.free.append(live.pages[column])
                    live.pages[column] = 0

    def admit(self) -> None:
        while self.waiting and self.slots and self.scenario.requests[self.waiting[0]].arrival <= self.step:
            request = self.scenario.requests[self.waiting[0]]
            need = pages_needed(self.scenario, request)
            if need > self.scenario.memory.pages - sum(live.reserved for live in self.live):
                return
            self.live.append(_Live(self.waiting.pop(0), self.slots.pop(0), need))

    def planned(self, decode: list[_Live]) -> list[int]:
        """K of every row."""
        schedule, most = self.scenario.schedule, self.steps(len(decode))
        if 0 < schedule.draft_batch < len(decode):
            most = 0
        counts = []
        for live in decode:
            request = self.scenario.requests[live.request]
            wanted = min(most, round_plan(request, live.rounds + 1).num_drafts)
            left, limit = request.budget - live.emitted, self.scenario.memory.max_len
            count = drafts_allowed(wanted, context=live.context, max_len=limit, budget_left=left)
            counts.append(min(count, self.found(live, count)))
        return counts

    def steps(self, rows: int) -> int:
        """The steps in force for a batch of so many rows."""
        adaptive = self.scenario.adaptive_steps
        return self.controls[slot_of(adaptive, rows)].steps if adaptive else self.scenario.steps

    def text(self, request: int) -> tuple[int, ...]:
        """What a request emits; of a sampled one whose rounds the schedule decides, as far as these are known."""
        if not self.scenario.dynamic or self.scenario.requests[request].sampling is None:
            return self.script.requests[request].tokens
        return resolve(self.scenario, self.script, self.drafts, self.memo).requests[request].tokens

    def found(self, live: _Live, count: int) -> int:
        """How many tokens there are to propose, for who looks for them and is not told."""
        draft, script = self.scenario.draft, self.script.requests[live.request]
        if (
            not isinstance(draft, Ngram)
            or self.scenario.tree
            or forced(script, live.rounds + 1, live.emitted, count) is not None
        ):
            return count
        tokens = self.scenario.requests[live.request].prompt + self.text(live.request)[: live.emitted]
        match = ReferenceNgram(draft).match(tokens)
        return len(tokens) - match.place if match.length else 0

    def grow(self, live: _Live, tokens: int, round_: int) -> None:
        while len(live.pages) * self.scenario.memory.page_size < tokens:
            live.pages.append(self.free.pop(0))
        self.tables[live.request, round_] = tuple(live.pages)
        self.states[live.request, round_] = live.state

    def slot(self, request: int, round_: int, position: int) -> int:
        page, offset = divmod(position, self.scenario.memory.page_size)
        return self.tables[request, round_][page] * self.scenario.memory.page_size + offset

    def launch(
        self, kind: LaunchKind, rows: int, written: set[tuple[int, int]], width: int = 0, layer: int = 0
    ) -> None:
        graphs = self.scenario.graphs
        sizes = graphs.sizes if graphs.capture and kind in GRAPHED else ()
        size = next((size for size in sizes if size >= rows), 0)
        if size and (size, width) not in self.captured:
            self.captured.add((size, width))
            for _ in range(1 + int(self.drafts_in_launch and width > 1) + len(self.layers)):
                self.tell(LaunchRecord(LaunchKind.CAPTURE, size, 0, 0, width, 0), set())
        graph = (kind, size, width, layer)
        self.replays[graph] += int(size > 0)
        self.tell(LaunchRecord(kind, size, rows, self.replays[graph] if size else 0, width, layer), written)

    def tell(self, value: LaunchRecord, written: set[tuple[int, int]]) -> None:
        key = Key(-1, self.step, step=self.launched)
        self.launched += 1
        self.say("graph.replay", key, value)
        if value.kind != LaunchKind.CAPTURE:
            self.say("graph.work", key, self.work(value))
        self.say(
            "commit.written", key, tuple(WrittenPlace(MemoryRegion(region), place) for region, place in sorted(written))
        )

    def work(self, value: LaunchRecord) -> LaunchWork:
        """Return the calls of a launch; a kernel more for each kind of launch that nobody else asks about."""
        model, kind, form = self.scenario.model, value.kind, self.form
        linear = model.types.count("linear_attention")  # type: ignore[union-attr]
        full = model.layers - linear  # type: ignore[union-attr]
        replay, kept = self.scenario.states.commit == "replay", int(self.scenario.states.checkpoint > 0)
        layers = getattr(self.scenario.draft, "layers", 1)
        block, first = form.proposes == "block", form.kind.proposes_at_extend
        drafted = 1 if block else form.launched(value.width)
        coded = int(model.kv_bits < 64)  # type: ignore[union-attr]
        tree, chosen = int(form.tree is not None), self.scenario.is_sampled + self.scenario.is_penalized
        drawn, moves = int(self.scenario.drafts_sampled), tree * int(replay and linear > 0)
        calls = {
            LaunchKind.PREFILL: (full, full, 2 * linear, 0, 1 + chosen),
            LaunchKind.VERIFY: (
                full * (1 + tree * (1 + coded)),
                full,
                linear * (2 - replay),
                moves,
                2 + chosen + drawn,
            ),
            LaunchKind.DRAFT: (drafted * layers, drafted * layers, 0, 0, drafted + (drafted + first) * drawn),
            LaunchKind.EXTEND_PROMPT: (layers, 0 if block else layers, 0, 0, len(self.layers) * first + tree),
            LaunchKind.COMMIT: (0, 0, linear * kept, 1, 0) if replay else (0, 0, 0, 2 + 2 * kept, 0),
            LaunchKind.FINISH: (0, 0, linear, 1, 0) if replay else (0,) * 5,
        }
        of_layer = 1 if form.proposes == "chain" else layers
        calls[LaunchKind.EXTEND] = (of_layer, 0 if block else of_layer, 0, 0, int(first) + tree)
        return LaunchWork(*calls[kind], sum(calls[kind]) + kind)

    def discarded(self, stage: str, live: list[int], columns: range) -> None:
        """Say where surplus and padding of the last launch ran: columns from `live` on, in the last place there is."""
        memory = self.scenario.memory
        last = (memory.max_len - 1, 0, memory.request_slots, memory.request_slots if stage == "verify" else 0)
        size = next((size for size in self.scenario.graphs.sizes if size >= len(live)), len(live))
        surplus = [(place, column) for place, count in enumerate(live) for column in columns if column >= count]
        padding = [(place, column) for place in range(len(live), size) for column in columns]
        rows = (*(DiscardedRow(*at, *last) for at in surplus), *(DiscardedRow(*at, 0, 0, 0, 0) for at in padding))
        if rows:
            self.say(f"{stage}.discarded", Key(-1, self.step, step=self.launched - 1), rows)

    def drafted(self, counts: list[int], width: int) -> None:
        """Say what of the last draft launch was thrown away."""
        if self.form.proposes == "block":
            self.discarded("draft", [count + 1 if count else 0 for count in counts], range(width))
        elif self.form.tree:
            entries = range(self.form.tree.entries(self.scenario.steps))
            self.discarded("draft", [self.form.entries(count) for count in counts], entries)
        else:
            forwards = [self.form.forwards(count) + 1 for count in counts]
            self.discarded("draft", forwards, range(1, self.form.forwards(width - 1) + 1))

    def prefill(self, batch: list[_Live]) -> list[_Live]:
        """Returns whose requests end."""
        kv, again, states, ended = set(), set(), set(), []
        for place, live in enumerate(batch):
            prompt = self.scenario.requests[live.request].prompt
            begin, end = live.prefilled, min(len(prompt), live.prefilled + self.scenario.schedule.chunk)
            self.grow(live, end, 0)
            row = BatchRow(place, end - begin, 0, 0, self.step)
            self.say("round.rows", Key(live.request, 0, step=live.chunks), row)
            kv |= {self.slot(live.request, 0, position) for position in range(begin, end)}
            again |= {self.slot(live.request, 0, position) for position in self.window(begin, len(self.layers) - 1)}
            states |= self.checkpoint(live, begin, end) | {(3, live.state)}
            live.prefilled, live.chunks, live.context = end, live.chunks + 1, end
            if end == len(prompt):
                live.emitted = 1
                if len(self.text(live.request)) == 1:
                    ended.append(live)
        self.launch(LaunchKind.PREFILL, len(batch), {(0, slot) for slot in kv} | (states if self.hybrid else set()))
        self.finish(ended)
        if self.layers:
            self.launch(LaunchKind.EXTEND_PROMPT, len(batch), {(1, slot) for slot in kv | again})
        return ended

    def window(self, first: int, reach: int) -> range:
        """Positions before `first` whose entries were made with a guess."""
        return range(max(0, first - reach), first)

    def checkpoint(self, live: _Live, begin: int, end: int) -> set[tuple[int, int]]:
        interval = self.scenario.states.checkpoint
        return {(5, live.state)} if interval and end // interval > begin // interval else set()

    def finish(self, ended: list[_Live]) -> None:
        if self.hybrid and ended:
            # Nothing is pending after a prefill.
            folds = self.scenario.states.commit == "replay"
            self.launch(LaunchKind.FINISH, len(ended), {(3, live.state) for live in ended if folds and live.rounds})

    def decode(self, batch: list[_Live], counts: list[int]) -> list[_Live]:
        """Returns whose requests end; `counts` are depths, where drafts are trees."""
        rounds = [self.round(live, count) for live, count in zip(batch, counts, strict=True)]
        width = self.scenario.most_drafts(self.steps(len(batch))) + 1 if any(one.drafts for one in rounds) else 1
        sizes = self.scenario.graphs.sizes if self.scenario.graphs.capture else ()
        size = next((size for size in sizes if size >= len(batch)), 0)
        drafted, verified, states, kept = set(), set(), set(), set()
        extended: list[set[tuple[int, int]]] = [set() for _ in self.layers]
        ended, pairs, entries = [], [], []
        for place, (live, round_, depth) in enumerate(zip(batch, rounds, counts, strict=True)):
            n, count = round_.context, round_.drafts
            columns = max(count + 1, self.form.tree.columns(depth) if self.form.tree else 0)
            live.rounds += 1
            self.grow(live, n + columns, live.rounds)
            self.say("round.rows", Key(live.request, live.rounds, step=0), BatchRow(place, count, 1, size, self.step))
            self.rows[live.request, live.rounds] = (self.step, count)
            places = [self.slot(live.request, live.rounds, n + row) for row in range(columns)]
            drafted |= {(1, slot) for slot in places[: self.form.entries(depth if self.form.tree else count)]}
            verified |= {(0, slot) for slot in places[: count + 1]}
            first = place * self.scenario.width
            replay = self.scenario.states.commit == "replay"
            states |= {(3, live.state)} if replay else {(4, first + row) for row in range(width)}
            committed = len(round_.emitted) if self.finish_as == "cut" else self.accepted(round_) + 1
            kept |= {(3, live.state)} | self.checkpoint(live, n, n + committed)
            live.context, live.emitted = n + len(round_.emitted), live.emitted + len(round_.emitted)
            pairs.append((count, self.accepted(round_)))
            if live.emitted == len(self.text(live.request)):
                ended.append(live)
            else:
                entries.append(len(round_.emitted) + len(self.window(n, len(self.layers) - 1)))
                for layer in self.layers:
                    again = {self.slot(live.request, live.rounds, position) for position in self.window(n, layer)}
                    extended[layer] |= {(1, slot) for slot in (*places[: len(round_.emitted)], *again)}
        if any(counts) and self.drafts_in_launch:
            self.launch(LaunchKind.DRAFT, len(batch), drafted, width)
            self.drafted(counts, width)
        self.launch(LaunchKind.VERIFY, len(batch), verified | (states if self.hybrid else set()), width)
        self.discarded("verify", [round_.drafts + 1 for round_ in rounds], range(width))
        if self.hybrid:
            self.launch(LaunchKind.COMMIT, len(batch), kept)
        self.finish(ended)
        for layer in self.layers if len(ended) < len(batch) else ():
            self.launch(LaunchKind.EXTEND, len(batch) - len(ended), extended[layer], width, layer)
            self.discarded("extend", entries, range(width + len(self.layers) - 1))
        if self.scenario.adaptive_steps:
            self.controls = after(self.scenario.adaptive_steps, self.controls, pairs)
        return ended

    def accepted(self, round_: RoundScript) -> int:
        return min(round_.correct_len, len(round_.emitted)) if self.finish_as == "token" else round_.correct_len

    def round(self, live: _Live, count: int) -> RoundScript:
        self.drafts[live.request, live.rounds + 1] = count
        resolved = resolve(self.scenario, self.script, self.drafts, self.memo)
        return resolved.requests[live.request].rounds[live.rounds]

    def pools(self) -> None:
        key = Key(-1, self.step)
        owners = tuple(sorted(Owner(page, live.request) for live in self.live for page in filter(None, live.pages)))
        self.say("pool.owners", key, PoolReport(len(self.free), len(self.slots), owners))
        self.say("pool.guards", key, ())
        going = sorted([*self.waiting, *(live.request for live in self.live)])
        if not going or len(going) < self.going or not self.step % KEPT_EVERY:
            self.say("pool.kept", key, Holdings(tuple(going), 4096, 0))
        self.going = len(going)
        past = tuple(sorted(live.request for live in self.live if live.emitted))
        self.say("pool.drafts", key, past if isinstance(self.scenario.draft, Ngram) else ())
        if self.hybrid:
            owners = tuple(sorted(Owner(live.state, live.request) for live in self.live))
            self.say("pool.states", key, StatePoolReport(len(self.slots), owners))

    def column(self, script: Script, stage: str, key: Key, position: int) -> int:
        """The column of the page table that an entry is in: rows of a tree have columns of their own."""
        tree = self.scenario.tree
        if tree is None or stage == "extend":
            return position
        n = script.requests[key.request].rounds[key.round - 1].context
        return n + key.row if stage == "verify" else n + (key.step - 1) * tree.topk + key.row

    def totals(self, script: Script) -> list[Observation]:
        """The counters of the run."""
        rounds = [(one.drafts, self.accepted(one)) for request in script.requests for one in request.rounds]
        counted = {
            "rounds": sum(drafts > 0 for drafts, _ in rounds),
            "drafts": sum(drafts for drafts, _ in rounds),
            "accepted": sum(right for _, right in rounds),
            "accepted_at": tuple(sum(right > at for _, right in rounds) for at in range(self.scenario.steps)),
        }
        return [Observation(f"total.{name}", Key(-1, 0), value) for name, value in counted.items()]

    def computed(self) -> list[Observation]:
        """What the reference says of the rounds that were, and the slots that follow from the tables."""
        script = resolve(self.scenario, self.script, self.drafts, self.memo)
        trace = run(self.scenario, script, self.memo, self.finish_as)
        more = list(trace.observations)
        for stage in ("draft.step", "draft.block", "draft.beam", "verify", "extend"):
            for key, position in trace.channel(f"{stage}.positions").items():
                slot = self.slot(key.request, key.round, self.column(script, stage, key, position))  # type: ignore[arg-type]
                more.append(Observation(f"{stage}.slots", key, slot))
        for (request, round_), pages in self.tables.items():
            for column, page in enumerate(pages):
                if page:
                    more.append(Observation("round.table", Key(request, round_, row=column), page))
        if self.hybrid:
            more += [Observation("round.state", Key(*place), slot) for place, slot in self.states.items()]
        emitted = trace.channel("accept.emitted")
        more += [Observation("round.attempt", key, 0) for key in emitted]
        steps = {one.key[:2]: one.value.step for one in self.said if isinstance(one.value, BatchRow)}
        for key in emitted:
            is_last = key._replace(round=key.round + 1) not in emitted
            more.append(Observation("accept.returned", key, Returned(steps[key[:2]], is_last)))
        more += [Observation("round.cached", Key(request, 0), 0) for request in range(len(script.requests))]
        more += self.totals(script)
        correct = {key[:2]: value for key, value in trace.channel("accept.correct_len").items()}
        more += observations(self.scenario, self.rows, correct)  # type: ignore[arg-type]
        kinds = tuple(LayerKind[kind.upper()] for kind in self.scenario.model.types)  # type: ignore[union-attr]
        seen = ConfigSeen(zlib.crc32(repr(self.scenario.model).encode()), len(kinds), kinds)
        more.append(Observation("config.index_bytes", Key(-1, 0), IndexBytes(*[8] * 6)))
        more += [Observation("config.seen", Key(-1, 0, step=look), seen) for look in range(4)]
        return more


_NOT_ITS_OWN = ("aborts", "prefix-cache", "token-budget", "mixed", "disaggregation", "overlap")


def idealized(scenario: Scenario) -> Scenario:
    """The scenario as the ideal subject can run it: nobody is aborted, steps have no budget, nothing is kept.

    No chain is a tree either, whose pages differ.
    """
    whole = scenario
    for name in _NOT_ITS_OWN:
        whole = FEATURES_BY_NAME[name].without(whole)
    return structs.replace(whole, variant="none") if whole.variant in ("chain_as_tree", "alone") else whole
