"""What is said of drafts that are wrong, each kind in its own way, and when its scenarios prove enough."""

import itertools
from collections import Counter
from collections.abc import Callable, Mapping

import msgspec
import pytest

from draftproof.engine.subject import EngineSubject
from draftproof.harness.lockstep import evidence as lockstep
from draftproof.properties.contracts.registry import ALL, find
from draftproof.properties.coverage.counts import FACT_NAMES, counts, total
from draftproof.properties.evidence.comparison import may_leave_out
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.evidence.forms import form_of
from draftproof.properties.evidence.schedule import Row
from draftproof.properties.fit import fit
from draftproof.properties.judge import COMMON, by_draft, judge, summarise
from draftproof.properties.lib.invalid import InvalidScenarioError
from draftproof.properties.lib.paths import put
from draftproof.properties.validate import validate
from draftproof.properties.values.drafts import ALGORITHMS, DRAFT_KINDS_BY_NAME, CheckpointDraft, algorithm
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.observed import Datum, DraftNeeds, NgramMatch
from draftproof.properties.values.relations import (
    ChoiceOf,
    Missing,
    OffBy,
    OtherLayer,
    OtherRow,
    OutOfRange,
    Relation,
    Resized,
    Stale,
    WrongFeature,
    WrongMatch,
    Zero,
)
from draftproof.properties.values.scenario import VARIANTS, Scenario, Variant
from draftproof.properties.values.trace import Key, Observation
from draftproof.properties.values.verdict import Divergence, Outcome
from tests.named import named, names
from tests.properties.breaking import changed, edited, failure, with_value
from tests.properties.evidence import (
    BLOCK,
    CHAIN,
    CHANGING,
    NGRAM,
    OF_DRAFTS,
    STANDALONE,
    UNCHAINED,
    drafting,
    evidence,
)
from tests.properties.facts import names_of

LAYERS = 3


def first(of: Evidence) -> Divergence:
    found = judge(of).first
    assert found is not None
    return found


@pytest.mark.parametrize("name", ALGORITHMS)
def test_who_has_no_fault_passes_whatever_it_drafts_with(name: str) -> None:
    judged = judge(evidence(scenario=OF_DRAFTS[name]))
    assert judged.first is None
    assert judged.draft == name


@pytest.mark.parametrize("name", ALGORITHMS)
def test_who_has_no_fault_passes_with_steps_that_change(name: str) -> None:
    of = evidence(scenario=drafting(OF_DRAFTS[name].draft, CHANGING))
    assert judge(of).first is None
    for count in ("step_switches_up", "step_switches_down", "unsteered_rounds"):
        assert counts(of)[count], count


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_variants_hold_for_every_draft(name: str, variant: Variant) -> None:
    if variant == "chain_as_tree" and not DRAFT_KINDS_BY_NAME[name].trees:
        with pytest.raises(InvalidScenarioError, match="but invalid trees with draft"):
            validate(msgspec.structs.replace(OF_DRAFTS[name], variant=variant))
        return
    judged = judge(evidence(variant, OF_DRAFTS[name]))
    assert judged.first is None
    assert f"variant.{variant}" in judged.results


def test_a_draft_is_held_to_what_it_has() -> None:
    judged = {name: judge(evidence(scenario=scenario)).results for name, scenario in OF_DRAFTS.items()}
    assert "draft.hidden" in judged["eagle"]
    assert "draft.hidden" not in judged["standalone"]
    assert {name for name in ALGORITHMS if "chain.hidden" in judged[name]} == {"mtp"}
    assert {name for name in ALGORITHMS if "block.visible" in judged[name]} == {"dflash"}
    assert {name for name in ALGORITHMS if "draft.match" in judged[name]} == {"ngram"}
    assert {name for name in ALGORITHMS if "extend.kv" in judged[name]} == set(ALGORITHMS) - {"ngram"}
    for name in ALGORITHMS:
        assert {
            "draft.needs",
            "draft.proposed",
            "output.lossless",
            "memory.slots",
            "memory.bounds",
            "launch.graphs",
        } <= judged[name].keys()


def test_a_layer_fed_from_the_target_is_named() -> None:
    of = evidence(scenario=CHAIN)
    hidden = of.subject.channel("extend.hidden_in")
    wrong = edited(of, "extend.hidden_in", lambda key, _: hidden[key._replace(layer=0)])
    found = first(wrong)
    assert (found.contract, found.layer, found.relation) == ("chain.hidden", 1, OtherLayer(0))
    assert failure("extend.hidden", wrong).layer == 1
    assert found.output_changed is False


def test_ids_that_are_not_shifted_are_named() -> None:
    of = evidence(scenario=CHAIN)
    ids = of.subject.channel("extend.ids")
    found = first(edited(of, "extend.ids", lambda key, _: ids[key._replace(layer=max(key.layer - 1, 0))]))
    assert (found.contract, found.layer, found.relation) == ("chain.ids", 1, OtherLayer(0))


def test_a_guess_of_another_request_is_named() -> None:
    of = evidence(scenario=CHAIN)
    ids, proposals = of.reference.channel("extend.ids"), of.reference.channel("extend.proposal")
    place, request = next(
        (Key(one.request, one.round, layer=1, row=last), other.request)
        for (_, phase), rows in sorted(of.schedule.batches.items())
        for one, other in itertools.permutations(rows, 2)
        if phase
        and (last := max((key.row for key in ids if key[:2] == (one.request, one.round)), default=0))
        and _choice(proposals, other) not in {ids.get(Key(one.request, one.round, layer=j, row=last)) for j in (0, 1)}
        and _choice(proposals, other) is not None
    )
    theirs = next(row for row in of.schedule.rows if row.request == request and row.step == _step(of, place))
    wrong = with_value(of, "extend.ids", place, _choice(proposals, theirs))
    assert failure("chain.ids", wrong).relation == OtherRow(request=request)


def _choice(proposals: Mapping[Key, Datum], row: Row) -> int | None:
    """What layer 0 proposed."""
    choice = proposals.get(Key(row.request, row.round, layer=0))
    return choice[0] if isinstance(choice, tuple) else None


def _step(of: Evidence, key: Key) -> int:
    return of.schedule.decode_steps[key[:2]]


def test_a_wrong_layer_0_is_no_fault_of_the_chain() -> None:
    of = evidence(scenario=CHAIN)
    wrong = edited(of, "extend.hidden_in", lambda key, value: bytes(len(value)) if not key.layer else value)  # type: ignore[arg-type]
    assert (first(wrong).contract, first(wrong).relation) == ("extend.hidden", Zero())
    assert list(find("chain.hidden").check(wrong)) == []


def test_without_a_chain_every_layer_has_the_states_of_the_target() -> None:
    hidden = evidence(scenario=UNCHAINED).subject.channel("extend.hidden_in")
    assert all(value == hidden[key._replace(layer=0)] for key, value in hidden.items())


@pytest.mark.parametrize("scenario", [CHAIN, UNCHAINED], ids=["chained", "unchained"])
def test_what_a_layer_need_not_compute_again_may_be_left_out_and_nothing_else(scenario: Scenario) -> None:
    of = evidence(scenario=scenario)

    def left_out(by: int) -> Evidence:
        def change(one: Observation) -> Observation | None:
            key = one.key
            if not one.channel.startswith("extend.") or key.row < 0 or not key.round:
                return one
            n = of.script.requests[key.request].rounds[key.round - 1].context
            return None if key.row < n - key.layer + by else one

        return changed(of, change)

    fewer = left_out(0)
    assert len(fewer.subject.observations) < len(of.subject.observations)
    assert judge(fewer).passed
    assert first(left_out(1)).relation == Missing()


def test_what_a_layer_computed_again_must_be_right_though_it_need_not_have_been() -> None:
    of = evidence(scenario=CHAIN)
    early = next(
        one for one in of.subject.observations if one.channel == "extend.ids" and may_leave_out(of.script, one.key)
    )
    wrong = changed(of, lambda one: one._replace(value=0) if one is early else one)
    assert failure("extend.ids", wrong).row == early.key.row


def test_a_guess_that_survives_is_noticed() -> None:
    """An entry made of a guess, as it was in the round before."""
    of = evidence(scenario=CHAIN)
    entries, ids = of.reference.channel("extend.kv"), of.reference.channel("extend.ids")
    replaced = next(
        key for key in sorted(ids) if key.layer and ids.get(key._replace(round=key.round - 1), ids[key]) != ids[key]
    )
    before = entries[replaced._replace(round=replaced.round - 1)]
    found = failure("extend.kv", with_value(of, "extend.kv", replaced, before))
    assert (found.layer, found.relation) == (replaced.layer, Stale("round", replaced.round - 1))


def test_a_block_that_sees_too_little_is_named() -> None:
    of = evidence(scenario=BLOCK)
    found = first(edited(of, "draft.block.visible", lambda _, value: value - 1))  # type: ignore[operator]
    assert (found.contract, found.relation, found.total) == ("block.visible", OffBy(-1), found.count)


def test_a_mask_is_a_token_of_a_block_only() -> None:
    of = evidence(scenario=BLOCK)
    vocab = BLOCK.model.vocab
    assert vocab in of.subject.channel("draft.block.ids").values()
    assert list(find("memory.bounds").check(of)) == []
    astray = edited(of, "verify.ids", lambda _, __: vocab)
    assert failure("memory.bounds", astray).relation == OutOfRange()
    beyond = edited(of, "draft.block.ids", lambda _, __: vocab + 1)
    assert failure("memory.bounds", beyond).relation == OutOfRange()


@pytest.mark.parametrize(
    ("features", "relation"),
    [
        (lambda one, other, _: (other, one), WrongFeature(0, 2, "feature", 1)),
        (lambda one, other, last: (last, other), WrongFeature(0, 2, "last")),
        (lambda one, other, _: (one, b"x" * len(other)), WrongFeature(1, 2)),
    ],
)
def test_a_wrong_feature_is_named(
    features: Callable[[bytes, bytes, bytes], tuple[bytes, bytes]], relation: Relation
) -> None:
    """Those of layers 1 and 0 of three, whose last state is another."""
    of = evidence(scenario=msgspec.structs.replace(BLOCK, draft=msgspec.structs.replace(BLOCK.draft, features=(1, 0))))
    key = next(key for key in sorted(of.subject.channel("extend.hidden_in")) if key.round)
    value = of.subject.channel("extend.hidden_in")[key]
    assert isinstance(value, bytes)
    half = len(value) // 2
    n = of.script.requests[key.request].rounds[key.round - 1].context
    last = of.reference.channel("verify.hidden")[Key(key.request, key.round, row=key.row - n)]
    made = b"".join(features(value[:half], value[half:], last))  # type: ignore[arg-type]
    wrong = with_value(of, "extend.hidden_in", key, made)
    assert failure("extend.hidden", wrong).relation == relation


def test_a_bonus_read_one_row_too_far_is_named() -> None:
    of = evidence(scenario=BLOCK)
    choices, correct = of.reference.channel("verify.choice"), of.reference.channel("accept.correct_len")
    key = next(
        key
        for key, a in sorted(correct.items())
        if (there := choices.get(Key(key.request, key.round, row=a + 1)))
        and there[0] != choices[key._replace(row=a)][0]  # type: ignore[operator,index]
    )
    bonus = choices[key._replace(row=correct[key] + 1)][0]  # type: ignore[operator,index]
    found = failure("accept.greedy", with_value(of, "accept.bonus", key, bonus))
    assert found.relation == ChoiceOf(correct[key] + 1, 1)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("match", "got", "relation"),
    [
        (True, (0, -1), WrongMatch("lost")),
        (False, (2, 3), WrongMatch("invented")),
        (True, (1, 1), WrongMatch("length", -1)),
    ],
)
def test_a_wrong_match_says_what_is_wrong(match: bool, got: tuple[int, int], relation: Relation) -> None:
    of = evidence(scenario=NGRAM)
    matches = of.reference.channel("propose.match")
    key = next(key for key, found in sorted(matches.items()) if found.length == (2 if match else 0))
    wrong = edited(of, "propose.match", lambda at, value: NgramMatch(*got) if at == key else value)
    found = first(wrong)
    assert (found.contract, found.relation) == ("draft.match", relation)
    assert found.output_changed is False


def test_a_match_at_another_place_is_apart() -> None:
    of = evidence(scenario=NGRAM)
    matched = next(
        match for _, match in sorted(of.reference.typed("propose.match", NgramMatch).items()) if match.length
    )

    def behind(match: NgramMatch) -> NgramMatch:
        return NgramMatch(match.length, match.place - 1)

    wrong = edited(of, "propose.match", lambda _, match: behind(match))
    found = failure("draft.match", edited(of, "propose.match", lambda _, one: behind(one) if one == matched else one))
    assert found.relation == WrongMatch("place", -1)
    assert not judge(wrong).passed


def test_a_proposal_too_long_is_noticed_though_others_are_forced() -> None:
    of = evidence(scenario=NGRAM)
    found = first(edited(of, "propose.tokens", lambda _, value: (*value, 1)))  # type: ignore[misc]
    assert (found.contract, found.relation) == ("draft.proposed", Resized(1))


def test_hidden_states_that_a_draft_does_not_need_are_noticed() -> None:
    of = evidence(scenario=STANDALONE)
    found = first(edited(of, "config.draft", lambda _, needs: DraftNeeds(6, needs.num_layers)))
    assert (found.contract, found.expected, found.got) == (
        "draft.needs",
        "no lanes of hidden states and 2 layers of entries",
        "6 lanes of hidden states and 2 layers of entries",
    )


def test_a_hole_after_a_full_accept_is_noticed() -> None:
    """A standalone draft must have an entry for the last accepted token."""
    of = evidence(scenario=STANDALONE)
    accepted = of.subject.channel("accept.correct_len")
    full = [
        (key.request, key.round, round_.context + round_.drafts)
        for request, script in enumerate(of.script.requests)
        for number, round_ in enumerate(script.rounds[:-1], start=1)
        for key in (Key(request, number),)
        if accepted[key] == round_.drafts > 0
    ]
    request, number, position = full[0]
    hole = changed(
        of,
        lambda one: (
            None
            if one.channel.startswith("extend.") and one.key[:2] == (request, number) and one.key.row == position
            else one
        ),
    )
    found = first(hole)
    assert (found.channel, found.row, found.relation) == ("extend.ids", position, Missing())


def test_rounds_without_a_match_run_without_drafts() -> None:
    of = evidence(scenario=NGRAM)
    counted = counts(of)
    assert counted["rounds_without_drafts"]
    unforced = [
        (request, number, round_)
        for request, script in enumerate(of.script.requests)
        for number, round_ in enumerate(script.rounds, start=1)
        if round_.forced is None
    ]
    assert any(of.plans.num_found(request, number, round_.context) != 3 for request, number, round_ in unforced)

    def more(one: Observation) -> Observation:
        mine = one.channel == "round.rows" and one.key[:2] == unforced[0][:2]
        return one._replace(value=msgspec.structs.replace(one.value, count=one.value.count + 1)) if mine else one

    assert failure("adaptive_steps.num_drafts", changed(of, more)).relation == OffBy(1)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_counts_of_a_draft_are_its_own(name: str) -> None:
    of = evidence(scenario=OF_DRAFTS[name])
    counted, out_of_reach = counts(of), judge(of).unreachable
    assert not [count for count in out_of_reach if counted[count]]
    assert not out_of_reach & {*COMMON, *DRAFT_KINDS_BY_NAME[name].minimum}
    assert out_of_reach <= set(FACT_NAMES)
    assert counted["own_accepted"] + counted["own_rejected"] > 0


def test_forwards_are_counted_by_the_draft() -> None:
    steps = {name: counts(evidence(scenario=OF_DRAFTS[name])) for name in ALGORITHMS}
    rounds = [round_.drafts for request in evidence().script.requests for round_ in request.rounds]
    assert steps["eagle"]["draft_steps"] == sum(max(drafts - 1, 0) for drafts in rounds)
    standalone = [
        round_.drafts for request in evidence(scenario=STANDALONE).script.requests for round_ in request.rounds
    ]
    assert steps["standalone"]["draft_steps"] == sum(standalone)
    assert steps["standalone"]["second_draft_steps"] == sum(drafts > 1 for drafts in standalone)
    assert not any(steps[name]["draft_steps"] for name in ("mtp", "dflash", "ngram"))


def test_counts_see_what_is_special_of_each_draft() -> None:
    chain, plain = counts(evidence(scenario=CHAIN)), counts(evidence(scenario=UNCHAINED))
    assert chain["layers_chained"]
    assert not chain["layers_unchained"]
    assert plain["layers_unchained"]
    assert not plain["layers_chained"]
    assert chain["guesses_replaced"]
    block = counts(evidence(scenario=BLOCK))
    assert block["blocks"] > block["blocks_cut"] > 0
    found = counts(evidence(scenario=NGRAM))
    assert [name for name in DRAFT_KINDS_BY_NAME["ngram"].minimum if not found[name]] == ["unfound_beside_found"]


def test_counts_see_prompts_whose_later_chunks_begin_with_token_0() -> None:
    assert not counts(evidence(scenario=CHAIN))["zero_tails"]
    chunk = CHAIN.schedule.chunk
    longest = max(CHAIN.requests, key=lambda request: len(request.prompt))
    assert len(longest.prompt) > chunk
    prompt = (*longest.prompt[:chunk], 0, *longest.prompt[chunk + 1 :])
    requests = tuple(msgspec.structs.replace(one, prompt=prompt) if one is longest else one for one in CHAIN.requests)
    assert counts(evidence(scenario=msgspec.structs.replace(CHAIN, requests=requests)))["zero_tails"] == 1


def test_counts_see_rows_that_found_nothing_beside_others_under_a_controller() -> None:
    seen: Counter[bool] = Counter()
    for scenario in [one for one in map(named, names()) if algorithm(one.draft) == "ngram"]:
        seen[scenario.adaptive_steps is not None] += counts(lockstep(EngineSubject(), scenario))["unfound_beside_found"]
    assert seen[True] > 0
    assert not seen[False]


def test_a_chain_of_one_layer_is_counted() -> None:
    one = validate(put(fit(CHAIN, Limits(max_drafts=1)), "draft.layers", 1))
    found = counts(evidence(scenario=one))
    assert found["chains_of_one"]
    assert not found["layers_chained"] + found["layers_unchained"]


def test_a_draft_is_inconclusive_until_its_own_scenarios_reach_all_that_it_needs() -> None:
    judged = [judge(evidence(scenario=scenario)) for scenario in OF_DRAFTS.values()]
    counted = [counts(evidence(scenario=scenario)) for scenario in OF_DRAFTS.values()]
    enough = [dict.fromkeys(FACT_NAMES, 1)] * len(judged)
    assert {v.name: v.verdict for v in by_draft(judged, enough)} == {
        f"runs.{name}": Outcome.PASS for name in ALGORITHMS
    }
    nothing = by_draft(judged, [total([])] * len(judged))
    assert {verdict.verdict for verdict in nothing} == {Outcome.INCONCLUSIVE}
    for name in (*COMMON, *DRAFT_KINDS_BY_NAME["ngram"].minimum):
        at = [judgement.draft for judgement in judged].index("ngram")
        few = [one | ({name: 0} if place == at else {}) for place, one in enumerate(enough)]
        wrong = [verdict for verdict in by_draft(judged, few) if verdict.verdict is not Outcome.PASS]
        assert [(verdict.name, verdict.missing) for verdict in wrong] == [("runs.ngram", (f"{name} >= 1",))]
    lacking = {verdict.name: verdict.missing for verdict in by_draft(judged, counted) if verdict.missing}
    assert lacking == {
        "runs.eagle": ("zero_tails >= 1",),
        "runs.mtp": ("layers_unchained >= 1", "chains_of_one >= 1", "zero_tails >= 1"),
        "runs.ngram": ("unfound_beside_found >= 1",),
        "runs.eagle3": ("zero_tails >= 1",),
    }
    own = [one | dict.fromkeys(COMMON, 0) for one in enough]
    assert {verdict.verdict for verdict in by_draft(judged, own, common=())} == {Outcome.PASS}
    assert [v.verdict for v in by_draft(judged[:1], enough[:1], wanted=("mtp",))] == [Outcome.INCONCLUSIVE]


def test_a_draft_is_not_asked_for_what_it_cannot_reach() -> None:
    judged = judge(evidence(scenario=NGRAM))
    assert {"draft_steps", "layers_chained", "blocks"} <= judged.unreachable
    reachable = {name for contract in ALL if contract.name in judged.results for name in contract.minimum}
    # Tokens are chosen under every draft; of choices against a drawn one's weights other drafts are not asked.
    assert reachable & judged.unreachable == set(names_of("drawn-drafts")) - {"drafts_drawn"}
    assert not [
        one for one in summarise([judged], [{}]) if {*names_of("drawn-drafts")} & {*" ".join(one.missing).split()}
    ]


def test_a_real_draft_has_as_many_layers_as_the_reference_says() -> None:
    real = CheckpointDraft(algorithm="mtp", built_in=True)
    assert form_of(real, DraftNeeds(64, 2)).extend_launches == 2
    assert form_of(real, DraftNeeds(64, 2)).reach == 1
    of = evidence(scenario=CHAIN)
    assert of.form.layers == LAYERS
    assert msgspec.structs.replace(CHAIN, draft=real).draft == real
