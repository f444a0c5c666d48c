"""A scenario that is solved, with the trace of its script: what is known before any subject has run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from draftproof.properties.values.chain_tree import script_as_tree
from draftproof.properties.values.limits import NO_LIMITS, Limits, finish_of
from draftproof.properties.values.scenario import Scenario, Variant, of_rank
from draftproof.properties.values.script import Finish, Script
from draftproof.properties.values.trace import Trace
from draftproof.properties.variants import varied as varied_scenario
from draftproof.reference.memo import Memo
from draftproof.reference.rounding import with_rounded
from draftproof.reference.run import run
from draftproof.reference.solve import solve


@dataclass(frozen=True)
class Solved:
    """A scenario with what the reference makes of it; `varied` is its trace of the variant run, if that is another.

    A dynamic scenario has no trace before a subject ran; `memo` is what need not be computed again then. Of `ranks` it
    has the part of each, solved alone, and the script of all.
    """

    scenario: Scenario
    script: Script
    trace: Trace | None = None
    varied: Trace | None = None
    memo: Memo | None = None
    ranks: tuple[Solved, ...] = ()


Reference = Callable[[Scenario], Solved]
_OTHERS: frozenset[Variant] = frozenset({"other_commit", "chain_as_tree", "unoverlapped"})
"""Variants for which the reference's trace differs from the scenario's own."""


def solved(scenario: Scenario) -> Solved:
    """Solve a scenario and trace its script; nothing is kept from one scenario to the next."""
    if scenario.ranks.data > 1:
        parts = tuple(_solved_alone(of_rank(scenario, rank)) for rank in range(scenario.ranks.data))
        scripts = [iter(part.script.requests) for part in parts]
        script = Script(requests=tuple(next(scripts[request.rank]) for request in scenario.requests))
        return Solved(scenario, script, ranks=parts)
    return _solved_alone(scenario)


def _solved_alone(scenario: Scenario) -> Solved:
    memo = Memo()
    script = solve(scenario, memo)
    return Solved(scenario, script, memo=memo) if scenario.dynamic else traced(scenario, script, memo)


def for_limits(known: Solved, limits: Limits) -> Solved:
    """Return the solution with a script for a subject whose first round may begin later in the text."""
    if limits.first_drafts == "own round" or known.scenario.dynamic:
        return known
    return replace(known, script=solve(known.scenario, known.memo, limits.first_drafts))


def traced(scenario: Scenario, script: Script, memo: Memo, limits: Limits = NO_LIMITS) -> Solved:
    """Return the trace of a script, and of a variant that another commit changes, a tree, or a host that waits."""
    other = varied_scenario(scenario) if scenario.variant in _OTHERS else None
    of_other = script_as_tree(script) if other and other.tree and not scenario.tree else script
    varied = _trace(other, of_other, memo, finish_of(other, limits)) if other else None
    return Solved(scenario, script, _trace(scenario, script, memo, finish_of(scenario, limits)), varied)


def _trace(scenario: Scenario, script: Script, memo: Memo, finish: Finish) -> Trace:
    return with_rounded(scenario, script, run(scenario, script, memo, finish), finish, memo.following)
