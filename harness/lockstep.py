"""One scenario in lockstep: the reference and the subject run it, and what both saw is put side by side."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace

from draftproof.errors import DraftproofError
from draftproof.harness.signals import TimeLimitError, exits_noticed
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.values.channels import CHANNELS, TAPPED
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.names import did_you_mean
from draftproof.properties.values.observed import BatchRow
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.script import Finish, Script, steering
from draftproof.properties.values.subject import Subject, SubjectDeclarationError, require_subject
from draftproof.properties.values.trace import MalformedTraceError, Observation, Trace
from draftproof.properties.values.valuetypes import malformed
from draftproof.properties.variants import varied as varied_scenario
from draftproof.reference.control import observations
from draftproof.reference.memo import Memo
from draftproof.reference.rounding import with_rounded
from draftproof.reference.run import run
from draftproof.reference.solve import resolve, solve
from draftproof.reference.text import with_token_gaps


@dataclass(frozen=True)
class Solved:
    """A scenario with what the reference makes of it; `varied` is its trace of the variant run, if that is another.

    A dynamic scenario has no trace before a subject ran; `memo` is what `resolved` need not compute again then.
    """

    scenario: Scenario
    script: Script
    trace: Trace | None = None
    varied: Trace | None = None
    memo: Memo | None = None


Reference = Callable[[Scenario], Solved]


def solved(scenario: Scenario) -> Solved:
    """Solve a scenario and trace its script; nothing is kept from one scenario to the next."""
    memo = Memo()
    script = solve(scenario, memo)
    return Solved(scenario, script, memo=memo) if scenario.dynamic else _traced(scenario, script, memo)


def _traced(scenario: Scenario, script: Script, memo: Memo, finish: Finish = "cut") -> Solved:
    """Return what the reference says of the variant, which only another way to commit changes."""
    other = varied_scenario(scenario) if scenario.variant == "other_commit" else None
    varied = _reference(other, script, memo, finish) if other else None
    return Solved(scenario, script, _reference(scenario, script, memo, finish), varied)


def _reference(scenario: Scenario, script: Script, memo: Memo, finish: Finish) -> Trace:
    return with_rounded(scenario, script, run(scenario, script, memo, finish), finish)


def resolved(known: Solved, ran: Trace, finish: Finish = "cut") -> Solved:
    """Solve a dynamic scenario for the batches and the numbers of drafts that a subject chose, and for its `finish`.

    Nothing else is taken from the subject.
    """
    scenario, memo = known.scenario, known.memo or Memo()
    if not scenario.dynamic:
        return known if finish == "cut" else _traced(scenario, known.script, memo, finish)
    rows = {key[:2]: (row.step, row.count) for key, row in ran.typed("round.rows", BatchRow).items() if row.phase == 1}
    script = resolve(scenario, known.script, {place: count for place, (_, count) in rows.items()}, memo)
    correct = {
        (request, number): round_.correct_len
        for request, of_request in enumerate(script.requests)
        for number, round_ in enumerate(of_request.rounds, start=1)
    }
    control = tuple(observations(scenario, rows, correct))
    done = _traced(scenario, script, memo, finish)
    return replace(done, trace=_with(done.trace, control), varied=_with(done.varied, control))


def _with(trace: Trace | None, more: tuple[Observation, ...]) -> Trace | None:
    if trace is None:
        return None
    channels = trace.channels | {observation.channel for observation in more}
    return replace(trace, channels=channels, observations=(*trace.observations, *more))


class SubjectCrashedError(DraftproofError):
    """The subject raised. `during` names the run, `where` the innermost frame, `trace` is the whole traceback."""

    def __init__(self, during: str, error: BaseException) -> None:
        self.during, self.cause = during, error
        self.where = _where(error)
        self.trace = "".join(traceback.format_exception(error))
        text = str(error).strip().splitlines()
        self.error = f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
        super().__init__(f"{self.error}, in {self.where}, {during}")


def _where(error: BaseException) -> str:
    """Return the innermost frame of ours, as file:line function; the innermost of all if there is none.

    An error of a subject in another Python says itself where it was raised.
    """
    if isinstance(elsewhere := getattr(error, "where", None), str):
        return elsewhere
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return "no frame"
    ours = [frame for frame in frames if "/engine/" in frame.filename or "/kernels/" in frame.filename]
    frame = (ours or list(frames))[-1]
    return f"{'/'.join(frame.filename.split('/')[-2:])}:{frame.lineno} {frame.name}"


def evidence(subject: Subject, scenario: Scenario, reference: Reference = solved) -> Evidence:
    """Run the base pair and, if the scenario draws a variant, the variant run. Raises SubjectCrashedError."""
    known, limits = reference(scenario), _limits(subject)
    base = _run(subject, scenario, known.script, "in the base run")
    other = None
    if scenario.variant != "none":
        other = _run(subject, varied_scenario(scenario), known.script, f"in the run of variant {scenario.variant}")
    known = resolved(known, base, limits.finish)
    assert known.trace is not None
    runs = [(scenario, base, known.trace)]
    if other is not None:
        runs.append((varied_scenario(scenario), other, known.varied or known.trace))
    silent = frozenset[str]().union(*(_silent(subject, *of_run) for of_run in runs))
    expected, *varied = (with_token_gaps(of, known.script, trace, ran.texts) for of, ran, trace in runs)
    expected_varied = varied[0] if varied and varied[0] is not expected else None
    return Evidence(scenario, known.script, expected, base, other, expected_varied, silent=silent, limits=limits)


def _run(subject: Subject, scenario: Scenario, script: Script, during: str) -> Trace:
    try:
        with exits_noticed():
            trace = subject.run(scenario, steering(script))
        if not isinstance(trace, Trace):
            raise MalformedTraceError(f"run() returned {trace!r}: expected a Trace")
        for again in trace.duplicates:
            raise MalformedTraceError(f"{again.channel} {again.key} is reported twice")
        for problem in malformed(trace):
            raise MalformedTraceError(problem)
    except (KeyboardInterrupt, TimeLimitError):
        raise
    except BaseException as error:
        # pytest.skip() and sys.exit() are no way out either.
        raise SubjectCrashedError(during, error) from error
    return trace


def _limits(subject: Subject) -> Limits:
    try:
        require_subject(subject)
    except SubjectDeclarationError as error:
        raise SubjectCrashedError("in its declaration", error) from error
    return subject.limits


def _silent(subject: Subject, scenario: Scenario, trace: Trace, reference: Trace) -> frozenset[str]:
    """Return the declared channels that only the reference observes: no run may escape its contracts by silence.

    Raises SubjectCrashedError for a declared channel that is unknown, or that the trace does not even name.
    """
    declared = subject.channels(scenario)
    for name in sorted(declared - CHANNELS.keys()):
        error = MalformedTraceError(
            f"invalid channel {name!r}: expected one of the channel table{did_you_mean(name, CHANNELS)}"
        )
        raise SubjectCrashedError("in its declaration", error) from error
    applying = reference.channels if scenario.taps else reference.channels - TAPPED
    due = declared & applying
    if lacking := sorted(due - trace.channels):
        error = MalformedTraceError(f"the trace lacks {', '.join(lacking)}, which its subject declares")
        raise SubjectCrashedError("at its end", error) from error
    return frozenset(name for name in due if reference.channel(name) and not trace.channel(name))
