"""The decode rounds of a run, as what they were rather than what they computed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from draftproof.properties.evidence.evidence import VERIFY, Evidence, Row
from draftproof.properties.values.trace import Key


class Round(NamedTuple):
    """One decode round: its row (None where the subject does not report batches), n, K and a."""

    request: int
    number: int
    row: Row | None
    context: int
    drafts: int
    accepted: int
    forced: bool
    padded: bool


def decode_rounds(evidence: Evidence) -> Iterator[Round]:
    rows = {(row.request, row.round): row for row in evidence.rows if row.phase}
    accepted = evidence.subject.channel("accept.correct_len")
    replayed = {launch.step for launch in evidence.launches if launch.kind == VERIFY and launch.replays}
    for request, script in enumerate(evidence.script.requests):
        for number, solved in enumerate(script.rounds, start=1):
            row, correct = rows.get((request, number)), accepted.get(Key(request, number))
            if not isinstance(correct, int):
                continue
            batch = evidence.batches.get((row.step, 1), ()) if row else ()
            padded = row is not None and row.size > len(batch) and row.step in replayed
            forced = solved.forced is not None
            yield Round(request, number, row, solved.context, solved.drafts, correct, forced, padded)
