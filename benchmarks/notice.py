"""How soon bugs are noticed: known ones, and others that are kept apart from whoever works on the strategies."""

from __future__ import annotations

import math
import statistics
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from draftproof.faults.catalogue import SUFFIX, FaultFile, catalogue, read_fault
from draftproof.faults.matrix import NOTICED
from draftproof.faults.run import run_faults
from draftproof.properties.kernels.table import KERNEL_PREFIX
from draftproof.properties.lib.errors import DraftproofError
from draftproof.properties.strategies.version import STRATEGIES_VERSION
from draftproof.properties.values.verdict import Outcome


def notice(given: Namespace) -> Iterator[dict[str, Any]]:
    """Measure how many scenarios, and seconds of running and judging, there are until a bug is noticed.

    The bugs are every `--every`-th known one by name, of those that scenarios of probes meet, and all in each folder of
    `--apart`; each meets up to `--scenarios` of `--repeats` seeds from `--seed` on. One that a seed does not notice
    counts as later than any other, so that a median or a 90th percentile is left out where it falls on one.
    Raises DraftproofError for a folder without faults or of a name that another one has, and for a fault that is no
    longer a mistake.
    """
    sets = [("known", known(given.every)), *((folder.name, kept_apart(folder)) for folder in given.apart or ())]
    if len(dict(sets)) < len(sets):
        raise DraftproofError(f"invalid --apart: expected names that differ from each other and from {sets[0][0]!r}")
    seeds = range(given.seed, given.seed + given.repeats)
    for name, files in sets:
        report = run_faults(files, seeds, given.scenarios, parallel=given.workers)
        for one in report.faults:
            if one.outcome not in NOTICED and one.outcome != "survived":
                raise DraftproofError(f"invalid fault {one.id}: expected a mistake, it is {one.outcome}: {one.detail}")
            if one.clean_twin is not Outcome.PASS:
                raise DraftproofError(f"beside {one.id} the engine as it is ends in {one.clean_twin}: expected PASS")
        counts = [number or math.inf for one in report.faults for number in one.examples_to_detect]
        seconds = [number or math.inf for one in report.faults for number in one.seconds_to_detect]
        row = {"set": name, "faults": len(files), "seeds": len(seeds), "noticed": sum(map(math.isfinite, counts))}
        measured = {
            "median": statistics.median(counts),
            "p90": percentile(counts, 0.9),
            "median_s": statistics.median(seconds),
            "p90_s": percentile(seconds, 0.9),
        }
        row |= {column: value for column, value in measured.items() if math.isfinite(value)}
        middle, late, soon_s, late_s = (_number(value) for value in measured.values())
        told = f"{row['noticed']} of {len(counts)} noticed: median {middle} scenarios, 90th percentile {late}"
        yield {**row, "strategies": STRATEGIES_VERSION, "summary": f"{told}; {soon_s} and {late_s} s"}


def _number(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else "never"


def known(every: int) -> list[FaultFile]:
    """Return every so many-th known bug that scenarios of probes meet."""
    files = [
        file
        for _, file in sorted(catalogue().items())
        if not file.fault.model and file.patches != "triton" and not file.fault.contract.startswith(KERNEL_PREFIX)
    ]
    return files[::every]


def kept_apart(folder: Path) -> list[FaultFile]:
    """Return the faults in a folder. Raises DraftproofError if there are none, or one cannot be read."""
    files = [read_fault(path) for path in sorted(folder.glob(f"*{SUFFIX}"))]
    if not files:
        raise DraftproofError(f"invalid --apart {folder}: expected a folder with files *{SUFFIX}")
    return files


def percentile(values: Sequence[float], share: float) -> float:
    """Return the least value that at least this share of all does not exceed."""
    return sorted(values)[math.ceil(share * len(values)) - 1]
