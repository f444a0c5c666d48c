"""A table of releases: which contract holds for which release, for each kind of draft."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from draftproof.fuzz.releases.environment import NotInstalledError
from draftproof.fuzz.releases.plans import Plan
from draftproof.fuzz.releases.trial import PartAnswers, Releases, timed
from draftproof.harness.workers.messages import Answer
from draftproof.properties.fit import UnfitError
from draftproof.properties.lib.base import Value
from draftproof.properties.values.drafts import algorithm
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.verdict import Divergence, Outcome, worst

_RUNS = "runs"
"""The row that says whether every scenario ran to its end."""


class Held(Value, frozen=True, kw_only=True):
    """Whether a contract holds of the scenarios with one kind of draft, the `part`.

    `scenarios` were judged, `first` is the first divergence; `reason` says how a run ended that did not finish, or why
    none began: the release does not have the model or the draft.
    """

    name: str
    part: str
    verdict: Outcome
    scenarios: int
    first: Divergence | None = None
    reason: str = ""


class ReleaseRow(Value, frozen=True, kw_only=True):
    """What was seen of a release; of one that is not runnable, or ends in every scenario, `reason` says why."""

    version: str
    runnable: bool
    reason: str = ""
    contracts: tuple[Held, ...] = ()
    seconds: float = 0.0


class ReleaseTable(Value, frozen=True, kw_only=True):
    """Every release; the verdict is the worst of all contracts, INCONCLUSIVE if nothing was judged."""

    package: str
    subject: str
    verdict: Outcome
    releases: tuple[ReleaseRow, ...]


Progress = Callable[[ReleaseRow], None]


def table(
    releases: Releases, versions: Sequence[str], scenarios: Sequence[Scenario], progress: Progress = lambda _: None
) -> ReleaseTable:
    """Run the scenarios on every release. Raises RuntimeError where something of ours fails."""
    rows = []
    for version in versions:
        rows.append(_row(releases, version, scenarios))
        progress(rows[-1])
    return _table(releases.package, releases.recipe.subject, rows)


def _table(package: str, subject: str, rows: Sequence[ReleaseRow]) -> ReleaseTable:
    seen = [one.verdict for row in rows for one in row.contracts]
    return ReleaseTable(
        package=package,
        subject=subject,
        verdict=worst([*seen, *(Outcome.INCONCLUSIVE for row in rows if not row.contracts)]),
        releases=tuple(rows),
    )


def parted_table(
    releases: Releases,
    versions: Sequence[str],
    plan: Plan,
    progress: Progress = lambda _: None,
) -> ReleaseTable:
    """Run each part of a package on its scenarios, on every release. Raises RuntimeError for an error of our own."""
    rows = []
    for version in versions:
        rows.append(_parted_row(releases, version, plan))
        progress(rows[-1])
    subjects = ", ".join(dict.fromkeys(part.subject for part in plan.parts))
    return _table(releases.package, subjects, [_with_absent(row, rows) for row in rows])


def _with_absent(row: ReleaseRow, rows: Sequence[ReleaseRow]) -> ReleaseRow:
    """Return a row that says of every contract of a part that the release lacks that this is why."""
    absent = {one.part: one for one in row.contracts if one.verdict is Outcome.ABSENT}
    known = dict.fromkeys((one.part, one.name) for other in rows for one in other.contracts)
    more = tuple(replace(absent[part], name=name) for part, name in known if part in absent and name != _RUNS)
    return replace(row, contracts=row.contracts + more)


def _parted_row(releases: Releases, version: str, plan: Plan) -> ReleaseRow:
    started = time.monotonic()
    try:
        parts = releases.parted(version, plan)
    except NotInstalledError as error:
        return ReleaseRow(version=version, runnable=False, reason=str(error), seconds=timed(started))
    held = tuple(one for part in parts for one in _of_answers(part))
    broken = [part.broken for part in parts if part.broken]
    runnable = len(broken) < len(parts)
    reason = "" if runnable or not broken else broken[0]
    return ReleaseRow(version=version, runnable=runnable, reason=reason, contracts=held, seconds=timed(started))


def _of_answers(part: PartAnswers) -> Iterable[Held]:
    if part.absent:
        return (Held(name=_RUNS, part=part.name, verdict=Outcome.ABSENT, scenarios=0, reason=part.absent),)
    if part.broken:
        return (Held(name=_RUNS, part=part.name, verdict=Outcome.INCONCLUSIVE, scenarios=0, reason=part.broken),)
    return _of_part(part.name, part.answers)


def _row(releases: Releases, version: str, scenarios: Sequence[Scenario]) -> ReleaseRow:
    started = time.monotonic()
    try:
        answers = releases.answers(version, scenarios)
    except NotInstalledError as error:
        return ReleaseRow(version=version, runnable=False, reason=str(error), seconds=timed(started))
    contracts, seconds = held(scenarios, answers), timed(started)
    ran = [one for one in answers if isinstance(one, Answer)]
    if ran and not any(one.judged for one in ran):
        # An engine that ends in every scenario says nothing of any contract.
        why = ran[0].reason or "it showed nothing"
        return ReleaseRow(version=version, runnable=False, reason=why, contracts=contracts, seconds=seconds)
    return ReleaseRow(version=version, runnable=True, contracts=contracts, seconds=seconds)


def held(scenarios: Iterable[Scenario], answers: Iterable[Answer | UnfitError]) -> tuple[Held, ...]:
    """Return what the answers say of each contract and kind of draft, in the order in which contracts are judged."""
    by_part: dict[str, list[Answer | UnfitError]] = {}
    for scenario, answer in zip(scenarios, answers, strict=True):
        by_part.setdefault(algorithm(scenario.draft), []).append(answer)
    return tuple(one for part, found in by_part.items() for one in _of_part(part, found))


def _of_part(part: str, found: Sequence[Answer | UnfitError]) -> Iterable[Held]:
    ran = [one for one in found if isinstance(one, Answer)]
    unfit = [one for one in found if isinstance(one, UnfitError)]
    if not ran:
        return (Held(name=_RUNS, part=part, verdict=Outcome.SKIP, scenarios=0, reason=str(unfit[0])),)
    return (_runs(part, ran), *_judged(part, ran))


def _runs(part: str, answers: Sequence[Answer]) -> Held:
    """Return how the runs ended; one that was judged ran, whatever the judgement."""
    ended = next((one for one in answers if one.failing and not one.judged), None)
    verdict, reason = (ended.outcome, ended.reason) if ended else (Outcome.PASS, "")
    if not ended and (silent := sum(not one.judged for one in answers)):
        verdict, reason = Outcome.INCONCLUSIVE, f"{silent} of {len(answers)} scenarios showed nothing"
    return Held(name=_RUNS, part=part, verdict=verdict, scenarios=len(answers), reason=reason)


def _judged(part: str, answers: Sequence[Answer]) -> Iterable[Held]:
    for name in dict.fromkeys(name for answer in answers for name in answer.judged):
        first = next((answer.failures[name] for answer in answers if name in answer.failures), None)
        yield Held(
            name=name,
            part=part,
            verdict=Outcome.PASS if first is None else Outcome.FAIL,
            scenarios=sum(name in answer.judged for answer in answers),
            first=first,
        )
