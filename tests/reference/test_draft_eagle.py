"""The EAGLE draft in the reference's trace: its extends and its steps against passes of the head alone."""

import numpy as np
import pytest
from hypothesis import given
from msgspec.structs import replace

from draftproof.properties.values.observed import DraftNeeds
from draftproof.properties.values.scenario import ProbeModel, Scenario
from draftproof.properties.values.trace import Key
from draftproof.reference.build import build
from draftproof.reference.choose import choose
from draftproof.reference.memo import Memo
from draftproof.reference.probe.drafts import ProbeEagleHead
from draftproof.reference.protocols import taken
from draftproof.reference.run import run
from draftproof.reference.solve import solve
from tests.reference.draft_rows import Told
from tests.reference.scenarios import BRIEF, model, request, scenario, scenarios


def head_of(made: Scenario) -> ProbeEagleHead:
    assert isinstance(made.model, ProbeModel)
    return ProbeEagleHead(made.draft, made.model, Memo(enabled=False))


@BRIEF
@given(scenarios("eagle"))
def test_extends_follow_from_one_pass_over_the_entries_of_the_final_sequence(made: Scenario) -> None:
    made = replace(made, requests=made.requests[:1])
    script = solve(made)
    trace, tokens = run(made, script), made.requests[0].prompt + script.requests[0].tokens
    head = head_of(made)
    hidden = taken(head, build(made, Memo(enabled=False))[0].forward(tokens[:-1]))
    entries = head.forward(tokens[1:], hidden)
    for number in range(len(script.requests[0].rounds)):
        told = Told(trace, number)
        for row, value in told.rows("extend.hidden_in", "row").items():
            assert value == hidden[row].tobytes()
            assert told("extend.kv", layer=0, row=row) == entries.kv[0][row].tobytes()
            assert told("extend.ids", layer=0, row=row) == tokens[row + 1]
            assert told("extend.positions", layer=0, row=row) == row
        assert told("extend.proposal", layer=0) == tuple(choose(entries.logits[told("commit.length") - 1], head.ids))


@BRIEF
@given(scenarios("eagle"))
def test_draft_steps_chain_from_the_last_extend(made: Scenario) -> None:
    """Each step consumes the proposal before it; its state comes from the pass that ends one entry earlier."""
    made = replace(made, requests=made.requests[:1])
    script = solve(made)
    trace, solved, prompt = run(made, script), script.requests[0], made.requests[0].prompt
    target, head = build(made, Memo(enabled=False))[0], head_of(made)
    tokens, n = prompt + solved.tokens[:1], len(prompt)
    for number, round_ in enumerate(solved.rounds, start=1):
        told, last = Told(trace, number), Told(trace, number - 1)
        proposal = last("extend.proposal", layer=0)
        ids, hidden = list(tokens[1:]), taken(head, target.forward(tokens[:-1]))
        own = [proposal[0]]
        for k in range(1, round_.drafts):
            g = head.forward(tuple(ids), hidden).hidden[-1]
            assert told("draft.step.ids", step=k) == own[-1]
            assert told("draft.step.positions", step=k) == n + k - 1
            assert told("draft.step.hidden_in", step=k) == g.tobytes()
            ids, hidden = [*ids, own[-1]], np.vstack((hidden, g))
            proposal = choose(head.forward(tuple(ids), hidden).logits[-1], head.ids)
            assert told("draft.step.proposal", step=k) == tuple(proposal)
            own.append(proposal[0])
        assert told("propose.tokens") == tuple(own[: round_.drafts])
        tokens, n = tokens + round_.emitted, n + len(round_.emitted)


def test_after_a_prompt_of_7_the_first_draft_forward_is_at_position_7() -> None:
    """And K proposals need K - 1 forwards."""
    made = scenario(request(prompt=7, rounds=((4, 2),)))
    trace = run(made, solve(made))
    assert Told(trace, 0).rows("extend.positions", "row") == {row: row for row in range(7)}
    assert Told(trace, 1).rows("draft.step.positions", "step") == {1: 7, 2: 8, 3: 9}
    assert Told(trace, 1).rows("verify.positions", "row") == {0: 7, 1: 8, 2: 9, 3: 10, 4: 11}
    assert Told(trace, 1).rows("extend.positions", "row") == {7: 7, 8: 8, 9: 9}
    assert Told(trace, 2).rows("draft.step.positions", "step") == {1: 10, 2: 11, 3: 12}


@pytest.mark.parametrize("lanes", [2, 7])
def test_it_says_what_it_is_fed_with(lanes: int) -> None:
    made = scenario(request(budget=1), of=model(lanes=lanes))
    assert run(made, solve(made)).channel("config.draft") == {Key(-1, 0): DraftNeeds(lanes, 1)}
