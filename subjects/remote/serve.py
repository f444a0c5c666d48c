"""The loop in the other Python: make the subject, and answer orders until there are no more."""

from __future__ import annotations

import faulthandler
import os
import signal
import traceback
from typing import BinaryIO

from draftproof.properties.lib.errors import ConditionError
from draftproof.properties.values.subject import Subject, require_subject
from draftproof.properties.values.trace import MalformedTraceError, Trace
from draftproof.subjects.making import EngineMissingError, UnknownSubjectError, made
from draftproof.subjects.process import die_with_parent, versions
from draftproof.subjects.remote.messages import (
    LENGTH,
    AnySubjectAnswer,
    AnySubjectOrder,
    AskChannels,
    AskHooks,
    ChannelsDeclared,
    CloseSubject,
    HooksFound,
    LaunchAnnounced,
    MakeSubject,
    RunTraced,
    SubjectClosed,
    SubjectMade,
    SubjectRaised,
    frame,
    order_of,
)
from draftproof.subjects.remote.values import to_wire


def serve(orders: int, answers: int) -> None:
    """Serve until `orders` ends or the subject is closed. This process ends with the one that started it."""
    die_with_parent()
    faulthandler.enable(file=2)
    faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)
    server = _Server(answers)
    with os.fdopen(orders, "rb") as stream:
        while (order := _next(stream)) is not None:
            server.say(server.answered(order))
            if isinstance(order, CloseSubject):
                return


def _next(stream: BinaryIO) -> AnySubjectOrder | None:
    head = stream.read(LENGTH.size)
    return order_of(stream.read(LENGTH.unpack(head)[0])) if len(head) == LENGTH.size else None


class _Server:
    """Holds the subject."""

    def __init__(self, answers: int) -> None:
        self._answers = answers
        self._subject: Subject | None = None

    def say(self, answer: AnySubjectAnswer) -> None:
        data = memoryview(frame(answer))
        while data:
            data = data[os.write(self._answers, data) :]

    def answered(self, order: AnySubjectOrder) -> AnySubjectAnswer:
        """Never raises: what the subject raises is an answer as well."""
        try:
            return self._made(order) if isinstance(order, MakeSubject) else self._asked(order)
        except BaseException as error:
            return _raised(error)

    def _made(self, order: MakeSubject) -> SubjectMade:
        subject = made(order.name, order.settings)
        require_subject(subject)
        announces = hasattr(subject, "announce")
        if announces:
            announce = lambda step, launch: self.say(LaunchAnnounced(step=step, launch=launch))  # noqa: E731
            setattr(subject, "announce", announce)  # noqa: B010  # an attribute that not every subject has
        self._subject = subject
        return SubjectMade(name=subject.name, limits=subject.limits, announces=announces, versions=versions(subject))

    def _asked(self, order: AnySubjectOrder) -> AnySubjectAnswer:
        subject = self._subject
        if subject is None:
            raise RuntimeError("no subject was made: expected MakeSubject to be the first order")
        if isinstance(order, AskChannels):
            return ChannelsDeclared(channels=frozenset(subject.channels(order.scenario)))
        if isinstance(order, AskHooks):
            return HooksFound(hooks=tuple(subject.hooks()))
        if isinstance(order, CloseSubject):
            subject.close()
            return SubjectClosed()
        assert not isinstance(order, MakeSubject)
        trace = subject.run(order.scenario, order.script)
        if not isinstance(trace, Trace):
            raise MalformedTraceError(f"run() returned {trace!r}: expected a Trace")
        return RunTraced(trace=to_wire(trace))


def _raised(error: BaseException) -> SubjectRaised:
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{'/'.join(frames[-1].filename.split('/')[-2:])}:{frames[-1].lineno} {frames[-1].name}" if frames else ""
    return SubjectRaised(
        kind=type(error).__name__,
        message=str(error),
        where=where,
        traceback="".join(traceback.format_exception(error)),
        lacks=(error.name or "") if isinstance(error, ImportError | EngineMissingError) else "",
        known=error.known if isinstance(error, UnknownSubjectError) else None,
        is_condition=isinstance(error, ConditionError),
    )
