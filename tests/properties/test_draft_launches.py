"""Launches and writes of drafts that are wrong: each kind runs in a form of its own."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from draftproof.properties.contracts.registry import find
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.evidence.schedule import StepLaunch
from draftproof.properties.values.observed import (
    DiscardedRows,
    LaunchKind,
    LaunchRecord,
    LaunchWork,
    MemoryRegion,
    WriteSet,
    WrittenPlace,
)
from draftproof.properties.values.relations import Missing, OffBy, OutOfRange, SlotOf, Surplus
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.trace import Key, Observation
from tests.properties.breaking import changed, failure, with_value
from tests.properties.evidence import BLOCK, CHAIN, NGRAM, STANDALONE, STATIC, evidence, with_observations

LAYERS = 3


def launches(of: Evidence, kind: int) -> list[StepLaunch]:
    return [launch for launch in of.schedule.launches if launch.kind == kind]


def relaunched(of: Evidence, launch: StepLaunch, **fields: int) -> Evidence:
    key = Key(-1, launch.step, step=launch.number)
    value = LaunchRecord(*launch._replace(**fields)[2:])
    return with_value(of, "graph.replay", key, value)


def without(of: Evidence, launch: StepLaunch) -> Evidence:
    """As if a launch had not been, with those after it one number less."""

    def change(one: Observation) -> Observation | None:
        key = one.key
        if one.channel not in ("graph.replay", "graph.work", "commit.written") or key.round != launch.step:
            return one
        if key.step == launch.number:
            return None
        return one._replace(key=key._replace(step=key.step - int(key.step > launch.number)))

    return changed(of, change)


def test_every_layer_extends_in_a_launch_of_its_own() -> None:
    of = evidence(scenario=CHAIN)
    assert not launches(of, LaunchKind.DRAFT)
    extends = launches(of, LaunchKind.EXTEND)
    assert {launch.layer for launch in extends} == set(range(LAYERS))
    assert failure("launch.graphs", without(of, extends[-1])).relation == Missing()
    second = next(launch for launch in extends if launch.layer == 1)
    assert failure("launch.graphs", relaunched(of, second, layer=0)).relation == OffBy(-1)


def test_a_draft_without_memory_launches_nothing_of_its_own() -> None:
    of = evidence(scenario=NGRAM)
    assert not any(
        launch.kind in (LaunchKind.DRAFT, LaunchKind.EXTEND, LaunchKind.EXTEND_PROMPT)
        for launch in of.schedule.launches
    )
    for kind in (LaunchKind.DRAFT, LaunchKind.EXTEND):
        assert failure("launch.graphs", relaunched(of, of.schedule.launches[-1], kind=kind)).channel == "graph.replay"


@pytest.mark.parametrize("scenario", [STANDALONE, BLOCK], ids=["standalone", "dflash"])
def test_a_round_with_drafts_needs_a_draft_launch(scenario: Scenario) -> None:
    of = evidence(scenario=scenario)
    found = failure("launch.graphs", without(of, launches(of, LaunchKind.DRAFT)[0]))
    assert (found.relation, found.expected) == (Missing(), "1 draft launches")


@pytest.mark.parametrize("scenario", [STATIC, CHAIN, BLOCK, STANDALONE], ids=["eagle", "mtp", "dflash", "standalone"])
def test_work_that_is_done_twice_is_found_in_every_launch(scenario: Scenario) -> None:
    """A step that a draft runs twice has twice the writes, attentions and choices; an extend, a commit alike."""
    of = evidence(scenario=scenario)
    of_launches = of.subject.typed("graph.work", LaunchWork)
    kinds = {of.subject.typed("graph.replay", LaunchRecord)[key].kind: key for key in of_launches}
    assert set(kinds) == {launch.kind for launch in of.schedule.launches} - {LaunchKind.CAPTURE}
    for key in kinds.values():
        for field in LaunchWork.__struct_fields__:
            more = replace(of_launches[key], **{field: getattr(of_launches[key], field) + 1})
            bad = changed(of, lambda o, k=key, m=more: o._replace(value=m) if o[:2] == ("graph.work", k) else o)
            found = failure("launch.work", bad)
            assert (found.channel, found.relation) == ("graph.work", OffBy(1))


def test_captures_may_warm_up_and_no_other_launch_says_so() -> None:
    of = evidence(scenario=STATIC)
    capture = launches(of, LaunchKind.CAPTURE)[0]
    key = Key(-1, capture.step, step=capture.number)
    told = with_observations(
        of, (*of.subject.observations, Observation("graph.work", key, LaunchWork(0, 0, 0, 0, 0, 0)))
    )
    assert failure("launch.work", told).relation == Surplus()


def rewritten(of: Evidence, launch: StepLaunch, change: Callable[[set], set]) -> Evidence:
    """Other places that a launch changed."""
    key = Key(-1, launch.step, step=launch.number)
    value = tuple(sorted(change(set(of.subject.typed("commit.written", WriteSet)[key]))))
    return with_value(of, "commit.written", key, value)


@pytest.mark.parametrize("layer", range(LAYERS))
def test_each_layer_has_to_write_its_own_entries(layer: int) -> None:
    of = evidence(scenario=CHAIN)
    launch = next(launch for launch in launches(of, LaunchKind.EXTEND) if launch.layer == layer)
    found = failure("memory.written", rewritten(of, launch, lambda _: set()))
    assert (found.got, found.step) == ("unchanged", launch.number)


def test_a_chain_may_compute_again_as_far_back_as_guesses_reach() -> None:
    of = evidence(scenario=CHAIN)
    launch = launches(of, LaunchKind.EXTEND)[0]
    row = of.schedule.batches[launch.step, 1][0]
    n = of.contexts[row.request, row.round]

    def written(position: int) -> Evidence:
        slot = of.tables.slot(row.request, row.round, position)
        return rewritten(of, launch, lambda places: places | {WrittenPlace(MemoryRegion.DRAFT, slot)})

    assert n > LAYERS
    assert list(find("memory.written").check(written(n - LAYERS + 1))) == []
    assert failure("memory.written", written(n - LAYERS)).relation == SlotOf(n - LAYERS)


def test_a_draft_writes_as_many_entries_as_its_form_takes() -> None:
    """Of a round of K drafts: K - 1 of a head whose first proposal is known, K of a model, K + 1 of a block."""
    for scenario, more in ((STATIC, -1), (STANDALONE, 0), (BLOCK, 1)):
        of = evidence(scenario=scenario)
        launch = launches(of, LaunchKind.DRAFT)[0]
        written = of.subject.typed("commit.written", WriteSet)[Key(-1, launch.step, step=launch.number)]
        drafts = [row.count for row in of.schedule.batches[launch.step, 1] if row.count]
        assert len(written) == sum(count + more for count in drafts)
        lost = rewritten(of, launch, lambda places: places - {max(places)})
        assert failure("memory.written", lost).got == "unchanged"


def test_a_draft_without_memory_writes_none() -> None:
    of = evidence(scenario=NGRAM)
    astray = rewritten(of, of.schedule.launches[0], lambda places: places | {WrittenPlace(MemoryRegion.DRAFT, 0)})
    assert failure("memory.written", astray).got == "draft slot 0"
    assert failure("memory.bounds", astray).relation == OutOfRange()


@pytest.mark.parametrize("stage", ["draft", "verify", "extend"])
@pytest.mark.parametrize("scenario", [STATIC, CHAIN, BLOCK, STANDALONE], ids=["eagle", "mtp", "dflash", "standalone"])
def test_rows_that_are_thrown_away_stay_within_their_bounds(scenario: Scenario, stage: str) -> None:
    of, channel = evidence(scenario=scenario), f"{stage}.discarded"
    contract = "launch.discarded" if stage == "verify" else channel
    if channel not in of.subject.channels:
        assert (scenario, stage) == (CHAIN, "draft")
        return
    live = {(launch.step, launch.number): launch.rows for launch in of.schedule.launches}
    wrong = {"position": (-1, 1, 30), "slot": (1, -1), "req_row": (1, -1), "state_slot": (1, -1)}
    for in_padding, beyond in ((True, 1), (False, 30)):
        key, rows, at = next(
            (key, rows, at)
            for key, rows in of.subject.typed(channel, DiscardedRows).items()
            for at, row in enumerate(rows)
            if (row.place >= live[key.round, key.step]) is in_padding
        )
        for field, values in wrong.items():
            for value in {beyond if value == 1 and field != "slot" else value for value in values}:
                bad = (*rows[:at], replace(rows[at], **{field: value}), *rows[at + 1 :])
                one = Observation(channel, key, bad)
                found = failure(contract, changed(of, lambda o, one=one: one if o[:2] == one[:2] else o))
                assert (found.channel, found.relation) == (channel, OutOfRange())
        assert failure(contract, changed(of, lambda o, key=key: None if o[:2] == (channel, key) else o))
