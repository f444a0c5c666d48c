"""Kernel contracts, own and of packages, under compute-sanitizer (`make sanitize-gpu`).

    python -P tests/kernels/sanitize.py [--tool memcheck ..] [--wheel FILE ..] [--examples N] [--logs DIR]

Runs sanitized.py under memcheck, racecheck and initcheck, with torch's caching of memory off, so that each allocation
is one of the driver's. Reports are grouped by kernel and kind. What sanitizer_explained.toml has is explained, with the
reason; anything else fails the run. An explanation that nothing was reported for is named.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

TOOLS = ("memcheck", "racecheck", "initcheck")
HERE = Path(__file__).resolve().parent
NOT_INSTALLED = 125
_LINE = re.compile(r"^=+ ?(?P<text>.*)$")
_RACE = re.compile(r"Race reported between (?P<first>\w+) access at (?P<place>.+?)(?: \[|$)")
_OTHER_ACCESS = re.compile(r"and (?P<second>\w+) access at ")
_KIND = re.compile(
    r"(?:Error: |Warning: )?(?P<kind>(?:Invalid|Uninitialized|Unused|Misaligned|Address) .*?)(?: of size .*)?$"
)
_AT = re.compile(r"\bat (?:0x[0-9a-f]+ in )?(?P<place>.+)$")
# "kernel+0x1f0 in file.py:73", "kernel(float*)+0x1f0", and before 2023 "file.py:73:kernel".
_KERNELS = (
    re.compile(r"^(?P<kernel>[A-Za-z_]\w*)(?:\(.*?\))?\+0x"),
    re.compile(r":(?P<kernel>[A-Za-z_]\w*)(?:\(.*\))?$"),
)


class Report(NamedTuple):
    """What a tool says of a kernel."""

    tool: str
    kernel: str
    kind: str


def reports(tool: str, text: str) -> Counter[Report]:
    """Return the reports in what a tool printed, and how often each is there."""
    found: Counter[Report] = Counter()
    race, kind = "", ""
    kernel = "?"
    for line in text.splitlines():
        matched = _LINE.match(line)
        said = matched["text"].strip() if matched else ""
        if began := _RACE.search(said):
            race, kernel = began["first"], _kernel(began["place"])
        elif race and (other := _OTHER_ACCESS.search(said)):
            found[Report(tool, kernel, f"race of {race} and {other['second']}")] += 1
        elif began := _KIND.match(said):
            if kind:
                found[Report(tool, "?", kind)] += 1
            kind, race = began["kind"], ""
        elif kind and (place := _AT.search(said)):
            found[Report(tool, _kernel(place["place"]), kind)] += 1
            kind = ""
    if kind:
        found[Report(tool, "?", kind)] += 1
    return found


def _kernel(place: str) -> str:
    return next((match["kernel"] for one in _KERNELS if (match := one.search(place.strip()))), "?")


def explained(path: Path = HERE / "sanitizer_explained.toml") -> dict[Report, str]:
    """Return the reason of each report that is explained."""
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("report", [])
    return {Report(one["tool"], one["kernel"], one["kind"]): one["reason"] for one in entries}


def judged(seen: Mapping[Report, int], reasons: Mapping[Report, str]) -> tuple[list[Report], list[Report]]:
    """Return the reports that nothing explains, and the explanations that nothing was reported for."""
    return [one for one in seen if one not in reasons], [one for one in reasons if one not in seen]


def main() -> int:
    """Run the tools; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tool", choices=TOOLS, action="append")
    parser.add_argument("--wheel", type=Path, action="append", default=[])
    parser.add_argument("--examples", type=int, default=3)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--timeout", type=float, default=1800.0, help="seconds for each tool")
    parser.add_argument("--logs", type=Path, default=Path(".draftproof") / "sanitizer")
    given = parser.parse_args()
    sanitizer = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    if sanitizer is None:
        print("compute-sanitizer is not installed here; it comes with the CUDA toolkit")
        return NOT_INSTALLED
    given.logs.mkdir(parents=True, exist_ok=True)
    seen, failed = Counter[Report](), False
    for tool in given.tool or TOOLS:
        ended, log = _run(sanitizer, tool, given)
        of_tool = reports(tool, log.read_text(encoding="utf-8", errors="replace"))
        print(f"{tool}: contracts ended with {ended}, {sum(of_tool.values())} reports; {log}")
        failed |= ended != "0"
        seen += of_tool
    unexplained, idle = judged(seen, reasons := explained())
    for one, count in sorted(seen.items()):
        why = reasons.get(one, "NOT EXPLAINED")
        print(f"{one.tool}: {one.kernel}: {one.kind}, {count} times: {why}")
    for one in idle:
        print(f"explained, and not reported: {one.tool}: {one.kernel}: {one.kind}")
    return 1 if failed or unexplained else 0


def _run(sanitizer: str, tool: str, given: argparse.Namespace) -> tuple[str, Path]:
    log = given.logs / f"{tool}.log"
    own = [sys.executable, "-P", str(HERE / "sanitized.py"), "--examples", str(given.examples)]
    own += [word for file in given.wheel for word in ("--wheel", str(file))]
    own += [word for name in given.only for word in ("--only", name)]
    options = ["--tool", tool, "--print-limit", "100000", "--report-api-errors", "no", "--target-processes", "all"]
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    environment.pop("TRITON_INTERPRET", None)
    with log.open("wb") as out:
        try:
            command = [sanitizer, *options, *own]
            ended = subprocess.run(
                command, stdout=out, stderr=subprocess.STDOUT, env=environment, timeout=given.timeout
            )
        except subprocess.TimeoutExpired:
            return f"no end within {given.timeout:g} s", log
    return str(ended.returncode), log


if __name__ == "__main__":
    sys.exit(main())
