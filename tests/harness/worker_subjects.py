"""A subject that does to its process what an engine can do, on demand; it takes the engine's place in a worker.

A file `act` in the folder that ORDERS_IN names says what: it happens at the third launch of a run.
"""

import ctypes
import mmap
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

from draftproof.engine.subject import EngineSubject
from draftproof.harness import lockstep
from draftproof.properties.lib.invalid import InvalidScenarioError
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.values.trace import Observation, Trace
from draftproof.reference.answer import RightRun

ORDERS_IN = "DRAFTPROOF_TEST_ACTS"
"""Environment variable that names the folder."""


class Acting(EngineSubject):
    """The engine, until it is told otherwise."""

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(device)
        self._folder = Path(os.environ[ORDERS_IN])

    def run(self, scenario: Scenario, script: Script) -> Trace:
        act = (self._folder / "act").read_text(encoding="utf-8")
        told, launches = self.announce, 0

        def announce(step: int, kind: str) -> None:
            nonlocal launches
            told(step, kind)
            launches += kind != "plan"
            if launches == 3 and kind != "plan" and act:
                getattr(self, act)()

        self.announce = announce
        try:
            trace = super().run(scenario, script)
        finally:
            self.announce = told
        return _altered(trace) if act == "wrong" else trace

    def mark(self, name: str) -> bool:
        """Leave a mark; whether there was none."""
        try:
            (self._folder / name).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def wrong(self) -> None:
        """The trace is altered at the end of the run."""

    def raises(self) -> None:
        raise IndexError("page 9 is out of range")

    def refuses(self) -> None:
        raise InvalidScenarioError("invalid max_batch 9: expected at most 4")

    def device_error(self) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nCUDA kernel errors may be late.")

    def accesses_illegally(self) -> None:
        from illegal_access import illegal_access

        illegal_access()

    def trips_the_reference(self) -> None:
        """Not the subject's doing at all: our own code raises, once."""
        right = lockstep.answer

        def answer(*_: object, **__: object) -> RightRun:
            lockstep.answer = right
            raise ZeroDivisionError("of our own")

        lockstep.answer = answer

    def prints(self) -> None:
        """What looks like an answer; and reads what would be the next order."""
        print('{"number":7,"outcome":"PASS"}', flush=True)
        os.write(1, b'{"number":8,"outcome":"PASS"}\n')
        assert sys.stdin is None or sys.stdin.read() == ""

    def segfaults(self) -> None:
        """Leaves a process that holds a copy of every file of the worker."""
        child = os.fork()
        if not child:
            time.sleep(600)
            os._exit(0)
        (self._folder / "child").write_text(str(child), encoding="utf-8")
        ctypes.string_at(0)

    def hangs(self) -> None:
        while True:
            time.sleep(0.01)

    def eats(self) -> None:
        eaten = []
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_POPULATE", 0)
        while True:
            eaten.append(mmap.mmap(-1, 64 << 20, flags=flags))
            time.sleep(0.02)

    def waits_once(self) -> None:
        """In the middle of an order, for as long as it takes to kill someone."""
        if self.mark("waits"):
            (self._folder / "pid").write_text(str(os.getpid()), encoding="utf-8")
            time.sleep(600)

    def garbles(self) -> None:
        """Writes into every pipe there is."""
        for number in range(3, 64):
            if os.path.exists(f"/proc/self/fd/{number}") and "pipe:" in os.readlink(f"/proc/self/fd/{number}"):
                try:
                    os.write(number, b"{not json}\n")
                except OSError:
                    continue
        time.sleep(600)


def _altered(trace: Trace) -> Trace:
    """The seed bug, as it shows."""
    return replace(trace, observations=tuple(_ahead(one) for one in trace.observations))


def _ahead(observation: Observation) -> Observation:
    if observation.channel != "draft.step.positions":
        return observation
    return observation._replace(value=observation.value + 1)  # type: ignore[operator]
