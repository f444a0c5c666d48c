"""`draftproof audit`: is acceptance what it should be, and if not, which known mistake explains it?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from msgspec.structs import replace

from draftproof.cli import audited, counted, inputs, lookup, screen, subjects
from draftproof.cli.audited import Passes
from draftproof.cli.groups import with_option_groups
from draftproof.properties.values.drafts import ALGORITHMS, Algorithm, read_from
from draftproof.properties.values.subject_choice import BUILT_IN_SUBJECT
from draftproof.properties.values.verdict import Outcome
from draftproof.report.numbers import plural
from draftproof.report.text import show_versions

if TYPE_CHECKING:
    from draftproof.harness.audit.audit import Seen
    from draftproof.properties.formats.audit import AuditReport
    from draftproof.properties.values.drafts import CheckpointDraft, Ngram

TOKENS = 64
Model = Annotated[Path, typer.Option("--model", help="The target model: a Hugging Face checkpoint directory.")]
DraftName = Annotated[str, typer.Option("--draft", help=f"How drafts are proposed: {', '.join(ALGORITHMS)}.")]
Folder = Annotated[
    Path | None, typer.Option("--draft-model", help="The directory of the draft, where it has one of its own.")
]
Mtp = Annotated[bool, typer.Option("--mtp", help="With --draft eagle: the target's first MTP layer is the head.")]
Prompts = Annotated[
    Path | None,
    typer.Option("--prompts", help='Prompts as token ids, one a line: {"prompt": [5, 1, 9]}.', dir_okay=False),
]
Log = Annotated[
    Path | None,
    typer.Option(
        "--log", help="A log of an engine's rounds, one JSON object a line; prompts are in it.", dir_okay=False
    ),
]
Counted = Annotated[
    Path | None,
    typer.Option(
        "--observed",
        help='What an engine counted on the prompts: {"drafts": 500, "accepted": [400, 310, 250, 190]}.',
        dir_okay=False,
    ),
]
Metrics = Annotated[
    list[Path] | None,
    typer.Option(
        "--metrics",
        help="What vLLM's /metrics said, as a file: before the prompts, and again afterwards; one file counts from its"
        " start.",
        dir_okay=False,
    ),
]
Page = Annotated[Path | None, inputs.output("--html", "Write the audit as an HTML file, with a plot.")]
SaveLog = Annotated[Path | None, inputs.output("--save-log", "Write what the subject did as a log.")]
Steps = Annotated[
    int | None, typer.Option("--steps", help="Drafts of a round (default: as many as observed, or 4).", min=1, max=64)
]
Tokens = Annotated[
    int | None,
    typer.Option("--tokens", help=f"Tokens to decode after each prompt (default: {TOKENS}).", min=2, max=4096),
]
Every = Annotated[bool, typer.Option("--mistakes", help="Say of every known mistake what it would cost.")]
Slow = Annotated[
    bool, typer.Option("--slow", help="Every pass from token zero in float64, as any other pair is audited.")
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of the samples of prompts.", min=0, max=inputs.LAST_SEED)]


@with_option_groups(under_test=subjects.chosen)
def audit(
    model: Model,
    draft: DraftName,
    under_test: subjects.UnderTest,
    draft_model: Folder = None,
    mtp: Mtp = False,
    prompts: Prompts = None,
    log: Log = None,
    observed: Counted = None,
    metrics: Metrics = None,
    save_log: SaveLog = None,
    steps: Steps = None,
    tokens: Tokens = None,
    mistakes: Every = False,
    max_n: lookup.MaxN = None,
    min_n: lookup.MinN = None,
    match: lookup.Match = None,
    slow: Slow = False,
    debug: subjects.Debug = False,
    seed: Seed = 0,
    html: Page = None,
    json: inputs.Json = None,
) -> None:
    """Compare how many drafts are accepted with how many should be.

    What a right engine gets accepted is computed for each position of a draft. If it falls short, each known mistake is
    simulated with the same checkpoints.
    """
    name = inputs.choose(draft, ALGORITHMS, "--draft")
    ran = under_test.choice != BUILT_IN_SUBJECT or under_test.fault is not None or under_test.patch is not None
    if (prompts is None) == (log is None):
        raise inputs.InputError("invalid --prompts and --log: expected one of them; a log has its prompts in it")
    if sum(map(bool, (log, observed, metrics, ran))) > 1:
        raise inputs.InputError(
            "invalid --log, --observed, --metrics and --subject (or --fault, --patch): expected one of them, what was"
            " seen once"
        )
    if log is not None and tokens is not None:
        raise inputs.InputError(
            f"invalid --tokens {tokens}: expected without --log, whose texts are as long as they are"
        )
    if save_log is not None and not ran:
        raise inputs.InputError("invalid --save-log: expected together with --subject, --fault or --patch")
    if not model.is_dir():
        raise inputs.InputError(f"invalid --model '{model}': expected a directory with config.json")
    from draftproof.harness.audit.audit import Question, Seen
    from draftproof.harness.audit.audit import audit as run
    from draftproof.properties.formats.round_log import read_log
    from draftproof.reference.audit.mistakes import mistakes as known

    budget = tokens or TOKENS
    spec = spec_of(name, draft_model, mtp, max_n, min_n, match)
    counts = counted.of_file(observed) if observed else counted.of_metrics(metrics) if metrics else None
    given = audited.prompts(prompts, model, budget) if prompts is not None else ()
    if counts is not None:
        where = str(observed or " and ".join(map(str, metrics or ())))
        counted.check(counts, where, steps)
        if given:
            counted.check_fits(counts, where, audited.budgets(given, budget))
    seen = Seen(read_log(log) if log else None, counts)
    passes = Passes(_steps(seen, steps), budget, inputs.device(under_test.device or "cpu"), slow)
    pair = audited.read(model, spec, passes)
    recorded = None
    if ran:
        with screen.ticking("running the subject on the prompts"):
            recorded = audited.record(under_test._replace(debug=debug), model, spec, given, passes)
        seen = Seen(recorded.log)
        if save_log is not None:
            from draftproof.harness.audit.record import log_lines

            inputs.write_text("--save-log", save_log, log_lines(recorded.log, audited.budgets(given, budget)))
    with screen.ticking("decoding with the target"):
        simulator = audited.simulator(pair, spec, seen, given, passes)
    with screen.progress("simulations", 2 + len(known(name))) as advance:
        report = run(Question(name, passes.steps, seen, mistakes, seed), simulator, advance)
    if recorded is not None:
        report = replace(report, subject=recorded.subject, settings=under_test.settings, versions=recorded.versions)
    _show(report)
    if recorded is not None and report.verdict is not None:
        screen.show_assumed(recorded.assumes, report.verdict)
    pages = list[tuple[str, Path, str]]()
    if html is not None:
        from draftproof.report.html.audit import audit_page

        pages.append(("--html", html, audit_page(f"{name} draft of {model.resolve().name}", report)))
    inputs.finish(json, report, report.verdict or Outcome.PASS, *pages)


def spec_of(
    name: Algorithm, folder: Path | None, mtp: bool, max_n: int | None, min_n: int | None, match: str | None
) -> CheckpointDraft | Ngram:
    """Return the draft that the options name. Raises InputError."""
    from draftproof.properties.values.drafts import CheckpointDraft

    if looked_up := lookup.lookup(name, max_n, min_n, match):
        return looked_up
    if mtp and name not in read_from("directory or seed"):
        expected = read_from("directory or seed")[0]
        raise inputs.InputError(f"invalid --mtp with --draft {name}: expected --draft {expected}")
    built_in = mtp or name in read_from("target")
    if built_in == (folder is not None):
        where = "its MTP layers are in --model" if built_in else "a directory with the draft's config.json"
        given = f" '{folder}'" if folder else ""
        raise inputs.InputError(f"invalid --draft-model{given} with --draft {name}: expected {where}")
    return CheckpointDraft(algorithm=cast("Any", name), path=str(folder or ""), built_in=built_in)


def _steps(seen: Seen, given: int | None) -> int:
    """Return how many drafts a round has: as given, or as many as were seen. Raises InputError for fewer than those."""
    if seen.counts is not None:
        return given or len(seen.counts.accepted)
    most = max((one.asked for text in seen.log or () for one in text.rounds), default=0)
    if given is not None and given < most:
        raise inputs.InputError(f"invalid --steps {given}: expected at least {most}, as a round of the log has drafts")
    return given or most or 4


def _show(report: AuditReport) -> None:
    """Print whose rates these are, the rates by position, the mistakes, and the result in one sentence."""
    if report.subject:
        given = "".join(f", {name}={value}" for name, value in report.settings.items())
        screen.line(f"{report.subject} with {show_versions(report.versions)}{given}\n")
    rows = []
    for one in report.positions:
        observed = "" if one.observed is None else f"{one.observed:.3f}"
        p = "" if one.p is None else f"{one.p:.2g}"
        rows.append((str(one.position), f"{one.expected:.3f}", f"{one.low:.3f} .. {one.high:.3f}", observed, p))
    numbers = ("expected", "95 % interval", "observed", "p")
    screen.show(("draft position", *numbers), rows, right=numbers)
    if report.explanations:
        screen.show(
            ("if this were so", "accepted a round", "likelihood", ""),
            [
                (
                    one.name,
                    f"{one.expected:.2f}",
                    "" if one.likelihood is None else f"{one.likelihood:.3f}",
                    "ruled out" if one.ruled_out else "",
                )
                for one in report.explanations
            ],
            right=("accepted a round", "likelihood"),
        )
    told = [f"{plural(report.rounds, 'round')} expected after {plural(report.prompts, 'prompt')}"]
    if report.observed_rounds is not None:
        told.append(f"{report.observed_rounds} observed")
    if report.same_rounds is not None:
        told.append(f"{report.same_rounds} of the log's rounds went as they should")
    if report.noticeable is not None:
        told.append(f"a shortfall of {report.noticeable:.2f} would have been noticed")
    if report.other_texts:
        told.append(f"{report.other_texts} tokens of the log are not the target's")
    screen.line("; ".join(told))
    screen.line(f"{report.verdict}: {report.says}" if report.verdict else report.says, "bold")
