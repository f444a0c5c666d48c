"""Read a run's samples off its evidence."""

from __future__ import annotations

from draftproof.properties.coverage.read_requests import read_requests, read_run
from draftproof.properties.coverage.read_rounds import read_batches, read_rounds
from draftproof.properties.coverage.samples import Samples
from draftproof.properties.evidence.evidence import Evidence


def read_samples(evidence: Evidence) -> Samples:
    """Return everything that coverage measures of one run."""
    run = read_run(evidence)
    requests, batches = read_requests(evidence, run), read_batches(evidence, run)
    rounds = tuple(read_rounds(evidence, requests, batches))
    return Samples(run, requests, tuple(batches.values()), evidence.schedule.launches, rounds)
