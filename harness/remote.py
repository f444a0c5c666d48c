"""A subject that runs in another Python, seen from here: its process may die, hang or lack what it needs.

A process that ended, or was ended because time was up, is started again for the next order.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from draftproof.harness.remote_process import (
    SilentSubjectError,
    SubjectEndedError,
    SubjectLog,
    SubjectProcess,
    interpreter,
)
from draftproof.properties.lib.errors import ConditionError, DraftproofError
from draftproof.properties.lib.names import did_you_mean
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.values.subject import Hook, Subject
from draftproof.properties.values.subject_choice import SubjectChoice
from draftproof.properties.values.trace import Trace
from draftproof.subjects.making import known, resolve_name
from draftproof.subjects.remote.bootstrap import LEAST_PYTHON
from draftproof.subjects.remote.messages import (
    AnySubjectAnswer,
    AnySubjectOrder,
    AskChannels,
    AskHooks,
    ChannelsDeclared,
    CloseSubject,
    HooksFound,
    LaunchAnnounced,
    MakeSubject,
    RunScenario,
    RunTraced,
    SubjectMade,
    SubjectRaised,
)
from draftproof.subjects.remote.values import from_wire

_START_SECONDS = 300.0
"""How long making a subject, or answering anything but a run, may take."""
_CLOSE_SECONDS = 20.0
_LONGEST_LINE = 300
_ELSEWHERE = "its own process"
_SAYS_ALL = ("SubjectNameError", "SubjectDeclarationError")
"""What a subject's process raises with a message that is for the user as it is."""


class RemoteStartError(DraftproofError, ValueError):
    """A subject cannot be made in another Python; the message says what is missing there and how to get it.

    `lacks` is the module of the engine that is not installed there, if that is why.
    """

    def __init__(self, message: str, lacks: str = "") -> None:
        self.lacks = lacks
        super().__init__(message)


class RemoteError(DraftproofError):
    """What the subject raised in its process, or that this ended: each as a type of the same name as there.

    `where` is the innermost frame there; its traceback is a note.
    """

    where = _ELSEWHERE


def remote_error(
    kind: str, message: str, where: str = _ELSEWHERE, note: str = "", *, is_condition: bool = False
) -> RemoteError:
    """Return an error of the type's name there; it is a ConditionError if it is one there."""
    kinds = (RemoteError, ConditionError) if is_condition else (RemoteError,)
    error = type(kind, kinds, {"where": where})(message)
    if note:
        error.add_note(note)
    assert isinstance(error, RemoteError)
    return error


class RemoteSubject(Subject):
    """A subject in another interpreter. `search` is its PYTHONPATH; `log` a file for its output.

    That is `shown` on stderr, too. `versions` are the versions of its packages there. Raises RemoteStartError.
    """

    def __init__(
        self,
        choice: SubjectChoice,
        *,
        device: str = "cpu",
        search: str = "",
        log: Path | None = None,
        shown: bool = False,
    ) -> None:
        self._choice, self._search, self._log = choice, search, SubjectLog(log, shown=shown)
        self._settings = {"device": device, **choice.settings}
        self._declared: dict[Scenario, frozenset[str]] = {}
        self._process: SubjectProcess | None = None
        self.announce: Callable[[int, str], None] = lambda _step, _launch: None
        try:
            made = self._start()
        except BaseException:
            self._log.close()
            raise
        self.name, self.limits, self.versions = made.name, made.limits, made.versions
        if not made.announces:
            del self.announce

    def again(self, choice: SubjectChoice) -> None:
        """Make another subject in the same interpreter, and as long as that lives in the same process.

        Raises RemoteStartError.
        """
        self._settings = {"device": self._settings["device"], **choice.settings}
        self._choice, self._declared = choice, {}
        made = self._start() if self._process is None else self._made()
        self.name, self.limits, self.versions = made.name, made.limits, made.versions

    def channels(self, scenario: Scenario) -> frozenset[str]:
        """Return what it declares there; asked once for each scenario."""
        if scenario not in self._declared:
            answer = self._asked(AskChannels(scenario=scenario), _START_SECONDS)
            assert isinstance(answer, ChannelsDeclared)
            self._declared[scenario] = answer.channels
        return self._declared[scenario]

    def run(self, scenario: Scenario, script: Script) -> Trace:
        """Run there. Raises RemoteError, by the name of what was raised or of how the process ended."""
        answer = self._asked(RunScenario(scenario=scenario, script=script), None)
        assert isinstance(answer, RunTraced)
        return from_wire(answer.trace)

    def hooks(self) -> tuple[Hook, ...]:
        """Return what it found in its engine there."""
        answer = self._asked(AskHooks(), _START_SECONDS)
        assert isinstance(answer, HooksFound)
        return answer.hooks

    def close(self) -> None:
        """Close it there, and end its process in any case."""
        try:
            if self._process is not None:
                self._exchange(CloseSubject(), _CLOSE_SECONDS)
        except (SubjectEndedError, SilentSubjectError):
            pass
        finally:
            self._kill()
            self._log.close()

    def _asked(self, order: AnySubjectOrder, seconds: float | None) -> AnySubjectAnswer:
        if self._process is None:
            self._start()
        self._log.mark()
        try:
            answer = self._exchange(order, seconds)
        except SubjectEndedError as end:
            tail = self._ended()
            raise remote_error(
                end.how, f"the process of the subject ended before it answered\n{tail}".strip()
            ) from None
        except BaseException as error:
            # Time is up, or a stop was requested: what it does now would answer the next order.
            assert self._process is not None
            error.add_note(self._process.stacks())
            self._kill()
            raise
        if isinstance(answer, SubjectRaised):
            raise remote_error(
                answer.kind, answer.message, answer.where, answer.traceback, is_condition=answer.is_condition
            )
        return answer

    def _exchange(self, order: AnySubjectOrder, seconds: float | None) -> AnySubjectAnswer:
        assert self._process is not None
        self._process.send(order)
        try:
            while isinstance(answer := self._process.receive(seconds), LaunchAnnounced):
                self.announce(answer.step, answer.launch)
        finally:
            self._log.show()
        return answer

    def _start(self) -> SubjectMade:
        """Start the process and make the subject in it. Raises RemoteStartError."""
        python = self._choice.python
        try:
            self._process = SubjectProcess(interpreter(python), self._search, self._log)
        except FileNotFoundError as error:
            raise RemoteStartError(f"invalid --python {python!r}: {error.args[-1]}") from None
        except OSError as error:
            raise RemoteStartError(
                f"invalid --python {python!r}: expected a Python interpreter, and it cannot be run: {error.strerror}"
            ) from None
        return self._made(self._process)

    def _made(self, fresh: SubjectProcess | None = None) -> SubjectMade:
        """Make the subject in the process, which has said nothing yet if it is fresh. Raises RemoteStartError."""
        python, name = self._choice.python, self._choice.name
        self._log.mark()
        try:
            if fresh is not None:
                self._require(fresh.receive_frame(_START_SECONDS))
            there = self._there(name)
            answer = self._exchange(MakeSubject(name=there, settings=self._settings), _START_SECONDS)
        except SubjectEndedError as end:
            last = (self._ended() or "it printed nothing").splitlines()[-1]
            raise RemoteStartError(
                f"invalid --python {python!r}: expected a Python in which subject {name!r} starts, and its process "
                f"ended before that ({end.how}): {last[:_LONGEST_LINE]}"
            ) from None
        except BaseException:
            self._kill()
            raise
        if isinstance(answer, SubjectRaised):
            self._kill()
            raise _unmade(python, name, there, answer)
        assert isinstance(answer, SubjectMade)
        return answer

    def _there(self, name: str) -> str:
        """Return what to import there: a name that is not registered here may be registered there."""
        try:
            return resolve_name(name)
        except ValueError:
            return name

    def _require(self, first: bytes) -> None:
        """Raise RemoteStartError if the other Python says that it lacks what its side needs."""
        try:
            said = json.loads(first)
        except ValueError:
            raise SubjectEndedError("garbled answer") from None
        python, lacks = self._choice.python, said["lacks"]
        if not lacks:
            return
        self._kill()
        if lacks == "python":
            least = ".".join(map(str, LEAST_PYTHON))
            raise RemoteStartError(
                f"invalid --python {python!r}: expected Python {least} or newer, not {said['python']}"
            )
        raise RemoteStartError(
            f"invalid --python {python!r}: expected one that has numpy and msgspec, and it cannot import {lacks} "
            f"({said['why']}); try: {python} -m pip install numpy msgspec"
        )

    def _ended(self) -> str:
        """Put an end to the process, and return the last that it printed."""
        self._kill()
        return self._log.tail()

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = None


def _unmade(python: str, name: str, there: str, raised: SubjectRaised) -> RemoteStartError:
    lacks, invalid = raised.lacks, f"invalid --subject {name!r}"
    if lacks and f"{there.partition(':')[0]}.".startswith(f"{lacks}."):
        return RemoteStartError(f"{invalid}: expected a module that {python} can import; put its folder on PYTHONPATH")
    if lacks:
        return RemoteStartError(
            f"invalid --python {python!r}: expected a Python in which {lacks} is installed, which subject {name!r}"
            " needs",
            lacks,
        )
    if raised.known is not None:
        here, elsewhere = sorted(known()), ", ".join(raised.known) or "none"
        return RemoteStartError(
            f"{invalid}: expected package.module:name, or a name that is registered here ({', '.join(here)}) or in"
            f" {python} ({elsewhere}){did_you_mean(name, [*here, *raised.known])}"
        )
    if raised.kind in _SAYS_ALL:
        return RemoteStartError(raised.message.replace(repr(there), repr(name)))
    if raised.is_condition:
        return RemoteStartError(raised.message)
    last = raised.message.strip().splitlines()
    said = f"{raised.kind}: {last[0]}" if last else raised.kind
    return RemoteStartError(f"{invalid}: expected one that can be made in {python}, not {said}, at {raised.where}")
