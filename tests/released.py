"""Keep what checks of released engines came to, and make docs/released.md of it.

    python -m tests.released keep REPORT.json --engine NAME --draft NAME --command WORDS [--found [PART=]ANCHOR ..]
    python -m tests.released keep REPORT.json --engine NAME --draft NAME --tracer RELEASE --command WORDS [--found ..]
    python -m tests.released page

REPORT.json is what `draftproof check --json`, `draftproof tracer run --json` (with --tracer) or `draftproof lab
releases --json` wrote, on the day on which it is kept.
A result takes the place of an older one of the same engine, release, part and target. Nothing else makes a cell.
A report of a tracer must be of that engine, and its checkpoint's draft that one; one with a fault is none of a release.
What another machine ran is kept with --machine and --commit, which say where, and with which Draftproof.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec

from draftproof.fuzz.releases.table import Held, ReleaseTable
from draftproof.harness.check import CheckReport
from draftproof.harness.machine import commit
from draftproof.properties.formats.case import decode
from draftproof.properties.lib.base import Value
from draftproof.properties.values.verdict import Outcome, worst
from draftproof.report.markdown import table
from draftproof.tracer.runs import TracerReport

ROOT = Path(__file__).resolve().parent.parent
PAGE, KEPT = ROOT / "docs/released.md", ROOT / "docs/released"
DRAFTS = ("eagle", "eagle3", "mtp", "dflash", "ngram", "standalone")
ENGINES = {
    "transformers": ("mtp", "dflash", "ngram", "standalone"),
    "vllm-cpu": ("eagle", "eagle3", "mtp", "ngram", "standalone"),
    "sglang": ("eagle", "eagle3", "mtp"),
}
"""Engines that are run, with the drafts that their adapters drive as a whole; functions of SGLang run by themselves."""
TRACED = {
    "llama.cpp": ("eagle3", "mtp", "standalone"),
    "mlx-lm": ("standalone",),
    "openvino-genai": ("standalone",),
    "transformers": ("standalone",),
}
"""Engines that a tracer checkpoint is run in, with the drafts that they have of those that tracers have."""
SERVERS = {"llama.cpp": "llama"}
"""Those of them that are servers, with the kind that a report of one has behind its address; others are subjects."""
NOT_RUN = "not run"
_FAILED = (Outcome.FAIL, Outcome.CRASH, Outcome.HANG, Outcome.ERROR)

HEAD = """# Results of releases

Which release of an engine passed or failed what, by a run that was kept: `python -m tests.released` makes this page of
the files in `docs/released/`, and nothing else makes a cell. A FAIL leads to its cause in [found](found.md); *not run*
says nothing of an engine. What was seen before results were kept is in the pages of [vLLM](vllm.md),
[SGLang](sglang.md) and [transformers](transformers.md).

- **PASS, 24**: of so many scenarios no contract failed. No more than that: a PASS is evidence.
- **FAIL**, **CRASH**: a contract does not hold of a scenario.
- **never reached**: it ran, and too little of the draft happened to say anything.
- **not there**: this release, or its adapter, has no such draft or function.

Targets in `tiny` are those of `draftproof lab checkpoints tiny --mtp-layers 2`, in `wide` of `draftproof lab
checkpoints --wide wide`: tiny models with random weights.
"""
TRACERS = """## Tracers

A [tracer checkpoint](tracer.md) in each engine, from outside: its tokens, and the accepted drafts of requests that tell
them. **PASS, 60**: so many requests were right. *not there*: the engine, or the tracer, has no such draft.
"""


class Released(Value, frozen=True, kw_only=True):
    """What one run said of one part of one release: a draft of an engine, or a function of a package.

    Of a tracer `scenarios` and `passed` are requests, and `reason` says what was compared. Else `passed` contracts were
    judged without a failure, `failed` are those with one, `unreached` those that lacked something to judge. `found` are
    anchors of docs/found.md. `command` makes it again.
    """

    engine: str
    release: str
    part: str
    target: str
    verdict: Outcome
    scenarios: int
    passed: int
    failed: tuple[str, ...] = ()
    unreached: tuple[str, ...] = ()
    reason: str = ""
    found: tuple[str, ...] = ()
    date: str
    machine: str
    commit: str
    command: str
    by: Literal["check", "tracer"] = "check"

    @property
    def key(self) -> tuple[str, ...]:
        """Return what it is a result of."""
        return self.engine, self.release, self.part, self.target, self.by


class ReleasedFile(Value, frozen=True, kw_only=True):
    """The results of one engine."""

    results: tuple[Released, ...]


def of_check(report: CheckReport, now: dict[str, str], engine: str, draft: str, target: str) -> list[Released]:
    """Return the result of a check of one draft; the release is what its subject said. Raises ValueError."""
    package = next((name for name in (engine, engine.removesuffix("-cpu")) if name in report.versions), None)
    if package is None:
        raise ValueError(f"invalid report: expected the version of {engine}, got those of {', '.join(report.versions)}")
    by = {verdict: [one.name for one in report.contracts if one.verdict is verdict] for verdict in Outcome}
    result = Released(
        engine=engine,
        release=report.versions[package],
        part=draft,
        target=target,
        verdict=report.verdict,
        scenarios=report.examples,
        passed=len(by[Outcome.PASS]),
        failed=tuple(name for verdict in _FAILED for name in by[verdict]),
        unreached=tuple(by[Outcome.INCONCLUSIVE]),
        **now,
    )
    return [result]


def of_tracer(
    report: TracerReport, now: dict[str, str], engine: str, release: str, draft: str, target: str
) -> list[Released]:
    """Return the result of a run of a tracer checkpoint with one draft. Raises ValueError for a run of something else.

    Reports of an older Draftproof do not say of what they are, and are refused.
    """
    endpoint = rf"https?://\S+ \({SERVERS[engine]}\)" if engine in SERVERS else re.escape(engine)
    kind = f"a server that is like {SERVERS[engine]}" if engine in SERVERS else f"the subject {engine}"
    drafts = TRACED.get(engine, ())
    target = target or report.architecture
    for name, value, is_right, expected in (
        ("endpoint", report.endpoint, re.fullmatch(endpoint, report.endpoint), f"{kind}, as --engine {engine} is"),
        ("fault", report.fault, not report.fault, "none, as it is no result of a release"),
        ("verdict", report.verdict, report.verdict in ("PASS", "FAIL"), "PASS or FAIL"),
        ("draft", report.draft, report.draft == draft, f"{draft}, as --draft says"),
        ("draft", draft, draft in drafts, f"one of {engine} in the table of tracers, {' or '.join(drafts) or 'none'}"),
        ("architecture", report.architecture, _plain(report.architecture) == _plain(target), f"{target} of --target"),
    ):
        if not is_right:
            raise ValueError(f"invalid {name} {str(value)!r} of the report: expected {expected}")
    told = f"{report.tokens} tokens, and the accepted drafts of {report.compared} requests"
    result = Released(
        engine=engine,
        release=release,
        part=draft,
        target=target,
        verdict=report.verdict,
        scenarios=report.requests,
        passed=report.requests - report.wrong,
        reason=told if report.compared else f"{report.tokens} tokens",
        by="tracer",
        **now,
    )
    return [result]


def _plain(architecture: str) -> str:
    """Return the name of an architecture without what is written in several ways, as Qwen3.5 and qwen3.5."""
    return re.sub(r"[^a-z0-9]", "", architecture.lower())


def of_table(report: ReleaseTable, now: dict[str, str]) -> list[Released]:
    """Return a result for each release and part of a table."""
    found = []
    for row in report.releases:
        parts: dict[str, list[Held]] = {}
        for one in row.contracts:
            parts.setdefault(one.part, []).append(one)
        for part, held in parts.items():
            judged = [one.verdict for one in held if one.verdict not in (Outcome.SKIP, Outcome.ABSENT)]
            failed = tuple(one.name for one in held if one.verdict in _FAILED)
            found.append(
                Released(
                    engine=report.package,
                    release=row.version,
                    part=part,
                    target="",
                    verdict=worst(judged) if judged else Outcome.ABSENT,
                    scenarios=max(one.scenarios for one in held),
                    passed=judged.count(Outcome.PASS),
                    failed=failed,
                    unreached=tuple(one.name for one in held if one.verdict is Outcome.INCONCLUSIVE),
                    reason="" if failed else " ".join(held[0].reason.split())[:160],
                    **now,
                )
            )
    return found


def explained(result: Released, found: Sequence[str]) -> Released:
    """Return a result that failed with the anchors that are of it; one that did not has none."""
    of = [anchor for part, _, anchor in (one.rpartition("=") for one in found) if part in ("", result.part)]
    return msgspec.structs.replace(result, found=tuple(of)) if result.verdict in _FAILED else result


def merged(old: Iterable[Released], new: Iterable[Released]) -> tuple[Released, ...]:
    """Return all results, the new in place of the old ones of the same."""
    both = {one.key: one for one in old} | {one.key: one for one in new}
    return tuple(both.values())


def kept() -> dict[str, tuple[Released, ...]]:
    """Return the results by engine, as the files have them."""
    return {path.stem: decode(path.read_bytes(), ReleasedFile, name=str(path)).results for path in KEPT.glob("*.json")}


def lines(results: Iterable[Released]) -> str:
    """Return a file of results as JSON, with a line for each, so that a change of one is a line."""
    told = ",\n".join(msgspec.json.encode(one).decode() for one in results)
    return f'{{"results": [\n{told}\n]}}\n'


def page(results: dict[str, tuple[Released, ...]]) -> str:
    """Return the page."""
    every = [one for of_engine in results.values() for one in of_engine]
    traced = [one for one in every if one.by == "tracer"]
    drafts = [one for one in every if one.part in DRAFTS and one.by == "check"]
    parts = [one for one in every if one.part not in DRAFTS]
    text = [HEAD, "## Drafts of engines", "", _drafts(ENGINES, drafts), "", *_rows("contracts", drafts)]
    if traced:
        text += ["", TRACERS, _drafts(TRACED, traced), "", *_rows("requests", traced)]
    if parts:
        text += ["", "## Functions of SGLang", "", *_functions(parts)]
    return "\n".join(text) + "\n"


def _rows(what: str, results: Sequence[Released]) -> list[str]:
    """Return the lines of a table with a row for each result."""
    head = f"| engine, release | draft, target | {what} | date, machine, kept at commit | again |"
    ordered = sorted(results, key=lambda one: (one.engine, _order(one.release), one.part))
    return [head, "|---|---|---|---|---|", *map(_row, ordered)]


def _drafts(engines: Mapping[str, Sequence[str]], results: Sequence[Released]) -> str:
    """Return engines with their releases by drafts."""
    rows = []
    for engine, has in engines.items():
        ours = [one for one in results if one.engine == engine]
        for release in sorted({one.release for one in ours}, key=_order) if has else ():
            cells = (_cell([one for one in ours if (one.release, one.part) == (release, draft)]) for draft in DRAFTS)
            told = (cell if draft in has else "not there" for draft, cell in zip(DRAFTS, cells, strict=True))
            rows.append((engine, release, *told))
    return table(("engine", "release", *DRAFTS), rows)


def _functions(results: Sequence[Released]) -> list[str]:
    """Return functions by releases, how they were run, and what failed."""
    releases = sorted({one.release for one in results}, key=_order)
    rows = []
    for part in dict.fromkeys(one.part for one in results):
        of_part = [one for one in results if one.part == part]
        rows.append((part, *(_cell([one for one in of_part if one.release == release]) for release in releases)))
    ran = dict.fromkeys((f"{one.date}, {one.machine}, {one.commit}", f"`{one.command}`") for one in results)
    return [table(("function", *releases), rows), "", table(("date, machine, kept at commit", "again"), ran)]


def _cell(results: Sequence[Released]) -> str:
    """Return what results of one place come to: the worst, with a link to its cause."""
    if not results:
        return NOT_RUN
    verdict = worst([one.verdict for one in results])
    if verdict in _FAILED:
        anchors = dict.fromkeys(anchor for one in results for anchor in one.found)
        return ", ".join(f"[{verdict}](found.md#{anchor})" for anchor in anchors) or f"{verdict} (open)"
    if verdict is Outcome.PASS:
        return f"PASS, {sum(one.scenarios for one in results)}"
    return "not there" if all(one.verdict is Outcome.ABSENT for one in results) else "never reached"


def _row(one: Released) -> str:
    told = [f"{one.passed} passed" if one.by == "check" else f"{one.passed} of {one.scenarios} right; {one.reason}"]
    told += [f"failed: {', '.join(f'`{name}`' for name in one.failed)}"] if one.failed else []
    told += [f"never reached: {', '.join(f'`{name}`' for name in one.unreached)}"] if one.unreached else []
    cells = (f"{one.engine} {one.release}", f"{one.part}, {one.target}", "; ".join(told))
    made = f"{one.date}, {one.machine}, {one.commit}"
    return f"| {' | '.join((*cells, made, f'`{one.command}`'))} |"


def _order(release: str) -> tuple[tuple[int, str], ...]:
    """Return a key by which releases are in order."""
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in release.split("."))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.released", description="Results of releases, and their page."
    )
    does = parser.add_subparsers(dest="does", required=True)
    keep = does.add_parser("keep", help="keep what a run of today came to")
    keep.add_argument("report", type=Path, help="what --json wrote")
    keep.add_argument("--engine", choices=dict.fromkeys((*ENGINES, *TRACED)), required=True)
    keep.add_argument("--draft", choices=DRAFTS, help="of a check or a tracer: its draft")
    keep.add_argument("--target", default="", help="of a check or a tracer: the architecture of the checkpoint")
    keep.add_argument("--tracer", metavar="RELEASE", help="of a tracer: the engine's release")
    keep.add_argument("--command", required=True, help="what makes it again")
    keep.add_argument(
        "--found",
        action="append",
        default=[],
        metavar="[PART=]ANCHOR",
        help="an anchor of docs/found.md, of what fails, or of what fails of a part of a table",
    )
    keep.add_argument("--machine", default=f"{os.cpu_count()} cores, {platform.machine()}", help="what ran it")
    keep.add_argument("--commit", help="the Draftproof that ran it (default: that of this tree)")
    does.add_parser("page", help="write docs/released.md")
    given = parser.parse_args()
    if given.does == "keep" and given.tracer and not given.draft:
        parser.error("--tracer: expected --draft, too")
    if given.does == "keep":
        now = {"date": datetime.now(UTC).date().isoformat(), "machine": given.machine, "command": given.command}
        # What makes the tree another than that of the commit is mostly the files that are kept here.
        now["commit"] = given.commit or (commit() or "unknown").removesuffix("+")
        raw = given.report.read_bytes()
        if given.tracer:
            report = decode(raw, TracerReport, name=str(given.report))
            new = of_tracer(report, now, given.engine, given.tracer, given.draft, given.target)
        elif given.draft:
            new = of_check(
                decode(raw, CheckReport, name=str(given.report)), now, given.engine, given.draft, given.target
            )
        else:
            new = of_table(decode(raw, ReleaseTable, name=str(given.report)), now)
        new = [explained(one, given.found) for one in new]
        path = KEPT / f"{given.engine}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(lines(merged(kept().get(given.engine, ()), new)), encoding="utf-8")
    PAGE.write_text(page(kept()), encoding="utf-8")


if __name__ == "__main__":
    main()
