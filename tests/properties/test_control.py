"""Step counts: switches, batches too large for drafts, the widths that graphs run at, and one configuration for all."""

import struct
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import pytest
from msgspec.structs import replace as put

from draftproof.harness.lockstep import evidence as lockstep
from draftproof.properties.contracts.registry import find
from draftproof.properties.coverage.counts import counts
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.evidence.observed_run import read_run
from draftproof.properties.judge import judge
from draftproof.properties.values.observed import LaunchKind, LayerKind, StepsInForce
from draftproof.properties.values.relations import Different, OffBy, OutOfOrder, Relation, Resized
from draftproof.properties.values.trace import Key, Observation, Trace
from draftproof.reference.answer import follow
from draftproof.reference.solved import solved
from tests.properties.breaking import changed, edited, failure
from tests.properties.evidence import ADAPTIVE, STATIC, evidence
from tests.properties.ideal import IdealSubject


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
            more = first._replace(value=put(first.value, count=3))
            made = tuple(more if one == first else one for one in trace.observations)
            return Trace(trace.subject, trace.channels, made)

    of = lockstep(Eager(), ADAPTIVE)
    found = failure("adaptive_steps.num_drafts", of)
    assert (found.expected, found.got, found.relation) == ("1 drafts", "3 drafts", OffBy(2))
    assert failure("draft.verified", of).relation == Resized(-2)


def test_an_average_in_another_order_of_operations_is_noticed() -> None:
    of = evidence(scenario=ADAPTIVE)

    near = edited(
        of, "adaptive_steps.average", lambda _, value: struct.pack("<d", struct.unpack("<d", value)[0] + 2**-50)
    )
    assert failure("adaptive_steps.average", near).channel == "adaptive_steps.average"


def test_a_switch_too_late_is_noticed() -> None:
    of = evidence(scenario=ADAPTIVE)
    steps = of.subject.typed("adaptive_steps.steps", StepsInForce)
    late = next(key for key in sorted(steps) if steps[key].steps == 3)
    wrong = edited(of, "adaptive_steps.steps", lambda _, value: put(value, steps=1), lambda key: key == late)
    assert failure("adaptive_steps.steps", wrong).round == late.round


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
    one, other = (
        edited(
            of,
            "round.rows",
            lambda _, row: put(row, count=row.count + 1) if row.phase else row,
            lambda key, request=request: key.request == request,
        )
        for request in (0, 1)
    )
    assert list(find("adaptive_steps.num_drafts").check(one)) == []
    assert failure("adaptive_steps.num_drafts", other).request == 1


def test_after_a_tie_graphs_are_as_wide_as_the_subjects_own_step_count() -> None:
    of = evidence(scenario=ADAPTIVE)
    as_one = edited(replace(of, subject=of.reference), "adaptive_steps.steps", lambda _, value: put(value, steps=1))
    elsewhere = as_one.subject
    assert failure("launch.graphs", replace(of, reference=elsewhere)).channel == "graph.replay"
    assert list(find("launch.graphs").check(tied(replace(of, reference=elsewhere)))) == []


@pytest.mark.parametrize("at", range(4))
def test_a_configuration_that_somebody_changed_is_noticed(at: int) -> None:
    wrong = edited(
        evidence(), "config.seen", lambda _, value: put(value, crc=1), lambda key: key == Key(-1, 0, step=at)
    )
    assert failure("config.seen", wrong).step == (at or 1)


def test_layers_that_are_not_the_models_are_noticed() -> None:
    def other(_: Key, seen: Any) -> Any:
        return put(seen, layer_kinds=(LayerKind.FULL_ATTENTION, *seen.layer_kinds[1:]))

    assert failure("config.seen", edited(evidence(), "config.seen", other)).step == 0


def relaunched(of: Evidence, kind: int, field: str, more: int) -> Evidence:
    """The last launch of a kind with one number of it changed."""
    launch = [launch for launch in of.schedule.launches if launch.kind == kind][-1]
    key = Key(-1, launch.step, step=launch.number)
    return edited(
        of, "graph.replay", lambda _, value: put(value, **{field: getattr(value, field) + more}), lambda own: own == key
    )


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
