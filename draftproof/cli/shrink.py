"""`draftproof lab shrink`: make a failing case smaller."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from draftproof.cli import cases, inputs, screen, subjects
from draftproof.cli.groups import with_option_groups
from draftproof.properties.lib.durations import parse_duration
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.verdict import Outcome
from draftproof.report.commands import command
from draftproof.report.numbers import plural
from draftproof.report.text import block, describe_scenario

if TYPE_CHECKING:
    from draftproof.fuzz.shrinking.shrink_case import ShrinkReport
    from draftproof.harness.workers.messages import Answer

Time = Annotated[str, typer.Option("--time", help="Most time to spend, e.g. 60s or 10m.")]
Out = Annotated[Path | None, typer.Option("--out", help="The file for the smaller case (default: CASE.shrunk.json).")]


@with_option_groups(case=cases.given, under_test=subjects.chosen)
def shrink_(
    case: cases.GivenCase,
    under_test: subjects.UnderTest,
    time: Time = "60s",
    workers: subjects.Workers = subjects.MOST_WORKERS,
    out: Out = None,
    json: inputs.Json = None,
) -> None:
    """Make a failing case smaller while it fails in the same way. Run the same command again to resume."""
    seconds = parse_duration(time, "--time")
    subjects.require_whose(case.path, under_test)
    path = target(case, out)
    limits = case.limits(under_test)
    report = shrunk(case, under_test, limits, path, seconds, workers)
    if report.answer is None:
        case.show_passing(under_test, report.verdict, "shrink")
    else:
        _show(report, path, command("replay", path, **under_test.arguments))
    inputs.finish(json, report, Outcome.PASS if is_shrunk(report) else Outcome.INCONCLUSIVE)


def target(case: cases.GivenCase, out: Path | None) -> Path:
    """Return the file for the smaller case. Raises InputError."""
    path = out or case.path.with_suffix(".shrunk.json")
    if path.resolve() == case.path.resolve():
        raise inputs.InputError(f"invalid --out '{path}': expected another file than the case")
    return path


def is_shrunk(report: ShrinkReport) -> bool:
    """Return whether the case failed, and the smallest one again."""
    return report.answer is not None and report.verdict is not Outcome.SKIP


def shrunk(
    case: cases.GivenCase, under_test: subjects.UnderTest, limits: Limits, path: Path, seconds: float, workers: int
) -> ShrinkReport:
    """Shrink a case into a file, for at most so many seconds. Raises InputError, and what `shrink_case` raises."""
    from draftproof.fuzz.shrinking.shrink_case import shrink_case
    from draftproof.harness.workers.pool import Pool

    with (
        under_test.patched() as spec,
        tempfile.TemporaryDirectory(prefix="draftproof-") as journals,
        Pool(spec, workers, Path(journals)) as pool,
        _progress() as progress,
    ):
        try:
            return shrink_case(
                case.scenario,
                case.path,
                path,
                subjects.runner(pool),
                budget=seconds,
                width=workers,
                note=screen.line,
                progress=progress,
                choice=under_test.choice,
                fault=under_test.fault_id(),
                limits=limits,
            )
        except KeyboardInterrupt:
            screen.line(f"Interrupted. {_so_far(path)}")
            raise
        except OSError as error:
            raise inputs.InputError(f"invalid --out '{path}': it cannot be written: {error.strerror}") from None


def _so_far(path: Path) -> str:
    """Say where the smallest case is once a search has ended early."""
    return f"The smallest case so far is {path}." if path.is_file() else "Nothing smaller was found so far."


@contextmanager
def _progress() -> Iterator[Callable[[Scenario], None]]:
    """Show the smallest scenario so far."""
    if not sys.stderr.isatty():
        tell = screen.now_and_then()
        yield lambda scenario: tell(f"shrinking: {describe_scenario(scenario)}")
        return
    from rich.console import Console

    with Console(stderr=True).status("shrinking") as status:
        yield lambda scenario: status.update(f"shrinking: {describe_scenario(scenario)}")


def failure(answer: Answer) -> str:
    """Return how a case fails, as a block of lines; of a crash or a hang what it is, and where."""
    place = f" in the {answer.place}" if answer.place else ""
    return block(answer.first) if answer.first else f"{answer.outcome} {answer.error}{place}"


def tried(report: ShrinkReport) -> str:
    """Say how long it was searched, and why it ended."""
    ended = "nothing smaller fails alike" if report.done else "the time was over before all was tried"
    return f"{plural(report.tried, 'scenario')} tried in {report.seconds:.1f} s; {ended}."


def _show(report: ShrinkReport, path: Path, again: str) -> None:
    from draftproof.properties.formats.case import read_case

    answer, scenario = report.answer, read_case(path)[0]
    assert answer is not None
    screen.line(f"{path}: {describe_scenario(scenario)}.")
    if report.rounds:
        screen.line(f"Rounds of each request: {', '.join(map(str, report.rounds))}.")
    screen.line(tried(report))
    screen.line(failure(answer), "red")
    if report.verdict is Outcome.SKIP:
        screen.line(f"FLAKY: it failed in none of {report.runs} runs more; {path} keeps it.", "bold red")
    else:
        screen.line(f"Failed again in {report.confirmed} of {report.runs} runs.")
    screen.line(f"{report.verdict}. Again: {again}", "bold")
