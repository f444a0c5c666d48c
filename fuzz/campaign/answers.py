"""First and second runs of a campaign's scenarios: their orders, and what becomes of the answers."""

from __future__ import annotations

from collections.abc import Iterable

from draftproof.fuzz.campaign.finding_rows import finding_of, sign_of, unstable
from draftproof.fuzz.campaign.runner import Runner
from draftproof.fuzz.campaign.schema import QueuedScenario
from draftproof.fuzz.campaign.standing import CampaignProgress, Troubles
from draftproof.fuzz.campaign.store import Store
from draftproof.harness.workers.messages import Answer, Order
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.verdict import Outcome

_EVERY = 50
"""Every 50th scenario is run a second time."""
_MOST_ERRORS = 20


class Answers:
    """Takes answers: each is in the database before anything else happens. `most`: how many scenarios may run."""

    def __init__(
        self, store: Store, standing: CampaignProgress, troubles: Troubles, runner: Runner, most: int | None
    ) -> None:
        self._store, self._standing, self._troubles, self._runner, self._most = store, standing, troubles, runner, most
        self._errors = 0

    def order(self, scenarios: Iterable[QueuedScenario]) -> None:
        """Order first runs, of no scenario beyond those that were asked for."""
        for one in scenarios:
            if self._most is None or one.number < self._most:
                self._runner.add(_order(one.number, one.scenario), self._take_first)

    def order_second_runs(self) -> None:
        """Order the second runs that are due."""
        for one in self._store.second_runs():
            self._runner.add(_order(one.number, one.scenario), self._take_second)

    def _take_first(self, order: Order, answer: Answer) -> None:
        number, is_error = answer.number, answer.outcome is Outcome.ERROR
        finding = finding_of(answer, order.scenario, number, self._standing.at)
        twice = number % _EVERY == 0 and not is_error
        new = self._store.done(answer, self._standing.at, sign=sign_of(answer) if twice else "", finding=finding)
        if twice:
            self._runner.add(_order(number, order.scenario), self._take_second, next_=True)
        impossible = self._standing.add(answer, new)
        # What a failing run seems to reach says nothing of what can be.
        for name in impossible if answer.outcome is Outcome.PASS else ():
            self._troubles.add(f"scenario {number} reached what was declared impossible: {name}")
        self._errors = self._errors + 1 if is_error else 0
        if is_error:
            said = answer.reason or answer.detail.strip().splitlines()[-1]
            self._troubles.add(f"an error of our own in scenario {number}: {said}")
        if self._errors >= _MOST_ERRORS:
            self._runner.stopped = "errors"

    def _take_second(self, order: Order, answer: Answer) -> None:
        before = next(one.sign for one in self._store.second_runs() if one.number == answer.number)
        now, finding = sign_of(answer), None
        if now != before:
            detail = f"first run: {before}\nsecond run: {now}"
            finding = unstable(answer.number, order.scenario, self._standing.at, detail)
        self._store.compared(answer.number, finding)


def _order(number: int, scenario: Scenario) -> Order:
    # A digest costs next to nothing, and is all that is left of a failure that does not come back.
    return Order(number=number, scenario=scenario, digest=True)
