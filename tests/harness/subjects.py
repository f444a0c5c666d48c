"""Stand-ins for an engine: right but for one thing."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from draftproof.engine.subject import EngineSubject
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.values.subject import Subject
from draftproof.properties.values.trace import Observation, Trace

Change = Callable[[Observation], Observation]


@lru_cache(maxsize=64)
def _ran(scenario: Scenario, script: Script) -> Trace:
    """The engine's trace, which several stand-ins alter."""
    return EngineSubject().run(scenario, script)


@dataclass
class Altered(Subject):
    """The engine, with every observation passed through `change`."""

    change: Change
    name: str = "altered"

    def channels(self, scenario: Scenario) -> frozenset[str]:
        return EngineSubject().channels(scenario)

    def run(self, scenario: Scenario, script: Script) -> Trace:
        trace = _ran(scenario, script)
        return replace(trace, observations=tuple(self.change(one) for one in trace.observations))


class Retold(Subject):
    """The engine, with every trace passed through `change`."""

    name = "retold"

    def __init__(self, change: Callable[[Trace], Trace], channels: frozenset[str] | None = None) -> None:
        self._change, self._channels = change, channels

    def channels(self, scenario: Scenario) -> frozenset[str]:
        return self._channels or EngineSubject().channels(scenario)

    def run(self, scenario: Scenario, script: Script) -> Trace:
        return self._change(_ran(scenario, script))


def one_ahead(observation: Observation) -> Observation:
    """The seed bug, as it shows."""
    if observation.channel != "draft.step.positions":
        return observation
    return observation._replace(value=observation.value + 1)  # type: ignore[operator]


def as_it_is(observation: Observation) -> Observation:
    return observation


@dataclass
class Raising(Altered):
    """Raises in every run."""

    def run(self, scenario: Scenario, script: Script) -> Trace:
        raise IndexError("page 9 is out of range")


@dataclass
class Sleeping(Altered):
    """Never comes back in time."""

    def run(self, scenario: Scenario, script: Script) -> Trace:
        time.sleep(30)
        return super().run(scenario, script)


class Idle(EngineSubject):
    """Crashes before it calls anything."""

    name = "idle"

    def run(self, scenario: Scenario, script: Script) -> Trace:
        raise IndexError("page 9 is out of range")
