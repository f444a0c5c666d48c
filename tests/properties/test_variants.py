"""Relations change what they say, and nothing that they leave alone."""

from dataclasses import replace

import msgspec
import pytest

from draftproof.engine.subject import EngineSubject
from draftproof.harness.lockstep import evidence as lockstep
from draftproof.properties.contracts.registry import find
from draftproof.properties.coverage.counts import counts
from draftproof.properties.features.trees import without_tree
from draftproof.properties.judge import judge
from draftproof.properties.lib.invalid import InvalidScenarioError
from draftproof.properties.lib.paths import put_in
from draftproof.properties.validate import validate
from draftproof.properties.values.channels import CHANNELS
from draftproof.properties.values.drafts import Ngram
from draftproof.properties.values.observed import BatchRow, IndexBytes, LaunchRecord, MemoryRegion
from draftproof.properties.values.scenario import VARIANTS, Checkpoint, Scenario, Variant
from draftproof.properties.values.trace import Trace
from draftproof.properties.variants import unchanged, varied
from tests.named import with_other_draft
from tests.properties.evidence import (
    ABORTED_AGAIN,
    BESIDE_TREE,
    CACHED,
    CACHED_STATES,
    MATCHES_BESIDE_TREE,
    MIXED,
    OVERLAPPED,
    PREEMPTED,
    STATIC,
    evidence,
    with_aborts,
    with_observations,
)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_relation_changes_the_scenario_and_keeps_it_valid(variant: str) -> None:
    base = {"chain_as_tree": BESIDE_TREE, "unmixed": MIXED, "unoverlapped": OVERLAPPED}.get(variant, STATIC)
    scenario = msgspec.structs.replace(base, variant=variant)
    changed = validate(varied(scenario))
    assert changed.variant == "none"
    assert changed != msgspec.structs.replace(scenario, variant="none")
    if variant != "alone":
        assert without_tree(changed).requests == scenario.requests


def test_a_request_alone_has_all_to_itself() -> None:
    aborted = with_aborts(CACHED_STATES, None, 8, None, None)
    changed = validate(varied(msgspec.structs.replace(aborted, variant="alone")))
    assert [one.arrival for one in changed.requests] == [0, 1, 2, 3]
    assert not changed.has_aborts
    assert changed.schedule == msgspec.structs.replace(
        CACHED_STATES.schedule, max_batch=1, preemption=False, prefix_cache=False
    )
    assert changed.memory.checkpoint_slots == 0
    assert [one.prompt for one in changed.requests] == [one.prompt for one in aborted.requests]


@pytest.mark.parametrize(
    ("base", "served", "resumed"),
    [(CACHED, True, False), (CACHED_STATES, True, False), (PREEMPTED, False, True), (ABORTED_AGAIN, False, False)],
    ids=["served", "hybrid served", "resumed", "aborted"],
)
def test_requests_are_what_they_are_alone(base: Scenario, served: bool, resumed: bool) -> None:
    of = lockstep(EngineSubject(), validate(msgspec.structs.replace(base, variant="alone")))
    assert judge(of).passed
    assert counts(of)["variant_alone"] == 1
    assert (counts(of)["variant_alone_of_served"] > 0) == served
    assert (counts(of)["variant_alone_of_resumed"] > 0) == resumed
    assert of.varied is not None
    assert max(launch.rows for launch in of.varied.typed("graph.replay", LaunchRecord).values()) == 1


@pytest.mark.parametrize("base", [CACHED, PREEMPTED], ids=["served", "resumed"])
@pytest.mark.parametrize("channel", ["accept.emitted", "commit.kv"])
def test_a_request_that_is_not_what_it_is_alone_is_noticed(base: Scenario, channel: str) -> None:
    of = lockstep(EngineSubject(), validate(msgspec.structs.replace(base, variant="alone")))
    again = min(of.schedule.resumed, default=(1, 0))
    wrong = max(key for key in of.subject.channel(channel) if key.request == again[0] and key.round > again[1])
    values = [
        one._replace(value=tuple(number + 1 for number in one.value)) if one[:2] == (channel, wrong) else one  # type: ignore[union-attr]
        for one in of.subject.observations
    ]
    (found,) = find("variant.alone").check(with_observations(of, values))
    assert (found.channel, found.key) == (channel, wrong)


def test_a_request_that_was_given_nothing_alone_is_noticed() -> None:
    of = lockstep(EngineSubject(), validate(msgspec.structs.replace(PREEMPTED, variant="alone")))
    assert of.varied is not None
    (request, _), *_ = of.schedule.resumed
    left = [one for one in of.varied.observations if one.key.request != request]
    without = replace(of, varied=Trace(of.varied.subject, of.varied.channels, tuple(left)))
    assert "accept.emitted" in {found.channel for found in find("variant.alone").check(without)}


@pytest.mark.parametrize(("region", "is_told"), [(MemoryRegion.INTERMEDIATE, False), (MemoryRegion.STATES, True)])
def test_an_intermediate_state_may_be_what_a_capture_left(region: MemoryRegion, is_told: bool) -> None:
    """Of two requests of one text the second writes what is there, unless a capture came between them."""
    of = evidence("graph_vs_eager")
    wrote = next(
        one
        for one in of.subject.observations
        if one.channel == "commit.written" and any(place.region == region for place in one.value)  # type: ignore[union-attr]
    )
    fewer = wrote._replace(value=tuple(place for place in wrote.value if place.region != region))  # type: ignore[union-attr]
    observations = [fewer if one is wrote else one for one in of.subject.observations]
    found = [one for one in find("variant.graph_vs_eager").check(with_observations(of, observations)) if one]
    assert bool(found) == is_told


def test_a_checkpoint_is_not_served_alone() -> None:
    real = msgspec.structs.replace(STATIC, model=Checkpoint(path="x", vocab=64), draft=Ngram(max_n=2))
    with pytest.raises(InvalidScenarioError, match="variant alone of a checkpoint"):
        validate(msgspec.structs.replace(real, variant="alone"))


REFUSED = {
    "variant chain_as_tree: expected another one, or a scenario whose drafts could be trees, but invalid trees "
    "with draft 'mtp'": msgspec.structs.replace(with_other_draft(STATIC, "mtp"), variant="chain_as_tree"),
    "memory.pages 20: expected at least 23 with chain_as_tree": put_in(BESIDE_TREE, "memory", pages=20),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_a_chain_that_is_no_tree_is_refused(sentence: str) -> None:
    with pytest.raises(InvalidScenarioError) as refused:
        validate(REFUSED[sentence])
    assert f"invalid {sentence}" in str(refused.value)


def test_a_chain_and_its_tree_report_the_same_rows() -> None:
    of = evidence("chain_as_tree", BESIDE_TREE)
    tree = of.varied
    assert tree is not None
    rows = tree.typed("round.parents", tuple)
    assert {row for row in rows.values() if row} == {(0,), (0, 1), (0, 1, 2)}
    steps, beams = of.subject.channel("draft.step.slots"), tree.channel("draft.beam.slots")
    assert len(steps) == len(beams) > 5
    assert judge(of).passed
    other = evidence("chain_as_tree", MATCHES_BESIDE_TREE)
    assert judge(other).passed
    assert counts(other)["variant_chain_as_tree"] == 1


def test_no_relation_has_no_pair() -> None:
    with pytest.raises(ValueError, match="expected one of graph_vs_eager"):
        varied(STATIC)


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_the_host_sees_is_never_changed(variant) -> None:
    kept, told = unchanged(variant), {name for name in CHANNELS if name.startswith("accept.")}
    # When it is returned hangs on who else is served, and on when the host knows of it.
    assert told - kept == ({"accept.returned"} if variant in ("alone", "unoverlapped") else set())
    assert {"commit.length", "commit.kv"} <= kept


def test_what_only_a_capture_shows_is_no_difference() -> None:
    """Requests that end with their prompts have no round: verify is captured at the start, and never runs eagerly."""
    base = with_other_draft(STATIC, "ngram")
    ends = tuple(msgspec.structs.replace(one, budget=1, rounds=one.rounds[:1]) for one in base.requests)
    graphs = msgspec.structs.replace(base.graphs, at_start=True)
    short = msgspec.structs.replace(base, requests=ends, graphs=graphs, variant="graph_vs_eager")
    of = lockstep(EngineSubject(), short)
    shown = [one.typed("config.index_bytes", IndexBytes).values() for one in (of.subject, of.varied) if one]
    assert [[one.slots for one in of_run] for of_run in shown] == [[8], [0]]
    assert not [found for found in find("variant.graph_vs_eager").check(of) if found]


@pytest.mark.parametrize("variant", ["graph_vs_eager", "unmixed"])
def test_slots_that_both_runs_show_are_compared(variant: Variant) -> None:
    of = evidence(variant, MIXED if variant == "unmixed" else STATIC)
    narrow = [
        one._replace(value=msgspec.structs.replace(one.value, slots=4)) if isinstance(one.value, IndexBytes) else one
        for one in of.subject.observations
    ]
    (found,) = find(f"variant.{variant}").check(with_observations(of, narrow))
    assert found.channel == "config.index_bytes"


def test_the_pairs_really_differ() -> None:
    """What a variant is about is different in its second run."""
    eager = evidence("graph_vs_eager")
    assert {launch.size for launch in eager.varied.channel("graph.replay").values()} == {0}  # type: ignore[union-attr,attr-defined]
    moved = evidence("other_memory")
    assert moved.subject.channel("round.table") != moved.varied.channel("round.table")  # type: ignore[union-attr]
    assert varied(moved.scenario).memory.poison != moved.scenario.memory.poison
    wider = evidence("other_batches")
    assert {row.size for row in wider.schedule.rows if row.phase} == {2}
    rows = [one.typed("round.rows", BatchRow) for one in (wider.subject, wider.varied) if one]
    assert 3 in {row.size for row in rows[1].values()}
    places = [{key: row.place for key, row in of_run.items()} for of_run in rows]
    assert places[0] != places[1]
