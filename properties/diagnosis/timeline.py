"""Compare both sides round by round: the drawing of a finding in a report."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from operator import itemgetter

import msgspec

from draftproof.properties.diagnosis.compare import differing, first_index, shortened, shown
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.lib.base import Value
from draftproof.properties.values.channel import PHASES
from draftproof.properties.values.channels import CHANNELS
from draftproof.properties.values.observed import Datum
from draftproof.properties.values.trace import Key, Observation, Trace
from draftproof.properties.values.verdict import Divergence
from draftproof.properties.variants import unchanged

LONGEST_VALUE = 96
"""Characters of a value that are kept: tuples can be long."""
_ENGINE = -1
Values = Mapping[Key, Datum]
_Cell = tuple[int, int, str]


class Mark(Value, frozen=True, kw_only=True):
    """One phase of a round of a request: how many observations agree, and the first one that differs.

    `request` is -1 for channels of the whole engine, and `round` is then the engine step. `step` .. `last_step` are the
    engine steps in which the round ran (-1: it never ran). `different` includes the `missing` ones. `channel`, `place`,
    `expected` and `got` are "" where everything agrees.
    """

    request: int
    round: int
    phase: str
    step: int
    same: int
    different: int
    channel: str = ""
    place: str = ""
    expected: str = ""
    got: str = ""
    missing: int = 0
    last_step: int = -1


class Timeline(Value, frozen=True, kw_only=True):
    """The marks of one run in the order of request, round and phase; `first` is the reported divergence.

    `run` names the run: the base run, the variant's run, or the base run beside it.
    """

    requests: int
    marks: tuple[Mark, ...]
    first: Divergence
    run: str = "base run"


@dataclass
class _Tally:
    """One cell: how many observations agree, and (order, channel, key, expected, got) of each that does not."""

    same: int = 0
    wrong: list[tuple[tuple[int, ...], str, Key, Datum | None, Datum | None]] = field(default_factory=list)


@dataclass(frozen=True)
class _Run:
    """The run that a divergence was seen in; `pair` gives both sides of a channel, `channels` are compared."""

    name: str
    evidence: Evidence
    channels: frozenset[str]
    pair: Callable[[str], tuple[Values, Values]] = field(repr=False)


def timeline(evidence: Evidence, first: Divergence) -> Timeline:
    """Compare both sides in each request, round and phase of the run that `first` was seen in.

    Channels that the reference does not have are compared between two runs: of those only `first` itself is marked.
    """
    if evidence.ranks:
        return timeline(replace(evidence.ranks[max(first.rank, 0)], ranks=()), first)
    run = _run(evidence, first)
    tallies: dict[_Cell, _Tally] = defaultdict(_Tally)
    for channel in sorted(run.channels):
        _count(run, channel, tallies)
    spans = _spans(run.evidence)
    here = (first.request, first.round, first.phase)
    # A place that no comparison found, because the reference has nothing to say there, is different all the same.
    cells = sorted(tallies.keys() | {here}, key=lambda cell: (*cell[:2], _phase(cell[2])))
    marks = tuple(_mark(cell, tallies[cell], spans, first if cell == here else None) for cell in cells)
    return Timeline(requests=len(evidence.scenario.requests), marks=marks, first=first, run=run.name)


def _run(evidence: Evidence, first: Divergence) -> _Run:
    name, other = evidence.scenario.variant, evidence.varied
    if other is None:
        return _judged(evidence, "base run")
    if first.contract.startswith("variant."):
        both = evidence.subject.channels & other.channels & unchanged(name)
        return _Run(f"base run, beside the run of variant {name}", evidence, both, partial(_beside, other, evidence))
    key, base = first.key, evidence.subject.channel(first.channel)
    if shown(base.get(key), first.index) == first.got or key not in other.channel(first.channel):
        return _judged(evidence, "base run")
    return _judged(evidence.variant_run, f"run of variant {name}")


def _beside(other: Trace, evidence: Evidence, channel: str) -> tuple[Values, Values]:
    return other.channel(channel), evidence.subject.channel(channel)


def _judged(evidence: Evidence, name: str) -> _Run:
    return _Run(name, evidence, evidence.reference.channels & evidence.subject.channels, evidence.pair)


def _count(run: _Run, channel: str, tallies: dict[_Cell, _Tally]) -> None:
    expected, got = run.pair(channel)
    wrong = set(differing(expected, got, run.evidence.near(channel)))
    for key in expected.keys() | got.keys():
        tally = tallies[key.request, key.round, CHANNELS[channel].phase]
        if key in wrong:
            tally.wrong.append((Observation(channel, key, 0).order, channel, key, expected.get(key), got.get(key)))
        else:
            tally.same += 1


def _spans(evidence: Evidence) -> Mapping[tuple[int, int], tuple[int, int]]:
    """Return (request, round) -> first and last engine step of a round: a prefill takes one for each chunk."""
    spans: dict[tuple[int, int], tuple[int, int]] = {}
    for row in evidence.schedule.rows:
        first, last = spans.get((row.request, row.round), (row.step, row.step))
        spans[row.request, row.round] = (min(first, row.step), max(last, row.step))
    return spans


def _mark(
    cell: _Cell, tally: _Tally, spans: Mapping[tuple[int, int], tuple[int, int]], first: Divergence | None
) -> Mark:
    request, round_, phase = cell
    step, last = (round_, round_) if request == _ENGINE else spans.get((request, round_), (-1, -1))
    mark = Mark(
        request=request,
        round=round_,
        phase=phase,
        step=step,
        last_step=last,
        same=tally.same,
        different=max(len(tally.wrong), int(first is not None)),
        missing=sum(got is None for *_, got in tally.wrong),
    )
    if first is not None:
        return _at(mark, first.channel, first.key, first.expected, first.got)
    if not tally.wrong:
        return mark
    _, channel, key, expected, got = min(tally.wrong, key=itemgetter(0))
    index = first_index(expected, got)
    return _at(mark, channel, key, shown(expected, index), shown(got, index))


def _at(mark: Mark, channel: str, key: Key, expected: str, got: str) -> Mark:
    """Return the mark with its first difference."""
    expected, got = shortened(expected, LONGEST_VALUE), shortened(got, LONGEST_VALUE)
    return msgspec.structs.replace(mark, channel=channel, place=_place(key), expected=expected, got=got)


def _place(key: Key) -> str:
    fields = (("step", key.step), ("layer", key.layer), ("row", key.row))
    return ", ".join(f"{name} {value}" for name, value in fields if value >= 0)


def _phase(name: str) -> int:
    return PHASES.index(name) if name in PHASES else len(PHASES)
