"""One scenario in lockstep: the reference and the subject run it, and what both saw is put side by side."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from draftproof.harness import rank_runs
from draftproof.harness.subject_run import limits_of, run_subject, silent_channels
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.evidence.observed_run import ObservedRun, read_run
from draftproof.properties.fit import fit
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.subject import Subject
from draftproof.properties.values.trace import Trace
from draftproof.properties.variants import varied
from draftproof.reference.answer import RightRun, answer, answer_variant
from draftproof.reference.solved import Reference, Solved, for_limits, solved


class _BaseRun(NamedTuple):
    """A run of what a script asks for: what the subject did, what would have been right, and both side by side."""

    known: Solved
    observed: ObservedRun
    right: RightRun
    evidence: Evidence


def run(subject: Subject, scenario: Scenario) -> Evidence:
    """Run a scenario, fitted to the subject's limits, and return what happened beside what would have been right.

    There is no verdict in it: `judge` gives one. `subject` is the trace of what the subject did, `reference` that of
    the same run done right, `varied` what the subject did under the scenario's variant (None: it has none); `scenario`
    and `script` are what it was given. `trace.channel(name)` has the values of a channel by their keys: token ids,
    positions from 0, counts of tokens, vectors as float64 of shape [size] of a checkpoint, and as the bytes of their
    64-bit integers of a probe (docs/semantics/channels.md is the table). Of several ranks these are of the first,
    and `ranks` has all.

    Raises UnfitError where no change makes the scenario runnable for the subject, CheckpointError for a model that
    cannot be read, and SubjectCrashedError for whatever the subject raises and for a trace that cannot be judged.
    A subject that hangs is not ended: `check` and `assert_holds` do so.
    """
    return evidence(subject, fit(scenario, limits_of(subject)))


def evidence(subject: Subject, scenario: Scenario, reference: Reference = solved) -> Evidence:
    """Run the base pair and, if the scenario draws a variant, the variant run. Raises SubjectCrashedError."""
    limits, solution = limits_of(subject), reference(scenario)
    if scenario.ranks.size > 1 and (scenario.ranks.data > 1 or _has_ranks(subject, scenario)):
        return _of_ranks(subject, solution, limits)
    known = for_limits(solution, limits)
    trace = run_subject(subject, scenario, known.script, "in the base run")
    base = _answered(subject, known, trace, limits)
    if scenario.variant == "none":
        return base.evidence
    if scenario.variant == "alone":
        return _beside_alone(base.evidence, evidence(subject, varied(scenario), reference))
    return _with_variant(subject, base, limits)


def _answered(
    subject: Subject, known: Solved, trace: Trace, limits: Limits, before: _BaseRun | None = None
) -> _BaseRun:
    """Let the reference answer a run; one that did what the run `before` did has the same answer."""
    scenario = known.scenario
    observed = read_run(scenario, trace, limits)
    is_same = before is not None and before.known is known and before.observed == observed
    right = before.right if before and is_same else answer(known, observed, limits)
    silent = silent_channels(subject, scenario, trace, right.trace)
    both = Evidence(scenario, right.script, right.trace, trace, silent=silent, limits=limits)
    return _BaseRun(known, observed, right, both)


def _with_variant(subject: Subject, base: _BaseRun, limits: Limits) -> Evidence:
    """Run the script again under the scenario's variant, and return the evidence of both runs."""
    scenario, changed = base.known.scenario, varied(base.known.scenario)
    trace = run_subject(subject, changed, base.known.script, f"in the run of variant {scenario.variant}")
    right = answer_variant(base.known, base.right, base.observed, read_run(scenario, trace, limits), limits)
    return replace(
        base.evidence,
        varied=trace,
        varied_reference=None if right.trace is base.right.trace else right.trace,
        varied_script=right.script,
        silent=base.evidence.silent | silent_channels(subject, changed, trace, right.trace),
    )


def _beside_alone(of_run: Evidence, alone: Evidence) -> Evidence:
    """Return the evidence of a run with the run of its requests alone, which may have other rounds."""
    return replace(
        of_run,
        varied=alone.subject,
        varied_reference=alone.reference,
        varied_script=alone.script,
        silent=of_run.silent | alone.silent,
    )


def _has_ranks(subject: Subject, scenario: Scenario) -> bool:
    """Return whether a subject can run the ranks of a scenario beside each other."""
    return subject.has_ranks and scenario.ranks.size <= subject.most_ranks


def _of_ranks(subject: Subject, solution: Solved, limits: Limits) -> Evidence:
    """Run the ranks of a scenario beside each other, or one after another on a subject that has none."""
    has_ranks = _has_ranks(subject, solution.scenario)
    runs = (rank_runs.run_beside if has_ranks else rank_runs.run_in_turn)(subject, solution, limits)
    answered: list[_BaseRun] = []
    for run in runs:
        answered.append(_answered(subject, *run, limits, answered[-1] if answered else None))
    of_ranks = [one.evidence for one in answered]
    if not has_ranks:
        return rank_runs.in_turn(of_ranks)
    return rank_runs.in_parts(of_ranks) if solution.scenario.ranks.tensor > 1 else rank_runs.in_lockstep(of_ranks)
