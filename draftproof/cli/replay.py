"""`draftproof replay`: one case again, with its first divergence in context."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import msgspec
import typer

from draftproof.cli import inputs, screen, subjects
from draftproof.harness.execute import DEADLINE, Executor
from draftproof.harness.lockstep import Solved, solved
from draftproof.harness.workers.messages import Order
from draftproof.harness.workers.subject import make
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.judge import Judgement
from draftproof.properties.subject import Subject
from draftproof.properties.values.base import Value
from draftproof.properties.values.case import read_case
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.values.validate import InvalidScenarioError
from draftproof.properties.values.verdict import EXIT_CODES, Divergence, Outcome
from draftproof.report.neighbours import neighbours
from draftproof.report.text import block, line

CaseFile = subjects.CaseFile


class Replay(Value, frozen=True, kw_only=True):
    """What a replay showed. `failed` lists the contracts that failed; `detail` is a crash's traceback."""

    verdict: Outcome
    case: str
    failed: tuple[str, ...] = ()
    first: Divergence | None = None
    detail: str = ""


def replay(
    case: CaseFile,
    device: inputs.Device = "cpu",
    fault: subjects.FaultId = None,
    patch: subjects.Patch = None,
    subject: subjects.Factory = None,
    json: inputs.Json = None,
) -> None:
    """Run one case again and show its first divergence. Solving it again must give the stored script."""
    scenario, script = _read(case)
    known = _solve(scenario, script, case)
    with subjects.subject(device, fault, patch, subject) as spec:
        report = _replayed(make(spec) if spec.folder or spec.factory else inputs.engine(device), known, case)
    again = shlex.join(["draftproof", "replay", str(case), *subjects.options(device, fault, patch, subject)])
    screen.line(f"{report.verdict}. Again: {again}", "bold")
    inputs.write_json(json, report)
    raise typer.Exit(EXIT_CODES[report.verdict])


def _replayed(subject: Subject, known: Solved, case: Path) -> Replay:
    seen: list[tuple[Evidence, Judgement]] = []
    executor = Executor(subject, reference=lambda _: known, deadline=DEADLINE, observe=lambda *one: seen.append(one))
    answer = executor.examine(Order(number=0, scenario=known.scenario, measured=False))
    if seen:
        return _judged(*seen[0], case)
    screen.line(answer.detail.rstrip())
    return Replay(verdict=answer.outcome, case=str(case), detail=answer.detail)


def _read(case: Path) -> tuple[Scenario, Script | None]:
    """Raises InputError naming the file and what is wrong in it."""
    try:
        return read_case(case)
    except InvalidScenarioError as error:
        named = str(error).startswith(str(case))
        raise inputs.InputError(str(error) if named else f"{case}: {error}") from None


def _solve(scenario: Scenario, stored: Script | None, case: Path) -> Solved:
    """Solve again. Raises InputError if the stored script is another one."""
    try:
        known = solved(scenario)
    except (ValueError, OSError) as error:
        raise inputs.InputError(f"{case}: {error}") from None
    if stored is not None and stored != known.script:
        found = difference(msgspec.to_builtins(stored), msgspec.to_builtins(known.script), "script")
        raise inputs.InputError(f"{case}: {found}; the case was made by another version, or edited")
    return known


def difference(stored: Any, now: Any, at: str) -> str:
    """The first difference of two JSON forms, with its path."""
    if isinstance(stored, dict) and isinstance(now, dict):
        pairs = [(f"{at}.{name}", stored.get(name), now.get(name)) for name in now]
    elif isinstance(stored, list | tuple) and isinstance(now, list | tuple) and len(stored) == len(now):
        pairs = [(f"{at}[{i}]", *pair) for i, pair in enumerate(zip(stored, now, strict=True))]
    else:
        return f"{at} is {_brief(stored)} in the file, and {_brief(now)} when solved again"
    return next((difference(one, other, where) for where, one, other in pairs if one != other), f"{at} differs")


def _brief(value: Any) -> str:
    """A long value by its size."""
    text = str(value)
    return text if len(text) <= 80 else f"{text[:60]}.. ({len(value)} items)"


def _judged(ran: Evidence, judged: Judgement, case: Path) -> Replay:
    failed = tuple(name for name, found in judged.results.items() if found)
    if judged.first is not None:
        _show(ran, judged.first)
        for name in failed:
            found = judged.results[name]
            if found is not None and name != judged.first.contract:
                screen.line(f"FAIL {name}: {line(found)}.")
    verdict = Outcome.FAIL if failed else Outcome.PASS if judged.results else Outcome.INCONCLUSIVE
    return Replay(verdict=verdict, case=str(case), failed=failed, first=judged.first)


def _show(ran: Evidence, first: Divergence) -> None:
    screen.line(block(first), "red")
    rows = neighbours(ran, first)
    if not rows:
        return
    table = screen.table(
        "", "round", "step", "layer", "row", "expected", "got", right=("round", "step", "layer", "row")
    )
    for row in rows:
        table.add_row(*row)
    screen.console().print(table)
