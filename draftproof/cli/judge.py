"""`draftproof judge`: a recorded log of prompts, drafts and emitted tokens, judged without the engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from draftproof.cli import drafts, golden, inputs, lookup, screen
from draftproof.cli.again import again
from draftproof.properties.values.drafts import ALGORITHMS, Algorithm, read_from
from draftproof.properties.values.verdict import Outcome
from draftproof.report.numbers import plural
from draftproof.report.text import line

if TYPE_CHECKING:
    from draftproof.harness.accept_lengths import LengthRule
    from draftproof.harness.checkpoint_scenarios import RealDraft
    from draftproof.harness.judge_log import LogReport
    from draftproof.properties.formats.judged_log import LoggedRun
    from draftproof.properties.values.drafts import Ngram

Log = Annotated[Path, typer.Argument(help="The log: one JSON object a line, requests and rounds.", show_default=False)]
Model = Annotated[
    Path, typer.Option("--model", help="The target that the log is of: a Hugging Face checkpoint directory.")
]
Draft = Annotated[
    str | None,
    typer.Option("--draft", help=f"Judge the drafts, too, as those of one of {', '.join(ALGORITHMS)}."),
]
AtLeast = Annotated[
    float | None,
    typer.Option(
        "--at-least",
        min=0.01,
        max=2.0,
        help="Ask for this share of an acceptance length, too: of that of --golden, or of a right --draft.",
    ),
]


def judge(
    log: Log,
    model: Model,
    draft: Draft = None,
    draft_model: drafts.Folder = None,
    mtp: drafts.Mtp = False,
    max_n: lookup.MaxN = None,
    min_n: lookup.MinN = None,
    match: lookup.Match = None,
    at_least: AtLeast = None,
    golden_file: golden.GoldenFile = None,
    name: golden.ModelName = None,
    mode: golden.Mode = None,
    json: inputs.Json = None,
) -> None:
    """Judge a recorded log of prompts, drafts and emitted tokens.

    Is every token what the target chooses, and every round a right accept of its drafts?
    With --draft also: are these the drafts that such a draft proposes? With --at-least: are enough accepted?
    """
    _require_rule(at_least, draft, golden_file, name, mode)
    from draftproof.properties.formats.checkpoint_config import read_config
    from draftproof.properties.formats.judged_log import read_whole

    kind = None if draft is None else inputs.choose(draft, ALGORITHMS, "--draft")
    of = _draft(kind, model, draft_model, mtp, lookup.lookup(kind, max_n, min_n, match))
    try:
        vocab = read_config(model).vocab_size
        with log.open("rb") as lines:
            logged = read_whole(lines, str(log), vocab)
    except OSError as error:
        raise inputs.InputError(f"invalid LOG '{log}': it cannot be read: {error.strerror}") from None
    from draftproof.harness.judge_log import judge_log

    rule = _rule(logged, at_least, golden_file, name, mode)
    with screen.progress("requests", len(logged)) as advance:
        report = judge_log(logged, str(log), model, of, advance, rule)
    _show(report)
    more: dict[str, object] = {"max_n": max_n, "min_n": min_n, "match": match, "at_least": at_least}
    more |= {"golden": golden_file, "name": name, "mode": mode}
    repeated = again("judge", log, model=model, draft=draft, draft_model=draft_model, mtp=mtp, **more)
    screen.line(f"{report.verdict}: {plural(report.requests, 'request')}. Again: {repeated}", "bold")
    inputs.finish(json, report, report.verdict)


def _draft(
    of: Algorithm | None, model: Path, folder: Path | None, mtp: bool, looked_up: Ngram | None
) -> RealDraft | None:
    """Return the draft that is named; none judges the text only. Raises InputError for what does not fit the target."""
    if of is None and (folder or mtp):
        given = "--mtp" if mtp else f"--draft-model '{folder}'"
        raise inputs.InputError(f"invalid {given}: expected only together with --draft")
    options = drafts.chosen(drafts.given([of] if of else None, model, folder, mtp))
    if of is None:
        return None
    if of in read_from("directory or seed") and folder is None and not mtp:
        raise inputs.InputError(f"invalid --draft {of!r}: expected --draft-model with its checkpoint, or --mtp")
    from draftproof.harness.checkpoint_scenarios import one_draft

    try:
        found = one_draft(model, of, folder, 0, built_in=mtp)
    except (ValueError, OSError) as error:
        named = " ".join(f"{option} {path}" for option, path in options.folders.items())
        raise inputs.InputError(f"{named}: target and draft do not fit: {error}") from None
    return found._replace(draft=looked_up) if looked_up else found


def _require_rule(
    at_least: float | None, draft: str | None, golden_file: Path | None, name: str | None, mode: str | None
) -> None:
    """Raise InputError for options of a length that do not go together."""
    if at_least is None:
        for option, given in (("--golden", golden_file), ("--name", name), ("--mode", mode)):
            if given is not None:
                raise inputs.InputError(f"invalid {option} {str(given)!r}: expected only together with --at-least")
    elif golden_file is None and draft is None:
        raise inputs.InputError(
            f"invalid --at-least {at_least:g}: expected together with --golden, or with --draft, of which it is a share"
        )
    elif golden_file is None and (name or mode):
        raise inputs.InputError(f"invalid {'--name' if name else '--mode'}: expected only together with --golden")


def _rule(
    log: Sequence[LoggedRun], at_least: float | None, golden_file: Path | None, name: str | None, mode: str | None
) -> LengthRule | None:
    """Return what is asked of the acceptance length, None for nothing. Raises GoldenError."""
    from draftproof.harness.accept_lengths import LengthRule
    from draftproof.properties.formats.golden import read_golden

    if at_least is None or golden_file is None:
        return None if at_least is None else LengthRule(at_least)
    steps = max((len(drafts) for one in log for drafts in one.drafts), default=0)
    return LengthRule(at_least, read_golden(golden_file).cell(name, mode, steps))


def _show(report: LogReport) -> None:
    screen.show_verdicts(report.contracts, "requests")
    screen.line(", ".join(f"{name} {count}" for name, count in report.counts.items()))
    # The first of each request, and that of each contract that failed behind another.
    of_contracts = [one.divergence for one in report.contracts if one.divergence]
    for found in (*report.first, *(one for one in of_contracts if one not in report.first)):
        screen.line(f"FAIL {found.contract}: {line(found)}.", "red")
    if report.length is not None:
        screen.line(report.length.says)
    if report.verdict is Outcome.INCONCLUSIVE and report.unseen:
        screen.line(f"Nothing failed, but {report.unseen}.")
