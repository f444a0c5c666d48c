"""A campaign from start to end: blocks of scenarios, their answers, and the findings worked out in between.

Scenarios are run in batches. While a batch begins to run the next one is planned, and kept before any answer is looked
at. So the same seed gives the same campaign, whatever order answers come in and whenever it is killed; for many workers
a batch has more blocks. Between batches the findings are
worked out, with all workers, in at most half of the time.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from draftproof.fuzz.campaign.answers import Answers
from draftproof.fuzz.campaign.batches import Batches, Planner
from draftproof.fuzz.campaign.findings import Findings
from draftproof.fuzz.campaign.rundir import RunDir
from draftproof.fuzz.campaign.runner import Runner, StoppedError, Workers
from draftproof.fuzz.campaign.schema import CampaignFinding
from draftproof.fuzz.campaign.settings import CampaignLimits, DiskError, Settings
from draftproof.fuzz.campaign.standing import CampaignProgress, CampaignStatus, Troubles
from draftproof.fuzz.campaign.store import Store
from draftproof.fuzz.campaign.verdicts import verdicts
from draftproof.harness.signals import handled
from draftproof.properties.coverage.covered import Level, level_of
from draftproof.properties.values.limits import NO_LIMITS, Limits
from draftproof.properties.values.verdict import Outcome, Verdict, worst

_PROGRESS, _SHOW = 5.0, 0.25
_LEAST_BUDGET, _MOST_BUDGET, _BUDGET_SHARE, _SHARE = 5.0, 60.0, 0.1, 0.5
_OWN_FAULT = ("errors", "workers", "disk")


class CampaignEnd(NamedTuple):
    """How a call ended. `reason`: time, examples, closure, stall, interrupted, errors, workers or disk.

    `versions` names a subject other than the engine, and its packages; `level` says how much was reported,
    `left_out` what of that not in all scenarios that have it; `nodes` are the nodes of a cluster, with how many
    scenarios each ran.
    """

    reason: str
    verdict: Outcome
    contracts: tuple[Verdict, ...]
    findings: tuple[CampaignFinding, ...]
    status: CampaignStatus
    holes: tuple[str, ...]
    troubles: tuple[str, ...]
    versions: str
    level: Level
    left_out: tuple[str, ...]
    nodes: Mapping[str, int]


class Campaign:
    """One call of a campaign in a locked directory; `go` runs it. `possible` are the bins that can be covered at all.

    `watch` is called with how it stands some times a second. Raises CampaignError for a database that is damaged.
    """

    def __init__(
        self,
        directory: RunDir,
        settings: Settings,
        limits: CampaignLimits,
        pool: Workers,
        planner: Planner,
        *,
        possible: Sequence[str],
        width: int,
        versions: str = "",
        subject_limits: Limits = NO_LIMITS,
        watch: Callable[[CampaignStatus], None] = lambda _status: None,
    ) -> None:
        self._settings, self._limits, self._pool, self._width, self._watch = settings, limits, pool, width, watch
        self.store = Store(directory.database)
        self._progress = CampaignProgress(self.store, limits, possible)
        self._troubles = Troubles(self.store, self._progress)
        self._runner = Runner(pool, self._tick, self._troubles.add)
        self._answers = Answers(self.store, self._progress, self._troubles, self._runner, limits.examples)
        self._batches = Batches(planner, self.store, width)
        self._findings = Findings(
            directory=directory,
            store=self.store,
            trouble=self._troubles.add,
            run=self._runner.run,
            origin=_origin(settings),
            width=width,
            deadline=lambda: pool.deadline,
            choice=settings.subject,
            limits=subject_limits,
        )
        self._versions, self._working = versions, 0.0
        self._told = self._shown = 0.0
        self._doing = "starting"

    def go(self) -> CampaignEnd:
        """Run until an end is reached; all that can be written is written then."""
        try:
            with handled(self._runner.interrupt, signal.SIGINT, signal.SIGTERM):
                reason = self._to_the_end()
            return self._end(reason)
        finally:
            self.store.close()

    def note(self, what: str) -> None:
        """Keep what became of the workers' machines. Raises DiskError."""
        self._troubles.add(what)

    def _to_the_end(self) -> str:
        """Return why the campaign ended."""
        try:
            self._begin()
            while not (reason := self._over()):
                self._step()
            self._drain()
            self._last()
        except DiskError as error:
            self._troubles.kept.append(str(error))
            return "disk"
        return reason

    def _begin(self) -> None:
        before = self.store.facts().get("versions", self._versions)
        if before != self._versions:
            self._troubles.add(f"what ran before was {before}; now it is {self._versions}")
        self.store.keep_facts(workers=self._width, versions=self._versions)
        if "started" not in self.store.facts():
            self.store.keep_facts(started=round(time.time(), 3), block=-1, seconds=0.0, verdict="")
        for wrong in self._findings.check():
            self._troubles.add(wrong)
        self._answers.order_second_runs()
        self._answers.order(self._batches.left)

    def _over(self) -> str:
        return self._runner.stopped or self._progress.end_reason()

    def _step(self) -> None:
        if not self._runner.is_busy:
            self._between()
            if self._over():
                return
            # The batch after this one is planned before any answer to this one is taken.
            self._answers.order(self._batches.begin())
            self._runner.fill()
            self._doing = "planning"
            self._batches.plan()
        self._doing = "running"
        self._runner.listen()

    def _between(self) -> None:
        """Do what is due once a batch is done: its counts, and findings. To do it again changes nothing."""
        self._batches.finish_batch()
        self._findings.save()
        self._work_out(max(_LEAST_BUDGET, _SHARE * self._progress.elapsed - self._working))

    def _work_out(self, most: float) -> None:
        """Work out findings, one after the other, for about `most` seconds."""
        began = time.monotonic()
        self._doing = "findings"
        try:
            while (waiting := self._findings.waiting) and not self._runner.stopped:
                left = most - (time.monotonic() - began)
                if left <= 0:
                    break
                self._findings.work_out(waiting[0], min(left, self._budget))
        except StoppedError:
            pass
        self._working += time.monotonic() - began

    @property
    def _budget(self) -> float:
        """Seconds that one finding may be shrunk for."""
        return min(_MOST_BUDGET, max(_LEAST_BUDGET, _BUDGET_SHARE * self._limits.time))

    def _drain(self) -> None:
        """Wait for what is being run; the rest of the batch stays queued for the next time."""
        self._doing = "ending"
        self._runner.clear()
        end = time.monotonic() + self._pool.deadline + 5
        while self._runner.is_busy and not self._runner.stopped and time.monotonic() < end:
            self._runner.listen()
            self._runner.clear()

    def _last(self) -> None:
        """Run the second runs that are due, and work out the findings that are new."""
        self._answers.order_second_runs()
        while self._runner.is_busy and not self._runner.stopped:
            self._runner.listen()
        self._batches.finish_batch()
        self._findings.save()
        self._work_out(2 * self._budget)
        self._report_progress()
        self._findings.save()

    def _end(self, reason: str) -> CampaignEnd:
        sums = self.store.sums()
        contracts = verdicts(sums, self._settings)
        found = tuple(self.store.findings())
        # What is asked for last can fail, too, whatever ended the campaign.
        is_own_fault = reason in _OWN_FAULT or self._runner.stopped in _OWN_FAULT
        outcomes = [one.verdict for one in contracts] + [Outcome(one.outcome) for one in found]
        verdict = Outcome.ERROR if is_own_fault else worst(outcomes)
        self._doing = "ended"
        status = self._status
        try:
            # What is told is what is kept: the next call goes on from there.
            self.store.keep_facts(verdict=verdict.value, seconds=status.at, reason=reason)
        except DiskError as error:
            if reason != "disk":
                self._troubles.kept.append(str(error))
            reason, verdict, status = "disk", Outcome.ERROR, self._status
        return CampaignEnd(
            reason=reason,
            verdict=verdict,
            contracts=contracts,
            findings=found,
            status=status,
            holes=self._progress.holes,
            troubles=tuple(self._troubles.kept),
            versions=self._versions,
            level=level_of(sums.channels, sums.left_out),
            left_out=tuple(sorted(sums.channels & sums.left_out)),
            nodes=sums.nodes,
        )

    def _tick(self) -> None:
        """Show how it stands, from time to time."""
        now = time.monotonic()
        if now - self._shown >= _SHOW:
            self._shown = now
            self._watch(self._status)
        if now - self._told >= _PROGRESS:
            self._told = now
            self._report_progress()

    def _report_progress(self) -> None:
        status = self._status
        crashes = status.crashes + status.hangs
        row = (status.at, status.scenarios, status.hit, status.findings, crashes, status.rate, status.stability)
        self.store.add("progress", *row)

    @property
    def _status(self) -> CampaignStatus:
        return self._progress.status(
            doing=self._doing, workers=self._width, replaced=self._pool.replaced, troubles=len(self._troubles.kept)
        )


def _origin(settings: Settings) -> str:
    """Return how case files begin to say where they came from."""
    fault = f" --fault {settings.fault}" if settings.fault else ""
    subject = f" --subject {settings.subject.name}" if settings.subject.name else ""
    return f"draftproof fuzz --seed {settings.seed} --device {settings.device}{fault}{subject}"
