"""A published test of a subject: whether its traces have the form that contracts read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from draftproof.properties.values.channel import Channel
from draftproof.properties.values.channels import CHANNELS, START_CHANNELS
from draftproof.properties.values.observed import Datum
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.script import Script, steering
from draftproof.properties.values.subject import Subject, require_subject
from draftproof.properties.values.trace import Observation, Trace
from draftproof.properties.values.valuetypes import malformed

_FIELDS = ("step", "layer", "row")


def conformance(subject: Subject, scenario: Scenario, script: Script) -> list[str]:
    """Return what is wrong with the form of a subject's traces, one sentence each; their content is not judged.

    Channels must be declared and known, keys distinct and of the fields that the channel table gives, values of the
    channel's type, and a second run equal to the first.
    """
    require_subject(subject)
    trace, again = (subject.run(scenario, steering(script)) for _ in range(2))
    declared = subject.channels(scenario)
    problems = [*_form(declared, trace, len(scenario.requests)), *malformed(trace)]
    comparable = without_places if subject.limits.persistent else _as_it_is
    if not same_observations(comparable(trace), comparable(again)):
        problems.append("two runs of one scenario differ")
    return problems


def same_observations(one: Trace, other: Trace) -> bool:
    """Return whether two traces have the same observations in the same order."""
    if len(one.observations) != len(other.observations):
        return False
    pairs = zip(one.observations, other.observations, strict=True)
    return all(a[:2] == b[:2] and equal_values(a.value, b.value) for a, b in pairs)


def equal_values(one: Datum | None, other: Datum | None) -> bool:
    """Return whether two values of a channel are of one type and equal, element by element; None is none."""
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.array_equal(np.asarray(one), np.asarray(other))
    return type(one) is type(other) and one == other


def _as_it_is(trace: Trace) -> Trace:
    return trace


def without_places(trace: Trace) -> Trace:
    """Return the trace without pages and slots: an engine that lives on may have others in its second run."""
    kept = (one for one in trace.observations if one.channel not in CHANNELS or not CHANNELS[one.channel].is_placed)
    return replace(trace, observations=tuple(kept))


def _form(declared: frozenset[str], trace: Trace, requests: int) -> Iterator[str]:
    unknown = sorted((declared | trace.channels) - CHANNELS.keys())
    if unknown:
        yield f"declares channels that the table lacks: {', '.join(unknown)}"
    beyond = sorted(trace.channels - declared)
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
    key = observation.key
    at = f"{channel.name} {key}"
    fields = tuple(field for field in _FIELDS if getattr(key, field) >= 0)
    if fields != channel.keys:
        yield f"invalid key fields {fields} of {at}: expected {channel.keys}"
    requests_allowed = range(-1, 0) if channel.scope == "engine" else range(requests)
    if key.request not in requests_allowed or key.round < (-1 if channel.name in START_CHANNELS else 0):
        yield f"{at} belongs to no request and round of the scenario"
