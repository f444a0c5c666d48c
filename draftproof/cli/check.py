"""`draftproof check`: every contract on this machine."""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING, Annotated

import typer

from draftproof.cli import drafts, inputs, screen
from draftproof.properties.values.drafts import ALGORITHMS
from draftproof.properties.values.verdict import EXIT_CODES, Outcome, Verdict
from draftproof.report.text import block, line

if TYPE_CHECKING:
    from draftproof.harness.check import CheckReport, Finding

EXAMPLES = max(200, 40 * len(ALGORITHMS))
MODEL_EXAMPLES = 24
"""A real model is recomputed from token zero in float64 for every round: it has a budget of its own."""

Examples = Annotated[
    int | None,
    typer.Option("--examples", min=1, help=f"Scenarios to run ({EXAMPLES}; {MODEL_EXAMPLES} with --model)."),
]
Contracts = Annotated[list[str] | None, typer.Option("--contract", help="Only this contract (may be repeated).")]


def check(
    seed: inputs.Seed = 0,
    examples: Examples = None,
    device: inputs.Device = "cpu",
    contract: Contracts = None,
    draft: drafts.Draft = None,
    model: drafts.Model = None,
    draft_model: drafts.Folder = None,
    mtp: drafts.Mtp = False,
    json: inputs.Json = None,
) -> None:
    """Run generated scenarios on the engine and on the reference, and check every contract.

    By default each group of contracts takes one line, and every exception is listed; --verbose lists everything.
    """
    from draftproof.harness.whole_check import checker, kernel_calls, unless_skipped, whole_check

    of_traces, of_kernels = inputs.contracts(contract)
    options = drafts.chosen(draft, model, draft_model, mtp)
    count = examples or (MODEL_EXAMPLES if model else EXAMPLES)
    inputs.device(device)
    scenarios = drafts.scenarios(options, seed, count) if of_traces else []
    calls = kernel_calls(() if model else of_kernels, seed, count)
    subject = inputs.engine(device)
    started = time.monotonic()
    with screen.progress("scenarios", len(scenarios)) as advance:
        report = whole_check(
            checker(subject, of_traces, named=bool(contract), real=model is not None),
            scenarios,
            calls,
            seed,
            device,
            advance,
        )
    report = unless_skipped(report) if contract else report
    show(report, time.monotonic() - started, _again(seed, count, device, contract, options.arguments))
    inputs.write_json(json, report)
    raise typer.Exit(EXIT_CODES[report.verdict])


def _again(seed: int, count: int, device: str, contracts: list[str] | None, drafts: list[str]) -> str:
    """Return the command that does the same again."""
    parts = ["draftproof", "check", "--seed", str(seed), "--examples", str(count), "--device", device]
    for name in contracts or ():
        parts += ["--contract", name]
    return shlex.join([*parts, *drafts])


def show(report: CheckReport, seconds: float, again: str) -> None:
    """The verdicts, what was exercised, and the failures with how to replay them."""
    console = screen.console()
    table = screen.table("contract", "verdict", "scenarios", "", right=("scenarios",))
    for verdict in report.contracts:
        table.add_row(verdict.name, screen.outcome(verdict.verdict), str(verdict.scenarios), _remark(verdict))
    console.print(table)
    console.print(screen.counts_table(report.counts))
    if report.drafts:
        console.print(drafts.table(report.drafts))
    for verdict in report.contracts:
        if verdict.divergence is not None:
            screen.line(f"FAIL {verdict.name}: {line(verdict.divergence)}.", "red")
    for finding in report.findings:
        _show_finding(finding)
    if report.verdict is Outcome.INCONCLUSIVE:
        screen.line("Nothing failed, but not everything came up: more --examples or another --seed exercise more.")
        for verdict in report.contracts:
            if verdict.verdict is Outcome.INCONCLUSIVE:
                screen.line(f"  {verdict.name}: {', '.join(verdict.missing)}")
    screen.line(f"{report.verdict}: {report.examples} scenarios in {seconds:.1f} s. Again: {again}", "bold")


def _show_finding(finding: Finding) -> None:
    replay = f"draftproof replay {shlex.quote(finding.case)}"
    screen.line(f"\n{finding.verdict} in scenario {finding.scenario}, first of all:")
    if finding.first is not None:
        screen.line(block(finding.first, replay=replay))
    else:
        screen.line(f"{finding.detail.strip()}\n  replay     {replay}")


def _remark(verdict: Verdict) -> str:
    if verdict.verdict is Outcome.INCONCLUSIVE:
        return f"not enough was exercised: {', '.join(verdict.missing)}"
    if verdict.divergence is not None:
        return f"first in {verdict.divergence.channel}"
    return verdict.reason
