"""`draftproof shrink`: make a failing case smaller."""

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
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.verdict import Outcome
from draftproof.report.commands import command
from draftproof.report.numbers import plural
from draftproof.report.text import block, describe_scenario

if TYPE_CHECKING:
    from draftproof.fuzz.shrinking.shrink_case import ShrinkReport

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
    from draftproof.fuzz.shrinking.shrink_case import shrink_case
    from draftproof.harness.workers.pool import Pool

    budget = parse_duration(time, "--time")
    subjects.require_whose(case.path, under_test)
    path = out or case.path.with_suffix(".shrunk.json")
    if path.resolve() == case.path.resolve():
        raise inputs.InputError(f"invalid --out '{path}': expected another file than the case")
    limits, _ = subjects.limits_of(under_test)
    with (
        under_test.patched() as spec,
        tempfile.TemporaryDirectory(prefix="draftproof-") as journals,
        Pool(spec, workers, Path(journals)) as pool,
        _progress() as progress,
    ):
        try:
            report = shrink_case(
                case.scenario,
                case.path,
                path,
                subjects.runner(pool),
                budget=budget,
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
    if report.answer is None:
        cases.show_missing(case.missing_fault(under_test))
        screen.line(f"{case.path} does not fail: {report.verdict}. There is nothing to shrink.", "bold")
    else:
        _show(report, path, command("replay", path, **under_test.arguments))
    is_shrunk = report.answer is not None and report.verdict is not Outcome.SKIP
    inputs.finish(json, report, Outcome.PASS if is_shrunk else Outcome.INCONCLUSIVE)


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


def _show(report: ShrinkReport, path: Path, again: str) -> None:
    from draftproof.properties.formats.case import read_case

    answer, scenario = report.answer, read_case(path)[0]
    assert answer is not None
    ended = "nothing smaller fails alike" if report.done else "the time was over before all was tried"
    screen.line(f"{path}: {describe_scenario(scenario)}.")
    if report.rounds:
        screen.line(f"Rounds of each request: {', '.join(map(str, report.rounds))}.")
    screen.line(f"{plural(report.tried, 'scenario')} tried in {report.seconds:.1f} s; {ended}.")
    if answer.first is not None:
        screen.line(block(answer.first), "red")
    else:
        place = f" in the {answer.place}" if answer.place else ""
        screen.line(f"{answer.outcome} {answer.error}{place}", "red")
    if report.verdict is Outcome.SKIP:
        screen.line(f"FLAKY: it failed in none of {report.runs} runs more; {path} keeps it.", "bold red")
    else:
        screen.line(f"Failed again in {report.confirmed} of {report.runs} runs.")
    screen.line(f"{report.verdict}. Again: {again}", "bold")
