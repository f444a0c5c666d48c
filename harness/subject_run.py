"""One run of a subject, and whether its trace is whole: nothing twice, nothing of an unknown type, nothing left out."""

from __future__ import annotations

from collections.abc import Iterator, Set
from contextlib import contextmanager

from draftproof.harness.signals import TimeLimitError, exits_noticed
from draftproof.harness.subject_crash import SubjectCrashedError
from draftproof.properties.lib.names import did_you_mean
from draftproof.properties.values.channels import CHANNELS, TAPPED
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.script import Script, steering
from draftproof.properties.values.subject import Subject, SubjectDeclarationError, require_subject
from draftproof.properties.values.trace import MalformedTraceError, Trace
from draftproof.properties.values.valuetypes import malformed

_COUNTED = frozenset({"commit.cached"})
"""Channels in which a right run may be silent: their contracts count what they are told."""


def limits_of(subject: Subject) -> Limits:
    """Return what a subject can run. Raises SubjectCrashedError for an object that is no subject."""
    with _crashing("in its declaration"):
        require_subject(subject)
        return subject.limits


def run_subject(subject: Subject, scenario: Scenario, script: Script, during: str) -> Trace:
    """Return the trace of one run, if it is whole. Raises SubjectCrashedError if it is not, and for whatever is raised.

    `during` is for the message.
    """
    try:
        with exits_noticed():
            trace = subject.run(scenario, steering(script))
        if not isinstance(trace, Trace):
            raise MalformedTraceError(f"run() returned {trace!r}: expected a Trace")
        # Made anew: a subclass may answer as it likes, and an index that was set before may say other things.
        trace = Trace(trace.subject, trace.channels, tuple(trace.observations))
        require_whole(trace, scenario)
    except (KeyboardInterrupt, TimeLimitError):
        raise
    except BaseException as error:
        # pytest.skip() and sys.exit() are no way out either.
        raise SubjectCrashedError(during, error) from error
    return trace


def require_whole(trace: Trace, scenario: Scenario) -> None:
    """Raise MalformedTraceError for a trace with something twice, or of no request or no type that there is."""
    for again in trace.duplicates:
        raise MalformedTraceError(f"{again.channel} {again.key} is reported twice")
    for channel, key, _value in trace.observations:
        if not -1 <= key.request < len(scenario.requests):
            known = f"0 to {len(scenario.requests) - 1}, or -1 for none"
            raise MalformedTraceError(f"invalid {channel} {key}: expected a request from {known}")
    for problem in malformed(trace):
        raise MalformedTraceError(problem)


def silent_channels(subject: Subject, scenario: Scenario, trace: Trace, reference: Trace) -> frozenset[str]:
    """Return the declared channels that only the reference observes: no run may escape its contracts by silence.

    Raises SubjectCrashedError for a declared channel that is unknown, or that the trace does not even name.
    """
    with _crashing("in its declaration"):
        declared = subject.channels(scenario)
        if not isinstance(declared, Set):
            raise SubjectDeclarationError(f"invalid channels {declared!r} of {subject.name}: expected a set of names")
        for name in declared - CHANNELS.keys():
            raise SubjectDeclarationError(
                f"invalid channel {name!r} of {subject.name}: expected one of docs/semantics/channels.md"
                f"{did_you_mean(str(name), CHANNELS)}"
            )
        if limits_of(subject).own_prefix_cache and "round.rows" in declared and "round.cached" not in declared:
            raise SubjectDeclarationError(
                f"invalid channels of {subject.name}: expected round.cached beside round.rows, as its limits have"
                " own_prefix_cache: rows alone do not tell what a prefix cache served from what was forgotten"
            )
    applying = reference.channels if scenario.taps else reference.channels - TAPPED
    due = declared & applying
    if lacking := sorted(due - trace.channels):
        error = MalformedTraceError(f"the trace lacks {', '.join(lacking)}, which its subject declares")
        raise SubjectCrashedError("at its end", error) from error
    return frozenset(name for name in due - _COUNTED if reference.channel(name) and not trace.channel(name))


@contextmanager
def closing(subject: Subject) -> Iterator[Subject]:
    """Close a subject at the end. Raises SubjectCrashedError for whatever it raises then."""
    try:
        yield subject
    finally:
        with _crashing("in close()"):
            subject.close()


@contextmanager
def _crashing(during: str) -> Iterator[None]:
    """Raise SubjectCrashedError for whatever a subject raises when it is asked what it is: no way out either."""
    try:
        with exits_noticed():
            yield
    except (KeyboardInterrupt, TimeLimitError):
        raise
    except BaseException as error:
        raise SubjectCrashedError(during, error) from error
