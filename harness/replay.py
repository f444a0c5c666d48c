"""Replay a case: solve its scenario again, run it and judge it."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from draftproof.harness.execute import SCENARIO_DEADLINE, Executor
from draftproof.harness.workers.messages import Order
from draftproof.properties.coverage.counts import counts
from draftproof.properties.coverage.effects import acts
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.features import features_of
from draftproof.properties.judge import Judgement, skipped_where_unconcerned, summarise
from draftproof.properties.lib.base import Value
from draftproof.properties.lib.errors import DraftproofError
from draftproof.properties.lib.paths import brief, first_difference
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.values.subject import Subject
from draftproof.properties.values.verdict import Divergence, Outcome, Verdict
from draftproof.reference.solved import Solved, solved


class StaleCaseError(DraftproofError, ValueError):
    """A case cannot be solved, or not as its file says; the message names the file and the first difference."""


class ReplayReport(Value, frozen=True, kw_only=True):
    """The result of a replay. `failed` lists the contracts that failed; `detail` is a crash's traceback.

    `features` are the features of the scenario, `inert` those that had no effect, `counts` what was exercised,
    `contracts` the verdict of each: SKIP if it concerns nothing here, INCONCLUSIVE if something that it requires did
    not happen in this one scenario. `without` names the fault with which the case was found, if this run is without it.
    """

    verdict: Outcome
    case: str
    failed: tuple[str, ...] = ()
    first: Divergence | None = None
    detail: str = ""
    features: tuple[str, ...] = ()
    inert: tuple[str, ...] = ()
    counts: dict[str, int] = msgspec.field(default_factory=dict)
    contracts: tuple[Verdict, ...] = ()
    without: str = ""


class Replayed(NamedTuple):
    """A replay's report, and what was judged: None if the subject crashed or hung."""

    report: ReplayReport
    ran: Evidence | None = None
    judged: Judgement | None = None


def solve_again(scenario: Scenario, stored: Script | None, case: str) -> Solved:
    """Solve a scenario. Raises StaleCaseError if that fails, or if the script that `case` stores is another one."""
    try:
        known = solved(scenario)
    except (ValueError, OSError) as error:
        raise StaleCaseError(f"{case}: {error}") from None
    if stored is not None and stored != known.script:
        at, was, now = first_difference(msgspec.to_builtins(stored), msgspec.to_builtins(known.script), "script")
        raise StaleCaseError(
            f"{case}: {at} is {brief(was)} in the file, and {brief(now)} when solved again; the case was made by"
            " another version, or edited: without its script it is solved anew"
        )
    return known


def replay(subject: Subject, known: Solved, case: str, without: str = "") -> Replayed:
    """Run a solved scenario on a subject and judge it: INCONCLUSIVE if no contract reached its minimum.

    `without` names a fault that the case was found with and the subject does not have.
    """
    seen: list[tuple[Evidence, Judgement]] = []

    def reference(scenario: Scenario) -> Solved:
        # The variant "alone" runs another one, too.
        return known if scenario == known.scenario else solved(scenario)

    executor = Executor(subject, reference=reference, deadline=SCENARIO_DEADLINE, observe=lambda *one: seen.append(one))
    answer = executor.examine(Order(number=0, scenario=known.scenario, measured=False))
    features = features_of(known.scenario)
    if not seen:
        report = ReplayReport(
            verdict=answer.outcome, case=case, detail=answer.detail, features=features, without=without
        )
        return Replayed(report)
    ran, judged = seen[0]
    counted = counts(ran)
    contracts = skipped_where_unconcerned(summarise([judged], [counted]))
    proves = answer.outcome is not Outcome.PASS or any(one.verdict is Outcome.PASS for one in contracts)
    report = ReplayReport(
        verdict=answer.outcome if proves else Outcome.INCONCLUSIVE,
        case=case,
        failed=answer.failed,
        first=answer.first,
        features=features,
        inert=tuple(name for name in features if not acts(name, counted)),
        counts=counted,
        contracts=contracts,
        without=without,
    )
    return Replayed(report, ran, judged)
