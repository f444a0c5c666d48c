"""What a subject is: versions of its packages, what it finds in its engine, and how much it can show."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, cast

from msgspec.structs import replace

from draftproof.properties.coverage.covered import Level, level_of
from draftproof.properties.fit import fit
from draftproof.properties.lib.base import Value
from draftproof.properties.values.drafts import CheckpointDraft, Ngram, algorithm
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.scenario import Checkpoint, Scenario
from draftproof.properties.values.subject import Hook, Subject
from draftproof.subjects.process import versions


class SubjectReport(Value, frozen=True, kw_only=True):
    """A subject as it is in its Python. `level` follows from the channels of all hooks that were found.

    A package that is not installed has the version "". `missing` are the channels that have no hook to carry them. If
    the subject's engine is not installed, the level says so, and there are no limits. It is unknown for a subject
    without hooks that only names its channels for a checkpoint that exists.
    """

    name: str
    level: Level | Literal["not installed", "unknown"]
    versions: dict[str, str]
    hooks: tuple[Hook, ...] = ()
    missing: tuple[str, ...] = ()
    limits: Limits | None = None


def inspect_subject(subject: Subject) -> SubjectReport:
    """Return what a subject says of itself, here or in another Python. Raises what it raises there."""
    hooks = tuple(subject.hooks())
    carried = frozenset(channel for hook in hooks if hook.found for channel in hook.channels)
    wanted = frozenset(channel for hook in hooks for channel in hook.channels)
    declared = carried if hooks else _declared(subject)
    return SubjectReport(
        name=subject.name,
        level="unknown" if declared is None else level_of(declared),
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
    """Return what a subject takes for granted; "" if it does not say, whether or not it derives from Subject."""
    return getattr(subject, "assumes", "")


def _declared(subject: Subject) -> frozenset[str] | None:
    """Return the channels of a subject that has no hooks to tell of; None if it must see a checkpoint to name them."""
    from draftproof.properties.strategies.scenarios import generate

    of_drafts = [generate(0, 1, (name,))[0] for name in subject.limits.drafts]
    if "probe" in subject.limits.models:
        return _channels(subject, [fit(scenario, subject.limits) for scenario in of_drafts])
    try:
        return _channels(subject, [_of_checkpoint(scenario) for scenario in of_drafts])
    except Exception:
        return None


def _channels(subject: Subject, scenarios: Iterable[Scenario]) -> frozenset[str]:
    """Return the channels that it reports for any of these scenarios, all of them with taps."""
    return frozenset().union(*(subject.channels(replace(scenario, taps=True)) for scenario in scenarios))


def _of_checkpoint(scenario: Scenario) -> Scenario:
    """Return the scenario of a checkpoint that does not exist: most subjects report the same for every checkpoint."""
    name = algorithm(scenario.draft)
    draft = scenario.draft if isinstance(scenario.draft, Ngram) else CheckpointDraft(algorithm=cast(Any, name))
    return replace(scenario, model=Checkpoint(path="", vocab=scenario.model.vocab), draft=draft)
