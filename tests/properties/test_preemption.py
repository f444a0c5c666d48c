"""Pages on demand: requests give way and come back, and nothing else of them changes (S-SCHED-8)."""

import dataclasses

from draftproof.harness.lockstep import evidence as lockstep
from draftproof.properties.contracts.base import Contract
from draftproof.properties.contracts.registry import find
from draftproof.properties.coverage.counts import counts
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.judge import judge
from draftproof.properties.lib.paths import put_in
from draftproof.properties.values.relations import Missing, OutOfOrder, OutOfRange, Surplus
from draftproof.properties.values.scenario import Scenario
from tests.properties.breaking import later
from tests.properties.evidence import PREEMPTED, EngineSubject, by_engine

ON_DEMAND: Contract = find("schedule.preemption")


def test_requests_that_give_way_emit_what_they_would_have() -> None:
    few = by_engine(PREEMPTED)
    plenty = lockstep(EngineSubject(), put_in(PREEMPTED, "memory", pages=18))
    assert judge(few).passed
    assert judge(plenty).passed
    assert counts(few)["preemptions"] > 1
    assert not counts(plenty)["preemptions"]
    assert few.subject.texts == plenty.subject.texts


def _relation(of: Evidence) -> object:
    (found,) = ON_DEMAND.check(of)
    return type(found.relation)


def _with(of: Evidence, scenario: Scenario) -> Evidence:
    return dataclasses.replace(of, scenario=scenario)


def test_giving_way_without_need_is_noticed() -> None:
    of = by_engine(PREEMPTED)
    plenty = put_in(PREEMPTED, "memory", pages=40)
    assert _relation(_with(of, plenty)) in (OutOfRange, Missing)


def test_a_request_that_comes_late_is_noticed() -> None:
    of = by_engine(PREEMPTED)
    first = min(of.schedule.spans, key=lambda request: of.schedule.spans[request])
    assert _relation(later(of, first, by=30)) in (Missing, OutOfOrder, Surplus)
