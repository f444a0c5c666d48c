"""From an order to its answer, in the worker: run both sides, judge, count, and say how far it came."""

from __future__ import annotations

import hashlib
import re
import time
import traceback
from collections.abc import Iterable

import msgspec

from draftproof.harness.lockstep import Solved, SubjectCrashedError, evidence, solved
from draftproof.harness.workers.journal import Journal
from draftproof.harness.workers.messages import Answer, Order
from draftproof.properties.coverage import bins
from draftproof.properties.coverage.counts import counts
from draftproof.properties.diagnosis.timeline import timeline
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.judge import judge
from draftproof.properties.subject import Subject
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.values.trace import Observation, Trace
from draftproof.properties.values.validate import InvalidScenarioError, validate
from draftproof.properties.values.verdict import Outcome

_DEVICE_ERROR = re.compile(r"(?:CUDA error|Triton Error \[CUDA\]): (?:an? )?(.+?)(?: was encountered)?$", re.MULTILINE)


class _Journalled:
    """A subject whose runs are told to the journal: the first is the base run, the second the run of the variant."""

    def __init__(self, subject: Subject, journal: Journal) -> None:
        self._subject, self._journal = subject, journal
        self.name, self.channels = subject.name, subject.channels
        self._runs = 0

    def run(self, scenario: Scenario, script: Script) -> Trace:
        self._journal.enter("variant" if self._runs else "base")
        self._runs += 1
        trace = self._subject.run(scenario, script)
        self._journal.enter("reference")
        return trace


class Executor:
    """Answers orders with one subject, whose `announce`, if it has one, goes to the journal."""

    def __init__(self, subject: Subject, journal: Journal, index: int) -> None:
        self._subject, self._journal, self._index = subject, journal, index
        if hasattr(subject, "announce"):
            subject.announce = journal.announce

    def answer(self, order: Order) -> Answer:
        """Never raises: what the subject raises is CRASH, what our own code raises is ERROR."""
        began = time.perf_counter()
        self._journal.begin(order.number)
        answer = self._answer(order)
        seconds = round(time.perf_counter() - began, 6)
        return msgspec.structs.replace(answer, seconds=seconds, worker=self._index)

    def _answer(self, order: Order) -> Answer:
        try:
            validate(order.scenario)
            ran = evidence(_Journalled(self._subject, self._journal), order.scenario, self._solved)
            self._journal.enter("judge")
            return _judged(order, ran)
        except SubjectCrashedError as crash:
            refused = isinstance(crash.__cause__, InvalidScenarioError)
            return Answer(
                number=order.number,
                outcome=Outcome.ERROR if refused else Outcome.CRASH,
                place=self._journal.place,
                error=kind_of(crash.__cause__ or crash),
                detail=crash.trace,
            )
        except Exception as error:
            return _own_error(order, error)

    def _solved(self, scenario: Scenario) -> Solved:
        self._journal.enter("reference")
        return solved(scenario)


def kind_of(error: BaseException) -> str:
    """The kind of an error, the same however a device's error came to light."""
    found = _DEVICE_ERROR.search(str(error))
    return f"AcceleratorError: {found[1]}" if found else type(error).__name__


def _own_error(order: Order, error: Exception) -> Answer:
    return Answer(
        number=order.number,
        outcome=Outcome.ERROR,
        error=type(error).__name__,
        detail="".join(traceback.format_exception(error)),
    )


def _judged(order: Order, ran: Evidence) -> Answer:
    judged = judge(ran)
    answer = Answer(
        number=order.number,
        outcome=Outcome.PASS if judged.first is None else Outcome.FAIL,
        judged=tuple(judged.results),
        failed=tuple(name for name, found in judged.results.items() if found),
        first=judged.first,
        output_changed=ran.output_changed,
    )
    try:
        return _described(answer, order, ran)
    except Exception as error:
        # A trace that is wrong enough to trip what describes it is a finding all the same.
        own = _own_error(order, error)
        return own if judged.first is None else msgspec.structs.replace(answer, detail=own.detail)


def _described(answer: Answer, order: Order, ran: Evidence) -> Answer:
    shown = timeline(ran, answer.first) if order.timeline and answer.first else None
    exercised = {name: count for name, count in counts(ran).items() if count}
    return msgspec.structs.replace(
        answer,
        counts=exercised,
        bins=tuple(sorted(bins(ran))),
        digest=digest(ran) if order.digest else "",
        timeline=shown,
    )


def digest(ran: Evidence) -> str:
    """A hash over all that the subject reported, of both runs."""
    hashed = hashlib.blake2b(digest_size=16)
    for trace in (ran.subject, ran.varied):
        for part in _parts(trace.observations if trace else ()):
            hashed.update(part)
        hashed.update(b"\1")
    return hashed.hexdigest()


def _parts(observations: Iterable[Observation]) -> Iterable[bytes]:
    for channel, key, value in observations:
        yield f"{channel}{tuple(key)}".encode()
        yield repr(value).encode() if isinstance(value, int | tuple | bytes) else value.tobytes()
