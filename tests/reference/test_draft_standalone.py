"""The standalone draft against the naive twin and plain decoding of its own model."""

import msgspec
import numpy as np
import pytest
from hypothesis import given

from draftproof.properties.values.drafts import Standalone
from draftproof.properties.values.observed import DraftNeeds
from draftproof.properties.values.scenario import ProbeModel, Scenario
from draftproof.properties.values.trace import Key
from draftproof.properties.weights.probe import draft_weights, target_weights
from draftproof.reference.choose import choose
from draftproof.reference.memo import Memo
from draftproof.reference.probe.drafts import standalone
from draftproof.reference.probe.target import ReferenceProbeTarget
from draftproof.reference.run import run
from draftproof.reference.solve import solve
from tests.naive_probe import naive_standalone
from tests.reference.draft_rows import Told
from tests.reference.scenarios import BRIEF, SMALL, hybrid, model, request, scenario, scenarios

MODEL = model(vocab=61)
TOKENS = tuple(int(token) for token in np.random.default_rng(11).integers(0, 61, 12))


def language_model(spec: Standalone = SMALL, of: ProbeModel = MODEL) -> ReferenceProbeTarget:
    return standalone(spec, of, Memo(enabled=False))


@pytest.mark.parametrize("of", [MODEL, hybrid("linear_attention", "full_attention", of=MODEL)])
def test_equals_the_naive_twin(of: ProbeModel) -> None:
    hidden, logits, kv, _ = naive_standalone(SMALL, of, TOKENS[:6])
    got = language_model(of=of).forward(TOKENS[:6])
    assert got.hidden.tolist() == hidden
    assert got.logits.tolist() == logits
    assert [layer.tolist() for layer in got.kv] == kv


@pytest.mark.parametrize("of", [MODEL, hybrid("linear_attention", "full_attention", of=MODEL)])
def test_its_carry_is_the_targets(of: ProbeModel) -> None:
    true = ReferenceProbeTarget(of, Memo()).forward(TOKENS)
    own = language_model(of=of).forward(TOKENS)
    assert own.hidden[:, 0].tolist() == true.hidden[:, 0].tolist()
    assert (own.hidden[:, 1:6] != true.hidden[:, 1:6]).all()


def test_a_memo_keeps_it_apart_from_a_target_of_its_form() -> None:
    """A probe of just its sizes and seed, and the same draft of another target."""
    memo, other = Memo(), model(vocab=61, agreement=0)
    spec = ProbeModel(
        seed=SMALL.seed, layers=2, heads=3, kv_heads=1, key_dim=2, value_dim=4, lanes=6, vocab=61, agreement=256
    )
    assert target_weights(spec).keys() == draft_weights(SMALL, MODEL).keys()
    passes = [made.forward(TOKENS) for made in (ReferenceProbeTarget(spec, memo), standalone(SMALL, MODEL, memo))]
    assert (passes[0].kv[0] != passes[1].kv[0]).any(axis=1).all()
    assert (standalone(SMALL, MODEL, memo).forward(TOKENS).hidden == passes[1].hidden).all()
    changed = msgspec.structs.replace(other, seed=4)
    assert (standalone(SMALL, changed, memo).forward(TOKENS).hidden[:, 0] != passes[1].hidden[:, 0]).all()


@BRIEF
@given(scenarios("standalone"))
def test_steps_and_extends_follow_from_passes_over_its_own_tokens(made: Scenario) -> None:
    """Entry i is t_i at position i: after every round all those of committed tokens, and none that a step made."""
    made = msgspec.structs.replace(made, requests=made.requests[:1])
    assert isinstance(made.model, ProbeModel)
    script = solve(made)
    trace, tokens = run(made, script), made.requests[0].prompt + script.requests[0].tokens
    own = language_model(made.draft, made.model)
    entries = own.forward(tokens).kv
    for number, round_ in enumerate((None, *script.requests[0].rounds)):
        told = Told(trace, number)
        for row, value in told.rows("extend.ids", "row").items():
            assert value == tokens[row]
            assert told("extend.positions", layer=0, row=row) == row
        for key, value in trace.of("extend.kv", round=number):
            assert value == entries[key.layer][key.row].tobytes()
        ids = tokens[: round_.context + 1] if round_ is not None else ()
        for k in range(1, 1 + (round_.drafts if round_ else 0)):
            choice = choose(own.forward(ids).logits[-1])
            assert told("draft.step.ids", step=k) == ids[-1]
            assert told("draft.step.positions", step=k) == len(ids) - 1
            assert told("draft.step.proposal", step=k) == tuple(choice)
            ids = (*ids, choice.token)
        if round_ is not None:
            assert told("propose.tokens") == ids[round_.context + 1 :]


def test_positions_by_hand() -> None:
    """After a prompt of 7: K drafts take K steps, and an accepted last draft is run by the extend."""
    made = scenario(request(prompt=7, budget=20, rounds=((3, 3), (0, 0))), draft=SMALL)
    trace = run(made, solve(made))
    assert Told(trace, 0).rows("extend.positions", "row") == {row: row for row in range(7)}
    assert Told(trace, 1).rows("draft.step.positions", "step") == {1: 7, 2: 8, 3: 9}
    assert Told(trace, 1).rows("extend.positions", "row") == {row: row for row in range(7, 11)}
    assert Told(trace, 2).rows("draft.step.positions", "step") == {}
    assert Told(trace, 2).rows("extend.positions", "row") == {11: 11}
    assert {key.layer for key in trace.channel("extend.kv")} == {0, 1}
    assert trace.channel("config.draft") == {Key(-1, 0): DraftNeeds(0, 2)}
    assert "extend.proposal" not in trace.channels
    assert not [name for name in trace.channels if name.endswith("hidden_in")]
