"""What a subject declares in its limits is allowed to it, to no other, and within bounds."""

import time
from dataclasses import replace

import msgspec
import pytest

from draftproof.harness.execute import Executor
from draftproof.harness.lockstep import evidence
from draftproof.harness.workers.messages import Order
from draftproof.properties.judge import judge
from draftproof.properties.validate import validate
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.scenario import Scenario, Schedule
from draftproof.properties.values.script import Script
from draftproof.properties.values.trace import Key, Observation, Trace
from draftproof.properties.values.verdict import Outcome
from tests.harness.foreign import CHANNELS, Foreign
from tests.properties.evidence import NGRAM, request, said

SERIAL = Limits(drafts=("ngram",), arrivals="serial", max_rows=1, variants=())
PROMPT = (3, 4, 2, 1, 3, 4, 2, 0)
SCENARIO = validate(
    msgspec.structs.replace(
        NGRAM,
        schedule=Schedule(max_batch=1, chunk=4),
        requests=(
            said(request(0, 8, 9, "3/1 2/-1 3/-1 0/0"), *PROMPT),
            said(request(0, 8, 9, "3/-1 3/0 3/1 3/-1"), *PROMPT[:7], 1),
        ),
    )
)


def limits(**changes: object) -> Limits:
    return msgspec.structs.replace(SERIAL, **changes)


def failed(subject: Foreign, scenario: Scenario = SCENARIO) -> set[str]:
    return {name for name, found in judge(evidence(subject, scenario)).results.items() if found}


def test_it_passes_as_it_is() -> None:
    of = evidence(Foreign(SERIAL), SCENARIO)
    judged = judge(of)
    assert judged.passed, judged.first
    for name in ("schedule.legal", "schedule.cached", "schedule.attempts", "pool.ownership", "total.counted"):
        assert name in judged.results
    assert any(round_.forced is None and round_.drafts for one in of.script.requests for round_ in one.rounds)


OWN_CHUNKS = limits(chunks="own")


@pytest.mark.parametrize("chunk", [1, 3, 5, 100])
def test_chunks_of_its_own_are_for_whoever_declares_them(chunk: int) -> None:
    assert failed(Foreign(OWN_CHUNKS, chunk=chunk)) == set()
    assert failed(Foreign(SERIAL, chunk=chunk)) == ({"schedule.legal"} if chunk > 4 else set())


class Short(Foreign):
    """Says of one chunk that it had a token less."""

    def run(self, scenario: Scenario, script: Script) -> Trace:
        trace = super().run(scenario, script)

        def told(one: Observation) -> Observation:
            if (one.channel, one.key) != ("round.rows", Key(1, 0, step=0)):
                return one
            return one._replace(value=msgspec.structs.replace(one.value, count=one.value.count - 1))

        return replace(trace, observations=tuple(map(told, trace.observations)))


def test_chunks_of_its_own_cover_the_prompt_all_the_same() -> None:
    assert failed(Short(OWN_CHUNKS, chunk=5)) == {"schedule.legal"}


@pytest.mark.parametrize("ahead", [1, 2])
def test_pages_ahead_are_for_whoever_declares_them(ahead: int) -> None:
    assert failed(Foreign(limits(allocation="ahead"), ahead=ahead)) == set()
    assert failed(Foreign(SERIAL, ahead=ahead)) == {"pool.ownership"}


def test_pages_too_far_ahead_are_a_leak() -> None:
    assert failed(Foreign(limits(allocation="ahead"), ahead=9)) == {"pool.ownership"}


class Disowning(Foreign):
    """Gives one page back while it is in use."""

    def run(self, scenario: Scenario, script: Script) -> Trace:
        trace = super().run(scenario, script)

        def told(one: Observation) -> Observation:
            if (one.channel, one.key) != ("pool.owners", Key(-1, 1)):
                return one
            report = one.value
            return one._replace(
                value=msgspec.structs.replace(report, owners=report.owners[1:], free_pages=report.free_pages + 1)
            )

        return replace(trace, observations=tuple(map(told, trace.observations)))


@pytest.mark.parametrize("allocation", ["exact", "ahead"])
def test_a_page_in_use_is_owned(allocation: str) -> None:
    assert failed(Disowning(limits(allocation=allocation))) == {"pool.ownership"}


CACHES = limits(own_prefix_cache=True)


def test_a_prefix_cache_is_for_whoever_declares_it() -> None:
    assert failed(Foreign(CACHES, cached=6)) == set()
    assert "schedule.cached" in failed(Foreign(SERIAL, cached=6))


@pytest.mark.parametrize("cached", [4, 7, 9])
def test_what_is_cached_are_whole_pages_that_somebody_ran(cached: int) -> None:
    """Pages have three tokens; the prompts agree in seven."""
    assert "schedule.cached" in failed(Foreign(CACHES, cached=cached, only=CHANNELS - {"round.table"}))


PREEMPTS = limits(own_preemption=True)
AGAIN = frozenset({(0, 2), (1, 1), (1, 3)})


def test_preemption_is_for_whoever_declares_it() -> None:
    assert failed(Foreign(PREEMPTS, preempted=AGAIN)) == set()
    assert failed(Foreign(SERIAL, preempted=AGAIN)) == {"schedule.attempts"}


def test_after_a_preemption_all_tokens_run_again() -> None:
    assert failed(Foreign(PREEMPTS, preempted=AGAIN, lost=1)) == {"schedule.legal"}


class Slow(Foreign):
    """Takes a while for every run."""

    def run(self, scenario: Scenario, script: Script) -> Trace:
        time.sleep(0.4)
        return super().run(scenario, script)


def test_the_first_scenario_may_take_as_long_as_a_model_takes_to_load() -> None:
    order = Order(number=0, scenario=SCENARIO, measured=False)
    assert Executor(Slow(SERIAL), deadline=0.2).examine(order).outcome is Outcome.HANG
    patient = Executor(Slow(limits(start_seconds=60.0)), deadline=0.2)
    assert patient.examine(order).outcome is Outcome.PASS
    assert patient.examine(order).outcome is Outcome.HANG


class Wrong(Foreign):
    """Says something else on one channel."""

    change: tuple[str, object] = ("", 0)

    def run(self, scenario: Scenario, script: Script) -> Trace:
        trace = super().run(scenario, script)
        channel, value = self.change
        told = tuple(one._replace(value=value) if one.channel == channel else one for one in trace.observations)
        return replace(trace, observations=told)


TOTALS = ("total.rounds", "total.drafts", "total.accepted", "total.accepted_at")


@pytest.mark.parametrize("only", [CHANNELS, frozenset({"accept.emitted", *TOTALS})], ids=["rounds", "totals only"])
@pytest.mark.parametrize("channel", TOTALS)
def test_totals_are_those_of_the_rounds(channel: str, only: frozenset[str]) -> None:
    subject = Wrong(SERIAL, only=only)
    assert failed(subject) == set()
    right = subject.run(SCENARIO, evidence(subject, SCENARIO).script).channel(channel)[Key(-1, 0)]
    more = (right[0] + 1, *right[1:]) if isinstance(right, tuple) else right + 1
    subject.change = (channel, more)
    assert failed(subject) == {"total.counted"}


def test_near_a_limit_whoever_chooses_its_drafts_may_count_more() -> None:
    """But not in the rounds before, and not fewer."""
    free = limits(steering="none")
    plans = request(0, 8, 9, "3/-1")
    scenario = msgspec.structs.replace(SCENARIO, requests=(said(plans, *PROMPT), said(plans, *PROMPT[:7], 1)))
    subject = Wrong(free, only=frozenset({"accept.emitted", *TOTALS}))
    drafts = subject.run(scenario, evidence(subject, scenario).script).channel("total.drafts")[Key(-1, 0)]
    outcomes = {}
    for more in (-1, 0, 1, 100):
        subject.change = ("total.drafts", drafts + more)
        outcomes[more] = failed(subject, scenario)
    assert outcomes == {-1: {"total.counted"}, 0: set(), 1: set(), 100: {"total.counted"}}
