"""Contracts as values, and the commonest one: a channel equals the reference's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from draftproof.properties.diagnosis.compare import Mismatch, first_divergence, first_of
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.values.relations import Relation
from draftproof.properties.values.trace import Key
from draftproof.properties.values.verdict import Divergence

Differences = Iterator[Divergence | None]
Concerns = Callable[[Evidence], bool]
Explain = Callable[[Evidence, Divergence, Key], Relation | None]


def _always(_evidence: Evidence) -> bool:
    return True


@dataclass(frozen=True)
class Contract:
    """One thing that must hold of a trace or between two.

    A change of any channel in `needs` makes it fail; those in `reads` it only appeals to. A subject that lacks one of
    either is not held to it (with `whole` False: one that lacks all). To those in `also` it appeals where a subject
    reports them. `concerns` picks the scenarios. While a fact in
    `minimum` (coverage/facts.py) never was, a pass proves nothing. In channels of `partial` it judges what is reported,
    not all that is missing. With `by_round` False it holds however rounds cut the tokens, so it needs no `round.rows`
    where the subject decides how many drafts a round has. `cites` are the definitions in docs/semantics/ that it
    checks.
    """

    name: str
    needs: frozenset[str]
    minimum: tuple[str, ...]
    differences: Callable[[Evidence], Differences]
    cites: str
    reads: frozenset[str] = frozenset()
    also: frozenset[str] = frozenset()
    partial: frozenset[str] = frozenset()
    concerns: Concerns = _always
    whole: bool = True
    by_round: bool = True

    def check(self, evidence: Evidence) -> list[Divergence]:
        """Return the first difference of each kind that it looks for; [] if it holds."""
        return [found for found in self.differences(evidence) if found]

    def applies(self, evidence: Evidence) -> bool:
        """Return whether this scenario's traces can be held to it."""
        return self.fits(evidence.subject.channels) and self._has_rounds(evidence) and self.concerns(evidence)

    def _has_rounds(self, evidence: Evidence) -> bool:
        return not (self.by_round and evidence.scenario.dynamic) or "round.rows" in evidence.subject.channels

    def fits(self, channels: frozenset[str]) -> bool:
        """Return whether a subject with these channels can be held to it at all."""
        return self.needs | self.reads <= channels if self.whole else bool(self.needs & channels)


def ends(evidence: Evidence) -> list[Key]:
    """Return the key of the end of every engine step, and of one after the last, when all has been given back."""
    return [Key(-1, step) for step in range(evidence.schedule.last_step + 2)]


def contract(
    name: str,
    differences: Callable[[Evidence], Differences],
    needs: Iterable[str],
    *,
    minimum: str,
    reads: Iterable[str] = (),
    also: Iterable[str] = (),
    partial: Iterable[str] = (),
    **rest: Any,
) -> Contract:
    """Return a contract; `minimum` names counts, separated by spaces, and `rest` are other fields of Contract."""
    least = tuple(minimum.split())
    return Contract(
        name,
        frozenset(needs),
        least,
        differences,
        reads=frozenset(reads),
        also=frozenset(also),
        partial=frozenset(partial),
        **rest,
    )


def listed(
    name: str, mismatches: Callable[[Evidence], Iterator[Mismatch]], needs: Iterable[str], **rest: Any
) -> Contract:
    """Return a contract that reports the first of its mismatches, with the number of all; `rest` as in `contract`."""

    def differences(evidence: Evidence) -> Differences:
        yield first_of(name, mismatches(evidence), evidence.order)

    return contract(name, differences, needs, **rest)


def equals(
    name: str,
    *channels: str,
    minimum: str = "",
    explain: Explain | None = None,
    concerns: Concerns = _always,
    **rest: Any,
) -> Contract:
    """Return the contract that these channels have exactly the reference's values, none missing and none extra.

    Without channels, the contract's name is the channel. It concerns scenarios in which the reference or the subject
    has a value there and `concerns` holds. `explain` is as in `explained`, `rest` as in `contract`.
    """
    channels = channels or (name,)

    def differences(evidence: Evidence) -> Differences:
        for channel in channels:
            near = evidence.near(channel)
            yield first_divergence(name, channel, *evidence.pair(channel), near=near, order=evidence.order)

    def has_values(evidence: Evidence) -> bool:
        return concerns(evidence) and any(
            side.channel(channel) for channel in channels for side in (evidence.subject, evidence.reference)
        )

    made = contract(name, differences, channels, minimum=f"scenarios {minimum}", concerns=has_values, **rest)
    return explained(made, explain) if explain else made


def explained(one: Contract, explain: Explain) -> Contract:
    """Return the same contract with the relation that `explain` gives to a wrong value, where it gives one."""

    def differences(evidence: Evidence) -> Differences:
        for found in one.check(evidence):
            key, sides = found.key, (evidence.subject, evidence.reference)
            relation = None
            if all(key in side.channel(found.channel) for side in sides):
                relation = explain(evidence, found, key)
            yield msgspec.structs.replace(found, relation=relation) if relation else found

    return replace(one, differences=differences)
