"""`draftproof compare`: two engines, or one in two ways, with one draft on the same prompts: same acceptance?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import replace

from draftproof.cli import audit, audited, comparing, inputs, lookup, screen, subjects
from draftproof.cli.again import again
from draftproof.cli.audited import Passes
from draftproof.cli.groups import with_option_groups
from draftproof.cli.sides import Side, sides
from draftproof.properties.values.drafts import ALGORITHMS
from draftproof.properties.values.verdict import Outcome, worst
from draftproof.report.text import show_versions

if TYPE_CHECKING:
    from draftproof.properties.formats.comparison import ComparedRound, ComparisonReport, EngineSeen, PairVerdict

Sides = Annotated[
    list[str],
    typer.Argument(
        help="The engines: a log, http://HOST:PORT, or [SUBJECT][@ENV/bin/python][,NAME=VALUE]..; the others are"
        " compared with the first.",
        metavar="SIDE SIDE..",
        show_default=False,
    ),
]
Model = Annotated[
    Path | None,
    typer.Option("--model", help="The target: a Hugging Face checkpoint directory. Two logs do without, unexplained."),
]
DraftName = Annotated[
    str | None, typer.Option("--draft", help=f"With --model, how drafts are proposed: {', '.join(ALGORITHMS)}.")
]
Exact = Annotated[
    bool,
    typer.Option(
        "--exact",
        help="Fail for a single round that differs, also in its number of drafts: of one engine run in two ways.",
    ),
]
SaveLogs = Annotated[
    Path | None, typer.Option("--save-logs", help="Write what each engine did into this folder.", file_okay=False)
]
SaveCase = Annotated[
    Path | None,
    inputs.output("--case", "Write the first request that differs as a scenario, for replay and lab bisect releases."),
]


@with_option_groups(common=subjects.without_fault)
def compare(
    side: Sides,
    common: subjects.UnderTest,
    model: Model = None,
    draft: DraftName = None,
    draft_model: audit.Folder = None,
    mtp: audit.Mtp = False,
    prompts: audit.Prompts = None,
    steps: audit.Steps = None,
    tokens: audit.Tokens = None,
    max_n: lookup.MaxN = None,
    min_n: lookup.MinN = None,
    match: lookup.Match = None,
    exact: Exact = False,
    save_logs: SaveLogs = None,
    case: SaveCase = None,
    debug: subjects.Debug = False,
    json: inputs.Json = None,
) -> None:
    """Compare engines with one draft: do they propose the same?

    Each is a log, a server, or a subject that is run on the prompts; --subject, --python and --set say what they have
    in common. Rounds that begin after the same text are compared. Where they differ and --model is given, each engine
    is audited.
    """
    found = sides(side, common, debug=debug)
    is_run = any(one.log is None for one in found)
    of_runs: dict[str, object] = {"--prompts": prompts, "--steps": steps, "--tokens": tokens}
    lookups = {"--max-n": max_n, "--min-n": min_n, "--match": match}
    _require(found, model, draft, of_runs, {"--draft-model": draft_model, "--mtp": mtp, **lookups, "--case": case})
    from draftproof.harness.audit.comparison import engine_seen, pair_verdict
    from draftproof.harness.audit.statistics import AUDIT_FALSE_ALARMS
    from draftproof.properties.formats.comparison import ComparisonReport
    from draftproof.properties.formats.round_log import read_log

    read = {at: read_log(one.log) for at, one in enumerate(found) if one.log is not None}
    if is_run:
        with screen.ticking("making the engines"):
            comparing.require(found)
    pair = None
    if model is not None and draft is not None:
        name = inputs.choose(draft, ALGORITHMS, "--draft")
        spec = audit.spec_of(name, draft_model, mtp, max_n, min_n, match)
        most = max((one.asked for log in read.values() for text in log for one in text.rounds), default=0)
        passes = Passes(steps or most or 4, tokens or audit.TOKENS, inputs.device(common.device or "cpu"), slow=False)
        pair = comparing.ComparedPair(model, name, spec, passes, audited.read(model, spec, passes))
    recorded = {}
    if is_run:
        assert pair is not None
        given = audited.prompts(prompts, pair.model, pair.passes.tokens) if prompts else comparing.prompts_of(read)
        with screen.ticking("running the engines on the prompts"):
            recorded = comparing.record(found, pair, given)
    logs = [read[at] if at in read else recorded[at].log for at in range(len(found))]
    if save_logs is not None:
        comparing.save(save_logs, logs)
    engines = [engine_seen(one.name, log) for one, log in zip(found, logs, strict=True)]
    for at, one in recorded.items():
        settings = comparing.settings_of(found[at])
        engines[at] = replace(engines[at], subject=one.subject, settings=settings, versions=one.versions)
    pairs = [pair_verdict(found[at].name, logs[0], logs[at], exact=exact) for at in range(1, len(found))]
    if lone := next((one for one in pairs if not one.prompts), None):
        raise inputs.InputError(f"invalid SIDE {lone.side!r}: expected prompts that {found[0].name!r} has, too")
    if pair is not None:
        engines, pairs = comparing.explained(pair, logs, engines, pairs)
    report = ComparisonReport(
        verdict=worst([one.verdict for one in pairs]),
        false_alarms=AUDIT_FALSE_ALARMS,
        engines=tuple(engines),
        pairs=tuple(pairs),
    )
    _show(report)
    files = []
    if case is not None and pair is not None and (written := comparing.case_of(pair, logs, report)):
        files.append(("--case", case, written))
        for line in comparing.next_steps(found, report, case):
            screen.line(line)
    repeated = again(
        "compare",
        *side,
        **common.of_cases,
        model=model,
        draft=draft,
        draft_model=draft_model,
        mtp=mtp,
        prompts=prompts,
        steps=steps,
        tokens=tokens,
        max_n=max_n,
        min_n=min_n,
        match=match,
        exact=exact,
    )
    screen.line(f"{report.verdict}. Again: {repeated}", "bold")
    inputs.finish(json, report, report.verdict, *files)


def _require(
    found: tuple[Side, ...],
    model: Path | None,
    draft: str | None,
    of_runs: dict[str, object],
    of_pairs: dict[str, object],
) -> None:
    """Raise InputError for options that do not go together: of engines that are run, and of a target with a draft."""
    if (model is None) != (draft is None):
        raise inputs.InputError("invalid --model and --draft: expected both, or neither")
    if model is not None and not model.is_dir():
        raise inputs.InputError(f"invalid --model '{model}': expected a directory with config.json")
    ran = next((one for one in found if one.log is None), None)
    if ran is not None and model is None:
        raise inputs.InputError(f"invalid SIDE {ran.name!r} without --model and --draft: expected what it is to run")
    if model is None and (named := _first_given(of_pairs)):
        raise inputs.InputError(
            f"invalid {named} without --model and --draft: expected both, as it says something of that pair"
        )
    if ran is None:
        if named := _first_given(of_runs):
            raise inputs.InputError(f"invalid {named}: expected none, as all engines are logs")
        return
    if of_runs["--prompts"] is None and all(one.log is None for one in found):
        raise inputs.InputError(f"invalid SIDE {ran.name!r} without --prompts: expected some, or a log with them")
    if of_runs["--prompts"] is None and (tokens := of_runs["--tokens"]) is not None:
        raise inputs.InputError(f"invalid --tokens {tokens}: expected only with --prompts; a log says how many")


def _first_given(options: dict[str, object]) -> str:
    """Return the first of these options that was given, with its value; "" if none was."""
    for option, value in options.items():
        if value is True:
            return option
        if value is not None and value is not False:
            return f"{option} '{value}'" if isinstance(value, Path) else f"{option} {value}"
    return ""


def _show(report: ComparisonReport) -> None:
    """Print the engines, and of each but the first how it goes beside that."""
    positions = max(len(one.positions) for one in report.engines)
    numbers = ("rounds", "accepted a round", *map(str, range(1, positions + 1)))
    for one in report.engines:
        if one.subject:
            screen.line(f"{one.side}: {one.subject} with {show_versions(one.versions)}")
    rows = [
        (one.side, str(one.rounds), f"{one.accepted:.2f}", *(f"{rate:.3f}" for rate in one.positions))
        for one in report.engines
    ]
    screen.show(("engine", *numbers), [(*row, *[""] * (len(numbers) + 1 - len(row))) for row in rows], right=numbers)
    for pair in report.pairs:
        screen.line(f"\n{pair.side}: {pair.verdict}: {pair.says}", "" if pair.verdict is Outcome.PASS else "red")
        if pair.alarms:
            told = ", ".join(f"{p:.2g} at draft {place}" for place, p in enumerate(pair.position_p, start=1))
            screen.line(f"  a difference in accepted drafts at least this large would be chance with p = {told}")
        if pair.at_depth:
            told = ", ".join(f"{count} at draft {depth}" for depth, count in pair.at_depth.items())
            screen.line(f"  where the others part: {told}")
        if pair.unpaired:
            screen.line(f"  requests that only one of them has: {pair.unpaired}")
        if pair.first is not None:
            _show_first(report.engines[0], pair, pair.first)
    for engine in report.engines:
        if engine.audit is not None:
            screen.line(f"audit of {engine.side}: {engine.audit.verdict}: {engine.audit.says}")
    others = [one for one in report.pairs if one.verdict is not Outcome.PASS]
    if others and len(report.pairs) > 1:
        screen.line(f"the first that is not like {report.engines[0].side}: {others[0].side}")


def _show_first(first: EngineSeen, pair: PairVerdict, found: ComparedRound) -> None:
    """Print the earliest round that goes otherwise."""
    here, there = found.rounds
    number = f"round {here}" if here == there else f"round {here} and {there}"
    places = {
        "drafts": f"draft {found.depth}",
        "number": f"the number of drafts, {found.numbers[1]} beside {found.numbers[0]}",
        "emitted": f"token {found.depth} emitted",
    }
    place = places[found.what]
    screen.line(f"  first: request {found.request}, {number}, after {found.context} tokens: {place}")
    sides = ((first.side, found.drafts[0], found.emitted[0]), (pair.side, found.drafts[1], found.emitted[1]))
    for name, drafts, emitted in sides:
        told = "drafts not told" if drafts is None else f"drafts {_ids(drafts)}"
        screen.line(f"    {name}: {told}, emitted {_ids(emitted)}")
    if found.right is not None:
        screen.line(f"    a right draft: {_ids(found.right)}")


def _ids(tokens: tuple[int, ...]) -> str:
    return " ".join(map(str, tokens)) or "none"
