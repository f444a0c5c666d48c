"""`draftproof explain`: a failing case made smaller, the parts that it takes, and the commit that brought it in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from msgspec.structs import replace

from draftproof.cli import cases, history, inputs, parts, screen, shrink, subjects
from draftproof.cli.again import again
from draftproof.cli.groups import with_option_groups
from draftproof.properties.lib.durations import parse_duration
from draftproof.report.commands import command
from draftproof.report.text import describe_scenario, row

if TYPE_CHECKING:
    from draftproof.fuzz.bisect.revision import Search
    from draftproof.fuzz.explain import ExplainReport
    from draftproof.properties.values.limits import Limits

_TIME = "60s"
Repo = Annotated[
    Path | None,
    typer.Option(
        "--repo",
        help="Also find the commit of this git repository that made the case fail (with --good and --bad); it is not"
        " touched.",
        file_okay=False,
    ),
]
Good = Annotated[str | None, typer.Option("--good", help="With --repo: a commit on which the case passes.")]
Bad = Annotated[str | None, typer.Option("--bad", help="With --repo: a later commit on which it fails.")]
Time = Annotated[str, typer.Option("--time", help="Most time to make the case smaller, e.g. 60s or 10m.")]


class Past(NamedTuple):
    """Where the commit is looked for: nowhere without `repo`."""

    repo: Path | None = None
    good: str | None = None
    bad: str | None = None
    setup: str | None = None

    def search(self, under_test: subjects.UnderTest) -> Search | None:
        """Return what to look for in a repository that is there. Raises InputError and HistoryError."""
        given = {name: value for name, value in self._asdict().items() if value is not None}
        if self.repo is None:
            for name, value in given.items():
                raise inputs.InputError(f"invalid --{name} {value!r}: expected only together with --repo")
            return None
        if self.good is None or self.bad is None:
            raise inputs.InputError(f"invalid --repo '{self.repo}': expected --good and --bad, too, a commit each")
        choice = under_test.choice
        beside = {"fault": under_test.fault, "patch": under_test.patch, **choice.options, "subject": ""}
        for name in (name for name, value in beside.items() if value):
            raise inputs.InputError(f"invalid --repo '{self.repo}': expected without --{name}, which no commit has")
        from draftproof.fuzz.bisect.history import ends
        from draftproof.fuzz.bisect.revision import Search

        search = Search(
            repository=str(self.repo),
            good=self.good,
            bad=self.bad,
            setup=history.words_of(self.setup),
            subject=inputs.factory_name(choice.name) if choice.name not in ("", "engine") else "",
            device=under_test.where,
        )
        ends(search)
        return search


def past(repo: Repo = None, good: Good = None, bad: Bad = None, setup: history.Setup = None) -> Past:
    """Return the options that say where the commit is looked for."""
    return Past(repo, good, bad, setup)


@with_option_groups(case=cases.given, before=past, under_test=subjects.chosen)
def explain(
    case: cases.GivenCase,
    before: Past,
    under_test: subjects.UnderTest,
    time: Time = _TIME,
    workers: subjects.Workers = subjects.MOST_WORKERS,
    out: shrink.Out = None,
    json: inputs.Json = None,
) -> None:
    """Make a failing case smaller, and find what it takes to fail.

    That is parts of the engine, and with --repo the commit that made it fail. Each step works on what the one before
    found. Run the same command again to resume.
    """
    seconds = parse_duration(time, "--time")
    subjects.require_whose(case.path, under_test)
    path, search = shrink.target(case, out), before.search(under_test)
    limits = case.limits(under_test)
    done = smaller(case, under_test, limits, path, seconds, workers)
    if done.shrunk.answer is None:
        case.show_passing(under_test, done.verdict, "explain")
        if search:
            screen.line("It has to fail here, too. Of the repository alone: draftproof lab bisect history")
        inputs.finish(json, done, done.outcome)
    done = rest(done, under_test, limits, workers, search, json)
    asked = {**case.where, **before._asdict(), **under_test.arguments, "time": time if time != _TIME else None}
    repeated = again("explain", case.path, **asked, out=out)
    screen.line(f"{done.verdict}. Again: {repeated}", "bold")
    inputs.finish(json, done, done.outcome)


def smaller(
    case: cases.GivenCase, under_test: subjects.UnderTest, limits: Limits, path: Path, seconds: float, workers: int
) -> ExplainReport:
    """Make the case smaller, and say how far. Raises what `shrink.shrunk` raises."""
    from draftproof.fuzz.explain import ExplainReport

    report = shrink.shrunk(case, under_test, limits, path, seconds, workers)
    if report.answer is not None:
        screen.line(f"smaller: {path}; {shrink.tried(report)}")
    verdict = report.answer.outcome if report.answer else report.verdict
    return ExplainReport(verdict=verdict, case=str(case.path), shrunk=report)


def rest(
    done: ExplainReport,
    under_test: subjects.UnderTest,
    limits: Limits,
    workers: int,
    search: Search | None = None,
    json: Path | None = None,
) -> ExplainReport:
    """Find what the smaller case takes, and its commit; print all that is known, also where a step raises.

    Raises what a step raises, once the others are done.
    """
    failed: Exception | None = None
    steps: list[Callable[[ExplainReport], ExplainReport]] = [partial(_with_parts, under_test, limits, workers)]
    steps += [partial(_with_history, search)] if search else []
    try:
        # A case that fails now and then has no parts, and no commit.
        for step in steps if shrink.is_shrunk(done.shrunk) else []:
            try:
                done = step(done)
            except Exception as error:
                failed = failed or error
    finally:
        screen.line("\n".join(_summary(done, under_test)), "red")
        inputs.write_json(json, done)
    if failed:
        raise failed
    return done


def _with_parts(under_test: subjects.UnderTest, limits: Limits, workers: int, done: ExplainReport) -> ExplainReport:
    from draftproof.fuzz.bisect.search import bisect_parts

    case = cases.given(Path(done.shrunk.shrunk))
    with under_test.patched() as spec:
        report = bisect_parts(case.scenario, str(case.path), spec, workers, limits)
    if report.found:
        parts.show(report.found)
    return replace(done, parts=report)


def _with_history(search: Search, done: ExplainReport) -> ExplainReport:
    from draftproof.fuzz.bisect.history import bisect_history

    report = bisect_history(search, Path(done.shrunk.shrunk), history.tell)
    return replace(done, history=report)


def _summary(done: ExplainReport, under_test: subjects.UnderTest) -> Iterator[str]:
    """Yield the failure as a block, with what was found of it."""
    from draftproof.properties.formats.case import read_case

    report, answer = done.shrunk, done.shrunk.answer
    assert answer is not None
    yield f"\n{shrink.failure(answer)}"
    yield row("smallest", describe_scenario(read_case(Path(report.shrunk))[0]))
    if not shrink.is_shrunk(report):
        yield row("flaky", f"it failed in none of {report.runs} runs more, so it cannot be bisected")
    if done.parts:
        yield row(
            "parts", parts.describe_parts(done.parts.found) if done.parts.found else "it failed once and then not again"
        )
    if done.history:
        names = [f"{one.hash[:12]} {one.date} {one.subject}" for one in done.history.candidates]
        yield row("commit" if done.history.first else "one of", "; ".join(names))
    yield f"  replay     {command('replay', report.shrunk, **under_test.of_cases)}"
