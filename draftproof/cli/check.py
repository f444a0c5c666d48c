"""`draftproof check`: every contract on this machine, and the report of it on the terminal."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from draftproof.cli import drafts, inputs, screen, selected, subjects
from draftproof.cli.advice import advice
from draftproof.cli.again import again
from draftproof.cli.groups import with_option_groups
from draftproof.properties.lib.names import group_of
from draftproof.properties.values.drafts import CHECK_EXAMPLES
from draftproof.properties.values.limits import NO_LIMITS
from draftproof.properties.values.subject_choice import BUILT_IN_SUBJECT
from draftproof.properties.values.verdict import Outcome, Verdict
from draftproof.report.commands import command
from draftproof.report.numbers import plural
from draftproof.report.text import block, line, show_versions

if TYPE_CHECKING:
    from draftproof.harness.check import CheckFinding, CheckReport

MODEL_EXAMPLES = 24
"""A real model is recomputed from token zero in float64 for every round: it has a budget of its own."""
TEXT_FACTS = ("texts_shown", "tokens_emitted", "drafts_seen")
"""Counts of what is compared where no round is shown."""
QUIET = (Outcome.PASS, Outcome.SKIP)
"""Verdicts that are only counted unless everything is asked for."""

Examples = Annotated[
    int | None,
    typer.Option(
        "--examples",
        min=1,
        help=f"Generated scenarios to run (default: {CHECK_EXAMPLES}; {selected.FEATURE_EXAMPLES} with --with;"
        f" {MODEL_EXAMPLES} with --model).",
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="List every contract and every count.")]
Contracts = Annotated[
    list[str] | None,
    typer.Option("--contract", help="Check only this contract, or group of them, as draft (may be repeated)."),
]


@with_option_groups(under_test=subjects.without_fault, target=drafts.given)
def check(
    under_test: subjects.UnderTest,
    target: drafts.DraftOptions,
    seed: inputs.Seed = 0,
    examples: Examples = None,
    contract: Contracts = None,
    with_: selected.With = None,
    verbose: Verbose = False,
    debug: subjects.Debug = False,
    json: inputs.Json = None,
) -> None:
    """Run generated scenarios and check every contract.

    The engine, or a subject of your own, runs them beside the reference. Each group of contracts is summed up in one
    line, and contracts that did not pass are listed.
    """
    from draftproof.harness.check import CheckInterrupted, badly_closed, checker, unless_skipped, whole_check
    from draftproof.harness.kernel_runs import kernel_calls
    from draftproof.harness.subject_crash import SubjectCrashedError
    from draftproof.harness.subject_run import closing

    of_traces, of_kernels = inputs.contracts(contract)
    features = selected.features(with_)
    device, own = under_test.where, under_test.choice == BUILT_IN_SUBJECT
    if contract and of_kernels and (features or target.model or not own):
        raise inputs.InputError(
            f"invalid --contract {of_kernels[0]} with --with, --model or --subject: expected contracts of scenarios, as"
            " kernels are called beside probes of the built-in engine only"
        )
    # The engine is imported last: that changes what is drawn.
    subject = None if own else under_test._replace(debug=debug).made()
    options = drafts.chosen(target, subject.limits if subject else NO_LIMITS)
    model = options.model
    count = examples or (MODEL_EXAMPLES if model else selected.FEATURE_EXAMPLES if features else CHECK_EXAMPLES)
    scenarios = []
    if features:
        scenarios = selected.scenarios(features, options, subject.limits if subject else NO_LIMITS, seed, count)
    elif of_traces:
        scenarios = drafts.scenarios(options, seed, count)
    calls = kernel_calls(() if model or subject or features else of_kernels, seed, count)
    subject = subject or inputs.engine(device)
    started = time.monotonic()
    check_ = checker(
        subject,
        of_traces,
        named=bool(contract),
        real=model is not None,
        device=device,
        choice=under_test.choice,
        features=tuple(feature.name for feature in features),
    )
    with screen.progress("scenarios and kernels", len(scenarios) + len(calls)) as advance:
        report = None
        try:
            with closing(subject):
                report = whole_check(check_, scenarios, calls, seed, device, advance)
        except SubjectCrashedError as crash:
            if report is None:
                raise
            report = badly_closed(report, crash)
        except CheckInterrupted as interrupted:
            report = interrupted.report
            for finding in report.findings:
                _show_finding(finding, under_test.of_cases)
            ran = f"{report.examples} of {plural(len(scenarios), 'scenario')}"
            screen.line(f"interrupted after {ran}, of which some failed", "bold")
            inputs.finish(json, report, report.verdict)
    report = unless_skipped(report, contract or ())
    given = {"seed": seed, "examples": count, "device": device, "contract": contract, "with": check_.features}
    repeated = again("check", **{**given, **options.arguments, **under_test.arguments})
    show(report, time.monotonic() - started, repeated, under_test.of_cases, verbose=verbose)
    inputs.finish(json, report, report.verdict)


def show(report: CheckReport, seconds: float, repeated: str, of_cases: Mapping[str, object], *, verbose: bool) -> None:
    """Print the verdicts, the work done, and every failure with the command that replays it.

    Groups of contracts take one line each, and only exceptions are listed; `verbose` lists all contracts and counts.
    `of_cases` are the options with which a case is run again.
    """
    if verbose:
        screen.show_verdicts(report.contracts)
        screen.show_counts(report.counts)
        screen.show(("what happened", "in percent of scenarios"), _shares(report))
        if met := report.met:
            pairs, triples = f"{met.pairs:,} of {met.all_pairs:,}", f"{met.triples:,} of {met.all_triples:,}"
            screen.line(
                f"of features, drafts, forms, sizes, variants and launches {pairs} pairs met, {triples} triples"
            )
        screen.show(("weights of", "perturbed so often"), _weights(report))
    else:
        lacking = _lacking(report)
        told = [one for one in report.contracts if one not in lacking]
        screen.show(("contracts", "verdicts"), _groups(told))
        if exceptions := [one for one in told if one.verdict not in QUIET and not one.divergence]:
            screen.show_verdicts(exceptions)
        if lacking:
            verdicts = plural(len(lacking), "verdict")
            screen.line(f"{verdicts} INCONCLUSIVE for lack of the scenarios that did not finish (--verbose lists them)")
        beyond = {name for names in report.uncovered.values() for name in names}
        if report.examples:
            screen.line(f"\n{exercised(report.counts, beyond, '--verbose', sum(report.weights.values()))}\n")
    if report.uncovered and report.examples:
        _show_uncovered(report, verbose=verbose)
        screen.line(f"versions: {show_versions(report.versions)}\n")
    if report.drafts:
        beyond = {name for names in report.uncovered.values() for name in names}
        drafts.show(report.drafts, with_counts=verbose, with_rounds="decode_rounds" not in beyond)
    screen.show_assumed(report.assumes, report.verdict)
    for verdict in report.contracts:
        if verdict.divergence is not None:
            screen.line(f"FAIL {verdict.name}: {line(verdict.divergence)}.", "red")
    for finding in report.findings:
        _show_finding(finding, of_cases)
    if report.verdict is Outcome.INCONCLUSIVE:
        for reason in _inconclusive(report):
            screen.line(reason)
    done = f"{plural(report.examples, 'scenario')}{_effects(report)}"
    if of_kernels := not report.examples and report.counts.get("kernel_calls", 0):
        done = plural(of_kernels, "kernel call")
    screen.line(f"{_verdict(report)}: {done} in {seconds:.1f} s. Again: {repeated}", "bold")


def _verdict(report: CheckReport) -> str:
    """Return the verdict, with what was not seen if it is a PASS."""
    if report.verdict is not Outcome.PASS or not report.unseen:
        return str(report.verdict)
    return f"PASS at the level of {report.level}: {'; '.join(report.unseen)}"


def _effects(report: CheckReport) -> str:
    """Return in how many scenarios each feature did something, of those that were asked for."""
    told = [f"{name} in {often}" for name, often in report.features.items()]
    told += [f"together in {report.together}"] * (len(told) > 1)
    return f" (in effect: {', '.join(told)})" if told else ""


def _inconclusive(report: CheckReport) -> Iterator[str]:
    """Yield what INCONCLUSIVE means here, and what helps."""
    from draftproof.properties.judge import RUNS_CONTRACT

    if report.unseen:
        yield f"Nothing failed, but {'; '.join(report.unseen)}."
    short = [one for one in report.contracts if one.verdict is Outcome.INCONCLUSIVE]
    if report.unseen:
        short = [one for one in short if one.name != RUNS_CONTRACT]
    if short:
        yield from advice(short, report.examples)
    elif not report.unseen:
        # Only contracts and groups that were asked for by name make a check inconclusive when they are skipped.
        yield from (
            f"{one.name} judged nothing: {one.reason}." for one in report.contracts if one.verdict is Outcome.SKIP
        )


def _lacking(report: CheckReport) -> list[Verdict]:
    """Return the verdicts that are INCONCLUSIVE where a scenario did not finish, which alone says why."""
    from draftproof.properties.judge import RUNS_CONTRACT

    broken = any(
        one.name == RUNS_CONTRACT and one.verdict not in (*QUIET, Outcome.INCONCLUSIVE) for one in report.contracts
    )
    return [one for one in report.contracts if broken and one.verdict is Outcome.INCONCLUSIVE]


def _show_uncovered(report: CheckReport, *, verbose: bool) -> None:
    """Say what the subject cannot show, and why: no verdict rests on it."""
    if verbose:
        rows = [(because, ", ".join(names)) for because, names in report.uncovered.items()]
        screen.show((f"not covered by {report.subject}", "counts that it cannot show"), rows)
        return
    if not report.examples:
        return
    missing = {name for names in report.uncovered.values() for name in names}
    screen.line(
        f"{report.subject} shows what it does at the level of {report.level}: {len(missing)} counts are not covered,"
        " and not demanded (--verbose has them and why)"
    )


def _shares(report: CheckReport) -> Iterable[tuple[str, str]]:
    """Return a row for each group of facts: in how many of a hundred scenarios each of them came up."""
    for group, facts in report.shares.items():
        if any(facts.values()):
            yield group, ", ".join(f"{words} {100 * count / report.examples:.0f}" for words, count in facts.items())


def _groups(verdicts: Iterable[Verdict]) -> Iterable[tuple[str, str]]:
    """Return a row for each group of contracts."""
    groups: dict[str, Counter[Outcome]] = {}
    for one in verdicts:
        groups.setdefault(group_of(one.name), Counter())[one.verdict] += 1
    for name, outcomes in groups.items():
        yield name, ", ".join(f"{outcomes[outcome]} {outcome}" for outcome in Outcome if outcomes[outcome])


def _weights(report: CheckReport) -> Iterable[tuple[str, str]]:
    """Return a row for the target and each draft: how often a tensor of each kind was perturbed."""
    rows = sorted((*kind.split(" ", 1), count) for kind, count in report.weights.items())
    for model, of_model in itertools.groupby(rows, key=lambda row: row[0]):
        yield str(model), ", ".join(f"{name} {count}" for _, name, count in of_model)


def exercised(counts: Mapping[str, int], beyond: Container[str], where: str, weights: int = 0) -> str:
    """Return in a line what was exercised; `beyond` are counts that the subject cannot show, `where` has them all."""
    from draftproof.properties.judge import WORK

    # Of a subject that shows no rounds all that it reports are texts, and what it counted.
    names = (*WORK, "kernel_calls") if "decode_rounds" not in beyond else TEXT_FACTS
    shown = [f"{name} {counts[name]}" for name in names if name in counts and name not in beyond]
    if weights:
        shown.append(f"weights perturbed {weights}")
    return f"exercised: {', '.join(shown)}; all {len(counts)} counts with {where}"


def _show_finding(finding: CheckFinding, of_cases: Mapping[str, object]) -> None:
    replay = command("replay", finding.case, **of_cases)
    screen.line(f"\n{finding.verdict} in scenario {finding.scenario}, first of all:")
    if finding.first is not None:
        screen.line(block(finding.first, replay=replay))
    else:
        screen.line(f"{finding.detail.strip()}\n  replay     {replay}")
