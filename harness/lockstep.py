"""One scenario in lockstep: the reference and the subject run it, and what both saw is put side by side."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from draftproof.errors import ConditionError, DraftproofError
from draftproof.harness.ranks.world import RanksHangError, World, world
from draftproof.harness.signals import TimeLimitError, exits_noticed
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.evidence.lockstep import Lockstep
from draftproof.properties.evidence.schedule import ObservedSchedule
from draftproof.properties.evidence.tensor_ranks import TensorRanks, part_of_rank
from draftproof.properties.evidence.tolerances import right_part, slack_of_entries
from draftproof.properties.values.chain_tree import script_as_tree
from draftproof.properties.values.channels import CHANNELS, TAPPED
from draftproof.properties.values.fp8 import draft_keeps, target_keeps
from draftproof.properties.values.limits import NO_LIMITS, Limits, finish_of
from draftproof.properties.values.names import did_you_mean
from draftproof.properties.values.observed import BatchRow, TokenIds
from draftproof.properties.values.scenario import Scenario, Variant, of_rank
from draftproof.properties.values.script import Finish, Script, steering
from draftproof.properties.values.subject import Subject, require_subject
from draftproof.properties.values.trace import Key, MalformedTraceError, Observation, Trace
from draftproof.properties.values.valuetypes import malformed
from draftproof.properties.variants import RESHAPED
from draftproof.properties.variants import varied as varied_scenario
from draftproof.reference.control import observations
from draftproof.reference.follow import drafts_given, drafts_in_place, drafts_verified, parents_verified, rounds_ended
from draftproof.reference.logprobs import logprob_gaps
from draftproof.reference.memo import Memo
from draftproof.reference.prefix_cache import without_served
from draftproof.reference.rounding import with_rounded
from draftproof.reference.run import run
from draftproof.reference.solve import UNCHANGED, Place, resolve, solve
from draftproof.reference.stored import Following
from draftproof.reference.text import TokenGaps, token_gaps


@dataclass(frozen=True)
class Solved:
    """A scenario with what the reference makes of it; `varied` is its trace of the variant run, if that is another.

    A dynamic scenario has no trace before a subject ran; `memo` is what `resolved` need not compute again then. Of
    `ranks` it has the part of each, solved alone, and the script of all.
    """

    scenario: Scenario
    script: Script
    trace: Trace | None = None
    varied: Trace | None = None
    memo: Memo | None = None
    ranks: tuple[Solved, ...] = ()


Reference = Callable[[Scenario], Solved]
_OTHERS: frozenset[Variant] = frozenset({"other_commit", "chain_as_tree", "unoverlapped"})
"""Variants of which the reference says something else than of the scenario."""


def solved(scenario: Scenario) -> Solved:
    """Solve a scenario and trace its script; nothing is kept from one scenario to the next."""
    if scenario.ranks.data > 1:
        parts = tuple(_solved_alone(of_rank(scenario, rank)) for rank in range(scenario.ranks.data))
        scripts = [iter(part.script.requests) for part in parts]
        script = Script(requests=tuple(next(scripts[request.rank]) for request in scenario.requests))
        return Solved(scenario, script, ranks=parts)
    return _solved_alone(scenario)


def _solved_alone(scenario: Scenario) -> Solved:
    memo = Memo()
    script = solve(scenario, memo)
    return Solved(scenario, script, memo=memo) if scenario.dynamic else _traced(scenario, script, memo)


def _traced(scenario: Scenario, script: Script, memo: Memo, limits: Limits = NO_LIMITS) -> Solved:
    """Return what the reference says, and of a variant that another commit changes, a tree, or a host that waits."""
    other = varied_scenario(scenario) if scenario.variant in _OTHERS else None
    of_other = script_as_tree(script) if other and other.tree and not scenario.tree else script
    varied = _reference(other, of_other, memo, finish_of(other, limits)) if other else None
    return Solved(scenario, script, _reference(scenario, script, memo, finish_of(scenario, limits)), varied)


def _reference(scenario: Scenario, script: Script, memo: Memo, finish: Finish) -> Trace:
    return with_rounded(scenario, script, run(scenario, script, memo, finish), finish, memo.following)


def _following(scenario: Scenario, ran: Trace) -> Following | None:
    """Return what the reference takes of the entries that a subject stored: how it rounded them to FP8 (S-KV-6)."""
    if not (target_keeps(scenario) or draft_keeps(scenario.draft)):
        return None
    texts = [request.prompt + ran.texts.get(index, ()) for index, request in enumerate(scenario.requests)]
    return Following(ran, texts, partial(slack_of_entries, scenario))


def resolved(
    known: Solved,
    ran: Trace,
    limits: Limits = NO_LIMITS,
    rows: Trace | None = None,
    followed: Mapping[int, TokenIds] = UNCHANGED,
) -> Solved:
    """Return what the reference says of a subject's run: of the rounds that it ran, and of what it ran in them."""
    done = _resolved(known, ran, limits, rows, followed)
    if not done.scenario.schedule.prefix_cache:
        return done
    served = ObservedSchedule(ran).cached
    return replace(done, trace=without_served(done.trace, served), varied=without_served(done.varied, served))


def _resolved(
    known: Solved, ran: Trace, limits: Limits, rows: Trace | None, followed: Mapping[int, TokenIds]
) -> Solved:
    """Solve a scenario for the drafts that a subject verified, and for their numbers where it chose these (S-FOLLOW-1).

    Nothing else is taken from the subject, but for texts to be `followed` behind a tie (S-FOLLOW-8). `limits` say what
    its last round commits, and when its first drafts come. `rows` is the run that numbers of drafts and batches are
    taken from, if it is another.
    """
    scenario, memo, rows = known.scenario, known.memo or Memo(), rows or ran
    following = _following(scenario, ran)
    memo = Memo(following=following) if following else memo
    verified, again = drafts_verified(scenario, ran, limits), ObservedSchedule(rows).resumed
    parents = parents_verified(scenario, ran)
    solved_so = _is_as_solved(known.trace, "round.drafts", verified)
    solved_so = solved_so and _is_as_solved(known.trace, "round.parents", parents)
    ended = rounds_ended(scenario, rows)
    if not scenario.dynamic and not again and not followed and not ended and solved_so and not following:
        return known if limits.finish == NO_LIMITS.finish else _traced(scenario, known.script, memo, limits)
    chooses = limits.steering == "none"
    given = drafts_given(scenario, rows)
    script = resolve(
        scenario,
        known.script,
        given,
        memo,
        verified,
        again,
        chooses=chooses,
        followed=followed,
        parents=parents,
        ended=ended,
    )
    done = _traced(scenario, script, memo, limits)
    control = tuple(_control(scenario, rows, script))
    return replace(done, trace=_with(done.trace, control), varied=_with(done.varied, control))


def _is_as_solved(reference: Trace | None, channel: str, verified: Mapping[Place, TokenIds]) -> bool:
    """Return whether a subject verified what the reference expected of it."""
    if reference is None:
        return False
    expected = reference.typed(channel, tuple)
    return all(expected.get(Key(*place), ()) == rows for place, rows in verified.items())


def _control(scenario: Scenario, ran: Trace, script: Script) -> Iterator[Observation]:
    rows = {key[:2]: (row.step, row.count) for key, row in ran.typed("round.rows", BatchRow).items() if row.phase == 1}
    correct = {
        (request, number): round_.correct_len
        for request, of_request in enumerate(script.requests)
        for number, round_ in enumerate(of_request.rounds, start=1)
    }
    return observations(scenario, rows, correct)


def _with(trace: Trace | None, more: tuple[Observation, ...]) -> Trace | None:
    if trace is None:
        return None
    channels = trace.channels | {observation.channel for observation in more}
    return replace(trace, channels=channels, observations=(*trace.observations, *more))


class SubjectCrashedError(DraftproofError):
    """The subject raised. `during` names the run, `where` the innermost frame, `trace` is the whole traceback.

    Of a condition that needs none `trace` is the message.
    """

    def __init__(self, during: str, error: BaseException) -> None:
        self.during, self.cause = during, error
        self.where = _where(error)
        is_condition = isinstance(error, ConditionError)
        self.trace = str(error) if is_condition else "".join(traceback.format_exception(error))
        text = str(error).strip().splitlines()
        self.error = f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
        super().__init__(str(error) if is_condition else f"{self.error}, in {self.where}, {during}")


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
    limits = _limits(subject)
    if scenario.ranks.data > 1:
        return _of_ranks(subject, reference(scenario), limits)
    if scenario.ranks.tensor > 1 and subject.has_ranks:
        return _of_tensor_ranks(subject, _for_subject(reference(scenario), limits), limits)
    solution = _for_subject(reference(scenario), limits)
    base = run_subject(subject, scenario, solution.script, "in the base run")
    of_run, known, gaps = _of_run(subject, solution, base, limits)
    if scenario.variant == "none":
        return of_run
    expected, silent = of_run.reference, of_run.silent
    changed = varied_scenario(scenario)
    if scenario.variant == "alone":
        return _beside_alone(subject, of_run, changed, reference)
    other = run_subject(subject, changed, solution.script, f"in the run of variant {scenario.variant}")
    forked = other.texts != base.texts
    rounds = [(drafts_verified(scenario, one, limits), parents_verified(scenario, one)) for one in (base, other)]
    # Batches of other shapes may round an entry otherwise, and the reference follows each run.
    follows = scenario.variant in RESHAPED and known.trace is not None and _following(changed, other) is not None
    if forked or rounds[0] != rounds[1] or follows:
        if forked:
            given = drafts_in_place(changed, other, limits)
            gaps = token_gaps(changed, solution.script, other.texts, given, _following(changed, other))
        followed = _followed(changed, other, gaps)
        known = resolved(solution, other, limits, rows=None if forked and followed else base, followed=followed)
    varied = _expected(changed, known.varied or known.trace, gaps, other)
    return replace(
        of_run,
        varied=other,
        varied_reference=varied if varied is not expected else None,
        varied_script=known.script,
        silent=silent | _silent(subject, changed, other, varied),
    )


def _beside_alone(subject: Subject, of_run: Evidence, changed: Scenario, reference: Reference) -> Evidence:
    """Return the evidence of a run with that of its requests alone, of which the rounds may be others."""
    alone = evidence(subject, changed, reference)
    return replace(
        of_run,
        varied=alone.subject,
        varied_reference=alone.reference,
        varied_script=alone.script,
        silent=of_run.silent | alone.silent,
    )


def _of_run(subject: Subject, solution: Solved, base: Trace, limits: Limits) -> tuple[Evidence, Solved, TokenGaps]:
    """Return the evidence of the base run, what the reference says of it, and the gaps of its texts."""
    scenario = solution.scenario
    given, following = drafts_in_place(scenario, base, limits), _following(scenario, base)
    gaps = token_gaps(scenario, solution.script, base.texts, given, following)
    known = resolved(solution, base, limits, followed=_followed(scenario, base, gaps))
    expected = _expected(scenario, known.trace, gaps, base)
    silent = _silent(subject, scenario, base, expected)
    return Evidence(scenario, known.script, expected, base, silent=silent, limits=limits), known, gaps


def _of_ranks(subject: Subject, solution: Solved, limits: Limits) -> Evidence:
    """Run the ranks of a scenario beside each other, and judge each by what its requests do alone (S-RANK-2).

    The evidence is that of the first rank, with those of all. A subject that has no ranks serves one after another.
    """
    parts = [_for_subject(part, limits) for part in solution.ranks]
    if not subject.has_ranks:
        of_ranks = [
            _of_run(subject, part, run_subject(subject, part.scenario, part.script, f"on rank {rank}"), limits)[0]
            for rank, part in enumerate(parts)
            if part.scenario.requests
        ]
        return replace(of_ranks[0], ranks=tuple(of_ranks))
    traces = run_ranks(subject, solution.scenario, solution.script)
    of_ranks = [_of_run(subject, part, trace, limits)[0] for part, trace in zip(parts, traces, strict=True)]
    lockstep = Lockstep(tuple(of_ranks))
    together = tuple(replace(one, lockstep=lockstep) for one in of_ranks)
    return replace(together[0], ranks=together)


def _of_tensor_ranks(subject: Subject, solution: Solved, limits: Limits) -> Evidence:
    """Run a scenario on ranks that share every layer, and judge each by its part of what one rank would do (S-TP-2).

    A subject that has no ranks runs it as any other.
    """
    scenario = solution.scenario
    traces = run_ranks(subject, scenario, solution.script)
    of_ranks = [_of_run(subject, solution, trace, limits)[0] for trace in traces]
    own = [replace(one, reference=part_of_rank(one.reference, scenario, rank)) for rank, one in enumerate(of_ranks)]
    beside = TensorRanks(tuple(own), of_ranks[0].reference)
    together = tuple(replace(one, beside=beside) for one in own)
    return replace(together[0], ranks=together)


def run_ranks(subject: Subject, scenario: Scenario, script: Script) -> tuple[Trace, ...]:
    """Return the traces of all ranks. Raises RanksHangError, and SubjectCrashedError for whatever else goes wrong."""
    try:
        of_subject: World = world(subject.inner, scenario.ranks.size)
        traces: tuple[Trace, ...] = of_subject.run(scenario, steering(script))
        for rank, trace in enumerate(traces):
            _require_whole(trace, of_rank(scenario, rank))
    except (KeyboardInterrupt, TimeLimitError, RanksHangError):
        raise
    except BaseException as error:
        raise SubjectCrashedError("in the run of its ranks", error) from error
    return traces


def _for_subject(known: Solved, limits: Limits) -> Solved:
    """Return the solution with a script that steers a subject whose first round may begin later in the text."""
    if limits.first_drafts == "own round" or known.scenario.dynamic:
        return known
    return replace(known, script=solve(known.scenario, known.memo, limits.first_drafts))


def _expected(scenario: Scenario, trace: Trace | None, gaps: TokenGaps, ran: Trace) -> Trace:
    """Return what the reference says of a run, the text that it emitted and what it told of its tokens included."""
    assert trace is not None
    told = logprob_gaps(scenario, trace, ran, _following(scenario, ran))
    return replace(trace, token_gaps=gaps, logprob_gaps=told) if gaps or told else trace


def _followed(scenario: Scenario, ran: Trace, gaps: TokenGaps) -> Mapping[int, TokenIds]:
    """Return the texts that go another right way, each as far as it is right (S-FOLLOW-8)."""
    parts = {at: right_part(scenario, ran.texts[at], of_text) for at, of_text in gaps.items()}
    return {at: part for at, part in parts.items() if any(gap.below > 0 for gap in gaps[at][: len(part)])}


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
        _require_whole(trace, scenario)
    except (KeyboardInterrupt, TimeLimitError):
        raise
    except BaseException as error:
        # pytest.skip() and sys.exit() are no way out either.
        raise SubjectCrashedError(during, error) from error
    return trace


def _require_whole(trace: Trace, scenario: Scenario) -> None:
    """Raise MalformedTraceError for a trace with something twice, or of no request or no type that there is."""
    for again in trace.duplicates:
        raise MalformedTraceError(f"{again.channel} {again.key} is reported twice")
    for channel, key, _value in trace.observations:
        if not -1 <= key.request < len(scenario.requests):
            known = f"0 to {len(scenario.requests) - 1}, or -1 for none"
            raise MalformedTraceError(f"invalid {channel} {key}: expected a request from {known}")
    for problem in malformed(trace):
        raise MalformedTraceError(problem)


def _limits(subject: Subject) -> Limits:
    with _declaring():
        require_subject(subject)
        return subject.limits


@contextmanager
def _declaring() -> Iterator[None]:
    """Raise SubjectCrashedError for whatever a subject raises when it is asked what it is: no way out either."""
    try:
        with exits_noticed():
            yield
    except (KeyboardInterrupt, TimeLimitError):
        raise
    except BaseException as error:
        raise SubjectCrashedError("in its declaration", error) from error


def _silent(subject: Subject, scenario: Scenario, trace: Trace, reference: Trace) -> frozenset[str]:
    """Return the declared channels that only the reference observes: no run may escape its contracts by silence.

    Raises SubjectCrashedError for a declared channel that is unknown, or that the trace does not even name.
    """
    with _declaring():
        declared = frozenset(subject.channels(scenario))
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
