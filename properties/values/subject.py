"""What an implementation under test must offer.

An engine of your own becomes a subject in one class: give each request of the scenario its prompt and its limits,
verify the script's forced drafts where it has any, and report what happened on the channels that you can see. Two are
enough to begin with: `round.drafts`, what a round verified as a tuple of ids, and `accept.emitted`, the tokens that
it emitted. Every further channel lets more contracts judge your engine; values/channels.py lists them with the type
of their values, values/observed.py has the structs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from draftproof.properties.lib.base import Value
from draftproof.properties.lib.errors import DraftproofError
from draftproof.properties.values.limits import NO_LIMITS, Limits
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.values.trace import Trace


class Hook(Value, frozen=True, kw_only=True):
    """A place of an engine that an adapter needs: whether this release has it, and the channels that it carries.

    `where` says what was looked for, as a module and a name in it.
    """

    name: str
    found: bool
    channels: tuple[str, ...] = ()
    where: str = ""


class RankPlace(Value, frozen=True, kw_only=True):
    """Which of `size` ranks a process is; all of them share the folder `meeting`, with their journal in it."""

    rank: int
    size: int
    meeting: str


class Subject(ABC):
    """An implementation under test. A class that derives from this one need not mention limits that it lacks."""

    name: str
    """The name in reports."""
    limits: Limits = NO_LIMITS
    """What it can run; generated scenarios are fitted to it (S-SUBJECT-1)."""
    packages: tuple[str, ...] = ()
    """The distributions whose versions say which engine it is, the engine's own first."""
    requires: tuple[str, ...] = ()
    """The top modules without which the engine is not there: looked for, not imported, before the subject is made."""
    assumes: str = ""
    """What must hold outside of it for a failure to be the engine's, and where to see it; told where it fails."""

    @abstractmethod
    def channels(self, scenario: Scenario) -> frozenset[str]:
        """Return the channels that a run of this scenario reports. Where one applies, the trace must observe it."""

    @abstractmethod
    def run(self, scenario: Scenario, script: Script) -> Trace:
        """Serve every request of the scenario and return what was observed on the way.

        `script.requests[i].rounds[r - 1].forced` are the drafts to verify in round r of request i in place of the
        engine's own (None: its own; script.forced says it for dynamic scenarios). What the run has to show, the script
        does not say: see script.steering. A run must be repeatable, must not change its arguments, and may raise: the
        exception becomes a crash in the verdict, with its traceback.
        """

    def run_rank(self, scenario: Scenario, script: Script, place: RankPlace) -> Trace:
        """Serve the requests of one rank, beside the processes of the others, and return what was observed of them.

        Requests count from 0 on within the rank. A subject without this method runs the part of each rank alone.
        """
        raise NotImplementedError(f"{type(self).__name__} has no ranks")

    @property
    def has_ranks(self) -> bool:
        return type(self).run_rank is not Subject.run_rank

    @property
    def most_ranks(self) -> int:
        """How many ranks can run beside each other; a scenario of more of them is served rank after rank."""
        return 8

    @property
    def inner(self) -> Subject:
        """Return the subject that ranks run: a subject that wraps another returns that one."""
        return self

    @property
    def spawned_as(self) -> tuple[str, dict[str, str]] | None:
        """MODULE:NAME and settings that make it anew in the process of a rank; None: a fork of this one will do."""
        return None

    def hooks(self) -> tuple[Hook, ...]:
        """Return the places of the engine that it needs; channels of one that is missing are not reported."""
        return ()

    def close(self) -> None:  # noqa: B027  # most subjects hold nothing
        """Free what the subject holds beyond its runs: processes, devices, connections."""


def require_subject(subject: object) -> None:
    """Raise SubjectDeclarationError unless the object has all that a subject has."""
    lacking = [name for name in ("name", "limits", "channels", "run", "close") if not hasattr(subject, name)]
    if lacking:
        raise SubjectDeclarationError(
            f"invalid subject {type(subject).__name__}: expected {', '.join(lacking)}, too; derive it from"
            " draftproof.subject.Subject"
        )
    if not isinstance(subject.limits, Limits):  # type: ignore[attr-defined]
        raise SubjectDeclarationError(
            f"invalid limits of {type(subject).__name__}: expected a draftproof.subject.Limits, not "
            f"{type(subject.limits).__name__}"  # type: ignore[attr-defined]
        )
    if not callable(subject.channels):  # type: ignore[attr-defined]
        raise SubjectDeclarationError(
            f"invalid channels of {type(subject).__name__}: expected a method that takes a scenario and returns a set"
            " of names"
        )


class SubjectDeclarationError(DraftproofError, TypeError):
    """An object that is no subject, or declares something that cannot be; the message names it."""
