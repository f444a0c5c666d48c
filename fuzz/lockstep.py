"""One scenario in lockstep: the reference and the subject run it, and what both saw is put side by side."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass

from draftproof.properties.contracts.evidence import Evidence
from draftproof.properties.relations import related as related_scenario
from draftproof.properties.subject import Subject
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.values.trace import Trace
from draftproof.reference.memo import Memo
from draftproof.reference.run import run
from draftproof.reference.solve import solve


@dataclass(frozen=True)
class Solved:
    """A scenario with what the reference makes of it."""

    scenario: Scenario
    script: Script
    trace: Trace


Reference = Callable[[Scenario], Solved]


def solved(scenario: Scenario) -> Solved:
    """Solve a scenario and trace its script; nothing is kept from one scenario to the next."""
    memo = Memo()
    script = solve(scenario, memo)
    return Solved(scenario, script, run(scenario, script, memo))


class SubjectCrashed(Exception):
    """The subject raised. `during` names the run, `where` the innermost frame, `trace` is the whole traceback."""

    def __init__(self, during: str, error: BaseException) -> None:
        self.during = during
        self.where = _where(error)
        self.trace = "".join(traceback.format_exception(error))
        text = str(error).strip().splitlines()
        self.error = f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
        super().__init__(f"{self.error}, in {self.where}, {during}")


def _where(error: BaseException) -> str:
    """The innermost frame of ours, as file:line function; the innermost of all if there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return "no frame"
    ours = [frame for frame in frames if "/engine/" in frame.filename or "/kernels/" in frame.filename]
    frame = (ours or list(frames))[-1]
    return f"{'/'.join(frame.filename.split('/')[-2:])}:{frame.lineno} {frame.name}"


def evidence(subject: Subject, scenario: Scenario, reference: Reference = solved) -> Evidence:
    """Run the base pair and, if the scenario draws a relation, the related run. Raises SubjectCrashed."""
    known = reference(scenario)
    base = _run(subject, scenario, known.script, "in the base run")
    other = None
    if scenario.relation != "none":
        other = _run(subject, related_scenario(scenario), known.script, f"in the run related by {scenario.relation}")
    return Evidence(scenario=scenario, script=known.script, reference=known.trace, subject=base, related=other)


def _run(subject: Subject, scenario: Scenario, script: Script, during: str) -> Trace:
    try:
        return subject.run(scenario, script)
    except Exception as error:
        raise SubjectCrashed(during, error) from error
