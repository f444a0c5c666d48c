"""Look at a run as the usual tests of an engine do: its output, and how many drafts it accepts."""

from __future__ import annotations

from collections import defaultdict

from draftproof.properties.values.observed import TokenIds
from draftproof.properties.values.script import Script
from draftproof.properties.values.trace import Trace


def plain_counts(trace: Trace, script: Script) -> dict[str, int]:
    """Count rounds and accepted drafts, and whether the output is that of plain greedy decoding."""
    lengths = [length for length in trace.channel("accept.correct_len").values() if isinstance(length, int)]
    changed = _outputs(trace, script) != [request.tokens for request in script.requests]
    return {
        "scenarios": 1,
        "outputs_changed": int(changed),
        "drafts_accepted": sum(lengths),
        "rounds": len(lengths),
    }


def _outputs(trace: Trace, script: Script) -> list[tuple[int, ...]]:
    """Return what each request emitted, in order of its rounds."""
    emitted: dict[int, tuple[int, ...]] = defaultdict(tuple)
    for key, value in sorted(trace.typed("accept.emitted", TokenIds).items()):
        emitted[key.request] += value
    return [emitted[request] for request in range(len(script.requests))]
