"""`draftproof lab ci`: a command of ours as a step of a CI, with a summary, a badge and annotations."""

from __future__ import annotations

import secrets
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from draftproof.cli import inputs
from draftproof.properties.values.verdict import EXIT_CODES, Outcome

if TYPE_CHECKING:
    from draftproof.report.ci_step import StepReport

_EXAMPLE = "check --subject my_subject:MyEngine"
INCONCLUSIVE = ("fail", "pass")
Run = Annotated[str, typer.Option("--run", help=f"The command line, as in a shell: {_EXAMPLE!r}.", metavar="WORDS")]
Name = Annotated[str, typer.Option("--name", help="What summary, badge and annotations call it.")]
Folder = Annotated[
    Path, typer.Option("--folder", help="Where report.json, badge.json and summary.md are written.", file_okay=False)
]
Summary = Annotated[Path | None, inputs.output("--summary", "A file to add the summary to: $GITHUB_STEP_SUMMARY.")]
Outputs = Annotated[Path | None, inputs.output("--outputs", "A file to add name=value lines to: $GITHUB_OUTPUT.")]
Annotate = Annotated[bool, typer.Option("--annotate", help="Print GitHub's annotations of what failed.")]
Inconclusive = Annotated[
    str, typer.Option("--inconclusive", help="What INCONCLUSIVE does to the step: fail (125) or pass.")
]


def ci(
    context: typer.Context,
    words: Run,
    name: Name = "draftproof",
    folder: Folder = Path(".draftproof/ci"),
    summary: Summary = None,
    outputs: Outputs = None,
    annotate: Annotate = False,
    inconclusive: Inconclusive = "fail",
) -> None:
    """Run a command as a step of a CI, and tell what it came to.

    The exit code is the command's. The Action (action.yml) is this.
    """
    from draftproof.properties.formats.case import encode
    from draftproof.report import ci_step

    inputs.choose(inconclusive, INCONCLUSIVE, "--inconclusive")
    given = _command(words)
    _require_result(words, given, context.find_root().command)
    if not name.strip() or not name.isprintable() or not str(folder).isprintable():
        raise inputs.InputError(f"invalid --name {name!r} or --folder '{folder}': expected printable text in one line")
    report = folder / "report.json"
    for path in (report, folder / "badge.json", folder / "summary.md"):
        _forget(path)
    code, output = _ran([*given, "--json", str(report)], held=annotate)
    read = _read(report)
    step = ci_step.CiStep(
        name=name,
        command=shlex.join(["draftproof", *given]),
        code=code,
        output=output,
        contracts=read.contracts,
        amount=ci_step.amount(read),
    )
    page = ci_step.summary(step)
    inputs.write_text("--folder", folder / "badge.json", encode(ci_step.badge(step)) + "\n")
    inputs.write_text("--folder", folder / "summary.md", page)
    _add("--summary", summary, page)
    told = {"verdict": step.verdict, "exit-code": code, "report": report if report.exists() else ""}
    told |= {"badge": folder / "badge.json", "folder": folder}
    _add("--outputs", outputs, "".join(f"{key}={value}\n" for key, value in told.items()))
    for one in ci_step.annotated(step) if annotate else ():
        print(one, flush=True)
    is_let_off = step.verdict is Outcome.INCONCLUSIVE and inconclusive == "pass"
    raise inputs.Ended(EXIT_CODES[Outcome.PASS] if is_let_off else code)


def _command(words: str) -> list[str]:
    """Return the words of a command line without our own name. Raises InputError."""
    try:
        given = shlex.split(words)
    except ValueError as error:
        raise inputs.InputError(f"invalid --run {words!r}: expected words as in a shell: {error}") from None
    given = given[given[:1] == ["draftproof"] :]
    if not given:
        raise inputs.InputError(f"invalid --run {words!r}: expected a command of draftproof, as {_EXAMPLE!r}")
    if any(word == "--json" or word.startswith("--json=") for word in given):
        raise inputs.InputError(f"invalid --run {words!r}: expected no --json, as report.json of --folder is written")
    return given


def _require_result(words: str, given: list[str], root: Any) -> None:
    """Raise InputError for a command that has no result to report; one that does not exist says so itself.

    `root` is the whole command line, a group of the click that typer uses.
    """
    reports = dict(_commands(root, ()))
    group = tuple(given) if any(path[: len(given)] == tuple(given) for path in reports) else None
    path = next((path for path in reports if tuple(given[: len(path)]) == path), group)
    if path is not None and not reports.get(path, False):
        listed = ", ".join(" ".join(one) for one, has_report in reports.items() if has_report and one[0] != "lab")
        raise inputs.InputError(
            f"invalid --run {words!r}: expected a command that has a result to report, and {' '.join(path)!r} has none;"
            f" these have one: {listed}, and of lab those with --json"
        )


def _commands(group: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Yield the words of every command below a group, and whether it has --json."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, (*path, name))
        else:
            yield (*path, name), any("--json" in one.opts for one in command.params)


def _ran(words: list[str], *, held: bool) -> tuple[int, str]:
    """Run a command, and show what it prints as it comes; return its exit code and its output.

    What a subject prints is no order to a runner of GitHub, which is `held` from reading any meanwhile.
    """
    token = f"draftproof-{secrets.token_hex(8)}"
    if held:
        print(f"::stop-commands::{token}", flush=True)
    lines = []
    command = [sys.executable, "-P", "-m", "draftproof.cli", *words]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8", errors="replace"
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    if held:
        print(f"::{token}::", flush=True)
    # As a shell tells of a process that a signal ended.
    code = process.returncode if process.returncode >= 0 else 128 - process.returncode
    return code, "".join(lines)


def _read(report: Path) -> StepReport:
    """Return what is told of a report; nothing of one that was not written, or has another form."""
    import msgspec

    from draftproof.report.ci_step import StepReport

    try:
        return msgspec.json.decode(report.read_bytes(), type=StepReport)
    except (OSError, msgspec.MsgspecError):
        return StepReport()


def _forget(path: Path) -> None:
    """Remove what an earlier step wrote. Raises InputError."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise inputs.InputError(f"invalid --folder: '{path}' cannot be replaced: {error.strerror}") from None


def _add(option: str, path: Path | None, text: str) -> None:
    """Add text to a file that others write to. Raises InputError."""
    try:
        if path is not None:
            with path.open("a", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise inputs.InputError(f"invalid {option} '{path}': it cannot be written: {error.strerror}") from None
