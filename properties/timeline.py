"""Where expected and got part, round by round: what a report draws of a finding."""

from __future__ import annotations

from draftproof.properties.contracts.evidence import Evidence
from draftproof.properties.values.base import Value
from draftproof.properties.values.verdict import Divergence


class Mark(Value, frozen=True, kw_only=True):
    """One request's round and phase: how many observations of both sides agree, and the first that differs.

    `step` is the engine step in which the round ran (-1: unknown). `expected` and `got` are "" where all agree.
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


class Timeline(Value, frozen=True, kw_only=True):
    """The marks of one run in the order of request, round and phase; `first` is the divergence that was reported."""

    requests: int
    marks: tuple[Mark, ...]
    first: Divergence


def timeline(evidence: Evidence, first: Divergence) -> Timeline:
    """What both sides say of each request, round and phase."""
    return Timeline(requests=len(evidence.scenario.requests), marks=(), first=first)
