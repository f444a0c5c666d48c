"""Channel: one named observable, as the table (channels.py) and drafts (drafts.py) declare them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from draftproof.properties.values.observed import Choice, Vector

PHASES = ("plan", "draft", "propose", "verify", "accept", "commit", "extend", "control", "graph", "pool")


@dataclass(frozen=True)
class Channel:
    """One named observable.

    `keys` are those beside request and round, `value` is the type of every value (see observed.py), `scope` says
    whether it belongs to a request or to the whole engine: then the request is -1 and the round mostly the engine
    step. `commit` names the one way to commit states that has it. `what` says in words what is reported, `at` what
    the keys mean and in which rounds there is a value, `holds` what the value is by the definitions
    (docs/semantics/channels.md shows all of them).
    """

    name: str
    phase: str
    rank: int
    keys: tuple[str, ...]
    value: Any
    unit: str
    scope: Literal["request", "engine"] = "request"
    commit: Literal["", "snapshot", "replay"] = ""
    what: str = ""
    at: str = ""
    holds: str = ""

    @property
    def order(self) -> tuple[int, int]:
        return (PHASES.index(self.phase), self.rank)

    @property
    def is_tapped(self) -> bool:
        """Return whether it takes taps inside of launches; a host sees the rest anyway."""
        return self.phase in ("draft", "verify", "extend")

    @property
    def is_placed(self) -> bool:
        """Return whether it names pages or slots, which a subject chooses."""
        return self.unit in ("page", "pages", "KV slot", "slots", "state slot", "state slots")

    @property
    def is_of_launches(self) -> bool:
        """Return whether it reports each launch of an engine step."""
        return self.scope == "engine" and self.phase in ("verify", "commit", "graph")

    @property
    def is_float(self) -> bool:
        """Return whether its values are, or hold, floats of a real model, or are made of them."""
        return self.value in (Vector, Choice) or self.unit == "weight"
