"""Check released SGLangs on a GPU: unpack them, run a fixed list, and bring results and logs into one folder.

    python -P tests/engines_gpu.py PACKS OUT [--releases 0.5.13,0.5.11] [--only WORD] [--most 6]

PACKS is what `draftproof lab engines pack` wrote. OUT gets NAME.log and NAME.json of every check, and results.md. The
first two checks of a release, "warm", run before the others: kernels are compiled for the first ones.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

OTHER = Path(__file__).resolve().parent / "subjects" / "other"
DRAFTS = {
    "eagle": ("llama", ("--draft", "eagle"), "eagle-llama"),
    "eagle3": ("qwen3", ("--draft", "eagle3"), "eagle3-qwen3"),
    "mimo": ("mimo", ("--draft", "eagle", "--mtp"), ""),
    "hybrid": ("qwen3-next", ("--draft", "eagle", "--mtp"), ""),
}
"""kind -> its target among the wide checkpoints, options, and the head"""
MISTAKEN = "0.5.13"
"""The release whose names mistaken_sglang.py patches."""


class Check(NamedTuple):
    """One check: of what kind, with how many scenarios and which settings; `mistake` is one that must be found."""

    name: str
    kind: str
    seed: int
    examples: int
    settings: tuple[str, ...] = ()
    mistake: str = ""


CHECKS = (
    Check("warm-eagle", "eagle", 1, 2),
    Check("warm-hybrid", "hybrid", 2, 2),
    Check("hybrid-1", "hybrid", 51, 20),
    Check("hybrid-2", "hybrid", 55, 20),
    Check("hybrid-eager", "hybrid", 52, 12, ("graphs=no",)),
    Check("hybrid-serial", "hybrid", 53, 12, ("overlap=no",)),
    Check("eagle-1", "eagle", 16, 20),
    Check("eagle-2", "eagle", 17, 20),
    Check("eagle-radix", "eagle", 61, 12, ("radix=yes",)),
    Check("eagle-eager", "eagle", 23, 12, ("graphs=no",)),
    Check("mimo", "mimo", 42, 12),
    Check("eagle3-eager", "eagle3", 41, 12, ("graphs=no",)),
)
_EAGLE = (
    *("draft-positions-one-ahead", "draft-hidden-of-the-row-before", "draft-slots-of-the-row-before"),
    *("draft-ids-of-the-row-before", "verify-positions-one-ahead", "verify-slots-of-the-row-before"),
    *("accepted-one-less", "accept-index-one-behind", "extend-selects-the-row-before", "chunk-end-sampled"),
    *("extend-positions-one-ahead", "padding-writes-over-an-entry"),
)
_HYBRID = ("state-not-committed", "state-one-step-too-far", "state-of-the-row-before", "state-told-one-less")
MISTAKES = (
    *(Check(f"mistake-{name}", "eagle", 22, 6, (), name) for name in _EAGLE),
    *(Check(f"mistake-{name}", "hybrid", 54, 6, (), name) for name in _HYBRID),
)


class Ended(NamedTuple):
    """How a check ended: its code, None where its time was over, and what failed first."""

    release: str
    check: Check
    code: int | None
    seconds: float
    first: str


def words(check: Check, release: str, checkpoints: Path, engines: Path, out: Path) -> list[str]:
    """Return the command line of a check, without the program."""
    target, options, head = DRAFTS[check.kind]
    subject = "mistaken_sglang:Mistaken" if check.mistake else "sglang"
    settings = [f"release={release}", f"engines={engines}", *check.settings]
    settings += [f"mistake={check.mistake}"] if check.mistake else []
    return [
        *("check", "--model", str(checkpoints / target), *options),
        *(("--draft-model", str(checkpoints / head)) if head else ()),
        *("--subject", subject, "--python", sys.executable, *(word for one in settings for word in ("--set", one))),
        *("--seed", str(check.seed), "--examples", str(check.examples), "--debug"),
        *("--json", str(out / f"{release}-{check.name}.json")),
    ]


def listed(releases: Sequence[str], only: str, most: int) -> list[tuple[str, Check]]:
    """Return the checks of every release, those of mistakes last, each of at most so many scenarios."""
    found = [(release, check) for release in releases for check in CHECKS]
    found += [(release, check) for release in releases if release == MISTAKEN for check in MISTAKES]
    found = [(release, check) for release, check in found if any(word in check.name for word in only.split(","))]
    return [(release, check._replace(examples=min(check.examples, most))) for release, check in found]


def draftproof(*given: str) -> list[str]:
    return [sys.executable, "-P", "-m", "draftproof.cli", *given]


def first_failure(path: Path) -> str:
    """Return the first contract that a result says is not kept, and what was found."""
    try:
        contracts = json.loads(path.read_text())["contracts"]
    except (OSError, ValueError, KeyError):
        return ""
    bad = [one for one in contracts if one["verdict"] in ("FAIL", "CRASH", "HANG")]
    return ", ".join(f"{one['verdict']} {one['name']}" for one in bad[:6])


class Run:
    """A run of the list, which ends when its seconds are over."""

    def __init__(self, packs: Path, out: Path, seconds: float) -> None:
        self._out, self._end = out, time.monotonic() + seconds
        self._engines, self._checkpoints = out.parent / "engines", out.parent / "checkpoints"
        self._environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "160"}
        own = os.environ.get("PYTHONPATH", "")
        self._environment["PYTHONPATH"] = f"{OTHER}{os.pathsep}{own}" if own else str(OTHER)
        for given in (
            ("lab", "engines", "unpack", str(packs), "--to", str(self._engines)),
            ("lab", "checkpoints", "--wide", str(self._checkpoints)),
        ):
            subprocess.run(draftproof(*given), env=self._environment, check=True)

    def all_of(self, found: Sequence[tuple[str, Check]], at_once: int) -> list[Ended]:
        """Run checks, those that warm up before the others, and return how each ended."""
        first = [(release, check) for release, check in found if check.name.startswith("warm")]
        with ThreadPoolExecutor(at_once) as pool:
            ended = list(pool.map(self._one, first))
            return ended + list(pool.map(self._one, [one for one in found if one not in first]))

    def _one(self, found: tuple[str, Check]) -> Ended:
        release, check = found
        started, left = time.monotonic(), self._end - time.monotonic()
        if left < 1:
            return Ended(release, check, None, 0.0, "no time was left")
        line = draftproof(*words(check, release, self._checkpoints, self._engines, self._out))
        with (self._out / f"{release}-{check.name}.log").open("w") as log:
            ran = subprocess.Popen(line, stdout=log, stderr=log, env=self._environment, start_new_session=True)
            try:
                code: int | None = ran.wait(left)
            except subprocess.TimeoutExpired:
                code = None
                with suppress(ProcessLookupError):
                    os.killpg(ran.pid, signal.SIGKILL)
                ran.wait()
        seconds = time.monotonic() - started
        ended = Ended(release, check, code, seconds, first_failure(self._out / f"{release}-{check.name}.json"))
        print(row(ended), flush=True)
        return ended


def row(ended: Ended) -> str:
    """Return a line of the table."""
    code = "no time" if ended.code is None else str(ended.code)
    settings = " ".join(ended.check.settings)
    return f"| {ended.release} | {ended.check.name} | {settings} | {code} | {ended.seconds:.0f} | {ended.first} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packs", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--releases", default=MISTAKEN, help="which, with commas between them")
    parser.add_argument("--only", default="", help="words, with commas: checks whose names have one of them")
    parser.add_argument("--most", type=int, default=40, help="scenarios of a check at most")
    parser.add_argument("--at-once", type=int, default=4, help="how many checks run at once")
    parser.add_argument("--seconds", type=float, default=1500, help="after so long what runs is ended")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    run = Run(given.packs.resolve(), given.out.resolve(), given.seconds)
    ended = run.all_of(listed(given.releases.split(","), given.only, given.most), given.at_once)
    head = "| release | check | settings | code | seconds | not kept |\n|---|---|---|---|---|---|\n"
    (given.out / "results.md").write_text(head + "".join(f"{row(one)}\n" for one in ended))
    # A mistake must be found, and the released engine is as it is: nothing but time makes this fail.
    return int(any(one.code is None for one in ended))


if __name__ == "__main__":
    sys.exit(main())
