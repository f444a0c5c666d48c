"""`draftproof shrink`: a failing case made smaller, for as long as it fails alike."""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from draftproof.cli import inputs, screen, subjects
from draftproof.fuzz.shrinking.shrink import ALIKE, Run, Shrunk, confirm, shrink
from draftproof.harness.identity import Identity
from draftproof.harness.lockstep import solved
from draftproof.harness.workers.messages import Answer
from draftproof.harness.workers.pool import Pool
from draftproof.properties.values.base import Value
from draftproof.properties.values.case import Case, encode, read_case
from draftproof.properties.values.drafts import algorithm
from draftproof.properties.values.durations import parse_duration
from draftproof.properties.values.files import write_whole
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.validate import InvalidScenarioError
from draftproof.properties.values.verdict import EXIT_CODES, Outcome
from draftproof.report.text import block

TIMES = 3
Time = Annotated[str, typer.Option("--time", help="Most time to spend, such as 60s or 10m.")]
Out = Annotated[Path | None, typer.Option("--out", help="Where the smaller case goes (CASE.shrunk.json).")]


class ShrinkReport(Value, frozen=True, kw_only=True):
    """What `shrink` came to. `verdict` is that of the case, SKIP if it is FLAKY: it did not fail again in any of `runs`
    runs. `done`: nothing smaller that was tried fails alike. `rounds`: those of each request, where they are fixed
    before a run."""

    verdict: Outcome
    case: str
    shrunk: str = ""
    identity: Identity | None = None
    answer: Answer | None = None
    requests: int = 0
    rounds: tuple[int, ...] = ()
    tried: int = 0
    seconds: float = 0.0
    done: bool = False
    confirmed: int = 0
    runs: int = 0


class _Keeper:
    """Keeps the smallest case so far in its file, at every step."""

    def __init__(self, path: Path, case: Path) -> None:
        self.path, self._case = path, case
        self.show: Callable[[str], None] = lambda _text: None

    def __call__(self, scenario: Scenario) -> None:
        self.show(f"shrinking: {describe(scenario)}")
        save(self.path, Case(scenario=scenario, script=solved(scenario).script, origin=f"shrunk from {self._case}"))


def save(path: Path, case: Case) -> None:
    """Write a case file as a whole or not at all. Raises InputError if that is not possible."""
    try:
        write_whole(path, encode(case) + "\n")
    except OSError as error:
        raise inputs.InputError(f"{path} cannot be written: {error.strerror}") from None


def shrink_(
    case: subjects.CaseFile,
    time: Time = "60s",
    workers: subjects.Workers = subjects.WORKERS,
    device: inputs.Device = "cpu",
    fault: subjects.FaultId = None,
    patch: subjects.Patch = None,
    subject: subjects.Factory = None,
    out: Out = None,
    json: inputs.Json = None,
) -> None:
    """Make a failing case smaller. Started again it goes on from what it came to."""
    budget = parse_duration(time, "--time")
    scenario = subjects.read(case)
    path = out or case.with_suffix(".shrunk.json")
    if path.resolve() == case.resolve():
        raise inputs.InputError(f"--out is {path}, allowed: any other file than the case")
    keeper = _Keeper(path, case)
    again = subjects.options(device, fault, patch, subject)
    with (
        subjects.subject(device, fault, patch, subject) as spec,
        tempfile.TemporaryDirectory(prefix="draftproof-") as journals,
        Pool(spec, workers, Path(journals)) as pool,
    ):
        report = _shrunk(scenario, case, keeper, subjects.runner(pool), budget, workers)
    if report.answer is not None:
        _show(report, keeper.path, again)
    inputs.write_json(json, report)
    raise typer.Exit(EXIT_CODES[report.verdict])


def _shrunk(scenario: Scenario, case: Path, keeper: _Keeper, run: Run, budget: float, width: int) -> ShrinkReport:
    answer = run([scenario])[0]
    identity = answer.identity
    if answer.outcome is Outcome.ERROR:
        raise RuntimeError(f"the case could not be judged:\n{answer.detail}")
    if identity is None:
        screen.line(f"{case} does not fail: {answer.outcome}. There is nothing to shrink.", "bold")
        return ShrinkReport(verdict=answer.outcome, case=str(case))
    scenario, answer = _gone_on(scenario, answer, keeper, run)
    keeper(scenario)
    try:
        with _screened(keeper):
            found = shrink(scenario, answer, run, budget=budget, width=width, saved=keeper)
    except KeyboardInterrupt:
        screen.line(f"Interrupted. The smallest case so far is {keeper.path}.")
        raise
    again = confirm(found.scenario, identity, run, TIMES)
    return _report(found, case, keeper, again)


@contextmanager
def _screened(keeper: _Keeper) -> Iterator[None]:
    """What the case has become, while it is made smaller; for terminals only."""
    if not sys.stderr.isatty():
        yield
        return
    with Console(stderr=True).status("shrinking") as status:
        keeper.show = status.update
        yield


def _gone_on(scenario: Scenario, answer: Answer, keeper: _Keeper, run: Run) -> tuple[Scenario, Answer]:
    """What an earlier run came to, if that still fails alike."""
    if not keeper.path.exists():
        return scenario, answer
    try:
        earlier = read_case(keeper.path)[0]
    except InvalidScenarioError as error:
        screen.line(f"{keeper.path} is not gone on from: {error}")
        return scenario, answer
    found = run([earlier])[0]
    if answer.identity is None or not found.is_same(answer.identity, ALIKE):
        screen.line(f"{keeper.path} is not gone on from: it does not fail like this case.")
        return scenario, answer
    screen.line(f"Goes on from {keeper.path}.")
    return earlier, found


def _report(found: Shrunk, case: Path, keeper: _Keeper, again: int) -> ShrinkReport:
    script = solved(found.scenario).script
    dynamic = found.scenario.dynamic
    return ShrinkReport(
        verdict=found.answer.outcome if again else Outcome.SKIP,
        case=str(case),
        shrunk=str(keeper.path),
        identity=found.original,
        answer=subjects.short(found.answer),
        requests=len(found.scenario.requests),
        rounds=() if dynamic else tuple(len(request.rounds) for request in script.requests),
        tried=found.tried,
        seconds=found.seconds,
        done=found.done,
        confirmed=again,
        runs=TIMES,
    )


def describe(scenario: Scenario) -> str:
    """What is in a scenario, in a line."""
    requests, graphs = scenario.requests, scenario.graphs
    tokens = sum(len(request.prompt) for request in requests)
    parts = [
        _many(len(requests), "request"),
        _many(tokens, "prompt token"),
        f"{algorithm(scenario.draft)} with at most {_many(scenario.steps, 'draft')} a round",
        f"page size {scenario.memory.page_size}",
        f"graphs of {', '.join(map(str, graphs.sizes))}" if graphs.sizes and graphs.capture else "no graphs",
    ]
    if layers := getattr(scenario.model, "layers", None):
        parts.append(_many(layers, "layer"))
    parts += ["adaptive"] if scenario.adaptive else []
    parts += [f"variant {scenario.variant}"] if scenario.variant != "none" else []
    return ", ".join(parts)


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _show(report: ShrinkReport, path: Path, again: list[str]) -> None:
    answer, scenario = report.answer, read_case(path)[0]
    assert answer is not None
    ended = "nothing smaller fails alike" if report.done else "the time was over before all was tried"
    screen.line(f"{path}: {describe(scenario)}.")
    if report.rounds:
        screen.line(f"Rounds of each request: {', '.join(map(str, report.rounds))}.")
    screen.line(f"{_many(report.tried, 'scenario')} tried in {report.seconds:.1f} s; {ended}.")
    if answer.first is not None:
        screen.line(block(answer.first), "red")
    else:
        place = f" in the {answer.place}" if answer.place else ""
        screen.line(f"{answer.outcome} {answer.error}{place}", "red")
    if report.verdict is Outcome.SKIP:
        screen.line(f"FLAKY: it failed in none of {report.runs} runs more; {path} keeps it.", "bold red")
    else:
        screen.line(f"Failed again in {report.confirmed} of {report.runs} runs.")
    command = shlex.join(["draftproof", "replay", str(path), *again])
    screen.line(f"{report.verdict}. Again: {command}", "bold")
