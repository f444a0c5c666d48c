"""Shrink a case file into another one, which holds the smallest case at every moment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from draftproof.fuzz.shrinking.shrink import ALIKE, Run, Shrunk, confirm, shrink
from draftproof.harness.identity import Identity
from draftproof.harness.workers.messages import Answer
from draftproof.properties.formats.case import Case, case_text, read_case
from draftproof.properties.lib.base import Value
from draftproof.properties.lib.files import write_whole
from draftproof.properties.lib.invalid import InvalidScenarioError
from draftproof.properties.values.limits import NO_LIMITS, Limits
from draftproof.properties.values.located import DRAFT, TARGET, folders, located
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.subject_choice import BUILT_IN_SUBJECT, SubjectChoice
from draftproof.properties.values.verdict import Outcome
from draftproof.reference.solved import solved

TIMES = 3
"""Runs that confirm the smallest case."""


class ShrinkReport(Value, frozen=True, kw_only=True):
    """The result of shrinking a case file.

    `verdict` is the case's own, SKIP if it is FLAKY: it did not fail again in any of `runs` runs. `answer` is None if
    the case does not fail. `done`: nothing smaller that was tried fails alike. `rounds`: the rounds of each request,
    where they are fixed before a run.
    """

    verdict: Outcome
    case: str
    shrunk: str = ""
    identity: Identity | None = None
    answer: Answer | None = None
    requests: int = 0
    rounds: tuple[int, ...] = ()
    tried: int = 0
    seconds: float = 0.0
    done: bool = False
    confirmed: int = 0
    runs: int = 0


def shrink_case(
    scenario: Scenario,
    case: Path,
    out: Path,
    run: Run,
    *,
    budget: float,
    width: int,
    note: Callable[[str], None] = lambda _text: None,
    progress: Callable[[Scenario], None] = lambda _scenario: None,
    choice: SubjectChoice = BUILT_IN_SUBJECT,
    fault: str = "",
    limits: Limits = NO_LIMITS,
) -> ShrinkReport:
    """Shrink a scenario, read from `case`, for at most `budget` seconds, and keep the smallest one in `out`.

    `width` candidates run at a time. If `out` holds a smaller case of the same failure already, shrinking resumes from
    it. `choice` is what runs it, within its `limits`, and `fault` the id of a bug that was brought back for it; `note`
    is told in words where shrinking starts, `progress` is given every smaller scenario. Raises OSError for a file that
    cannot be written, and RuntimeError if the case could not be judged.
    """
    answer = run([scenario])[0]
    identity = answer.identity
    if answer.outcome is Outcome.ERROR:
        raise RuntimeError(f"the case could not be judged:\n{answer.detail}")
    if identity is None:
        return ShrinkReport(verdict=answer.outcome, case=str(case))
    if out.exists():
        scenario, answer = _resumed(scenario, answer, identity, out, run, note)

    origin = f"shrunk from {case}" + (f" with --fault {fault}" if fault else "")

    def keep(smaller: Scenario) -> None:
        progress(smaller)
        script = solved(smaller).script
        made = Case(scenario=smaller, script=script, origin=origin, subject=choice)
        write_whole(out, case_text(made))

    keep(scenario)
    found = shrink(scenario, answer, run, budget=budget, width=width, saved=keep, limits=limits)
    return _report(found, case, out, confirm(found.scenario, identity, run, TIMES))


def _resumed(
    scenario: Scenario, answer: Answer, identity: Identity, out: Path, run: Run, note: Callable[[str], None]
) -> tuple[Scenario, Answer]:
    """Return the scenario in `out` if it still fails alike, else the one of the case."""
    try:
        earlier = _where(scenario, read_case(out)[0])
    except InvalidScenarioError as error:
        note(f"{out} is replaced, as it cannot be read: {error}")
        return scenario, answer
    found = run([earlier])[0]
    if not found.is_same(identity, ALIKE):
        note(f"{out} is replaced: it does not fail like this case.")
        return scenario, answer
    note(f"Resumes from {out}.")
    return earlier, found


def _where(known: Scenario, scenario: Scenario) -> Scenario:
    """Return a scenario with its checkpoints where another scenario's are."""
    at = folders(known)
    options = {name: at[name] for name in folders(scenario) if name in at}
    return located(scenario, options.get(TARGET, ""), options.get(DRAFT, ""))


def _report(found: Shrunk, case: Path, out: Path, confirmed: int) -> ShrinkReport:
    script = solved(found.scenario).script
    dynamic = found.scenario.dynamic
    return ShrinkReport(
        verdict=found.answer.outcome if confirmed else Outcome.SKIP,
        case=str(case),
        shrunk=str(out),
        identity=found.original,
        answer=found.answer.brief,
        requests=len(found.scenario.requests),
        rounds=() if dynamic else tuple(len(request.rounds) for request in script.requests),
        tried=found.tried,
        seconds=found.seconds,
        done=found.done,
        confirmed=confirmed,
        runs=TIMES,
    )
