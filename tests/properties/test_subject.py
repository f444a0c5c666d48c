"""The conformance test of subjects, run on our own and on subjects that do not conform."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from draftproof.engine.subject import EngineSubject
from draftproof.properties.conformance import conformance
from draftproof.properties.values import observed as obs
from draftproof.properties.values.channels import CHANNELS
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.values.subject import Subject
from draftproof.properties.values.trace import Key, Observation, Trace
from draftproof.properties.values.valuetypes import malformed
from draftproof.reference.run import ReferenceSubject
from tests.properties.evidence import STATIC, evidence

LENGTH = Observation("commit.length", Key(0, 0), 7)


class Agreeing(int):
    """Equal to whatever it is compared with."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


@dataclass
class Canned(Subject):
    """Reports the given traces in turn."""

    traces: list[tuple[Observation, ...]]
    name: str = "canned"

    def channels(self, scenario: Scenario) -> frozenset[str]:
        return frozenset({"commit.length", "commit.kv", "verify.choice"})

    def run(self, scenario: Scenario, script: Script) -> Trace:
        observations = self.traces.pop(0) if len(self.traces) > 1 else self.traces[0]
        return Trace(self.name, self.channels(scenario), observations)


@pytest.mark.parametrize("subject", [EngineSubject(), ReferenceSubject()], ids=lambda subject: subject.name)
def test_our_own_conform(subject: Subject) -> None:
    assert conformance(subject, STATIC, evidence().script) == []


@pytest.mark.parametrize(
    ("observations", "problem"),
    [
        ((LENGTH, LENGTH), "reported twice"),
        ((Observation("accept.bonus", Key(0, 1), 3),), "not declared"),
        ((LENGTH._replace(key=Key(0, 0, row=2)),), "key fields"),
        ((LENGTH._replace(key=Key(9, 0)),), "no request"),
        ((LENGTH._replace(key=Key(0, -1)),), "no request"),
        ((LENGTH._replace(value=True),), "expected int"),
        ((LENGTH._replace(value=Agreeing(7)),), "expected int"),
        (
            (LENGTH._replace(value="7"),),
            "invalid commit.length Key(request=0, round=0, step=-1, layer=-1, row=-1): '7'",
        ),  # type: ignore[arg-type]
        ((Observation("commit.kv", Key(0, 0, layer=0, row=0), b"abc"),), "expected bytes of 64-bit integers or"),
        ((Observation("verify.choice", Key(0, 1, row=0), (3, 4)),), "expected a tuple (int, float)"),
    ],
)
def test_what_does_not_conform_is_named(observations: tuple[Observation, ...], problem: str) -> None:
    problems = conformance(Canned([observations]), STATIC, evidence().script)
    assert any(problem in line for line in problems), problems


def test_two_runs_must_agree() -> None:
    subject = Canned([(LENGTH,), (LENGTH._replace(value=8),)])
    assert conformance(subject, STATIC, evidence().script) == ["two runs of one scenario differ"]


def _wrong(kind: Any) -> list[Any]:
    """Values that are nearly of a channel's type."""
    if kind is int or kind in (obs.Vector, obs.Choice):
        return [None, (1,), 1.0, True, Agreeing(1), type("Bytes", (bytes,), {})(8)]
    if isinstance(kind, type) and issubclass(kind, IntEnum):
        return [0, None]
    if isinstance(kind, type) and issubclass(kind, obs.Observed):
        fields = msgspec.structs.fields(kind)
        right = kind(*(None for _ in fields))
        return [tuple(range(len(fields))), len(fields), right]
    return [1, [1], (None,), ((1, 2),)]


@pytest.mark.parametrize("channel", sorted(CHANNELS))
def test_a_value_of_the_wrong_type_is_refused_by_name(channel: str) -> None:
    """In every channel, and in every field of its structs."""
    key = Key(0, 1)
    for value in _wrong(CHANNELS[channel].value):
        (problem,) = malformed(Trace("canned", frozenset({channel}), (Observation(channel, key, value),)))
        assert problem.startswith(f"invalid {channel} {key}: {value!r}: expected "), problem


def test_the_wrong_field_of_a_struct_is_refused() -> None:
    right = obs.BatchRow(0, 2, 1, 0, 5)
    for field in right.__struct_fields__:
        wrong = Observation("round.rows", Key(0, 1, step=0), replace(right, **{field: "5"}))
        (problem,) = malformed(Trace("canned", frozenset({"round.rows"}), (wrong,)))
        assert problem.endswith("expected BatchRow(place: int, count: int, phase: int, size: int, step: int)")
    assert not list(malformed(Trace("canned", frozenset(), (Observation("round.rows", Key(0, 1, step=0), right),))))
    elsewhere = obs.LaunchRecord(2, 0, 1, 0, 1, 0)  # type: ignore[arg-type]
    (problem,) = malformed(Trace("canned", frozenset(), (Observation("graph.replay", Key(-1, 0, step=0), elsewhere),)))
    assert "expected LaunchRecord(kind: LaunchKind, " in problem


def test_values_are_compared_and_sorted_like_tuples() -> None:
    places = [obs.WrittenPlace(obs.MemoryRegion(region), place) for region, place in ((1, 0), (0, 9), (0, 3))]
    assert [obs.numbers(one) for one in sorted(places)] == [(0, 3), (0, 9), (1, 0)]
    report = obs.PoolReport(3, 1, (obs.Owner(2, 0), obs.Owner(4, 1)))
    assert obs.numbers(report) == (3, 1, 2, 0, 4, 1)
    assert obs.numbers(np.zeros(2)) == ()


class Nobody(Key):
    """A key that is equal to every other."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = Key.__hash__


class Name(str):
    """A name that is its own."""


@pytest.mark.parametrize(
    ("one", "told"),
    [
        (Observation("commit.length", Nobody(0, 0), 7), "expected a Key of whole numbers"),
        (Observation("commit.length", Key(0.0, 0), 7), "expected a Key of whole numbers"),  # type: ignore[arg-type]
        (Observation("commit.length", (0, 0, -1, -1, -1), 7), "expected a Key"),  # type: ignore[arg-type]
        (Observation(Name("commit.length"), Key(0, 0), 7), "expected Observation(channel, key, value)"),
        (("commit.length", Key(0, 0), 7), "expected Observation(channel, key, value)"),
    ],
)
def test_a_part_of_a_trace_is_of_exactly_its_type(one: Any, told: str) -> None:
    (problem,) = malformed(Trace("canned", frozenset({"commit.length"}), (one,)))
    assert told in problem
    (problem,) = malformed(Trace("canned", frozenset({Name("commit.length")}), ()))
    assert "expected a frozenset of names" in problem
