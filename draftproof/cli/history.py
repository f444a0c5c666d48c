"""`draftproof lab bisect history`: which commit brought a failure in."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from draftproof.cli import cases, inputs, screen, subjects
from draftproof.cli.again import again
from draftproof.report.text import block

if TYPE_CHECKING:
    from draftproof.fuzz.bisect.history import HistoryReport
    from draftproof.fuzz.bisect.revision import RevisionResult, Search

_TIMEOUT = 120.0

Repo = Annotated[Path, typer.Option("--repo", help="The engine's git repository; it is not touched.", file_okay=False)]
Good = Annotated[str, typer.Option("--good", help="A commit on which the case passes.")]
Bad = Annotated[str, typer.Option("--bad", help="A later commit on which it fails.")]
Setup = Annotated[
    str | None, typer.Option("--setup", help="A command (no shell) that builds a commit, run in its worktree.")
]
SubjectName = Annotated[
    str | None,
    typer.Option(
        "--subject",
        help="package.module:name in the repository, which makes a Subject (default: its engine/ and kernels/).",
    ),
]
Repeat = Annotated[int, typer.Option("--repeat", min=1, max=1000, help="Runs on each commit, for a flaky case.")]
Timeout = Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds for one run; longer is a hang.")]


def history(
    repo: Repo,
    good: Good,
    bad: Bad,
    case: subjects.CaseFile,
    setup: Setup = None,
    subject: SubjectName = None,
    repeat: Repeat = 1,
    device: inputs.Device = "cpu",
    timeout: Timeout = _TIMEOUT,
    json: inputs.Json = None,
) -> None:
    """Find the commit that made a case fail.

    Each is tried in a git worktree of its own.
    """
    from draftproof.fuzz.bisect.history import bisect_history
    from draftproof.fuzz.bisect.revision import Search

    cases.read([case])
    search = Search(
        repository=str(repo),
        good=good,
        bad=bad,
        setup=words_of(setup),
        subject=inputs.factory_name(subject) if subject is not None else "",
        device=inputs.device(device),
        repeat=repeat,
        timeout=timeout,
    )
    report = bisect_history(search, case, tell)
    show(report)
    screen.line(f"Again: {_again(search, case)}", "bold")
    inputs.finish(json, report, report.verdict)


def words_of(text: str | None) -> tuple[str, ...]:
    """Return the words of a command. Raises InputError."""
    try:
        words = tuple(shlex.split(text or ""))
    except ValueError as error:
        raise inputs.InputError(f"invalid --setup {text!r}: expected a command: {error}") from None
    if text is not None and not words:
        raise inputs.InputError(f"invalid --setup {text!r}: expected a command")
    return words


def tell(tested: RevisionResult) -> None:
    """Print one line for a commit as soon as it is tested."""
    from draftproof.fuzz.bisect.revision import named

    runs = f", {tested.failing} of {tested.runs} runs failed" if tested.runs > 1 and tested.failing else ""
    why = f" ({tested.reason}{runs})" if tested.reason else f" ({named(tested.identity)}{runs})"
    said = f"{tested.said}{why if tested.said != 'good' else ''}"
    screen.line(f"{tested.commit[:12]} {tested.subject}: {said}, {tested.seconds:.1f} s")


def show(report: HistoryReport) -> None:
    """Print the commit, or those that it may be, and how the case fails there."""
    from draftproof.fuzz.bisect.revision import named

    counted = f"{report.tested} of {report.between} revisions tested, {report.skipped} of them skipped"
    if report.first is not None:
        screen.line(f"\nThe first bad commit ({counted}):", "bold")
    else:
        screen.line(f"\nSkipped revisions hide which of these is the first bad commit ({counted}):", "bold")
    for one in report.candidates:
        screen.line(f"  {one.hash} {one.date} {one.subject}")
    bad = report.bad
    if bad.first is not None:
        screen.line(block(bad.first), "red")
    else:
        screen.line(f"{named(report.identity)}\n{bad.detail.rstrip()}", "red")


def _again(search: Search, case: Path) -> str:
    return again(
        *("lab", "bisect", "history", case),
        repo=search.repository,
        good=search.good,
        bad=search.bad,
        setup=shlex.join(search.setup),
        subject=search.subject,
        repeat=search.repeat if search.repeat > 1 else None,
        device=search.device,
        timeout=f"{search.timeout:g}",
    )
