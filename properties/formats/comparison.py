"""What a comparison of engines says: whether they propose the same drafts, and have as many of them accepted."""

from __future__ import annotations

from typing import Literal

import msgspec

from draftproof.properties.formats.audit import AuditReport, Rate
from draftproof.properties.lib.base import Value
from draftproof.properties.values.verdict import Outcome

Tokens = tuple[int, ...]


class ComparedRound(Value, frozen=True, kw_only=True):
    """A round of both engines that begins after the same text, and goes otherwise in the second.

    `request` counts the prompts of the first engine from 0, `rounds` are the numbers that the round has in either,
    `context` is how many tokens are before it, prompt included. `depth` is the first draft that differs (1, 2, ..), of
    `what` "number" the first that only one of them has, of "emitted" the first token. `drafts`, and their `numbers`, of
    an engine that does not tell them are None; `right` are those of a right draft, where one was played.
    """

    request: int
    rounds: tuple[int, int]
    context: int
    depth: int
    what: Literal["drafts", "number", "emitted"]
    drafts: tuple[Tokens | None, Tokens | None]
    numbers: tuple[int | None, int | None] = (None, None)
    emitted: tuple[Tokens, Tokens]
    right: Tokens | None = None


class EngineSeen(Value, frozen=True, kw_only=True):
    """One of the engines: as it was named, what it is, and what it got accepted.

    `accepted` are drafts a round, `positions` the share of rounds in which at least 1, 2, .. are; `steps` the most
    drafts of a round. `audit` is there where target and draft were given and the engines differ.
    """

    side: str
    rounds: int
    accepted: float
    positions: tuple[Rate, ...]
    steps: int
    subject: str = ""
    settings: dict[str, str] = msgspec.field(default_factory=dict)
    versions: dict[str, str] = msgspec.field(default_factory=dict)
    audit: AuditReport | None = None


class PairVerdict(Value, frozen=True, kw_only=True):
    """An engine beside the first one.

    Of `prompts` that both have, each once, `rounds` of both begin after the same text: `same` of them went alike,
    `at_depth` counts the others by the draft at which they part. `fewer` counts those of `rounds` in which the first
    engine, and this one, has fewer drafts than the other though the text has room for more; `none` those of them in
    which it has none. `texts` is the number of prompts whose text differs,
    `unpaired` that of the requests that only one of them has. `p` is how probable a difference in what is accepted is
    that is as large, `position_p` the same at each position; `alarms`: they are improbable enough to fail.
    """

    side: str
    verdict: Outcome
    says: str
    prompts: int
    rounds: int
    same: int
    at_depth: dict[int, int]
    fewer: tuple[int, int] = (0, 0)
    none: tuple[int, int] = (0, 0)
    texts: int
    unpaired: int
    p: Rate
    position_p: tuple[Rate, ...] = ()
    alarms: bool = False
    first: ComparedRound | None = None


class ComparisonReport(Value, frozen=True, kw_only=True):
    """The engines, the first of them what the others are compared with, and a verdict for each of the others."""

    verdict: Outcome
    false_alarms: float
    engines: tuple[EngineSeen, ...]
    pairs: tuple[PairVerdict, ...]
