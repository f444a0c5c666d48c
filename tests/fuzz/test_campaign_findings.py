"""What a campaign makes of failures: findings merged, shrunk, confirmed, and told apart."""

import json
from pathlib import Path

import msgspec
import pytest

from draftproof.harness.workers.messages import Answer, Order
from draftproof.properties.formats.case import read_case
from draftproof.properties.values.relations import Different, OffBy, Poison, Zero
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.verdict import Outcome
from draftproof.reference.solved import solved
from tests.fuzz.campaigns import campaign, only, rows, wrong_pages
from tests.harness.doubles import Pool, crashing, diverging, failing, passing


def test_a_thousand_hits_are_one_finding_shrunk_and_confirmed(tmp_path: Path):
    end = campaign(tmp_path, Pool(wrong_pages))
    found = only(end)
    failing_ = rows(tmp_path, "SELECT number FROM scenarios WHERE outcome = 'FAIL'")
    assert end.verdict is Outcome.FAIL
    assert (found.hits, found.first) == (len(failing_), failing_[0][0])
    assert (found.state, found.runs, found.requests) == ("confirmed", "3/3", 1)
    folder = tmp_path / "findings" / found.slug
    first, script = read_case(folder / "case.json")
    assert script == solved(first).script
    small, _ = read_case(folder / "shrunk.json")
    assert small.memory.page_size == 3
    assert small.variant == "none"
    assert "expected 3, got 4" in (folder / "detail.txt").read_text()
    assert not (folder / "best.json").exists()
    assert f"scenario {found.first}: draft.positions" in json.loads((folder / "case.json").read_text())["origin"]
    assert [one.identity for one in end.findings] == [found.identity]


def varied(order: Order) -> Answer:
    """A bug that a variant shows as its own, and the plain run as a wrong position."""
    if order.scenario.memory.page_size < 3:
        return passing(order)
    variant = order.scenario.variant
    return failing(order) if variant == "none" else failing(order, f"variant.{variant}", Different())


def test_what_fails_without_its_variant_is_that_finding(tmp_path: Path):
    end = campaign(tmp_path, Pool(varied))
    found = only(end)
    assert found.contract == "draft.positions"
    assert found.state == "confirmed"
    shadows = [one for one in end.findings if one.merged]
    assert len(shadows) > 1
    assert {(one.merged, one.state) for one in shadows} == {(found.identity, "merged")}
    for one in shadows:
        assert (tmp_path / "findings" / one.slug / "case.json").exists()
    assert sum(one.hits for one in end.findings) == len(
        rows(tmp_path, "SELECT 1 FROM scenarios WHERE outcome = 'FAIL'")
    )


def slipping(order: Order) -> Answer:
    """How a bug shows depends on the size of the scenario."""
    requests = len(order.scenario.requests)
    return failing(order, relation=Zero() if requests > 3 else OffBy(-2) if requests > 1 else Poison())


def test_a_finding_is_what_its_smallest_case_shows(tmp_path: Path):
    end = campaign(tmp_path, Pool(slipping))
    assert only(end).relation == "poison"
    assert only(end).state == "confirmed"
    assert len(end.findings) == 3


def two_contracts(order: Order) -> Answer:
    """One bug that two contracts notice; which is first depends on the graphs."""
    if order.scenario.memory.page_size < 2:
        return passing(order)
    contract = "memory.written" if len(order.scenario.requests) > 2 else "draft.positions"
    both = {name: diverging(name) for name in ("draft.positions", "memory.written")}
    return msgspec.structs.replace(failing(order, contract), failures=both)


def test_a_case_that_fails_the_contract_of_another_finding_is_its_shadow(tmp_path: Path):
    end = campaign(tmp_path, Pool(two_contracts))
    assert len(end.findings) == 2
    assert [one.runs for one in end.findings] == ["3/3", "3/3"]
    assert only(end).state == "confirmed"


def test_two_bugs_are_two_findings(tmp_path: Path):
    def two(order: Order) -> Answer:
        if order.scenario.memory.page_size >= 4:
            return failing(order)
        return failing(order, "verify.positions") if order.scenario.steps >= 3 else passing(order)

    end = campaign(tmp_path, Pool(two))
    assert {(one.contract, one.state) for one in end.findings} == {
        ("draft.positions", "confirmed"),
        ("verify.positions", "confirmed"),
    }


def test_crashes_have_a_place_and_the_campaign_goes_on(tmp_path: Path):
    def crash(order: Order) -> Answer:
        return crashing(order) if order.scenario.memory.page_size >= 3 else passing(order)

    end = campaign(tmp_path, Pool(crash))
    found = only(end)
    assert end.verdict is Outcome.CRASH
    assert (found.outcome, found.contract, found.channel, found.phase) == ("CRASH", "crash", "IndexError", "verify")
    assert found.place == "base, engine step 3, verify"
    assert found.state == "confirmed"
    assert "page 9 is out of range" in (tmp_path / "findings" / found.slug / "detail.txt").read_text()
    assert end.status.scenarios == 40
    assert end.contracts[0].reason == f"{end.status.crashes} CRASH of 40"


@pytest.mark.parametrize(("deadline", "smaller"), [(0.01, True), (50.0, False)])
def test_hangs_are_shrunk_if_that_takes_not_too_long(tmp_path: Path, deadline: float, smaller: bool):
    def hang(order: Order) -> Answer:
        hanging = order.scenario.memory.page_size >= 3
        return crashing(order, Outcome.HANG) if hanging else passing(order)

    pool = Pool(hang)
    pool.deadline = deadline
    end = campaign(tmp_path, pool)
    assert end.verdict is Outcome.HANG
    assert (only(end).contract, only(end).state) == ("hang", "confirmed")
    assert (read_case(tmp_path / "findings" / only(end).slug / "shrunk.json")[0].memory.page_size == 3) is smaller


@pytest.mark.parametrize(("failures", "state"), [(0, "flaky"), (2, "unstable")])
def test_a_finding_that_does_not_always_fail_is_kept(tmp_path: Path, failures: int, state: str):
    left = [failures]
    seventh: set[Scenario] = set()

    def sometimes(order: Order) -> Answer:
        if not seventh and order.number == 7:
            seventh.add(order.scenario)
            return failing(order)
        if order.scenario not in seventh:
            return passing(order)
        left[0] -= 1
        return failing(order) if left[0] >= 0 else passing(order)

    end = campaign(tmp_path, Pool(sometimes))
    assert (only(end).state, only(end).runs) == (state, f"{failures}/3")
    assert end.verdict is Outcome.FAIL
    folder = tmp_path / "findings" / only(end).slug
    assert read_case(folder / "case.json")[0]
    detail = (folder / "detail.txt").read_text()
    assert "digest of the trace: d\n" in detail
    assert "run 1: PASS d" in detail


def test_two_runs_that_differ_are_a_finding(tmp_path: Path):
    seen: set[Scenario] = set()

    def drifting(order: Order) -> Answer:
        again = order.scenario in seen
        seen.add(order.scenario)
        return msgspec.structs.replace(passing(order), digest="other" if again and order.digest else "one")

    end = campaign(tmp_path, Pool(drifting), examples=60)
    assert (only(end).contract, only(end).state, only(end).first) == ("stability", "unstable", 0)
    assert end.status.stability == 0.0
    assert end.status.stability_runs == 2
    assert only(end).hits == 2
    detail = (tmp_path / "findings" / only(end).slug / "detail.txt").read_text()
    assert "first run: PASS one" in detail
    assert "second run: PASS other" in detail
    assert rows(tmp_path, "SELECT * FROM again") == []
