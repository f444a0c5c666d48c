"""How a failure of a test is told: what failed, its case file, and the command that runs it again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import NamedTuple

from draftproof.harness.identity import Identity
from draftproof.properties.lib.errors import DraftproofError
from draftproof.properties.values.verdict import Outcome
from draftproof.pytest_summary import FINDING_PROPERTIES


class Failure(NamedTuple):
    """A failure: what it is, the sentence that tells it, its case file, and the command that runs it again."""

    outcome: Outcome
    identity: Identity
    sentence: str
    case: str
    replay: str = ""
    detail: str = ""


class ContractError(DraftproofError, AssertionError):
    """A subject failed. `found`: one entry for each identity."""

    def __init__(self, found: tuple[Failure, ...]) -> None:
        self.found = found
        super().__init__(describe_failures(found))


def replayable(found: Sequence[Failure], test: str) -> tuple[Failure, ...]:
    """Return failures with a command for each: the test itself, where nothing better is known."""
    return tuple(one if one.replay else one._replace(replay=shlex.join(["pytest", test])) for one in found)


def found_in(error: BaseException) -> tuple[Failure, ...]:
    """Return the failures that an exception carries; Hypothesis raises several in a group."""
    if isinstance(error, ContractError):
        return error.found
    return tuple(one for inner in getattr(error, "exceptions", ()) for one in found_in(inner))


def describe_failures(found: Sequence[Failure]) -> str:
    """Return failures in words, each with its case file and the command that runs it again, if there is one."""
    lines: list[str] = []
    for one in found:
        lines.append(f"{one.outcome} {one.sentence}")
        lines += [f"  {line}" for line in one.detail.rstrip().splitlines()]
        lines.append(f"  case: {one.case}")
        lines += [f"  replay: {one.replay}"] if one.replay else []
    return "\n".join(lines)


def properties(found: Sequence[Failure]) -> list[tuple[str, object]]:
    """Return failures as properties of a test."""
    pairs: list[tuple[str, object]] = []
    for one in found:
        identity = one.identity
        values = (identity.contract, identity.channel, identity.text, one.case, one.replay, one.sentence)
        pairs += zip(FINDING_PROPERTIES, values, strict=True)
    return pairs
