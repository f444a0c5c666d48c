"""The conformance test of subjects, run on our own and on subjects that do not conform."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from draftproof.engine.subject import EngineSubject
from draftproof.properties.subject import Subject, conformance
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.values.trace import Key, Observation, Trace
from draftproof.reference.run import ReferenceSubject
from tests.properties.evidence import STATIC, evidence

LENGTH = Observation("commit.length", Key(0, 0), 7)


@dataclass
class Canned:
    """Reports the given traces in turn."""

    traces: list[tuple[Observation, ...]]
    name: str = "canned"
    channels: frozenset[str] = frozenset({"commit.length", "commit.kv", "verify.choice"})

    def run(self, scenario: Scenario, script: Script) -> Trace:
        observations = self.traces.pop(0) if len(self.traces) > 1 else self.traces[0]
        return Trace(self.name, self.channels, observations)


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
        ((LENGTH._replace(value=True),), "allowed: int"),
        ((LENGTH._replace(value="7"),), "allowed: int"),  # type: ignore[arg-type]
        ((Observation("commit.kv", Key(0, 0, layer=0, row=0), b"abc"),), "allowed: vector"),
        ((Observation("verify.choice", Key(0, 1, row=0), (3, 4)),), "allowed: choice"),
    ],
)
def test_what_does_not_conform_is_named(observations: tuple[Observation, ...], problem: str) -> None:
    problems = conformance(Canned([observations]), STATIC, evidence().script)
    assert any(problem in line for line in problems), problems


def test_two_runs_must_agree() -> None:
    subject = Canned([(LENGTH,), (LENGTH._replace(value=8),)])
    assert conformance(subject, STATIC, evidence().script) == ["two runs of one scenario differ"]
