"""`draftproof check`: every contract on this machine."""

from __future__ import annotations

import shlex
import time
from typing import Annotated

import msgspec
import typer

from draftproof.cli import drafts, inputs, screen
from draftproof.harness.check import REAL, Checker, CheckReport, Finding
from draftproof.harness.kernel_runs import cases, verdicts
from draftproof.properties.contracts.base import Contract
from draftproof.properties.kernels.case import KernelCase
from draftproof.properties.kernels.table import PREFIX
from draftproof.properties.subject import Subject
from draftproof.properties.values.drafts import ALGORITHMS
from draftproof.properties.values.verdict import EXIT_CODES, Outcome, Verdict, worst
from draftproof.report.text import block, line

EXAMPLES = max(200, 40 * len(ALGORITHMS))
KERNEL_CALLS = 12
"""Calls that each kernel is held to its contract with."""
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
    """Run generated scenarios on the engine and on the reference, and hold them to every contract."""
    of_traces, of_kernels = inputs.contracts(contract)
    options = drafts.chosen(draft, model, draft_model, mtp)
    count = examples or (MODEL_EXAMPLES if model else EXAMPLES)
    inputs.device(device)
    scenarios = drafts.scenarios(options, seed, count) if of_traces else []
    calls = {} if model else _calls(of_kernels, seed, min(count, KERNEL_CALLS))
    subject = inputs.engine(device)
    started = time.monotonic()
    with screen.progress("scenarios", len(scenarios)) as advance:
        checker = _checker(subject, of_traces, bool(contract), model is not None)
        report = checker.check(scenarios, seed, advance)
    report = _with_kernels(report, calls, device)
    if contract and report.verdict is Outcome.PASS:
        report = _unless_skipped(report)
    show(report, time.monotonic() - started, _again(seed, count, device, contract, options.arguments))
    inputs.write_json(json, report)
    raise typer.Exit(EXIT_CODES[report.verdict])


def _calls(names: tuple[str, ...], seed: int, count: int) -> dict[str, tuple[KernelCase, ...]]:
    """op -> the calls that it is held to its contract with."""
    ops = [name.removeprefix(PREFIX) for name in names]
    return {op: cases(op, seed, count) for op in ops}


def _with_kernels(report: CheckReport, calls: dict[str, tuple[KernelCase, ...]], device: str) -> CheckReport:
    """The report with the kernels' contracts added; without scenarios they are all there is."""
    ours = report.contracts if report.examples else ()
    contracts = (*ours, *verdicts([f"{PREFIX}{op}" for op in calls], calls, device))
    counts = {**report.counts, "kernel_calls": sum(map(len, calls.values()))}
    verdict = worst([one.verdict for one in contracts])
    return msgspec.structs.replace(report, verdict=verdict, contracts=contracts, counts=counts)


def _checker(subject: Subject, contracts: tuple[Contract, ...], named: bool, real: bool) -> Checker:
    """Of single contracts only their own minimum is asked; a real model runs less."""
    if named:
        return Checker(subject, contracts, work=(), each=None)
    return Checker(subject, contracts, each=REAL) if real else Checker(subject, contracts)


def _again(seed: int, count: int, device: str, contracts: list[str] | None, drafts: list[str]) -> str:
    """The command that does the same again."""
    parts = ["draftproof", "check", "--seed", str(seed), "--examples", str(count), "--device", device]
    for name in contracts or ():
        parts += ["--contract", name]
    return shlex.join([*parts, *drafts])


def _unless_skipped(report: CheckReport) -> CheckReport:
    """A contract that was asked for by name and could not be held to anything makes the whole inconclusive."""
    skipped = any(one.verdict is Outcome.SKIP for one in report.contracts)
    return msgspec.structs.replace(report, verdict=Outcome.INCONCLUSIVE) if skipped else report


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
