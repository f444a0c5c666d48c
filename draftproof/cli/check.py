"""`draftproof check`: every contract on this machine."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from draftproof.cli import check_output, drafts, inputs, screen
from draftproof.properties.values.drafts import ALGORITHMS
from draftproof.report.commands import command

EXAMPLES = max(200, 40 * len(ALGORITHMS))
MODEL_EXAMPLES = 24
"""A real model is recomputed from token zero in float64 for every round: it has a budget of its own."""

Examples = Annotated[
    int | None,
    typer.Option(
        "--examples", min=1, help=f"Generated scenarios to run (default: {EXAMPLES}; {MODEL_EXAMPLES} with --model)."
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="List every contract and every count.")]
Contracts = Annotated[
    list[str] | None,
    typer.Option("--contract", help="Check only this contract (may be repeated); --verbose lists all."),
]


def check(
    seed: inputs.Seed = 0,
    examples: Examples = None,
    device: inputs.Device = "cpu",
    contract: Contracts = None,
    draft: drafts.Draft = None,
    model: drafts.Model = None,
    draft_model: drafts.Folder = None,
    mtp: drafts.Mtp = False,
    verbose: Verbose = False,
    json: inputs.Json = None,
) -> None:
    """Run generated scenarios on the engine and on the reference, and check every contract.

    Each group of contracts is summed up in one line, and contracts that did not pass are listed.
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
    again = command("check", seed=seed, examples=count, device=device, contract=contract, **options.arguments)
    check_output.show(report, time.monotonic() - started, again, verbose=verbose)
    inputs.finish(json, report, report.verdict)
