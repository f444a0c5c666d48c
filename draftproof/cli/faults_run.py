"""`draftproof faults run`: bring faults back and see whether they are noticed."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from draftproof.cli import cases, inputs, screen
from draftproof.cli.again import again
from draftproof.properties.values.verdict import EXIT_CODES, Outcome, worst
from draftproof.report.commands import command
from draftproof.report.numbers import plural
from draftproof.report.text import block

if TYPE_CHECKING:
    from draftproof.faults.catalogue import FaultFile
    from draftproof.faults.checkpoints import Checkpoints
    from draftproof.faults.kept import KeptResults, RunSettings
    from draftproof.faults.matrix import FaultReport, FaultResult, Totals
    from draftproof.faults.run import InterruptedRunError

SEEDS, _EXAMPLES = 5, 30
_FEW = 3
"""Of so many faults each is shown, and leaves a case; of more only what is unexpected is shown."""

Ids = Annotated[list[str] | None, typer.Option("--id", help="Only this fault (may be repeated).")]
Patches = Annotated[
    list[Path] | None,
    typer.Option(
        "--patch",
        help="Also a fault that is not in the catalogue: its file, or a diff, which meets scenarios of all drafts"
        " (may be repeated).",
    ),
]
Seeds = Annotated[int, typer.Option("--seeds", min=1, max=100, help="How many seeds to try, from --seed on.")]
Examples = Annotated[int, typer.Option("--examples", min=1, help="Most scenarios for each seed.")]
Smoke = Annotated[bool, typer.Option("--smoke", help="Only the faults that every CI run tries.")]
Baseline = Annotated[
    bool, typer.Option("--baseline", help="Also see whether usual tests would notice: output and mean acceptance.")
]
Models = Annotated[
    list[Path] | None,
    typer.Option(
        "--model",
        help="Meet scenarios of this checkpoint directory in place of those that the faults name (may be repeated: they"
        " take turns). Without --id and --patch: the faults of real models.",
    ),
]
DraftModel = Annotated[
    Path | None, typer.Option("--draft-model", help="With --model, the checkpoint directory of the draft.")
]
Parallel = Annotated[
    int | None,
    typer.Option(
        "--parallel", min=1, max=512, help="Faults at a time (default: 2 on CPU, 12 on a GPU); workers of a cluster."
    ),
]


def run(
    id_: Ids = None,
    patch: Patches = None,
    smoke: Smoke = False,
    seed: inputs.Seed = 0,
    seeds: Seeds = SEEDS,
    examples: Examples = _EXAMPLES,
    device: inputs.Device = "cpu",
    baseline: Baseline = False,
    parallel: Parallel = None,
    cluster: inputs.Cluster = None,
    model: Models = None,
    draft_model: DraftModel = None,
    json: inputs.Json = None,
) -> None:
    """Patch known bugs into a copy of the engine: is each noticed?

    One at a time; which contract notices it, and how soon, is told. Without --id, --patch and --smoke these are all of
    the catalogue. With --json each result is kept as it comes: run the same command again to resume a run that was cut.
    """
    from draftproof.faults.kept import RunSettings, described
    from draftproof.faults.on_nodes import ALL_AT_ONCE, ClusterServer
    from draftproof.faults.orders import is_twin
    from draftproof.faults.run import InterruptedRunError, run_faults
    from draftproof.harness.signals import interrupted_once

    inputs.require_cluster(cluster)
    every_seed = inputs.seeds(seed, seeds)
    files = _chosen(id_ or [], patch or [], smoke, real=bool(model))
    checkpoints = _checkpoints(model or [], draft_model)
    given = inputs.choose(device, inputs.DEVICES, "--device") if cluster else inputs.device(device)
    which: dict[str, object] = {"id": id_, "smoke": smoke, "patch": patch, "model": model, "draft_model": draft_model}
    options = {"seed": seed, "seeds": seeds, "examples": examples, "device": device, "baseline": baseline}
    directories = (*checkpoints.models, *filter(None, [checkpoints.draft_model])) if checkpoints else ()
    settings = RunSettings(
        seed=seed,
        seeds=seeds,
        examples=examples,
        device=device,
        baseline=baseline,
        model=tuple(map(described, directories)),
    )
    replays = _Replays({file.fault.id: file for file in files}, patch or [], checkpoints)
    with ExitStack() as outer:
        # SIGTERM is an interrupt, too, so that what is known by then is printed.
        outer.enter_context(interrupted_once())
        kept = outer.enter_context(_kept(json, settings, files)) if json else None
        try:
            with ExitStack() as stack:
                server = (
                    stack.enter_context(ClusterServer(cluster, given, parallel, tell=screen.line)) if cluster else None
                )
                advance = stack.enter_context(screen.progress("faults", len(files)))
                report = run_faults(
                    files,
                    every_seed,
                    examples,
                    device=device,
                    baseline=baseline,
                    parallel=ALL_AT_ONCE if server else parallel,
                    progress=lambda name: None if is_twin(name) else advance(),
                    checkpoints=checkpoints,
                    serve=server.run if server else None,
                    keep=kept.serve if kept else lambda serve: serve,
                )
        except InterruptedRunError as cut:
            repeated = again("faults", "run", **which, **options, cluster=cluster, parallel=parallel, json=json)
            _show_cut(cut, kept, repeated, replays)
            raise inputs.Ended(EXIT_CODES[cut.report.verdict]) from None
        _show_report(report, replays, again("faults", "run", **which, **options))
        inputs.finish(json, report, report.verdict, then=kept.remove if kept else lambda: None)


def _kept(json: Path, settings: RunSettings, files: list[FaultFile]) -> KeptResults:
    """Return the results of a run that was cut, or where those of this one are kept. Raises KeptResultsError."""
    from draftproof.faults.kept import KeptResults, beside

    kept = KeptResults(beside(json), settings, [file.fault.id for file in files])
    if kept.tried:
        screen.note(f"resumed: {kept.path} has results of {kept.tried} of {plural(len(files), 'fault')}")
    return kept


def _show_cut(cut: InterruptedRunError, kept: KeptResults | None, repeated: str, replays: _Replays) -> None:
    """Print what there is of a run that was interrupted, and how to resume it."""
    if cut.report.faults:
        _show_rows(cut.report, replays)
    if kept and kept.tried > len(cut.report.faults):
        where = f"{kept.path} keeps those of {plural(kept.tried, 'fault')} all the same. Go on: {repeated}"
    elif kept and kept.tried:
        where = f"{kept.path} keeps all results so far. Go on: {repeated}"
    elif kept:
        where = f"there are no results yet. Again: {repeated}"
    else:
        where = f"nothing was kept: --json FILE would keep results. Again: {repeated}"
    screen.line(f"{cut.report.verdict}: {cut}; {where}", "bold")


def _checkpoints(models: list[Path], draft_model: Path | None) -> Checkpoints | None:
    """Return the directories of --model and --draft-model. Raises InputError."""
    from draftproof.faults.checkpoints import Checkpoints

    if draft_model and not models:
        raise inputs.InputError(f"invalid --draft-model '{draft_model}': expected only together with --model")
    for option, path in [("--model", path) for path in models] + [("--draft-model", draft_model)]:
        if path and not (path / "config.json").is_file():
            raise inputs.InputError(f"invalid {option} '{path}': expected a directory with config.json")
    return Checkpoints(models=tuple(map(str, models)), draft_model=str(draft_model or "")) if models else None


def _chosen(ids: list[str], patches: list[Path], smoke: bool, *, real: bool) -> list[FaultFile]:
    """Return the named faults, or all; of `real` models without names those that name a checkpoint.

    Raises InputError, PatchError or UnknownFaultError.
    """
    from draftproof.faults.catalogue import catalogue, find, read_fault

    known = catalogue()
    files = [find(name, known) for name in dict.fromkeys(ids)] + [read_fault(path) for path in patches]
    if smoke and files:
        raise inputs.InputError("invalid --smoke: expected without --id and --patch")
    files = files or [
        file for file in known.values() if (file.fault.smoke or not smoke) and (file.fault.model or not real)
    ]
    if len({file.fault.id for file in files}) < len(files):
        raise inputs.InputError("invalid --patch: two of the faults have the same id")
    return files


class _Replays(NamedTuple):
    """What it takes to keep a scenario in which a fault was noticed: the faults by their ids, and what they met."""

    files: Mapping[str, FaultFile]
    patches: list[Path]
    checkpoints: Checkpoints | None

    def of(self, fault: FaultResult, report: FaultReport) -> str:
        """Keep the first of these scenarios as a case; return what replays it, "" where there is none."""
        from draftproof.faults.run import noticed_in

        file = self.files[fault.id]
        scenario = noticed_in(file, fault, report, self.checkpoints)
        if scenario is None:
            return ""
        path = Path(f".draftproof/cases/fault-{fault.id}.json")
        try:
            cases.keep(path, scenario, f"draftproof faults run with --fault {fault.id}")
        except inputs.InputError as error:
            screen.note(str(error))
            return ""
        given = {"patch": file.path} if Path(file.path) in self.patches else {"fault": fault.id}
        return command("replay", path, **given, device="" if report.device == "cpu" else report.device)


def _show_report(report: FaultReport, replays: _Replays, again: str) -> None:
    _show_rows(report, replays)
    if report.nodes:
        screen.line(f"ran on {plural(len(report.nodes), 'node')}: {'; '.join(report.nodes)}")
    screen.line(f"strategies: version {report.strategies}")
    twins: list[Outcome] = [fault.clean_twin for fault in report.faults if fault.clean_twin is not Outcome.SKIP]
    clean = worst(twins) if twins else "none"
    screen.line(f"{report.verdict}: {plural(len(report.faults), 'fault')}, clean twin {clean}. Again: {again}", "bold")


def _show_rows(report: FaultReport, replays: _Replays) -> None:
    """Print the table, what of the usual tests was asked, each fault that takes a word, and the sums."""
    columns = ("fault", "outcome", "contract", "channel", "examples", "median", "90 %", "seconds")
    screen.show(columns, map(_cells, report.faults), right=("median", "seconds"))
    if report.totals.measured:
        _show_baseline(report)
    for fault in report.faults:
        brief = len(report.faults) > _FEW
        _show_fault(fault, brief, "" if brief else replays.of(fault, report))
    _show_totals(report.totals)


def _show_baseline(report: FaultReport) -> None:
    from draftproof.report.matrix_page import baseline_cells

    rows = [(fault.id, *baseline_cells(fault.baseline)) for fault in report.faults if fault.baseline is not None]
    screen.show(("beside it, the usual tests", "output", "mean acceptance"), rows)


def _cells(fault: FaultResult) -> tuple[str, ...]:
    from draftproof.report.matrix_page import interval_of, median_of

    counts = " ".join("-" if count is None else str(count) for count in fault.examples_to_detect)
    median, interval = median_of(fault.examples), interval_of(fault.examples)
    seconds = median_of(fault.time, ".2f")
    return (fault.id, fault.outcome.value, fault.contract, fault.channel, counts, median, interval, seconds)


def _show_totals(totals: Totals) -> None:
    from draftproof.report.matrix_page import noticed

    screen.line(noticed(totals))
    if of := totals.measured:
        seen = f"output {totals.output}, mean acceptance {totals.acceptance}, either {totals.either}"
        screen.line(f"of {of} that met the usual tests, too: ours {totals.ours}, {seen}")


def _show_fault(fault: FaultResult, brief: bool, replay: str) -> None:
    """Print what noticed a fault, and what replays it; if `brief`, only what is unexpected."""
    from draftproof.faults.trial import FaultOutcome

    if fault.divergence is not None and (not brief or fault.outcome is not FaultOutcome.DETECTED):
        screen.line(block(fault.divergence, of=fault.id, replay=replay))
    if fault.detail and not (brief and fault.outcome is FaultOutcome.ABSENT):
        screen.line(f"{fault.id}: {fault.outcome.value}: {fault.detail}{replay and f'; replay: {replay}'}")
    if fault.inert_hunks and fault.outcome is not FaultOutcome.STALE:
        screen.line(f"{fault.id}: never had an effect: {', '.join(fault.inert_hunks)}")
