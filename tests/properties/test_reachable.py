"""What an engine keeps after its requests: a trace that grows, and a walk that sees what is kept."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from msgspec.structs import replace

from draftproof.engine.subject.reachable import footprint
from draftproof.properties.contracts.registry import find
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.values.observed import Footprint
from draftproof.properties.values.paths import put_in
from draftproof.properties.values.relations import Different, Missing, Surplus
from draftproof.properties.values.trace import Observation
from tests.properties.evidence import ADAPTIVE, STATIC, TWICE, evidence, with_observations


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
    assert not put_in(ADAPTIVE, "schedule", services=2).is_served_twice


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
