"""What a subject is: versions of its packages, what it finds in its engine, and how much it can show."""

from __future__ import annotations

from typing import Literal

from draftproof.properties.coverage.covered import Level, level_of
from draftproof.properties.values.base import Value
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.subject import Hook, Subject
from draftproof.subjects.process import versions


class SubjectReport(Value, frozen=True, kw_only=True):
    """A subject as it is in its Python. `level` is that of the channels of all hooks that were found.

    A package that is not installed has the version "". `missing` are the channels that nothing carries for lack of a
    hook. Of a subject whose engine is not installed the level says so, and there are no limits.
    """

    name: str
    level: Level | Literal["not installed"]
    versions: dict[str, str]
    hooks: tuple[Hook, ...] = ()
    missing: tuple[str, ...] = ()
    limits: Limits | None = None


def look_at(subject: Subject) -> SubjectReport:
    """Return what a subject says of itself, here or in another Python. Raises what it raises there."""
    hooks = tuple(subject.hooks())
    carried = frozenset(channel for hook in hooks if hook.found for channel in hook.channels)
    wanted = frozenset(channel for hook in hooks for channel in hook.channels)
    return SubjectReport(
        name=subject.name,
        level=level_of(carried if hooks else _declared(subject)),
        versions=versions_of(subject),
        hooks=hooks,
        missing=tuple(sorted(wanted - carried)),
        limits=subject.limits,
    )


def versions_of(subject: Subject) -> dict[str, str]:
    """Return the versions of a subject's packages where it runs, and of its Python; "" of one that is not installed."""
    from draftproof.harness.remote import RemoteSubject

    return subject.versions if isinstance(subject, RemoteSubject) else versions(subject)


def assumed(subject: Subject) -> str:
    """Return what a subject takes for granted; "" of one that does not say, be it derived from Subject or not."""
    return getattr(subject, "assumes", "")


def _declared(subject: Subject) -> frozenset[str]:
    """Return the channels of a subject that has no hooks to tell of; of one that needs a checkpoint nobody knows."""
    if "probe" not in subject.limits.models:
        return frozenset()
    from draftproof.properties.strategies.scenarios import generate

    return subject.channels(generate(0, 1)[0])
