"""Indices too narrow for a deployment, in traces that are otherwise right."""

import pytest
from msgspec.structs import replace

from draftproof.engine.subject import EngineSubject
from draftproof.properties.contracts.registry import find
from draftproof.properties.values.observed import IndexBytes
from draftproof.properties.values.relations import Missing, OutOfRange, Surplus
from draftproof.properties.values.trace import Key, Observation
from tests.properties.evidence import CHAIN, STATIC, evidence, with_observations

AT = Key(-1, 0)
OTHERS = tuple(one for one in evidence().subject.observations if one.channel != "config.index_bytes")


def relations(*reported: Observation) -> list[object]:
    found = find("config.capacity").check(with_observations(evidence(), (*OTHERS, *reported)))
    return [one.relation for one in found]


@pytest.mark.parametrize("field", IndexBytes.__struct_fields__)
def test_an_index_of_one_or_two_bytes_is_found_wherever_it_is(field: str) -> None:
    wide = IndexBytes(*[4] * 6)
    assert relations(Observation("config.index_bytes", AT, wide)) == []
    for size in (1, 2):
        narrow = replace(wide, **{field: size})
        assert relations(Observation("config.index_bytes", AT, narrow)) == [OutOfRange()]


def test_it_is_said_once() -> None:
    one = Observation("config.index_bytes", AT, IndexBytes(*[8] * 6))
    assert relations() == [Missing()]
    assert relations(one, one._replace(key=Key(-1, 3))) == [Surplus()]


@pytest.mark.parametrize("scenario", [STATIC, CHAIN], ids=["eagle", "mtp"])
def test_the_engine_says_it_of_every_kind_of_index(scenario: object) -> None:
    of = evidence(scenario=scenario)  # type: ignore[arg-type]
    trace = EngineSubject().run(of.scenario, of.script)
    assert trace.typed("config.index_bytes", IndexBytes) == {AT: IndexBytes(*[8] * 6)}
