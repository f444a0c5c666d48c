"""`draftproof golden`: expected acceptance lengths in their public form, and engines that force acceptance."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from draftproof.cli import audit, counted, inputs, screen
from draftproof.cli.again import again
from draftproof.cli.groups import with_option_groups
from draftproof.properties.formats.forced import FORCED_BY

if TYPE_CHECKING:
    from draftproof.harness.accept_lengths import SeenLength
    from draftproof.harness.audit.forced import ForcedCounts, Promise
    from draftproof.properties.formats.audit import ObservedCounts
    from draftproof.properties.formats.forced import ForcedReport
    from draftproof.properties.formats.golden import GoldenCell
    from draftproof.properties.formats.round_log import LoggedText

AT_LEAST = 0.95

File = Annotated[
    Path, typer.Argument(help="The golden lengths, as YAML.", metavar="FILE.yaml", dir_okay=False, show_default=False)
]
GoldenFile = Annotated[Path | None, typer.Option("--golden", help="A file of golden lengths, as YAML.", dir_okay=False)]
ModelName = Annotated[
    str | None, typer.Option("--name", help="The model's name in the file; not needed where it has one.")
]
Mode = Annotated[str | None, typer.Option("--mode", help="The mode in the file: thinking_on, thinking_off or another.")]
Steps = Annotated[
    int | None, typer.Option("--steps", help="Drafts of a round (default: as many as were seen).", min=1, max=64)
]
Share = Annotated[float, typer.Option("--at-least", help="The least share of the golden length.", min=0.01, max=2.0)]
By = Annotated[str, typer.Option("--by", help=f"Which engine forced acceptance: {', '.join(FORCED_BY)}.")]
Length = Annotated[
    float | None, typer.Option("--length", help="The promised acceptance length, the target's token among it.")
]
RatesText = Annotated[
    str | None,
    typer.Option(
        "--rates",
        help="Promised rates in place of a length, as vLLM takes them: the shares of rounds that accept at least 1, 2,"
        " .. drafts.",
        metavar="A,B,C",
    ),
]
Batch = Annotated[
    int | None,
    typer.Option("--batch", help="The most requests that decoded together: SGLang draws once for all.", min=1),
]
Replace = Annotated[bool, typer.Option("--replace", help="Put another length in place of one that is there.")]
Note = Annotated[str, typer.Option("--note", help="What was measured: engine, data, sampling; a comment of the file.")]
app = typer.Typer(help="Golden acceptance lengths, and engines that force acceptance.", no_args_is_help=True)


class SeenOptions(NamedTuple):
    """What was seen, as a log or as counts, and how the option says it."""

    log: tuple[LoggedText, ...] | None
    counts: ObservedCounts | None
    arguments: dict[str, object]

    @property
    def length(self) -> SeenLength:
        from draftproof.harness.accept_lengths import length_of_counts, length_of_log

        if self.counts is not None:
            return length_of_counts(self.counts)
        return length_of_log(self.log or ())


def seen(log: audit.Log = None, observed: audit.Counted = None, metrics: audit.Metrics = None) -> SeenOptions:
    """Return what an engine did, as its options say. Raises InputError, LogError and InvalidScenarioError."""
    if sum(map(bool, (log, observed, metrics))) != 1:
        raise inputs.InputError("invalid --log, --observed and --metrics: expected one of them, what was seen once")
    from draftproof.properties.formats.round_log import read_log

    counts = counted.of_file(observed) if observed else counted.of_metrics(metrics) if metrics else None
    arguments: dict[str, object] = {"log": log, "observed": observed, "metrics": metrics}
    return SeenOptions(read_log(log) if log else None, counts, arguments)


@app.command("check")
@with_option_groups(given=seen)
def check(
    file: File,
    given: SeenOptions,
    name: ModelName = None,
    mode: Mode = None,
    steps: Steps = None,
    at_least: Share = AT_LEAST,
    json: inputs.Json = None,
) -> None:
    """Hold an engine's acceptance length to the golden one.

    It passes if its length is at least that share. It says nothing of why, nor of whether the golden one is right:
    audit and judge do.
    """
    from draftproof.harness.accept_lengths import LengthRule, judged_length
    from draftproof.properties.formats.golden import read_golden

    found = given.length
    cell = read_golden(file).cell(name, mode, _steps(steps, found.steps))
    report = judged_length(LengthRule(at_least, cell), found, cell.length, f"golden of {cell.place}")
    options = {"name": name, "mode": mode, "steps": steps, "at_least": f"{at_least:g}"}
    repeated = again("golden", "check", file, **given.arguments, **options)
    screen.line(f"{report.verdict}: {report.says}. Again: {repeated}", "bold")
    inputs.finish(json, report, report.verdict)


@app.command("write")
@with_option_groups(given=seen)
def write(
    file: File,
    given: SeenOptions,
    name: ModelName = None,
    mode: Mode = None,
    steps: Steps = None,
    replace: Replace = False,
    note: Note = "",
) -> None:
    """Write an engine's acceptance length into a file of golden lengths.

    A file that is there keeps its other lengths and its comments.
    """
    from draftproof.properties.formats.golden import GoldenCell, GoldenLengths, read_golden

    found = given.length
    if not found.rounds:
        raise inputs.InputError("invalid --log: expected rounds with drafts behind round 0, and there are none")
    if name is None or mode is None:
        raise inputs.InputError("invalid --name and --mode: expected both, as model and thinking_off")
    before = read_golden(file) if file.exists() else GoldenLengths(str(file), {})
    cell = GoldenCell(name, mode, _steps(steps, found.steps), found.length)
    there = before.curves.get(name, {}).get(mode, {}).get(cell.steps)
    if there is not None and not replace:
        raise inputs.InputError(f"invalid FILE {str(file)!r}: {cell.place} is {there:g} there; --replace takes another")
    source = " and ".join(f"--{option} {value}" for option, value in given.arguments.items() if value)
    told = f"{cell.place}: {found.accepted} accepted drafts in {found.rounds} rounds ({source})"
    line = " ".join(f"{told}{note and f'; {note}'}".split())
    inputs.write_text("FILE", file, before.with_cell(cell).text(line))
    screen.line(f"{file}: {cell.place} = {found.length:.2f}")


@app.command("forced")
@with_option_groups(given=seen)
def forced(
    by: By,
    given: SeenOptions,
    length: Length = None,
    rates: RatesText = None,
    golden: GoldenFile = None,
    name: ModelName = None,
    mode: Mode = None,
    steps: Steps = None,
    batch: Batch = None,
    json: inputs.Json = None,
) -> None:
    """Hold an engine that forces acceptance to what it promised.

    What it accepts always, or never, is compared exactly; the rest is tested.
    """
    from draftproof.harness.audit.forced import forced as run
    from draftproof.harness.audit.forced import forced_in_counts, forced_in_log

    promise, cell = _promise(given, by, length, rates, golden, name, mode, steps, batch)
    count = len(promise.rates)
    if given.counts is not None:
        found: ForcedCounts = forced_in_counts(given.counts, count)
    else:
        found = forced_in_log(given.log or (), count)
    report = run(promise, found, _others(promise))
    _show(report)
    if cell is not None and abs(promise.length - cell.length) > 0.005:
        screen.line(
            f"{promise.mode} of {cell.length:g} comes to {promise.length:.2f}: it rounds and cuts a normal deviate;"
            " SGLANG_SIMULATE_ACC_METHOD=match-expected keeps the length"
        )
    options = {"by": by, "length": length, "rates": rates, "golden": golden, "name": name, "mode": mode}
    repeated = again("golden", "forced", **given.arguments, **options, steps=steps, batch=batch)
    screen.line(f"{report.verdict}: {report.says}. Again: {repeated}", "bold")
    inputs.finish(json, report, report.verdict)


def _steps(given: int | None, seen: int | None) -> int:
    """Return the drafts of a round. Raises InputError where nobody says how many, or more were seen."""
    if given is None and seen is None:
        raise inputs.InputError("invalid --steps: expected a number, as the log does not say how many drafts it had")
    if given is not None and seen is not None and seen > given:
        raise inputs.InputError(f"invalid --steps {given}: expected at least {seen}, as many as were seen")
    return given or seen or 1


def _promise(
    given: SeenOptions,
    by: str,
    length: float | None,
    rates: str | None,
    golden: Path | None,
    name: str | None,
    mode: str | None,
    steps: int | None,
    batch: int | None,
) -> tuple[Promise, GoldenCell | None]:
    """Return what was promised, and the length that was named for it. Raises InputError and GoldenError."""
    from draftproof.harness.audit.forced import MODES, Promise
    from draftproof.properties.formats.golden import GoldenCell, read_golden, require_length

    engine = inputs.choose(by, FORCED_BY, "--by")
    way = MODES[engine]
    if sum(one is not None for one in (length, rates, golden)) != 1:
        raise inputs.InputError("invalid --length, --rates and --golden: expected one of them, what was promised")
    if way.is_shared and batch is None:
        raise inputs.InputError(
            f"invalid --by {by} without --batch: expected the most requests that decoded together, which share a draw"
        )
    together = (batch or 1) if way.is_shared else 1
    if batch is not None and not way.is_shared:
        raise inputs.InputError(
            f"invalid --batch {batch}: expected only with --by sglang, as {by} draws for each round"
        )
    if rates is not None:
        return Promise(engine, _rates(rates, by), together), None
    count = _steps(steps, given.length.steps)
    if golden is not None:
        cell = read_golden(golden).cell(name, mode, count)
    else:
        assert length is not None
        require_length("invalid --length", length, count)
        cell = GoldenCell("", "", count, length)
    return Promise(engine, way.schedule(cell.length, count), together), cell


def _rates(text: str, by: str) -> tuple[float, ...]:
    """Return rates by position. Raises InputError."""
    try:
        found = tuple(float(one) for one in text.split(","))
    except ValueError:
        found = ()
    falls = all(0 <= after <= before <= 1 for before, after in zip((1.0, *found), found, strict=False))
    if not found or not falls or by not in ("vllm", "llama"):
        expected = "numbers of 0 .. 1 that do not rise, of --by vllm or llama"
        raise inputs.InputError(f"invalid --rates {text!r} with --by {by}: expected {expected}")
    return found


def _others(promise: Promise) -> list[tuple[str, tuple[float, ...]]]:
    """Return what else may have been forced: the length taken for drafts alone, and the other schedules."""
    from draftproof.harness.audit.forced import MODES

    count, way = len(promise.rates), MODES[promise.mode]
    length = promise.length
    found = [
        (f"length {other:.2f}, {what}", way.schedule(other, count))
        for other, what in ((length + 1, "one more"), (length - 1, "one less: drafts without the target's token"))
        if 1 <= other <= count + 1
    ]
    names = {one.schedule: name for name, one in reversed(tuple(MODES.items()))}
    return found + [(f"the schedule of {name}", of(length, count)) for of, name in names.items() if of != way.schedule]


def _show(report: ForcedReport) -> None:
    rows = [
        (
            str(one.position),
            one.kind,
            f"{one.promised:.3f}",
            str(one.tried),
            str(one.accepted),
            "" if one.kind == "exact" else f"{one.p:.2g}",
            "yes" if one.holds else "NO",
        )
        for one in report.positions
    ]
    numbers = ("promised", "tried", "accepted", "p")
    screen.show(("draft", "", *numbers, "holds"), rows, right=numbers)
