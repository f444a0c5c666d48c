"""`draftproof lab bisect parts`: which parts of the engine must be on for a case to fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftproof.cli import cases, inputs, screen, subjects
from draftproof.cli.again import again
from draftproof.cli.groups import with_option_groups
from draftproof.properties.values.verdict import Outcome
from draftproof.report.text import block

if TYPE_CHECKING:
    from draftproof.fuzz.bisect.search import Bisection


@with_option_groups(case=cases.given, under_test=subjects.chosen)
def parts(
    case: cases.GivenCase,
    under_test: subjects.UnderTest,
    workers: subjects.Workers = subjects.MOST_WORKERS,
    json: inputs.Json = None,
) -> None:
    """Find the smallest set of engine parts that a case needs to fail.

    Parts are graphs, paging, chunks, kernels.
    """
    from draftproof.fuzz.bisect.search import bisect_parts

    subjects.require_whose(case.path, under_test)
    limits = case.limits(under_test)
    with under_test.patched() as spec:
        report = bisect_parts(case.scenario, str(case.path), spec, workers, limits)
    if report.found is not None:
        show(report.found)
        if report.found.answer.first is not None:
            screen.line(block(report.found.answer.first))
        screen.line(describe_parts(report.found), "red")
        repeated = again("lab", "bisect", "parts", case.path, **case.where, **under_test.arguments)
        screen.line(f"{report.verdict}. Again: {repeated}", "bold")
    elif report.flaky:
        screen.line(f"{case.path} is FLAKY: it failed once and then not again, so it cannot be bisected.", "bold")
    else:
        case.show_passing(under_test, report.verdict, "bisect")
    inputs.finish(json, report, Outcome.INCONCLUSIVE if report.found is None else Outcome.PASS)


def show(found: Bisection) -> None:
    """Print a row for each part: whether it is needed, and what became of the failure without it."""
    from draftproof.fuzz.bisect.parts import KERNEL
    from draftproof.fuzz.bisect.search import Alone

    others = [part for part in found.parts if part.name.startswith(KERNEL) and part.alone is Alone.UNTRIED]
    rows = [
        (
            part.name,
            part.on,
            "yes" if part.needed else "",
            f"{part.alone}: {part.other}" if part.alone is Alone.OTHER else str(part.alone),
        )
        for part in found.parts
        if part not in others
    ]
    screen.show(("part", "what runs with it", "needed", "failure with only this off"), rows)
    if others:
        screen.line(f"Not needed together: {', '.join(part.name.removeprefix(KERNEL) for part in others)}.")
    for name, why in found.fixed.items():
        screen.line(f"Stays on: {name}; {why}.")
    for note in found.notes:
        screen.line(f"{note}.")


def describe_parts(found: Bisection) -> str:
    """Return the result as a sentence."""
    if not found.parts:
        return "There is no part that could be off."
    needed = f"It takes: {' + '.join(found.needed)}."
    result = needed if found.needed else "It takes none of these parts: it fails with all of them off."
    return f"{result} ({found.runs} sets of parts tried.)"
