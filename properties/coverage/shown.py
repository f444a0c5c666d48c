"""What of a run was seen at all: scenarios, texts and drafts (S-SUBJECT-5 and S-SUBJECT-6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from draftproof.properties.values.observed import BatchRow, TokenIds
from draftproof.properties.values.trace import Trace

_LISTED = 8
_NUMBERS = ("accept.correct_len", "total.rounds", "total.drafts", "total.accepted")
_TOKENS = ("round.drafts", "propose.tokens")
CHANNELS_THAT_SHOW_DRAFTS = frozenset({*_NUMBERS, *_TOKENS, "accept.index", "round.rows", "verify.ids"})
"""The channels on which a draft shows, even if only its existence does."""


def drafts_seen(trace: Trace) -> int:
    """Return how many drafts a trace shows at least; 0 if none, or if it declares no channel on which one shows."""
    declared = trace.channels
    seen = [sum(trace.typed(channel, int).values()) for channel in _NUMBERS if channel in declared]
    seen += [sum(map(len, trace.typed(channel, TokenIds).values())) for channel in _TOKENS if channel in declared]
    if "accept.index" in declared:
        seen.append(sum(len(rows) - 1 for rows in trace.typed("accept.index", TokenIds).values()))
    if "round.rows" in declared:
        seen.append(sum(row.count for row in trace.typed("round.rows", BatchRow).values() if row.phase))
    if "verify.ids" in declared:
        seen.append(sum(key.row > 0 and key.round > 0 for key in trace.channel("verify.ids")))
    return max(seen, default=0)


class ObservationGaps(NamedTuple):
    """What a check did not observe: `missing` as counts, where they forbid a PASS, and `told` in sentences."""

    missing: tuple[str, ...] = ()
    told: tuple[str, ...] = ()


def observation_gaps(
    counted: Mapping[str, int], channels: frozenset[str], silent_at: Sequence[int] = ()
) -> ObservationGaps:
    """Return what was not seen of the scenarios that were counted, by a subject that reports these channels.

    `silent_at` are the numbers of those that showed nothing.
    """
    scenarios, drafts = counted.get("scenarios", 0), channels & CHANNELS_THAT_SHOW_DRAFTS
    if not scenarios:
        return ObservationGaps()
    missing, told = list[str](), list[str]()
    silent, textless = (scenarios - counted.get(name, 0) for name in ("scenarios_shown", "texts_shown"))
    if silent:
        missing.append(f"scenarios_shown >= {scenarios}")
        told.append(f"{silent} of {scenarios} scenarios showed nothing{_numbered(silent_at)}")
    elif 0 < textless < scenarios:
        missing.append(f"texts_shown >= {scenarios}")
        told.append(f"{textless} of {scenarios} scenarios showed no text, and others did")
    if not counted.get("drafts_seen"):
        missing += ["drafts_seen >= 1"] * bool(drafts)
        told.append("no draft was seen, so nothing is said of drafting")
    return ObservationGaps(tuple(missing), tuple(told))


def _numbered(numbers: Sequence[int]) -> str:
    """Return which scenarios showed nothing, and what can be done about it."""
    if not numbers:
        return ""
    listed = ", ".join(map(str, numbers[:_LISTED])) + (", .." if len(numbers) > _LISTED else "")
    which = f"{'number' if len(numbers) == 1 else 'numbers'} {listed}, from 0"
    return f" ({which}): channels() has to name what run() reports there, and limits what it cannot run"


def shown_in_part(each: Iterable[tuple[frozenset[str], frozenset[str]]]) -> tuple[str, ...]:
    """Return which channels a subject reports in some scenarios and not in others that have them, in sentences.

    `each` has for every scenario the channels that apply to it, and those that the subject reports.
    """
    applying, shown = Counter[str](), Counter[str]()
    for due, reported in each:
        applying.update(due)
        shown.update(due & reported)
    parts: dict[tuple[int, int], list[str]] = {}
    for name in sorted(shown):
        if shown[name] < applying[name] and name != "accept.emitted":
            parts.setdefault((shown[name], applying[name]), []).append(name)
    return tuple(f"{', '.join(names)} shown in {some} of {of} scenarios only" for (some, of), names in parts.items())
