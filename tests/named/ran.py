"""Runs of the engine on named scenarios, each once in a process: most tests read the same ones."""

from functools import cache

from draftproof.engine.subject import EngineSubject
from draftproof.harness.lockstep import evidence
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.values.scenario import Scenario
from tests.named import named


@cache
def ran(scenario: Scenario) -> Evidence:
    return evidence(EngineSubject(), scenario)


def ran_named(name: str) -> Evidence:
    return ran(named(name))
