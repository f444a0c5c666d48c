"""Counts of an engine, as `draftproof audit` takes them: a file of its own kind, or texts of vLLM's /metrics."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from draftproof.cli import inputs

if TYPE_CHECKING:
    from draftproof.properties.formats.audit import ObservedCounts


def of_metrics(paths: list[Path]) -> ObservedCounts:
    """Return what was counted between two texts of /metrics, or up to one. Raises InputError."""
    from draftproof.properties.formats.audit import ObservedCounts
    from draftproof.subjects.openai.counters import accepted_between, counts_in
    from draftproof.subjects.openai.http import ServerError

    if len(paths) > 2:
        raise inputs.InputError(f"invalid --metrics, given {len(paths)} times: expected before and after, or after")
    told = " and ".join(f"'{path}'" for path in paths)
    try:
        *before, after = [counts_in(path.read_text(errors="replace")) for path in paths]
        drafts, accepted = accepted_between(before[0] if before else {}, after)
    except OSError as error:
        raise inputs.InputError(f"invalid --metrics '{error.filename}': it cannot be read: {error.strerror}") from None
    except ServerError as error:
        raise inputs.InputError(f"invalid --metrics {told}: {error}") from None
    if not drafts:
        raise inputs.InputError(f"invalid --metrics {told}: expected rounds with drafts, and there were none")
    return ObservedCounts(drafts=drafts, accepted=accepted)


def of_file(path: Path) -> ObservedCounts:
    """Return counts of a file. Raises InputError and InvalidScenarioError."""
    from draftproof.properties.formats.audit import ObservedCounts
    from draftproof.properties.formats.case import decode

    try:
        return decode(path.read_bytes(), ObservedCounts, name=str(path))
    except OSError as error:
        raise inputs.InputError(f"invalid --observed '{path}': it cannot be read: {error.strerror}") from None


def check(counts: ObservedCounts, path: str, steps: int | None) -> None:
    """Raise InputError for counts that are not possible."""
    before = counts.drafts
    for position, accepted in enumerate(counts.accepted, start=1):
        if accepted > before:
            expected = f"at most {before}, " + ("the drafts" if position == 1 else f"those of position {position - 1}")
            raise inputs.InputError(f"{path}: invalid accepted {accepted} of position {position}: expected {expected}")
        before = accepted
    if counts.rounds is not None and counts.rounds < counts.drafts:
        raise inputs.InputError(
            f"{path}: invalid rounds {counts.rounds}: expected at least {counts.drafts}, the drafts"
        )
    if steps is not None and len(counts.accepted) != steps:
        raise inputs.InputError(
            f"{path}: invalid accepted of {len(counts.accepted)} positions: expected {steps}, as --steps"
        )


def check_fits(counts: ObservedCounts, path: str, budgets: Sequence[int]) -> None:
    """Raise InputError for counts that cannot be those of prompts after each of which so many tokens were decoded.

    Every round emits a token at least, that of the prompt among them; the last of a prompt may go on behind its end.
    """
    rounds, accepted = counts.rounds or counts.drafts, sum(counts.accepted)
    most, tokens = sum(budgets), rounds + accepted
    longest = most + len(budgets) * len(counts.accepted)
    if rounds <= most and tokens <= longest:
        return
    prompts = f"{len(budgets)} prompts with {most} tokens to decode in all, by --tokens,"
    raise inputs.InputError(
        f"{path}: invalid counts, {rounds} rounds with {accepted} accepted drafts, which emit {tokens} tokens: expected"
        f" those of --prompts, at most {most} rounds and {longest} tokens, as {prompts} have; was anything else served?"
    )
