"""Subjects for a Python that has numpy and msgspec only: each does to its process what an engine can do."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from draftproof.properties.lib.errors import ConditionError
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.observed import LaunchKind, LaunchRecord
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.values.subject import Hook, Subject
from draftproof.properties.values.trace import Key, Observation, Trace


class Lean(Subject):
    """Reports one thing of each kind; `act` names what it does before."""

    name = "lean"
    limits = Limits(steering="none", max_rows=3, persistent=True)
    packages = ("numpy", "no-such-package")

    def __init__(self, act: str = "nothing", mark: str = "") -> None:
        self.act, self.mark = act, mark
        self.announce = lambda _step, _launch: None

    def channels(self, scenario: Scenario) -> frozenset[str]:
        return frozenset({"accept.emitted", "graph.replay", "verify.hidden"})

    def run(self, scenario: Scenario, script: Script) -> Trace:
        self.announce(3, "verify")
        getattr(self, self.act)()
        record = LaunchRecord(LaunchKind.VERIFY, 4, 2, 1, 3, 0)
        hidden = np.arange(3.0)
        hidden.flags.writeable = False
        observations = (
            Observation("accept.emitted", Key(0, 1), (5, 6)),
            Observation("graph.replay", Key(-1, 1, 0), record),
            Observation("verify.hidden", Key(0, 1, row=0), hidden),
        )
        return Trace(self.name, self.channels(scenario), observations)

    def hooks(self) -> tuple[Hook, ...]:
        return (Hook(name="scheduler", found=False, channels=("round.rows",), where="lean.Scheduler"),)

    def condition(self) -> None:
        raise ConditionError("the server at x answered 500: boom")

    def nothing(self) -> None:
        """Nothing out of the ordinary."""

    def raises(self) -> None:
        raise IndexError("page 9 is out of range")

    def exits(self) -> None:
        sys.exit(0)

    def leaves(self) -> None:
        print("leaving", file=sys.stderr, flush=True)
        os._exit(0)

    def segfaults(self) -> None:
        ctypes.string_at(0)

    def prints(self) -> None:
        print("what looks like an answer", flush=True)
        os.write(1, b"\x08" * 64)
        assert sys.stdin.read() == ""

    def hangs(self) -> None:
        """In a child of its own session, too; its pid is left behind."""
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        Path(self.mark).write_text(f"{os.getpid()} {child.pid}", encoding="utf-8")
        time.sleep(600)

    def garbles(self) -> None:
        for number in range(3, 64):
            if os.path.exists(f"/proc/self/fd/{number}") and "pipe:" in os.readlink(f"/proc/self/fd/{number}"):
                try:
                    os.write(number, b"{not a frame}\n")
                except OSError:
                    continue
        time.sleep(600)


class Looking(Lean):
    """Says in its name what can be imported beside it."""

    def __init__(self) -> None:
        super().__init__()
        wanted = ("torch", "typer", "hypothesis", "draftproof.harness", "draftproof.reference", "draftproof.engine")
        found = [name for name in wanted if importlib.util.find_spec(name) is not None]
        self.name = f"{sys.version_info[0]} {' '.join(found)}"


class Starting(Lean):
    """Says in its name whether a process of its own finds a module in the current folder."""

    def __init__(self) -> None:
        super().__init__()
        asked = "import importlib.util; print(importlib.util.find_spec('astray') is not None)"
        self.name = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout


def failing() -> Subject:
    raise RuntimeError("no engine today\nand not tomorrow")


def needing() -> Subject:
    import no_such_engine  # noqa: F401


def dying() -> Subject:
    print("out of memory, or so", file=sys.stderr, flush=True)
    os._exit(70)


def nobody() -> object:
    return object()


class Wrong(Lean):
    """Reports values that no channel has."""

    def run(self, scenario: Scenario, script: Script) -> Trace:
        return Trace(self.name, self.channels(scenario), (Observation("accept.emitted", Key(0, 1), [np.int64(5)]),))


class NoTrace(Lean):
    """Returns something else."""

    def run(self, scenario: Scenario, script: Script) -> Trace:
        return {"accept.emitted": 5}  # type: ignore[return-value]


class Needing(Lean):
    """Its engine is nowhere."""

    requires = ("no_such_engine",)
