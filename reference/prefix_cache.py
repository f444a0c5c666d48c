"""What of a prompt nobody ran, as a prefix cache served it (docs/semantics/prefix-cache.md, S-CACHE-5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from draftproof.properties.values.trace import Trace

_OF_ROWS = frozenset({"extend.ids", "extend.positions", "extend.hidden_in"})


def without_served(trace: Trace | None, served: Mapping[tuple[int, int], int]) -> Trace | None:
    """Return a trace without the rows of positions that a cache served, by (request, round).

    Their entries stay: a subject reads them where its table says that they are.
    """
    if trace is None:
        return None
    rows = (
        one for one in trace.observations if one.channel not in _OF_ROWS or one.key.row >= served.get(one.key[:2], 0)
    )
    return replace(trace, observations=tuple(rows))
