"""Factories of subjects that end their process, or try to, report next to nothing, or what they are told."""

import atexit
import ctypes
import os
import sys
from dataclasses import replace
from typing import NoReturn

import typer

from draftproof.properties.values.limits import Limits
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.values.subject import Subject
from draftproof.properties.values.trace import Key, Observation, Trace
from draftproof.reference.run import ReferenceSubject


def exits() -> NoReturn:
    sys.exit(0)


def exits_as_a_command() -> NoReturn:
    raise typer.Exit(0)


def exits_at_once() -> NoReturn:
    os._exit(0)


class Ending(ReferenceSubject):
    """Ends the process from C, where nothing of Python notices."""

    def run(self, scenario: Scenario, script: Script) -> Trace:
        ctypes.CDLL(None)._exit(0)
        return super().run(scenario, script)


class EndingLater(ReferenceSubject):
    """Crashes, and would have the process end in green."""

    def run(self, scenario: Scenario, script: Script) -> Trace:
        atexit.register(ctypes.CDLL(None)._exit, 0)
        raise IndexError("page 9 is out of range")


class Unlimited(ReferenceSubject):
    """Would end the process in green, `by` some function of its name, when it is asked what it can run."""

    def __init__(self, by: str) -> None:
        self._by = by

    @property
    def limits(self) -> NoReturn:  # type: ignore[override]
        {"exit": sys.exit, "_exit": os._exit}[self._by](0)


class Leaving(ReferenceSubject):
    """Would end the command in green when it is asked `at` anything but to run."""

    def __init__(self, at: str) -> None:
        self._at = at

    def channels(self, scenario: Scenario) -> frozenset[str]:
        self._leave("channels")
        return super().channels(scenario)

    def close(self) -> None:
        self._leave("close")

    def _leave(self, at: str) -> None:
        if at == self._at:
            raise typer.Exit(0)


class Unclosed(ReferenceSubject):
    """Cannot be closed."""

    def close(self) -> None:
        raise IndexError("page 9 is out of range")


class Wavering(ReferenceSubject):
    """Says each time that it can run something else."""

    _times = 0

    @property
    def limits(self) -> Limits:
        self._times += 1
        return Limits(max_rows=self._times, features="all")


class Misnamed(ReferenceSubject):
    """Has a draft that there is not."""

    limits = Limits(drafts=("ngrams",))  # type: ignore[arg-type]


class Mute(ReferenceSubject):
    """Declares one channel and observes nothing on it."""

    def channels(self, scenario: Scenario) -> frozenset[str]:
        return frozenset({"accept.correct_len"})

    def run(self, scenario: Scenario, script: Script) -> Trace:
        return replace(super().run(scenario, script), channels=self.channels(scenario), observations=())


class Copying(Subject):
    """Emits what the script says, and runs nothing."""

    name = "copying"

    def channels(self, scenario: Scenario) -> frozenset[str]:
        return frozenset({"accept.emitted"})

    def run(self, scenario: Scenario, script: Script) -> Trace:
        said = []
        for number, request in enumerate(script.requests):
            said.append(Observation("accept.emitted", Key(number, 0), request.tokens[:1]))
            said += [
                Observation("accept.emitted", Key(number, place), round_.emitted)
                for place, round_ in enumerate(request.rounds, start=1)
            ]
        return Trace(self.name, self.channels(scenario), tuple(said))
