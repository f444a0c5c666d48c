"""The process of one rank: it runs its part of every scenario that it is ordered to, until no more orders come."""

from __future__ import annotations

import builtins
import faulthandler
import os
import signal
import sys
import traceback
from typing import NamedTuple

import msgspec

from draftproof.harness.hunk_counters import COUNTER, HunkCounters
from draftproof.harness.ranks.messages import RankOrder, RankRaised, RankTraced, receive, send
from draftproof.properties.lib.base import Value
from draftproof.properties.values.subject import RankPlace, Subject
from draftproof.subjects.making import made
from draftproof.subjects.process import die_with_parent
from draftproof.subjects.remote.values import to_wire

RANK_MODULE = "draftproof.harness.ranks.rank"


class RankStart(Value, frozen=True, kw_only=True):
    """What a rank in a new interpreter is told: its place, and MODULE:NAME with the settings that make its subject.

    `path` comes first where engine/ and kernels/ are looked for.
    """

    place: RankPlace
    made_as: tuple[str, dict[str, str]]
    path: str


class RankPipes(NamedTuple):
    """Where orders come from, where answers go, and the log, which has whatever the rank prints."""

    orders: int
    answers: int
    log: int


def serve(subject: Subject, place: RankPlace, pipes: RankPipes) -> None:
    """Answer orders; what the subject prints goes into the log, and so do all stacks at SIGUSR1."""
    die_with_parent()
    for number in (signal.SIGINT, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for stream in (1, 2):
        os.dup2(pipes.log, stream)
    faulthandler.enable(file=pipes.log)
    faulthandler.register(signal.SIGUSR1, file=pipes.log, all_threads=True)
    if hasattr(subject, "announce"):
        # The journal of a worker is its own.
        subject.announce = _say_nothing
    counters = _counters()
    while order := receive(pipes.orders):
        send(pipes.answers, _answer(subject, place, order, counters))


def _say_nothing(step: int, launch: str) -> None:
    """Do nothing."""


def _answer(
    subject: Subject, place: RankPlace, order: RankOrder, counters: HunkCounters | None
) -> RankTraced | RankRaised:
    try:
        trace = subject.run_rank(order.scenario, order.script, place)
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in frames if "/engine/" in frame.filename or "/kernels/" in frame.filename] or frames
        return RankRaised(
            kind=type(error).__name__,
            message=str(error),
            where=f"{'/'.join(ours[-1].filename.split('/')[-2:])}:{ours[-1].lineno} {ours[-1].name}",
            traceback="".join(traceback.format_exception(error)),
            hunks=counters.numbers if counters else (),
        )
    return RankTraced(trace=to_wire(trace), hunks=counters.numbers if counters else ())


def _counters() -> HunkCounters | None:
    """Return what counts the hunks of patched sources in this process, if they are patched."""
    counters = getattr(getattr(builtins, COUNTER, None), "__self__", None)
    return counters if isinstance(counters, HunkCounters) else None


def main(start: RankStart, pipes: RankPipes) -> None:
    """Make the subject and serve."""
    package = sys.modules["draftproof"].__path__
    if start.path not in package[:1]:
        package.insert(0, start.path)
    if not hasattr(builtins, COUNTER):
        HunkCounters(()).install()
    serve(made(*start.made_as), start.place, pipes)


if __name__ == "__main__":
    main(msgspec.json.decode(sys.argv[1], type=RankStart), RankPipes(*map(int, sys.argv[2:5])))
