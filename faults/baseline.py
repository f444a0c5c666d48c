"""What the usual tests of an engine sees: its output, and the mean number of drafts that it accepts.

Nothing is steered or tapped here. Drafts agree with the target by share, as trained ones do, and every round verifies
what its draft proposed.
"""

from __future__ import annotations

import msgspec

from draftproof.faults.trial import death_of, has_died
from draftproof.harness.workers.messages import Answer
from draftproof.properties.lib.base import Value
from draftproof.properties.values.scenario import ProbeModel, RoundPlan, Scenario

AGREEMENT = 192
"""In how many of 256 contexts a draft head's choice is the target's."""
TOLERANCE = 0.05
"""By how much mean acceptance may differ, as a share of what it should be."""


class BaselineRun(Value, frozen=True, kw_only=True):
    """One engine on unsteered scenarios.

    How many ran, in how many the output differed from plain greedy decoding, drafts accepted in how many rounds, and
    the crash that ended it, "" if none did.
    """

    scenarios: int = 0
    changed: int = 0
    accepted: int = 0
    rounds: int = 0
    crash: str = ""

    @property
    def mean(self) -> float | None:
        """Drafts accepted a round; None without rounds."""
        return self.accepted / self.rounds if self.rounds else None


class Baseline(Value, frozen=True, kw_only=True):
    """What the baseline tests say of a fault. `output` and `acceptance`: whether that test fails; a crash fails both.

    `mean` drafts were accepted a round, `expected` by the clean twin, on `scenarios` scenarios; the output of `changed`
    of them was wrong.
    """

    output: bool
    acceptance: bool
    mean: float | None
    expected: float | None
    scenarios: int
    changed: int
    crash: str = ""


def unsteered(scenario: Scenario) -> Scenario:
    """Return the scenario as an ordinary run: as many own proposals as a round may have, no taps, no variant.

    All requests are greedy: a text that was drawn with other drafts is another text, and just as right. No request is
    aborted: where a text is cut then would depend on how fast its drafts are accepted.
    """
    own = (RoundPlan(num_drafts=scenario.steps, num_correct=-1),)
    ordinary = {"rounds": own, "sampling": None, "abort_at": None}
    requests = tuple(msgspec.structs.replace(request, **ordinary) for request in scenario.requests)
    model = scenario.model
    if isinstance(model, ProbeModel):
        model = msgspec.structs.replace(model, agreement=AGREEMENT)
    return msgspec.structs.replace(scenario, model=model, requests=requests, variant="none", taps=False)


def add(run: BaselineRun, answer: Answer) -> BaselineRun:
    """Add what one scenario showed; a crash ends the run. Raises RuntimeError for an error of our own."""
    if crash := death_of(answer) if has_died(answer) else answer.message:
        return msgspec.structs.replace(run, crash=crash)
    counts = answer.counts
    one = BaselineRun(
        scenarios=counts["scenarios"],
        changed=counts["outputs_changed"],
        accepted=counts["drafts_accepted"],
        rounds=counts["rounds"],
    )
    return followed(run, one)


def followed(run: BaselineRun, more: BaselineRun) -> BaselineRun:
    """Return both runs as one, the second after the first; a crash of the first ends it."""
    if run.crash:
        return run
    return BaselineRun(
        scenarios=run.scenarios + more.scenarios,
        changed=run.changed + more.changed,
        accepted=run.accepted + more.accepted,
        rounds=run.rounds + more.rounds,
        crash=more.crash,
    )


def compare(run: BaselineRun, twin: BaselineRun) -> Baseline:
    """Return what the baseline tests say of a run, given the clean twin's run, whose acceptance is the right one."""
    mean, expected = run.mean, twin.mean
    return Baseline(
        output=bool(run.crash) or run.changed > 0,
        acceptance=bool(run.crash) or _far(mean, expected),
        mean=mean,
        expected=expected,
        scenarios=run.scenarios,
        changed=run.changed,
        crash=run.crash,
    )


def _far(mean: float | None, expected: float | None) -> bool:
    if mean is None or expected is None:
        return mean is not expected
    return abs(mean - expected) > TOLERANCE * expected
