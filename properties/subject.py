"""What an implementation under test must offer, and the published test that it offers it rightly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from draftproof.properties.values.channels import CHANNELS, Channel
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.values.trace import Datum, Observation, Trace

ENGINE_WIDE = frozenset(
    {
        "commit.written",
        "graph.replay",
        "pool.owners",
        "pool.guards",
        "pool.states",
        "pool.drafts",
        "config.seen",
        "config.routing",
    }
    | {"config.draft", "control.steps", "control.average"}
)
_FIELDS = ("step", "layer", "row")


class Subject(Protocol):
    """An implementation under test. `channels` are those it reports; it must report each wherever it applies."""

    name: str
    channels: frozenset[str]

    def run(self, scenario: Scenario, script: Script) -> Trace:
        """Serve every request of the scenario, steered by the script; what was observed on the way."""
        ...


def conformance(subject: Subject, scenario: Scenario, script: Script) -> list[str]:
    """What is wrong with the form of a subject's traces, one sentence each; says nothing of their content.

    Channels must be declared and known, keys distinct and of the fields that the channel table gives, values of the
    channel's kind, and a second run equal to the first.
    """
    trace, again = subject.run(scenario, script), subject.run(scenario, script)
    problems = list(_form(subject, trace, len(scenario.requests)))
    if not same(trace, again):
        problems.append("two runs of one scenario differ")
    return problems


def same(one: Trace, other: Trace) -> bool:
    """Whether two traces have the same observations in the same order."""
    if len(one.observations) != len(other.observations):
        return False
    pairs = zip(one.observations, other.observations, strict=True)
    return all(a[:2] == b[:2] and _equal(a.value, b.value) for a, b in pairs)


def _equal(one: Datum, other: Datum) -> bool:
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.array_equal(np.asarray(one), np.asarray(other))
    return type(one) is type(other) and one == other


def _form(subject: Subject, trace: Trace, requests: int) -> Iterator[str]:
    unknown = sorted(trace.channels - CHANNELS.keys())
    if unknown:
        yield f"declares channels that the table lacks: {', '.join(unknown)}"
    beyond = sorted(trace.channels - subject.channels)
    if beyond:
        yield f"a trace declares channels that its subject does not: {', '.join(beyond)}"
    for again in trace.duplicates:
        yield f"{again.channel} {again.key} is reported twice"
    for observation in trace.observations:
        if observation.channel not in trace.channels:
            yield f"{observation.channel} is reported and not declared"
        elif observation.channel in CHANNELS:
            yield from _observation(CHANNELS[observation.channel], observation, requests)


def _observation(channel: Channel, observation: Observation, requests: int) -> Iterator[str]:
    key, value = observation.key, observation.value
    at = f"{channel.name} {key}"
    fields = tuple(field for field in _FIELDS if getattr(key, field) >= 0)
    if fields != channel.keys:
        yield f"{at} has the key fields {fields}, allowed: {channel.keys}"
    requests_allowed = range(-1, 0) if channel.name in ENGINE_WIDE else range(requests)
    if key.request not in requests_allowed or key.round < 0:
        yield f"{at} belongs to no request and round of the scenario"
    if not _kind_fits(channel.kind, value):
        yield f"{at} is {type(value).__name__}, allowed: {channel.kind}"


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _kind_fits(kind: str, value: Datum) -> bool:
    if kind == "int":
        return _is_int(value)
    if kind == "ints":
        return isinstance(value, tuple) and all(_is_int(item) for item in value)
    if kind == "choice":
        return isinstance(value, tuple) and len(value) == 2 and _is_int(value[0]) and isinstance(value[1], float)
    if isinstance(value, np.ndarray):
        return value.dtype == np.float64 and value.ndim == 1 and not value.flags.writeable
    return isinstance(value, bytes) and len(value) % 8 == 0
