"""Check released SGLangs on a GPU: unpack them, run a fixed list, and bring results and logs into one folder.

    python -P tests/engines_gpu.py PACKS OUT [--releases 0.5.13,0.5.11] [--only WORD] [--most 6]

PACKS is what `draftproof lab engines pack` wrote. OUT gets NAME.log and NAME.json of every check, and results.md.
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
from concurrent.futures import ThreadPoolExecutor, wait
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
"""The release whose names mistaken_sglang.py and mended_sglang.py patch."""


_STOP = frozenset({"accept.greedy", "accept.emitted", "output.lossless"})
_NORM = frozenset({"draft.ids", "draft.hidden", "draft.proposal", "draft.proposed"})
_NORM |= {"extend.hidden", "extend.kv", "extend.proposal"}
KNOWN = {"eagle": _STOP, "eagle3": _STOP, "mimo": _STOP | _NORM}
"""kind -> contracts that docs/found.md has of MISTAKEN. A hybrid may fail any: states that are lost are all of them."""


class Check(NamedTuple):
    """One check: of what kind, with how many scenarios and which settings; or `mistakes`, which are to be found.

    Of what is `mended` nothing is to be found.
    """

    name: str
    kind: str
    seed: int = 0
    examples: int = 0
    settings: tuple[str, ...] = ()
    mistakes: tuple[str, ...] = ()
    mended: bool = False


GRAPHS = (
    Check("eagle-1", "eagle", 16, 20),
    Check("hybrid-1", "hybrid", 51, 8),
    Check("hybrid-2", "hybrid", 54, 8),
    Check("hybrid-3", "hybrid", 55, 8),
    Check("hybrid-4", "hybrid", 57, 8),
    Check("hybrid-5", "hybrid", 58, 8),
    Check("mimo-1", "mimo", 43, 20),
    Check("mimo-2", "mimo", 44, 20),
    Check("eagle-2", "eagle", 17, 20),
)
"""Forty scenarios of each kind, in graphs and with overlap; a hybrid's take so long that five engines share them."""
MISTAKES = (
    Check(
        "mistakes-of-states",
        "hybrid",
        mistakes=(
            *("state-not-committed", "state-one-step-too-far", "state-of-the-row-before", "state-told-one-less"),
        ),
    ),
    Check(
        "mistakes-of-drafts",
        "eagle",
        mistakes=(
            *("draft-positions-one-ahead", "draft-hidden-of-the-row-before", "draft-slots-of-the-row-before"),
            *("draft-ids-of-the-row-before", "extend-selects-the-row-before", "extend-positions-one-ahead"),
        ),
    ),
    Check(
        "mistakes-of-verify",
        "eagle",
        mistakes=(
            *("verify-positions-one-ahead", "accepted-one-less", "accept-index-one-behind", "chunk-end-sampled"),
            *("padding-writes-over-an-entry", "verify-slots-of-the-row-before"),
        ),
    ),
)
MENDED = (
    Check("eagle-1-mended", "eagle", 16, 20, mended=True),
    Check("hybrid-1-mended", "hybrid", 51, 8, mended=True),
    Check("mimo-1-mended", "mimo", 43, 20, mended=True),
    Check("hybrid-4-mended", "hybrid", 57, 8, mended=True),
    Check("one-token-mended", "hybrid", 156, 1, mended=True),
    Check("eagle-eager-mended", "eagle", 23, 12, ("graphs=no",), mended=True),
    Check("hybrid-eager-mended", "hybrid", 52, 8, ("graphs=no",), mended=True),
    # SGLang's own flush gives memory back, which ends EAGLE-3 in graphs as it was released.
    Check("eagle3-mended", "eagle3", 41, 12, ("flush=own",), mended=True),
)
"""The same with what docs/found.md has of the release mended."""
OTHERS = (
    Check("eagle-eager", "eagle", 23, 12, ("graphs=no",)),
    Check("hybrid-eager", "hybrid", 52, 8, ("graphs=no",)),
    Check("hybrid-serial", "hybrid", 56, 8, ("overlap=no",)),
    # Strategies 76 draw prompts of one token; others may not. Eagerly the states are cleared again.
    Check("one-token", "hybrid", 156, 1),
    Check("one-token-eager", "hybrid", 156, 1, ("graphs=no",)),
    Check("eagle-radix", "eagle", 61, 12, ("radix=yes",)),
    Check("eagle3", "eagle3", 41, 12),
    Check("eagle3-eager", "eagle3", 41, 12, ("graphs=no",)),
)
CHECKS = (*GRAPHS, *OTHERS)
_INCONCLUSIVE = 125
"""The exit code of a check that had no difference, and too little of something."""
_HEAD_START = 30.0
"""So many seconds the first two checks of each release run alone: what they compile, the others need not."""


class Ended(NamedTuple):
    """How a check ended: its code, None where its time was over, what was not kept, and of it the contracts."""

    release: str
    check: Check
    code: int | None
    seconds: float
    found: str
    failed: frozenset[str] = frozenset()


def words(check: Check, release: str, checkpoints: Path, engines: Path, out: Path) -> list[str]:
    """Return the command line of a check."""
    result = str(out / f"{release}-{check.name}.json")
    if check.mistakes:
        script = str(Path(__file__).with_name("mistakes_gpu.py"))
        told = (check.kind, str(checkpoints), release, str(engines), result)
        return [sys.executable, "-P", script, *told, *check.mistakes]
    target, options, head = DRAFTS[check.kind]
    settings = (f"release={release}", f"engines={engines}", *check.settings)
    return draftproof(
        *("check", "--model", str(checkpoints / target), *options),
        *(("--draft-model", str(checkpoints / head)) if head else ()),
        *("--subject", "mended_sglang:Mended" if check.mended else "sglang", "--python", sys.executable),
        *(word for one in settings for word in ("--set", one)),
        *("--seed", str(check.seed), "--examples", str(check.examples), "--debug", "--json", result),
    )


def listed(releases: Sequence[str], only: str, most: int) -> list[tuple[str, Check]]:
    """Return the checks of every release in the order of their worth, each of at most so many scenarios."""
    checks = (one._replace(examples=min(one.examples, most)) for one in (*GRAPHS, *MISTAKES, *MENDED, *OTHERS))
    chosen = [one for one in checks if any(word in one.name for word in only.split(","))]
    return [(of, one) for one in chosen for of in releases if of == MISTAKEN or not (one.mistakes or one.mended)]


def draftproof(*given: str) -> list[str]:
    return [sys.executable, "-P", "-m", "draftproof.cli", *given]


def outcome(path: Path) -> str:
    """Return the contracts that a result says are not kept, or of every mistake the first that was not."""
    try:
        told = json.loads(path.read_text())
    except (OSError, ValueError):
        return ""
    if isinstance(told, dict):
        bad = [one for one in told["contracts"] if one["verdict"] in ("FAIL", "CRASH", "HANG")]
        return ", ".join(f"{one['verdict']} {one['name']}" for one in bad[:6])
    firsts: dict[str, str] = {}
    for one in told:
        firsts[one["mistake"]] = firsts.get(one["mistake"], "") or one["first"]
    return ", ".join(f"{name}: {first or 'nothing'}" for name, first in firsts.items())


def failed(path: Path) -> frozenset[str]:
    """Return all contracts that a result says FAIL."""
    try:
        told = json.loads(path.read_text())
    except (OSError, ValueError):
        return frozenset()
    of = told["contracts"] if isinstance(told, dict) else ()
    return frozenset(one["name"] for one in of if one["verdict"] == "FAIL")


class Run:
    """A run of the list, which ends when its seconds are over."""

    def __init__(self, packs: Path, out: Path, seconds: float, gpus: int = 1) -> None:
        self._out, self._end, self._gpus = out, time.monotonic() + seconds, gpus
        self._engines, self._checkpoints = out.parent / "engines", out.parent / "checkpoints"
        self._environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "160"}
        own = os.environ.get("PYTHONPATH", "")
        self._environment["PYTHONPATH"] = f"{OTHER}{os.pathsep}{own}" if own else str(OTHER)
        self._run("lab", "engines", "unpack", str(packs), "--to", str(self._engines))
        if not self._checkpoints.exists():
            self._run("lab", "checkpoints", "--wide", str(self._checkpoints))

    def _run(self, *given: str) -> None:
        subprocess.run(draftproof(*given), env=self._environment, check=True)

    def all_of(self, found: Sequence[tuple[str, Check]], at_once: int, first: int = 2) -> list[Ended]:
        """Run checks, the first of them before the others, on all GPUs in turn, and return how each ended."""
        with ThreadPoolExecutor(at_once) as pool:
            begun = [pool.submit(self._one, *one, place) for place, one in enumerate(found[:first])]
            wait(begun, _HEAD_START)
            begun += [pool.submit(self._one, *one, place) for place, one in enumerate(found[first:], first)]
            return [one.result() for one in begun]

    def _one(self, release: str, check: Check, place: int) -> Ended:
        started, left = time.monotonic(), self._end - time.monotonic()
        if left < 1:
            return Ended(release, check, None, 0.0, "no time was left")
        line = words(check, release, self._checkpoints, self._engines, self._out)
        device = {"CUDA_VISIBLE_DEVICES": str(place % self._gpus)} if self._gpus > 1 else {}
        environment = {**self._environment, **device}
        with (self._out / f"{release}-{check.name}.log").open("w") as log:
            ran = subprocess.Popen(line, stdout=log, stderr=log, env=environment, start_new_session=True)
            try:
                code: int | None = ran.wait(left)
            except subprocess.TimeoutExpired:
                code = None
                with suppress(ProcessLookupError):
                    os.killpg(ran.pid, signal.SIGKILL)
                ran.wait()
        seconds = time.monotonic() - started
        result = self._out / f"{release}-{check.name}.json"
        ended = Ended(release, check, code, seconds, outcome(result), failed(result))
        print(row(ended), flush=True)
        return ended


def row(ended: Ended) -> str:
    """Return a line of the table."""
    code = "no time" if ended.code is None else str(ended.code)
    settings = " ".join(ended.check.settings)
    return f"| {ended.release} | {ended.check.name} | {settings} | {code} | {ended.seconds:.0f} | {ended.found} |"


def is_bad(ended: Ended) -> bool:
    """Return whether a check is not as documented: no time, a crash, or what is not known of this release.

    Mistakes are to be found, and nothing in what is mended. What other releases fail is as it is.
    """
    check = ended.check
    if check.mistakes or check.mended or ended.code not in (0, 1, _INCONCLUSIVE):
        return ended.code != 0
    known = KNOWN.get(check.kind, ended.failed)
    return ended.code == 1 and ended.release == MISTAKEN and not (ended.failed and ended.failed <= known)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packs", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--releases", default=MISTAKEN, help="which, with commas between them")
    parser.add_argument("--only", default="", help="words, with commas: checks whose names have one of them")
    parser.add_argument("--most", type=int, default=40, help="scenarios of a check at most")
    parser.add_argument("--at-once", type=int, default=4, help="how many checks run at once")
    parser.add_argument("--gpus", type=int, default=1, help="how many GPUs they are spread over")
    parser.add_argument("--seconds", type=float, default=1500, help="after so long what runs is ended")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    run = Run(given.packs.resolve(), given.out.resolve(), given.seconds, given.gpus)
    releases = given.releases.split(",")
    ended = run.all_of(listed(releases, given.only, given.most), given.at_once, 2 * len(releases))
    head = "| release | check | settings | code | seconds | not kept |\n|---|---|---|---|---|---|\n"
    (given.out / "results.md").write_text(head + "".join(f"{row(one)}\n" for one in ended))
    return int(any(map(is_bad, ended)))


if __name__ == "__main__":
    sys.exit(main())
