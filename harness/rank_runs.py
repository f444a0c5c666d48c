"""The runs of ranks beside each other, and their evidence put together (docs/semantics/ranks.md, S-RANK, S-TP)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from draftproof.harness.ranks.world import RanksHangError, World, world
from draftproof.harness.signals import TimeLimitError
from draftproof.harness.subject_crash import SubjectCrashedError
from draftproof.harness.subject_run import require_whole, run_subject
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.evidence.lockstep import Lockstep
from draftproof.properties.evidence.rank_work import rank_work
from draftproof.properties.evidence.tensor_ranks import TensorRanks, part_of_rank
from draftproof.properties.validate import runs_anything
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.scenario import Scenario, of_rank
from draftproof.properties.values.script import Script, steering
from draftproof.properties.values.subject import Subject
from draftproof.properties.values.trace import Trace
from draftproof.reference.solved import Solved, for_limits


def run_beside(subject: Subject, solution: Solved, limits: Limits) -> Iterator[tuple[Solved, Trace]]:
    """Yield the trace of each rank, with what is known of its requests alone.

    Tensor-parallel ranks all serve the same ones. Raises RanksHangError, and SubjectCrashedError for whatever else goes
    wrong.
    """
    if solution.ranks:
        known, script = [for_limits(part, limits) for part in solution.ranks], solution.script
    else:
        whole = for_limits(solution, limits)
        known, script = [whole] * whole.scenario.ranks.size, whole.script
    yield from zip(known, _run_world(subject, solution.scenario, script), strict=True)


def run_in_turn(subject: Subject, solution: Solved, limits: Limits) -> Iterator[tuple[Solved, Trace]]:
    """Yield the solution and the trace of each rank, for a subject without ranks, which serves them one after another.

    A rank without anything to run shows nothing by itself.
    """
    for rank, part in enumerate(solution.ranks):
        if runs_anything(part.scenario):
            known = for_limits(part, limits)
            yield known, run_subject(subject, known.scenario, known.script, f"on rank {rank}")


def in_turn(of_ranks: Sequence[Evidence]) -> Evidence:
    """Return the evidence of the first rank, with the evidence of all."""
    return replace(of_ranks[0], ranks=tuple(of_ranks))


def in_lockstep(of_ranks: Sequence[Evidence]) -> Evidence:
    """Return the evidence of data-parallel ranks, each judged by what its requests do alone (S-RANK-2)."""
    lockstep = Lockstep(tuple(map(rank_work, of_ranks)))
    return in_turn([replace(one, lockstep=lockstep) for one in of_ranks])


def in_parts(of_ranks: Sequence[Evidence]) -> Evidence:
    """Return the evidence of tensor-parallel ranks, each judged by its part of what one rank would do (S-TP-2)."""
    beside = TensorRanks(tuple(one.subject for one in of_ranks), of_ranks[0].reference)
    parts = [part_of_rank(one.reference, one.scenario, rank) for rank, one in enumerate(of_ranks)]
    return in_turn([replace(one, reference=part, beside=beside) for one, part in zip(of_ranks, parts, strict=True)])


def _run_world(subject: Subject, scenario: Scenario, script: Script) -> tuple[Trace, ...]:
    try:
        of_subject: World = world(subject.inner, scenario.ranks.size)
        traces: tuple[Trace, ...] = of_subject.run(scenario, steering(script))
        for rank, trace in enumerate(traces):
            require_whole(trace, of_rank(scenario, rank))
    except (KeyboardInterrupt, TimeLimitError, RanksHangError):
        raise
    except BaseException as error:
        raise SubjectCrashedError("in the run of its ranks", error) from error
    return traces
