"""Step counts: switches, batches too large for drafts, the widths that graphs run at, and one configuration for all."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

import msgspec
import pytest

from draftproof.harness.lockstep import evidence as lockstep
from draftproof.properties.contracts.registry import find
from draftproof.properties.coverage.counts import counts
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.evidence.observed_run import read_run
from draftproof.properties.judge import judge
from draftproof.properties.values.observed import LaunchKind, LayerKind, StepsInForce
from draftproof.properties.values.relations import Different, OffBy, OutOfOrder, Relation, Resized
from draftproof.properties.values.trace import Key, Observation, Trace
from draftproof.properties.values.verdict import Divergence
from draftproof.reference.answer import follow
from draftproof.reference.solved import solved
from tests.properties.evidence import ADAPTIVE, STATIC, evidence, with_observations
from tests.properties.ideal import IdealSubject


def changed(of: Evidence, change: Callable[[Observation], Observation]) -> Evidence:
    return with_observations(of, map(change, of.subject.observations))


def failure(contract: str, of: Evidence) -> Divergence:
    found = list(find(contract).check(of))
    assert found, f"{contract} did not fail"
    return found[0]


def test_the_evidence_has_what_it_is_about() -> None:
    counted = counts(evidence(scenario=ADAPTIVE))
    for name in ("step_switches_up", "step_switches_down", "batches_too_large_for_drafts", "narrow_replays"):
        assert counted[name], name
    for name in ("replays_folded", "checkpoints_replay", "finals", "drafts_after_batch_without"):
        assert counted[name], name
    still = counts(evidence())
    for name in ("snapshot_rounds", "state_slot_reuses", "checkpoints_two_at_once"):
        assert still[name], name
    for name in ("adaptive_scenarios", "step_switches_up", "replays_folded"):
        assert not still[name], name


def test_a_dynamic_scenario_is_resolved_by_what_ran() -> None:
    known = solved(ADAPTIVE)
    assert known.trace is None
    assert not any(request.rounds for request in known.script.requests)
    ran = IdealSubject().run(ADAPTIVE, known.script)
    done = follow(known, read_run(known.scenario, ran))
    drafts = {round_.drafts for request in done.script.requests for round_ in request.rounds}
    assert drafts >= {0, 1, 3}
    assert done.trace is not None
    assert done.trace.channel("adaptive_steps.steps") == ran.channel("adaptive_steps.steps")
    still = solved(STATIC)
    assert follow(still, read_run(STATIC, IdealSubject().run(STATIC, still.script))) is still


def test_a_draft_too_many_is_noticed_though_the_reference_follows() -> None:
    """The reference verifies as many drafts as the subject says; that it may not is another contract's affair."""

    class Eager(IdealSubject):
        def run(self, scenario, script) -> Trace:
            trace = super().run(scenario, script)
            first = next(
                o for o in trace.observations if o.channel == "round.rows" and o.value.phase == o.value.count == 1
            )
            more = first._replace(value=msgspec.structs.replace(first.value, count=3))
            made = tuple(more if one == first else one for one in trace.observations)
            return Trace(trace.subject, trace.channels, made)

    of = lockstep(Eager(), ADAPTIVE)
    found = failure("adaptive_steps.num_drafts", of)
    assert (found.expected, found.got, found.relation) == ("1 drafts", "3 drafts", OffBy(2))
    assert failure("draft.verified", of).relation == Resized(-2)


def test_an_average_in_another_order_of_operations_is_noticed() -> None:
    of = evidence(scenario=ADAPTIVE)

    def change(one: Observation) -> Observation:
        if one.channel != "adaptive_steps.average":
            return one
        value = struct.unpack("<d", one.value)[0]  # type: ignore[arg-type]
        return one._replace(value=struct.pack("<d", value + 2**-50))

    assert failure("adaptive_steps.average", changed(of, change)).channel == "adaptive_steps.average"


def test_a_switch_too_late_is_noticed() -> None:
    of = evidence(scenario=ADAPTIVE)
    steps = of.subject.typed("adaptive_steps.steps", StepsInForce)
    late = next(key for key in sorted(steps) if steps[key].steps == 3)

    def change(one: Observation) -> Observation:
        return with_fields(one, steps=1) if one[:2] == ("adaptive_steps.steps", late) else one

    assert failure("adaptive_steps.steps", changed(of, change)).round == late.round


class Tied(Evidence):
    """As if a real model's first request had met a tie in its first round."""

    @property
    def ties(self) -> Mapping[int, tuple[int, ...]]:
        return {0: (0, 1)}


def tied(of: Evidence) -> Evidence:
    return Tied(**{field.name: getattr(of, field.name) for field in fields(of)})


@pytest.mark.parametrize("contract", ["adaptive_steps.steps", "adaptive_steps.average", "adaptive_steps.num_drafts"])
def test_after_a_tie_nobody_knows_the_step_counts(contract: str) -> None:
    of = evidence(scenario=ADAPTIVE)
    assert contract in judge(of).results
    assert contract not in judge(tied(of)).results


def test_without_a_controller_a_tie_leaves_the_drafts_of_the_other_requests() -> None:
    of = tied(evidence())
    assert judge(of).results["adaptive_steps.num_drafts"] is None

    def more(request: int) -> Callable[[Observation], Observation]:
        def change(one: Observation) -> Observation:
            if one.channel != "round.rows" or one.key.request != request or not one.value.phase:
                return one
            return with_fields(one, count=one.value.count + 1)

        return change

    assert list(find("adaptive_steps.num_drafts").check(changed(of, more(0)))) == []
    assert failure("adaptive_steps.num_drafts", changed(of, more(1))).request == 1


def test_after_a_tie_graphs_are_as_wide_as_the_subjects_own_step_count() -> None:
    of = evidence(scenario=ADAPTIVE)

    def change(one: Observation) -> Observation:
        return with_fields(one, steps=1) if one.channel == "adaptive_steps.steps" else one

    elsewhere = replace(of.reference, observations=tuple(map(change, of.reference.observations)))
    assert failure("launch.graphs", replace(of, reference=elsewhere)).channel == "graph.replay"
    assert list(find("launch.graphs").check(tied(replace(of, reference=elsewhere)))) == []


@pytest.mark.parametrize("at", range(4))
def test_a_configuration_that_somebody_changed_is_noticed(at: int) -> None:
    of = evidence()

    def change(one: Observation) -> Observation:
        mine = one[:2] == ("config.seen", Key(-1, 0, step=at))
        return with_fields(one, crc=1) if mine else one

    found = failure("config.seen", changed(of, change))
    assert found.step == (at or 1)


def test_layers_that_are_not_the_models_are_noticed() -> None:
    def change(one: Observation) -> Observation:
        if one.channel != "config.seen":
            return one
        return with_fields(one, layer_kinds=(LayerKind.FULL_ATTENTION, *one.value.layer_kinds[1:]))

    assert failure("config.seen", changed(evidence(), change)).step == 0


def with_fields(one: Observation, **fields: Any) -> Observation:
    """The observation with other fields in its value."""
    return one._replace(value=msgspec.structs.replace(one.value, **fields))


def relaunched(of: Evidence, kind: int, field: str, more: int) -> Evidence:
    """The last launch of a kind with one number of it changed."""
    launch = [launch for launch in of.schedule.launches if launch.kind == kind][-1]
    key = Key(-1, launch.step, step=launch.number)

    def change(one: Observation) -> Observation:
        if one[:2] != ("graph.replay", key):
            return one
        return with_fields(one, **{field: getattr(one.value, field) + more})

    return changed(of, change)


@pytest.mark.parametrize(
    ("kind", "field", "more", "relation"),
    [
        (LaunchKind.VERIFY, "width", 1, OffBy(1)),
        (LaunchKind.COMMIT, "rows", 1, OffBy(1)),
        (LaunchKind.COMMIT, "width", 2, OffBy(2)),
        (LaunchKind.COMMIT, "size", 2, Different()),
        (LaunchKind.CAPTURE, "width", 1, Different()),
    ],
)
def test_launches_are_held_to_their_width_and_rows(kind: int, field: str, more: int, relation: Relation) -> None:
    assert failure("launch.graphs", relaunched(evidence(scenario=ADAPTIVE), kind, field, more)).relation == relation


def test_a_commit_before_its_verify_is_out_of_order() -> None:
    of = evidence()
    step = next(launch.step for launch in of.schedule.launches if launch.kind == LaunchKind.COMMIT)
    numbers = {launch.kind: launch.number for launch in of.schedule.launches if launch.step == step}
    swap = {
        numbers[LaunchKind.VERIFY]: numbers[LaunchKind.COMMIT],
        numbers[LaunchKind.COMMIT]: numbers[LaunchKind.VERIFY],
    }

    def change(one: Observation) -> Observation:
        if one.channel != "graph.replay" or one.key.round != step:
            return one
        return one._replace(key=one.key._replace(step=swap.get(one.key.step, one.key.step)))

    found = [d.relation for d in find("launch.graphs").check(changed(of, change))]
    assert found == [OutOfOrder()]
