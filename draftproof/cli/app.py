"""All commands in one application. Errors are one line on stderr, with exit code 2.

Modules of commands import what they run inside of their functions, so that --help and the list of faults need neither
torch nor Hypothesis.
"""

from __future__ import annotations

import functools
import itertools
import os
import sys
import traceback
from typing import Annotated, Any

import typer

from draftproof.cli import (
    audit,
    bench,
    check,
    checkpoints,
    ci,
    compare,
    demo,
    doctor,
    engines,
    environment,
    explain,
    faults,
    fuzz,
    golden,
    head,
    history,
    init,
    inputs,
    judge,
    kernels,
    matrix,
    parts,
    releases,
    replay,
    report,
    shrink,
    subjects,
    tracer,
)
from draftproof.process import CRASHED, leave, run_apart
from draftproof.properties.lib.errors import DraftproofError

_USAGE = 2
UNREAD = 141
"""As a shell tells a process that SIGPIPE ended: nobody reads any more what the command prints."""
APART = ("check", "replay", "audit", "compare", "doctor", "lab kernels", "tracer run")
"""Commands in whose own process somebody's module runs; the others have workers, and only ask a subject what it is."""
ENDED_BY_TYPER = 130
"""What some versions of typer return for a command that Ctrl-C ended; no command of ours does."""
app = typer.Typer(
    name="draftproof",
    help="Find the bugs that speculative decoding hides: run an optimized engine and a slow reference in lockstep.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
bisect = typer.Typer(
    help="Find what brought a failing case in: parts, commit, release.",
    no_args_is_help=True,
)
bisect.command("parts")(parts.parts)
bisect.command("history")(history.history)
bisect.command("releases")(releases.bisect)
lab = typer.Typer(help="Tools of maintainers: kernels, releases, steps of `explain`.", no_args_is_help=True)
lab.command("shrink")(shrink.shrink_)
lab.add_typer(bisect, name="bisect")
lab.command("releases")(releases.releases)
lab.add_typer(kernels.app, name="kernels")
lab.command("environment")(environment.environment)
lab.add_typer(engines.app, name="engines")
lab.command("checkpoints")(checkpoints.checkpoints)
lab.command("matrix")(matrix.matrix)
lab.add_typer(head.app, name="head")
lab.add_typer(bench.app, name="bench")
lab.command("ci")(ci.ci)
app.command("demo")(demo.demo)
app.command("check")(check.check)
app.command("replay")(replay.replay)
app.command("explain")(explain.explain)
app.command("fuzz")(fuzz.fuzz)
app.command("report")(report.write_report)
app.command("judge")(judge.judge)
app.command("audit")(audit.audit)
app.command("compare")(compare.compare)
app.add_typer(golden.app, name="golden")
app.add_typer(faults.app, name="faults")
app.command("init")(init.init)
app.add_typer(tracer.app, name="tracer")
app.command("doctor")(doctor.doctor)
app.add_typer(lab, name="lab")


def _show_version(is_asked: bool) -> None:
    from importlib.metadata import version

    if is_asked:
        print(f"draftproof {version('draftproof')}")
        raise inputs.Ended(0)


@app.callback()
def of_no_command(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Take the options that belong to no command."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its verdict, whatever a subject does to its process."""
    # One thread is fastest for tiny models, and torch reads this when it is imported.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    given = sys.argv[1:] if arguments is None else arguments
    is_apart = f"{' '.join(given[:2])} ".startswith(tuple(f"{words} " for words in APART))
    leave(run_apart(lambda: run(given)) if is_apart else run(given))


def run(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit code."""
    subjects.forget()
    try:
        exited = _command()(args=arguments, prog_name="draftproof", standalone_mode=False)
        if exited == ENDED_BY_TYPER:
            raise KeyboardInterrupt
        return _say_ended() if exited is not None and subjects.is_made() else exited or 0
    except SystemExit as ended:
        # No command of ours raises it; click does where what it prints is read no more.
        return UNREAD if isinstance(ended.__context__, BrokenPipeError) else _say_ended()
    except inputs.Ended as end:
        return end.code
    except DraftproofError as error:
        from draftproof.harness.subject_crash import SubjectCrashedError

        if not isinstance(error, SubjectCrashedError):
            return _say(str(error))
        print(f"{error.trace.rstrip()}\nCRASH: {error}", file=sys.stderr)
        return CRASHED
    except (typer.Abort, KeyboardInterrupt):
        return _say("interrupted before there was a verdict")
    except Exception as error:
        # Usage errors are click's; which click typer uses, its own or the installed one, depends on its version.
        if hasattr(error, "format_message"):
            return _say_usage(error, sys.argv[1:] if arguments is None else arguments)
        traceback.print_exc()
        return _say(f"draftproof itself failed: {type(error).__name__}: {error}")


@functools.cache
def _command() -> Any:
    """Return what typer makes of the application, which takes as long as many a command."""
    return typer.main.get_command(app)


def _say_ended() -> int:
    print("CRASH: the subject ended the command before there was a verdict", file=sys.stderr)
    return CRASHED


def _say_usage(error: Any, given: list[str]) -> int:
    """Print a usage error with what was expected, and where to read more; a command without its own the help."""
    message = error.format_message().rstrip(".")
    options: list[str] = getattr(getattr(error, "param", None), "opts", [])
    words = [part for word in given for part in word.split("=", 1)]
    value = next((after for one, after in itertools.pairwise(words) if one in options), None)
    if message.startswith("Invalid value for ") and value is not None:
        problem = message.partition(": ")[2].replace("Input should be greater", "expected a number greater")
        problem = problem.replace("Input should be ", "expected ")
        message = f"invalid {options[0]} {value!r}: {problem[:1].lower()}{problem[1:]}"
    if "\n" in message:
        print(message, file=sys.stderr)
        return _USAGE
    # Only a parameter that is missing has not been told what it is.
    expected = getattr(getattr(error, "param", None), "help", "") if message.startswith("Missing") else ""
    where = error.ctx.command_path if getattr(error, "ctx", None) else "draftproof"
    told = f": expected {expected[0].lower()}{expected[1:].rstrip('.')}" if expected else ""
    return _say(f"{message}{told}; see {where} --help")


def _say(message: str) -> int:
    """One line on stderr."""
    # A field of a file may be called anything.
    text = " ".join(message.split()).encode("utf-8", "backslashreplace").decode()
    print(f"error: {text}", file=sys.stderr)
    return _USAGE
