"""Contracts as values, and the commonest one: a channel equals the reference's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from draftproof.properties.contracts.bounds import near
from draftproof.properties.diagnosis.compare import Near, exactly, first_divergence
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.values.relations import Relation
from draftproof.properties.values.trace import Key
from draftproof.properties.values.verdict import Divergence

Check = Callable[[Evidence], Iterator[Divergence]]


def _always(_evidence: Evidence) -> bool:
    return True


@dataclass(frozen=True)
class Contract:
    """One thing that must hold of a trace or between two.

    A change of any channel in `needs` makes it fail; those in `reads` it only appeals to. A subject that lacks one of
    either is not held to it (with `whole` False: one that lacks all). `concerns` picks the scenarios. `minimum` names
    counts (counts.py) below which a pass proves nothing. In channels of `partial` it judges what is said, not all that
    is missing. With `by_round` False it holds however rounds cut the tokens, so it needs no `round.rows` where the
    subject decides how many drafts a round has. `cites` are the definitions in docs/semantics.md that it checks.
    """

    name: str
    needs: frozenset[str]
    minimum: Mapping[str, int]
    check: Check
    reads: frozenset[str] = frozenset()
    partial: frozenset[str] = frozenset()
    concerns: Callable[[Evidence], bool] = field(default=_always)
    whole: bool = True
    by_round: bool = True
    cites: str = ""

    def applies(self, evidence: Evidence) -> bool:
        """Whether this scenario's traces can be held to it."""
        return self.fits(evidence.subject.channels) and self._has_rounds(evidence) and self.concerns(evidence)

    def _has_rounds(self, evidence: Evidence) -> bool:
        return not (self.by_round and evidence.scenario.dynamic) or "round.rows" in evidence.subject.channels

    def fits(self, channels: frozenset[str]) -> bool:
        """Whether a subject with these channels can be held to it at all."""
        return self.needs | self.reads <= channels if self.whole else bool(self.needs & channels)


def nearness(evidence: Evidence, channel: str) -> Near:
    """How vectors of a channel are compared: bitwise, or within the table of bounds for real models."""
    return exactly if evidence.exact else near(evidence.scenario, channel)


def equals(name: str, *channels: str, cites: str = "", **minimum: int) -> Contract:
    """Every value of these channels is the reference's, with none missing and none too many."""

    def check(evidence: Evidence) -> Iterator[Divergence]:
        for channel in channels:
            expected, got = evidence.pair(channel)
            found = first_divergence(name, channel, expected, got, near=nearness(evidence, channel))
            if found:
                yield found

    return Contract(name=name, needs=frozenset(channels), minimum={"scenarios": 1, **minimum}, check=check, cites=cites)


def explained(contract: Contract, explain: Callable[[Evidence, Divergence, Key], Relation | None]) -> Contract:
    """Return the same contract with the relation that `explain` gives to a wrong value, where it gives one."""

    def check(evidence: Evidence) -> Iterator[Divergence]:
        for found in contract.check(evidence):
            key = place_of(found)
            there = key in evidence.subject.channel(found.channel) and key in evidence.reference.channel(found.channel)
            relation = explain(evidence, found, key) if there else None
            yield msgspec.structs.replace(found, relation=relation) if relation else found

    return replace(contract, check=check)


def place_of(found: Divergence) -> Key:
    """Where a divergence is."""
    return Key(found.request, found.round, found.step, found.layer, found.row)
