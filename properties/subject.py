"""What an implementation under test must offer, and a published test that it offers it rightly.

An engine of your own becomes a subject in one class: give each request of the scenario its prompt and its limits,
verify the script's forced drafts where it has any, and report what happened on the channels that you can see. Two are
enough to begin with: `propose.tokens`, the drafts of a round as a tuple of ids, and `accept.emitted`, the tokens that
it emitted. Every further channel lets more contracts judge your engine; values/channels.py lists them with the type
of their values, values/observed.py has the structs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, get_args

import numpy as np

from draftproof.properties.values.channel import Channel
from draftproof.properties.values.channels import CHANNELS
from draftproof.properties.values.observed import Datum
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.script import Finish, Script, steering
from draftproof.properties.values.trace import Observation, Trace
from draftproof.properties.values.valuetypes import malformed

_FIELDS = ("step", "layer", "row")


class Subject(Protocol):
    """An implementation under test. One that commits the last run uncut says so: `finish = "uncut"` (see `Finish`)."""

    name: str
    """What reports call it."""
    channels: frozenset[str]
    """The channels that it can report. Where one applies to a scenario, its traces must declare and report it."""

    def run(self, scenario: Scenario, script: Script) -> Trace:
        """Serve every request of the scenario and return what was observed on the way.

        `script.requests[i].rounds[r - 1].forced` are the drafts to verify in round r of request i in place of the
        engine's own (None: its own; script.forced says it for dynamic scenarios). What the run has to show, the script
        does not say: see script.steering. A run must be repeatable, must not change its arguments, and may raise: the
        exception becomes a crash in the verdict, with its traceback.
        """
        ...


def finish_of(subject: Subject) -> Finish:
    """Return what a subject declares as its `finish`: "cut" if it says nothing. Raises ValueError for anything else."""
    declared: Finish = getattr(subject, "finish", "cut")
    if declared not in get_args(Finish):
        raise ValueError(
            f"invalid finish {declared!r} of {subject.name}: expected one of {', '.join(get_args(Finish))}"
        )
    return declared


def conformance(subject: Subject, scenario: Scenario, script: Script) -> list[str]:
    """Return what is wrong with the form of a subject's traces, one sentence each; their content is not judged.

    Channels must be declared and known, keys distinct and of the fields that the channel table gives, values of the
    channel's type, and a second run equal to the first.
    """
    trace, again = (subject.run(scenario, steering(script)) for _ in range(2))
    problems = [*_form(subject, trace, len(scenario.requests)), *malformed(trace)]
    if not same(trace, again):
        problems.append("two runs of one scenario differ")
    return problems


def same(one: Trace, other: Trace) -> bool:
    """Return whether two traces have the same observations in the same order."""
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
    key = observation.key
    at = f"{channel.name} {key}"
    fields = tuple(field for field in _FIELDS if getattr(key, field) >= 0)
    if fields != channel.keys:
        yield f"invalid key fields {fields} of {at}: expected {channel.keys}"
    requests_allowed = range(-1, 0) if channel.scope == "engine" else range(requests)
    if key.request not in requests_allowed or key.round < 0:
        yield f"{at} belongs to no request and round of the scenario"
