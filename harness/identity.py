"""Identities of failures: when two failures count as the same one."""

from __future__ import annotations

import hashlib
import re
from typing import Literal

from draftproof.properties.formats.case import encode
from draftproof.properties.lib.base import Value
from draftproof.properties.values.verdict import Divergence

Level = Literal["contract", "channel", "relation", "exact"]
"""How closely two failures have to agree. Each level has its users:

- contract: bisection of parts; without a part, what a contract judges is often reported by another channel.
- channel: shrinking and bisection of history; a smaller scenario often relates the same wrong value differently.
- relation: campaigns and tests; contract, channel, phase and the relation without its numbers.
- exact: `check`; contract, channel and the relation with its numbers, of a crash its message without them: sizes in it
  are those of the scenario.
"""
_CRASH, _HANG = "crash", "hang"
_NUMBER = re.compile(r"\d+")


class Identity(Value, frozen=True, kw_only=True):
    """A failure without its values, so that a thousand hits of one bug are one failure.

    A crash has the contract "crash", the kind of error as its channel and the launch as its phase; a hang likewise.
    `exact` is what only the level of that name compares.
    """

    contract: str
    channel: str = ""
    phase: str = ""
    relation: str = ""
    exact: str = ""

    def is_same(self, other: Identity | None, level: Level) -> bool:
        """Return True if both are one failure at this level; no failure (None) never is.

        To all levels but "relation" hangs are alike.
        """
        if other is None or self.contract != other.contract:
            return False
        if level == "relation":
            return self.text == other.text
        if level == "contract" or self.contract == _HANG:
            return True
        return self.channel == other.channel and (level == "channel" or self._compared == other._compared)

    @property
    def _compared(self) -> str:
        return _NUMBER.sub("N", self.exact) if self.contract == _CRASH else self.exact

    @property
    def text(self) -> str:
        """All but the numbers, readable and unique."""
        return " | ".join((self.contract, self.channel, self.phase, self.relation))

    @property
    def label(self) -> str:
        """All but the phase, numbers included."""
        own = "" if self.exact.startswith(self.channel) else self.channel
        return " ".join(part for part in (self.contract, own, self.exact) if part)

    @property
    def slug(self) -> str:
        """A folder's name, made unique by a hash at its end."""
        return f"{slug(f'{self.contract} {self.channel}', 48)}-{_hashed(self.text)}"


def identity_of(found: Divergence) -> Identity:
    """Return the identity of a divergence."""
    return Identity(
        contract=found.contract,
        channel=found.channel,
        phase=found.phase,
        relation=found.relation.general,
        exact=found.relation.exact,
    )


def slug(text: str, length: int = 60) -> str:
    """Return the text as a part of a file's name."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:length]


def fingerprint(value: Value) -> str:
    """Return eight characters that tell a value from others, for a file's name."""
    return _hashed(encode(value))


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
