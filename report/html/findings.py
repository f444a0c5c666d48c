"""What a report says of each finding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from draftproof.properties.lib.durations import show_duration
from draftproof.report.commands import command, subject_options
from draftproof.report.html.grid import Grid, grid
from draftproof.report.html.source import RunSource, StoredFinding
from draftproof.report.numbers import count, plural
from draftproof.report.text import sentence

_STATES = {
    "new": "not yet shrunk",
    "shrunk": "shrunk, not yet confirmed",
    "confirmed": "confirmed",
    "unstable": "unstable: two runs of one scenario differ",
    "flaky": "flaky: it did not come again",
    "merged": "merged",
}


@dataclass(frozen=True)
class Command:
    """Something to copy into a shell. `what` it does."""

    what: str
    line: str


@dataclass(frozen=True)
class View:
    """A finding as it is shown. `facts` are (name, text); `merged` are the other identities that shrank to this one."""

    anchor: str
    number: int
    outcome: str
    title: str
    sentence: str
    facts: tuple[tuple[str, str], ...]
    merged: tuple[tuple[str, str], ...]
    grid: Grid | None
    commands: tuple[Command, ...]
    detail: str
    unread: tuple[str, ...]


def views(source: RunSource) -> tuple[View, ...]:
    """Return findings in the order of their first hits; merged ones stand with the one that they are."""
    known = {_text(found, "identity"): found for found in source.findings}
    groups: dict[str, list[StoredFinding]] = {}
    for name, found in known.items():
        groups.setdefault(_root(name, known), []).append(found)
    return tuple(
        _view(number, known[root], [found for found in group if found is not known[root]], source)
        for number, (root, group) in enumerate(groups.items(), start=1)
    )


def _root(name: str, known: Mapping[str, StoredFinding]) -> str:
    """Return the identity that a finding was merged into in the end; its own if it stands by itself."""
    seen = {name}
    while (into := _text(known[name], "merged")) in known and into not in seen:
        seen.add(name := into)
    return name


def _text(found: StoredFinding, name: str) -> str:
    return str(found.row.get(name) or "")


def _number(found: StoredFinding, name: str) -> int:
    return int(found.row.get(name) or 0)


def _view(number: int, found: StoredFinding, merged: Sequence[StoredFinding], source: RunSource) -> View:
    first = found.divergence
    return View(
        anchor=f"finding-{number}",
        number=number,
        outcome=_text(found, "outcome"),
        title=_text(found, "contract"),
        sentence=sentence(first) if first else _without(found),
        facts=tuple((name, text) for name, text in _facts(found, merged).items() if text),
        merged=tuple((_text(one, "identity"), plural(_number(one, "hits"), "hit")) for one in merged),
        grid=grid(found.timeline) if found.timeline else None,
        commands=_commands(found, source),
        detail=found.detail.strip("\n"),
        unread=found.unread,
    )


def _without(found: StoredFinding) -> str:
    """Return a finding without a divergence in words."""
    place = f" in {_text(found, 'place')}" if _text(found, "place") else ""
    error = _text(found, "channel") or "no error was named"
    if _text(found, "outcome") == "HANG":
        return f"No end within the deadline{place}."
    if _text(found, "outcome") == "CRASH":
        return f"{error}{place}."
    last = _text(found, "detail").strip().splitlines()
    return last[0] if last else f"{_text(found, 'relation') or error}{place}."


def _facts(found: StoredFinding, merged: Sequence[StoredFinding]) -> Mapping[str, str]:
    """Return the facts of a finding; its hits include the merged findings'."""
    state = _text(found, "state")
    size = f"{plural(_number(found, 'requests'), 'request')}, {plural(_number(found, 'rounds'), 'round')}"
    at = found.row.get("at")
    return {
        "Identity": _text(found, "identity"),
        "Hits": count(sum(_number(one, "hits") for one in (found, *merged))),
        "First hit": f"scenario {_number(found, 'first')}{'' if at is None else f', after {show_duration(float(at))}'}",
        "State": _STATES.get(state, state),
        "Runs": f"{_text(found, 'runs')} failed the same way" if _text(found, "runs") else "",
        "Smallest case": size if _number(found, "requests") else "",
        "Place": _text(found, "place"),
        "Node": _text(found, "node"),
    }


def _commands(found: StoredFinding, source: RunSource) -> tuple[Command, ...]:
    """How to see it again and take it to its cause; none without a case file."""
    if not found.cases:
        return ()
    case, options = str(next(iter(found.cases.values()))), subject_options(source.settings, source.path)
    # A path that begins with a dash is no option.
    case = f"./{case}" if case.startswith("-") else case
    again = Command("See it again", command("replay", case, **options))
    return (again, Command("Explain it", command("explain", case, **options)), *_origin(case, source))


def _origin(case: str, source: RunSource) -> Iterator[Command]:
    """How to find the commit or the release that brought it in."""
    from draftproof.fuzz.releases.packages import packages_of

    settings = source.settings
    subject, between = settings.subject, ("--good", "GOOD", "--bad", "BAD")
    for package in packages_of(subject.name):
        line = command("lab", "bisect", "releases", case, *between, package=package, set=subject.options["set"])
        yield Command("Which release brought it in", line)
    # What was brought in by a patch is in no history, and a subject of another Python is in no repository.
    if settings.fault or subject.python or subject.settings or ":" not in (subject.name or ":"):
        return
    given = {"subject": subject.name, "device": settings.device if settings.device != "cpu" else ""}
    line = command("explain", case, "--repo", "REPO", *between, **given)
    yield Command("Which commit brought it in", line)
