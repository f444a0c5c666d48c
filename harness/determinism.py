"""Run a subject on the same scenarios again, in one process and in another: what is the first thing that differs?"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from draftproof.harness.execute import SCENARIO_DEADLINE
from draftproof.harness.signals import TimeLimitError, time_limit
from draftproof.harness.subject_crash import SubjectCrashedError
from draftproof.harness.subject_run import closing, run_subject
from draftproof.properties.conformance import equal_values, without_places
from draftproof.properties.diagnosis.compare import in_table, mismatch
from draftproof.properties.fit import UnfitError, fit
from draftproof.properties.formats.determinism import DeterminismReport, RunDifference, RunPlace
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.subject import Subject
from draftproof.properties.values.trace import Key, Trace
from draftproof.properties.values.verdict import Outcome
from draftproof.reference.solved import Solved, for_limits, solved

_RULE = "subject.determinism"
_ADDRESS = re.compile(r"0x[0-9a-f]+")
_DURING = "in a run that is repeated"


class RepeatedRun(NamedTuple):
    """What one run came to: a trace, or what it raised; and the channels that were declared for it."""

    trace: Trace | None
    error: str
    channels: frozenset[str]


def determinism(
    make: Callable[[], Subject],
    scenarios: Callable[[Limits], Sequence[Scenario]],
    versions: Callable[[Subject], dict[str, str]] = lambda _subject: {},
    advance: Callable[[], None] = lambda: None,
) -> DeterminismReport:
    """Run scenarios twice with one subject, one pass after the other, and once with another that is made anew.

    `make` makes a subject in a process of its own, `scenarios` are what one of its limits is asked. The first passes of
    both have the same before them, so that what differs there is of the process: its hashes, addresses, clock or
    seeds. Raises what making it raises.
    """
    with closing(make()) as subject:
        asked = scenarios(subject.limits)
        known = list(_fitting(asked, subject.limits))
        first = _passed(subject, known, advance)
        again = _passed(subject, known, advance)
        name, found, kept = subject.name, versions(subject), subject.limits
    with closing(make()) as other:
        elsewhere = _passed(other, known, advance)
    placed = without_places if kept.persistent else _as_it_is
    differences = (
        next(_differences("the same process", first, again, placed), None),
        next(_differences("another process", first, elsewhere, _as_it_is), None),
    )
    differing = tuple(one for one in differences if one is not None)
    observations = sum(len(one.trace.observations) for one in first if one.trace)
    return DeterminismReport(
        verdict=Outcome.FAIL if differing else Outcome.PASS if observations else Outcome.INCONCLUSIVE,
        subject=name,
        versions=found,
        scenarios=len(known),
        unfit=len(asked) - len(known),
        observations=observations,
        raised=sum(one.trace is None for one in first),
        differences=differing,
    )


def _fitting(scenarios: Sequence[Scenario], limits: Limits) -> Iterator[Solved]:
    for scenario in scenarios:
        try:
            yield for_limits(solved(fit(scenario, limits)), limits)
        except UnfitError:
            continue


def _passed(subject: Subject, known: Sequence[Solved], advance: Callable[[], None]) -> list[RepeatedRun]:
    found = []
    for one in known:
        found.append(_ran(subject, one))
        advance()
    return found


def _ran(subject: Subject, one: Solved) -> RepeatedRun:
    try:
        with time_limit(SCENARIO_DEADLINE + subject.limits.start_seconds):
            trace = run_subject(subject, one.scenario, one.script, _DURING)
            return RepeatedRun(trace, "", subject.channels(one.scenario))
    except SubjectCrashedError as crash:
        return RepeatedRun(None, _ADDRESS.sub("0x..", crash.error), frozenset())
    except TimeLimitError:
        return RepeatedRun(None, f"it did not finish within {SCENARIO_DEADLINE:g} s", frozenset())


def _as_it_is(trace: Trace) -> Trace:
    return trace


def _differences(
    place: RunPlace, first: Sequence[RepeatedRun], second: Sequence[RepeatedRun], comparable: Callable[[Trace], Trace]
) -> Iterator[RunDifference]:
    """Yield the first difference of each scenario that has one."""
    for number, (one, other) in enumerate(zip(first, second, strict=True)):
        if one.error != other.error:
            told = (one.error or "no error", other.error or "no error")
            yield RunDifference(place=place, kind="error", scenario=number, runs=told)
        elif one.channels != other.channels:
            names = (_only(one.channels, other.channels), _only(other.channels, one.channels))
            yield RunDifference(place=place, kind="channels", scenario=number, runs=names)
        elif one.trace and other.trace:
            found = _of_traces(place, number, comparable(one.trace), comparable(other.trace))
            if found is not None:
                yield found


def _only(one: frozenset[str], other: frozenset[str]) -> str:
    return f"{', '.join(sorted(one - other)) or 'nothing'} that the other run does not declare"


def _of_traces(place: RunPlace, scenario: int, one: Trace, other: Trace) -> RunDifference | None:
    """Return the first value that differs, in the order of the channel table; else the first report out of order."""
    differing = [
        (channel, key)
        for channel in sorted(one.index.keys() | other.index.keys())
        for key in one.channel(channel).keys() | other.channel(channel).keys()
        if not equal_values(one.channel(channel).get(key), other.channel(channel).get(key))
    ]
    if differing:
        channel, key = min(differing, key=lambda at: (in_table(*at), at[0]))
        found = mismatch(channel, key, one.channel(channel), other.channel(channel)).divergence(
            _RULE, count=len(differing), total=len(one.observations)
        )
        return RunDifference(
            place=place, kind="value", scenario=scenario, runs=(found.expected, found.got), found=found
        )
    reports = [[(report.channel, report.key) for report in trace.observations] for trace in (one, other)]
    number = next((at for at, (a, b) in enumerate(zip(*reports, strict=True)) if a != b), None)
    if number is None:
        return None
    told = (_report(*reports[0][number]), _report(*reports[1][number]))
    return RunDifference(place=place, kind="order", scenario=scenario, runs=told, number=number)


def _report(channel: str, key: Key) -> str:
    fields = ", ".join(f"{name} {value}" for name, value in key._asdict().items() if value >= 0)
    return f"{channel} ({fields})"
