"""`draftproof lab bench compare`: what became slower beyond noise, from a history that `make bench` wrote."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from draftproof.cli import inputs, screen
from draftproof.properties.values.verdict import Outcome
from draftproof.report.numbers import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from draftproof.harness.slower import Compared, Comparison
    from draftproof.properties.formats.measurement import Measurement

app = typer.Typer(help="Measurements of benchmarks.", no_args_is_help=True)
History = Annotated[
    Path, typer.Argument(help="The file that `make bench` and `make bench-gpu` add to.", metavar="HISTORY")
]
Base = Annotated[
    str | None, typer.Option("--base", help="The label to compare with (default: the one before the last).")
]
New = Annotated[str | None, typer.Option("--new", help="The label that may be slower (default: the last one).")]
_WORDS = {Outcome.FAIL: "SLOWER", Outcome.INCONCLUSIVE: "too few pairs", Outcome.PASS: ""}


@app.callback()
def _group() -> None:
    """Keep `compare` a command of its own."""


@app.command("compare")
def compare_(history: History, base: Base = None, new: New = None, json: inputs.Json = None) -> None:
    """Say what became slower beyond noise.

    The exit code is 1 if anything did, 125 if runs are too few to tell. Run k of one label is compared with run k of
    the other, so let the two take turns on one machine.
    """
    try:
        from scipy import stats  # noqa: F401
    except ImportError:
        raise inputs.InputError("bench compare needs scipy: expected it installed, as by pip install scipy") from None
    from draftproof.harness.slower import compare

    runs = _read(history)
    found = compare(runs, *_chosen(history, runs, base, new))
    _show(found)
    inputs.finish(json, found, found.verdict)


def _read(path: Path) -> list[Measurement]:
    """Return the measurements of a file. Raises InputError."""
    from draftproof.properties.formats.measurement import MeasurementError, history

    try:
        return history(path)
    except OSError as error:
        raise inputs.InputError(f"invalid HISTORY '{path}': it cannot be read: {error.strerror}") from None
    except MeasurementError as error:
        raise inputs.InputError(f"invalid HISTORY '{path}': {error}") from None


def _chosen(path: Path, runs: Sequence[Measurement], base: str | None, new: str | None) -> tuple[str, str]:
    """Return two labels of a history. Raises InputError."""
    from draftproof.harness.slower import labels

    known = labels(runs)
    if len(known) < 2:
        raise inputs.InputError(
            f"invalid HISTORY '{path}': expected runs of two labels, not of {known[0] if known else 'none'}"
        )
    newer = inputs.choose(new, known, "--new") if new else known[-1]
    older = inputs.choose(base, known, "--base") if base else next(one for one in reversed(known) if one != newer)
    if older == newer:
        raise inputs.InputError(f"invalid --base {older!r}: expected another label than that of --new")
    return older, newer


def _show(found: Comparison) -> None:
    from draftproof.harness.slower import SLOWER_FALSE_ALARMS

    rows = [_row(one) for one in sorted(found.measures, key=lambda one: -one.ratio)]
    if rows:
        screen.show(
            ("measure", "pairs", "new / base", "from", "to", ""), rows, right=("pairs", "new / base", "from", "to")
        )
    for said in found.changed:
        screen.line(f"not of the same version: {said}")
    if found.unpaired:
        screen.line(f"{plural(found.unpaired, 'run')} without a partner of the same benchmark, options and machine")
    slower = sum(one.verdict is Outcome.FAIL for one in found.measures)
    few = sum(one.verdict is Outcome.INCONCLUSIVE for one in found.measures)
    measures = plural(len(found.measures), "measure")
    screen.line(
        f"{found.verdict}: {found.new} beside {found.base}: {slower} of {measures} slower,"
        f" {few} not known well enough; equal code alarms in {100 * SLOWER_FALSE_ALARMS:g} % of comparisons at most",
        "bold",
    )


def _row(one: Compared) -> tuple[str, ...]:
    low, high = ("" if edge is None else f"{edge:.3f}" for edge in (one.low, one.high))
    return f"{one.benchmark}: {one.measure}", str(one.pairs), f"{one.ratio:.3f}", low, high, _WORDS[one.verdict]
