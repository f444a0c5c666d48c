"""Two engines on the same prompts: do they propose the same drafts, and are as many accepted? (S-AUDIT-15)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from draftproof.harness.audit.compared import LEAST_ALIKE, MOST_ROUNDED
from draftproof.harness.audit.pairing import PairedLogs, first_parting, paired_logs, parting
from draftproof.harness.audit.says import chance
from draftproof.harness.audit.statistics import LEAST_PROMPTS, Tested, of_two
from draftproof.harness.audit.tally import OneRound, Tally, by_prompt, tally
from draftproof.properties.formats.comparison import EngineSeen, PairVerdict
from draftproof.properties.formats.round_log import LoggedText
from draftproof.properties.values.verdict import Outcome

Log = Sequence[LoggedText]


def engine_seen(side: str, log: Log) -> EngineSeen:
    """Return what a log shows of an engine: its rounds and what they accepted."""
    steps = max((one.asked for text in log for one in text.rounds), default=0)
    tallied = _tally(log, steps)
    return EngineSeen(
        side=side,
        rounds=int(tallied.rounds.sum()),
        accepted=tallied.mean,
        positions=tuple(map(float, tallied.rates)),
        steps=steps,
    )


def pair_verdict(side: str, one: Log, other: Log, *, exact: bool = False) -> PairVerdict:
    """Return how the engine `side` with the log `other` goes beside that of the log `one`.

    With `exact` every round must go alike, and every text: both are one engine, run in two ways.
    """
    logs = paired_logs(one, other, exact=exact)
    parted = [parting(start, exact=exact) for start in logs.starts]
    counted = Counter(None if one is None else one.depth for one in parted)
    alike = counted.pop(None, 0)
    seen = _Seen(one, other, logs, alike, alike + counted.total(), exact)
    return PairVerdict(
        side=side,
        verdict=seen.verdict,
        says=seen.says,
        prompts=seen.prompts,
        rounds=seen.rounds,
        same=alike,
        at_depth={depth: counted[depth] for depth in sorted(filter(None, counted))},
        fewer=seen.numbers.fewer,
        none=seen.numbers.none,
        texts=seen.texts,
        unpaired=logs.unpaired,
        p=seen.test.mean,
        position_p=tuple(map(float, seen.test.positions)),
        alarms=seen.alarms,
        first=first_parting(logs, exact=exact),
    )


class _Seen:
    def __init__(self, one: Log, other: Log, logs: PairedLogs, alike: int, rounds: int, exact: bool) -> None:
        self._logs, self._alike, self.rounds, self._exact = logs, alike, rounds, exact
        both = [(one[a], other[b]) for a, b in (text.places for text in logs.texts)]
        self._one, self._other = [a for a, _ in both], [b for _, b in both]
        self._most = _Most(_most_drafts(self._one), _most_drafts(self._other))
        self._tallies = _tally(self._one, self._most.compared), _tally(self._other, self._most.compared)
        self.test: Tested = of_two(*self._tallies)
        self.numbers = _Numbers.of(logs)

    @property
    def prompts(self) -> int:
        """Return how many prompts both have, each once."""
        return len(self._tallies[0].rounds)

    @property
    def texts(self) -> int:
        """Return how many texts go on otherwise."""
        return sum(text.parts_at is not None for text in self._logs.texts)

    @property
    def off(self) -> int:
        return self.rounds - self._alike

    @property
    def open(self) -> str:
        """Return why nothing is said, "" if something is."""
        if not self.rounds:
            return "no round of both begins after the same text"
        if not any(start.one.asked or start.other.asked for start in self._logs.starts):
            return "no draft was seen in the rounds on the same text, so nothing is said of drafting"
        if self._exact:
            return ""
        if self._most.differ:
            one, other = self._most
            return f"the first has at most {one} drafts a round and this one {other}: give both as many"
        if self.prompts < LEAST_PROMPTS:
            return f"no difference that so few prompts could show; give at least {LEAST_PROMPTS}"
        if self.off > (1 - LEAST_ALIKE) * self.rounds:
            return "more than rounding explains of a right engine, and too few to be sure"
        return ""

    @property
    def verdict(self) -> Outcome:
        if self._fails:
            return Outcome.FAIL
        return Outcome.INCONCLUSIVE if self.open else Outcome.PASS

    @property
    def _fails(self) -> bool:
        is_elsewhere = self.off > MOST_ROUNDED * self.rounds and self.prompts >= LEAST_PROMPTS
        return self.alarms or is_elsewhere or (self._exact and bool(self.off or self.texts))

    @property
    def alarms(self) -> bool:
        """Return whether what is accepted differs by more than chance."""
        return not self._most.differ and self.prompts >= LEAST_PROMPTS and self.test.alarms()

    @property
    def says(self) -> str:
        one, other = (tallied.mean for tallied in self._tallies)
        told = f"{other:.2f} accepted a round beside {one:.2f}"
        told += f" ({chance(self.test.mean)})" if self.alarms else ""
        told += f"; {self._alike} of {self.rounds} rounds on the same text went alike"
        told += str(self.numbers)
        told += f"; {self.texts} of {len(self._logs.texts)} texts differ" if self.texts else ""
        return told if self._fails or not self.open else f"{told}: {self.open}"


class _Numbers(NamedTuple):
    """In how many rounds the first and the other have fewer drafts, and in how many of these none."""

    fewer: tuple[int, int]
    none: tuple[int, int]

    @classmethod
    def of(cls, logs: PairedLogs) -> _Numbers:
        found = Counter(
            (side, (start.one, start.other)[side].asked == 0)
            for start in logs.starts
            if (side := start.fewer) is not None
        )
        none = (found[0, True], found[1, True])
        return cls((none[0] + found[0, False], none[1] + found[1, False]), none)

    def __str__(self) -> str:
        sides = zip(("the first", "this one"), self.fewer, self.none, strict=True)
        return "".join(
            f"; {side} had fewer drafts in {fewer} of them" + (f", none in {none} of these" if none else "")
            for side, fewer, none in sides
            if fewer
        )


class _Most(NamedTuple):
    """The most drafts that a round of either has; None if the log does not say how many there were."""

    one: int | None
    other: int | None

    @property
    def differ(self) -> bool:
        return None not in self and self.one != self.other

    @property
    def compared(self) -> int:
        return min(filter(None, self), default=1)


def _most_drafts(log: Log) -> int | None:
    told = [one.asked for text in log for one in text.rounds if one.drafts is not None or one.num_drafts is not None]
    return max(told, default=None)


def _tally(log: Log, positions: int) -> Tally:
    texts = [[OneRound(one.asked, len(one.emitted) - 1) for one in text.rounds] for text in log]
    return tally(by_prompt([text.prompt for text in log], texts), positions, idle_count=True)
