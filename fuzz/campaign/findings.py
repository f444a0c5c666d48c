"""Work failing scenarios out to findings: kept as case files, made canonical, shrunk, confirmed by three runs.

A finding's folder holds case.json (its first scenario), best.json (the smallest so far, while it is shrunk),
shrunk.json, detail.txt and timeline.json. All but best.json can be made again from the database or by running again;
they are written before the row that relies on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from draftproof.fuzz.campaign.finding_rows import described, detail_of, finding_of, sign_of
from draftproof.fuzz.campaign.rundir import RunDir, remove, save
from draftproof.fuzz.campaign.schema import CampaignFinding
from draftproof.fuzz.campaign.store import Store
from draftproof.fuzz.shrinking.shrink import shrink
from draftproof.harness.identity import Level
from draftproof.harness.workers.messages import Answer, Order
from draftproof.properties.formats.case import Case, case_text, encode, read_case
from draftproof.properties.lib.invalid import InvalidScenarioError
from draftproof.properties.values.limits import NO_LIMITS, Limits
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.subject_choice import BUILT_IN_SUBJECT, SubjectChoice
from draftproof.properties.values.verdict import Outcome
from draftproof.reference.solved import solved

_RUNS = 3
"""How often a finding is run to be confirmed."""
_MOST = 40
"""Findings that get a folder and are shrunk; beyond, they are rows only."""
TRIES = 10
"""Hangs are shrunk if at least this many runs fit into the budget."""
MERGED: Level = "relation"
"""Hits of one finding may differ in the numbers of their relation."""
Run = Callable[[Sequence[Order]], Sequence[Answer]]


@dataclass(frozen=True)
class Findings:
    """The findings of a campaign, from their first hit to their smallest case.

    `run` runs orders in the workers and returns their answers in the same order; `origin` begins what case files say of
    where they came from; `width` is how many workers there are, `deadline` the seconds that a hang takes, `limits` what
    the subject can run. Methods that write raise DiskError.
    """

    directory: RunDir
    store: Store
    trouble: Callable[[str], None]
    run: Run
    origin: str
    width: int
    deadline: Callable[[], float]
    choice: SubjectChoice = BUILT_IN_SUBJECT
    limits: Limits = NO_LIMITS

    def check(self) -> Iterator[str]:
        """After a restart: yield which files are damaged, and let their findings be worked out again."""
        for finding in self._kept:
            folder = self._folder(finding)
            for name in ("case.json", "shrunk.json", "best.json"):
                if (folder / name).exists() and _read(folder / name) is None:
                    yield f"findings/{finding.slug}/{name} is damaged; it is made again"
                    remove(folder / name)
            if finding.state in ("shrunk", "confirmed") and not (folder / "shrunk.json").exists():
                self.store.keep(replace(finding, state="new"))

    def save(self) -> None:
        """Write the case files of findings that have none."""
        for finding in self._kept:
            path = self._folder(finding) / "case.json"
            if path.exists():
                continue
            scenario = self.store.scenario(finding.first)
            if scenario is not None:
                save(path.with_name("detail.txt"), detail_of(finding))
                self._write_case(path, finding, scenario)

    def _folder(self, finding: CampaignFinding) -> Path:
        return self.directory.finding(finding.slug)

    @property
    def _kept(self) -> list[CampaignFinding]:
        return self.store.findings(most=_MOST)

    @property
    def waiting(self) -> list[CampaignFinding]:
        """The findings to be worked out: what is hit most often first, what a variant alone shows last.

        The others often are shadows of it.
        """
        open_ = [finding for finding in self._kept if finding.state in ("new", "shrunk")]
        return sorted(open_, key=lambda one: (one.contract.startswith("variant."), -one.hits, one.first))

    def work_out(self, finding: CampaignFinding, budget: float) -> None:
        """Merge, shrink and confirm one finding within about `budget` seconds; its state then is no longer new."""
        name = "shrunk.json" if finding.state == "shrunk" else "case.json"
        # A plain finding has the case file for itself; the first hit may be another scenario.
        scenario = _read(self._folder(finding) / name) or self.store.scenario(finding.first)
        if scenario is None:
            self._end(finding, "flaky", "", "its case is lost")
            return
        answers = self._three(scenario)
        same = [answer for answer in answers if _hits(answer, finding)]
        if len(same) < _RUNS:
            self._not_always(finding, answers, len(same))
            return
        smallest = self._smaller(finding, scenario, same[0], budget)
        if smallest is not None:
            self._confirm(finding, smallest, same if smallest is scenario else None)

    def _not_always(self, finding: CampaignFinding, answers: Sequence[Answer], same: int) -> None:
        """End a case that fails sometimes, or never again. One that always fails as another finding is that one."""
        others = {answer.identity.text for answer in answers if answer.identity is not None}
        if not same and len(others) == 1 and all(answer.failing for answer in answers):
            other = self.store.finding(next(iter(others)))
            if other is not None and self._root(other).identity != finding.identity:
                self._merge(finding, other)
                return
        self._end(finding, "unstable" if same else "flaky", f"{same}/{_RUNS}", _runs(answers))

    def _smaller(self, finding: CampaignFinding, scenario: Scenario, answer: Answer, budget: float) -> Scenario | None:
        """Return the smallest scenario that fails in the same way; None if the finding turned out to be another one."""
        plain = self._plain(finding, scenario)
        if plain is None:
            return None
        if finding.state == "shrunk" or (finding.outcome == Outcome.HANG and budget < TRIES * self.deadline()):
            return plain
        best = self._folder(finding) / "best.json"
        start = _read(best) or plain
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
            saved=lambda smaller: save(best, encode(smaller) + "\n"),
            limits=self.limits,
        )
        if not _hits(done.answer, finding):
            # Shrinking keeps contract and channel; the relation of the smallest case is what the finding is.
            self._become(finding, done.answer, done.scenario, "shrunk")
            return None
        return self._plain(finding, done.scenario)

    def _plain(self, finding: CampaignFinding, scenario: Scenario) -> Scenario | None:
        """Return the scenario without its variant and with taps on, if that fails, too.

        None if it fails as another finding, into which this one goes.
        """
        if scenario.variant == "none" and scenario.taps:
            return scenario
        plain = replace(scenario, variant="none", taps=True)
        answer = self._one(plain)
        if answer.identity is None:
            return scenario
        if _hits(answer, finding):
            return plain
        self._become(finding, answer, plain, "new")
        return None

    def _become(self, finding: CampaignFinding, answer: Answer, scenario: Scenario, state: str) -> None:
        """Let the finding be another one: a known one, or a new one with this case."""
        found = finding_of(answer, scenario, finding.first, finding.at)
        assert found is not None
        other = self.store.finding(found.identity)
        if other is None or self._root(other).identity == finding.identity:
            # A known one that was merged into this one before stands for both from now on.
            other = replace(found, hits=other.hits if other else 0, state=state)
            self._enter(other, scenario)
        self._merge(finding, other)

    def _enter(self, finding: CampaignFinding, scenario: Scenario) -> None:
        """Keep a finding with a case of its own, which its row alone does not say."""
        folder = self._folder(finding)
        for name in ("case.json", "shrunk.json") if finding.state == "shrunk" else ("case.json",):
            self._write_case(folder / name, finding, scenario)
        save(folder / "detail.txt", detail_of(finding))
        self.store.keep(finding)

    def _root(self, finding: CampaignFinding) -> CampaignFinding:
        """Return what a merged finding was merged into in the end."""
        while finding.merged and (other := self.store.finding(finding.merged)) is not None:
            finding = other
        return finding

    def _merge(self, finding: CampaignFinding, other: CampaignFinding) -> None:
        """Let `other` stand for both from now on, or what it was merged into itself."""
        root = self._root(other).identity
        others = self.store.findings("merged = ?", finding.identity)
        moved = [replace(one, merged=root) for one in others if one.identity != root]
        self.store.keep(replace(finding, state="merged", merged=root), *moved)

    def _confirm(self, finding: CampaignFinding, scenario: Scenario, known: Sequence[Answer] | None) -> None:
        """Run the smallest case three times, unless `known` are those runs; it is kept before."""
        folder = self._folder(finding)
        self._write_case(folder / "shrunk.json", finding, scenario)
        finding = replace(finding, state="shrunk")
        self.store.keep(finding)
        answers = known or self._three(scenario)
        same = [answer for answer in answers if _hits(answer, finding)]
        if same:
            finding = replace(finding, **described(same[0], scenario))
        shown = next((answer.timeline for answer in same if answer.timeline), None)
        if shown is not None:
            save(folder / "timeline.json", encode(shown) + "\n")
        state = "confirmed" if len(same) == _RUNS else "unstable" if same else "flaky"
        finding = self._end(finding, state, f"{len(same)}/{_RUNS}", _runs(answers))
        remove(folder / "best.json")
        other = self._shadowed(finding, same[0]) if state == "confirmed" else None
        if other is not None:
            self._merge(finding, other)

    def _shadowed(self, finding: CampaignFinding, answer: Answer) -> CampaignFinding | None:
        """Return the confirmed finding of a contract that the smallest case of this finding fails, too.

        One bug shows in several contracts, and which comes first depends on the scenario. If they are two bugs, this
        one keeps its case, and shows on its own once the other is gone.
        """
        known = (one for one in self._kept if one.state == "confirmed" and one.identity != finding.identity)
        return next((one for one in known if one.contract in answer.failed), None)

    def _end(self, finding: CampaignFinding, state: str, runs: str, told: str) -> CampaignFinding:
        finding = replace(finding, state=state, runs=runs)
        save(self._folder(finding) / "detail.txt", f"{detail_of(finding)}\n{told}")
        self.store.keep(finding)
        return finding

    def _three(self, scenario: Scenario) -> Sequence[Answer]:
        """Run one scenario three times, the first with its timeline."""
        orders = [Order(number=place, scenario=scenario, digest=True, timeline=not place) for place in range(_RUNS)]
        return self.run(orders)

    def _one(self, scenario: Scenario) -> Answer:
        return self.run([Order(number=0, scenario=scenario, digest=True)])[0]

    def _run_scenarios(self, scenarios: Sequence[Scenario]) -> Sequence[Answer]:
        return self.run([Order(number=place, scenario=one) for place, one in enumerate(scenarios)])

    def _write_case(self, path: Path, finding: CampaignFinding, scenario: Scenario) -> None:
        """Write nothing for a scenario that the reference cannot solve; that is a trouble."""
        try:
            script = solved(scenario).script
        except (ValueError, ArithmeticError, LookupError) as error:
            self.trouble(f"findings/{finding.slug}: the reference cannot solve it: {type(error).__name__}: {error}")
            return
        origin = f"{self.origin}, scenario {finding.first}: {finding.identity}"
        save(path, case_text(Case(scenario=scenario, script=script, origin=origin, subject=self.choice)))


def _read(path: Path) -> Scenario | None:
    """Return the scenario of a case file; None for one that is not there or cannot be used."""
    try:
        return read_case(path)[0]
    except InvalidScenarioError:
        return None


def _hits(answer: Answer, finding: CampaignFinding) -> bool:
    return answer.is_same(finding.as_identity, MERGED)


def _runs(answers: Sequence[Answer]) -> str:
    return "".join(f"run {place}: {sign_of(answer)}\n" for place, answer in enumerate(answers, start=1))
