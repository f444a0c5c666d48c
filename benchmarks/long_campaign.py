"""How large a long campaign is: its store, its corpus, its report, and the memory of the process that resumes it.

Scenarios are not run so often: a few are, in a worker, and their answers are given again and again through the store's
own API, each with bins of other scenarios mixed in, so that the corpus grows as guided campaigns make it grow. Every
`--fail-every`th scenario fails with one of `--findings` identities, each with a detail of a traceback's size.
"""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import bench
from msgspec.structs import replace
from rich.console import Console

from draftproof.fuzz.campaign.answers import EVERY
from draftproof.fuzz.campaign.corpus import Corpus, name_of
from draftproof.fuzz.campaign.finding_rows import finding_of, sign_of
from draftproof.fuzz.campaign.rundir import RunDir
from draftproof.fuzz.campaign.schema import QueuedScenario
from draftproof.fuzz.campaign.settings import Asked
from draftproof.fuzz.campaign.store import Store
from draftproof.harness.workers.messages import Answer, Order, SubjectSpec
from draftproof.harness.workers.pool import Pool
from draftproof.properties.coverage import universe
from draftproof.properties.strategies.scenarios import generate
from draftproof.properties.values.drafts import ALGORITHMS, algorithm
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.verdict import Outcome

BATCH, MINIMISE_EVERY, RARE = 24, 4, 0.0005
DETAIL = "Traceback of a subject, a line of it\n" * 200
COLUMNS: dict[str, Callable[[dict[str, Any]], object]] = {
    "what": lambda row: row["what"],
    "measured": lambda row: row["measured"],
}


def main() -> None:
    """Make a campaign, measure it, print a table, write JSON."""
    parser = bench.parser(__doc__, "seed", *bench.KEPT)
    parser.add_argument("--scenarios", type=int, default=100_000)
    parser.add_argument("--templates", type=int, default=24, help="scenarios that are really run")
    parser.add_argument("--fail-every", type=int, default=50)
    parser.add_argument("--findings", type=int, default=60, help="identities of what fails")
    parser.add_argument("--run", type=Path, help="keep the campaign in this directory")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.run or Path(folder) / "run"
        console = Console(stderr=True)
        with console.status("scenarios are run"):
            templates = answered(arguments.seed, arguments.templates, Path(folder) / "workers")
        began = time.perf_counter()
        with console.status("a campaign is made"):
            made = campaign(
                path, templates, arguments.scenarios, arguments.fail_every, arguments.findings, arguments.seed
            )
        result = {
            "scenarios": arguments.scenarios,
            "making_seconds": time.perf_counter() - began,
            **made,
            **measured(path),
        }
    bench.show(f"a campaign of {arguments.scenarios} scenarios", rows(result), COLUMNS, left=("what",))
    bench.keep(arguments, result, {name: result[f"{name}_seconds"] for name in ("resume", "report")})


def answered(seed: int, count: int, folder: Path) -> list[tuple[Scenario, Answer]]:
    """Return scenarios with their answers."""
    scenarios = generate(seed, count)
    with Pool(SubjectSpec(), 1, folder) as pool:
        answers = pool.run([Order(number=place, scenario=one, digest=True) for place, one in enumerate(scenarios)])
    return list(zip(scenarios, answers, strict=True))


def campaign(
    path: Path, templates: Sequence[tuple[Scenario, Answer]], count: int, every: int, findings: int, seed: int
) -> dict[str, Any]:
    """Make a run directory with so many scenarios that are done."""
    draw, bins, most = random.Random(seed), universe(ALGORITHMS), 0
    with RunDir(path) as directory:
        directory.begin(Asked(seed=seed), {})
        store = Store(directory.database)
        corpus = Corpus(directory.corpus, store)
        store.keep_facts(started=0.0, block=-1, seconds=0.0, verdict="", workers=1, versions="")
        for begin in range(0, count, BATCH):
            batch = [
                (number, *templates[number % len(templates)]) for number in range(begin, min(begin + BATCH, count))
            ]
            store.queue(begin // BATCH, [_queued(number, scenario) for number, scenario, _ in batch])
            for number, scenario, answer in batch:
                extra = [name for name in bins if draw.random() < RARE]
                _answer(store, number, scenario, _varied(answer, number, extra, every, findings))
            store.settle(range(begin, begin + len(batch)))
            if not begin // BATCH % MINIMISE_EVERY:
                corpus.minimise()
                corpus.sync()
            most = max(most, store.count("entries"))
            store.add("progress", 0.4 * (begin + BATCH), begin, len(store.bins()), 0, 0, 2.5, 1.0)
        corpus.sync()
        store.close()
    return {"most_entries": most}


def _queued(number: int, scenario: Scenario) -> QueuedScenario:
    return QueuedScenario(number, scenario, name_of(scenario), f"near {name_of(scenario)}", algorithm(scenario.draft))


def _varied(answer: Answer, number: int, bins: Sequence[str], every: int, findings: int) -> Answer:
    varied = replace(answer, number=number, bins=tuple(sorted({*answer.bins, *bins})))
    if not findings or number % every:
        return varied
    kind = number // every % findings
    return replace(varied, outcome=Outcome.CRASH, error=f"Error{kind}", message=f"kind {kind}", detail=DETAIL)


def _answer(store: Store, number: int, scenario: Scenario, answer: Answer) -> None:
    twice = not number % EVERY
    finding = finding_of(answer, scenario, number, 0.4 * number)
    store.done(answer, 0.4 * number, sign=sign_of(answer) if twice else "", finding=finding)
    if twice:
        store.compared(number, None)


def measured(path: Path) -> dict[str, Any]:
    """Return bytes and seconds: of files, of a call that resumes the campaign and ends at once, of a report."""
    files = list((path / "corpus").glob("*.json"))
    base = {"store_bytes": (path / "results.sqlite").stat().st_size, "tables": _tables(path)}
    base |= {"corpus_files": len(files), "corpus_bytes": sum(file.stat().st_size for file in files)}
    base["start_seconds"], base["start_peak_bytes"] = _run("--help")
    resume = ["fuzz", "--run", str(path), "--workers", "1", "--examples", "1", "--time", "1s"]
    base["resume_seconds"], base["resume_peak_bytes"] = _run(*resume)
    base["report_seconds"], base["report_peak_bytes"] = _run("report", str(path))
    return {**base, "report_bytes": (path / "report.html").stat().st_size}


def _tables(path: Path) -> dict[str, int]:
    store = Store(path / "results.sqlite")
    try:
        names = ("scenarios", "bins", "entries", "findings", "minimums", "progress", "troubles")
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
    return time.perf_counter() - began, 1024 * int(done.stderr.split()[-1])


_PROGRAM = """
import resource, sys
from draftproof.cli.app import run
code = run(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
"""
_ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def rows(result: dict[str, Any]) -> list[dict[str, str]]:
    """Return what is shown."""
    size = lambda name: f"{result[name] / 1e6:.1f} MB"  # noqa: E731
    tables = ", ".join(f"{count} {name}" for name, count in result["tables"].items())
    said = {
        "store": f"{size('store_bytes')}: {tables}",
        "corpus": f"{result['corpus_files']} files, {size('corpus_bytes')} (at most {result['most_entries']} entries)",
        "resume": f"{result['resume_seconds']:.1f} s, peak {size('resume_peak_bytes')}",
        "report": f"{result['report_seconds']:.1f} s, peak {size('report_peak_bytes')}, {size('report_bytes')}",
        "a command that does nothing": f"{result['start_seconds']:.1f} s, peak {size('start_peak_bytes')}",
        "peak of this process": f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:.0f} MB",
    }
    return [{"what": what, "measured": text} for what, text in said.items()]


if __name__ == "__main__":
    main()
