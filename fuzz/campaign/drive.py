"""A campaign from start to end: blocks of scenarios, their answers, and the findings worked out in between.

Scenarios are run in batches. While a batch begins to run the next one is planned, from what all batches before covered,
and no answer of it is looked at before that is done and kept. So the same seed gives the same campaign, whatever order
answers come in and whenever it is killed; for many workers a batch has more blocks. Between batches the findings are
worked out, with all workers, in at most half of the time.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from draftproof.errors import DraftproofError
from draftproof.fuzz.campaign.corpus import Corpus, name_of
from draftproof.fuzz.campaign.events import Events, Facts, Troubles
from draftproof.fuzz.campaign.findings import EXTRA, Findings, finding_of, sign, unstable
from draftproof.fuzz.campaign.interrupts import interruptible
from draftproof.fuzz.campaign.rundir import Files, RunDir
from draftproof.fuzz.campaign.schema import Finding, Waiting
from draftproof.fuzz.campaign.settings import Limits, Settings
from draftproof.fuzz.campaign.standing import Standing
from draftproof.fuzz.campaign.store import Store
from draftproof.fuzz.campaign.verdicts import verdicts
from draftproof.harness.workers.messages import Answer, Order
from draftproof.properties.values.drafts import algorithm
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.verdict import Outcome, Verdict, worst

EVERY = 50
"""One in so many scenarios is run a second time."""
AGAIN = 1 << 41
_PROGRESS, _SHOW, _POLL = 5.0, 0.25, 0.2
_MOST_ERRORS = 20
_MINIMISE_EVERY = 4
_WORKERS_A_BLOCK = 8
_LEAST_BUDGET, _MOST_BUDGET, _BUDGET_SHARE, _SHARE = 5.0, 60.0, 0.1, 0.5
_LAST_TRIES = 3


class Planned(Protocol):
    """A scenario, and why it is tried."""

    @property
    def scenario(self) -> Scenario: ...
    @property
    def origin(self) -> str: ...


class Guide(Protocol):
    """Plans blocks: a function of its seed and the arguments only."""

    def block(self, number: int, seen: Mapping[str, int], corpus: Sequence[Scenario]) -> Sequence[Planned]: ...


class Workers(Protocol):
    """What a campaign needs of a pool."""

    def submit(self, order: Order) -> None: ...
    def poll(self, timeout: float) -> list[Answer]: ...
    @property
    def free(self) -> int: ...
    @property
    def replaced(self) -> int: ...
    @property
    def deadline(self) -> float: ...


class End(NamedTuple):
    """How a call ended. `reason`: time, examples, closure, stall, interrupted, errors or workers; `lost` says what
    could not be written ("": everything was)."""

    reason: str
    verdict: Outcome
    contracts: tuple[Verdict, ...]
    findings: tuple[Finding, ...]
    facts: Facts
    holes: tuple[str, ...]
    troubles: tuple[str, ...]
    lost: str


class _CampaignInterruptedError(DraftproofError):
    """Somebody wants the campaign to end now."""


class Campaign:
    """One call of a campaign in a locked directory; `go` runs it. `possible` are the bins that can be covered at all.

    `watch` is told how it stands some times a second.
    """

    def __init__(
        self,
        directory: RunDir,
        settings: Settings,
        limits: Limits,
        pool: Workers,
        guide: Guide,
        *,
        possible: Sequence[str],
        width: int,
        watch: Callable[[Facts], None] = lambda _facts: None,
    ) -> None:
        """Raises CampaignError for a database that is damaged."""
        self.settings, self.limits = settings, limits
        self._pool, self._guide, self._width, self._watch = pool, guide, width, watch
        self._events = Events(directory.events)
        self._troubles = Troubles(self._events)
        self.store = Store(directory.database, self._troubles.say)
        self._standing = Standing(self.store.memory, limits, possible)
        self._files = Files(self._troubles.say)
        self._corpus = Corpus(directory.corpus, self.store, self._files)
        self.findings = Findings(
            directory=directory,
            store=self.store,
            files=self._files,
            say=self._events.say,
            trouble=self._troubles.say,
            run=self._run,
            origin=_origin(settings),
            width=width,
            deadline=lambda: pool.deadline,
        )
        self._backlog: deque[Order] = deque()
        self._ahead: list[Waiting] = []
        self._running: set[int] = set()
        self._extra: dict[int, Answer] = {}
        self._batch: Sequence[int] = ()
        self._stop = ""
        self._errors, self._working = 0, 0.0
        self._told = self._shown = 0.0
        self._doing = "starting"

    def go(self) -> End:
        """Run until an end is reached; everything that can be is written then."""
        try:
            with interruptible(self._asked):
                self._begin()
                while not (reason := self._over()):
                    self._step()
                self._drain()
                self._last(reason)
            return self._end(reason)
        finally:
            self.store.close()
            self._events.close()

    def _begin(self) -> None:
        memory, settings = self.store.memory, self.settings
        self._events.at = self._standing.at
        if "started" not in memory.facts:
            self.store.write(
                self.store.fact(
                    seed=settings.seed,
                    device=settings.device,
                    drafts=json.dumps(settings.drafts),
                    fault=settings.fault,
                    subject=settings.subject,
                    strategies=settings.strategies,
                    guided=int(settings.guided),
                    started=round(time.time(), 3),
                    block=-1,
                    seconds=0.0,
                    verdict="",
                )
            )
        for wrong in self._corpus.check():
            self._troubles.say(wrong)
        self.findings.check()
        begin = int(memory.facts.get("begin", 0))
        queued = [memory.queued[number] for number in sorted(memory.queued)]
        self._batch = range(int(memory.facts.get("before", 0)), begin)
        self._ahead = [waiting for waiting in queued if waiting.number >= begin]
        self._backlog.extend(self._second(number, scenario) for number, (_, scenario) in memory.again.items())
        self._backlog.extend(self._first(waiting) for waiting in queued if waiting.number < begin)
        told = {"seed": settings.seed, "fault": settings.fault, "workers": self._width}
        self._events.say("start", scenarios=memory.done, bins=self._standing.hit, **told)

    def _first(self, waiting: Waiting) -> Order:
        # A digest costs next to nothing, and is all that is left of a failure that does not come back.
        return Order(number=waiting.number, scenario=waiting.scenario, digest=True)

    def _second(self, number: int, scenario: Scenario) -> Order:
        return Order(number=AGAIN + number, scenario=scenario, digest=True)

    def _over(self) -> str:
        """Why the campaign ends now; "" if it goes on."""
        return self._stop or self._standing.over()

    def _step(self) -> None:
        if not self._backlog and not self._running:
            self._between()
            if self._over():
                return
            self._next()
        self._doing = "running"
        self._fill()
        self._listen()
        self._tick()

    def _fill(self) -> None:
        """Hand out what the workers can take, and no scenario beyond those that were asked for."""
        most = self.limits.examples
        while self._backlog and self._pool.free > 0:
            order = self._backlog.popleft()
            if most is not None and order.number < AGAIN and order.number >= most:
                continue
            self._running.add(order.number)
            self._pool.submit(order)

    def _listen(self) -> None:
        answers = self._poll()
        self._fill()
        for answer in answers:
            self._take(answer)

    def _poll(self) -> list[Answer]:
        try:
            return self._pool.poll(_POLL)
        except RuntimeError as error:
            # No worker starts any more: what is known is kept, and the reason is told.
            self._troubles.say(str(error))
            self._stop = "workers"
            return []

    def _take(self, answer: Answer) -> None:
        """One answer: in memory and in the database before anything else happens."""
        self._events.at = self._standing.at
        self._running.discard(answer.number)
        if answer.number >= AGAIN:
            self._take_second(answer)
        elif answer.number >= EXTRA:
            self._extra[answer.number] = answer
        else:
            self._take_first(answer)

    def _take_first(self, answer: Answer) -> None:
        memory, number = self.store.memory, answer.number
        scenario = memory.queued[number].scenario
        finding = finding_of(answer, scenario, number, self._standing.at)
        fresh = finding is not None and finding.identity not in memory.findings
        twice = number % EVERY == 0 and answer.outcome is not Outcome.ERROR
        new = self.store.done(answer, self._standing.at, sign=sign(answer) if twice else "", finding=finding)
        if twice:
            self._backlog.appendleft(self._second(number, scenario))
        self._tell(answer, new)
        if finding is not None and fresh:
            self.findings.announce(finding)

    def _tell(self, answer: Answer, new: Sequence[str]) -> None:
        ours, others = self._standing.add(answer.number, new)
        if ours:
            self._events.say("new_bin", scenario=answer.number, bins=ours)
        # What a failing run seems to reach says nothing of what can be.
        for name in others if answer.outcome is Outcome.PASS else ():
            self._troubles.say(f"scenario {answer.number} reached what was declared impossible: {name}")
        if answer.outcome in (Outcome.CRASH, Outcome.HANG):
            told = {"error": answer.error, "place": str(answer.place or ""), "worker": answer.worker}
            self._events.say("crash", scenario=answer.number, outcome=answer.outcome, **told)
        self._errors = self._errors + 1 if answer.outcome is Outcome.ERROR else 0
        if answer.outcome is Outcome.ERROR:
            last = answer.detail.strip().splitlines()[-1:] or [answer.error]
            self._troubles.say(f"an error of our own in scenario {answer.number}: {last[0]}")
        if self._errors >= _MOST_ERRORS:
            self._stop = "errors"

    def _take_second(self, answer: Answer) -> None:
        number = answer.number - AGAIN
        before, scenario = self.store.memory.again[number]
        now, finding = sign(answer), None
        if now != before:
            finding = unstable(number, scenario, self._standing.at, f"first run: {before}\nsecond run: {now}")
        fresh = finding is not None and finding.identity not in self.store.memory.findings
        self.store.compared(number, finding)
        if finding is not None and fresh:
            self.findings.announce(finding)

    def _next(self) -> None:
        """Begin the batch that was planned, and plan the next one before any answer to it is taken."""
        if not self._ahead:
            self._plan()
        self._batch = range(self._ahead[0].number, self._ahead[-1].number + 1)
        self._backlog.extend(self._first(waiting) for waiting in self._ahead)
        self._fill()
        self._plan()

    def _plan(self) -> None:
        """The next batch: in the database before any of it is handed out."""
        memory = self.store.memory
        self._doing = "planning"
        begin = int(memory.facts.get("block", -1)) + 1
        blocks = range(begin, begin + max(1, round(self._width / _WORKERS_A_BLOCK)))
        seen, corpus = {name: known.hits for name, known in memory.bins.items()}, self._corpus.scenarios
        proposed = [one for number in blocks for one in self._guide.block(number, seen, corpus)]
        if not proposed:
            raise RuntimeError(f"block {begin} is empty: expected at least one scenario")
        waiting = [
            Waiting(place, one.scenario, name_of(one.scenario), one.origin, algorithm(one.scenario.draft))
            for place, one in enumerate(proposed, start=memory.planned)
        ]
        self.store.queue(blocks[-1], waiting)
        self._ahead = waiting

    def _between(self) -> None:
        """What is done when a batch is: files, the corpus, and findings. To do it again changes nothing."""
        memory = self.store.memory
        if self._batch:
            self.store.write(self.store.settle(self._batch))
        # The last batch that was planned has not begun.
        done = int(memory.facts.get("batch", -1))
        if done > 0 and not done % _MINIMISE_EVERY and not any(number in memory.queued for number in self._batch):
            self._minimise()
        self._batch = ()
        self._save()
        self._work_out(max(_LEAST_BUDGET, _SHARE * self._standing.elapsed - self._working))

    def _minimise(self) -> None:
        gone = self._corpus.minimise()
        if gone is not None:
            self.store.write(gone)

    def _save(self) -> None:
        self._corpus.sync()
        self.findings.save()
        self._files.retry()
        taken = self._troubles.take()
        self.store.write(*([("INSERT INTO troubles VALUES(?, ?)", taken)] if taken else []))

    def _work_out(self, most: float) -> None:
        """Findings, one after the other, for about so many seconds."""
        began = time.monotonic()
        self._doing = "findings"
        try:
            while (waiting := self.findings.waiting) and not self._stop:
                left = most - (time.monotonic() - began)
                if left <= 0:
                    break
                self.findings.work_out(waiting[0], min(left, self._budget))
        except _CampaignInterruptedError:
            pass
        self._working += time.monotonic() - began

    @property
    def _budget(self) -> float:
        """Seconds that one finding may be shrunk for."""
        return min(_MOST_BUDGET, max(_LEAST_BUDGET, _BUDGET_SHARE * self.limits.time))

    def _run(self, orders: Sequence[Order]) -> list[Answer]:
        """The answers to orders of a finding. Raises _CampaignInterruptedError if the campaign is to end."""
        wanted = [order.number for order in orders]
        for order in orders:
            self._pool.submit(order)
        while any(number not in self._extra for number in wanted):
            if self._stop:
                raise _CampaignInterruptedError
            for answer in self._poll():
                self._take(answer)
            self._tick()
        return [self._extra.pop(number) for number in wanted]

    def _drain(self) -> None:
        """Wait for what is being run; the rest of the batch stays queued for the next time."""
        self._doing = "ending"
        self._backlog.clear()
        end = time.monotonic() + self._pool.deadline + 5
        while self._running and not self._stop and time.monotonic() < end:
            for answer in self._poll():
                self._take(answer)
            self._backlog.clear()
            self._tick()

    def _last(self, reason: str) -> None:
        """Second runs that are due, findings that are new, and all that is still to be written."""
        due = [self._second(number, scenario) for number, (_, scenario) in self.store.memory.again.items()]
        self._backlog.extend(due)
        while (self._backlog or self._running) and not self._stop:
            self._fill()
            self._listen()
            self._tick()
        if self._batch:
            self.store.write(self.store.settle(self._batch))
        self._save()
        self._work_out(2 * self._budget)
        self._progress()
        for _ in range(_LAST_TRIES):
            self._save()
            if not self.store.unwritten and not self._files.waiting:
                break
            time.sleep(_SHOW)

    def _end(self, reason: str) -> End:
        memory = self.store.memory
        contracts = verdicts(memory, self.settings)
        found = tuple(sorted(memory.findings.values(), key=lambda one: one.first))
        outcomes = [one.verdict for one in contracts] + [Outcome(one.outcome) for one in found]
        # Of our own, whatever ended the campaign: what is asked for last can fail, too.
        failed = bool({reason, self._stop} & {"errors", "workers"})
        verdict = Outcome.ERROR if failed else worst(outcomes)
        self.store.write(self.store.fact(verdict=verdict.value, seconds=round(self._standing.at, 3), reason=reason))
        lost = self._lost()
        verdict = Outcome.ERROR if lost else verdict
        count = self.facts.findings
        self._events.say("end", reason=reason, verdict=verdict, scenarios=memory.done, findings=count, lost=lost)
        self._doing = "ended"
        return End(
            reason=reason,
            verdict=verdict,
            contracts=contracts,
            findings=found,
            facts=self.facts,
            holes=self._standing.holes,
            troubles=tuple(what for _, what in self._troubles.kept),
            lost=lost,
        )

    def _lost(self) -> str:
        parts = [f"{self.store.unwritten} transactions of {self.store.path.name}"] if self.store.unwritten else []
        parts += [path.name for path in self._files.waiting]
        return ", ".join(parts)

    def _tick(self) -> None:
        """Tell how it stands, from time to time."""
        now = time.monotonic()
        if now - self._shown >= _SHOW:
            self._shown = now
            self._watch(self.facts)
        if now - self._told >= _PROGRESS:
            self._told = now
            self._progress()

    def _progress(self) -> None:
        facts = self.facts
        self._events.at = facts.at
        said = {name: value for name, value in facts._asdict().items() if name != "at"}
        self._events.say("progress", **said)
        crashes = facts.crashes + facts.hangs
        row = (facts.at, facts.scenarios, facts.hit, facts.findings, crashes, facts.rate, facts.stability)
        self.store.write(("INSERT OR REPLACE INTO progress VALUES(?, ?, ?, ?, ?, ?, ?)", [row]))

    @property
    def facts(self) -> Facts:
        """How it stands now."""
        return self._standing.facts(
            doing=self._doing,
            workers=self._width,
            replaced=self._pool.replaced,
            troubles=len(self._troubles.kept),
            unwritten=self.store.unwritten + len(self._files.waiting),
        )

    def _asked(self) -> bool:
        """Somebody wants it to end: at the next step, or now if that was said before."""
        before, self._stop = self._stop, self._stop or "interrupted"
        return bool(before)


def _origin(settings: Settings) -> str:
    """The begin of what case files say of where they came from."""
    fault = f" --fault {settings.fault}" if settings.fault else ""
    subject = f" --subject {settings.subject}" if settings.subject else ""
    return f"draftproof fuzz --seed {settings.seed} --device {settings.device}{fault}{subject}"
