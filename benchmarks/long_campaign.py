"""How large a long campaign becomes: its store, its report, and the memory of the process that drives it.

The campaign is a real one, with its loop, plan, store, findings and report; only the subject is a stand-in that answers
at once, in this process. What it says are answers of the engine to a few scenarios (templates), with a few bins more
for each scenario. One of `--fail-every` scenarios fails, with one of `--findings` identities and a detail of a
traceback's size; nothing smaller fails in the same way.

To make a scenario takes longer than such an answer: one block of `--repeat` is planned, and the others are that one
with other pages.
"""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import bench
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
COLUMNS: dict[str, Callable[[Any], object]] = {
    "what": lambda row: row[0],
    "measured": lambda row: row[1],
}
GROWTH: dict[str, Callable[[Any], object]] = {
    "scenarios": lambda row: row["scenarios"],
    "seconds": lambda row: f"{row['seconds']:.0f}",
    "store": lambda row: f"{row['store_bytes'] / 1e6:.1f} MB",
    "memory": lambda row: f"{row['memory_bytes'] / 1e6:.0f} MB",
}


def main() -> None:
    """Run a campaign, measure it, print two tables, write JSON."""
    parser = bench.parser(__doc__, "seed", *bench.KEPT)
    parser.add_argument("--scenarios", type=int, default=100_000)
    parser.add_argument("--templates", type=int, default=24, help="scenarios that are really run")
    parser.add_argument("--fail-every", type=int, default=50)
    parser.add_argument("--findings", type=int, default=60, help="identities of what fails")
    parser.add_argument("--repeat", type=int, default=10, help="blocks for each that is planned")
    parser.add_argument("--workers", type=int, default=8, help="width of the campaign's batches")
    parser.add_argument("--run", type=Path, help="keep the campaign in this directory")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.run or Path(folder) / "run"
        templates = answered(arguments.seed, arguments.templates, Path(folder) / "workers")
        subject = Instant(templates, arguments.fail_every, arguments.findings, arguments.workers)
        growth = campaign(path, subject, arguments)
        peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        result = {"scenarios": arguments.scenarios, "growth": growth, "peak_bytes": peak, **measured(path)}
    bench.show("a campaign while it ran", growth, GROWTH)
    bench.show(f"a campaign of {arguments.scenarios} scenarios", rows(result), COLUMNS, left=("what", "measured"))
    bench.keep(arguments, result, {name: result[f"{name}_seconds"] for name in ("resume", "report")})


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


def campaign(path: Path, subject: Instant, arguments: Any) -> list[dict[str, Any]]:
    """Run it to its end; return how large it was after each tenth."""
    growth: list[dict[str, Any]] = []
    began, process = time.perf_counter(), psutil.Process()

    def watch(status: CampaignStatus) -> None:
        if status.scenarios < arguments.scenarios * (len(growth) + 1) // 10:
            return
        size = sum(file.stat().st_size for file in path.glob("results.sqlite*"))
        memory, seconds = process.memory_info().rss, time.perf_counter() - began
        row = {"scenarios": status.scenarios, "seconds": seconds, "store_bytes": size}
        growth.append({**row, "memory_bytes": memory})

    with RunDir(path) as directory:
        settings = directory.begin(RequestedSettings(seed=arguments.seed), {})
        planner = Repeating(CampaignPlan(settings.seed, settings.drafts), arguments.repeat)
        limits = CampaignLimits(36_000.0, None, arguments.scenarios)
        possible = universe(settings.drafts)
        Campaign(
            directory, settings, limits, subject, planner, possible=possible, width=subject.width, watch=watch
        ).go()
    return growth


def measured(path: Path) -> dict[str, Any]:
    """Return bytes and seconds: of files, of a call that resumes the campaign and ends at once, of a report."""
    sizes = {"store_bytes": _bytes(path.glob("results.sqlite*")), "tables": _tables(path)}
    sizes["findings_bytes"] = _bytes((path / "findings").rglob("*"))
    sizes["start_seconds"], sizes["start_peak_bytes"] = _run("--help")
    report = [_run("report", str(path)) for _ in range(3)]
    sizes["report_seconds"], sizes["report_peak_bytes"] = sorted(report)[1]
    sizes["report_bytes"] = (path / "report.html").stat().st_size
    resume = ["fuzz", "--run", str(path), "--workers", "1", "--examples", "1", "--time", "1s"]
    sizes["resume_seconds"], sizes["resume_peak_bytes"] = _run(*resume)
    return sizes


def _bytes(files: Any) -> int:
    return sum(file.stat().st_size for file in files if file.is_file())


def _tables(path: Path) -> dict[str, int]:
    store = Store(path / "results.sqlite")
    try:
        names = ("scenarios", "bins", "findings", "minimums", "progress", "troubles")
        return {name: store.count(name) for name in names}
    finally:
        store.close()


def _run(*arguments: str) -> tuple[float, int]:
    """Return the seconds of a command, and the most memory of its process: not that of its workers."""
    command = [sys.executable, "-P", "-c", _PROGRAM, *arguments]
    began = time.perf_counter()
    done = subprocess.run(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False, env=_ENVIRONMENT
    )
    return time.perf_counter() - began, 1024 * int(done.stderr.split()[-2])


_PROGRAM = """
import pathlib, sys
from draftproof.cli.app import run
code = run(sys.argv[1:])
# Not of resource.getrusage, which remembers the process that started this one.
status = pathlib.Path("/proc/self/status").read_text()
print(next(line for line in status.splitlines() if line.startswith("VmHWM")), file=sys.stderr)
"""
_ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def rows(result: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what is shown."""

    def size(name: str) -> str:
        return f"{result[f'{name}_bytes'] / 1e6:.1f} MB"

    tables = ", ".join(f"{count} {name}" for name, count in result["tables"].items())
    return [
        ("store", f"{size('store')}: {tables}"),
        ("files of findings", size("findings")),
        ("memory of the campaign's process", f"at most {size('peak')}"),
        (
            "draftproof report",
            f"{result['report_seconds']:.1f} s, at most {size('report_peak')}; page {size('report')}",
        ),
        ("a call that resumes it", f"{result['resume_seconds']:.1f} s, at most {size('resume_peak')}"),
        ("draftproof --help", f"{result['start_seconds']:.1f} s, at most {size('start_peak')}"),
    ]


if __name__ == "__main__":
    main()
