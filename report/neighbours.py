"""The neighbourhood of a divergence: the same channel and request, some places before and after it."""

from __future__ import annotations

import numpy as np

from draftproof.properties.diagnosis.compare import first_index, shortened, shown
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.values.observed import Datum
from draftproof.properties.values.trace import Key
from draftproof.properties.values.verdict import Divergence

BEFORE, AFTER = 3, 4
_LONGEST = 44


def neighbours(ran: Evidence, first: Divergence) -> list[tuple[str, ...]]:
    """Rows of (mark, round, step, layer, row, expected, got); the divergence's own is marked."""
    expected, got = ran.pair(first.channel)
    if first.contract.startswith("variant.") and ran.varied is not None:
        expected = ran.varied.channel(first.channel)
    keys = sorted(key for key in expected.keys() | got.keys() if key.request == first.request)
    here = Key(first.request, first.round, first.step, first.layer, first.row)
    if here not in keys:
        return []
    at = keys.index(here)
    judged = bool(expected)
    return [
        _row(key, key == here, expected.get(key), got.get(key), judged, first)
        for key in keys[max(0, at - BEFORE) : at + AFTER + 1]
    ]


def _row(
    key: Key, here: bool, expected: Datum | None, got: Datum | None, judged: bool, first: Divergence
) -> tuple[str, ...]:
    """Where the reference does not report the channel, only the place itself has an expected value."""
    differs = here or (judged and first_index(expected, got) >= 0) or (judged and _plain(expected) != _plain(got))
    index = first_index(expected, got)
    wanted = shown(expected, index) if judged else first.expected if here else ""
    where = tuple("" if field < 0 else str(field) for field in key[1:])
    return (
        ">" if here else "*" if differs else "",
        *where,
        shortened(wanted, _LONGEST),
        shortened(shown(got, index), _LONGEST),
    )


def _plain(value: Datum | None) -> object:
    return value.tobytes() if isinstance(value, np.ndarray) else value
