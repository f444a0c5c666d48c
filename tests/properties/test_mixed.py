"""Mixed steps: chunks and verify rows in one launch, in token buckets (S-MIXED)."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from draftproof import run
from draftproof.engine.subject import EngineSubject
from draftproof.properties.contracts.registry import find
from draftproof.properties.coverage.counts import counts
from draftproof.properties.judge import judge
from draftproof.properties.lib.invalid import InvalidScenarioError
from draftproof.properties.lib.paths import put_in
from draftproof.properties.validate import validate
from draftproof.properties.values.observed import PACKED, IndexBytes, LaunchKind, PackedRows
from draftproof.properties.values.scenario import RoundPlan, Scenario
from tests.named import named
from tests.properties.breaking import edited
from tests.properties.evidence import MIXED, STATIC, by_engine, evidence, mixed_too, with_observations

CONTRACT = find("launch.packed")


def test_a_mixed_run_is_right_and_packs_both_kinds() -> None:
    of = by_engine(MIXED)
    assert judge(of).passed
    kinds = {launch.kind for launch in of.schedule.launches if launch.tokens}
    assert kinds == {LaunchKind.PREFILL, LaunchKind.MIXED}
    for launch in of.schedule.launches:
        assert launch.kind != LaunchKind.VERIFY or not of.schedule.batches.get((launch.step, 0))


@pytest.mark.parametrize("length", [4, 8])
def test_a_row_without_a_position_left_is_not_in_a_packed_launch(length: int) -> None:
    scenario = named("overlapped_stop")
    ends, runs, *_ = scenario.requests
    full = len(ends.prompt) + length
    scenario = replace(
        scenario,
        requests=(
            replace(ends, budget=40, stop_at=-1, rounds=(RoundPlan(num_drafts=scenario.steps, num_correct=-1),)),
            replace(runs, prompt=((1, 2, 3, 4) * 2)[: full - 2], arrival=0, budget=1, stop_at=-1),
        ),
        memory=replace(scenario.memory, max_len=full, pages=40),
        schedule=replace(scenario.schedule, mixed=True, chunk=1, overlap=("late",)),
    )
    ran = run(EngineSubject(), validate(scenario))
    assert judge(ran).first is None
    packed = [launch for launch in ran.schedule.launches if launch.kind in PACKED]
    assert any(row.count + row.phase == 0 for launch in packed for row in ran.schedule.packed_at(launch.step))


def test_its_launches_are_counted() -> None:
    counted = counts(by_engine(MIXED))
    assert counted["mixed_launches"] > 0
    assert counted["buckets_padded"] > 0


def test_a_hybrid_runs_packed_launches_eagerly() -> None:
    of = evidence("unmixed", mixed_too(STATIC))
    assert judge(of).passed
    packed = [launch for launch in of.schedule.launches if launch.tokens]
    assert packed
    assert not any(launch.size for launch in packed)


@pytest.mark.parametrize(("field", "is_told"), [("slots", False), ("positions", True)])
def test_launches_of_their_own_may_show_slots_that_packed_ones_do_not(field: str, is_told: bool) -> None:
    of = evidence("unmixed", mixed_too(STATIC))
    observations = [
        one._replace(value=replace(one.value, **{field: 0})) if isinstance(one.value, IndexBytes) else one
        for one in of.subject.observations
    ]
    found = [one for one in find("variant.unmixed").check(with_observations(of, observations)) if one]
    assert bool(found) == is_told


def _other_order(rows: PackedRows) -> PackedRows:
    return tuple(reversed(rows))


def _twice(rows: PackedRows) -> PackedRows:
    return (*rows, rows[0])


def _one_less(rows: PackedRows) -> PackedRows:
    return rows[:-1]


@pytest.mark.parametrize("change", [_other_order, _twice, _one_less])
def test_rows_elsewhere_twice_or_missing_are_noticed(change: Callable[[PackedRows], PackedRows]) -> None:
    of = by_engine(MIXED)
    kinds = {(one.step, one.number): one.kind for one in of.schedule.launches}

    wrong = edited(
        of,
        "verify.packed",
        lambda _, rows: change(rows),
        lambda key: kinds[key.round, key.step] == LaunchKind.MIXED,
    )
    found = list(CONTRACT.check(wrong))
    assert [one.contract for one in found] == ["launch.packed"]


@pytest.mark.parametrize(
    ("scenario", "sentence"),
    [
        (put_in(STATIC, "graphs", tokens=(4,)), r"graphs.tokens \[4\]: expected none without schedule.mixed"),
        (mixed_too(put_in(STATIC, "graphs", tokens=(4,))), r"graphs.tokens \[4\]: expected none beside linear layers"),
        (put_in(MIXED, "graphs", tokens=(9, 4)), r"graphs.tokens \[9, 4\]: expected distinct and ascending"),
        (replace(STATIC, variant="unmixed"), "variant unmixed: expected another one, or none, without schedule.mixed"),
    ],
)
def test_what_does_not_go_with_it_is_refused(scenario: Scenario, sentence: str) -> None:
    with pytest.raises(InvalidScenarioError, match=f"invalid {sentence}"):
        validate(scenario)
