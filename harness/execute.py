"""Run one scenario on both sides and judge it: in a worker, or in the process that asks."""

from __future__ import annotations

import hashlib
import re
import time
import traceback
from collections.abc import Callable, Iterable, Sequence

import msgspec
import numpy as np

from draftproof.harness.lockstep import evidence
from draftproof.harness.ranks.messages import LOCKSTEP
from draftproof.harness.ranks.world import RanksHangError
from draftproof.harness.signals import TimeLimitError, time_limit
from draftproof.harness.subject_crash import SubjectCrashedError
from draftproof.harness.workers.journal import Journal
from draftproof.harness.workers.messages import Answer, Order, PlainOrder
from draftproof.properties.contracts.base import Contract
from draftproof.properties.contracts.registry import ALL
from draftproof.properties.coverage.bins import bins
from draftproof.properties.coverage.counts import counts
from draftproof.properties.diagnosis.timeline import timeline
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.judge import Judgement, judge
from draftproof.properties.lib.invalid import InvalidScenarioError
from draftproof.properties.validate import validate
from draftproof.properties.values.drafts import algorithm
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.script import Script, steering
from draftproof.properties.values.subject import Subject, SubjectDeclarationError
from draftproof.properties.values.trace import MalformedTraceError, Observation, Trace
from draftproof.properties.values.verdict import Outcome
from draftproof.reference.solved import Reference, Solved, solved

SCENARIO_DEADLINE = 120.0
"""Seconds for one scenario in the process that asks."""
_DEVICE_ERROR = re.compile(r"(?:CUDA error|Triton Error \[CUDA\]): (?:an? )?(.+?)(?: was encountered)?$", re.MULTILINE)
Observe = Callable[[Evidence, Judgement], None]


class _Journalled(Subject):
    """A subject that writes its runs to the journal: the first is the base run, the second the variant's."""

    def __init__(self, subject: Subject, journal: Journal) -> None:
        self._subject, self._journal = subject, journal
        self.name, self.limits = subject.name, subject.limits
        self._runs = 0

    def channels(self, scenario: Scenario) -> frozenset[str]:
        return self._subject.channels(scenario)

    @property
    def inner(self) -> Subject:
        return self._subject

    @property
    def has_ranks(self) -> bool:
        # Its processes are the subject's: this journal only notes that they run.
        self._journal.enter("base")
        return self._subject.has_ranks

    @property
    def most_ranks(self) -> int:
        return self._subject.most_ranks

    def run(self, scenario: Scenario, script: Script) -> Trace:
        self._journal.enter("variant" if self._runs else "base")
        self._runs += 1
        trace = self._subject.run(scenario, script)
        self._journal.enter("reference")
        return trace


class Executor:
    """Answers orders with one subject.

    `reference` solves scenarios; `deadline` is the seconds that a scenario may take (None: someone else looks after
    it); `observe` is called with the evidence and the judgement of every run that ended. A worker's `journal` is told
    of every step, and of every launch if the subject announces them.
    """

    def __init__(
        self,
        subject: Subject,
        *,
        contracts: Sequence[Contract] = ALL,
        reference: Reference = solved,
        deadline: float | None = None,
        observe: Observe = lambda _ran, _judged: None,
        journal: Journal | None = None,
    ) -> None:
        self._subject, self._contracts, self._reference = subject, contracts, reference
        self._deadline, self._observe, self._journal = deadline, observe, journal
        self._started = False
        if journal and hasattr(subject, "announce"):
            subject.announce = journal.announce

    def answer(self, order: Order | PlainOrder) -> Answer:
        """Run a scenario from outside. Never raises: what our own code raises, and a refusal, are an ERROR."""
        began = time.perf_counter()
        if self._journal:
            self._journal.begin(order.number)
        try:
            validate(order.scenario)
            answer = self.examine(order) if isinstance(order, Order) else self.run_plain(order)
        except Exception as error:
            answer = _own_error(order, error)
        if answer.outcome is Outcome.CRASH and answer.error == InvalidScenarioError.__name__:
            # A subject may refuse a scenario from outside.
            answer = msgspec.structs.replace(answer, outcome=Outcome.ERROR)
        return msgspec.structs.replace(answer, seconds=round(time.perf_counter() - began, 6))

    def examine(self, order: Order) -> Answer:
        """Run and judge a scenario of our own. What the subject raises is a CRASH.

        Raises SubjectDeclarationError for what it cannot declare, and what our own code raises.
        """
        subject = _Journalled(self._subject, self._journal) if self._journal else self._subject
        deadline = self._next_deadline()
        try:
            with time_limit(deadline):
                ran = evidence(subject, order.scenario, self._solved)
        except SubjectCrashedError as crash:
            if isinstance(crash.cause, SubjectDeclarationError):
                raise crash.cause from None
            return self._crashed(order, crash)
        except RanksHangError as hang:
            reason = str(hang)
            detail = f"{reason}\n{hang.stacks}"
            return Answer(number=order.number, outcome=Outcome.HANG, error=LOCKSTEP, reason=reason, detail=detail)
        except TimeLimitError as late:
            reason = f"the subject did not finish within {deadline:g} s"
            detail = "\n".join((reason, *getattr(late, "__notes__", ())))
            return Answer(number=order.number, outcome=Outcome.HANG, reason=reason, detail=detail)
        self._enter("judge")
        try:
            judged = judge(ran, self._contracts)
        except MalformedTraceError as error:
            return self._crashed(order, SubjectCrashedError("at its end", error))
        self._observe(ran, judged)
        return _described(order, ran, judged)

    def _next_deadline(self) -> float | None:
        """Return the seconds for the next scenario: the first has those that a model takes to load besides."""
        starting, self._started = not self._started, True
        limits = getattr(self._subject, "limits", None)
        if self._deadline is None or not starting or not isinstance(limits, Limits):
            return self._deadline
        return self._deadline + limits.start_seconds

    def run_plain(self, order: PlainOrder) -> Answer:
        """Run the subject on its own, and compare its output with plain greedy decoding."""
        script = self._solved(order.scenario).script
        self._enter("base")
        try:
            trace = self._subject.run(order.scenario, steering(script))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return self._crashed(order, SubjectCrashedError("in a plain run", error))
        return Answer(number=order.number, outcome=Outcome.PASS, counts=plain_counts(trace, script))

    def _crashed(self, order: Order | PlainOrder, crash: SubjectCrashedError) -> Answer:
        return Answer(
            number=order.number,
            outcome=Outcome.CRASH,
            place=self._journal.place if self._journal else None,
            error=kind_of(crash.cause),
            message=crash.error,
            reason=str(crash),
            detail=crash.trace,
        )

    def _solved(self, scenario: Scenario) -> Solved:
        self._enter("reference")
        return self._reference(scenario)

    def _enter(self, part: str) -> None:
        if self._journal:
            self._journal.enter(part)


def kind_of(error: BaseException) -> str:
    """Return the kind of an error, the same however a device's error came to light."""
    found = _DEVICE_ERROR.search(str(error))
    return f"AcceleratorError: {found[1]}" if found else type(error).__name__


def _own_error(order: Order | PlainOrder, error: Exception) -> Answer:
    return Answer(
        number=order.number,
        outcome=Outcome.ERROR,
        error=type(error).__name__,
        reason=f"{type(error).__name__}: {error}",
        detail="".join(traceback.format_exception(error)),
    )


def _described(order: Order, ran: Evidence, judged: Judgement) -> Answer:
    answer = Answer(
        number=order.number,
        outcome=Outcome.PASS if judged.first is None else Outcome.FAIL,
        judged=tuple(judged.results),
        failures={name: found for name, found in judged.results.items() if found},
        first=judged.first,
    )
    try:
        return _measured(answer, order, ran, judged)
    except Exception as error:
        if judged.first is None:
            raise
        # A trace that is wrong enough to trip what describes it is a finding all the same.
        return msgspec.structs.replace(answer, detail=_own_error(order, error).detail)


def _measured(answer: Answer, order: Order, ran: Evidence, judged: Judgement) -> Answer:
    shown = timeline(ran, answer.first) if order.timeline and answer.first else None
    answer = msgspec.structs.replace(answer, digest=digest(ran) if order.digest else "", timeline=shown)
    if not order.measured:
        return answer
    exercised = {name: count for name, count in counts(ran).items() if count}
    return msgspec.structs.replace(
        answer,
        counts=exercised,
        bins=tuple(sorted(bins(algorithm(ran.scenario.draft), exercised))),
        beyond=tuple(sorted(judged.unreachable)),
        channels=tuple(sorted(judged.channels)),
        left_out=tuple(sorted(judged.left_out)),
    )


def digest(ran: Evidence) -> str:
    """Return a hash over all that the subject reported, of both runs."""
    hashed = hashlib.blake2b(digest_size=16)
    for trace in [of for one in ran.ranks or (ran,) for of in (one.subject, one.varied)]:
        for part in _parts(trace.observations if trace else ()):
            hashed.update(part)
        hashed.update(b"\1")
    return hashed.hexdigest()


def _parts(observations: Iterable[Observation]) -> Iterable[bytes]:
    for channel, key, value in observations:
        yield f"{channel}{tuple(key)}".encode()
        yield value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode()


def plain_counts(trace: Trace, script: Script) -> dict[str, int]:
    """Count rounds and accepted drafts, and whether the output differs from plain greedy decoding."""
    lengths = [length for length in trace.channel("accept.correct_len").values() if isinstance(length, int)]
    texts = enumerate(request.tokens for request in script.requests)
    changed = any(trace.texts.get(number, ()) != tokens for number, tokens in texts)
    return {"scenarios": 1, "outputs_changed": int(changed), "drafts_accepted": sum(lengths), "rounds": len(lengths)}
