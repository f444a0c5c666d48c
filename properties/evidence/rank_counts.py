"""Counts of ranks: those that agree on what each step launches, and those that share every layer."""

from __future__ import annotations

from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.evidence.schedule import StepLaunch
from draftproof.properties.values.drafts import ProbeDraft
from draftproof.properties.values.observed import GRAPHED
from draftproof.properties.values.scenario import ProbeModel


def rank_counts(one: Evidence) -> dict[str, int]:
    """Return how often a rank had nothing of its own to run, or ran more for another's sake, by the names of facts."""
    lockstep = one.lockstep
    if lockstep is None:
        return {}
    own, steps, sizes = one.schedule.batches, range(lockstep.last_step + 1), one.scenario.graphs.sizes

    def size(rows: int) -> int:
        return next((size for size in sizes if size >= rows), 0)

    rows = {step: len(own.get((step, 1), ())) for step in steps}
    beside = {step: lockstep.rows(step, 1) for step in steps if rows[step]}
    return {
        "idle_steps": sum((step, 0) not in own and (step, 1) not in own for step in steps),
        "idle_launches": sum(launch.rows == 0 for launch in _graphed(one)),
        "agreed_tokens": sum(0 < sum(row.count for row in own.get((at, 0), ())) < lockstep.tokens(at) for at in steps),
        "agreed_rows": sum(rows[step] < most for step, most in beside.items()),
        "agreed_sizes": sum(size(rows[step]) != size(most) for step, most in beside.items()),
        "agreed_steps": sum(one.plans.width(step) < lockstep.width(step) for step in beside),
        "windows_of_ranks": int(getattr(one.scenario.model, "window", 0) > 0),
    }


def _graphed(one: Evidence) -> list[StepLaunch]:
    return [launch for launch in one.schedule.launches if launch.kind in GRAPHED]


def tensor_counts(one: Evidence) -> dict[str, int]:
    """Return what ranks share of a scenario, by the names of facts, as the run of one of them tells."""
    if one.beside is None:
        return {}
    scenario = one.scenario
    model, has_layers = scenario.model, isinstance(scenario.draft, ProbeDraft)
    drawing = {number for number, request in enumerate(scenario.requests) if request.sampling}
    return {
        "tensor_ranks_run": len(one.beside.subjects),
        "tensor_drafts_cut": int(has_layers and scenario.ranks.draft_tensor > 1),
        "tensor_drafts_whole": int(has_layers and scenario.ranks.draft_tensor == 1),
        "tensor_padded_launches": sum(0 < launch.rows < launch.size for launch in one.schedule.launches),
        "tensor_hybrids": int(one.hybrid),
        "tensor_draws": sum(request in drawing for request, _ in one.schedule.decode_steps),
        "tensor_windows": int(isinstance(model, ProbeModel) and model.window > 0),
    }
