"""`draftproof replay`: run one case again and show its first divergence in context."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from draftproof.cli import cases, inputs, screen, subjects
from draftproof.cli.groups import taking
from draftproof.report.commands import command
from draftproof.report.text import block, line

if TYPE_CHECKING:
    from draftproof.harness.replay import Replayed


@taking(case=cases.given, under_test=subjects.chosen)
def replay(case: cases.GivenCase, under_test: subjects.UnderTest, json: inputs.Json = None) -> None:
    """Run one case again and show its first divergence.

    The script that the reference makes of the scenario must be the one that the case file stores.
    """
    from draftproof.harness import replay as replays
    from draftproof.harness.subject_report import assumed

    subjects.require_whose(case.path, under_test)
    known = replays.solve_again(case.scenario, case.script, str(case.path))
    with under_test.patched() as spec, contextlib.closing(under_test.made(spec)) as made:
        done, assumes = replays.replay(made, known, str(case.path)), assumed(made)
    screen.show_assumed(assumes, done.report.verdict)
    _show(done)
    again = command("replay", case.path, **case.where, **under_test.arguments)
    screen.line(f"{done.report.verdict}. Again: {again}", "bold")
    inputs.finish(json, done.report, done.report.verdict)


def _show(done: Replayed) -> None:
    """Print the first divergence with its neighbours, and the other contracts that failed."""
    report, first = done.report, done.report.first
    if done.ran is None or done.judged is None:
        screen.line(report.detail.rstrip())
        return
    if first is None:
        return
    from draftproof.report.neighbours import neighbours

    screen.line(block(first), "red")
    if rows := neighbours(done.ran, first):
        numbers = ("round", "step", "layer", "row")
        screen.show(("", *numbers, "expected", "got"), rows, right=numbers)
    for name, found in done.judged.results.items():
        if found is not None and name != first.contract:
            screen.line(f"FAIL {name}: {line(found)}.")
