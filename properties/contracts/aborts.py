"""Aborts: a request that is aborted runs no more (S-SCHED-9)."""

from __future__ import annotations

from collections.abc import Iterator

from draftproof.properties.contracts.base import listed
from draftproof.properties.diagnosis.compare import Mismatch
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.values.relations import Surplus
from draftproof.properties.values.trace import Key


def _aborted(evidence: Evidence) -> Iterator[Mismatch]:
    for request, abort in sorted(evidence.aborts.items()):
        for row in evidence.schedule.rows:
            if row.request == request and row.step >= abort.step:
                key = Key(request, row.round, step=row.chunk)
                yield Mismatch(
                    "round.rows", key, f"no row from step {abort.step} on", f"a row in step {row.step}", Surplus()
                )


CONTRACTS = (
    listed(
        "schedule.aborted",
        _aborted,
        ("round.rows",),
        also=("pool.owners", "round.attempt"),
        partial=("round.rows",),
        cites="S-SCHED-9",
        minimum="scenarios aborted_waiting aborted_in_prefill aborted_in_decode aborted_preempted "
        "aborted_before_others aborted_on_served_pages",
        concerns=lambda evidence: evidence.scenario.has_aborts,
    ),
)
