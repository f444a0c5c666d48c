"""How evidence is broken, and what is said of it: for tests of contracts."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from draftproof.engine.subject import EngineSubject
from draftproof.harness.lockstep import evidence
from draftproof.properties.contracts.registry import find
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.judge import judge
from draftproof.properties.validate import validate
from draftproof.properties.values.observed import Datum
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.trace import Key, Observation
from draftproof.properties.values.verdict import Divergence
from tests.properties.evidence import with_observations

Change = Callable[[Observation], Observation | None]


def ran(scenario: Scenario) -> Evidence:
    """Return a run of the engine that is judged right."""
    of = evidence(EngineSubject(), validate(scenario))
    assert judge(of).first is None
    return of


def failure(contract: str, of: Evidence) -> Divergence:
    """Return the first divergence that a contract tells of."""
    found = list(find(contract).check(of))
    assert found, f"{contract} did not fail"
    return found[0]


def changed(of: Evidence, change: Change) -> Evidence:
    """The same with every observation of the subject exchanged, or left out where the change returns None."""
    made = map(change, of.subject.observations)
    return with_observations(of, (observation for observation in made if observation is not None))


def edited(
    of: Evidence,
    channel: str,
    change: Callable[[Key, Any], Datum | None],
    where: Callable[[Key], object] = lambda _: True,
) -> Evidence:
    """The same with other values of a channel, at these keys; what becomes None is left out."""

    def exchange(one: Observation) -> Observation | None:
        if one.channel != channel or not where(one.key):
            return one
        value = change(one.key, one.value)
        return None if value is None else one._replace(value=value)

    return changed(of, exchange)


def with_value(of: Evidence, channel: str, key: Key, value: Datum | None) -> Evidence:
    """The same with this value of a channel at one key, or with none there."""
    return edited(of, channel, lambda *_: value, lambda one: one == key)


def later(of: Evidence, request: int, step: int = 0, by: int = 1) -> Evidence:
    """The same with the rows of a request from a step on so much later."""
    return edited(
        of,
        "round.rows",
        lambda _, row: replace(row, step=row.step + by) if row.step >= step else row,
        lambda key: key.request == request,
    )
