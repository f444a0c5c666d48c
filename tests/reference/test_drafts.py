"""What holds for every draft: agreement, and that a proposal is a function of tokens and of nothing else."""

import pytest
from hypothesis import given
from msgspec.structs import replace

from draftproof.properties.values.drafts import ALGORITHMS, DRAFT_KINDS_BY_NAME, Draft, kind_of
from draftproof.properties.values.scenario import ProbeModel, Scenario
from draftproof.reference.build import build
from draftproof.reference.memo import Memo
from draftproof.reference.run import REFERENCE_CHANNELS, channels
from draftproof.reference.solve import solve
from tests.reference.draft_rows import TOLD, by_place
from tests.reference.scenarios import BRIEF, DRAFTS, hybrid, model, request, scenario, scenarios

MODELLED = ("eagle", "mtp", "dflash", "standalone")
MIXED = ("linear_attention", "full_attention", "linear_attention")
PROMPT = (3, 1, 4, 1, 5)


def every() -> list[tuple[str, Draft]]:
    """Each draft, and each form of those that have several."""
    chain, block = DRAFTS["mtp"], DRAFTS["dflash"]
    return [
        *DRAFTS.items(),
        ("mtp", replace(chain, handed="before_norm")),
        ("dflash", replace(block, features=(1, 0), layers=3)),
    ]


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize(("kind", "draft"), [one for one in every() if one[0] in MODELLED])
def test_with_full_agreement_the_proposals_are_plain_greedy_decoding(mixed: bool, kind: str, draft: Draft) -> None:
    """So the carry is continued exactly, along a chain, a block and a pass of the draft's own."""
    of = model(vocab=61, agreement=256)
    made = scenario(request(), draft=draft, steps=5, of=hybrid(*MIXED, of=of) if mixed else of)
    target, own = build(made, Memo())
    tokens = PROMPT
    for _ in range(12):
        truth = tokens
        for _ in range(5):
            logits = target.forward(truth).logits[-1].tolist()
            truth = (*truth, logits.index(max(logits)))
        for count in range(6):
            proposed = own.propose(tokens, target.forward(tokens[:-1]), count).tokens
            assert proposed == truth[len(tokens) :][:count], kind
        tokens = truth[: len(tokens) + 1]


def test_a_chain_that_is_off_agrees_with_its_first_layer_only() -> None:
    """Later layers take h_i with a later token, so that their carry lacks the tokens between."""
    draft = replace(DRAFTS["mtp"], chain=False)
    asked = request(budget=120, rounds=((5, -1),))
    rounds = solve(scenario(asked, draft=draft, steps=5, max_len=256, of=model(vocab=61, agreement=256))).requests[0]
    lengths = [round_.correct_len for round_ in rounds.rounds if round_.drafts == 5]
    assert min(lengths) == 1
    assert sum(lengths) < 1.1 * len(lengths)


@pytest.mark.parametrize("kind", MODELLED)
@pytest.mark.parametrize(("agreement", "low", "high"), [(256, 1.0, 1.0), (128, 0.4, 0.6), (0, 0.0, 0.05)])
def test_drafts_are_accepted_as_often_as_the_scenario_says(kind: str, agreement: int, low: float, high: float) -> None:
    """Of the drafts that were reached; what follows a favourite that did not count is wrong anyway."""
    asked = request(budget=200, rounds=((4, -1),))
    made = scenario(asked, draft=DRAFTS[kind], max_len=256, of=model(vocab=61, agreement=agreement))
    rounds = solve(made).requests[0].rounds
    reached = sum(min(round_.correct_len + 1, round_.drafts) for round_ in rounds)
    assert reached > 150
    assert low <= sum(round_.correct_len for round_ in rounds) / reached <= high


@BRIEF
@given(scenarios())
def test_a_proposal_and_an_extend_are_functions_of_their_arguments(made: Scenario) -> None:
    """With a memo that other calls have filled or without one, and a shorter proposal is the beginning of a longer."""
    assert isinstance(made.model, ProbeModel)
    target, own = build(made, Memo())
    plain_target, plain = build(made, Memo(enabled=False))
    tokens = (*made.requests[0].prompt, *solve(made).requests[0].tokens)
    for length in (len(tokens), 2, len(tokens) // 2 + 1, len(tokens)):
        whole, same = target.forward(tokens[: length - 1]), plain_target.forward(tokens[: length - 1])
        most = own.propose(tokens[:length], whole, made.steps).tokens
        for count in range(made.steps + 1):
            proposal = own.propose(tokens[:length], whole, count)
            again = plain.propose(tokens[:length], same, count)
            assert proposal._replace(said=()) == again._replace(said=())
            assert by_place(proposal.said) == by_place(again.said)
            assert proposal.tokens == most[:count] or kind_of(made.draft).name == "dflash"
        for first in {0, length - 2, length // 2}:
            assert by_place(own.extend(tokens[:length], whole, first)) == by_place(
                plain.extend(tokens[:length], same, first)
            )


@pytest.mark.parametrize("kind", ALGORITHMS)
def test_it_declares_what_its_kind_reports_but_for_slots(kind: str) -> None:
    made = scenario(request(), draft=DRAFTS[kind])
    told = {name for name in DRAFT_KINDS_BY_NAME[kind].tapped if not name.endswith((".slots", ".discarded"))}
    assert told == TOLD[kind]
    declared = channels(made, made.model.types)
    assert declared <= REFERENCE_CHANNELS
    others = set().union(*TOLD.values()) - told
    assert told <= declared
    assert not others & declared
    assert {"propose.tokens", "config.draft"} <= declared
