"""What an INCONCLUSIVE check lacked, and how many scenarios would most likely show it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from draftproof.properties.kernels.table import KERNEL_PREFIX, MOST_CALLS
from draftproof.properties.values.verdict import Verdict
from draftproof.report.numbers import plural

_LISTED = 6
"""Counts that are named; --verbose has all."""
_JUDGED = "scenarios >= 1"
_AT_LEAST = re.compile(r"([\w -]+) >= \d+")


def advice(short: Sequence[Verdict], examples: int) -> Iterator[str]:
    """Yield what these verdicts lack of so many scenarios, or of calls of kernels, and what helps.

    A count that no scenario had, of n that were judged, has a share of one in n + 2 (the rule of succession). Three
    times n + 2 scenarios have one of that share in 95 of 100 checks.
    """
    lacking, of_calls = dict[str, list[str]](), dict[str, list[str]]()
    others, needed, idle = dict[str, list[str]](), examples, list[str]()
    for one in short:
        if not one.scenarios and _JUDGED in one.missing:
            # What else it lacks says no more.
            idle.append(one.name)
            needed = max(needed, _needed(0, examples))
            continue
        for missing in one.missing:
            count = _AT_LEAST.fullmatch(missing)
            if count and one.name.startswith(KERNEL_PREFIX):
                of_calls.setdefault(count[1], []).append(one.name)
                continue
            (lacking if count else others).setdefault(count[1] if count else missing, []).append(one.name)
            if count:
                needed = max(needed, _needed(one.scenarios, examples))
    yield f"This is not a failure: {plural(len(short), 'verdict')} rest{'s' * (len(short) == 1)} on too little."
    if idle:
        rest = f" and {len(idle) - _LISTED} more" if idle[_LISTED:] else ""
        yield f"Of {plural(examples, 'scenario')} none concerns {', '.join(idle[:_LISTED])}{rest}."
    if lacking:
        yield f"Of {plural(examples, 'scenario')} none that they judge had {_listed(lacking)}."
    if idle or lacking:
        more = -(-needed // 10) * 10
        yield f"For a conclusion use --examples {more}, which has each of these most likely; a rare one may take more."
    if of_calls:
        yield f"Too few calls of kernels: none had {_listed(of_calls)}. With --examples {MOST_CALLS} some have."
    for missing, names in others.items():
        yield f"More examples hardly help where {missing} is asked for ({', '.join(names[:_LISTED])})."


def _needed(judged: int, examples: int) -> int:
    """Return how many scenarios of the check most likely show what none of those that were judged had."""
    share = judged / examples if judged else 1.0
    return round(3 * ((judged or examples) + 2) / share)


def _listed(lacking: dict[str, list[str]]) -> str:
    """Return counts, those that most verdicts lack first, each with one of them."""
    ordered: Iterable[tuple[str, list[str]]] = sorted(lacking.items(), key=lambda one: -len(one[1]))
    told = [f"{name} ({names[0]}{f' and {len(names) - 1} more' if names[1:] else ''})" for name, names in ordered]
    more = len(told) - _LISTED
    return ", ".join(told[:_LISTED]) + (f" or {more} more (--verbose has them)" if more > 0 else "")
