"""Chained multi-token prediction against the naive twin, an EAGLE head, and passes written out entry by entry."""

import msgspec
import numpy as np
import pytest
from hypothesis import given

from draftproof.properties.values.drafts import Mtp
from draftproof.properties.values.observed import DraftNeeds
from draftproof.properties.values.scenario import ProbeModel, Scenario
from draftproof.properties.values.trace import Key
from draftproof.properties.weights.probe import draft_weights
from draftproof.reference.build import build
from draftproof.reference.drafts import eagle as eagle_draft
from draftproof.reference.drafts import mtp as mtp_draft
from draftproof.reference.memo import Memo
from draftproof.reference.probe.drafts import ReferenceProbeChain
from draftproof.reference.probe.target import ReferenceProbeTarget
from draftproof.reference.protocols import taken
from draftproof.reference.run import run
from draftproof.reference.solve import solve
from tests.naive_probe import naive_chain_layer, naive_target
from tests.reference.draft_rows import Told, by_place
from tests.reference.scenarios import BRIEF, CHAIN, HEAD, model, request, scenario, scenarios

MODEL = model(vocab=61)
TOKENS = tuple(int(token) for token in np.random.default_rng(11).integers(0, 61, 12))
FORMS = [(chain, handed) for chain in (True, False) for handed in ("after_norm", "before_norm")]


def without(memo: bool = False) -> Memo:
    return Memo(enabled=memo)


def draft(chain: bool = True, handed: str = "after_norm", layers: int = 3) -> Mtp:
    return msgspec.structs.replace(CHAIN, chain=chain, handed=handed, layers=layers)


@pytest.mark.parametrize("handed", ["after_norm", "before_norm"])
def test_a_layer_equals_the_naive_twin(handed: str) -> None:
    hidden, _, _, _ = naive_target(MODEL, TOKENS[:6])
    chain, states = ReferenceProbeChain(draft(handed=handed), MODEL, without()), hidden
    for layer in range(3):
        ids = TOKENS[layer + 1 : layer + 7]
        got = chain.forward(layer, ids, np.array(states, dtype=np.uint64))
        states, logits, entries = naive_chain_layer(draft(handed=handed), MODEL, layer, ids, states)
        assert got.hidden.tolist() == states
        assert got.logits.tolist() == logits
        assert [layer.tolist() for layer in got.kv] == [entries]


@pytest.mark.parametrize(("chain", "handed"), FORMS)
def test_a_whole_extend_equals_one_of_naive_layers(chain: bool, handed: str) -> None:
    """Tokens t_0 .. t_T with T = 6: layer j's ids are the tokens from j + 1 on, and the proposals before it."""
    made, last = draft(chain, handed), 6
    first = target_states = naive_target(MODEL, TOKENS[:last])[0]
    own: list[int] = []
    told = by_place(mtp_draft.probe(made, MODEL, without()).extend(*known(last), first=0))
    for layer in range(3):
        ids = (*TOKENS[layer + 1 : last + 1], *own)
        states, logits, entries = naive_chain_layer(made, MODEL, layer, ids, first)
        for place in range(last):
            at = (-1, layer, place)
            assert told["extend.ids", *at] == ids[place]
            assert told["extend.positions", *at] == place
            assert told["extend.hidden_in", *at] == np.array(first[place], dtype="<u8").tobytes()
            assert told["extend.kv", *at] == np.array(entries[place], dtype="<u8").tobytes()
        ranked = sorted(range(61), key=lambda token: (-logits[-1][token], token))
        own.append(ranked[0])
        margin = logits[-1][ranked[0]] - logits[-1][ranked[1]]
        assert told["extend.proposal", -1, layer, -1] == (own[-1], margin)
        first = states if chain else target_states
    assert len(told) == 3 * (4 * last + 1)
    assert mtp_draft.probe(made, MODEL, without()).propose(*known(last), 3) == (tuple(own), (), (), ())
    assert mtp_draft.probe(made, MODEL, without()).propose(*known(last), 2) == (tuple(own[:2]), (), (), ())


def known(last: int) -> tuple:
    """Tokens t_0 .. t_last and the target's pass over those before the last."""
    return TOKENS[: last + 1], ReferenceProbeTarget(MODEL, without()).forward(TOKENS[:last])


@pytest.mark.parametrize("chain", [True, False])
def test_a_chain_of_one_layer_extends_as_an_eagle_head_of_its_weights(
    monkeypatch: pytest.MonkeyPatch, chain: bool
) -> None:
    one = draft(chain, layers=1)
    weights = dict(draft_weights(one, MODEL))
    weights |= {"fc": weights.pop("fc.0"), "out": weights.pop("out.0")}
    head = msgspec.structs.replace(HEAD, seed=77)
    own = {one: draft_weights(one, MODEL), head: weights}
    monkeypatch.setattr("draftproof.reference.probe.drafts.draft_weights", lambda spec, _: own[spec])
    for last in (1, 5, 9):
        for first in (0, last - 1):
            mine = mtp_draft.probe(one, MODEL, without()).extend(*known(last), first)
            theirs = eagle_draft.probe(head, MODEL, without()).extend(*known(last), first)
            assert by_place(mine) == by_place(theirs)


def test_the_window_starts_again_at_what_guesses_may_have_been_in() -> None:
    chain = mtp_draft.probe(draft(layers=4), MODEL, without())
    for last, first, start in ((9, 7, 4), (9, 8, 5), (5, 1, 0), (5, 0, 0), (9, 3, 0), (9, 4, 1)):
        rows = [one.row for one in chain.extend(*known(last), first) if (one.channel, one.layer) == ("extend.kv", 2)]
        assert rows == list(range(start, last))


@BRIEF
@given(scenarios("mtp"))
def test_no_guess_survives_a_commit(made: Scenario) -> None:
    """What was last said of an entry that only true tokens are in is what one long pass says of it; entries of which
    a round says nothing hold no guess."""
    made = msgspec.structs.replace(made, requests=made.requests[:1])
    assert isinstance(made.model, ProbeModel)
    script = solve(made)
    trace, tokens = run(made, script), made.requests[0].prompt + script.requests[0].tokens
    chain = ReferenceProbeChain(made.draft, made.model, without())
    states = taken(chain, build(made, without())[0].forward(tokens[:-1]))
    true = []
    for layer in range(chain.layers):
        ids = tokens[layer + 1 :]
        inputs = (states if not layer or not chain.chain else true[-1][1].hidden)[: len(ids)]
        if not ids:
            break
        true.append((ids, chain.forward(layer, ids, inputs), inputs))
    held: dict[tuple[int, int], tuple[object, ...]] = {}
    for number in range(len(script.requests[0].rounds)):
        told = Told(trace, number)
        length = told("commit.length")
        for key, value in trace.of("extend.kv", request=0, round=number):
            place = {"layer": key.layer, "row": key.row}
            held[key.layer, key.row] = (told("extend.ids", **place), told("extend.hidden_in", **place), value)
        assert len(held) == length * chain.layers
        for (layer, row), found in held.items():
            if row + layer < length:
                ids, done, inputs = true[layer]
                assert found == (ids[row], inputs[row].tobytes(), done.kv[0][row].tobytes())
        for layer in range(chain.layers):
            guesses = [told("extend.proposal", layer=before)[0] for before in range(layer)]
            assert [held[layer, row][0] for row in range(max(0, length - layer), length)] == guesses[-length:]


@BRIEF
@given(scenarios("mtp"))
def test_a_round_proposes_what_the_extend_before_it_chose(made: Scenario) -> None:
    made = msgspec.structs.replace(made, requests=made.requests[:1])
    script = solve(made)
    trace = run(made, script)
    for number, round_ in enumerate(script.requests[0].rounds, start=1):
        chosen = Told(trace, number - 1).rows("extend.proposal", "layer")
        own = tuple(chosen[layer][0] for layer in range(round_.drafts))
        assert Told(trace, number)("propose.tokens") == own


def test_every_input_of_a_layer_matters() -> None:
    """A token, a hidden lane, the place of an entry, and the layer."""
    chain, hidden = ReferenceProbeChain(draft(), MODEL, without()), known(9)[1].hidden
    for layer in range(3):
        ids = TOKENS[1:10]
        base = chain.forward(layer, ids, hidden)
        for place in range(9):
            after = [row >= place for row in range(9)]
            changed = [*ids[:place], (ids[place] + 1) % 61, *ids[place + 1 :]]
            runs = [chain.forward(layer, tuple(changed), hidden)]
            for lane in range(MODEL.lanes):
                other = hidden.copy()
                other[place, lane] ^= np.uint64(1)
                runs.append(chain.forward(layer, ids, other))
            for got in runs:
                assert (got.hidden[:, 1:] != base.hidden[:, 1:]).all(axis=1).tolist() == after
                assert (got.hidden[:, 1:] != base.hidden[:, 1:]).any(axis=1).tolist() == after
        same = chain.forward(layer, (5,) * 9, np.repeat(hidden[:1], 9, axis=0))
        assert all(len(set(lane)) == 9 for lane in same.hidden.T.tolist())
        assert (chain.forward((layer + 1) % 3, ids, hidden).hidden != base.hidden).all()


@pytest.mark.parametrize("layers", [2, 5])
def test_it_says_what_it_is_fed_with(layers: int) -> None:
    made = scenario(request(budget=1, rounds=((2, 1),)), steps=2, draft=draft(layers=layers))
    assert run(made, solve(made)).channel("config.draft") == {Key(-1, 0): DraftNeeds(7, layers)}
