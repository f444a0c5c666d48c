"""How large a long campaign becomes."""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
import tempfile
import time
import zlib
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import psutil
from msgspec.structs import replace

from draftproof.fuzz.campaign.drive import Campaign
from draftproof.fuzz.campaign.plan import CampaignPlan, Planned
from draftproof.fuzz.campaign.rundir import RunDir
from draftproof.fuzz.campaign.settings import CampaignLimits, RequestedSettings
from draftproof.fuzz.campaign.standing import CampaignStatus
from draftproof.fuzz.campaign.store import Store, text
from draftproof.harness.workers.messages import Answer, Order, SubjectSpec
from draftproof.harness.workers.pool import Pool
from draftproof.properties.coverage.bins import universe
from draftproof.properties.strategies.scenarios import generate
from draftproof.properties.values.drafts import ALGORITHMS
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.verdict import Outcome

RARE = 0.3
"""How many bins a scenario has beside those of its template, on average."""
DETAIL = "Traceback of a subject, a line of it\n" * 200


def campaign(given: Namespace) -> Iterator[dict[str, Any]]:
    """Measure how large a long campaign becomes: its store, its report, and the memory of the process that drives it.

    The campaign is a real one, with its loop, plan, store, findings and report; only the subject is a stand-in that
    answers at once, in this process. What it says are answers of the engine to a few scenarios (templates), with a few
    bins more for each scenario. One of `--fail-every` scenarios fails, with one of `--findings` identities and a detail
    of a traceback's size; nothing smaller fails in the same way. To make a scenario takes longer than such an answer:
    one of `--blocks` blocks is planned, and the others are that one with other pages.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = given.run or Path(folder) / "run"
        templates = answered(given.seed, given.templates, Path(folder) / "workers")
        subject = Instant(templates, given.fail_every, given.findings, given.workers)
        yield from _run(path, subject, given)
        peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        findings = _megabytes((path / "findings").rglob("*"))
        yield {
            "what": "in the end",
            "peak_mb": peak / 1e6,
            "store_mb": _store(path),
            "findings_mb": findings,
            **_tables(path),
        }
        yield {"what": "draftproof --help", **_command("--help")}
        report = sorted((_command("report", str(path)) for _ in range(3)), key=lambda row: row["taken_s"])[1]
        yield {"what": "draftproof report", **report, "page_mb": _megabytes([path / "report.html"])}
        resume = ["fuzz", "--run", str(path), "--workers", "1", "--examples", "1", "--time", "1s"]
        yield {"what": "a call that resumes it", **_command(*resume)}


def answered(seed: int, count: int, folder: Path) -> list[Answer]:
    """Return the engine's answers to a few scenarios."""
    with Pool(SubjectSpec(), 1, folder) as pool:
        return pool.run([Order(number=place, scenario=one) for place, one in enumerate(generate(seed, count))])


class Instant:
    """Workers that answer at once; what they say is a function of the scenario."""

    replaced, deadline = 0, 10.0

    def __init__(self, templates: Sequence[Answer], every: int, findings: int, width: int) -> None:
        self._templates, self._every, self._findings, self.width = templates, every, findings, width
        self._orders: list[Order] = []

    @cached_property
    def _bins(self) -> tuple[str, ...]:
        return universe(ALGORITHMS)

    def submit(self, order: Order) -> None:
        self._orders.append(order)

    @property
    def free(self) -> int:
        return self.width - len(self._orders)

    def poll(self, timeout: float) -> list[Answer]:
        orders, self._orders = self._orders, []
        return [self._answer(order) for order in orders]

    def _answer(self, order: Order) -> Answer:
        number = zlib.crc32(text(order.scenario).encode())
        draw = random.Random(number)
        answer = draw.choice(self._templates)
        # Bins are as rare as they are in real campaigns: some come in every other scenario, others hardly ever.
        extra = {self._bins[int(len(self._bins) * draw.random() ** 3)] for _ in range(draw.random() < RARE)}
        answer = replace(
            answer, number=order.number, bins=tuple(sorted({*answer.bins, *extra})), digest=f"{number:016x}"
        )
        if not self._findings or number % self._every:
            return answer
        kind = number // self._every % self._findings
        return replace(answer, outcome=Outcome.CRASH, error=f"Error{kind}", message=f"kind {kind}", detail=DETAIL)


class Repeating:
    """A plan with one block of `repeat`; the others are the same scenarios with other pages."""

    def __init__(self, plan: CampaignPlan, repeat: int) -> None:
        self._plan, self._repeat, self._count = plan, repeat, 0
        self._last: list[Planned] = []

    def block(self, number: int) -> list[Planned]:
        if not number % self._repeat:
            self._last = self._plan.block(number)
        return [Planned(self._numbered(one.scenario), one.origin) for one in self._last]

    def _numbered(self, scenario: Scenario) -> Scenario:
        self._count += 1
        return replace(scenario, memory=replace(scenario.memory, page_seed=zlib.crc32(str(self._count).encode())))


def _run(path: Path, subject: Instant, given: Namespace) -> list[dict[str, Any]]:
    """Run it to its end; return how large it was after each tenth."""
    growth: list[dict[str, Any]] = []
    began, process = time.perf_counter(), psutil.Process()

    def watch(status: CampaignStatus) -> None:
        if status.scenarios >= given.scenarios * (len(growth) + 1) // 10:
            sizes = {"store_mb": _store(path), "memory_mb": process.memory_info().rss / 1e6}
            growth.append({"what": f"{status.scenarios} scenarios", "wall_s": time.perf_counter() - began, **sizes})

    with RunDir(path) as directory:
        settings = directory.begin(RequestedSettings(seed=given.seed), {})
        planner = Repeating(CampaignPlan(settings.seed, settings.drafts), given.blocks)
        limits = CampaignLimits(36_000.0, None, given.scenarios)
        possible = universe(settings.drafts)
        Campaign(
            directory, settings, limits, subject, planner, possible=possible, width=subject.width, watch=watch
        ).go()
    return growth


def _megabytes(files: Iterable[Path]) -> float:
    return sum(file.stat().st_size for file in files if file.is_file()) / 1e6


def _store(path: Path) -> float:
    return _megabytes(path.glob("results.sqlite*"))


def _tables(path: Path) -> dict[str, int]:
    store = Store(path / "results.sqlite")
    try:
        names = ("scenarios", "bins", "findings", "minimums", "progress", "troubles")
        return {name: store.count(name) for name in names}
    finally:
        store.close()


def _command(*arguments: str) -> dict[str, float]:
    """Return the seconds of a command, and the most memory of its process: not that of its workers."""
    command = [sys.executable, "-P", "-c", _PROGRAM, *arguments]
    began = time.perf_counter()
    done = subprocess.run(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False, env=_ENVIRONMENT
    )
    return {"taken_s": time.perf_counter() - began, "peak_mb": 1024 * int(done.stderr.split()[-2]) / 1e6}


_PROGRAM = """
import pathlib, sys
from draftproof.cli.app import run
code = run(sys.argv[1:])
# Not of resource.getrusage, which remembers the process that started this one.
status = pathlib.Path("/proc/self/status").read_text()
print(next(line for line in status.splitlines() if line.startswith("VmHWM")), file=sys.stderr)
"""
_ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
