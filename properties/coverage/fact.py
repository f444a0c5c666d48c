"""What a fact is: something that can happen in a run, said in one line; everything else of coverage is a view of it.

A fact of a feature stands in the feature's row (properties/features/NAME.py), any other in a table of this folder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from draftproof.properties.values.drafts import DraftKind

Of = Literal["scenario", "run", "request", "batch", "launch", "round"]
"""The kind of sample that a fact is read from.

samples.py has one sample for a run, and one for each request, batch, launch and round in it. A scenario with ranks has
several runs, and the facts of a run are added up; those of a scenario are not.
"""


def _every_draft(_kind: DraftKind) -> bool:
    return True


@dataclass(frozen=True)
class Fact:
    """Something that can happen in a run, under the name by which contracts ask for it.

    `read` returns how often it happened in a sample; without it, a reader has counted it under the fact's name. `shown`
    is the "group: words" under which a check shows in how many scenarios it happened, and a campaign whether it ever
    did; a fact without it is a sum that says little by itself.

    `channels` are the channels that it needs beside those of its sample, and `takes` names what a subject must be able
    to do: features of scenarios, or abilities (covered.py). In both, a comma separates things that are needed together,
    and a bar separates alternatives. `drafts` says which drafts can have it, and `layers` how many layers a chain of a
    real model may have; `real` says that a few scenarios of a real model reach it, if only with some drafts. A fact
    with `effect` shows that the feature in whose row it stands did something.
    """

    name: str
    of: Of
    read: Callable[[Any], int | None] | None = None
    shown: str = ""
    channels: str = ""
    takes: str = ""
    drafts: Callable[[DraftKind], bool] = _every_draft
    layers: range = range(1, 17)
    real: bool | Callable[[DraftKind], bool] = True
    effect: bool = False

    @property
    def group(self) -> str:
        """Return the group under which it is shown; "" if it is not."""
        return self.shown.partition(": ")[0]

    @property
    def words(self) -> str:
        """Return the words under which it is shown in its group."""
        return self.shown.partition(": ")[2]

    def is_real(self, kind: DraftKind) -> bool:
        """Return whether a few scenarios of a real model reach it with a draft."""
        return self.real(kind) if callable(self.real) else self.real

    def count(self, sample: Any) -> int:
        """Return how often it is in a sample."""
        return int((self.read(sample) if self.read else sample.notes.get(self.name)) or 0)


def words(text: str) -> tuple[tuple[str, ...], ...]:
    """Return what is needed together, each as its alternatives."""
    return tuple(tuple(word.split("|")) for word in text.split(", ") if word)


def has(**values: object) -> Callable[[Any], bool]:
    """Return a reader: the sample's fields have these values."""
    return lambda sample: all(getattr(sample, field) == value for field, value in values.items())


def one_of(group: str, of: Of, field: str, values: Sequence[str], **more: Any) -> tuple[Fact, ...]:
    """Return a fact for each of these values of a field: in one sample only one of them holds."""
    names = {value: f"{field}_{value}".replace(" ", "_").replace("-", "_") for value in values}
    return tuple(Fact(names[value], of, has(**{field: value}), f"{group}: {value}", **more) for value in values)


def within(group: str, of: Of, field: str, least: Sequence[int], **more: Any) -> tuple[Fact, ...]:
    """Return a fact for each range of a number in a field: from each of `least` to below the next of them."""
    return tuple(
        Fact(f"{field}_{name.replace(' ', '_')}", of, _is_within(field, numbers), f"{group}: {name}", **more)
        for name, numbers in _ranges(least).items()
    )


def _ranges(least: Sequence[int]) -> dict[str, range]:
    """Return ranges of numbers by their names."""
    *firsts, last = least
    found = {}
    for start, end in zip(firsts, least[1:], strict=True):
        found[str(start) if end == start + 1 else f"{start} to {end - 1}"] = range(start, end)
    return found | {f"{last} and more": range(last, 1 << 31)}


def _is_within(field: str, numbers: range) -> Callable[[Any], bool]:
    return lambda sample: getattr(sample, field) in numbers


def facts_of(of: Of, **common: Any) -> Callable[..., Fact]:
    """Return what makes facts of one kind of samples from a name, a reader and where they are shown."""

    def fact(name: str, read: Callable[[Any], int | None] | None = None, shown: str = "", **more: Any) -> Fact:
        return Fact(name, of, read, shown, **(common | more))

    return fact


def variant(name: str, **more: Any) -> Fact:
    """Return the fact that a variant was run and differed where it must show."""
    return Fact(
        f"variant_{name}",
        "scenario",
        lambda run: run.changed == name,
        f"variant: {name.replace('_', ' ')}",
        takes=f"variant {name}",
        **more,
    )
