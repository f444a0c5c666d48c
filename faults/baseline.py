"""What the usual test of an engine sees: its output, and the mean number of drafts that it accepts.

Nothing is steered or tapped here. Drafts agree with the target by share, as trained ones do, and every round verifies
what its draft proposed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

import msgspec

from draftproof.harness.lockstep import Solved
from draftproof.properties.subject import Subject
from draftproof.properties.values.base import Value
from draftproof.properties.values.observed import TokenIds
from draftproof.properties.values.scenario import ProbeModel, RoundPlan, Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.values.trace import Trace

AGREEMENT = 192
"""In how many of 256 contexts a draft head's choice is the target's."""
TOLERANCE = 0.05
"""By how much mean acceptance may differ, as a share of what it should be."""


class UsualRun(Value, frozen=True, kw_only=True):
    """One engine on unsteered scenarios: how many ran, in how many the output was not that of plain greedy decoding,
    drafts accepted in how many rounds, and the crash that ended it, "" if none did."""

    scenarios: int = 0
    changed: int = 0
    accepted: int = 0
    rounds: int = 0
    crash: str = ""

    @property
    def mean(self) -> float | None:
        """Drafts accepted a round; None without rounds."""
        return self.accepted / self.rounds if self.rounds else None


class Usual(Value, frozen=True, kw_only=True):
    """What the usual tests say of a fault. `output` and `acceptance`: whether that test fails; a crash fails both.

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
    """The scenario as an ordinary run: as many own proposals as a round may have, no taps, no variant."""
    own = (RoundPlan(drafts=scenario.steps, accept=-1),)
    requests = tuple(msgspec.structs.replace(request, rounds=own) for request in scenario.requests)
    model = scenario.model
    if isinstance(model, ProbeModel):
        model = msgspec.structs.replace(model, agreement=AGREEMENT)
    return msgspec.structs.replace(scenario, model=model, requests=requests, variant="none", taps=False)


def observe(subject: Subject, scenarios: Iterable[Solved], after: Callable[[UsualRun], None]) -> UsualRun:
    """Run unsteered scenarios until one crashes; `after` is told of every finished one what is known so far."""
    so_far = UsualRun()
    for known in scenarios:
        try:
            trace = subject.run(known.scenario, known.script)
        except Exception as error:
            return msgspec.structs.replace(so_far, crash=f"{type(error).__name__}: {error}".splitlines()[0])
        so_far = _with(so_far, trace, known.script)
        after(so_far)
    return so_far


def _with(run: UsualRun, trace: Trace, script: Script) -> UsualRun:
    lengths = [length for length in trace.channel("accept.correct_len").values() if isinstance(length, int)]
    return UsualRun(
        scenarios=run.scenarios + 1,
        changed=run.changed + (_texts(trace, script) != [request.tokens for request in script.requests]),
        accepted=run.accepted + sum(lengths),
        rounds=run.rounds + len(lengths),
    )


def _texts(trace: Trace, script: Script) -> list[tuple[int, ...]]:
    """What each request emitted, in order of its rounds."""
    emitted: dict[int, tuple[int, ...]] = defaultdict(tuple)
    for key, value in sorted(trace.typed("accept.emitted", TokenIds).items()):
        emitted[key.request] += value
    return [emitted[request] for request in range(len(script.requests))]


def compare(run: UsualRun, twin: UsualRun) -> Usual:
    """What the usual tests say of a run, given that of the clean twin, whose acceptance is the right one."""
    mean, expected = run.mean, twin.mean
    return Usual(
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
