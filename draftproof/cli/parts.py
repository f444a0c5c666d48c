"""`draftproof bisect parts`: which parts of the engine must be on for a case to fail."""

from __future__ import annotations

import shlex
import tempfile
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

import msgspec
import typer

from draftproof.cli import inputs, screen, subjects
from draftproof.fuzz.bisect.ddmin import NotFailingError
from draftproof.fuzz.bisect.parts import KERNEL
from draftproof.fuzz.bisect.search import Alone, Bisection, Twins, bisect
from draftproof.harness.twins import kernels_used
from draftproof.harness.workers.messages import Answer, Order, SubjectSpec
from draftproof.harness.workers.pool import Pool
from draftproof.properties.values.base import Value
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.verdict import EXIT_CODES, Outcome
from draftproof.report.text import block

SLOWER, START = 10, 60.0
"""How many times longer a scenario may take with naive twins, and the seconds that a process may take to start."""

_TICK = 0.2


class PartsReport(Value, frozen=True, kw_only=True):
    """What `bisect parts` came to; `verdict` is that of the case, INCONCLUSIVE if it did not fail again."""

    verdict: Outcome
    case: str
    found: Bisection | None = None


class _Pools:
    """Workers without twins, and one for each of the sets of twins asked for last: a process has its kernels for good.

    As many sets of twins as there are workers run at a time.
    """

    def __init__(self, spec: SubjectSpec, count: int, folder: Path) -> None:
        self._spec, self._count, self._folder = spec, count, folder
        self._plain = Pool(spec, count, folder / "plain")
        self._others: OrderedDict[Twins, Pool] = OrderedDict()
        self._made = 0

    def __enter__(self) -> _Pools:
        self._plain.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        for pool in (*self._others.values(), self._plain):
            pool.__exit__(None, None, None)

    def __call__(self, wanted: Sequence[tuple[Twins, Scenario]]) -> list[Answer]:
        answers: dict[int, Answer] = {}
        groups = list(dict.fromkeys(twins for twins, _ in wanted))
        for start in range(0, len(groups), self._count):
            some = {twins: self._of(twins) for twins in groups[start : start + self._count]}
            for number, (twins, scenario) in enumerate(wanted):
                if twins in some:
                    some[twins].submit(Order(number=number, scenario=scenario))
            while any(pool.busy for pool in some.values()):
                answers |= {answer.number: answer for pool in some.values() for answer in pool.poll(_TICK)}
        return [answers[number] for number in range(len(wanted))]

    @property
    def deadline(self) -> float:
        """Seconds that a scenario may take without twins."""
        return self._plain.deadline

    def _of(self, twins: Twins) -> Pool:
        if not twins:
            return self._plain
        if twins not in self._others:
            if len(self._others) == self._count:
                self._others.popitem(last=False)[1].__exit__(None, None, None)
            spec = msgspec.structs.replace(self._spec, twins=twins)
            self._made += 1
            pool = Pool(spec, 1, self._folder / str(self._made), deadline=SLOWER * self.deadline)
            self._others[twins] = pool.__enter__()
        self._others.move_to_end(twins)
        return self._others[twins]


def parts(
    case: subjects.CaseFile,
    workers: subjects.Workers = subjects.WORKERS,
    device: inputs.Device = "cpu",
    fault: subjects.FaultId = None,
    patch: subjects.Patch = None,
    subject: subjects.Factory = None,
    json: inputs.Json = None,
) -> None:
    """The smallest set of parts of the engine that must be on for a case to fail."""
    scenario = subjects.read(case)
    with (
        subjects.subject(device, fault, patch, subject) as spec,
        tempfile.TemporaryDirectory(prefix="draftproof-") as folder,
        _Pools(spec, workers, Path(folder)) as run,
    ):
        report = _bisected(scenario, case, spec, run, workers)
    if report.found is not None:
        _show(report.found)
        command = shlex.join(
            ["draftproof", "bisect", "parts", str(case), *subjects.options(device, fault, patch, subject)]
        )
        screen.line(f"{report.verdict}. Again: {command}", "bold")
    inputs.write_json(json, report)
    raise typer.Exit(EXIT_CODES[report.verdict])


def _bisected(scenario: Scenario, case: Path, spec: SubjectSpec, run: _Pools, width: int) -> PartsReport:
    answer = run([((), scenario)])[0]
    if answer.outcome is Outcome.ERROR:
        raise RuntimeError(f"the case could not be judged:\n{answer.detail}")
    if answer.identity is None:
        screen.line(f"{case} does not fail: {answer.outcome}. There is nothing to bisect.", "bold")
        return PartsReport(verdict=answer.outcome, case=str(case))
    kernels = kernels_used(spec, scenario, START + run.deadline)
    try:
        found = bisect(scenario, answer, kernels, run, device=spec.device, width=width)
    except NotFailingError:
        screen.line(f"{case} is FLAKY: it failed once and then not again; nothing can be said of its parts.", "bold")
        return PartsReport(verdict=Outcome.INCONCLUSIVE, case=str(case))
    found = msgspec.structs.replace(found, answer=subjects.short(found.answer))
    return PartsReport(verdict=answer.outcome, case=str(case), found=found)


def _show(found: Bisection) -> None:
    table = screen.table("part", "what runs with it", "needed", "failure with only this off")
    for part in found.parts:
        effect = f"{part.alone}: {part.other}" if part.alone is Alone.OTHER else str(part.alone)
        if part.name.startswith(KERNEL) and part.alone is Alone.UNTRIED:
            continue
        table.add_row(part.name, part.on, "yes" if part.needed else "", effect)
    screen.console().print(table)
    others = [part for part in found.parts if part.name.startswith(KERNEL) and part.alone is Alone.UNTRIED]
    if others:
        screen.line(f"Not needed together: {', '.join(part.name.removeprefix(KERNEL) for part in others)}.")
    for name, why in found.fixed.items():
        screen.line(f"Stays on: {name}; {why}.")
    for note in found.notes:
        screen.line(f"{note}.")
    if found.answer.first is not None:
        screen.line(block(found.answer.first))
    screen.line(f"{said(found.needed)} ({found.runs} sets of parts tried.)", "red")


def said(needed: Sequence[str]) -> str:
    """The result as a sentence."""
    if not needed:
        return "It takes none of these parts: it fails with all of them off."
    return f"It takes: {' + '.join(needed)}."
