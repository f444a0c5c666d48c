"""`draftproof replay`: run one case again and show its first divergence in context."""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftproof.cli import inputs, screen, subjects
from draftproof.report.commands import command
from draftproof.report.text import block, line

if TYPE_CHECKING:
    from draftproof.harness.replay import Replayed


def replay(
    case: subjects.CaseFile,
    device: inputs.Device = "cpu",
    fault: subjects.FaultId = None,
    patch: subjects.Patch = None,
    subject: subjects.Factory = None,
    json: inputs.Json = None,
) -> None:
    """Run one case again and show its first divergence.

    The script that the reference makes of the scenario must be the one that the case file stores.
    """
    from draftproof.harness import replay as replays
    from draftproof.harness.subjects import make_from
    from draftproof.properties.values.case import read_case

    known = replays.solve_again(*read_case(case), str(case))
    with subjects.subject(device, fault, patch, subject) as spec:
        try:
            made = make_from(spec) if spec.folder or spec.factory else inputs.engine(device)
        except (ImportError, AttributeError) as error:
            if subject is None:
                raise
            raise inputs.InputError(f"invalid --subject {subject!r}: expected what can be imported: {error}") from error
        done = replays.replay(made, known, str(case))
    _show(done)
    again = command("replay", case, device=device, fault=fault, subject=subject, patch=patch)
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
