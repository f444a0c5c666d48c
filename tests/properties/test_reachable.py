"""What an engine keeps after its requests: a trace that grows, and a walk that sees what is kept."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from msgspec.structs import replace

from draftproof.engine.exchange import Exchange
from draftproof.engine.grammar import GrammarStates
from draftproof.engine.kv_transfer import KvTransfer
from draftproof.engine.pages import PagePool
from draftproof.engine.prefix_cache import PrefixCache
from draftproof.engine.stages import PrefillRow
from draftproof.engine.subject import EngineSubject
from draftproof.engine.subject.reachable import footprint, nodes_beyond
from draftproof.properties.contracts.registry import find
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.lib.paths import put_in
from draftproof.properties.values.grammar import Grammar, end_token
from draftproof.properties.values.observed import KEPT_EVERY, Footprint, Holdings
from draftproof.properties.values.relations import Different, Missing, Surplus
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.trace import Observation
from draftproof.reference.solve import solve
from tests.named import named
from tests.properties.evidence import ADAPTIVE, CACHED, DISAGGREGATED, STATIC, TWICE, evidence, with_observations


def reported(change: object) -> list[object]:
    of = evidence(scenario=TWICE)
    left = [one for one in of.subject.observations if one.channel == "pool.reachable"]
    others = [one for one in of.subject.observations if one.channel != "pool.reachable"]
    told: Evidence = with_observations(of, (*others, *change(*left)))  # type: ignore[operator]
    return [one.relation for one in find("memory.reachable").check(told)]


@pytest.mark.parametrize("field", Footprint.__struct_fields__)
def test_whatever_grows_from_service_to_service_is_found(field: str) -> None:
    def grown(first: Observation, second: Observation) -> tuple[Observation, ...]:
        more = getattr(second.value, field) + 1
        return first, second._replace(value=replace(second.value, **{field: more}))  # type: ignore[type-var]

    assert reported(lambda first, second: (first, second)) == []
    assert reported(grown) == [Different()]


def test_both_services_are_told_of_and_no_third_one() -> None:
    assert reported(lambda first, second: (first,)) == [Missing()]
    third = {"step": 3}
    assert reported(lambda first, second: (first, second, second._replace(key=second.key._replace(**third)))) == [
        Surplus()
    ]


def test_only_a_scenario_that_is_served_twice_is_held_to_it() -> None:
    contract = find("memory.reachable")
    assert contract.applies(evidence(scenario=TWICE))
    assert not contract.applies(evidence(scenario=STATIC))
    assert not contract.applies(evidence(scenario=put_in(TWICE, "schedule", services=1)))


def kept(step: int, change: Callable[[Holdings], Holdings], of: Evidence) -> list[str]:
    def changed(one: Observation) -> Observation:
        return one._replace(value=change(one.value)) if one.key.round == step else one  # type: ignore[arg-type]

    told = [changed(one) if one.channel == "pool.kept" else one for one in of.subject.observations]
    return [one.contract for one in find("memory.kept").check(with_observations(of, told))]


@pytest.mark.parametrize(
    "change",
    [
        lambda one: replace(one, requests=(0, *one.requests)),
        lambda one: replace(one, requests=one.requests[:-1]),
        lambda one: replace(one, tensor_bytes=one.tensor_bytes + 8),
        lambda one: replace(one, nodes=1),
    ],
    ids=["twice, or after its end", "not at all", "a tensor more", "a node of no tree"],
)
def test_what_is_kept_is_of_requests_that_have_not_ended(
    change: Callable[[Holdings], Holdings],
) -> None:
    of = evidence(scenario=STATIC)
    looks = [one.key.round for one in of.subject.observations if one.channel == "pool.kept"]
    step = next(step for step in looks[1:] if step % KEPT_EVERY)
    assert kept(step, lambda one: one, of) == []
    assert kept(step, change, of) == ["memory.kept"]


def test_a_request_that_was_aborted_while_it_waited_is_kept_until_then() -> None:
    case = named("aborted")
    trace = EngineSubject().run(case, solve(case))
    reports = {one.key.round: one.value for one in trace.observations if one.channel == "pool.kept"}
    aborted = {one: request.abort_at for one, request in enumerate(case.requests) if request.abort_at is not None}
    assert aborted
    for one, step in aborted.items():
        assert all(one not in report.requests for at, report in reports.items() if at >= step)


def test_a_walk_counts_what_is_kept_and_leaves_observers_out() -> None:
    watcher = SimpleNamespace(log=[])
    engine = SimpleNamespace(requests={}, kept=[torch.zeros(4)], watcher=watcher)
    before = footprint(engine, without=(watcher,))
    watcher.log.extend([object()] * 5)
    assert footprint(engine, without=(watcher,)) == before
    engine.kept.append(engine.kept[0][:2])
    shared = footprint(engine, without=(watcher,))
    assert (shared.objects, shared.entries) == (before.objects + 1, before.entries + 1)
    assert shared.tensor_bytes == before.tensor_bytes == 16
    engine.requests[7] = None
    engine.kept.append(torch.zeros(2, dtype=torch.int64))
    grown = footprint(engine, without=(watcher,))
    assert (grown.entries, grown.tensor_bytes) == (shared.entries + 2, 32)


def test_kinds_that_are_judged_otherwise_are_left_out() -> None:
    engine = SimpleNamespace(pool=PagePool((1, 2, 3)), requests={})
    before = footprint(engine, kinds=(PagePool,))
    assert engine.pool.take() == 1
    assert footprint(engine, kinds=(PagePool,)) == before
    engine.requests[7] = None
    assert footprint(engine, kinds=(PagePool,)) != before


def left(scenario: Scenario) -> list[object]:
    twice = put_in(scenario, "schedule", services=2)
    trace = EngineSubject().run(twice, solve(twice))
    return [one.value for one in trace.observations if one.channel == "pool.reachable"]


@pytest.mark.parametrize("scenario", [DISAGGREGATED, CACHED, ADAPTIVE], ids=["disaggregation", "cached", "adaptive"])
def test_a_healthy_engine_keeps_nothing_beside_another_engine_a_cache_or_a_controller(scenario: Scenario) -> None:
    first, second = left(scenario)
    assert first == second


def test_copies_that_an_engine_keeps_of_requests_it_was_handed_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    install = Exchange.install

    def keeping(self: Exchange, rows: tuple[PrefillRow, ...]) -> None:
        kept: list[KvTransfer | None] = [self.scheduler.find(row.request.id).waited.transfer for row in rows]
        install(self, rows)
        self.kept = [*getattr(self, "kept", ()), *kept]

    monkeypatch.setattr(Exchange, "install", keeping)
    first, second = left(DISAGGREGATED)
    assert isinstance(first, Footprint)
    assert isinstance(second, Footprint)
    assert second.tensor_bytes > first.tensor_bytes


def test_a_grammar_that_stays_beside_a_cache_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GrammarStates, "release", lambda self, request: None)
    grammar, stops = Grammar(pattern="([ab]|cc?[ab])*"), (end_token(CACHED.model.vocab),)
    constrained = tuple(replace(one, grammar=grammar, stops=stops) for one in CACHED.requests)
    first, second = left(replace(CACHED, requests=constrained))
    assert first != second


def test_nodes_that_a_cache_keeps_of_evicted_pages_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = PrefixCache(page_size=2, lookahead=0, keeps=True)
    cache.insert((1, 2, 3, 4, 5), extended=4, pages=(1, 2), locked=())
    gone = next(node for node in cache.nodes() if node.page == 2)
    cache.evict(1)
    assert nodes_beyond(cache) == 0
    monkeypatch.setattr(cache, "gone", [gone], raising=False)
    assert nodes_beyond(cache) == 1
