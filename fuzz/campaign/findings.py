"""From failing scenarios to findings: kept as case files, made canonical, shrunk, confirmed by three runs.

A finding's folder holds case.json (its first scenario), best.json (the smallest so far, while it is shrunk),
shrunk.json, detail.txt and timeline.json. All but best.json can be made again from the database or by running again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from draftproof.fuzz.campaign.rundir import Files, RunDir
from draftproof.fuzz.campaign.schema import Finding
from draftproof.fuzz.campaign.store import Store
from draftproof.fuzz.shrinking.shrink import Shrunk, shrink
from draftproof.fuzz.shrinking.size import rounds
from draftproof.harness.identity import Identity, Level
from draftproof.harness.lockstep import solved
from draftproof.harness.workers.messages import Answer, Order
from draftproof.properties.values.case import Case, encode, read_case
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.validate import InvalidScenarioError
from draftproof.properties.values.verdict import Divergence, Outcome

RUNS = 3
"""How often a finding is run to be confirmed."""
MOST = 40
"""Findings that get a folder and are shrunk; beyond, they are rows only."""
TRIES = 10
"""Hangs are shrunk if at least so many fit into the budget."""
STABILITY = "stability"
MERGED: Level = "relation"
"""Hits of one finding may differ in the numbers of their relation."""
Run = Callable[[Sequence[Order]], Sequence[Answer]]


class Say(Protocol):
    def __call__(self, kind: str, **facts: object) -> None: ...


def finding_of(answer: Answer, scenario: Scenario, number: int, at: float) -> Finding | None:
    """The row of what a scenario hit; None if it hit nothing."""
    identity = answer.identity
    return None if identity is None else _finding(identity, answer, scenario, number, at)


def unstable(number: int, scenario: Scenario, at: float, detail: str) -> Finding:
    """The row of a scenario whose second run was another: a finding of its own kind, whatever else it hit."""
    identity = Identity(contract=STABILITY, channel="trace", relation="two runs differ")
    answer = Answer(number=number, outcome=Outcome.FAIL, detail=detail)
    found = _finding(identity, answer, scenario, number, at)
    found.state, found.runs = "unstable", "1/2"
    return found


def sign(answer: Answer) -> str:
    """What two runs of one scenario must agree in."""
    identity = answer.identity
    return " ".join((answer.outcome.value, answer.digest, identity.text if identity else ""))


def _finding(identity: Identity, answer: Answer, scenario: Scenario, number: int, at: float) -> Finding:
    return Finding(
        identity=identity.text,
        slug=identity.slug,
        outcome=answer.outcome.value,
        contract=identity.contract,
        channel=identity.channel,
        phase=identity.phase,
        relation=identity.relation,
        first=number,
        at=at,
        **_told(answer, scenario),  # type: ignore[arg-type]
    )


def _told(answer: Answer, scenario: Scenario) -> dict[str, str | int]:
    """What an answer says of a finding, and how large its scenario is."""
    return {
        "divergence": "" if answer.first is None else msgspec.json.encode(answer.first).decode(),
        "place": str(answer.place) if answer.place else "",
        "detail": answer.detail or (f"digest of the trace: {answer.digest}" if answer.digest else ""),
        "requests": len(scenario.requests),
        "rounds": sum(rounds(request, scenario.memory.max_len) for request in scenario.requests),
    }


def divergence_of(finding: Finding) -> Divergence | None:
    return msgspec.json.decode(finding.divergence, type=Divergence) if finding.divergence else None


@dataclass
class Findings:
    """The findings of a campaign, from their first hit to their smallest case.

    `run` runs orders in the workers and returns their answers in the same order; `origin` begins what case files say of
    where they came from; `width` is how many workers there are, `deadline` the seconds that a hang takes.
    """

    directory: RunDir
    store: Store
    files: Files
    say: Say
    trouble: Callable[[str], None]
    run: Run
    origin: str
    width: int
    deadline: Callable[[], float]

    def __post_init__(self) -> None:
        self._number = 0
        self.shrunk = 0

    def check(self) -> None:
        """After a restart: files that are damaged are reported, and their findings worked out again."""
        for finding in self._kept:
            folder = self.directory.finding(finding.slug)
            for name in ("case.json", "shrunk.json", "best.json"):
                if (folder / name).exists() and self._read(folder / name) is None:
                    self.trouble(f"findings/{finding.slug}/{name} is damaged; it is made again")
                    self.files.remove(folder / name)
            if finding.state in ("shrunk", "confirmed") and not (folder / "shrunk.json").exists():
                finding.state = "new"
                self.store.write(self.store.keep(finding))

    def save(self) -> None:
        """The case files of findings that have none."""
        for finding in self._kept:
            folder = self.directory.finding(finding.slug)
            scenario = self.store.memory.kept.get(finding.first)
            path = folder / "case.json"
            if scenario is None or path in self.files.waiting or path.exists():
                continue
            self._write_case(path, finding, scenario)
            self.files.write(folder / "detail.txt", _detail(finding))

    @property
    def _kept(self) -> list[Finding]:
        known = sorted(self.store.memory.findings.values(), key=lambda finding: finding.first)
        return known[:MOST]

    @property
    def waiting(self) -> list[Finding]:
        """Those to be worked out, what is hit most often first and what a variant alone shows last: the others often
        are shadows of it."""
        open_ = [finding for finding in self._kept if finding.state in ("new", "shrunk")]
        return sorted(open_, key=lambda one: (one.contract.startswith("variant."), -one.hits, one.first))

    def work_out(self, finding: Finding, budget: float) -> None:
        """Merge, shrink and confirm one finding within about `budget` seconds; its state then is no longer new."""
        scenario = self._case(finding)
        if scenario is None:
            self._end(finding, "flaky", "", "its case is lost")
            return
        answers = self._three(scenario)
        same = [answer for answer in answers if _hits(answer, finding)]
        if len(same) < RUNS:
            self._not_always(finding, answers, len(same))
            return
        smallest = self._smaller(finding, scenario, same[0], budget)
        if smallest is not None:
            self._confirm(finding, smallest, same if smallest is scenario else None)

    def _not_always(self, finding: Finding, answers: Sequence[Answer], same: int) -> None:
        """A case that fails sometimes, or never again. One that always fails as another finding is that one."""
        others = {answer.identity.text for answer in answers if answer.identity is not None}
        if not same and len(others) == 1 and all(answer.failing for answer in answers):
            other = self.store.memory.findings.get(next(iter(others)))
            if other is not None and self._root(other) is not finding:
                self._merge(finding, other)
                return
        told = "".join(f"run {place}: {sign(answer)}\n" for place, answer in enumerate(answers, start=1))
        self._end(finding, "unstable" if same else "flaky", f"{same}/{RUNS}", told)

    def _smaller(self, finding: Finding, scenario: Scenario, answer: Answer, budget: float) -> Scenario | None:
        """The smallest scenario that fails in the same way; None if the finding turned out to be another one."""
        plain = self._plain(finding, scenario)
        if plain is None:
            return None
        if finding.state == "shrunk" or (finding.outcome == Outcome.HANG and budget < TRIES * self.deadline()):
            return plain
        best = self.directory.finding(finding.slug) / "best.json"
        start = self._read(best) or plain
        if start is not plain:
            again = self._one(start)
            start, answer = (start, again) if _hits(again, finding) else (plain, answer)
        if start is plain and plain is not scenario:
            answer = self._one(plain)
        done = shrink(
            start,
            answer,
            self._run_scenarios,
            budget=budget,
            width=self.width,
            saved=lambda smaller: self._save_best(best, smaller),
        )
        self._tell(finding, done)
        if not _hits(done.answer, finding):
            # Shrinking keeps contract and channel; the relation of the smallest case is what the finding is.
            self._become(finding, done.answer, done.scenario, "shrunk")
            return None
        return self._plain(finding, done.scenario)

    def _tell(self, finding: Finding, done: Shrunk) -> None:
        self.shrunk += 1
        size = _told(done.answer, done.scenario)
        self.say(
            "shrunk",
            identity=finding.identity,
            requests=size["requests"],
            rounds=size["rounds"],
            tried=done.tried,
            seconds=round(done.seconds, 3),
            done=done.done,
        )

    def _plain(self, finding: Finding, scenario: Scenario) -> Scenario | None:
        """The scenario without its variant and with taps on, if that fails, too; None if it fails as another finding,
        into which this one goes."""
        if scenario.variant == "none" and scenario.taps:
            return scenario
        plain = msgspec.structs.replace(scenario, variant="none", taps=True)
        answer = self._one(plain)
        if answer.identity is None:
            return scenario
        if _hits(answer, finding):
            return plain
        self._become(finding, answer, plain, "new")
        return None

    def _become(self, finding: Finding, answer: Answer, scenario: Scenario, state: str) -> None:
        """The finding is another one: a known one, or a new one with this case. Its case is written before its row,
        which alone does not say it."""
        found = finding_of(answer, scenario, finding.first, finding.at)
        assert found is not None
        known = self.store.memory.findings.get(found.identity)
        if known is None or self._root(known) is finding:
            # A known one that was merged into this one before stands for both from now on.
            found.hits, found.state = known.hits if known else 0, state
            self._enter(found, scenario)
            known = found
        self._merge(finding, known)

    def _enter(self, finding: Finding, scenario: Scenario) -> None:
        """A finding with a case of its own."""
        folder = self.directory.finding(finding.slug)
        for name in ("case.json", "shrunk.json") if finding.state == "shrunk" else ("case.json",):
            self._write_case(folder / name, finding, scenario)
        self.store.memory.findings[finding.identity] = finding
        self.store.write(self.store.keep(finding))
        self.files.write(folder / "detail.txt", _detail(finding))
        self.announce(finding)

    def _root(self, finding: Finding) -> Finding:
        """What a merged finding was merged into in the end."""
        while finding.merged and finding.merged in self.store.memory.findings:
            finding = self.store.memory.findings[finding.merged]
        return finding

    def announce(self, finding: Finding) -> None:
        """Tell of a new finding."""
        self.say(
            "finding",
            identity=finding.identity,
            outcome=finding.outcome,
            scenario=finding.first,
            folder=f"findings/{finding.slug}",
            place=finding.place,
        )

    def _merge(self, finding: Finding, other: Finding) -> None:
        """`other` stands for both from now on, or what it was merged into itself."""
        finding.state, finding.merged = "merged", self._root(other).identity
        for one in self.store.memory.findings.values():
            one.merged = finding.merged if one.merged == finding.identity else one.merged
        merged = [one for one in self.store.memory.findings.values() if one.merged == finding.merged]
        self.store.write(*map(self.store.keep, merged))
        self.say("shrunk", identity=finding.identity, merged=finding.merged)

    def _confirm(self, finding: Finding, scenario: Scenario, known: Sequence[Answer] | None) -> None:
        """The smallest case is kept before it is run three times, unless `known` are those runs."""
        folder = self.directory.finding(finding.slug)
        self._write_case(folder / "shrunk.json", finding, scenario)
        finding.state = "shrunk"
        self.store.write(self.store.keep(finding))
        answers = known or self._three(scenario)
        same = [answer for answer in answers if _hits(answer, finding)]
        if same:
            for name, value in _told(same[0], scenario).items():
                setattr(finding, name, value)
        shown = next((answer.timeline for answer in same if answer.timeline), None)
        if shown is not None:
            self.files.write(folder / "timeline.json", encode(shown) + "\n")
        state = "confirmed" if len(same) == RUNS else "unstable" if same else "flaky"
        told = "".join(f"run {place}: {sign(answer)}\n" for place, answer in enumerate(answers, start=1))
        self._end(finding, state, f"{len(same)}/{RUNS}", told)
        self.files.remove(folder / "best.json")
        other = self._shadowed(finding, same[0]) if state == "confirmed" else None
        if other is not None:
            self._merge(finding, other)

    def _shadowed(self, finding: Finding, answer: Answer) -> Finding | None:
        """The confirmed finding whose contract the smallest case of this one fails, too.

        One bug shows in several contracts, and which is the first depends on the scenario. Should they be two bugs,
        this one keeps its case, and shows on its own once the other is gone.
        """
        known = [one for one in self._kept if one.state == "confirmed" and one is not finding]
        return next((one for one in known if one.contract in answer.failed), None)

    def _end(self, finding: Finding, state: str, runs: str, told: str) -> None:
        finding.state, finding.runs = state, runs
        self.store.write(self.store.keep(finding))
        self.files.write(self.directory.finding(finding.slug) / "detail.txt", f"{_detail(finding)}\n{told}")
        self.say("shrunk", identity=finding.identity, state=state, runs=runs)

    def _three(self, scenario: Scenario) -> Sequence[Answer]:
        """Three runs of one scenario, the first with its timeline."""
        return self.run([self._order(scenario, timeline=not place) for place in range(RUNS)])

    def _one(self, scenario: Scenario) -> Answer:
        return self.run([self._order(scenario)])[0]

    def _run_scenarios(self, scenarios: Sequence[Scenario]) -> Sequence[Answer]:
        return self.run([self._order(scenario, digest=False) for scenario in scenarios])

    def _order(self, scenario: Scenario, *, digest: bool = True, timeline: bool = False) -> Order:
        self._number += 1
        return Order(number=EXTRA + self._number, scenario=scenario, digest=digest, timeline=timeline)

    def _case(self, finding: Finding) -> Scenario | None:
        """The scenario to begin with: the case file's, which a plain finding has for itself, or the first hit's."""
        path = self.directory.finding(finding.slug) / ("shrunk.json" if finding.state == "shrunk" else "case.json")
        return self._read(path) or self.store.memory.kept.get(finding.first)

    def _read(self, path: Path) -> Scenario | None:
        """None for a file that is not there or cannot be used."""
        try:
            return read_case(path)[0]
        except InvalidScenarioError:
            return None

    def _save_best(self, path: Path, scenario: Scenario) -> None:
        self.files.write(path, encode(scenario) + "\n")

    def _write_case(self, path: Path, finding: Finding, scenario: Scenario) -> None:
        """Nothing is written for a scenario that the reference cannot solve: that is told."""
        try:
            script = solved(scenario).script
        except (ValueError, ArithmeticError, LookupError) as error:
            self.trouble(f"findings/{finding.slug}: the reference cannot solve it: {type(error).__name__}: {error}")
            return
        origin = f"{self.origin}, scenario {finding.first}: {finding.identity}"
        self.files.write(path, encode(Case(scenario=scenario, script=script, origin=origin)) + "\n")


EXTRA = 1 << 40
"""Orders of findings have numbers above all scenarios'."""


def _hits(answer: Answer, finding: Finding) -> bool:
    return answer.is_same(finding.as_identity, MERGED)


def _detail(finding: Finding) -> str:
    return "".join(_lines(finding))


def _lines(finding: Finding) -> Iterator[str]:
    yield f"{finding.outcome} {finding.identity}\n"
    yield f"first hit by scenario {finding.first}\n"
    if finding.place:
        yield f"during {finding.place}\n"
    found = divergence_of(finding)
    if found is not None:
        yield f"expected {found.expected}, got {found.got} in {found.channel}\n"
    if finding.detail:
        yield f"\n{finding.detail.rstrip()}\n"
