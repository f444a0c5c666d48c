"""A command that a CI ran, told to people: a summary in Markdown, a badge, annotations of GitHub."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from draftproof.properties.lib.base import Value
from draftproof.properties.values.verdict import EXIT_CODES, Outcome, Verdict
from draftproof.report.markdown import table
from draftproof.report.numbers import plural
from draftproof.report.text import line, sentence
from draftproof.report.workflow_commands import annotation

_LINES = 120
"""So many lines of the end of an output are in a summary, of which GitHub takes 1 MiB."""
_ANNOTATIONS = 10
"""GitHub shows no more of a step."""
_NEUTRAL = (Outcome.PASS, Outcome.SKIP, Outcome.ABSENT)
_COLORS = {Outcome.PASS: "brightgreen", Outcome.INCONCLUSIVE: "yellow"}


class StepReport(msgspec.Struct, frozen=True):
    """What is told of the report that a command wrote, whichever it was: its other fields are not read."""

    contracts: tuple[Verdict, ...] = ()
    examples: int = 0
    scenarios: int = 0
    requests: int = 0


class CiStep(Value, frozen=True, kw_only=True):
    """A command that was run: its words, its output, its exit code, and what its report says of each contract."""

    name: str
    command: str
    code: int
    output: str
    contracts: tuple[Verdict, ...] = ()
    amount: str = ""

    @property
    def verdict(self) -> Outcome:
        """Return what the exit code says: CRASH of one that no command has, as that of a process that was killed."""
        known = {code: outcome for outcome, code in reversed(EXIT_CODES.items())}
        known[EXIT_CODES[Outcome.INCONCLUSIVE]] = Outcome.INCONCLUSIVE
        return known.get(self.code, Outcome.CRASH)

    @property
    def last(self) -> str:
        """Return the last line of the output that says something."""
        return next((one.strip() for one in reversed(self.output.splitlines()) if one.strip()), "no output")


class Badge(Value, frozen=True, kw_only=True, rename="camel"):
    """A badge in the form that shields.io reads from an address, its `endpoint`."""

    schema_version: int = 1
    label: str
    message: str
    color: str
    is_error: bool = False


def amount(report: StepReport) -> str:
    """Return how much was run: scenarios or requests, "" if the report has no number of them."""
    scenarios = report.scenarios or report.examples
    told = ((scenarios, "scenario"), (report.requests, "request"))
    return next((plural(count, noun) for count, noun in told if count), "")


def badge(step: CiStep) -> Badge:
    """Return the badge: the verdict, and how much it rests on."""
    message = f"{step.verdict}, {step.amount}" if step.amount else str(step.verdict)
    color = _COLORS.get(step.verdict, "red")
    return Badge(label=step.name, message=message, color=color, is_error=step.verdict not in _COLORS)


def summary(step: CiStep) -> str:
    """Return a page: the verdict, the command, what failed in words, a table of what lacked something, the output."""
    lines = [f"## {_cell(step.name)}: {step.verdict}", "", *_fenced(step.command)]
    if failed := [sentence(one.divergence) for one in step.contracts if one.divergence is not None]:
        lines += ["", *(f"- {_cell(one)}" for one in failed)]
    if told := [one for one in step.contracts if one.verdict not in _NEUTRAL and one.divergence is None]:
        rows = (
            (f"`{one.name}`", str(one.verdict), str(one.scenarios), _cell(", ".join(one.missing) or one.reason))
            for one in told
        )
        lines += ["", table(("contract", "verdict", "scenarios", ""), rows)]
    if passed := sum(one.verdict is Outcome.PASS for one in step.contracts):
        lines += ["", f"{plural(passed, 'contract')} passed."]
    said = step.output.splitlines()
    shown = said[-_LINES:]
    head = f"the last {_LINES} of {len(said)} lines" if len(said) > _LINES else "all"
    opened = "" if step.verdict is Outcome.PASS else " open"
    lines += ["", f"<details{opened}><summary>Output ({head})</summary>", "", *_fenced("\n".join(shown)), "</details>"]
    return "\n".join(lines) + "\n"


def annotated(step: CiStep) -> Iterator[str]:
    """Yield GitHub's workflow commands: one for each contract that failed, else one of the end, none of a PASS.

    Of more than GitHub shows the last says how many there are.
    """
    if step.verdict is Outcome.PASS:
        return
    level: Literal["error", "warning"] = "warning" if step.verdict is Outcome.INCONCLUSIVE else "error"
    told = [(one.name, line(one.divergence)) for one in step.contracts if one.divergence is not None]
    if len(told) > _ANNOTATIONS:
        rest = told[_ANNOTATIONS - 1 :]
        told = [*told[: _ANNOTATIONS - 1], (f"{len(rest)} more", ", ".join(name for name, _ in rest))]
    for name, text in told or [(str(step.verdict), step.last)]:
        yield annotation(level, f"{step.name}: {name}", f"{text}\n{step.command}")


def _cell(text: str) -> str:
    """Return text in one line that opens neither a cell nor a tag."""
    return " ".join(text.split()).replace("|", "/").replace("<", "&lt;")


def _fenced(text: str) -> list[str]:
    """Return text as a block that nothing in it can close."""
    fence = "```"
    while fence in text:
        fence += "`"
    return [fence, text, fence]
