"""What contracts look at: both traces of a scenario side by side, and what can be read off them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, cast

from draftproof.properties.evidence import comparison
from draftproof.properties.evidence.forms import Form, form_of
from draftproof.properties.evidence.lockstep import Lockstep
from draftproof.properties.evidence.order import RunOrder
from draftproof.properties.evidence.plans import DraftPlans
from draftproof.properties.evidence.prefix_cache import CacheHistory, history
from draftproof.properties.evidence.schedule import Abort, ObservedSchedule, Row
from draftproof.properties.evidence.tables import ObservedTables
from draftproof.properties.evidence.tensor_ranks import TensorRanks
from draftproof.properties.evidence.tolerances import Near, exactly, near
from draftproof.properties.evidence.waits import waited_steps
from draftproof.properties.values.channels import CHANNELS
from draftproof.properties.values.fp8 import draft_keeps, target_keeps
from draftproof.properties.values.limits import NO_LIMITS, Limits
from draftproof.properties.values.observed import Choice, Datum, DiscardedRound, DraftNeeds, LayerKind, PoolReport
from draftproof.properties.values.scenario import Checkpoint, Scenario, columns_freed
from draftproof.properties.values.script import Script
from draftproof.properties.values.trace import Key, Trace
from draftproof.properties.variants import varied


@dataclass(frozen=True)
class Evidence:
    """One scenario that was run: what the reference says, what the subject did, and its run under the drawn variant.

    `varied_reference` and `varied_script` are for the variant's run, where they differ. In evidence of the variant's
    run `base_ties` are the ties of the base run: without taps a run does not show its own. `silent` are the channels
    that the subject declares and the reference has, but in which the subject observed nothing; `limits` is what it can
    run. For a data-parallel rank `lockstep` is what it shares with the others, for a tensor-parallel rank `beside` is
    what all of them did. The evidence of a scenario with ranks is that of the first rank, and `ranks` has the evidence
    of all.
    """

    scenario: Scenario
    script: Script
    reference: Trace
    subject: Trace
    varied: Trace | None = None
    varied_reference: Trace | None = None
    base_ties: comparison.Ties = field(default_factory=dict)
    silent: frozenset[str] = frozenset()
    limits: Limits = NO_LIMITS
    varied_script: Script | None = None
    lockstep: Lockstep | None = None
    beside: TensorRanks | None = None
    ranks: tuple[Evidence, ...] = ()

    @cached_property
    def exact(self) -> bool:
        """Return whether vectors are compared bit for bit."""
        return not isinstance(self.scenario.model, Checkpoint)

    @property
    def hybrid(self) -> bool:
        """Return whether the target has layers with a recurrent state: a real model's reference says so."""
        model = self.scenario.model
        if isinstance(model, Checkpoint):
            return LayerKind.LINEAR_ATTENTION in self.reference.channel("config.routing").values()
        return "linear_attention" in model.types

    @property
    def has_kv_quantization(self) -> bool:
        """Return whether entries of the target are codes with scales."""
        return getattr(self.scenario.model, "kv_bits", 64) < 64

    @cached_property
    def form(self) -> Form:
        """How the scenario's draft runs."""
        needs = self.reference.typed("config.draft", DraftNeeds).get(Key(-1, 0))
        return form_of(self.scenario.draft, needs, self.scenario.tree, self.scenario.step_counts)

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
            script=self.varied_script or self.script,
            reference=self.varied_reference or self.reference,
            subject=self.varied,
            varied=None,
            varied_reference=None,
            base_ties=self.ties,
        )

    def pair(self, channel: str) -> tuple[Mapping[Key, Datum], Mapping[Key, Datum]]:
        """Return a channel as the reference and the subject have it, as far as the two are comparable."""
        expected, got = self.reference.channel(channel), self.subject.channel(channel)
        if channel.startswith("extend."):
            expected, got = comparison.without_optional_extends(self.script, expected, got)
        if self.exact:
            return expected, got
        if channel == "verify.choice":
            expected, got = (_without(side, self.tied_choices) for side in (expected, got))
        if channel == "accept.logprobs":
            got = comparison.without_rounding(self.scenario, self.reference, got)
        if CHANNELS[channel].value == Choice:
            got = comparison.without_margins(cast("comparison.Choices", expected), cast("comparison.Choices", got))
        return self.comparable(channel, expected), self.comparable(channel, got)

    def comparable(self, channel: str, values: Mapping[Key, Datum]) -> Mapping[Key, Datum]:
        """Return what no tie of a real model has made another continuation."""
        before = comparison.before_ties(channel, self._sure(channel, values), self.ties)
        return comparison.without_draft_ties(channel, before, self.draft_ties)

    def near(self, channel: str) -> Near:
        """Return how vectors of a channel are compared: bitwise, or within the bounds for real models."""
        if self.exact or channel in self._kept_in_fp8:
            return exactly
        exact, rounded = self.reference.channel(channel), self.reference.rounded
        first = comparison.of_same_tokens(channel, rounded, self._other_tokens) if rounded else {}
        first = self._sure(channel, first)
        return near(self.scenario, channel, exact, first, partial(self._rounded_again, channel))

    def _sure(self, channel: str, values: Mapping[Key, Datum]) -> Mapping[Key, Datum]:
        """Return what a subject cannot right so have otherwise (S-KV-6)."""
        unsure = self.reference.unsure
        return {key: one for key, one in values.items() if (channel, key) not in unsure} if unsure else values

    @property
    def _kept_in_fp8(self) -> frozenset[str]:
        """Return the channels of entries that are kept in FP8: what is read of them is exact."""
        keeps = {"commit.kv": target_keeps(self.scenario), "extend.kv": draft_keeps(self.scenario.draft)}
        return frozenset(channel for channel, is_kept in keeps.items() if is_kept)

    def _stored_otherwise(self, channel: str) -> Iterator[Key]:
        """Yield where the variant run stored an entry otherwise; the reference judges either."""
        assert self.varied is not None
        other = self.varied.channel(channel)
        for key, entry in self.subject.channel(channel).items():
            if key in other and not exactly(key, cast(Any, entry), cast(Any, other[key])):
                yield key

    def _rounded_again(self, channel: str) -> list[Mapping[Key, Datum]]:
        """Return a channel of more runs in float32, each as far as it is of the same tokens as that in float64."""
        others = partial(comparison.find_other_tokens, self.reference)
        return [comparison.of_same_tokens(channel, run, others(run)) for run in self.reference.rounded_again()]

    @cached_property
    def _other_tokens(self) -> comparison.OtherTokens:
        assert self.reference.rounded is not None
        return comparison.find_other_tokens(self.reference, self.reference.rounded)

    @cached_property
    def ties(self) -> comparison.Ties:
        """The requests of a real model that went on differently after a tie. Probes have none."""
        return {} if self.exact else comparison.find_ties(self.scenario, self.reference, self.subject, self.base_ties)

    @cached_property
    def followed(self) -> frozenset[int]:
        """Return the requests whose text has a right token that is not the best; the reference follows it."""
        return frozenset(request for request, script in enumerate(self.script.requests) if script.followed)

    @cached_property
    def tied_choices(self) -> frozenset[Key]:
        """Where a real model's choice is another, which is tied, and the text does not go on with either."""
        return frozenset() if self.exact else comparison.tied_choices(self.scenario, self.reference, self.subject)

    @cached_property
    def draft_ties(self) -> comparison.DraftTies:
        """The ties of a real model's draft that the reference follows."""
        if self.exact:
            return {}
        return comparison.find_draft_ties(self.scenario, self.form, self.reference, self.subject)

    @cached_property
    def forked_at(self) -> int | None:
        """The engine step from which on a real model's run and its variant may be of other tokens, for a tie.

        None if neither has a tie. Where requests go two ways, batches and pages of all others become others, too.
        """
        if self.exact or self.varied is None:
            return None
        rounds = [*_tied_rounds(self), *_tied_rounds(self.variant_run)]
        rounds += [key[:2] for channel in self._kept_in_fp8 for key in self._stored_otherwise(channel)]
        return min((self.schedule.steps.get(place, 0) for place in rounds), default=None)

    @cached_property
    def schedule(self) -> ObservedSchedule:
        """Which rows and launches the subject ran, when, and together."""
        until = self.lockstep.last_step if self.lockstep else -1
        own = self.scenario.schedule
        seen = ObservedSchedule(self.subject, self.aborts, until, own.disaggregation, own.overlap)
        return replace(seen, waited=waited_steps(self.scenario, seen))

    @cached_property
    def aborts(self) -> Mapping[int, Abort]:
        """The requests that were aborted or refused, when, and how many of their rounds had ended (S-SCHED-9)."""
        both = enumerate(zip(self.scenario.requests, self.script.requests, strict=True))
        return {
            index: Abort(request.leaves_at, solved.ended)
            for index, (request, solved) in both
            if solved.aborted and request.leaves_at is not None
        }

    def preempted(self, step: int) -> frozenset[int]:
        """Return the requests that own no page after an engine step, and run again later."""
        report = self.subject.typed("pool.owners", PoolReport).get(Key(-1, step))
        owners = {owner.request for owner in report.owners} if report else set()
        return self.schedule.paused(step) - owners

    @cached_property
    def order(self) -> RunOrder:
        """What comes before what in the subject's run."""
        return RunOrder(self.schedule)

    def freed_before(self, request: int, number: int) -> int:
        """Return how many columns of its table a request gave back before a decode round (S-WINDOW-3)."""
        if not self.scenario.widest_window or (request, number) in self.schedule.resumed:
            return 0
        before = self.schedule.in_flight_before(request, number)
        if before is None:
            return columns_freed(self.scenario, self.contexts.get((request, number), 0))
        return columns_freed(self.scenario, self.contexts[request, before.round]) if before.phase else 0

    def freed_after(self, row: Row, step: int) -> int:
        """Return how many columns the request of a row, the last of its round, gave back by the start of a step."""
        place = row.request, row.round
        if not self.scenario.widest_window or step <= row.step or self.schedule.ends[place] > row.step:
            return 0
        if step <= self.schedule.done(row):
            # The host knows of the round before.
            return columns_freed(self.scenario, self.contexts[place]) if row.phase else 0
        return columns_freed(self.scenario, self.subject.typed("commit.length", int).get(Key(*place), 0))

    def kept_table(self, row: Row, step: int) -> dict[int, int]:
        """Return column -> page of what a request holds when a step begins; `row` is its last row before that step."""
        freed = self.freed_after(row, step)
        return {column: page for column, page in self.tables.at(row).items() if column >= freed}

    @cached_property
    def tables(self) -> ObservedTables:
        """The page tables and state slots that the subject reports."""
        return ObservedTables(self.subject, self.page_size, self.schedule)

    @cached_property
    def prefixes(self) -> CacheHistory:
        """What a prefix cache holds and serves in this run, by definition."""
        return history(self.scenario, self.script, self.tables, self.form.lookahead, is_hybrid=self.hybrid)

    @property
    def caches_states(self) -> bool:
        """Return whether a prefix cache is asked for that keeps recurrent states."""
        return self.hybrid and self.scenario.schedule.prefix_cache

    @cached_property
    def plans(self) -> DraftPlans:
        """How many drafts each round may have."""
        controller = self.subject if self.ties else self.reference
        return DraftPlans(self.scenario, self.script, self.reference, controller, self.schedule)

    @cached_property
    def contexts(self) -> Mapping[tuple[int, int], int]:
        """Return n of every decode row by (request, round): the length committed before, else the script's."""
        lengths = self.subject.typed("commit.length", int)
        known: dict[tuple[int, int], int] = {}
        for request, number in self.schedule.decode_steps:
            rounds = self.script.requests[request].rounds
            solved = rounds[number - 1].context if 0 < number <= len(rounds) else 0
            known[request, number] = lengths.get(Key(request, number - 1), solved)
        return known

    def length_after(self, row: Row) -> int:
        """Return the length of a request after a row as the subject reports it; that before it if it does not.

        Of a round that was discarded it says what the device committed.
        """
        place = (row.request, row.round)
        discarded = self.discarded.get(Key(*place))
        if discarded:
            return discarded.context + discarded.committed
        return self.subject.typed("commit.length", int).get(Key(*place), self.contexts.get(place, 0))

    @property
    def discarded(self) -> Mapping[Key, DiscardedRound]:
        """The rounds that requests ran after they had ended, as the subject reports them (S-OVERLAP-5)."""
        return self.subject.typed("overlap.discarded", DiscardedRound)

    def depth(self, row: Row) -> int:
        """Return how many drafts a decode row may have; of a tree, how many levels of them."""
        return self.plans.drafts_allowed(row, self.contexts[row.request, row.round]) if self.form.tree else row.count

    def columns(self, row: Row) -> int:
        """Return how many columns of the page table a decode row takes from its context on."""
        return max(row.count + 1, self.scenario.columns(self.depth(row)))

    @cached_property
    def output_changed(self) -> bool:
        """Return whether the text of a request without a tie differs from plain greedy decoding.

        How rounds cut the text is no part of it: a bad draft is rejected, and then the same tokens take more rounds.
        """
        texts, requests = self.subject.texts, enumerate(self.script.requests)
        return any(texts.get(number, ()) != solved.tokens for number, solved in requests if number not in self.ties)


def _without(values: Mapping[Key, Datum], keys: frozenset[Key]) -> Mapping[Key, Datum]:
    return {key: value for key, value in values.items() if key not in keys} if keys else values


def _tied_rounds(one: Evidence) -> Iterator[tuple[int, int]]:
    """Yield (request, round) of every tie of a run: of experts, of a draft, and of the text."""
    yield from ((request, order[0]) for request, order in one.ties.items())
    yield from ((request, start[0]) for request, spans in one.draft_ties.items() for start, _ in spans)
    yield from (key[:2] for _, key in one.reference.unsure)
    for request in one.followed:
        pairs = enumerate(one.reference.token_gaps[request])
        first = next((place for place, gap in pairs if gap.below > 0), None)
        if first is not None:
            yield request, comparison.round_of(one.subject, request, first)
