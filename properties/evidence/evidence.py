"""What contracts look at: the traces of one scenario, and the batches, tables and launches that can be read off them.

`P` page size; slot = page * P + offset; page 0 and its slots are reserved for padding.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from msgspec.structs import astuple

from draftproof.properties.evidence.forms import Form, form_of
from draftproof.properties.values.channels import CHANNELS
from draftproof.properties.values.observed import (
    BatchRow,
    Choice,
    Datum,
    DraftNeeds,
    LaunchKind,
    LaunchRecord,
    LayerKind,
    NgramMatch,
    StepsInForce,
    TokenIds,
)
from draftproof.properties.values.scenario import Checkpoint, Scenario, drafts_allowed, round_plan
from draftproof.properties.values.script import Script
from draftproof.properties.values.trace import Key, Observation, Trace
from draftproof.properties.variants import varied


class Row(NamedTuple):
    """One observation of `round.rows`; `count` is K_r of a decode row, the tokens of a prefill chunk."""

    request: int
    round: int
    chunk: int
    place: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs of a row
    phase: int
    size: int
    step: int


class Launch(NamedTuple):
    """One observation of `graph.replay`; `size` is 0 for an eager launch.

    `width` is the verify width of the runtime state that the launch belongs to, 0 if it belongs to none. `layer` is
    that of a chain whose entries an extend makes, 0 of any other launch.
    """

    step: int
    number: int
    kind: LaunchKind
    size: int
    rows: int
    replays: int
    width: int
    layer: int


@dataclass(frozen=True)
class Evidence:
    """One scenario, run: what the reference says, what the subject did, and its run under the drawn variant.

    `varied_reference` is what the reference says of the variant run, where that is something else. `base_ties` are
    those of the base run, if this is a run of the variant: without taps a run does not show its own.
    """

    scenario: Scenario
    script: Script
    reference: Trace
    subject: Trace
    varied: Trace | None = None
    varied_reference: Trace | None = None
    base_ties: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    @property
    def exact(self) -> bool:
        """Whether vectors are compared bit for bit."""
        return not isinstance(self.scenario.model, Checkpoint)

    @property
    def hybrid(self) -> bool:
        """Whether the target has layers with a recurrent state: a real model's reference says so."""
        model = self.scenario.model
        if isinstance(model, Checkpoint):
            return LayerKind.LINEAR_ATTENTION in self.reference.channel("config.routing").values()
        return "linear_attention" in model.types

    @cached_property
    def form(self) -> Form:
        """How the scenario's draft runs."""
        return form_of(self.scenario.draft, self.reference.typed("config.draft", DraftNeeds).get(Key(-1, 0)))

    @property
    def page_size(self) -> int:
        return self.scenario.memory.page_size

    @property
    def variant_run(self) -> Evidence:
        """The variant run as a run of its own. Only where there is one."""
        assert self.varied is not None
        return replace(
            self,
            scenario=varied(self.scenario),
            reference=self.varied_reference or self.reference,
            subject=self.varied,
            varied=None,
            varied_reference=None,
            base_ties=self.ties,
        )

    def rounds_of(self, request: int) -> int:
        """The number of a request's last round, by the script."""
        return len(self.script.requests[request].rounds)

    def pair(self, channel: str) -> tuple[Mapping[Key, Datum], Mapping[Key, Datum]]:
        """A channel as the reference and the subject have it.

        What a subject extends in the round in which a request ends is nobody's concern, nor whether it computes again
        what it need not; what follows a tie of a real model belongs to another continuation.
        """
        expected, got = self.reference.channel(channel), self.subject.channel(channel)
        if channel.startswith("extend.") and got.keys() != expected.keys():
            ends = {request: self.rounds_of(request) for request in range(len(self.script.requests))}
            got = {key: value for key, value in got.items() if key in expected or ends.get(key.request) != key.round}
            expected = {key: value for key, value in expected.items() if key in got or not self.may_leave_out(key)}
        if self.exact:
            return expected, got
        if CHANNELS[channel].value == Choice:
            got = {key: self._same_margin(expected.get(key), value) for key, value in got.items()}
        return self._before_ties(channel, expected), self._before_ties(channel, got)

    def may_leave_out(self, key: Key) -> bool:
        """Whether an extend need not compute an entry: in layer j of a chain, those below n - j had true tokens."""
        rounds = self.script.requests[key.request].rounds
        if key.row < 0 or not 0 < key.round <= len(rounds):
            return False
        return key.row < rounds[key.round - 1].context - key.layer

    @staticmethod
    def _same_margin(expected: Datum | None, got: Datum) -> Datum:
        """A real model's choice is its token: margins are floats."""
        both = isinstance(expected, tuple) and isinstance(got, tuple)
        return expected if both and expected[0] == got[0] else got  # type: ignore[index,return-value]

    def _before_ties(self, channel: str, values: Mapping[Key, Datum]) -> Mapping[Key, Datum]:
        kept = {}
        for key, value in values.items():
            tie = self.ties.get(key.request)
            if tie is None or Observation(channel, key, 0).order[:5] < tie[:5]:
                kept[key] = value
        return kept

    @cached_property
    def ties(self) -> Mapping[int, tuple[int, ...]]:
        """request -> order of the first choice that differs within twice the logit bound. Probes have none."""
        if self.exact:
            return {}
        from draftproof.properties.contracts.bounds import tied

        ties = dict(self.base_ties)
        for channel in ("draft.step.proposal", "draft.block.proposal", "verify.choice", "extend.proposal"):
            got = self.subject.channel(channel)
            for key, one in self.reference.channel(channel).items():
                if tied(self.scenario, one, got.get(key)):
                    order = Observation(channel, key, 0).order
                    ties[key.request] = min(order, ties.get(key.request, order))
        return ties

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """By engine step, phase, position in the batch."""
        reported = self.subject.typed("round.rows", BatchRow).items()
        rows = (Row(key.request, key.round, key.step, *astuple(row)) for key, row in reported)
        return tuple(sorted(rows, key=lambda row: (row.step, row.phase, row.place)))

    @cached_property
    def batches(self) -> Mapping[tuple[int, int], tuple[Row, ...]]:
        """(engine step, phase) -> rows."""
        batches: dict[tuple[int, int], list[Row]] = defaultdict(list)
        for row in self.rows:
            batches[row.step, row.phase].append(row)
        return {place: tuple(rows) for place, rows in batches.items()}

    @cached_property
    def decoded(self) -> Mapping[tuple[int, int], int]:
        """(request, round) -> engine step, of decode rounds."""
        return {(row.request, row.round): row.step for row in self.rows if row.phase}

    @cached_property
    def launches(self) -> tuple[Launch, ...]:
        """In the order in which they ran."""
        reported = self.subject.typed("graph.replay", LaunchRecord).items()
        return tuple(sorted(Launch(key.round, key.step, *astuple(launch)) for key, launch in reported))

    def steps_in_force(self, step: int) -> int:
        """The most drafts that a round of an engine step may have: the controller's count, by the reference.

        After a tie of a real model it is the subject's count, whose continuation is another.
        """
        controller = (self.subject if self.ties else self.reference).typed("control.steps", StepsInForce)
        in_force = controller.get(Key(-1, step))
        return in_force.steps if in_force else self.scenario.steps

    def width(self, step: int) -> int:
        """The verify width that the decode batch of an engine step runs at: 1 if no row has drafts."""
        rows = self.batches.get((step, 1), ())
        return self.steps_in_force(step) + 1 if any(row.count for row in rows) else 1

    def drafts_wanted(self, row: Row) -> int:
        """What a decode row plans to draft, within the steps in force; nothing in a batch too large for drafts."""
        if 0 < self.scenario.schedule.draft_batch < len(self.batches[row.step, 1]):
            return 0
        return min(round_plan(self.scenario.requests[row.request], row.round).drafts, self.steps_in_force(row.step))

    def drafts_allowed(self, row: Row, n: int) -> int:
        """K that the plan allows a decode row: what it wants within its limits."""
        request = self.scenario.requests[row.request]
        left = request.budget - (n + 1 - len(request.prompt))
        limit = self.scenario.memory.max_len
        return drafts_allowed(self.drafts_wanted(row), context=n, max_len=limit, budget_left=left)

    def found(self, request: int, round_: int, n: int) -> int | None:
        """How many tokens there were to propose, by the reference's match; None for a draft that does not look."""
        match = self.reference.typed("propose.match", NgramMatch).get(Key(request, round_))
        if match is None:
            return None
        return n + 1 - match.place if match.length else 0

    @cached_property
    def last_step(self) -> int:
        """The last engine step in which something ran; -1 if nothing did."""
        return max((row.step for row in self.rows), default=-1)

    @cached_property
    def tables(self) -> Mapping[tuple[int, int], Mapping[int, int]]:
        """(request, round) -> column -> page."""
        tables: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
        for key, page in self.subject.channel("round.table").items():
            tables[key.request, key.round][key.row] = page  # type: ignore[assignment]
        return tables

    def table_at(self, row: Row) -> Mapping[int, int]:
        """column -> page at a row's engine step; of a prefill's table only what its chunks had reached by then."""
        table = self.tables.get((row.request, row.round), {})
        if row.phase:
            return table
        end = self.starts[row.request, row.chunk] + row.count
        return {column: page for column, page in table.items() if column * self.page_size < end}

    def slot(self, request: int, round_: int, position: int) -> int | None:
        """The slot of a position by the request's own table of that round; None where the table has no page."""
        page = self.tables.get((request, round_), {}).get(position // self.page_size)
        return None if page is None else page * self.page_size + position % self.page_size

    def position(self, request: int, round_: int, slot: int) -> int | None:
        """The position that a slot is of, for one request; None if the slot is not its own."""
        for column, page in self.tables.get((request, round_), {}).items():
            if page == slot // self.page_size:
                return column * self.page_size + slot % self.page_size
        return None

    @cached_property
    def spans(self) -> Mapping[int, tuple[int, int]]:
        """request -> first and last engine step in which it ran."""
        spans: dict[int, tuple[int, int]] = {}
        for row in self.rows:
            first, last = spans.get(row.request, (row.step, row.step))
            spans[row.request] = (min(first, row.step), max(last, row.step))
        return spans

    def ends(self, row: Row) -> bool:
        """Whether a request's last row is this one."""
        return self.spans[row.request][1] == row.step

    def ending(self, step: int, phase: int) -> tuple[Row, ...]:
        """Rows of a batch whose requests end with it."""
        return tuple(row for row in self.batches.get((step, phase), ()) if self.ends(row))

    def phase(self, launch: Launch) -> int:
        """1 for a launch of the decode batch: one after a verify of its step."""
        verified = (one.number for one in self.launches if (one.step, one.kind) == (launch.step, LaunchKind.VERIFY))
        return int(launch.number > min(verified, default=launch.number))

    def state_slot(self, request: int, round_: int) -> int | None:
        """The slot of the recurrent state that a request reports in a round."""
        slot = self.subject.channel("round.state").get(Key(request, round_))
        return slot if isinstance(slot, int) else None

    def context(self, request: int, round_: int) -> int:
        """n of a round: the length that the subject committed before, or that of the script."""
        length = self.subject.channel("commit.length").get(Key(request, round_ - 1))
        if isinstance(length, int):
            return length
        rounds = self.script.requests[request].rounds
        return rounds[round_ - 1].context if 0 < round_ <= len(rounds) else 0

    @cached_property
    def contexts(self) -> Mapping[tuple[int, int], int]:
        """(request, round) -> n, for every decode row."""
        return {(row.request, row.round): self.context(row.request, row.round) for row in self.rows if row.phase}

    @cached_property
    def starts(self) -> Mapping[tuple[int, int], int]:
        """(request, chunk) -> position of the chunk's first token."""
        starts: dict[tuple[int, int], int] = {}
        done: dict[int, int] = defaultdict(int)
        for row in sorted((row for row in self.rows if not row.phase), key=lambda row: (row.request, row.chunk)):
            starts[row.request, row.chunk] = done[row.request]
            done[row.request] += row.count
        return starts

    @cached_property
    def output_changed(self) -> bool:
        """Whether a request's text differs from plain greedy decoding; this ends a report on a draft.

        How rounds cut the text is no part of it: a bad draft is rejected, and then the same tokens take more rounds.
        """
        emitted: dict[int, tuple[int, ...]] = defaultdict(tuple)
        for key, tokens in sorted(self.subject.typed("accept.emitted", TokenIds).items()):
            emitted[key.request] += tokens
        requests = enumerate(self.script.requests)
        return any(emitted[number] != script.tokens for number, script in requests if number not in self.ties)
