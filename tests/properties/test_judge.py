"""Verdicts: the first divergence of all, minima, and what is skipped."""

from dataclasses import replace

import pytest
from msgspec.structs import replace as put

from draftproof.engine.subject import EngineSubject
from draftproof.harness.lockstep import evidence as lockstep
from draftproof.properties.contracts.registry import ALL, find
from draftproof.properties.coverage.counts import counts, total
from draftproof.properties.coverage.facts import FACT_NAMES
from draftproof.properties.judge import Judgement, judge, summarise
from draftproof.properties.values.observed import LaunchKind, LaunchRecord, MemoryRegion, WrittenPlace
from draftproof.properties.values.relations import OffBy, Zero
from draftproof.properties.values.scenario import Checkpoint, Scenario
from draftproof.properties.values.subject import Subject
from draftproof.properties.values.trace import Key, Observation, Trace
from draftproof.properties.values.verdict import Outcome
from draftproof.reference.run import ReferenceSubject
from tests.properties.breaking import edited
from tests.properties.evidence import SCENARIOS, STATIC, Evidence, evidence, with_observations
from tests.properties.facts import taking
from tests.properties.ideal import IdealSubject

ENOUGH = dict.fromkeys(FACT_NAMES, 1) | {"ties": 0, "token_ties": 0}


def shifted(channel: str, by: int) -> Evidence:
    """Every value of an integer channel wrong by the same."""
    one = evidence()
    return edited(one, channel, lambda _, value: value + by)


@pytest.mark.parametrize("subject", [IdealSubject(), EngineSubject()], ids=lambda subject: subject.name)
def test_who_has_no_fault_passes_every_contract(subject: Subject) -> None:
    judged = [judge(lockstep(subject, scenario)) for scenario in SCENARIOS]
    verdicts = summarise(judged, [ENOUGH] * len(judged))
    failed = [verdict for verdict in verdicts if verdict.verdict is Outcome.FAIL]
    assert failed == []
    others = {
        "schedule.preemption",
        "schedule.aborted",
        "schedule.token_budget",
        "launch.packed",
        "commit.cached",
        "output.refused",
        "disaggregation.committed",
        "disaggregation.engines",
        "disaggregation.entries",
        "disaggregation.hidden",
        "disaggregation.schedule",
        "disaggregation.state",
        "overlap.buffers",
        "overlap.discarded",
        "overlap.pages",
        "overlap.schedule",
        "prefix_cache.matched",
        "prefix_cache.pages",
        "prefix_cache.states",
        "rank.collectives",
        "rank.idle",
        "tensor.collectives",
        "tensor.decisions",
    }
    assert {v.name for v in verdicts if v.verdict is not Outcome.PASS} == {
        c.name for c in ALL if c.name.startswith("variant.") or c.name in others
    }


def test_draft_positions_one_ahead_read_as_such() -> None:
    found = judge(shifted("draft.step.positions", 1)).first
    assert found is not None
    assert (found.contract, found.channel, found.step) == ("draft.positions", "draft.step.positions", 1)
    assert int(found.got) == int(found.expected) + 1
    assert (found.relation, found.count) == (OffBy(1), found.total)
    assert found.output_changed is False


def test_a_write_into_another_request_comes_before_what_was_read_there() -> None:
    one = evidence()
    written = [o for o in one.subject.observations if o.channel == "commit.written"]
    replay = one.subject.typed("graph.replay", LaunchRecord)
    drafted = next(o for o in written if replay[o.key].kind == LaunchKind.DRAFT)
    step = drafted.key.round
    row = next(row for row in one.schedule.rows if row.step == step and row.phase)

    def wrong(o: Observation) -> Observation:
        if o == drafted:
            return o._replace(value=(*o.value, WrittenPlace(MemoryRegion.DRAFT, 3)))  # type: ignore[misc]
        if o.channel == "verify.hidden" and (o.key.request, o.key.round) == (row.request, row.round):
            return o._replace(value=bytes(len(o.value)))  # type: ignore[arg-type]
        return o

    judgement = judge(with_observations(one, map(wrong, one.subject.observations)))
    assert judgement.results["verify.hidden"].relation == Zero()  # type: ignore[union-attr]
    assert judgement.first.contract == "memory.written"  # type: ignore[union-attr]


def test_what_ran_first_is_told_first_whatever_the_number_of_its_round() -> None:
    """Request `early` is in a later round of its own than `late` when both run; a cause there comes before effects."""
    one = evidence()
    steps = {at: step for at, step in one.schedule.decode_steps.items() if at[1] > 1}
    cause = min(steps, key=lambda at: (steps[at], at))
    effect = (cause[0], cause[1] + 1)
    late = next(
        at
        for at, step in one.schedule.decode_steps.items()
        if at[0] != cause[0] and at[1] == 1 and step > steps[effect]
    )
    assert steps[cause] < steps[effect]

    def wrong(o: Observation) -> Observation:
        at = o.key[:2]
        is_wrong = (o.channel == "verify.positions" and at in (cause, late)) or (
            o.channel == "commit.length" and at == effect
        )
        return o._replace(value=o.value + 1) if is_wrong else o  # type: ignore[operator]

    judgement = judge(with_observations(one, map(wrong, one.subject.observations)))
    assert judgement.first is not None
    assert (judgement.first.channel, judgement.first.key[:2]) == ("verify.positions", cause)


def test_an_entry_of_a_prompt_is_of_the_step_of_its_chunk() -> None:
    one = next(of for of in map(evidence_of_scenario, SCENARIOS) if has_chunks(of))
    starts = {at: start for at, start in one.schedule.chunk_starts.items() if at[2] > 0}
    (request, number, chunk), start = next(iter(starts.items()))
    ran = {row.chunk: row.step for row in one.schedule.rows if row[:2] == (request, number) and not row.phase}
    for position, of_chunk in ((start, chunk), (start - 1, chunk - 1)):
        assert one.order.step("extend.kv", Key(request, number, layer=0, row=position)) == ran[of_chunk]
    assert ran[chunk] > ran[chunk - 1]


def evidence_of_scenario(scenario: Scenario) -> Evidence:
    return evidence(scenario=scenario)


def has_chunks(of: Evidence) -> bool:
    return any(chunk > 0 for _, _, chunk in of.schedule.chunk_starts)


def test_zero_counts_are_inconclusive() -> None:
    judged = [judge(evidence(scenario=scenario)) for scenario in SCENARIOS]
    verdicts = summarise(judged, [total([])] * len(judged))
    assert {verdict.verdict for verdict in verdicts} == {Outcome.INCONCLUSIVE}
    assert all(verdict.missing for verdict in verdicts)


def test_each_minimum_alone_makes_inconclusive() -> None:
    judged = [judge(evidence(scenario=scenario)) for scenario in SCENARIOS]
    for contract in ALL:
        for name in contract.minimum:
            verdict = summarise(judged, [ENOUGH | {name: 0}] * len(judged), [contract])[0]
            assert verdict.verdict is Outcome.INCONCLUSIVE
            assert f"{name} >= 1" in verdict.missing


@pytest.mark.parametrize(
    ("name", "ties", "most"), [("verify.choice", "ties", 2), ("output.lossless", "token_ties", 20)]
)
def test_many_ties_are_inconclusive(name: str, ties: str, most: int) -> None:
    """Of requests for what stops at them, of tokens for a text, which is judged on behind them."""
    judged, thousand = [judge(evidence())], ENOUGH | {"tokens_emitted": 1000}
    for count, outcome in ((most, Outcome.PASS), (most + 1, Outcome.INCONCLUSIVE)):
        (verdict,) = summarise(judged, [thousand | {ties: count}], [find(name)])
        assert verdict.verdict is outcome


def test_what_a_model_without_linear_layers_cannot_reach_is_skipped_not_missed() -> None:
    """Real models only: probes are generated, so that each kind of them is there."""
    hybrid, channels = taking("hybrid"), evidence().subject.channels
    judged = Judgement({"output.lossless": None, "launch.graphs": None}, None, channels, hybrid)
    enough = ENOUGH | dict.fromkeys(hybrid, 0)
    verdicts = {verdict.name: verdict.verdict for verdict in summarise([judged], [enough])}
    assert verdicts["launch.graphs"] is Outcome.PASS
    assert verdicts["commit.state"] is verdicts["variant.other_commit"] is Outcome.SKIP
    mixed = summarise([judged, judge(evidence())], [enough, enough], [find("commit.state")])
    assert mixed[0].verdict is Outcome.INCONCLUSIVE


def test_what_a_draft_does_not_have_is_skipped_and_what_a_subject_does_not_say_too() -> None:
    verdicts = {verdict.name: verdict for verdict in summarise([judge(evidence())], [ENOUGH])}
    assert verdicts["block.ids"].verdict is verdicts["chain.hidden"].verdict is Outcome.SKIP
    assert verdicts["block.ids"].reason == "no scenario of this model and draft has blocks, blocks_cut"
    assert verdicts["chain.hidden"].reason.startswith("no scenario of this model and draft has guesses_replaced")
    one = evidence()
    silent = Trace("silent", one.subject.channels - {"draft.step.ids"}, one.subject.observations)
    lacking = {verdict.name: verdict for verdict in summarise([judge(replace(one, subject=silent))], [ENOUGH])}
    assert lacking["draft.ids"].reason == "the subject does not report draft.step.ids"


def test_no_scenario_is_inconclusive() -> None:
    assert {verdict.verdict for verdict in summarise([], [])} == {Outcome.INCONCLUSIVE}


def test_the_reference_passes_what_it_can_be_held_to_and_skips_the_rest() -> None:
    one = evidence()
    control = ReferenceSubject().run(STATIC, one.script)
    verdicts = summarise([judge(Evidence(STATIC, one.script, one.reference, control))], [ENOUGH])
    outcomes = {verdict.name: verdict.verdict for verdict in verdicts}
    assert outcomes["output.lossless"] is Outcome.PASS
    assert outcomes["memory.written"] is Outcome.SKIP
    assert Outcome.FAIL not in outcomes.values()


def test_every_minimum_is_a_count() -> None:
    assert {name for contract in ALL for name in contract.minimum} <= set(FACT_NAMES)
    assert set(counts(evidence())) == set(FACT_NAMES)


def test_extending_a_finished_request_is_tolerated() -> None:
    one = evidence()
    last = len(one.script.requests[0].rounds)
    seen = next(o for o in one.subject.observations if o.channel == "extend.ids")
    more = seen._replace(key=seen.key._replace(request=0, round=last, row=3))
    assert judge(with_observations(one, (*one.subject.observations, more))).passed


def test_a_real_draft_may_propose_once_more_after_the_last_round_too() -> None:
    one = evidence()
    real = put(one.scenario, model=Checkpoint(path="", vocab=one.scenario.model.vocab))
    last = len(one.script.requests[0].rounds)
    seen = next(o for o in one.subject.observations if o.channel == "extend.proposal")
    more = seen._replace(key=seen.key._replace(request=0, round=last))
    expected, got = replace(with_observations(one, (*one.subject.observations, more)), scenario=real).pair(more.channel)
    assert more.key not in expected
    assert got == expected


def test_an_unknown_contract_is_named_with_the_nearest() -> None:
    with pytest.raises(KeyError, match=r"draft\.positions"):
        find("draft.position")


def test_a_run_without_taps_has_the_ties_of_its_base_run() -> None:
    of = evidence()
    real = put(of.scenario, model=Checkpoint(path="", vocab=of.scenario.model.vocab))
    blind = replace(of, scenario=real, subject=Trace("blind", frozenset(), ()), base_ties={1: (0, 2)})
    assert blind.ties == {1: (0, 2)}


def test_a_minimum_is_held_to_the_scenarios_that_the_contract_judged() -> None:
    judged = [judge(evidence()), judge(evidence())]
    lossless = find("output.lossless")
    elsewhere = replace(judged[1], results={name: None for name in judged[1].results if name != "output.lossless"})
    few = ENOUGH | {"accept_partial": 0}
    assert summarise([judged[0], judged[1]], [few, ENOUGH], [lossless])[0].verdict is Outcome.PASS
    found = summarise([judged[0], elsewhere], [few, ENOUGH], [lossless])[0]
    assert found.verdict is Outcome.INCONCLUSIVE
    assert found.missing == ("accept_partial >= 1",)
