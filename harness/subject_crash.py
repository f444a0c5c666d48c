"""The error of a subject that raised, or of a trace that cannot be judged: which run, and where."""

from __future__ import annotations

import traceback
from typing import Any

from draftproof.properties.lib.errors import ConditionError, DraftproofError
from draftproof.properties.values.subject import SubjectDeclarationError


class SubjectCrashedError(DraftproofError):
    """The subject raised. `during` names the run, `where` the innermost frame, `trace` is the whole traceback.

    Of a condition, or of a declaration, `trace` is the message.
    """

    def __init__(self, during: str, error: BaseException) -> None:
        self.during, self.cause = during, error
        self.where = _where(error)
        is_condition = isinstance(error, ConditionError | SubjectDeclarationError)
        self.trace = str(error) if is_condition else "".join(traceback.format_exception(error))
        text = str(error).strip().splitlines()
        self.error = f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
        super().__init__(str(error) if is_condition else f"{self.error}, in {self.where}, {during}")

    def __reduce__(self) -> tuple[Any, ...]:
        """Come out of another process with the same words; what was raised there may not get that far."""
        return _told, (self.during, self.where, self.trace, self.error, str(self))


def _told(during: str, where: str, trace: str, error: str, message: str) -> SubjectCrashedError:
    """Return a crash of another process as it was told there; its cause is a RuntimeError with the same words."""
    crash = SubjectCrashedError(during, RuntimeError(message))
    crash.where, crash.trace, crash.error, crash.args = where, trace, error, (message,)
    return crash


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
