"""The ranks of a subject as processes that are kept from one scenario to the next.

A rank that dies is an error of its scenario. Ranks that do not go on together are a hang: the error says in which
collective each rank waits, and where its threads are.
"""

from __future__ import annotations

import builtins
import contextlib
import os
import selectors
import shutil
import signal
import sys
import tempfile
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

import msgspec

from draftproof.harness.hunk_counters import COUNTER
from draftproof.harness.ranks.messages import (
    RANKS_IN,
    AnyRankAnswer,
    RankOrder,
    RankRaised,
    RankTraced,
    answer_in,
    send,
)
from draftproof.harness.ranks.rank import RANK_MODULE, RankPipes, RankStart, serve
from draftproof.properties.formats.rank_journal import RankJournal
from draftproof.properties.lib.errors import DraftproofError
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.values.subject import RankPlace, Subject
from draftproof.properties.values.trace import Trace
from draftproof.subjects.remote.values import from_wire

QUIET_SECONDS = 20.0
"""Ranks count as hung if none enters a collective or ends for this long."""
QUIET_ON_DEVICES = 300.0
"""The same for ranks in interpreters of their own, which have modules to import and kernels to compile."""
_TICK, _GRACE, _DUMP_SECONDS = 0.02, 0.5, 0.3
_LONGEST_LOG = 20_000


class RanksHangError(DraftproofError):
    """Ranks that wait for each other: the message says in which collectives, `stacks` where every rank is."""

    def __init__(self, message: str, stacks: str) -> None:
        self.stacks = stacks
        super().__init__(message)


class RankDiedError(DraftproofError):
    """The process of a rank ended while it ran a scenario."""


class RankRaisedError(DraftproofError):
    """A rank raised: its message, `where` that was, and its traceback as a note."""

    def __init__(self, rank: int, raised: RankRaised) -> None:
        self.where = f"{raised.where} of rank {rank}"
        super().__init__(f"rank {rank}: {raised.kind}: {raised.message}")
        self.add_note(raised.traceback)


class _Rank:
    """A forked process, its pipes and its log."""

    def __init__(self, subject: Subject, place: RankPlace, others: list[_Rank]) -> None:
        self.number, self.buffer = place.rank, bytearray()
        self.log = Path(place.meeting) / f"{place.rank}.log"
        orders, answers = os.pipe(), os.pipe()
        self.orders, self.answers = orders[1], answers[0]
        log = os.open(self.log, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        pipes = RankPipes(orders[0], answers[1], log)
        if subject.spawned_as is None:
            not_its_own = (orders[1], answers[0], *(end for one in others for end in (one.orders, one.answers)))
            self.pid = _forked(subject, place, pipes, not_its_own)
        else:
            self.pid = _spawned(RankStart(place=place, made_as=subject.spawned_as, path=_first_path()), pipes)
        for pipe in (orders[0], answers[1], log):
            os.close(pipe)

    def end(self) -> str:
        """Wait for the end of the process and say how it ended."""
        _, status = os.waitpid(self.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        return signal.Signals(-code).name if code < 0 else f"exit {code}"

    def logged(self) -> str:
        return self.log.read_bytes()[-_LONGEST_LOG:].decode(errors="replace").strip()


def _forked(subject: Subject, place: RankPlace, pipes: RankPipes, not_its_own: tuple[int, ...]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        for pipe in not_its_own:
            os.close(pipe)
        serve(subject, place, pipes)
        code = 0
    finally:
        os._exit(code)


def _spawned(start: RankStart, pipes: RankPipes) -> int:
    """Start a new interpreter, in which the subject is made anew."""
    paths = os.pathsep.join(str(Path(path).resolve()) for path in sys.path if path)
    numbers = [str(number) for number in pipes]
    command = [sys.executable, "-P", "-m", RANK_MODULE, msgspec.json.encode(start).decode(), *numbers]
    for pipe in pipes:
        os.set_inheritable(pipe, True)
    # The code that ends the ranks waits for them by number.
    return os.posix_spawn(sys.executable, command, {**os.environ, "PYTHONPATH": paths})


def _first_path() -> str:
    """Return the folder that engine/ and kernels/ come from, if it is not where they are installed."""
    return str(sys.modules["draftproof"].__path__[0])


class World:
    """`size` ranks of a subject, which are forked now and end with this process or with `close`."""

    def __init__(self, subject: Subject, size: int) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="draftproof-ranks-", dir=os.environ.get(RANKS_IN)))
        self._journal = RankJournal(self._folder / "journal", size)
        self._ranks: list[_Rank] = []
        self._quiet = QUIET_ON_DEVICES if subject.spawned_as else QUIET_SECONDS
        for rank in range(size):
            place = RankPlace(rank=rank, size=size, meeting=str(self._folder))
            self._ranks.append(_Rank(subject, place, self._ranks))

    @property
    def is_open(self) -> bool:
        return bool(self._ranks)

    def run(self, scenario: Scenario, script: Script) -> tuple[Trace, ...]:
        """Return the traces of all ranks. Raises RanksHangError, RankDiedError and RankRaisedError.

        Ranks that have raised, or have diverged, are not used again.
        """
        self._journal.clear()
        try:
            for rank in self._ranks:
                with contextlib.suppress(BrokenPipeError):  # its end is read from its other pipe
                    send(rank.orders, RankOrder(scenario=scenario, script=script))
            answers = self._answers()
            self._credit([*answers.values()])
            raised = next(((rank, one) for rank, one in answers.items() if isinstance(one, RankRaised)), None)
            if raised:
                raise RankRaisedError(*raised)
        except BaseException:
            self.close()
            raise
        if not self._did_the_same():
            self.close()
        return tuple(from_wire(one.trace) for _, one in sorted(answers.items()) if isinstance(one, RankTraced))

    def close(self) -> None:
        """End all ranks."""
        ranks, self._ranks = self._ranks, []
        for rank in ranks:
            with contextlib.suppress(ProcessLookupError):
                os.kill(rank.pid, signal.SIGKILL)
        for rank in ranks:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(rank.pid, 0)
            os.close(rank.orders)
            os.close(rank.answers)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _answers(self) -> dict[int, AnyRankAnswer]:
        """Wait for all of them, or for those that come soon after the first that raised."""
        answers: dict[int, AnyRankAnswer] = {}
        entered, since, last = -1, time.monotonic(), float("inf")
        with selectors.DefaultSelector() as selector:
            for rank in self._ranks:
                rank.buffer.clear()
                selector.register(rank.answers, selectors.EVENT_READ, rank)
            while len(answers) < len(self._ranks) and time.monotonic() < last:
                for key, _ in selector.select(_TICK):
                    answer = self._read(key.data)
                    if answer:
                        answers[key.data.number] = answer
                        selector.unregister(key.fileobj)
                        since = time.monotonic()
                        last = min(last, since + _GRACE) if isinstance(answer, RankRaised) else last
                count = sum(self._journal.count(rank.number) for rank in self._ranks)
                entered, since = (count, time.monotonic()) if count != entered else (entered, since)
                traced = [number for number, answer in answers.items() if isinstance(answer, RankTraced)]
                if self._is_left(traced) or self._journal.is_stuck or time.monotonic() - since > self._quiet:
                    raise self._hang(frozenset(answers))
        return answers

    def _is_left(self, ended: list[int]) -> bool:
        """Return whether a rank waits in a collective that one which has ended did not come to."""
        counts = [self._journal.count(rank) for rank in range(self._journal.ranks)]
        return any(counts[rank] < max(counts) for rank in ended) and self._journal.parting() is None

    def _read(self, rank: _Rank) -> AnyRankAnswer | None:
        data = os.read(rank.answers, 1 << 20)
        if not data:
            how, logged = rank.end(), rank.logged()
            self._ranks.remove(rank)
            error = RankDiedError(f"rank {rank.number} ended ({how}) while it ran its part")
            error.add_note(logged)
            raise error
        rank.buffer += data
        return answer_in(rank.buffer)

    def _credit(self, answers: list[AnyRankAnswer]) -> None:
        """Count hunks of patched sources that ran in a rank as if they had run here."""
        count = getattr(builtins, COUNTER, None)
        for number in {number for answer in answers for number in answer.hunks}:
            if count:
                count(number)

    def _did_the_same(self) -> bool:
        """Return whether all ranks entered the same collectives."""
        counts = {self._journal.count(rank.number) for rank in self._ranks}
        return len(counts) == 1 and self._journal.parting() is None

    def _hang(self, ended: frozenset[int]) -> RanksHangError:
        """Return the error, with the stacks of the ranks that wait."""
        ranks = range(self._journal.ranks)
        counts = [self._journal.count(rank) for rank in ranks]
        fewest = min(counts)
        parting = self._journal.parting()
        at = fewest if parting is None else parting
        said = []
        for rank in ranks:
            if counts[rank] > at:
                said.append(f"rank {rank} waits in {self._journal.entered(rank, at)}")
            else:
                said.append(f"rank {rank} {'has ended' if rank in ended else 'has not come'}")
        wanted = {str(self._journal.entered(rank, at)) for rank in ranks if counts[rank] > at}
        lacking = f"missing on some rank: {' or '.join(sorted(wanted))}" if wanted else "none was entered"
        return RanksHangError(f"collective {at}: {', '.join(said)}; {lacking}", self._stacks())

    def _stacks(self) -> str:
        for rank in self._ranks:
            with contextlib.suppress(ProcessLookupError):
                os.kill(rank.pid, signal.SIGUSR1)
        time.sleep(_DUMP_SECONDS)
        return "\n".join(f"rank {rank.number}:\n{rank.logged()}" for rank in self._ranks)


_WORLDS: weakref.WeakKeyDictionary[Subject, dict[int, World]] = weakref.WeakKeyDictionary()
"""The worlds of this process. A fork inherits its parent's, and must not use their pipes: see `world`."""
_OWNER = [os.getpid()]


def world(subject: Subject, size: int) -> World:
    """Return the ranks of a subject, started if they are not there."""
    if [os.getpid()] != _OWNER:
        _OWNER[:] = [os.getpid()]
        _WORLDS.clear()
    worlds = _WORLDS.setdefault(subject, {})
    if size not in worlds or not worlds[size].is_open:
        worlds[size] = made = World(subject, size)
        weakref.finalize(subject, _close, made, os.getpid())
    return worlds[size]


@contextlib.contextmanager
def anew() -> Iterator[None]:
    """Fork all ranks again, so that they have what is exchanged in this process meanwhile, and not behind it."""
    _end_all()
    try:
        yield
    finally:
        _end_all()


def _end_all() -> None:
    for worlds in [*_WORLDS.values()] if [os.getpid()] == _OWNER else []:
        for one in worlds.values():
            one.close()


def _close(made: World, owner: int) -> None:
    if owner == os.getpid():
        made.close()
