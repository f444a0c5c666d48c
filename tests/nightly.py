"""Run everything, and keep the last result of each part in docs/nightly.md.

    python -m tests.nightly [PART ..]

A part is a target of make; without names all run, one after another, also behind one that fails. The page has for each
the date, the commit and the numbers of its last run, so that a night that was cut says of the rest how old it is.
"""

import argparse
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

from draftproof.harness.machine import commit

_TODAY = f"{datetime.now(UTC):%Y%m%d}"
ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/nightly.md"
PARTS = {
    "lint": (),
    "check": (),
    "test": (),
    "matrix": (f"ARGS=--seed {_TODAY} --seeds 1 --examples 60",),
    "mutation": (f"ARGS=--seed {_TODAY} --count 150",),
    "images": (),
    "notice": (f"ARGS=--seed {_TODAY}",),
    "test-slow": (),
    "test-long": (),
    "fresh": (),
    "lowest": (),
}
"""Targets of make in their order, each with its variables: faults and mutants meet scenarios of a new seed each night.

Matrix, mutation and images are what `make results` runs: they write docs/matrix.md, docs/mutation.md and the picture of
a report. A test that is slow by nature says whether these are of today's scenarios.
"""

_OF_MAKE = ("ARGS", "MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "MFLAGS")
"""Where `make` leaves its own variables for what it starts."""

NUMBERS = (
    re.compile(r"\d+ (?:passed|failed)[^=]*?(?= in \d)"),
    re.compile(r"\d+ of \d+ detected as named.*"),
    re.compile(r"^(?:PASS|FAIL|INCONCLUSIVE|SKIP)\b.*?(?=\. Again:|$)", re.MULTILINE),
    re.compile(r"\d+ of \d+ mutants are noticed"),
    re.compile(r"\d+ of \d+ noticed: median .*"),
    re.compile(r"no issues found in \d+ source files"),
    re.compile(r"\d+ of \d+ commands did what they should.*"),
)
"""What a part says of itself: of the first that its output has, the last place."""

HEAD = """# Last night

What `make nightly` measured last, part by part: all that `.ci/run` runs where a change reaches it, and what is slow by
nature (calibration of the generator, compiled and interpreted kernels, a browser, whole workflows, releases, Ray,
campaigns, every fault, mutants, a wheel with the newest and with the lowest versions of what it needs). A commit with a
+ had code that was not committed.

| part | result | numbers | minutes | date | commit | machine |
|---|---|---|---|---|---|---|
"""


def numbers(output: str) -> str:
    """Return what a part says of itself, "" if it says nothing."""
    for pattern in NUMBERS:
        if found := pattern.findall(output):
            return str(found[-1]).strip().replace("|", "/")
    return ""


def rows(page: str) -> dict[str, str]:
    """Return the row of each part that the page has."""
    return {
        match[1]: match[0] for match in re.finditer(r"^\| ([\w-]+) \| .*\|$", page, re.MULTILINE) if match[1] in PARTS
    }


def written(page: str, new: dict[str, str]) -> str:
    """Return the page with these rows in place of those of the same parts."""
    kept = rows(page) | new
    return HEAD + "".join(f"{kept[part]}\n" for part in PARTS if part in kept)


def make(part: str) -> tuple[int, str]:
    """Run a target; return its exit code and what it printed, which is shown as it comes."""
    command = ["make", part, *PARTS[part]]
    # The ARGS of `make nightly` are names of parts, and no arguments of a part.
    own = {name: value for name, value in os.environ.items() if name not in _OF_MAKE}
    lines = []
    with subprocess.Popen(
        command, cwd=ROOT, env=own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    return process.returncode, "".join(lines)


def run(parts: Iterable[str], page: Path, ran: Callable[[str], tuple[int, str]] = make) -> list[str]:
    """Run the parts, and write the page behind each; return those that failed."""
    failed = []
    machine = f"{os.cpu_count()} cores, {platform.machine()}"
    for part in parts:
        at, start = commit() or "unknown", time.monotonic()
        code, output = ran(part)
        minutes = (time.monotonic() - start) / 60
        if code:
            failed.append(part)
        cells = ("passed" if code == 0 else "FAILED", numbers(output), f"{minutes:.1f}")
        row = " | ".join((part, *cells, datetime.now(UTC).date().isoformat(), at, machine))
        text = page.read_text(encoding="utf-8") if page.exists() else ""
        page.write_text(written(text, {part: f"| {row} |"}), encoding="utf-8")
    return failed


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.nightly", description="Run everything, part by part.")
    parser.add_argument("part", nargs="*", help=f"of {', '.join(PARTS)}")
    asked = parser.parse_args().part
    if unknown := set(asked) - set(PARTS):
        parser.error(f"invalid part {min(unknown)!r}: expected one of {', '.join(PARTS)}")
    if failed := run(asked or PARTS, PAGE):
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
