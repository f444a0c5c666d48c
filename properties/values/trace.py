"""Trace: the observations of one run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, TypeVar, cast

from draftproof.properties.lib.errors import DraftproofError
from draftproof.properties.values.channels import CHANNELS
from draftproof.properties.values.observed import Choice, Datum

T = TypeVar("T", bound=Datum)


class Key(NamedTuple):
    """Where an observation belongs. `round` is the request's own round: 0 prefill, 1, 2, .. decode. -1: does not apply.

    `step` is the draft step (1, 2, ..), the prefill chunk, or the launch; `row` the verify row, the position or the
    page column. Observations of the whole engine have request -1 and the engine step as their round.
    """

    request: int
    round: int
    step: int = -1
    layer: int = -1
    row: int = -1


class Observation(NamedTuple):
    channel: str
    key: Key
    value: Datum

    @property
    def order(self) -> tuple[int, ...]:
        """(round, phase, step, layer, rank, request, row): the order of first divergence."""
        phase, rank = CHANNELS[self.channel].order
        key = self.key
        return (key.round, phase, key.step, key.layer, rank, key.request, key.row)


class MalformedTraceError(DraftproofError, ValueError):
    """A trace that cannot be judged: a key twice, a value of the wrong type, a channel of its subject not at all."""


class TokenGap(NamedTuple):
    """How far a token that was emitted is below the best of its row, or what was told of it from being so.

    `below` in float64; `carried` is by how much that differs in float32; `experts` is the least that an expert which
    was chosen somewhere in the pass had over one that was not.
    """

    below: float
    carried: float
    experts: float


@dataclass(frozen=True)
class Trace:
    """What a subject reported, in the order of its reports; the index is built on demand.

    `channels` are those that the subject declares. Only the reference has the other fields, by (request, round) where
    nothing else is said. For a real model `gaps` are the least margins by which an expert was chosen over one that was
    not, `rounded` is the same run in float32, `rounded_again` makes more runs that round otherwise, `token_gaps`, by
    request, are for tokens of a subject's text that are not the reference's (reference/text.py), and `near`, by
    (channel, key), are the tokens that come near a choice, and how far each is below the best. `told` are the names of
    counts that only the reference can tell (S-PENALTY-5, S-GRAMMAR-8), `logprob_gaps` the gaps of logprobs that a
    subject returned (S-SAMPLE-15). `unsure` are the observations in which a subject may rightly differ, because it does
    not report how it rounded an entry (S-KV-6).
    """

    subject: str
    channels: frozenset[str]
    observations: tuple[Observation, ...]
    gaps: Mapping[tuple[int, int], float] = field(default_factory=dict)
    rounded: Trace | None = None
    rounded_again: Callable[[], tuple[Trace, ...]] = tuple
    token_gaps: Mapping[int, tuple[TokenGap, ...]] = field(default_factory=dict)
    near: Mapping[tuple[str, Key], tuple[tuple[int, float], ...]] = field(default_factory=dict)
    told: Mapping[tuple[int, int], frozenset[str]] = field(default_factory=dict)
    logprob_gaps: Mapping[Key, TokenGap] = field(default_factory=dict)
    unsure: frozenset[tuple[str, Key]] = frozenset()

    @cached_property
    def index(self) -> Mapping[str, Mapping[Key, Datum]]:
        """channel -> key -> value. A key reported twice is an error of the subject: see `duplicates`."""
        index: dict[str, dict[Key, Datum]] = {name: {} for name in self.channels}
        for channel, key, value in self.observations:
            index.setdefault(channel, {})[key] = value
        return index

    def columns(self) -> dict[str, list[Datum]]:
        """Return channel -> all its values, in the order of their reports."""
        if not self.duplicates:
            return {name: [*values.values()] for name, values in self.index.items() if values}
        columns: dict[str, list[Datum]] = {}
        for channel, _, value in self.observations:
            columns.setdefault(channel, []).append(value)
        return columns

    @cached_property
    def duplicates(self) -> tuple[Observation, ...]:
        """The observations whose channel and key were reported before."""
        if sum(map(len, self.index.values())) == len(self.observations):
            return ()
        seen: set[tuple[str, Key]] = set()
        again = []
        for observation in self.observations:
            place = (observation.channel, observation.key)
            if place in seen:
                again.append(observation)
            seen.add(place)
        return tuple(again)

    @cached_property
    def texts(self) -> Mapping[int, tuple[int, ...]]:
        """request -> all tokens that it emitted, in the order in which they were returned (S-TRACE-12)."""
        texts: dict[int, tuple[int, ...]] = {}
        for key, emitted in self.channel("accept.emitted").items():
            texts[key.request] = texts.get(key.request, ()) + cast("tuple[int, ...]", emitted)
        return texts

    def channel(self, name: str) -> Mapping[Key, Datum]:
        return self.index.get(name, {})

    def typed(self, name: str, value: type[T]) -> Mapping[Key, T]:
        """Return a channel as one of values of a type, as the channel table gives it; valuetypes.py checks it."""
        return cast("Mapping[Key, T]", self.channel(name))

    def choices(self, name: str) -> Mapping[Key, Choice]:
        """Return a channel of choices."""
        return cast("Mapping[Key, Choice]", self.channel(name))

    def of(self, name: str, **where: int) -> Iterator[tuple[Key, Datum]]:
        """Yield the observations of a channel that have the given key fields."""
        for key, value in self.channel(name).items():
            if all(getattr(key, field) == wanted for field, wanted in where.items()):
                yield key, value
