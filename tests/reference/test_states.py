"""States in the reference's trace, by example and against passes of their own."""

import pytest
from hypothesis import given
from msgspec.structs import replace

from draftproof.properties.values.scenario import Request, Scenario, States
from draftproof.properties.values.trace import Trace
from draftproof.reference.build import build
from draftproof.reference.memo import Memo
from draftproof.reference.run import run
from draftproof.reference.solve import solve
from tests.reference.scenarios import BRIEF, hybrid, request, scenario, scenarios

MIXED = hybrid("linear_attention", "full_attention", "linear_attention")


def traced(asked: Request, states: States) -> Trace:
    made = scenario(asked, of=MIXED, states=states)
    return run(made, solve(made))


def rounds(trace: Trace, channel: str) -> list[int]:
    return sorted({key.round for key, _ in trace.of(channel, request=0)})


def values(trace: Trace, channel: str, layer: int = 0) -> dict[int, object]:
    return {key.round: value for key, value in trace.of(channel, request=0, layer=layer)}


def test_a_request_by_hand() -> None:
    """Five tokens of prompt; rounds of 3 drafts of which 1 is right, so two tokens a round: 5, 7, 9, 11; the last round
    is cut to one token, 12."""
    asked = request(prompt=5, budget=8, rounds=((3, 1), (3, 1), (3, 1), (0, 0)))
    trace = traced(asked, States(commit="snapshot", checkpoint=4))
    assert {key.round: value for key, value in trace.channel("commit.length").items()} == {
        0: 5,
        1: 7,
        2: 9,
        3: 11,
        4: 12,
    }
    assert {key.round: value for key, value in trace.channel("commit.step_index").items()} == {1: 1, 2: 1, 3: 1, 4: 0}
    assert rounds(trace, "commit.checkpoint") == [0, 1, 2, 3, 4]
    assert rounds(trace, "commit.final") == [4]
    assert {key.layer for key in trace.channel("commit.state")} == {0, 2}
    assert {key.layer for key in trace.channel("commit.kv")} == {1}
    state, checkpoint = values(trace, "commit.state"), values(trace, "commit.checkpoint")
    rows = {(key.round, key.row): value for key, value in trace.of("commit.intermediate", layer=0)}
    assert sorted(rows) == [*((r, row) for r in (1, 2, 3) for row in range(4 - (r == 3))), (4, 0)]
    assert rows[1, 1] == state[1]
    assert rows[2, 0] == checkpoint[2] == checkpoint[3] != checkpoint[1] == checkpoint[0]
    assert state[4] == checkpoint[4] == values(trace, "commit.final")[4]
    assert len(set(state.values())) == 5


def test_replay_says_the_same_state_in_two_parts() -> None:
    asked = request(prompt=5, budget=8, rounds=((3, 1), (2, 2)))
    one = traced(asked, States(commit="snapshot", checkpoint=2))
    two = traced(asked, States(commit="replay", checkpoint=2))
    for name in one.channels & two.channels:
        assert one.channel(name) == two.channel(name), name
    assert one.channels - two.channels == {"commit.intermediate"}
    assert two.channels - one.channels == {"commit.pending", "commit.base", "commit.unfolded"}
    state, base = values(two, "commit.state"), values(two, "commit.base")
    assert base == {0: state[0]} | {number: state[number - 1] for number in state if number}
    lengths = {key.round: value for key, value in two.channel("commit.length").items()}
    pending = {key.round: value for key, value in two.channel("commit.pending").items()}
    assert pending == {0: 0} | {number: lengths[number] - lengths[number - 1] for number in lengths if number}


def test_a_request_that_ends_with_its_prefill_hands_its_state_over() -> None:
    trace = traced(request(budget=1), States(commit="replay"))
    assert rounds(trace, "commit.final") == rounds(trace, "commit.state") == [0]
    assert values(trace, "commit.final") == values(trace, "commit.state") == values(trace, "commit.base")


def test_a_round_that_completes_two_multiples_reports_the_last() -> None:
    trace = traced(request(prompt=5, rounds=((4, 4),)), States(checkpoint=2))
    rows = {key.row: value for key, value in trace.of("commit.intermediate", round=1, layer=2)}
    assert values(trace, "commit.checkpoint", layer=2)[1] == rows[4]
    assert values(trace, "commit.checkpoint", layer=2)[1] == values(trace, "commit.state", layer=2)[1]


@pytest.mark.parametrize("types", [("full_attention",), ("linear_attention", "full_attention", "linear_attention")])
def test_routing_is_the_type_of_every_layer(types: tuple) -> None:
    made = scenario(request(), of=hybrid(*types) if len(types) > 1 else None)
    told = {key.layer: value for key, value in run(made, solve(made)).channel("config.routing").items()}
    assert told == ({0: 1, 1: 0, 2: 1} if len(types) > 1 else {0: 0, 1: 0})


@BRIEF
@given(scenarios())
def test_an_intermediate_row_is_the_state_of_a_pass_that_ends_with_it(made: Scenario) -> None:
    """Rejected rows too, each from a pass over the tokens before it and nothing else."""
    made = replace(made, requests=made.requests[:1], states=States(commit="snapshot"))
    trace, target = run(made, solve(made)), build(made, Memo(enabled=False))[0]
    tokens = made.requests[0].prompt
    for number in range(1 + max(key.round for key in trace.channel("accept.emitted"))):
        rows = {(key.layer, key.row): value for key, value in trace.of("commit.intermediate", round=number)}
        ids = [value for _, value in sorted((key.row, value) for key, value in trace.of("verify.ids", round=number))]
        for (layer, row), value in rows.items():
            states = target.forward((*tokens[:-1], *ids[: row + 1])).states
            assert value == states[made.model.types[:layer].count("linear_attention")][-1].tobytes()
        tokens += dict(trace.of("accept.emitted", round=number)).popitem()[1]
