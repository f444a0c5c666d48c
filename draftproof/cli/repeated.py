"""`draftproof doctor --determinism`: a subject runs the same scenarios again, in its process and in another."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from draftproof.cli import drafts, inputs, screen, subjects
from draftproof.cli.again import again
from draftproof.properties.values.subject_choice import BUILT_IN_SUBJECT, SubjectChoice
from draftproof.report.numbers import plural
from draftproof.report.text import show_versions, what

if TYPE_CHECKING:
    from draftproof.harness.remote import RemoteSubject
    from draftproof.properties.formats.determinism import DeterminismReport, RunDifference
    from draftproof.properties.values.limits import Limits
    from draftproof.properties.values.scenario import Scenario

REPEATED_EXAMPLES = 12
_PASSES = 3
_RUNS = {"the same process": ("first run", "second run"), "another process": ("first process", "second process")}

Determinism = Annotated[
    bool,
    typer.Option(
        "--determinism", help="Run the same scenarios twice, and in another process, and name what differs first."
    ),
]
MaybeSeed = Annotated[
    int | None,
    typer.Option("--seed", help="With --determinism: seed of the scenarios.", min=0, max=inputs.LAST_SEED),
]
Examples = Annotated[
    int | None,
    typer.Option("--examples", min=1, help=f"With --determinism: scenarios to run (default: {REPEATED_EXAMPLES})."),
]


def determinism(
    under_test: subjects.UnderTest,
    target: drafts.DraftOptions,
    seed: int,
    count: int,
    json: Path | None,
) -> None:
    """Run it, and name the first thing that differs. Raises InputError, and RemoteStartError."""
    from draftproof.harness.determinism import determinism as run
    from draftproof.harness.subject_report import versions_of

    options = list[drafts.Chosen]()

    def scenarios(limits: Limits) -> list[Scenario]:
        options.append(drafts.chosen(target, limits))
        return drafts.scenarios(options[0], seed, count)

    with screen.progress("runs", _PASSES * count) as advance:
        report = run(lambda: _apart(under_test), scenarios, versions_of, advance)
    screen.line(f"{report.subject} with {show_versions(report.versions)}")
    for one in report.differences:
        _show(one)
    given = {"seed": seed, "examples": count, **options[0].arguments, **under_test.of_cases}
    screen.line(f"{report.verdict}: {_says(report)}. Again: {again('doctor', determinism=True, **given)}", "bold")
    inputs.finish(json, report, report.verdict)


def _apart(under_test: subjects.UnderTest) -> RemoteSubject:
    """Make the subject in a process of its own, in its Python or in this one. Raises RemoteStartError."""
    from draftproof.harness.remote import RemoteSubject

    choice, search = under_test.choice, subjects.search()
    if not choice.python:
        # What this Python can import, the same one can elsewhere.
        search = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
        name = "engine" if choice == BUILT_IN_SUBJECT else choice.name
        choice = SubjectChoice(name=name, python=sys.executable, settings=choice.settings)
    return RemoteSubject(choice, device=under_test.where, search=search, shown=under_test.debug)


def _show(one: RunDifference) -> None:
    """Print where a run differs from the first, and both sides."""
    first, second = _RUNS[one.place]
    screen.line(f"\nscenario {one.scenario}, in {one.place}: {_kind(one)}", "red")
    rows = [(first, one.runs[0]), (second, one.runs[1])]
    if one.found is not None:
        place = {name: getattr(one.found, name) for name in ("request", "round", "step", "layer", "row")}
        where = ", ".join(f"{name} {value}" for name, value in place.items() if value >= 0)
        index = f", element {one.found.index}" if one.found.index >= 0 else ""
        told = what(one.found)
        rows = [
            *([("what", told)] if told else []),
            ("where", f"{one.found.channel}: {where or 'the whole run'}{index}"),
            *rows,
            ("extent", f"{one.found.count} of {plural(one.found.total, 'observation')} of this scenario"),
        ]
    for name, text in rows:
        screen.line(f"  {name:<15}{text}")


def _kind(one: RunDifference) -> str:
    return {
        "value": "another value",
        "order": f"the same values, reported in another order from report {one.number} on",
        "channels": "other channels are declared",
        "error": "another error",
    }[one.kind]


def _says(report: DeterminismReport) -> str:
    ran = plural(report.scenarios, "scenario")
    unfit = f", {report.unfit} more cannot be run by it" if report.unfit else ""
    raised = f"; {report.raised} raised the same error in every run, which shows nothing" if report.raised else ""
    if report.differences:
        return f"two runs of a scenario differ in {' and in '.join(one.place for one in report.differences)}"
    if not report.whole:
        return f"none of {ran} ran to its end{raised}{unfit}"
    whole = f"{report.whole} of {ran} ran to the end"
    if not report.observations:
        return f"{whole}, and nothing was observed{raised}{unfit}"
    seen = plural(report.observations, "observation")
    return f"{whole} and came out equal twice in one process and in another, {seen} each time{raised}{unfit}"
